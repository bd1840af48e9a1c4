//! Injects the router's own packets as if they had arrived at a port, so they are routed, translated and resolved
//! like others.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use thalweg_base::{ChunkBuilder, DropReason, LinkType, NO_CLASS, NO_PORT};
use thalweg_ports::live::{PortRx, RxCounters};

use crate::capture::Seen;
use crate::counters::Counters;

/// Packets that may wait to be injected.
const WAITING_MAX: usize = 1024;

/// An IP packet and the port where it seems to arrive.
struct Injected {
    port_in: u16,
    packet: Vec<u8>,
}

/// The end that the host thread writes to.
pub(crate) struct Injector {
    queue: Sender<Injected>,
    waker: UnixStream,
    refused: u64,
}

/// The end that a source reads, as it reads a port.
pub(crate) struct InjectedRx {
    queue: Receiver<Injected>,
    waker: UnixStream,
    counters: RxCounters,
    router_counters: Arc<Counters>,
}

/// Makes both ends.
pub(crate) fn injection(router_counters: Arc<Counters>) -> io::Result<(Injector, InjectedRx)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let (send, receive) = bounded(WAITING_MAX);
    Ok((
        Injector { queue: send, waker: ours, refused: 0 },
        InjectedRx { queue: receive, waker: theirs, counters: RxCounters::default(), router_counters },
    ))
}

impl Injector {
    /// Injects an IP packet as if it had arrived at `port_in`. Gives it back if too many wait.
    pub(crate) fn inject(&mut self, port_in: u16, packet: Vec<u8>) -> Result<(), Vec<u8>> {
        let taken = match self.queue.try_send(Injected { port_in, packet }) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => Err(back.packet),
        };
        self.refused += u64::from(taken.is_err());
        // A full waker has been written to already.
        let _ = self.waker.write(&[0]);
        taken
    }

    /// Packets given back.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

impl InjectedRx {
    fn take(&mut self, limit: usize, now_ns: u64, into: &mut ChunkBuilder) -> usize {
        let mut count = 0;
        while count < limit {
            let Ok(Injected { port_in, packet }) = self.queue.try_recv() else { break };
            let offset = into.next_frame_offset();
            let Some(room) = into.buffer_mut().get_mut(offset..offset + packet.len()) else {
                self.counters.refused += 1;
                self.router_counters.add_own(packet.len() as u64);
                self.router_counters.drop_seen(DropReason::HostQueueFull, &seen(port_in, &packet));
                continue;
            };
            room.copy_from_slice(&packet);
            into.push(offset, packet.len(), packet.len() as u32, now_ns, LinkType::RawIp, port_in, 0);
            self.counters.frames += 1;
            self.counters.bytes += packet.len() as u64;
            count += 1;
        }
        count
    }
}

/// A packet that could not be injected, as captures see it.
pub(crate) fn seen(port_in: u16, packet: &[u8]) -> Seen<'_> {
    let (port_out, class) = (NO_PORT, NO_CLASS);
    Seen { frame: packet, is_ip: true, is_leaving: false, port_in, port_out, class }
}

impl PortRx for InjectedRx {
    fn receive(
        &mut self,
        _port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        let mut count = self.take(limit, now_ns, into);
        if count < limit {
            // The waker was written for the packets taken, or for later ones: clear it and look again.
            let mut bytes = [0; 64];
            while matches!(self.waker.read(&mut bytes), Ok(1..)) {}
            count += self.take(limit - count, now_ns, into);
        }
        Ok(count)
    }

    fn fd(&self) -> RawFd {
        self.waker.as_raw_fd()
    }

    fn counters(&mut self) -> RxCounters {
        self.counters
    }
}

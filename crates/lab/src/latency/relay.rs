//! The least that a router in a program can do: one thread at real-time priority that sleeps until a frame comes, lowers
//! its TTL and sends it on.
//!
//! Its times are what this machine adds by waking a thread; no program that sleeps between packets is below them. A relay
//! that holds each frame back for a given time is the experiment's own test: the time must show up.

use crate::cpu_time::ran_ns;
use crate::forwarding::ForwardingError;
use crate::forwarding::frame::FrameSize;
use crate::forwarding::packet_socket::{PacketReceiver, PacketSender};
use crate::forwarding::subject::{Label, Subject, Task};
use crate::forwarding::tester::{real_time_ns, send_all};
use crate::forwarding::topology::{ROUTER_MACS, ROUTER_PORTS, SINK_MAC, Topology};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use thalweg_exec::{Priority, Rank};
use thalweg_wire::checksum::ChecksumDelta;
use thalweg_wire::ethernet::HEADER_BYTES as ETHERNET;

/// Its name in results.
pub const NAME: &str = "relay";
/// How long it waits for a frame between looks at whether it shall end.
const WAIT: Duration = Duration::from_millis(100);
/// The offsets of the TTL and of the header's checksum.
const TTL_AT: usize = ETHERNET + 8;
const CHECKSUM_AT: usize = ETHERNET + 10;

/// A relay for frames of one size.
#[derive(Debug)]
pub struct Relay {
    label: Label,
    size: FrameSize,
    /// How long it holds each frame back.
    hold: Duration,
    thread: Option<(JoinHandle<io::Result<()>>, Arc<Shared>)>,
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicBool,
    /// The thread's number; zero before it has one.
    thread: AtomicI32,
}

impl Relay {
    /// A relay that holds each frame back for so long after its arrival.
    pub fn new(size: FrameSize, hold: Duration) -> Self {
        let mut label = Label::new(NAME, "af_packet", "");
        if !hold.is_zero() {
            label.change = format!("{} us planted", hold.as_micros());
        }
        Self { label, size, hold, thread: None }
    }
}

impl Subject for Relay {
    fn label(&self) -> &Label {
        &self.label
    }

    fn refuses(&self, task: &Task<'_>) -> Option<String> {
        (task.nat || !task.table.is_empty()).then(|| "it knows one way and no addresses".to_owned())
    }

    fn set_up(&mut self, topology: &Topology, _: &Task<'_>) -> Result<(), ForwardingError> {
        let [from, to] = ROUTER_PORTS;
        let (receiver, sender) = topology.router.inside(|| {
            Ok((PacketReceiver::open(from, 0, WAIT)?, PacketSender::open(to, self.size.bytes())?))
        })?;
        let shared = Arc::new(Shared::default());
        let (its, hold) = (Arc::clone(&shared), self.hold);
        self.thread = Some((thread::spawn(move || relay(receiver, sender, hold, &its)), shared));
        Ok(())
    }

    fn cpu_s(&self) -> f64 {
        let thread = self.thread.as_ref().map(|(_, shared)| shared.thread.load(Ordering::Relaxed));
        let task = thread.map(|thread| PathBuf::from(format!("/proc/self/task/{thread}")));
        task.and_then(|task| ran_ns(&task)).unwrap_or(0) as f64 / 1e9
    }

    fn tear_down(&mut self) {
        if let Some((thread, shared)) = self.thread.take() {
            shared.done.store(true, Ordering::Relaxed);
            // Frames that it lost are seen by the tester.
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.tear_down();
    }
}

fn relay(
    mut receiver: PacketReceiver,
    mut sender: PacketSender,
    hold: Duration,
    shared: &Shared,
) -> io::Result<()> {
    let _rank = Rank::take(Priority::RealTime);
    shared.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    while !shared.done.load(Ordering::Relaxed) {
        let Some(arrival) = receiver.receive()? else { continue };
        let (frame, out) = (receiver.frame(arrival), sender.frame_mut(0));
        if frame.len() != out.len() {
            continue;
        }
        out.copy_from_slice(frame);
        pass_on(out);
        let age = Duration::from_nanos(real_time_ns().saturating_sub(arrival.arrived_ns));
        thread::sleep(hold.saturating_sub(age));
        send_all(&mut sender, 1)?;
    }
    Ok(())
}

/// Does what a router does to a frame's headers.
fn pass_on(frame: &mut [u8]) {
    let Some(header) = frame.first_chunk_mut::<{ CHECKSUM_AT + 2 }>() else { return };
    header[..6].copy_from_slice(&SINK_MAC.0);
    header[6..12].copy_from_slice(&ROUTER_MACS[1].0);
    let word = |header: &[u8], at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (old, sum) = (word(header, TTL_AT), word(header, CHECKSUM_AT));
    header[TTL_AT] = header[TTL_AT].saturating_sub(1);
    let mut change = ChecksumDelta::default();
    change.replace_u16(old, word(header, TTL_AT));
    header[CHECKSUM_AT..].copy_from_slice(&change.apply(sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::frame::{FrameMaker, Stamp, fault_of};
    use crate::forwarding::topology::TESTER_MACS;
    use crate::workload::frames::Endpoint;

    #[test]
    fn a_relayed_frame_has_no_fault() {
        let size = FrameSize::new(64).unwrap();
        for host in 0..2000 {
            let end = |address| Endpoint { address, port: 7 };
            let flow = (end(0xc612_0002 + host), end(0xc613_8001));
            let mut maker = FrameMaker::new(size, TESTER_MACS[0], ROUTER_MACS[0], &[flow]);
            let mut frame = vec![0; size.bytes()];
            maker.lay_out(&mut frame);
            maker.write(&mut frame, Stamp { sequence: host, trial: 1, sent_ns: 1 });
            assert!(fault_of(&frame, size).is_some(), "its TTL is as sent");
            pass_on(&mut frame);
            assert_eq!(fault_of(&frame, size), None, "host {host}");
        }
        pass_on(&mut [0; 20]);
    }
}

//! The receiving half of a DPDK port.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::{ChunkBuilder, LinkType};

use super::device::Shared;
use super::shim::Receiver;
use crate::live::{PortRx, RxCounters, is_for, segment};

/// How often an idle device is asked whether it has a link.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct DpdkRx {
    shared: Arc<Shared>,
    receiver: Receiver,
    is_down: bool,
    looked_ns: u64,
    counters: RxCounters,
}

impl DpdkRx {
    pub(super) fn new(shared: Arc<Shared>, receiver: Receiver) -> Self {
        Self { shared, receiver, is_down: false, looked_ns: 0, counters: RxCounters::default() }
    }

    fn look(&mut self, now_ns: u64) -> io::Result<()> {
        self.looked_ns = now_ns;
        let passes = self.shared.passes();
        self.is_down = passes.is_err();
        passes
    }

    /// Whether the frame is for this port; counts it if it is not.
    fn takes(&mut self, frame: &[u8]) -> bool {
        if frame.len() > self.shared.mtu() + segment::link_header_bytes(frame) {
            self.counters.refused += 1;
            return false;
        }
        let is_ours = is_for(self.shared.mac(), None, frame);
        self.counters.foreign += u64::from(!is_ours);
        is_ours
    }
}

impl PortRx for DpdkRx {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        if self.is_down {
            self.look(now_ns)?;
        }
        let most = limit.min(ChunkBuilder::PACKETS_MAX - into.len());
        let (mut taken, mut seen) = (0, 0);
        // Frames that are not passed on count too, so that a flood of them cannot keep the thread here.
        while seen < most && self.receiver.has_frame(most - seen) {
            let at = into.next_frame_offset();
            let is_first = into.is_empty();
            let room = into.buffer_mut().get_mut(at..).unwrap_or_default();
            if room.len() < self.shared.mtu() + segment::LINK_HEADER_BYTES_MAX && !is_first {
                break;
            }
            seen += 1;
            let Some(bytes) = self.receiver.copy_next(room) else {
                self.counters.refused += 1;
                continue;
            };
            if !self.takes(&into.buffer_mut()[at..at + bytes]) {
                continue;
            }
            into.push(at, bytes, bytes as u32, now_ns, LinkType::Ethernet, port, 0);
            self.counters.frames += 1;
            self.counters.bytes += bytes as u64;
            taken += 1;
        }
        if seen == 0 && now_ns.saturating_sub(self.looked_ns) >= LOOK_EVERY.as_nanos() as u64 {
            self.look(now_ns)?;
        }
        Ok(taken)
    }

    /// None: the half is polled.
    fn fd(&self) -> RawFd {
        -1
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn counters(&mut self) -> RxCounters {
        let device = self.shared.device.counters();
        RxCounters { missed: device.missed, refused: self.counters.refused + device.damaged, ..self.counters }
    }
}

//! Captures of packets at points of their path.
//!
//! ```text
//!            admit       a stage has left them                   chunk done
//! feed ──────────●──── stage ──●── stage ──●── stage ──●─────────────● sink ──> outbox ●──> NIC
//!                │             │           │           │             │ fate             │ sent
//!                └── copies ───┴───────────┴───────────┴──> in the plan ───┐            │
//!  host ● to-host                                                          v            v
//!  anywhere ● dropped ─────────────────────────────────> Capture: select, limit ──> queue ──> CaptureStream ──> client
//! ```
//!
//! A packet is copied where it passes the point of a capture. Its fate is known when its chunk is done; only then
//! is the copy selected and delivered, with the fate as a comment. Packets that are sent, dropped or handed to the
//! router itself are captured where they are counted, so a capture of `dropped` has what `show counters` counts.
//!
//! Threads with packets see [`Taps`]. Without a capture, the cost is one load of a word that nobody writes: per
//! stage and batch, per chunk in the sink, and each time a port is locked to send. No thread waits for a capture: a
//! packet that finds its queue full is counted, and the next packet written tells how many are missing before it.
//!
//! Taps outlive an exchange of plans, because they know a stage by its name. Flows that the kernel forwards do not
//! pass here, so a capture that would miss them pauses offload (see `offload`).

mod plan;
mod selection;
mod stream;
mod taps;

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use thalweg_base::{DropReason, NO_PORT, PacketFlags};
use thalweg_dataplane::rate_limit::TokenBucket;
use thalweg_ports::live::LiveClock;

pub(crate) use plan::Tapped;
pub use selection::CaptureError;
pub(crate) use selection::{Point, Selection};
pub(crate) use stream::CapturedRouter;
pub use stream::{CaptureClient, CaptureStream};
pub(crate) use taps::{Taps, seen_in};

/// Captures that may run at the same time.
pub(crate) const CAPTURES_MAX: usize = 4;

/// Packets of a capture that may wait to be written.
const QUEUE_PACKETS: usize = 8192;

/// Bytes of a capture's packets that may wait to be written, including copies of packets in the plan.
const QUEUE_BYTES: usize = 16 << 20;

/// Memory that a packet takes besides its frame.
const PACKET_OVERHEAD: usize = size_of::<Captured>();

/// A packet as seen at a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'f> {
    pub(crate) frame: &'f [u8],
    /// Whether it has no link layer, because the router injected it.
    pub(crate) is_ip: bool,
    /// Whether the frame is the one that leaves through `port_out`.
    pub(crate) is_leaving: bool,
    pub(crate) port_in: u16,
    /// `NO_PORT` if not known yet.
    pub(crate) port_out: u16,
    pub(crate) class: u8,
}

impl<'f> Seen<'f> {
    /// A frame that is to leave by a port.
    pub(crate) fn leaving(port_out: u16, class: u8, frame: &'f [u8]) -> Self {
        Self { frame, is_ip: false, is_leaving: true, port_in: NO_PORT, port_out, class }
    }
}

/// What became of a packet, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It will be sent through a port, to the adjacency with this number.
    Leaves { port: u16, next_hop: u32, flow_hash: u32, destination: Option<IpAddr> },
    /// It left the fast path for the router itself, for this reason.
    ToHost(DropReason),
    /// It was dropped.
    Dropped(DropReason),
    /// Its port's driver took it.
    Sent,
}

/// A packet to be written to the file.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) time_ns: u64,
    /// Its interface in the file: the port, or the one after all ports for the router itself.
    pub(crate) interface: u16,
    pub(crate) is_leaving: bool,
    pub(crate) port_in: u16,
    pub(crate) port_out: u16,
    pub(crate) class: u8,
    pub(crate) flags: PacketFlags,
    pub(crate) wire_len: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) fate: Fate,
    /// Packets of the interface missing between the previous one and this.
    pub(crate) lost_before: u64,
    _room: Room,
}

/// A claim on the bytes that may wait; released when dropped.
#[derive(Debug)]
struct Room {
    numbers: Arc<Numbers>,
    bytes: usize,
}

impl Room {
    /// `None` if there is no room.
    fn take(numbers: &Arc<Numbers>, bytes: usize) -> Option<Self> {
        let before = numbers.bytes_waiting.fetch_add(bytes, Ordering::Relaxed);
        let room = Self { numbers: numbers.clone(), bytes };
        (before + bytes <= QUEUE_BYTES).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.numbers.bytes_waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A capture's counters.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Packets that the capture selects.
    pub(crate) wanted: AtomicU64,
    /// Selected packets that found the queue full.
    pub(crate) queue_full: AtomicU64,
    /// Selected packets beyond the rate limit.
    pub(crate) over_rate: AtomicU64,
    bytes_waiting: AtomicUsize,
}

/// A running capture, as threads with packets see it.
pub(crate) struct Capture {
    /// Unique among all captures of the router.
    number: u64,
    selection: Selection,
    clock: LiveClock,
    queue: Sender<Captured>,
    numbers: Arc<Numbers>,
    bucket: Mutex<TokenBucket>,
    /// By interface, packets missing since the last one written.
    lost: Box<[AtomicU64]>,
}

impl Capture {
    /// Copies a packet as it is now; its fate is filled in later. `None` if there is no room.
    fn copy(&self, seen: &Seen<'_>, flags: PacketFlags, time_ns: u64, fate: Fate) -> Option<Captured> {
        let length = seen.frame.len().min(self.selection.snaplen);
        let room = Room::take(&self.numbers, length + PACKET_OVERHEAD)?;
        Some(Captured {
            time_ns,
            interface: self.interface_of(seen),
            is_leaving: seen.is_leaving,
            port_in: seen.port_in,
            port_out: seen.port_out,
            class: seen.class,
            flags,
            wire_len: seen.frame.len() as u32,
            frame: seen.frame[..length].to_vec(),
            fate,
            lost_before: 0,
            _room: room,
        })
    }

    /// Delivers a selected packet. `None` is a packet that found no room when it was copied; it is only counted.
    fn give(&self, interface: u16, captured: Option<Captured>) {
        self.numbers.wanted.fetch_add(1, Ordering::Relaxed);
        let Some(mut captured) = captured else {
            return self.lose(interface, 1, &self.numbers.queue_full);
        };
        if let Some(rate) = self.selection.rate {
            let mut bucket = self.bucket.lock();
            if !bucket.take(rate, captured.time_ns) {
                return self.lose(interface, 1, &self.numbers.over_rate);
            }
        }
        let lost = self.lost.get(usize::from(interface));
        captured.lost_before = lost.map_or(0, |lost| lost.swap(0, Ordering::Relaxed));
        let lost_before = captured.lost_before;
        if self.queue.try_send(captured).is_err() {
            self.lose(interface, lost_before + 1, &self.numbers.queue_full);
        }
    }

    /// Counts a packet that is not written. `missing` also counts those before it that were not reported yet.
    fn lose(&self, interface: u16, missing: u64, why: &AtomicU64) {
        why.fetch_add(1, Ordering::Relaxed);
        if let Some(lost) = self.lost.get(usize::from(interface)) {
            lost.fetch_add(missing, Ordering::Relaxed);
        }
    }

    /// Ports first, then the router itself, whose packets have no link layer.
    fn interface_of(&self, seen: &Seen<'_>) -> u16 {
        let router = (self.lost.len() - 1) as u16;
        match (seen.is_ip, seen.is_leaving) {
            (true, _) => router,
            (false, true) => seen.port_out.min(router),
            (false, false) => seen.port_in.min(router),
        }
    }
}

#[cfg(test)]
mod tests;

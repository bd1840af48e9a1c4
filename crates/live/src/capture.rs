//! Captures of packets as they pass.
//!
//! ```text
//!            admit       a stage has left them                   chunk done
//! feed ──────────●──── stage ──●── stage ──●── stage ──●─────────────● sink ──> outbox ●──> NIC
//!                │             │           │           │             │ fate             │ sent
//!                └── copies ───┴───────────┴───────────┴──> on their way ──┐            │
//!  host ● to-host                                                          v            v
//!  anywhere ● dropped ──────────────────────────────────> Capture: select, limit ──> queue ──> CaptureStream ──> client
//! ```
//!
//! A copy is made where a packet passes the point; what becomes of it is known when its chunk is done, and only then is it
//! decided whether it is wanted and given out, with its fate as a comment. What is sent, dropped or handed to the router
//! itself is captured where the counters are kept, so a capture of `dropped` has what `show counters` counts.
//!
//! [`Taps`] is what packets meet. While nobody captures, that is one load of a word that nobody writes for each stage and
//! batch, each chunk in the sink, and each time a port is taken to send by it. Nothing ever waits for a capture: a packet that
//! finds no room in its queue is counted, and the next one that is written says how many are missing before it.
//!
//! The taps stay when a plan is exchanged for another; a stage is known by its name. Flows that the kernel forwards do not
//! come by here, so they are made to while a capture would miss them (see `offload`).

mod plan;
mod selection;
mod stream;
mod taps;

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use thalweg_base::{DropReason, PacketFlags};
use thalweg_dataplane::rate_limit::TokenBucket;
use thalweg_ports::live::LiveClock;

pub(crate) use plan::Tapped;
pub use selection::CaptureError;
pub(crate) use selection::{Point, Selection};
pub(crate) use stream::CapturedRouter;
pub use stream::{CaptureClient, CaptureStream};
pub(crate) use taps::{Taps, seen_in};

/// Captures at a time. Each copies what it wants.
pub(crate) const CAPTURES_MAX: usize = 4;

/// Packets of a capture that wait to be written.
const QUEUE_PACKETS: usize = 8192;

/// Bytes of a capture's packets that wait to be written, those on their way included.
const QUEUE_BYTES: usize = 16 << 20;

/// What a packet takes besides its frame.
const PACKET_OVERHEAD: usize = size_of::<Captured>();

/// A packet where it is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'f> {
    /// The frame as it is there.
    pub(crate) frame: &'f [u8],
    /// It has no link layer: the router has put it in.
    pub(crate) is_ip: bool,
    /// It has the frame that leaves by `port_out`.
    pub(crate) is_leaving: bool,
    /// Where it came in.
    pub(crate) port_in: u16,
    /// Where it leaves, if that is known.
    pub(crate) port_out: u16,
    /// Its class.
    pub(crate) class: u8,
}

/// What becomes of a packet, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is to be sent by a port, to the adjacency with this number.
    Leaves { port: u16, next_hop: u32, flow_hash: u32, destination: Option<IpAddr> },
    /// It left the fast path for the router itself, for this reason.
    ToHost(DropReason),
    /// It was dropped.
    Dropped(DropReason),
    /// Its port's driver has it.
    Sent,
}

/// A packet that is to be written.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) time_ns: u64,
    /// Its interface in the file: a port, or behind those the router itself.
    pub(crate) interface: u16,
    pub(crate) is_leaving: bool,
    pub(crate) port_in: u16,
    pub(crate) port_out: u16,
    pub(crate) class: u8,
    pub(crate) flags: PacketFlags,
    pub(crate) wire_len: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) fate: Fate,
    /// Packets of the interface that should have been written since the one before.
    pub(crate) lost_before: u64,
    _room: Room,
}

/// Bytes that count as waiting for as long as this lives.
#[derive(Debug)]
struct Room {
    numbers: Arc<Numbers>,
    bytes: usize,
}

impl Room {
    /// Takes room, if there is any.
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

/// What a capture counts.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Packets that it selects.
    pub(crate) wanted: AtomicU64,
    /// Of these, those that found no room.
    pub(crate) queue_full: AtomicU64,
    /// Of these, those beyond the rate.
    pub(crate) over_rate: AtomicU64,
    bytes_waiting: AtomicUsize,
}

/// A capture, as packets meet it.
pub(crate) struct Capture {
    /// Never that of another.
    number: u64,
    selection: Selection,
    clock: LiveClock,
    queue: Sender<Captured>,
    numbers: Arc<Numbers>,
    bucket: Mutex<TokenBucket>,
    /// By interface, what was not written since the last that was.
    lost: Box<[AtomicU64]>,
}

impl Capture {
    /// A copy of a packet as it is now; a later stage fills in what becomes of it. `None` if there is no room.
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

    /// Gives a selected packet out, or counts it; `None` is one that found no room before.
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

    /// Counts a packet that is not written; `missing` are those that the next one has to tell of.
    fn lose(&self, interface: u16, missing: u64, why: &AtomicU64) {
        why.fetch_add(1, Ordering::Relaxed);
        if let Some(lost) = self.lost.get(usize::from(interface)) {
            lost.fetch_add(missing, Ordering::Relaxed);
        }
    }

    /// Ports first; then the router itself, whose packets have no link layer.
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

//! The points where captures copy packets.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, bounded};
use thalweg_base::{Chunk, DropReason, LinkType, NO_PORT, Packet, PacketFlags};
use thalweg_dataplane::ip_packet::IpPacket;
use thalweg_ports::live::LiveClock;

use super::{CAPTURES_MAX, Capture, Captured, Fate, Numbers, Point, QUEUE_PACKETS, Seen, Selection};

/// What running captures watch, one bit each.
const STAGES: u32 = 1;
const TO_HOST: u32 = 2;
const SENT: u32 = 4;
const DROPPED: u32 = 8;

/// Copies are kept in this many maps, by chunk, so that workers seldom contend for one.
const SLOTS: usize = 16;

/// A copy of a packet that is still in the plan.
struct Waiting {
    /// The packet's index in the chunk as it arrived.
    index: u16,
    capture: Arc<Capture>,
    interface: u16,
    /// `None` if the capture's queue had no room.
    captured: Option<Captured>,
}

/// Identifies a chunk across exchanges of plans, which restart sequence numbers.
type ChunkKey = (u64, u64);

fn key_of(chunk: &Chunk) -> ChunkKey {
    (chunk.first_packet_number, chunk.sequence)
}

/// All running captures, as threads with packets see them.
pub(crate) struct Taps {
    /// Bits of what is watched. Only the start and end of a capture write it.
    watched: AtomicU32,
    captures: ArcSwap<Vec<Arc<Capture>>>,
    on_their_way: [Mutex<HashMap<ChunkKey, Vec<Waiting>>>; SLOTS],
    /// Held while a capture starts or ends.
    changing: Mutex<()>,
    next_number: AtomicU64,
    /// Names of classes, by number.
    classes: ArcSwap<Vec<String>>,
}

impl Default for Taps {
    fn default() -> Self {
        Self {
            watched: AtomicU32::new(0),
            captures: ArcSwap::default(),
            on_their_way: std::array::from_fn(|_| Mutex::default()),
            changing: Mutex::default(),
            next_number: AtomicU64::new(0),
            classes: ArcSwap::default(),
        }
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taps").field("captures", &self.captures.load().len()).finish_non_exhaustive()
    }
}

/// What a new capture's stream reads from.
pub(crate) struct Begun {
    pub(super) number: u64,
    /// Disconnects when the capture has ended and no packet of it is in the plan.
    pub(super) packets: Receiver<Captured>,
    pub(super) numbers: Arc<Numbers>,
}

impl Taps {
    /// Begins a capture for a router with this many ports; `None` if [`CAPTURES_MAX`] run already.
    pub(crate) fn begin(&self, selection: Selection, ports: usize, clock: LiveClock) -> Option<Begun> {
        let _changing = self.changing();
        let mut captures = Vec::clone(&self.captures.load());
        if captures.len() >= CAPTURES_MAX {
            return None;
        }
        let (queue, packets) = bounded(QUEUE_PACKETS);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let numbers = Arc::<Numbers>::default();
        captures.push(Arc::new(Capture {
            number,
            selection,
            clock,
            queue,
            numbers: numbers.clone(),
            bucket: Mutex::default(),
            lost: (0..=ports).map(|_| AtomicU64::new(0)).collect(),
        }));
        self.watched.fetch_or(bits_of(&captures), Ordering::Relaxed);
        self.captures.store(Arc::new(captures));
        Some(Begun { number, packets, numbers })
    }

    /// Ends a capture. Copies already made are still delivered.
    pub(crate) fn end(&self, number: u64) {
        let _changing = self.changing();
        let captures = self.captures.load();
        let left = captures.iter().filter(|capture| capture.number != number).cloned().collect();
        self.captures.store(Arc::new(left));
    }

    pub(crate) fn end_all(&self) {
        let _changing = self.changing();
        self.captures.store(Arc::default());
    }

    /// Updates the watched bits.
    pub(crate) fn update_watched(&self) {
        let _changing = self.changing();
        let bits = bits_of(&self.captures.load());
        self.watched.store(bits, Ordering::Relaxed);
        if bits & STAGES == 0 {
            // Copies of chunks that never reached the sink.
            self.on_their_way.iter().for_each(|slot| slot.lock().clear());
        }
    }

    pub(crate) fn set_classes(&self, names: Vec<String>) {
        self.classes.store(Arc::new(names));
    }

    pub(crate) fn classes(&self) -> Arc<Vec<String>> {
        self.classes.load_full()
    }

    /// Whether a capture watches anything.
    pub(crate) fn are_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) != 0
    }

    /// Whether a capture watches arrivals or stages.
    #[inline(always)]
    pub(crate) fn watch_stages(&self) -> bool {
        self.watched.load(Ordering::Relaxed) & STAGES != 0
    }

    /// Whether a capture watches what is sent, dropped or handed to the router itself.
    #[inline(always)]
    pub(crate) fn watch_ends(&self) -> bool {
        self.watched.load(Ordering::Relaxed) & (SENT | DROPPED) != 0
    }

    /// Copies packets of a chunk before the first stage.
    pub(crate) fn arrived(&self, chunk: &Chunk) {
        self.copy(chunk, 0..chunk.packets().len(), |point| *point == Point::Arrived);
    }

    /// Copies packets that a stage has let pass, by their range in the chunk.
    pub(crate) fn left_stage(&self, stage: &str, chunk: &Chunk, packets: Range<usize>) {
        self.copy(chunk, packets, |point| matches!(point, Point::Stage(name) if name == stage));
    }

    fn copy(&self, chunk: &Chunk, packets: Range<usize>, is_here: impl Fn(&Point) -> bool) {
        for capture in self.captures.load().iter().filter(|capture| is_here(&capture.selection.point)) {
            let now_ns = capture.clock.now_ns();
            let mut waiting = Vec::new();
            for place in packets.clone() {
                let packet = &chunk.packets()[place];
                let seen = seen_in(chunk, place);
                if !packet.is_alive() || !capture.selection.filter.wants(seen.frame, seen.is_ip) {
                    continue;
                }
                let is_new = capture.selection.point == Point::Arrived;
                let time_ns = if is_new { packet.arrival_ns } else { now_ns };
                let captured = capture.copy(&seen, packet.flags, time_ns, Fate::Sent);
                let interface = capture.interface_of(&seen);
                waiting.push(Waiting { index: packet.index, capture: capture.clone(), interface, captured });
            }
            if !waiting.is_empty() {
                self.on_their_way(chunk).entry(key_of(chunk)).or_default().append(&mut waiting);
            }
        }
    }

    /// Delivers the copies of a finished chunk, or of a part of it, with each packet's fate. `goes_up` tells which
    /// drop reasons lead to the router itself.
    pub(crate) fn finished(&self, chunk: &Chunk, goes_up: impl Fn(DropReason) -> bool) {
        let Some(mut waiting) = self.on_their_way(chunk).remove(&key_of(chunk)) else { return };
        waiting.sort_by_key(|each| each.index);
        let mut waiting: Vec<_> = waiting.into_iter().map(|each| (each.index, Some(each))).collect();
        for (place, packet) in chunk.packets().iter().enumerate() {
            let first = waiting.partition_point(|(index, _)| *index < packet.index);
            for (_, slot) in waiting[first..].iter_mut().take_while(|(index, _)| *index == packet.index) {
                if let Some(waiting) = slot.take() {
                    finish(waiting, packet, fate_of(chunk, place, &goes_up));
                }
            }
        }
        // The rest belong to other parts of the chunk.
        let rest: Vec<Waiting> = waiting.into_iter().filter_map(|(_, waiting)| waiting).collect();
        if !rest.is_empty() {
            self.on_their_way(chunk).entry(key_of(chunk)).or_default().extend(rest);
        }
    }

    /// Captures a dropped packet; called where it is counted.
    pub(crate) fn dropped(&self, reason: DropReason, seen: &Seen<'_>) {
        self.look_at(DROPPED, &Point::Dropped, Fate::Dropped(reason), seen);
    }

    /// Captures a packet that the router itself took.
    pub(crate) fn to_host(&self, reason: DropReason, seen: &Seen<'_>) {
        self.look_at(TO_HOST, &Point::ToHost, Fate::ToHost(reason), seen);
    }

    /// Captures a frame that a port's driver took.
    pub(crate) fn sent(&self, seen: &Seen<'_>) {
        self.look_at(SENT, &Point::Sent, Fate::Sent, seen);
    }

    fn look_at(&self, bit: u32, point: &Point, fate: Fate, seen: &Seen<'_>) {
        if self.watched.load(Ordering::Relaxed) & bit == 0 {
            return;
        }
        for capture in self.captures.load().iter().filter(|capture| capture.selection.point == *point) {
            let selection = &capture.selection;
            if selection.wants(&[seen.port_in, seen.port_out], fate)
                && selection.filter.wants(seen.frame, seen.is_ip)
            {
                let captured = capture.copy(seen, PacketFlags::default(), capture.clock.now_ns(), fate);
                capture.give(capture.interface_of(seen), captured);
            }
        }
    }

    fn on_their_way(&self, chunk: &Chunk) -> MutexGuard<'_, HashMap<ChunkKey, Vec<Waiting>>> {
        self.on_their_way[(chunk.sequence % SLOTS as u64) as usize].lock()
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }
}

/// Delivers a copy with its packet's fate.
fn finish(waiting: Waiting, packet: &Packet, fate: Fate) {
    let Waiting { capture, interface, mut captured, .. } = waiting;
    let leaves_by = match fate {
        Fate::Leaves { port, .. } => port,
        _ => packet.port_out,
    };
    // A sub-interface's frame carries its parent's number before the first stage.
    if !capture.selection.wants(&[packet.port_in, leaves_by, interface], fate) {
        return;
    }
    if let Some(captured) = &mut captured {
        (captured.fate, captured.class, captured.flags) = (fate, packet.class, packet.flags);
        (captured.port_in, captured.port_out) = (packet.port_in, leaves_by);
    }
    capture.give(interface, captured);
}

fn fate_of(chunk: &Chunk, place: usize, goes_up: impl Fn(DropReason) -> bool) -> Fate {
    let packet = &chunk.packets()[place];
    match packet.drop_reason() {
        Some(reason) if goes_up(reason) => Fate::ToHost(reason),
        Some(reason) => Fate::Dropped(reason),
        None => Fate::Leaves {
            port: packet.port_out,
            next_hop: packet.next_hop.into(),
            flow_hash: packet.flow_hash,
            destination: IpPacket::parse(&chunk.egress_frame(place)[ETHERNET..]).map(|ip| ip.destination),
        },
    }
}

const ETHERNET: usize = 14;

/// A packet as its chunk holds it now; after routing, that is the frame to be sent.
pub(crate) fn seen_in(chunk: &Chunk, place: usize) -> Seen<'_> {
    let packet = &chunk.packets()[place];
    let is_leaving = packet.is_alive() && packet.port_out != NO_PORT;
    Seen {
        frame: if is_leaving { chunk.egress_frame(place) } else { chunk.frame(place) },
        is_ip: !is_leaving && packet.link == LinkType::RawIp,
        is_leaving,
        port_in: packet.port_in,
        port_out: packet.port_out,
        class: packet.class,
    }
}

fn bits_of(captures: &[Arc<Capture>]) -> u32 {
    let bit = |capture: &Arc<Capture>| match capture.selection.point {
        Point::Arrived | Point::Stage(_) => STAGES,
        Point::ToHost => TO_HOST,
        Point::Sent => SENT,
        Point::Dropped => DROPPED,
    };
    captures.iter().map(bit).fold(0, |bits, bit| bits | bit)
}

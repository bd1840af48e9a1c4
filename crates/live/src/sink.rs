//! The end of the plan: hands packets to outboxes and punts to the host thread, and counts the rest.
//!
//! Two queues lead to the host thread. *Host frames* are messages of neighbors and packets for the router; the
//! *slow path* has packets to resolve, to fragment or to answer with an error. A scan of a network with many
//! addresses fills only the second, so it neither loses nor delays a neighbor's answer (RFC 6583). The host thread
//! counts what becomes of punts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::TrySendError;
use thalweg_base::{Chunk, DropReason, Packet};
use thalweg_dataplane::rate_limit::{Rate, TokenBucket};
use thalweg_exec::Sink;
use thalweg_ports::live::LiveClock;
use thalweg_ports::live::segment::Segments;

use crate::capture::{Seen, seen_in};
use crate::counters::Counters;
use crate::lanes::LaneNumber;
use crate::offload::FlowOffload;
use crate::outbox::{Merged, Outboxes, QueueClock};
use crate::packets::Exchange;
use crate::punt::{Punt, ToHost, counted_at, is_refusal};
use crate::residence;
use crate::workers::Workers;

/// Packets refused by NAT that are punted for an ICMP error: the host thread writes no more errors than this, and
/// NAT without free ports refuses very many.
const REFUSALS: Rate = Rate::per_second(1000, 100);

/// What a sink works with.
#[derive(Clone)]
pub(crate) struct SinkParts {
    pub(crate) outboxes: Outboxes,
    pub(crate) queue_clock: Arc<QueueClock>,
    pub(crate) host: ToHost,
    pub(crate) counters: Arc<Counters>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) clock: LiveClock,
    /// Whether hosts get an ICMP error when NAT refuses them a session.
    pub(crate) tells_refusals: Arc<AtomicBool>,
    pub(crate) offload: Option<Arc<FlowOffload>>,
    pub(crate) workers: Arc<Workers>,
}

/// A lane's sink.
pub(crate) struct LiveSink {
    lane: LaneNumber,
    parts: SinkParts,
    dropped: Vec<u64>,
    /// Limits the punts of refused packets.
    refusals: TokenBucket,
}

impl LiveSink {
    pub(crate) fn new(lane: LaneNumber, parts: SinkParts) -> Self {
        Self { lane, parts, dropped: vec![0; DropReason::CODES], refusals: TokenBucket::default() }
    }

    /// Sends port by port: a chunk's packets to one port stay in order, and each port is locked once. Most chunks
    /// leave through few ports.
    fn send(&self, chunk: &Chunk) {
        let now_ns = self.parts.clock.now_ns();
        let (packets, outboxes) = (chunk.packets(), self.parts.outboxes.load());
        for (first, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.is_alive()) {
            let leaves_there = |other: &Packet| other.is_alive() && other.port_out == packet.port_out;
            if packets[..first].iter().any(leaves_there) {
                // An earlier pass sent these.
                continue;
            }
            let Some(outbox) = outboxes.get(usize::from(packet.port_out)) else {
                let lost = (first..packets.len()).filter(|place| leaves_there(&packets[*place]));
                for place in lost {
                    self.parts.counters.drop_seen(DropReason::TransmitFailed, &seen_in(chunk, place));
                }
                continue;
            };
            let mut open = outbox.open_lane(self.lane.index);
            for (i, packet) in packets.iter().enumerate().skip(first).filter(|(_, other)| leaves_there(other))
            {
                let frame = chunk.egress_frame(i);
                match packet.segment_bytes() {
                    None => open.send(packet.class, frame, now_ns),
                    Some(segment_bytes) => {
                        open.send_merged(packet.class, Merged { frame, segment_bytes }, now_ns);
                    }
                }
            }
            open.close(now_ns, &self.parts.queue_clock);
        }
    }

    fn publish(&mut self) {
        for reason in DropReason::ALL {
            let dropped = std::mem::take(&mut self.dropped[*reason as usize]);
            if dropped > 0 {
                self.parts.counters.add_dropped(*reason, dropped);
            }
        }
    }
}

impl Sink<Chunk> for LiveSink {
    fn accept(&mut self, chunk: Chunk) {
        let taps = &self.parts.counters.taps;
        if taps.watch_stages() {
            taps.finished(&chunk, |reason| self.parts.host.way(reason).is_some());
        }
        let watches_drops = taps.watch_ends();
        self.send(&chunk);
        if let Some(offload) = &self.parts.offload {
            offload.install(&chunk, self.lane.of_chunk(chunk.sequence));
        }
        self.parts.exchange.takes(chunk.packets().len());
        let mut any_dead = false;
        let now_ns = self.parts.clock.now_ns();
        let mut run: Option<(u16, u64, u64)> = None;
        let mut all = 0;
        for (i, packet) in chunk.packets().iter().enumerate() {
            let (wire_packets, bytes) = (u64::from(packet.wire_packets()), u64::from(packet.wire_len));
            all += wire_packets;
            let came_by = counted_at(packet);
            run = match run {
                Some((port, packets, sum)) if port == came_by => {
                    Some((port, packets + wire_packets, sum + bytes))
                }
                other => {
                    self.count(other);
                    Some((came_by, wire_packets, bytes))
                }
            };
            let Some(mut reason) = packet.drop_reason() else { continue };
            any_dead = true;
            let is_told = is_refusal(reason)
                && self.parts.tells_refusals.load(Ordering::Relaxed)
                && self.refusals.take(REFUSALS, now_ns);
            let way = if is_told { Some(&self.parts.host.slow_path) } else { self.parts.host.way(reason) };
            if let (Some(_), Some(segment_bytes)) = (way, packet.segment_bytes()) {
                self.punt_segments((reason, is_told), &chunk, i, segment_bytes);
                continue;
            }
            if let Some(way) = way {
                match way.try_send(Punt::new(reason, packet, chunk.frame(i))) {
                    Ok(()) => continue,
                    // NAT's own reason says more.
                    Err(_) if is_told => {}
                    Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                        reason = DropReason::HostQueueFull;
                    }
                }
            }
            self.add_dropped(reason, wire_packets);
            self.parts.counters.port(came_by).dropped.add(wire_packets, bytes);
            if watches_drops {
                self.parts.counters.taps.dropped(reason, &seen_in(&chunk, i));
            }
        }
        self.count(run);
        self.parts.workers.add_chunk(self.lane.index, all);
        residence::measure(&chunk, now_ns, |port| &self.parts.counters.port(port).residence);
        if any_dead {
            self.publish();
        }
    }
}

impl LiveSink {
    /// Punts each segment of a merged frame as the packet that it is. The rest is counted as dropped.
    fn punt_segments(
        &mut self,
        (reason, is_told): (DropReason, bool),
        chunk: &Chunk,
        place: usize,
        segment_bytes: u16,
    ) {
        let (packet, frame) = (&chunk.packets()[place], chunk.frame(place));
        let network = usize::from(packet.l3_offset);
        let Ok(mut segments) = Segments::of_tcp(frame, network, segment_bytes) else {
            return self.add_dropped(reason, packet.wire_packets().into());
        };
        while let Some(bytes) = segments.next_bytes() {
            let mut segment = vec![0; bytes];
            segments.write_next(frame, &mut segment);
            let host = &self.parts.host;
            let way = if is_told { Some(&host.slow_path) } else { host.way(reason) };
            if way.is_some_and(|way| way.try_send(Punt::new(reason, packet, &segment)).is_ok()) {
                continue;
            }
            // NAT's own reason says more.
            let reason = if is_told { reason } else { DropReason::HostQueueFull };
            self.add_dropped(reason, 1);
            let counters = &self.parts.counters;
            counters.port(counted_at(packet)).dropped.add(1, bytes as u64);
            if counters.taps.watch_ends() {
                counters.taps.dropped(reason, &Seen { frame: &segment, ..seen_in(chunk, place) });
            }
        }
    }

    fn add_dropped(&mut self, reason: DropReason, packets: u64) {
        self.dropped[reason as usize] += packets;
    }

    /// Counts consecutive packets of one ingress port.
    fn count(&self, run: Option<(u16, u64, u64)>) {
        if let Some((port, packets, bytes)) = run {
            self.parts.counters.port(port).received.add(packets, bytes);
        }
    }
}

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

use crate::capture::seen_in;
use crate::counters::Counters;
use crate::lanes::LaneNumber;
use crate::offload::FlowOffload;
use crate::outbox::{Outboxes, QueueClock};
use crate::packets::Exchange;
use crate::punt::{Punt, ToHost, counted_at, is_refusal};
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
                open.send(packet.class, chunk.egress_frame(i), now_ns);
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
        self.parts.workers.add_chunk(self.lane.index, chunk.packets().len());
        self.parts.exchange.takes(chunk.packets().len());
        let mut any_dead = false;
        let now_ns = self.parts.clock.now_ns();
        let mut run: Option<(u16, u64, u64)> = None;
        for (i, packet) in chunk.packets().iter().enumerate() {
            let bytes = packet.captured_len() as u64;
            let came_by = counted_at(packet);
            run = match run {
                Some((port, packets, sum)) if port == came_by => Some((port, packets + 1, sum + bytes)),
                other => {
                    self.count(other);
                    Some((came_by, 1, bytes))
                }
            };
            let Some(mut reason) = packet.drop_reason() else { continue };
            any_dead = true;
            let is_told = is_refusal(reason)
                && self.parts.tells_refusals.load(Ordering::Relaxed)
                && self.refusals.take(REFUSALS, now_ns);
            let way = if is_told { Some(&self.parts.host.slow_path) } else { self.parts.host.way(reason) };
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
            self.dropped[reason as usize] += 1;
            self.parts.counters.port(came_by).dropped.add(1, bytes);
            if watches_drops {
                self.parts.counters.taps.dropped(reason, &seen_in(&chunk, i));
            }
        }
        self.count(run);
        if any_dead {
            self.publish();
        }
    }
}

impl LiveSink {
    /// Counts consecutive packets of one ingress port.
    fn count(&self, run: Option<(u16, u64, u64)>) {
        if let Some((port, packets, bytes)) = run {
            self.parts.counters.port(port).received.add(packets, bytes);
        }
    }
}

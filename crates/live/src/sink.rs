//! Where chunks end: packets that are alive go out, those that the host thread has to look at go there, which also counts
//! what becomes of them; the rest is counted here.
//!
//! Two queues lead to the host thread. What neighbors say and what is for the router is *host frames*; what has to be resolved,
//! cut or answered for with an error is *slow path*. A scan of a network with many addresses fills only the second, so it
//! neither loses nor delays a neighbor's answer (RFC 6583).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Sender, TrySendError};
use thalweg_base::{Chunk, DropReason, LinkType, NO_PORT, Packet, PacketFlags};
use thalweg_dataplane::rate_limit::{Rate, TokenBucket};
use thalweg_exec::Sink;
use thalweg_ports::live::LiveClock;

use crate::capture::{Seen, seen_in};
use crate::counters::Counters;
use crate::lanes::LaneNumber;
use crate::offload::FlowOffload;
use crate::outbox::{Outboxes, Server};
use crate::packets::Exchange;
use crate::vlan;
use crate::workers::Workers;

/// A packet that left the fast path and concerns the router itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Punt {
    /// Why it left.
    pub(crate) reason: DropReason,
    /// Where it came in.
    pub(crate) port_in: u16,
    /// The port whose counters it is in: the same, or none if the router made it.
    pub(crate) counted_at: u16,
    /// The number that its route led to.
    pub(crate) next_hop: u32,
    /// Chooses among equal paths.
    pub(crate) flow_hash: u32,
    /// Its class.
    pub(crate) class: u8,
    /// Facts about it.
    pub(crate) flags: PacketFlags,
    /// Where its IP header begins in `frame`, if it is IP.
    pub(crate) l3_offset: u16,
    /// The frame as it is now, without VLAN tags: NAT has rewritten it where `flags` say so.
    pub(crate) frame: Vec<u8>,
}

impl Punt {
    fn new(reason: DropReason, packet: &Packet, frame: &[u8]) -> Self {
        Self {
            reason,
            port_in: packet.port_in,
            counted_at: counted_at(packet),
            next_hop: packet.next_hop,
            flow_hash: packet.flow_hash,
            class: packet.class,
            flags: packet.flags,
            l3_offset: vlan::offset_without_tags(packet.l3_offset),
            frame: vlan::without_tags(frame, packet.l3_offset),
        }
    }

    /// The packet for captures.
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            frame: &self.frame,
            is_ip: self.counted_at == NO_PORT,
            is_leaving: false,
            port_in: self.port_in,
            port_out: NO_PORT,
            class: self.class,
        }
    }

    /// Whether the link layer brought it to this router alone.
    pub(crate) fn came_to_one(&self) -> bool {
        self.l3_offset < 14 || self.frame.first().is_some_and(|byte| byte & 1 == 0)
    }

    /// The IP packet, without padding. Its header says how long it is: the stage that dropped it may not have come to
    /// noting that.
    pub(crate) fn ip_packet(&self) -> &[u8] {
        let rest = self.frame.get(usize::from(self.l3_offset)..).unwrap_or_default();
        let length = match (rest.first().map(|byte| byte >> 4), rest.get(2..6)) {
            (Some(4), Some(field)) => usize::from(u16::from_be_bytes([field[0], field[1]])),
            (Some(6), Some(field)) => 40 + usize::from(u16::from_be_bytes([field[2], field[3]])),
            _ => 0,
        };
        &rest[..rest.len().min(length)]
    }
}

/// The ways to the host thread.
#[derive(Clone)]
pub(crate) struct ToHost {
    /// For what is for the host.
    pub(crate) host_frames: Sender<Punt>,
    /// For what is slow_path.
    pub(crate) slow_path: Sender<Punt>,
}

impl ToHost {
    /// Where a packet that cannot be forwarded for this reason goes: it is for the router itself, or the router has to
    /// do or to say something about it. `None` if it has not.
    fn way(&self, reason: DropReason) -> Option<&Sender<Punt>> {
        use DropReason as R;
        match reason {
            R::NotIp | R::Local | R::NotUnicast | R::LinkLocal | R::MartianSource => Some(&self.host_frames),
            R::TtlExpired
            | R::MtuExceeded
            | R::NoRoute
            | R::Unreachable
            | R::NeighborUnresolved
            | R::NatNoMapping
            | R::FragmentWithoutFirst
            | R::AclDenied => Some(&self.slow_path),
            _ => None,
        }
    }
}

/// How many packets that get no NAT session the host is told of: it writes no more errors than that anyway, and when
/// sessions have run out there are many such packets.
const REFUSALS: Rate = Rate::per_second(1000, 100);

/// Whether NAT had no session for a new flow.
pub(crate) fn is_refusal(reason: DropReason) -> bool {
    use DropReason as R;
    matches!(
        reason,
        R::NatTableFull
            | R::NatPortsExhausted
            | R::NatPortLimit
            | R::NatHostLimit
            | R::NatHostRate
            | R::NatPeerTaken
    )
}

/// What a sink works with.
#[derive(Clone)]
pub(crate) struct SinkParts {
    pub(crate) outboxes: Outboxes,
    pub(crate) server: Arc<Server>,
    pub(crate) host: ToHost,
    pub(crate) counters: Arc<Counters>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) clock: LiveClock,
    /// Whether hosts are told that they get no NAT session.
    pub(crate) tells_refusals: Arc<AtomicBool>,
    pub(crate) offload: Option<Arc<FlowOffload>>,
    pub(crate) workers: Arc<Workers>,
}

/// Takes finished chunks.
pub(crate) struct LiveSink {
    lane: LaneNumber,
    parts: SinkParts,
    dropped: Vec<u64>,
    /// How many hosts may be told.
    refusals: TokenBucket,
}

impl LiveSink {
    /// A lane's sink for these ports.
    pub(crate) fn new(lane: LaneNumber, parts: SinkParts) -> Self {
        Self { lane, parts, dropped: vec![0; DropReason::CODES], refusals: TokenBucket::default() }
    }

    /// Sends what leaves by one port after the other: a chunk's packets of a port stay in order, and each port is
    /// locked once. Most chunks leave by few ports.
    fn send(&self, chunk: &Chunk) {
        let now_ns = self.parts.clock.now_ns();
        let (packets, outboxes) = (chunk.packets(), self.parts.outboxes.load());
        for (first, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.is_alive()) {
            let leaves_there = |other: &Packet| other.is_alive() && other.port_out == packet.port_out;
            if packets[..first].iter().any(leaves_there) {
                // The port has had its pass.
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
            open.close(now_ns, &self.parts.server);
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
        self.parts.workers.add_packets(self.lane.index, chunk.packets().len());
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
    /// Counts packets in a row that came in by one port.
    fn count(&self, run: Option<(u16, u64, u64)>) {
        if let Some((port, packets, bytes)) = run {
            self.parts.counters.port(port).received.add(packets, bytes);
        }
    }
}

/// The port whose counters a packet is in. What the router has put in comes as bare IP, and is its own.
fn counted_at(packet: &Packet) -> u16 {
    if packet.link == LinkType::RawIp { NO_PORT } else { packet.port_in }
}

//! Where chunks end: packets that are alive go out, those that concern the router itself go to the host thread, the
//! rest is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Sender, TrySendError};
use thalweg_base::{Chunk, DropReason, Packet, PacketFlags};
use thalweg_dataplane::rate_limit::{Rate, TokenBucket};
use thalweg_exec::Sink;
use thalweg_ports::live::LiveClock;

use crate::counters::Counters;
use crate::outbox::{Outbox, Server};
use crate::packets::Exchange;

/// A packet that left the fast path and concerns the router itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Punt {
    /// Why it left.
    pub(crate) reason: DropReason,
    /// Where it came in.
    pub(crate) port_in: u16,
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
    /// The frame as it is now: NAT has rewritten it where `flags` say so.
    pub(crate) frame: Vec<u8>,
}

impl Punt {
    fn new(reason: DropReason, packet: &Packet, frame: &[u8]) -> Self {
        Self {
            reason,
            port_in: packet.port_in,
            next_hop: packet.next_hop,
            flow_hash: packet.flow_hash,
            class: packet.class,
            flags: packet.flags,
            l3_offset: packet.l3_offset,
            frame: frame.to_vec(),
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

/// Whether a packet that cannot be forwarded for this reason concerns the router itself: it is for it, or the router
/// has to do or to say something about it.
fn concerns_host(reason: DropReason) -> bool {
    use DropReason as R;
    matches!(
        reason,
        R::NotIp
            | R::Local
            | R::NotUnicast
            | R::LinkLocal
            | R::MartianSource
            | R::TtlExpired
            | R::MtuExceeded
            | R::NoRoute
            | R::Unreachable
            | R::NeighbourUnresolved
            | R::NatNoMapping
            | R::AclDenied
    )
}

/// How many packets that get no NAT session the host is told of: it writes no more errors than that anyway, and when
/// sessions have run out there are many such packets.
const REFUSALS: Rate = Rate::per_second(1000, 100);

/// Whether NAT had no session for a new flow.
pub(crate) fn is_refusal(reason: DropReason) -> bool {
    use DropReason as R;
    matches!(reason, R::NatTableFull | R::NatPortsExhausted | R::NatPortLimit)
}

/// Takes finished chunks.
pub(crate) struct LiveSink {
    outboxes: Arc<[Outbox]>,
    server: Arc<Server>,
    host: Sender<Punt>,
    counters: Arc<Counters>,
    exchange: Arc<Exchange>,
    clock: LiveClock,
    dropped: Vec<u64>,
    to_host: Vec<u64>,
    /// Hosts are told that they get no session, within limits.
    tells_refusals: Arc<AtomicBool>,
    refusals: TokenBucket,
}

impl LiveSink {
    /// A sink for these ports.
    pub(crate) fn new(
        (outboxes, server): (Arc<[Outbox]>, Arc<Server>),
        host: Sender<Punt>,
        counters: Arc<Counters>,
        exchange: Arc<Exchange>,
        clock: LiveClock,
        tells_refusals: Arc<AtomicBool>,
    ) -> Self {
        let zeros = || vec![0; DropReason::CODES];
        let (dropped, to_host, refusals) = (zeros(), zeros(), TokenBucket::default());
        Self { outboxes, server, host, counters, exchange, clock, dropped, to_host, tells_refusals, refusals }
    }

    /// Whether the host has something to do about a packet that was dropped.
    fn wants(&mut self, reason: DropReason) -> bool {
        concerns_host(reason)
            || is_refusal(reason)
                && self.tells_refusals.load(Ordering::Relaxed)
                && self.refusals.take(REFUSALS, self.clock.now_ns())
    }

    /// Sends what leaves by one port after the other: a chunk's packets of a port stay in order, and each port is
    /// locked once. Most chunks leave by few ports.
    fn send(&self, chunk: &Chunk) {
        let now_ns = self.clock.now_ns();
        let packets = chunk.packets();
        for (first, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.is_alive()) {
            let leaves_there = |other: &Packet| other.is_alive() && other.port_out == packet.port_out;
            if packets[..first].iter().any(leaves_there) {
                // The port has had its pass.
                continue;
            }
            let Some(outbox) = self.outboxes.get(usize::from(packet.port_out)) else { continue };
            let mut open = outbox.open();
            for (i, packet) in packets.iter().enumerate().skip(first).filter(|(_, other)| leaves_there(other))
            {
                open.send(packet.class, chunk.egress_frame(i), now_ns);
            }
            open.close(now_ns, &self.server);
        }
    }

    fn punt(&mut self, reason: DropReason, packet: &Packet, frame: &[u8]) {
        let counters = self.counters.port(packet.port_in);
        match self.host.try_send(Punt::new(reason, packet, frame)) {
            Ok(()) => {
                counters.to_host.add(1, frame.len() as u64);
                self.to_host[reason as usize] += 1;
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                counters.dropped.add(1, frame.len() as u64);
                self.dropped[DropReason::HostQueueFull as usize] += 1;
            }
        }
    }

    fn publish(&mut self) {
        for reason in DropReason::ALL {
            let code = *reason as usize;
            let (dropped, to_host) =
                (std::mem::take(&mut self.dropped[code]), std::mem::take(&mut self.to_host[code]));
            if dropped > 0 {
                self.counters.add_dropped(*reason, dropped);
            }
            if to_host > 0 {
                self.counters.add_to_host(*reason, to_host);
            }
        }
    }
}

impl Sink<Chunk> for LiveSink {
    fn accept(&mut self, chunk: Chunk) {
        self.send(&chunk);
        self.exchange.takes(chunk.packets().len());
        let mut any_dead = false;
        let mut run: Option<(u16, u64, u64)> = None;
        for (i, packet) in chunk.packets().iter().enumerate() {
            let octets = packet.captured_len() as u64;
            run = match run {
                Some((port, packets, sum)) if port == packet.port_in => {
                    Some((port, packets + 1, sum + octets))
                }
                other => {
                    self.book(other);
                    Some((packet.port_in, 1, octets))
                }
            };
            let Some(reason) = packet.drop_reason() else { continue };
            any_dead = true;
            if self.wants(reason) {
                self.punt(reason, packet, chunk.frame(i));
            } else {
                self.dropped[reason as usize] += 1;
                self.counters.port(packet.port_in).dropped.add(1, octets);
            }
        }
        self.book(run);
        if any_dead {
            self.publish();
        }
    }
}

impl LiveSink {
    /// Counts packets in a row that came in by one port.
    fn book(&self, run: Option<(u16, u64, u64)>) {
        if let Some((port, packets, octets)) = run {
            self.counters.port(port).received.add(packets, octets);
        }
    }
}

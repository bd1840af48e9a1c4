//! The host thread resolves neighbors, sends ICMP, fragments packets and delivers packets for the router.
//!
//! ```text
//! sink ──Punt──> Host ── ARP, ND ──> NeighborTable ──resolved, lost──> forwarding tables
//!                  │                        └── packets that waited ──> outboxes
//!                  ├── errors, echo ──> injected: routed and translated like any packet
//!                  ├── fragments ──> outboxes
//!                  ├── health checks of gateways, virtual routers ──> outboxes, forwarding tables
//!                  └── other packets for the router ──> mirror interface, if the port has one
//! ```
//!
//! The host thread owns all of this except the forwarding tables: BGP and the kernel sync write them too, under one
//! lock. Punts wait in bounded queues; the sender drops a punt as `host-queue-full` if its queue is full. Each
//! packet is counted once: as delivered to the router, as sent, or as dropped, for the reason of the punt or for
//! what went wrong here.
//!
//! An ICMP error is injected at the port where the packet arrived. If NAT had translated the packet, the error is
//! injected on NAT's other side: it quotes the translated packet, and NAT finds the host on the first side from that.

mod early_fragments;
mod frames;
mod gateway_checks;
mod reload;
mod static_neighbors;
mod virtual_routers;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, select};
use thalweg_base::{DropReason, PacketFlags};
use thalweg_dataplane::fragmentation::{FragmentationError, fragment, fragment_translated};
use thalweg_dataplane::gateway_check::GatewayChecks;
use thalweg_dataplane::icmp::{IcmpCounters, IcmpError, IcmpWriter};
use thalweg_dataplane::ip_packet::{IpPacket, count_down, count_up};
use thalweg_dataplane::neighbor::{
    NeighborConfig, NeighborCounters, NeighborOutput, NeighborTable, NeighborView, PortIdentity,
};
use thalweg_dataplane::vrrp::VirtualRouters;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::live_tables::PortLink;
use thalweg_node::plan::NatStage;
use thalweg_ports::live::LiveClock;
use thalweg_wire::ethernet::EthernetRepr;
use thalweg_wire::{EtherType, MacAddr};

use crate::capture::Seen;
use crate::counters::Counters;
use crate::firewall_watch::FirewallWatch;
use crate::inject::{self, Injector};
use crate::mirror::{Delivery, Mirrors};
use crate::outbox::{Opened, Outboxes, QueueClock};
use crate::punt::{LinkChange, Punt, is_refusal};
use crate::standby::Share;
use early_fragments::EarlyFragments;
use frames::{Kind, kind_of};
pub(crate) use reload::{HostChange, HostPorts, NatPorts, PortChange};
use static_neighbors::StaticNeighbors;
pub use static_neighbors::{KernelNeighborCounts, NeighborSource};
pub(crate) use virtual_routers::PortMacs;

/// The source of errors where no address of the router can be (RFC 7600 6).
const DUMMY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8));

/// Packets taken from each queue before timers and link changes are handled again.
const TURN: usize = 256;

/// The longest sleep, which also bounds how late a question is answered.
const SLEEP: Duration = Duration::from_millis(100);

/// How often to look for new gateways. They are resolved before a packet needs them.
const GATEWAYS_EVERY_NS: u64 = 1_000_000_000;

const SESSIONS_EVERY_NS: u64 = 1_000_000_000;

/// A packet that waits for its neighbor.
struct Waiting(Punt);

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.0.frame
    }
}

/// A closure that the host thread runs between packets.
pub(crate) type Question = Box<dyn FnOnce(&mut Host) + Send>;

/// The queues that the host thread reads.
pub(crate) struct Intake {
    /// Packets for the router. They are handled before the slow path's: an ARP reply may resolve what others wait
    /// for.
    pub(crate) host_frames: Receiver<Punt>,
    /// Packets to resolve, to fragment or to answer with an error.
    pub(crate) slow_path: Receiver<Punt>,
    pub(crate) questions: Receiver<Question>,
    pub(crate) links: Receiver<LinkChange>,
}

/// What the host thread is made of, apart from what it remembers.
pub(crate) struct Parts {
    /// The router's addresses and MAC address, by port.
    pub(crate) identities: Vec<PortIdentity>,
    pub(crate) icmp: IcmpWriter,
    pub(crate) tables: Arc<ForwardingTables>,
    pub(crate) outboxes: Outboxes,
    /// Sends frames that wait in outboxes once their time has come.
    pub(crate) queue_clock: Arc<QueueClock>,
    pub(crate) injector: Injector,
    pub(crate) mirrors: Mirrors,
    pub(crate) virtual_macs: PortMacs,
    pub(crate) nat_ports: Option<NatPorts>,
    pub(crate) standby: Option<Arc<Share>>,
    pub(crate) nat: Option<Arc<NatStage>>,
    pub(crate) firewall: Option<FirewallWatch>,
    /// The ICMP error for a host that NAT refuses a session; `None` to drop its packets silently.
    pub(crate) refusal: Option<IcmpError>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: LiveClock,
    /// The traffic class of the router's own packets.
    pub(crate) class: u8,
}

/// The host thread's counters, for `show` and metrics.
#[derive(Clone, Debug)]
pub struct HostNumbers {
    pub neighbors: NeighborCounters,
    pub icmp: IcmpCounters,
    /// Packets that wait for neighbors, or for the first fragment of their datagram.
    pub waiting: u64,
    /// Packets of the router's own that found the injection queue full.
    pub injections_refused: u64,
    /// Each mirror's port, name, and frames that the kernel did not take.
    pub mirrors: Vec<(u16, String, u64)>,
}

/// The host thread's state; see the module.
pub struct Host {
    neighbors: NeighborTable<Waiting>,
    static_neighbors: StaticNeighbors,
    /// Removed ports, whose late link changes are ignored.
    vacant: BTreeSet<u16>,
    early_fragments: EarlyFragments,
    checks: GatewayChecks,
    virtual_routers: VirtualRouters,
    parts: Parts,
    gateways_at_ns: u64,
    sessions_at_ns: u64,
    wanted: Vec<(u16, IpAddr)>,
}

impl Host {
    /// The host thread's state in the beginning, when the interfaces of the ports `down` do not exist yet.
    pub(crate) fn new(
        neighbors: NeighborConfig,
        virtual_routers: VirtualRouters,
        parts: Parts,
        down: impl Iterator<Item = u16>,
    ) -> Self {
        let now_ns = parts.clock.now_ns();
        let seed = neighbors.seed;
        let mut host = Self {
            neighbors: NeighborTable::new(neighbors, parts.identities.clone(), now_ns),
            static_neighbors: StaticNeighbors::default(),
            vacant: BTreeSet::new(),
            early_fragments: EarlyFragments::default(),
            checks: GatewayChecks::new(seed),
            virtual_routers,
            parts,
            gateways_at_ns: 0,
            sessions_at_ns: 0,
            wanted: Vec::new(),
        };
        for port in down {
            host.neighbors.set_port(port, None, now_ns);
        }
        host.look_at_gateways(now_ns);
        let ports: Vec<u16> = (0..).zip(&host.parts.identities).map(|(port, _)| port).collect();
        ports.into_iter().for_each(|port| host.follow_port(port, now_ns));
        host
    }

    pub(crate) fn run(mut self, intake: &Intake, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let now_ns = self.parts.clock.now_ns();
            let due = [
                self.neighbors.next_deadline(),
                self.early_fragments.next_deadline(),
                self.checks.next_deadline(),
                self.virtual_routers.next_deadline(),
            ];
            let due = due.into_iter().flatten().fold(self.gateways_at_ns, u64::min);
            let wait = Duration::from_nanos(due.saturating_sub(now_ns)).min(SLEEP);
            let (mut first, mut link) = (None, None);
            select! {
                recv(intake.host_frames) -> punt => first = punt.ok(),
                recv(intake.slow_path) -> punt => first = punt.ok(),
                recv(intake.links) -> change => link = change.ok(),
                default(wait) => {}
            }
            // Links before packets: until the tables change, packets leave by links that are down.
            let now_ns = self.parts.clock.now_ns();
            for change in link.into_iter().chain(intake.links.try_iter()) {
                self.handle_link(change, now_ns);
            }
            self.work_on(first, intake);
            let now_ns = self.parts.clock.now_ns();
            self.neighbors.handle_timer(now_ns);
            self.run_checks(now_ns);
            self.run_virtual_routers(now_ns);
            self.put_in_early_fragments(now_ns);
            if now_ns >= self.gateways_at_ns {
                self.look_at_gateways(now_ns);
            }
            self.end_sessions(now_ns);
            self.work_off(now_ns);
            for question in intake.questions.try_iter() {
                question(&mut self);
            }
        }
        self.stop_virtual_routers(self.parts.clock.now_ns());
    }

    fn work_on(&mut self, first: Option<Punt>, intake: &Intake) {
        let now_ns = self.parts.clock.now_ns();
        for punt in first.into_iter().chain(intake.host_frames.try_iter().take(TURN)) {
            self.handle(punt, now_ns);
        }
        for punt in intake.slow_path.try_iter().take(TURN) {
            self.handle(punt, now_ns);
        }
    }

    /// A view of the neighbors for `show`.
    pub fn neighbors(&self) -> impl Iterator<Item = NeighborView> + '_ {
        self.neighbors.view()
    }

    /// The port's addresses, MAC address and MTU; `None` if the port is down.
    pub fn identity(&self, port: u16) -> Option<&PortIdentity> {
        self.neighbors.port(port)
    }

    /// The present counters.
    pub fn numbers(&self) -> HostNumbers {
        let (waiting, _) = self.neighbors.waiting();
        let waiting = waiting + self.early_fragments.waiting();
        HostNumbers {
            neighbors: *self.neighbors.counters(),
            icmp: *self.parts.icmp.counters(),
            waiting: waiting as u64,
            injections_refused: self.parts.injector.refused(),
            mirrors: self
                .parts
                .mirrors
                .view()
                .map(|(port, name, refused)| (port, name.to_owned(), refused))
                .collect(),
        }
    }

    /// Decides what becomes of a packet, and counts it exactly once.
    fn handle(&mut self, punt: Punt, now_ns: u64) {
        match punt.reason {
            DropReason::MtuExceeded => return self.cut(punt, now_ns),
            DropReason::NeighborUnresolved => return self.resolve(punt, now_ns),
            DropReason::FragmentWithoutFirst => {
                return self
                    .early_fragments
                    .keep(punt, now_ns)
                    .unwrap_or_else(|punt| self.drop(&punt, punt.reason));
            }
            _ => {}
        }
        match self.offer(&punt, now_ns) {
            Delivery::Taken => {
                self.parts.counters.add_to_host(punt.reason, 1);
                self.parts.counters.taps.to_host(punt.reason, &punt.seen());
                self.parts.counters.port(punt.counted_at).to_host.add(1, punt.frame.len() as u64);
            }
            Delivery::Refused => self.drop(&punt, DropReason::HostQueueFull),
            Delivery::NoMirror => {
                // A spoofed sender, or one that an ACL drops without `reject`, gets no answer.
                let is_denied = matches!(punt.reason, DropReason::AclDenied | DropReason::FirewallDenied);
                let is_silent = is_denied && !punt.flags.has(PacketFlags::REJECT);
                let error = match is_refusal(punt.reason) {
                    true => self.parts.refusal,
                    false => IcmpError::for_drop(punt.reason, 0),
                };
                if !is_silent && let Some(error) = error {
                    self.send_error(&punt, error, now_ns);
                }
                self.drop(&punt, punt.reason);
            }
        }
    }

    /// Injects fragments that arrived before the first of their datagram. They are counted twice: as delivered to
    /// the router on arrival, and as the router's own when injected.
    fn put_in_early_fragments(&mut self, now_ns: u64) {
        while let Some(punt) = self.early_fragments.next_due(now_ns) {
            match self.parts.injector.inject(punt.port_in, punt.ip_packet().to_vec()) {
                Ok(()) => {
                    self.parts.counters.add_to_host(punt.reason, 1);
                    self.parts.counters.port(punt.counted_at).to_host.add(1, punt.frame.len() as u64);
                }
                Err(_) => self.drop(&punt, DropReason::HostQueueFull),
            }
        }
    }

    /// Expires NAT sessions and connections in shards that see no packets; otherwise the next packet there would have
    /// to wait for all of them.
    fn end_sessions(&mut self, now_ns: u64) {
        if now_ns < self.sessions_at_ns {
            return;
        }
        self.sessions_at_ns = now_ns + SESSIONS_EVERY_NS;
        if let Some(nat) = &self.parts.nat {
            nat.advance(now_ns);
        }
        if let Some(firewall) = &mut self.parts.firewall {
            firewall.look(now_ns);
        }
    }

    fn drop(&self, punt: &Punt, reason: DropReason) {
        self.parts.counters.drop_seen(reason, &punt.seen());
        self.parts.counters.port(punt.counted_at).dropped.add(1, punt.frame.len() as u64);
    }

    fn offer(&mut self, punt: &Punt, now_ns: u64) -> Delivery {
        match punt.reason {
            DropReason::NotIp => self.offer_link_layer(punt, now_ns),
            DropReason::Local | DropReason::NotUnicast | DropReason::LinkLocal => {
                self.offer_own(punt, now_ns)
            }
            DropReason::NatNoMapping if self.is_own(punt) => self.offer_own(punt, now_ns),
            DropReason::MartianSource if self.handle_neighbor(punt, now_ns) => Delivery::Taken,
            _ => Delivery::NoMirror,
        }
    }

    fn offer_link_layer(&mut self, punt: &Punt, now_ns: u64) -> Delivery {
        if kind_of(punt) != Kind::Arp {
            return self.parts.mirrors.deliver(punt.port_in, &punt.frame);
        }
        // The table counts those it refuses.
        let _ = self.neighbors.handle_arp(punt.port_in, &punt.frame, now_ns);
        if frames::is_arp_reply(&punt.frame) {
            self.parts.mirrors.deliver(punt.port_in, &punt.frame);
        }
        Delivery::Taken
    }

    /// Returns whether the packet was a message of Neighbor Discovery; the table then has taken or refused it.
    fn handle_neighbor(&mut self, punt: &Punt, now_ns: u64) -> bool {
        let Kind::NeighborDiscovery { is_answer } = kind_of(punt) else { return false };
        let _ = self.neighbors.handle_nd(punt.port_in, &punt.frame, now_ns);
        if is_answer {
            self.parts.mirrors.deliver(punt.port_in, &punt.frame);
        }
        true
    }

    fn offer_own(&mut self, punt: &Punt, now_ns: u64) -> Delivery {
        let is_ours = self.handle_neighbor(punt, now_ns)
            || self.is_check_answer(punt.ip_packet(), now_ns)
            || self.is_advertisement(punt, now_ns);
        if is_ours {
            return Delivery::Taken;
        }
        if let Some(delivery) = self.offer_virtual(punt, now_ns) {
            return delivery;
        }
        let delivery = self.parts.mirrors.deliver(punt.port_in, &punt.frame);
        if delivery != Delivery::NoMirror || !self.is_own(punt) {
            return delivery;
        }
        if let Some(answer) = self.parts.icmp.answer(punt.ip_packet(), punt.came_to_one(), now_ns) {
            self.inject(punt.port_in, answer);
        }
        Delivery::Taken
    }

    /// Injects a packet of the router's own. Routing will decrement its TTL, but this router is its first hop, so
    /// the TTL is incremented before.
    fn inject(&mut self, port_in: u16, mut packet: Vec<u8>) {
        count_up(&mut packet);
        let bytes = packet.len() as u64;
        if let Err(packet) = self.parts.injector.inject(port_in, packet) {
            self.parts.counters.add_own(bytes);
            self.parts.counters.drop_seen(DropReason::HostQueueFull, &inject::seen(port_in, &packet));
        }
    }

    fn is_own(&self, punt: &Punt) -> bool {
        IpPacket::parse(punt.ip_packet()).is_some_and(|packet| {
            self.parts.identities.iter().any(|identity| identity.owns(packet.destination))
        })
    }

    fn send_error(&mut self, punt: &Punt, what: IcmpError, now_ns: u64) {
        let packet = punt.ip_packet();
        let Some(from) = self.source_toward(punt) else { return };
        let nat_ports = self.parts.nat_ports.filter(|_| punt.flags.has(PacketFlags::TRANSLATED));
        let port_in = nat_ports.map_or(punt.port_in, |ports| match punt.flags.has(PacketFlags::NAT_OUT) {
            true => ports.outside,
            false => ports.inside,
        });
        // The writer counts why it writes none.
        if let Ok(error) = self.parts.icmp.error(what, packet, from, punt.came_to_one(), now_ns) {
            self.inject(port_in, error);
        }
    }

    /// The source address of an ICMP error: traceroute shows it, so it is that of the port where the packet
    /// arrived, if it has a usable one.
    fn source_toward(&self, punt: &Punt) -> Option<IpAddr> {
        let sender = IpPacket::parse(punt.ip_packet())?.source;
        let of = |port: u16| self.neighbors.port(port).and_then(|identity| identity.source_beyond(sender));
        let any = || (0..self.parts.identities.len() as u16).find_map(of);
        let own = of(punt.port_in).or_else(any)?;
        // An IPv6 host behind NAT has the router's only IPv4 address.
        Some(if own == sender { DUMMY } else { own })
    }

    /// Fragments a packet that exceeds the next link's MTU, or answers it with packet-too-big.
    fn cut(&mut self, punt: Punt, now_ns: u64) {
        let next = self.next_of(&punt);
        let Some((port, next_hop, link)) =
            next.and_then(|(port, next)| Some((port, next, self.parts.tables.read().port(port)?)))
        else {
            return self.drop(&punt, punt.reason);
        };
        let mtu = IcmpError::PacketTooBig { mtu_bytes: link.mtu };
        let mtu_bytes = link.mtu as usize;
        let is_translated = punt.flags.has(PacketFlags::TRANSLATED | PacketFlags::NAT_IN);
        let pieces = match (punt.flags.has(PacketFlags::IPV6), is_translated) {
            (true, true) => fragment_translated(punt.ip_packet(), mtu_bytes),
            (true, false) => Err(FragmentationError::DontFragment),
            (false, _) => fragment(punt.ip_packet(), mtu_bytes),
        };
        match (pieces, self.neighbors.lookup(port, next_hop).or(link.default_mac)) {
            (Ok(pieces), Some(mac)) => {
                for (i, piece) in pieces.iter().enumerate() {
                    if i > 0 {
                        self.parts.counters.add_own(piece.len() as u64);
                    }
                    self.transmit(port, link, mac, punt.class, piece, now_ns);
                }
            }
            (Ok(_), None) => self.drop(&punt, DropReason::NeighborUnresolved),
            (Err(error), _) => {
                if error == FragmentationError::DontFragment {
                    self.send_error(&punt, mtu, now_ns);
                }
                self.drop(&punt, DropReason::MtuExceeded);
            }
        }
    }

    fn resolve(&mut self, punt: Punt, now_ns: u64) {
        if IpPacket::parse(punt.ip_packet()).is_none_or(|packet| packet.hop_limit <= 1) {
            self.send_error(&punt, IcmpError::TimeExceeded, now_ns);
            return self.drop(&punt, DropReason::TtlExpired);
        }
        match self.next_of(&punt) {
            Some((port, address)) => self.neighbors.resolve(port, address, Waiting(punt), now_ns),
            None => self.drop(&punt, DropReason::NeighborUnresolved),
        }
    }

    /// Where the packet goes; nowhere if its route has moved to another port meanwhile, for which nobody has judged it.
    fn next_of(&self, punt: &Punt) -> Option<(u16, IpAddr)> {
        let to = IpPacket::parse(punt.ip_packet())?.destination;
        let next = self.parts.tables.read().next_of(punt.next_hop, punt.flow_hash, to);
        next.filter(|(port, _)| *port == punt.port_out)
    }

    fn work_off(&mut self, now_ns: u64) {
        let mut news = Vec::new();
        while let Some(output) = self.neighbors.poll_output() {
            match output {
                NeighborOutput::Send { port, frame } => {
                    self.parts.counters.add_own(frame.len() as u64);
                    self.send_own(port, &frame, now_ns);
                }
                NeighborOutput::Resolved { port, address, mac }
                | NeighborOutput::Changed { port, address, mac } => {
                    news.push(((port, address), Some(mac)));
                }
                NeighborOutput::Lost { port, address } | NeighborOutput::Silent { port, address } => {
                    news.push(((port, address), None));
                }
                NeighborOutput::Forward { port, mac, packet: Waiting(punt), .. } => {
                    self.forward(port, mac, punt, now_ns);
                }
                NeighborOutput::Unreachable { packet: Waiting(punt), why, .. } => {
                    if why.is_worth_an_error() {
                        self.send_error(&punt, IcmpError::HostUnreachable, now_ns);
                    }
                    self.drop(&punt, DropReason::NeighborUnresolved);
                }
            }
        }
        if !news.is_empty() {
            self.parts.tables.set_neighbors(&news);
        }
    }

    fn forward(&mut self, port: u16, mac: MacAddr, punt: Punt, now_ns: u64) {
        let Some(link) = self.parts.tables.read().port(port) else {
            return self.drop(&punt, DropReason::TransmitFailed);
        };
        if punt.ip_packet().len() > link.mtu as usize {
            return self.cut(punt, now_ns);
        }
        self.transmit(port, link, mac, punt.class, punt.ip_packet(), now_ns);
    }

    fn transmit(&self, port: u16, link: PortLink, mac: MacAddr, class: u8, packet: &[u8], now_ns: u64) {
        let mut frame = Vec::with_capacity(14 + packet.len());
        let ether_type = EtherType::of_packet(packet);
        let header = EthernetRepr { destination: mac, source: link.mac, ether_type };
        frame.extend_from_slice(&header.encode());
        frame.extend_from_slice(packet);
        // The TTL was checked before the packet was kept or fragmented, so this does not fail.
        if !count_down(&mut frame[14..]) {
            return self
                .parts
                .counters
                .drop_seen(DropReason::TtlExpired, &Seen::leaving(port, class, &frame));
        }
        self.send(port, class, &frame, now_ns);
    }

    fn send(&self, port: u16, class: u8, frame: &[u8], now_ns: u64) {
        self.send_by(port, class, frame, now_ns, |open| open.send(class, frame, now_ns));
    }

    fn send_own(&self, port: u16, frame: &[u8], now_ns: u64) {
        self.send_by(port, self.parts.class, frame, now_ns, |open| {
            open.send_own(self.parts.class, frame, now_ns)
        });
    }

    fn send_by(&self, port: u16, class: u8, frame: &[u8], now_ns: u64, send: impl FnOnce(&mut Opened<'_>)) {
        let outboxes = self.parts.outboxes.load();
        let Some(outbox) = outboxes.get(usize::from(port)) else {
            return self
                .parts
                .counters
                .drop_seen(DropReason::TransmitFailed, &Seen::leaving(port, class, frame));
        };
        let mut open = outbox.open();
        send(&mut open);
        open.close(now_ns, &self.parts.queue_clock);
    }

    /// Keeps the gateways of all routes resolved.
    fn look_at_gateways(&mut self, now_ns: u64) {
        self.gateways_at_ns = now_ns + GATEWAYS_EVERY_NS;
        let gateways = self.parts.tables.read().gateways();
        for (port, address) in &self.wanted {
            if !gateways.contains(&(*port, *address)) {
                self.neighbors.unwant(*port, *address);
            }
        }
        for (port, address) in &gateways {
            self.neighbors.want(*port, *address, now_ns);
        }
        self.wanted = gateways;
    }

    /// Handles a port that came up or went down, or whose MAC address or MTU changed.
    fn handle_link(&mut self, change: LinkChange, now_ns: u64) {
        let LinkChange { port, is_up, mac, far_end, mtu } = change;
        if self.vacant.contains(&port) {
            return;
        }
        let Some(identity) = self.parts.identities.get_mut(usize::from(port)) else { return };
        identity.mac = mac;
        (identity.mtu_bytes, identity.far_end) = (mtu, far_end);
        let identity = identity.clone();
        // Before anything else: from here on, packets take another path.
        self.parts.tables.update_port(port, |before| PortLink { mac, mtu, far_end, is_up, ..before });
        self.neighbors.set_port(port, is_up.then_some(identity), now_ns);
        self.follow_port(port, now_ns);
        self.parts.mirrors.copy_state(change);
        self.gateways_at_ns = now_ns;
    }
}

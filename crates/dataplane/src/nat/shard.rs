//! One shard of the session table: all state of NAT for the endpoints and ports that the shard owns.
//!
//! ```text
//!   packet from inside: hash(protocol, source, port)         --+
//!                                                              +--> index: open addressing, 8 bytes
//!   packet from outside: hash(protocol, destination, port)   --+    an endpoint, two thirds full
//!                                                                          |
//!                                                                          v
//!                                                            sessions: one line of 64 bytes each
//! ```
//!
//! A packet needs two loads that may miss the cache, each prefetched a few packets ahead by [`super::NatStage`].
//! Both directions go through the same code on the same data: they come mixed, and branches on the direction cost a
//! quarter of the time. (An array of sessions by public port, which is smaller and needs no hash, was measured and
//! rejected for that reason.)
//!
//! Memory is allocated only at construction: 64 bytes per session, 24 for its two index entries and 8 for its links
//! in the wheel, 96 in all. In addition there are 24 KiB of port bits per public address for all shards together,
//! and 2 KiB per shard for the wheel.
//!
//! # Time
//! A session used in second `t` with a lifetime of `d` seconds lives through second `t + d`: never shorter than
//! `d`, at most a second longer. Every call first removes expired sessions, so an expired session is never seen and
//! holds no port or record, and results depend only on the sequence of packets and times. A wheel of one-second
//! buckets finds them. A session is filed no further ahead than its protocol's shortest lifetime, so that
//! shortening its life (FIN, RST) needs no refiling; it is refiled when its bucket comes up early.
//!
//! When the clock jumps, one call removes everything due: 50 to 150 ns a session.

mod bare;
mod create;
mod help;
mod index;
mod life;
mod log;
mod migrate;
mod own;
mod pools;
mod standby;

pub use bare::BareInfo;
pub(crate) use help::{Help, Helped};

use super::bare::BareSessions;
use super::config::{Filtering, NatConfig, NatProtocol};
use super::endpoint::{End, Inside, endpoint_key, vrf_part};
use super::events::EventLog;
use super::hosts::Hosts;
use super::layout::Layout;
use super::nat64::Hosts6;
use super::own::OwnPorts;
use super::pools::Pools;
use super::ports::PortPool;
use super::rewrite::{self, Quote};
use super::session::{Kind, Life, Session, SessionState, TcpFlags, remote_word};
use super::subscribers::{BlockInfo, Subscribers};
use crate::records::{HashIndex, WHEEL_S, Wheel, counters, seconds, slice};
use crate::reverse_path::SourceCheck;
use crate::standby::Changes;
use crate::vrf::table_number;
use std::hint::select_unpredictable;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;
use thalweg_base::{DropReason, Packet, PacketFlags, prefetch_at};
use thalweg_wire::tcp;

counters! {
    /// Counters of a shard, or the sum over a NAT.
    NatCounters {
        sessions_active: "Sessions alive, port forwards not counted.";
        sessions_created: "Sessions made.";
        sessions_expired: "Sessions that ran out.";
        translated_out: "Packets whose source was translated.";
        translated_in: "Packets whose destination was translated, hairpins included.";
        one_to_one_out: "Those of them whose source has a public address of its own.";
        one_to_one_in: "Those of them to the public address of one inside host.";
        in_by_other_port: "Packets translated on their way in that came by another outside port than their session's.";
        hairpins: "Packets from one inside host to another by a public address.";
        icmp_errors_out: "ICMP errors translated on their way out.";
        icmp_errors_in: "ICMP errors translated on their way in.";
        icmp_errors_rejected: "ICMP errors dropped: malformed, wrong checksum, or about no session.";
        ports_exhausted: "Packets dropped because the shard had no free port.";
        table_full: "Packets dropped because the shard had no free session.";
        port_limit: "Packets dropped because their subscriber had all it may have.";
        host_limit: "Packets dropped because their inside host had as many sessions as it may.";
        host_rate: "Packets dropped because their inside host made sessions too fast.";
        spoofed: "Packets dropped because no way leads back to their source by the port they came by.";
        half_open_dropped: "Half-open TCP sessions that made room for others.";
        sessions_cleared: "Sessions that somebody ended.";
        bare_active: "Sessions of protocols without ports.";
        bare_created: "Such sessions made.";
        bare_translated: "Packets of theirs translated, both ways.";
        calls_active: "Calls of PPTP, each a session of GRE.";
        helped: "Messages of FTP, SIP and PPTP in which an endpoint was replaced.";
        help_unread: "Messages that helpers left as they were: not whole in their packet, or not understood.";
        help_refused: "Endpoints that helpers left as they were: not the sender's own, or without a port or room for them.";
        help_unexpected: "Announced connections that the firewall was not told of: a chunk announced more than 1024.";
        peer_taken: "Packets dropped because another inside host speaks their protocol, which has no ports, with their peer.";
        router_ports: "Public ports that the router itself uses.";
        router_flows: "Flows of the router itself that are kept in mind.";
        router_packets: "Packets kept for the router on a port that it shares with a session.";
        router_displaced: "Sessions ended because a program of the router opened their public port.";
        router_flows_refused: "Flows of the router itself for which there was no room.";
        no_mapping: "Packets dropped because nobody owns the public port they came for.";
        filtered: "Packets dropped because the session had not sent to their source.";
        nat64_out: "Packets of IPv6 hosts that became IPv4.";
        nat64_in: "Packets to IPv6 hosts that became IPv6.";
        nat64_hosts: "IPv6 hosts that have sessions, counted in each shard.";
        unpaired: "Sessions given another public address than their host's, whose ports were used up.";
        sessions_displaced: "Sessions that a new configuration had no place for.";
        odd_parity: "Sessions given a port of other parity, because all of theirs were used up.";
        subscribers_active: "Inside addresses that have sessions, where each has its limits.";
        blocks_active: "Blocks of ports that subscribers have.";
        events: "Events handed to the log.";
        events_dropped: "Events that found no room.";
    }
}

/// What ended sessions early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// An operator asked for it.
    Request,
    /// A new configuration without room for them.
    Configuration,
}

/// A session for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    pub protocol: NatProtocol,
    /// The VRF of the inside host; 0 is the main table.
    pub vrf: u16,
    /// The inside endpoint; the port is the identifier of ICMP echo.
    pub inside: SocketAddr,
    pub public: SocketAddrV4,
    pub state: SessionState,
    /// Destination of the first packet; kept with endpoint-independent filtering alone: others need the space.
    pub remote: Option<SocketAddrV4>,
    /// Seconds since the last packet that refreshed it; 0 for port forwards.
    pub idle_s: u32,
    /// Seconds until it ends without a refresh; `None` for port forwards.
    pub remaining_s: Option<u32>,
    /// Packets from inside, modulo 2^32.
    pub packets_out: u32,
    /// Packets from outside, modulo 2^32.
    pub packets_in: u32,
}

/// The look-up key of a packet's session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought {
    /// The endpoint.
    key: u64,
    hash: u64,
    /// The prefetched session plus one; 0 if the index was not read or had none.
    session: u32,
}

impl Sought {
    /// For a packet without a session.
    pub(crate) const NONE: Self = Self { key: 0, hash: 0, session: 0 };

    /// Of a packet with this IPv4 header.
    #[inline(always)]
    pub(crate) fn of(
        layout: &Layout,
        end: End,
        packet: &Packet,
        header: Option<&[u8; rewrite::IPV4_HEADER]>,
    ) -> Self {
        let address = header.map_or(0, |header| rewrite::address(header, end));
        let port = select_unpredictable(end == End::Source, packet.src_port, packet.dst_port);
        let vrf = layout.vrf_of(packet.port_in);
        let key = endpoint_key(end, packet.protocol, address, port) | vrf_part(end, vrf);
        Self { key, hash: layout.hash(key), session: 0 }
    }
}

/// One shard. What every packet touches comes first, in two cache lines: packets of 64 shards come mixed.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct NatShard {
    sessions: Box<[Session]>,
    /// Each session twice, by its inside and by its public endpoint.
    index: HashIndex,
    /// Packets translated, by end.
    translated: [u64; 2],
    now_s: u32,
    filtering: Filtering,
    /// Whether there are ports of NAT in several VRFs, so that sessions say in which a packet is looked up.
    leads: bool,
    timeouts_s: [u32; SessionState::COUNT],
    /// By state, whether a packet from outside refreshes the session.
    refreshed_from_outside: [bool; SessionState::COUNT],
    pub(super) layout: Arc<Layout>,
    shard: u16,
    /// The port of its public addresses, if there are several outside ports.
    outside: Option<u16>,
    /// How far ahead a session of each protocol is filed in the wheel.
    horizons_s: [u32; 3],
    /// The most sessions, not counting port forwards.
    sessions_max: u32,
    /// The first record that was never used.
    fresh: u32,
    /// First free record plus one, or 0.
    free: u32,
    ports: PortPool,
    /// The owners of ports, if subscribers have blocks.
    subscribers: Option<Box<Subscribers>>,
    /// Sessions by the second in which they must be checked; see `life.rs`.
    wheel: Wheel,
    /// Public ports for sessions.
    port_range: RangeInclusive<u16>,
    /// The use by each inside address.
    hosts: Hosts,
    pools: Pools,
    /// Sessions refused, by pool.
    refused: Box<[u64]>,
    /// The router's own ports and flows.
    own: OwnPorts,
    /// Sessions of protocols without ports, and their lifetime.
    bare: BareSessions,
    bare_s: u32,
    /// IPv6 hosts with sessions, and the last identification given to a packet of theirs.
    pub(super) hosts6: Hosts6,
    pub(super) identification: u16,
    /// What helpers keep.
    help: Help,
    /// Decides which sources may create sessions.
    sources: Option<Arc<SourceCheck>>,
    drops_half_open: bool,
    /// More than half of the table is in use.
    is_pressed: bool,
    /// The lifetime of half-open sessions without pressure.
    half_open_s: u32,
    /// The record where the search for half-open sessions continues, and the second before which it must not.
    hand: u32,
    look_again_s: u32,
    pub(super) counters: NatCounters,
    /// The log of events, if enabled.
    log: Option<Box<EventLog>>,
    /// For a standby.
    changes: Changes,
}

impl NatShard {
    /// Shard number `shard` of a validated configuration.
    pub(crate) fn new(layout: Arc<Layout>, shard: u16, config: &NatConfig) -> Self {
        let forwards: Vec<_> =
            config.each_forward().filter(|f| layout.port_shard(f.public_port) == shard).collect();
        let sessions_max = config.sessions_per_shard();
        let records = sessions_max as usize + forwards.len();
        let t = &config.timeouts;
        let shortest = [t.tcp_established_s.min(t.tcp_transitory_s), t.udp_s, t.icmp_s];
        let mut this = Self {
            shard,
            outside: None,
            now_s: 0,
            filtering: config.filtering,
            leads: layout.knows_vrfs(),
            timeouts_s: SessionState::timeouts(t),
            refreshed_from_outside: SessionState::refreshed_from_outside(config.inbound_refresh),
            horizons_s: shortest.map(|s| (s + 1).min(WHEEL_S - 1)),
            sessions_max,
            sessions: vec![Session::EMPTY; records].into_boxed_slice(),
            fresh: 0,
            free: 0,
            index: HashIndex::new(records * 2),
            ports: PortPool::new(&layout, shard, config),
            subscribers: Subscribers::new(&layout, shard, config.subscribers.as_ref()),
            wheel: Wheel::new(records),
            port_range: config.port_range.clone(),
            hosts: Hosts::new(&layout, shard, config),
            refused: vec![0; 1 + config.groups.len()].into(),
            pools: Pools::new(config),
            own: OwnPorts::default(),
            bare: BareSessions::new(sessions_max),
            bare_s: t.bare_s,
            hosts6: Hosts6::default(),
            identification: 0,
            help: Help::default(),
            sources: None,
            drops_half_open: config.hosts.drops_half_open,
            is_pressed: false,
            half_open_s: t.tcp_transitory_s,
            hand: 0,
            look_again_s: 0,
            counters: NatCounters::default(),
            log: None,
            changes: Changes::default(),
            translated: [0; 2],
            layout,
        };
        for f in forwards {
            this.insert(Session {
                expires_s: u32::MAX,
                addresses: [f.inside().address, this.layout.addresses[f.public_address]],
                ports: [f.inside_port, f.public_port],
                public_index: f.public_address as u8,
                kind: Kind::new(f.protocol, f.inside().vrf),
                state: SessionState::Forward,
                life: Life::Alone,
                ..Session::EMPTY
            });
        }
        this
    }

    /// The counters so far.
    pub fn counters(&self) -> NatCounters {
        let [translated_out, translated_in] = self.translated;
        let (subscribers_active, blocks_active) =
            self.subscribers.as_ref().map_or((0, 0), |subscribers| subscribers.in_use());
        let (events, events_dropped) = self.event_counts();
        let (router_ports, router_flows) = self.own.counts();
        NatCounters {
            bare_active: self.bare.count(),
            nat64_hosts: self.hosts6.count(),
            calls_active: self.help.calls.count(),
            router_ports,
            router_flows,
            translated_out,
            translated_in,
            subscribers_active,
            blocks_active,
            events,
            events_dropped,
            ..self.counters
        }
    }

    /// Sets the port of its public addresses, one of several.
    pub(crate) fn set_outside(&mut self, port: u16) {
        self.outside = Some(port);
    }

    /// Whether there are several outside ports.
    #[inline(always)]
    pub(crate) fn is_one_of_several(&self) -> bool {
        self.outside.is_some()
    }

    /// Counts a packet that was translated on its way in though it came by another outside port.
    pub(crate) fn note_way_in(&mut self, packet: &Packet) {
        let has_come_in = packet.flags.has(PacketFlags::NAT_IN | PacketFlags::TRANSLATED);
        if has_come_in && packet.is_alive() && Some(packet.port_in) != self.outside {
            self.counters.in_by_other_port += u64::from(packet.wire_packets());
        }
    }

    /// Removes what has expired by `now_ns`; time never goes back.
    #[inline(always)]
    pub fn advance(&mut self, now_ns: u64) {
        self.advance_to(seconds(now_ns));
    }

    #[inline(always)]
    pub(crate) fn advance_to(&mut self, now_s: u32) {
        if now_s > self.now_s {
            self.expire(now_s);
        }
    }

    /// Shows the sessions alive at `now_s` among `count` records from record `from` on; returns where to continue,
    /// if there are more. The order is arbitrary but reproducible.
    pub(crate) fn visit(
        &self,
        now_s: u32,
        from: usize,
        count: usize,
        mut show: impl FnMut(SessionInfo),
    ) -> Option<usize> {
        let now_s = now_s.max(self.now_s);
        let (records, rest) = slice(from, count, self.fresh);
        let records = self.sessions[records].iter();
        let live = records.filter(|session| session.is_live() && session.expires_s >= now_s);
        live.for_each(|session| show(self.info(session, now_s)));
        rest
    }

    /// A session alive at `now_s`, for display.
    fn info(&self, s: &Session, now_s: u32) -> SessionInfo {
        let forward = s.state == SessionState::Forward;
        let left_s = s.expires_s - now_s;
        let lifetime_s = self.timeouts_s[s.state as usize];
        let keeps_remote = !self.filtering.asks_for_sender();
        SessionInfo {
            protocol: s.protocol(),
            vrf: s.vrf().into(),
            inside: SocketAddr::new(self.address_of(s.addresses[0]), s.ports[0]),
            public: SocketAddrV4::new(Ipv4Addr::from(s.addresses[1]), s.ports[1]),
            state: s.state,
            remote: s.remote().filter(|_| keeps_remote),
            idle_s: if forward { 0 } else { lifetime_s.saturating_sub(left_s) },
            remaining_s: (!forward).then_some(left_s),
            packets_out: s.packets[0],
            packets_in: s.packets[1],
        }
    }

    /// Shows subscribers' blocks of ports, in the same way.
    pub(crate) fn visit_blocks(
        &self,
        from: usize,
        count: usize,
        mut show: impl FnMut(BlockInfo),
    ) -> Option<usize> {
        let known = |inside| self.address_of(inside);
        self.subscribers.as_ref()?.visit(&self.layout, from, count, &known, &mut show)
    }

    /// Translates the source of a packet labeled `NAT_OUT` for this shard; `l3` is its IPv4 packet.
    pub(crate) fn translate_out(&mut self, packet: &mut Packet, l3: &mut [u8], now_ns: u64) {
        self.advance(now_ns);
        let sought = self.sought(End::Source, packet, l3);
        self.translate(End::Source, packet, l3, sought);
    }

    /// Translates the destination of a packet labeled `NAT_IN` for this shard; `l3` is its IPv4 packet. Drops the
    /// packet if its destination has no session or its sender is not admitted.
    pub fn translate_in(&mut self, packet: &mut Packet, l3: &mut [u8], now_ns: u64) {
        self.advance(now_ns);
        let sought = self.sought(End::Destination, packet, l3);
        self.translate(End::Destination, packet, l3, sought);
    }

    /// The inside endpoint of a hairpin's destination, before translation, and the packet is led there; `None` for an ICMP error, whose endpoint is
    /// that of the quoted packet. An error if the public endpoint has no session: then it is the router's own, or the
    /// packet is dropped.
    pub(crate) fn inside_of(
        &mut self,
        packet: &mut Packet,
        l3: &[u8],
        now_ns: u64,
    ) -> Result<Option<SocketAddrV4>, DropReason> {
        self.advance(now_ns);
        if !packet.flags.has(PacketFlags::HAS_PORTS) {
            return Ok(None);
        }
        let sought = self.sought(End::Destination, packet, l3);
        let Some(at) = self.find(End::Destination, sought.key, sought.hash) else {
            self.counters.no_mapping += u64::from(packet.wire_packets());
            return Err(DropReason::NatNoMapping);
        };
        let session = &self.sessions[at];
        let (inside, vrf) = (SocketAddrV4::new(session.addresses[0].into(), session.ports[0]), session.vrf());
        self.lead(End::Destination, packet, vrf);
        Ok(Some(inside))
    }

    /// The look-up key of a packet; arbitrary for packets without an endpoint.
    pub(super) fn sought(&self, end: End, packet: &Packet, l3: &[u8]) -> Sought {
        Sought::of(&self.layout, end, packet, l3.first_chunk())
    }

    /// Prefetches the index line of an endpoint.
    #[inline(always)]
    pub(crate) fn prefetch_index(&self, sought: &Sought) {
        self.index.prefetch(sought.hash);
    }

    /// Prefetches the session that the index has for a packet's endpoint, and records it; without one, prefetches
    /// what creating a session will touch.
    #[inline(always)]
    pub(crate) fn prefetch_session(&self, packet: &Packet, sought: &mut Sought) {
        match self.index.likely(sought.hash) {
            Some(at) => {
                sought.session = at + 1;
                prefetch_at(&self.sessions, at as usize);
            }
            None => self.prefetch_creation(packet),
        }
    }

    /// Prefetches the next free record, its bucket in the wheel, and the index line of the public endpoint that
    /// keeps the inside port: memory that creating a session would otherwise wait for in turn.
    #[cold]
    fn prefetch_creation(&self, packet: &Packet) {
        let (true, Some(protocol)) =
            (packet.flags.has(PacketFlags::NAT_OUT), NatProtocol::from_ip(packet.protocol))
        else {
            return;
        };
        let record = self.free.checked_sub(1).unwrap_or(self.fresh);
        prefetch_at(&self.sessions, record as usize);
        self.wheel.prefetch(self.now_s.wrapping_add(self.horizons_s[protocol as usize]));
        if let ([address], true) = (&self.layout.addresses[..], self.layout.preserves_ports()) {
            let key = endpoint_key(End::Destination, packet.protocol, *address, packet.src_port);
            self.index.prefetch(self.layout.hash(key));
        }
    }

    /// Translates one end of a packet, after time was advanced and the endpoint hashed. Returns the record of the session
    /// that translated it.
    pub(crate) fn translate(
        &mut self,
        end: End,
        packet: &mut Packet,
        l3: &mut [u8],
        sought: Sought,
    ) -> Option<usize> {
        if !packet.flags.has(PacketFlags::HAS_PORTS) {
            self.translate_without_ports(end, packet, l3);
            return None;
        }
        let session = self.translate_by_session(end, packet, l3, sought);
        session.map_err(|reason| packet.drop_for(reason)).ok()
    }

    fn translate_by_session(
        &mut self,
        end: End,
        packet: &mut Packet,
        l3: &mut [u8],
        sought: Sought,
    ) -> Result<usize, DropReason> {
        let l3 = at_hand(packet, l3);
        let l4 = transport(packet);
        let numbers = l4.and_then(|l4| l3.get(l4 + 4..)?.first_chunk::<10>());
        let segment = numbers.map(Segment::of);
        let flags = segment.map_or(TcpFlags::ACK_ONLY, |segment| segment.flags);
        let at = match self.recall(end, sought) {
            Some(at) => at,
            None => self.look_up(end, packet, l3, sought, flags)?,
        };
        let (source, destination) = rewrite::addresses(l3).ok_or(DropReason::NatProtocol)?;
        self.pass_filter(end, at, packet, source, destination)?;
        let segment = segment.unwrap_or(Segment {
            sequence: 0,
            acknowledged: self.sessions[at].awaited,
            flags: TcpFlags::ACK_ONLY,
        });
        let (address, port) = self.use_session(end, at, packet, packet.wire_packets(), segment);
        rewrite::rewrite_packet(l3, l4, packet.protocol, end, address, port);
        // The identifier of an ICMP echo is in both fields.
        if packet.protocol == NatProtocol::Icmp.number() {
            (packet.src_port, packet.dst_port) = (port, port);
        }
        Ok(at)
    }

    /// [`Self::translate`] for packets of the usual kind: TCP or UDP in one whole packet behind an IPv4 header without
    /// options, with a prefetched session. Returns `None`, without any change, for others. Written so that only errors
    /// branch on direction or protocol.
    #[inline(always)]
    pub(crate) fn translate_usual(
        &mut self,
        end: End,
        packet: &mut Packet,
        l3: &mut [u8; rewrite::USUAL_HEADERS],
        sought: Sought,
    ) -> Option<Result<usize, DropReason>> {
        const FLAGS: u8 = PacketFlags::HAS_PORTS | PacketFlags::LATER_FRAGMENT;
        let udp = packet.protocol == NatProtocol::Udp.number();
        let usual = (udp | (packet.protocol == NatProtocol::Tcp.number()))
            & (packet.flags.0 & FLAGS == PacketFlags::HAS_PORTS)
            & (usize::from(packet.l4_offset.wrapping_sub(packet.l3_offset)) == rewrite::IPV4_HEADER)
            & (packet.ip_len >= rewrite::USUAL_LEN_MIN)
            & packet.segment_bytes().is_none();
        if !usual {
            return None;
        }
        let (at, (source, destination)) = (self.recall(end, sought)?, rewrite::addresses(l3)?);
        let segment = l3[rewrite::IPV4_HEADER + 4..].first_chunk().map(Segment::of)?;
        if self.filtering.asks_for_sender()
            && let Err(reason) = self.pass_filter(end, at, packet, source, destination)
        {
            return Some(Err(reason));
        }
        let (address, port) = self.use_session(end, at, packet, 1, segment);
        rewrite::rewrite_usual(l3, udp, end, address, port);
        Some(Ok(at))
    }

    /// Has a session translate a packet, or as many as it merges: its state, its counters and its life. Returns the
    /// endpoint that replaces the packet's, whose descriptor has it already.
    #[inline(always)]
    fn use_session(
        &mut self,
        end: End,
        at: usize,
        packet: &mut Packet,
        packets: u32,
        segment: Segment,
    ) -> (u32, u16) {
        let Segment { acknowledged, flags, .. } = segment;
        let (now_s, outbound) = (self.now_s, end == End::Source);
        let session = &mut self.sessions[at];
        let before = session.state;
        let state = before.after(end, flags);
        session.state = state;
        session.awaited = select_unpredictable(outbound, acknowledged, session.awaited);
        session.packets[end as usize] = session.packets[end as usize].wrapping_add(packets);
        let refreshes = outbound | (state != before) | self.refreshed_from_outside[state as usize];
        let expires_s = now_s.saturating_add(self.timeouts_s[state as usize]);
        session.expires_s = select_unpredictable(refreshes, expires_s, session.expires_s);
        let (address, port) = (session.addresses[1 - end as usize], session.ports[1 - end as usize]);
        packet.src_port = select_unpredictable(outbound, port, packet.src_port);
        packet.dst_port = select_unpredictable(outbound, packet.dst_port, port);
        packet.flags.set(PacketFlags::TRANSLATED);
        self.translated[end as usize] += u64::from(packets);
        let vrf = session.vrf();
        self.lead(end, packet, vrf);
        if flags.has(tcp::SYN | tcp::RST) & (packet.protocol == NatProtocol::Tcp.number()) {
            self.check_syn_or_rst(at, end, before, segment);
        }
        (address, port)
    }

    /// Has a packet that goes inside looked up in the VRF of its host.
    #[inline(always)]
    fn lead(&self, end: End, packet: &mut Packet, vrf: u8) {
        if self.leads && end == End::Destination {
            packet.next_hop = table_number(vrf.into());
        }
    }

    /// The firewall's state that a session names.
    #[inline(always)]
    pub(crate) fn state_of(&self, session: usize) -> u32 {
        self.sessions[session].state_of(self.filtering)
    }

    /// Has a session name a state of the firewall. If another session has its record by now, that one names it in vain.
    pub(crate) fn name_state(&mut self, session: usize, state: u32) {
        if let Some(session) = self.sessions.get_mut(session).filter(|session| session.is_live()) {
            session.name_state(self.filtering, state);
        }
    }

    /// A packet without ports is an ICMP error, or of a protocol that has none.
    #[cold]
    fn translate_without_ports(&mut self, end: End, packet: &mut Packet, l3: &mut [u8]) {
        if packet.protocol == NatProtocol::Icmp.number() {
            return self.translate_error(end, packet, l3);
        }
        self.translate_bare(end, packet, l3);
    }

    /// Filtering by sender: records the destination of an outbound packet, or refuses an inbound one whose source the
    /// session has not sent to.
    fn pass_filter(
        &mut self,
        end: End,
        at: usize,
        packet: &Packet,
        source: u32,
        destination: u32,
    ) -> Result<(), DropReason> {
        if end == End::Source && self.filtering.asks_for_sender() {
            let remote = self.filtering.remembered(packet.protocol, destination, packet.dst_port);
            self.sessions[at].admit(self.layout.hash(remote));
        }
        if end == End::Destination && !self.admits(at, source, packet.src_port) {
            self.counters.filtered += u64::from(packet.wire_packets());
            return Err(DropReason::NatFiltered);
        }
        Ok(())
    }

    /// Counts a packet that was translated without a session, or was to be.
    pub(super) fn count_one_to_one(&mut self, end: End, packet: &Packet, outcome: Result<(), DropReason>) {
        let packets = u64::from(packet.wire_packets());
        let [out, into] = &mut self.translated;
        let (all, alone) = match (outcome, end) {
            (Err(_), _) => return self.counters.icmp_errors_rejected += packets,
            (Ok(()), End::Source) => (out, &mut self.counters.one_to_one_out),
            (Ok(()), End::Destination) => (into, &mut self.counters.one_to_one_in),
        };
        *all += packets;
        *alone += packets;
    }

    /// Counts a hairpin; the stage calls it for the second half of one.
    pub(crate) fn count_hairpin(&mut self, packet: &Packet) {
        self.counters.hairpins += u64::from(packet.wire_packets());
    }

    /// Translates an ICMP error and the packet it quotes, which went the other way. The session's lifetime does not
    /// change (RFC 5508 REQ-6, RFC 5382 REQ-10).
    ///
    /// From inside: the quoted packet was sent *to* the inside endpoint. The error leaves with that endpoint's
    /// public address, whichever router reported it. From outside: the quoted packet was sent *from* the public
    /// endpoint. The sender of the error may be any router on the path; with filtering by sender, the session must
    /// have sent to the quoted destination.
    #[cold]
    fn translate_error(&mut self, end: End, packet: &mut Packet, l3: &mut [u8]) {
        let whole = is_whole(packet, l3);
        let l3 = at_hand(packet, l3);
        let Some(quote) = self.quote(packet, l3, whole) else {
            self.counters.icmp_errors_rejected += 1;
            return packet.drop_for(DropReason::NatIcmp);
        };
        let (Inside { vrf, address }, port) = match self.replacement(end, packet, &quote) {
            Ok(found) => found,
            Err(reason) => {
                self.counters.icmp_errors_rejected += 1;
                return packet.drop_for(reason);
            }
        };
        match end {
            End::Source => {
                rewrite::rewrite_error(l3, &quote, end, End::Destination, address, port);
                self.counters.icmp_errors_out += 1;
            }
            End::Destination => {
                rewrite::rewrite_error(l3, &quote, end, End::Source, address, port);
                self.counters.icmp_errors_in += 1;
            }
        }
        self.lead(end, packet, vrf);
        packet.flags.set(PacketFlags::TRANSLATED);
    }

    /// The replacement for the endpoint in a quote, in its VRF; the port is 0 if the protocol has none. An error from
    /// outside without a session may be about a packet of the router's own.
    fn replacement(&mut self, end: End, packet: &Packet, quote: &Quote) -> Result<(Inside, u16), DropReason> {
        let is_inbound = end == End::Destination;
        let nobodys = if is_inbound { DropReason::NatNoMapping } else { DropReason::NatIcmp };
        if quote.transport.is_none() {
            return self.bare_of_quote(end, packet, quote).map(|address| (address, 0)).ok_or(nobodys);
        }
        let (address, port) = match end {
            End::Source => (quote.destination, quote.destination_port),
            End::Destination => (quote.source, quote.source_port),
        };
        let vrf = self.layout.vrf_of(packet.port_in);
        let key = endpoint_key(end, quote.protocol, address, port) | vrf_part(end, vrf);
        let at = self.find(end, key, self.layout.hash(key)).ok_or(nobodys)?;
        if is_inbound && self.is_for_router(at, quote.destination, quote.destination_port) {
            return Err(nobodys);
        }
        if is_inbound && !self.admits(at, quote.destination, quote.destination_port) {
            return Err(DropReason::NatIcmp);
        }
        let (session, other) = (&self.sessions[at], 1 - end as usize);
        let vrf = if is_inbound { session.vrf() } else { self.layout.vrf };
        Ok((Inside { vrf, address: session.addresses[other] }, session.ports[other]))
    }

    fn quote(&self, packet: &Packet, l3: &[u8], whole: bool) -> Option<Quote> {
        let quote = Quote::parse(l3, transport(packet)?)?;
        quote.checksums_hold(l3, whole).then_some(quote)
    }

    #[inline(always)]
    fn admits(&self, at: usize, source: u32, port: u16) -> bool {
        let session = &self.sessions[at];
        let knows = |remote| session.admits(self.layout.hash(remote));
        // A helper admits an address with all its ports.
        !self.filtering.asks_for_sender()
            || session.state == SessionState::Forward
            || knows(source.into())
            || self.filtering == Filtering::AddressAndPortDependent && knows(remote_word(source, port))
    }
}

/// What a session follows of a TCP segment: of other packets, whatever is there.
#[derive(Clone, Copy)]
struct Segment {
    sequence: u32,
    acknowledged: u32,
    flags: TcpFlags,
}

impl Segment {
    /// From the TCP header without its ports.
    #[inline(always)]
    fn of(bytes: &[u8; 10]) -> Self {
        let [a, b, c, d, e, f, g, h, _, flags] = *bytes;
        let (sequence, acknowledged) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Self { sequence, acknowledged, flags: TcpFlags(flags) }
    }
}

/// The IPv4 packet without what follows it in the frame.
#[inline(always)]
pub(super) fn at_hand<'a>(packet: &Packet, l3: &'a mut [u8]) -> &'a mut [u8] {
    let len = l3.len().min(packet.ip_len as usize);
    &mut l3[..len]
}

/// Offset of the transport header in the IPv4 packet; `None` if it has none.
#[inline(always)]
pub(super) fn transport(packet: &Packet) -> Option<usize> {
    let at = usize::from(packet.l4_offset).checked_sub(usize::from(packet.l3_offset))?;
    (at >= rewrite::IPV4_HEADER && !packet.flags.has(PacketFlags::LATER_FRAGMENT)).then_some(at)
}

/// Whether the IP payload is complete, so that its checksum can be verified.
pub(super) fn is_whole(packet: &Packet, l3: &[u8]) -> bool {
    l3.len() >= packet.ip_len as usize && !packet.flags.has(PacketFlags::FRAGMENT)
}

//! Creates sessions: checks a packet without one, and assigns a public port.

use super::super::config::NatProtocol;
use super::super::endpoint::{End, Inside};
use super::super::hosts::HostRefusal;
use super::super::own::{OwnFlow, OwnPort};
use super::super::rewrite;
use super::super::session::{Kind, Life, Session, SessionState, TcpFlags};
use super::super::subscribers::Refusal;
use super::{NatShard, Sought};
use crate::records::place;
use std::net::SocketAddrV4;
use thalweg_base::{DropReason, Packet};

impl NatShard {
    /// Finds or creates the session of a packet without a prefetched one. A separate function from the fast path.
    #[cold]
    #[inline(never)]
    pub(super) fn look_up(
        &mut self,
        end: End,
        packet: &Packet,
        l3: &[u8],
        sought: Sought,
        flags: TcpFlags,
    ) -> Result<usize, DropReason> {
        let before = packet.segment_bytes().map(|_| self.counters);
        let found = self.find_or_create(end, packet, l3, sought, flags);
        if let (Err(_), Some(before)) = (found, before) {
            // Each of the merged packets would be refused.
            self.counters.repeat(&before, u64::from(packet.wire_packets()) - 1);
        }
        found
    }

    fn find_or_create(
        &mut self,
        end: End,
        packet: &Packet,
        l3: &[u8],
        sought: Sought,
        flags: TcpFlags,
    ) -> Result<usize, DropReason> {
        let Some((source, destination)) = rewrite::addresses(l3) else {
            return Err(DropReason::NatProtocol);
        };
        if let Some(at) = self.find(end, sought.key, sought.hash) {
            if end == End::Destination && self.is_for_router(at, source, packet.src_port) {
                self.counters.router_packets += 1;
                return Err(DropReason::NatNoMapping);
            }
            return Ok(at);
        }
        let protocol = NatProtocol::from_ip(packet.protocol).ok_or(DropReason::NatProtocol)?;
        if end == End::Destination {
            debug_assert_eq!(
                self.layout.port_shard(packet.dst_port),
                self.shard,
                "labeled for another shard"
            );
            self.counters.no_mapping += 1;
            return Err(DropReason::NatNoMapping);
        }
        if rewrite::ttl(l3) <= 1 {
            // The packet would expire, so it gets no session.
            return Err(DropReason::TtlExpired);
        }
        self.check_source(packet.port_in, source)?;
        self.note_time(packet.arrival_ns, SessionState::initial(protocol, flags));
        let at = self.create(
            protocol,
            (self.layout.inside_of(packet, source), packet.src_port),
            sought.hash,
            flags,
            None,
        )?;
        self.sessions[at].set_remote(self.filtering, destination, packet.dst_port);
        self.log_created(at);
        self.note(at);
        Ok(at)
    }

    /// Whether a session shares its public port with the router, and the router has a flow with this sender.
    pub(super) fn is_for_router(&self, at: usize, source: u32, source_port: u16) -> bool {
        let session = &self.sessions[at];
        if session.life != Life::Shared {
            return false;
        }
        let echo = session.protocol() == NatProtocol::Icmp;
        let remote = SocketAddrV4::new(source.into(), if echo { 0 } else { source_port });
        let at = OwnPort {
            protocol: session.protocol(),
            address: session.addresses[1].into(),
            port: session.ports[1],
        };
        self.own.has_flow(&OwnFlow { at, remote })
    }

    /// Rejects sources that may not create sessions through this port.
    pub(super) fn check_source(&mut self, port_in: u16, source: u32) -> Result<(), DropReason> {
        let source = self.address_of(source);
        if self.sources.as_ref().is_none_or(|sources| sources.admits(port_in, source)) {
            return Ok(());
        }
        self.counters.spoofed += 1;
        Err(DropReason::ReversePath)
    }

    /// Creates a session for an inside endpoint, at the `wanted` public endpoint if it can have that.
    pub(super) fn create(
        &mut self,
        protocol: NatProtocol,
        (inside, inside_port): (Inside, u16),
        hash: u64,
        flags: TcpFlags,
        wanted: Option<(u32, u16)>,
    ) -> Result<usize, DropReason> {
        debug_assert_eq!(
            self.layout.session_shard(protocol, self.home_of(inside), inside_port),
            self.shard,
            "packet labeled for another shard"
        );
        let pool = self.pool_of(inside);
        if let Err(refusal) = self.hosts.admit(&self.layout, (inside, pool), self.now_s) {
            return Err(self.refuse_host(refusal, inside));
        }
        let is_full = |this: &Self| this.counters.sessions_active >= u64::from(this.sessions_max);
        if is_full(self) && !self.drop_half_open() {
            self.counters.table_full += 1;
            self.log_table_full();
            return Err(DropReason::NatTableFull);
        }
        let chosen = wanted.and_then(|wanted| self.take_exactly(protocol, wanted));
        let (address, public_port) = match chosen {
            Some(chosen) => chosen,
            None => self.choose_port(protocol, inside, inside_port, hash)?,
        };
        let state = SessionState::initial(protocol, flags);
        let at = self.insert(Session {
            expires_s: self.now_s + self.timeouts_s[state as usize],
            addresses: [inside.address, self.layout.addresses[address]],
            ports: [inside_port, public_port],
            public_index: address as u8,
            kind: Kind::new(protocol, inside.vrf),
            state,
            life: Life::Alone,
            ..Session::EMPTY
        });
        self.file(at);
        self.hosts.made(&self.layout, inside, self.now_s);
        self.counters.sessions_active += 1;
        self.counters.sessions_created += 1;
        self.feel_pressure();
        Ok(at)
    }

    /// Takes this port if it is free and the shard's. A subscriber's block is not asked for a port.
    fn take_exactly(&mut self, protocol: NatProtocol, (address, port): (u32, u16)) -> Option<(usize, u16)> {
        let is_own = self.layout.port_shard(port) == self.shard && self.port_range.contains(&port);
        let address = place(self.layout.public_index(address)?);
        let bitmap = self.layout.bitmap(protocol, address, port & 1);
        let can_have = is_own && self.subscribers.is_none();
        (can_have && self.ports.take(bitmap, self.layout.bitmap_place(port))).then_some((address, port))
    }

    /// Takes a free port: from the subscriber's blocks if there are blocks; otherwise with the wanted parity on the
    /// host's paired address, then on the others, then with the other parity in the same order.
    fn choose_port(
        &mut self,
        protocol: NatProtocol,
        inside: Inside,
        inside_port: u16,
        hash: u64,
    ) -> Result<(usize, u16), DropReason> {
        if self.subscribers.is_some() {
            return self.choose_port_of_block(protocol, inside, inside_port, hash);
        }
        let mut found = self.find_port(protocol, inside, inside_port, hash);
        if found.is_none() && protocol == NatProtocol::Tcp && self.drop_half_open() {
            found = self.find_port(protocol, inside, inside_port, hash);
        }
        found.ok_or_else(|| {
            self.counters.ports_exhausted += 1;
            self.count_refused(inside);
            self.log_ports_exhausted(protocol, inside);
            DropReason::NatPortsExhausted
        })
    }

    fn find_port(
        &mut self,
        protocol: NatProtocol,
        inside: Inside,
        inside_port: u16,
        hash: u64,
    ) -> Option<(usize, u16)> {
        let start = if self.layout.preserves_ports() {
            self.layout.bitmap_place(inside_port)
        } else {
            (hash >> 8) as usize % self.layout.bitmap_ports()
        };
        let pool = self.publics_of(inside);
        for parity in [inside_port & 1, !inside_port & 1] {
            for (n, address) in self.layout.addresses_from(inside.address, &pool).enumerate() {
                let bitmap = self.layout.bitmap(protocol, address, parity);
                if let Some(place) = self.ports.take_from(bitmap, start) {
                    self.counters.unpaired += u64::from(n != 0);
                    self.counters.odd_parity += u64::from(parity != inside_port & 1);
                    return Some((address, self.layout.bitmap_port(self.shard, parity, place)));
                }
            }
        }
        None
    }

    fn choose_port_of_block(
        &mut self,
        protocol: NatProtocol,
        inside: Inside,
        inside_port: u16,
        hash: u64,
    ) -> Result<(usize, u16), DropReason> {
        let pool = self.pool_of(inside);
        let Some(subscribers) = &mut self.subscribers else { return Err(DropReason::NatPortsExhausted) };
        let start =
            if self.layout.preserves_ports() { usize::from(inside_port) >> 1 } else { hash as usize >> 8 };
        let endpoint = (inside, inside_port);
        let pool = &self.pools.all()[pool];
        let taken =
            subscribers.take((&self.layout, pool), &mut self.ports, protocol, endpoint, start, self.now_s);
        let taken = match taken {
            Ok(taken) => taken,
            Err(refusal) => return Err(self.refuse(refusal, protocol, inside)),
        };
        if let Some(ports) = taken.given_out {
            self.log_allocated(inside, taken.address, ports);
        }
        self.counters.unpaired += u64::from(taken.is_unpaired);
        self.counters.odd_parity += u64::from((taken.port ^ inside_port) & 1);
        Ok((taken.address, taken.port))
    }

    /// Counts a session refused to a subscriber.
    fn refuse(&mut self, refusal: Refusal, protocol: NatProtocol, inside: Inside) -> DropReason {
        let reason = refusal.reason();
        match reason {
            DropReason::NatPortLimit => self.counters.port_limit += 1,
            _ => self.counters.ports_exhausted += 1,
        }
        self.count_refused(inside);
        self.log_refused(refusal, protocol, inside);
        reason
    }

    /// Counts a session refused by the inside address's pool.
    fn count_refused(&mut self, inside: Inside) {
        self.refused[self.pool_of(inside)] += 1;
    }

    /// Counts a session refused to an inside address.
    pub(super) fn refuse_host(&mut self, refusal: HostRefusal, inside: Inside) -> DropReason {
        match refusal {
            HostRefusal::Sessions => {
                self.counters.host_limit += 1;
                self.count_refused(inside);
                self.log_host_limit(inside);
                DropReason::NatHostLimit
            }
            HostRefusal::Rate => {
                self.counters.host_rate += 1;
                self.count_refused(inside);
                DropReason::NatHostRate
            }
        }
    }
}

//! Translates packets of protocols without ports: see [`super::super::bare`].

use super::super::bare::{BareRefusal, BareSession, PublicKey};
use super::super::calls::{Call, CallKey};
use super::super::endpoint::{End, Inside};
use super::super::rewrite::{self, Quote};
use super::{EndedBy, NatShard, at_hand, transport};
use crate::helpers::pptp;
use std::net::Ipv4Addr;
use thalweg_base::{DropReason, Packet, PacketFlags};
use thalweg_wire::ip_protocol::GRE;

/// A session of a protocol without ports, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareInfo {
    /// The protocol's number in the IP header.
    pub protocol: u8,
    pub inside: Ipv4Addr,
    /// The VRF of the inside host; 0 is the main table.
    pub vrf: u16,
    pub public: Ipv4Addr,
    /// The only outside host of the session.
    pub peer: Ipv4Addr,
    /// Seconds since its last packet.
    pub idle_s: u32,
    /// Seconds until it ends without a packet.
    pub remaining_s: u32,
    /// Packets from inside, modulo 2^32.
    pub packets_out: u32,
    /// Packets from outside, modulo 2^32.
    pub packets_in: u32,
    /// The numbers of a call of PPTP: the inside host's, and the public one.
    pub call: Option<(u16, u16)>,
}

impl NatShard {
    /// Translates one address of the packet.
    #[cold]
    pub(super) fn translate_bare(&mut self, end: End, packet: &mut Packet, l3: &mut [u8]) {
        let l3 = at_hand(packet, l3);
        let Some((source, destination)) = rewrite::addresses(l3) else {
            return packet.drop_for(DropReason::NatProtocol);
        };
        let found = match (end, self.pass_call(end, packet, l3, (source, destination))) {
            (_, Some(found)) => Ok(found),
            (End::Source, None) => self.bare_out(packet, l3, source, destination),
            (End::Destination, None) => self.bare_in(packet.protocol, source, destination),
        };
        match found {
            Ok(Inside { vrf, address }) => {
                self.lead(end, packet, vrf);
                rewrite::rewrite_packet(l3, None, packet.protocol, end, address, 0);
                packet.flags.set(PacketFlags::TRANSLATED);
                self.translated[end as usize] += 1;
                self.counters.bare_translated += 1;
            }
            Err(reason) => packet.drop_for(reason),
        }
    }

    /// The address for a packet of a call and its VRF. The call's number is replaced by the inside host's.
    fn pass_call(
        &mut self,
        end: End,
        packet: &Packet,
        l3: &mut [u8],
        (source, destination): (u32, u32),
    ) -> Option<Inside> {
        if packet.protocol != GRE || self.help.calls.is_empty() {
            return None;
        }
        let (now_s, expires_s) = (self.now_s, self.now_s.saturating_add(self.bare_s));
        let gre = l3.get_mut(transport(packet)?..)?;
        let (at, number) = pptp::call_of(gre)?;
        if end == End::Source {
            let host = self.layout.inside_of(packet, source);
            return self
                .help
                .calls
                .leave(destination, host, now_s, expires_s)
                .map(|public| self.public(public));
        }
        let (inside, number) = self.help.calls.enter((source, destination, number), now_s, expires_s)?;
        gre.get_mut(at..at + 2)?.copy_from_slice(&number.to_be_bytes());
        Some(inside)
    }

    /// A public address, in the VRF of all of them.
    fn public(&self, address: u32) -> Inside {
        Inside { vrf: self.layout.vrf, address }
    }

    /// The public address for a packet from inside.
    fn bare_out(&mut self, packet: &Packet, l3: &[u8], source: u32, peer: u32) -> Result<Inside, DropReason> {
        let (protocol, now_s) = (packet.protocol, self.now_s);
        let inside = self.layout.inside_of(packet, source);
        let expires_s = now_s.saturating_add(self.bare_s);
        let public = match self.bare.public_of(protocol, peer, inside, now_s) {
            Some(public) => public,
            None if rewrite::ttl(l3) <= 1 => return Err(DropReason::TtlExpired),
            None => {
                self.check_source(packet.port_in, source)?;
                let admitted = self.hosts.admit(&self.layout, (inside, self.pool_of(inside)), now_s);
                admitted.map_err(|refusal| self.refuse_host(refusal, inside))?;
                let order = self.layout.addresses_from(source, &self.publics_of(inside));
                let publics = order.map(|address| self.layout.addresses[address]);
                let created = self.bare.create((protocol, peer, inside), publics, now_s, expires_s);
                let public = created.map_err(|refusal| self.refuse_bare(refusal))?;
                self.counters.bare_created += 1;
                public
            }
        };
        if let Some(session) = self.bare.session((protocol, peer, public), now_s) {
            session.expires_s = expires_s;
            session.packets[0] = session.packets[0].wrapping_add(1);
        }
        Ok(self.public(public))
    }

    /// The inside host for a packet from outside. Packets from outside refresh the session, because only its
    /// peer can send them.
    fn bare_in(&mut self, protocol: u8, peer: u32, public: u32) -> Result<Inside, DropReason> {
        let (now_s, expires_s) = (self.now_s, self.now_s.saturating_add(self.bare_s));
        if let Some(session) = self.bare.session((protocol, peer, public), now_s) {
            if let Some(inside) = session.inside {
                session.expires_s = expires_s;
                session.packets[1] = session.packets[1].wrapping_add(1);
                return Ok(inside);
            }
            self.counters.router_packets += 1;
        } else {
            self.counters.no_mapping += 1;
        }
        Err(DropReason::NatNoMapping)
    }

    /// The replacement for the address in an ICMP error's quote.
    pub(super) fn bare_of_quote(&mut self, end: End, packet: &Packet, quote: &Quote) -> Option<Inside> {
        match end {
            End::Source => {
                let host = self.layout.inside_of(packet, quote.destination);
                let public = self.bare.public_of(quote.protocol, quote.source, host, self.now_s)?;
                Some(self.public(public))
            }
            End::Destination => {
                self.bare.session((quote.protocol, quote.destination, quote.source), self.now_s)?.inside
            }
        }
    }

    fn refuse_bare(&mut self, refusal: BareRefusal) -> DropReason {
        match refusal {
            BareRefusal::PeerTaken => {
                self.counters.peer_taken += 1;
                DropReason::NatPeerTaken
            }
            BareRefusal::HostLimit => {
                self.counters.host_limit += 1;
                DropReason::NatHostLimit
            }
            BareRefusal::TableFull => {
                self.counters.table_full += 1;
                DropReason::NatTableFull
            }
        }
    }

    /// Shows the sessions of protocols without ports that are alive at `now_s`.
    pub(crate) fn visit_bare(&self, now_s: u32, mut show: impl FnMut(BareInfo)) {
        let now_s = now_s.max(self.now_s);
        for (key, session) in self.bare.all() {
            if let Some(info) = self.bare_info(key, session, now_s) {
                show(info);
            }
        }
        self.help.calls.all().filter_map(|(key, call)| self.call_info(key, call, now_s)).for_each(show);
    }

    /// Ends those that `which` admits; returns how many.
    pub(crate) fn end_bare(&mut self, why: EndedBy, which: impl Fn(&BareInfo) -> bool) -> u64 {
        let chosen: Vec<PublicKey> = self
            .bare
            .all()
            .filter(|(key, session)| {
                self.bare_info(*key, *session, self.now_s).is_some_and(|info| which(&info))
            })
            .map(|(key, _)| key)
            .collect();
        let calls: Vec<CallKey> = self
            .help
            .calls
            .all()
            .filter(|(key, call)| self.call_info(*key, *call, self.now_s).is_some_and(|info| which(&info)))
            .map(|(key, _)| key)
            .collect();
        let ended = chosen.iter().filter_map(|key| self.bare.remove(*key)).count()
            + calls.iter().filter_map(|key| self.help.calls.remove(*key)).count();
        let ended = ended as u64;
        self.count_ended(why, ended);
        ended
    }

    fn bare_info(&self, key: PublicKey, session: BareSession, now_s: u32) -> Option<BareInfo> {
        let remaining_s = session.expires_s.checked_sub(now_s)?;
        let (protocol, peer, public) = key;
        let inside = session.inside?;
        Some(BareInfo {
            protocol,
            inside: inside.address.into(),
            vrf: inside.vrf.into(),
            public: public.into(),
            peer: peer.into(),
            idle_s: self.bare_s.saturating_sub(remaining_s),
            remaining_s,
            packets_out: session.packets[0],
            packets_in: session.packets[1],
            call: None,
        })
    }

    fn call_info(&self, key: CallKey, call: Call, now_s: u32) -> Option<BareInfo> {
        let (peer, public, number) = key;
        let session =
            BareSession { inside: Some(call.inside), expires_s: call.expires_s, packets: call.packets };
        let info = self.bare_info((GRE, peer, public), session, now_s)?;
        Some(BareInfo { call: Some((call.number, number)), ..info })
    }

    /// All live sessions, for a successor.
    pub(crate) fn all_bare(&self) -> Vec<(PublicKey, BareSession)> {
        self.bare.all().filter(|(_, session)| session.expires_s >= self.now_s).collect()
    }

    /// Takes over a session of another shard, whose public addresses are in this VRF, if its own still exists there;
    /// returns whether it did.
    pub(crate) fn adopt_bare(&mut self, key: PublicKey, session: BareSession, vrf: u8) -> bool {
        let longest_s = self.now_s.saturating_add(self.bare_s);
        let session = BareSession { expires_s: session.expires_s.min(longest_s), ..session };
        let taken = self.layout.vrf == vrf && self.layout.is_public(key.2) && self.bare.adopt(key, session);
        self.counters.sessions_displaced += u64::from(!taken && session.inside.is_some());
        taken
    }
}

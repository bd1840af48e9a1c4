//! Helpers at NAT: rewrites the endpoints in messages of FTP, SIP and PPTP (see [`crate::helpers`]), and makes the
//! sessions that they announce.
//!
//! A session for an announced endpoint is like any other, but begun by its announcement: of TCP as if a SYN had come from
//! outside, so it lives for `tcp_transitory_s` until its host answers one. It is in the shard of its endpoint and counts
//! among its host's; limits hold. So nothing else needs to be remembered of it.
//!
//! IPv6 hosts have no helpers (RFC 6384 has one for FTP): their messages pass unchanged, and ask for what needs none, as
//! EPSV does.
//!
//! Labels have the packets cross: here they come one by one, in order, after all packets of the chunk have passed their
//! shards, and no other chunk is in any shard. What is kept of a control connection (`shard/help.rs`) is in its session's
//! shard.

use super::config::{NatProtocol, small};
use super::endpoint::{End, Inside};
use super::rewrite;
use super::shard::{Help, Helped, NatShard};
use super::stage::NatStage;
use crate::helpers::stream::Reading;
use crate::helpers::{EXPECTED_S, Helper, as_v4, expected_v4, ftp, payload, pptp, sip};
use crate::records::{place, seconds};
use crate::vrf::table_of;
use std::net::Ipv4Addr;
use std::ops::{DerefMut, Range};
use thalweg_base::{Chunk, Exclusion, Exclusive, Expected, NO_SHARD, Packet, PacketFlags};
use thalweg_wire::ip_protocol::{GRE, TCP, UDP};
use thalweg_wire::tcp::{ACK, SYN};

/// Expected connections of one chunk that are passed on to the firewall.
const EXPECTED_MAX: usize = 1024;

type Endpoint = (u32, u16);

/// The ends of a translated packet.
#[derive(Clone, Copy, Debug)]
struct Parties {
    /// The end that was translated.
    end: End,
    inside: Endpoint,
    public: Endpoint,
    remote: Endpoint,
    /// The place of the outside port.
    outside: usize,
    /// The VRF of the inside host.
    vrf: u8,
    /// The host has a public address of its own, and no session.
    is_alone: bool,
    now_s: u32,
    arrival_ns: u64,
}

impl Parties {
    /// A host of the inside host's VRF.
    fn host(&self, address: u32) -> Inside {
        Inside { vrf: self.vrf, address }
    }
}

fn is_for_helper(packet: &Packet) -> bool {
    packet.is_alive()
        && packet.crossing_shard != NO_SHARD
        && !packet.is_ipv6()
        && packet.flags.has(PacketFlags::TRANSLATED)
        && !packet.flags.has(PacketFlags::NAT_OUT | PacketFlags::NAT_IN)
}

fn expect(chunk: &mut Chunk, announced: impl IntoIterator<Item = Expected>, helped: &mut Helped) {
    for expected in announced {
        match chunk.expected.len() < EXPECTED_MAX {
            true => chunk.expected.push(expected),
            false => helped.unexpected += 1,
        }
    }
}

impl<E: Exclusion> NatStage<E> {
    /// Reads and rewrites the payloads of packets that concern helpers, after all groups have run.
    pub(super) fn help(&self, chunk: &mut Chunk) {
        let helpers = self.helpers();
        if helpers.is_empty() {
            return;
        }
        for i in 0..chunk.live_len() {
            let packet = &chunk.packets()[i];
            let concerned = if is_for_helper(packet) { helpers.concerning(packet) } else { None };
            let (Some(helper), shard) = (concerned, packet.shard) else { continue };
            let Some(parties) = self.parties(chunk, i) else { continue };
            let helped = match helper {
                Helper::Ftp => self.help_ftp(chunk, i, &parties),
                Helper::Sip => self.help_sip(chunk, i, &parties),
                Helper::Pptp => self.help_pptp(chunk, i, &parties),
            };
            if let Some(shard) = self.shards().get(usize::from(shard)) {
                shard.enter().count_helped(helped);
            }
        }
    }

    fn parties(&self, chunk: &mut Chunk, i: usize) -> Option<Parties> {
        let now_s = seconds(chunk.clock_ns);
        let (mut batch, _) = chunk.whole();
        let (packet, l3) = batch.packet_and_l3(i);
        let protocol = NatProtocol::from_ip(packet.protocol)?;
        let (source, destination) = rewrite::addresses(l3)?;
        let (source, destination) = ((source, packet.src_port), (destination, packet.dst_port));
        let shard = usize::from(packet.shard);
        let outside = shard / self.shards_each();
        let is_out = packet.flags.has(PacketFlags::NAT_OUT);
        let (end, own, remote) = match is_out {
            true => (End::Source, source, destination),
            false => (End::Destination, destination, source),
        };
        let layout = self.layout(outside);
        // What came in has been led to its host's VRF.
        let led_to = table_of(packet.next_hop).map_or(0, small);
        let vrf = if is_out { layout.vrf_of(packet.port_in) } else { led_to };
        // It is translated by now, so the session is found by the other end.
        let shard = self.shards().get(shard)?.enter();
        let ends = match is_out {
            true => shard.ends_of(protocol, own).map(|(ends, _)| ends),
            false => shard.ends_from(protocol, (Inside { vrf, address: own.0 }, own.1)),
        };
        let (inside, public, is_alone) = match ends {
            Some([inside, public]) => (inside, public, false),
            None => {
                let pairs = self.one_to_one();
                let pairs = pairs.as_deref()?;
                let public = Inside { vrf: layout.vrf, address: own.0 };
                match is_out {
                    true => ((pairs.inside_of(public)?.address, own.1), own, true),
                    false => (own, (pairs.public_of(Inside { vrf, ..public })?.address, own.1), true),
                }
            }
        };
        let arrival_ns = packet.arrival_ns;
        Some(Parties { end, inside, public, remote, outside, vrf, is_alone, now_s, arrival_ns })
    }

    /// The public endpoint of another port of the inside host, to which `remote` will send; `wanted` if it is free.
    fn public_of(
        &self,
        parties: &Parties,
        protocol: NatProtocol,
        port: u16,
        wanted: Option<u16>,
    ) -> Option<Endpoint> {
        if parties.is_alone {
            return Some((parties.public.0, port));
        }
        if protocol.number() == UDP && port == parties.inside.1 {
            return Some(parties.public);
        }
        let layout = self.layout(parties.outside);
        let host = parties.host(parties.inside.0);
        let shard = layout.session_shard(protocol, host, port);
        let number = parties.outside * self.shards_each() + usize::from(shard);
        let wanted = wanted.map(|port| (parties.public.0, port));
        let (inside, remote) = ((host, port), parties.remote.0);
        let time = (parties.now_s, parties.arrival_ns);
        let found = self.shards().get(number)?.enter().announce(protocol, inside, remote, wanted, time)?;
        // A message names one address: that of its own connection.
        (found.0 == parties.public.0).then_some(found)
    }

    fn help_ftp(&self, chunk: &mut Chunk, i: usize, parties: &Parties) -> Helped {
        let packet = &chunk.packets()[i];
        let shard = usize::from(packet.shard);
        let l3 = chunk.frame(i).get(usize::from(packet.l3_offset)..).unwrap_or_default();
        let mut helped = Helped::default();
        let Some((sequence, flags)) = payload::sequence_and_flags(packet, l3) else {
            return Helped { unread: 1, ..helped };
        };
        let range = payload::range(packet, l3);
        let bytes = range.clone().and_then(|range| l3.get(range)).unwrap_or_default().to_vec();
        let room = payload::LONGEST.saturating_sub(place(packet.ip_len));
        let key = (parties.public, parties.remote);
        let Some(cell) = self.shards().get(shard) else { return helped };
        let Some(mut control) = cell.enter().take_control(key, parties.now_s) else {
            return Helped { refused: 1, ..helped };
        };
        if flags & SYN != 0 {
            control.begin(parties.end, sequence, flags & ACK != 0);
        }
        let is_client = (parties.end == End::Source) == (parties.remote.1 == ftp::PORT);
        let (mut announced, mut grown) = (Vec::new(), 0);
        let torn = control.way(parties.end).read(sequence, &bytes, |line| {
            match ftp::read(is_client, line) {
                ftp::Found::Nothing => {}
                ftp::Found::Unreadable => helped.unread += 1,
                ftp::Found::Announces(found) => {
                    let text = self.answer_ftp(parties, &found, &mut announced);
                    let Some(text) = text else {
                        helped.refused += 1;
                        return Reading::Plain;
                    };
                    grown += text.len().saturating_sub(found.range.len());
                    if grown > room {
                        helped.unread += 1;
                    } else if text.as_bytes() != &line[found.range.clone()] {
                        helped.rewritten += 1;
                        return Reading::Replace(found.range, text);
                    }
                }
            }
            Reading::Plain
        });
        helped.unread += torn.iter().filter(|start| ftp::may_announce(is_client, start)).count() as u64;
        helped.unread += u64::from(range.is_none());
        let new = control.way(parties.end).payload(sequence, &bytes);
        {
            let (mut batch, _) = chunk.whole();
            let (packet, l3) = batch.packet_and_l3(i);
            let [mine, theirs] = control.ways(parties.end);
            payload::renumber(packet, l3, mine, theirs);
        }
        if let (Some(range), Some(new)) = (range, new) {
            payload::replace(chunk, i, &range, &new);
        }
        expect(chunk, announced, &mut helped);
        cell.enter().put_control(key, control);
        helped
    }

    /// The text that announces the endpoint to the other side; `None` if it is not announced. What the sender's side will
    /// get is added to `announced`.
    fn answer_ftp(
        &self,
        parties: &Parties,
        found: &ftp::Announced,
        announced: &mut Vec<Expected>,
    ) -> Option<String> {
        let Parties { end, inside, public, remote, .. } = *parties;
        let address = found.address.map(as_v4);
        if found.port < ftp::LOWEST_PORT || address == Some(None) {
            return None;
        }
        let (address, port) = (address.flatten(), found.port);
        if end == End::Destination {
            // Its sender is outside, and so is the endpoint: nothing changes.
            address.is_none_or(|address| address == remote.0).then_some(())?;
            announced.push(expected_v4(TCP, Some(inside.0), (remote.0, port), EXPECTED_S));
            return Some(found.with(remote.0.into(), port));
        }
        address.is_none_or(|address| address == inside.0 || address == public.0).then_some(())?;
        let (address, new) = self.public_of(parties, NatProtocol::Tcp, port, None)?;
        announced.push(expected_v4(TCP, Some(remote.0), (inside.0, port), EXPECTED_S));
        Some(found.with(address.into(), new))
    }

    fn help_pptp(&self, chunk: &mut Chunk, i: usize, parties: &Parties) -> Helped {
        let Parties { end, inside, public, remote, now_s, .. } = *parties;
        let packet = &chunk.packets()[i];
        let l3 = chunk.frame(i).get(usize::from(packet.l3_offset)..).unwrap_or_default();
        let Some(range) = payload::range(packet, l3) else {
            return Helped { unread: 1, ..Helped::default() };
        };
        let mut bytes = l3.get(range.clone()).unwrap_or_default().to_vec();
        let before = bytes.clone();
        let mut helped = Helped::default();
        let shard = self.layout(parties.outside).bare_shard(GRE, remote.0);
        let Some(cell) = self.shards().get(parties.outside * self.shards_each() + usize::from(shard)) else {
            return helped;
        };
        let is_whole = parties.is_alone || {
            let mut shard = cell.enter();
            pptp::each_call(&mut bytes, end == End::Source, &mut |kind, call| {
                let new = match end {
                    End::Source => shard.call_out(
                        (remote.0, parties.host(inside.0), call),
                        public.0,
                        pptp::may_begin(kind),
                        now_s,
                    ),
                    End::Destination => shard.call_in((remote.0, public.0, call)),
                };
                helped.refused += u64::from(new.is_none());
                new
            })
        };
        helped.unread += u64::from(!is_whole);
        if pptp::begins_call(&bytes) {
            let ways = [(remote.0, inside.0), (inside.0, remote.0)];
            let expected = ways.map(|(from, to)| expected_v4(GRE, Some(from), (to, 0), EXPECTED_S));
            expect(chunk, expected, &mut helped);
        }
        if bytes != before && payload::replace(chunk, i, &range, &bytes) {
            helped.rewritten += 1;
        }
        helped
    }

    fn help_sip(&self, chunk: &mut Chunk, i: usize, parties: &Parties) -> Helped {
        let packet = &chunk.packets()[i];
        let l3 = chunk.frame(i).get(usize::from(packet.l3_offset)..).unwrap_or_default();
        let Some(range) = payload::range(packet, l3) else {
            return Helped { unread: 1, ..Helped::default() };
        };
        let bytes = l3.get(range.clone()).unwrap_or_default().to_vec();
        let Some(message) = sip::read(&bytes) else {
            return Helped { unread: sip::is_message(&bytes).into(), ..Helped::default() };
        };
        let mut work = SipWork { edits: sip::Edits::default(), announced: Vec::new(), refused: 0 };
        for endpoint in &message.endpoints {
            self.move_endpoint(parties, &message, endpoint, &mut work);
        }
        if parties.end == End::Source {
            let own = |address: &&sip::Address| u32::from(address.address) == parties.inside.0;
            for address in message.origin.iter().chain(&message.address).filter(own) {
                work.edits.put(address.range.clone(), Ipv4Addr::from(parties.public.0).to_string());
            }
        }
        for media in message.media.iter().filter(|media| media.port != 0) {
            let Some(address) = message.address_of(media).map(u32::from) else { continue };
            match parties.end {
                End::Source if address == parties.inside.0 => {
                    self.move_media(parties, media, &bytes, &mut work)
                }
                End::Source => {}
                End::Destination => {
                    for port in media.ports() {
                        let expected = expected_v4(UDP, Some(parties.inside.0), (address, port), EXPECTED_S);
                        work.announced.push(expected);
                    }
                }
            }
        }
        let mut helped = Helped { refused: work.refused, ..Helped::default() };
        expect(chunk, work.announced, &mut helped);
        if let Some(new) = message.rewritten(&bytes, &mut work.edits) {
            match payload::replace(chunk, i, &range, &new) {
                true => helped.rewritten += 1,
                false => helped.unread += 1,
            }
        }
        helped
    }

    /// Replaces an endpoint of the inside host by its public one, or the other way round. If the message registers the
    /// host, the endpoint stays reachable for as long as that.
    fn move_endpoint(
        &self,
        parties: &Parties,
        message: &sip::Message,
        endpoint: &sip::Endpoint,
        work: &mut SipWork,
    ) {
        let (address, port) = (u32::from(endpoint.address), endpoint.port.unwrap_or(sip::PORT));
        let (new, inside_port) = match parties.end {
            End::Source if address == parties.inside.0 => {
                (self.public_of(parties, NatProtocol::Udp, port, None), port)
            }
            End::Destination if address == parties.public.0 => {
                let inside = self.inside_of(parties, port);
                (inside, inside.map_or(0, |inside| inside.1))
            }
            _ => return,
        };
        let Some((new, port)) = new else {
            work.refused += 1;
            return;
        };
        let host = Ipv4Addr::from(new);
        let text = match endpoint.port {
            None if port == sip::PORT => host.to_string(),
            _ => format!("{host}:{port}"),
        };
        work.edits.put(endpoint.range.clone(), text);
        if let Some(lifetime_s) = message.registers_s {
            let inside = (parties.inside.0, inside_port);
            if !parties.is_alone {
                self.keep(parties, inside, lifetime_s);
            }
            work.announced.push(expected_v4(UDP, Some(parties.remote.0), inside, lifetime_s));
        }
    }

    /// The inside endpoint of a public port of the same host.
    fn inside_of(&self, parties: &Parties, port: u16) -> Option<Endpoint> {
        if parties.is_alone || port == parties.public.1 {
            return Some((parties.inside.0, if parties.is_alone { port } else { parties.inside.1 }));
        }
        let shard = self.layout(parties.outside).port_shard(port);
        let number = parties.outside * self.shards_each() + usize::from(shard);
        let shard = self.shards().get(number)?.enter();
        let ([inside, _], vrf) = shard.ends_of(NatProtocol::Udp, (parties.public.0, port))?;
        (parties.host(inside.0) == Inside { vrf, address: parties.inside.0 }).then_some(inside)
    }

    fn keep(&self, parties: &Parties, inside: Endpoint, lifetime_s: u32) {
        let host = parties.host(inside.0);
        let shard = self.layout(parties.outside).session_shard(NatProtocol::Udp, host, inside.1);
        let number = parties.outside * self.shards_each() + usize::from(shard);
        if let Some(shard) = self.shards().get(number) {
            shard.enter().keep(NatProtocol::Udp, (host, inside.1), parties.now_s.saturating_add(lifetime_s));
        }
    }

    /// Gives a medium public ports: a pair if there is one (RFC 3550 section 11), else RTCP has its port in `a=rtcp`.
    fn move_media(&self, parties: &Parties, media: &sip::Media, bytes: &[u8], work: &mut SipWork) {
        let [port, rtcp_port] = media.ports();
        let rtp = self.public_of(parties, NatProtocol::Udp, port, None);
        let beside = rtp.map(|(_, port)| port.wrapping_add(1));
        let rtcp = rtp.and_then(|_| self.public_of(parties, NatProtocol::Udp, rtcp_port, beside));
        let (Some((address, rtp)), Some((_, rtcp))) = (rtp, rtcp) else {
            work.refused += 1;
            return;
        };
        let address = Ipv4Addr::from(address).to_string();
        work.edits.put(media.port_at.clone(), rtp.to_string());
        if let Some((at, _)) = &media.rtcp {
            work.edits.put(at.clone(), rtcp.to_string());
        } else if rtcp != rtp.wrapping_add(1)
            && bytes.get(..media.end).is_some_and(|text| text.ends_with(b"\n"))
        {
            let end: Range<usize> = media.end..media.end;
            work.edits.put(end, format!("a=rtcp:{rtcp}\r\n"));
        }
        let own = |address: &&sip::Address| u32::from(address.address) == parties.inside.0;
        for at in media.address.iter().chain(&media.rtcp_address).filter(own) {
            work.edits.put(at.range.clone(), address.clone());
        }
        for port in [port, rtcp_port] {
            work.announced.push(expected_v4(UDP, None, (parties.inside.0, port), EXPECTED_S));
        }
    }
}

/// What a message of SIP comes to.
struct SipWork {
    edits: sip::Edits,
    announced: Vec<Expected>,
    refused: u64,
}

impl<E: Exclusion> NatStage<E> {
    /// Gives what a predecessor's shards know of connections and calls to this stage's, which have the sessions by now.
    pub(super) fn inherit_help(&self, shards: &mut [impl DerefMut<Target = NatShard>], old: &Self) {
        let count = shards.len();
        for (number, before) in old.shards().iter().enumerate() {
            let before = before.enter();
            let (vrf, Help { controls, kept, calls }) = (before.layout.vrf, before.help().clone());
            for (key, control) in controls {
                let (public, port) = key.0;
                let number = match self.owner(vrf, public.into()) {
                    Some((layout, first)) => first + usize::from(layout.port_shard(port)),
                    None => number % count,
                };
                shards[number].put_control(key, control);
            }
            for (key, until_s) in kept {
                if let Some(shard) = shards.iter_mut().find(|shard| shard.has_inside(key)) {
                    shard.keep_key(key, until_s);
                }
            }
            for (key, call) in calls.all() {
                let (peer, public, _) = key;
                let number = self.number_of(vrf, public, |layout| layout.bare_shard(GRE, peer));
                shards[number].adopt_call(key, call, vrf);
            }
        }
    }
}

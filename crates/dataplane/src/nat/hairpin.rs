//! Hairpins: packets from one inside host to another through a public address (RFC 4787 REQ-9). They need two
//! shards, so they are translated after all other packets of their chunk.
//!
//! The destination is resolved first. If the public endpoint has no session, nothing is translated: on the router's
//! own address the packet is for a program of the router, which must see the real sender. If an inside host has the
//! endpoint, access lists judge the packet from the sender to that host before the sender gets a session; otherwise
//! the public address would bypass an access list that keeps a network away from a server.

use super::endpoint::End;
use super::nat64::is_number;
use super::one_to_one::OneToOne;
use super::rewrite;
use super::shard::NatShard;
use std::net::SocketAddrV4;
use thalweg_base::{NO_SHARD, Packet, PacketFlags};

/// Drops a hairpin that may not go from its sender to this inside endpoint; the packet is not translated yet.
pub type Judge<'a> = dyn FnMut(&mut Packet, &[u8], SocketAddrV4) + 'a;

/// Whether a packet goes from one inside host to another.
pub(super) fn is_hairpin(packet: &Packet) -> bool {
    packet.is_alive()
        && packet.crossing_shard != NO_SHARD
        && packet.flags.has(PacketFlags::NAT_OUT)
        && packet.flags.has(PacketFlags::NAT_IN)
}

/// Whether one of the hosts, which this packet goes from or to, has IPv6.
fn is_between_families(l3: &[u8], inside: SocketAddrV4) -> bool {
    let source = rewrite::addresses(l3).map_or(0, |(source, _)| source);
    is_number(source) || is_number(u32::from(*inside.ip()))
}

/// Calls a function with the shard of a number.
type WithShard<'s> = dyn FnMut(u16, &mut dyn FnMut(&mut NatShard)) + 's;

/// Translates both ends of a hairpin, those in `pairs` without a session. `with` gives access to a shard by its number.
pub(super) fn translate(
    packet: &mut Packet,
    l3: &mut [u8],
    now_ns: u64,
    pairs: Option<&OneToOne>,
    judge: &mut Judge<'_>,
    with: &mut WithShard<'_>,
) {
    let (sender, receiver) = (packet.shard, packet.crossing_shard);
    let (mut found, mut vrf) = (Ok(None), 0);
    with(receiver, &mut |shard| vrf = shard.layout.vrf);
    match pairs.and_then(|pairs| pairs.receiver(packet, l3, vrf)) {
        Some(inside) => found = Ok(inside),
        None => with(receiver, &mut |shard| found = shard.inside_of(packet, l3, now_ns)),
    }
    match found {
        Err(reason) => return packet.drop_for(reason),
        // Lists have judged what is IPv6 on its way in, or will on its way out.
        Ok(Some(inside)) if !is_between_families(l3, inside) => judge(packet, l3, inside),
        Ok(_) => {}
    }
    for (end, number) in [(End::Source, sender), (End::Destination, receiver)] {
        if !packet.is_alive() {
            return;
        }
        with(number, &mut |shard| vrf = shard.layout.vrf_at(end, packet));
        let alone = pairs.and_then(|pairs| pairs.translate((end, vrf), packet, l3, |_| true));
        with(number, &mut |shard| match (alone, end) {
            (Some(outcome), _) => {
                outcome.unwrap_or_else(|reason| packet.drop_for(reason));
                shard.count_one_to_one(end, packet, outcome);
            }
            (None, End::Source) => shard.translate_out(packet, l3, now_ns),
            (None, End::Destination) => shard.translate_in(packet, l3, now_ns),
        });
    }
    if packet.is_alive() {
        with(receiver, &mut |shard| shard.count_hairpin(packet));
    }
}

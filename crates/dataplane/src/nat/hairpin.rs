//! Hairpins: packets from one inside host to another by a public address (RFC 4787 REQ-9). They need two shards, so they
//! are translated once all others of their chunk have been.
//!
//! Whom the packet is for is found first. If nobody has the public endpoint, nothing is translated: on the router's
//! own address it is for a program of the router, which has to see who really asks. If an inside host has it, the
//! packet is judged by what it really is, from the sender to that host, before the sender gets a session for it; else
//! an access list that keeps a network away from a server would be passed by way of the public address.

use super::shard::NatShard;
use std::net::SocketAddrV4;
use thalweg_base::{NO_SHARD, Packet, PacketFlags};

/// Drops a hairpin that may not go from where it comes from to this inside endpoint; the packet is still as it came.
pub type Judge<'a> = dyn FnMut(&mut Packet, &[u8], SocketAddrV4) + 'a;

/// Whether a packet goes from one inside host to another.
pub(super) fn is_hairpin(packet: &Packet) -> bool {
    packet.is_alive()
        && packet.crossing_shard != NO_SHARD
        && packet.flags.has(PacketFlags::NAT_OUT)
        && packet.flags.has(PacketFlags::NAT_IN)
}

/// Calls something with the shard of a number.
type WithShard<'s> = dyn FnMut(u16, &mut dyn FnMut(&mut NatShard)) + 's;

/// Translates both ends of a hairpin. `with` gives access to a shard by its number.
pub(super) fn translate(
    packet: &mut Packet,
    l3: &mut [u8],
    now_ns: u64,
    judge: &mut Judge<'_>,
    with: &mut WithShard<'_>,
) {
    let (sender, receiver) = (packet.shard, packet.crossing_shard);
    let mut found = Ok(None);
    with(receiver, &mut |shard| found = shard.inside_of(packet, l3, now_ns));
    match found {
        Err(reason) => return packet.drop_for(reason),
        Ok(Some(inside)) => judge(packet, l3, inside),
        Ok(None) => {}
    }
    if packet.is_alive() {
        with(sender, &mut |shard| shard.translate_out(packet, l3, now_ns));
    }
    if packet.is_alive() {
        with(receiver, &mut |shard| {
            shard.translate_in(packet, l3, now_ns);
            if packet.is_alive() {
                shard.count_hairpin();
            }
        });
    }
}

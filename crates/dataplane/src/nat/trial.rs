//! Trying a packet: what NAT would do with it, without doing it.
//!
//! The packet goes through copies of its shards, by the very code that translates; the shards themselves are only read.
//! A copy costs what the shard's memory costs to copy (at the default size, 64 sets of a thousand sessions, 90 KB).

use super::layout::End;
use super::shard::{NatShard, seconds};
use super::stage::NatStage;
use thalweg_base::{NO_SHARD, Packet, PacketFlags};

/// What NAT would do with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// It would make a session.
    pub makes_session: bool,
    /// It goes from one inside host to another by a public address.
    pub is_hairpin: bool,
}

impl NatStage {
    /// Does to a labelled packet what [`NatStage::run_groups`] and [`NatStage::run_crossing`] would at `now_ns`, and
    /// leaves every session and counter as it is. `l3` is its IPv4 packet. `None` if the packet is not for NAT.
    pub fn try_packet(&self, packet: &mut Packet, l3: &mut [u8], now_ns: u64) -> Option<Trial> {
        let labelled = packet.flags.0 & (PacketFlags::NAT_OUT | PacketFlags::NAT_IN) != 0;
        if !labelled || !packet.is_alive() {
            return None;
        }
        let mut shard = self.copy_of(packet.shard)?;
        shard.advance(now_ns);
        let created = shard.counters().sessions_created;
        let outbound = packet.flags.has(PacketFlags::NAT_OUT);
        let end = if outbound { End::Source } else { End::Destination };
        let sought = shard.sought(end, packet, l3);
        shard.translate(end, packet, l3, sought);
        let makes_session = shard.counters().sessions_created > created;
        let is_hairpin = packet.crossing_shard != NO_SHARD && outbound;
        if is_hairpin && packet.is_alive() {
            let mut second = self.second_half(packet, shard, now_ns)?;
            second.translate_in(packet, l3, now_ns);
        }
        Some(Trial { makes_session, is_hairpin })
    }

    /// The shard of a hairpin's receiver: the first one as it is now, where both are in one.
    fn second_half(&self, packet: &Packet, first: NatShard, now_ns: u64) -> Option<NatShard> {
        if packet.crossing_shard == packet.shard {
            return Some(first);
        }
        let mut second = self.copy_of(packet.crossing_shard)?;
        second.advance_to(seconds(now_ns));
        Some(second)
    }
}

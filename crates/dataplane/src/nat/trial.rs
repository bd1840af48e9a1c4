//! Trying a packet: what NAT would do with it, without doing it.
//!
//! The packet goes through copies of its shards, by the very code that translates; the shards themselves are only read.
//! A copy costs what the shard's memory costs to copy (at the default size, 64 sets of a thousand sessions, 90 KB).

use super::hairpin;
use super::shard::NatShard;
use super::stage::NatStage;
use thalweg_base::{Exclusion, Packet, PacketFlags};

/// What NAT would do with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// It would make a session.
    pub makes_session: bool,
    /// It goes from one inside host to another by a public address.
    pub is_hairpin: bool,
}

impl<E: Exclusion> NatStage<E> {
    /// Does to a labeled packet what [`NatStage::run_groups`] and [`NatStage::run_crossing`] would at `now_ns`, and
    /// leaves every session and counter as it is. `l3` is its IPv4 packet. `None` if the packet is not for NAT.
    /// `judge` as there.
    pub fn try_packet(
        &self,
        packet: &mut Packet,
        l3: &mut [u8],
        now_ns: u64,
        judge: &mut hairpin::Judge<'_>,
    ) -> Option<Trial> {
        let labeled = packet.flags.0 & (PacketFlags::NAT_OUT | PacketFlags::NAT_IN) != 0;
        if !labeled || !packet.is_alive() {
            return None;
        }
        let outbound = packet.flags.has(PacketFlags::NAT_OUT);
        let is_hairpin = hairpin::is_hairpin(packet);
        let mut shards = vec![(packet.shard, self.copy_of(packet.shard)?)];
        if is_hairpin && packet.crossing_shard != packet.shard {
            shards.push((packet.crossing_shard, self.copy_of(packet.crossing_shard)?));
        }
        let created = |shards: &[(u16, NatShard)]| -> u64 {
            shards
                .iter()
                .map(|(_, shard)| shard.counters())
                .map(|c| c.sessions_created + c.bare_created)
                .sum()
        };
        let before = created(&shards);
        if is_hairpin {
            hairpin::translate(packet, l3, now_ns, judge, &mut |number, act| {
                shards.iter_mut().filter(|(n, _)| *n == number).for_each(|(_, shard)| act(shard));
            });
        } else if outbound {
            shards[0].1.translate_out(packet, l3, now_ns);
        } else {
            shards[0].1.translate_in(packet, l3, now_ns);
        }
        Some(Trial { makes_session: created(&shards) > before, is_hairpin })
    }
}

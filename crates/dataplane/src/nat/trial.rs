//! Trials: what NAT would do with a packet, without doing it.
//!
//! The packet goes through copies of its shards, in the same code that translates; the shards themselves are only
//! read. A copy costs as much as copying the shard's memory (at the default size, 64 shards of a thousand sessions,
//! 90 KB).

use super::endpoint::End;
use super::hairpin;
use super::shard::NatShard;
use super::stage::NatStage;
use thalweg_base::{Batch, Exclusion, PacketFlags};

/// What NAT would do with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// It would create a session.
    pub makes_session: bool,
    /// It goes from one inside host to another through a public address.
    pub is_hairpin: bool,
    /// It needs no session, because its host has a public address of its own. For a hairpin, one of its hosts.
    pub is_one_to_one: bool,
}

impl<E: Exclusion> NatStage<E> {
    /// Translates the labeled packet `i` as [`NatStage::run_groups`] and [`NatStage::run_crossing`] would at `now_ns`,
    /// but leaves every session and counter unchanged. `None` if the packet is not for NAT. `judge` is as in
    /// `run_crossing`.
    pub fn try_packet(
        &self,
        batch: &mut Batch<'_>,
        i: usize,
        now_ns: u64,
        judge: &mut hairpin::Judge<'_>,
    ) -> Option<Trial> {
        let packet = &batch.packets()[i];
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
        let counted = |shards: &[(u16, NatShard)]| {
            let all = shards.iter().map(|(_, shard)| shard.counters());
            all.fold((0, 0), |(created, alone), c| {
                (created + c.sessions_created + c.bare_created, alone + c.one_to_one_out + c.one_to_one_in)
            })
        };
        let before = counted(&shards);
        let mut ipv6 = None;
        if packet.is_ipv6() {
            let sender = &mut shards[0].1;
            sender.advance(now_ns);
            ipv6 = sender.make_ipv4(batch, i);
            if ipv6.is_none() {
                return Some(Trial::default());
            }
        }
        let one_to_one = self.one_to_one();
        let pairs = one_to_one.as_deref();
        let (packet, l3) = batch.packet_and_l3(i);
        if is_hairpin {
            hairpin::translate(packet, l3, now_ns, pairs, judge, &mut |number, act| {
                shards.iter_mut().filter(|(n, _)| *n == number).for_each(|(_, shard)| act(shard));
            });
        } else {
            let end = if outbound { End::Source } else { End::Destination };
            let outside = usize::from(packet.shard) / self.shards_each();
            let vrf = shards[0].1.layout.vrf_at(end, packet);
            let alone = pairs.and_then(|pairs| {
                pairs.translate((end, vrf), packet, l3, |of| end == End::Destination || of == outside)
            });
            let shard = &mut shards[0].1;
            match (alone, end) {
                (Some(outcome), _) => {
                    outcome.unwrap_or_else(|reason| packet.drop_for(reason));
                    shard.count_one_to_one(end, packet, outcome);
                }
                (None, End::Source) => shard.translate_out(packet, l3, now_ns),
                (None, End::Destination) => shard.translate_in(packet, l3, now_ns),
            }
        }
        if let Some(before) = ipv6 {
            shards[0].1.finish_ipv4(batch, i, &before);
        }
        if let Some((_, receiver)) = shards.last_mut() {
            receiver.make_ipv6(batch, i);
        }
        let after = counted(&shards);
        Some(Trial { makes_session: after.0 > before.0, is_hairpin, is_one_to_one: after.1 > before.1 })
    }
}

//! The firewall as a stage: all shards, and the walk over a chunk that prefetches their cache lines.

use super::config::{FirewallConfig, PacketState};
use super::event::FirewallEvent;
use super::expected::Expectations;
use super::flow::{Ends, FlowKey, in_vrf};
use super::rules::FirewallRules;
use super::shard::{FirewallCounters, Seen, StateInfo, StateShard, Turn};
use crate::acl::AclCounts;
use crate::helpers;
use crate::nat::group_shards;
use crate::records::{number, seconds};
use crate::standby::{Cells, Here, Shards};
use std::ops::Range;
use thalweg_base::{Chunk, Exclusion, Exclusive, Expected, OneThread, Packet, PacketFlags, Translated};

/// Packets whose cache lines are fetched together: first all frames and keys, then all states.
const BLOCK: usize = 16;
/// Records visited before other threads may enter the shard: 64 KiB.
const SLICE: usize = 1024;

/// All shards of one firewall.
#[derive(Debug)]
pub struct FirewallStage<E: Exclusion = OneThread> {
    shards: Box<[E::Cell<StateShard>]>,
    secret: u64,
    states_max: u32,
    expected: Expectations,
}

impl<E: Exclusion> FirewallStage<E> {
    /// Makes the shards, with all memory allocated: as many as the plan has.
    pub fn new(config: &FirewallConfig, shards: u16, secret: u64) -> Self {
        let shard = |_| Exclusive::new(StateShard::new(config, shards, secret));
        let expected = Expectations::default();
        Self {
            shards: (0..shards.max(1)).map(shard).collect(),
            secret,
            states_max: config.states_max,
            expected,
        }
    }

    /// Whether the table can stay if the configuration becomes this one.
    pub fn fits(&self, config: &FirewallConfig, shards: u16) -> bool {
        self.shards.len() == usize::from(shards) && self.states_max == config.states_max
    }

    /// Applies another configuration that [fits](Self::fits).
    pub fn set_behavior(&self, config: &FirewallConfig) {
        self.shards.iter().for_each(|shard| shard.enter().set_behavior(config));
    }

    /// Takes over the states of a stage with the same secret that sees no more packets. With as many shards as before
    /// each shard keeps its states; with others the flow hash decides, which is right for all connections that NAT
    /// does not translate. Returns how many found no room.
    pub fn migrate_from(&self, old: &Self) -> u64 {
        let mask = number(self.shards.len()) - 1;
        let mut lost = 0;
        self.expected.take_over(&old.expected);
        for (n, theirs) in old.shards.iter().enumerate() {
            let theirs = theirs.enter();
            for (m, mine) in self.shards.iter().enumerate() {
                let mut mine = mine.enter();
                let belongs = |key: &FlowKey| match old.shards.len() == self.shards.len() {
                    true => n == m,
                    false => key.flow_hash() & mask == number(m),
                };
                lost += mine.adopt(&theirs, belongs);
            }
            if let Some(mine) = self.shards.get(n).or(self.shards.first()) {
                mine.enter().succeed(&theirs.counters());
            }
        }
        lost
    }

    /// Decides about the packets of `groups` out of `group_count`: those that are about to leave, those that the host
    /// thread will send on, and those for the router itself, if rules are about them. See
    /// [`crate::nat::NatStage::run_groups`] for the groups.
    pub fn run_groups(
        &self,
        rules: &FirewallRules,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        counts: &AclCounts,
    ) {
        self.run_groups_and_name(rules, chunk, groups, group_count, counts, &mut |_, _, _| ());
    }

    /// The same, and tells `name` of packets whose NAT session should name their state from now on: the shard of both,
    /// and their records plus one. A session that names the state of its packet saves the search for it.
    pub fn run_groups_and_name(
        &self,
        rules: &FirewallRules,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        counts: &AclCounts,
        name: &mut dyn FnMut(u16, u32, u32),
    ) {
        let first = group_shards(groups.start, group_count, self.shards.len()).start;
        let end = group_shards(groups.end, group_count, self.shards.len()).start.max(first);
        let now_ns = chunk.clock_ns;
        let live = chunk.live_len();
        let everything = first == 0 && end == self.shards.len();
        let mut shards: Vec<_> = self.shards[first..end].iter().map(Exclusive::enter).collect();
        shards.iter_mut().for_each(|shard| shard.advance_to(seconds(now_ns)));
        let (mut batch, index, origins) = chunk.all_with_origins();
        let mut block = |places: &[u16]| {
            let mut seen = [None; BLOCK];
            for (seen, &place) in seen.iter_mut().zip(places) {
                let (packet, l3) = batch.packet_and_l3(usize::from(place));
                let shard = usize::from(packet.shard).wrapping_sub(first);
                if shard < shards.len() && !is_hairpin(packet) {
                    *seen = self.look(rules, packet, l3, origin_of(origins, place)).map(|seen| (shard, seen));
                }
                if let Some((shard, seen)) = seen {
                    shards[*shard].prefetch_index(seen);
                }
            }
            for (shard, seen) in seen.iter().flatten() {
                shards[*shard].prefetch_state(seen);
            }
            for (seen, &place) in seen.iter().zip(places) {
                if let Some((shard, seen)) = seen {
                    let (packet, l3) = batch.packet_and_l3(usize::from(place));
                    let turn = Turn { seen, rules, counts, expected: &self.expected, now_ns };
                    let to_name = shards[*shard].judge(packet, l3, &turn);
                    if let Some(state) = to_name {
                        name(packet.shard, seen.session(), state);
                    }
                }
            }
        };
        if everything || index.groups() != group_count {
            let mut places = [0; BLOCK];
            let mut all = (0..=u16::MAX).take(live).peekable();
            while all.peek().is_some() {
                let mut count = 0;
                for (place, at) in places.iter_mut().zip(all.by_ref().take(BLOCK)) {
                    (*place, count) = (at, count + 1);
                }
                block(&places[..count]);
            }
            return;
        }
        for group in groups {
            index.group(group).chunks(BLOCK).for_each(&mut block);
        }
    }

    /// Decides about hairpins, after all groups have run. Their state is in the lower of their two shards, so both
    /// directions find it.
    pub fn run_crossing(&self, rules: &FirewallRules, chunk: &mut Chunk, counts: &AclCounts) {
        let (now_ns, live) = (chunk.clock_ns, chunk.live_len());
        let (mut batch, _, origins) = chunk.all_with_origins();
        for place in (0..=u16::MAX).take(live) {
            if !is_hairpin(&batch.packets()[usize::from(place)]) {
                continue;
            }
            let (packet, l3) = batch.packet_and_l3(usize::from(place));
            let shard = packet.shard.min(packet.crossing_shard);
            let Some(shard) = self.shards.get(usize::from(shard)) else { continue };
            if let Some(seen) = self.look(rules, packet, l3, origin_of(origins, place)) {
                let mut shard = shard.enter();
                shard.advance_to(seconds(now_ns));
                let turn = Turn { seen: &seen, rules, counts, expected: &self.expected, now_ns };
                shard.judge(packet, l3, &turn);
            }
        }
        self.learn(rules, chunk);
    }

    /// Takes note of what packets have announced, as NAT says, and of what those announce that NAT does not translate.
    fn learn(&self, rules: &FirewallRules, chunk: &mut Chunk) {
        let (now_s, live, helpers) = (seconds(chunk.clock_ns), chunk.live_len(), rules.helpers());
        let mut found = std::mem::take(&mut chunk.expected);
        let (mut batch, ..) = chunk.all_with_origins();
        for place in (0..live).filter(|_| !helpers.is_empty()) {
            let packet = &batch.packets()[place];
            let is_read = packet.flags.has(PacketFlags::TRANSLATED) || !packet.is_leaving();
            let Some(helper) = helpers.concerning(packet).filter(|_| !is_read) else { continue };
            let (packet, l3) = batch.packet_and_l3(place);
            let Some(ends) = Ends::of(packet, l3, None, [0; 2]) else { continue };
            let (between, vrfs) = ((ends.source.0, ends.destination.0), rules.vrfs_of(packet));
            let (unread, refused) = helpers::announced(helper, packet, l3, between, &mut |expected| {
                found.push(within(expected, between.0, vrfs));
            });
            self.expected.count(unread, refused);
        }
        self.expected.add(&found, now_s);
    }

    /// What decides about a packet; `None` for one that is not the firewall's.
    #[inline(always)]
    fn look(
        &self,
        rules: &FirewallRules,
        packet: &Packet,
        l3: &[u8],
        origin: Option<&Translated>,
    ) -> Option<Seen> {
        let pair = match packet.is_leaving() {
            true => rules.pair_of(packet)?,
            false => rules.pair_to_router(packet, l3)?,
        };
        Seen::of(packet, l3, origin, (pair, rules.vrfs_of(packet)), self.secret)
    }

    /// Decides about a packet that a program of the router sends by `port_out`. `shard` is the one of its answers.
    pub fn judge_own(
        &self,
        rules: &FirewallRules,
        (packet, l3): (&mut Packet, &[u8]),
        shard: u16,
        counts: &AclCounts,
        now_ns: u64,
    ) {
        let pair = rules.pair_from_router(packet.port_out);
        let vrfs = rules.vrfs_of(packet);
        let seen = pair.and_then(|pair| Seen::of(packet, l3, None, (pair, vrfs), self.secret));
        if let (Some(seen), Some(shard)) = (seen, self.shards.get(usize::from(shard))) {
            let mut shard = shard.enter();
            shard.advance_to(seconds(now_ns));
            let turn = Turn { seen: &seen, rules, counts, expected: &self.expected, now_ns };
            shard.judge(packet, l3, &turn);
        }
    }

    /// Decides about the only packet of a chunk as [`Self::run_groups`] would; nothing is remembered. Returns the
    /// deciding rule, if no limit decided before, and what the packet is; `None` if it is not the firewall's.
    pub fn try_packet(
        &self,
        rules: &FirewallRules,
        chunk: &mut Chunk,
        now_ns: u64,
    ) -> Option<(Option<u16>, PacketState)> {
        let (mut batch, _, origins) = chunk.all_with_origins();
        if batch.is_empty() {
            return None;
        }
        let (packet, l3) = batch.packet_and_l3(0);
        let seen = self.look(rules, packet, l3, origin_of(origins, 0))?;
        let shard = if is_hairpin(packet) { packet.shard.min(packet.crossing_shard) } else { packet.shard };
        let shard = self.shards.get(usize::from(shard))?.enter();
        Some(shard.try_packet(packet, l3, &seen, (rules, &self.expected), now_ns))
    }

    /// Ends the states alive at `now_ns` that `which` names; returns how many. Locks one shard
    /// at a time, for a slice of it.
    pub fn end_states(&self, now_ns: u64, which: impl Fn(&StateInfo) -> bool) -> u64 {
        let mut ended = 0;
        for shard in &self.shards {
            let mut next = Some(0);
            while let Some(from) = next {
                let mut shard = shard.enter();
                shard.advance_to(seconds(now_ns));
                let (count, rest) = shard.end(from, SLICE, &which);
                (ended, next) = (ended + count, rest);
            }
        }
        ended
    }

    /// The states, to be copied to another router. Unless that has the same rules, these judge its copies again.
    pub fn copies(&self, rules: &FirewallRules, are_same: bool) -> impl Shards + '_ {
        let generation = if are_same { rules.generation() } else { !rules.generation() };
        let here = Here { generation, vrfs: rules.vrf_bits() };
        Cells::<E, StateShard> { shards: &self.shards, here }
    }

    /// How often a state was sought in the index, instead of named by a NAT session: a measure of the work, which may
    /// depend on how work is spread.
    pub fn look_ups(&self) -> u64 {
        self.shards.iter().map(|shard| shard.enter().look_ups()).sum()
    }

    /// Removes what has expired by `now_ns` in every shard.
    pub fn advance(&self, now_ns: u64) {
        self.shards.iter().for_each(|shard| shard.enter().advance_to(seconds(now_ns)));
    }

    /// Passes on what the log is to be told since the last call.
    pub fn hand_out_events(&self, take: &mut dyn FnMut(FirewallEvent)) {
        self.shards.iter().for_each(|shard| shard.enter().hand_out_events(take));
    }

    /// The counters of all shards together.
    pub fn counters(&self) -> FirewallCounters {
        let [announced, help_refused, help_unread] = self.expected.counts();
        let mut sum =
            FirewallCounters { announced, help_refused, help_unread, ..FirewallCounters::default() };
        self.shards.iter().for_each(|shard| sum.add(&shard.enter().counters()));
        sum
    }

    /// Appends the states alive at `now_ns` that `keep` admits, from one slice: shard and record `from`. Returns
    /// where the next slice begins, if there is one.
    pub fn states(
        &self,
        from: (usize, usize),
        now_ns: u64,
        keep: impl Fn(&StateInfo) -> bool,
        into: &mut Vec<StateInfo>,
    ) -> Option<(usize, usize)> {
        let (shard, at) = from;
        let rest = self.shards.get(shard)?.enter().visit(seconds(now_ns), at, SLICE, |state| {
            if keep(&state) {
                into.push(state);
            }
        });
        match rest {
            Some(at) => Some((shard, at)),
            None => (shard + 1 < self.shards.len()).then_some((shard + 1, 0)),
        }
    }
}

fn origin_of(origins: &[Translated], place: u16) -> Option<&Translated> {
    origins.get(usize::from(place))
}

/// Whether a packet crosses shards, as NAT labels it. ICMP errors do too.
#[inline(always)]
fn is_hairpin(packet: &Packet) -> bool {
    packet.flags.has(PacketFlags::NAT_OUT | PacketFlags::NAT_IN)
}

/// What a packet from `source` has announced, in the VRFs of the packet's ends.
fn within(expected: Expected, source: u128, [from, to]: [u16; 2]) -> Expected {
    let of = |address: u128| match expected.is_ipv6 {
        true => address,
        false => in_vrf(address, if address == source { from } else { to }),
    };
    Expected { to: (of(expected.to.0), expected.to.1), from: expected.from.map(of), ..expected }
}

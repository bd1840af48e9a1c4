//! Update groups against their definition, driven by chance or by any bytes: what tests and the fuzzer run.
//!
//! Real shards are changed by six neighbors; two groups with different views turn that into messages; members read
//! them at any speed, in any pieces, fall behind, come, go, move from one group to the other, and ask again. What
//! arrives is parsed as a neighbor would, and may never be malformed. When all comes to rest, each member must
//! hold exactly what the final RIB says it should by its group's view, as `may_have` defines it.

#![allow(clippy::unwrap_used)] // Its own routes and views are good.

mod definition;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_base::{IpPrefix, Prefix, XorShift64Star};
use thalweg_wire::bgp::{
    Attribute, Family, MessageKind, MpNlri, PeerFacts, PeerSide, SegmentKind, Update, Verdict, attribute,
    community, frame,
};

use super::*;
use crate::attrs::{AttrRef, Attrs, AttrsBuilder, Interner, NextHop, flag};
use crate::peer::{PeerId, PeerInfo, PeerKind, PeerTable, Role};
use crate::policy::{
    Action, Amount, Condition, Policy, PrefixEntry, PrefixSet, Rule, RuleLibrary, RuleSet,
    Verdict as Decision,
};
use crate::rib::{RibShard, ScanCursor, ShardConfig};
use crate::route::{Changes, RouteBatchBuilder, SHARDS, WITHDRAWN};
use definition::{held, may_have};

const PEERS: u16 = 6;
const MEMBERS: u16 = 4;
const PREFIXES: u32 = 30;
const DEPTH: usize = 4;

/// What a receiver holds.
type Table = BTreeMap<(IpPrefix, u32), Held>;

/// The compared part of a route: the origin AS distinguishes attribute sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    origin: u32,
    path_asns: usize,
    med: Option<u32>,
}

/// Where choices come from.
pub(super) trait Chance {
    /// A number below the limit.
    fn below(&mut self, limit: u32) -> u32;
}

impl Chance for XorShift64Star {
    fn below(&mut self, limit: u32) -> u32 {
        XorShift64Star::below(self, limit)
    }
}

/// Bytes as choices; zero when they are used up.
struct Recipe<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl Chance for Recipe<'_> {
    fn below(&mut self, limit: u32) -> u32 {
        let mut next = || u32::from(self.bytes.next().copied().unwrap_or(0));
        let number = if limit > 256 { next() << 8 | next() } else { next() };
        number % limit.max(1)
    }
}

/// Runs a recipe. Panics if a member does not end with what it should have.
pub fn fuzz_one(bytes: &[u8]) {
    let mut recipe = Recipe { bytes: bytes.iter() };
    let encoding = recipe.below(8);
    let views = [fuzz_view(&mut recipe, encoding), fuzz_view(&mut recipe, encoding)];
    let limits = if recipe.below(2) == 0 { tight() } else { ExportLimits::default() };
    let mut world = World::new(&views, limits, 1);
    while recipe.bytes.len() > 0 {
        if recipe.below(64) == 63 {
            world.replace_view(fuzz_view(&mut recipe, encoding));
        }
        world.step(&mut recipe);
    }
    world.settle(&mut recipe);
    world.check();
}

/// Views of one encoding, which a session agrees on once, so that members can move from one to the other.
fn fuzz_view(chance: &mut impl Chance, encoding: u32) -> ExportView {
    let kinds = [PeerKind::External, PeerKind::Internal, PeerKind::InternalClient, PeerKind::Confederation];
    // A session has one kind; what else differs is the policy and such.
    let kind = kinds[encoding as usize % kinds.len()];
    let mut view = ExportView { kind, ..external() };
    view.next_hop = [NextHopRule::Own, NextHopRule::Keep][chance.below(2) as usize];
    view.policy = Arc::new(match chance.below(4) {
        0 => Policy::reject_all(),
        1 => by_prefix(),
        _ => Policy::accept_all(),
    });
    if kind == PeerKind::External {
        view.role = [None, Some(Role::Peer), Some(Role::Provider)][chance.below(3) as usize];
        view.route_server = (chance.below(3) == 0).then_some(route_server());
    }
    if encoding >= 4 {
        view.codec.add_path_send = [true; 2];
        view.add_path_depth = [3; 2];
    }
    view
}

/// BestPathTo other networks.
pub(super) fn external() -> ExportView {
    ExportView {
        own_ipv4: Some(Ipv4Addr::new(192, 0, 2, 100)),
        own_ipv6: Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100)),
        ..ExportView::new(PeerKind::External, 65_000)
    }
}

pub(super) fn route_server() -> RouteServerRules {
    RouteServerRules { control_as: Some(65_000), ranks: 3 }
}

/// Everything overflows all the time: members lag, dumps are cut, queues are encoded early.
pub(super) fn tight() -> ExportLimits {
    ExportLimits { log_bytes_max: 3_000, pending_max: 7, dump_routes_max: 9, dump_bytes_max: 1 }
}

/// A policy that gives the first half of the prefixes a MED and rejects the last ones.
pub(super) fn by_prefix() -> Policy {
    let within = |v4: IpPrefix, v6: IpPrefix| {
        let entries = [v4, v6].map(PrefixEntry::or_longer);
        vec![Condition::Prefix(Arc::new(PrefixSet::new(entries)))]
    };
    let v4 = |number: u32, length| Prefix::new(0x0a00_0000 + (number << 8), length).unwrap().into();
    let v6 = |number: u128, length| Prefix::new(0x2001_0db8 << 96 | number << 80, length).unwrap().into();
    let first = Rule {
        conditions: within(v4(0, 20), v6(0, 44)),
        actions: vec![Action::Med(Amount::Set(7))],
        verdict: Some(Decision::Accept),
        ..Rule::default()
    };
    let last = Rule {
        conditions: within(v4(24, 21), v6(24, 45)),
        verdict: Some(Decision::Reject),
        ..Rule::default()
    };
    let set = RuleSet { rules: vec![first, last], default: Some(Decision::Accept) };
    let library = RuleLibrary { sets: [("by-prefix".into(), set)].into() };
    Policy::compile(&library, &["by-prefix".into()]).unwrap()
}

/// The place of a prefix of [`prefix_v4`] or [`prefix_v6`].
fn number_of(prefix: IpPrefix) -> u32 {
    match prefix {
        IpPrefix::V4(prefix) => prefix.address() >> 8 & 0xffff,
        IpPrefix::V6(prefix) => (prefix.address() >> 80) as u32 & 0xffff,
    }
}

/// What came to pass, so that tests can say that something did.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) struct Seen {
    pub(super) routes: usize,
    pub(super) lagged: u64,
}

#[cfg(test)]
impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.routes += other.routes;
        self.lagged += other.lagged;
    }
}

struct Receiver {
    group: usize,
    member: Member,
    stream: Vec<u8>,
    table: Table,
}

struct RunningDump {
    dump: Dump,
    shard: usize,
    family: Family,
    cursor: ScanCursor,
}

pub(super) struct World {
    pub(super) groups: Vec<UpdateGroup>,
    views: Vec<ExportView>,
    limits: ExportLimits,
    peers: PeerTable,
    shards: Vec<RibShard>,
    sets: Vec<AttrRef>,
    on_the_way: VecDeque<Changes>,
    receivers: Vec<Option<Receiver>>,
    dumps: Vec<RunningDump>,
    lagged: u64,
    /// Routes announced and withdrawn in messages that members received.
    pub(super) received: usize,
}

fn peer_table() -> PeerTable {
    let mut peers = PeerTable::default();
    let kinds = [
        PeerKind::External,
        PeerKind::External,
        PeerKind::Internal,
        PeerKind::InternalClient,
        PeerKind::External,
        PeerKind::Confederation,
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        peers.insert(Arc::new(PeerInfo {
            id: PeerId(number as u16),
            name: format!("peer{number}").into(),
            address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1 + number as u8)),
            local_address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)),
            remote_as: 64_600 + number as u32,
            local_as: 65_000,
            kind,
            router_id: Ipv4Addr::new(10, 0, 0, 1 + number as u8),
            role: None,
            route_server_client: false,
        }));
    }
    peers
}

/// Sets with every property that export looks at. The origin AS is the number of the set.
fn attribute_sets() -> Vec<AttrRef> {
    let (interner, mut builder) = (Interner::new(1), AttrsBuilder::default());
    let mut rng = XorShift64Star::new(9);
    (0..40u32)
        .map(|number| {
            builder.clear();
            builder.next_hop = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
            if number % 3 > 0 {
                // Some are members' addresses, from any announcer.
                let last = if number % 2 == 0 { 50 } else { 1 + number as u8 % 6 };
                builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, last));
            }
            builder.prepend(70_000 + number, 1 + rng.below(3) as usize, SegmentKind::Sequence).unwrap();
            let mut communities = vec![number];
            match rng.below(10) {
                0 => communities.push(community::NO_EXPORT),
                1 => communities.push(community::NO_ADVERTISE),
                2 => communities.push(community::NO_EXPORT_SUBCONFED),
                // Not to AS 64601; only to 64600; to nobody; only to 64603.
                3 => communities.push(64_601),
                4 => communities.push(65_000 << 16 | 64_600),
                5 => communities.push(65_000),
                6 => {
                    let transitive = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;
                    builder.set(transitive, attribute::ONLY_TO_CUSTOMER, &[0, 0, 1, 1]).unwrap();
                }
                7 => builder.set_large_communities(&[[65_000, 1, 64_603]]).unwrap(),
                // Twice to 64601, and once and thrice to 64602, which is thrice.
                8 => builder
                    .set_large_communities(&[
                        [65_000, 101, 64_602],
                        [65_000, 102, 64_601],
                        [65_000, 103, 64_602],
                    ])
                    .unwrap(),
                _ => {}
            }
            // Nearly too long for a message, and too long for all but extended ones.
            match number {
                30..32 => communities.extend(0x0100_0000..0x0100_0000 + 700),
                36..38 => communities.extend(0x0100_0000..0x0100_0000 + 1_100),
                _ => {}
            }
            builder.set_communities(&communities).unwrap();
            interner.intern(&mut builder)
        })
        .collect()
}

fn prefix_v4(number: u32) -> Prefix<u32> {
    Prefix::new(0x0a00_0000 + (number << 8), 24).unwrap()
}

fn prefix_v6(number: u32) -> Prefix<u128> {
    Prefix::new(0x2001_0db8 << 96 | u128::from(number) << 80, 48).unwrap()
}

impl World {
    pub(super) fn new(views: &[ExportView], limits: ExportLimits, seed: u64) -> Self {
        let peers = peer_table();
        let config = |shard| ShardConfig { shard, seed, depth: DEPTH, ..ShardConfig::default() };
        let representative = peers.get(PeerId(0)).unwrap().clone();
        Self {
            groups: views
                .iter()
                .map(|view| UpdateGroup::new(Arc::new(view.clone()), representative.clone(), limits))
                .collect(),
            views: views.to_vec(),
            limits,
            peers,
            shards: (0..SHARDS).map(|shard| RibShard::new(config(shard))).collect(),
            sets: attribute_sets(),
            on_the_way: VecDeque::new(),
            receivers: (0..MEMBERS).map(|_| None).collect(),
            dumps: Vec::new(),
            lagged: 0,
            received: 0,
        }
    }

    pub(super) fn step(&mut self, rng: &mut impl Chance) {
        match rng.below(22) {
            0..8 => self.change(rng),
            8..11 => {
                for _ in 0..rng.below(12) {
                    self.deliver();
                }
            }
            11 => {
                self.groups.iter_mut().for_each(|group| _ = group.flush());
            }
            12..15 => {
                let who = rng.below(u32::from(MEMBERS)) as usize;
                self.read(who, 1 + rng.below(300) as usize);
            }
            15..17 => self.run_dumps(1 + rng.below(20) as usize),
            17 => {
                let who = rng.below(u32::from(MEMBERS)) as u16;
                let group = rng.below(self.groups.len() as u32) as usize;
                self.join_or_leave(who, group, rng.below(3) == 0);
            }
            18 => self.catch_up(),
            19 => self.refresh(rng),
            _ => {
                let who = rng.below(u32::from(MEMBERS)) as usize;
                self.move_member(who, rng.below(self.groups.len() as u32) as usize);
            }
        }
        self.keep_tombstones();
        for group in &self.groups {
            let counters = group.counters().log;
            assert!(counters.bytes_held <= self.limits.log_bytes_max, "{counters:?}");
        }
    }

    /// One neighbor announces and withdraws a few routes.
    fn change(&mut self, rng: &mut impl Chance) {
        let mut builder = RouteBatchBuilder::default();
        let peer = PeerId(rng.below(u32::from(PEERS)) as u16);
        for _ in 0..1 + rng.below(5) {
            let (number, withdrawn) = (rng.below(PREFIXES), rng.below(4) == 0);
            let first = rng.below(self.sets.len() as u32) as usize;
            let fits = |set: &&AttrRef| matches!(set.next_hop(), NextHop::V4(_)) == (number % 3 > 0);
            let set = self.sets.iter().cycle().skip(first).find(fits).unwrap().clone();
            let index = if withdrawn { WITHDRAWN } else { builder.push_attrs(set) };
            match number % 3 {
                0 => builder.push_v6(prefix_v6(number), 0, index),
                _ => builder.push_v4(prefix_v4(number), 0, index),
            }
        }
        self.apply(peer, builder);
    }

    fn apply(&mut self, peer: PeerId, mut builder: RouteBatchBuilder) {
        let batch = builder.finish(peer, 0);
        for (number, shard) in self.shards.iter_mut().enumerate() {
            let mut changes = Changes { shard: number, ..Changes::default() };
            shard.apply(&batch, &self.peers, &mut changes);
            if !changes.is_empty() {
                self.on_the_way.push_back(changes);
            }
        }
    }

    /// One neighbor announces many prefixes with one attribute set; they reach the groups and their logs.
    #[cfg(test)]
    pub(super) fn announce_many(&mut self, peer: u16, count: u32) {
        let plain =
            |set: &&AttrRef| matches!(set.next_hop(), NextHop::V4(_)) && set.communities().count() == 1;
        let set = self.sets.iter().find(plain).unwrap().clone();
        self.announce(peer, Family::Ipv4, 0..count, &set);
    }

    /// One neighbor announces prefixes, which reach the groups and their logs.
    #[cfg(test)]
    pub(super) fn announce(
        &mut self,
        peer: u16,
        family: Family,
        numbers: std::ops::Range<u32>,
        set: &AttrRef,
    ) {
        let mut builder = RouteBatchBuilder::default();
        let index = builder.push_attrs(set.clone());
        for number in numbers {
            match family {
                Family::Ipv4 => builder.push_v4(prefix_v4(number), 0, index),
                Family::Ipv6 => builder.push_v6(prefix_v6(number), 0, index),
            }
        }
        self.apply(PeerId(peer), builder);
        while !self.on_the_way.is_empty() {
            self.deliver();
        }
        self.groups.iter_mut().for_each(|group| _ = group.flush());
    }

    /// A set of this origin AS, with this many communities.
    #[cfg(test)]
    pub(super) fn set(origin: u32, communities: u32) -> AttrRef {
        let mut builder = AttrsBuilder::default();
        builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 50));
        builder.prepend(origin, 1, SegmentKind::Sequence).unwrap();
        builder.set_communities(&(0x0100_0000..0x0100_0000 + communities).collect::<Vec<_>>()).unwrap();
        Interner::new(1).intern(&mut builder)
    }

    /// Members 0 and 1 come and wait for the same dump. The first reads all of it, the other nothing; then that one
    /// reads too. The most bytes that were held for them, and what the slow one needs.
    #[cfg(test)]
    pub(super) fn dump_past_a_slow_reader(&mut self) -> (usize, Option<DumpKind>) {
        let mut members: Vec<Member> =
            (0..2).map(|who| self.groups[0].join(PeerId(who), 64_600 + u32::from(who))).collect();
        let dump = self.groups[0].dump(DumpKind::Initial, &mut members.iter_mut().collect::<Vec<_>>());
        let log = dump.log().clone();
        self.start(dump);
        for (who, member) in members.into_iter().enumerate() {
            let receiver = Receiver { group: 0, member, stream: Vec::new(), table: Table::new() };
            self.receivers[who] = Some(receiver);
        }
        for _ in 0..100_000 {
            self.run_dumps(1);
            self.read(0, 10_000);
            if self.dumps.is_empty() {
                break;
            }
        }
        while self.receivers[0].as_ref().is_some_and(|each| each.member.state() != MemberState::UpToDate) {
            self.read(0, 10_000);
        }
        self.read(1, 1);
        let needs = self.receivers[1].as_ref().and_then(|each| each.member.needs());
        (log.counters().bytes_held_max, needs)
    }

    fn deliver(&mut self) {
        if let Some(changes) = self.on_the_way.pop_front() {
            self.groups.iter_mut().for_each(|group| group.handle_changes(&changes, &self.peers));
        }
    }

    #[cfg(test)]
    pub(super) fn join_all(&mut self) {
        for who in 0..MEMBERS {
            self.join_or_leave(who, 0, false);
        }
        self.run_dumps(100);
    }

    fn join_or_leave(&mut self, who: u16, to: usize, leave: bool) {
        let peer = PeerId(who);
        match (&self.receivers[usize::from(who)], leave) {
            (Some(receiver), true) => {
                self.groups[receiver.group].leave(peer);
                self.receivers[usize::from(who)] = None;
            }
            (None, false) => {
                let mut member = self.groups[to].join(peer, self.peers.get(peer).unwrap().remote_as);
                let dump = self.groups[to].dump(DumpKind::Initial, &mut [&mut member]);
                self.start(dump);
                let receiver = Receiver { group: to, member, stream: Vec::new(), table: Table::new() };
                self.receivers[usize::from(who)] = Some(receiver);
            }
            _ => {}
        }
    }

    /// A member goes to another group, its session goes on.
    pub(super) fn move_member(&mut self, who: usize, to: usize) {
        let Some(receiver) = &mut self.receivers[who] else { return };
        let from = receiver.group;
        if from == to {
            return;
        }
        let peer = receiver.member.peer();
        let left = self.groups[from].hand_over(&mut receiver.member, &[]);
        receiver.member = self.groups[to].join_from(peer, self.peers.get(peer).unwrap().remote_as, left);
        receiver.group = to;
        self.groups[from].leave(peer);
    }

    fn start(&mut self, dump: Dump) {
        self.dumps.push(RunningDump { dump, shard: 0, family: Family::Ipv4, cursor: ScanCursor::START });
    }

    fn refresh(&mut self, rng: &mut impl Chance) {
        let family = Family::ALL[rng.below(2) as usize];
        let kind = DumpKind::Refresh { family, enhanced: rng.below(2) == 0 };
        let idle =
            |receiver: &&mut Receiver| !receiver.member.has_dump() && receiver.member.needs().is_none();
        let Some(receiver) = self.receivers.iter_mut().flatten().find(idle) else { return };
        let group = receiver.group;
        let dump = self.groups[group].dump(kind, &mut [&mut receiver.member]);
        self.start(dump);
    }

    /// Members that fell behind get a dump, those that need the same one together.
    fn catch_up(&mut self) {
        let needs = |each: &Receiver| each.member.needs().map(|kind| (each.group, kind));
        let Some((group, kind)) = self.receivers.iter().flatten().find_map(needs) else { return };
        self.lagged += 1;
        let alike = |receiver: &&mut Receiver| needs(receiver) == Some((group, kind.clone()));
        let mut members: Vec<&mut Member> =
            self.receivers.iter_mut().flatten().filter(alike).map(|receiver| &mut receiver.member).collect();
        let dump = self.groups[group].dump(kind.clone(), &mut members);
        self.start(dump);
    }

    fn run_dumps(&mut self, budget: usize) {
        for running in &mut self.dumps {
            for _ in 0..budget {
                match running.dump.poll_block() {
                    DumpProgress::NeedsRoutes => running.scan(&self.shards, &self.peers),
                    DumpProgress::Encoded => {}
                    DumpProgress::WaitsForReaders | DumpProgress::Done => break,
                }
            }
        }
        self.dumps.retain_mut(|running| running.dump.poll_block() != DumpProgress::Done);
    }

    /// Shards keep what catching up needs.
    fn keep_tombstones(&mut self) {
        let mut floor: Option<Versions> = None;
        for since in self.groups.iter().filter_map(|group| group.log().floor()) {
            floor = Some(floor.map_or(since, |floor| earliest(&floor, &since)));
        }
        for since in self.dumps.iter().filter_map(|running| running.dump.kind().since()) {
            floor = Some(floor.map_or(*since, |floor| earliest(&floor, &since)));
        }
        for family in Family::ALL {
            for (number, shard) in self.shards.iter_mut().enumerate() {
                shard.set_tombstone_floor(family, floor.map(|floor| floor[family.index()][number]));
            }
        }
    }

    /// A new group takes the place and the members of the first one: how a router replaces a policy.
    pub(super) fn replace_view(&mut self, view: ExportView) {
        let to = self.groups.len();
        let representative = self.peers.get(PeerId(0)).unwrap().clone();
        self.groups.push(UpdateGroup::new(Arc::new(view.clone()), representative, self.limits));
        self.views.push(view);
        for who in 0..usize::from(MEMBERS) {
            if self.receivers[who].as_ref().is_some_and(|receiver| receiver.group == 0) {
                self.move_member(who, to);
            }
        }
        self.groups.swap_remove(0);
        self.views.swap_remove(0);
        for receiver in self.receivers.iter_mut().flatten().filter(|receiver| receiver.group == to) {
            receiver.group = 0;
        }
    }

    /// A member's socket takes some bytes.
    fn read(&mut self, who: usize, bytes: usize) {
        let Some(receiver) = &mut self.receivers[who] else { return };
        receiver.member.gather(bytes * 2);
        let mut taken = Vec::new();
        receiver.member.slices().for_each(|slice| taken.extend_from_slice(&slice));
        taken.truncate(bytes);
        receiver.member.advance(taken.len());
        receiver.stream.extend_from_slice(&taken);
        self.received += receiver.decode(&self.views[receiver.group]);
        let left = receiver.stream.len();
        assert_eq!(left > 0, receiver.member.inside_message(), "{left} bytes of a message are there");
    }

    /// Everything comes to rest.
    pub(super) fn settle(&mut self, rng: &mut impl Chance) {
        while !self.on_the_way.is_empty() {
            self.deliver();
        }
        self.groups.iter_mut().for_each(|group| _ = group.flush());
        for _ in 0..10_000 {
            for who in 0..usize::from(MEMBERS) {
                self.read(who, 500 + rng.below(100_000) as usize);
            }
            self.run_dumps(20);
            self.catch_up();
            self.keep_tombstones();
            let is_done = |receiver: &Receiver| receiver.member.state() == MemberState::UpToDate;
            if self.dumps.is_empty() && self.receivers.iter().flatten().all(is_done) {
                return;
            }
        }
        panic!("members do not come to rest");
    }

    /// What members hold is what they should.
    pub(super) fn check(&self) -> Seen {
        let mut seen = Seen { lagged: self.lagged, ..Seen::default() };
        for receiver in self.receivers.iter().flatten() {
            let peer = receiver.member.peer();
            let expected = self.expected(&self.views[receiver.group], peer);
            assert_eq!(receiver.table, expected, "{peer}");
            seen.routes += expected.len();
        }
        seen
    }

    fn expected(&self, view: &ExportView, member: PeerId) -> Table {
        let mut table = Table::new();
        let mut add = |family: Family, prefix: IpPrefix, paths: Vec<Chosen>| {
            let add_path = view.add_path(family);
            let may = |path: &&Chosen| may_have(view, &self.peers, family, prefix, path, member);
            let ranks = paths.iter().take(view.depth(family)).filter(may);
            for path in ranks.take(if add_path { usize::MAX } else { 1 }) {
                let path_id = if add_path { u32::from(path.local_id) } else { 0 };
                let asn = self.peers.get(member).unwrap().remote_as;
                table.insert((prefix, path_id), held(view, prefix, &path.attrs, asn));
            }
        };
        for shard in &self.shards {
            shard.scan::<u32>(&mut ScanCursor::START.clone(), usize::MAX, &mut |route| {
                let paths = route.ranked().map(|path| path.chosen()).collect();
                add(Family::Ipv4, route.prefix.into(), paths);
            });
            shard.scan::<u128>(&mut ScanCursor::START.clone(), usize::MAX, &mut |route| {
                let paths = route.ranked().map(|path| path.chosen()).collect();
                add(Family::Ipv6, route.prefix.into(), paths);
            });
        }
        table
    }
}

impl RunningDump {
    fn scan(&mut self, shards: &[RibShard], peers: &PeerTable) {
        let (dump, shard) = (&mut self.dump, self.shard);
        let done = match self.family {
            Family::Ipv4 => shards[shard].scan::<u32>(&mut self.cursor, 2, &mut |route| {
                let paths: Vec<_> = route.ranked().map(|path| path.chosen()).collect();
                dump.handle_route(shard, route.prefix, route.version, &paths, peers);
            }),
            Family::Ipv6 => shards[shard].scan::<u128>(&mut self.cursor, 2, &mut |route| {
                let paths: Vec<_> = route.ranked().map(|path| path.chosen()).collect();
                dump.handle_route(shard, route.prefix, route.version, &paths, peers);
            }),
        };
        if !done {
            return;
        }
        self.cursor = ScanCursor::START;
        self.shard += 1;
        match (self.shard < SHARDS, self.family) {
            (true, _) => {}
            (false, Family::Ipv4) => (self.shard, self.family) = (0, Family::Ipv6),
            (false, Family::Ipv6) => {
                self.shard = 0;
                self.dump.finish_scan();
            }
        }
    }
}

impl Receiver {
    /// How many routes the messages that are there announced and withdrew.
    fn decode(&mut self, view: &ExportView) -> usize {
        let mut routes = 0;
        let side = match view.kind {
            PeerKind::External => PeerSide::External,
            PeerKind::Confederation => PeerSide::Confederation,
            _ => PeerSide::Internal,
        };
        let facts = PeerFacts { side, in_confederation: true, ..PeerFacts::default() };
        let codec = thalweg_wire::bgp::Codec { add_path_receive: view.codec.add_path_send, ..view.codec };
        let stream = std::mem::take(&mut self.stream);
        let mut rest = &stream[..];
        while let Some(message) = frame(rest, view.message_length_max()).expect("a header") {
            if message.kind == MessageKind::Update {
                let update = Update::parse(message.body, &codec, &facts).expect("an update");
                assert_eq!(update.verdict, Verdict::Good);
                routes += self.apply(&update);
            }
            rest = &rest[message.length..];
        }
        self.stream = rest.to_vec();
        routes
    }

    fn apply(&mut self, update: &Update<'_>) -> usize {
        let withdrawn = update.withdrawn.iter().map(|(id, prefix)| (prefix.into(), id));
        let mut gone: Vec<(IpPrefix, u32)> = withdrawn.collect();
        match update.mp_unreach {
            Some(MpNlri::Ipv4(routes)) => gone.extend(routes.iter().map(|(id, prefix)| (prefix.into(), id))),
            Some(MpNlri::Ipv6(routes)) => gone.extend(routes.iter().map(|(id, prefix)| (prefix.into(), id))),
            None => {}
        }
        let gone_count = gone.len();
        for key in gone {
            self.table.remove(&key);
        }
        let mut there: Vec<(IpPrefix, u32)> =
            update.reach_v4.iter().map(|(id, prefix)| (prefix.into(), id)).collect();
        match update.mp_reach.map(|reach| reach.routes) {
            Some(MpNlri::Ipv4(routes)) => there.extend(routes.iter().map(|(id, prefix)| (prefix.into(), id))),
            Some(MpNlri::Ipv6(routes)) => there.extend(routes.iter().map(|(id, prefix)| (prefix.into(), id))),
            None => {}
        }
        let routes = gone_count + there.len();
        if there.is_empty() {
            return routes;
        }
        let mut scratch = Vec::new();
        let path = update.as_path(&mut scratch);
        let origin = path.last_chunk::<4>().map_or(0, |last| u32::from_be_bytes(*last));
        let path_asns = crate::attrs::AsPath::new(path).segments().map(|each| each.asns().len()).sum();
        let med = update.attributes().find(|each| each.code == attribute::MED);
        let med = med.and_then(|each| each.value.first_chunk::<4>().copied()).map(u32::from_be_bytes);
        for key in there {
            self.table.insert(key, Held { origin, path_asns, med });
        }
        let codes: Vec<u8> = update.attributes().map(|each: Attribute<'_>| each.code).collect();
        assert!(codes.iter().all(|code| codes.iter().filter(|each| *each == code).count() == 1), "{codes:?}");
        routes
    }
}

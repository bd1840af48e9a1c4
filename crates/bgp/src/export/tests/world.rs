//! Shards, a group, members with their receiving ends, and chance.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_base::{IpPrefix, Prefix, XorShift64Star};
use thalweg_wire::bgp::{
    Attribute, Family, MessageKind, MpNlri, PeerFacts, PeerSide, SegmentKind, Update, Verdict, attribute,
    community, frame,
};

use super::super::*;
use crate::attrs::{AttrRef, Attrs, AttrsBuilder, Interner, NextHop, flag};
use crate::peer::{PeerId, PeerInfo, PeerKind, PeerTable, Role};
use crate::policy::Policy;
use crate::rib::{RibShard, ScanCursor, ShardConfig};
use crate::route::{Changes, RouteBatchBuilder, SHARDS, WITHDRAWN};

const PEERS: u16 = 6;
const MEMBERS: u16 = 4;
const PREFIXES: u32 = 30;
const DEPTH: usize = 4;

/// What a receiver holds: the origin AS of each route, which tells attribute sets apart.
type Table = BTreeMap<(IpPrefix, u32), u32>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) routes: usize,
    pub(super) lagged: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.routes += other.routes;
        self.lagged += other.lagged;
    }
}

struct Receiver {
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

struct Replacing {
    shard: usize,
    family: Family,
    cursor: ScanCursor,
}

pub(super) struct World {
    pub(super) group: UpdateGroup,
    view: ExportView,
    limits: ExportLimits,
    peers: PeerTable,
    shards: Vec<RibShard>,
    sets: Vec<AttrRef>,
    on_the_way: VecDeque<Changes>,
    receivers: Vec<Option<Receiver>>,
    dumps: Vec<RunningDump>,
    replacing: Option<Replacing>,
    lagged: u64,
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
                builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 50));
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
    pub(super) fn new(view: ExportView, limits: ExportLimits, seed: u64) -> Self {
        let peers = peer_table();
        let config = |shard| ShardConfig { shard, seed, depth: DEPTH, ..ShardConfig::default() };
        let representative = peers.get(PeerId(0)).unwrap().clone();
        Self {
            group: UpdateGroup::new(Arc::new(view.clone()), representative, limits),
            view,
            limits,
            peers,
            shards: (0..SHARDS).map(|shard| RibShard::new(config(shard))).collect(),
            sets: attribute_sets(),
            on_the_way: VecDeque::new(),
            receivers: (0..MEMBERS).map(|_| None).collect(),
            dumps: Vec::new(),
            replacing: None,
            lagged: 0,
        }
    }

    pub(super) fn step(&mut self, rng: &mut XorShift64Star) {
        match rng.below(20) {
            0..8 => self.change(rng),
            8..11 => {
                for _ in 0..rng.below(12) {
                    self.deliver();
                }
            }
            11 => {
                self.group.flush();
            }
            12..15 => {
                let who = rng.below(u32::from(MEMBERS)) as usize;
                self.read(who, 1 + rng.below(300) as usize);
            }
            15..17 => self.run_dumps(1 + rng.below(20) as usize),
            17 => {
                let who = rng.below(u32::from(MEMBERS)) as u16;
                self.join_or_leave(who, rng.below(3) == 0);
            }
            18 => self.catch_up(),
            _ => self.refresh(rng),
        }
        self.keep_tombstones();
        self.reevaluate(3);
        let counters = self.group.counters().log;
        assert!(counters.bytes_held <= self.limits.log_bytes_max, "{counters:?}");
    }

    /// One neighbour announces and withdraws a few routes.
    fn change(&mut self, rng: &mut XorShift64Star) {
        let mut builder = RouteBatchBuilder::default();
        let peer = PeerId(rng.below(u32::from(PEERS)) as u16);
        for _ in 0..1 + rng.below(5) {
            let (number, withdrawn) = (rng.below(PREFIXES), rng.below(4) == 0);
            let set = loop {
                let set = &self.sets[rng.below(self.sets.len() as u32) as usize];
                if matches!(set.next_hop(), NextHop::V4(_)) == (number % 3 > 0) {
                    break set.clone();
                }
            };
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

    /// One neighbour announces many prefixes with one attribute set; they reach the group and its log.
    pub(super) fn announce_many(&mut self, peer: u16, count: u32) {
        let mut builder = RouteBatchBuilder::default();
        let plain =
            |set: &&AttrRef| matches!(set.next_hop(), NextHop::V4(_)) && set.communities().count() == 1;
        let set = self.sets.iter().find(plain).unwrap().clone();
        let index = builder.push_attrs(set);
        for number in 0..count {
            builder.push_v4(prefix_v4(number), 0, index);
        }
        self.apply(PeerId(peer), builder);
        while !self.on_the_way.is_empty() {
            self.deliver();
        }
        self.group.flush();
    }

    fn deliver(&mut self) {
        if let Some(changes) = self.on_the_way.pop_front() {
            self.group.handle_changes(&changes, &self.peers);
        }
    }

    pub(super) fn join_all(&mut self) {
        for who in 0..MEMBERS {
            self.join_or_leave(who, false);
        }
        self.run_dumps(100);
    }

    fn join_or_leave(&mut self, who: u16, leave: bool) {
        let peer = PeerId(who);
        match (&self.receivers[usize::from(who)], leave) {
            (Some(_), true) => {
                self.group.leave(peer);
                self.receivers[usize::from(who)] = None;
            }
            (None, false) => {
                let mut member = self.group.join(peer, self.peers.get(peer).unwrap().remote_as);
                let dump = self.group.dump(DumpKind::Initial, &mut [&mut member]);
                self.start(dump);
                let receiver = Receiver { member, stream: Vec::new(), table: Table::new() };
                self.receivers[usize::from(who)] = Some(receiver);
            }
            _ => {}
        }
    }

    fn start(&mut self, dump: Dump) {
        self.dumps.push(RunningDump { dump, shard: 0, family: Family::Ipv4, cursor: ScanCursor::START });
    }

    fn refresh(&mut self, rng: &mut XorShift64Star) {
        let family = Family::ALL[rng.below(2) as usize];
        let kind = DumpKind::Refresh { family, enhanced: rng.below(2) == 0 };
        let idle =
            |receiver: &&mut Receiver| !receiver.member.has_dump() && receiver.member.needs().is_none();
        let Some(receiver) = self.receivers.iter_mut().flatten().find(idle) else { return };
        let dump = self.group.dump(kind, &mut [&mut receiver.member]);
        self.start(dump);
    }

    /// Members that fell behind get a dump, those that need the same one together.
    fn catch_up(&mut self) {
        let needs: Vec<DumpKind> =
            self.receivers.iter().flatten().filter_map(|each| each.member.needs()).collect();
        let Some(kind) = needs.first().cloned() else { return };
        self.lagged += 1;
        let alike = |receiver: &&mut Receiver| receiver.member.needs() == Some(kind.clone());
        let mut members: Vec<&mut Member> =
            self.receivers.iter_mut().flatten().filter(alike).map(|receiver| &mut receiver.member).collect();
        let dump = self.group.dump(kind.clone(), &mut members);
        self.start(dump);
    }

    fn run_dumps(&mut self, budget: usize) {
        for running in &mut self.dumps {
            for _ in 0..budget {
                match running.dump.poll_chunk() {
                    DumpProgress::NeedsRoutes => running.scan(&self.shards, &self.peers),
                    DumpProgress::Encoded => {}
                    DumpProgress::WaitsForReaders | DumpProgress::Done => break,
                }
            }
        }
        self.dumps.retain_mut(|running| running.dump.poll_chunk() != DumpProgress::Done);
    }

    /// Shards keep what catching up needs.
    fn keep_tombstones(&mut self) {
        let mut floor = self.group.log().floor();
        for since in self.dumps.iter().filter_map(|running| running.dump.kind().since()) {
            floor = Some(floor.map_or(*since, |floor| earliest(&floor, &since)));
        }
        for family in Family::ALL {
            for (number, shard) in self.shards.iter_mut().enumerate() {
                shard.set_tombstone_floor(family, floor.map(|floor| floor[family.index()][number]));
            }
        }
    }

    pub(super) fn replace_view(&mut self, view: ExportView) {
        while self.replacing.is_some() {
            self.reevaluate(1_000);
        }
        self.group.set_view(Arc::new(view.clone())).unwrap();
        self.view = view;
        self.replacing = Some(Replacing { shard: 0, family: Family::Ipv4, cursor: ScanCursor::START });
    }

    fn reevaluate(&mut self, budget: usize) {
        let Some(at) = &mut self.replacing else { return };
        let (group, peers) = (&mut self.group, &self.peers);
        let done = match at.family {
            Family::Ipv4 => self.shards[at.shard].scan::<u32>(&mut at.cursor, budget, &mut |route| {
                let paths: Vec<_> = route.ranked().map(|path| path.chosen()).collect();
                group.reevaluate(route.prefix, &paths, peers);
            }),
            Family::Ipv6 => self.shards[at.shard].scan::<u128>(&mut at.cursor, budget, &mut |route| {
                let paths: Vec<_> = route.ranked().map(|path| path.chosen()).collect();
                group.reevaluate(route.prefix, &paths, peers);
            }),
        };
        if !done {
            return;
        }
        at.cursor = ScanCursor::START;
        at.shard += 1;
        if at.shard == SHARDS {
            (at.shard, at.family) = match at.family {
                Family::Ipv4 => (0, Family::Ipv6),
                Family::Ipv6 => {
                    // Changes that were on the way when the scan passed have to come before the end.
                    while let Some(changes) = self.on_the_way.pop_front() {
                        self.group.handle_changes(&changes, &self.peers);
                    }
                    self.group.finish_view();
                    self.replacing = None;
                    return;
                }
            };
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
        receiver.decode(&self.view);
        let left = receiver.stream.len();
        assert_eq!(left > 0, receiver.member.inside_message(), "{left} octets of a message are there");
    }

    /// Everything comes to rest.
    pub(super) fn settle(&mut self, rng: &mut XorShift64Star) {
        while !self.on_the_way.is_empty() {
            self.deliver();
        }
        while self.replacing.is_some() {
            self.reevaluate(100);
        }
        self.group.flush();
        for _ in 0..10_000 {
            for who in 0..usize::from(MEMBERS) {
                self.read(who, 1 + rng.below(100_000) as usize);
            }
            self.run_dumps(3);
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
            let expected = self.expected(peer);
            assert_eq!(receiver.table, expected, "{peer}");
            seen.routes += expected.len();
        }
        seen
    }

    fn expected(&self, member: PeerId) -> Table {
        let mut table = Table::new();
        let mut add = |family: Family, prefix: IpPrefix, paths: Vec<Chosen>| {
            let add_path = self.view.add_path(family);
            let may = |path: &&Chosen| may_have(&self.view, &self.peers, family, path, member);
            let ranks = paths.iter().take(self.view.depth(family)).filter(may);
            for path in ranks.take(if add_path { usize::MAX } else { 1 }) {
                let path_id = if add_path { u32::from(path.local_id) } else { 0 };
                table.insert((prefix, path_id), path.attrs.origin_as);
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

/// The definition of export, written as the RFCs have it and without regard to cost.
fn may_have(view: &ExportView, peers: &PeerTable, family: Family, path: &Chosen, member: PeerId) -> bool {
    let has = |bit| path.attrs.has(bit);
    let source = peers.get(path.peer).unwrap();
    if path.peer == member || *view.policy == Policy::reject_all() {
        return false;
    }
    if view.route_server.is_none() {
        let outside = view.kind == PeerKind::External;
        let other_member_as = view.kind == PeerKind::Confederation;
        if has(flag::NO_ADVERTISE)
            || (has(flag::NO_EXPORT) && outside)
            || (has(flag::NO_EXPORT_SUBCONFED) && (outside || other_member_as))
        {
            return false;
        }
    } else if !control_allows(&path.attrs, peers.get(member).unwrap().remote_as) {
        return false;
    }
    if has(flag::ONLY_TO_CUSTOMER)
        && matches!(view.role, Some(Role::Provider | Role::Peer | Role::RouteServer))
    {
        return false;
    }
    if source.kind == PeerKind::Internal && view.kind == PeerKind::Internal {
        return false;
    }
    let keeps_v6 = matches!(path.attrs.next_hop(), NextHop::V6 { .. }) && view.next_hop == NextHopRule::Keep;
    family == Family::Ipv6 || !keeps_v6
}

fn control_allows(attrs: &Attrs, asn: u32) -> bool {
    let standard: Vec<u32> = attrs.communities().collect();
    let large: Vec<[u32; 3]> = attrs.large_communities().collect();
    if standard.contains(&asn) || standard.contains(&65_000) && !standard.contains(&(65_000 << 16 | asn)) {
        return false;
    }
    let only =
        standard.iter().any(|each| each >> 16 == 65_000) || large.iter().any(|each| each[..2] == [65_000, 1]);
    !only || standard.contains(&(65_000 << 16 | asn)) || large.contains(&[65_000, 1, asn])
}

impl Receiver {
    fn decode(&mut self, view: &ExportView) {
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
                self.apply(&update);
            }
            rest = &rest[message.length..];
        }
        self.stream = rest.to_vec();
    }

    fn apply(&mut self, update: &Update<'_>) {
        let withdrawn = update.withdrawn.iter().map(|(id, prefix)| (prefix.into(), id));
        let mut gone: Vec<(IpPrefix, u32)> = withdrawn.collect();
        match update.mp_unreach {
            Some(MpNlri::Ipv4(routes)) => gone.extend(routes.iter().map(|(id, prefix)| (prefix.into(), id))),
            Some(MpNlri::Ipv6(routes)) => gone.extend(routes.iter().map(|(id, prefix)| (prefix.into(), id))),
            None => {}
        }
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
        if there.is_empty() {
            return;
        }
        let mut scratch = Vec::new();
        let path = update.as_path(&mut scratch);
        let origin = path.last_chunk::<4>().map_or(0, |last| u32::from_be_bytes(*last));
        for key in there {
            self.table.insert(key, origin);
        }
        let codes: Vec<u8> = update.attributes().map(|each: Attribute<'_>| each.code).collect();
        assert!(codes.iter().all(|code| codes.iter().filter(|each| *each == code).count() == 1), "{codes:?}");
    }
}

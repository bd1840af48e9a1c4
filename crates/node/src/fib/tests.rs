//! The outlet compared with an exhaustive search, after every change.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use thalweg_base::{Address, IpPrefix, Prefix};
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, NextHop};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::{Change, Changes, Chosen, Further};
use thalweg_dataplane::lpm::Lpm;
use thalweg_dataplane::route::Adjacency;
use thalweg_wire::MacAddr;

use super::*;

const BLACKHOLE: u32 = 0xffff_029a;

struct Attributes(Interner);

impl Attributes {
    fn of(&self, next_hop: IpAddr, communities: &[u32]) -> AttrRef {
        let mut builder = AttrsBuilder::default();
        builder.next_hop = match next_hop {
            IpAddr::V4(address) => NextHop::V4(address),
            IpAddr::V6(global) => NextHop::V6 { global, link_local: None },
        };
        if !communities.is_empty() {
            builder.set_communities(communities).unwrap();
            builder.discard = communities.contains(&BLACKHOLE);
        }
        self.0.intern(&mut builder)
    }
}

/// Records its instructions, and checks their order.
#[derive(Default)]
struct Recorder {
    by_itself: bool,
    hops: BTreeMap<HopNumber, Way>,
    routes: BTreeMap<IpPrefix, Way>,
    numbers: BTreeMap<IpPrefix, HopNumber>,
    calls: usize,
}

impl Recorder {
    fn install<A: Address>(&mut self, items: &[Install<A>])
    where
        IpPrefix: From<Prefix<A>>,
    {
        for item in items {
            self.calls += 1;
            let prefix = IpPrefix::from(item.prefix);
            match item.hop {
                Some(hop) => {
                    self.routes
                        .insert(prefix, *self.hops.get(&hop).expect("a hop has a meaning before it is used"));
                    self.numbers.insert(prefix, hop);
                }
                None => {
                    self.routes.remove(&prefix);
                    self.numbers.remove(&prefix);
                }
            }
        }
    }
}

impl RouteInstaller for Recorder {
    fn moves_prefixes(&self) -> bool {
        self.by_itself
    }

    fn set_hop(&mut self, hop: HopNumber, way: Way, _: Option<Way>) {
        self.hops.insert(hop, way);
        if self.by_itself {
            for (prefix, number) in &self.numbers {
                if *number == hop {
                    self.routes.insert(*prefix, way);
                }
            }
        }
    }

    fn install_v4(&mut self, items: &[Install<u32>]) {
        self.install(items);
    }

    fn install_v6(&mut self, items: &[Install<u128>]) {
        self.install(items);
    }

    fn finish(&mut self) {}
}

/// Resolution as the module's text describes it, by searching all routes each time.
struct Model {
    best: BTreeMap<IpPrefix, Target>,
    underlay: Vec<(IpPrefix, UnderlayTarget)>,
}

impl Model {
    fn way(&self, target: Target) -> Option<Way> {
        let Target::Address(mut address) = target else { return Some(Way::Discard) };
        let mut visited = Vec::new();
        let mut bgp_counts = true;
        loop {
            if visited.contains(&address) || visited.len() == DEPTH_MAX {
                return None;
            }
            visited.push(address);
            let under: Vec<_> = self.underlay.iter().filter(|(prefix, _)| prefix.contains(address)).collect();
            let under = under.into_iter().max_by_key(|(prefix, _)| prefix.length());
            if let Some((_, UnderlayTarget::Connected { link })) = under {
                return Some(Way::Neighbor { address, link: *link });
            }
            let bgp = self
                .best
                .iter()
                .filter(|(prefix, target)| {
                    bgp_counts && prefix.contains(address) && **target != Target::Address(address)
                })
                .max_by_key(|(prefix, _)| prefix.length());
            match (bgp, under) {
                (Some((prefix, target)), under)
                    if under.is_none_or(|(u, _)| prefix.length() > u.length()) =>
                {
                    match target {
                        Target::Discard => return Some(Way::Discard),
                        Target::Address(next) => address = *next,
                    }
                }
                (_, Some((_, UnderlayTarget::Gateway { address, link: Some(link) }))) => {
                    return Some(Way::Neighbor { address: *address, link: *link });
                }
                (_, Some((_, UnderlayTarget::Gateway { address: next, link: None }))) => {
                    (address, bgp_counts) = (*next, false);
                }
                (_, Some((_, UnderlayTarget::Discard))) => return Some(Way::Discard),
                _ => return None,
            }
        }
    }

    fn installed(&self) -> BTreeMap<IpPrefix, Way> {
        self.best.iter().filter_map(|(prefix, target)| Some((*prefix, self.way(*target)?))).collect()
    }

    fn lookup(installed: &BTreeMap<IpPrefix, Way>, address: IpAddr) -> Option<Way> {
        let covering = installed.iter().filter(|(prefix, _)| prefix.contains(address));
        covering.max_by_key(|(prefix, _)| prefix.length()).map(|(_, way)| *way)
    }
}

/// A small world, so that routes cover next hops and each other: IPv4 in 10.0.0.0/26, IPv6 in 2001:db8::/122.
fn address(number: u8, v6: bool) -> IpAddr {
    let low = u32::from(number % 64);
    if v6 {
        IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(low)))
    } else {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + low))
    }
}

fn small_prefix(number: u8, shorter: u8, v6: bool) -> IpPrefix {
    match address(number, v6) {
        IpAddr::V4(address) => Prefix::new(u32::from(address), 32 - shorter % 8).unwrap().into(),
        IpAddr::V6(address) => Prefix::new(u128::from(address), 128 - shorter % 8).unwrap().into(),
    }
}

/// A prefix (address, host bits, IPv6) and its next hop (address, force IPv6, BLACKHOLE).
type BestRoute = (u8, u8, bool, Option<(u8, bool, bool)>);
/// A prefix, the kind of its target and what it leads to.
type OtherRoute = (u8, u8, bool, u8, u8);

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<BestRoute>),
    Underlay(Vec<OtherRoute>),
}

fn step() -> impl Strategy<Value = Step> {
    let change = (any::<u8>(), any::<u8>(), any::<bool>(), any::<Option<(u8, bool, bool)>>());
    let route = (any::<u8>(), any::<u8>(), any::<bool>(), any::<u8>(), any::<u8>());
    prop_oneof![
        4 => prop::collection::vec(change, 0..12).prop_map(Step::Batch),
        1 => prop::collection::vec(route, 0..6).prop_map(Step::Underlay),
    ]
}

fn target_of(kind: u8, number: u8, v6: bool) -> UnderlayTarget {
    match kind % 9 {
        0 => UnderlayTarget::Local,
        1 => UnderlayTarget::Discard,
        8 => UnderlayTarget::Unreachable,
        2 => UnderlayTarget::Gateway { address: address(number, v6), link: Some(9) },
        3 | 4 => UnderlayTarget::Gateway { address: address(number, v6), link: None },
        _ => UnderlayTarget::Connected { link: u32::from(number % 3) },
    }
}

fn underlay_of(routes: &[OtherRoute]) -> Vec<(IpPrefix, UnderlayTarget)> {
    let all: BTreeMap<_, _> = routes
        .iter()
        .map(|(number, shorter, v6, kind, other)| {
            (small_prefix(*number, shorter % 4, *v6), target_of(*kind, *other, *v6))
        })
        .collect();
    all.into_iter().collect()
}

/// Everything under test, beside the model.
struct World {
    attributes: Attributes,
    chosen: BTreeMap<IpPrefix, Chosen>,
    model: Model,
    outlets: Vec<(Outlet, Recorder)>,
    /// Gets changes in pieces of two.
    in_pieces: (Outlet, Recorder),
    fib: (Outlet, FibTables),
}

/// An outlet whose numbers follow those of base routes.
fn config_behind(base: &BaseRoutes) -> OutletConfig {
    OutletConfig { first_hop: base.first_hop(), ..OutletConfig::default() }
}

impl World {
    fn new() -> Self {
        let outlet = || Outlet::new(OutletConfig::default(), Underlay::default());
        let recorder = |by_itself| Recorder { by_itself, ..Recorder::default() };
        // Port and MTU distinguish neighbors.
        let adjacency = |way| match way {
            Way::Neighbor { address, link } => {
                let IpAddr::V6(v6) = (match address {
                    IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
                    v6 => v6,
                }) else {
                    unreachable!()
                };
                let [.., a, b, c, d, e, f] = v6.octets();
                Adjacency::Forward {
                    port: link as u16,
                    destination_mac: MacAddr([a, b, c, d, e, f]),
                    source_mac: MacAddr([0; 6]),
                    mtu_bytes: 1500,
                }
            }
            Way::Discard => Adjacency::Drop(thalweg_base::DropReason::Blackhole),
        };
        Self {
            attributes: Attributes(Interner::new(7)),
            chosen: BTreeMap::new(),
            model: Model { best: BTreeMap::new(), underlay: Vec::new() },
            outlets: vec![(outlet(), recorder(false)), (outlet(), recorder(true))],
            in_pieces: (outlet(), recorder(true)),
            fib: (
                Outlet::new(config_behind(&BaseRoutes::default()), Underlay::default()),
                FibTables::new(BaseRoutes::default(), Box::new(adjacency)).unwrap(),
            ),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Batch(batch) => {
                let changes = self.changes(batch);
                for (outlet, recorder) in &mut self.outlets {
                    outlet.handle_changes(&changes, recorder);
                }
                for piece in Batch::of([&changes]).pieces(2) {
                    self.in_pieces.0.handle_piece(piece, &mut self.in_pieces.1);
                }
                self.fib.0.handle_changes(&changes, &mut self.fib.1);
            }
            Step::Underlay(routes) => {
                self.model.underlay = underlay_of(routes);
                let underlay = Underlay::new(self.model.underlay.iter().copied());
                for (outlet, recorder) in &mut self.outlets {
                    outlet.set_underlay(underlay.clone(), recorder);
                }
                self.in_pieces.0.set_underlay(underlay.clone(), &mut self.in_pieces.1);
                self.fib.0.set_underlay(underlay, &mut self.fib.1);
            }
        }
    }

    fn changes(&mut self, batch: &[BestRoute]) -> Changes {
        let mut changes = Changes::default();
        let mut seen = std::collections::BTreeSet::new();
        for (number, shorter, v6, next_hop) in batch {
            let prefix = small_prefix(*number, *shorter, *v6);
            if !seen.insert(prefix) {
                continue;
            }
            let new = next_hop.map(|(hop, other_family, blackhole)| {
                // IPv4 routes may have IPv6 next hops (RFC 8950).
                let hop = address(hop, *v6 || other_family);
                let communities: &[u32] = if blackhole && number % 4 == 0 { &[BLACKHOLE] } else { &[] };
                let target = if communities.is_empty() { Target::Address(hop) } else { Target::Discard };
                let attrs = self.attributes.of(hop, communities);
                (target, Chosen { attrs, peer: PeerId(1), local_id: 1 })
            });
            match &new {
                Some((target, _)) => self.model.best.insert(prefix, *target),
                None => self.model.best.remove(&prefix),
            };
            let new = new.map(|(_, chosen)| chosen);
            let old = match &new {
                Some(chosen) => self.chosen.insert(prefix, chosen.clone()),
                None => self.chosen.remove(&prefix),
            };
            match prefix {
                IpPrefix::V4(prefix) => changes.v4.push(Change { prefix, old, new, further: None }),
                IpPrefix::V6(prefix) => changes.v6.push(Change { prefix, old, new, further: None }),
            }
        }
        changes
    }

    fn check(&self) {
        let installed = self.model.installed();
        for (outlet, recorder) in self.outlets.iter().chain([&self.in_pieces]) {
            assert_eq!(recorder.routes, installed, "by itself: {}", recorder.by_itself);
            assert_eq!(outlet.desired().collect::<BTreeMap<_, _>>(), installed);
            let counters = outlet.counters();
            assert_eq!(counters.prefixes.iter().sum::<u64>() as usize, self.model.best.len());
            assert_eq!(counters.unresolved_prefixes as usize, self.model.best.len() - installed.len());
            let discarding = self.model.best.values().filter(|target| **target == Target::Discard).count();
            assert_eq!(counters.discarding_prefixes as usize, discarding);
            assert_eq!(outlet.unresolved().map(|(_, _, n)| n).sum::<u64>(), counters.unresolved_prefixes);
        }
        let (outlet, tables) = &self.fib;
        for number in 0..64 {
            for v6 in [false, true] {
                let address = address(number, v6);
                let found = match address {
                    IpAddr::V4(address) => tables.fib4().lookup(address.into()),
                    IpAddr::V6(address) => tables.fib6().lookup(address.into()),
                };
                let expected = Model::lookup(&installed, address);
                assert_eq!(outlet.hops.way(found), expected, "{address}");
                assert!(
                    usize::from(found) < tables.next_hops().load().len(),
                    "{address} leads to number {found}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn what_is_installed_follows_from_what_is_best(steps in prop::collection::vec(step(), 1..25)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
    }

    /// The order in which the same routes arrive does not matter.
    #[test]
    fn the_same_routes_lead_to_the_same_forwarding(
        routes in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>(), any::<(u8, bool, bool)>()), 1..40),
        underlay in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>(), any::<u8>(), any::<u8>()), 0..6),
        seed: u64,
    ) {
        let mut distinct = BTreeMap::new();
        for (number, shorter, v6, hop) in routes {
            distinct.insert(small_prefix(number, shorter, v6), (number, shorter, v6, Some(hop)));
        }
        let forward: Vec<_> = distinct.into_values().collect();
        let mut shuffled = forward.clone();
        let mut random = thalweg_base::XorShift64Star::new(seed);
        for at in (1..shuffled.len()).rev() {
            shuffled.swap(at, random.below(at as u32 + 1) as usize);
        }
        let (mut one, mut other) = (World::new(), World::new());
        one.step(&Step::Underlay(underlay.clone()));
        one.step(&Step::Batch(forward));
        for route in shuffled {
            other.step(&Step::Batch(vec![route]));
        }
        other.step(&Step::Underlay(underlay));
        prop_assert_eq!(&one.outlets[0].1.routes, &other.outlets[0].1.routes);
        one.check();
        other.check();
    }
}

proptest! {
    /// The view for decisions equals the result of a search through all routes, and next hops are reachable in it
    /// if the outlet, without BGP's help, would resolve them.
    #[test]
    fn decisions_are_told_what_the_underlay_says(
        routes in prop::collection::vec(
            (any::<u8>(), any::<u8>(), any::<bool>(), any::<u8>(), any::<u8>(), 0u32..4), 0..12,
        ),
    ) {
        let routes: Vec<_> = routes
            .into_iter()
            .map(|(number, shorter, v6, kind, other, metric)| {
                let (prefix, target) = (small_prefix(number, shorter, v6), target_of(kind, other, v6));
                UnderlayRoute { prefix, target, metric }
            })
            .collect();
        // The lowest metric for a prefix counts, then the last route.
        let counts = |at: usize| {
            let UnderlayRoute { prefix, metric, .. } = routes[at];
            let others = routes.iter().enumerate().filter(|(_, other)| other.prefix == prefix);
            others.into_iter().all(|(other, route)| (metric, std::cmp::Reverse(at)) <= (route.metric, std::cmp::Reverse(other)))
        };
        let kept: Vec<_> = (0..routes.len()).filter(|at| counts(*at)).map(|at| routes[at]).collect();
        let model = Model {
            best: BTreeMap::new(),
            underlay: kept.iter().map(|route| (route.prefix, route.target)).collect(),
        };
        let underlay = Underlay::with_metrics(routes.iter().copied());
        let view = underlay.next_hop_view();
        for address in (0..64).flat_map(|number| [address(number, false), address(number, true)]) {
            let covering = kept.iter().filter(|route| route.prefix.contains(address));
            let longest = covering.max_by_key(|route| route.prefix.length());
            let metric = model.way(Target::Address(address)).and(longest).map(|route| route.metric);
            prop_assert_eq!(view.metric_to(address), metric, "{}", address);
        }
    }
}

fn announce(
    attributes: &Attributes,
    prefixes: impl Iterator<Item = u32>,
    next_hop: IpAddr,
    peer: PeerId,
) -> Changes {
    let attrs = attributes.of(next_hop, &[]);
    let change = |prefix| Change {
        prefix: Prefix::new(prefix, 24).unwrap(),
        old: None,
        new: Some(Chosen { attrs: attrs.clone(), peer, local_id: 1 }),
        further: None,
    };
    Changes { v4: prefixes.map(change).collect(), ..Changes::default() }
}

#[test]
fn a_next_hop_that_moves_costs_no_prefix_where_numbers_move_them() {
    let attributes = Attributes(Interner::new(7));
    let on = |link| Underlay::new([("10.0.0.0/24".parse().unwrap(), UnderlayTarget::Connected { link })]);
    let changes =
        announce(&attributes, (0..1000).map(|n| 0x1400_0000 + (n << 8)), [10, 0, 0, 1].into(), PeerId(3));
    for by_itself in [true, false] {
        let mut recorder = Recorder { by_itself, ..Recorder::default() };
        let mut outlet = Outlet::new(OutletConfig::default(), on(1));
        outlet.handle_changes(&changes, &mut recorder);
        assert_eq!(recorder.calls, 1000);
        outlet.set_underlay(on(2), &mut recorder);
        assert_eq!(recorder.calls, if by_itself { 1000 } else { 2000 });
        let moved = Way::Neighbor { address: [10, 0, 0, 1].into(), link: 2 };
        assert!(recorder.routes.values().all(|way| *way == moved));
        outlet.set_underlay(Underlay::default(), &mut recorder);
        assert!(recorder.routes.is_empty());
        let waiting: Vec<_> = outlet.unresolved().collect();
        assert_eq!(waiting, [([10, 0, 0, 1].into(), Unresolved::NoRoute, 1000)]);
        outlet.set_underlay(on(1), &mut recorder);
        assert_eq!(recorder.routes.len(), 1000);
    }
}

/// Of several changes of a prefix only the last is installed: a route that came and went at once leaves nothing.
#[test]
fn changes_that_come_together_are_installed_once_and_in_order() {
    let attributes = Attributes(Interner::new(7));
    let mut recorder = Recorder::default();
    let mut outlet = Outlet::new(OutletConfig::default(), Underlay::everything_on(0));
    let by = |last: u8, prefixes: &[u32]| {
        announce(&attributes, prefixes.iter().copied(), [10, 0, 0, last].into(), PeerId(3))
    };
    let (a, b, c) = (0x1400_0000, 0x1400_0100, 0x1400_0200);
    let mut gone = by(1, &[a, c]);
    gone.v4.iter_mut().for_each(|change| change.new = None);
    outlet.handle_changes(&by(3, &[c]), &mut recorder);
    recorder.calls = 0;
    outlet.handle_all([&by(1, &[b, a]), &gone, &by(2, &[b])], &mut recorder);
    // b by its second next hop, and c is gone; a was never there.
    let way = Way::Neighbor { address: [10, 0, 0, 2].into(), link: 0 };
    let expected: BTreeMap<IpPrefix, Way> = [(Prefix::new(b, 24).unwrap().into(), way)].into();
    assert_eq!((recorder.calls, &recorder.routes), (2, &expected));
    assert_eq!((outlet.counters().prefixes, outlet.counters().hops), ([1, 0], 1));
}

/// The tables are free for others after so many changes, and those of one prefix stay together.
#[test]
fn a_batch_comes_in_pieces() {
    let attributes = Attributes(Interner::new(7));
    let twice = |n: u32| [n, n].map(|n| 0x1400_0000 + (n << 8));
    let one = announce(&attributes, (0..5_000).flat_map(twice), [10, 0, 0, 1].into(), PeerId(3));
    let other = announce(&attributes, (0..5_000).map(|n| n << 8), [10, 0, 0, 2].into(), PeerId(3));
    let batch = Batch::of([&one, &other]);
    let mut all: Vec<(Prefix<u32>, IpAddr)> = Vec::new();
    for piece in batch.pieces(PIECE_CHANGES) {
        assert!((1..=PIECE_CHANGES + 1).contains(&piece.v4.len()) && piece.v6.is_empty());
        let hop = |change: &Change<u32>| change.new.as_ref().expect("a route").attrs.next_hop().address();
        assert!(all.last().is_none_or(|(last, _)| *last != piece.v4[0].prefix));
        all.extend(piece.v4.iter().map(|change| (change.prefix, hop(change))));
    }
    assert_eq!(all.len(), 15_000);
    assert!(all.is_sorted_by_key(|(prefix, _)| prefix.address()));
    assert_eq!(Batch::of([&Changes::default()]).pieces(1).count(), 0);
}

#[test]
fn our_own_routes_are_not_installed() {
    let attributes = Attributes(Interner::new(7));
    let mut recorder = Recorder::default();
    let mut outlet = Outlet::new(OutletConfig::default(), Underlay::everything_on(0));
    let theirs = announce(&attributes, [0x1400_0000].into_iter(), [10, 0, 0, 1].into(), PeerId(3));
    let ours = announce(&attributes, [0x1400_0000].into_iter(), [10, 0, 0, 1].into(), PeerId::LOCAL);
    outlet.handle_changes(&theirs, &mut recorder);
    assert_eq!(recorder.routes.len(), 1);
    outlet.handle_changes(&ours, &mut recorder);
    assert_eq!((recorder.routes.len(), outlet.counters().prefixes), (0, [0, 0]));
}

#[test]
fn more_next_hops_than_numbers_are_counted_and_numbers_come_back() {
    let attributes = Attributes(Interner::new(7));
    let config = OutletConfig { first_hop: 5, last_hop: 7, ..OutletConfig::default() };
    let mut recorder = Recorder::default();
    let mut outlet = Outlet::new(config, Underlay::everything_on(0));
    let via =
        |n: u8| announce(&attributes, [u32::from(n) << 24].into_iter(), [10, 0, 0, n].into(), PeerId(3));
    for n in 1..=5 {
        outlet.handle_changes(&via(n), &mut recorder);
    }
    assert_eq!(recorder.numbers.values().copied().collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!((outlet.counters().without_number, outlet.counters().prefixes[0]), (2, 3));
    let mut gone = via(2);
    gone.v4[0].new = None;
    outlet.handle_changes(&gone, &mut recorder);
    outlet.handle_changes(&via(4), &mut recorder);
    assert_eq!((recorder.routes.len(), outlet.counters().hops), (3, 3));
}

#[test]
fn base_routes_win_over_routes_of_the_same_prefix() {
    let attributes = Attributes(Interner::new(7));
    let forward = |port| Adjacency::Forward {
        port,
        destination_mac: MacAddr([1; 6]),
        source_mac: MacAddr([2; 6]),
        mtu_bytes: 1500,
    };
    let base = BaseRoutes {
        v4: vec![(Prefix::new(0x1400_0000, 24).unwrap(), 1)],
        v6: Vec::new(),
        groups: vec![vec![forward(1), forward(2)].into()],
        reserved: 0,
    };
    let config = config_behind(&base);
    let first = config.first_hop;
    assert_eq!(usize::from(first), 1 + DEFAULTS + 1);
    let mut tables = FibTables::new(base, Box::new(move |_| forward(7))).unwrap();
    let mut outlet = Outlet::new(config, Underlay::everything_on(0));
    let mut changes =
        announce(&attributes, [0x1400_0000, 0x1400_0100].into_iter(), [10, 0, 0, 1].into(), PeerId(3));
    let announced = changes.v4[0].new.clone();
    outlet.handle_changes(&changes, &mut tables);
    assert_eq!((tables.fib4().lookup(0x1400_0001), tables.fib4().lookup(0x1400_0101)), (1, first));
    let numbers = tables.next_hops().load().len();
    assert_eq!((numbers, tables.routes(0), tables.refused()), (usize::from(first) + 1, [2, 0], 0));
    for change in &mut changes.v4 {
        change.new = None;
    }
    outlet.handle_changes(&changes, &mut tables);
    assert_eq!((tables.fib4().lookup(0x1400_0001), tables.fib4().lookup(0x1400_0101)), (1, 0));
    // Removing a base route uncovers the outlet's; adding one covers it.
    for change in &mut changes.v4 {
        change.new.clone_from(&announced);
    }
    outlet.handle_changes(&changes, &mut tables);
    let base = |tables: &mut FibTables, number| {
        assert!(tables.set_base_route((0, "20.0.0.0/24".parse().unwrap()), number));
        tables.fib4().lookup(0x1400_0001)
    };
    let found = (base(&mut tables, None), base(&mut tables, Some(1)), base(&mut tables, None));
    assert_eq!(found, (first, 1, first));
}

/// Announces prefixes by a next hop, with a second path by another.
fn announce_both(
    attributes: &Attributes,
    prefixes: impl Iterator<Item = u32>,
    hops: [[u8; 4]; 2],
) -> Changes {
    let mut changes = announce(attributes, prefixes, hops[0].into(), PeerId(3));
    let attrs = attributes.of(hops[1].into(), &[]);
    for change in &mut changes.v4 {
        let second = Chosen { attrs: attrs.clone(), peer: PeerId(4), local_id: 2 };
        change.further = Some(Box::new(Further { old: Vec::new(), new: vec![second] }));
    }
    changes
}

/// Prefix-independent convergence: a dead link costs one write for each pair of next hops, and no prefix is
/// touched.
#[test]
fn a_dead_way_moves_all_prefixes_with_one_write() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    const PREFIXES: u32 = 200_000;
    let attributes = Attributes(Interner::new(7));
    let is_dead = Arc::new(AtomicBool::new(false));
    let first_is_dead = is_dead.clone();
    let by = |port| Adjacency::Forward {
        port,
        destination_mac: MacAddr([1; 6]),
        source_mac: MacAddr([2; 6]),
        mtu_bytes: 1500,
    };
    let adjacency = move |way| match way {
        Way::Neighbor { link: 1, .. } if first_is_dead.load(Ordering::Relaxed) => {
            Adjacency::Drop(thalweg_base::DropReason::TransmitFailed)
        }
        Way::Neighbor { link, .. } => by(link as u16),
        Way::Discard => Adjacency::Drop(thalweg_base::DropReason::Blackhole),
    };
    let mut tables = FibTables::new(BaseRoutes::default(), Box::new(adjacency)).unwrap();
    let links = [("10.0.1.0/24", 1), ("10.0.2.0/24", 2)];
    let links = links.map(|(net, link)| (net.parse().unwrap(), UnderlayTarget::Connected { link }));
    let config = OutletConfig { backups: true, ..config_behind(&BaseRoutes::default()) };
    let mut outlet = Outlet::new(config, Underlay::new(links));
    let (first, second) = ([10, 0, 1, 1], [10, 0, 2, 1]);
    let all = || (0..PREFIXES).map(|n| 0x1400_0000 + (n << 8));
    outlet.handle_changes(&announce_both(&attributes, all(), [first, second]), &mut tables);
    // One more prefix, which only the first has.
    let alone = 0x0b00_0000;
    outlet.handle_changes(&announce(&attributes, [alone].into_iter(), first.into(), PeerId(3)), &mut tables);
    let counters = outlet.counters();
    assert_eq!((counters.hops, counters.protected_prefixes), (1, u64::from(PREFIXES)));

    let (installs, route_changes) = (counters.installs, tables.route_changes());
    let leads = |tables: &FibTables, prefix: u32| {
        let hops = tables.next_hops().load();
        hops.paths(tables.fib4().lookup(prefix + 1)).next().expect("a path")
    };
    assert!(all().all(|prefix| leads(&tables, prefix) == by(1)));
    let way = Way::Neighbor { address: first.into(), link: 1 };
    for (dead, port) in [(true, 2), (false, 1)] {
        is_dead.store(dead, Ordering::Relaxed);
        tables.renew_way(way);
        tables.finish();
        assert!(all().all(|prefix| leads(&tables, prefix) == by(port)));
    }
    is_dead.store(true, Ordering::Relaxed);
    tables.renew();
    let dropped = Adjacency::Drop(thalweg_base::DropReason::TransmitFailed);
    assert_eq!(leads(&tables, alone), dropped, "nobody else announced it");
    assert_eq!(
        tables.way(tables.fib4().lookup(0x1400_0001)),
        Some(Way::Neighbor { address: second.into(), link: 2 })
    );
    assert_eq!((outlet.counters().installs, tables.route_changes()), (installs, route_changes));
}

/// Pairs take at most half of the numbers; a prefix beyond that has no backup, but is installed.
#[test]
fn pairs_leave_room_for_next_hops() {
    let attributes = Attributes(Interner::new(7));
    let config = OutletConfig { backups: true, first_hop: 1, last_hop: 8 };
    let mut recorder = Recorder::default();
    let mut outlet = Outlet::new(config, Underlay::everything_on(0));
    for n in 1..=8u8 {
        let prefix = [u32::from(n) << 24].into_iter();
        let hops = [[10, 0, 0, 1], [10, 0, 0, n + 1]];
        outlet.handle_changes(&announce_both(&attributes, prefix, hops), &mut recorder);
    }
    let counters = outlet.counters();
    assert_eq!((counters.without_number, counters.prefixes[0], recorder.routes.len()), (0, 8, 8));
    assert_eq!((counters.protected_prefixes, counters.hops), (4, 1));
}

/// Exactly the dead targets are unreachable, whatever routes there are.
#[test]
fn a_view_of_life_knows_what_is_dead() {
    let route = |net: &str, target| (net.parse().unwrap(), target);
    let on = |link| UnderlayTarget::Connected { link };
    let by = |address: [u8; 4], link| UnderlayTarget::Gateway { address: address.into(), link };
    let underlay = Underlay::new([
        route("10.0.1.0/24", on(1)),
        route("10.0.2.0/24", on(2)),
        route("192.0.2.0/24", by([10, 0, 1, 9], Some(1))),
        route("198.51.100.0/24", by([10, 0, 2, 9], None)),
    ]);
    let silent: [(u32, IpAddr); 1] = [(2, [10, 0, 2, 9].into())];
    let is_silent = |target: UnderlayTarget| matches!(target, UnderlayTarget::Gateway { address, link: Some(link) } if silent.contains(&(link, address)));
    assert!(!underlay.view_of_life(|_| true, []).is_checked());
    let reached = |view: &thalweg_bgp::rib::NextHopView| {
        let asked =
            [[10, 0, 1, 9], [10, 0, 2, 9], [10, 0, 2, 8], [192, 0, 2, 1], [198, 51, 100, 1], [8, 8, 8, 8]];
        asked.map(|address| view.metric_to(address.into()).is_some())
    };
    let view = underlay.view_of_life(|target| !is_silent(target), silent);
    assert_eq!(reached(&view), [true, false, true, true, false, true]);
    let without_1 = |target: UnderlayTarget| {
        !matches!(
            target,
            UnderlayTarget::Connected { link: 1 } | UnderlayTarget::Gateway { link: Some(1), .. }
        )
    };
    assert_eq!(reached(&underlay.view_of_life(without_1, [])), [false, true, true, false, true, true]);
}

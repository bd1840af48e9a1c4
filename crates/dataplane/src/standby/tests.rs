//! Two routers on virtual time, with tables that are plain sets, and a link that loses, repeats and swaps datagrams.

use super::parts::is_same;
use super::*;
use crate::ip_packet::number_of_address;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use thalweg_base::XorShift64Star;
use thalweg_wire::standby::{Change, Entry, SessionEntry, StateEntry};

const TURN_NS: u64 = 20_000_000;
const SECRET: u64 = 7;
const SHARDS: u16 = 4;
/// Longer than two walks and everything that they cause.
const REST_NS: u64 = 3 * sender::WALK_EVERY_NS;

/// A table: for each shard its entries by key, and what happened to them.
#[derive(Debug, Default)]
struct Set {
    shards: RefCell<Vec<BTreeMap<u64, Entry>>>,
    changes: RefCell<Option<Vec<(u16, Change)>>>,
    /// Changes that it may still note.
    room: RefCell<usize>,
    renewed: RefCell<u64>,
}

impl Set {
    fn new() -> Self {
        let this = Self { room: RefCell::new(usize::MAX), ..Self::default() };
        *this.shards.borrow_mut() = (0..SHARDS).map(|_| BTreeMap::new()).collect();
        this
    }

    fn all(&self) -> BTreeSet<(u16, Entry)> {
        let shards = self.shards.borrow();
        let of = |(shard, entries): (u16, &BTreeMap<u64, Entry>)| {
            entries.values().map(|entry| (shard, *entry)).collect::<Vec<_>>()
        };
        (0..).zip(shards.iter()).flat_map(of).collect()
    }

    fn note(&self, shard: u16, change: Change) {
        let mut room = self.room.borrow_mut();
        if let (Some(changes), 1..) = (&mut *self.changes.borrow_mut(), *room) {
            changes.push((shard, change));
            *room -= 1;
        }
    }

    /// What the router's own packets do.
    fn set(&self, shard: u16, key: u64, entry: Option<Entry>) {
        let entries = &mut self.shards.borrow_mut()[usize::from(shard)];
        let before = entries.remove(&key);
        if let Some(entry) = entry {
            entries.insert(key, entry);
            self.note(shard, Change { is_end: false, entry });
        } else if let Some(entry) = before {
            self.note(shard, Change { is_end: true, entry });
        }
    }
}

fn key_of(entry: &Entry) -> u64 {
    match entry {
        Entry::Session(session) => u64::try_from(number_of_address(session.inside.0)).unwrap(),
        Entry::State(state) => u64::try_from(state.addresses[0]).unwrap(),
    }
}

impl Shards for Set {
    fn count(&self) -> u16 {
        SHARDS
    }

    fn live(&self, shard: u16) -> u64 {
        self.shards.borrow()[usize::from(shard)].len() as u64
    }

    fn walk(
        &self,
        shard: u16,
        from: usize,
        renews: bool,
        _now_ns: u64,
        show: &mut dyn FnMut(Entry),
    ) -> Option<usize> {
        let shards = self.shards.borrow();
        let entries = &shards[usize::from(shard)];
        let slice = 10.max(entries.len() / 8);
        entries.values().skip(from).take(slice).for_each(|entry| show(*entry));
        *self.renewed.borrow_mut() += u64::from(renews);
        (from + slice < entries.len()).then_some(from + slice)
    }

    fn put(&self, shard: u16, entry: &Entry, _now_ns: u64) -> bool {
        self.shards.borrow_mut()[usize::from(shard)].insert(key_of(entry), *entry);
        true
    }

    fn end(&self, shard: u16, entry: &Entry, _now_ns: u64) {
        self.shards.borrow_mut()[usize::from(shard)].remove(&key_of(entry));
    }

    fn follow(&self, is_on: bool) {
        *self.changes.borrow_mut() = is_on.then(Vec::new);
    }

    fn changes(&self, shard: u16, take: &mut dyn FnMut(Change)) -> u64 {
        if let Some(changes) = &mut *self.changes.borrow_mut() {
            let (now, later) = changes.drain(..).partition(|(of, _)| *of == shard);
            *changes = later;
            let now: Vec<(u16, Change)> = now;
            now.into_iter().for_each(|(_, change)| take(change));
        }
        0
    }
}

fn session(key: u64, state: u8) -> Entry {
    let number = u32::try_from(key).unwrap();
    let inside = if key.is_multiple_of(3) {
        IpAddr::from(u128::from(key).to_be_bytes())
    } else {
        IpAddr::from(number.to_be_bytes())
    };
    let public = (9, u16::try_from(key % 60_000).unwrap());
    Entry::Session(SessionEntry {
        protocol: 6,
        state,
        is_several: false,
        vrf: u8::from(key % 4 == 1),
        inside: (inside, 1000),
        public,
        remote: (1, 2),
    })
}

fn connection(key: u64, phase: u8) -> Entry {
    let is_ipv6 = key % 4 != 3;
    Entry::State(StateEntry {
        protocol: 6,
        phase,
        is_ipv6,
        second_asks: false,
        second_began: key % 2 == 1,
        zones: (1, 2),
        rule: 3,
        ports: [80, 1000],
        vrfs: if is_ipv6 { [0; 2] } else { [2, u8::from(key % 8 == 7)] },
        addresses: [key.into(), if is_ipv6 { u128::MAX } else { u32::MAX.into() }],
    })
}

/// What the link does to datagrams.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    loses: u64,
    repeats: u64,
    swaps: u64,
}

struct Router {
    standby: Standby,
    sessions: Set,
    states: Set,
}

impl Router {
    fn new(run: u64, now_ns: u64) -> Self {
        let run = StandbyRun { number: run, secret: SECRET };
        Self { standby: Standby::new(run, now_ns), sessions: Set::new(), states: Set::new() }
    }

    fn with<T>(&mut self, now_ns: u64, act: impl FnOnce(&mut Standby, &Tables<'_>) -> T) -> T {
        let tables = Tables { sessions: Some(&self.sessions), states: Some(&self.states), now_ns };
        act(&mut self.standby, &tables)
    }

    fn all(&self) -> [BTreeSet<(u16, Entry)>; 2] {
        [self.sessions.all(), self.states.all()]
    }

    fn view(&mut self, now_ns: u64) -> StandbyView {
        self.with(now_ns, |standby, tables| standby.view(tables))
    }
}

struct Pair {
    routers: [Router; 2],
    now_ns: u64,
    runs: u64,
    weather: Weather,
    chance: XorShift64Star,
    /// Datagrams under way to each router.
    link: [Vec<Vec<u8>>; 2],
    /// Everything that was ever sent to each.
    sent: [Vec<Vec<u8>>; 2],
}

impl Pair {
    /// The first router is active.
    fn new(seed: u64) -> Self {
        let mut pair = Self {
            routers: [Router::new(1, 0), Router::new(2, 0)],
            now_ns: 0,
            runs: 2,
            weather: Weather::default(),
            chance: XorShift64Star::new(seed),
            link: Default::default(),
            sent: Default::default(),
        };
        pair.routers[0].standby.set_active(true, 0);
        pair
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.chance.next_u64() % 100 < percent
    }

    fn run(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            self.turn();
            self.now_ns += TURN_NS;
        }
    }

    fn turn(&mut self) {
        let now_ns = self.now_ns;
        for to in 0..2 {
            for datagram in std::mem::take(&mut self.link[to]) {
                self.routers[to].with(now_ns, |standby, tables| standby.handle(&datagram, tables));
                self.send(1 - to);
            }
            self.routers[to].with(now_ns, Standby::handle_timer);
            self.send(1 - to);
        }
    }

    /// Puts what one router sends on the link to the other.
    fn send(&mut self, to: usize) {
        while let Some(datagram) = self.routers[1 - to].standby.poll_output() {
            assert!(datagram.len() + 32 <= 1440, "{}", datagram.len());
            self.sent[to].push(datagram.clone());
            let Weather { loses, repeats, swaps } = self.weather;
            if self.happens(loses) {
                continue;
            }
            if self.happens(repeats) {
                self.link[to].push(datagram.clone());
            }
            let at = if self.happens(swaps) { self.link[to].len() / 2 } else { self.link[to].len() };
            self.link[to].insert(at, datagram);
        }
    }

    /// A router's process begins anew, with empty tables.
    fn restart(&mut self, place: usize, is_active: bool) {
        self.runs += 1;
        self.routers[place] = Router::new(self.runs, self.now_ns);
        self.routers[place].standby.set_active(is_active, self.now_ns);
    }

    fn set_active(&mut self, place: usize) {
        let now_ns = self.now_ns;
        for each in 0..2 {
            self.routers[each].standby.set_active(each == place, now_ns);
        }
    }

    /// At rest the standby has what the active router has, and says so; both agree about it.
    fn rests(&mut self, active: usize) {
        self.weather = Weather::default();
        self.run(REST_NS);
        let [a, b] = [0, 1].map(|place| self.routers[place].all());
        assert_eq!(a, b, "at rest");
        let now_ns = self.now_ns;
        let [mine, theirs] = [active, 1 - active].map(|place| self.routers[place].view(now_ns));
        assert_eq!((mine.state, mine.behind), (StandbyState::Covered, 0));
        assert_eq!((theirs.state, theirs.behind), (StandbyState::Ready, 0));
        assert_eq!(mine.entries, theirs.entries);
        assert_eq!(mine.other_entries, theirs.entries);
        assert!(!self.routers[1 - active].standby.holds(now_ns));
    }
}

/// Something that happens at one of the routers.
#[derive(Clone, Debug)]
enum Event {
    /// The active router's packets make or change entries, or end them.
    Entries {
        from: u64,
        count: u64,
        value: Option<u8>,
    },
    /// Shards of the active router note no more changes, or do again.
    Deaf(bool),
    Restart {
        is_active: bool,
    },
    TakeOver,
    Time(u64),
    /// Somebody sends old datagrams again.
    Replay {
        to: usize,
        from: prop::sample::Index,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..300u64, 1..200u64, prop::option::weighted(0.7, 2..10u8))
            .prop_map(|(from, count, value)| Event::Entries { from, count, value }),
        1 => any::<bool>().prop_map(Event::Deaf),
        1 => any::<bool>().prop_map(|is_active| Event::Restart { is_active }),
        1 => Just(Event::TakeOver),
        4 => (1..200u64).prop_map(|turns| Event::Time(turns * TURN_NS)),
        1 => (0..2usize, any::<prop::sample::Index>()).prop_map(|(to, from)| Event::Replay { to, from }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn at_rest_the_standby_has_what_the_active_router_has(
        events in prop::collection::vec(event(), 1..40),
        seed: u64,
        loses in 0..60u64,
        repeats in 0..20u64,
        swaps in 0..20u64,
    ) {
        let mut pair = Pair::new(seed | 1);
        pair.weather = Weather { loses, repeats, swaps };
        let mut active = 0;
        for event in events {
            match event {
                Event::Entries { from, count, value } => {
                    let router = &pair.routers[active];
                    for key in from..from + count {
                        let shard = u16::try_from(key % u64::from(SHARDS)).unwrap();
                        router.sessions.set(shard, key, value.map(|state| session(key, state)));
                        router.states.set(shard, key, value.map(|phase| connection(key, phase)));
                    }
                }
                Event::Deaf(is_deaf) => {
                    let room = if is_deaf { 0 } else { usize::MAX };
                    for set in [&pair.routers[active].sessions, &pair.routers[active].states] {
                        *set.room.borrow_mut() = room;
                    }
                }
                Event::Restart { is_active: true } => pair.restart(active, true),
                Event::Restart { is_active: false } => pair.restart(1 - active, false),
                Event::TakeOver => {
                    active = 1 - active;
                    pair.set_active(active);
                }
                Event::Time(ns) => pair.run(ns),
                Event::Replay { to, from } => {
                    let old = &pair.sent[to];
                    if !old.is_empty() {
                        let from = from.index(old.len());
                        let old = old[from..].iter().take(50).cloned().collect::<Vec<_>>();
                        pair.link[to].extend(old);
                    }
                }
            }
        }
        pair.rests(active);
    }

    #[test]
    fn no_authentic_bytes_panic_or_grow(
        messages in prop::collection::vec((0..6u8, prop::collection::vec(any::<u8>(), 0..200)), 0..40),
    ) {
        let mut pair = Pair::new(1);
        pair.run(REST_NS);
        for (kind, body) in messages {
            for (place, other) in [(0, 2u64), (1, 1)] {
                let sequence = pair.routers[1 - place].standby.line.sequence + 1;
                pair.routers[1 - place].standby.line.sequence = sequence;
                let own = pair.routers[place].standby.line.from;
                let header = StandbyHeader { from: other, to: own, sequence };
                let mut datagram = header.encode(&Message::Hello(Hello::default()));
                datagram.truncate(28);
                datagram.push(kind);
                datagram.extend_from_slice(&body);
                let now_ns = pair.now_ns;
                pair.routers[place].with(now_ns, |standby, tables| standby.handle(&datagram, tables));
                let outputs = std::iter::from_fn(|| pair.routers[place].standby.poll_output()).count();
                prop_assert!(outputs <= 1);
            }
        }
    }
}

/// Adds so many sessions at the active router.
fn fill(router: &Router, count: u64) {
    for key in 0..count {
        router.sessions.set(u16::try_from(key % 4).unwrap(), key, Some(session(key, 5)));
    }
}

#[test]
fn a_standby_that_comes_late_gets_everything_and_does_not_take_over_before() {
    let mut pair = Pair::new(3);
    fill(&pair.routers[0], 50_000);
    let now_ns = pair.now_ns;
    assert!(pair.routers[1].standby.holds(now_ns), "it has nothing");
    pair.run(sender::WALK_EVERY_NS);
    pair.rests(0);
    assert!(
        *pair.routers[1].sessions.renewed.borrow() > 0 && *pair.routers[0].sessions.renewed.borrow() == 0
    );
    assert_eq!(pair.routers[1].sessions.all().len(), 50_000);
}

#[test]
fn at_rest_little_is_sent_and_a_change_is_there_at_once() {
    let mut pair = Pair::new(4);
    fill(&pair.routers[0], 10_000);
    pair.rests(0);
    let before = pair.sent[1].len();
    pair.run(sender::WALK_EVERY_NS);
    // All sessions are 150 datagrams and more.
    let sent = pair.sent[1].len() - before;
    assert!(sent < 60, "{sent} datagrams");
    pair.routers[0].states.set(1, 77, Some(connection(77, 4)));
    pair.turn();
    pair.turn();
    assert_eq!(pair.routers[1].states.all().len(), 1);
    pair.routers[0].states.set(1, 77, None);
    pair.turn();
    pair.turn();
    assert_eq!(pair.routers[1].states.all().len(), 0);
}

#[test]
fn both_active_or_other_configurations_copy_nothing() {
    let mut pair = Pair::new(5);
    fill(&pair.routers[0], 100);
    pair.routers[1].standby.set_active(true, 0);
    pair.run(REST_NS);
    let now_ns = pair.now_ns;
    assert_eq!(pair.routers[0].view(now_ns).state, StandbyState::Conflict);
    pair.routers[1].standby.set_active(false, now_ns);
    let same = Sameness { placement: 1, ..Sameness::default() };
    pair.routers[1].with(now_ns, |standby, tables| standby.set_configuration(same, tables));
    pair.run(REST_NS);
    let now_ns = pair.now_ns;
    assert_eq!(pair.routers[0].view(now_ns).state, StandbyState::Different);
    assert!(pair.routers[1].sessions.all().is_empty());
    // Not for ever: its hosts may need it.
    pair.run(HOLD_MAX_NS);
    let now_ns = pair.now_ns;
    assert!(!pair.routers[1].standby.holds(now_ns));
    pair.routers[0].with(now_ns, |standby, tables| standby.set_configuration(same, tables));
    pair.rests(0);
    assert_eq!(pair.routers[1].sessions.all().len(), 100);
}

/// Of two hosts with one address, one is no newer version of the other.
#[test]
fn entries_of_two_vrfs_are_two() {
    let Entry::Session(red) = session(1, 5) else { panic!("a session") };
    let blue = SessionEntry { vrf: red.vrf + 1, state: 6, ..red };
    let newer = SessionEntry { state: 6, ..red };
    assert!(is_same(&Entry::Session(red), &Entry::Session(newer)));
    assert!(!is_same(&Entry::Session(red), &Entry::Session(blue)));
    let Entry::State(red) = connection(3, 5) else { panic!("a state") };
    assert!(is_same(&Entry::State(red), &Entry::State(StateEntry { phase: 6, ..red })));
    for vrfs in [[red.vrfs[0] + 1, red.vrfs[1]], [red.vrfs[0], red.vrfs[1] + 1]] {
        assert!(!is_same(&Entry::State(red), &Entry::State(StateEntry { vrfs, ..red })));
    }
}

/// The numbers of VRFs mean nothing to a router that has other ones. It says so, and counts.
#[test]
fn a_router_with_other_vrfs_gets_nothing() {
    let mut pair = Pair::new(5);
    fill(&pair.routers[0], 100);
    for (place, vrfs) in [(0, 7), (1, 8)] {
        let same = Sameness { vrfs, ..Sameness::default() };
        pair.routers[place].with(0, |standby, tables| standby.set_configuration(same, tables));
    }
    pair.run(REST_NS);
    let now_ns = pair.now_ns;
    for router in &mut pair.routers {
        let view = router.view(now_ns);
        assert_eq!(view.state, StandbyState::OtherVrfs);
        assert!(view.state.is_problem() && view.state.means().contains("VRFs"));
        assert!(view.counters.other_vrfs > 3, "{:?}", view.counters);
    }
    assert!(pair.routers[1].sessions.all().is_empty());
    // Even if the other router sends what it would not: it has learned of another configuration later.
    let changes = vec![Change { is_end: false, entry: session(1, 5) }];
    let line = &mut pair.routers[0].standby.line;
    line.send(&Message::Changes { of: ShardId { table: Table::Sessions, shard: 0 }, changes });
    pair.send(1);
    pair.turn();
    let view = pair.routers[1].view(now_ns);
    assert!(view.counters.unused > 0 && pair.routers[1].sessions.all().is_empty());
    // With the same ones all is well.
    let same = Sameness { vrfs: 7, ..Sameness::default() };
    pair.routers[1].with(now_ns, |standby, tables| standby.set_configuration(same, tables));
    pair.rests(0);
    assert_eq!(pair.routers[1].sessions.all().len(), 100);
}

/// What was sent to a run that is over, or by one, is never believed: the whole conversation again changes nothing.
#[test]
fn a_replayed_conversation_changes_nothing() {
    let mut pair = Pair::new(6);
    fill(&pair.routers[0], 100);
    pair.rests(0);
    let old = pair.sent[1].clone();
    pair.restart(0, true);
    pair.rests(0);
    assert!(pair.routers[1].sessions.all().is_empty());
    let before = pair.routers[1].view(pair.now_ns).counters;
    let now_ns = pair.now_ns;
    for datagram in &old {
        pair.routers[1].with(now_ns, |standby, tables| standby.handle(datagram, tables));
    }
    let after = pair.routers[1].view(now_ns).counters;
    assert_eq!(after.replayed - before.replayed + u64::from(after.sent > before.sent), old.len() as u64);
    assert_eq!(after.received, before.received);
    pair.rests(0);
    // A run that forgets the oldest takes another number, so that those cannot be believed either.
    for _ in 0..PAST_MAX + 2 {
        pair.restart(0, true);
        pair.run(2 * HELLO_EVERY_NS);
    }
    assert_ne!(pair.routers[1].standby.line.from, 2);
    pair.rests(0);
}

#[test]
fn a_part_too_large_for_a_message_is_replaced_in_pieces() {
    let mut pair = Pair::new(7);
    pair.rests(0);
    // The walk's shard had few entries when it was divided into parts.
    let division =
        parts::Division { of: ShardId { table: Table::States, shard: 0 }, bits: 0, secret: SECRET };
    for key in 0..200 {
        pair.routers[0].states.set(0, key, Some(connection(key, 4)));
        pair.routers[1].states.set(0, key + 100, Some(connection(key + 100, 3)));
    }
    let now_ns = pair.now_ns;
    let digest = pair.routers[0].with(now_ns, |_, tables| division.digests(tables, false));
    pair.routers[1].with(now_ns, |standby, tables| {
        let Standby { receiver, line, .. } = standby;
        receiver.compare((99, division.part(0)), &digest, line, tables, SECRET);
    });
    pair.send(0);
    // No walk can have healed it.
    for _ in 0..3 {
        pair.turn();
    }
    let [a, b] = [0, 1].map(|place| pair.routers[place].states.all());
    assert_eq!(a, b);
    assert_eq!(b.len(), 200);
}

#[test]
fn only_the_key_tells_entries_apart() {
    assert!(is_same(&session(1, 2), &session(1, 3)) && !is_same(&session(1, 2), &session(2, 2)));
    assert!(is_same(&connection(1, 2), &connection(1, 3)) && !is_same(&connection(1, 2), &session(1, 2)));
}

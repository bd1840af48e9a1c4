use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
/// 100 ms.
const INTERVAL_CS: u16 = 10;
const INTERVAL_NS: u64 = 100 * MS;

fn config(priority: u8, is_ipv6: bool) -> VrrpConfig {
    let shared = if is_ipv6 { "fe80::1" } else { "192.0.2.1" };
    VrrpConfig {
        port: 2,
        id: 7,
        addresses: vec![shared.parse().unwrap()],
        priority,
        interval_cs: INTERVAL_CS,
        preempt: true,
        accept: false,
        pseudo_header: false,
    }
}

fn source(place: usize, is_ipv6: bool) -> IpAddr {
    let text = if is_ipv6 { format!("fe80::{}", 11 + place) } else { format!("192.0.2.{}", 11 + place) };
    text.parse().unwrap()
}

fn state(routers: &VirtualRouters) -> VrrpState {
    routers.view().next().unwrap().state
}

/// Calls a router that hears nothing until it is Active; returns the time.
fn active_at(routers: &mut VirtualRouters) -> u64 {
    loop {
        let now_ns = routers.next_deadline().unwrap();
        routers.handle_timer(now_ns);
        if state(routers) == VrrpState::Active {
            return now_ns;
        }
    }
}

/// Routers on one link, on virtual time.
struct Link {
    routers: Vec<VirtualRouters>,
    /// A router whose process is stopped: it is not called, and hears nothing.
    stopped: Option<usize>,
    now_ns: u64,
    is_ipv6: bool,
}

impl Link {
    fn of(configs: &[VrrpConfig]) -> Self {
        let is_ipv6 = configs[0].is_ipv6();
        let mut link = Self {
            routers: configs.iter().map(|config| VirtualRouters::new([config.clone()])).collect(),
            stopped: None,
            now_ns: 0,
            is_ipv6,
        };
        for place in 0..configs.len() {
            link.set_up(place, true);
        }
        link
    }

    fn set_up(&mut self, place: usize, is_up: bool) {
        let source = is_up.then(|| source(place, self.is_ipv6));
        self.routers[place].set_source(0, source, self.now_ns);
    }

    /// Runs until a time. `hears` says whether a packet of one router reaches another.
    fn run(&mut self, until_ns: u64, mut hears: impl FnMut(usize, usize) -> bool) {
        loop {
            // A router with something to say says it now.
            for from in 0..self.routers.len() {
                while let Some(output) = self.routers[from].poll_output() {
                    let VrrpOutput::Send { packet, .. } = output else { continue };
                    for to in (0..self.routers.len()).filter(|to| *to != from) {
                        if hears(from, to) && self.stopped != Some(to) {
                            assert!(self.routers[to].handle_packet(2, &packet, self.now_ns));
                        }
                    }
                }
            }
            let stopped = self.stopped;
            let runs = |place: &usize| Some(*place) != stopped;
            let run = || (0..self.routers.len()).filter(runs);
            let next = run().filter_map(|place| self.routers[place].next_deadline()).min();
            let Some(next) = next.filter(|next| *next <= until_ns) else { break };
            self.now_ns = next.max(self.now_ns);
            for place in (0..self.routers.len()).filter(runs) {
                self.routers[place].handle_timer(self.now_ns);
            }
        }
        self.now_ns = until_ns;
    }

    fn active(&self) -> Vec<usize> {
        let is_active = |place: &usize| state(&self.routers[*place]) == VrrpState::Active;
        (0..self.routers.len()).filter(is_active).collect()
    }
}

proptest! {
    /// Packets are lost, ports go down and up, and routers are stopped at random. Afterwards, as soon as packets pass for the longest down
    /// interval, exactly one router that is up is Active: with preemption the best one.
    #[test]
    fn there_is_one_active_router_once_packets_pass(
        priorities in prop::collection::vec(1u8..=254, 2..4),
        preempt: bool,
        is_ipv6: bool,
        storm in prop::collection::vec((0usize..4, any::<bool>(), 1u64..400, 0u8..100, 0usize..6), 0..20),
        seed: u64,
    ) {
        let configs: Vec<_> =
            priorities.iter().map(|priority| VrrpConfig { preempt, ..config(*priority, is_ipv6) }).collect();
        let mut link = Link::of(&configs);
        let mut chance = thalweg_base::XorShift64Star::new(seed);
        let mut is_up = vec![true; configs.len()];
        for (place, up, ms, loss, stopped) in storm {
            let place = place % configs.len();
            is_up[place] = up;
            link.set_up(place, up);
            link.stopped = (stopped < configs.len()).then_some(stopped);
            link.run(link.now_ns + ms * MS, |_, _| chance.below(100) >= u32::from(loss));
        }
        link.stopped = None;
        // Three intervals and the longest skew, and the answers.
        link.run(link.now_ns + 4 * INTERVAL_NS + 2 * MS, |_, _| true);
        let up: Vec<usize> = (0..configs.len()).filter(|place| is_up[*place]).collect();
        let active = link.active();
        prop_assert_eq!(active.len(), up.len().min(1), "{:?} of {:?}", active, up);
        if preempt && let Some(active) = active.first() {
            let best = up.iter().map(|place| priorities[*place]).max();
            prop_assert_eq!(Some(priorities[*active]), best);
        }
        // And it stays so.
        let before = link.active();
        link.run(link.now_ns + 20 * INTERVAL_NS, |_, _| true);
        prop_assert_eq!(link.active(), before);
    }

    /// When the Active router dies without a word, the next one takes over within three intervals and its skew.
    #[test]
    fn the_next_takes_over_in_time(first in 2u8..=254, second in 1u8..=253, is_ipv6: bool, at in 0u64..100) {
        prop_assume!(second < first);
        let mut link = Link::of(&[config(first, is_ipv6), config(second, is_ipv6)]);
        link.run(20 * INTERVAL_NS + at * MS, |_, _| true);
        prop_assert_eq!(link.active(), [0]);
        link.routers[0] = VirtualRouters::default();
        let dead_ns = link.now_ns;
        let skew_ns = (256 - u64::from(second)) * INTERVAL_NS / 256;
        link.run(dead_ns + 2 * INTERVAL_NS, |_, to| to == 1);
        prop_assert_eq!(state(&link.routers[1]), VrrpState::Backup, "not before its time");
        link.run(dead_ns + 3 * INTERVAL_NS + skew_ns, |_, to| to == 1);
        prop_assert_eq!(state(&link.routers[1]), VrrpState::Active);
    }

    #[test]
    fn nothing_from_outside_panics(packet in prop::collection::vec(any::<u8>(), 0..80), v6: bool, at in 0usize..60, bit in 0u8..8) {
        let mut routers = VirtualRouters::new([config(100, v6)]);
        routers.set_source(0, Some(source(0, v6)), 0);
        routers.handle_packet(2, &packet, 1);
        let mut other = VirtualRouters::new([config(200, v6)]);
        other.set_source(0, Some(source(1, v6)), 0);
        active_at(&mut other);
        let Some(VrrpOutput::Send { mut packet, .. }) = std::iter::from_fn(|| other.poll_output()).find(|output| matches!(output, VrrpOutput::Send { .. })) else {
            panic!("it advertises");
        };
        let length = packet.len();
        packet[at % length] ^= 1 << bit;
        routers.handle_packet(2, &packet, 2);
    }
}

#[test]
fn a_router_that_stops_says_so() {
    let mut link = Link::of(&[config(200, false), config(100, false)]);
    link.run(20 * INTERVAL_NS, |_, _| true);
    let now_ns = link.now_ns;
    link.routers[0].stop(now_ns);
    // The skew alone.
    link.run(now_ns + (256 - 100) * INTERVAL_NS / 256, |_, _| true);
    assert_eq!((state(&link.routers[0]), link.active()), (VrrpState::Initialize, vec![1]));
}

#[test]
fn a_router_that_holds_takes_over_only_from_a_silent_one() {
    let mut link = Link::of(&[config(200, false), config(100, false)]);
    link.routers[0].hold(true);
    link.set_up(0, false);
    link.run(10 * INTERVAL_NS, |_, _| true);
    link.set_up(0, true);
    link.run(link.now_ns + 20 * INTERVAL_NS, |_, _| true);
    assert_eq!(link.active(), [1], "it leaves the addresses to the other one");
    link.run(link.now_ns + 5 * INTERVAL_NS, |_, _| false);
    assert_eq!(link.active(), [0, 1], "which it does not hear any more");
    link.set_up(0, false);
    link.run(link.now_ns + 10 * INTERVAL_NS, |_, _| true);
    link.set_up(0, true);
    link.run(link.now_ns + 20 * INTERVAL_NS, |_, _| true);
    assert_eq!(link.active(), [1]);
    link.routers[0].hold(false);
    link.run(link.now_ns + 5 * INTERVAL_NS, |_, _| true);
    assert_eq!(link.active(), [0]);
    assert!(link.routers[0].is_any_active() && !link.routers[1].is_any_active());
}

/// How often a router became Active.
fn became_active(link: &Link, place: usize) -> u64 {
    link.routers[place].view().next().unwrap().became_active
}

#[test]
fn a_backup_that_was_stopped_does_not_take_that_for_silence() {
    let mut link = Link::of(&[config(200, false), config(100, false)]);
    link.run(10 * INTERVAL_NS, |_, _| true);
    for intervals in [2, 4, 50] {
        link.stopped = Some(1);
        link.run(link.now_ns + intervals * INTERVAL_NS, |_, _| true);
        link.stopped = None;
        link.run(link.now_ns + 10 * INTERVAL_NS, |_, _| true);
        assert_eq!((link.active(), became_active(&link, 1)), (vec![0], 0), "{intervals} intervals");
    }
    // Silence is still noticed in time: what it has heard before counts for one interval.
    link.stopped = Some(1);
    link.run(link.now_ns + 50 * INTERVAL_NS, |_, _| true);
    link.stopped = None;
    link.routers[0] = VirtualRouters::default();
    link.run(link.now_ns + 3 * INTERVAL_NS + 156 * INTERVAL_NS / 256, |_, to| to == 1);
    assert_eq!(state(&link.routers[1]), VrrpState::Active);
}

/// Who has taken over knows what the router that was stopped does not.
#[test]
fn an_active_router_that_was_stopped_steps_back() {
    let mut link = Link::of(&[config(200, false), config(100, false)]);
    link.run(10 * INTERVAL_NS, |_, _| true);
    link.stopped = Some(0);
    link.run(link.now_ns + 2 * INTERVAL_NS, |_, _| true);
    link.stopped = None;
    link.run(link.now_ns + INTERVAL_NS, |_, _| true);
    assert_eq!((link.active(), became_active(&link, 0)), (vec![0], 1), "nobody has taken over so soon");

    link.stopped = Some(0);
    link.run(link.now_ns + 10 * INTERVAL_NS, |_, _| true);
    (link.stopped, link.routers[0].holds) = (None, true);
    link.run(link.now_ns + 10 * INTERVAL_NS, |_, _| true);
    assert_eq!((link.active(), became_active(&link, 0)), (vec![1], 1));
    link.routers[0].hold(false);
    link.run(link.now_ns + 4 * INTERVAL_NS, |_, _| true);
    assert_eq!(link.active(), [0], "then it preempts");

    // Where nobody has taken over it is back after an interval and its skew.
    link.routers[1] = VirtualRouters::default();
    link.stopped = Some(0);
    link.run(link.now_ns + 10 * INTERVAL_NS, |_, _| false);
    link.stopped = None;
    link.run(link.now_ns + INTERVAL_NS + 56 * INTERVAL_NS / 256, |_, to| to == 0);
    assert_eq!(state(&link.routers[0]), VrrpState::Active);
}

#[test]
fn the_owner_is_active_at_once_and_listens_to_nobody() {
    let mut owner = VirtualRouters::new([config(255, false)]);
    owner.set_source(0, Some(source(0, false)), 0);
    assert_eq!(state(&owner), VrrpState::Active);
    let mut link = Link::of(&[config(255, false), config(254, false)]);
    link.run(10 * INTERVAL_NS, |_, _| true);
    assert_eq!(link.active(), [0]);
    // The other believes it is alone, and is told.
    link.run(20 * INTERVAL_NS, |from, _| from == 1);
    assert_eq!(link.active(), [0, 1]);
    link.run(22 * INTERVAL_NS, |_, _| true);
    assert_eq!(link.active(), [0]);
    assert!(link.routers[0].view().next().unwrap().ignored.contains_key("owner"));
}

#[test]
fn advertisements_from_beyond_the_link_and_of_others_count_for_nothing() {
    let mut routers = VirtualRouters::new([config(100, false)]);
    routers.set_source(0, Some(source(0, false)), 0);
    let packet = |ttl: u8, id: u8, interval: u16| {
        let (from, to) = (source(1, false), IpAddr::from(GROUP_V4));
        let listed = ["192.0.2.1".parse().unwrap()];
        let message = VrrpRepr { id, priority: 200, count: 1, interval }.encode(&listed, (from, to), false);
        let IpAddr::V4(from) = from else { unreachable!("IPv4") };
        let header = Ipv4Repr { ttl, ..Ipv4Repr::new(from, GROUP_V4, PROTOCOL, message.len()) };
        [&header.encode()[..], &message].concat()
    };
    assert!(!routers.handle_packet(2, &packet(255, 8, 10), 0), "another virtual router");
    assert!(!routers.handle_packet(3, &packet(255, 7, 10), 0), "another port");
    assert!(routers.handle_packet(2, &packet(254, 7, 10), 0));
    assert!(routers.handle_packet(2, &packet(255, 7, 0), 0));
    let view = routers.view().next().unwrap();
    assert_eq!((view.received, view.active), (0, None));
    assert_eq!(view.ignored, [("hop-limit", 1), ("malformed", 1)].into());
    assert!(routers.handle_packet(2, &packet(255, 7, 20), 0));
    let view = routers.view().next().unwrap();
    assert_eq!((view.active, view.active_priority), (Some(source(1, false)), Some(200)));
    // It waits by the interval of the Active router.
    assert_eq!(active_at(&mut routers), 2 * (3 * INTERVAL_NS + 156 * INTERVAL_NS / 256));
}

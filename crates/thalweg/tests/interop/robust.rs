//! One neighbor misbehaves; the others must not notice.
//!
//! Two neighbors behave well: the steady one announces a table, and the monitor must receive it. Both are the
//! laboratory's own. The misbehaving neighbor is too, except that BIRD is used where a real daemon is stopped.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use thalweg_base::{IpPrefix, XorShift64Star};
use thalweg_lab::bgp::client::{Client, ClientConfig, Speaker};
use thalweg_lab::bgp::message::{self, Stream, kind};
use thalweg_lab::bgp::monitor::Goal;
use thalweg_lab::bgp::order::Run;
use thalweg_lab::bgp::table::{Neighbors, Packing, PathKind, Table};
use thalweg_wire::bgp::Family as Afi;

use crate::net::{End, Net, until};
use crate::router::{Family, Make, Route, Router, Spec};
use crate::thalweg::Thalweg;

/// Addresses of the steady neighbor, the monitor, and the neighbor in trouble.
const STEADY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 20);
const MONITOR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 21);
const TROUBLE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 30);
const STEADY_AS: u32 = 64_620;
const MONITOR_AS: u32 = 64_621;
const TROUBLE_AS: u32 = 64_630;
const CONVERGE: Duration = Duration::from_secs(20);

fn neighbors(address: Ipv4Addr, as_number: u32) -> Neighbors {
    Neighbors { count: 1, address, as_number }
}

/// The daemon and its neighbors, before any has connected.
struct Stage<'a> {
    net: &'a Net,
    thalweg: Thalweg<'a>,
}

impl<'a> Stage<'a> {
    fn new(net: &'a Net, change: impl FnOnce(Spec) -> Spec) -> Stage<'a> {
        net.add_addresses(End::Right, [STEADY, MONITOR, TROUBLE].into_iter());
        let mut spec = Spec::new(End::Left);
        spec.families = Vec::new();
        spec.others = vec![(STEADY, STEADY_AS), (MONITOR, MONITOR_AS), (TROUBLE, TROUBLE_AS)];
        Stage { net, thalweg: Thalweg::start_in(net, change(spec)) }
    }

    fn config(&self, speakers: &[(Ipv4Addr, u32)], monitored: bool) -> ClientConfig {
        let speaker = |(address, as_number): &(Ipv4Addr, u32)| Speaker {
            source: (*address).into(),
            as_number: *as_number,
            router_id: *address,
        };
        ClientConfig {
            daemon: SocketAddr::new(End::Left.v4().into(), 179),
            daemon_as: 65001,
            speakers: speakers.iter().map(speaker).collect(),
            monitored,
            families: vec![Afi::Ipv4],
            hold_time_s: 90,
            connect_timeout: Duration::from_secs(15),
            pace: Duration::ZERO,
        }
    }

    /// Connects the steady neighbor and the monitor.
    fn steady(&self) -> Client {
        let config = self.config(&[(STEADY, STEADY_AS), (MONITOR, MONITOR_AS)], true);
        self.net
            .within(End::Right, || Client::connect(&config))
            .expect("the well-behaved neighbors' sessions come up")
    }

    /// The steady neighbor announces `table`; the monitor must receive all of it and nothing else but `more`.
    fn converges(&mut self, client: &Client, table: &Table, more: &[(IpPrefix, u64)]) {
        let stream = table.announce(0, PathKind::Any, true);
        let expected: Vec<_> =
            table.expected(PathKind::Any, true, Some(0)).chain(more.iter().copied()).collect();
        client.monitor().expect(expected.into_iter(), 0, Goal::Table);
        let messages = stream.messages();
        client.send(&[stream], &[Run { peer: 0, messages }]).expect("the daemon reads");
        self.holds(client);
    }

    /// Waits for the expected state; the well-behaved neighbors keep their sessions.
    fn holds(&mut self, client: &Client) {
        self.thalweg.check().expect("the daemon lives");
        let reached = client.wait(CONVERGE).expect("the well-behaved neighbors' sessions stay up");
        assert!(
            reached.is_some(),
            "not converged: (expected, right, present) = {:?}",
            client.monitor().state()
        );
        client.check().expect("the well-behaved neighbors' sessions stay up");
        assert_eq!(client.monitor().heard().foreign_paths, 0);
        for neighbor in [STEADY, MONITOR] {
            assert_eq!(self.thalweg.state(neighbor.into()).expect("an answer"), "established");
        }
    }

    fn trouble_is(&mut self, up: bool, limit_s: u64) {
        until("the state of the neighbor in trouble", limit_s, || {
            self.thalweg.check()?;
            let state = self.thalweg.state(TROUBLE.into())?;
            if (state == "established") == up { Ok(()) } else { Err(state) }
        });
    }
}

fn table(prefixes: usize, seed: u64) -> Table {
    Table::made(prefixes, Packing::Real, neighbors(STEADY, STEADY_AS), seed)
}

/// RFC 4271 5.1.3: on a network that all routers share, packets between two neighbors do not pass through us.
#[test]
fn a_next_hop_on_a_shared_network_stays() {
    let Some(net) = Net::new() else { return };
    let mut stage =
        Stage::new(&net, |spec| Spec { families: vec![Family::V4], third_party_next_hops: true, ..spec });
    // ExaBGP accepts any next hop, even an address of its own machine.
    let make: Make = crate::exabgp::make;
    let spec = Spec { families: vec![Family::V4], ..Spec::new(End::Right) };
    let Some(mut exabgp) = make(&net, spec) else { return };
    until("ExaBGP's session", 20, || exabgp.established(Family::V4));
    let steady = stage.steady();
    stage.converges(&steady, &table(50, 3), &[]);
    until("ExaBGP has the table, with the next hop of the neighbor that announced it", 20, || {
        let routes = exabgp.routes(Family::V4)?;
        let stays = |routes: &Vec<Route>| routes.iter().all(|route| route.next_hop == Some(STEADY.into()));
        match routes.len() == 50 && routes.values().all(stays) {
            true => Ok(()),
            false => Err(format!("{routes:?}")),
        }
    });
}

/// A host vanishes without a packet: the hold timer ends the session, and its routes go.
#[test]
fn a_connection_that_is_half_open() {
    let Some(net) = Net::new() else { return };
    let mut stage = Stage::new(&net, |spec| Spec { hold_time_s: 3, ..spec });
    let steady = stage.steady();
    let mut config = stage.config(&[(TROUBLE, TROUBLE_AS)], false);
    config.hold_time_s = 3;
    let trouble = net.within(End::Right, || Client::connect(&config)).expect("it comes up");
    let doomed = Table::made(500, Packing::Real, neighbors(TROUBLE, TROUBLE_AS), 8);
    let stream = doomed.announce(0, PathKind::Any, true);
    steady.monitor().expect(doomed.expected(PathKind::Any, true, Some(0)), 0, Goal::Table);
    trouble.send_bytes(0, &stream.bytes).expect("the daemon reads");
    stage.holds(&steady);
    net.remove_address(End::Right, TROUBLE);
    steady.monitor().expect(std::iter::empty(), 0, Goal::Empty);
    stage.trouble_is(false, 10);
    stage.holds(&steady);
    stage.converges(&steady, &table(1000, 1), &[]);
}

/// When a large table is gone, its memory returns to the system, not only to the allocator.
#[test]
fn memory_goes_back_when_routes_have_gone() {
    const ROUTES: usize = 100_000;
    let Some(net) = Net::new() else { return };
    let stage = &mut Stage::new(&net, |spec| spec);
    let steady = stage.steady();
    stage.converges(&steady, &table(1000, 1), &[]);
    let config = stage.config(&[(TROUBLE, TROUBLE_AS)], false);
    let trouble = net.within(End::Right, || Client::connect(&config)).expect("it comes up");
    let begun_kib = stage.thalweg.memory_kib();
    // Prefixes outside the steady neighbor's table.
    let prefix = |n: usize| format!("100.{}.{}.{}/31", n >> 15, (n >> 7) & 255, (n & 127) * 2);
    let prefixes: Vec<IpPrefix> = (0..ROUTES).map(|n| prefix(n).parse().expect("a prefix")).collect();
    let parts = prefixes.chunks(ROUTES / 4);
    let parts: Vec<Table> = parts
        .map(|part| Table::of(part.to_vec(), Packing::Real, neighbors(TROUBLE, TROUBLE_AS), 2))
        .collect();
    let stays: Vec<_> = table(1000, 1).expected(PathKind::Any, true, Some(0)).collect();
    for (number, part) in (1..).zip(&parts) {
        let so_far = parts[..number].iter().flat_map(|part| part.expected(PathKind::Any, true, Some(0)));
        steady.monitor().expect(so_far.chain(stays.iter().copied()), 0, Goal::Table);
        trouble.send_bytes(0, &part.announce(0, PathKind::Any, true).bytes).expect("the daemon reads");
        stage.holds(&steady);
    }
    let full_kib = stage.thalweg.memory_kib();
    let grown = full_kib - begun_kib;
    assert!(grown > 4 << 10, "{ROUTES} routes take {grown} KiB");
    drop(trouble);
    let mut most = grown;
    until("memory goes back", 60, || {
        let left = stage.thalweg.memory_kib().saturating_sub(begun_kib);
        println!("{ROUTES} routes took {grown} KiB; {left} KiB are left");
        most = most.max(left);
        if left < most / 2 { Ok(()) } else { Err(format!("{left} KiB of {most}")) }
    });
    steady.check().expect("the well-behaved neighbors' sessions stay up");
}

/// A real neighbor is stopped while a table is sent: it delays no other neighbor, and catches up when it
/// continues.
#[test]
fn a_neighbor_that_stops_reading() {
    let Some(net) = Net::new() else { return };
    let with_bird = |spec: Spec| Spec { families: vec![Family::V4], ..spec };
    let mut stage = Stage::new(&net, with_bird);
    let spec = Spec { families: vec![Family::V4], ..Spec::new(End::Right) };
    let make: Make = crate::bird::make;
    let Some(mut bird) = make(&net, spec) else { return };
    until("BIRD's session", 20, || bird.established(Family::V4));
    let steady = stage.steady();
    bird.signal("STOP");
    let before_kib = stage.thalweg.memory_kib();
    // The same prefixes many times with other attributes: more than the sockets' buffers hold.
    for seed in 1..=10 {
        let prefixes = table(20_000, 1).prefixes().to_vec();
        let again = Table::of(prefixes, Packing::Real, neighbors(STEADY, STEADY_AS), seed);
        stage.converges(&steady, &again, &[]);
    }
    let grown_kib = stage.thalweg.memory_kib().saturating_sub(before_kib);
    assert!(grown_kib < 200 << 10, "a neighbor that does not read costs {grown_kib} KiB");
    bird.signal("CONT");
    until("BIRD catches up", 30, || {
        let routes = bird.routes(Family::V4)?.len();
        if routes == 20_000 { Ok(()) } else { Err(format!("{routes} routes of 20,000")) }
    });
    stage.holds(&steady);
}

/// Garbage ends at most its own session. Each round uses another neighbor, because a daemon may refuse the same
/// one for a while after an error.
#[test]
fn a_neighbor_that_sends_garbage() {
    const ROUNDS: u32 = 30;
    let Some(net) = Net::new() else { return };
    let neighbor = |round: u32| (Ipv4Addr::from(u32::from(TROUBLE) + 1 + round), TROUBLE_AS + 1 + round);
    net.add_addresses(End::Right, (0..ROUNDS).map(|round| neighbor(round).0));
    let mut stage = Stage::new(&net, |mut spec| {
        spec.others.extend((0..ROUNDS).map(neighbor));
        spec
    });
    let steady = stage.steady();
    let mut rng = XorShift64Star::new(17);
    for round in 0..ROUNDS {
        let config = stage.config(&[neighbor(round)], false);
        let mut noise: Vec<u8> = (0..1 + rng.below(4000)).map(|_| rng.next_u64() as u8).collect();
        if round % 3 == 0 {
            // Before an OPEN.
            net.within(End::Right, || shout(neighbor(round).0, config.daemon, &noise));
        } else {
            // With a valid header, in an established session.
            let mut bytes = Vec::new();
            noise.truncate(600);
            let any = 1 + rng.below(6) as u8;
            let kind = if round % 3 == 1 { kind::UPDATE } else { any };
            message::message(&mut bytes, kind, |out| out.extend_from_slice(&noise));
            let client = net.within(End::Right, || Client::connect(&config)).expect("it comes up");
            // The daemon may close the connection before everything is sent.
            let _ = client.send_bytes(0, &bytes);
            std::thread::sleep(Duration::from_millis(20));
        }
        stage.thalweg.check().expect("the daemon lives");
    }
    stage.converges(&steady, &table(2000, 3), &[]);
}

/// Connects from an address, sends bytes and disconnects.
fn shout(from: Ipv4Addr, to: SocketAddr, bytes: &[u8]) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(from.into(), 0).into()).expect("an address");
    if socket.connect_timeout(&to.into(), Duration::from_secs(2)).is_ok() {
        let mut stream = TcpStream::from(socket);
        let _ = stream.write_all(bytes);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = stream.read(&mut [0; 4096]);
    }
}

/// One neighbor sends changes at a rate of 100,000 per minute for ten seconds; the well-behaved neighbors'
/// changes still arrive.
#[test]
fn a_neighbor_that_flaps() {
    const SECONDS: u64 = 8;
    const PER_SECOND: usize = 100_000 / 60;
    let Some(net) = Net::new() else { return };
    let mut stage = Stage::new(&net, |spec| spec);
    let steady = stage.steady();
    let config = stage.config(&[(TROUBLE, TROUBLE_AS)], false);
    let trouble = net.within(End::Right, || Client::connect(&config)).expect("it comes up");
    // Host routes, which no generated table has.
    let mut on = Stream::default();
    let prefixes: Vec<IpPrefix> = (0..PER_SECOND / 20)
        .map(|i| format!("198.51.{}.{}/32", i / 256, i % 256).parse().expect("a prefix"))
        .collect();
    let flapping = Table::of(prefixes.clone(), Packing::Small, neighbors(TROUBLE, TROUBLE_AS), 4);
    on.bytes = flapping.announce(0, PathKind::Any, true).bytes;
    let mut off = Stream::default();
    off.withdraw(&prefixes, 1);
    let more: Vec<_> = flapping.expected(PathKind::Any, true, Some(0)).collect();
    std::thread::scope(|scope| {
        let flaps = scope.spawn(|| {
            let begun = Instant::now();
            // Twenty times a second, with equal numbers of changes. The number of rounds is even, so all prefixes
            // are announced at the end.
            for tick in 0..20 * SECONDS {
                let due = begun + Duration::from_millis(50 * tick);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let bytes = if tick % 2 == 0 { &off.bytes } else { &on.bytes };
                trouble.send_bytes(0, bytes).expect("the daemon reads");
            }
        });
        let mut seed = 10;
        while !flaps.is_finished() {
            // Another table in each round: the steady neighbor's prefixes must be right within the time limit.
            seed += 1;
            let table = table(3000, 5);
            let again =
                Table::of(table.prefixes().to_vec(), Packing::Real, neighbors(STEADY, STEADY_AS), seed);
            let stream = again.announce(0, PathKind::Any, true);
            let messages = stream.messages();
            // Flapping prefixes come and go; the goal is reached once all of them are present.
            let expected = again.expected(PathKind::Any, true, Some(0)).chain(more.iter().copied());
            steady.monitor().expect(expected, 0, Goal::Table);
            steady.send(&[stream], &[Run { peer: 0, messages }]).expect("the daemon reads");
            assert!(
                steady.wait(CONVERGE).expect("sessions stay up").is_some(),
                "not while another one flaps"
            );
        }
        flaps.join().expect("all flaps are sent");
    });
    stage.converges(&steady, &table(3000, 5), &more);
    stage.trouble_is(true, 1);
}

/// A neighbor is killed while it announces its table: its announced routes go, and nothing else.
#[test]
fn a_neighbor_that_is_killed() {
    let Some(net) = Net::new() else { return };
    let mut stage = Stage::new(&net, |spec| spec);
    let steady = stage.steady();
    let config = stage.config(&[(TROUBLE, TROUBLE_AS)], false);
    let doomed = Table::made(30_000, Packing::Real, neighbors(TROUBLE, TROUBLE_AS), 8);
    let stream = doomed.announce(0, PathKind::Any, true);
    for round in 1..=3 {
        let trouble = net.within(End::Right, || Client::connect(&config)).expect("it comes up");
        let part = stream.ends[stream.messages() * round / 4];
        // Whole messages and half of the next.
        trouble.send_bytes(0, &stream.bytes[..part + 10]).expect("the daemon reads");
        drop(trouble);
        stage.trouble_is(false, 5);
    }
    stage.converges(&steady, &table(5000, 6), &[]);
}

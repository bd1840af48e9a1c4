//! Floods: bounds hold, and known neighbors stay known.

use super::*;
use proptest::prelude::*;
use thalweg_base::XorShift64Star;
use thalweg_wire::MacAddr;

fn host6(n: u64) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(OUR6) & !0xffff_ffff | 0x1_0000_0000 | u128::from(n))
}

fn mac(n: u64) -> MacAddr {
    let [.., a, b, c] = n.to_be_bytes();
    MacAddr([2, 1, 0, a, b, c])
}

/// RFC 6583: a scan of a /64 from outside.
#[test]
fn a_scan_takes_only_its_ports_waiting_places() {
    let mut table = table();
    for n in 0..100 {
        table.handle_nd(0, &solicitation((mac(n), host6(n)), OUR6), START).expect("room for a hundred");
    }
    let elsewhere = Ipv4Addr::new(10, 0, 1, 9);
    let mut questions = outputs(&mut table).len() - 200;
    let mut now = START;
    for n in 0..200_000 {
        now = START + n * 10_000; // 100,000 a second, for two seconds
        table.handle_timer(now);
        table.resolve(0, host6(1_000_000 + n).into(), vec![0; 100], now);
        while let Some(output) = table.poll_output() {
            questions += usize::from(matches!(output, Output::Send { .. }));
            assert!(!matches!(output, Output::Lost { .. }), "a known neighbor went for a scan");
        }
    }
    table.assert_consistent();
    assert!(questions <= 100 + 2 * 200 + 1, "questions are limited: {questions}");
    assert!(table.counters().packets_unreachable[Unreachable::TooManyUnresolved.index()] > 190_000);
    assert_eq!(table.view().filter(|view| view.mac.is_some()).count(), 100);
    assert!(table.view().count() <= 100 + 128);
    // The other port is unaffected, and so are wanted gateways; hosts that ask for us get in.
    table.resolve(1, elsewhere.into(), b"packet".to_vec(), now);
    assert!(matches!(outputs(&mut table)[..], [Output::Send { port: 1, .. }]));
    assert!(table.want(0, HOST6.into(), now));
    assert!(matches!(outputs(&mut table)[..], [Output::Send { port: 0, .. }]));
    table.handle_nd(0, &solicitation((mac(500), host6(500)), OUR6), now).expect("there is room");
    assert!(outputs(&mut table).contains(&resolved(host6(500), mac(500))));
    // All solicitations of the scan end.
    run_until(&mut table, now + 60 * SECOND);
    assert!(table.view().all(|view| view.mac.is_some() || view.is_wanted));
}

/// A neighbor on the link pretends to be many, and asks for us in all their names.
#[test]
fn invented_hosts_fill_a_port_and_no_more() {
    let config = NeighborConfig { entries_per_port_max: 50, entries_max: 80, ..NeighborConfig::default() };
    let mut table = table_of(config);
    table.handle_nd(0, &solicitation((HOST_MAC, HOST6), OUR6), START).expect("there is room");
    for n in 0..1000 {
        let heard = table.handle_nd(0, &solicitation((mac(n), host6(n)), OUR6), START + n);
        assert_eq!(heard, if n < 49 { Ok(()) } else { Err(Ignored::TableFull) });
        let seen = outputs(&mut table);
        assert!(matches!(seen[0], Output::Send { .. }), "they are answered all the same");
        assert!(!seen.iter().any(|output| matches!(output, Output::Lost { .. })));
    }
    // A neighbor with traffic replaces the entry that has been STALE longest.
    let now = START + SECOND;
    table.resolve(0, host6(5000).into(), b"packet".to_vec(), now);
    outputs(&mut table);
    table
        .handle_nd(0, &advertisement((mac(5000), host6(5000)), 0x60), now)
        .expect("the router had sent a request");
    let seen = outputs(&mut table);
    assert_eq!(
        seen,
        [lost(HOST6), resolved(host6(5000), mac(5000)), forward(host6(5000), mac(5000), b"packet")]
    );
    assert_eq!(table.counters().evicted, 1);
}

#[test]
fn where_all_are_in_use_the_packet_goes_and_nothing_is_remembered() {
    let mut table = table_of(NeighborConfig { entries_per_port_max: 1, ..NeighborConfig::default() });
    for n in 0..2 {
        table.resolve(0, host6(n).into(), b"packet".to_vec(), START);
        outputs(&mut table);
        let heard = table.handle_nd(0, &advertisement((mac(n), host6(n)), 0x60), START);
        assert_eq!(heard, if n == 0 { Ok(()) } else { Err(Ignored::TableFull) });
        assert!(outputs(&mut table).contains(&forward(host6(n), mac(n), b"packet")));
    }
    assert_eq!(table.view().count(), 1);
}

#[test]
fn waiting_bytes_are_bounded() {
    let mut table = table_of(NeighborConfig { queue_bytes_max: 5000, ..NeighborConfig::default() });
    for n in 0..100 {
        table.resolve(0, host6(n).into(), vec![0; 1500], START);
        outputs(&mut table);
    }
    assert_eq!(table.waiting(), (3, 4500));
    assert_eq!(table.counters().packets_unreachable[Unreachable::QueueFull.index()], 97);
    run_until(&mut table, START + 60 * SECOND);
    assert_eq!(table.waiting(), (0, 0));
}

#[test]
fn wanted_and_static_neighbors_are_bounded() {
    let mut table = table_of(NeighborConfig { wanted_max: 3, ..NeighborConfig::default() });
    let wanted: Vec<bool> = (0..5).map(|n| table.want(0, host6(n).into(), START)).collect();
    assert_eq!(wanted, [true, true, true, false, false]);
    assert!(table.want(0, host6(0).into(), START), "again is no more");
    table.unwant(0, host6(0).into());
    assert!(table.want(0, host6(9).into(), START));
    let fixed: Vec<bool> =
        (0..5).map(|n| table.set_static(0, host6(n).into(), Some(mac(n)), START)).collect();
    assert_eq!(fixed, [true, true, true, false, false]);
}

#[test]
fn a_clock_that_jumps_harms_nothing() {
    let mut table = table();
    table.want(0, HOST4.into(), START);
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), OUR4), START)
        .expect("the frame is addressed to the router");
    for now in [u64::MAX, 0, START, u64::MAX - 1, 1] {
        table.handle_timer(now);
        table.resolve(0, HOST6.into(), b"packet".to_vec(), now);
        table.used(0, HOST4.into(), now);
        outputs(&mut table);
    }
}

/// One step of chaos: an action of an attacker on the link, of a caller or of time.
fn step(table: &mut Table, chance: &mut XorShift64Star, now: u64) {
    let host = u64::from(chance.below(40));
    let port = chance.below(3) as u16;
    let address4 = Ipv4Addr::new(10, 0, chance.below(2) as u8, 10 + host as u8);
    let from = (mac(u64::from(chance.below(4)) * 100 + host), address4);
    let frame = match chance.below(6) {
        0 => arp_request(from, [OUR4, address4][chance.below(2) as usize]),
        1 => arp_reply(from),
        2 => solicitation((from.0, host6(host)), OUR6),
        3 => advertisement((from.0, host6(host)), chance.below(256) as u8),
        4 => (0..chance.below(100)).map(|_| chance.below(256) as u8).collect(),
        _ => {
            let mut frame = advertisement((from.0, host6(host)), 0x60);
            let at = chance.below(frame.len() as u32) as usize;
            frame[at] ^= 1 << chance.below(8);
            frame
        }
    };
    match chance.below(12) {
        0..=3 => drop(table.handle_arp(port, &frame, now)),
        4..=7 => drop(table.handle_nd(port, &frame, now)),
        8 => table.resolve(port, address4.into(), vec![1; chance.below(2000) as usize], now),
        9 => table.resolve(port, host6(host).into(), vec![1; chance.below(2000) as usize], now),
        10 if host < 4 => {
            let up = (chance.below(2) == 0).then(identity);
            table.set_port(port, up, now);
        }
        10 if host < 20 => drop(table.want(port, host6(host).into(), now)),
        10 => table.unwant(port, host6(host - 20).into()),
        _ if host < 4 => drop(table.set_static(port, address4.into(), Some(from.0), now)),
        _ if host < 8 => drop(table.set_static(port, address4.into(), None, now)),
        _ => table.used(port, address4.into(), now),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, bounds hold, packets are neither lost nor duplicated, the outputs agree with the table,
    /// and timers advance.
    #[test]
    fn counters_survive_chaos(seed: u64) {
        let config = NeighborConfig {
            entries_max: 30, entries_per_port_max: 20, unresolved_max: 8, unresolved_per_port_max: 6,
            wanted_max: 8, queue_bytes_max: 8000, seed, ..NeighborConfig::default()
        };
        let mut table = table_of(config);
        let mut chance = XorShift64Star::new(seed);
        let mut told = std::collections::BTreeMap::new();
        let mut now = START;
        for _ in 0..600 {
            now += u64::from(chance.below(1000)) * MS;
            run_until(&mut table, now).iter().for_each(|output| tell(&mut told, output));
            step(&mut table, &mut chance, now);
            outputs(&mut table).iter().for_each(|output| tell(&mut told, output));
            let known = table.view().filter_map(|view| view.mac.map(|mac| ((view.port, view.address), mac)));
            prop_assert_eq!(&known.collect::<std::collections::BTreeMap<_, _>>(), &told);
        }
    }
}

/// The view of a caller that knows only the outputs.
fn tell(told: &mut std::collections::BTreeMap<(u16, IpAddr), MacAddr>, output: &Output) {
    match *output {
        Output::Resolved { port, address, mac } => assert_eq!(told.insert((port, address), mac), None),
        Output::Changed { port, address, mac } => {
            assert_ne!(told.insert((port, address), mac).expect("it was known"), mac);
        }
        Output::Lost { port, address } => drop(told.remove(&(port, address)).expect("it was known")),
        Output::Silent { port, address } => assert!(!told.contains_key(&(port, address))),
        Output::Forward { .. } | Output::Unreachable { .. } | Output::Send { .. } => {}
    }
}

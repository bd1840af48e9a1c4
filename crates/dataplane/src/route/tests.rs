use super::*;
use crate::ingress::Ingress;
use crate::lpm::{Fib4Writer, Fib6Writer};
use crate::test_support::*;
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::HashMap;
use thalweg_base::Chunk;
use thalweg_wire::checksum;

const V6A: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const V6B: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn to(port: u16) -> Adjacency {
    Adjacency::Forward {
        port,
        destination_mac: MacAddr([2, 0, 0, 0, 9, port as u8]),
        source_mac: MacAddr([2, 0, 0, 0, 1, port as u8]),
        mtu_bytes: 1500,
    }
}

fn router() -> Router {
    let mut hops = NextHops::new();
    let mut id = |paths: &[Adjacency]| hops.add(paths).unwrap();
    let world = id(&[to(1)]);
    let office = id(&[to(2)]);
    let hole = id(&[Adjacency::Drop(DropReason::Blackhole)]);
    let spread = id(&[to(1), to(2), to(3)]);
    let v4 = |s: &str, hop: u16| (s.parse::<Ipv4Net>().unwrap(), hop);
    let v6 = |s: &str, hop: u16| (s.parse::<Ipv6Net>().unwrap(), hop);
    Router {
        targets: Arc::default(),
        fib4: Arc::clone(
            Fib4Writer::from_routes([
                v4("198.51.100.0/24", world),
                v4("198.51.100.128/25", office),
                v4("198.51.100.200/32", hole),
                v4("203.0.113.0/24", spread),
            ])
            .unwrap()
            .table(),
        ),
        fib6: Arc::clone(
            Fib6Writer::from_routes([v6("2001:db8::/32", world), v6("2001:db8:1::/48", office)])
                .unwrap()
                .table(),
        ),
        next_hops: hops.into(),
    }
}

fn run(frames: Vec<Frame>) -> Chunk {
    let mut c = chunk(frames);
    let ingress = Ingress { drop_martians: true, ..Default::default() };
    let router = router();
    for k in 0..c.batch_count() {
        ingress.process(&mut c.batch(k));
        router.process(&mut c.batch(k));
    }
    c
}

fn udp(dst: [u8; 4], port: u16, ttl: u8) -> Vec<u8> {
    with_ipv4_field(udp4([10, 0, 0, 1], dst, port, 2, b"payload"), 8, &[ttl])
}

#[test]
fn the_longest_match_decides_and_the_frame_is_rewritten() {
    let tagged = ethernet(&[5], 0x0800, &udp([198, 51, 100, 130], 9, 64));
    let c = run(vec![
        Frame::raw(udp([198, 51, 100, 1], 9, 64)),
        Frame::new(tagged, thalweg_base::LinkType::Ethernet),
        Frame::raw(udp6(V6A, V6B, 1, 2, b"payload")),
    ]);
    let outs: Vec<u16> = c.packets().iter().map(|p| p.port_out).collect();
    assert_eq!(outs, [1, 2, 2]);
    for (i, &port) in outs.iter().take(2).enumerate() {
        let frame = c.egress_frame(i);
        let port = port as u8;
        assert_eq!(frame[..14], [2, 0, 0, 0, 9, port, 2, 0, 0, 0, 1, port, 8, 0]);
        assert_eq!(frame.len(), 14 + 35);
        assert_eq!(frame[22], 63);
        assert_eq!(checksum::fold(checksum::sum(&frame[14..34], 0)), 0xffff);
    }
    let frame = c.egress_frame(2);
    assert_eq!((&frame[12..14], frame[21]), (&[0x86, 0xdd][..], 63));
}

#[test]
fn what_cannot_leave_is_dropped_by_name() {
    let big = udp4([10, 0, 0, 1], [198, 51, 100, 1], 1, 2, &[0; 1500]);
    let c = run(vec![
        Frame::raw(udp([192, 0, 2, 1], 9, 64)),
        Frame::raw(udp([198, 51, 100, 200], 9, 64)),
        Frame::raw(udp([198, 51, 100, 1], 9, 1)),
        Frame::raw(udp([198, 51, 100, 1], 9, 2)),
        Frame::raw(big),
        Frame::raw(udp6(V6A, [0x30; 16], 1, 2, b"")),
    ]);
    let names: Vec<_> = c.packets().iter().map(|p| p.drop_reason().map(DropReason::name)).collect();
    let expected = [
        Some("no-route"),
        Some("blackhole"),
        Some("ttl-expired"),
        None,
        Some("mtu-exceeded"),
        Some("no-route"),
    ];
    assert_eq!(names, expected);
    let untouched = c.frame(2);
    assert_eq!(untouched[8], 1, "a packet that dies here keeps its TTL");
}

#[test]
fn the_checksum_holds_for_every_value_it_can_have() {
    // The identification field takes the checksum through all its values, carries included.
    for ids in (0..=u16::MAX).collect::<Vec<_>>().chunks(4096) {
        let frames = ids
            .iter()
            .map(|id| Frame::raw(with_ipv4_field(udp([198, 51, 100, 1], 9, 64), 4, &id.to_be_bytes())))
            .collect();
        let c = run(frames);
        for (i, id) in ids.iter().enumerate() {
            let header = &c.egress_frame(i)[14..34];
            let rest = checksum::sum(&header[12..], checksum::sum(&header[..10], 0));
            assert_eq!(header[10..12], checksum::finish(rest).to_be_bytes(), "id {id}");
        }
    }
}

#[test]
fn equal_paths_share_flows_and_keep_each_on_one_path() {
    let frames = |_| (0..3000u16).map(|port| Frame::raw(udp([203, 0, 113, 5], port, 64))).collect();
    let outs = |c: Chunk| c.packets().iter().map(|p| p.port_out).collect::<Vec<_>>();
    let first = outs(run(frames(0)));
    assert_eq!(first, outs(run(frames(1))), "the same flow takes the same path");
    let mut shares: HashMap<u16, usize> = HashMap::new();
    first.iter().for_each(|port| *shares.entry(*port).or_default() += 1);
    assert_eq!(shares.len(), 3);
    assert!(shares.values().all(|n| (900..1100).contains(n)), "{shares:?}");
}

#[test]
fn the_table_of_next_hops_is_bounded() {
    let mut hops = NextHops::new();
    assert_eq!(hops.add(&[]), None);
    let added = (0..40_000).map_while(|_| hops.add(&[to(1)])).count();
    assert_eq!(added, NextHops::GROUPS_MAX);
    assert_eq!(hops.len(), NextHops::GROUPS_MAX + 1);
}

/// A group that is set again has the new paths, whatever happened to the others, as in a list of lists.
#[test]
fn groups_that_are_set_anew_agree_with_a_plain_list() {
    let mut hops = NextHops::new();
    let mut plain = vec![(vec![Adjacency::Drop(DropReason::NoRoute)], 1)];
    for group in 0..20u16 {
        let paths = vec![Adjacency::Glean { port: group }; usize::from(group % 3) + 1];
        let id = if group == 7 { hops.add_default(&paths) } else { hops.add(&paths) };
        assert_eq!(id, Some(group + 1));
        let count = paths.len();
        plain.push((paths, count));
    }
    let mut random = 12345u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % below
    };
    for _ in 0..5000 {
        let (id, count) = (next(22) as u16, next(7));
        let paths: Vec<_> = (0..count)
            .map(|_| match next(4) {
                0 => Adjacency::Drop(DropReason::Blackhole),
                1 => Adjacency::Local { port: 3 },
                2 => Adjacency::Glean { port: next(9) as u16 },
                _ => to(next(9) as u16),
            })
            .collect();
        let in_use = if count > 0 { next(count + 1) as usize } else { 0 };
        let is_taken = (1..=20).contains(&id) && in_use > 0;
        assert_eq!(hops.set(id, &paths[..in_use], &paths[in_use..]), is_taken);
        if is_taken {
            plain[usize::from(id)] = (paths, in_use);
        }
        for (id, (paths, in_use)) in (0..).zip(&plain) {
            assert!(hops.paths(id).eq(paths[..*in_use].iter().copied()), "{id}");
            let ports = || paths.iter().filter_map(|path| path.port());
            assert_eq!(hops.leads_out(id, true), ports().next().is_some());
            assert_eq!(hops.leads_out(id, false), ports().next().is_some() && id != 8);
            assert!((0..9).all(|port| hops.leads_out_of(id, port) == ports().any(|each| each == port)));
        }
        assert!(hops.rewrites.len() <= 2 * 7 * 21 + 2 * UNUSED_MAX, "what is not used any more goes");
    }
}

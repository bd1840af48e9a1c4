use super::*;
use crate::ingress::Ingress;
use crate::test_support::*;
use thalweg_base::Chunk;

const A: [u8; 4] = [10, 1, 2, 3];
const B: [u8; 4] = [198, 51, 100, 7];

fn fragment(id: u16, offset_and_flags: u16, sport: u16) -> Frame {
    let ip = with_ipv4_field(udp4(A, B, sport, 2000, &[0; 24]), 4, &id.to_be_bytes());
    Frame::raw(with_ipv4_field(ip, 6, &offset_and_flags.to_be_bytes()))
}

fn run(tracker: &mut FragmentTracker, frames: Vec<Frame>) -> Chunk {
    let mut c = chunk(frames);
    let ingress = Ingress { drop_martians: true, ..Default::default() };
    ingress.process(&mut c.batch(0));
    tracker.process(&mut c, true, |_| 0);
    c
}

#[test]
fn later_fragments_get_the_ports_of_their_first_in_any_order_within_a_chunk() {
    let mut tracker = FragmentTracker::default();
    let c = run(
        &mut tracker,
        vec![fragment(7, 4, 0), fragment(7, 0x2000, 1111), fragment(8, 4, 0), fragment(9, 0x2000, 2222)],
    );
    assert_eq!(c.packets()[0].src_port, 1111);
    assert!(c.packets()[0].flags.has(PacketFlags::HAS_PORTS));
    assert!(!c.packets()[2].flags.has(PacketFlags::HAS_PORTS), "no first fragment of datagram 8");
    let c = run(&mut tracker, vec![fragment(9, 4, 0)]);
    assert_eq!(c.packets()[0].src_port, 2222, "remembered across chunks");
    let expected = FragmentCounts { datagrams: 2, matched: 2, unmatched: 1, evicted: 0 };
    assert_eq!(tracker.counts(), expected);
}

#[test]
fn entries_expire_on_the_packet_clock() {
    let mut tracker = FragmentTracker::default();
    run(&mut tracker, vec![fragment(9, 0x2000, 2222)]);
    let c = run(&mut tracker, vec![fragment(9, 4, 0).at(LIFETIME_NS)]);
    assert!(c.packets()[0].flags.has(PacketFlags::HAS_PORTS));
    let c = run(&mut tracker, vec![fragment(9, 4, 0).at(LIFETIME_NS + 1)]);
    assert!(!c.packets()[0].flags.has(PacketFlags::HAS_PORTS));
}

#[test]
fn a_flood_of_first_fragments_evicts_and_counts_but_does_not_grow() {
    let mut tracker = FragmentTracker::default();
    for round in 0..30u16 {
        run(&mut tracker, (0..250).map(|i| fragment(round * 250 + i, 0x2000, 5)).collect());
    }
    let counts = tracker.counts();
    assert_eq!(counts.datagrams, 7500);
    assert!(counts.evicted >= 7500 - (SETS * 4) as u64, "{counts:?}");
}

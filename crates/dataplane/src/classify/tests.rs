use super::*;
use crate::ingress::Ingress;
use crate::test_support::*;
use thalweg_wire::application;

const A: [u8; 4] = [10, 1, 2, 3];
const B: [u8; 4] = [198, 51, 100, 7];

fn classes(classifier: &Classifier, frames: Vec<Frame>) -> Vec<u8> {
    let mut chunk = chunk(frames);
    let ingress = Ingress { drop_martians: true, ..Default::default() };
    ingress.process(&mut chunk.batch(0));
    classifier.process(&mut chunk.batch(0));
    assert!(chunk.packets().iter().all(Packet::is_alive));
    chunk.packets().iter().map(|p| p.class).collect()
}

fn code(name: &str) -> u8 {
    application::by_name(name).unwrap().code
}

#[test]
fn each_part_of_a_match_must_hold_and_the_first_class_wins() {
    let net = |s: &str| vec![s.parse::<IpNet>().unwrap()];
    let classifier = Classifier::new(
        [
            (Match { dscp: vec![46], ..Match::default() }, 1),
            (Match { protocols: vec![17], destination_ports: vec![4000..=4010], ..Match::default() }, 2),
            (Match { sources: net("10.1.0.0/16"), ports_in: vec![3], ..Match::default() }, 3),
            (
                Match { destinations: net("198.51.100.0/24"), source_ports: vec![9..=9], ..Match::default() },
                4,
            ),
        ],
        0,
    );
    let udp = |sport, dport| udp4(A, B, sport, dport, b"");
    let got = classes(
        &classifier,
        vec![
            Frame::raw(with_ipv4_field(udp(1, 4005), 1, &[46 << 2 | 1])),
            Frame::raw(udp(1, 4010)),
            Frame::raw(udp(1, 4011)),
            Frame::raw(udp(1, 4011)).on_port(3),
            Frame::raw(udp(9, 1)),
            Frame::raw(udp4(B, A, 9, 1, b"")).on_port(3),
        ],
    );
    assert_eq!(got, [1, 2, 0, 3, 4, 0]);
}

#[test]
fn applications_come_from_the_trace_or_are_inferred() {
    let voice = Match { applications: vec![code("rtp"), code("sip")], ..Match::default() };
    let web = Match { applications: vec![code("http"), code("dns"), code("icmp")], ..Match::default() };
    let classifier = Classifier::new([(voice, 1), (web, 2)], 0);
    let mut named = Frame::raw(udp4(A, B, 4003, 5003, b"no rtp header"));
    named.application = code("rtp");
    let rtp = [[0x80, 8].as_slice(), &[0; 30]].concat();
    let rtcp = [[0x80, 200].as_slice(), &[0; 30]].concat();
    let got = classes(
        &classifier,
        vec![
            named,
            Frame::raw(udp4(A, B, 40_000, 50_000, &rtp)),
            Frame::raw(udp4(A, B, 40_001, 50_001, &rtcp)),
            Frame::raw(udp4(A, B, 40_000, 50_000, &rtp[..8])),
            Frame::raw(udp4(A, B, 5060, 5060, b"INVITE")),
            Frame::raw(udp4(A, B, 999, 50_000, &rtp)),
            Frame::raw(udp4(B, A, 53, 40_000, &rtp)),
        ],
    );
    assert_eq!(got, [1, 1, 0, 0, 1, 0, 2]);
}

#[test]
fn every_well_known_port_is_found() {
    for a in application::APPLICATIONS.iter().filter(|a| a.port != 0) {
        assert_eq!(known_port(a.transport, a.port), a.code, "{}", a.name);
    }
    assert_eq!(known_port(6, 4003), 0);
}

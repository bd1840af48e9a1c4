//! The cost of reading BGP messages: framing, a typical UPDATE, and iterating over its prefixes.

use std::hint::black_box;
use std::net::Ipv4Addr;

use thalweg_base::Prefix;
use thalweg_wire::bgp::{
    Codec, MessageKind, PeerFacts, Update, attribute, begin_attributes, begin_update, finish_attributes,
    finish_message, frame, write_attribute, write_nlri,
};

/// An UPDATE with six attributes of about a hundred bytes, and some prefixes.
fn usual(prefixes: u32, asn_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let message = begin_update(&mut out);
    let attributes = begin_attributes(&mut out, message);
    let well_known = attribute::FLAG_TRANSITIVE;
    let optional = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;
    write_attribute(&mut out, well_known, attribute::ORIGIN, &[0]);
    let mut path = vec![2, 6];
    for asn in 64_496u32..64_502 {
        path.extend_from_slice(&asn.to_be_bytes()[4 - asn_bytes..]);
    }
    write_attribute(&mut out, well_known, attribute::AS_PATH, &path);
    write_attribute(&mut out, well_known, attribute::NEXT_HOP, &Ipv4Addr::new(192, 0, 2, 1).octets());
    write_attribute(&mut out, attribute::FLAG_OPTIONAL, attribute::MED, &[0, 0, 0, 10]);
    write_attribute(&mut out, optional, attribute::COMMUNITIES, &[0xfb, 0xf0, 0, 1].repeat(4));
    write_attribute(&mut out, optional, attribute::LARGE_COMMUNITIES, &[0, 0, 0xfb, 0xf0].repeat(6));
    finish_attributes(&mut out, attributes);
    for index in 0..prefixes {
        let prefix = Prefix::new(0x0a00_0000 + (index << 10), 20 + (index % 5) as u8).expect("in range");
        write_nlri(&mut out, None, prefix);
    }
    finish_message(&mut out, message).expect("the message fits");
    out
}

fn read(message: &[u8], codec: &Codec, peer: &PeerFacts) -> u64 {
    let frame = frame(message, 4096).expect("a valid message").expect("a complete message");
    assert_eq!(frame.kind, MessageKind::Update);
    let update = Update::parse(frame.body, codec, peer).expect("a valid message");
    let mut sum = 0;
    for (path_id, prefix) in update.reach_v4 {
        sum += u64::from(prefix.address()) + u64::from(prefix.length()) + u64::from(path_id);
    }
    sum
}

const FOUR: Codec = Codec {
    four_octet_as: true,
    extended_messages: false,
    add_path_receive: [false; 2],
    add_path_send: [false; 2],
    extended_next_hop: false,
};

#[divan::bench(args = [1, 5, 100, 500])]
fn update(bencher: divan::Bencher, prefixes: u32) {
    let message = usual(prefixes, 4);
    let peer = PeerFacts::default();
    bencher.bench_local(|| read(black_box(&message), black_box(&FOUR), black_box(&peer)));
}

#[divan::bench(args = [1, 5])]
fn update_and_attributes(bencher: divan::Bencher, prefixes: u32) {
    let message = usual(prefixes, 4);
    let peer = PeerFacts::default();
    bencher.bench_local(|| {
        let update = Update::parse(black_box(&message[19..]), &FOUR, &peer).expect("a valid message");
        let routes: u64 = update.reach_v4.iter().map(|(_, prefix)| u64::from(prefix.address())).sum();
        routes + update.attributes().map(|each| each.value.len() as u64).sum::<u64>()
    });
}

#[divan::bench]
fn update_of_two_bytes(bencher: divan::Bencher) {
    let message = usual(5, 2);
    let peer = PeerFacts::default();
    let codec = Codec::default();
    let mut scratch = Vec::new();
    bencher.bench_local(|| {
        let update = Update::parse(black_box(&message[19..]), &codec, &peer).expect("a valid message");
        update.as_path(&mut scratch).len()
    });
}

#[divan::bench]
fn framing(bencher: divan::Bencher) {
    let message = usual(5, 4);
    bencher.bench_local(|| frame(black_box(&message), 4096).map(|found| found.map(|frame| frame.length)));
}

fn main() {
    divan::main();
}

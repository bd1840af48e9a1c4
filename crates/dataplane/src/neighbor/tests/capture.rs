//! Real exchanges: the table plays the host that asked or answered in a capture, and must produce the same bytes
//! and accept the answer.

use super::*;
use std::collections::BTreeMap;
use std::path::Path;
use thalweg_wire::MacAddr;
use thalweg_wire::pcap::{FILE_HEADER_LEN, FileHeader, RECORD_HEADER_LEN, RecordHeader};

/// A solicitation and its answer, as whole frames.
type Exchange = (Vec<u8>, Vec<u8>);

/// The Ethernet frames of a capture; none if it is something else.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("the file is there");
    let mut frames = Vec::new();
    let Some(file) = bytes.first_chunk::<FILE_HEADER_LEN>().and_then(|h| FileHeader::parse(h).ok()) else {
        return frames;
    };
    let mut rest = &bytes[FILE_HEADER_LEN..];
    while let Some(record) = rest.first_chunk::<RECORD_HEADER_LEN>() {
        let Ok(record) = RecordHeader::parse(&file, record) else { break };
        let from = file.record_header_len();
        let Some(frame) = rest.get(from..from + record.captured_len as usize) else { break };
        frames.push(frame.to_vec());
        rest = &rest[from + frame.len()..];
    }
    if file.link_code == 1 { frames } else { Vec::new() }
}

/// Broadcast ARP requests that were answered, except probes, which name no sender address.
fn arp_exchanges(frames: &[Vec<u8>]) -> Vec<Exchange> {
    let mut asked: BTreeMap<Vec<u8>, &Vec<u8>> = BTreeMap::new();
    let mut exchanges = Vec::new();
    for frame in frames.iter().filter(|f| f.len() >= 42 && f[12..20] == [8, 6, 0, 1, 8, 0, 6, 4]) {
        let (sender, target) = (&frame[28..32], &frame[38..42]);
        match frame[21] {
            1 if frame[..6] == [0xff; 6] && sender != [0; 4] && sender != target => {
                asked.insert([sender, target].concat(), frame);
            }
            2 => {
                if let Some(question) = asked.remove(&[target, sender].concat()) {
                    exchanges.push((question.clone(), frame.clone()));
                }
            }
            _ => {}
        }
    }
    exchanges
}

/// Solicitations to a group that were answered.
fn nd_exchanges(frames: &[Vec<u8>]) -> Vec<Exchange> {
    let mut asked: BTreeMap<Vec<u8>, &Vec<u8>> = BTreeMap::new();
    let mut exchanges = Vec::new();
    for frame in frames.iter().filter(|f| f.len() == 86 && f[12..14] == [0x86, 0xdd] && f[20] == 58) {
        let (source, target) = (&frame[22..38], &frame[62..78]);
        match frame[54] {
            135 if frame[0] == 0x33 && source != [0; 16] => {
                asked.insert([source, target].concat(), frame);
            }
            136 => {
                if let Some(question) = asked.remove(&[&frame[38..54], target].concat()) {
                    exchanges.push((question.clone(), frame.clone()));
                }
            }
            _ => {}
        }
    }
    exchanges
}

fn mac_at(frame: &[u8], at: usize) -> MacAddr {
    frame[at..at + 6].try_into().expect("six bytes")
}

fn ip4_at(frame: &[u8], at: usize) -> IpAddr {
    <[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes").into()
}

fn ip6_at(frame: &[u8], at: usize) -> IpAddr {
    <[u8; 16]>::try_from(&frame[at..at + 16]).expect("16 bytes").into()
}

/// A table with a neighbor's identity, and nothing left to announce.
fn table_of_neighbor(mac: MacAddr, address: IpAddr, length: u8) -> Table {
    let port = PortIdentity::new(mac, vec![(address, length)], 1500);
    let mut table = Table::new(NeighborConfig::default(), vec![port], START - 10 * SECOND);
    table.handle_timer(START - 5 * SECOND);
    outputs(&mut table);
    table
}

fn first_frame(outputs: &[Output]) -> &[u8] {
    match outputs.first() {
        Some(Output::Send { frame, .. }) => frame,
        other => panic!("a frame was expected: {other:?}"),
    }
}

fn play_arp((question, answer): &Exchange) {
    let (asker, answerer) = (mac_at(question, 22), mac_at(answer, 22));
    let (from, target) = (ip4_at(question, 28), ip4_at(question, 38));
    // As the asking host. The field of the unknown MAC address may differ.
    let mut table = table_of_neighbor(asker, from, 0);
    table.resolve(0, target, vec![1], START);
    let ours = outputs(&mut table);
    assert_eq!(first_frame(&ours)[..32], question[..32]);
    assert_eq!(first_frame(&ours)[38..42], question[38..42]);
    table.handle_arp(0, answer, START).expect("it answers the question");
    assert_eq!(outputs(&mut table), [resolved(target, answerer), forward(target, answerer, &[1])]);
    // As the answering host.
    let mut table = table_of_neighbor(answerer, target, 0);
    table.handle_arp(0, question, START).expect("the frame is a request to the router");
    let ours = outputs(&mut table);
    assert_eq!(first_frame(&ours)[..42], answer[..42]);
    assert_eq!(ours[1..], [resolved(from, asker)]);
}

fn play_nd((question, answer): &Exchange) {
    let (asker, answerer) = (mac_at(question, 80), mac_at(answer, 80));
    let (from, target) = (ip6_at(question, 22), ip6_at(question, 62));
    let mut table = table_of_neighbor(asker, from, 0);
    table.resolve(0, target, vec![1], START);
    let ours = outputs(&mut table);
    // Flow labels and classes may differ.
    let (ours, theirs) = (first_frame(&ours), &question[..]);
    assert_eq!((&ours[..15], &ours[18..]), (&theirs[..15], &theirs[18..]));
    table.handle_nd(0, answer, START).expect("it answers the question");
    assert_eq!(outputs(&mut table), [resolved(target, answerer), forward(target, answerer, &[1])]);
    let mut table = table_of_neighbor(answerer, target, 0);
    table.handle_nd(0, question, START).expect("the frame is a request to the router");
    let ours = outputs(&mut table);
    let (answered, theirs) = (first_frame(&ours), &answer[..]);
    // The table is always a router, so flags and checksum may differ.
    assert_eq!((&answered[..15], &answered[18..56]), (&theirs[..15], &theirs[18..56]));
    assert_eq!((answered[58] | 0x80, &answered[59..]), (theirs[58] | 0x80 | 0x20, &theirs[59..]));
    assert_eq!(ours[1..], [resolved(from, asker)]);
}

#[test]
fn real_exchanges_are_played_from_both_sides() {
    let Some(folder) = thalweg_testdata::shared("pcap") else { return };
    let (mut arp, mut nd) = (0, 0);
    for name in [
        "ndpi/skype.pcap",
        "ndpi/capwap.pcap",
        "ndpi/viber.pcap",
        "ndpi-head/mgcp.pcap",
        "tcpdump/isakmp4500.pcap",
        "tcpdump/dhcp-rfc4388.pcap",
        "tcpdump/ipv6-bad-version.pcap",
        "zeek/arp-leak.pcap",
        "zeek/icmp_dot1q.pcap",
        "zeek/ipv6_zero_len_ah.pcap",
        "zeek/icmp_icmp6-nd-short-options.pcap",
    ] {
        let frames = frames(&folder.join(name));
        let exchanges = arp_exchanges(&frames);
        arp += exchanges.len();
        exchanges.iter().for_each(play_arp);
        let exchanges = nd_exchanges(&frames);
        nd += exchanges.len();
        exchanges.iter().for_each(play_nd);
    }
    assert!(arp >= 20 && nd >= 1, "{arp} exchanges of ARP, {nd} of Neighbor Discovery");
}

//! AF_PACKET: frames that go in come out.

use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{LiveError, NotTaken};
use thalweg_wire::{MacAddr, testing};

use super::veth::{End, TIMEOUT, assert_same, frame, frames, veth};
use crate::common::{in_namespace, ip};

#[test]
fn frames_arrive_as_they_were_sent() {
    in_namespace("live::packet::frames_arrive_as_they_were_sent", || {
        veth("v0", "v1");
        let (mut one, mut other) = (End::packet("v0"), End::packet("v1"));
        assert_eq!((one.facts.mtu, one.facts.mode.as_str()), (1500, "af_packet"));
        assert_eq!(one.facts.why_not_better, None);
        let there = frames(other.facts.mac, one.facts.mac, 2000);
        let back = frames(one.facts.mac, other.facts.mac, 1000);
        let bytes = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        one.send(&there);
        assert_same(&other.receive(there.len()), &there);
        other.send(&back);
        // Its own frames do not return.
        assert_same(&one.receive(back.len()), &back);
        let sent = one.tx.counters();
        assert_eq!((sent.frames, sent.bytes, sent.failed), (2000, bytes(&there), 0));
        let (port, received) = one.source.counters().next().unwrap();
        assert_eq!(port, 7);
        assert_eq!((received.frames, received.bytes), (1000, bytes(&back)));
        assert_eq!((received.missed, received.refused, received.foreign), (0, 0, 0));
    });
}

#[test]
fn tags_come_back() {
    in_namespace("live::packet::tags_come_back", || {
        veth("v0", "v1");
        let (mut one, mut other) = (End::packet("v0"), End::packet("v1"));
        let mut tagged = frames(other.facts.mac, one.facts.mac, 70);
        for (at, frame) in tagged.iter_mut().enumerate() {
            let tags: &[[u8; 4]] = match at % 3 {
                0 => &[[0x81, 0, 0xa0, 42]],
                1 => &[[0x88, 0xa8, 0x0f, 0xfe], [0x81, 0, 0, 7]],
                _ => &[],
            };
            for tag in tags.iter().rev() {
                frame.splice(12..12, *tag);
            }
        }
        // The kernel accepts one tag beyond the MTU.
        tagged.retain(|frame| frame.len() <= 1518);
        one.send(&tagged);
        assert_same(&other.receive(tagged.len()), &tagged);
    });
}

#[test]
fn what_is_for_others_is_not_ours() {
    in_namespace("live::packet::what_is_for_others_is_not_ours", || {
        veth("v0", "v1");
        let mut one = End::packet("v0");
        let own = MacAddr([2, 0, 0, 0, 9, 9]);
        let options = PacketOptions { mac: Some(own), ..PacketOptions::new("v1") };
        let mut other = End::new(packet::open(&options).unwrap());
        assert_eq!(other.facts.mac, own);
        let from = one.facts.mac;
        let to = [own.0, [2, 0, 0, 0, 9, 8], [0x33, 0x33, 0, 0, 0, 1], [0xff; 6], own.0].map(MacAddr);
        let sent: Vec<_> = to.iter().zip(0..).map(|(to, number)| frame(*to, from, number, 60)).collect();
        one.send(&sent);
        let ours = [0, 2, 3, 4].map(|at: usize| sent[at].clone());
        assert_same(&other.receive(4), &ours);
        let (_, counters) = other.source.counters().next().unwrap();
        assert_eq!((counters.frames, counters.foreign), (4, 1));
    });
}

#[test]
fn a_full_ring_counts_what_it_misses() {
    in_namespace("live::packet::a_full_ring_counts_what_it_misses", || {
        veth("v0", "v1");
        let mut one = End::packet("v0");
        let options = PacketOptions { ring_frames: 128, ..PacketOptions::new("v1") };
        let mut other = End::new(packet::open(&options).unwrap());
        let sent = frames(other.facts.mac, one.facts.mac, 1000);
        one.send(&sent);
        let mut got = other.receive(128);
        assert_same(&got, &sent[..128]);
        let (_, counters) = other.source.counters().next().unwrap();
        assert_eq!((counters.frames, counters.missed), (128, 872));
        // It continues.
        one.send(&sent[..100]);
        got = other.receive(100);
        assert_same(&got, &sent[..100]);
    });
}

#[test]
fn the_mtu_holds_and_may_change() {
    in_namespace("live::packet::the_mtu_holds_and_may_change", || {
        veth("v0", "v1");
        let (mut one, mut other) = (End::packet("v0"), End::packet("v1"));
        let (to, from) = (other.facts.mac, one.facts.mac);
        assert_eq!(one.tx.push(&frame(to, from, 1, 1515)), Err(NotTaken::TooLong));
        ip("link set v0 mtu 9000");
        ip("link set v1 mtu 9000");
        let long = [frame(to, from, 2, 9014), frame(to, from, 3, 3000), frame(to, from, 4, 60)];
        one.tx = packet::open(&PacketOptions::new("v0")).unwrap().tx;
        one.send(&long);
        // Longer than the MTU known at opening, and longer than a slot.
        assert_same(&other.receive(3), &long[..]);
        let (_, counters) = other.source.counters().next().unwrap();
        assert_eq!((counters.frames, counters.refused, counters.missed), (3, 0, 0));
        // Opened with a smaller MTU, it refuses frames that the kernel accepts, up to a tag's length.
        ip("link set v1 mtu 1400");
        let mut other = End::packet("v1");
        let lengths = [1414, 1415, 1418, 60];
        let mut sent: Vec<_> = lengths.iter().map(|bytes| frame(to, from, 9, *bytes)).collect();
        sent[2].splice(12..14, [0x81, 0, 0, 5]);
        sent[2].truncate(1418);
        one.send(&sent);
        let fit = [0, 2, 3].map(|at: usize| sent[at].clone());
        assert_same(&other.receive(3), &fit);
        let (_, counters) = other.source.counters().next().unwrap();
        assert_eq!((counters.frames, counters.refused), (3, 1));
    });
}

#[test]
fn what_waits_behind_another_flow_passes_it() {
    in_namespace("live::packet::what_waits_behind_another_flow_passes_it", || {
        veth("v0", "v1");
        let (mut one, mut other) = (End::packet("v0"), End::packet("v1"));
        let to = other.facts.mac;
        let of_flow = |number: u8, count: usize| -> Vec<Vec<u8>> {
            let datagram = |nth: usize| {
                let content = [0, number, 0, 7, 0, 16, 0, 0, nth as u8, (nth >> 8) as u8, 0, 0, 0, 0, 0, 0];
                let packet = testing::ip([10, 0, 0, 1], [10, 0, 0, 2], 17, &content);
                let mut frame = testing::frame(&packet);
                frame[..6].copy_from_slice(&to.0);
                frame.resize(60, 0);
                frame
            };
            (0..count).map(datagram).collect()
        };
        let (bulk, thin) = (of_flow(1, 700), of_flow(2, 3));
        let of = |chunks: &[Vec<Vec<u8>>], flow: u8| -> Vec<Vec<u8>> {
            chunks.iter().flatten().filter(|frame| frame[35] == flow).cloned().collect()
        };
        // The kernel may still be delivering when the first chunk is taken, so that nothing waits behind it.
        let passes = (1..=20_u64).find(|_| {
            one.send(&bulk);
            one.send(&thin);
            let mut chunks = Vec::new();
            while chunks.iter().map(Vec::len).sum::<usize>() < 703 {
                let chunk = other.receive_once(TIMEOUT);
                assert!(!chunk.is_empty(), "frames are lost");
                chunks.push(chunk);
            }
            assert_same(&of(&chunks, 1), &bulk);
            assert_same(&of(&chunks, 2), &thin);
            chunks[1] == thin
        });
        let tries = passes.expect("in a chunk of its own, before the rest of its ring");
        let (_, counters) = other.source.counters().next().unwrap();
        assert_eq!((counters.frames, counters.missed), (703 * tries, 0));
    });
}

#[test]
fn flows_keep_to_their_queue() {
    in_namespace("live::packet::flows_keep_to_their_queue", || {
        veth("v0", "v1");
        let mut one = End::packet("v0");
        let options = PacketOptions { queues: 3, ..PacketOptions::new("v1") };
        let port = packet::open(&options).unwrap();
        assert_eq!((port.rx.len(), port.facts.mode.as_str()), (3, "af_packet 3 queues"));
        let (to, from) = (port.facts.mac, one.facts.mac);
        let mut ends: Vec<End> = Vec::new();
        for half in port.rx {
            let tx = packet::open(&PacketOptions::new("v1")).unwrap().tx;
            let facts = port.facts.clone();
            ends.push(End::new(thalweg_ports::live::Port { rx: vec![half], tx, facts }));
        }
        // Each flow in both directions, several times.
        let mut sent = Vec::new();
        for number in 0..600_u16 {
            let flow = number % 100;
            let (a, b) = if number % 2 == 0 { (1, 2) } else { (2, 1) };
            let mut packet = frame(to, from, number.into(), 62);
            packet[12..14].copy_from_slice(&[8, 0]);
            let ip_packet = &mut packet[14..];
            ip_packet[..20]
                .copy_from_slice(&[0x45, 0, 0, 48, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, a, 10, 0, 0, b]);
            let ports = if a == 1 { [1000 + flow / 2, 53] } else { [53, 1000 + flow / 2] };
            ip_packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
            ip_packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
            ip_packet[24..28].copy_from_slice(&[0, 28, 0, 0]);
            sent.push(packet);
        }
        one.send(&sent);
        let mut total = 0;
        let mut queue_of = std::collections::BTreeMap::new();
        for (queue, end) in ends.iter_mut().enumerate() {
            let mut got = Vec::new();
            loop {
                let more = end.receive_once(std::time::Duration::from_millis(100));
                if more.is_empty() {
                    break;
                }
                got.extend(more);
            }
            assert!(!got.is_empty(), "queue {queue} got nothing");
            total += got.len();
            for frame in got {
                let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
                let flow = number(34).max(number(36));
                assert_eq!(*queue_of.entry(flow).or_insert(queue), queue, "flow {flow} on two queues");
            }
        }
        assert_eq!((total, queue_of.len()), (600, 50));
    });
}

#[test]
fn the_host_hears_nothing_of_an_exclusive_port() {
    in_namespace("live::packet::the_host_hears_nothing_of_an_exclusive_port", || {
        veth("v0", "v1");
        ip("address add 198.18.0.1/24 dev v1");
        let heard = || {
            let snmp = std::fs::read_to_string("/proc/net/snmp").unwrap();
            let values = snmp.lines().filter(|line| line.starts_with("Ip: ")).nth(1).unwrap();
            values.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap()
        };
        let mut one = End::packet("v0");
        let mac = End::packet("v1").facts.mac;
        let mut packet = frame(mac, one.facts.mac, 1, 60);
        packet[12..14].copy_from_slice(&[8, 0]);
        // From 198.18.0.2 to 198.18.0.1, UDP.
        let header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0xee, 0x5c, 198, 18, 0, 2, 198, 18, 0, 1];
        packet[14..34].copy_from_slice(&header);
        let packets = vec![packet; 10];

        let exclusive = |exclusive| {
            let options = PacketOptions { exclusive, ..PacketOptions::new("v1") };
            End::new(packet::open(&options).unwrap())
        };
        let mut other = exclusive(false);
        let before = heard();
        one.send(&packets);
        assert_same(&other.receive(10), &packets);
        assert!(heard() >= before + 10, "the host listens too");
        drop(other);
        let mut other = exclusive(true);
        assert_eq!(other.facts.why_not_better, None);
        let before = heard();
        one.send(&packets);
        assert_same(&other.receive(10), &packets);
        assert_eq!(heard(), before);
        // The program is removed with the port.
        drop(other);
        one.send(&packets);
        assert!(heard() >= before + 10);
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_namespace("live::packet::what_cannot_be_opened_says_why", || {
        let error = packet::open(&PacketOptions::new("nosuch0")).err().unwrap();
        assert!(matches!(&error, LiveError::NoSuchInterface { interface } if interface == "nosuch0"));
        assert_eq!(error.errno(), Some(libc::ENODEV));
    });
}

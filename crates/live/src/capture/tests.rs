use super::stream::tests::{Client, read_file, stream_of};
use super::taps::Begun;
use super::*;

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_base::{Chunk, ChunkBuilder, LinkType};
use thalweg_config::RouterConfig;
use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
use thalweg_node::control::CaptureRequest;
use thalweg_node::plan::RouterPlan;

use crate::counters::Counters;

const CONFIG: &str = r#"
[ports.lan]
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24"]
[ports.wan]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24"]
default_mac = "02:00:00:00:ff:02"
[[routes]]
prefix = "192.0.2.0/24"
via = "198.51.100.2"
[nat]
outside = "wan"
inside = ["lan"]
addresses = ["198.51.100.1"]
"#;

const CHUNKS: u32 = 8;
const PER_CHUNK: u32 = 300;
const PACKETS: u32 = CHUNKS * PER_CHUNK;

fn config() -> RouterConfig {
    RouterConfig::from_text("test.toml", CONFIG, std::path::Path::new("")).expect("valid")
}

fn selection(request: &CaptureRequest) -> Result<Selection, CaptureError> {
    let config = config();
    let plan = RouterPlan::from_config(&config, None).expect("it can be built");
    Selection::of(request, &config, &plan)
}

fn at(point: &str) -> CaptureRequest {
    CaptureRequest { point: Some(point.to_owned()), ..CaptureRequest::default() }
}

/// A datagram from one of 64 hosts: to the outside, to an address without a route, or to an unused public port
/// (which needs two shards).
fn datagram(number: u32) -> Vec<u8> {
    let to = match number % 5 {
        0 => [203, 0, 113, 1],
        1 => [198, 51, 100, 1],
        _ => [192, 0, 2, 9],
    };
    let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2 + (number % 64) as u8];
    packet.extend(to);
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet.extend([0x13, 0x88, 0, 53, 0, 12, 0, 0]);
    packet.extend(number.to_be_bytes());
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x08, 0x00][..], &packet].concat()
}

/// The number that a datagram in an Ethernet frame carries.
fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[42], frame[43], frame[44], frame[45]])
}

struct Feed(u32);

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        let sequence = self.0;
        if sequence == CHUNKS {
            return None;
        }
        self.0 += 1;
        let mut builder = ChunkBuilder::with_capacity(PER_CHUNK as usize * 128);
        for number in sequence * PER_CHUNK..(sequence + 1) * PER_CHUNK {
            let frame = datagram(number);
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + frame.len()].copy_from_slice(&frame);
            builder.push(at, frame.len(), 0, 1000 + u64::from(number), LinkType::Ethernet, 0, 0);
        }
        Some(builder.finish(sequence.into(), 1 + u64::from(sequence * PER_CHUNK), 0))
    }
}

/// Does what a sink does for captures, and records every packet as it arrived, with `Ok` if it leaves.
struct Recorder<'t> {
    taps: &'t Taps,
    all: BTreeMap<u32, Result<Vec<u8>, DropReason>>,
}

impl Sink<Chunk> for Recorder<'_> {
    fn accept(&mut self, chunk: Chunk) {
        if self.taps.watch_stages() {
            self.taps.finished(&chunk, |reason| reason == DropReason::NoRoute);
        }
        for (place, packet) in chunk.packets().iter().enumerate() {
            let fate = match packet.drop_reason() {
                Some(reason) => Err(reason),
                None => Ok(chunk.egress_frame(place).to_vec()),
            };
            if let Err(reason) = fate {
                self.taps.dropped(reason, &seen_in(&chunk, place));
            }
            self.all.insert(number_of(chunk.frame(place)), fate);
        }
    }
}

/// Runs all packets through a model; returns what happened to each.
fn run(taps: &Taps, kind: ModelKind, workers: usize) -> BTreeMap<u32, Result<Vec<u8>, DropReason>> {
    let plan = RouterPlan::from_config(&config(), None).expect("it can be built").for_workers(workers);
    let mut recorder = Recorder { taps, all: BTreeMap::new() };
    thalweg_exec::run(
        &Tapped::new(&plan, taps),
        &mut Feed(0),
        &mut recorder,
        &ModelOptions::new(kind, workers),
    )
    .expect("it runs");
    recorder.all
}

/// All packets of a capture, once no packet can reach it any more.
fn caught(taps: &Taps, begun: &Begun) -> Vec<Captured> {
    taps.end(begun.number);
    std::iter::from_fn(|| begun.packets.recv_timeout(Duration::from_secs(5)).ok()).collect()
}

const MODELS: [(ModelKind, usize); 5] = [
    (ModelKind::Serial, 1),
    (ModelKind::RunToCompletion, 2),
    (ModelKind::Pipeline, 3),
    (ModelKind::Tokens, 2),
    (ModelKind::Farm, 2),
];

/// Under every model, each capture point has every packet that passes it exactly once, as it is there, with its
/// fate.
#[test]
fn each_point_has_what_passes_it() {
    for (kind, workers) in MODELS {
        let taps = Taps::default();
        let points = ["arrived", "arrival", "nat", "egress"];
        let begun = points.map(|point| {
            let selection = selection(&at(point)).expect(point);
            taps.begin_for_test(selection, 2)
        });
        let all = run(&taps, kind, workers);
        assert_eq!(all.len(), PACKETS as usize);
        for (point, begun) in points.iter().zip(&begun) {
            let mut packets = caught(&taps, begun);
            packets.sort_by_key(|packet| number_of(&packet.frame));
            let passes = |fate: &Result<Vec<u8>, DropReason>| match (*point, fate) {
                ("arrived" | "arrival", _) | (_, Ok(_)) => true,
                ("nat", Err(reason)) => *reason == DropReason::NoRoute,
                _ => false,
            };
            let expected: Vec<u32> =
                all.iter().filter(|(_, fate)| passes(fate)).map(|(number, _)| *number).collect();
            let numbers: Vec<u32> = packets.iter().map(|packet| number_of(&packet.frame)).collect();
            assert_eq!(numbers, expected, "{kind}, {point}");
            for packet in &packets {
                let number = number_of(&packet.frame);
                let source = &packet.frame[26..30];
                match *point {
                    "arrived" | "arrival" => assert_eq!(packet.frame, datagram(number), "{kind}"),
                    "nat" => assert_eq!((source, packet.interface), (&[198, 51, 100, 1][..], 0), "{kind}"),
                    _ => assert_eq!(Ok(&packet.frame), all[&number].as_ref(), "{kind}"),
                }
                if *point == "arrived" {
                    assert_eq!(packet.time_ns, 1000 + u64::from(number));
                }
                match (packet.fate, &all[&number]) {
                    (Fate::Leaves { port: 1, destination, .. }, Ok(_)) => {
                        assert_eq!(destination, Some([192, 0, 2, 9].into()));
                    }
                    (Fate::ToHost(reason), Err(expected)) => {
                        assert_eq!((reason, expected), (DropReason::NoRoute, &reason));
                    }
                    (Fate::Dropped(reason), Err(expected)) => assert_eq!(reason, *expected),
                    other => panic!("{kind}, {point}: {other:?}"),
                }
            }
            let numbers = &begun.numbers;
            assert_eq!(numbers.wanted.load(Ordering::Relaxed), packets.len() as u64);
            drop(packets);
            assert_eq!(numbers.bytes_waiting.load(Ordering::Relaxed), 0, "room comes back");
        }
        taps.update_watched();
        assert!(!taps.watch_stages(), "packets check for captures although none runs");
        let reasons: Vec<DropReason> = all.into_values().filter_map(Result::err).collect();
        for reason in [DropReason::NoRoute, DropReason::NatNoMapping] {
            assert_eq!(reasons.iter().filter(|each| **each == reason).count(), PACKETS as usize / 5);
        }
    }
}

/// Filters for ports, reasons and headers select the same packets at every capture point.
#[test]
fn captures_select() {
    let fifth = PACKETS as u64 / 5;
    let all: [(CaptureRequest, u64); 8] = [
        (CaptureRequest { port: Some("wan".to_owned()), ..at("arrived") }, 3 * fifth),
        (CaptureRequest { port: Some("lan".to_owned()), ..at("arrived") }, 5 * fifth),
        (CaptureRequest { reason: Some("no-route".to_owned()), ..at("arrived") }, fifth),
        (CaptureRequest { reason: Some("nat-no-mapping".to_owned()), ..at("nat") }, 0),
        (CaptureRequest { reason: Some("nat-no-mapping".to_owned()), ..CaptureRequest::default() }, fifth),
        (at("dropped"), 2 * fifth),
        (CaptureRequest { filter: Some("dst 192.0.2.0/24".to_owned()), ..at("arrived") }, 3 * fifth),
        (CaptureRequest { filter: Some("src 10.0.0.0/8".to_owned()), ..at("egress") }, 0),
    ];
    for (request, expected) in all {
        let taps = Taps::default();
        let begun = taps.begin_for_test(selection(&request).expect("valid"), 2);
        run(&taps, ModelKind::Farm, 2);
        assert_eq!(caught(&taps, &begun).len() as u64, expected, "{request:?}");
        assert_eq!(begun.numbers.wanted.load(Ordering::Relaxed), expected, "{request:?}");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let of = |request: CaptureRequest| selection(&request).map(|_| ()).unwrap_err().to_string();
    assert!(of(at("natt")).contains("`natt`: expected `arrived`, a stage of this router (ingress, arrival"));
    let port = CaptureRequest { port: Some("dmz".to_owned()), ..at("nat") };
    assert_eq!(of(port), "no port is called `dmz`: expected one of lan, wan");
    let reason = CaptureRequest { reason: Some("bored".to_owned()), ..CaptureRequest::default() };
    assert!(of(reason).contains("`bored`: expected one of unsupported-link, "));
    assert!(
        of(CaptureRequest { reason: Some("no-route".to_owned()), ..at("sent") }).contains("no drop reason")
    );
    assert!(of(CaptureRequest { filter: Some("src".to_owned()), ..at("nat") }).contains("the filter ends"));
}

/// Nobody reads: packets without room are counted and forwarded, and the next packet read carries that count.
#[test]
fn a_reader_that_does_not_read_loses_counted_packets() {
    let taps = Taps::default();
    let begun = taps.begin_for_test(selection(&at("arrived")).expect("valid"), 2);
    let rounds = QUEUE_PACKETS as u64 / u64::from(PACKETS) + 2;
    for _ in 0..rounds {
        let all = run(&taps, ModelKind::RunToCompletion, 2);
        assert_eq!(all.values().filter(|fate| fate.is_ok()).count(), PACKETS as usize * 3 / 5);
    }
    let (wanted, room) = (rounds * u64::from(PACKETS), QUEUE_PACKETS as u64);
    let numbers = &begun.numbers;
    assert_eq!(numbers.wanted.load(Ordering::Relaxed), wanted);
    assert_eq!(numbers.queue_full.load(Ordering::Relaxed), wanted - room);
    for _ in 0..room {
        assert_eq!(begun.packets.try_recv().expect("a timer is running").lost_before, 0);
    }
    run(&taps, ModelKind::Serial, 1);
    assert_eq!(begun.packets.try_recv().expect("a timer is running").lost_before, wanted - room);
    assert_eq!(begun.packets.try_recv().expect("a timer is running").lost_before, 0);
}

/// The queue is bounded in bytes as well as in packets.
#[test]
fn long_packets_take_more_room() {
    let taps = Taps::default();
    let begun = taps.begin_for_test(selection(&at("dropped")).expect("valid"), 2);
    let frame = vec![0; 9000];
    let seen = Seen { frame: &frame, is_ip: false, is_leaving: false, port_in: 0, port_out: 1, class: 0 };
    let fit = QUEUE_BYTES / (9000 + PACKET_OVERHEAD);
    for _ in 0..fit + 10 {
        taps.dropped(DropReason::NoRoute, &seen);
    }
    assert_eq!(begun.numbers.queue_full.load(Ordering::Relaxed), 10);
    assert_eq!(caught(&taps, &begun).len(), fit);
}

#[test]
fn rates_and_lengths_are_limited() {
    let taps = Taps::default();
    let request = CaptureRequest { rate: Some(50), snaplen: Some(60), ..at("arrived") };
    let begun = taps.begin_for_test(selection(&request).expect("valid"), 2);
    // All packets arrive within a few microseconds.
    run(&taps, ModelKind::Serial, 1);
    let packets = caught(&taps, &begun);
    assert_eq!(packets.len(), 5, "a tenth of a second's worth");
    assert_eq!(begun.numbers.over_rate.load(Ordering::Relaxed), u64::from(PACKETS) - 5);
    let short = CaptureRequest { snaplen: Some(20), ..at("egress") };
    let begun = taps.begin_for_test(selection(&short).expect("valid"), 2);
    run(&taps, ModelKind::Serial, 1);
    assert!(caught(&taps, &begun).iter().all(|packet| packet.frame.len() == 20 && packet.wire_len == 46));
}

#[test]
fn there_are_only_so_many_captures() {
    let taps = Taps::default();
    let begin = || taps.begin(selection(&at("sent")).expect("valid"), 2, LiveClock::start());
    let mut begun: Vec<_> = (0..CAPTURES_MAX).map(|_| begin().expect("there is room")).collect();
    assert!(begin().is_none());
    taps.end(begun.remove(1).number);
    begun.extend(begin());
    assert_eq!(begun.len(), CAPTURES_MAX);
    taps.end_all();
    for begun in begun {
        assert!(begun.packets.recv().is_err(), "it has ended");
    }
}

/// The file has all packets of all interfaces with their fates, and the capture ends as requested.
#[test]
fn a_client_gets_a_file() {
    let counters = Arc::new(Counters::new(2));
    counters.taps.set_classes(vec!["default".to_owned()]);
    let begun = counters.taps.begin_for_test(selection(&at("arrived")).expect("valid"), 2);
    let stream = stream_of(&counters, begun, u64::MAX);
    run(&counters.taps, ModelKind::RunToCompletion, 2);
    let mut client = Client::default();
    let summary = stream.run(&mut client).expect("the client accepts all data");
    let all = u64::from(PACKETS);
    assert_eq!((summary.wanted, summary.captured, summary.queue_full), (all, all, 0));
    let file = read_file(&client.file);
    assert_eq!(file.interfaces, ["lan", "wan", "router"]);
    assert_eq!(file.packets.len(), PACKETS as usize);
    for (interface, time_ns, frame) in &file.packets {
        let number = number_of(frame);
        assert_eq!((*interface, *time_ns, frame), (0, 1000 + u64::from(number), &datagram(number)));
    }
    let text = String::from_utf8_lossy(&client.file);
    for comment in [
        "arrived, in lan, class default, translated, left to the router itself: no-route",
        "arrived, in lan, class default, dropped: nat-no-mapping (Arrived for a public",
        "arrived, in lan, class default, translated, out wan",
    ] {
        assert!(text.contains(comment), "{comment}");
    }
    assert!(!counters.taps.watch_stages(), "it ends when the client is done");

    let begun = counters.taps.begin_for_test(selection(&at("nat")).expect("valid"), 2);
    let stream = stream_of(&counters, begun, 7);
    run(&counters.taps, ModelKind::RunToCompletion, 2);
    let mut client = Client::default();
    assert_eq!(stream.run(&mut client).expect("the client accepts all data").captured, 7);
    assert_eq!(read_file(&client.file).packets.len(), 7);
}

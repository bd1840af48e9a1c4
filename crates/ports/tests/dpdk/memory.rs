//! Devices of memory and files: `net_null`, `net_ring`, `net_pcap`.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use thalweg_ports::live::NotTaken;
use thalweg_ports::live::dpdk::{self, DpdkOptions};
use thalweg_wire::MacAddr;

use crate::veth::{TIMEOUT, assert_same, frame, frames};
use crate::{open, refusal, start, try_open};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let header = PcapHeader { snaplen: 65535, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for (at, frame) in (0..).zip(frames) {
        let packet = PcapPacket::new(Duration::from_micros(at), frame.len() as u32, frame).unwrap();
        writer.write_packet(&packet).unwrap();
    }
}

fn read_capture(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data().to_vec());
    }
    frames
}

#[test]
fn null_gives_frames_without_end_and_takes_any() {
    let (mut port, mut link) = open("net_null0,size=64,copy=1");
    assert_eq!(port.facts.interface, "net_null0");
    assert_eq!((port.facts.mode.as_str(), port.facts.mtu, port.facts.index), ("dpdk net_null", 1500, 0));
    let facts = link.read().unwrap();
    assert!(
        facts.is_up && facts.has_carrier && facts.mac == port.facts.mac && facts.mtu == 1500,
        "{facts:?}"
    );
    // Its frames are all zeros, so they are not for the port's address.
    assert_eq!(port.receive_once(Duration::from_millis(20)), Vec::<Vec<u8>>::new());
    let (_, counters) = port.source.counters().next().unwrap();
    assert!(counters.foreign > 0 && counters.frames == 0, "{counters:?}");
    drop((port, link));
    // A port with address zero receives them.
    let options = DpdkOptions { mac: Some(MacAddr::ZERO), ..DpdkOptions::new("net_null0,size=64,copy=1") };
    let (mut port, _link) = try_open(&options).unwrap();
    assert_eq!(port.facts.mac, MacAddr::ZERO);
    let got = port.receive(1000);
    assert!(got.iter().all(|frame| *frame == [0; 64]));
    let (_, counters) = port.source.counters().next().unwrap();
    assert_eq!((counters.frames, counters.bytes), (got.len() as u64, 64 * got.len() as u64));
    port.send(&frames(OTHER, OWN, 1000));
    let sent = port.tx.counters();
    assert_eq!((sent.frames, sent.failed), (1000, 0));
    assert_eq!(sent.bytes, frames(OTHER, OWN, 1000).iter().map(|frame| frame.len() as u64).sum::<u64>());
}

#[test]
fn what_comes_from_a_file_goes_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    // All lengths; some are for other addresses, one is too long for the port, one longer than a buffer, one too
    // short for a frame.
    let mut all = frames(OWN, OTHER, 3000);
    all.extend((60..1515).map(|bytes| frame(MacAddr([0xff; 6]), OTHER, bytes as u32, bytes)));
    let ours = all.clone();
    all.insert(7, frame(OTHER, OWN, 1, 100));
    all.insert(8, frame(OWN, OTHER, 2, 1600));
    all.insert(9, frame(OWN, OTHER, 3, 5000));
    all.insert(10, vec![2; 11]);
    write_capture(&input, &all);
    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let options = DpdkOptions { mac: Some(OWN), ..DpdkOptions::new(device) };
    let (mut port, _link) = try_open(&options).unwrap();
    let got = port.receive(ours.len());
    assert_same(&got, &ours);
    assert!(port.receive_once(Duration::from_millis(5)).is_empty());
    let (_, counters) = port.source.counters().next().unwrap();
    assert_eq!(
        (counters.frames, counters.foreign, counters.refused, counters.missed),
        (ours.len() as u64, 1, 3, 0)
    );
    port.send(&got);
    assert_eq!(port.tx.push(&frame(OTHER, OWN, 4, 1515)), Err(NotTaken::TooLong));
    drop((port, _link));
    assert_same(&read_capture(&output), &ours);
}

#[test]
fn jumbo_frames_fit_a_port_that_was_opened_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    let long: Vec<_> = [9014, 60, 2049, 4096, 9013].map(|bytes| frame(OWN, OTHER, 5, bytes)).to_vec();
    write_capture(&input, &long);
    let device = format!("net_pcap1,rx_pcap={}", input.display());
    let options = DpdkOptions { mac: Some(OWN), mtu: 9000, ..DpdkOptions::new(device) };
    let (mut port, _link) = try_open(&options).unwrap();
    assert_eq!(port.facts.mtu, 9000);
    assert_same(&port.receive(long.len()), &long);
}

/// A ring accepts only the frames that fit; the others wait, and none is lost.
#[test]
fn what_a_device_does_not_take_waits() {
    let (mut port, _link) = open("net_ring0");
    let sent = frames(port.facts.mac, OTHER, 5000);
    let mut pushed = 0;
    let mut got = Vec::new();
    let began = std::time::Instant::now();
    while got.len() < sent.len() && began.elapsed() < TIMEOUT {
        while pushed < sent.len() {
            match port.tx.push(&sent[pushed]) {
                Ok(()) => pushed += 1,
                Err(why) => {
                    assert_eq!(why, NotTaken::Full);
                    break;
                }
            }
        }
        port.tx.flush().unwrap();
        assert_eq!(port.tx.counters().frames as usize + port.tx.pending(), pushed);
        if got.is_empty() {
            assert!(port.tx.pending() > 0 && pushed < sent.len(), "it is full: {pushed}");
        }
        got.extend(port.receive_once(Duration::from_millis(100)));
    }
    assert_same(&got, &sent);
    let counters = port.tx.counters();
    assert_eq!((counters.frames, counters.failed, port.tx.pending()), (5000, 0, 0));
}

/// Without memory no frame is received and those missed are counted; with memory receiving resumes.
#[test]
fn memory_that_runs_out_is_counted() {
    let options = DpdkOptions { mbufs: 64, ..DpdkOptions::new("net_ring1") };
    let (mut port, _link) = try_open(&options).unwrap();
    let sent = frames(port.facts.mac, OTHER, 100);
    let pushed = sent.iter().take_while(|frame| port.tx.push(frame) == Ok(())).count();
    port.tx.flush().unwrap();
    assert!((32..=64).contains(&pushed), "{pushed}");
    assert_eq!(port.tx.push(&sent[pushed]), Err(NotTaken::Full));
    assert_same(&port.receive(pushed), &sent[..pushed]);
    // The previous frames are freed when the next ones are requested.
    assert!(port.receive_once(Duration::from_millis(1)).is_empty());
    port.send(&sent[pushed..]);
    assert_same(&port.receive(100 - pushed), &sent[pushed..]);

    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.pcap");
    let all = frames(OWN, OTHER, 200);
    write_capture(&input, &all);
    let device = format!("net_pcap2,rx_pcap={}", input.display());
    let (mut port, _link) =
        try_open(&DpdkOptions { mac: Some(OWN), mbufs: 20, ..DpdkOptions::new(device) }).unwrap();
    let mut got = Vec::new();
    loop {
        let more = port.receive_once(Duration::from_millis(5));
        if more.is_empty() {
            break;
        }
        got.extend(more);
    }
    let (_, counters) = port.source.counters().next().unwrap();
    assert!(counters.missed > 0, "{counters:?}");
    assert_eq!(counters.frames + counters.missed, 200, "{counters:?}");
    assert!(got.iter().all(|frame| all.contains(frame)) && got.len() as u64 == counters.frames);
}

#[test]
fn several_threads_may_use_a_port_in_turn() {
    let (mut port, _link) = open("net_ring2");
    let sent = frames(port.facts.mac, OTHER, 600);
    let mut got = Vec::new();
    for part in sent.chunks(100) {
        let work = move || {
            port.send(part);
            let got = port.receive(part.len());
            (port, got)
        };
        let more;
        (port, more) = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        got.extend(more);
    }
    assert_same(&got, &sent);
}

#[test]
fn a_device_is_one_ports_and_comes_back_when_that_goes() {
    let first = open("net_null7");
    let said = refusal("net_null7");
    assert!(said.starts_with("net_null7: DPDK does not attach: ") && said.contains("open already"), "{said}");
    drop(first);
    open("net_null7");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.pcap");
    let said = refusal(&format!("net_pcap8,rx_pcap={}", missing.display()));
    assert!(said.contains("net_pcap8") && said.contains("No such file or directory"), "{said}");
    let said = refusal("net_nosuch0");
    assert!(said.contains("net_nosuch0") && said.contains("no such device"), "{said}");
    let huge = DpdkOptions { mbufs: 50_000_000, ..DpdkOptions::new("net_null8") };
    let said = try_open(&huge).map(drop).unwrap_err().to_string();
    assert!(said.contains("not enough memory"), "{said}");
    // A device that failed to open can be opened later.
    open("net_null8");
    fs::write(&missing, []).unwrap();
    assert!(refusal(&format!("net_pcap8,rx_pcap={}", missing.display())).contains("net_pcap8"));
}

#[test]
fn it_is_started_once_with_one_set_of_arguments() {
    start();
    start();
    let said =
        dpdk::start(&["--no-huge".to_owned()], &[DpdkOptions::new("net_null9")]).unwrap_err().to_string();
    assert!(
        said.contains("net_null9: DPDK does not start: ") && said.contains("other arguments (--no-telemetry"),
        "{said}"
    );
    assert!(said.contains("wanted are --no-huge") && said.contains("only once"), "{said}");
    // Other arguments are no error if no device is wanted.
    dpdk::start(&["--no-huge".to_owned()], &[]).unwrap();
}

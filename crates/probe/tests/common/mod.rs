//! Generated traffic with known flows, and a probe that meters it.
#![allow(dead_code)] // not every test uses all of it

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thalweg_base::XorShift64Star;
use thalweg_probe::{FileInput, Input, ProbeOptions, ProbeSummary, probe};
use thalweg_wire::icmp::v4::ECHO_REQUEST;
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::{EtherType, testing};

/// Addresses, ports and protocol of one direction.
pub(crate) type Key = (IpAddr, IpAddr, u16, u16, u8);
/// Packets and bytes of IP.
pub(crate) type Sums = BTreeMap<Key, (u64, u64)>;

/// Packets in the order of arrival, and their sums.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Arrival and frame.
    pub(crate) frames: Vec<(u64, Vec<u8>)>,
    /// The sums that a meter should find.
    pub(crate) sums: Sums,
    /// Frames that are not IP.
    pub(crate) not_ip: u64,
}

const START_NS: u64 = 1_700_000_000_000_000_000;

impl Traffic {
    /// Many flows of both families over half a minute, some tagged, with fragments and frames that are not IP.
    pub(crate) fn mixed(packets: usize, flows: u32, seed: u64) -> Self {
        let mut rng = XorShift64Star::new(seed);
        let mut traffic = Self::default();
        for n in 0..packets as u64 {
            let at = START_NS + n * 30_000_000_000 / packets as u64;
            // Lower flow numbers get more packets.
            let most = rng.below(flows) + 1;
            let flow = rng.below(most);
            let payload = 8 + rng.below(200) as usize;
            match flow % 16 {
                0 => traffic.push_ipv6(at, flow, payload),
                1 => traffic.push_icmp(at, flow, payload),
                2 => traffic.push_fragments(at, flow, n as u16),
                3 if n % 7 == 0 => traffic.push_arp(at),
                tagged @ 4..=5 => traffic.push_ipv4(at, flow, 17, payload, Some(tagged as u16)),
                7 => traffic.push_ipv4(at, flow, 6, payload.max(12), None),
                _ => traffic.push_ipv4(at, flow, 17, payload, None),
            }
        }
        traffic
    }

    /// Both endpoints of a flow: every second packet goes back.
    fn ends(&self, flow: u32) -> ((u32, u16), (u32, u16)) {
        let there =
            ((0x0a00_0000 | (flow / 3), 1024 + (flow % 50_000) as u16), (0xc0a8_0001 + flow / 3 % 7, 443));
        if self.frames.len().is_multiple_of(2) { there } else { (there.1, there.0) }
    }

    fn count(&mut self, key: Key, bytes: usize) {
        let (packets, sum) = self.sums.entry(key).or_default();
        *packets += 1;
        *sum += bytes as u64;
    }

    pub(crate) fn push_ipv4(&mut self, at: u64, flow: u32, protocol: u8, payload: usize, vlan: Option<u16>) {
        let ((src, src_port), (dst, dst_port)) = self.ends(flow);
        let mut transport = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        transport.resize(8 + payload, 0);
        if protocol == 6 {
            let resets = self.frames.len().is_multiple_of(9);
            (transport[12], transport[13]) = (0x50, if resets { 0x14 } else { 0x10 });
        }
        let packet = ipv4(src, dst, protocol, 0, 0, &transport);
        self.count((v4(src), v4(dst), src_port, dst_port, protocol), packet.len());
        let header = testing::ethernet_header(vlan.as_slice(), EtherType::IPV4);
        self.frames.push((at, [header, packet].concat()));
    }

    /// A datagram of one flow with this payload.
    pub(crate) fn push_datagram(&mut self, at: u64, ports: (u16, u16), payload: &[u8]) {
        let packet = testing::udp(([10, 0, 0, 1], ports.0), ([10, 0, 0, 2], ports.1), payload);
        self.count((v4(0x0a00_0001), v4(0x0a00_0002), ports.0, ports.1, 17), packet.len());
        self.frames.push((at, testing::frame(&packet)));
    }

    fn push_icmp(&mut self, at: u64, flow: u32, payload: usize) {
        let ((src, _), (dst, _)) = self.ends(flow);
        let packet = testing::icmp(v4(src), v4(dst), ECHO_REQUEST, [0, 1, 0, 1], &vec![0; payload]);
        self.count((v4(src), v4(dst), 0, 8 << 8, 1), packet.len());
        self.frames.push((at, testing::frame(&packet)));
    }

    /// Two fragments of one datagram of the flow.
    fn push_fragments(&mut self, at: u64, flow: u32, identifier: u16) {
        let ((src, src_port), (dst, dst_port)) = self.ends(flow);
        let mut first = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        first.resize(64, 0);
        let pieces = [(0x2000, first), (8, vec![0; 40])];
        for (field, payload) in pieces {
            let packet = ipv4(src, dst, 17, identifier, field, &payload);
            self.count((v4(src), v4(dst), src_port, dst_port, 17), packet.len());
            self.frames.push((at, testing::frame(&packet)));
        }
    }

    fn push_ipv6(&mut self, at: u64, flow: u32, payload: usize) {
        let ((src, src_port), (dst, dst_port)) = self.ends(flow);
        let address = |low: u32| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
            bytes[12..].copy_from_slice(&low.to_be_bytes());
            bytes
        };
        let packet = testing::udp((address(src), src_port), (address(dst), dst_port), &vec![0; payload]);
        let key = (address(src).into(), address(dst).into(), src_port, dst_port, 17);
        self.count(key, packet.len());
        self.frames.push((at, testing::frame(&packet)));
    }

    fn push_arp(&mut self, at: u64) {
        self.not_ip += 1;
        self.frames.push((at, [testing::ethernet_header(&[], EtherType::ARP), vec![0; 46]].concat()));
    }

    /// Writes a capture of the traffic.
    pub(crate) fn write(&self, path: &Path) {
        write(path, self.frames.iter());
    }

    /// Bytes of all IP packets.
    pub(crate) fn ip_bytes(&self) -> u64 {
        self.sums.values().map(|(_, bytes)| bytes).sum()
    }

    /// Packets of IP.
    pub(crate) fn ip_packets(&self) -> u64 {
        self.sums.values().map(|(packets, _)| packets).sum()
    }
}

/// Writes frames as a capture with times in nanoseconds.
pub(crate) fn write<'a>(path: &Path, frames: impl Iterator<Item = &'a (u64, Vec<u8>)>) {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (at, frame) in frames {
        let length = frame.len() as u32;
        for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).expect("there is room for a capture");
}

fn v4(address: u32) -> IpAddr {
    IpAddr::from(address.to_be_bytes())
}

fn ipv4(
    src: u32,
    dst: u32,
    protocol: u8,
    identification: u16,
    flags_and_offset: u16,
    payload: &[u8],
) -> Vec<u8> {
    let header = Ipv4Repr {
        identification,
        flags_and_offset,
        ..Ipv4Repr::new(src.into(), dst.into(), protocol, payload.len())
    };
    testing::ipv4(header, payload)
}

/// The usual options for a file, with records in `records`.
pub(crate) fn options(capture: &Path, records: &Path) -> ProbeOptions {
    let input = Input::Files(FileInput::new(vec![capture.to_owned()]));
    ProbeOptions { json: Some(records.to_owned()), ..ProbeOptions::new(input) }
}

/// Runs a probe to its end; its totals must balance.
pub(crate) fn run(options: &ProbeOptions) -> ProbeSummary {
    let summary = probe(options, &Arc::new(AtomicBool::new(false)), &()).expect("it can run");
    assert!(summary.conserved, "{summary:?}");
    summary
}

/// The records of a file as JSON objects, in an order independent of the writer.
pub(crate) fn records(path: &Path) -> Vec<serde_json::Value> {
    records_of(&std::fs::read_to_string(path).expect("records were written"))
}

/// The same from text.
pub(crate) fn records_of(text: &str) -> Vec<serde_json::Value> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// The sums of the records.
pub(crate) fn sums(records: &[serde_json::Value]) -> Sums {
    let mut sums = Sums::new();
    for record in records {
        let number = |name: &str| record[name].as_u64().expect("a number");
        let address =
            |name: &str| record[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        let (src, dst): (IpAddr, IpAddr) = (address("src"), address("dst"));
        let ports = [number("src_port"), number("dst_port")].map(|port| port as u16);
        let protocol = number("protocol") as u8;
        let (packets, bytes) = sums.entry((src, dst, ports[0], ports[1], protocol)).or_default();
        *packets += number("packets");
        *bytes += number("bytes");
        if let Some(reverse) = record.get("reverse_packets").and_then(serde_json::Value::as_u64) {
            let ports = if protocol == 1 { ports } else { [ports[1], ports[0]] };
            let (packets, bytes) = sums.entry((dst, src, ports[0], ports[1], protocol)).or_default();
            *packets += reverse;
            *bytes += number("reverse_bytes");
        }
    }
    sums
}

/// A folder with a capture of this traffic in it.
pub(crate) fn folder(traffic: &Traffic) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let (capture, records) = (folder.path().join("traffic.pcap"), folder.path().join("records.json"));
    traffic.write(&capture);
    (folder, capture, records)
}

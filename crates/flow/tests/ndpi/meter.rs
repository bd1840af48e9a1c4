//! A simple, slow meter: a map whose flows never end. It counts as nDPI does: the captured bytes of frames, both
//! directions of a flow in one.
//!
//! Where nDPI treats a packet differently from [`parse`], a [`Difference`] names it and the meter follows nDPI. The
//! tests compare the number of such packets too.

use super::list::{Counted, Ends};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, Packet, PacketFlags};
use thalweg_flow::application;
use thalweg_flow::parse::{ParseOptions, parse, payload_of, vlan_of};
use thalweg_flow::{Bytes, EndReason, FlowNames, KeyFields, Meter, MeterOptions, NameOptions};
use thalweg_ports::{FileSource, InputOptions, InputSpec, PortNames};

/// What nDPI does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// It leaves out later fragments. Here they are counted.
    LaterFragment,
    /// It leaves out IPv4 packets that claim more bytes than were captured. Here they count with the captured bytes.
    ClaimsMore,
    /// It has no ports for TCP and UDP headers that are not whole. Here four bytes are enough.
    CutHeader,
    /// Its key has the inner of two VLAN tags. Here it is the outer.
    InnerTag,
    /// It takes a frame with any EtherType for IPv4 if the version fits, and ignores fragments there. Here the
    /// EtherType decides.
    OtherEtherType,
    /// It does not parse Teredo. Here the inner packet counts.
    Teredo,
    /// It leaves out CAPWAP data without an IP packet inside. Here it counts as the UDP packet that it is.
    CapwapWithoutIp,
}

impl Difference {
    /// Whether it only leaves out packets.
    pub(crate) fn leaves_out(self) -> bool {
        matches!(self, Self::LaterFragment | Self::ClaimsMore | Self::CapwapWithoutIp)
    }
}

/// A metered flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metered {
    pub(crate) counted: Counted,
    /// The application by payload, else by ports.
    pub(crate) application: Option<u8>,
    /// Payloads inspected in each direction, while none has given an answer.
    payloads: [usize; 2],
    is_sure: bool,
}

/// The result of metering a capture.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) flows: HashMap<Ends, Metered>,
    pub(crate) differences: BTreeMap<Difference, u64>,
    /// Packets that neither meter counts, by reason.
    pub(crate) dropped: BTreeMap<DropReason, u64>,
    pub(crate) packets: u64,
}

const TUNNELS: ParseOptions = ParseOptions { tunnels: true };

/// Meters a capture.
pub(crate) fn meter(path: &Path) -> Capture {
    let mut capture = Capture::default();
    for mut chunk in chunks(path) {
        for k in 0..chunk.batch_count() {
            for (packet, frame) in chunk.batch(k).frames() {
                capture.packets += 1;
                parse(packet, frame, &TUNNELS);
                capture.look(packet, frame);
            }
        }
    }
    capture
}

fn chunks(path: &Path) -> Vec<Chunk> {
    let specs = vec![InputSpec::path(path)];
    let source = FileSource::open(specs, PortNames::default(), &InputOptions::default()).expect("a capture");
    source.load_all().expect("a reader that is not strict returns no error").0
}

/// A flow in records: its counts in each direction, its application, and its names.
pub(crate) type Recorded = (Counted, Option<u8>, FlowNames);

/// The same flows by the crate's meter, with payload inspection. Packets that nDPI leaves out are dropped before;
/// packets that it treats differently otherwise are not distinguished.
pub(crate) fn meter_in_earnest(path: &Path) -> HashMap<Ends, Recorded> {
    let options = MeterOptions {
        // The list's key: endpoints, protocol and VLAN. Flows end only when the meter ends.
        key: KeyFields { traffic_class: false, ingress: false, mpls: false, ..KeyFields::default() },
        idle_timeout_ns: u64::MAX / 4,
        active_timeout_ns: u64::MAX / 4,
        end_linger_ns: u64::MAX / 4,
        biflow: true,
        count: Bytes::Frame,
        shards: 4,
        names: NameOptions { tls: true, quic: true, http: true, dns: true, ja4: false },
        ..MeterOptions::default()
    };
    let meter: Meter = Meter::new(&options).expect("a meter");
    let mut records = Vec::new();
    for mut chunk in chunks(path) {
        for k in 0..chunk.batch_count() {
            for (packet, frame) in chunk.batch(k).frames() {
                parse(packet, frame, &TUNNELS);
                if packet.is_alive() && left_out(packet, frame).is_some() {
                    packet.drop_for(DropReason::NotIp);
                }
                application::look(packet, frame);
                meter.label(packet, frame);
            }
        }
        meter.resolve_fragments(&mut chunk);
        meter.observe(&mut chunk, 0..1, 1, &mut |record| records.push(*record));
    }
    for shard in 0..meter.shard_count() {
        meter.flush(shard, EndReason::ForcedEnd, &mut |record| records.push(*record));
    }
    // nDPI has one flow for all ICMP types between two hosts; the first packet's sender is the initiator.
    records.sort_by_key(|record| record.counters.first_ns);
    let mut flows: HashMap<Ends, Recorded> = HashMap::new();
    for record in records {
        let key = record.key;
        let has_ports = matches!(key.protocol, 6 | 17);
        let port = |port: u16| if has_ports { port } else { 0 };
        let ends = Ends {
            src: (key.src, port(key.src_port)),
            dst: (key.dst, port(key.dst_port)),
            protocol: key.protocol,
            vlan: key.vlan,
        };
        let (there, back) = (record.counters, record.reverse.unwrap_or_default());
        let mut counted = [(there.packets, there.bytes), (back.packets, back.bytes)];
        let mut known = ends;
        if flows.contains_key(&ends.reversed()) {
            known = ends.reversed();
            counted.reverse();
        }
        let (flow, application, names) = flows.entry(known).or_default();
        for (sum, part) in flow.iter_mut().zip(counted) {
            (sum.0, sum.1) = (sum.0 + part.0, sum.1 + part.1);
        }
        let by_ports = || application::by_ports(key.protocol, key.src_port, key.dst_port);
        *names = record.names;
        *application = Some(record.application).filter(|code| *code != 0).or_else(by_ports);
    }
    flows
}

/// Why nDPI does not count a packet that can be read.
fn left_out(packet: &Packet, frame: &[u8]) -> Option<Difference> {
    let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
    if packet.protocol == 17 && [packet.src_port, packet.dst_port].contains(&5247) {
        Some(Difference::CapwapWithoutIp)
    } else if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        Some(Difference::LaterFragment)
    } else {
        claims_more(l3).then_some(Difference::ClaimsMore)
    }
}

impl Capture {
    fn differs(&mut self, difference: Difference) {
        *self.differences.entry(difference).or_default() += 1;
    }

    fn look(&mut self, packet: &Packet, frame: &[u8]) {
        let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
        if let Some(reason) = packet.drop_reason() {
            if reason == DropReason::NotIp && self.look_whatever_the_type(l3, frame.len()) {
                self.differs(Difference::OtherEtherType);
            } else {
                *self.dropped.entry(reason).or_default() += 1;
            }
        } else if is_inside_teredo(packet, frame) {
            self.differs(Difference::Teredo);
            again(&frame[14..], &ParseOptions { tunnels: false }, |p, l3| self.count(p, l3, frame.len()));
        } else if let Some(difference) = left_out(packet, frame) {
            self.differs(difference);
        } else {
            self.count(packet, frame, frame.len());
        }
    }

    /// Takes bytes for IPv4; returns whether nDPI counts them.
    fn look_whatever_the_type(&mut self, l3: &[u8], bytes: usize) -> bool {
        let mut l3 = l3.to_vec();
        if l3.len() < 20 || l3[0] >> 4 != 4 || claims_more(&l3) {
            return false;
        }
        l3[6..8].fill(0);
        again(&l3, &TUNNELS, |packet, l3| self.count(packet, l3, bytes))
    }

    fn count(&mut self, packet: &Packet, frame: &[u8], bytes: usize) {
        let vlan = match (vlan_of(frame, packet), frame.get(16..18)) {
            (1.., Some([0x81, 0x00] | [0x88, 0xa8])) => {
                self.differs(Difference::InnerTag);
                u16::from_be_bytes([frame[18], frame[19]]) & 0x0fff
            }
            (vlan, _) => vlan,
        };
        let mut ends = ends_of(packet, &frame[usize::from(packet.l3_offset)..], vlan);
        let least = if packet.protocol == 6 { 20 } else { 8 };
        let transport_len =
            packet.ip_len as usize + usize::from(packet.l3_offset) - usize::from(packet.l4_offset);
        if transport_len < least && (ends.src.1, ends.dst.1) != (0, 0) {
            self.differs(Difference::CutHeader);
            (ends.src.1, ends.dst.1) = (0, 0);
        }
        let (ends, direction) =
            if self.flows.contains_key(&ends.reversed()) { (ends.reversed(), 1) } else { (ends, 0) };
        let flow = self.flows.entry(ends).or_insert_with(|| Metered {
            application: application::by_ports(packet.protocol, packet.src_port, packet.dst_port),
            ..Metered::default()
        });
        flow.counted[direction].0 += 1;
        flow.counted[direction].1 += bytes as u64;
        flow.look(packet, payload_of(frame, packet), direction);
    }
}

impl Metered {
    fn look(&mut self, packet: &Packet, payload: &[u8], direction: usize) {
        if payload.is_empty() || self.payloads[direction] >= application::PAYLOADS_MAX {
            return;
        }
        self.payloads[direction] += 1;
        if self.is_sure {
            return;
        }
        let seen = application::by_payload(packet.protocol, packet.src_port, packet.dst_port, payload);
        if seen.is_some() {
            self.application = seen;
            self.is_sure = true;
        }
    }
}

/// Whether an IPv4 packet claims more bytes than were captured.
fn claims_more(l3: &[u8]) -> bool {
    l3[0] >> 4 == 4 && usize::from(u16::from_be_bytes([l3[2], l3[3]])) > l3.len()
}

fn is_inside_teredo(packet: &Packet, frame: &[u8]) -> bool {
    let port = |at: usize| frame.get(at..at + 2) == Some(&3544u16.to_be_bytes());
    packet.is_ipv6()
        && frame.get(12..15) == Some(&[0x08, 0x00, 0x45])
        && frame[23] == 17
        && (port(34) || port(36))
}

/// Parses bytes that begin with an IP header, and calls `then` if they are readable.
fn again(l3: &[u8], options: &ParseOptions, then: impl FnOnce(&Packet, &[u8])) -> bool {
    let mut builder = ChunkBuilder::with_capacity(l3.len() + 256);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + l3.len()].copy_from_slice(l3);
    builder.push(at, l3.len(), l3.len() as u32, 0, LinkType::RawIp, 0, 0);
    let mut chunk: Chunk = builder.finish(0, 1, 0);
    let mut batch = chunk.batch(0);
    let (packet, frame) = batch.packet_and_frame(0);
    parse(packet, frame, options);
    if packet.is_alive() {
        then(packet, frame);
    }
    packet.is_alive()
}

/// Addresses and ports of a parsed packet. nDPI has ports for TCP and UDP only.
fn ends_of(packet: &Packet, l3: &[u8], vlan: u16) -> Ends {
    let address = |v4: usize, v6: usize| -> IpAddr {
        if packet.is_ipv6() {
            <[u8; 16]>::try_from(&l3[v6..v6 + 16]).expect("the length was checked").into()
        } else {
            <[u8; 4]>::try_from(&l3[v4..v4 + 4]).expect("the length was checked").into()
        }
    };
    let has_ports = packet.flags.has(PacketFlags::HAS_PORTS) && matches!(packet.protocol, 6 | 17);
    let (src_port, dst_port) = if has_ports { (packet.src_port, packet.dst_port) } else { (0, 0) };
    Ends {
        src: (address(12, 8), src_port),
        dst: (address(16, 24), dst_port),
        protocol: packet.protocol,
        vlan,
    }
}

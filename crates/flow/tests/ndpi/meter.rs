//! A meter as slow as it is plain: a map, and no flow ever ends. It counts what nDPI counts: the octets of frames that are at
//! hand, both directions of a flow in one.

use crate::list::{Counted, Ends};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use thalweg_base::{Packet, PacketFlags};
use thalweg_flow::application;
use thalweg_flow::parse::{ParseOptions, parse, payload_of, vlan_of};

use thalweg_ports::{FileSource, InputOptions, InputSpec, PortNames};

/// A flow as it was counted.
#[derive(Clone, Debug, Default)]
pub struct Metered {
    pub counted: Counted,
    /// The application by payload, else by ports.
    pub application: Option<u8>,
    payloads: [usize; 2],
}

/// What was made of a capture.
#[derive(Debug, Default)]
pub struct Capture {
    pub flows: HashMap<Ends, Metered>,
    /// Packets that were left out, by why.
    pub left_out: BTreeMap<&'static str, u64>,
    pub packets: u64,
}

/// Meters a capture. `leave_out` says of a packet why nDPI does not count it, if it does not.
pub fn meter(path: &Path, leave_out: impl Fn(&Packet, &[u8]) -> Option<&'static str>) -> Capture {
    let specs = vec![InputSpec::path(path)];
    let source = FileSource::open(specs, PortNames::default(), &InputOptions::default()).expect("a capture");
    let (chunks, _) = source.load_all().expect("not strict");
    let mut capture = Capture::default();
    for mut chunk in chunks {
        for k in 0..chunk.batch_count() {
            for (packet, frame) in chunk.batch(k).frames() {
                capture.packets += 1;
                parse(packet, frame, &ParseOptions { tunnels: true });
                let why =
                    packet.drop_reason().map(|reason| reason.name()).or_else(|| leave_out(packet, frame));
                match why {
                    Some(why) => *capture.left_out.entry(why).or_default() += 1,
                    None => capture.count(packet, frame),
                }
            }
        }
    }
    capture
}

impl Capture {
    fn count(&mut self, packet: &Packet, frame: &[u8]) {
        let ends = ends_of(packet, frame);
        let (ends, direction) =
            if self.flows.contains_key(&ends.reversed()) { (ends.reversed(), 1) } else { (ends, 0) };
        let flow = self.flows.entry(ends).or_insert_with(|| Metered {
            application: application::by_ports(packet.protocol, packet.src_port, packet.dst_port),
            ..Metered::default()
        });
        flow.counted[direction].0 += 1;
        flow.counted[direction].1 += frame.len() as u64;
        let payload = payload_of(frame, packet);
        if !payload.is_empty() && flow.payloads[direction] < application::PAYLOADS_MAX {
            let seen = application::by_payload(packet.protocol, packet.src_port, packet.dst_port, payload);
            // The first answer of either direction counts.
            if flow.payloads != [usize::MAX; 2] {
                flow.payloads[direction] += 1;
                if seen.is_some() {
                    flow.application = seen;
                    flow.payloads = [usize::MAX; 2];
                }
            }
        }
    }
}

/// Addresses and ports of a parsed packet. nDPI has ports for TCP and UDP only.
fn ends_of(packet: &Packet, frame: &[u8]) -> Ends {
    let l3 = &frame[usize::from(packet.l3_offset)..];
    let address = |v4: usize, v6: usize| -> IpAddr {
        if packet.is_ipv6() {
            <[u8; 16]>::try_from(&l3[v6..v6 + 16]).unwrap().into()
        } else {
            <[u8; 4]>::try_from(&l3[v4..v4 + 4]).unwrap().into()
        }
    };
    let ported = packet.flags.has(PacketFlags::HAS_PORTS) && matches!(packet.protocol, 6 | 17);
    let (src_port, dst_port) = if ported { (packet.src_port, packet.dst_port) } else { (0, 0) };
    Ends {
        src: (address(12, 8), src_port),
        dst: (address(16, 24), dst_port),
        protocol: packet.protocol,
        vlan: vlan_of(frame, packet),
    }
}

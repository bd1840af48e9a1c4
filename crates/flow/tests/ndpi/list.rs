//! The output of `ndpiReader` for a capture: one line per flow, with the direction of its first packet first.
//!
//! ```text
//! <tab>3<tab>UDP 10.0.0.1:5353 -> 224.0.0.251:5353 [VLAN: 7][proto: 8/MDNS][..][4 pkts/400 bytes -> 0 pkts/0 bytes][..]
//! ```
//! IPv6 addresses are in brackets; tunnels have their name before the protocol's number. There are other numbered
//! lines; those of flows have an arrow and counters.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// Packets and bytes of frames, in each direction.
pub(crate) type Counted = [(u64, u64); 2];

/// Addresses and ports that identify a flow, in the direction of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ends {
    pub(crate) src: (IpAddr, u16),
    pub(crate) dst: (IpAddr, u16),
    pub(crate) protocol: u8,
    pub(crate) vlan: u16,
}

impl Ends {
    pub(crate) fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, ..self }
    }
}

/// A flow of the list.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) counted: Counted,
    /// nDPI's names of the protocol, the transport's first: `["DNS", "Google"]`.
    pub(crate) names: Vec<String>,
    /// The name of the server.
    pub(crate) host: Option<String>,
}

/// The flows of a list.
pub(crate) fn read(path: &Path) -> BTreeMap<Ends, Listed> {
    // Names and paths are as in the packets, perhaps not UTF-8.
    let bytes = std::fs::read(path).expect("the list is readable");
    let text = String::from_utf8_lossy(&bytes);
    let mut flows = BTreeMap::new();
    for (ends, listed) in text.lines().filter_map(line) {
        let before = flows.insert(ends, listed);
        assert!(before.is_none(), "{}: {ends:?} twice", path.display());
    }
    flows
}

fn line(line: &str) -> Option<(Ends, Listed)> {
    let rest = line.strip_prefix('\t')?.split_once('\t')?.1;
    let (protocol, rest) = rest.split_once(' ')?;
    let arrow = if rest.contains("]:") || rest.contains('.') {
        rest.find(" <-> ").or(rest.find(" -> "))
    } else {
        None
    }?;
    let src = end(&rest[..arrow])?;
    let behind = rest[arrow..].trim_start().split_once(' ')?.1;
    let (dst, fields) = behind.split_once(' ')?;
    let dst = end(dst)?;
    let field = |name: &str| Some(fields.split_once(&format!("[{name}: "))?.1.split_once(']')?.0);
    let vlan = field("VLAN").map_or(0, |vlan| vlan.parse().expect("a VLAN is a number"));
    let names = field("proto")?.rsplit_once('/')?.1.split('.').map(str::to_string).collect();
    let host = field("Hostname/SNI").map(str::to_string);
    let counters = fields.split('[').find(|field| field.contains(" pkts/") && field.contains(" bytes"))?;
    let numbers: Vec<u64> = counters
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().expect("a counter is a number"))
        .collect();
    let [packets, bytes, packets_back, bytes_back] = numbers[..] else { panic!("counters of {line}") };
    let ends = Ends { src, dst, protocol: protocol_number(protocol), vlan };
    Some((ends, Listed { counted: [(packets, bytes), (packets_back, bytes_back)], names, host }))
}

fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.rsplit_once(':')?;
    let address = address.trim_matches(['[', ']']);
    Some((address.parse().ok()?, port.parse().ok()?))
}

fn protocol_number(name: &str) -> u8 {
    match name {
        "TCP" => 6,
        "UDP" => 17,
        "ICMP" => 1,
        "ICMPV6" => 58,
        "IGMP" => 2,
        number => number.parse().unwrap_or_else(|_| panic!("protocol {number}")),
    }
}

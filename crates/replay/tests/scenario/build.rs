//! From a line of text to a frame. One line is one packet:
//!
//! ```text
//! TIME_S [PORT:]LINK [vlan N].. ip SRC > DST [KEY VALUE].. UPPER
//! ```
//!
//! - `LINK`: `eth`, `raw`, `sll`, `sll2`, `loop`, or `eth-type HEX` for an Ethernet frame of another kind.
//! - `SRC > DST` of either version. Keys: `ttl N` (64), `tos N` (0), `id N` (0), `frag N` (offset in bytes),
//!   `more` (fragments follow), `options HEX`; of IPv6 also `hop HEX`, `dest HEX`, `routing HEX` extension
//!   headers (content behind the first two bytes) and `frag6 OFFSET ID [more]`.
//! - `UPPER`: `udp SPORT > DPORT`, `tcp SPORT > DPORT FLAGS [opt HEX]` (options), `echo ID SEQ`, `echo-reply ID SEQ`,
//!   `error TYPE CODE REST ip ..` (an ICMP error about the packet that follows), `proto N`, each with
//!   `data N` (that many bytes of payload).
//! - Last, on the whole: `snap N` (only so many bytes were captured), `flip N` (byte N is damaged).
//!
//! Lengths and checksums are right unless `flip` says otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thalweg_wire::icmp::{self, IcmpRepr};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::ipv6::Ipv6Repr;
use thalweg_wire::{EtherType, ip_protocol, testing};

/// A packet as a capture holds it.
pub(crate) struct Built {
    pub(crate) time_ns: u64,
    pub(crate) port: String,
    pub(crate) link_code: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) wire_len: u32,
}

struct Words<'a> {
    words: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
    line: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> &'a str {
        self.words.next().unwrap_or_else(|| panic!("a word is missing at the end of: {}", self.line))
    }

    fn number<T: std::str::FromStr>(&mut self) -> T {
        let word = self.next();
        word.parse().unwrap_or_else(|_| panic!("`{word}` is no such number in: {}", self.line))
    }

    fn hex(&mut self) -> Vec<u8> {
        let word = self.next();
        let digits: Vec<u8> = word.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
        assert!(
            digits.len() == word.len() && word.len().is_multiple_of(2),
            "`{word}` is not hex in: {}",
            self.line
        );
        digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
    }

    fn take(&mut self, word: &str) -> bool {
        self.words.next_if_eq(&word).is_some()
    }

    fn expect(&mut self, word: &str) {
        assert!(self.take(word), "`{word}` is missing in: {}", self.line);
    }
}

/// Builds the packet of a line.
pub(crate) fn line(line: &str) -> Built {
    let mut words = Words { words: line.split_whitespace().peekable(), line };
    let time: f64 = words.number();
    let place = words.next();
    let (port, link) = place.split_once(':').unwrap_or(("", place));
    let mut tags = Vec::new();
    while words.take("vlan") {
        tags.push(words.number::<u16>());
    }
    let other = (link == "eth-type").then(|| words.hex());
    let (version, packet) = match other {
        Some(_) => (0, vec![0; 46]),
        None => {
            words.expect("ip");
            ip(&mut words)
        }
    };
    let ether_type = EtherType::of_packet(&packet);
    let (link_code, mut frame) = match link {
        "eth" | "eth-type" => (1, ethernet(&tags, other.as_deref(), ether_type)),
        "raw" => (101, Vec::new()),
        "sll" => (113, [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0][..], &ether_type.to_be_bytes()].concat()),
        "sll2" => (276, [&ether_type.to_be_bytes()[..], &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6], &[0; 8]].concat()),
        "loop" => (0, if version == 6 { vec![30, 0, 0, 0] } else { vec![2, 0, 0, 0] }),
        _ => panic!("no link `{link}` in: {line}"),
    };
    frame.extend(packet);
    let wire_len = frame.len() as u32;
    if words.take("flip") {
        let at: usize = words.number();
        frame[at] ^= 0x01;
    }
    if words.take("snap") {
        frame.truncate(words.number());
    }
    assert!(words.words.peek().is_none(), "`{}` is too much in: {line}", words.next());
    Built { time_ns: (time * 1e9).round() as u64, port: port.to_string(), link_code, frame, wire_len }
}

fn ethernet(tags: &[u16], other: Option<&[u8]>, ether_type: EtherType) -> Vec<u8> {
    let mut frame = testing::ethernet_header(tags, ether_type);
    if let Some(other) = other {
        frame.truncate(frame.len() - 2);
        frame.extend(other);
    }
    frame
}

fn ip(words: &mut Words<'_>) -> (u8, Vec<u8>) {
    let source = words.next();
    words.expect(">");
    let destination = words.next();
    if source.contains(':') {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap_or_else(|e| panic!("{text}: {e}"));
        (6, ip6(words, address(source), address(destination)))
    } else {
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap_or_else(|e| panic!("{text}: {e}"));
        (4, ip4(words, address(source), address(destination)))
    }
}

fn ip4(words: &mut Words<'_>, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let (mut ttl, mut tos, mut id, mut fragment, mut options) = (64u8, 0u8, 0u16, 0u16, Vec::new());
    loop {
        match () {
            () if words.take("ttl") => ttl = words.number(),
            () if words.take("tos") => tos = words.number(),
            () if words.take("id") => id = words.number(),
            () if words.take("frag") => fragment |= words.number::<u16>() / 8,
            () if words.take("more") => fragment |= 0x2000,
            () if words.take("options") => options = words.hex(),
            () => break,
        }
    }
    let (protocol, payload) = upper(words, source.into(), destination.into());
    let header = Ipv4Repr {
        ttl,
        traffic_class: tos,
        identification: id,
        flags_and_offset: fragment,
        ..Ipv4Repr::new(source, destination, protocol, payload.len())
    };
    testing::ipv4_with_options(header, &options, &payload)
}

fn ip6(words: &mut Words<'_>, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let (mut ttl, mut tos) = (64u8, 0u8);
    let mut extensions: Vec<(u8, Vec<u8>)> = Vec::new();
    loop {
        match () {
            () if words.take("ttl") => ttl = words.number(),
            () if words.take("tos") => tos = words.number(),
            () if words.take("hop") => extensions.push((0, words.hex())),
            () if words.take("routing") => extensions.push((43, words.hex())),
            () if words.take("dest") => extensions.push((60, words.hex())),
            () if words.take("frag6") => {
                let field = words.number::<u16>() & 0xfff8;
                let id: u32 = words.number();
                let field = field | u16::from(words.take("more"));
                extensions.push((44, [&field.to_be_bytes()[..], &id.to_be_bytes()].concat()));
            }
            () => break,
        }
    }
    let (protocol, payload) = upper(words, source.into(), destination.into());
    let mut next = protocol;
    let mut chain = payload;
    for (kind, content) in extensions.into_iter().rev() {
        let len = 2 + content.len();
        assert!(len.is_multiple_of(8), "an extension header is a multiple of 8 bytes: {}", words.line);
        let units = if kind == 44 { 0 } else { (len / 8 - 1) as u8 };
        chain = [&[next, units][..], &content, &chain].concat();
        next = kind;
    }
    let header = Ipv6Repr {
        hop_limit: ttl,
        traffic_class: tos,
        ..Ipv6Repr::new(source, destination, next, chain.len())
    };
    [&header.encode()[..], &chain].concat()
}

fn upper(words: &mut Words<'_>, source: IpAddr, destination: IpAddr) -> (u8, Vec<u8>) {
    let kind = words.next();
    let v6 = source.is_ipv6();
    let icmp_number = if v6 { ip_protocol::ICMPV6 } else { ip_protocol::ICMP };
    match kind {
        "udp" | "tcp" => {
            let from = SocketAddr::new(source, words.number());
            words.expect(">");
            let to = SocketAddr::new(destination, words.number());
            if kind == "udp" {
                return (ip_protocol::UDP, testing::udp_segment(from, to, &data(words)));
            }
            let letters = words.next();
            let flags = letters.chars().fold(0, |f, c| f | 1u8 << "FSRPA".find(c).unwrap_or(7));
            let options = if words.take("opt") { words.hex() } else { Vec::new() };
            (ip_protocol::TCP, testing::tcp_segment_with_options(from, to, flags, &options, &data(words)))
        }
        "echo" | "echo-reply" => {
            let kind = match (v6, kind) {
                (false, "echo") => icmp::v4::ECHO_REQUEST,
                (false, _) => icmp::v4::ECHO_REPLY,
                (true, "echo") => icmp::v6::ECHO_REQUEST,
                (true, _) => icmp::v6::ECHO_REPLY,
            };
            let ([a, b], [c, d]) = (words.number::<u16>().to_be_bytes(), words.number::<u16>().to_be_bytes());
            let header = IcmpRepr { kind, code: 0, rest: [a, b, c, d] };
            (icmp_number, testing::icmp_message(source, destination, header, &data(words)))
        }
        "error" => {
            let (kind, code) = (words.number(), words.number());
            let rest = words.number::<u32>().to_be_bytes();
            words.expect("ip");
            let (_, quote) = ip(words);
            let payload = [quote, data(words)].concat();
            (icmp_number, testing::icmp_message(source, destination, IcmpRepr { kind, code, rest }, &payload))
        }
        "proto" => (words.number(), data(words)),
        _ => panic!("no protocol `{kind}` in: {}", words.line),
    }
}

/// The payload that a line asks for, if any.
fn data(words: &mut Words<'_>) -> Vec<u8> {
    let len: usize = if words.take("data") { words.number() } else { 0 };
    (0..len).map(|i| i as u8).collect()
}

/// The packets as a pcapng file, with an interface for each port and kind of link.
pub(crate) fn pcapng(packets: &[Built]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, &body, &len].concat()
    };
    let mut file =
        block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    let mut interfaces: Vec<(&str, u32)> = Vec::new();
    for packet in packets {
        let interface = (packet.port.as_str(), packet.link_code);
        let number = interfaces.iter().position(|i| *i == interface).unwrap_or_else(|| {
            let mut body = [&(packet.link_code as u16).to_le_bytes()[..], &[0; 6]].concat();
            if !packet.port.is_empty() {
                body.extend([2, 0, packet.port.len() as u8, 0]); // if_name
                body.extend(packet.port.bytes());
                body.resize(body.len().next_multiple_of(4), 0);
            }
            body.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]); // nanoseconds; end of options
            file.extend(block(1, &body));
            interfaces.push(interface);
            interfaces.len() - 1
        });
        let mut body = Vec::new();
        for word in [
            number as u32,
            (packet.time_ns >> 32) as u32,
            packet.time_ns as u32,
            packet.frame.len() as u32,
            packet.wire_len,
        ] {
            body.extend(word.to_le_bytes());
        }
        body.extend(&packet.frame);
        file.extend(block(6, &body));
    }
    file
}

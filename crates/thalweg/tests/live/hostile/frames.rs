//! Frames that no host should send: malformed, impossible, forged, and mutated at random.

use std::fs;
use std::path::Path;

use thalweg_wire::MacAddr;
use thalweg_wire::checksum::{finish, sum};

use crate::packets::build;
use crate::site::{GUEST, OFFICE, OUTSIDE};

/// The MAC addresses of the sender and of the router's port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VethPair {
    pub(crate) from: MacAddr,
    pub(crate) to: MacAddr,
}

impl VethPair {
    /// The frame of a packet in the language of scenarios.
    fn line(self, line: &str) -> Vec<u8> {
        self.framed(&build::line(&format!("0 eth {line}")).frame[12..])
    }

    /// A frame with this EtherType and payload.
    fn framed(self, rest: &[u8]) -> Vec<u8> {
        [self.to.as_ref(), self.from.as_ref(), rest].concat()
    }

    fn typed(self, kind: u16, content: &[u8]) -> Vec<u8> {
        self.framed(&[&kind.to_be_bytes()[..], content].concat())
    }
}

/// Valid packets of a guest, from which the bad ones are made.
const GOOD: [&str; 10] = [
    "ip 10.2.0.66 > 198.51.100.2 udp 4000 > 9 data 30",
    "ip 10.2.0.66 > 198.51.100.2 options 94040000 udp 4000 > 9 data 30",
    "ip 10.2.0.66 > 10.1.0.2 tcp 4000 > 9 S data 5",
    "ip 10.2.0.66 > 198.51.100.2 echo 1 1 data 8",
    "ip 10.2.0.66 > 198.51.100.2 id 3 more udp 1 > 2 data 24",
    "ip 10.2.0.66 > 10.2.0.1 error 3 3 0 ip 10.2.0.1 > 10.2.0.66 udp 4000 > 9 data 8",
    "ip 2001:db8:2::66 > 2001:db8:9::2 udp 4000 > 9 data 30",
    "ip 2001:db8:2::66 > 2001:db8:9::2 hop 050200000000 dest 010400000000 tcp 4000 > 9 S",
    "ip 2001:db8:2::66 > 2001:db8:9::2 frag6 0 9 more udp 4000 > 9 data 32",
    "ip 2001:db8:2::66 > 2001:db8:2::1 echo 1 1 data 8",
];

/// All of them.
pub(crate) fn all(veth: VethPair, corpus: &Path, seed: u64) -> Vec<Vec<u8>> {
    let good: Vec<Vec<u8>> = GOOD.iter().map(|line| veth.line(line)).collect();
    let mut frames = Vec::new();
    frames.extend(cut_off(&good));
    frames.extend(bad_headers(veth, &good));
    frames.extend(bad_options(veth));
    frames.extend(bad_fragments(veth));
    frames.extend(impossible_addresses(veth));
    frames.extend(nonsense_errors(veth));
    frames.extend(tags(veth, &good[0]));
    frames.extend(header_chains(veth));
    frames.extend(resolution(veth));
    frames.extend(corpora(veth, corpus));
    frames.extend(mutants(&good, seed));
    frames
}

/// Every prefix of the valid frames.
fn cut_off(good: &[Vec<u8>]) -> Vec<Vec<u8>> {
    good.iter().flat_map(|frame| (14..frame.len()).map(|bytes| frame[..bytes].to_vec())).collect()
}

/// Every value of the length fields, and wrong checksums.
fn bad_headers(veth: VethPair, good: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut with = |frame: &[u8], at: usize, value: &[u8], mend: bool| {
        let mut frame = frame.to_vec();
        frame[at..at + value.len()].copy_from_slice(value);
        if mend {
            mend_header(&mut frame);
        }
        frames.push(frame);
    };
    for version_and_length in 0..=255 {
        with(&good[0], 14, &[version_and_length], true);
        with(&good[6], 14, &[version_and_length], false);
    }
    for length in [0u16, 1, 19, 20, 27, 28, 29, 57, 58, 59, 60, 1500, 0x7fff, 0xffff] {
        with(&good[0], 16, &length.to_be_bytes(), true);
        with(&good[6], 18, &length.to_be_bytes(), false);
        with(&good[0], 38, &length.to_be_bytes(), true);
        with(&good[6], 58, &length.to_be_bytes(), false);
    }
    for hops in 0..3 {
        with(&good[0], 22, &[hops], true);
        with(&good[6], 21, &[hops], false);
    }
    for protocol in 0..=255 {
        with(&good[0], 23, &[protocol], true);
        with(&good[6], 20, &[protocol], false);
    }
    for flags in [0x80u8, 0xc0, 0xe0, 0x1f, 0x3f, 0xff] {
        with(&good[0], 20, &[flags, 0xff], true);
    }
    for byte in 0..64 {
        // The data offset and flags of TCP.
        with(&good[2], 46, &[byte << 2, byte.wrapping_mul(37)], true);
    }
    // A wrong header checksum, and EtherTypes that do not fit the content.
    with(&good[0], 24, &[0, 0], false);
    with(&good[0], 24, &[0xff, 0xff], false);
    for kind in [0u16, 46, 0x05dc, 0x05ff, 0x0806, 0x8035, 0x86dd, 0x88cc, 0x8847, 0x8864, 0x88e5, 0xffff] {
        with(&good[0], 12, &kind.to_be_bytes(), false);
        with(&good[6], 12, &kind.to_be_bytes(), false);
    }
    // Longer than any MTU here; the router may answer the sender with an error.
    for bytes in [1473, 1500] {
        frames.push(veth.line(&format!("ip 10.2.0.66 > 198.51.100.2 udp 1 > 2 data {bytes}")));
    }
    frames
}

/// Corrects the header checksum if the frame is IPv4.
fn mend_header(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15) * 4;
    if end >= 34 && end <= frame.len() {
        frame[24..26].fill(0);
        let checksum = finish(sum(&frame[14..end], 0));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// IPv4 options with lengths of zero, too short, or beyond the header; source routes; record options without
/// room.
fn bad_options(veth: VethPair) -> Vec<Vec<u8>> {
    let options = [
        "00000000",
        "07000000",
        "07010000",
        "07020000",
        "07ff0000",
        "0703ff00",
        "070304010101010101010101",
        "8307040a01000200",
        "8907040a01000200",
        "83ff0401",
        "44040500",
        "440c05f00a01000200000000",
        "9404ffff",
        "94030000",
        "86ff0000",
        "01010107",
        "ffffffff",
        "0728280000000000000000000000000000000000000000000000000000000000000000000000000000",
    ];
    let to = [OUTSIDE.v4, GUEST.gateway_v4, OFFICE.v4];
    let hex = |text: &str| text[..text.len() / 8 * 8].to_owned();
    options
        .iter()
        .flat_map(|text| {
            to.map(|to| veth.line(&format!("ip 10.2.0.66 > {to} options {} udp 1 > 2 data 9", hex(text))))
        })
        .collect()
}

/// Fragments that overlap, are tiny, end beyond the maximum packet length, or never have a first one.
fn bad_fragments(veth: VethPair) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for to in [OUTSIDE.v4, OFFICE.v4, GUEST.gateway_v4] {
        // One inside the other; the same twice; one that overwrites the header.
        lines.push(format!("ip 10.2.0.66 > {to} id 1 more udp 1 > 2 data 56"));
        lines.push(format!("ip 10.2.0.66 > {to} id 1 frag 24 proto 17 data 4"));
        lines.push(format!("ip 10.2.0.66 > {to} id 1 frag 8 more proto 17 data 56"));
        lines.push(format!("ip 10.2.0.66 > {to} id 1 more udp 3 > 4 data 56"));
        lines.push(format!("ip 10.2.0.66 > {to} id 2 more proto 6 data 8"));
        lines.push(format!("ip 10.2.0.66 > {to} id 2 frag 8 proto 6 data 24"));
        lines.push(format!("ip 10.2.0.66 > {to} id 3 frag 65528 proto 17 data 100"));
        lines.push(format!("ip 10.2.0.66 > {to} id 3 frag 65528 more proto 1 data 8"));
        for id in 10..60 {
            lines.push(format!("ip 10.2.0.66 > {to} id {id} frag 1480 more proto 17 data 16"));
            lines.push(format!("ip 10.2.0.66 > {to} id {id} frag 8 proto 17 data 1"));
        }
    }
    for to in [OUTSIDE.v6, GUEST.gateway_v6] {
        for (offset, bytes, more) in
            [(0, 32, " more"), (8, 3, ""), (8, 32, " more"), (65528, 100, ""), (0, 7, " more")]
        {
            lines.push(format!("ip 2001:db8:2::66 > {to} frag6 {offset} 7{more} proto 17 data {bytes}"));
        }
        // An atomic fragment, and a fragment of a fragment.
        lines.push(format!("ip 2001:db8:2::66 > {to} frag6 0 8 udp 1 > 2 data 8"));
        lines.push(format!("ip 2001:db8:2::66 > {to} frag6 0 8 more frag6 8 9 udp 1 > 2 data 8"));
    }
    lines.iter().map(|line| veth.line(line)).collect()
}

/// Sources and destinations that no host has, the router's own address as source, and the same address as source
/// and destination.
fn impossible_addresses(veth: VethPair) -> Vec<Vec<u8>> {
    let v4 = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "10.2.0.0",
        "10.2.0.255",
        "10.2.0.1",
        "10.1.0.1",
        "198.51.100.1",
        "198.51.100.2",
        "169.254.1.1",
        "10.2.0.66",
    ];
    let v6 = [
        "::",
        "::1",
        "ff02::1",
        "ff02::2",
        "ff05::1",
        "::ffff:10.1.0.2",
        "fe80::1",
        "2001:db8:2::1",
        "2001:db8:1::1",
        "2001:db8:2::",
        "2001:db8:9::2",
        "ff02::1:ff00:1",
        "2001:db8:2::66",
    ];
    let mut frames = Vec::new();
    for addresses in [&v4[..], &v6[..]] {
        for source in addresses {
            for destination in addresses {
                for upper in ["udp 53 > 53 data 4", "tcp 139 > 139 S", "echo 1 1 data 4"] {
                    frames.push(veth.line(&format!("ip {source} > {destination} {upper}")));
                }
            }
        }
    }
    // Unicast packets in broadcast and multicast frames, frames from the router's own MAC address and from a
    // group.
    for mac in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]].map(MacAddr) {
        frames.push(VethPair { to: mac, ..veth }.line(GOOD[0]));
        frames.push(VethPair { from: mac, ..veth }.line(GOOD[0]));
    }
    frames.push(VethPair { from: veth.to, ..veth }.line(GOOD[0]));
    frames
}

/// ICMP errors about errors and about packets that were never sent, truncated ones, and all types and codes.
fn nonsense_errors(veth: VethPair) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for to in ["198.51.100.1", "10.2.0.1", "10.1.0.2"] {
        let quote = format!("ip {to} > 10.2.0.66 udp 4000 > 9 data 8");
        let mut nested = format!("error 3 1 0 {quote}");
        for _ in 0..6 {
            nested = format!("error 11 0 0 ip {to} > 10.2.0.66 {nested}");
        }
        lines.push(format!("ip 10.2.0.66 > {to} {nested}"));
        for (kind, code) in
            [(3, 0), (3, 4), (3, 15), (3, 255), (4, 0), (5, 1), (11, 0), (11, 9), (12, 0), (12, 7)]
        {
            for rest in [0u32, 67, 68, 1280, 0xffff_ffff] {
                lines.push(format!("ip 10.2.0.66 > {to} error {kind} {code} {rest} {quote}"));
            }
        }
    }
    for kind in 0..=8 {
        let quote = "ip 2001:db8:2::1 > 2001:db8:2::66 udp 4000 > 9 data 8";
        lines.push(format!("ip 2001:db8:2::66 > 2001:db8:2::1 error {kind} 0 1 {quote}"));
        lines.push(format!("ip 2001:db8:2::66 > 2001:db8:9::2 error {kind} 9 0 {quote}"));
    }
    let mut frames: Vec<Vec<u8>> = lines.iter().map(|line| veth.line(line)).collect();
    // Each type, and quoted packets truncated anywhere.
    let error = veth.line(&lines[1]);
    for kind in 0..=255 {
        let mut frame = error.clone();
        frame[34] = kind;
        frames.push(with_length(frame, error.len()));
    }
    frames.extend((35..error.len()).map(|bytes| with_length(error.clone(), bytes)));
    frames
}

/// An IPv4 packet truncated to a length that its header states; the ICMP checksum is right.
fn with_length(mut frame: Vec<u8>, bytes: usize) -> Vec<u8> {
    frame.truncate(bytes);
    let length = (bytes - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    mend_header(&mut frame);
    if bytes >= 38 {
        frame[36..38].fill(0);
        let checksum = finish(sum(&frame[34..], 0));
        frame[36..38].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// Truncated and stacked VLAN tags, and tags of VLANs that do not exist.
fn tags(veth: VethPair, good: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for kind in [0x8100u16, 0x88a8, 0x9100] {
        for depth in 1..8 {
            let tags: Vec<u8> =
                (0..depth).flat_map(|i| [(kind >> 8) as u8, kind as u8, i * 37, i * 11]).collect();
            let frame = veth.framed(&[&tags, &good[12..]].concat());
            frames.extend((14..20 + 4 * usize::from(depth)).map(|bytes| frame[..bytes].to_vec()));
            frames.push(frame);
        }
        for vlan in [0u16, 1, 0xfff, 0x1fff, 0xffff] {
            frames.push(veth.framed(&[&kind.to_be_bytes()[..], &vlan.to_be_bytes(), &good[12..]].concat()));
        }
    }
    frames
}

/// Chains of IPv6 extension headers: very long, in the wrong order, longer than the packet, without an end.
fn header_chains(veth: VethPair) -> Vec<Vec<u8>> {
    let chain = |headers: &[(u8, Vec<u8>)], last: u8, payload: &[u8]| {
        let mut content = Vec::new();
        for (i, (_, header)) in headers.iter().enumerate() {
            let next = headers.get(i + 1).map_or(last, |(kind, _)| *kind);
            content.push(next);
            content.extend(header);
        }
        content.extend(payload);
        let first = headers.first().map_or(last, |(kind, _)| *kind);
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((content.len() as u16).to_be_bytes());
        packet.extend([first, 64]);
        for address in ["2001:db8:2::66", "2001:db8:9::2"] {
            packet.extend(address.parse::<std::net::Ipv6Addr>().expect("an address").octets());
        }
        packet.extend(content);
        veth.typed(0x86dd, &packet)
    };
    let plain = |kind: u8| (kind, vec![0, 1, 4, 0, 0, 0, 0]);
    let mut frames = Vec::new();
    for count in [1, 2, 7, 8, 9, 16, 64, 150] {
        for kind in [0, 43, 60, 135, 139, 140] {
            frames.push(chain(&vec![plain(kind); count], 17, &[0, 9, 0, 9, 0, 8, 0, 0]));
        }
        frames.push(chain(&vec![(44, vec![0, 0, 1, 0, 0, 0, 7]); count], 17, &[0; 8]));
        frames.push(chain(&vec![(51, vec![1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1]); count], 17, &[0; 8]));
    }
    for length in [1, 2, 30, 127, 255] {
        for kind in [0, 43, 51, 60] {
            frames.push(chain(&[(kind, vec![length, 1, 4, 0, 0, 0, 0])], 17, &[0; 8]));
            frames.push(chain(&[plain(60), (kind, vec![length, 0, 0, 0, 0, 0, 0])], 59, &[]));
        }
    }
    // Options longer than their header; a false jumbo payload; routing header type 0; hop-by-hop options that are
    // not first.
    for options in [
        [0, 5, 200, 0, 0, 0, 0],
        [0, 0xc2, 4, 0, 1, 0, 0],
        [0, 0xc2, 4, 0, 0, 0, 1],
        [0, 0xff, 0, 0, 0, 0, 0],
    ] {
        frames.push(chain(&[(0, options.to_vec())], 17, &[0; 8]));
        frames.push(chain(&[(60, options.to_vec())], 58, &[128, 0, 0, 0, 0, 0, 0, 0]));
    }
    frames.push(chain(&[(43, [&[2, 0, 1, 0, 0, 0, 0][..], &[0xff; 16]].concat())], 17, &[0; 8]));
    frames.push(chain(&[plain(60), plain(0), plain(43), plain(0)], 6, &[0; 20]));
    frames.push(chain(&[], 59, &[]));
    frames.push(chain(&[], 0, &[]));
    frames
}

/// ARP and Neighbor Discovery: malformed, unsolicited, for others, in the router's name and in other hosts'
/// names.
fn resolution(veth: VethPair) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let arp = |operation: u16, sender_mac: MacAddr, sender: [u8; 4], target: [u8; 4]| {
        let head = [&[0, 1, 8, 0, 6, 4][..], &operation.to_be_bytes()].concat();
        veth.typed(0x0806, &[&head, sender_mac.as_ref(), &sender, &[0; 6], &target].concat())
    };
    let router = [10, 2, 0, 1];
    let good = arp(1, veth.from, [10, 2, 0, 66], router);
    frames.extend((14..good.len()).map(|bytes| good[..bytes].to_vec()));
    for at in 14..22 {
        for value in [0, 1, 2, 3, 7, 255] {
            let mut frame = good.clone();
            frame[at] = value;
            frames.push(frame);
        }
    }
    for operation in [0, 1, 2, 3, 4, 8, 9, 0xffff] {
        for sender in
            [[10, 2, 0, 1], [10, 2, 0, 2], [0; 4], [255; 4], [127, 0, 0, 1], [224, 0, 0, 1], [10, 9, 9, 9]]
        {
            for mac in [veth.from, veth.to, MacAddr::BROADCAST, MacAddr::ZERO, MacAddr([1, 0, 0, 0, 0, 1])] {
                frames.push(arp(operation, mac, sender, router));
                frames.push(arp(operation, mac, sender, sender));
            }
        }
    }
    // More neighbors than fit into a port's table, each asking for the router.
    for i in 0..5000u16 {
        let [high, low] = i.to_be_bytes();
        frames.push(arp(1, MacAddr([2, 9, 0, 0, high, low]), [10, 2, 0, low.max(3)], router));
    }
    for kind in 133..=137u8 {
        for hops in [0, 1, 64, 255] {
            for body in [
                vec![0; 4],
                vec![0xff; 4],
                [&[0; 4][..], &[0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]].concat(),
                [
                    &[0xe0, 0, 0, 0][..],
                    &[0x20, 1, 0xd, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
                    &[2, 1, 2, 9, 9, 9, 9, 9],
                ]
                .concat(),
                [&[0; 20][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat(),
                [&[0; 20][..], &[1, 9, 0, 0, 0, 0, 0, 0]].concat(),
            ] {
                for (source, destination) in [
                    ("2001:db8:2::66", "2001:db8:2::1"),
                    ("fe80::66", "ff02::1:ff00:1"),
                    ("::", "ff02::1:ff00:1"),
                    ("2001:db8:2::1", "ff02::1"),
                ] {
                    let line = format!(
                        "ip {source} > {destination} ttl {hops} error {kind} 0 0 ip 0.0.0.0 > 0.0.0.0 proto 1"
                    );
                    let mut frame = veth.line(&line);
                    frame.truncate(58);
                    frame.extend(&body);
                    frames.push(with_icmp6(frame));
                }
            }
        }
    }
    frames
}

/// Corrects length and checksum of an ICMPv6 message.
fn with_icmp6(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[56..58].fill(0);
    let checksum = finish(sum(&frame[22..], u32::from(length) + 58));
    frame[56..58].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// The fuzz targets' corpora, as whole frames and as payloads.
fn corpora(veth: VethPair, corpus: &Path) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let folders = fs::read_dir(corpus)
        .map(|folders| folders.flatten().map(|folder| folder.path()))
        .into_iter()
        .flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.sort();
    for bytes in paths.iter().filter_map(|path| fs::read(path).ok()) {
        for kind in [0x0800, 0x86dd, 0x0806, 0x8100] {
            frames.push(veth.typed(kind, &bytes[..bytes.len().min(1500)]));
        }
        // In the corpus of the router target, lengths precede the frames; a frame can start at any of these
        // offsets.
        for at in [0, 2, 4, 8] {
            if let Some(frame) = bytes.get(at..).filter(|frame| frame.len() >= 14) {
                let frame = &frame[..frame.len().min(1514)];
                frames.push([veth.to.as_ref(), &frame[6..]].concat());
            }
        }
    }
    frames
}

/// Valid frames with a few bytes changed, truncated, or with trailing bytes.
fn mutants(good: &[Vec<u8>], seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut chance = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut frames = Vec::new();
    for _ in 0..3000 {
        let mut frame = good[chance(good.len())].clone();
        for _ in 0..=chance(6) {
            let at = 12 + chance(frame.len() - 12);
            frame[at] = chance(256) as u8;
        }
        match chance(4) {
            0 => frame.truncate(14 + chance(frame.len() - 14)),
            1 => frame.extend((0..chance(1000)).map(|i| i as u8)),
            _ => mend_header(&mut frame),
        }
        frames.push(frame);
    }
    frames
}

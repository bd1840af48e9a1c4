//! From bytes to flow facts: whatever the link layer, the tunnels and the payload, every fact about a packet lies
//! within it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_flow::application::{by_payload, classify, look};
use thalweg_flow::parse::{ParseOptions, mpls_label_of, parse, payload_of, vlan_of};
use thalweg_wire::application::by_code;

const LINKS: [LinkType; 13] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::LinuxCooked,
    LinkType::LinuxCooked2,
    LinkType::BsdLoopback,
    LinkType::Ppp,
    LinkType::CiscoHdlc,
    LinkType::FrameRelay,
    LinkType::Fddi,
    LinkType::Ieee80211,
    LinkType::Radiotap,
    LinkType::NetfilterLog,
    LinkType::Unsupported,
];

fuzz_target!(|input: &[u8]| {
    let Some((&[link, more], frame)) = input.split_first_chunk() else { return };
    let wire_len = frame.len() + usize::from(more & 0x7f);
    let mut builder = ChunkBuilder::with_capacity(frame.len() + 256);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
    builder.push(at, frame.len(), wire_len as u32, 0, LINKS[usize::from(link) % LINKS.len()], 0, 0);
    let mut chunk = builder.finish(0, 1, 0);
    let mut batch = chunk.batch(0);
    let (packet, frame) = batch.packet_and_frame(0);
    parse(packet, frame, &ParseOptions { tunnels: more & 0x80 != 0 });
    // A payload by itself, because frames of random bytes seldom have one.
    for protocol in [6, 17] {
        let there = by_payload(protocol, 50_000, 53, &input[2..]);
        assert_eq!(there, by_payload(protocol, 53, 50_000, &input[2..]));
        assert!(there.is_none_or(|code| by_code(code).is_some()));
    }
    if !packet.is_alive() {
        return;
    }
    let (l3, l4) = (usize::from(packet.l3_offset), usize::from(packet.l4_offset));
    let header = if packet.is_ipv6() { 40 } else { 20 };
    assert!(l3 + header <= frame.len(), "the addresses are at hand");
    assert!(l3 + header <= l4 && l4 <= l3 + packet.ip_len as usize);
    assert!(l3 + packet.ip_len as usize <= wire_len);
    assert!(vlan_of(frame, packet) < 4096);
    assert!(mpls_label_of(frame, packet).is_none_or(|label| label < 1 << 20));
    let payload = payload_of(frame, packet);
    assert!(payload.len() <= packet.ip_len as usize);
    assert!(classify(packet, payload).is_none_or(|code| by_code(code).is_some()));
    let shown = by_payload(packet.protocol, packet.src_port, packet.dst_port, payload);
    look(packet, frame);
    assert_eq!(packet.application, shown.unwrap_or(0));
});

use super::*;
use proptest::prelude::*;
use thalweg_base::ChunkBuilder;
use thalweg_wire::ipv4::Ipv4View;
use thalweg_wire::ipv6::Ipv6View;
use thalweg_wire::tcp::TcpView;
use thalweg_wire::udp::UdpView;
use thalweg_wire::{Malformed, testing};

fn all(packet: &Packet) -> impl PartialEq + std::fmt::Debug {
    (
        (packet.drop_reason(), packet.l3_offset, packet.l4_offset, packet.ip_len, packet.protocol),
        (packet.traffic_class, packet.flags, packet.src_port, packet.dst_port),
    )
}

proptest! {
    /// The fast path and the general path give the same result.
    #[test]
    fn the_usual_way_agrees_with_the_careful_one(
        front in 0usize..4, v6: bool, protocol in 0usize..4, tunnels: bool,
        ports in prop::sample::select(vec![(53u16, 2152u16), (4789, 80), (1000, 4789), (7, 9)]), random: [u8; 80],
        changes in proptest::collection::vec((0usize..64, any::<u8>()), 0..3), kept in 0usize..100, more in 0usize..9,
    ) {
        let ether_type: [u8; 2] = if v6 { [0x86, 0xdd] } else { [8, 0] };
        let (link, front): (LinkType, Vec<u8>) = match front {
            0 => (LinkType::RawIp, vec![]),
            1 => (LinkType::Ethernet, [&[2; 12][..], &ether_type].concat()),
            2 => (LinkType::Ethernet, [&[2; 12][..], &[0x81, 0, 0xe0, 7], &ether_type].concat()),
            _ => (LinkType::Ethernet, [&[2; 12][..], &[0x81, 0, 0, 7, 0x81, 0, 0, 8], &ether_type].concat()),
        };
        let mut frame = [&front[..], &random].concat();
        let (l3, protocol) = (front.len(), [6, 17, 17, 1][protocol]);
        if v6 {
            (frame[l3], frame[l3 + 4], frame[l3 + 5], frame[l3 + 6]) = (0x60 | random[0] & 15, 0, 40, protocol);
        } else {
            (frame[l3], frame[l3 + 2], frame[l3 + 3], frame[l3 + 9]) = (0x45, 0, 60, protocol);
            frame[l3 + 6..l3 + 8].fill(0);
        }
        let l4 = l3 + if v6 { 40 } else { 20 };
        frame[l4..l4 + 2].copy_from_slice(&ports.0.to_be_bytes());
        frame[l4 + 2..l4 + 4].copy_from_slice(&ports.1.to_be_bytes());
        for (at, value) in changes {
            frame[at] = value;
        }
        let wire_len = frame.len() + more;
        frame.truncate(front.len() + kept);
        let mut builder = ChunkBuilder::with_capacity(1024);
        for _ in 0..2 {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + frame.len()].copy_from_slice(&frame);
            builder.push(at, frame.len(), wire_len as u32, 0, link, 0, 0);
        }
        let mut chunk = builder.finish(0, 1, 0);
        let mut batch = chunk.batch(0);
        let options = ParseOptions { tunnels };
        let (packet, bytes) = batch.packet_and_frame(0);
        let usual = parse_usual(packet, bytes, &options);
        let (packet, bytes) = batch.packet_and_frame(1);
        parse_any(packet, bytes, &options);
        let [first, second] = batch.packets() else { panic!("two packets") };
        if usual {
            prop_assert_eq!(all(first), all(second));
        } else {
            prop_assert_eq!((first.l3_offset, first.ip_len, first.flags, first.is_alive()), (0, 0, PacketFlags::default(), true));
        }
    }
}

/// A meter accepts every readable packet. If the header is valid, its fields agree with the views of `wire`; if
/// not, the packet is dropped with a fitting reason, or is of a kind that a meter tolerates.
fn assert_is_as_viewed(packet: &Packet, l3: &[u8], wire_len: usize) {
    let has = |flag: u8| packet.flags.has(flag);
    let fragment = (has(PacketFlags::FRAGMENT), has(PacketFlags::LATER_FRAGMENT));
    let found = (
        packet.ip_len as usize,
        usize::from(packet.l4_offset),
        packet.protocol,
        packet.traffic_class,
        fragment,
    );
    match (l3[0] >> 4, packet.drop_reason()) {
        (4, None) => match Ipv4View::new(l3) {
            Ok(view) => {
                let fragment = (view.is_fragment(), view.is_later_fragment());
                let len = view.total_len().min(wire_len);
                assert_eq!(found, (len, view.header_len(), view.protocol(), view.traffic_class(), fragment));
                let ports = match (view.protocol(), view.is_later_fragment()) {
                    (ip_protocol::TCP, false) => {
                        TcpView::new(view.payload()).map(|t| (t.source_port(), t.destination_port()))
                    }
                    (ip_protocol::UDP, false) => {
                        UdpView::new(view.payload()).map(|u| (u.source_port(), u.destination_port()))
                    }
                    _ => return,
                };
                if let Ok(ports) = ports {
                    assert_eq!(ports, (packet.src_port, packet.dst_port));
                }
            }
            // Segmented later by the sender's card, or truncated by the capture inside the options.
            Err(Malformed::Length) => assert_eq!((l3[2], l3[3], packet.ip_len as usize), (0, 0, wire_len)),
            Err(why) => assert!(why == Malformed::HeaderLength && l3.len() < wire_len, "{why}"),
        },
        (4, Some(DropReason::IpTotalLength)) => {
            assert!(matches!(Ipv4View::new(l3), Err(Malformed::Length | Malformed::HeaderLength)));
        }
        (4, reason) => {
            assert_eq!(reason, Some(DropReason::IpHeaderLength));
            assert!(matches!(Ipv4View::new(l3), Err(Malformed::Truncated | Malformed::HeaderLength)));
        }
        (6, None) => {
            let view = Ipv6View::new(l3).expect("it was read");
            let no_length = view.total_len() == 40 && matches!(view.next_header(), 0 | 6 | 17);
            let end = if no_length { wire_len } else { view.total_len().min(wire_len) };
            let mut walk = Extensions::new(&l3[..l3.len().min(end)], end, view.next_header());
            let mut fragment = (false, false);
            for extension in walk.by_ref() {
                fragment.0 |= extension.is_fragment();
                fragment.1 |= extension.is_later_fragment();
            }
            assert_eq!(found, (end, walk.at(), walk.protocol(), view.traffic_class(), fragment));
        }
        (6, reason) => {
            assert_eq!(reason, Some(DropReason::IpHeaderLength));
            assert_eq!(Ipv6View::new(l3).err(), Some(Malformed::Truncated));
        }
        (_, reason) => assert_eq!(reason, Some(DropReason::IpVersion)),
    }
}

proptest! {
    #[test]
    fn headers_are_what_their_views_say(
        v6: bool, protocol in prop::sample::select(vec![6u8, 17, 1, 58, 0, 43, 44, 51, 60]),
        payload in proptest::collection::vec(any::<u8>(), 0..60), random: bool,
        changes in proptest::collection::vec((0usize..64, any::<u8>()), 0..3), kept in 1usize..110, more in 0usize..9,
    ) {
        let mut l3 = match (random, v6) {
            (true, _) => [&[0x45][..], &payload].concat(),
            (false, false) => testing::ip([10, 0, 0, 1], [10, 0, 0, 2], protocol, &payload),
            (false, true) => testing::ip([1u16; 8], [2u16; 8], protocol, &payload),
        };
        for (at, value) in changes {
            if let Some(byte) = l3.get_mut(at) {
                *byte = value;
            }
        }
        let wire_len = l3.len() + more;
        l3.truncate(kept);
        let mut builder = ChunkBuilder::with_capacity(512);
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + l3.len()].copy_from_slice(&l3);
        builder.push(at, l3.len(), wire_len as u32, 0, LinkType::RawIp, 0, 0);
        let mut chunk = builder.finish(0, 1, 0);
        let mut batch = chunk.batch(0);
        let (packet, bytes) = batch.packet_and_frame(0);
        parse(packet, bytes, &ParseOptions::default());
        assert_is_as_viewed(packet, &l3, wire_len);
    }
}

use super::*;
use proptest::prelude::*;
use thalweg_base::ChunkBuilder;

fn all(packet: &Packet) -> impl PartialEq + std::fmt::Debug {
    (
        (packet.drop_reason(), packet.l3_offset, packet.l4_offset, packet.ip_len, packet.protocol),
        (packet.traffic_class, packet.flags, packet.src_port, packet.dst_port),
    )
}

proptest! {
    /// What the usual way says of a packet is what the careful way says.
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

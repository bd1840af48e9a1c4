use super::*;
use etherparse::{IpHeaders, NetSlice, PacketBuilder, SlicedPacket};
use proptest::prelude::*;
use thalweg_wire::ip_protocol::{AUTHENTICATION, DESTINATION_OPTIONS, HOP_BY_HOP, ROUTING};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::ipv6::Ipv6Repr;

fn udp4(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let built = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 1, 2], 7).udp(5, 6).write(&mut packet, payload);
    built.expect("writing to a vector cannot fail");
    packet
}

fn udp6(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let built = PacketBuilder::ipv6([1; 16], [2; 16], 7).udp(5, 6).write(&mut packet, payload);
    built.expect("writing to a vector cannot fail");
    packet
}

#[test]
fn plain_packets_are_read_and_padding_is_not() {
    for (mut packet, at) in [(udp4(b"hello"), 20), (udp6(b"hello"), 40)] {
        let length = packet.len();
        packet.extend([0; 9]);
        let read = IpPacket::parse(&packet).expect("it is IP");
        assert_eq!((read.bytes.len(), read.transport_at, read.protocol), (length, at, 17));
        assert_eq!(
            (read.hop_limit, read.complete, read.fragment, read.later_fragment),
            (7, true, false, false)
        );
        assert!(read.header_checksum_holds() && transport_checksum_holds(&read));
        let cut = IpPacket::parse(&packet[..length - 1]).expect("the header is complete");
        assert!(!cut.complete && cut.bytes.len() == length - 1);
    }
}

#[test]
fn extension_headers_are_walked() {
    let mut packet = udp6(b"x");
    let udp = packet.split_off(40);
    packet[6] = HOP_BY_HOP;
    packet.extend([ROUTING, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend([DESTINATION_OPTIONS, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend([AUTHENTICATION, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend([FRAGMENT, 1, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]);
    packet.extend([17, 0, 0, 1, 1, 2, 3, 4]);
    packet.extend(&udp);
    let length = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    let read = IpPacket::parse(&packet).expect("it is IP");
    assert_eq!(
        (read.protocol, read.transport(), read.fragment, read.later_fragment),
        (17, &udp[..], true, false)
    );
    let at = packet.len() - udp.len() - 6;
    packet[at] = 1;
    let read = IpPacket::parse(&packet).expect("it is IP");
    assert_eq!((read.protocol, read.later_fragment), (17, true));
    let read = IpPacket::parse(&packet[..45]).expect("it is IP");
    assert_eq!(read.protocol, NO_NEXT_HEADER, "a chain that is cut off ends in nothing known");
}

#[test]
fn hop_limits_count_down_and_run_out() {
    for mut packet in [udp4(b"hello"), udp6(b"hello")] {
        for left in (1..7).rev() {
            assert!(count_down(&mut packet));
            let read = IpPacket::parse(&packet).expect("still IP");
            assert!(read.hop_limit == left && read.header_checksum_holds());
        }
        let before = packet.clone();
        assert!(!count_down(&mut packet));
        assert_eq!(packet, before);
    }
    assert!(!count_down(&mut []) && !count_down(&mut [0x45; 19]) && !count_down(&mut [0x60; 39]));
}

#[test]
fn a_checksum_that_counts_down_is_the_computed_one() {
    for identification in 0..=u16::MAX {
        let header = |ttl| Ipv4Repr {
            identification,
            ttl,
            ..Ipv4Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 17, 0)
        };
        let mut packet = header(9).encode();
        assert!(count_down(&mut packet));
        assert_eq!(packet, header(8).encode(), "RFC 1624 3");
    }
}

#[test]
fn counting_up_undoes_counting_down() {
    for mut packet in [udp4(b"hello"), udp6(b"hello")] {
        let hop_limit = |packet: &[u8]| IpPacket::parse(packet).expect("still IP").hop_limit;
        for _ in hop_limit(&packet)..u8::MAX {
            let before = packet.clone();
            count_up(&mut packet);
            assert!(IpPacket::parse(&packet).is_some_and(|read| read.header_checksum_holds()));
            assert_eq!(hop_limit(&packet), hop_limit(&before) + 1);
            let mut down = packet.clone();
            assert!(count_down(&mut down));
            assert_eq!(down, before);
        }
        let most = packet.clone();
        count_up(&mut packet);
        assert_eq!(packet, most, "there is no more than 255");
    }
    let mut short = [0x45; 19];
    count_up(&mut short);
    assert_eq!(short, [0x45; 19]);
}

proptest! {
    #[test]
    fn headers_are_what_a_second_reader_reads(source: u32, destination: u32, protocol: u8, class: u8, id: u16,
                                              source6: u128, destination6: u128, length in 0usize..60) {
        let header = Ipv4Repr {
            traffic_class: class,
            identification: id,
            ..Ipv4Repr::new(source.into(), destination.into(), protocol, length)
        };
        let mut packet = header.encode().to_vec();
        packet.resize(20 + length, 0);
        let (headers, _) = IpHeaders::from_ipv4_slice_lax(&packet).map(|(h, p, _)| (h, p)).expect("it is IPv4");
        let IpHeaders::Ipv4(header, _) = headers else { panic!("IPv4 was built") };
        prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
        prop_assert_eq!((u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination)), (source, destination));
        prop_assert_eq!((header.identification, usize::from(header.total_len)), (id, 20 + length));

        let header = Ipv6Repr {
            hop_limit: 255,
            ..Ipv6Repr::new(source6.into(), destination6.into(), NO_NEXT_HEADER, length)
        };
        let mut packet = header.encode().to_vec();
        packet.resize(40 + length, 0);
        let sliced = SlicedPacket::from_ip(&packet).expect("it is IPv6");
        let Some(NetSlice::Ipv6(slice)) = sliced.net else { panic!("IPv6 was built") };
        prop_assert_eq!((slice.header().source(), slice.header().destination()), (source6.to_be_bytes(), destination6.to_be_bytes()));
        prop_assert_eq!((usize::from(slice.header().payload_length()), slice.header().hop_limit()), (length, 255));
    }

    #[test]
    fn anything_is_read_without_harm(mut packet in proptest::collection::vec(any::<u8>(), 0..120), six: bool) {
        if let Some(first) = packet.first_mut() { *first = if six { 0x60 } else { 0x40 | *first & 15 } }
        if let Some(read) = IpPacket::parse(&packet) {
            prop_assert!(read.bytes.len() <= packet.len());
            prop_assert!(read.transport().len() + read.transport_at <= read.bytes.len().max(read.transport_at));
            let _ = (read.header_checksum_holds(), transport_checksum_holds(&read));
        }
        let _ = count_down(&mut packet);
        count_up(&mut packet);
    }
}

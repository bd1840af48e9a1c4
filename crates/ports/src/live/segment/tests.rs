//! Checks segments with an independent reader (etherparse): each is a valid frame, and together they are the
//! original.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;

/// A merged frame as the kernel would make it, with its offload.
#[derive(Clone, Debug)]
struct Merged {
    frame: Vec<u8>,
    kind: SegmentKind,
    checksum: (u16, u16),
    payload: Vec<u8>,
    network: usize,
    transport: usize,
}

impl Merged {
    fn segments(&self) -> Vec<Vec<u8>> {
        let mut segments = Segments::new(&self.frame, self.kind, Some(self.checksum)).unwrap();
        let mut written = Vec::new();
        for left in (1..=segments.left()).rev() {
            assert_eq!(segments.left(), left);
            let mut into = vec![0xee; segments.next_bytes().unwrap() + 3];
            segments.write_next(&self.frame, &mut into);
            assert_eq!(into.split_off(into.len() - 3), [0xee; 3], "beyond its end");
            written.push(into);
        }
        assert_eq!((segments.left(), segments.next_bytes()), (0, None));
        written
    }

    fn headers(&self) -> usize {
        self.frame.len() - self.payload.len()
    }
}

prop_compose! {
    fn merged()(
        transport in prop_oneof![Just(Transport::TcpV4), Just(Transport::TcpV6), Just(Transport::Udp)],
        udp_v6: bool,
        tags in 0..3_usize,
        options in proptest::collection::vec(any::<u8>(), 0..11),
        header in proptest::collection::vec(any::<u8>(), 80),
        size in 1..9000_usize,
        segments in 1..40_usize,
        last in 0..9000_usize,
        extension: bool,
        seed: u8,
    ) -> Merged {
        let size = size.min(60_000 / segments);
        let payload_bytes = (segments - 1) * size + 1 + last % size;
        let payload: Vec<u8> = (0..payload_bytes).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        let v6 = transport == Transport::TcpV6 || (transport == Transport::Udp && udp_v6);
        let tcp = transport != Transport::Udp;
        let transport_bytes = if tcp { 20 + options.len() * 4 } else { 8 };
        let mut frame = header[..12].to_vec();
        for _ in 0..tags {
            frame.extend([0x81, 0, header[12], header[13]]);
        }
        frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        let network = frame.len();
        let protocol = if tcp { TCP } else { UDP };
        let extension_bytes = if v6 && extension { 8 } else { 0 };
        if v6 {
            let bytes = (extension_bytes + transport_bytes + payload_bytes) as u16;
            frame.extend([0x60 | header[14] & 15, header[15], header[16], header[17]]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([if extension_bytes > 0 { 60 } else { protocol }, header[18]]);
            frame.extend(&header[20..52]);
            if extension_bytes > 0 {
                // Destination options: padding.
                frame.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let bytes = (20 + transport_bytes + payload_bytes) as u16;
            frame.extend([0x45, header[15]]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([header[16], header[17], 0x40, 0, header[18], protocol, header[19], header[20]]);
            frame.extend(&header[20..28]);
        }
        let transport_at = frame.len();
        frame.extend(&header[52..52 + 8]);
        if tcp {
            frame.extend(&header[60..64]);
            frame.extend([(transport_bytes as u8 / 4) << 4, header[64]]);
            frame.extend(&header[65..71]);
            frame.extend(options.iter().flat_map(|byte| [*byte; 4]));
        }
        frame.extend(&payload);
        Merged {
            frame,
            kind: SegmentKind { transport, payload: size as u16 },
            checksum: (transport_at as u16, if tcp { 16 } else { 6 }),
            payload,
            network,
            transport: transport_at,
        }
    }
}

/// An independent reader's result for a frame: payload, sequence number, flags. It also checks lengths and
/// checksums.
fn read(frame: &[u8]) -> (Vec<u8>, u32, u8) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let (source, destination) = match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(v4) => {
            let header = v4.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            (Err(header.source), Err(header.destination))
        }
        NetSlice::Ipv6(v6) => (Ok(v6.header().source()), Ok(v6.header().destination())),
        NetSlice::Arp(_) => panic!("ARP"),
    };
    match packet.transport.as_ref().unwrap() {
        TransportSlice::Tcp(tcp) => {
            let wanted = match (source, destination) {
                (Err(source), Err(destination)) => tcp.calc_checksum_ipv4(source, destination),
                (Ok(source), Ok(destination)) => tcp.calc_checksum_ipv6(source, destination),
                _ => unreachable!(),
            };
            // Zero has two forms in one's complement; a checksum that is finished late has the other one.
            let wanted = if tcp.checksum() == 0xffff && wanted == Ok(0) { Ok(0xffff) } else { wanted };
            assert_eq!(tcp.checksum(), wanted.unwrap());
            (tcp.payload().to_vec(), tcp.sequence_number(), tcp.slice()[13])
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let wanted = match (source, destination) {
                (Err(source), Err(destination)) => {
                    header.calc_checksum_ipv4_raw(source, destination, udp.payload())
                }
                (Ok(source), Ok(destination)) => {
                    header.calc_checksum_ipv6_raw(source, destination, udp.payload())
                }
                _ => unreachable!(),
            };
            assert_eq!(header.checksum, wanted.unwrap());
            assert_eq!(usize::from(header.length), 8 + udp.payload().len());
            (udp.payload().to_vec(), 0, 0)
        }
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn segments_are_frames_and_together_the_original(merged in merged()) {
        let Merged { frame, kind, network, transport, .. } = &merged;
        let tcp = kind.transport != Transport::Udp;
        let v6 = frame[*network] >> 4 == 6;
        let segments = merged.segments();
        let size = usize::from(kind.payload);
        prop_assert_eq!(segments.len(), merged.payload.len().div_ceil(size));
        let number = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word = |bytes: &[u8], at: usize| u32::from(number(bytes, at)) << 16 | u32::from(number(bytes, at + 2));
        // A datagram may end before that byte.
        let flags = if tcp { frame[transport + 13] } else { 0 };
        let mut together = Vec::new();
        for (at, segment) in segments.iter().enumerate() {
            let (first, last) = (at == 0, at + 1 == segments.len());
            let (payload, sequence, got_flags) = read(segment);
            prop_assert!(payload.len() == size || last);
            if tcp {
                prop_assert_eq!(sequence, word(frame, transport + 4).wrapping_add(together.len() as u32));
                let mut wanted = flags;
                if !last { wanted &= !(1 | 8); }
                if !first { wanted &= !0x80; }
                prop_assert_eq!(got_flags, wanted);
            }
            if !v6 {
                let identification = number(frame, network + 4).wrapping_add(at as u16);
                prop_assert_eq!(number(segment, network + 4), identification);
            }
            // All other header fields are unchanged.
            let mut changed: Vec<std::ops::Range<usize>> = Vec::new();
            if v6 {
                changed.push(network + 4..network + 6);
            } else {
                changed.extend([network + 2..network + 6, network + 10..network + 12]);
            }
            if tcp {
                changed.extend([transport + 4..transport + 8, transport + 13..transport + 14, transport + 16..transport + 18]);
            } else {
                changed.push(transport + 4..transport + 8);
            }
            for at in 0..merged.headers() {
                if !changed.iter().any(|range| range.contains(&at)) {
                    prop_assert_eq!(segment[at], frame[at], "byte {}", at);
                }
            }
            together.extend(payload);
        }
        prop_assert_eq!(&together, &merged.payload);
    }

    /// A kernel that gets an opening and the rest of the frame makes the same segments, whatever the checksum was.
    #[test]
    fn a_frame_sent_whole_becomes_the_same_segments(merged in merged(), before: [u8; 2]) {
        let mut merged = merged;
        let at = merged.transport;
        let is_tcp = merged.kind.transport != Transport::Udp;
        if is_tcp {
            merged.frame[at + 16..at + 18].copy_from_slice(&before);
            merged.frame[at + 13] &= FLAGS_OF_MERGED;
        }
        let Merged { frame, kind, network, .. } = &merged;
        let cut = merged.segments();
        let segments = Segments::new(frame, *kind, Some(merged.checksum)).unwrap();
        let is_plain = matches!(at - network, 20 | 40);
        prop_assert_eq!(segments.may_stay_merged(frame), is_tcp && is_plain && cut.len() > 1);
        prop_assert_eq!(segments.wire_bytes(), cut.iter().map(Vec::len).sum::<usize>());
        if segments.may_stay_merged(frame) {
            let opening = Opening::new(frame, kind.payload).unwrap();
            let (count, longest) = (opening.count(), opening.longest());
            prop_assert_eq!((count, longest, opening.wire_bytes()), (cut.len(), cut[0].len(), segments.wire_bytes()));
            let (offload, headers) = opening.bytes().split_first_chunk().unwrap();
            let offload = Offload::parse(offload).unwrap();
            prop_assert_eq!(offload, Offload { checksum: Some(merged.checksum), segments: Some(*kind) });
            let frame = [headers, &frame[opening.rest_at()..]].concat();
            let other = Merged { frame, ..merged.clone() };
            prop_assert_eq!(other.segments(), cut);
            let mut whole = other.frame;
            finish_checksum(&mut whole, merged.checksum.0, merged.checksum.1).unwrap();
            if at - network == 20 {
                thalweg_wire::ipv4::write_checksum(&mut whole[*network..at]);
            }
            prop_assert_eq!(read(&whole).0, merged.payload);
        }
    }

    #[test]
    fn flags_and_headers_that_segments_do_not_share_are_cut(merged in merged(), flag in 0..8_u32) {
        prop_assume!(merged.kind.transport != Transport::Udp && merged.payload.len() > merged.kind.payload.into());
        let mut frame = merged.frame;
        frame[merged.transport + 13] = 1 << flag;
        let segments = Segments::new(&frame, merged.kind, Some(merged.checksum)).unwrap();
        let is_plain = matches!(merged.transport - merged.network, 20 | 40);
        prop_assert_eq!(segments.may_stay_merged(&frame), is_plain && matches!(1 << flag, 0x08 | 0x10 | 0x40));
        frame.push(0);
        prop_assert!(!segments.may_stay_merged(&frame), "padding would count as payload");
    }

    #[test]
    fn an_unfinished_checksum_is_finished(merged in merged()) {
        // Frames that need no cutting: the pseudo header's sum is in the field.
        let Merged { frame, network, transport, checksum: (start, offset), kind, .. } = merged;
        let mut frame = frame;
        let v6 = frame[network] >> 4 == 6;
        let udp = kind.transport == Transport::Udp;
        let length = (frame.len() - transport) as u32;
        let addresses = if v6 { &frame[network + 8..network + 40] } else { &frame[network + 12..network + 20] };
        let pseudo = checksum::fold(checksum::sum(addresses, length + u32::from(if udp { UDP } else { TCP })));
        let field = usize::from(start + offset);
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        if udp {
            frame[transport + 4..transport + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        finish_checksum(&mut frame, start, offset).unwrap();
        if !v6 {
            let header = &mut frame[network..network + 20];
            header[10..12].fill(0);
            let sum = checksum::finish(checksum::sum(header, 0));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        // TCP's zero may be sent as all ones, which is the same number.
        if frame[field..field + 2] == [0xff; 2] && !udp {
            frame[field..field + 2].fill(0);
        }
        read(&frame);
    }

    #[test]
    fn nothing_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        header: [u8; OFFLOAD_BYTES],
        version in prop_oneof![Just(0x40_u8), Just(0x60), Just(0)],
        header_words in 0..16_u8,
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.get_mut(ETHERNET) {
            *first = version | header_words;
        }
        let _ = link_header_bytes(&bytes);
        let Ok(offload) = Offload::parse(&header) else { return Ok(()) };
        let kinds = [Transport::TcpV4, Transport::TcpV6, Transport::Udp];
        let kinds = kinds.map(|transport| SegmentKind { transport, payload: u16::from(header[4]) });
        for kind in offload.segments.into_iter().chain(kinds) {
            for checksum in [offload.checksum, Some((u16::from(header[6]), u16::from(header[8])))] {
                if let Ok(mut segments) = Segments::new(&bytes, kind, checksum) {
                    let mut into = bytes.clone();
                    while segments.next_bytes().is_some() {
                        segments.write_next(&bytes, &mut into);
                    }
                }
            }
        }
        for (start, offset) in offload.checksum.into_iter().chain([(u16::from(header[6]), u16::from(header[8]))]) {
            let _ = finish_checksum(&mut bytes, start, offset);
        }
    }
}

#[test]
fn offloads_are_read() {
    let header = |flags, kind, size: u16, start: u16, offset: u16| {
        let mut header = [0; OFFLOAD_BYTES];
        (header[0], header[1]) = (flags, kind);
        for (at, number) in [(4, size), (6, start), (8, offset)] {
            header[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        }
        Offload::parse(&header)
    };
    // The checksum was found right already (DATA_VALID): nothing to do.
    assert!(header(2, 0, 0, 0, 0).unwrap().is_nothing());
    let finish = Offload { checksum: Some((34, 16)), segments: None };
    assert_eq!(header(1, 0, 0, 34, 16), Ok(finish));
    for (number, transport) in [(1, Transport::TcpV4), (4, Transport::TcpV6), (5, Transport::Udp)] {
        let segments = Some(SegmentKind { transport, payload: 1448 });
        assert_eq!(header(1, number, 1448, 34, 16), Ok(Offload { segments, ..finish }));
        assert_eq!(header(1, number | GSO_ECN, 1448, 34, 16), Ok(Offload { segments, ..finish }));
        assert_eq!(header(1, number, 0, 34, 16), Err(SegmentError::NoPayload));
    }
    assert_eq!(header(1, 3, 1448, 34, 6), Err(SegmentError::Kind(3)));
}

#[test]
fn headers_that_do_not_fit_are_refused() {
    let mut frame = vec![0; 100];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[17] = 86;
    frame[23] = TCP;
    frame[46] = 0x50;
    let v4 = SegmentKind { transport: Transport::TcpV4, payload: 10 };
    let made = |frame: &[u8], kind| Segments::new(frame, kind, None).map(|segments| segments.left());
    assert_eq!(made(&frame, v4), Ok(5));
    assert_eq!(made(&frame, SegmentKind { transport: Transport::TcpV6, ..v4 }), Err(SegmentError::Mismatch));
    assert_eq!(made(&frame, SegmentKind { transport: Transport::Udp, ..v4 }), Err(SegmentError::Mismatch));
    assert_eq!(made(&frame[..40], v4), Err(SegmentError::Short));
    frame[46] = 0x40;
    assert_eq!(made(&frame, v4), Err(SegmentError::Mismatch));
    assert_eq!(finish_checksum(&mut frame, 90, 9), Err(SegmentError::Checksum));
}

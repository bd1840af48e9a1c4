use super::*;
use proptest::prelude::*;

/// Writes blocks in either byte order.
struct Writer {
    order: ByteOrder,
    out: Vec<u8>,
}

impl Writer {
    fn new(order: ByteOrder) -> Self {
        let mut w = Self { order, out: Vec::new() };
        let mut body = w.u32(BYTE_ORDER_MAGIC).to_vec();
        body.extend(w.u16(1));
        body.extend(w.u16(0));
        body.extend([0xff; 8]);
        w.block(u32::from_le_bytes(MAGIC), &body);
        w
    }

    fn u32(&self, n: u32) -> [u8; 4] {
        if self.order == ByteOrder::Big { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn u16(&self, n: u16) -> [u8; 2] {
        if self.order == ByteOrder::Big { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn block(&mut self, block_type: u32, body: &[u8]) {
        let padding = body.len().next_multiple_of(4) - body.len();
        let len = self.u32((BLOCK_FRAME + body.len() + padding) as u32);
        self.out.extend(self.u32(block_type));
        self.out.extend(len);
        self.out.extend(body);
        self.out.extend(vec![0; padding]);
        self.out.extend(len);
    }

    fn interface(&mut self, link: u16, snap_len: u32, options: &[(u16, &[u8])]) {
        let mut body = self.u16(link).to_vec();
        body.extend([0, 0]);
        body.extend(self.u32(snap_len));
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(*value);
            body.extend(vec![0; value.len().next_multiple_of(4) - value.len()]);
        }
        self.block(INTERFACE_DESCRIPTION, &body);
    }

    fn enhanced(&mut self, interface: u32, units: u64, frame: &[u8], wire_len: u32) {
        let mut body = self.u32(interface).to_vec();
        for n in [(units >> 32) as u32, units as u32, frame.len() as u32, wire_len] {
            body.extend(self.u32(n));
        }
        body.extend(frame);
        self.block(ENHANCED_PACKET, &body);
    }
}

/// Every frame, read with as few bytes as the reader requests; and the error that ended reading, if any.
#[allow(clippy::type_complexity)]
fn read_all(bytes: &[u8]) -> (Vec<(Vec<u8>, u32, Option<u64>, usize)>, Option<PcapngError>) {
    let mut reader = SectionReader::new();
    let (mut at, mut given) = (0, 0);
    let mut frames = Vec::new();
    while at < bytes.len() {
        match reader.next_block(&bytes[at..(at + given).min(bytes.len())]) {
            Ok(Block::Need(n)) if n > bytes.len() - at => break,
            Ok(Block::Need(n)) => {
                assert!(n > given, "asks for what it has");
                given = n;
            }
            Ok(Block::Skip { len } | Block::Interface { len }) => (at, given) = (at + len, 0),
            Ok(Block::Frame { len, frame: f }) => {
                let frame = bytes[at + f.at..at + f.at + f.captured_len].to_vec();
                frames.push((frame, f.wire_len, f.arrival_ns, f.interface));
                (at, given) = (at + len, 0);
            }
            Err(error) => return (frames, Some(error)),
        }
    }
    (frames, None)
}

#[test]
fn all_kinds_of_blocks_in_both_orders_and_two_sections() {
    let mut file = Vec::new();
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let mut w = Writer::new(order);
        w.interface(1, 0, &[(2, b"eth0"), (0, b"")]);
        w.block(0x0000_0bad, &[7; 13]);
        let offset = if order == ByteOrder::Big { 5u64.to_be_bytes() } else { 5u64.to_le_bytes() };
        w.interface(101, 4, &[(9, &[9]), (2, b"wan\0\0"), (14, &offset)]);
        w.enhanced(0, 1_000_001, b"frame", 70);
        w.enhanced(1, 1_000_001, b"f2", 2);
        let mut simple = w.u32(9).to_vec();
        simple.extend(b"ninebytes");
        w.block(SIMPLE_PACKET, &simple);
        let mut obsolete = w.u16(1).to_vec();
        obsolete.extend(w.u16(77));
        for n in [0u32, 42, 3, 3] {
            obsolete.extend(w.u32(n));
        }
        obsolete.extend(b"old");
        w.block(PACKET_OBSOLETE, &obsolete);
        file.extend(w.out);
    }
    let section = [
        (b"frame".to_vec(), 70, Some(1_000_001_000), 0),
        (b"f2".to_vec(), 2, Some(5_001_000_001), 1),
        (b"ninebytes".to_vec(), 9, None, 0),
        (b"old".to_vec(), 3, Some(5_000_000_042), 1),
    ];
    let (frames, error) = read_all(&file);
    assert_eq!(error, None);
    assert_eq!(frames, [section.clone(), section].concat());

    let mut reader = SectionReader::new();
    let mut at = 0;
    while reader.interfaces().len() < 2 {
        match reader.next_block(&file[at..]) {
            Ok(Block::Skip { len } | Block::Interface { len }) => at += len,
            other => panic!("{other:?}"),
        }
    }
    let names: Vec<_> = reader.interfaces().iter().map(|i| i.name.as_deref()).collect();
    assert_eq!(names, [Some(&b"eth0"[..]), Some(b"wan")]);
    assert_eq!(reader.interfaces()[1].link, LinkType::RawIp);
}

/// The options of a packet, which the reader skips.
#[test]
fn packets_are_written_with_what_is_known() {
    let mut out = Vec::new();
    let packet = write::PacketBlock {
        interface: 3,
        time_ns: 1 << 32 | 9,
        wire_len: 70,
        frame: b"frame",
        direction: write::Direction::Outbound,
        lost_before: 258,
        comment: "out wan",
    };
    write::packet(&mut out, &packet);
    let mut expected: Vec<u8> = Vec::new();
    for number in [ENHANCED_PACKET, 76, 3, 1, 9, 5, 70] {
        expected.extend(number.to_le_bytes());
    }
    expected.extend(b"frame\0\0\0");
    expected.extend([2, 0, 4, 0, 2, 0, 0, 0]);
    expected.extend([4, 0, 8, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"\x01\0\x07\0out wan\0");
    expected.extend([0, 0, 0, 0, 76, 0, 0, 0]);
    assert_eq!(out, expected);
}

#[test]
fn resolutions() {
    for (option, units, expected) in [
        (6, 5, 5000),
        (9, 5, 5),
        (0, 5, 5_000_000_000),
        (12, 5000, 5),
        (60, u64::MAX - 1, 0),
        (0x80 | 10, 512, 500_000_000),
        (0x80, 3, 3_000_000_000),
        (0xff, u64::MAX, 0),
        (0, u64::MAX, u64::MAX),
    ] {
        assert_eq!(Resolution::of_option(option).nanoseconds(units), expected, "{option} {units}");
    }
}

#[test]
fn damage_is_named() {
    let le = ByteOrder::Little;
    let with = |change: &dyn Fn(&mut Writer)| {
        let mut w = Writer::new(le);
        w.interface(1, 0, &[]);
        change(&mut w);
        read_all(&w.out).1
    };
    assert_eq!(with(&|w| w.enhanced(1, 0, b"x", 1)), Some(PcapngError::NoInterface { interface: 1 }));
    assert_eq!(
        with(&|w| w.out.extend([6, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0])),
        Some(PcapngError::BlockLength { block_type: 6, bytes: 13 })
    );
    assert_eq!(
        with(&|w| {
            w.enhanced(0, 0, b"1234", 4);
            let end = w.out.len() - 4;
            w.out[end] += 4;
        }),
        Some(PcapngError::TrailingLength { first: 36, second: 40 })
    );
    assert_eq!(
        with(&|w| {
            w.enhanced(0, 0, b"1234", 4);
            let captured = w.out.len() - 4 - 4 - 8;
            w.out[captured] += 1;
        }),
        Some(PcapngError::FrameLength { bytes: 5 })
    );
    assert_eq!(read_all(&[0; 12]).1, Some(PcapngError::NotACapture { block_type: 0 }));
    let mut no_magic = Writer::new(le).out;
    no_magic[8] ^= 1;
    assert_eq!(read_all(&no_magic).1, Some(PcapngError::ByteOrderMagic { found: 0x1a2b_3c4c }));
    assert_eq!(
        with(&|w| (0..INTERFACES_MAX).for_each(|_| w.interface(1, 0, &[]))),
        Some(PcapngError::TooManyInterfaces)
    );
}

proptest! {
    #[test]
    fn frames_round_trip(
        big: bool,
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..90), any::<u32>(), any::<u32>()), 0..20),
    ) {
        let mut w = Writer::new(if big { ByteOrder::Big } else { ByteOrder::Little });
        w.interface(1, 0, &[]);
        for (frame, units, more) in &frames {
            w.enhanced(0, u64::from(*units), frame, (frame.len() as u32).saturating_add(*more));
        }
        let expected: Vec<_> = frames.iter().map(|(frame, units, more)| {
            (frame.clone(), (frame.len() as u32).saturating_add(*more), Some(u64::from(*units) * 1000), 0)
        }).collect();
        prop_assert_eq!(read_all(&w.out), (expected, None));
    }

    #[test]
    fn what_is_written_is_read(
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..90), any::<u64>(), 0u64..2, "[a-zä]{0,9}"), 0..20),
    ) {
        let mut file = Vec::new();
        write::section_header(&mut file, "thalweg");
        write::interface(&mut file, write::LINK_ETHERNET, 96, "lan", "eth1, af_xdp");
        write::interface(&mut file, write::LINK_RAW_IP, 0, "router", "");
        for (frame, time_ns, number, comment) in &frames {
            write::packet(&mut file, &write::PacketBlock {
                interface: *number as u32,
                time_ns: *time_ns,
                wire_len: 100,
                frame,
                direction: if *number == 0 { write::Direction::Inbound } else { write::Direction::Outbound },
                lost_before: *number * 7,
                comment,
            });
        }
        let expected: Vec<_> =
            frames.iter().map(|(frame, time_ns, number, _)| (frame.clone(), 100, Some(*time_ns), *number as usize)).collect();
        prop_assert_eq!(read_all(&file), (expected, None));
    }

    #[test]
    fn any_damage_is_survived(cut: prop::sample::Index, at: prop::sample::Index, value: u8) {
        let mut w = Writer::new(ByteOrder::Little);
        w.interface(1, 0, &[(2, b"eth0"), (9, &[9])]);
        for n in 0..4 {
            w.enhanced(0, n, b"some frame", 60);
        }
        let mut bytes = w.out;
        let at = at.index(bytes.len());
        bytes[at] = value;
        bytes.truncate(cut.index(bytes.len() + 1));
        read_all(&bytes);
    }
}

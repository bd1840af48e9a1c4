use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::io::{self, Write};
use thalweg_base::{LinkType, NO_PORT, UNKNOWN_PORT};
use thalweg_wire::pcap::{ByteOrder, FileHeader, RecordHeader};
use thalweg_wire::trace::parse_line;

/// Returns its bytes in pieces of varying sizes, like a pipe.
struct Dribble {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.step = self.step * 7 % 1009 + 1;
        let n = self.step.min(buffer.len()).min(self.bytes.len() - self.at);
        buffer[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn names() -> PortNames {
    PortNames::new(["eth0", "eth1", "a-long-port-name"])
}

fn source(inputs: Vec<InputSpec>, options: &InputOptions) -> FileSource {
    FileSource::open(inputs, names(), options).unwrap()
}

fn small_chunks() -> InputOptions {
    InputOptions { chunk_packets: 3, slabs: 2, ..InputOptions::default() }
}

fn bytes_input(bytes: &[u8]) -> InputSpec {
    InputSpec::reader("test", io::Cursor::new(bytes.to_vec()))
}

/// Everything about a packet of the input.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    frame: Vec<u8>,
    arrival_ns: u64,
    wire_len: u32,
    link: LinkType,
    port: u16,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, len) = (self.frame.first(), self.frame.len());
        write!(f, "{len} x {first:?} at {} {:?} port {}", self.arrival_ns, self.link, self.port)
    }
}

/// Everything that a source delivers; checks the invariants of chunks.
fn drain(mut source: FileSource) -> (Vec<Seen>, InputReport, Option<InputError>) {
    let mut seen = Vec::new();
    let (mut sequence, mut number, mut clock_ns) = (0, 1, 0);
    let error = loop {
        match source.next_chunk() {
            Ok(None) => break None,
            Err(error) => break Some(error),
            Ok(Some(chunk)) => {
                assert_eq!(chunk.sequence, sequence);
                assert!(chunk.first_packet_number >= number, "packets have two numbers");
                assert!(chunk.clock_ns >= clock_ns, "the clock went back");
                assert!(!chunk.packets().is_empty());
                (sequence, clock_ns) = (sequence + 1, chunk.clock_ns);
                number = chunk.first_packet_number + chunk.packets().len() as u64;
                see(&chunk, &mut seen);
            }
        }
    };
    assert_eq!(source.progress().packets(), seen.len() as u64);
    let report = source.report();
    assert_eq!(report.packets, seen.len() as u64);
    assert!(matches!(source.next_chunk(), Ok(None)));
    (seen, report, error)
}

fn see(chunk: &Chunk, seen: &mut Vec<Seen>) {
    for (i, p) in chunk.packets().iter().enumerate() {
        seen.push(Seen {
            frame: chunk.frame(i).to_vec(),
            arrival_ns: p.arrival_ns,
            wire_len: p.wire_len,
            link: p.link,
            port: p.port_in,
        });
    }
}

fn pcap_of(header: &FileHeader, packets: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut out = header.encode().to_vec();
    for (frame, arrival_ns) in packets {
        let record = RecordHeader::new(header, *arrival_ns, frame.len() as u32, frame.len() as u32 + 4);
        out.extend(record.encode(header));
        out.extend(vec![0; header.record_header_len() - 16]);
        out.extend(frame);
    }
    out
}

fn some_packets(n: usize) -> Vec<(Vec<u8>, u64)> {
    (0..n).map(|i| (vec![i as u8; 40 + i * 7 % 90], i as u64 * 1_000_000)).collect()
}

/// A pcapng file with one interface named eth1, a block to skip, and these packets.
fn pcapng_of(packets: &[(Vec<u8>, u64)], big: bool) -> Vec<u8> {
    let n32 = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let n16 = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let block = |out: &mut Vec<u8>, block_type: u32, body: &[u8]| {
        let len = 12 + body.len().next_multiple_of(4);
        out.extend(n32(block_type));
        out.extend(n32(len as u32));
        out.extend(body);
        out.resize(out.len() + len - 12 - body.len(), 0);
        out.extend(n32(len as u32));
    };
    let mut out = Vec::new();
    let head = [&n32(0x1a2b_3c4d)[..], &n16(1), &n16(0), &[0xff; 8]].concat();
    block(&mut out, 0x0a0d_0d0a, &head);
    let name = [&n16(1)[..], &n16(0), &n32(0), &n16(2), &n16(4), b"eth1", &n16(9), &n16(1), &[9, 0, 0, 0]];
    block(&mut out, 1, &name.concat());
    for (i, (frame, arrival_ns)) in packets.iter().enumerate() {
        let mut body = Vec::new();
        for n in
            [0, (arrival_ns >> 32) as u32, *arrival_ns as u32, frame.len() as u32, frame.len() as u32 + 4]
        {
            body.extend(n32(n));
        }
        body.extend(frame);
        block(&mut out, 6, &body);
        if i == 1 {
            block(&mut out, 0xbad, &[1; 3000]);
        }
    }
    out
}

fn expected(packets: &[(Vec<u8>, u64)], port: u16) -> Vec<Seen> {
    packets
        .iter()
        .map(|(frame, arrival_ns)| Seen {
            frame: frame.clone(),
            arrival_ns: *arrival_ns,
            wire_len: frame.len() as u32 + 4,
            link: LinkType::Ethernet,
            port,
        })
        .collect()
}

#[test]
fn all_forms_of_captures_through_whole_and_dribbling_reads() {
    let packets = some_packets(50);
    let mut files = vec![(pcapng_of(&packets, false), 1), (pcapng_of(&packets, true), 1)];
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for (nanoseconds_per_unit, modified) in [(1, false), (1000, false), (1000, true)] {
            let header = FileHeader { order, modified, nanoseconds_per_unit, ..FileHeader::nanoseconds(1) };
            files.push((pcap_of(&header, &packets), NO_PORT));
        }
    }
    for (file, port) in files {
        for options in [small_chunks(), InputOptions::default()] {
            let (seen, report, error) = drain(source(vec![bytes_input(&file)], &options));
            assert!(error.is_none());
            assert_eq!(seen, expected(&packets, port));
            assert_eq!((report.bytes, report.issue_count()), (file.len() as u64, 0));
            let dribble = Dribble { bytes: file.clone(), at: 0, step: 1 };
            let (again, same, _) = drain(source(vec![InputSpec::reader("test", dribble)], &options));
            assert_eq!((again, same), (seen, report));
        }
    }
}

#[test]
fn cut_anywhere_everything_before_the_cut_arrives() {
    let packets = some_packets(7);
    let pcap = pcap_of(&FileHeader::nanoseconds(1), &packets);
    let pcapng = pcapng_of(&packets, false);
    for file in [pcap, pcapng] {
        let mut most = 0;
        for cut in 0..file.len() {
            let (seen, report, error) = drain(source(vec![bytes_input(&file[..cut])], &small_chunks()));
            assert!(error.is_none());
            let all = expected(&packets, seen.first().map_or(0, |s| s.port));
            assert_eq!(seen, all[..seen.len()], "cut at {cut}");
            assert!(seen.len() >= most);
            most = seen.len();
            if let Some(issue) = report.first_issues.first() {
                let Place::Byte { offset, .. } = issue.place else { continue };
                assert!(offset <= cut as u64, "{issue}");
                assert_eq!(issue.reason, "truncated");
            }
            let strict = InputOptions { strict: true, ..small_chunks() };
            let (strictly, _, error) = drain(source(vec![bytes_input(&file[..cut])], &strict));
            assert_eq!(strictly, seen);
            assert_eq!(error.is_some(), report.issue_count() > 0);
        }
        assert_eq!(most, packets.len() - 1);
    }
}

#[test]
fn damage_has_its_offset_and_the_next_file_follows() {
    let packets = some_packets(4);
    let header = FileHeader::nanoseconds(1);
    let mut bad = pcap_of(&header, &packets[..2]);
    let at = bad.len() as u64;
    bad.extend([0xff; 16]);
    let good = pcap_of(&header, &packets[2..]);
    let (seen, report, _) = drain(source(vec![bytes_input(&bad), bytes_input(&good)], &small_chunks()));
    assert_eq!(seen, expected(&packets, NO_PORT));
    assert_eq!(report.files, 2);
    let [issue] = &report.first_issues[..] else { panic!("{report:?}") };
    assert_eq!(issue.place, Place::Byte { offset: at, packet: Some(3) });
    assert_eq!(
        issue.to_string(),
        format!(
            "test: byte {at}, packet 3: expected a record of at most 262144 bytes, found one of 4294967295"
        )
    );
}

#[test]
fn a_slab_grows_for_large_records_and_a_chunk_ends_before_it_is_too_large() {
    let packets: Vec<_> = (0..20u8).map(|i| (vec![i; 262_144 - usize::from(i)], 0)).collect();
    let file = pcap_of(&FileHeader::nanoseconds(1), &packets);
    let options = InputOptions { chunk_packets: 10, slabs: 1, ..InputOptions::default() };
    let mut source = source(vec![bytes_input(&file)], &options);
    let mut sizes = Vec::new();
    let mut seen = Vec::new();
    while let Ok(Some(chunk)) = source.next_chunk() {
        sizes.push(chunk.packets().len());
        see(&chunk, &mut seen);
    }
    assert_eq!(seen, expected(&packets, NO_PORT));
    // Three records and their headers fit 1 MiB; four do once they are short enough.
    assert_eq!(sizes, [3, 3, 3, 3, 3, 4, 1]);
}

#[test]
fn compressed_inputs_and_what_is_wrong_with_them() {
    let packets = some_packets(40);
    let file = pcapng_of(&packets, false);
    let gz = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let bz2 = |bytes: &[u8]| {
        let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let zst =
        |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    let (a, b) = file.split_at(1000);
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let compressed = [
        gz(&file),
        [gz(a), gz(b)].concat(),
        bz2(&file),
        [bz2(a), bz2(b)].concat(),
        zst(&file),
        [&skippable[..], &zst(a), &skippable, &zst(b)].concat(),
    ];
    for (i, bytes) in compressed.iter().enumerate() {
        for read_ahead in [false, true] {
            let options = InputOptions { read_ahead, ..small_chunks() };
            let (seen, report, _) = drain(source(vec![bytes_input(bytes)], &options));
            assert_eq!(seen, expected(&packets, 1), "compressed input {i}");
            assert_eq!((report.bytes, report.issue_count()), (file.len() as u64, 0));

            let (_, report, _) = drain(source(vec![bytes_input(&bytes[..bytes.len() - 9])], &options));
            assert_eq!(report.issue_count(), 1, "cut input {i}: {report:?}");
        }
    }
    // Compressed input that is truncated or changed in many places causes no panic.
    let here = InputOptions { read_ahead: false, ..small_chunks() };
    for bytes in compressed {
        for at in (0..bytes.len()).step_by(41) {
            drain(source(vec![bytes_input(&bytes[..at])], &here));
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            drain(source(vec![bytes_input(&changed)], &here));
        }
    }
}

const TRACE: &str = "# a trace\neth0 1.2.3.4 5.6.7.8 80 1000 http\r\n\nnoport 1.2.3.4 5.6.7.8 80 1000 http\n\
                     eth1 ::1 ::2 80 1000 http\neth1 ::1 ::2 80 1000 htp\na-long-port-name 1.2.3.4 5.6.7.8 1 2 dns";

#[test]
fn a_trace_becomes_packets_and_its_bad_lines_are_named() {
    for step in [1, 500] {
        let dribble = Dribble { bytes: TRACE.into(), at: 0, step };
        let (seen, report, error) = drain(source(vec![InputSpec::reader("t.txt", dribble)], &small_chunks()));
        assert!(error.is_none());
        let ports: Vec<u16> = seen.iter().map(|s| s.port).collect();
        assert_eq!(ports, [0, UNKNOWN_PORT, 1, 2]);
        // The time of the bad line stays empty.
        assert_eq!(seen.iter().map(|s| s.arrival_ns).collect::<Vec<_>>(), [0, 1000, 2000, 4000]);
        assert_eq!(seen.iter().map(|s| s.frame.len()).collect::<Vec<_>>(), [46, 46, 60, 46]);
        assert_eq!(seen.iter().map(|s| s.wire_len).collect::<Vec<_>>(), [60, 60, 74, 60]);
        assert!(seen.iter().all(|s| s.link == LinkType::RawIp));
        assert_eq!((report.lines, report.bytes), (7, TRACE.len() as u64));
        assert_eq!(report.issues.into_iter().collect::<Vec<_>>(), [("bad-protocol", 1)]);
        assert_eq!(
            report.first_issues[0].to_string(),
            "t.txt:6:22: expected a protocol name or a number from 0 to 255"
        );
    }
}

#[test]
fn strict_delivers_what_is_before_the_first_bad_line() {
    let strict = InputOptions { strict: true, chunk_packets: 1, ..InputOptions::default() };
    let (seen, _, error) = drain(source(vec![bytes_input(TRACE.as_bytes()), bytes_input(b"")], &strict));
    assert_eq!(seen.len(), 3);
    let Some(InputError::Strict(issue)) = error else { panic!("{error:?}") };
    assert_eq!(issue.place, Place::Line { line: 6, column: 22 });
}

#[test]
fn only_the_first_issues_are_kept_and_long_lines_are_one_each() {
    let mut text = "x\n".repeat(30).into_bytes();
    text.extend(vec![b'y'; 300_000]);
    text.extend(b" 1 2 3\neth0 1.2.3.4 5.6.7.8 80 1000 http\n");
    text.extend(vec![b'z'; 2000]);
    let (seen, report, _) = drain(source(vec![bytes_input(&text)], &small_chunks()));
    assert_eq!(seen.len(), 1);
    assert_eq!((report.lines, report.bytes), (33, text.len() as u64));
    assert_eq!(report.issues["bad-destination-address"], 30);
    assert_eq!(report.issues["line-too-long"], 2);
    assert_eq!(report.first_issues.len(), ISSUES_KEPT);
}

#[test]
fn nonsense_is_named_and_nothing_is_nothing() {
    let (_, report, _) = drain(source(vec![bytes_input(b"\x7fELF\x02\x01\0\0")], &small_chunks()));
    assert_eq!(report.issues.into_iter().collect::<Vec<_>>(), [("unknown-format", 1)]);
    let (seen, report, _) = drain(source(vec![bytes_input(b"")], &small_chunks()));
    assert_eq!((seen.len(), report.issue_count(), report.lines), (0, 0, 0));
}

#[test]
fn inputs_of_no_use_are_named_beside_good_ones() {
    let good = pcap_of(&FileHeader::nanoseconds(1), &some_packets(3));
    let no_packets = FileHeader::nanoseconds(1).encode();
    let inputs =
        [&good[..], b"prose\nand more\n", &no_packets, b"", b"\x7fELF\x02\x01\0\0", b"# nothing\n", &good];
    let inputs = inputs.iter().map(|bytes| bytes_input(bytes)).collect();
    let (seen, report, _) = drain(source(inputs, &small_chunks()));
    assert_eq!(seen.len(), 6);
    let [prose, empty, binary] = &report.useless[..] else { panic!("{:?}", report.useless) };
    assert!(prose.contains(":1:6: ") && prose.contains("there is no packet in it"), "{prose}");
    assert!(empty.ends_with(": it is empty"), "{empty}");
    assert!(binary.contains("byte 0: expected a text trace, pcap or pcapng"), "{binary}");
}

#[test]
fn slabs_of_inputs_without_packets_come_back() {
    // With one slab, the second input would wait for ever if the first kept it.
    let options = InputOptions { slabs: 1, ..InputOptions::default() };
    let empty = FileHeader::nanoseconds(1).encode();
    let inputs = [&empty[..], b"# nothing\n", &pcapng_of(&[], false), b"x\n", &empty[..9], b""];
    let inputs = inputs.iter().map(|bytes| bytes_input(bytes)).collect();
    let (seen, report, _) = drain(source(inputs, &options));
    assert_eq!((seen.len(), report.files), (0, 6));
}

#[test]
fn a_port_given_with_the_file_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x=y.pcapng");
    std::fs::write(&path, pcapng_of(&some_packets(2), false)).unwrap();
    let spec = InputSpec::parse(&format!("eth0={}", path.display()));
    let source = FileSource::open(vec![spec], names(), &small_chunks()).unwrap();
    assert_eq!(source.progress().bytes_total(), Some(std::fs::metadata(&path).unwrap().len()));
    let progress = source.progress();
    assert!(drain(source).0.iter().all(|s| s.port == 0));
    assert_eq!(Some(progress.bytes_read()), progress.bytes_total());

    let plain = InputSpec::parse(&path.display().to_string());
    assert_eq!(plain.port, None);
    let open = |spec| FileSource::open(vec![spec], names(), &small_chunks());
    assert!(matches!(open(InputSpec::parse("eth9=-")), Err(InputError::NoSuchPort { .. })));
    assert!(matches!(open(InputSpec::parse("/no/such/file")), Err(InputError::Open { .. })));
    assert!(matches!(open(InputSpec::path(directory.path())), Err(InputError::Open { .. })));
}

/// Reads all, and parses in reverse order: the last line of the last chunk is known before the first.
fn parsed_backward(mut source: FileSource) -> (Vec<Seen>, InputReport) {
    let mut chunks = Vec::new();
    while let Ok(Some(chunk)) = source.next_cut() {
        chunks.push(chunk);
    }
    chunks.iter_mut().rev().for_each(Chunk::parse);
    let mut seen = Vec::new();
    chunks.iter().for_each(|chunk| see(chunk, &mut seen));
    (seen, source.report())
}

/// What a trace says, by its definition alone.
struct Obvious {
    lines: u64,
    /// Arrival, bytes on the wire, port.
    packets: Vec<(u64, u32, u16)>,
    /// Line, column.
    issues: Vec<(u64, usize)>,
}

fn obvious(text: &[u8]) -> Obvious {
    let (mut packets, mut issues, mut slots) = (Vec::new(), Vec::new(), 0);
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    lines.pop_if(|rest| rest.is_empty());
    for (number, line) in (1..).zip(&lines) {
        match parse_line(line, FieldOrder::default()) {
            Ok(None) => continue,
            Ok(Some(line)) => {
                let len = line.write_packet(&mut [0; 64]) as u32 + 14;
                packets.push((slots * 1000, len, names().port_of(line.port)));
            }
            Err(error) => issues.push((number, error.column)),
        }
        slots += 1;
    }
    Obvious { lines: lines.len() as u64, packets, issues }
}

fn line_of_a_trace() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        6 => Just("eth0 1.2.3.4 5.6.7.8 80 1000 http\n"),
        2 => Just("noport 1.2.3.4 5.6.7.8 80 1000 http # why\r\n"),
        2 => Just("  eth1 2001:db8::1 2001:db8::2 80 1000 http\n"),
        1 => Just("\n"),
        1 => Just(" \r\n"),
        1 => Just("# a comment\n"),
        1 => Just("\t # another\n"),
        1 => Just("!eth0 1.2.3.4 5.6.7.8 80 1000\n"),
        1 => Just("eth0 1.2.3.4 5.6.7.8 80 65536 http\n"),
    ];
    let long = (1000..1050usize, any::<bool>()).prop_map(|(len, is_comment)| {
        let mut line = vec![if is_comment { b'#' } else { b'x' }; len];
        line.push(b'\n');
        line
    });
    prop_oneof![20 => text.prop_map(|text| text.as_bytes().to_vec()), 1 => long]
}

#[test]
fn a_long_comment_ends_a_chunk_and_an_endless_line_is_cut() {
    let line = b"eth0 1.2.3.4 5.6.7.8 80 1000 http\n";
    let comments = b"# nothing\n".repeat(60_000);
    let endless = vec![b'z'; 3 << 20];
    let text = [&comments, &line[..], &comments, line, &comments, line, line, &endless, b"\n", line].concat();
    let options = InputOptions { chunk_packets: 100, ..InputOptions::default() };
    for step in [1, 900] {
        let dribble = Dribble { bytes: text.clone(), at: 0, step };
        let mut source = source(vec![InputSpec::reader("t", dribble)], &options);
        let mut sizes = Vec::new();
        while let Ok(Some(chunk)) = source.next_chunk() {
            sizes.push((chunk.first_packet_number, chunk.packets().len()));
        }
        // A mebibyte has room for the comments between two lines, but not for twice as many.
        assert_eq!(sizes, [(1, 2), (3, 3)]);
        let report = source.report();
        assert_eq!((report.lines, report.bytes), (180_006, text.len() as u64));
        assert_eq!(report.issues.into_iter().collect::<Vec<_>>(), [("line-too-long", 1)]);
    }
}

#[test]
fn preloaded_chunks_are_the_same() {
    let packets = some_packets(100);
    let file = pcap_of(&FileHeader::nanoseconds(1), &packets);
    let inputs = || vec![bytes_input(&file), bytes_input(TRACE.as_bytes())];
    let (streamed, report, _) = drain(source(inputs(), &small_chunks()));
    let (chunks, same) = source(inputs(), &small_chunks()).load_all().unwrap();
    let mut seen = Vec::new();
    chunks.iter().for_each(|chunk| see(chunk, &mut seen));
    assert_eq!((seen, same), (streamed, report));
}

#[test]
fn preloading_ends_before_memory_does() {
    let trace = || vec![bytes_input(TRACE.repeat(1_000).as_bytes())];
    let asked = Cell::new(0);
    let shrinking = || {
        asked.set(asked.get() + 1);
        Some(if asked.get() < 3 { 4 << 30 } else { 100 << 20 })
    };
    let error = source(trace(), &small_chunks()).load_while(u64::MAX, shrinking).unwrap_err();
    assert!(matches!(error, InputError::LargerThanMemory { left_mib: 100 }), "{error}");
    assert_eq!(asked.get(), 3, "read on");
    source(trace(), &small_chunks()).load_while(u64::MAX, || None).expect("a system that does not say");
}

proptest! {
    #[test]
    fn a_trace_is_what_its_lines_say_parsed_now_or_later(
        lines in proptest::collection::vec(line_of_a_trace(), 0..120),
        ends: bool,
        chunk_packets in 1..9usize,
    ) {
        let mut text = lines.concat();
        if !ends {
            text.pop();
        }
        let options = InputOptions { chunk_packets, slabs: 200, ..InputOptions::default() };
        let inputs = || vec![bytes_input(&text), bytes_input(&text)];
        let (seen, report, _) = drain(source(inputs(), &options));
        let Obvious { lines, packets, issues } = obvious(&text);
        let slots = (packets.len() + issues.len()) as u64;
        let again = packets.iter().map(|&(at, len, port)| (at + slots * 1000, len, port));
        let both: Vec<_> = packets.iter().copied().chain(again).collect();
        prop_assert_eq!(seen.iter().map(|s| (s.arrival_ns, s.wire_len, s.port)).collect::<Vec<_>>(), both);
        prop_assert_eq!((report.lines, report.bytes), (2 * lines, 2 * text.len() as u64));
        prop_assert_eq!(report.issue_count(), 2 * issues.len() as u64);
        let places = report.first_issues.iter().map(|issue| match issue.place {
            Place::Line { line, column } => (line, column),
            Place::Byte { .. } => (0, 0),
        });
        let first = issues.iter().chain(&issues).copied().take(ISSUES_KEPT);
        prop_assert_eq!(places.collect::<Vec<_>>(), first.collect::<Vec<_>>());
        prop_assert_eq!(parsed_backward(source(inputs(), &options)), (seen, report));
    }

    #[test]
    fn arbitrary_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..3u8) {
        let mut file = match kind {
            0 => FileHeader::nanoseconds(1).encode().to_vec(),
            1 => pcapng_of(&[], false),
            _ => Vec::new(),
        };
        file.extend(bytes);
        drain(source(vec![bytes_input(&file)], &small_chunks()));
    }

    #[test]
    fn damaged_captures_are_survived(at: prop::sample::Index, value: u8, next_generation: bool) {
        let packets = some_packets(10);
        let mut file = if next_generation { pcapng_of(&packets, true) }
            else { pcap_of(&FileHeader::nanoseconds(1), &packets) };
        let at = at.index(file.len());
        file[at] = value;
        let whole = drain(source(vec![bytes_input(&file)], &small_chunks()));
        let dribble = Dribble { bytes: file, at: 0, step: 3 };
        let pieces = drain(source(vec![InputSpec::reader("test", dribble)], &small_chunks()));
        prop_assert_eq!((whole.0, whole.1), (pieces.0, pieces.1));
    }
}

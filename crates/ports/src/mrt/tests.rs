use super::*;
use flate2::write::GzEncoder;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use thalweg_wire::mrt::{
    AsSize, Direction, Endpoint, MessageForm, Peer, RibRecord, Style, Timestamp, write_lines, write_message,
    write_peer_index_table, write_state_change,
};

const TIME_S: u32 = 1_771_774_200; // 2026-02-22 15:30:00

/// ORIGIN IGP, AS_PATH 64496 64497, NEXT_HOP 192.0.2.1, MED 10, LOCAL_PREF 100, communities 64496:1 no-export.
const ATTRIBUTES: &[u8] = &[
    0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf0, 0, 0, 0xfb, 0xf1, 0x40, 3, 4, 192, 0, 2, 1, 0x80, 4,
    4, 0, 0, 0, 10, 0x40, 5, 4, 0, 0, 0, 100, 0xc0, 8, 8, 0xfb, 0xf0, 0, 1, 0xff, 0xff, 0xff, 1,
];
/// The same with an IPv6 next hop in the short form of tables.
const ATTRIBUTES_SIX: &[u8] = &[
    0x40, 1, 1, 2, 0x40, 2, 6, 2, 1, 0, 3, 13, 64, 0x90, 14, 0, 17, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 9,
];

fn table() -> Vec<u8> {
    let peer = |address: &str, asn| Peer { id: Ipv4Addr::LOCALHOST, address: address.parse().unwrap(), asn };
    let table = PeerIndex {
        collector: Ipv4Addr::new(192, 0, 2, 254),
        view: "main".to_owned(),
        peers: vec![peer("198.18.0.1", 64496), peer("2001:db8::2", 4_200_000_000)],
    };
    let mut out = Vec::new();
    write_peer_index_table(&mut out, TIME_S, &table).unwrap();
    out
}

/// A RIB record with one route per peer.
fn rib(number: u32, add_path: bool) -> Vec<u8> {
    let (prefix, attributes) = if number.is_multiple_of(2) {
        (format!("10.{}.{}.0/24", number >> 8 & 255, number & 255), ATTRIBUTES)
    } else {
        (format!("2001:db8:{number:x}::/48"), ATTRIBUTES_SIX)
    };
    let mut out = Vec::new();
    let mut rib = RibRecord::begin(&mut out, TIME_S, number, prefix.parse().unwrap(), add_path);
    rib.push(0, TIME_S - 1, number + 1, attributes).unwrap();
    rib.push(1, TIME_S - 1, number + 2, attributes).unwrap();
    rib.finish();
    out
}

fn dump(records: u32) -> Vec<u8> {
    (0..records).fold(table(), |file, number| [file, rib(number, number.is_multiple_of(3))].concat())
}

/// An UPDATE that withdraws 11.0.0.0/8 and announces 10.0.0.0/8 and 192.0.2.0/24.
fn updates() -> Vec<u8> {
    let mut message = vec![0xff; 16];
    message.extend((23 + 2 + ATTRIBUTES.len() as u16 + 6).to_be_bytes());
    message.extend([2, 0, 2, 8, 11]);
    message.extend((ATTRIBUTES.len() as u16).to_be_bytes());
    message.extend(ATTRIBUTES);
    message.extend([8, 10, 24, 192, 0, 2]);
    let end = |last, asn| Endpoint { address: IpAddr::V4(Ipv4Addr::new(198, 18, 0, last)), asn };
    let time = Timestamp { seconds: TIME_S, microseconds: 1 };
    let mut out = Vec::new();
    write_state_change(&mut out, time, end(1, 64496), end(2, 64499), 5, 6).unwrap();
    write_message(
        &mut out,
        time,
        end(1, 64496),
        end(2, 64499),
        MessageForm { direction: Direction::Received, as_size: AsSize::Four, add_path: false },
        &message,
    )
    .unwrap();
    out
}

/// Lines of a file, and its errors.
fn read(source: impl Read + Send + 'static) -> (String, Vec<MrtError>) {
    let mut reader = match MrtReader::new("test", source) {
        Ok(reader) => reader,
        Err(error) => return (String::new(), vec![error]),
    };
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    while let Some(result) = reader.next() {
        match result {
            Ok(item) => write_lines(&mut out, &item.record, &item.content, Style::Unix).unwrap(),
            Err(error) => errors.push(error),
        }
    }
    assert!(reader.next().is_none(), "the end stays the end");
    (String::from_utf8(out).unwrap(), errors)
}

fn read_bytes(bytes: &[u8]) -> (String, Vec<MrtError>) {
    read(io::Cursor::new(bytes.to_vec()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns its bytes one by one.
struct Drops(io::Cursor<Vec<u8>>);

impl Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer.len().min(1);
        self.0.read(&mut buffer[..n])
    }
}

#[test]
fn compression_and_pieces_make_no_difference() {
    let file = dump(300);
    let (lines, errors) = read_bytes(&file);
    assert_eq!((lines.lines().count(), errors.len()), (600, 0));
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&file).unwrap();
    let zstandard = ruzstd::encoding::compress_to_vec(&file[..], ruzstd::encoding::CompressionLevel::Fastest);
    for packed in [gzip(&file), bzip2.finish().unwrap(), zstandard] {
        assert!(packed.len() < file.len());
        assert_eq!(read_bytes(&packed).0, lines);
    }
    let (drops, errors) = read(Drops(io::Cursor::new(file)));
    assert_eq!((drops, errors.len()), (lines, 0));
}

#[test]
fn a_record_longer_than_the_buffer_is_read() {
    let mut file = table();
    let mut rib = RibRecord::begin(&mut file, TIME_S, 0, "10.0.0.0/8".parse().unwrap(), false);
    while rib.push(0, 0, 0, ATTRIBUTES).is_ok() {}
    let routes = usize::from(rib.finish());
    file.extend(updates());
    assert!(file.len() > 8 * READ_BYTES);
    let (lines, errors) = read_bytes(&file);
    assert_eq!((lines.lines().count(), errors.len()), (routes + 4, 0));
}

#[test]
fn a_broken_record_is_named_and_the_next_is_read() {
    let before = dump(1);
    let mut broken = rib(2, false);
    let peer_at = HEADER_BYTES + 4 + 4 + 2;
    broken[peer_at + 1] = 9;
    let file = [&before[..], &broken, &rib(4, false)].concat();
    let (lines, errors) = read_bytes(&file);
    assert_eq!(lines.lines().count(), 4);
    let text = format!(
        "test: record 3 at byte {}: TABLE_DUMP_V2/RIB_IPV4_UNICAST: expected a peer number below 2, found 9 \
         at byte {peer_at} of the record",
        before.len()
    );
    assert_eq!(
        errors.iter().map(|error| (error.to_string(), error.is_last())).collect::<Vec<_>>(),
        [(text, false)]
    );
}

#[test]
fn a_file_that_ends_early_gives_all_whole_records() {
    let (file, last) = (dump(10), rib(10, false));
    let cut = [&file[..], &last[..last.len() - 5]].concat();
    let (lines, errors) = read_bytes(&cut);
    assert_eq!(lines, read_bytes(&file).0);
    let text = format!(
        "test: record 12 at byte {}: expected {} bytes of record, found the end of the file after {}",
        file.len(),
        last.len(),
        last.len() - 5
    );
    assert_eq!(
        errors.iter().map(|error| (error.to_string(), error.is_last())).collect::<Vec<_>>(),
        [(text, true)]
    );
    // A truncated header.
    let (_, errors) = read_bytes(&file[..file.len() + 7 - rib(9, true).len()]);
    assert!(matches!(errors[..], [MrtError { problem: MrtProblem::CutOff { wanted: 12, left: 7 }, .. }]));

    // A truncated compressed stream gives the complete part.
    let packed = gzip(&dump(3000));
    let (lines, errors) = read_bytes(&packed[..packed.len() / 2]);
    let whole = read_bytes(&packed).0;
    assert!(lines.len() > 1000 && lines.len() < whole.len() && whole.starts_with(&lines));
    assert!(matches!(errors[..], [MrtError { problem: MrtProblem::Read { .. }, .. }]), "{errors:?}");
}

/// Lines of the good records, and the skipped records.
fn skipped(errors: &[MrtError]) -> Vec<(u64, u64)> {
    let torn = |error: &MrtError| match error.problem {
        MrtProblem::Torn { skipped } => (error.offset, skipped),
        _ => panic!("{error}"),
    };
    errors.iter().map(torn).collect()
}

#[test]
fn a_length_that_cannot_be_costs_its_record() {
    let mut file = dump(2);
    let (at, length) = (file.len(), rib(2, false).len());
    file.extend(rib(2, false));
    file[at + 8] = 0xff;
    file.extend(rib(4, false));
    let (lines, errors) = read_bytes(&file);
    assert_eq!(lines.lines().count(), 6);
    let text = format!(
        "test: record 4 at byte {at}: damaged record: its length leads to no other record; skipped {length} bytes"
    );
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    assert!(!errors[0].is_last());
    // If no plausible record follows, it is the end.
    file.truncate(at + length);
    let (lines, errors) = read_bytes(&file);
    assert_eq!(lines.lines().count(), 4);
    let text = errors[0].to_string();
    let start =
        format!("test: record 4 at byte {at}: expected a record of at most 16777216 bytes, found TABLE");
    assert!(text.starts_with(&start), "{text}");
    assert_eq!((errors.len(), errors[0].is_last()), (1, true));
}

/// A record torn anywhere, in the middle of a file: all others are read, also if the file comes in pieces.
#[test]
fn a_torn_record_costs_nothing_but_itself() {
    let (before, after) = (dump(20), (21..60).map(|number| rib(number, false)).collect::<Vec<_>>().concat());
    let wanted = [before.clone(), after.clone()].concat();
    let (wanted, none) = read_bytes(&wanted);
    assert!(none.is_empty());
    let torn = [rib(20, false), updates()].concat();
    let last = rib(20, false).len();
    // By chance its length may lead to the end of the next record: then both are one broken record.
    let chance = last - rib(21, false).len().min(last);
    for kept in (1..last).filter(|kept| *kept != chance) {
        let file = [&before[..], &torn[..kept], &after].concat();
        let (lines, errors) = read_bytes(&file);
        assert_eq!(lines, wanted, "torn after {kept} bytes");
        assert_eq!(skipped(&errors), [(before.len() as u64, kept as u64)]);
        if kept % 16 == 0 {
            assert_eq!(read(Drops(io::Cursor::new(file.clone()))).0, wanted);
            assert_eq!(read_bytes(&gzip(&file)).0, wanted);
        }
    }
}

/// Garbage between records, in any amount and several times, is skipped.
#[test]
fn garbage_is_passed_over() {
    let mut random = 1_u64;
    let mut garbage = |length: usize| -> Vec<u8> {
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    let (mut file, mut whole, mut bytes) = (table(), table(), 0);
    for (number, length) in [1, 11, 12, 13, 500, 70_000, 3 * READ_BYTES].into_iter().enumerate() {
        // A record is accepted if another one follows: of two, the second is read because the first was.
        for record in [rib(2 * number as u32, false), rib(2 * number as u32 + 1, false)] {
            file.extend_from_slice(&record);
            whole.extend_from_slice(&record);
        }
        file.extend(garbage(length));
        bytes += length as u64;
    }
    let record = rib(99, false);
    file.extend_from_slice(&record);
    whole.extend_from_slice(&record);
    let (lines, errors) = read_bytes(&file);
    assert_eq!(lines, read_bytes(&whole).0);
    let passed: u64 = skipped(&errors).iter().map(|each| each.1).sum();
    assert_eq!(passed, bytes);
}

#[test]
fn what_is_no_mrt_is_refused_at_once() {
    for other in [&b"# A. MRT files\n\nsome text that is long enough"[..], &[7; 400], &gzip(&[9; 5000])] {
        let (lines, errors) = read_bytes(other);
        assert_eq!(lines, "");
        assert!(matches!(errors[..], [MrtError { problem: MrtProblem::NotMrt(_), record: 1, .. }]));
        assert!(errors[0].to_string().contains("expected MRT"), "{}", errors[0]);
    }
    let (lines, errors) = read_bytes(b"");
    assert_eq!((lines.as_str(), errors.len()), ("", 0));
    let missing = MrtReader::open(Path::new("no/such/file")).unwrap_err();
    assert!(missing.to_string().starts_with("no/such/file: "), "{missing}");
    let directory = tempfile::tempdir().unwrap();
    assert!(MrtReader::open(directory.path()).is_err());
}

fn options(directory: &Path, pattern: &str) -> MrtWriterOptions {
    MrtWriterOptions { pattern: directory.join(pattern), period_s: None, gzip: false }
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

fn list(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn files_change_with_the_period() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("new/updates");
    let mut writer = MrtWriter::new(MrtWriterOptions {
        period_s: Some(300),
        ..options(&folder, "updates.%Y%m%d.%H%M%S.%s.%%.%q")
    });
    let start = u64::from(TIME_S);
    writer.write(start + 10, &updates()).unwrap();
    assert_eq!(list(&folder), [".updates.20260222.153000.1771774200.%.%q.part"]);
    writer.write(start + 299, &updates()).unwrap();
    assert_eq!(writer.take_published(), [] as [PathBuf; 0]);
    writer.write(start + 301, &updates()).unwrap();
    writer.handle_time(start + 599).unwrap();
    assert_eq!(names(&writer.take_published()), ["updates.20260222.153000.1771774200.%.%q"]);
    writer.handle_time(start + 600).unwrap();
    let published = writer.take_published();
    assert_eq!(names(&published), ["updates.20260222.153500.1771774500.%.%q"]);
    writer.handle_time(start + 900).unwrap();
    assert_eq!(writer.finish().unwrap(), [] as [PathBuf; 0], "nothing was written since");
    assert_eq!(list(&folder).len(), 2);
    assert_eq!(std::fs::read(&published[0]).unwrap(), updates());
}

#[test]
fn what_is_there_is_never_replaced_and_errors_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "mine").unwrap();
    let mut writer = MrtWriter::new(options(directory.path(), "a"));
    writer.write(0, &table()).unwrap();
    assert_eq!(names(&writer.finish().unwrap()), ["a.1"]);
    assert_eq!(std::fs::read(directory.path().join("a")).unwrap(), b"mine");

    let mut writer = MrtWriter::new(options(&directory.path().join("a"), "below-a-file"));
    let error = writer.write(0, &table()).unwrap_err();
    assert!(error.to_string().starts_with("cannot create "), "{error}");
    // When the file can be written again, it is.
    std::fs::remove_file(directory.path().join("a")).unwrap();
    writer.write(0, &table()).unwrap();
    assert_eq!(names(&writer.finish().unwrap()), ["below-a-file"]);
}

/// bgpdump's output for a file; `None` if it is not installed.
fn bgpdump(path: &Path) -> Option<String> {
    let output = Command::new("bgpdump").arg("-vm").arg(path).output();
    match output {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(error) => {
            thalweg_testdata::skipped(&format!("bgpdump does not run ({error}): install it with apt"));
            None
        }
    }
}

#[test]
fn bgpdump_reads_what_we_write() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer =
        MrtWriter::new(MrtWriterOptions { gzip: true, ..options(directory.path(), "mrt.%s.gz") });
    writer.write(1, &table()).unwrap();
    for number in 0..500 {
        writer.write(1, &rib(number, number.is_multiple_of(3))).unwrap();
    }
    writer.write(1, &updates()).unwrap();
    let path = writer.finish().unwrap().remove(0);
    let (ours, errors) = read(File::open(&path).unwrap());
    assert_eq!((ours.lines().count(), errors.len()), (1004, 0));
    if let Some(theirs) = bgpdump(&path) {
        assert_eq!(ours, theirs);
    }
}

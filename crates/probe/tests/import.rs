//! Others' exports from captures, files and sockets: every record arrives once, and missing ones are reported.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_flow::export::{ExportOptions, Exporter, Transport, Version};
use thalweg_flow::import::Importer;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_probe::{
    EnrichFiles, ExporterNames, ImportOptions, ImportSource, ImportSummary, KeepOptions, ProbeProgress,
    import,
};
use thalweg_store::query::{Key, Metric, Query, TopRow, top};
use thalweg_store::{Dataset, Filter, Window};
use thalweg_wire::netflow::decode::{Source, first_message_bytes};
use thalweg_wire::testing;

const NOW_NS: u64 = 1_700_000_000_000_000_000;

/// Records of both families, every tenth a biflow.
fn records(count: u32) -> Vec<FlowRecord> {
    let record = |n: u32| {
        let v6 =
            |low: u32| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, (low >> 16) as u16, low as u16);
        let address = |low: u32| match n % 3 {
            0 => v6(low).into(),
            _ => Ipv4Addr::from(0x0a00_0000 | low).into(),
        };
        let key = FlowKey {
            src: address(n),
            dst: address(0xffff),
            src_port: 1024 + n as u16,
            dst_port: 443,
            protocol: 6,
            traffic_class: 0,
            ingress: 1,
            vlan: 0,
            mpls_label: None,
        };
        let first_ns = NOW_NS - 20_000_000_000;
        let counters = Counters {
            packets: 1 + u64::from(n % 7),
            bytes: 40 + u64::from(n),
            first_ns,
            last_ns: first_ns + 1_000_000_000,
            ..Counters::default()
        };
        let reverse = (n.is_multiple_of(10)).then_some(Counters { packets: 3, bytes: 333, ..counters });
        FlowRecord { reverse, ..FlowRecord::new(key, counters, EndReason::IdleTimeout) }
    };
    (0..count).map(record).collect()
}

fn options(sources: Vec<ImportSource>) -> ImportOptions {
    let names = ExporterNames::default();
    let enrich = EnrichFiles::default();
    ImportOptions {
        sources,
        names,
        snmp: None,
        port: None,
        seconds: None,
        store: None,
        json: None,
        csv: None,
        keep: KeepOptions::default(),
        enrich,
    }
}

fn file(path: &Path) -> ImportSource {
    ImportSource::File(path.to_owned())
}

/// Imports some files; there is a JSON line for each record and each event.
fn imported(files: &[PathBuf], port: Option<u16>) -> ImportSummary {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("records");
    let sources = files.iter().map(|path| file(path)).collect();
    let options = ImportOptions { json: Some(json.clone()), port, ..options(sources) };
    let summary = import(&options, &Arc::new(AtomicBool::new(false)), &()).unwrap();
    assert!(summary.conserved, "{summary:?}");
    let lines = std::fs::read_to_string(json).unwrap();
    assert_eq!(lines.lines().count() as u64, summary.records + summary.events);
    summary
}

/// A frame of UDP.
fn datagram(from: (Ipv4Addr, u16), to_port: u16, payload: &[u8]) -> Vec<u8> {
    testing::frame(&testing::udp(from, ([192, 0, 2, 255], to_port), payload))
}

fn frame(from: Ipv4Addr, protocol: u8, segment: &[u8]) -> Vec<u8> {
    testing::frame(&testing::ip(from, [192, 0, 2, 255], protocol, segment))
}

fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [1_700_000_000, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

/// The messages of an exporter that sends these records.
fn exported(version: Version, transport: Transport, records: &[FlowRecord]) -> Vec<Vec<u8>> {
    let mut exporter = Exporter::new(&ExportOptions::new(version, transport)).unwrap();
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(records, NOW_NS);
    exporter.handle_end(NOW_NS);
    let (mut messages, mut message) = (Vec::new(), Vec::new());
    while exporter.poll_message(&mut message).is_some() {
        messages.push(message.clone());
    }
    messages
}

/// Records, packets and bytes of flows.
fn sums<'a>(records: impl IntoIterator<Item = &'a FlowRecord>) -> (u64, u64, u64) {
    let flows = records.into_iter().filter(|record| record.details.event.is_none());
    flows.fold((0, 0, 0), |sum, r| (sum.0 + 1, sum.1 + r.packets(), sum.2 + r.bytes()))
}

fn sums_of(summary: &ImportSummary) -> (u64, u64, u64) {
    (summary.records, summary.packets, summary.bytes)
}

#[test]
fn captures_of_routers_come_to_what_the_importer_says() {
    let Some(root) = thalweg_testdata::shared("flow-export/netgauze") else { return };
    let mut captures = Vec::new();
    for folder in std::fs::read_dir(&root).unwrap() {
        let files = std::fs::read_dir(folder.unwrap().path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        captures.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "pcap")));
    }
    assert_eq!(captures.len(), 7);
    for path in captures {
        let datagrams = thalweg_testdata::datagrams(&std::fs::read(&path).unwrap());
        let (mut importer, mut flows) = (Importer::default(), Vec::new());
        let mut exporters = BTreeMap::new();
        for datagram in &datagrams {
            let next = exporters.len() as u64;
            let number = *exporters.entry(datagram.source).or_insert(next);
            importer.handle_message(Source::datagrams(number), &datagram.payload, 0, &mut flows).unwrap();
        }
        let summary = imported(std::slice::from_ref(&path), None);
        assert_eq!(sums_of(&summary), sums(&flows), "{}", path.display());
        assert_eq!((summary.messages, summary.refused), (datagrams.len() as u64, 0));
        assert_eq!(summary.exporters.len(), exporters.len());
        for exporter in &summary.exporters {
            assert!(exporters.contains_key(&exporter.exporter.parse::<SocketAddr>().unwrap()));
        }
        assert!(summary.records > 0 && summary.input_issues.total == 0, "{summary:?}");
    }
}

#[test]
fn datagrams_of_all_vendors_are_read_as_recorded() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(&root).unwrap().map(|file| file.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|end| end == "dat"));
    names.sort();
    assert!(names.len() > 50, "{}", names.len());
    // Each vendor's exporter sends templates first.
    let is_template = |path: &PathBuf| path.to_string_lossy().contains("tpl");
    let (templates, data): (Vec<_>, Vec<_>) = names.into_iter().partition(is_template);
    let vendor = |path: &Path| -> String {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let words: Vec<&str> = name.split('_').collect();
        words[..words.len().min(4)].join("_")
    };
    let mut ports = BTreeMap::new();
    let (mut importer, mut flows, mut frames) = (Importer::default(), Vec::new(), Vec::new());
    let (mut refused, mut messages) = (0, 0);
    for path in templates.iter().chain(&data) {
        let next = 2000 + ports.len() as u16;
        let port = *ports.entry(vendor(path)).or_insert(next);
        let bytes = std::fs::read(path).unwrap();
        // A file may have several messages.
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (message, behind) = rest.split_at(first_message_bytes(rest));
            let read = importer.handle_message(Source::datagrams(port.into()), message, 0, &mut flows);
            (rest, messages) = (behind, messages + 1);
            refused += u64::from(read.is_err());
        }
        frames.push(datagram(([192, 0, 2, 1].into(), port), 2055, &bytes));
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("all.pcap");
    write_capture(&capture, &frames);
    let summary = imported(&[capture], Some(2055));
    let (decoded, counted) = (importer.decoder().counters(), importer.counters());
    assert_eq!(sums_of(&summary), sums(&flows));
    assert_eq!((summary.messages, summary.refused), (messages, refused));
    assert_eq!((summary.events, summary.without_addresses), (counted.events, counted.without_addresses));
    assert_eq!(summary.sets_without_template, decoded.sets_unknown - decoded.sets_recovered);
    let sum = |of: fn(&thalweg_probe::ExporterSummary) -> u64| summary.exporters.iter().map(of).sum::<u64>();
    assert_eq!(sum(|exporter| exporter.options_records), decoded.options_records);
    assert_eq!(sum(|exporter| exporter.templates), decoded.templates);
    assert_eq!(sum(|exporter| exporter.faults), decoded.faults);
    assert_eq!(sum(|exporter| exporter.sequence_gaps), decoded.sequence.gaps);
    assert_eq!(summary.exporters.len(), ports.len());
    assert!(
        summary.records > 100 && summary.input_issues.first.iter().all(|issue| issue.contains("packet "))
    );
}

#[test]
fn a_file_of_messages_is_a_session_of_its_own_and_damage_is_told() {
    let records = records(500);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.ipfix");
    let messages = exported(Version::Ipfix, Transport::Stream, &records);
    let mut bytes = messages.concat();
    std::fs::write(&path, &bytes).unwrap();
    let summary = imported(std::slice::from_ref(&path), None);
    assert_eq!(sums_of(&summary), sums(&records));
    assert_eq!((summary.sequence_gaps, summary.input_issues.total), (0, 0), "{summary:?}");
    assert_eq!(summary.exporters[0].exporter, path.display().to_string());
    let whole = bytes.len();
    bytes.extend(b"no message");
    std::fs::write(&path, &bytes).unwrap();
    let damaged = imported(std::slice::from_ref(&path), None);
    assert_eq!(sums_of(&damaged), sums(&records));
    let [issue] = &damaged.input_issues.first[..] else { panic!("{damaged:?}") };
    assert!(issue.contains(&format!("byte {whole}, behind message {}", summary.messages)), "{issue}");
    // Cut inside the longest message, which has flows.
    let at = (0..messages.len()).max_by_key(|n| messages[*n].len()).unwrap();
    std::fs::write(&path, &bytes[..messages[..=at].concat().len() - 5]).unwrap();
    let cut = imported(&[path], None);
    assert_eq!((cut.refused, cut.messages), (1, at as u64 + 1));
    assert!(cut.records < summary.records);
}

#[test]
fn a_capture_of_a_connection_is_put_together() {
    let records = records(3000);
    let stream = exported(Version::Ipfix, Transport::Stream, &records).concat();
    let from: Ipv4Addr = [192, 0, 2, 7].into();
    let segment = |sequence: u32, flags: u8, payload: &[u8]| {
        let mut segment = [40_000u16.to_be_bytes(), 4739u16.to_be_bytes()].concat();
        segment.extend(sequence.to_be_bytes());
        segment.extend([0, 0, 0, 0, 0x50, flags, 255, 255, 0, 0, 0, 0]);
        segment.extend(payload);
        frame(from, 6, &segment)
    };
    let mut frames = vec![segment(999, 2, &[])];
    let pieces = (0..).step_by(1000).zip(stream.chunks(1000));
    frames.extend(pieces.map(|(at, piece)| segment(1000 + at, 16, piece)));
    frames.swap(3, 4);
    let again = frames[5].clone();
    frames.insert(7, again);
    frames.push(segment(1000 + stream.len() as u32, 17, &[]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tcp.pcap");
    write_capture(&path, &frames);
    let summary = imported(std::slice::from_ref(&path), None);
    assert_eq!(sums_of(&summary), sums(&records), "{:?}", summary.input_issues);
    assert_eq!((summary.refused, summary.sequence_gaps), (0, 0));
    // A segment is missing from the capture: everything before it stays.
    frames.remove(60);
    write_capture(&path, &frames);
    let summary = imported(&[path], None);
    assert!((1..3000).contains(&summary.records), "{}", summary.records);
}

#[test]
fn packets_that_are_none_of_ours_are_passed_over_by_name_and_cut_ones_told_by_number() {
    let messages = exported(Version::NetFlow9, Transport::Datagram, &records(5));
    let count = messages.len() as u64;
    let from = ([192, 0, 2, 1].into(), 2000);
    let mut cut = datagram(from, 2055, &messages[0]);
    cut.truncate(cut.len() - 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.pcap");
    let dns = datagram(from, 53, b"\x12\x34 a question");
    let mut frames = vec![dns, frame(from.0, 1, &[8; 16]), cut];
    frames.extend(messages.iter().map(|message| datagram(from, 2055, message)));
    write_capture(&path, &frames);
    let summary = imported(std::slice::from_ref(&path), None);
    assert_eq!((summary.messages, summary.refused), (1 + count, 1), "{summary:?}");
    // NetFlow 9 has two records for a biflow.
    let (_, packets, bytes) = sums(&records(5));
    assert_eq!((summary.packets, summary.bytes), (packets, bytes));
    let passed: Vec<(&str, u64)> = summary.passed_over.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(passed, [("not-netflow", 1), ("not-udp-or-tcp", 1)]);
    let [issue] = &summary.input_issues.first[..] else { panic!("{summary:?}") };
    assert!(issue.contains("packet 3, from 192.0.2.1:2000: the capture has"), "{issue}");
    assert_eq!(imported(&[path], Some(53)).passed_over.get("other-port"), Some(&(2 + count)));
}

/// A capture on the exporting host has datagrams that its kernel has not segmented yet.
#[test]
fn datagrams_that_the_kernel_was_still_to_cut_are_read_message_by_message() {
    let folder = tempfile::tempdir().unwrap();
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let records: Vec<FlowRecord> =
            records(3000).into_iter().filter(|record| record.key.src.is_ipv4()).collect();
        let messages = exported(version, Transport::Datagram, &records);
        assert!(messages.len() > 20, "{}", messages.len());
        let (mut trains, mut train) = (Vec::new(), Vec::new());
        for message in &messages {
            if train.len() + message.len() > 65_000 {
                trains.push(std::mem::take(&mut train));
            }
            train.extend(message);
        }
        trains.push(train);
        let path = folder.path().join(version.name());
        let frames: Vec<_> =
            trains.iter().map(|train| datagram(([192, 0, 2, 1].into(), 2000), 2055, train)).collect();
        write_capture(&path, &frames);
        let summary = imported(std::slice::from_ref(&path), None);
        assert_eq!((summary.messages, summary.refused), (messages.len() as u64, 0), "{version:?}");
        assert_eq!((summary.sequence_gaps, summary.input_issues.total), (0, 0), "{summary:?}");
        let (_, packets, bytes) = sums(&records);
        assert_eq!((summary.packets, summary.bytes), (packets, bytes), "{version:?}");
        // A file of such messages is read in the same way.
        std::fs::write(&path, messages.concat()).unwrap();
        assert_eq!(imported(&[path], None).messages, messages.len() as u64, "{version:?}");
    }
}

/// Rankings multiply sampled traffic by the rate that was in force when each record was made.
#[test]
fn sampled_records_are_ranked_for_what_they_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    let of = |net: u8, sampling_interval: u32, bytes: u64| {
        let mut record = records(2)[1];
        record.key.src = [10, net, 0, 1].into();
        record.counters.bytes = bytes;
        FlowRecord { sampling_interval, ..record }
    };
    // One goes from 1:10 to 1:1000 and back, another is not sampled.
    let exporters = [vec![of(1, 10, 100), of(1, 1_000, 100), of(1, 10, 100)], vec![of(2, 1, 50_000)]];
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let mut frames = Vec::new();
        for (port, records) in (2000..).zip(&exporters) {
            let messages = exported(version, Transport::Datagram, records);
            let from = ([192, 0, 2, 1].into(), port);
            frames.extend(messages.iter().map(|message| datagram(from, 2055, message)));
        }
        let capture = folder.path().join("sampled.pcap");
        write_capture(&capture, &frames);
        let store = folder.path().join(version.name());
        let into = ImportOptions { store: Some(store.clone()), ..options(vec![file(&capture)]) };
        let summary = import(&into, &Arc::new(AtomicBool::new(false)), &()).unwrap();
        assert_eq!((summary.records_sampled, summary.samplers_unknown), (3, 0), "{version:?}");
        let view = Dataset::open(&store).unwrap().view(Window::ALL).unwrap();
        let ranked = |raw: bool| -> Vec<(String, u64)> {
            let query = Query { raw, ..Query::new(Window::ALL, Filter::default()) };
            let src: Key = "src".parse().unwrap();
            let answer = top(&view, &query, &[src], Metric::Bytes, 10).unwrap();
            assert!(answer.scanned.sampled && answer.scanned.sampling_unknown == 0);
            answer.rows.iter().map(|row| (row.key[0].to_string(), row.sums.bytes)).collect()
        };
        let (sampled, whole) = ("10.1.0.1".to_owned(), "10.2.0.1".to_owned());
        assert_eq!(ranked(false), [(sampled.clone(), 102_000), (whole.clone(), 50_000)], "{version:?}");
        assert_eq!(ranked(true), [(whole, 50_000), (sampled, 300)], "{version:?}");
    }
}

/// Each record says whose it is: by the name from configuration, else by its address.
#[test]
fn records_say_who_metered_them() {
    let folder = tempfile::tempdir().unwrap();
    let messages = exported(Version::Ipfix, Transport::Datagram, &records(50));
    let mut frames = Vec::new();
    for host in [1, 2, 3] {
        let from = ([192, 0, 2, host].into(), 2000);
        frames.extend(messages.iter().map(|message| datagram(from, 2055, message)));
    }
    let (capture, store) = (folder.path().join("three.pcap"), folder.path().join("flows"));
    write_capture(&capture, &frames);
    let domain = u32::from_be_bytes(messages[0][12..16].try_into().unwrap());
    let names = format!(
        "exporter 192.0.2.1 edge1\nexporter 192.0.2.2,{domain} edge2\nexporter 192.0.2.2,999 other\ninterface 192.0.2.1 1 xe-0/0/1 Transit A\n"
    );
    let into = ImportOptions {
        store: Some(store.clone()),
        names: names.parse().unwrap(),
        ..options(vec![file(&capture)])
    };
    let summary = import(&into, &Arc::new(AtomicBool::new(false)), &()).unwrap();
    assert_eq!((summary.records, summary.names_refused), (150, 0));
    let view = Dataset::open(&store).unwrap().view(Window::ALL).unwrap();
    let keys = ["exporter", "exporter-address", "domain"].map(|key| key.parse::<Key>().unwrap());
    let ask = |filter: &str| -> Vec<(String, u64)> {
        let query = Query::new(Window::ALL, Filter::parse(filter).unwrap());
        let rows = top(&view, &query, &keys, Metric::Bytes, 10).unwrap().rows;
        let values = |row: &TopRow| row.key.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        rows.iter().map(|row| (values(row), row.sums.flows)).collect()
    };
    let row = |name: &str, host: u8| (format!("{name} 192.0.2.{host} {domain}"), 50);
    assert_eq!(ask(""), [row("192.0.2.3", 3), row("edge1", 1), row("edge2", 2)]);
    assert_eq!(ask("exporter edge2 or exporter 192.0.2.3"), [row("192.0.2.3", 3), row("edge2", 2)]);
    assert_eq!(ask("exporter 192.0.2.0/31"), [row("edge1", 1)]);
    assert_eq!(ask("exporter other"), []);
    assert_eq!(ask("in-if xe-0/*"), [row("edge1", 1)]);
    assert_eq!(ask("in-if Transit* and exporter edge2"), []);
}

/// Stops the import after `messages` messages; records its address.
struct Until {
    messages: u64,
    stop: Arc<AtomicBool>,
    addresses: Mutex<Vec<SocketAddr>>,
}

impl ProbeProgress for Until {
    fn advanced(&self, messages: u64, _fraction: Option<f64>) {
        if messages >= self.messages {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn notice(&self, text: &str) {
        let address = text.rsplit("//").next().unwrap().parse().unwrap();
        self.addresses.lock().push(address);
    }
}

#[test]
fn several_exporters_at_once_are_kept_apart_and_gaps_are_theirs() {
    let (first, second, third) = (records(400), records(900), records(700));
    let nine = exported(Version::NetFlow9, Transport::Datagram, &first);
    let five: Vec<FlowRecord> = second.iter().filter(|r| r.key.src.is_ipv4()).copied().collect();
    let five = exported(Version::NetFlow5, Transport::Datagram, &five);
    let mut ten = exported(Version::Ipfix, Transport::Datagram, &second);
    let stream = exported(Version::Ipfix, Transport::Stream, &third);
    // One datagram of records is lost.
    ten.remove(ten.len() / 2);
    let expected = (nine.len() + five.len() + ten.len() + stream.len()) as u64;
    let stop = Arc::new(AtomicBool::new(false));
    let until = Until { messages: expected, stop: stop.clone(), addresses: Mutex::default() };
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let options = options(vec![ImportSource::Udp(any), ImportSource::Tcp(any)]);
    let summary = std::thread::scope(|scope| {
        let importing = scope.spawn(|| import(&options, &stop, &until).unwrap());
        let [udp, tcp] = loop {
            match until.addresses.lock()[..] {
                [udp, tcp] => break [udp, tcp],
                _ => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for (socket, messages) in sockets.iter().zip([&nine, &five, &ten]) {
            for message in messages {
                socket.send_to(message, udp).unwrap();
            }
        }
        let mut connection = TcpStream::connect(tcp).unwrap();
        connection.write_all(&stream.concat()).unwrap();
        connection.write_all(b"and then something else").unwrap();
        drop(connection);
        importing.join().unwrap()
    });
    assert!(summary.conserved);
    assert_eq!(summary.messages, expected);
    let of = |protocol: &str, is_lossy: bool| {
        let mut found = summary.exporters.iter().filter(|exporter| {
            exporter.messages.contains_key(protocol) && (exporter.sequence_gaps > 0) == is_lossy
        });
        let exporter = found.next().unwrap_or_else(|| panic!("{protocol}: {:?}", summary.exporters));
        (exporter.records, exporter.packets, exporter.bytes)
    };
    assert_eq!(of("NetFlow 9", false).1, sums(&first).1, "biflows come as two records each");
    assert_eq!(of("IPFIX", false), sums(&third));
    assert!(of("IPFIX", true).0 < sums(&second).0);
    assert_eq!(summary.sequence_gaps, 1);
    assert_eq!(summary.exporters.len(), 4);
    assert!(
        summary.input_issues.first.iter().any(|issue| issue.contains("no message of IPFIX")),
        "{summary:?}"
    );
}

#[test]
fn sources_are_read_as_they_are_written() {
    assert_eq!("a/b.pcap".parse(), Ok(ImportSource::File("a/b.pcap".into())));
    assert_eq!("udp://[::]:2055".parse(), Ok(ImportSource::Udp("[::]:2055".parse().unwrap())));
    for (wrong, word) in [("udp://:2055", "0.0.0.0:2055"), ("http://x", "udp://ADDRESS:PORT")] {
        let error = wrong.parse::<ImportSource>().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

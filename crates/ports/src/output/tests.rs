use super::*;
use crate::{FileSource, InputOptions, InputSpec};
use std::io::Read;
use thalweg_wire::trace::{PACKET_SLOT, parse_line};

fn ports() -> PortNames {
    PortNames::new(["wan", "lan", "idle"])
}

/// An Ethernet frame around the packet of a line.
fn frame_of(line: &str, tags: usize) -> Vec<u8> {
    let line = parse_line(line.as_bytes(), FieldOrder::default()).unwrap().unwrap();
    let mut slot = [0; PACKET_SLOT];
    let len = line.write_packet(&mut slot);
    let mut frame = vec![2; 12];
    frame.extend([0x81, 0, 0, 7].repeat(tags));
    frame.extend(if slot[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(&slot[..len]);
    frame
}

fn packet(port: u16, arrival_ns: u64, frame: &[u8]) -> PacketOut<'_> {
    PacketOut { port, arrival_ns, wire_len: frame.len() as u32 + 4, application: 0, frame }
}

#[test]
fn captures_are_read_back_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new/captures");
    let mut captures = PortCaptures::create(&out, &ports()).unwrap();
    let frames: Vec<_> =
        (1..200u64).map(|i| (i as u16 % 2, i * 1_000_000_007, vec![i as u8; i as usize])).collect();
    for (port, arrival_ns, frame) in &frames {
        captures.write(&packet(*port, *arrival_ns, frame)).unwrap();
    }
    assert!(matches!(captures.write(&packet(3, 0, &[])), Err(OutputError::NoSuchPort { port: 3 })));
    let totals = captures.finish().unwrap();
    assert_eq!((totals.packets, totals.skipped), (199, 0));

    let mut bytes = 0;
    for (number, name) in ports().iter().enumerate() {
        let path = out.join(format!("{name}.pcap"));
        bytes += std::fs::metadata(&path).unwrap().len();
        let source =
            FileSource::open(vec![InputSpec::path(&path)], ports(), &InputOptions::default()).unwrap();
        let (chunks, report) = source.load_all().unwrap();
        assert_eq!(report.issue_count(), 0);
        let mut read = Vec::new();
        for chunk in &chunks {
            for (i, p) in chunk.packets().iter().enumerate() {
                assert_eq!(p.wire_len, p.captured_len() as u32 + 4);
                read.push((number as u16, p.arrival_ns, chunk.frame(i).to_vec()));
            }
        }
        let written: Vec<_> = frames.iter().filter(|f| usize::from(f.0) == number).cloned().collect();
        assert_eq!(read, written);
    }
    assert_eq!(totals.bytes, bytes);
}

#[test]
fn a_trace_is_written_line_by_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.txt");
    let lines = [
        ("wan 1.2.3.4 5.6.7.8 80 1000 http", 0),
        ("lan 2001:db8::1 ::1 53 65535 dns", 1),
        ("idle 1.2.3.4 10.20.30.40 0 7 icmp", 2),
        ("wan 1.2.3.4 10.20.30.40 9 7 rtp", 2),
        ("wan 1.2.3.4 10.20.30.40 0 0 99", 0),
    ];
    for order in [FieldOrder::DestinationFirst, FieldOrder::SourceFirst] {
        let mut trace = TraceOutput::create(&path, ports(), order).unwrap();
        for (text, tags) in lines {
            let line = parse_line(text.as_bytes(), FieldOrder::default()).unwrap().unwrap();
            let port = ports().find(line.port.bytes()).unwrap();
            let frame = frame_of(text, tags);
            trace.write(&PacketOut { application: line.application, ..packet(port, 0, &frame) }).unwrap();
        }
        for frame in [&[][..], &[0; 60], &frame_of(lines[0].0, 3), &frame_of(lines[0].0, 0)[..20]] {
            trace.write(&packet(0, 0, frame)).unwrap();
        }
        let totals = trace.finish().unwrap();
        assert_eq!((totals.packets, totals.skipped), (5, 4));
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(totals.bytes, text.len() as u64);
        for (written, (expected, _)) in text.lines().zip(lines) {
            let expected = parse_line(expected.as_bytes(), FieldOrder::default());
            assert_eq!(parse_line(written.as_bytes(), order), expected);
            if order == FieldOrder::DestinationFirst {
                assert_eq!(Some(written), lines.iter().map(|l| l.0).find(|l| *l == written));
            }
        }
    }
}

#[test]
fn errors_name_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = PortCaptures::create(&file, &ports()).unwrap_err();
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let error = TraceOutput::create(&file.join("x"), ports(), FieldOrder::default()).unwrap_err();
    assert!(error.to_string().contains(&file.join("x").display().to_string()), "{error}");
    for name in ["", "..", "a/b"] {
        let error = PortCaptures::create(directory.path(), &PortNames::new([name])).unwrap_err();
        assert!(matches!(error, OutputError::PortName { .. }));
    }
    if std::path::Path::new("/dev/full").exists() {
        let mut trace = TraceOutput::create(Path::new("/dev/full"), ports(), FieldOrder::default()).unwrap();
        trace.write(&packet(0, 0, &frame_of("wan 1.2.3.4 5.6.7.8 80 1000 http", 0))).unwrap();
        let error = trace.finish().unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }
}

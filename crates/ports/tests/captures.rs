//! Compares every available real capture with its published counts and with an independent reader.
//!
//! The captures are outside the repository: in `$THALWEG_SHARED/data/pcap`, else in `../shared/data/pcap` beside
//! it. Without them these tests say so and check nothing.

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use thalweg_ports::{FileSource, InputOptions, InputReport, InputSpec, PortNames, decompressed};

fn captures() -> Option<PathBuf> {
    thalweg_testdata::shared("pcap")
}

type Packet = (Vec<u8>, u32, u64);

/// Every packet's frame, length on the wire, and arrival.
fn read(path: &Path, chunk_packets: usize) -> (Vec<Packet>, InputReport) {
    let options = InputOptions { chunk_packets, slabs: 2, ..InputOptions::default() };
    let names = PortNames::default();
    let mut source = FileSource::open(vec![InputSpec::path(path)], names, &options).unwrap();
    let mut packets = Vec::new();
    while let Some(chunk) = source.next_chunk().unwrap() {
        for (i, p) in chunk.packets().iter().enumerate() {
            packets.push((chunk.frame(i).to_vec(), p.wire_len, p.arrival_ns));
        }
    }
    (packets, source.report())
}

/// The same by the other reader, and whether it reached the end without an error.
fn read_independently(bytes: Vec<u8>) -> (Vec<Packet>, bool) {
    let mut packets = Vec::new();
    let ns = |d: std::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let Ok(mut reader) = PcapNgReader::new(Cursor::new(bytes)) else { return (packets, false) };
        while let Some(block) = reader.next_block() {
            match block {
                Ok((Block::EnhancedPacket(p), _)) => {
                    packets.push((p.data.to_vec(), p.original_len, ns(p.timestamp)));
                }
                Ok((Block::Packet(p), _)) => packets.push((p.data.to_vec(), p.original_len, ns(p.timestamp))),
                Ok((Block::SimplePacket(p), _)) => packets.push((p.data.to_vec(), p.original_len, 0)),
                Ok(_) => {}
                Err(_) => return (packets, false),
            }
        }
    } else {
        let Ok(mut reader) = PcapReader::new(Cursor::new(bytes)) else { return (packets, false) };
        while let Some(packet) = reader.next_packet() {
            let Ok(p) = packet else { return (packets, false) };
            packets.push((p.data().to_vec(), p.orig_len(), ns(p.timestamp())));
        }
    }
    (packets, true)
}

#[test]
fn packet_counts_are_those_published_with_the_captures() {
    let Some(captures) = captures() else { return };
    let readme = fs::read_to_string(captures.join("README.md")).unwrap();
    let mut compared = 0;
    for row in readme.lines() {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (Some(file), Some(what)) = (cells.next(), cells.next()) else { continue };
        let Some((count, _)) = what.split_once(" packets") else { continue };
        let Ok(count) = count.replace(',', "").parse::<usize>() else { continue };
        let (packets, report) = read(&captures.join(file), 1600);
        assert_eq!(packets.len(), count, "{file}: {report:?}");
        compared += 1;
    }
    assert!(compared > 300, "only {compared} rows of the README were understood");
}

#[test]
fn an_independent_reader_sees_the_same_packets() {
    let Some(captures) = captures() else { return };
    let (mut files, mut to_the_end) = (0, 0);
    for directory in fs::read_dir(captures).unwrap().flatten().filter(|e| e.path().is_dir()) {
        for entry in fs::read_dir(directory.path()).unwrap().flatten() {
            let path = entry.path();
            let name = path.display().to_string();
            let (mut source, mut bytes) =
                (decompressed(fs::File::open(&path).unwrap()).unwrap().1, Vec::new());
            if source.read_to_end(&mut bytes).is_err() {
                continue;
            }
            if !name.contains(".pcap") || name.ends_with(".out") || name.ends_with(".txt") {
                read(&path, 1600);
                continue;
            }
            let (ours, report) = read(&path, 7);
            let (theirs, complete) = read_independently(bytes);
            assert!(ours.len() >= theirs.len(), "{name}: {} of {}: {report:?}", ours.len(), theirs.len());
            for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(a.0, b.0, "{name}: frame {}", i + 1);
                // Our reader raises a wire length below the captured length to the latter.
                assert_eq!(a.1, b.1.max(a.0.len() as u32), "{name}: packet {}", i + 1);
                assert_eq!(a.2, b.2, "{name}: time of packet {}", i + 1);
            }
            if complete {
                assert_eq!(ours.len(), theirs.len(), "{name}: {report:?}");
                to_the_end += 1;
            }
            files += 1;
        }
    }
    assert!(files > 300 && to_the_end > 250, "{to_the_end} of {files} files compared to the end");
    eprintln!("{to_the_end} of {files} files compared to the end");
}

//! MRT: any bytes are decoded or refused, by themselves and behind a table of peers. Lines and JSON are valid
//! text. Reading a file in small pieces gives the same as reading it whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use thalweg_ports::{MrtError, MrtProblem, MrtReader};
use thalweg_wire::mrt::{Decoder, Peer, PeerIndex, Records, Style, write_lines, write_peer_index_table};

/// Returns its bytes in pieces of varying sizes.
struct Drops {
    bytes: Vec<u8>,
    at: usize,
}

impl Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = &self.bytes[self.at..];
        let n = (self.at * 7 % 61 + 1).min(left.len()).min(buffer.len());
        buffer[..n].copy_from_slice(&left[..n]);
        self.at += n;
        Ok(n)
    }
}

/// Lines of all records, and the number of broken ones.
fn read_whole(bytes: &[u8]) -> (Vec<u8>, usize) {
    let (mut lines, mut json, mut broken) = (Vec::new(), Vec::new(), 0);
    let mut decoder = Decoder::new();
    for record in Records::new(bytes) {
        match decoder.decode(&record) {
            Ok(content) => {
                let faults = [
                    write_lines(&mut lines, &record, &content, Style::Unix),
                    write_lines(&mut json, &record, &content, Style::Json),
                ];
                assert_eq!(faults[0], faults[1]);
            }
            Err(fault) => {
                assert!(fault.at <= 16 + record.body().len());
                assert!(!fault.to_string().is_empty());
                broken += 1;
            }
        }
        if let Ok(Some(message)) = record.message() {
            let mut whole = Vec::new();
            message.write(&mut whole);
            assert_eq!(&whole[19..], message.body());
        }
    }
    let count = |text: &[u8]| text.iter().filter(|&&b| b == b'\n').count();
    assert_eq!(count(&lines), count(&json));
    assert!(lines.is_ascii() && json.is_ascii());
    (lines, broken)
}

/// The same by the reader of files. `None` if a record is truncated, because the file reader continues behind it
/// and a slice of records does not.
fn read_in_drops(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut lines, mut broken) = (Vec::new(), 0);
    let mut reader =
        MrtReader::new("fuzz", Drops { bytes: bytes.to_vec(), at: 0 }).expect("it begins with a record");
    while let Some(result) = reader.next() {
        match result {
            Ok(item) => {
                let _ = write_lines(&mut lines, &item.record, &item.content, Style::Unix);
            }
            Err(MrtError { problem: MrtProblem::Torn { .. }, .. }) => return None,
            Err(error) if error.is_last() => {
                assert!(reader.next().is_none());
                break;
            }
            Err(_) => broken += 1,
        }
    }
    Some((lines, broken))
}

fuzz_target!(|input: &[u8]| {
    read_whole(input);
    let peer = Peer { id: Ipv4Addr::LOCALHOST, address: Ipv4Addr::LOCALHOST.into(), asn: 64496 };
    let table = PeerIndex { collector: Ipv4Addr::LOCALHOST, view: String::new(), peers: vec![peer; 3] };
    let mut file = Vec::new();
    write_peer_index_table(&mut file, 1, &table).expect("three peers fit");
    file.extend_from_slice(input);
    // The file begins with the table of peers, so it is not mistaken for compressed data.
    if let Some(read) = read_in_drops(&file) {
        assert_eq!(read, read_whole(&file));
    }
});

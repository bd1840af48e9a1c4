//! Writes frames into a capture file: nanosecond pcap, little-endian, Ethernet. Only one frame is in memory at a
//! time.

use super::frames::{FIRST_ARRIVAL_NS, FRAME_BYTES, FrameSource};
use std::io::{self, BufWriter, Write};
use thalweg_wire::pcap::{FileHeader, RecordHeader};

const LINK_ETHERNET: u32 = 1;

/// Writes the next `packets` frames of `source`, `gap_ns` apart. The format does not contain the input port.
pub fn write(out: impl Write, source: &mut impl FrameSource, packets: u64, gap_ns: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let header = FileHeader::nanoseconds(LINK_ETHERNET);
    out.write_all(&header.encode())?;
    let mut frame = [0; FRAME_BYTES];
    let len = FRAME_BYTES as u32;
    for number in 0..packets {
        source.next_frame(&mut frame);
        let record = RecordHeader::new(&header, FIRST_ARRIVAL_NS + number * gap_ns, len, len);
        out.write_all(&record.encode(&header))?;
        out.write_all(&frame)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::super::destinations::Kind;
    use super::super::flood::Flood;
    use super::super::frames::{Endpoint, tests::parse};
    use super::*;
    use std::process::{Command, Stdio};

    fn capture(packets: u64) -> Vec<u8> {
        let prefixes = ["20.0.0.0/8".parse().unwrap()];
        let from = Endpoint { address: 0x0a00_0001, port: 5000 };
        let mut flood = Flood::new(Kind::Inside, &prefixes, 1, from, 0);
        let mut file = Vec::new();
        write(&mut file, &mut flood, packets, 600_000_000).unwrap();
        file
    }

    #[test]
    fn header_and_records_are_where_the_format_says() {
        let file = capture(3);
        assert_eq!(file.len(), 24 + 3 * 76);
        assert_eq!(file[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(file[20..24], [1, 0, 0, 0]);
        let mut times = Vec::new();
        for record in file[24..].chunks(76) {
            let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
            times.push((word(0) - 1_767_225_600, word(4)));
            assert_eq!((word(8), word(12)), (60, 60));
            assert_eq!(parse(&record[16..]).unwrap().0.port, 5000);
        }
        assert_eq!(times, [(0, 0), (0, 600_000_000), (1, 200_000_000)]);
    }

    #[test]
    fn tcpdump_reads_it_and_finds_the_checksums_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flood.pcap");
        std::fs::write(&path, capture(20)).unwrap();
        let mut tcpdump = Command::new("tcpdump");
        let Ok(output) = tcpdump.args(["-nvv", "-r"]).arg(&path).stdin(Stdio::null()).output() else {
            thalweg_testdata::skipped("tcpdump is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches("[udp sum ok]").count(), 20, "{text}");
        assert!(!text.contains("bad cksum"), "{text}");
    }
}

//! Frames into a capture file: nanosecond pcap, little-endian, Ethernet. One frame is in memory at a time.

use super::frames::{FIRST_ARRIVAL_NS, FRAME_BYTES, FrameSource};
use std::io::{self, BufWriter, Write};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const SNAP_BYTES: u32 = 65_535;
const LINK_ETHERNET: u32 = 1;
const NS_PER_S: u64 = 1_000_000_000;

/// Bytes of the file header.
const FILE_HEADER: u64 = 24;
/// Bytes of a record header.
const RECORD_HEADER: u64 = 16;

/// Size of the file for so many packets.
pub fn file_bytes(packets: u64) -> u64 {
    FILE_HEADER + packets * (RECORD_HEADER + FRAME_BYTES as u64)
}

/// Writes the next `packets` frames of `source`, `gap_ns` apart. The port a frame arrives on is not part of the
/// format.
pub fn write(out: impl Write, source: &mut impl FrameSource, packets: u64, gap_ns: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0])?; // version 2.4
    out.write_all(&[0; 8])?; // time zone and accuracy, which no one uses
    out.write_all(&SNAP_BYTES.to_le_bytes())?;
    out.write_all(&LINK_ETHERNET.to_le_bytes())?;
    let mut frame = [0; FRAME_BYTES];
    let mut record = [0; RECORD_HEADER as usize];
    for number in 0..packets {
        let arrival_ns = FIRST_ARRIVAL_NS + number * gap_ns;
        source.next_frame(&mut frame);
        // The format's 32 bits of seconds last until 2106.
        record[0..4].copy_from_slice(&((arrival_ns / NS_PER_S) as u32).to_le_bytes());
        record[4..8].copy_from_slice(&((arrival_ns % NS_PER_S) as u32).to_le_bytes());
        record[8..12].copy_from_slice(&(FRAME_BYTES as u32).to_le_bytes());
        record[12..16].copy_from_slice(&(FRAME_BYTES as u32).to_le_bytes());
        out.write_all(&record)?;
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
        assert_eq!(file.len() as u64, file_bytes(3));
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
            let _ = writeln!(io::stderr(), "SKIPPED: tcpdump is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches("[udp sum ok]").count(), 20, "{text}");
        assert!(!text.contains("bad cksum"), "{text}");
    }
}

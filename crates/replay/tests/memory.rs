//! A file larger than the limit streams within it: 150 MB of resident memory, including look-up tables. This is a
//! test program of its own, because the kernel reports the peak of the whole process.

use std::io::{BufWriter, Write};
use std::path::Path;
use thalweg_config::RouterConfig;
use thalweg_replay::{ModelKind, ReplayOptions, replay};
use thalweg_wire::pcap::{FileHeader, RecordHeader};
use thalweg_wire::testing;

const BOUND_KB: u64 = 150_000;
const PACKETS: u64 = 140_000;
const FRAME_BYTES: u32 = 1514;

/// The same packet from the office to the outside, many times.
fn write_capture(path: &Path) -> std::io::Result<()> {
    let header = FileHeader::nanoseconds(1);
    let payload = vec![0; FRAME_BYTES as usize - 42];
    let frame =
        testing::frame(&testing::udp(([192, 168, 10, 10], 0x1000), ([198, 51, 100, 7], 0x2000), &payload));
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    out.write_all(&header.encode())?;
    for number in 0..PACKETS {
        out.write_all(
            &RecordHeader::new(&header, number * 12_000, FRAME_BYTES, FRAME_BYTES).encode(&header),
        )?;
        out.write_all(&frame)?;
    }
    out.flush()
}

/// The peak of this process's resident memory, if the system reports it.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn a_file_larger_than_the_bound_streams_within_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.pcap");
    write_capture(&path).unwrap();
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes > BOUND_KB * 1000 * 4 / 3, "{bytes} bytes prove nothing");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/small-office/router.toml");
    let config = RouterConfig::load(&example).unwrap_or_else(|e| panic!("{e}"));
    for model in ModelKind::ALL {
        let workers = if model == ModelKind::Serial { 1 } else { 2 };
        let options =
            ReplayOptions { inputs: vec![path.clone()], model, workers, ..ReplayOptions::default() };
        let summary = replay(&config, &options, &()).unwrap_or_else(|e| panic!("{model}: {e}"));
        assert_eq!((summary.packets_in, summary.packets_out), (PACKETS, PACKETS), "{model}");
        match peak_kb() {
            Some(peak_kb) => assert!(peak_kb < BOUND_KB, "{model}: {peak_kb} kB resident at the peak"),
            None => thalweg_testdata::skipped("no VmHWM in /proc/self/status to judge by"),
        }
    }
}

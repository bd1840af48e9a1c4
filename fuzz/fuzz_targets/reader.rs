//! Helpers of the capture targets.

use std::io::{self, Cursor, Read};
use thalweg_ports::{FileSource, InputOptions, InputReport, InputSpec, PortNames};

/// Returns three bytes at a time.
struct Drops(Cursor<Vec<u8>>);

impl Read for Drops {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer.len().min(3);
        self.0.read(&mut buffer[..n])
    }
}

type Packet = (Vec<u8>, u32, u64, u16);

fn read(input: InputSpec) -> (Vec<Vec<Packet>>, InputReport) {
    let options = InputOptions { chunk_packets: 4, slabs: 1, ..InputOptions::default() };
    let names = PortNames::new(["eth0", "eth1"]);
    let mut source = FileSource::open(vec![input], names, &options).expect("nothing to open");
    let mut chunks = Vec::new();
    while let Some(chunk) = source.next_chunk().expect("a reader that is not strict returns no error") {
        let packets = chunk.packets().iter().enumerate();
        let packets = packets.map(|(i, p)| (chunk.frame(i).to_vec(), p.wire_len, p.arrival_ns, p.port_in));
        chunks.push(packets.collect());
    }
    (chunks, source.report().clone())
}

pub(crate) fn read_both_ways(bytes: &[u8]) {
    let whole = read(InputSpec::reader("fuzz", Cursor::new(bytes.to_vec())));
    let drops = read(InputSpec::reader("fuzz", Drops(Cursor::new(bytes.to_vec()))));
    assert_eq!(whole, drops);
}

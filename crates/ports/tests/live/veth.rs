//! Veths between ports, and frames along them.

use std::time::{Duration, Instant};

use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{LiveClock, LiveSource, NotTaken, Port, PortFacts, PortRx, PortTx, SourceOptions};
use thalweg_wire::MacAddr;

use crate::common::ip;

/// Longer than any frame takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Makes a veth with both ends up, on which the host sends no packets of its own.
pub(crate) fn veth(one: &str, other: &str) {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    ip(&format!("link add {one} type veth peer name {other}"));
    ip(&format!("link set {one} up"));
    ip(&format!("link set {other} up"));
}

/// A port, with its receiving halves in a source.
pub(crate) struct End {
    pub(crate) source: LiveSource,
    pub(crate) tx: Box<dyn PortTx>,
    pub(crate) facts: PortFacts,
}

impl End {
    pub(crate) fn new(port: Port) -> Self {
        let halves: Vec<(u16, Box<dyn PortRx>)> = port.rx.into_iter().map(|half| (7, half)).collect();
        let options = SourceOptions { frame_bytes_max: 9022, slabs: 4, ..SourceOptions::default() };
        let source = LiveSource::new(halves, options, LiveClock::start()).unwrap();
        Self { source, tx: port.tx, facts: port.facts }
    }

    pub(crate) fn packet(interface: &str) -> Self {
        Self::new(packet::open(&PacketOptions::new(interface)).unwrap())
    }

    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            while let Err(why) = self.tx.push(frame) {
                assert_eq!(why, NotTaken::Full);
                self.tx.flush().unwrap();
            }
        }
        self.drain();
    }

    /// Waits until the interface has accepted everything.
    pub(crate) fn drain(&mut self) {
        let began = Instant::now();
        self.tx.flush().unwrap();
        while self.tx.pending() > 0 {
            assert!(began.elapsed() < TIMEOUT, "{} frames are stuck", self.tx.pending());
            std::thread::yield_now();
            self.tx.flush().unwrap();
        }
    }

    /// Receives `count` frames, or fewer if no more arrive.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let began = Instant::now();
        let mut frames = Vec::new();
        while frames.len() < count && began.elapsed() < TIMEOUT {
            frames.extend(self.receive_once(Duration::from_millis(200)));
        }
        frames
    }

    pub(crate) fn receive_once(&mut self, timeout: Duration) -> Vec<Vec<u8>> {
        match self.source.next_chunk(timeout).unwrap() {
            None => Vec::new(),
            Some(chunk) => {
                assert!(!chunk.packets().is_empty());
                (0..chunk.packets().len()).map(|at| chunk.frame(at).to_vec()).collect()
            }
        }
    }
}

/// A frame of the experimental EtherType with a number as its content.
pub(crate) fn frame(to: MacAddr, from: MacAddr, number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes);
    frame.extend(to.0);
    frame.extend(from.0);
    frame.extend([0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    while frame.len() < bytes {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        frame.push(state as u8);
    }
    frame
}

/// Frames of all lengths in turn.
pub(crate) fn frames(to: MacAddr, from: MacAddr, count: u32) -> Vec<Vec<u8>> {
    let lengths = [60, 61, 64, 127, 1000, 1513, 1514];
    (0..count).map(|number| frame(to, from, number, lengths[number as usize % lengths.len()])).collect()
}

pub(crate) fn assert_same(got: &[Vec<u8>], wanted: &[Vec<u8>]) {
    assert_eq!(got.len(), wanted.len());
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got, wanted, "frame {at}");
    }
}

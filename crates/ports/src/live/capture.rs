//! A capture in place of an interface, for demonstrations and tests: no rights, no interface, no other host.
//!
//! The frames of a capture arrive at a steady rate, in its order, again and again; what is sent is counted and
//! discarded. Ports may play interfaces of one capture: a frame has its place in time among those of all
//! interfaces, so an answer follows its question. The times in the capture do not count: between the conversations
//! of a bundle may be days.
//!
//! A timer makes the half readable when its next frame is due. A router that was stopped for more than a second goes
//! on at the present place, and frames in between count as missed.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_wire::pcap::{FILE_HEADER_LEN, FileHeader};

use super::driver::{Driver, Opened, Probed, Request};
use super::link::{LinkFacts, ReadLink};
use super::{LiveError, NotTaken, Port, PortFacts, PortRx, PortTx, RxCounters, TxCounters, is_for, segment};
use crate::PortNames;
use crate::input::{FileSource, InputOptions, InputSpec};

/// The driver of ports that play a capture.
pub struct Capture;

/// The most bytes of frames that a capture may have: they are kept in memory.
const BYTES_MAX: usize = 256 << 20;

impl Driver for Capture {
    fn open(&self, request: &Request) -> Result<Opened, LiveError> {
        let wrong = |why| LiveError::BadOption { interface: request.interface.clone(), why };
        let playback = request.playback.as_ref().ok_or_else(|| wrong("no capture to play".to_owned()))?;
        let frames = Frames::read(&playback.path, &request.interface)
            .map_err(|why| wrong(format!("{}: {why}", playback.path.display())))?;
        let (mac, mtu) = (request.mac.unwrap_or_default(), u32::from(request.mtu));
        let facts = PortFacts {
            interface: request.interface.clone(),
            index: 0,
            mac,
            far_end: None,
            mtu,
            mode: format!("capture, {} of {} frames", frames.list.len(), frames.total),
            why_not_better: None,
        };
        let link = LinkFacts { index: 0, mac, mtu, is_up: true, has_carrier: true, far_end: None };
        let rx = CaptureRx::new(frames, playback.rate, &facts)
            .map_err(LiveError::call(&request.interface, "timerfd_create"))?;
        let port = Port { rx: vec![Box::new(rx)], tx: Box::new(Discard::default()), facts };
        Ok(Opened { link: Some(Box::new(link)), ..port.into() })
    }

    fn probe(&self, request: &Request) -> Result<Probed, LiveError> {
        let opened = self.open(request)?;
        Ok(Probed { mode: opened.port.facts.mode, ..Probed::default() })
    }
}

/// A link that never changes.
impl ReadLink for LinkFacts {
    fn read(&mut self) -> Result<LinkFacts, LiveError> {
        Ok(self.clone())
    }
}

/// The frames of one interface of a capture.
struct Frames {
    bytes: Vec<u8>,
    list: Vec<Frame>,
    /// Frames of all interfaces.
    total: u64,
}

struct Frame {
    /// How many frames of all interfaces precede it.
    place: u64,
    bytes: Range<usize>,
    /// More than its bytes if the capture was cut.
    wire_bytes: u32,
}

impl Frames {
    /// Reads the frames of the interface with this name; of a pcap file, which names none, all.
    fn read(path: &Path, interface: &str) -> Result<Self, String> {
        let mut spec = InputSpec::path(path);
        spec.port = is_pcap(path).then(|| interface.to_owned());
        let options = InputOptions { strict: true, read_ahead: false, ..InputOptions::default() };
        let names = PortNames::new([interface]);
        let mut source = FileSource::open(vec![spec], names, &options).map_err(|error| error.to_string())?;
        let mut frames = Self { bytes: Vec::new(), list: Vec::new(), total: 0 };
        while let Some(chunk) = source.next_chunk().map_err(|error| error.to_string())? {
            for (index, packet) in chunk.packets().iter().enumerate() {
                let place = frames.total + index as u64;
                if packet.port_in != 0 {
                    continue;
                }
                if packet.link != LinkType::Ethernet {
                    return Err("a frame is not of Ethernet".to_owned());
                }
                let begin = frames.bytes.len();
                frames.bytes.extend_from_slice(chunk.frame(index));
                if frames.bytes.len() > BYTES_MAX {
                    return Err(format!("more than {BYTES_MAX} bytes of frames"));
                }
                let bytes = begin..frames.bytes.len();
                frames.list.push(Frame { place, bytes, wire_bytes: packet.wire_len });
            }
            frames.total += chunk.packets().len() as u64;
        }
        match frames.list.is_empty() {
            true => Err(format!("no frame of an interface {interface}")),
            false => Ok(frames),
        }
    }
}

fn is_pcap(path: &Path) -> bool {
    let mut head = [0; FILE_HEADER_LEN];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && FileHeader::parse(&head).is_ok()
}

/// The receiving half.
struct CaptureRx {
    frames: Frames,
    rate: u32,
    mac: u64,
    mtu: usize,
    timer: OwnedFd,
    /// The next frame: how often all were played before it, and its index.
    next: Option<(u64, usize)>,
    counters: RxCounters,
}

/// Time as frames: how many of the endless capture were due before `now_ns`.
fn due(now_ns: u64, rate: u32) -> u64 {
    let due = u128::from(now_ns) * u128::from(rate) / NS_PER_S;
    u64::try_from(due).unwrap_or(u64::MAX)
}

const NS_PER_S: u128 = 1_000_000_000;

impl CaptureRx {
    fn new(frames: Frames, rate: u32, facts: &PortFacts) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let (mac, mtu) = (facts.mac.to_u64(), usize::try_from(facts.mtu).unwrap_or(usize::MAX));
        Ok(Self { frames, rate, mac, mtu, timer, next: None, counters: RxCounters::default() })
    }

    /// The first frame of this interface that is not before the `number`th of the endless capture.
    fn seek(&self, number: u64) -> (u64, usize) {
        let (round, place) = (number / self.frames.total, number % self.frames.total);
        match self.frames.list.partition_point(|frame| frame.place < place) {
            index if index < self.frames.list.len() => (round, index),
            _ => (round + 1, 0),
        }
    }

    /// Its number in the endless capture.
    fn number(&self, (round, index): (u64, usize)) -> u64 {
        round * self.frames.total + self.frames.list[index].place
    }

    /// How many of this interface precede it.
    fn played(&self, (round, index): (u64, usize)) -> u64 {
        round * self.frames.list.len() as u64 + index as u64
    }

    /// Makes the half readable when this frame is due.
    fn arm(&self, next: (u64, usize), now_ns: u64) -> io::Result<()> {
        let due_ns = (u128::from(self.number(next)) + 1) * NS_PER_S / u128::from(self.rate) + 1;
        let wait_ns = due_ns.saturating_sub(u128::from(now_ns)).max(1);
        let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec::try_from(wait).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Whether the frame is for this port; counts it if it is not.
    fn takes(&mut self, index: usize) -> bool {
        let frame = &self.frames.bytes[self.frames.list[index].bytes.clone()];
        if frame.len() > self.mtu + segment::link_header_bytes(frame) {
            self.counters.refused += 1;
            return false;
        }
        let is_ours = is_for(self.mac, None, frame);
        self.counters.foreign += u64::from(!is_ours);
        is_ours
    }
}

impl PortRx for CaptureRx {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        let due = due(now_ns, self.rate);
        let mut next = self.next.unwrap_or_else(|| self.seek(due));
        if self.number(next) + u64::from(self.rate) < due {
            let present = self.seek(due);
            self.counters.missed += self.played(present) - self.played(next);
            next = present;
        }
        let most = limit.min(ChunkBuilder::PACKETS_MAX - into.len());
        let mut taken = 0;
        while taken < most && self.number(next) < due {
            let (round, index) = next;
            if self.takes(index) {
                let Frame { bytes, wire_bytes, .. } = &self.frames.list[index];
                let frame = &self.frames.bytes[bytes.clone()];
                let at = into.next_frame_offset();
                let Some(room) = into.buffer_mut().get_mut(at..at + frame.len()) else { break };
                room.copy_from_slice(frame);
                into.push(at, frame.len(), *wire_bytes, now_ns, LinkType::Ethernet, port, 0);
                self.counters.frames += 1;
                self.counters.bytes += frame.len() as u64;
                taken += 1;
            }
            next = if index + 1 < self.frames.list.len() { (round, index + 1) } else { (round + 1, 0) };
        }
        self.next = Some(next);
        self.arm(next, now_ns)?;
        Ok(taken)
    }

    fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    fn counters(&mut self) -> RxCounters {
        self.counters
    }
}

/// The sending half.
#[derive(Default)]
struct Discard {
    counters: TxCounters,
}

impl PortTx for Discard {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        self.counters.frames += 1;
        self.counters.bytes += frame.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn another(&mut self) -> Option<Box<dyn PortTx>> {
        Some(Box::new(Self::default()))
    }

    fn counters(&mut self) -> TxCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use thalweg_wire::MacAddr;

    use super::*;

    const RATE: u32 = 1000;
    const FRAMES: u64 = 557;

    fn office() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/small-office/office.pcapng")
    }

    /// Opens an interface of the example's capture, for all frames that are sent to this address.
    fn open(interface: &str, mac: u64) -> CaptureRx {
        let frames = Frames::read(&office(), interface).unwrap();
        let facts = PortFacts {
            interface: interface.to_owned(),
            index: 0,
            mac: MacAddr::from_u64(mac),
            far_end: None,
            mtu: 1500,
            mode: String::new(),
            why_not_better: None,
        };
        CaptureRx::new(frames, RATE, &facts).unwrap()
    }

    /// The frames that have arrived, in order.
    fn receive(rx: &mut CaptureRx, now_ns: u64, limit: usize) -> Vec<Vec<u8>> {
        let mut builder = ChunkBuilder::with_capacity(256 << 10);
        let taken = rx.receive(3, now_ns, limit, &mut builder).unwrap();
        let chunk = builder.finish(0, 0, 0);
        assert_eq!(chunk.packets().len(), taken);
        (0..taken).map(|index| chunk.frame(index).to_vec()).collect()
    }

    #[test]
    fn all_interfaces_together_play_the_capture_once_a_round() {
        let (names, options) = (PortNames::of_captures(), InputOptions::default());
        let mut all = FileSource::open(vec![InputSpec::path(office())], names, &options).unwrap();
        let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 4];
        while let Some(chunk) = all.next_chunk().unwrap() {
            for (index, packet) in chunk.packets().iter().enumerate() {
                expected[usize::from(packet.port_in)].push(chunk.frame(index).to_vec());
            }
        }
        assert_eq!(expected.iter().map(Vec::len).sum::<usize>() as u64, FRAMES);
        let begin = FRAMES * 7 * 1_000_000;
        for (interface, expected) in ["eth3", "eth0", "eth1", "eth2"].into_iter().zip(expected) {
            // Nothing is filtered, since the first six bytes name a group or this address.
            let mac =
                MacAddr(*expected.iter().find(|frame| frame[0] & 1 == 0).unwrap().first_chunk().unwrap());
            let mut rx = open(interface, mac.to_u64());
            assert_eq!(receive(&mut rx, begin, 9), Vec::<Vec<u8>>::new(), "the first is due a moment later");
            let mut played = Vec::new();
            for tick in 1..=2 * FRAMES {
                played.extend(receive(&mut rx, begin + tick * 1_000_000, 9));
            }
            let ours = |frame: &&Vec<u8>| is_for(mac.to_u64(), None, frame);
            let twice: Vec<Vec<u8>> = expected.iter().chain(&expected).filter(ours).cloned().collect();
            assert!(played == twice, "{interface}: {} frames of {}", played.len(), twice.len());
            let RxCounters { frames, foreign, missed, refused, .. } = rx.counters();
            assert_eq!((missed, refused), (0, 0));
            assert_eq!(frames + foreign, 2 * expected.len() as u64, "{interface}");
        }
    }

    /// A chunk takes what fits; the rest comes in the next, and what was due long ago never.
    #[test]
    fn a_late_reader_catches_up_or_misses_by_name() {
        let mut rx = open("eth3", 0);
        let all = rx.frames.list.len() as u64;
        let second = FRAMES * 1_000_000;
        receive(&mut rx, second, 1000);
        let mut heard = 0;
        for _ in 0..1000 {
            heard += receive(&mut rx, 2 * second, 1).len();
        }
        let RxCounters { frames, foreign, missed, .. } = rx.counters();
        assert_eq!((frames, missed), (heard as u64, 0));
        assert_eq!(frames + foreign, all, "one round");
        receive(&mut rx, 12 * second, 1000);
        let RxCounters { frames, foreign, missed, .. } = rx.counters();
        assert_eq!((frames + foreign, missed), (all, 10 * all));
    }

    #[test]
    fn the_descriptor_becomes_readable_when_a_frame_is_due() {
        let mut rx = open("eth1", 0);
        let now_ns = 1_000_000_000;
        receive(&mut rx, now_ns, 1);
        let next = rx.next.unwrap();
        let at_ns = (rx.number(next) + 1) * 1_000_000 + 1;
        let (mut poll, mut events) = (mio::Poll::new().unwrap(), mio::Events::with_capacity(1));
        let fd = mio::unix::SourceFd(&rx.fd());
        poll.registry().register(&mut { fd }, mio::Token(0), mio::Interest::READABLE).unwrap();
        poll.poll(&mut events, None).unwrap();
        assert!(events.iter().any(mio::event::Event::is_readable), "it would wait for ever otherwise");
        assert!(due(at_ns, RATE) > rx.number(next) && due(at_ns - 2, RATE) <= rx.number(next));
    }

    #[test]
    fn a_capture_that_cannot_be_played_is_refused_by_name() {
        let why = |path: &Path, interface| Frames::read(path, interface).err().unwrap_or_default();
        assert!(why(&office(), "eth7").contains("no frame of an interface eth7"));
        assert!(why(Path::new("no/such.pcap"), "eth0").contains("No such file"));
        assert!(!why(&office().with_file_name("router.toml"), "eth0").is_empty(), "no capture");
    }
}

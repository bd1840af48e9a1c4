//! The input from interfaces: receiving halves of live ports, cut into chunks.
//!
//! An interface has one receiving half per feed, and each feed has one half of every interface. With
//! AF_PACKET a half is a member of a fanout group: the kernel distributes packets by a symmetric hash of
//! addresses and ports (fragments by addresses alone, so they may reach another pipeline than the rest of
//! their flow). With AF_XDP it is a part of the NIC's receive queues.
//!
//! **Nothing is sent.** With AF_PACKET the host's own stack is not affected. AF_XDP takes the packets from
//! the host: use it for ports that only receive mirrored traffic.
//!
//! **Time passes without packets.** Ten times per second an empty chunk goes through the pipeline, so that
//! flows end and records leave on a silent link too.
//!
//! **The end.** When asked to stop, a feed takes what the rings still hold, for at most [`LAST_LOOK`].

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_base::{Chunk, ChunkBuilder};
use thalweg_exec::Source;
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::xdp::{self, XdpOptions};
use thalweg_ports::live::{
    LiveClock, LiveError, LiveSource, Port, PortFacts, PortRx, RxCounters, SourceOptions, reopen,
};

use crate::source::Seen;
use crate::summary::CaptureSummary;
use crate::{LiveDriver, LiveInput, OptionsError, ProbeError};

/// How long to wait for packets before an empty chunk advances the time.
const WAIT: Duration = Duration::from_millis(100);
/// How long to continue reading the rings at the end.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// An Ethernet header with two tags, which no MTU includes.
const LINK_BYTES: usize = 22;
/// Packets of an interface that can wait with AF_PACKET: 50 ms at a million a second, longer than the scheduler keeps a
/// thread of a busy machine waiting.
const RING_PACKETS: u32 = 50_000;
/// The most problems reported for an interface; more are only counted.
const TROUBLES_TOLD: usize = 10;

/// When to end.
#[derive(Clone, Debug)]
pub(crate) struct Until {
    /// Another thread asks for it.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) at: Option<Instant>,
    /// This many packets were read, by all feeds together.
    pub(crate) packets: Option<u64>,
}

/// Counters and problems of the interfaces, added by each feed when it ends.
#[derive(Debug, Default)]
pub(crate) struct Told {
    counters: Mutex<BTreeMap<u16, (RxCounters, Vec<String>)>>,
}

/// One pipeline's, or one worker's, part of all interfaces.
pub(crate) struct Feed {
    source: LiveSource,
    clock: LiveClock,
    until: Until,
    ending: Option<Instant>,
    sequence: u64,
    packets: u64,
    seen: Arc<Seen>,
    told: Arc<Told>,
    troubles: BTreeMap<u16, Vec<String>>,
}

/// Opened interfaces.
pub(crate) struct Watched {
    pub(crate) feeds: Vec<Feed>,
    /// How each is captured, in order.
    pub(crate) facts: Vec<PortFacts>,
    /// Filled in at the end.
    pub(crate) told: Arc<Told>,
}

/// Opens the interfaces, with a receiving half for each of `feeds` feeds.
///
/// # Errors
///
/// An interface cannot be opened, or has too few receive queues.
pub(crate) fn open(
    input: &LiveInput,
    feeds: usize,
    chunk_packets: usize,
    (until, seen): (&Until, &Arc<Seen>),
) -> Result<Watched, ProbeError> {
    let mut halves: Vec<Vec<(u16, Box<dyn PortRx>)>> = (0..feeds).map(|_| Vec::new()).collect();
    let mut all_facts = Vec::with_capacity(input.interfaces.len());
    for (number, interface) in (0..).zip(&input.interfaces) {
        // The sending half is not needed; receiving halves own their sockets.
        let Port { rx, facts, .. } = open_port(interface, input, feeds).map_err(ProbeError::Interface)?;
        if rx.len() < feeds {
            let (interface, queues) = (interface.clone(), rx.len());
            return Err(OptionsError::Queues { interface, queues, wanted: feeds }.into());
        }
        for (half, feed) in rx.into_iter().zip(&mut halves) {
            feed.push((number, half));
        }
        all_facts.push(facts);
    }
    let mtu = all_facts.iter().map(|facts| facts.mtu as usize).max().unwrap_or(1500);
    let options =
        SourceOptions { chunk_packets, frame_bytes_max: mtu + LINK_BYTES, ..SourceOptions::default() };
    let (clock, told) = (LiveClock::start(), Arc::new(Told::default()));
    let feed = |halves| {
        let source = LiveSource::new(halves, options, clock).map_err(ProbeError::Thread)?;
        Ok(Feed {
            source,
            clock,
            until: until.clone(),
            ending: None,
            sequence: 0,
            packets: 0,
            seen: Arc::clone(seen),
            told: Arc::clone(&told),
            troubles: BTreeMap::new(),
        })
    };
    let feeds: Result<Vec<Feed>, ProbeError> = halves.into_iter().map(feed).collect();
    Ok(Watched { feeds: feeds?, facts: all_facts, told })
}

fn open_port(interface: &str, input: &LiveInput, halves: usize) -> Result<Port, LiveError> {
    match input.driver {
        LiveDriver::AfPacket => packet::open(&PacketOptions {
            everything: true,
            exclusive: false,
            queues: halves,
            ring_frames: usize::try_from(input.ring.unwrap_or(RING_PACKETS))
                .unwrap_or(usize::MAX)
                .div_ceil(halves.max(1)),
            ..PacketOptions::new(interface)
        }),
        LiveDriver::AfXdp => {
            let defaults = XdpOptions::new(interface);
            let rx_frames = input.ring.map_or(defaults.rx_frames, u32::next_power_of_two);
            let options = XdpOptions { everything: true, halves, rx_frames, ..defaults };
            reopen::open_again(Box::new(move || xdp::open(&options)))
        }
    }
}

impl Feed {
    /// Whether to end.
    fn is_over(&mut self) -> bool {
        let is_over = self.until.stop.load(Ordering::Relaxed)
            || self.until.at.is_some_and(|at| Instant::now() >= at)
            || self.until.packets.is_some_and(|packets| self.seen.packets() >= packets);
        if is_over {
            self.ending.get_or_insert_with(Instant::now);
        }
        is_over
    }

    fn number(&mut self, mut chunk: Chunk) -> Chunk {
        chunk.sequence = self.sequence;
        chunk.first_packet_number = self.packets + 1;
        self.sequence += 1;
        self.packets += chunk.packets().len() as u64;
        self.seen.add(chunk.packets().len());
        chunk
    }

    fn hear_changes(&mut self) {
        while let Some(change) = self.source.poll_change() {
            let Some(error) = change.failed else { continue };
            let told = self.troubles.entry(change.port).or_default();
            if told.len() < TROUBLES_TOLD {
                told.push(error.to_string());
            }
        }
    }
}

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        let is_over = self.is_over();
        if self.ending.is_some_and(|since| since.elapsed() >= LAST_LOOK) {
            return None;
        }
        let next = self.source.next_chunk(if is_over { Duration::ZERO } else { WAIT });
        self.hear_changes();
        match next {
            Ok(Some(chunk)) => Some(self.number(chunk)),
            _ if is_over => None,
            other => {
                if other.is_err() {
                    std::thread::sleep(WAIT);
                }
                let empty = ChunkBuilder::with_capacity(0).finish(0, 0, self.clock.now_ns());
                Some(self.number(empty))
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut all = self.told.counters.lock();
        for (port, counters) in self.source.counters() {
            let (sum, troubles) = all.entry(port).or_default();
            sum.frames += counters.frames;
            sum.bytes += counters.bytes;
            sum.missed += counters.missed;
            sum.refused += counters.refused;
            troubles.extend(self.troubles.remove(&port).unwrap_or_default());
        }
    }
}

impl Told {
    /// The capture summaries of the interfaces, in order.
    pub(crate) fn summaries(&self, facts: &[PortFacts]) -> Vec<CaptureSummary> {
        let all = self.counters.lock();
        let summary = |(number, facts): (u16, &PortFacts)| {
            let (counters, troubles) = all.get(&number).cloned().unwrap_or_default();
            CaptureSummary {
                interface: facts.interface.clone(),
                mode: facts.mode.clone(),
                packets: counters.frames,
                missed: counters.missed,
                refused: counters.refused,
                troubles,
            }
        };
        (0..).zip(facts).map(summary).collect()
    }
}

//! The way in for interfaces: receiving halves of live ports, cut into chunks.
//!
//! An interface has as many receiving halves as there are feeds, and each feed has one of every interface. With AF_PACKET a
//! half is a member of a fanout group: the kernel deals packets out by a symmetric hash of addresses and ports (fragments by
//! addresses alone, so that they may come to another pipeline than the rest of their flow). With AF_XDP it is a share of
//! the card's receive queues.
//!
//! **Nothing is sent**, and with AF_PACKET the host's own stack goes on as if nobody watched. AF_XDP takes what it watches
//! away from the host: for ports that only mirror traffic.
//!
//! **Time passes without packets.** Ten times a second an empty chunk goes through the pipeline, so that flows end and
//! records leave on a silent link too.
//!
//! **The end.** Asked to stop, a feed takes what the rings still hold, for [`LAST_LOOK`] at most.

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

/// How long to wait for packets before an empty chunk says how late it is.
const WAIT: Duration = Duration::from_millis(100);
/// How long to go on taking what the rings hold when the end has come.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// An Ethernet header with two tags, more than any MTU counts.
const LINK_BYTES: usize = 22;
/// Troubles told of an interface; more are only counted.
const TROUBLES_TOLD: usize = 10;

/// When to end.
#[derive(Clone, Debug)]
pub(crate) struct Until {
    /// Somebody asks for it.
    pub(crate) stop: Arc<AtomicBool>,
    /// A time.
    pub(crate) at: Option<Instant>,
    /// So many packets were taken on, by all feeds together.
    pub(crate) packets: Option<u64>,
}

/// What the interfaces told, feed by feed as they end.
#[derive(Debug, Default)]
pub(crate) struct Told {
    counters: Mutex<BTreeMap<u16, (RxCounters, Vec<String>)>>,
}

/// One pipeline's, or one worker's, share of all interfaces.
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

/// Interfaces that were opened.
pub(crate) struct Watched {
    /// The shares of them.
    pub(crate) feeds: Vec<Feed>,
    /// How each is captured, in order.
    pub(crate) facts: Vec<PortFacts>,
    /// What they tell in the end.
    pub(crate) told: Arc<Told>,
}

/// Opens the interfaces, with a receiving half for each of so many feeds.
///
/// # Errors
///
/// What keeps an interface from being opened, or from having so many receive queues.
pub(crate) fn open(
    input: &LiveInput,
    feeds: usize,
    chunk_packets: usize,
    (until, seen): (&Until, &Arc<Seen>),
) -> Result<Watched, ProbeError> {
    let mut halves: Vec<Vec<(u16, Box<dyn PortRx>)>> = (0..feeds).map(|_| Vec::new()).collect();
    let mut all_facts = Vec::with_capacity(input.interfaces.len());
    for (number, interface) in (0..).zip(&input.interfaces) {
        // The sending half is not needed; sockets are the receiving halves' own.
        let Port { rx, facts, .. } =
            open_port(interface, input.driver, feeds).map_err(ProbeError::Interface)?;
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

fn open_port(interface: &str, driver: LiveDriver, halves: usize) -> Result<Port, LiveError> {
    match driver {
        LiveDriver::AfPacket => packet::open(&PacketOptions {
            everything: true,
            exclusive: false,
            queues: halves,
            ..PacketOptions::new(interface)
        }),
        LiveDriver::AfXdp => {
            let options = XdpOptions { everything: true, halves, ..XdpOptions::new(interface) };
            reopen::open_again(Box::new(move || xdp::open(&options)))
        }
    }
}

impl Feed {
    /// Whether the end has come.
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
    /// What was captured where, of the interfaces in order.
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

//! Chunks from live ports.
//!
//! ```text
//! rx halves ──ready?──> round robin, a share each ──> chunk, as soon as there is a packet, up to `chunk_packets`
//!     ^                                               |
//!     └──────────────── poll(2), until one is ────────┘ when none was
//! ```
//!
//! # Promises
//!
//! - **No packet waits for others.** A chunk ends when its ports have nothing more, or when it is full. Under load the
//!   chunks fill by themselves, since packets gather while the one before is being worked on. The exception has
//!   to be asked for ([`SourceOptions::gather`]): at more than 100,000 packets a second a source that has run dry then
//!   sleeps a little instead of being woken for each packet.
//! - **Fair.** Each round begins with the port after the one that began the last, and each ready port gets an equal
//!   share of a chunk before any gets more. A port that fills chunk after chunk by itself keeps the others waiting for
//!   [`ASK_ALL_EVERY`] chunks at most.
//! - **Bounded.** Chunks lie in a fixed number of slabs; with all of them in flight `next_chunk` waits for one, and
//!   ports' rings fill and count what they miss.
//! - **What cannot say that it has something is asked** ([`PortRx::is_polled`]): without a pause for [`SPIN_FOR`] after the
//!   last packet, then every [`NAP`]. A core is taken only while packets come.
//! - **Others are asked before the source sleeps** if that is wanted ([`SourceOptions::busy_poll`]), for as long as it
//!   has paid lately (`source/spin.rs`): a source to which nothing comes sleeps.
//! - **One port's trouble is its own.** A half that fails is left alone, said once ([`PortChange`]) and tried again
//!   every [`RETRY_EVERY`]; the others go on.
//! - Sequence and packet numbers have no gaps; arrivals are times of the [`LiveClock`] and never go back.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::slab_pool::SlabPool;
use thalweg_base::{BATCH_PACKETS, Chunk, ChunkBuilder};

use self::spin::{Spin, Turn};
use super::system::{self, Waiting};
use super::{LiveClock, PortRx, RxCounters};

mod spin;

/// How often a port that failed is tried again.
pub const RETRY_EVERY: Duration = Duration::from_millis(50);
/// Changes kept until somebody asks. More than this and the oldest are forgotten, which a port that flaps without
/// end would cause if nobody asks.
const CHANGES_MAX: usize = 1024;

/// For how long after the last packet halves that have to be polled are asked without a pause: about what the next packet
/// of a busy port may take, so that such a port never naps.
pub const SPIN_FOR: Duration = Duration::from_micros(50);
/// How long a source with such halves sleeps between two looks at them when nothing comes; the kernel adds its timers'
/// slack, 50 µs where nobody has changed it. A packet that comes to an idle port waits that long.
pub const NAP: Duration = Duration::from_micros(50);
/// Chunks after which every half is asked, whether it was said to have something or not.
const ASK_ALL_EVERY: u64 = 8;

/// Packets a second from which on packets are gathered (see [`SourceOptions::gather`]). A lone conversation of
/// questions and answers stays below, so that it never waits.
const GATHER_ABOVE_PER_S: u64 = 100_000;
/// Over what time the rate is taken.
const RATE_WINDOW_NS: u64 = 1_000_000;

/// How a source cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    /// Packets in a chunk at most.
    pub chunk_packets: usize,
    /// Chunks in memory at once, at least 2.
    pub slabs: usize,
    /// Bytes of the longest frame of all ports, which decides how large a slab is.
    pub frame_bytes_max: usize,
    /// How long to let packets gather when the ports have run dry while many come. To wake a thread costs the sender
    /// as much as to send several packets, so a receiver that is a little faster than its senders slows them down by
    /// sleeping after each. Zero, the default, never gathers: what it brings has not been measured on an idle machine.
    pub gather: Duration,
    /// For how long at most ports are asked again and again when they have run dry, before the source sleeps. Zero, the
    /// default, sleeps at once.
    pub busy_poll: Duration,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            chunk_packets: BATCH_PACKETS,
            slabs: 32,
            frame_bytes_max: 1522,
            gather: Duration::ZERO,
            busy_poll: Duration::ZERO,
        }
    }
}

/// What happened to a receiving half.
#[derive(Debug)]
pub struct PortChange {
    /// Number of the port it belongs to.
    pub port: u16,
    /// Which of the source's halves, in the order they were given.
    pub half: usize,
    /// What it failed with; `None` when it is back.
    pub failed: Option<io::Error>,
}

/// Ends a wait of [`LiveSource::next_chunk`] from another thread; the next one, if none is going on.
#[derive(Clone, Debug)]
pub struct SourceWaker(Arc<File>);

impl SourceWaker {
    /// Does so. Many calls before the wait are as one.
    pub fn wake(&self) {
        // The counter is full only after 2^64 calls that nobody noticed.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }
}

/// Receives from any number of ports. Used by one thread.
pub struct LiveSource {
    halves: Vec<Half>,
    /// Which half begins the next round.
    first: usize,
    options: SourceOptions,
    pool: SlabPool,
    /// A chunk that nothing has come into yet.
    spare: Option<ChunkBuilder>,
    clock: LiveClock,
    wake: Arc<File>,
    changes: VecDeque<PortChange>,
    waiting: Vec<Waiting>,
    spin: Spin,
    sequence: u64,
    next_packet_number: u64,
    clock_ns: u64,
    rate: Rate,
}

/// How many packets come, from one window to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    began_ns: u64,
    packets: u64,
    per_s: u64,
}

impl Rate {
    fn add(&mut self, packets: u64, now_ns: u64) {
        self.packets += packets;
        let elapsed_ns = now_ns.saturating_sub(self.began_ns);
        if elapsed_ns >= RATE_WINDOW_NS {
            self.per_s = self.packets.saturating_mul(1_000_000_000) / elapsed_ns;
            (self.began_ns, self.packets) = (now_ns, 0);
        }
    }

    /// Whether packets come fast enough to be gathered: in the last window, and in the present one so far.
    fn is_high(&self, now_ns: u64) -> bool {
        self.per_s >= GATHER_ABOVE_PER_S && now_ns.saturating_sub(self.began_ns) < 2 * RATE_WINDOW_NS
    }
}

struct Half {
    port: u16,
    rx: Box<dyn PortRx>,
    /// It may have something: it was said to, or had more than its share.
    ready: bool,
    /// When to try again, if it failed.
    failed: Option<Instant>,
}

impl Half {
    fn new((port, rx): (u16, Box<dyn PortRx>)) -> Self {
        Self { port, rx, ready: true, failed: None }
    }
}

fn pool_for(options: &SourceOptions) -> SlabPool {
    // TAPs want room for the longest frame before they know how long it is, and one byte more.
    let room = options.frame_bytes_max + ChunkBuilder::HEADROOM + 16;
    SlabPool::new(options.slabs, options.chunk_packets * room + room)
}

impl LiveSource {
    /// A source of these halves, each with the number of its port.
    pub fn new(
        halves: Vec<(u16, Box<dyn PortRx>)>,
        options: SourceOptions,
        clock: LiveClock,
    ) -> io::Result<Self> {
        let options = SourceOptions {
            chunk_packets: options.chunk_packets.clamp(1, ChunkBuilder::PACKETS_MAX),
            slabs: options.slabs.max(2),
            ..options
        };
        Ok(Self {
            waiting: Vec::with_capacity(halves.len() + 1),
            halves: halves.into_iter().map(Half::new).collect(),
            first: 0,
            options,
            pool: pool_for(&options),
            spare: None,
            clock,
            wake: Arc::new(system::event_counter()?),
            changes: VecDeque::new(),
            spin: Spin::new(options.busy_poll),
            sequence: 0,
            next_packet_number: 1,
            clock_ns: 0,
            rate: Rate::default(),
        })
    }

    /// What ends a wait.
    pub fn waker(&self) -> SourceWaker {
        SourceWaker(Arc::clone(&self.wake))
    }

    /// The clock that arrivals are told by.
    pub fn clock(&self) -> LiveClock {
        self.clock
    }

    /// The next chunk, with at least one packet; `None` when none came in time or the source was woken. Waits longer
    /// than `timeout` only for a slab.
    pub fn next_chunk(&mut self, timeout: Duration) -> io::Result<Option<Chunk>> {
        let mut builder = self.spare.take().unwrap_or_else(|| self.pool.builder());
        let began = Instant::now();
        // Whether the ports were asked, having said nothing of themselves.
        let mut asked = false;
        loop {
            if self.halves.iter().any(|half| half.ready) && self.fill(&mut builder) {
                return Ok(Some(self.finish(builder)));
            }
            if !asked && self.gather(timeout) {
                asked = true;
                continue;
            }
            // A port that says it is ready and has nothing must not keep us.
            let left = timeout.saturating_sub(began.elapsed());
            let ended = if asked && left.is_zero() { Ok(true) } else { self.wait(left) };
            asked = true;
            match ended {
                Ok(false) => {}
                Ok(true) => {
                    // Not every descriptor becomes readable when its interface goes: the next call asks all the same.
                    self.halves.iter_mut().for_each(|half| half.ready |= half.failed.is_none());
                    self.spare = Some(builder);
                    return Ok(None);
                }
                Err(error) => {
                    self.spare = Some(builder);
                    return Err(error);
                }
            }
        }
    }

    /// Receives from others from now on: the halves of the ports `gone` are given back, and `new` ones come behind the
    /// rest. Frames may be as long as `frame_bytes_max`, if that is more than before.
    pub fn exchange(
        &mut self,
        gone: &[u16],
        new: Vec<(u16, Box<dyn PortRx>)>,
        frame_bytes_max: usize,
    ) -> Vec<Box<dyn PortRx>> {
        let halves = std::mem::take(&mut self.halves).into_iter();
        let (gone, kept): (Vec<_>, Vec<_>) = halves.partition(|half| gone.contains(&half.port));
        self.halves = kept;
        self.halves.extend(new.into_iter().map(Half::new));
        if frame_bytes_max > self.options.frame_bytes_max {
            self.options.frame_bytes_max = frame_bytes_max;
            // Chunks on their way keep the slabs that they have.
            (self.pool, self.spare) = (pool_for(&self.options), None);
        }
        gone.into_iter().map(|half| half.rx).collect()
    }

    /// What happened to halves since the last call, oldest first.
    pub fn poll_change(&mut self) -> Option<PortChange> {
        self.changes.pop_front()
    }

    /// Each half's port and counters.
    pub fn counters(&mut self) -> impl Iterator<Item = (u16, RxCounters)> + '_ {
        self.halves.iter_mut().map(|half| (half.port, half.rx.counters()))
    }

    /// Receives from halves that are ready until the chunk is full or they have no more; whether anything came.
    fn fill(&mut self, builder: &mut ChunkBuilder) -> bool {
        let now_ns = self.clock.now_ns();
        let count = self.halves.len();
        let packets_max = self.options.chunk_packets;
        let ready = self.halves.iter().filter(|half| half.ready).count().max(1);
        let share = packets_max.div_ceil(ready);
        let first = self.first;
        self.first = (first + 1) % count.max(1);
        // First a share each; then what is left to those that have more. A half that had less than it might is done.
        for round in 0..2 {
            for at in 0..count {
                let number = (first + at) % count;
                let half = &mut self.halves[number];
                let left = packets_max - builder.len();
                if !half.ready || left == 0 {
                    continue;
                }
                let limit = if round == 0 { share.min(left) } else { left };
                let had = builder.len();
                match half.rx.receive(half.port, now_ns, limit, builder) {
                    Ok(taken) => {
                        half.ready = taken == limit || (taken > 0 && is_full(builder, &self.options));
                        if half.failed.take().is_some() {
                            Self::note_change(&mut self.changes, number, half.port, None);
                        }
                    }
                    Err(error) => {
                        half.ready = builder.len() > had;
                        let retry = Instant::now() + RETRY_EVERY;
                        if half.failed.replace(retry).is_none() {
                            Self::note_change(&mut self.changes, number, half.port, Some(error));
                        }
                    }
                }
            }
        }
        !builder.is_empty()
    }

    fn note_change(changes: &mut VecDeque<PortChange>, half: usize, port: u16, failed: Option<io::Error>) {
        if changes.len() == CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back(PortChange { port, half, failed });
    }

    /// Waits until a half has something, or is to be tried again; whether the source was woken.
    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let now = Instant::now();
        let retry = self.halves.iter().filter_map(|half| half.failed).min();
        let timeout = retry.map_or(timeout, |at| timeout.min(at.saturating_duration_since(now)));
        let polled = self.halves.iter().any(|half| half.failed.is_none() && half.rx.is_polled());
        let timeout = match self.spin.turn(now, if polled { SPIN_FOR } else { Duration::ZERO }) {
            Turn::Ask => {
                let all = self.spin.is_wanted();
                let asked = |half: &&mut Half| half.failed.is_none() && (all || half.rx.is_polled());
                self.halves.iter_mut().filter(asked).for_each(|half| half.ready = true);
                std::hint::spin_loop();
                return Ok(false);
            }
            Turn::Glance => Duration::ZERO,
            Turn::Sleep if polled => timeout.min(NAP),
            Turn::Sleep => timeout,
        };
        self.waiting.clear();
        self.waiting.push(Waiting::for_reading(self.wake.as_raw_fd()));
        for half in self.halves.iter().filter(|half| half.failed.is_none()) {
            self.waiting.push(Waiting::for_reading(half.rx.fd()));
        }
        system::wait(&mut self.waiting, timeout)?;
        let now = Instant::now();
        let mut answers = self.waiting.iter();
        let woken = answers.next().is_some_and(Waiting::is_ready);
        for half in &mut self.halves {
            half.ready = match half.failed {
                None => answers.next().is_some_and(Waiting::is_ready) || half.rx.is_polled(),
                Some(retry) => now >= retry,
            };
        }
        if woken {
            let mut count = [0; 8];
            // Nothing there means that somebody else has read it: woken all the same.
            let _ = (&*self.wake).read(&mut count);
        }
        Ok(woken)
    }

    /// Waits a little, where that brings several packets instead of one.
    fn gather(&mut self, timeout: Duration) -> bool {
        let gather = self.options.gather;
        if gather.is_zero() || gather > timeout || !self.rate.is_high(self.clock.now_ns()) {
            return false;
        }
        std::thread::sleep(gather);
        self.halves.iter_mut().for_each(|half| half.ready = half.failed.is_none());
        true
    }

    fn finish(&mut self, builder: ChunkBuilder) -> Chunk {
        let packets = builder.len() as u64;
        self.rate.add(packets, self.clock.now_ns());
        self.spin.end();
        if self.sequence.is_multiple_of(ASK_ALL_EVERY) {
            // While chunks fill by themselves nobody waits, and only a wait shows who has something.
            let now = Instant::now();
            for half in &mut self.halves {
                half.ready |= half.failed.is_none_or(|retry| now >= retry);
            }
        }
        let chunk = builder.finish(self.sequence, self.next_packet_number, self.clock_ns);
        self.sequence += 1;
        self.next_packet_number += packets;
        self.clock_ns =
            chunk.packets().last().map_or(self.clock_ns, |last| last.arrival_ns.max(self.clock_ns));
        chunk
    }
}

/// Whether the chunk may be too full for another frame.
fn is_full(builder: &mut ChunkBuilder, options: &SourceOptions) -> bool {
    builder.next_frame_offset() + options.frame_bytes_max + 16 > builder.buffer_mut().len()
}

impl std::fmt::Debug for LiveSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSource").field("halves", &self.halves.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

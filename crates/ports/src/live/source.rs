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
//! - **No packet waits for others.** A chunk ends when the ports have no more packets, or when it is full. Under
//!   load chunks fill by themselves, since packets gather while the stages work on the chunk before. The exception
//!   is an option, [`SourceOptions::gather`]: at more than 100,000 packets a second, a source without packets
//!   sleeps a little instead of waking for each one.
//! - **Fair.** Each round begins one port after the last round did, and each ready port gets an equal share of a
//!   chunk before any port gets more. After a chunk that left packets behind, all ports are asked.
//! - **Chunks end by time.** A chunk has no more bytes than take [`pace::SPAN_NS`] as far as the last ones tell
//!   (`source/pace.rs`), so that a packet that arrives next does not wait for much longer.
//! - **Bounded.** Chunks lie in a fixed number of slabs. If all are in flight, `next_chunk` waits for one; the
//!   ports' rings then fill up and count the frames they lose.
//! - **Polls ports that cannot announce packets** ([`PortRx::is_polled`]): without a pause for [`SPIN_FOR`] after
//!   the last packet, then every [`NAP`]. So they take a core only while packets arrive.
//! - **Polls other ports before it sleeps** if [`SourceOptions::busy_poll`] asks for it, for as long as that has
//!   paid off lately (`source/spin.rs`): a source without packets sleeps.
//! - **A failing port does not affect others.** A half that fails is left alone, reported once ([`PortChange`]) and
//!   tried again every [`RETRY_EVERY`]; the others continue.
//! - Sequence and packet numbers have no gaps; arrivals are times of the [`LiveClock`] and never go back.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::slab_pool::SlabPool;
use thalweg_base::{BATCH_PACKETS, Chunk, ChunkBuilder};

use self::pace::Pace;
use self::spin::{Spin, Turn};
use super::intake::LARGE_BYTES;
use super::system::{self, Waiting};
use super::{LiveClock, PortRx, RxCounters};

mod pace;
mod spin;

/// How often to try a failed port again.
pub const RETRY_EVERY: Duration = Duration::from_millis(50);
/// The most changes kept for [`LiveSource::poll_change`]; the oldest are dropped. A bound for ports that flap while
/// no thread asks.
const CHANGES_MAX: usize = 1024;

/// How long after the last packet polled halves are asked without a pause: about the longest gap between packets on
/// a busy port, so that such a port never naps.
pub const SPIN_FOR: Duration = Duration::from_micros(50);
/// How long a source with polled halves sleeps between two polls of idle ports; the kernel adds its timer slack, 50
/// µs by default. A packet that arrives on an idle port waits that long.
pub const NAP: Duration = Duration::from_micros(50);

/// The rate in packets a second above which packets are gathered (see [`SourceOptions::gather`]). A single
/// request-response conversation stays below it and so never waits.
const GATHER_ABOVE_PER_S: u64 = 100_000;
/// Room for the longest frame that merges segments, and what precedes it.
const MERGED_ROOM: usize = LARGE_BYTES + ChunkBuilder::HEADROOM + 16;
/// The window in which the rate is measured.
const RATE_WINDOW_NS: u64 = 1_000_000;

/// How a source forms chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    /// The most packets in a chunk.
    pub chunk_packets: usize,
    /// Chunks in memory at once, at least 2.
    pub slabs: usize,
    /// The longest frame of all ports in bytes, which decides the size of a slab.
    pub frame_bytes_max: usize,
    /// How long to let packets gather if the ports have run dry while the rate is high. Waking a thread costs the
    /// sender as much as sending several packets, so a receiver that is a little faster than its senders slows them
    /// down by sleeping after each packet. Zero, the default, never gathers: the gain has not been measured on an
    /// idle machine.
    pub gather: Duration,
    /// The longest time to poll ports that have run dry, before the source sleeps. Zero, the default, sleeps at
    /// once.
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

/// A failure or recovery of a receiving half.
#[derive(Debug)]
pub struct PortChange {
    pub port: u16,
    /// The index of the half within the source, in the order they were given.
    pub half: usize,
    /// The error; `None` when the half works again.
    pub failed: Option<io::Error>,
}

/// Wakes [`LiveSource::next_chunk`] from another thread; if no call waits, the next one returns early.
#[derive(Clone, Debug)]
pub struct SourceWaker(Arc<File>);

impl SourceWaker {
    /// Wakes the source. Several calls before the wait count as one.
    pub fn wake(&self) {
        // The counter is full only after 2^64 unnoticed calls.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }
}

/// Receives from any number of ports, on one thread.
pub struct LiveSource {
    halves: Vec<Half>,
    /// The half that begins the next round.
    first: usize,
    options: SourceOptions,
    /// Whether frames that merge segments stay whole.
    takes_merged: bool,
    pool: SlabPool,
    /// A chunk that is still empty.
    spare: Option<ChunkBuilder>,
    clock: LiveClock,
    wake: Arc<File>,
    changes: VecDeque<PortChange>,
    waiting: Vec<Waiting>,
    spin: Spin,
    pace: Pace,
    /// The last chunk was one of packets that passed others.
    has_passed: bool,
    sequence: u64,
    next_packet_number: u64,
    clock_ns: u64,
    /// When no port had more packets.
    dry_ns: u64,
    rate: Rate,
}

/// The rate of packets, measured in windows.
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

    /// Whether the rate was high in the last window, unless that was long ago.
    fn is_high(&self, now_ns: u64) -> bool {
        self.per_s >= GATHER_ABOVE_PER_S && now_ns.saturating_sub(self.began_ns) < 2 * RATE_WINDOW_NS
    }
}

struct Half {
    port: u16,
    rx: Box<dyn PortRx>,
    /// The half may have packets: it announced some, or had more than its share.
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
    // A TAP needs room for the longest frame before it knows the frame's length, and one byte more.
    let room = options.frame_bytes_max + ChunkBuilder::HEADROOM + 16;
    // A chunk of merged segments has as many bytes as one of single packets: fewer frames, at least one.
    SlabPool::new(options.slabs, options.chunk_packets * room + room.max(MERGED_ROOM))
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
            takes_merged: false,
            pool: pool_for(&options),
            spare: None,
            clock,
            wake: Arc::new(system::event_counter()?),
            changes: VecDeque::new(),
            spin: Spin::new(options.busy_poll),
            pace: Pace::new(MERGED_ROOM + ChunkBuilder::HEADROOM),
            has_passed: false,
            sequence: 0,
            next_packet_number: 1,
            clock_ns: 0,
            dry_ns: 0,
            rate: Rate::default(),
        })
    }

    /// Sets whether frames that merge segments of a TCP flow stay whole in chunks, from the next chunk on. At first
    /// they are cut.
    pub fn take_merged(&mut self, takes: bool) {
        self.takes_merged = takes;
    }

    /// How often polling before a sleep ([`SourceOptions::busy_poll`]) found packets.
    pub fn found_by_polling(&self) -> u64 {
        self.spin.found()
    }

    /// A handle that ends a wait from another thread.
    pub fn waker(&self) -> SourceWaker {
        SourceWaker(Arc::clone(&self.wake))
    }

    /// When the ports last had no more packets than a chunk took. No packet waits in their rings for longer.
    pub fn dry_ns(&self) -> u64 {
        self.dry_ns
    }

    /// The clock of arrival times.
    pub fn clock(&self) -> LiveClock {
        self.clock
    }

    /// The next chunk, with at least one packet; `None` if none arrived in time or the source was woken. It waits
    /// longer than `timeout` only for a free slab.
    pub fn next_chunk(&mut self, timeout: Duration) -> io::Result<Option<Chunk>> {
        let mut builder = self.spare.take().unwrap_or_else(|| self.pool.builder());
        builder.take_merged(self.takes_merged);
        builder.fill_up_to(self.pace.asked(self.clock.now_ns()));
        let began = Instant::now();
        // Whether all ports were asked, announced packets or not.
        let mut asked = false;
        loop {
            if self.halves.iter().any(|half| half.ready) && self.fill(&mut builder) {
                return Ok(Some(self.finish(builder)));
            }
            if !asked && self.gather(timeout) {
                asked = true;
                continue;
            }
            // A port that announces packets but has none must not keep the thread here.
            let left = timeout.saturating_sub(began.elapsed());
            let ended = if asked && left.is_zero() { Ok(true) } else { self.wait(left) };
            asked = true;
            match ended {
                Ok(false) => {}
                Ok(true) => {
                    // Some descriptors do not become readable when their interface disappears, so the next call
                    // asks all halves.
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

    /// Exchanges receiving halves: returns those of the ports `gone`, and appends the halves in `new`. Raises the
    /// longest frame to `frame_bytes_max`, if that is more than before.
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
            // Chunks in flight keep their slabs.
            (self.pool, self.spare) = (pool_for(&self.options), None);
        }
        gone.into_iter().map(|half| half.rx).collect()
    }

    /// The failures and recoveries of halves since the last call, one at a time, oldest first.
    pub fn poll_change(&mut self) -> Option<PortChange> {
        self.changes.pop_front()
    }

    /// The port and the counters of each half.
    pub fn counters(&mut self) -> impl Iterator<Item = (u16, RxCounters)> + '_ {
        self.halves.iter_mut().map(|half| (half.port, half.rx.counters()))
    }

    /// Receives from ready halves until the chunk is full or they have no more. Returns whether the chunk has
    /// packets.
    fn fill(&mut self, builder: &mut ChunkBuilder) -> bool {
        let now_ns = self.clock.now_ns();
        self.pace.begins(now_ns);
        if self.fill_with_passing(now_ns, builder) {
            return true;
        }
        let count = self.halves.len();
        let packets_max = self.options.chunk_packets;
        let ready = self.halves.iter().filter(|half| half.ready).count().max(1);
        let share = packets_max.div_ceil(ready);
        let first = self.first;
        self.first = (first + 1) % count.max(1);
        // First gives each half its share, then the rest to those that have more. A half that used less than it
        // might is done.
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
                        half.ready = taken == limit || is_full(builder, &self.options);
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
        if self.halves.iter().all(|half| !half.ready) {
            self.dry_ns = now_ns;
        }
        !builder.is_empty()
    }

    /// Receives what passes others. It has a chunk of its own, which is short, and every other one at most.
    fn fill_with_passing(&mut self, now_ns: u64, builder: &mut ChunkBuilder) -> bool {
        let may = !std::mem::replace(&mut self.has_passed, false);
        let limit = self.options.chunk_packets;
        for half in self.halves.iter_mut().filter(|half| may && half.ready && half.failed.is_none()) {
            self.has_passed |= half.rx.receive_passing(half.port, now_ns, limit, builder) > 0;
        }
        self.has_passed
    }

    fn note_change(changes: &mut VecDeque<PortChange>, half: usize, port: u16, failed: Option<io::Error>) {
        if changes.len() == CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back(PortChange { port, half, failed });
    }

    /// Waits until a half announces packets or must be tried again. Returns whether the source was woken.
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
            // If another reader emptied the counter, the source was woken all the same.
            let _ = (&*self.wake).read(&mut count);
        }
        Ok(woken)
    }

    /// Waits a little if that brings several packets instead of one. Returns whether it did.
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
        if self.halves.iter().any(|half| half.ready) {
            // The next chunk begins without a wait, and only a wait shows which halves have packets.
            let now = Instant::now();
            for half in &mut self.halves {
                half.ready |= half.failed.is_none_or(|retry| now >= retry);
            }
        }
        self.pace.ends(builder.next_frame_offset());
        let chunk = builder.finish(self.sequence, self.next_packet_number, self.clock_ns);
        self.sequence += 1;
        self.next_packet_number += packets;
        self.clock_ns =
            chunk.packets().last().map_or(self.clock_ns, |last| last.arrival_ns.max(self.clock_ns));
        chunk
    }
}

/// Whether another frame may not fit the chunk.
fn is_full(builder: &mut ChunkBuilder, options: &SourceOptions) -> bool {
    let longest = if builder.takes_merged() { MERGED_ROOM } else { options.frame_bytes_max + 16 };
    builder.next_frame_offset() + longest > builder.buffer_mut().len()
}

impl std::fmt::Debug for LiveSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSource").field("halves", &self.halves.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

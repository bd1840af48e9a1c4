//! The input from files: captures in sequence, repeated as requested, as fast as possible or at a given rate.
//!
//! **Reading thread.** The thread that requests a chunk reads it. Bytes that the kernel has just copied are
//! then in the cache of the core that processes them; a reader on another core would move every frame and
//! descriptor across, which costs more than reading. Compressed files are decompressed on a separate thread.
//!
//! **Repetition.** With `loops` the inputs are read several times. In each pass packets arrive later, by the
//! time span of the inputs plus one packet interval: so time and flows continue, and timeouts keep their
//! meaning.
//!
//! Sequence and packet numbers continue. A model gets `None` at the end, when the run was asked to stop, and
//! at an error, which [`Captures::finish`] then returns.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_base::{Chunk, Packet};
use thalweg_exec::Source;
use thalweg_flow::INTERVAL_NS;
use thalweg_ports::{FileSource, InputError, InputOptions, InputReport, InputSpec, PortNames};

/// The longest sleep before checking whether to stop.
const NAP: Duration = Duration::from_millis(50);
/// A packet that arrives this long before earlier ones means that the clock was set back.
const SET_BACK_NS: u64 = 10_000_000_000;

/// What to read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// `-` is standard input.
    pub(crate) inputs: Vec<PathBuf>,
    /// Ports that inputs may name.
    pub(crate) ports: PortNames,
    pub(crate) options: InputOptions,
    /// The number of passes.
    pub(crate) loops: u32,
    /// Packets per second; `None` is as fast as possible.
    pub(crate) rate_pps: Option<u64>,
    /// Cut chunks where a second ends: what is told of it is then what was counted in it.
    pub(crate) by_second: bool,
}

impl Reading {
    fn open(&self) -> Result<FileSource, InputError> {
        let specs = self.inputs.iter().map(|path| InputSpec::parse(&path.to_string_lossy())).collect();
        FileSource::open(specs, self.ports.clone(), &self.options)
    }
}

/// The progress of reading, for display.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    packets: AtomicU64,
    /// The part of the inputs' bytes, in millionths; 0 if unknown.
    done_ppm: AtomicU64,
}

impl Seen {
    /// Packets read.
    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// The part of the input that has been read, if known.
    pub(crate) fn fraction(&self) -> Option<f64> {
        let ppm = self.done_ppm.load(Ordering::Relaxed);
        (ppm > 0).then_some(ppm as f64 / 1e6)
    }

    pub(crate) fn add(&self, packets: usize) {
        self.packets.fetch_add(packets as u64, Ordering::Relaxed);
    }
}

/// The source of chunks.
enum Current {
    /// Everything was read before.
    Loaded(VecDeque<Chunk>),
    /// Read on demand; `None` between two passes.
    Streaming(Option<Box<FileSource>>),
}

/// Reads captures; see the module documentation.
pub(crate) struct Captures {
    reading: Reading,
    current: Current,
    /// Parts of the last chunk, if chunks are cut.
    parts: VecDeque<Chunk>,
    /// Passes that have not begun.
    loops_left: u32,
    timeline: Timeline,
    pace: Option<Pace>,
    stop: Arc<AtomicBool>,
    seen: Arc<Seen>,
    report: Option<InputReport>,
    failed: Option<InputError>,
}

impl Captures {
    /// Opens the inputs without reading. Errors as [`FileSource::open`].
    pub(crate) fn open(reading: Reading, stop: Arc<AtomicBool>, seen: Arc<Seen>) -> Result<Self, InputError> {
        let first = Box::new(reading.open()?);
        Ok(Self::of(Current::Streaming(Some(first)), reading, stop, seen))
    }

    /// Reads all passes into memory. Errors as [`FileSource::load_all`].
    pub(crate) fn load(reading: Reading, stop: Arc<AtomicBool>, seen: Arc<Seen>) -> Result<Self, InputError> {
        let mut loaded = Self::of(Current::Loaded(VecDeque::new()), reading, stop, seen);
        let mut all = VecDeque::new();
        for turn in 0..loaded.reading.loops.max(1) {
            let (chunks, report) = loaded.reading.open()?.load_all()?;
            if turn > 0 {
                loaded.timeline.begin_again();
            }
            for chunk in chunks {
                loaded.place(chunk);
                all.append(&mut loaded.parts);
            }
            loaded.note(report);
        }
        loaded.loops_left = 0;
        loaded.current = Current::Loaded(all);
        Ok(loaded)
    }

    fn of(current: Current, reading: Reading, stop: Arc<AtomicBool>, seen: Arc<Seen>) -> Self {
        Self {
            loops_left: reading.loops.saturating_sub(1),
            pace: reading.rate_pps.map(Pace::new),
            timeline: Timeline { is_repeated: reading.loops > 1, ..Timeline::default() },
            reading,
            current,
            parts: VecDeque::new(),
            stop,
            seen,
            report: None,
            failed: None,
        }
    }

    /// The report, or the error that ended reading early.
    pub(crate) fn finish(mut self) -> Result<InputReport, InputError> {
        if let Current::Streaming(Some(reader)) =
            std::mem::replace(&mut self.current, Current::Streaming(None))
        {
            self.note(reader.report());
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.report.unwrap_or_default()),
        }
    }

    /// Adds a chunk of the reader's to the parts that come next.
    fn place(&mut self, chunk: Chunk) {
        let shift_ns = self.timeline.shift_ns;
        self.parts.extend(if self.reading.by_second { cut(chunk, shift_ns) } else { vec![chunk] });
        self.parts.iter_mut().for_each(|part| self.timeline.place(part));
    }

    fn next_chunk(&mut self) -> Option<Chunk> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Some(part);
            }
            let reader = match &mut self.current {
                // Its time was assigned when it was loaded.
                Current::Loaded(chunks) => return chunks.pop_front(),
                Current::Streaming(reader) => reader,
            };
            match reader.as_mut()?.next_chunk() {
                Ok(Some(chunk)) => {
                    self.place(chunk);
                    self.publish_progress();
                    continue;
                }
                Ok(None) => {}
                Err(error) => self.failed = Some(error),
            }
            let ended = reader.take()?;
            self.note(ended.report());
            if self.failed.is_some() || self.loops_left == 0 {
                return None;
            }
            self.loops_left -= 1;
            self.timeline.begin_again();
            match self.reading.open() {
                Ok(source) => self.current = Current::Streaming(Some(Box::new(source))),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Adds up the report. Issues of the inputs are the same in every pass and are reported once.
    fn note(&mut self, report: InputReport) {
        match &mut self.report {
            Some(all) => {
                all.packets += report.packets;
                all.bytes += report.bytes;
                all.records += report.records;
            }
            none => *none = Some(report),
        }
    }

    /// Updates the progress.
    fn publish_progress(&self) {
        let Current::Streaming(Some(reader)) = &self.current else { return };
        let progress = reader.progress();
        let Some(total) = progress.bytes_total().filter(|total| *total > 0) else { return };
        let loops = f64::from(self.reading.loops.max(1));
        let before = loops - f64::from(self.loops_left) - 1.0;
        let part = (progress.bytes_read() as f64 / total as f64).min(1.0);
        self.seen.done_ppm.store(((before + part) / loops * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Source<Chunk> for Captures {
    fn next(&mut self) -> Option<Chunk> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let chunk = self.next_chunk()?;
        let packets = chunk.packets().len();
        if let Some(pace) = &mut self.pace
            && !pace.wait_for(packets as u64, &self.stop)
        {
            return None;
        }
        self.seen.add(packets);
        Some(chunk)
    }
}

/// By reference, so that the source can be queried after the run.
impl Source<Chunk> for &mut Captures {
    fn next(&mut self) -> Option<Chunk> {
        (**self).next()
    }
}

/// Cuts a chunk where a second begins by the latest arrival so far, so that a packet that comes a little late does
/// not cut it.
fn cut(chunk: Chunk, shift_ns: u64) -> Vec<Chunk> {
    let second = |packet: &Packet| packet.arrival_ns.saturating_add(shift_ns) / INTERVAL_NS;
    let (mut latest, mut parts) = (None, 1);
    for second in chunk.packets().iter().map(second) {
        parts += usize::from(latest.is_some_and(|latest| second > latest));
        latest = latest.max(Some(second));
    }
    if parts == 1 {
        return vec![chunk];
    }
    let (clock_ns, latest, part) = (chunk.clock_ns, Cell::new(None), Cell::new(0));
    let mut cut = chunk.split(parts, |packet| {
        let second = second(packet);
        part.set(part.get() + usize::from(latest.get().is_some_and(|latest| second > latest)));
        latest.set(latest.get().max(Some(second)));
        part.get()
    });
    for part in &mut cut {
        let first_ns = part.packets().first().map_or(0, |packet| packet.arrival_ns);
        part.clock_ns = clock_ns.max(first_ns);
    }
    cut
}

/// Assigns arrival times over all passes. Time goes back where the inputs' does by [`SET_BACK_NS`] or more:
/// the clock was set during the capture, or the inputs are not in order of time. Otherwise flows of such
/// packets would not end until the end.
#[derive(Debug, Default)]
struct Timeline {
    /// Several passes: the time span of the first one is needed.
    is_repeated: bool,
    sequence: u64,
    packets: u64,
    clock_ns: u64,
    /// Added to the inputs' times.
    shift_ns: u64,
    /// In the first pass, by the inputs: first arrival, latest arrival, packets.
    first_ns: Option<u64>,
    latest_ns: u64,
    /// The duration of a pass; set after the first one.
    run_ns: Option<u64>,
}

/// Whether a clock with this new time was set back: packets are not strictly ordered, but not this far apart.
fn is_set_back(clock_ns: u64, to_ns: u64) -> bool {
    to_ns.saturating_add(SET_BACK_NS) <= clock_ns
}

impl Timeline {
    /// Assigns sequence number and times to a chunk.
    fn place(&mut self, chunk: &mut Chunk) {
        let packets = chunk.packets().len() as u64;
        if self.is_repeated && self.run_ns.is_none() {
            let arrivals = chunk.packets().iter().map(|packet| packet.arrival_ns);
            self.latest_ns = arrivals.max().unwrap_or(0).max(self.latest_ns);
            if self.first_ns.is_none() {
                self.first_ns = chunk.packets().first().map(|packet| packet.arrival_ns);
            }
        }
        if self.shift_ns > 0 {
            for packet in chunk.packets_mut() {
                packet.arrival_ns = packet.arrival_ns.saturating_add(self.shift_ns);
            }
        }
        // The reader's clock restarts with each pass, and never goes back within one.
        let mut now_ns = chunk.clock_ns.saturating_add(self.shift_ns);
        let first_ns = chunk.packets().first().map(|packet| packet.arrival_ns);
        if let Some(first_ns) = first_ns.filter(|first_ns| is_set_back(now_ns, *first_ns)) {
            now_ns = first_ns;
        }
        self.clock_ns = if is_set_back(self.clock_ns, now_ns) { now_ns } else { self.clock_ns.max(now_ns) };
        chunk.clock_ns = self.clock_ns;
        chunk.sequence = self.sequence;
        chunk.first_packet_number = self.packets + 1;
        self.sequence += 1;
        self.packets += packets;
    }

    /// Begins another pass.
    fn begin_again(&mut self) {
        let run_ns = *self.run_ns.get_or_insert_with(|| {
            let span_ns = self.latest_ns.saturating_sub(self.first_ns.unwrap_or(self.latest_ns));
            span_ns + (span_ns / self.packets.max(1)).max(1)
        });
        self.shift_ns = self.shift_ns.saturating_add(run_ns);
    }
}

/// Limits the rate of packets.
#[derive(Debug)]
struct Pace {
    rate_pps: u64,
    began: Option<Instant>,
    packets: u64,
}

impl Pace {
    fn new(rate_pps: u64) -> Self {
        Self { rate_pps: rate_pps.max(1), began: None, packets: 0 }
    }

    /// Waits until these next packets are due; returns `false` if asked to stop.
    fn wait_for(&mut self, packets: u64, stop: &AtomicBool) -> bool {
        let began = *self.began.get_or_insert_with(Instant::now);
        let due_ns = u128::from(self.packets) * 1_000_000_000 / u128::from(self.rate_pps);
        let due = Duration::from_nanos(u64::try_from(due_ns).unwrap_or(u64::MAX));
        self.packets += packets;
        loop {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = due.saturating_sub(began.elapsed());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::{ChunkBuilder, LinkType};

    fn chunk(arrivals: &[u64]) -> Chunk {
        let mut builder = ChunkBuilder::with_capacity(64 * (arrivals.len() + 1));
        for arrival in arrivals {
            builder.push(builder.next_frame_offset(), 20, 20, *arrival, LinkType::RawIp, 0, 0);
        }
        builder.finish(0, 1, 0)
    }

    #[test]
    fn time_goes_on_from_run_to_run() {
        let mut timeline = Timeline { is_repeated: true, ..Timeline::default() };
        let mut seen = Vec::new();
        for run in 0..3 {
            if run > 0 {
                timeline.begin_again();
            }
            for arrivals in [[1_000, 1_010], [1_005, 1_030]] {
                let mut chunk = chunk(&arrivals);
                timeline.place(&mut chunk);
                let first = chunk.packets()[0].arrival_ns;
                seen.push((chunk.sequence, chunk.first_packet_number, chunk.clock_ns, first));
            }
        }
        // A run is the 30 ns that it covers and the 7 between its packets.
        assert_eq!(
            seen,
            [
                (0, 1, 1_000, 1_000),
                (1, 3, 1_005, 1_005),
                (2, 5, 1_037, 1_037),
                (3, 7, 1_042, 1_042),
                (4, 9, 1_074, 1_074),
                (5, 11, 1_079, 1_079)
            ]
        );
    }

    #[test]
    fn chunks_are_cut_where_a_second_begins() {
        let arrivals = [INTERVAL_NS - 2, INTERVAL_NS - 1, INTERVAL_NS, INTERVAL_NS - 3, 5 * INTERVAL_NS];
        let parts = |shift_ns| -> Vec<(usize, u64)> {
            let cut = cut(chunk(&arrivals), shift_ns);
            cut.iter().map(|part| (part.packets().len(), part.clock_ns)).collect()
        };
        assert_eq!(parts(0), [(2, INTERVAL_NS - 2), (2, INTERVAL_NS), (1, 5 * INTERVAL_NS)]);
        assert_eq!(parts(2), [(4, INTERVAL_NS - 2), (1, 5 * INTERVAL_NS)]);
        assert_eq!(cut(chunk(&arrivals[..2]), 0).len(), 1);
    }

    #[test]
    fn time_goes_back_where_the_clock_was_set_back() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut timeline = Timeline::default();
        let mut reader_ns = 0;
        // In seconds: packets out of order by a little, a clock set back, and what comes behind.
        let arrivals = [1_000, 1_005, 1_001, 560, 570, 565, 2_000, 571];
        let clocks = arrivals.map(|seconds| {
            let mut builder = ChunkBuilder::with_capacity(64);
            builder.push(builder.next_frame_offset(), 20, 20, seconds * SECOND_NS, LinkType::RawIp, 0, 0);
            let mut chunk = builder.finish(0, 1, reader_ns);
            reader_ns = chunk.clock_ns;
            timeline.place(&mut chunk);
            chunk.clock_ns / SECOND_NS
        });
        assert_eq!(clocks, [1_000, 1_005, 1_005, 560, 570, 570, 2_000, 571]);
    }

    #[test]
    fn a_pace_that_is_stopped_ends_at_once() {
        let mut pace = Pace::new(1);
        let stop = AtomicBool::new(false);
        assert!(pace.wait_for(3600, &stop), "the first packet is due now");
        stop.store(true, Ordering::Relaxed);
        assert!(!pace.wait_for(1, &stop), "an hour later nobody waits");
    }
}

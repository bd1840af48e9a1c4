//! Releases the messages of neighbors in memory in the order of a traffic mix.
//!
//! A traffic mix is an order of messages over all neighbors ([`super::order`]). If everything were readable at
//! once, all mixes would look the same to the reader; if a client wrote message by message, its writes would set
//! the pace. So messages are *released* in the mix's order within a window: the bytes released but not yet read,
//! as in a network whose buffers hold that many. Releasing needs no thread: how much a neighbor has is computed
//! when it is read, from the bytes read of all neighbors so far. A reader that found nothing is woken by the
//! reader that gets far enough.
//!
//! So the feed does not set the pace: as long as anything is unread, at least one neighbor has something to read
//! (the message that is first in the order among the unread ones lies inside the window).

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::message::Stream;
use super::order::Run;

/// The value while no reader waits.
const NOTHING: u64 = u64::MAX;

/// A load's window: half of a neighbor's bytes on average, so that neighbors take turns; at most what one read per
/// neighbor takes, and at least the longest message.
pub(crate) fn window(bytes: usize, neighbors: usize) -> u64 {
    const READ_BYTES: usize = 64 << 10;
    let neighbors = neighbors.max(1);
    (bytes / (2 * neighbors)).clamp(READ_BYTES / 8, READ_BYTES * neighbors) as u64
}

/// Everything to be read, by neighbor.
pub(crate) struct Feed {
    voices: Vec<Voice>,
    /// Bytes in all, bytes read, and the window.
    total: AtomicU64,
    read: AtomicU64,
    window: AtomicU64,
    wakes: AtomicU64,
}

#[derive(Default)]
struct Voice {
    said: Mutex<Said>,
    /// The count of all neighbors' bytes at which its next message is released; [`NOTHING`] while no reader waits.
    waits_for: AtomicU64,
}

#[derive(Default)]
struct Said {
    stream: Stream,
    /// Bytes read.
    next: usize,
    places: Vec<Place>,
    /// The index of the place that contains `next`.
    place: usize,
}

/// A neighbor's consecutive messages in the order of all.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Their end, in bytes of this neighbor.
    end: usize,
    /// The bytes of other neighbors before them.
    before: u64,
}

/// All neighbors' messages, prepared before the clock starts.
pub(crate) struct Cast {
    said: Vec<Said>,
    total: u64,
}

impl Cast {
    /// Streams that are released in this order.
    pub(crate) fn new(streams: Vec<Stream>, order: &[Run]) -> Self {
        let total: usize = streams.iter().map(|stream| stream.bytes.len()).sum();
        let mut said: Vec<Said> =
            streams.into_iter().map(|stream| Said { stream, ..Said::default() }).collect();
        let mut messages = vec![0; said.len()];
        let mut all = 0;
        for run in order {
            let Said { stream, places, .. } = &mut said[run.peer];
            messages[run.peer] += run.messages;
            let begin = places.last().map_or(0, |place: &Place| place.end);
            let end = messages[run.peer].checked_sub(1).map_or(0, |last| stream.ends[last]);
            places.push(Place { end, before: (all - begin) as u64 });
            all += end - begin;
        }
        Self { said, total: total as u64 }
    }
}

impl Said {
    /// The end of the neighbor's released bytes if `limit` bytes of all neighbors are released; whole messages
    /// only.
    fn released(&self, limit: u64, wanted: usize) -> usize {
        let mut released = self.next;
        for place in &self.places[self.place.min(self.places.len())..] {
            let reached = usize::try_from(limit.saturating_sub(place.before)).unwrap_or(usize::MAX);
            if reached < place.end {
                let whole = self.stream.ends.partition_point(|end| *end <= reached);
                let whole = whole.checked_sub(1).map_or(0, |last| self.stream.ends[last]);
                return released.max(whole);
            }
            released = place.end;
            if released >= self.next + wanted {
                break;
            }
        }
        released
    }

    /// The count of all neighbors' bytes that releases the whole next message.
    fn needs(&self) -> u64 {
        let message = self.stream.ends.partition_point(|end| *end <= self.next);
        match (self.stream.ends.get(message), self.places.get(self.place)) {
            (Some(end), Some(place)) => place.before + *end as u64,
            _ => NOTHING,
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.next += bytes;
        while self.places.get(self.place).is_some_and(|place| place.end <= self.next) {
            self.place += 1;
        }
    }
}

impl Feed {
    /// A feed whose neighbors have nothing yet.
    pub(crate) fn new(neighbors: usize) -> Self {
        let voice = |_| Voice { waits_for: AtomicU64::new(NOTHING), ..Voice::default() };
        Self {
            voices: (0..neighbors).map(voice).collect(),
            total: AtomicU64::new(0),
            read: AtomicU64::new(0),
            window: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        }
    }

    /// Gives each neighbor its messages. All earlier ones must have been read. Calls `wake` for every neighbor that
    /// has something now.
    pub(crate) fn load(&self, Cast { said, total }: Cast, window: u64, wake: impl Fn(usize)) {
        self.read.store(0, Ordering::SeqCst);
        self.window.store(window, Ordering::SeqCst);
        self.total.store(total, Ordering::SeqCst);
        for (voice, said) in self.voices.iter().zip(said) {
            let needs = said.needs();
            *voice.said.lock() = said;
            // From here on, the reader that gets far enough wakes it.
            voice.waits_for.store(needs, Ordering::SeqCst);
        }
        self.wake_released(self.limit(), wake);
        self.wakes.store(0, Ordering::SeqCst);
    }

    /// Reads a neighbor's bytes into `buffer`; returns their number, or `None` if there is nothing now. Before it
    /// returns `None`, it calls `rest`, because the reader's wake-up is used up. Calls `wake` for each neighbor
    /// that has something again because of this read.
    pub(crate) fn take(
        &self,
        neighbor: usize,
        buffer: &mut [u8],
        rest: impl FnOnce(),
        wake: impl Fn(usize),
    ) -> Option<usize> {
        let voice = &self.voices[neighbor];
        let mut said = voice.said.lock();
        let mut released = said.released(self.limit(), buffer.len());
        if released <= said.next {
            rest();
            voice.waits_for.store(said.needs(), Ordering::SeqCst);
            // Another reader may have advanced in between without seeing this one wait.
            released = said.released(self.limit(), buffer.len());
            if released <= said.next {
                return None;
            }
            voice.waits_for.store(NOTHING, Ordering::SeqCst);
        }
        let length = (released - said.next).min(buffer.len());
        buffer[..length].copy_from_slice(&said.stream.bytes[said.next..said.next + length]);
        said.advance(length);
        drop(said);
        self.read.fetch_add(length as u64, Ordering::SeqCst);
        self.wake_released(self.limit(), wake);
        Some(length)
    }

    fn wake_released(&self, limit: u64, wake: impl Fn(usize)) {
        for (other, voice) in self.voices.iter().enumerate() {
            let needed = voice.waits_for.load(Ordering::SeqCst);
            if needed != NOTHING
                && needed <= limit
                && voice
                    .waits_for
                    .compare_exchange(needed, NOTHING, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            {
                self.wakes.fetch_add(1, Ordering::Relaxed);
                wake(other);
            }
        }
    }

    fn limit(&self) -> u64 {
        self.read.load(Ordering::SeqCst).saturating_add(self.window.load(Ordering::SeqCst))
    }

    pub(crate) fn is_read(&self) -> bool {
        self.read.load(Ordering::SeqCst) >= self.total.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{Arrival, Mix, Way, order};
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// Streams whose bytes are their own positions.
    fn streams(messages: &[usize]) -> Vec<Stream> {
        let of = |(neighbor, count): (usize, &usize)| {
            let mut stream = Stream::default();
            for message in 0..*count {
                let length = 20 + (neighbor * 7 + message * 13) % 100;
                stream.bytes.extend((0..length).map(|at| (neighbor + message + at) as u8));
                stream.ends.push(stream.bytes.len());
            }
            stream
        };
        messages.iter().enumerate().map(of).collect()
    }

    /// The results of reading.
    struct Consumed {
        /// When everything was read.
        took: u64,
        /// Reads with data, and reads without.
        reads: u64,
        empty: u64,
    }

    /// Simulates readers on virtual time: each byte takes its reader one unit. `of` gives the reader of a
    /// neighbor.
    fn consume(feed: &Feed, streams: &[Stream], readers: usize, of: impl Fn(usize) -> usize) -> Consumed {
        let ready: RefCell<Vec<bool>> = RefCell::new(vec![true; streams.len()]);
        let mut said: Vec<Vec<u8>> = vec![Vec::new(); streams.len()];
        let mut free_at = vec![0u64; readers];
        let mut next = vec![0; readers];
        let (mut reads, mut empty) = (0, 0);
        while !feed.is_read() {
            // Of the readers with a ready neighbor, the one that is free first.
            let is_ready = |reader: usize| (0..streams.len()).any(|n| of(n) == reader && ready.borrow()[n]);
            let reader = (0..readers).filter(|r| is_ready(*r)).min_by_key(|r| free_at[*r]);
            let reader = reader.expect("somebody has something to read as long as anything is unread");
            let now = free_at[reader];
            let neighbor = (0..streams.len())
                .map(|step| (next[reader] + step) % streams.len())
                .find(|n| of(*n) == reader && ready.borrow()[*n])
                .expect("it is ready");
            next[reader] = neighbor + 1;
            let mut buffer = [0; 64];
            let rest = || ready.borrow_mut()[neighbor] = false;
            match feed.take(neighbor, &mut buffer, rest, |other| ready.borrow_mut()[other] = true) {
                None => empty += 1,
                Some(length) => {
                    reads += 1;
                    said[neighbor].extend_from_slice(&buffer[..length]);
                    free_at[reader] = now + length as u64;
                    // A sleeping reader wakes now, not in the past.
                    for other in 0..readers {
                        if !is_ready(other) {
                            free_at[other] = free_at[other].max(free_at[reader]);
                        }
                    }
                }
            }
        }
        for (said, stream) in said.iter().zip(streams) {
            assert!(*said == stream.bytes, "every byte once, in order");
        }
        Consumed { took: free_at.into_iter().max().unwrap_or(0), reads, empty }
    }

    fn loaded(streams: &[Stream], way: Way, window: u64) -> Feed {
        let feed = Feed::new(streams.len());
        let runs = order(streams, way, Arrival { file: &[], seed: 3 });
        feed.load(Cast::new(streams.to_vec(), &runs), window, |_| {});
        feed
    }

    #[test]
    fn a_single_reader_does_not_care_for_the_mix() {
        let streams = streams(&[300; 12]);
        let bytes: usize = streams.iter().map(|stream| stream.bytes.len()).sum();
        for mix in Mix::ALL {
            let feed = loaded(&streams, mix.way(), window(bytes, 12));
            let Consumed { took, reads, empty } = consume(&feed, &streams, 1, |_| 0);
            // Readers never wait for the feed, need as many reads in every mix, and almost never read in vain.
            assert_eq!(took, bytes as u64, "{mix}");
            let wakes = feed.wakes.load(Ordering::Relaxed);
            assert!(
                wakes * 20 <= reads && empty * 20 <= reads,
                "{mix}: {wakes} wakes, {empty} of {reads} empty"
            );
        }
        let reads = |mix: Mix| {
            consume(&loaded(&streams, mix.way(), window(bytes, 12)), &streams, 1, |_| 0).reads as f64
        };
        for mix in Mix::ALL {
            assert!((reads(mix) / reads(Mix::Best) - 1.0).abs() < 0.1, "{mix}: {}", reads(mix));
        }
    }

    #[test]
    fn a_reader_for_each_neighbor_does() {
        let streams = streams(&[300; 12]);
        let bytes: usize = streams.iter().map(|stream| stream.bytes.len()).sum();
        let took = |mix: Mix| {
            let feed = loaded(&streams, mix.way(), window(bytes, 12));
            consume(&feed, &streams, 12, |neighbor| neighbor).took as f64 / bytes as f64
        };
        let [best, mix1, four, two, worst] = Mix::ALL.map(took);
        assert!(
            best < 0.15 && best <= mix1 && mix1 < four && four < two && two < worst && worst > 0.5,
            "{best} {mix1} {four} {two} {worst}"
        );
    }

    proptest! {
        #[test]
        fn all_is_read_whatever_the_order_the_window_and_the_readers(
            messages in prop::collection::vec(0usize..40, 1..12), turn in 0usize..9, at in 1usize..9,
            window in 128u64..9000, readers in 1usize..5,
        ) {
            let streams = streams(&messages);
            for way in [Way::FileOrder, Way::RoundRobin(turn), Way::ThreadPerPeer, Way::AtATime(at)] {
                let feed = loaded(&streams, way, window);
                consume(&feed, &streams, readers, |neighbor| neighbor % readers);
                let at_once = loaded(&streams, way, u64::MAX);
                consume(&at_once, &streams, readers, |neighbor| neighbor % readers);
            }
        }
    }
}

//! Datagrams to all destinations at an even pace, and what arrives of them.
//!
//! A datagram carries its number; the number gives its destination.

use super::site::{DESTINATIONS, Site};
use crate::forwarding::ForwardingError;
use parking_lot::Mutex;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PORT: u16 = 7001;
/// How long a receiver waits before it looks whether to end.
const RECEIVE_WAIT: Duration = Duration::from_millis(100);
/// The longest sleep of the sender.
const PACE: Duration = Duration::from_millis(1);
/// A destination that has got nothing for so long is cut off.
const SILENCE: Duration = Duration::from_millis(300);

/// The sending and receiving sockets.
pub(super) struct Stream {
    sender: UdpSocket,
    /// At the two transits.
    pub(super) receivers: [UdpSocket; 2],
    to: Vec<SocketAddrV4>,
    interval: Duration,
    sent: AtomicU64,
    is_paused: AtomicBool,
}

impl Stream {
    pub(super) fn new(site: &Site, rate: u32) -> Result<Self, ForwardingError> {
        let bound = |port: u16| UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        let receiver = || {
            let socket = bound(PORT)?;
            socket.set_read_timeout(Some(RECEIVE_WAIT))?;
            Ok(socket)
        };
        let [first, second] = &site.transits;
        Ok(Self {
            sender: site.client.inside(|| bound(0))?,
            receivers: [first.inside(receiver)?, second.inside(receiver)?],
            to: site.destinations().map(|address| SocketAddrV4::new(address, PORT)).collect(),
            interval: Duration::from_secs(1) / rate.max(1),
            sent: AtomicU64::new(0),
            is_paused: AtomicBool::new(false),
        })
    }

    /// The number of datagrams so far, which is that of the next one.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    pub(super) fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Sends until `done`: the body of a thread.
    pub(super) fn send(&self, done: &AtomicBool) {
        let mut due = Instant::now();
        while !done.load(Ordering::Relaxed) {
            let now = Instant::now();
            if self.is_paused.load(Ordering::Acquire) || due > now {
                std::thread::sleep(due.saturating_duration_since(now).clamp(self.interval.min(PACE), PACE));
                // What a pause or a busy machine held up is not made up for: that would be a burst.
                due = due.max(Instant::now().checked_sub(PACE).unwrap_or(now));
                continue;
            }
            let number = self.sent.fetch_add(1, Ordering::AcqRel);
            if let Some(to) = self.to.get(place_of(number)) {
                // A datagram that cannot be sent is lost like any other.
                let _ = self.sender.send_to(&number.to_be_bytes(), to);
            }
            due += self.interval;
        }
    }
}

/// The place of a datagram's destination.
fn place_of(number: u64) -> usize {
    let [.., last] = number.to_be_bytes();
    usize::from(last % DESTINATIONS)
}

/// What arrived, at both transits together.
#[derive(Default)]
pub(super) struct Tally(Mutex<Arrivals>);

struct Arrivals {
    /// By destination.
    last: Vec<Option<Instant>>,
    /// Since the mark, of the destination that waited longest.
    gap: Duration,
    /// The first datagram that counts.
    first: u64,
    received: u64,
}

impl Default for Arrivals {
    fn default() -> Self {
        let last = vec![None; usize::from(DESTINATIONS)];
        Self { last, gap: Duration::ZERO, first: 0, received: 0 }
    }
}

impl Arrivals {
    fn take(&mut self, number: u64, now: Instant) {
        let Some(last) = self.last.get_mut(place_of(number)) else { return };
        if let Some(before) = last.replace(now) {
            self.gap = self.gap.max(now.saturating_duration_since(before));
        }
        self.received += u64::from(number >= self.first);
    }
}

impl Tally {
    /// Receives until `done`: the body of a thread.
    pub(super) fn receive(&self, socket: &UdpSocket, done: &AtomicBool) {
        let mut number = [0; 8];
        while !done.load(Ordering::Relaxed) {
            match socket.recv(&mut number) {
                Ok(8) => self.0.lock().take(u64::from_be_bytes(number), Instant::now()),
                Ok(_) => {}
                Err(error) if is_a_wait(&error) => {}
                // Nothing more is counted, and the trial shows it.
                Err(_) => return,
            }
        }
    }

    /// Counts anew, from this datagram on. A silence that has begun goes on.
    pub(super) fn mark(&self, first: u64) {
        let mut arrivals = self.0.lock();
        (arrivals.gap, arrivals.first, arrivals.received) = (Duration::ZERO, first, 0);
    }

    /// The longest silence since the mark.
    pub(super) fn longest_gap(&self) -> Duration {
        self.0.lock().gap
    }

    /// Datagrams since the mark that did not arrive, if none is on its way.
    pub(super) fn lost(&self, sent: u64) -> u64 {
        let arrivals = self.0.lock();
        sent.saturating_sub(arrivals.first).saturating_sub(arrivals.received)
    }

    /// Whether every destination has got something just now.
    pub(super) fn all_flow(&self) -> bool {
        let now = Instant::now();
        let is_fresh =
            |last: &Option<Instant>| last.is_some_and(|at| now.saturating_duration_since(at) < SILENCE);
        self.0.lock().last.iter().all(is_fresh)
    }
}

fn is_a_wait(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::WouldBlock | Kind::TimedOut | Kind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_silences_count_from_the_mark() {
        let (tally, begin) = (Tally::default(), Instant::now());
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let all = u64::from(DESTINATIONS);
        let take = |number: u64, ms| tally.0.lock().take(number, at(ms));
        // Every destination once, the first one again after 50 ms.
        (0..all).for_each(|number| take(number, 0));
        take(all, 50);
        assert_eq!((tally.longest_gap(), tally.lost(all + 1)), (Duration::from_millis(50), 0));
        tally.mark(all + 1);
        take(3, 60);
        assert_eq!(tally.lost(all + 4), 3, "one from before the mark does not make up for one behind it");
        take(all + 1, 250);
        assert_eq!(tally.lost(all + 4), 2);
        assert_eq!(
            tally.longest_gap(),
            Duration::from_millis(250),
            "from the last packet before the mark on"
        );
    }
}

//! NAT on live interfaces, by the phases of RFC 9693 (benchmarking of stateful NATxy gateways).
//!
//! **Phase 1** opens sessions: tester-a sends one frame each, all from different inside ends, at some rate. tester-b's
//! side reads, after the last frame, how each was translated. **Phase 2** uses them: tester-b sends a reply to each
//! public end that was learnt. A session is *valid* if its reply arrives at its own inside end.
//!
//! - *Set-up rate*: the fastest rate at which every opening frame comes through, by binary search; then that rate,
//!   and if need be four fifths of it and so on (`BACK_OFF`), with phase 2 behind it, until all sessions are valid. Sessions of
//!   each trial are new. With phase 2, tester-b keeps all frames, which costs the sender more than counting does; so
//!   the valid rate is a careful one. A trial should be long beside what the router's buffers hold.
//! - *Capacity*: so many sessions in an empty table, all valid, in pieces: twice as many until it fails or the limit is reached,
//!   then binary search to 1/64.
//! - *Tear-down rate*: sessions in the table over the time until all are forgotten at one command. The kernel has one;
//!   our router has none, and is emptied in memory only ([`super::memory`]).
//! - *Established*: throughput (RFC 2544 26.1) outward over so many valid sessions, each used in turn.
//!
//! Differences from the RFC: throughput goes one way, over each session in turn. In phase 1 no two frames share an
//! inside end (the RFC wants different four-tuples), because our router's sessions belong to inside ends.

use super::subject::{SESSIONS_MAX, forget_all, session};
use crate::forwarding::ForwardingError;
use crate::forwarding::frame::FrameSize;
use crate::forwarding::method::{SearchOptions, Trial, throughput};
use crate::forwarding::subject::{Subject, Task};
use crate::forwarding::tester::{CAPTURE_MAX, Offer, Tester, Way};
use crate::forwarding::topology::Topology;
use crate::workload::frames::Endpoint;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What is tried of a rate whose sessions were not all valid, and how often.
const BACK_OFF: f64 = 0.8;
const ATTEMPTS: usize = 10;
/// How fast sessions are made where their rate is not the question, and replied to.
const CALM_PPS: f64 = 60_000.0;
/// How long a router may take until it translates.
const START_WAIT: Duration = Duration::from_secs(20);
/// Capacity is found to this share.
const CAPACITY_STEP: u32 = 64;
const SMALLEST_FRAME: usize = 64;

/// What a set-up search came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetUp {
    /// The fastest rate at which all frames came through, sessions per second.
    pub counted_pps: f64,
    /// The fastest of those tried whose sessions were all valid.
    pub valid_pps: f64,
}

/// A router that was set up, and which sessions are still unused.
pub struct Bench<'a> {
    topology: &'a Topology,
    subject: &'a dyn Subject,
    stop: &'a AtomicBool,
    /// Whether the kernel is asked to forget all before each trial.
    kernel: bool,
    next: u32,
}

impl<'a> Bench<'a> {
    /// Waits until the router translates.
    pub fn new(
        topology: &'a Topology,
        subject: &'a dyn Subject,
        stop: &'a AtomicBool,
    ) -> Result<Self, ForwardingError> {
        let kernel = subject.label().is_native();
        let mut bench = Self { topology, subject, stop, kernel, next: 0 };
        let end = Instant::now() + START_WAIT;
        loop {
            let (valid, trial) = bench.piece(16, 2_000.0)?;
            if valid == 16 {
                return Ok(bench);
            }
            if Instant::now() > end {
                return Err(ForwardingError::NotForwarding {
                    sent: trial.sent,
                    received: trial.received,
                    fault: (trial.received == trial.sent).then_some("replies that do not come back"),
                    said: bench.subject.said(),
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The fastest rate at which `sessions` of them can be made, up to `ceiling_pps`.
    pub fn set_up_rate(
        &mut self,
        sessions: u32,
        ceiling_pps: f64,
        search: &SearchOptions,
    ) -> Result<SetUp, ForwardingError> {
        let found = throughput(ceiling_pps, search, |rate| self.opened(sessions, rate))?;
        let mut rate = found.rate_pps;
        for _ in 0..ATTEMPTS {
            self.forget()?;
            if rate > 0.0 && self.piece(sessions, rate)?.0 == sessions {
                return Ok(SetUp { counted_pps: found.rate_pps, valid_pps: rate });
            }
            rate *= BACK_OFF;
        }
        Ok(SetUp { counted_pps: found.rate_pps, valid_pps: 0.0 })
    }

    /// Whether so many sessions, all new, are all valid at once. The table should be empty before.
    pub fn holds(&mut self, sessions: u32) -> Result<bool, ForwardingError> {
        let first = self.next;
        let mut pieces = Vec::new();
        let mut opened = 0;
        while opened < sessions {
            let piece = (sessions - opened).min(CAPTURE_MAX);
            let (numbers, public) = self.open(piece, CALM_PPS)?;
            pieces.push((numbers, public));
            opened += piece;
        }
        // Only now are replies sent: the first piece must still be there when the last has been made.
        let mut valid = 0;
        for (numbers, public) in &pieces {
            valid += self.reply(numbers, public)?;
        }
        debug_assert_eq!(self.next - first, sessions);
        Ok(valid == sessions)
    }

    /// Makes so many sessions and searches for throughput over them.
    pub fn established(
        &mut self,
        sessions: u32,
        ceiling_pps: f64,
        trial_s: f64,
        search: &SearchOptions,
    ) -> Result<f64, ForwardingError> {
        let first = self.next;
        if !self.holds(sessions)? {
            return Ok(0.0);
        }
        let mut tester = self.tester(first..first + sessions)?;
        let cpu_s = || self.subject.cpu_s();
        let found =
            throughput(ceiling_pps, search, |rate| tester.trial(Offer::paced(rate, trial_s), &cpu_s))?;
        Ok(found.rate_pps)
    }

    /// Makes so many sessions and has all forgotten; how many a second. `None` if the router has no such command.
    pub fn tear_down_rate(&mut self, sessions: u32) -> Result<Option<f64>, ForwardingError> {
        if !self.kernel {
            return Ok(None);
        }
        self.forget()?;
        self.holds(sessions)?;
        let (elapsed_s, before) = forget_all(self.topology)?;
        Ok(Some(before as f64 / elapsed_s.max(f64::MIN_POSITIVE)))
    }

    /// Room for what comes next; only the kernel needs it made, our router has room for all that is ever opened.
    fn forget(&self) -> Result<(), ForwardingError> {
        if self.kernel { forget_all(self.topology).map(drop) } else { Ok(()) }
    }

    fn tester(&self, numbers: Range<u32>) -> Result<Tester<'a>, ForwardingError> {
        let flows: Vec<(Endpoint, Endpoint)> = numbers.map(session).collect();
        Tester::new(self.topology, Way::Router, smallest(), &flows, self.stop)
    }

    fn take(&mut self, sessions: u32) -> Range<u32> {
        // After the last come the first again: by then they are long forgotten.
        let first = if SESSIONS_MAX - self.next < sessions { 0 } else { self.next };
        self.next = first + sessions;
        first..self.next
    }

    /// Phase 1, counted.
    fn opened(&mut self, sessions: u32, rate_pps: f64) -> Result<Trial, ForwardingError> {
        self.forget()?;
        let numbers = self.take(sessions);
        let offer = Offer::paced(rate_pps, f64::from(sessions) / rate_pps);
        self.tester(numbers)?.trial(offer, &|| self.subject.cpu_s())
    }

    /// Phase 1 with what was learnt: the public end of each session.
    fn open(
        &mut self,
        sessions: u32,
        rate_pps: f64,
    ) -> Result<(Range<u32>, Vec<Option<Endpoint>>), ForwardingError> {
        let numbers = self.take(sessions);
        let offer = Offer::paced(rate_pps, f64::from(sessions) / rate_pps);
        let (_, captured) = self.tester(numbers.clone())?.captured(offer)?;
        let mut public = vec![None; sessions as usize];
        for frame in captured.iter().filter(|frame| frame.fault.is_none()) {
            let (_, remote) = session(numbers.start + frame.sequence);
            // What came through untranslated is no session.
            let translated = frame.source != session(numbers.start + frame.sequence).0;
            if let Some(place) = public.get_mut(frame.sequence as usize)
                && translated
                && frame.destination == remote
            {
                *place = Some(frame.source);
            }
        }
        Ok((numbers, public))
    }

    /// Phase 2: a reply to each that was learnt; how many sessions are valid.
    fn reply(&self, numbers: &Range<u32>, public: &[Option<Endpoint>]) -> Result<u32, ForwardingError> {
        let learnt: Vec<(u32, Endpoint)> =
            numbers.clone().zip(public).filter_map(|(n, public)| Some((n, (*public)?))).collect();
        if learnt.is_empty() {
            return Ok(0);
        }
        let flows: Vec<(Endpoint, Endpoint)> =
            learnt.iter().map(|(n, public)| (session(*n).1, *public)).collect();
        let mut tester = Tester::new(self.topology, Way::Back, smallest(), &flows, self.stop)?;
        let (_, captured) = tester.captured(Offer::paced(CALM_PPS, flows.len() as f64 / CALM_PPS))?;
        let is_valid = |frame: &&crate::forwarding::tester::Captured| {
            let inside = learnt.get(frame.sequence as usize).map(|(n, _)| session(*n).0);
            frame.fault.is_none() && inside == Some(frame.destination)
        };
        Ok(captured.iter().filter(is_valid).count() as u32)
    }

    /// Both phases for at most [`CAPTURE_MAX`] sessions.
    fn piece(&mut self, sessions: u32, rate_pps: f64) -> Result<(u32, Trial), ForwardingError> {
        let (numbers, public) = self.open(sessions.min(CAPTURE_MAX), rate_pps)?;
        let received = public.iter().filter(|public| public.is_some()).count() as u64;
        let trial = Trial { sent: sessions.into(), received, ..Trial::default() };
        Ok((self.reply(&numbers, &public)?, trial))
    }
}

/// The frame that all of this is done with.
pub fn smallest() -> FrameSize {
    match FrameSize::new(SMALLEST_FRAME) {
        Ok(size) => size,
        Err(_) => unreachable!("the smallest frame is one"),
    }
}

/// What the generator can send by itself.
pub fn ceiling(topology: &Topology, trial_s: f64, stop: &AtomicBool) -> Result<f64, ForwardingError> {
    let flows: Vec<(Endpoint, Endpoint)> = (0..CAPTURE_MAX).map(session).collect();
    let mut tester = Tester::new(topology, Way::Direct, smallest(), &flows, stop)?;
    tester.trial(Offer::flood(trial_s / 4.0), &|| 0.0)?;
    let pps = tester.trial(Offer::flood(trial_s), &|| 0.0)?.received_pps();
    if pps > 0.0 { Ok(pps) } else { Err(ForwardingError::NoGenerator) }
}

/// Sets a router up, does something with it, and takes it away.
pub fn with_router<T>(
    subject: &mut dyn Subject,
    stop: &AtomicBool,
    work: impl FnOnce(&mut Bench<'_>) -> Result<T, ForwardingError>,
) -> Result<T, ForwardingError> {
    let task = Task { nat: true, table: &[], mtu: 1500 };
    if let Some(why) = subject.refuses(&task) {
        return Err(ForwardingError::Command { command: subject.label().to_string(), said: why });
    }
    let topology = Topology::new(1500)?;
    // Translation is in its own configuration, not in the task's.
    let done = subject
        .set_up(&topology, &Task { nat: false, ..task })
        .and_then(|()| Bench::new(&topology, &*subject, stop).and_then(|mut bench| work(&mut bench)));
    subject.tear_down();
    done
}

/// The largest number that `holds`, between nothing and `limit`: doubled from `first` until it fails, then halved
/// to 1/64. Whether the limit itself was held goes with it.
pub fn capacity<E>(
    first: u32,
    limit: u32,
    mut holds: impl FnMut(u32) -> Result<bool, E>,
) -> Result<(u32, bool), E> {
    let (mut low, mut next) = (0, first.clamp(1, limit.max(1)));
    let mut high = loop {
        if !holds(next)? {
            break next;
        }
        low = next;
        if next >= limit {
            return Ok((low, true));
        }
        next = next.saturating_mul(2).min(limit);
    };
    while high - low > (high / CAPACITY_STEP).max(1) {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok((low, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    proptest! {
        #[test]
        fn capacity_is_found_to_a_sixty_fourth(room in 0u32..3_000_000, first in 1u32..100_000, limit in 1u32..2_000_000) {
            let mut tried = 0;
            let Ok((found, all)) = capacity(first, limit, |n| {
                tried += 1;
                Ok::<_, Infallible>(n <= room)
            });
            prop_assert!(found <= room && found <= limit);
            prop_assert_eq!(all, room >= limit);
            if !all {
                prop_assert!(room - found <= (found / 60).max(1), "{} of {}", found, room);
            } else {
                prop_assert_eq!(found, limit);
            }
            prop_assert!(tried < 60, "{} trials", tried);
        }
    }

    #[test]
    fn an_error_ends_the_search() {
        let mut calls = 0;
        let result = capacity(10, 1000, |n| {
            calls += 1;
            if n > 30 { Err("broken") } else { Ok(true) }
        });
        assert_eq!((result, calls), (Err("broken"), 3));
    }
}

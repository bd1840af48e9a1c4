//! Measures NAT on live interfaces by the phases of RFC 9693 (benchmarking of stateful NATxy gateways).
//!
//! **Phase 1** opens sessions: tester-a sends one frame per session, each from a different inside endpoint, at a
//! given rate. After the last frame, tester-b's side reads how each was translated. **Phase 2** uses them: tester-b
//! sends a reply to each public endpoint it has learned. A session is *valid* if its reply arrives at its own
//! inside endpoint.
//!
//! - *Set-up rate*: the fastest rate at which every opening frame arrives, by binary search; then that rate with
//!   phase 2, lowered to four fifths (`BACK_OFF`) until all sessions are valid. Each trial uses new sessions. With
//!   phase 2, tester-b keeps all frames, which costs the sender more than counting does, so the valid rate is
//!   conservative. A trial should last much longer than the router's buffers.
//! - *Capacity*: the most sessions in a table that was empty, all valid: doubled until it fails or reaches the
//!   limit, then binary search to 1/64.
//! - *Tear-down rate*: sessions in the table over the time that one command takes to remove all. Measured
//!   for the kernel only; Thalweg's `clear nat --all` is not timed, its sessions expire in memory
//!   ([`super::memory`]).
//! - *Established*: throughput (RFC 2544 26.1) outward over valid sessions, each used in turn.
//!
//! Differences from the RFC: throughput goes one way, over each session in turn. In phase 1 no two frames share an
//! inside endpoint (the RFC only wants different four-tuples), because Thalweg's sessions belong to inside
//! endpoints.

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

/// The factor by which a rate is lowered if not all sessions were valid, and how often.
const BACK_OFF: f64 = 0.8;
const ATTEMPTS: usize = 10;
/// The highest rate at which sessions are made and replied to when their rate is not measured, the lowest, and the
/// sessions by which the right one for a router is found: more than its buffers hold.
const CALM_PPS: f64 = 60_000.0;
const CALM_LEAST_PPS: f64 = 2_000.0;
const CALM_SESSIONS: u32 = 5_000;
/// How long a router may take to start.
const START_WAIT: Duration = Duration::from_secs(20);
/// Capacity is found to this fraction.
const CAPACITY_STEP: u32 = 64;
const SMALLEST_FRAME: usize = 64;

/// The result of a set-up search, in sessions per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetUp {
    /// The fastest rate at which all frames arrived.
    pub counted_pps: f64,
    /// The fastest of the rates tried whose sessions were all valid.
    pub valid_pps: f64,
}

/// A router that was set up, with the sessions not used yet.
pub struct Bench<'a> {
    topology: &'a Topology,
    subject: &'a dyn Subject,
    stop: &'a AtomicBool,
    /// Whether to clear the kernel's table before each trial.
    kernel: bool,
    /// Whether a session counts only under another endpoint.
    translates: bool,
    /// The rate at which the router makes sessions without loss, at most [`CALM_PPS`].
    calm_pps: f64,
    next: u32,
}

impl<'a> Bench<'a> {
    /// Waits until the router makes sessions.
    pub fn new(
        topology: &'a Topology,
        (subject, translates): (&'a dyn Subject, bool),
        stop: &'a AtomicBool,
    ) -> Result<Self, ForwardingError> {
        let kernel = subject.label().is_native();
        let mut bench = Self { topology, subject, stop, kernel, translates, calm_pps: CALM_PPS, next: 0 };
        let end = Instant::now() + START_WAIT;
        loop {
            let (valid, trial) = bench.piece(16, 2_000.0)?;
            if valid == 16 {
                bench.calm_down()?;
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

    /// Halves the calm rate until the router makes all sessions at it: a long list of rules may be slow.
    fn calm_down(&mut self) -> Result<(), ForwardingError> {
        while self.calm_pps > CALM_LEAST_PPS && self.piece(CALM_SESSIONS, self.calm_pps)?.0 < CALM_SESSIONS {
            self.calm_pps /= 2.0;
        }
        self.forget()
    }

    /// The fastest rate, up to `ceiling_pps`, at which `sessions` sessions can be made.
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

    /// Whether this many new sessions are all valid at the same time. The table should be empty before.
    pub fn holds(&mut self, sessions: u32) -> Result<bool, ForwardingError> {
        let first = self.next;
        let mut pieces = Vec::new();
        let mut opened = 0;
        while opened < sessions {
            let piece = (sessions - opened).min(CAPTURE_MAX);
            let (numbers, public) = self.open(piece, self.calm_pps)?;
            pieces.push((numbers, public));
            opened += piece;
        }
        // Replies are sent only now: the first piece's sessions must still exist when the last piece's are made.
        let mut valid = 0;
        for (numbers, public) in &pieces {
            valid += self.reply(numbers, public)?;
        }
        debug_assert_eq!(self.next - first, sessions);
        Ok(valid == sessions)
    }

    /// Makes sessions and searches for throughput over them.
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

    /// Makes sessions and removes all; returns sessions per second, or `None` for a router other than the kernel.
    pub fn tear_down_rate(&mut self, sessions: u32) -> Result<Option<f64>, ForwardingError> {
        if !self.kernel {
            return Ok(None);
        }
        self.forget()?;
        self.holds(sessions)?;
        let (elapsed_s, before) = forget_all(self.topology)?;
        Ok(Some(before as f64 / elapsed_s.max(f64::MIN_POSITIVE)))
    }

    /// Makes room for the next trial. Only the kernel needs it: Thalweg has room for all sessions that are ever
    /// opened.
    fn forget(&self) -> Result<(), ForwardingError> {
        if self.kernel { forget_all(self.topology).map(drop) } else { Ok(()) }
    }

    fn tester(&self, numbers: Range<u32>) -> Result<Tester<'a>, ForwardingError> {
        let flows: Vec<(Endpoint, Endpoint)> = numbers.map(session).collect();
        Tester::new(self.topology, Way::Router, smallest(), &flows, self.stop)
    }

    fn take(&mut self, sessions: u32) -> Range<u32> {
        // After the last numbers the first are used again; their sessions have expired long ago.
        let first = if SESSIONS_MAX - self.next < sessions { 0 } else { self.next };
        self.next = first + sessions;
        first..self.next
    }

    /// Phase 1, counting only.
    fn opened(&mut self, sessions: u32, rate_pps: f64) -> Result<Trial, ForwardingError> {
        self.forget()?;
        let numbers = self.take(sessions);
        let offer = Offer::paced(rate_pps, f64::from(sessions) / rate_pps);
        self.tester(numbers)?.trial(offer, &|| self.subject.cpu_s())
    }

    /// Phase 1; returns also the public endpoint of each session.
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
            // A frame that arrived untranslated is no session of NAT.
            let inside = session(numbers.start + frame.sequence).0;
            let is_right = !self.translates || frame.source != inside;
            if let Some(place) = public.get_mut(frame.sequence as usize)
                && is_right
                && frame.destination == remote
            {
                *place = Some(frame.source);
            }
        }
        Ok((numbers, public))
    }

    /// Phase 2: sends a reply to each known public endpoint; returns the number of valid sessions.
    fn reply(&self, numbers: &Range<u32>, public: &[Option<Endpoint>]) -> Result<u32, ForwardingError> {
        let learnt: Vec<(u32, Endpoint)> =
            numbers.clone().zip(public).filter_map(|(n, public)| Some((n, (*public)?))).collect();
        if learnt.is_empty() {
            return Ok(0);
        }
        let flows: Vec<(Endpoint, Endpoint)> =
            learnt.iter().map(|(n, public)| (session(*n).1, *public)).collect();
        let mut tester = Tester::new(self.topology, Way::Back, smallest(), &flows, self.stop)?;
        let (_, captured) =
            tester.captured(Offer::paced(self.calm_pps, flows.len() as f64 / self.calm_pps))?;
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

/// The frame size of all trials.
pub fn smallest() -> FrameSize {
    match FrameSize::new(SMALLEST_FRAME) {
        Ok(size) => size,
        Err(_) => unreachable!("the smallest frame is one"),
    }
}

/// The fastest rate of the generator alone.
pub fn ceiling(topology: &Topology, trial_s: f64, stop: &AtomicBool) -> Result<f64, ForwardingError> {
    let flows: Vec<(Endpoint, Endpoint)> = (0..CAPTURE_MAX).map(session).collect();
    let mut tester = Tester::new(topology, Way::Direct, smallest(), &flows, stop)?;
    tester.trial(Offer::flood(trial_s / 4.0), &|| 0.0)?;
    let pps = tester.trial(Offer::flood(trial_s), &|| 0.0)?.received_pps();
    if pps > 0.0 { Ok(pps) } else { Err(ForwardingError::NoGenerator) }
}

/// Sets a router up, calls `work` with it, and tears it down.
pub fn with_router<T>(
    (subject, translates): (&mut dyn Subject, bool),
    stop: &AtomicBool,
    work: impl FnOnce(&mut Bench<'_>) -> Result<T, ForwardingError>,
) -> Result<T, ForwardingError> {
    let task = Task { nat: true, table: &[], mtu: 1500 };
    if let Some(why) = subject.refuses(&task) {
        return Err(ForwardingError::Command { command: subject.label().to_string(), said: why });
    }
    let topology = Topology::new(1500)?;
    // The router's own configuration has translation, not the task's.
    let done = subject
        .set_up(&topology, &Task { nat: false, ..task })
        .and_then(|()| Bench::new(&topology, (&*subject, translates), stop))
        .and_then(|mut bench| work(&mut bench));
    subject.tear_down();
    done
}

/// The largest number up to `limit` that `holds`: doubled from `first` until it fails, then bisected to 1/64.
/// Returns also whether the limit itself held.
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

//! Counters of the server itself, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::problem::ProblemKind;

thalweg_base::words! {
    /// Why a connection ended other than by its client's wish.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Cut {
        /// Too many connections in all.
        Full => "connections-full",
        /// Too many of one client.
        ClientFull => "client-connections-full",
        /// The head of a request did not come in time.
        SlowHead => "slow-head",
        /// What came is no HTTP.
        Malformed => "malformed",
        /// It ended in the middle of a request.
        Truncated => "truncated",
        /// Nothing moved for a long time.
        Idle => "idle",
        /// The client takes nothing.
        Stalled => "stalled",
        /// A stream of events was too far behind.
        Behind => "events-behind",
        Tls => "tls",
    }
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) connections: AtomicU64,
    problems: [AtomicU64; ProblemKind::ALL.len()],
    cuts: [AtomicU64; Cut::ALL.len()],
}

impl Counters {
    pub(crate) fn problem(&self, kind: ProblemKind) {
        add(&ProblemKind::ALL, &self.problems, kind);
    }

    pub(crate) fn cut(&self, why: Cut) {
        add(&Cut::ALL, &self.cuts, why);
    }

    /// Each kind of problem and how often it was answered.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = self.problems.iter().map(|counter| counter.load(Ordering::Relaxed));
        ProblemKind::ALL.into_iter().map(ProblemKind::name).zip(values)
    }

    /// Each reason for the end of connections and its number.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = self.cuts.iter().map(|counter| counter.load(Ordering::Relaxed));
        Cut::ALL.into_iter().map(Cut::name).zip(values)
    }
}

fn add<T: PartialEq>(all: &[T], counters: &[AtomicU64], which: T) {
    let place = all.iter().position(|each| *each == which);
    if let Some(counter) = place.and_then(|place| counters.get(place)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

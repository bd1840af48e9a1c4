//! The life of a session with acknowledgments: with a collector on a stream, a topic of Kafka, or a table of
//! ClickHouse.
//!
//! ```text
//! loop: advance ──> report ──> done? ──> take from the queue          then: leave
//! ```
//!
//! A [`Session`] defines how to advance and what to take. [`Life`] has the common part: the counters, the
//! deadline, and the spool.

use super::report::{CollectorReport, Shared};
use super::spool::{Lost, Spool};
use super::{CollectorError, Input, SpoolOptions, TIMEOUT};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, RecordLoss, Unexportable};

/// The part that differs between sessions.
pub(super) trait Session: Sized {
    /// The progress of sending.
    type State: Copy;

    fn life(&mut self) -> &mut Life;

    /// Advances everything that needs no input.
    fn advance(&mut self) -> Self::State;

    /// Takes input from the queue if the state allows it; returns `false` if no more can ever arrive.
    fn take_input(&mut self, inputs: &Receiver<Input>, state: Self::State) -> bool;

    /// Whether something is in flight, or waits in memory.
    fn has_unsent(&self) -> bool;

    /// Updates the report.
    fn report(&mut self);

    /// Ends the session: unsent records go to the spool or are counted as lost.
    fn leave(self, inputs: &Receiver<Input>);

    fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let state = self.advance();
            self.report();
            let has_unsent = self.has_unsent() || !inputs.is_empty();
            if self.life().is_done(has_unsent) {
                break;
            }
            if !self.take_input(inputs, state) {
                // The sender is gone without a deadline; waiting records are still sent or kept.
                self.life().end.get_or_insert_with(|| Instant::now() + TIMEOUT);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.leave(inputs);
    }
}

/// The common part of all sessions.
pub(super) struct Life {
    pub(super) report: CollectorReport,
    shared: Arc<Shared>,
    pub(super) spool: Option<Spool>,
    pub(super) end: Option<Instant>,
}

impl Life {
    pub(super) fn open(spool: Option<&SpoolOptions>, shared: Arc<Shared>) -> Result<Self, CollectorError> {
        let spool = spool.map(Spool::open).transpose()?;
        let inherited = spool.as_ref().map_or(Amount::default(), Spool::amount);
        let report = CollectorReport {
            accepted: inherited,
            inherited,
            torn_files: spool.as_ref().map_or(0, Spool::torn_files),
            ..CollectorReport::default()
        };
        Ok(Self { report, shared, spool, end: None })
    }

    pub(super) fn has_spooled(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// Whether nothing is left to do, or the deadline has passed.
    fn is_done(&mut self, has_unsent: bool) -> bool {
        self.end = self.end.or(self.shared.end());
        self.end.is_some_and(|end| !(has_unsent || self.has_spooled()) || Instant::now() >= end)
    }

    /// The next spooled records.
    pub(super) fn next_spooled(&mut self) -> Option<Vec<FlowRecord>> {
        let spool = self.spool.as_mut().filter(|spool| !spool.is_empty())?;
        match spool.read() {
            Ok(read) => {
                self.report.lose_in_spool(read.lost);
                Some(read.records)
            }
            Err(error) => {
                // The spool is unreadable: its content is lost to this session.
                self.report.lose_in_spool(Lost { amount: spool.amount(), error: Some(error) });
                self.spool = None;
                None
            }
        }
    }

    /// Spools records, or counts them as lost.
    pub(super) fn keep(&mut self, records: &[FlowRecord]) {
        let amount = Amount::of_all(records);
        match &mut self.spool {
            Some(spool) => match spool.append(records) {
                Ok(true) => {}
                Ok(false) => self.report.lose(RecordLoss::SpoolFull, amount),
                Err(error) => self.report.lose_in_spool(Lost { amount, error: Some(error) }),
            },
            None => self.report.lose(RecordLoss::Ended, amount),
        }
    }

    /// For the end: spools records before all others, or counts them as lost.
    pub(super) fn put_back(&mut self, records: &[FlowRecord]) {
        match &mut self.spool {
            Some(spool) => self.report.lose_in_spool(spool.put_back(records)),
            None => self.report.lose(RecordLoss::Ended, Amount::of_all(records)),
        }
    }

    /// Counts NAT events, for sessions that have no form for them.
    pub(super) fn refuse_events(&mut self, events: usize) {
        let amount = Amount { records: events as u64, ..Amount::default() };
        self.report.accepted += amount;
        self.report.export.unexportable[Unexportable::NatEvent as usize] += amount;
    }

    /// Whether the deadline, if there is one, has not passed.
    pub(super) fn has_time(&self) -> bool {
        self.end.or(self.shared.end()).is_none_or(|end| Instant::now() < end)
    }

    /// Makes the report visible to others.
    pub(super) fn publish(&mut self) {
        self.report.spooled = self.spool.as_ref().map_or(Amount::default(), Spool::amount);
        self.shared.set_report(&self.report);
    }
}

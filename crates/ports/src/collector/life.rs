//! The life of a session that acknowledges: with a collector on a stream, or a topic of Kafka.
//!
//! ```text
//! loop: advance ──> report ──> done? ──> take from the queue          then: leave
//! ```
//!
//! A [`Session`] says what advancing and taking mean. What does not depend on that is in [`Life`]: the counters, the time of the
//! end, and the spool.

use super::report::{CollectorReport, Loss, Shared};
use super::spool::{Lost, Spool};
use super::{CollectorError, Input, SpoolOptions, TIMEOUT};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;

/// What differs between sessions.
pub(super) trait Session: Sized {
    /// How far sending has come.
    type State: Copy;

    fn life(&mut self) -> &mut Life;

    /// Moves things on, without input.
    fn advance(&mut self) -> Self::State;

    /// Takes something from the queue, if it is wanted now; `false` if nothing can ever come.
    fn take_input(&mut self, inputs: &Receiver<Input>, state: Self::State) -> bool;

    /// Whether something is in flight, or waits in memory.
    fn has_unsent(&self) -> bool;

    /// Writes down what was done so far.
    fn report(&mut self);

    /// The end: what was not sent goes to the spool, or is counted as lost.
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
                // Nobody is left to say when; what there is is still sent, or kept.
                self.life().end.get_or_insert_with(|| Instant::now() + TIMEOUT);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.leave(inputs);
    }
}

/// What is the same in all sessions.
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

    /// Whether something waits on disk.
    pub(super) fn has_spooled(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// Whether there is nothing left to do, or no time.
    fn is_done(&mut self, has_unsent: bool) -> bool {
        self.end = self.end.or(self.shared.end());
        self.end.is_some_and(|end| !(has_unsent || self.has_spooled()) || Instant::now() >= end)
    }

    /// The next records that waited on disk.
    pub(super) fn next_spooled(&mut self) -> Option<Vec<FlowRecord>> {
        let spool = self.spool.as_mut().filter(|spool| !spool.is_empty())?;
        match spool.read() {
            Ok(read) => {
                self.report.lose_in_spool(read.lost);
                Some(read.records)
            }
            Err(error) => {
                // A folder that cannot be read any more: what is in it is lost to this session.
                self.report.lose_in_spool(Lost { amount: spool.amount(), error: Some(error) });
                self.spool = None;
                None
            }
        }
    }

    /// Keeps records on disk, or counts them as lost.
    pub(super) fn keep(&mut self, records: &[FlowRecord]) {
        let amount = Amount::of_all(records);
        match &mut self.spool {
            Some(spool) => match spool.append(records) {
                Ok(true) => {}
                Ok(false) => self.report.lose(Loss::SpoolFull, amount),
                Err(error) => self.report.lose_in_spool(Lost { amount, error: Some(error) }),
            },
            None => self.report.lose(Loss::Ended, amount),
        }
    }

    /// Puts records on disk before everything that waits there, at the end, or counts them as lost.
    pub(super) fn put_back(&mut self, records: &[FlowRecord]) {
        match &mut self.spool {
            Some(spool) => self.report.lose_in_spool(spool.put_back(records)),
            None => self.report.lose(Loss::Ended, Amount::of_all(records)),
        }
    }

    /// Lets others read what was done so far.
    pub(super) fn publish(&mut self) {
        self.report.spooled = self.spool.as_ref().map_or(Amount::default(), Spool::amount);
        self.shared.set_report(&self.report);
    }
}

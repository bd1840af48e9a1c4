//! ClickHouse as a collector: records become rows of a table, inserted in blocks by HTTP.
//!
//! ```text
//! send ──> queue ──> gathered ──> block ──> POST ──> 200: in the table
//!        (bounded)  (bounded)       ^         │
//!                   └─ down ──> spool       else: the same block again
//! ```
//!
//! A table wants few large inserts: records are gathered until there are [`BLOCK_RECORDS_MAX`], or the first of
//! them has waited for `wait_ms`. The format is RowBinary, with the columns named in the query.
//!
//! **Counters.** A record counts as sent when the server has answered 200. They balance as in `collector.rs`.
//!
//! **Duplicates.** A block whose answer is missing may be in the table. It is sent again as it was, byte for
//! byte, and its records count as `resent`: a table that remembers its last blocks
//! (`non_replicated_deduplication_window`; replicated ones do) drops the second one. Blocks of a spool that
//! another process sends are cut anew, so records may be there twice after that.
//!
//! **A server that is down** is one that has refused or failed for [`TIMEOUT`](super::TIMEOUT), for whatever
//! reason: a wrong password or a missing table can be mended, too. Then records go to the spool; without one
//! they are counted as `collector-down`.

mod address;

pub use address::ClickHouseAddress;

use super::life::{Life, Session};
use super::report::{Connection, Shared};
use super::{CollectorError, Encode, Input, SpoolOptions, TIMEOUT, Tls, TlsOptions};
use crate::http::{PostError, Request, Server, percent_encoded};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, RecordLoss};

/// The most records of an insert: with names some 30 MB as rows, and as much as records.
const BLOCK_RECORDS_MAX: usize = 1 << 16;
/// How long to wait for an answer: a server may be busy merging.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The first pause after a failed insert.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// How long to wait for the queue.
const TURN: Duration = Duration::from_millis(20);
/// The most characters of a server's reason.
const REASON_MAX: usize = 200;

/// How to insert into a table, in addition to the address.
pub struct ClickHouseOptions {
    /// The names of the columns of a row, in order.
    pub columns: Vec<&'static str>,
    pub encode: Encode,
    /// Stores records while the server is down.
    pub spool: Option<SpoolOptions>,
    /// For `clickhouse+tls://`.
    pub tls: TlsOptions,
    /// The longest pause between two attempts.
    pub retry_max: Duration,
}

impl ClickHouseOptions {
    /// The default options.
    pub fn new(columns: Vec<&'static str>, encode: Encode) -> Self {
        let (spool, tls) = (None, TlsOptions::default());
        Self { columns, encode, spool, tls, retry_max: Duration::from_secs(10) }
    }
}

/// A table's sender; see the module documentation.
pub(super) struct Outlet {
    server: Server,
    path: String,
    header: String,
    encode: Encode,
    life: Life,
    wait: Duration,
    /// Records for a later insert, and when the first of them came.
    gathered: Vec<FlowRecord>,
    since: Instant,
    /// The next insert; it stays as it is until the server has it.
    block: Vec<FlowRecord>,
    body: Vec<u8>,
    /// The server may have the block already.
    may_be_there: bool,
    failing_since: Option<Instant>,
    pause_until: Instant,
    pause: Duration,
    pause_max: Duration,
}

impl Outlet {
    pub(super) fn open(
        address: &ClickHouseAddress,
        options: ClickHouseOptions,
        shared: Arc<Shared>,
    ) -> Result<Self, CollectorError> {
        let tls = address.has_tls.then(|| Tls::new(&options.tls, &address.host)).transpose()?;
        let now = Instant::now();
        let query = format!("INSERT INTO {} ({}) FORMAT RowBinary", address.table, options.columns.join(","));
        Ok(Self {
            server: Server { host: address.host.clone(), port: address.port, tls },
            path: format!("/?wait_end_of_query=1&query={}", percent_encoded(&query)),
            header: address.credentials()?,
            encode: options.encode,
            life: Life::open(options.spool.as_ref(), shared)?,
            wait: address.wait,
            gathered: Vec::new(),
            since: now,
            block: Vec::new(),
            body: Vec::new(),
            may_be_there: false,
            failing_since: None,
            pause_until: now,
            pause: RETRY_MIN,
            pause_max: options.retry_max.max(RETRY_MIN),
        })
    }

    fn is_down(&self) -> bool {
        self.failing_since.is_some_and(|since| since.elapsed() >= TIMEOUT)
    }

    /// Whether gathered records need not wait for others.
    fn is_due(&self) -> bool {
        self.gathered.len() >= BLOCK_RECORDS_MAX
            || self.life.end.is_some()
            || self.since.elapsed() >= self.wait
    }

    /// Makes the next block: of what was gathered, which came before anything in the spool, or of the spool.
    fn next_block(&mut self) {
        if !self.gathered.is_empty() {
            if self.life.has_spooled() || self.is_due() {
                let rest = self.gathered.split_off(self.gathered.len().min(BLOCK_RECORDS_MAX));
                self.block = std::mem::replace(&mut self.gathered, rest);
            }
        } else {
            while self.block.len() < BLOCK_RECORDS_MAX
                && let Some(records) = self.life.next_spooled()
            {
                self.block.extend(records);
            }
        }
        self.body.clear();
        self.block.iter().for_each(|record| (self.encode)(record, &mut self.body));
    }

    fn insert(&mut self) {
        let amount = Amount::of_all(&self.block);
        if std::mem::take(&mut self.may_be_there) {
            self.life.report.resent += amount;
        }
        let (began, life) = (Instant::now(), &self.life);
        let waits = || life.has_time() && began.elapsed() < ANSWER_WITHIN;
        let request = Request { method: "POST", path: &self.path, header: &self.header, body: &self.body };
        let posted = self.server.post(&request, &waits);
        let report = &mut self.life.report;
        let why = match posted {
            Ok(()) => {
                report.sent += amount;
                report.connects += u64::from(report.connection != Connection::Up);
                report.connection = Connection::Up;
                (self.failing_since, self.pause) = (None, RETRY_MIN);
                self.block.clear();
                return;
            }
            Err(PostError::Connect(error)) => error.to_string(),
            Err(PostError::Broken(error)) => {
                self.may_be_there = true;
                format!("no answer to an insert: {error}")
            }
            Err(PostError::Refused { line, text }) => {
                let text = text.lines().next().unwrap_or_default();
                format!("{line}: {text}").chars().take(REASON_MAX).collect()
            }
        };
        report.refused += 1;
        report.last_error = Some(why.clone());
        report.connection = Connection::Down(why);
        self.failing_since.get_or_insert_with(Instant::now);
        self.pause_until = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(self.pause_max);
    }

    fn accept(&mut self, records: Vec<FlowRecord>) {
        let amount = Amount::of_all(&records);
        self.life.report.accepted += amount;
        let keeps = self.failing_since.is_some() || self.life.has_spooled();
        match &self.life.spool {
            Some(_) if keeps => self.life.keep(&records),
            None if self.is_down() => self.life.report.lose(RecordLoss::CollectorDown, amount),
            _ => {
                if self.gathered.is_empty() {
                    self.since = Instant::now();
                }
                self.gathered.extend(records);
            }
        }
    }
}

impl Session for Outlet {
    /// Whether more can be gathered.
    type State = bool;

    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn advance(&mut self) -> bool {
        if Instant::now() >= self.pause_until {
            if self.block.is_empty() {
                self.next_block();
            }
            if !self.block.is_empty() {
                self.insert();
            }
        }
        self.failing_since.is_none() && self.gathered.len() < BLOCK_RECORDS_MAX
    }

    fn take_input(&mut self, inputs: &Receiver<Input>, has_room: bool) -> bool {
        let crowded = inputs.len() * 2 > inputs.capacity().unwrap_or(usize::MAX);
        let has_spool_room = self.life.spool.as_ref().is_some_and(|spool| spool.has_room());
        let wants = has_room || self.is_down() || crowded && has_spool_room;
        if !wants || (self.life.end.is_some() && inputs.is_empty()) {
            if self.failing_since.is_some() || self.block.is_empty() && self.gathered.is_empty() {
                std::thread::sleep(TURN);
            }
            return true;
        }
        // Spooled records need not wait for new ones.
        let turn = if self.life.has_spooled() && has_room { Duration::ZERO } else { TURN };
        match inputs.recv_timeout(turn) {
            Ok(Input::Records(records)) => self.accept(records),
            Ok(Input::End(deadline)) => self.life.end = Some(deadline),
            Ok(Input::NatEvents(events)) => self.life.refuse_events(events.len()),
            Ok(Input::Statistics(_) | Input::Interfaces(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    fn has_unsent(&self) -> bool {
        !self.block.is_empty() || !self.gathered.is_empty()
    }

    fn report(&mut self) {
        self.life.report.in_flight = Amount::of_all(self.block.iter().chain(&self.gathered));
        self.life.publish();
    }

    fn leave(mut self, inputs: &Receiver<Input>) {
        let mut left = std::mem::take(&mut self.block);
        left.append(&mut self.gathered);
        self.life.put_back(&left);
        for input in inputs.try_iter() {
            if let Input::Records(records) = input {
                self.life.report.accepted += Amount::of_all(&records);
                self.life.keep(&records);
            }
        }
        Session::report(&mut self);
    }
}

#[cfg(test)]
mod tests;

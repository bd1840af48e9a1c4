//! The worker for a collector that receives a stream.
//!
//! ```text
//!            connected                      error, closed
//!   Down ───────────────> Up ────────────────────────────────> Down
//!    │ queue -> spool      │ 1. what was in flight when the last connection ended
//!    │                     │ 2. the spool        3. the queue
//!    └ retry, doubling     └ encoded batch by batch, the next when the last is written
//! ```
//!
//! While the spool is not empty, new records go behind it, which keeps the order.

use super::life::{Life, Session};
use super::link::Link;
use super::report::{Connection, Shared};
use super::spool::Spool;
use super::tls::Tls;
use super::{Carrier, CollectorAddress, CollectorError, CollectorOptions, Input, TIMEOUT};
use crate::live::wall_ns;
use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError, bounded};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, Exporter, NatEvent, RecordLoss, Statistics};

const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest time between two checks of timers and the connection.
const TURN: Duration = Duration::from_millis(50);

/// A session over streams; see the module documentation.
pub(super) struct Stream {
    address: CollectorAddress,
    tls: Option<Tls>,
    exporter: Exporter,
    life: Life,
    line: Line,
    down_since: Instant,
    retry: Duration,
    retry_max: Duration,
    /// Sent and not acknowledged, oldest first.
    flight: VecDeque<Flight>,
    /// Sent before everything else: these batches were in flight when a connection ended.
    again: VecDeque<Batch>,
    statistics: Statistics,
    checked: Instant,
}

enum Line {
    Waiting(Instant),
    Connecting(Receiver<Result<Link, CollectorError>>),
    Up(Link),
}

enum Batch {
    Records(Vec<FlowRecord>),
    NatEvents(Vec<NatEvent>),
}

impl Batch {
    fn amount(&self) -> Amount {
        match self {
            Self::Records(records) => Amount::of_all(records),
            Self::NatEvents(events) => Amount { records: events.len() as u64, ..Amount::default() },
        }
    }
}

struct Flight {
    batch: Batch,
    /// The part of it that is in messages.
    amount: Amount,
    /// The stream position of its last byte, once it is written.
    end: Option<u64>,
}

impl Stream {
    pub(super) fn open(
        address: &CollectorAddress,
        options: &CollectorOptions,
        exporter: Exporter,
        shared: Arc<Shared>,
    ) -> Result<Self, CollectorError> {
        let tls = match address.carrier {
            Carrier::Tls => Some(Tls::new(&options.tls, &address.host)?),
            Carrier::Tcp | Carrier::Udp => None,
        };
        let life = Life::open(options.spool.as_ref(), shared)?;
        let now = Instant::now();
        Ok(Self {
            address: address.clone(),
            tls,
            exporter,
            life,
            line: Line::Waiting(now),
            down_since: now,
            retry: RETRY_MIN,
            retry_max: options.retry_max.max(RETRY_MIN),
            flight: VecDeque::new(),
            again: VecDeque::new(),
            statistics: Statistics::default(),
            checked: now,
        })
    }

    /// Starts a connection attempt when it is due, and takes its result.
    fn poll_connect(&mut self) {
        match &self.line {
            Line::Waiting(until) if Instant::now() >= *until => {
                let (done, result) = bounded(1);
                let (address, tls) = (self.address.clone(), self.tls.clone());
                let connect = move || {
                    // A worker that ended meanwhile no longer needs it.
                    let _ = done.send(Link::connect(&address, tls.as_ref()));
                };
                match std::thread::Builder::new().name("connect".to_owned()).spawn(connect) {
                    Ok(_) => self.line = Line::Connecting(result),
                    Err(source) => self.failed(CollectorError::Thread { source }.to_string()),
                }
            }
            Line::Waiting(_) | Line::Up(_) => {}
            Line::Connecting(result) => match result.try_recv() {
                Ok(Ok(link)) => self.connected(link),
                Ok(Err(error)) => self.failed(error.to_string()),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    self.failed("connecting ended without an answer".to_owned())
                }
            },
        }
    }

    fn connected(&mut self, link: Link) {
        self.line = Line::Up(link);
        self.life.report.connection = Connection::Up;
        self.life.report.connects += 1;
        self.retry = RETRY_MIN;
        self.exporter.handle_connected(wall_ns());
    }

    fn failed(&mut self, why: String) {
        self.life.report.refused += 1;
        self.wait(why);
    }

    fn wait(&mut self, why: String) {
        self.life.report.last_error = Some(why.clone());
        self.life.report.connection = Connection::Down(why);
        self.line = Line::Waiting(Instant::now() + self.retry);
        self.retry = (self.retry * 2).min(self.retry_max);
    }

    /// The connection ended: unacknowledged batches must be sent again, before everything else.
    fn lost_connection(&mut self, why: String) {
        self.down_since = Instant::now();
        self.exporter.handle_connected(wall_ns());
        for flight in self.flight.drain(..).rev() {
            self.life.report.resent += flight.amount;
            self.again.push_front(flight.batch);
        }
        self.wait(why);
    }

    /// Returns whether nothing can be done until new input arrives.
    fn work_on_line(&mut self) -> std::io::Result<bool> {
        let Line::Up(link) = &mut self.line else { return Ok(true) };
        let all_written = link.advance()?;
        if all_written {
            let position = link.position();
            self.flight.iter_mut().for_each(|flight| flight.end = flight.end.or(Some(position)));
        }
        if !self.flight.is_empty() {
            let acknowledged = link.acknowledged()?;
            while let Some(flight) = self.flight.front() {
                if flight.end.is_none_or(|end| end > acknowledged) {
                    break;
                }
                self.life.report.sent += flight.amount;
                self.flight.pop_front();
            }
        }
        if self.checked.elapsed() >= TURN {
            self.checked = Instant::now();
            link.check()?;
            self.exporter.handle_statistics(self.statistics.clone());
            self.exporter.handle_time(wall_ns());
            self.queue_messages()?;
        }
        if !all_written {
            return Ok(false);
        }
        match self.next_kept() {
            Some(batch) => self.encode(batch).map(|()| false),
            None => Ok(true),
        }
    }

    /// The next waiting batch.
    fn next_kept(&mut self) -> Option<Batch> {
        self.again.pop_front().or_else(|| self.life.next_spooled().map(Batch::Records))
    }

    /// Encodes a batch and queues its messages. The last message is closed, so that the position of the
    /// batch's last byte is known.
    fn encode(&mut self, batch: Batch) -> std::io::Result<()> {
        let now_ns = wall_ns();
        let before = self.exporter.totals().exported;
        match &batch {
            Batch::Records(records) => self.exporter.handle_records(records, now_ns),
            Batch::NatEvents(events) => self.exporter.handle_nat_events(events, now_ns),
        }
        self.exporter.flush(now_ns);
        let after = self.exporter.totals().exported;
        let amount = Amount {
            records: after.records - before.records,
            packets: after.packets - before.packets,
            bytes: after.bytes - before.bytes,
        };
        // In flight before it is written: if writing fails, it can be sent again.
        self.flight.push_back(Flight { batch, amount, end: None });
        self.queue_messages()
    }

    fn queue_messages(&mut self) -> std::io::Result<()> {
        let Line::Up(link) = &mut self.line else { return Ok(()) };
        let mut message = Vec::new();
        while self.exporter.poll_message(&mut message).is_some() {
            link.queue(&message)?;
        }
        Ok(())
    }

    /// Handles a batch from the queue: sends it if that keeps the order; otherwise spools it or counts it as
    /// lost.
    fn accept(&mut self, batch: Batch) {
        let amount = batch.amount();
        self.life.report.accepted += amount;
        let is_free = match &self.line {
            Line::Up(link) => !link.has_pending() && self.again.is_empty() && !self.life.has_spooled(),
            Line::Waiting(_) | Line::Connecting(_) => false,
        };
        if is_free {
            if let Err(error) = self.encode(batch) {
                self.lost_connection(error.to_string());
            }
            return;
        }
        match (&self.life.spool, &batch) {
            (Some(_), Batch::Records(_)) => self.keep(&batch),
            _ if matches!(self.line, Line::Up(_)) => self.again.push_back(batch),
            _ => self.life.report.lose(RecordLoss::CollectorDown, amount),
        }
    }

    /// Spools a batch, or counts it as lost.
    fn keep(&mut self, batch: &Batch) {
        match batch {
            Batch::Records(records) => self.life.keep(records),
            Batch::NatEvents(_) => self.life.report.lose(RecordLoss::Ended, batch.amount()),
        }
    }
}

impl Session for Stream {
    /// Whether nothing can be done until new input arrives.
    type State = bool;

    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn advance(&mut self) -> bool {
        self.poll_connect();
        self.work_on_line().unwrap_or_else(|why| {
            self.lost_connection(why.to_string());
            true
        })
    }

    fn has_unsent(&self) -> bool {
        !self.flight.is_empty() || !self.again.is_empty()
    }

    fn take_input(&mut self, inputs: &Receiver<Input>, is_idle: bool) -> bool {
        let is_up = matches!(self.line, Line::Up(_));
        let spools = self.life.spool.is_some();
        // A busy connection takes nothing; the queue then fills, and with a spool its overflow goes there.
        let crowded = inputs.len() * 2 > inputs.capacity().unwrap_or(usize::MAX);
        let given_up = !is_up && self.down_since.elapsed() >= TIMEOUT;
        // A slow connection that is up must not lose records: the queue waits.
        let has_room = self.life.spool.as_ref().is_some_and(Spool::has_room);
        let wants = if is_up { is_idle || (has_room && crowded) } else { spools || given_up };
        if self.life.end.is_some() && inputs.is_empty() {
            std::thread::sleep(if is_up { Duration::from_millis(1) } else { Duration::from_millis(10) });
            return true;
        }
        if !wants {
            if !is_up {
                std::thread::sleep(Duration::from_millis(10));
            }
            return true;
        }
        // While batches are in flight, acknowledgments are checked more often.
        let turn = if self.flight.is_empty() && is_up { TURN } else { Duration::from_millis(5) };
        match inputs.recv_timeout(turn) {
            Ok(Input::Records(batch)) => self.accept(Batch::Records(batch)),
            Ok(Input::NatEvents(events)) => self.accept(Batch::NatEvents(events)),
            Ok(Input::Statistics(statistics)) => self.statistics = *statistics,
            Ok(Input::Interfaces(interfaces)) => {
                self.exporter.handle_interfaces(interfaces, wall_ns());
            }
            Ok(Input::End(deadline)) => self.life.end = Some(deadline),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// For the end: sends the last statistics if connected; unsent batches go back to the spool.
    fn leave(mut self, inputs: &Receiver<Input>) {
        let flight = self.flight.drain(..).map(|flight| flight.batch);
        let mut left = Vec::new();
        for batch in flight.chain(self.again.drain(..)) {
            match batch {
                Batch::Records(records) => left.extend(records),
                Batch::NatEvents(_) => self.life.report.lose(RecordLoss::Ended, batch.amount()),
            }
        }
        self.life.put_back(&left);
        for input in inputs.try_iter() {
            let batch = match input {
                Input::Records(records) => Batch::Records(records),
                Input::NatEvents(events) => Batch::NatEvents(events),
                Input::Statistics(_) | Input::Interfaces(_) | Input::End(_) => continue,
            };
            self.life.report.accepted += batch.amount();
            self.keep(&batch);
        }
        // Only statistics are left, which may be lost.
        self.exporter.handle_end(wall_ns());
        let _ = self.queue_messages();
        Session::report(&mut self);
        if let Line::Up(link) = self.line {
            link.close();
        }
    }

    fn report(&mut self) {
        let report = &mut self.life.report;
        report.in_flight = Amount::default();
        self.flight.iter().for_each(|flight| report.in_flight += flight.amount);
        self.again.iter().for_each(|batch| report.in_flight += batch.amount());
        report.export = *self.exporter.totals();
        self.statistics.not_sent = report.lost_in_all();
        self.life.publish();
    }
}

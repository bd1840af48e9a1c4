//! The thread that passes records to librdkafka and processes delivery reports.
//!
//! librdkafka has its own threads for brokers; nothing here waits for them. A record that it has received
//! stays in `flight`, under a number that returns with the delivery report.

use super::client::{
    FLIGHT_RECORDS_MAX, RETRY_MIN, Reports, failed, is_about_the_message, producer, producing, secure,
};
use super::{KafkaAddress, KafkaOptions};
use crate::collector::life::{Life, Session};
use crate::collector::report::{Connection, Shared};
use crate::collector::{CollectorError, Encode, Input, TIMEOUT};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use rdkafka::config::ClientConfig;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, PurgeConfig};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, RecordLoss, flow_hash};

/// Records that are put back at a time.
const BATCH_RECORDS: usize = 1024;
/// How long to wait for the queue with nothing in flight, and with something in flight.
const TURN: Duration = Duration::from_millis(50);
const TURN_IN_FLIGHT: Duration = Duration::from_millis(5);
/// How long to wait for an abandoned client.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(1);

/// A topic's sender; see the module documentation.
pub(in crate::collector) struct Outlet {
    address: KafkaAddress,
    encode: Encode,
    client: ClientConfig,
    producer: BaseProducer<Reports>,
    life: Life,
    /// The client's records, by number.
    flight: BTreeMap<usize, FlowRecord>,
    in_flight: Amount,
    next_number: usize,
    /// Sent before everything else.
    again: VecDeque<Vec<FlowRecord>>,
    /// The time of the last acknowledgment, or when nothing was waiting for one.
    moved: Instant,
    /// Messages were refused temporarily, and none was acknowledged since.
    is_troubled: bool,
    pause_until: Instant,
    pause: Duration,
    pause_max: Duration,
    message: Vec<u8>,
}

/// The progress of sending.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::collector) enum State {
    /// Everything waiting was passed on: more can be taken.
    Free,
    /// More of the waiting records can be passed on.
    Busy,
    /// The client has no room, or a pause is in effect.
    Full,
}

impl Outlet {
    pub(in crate::collector) fn open(
        address: &KafkaAddress,
        options: KafkaOptions,
        shared: Arc<Shared>,
    ) -> Result<Self, CollectorError> {
        let mut client = producing(address, options.retry_max);
        secure(&mut client, address, &options.tls)?;
        let producer = producer(&client).map_err(|error| failed(address, error.to_string()))?;
        let life = Life::open(options.spool.as_ref(), shared)?;
        let now = Instant::now();
        Ok(Self {
            address: address.clone(),
            encode: options.encode,
            client,
            producer,
            life,
            flight: BTreeMap::new(),
            in_flight: Amount::default(),
            next_number: 1,
            again: VecDeque::new(),
            moved: now,
            is_troubled: false,
            pause_until: now,
            pause: RETRY_MIN,
            pause_max: options.retry_max.max(RETRY_MIN),
            message: Vec::new(),
        })
    }

    /// Processes delivery reports.
    fn take_acknowledgments(&mut self) {
        let mut again = Vec::new();
        for (number, error) in Reports::of(&self.producer) {
            let Some(record) = self.flight.remove(&number) else { continue };
            let amount = Amount::of(&record);
            self.in_flight -= amount;
            match error {
                None => {
                    self.life.report.sent += amount;
                    self.life.report.connection = Connection::Up;
                    (self.is_troubled, self.moved, self.pause) = (false, Instant::now(), RETRY_MIN);
                }
                Some(code) if is_about_the_message(code) => {
                    self.life.report.lose(RecordLoss::MessageRefused, amount)
                }
                Some(code) => {
                    self.life.report.resent += amount;
                    self.life.report.connection = Connection::Down(code.to_string());
                    again.push((number, record));
                }
            }
        }
        if !again.is_empty() {
            again.sort_unstable_by_key(|(number, _)| *number);
            self.put_back(again.into_iter().map(|(_, record)| record).collect());
            self.wait();
        }
        if self.producer.client().fatal_error().is_some() && Instant::now() >= self.pause_until {
            self.renew();
        }
    }

    /// Replaces a client that cannot continue; the new one is sent the old one's records.
    fn renew(&mut self) {
        match producer(&self.client) {
            Ok(producer) => {
                let records = self.give_up();
                records.iter().for_each(|record| self.life.report.resent += Amount::of(record));
                self.put_back(records);
                self.producer = producer;
            }
            Err(error) => self.life.report.connection = Connection::Down(error.to_string()),
        }
        self.wait();
    }

    /// Takes back the records that the client has not delivered, in order.
    fn give_up(&mut self) -> Vec<FlowRecord> {
        // Unsent messages cannot have arrived. Sent ones may still be acknowledged, and would be duplicates
        // if sent again. After the wait, unreported ones are taken back too.
        for purged in [PurgeConfig::default().queue(), PurgeConfig::default().inflight()] {
            self.producer.purge(purged);
            let _ = self.producer.flush(GIVEN_UP_WITHIN);
        }
        for (number, error) in Reports::of(&self.producer) {
            if error.is_none()
                && let Some(record) = self.flight.remove(&number)
            {
                self.in_flight -= Amount::of(&record);
                self.life.report.sent += Amount::of(&record);
            }
        }
        self.in_flight = Amount::default();
        std::mem::take(&mut self.flight).into_values().collect()
    }

    /// Puts records before everything that waits.
    fn put_back(&mut self, records: Vec<FlowRecord>) {
        // In pieces, because the rest of a piece is moved whenever a part of it was sent.
        for batch in records.rchunks(BATCH_RECORDS) {
            self.again.push_front(batch.to_vec());
        }
    }

    fn wait(&mut self) {
        self.is_troubled = true;
        self.pause_until = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(self.pause_max);
    }

    /// Whether the last acknowledgment is too long ago to expect more.
    fn is_down(&self) -> bool {
        (!self.flight.is_empty() || !self.again.is_empty()) && self.moved.elapsed() >= TIMEOUT
    }

    /// Passes on a batch of waiting records.
    fn work(&mut self) -> State {
        // Records are safer on disk than in a full buffer.
        if Instant::now() < self.pause_until || self.flight.len() >= FLIGHT_RECORDS_MAX {
            return State::Full;
        }
        let Some(batch) = self.next_kept() else { return State::Free };
        if self.hand_over(batch) { State::Busy } else { State::Full }
    }

    fn next_kept(&mut self) -> Option<Vec<FlowRecord>> {
        self.again.pop_front().or_else(|| self.life.next_spooled())
    }

    /// Passes records to the client and keeps those for which it has no room. Returns whether it took all of
    /// them.
    fn hand_over(&mut self, mut records: Vec<FlowRecord>) -> bool {
        let refused = (0..records.len()).find(|place| !self.give(&records[*place]));
        if let Some(place) = refused {
            records.drain(..place);
            self.again.push_front(records);
        }
        refused.is_none()
    }

    /// Passes a record to the client; returns `true` if it took the record or never will.
    fn give(&mut self, record: &FlowRecord) -> bool {
        if self.flight.len() >= FLIGHT_RECORDS_MAX {
            return false;
        }
        let amount = Amount::of(record);
        self.message.clear();
        (self.encode)(record, &mut self.message);
        let key = flow_hash(record).to_be_bytes();
        let message = BaseRecord::with_opaque_to(&self.address.topic, self.next_number)
            .key(&key[..])
            .payload(&self.message);
        match self.producer.send(message) {
            Ok(()) => {
                if self.flight.is_empty() && !self.is_troubled {
                    self.moved = Instant::now();
                }
                self.flight.insert(self.next_number, *record);
                self.in_flight += amount;
                self.next_number += 1;
                true
            }
            Err((error, _)) => match error.rdkafka_error_code() {
                Some(Code::QueueFull) => false,
                Some(code) if is_about_the_message(code) => {
                    self.life.report.lose(RecordLoss::MessageRefused, amount);
                    true
                }
                _ => {
                    self.life.report.connection = Connection::Down(error.to_string());
                    self.wait();
                    false
                }
            },
        }
    }

    /// Handles a batch from the queue: passes it on if that keeps the order; otherwise spools it or counts it
    /// as lost.
    fn accept(&mut self, batch: Vec<FlowRecord>, state: State) {
        let amount = Amount::of_all(&batch);
        self.life.report.accepted += amount;
        if state == State::Free && !self.life.has_spooled() {
            // Records that do not fit are first next time.
            self.hand_over(batch);
            return;
        }
        match &self.life.spool {
            Some(_) => self.life.keep(&batch),
            None => self.life.report.lose(RecordLoss::CollectorDown, amount),
        }
    }
}

impl Session for Outlet {
    type State = State;

    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn advance(&mut self) -> State {
        self.take_acknowledgments();
        self.work()
    }

    fn has_unsent(&self) -> bool {
        !self.flight.is_empty() || !self.again.is_empty()
    }

    fn take_input(&mut self, inputs: &Receiver<Input>, state: State) -> bool {
        let crowded = inputs.len() * 2 > inputs.capacity().unwrap_or(usize::MAX);
        let wants = match (state, &self.life.spool) {
            (State::Free, None) => true,
            (State::Free, Some(spool)) if spool.is_empty() => true,
            // A slow client fills the spool without losing records; when the spool is full, the queue must
            // wait.
            (_, Some(spool)) => crowded && spool.has_room() || self.is_down(),
            (State::Busy | State::Full, None) => self.is_down(),
        };
        let turn = if self.flight.is_empty() && self.again.is_empty() { TURN } else { TURN_IN_FLIGHT };
        if !wants || (self.life.end.is_some() && inputs.is_empty()) {
            if state != State::Busy {
                std::thread::sleep(TURN_IN_FLIGHT);
            }
            return true;
        }
        match inputs.recv_timeout(turn) {
            Ok(Input::Records(batch)) => self.accept(batch, state),
            Ok(Input::End(deadline)) => self.life.end = Some(deadline),
            // A topic of flows takes nothing else.
            Ok(Input::NatEvents(events)) => self.life.refuse_events(events.len()),
            Ok(Input::Statistics(_) | Input::Interfaces(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }

    /// For the end: unacknowledged records go back to the spool, followed by records nobody took.
    fn leave(mut self, inputs: &Receiver<Input>) {
        let mut left = self.give_up();
        left.extend(self.again.drain(..).flatten());
        self.life.put_back(&left);
        for input in inputs.try_iter() {
            if let Input::Records(batch) = input {
                self.life.report.accepted += Amount::of_all(&batch);
                self.life.keep(&batch);
            }
        }
        Session::report(&mut self);
    }

    fn report(&mut self) {
        if self.is_down() {
            self.life.report.connection = Connection::Down(self.producer.context().why());
        }
        self.life.report.in_flight = self.in_flight;
        self.again.iter().for_each(|batch| self.life.report.in_flight += Amount::of_all(batch));
        self.life.publish();
    }
}

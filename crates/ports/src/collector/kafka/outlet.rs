//! The thread that passes records to librdkafka and processes delivery reports.
//!
//! librdkafka has its own threads for brokers; nothing here waits for them. A record that it has received
//! stays in `flight`, under a number that returns with the delivery report.

use super::{Acks, Compression, KafkaAddress, KafkaOptions, Mechanism};
use crate::collector::error::password;
use crate::collector::life::{Life, Session};
use crate::collector::report::{Connection, Loss, Shared};
use crate::collector::{CollectorError, Encode, Input, TIMEOUT, TlsOptions};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, PurgeConfig};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, flow_hash};

/// The most unacknowledged records at the client: about 20 MB here, and as much there.
const FLIGHT_RECORDS_MAX: usize = 1 << 16;
/// The most kilobytes of their messages, before compression.
const FLIGHT_KILOBYTES_MAX: usize = 64 << 10;
/// Records that are put back at a time.
const BATCH_RECORDS: usize = 1024;
/// The first pause before temporarily refused records are sent again.
const RETRY_MIN: Duration = Duration::from_millis(100);
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

/// Receives the client's reports, in `poll`, on the calling thread.
#[derive(Default)]
struct Reports {
    /// Numbers of records, each with the error if it was not delivered.
    delivered: Mutex<Vec<(usize, Option<Code>)>>,
    trouble: Mutex<Option<String>>,
}

impl ClientContext for Reports {
    /// Important messages also arrive as errors or reports.
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn error(&self, _error: KafkaError, reason: &str) {
        *self.trouble.lock() = Some(reason.to_owned());
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let error = result.as_ref().err().map(|(error, _)| error.rdkafka_error_code().unwrap_or(Code::Fail));
        self.delivered.lock().push((number, error));
    }
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
        let mut client = client_config(address, options.retry_max);
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
        for (number, error) in self.take_reports() {
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
                    self.life.report.lose(Loss::MessageRefused, amount)
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

    fn take_reports(&mut self) -> Vec<(usize, Option<Code>)> {
        let count = || self.producer.context().delivered.lock().len();
        loop {
            // One event may carry the reports of many messages.
            let before = count();
            self.producer.poll(Duration::ZERO);
            if count() == before {
                return std::mem::take(&mut *self.producer.context().delivered.lock());
            }
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
        for (number, error) in self.take_reports() {
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
                    self.life.report.lose(Loss::MessageRefused, amount);
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
            None => self.life.report.lose(Loss::CollectorDown, amount),
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
            let reason = self.producer.context().trouble.lock().clone();
            let why = || "nothing is acknowledged".to_owned();
            self.life.report.connection = Connection::Down(reason.unwrap_or_else(why));
        }
        self.life.report.in_flight = self.in_flight;
        self.again.iter().for_each(|batch| self.life.report.in_flight += Amount::of_all(batch));
        self.life.publish();
    }
}

/// Whether retrying is pointless, because the message itself is the problem.
fn is_about_the_message(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::InvalidMessage | Code::InvalidMessageSize | Code::InvalidRecord
    )
}

fn client_config(address: &KafkaAddress, retry_max: Duration) -> ClientConfig {
    let acks = match address.acks {
        Acks::All => "all",
        Acks::Leader => "1",
        Acks::Nobody => "0",
    };
    let compression = match address.compression {
        Compression::Lz4 => "lz4",
        Compression::Snappy => "snappy",
        Compression::None => "none",
    };
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", address.bootstrap_servers())
        .set("client.id", "thalweg")
        .set("acks", acks)
        .set("enable.idempotence", (address.acks == Acks::All).to_string())
        .set("compression.type", compression)
        .set("linger.ms", address.linger_ms.to_string())
        // Java's default: other programs look for a flow by its key in this partition.
        .set("partitioner", "murmur2_random")
        // Without a timeout: this thread decides and counts when to give up.
        .set("message.timeout.ms", "0")
        .set("queue.buffering.max.messages", FLIGHT_RECORDS_MAX.to_string())
        .set("queue.buffering.max.kbytes", FLIGHT_KILOBYTES_MAX.to_string())
        .set("reconnect.backoff.max.ms", retry_max.max(RETRY_MIN).as_millis().to_string())
        .set("socket.keepalive.enable", "true");
    client
}

/// Adds who the brokers must be, and who we are.
fn secure(client: &mut ClientConfig, address: &KafkaAddress, tls: &TlsOptions) -> Result<(), CollectorError> {
    client.set(
        "security.protocol",
        match (address.has_tls, &address.user) {
            (false, None) => "plaintext",
            (false, Some(_)) => "sasl_plaintext",
            (true, None) => "ssl",
            (true, Some(_)) => "sasl_ssl",
        },
    );
    if address.has_tls {
        if tls.server_name.is_some() {
            return Err(failed(
                address,
                "brokers have the names of their addresses: --tls-name is not for them".to_owned(),
            ));
        }
        let Some(authorities) = &tls.authorities else {
            let reason = "no file of authorities: expected the certificates that brokers' are signed by";
            return Err(CollectorError::Tls { reason: reason.to_owned() });
        };
        client.set("ssl.ca.location", authorities.display().to_string());
        if let Some((certificate, key)) = &tls.identity {
            client.set("ssl.certificate.location", certificate.display().to_string());
            client.set("ssl.key.location", key.display().to_string());
        }
    }
    if let (Some(user), Some(path)) = (&address.user, &address.password_file) {
        let mechanism = match address.mechanism {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        client.set("sasl.mechanisms", mechanism).set("sasl.username", user);
        client.set("sasl.password", password(path)?);
    }
    Ok(())
}

fn failed(address: &KafkaAddress, reason: String) -> CollectorError {
    CollectorError::Kafka { collector: address.to_string(), reason }
}

fn producer(client: &ClientConfig) -> Result<BaseProducer<Reports>, KafkaError> {
    client.create_with_context(Reports::default())
}

//! A topic that takes batches of records in transactions, each with a mark that says how far it reaches.
//!
//! The mark is the metadata of an offset that is committed in the same transaction, for partition 0 of the topic and a
//! consumer group that has the writer's name. So brokers have a batch and its mark, or neither. Who begins as the same
//! writer shuts the one before out, ends what it left half done, and then reads the mark.
//!
//! Readers must ask for committed messages only (`isolation.level=read_committed`): librdkafka does, Java does not by itself.

use super::client::{RETRY_MIN, Reports, connecting, failed, producer, producing, secure};
use super::{Acks, KafkaAddress};
use crate::collector::{CollectorError, Encode, TlsOptions};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::io;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::flow_hash;

/// The longest pause between two attempts to connect.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How long a step may take before the batch is given up, and begun again later.
const STEP_WITHIN: Duration = Duration::from_secs(30);
/// After so long, brokers end a transaction by themselves; a little longer than all steps of one.
const TRANSACTION_MS: u32 = 120_000;
/// How often to look whether to go on.
const TURN: Duration = Duration::from_millis(100);
/// How long to wait for the end of a transaction that has failed.
const ABORTED_WITHIN: Duration = Duration::from_secs(1);

/// A topic for transactions.
#[derive(Debug)]
pub struct KafkaTopic {
    address: KafkaAddress,
    sending: ClientConfig,
    asking: ClientConfig,
}

/// The right to send as a writer.
pub struct KafkaTransactions {
    topic: String,
    producer: BaseProducer<Reports>,
    /// The group that holds the mark.
    group: ConsumerGroupMetadata,
    mark: Option<String>,
    message: Vec<u8>,
}

impl KafkaTopic {
    /// Prepares it, and connects to nothing yet.
    pub fn open(address: &KafkaAddress, tls: &TlsOptions) -> Result<Self, CollectorError> {
        if address.acks != Acks::All {
            let reason =
                "a feed sends each record once, for which all replicas must have it: leave out `acks`";
            return Err(failed(address, reason.to_owned()));
        }
        let (mut sending, mut asking) = (producing(address, RETRY_MAX), connecting(address, RETRY_MAX));
        secure(&mut sending, address, tls)?;
        secure(&mut asking, address, tls)?;
        sending
            .set("linger.ms", "5")
            .set("transaction.timeout.ms", TRANSACTION_MS.to_string())
            .set("message.timeout.ms", STEP_WITHIN.as_millis().to_string());
        asking.set("enable.auto.commit", "false");
        Ok(Self { address: address.clone(), sending, asking })
    }

    /// Begins as this writer. `goes_on` ends it early, with an error.
    pub fn begin(&self, writer: &str, goes_on: &dyn Fn() -> bool) -> io::Result<KafkaTransactions> {
        let mut sending = self.sending.clone();
        sending.set("transactional.id", writer);
        let producer = producer(&sending).map_err(io::Error::other)?;
        step(&producer, goes_on, || producer.init_transactions(RETRY_MAX))?;
        let mut asking = self.asking.clone();
        asking.set("group.id", writer);
        let consumer: BaseConsumer = asking.create().map_err(io::Error::other)?;
        let group = consumer.group_metadata().ok_or_else(|| io::Error::other("the client has no group"))?;
        let topic = self.address.topic.clone();
        let committed = step(&producer, goes_on, || {
            let mut asked = TopicPartitionList::new();
            asked.add_partition(&topic, 0);
            consumer.committed_offsets(asked, RETRY_MAX)
        })?;
        let mark = committed.find_partition(&topic, 0).map(|known| known.metadata().to_owned());
        let mark = mark.filter(|mark| !mark.is_empty());
        Ok(KafkaTransactions { topic, producer, group, mark, message: Vec::new() })
    }
}

impl KafkaTransactions {
    /// The mark of the last batch that the topic has.
    pub fn mark(&self) -> Option<&str> {
        self.mark.as_deref()
    }

    /// Sends a batch with its mark. After an error it is unknown whether it arrived, and who wants to know begins again.
    pub fn send(
        &mut self,
        records: &[FlowRecord],
        mark: &str,
        encode: &mut Encode,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        self.producer.begin_transaction().map_err(io::Error::other)?;
        let sent = self.pass(records, mark, encode, goes_on);
        if sent.is_err() {
            let _ = self.producer.abort_transaction(ABORTED_WITHIN);
        }
        sent?;
        self.mark = Some(mark.to_owned());
        Ok(())
    }

    fn pass(
        &mut self,
        records: &[FlowRecord],
        mark: &str,
        encode: &mut Encode,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let Self { topic, producer, group, message, .. } = self;
        for record in records {
            message.clear();
            encode(record, message);
            let key = flow_hash(record).to_be_bytes();
            let mut next = BaseRecord::with_opaque_to(topic, 0).key(&key[..]).payload(message.as_slice());
            let began = Instant::now();
            while let Err((error, refused)) = producer.send(next) {
                if error.rdkafka_error_code() != Some(Code::QueueFull) {
                    return Err(io::Error::other(error));
                }
                look(producer, goes_on, began)?;
                next = refused;
            }
        }
        let began = Instant::now();
        while producer.in_flight_count() > 0 {
            look(producer, goes_on, began)?;
        }
        let refused = Reports::of(producer).into_iter().find_map(|(_, error)| error);
        if let Some(error) = refused {
            return Err(io::Error::other(error));
        }
        let mut marks = TopicPartitionList::new();
        // Readers of the mark know what it says; the offset is not used.
        marks.add_partition_offset(topic, 0, Offset::Offset(0)).map_err(io::Error::other)?;
        if let Some(mut place) = marks.find_partition(topic, 0) {
            place.set_metadata(mark);
        }
        step(producer, goes_on, || producer.send_offsets_to_transaction(&marks, group, RETRY_MAX))?;
        step(producer, goes_on, || producer.commit_transaction(RETRY_MAX))
    }
}

/// Waits a moment for reports; fails if it is not to go on, or for too long already.
fn look(producer: &BaseProducer<Reports>, goes_on: &dyn Fn() -> bool, began: Instant) -> io::Result<()> {
    if !goes_on() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the writer ends"));
    }
    if began.elapsed() >= STEP_WITHIN {
        return Err(io::Error::new(io::ErrorKind::TimedOut, producer.context().why()));
    }
    producer.poll(TURN);
    Ok(())
}

/// A step that may be tried again as long as brokers do not answer.
fn step<T>(
    producer: &BaseProducer<Reports>,
    goes_on: &dyn Fn() -> bool,
    mut step: impl FnMut() -> Result<T, KafkaError>,
) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match step() {
            Ok(done) => return Ok(done),
            Err(error) if !may_pass(&error) => return Err(io::Error::other(error)),
            Err(_) => look(producer, goes_on, began)?,
        }
        std::thread::sleep(RETRY_MIN);
    }
}

fn may_pass(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_retriable(),
        error => matches!(
            error.rdkafka_error_code(),
            Some(
                Code::OperationTimedOut
                    | Code::BrokerTransportFailure
                    | Code::AllBrokersDown
                    | Code::RequestTimedOut
                    | Code::CoordinatorNotAvailable
                    | Code::CoordinatorLoadInProgress
                    | Code::NotCoordinator
                    | Code::UnstableOffsetCommit
                    | Code::WaitingForCoordinator
            )
        ),
    }
}

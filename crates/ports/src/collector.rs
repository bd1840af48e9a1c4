//! Collectors of flow records: each has an export session over UDP, TCP or TLS on its own thread.
//!
//! ```text
//! send ──> queue ──> Exporter ──> datagrams ─────────────────────────────> collector
//!        (bounded)      │
//!                       └──────> stream ──> in flight ──> acknowledged ──> collector
//!                                  │ down      │ lost connection
//!                                  v           v
//!                                spool ──> first in the next session, in order
//! ```
//!
//! **Datagrams** are sent once. Datagrams that the kernel refuses are counted, and so are ICMP errors (nobody
//! listens there), although it is unknown which datagram caused one. UDP does not tell whether others arrive:
//! collectors see gaps in the sequence numbers. Without a route to the collector, or when the source address has left
//! this system, a new socket is tried every second.
//!
//! **Streams.** Sequence numbers and templates belong to a session, so records, not messages, are kept until
//! the collector's kernel has acknowledged the last byte of their messages. When a connection ends,
//! unacknowledged records are sent again in the next session, before everything else. So:
//!
//! - records that were acknowledged but not read by a collector that dies are lost without notice: at most
//!   what its receive buffer holds;
//! - records that arrived but whose acknowledgment was lost arrive twice; they are counted as `resent`.
//!
//! Without a connection, records go to the **spool**, a folder of bounded size; records that do not fit are
//! counted as lost. A spool left by an earlier process is sent first. Without a spool, the queue waits
//! [`TIMEOUT`] for an absent collector; then records are counted as lost until it is back.
//!
//! Whenever the worker is not in the middle of a batch, the counters balance in packets and bytes: `accepted
//! = sent + in flight + spooled + unexportable + lost{reason}`; in records too, with split records added to
//! `accepted`.
//!
//! **Kafka**, **ClickHouse**: a topic or a table takes the place of a collector, behind the same queue and
//! spool; see `collector/kafka.rs`, `collector/clickhouse.rs`.
//!
//! Missing: SCTP, DTLS; NAT events are not spooled (they are counted as lost while a stream is down).

mod address;
mod clickhouse;
mod datagrams;
mod error;
mod kafka;
mod life;
mod link;
mod pace;
mod report;
mod sflow;
mod spool;
mod stream;
mod tls;
mod udp;

pub use address::{Carrier, CollectorAddress};
pub use clickhouse::{ClickHouseAddress, ClickHouseOptions};
pub use error::CollectorError;
pub use kafka::{
    Acks, Compression, KafkaAddress, KafkaOptions, KafkaTopic, KafkaTransactions, Mechanism, MessageFormat,
};
pub(crate) use link::shake_hands;
pub use report::{CollectorReport, Connection};
pub use sflow::{SflowAddress, SflowSocket};
pub(crate) use tls::Tls;
pub use tls::TlsOptions;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};
use life::Session;
use report::Shared;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{ExportOptions, Exporter, Interface, NatEvent, Statistics};

/// How long the queue of a collector without a spool waits for a connection before records are counted as
/// lost.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The default capacity of the queue, in batches.
const QUEUE_BATCHES: usize = 64;

/// Encodes a record, as a message's value or a row, and appends it.
pub type Encode = Box<dyn FnMut(&FlowRecord, &mut Vec<u8>) + Send>;

/// The disk queue for records while a collector is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// The folder, created if necessary. Only one collector of one process may use it.
    pub folder: PathBuf,
    /// The limit for all files in it.
    pub bytes_max: u64,
}

/// How to export to a collector.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// The encoding of records. The address overrides protocol and transport.
    pub export: ExportOptions,
    /// The capacity of the queue.
    pub queue_batches: usize,
    /// Stores records while a stream is down. Datagrams do not use it.
    pub spool: Option<SpoolOptions>,
    pub tls: TlsOptions,
    /// The most datagrams per second; a capture is read faster than a collector's receive buffer empties.
    pub datagrams_per_s_max: Option<u32>,
    /// For datagrams: a name that cannot be resolved is no error, and is tried again every second.
    pub waits_for_name: bool,
    /// Send each datagram with its own call, without segmentation by the kernel: a capture taken on this
    /// system then shows them as on the wire.
    pub one_by_one: bool,
    /// The longest pause between two connection attempts.
    pub retry_max: Duration,
}

impl CollectorOptions {
    /// The default options for this address.
    pub fn new(address: &CollectorAddress) -> Self {
        Self {
            export: ExportOptions {
                options_in_domain: address.options_in_domain,
                variable_names: address.variable_names,
                ..ExportOptions::new(address.version, address.carrier.transport())
            },
            queue_batches: QUEUE_BATCHES,
            spool: None,
            tls: TlsOptions::default(),
            datagrams_per_s_max: None,
            waits_for_name: false,
            one_by_one: false,
            retry_max: Duration::from_secs(30),
        }
    }
}

/// Input of a worker.
enum Input {
    Records(Vec<FlowRecord>),
    NatEvents(Vec<NatEvent>),
    Statistics(Box<Statistics>),
    Interfaces(Vec<Interface>),
    /// Send everything that waits, until this time at the latest, and stop.
    End(Instant),
}

/// A batch that the collector did not take.
#[derive(Debug)]
pub enum NotTaken {
    Full(Vec<FlowRecord>),
    Ended(Vec<FlowRecord>),
}

/// A collector and its thread.
pub struct Collector {
    name: String,
    queue: Sender<Input>,
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

impl Collector {
    /// Begins a session with a collector. For UDP its name is resolved before this returns, unless the options have
    /// [`waits_for_name`](CollectorOptions::waits_for_name); if this system has no way there, the report says so, and
    /// sockets are tried later, as streams are connected later, with as many attempts as necessary.
    pub fn open(address: &CollectorAddress, options: CollectorOptions) -> Result<Self, CollectorError> {
        let mut options = options;
        options.export.version = address.version;
        options.export.transport = address.carrier.transport();
        let exporter = Exporter::new(&options.export).map_err(CollectorError::Options)?;
        Self::start(address.to_string(), options.queue_batches, |inputs, shared| {
            worker(address, &options, exporter, inputs, shared)
        })
    }

    /// Begins to send to a topic. It connects to brokers later, with as many attempts as necessary. Errors
    /// with [`CollectorError::NotBuilt`] without the feature `kafka`.
    pub fn open_kafka(address: &KafkaAddress, options: KafkaOptions) -> Result<Self, CollectorError> {
        Self::start(address.to_string(), options.queue_batches, |inputs, shared| {
            kafka::worker(address, options, inputs, shared)
        })
    }

    /// Begins to insert into a table. It connects later, with as many attempts as necessary.
    pub fn open_clickhouse(
        address: &ClickHouseAddress,
        options: ClickHouseOptions,
    ) -> Result<Self, CollectorError> {
        Self::start(address.to_string(), QUEUE_BATCHES, |inputs, shared| {
            let outlet = clickhouse::Outlet::open(address, options, Arc::clone(shared))?;
            Ok(Box::new(move || outlet.run(&inputs)))
        })
    }

    fn start(
        name: String,
        queue_batches: usize,
        worker: impl FnOnce(Receiver<Input>, &Arc<Shared>) -> Result<Work, CollectorError>,
    ) -> Result<Self, CollectorError> {
        let (queue, inputs) = bounded(queue_batches.max(1));
        let shared = Arc::new(Shared::default());
        let run = worker(inputs, &shared)?;
        let spawned = std::thread::Builder::new().name("collector".to_owned()).spawn(run);
        let worker = spawned.map_err(|source| CollectorError::Thread { source })?;
        Ok(Self { name, queue, shared, worker: Some(worker) })
    }

    /// The address as written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Passes on a batch and waits for room in the queue. Returns the batch if the worker is gone.
    pub fn send(&self, batch: Vec<FlowRecord>) -> Result<(), NotTaken> {
        self.queue.send(Input::Records(batch)).map_err(|error| not_taken(error.into_inner(), NotTaken::Ended))
    }

    /// Passes on a batch if there is room now; otherwise returns it, and the caller counts it.
    pub fn try_send(&self, batch: Vec<FlowRecord>) -> Result<(), NotTaken> {
        self.queue.try_send(Input::Records(batch)).map_err(|error| match error {
            TrySendError::Full(input) => not_taken(input, NotTaken::Full),
            TrySendError::Disconnected(input) => not_taken(input, NotTaken::Ended),
        })
    }

    /// Passes on NAT events if there is room now; otherwise returns them, and the caller counts them.
    pub fn try_send_nat_events(&self, events: Vec<NatEvent>) -> Result<(), Vec<NatEvent>> {
        self.queue.try_send(Input::NatEvents(events)).map_err(|error| match error.into_inner() {
            Input::NatEvents(events) => events,
            Input::Records(_) | Input::Statistics(_) | Input::Interfaces(_) | Input::End(_) => Vec::new(),
        })
    }

    /// Passes on the meter's newest statistics if there is room: the next ones are as good.
    pub fn set_statistics(&self, statistics: Statistics) {
        // Without room, the previous statistics remain.
        let _ = self.queue.try_send(Input::Statistics(Box::new(statistics)));
    }

    /// Passes on new numbers or names of interfaces. Returns whether there was room.
    pub fn set_interfaces(&self, interfaces: Vec<Interface>) -> bool {
        self.queue.try_send(Input::Interfaces(interfaces)).is_ok()
    }

    /// The counters so far.
    pub fn report(&self) -> CollectorReport {
        self.shared.report()
    }

    /// Sends everything that waits, for at most this long, and ends the session. Unsent records of a stream
    /// stay in the spool.
    pub fn finish(mut self, within: Duration) -> CollectorReport {
        let deadline = Instant::now() + within;
        let ended = match self.queue.send_timeout(Input::End(deadline), within) {
            Ok(()) | Err(SendTimeoutError::Disconnected(_)) => true,
            Err(SendTimeoutError::Timeout(_)) => false,
        };
        self.shared.end_by(deadline);
        if !ended {
            // `end_by` also tells the worker to end; the queue's contents still belong to it.
            let _ = self.queue.send_timeout(Input::End(deadline), TIMEOUT);
        }
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has reported that; its last report remains.
            let _ = worker.join();
        }
        self.shared.report()
    }
}

/// The work of a collector's thread, after everything that can fail.
type Work = Box<dyn FnOnce() + Send>;

fn worker(
    address: &CollectorAddress,
    options: &CollectorOptions,
    exporter: Exporter,
    inputs: Receiver<Input>,
    shared: &Arc<Shared>,
) -> Result<Work, CollectorError> {
    let shared = Arc::clone(shared);
    match address.carrier {
        Carrier::Udp => {
            let worker = datagrams::Datagrams::open(address, options, exporter, shared)?;
            Ok(Box::new(move || worker.run(&inputs)))
        }
        Carrier::Tcp | Carrier::Tls => {
            let worker = stream::Stream::open(address, options, exporter, shared)?;
            Ok(Box::new(move || worker.run(&inputs)))
        }
    }
}

fn not_taken(input: Input, why: fn(Vec<FlowRecord>) -> NotTaken) -> NotTaken {
    match input {
        Input::Records(batch) => why(batch),
        Input::NatEvents(_) | Input::Statistics(_) | Input::Interfaces(_) | Input::End(_) => why(Vec::new()),
    }
}

//! Collectors of flow records: an exporting session each, over UDP, TCP or TLS, on a thread of its own.
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
//! **Datagrams** are sent once. What the kernel refuses is counted; an ICMP error (nobody listens there) is counted too,
//! and which datagram it was about is not known. Whether others arrive, UDP does not tell: collectors see gaps in the
//! sequence numbers.
//!
//! **Streams.** Records, not messages, are kept until the collector's kernel has acknowledged the last byte of the
//! messages they are in: sequence numbers and templates belong to a session. When a connection ends, what was not
//! acknowledged is sent again in the next session, before everything else. So:
//!
//! - what was acknowledged but not yet read by a collector that dies is lost, and nobody can know: at most what its
//!   receive buffer holds;
//! - what had arrived without its acknowledgement having come back arrives twice; it is counted as `resent`.
//!
//! While there is no connection records go to the **spool**, a folder of bounded size; what does not fit is counted as
//! lost. A folder that a former process left is sent first. Without a spool the queue waits
//! [`TIMEOUT`] for a collector that went away, then records are counted as lost until it is back.
//!
//! The counters, in packets and bytes, at every moment that the worker is not just working on a batch: `accepted =
//! sent + in flight + spooled + unexportable + lost{reason}`; in records likewise, with what was split added to `accepted`.
//!
//! **Kafka** is a topic in place of a collector, behind the same queue and spool: `collector/kafka.rs`.
//!
//! Missing: SCTP, DTLS; NAT events are not spooled (they are counted as lost while a stream is down).

mod address;
mod datagrams;
mod error;
mod kafka;
mod life;
mod link;
mod report;
mod spool;
mod stream;
mod tls;

pub use address::{Carrier, CollectorAddress};
pub use error::CollectorError;
pub use kafka::{Acks, Compression, Encode, KafkaAddress, KafkaOptions, MessageFormat};
pub use report::{CollectorReport, Connection, Loss};
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

/// How long the queue of a collector without a spool waits for a connection before records are counted as lost.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Batches that the queue takes unless told otherwise.
const QUEUE_BATCHES: usize = 64;

/// Where records wait for a collector that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// The folder; made if it is not there. One collector of one process at a time.
    pub folder: PathBuf,
    /// Bytes that all files in it may have.
    pub bytes_max: u64,
}

/// How to speak to a collector.
#[derive(Clone, Debug)]
pub struct CollectorOptions {
    /// How records are encoded. Protocol and transport are those of the address, whatever is said here.
    pub export: ExportOptions,
    /// Batches that wait to be encoded.
    pub queue_batches: usize,
    /// Where records wait while a stream is down. Of no use to datagrams.
    pub spool: Option<SpoolOptions>,
    /// Authorities that TLS trusts.
    pub tls: TlsOptions,
    /// Datagrams a second at most; collectors have receive buffers of a size, and a capture is read faster than that.
    pub datagrams_per_s_max: Option<u32>,
    /// Every datagram has a call of its own, and the kernel cuts none: a capture taken on this system then has them as they
    /// are on the wire.
    pub one_by_one: bool,
    /// The longest pause between two attempts to connect.
    pub retry_max: Duration,
}

impl CollectorOptions {
    /// The usual options for a collector at this address.
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
            one_by_one: false,
            retry_max: Duration::from_secs(30),
        }
    }
}

/// What a worker is given.
enum Input {
    Records(Vec<FlowRecord>),
    NatEvents(Vec<NatEvent>),
    Statistics(Box<Statistics>),
    Interfaces(Vec<Interface>),
    /// Send what there is, until then at the latest, and stop.
    End(Instant),
}

/// A batch that the collector did not take, and why.
#[derive(Debug)]
pub enum NotTaken {
    /// The queue is full.
    Full(Vec<FlowRecord>),
    /// The worker is gone.
    Ended(Vec<FlowRecord>),
}

/// A collector and the thread that speaks to it.
pub struct Collector {
    name: String,
    queue: Sender<Input>,
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

impl Collector {
    /// Begins a session with a collector. Names are resolved and UDP sockets made before this returns; streams are
    /// connected later, as often as it takes.
    pub fn open(address: &CollectorAddress, options: CollectorOptions) -> Result<Self, CollectorError> {
        let mut options = options;
        options.export.version = address.version;
        options.export.transport = address.carrier.transport();
        let exporter = Exporter::new(&options.export).map_err(CollectorError::Options)?;
        Self::start(address.to_string(), options.queue_batches, |inputs, shared| {
            worker(address, &options, exporter, inputs, shared)
        })
    }

    /// Begins to send to a topic. Brokers are connected to later, as often as it takes. Errors with
    /// [`CollectorError::NotBuilt`] where the feature `kafka` was left out.
    pub fn open_kafka(address: &KafkaAddress, options: KafkaOptions) -> Result<Self, CollectorError> {
        Self::start(address.to_string(), options.queue_batches, |inputs, shared| {
            kafka::worker(address, options, inputs, shared)
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

    /// The address, as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hands over a batch, waiting for room in the queue. Gives it back if the worker is gone.
    pub fn send(&self, batch: Vec<FlowRecord>) -> Result<(), NotTaken> {
        self.queue.send(Input::Records(batch)).map_err(|error| not_taken(error.into_inner(), NotTaken::Ended))
    }

    /// Hands over a batch if there is room at once; else gives it back, and the caller counts it.
    pub fn try_send(&self, batch: Vec<FlowRecord>) -> Result<(), NotTaken> {
        self.queue.try_send(Input::Records(batch)).map_err(|error| match error {
            TrySendError::Full(input) => not_taken(input, NotTaken::Full),
            TrySendError::Disconnected(input) => not_taken(input, NotTaken::Ended),
        })
    }

    /// Hands over NAT events if there is room at once; else gives them back, and the caller counts them.
    pub fn try_send_nat_events(&self, events: Vec<NatEvent>) -> Result<(), Vec<NatEvent>> {
        self.queue.try_send(Input::NatEvents(events)).map_err(|error| match error.into_inner() {
            Input::NatEvents(events) => events,
            Input::Records(_) | Input::Statistics(_) | Input::Interfaces(_) | Input::End(_) => Vec::new(),
        })
    }

    /// Hands over the newest statistics of the meter, if there is room: the next ones are as good.
    pub fn set_statistics(&self, statistics: Statistics) {
        // Without room the statistics of a moment ago remain.
        let _ = self.queue.try_send(Input::Statistics(Box::new(statistics)));
    }

    /// Hands over other numbers or names of interfaces. Whether there was room.
    pub fn set_interfaces(&self, interfaces: Vec<Interface>) -> bool {
        self.queue.try_send(Input::Interfaces(interfaces)).is_ok()
    }

    /// What was done so far.
    pub fn report(&self) -> CollectorReport {
        self.shared.report()
    }

    /// Sends what there is, for at most this long, and ends the session. What a stream could not send stays in the spool.
    pub fn finish(mut self, within: Duration) -> CollectorReport {
        let deadline = Instant::now() + within;
        let ended = match self.queue.send_timeout(Input::End(deadline), within) {
            Ok(()) | Err(SendTimeoutError::Disconnected(_)) => true,
            Err(SendTimeoutError::Timeout(_)) => false,
        };
        self.shared.end_by(deadline);
        if !ended {
            // The worker learns of the end from `end_by`; what stands in the queue is still its.
            let _ = self.queue.send_timeout(Input::End(deadline), TIMEOUT);
        }
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has said so; its report is what it last wrote.
            let _ = worker.join();
        }
        self.shared.report()
    }
}

/// The work of a collector's thread, with everything that can fail done.
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

//! Kafka as a collector: each record is a message in a topic.
//!
//! ```text
//! send ──> queue ──> encode ──> client's buffer ──> brokers ──> acknowledged
//!        (bounded)     │          (bounded)
//!                      └─ no room ──> spool ──> first when there is room, in order
//! ```
//!
//! **The client** is librdkafka through the crate `rdkafka`, the library of most Kafka programs that are not
//! in Java. Alternatives in November 2026: `confluent-kafka` 1.0, all Rust, is three weeks old, has 377,000
//! lines translated from Java, needs tokio and takes 224 s of processor time to build without optimization;
//! `rskafka` cannot resend a message without the risk of a duplicate, and is abandoned; `kafka-protocol` has
//! messages but no client. librdkafka must be compiled from C, so it is behind the cargo feature `kafka`,
//! which is off by default. Addresses are parsed without it.
//!
//! **Counters.** A record counts as sent when the brokers acknowledged it as `acks` requires (with `acks=0`,
//! when it was written to a socket). Until then a copy is kept here, so that an abandoned record can be
//! spooled or counted as lost. The counters balance as in `collector.rs`.
//!
//! **Duplicates.** With `acks=all` the client numbers messages (idempotence), and a broker drops duplicates.
//! The client never abandons a message by itself: it retries as long as the process lives. A record can
//! arrive twice only if a process ended before it got the acknowledgment and the next one sends the spool, or
//! if the client's numbering broke irreparably (a recreated topic). Such records are counted as `resent`.
//!
//! **A broker that is down** is one that acknowledges nothing for [`TIMEOUT`](super::TIMEOUT) while something
//! waits for it. The client's buffer fills, then the spool; without a spool records are counted as
//! `collector-down`.
//!
//! **TLS and SASL** (`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`) are librdkafka's, by the system's OpenSSL.
//!
//! **Transactions** (`transactions.rs`) are another way to send: batch by batch, each with a mark that survives both sides.
//!
//! Missing: gzip and zstd; the meters' counters, which other collectors get as options data.

mod address;
#[cfg(feature = "kafka")]
mod client;
#[cfg(feature = "kafka")]
mod outlet;
#[cfg(feature = "kafka")]
mod transactions;
#[cfg(not(feature = "kafka"))]
#[path = "kafka/not_built.rs"]
mod transactions;

pub use address::{Acks, Compression, KafkaAddress, Mechanism, MessageFormat};
pub use transactions::{KafkaTopic, KafkaTransactions};

#[cfg(feature = "kafka")]
use super::life::Session;
use super::report::Shared;
use super::{CollectorError, Encode, Input, SpoolOptions, TlsOptions, Work};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::Duration;

/// The default capacity of the queue.
const QUEUE_BATCHES: usize = 64;

/// How to export to brokers, in addition to the address.
pub struct KafkaOptions {
    pub encode: Encode,
    /// The capacity of the queue.
    pub queue_batches: usize,
    /// Stores records while the client's buffer is full.
    pub spool: Option<SpoolOptions>,
    /// For `kafka+tls://`.
    pub tls: TlsOptions,
    /// The longest pause before another connection attempt, or before a temporarily refused message is sent
    /// again.
    pub retry_max: Duration,
}

impl KafkaOptions {
    /// The default options.
    pub fn new(encode: Encode) -> Self {
        let (spool, tls) = (None, TlsOptions::default());
        Self { encode, queue_batches: QUEUE_BATCHES, spool, tls, retry_max: Duration::from_secs(10) }
    }
}

/// The work of a topic's thread, after everything that can fail.
#[cfg(feature = "kafka")]
pub(super) fn worker(
    address: &KafkaAddress,
    options: KafkaOptions,
    inputs: Receiver<Input>,
    shared: &Arc<Shared>,
) -> Result<Work, CollectorError> {
    let outlet = outlet::Outlet::open(address, options, Arc::clone(shared))?;
    Ok(Box::new(move || outlet.run(&inputs)))
}

/// The replacement without the feature.
#[cfg(not(feature = "kafka"))]
pub(super) fn worker(
    address: &KafkaAddress,
    _options: KafkaOptions,
    _inputs: Receiver<Input>,
    _shared: &Arc<Shared>,
) -> Result<Work, CollectorError> {
    Err(CollectorError::NotBuilt { collector: address.to_string(), feature: "kafka" })
}

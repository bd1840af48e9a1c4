//! Kafka as a collector: each record is a message in a topic.
//!
//! ```text
//! send ──> queue ──> encode ──> client's buffer ──> brokers ──> acknowledged
//!        (bounded)     │          (bounded)
//!                      └─ no room ──> spool ──> first when there is room, in order
//! ```
//!
//! **The client** is librdkafka by the crate `rdkafka`, the library under most Kafka programs that are not in Java. Of those
//! that were looked at (November 2026): `confluent-kafka` 1.0, all Rust, is three weeks old, 377,000 lines translated from
//! Java, needs tokio and takes 224 s of processor time to build without optimization; `rskafka` cannot send a message again without
//! the risk of having it twice, and its maker has left it; `kafka-protocol` has messages but no client. It costs a
//! compilation of C, so it is a cargo feature, `kafka`, that is off unless asked for. Addresses are read without it.
//!
//! **Counters.** A record counts as sent when the brokers acknowledged it as `acks` asks (with `acks=0`, when it was written to a
//! socket). Until then a copy is kept here, so that what is given up in the end can be spooled or is counted by name. The
//! equation is that of `collector.rs`.
//!
//! **Once.** With `acks=all` the client numbers messages (idempotence), and a broker drops what it has already. The client
//! gives up no message by itself: it tries as long as the process lives. Twice a record can come only
//! when a process ended before it knew, and the next one sends what is in the spool; or after the
//! client's numbering broke beyond repair (a topic made anew). Then records are counted as `resent`.
//!
//! **A broker that is down** is one that acknowledges nothing for [`TIMEOUT`](super::TIMEOUT) while something waits for it. The
//! client's buffer fills, then the spool; without a spool records are counted as `collector-down`.
//!
//! Missing: TLS and SASL (librdkafka has them by OpenSSL, which we do not link); gzip and zstd; the meters' counters, which other
//! collectors get as options data.

mod address;
#[cfg(feature = "kafka")]
mod outlet;

pub use address::{Acks, Compression, KafkaAddress, MessageFormat};

#[cfg(feature = "kafka")]
use super::life::Session;
use super::report::Shared;
use super::{CollectorError, Input, SpoolOptions, Work};
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::Duration;
use thalweg_flow::FlowRecord;

/// Batches that the queue takes unless told otherwise.
const QUEUE_BATCHES: usize = 64;

/// Appends a record as a message's value.
pub type Encode = Box<dyn FnMut(&FlowRecord, &mut Vec<u8>) + Send>;

/// How to speak to brokers, beside what the address says.
pub struct KafkaOptions {
    /// What a record's message looks like.
    pub encode: Encode,
    /// Batches that wait to be encoded.
    pub queue_batches: usize,
    /// Where records wait when the client's buffer is full.
    pub spool: Option<SpoolOptions>,
    /// The longest pause between two attempts to connect, or to send a message again that was refused for now.
    pub retry_max: Duration,
}

impl KafkaOptions {
    /// The usual options.
    pub fn new(encode: Encode) -> Self {
        Self { encode, queue_batches: QUEUE_BATCHES, spool: None, retry_max: Duration::from_secs(10) }
    }
}

/// The work of a topic's thread, with everything that can fail done.
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

/// The same in a program that cannot do it.
#[cfg(not(feature = "kafka"))]
pub(super) fn worker(
    address: &KafkaAddress,
    _options: KafkaOptions,
    _inputs: Receiver<Input>,
    _shared: &Arc<Shared>,
) -> Result<Work, CollectorError> {
    Err(CollectorError::NotBuilt { collector: address.to_string(), feature: "kafka" })
}

//! How librdkafka is told to reach brokers, and what it reports.

use super::{Acks, Compression, KafkaAddress, Mechanism};
use crate::collector::error::password;
use crate::collector::{CollectorError, TlsOptions};
use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext};
use std::time::Duration;

/// The most unacknowledged records at the client: about 20 MB here, and as much there.
pub(super) const FLIGHT_RECORDS_MAX: usize = 1 << 16;
/// The most kilobytes of their messages, before compression.
const FLIGHT_KILOBYTES_MAX: usize = 64 << 10;
/// The first pause before temporarily refused records are sent again, or a connection is tried again.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(100);

/// Receives the client's reports, in `poll`, on the calling thread.
#[derive(Default)]
pub(super) struct Reports {
    /// Numbers of records, each with the error if it was not delivered.
    pub(super) delivered: Mutex<Vec<(usize, Option<Code>)>>,
    trouble: Mutex<Option<(Weight, String)>>,
}

/// How much an error says about why nothing is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// It follows other errors: no broker can be reached.
    Consequence,
    /// An address does not answer, and another one may.
    Connection,
    /// A broker is reached, and one of the two refuses the other.
    Refusal,
}

impl Weight {
    fn of(error: &KafkaError) -> Self {
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => Self::Consequence,
            Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL) => Self::Refusal,
            _ => Self::Connection,
        }
    }
}

impl ClientContext for Reports {
    /// Important messages also arrive as errors or reports.
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let weight = Weight::of(&error);
        let mut trouble = self.trouble.lock();
        if trouble.as_ref().is_none_or(|(before, _)| weight >= *before) {
            *trouble = Some((weight, reason.to_owned()));
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let error = result.as_ref().err().map(|(error, _)| error.rdkafka_error_code().unwrap_or(Code::Fail));
        if error.is_none() {
            *self.trouble.lock() = None;
        }
        self.delivered.lock().push((number, error));
    }
}

impl Reports {
    /// Why nothing is acknowledged, as far as the client has said.
    pub(super) fn why(&self) -> String {
        let trouble = self.trouble.lock();
        trouble.as_ref().map_or_else(|| "nothing is acknowledged".to_owned(), |(_, why)| why.clone())
    }

    /// The reports so far, in the order of their arrival.
    pub(super) fn of(producer: &BaseProducer<Self>) -> Vec<(usize, Option<Code>)> {
        let count = || producer.context().delivered.lock().len();
        loop {
            // One event may carry the reports of many messages.
            let before = count();
            producer.poll(Duration::ZERO);
            if count() == before {
                return std::mem::take(&mut *producer.context().delivered.lock());
            }
        }
    }
}

/// Whether retrying is pointless, because the message itself is the problem.
pub(super) fn is_about_the_message(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::InvalidMessage | Code::InvalidMessageSize | Code::InvalidRecord
    )
}

/// A client of these brokers.
pub(super) fn connecting(address: &KafkaAddress, retry_max: Duration) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", address.bootstrap_servers())
        .set("client.id", "thalweg")
        .set("reconnect.backoff.max.ms", retry_max.max(RETRY_MIN).as_millis().to_string())
        .set("socket.keepalive.enable", "true");
    client
}

/// A client that sends to the topic.
pub(super) fn producing(address: &KafkaAddress, retry_max: Duration) -> ClientConfig {
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
    let mut client = connecting(address, retry_max);
    client
        .set("acks", acks)
        .set("enable.idempotence", (address.acks == Acks::All).to_string())
        .set("compression.type", compression)
        .set("linger.ms", address.linger_ms.to_string())
        // Java's default: other programs look for a flow by its key in this partition.
        .set("partitioner", "murmur2_random")
        // Without a timeout: who sends decides and counts when to give up.
        .set("message.timeout.ms", "0")
        .set("queue.buffering.max.messages", FLIGHT_RECORDS_MAX.to_string())
        .set("queue.buffering.max.kbytes", FLIGHT_KILOBYTES_MAX.to_string());
    client
}

/// Adds who the brokers must be, and who we are.
pub(super) fn secure(
    client: &mut ClientConfig,
    address: &KafkaAddress,
    tls: &TlsOptions,
) -> Result<(), CollectorError> {
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
            return Err(CollectorError::NoAuthorities { whose: "brokers'" });
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

pub(super) fn failed(address: &KafkaAddress, reason: String) -> CollectorError {
    CollectorError::Kafka { collector: address.to_string(), reason }
}

pub(super) fn producer(client: &ClientConfig) -> Result<BaseProducer<Reports>, KafkaError> {
    client.create_with_context(Reports::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_not_hidden_by_what_follows_it() {
        let reports = Reports::default();
        let error = |code, why| reports.error(KafkaError::Global(code), why);
        assert_eq!(reports.why(), "nothing is acknowledged");
        error(Code::AllBrokersDown, "all are down");
        error(Code::BrokerTransportFailure, "connection refused");
        assert_eq!(reports.why(), "connection refused");
        error(Code::Authentication, "wrong password");
        error(Code::BrokerTransportFailure, "connection refused");
        error(Code::AllBrokersDown, "all are down");
        assert_eq!(reports.why(), "wrong password");
        error(Code::SSL, "unknown authority");
        assert_eq!(reports.why(), "unknown authority");
    }
}

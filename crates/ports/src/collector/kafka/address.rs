//! The address of a topic: `kafka://HOST:PORT[,HOST:PORT...]/TOPIC[?KEY=VALUE[&KEY=VALUE...]]`, with `kafka+tls://` for
//! brokers with TLS.

use crate::collector::CollectorError;
use crate::collector::address::host_and_port;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

const SCHEME: &str = "kafka://";
const TLS_SCHEME: &str = "kafka+tls://";
/// The usual port of brokers.
const BROKER_PORT: u16 = 9092;
/// Kafka's limit for names of topics.
const TOPIC_BYTES_MAX: usize = 249;
/// The default for `linger_ms`.
const LINGER_MS: u32 = 50;
const LINGER_MS_MAX: u32 = 10_000;

/// The format of a message's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageFormat {
    /// A JSON object.
    #[default]
    Json,
    /// Protocol buffers.
    Protobuf,
}

/// Who must have a message before it counts as sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// All in-sync replicas.
    #[default]
    All,
    /// The partition's leader.
    Leader,
    Nobody,
}

/// The compression of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    Lz4,
    Snappy,
    None,
}

/// How a user proves who it is (SASL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// The password itself: only with TLS is it secret.
    Plain,
    ScramSha256,
    #[default]
    ScramSha512,
}

/// A topic and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaAddress {
    text: String,
    /// Names or addresses (IPv6 without brackets) and ports of brokers, at least one; they name further
    /// brokers.
    pub brokers: Vec<(String, u16)>,
    pub topic: String,
    pub format: MessageFormat,
    pub acks: Acks,
    pub compression: Compression,
    /// How long messages wait for others in their batch, in milliseconds.
    pub linger_ms: u32,
    pub has_tls: bool,
    /// Who writes; without it nobody is named.
    pub user: Option<String>,
    /// A file with the user's password. An address is in lists of processes and in logs, where none belongs.
    pub password_file: Option<PathBuf>,
    pub mechanism: Mechanism,
}

impl KafkaAddress {
    /// Whether the text begins like such an address.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with(SCHEME) || text.starts_with(TLS_SCHEME)
    }

    /// Brokers in the format of Kafka clients: `host:port,[address]:port`.
    pub fn bootstrap_servers(&self) -> String {
        let broker = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        self.brokers.iter().map(broker).collect::<Vec<_>>().join(",")
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), (usize, &'static str)> {
        const KEYS: &str = "format=, acks=, compression=, linger_ms=, user=, password_file= or mechanism=";
        let at = key.len() + 1;
        match key {
            "format" => {
                self.format =
                    one_of(value, &[("json", MessageFormat::Json), ("protobuf", MessageFormat::Protobuf)])
                        .ok_or((at, "json or protobuf"))?;
            }
            "acks" => {
                self.acks = one_of(value, &[("all", Acks::All), ("1", Acks::Leader), ("0", Acks::Nobody)])
                    .ok_or((at, "all, 1 or 0"))?;
            }
            "compression" => {
                let words =
                    [("lz4", Compression::Lz4), ("snappy", Compression::Snappy), ("none", Compression::None)];
                self.compression = one_of(value, &words).ok_or((at, "lz4, snappy or none"))?;
            }
            "linger_ms" => {
                let linger = value.parse().ok().filter(|linger| *linger <= LINGER_MS_MAX);
                self.linger_ms = linger.ok_or((at, "milliseconds, 0 to 10000"))?;
            }
            "user" if !value.is_empty() => self.user = Some(value.to_owned()),
            "user" => return Err((at, "a user's name")),
            "password_file" if !value.is_empty() => self.password_file = Some(value.into()),
            "password_file" => return Err((at, "a file with the password on its first line")),
            "mechanism" => {
                let words = [
                    ("plain", Mechanism::Plain),
                    ("scram-sha-256", Mechanism::ScramSha256),
                    ("scram-sha-512", Mechanism::ScramSha512),
                ];
                self.mechanism =
                    one_of(value, &words).ok_or((at, "plain, scram-sha-256 or scram-sha-512"))?;
            }
            _ => return Err((0, KEYS)),
        }
        Ok(())
    }
}

impl KafkaAddress {
    /// Brokers and topic, without what stands behind the `?`.
    pub fn place(&self) -> &str {
        self.text.split('?').next().unwrap_or(&self.text)
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for KafkaAddress {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let error = |at: usize, expected: &'static str| CollectorError::Address {
            text: text.to_owned(),
            column: text[..at].chars().count() + 1,
            expected,
        };
        let has_tls = text.starts_with(TLS_SCHEME);
        let scheme = if has_tls { TLS_SCHEME } else { SCHEME };
        let rest = text.strip_prefix(scheme).ok_or_else(|| error(0, "kafka://HOST:PORT/TOPIC"))?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (brokers, topic) = place
            .split_once('/')
            .ok_or_else(|| error(scheme.len() + place.len(), "a slash and a topic behind the brokers"))?;
        let mut address = Self {
            text: text.to_owned(),
            brokers: Vec::new(),
            topic: topic.to_owned(),
            format: MessageFormat::default(),
            acks: Acks::default(),
            compression: Compression::default(),
            linger_ms: LINGER_MS,
            has_tls,
            user: None,
            password_file: None,
            mechanism: Mechanism::default(),
        };
        let mut at = scheme.len();
        for broker in brokers.split(',') {
            let read = host_and_port(broker, BROKER_PORT);
            address.brokers.push(read.map_err(|(inside, expected)| error(at + inside, expected))?);
            at += broker.len() + 1;
        }
        if !is_topic(topic) {
            return Err(error(at, "a topic: at most 249 letters, digits, `.`, `_` and `-`, not `.` or `..`"));
        }
        if place.len() == rest.len() {
            return Ok(address);
        }
        at += topic.len() + 1;
        for parameter in parameters.split('&') {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address
                .set(key, value)
                .map_err(|(inside, expected)| error((at + inside).min(text.len()), expected))?;
            at += parameter.len() + 1;
        }
        if address.user.is_some() != address.password_file.is_some() {
            return Err(error(scheme.len() + place.len(), "both user= and password_file=, or neither"));
        }
        Ok(address)
    }
}

fn one_of<T: Copy>(value: &str, words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning)
}

/// Kafka's own rule.
fn is_topic(topic: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=TOPIC_BYTES_MAX).contains(&topic.len())
        && topic.chars().all(is_legal)
        && topic != "."
        && topic != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let address: KafkaAddress = "kafka://a:1,[2001:db8::1]:2,c/flows".parse().unwrap();
        assert_eq!(address.bootstrap_servers(), "a:1,[2001:db8::1]:2,c:9092");
        assert_eq!((address.topic.as_str(), address.acks), ("flows", Acks::All));
        assert_eq!((address.format, address.compression), (MessageFormat::Json, Compression::Lz4));
        assert_eq!(address.linger_ms, 50);
        let text = "kafka://b/x.y_z-1?format=protobuf&acks=0&compression=none&linger_ms=5";
        let address: KafkaAddress = text.parse().unwrap();
        assert_eq!((address.format, address.acks), (MessageFormat::Protobuf, Acks::Nobody));
        assert_eq!((address.compression, address.linger_ms), (Compression::None, 5));
        assert_eq!(address.to_string(), text);
        let text = "kafka+tls://b/t?user=probe&password_file=/etc/p&mechanism=plain";
        let address: KafkaAddress = text.parse().unwrap();
        assert_eq!((address.has_tls, address.user.as_deref()), (true, Some("probe")));
        assert_eq!((address.password_file, address.mechanism), (Some("/etc/p".into()), Mechanism::Plain));
    }

    #[test]
    fn what_is_wrong_is_told_by_column() {
        for (text, column, word) in [
            ("ipfix://a:1", 1, "kafka://"),
            ("kafka://", 9, "slash"),
            ("kafka://a:1", 12, "slash"),
            ("kafka:///t", 9, "host"),
            ("kafka://a:0/t", 10, "port"),
            ("kafka://a:1,b:99999/t", 14, "port"),
            ("kafka://a:1,/t", 13, "host"),
            ("kafka://a:1/", 13, "topic"),
            ("kafka://a:1/..", 13, "topic"),
            ("kafka://a:1/t opic", 13, "topic"),
            ("kafka://a:1/t?", 15, "format="),
            ("kafka://a:1/t?format", 21, "json"),
            ("kafka://a:1/t?format=xml", 22, "json"),
            ("kafka://a:1/t?acks=all&compression=zip", 36, "lz4"),
            ("kafka://a:1/t?acks=2", 20, "all"),
            ("kafka://a:1/t?linger_ms=-1", 25, "milliseconds"),
            ("kafka://a:1/t?linger=1", 15, "linger_ms="),
            ("kafka://a:1/t?user=", 20, "name"),
            ("kafka://a:1/t?user=x", 14, "password_file="),
            ("kafka+tls://a:1/t?mechanism=gssapi", 29, "scram-sha-512"),
        ] {
            match text.parse::<KafkaAddress>() {
                Err(CollectorError::Address { column: told, expected, .. }) => {
                    assert_eq!(told, column, "{text}");
                    assert!(expected.contains(word), "{text}: {expected}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}

//! Options of an exporter, and which contradict each other.

/// Nanoseconds in a second.
pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// Bytes a message must be allowed to have: the longest record, its set and the message's header fit.
pub const MESSAGE_BYTES_MIN: usize = 512;
/// Bytes of a datagram that fit an Ethernet path with room for a tunnel's headers.
const DATAGRAM_BYTES: usize = 1400;
/// Bytes of a message on a stream: one TLS record.
const STREAM_BYTES: usize = 16_000;
/// Interfaces that may be named.
const INTERFACES_MAX: usize = 65_534;

thalweg_base::words! {
    /// The protocol spoken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Version {
        /// NetFlow 5, IPv4 only.
        NetFlow5 => "v5",
        /// NetFlow 9, RFC 3954.
        NetFlow9 => "v9",
        /// IPFIX, RFC 7011.
        Ipfix => "ipfix",
    }
}

impl Version {
    /// How its messages can tell times, in words.
    fn times(self) -> &'static str {
        match self {
            Self::NetFlow5 => "uptime",
            Self::NetFlow9 => "uptime or milliseconds",
            Self::Ipfix => "milliseconds or nanoseconds",
        }
    }
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Messages may be lost: templates are repeated.
    Datagram,
    /// All or nothing: templates are sent once a session.
    Stream,
}

/// In what times of packets are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Milliseconds since the exporter's start (NetFlow 5 and 9).
    Uptime,
    /// Milliseconds since the epoch (NetFlow 9 and IPFIX).
    Milliseconds,
    /// Nanoseconds, as NTP time stamps (IPFIX).
    Nanoseconds,
}

/// How packets were chosen where not all were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingMethod {
    /// Every Nth.
    Systematic,
    /// Each with a chance of 1 in N.
    Random,
}

/// An interface's name for collectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The interface's number, as in records.
    pub number: u32,
    /// Short name.
    pub name: String,
    /// What a person wrote about it, or nothing.
    pub description: String,
}

/// How to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The protocol.
    pub version: Version,
    /// What carries the messages.
    pub transport: Transport,
    /// The longest message, bytes of UDP payload or of stream.
    pub message_bytes_max: usize,
    /// Observation domain (IPFIX), source id (NetFlow 9), engine id (NetFlow 5: the lowest eight bits). A number of its
    /// own for each session, or collectors see sequence failures.
    pub observation_domain: u32,
    /// How times are told.
    pub times: Times,
    /// Counters below 2^32 in four bytes instead of eight (RFC 7011, 6.2).
    pub reduced_sizes: bool,
    /// Templates are repeated after so long on datagrams, nanoseconds.
    pub template_interval_ns: u64,
    /// ... and after so many messages.
    pub template_messages: u32,
    /// Nanoseconds between two reports of statistics.
    pub statistics_interval_ns: u64,
    /// A message that is not full waits for more records so long at most, nanoseconds.
    pub delay_max_ns: u64,
    /// How packets were chosen, should records say that not all were looked at.
    pub sampling: SamplingMethod,
    /// One packet in N is sampled, as far as known before the first record: collectors are told at once.
    pub sampling_interval: u32,
    /// Names of interfaces.
    pub interfaces: Vec<Interface>,
    /// Whether names of applications are sent.
    pub application_names: bool,
    /// IPFIX: whether all options data goes in the session's own observation domain. Else what is said of the exporter as a
    /// whole, or said again in mid-session, goes as domain 0 (RFC 7011, 3.1), with a sequence of its own.
    pub options_in_domain: bool,
    /// IPFIX: names have the length that they need (RFC 7011, 7). Not all collectors read or count such options data.
    pub variable_names: bool,
}

impl ExportOptions {
    /// The usual options of a protocol on a transport.
    pub fn new(version: Version, transport: Transport) -> Self {
        Self {
            version,
            transport,
            message_bytes_max: match transport {
                Transport::Datagram => DATAGRAM_BYTES,
                Transport::Stream => STREAM_BYTES,
            },
            observation_domain: 1,
            times: match version {
                Version::NetFlow5 | Version::NetFlow9 => Times::Uptime,
                Version::Ipfix => Times::Milliseconds,
            },
            reduced_sizes: true,
            template_interval_ns: 60 * SECOND_NS,
            template_messages: 4096,
            statistics_interval_ns: 60 * SECOND_NS,
            delay_max_ns: SECOND_NS / 2,
            sampling: SamplingMethod::Systematic,
            sampling_interval: 1,
            interfaces: Vec::new(),
            application_names: true,
            options_in_domain: false,
            variable_names: false,
        }
    }

    /// Whether the options go together.
    pub(super) fn check(&self) -> Result<(), ExportOptionsError> {
        let bytes_max = match self.transport {
            // IPv6 leaves as much of a datagram.
            Transport::Datagram => 65_487,
            Transport::Stream => 65_535,
        };
        if !(MESSAGE_BYTES_MIN..=bytes_max).contains(&self.message_bytes_max) {
            return Err(ExportOptionsError::MessageBytes { bytes: self.message_bytes_max, bytes_max });
        }
        let times = match self.version {
            Version::NetFlow5 => self.times == Times::Uptime,
            Version::NetFlow9 => self.times != Times::Nanoseconds,
            Version::Ipfix => self.times != Times::Uptime,
        };
        if !times {
            return Err(ExportOptionsError::Times { version: self.version, times: self.times });
        }
        if self.transport == Transport::Stream && self.version != Version::Ipfix {
            return Err(ExportOptionsError::Stream { version: self.version });
        }
        if self.interfaces.len() > INTERFACES_MAX {
            return Err(ExportOptionsError::Interfaces { count: self.interfaces.len() });
        }
        for (option, interval_ns) in [
            ("template interval", self.template_interval_ns),
            ("statistics interval", self.statistics_interval_ns),
        ] {
            if interval_ns < SECOND_NS {
                return Err(ExportOptionsError::Interval { option, interval_ns });
            }
        }
        match self.template_messages {
            0 => Err(ExportOptionsError::TemplateMessages),
            _ => Ok(()),
        }
    }
}

/// Options that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportOptionsError {
    /// A message of that size cannot be.
    #[error("messages of {bytes} bytes: expected {MESSAGE_BYTES_MIN} to {bytes_max}")]
    MessageBytes {
        /// What was asked for.
        bytes: usize,
        /// What the transport can carry.
        bytes_max: usize,
    },
    /// The protocol cannot tell times so.
    #[error("times as {times:?} in {}: expected {}", .version.name(), .version.times())]
    Times {
        /// The protocol.
        version: Version,
        /// What was asked for.
        times: Times,
    },
    /// Only IPFIX goes over streams.
    #[error("{} over a stream: expected UDP, only IPFIX goes over TCP and TLS", .version.name())]
    Stream {
        /// The protocol.
        version: Version,
    },
    /// Too many interfaces.
    #[error("{count} interfaces: expected at most {INTERFACES_MAX}")]
    Interfaces {
        /// How many were named.
        count: usize,
    },
    /// Too short an interval.
    #[error("{option} of {interval_ns} ns: expected at least a second")]
    Interval {
        option: &'static str,
        /// What was asked for.
        interval_ns: u64,
    },
    /// Templates after no message at all.
    #[error("templates every 0 messages: expected at least 1")]
    TemplateMessages,
}

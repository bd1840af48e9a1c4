//! Options of an exporter, and which of them contradict each other.

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// The smallest allowed message limit: the longest record, its set and the message header fit.
pub const MESSAGE_BYTES_MIN: usize = 1200;
/// Fits an Ethernet path with room for a tunnel's headers.
const DATAGRAM_BYTES: usize = 1400;
/// One TLS record.
const STREAM_BYTES: usize = 16_000;
/// The most interfaces that can be named.
const INTERFACES_MAX: usize = 65_534;

thalweg_base::words! {
    /// The export protocol.
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
    /// The supported forms of times, for error messages.
    fn times(self) -> &'static str {
        match self {
            Self::NetFlow5 => "uptime",
            Self::NetFlow9 => "uptime or milliseconds",
            Self::Ipfix => "milliseconds or nanoseconds",
        }
    }
}

/// The kind of transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Messages may be lost, so templates are repeated.
    Datagram,
    /// Nothing is lost within a session, so templates are sent once.
    Stream,
}

/// The form of packet times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Milliseconds since the exporter's start (NetFlow 5 and 9).
    Uptime,
    /// Milliseconds since the epoch (NetFlow 9 and IPFIX).
    Milliseconds,
    /// Nanoseconds, as NTP time stamps (IPFIX).
    Nanoseconds,
}

/// How packets are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingMethod {
    /// Every Nth packet.
    Systematic,
    /// Each packet with probability 1/N.
    Random,
}

/// The name of an interface, for collectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// As in records.
    pub number: u32,
    pub name: String,
    /// Text by the operator, or empty.
    pub description: String,
}

/// The configuration of an exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    pub version: Version,
    pub transport: Transport,
    /// Limit of a message: bytes of UDP payload or of the stream.
    pub message_bytes_max: usize,
    /// Observation domain (IPFIX), source ID (NetFlow 9), engine ID (NetFlow 5: the lowest eight bits). Each
    /// session needs its own number; otherwise collectors see sequence failures.
    pub observation_domain: u32,
    pub times: Times,
    /// Counters below 2^32 in four bytes instead of eight (RFC 7011, 6.2).
    pub reduced_sizes: bool,
    /// Templates are repeated after this time over datagrams, in nanoseconds ...
    pub template_interval_ns: u64,
    /// ... and after this number of messages.
    pub template_messages: u32,
    /// The time between statistics, in nanoseconds.
    pub statistics_interval_ns: u64,
    /// The longest time that a partial message waits for more records, in nanoseconds.
    pub delay_max_ns: u64,
    /// The sampling method, if records are sampled.
    pub sampling: SamplingMethod,
    /// The sampling interval as far as known before the first record, so that collectors learn it at once.
    pub sampling_interval: u32,
    pub interfaces: Vec<Interface>,
    pub application_names: bool,
    /// IPFIX: send all options data in the session's own observation domain. Otherwise information about the
    /// exporter as a whole, and repetitions, use domain 0 (RFC 7011, 3.1), with a sequence of its own.
    pub options_in_domain: bool,
    /// IPFIX: send names with variable length (RFC 7011, 7). Not all collectors read or count such options
    /// data.
    pub variable_names: bool,
}

impl ExportOptions {
    /// The default options of a protocol over a transport.
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

    /// Whether the options are consistent.
    pub(super) fn check(&self) -> Result<(), ExportOptionsError> {
        let bytes_max = match self.transport {
            // IPv6 leaves this much of a datagram too.
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

/// Why export options are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportOptionsError {
    #[error("messages of {bytes} bytes: expected {MESSAGE_BYTES_MIN} to {bytes_max}")]
    MessageBytes {
        bytes: usize,
        /// The transport's limit.
        bytes_max: usize,
    },
    #[error("times as {times:?} in {}: expected {}", .version.name(), .version.times())]
    Times {
        version: Version,
        /// The requested form.
        times: Times,
    },
    #[error("{} over a stream: expected UDP, only IPFIX goes over TCP and TLS", .version.name())]
    Stream {
        /// The export protocol.
        version: Version,
    },
    #[error("{count} interfaces: expected at most {INTERFACES_MAX}")]
    Interfaces {
        /// The number of named interfaces.
        count: usize,
    },
    #[error("{option} of {interval_ns} ns: expected at least a second")]
    Interval {
        option: &'static str,
        /// The requested interval.
        interval_ns: u64,
    },
    #[error("templates every 0 messages: expected at least 1")]
    TemplateMessages,
}

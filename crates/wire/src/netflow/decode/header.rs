//! Message headers of the three versions, in one form.

use super::bytes::{u16_at, u32_at};
use super::fault::{Fault, FaultKind};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// Bytes of a version 5 record.
pub(super) const V5_RECORD_BYTES: usize = 48;

/// Version 5 messages have at least one record, and at most as many as fit an Ethernet frame.
const V5_RECORDS_MAX: usize = 30;

thalweg_base::words! {
    /// The protocol version of a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Version {
        /// NetFlow 5: records of one fixed layout, IPv4 only.
        NetFlow5 => "NetFlow 5",
        /// NetFlow 9 (RFC 3954).
        NetFlow9 => "NetFlow 9",
        /// IPFIX (RFC 7011), version number 10.
        Ipfix => "IPFIX",
    }
}

impl Version {
    /// Bytes of the message header.
    pub fn header_bytes(self) -> usize {
        match self {
            Self::NetFlow5 => 24,
            Self::NetFlow9 => 20,
            Self::Ipfix => 16,
        }
    }
}

/// The decoded header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: Version,
    /// IPFIX's observation domain, NetFlow 9's source ID; for NetFlow 5, engine type times 256 plus engine
    /// ID.
    pub domain: u32,
    /// NetFlow 5: flows sent before; NetFlow 9: number of the message; IPFIX: data records sent before. Each
    /// modulo 2^32.
    pub sequence: u32,
    /// When it was sent, in nanoseconds since the epoch. NetFlow 9 and IPFIX have whole seconds.
    pub export_ns: u64,
    /// Milliseconds since the exporter started, when the message was sent. IPFIX does not have it.
    pub uptime_ms: Option<u32>,
    /// NetFlow 5: flows in the message. NetFlow 9: records of all kinds; exporters disagree, so nothing
    /// relies on it.
    pub count: u16,
    /// NetFlow 5: one packet in this many was sampled, if the header says so.
    pub sampling_interval: Option<u16>,
}

impl Header {
    /// Decodes the header of a complete message; also returns the bytes that belong to the message.
    pub(super) fn parse(message: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let has = message.len();
        let short = |needs| Fault::new(0, FaultKind::HeaderShort { needs, has });
        if has < 2 {
            return Err(short(2));
        }
        let version = match u16_at(message, 0) {
            5 => Version::NetFlow5,
            9 => Version::NetFlow9,
            10 => Version::Ipfix,
            other => return Err(Fault::new(0, FaultKind::Version(other))),
        };
        if has < version.header_bytes() {
            return Err(short(version.header_bytes()));
        }
        Ok(match version {
            Version::NetFlow5 => {
                let says = usize::from(u16_at(message, 2));
                if says == 0 || says > V5_RECORDS_MAX {
                    let has = (has - version.header_bytes()) / V5_RECORD_BYTES;
                    return Err(Fault::new(2, FaultKind::RecordCount { says, has }));
                }
                (Self::netflow5(message), message)
            }
            Version::NetFlow9 => (Self::netflow9(message), message),
            Version::Ipfix => {
                let says = usize::from(u16_at(message, 2));
                if says < version.header_bytes() || says > has {
                    return Err(Fault::new(2, FaultKind::MessageLength { says, has }));
                }
                (Self::ipfix(message), &message[..says])
            }
        })
    }

    fn netflow5(message: &[u8]) -> Self {
        let sampling = u16_at(message, 22) & 0x3fff; // the upper two bits are the mode
        Self {
            version: Version::NetFlow5,
            domain: u32::from(u16_at(message, 20)),
            sequence: u32_at(message, 16),
            export_ns: u64::from(u32_at(message, 8)) * NS_PER_S + u64::from(u32_at(message, 12)),
            uptime_ms: Some(u32_at(message, 4)),
            count: u16_at(message, 2),
            sampling_interval: (sampling != 0).then_some(sampling),
        }
    }

    fn netflow9(message: &[u8]) -> Self {
        Self {
            version: Version::NetFlow9,
            domain: u32_at(message, 16),
            sequence: u32_at(message, 12),
            export_ns: u64::from(u32_at(message, 8)) * NS_PER_S,
            uptime_ms: Some(u32_at(message, 4)),
            count: u16_at(message, 2),
            sampling_interval: None,
        }
    }

    fn ipfix(message: &[u8]) -> Self {
        Self {
            version: Version::Ipfix,
            domain: u32_at(message, 12),
            sequence: u32_at(message, 8),
            export_ns: u64::from(u32_at(message, 4)) * NS_PER_S,
            uptime_ms: None,
            count: 0,
            sampling_interval: None,
        }
    }

    /// Converts milliseconds since the exporter's start to nanoseconds since the epoch. `None` for IPFIX,
    /// whose header does not have the start.
    ///
    /// The difference is taken modulo 2^32, because the counter wraps after 49.7 days: times up to 24.8 days
    /// before or after the message are correct.
    pub fn uptime_to_ns(&self, uptime_ms: u32) -> Option<u64> {
        let behind_ms = self.uptime_ms?.wrapping_sub(uptime_ms).cast_signed();
        let distance_ns = u64::from(behind_ms.unsigned_abs()) * NS_PER_MS;
        Some(if behind_ms >= 0 {
            self.export_ns.saturating_sub(distance_ns)
        } else {
            self.export_ns.saturating_add(distance_ns)
        })
    }
}

/// The length of the first message in a datagram; all of it if there is only one.
///
/// A datagram has one message. But where a kernel segments an exporter's data (`UDP_SEGMENT`), a capture on
/// that system has the data as one datagram of many messages. IPFIX and NetFlow 5 have length fields. NetFlow
/// 9 has not: its sets are walked until one has number 9, which no set may have and with which each message
/// begins.
pub fn first_message_bytes(datagram: &[u8]) -> usize {
    let all = datagram.len();
    if all < 4 {
        return all;
    }
    let version = u16_at(datagram, 0);
    let behind = match version {
        5 => Version::NetFlow5.header_bytes() + V5_RECORD_BYTES * usize::from(u16_at(datagram, 2)),
        9 => return first_netflow9_bytes(datagram),
        10 => usize::from(u16_at(datagram, 2)),
        _ => return all,
    };
    let needs = if version == 5 { Version::NetFlow5.header_bytes() } else { Version::Ipfix.header_bytes() };
    let is_message = |rest: &[u8]| rest.len() >= needs && u16_at(rest, 0) == version;
    if behind >= needs && datagram.get(behind..).is_some_and(is_message) { behind } else { all }
}

fn first_netflow9_bytes(datagram: &[u8]) -> usize {
    const SET_HEADER_BYTES: usize = 4;
    let header = Version::NetFlow9.header_bytes();
    let source_of = |at: usize| datagram.get(at + 16..at + header);
    let mut at = header;
    while at + SET_HEADER_BYTES <= datagram.len() {
        let (id, bytes) = (u16_at(datagram, at), usize::from(u16_at(datagram, at + 2)));
        if id == 9 && source_of(at).is_some_and(|source| Some(source) == source_of(0)) {
            return at;
        }
        if bytes < SET_HEADER_BYTES {
            break;
        }
        at += bytes;
    }
    datagram.len()
}

/// The length of the message at the beginning of a stream of IPFIX messages (TCP, TLS, a file after RFC
/// 5655); `None` while too few bytes have arrived.
///
/// # Errors
/// The bytes are not an IPFIX message: the version is wrong, or the length is shorter than the header. The
/// next message can then not be found.
pub fn stream_message_bytes(stream: &[u8]) -> Result<Option<usize>, Fault> {
    if stream.len() < 4 {
        return Ok(None);
    }
    let version = u16_at(stream, 0);
    if version != 10 {
        return Err(Fault::new(0, FaultKind::Version(version)));
    }
    let says = usize::from(u16_at(stream, 2));
    if says < Version::Ipfix.header_bytes() {
        return Err(Fault::new(2, FaultKind::MessageLength { says, has: stream.len() }));
    }
    Ok(Some(says))
}

//! Reads and writes text traces: one packet per line.
//!
//! ```text
//! eth3 104.44.44.10 10.230.30.03 4003 5003 ftp
//! port destination  source       dport sport protocol
//! ```
//!
//! This is the order of the struct in the article the format comes from; its prose says source first, so
//! [`FieldOrder::SourceFirst`] exists too (`src dst sport dport`).
//!
//! # Rules
//! - Fields are separated by white space: every byte up to and including the space (0x20), so tabs, runs of
//!   spaces and the CR of CRLF all do. Lines end with LF.
//! - Blank lines are ignored. A first or seventh field that begins with `#` starts a comment to the end of
//!   the line.
//! - IPv4 bytes have one to three digits, ports one to five; leading zeros are decimal. IPv6 addresses are
//!   written as in RFC 4291 2.2. Both addresses are of one family.
//! - The protocol is a name of [`crate::application`], in any letter case, or an IP protocol number. `icmp`
//!   and `icmpv6` (1 and 58) mean the echo request of whichever family the addresses have: the source port
//!   field is its identifier, the destination port field its sequence number. Numbers of IPv6 extension
//!   headers (0, 43, 44, 60) are no protocol with IPv6 addresses.
//!
//! # Speed
//! [`each_line`] examines 64 bytes at once: four bit masks (white space, line feed, dot, digit) give the
//! limits of every field, and each number is then one load and one multiplication. All other lines (IPv6,
//! long or malformed) go to [`parse_line`], which can also say what was expected and where. Both agree on
//! every line; tests compare them with a third, obvious parser.
//!
//! # The packet of a line
//! [`TraceLine::write_packet`] makes a bare IP packet: minimal headers, TTL 64, valid checksums, padded with
//! zero bytes of payload to the 46 bytes that fill a minimal Ethernet frame. TCP has only ACK set. Protocols
//! without a known header get zero bytes (SCTP its two ports; its CRC is left zero).

mod fast;
mod packet;
mod print;

pub use fast::{Step, each_line};
pub use packet::{PACKET_SLOT, WIRE_OVERHEAD};

use crate::application::{self, short_key};
use crate::ip_protocol::{self, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use std::fmt;
use std::net::Ipv6Addr;

/// The longest line, in bytes without its line feed.
pub const LINE_BYTES_MAX: usize = 1024;

/// Which end of the flow comes first in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldOrder {
    /// Destination address, source address, destination port, source port: the article's struct.
    #[default]
    DestinationFirst,
    /// Source address, destination address, source port, destination port.
    SourceFirst,
}

/// The name of a port as written in the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PortName<'a> {
    bytes: &'a [u8],
    key: u64,
}

impl<'a> PortName<'a> {
    /// Makes a name from any bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, key: short_key(bytes) }
    }

    /// The bytes as written.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The name as one word if it has up to eight bytes, else 0 (see [`short_key`]).
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.key
    }
}

impl fmt::Debug for PortName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes))
    }
}

/// Both addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    V4 { source: u32, destination: u32 },
    V6 { source: u128, destination: u128 },
}

/// The content of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLine<'a> {
    /// The port that the packet arrives on.
    pub port: PortName<'a>,
    pub addresses: Addresses,
    /// Source port, or identifier of an echo.
    pub source_port: u16,
    /// Destination port, or sequence number of an echo.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Application code; 0 for a protocol without a name.
    pub application: u8,
}

/// One end of a flow, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Destination,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == End::Source { "source" } else { "destination" })
    }
}

/// What a malformed line should have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// An IPv4 or IPv6 address.
    Address(End),
    /// An address of the same family as the one before.
    SameFamily(End),
    /// A number from 0 to 65535.
    PortNumber(End),
    /// A protocol name or number.
    Protocol,
    EndOfLine,
    /// A line feed within [`LINE_BYTES_MAX`] bytes.
    LineFeed,
}

impl Expected {
    /// Short name that counts malformed lines.
    pub fn reason(self) -> &'static str {
        match self {
            Expected::Address(End::Source) => "bad-source-address",
            Expected::Address(End::Destination) => "bad-destination-address",
            Expected::SameFamily(_) => "mixed-families",
            Expected::PortNumber(End::Source) => "bad-source-port",
            Expected::PortNumber(End::Destination) => "bad-destination-port",
            Expected::Protocol => "bad-protocol",
            Expected::EndOfLine => "trailing-fields",
            Expected::LineFeed => "line-too-long",
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Address(end) => write!(f, "an IPv4 or IPv6 {end} address"),
            Expected::SameFamily(end) => {
                write!(f, "a {end} address of the same family as the address before it")
            }
            Expected::PortNumber(end) => write!(f, "a {end} port from 0 to 65535"),
            Expected::Protocol => f.write_str("a protocol name or a number from 0 to 255"),
            Expected::EndOfLine => f.write_str("the end of the line after the protocol"),
            Expected::LineFeed => write!(f, "the end of the line within {LINE_BYTES_MAX} bytes"),
        }
    }
}

/// Why a line is not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}")]
pub struct TraceError {
    /// Bytes from 1.
    pub column: usize,
    pub expected: Expected,
}

/// Parses one line without its line feed. `Ok(None)` is a blank line or a comment.
pub fn parse_line(line: &[u8], order: FieldOrder) -> Result<Option<TraceLine<'_>>, TraceError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(TraceError { column: LINE_BYTES_MAX + 1, expected: Expected::LineFeed });
    }
    let mut fields = Fields { line, at: 0 };
    let (_, port) = fields.next();
    if port.is_empty() || port[0] == b'#' {
        return Ok(None);
    }
    let (first, second) = match order {
        FieldOrder::DestinationFirst => (End::Destination, End::Source),
        FieldOrder::SourceFirst => (End::Source, End::Destination),
    };
    let addresses = fields.addresses(first, second)?;
    let first_port = fields.port_number(first)?;
    let second_port = fields.port_number(second)?;
    let (protocol, application) = fields.protocol(&addresses)?;
    let (column, rest) = fields.next();
    if !rest.is_empty() && rest[0] != b'#' {
        return Err(TraceError { column, expected: Expected::EndOfLine });
    }
    let (source_port, destination_port) = match order {
        FieldOrder::DestinationFirst => (second_port, first_port),
        FieldOrder::SourceFirst => (first_port, second_port),
    };
    let port = PortName::new(port);
    Ok(Some(TraceLine { port, addresses, source_port, destination_port, protocol, application }))
}

/// Iterates over the fields of a line.
struct Fields<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Column (from 1) and bytes of the next field; empty at the end of the line.
    fn next(&mut self) -> (usize, &'a [u8]) {
        let rest = self.line.get(self.at..).unwrap_or(&[]);
        let from = self.at + rest.iter().take_while(|&&b| b <= b' ').count();
        let rest = self.line.get(from..).unwrap_or(&[]);
        let len = rest.iter().take_while(|&&b| b > b' ').count();
        self.at = from + len;
        (from + 1, &rest[..len])
    }

    fn addresses(&mut self, first: End, second: End) -> Result<Addresses, TraceError> {
        let (column, field) = self.next();
        let a = address(field).ok_or(TraceError { column, expected: Expected::Address(first) })?;
        let (column, field) = self.next();
        let b = address(field).ok_or(TraceError { column, expected: Expected::Address(second) })?;
        let (source, destination) = if first == End::Source { (a, b) } else { (b, a) };
        match (source, destination) {
            (Address::V4(source), Address::V4(destination)) => Ok(Addresses::V4 { source, destination }),
            (Address::V6(source), Address::V6(destination)) => Ok(Addresses::V6 { source, destination }),
            _ => Err(TraceError { column, expected: Expected::SameFamily(second) }),
        }
    }

    fn port_number(&mut self, end: End) -> Result<u16, TraceError> {
        let (column, field) = self.next();
        decimal(field, 5)
            .and_then(|n| u16::try_from(n).ok())
            .ok_or(TraceError { column, expected: Expected::PortNumber(end) })
    }

    /// IP protocol number and application code.
    fn protocol(&mut self, addresses: &Addresses) -> Result<(u8, u8), TraceError> {
        let (column, field) = self.next();
        let named = std::str::from_utf8(field).ok().and_then(application::by_name);
        let (number, code) = if let Some(a) = named {
            (a.transport, a.code)
        } else {
            let number = decimal(field, 3).and_then(|n| u8::try_from(n).ok());
            let number = number.ok_or(TraceError { column, expected: Expected::Protocol })?;
            (number, application::by_ip_protocol(number).map_or(0, |a| a.code))
        };
        let icmp = match addresses {
            Addresses::V4 { .. } => ip_protocol::ICMP,
            Addresses::V6 { .. } => ip_protocol::ICMPV6,
        };
        if number == ip_protocol::ICMP || number == ip_protocol::ICMPV6 {
            return Ok((icmp, application::by_ip_protocol(icmp).map_or(0, |a| a.code)));
        }
        // An IPv6 extension header is not a transport protocol.
        if icmp == ip_protocol::ICMPV6
            && matches!(number, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
        {
            return Err(TraceError { column, expected: Expected::Protocol });
        }
        Ok((number, code))
    }
}

enum Address {
    V4(u32),
    V6(u128),
}

fn address(field: &[u8]) -> Option<Address> {
    if field.contains(&b':') {
        let text = std::str::from_utf8(field).ok()?;
        return text.parse::<Ipv6Addr>().ok().map(|a| Address::V6(a.to_bits()));
    }
    let mut bytes = field.split(|&b| b == b'.');
    let mut value = 0u32;
    for _ in 0..4 {
        let byte = u8::try_from(decimal(bytes.next()?, 3)?).ok()?;
        value = value << 8 | u32::from(byte);
    }
    bytes.next().is_none().then_some(Address::V4(value))
}

/// A decimal number of one to `digits_max` digits (at most nine).
fn decimal(field: &[u8], digits_max: usize) -> Option<u32> {
    if field.is_empty() || field.len() > digits_max || !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(field.iter().fold(0, |value, b| value * 10 + u32::from(b - b'0')))
}

#[cfg(test)]
mod tests;

//! RPKI to routers (RTR): how a cache tells a router its validated ROA payloads (VRPs). Version 1 (RFC 8210) and
//! version 0 (RFC 6810), which differ in End of Data and router keys only.
//!
//! ```text
//! version 1 B | type 1 B | session, flags or error code 2 B | length 4 B, with this header | body
//! ```
//!
//! Decoding borrows: the longest PDU is [`PDU_BYTES_MAX`], and a header that announces more is a fault at once, so a
//! hostile cache cannot make its reader wait for bytes or keep them. Router keys (BGPsec) are read over.

use std::borrow::Cow;
use std::fmt;

use thalweg_base::{IpPrefix, Prefix};

/// The newest version that is spoken.
pub const VERSION_MAX: u8 = 1;

/// The longest PDU that is read. Error reports have a text and the PDU in question; all others are far shorter.
pub const PDU_BYTES_MAX: usize = 8192;

const HEADER_BYTES: usize = 8;

/// Times for a router, in seconds (RFC 8210 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Between two queries.
    pub refresh_s: u32,
    /// Between two attempts to connect.
    pub retry_s: u32,
    /// After this time without an answer the cache's data is not used any more.
    pub expire_s: u32,
}

impl Timers {
    /// What RFC 8210 suggests.
    pub const DEFAULT: Self = Self { refresh_s: 3600, retry_s: 600, expire_s: 7200 };

    /// Within the limits of RFC 8210 section 6; a time outside becomes the nearest inside.
    pub fn clamped(self) -> Self {
        Self {
            refresh_s: self.refresh_s.clamp(1, 86_400),
            retry_s: self.retry_s.clamp(1, 7200),
            expire_s: self.expire_s.clamp(600, 172_800),
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pdu<'a> {
    /// The cache has something new.
    SerialNotify {
        session: u16,
        serial: u32,
    },
    /// The router asks for what is new since this serial number.
    SerialQuery {
        session: u16,
        serial: u32,
    },
    /// The router asks for everything.
    ResetQuery,
    CacheResponse {
        session: u16,
    },
    /// A VRP that begins to hold, or no longer holds.
    Prefix {
        announced: bool,
        prefix: IpPrefix,
        max_length: u8,
        asn: u32,
    },
    /// `None` for the timers in version 0.
    EndOfData {
        session: u16,
        serial: u32,
        timers: Option<Timers>,
    },
    /// The cache cannot tell the difference: ask for everything.
    CacheReset,
    /// Of BGPsec; not looked into.
    RouterKey,
    /// Why the other end gives up, about which PDU, in words from outside.
    ErrorReport {
        code: u16,
        about: &'a [u8],
        text: Cow<'a, str>,
    },
}

/// Codes of error reports (RFC 8210 section 12).
pub mod error {
    pub const CORRUPT_DATA: u16 = 0;
    pub const INTERNAL: u16 = 1;
    pub const NO_DATA: u16 = 2;
    pub const INVALID_REQUEST: u16 = 3;
    pub const UNSUPPORTED_VERSION: u16 = 4;
    pub const UNSUPPORTED_TYPE: u16 = 5;
    pub const UNKNOWN_WITHDRAWN: u16 = 6;
    pub const DUPLICATE: u16 = 7;
    pub const UNEXPECTED_VERSION: u16 = 8;

    /// The name of a code.
    pub const fn name(code: u16) -> &'static str {
        match code {
            CORRUPT_DATA => "corrupt data",
            INTERNAL => "internal error",
            NO_DATA => "no data available",
            INVALID_REQUEST => "invalid request",
            UNSUPPORTED_VERSION => "unsupported protocol version",
            UNSUPPORTED_TYPE => "unsupported PDU type",
            UNKNOWN_WITHDRAWN => "withdrawal of unknown record",
            DUPLICATE => "duplicate announcement",
            UNEXPECTED_VERSION => "unexpected protocol version",
            _ => "unknown error",
        }
    }
}

/// Why bytes are no PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtrFault {
    #[error("protocol version {0}")]
    Version(u8),
    #[error("a PDU of type {0}, which this version does not have")]
    Type(u8),
    #[error("{length} bytes for a PDU of type {kind}")]
    Length { kind: u8, length: u32 },
    #[error("a VRP of prefix length {length} and maximum length {max_length} among {bits} bits")]
    PrefixLength { length: u8, max_length: u8, bits: u8 },
}

impl RtrFault {
    /// The code with which it is reported.
    pub fn code(self) -> u16 {
        match self {
            Self::Version(_) => error::UNSUPPORTED_VERSION,
            Self::Type(_) => error::UNSUPPORTED_TYPE,
            Self::Length { .. } | Self::PrefixLength { .. } => error::CORRUPT_DATA,
        }
    }
}

/// A message from the beginning of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    pub version: u8,
    pub pdu: Pdu<'a>,
    /// How many bytes it takes.
    pub length: usize,
}

impl<'a> Pdu<'a> {
    /// Decodes the first message; `None` if it is not whole yet.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<Decoded<'a>>, RtrFault> {
        let Some(&[version, kind, high, low, l0, l1, l2, l3]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        if version > VERSION_MAX {
            return Err(RtrFault::Version(version));
        }
        let announced = u32::from_be_bytes([l0, l1, l2, l3]);
        let wrong = RtrFault::Length { kind, length: announced };
        let length = usize::try_from(announced).map_err(|_| wrong)?;
        let expected = match (kind, version) {
            (0 | 1, _) => Some(12),
            (2 | 3 | 8, _) => Some(8),
            (4, _) => Some(20),
            (6, _) => Some(32),
            (7, 0) => Some(12),
            (7, _) => Some(24),
            (9, 1..) | (10, _) => None,
            _ => return Err(RtrFault::Type(kind)),
        };
        let smallest = if kind == 9 { 32 } else { 16 };
        if expected.map_or(!(smallest..=PDU_BYTES_MAX).contains(&length), |expected| length != expected) {
            return Err(wrong);
        }
        let Some(body) = bytes.get(HEADER_BYTES..length) else { return Ok(None) };
        let session = u16::from_be_bytes([high, low]);
        let pdu = match kind {
            0 => Pdu::SerialNotify { session, serial: number(body, 0) },
            1 => Pdu::SerialQuery { session, serial: number(body, 0) },
            2 => Pdu::ResetQuery,
            3 => Pdu::CacheResponse { session },
            4 | 6 => vrp(body)?,
            7 => {
                let timers = (version > 0).then(|| Timers {
                    refresh_s: number(body, 4),
                    retry_s: number(body, 8),
                    expire_s: number(body, 12),
                });
                Pdu::EndOfData { session, serial: number(body, 0), timers }
            }
            8 => Pdu::CacheReset,
            9 => Pdu::RouterKey,
            _ => error_report(session, body).ok_or(wrong)?,
        };
        Ok(Some(Decoded { version, pdu, length }))
    }

    /// Appends the message. An error report is cut to the longest PDU.
    pub fn write(&self, version: u8, out: &mut Vec<u8>) {
        let start = out.len();
        let mut begin = |kind: u8, field: u16| {
            out.extend_from_slice(&[version, kind]);
            out.extend_from_slice(&field.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
        };
        match self {
            Self::SerialNotify { session, serial } | Self::SerialQuery { session, serial } => {
                begin(u8::from(matches!(self, Self::SerialQuery { .. })), *session);
                out.extend_from_slice(&serial.to_be_bytes());
            }
            Self::ResetQuery => begin(2, 0),
            Self::CacheResponse { session } => begin(3, *session),
            Self::Prefix { announced, prefix, max_length, asn } => {
                let is_v4 = matches!(prefix, IpPrefix::V4(_));
                begin(if is_v4 { 4 } else { 6 }, 0);
                out.extend_from_slice(&[u8::from(*announced), prefix.length(), *max_length, 0]);
                match prefix {
                    IpPrefix::V4(prefix) => out.extend_from_slice(&prefix.address().to_be_bytes()),
                    IpPrefix::V6(prefix) => out.extend_from_slice(&prefix.address().to_be_bytes()),
                }
                out.extend_from_slice(&asn.to_be_bytes());
            }
            Self::EndOfData { session, serial, timers } => {
                begin(7, *session);
                out.extend_from_slice(&serial.to_be_bytes());
                if version > 0 {
                    let Timers { refresh_s, retry_s, expire_s } = timers.unwrap_or(Timers::DEFAULT);
                    [refresh_s, retry_s, expire_s]
                        .iter()
                        .for_each(|each| out.extend_from_slice(&each.to_be_bytes()));
                }
            }
            Self::CacheReset => begin(8, 0),
            // Of no subject and no key: nobody sends it but tests.
            Self::RouterKey => {
                begin(9, 0x0100);
                out.extend_from_slice(&[0; 24]);
            }
            Self::ErrorReport { code, about, text } => {
                begin(10, *code);
                let about = &about[..about.len().min(PDU_BYTES_MAX / 2)];
                let end =
                    (0..=text.len().min(PDU_BYTES_MAX / 4)).rev().find(|end| text.is_char_boundary(*end));
                for part in [about, &text.as_bytes()[..end.unwrap_or(0)]] {
                    out.extend_from_slice(&length_bytes(part.len()));
                    out.extend_from_slice(part);
                }
            }
        }
        let length = length_bytes(out.len() - start);
        if let Some(field) = out.get_mut(start + 4..start + HEADER_BYTES) {
            field.copy_from_slice(&length);
        }
    }
}

fn length_bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// A number in a body whose length was checked.
fn number(body: &[u8], at: usize) -> u32 {
    let four = body.get(at..).and_then(|rest| rest.first_chunk::<4>());
    four.map_or(0, |four| u32::from_be_bytes(*four))
}

fn vrp<'a>(body: &[u8]) -> Result<Pdu<'a>, RtrFault> {
    let &[flags, length, max_length, ..] = body else {
        return Err(RtrFault::Length { kind: 4, length: 0 });
    };
    let rest = &body[4..];
    let (prefix, bits) = match rest.first_chunk::<16>().filter(|_| rest.len() == 20) {
        Some(address) => (Prefix::new(u128::from_be_bytes(*address), length).map(IpPrefix::V6), 128),
        None => (Prefix::new(number(body, 4), length).map(IpPrefix::V4), 32),
    };
    let fault = RtrFault::PrefixLength { length, max_length, bits };
    let prefix = prefix.map_err(|_| fault)?;
    if max_length < length || max_length > bits {
        return Err(fault);
    }
    let asn = number(body, body.len() - 4);
    Ok(Pdu::Prefix { announced: flags & 1 != 0, prefix, max_length, asn })
}

fn error_report(code: u16, body: &[u8]) -> Option<Pdu<'_>> {
    let part = |bytes: &mut &'_ [u8]| -> Option<(usize, usize)> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let start = body.len() - rest.len();
        *bytes = rest.get(length..)?;
        Some((start, start + length))
    };
    let mut rest = body;
    let (about, text) = (part(&mut rest)?, part(&mut rest)?);
    let (about, text) = (body.get(about.0..about.1)?, body.get(text.0..text.1)?);
    rest.is_empty().then(|| Pdu::ErrorReport { code, about, text: String::from_utf8_lossy(text) })
}

impl fmt::Display for Pdu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SerialNotify { .. } => "Serial Notify",
            Self::SerialQuery { .. } => "Serial Query",
            Self::ResetQuery => "Reset Query",
            Self::CacheResponse { .. } => "Cache Response",
            Self::Prefix { .. } => "Prefix",
            Self::EndOfData { .. } => "End of Data",
            Self::CacheReset => "Cache Reset",
            Self::RouterKey => "Router Key",
            Self::ErrorReport { .. } => "Error Report",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pdu() -> impl Strategy<Value = Pdu<'static>> {
        let timers = (any::<[u32; 3]>()).prop_map(|[refresh_s, retry_s, expire_s]| Timers {
            refresh_s,
            retry_s,
            expire_s,
        });
        prop_oneof![
            any::<(u16, u32)>().prop_map(|(session, serial)| Pdu::SerialNotify { session, serial }),
            any::<(u16, u32)>().prop_map(|(session, serial)| Pdu::SerialQuery { session, serial }),
            Just(Pdu::ResetQuery),
            any::<u16>().prop_map(|session| Pdu::CacheResponse { session }),
            (any::<(bool, u32, u32)>(), 0u8..=32, 0u8..=32).prop_map(|((announced, address, asn), a, b)| {
                let prefix = Prefix::new(address, a.min(b)).unwrap().into();
                Pdu::Prefix { announced, prefix, max_length: a.max(b), asn }
            }),
            (any::<(bool, u128, u32)>(), 0u8..=128, 0u8..=128).prop_map(
                |((announced, address, asn), a, b)| {
                    let prefix = Prefix::new(address, a.min(b)).unwrap().into();
                    Pdu::Prefix { announced, prefix, max_length: a.max(b), asn }
                }
            ),
            (any::<(u16, u32)>(), timers).prop_map(|((session, serial), timers)| Pdu::EndOfData {
                session,
                serial,
                timers: Some(timers)
            }),
            Just(Pdu::CacheReset),
            Just(Pdu::RouterKey),
            (any::<u16>(), ".{0,40}").prop_map(|(code, text)| Pdu::ErrorReport {
                code,
                about: &[1, 2, 0, 0, 0, 0, 0, 8],
                text: text.into()
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(pdu in any_pdu(), version in 0u8..=1, behind: Vec<u8>) {
            let mut bytes = Vec::new();
            pdu.write(version, &mut bytes);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(Pdu::decode(&bytes[..cut]).unwrap_or(None), None);
            }
            bytes.extend(behind);
            let pdu = match pdu {
                Pdu::EndOfData { session, serial, .. } if version == 0 => {
                    Pdu::EndOfData { session, serial, timers: None }
                }
                Pdu::RouterKey if version == 0 => {
                    prop_assert_eq!(Pdu::decode(&bytes), Err(RtrFault::Type(9)));
                    return Ok(());
                }
                other => other,
            };
            prop_assert_eq!(Pdu::decode(&bytes), Ok(Some(Decoded { version, pdu, length })));
        }

        /// Whatever a cache sends, no answer waits for more bytes than the longest PDU has.
        #[test]
        fn arbitrary_bytes_never_wait_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if let Ok(None) = Pdu::decode(&bytes) {
                bytes.resize(PDU_BYTES_MAX, 0);
                prop_assert!(!matches!(Pdu::decode(&bytes), Ok(None)));
            }
        }
    }

    #[test]
    fn faults_are_named() {
        let decode = |bytes: &[u8]| Pdu::decode(bytes).unwrap_err();
        assert_eq!(decode(&[2, 2, 0, 0, 0, 0, 0, 8]), RtrFault::Version(2));
        assert_eq!(decode(&[1, 5, 0, 0, 0, 0, 0, 8]), RtrFault::Type(5));
        assert_eq!(decode(&[1, 2, 0, 0, 0, 0, 0, 9]), RtrFault::Length { kind: 2, length: 9 });
        assert_eq!(decode(&[1, 10, 0, 0, 1, 0, 0, 0]), RtrFault::Length { kind: 10, length: 1 << 24 });
        let mut vrp = vec![1, 4, 0, 0, 0, 0, 0, 20, 1, 24, 23, 0];
        vrp.extend([192, 0, 2, 0, 0, 0, 0, 1]);
        assert_eq!(decode(&vrp), RtrFault::PrefixLength { length: 24, max_length: 23, bits: 32 });
        (vrp[9], vrp[10]) = (33, 33);
        assert_eq!(decode(&vrp), RtrFault::PrefixLength { length: 33, max_length: 33, bits: 32 });
        // The text is longer than what is left of the PDU.
        let report = [1, 10, 0, 2, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 2, b'a'];
        assert_eq!(decode(&report), RtrFault::Length { kind: 10, length: 17 });
    }
}

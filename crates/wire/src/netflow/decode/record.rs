//! Records and their fields, as views of the message.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::bytes::u16_at;
use super::fault::{Fault, FaultKind};
use super::header::Header;
use super::template::{FieldName, Template, VARIABLE};
use crate::netflow::element::{DataType, FLOW_END_SYS_UP_TIME, FLOW_START_SYS_UP_TIME};

const NS_PER_S: u64 = 1_000_000_000;

/// Seconds from NTP's epoch (1900) to Unix's.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

/// A data record of flows or options; its template says which.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The header of the message that contained it, even if the record had to wait for its template.
    pub header: &'a Header,
    pub template: &'a Template,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The fields in the template's order, scopes first.
    pub fn fields(&self) -> Fields<'a> {
        Fields { template: self.template, number: 0, bytes: self.bytes }
    }

    /// The record's bytes, without padding.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Iterates over the fields of a record.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    template: &'a Template,
    number: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        let specifier = self.template.fields.get(self.number)?;
        let (prefix, bytes) = field_extent(specifier.bytes, self.bytes);
        // The record's length was checked, so its fields exist.
        let value = self.bytes.get(prefix..prefix + bytes)?;
        self.bytes = &self.bytes[prefix + bytes..];
        self.number += 1;
        Some(Field { name: specifier.name, is_scope: self.number <= self.template.scopes, bytes: value })
    }
}

/// The bytes of a field's length prefix, and the field's length (RFC 7011, 7). Missing bytes read as 0; the
/// caller compares the sum with the remaining bytes.
#[inline]
fn field_extent(specified: u16, bytes: &[u8]) -> (usize, usize) {
    if specified != VARIABLE {
        return (0, usize::from(specified));
    }
    match bytes.first() {
        Some(255) => (3, usize::from(u16_at(bytes, 1))),
        Some(short) => (1, usize::from(*short)),
        None => (1, 0),
    }
}

/// The length of the record at the beginning of `rest`, which is at least the shortest record. `offset` is
/// that of `rest` in the message.
fn record_bytes(template: &Template, rest: &[u8], offset: usize) -> Result<usize, Fault> {
    if template.is_fixed {
        return Ok(template.bytes_min);
    }
    let mut at = 0;
    for specifier in &template.fields {
        let left = rest.get(at..).unwrap_or_default();
        let (prefix, bytes) = field_extent(specifier.bytes, left);
        if prefix + bytes > left.len() {
            let kind = FaultKind::FieldLength { says: bytes, has: left.len().saturating_sub(prefix) };
            return Err(Fault::new(offset + at, kind));
        }
        at += prefix + bytes;
    }
    Ok(at)
}

/// The result of cutting a set into records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) records: u32,
    /// Bytes were left that are too few for a record and not all zeros.
    pub(super) has_tail: bool,
    /// Why cutting ended early.
    pub(super) fault: Option<Fault>,
}

/// Cuts a set's content into records. `offset` is that of `set` in the message.
pub(super) fn cut(
    header: &Header,
    template: &Template,
    set: &[u8],
    offset: usize,
    visit: &mut dyn FnMut(&Record<'_>),
) -> Cut {
    let mut cut = Cut::default();
    let mut at = 0;
    while set.len() - at >= template.bytes_min {
        match record_bytes(template, &set[at..], offset + at) {
            Ok(bytes) => {
                visit(&Record { header, template, bytes: &set[at..at + bytes] });
                cut.records += 1;
                at += bytes;
            }
            Err(fault) => {
                cut.fault = Some(fault);
                return cut;
            }
        }
    }
    cut.has_tail = set[at..].iter().any(|byte| *byte != 0);
    cut
}

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: FieldName,
    /// The field identifies what the other fields describe.
    pub is_scope: bool,
    /// Without the length prefix.
    pub bytes: &'a [u8],
}

impl<'a> Field<'a> {
    /// The value as a number of up to eight bytes, after leading zeros. Values shorter than the element's
    /// type are RFC 7011's reduced-size encoding (6.2); longer ones occur in NetFlow 9.
    #[inline]
    pub fn unsigned(&self) -> Option<u64> {
        // Nearly all fields have one of these lengths; a loop over bytes takes several times as long.
        match *self.bytes {
            [a] => return Some(a.into()),
            [a, b] => return Some(u16::from_be_bytes([a, b]).into()),
            [a, b, c, d] => return Some(u32::from_be_bytes([a, b, c, d]).into()),
            _ => {}
        }
        let (zeros, number) = self.bytes.split_at(self.bytes.len().saturating_sub(8));
        if self.bytes.is_empty() || zeros.iter().any(|byte| *byte != 0) {
            return None;
        }
        Some(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// The value as a floating-point number of four or eight bytes.
    pub fn float(&self) -> Option<f64> {
        match self.bytes.len() {
            4 => Some(f64::from(f32::from_be_bytes(self.bytes.try_into().ok()?))),
            8 => Some(f64::from_be_bytes(self.bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// The value as an address of four or sixteen bytes.
    #[inline]
    pub fn address(&self) -> Option<IpAddr> {
        if let Ok(bytes) = <[u8; 4]>::try_from(self.bytes) {
            return Some(Ipv4Addr::from(bytes).into());
        }
        <[u8; 16]>::try_from(self.bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
    }

    /// The value as text, without trailing zeros. Invalid UTF-8 is replaced.
    pub fn text(&self) -> Cow<'a, str> {
        let zeros = self.bytes.iter().rev().take_while(|byte| **byte == 0).count();
        String::from_utf8_lossy(&self.bytes[..self.bytes.len() - zeros])
    }

    /// The time in nanoseconds since the epoch: for elements of a time type, and for `flowStartSysUpTime` and
    /// `flowEndSysUpTime` if the header gives the exporter's start. Times after the year 2554 are limited to
    /// it.
    pub fn time_ns(&self, header: &Header) -> Option<u64> {
        let (FieldName::Element(id) | FieldName::Reverse(id)) = self.name else { return None };
        if matches!(id, FLOW_START_SYS_UP_TIME | FLOW_END_SYS_UP_TIME) {
            return header.uptime_to_ns(u32::try_from(self.unsigned()?).ok()?);
        }
        match self.name.element()?.data_type {
            DataType::Seconds => Some(self.unsigned()?.saturating_mul(NS_PER_S)),
            DataType::Milliseconds => Some(self.unsigned()?.saturating_mul(1_000_000)),
            // RFC 7011, 6.1.9: the lowest eleven bits are below a microsecond and must be ignored.
            DataType::Microseconds => {
                Some(ntp_to_ns(u64::from_be_bytes(self.bytes.try_into().ok()?) & !0x7ff))
            }
            DataType::Nanoseconds => Some(ntp_to_ns(u64::from_be_bytes(self.bytes.try_into().ok()?))),
            _ => None,
        }
    }
}

/// Converts an NTP time stamp to nanoseconds since the Unix epoch. Seconds with a clear highest bit belong to
/// NTP's era that begins in February 2036.
fn ntp_to_ns(stamp: u64) -> u64 {
    let (seconds, fraction) = (stamp >> 32, stamp & 0xffff_ffff);
    let era = if seconds >> 31 == 0 { 1 << 32 } else { 0 };
    // Rounded: 2^-32 s is less than a nanosecond, so every nanosecond survives the round trip.
    let fraction_ns = (fraction * NS_PER_S + (1 << 31)) >> 32;
    // Times before 1970 cannot be meant.
    (seconds + era).saturating_sub(NTP_TO_UNIX_S) * NS_PER_S + fraction_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ntp_times_of_both_eras() {
        assert_eq!(ntp_to_ns(NTP_TO_UNIX_S << 32), 0);
        assert_eq!(ntp_to_ns((NTP_TO_UNIX_S + 1) << 32 | 1 << 31), 1_500_000_000);
        // 2036-02-07T06:28:16Z is where the seconds wrap.
        assert_eq!(ntp_to_ns(0), 2_085_978_496 * NS_PER_S);
        assert_eq!(ntp_to_ns(0xffff_ffff << 32), 2_085_978_495 * NS_PER_S);
    }

    #[test]
    fn numbers_of_any_length() {
        fn field(bytes: &[u8]) -> Field<'_> {
            Field { name: FieldName::Element(1), is_scope: false, bytes }
        }
        assert_eq!(field(&[1, 2]).unsigned(), Some(0x102));
        assert_eq!(field(&[7]).unsigned(), Some(7));
        assert_eq!(field(&[1, 2, 3]).unsigned(), Some(0x1_0203));
        assert_eq!(field(&[0xf1, 2, 3, 4]).unsigned(), Some(0xf102_0304));
        assert_eq!(field(&[0xf1, 2, 3, 4, 5, 6, 7, 8]).unsigned(), Some(0xf102_0304_0506_0708));
        assert_eq!(field(&[0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).unsigned(), Some(0x0102_0304_0506_0708));
        assert_eq!(field(&[1, 0, 0, 0, 0, 0, 0, 0, 0]).unsigned(), None);
        assert_eq!(field(&[]).unsigned(), None);
        assert_eq!(field(&1.5f32.to_be_bytes()).float(), Some(1.5));
        assert_eq!(field(&[b'a', 0, b'b', 0, 0]).text(), "a\0b");
    }

    proptest! {
        #[test]
        fn nanoseconds_survive_ntp(unix_s in 0u64..4_000_000_000, ns in 0u64..1_000_000_000) {
            // As RFC 7011 6.1.10 has exporters do: the fraction is in 2^-32 seconds, rounded.
            let fraction = ((ns << 32) + NS_PER_S / 2) / NS_PER_S;
            let seconds = (unix_s + NTP_TO_UNIX_S) & 0xffff_ffff;
            let expected = unix_s * NS_PER_S + ns;
            // One byte pattern stands for two times, 136 years apart.
            prop_assume!(unix_s + NTP_TO_UNIX_S >= 1 << 31 && unix_s + NTP_TO_UNIX_S < (1 << 32) + (1 << 31));
            prop_assert_eq!(ntp_to_ns(seconds << 32 | fraction), expected);
        }
    }
}

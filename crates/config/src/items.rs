//! Values that several sections share: rates and sizes, ports and prefixes, code points and protocols, names.

use std::ops::{Range, RangeInclusive};

use ipnet::IpNet;
use thalweg_dataplane::helpers::Helper;

use crate::diagnostic::{ErrorKind, nearest};
use crate::reader::{At, Item, Reader, integer_of};
use crate::values;

pub(crate) const DSCP_LIST: &str = "a DSCP or a list";
pub(crate) const PROTOCOL_LIST: &str = "a protocol or a list";
pub(crate) const PORT_LIST: &str = "a port, a range or a list";
pub(crate) const PREFIX_LIST: &str = "a prefix or a list";

pub(crate) const RATE: &str = "a rate";
pub(crate) const SIZE: &str = "a size";

const BURST_MAX_BYTES: u64 = 1 << 40;
const RATE_MAX_BPS: u64 = 1 << 50;
pub(crate) fn parse_name(text: &str) -> Result<String, &'static str> {
    let is_allowed = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    if !text.trim().is_empty() && text.chars().count() <= 64 && text.chars().all(is_allowed) {
        Ok(text.to_owned())
    } else {
        Err("up to 64 letters, digits, blanks, `-`, `_` and `.`")
    }
}

/// No packet has a source of one family and a destination of the other.
pub(crate) fn check_families(
    reader: &mut Reader,
    sources: &[IpNet],
    destinations: &[IpNet],
    span: &Range<usize>,
) {
    let families =
        |nets: &[IpNet]| (nets.iter().any(|n| n.addr().is_ipv4()), nets.iter().any(|n| n.addr().is_ipv6()));
    if !sources.is_empty() && !destinations.is_empty() {
        let (from, to) = (families(sources), families(destinations));
        if !(from.0 && to.0 || from.1 && to.1) {
            let message = "source and destination are of different families";
            reader.error(ErrorKind::Conflict, span, message, "prefixes of the same family");
        }
    }
}

pub(crate) fn port_range(reader: &mut Reader, item: &Item<'_>) -> Option<RangeInclusive<u16>> {
    if integer_of(item.value).is_some() {
        let port: u16 = reader.integer(item, 1..=65535, "")?;
        return Some(port..=port);
    }
    reader.parse(item, values::port_range).map(|at| at.value)
}

pub(crate) fn read_prefix(reader: &mut Reader, item: &Item<'_>) -> Option<IpNet> {
    reader.parse(item, values::prefix).map(|at| at.value)
}

pub(crate) fn read_dscp(reader: &mut Reader, item: &Item<'_>) -> Option<u8> {
    if integer_of(item.value).is_some() {
        return reader.integer(item, 0..=63, "");
    }
    const EXPECTED: &str = "a number from 0 to 63, or a name such as ef, af41, cs6";
    let name = reader.string(item, EXPECTED)?;
    let value = values::dscp(name);
    if value.is_none() {
        let suggestion = nearest(name, values::DSCP_NAMES.iter().map(|(name, _)| *name));
        let finding =
            reader.error(ErrorKind::UnknownName, &item.span, format!("no DSCP is named `{name}`"), EXPECTED);
        finding.help = suggestion.map(|s| format!("did you mean `{s}`?"));
    }
    value
}

pub(crate) fn read_protocol(reader: &mut Reader, item: &Item<'_>) -> Option<u8> {
    if integer_of(item.value).is_some() {
        return reader.integer(item, 0..=255, "");
    }
    reader.word(item, values::PROTOCOLS)
}

pub(crate) fn read_rate(reader: &mut Reader, item: &Item<'_>) -> Option<u64> {
    if integer_of(item.value).is_some() {
        return reader.integer(item, 1..=RATE_MAX_BPS, "bits per second");
    }
    let rate = reader.parse(item, values::rate)?;
    within(reader, item, rate, RATE_MAX_BPS, "at most 1125 Tbit/s")
}

pub(crate) fn read_size(reader: &mut Reader, item: &Item<'_>) -> Option<u64> {
    if integer_of(item.value).is_some() {
        return reader.integer(item, 0..=BURST_MAX_BYTES, "bytes");
    }
    let size = reader.parse(item, values::size)?;
    within(reader, item, size, BURST_MAX_BYTES, "at most 1024 GiB")
}

fn within(reader: &mut Reader, item: &Item<'_>, at: At<u64>, most: u64, expected: &str) -> Option<u64> {
    if at.value > most {
        reader.error(ErrorKind::BadValue, &at.span, format!("`{}` is out of range", item.key), expected);
        return None;
    }
    Some(at.value)
}

/// Protocols with a helper.
pub(crate) fn helpers(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<Helper>> {
    reader.all(item, |reader, entry| reader.word(entry, &Helper::NAMES))
}

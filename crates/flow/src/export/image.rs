//! Flow records as bytes, for keeping them on disk until a collector is back.
//!
//! Not a message: sequence numbers and templates belong to a session, so what waits for a session has neither. An image is
//! a length (two bytes), a sum (four) and then fields, little-endian, behind a set of flags that says which optional
//! ones there are. The sum tells a torn end from a record.
//!
//! Images that an earlier version left have no [`KNOWN`]: ports counted from 0 in two bytes, and 0 where nothing is known.

use crate::record::{Counters, Drops, EndReason, FlowKey, FlowRecord, Translation, interface_of_port};
use std::net::IpAddr;
use thalweg_base::{DropReason, mix64};
use thalweg_wire::ip_protocol::TCP;

/// No image is longer.
pub const IMAGE_BYTES_MAX: usize = 512;
const HEAD_BYTES: usize = 6;

const IPV6: u16 = 1;
const MPLS: u16 = 1 << 1;
const REVERSE: u16 = 1 << 2;
const NEXT_HOP: u16 = 1 << 3;
const BGP_NEXT_HOP: u16 = 1 << 4;
const TRANSLATION: u16 = 1 << 5;
const DROPS: u16 = 1 << 6;
/// Interfaces have four bytes, and a byte says which values of counters are known.
const KNOWN: u16 = 1 << 7;

/// What of counters is known.
const KNOWN_FLAGS: u8 = 1;
const KNOWN_TTL_MIN: u8 = 1 << 1;
const KNOWN_TTL_MAX: u8 = 1 << 2;

/// Why bytes are no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The bytes end inside an image.
    Short,
    /// The sum is wrong.
    Sum,
    /// The sum is right, but a field has a value that it cannot have: another version wrote it.
    Value,
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Short => "ends inside a record",
            Self::Sum => "the record's checksum is wrong",
            Self::Value => "the record has a value that this version does not know",
        })
    }
}

impl std::error::Error for ImageError {}

/// Appends the image of a record.
pub fn write_image(record: &FlowRecord, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    let flag = |is: bool, flag: u16| if is { flag } else { 0 };
    let flags = KNOWN
        | flag(record.key.src.is_ipv6(), IPV6)
        | flag(record.key.mpls_label.is_some(), MPLS)
        | flag(record.reverse.is_some(), REVERSE)
        | flag(record.next_hop.is_some(), NEXT_HOP)
        | flag(record.bgp_next_hop.is_some(), BGP_NEXT_HOP)
        | flag(record.translation.is_some(), TRANSLATION)
        | flag(!record.drops.is_empty(), DROPS);
    let key = &record.key;
    out.extend_from_slice(&flags.to_le_bytes());
    put_address(key.src, out);
    put_address(key.dst, out);
    for value in [key.src_port, key.dst_port, key.vlan] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for value in [key.ingress, record.egress] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    let end_reason = record.end_reason.map_or(0, |reason| reason as u8);
    out.extend_from_slice(&[key.protocol, key.traffic_class, end_reason, record.application]);
    for value in [record.src_as, record.dst_as, record.sampling_interval] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    put_counters(&record.counters, out);
    if let Some(label) = key.mpls_label {
        out.extend_from_slice(&label.to_le_bytes());
    }
    if let Some(reverse) = &record.reverse {
        put_counters(reverse, out);
    }
    for hop in [record.next_hop, record.bgp_next_hop].into_iter().flatten() {
        put_address(hop, out);
    }
    if let Some(translation) = &record.translation {
        put_address(translation.src, out);
        put_address(translation.dst, out);
        out.extend_from_slice(&translation.src_port.to_le_bytes());
        out.extend_from_slice(&translation.dst_port.to_le_bytes());
    }
    if !record.drops.is_empty() {
        put_drops(&record.drops, out);
    }
    let length = (out.len() - start - HEAD_BYTES) as u16;
    let sum = sum(&out[start + HEAD_BYTES..]);
    out[start..start + 2].copy_from_slice(&length.to_le_bytes());
    out[start + 2..start + HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
}

fn put_counters(counters: &Counters, out: &mut Vec<u8>) {
    for value in [counters.packets, counters.bytes, counters.first_ns, counters.last_ns] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    let Counters { tcp_flags, ttl_min, ttl_max, .. } = *counters;
    let bit = |value: Option<u8>, bit: u8| if value.is_some() { bit } else { 0 };
    let known = bit(tcp_flags, KNOWN_FLAGS) | bit(ttl_min, KNOWN_TTL_MIN) | bit(ttl_max, KNOWN_TTL_MAX);
    out.push(known);
    out.extend([tcp_flags, ttl_min, ttl_max].map(Option::unwrap_or_default));
}

fn put_drops(drops: &Drops, out: &mut Vec<u8>) {
    out.extend_from_slice(&drops.bytes.to_le_bytes());
    out.extend_from_slice(&drops.others().to_le_bytes());
    out.push(drops.by_reason().count() as u8);
    for (reason, packets) in drops.by_reason() {
        out.push(reason as u8);
        out.extend_from_slice(&packets.to_le_bytes());
    }
}

fn sum(image: &[u8]) -> u32 {
    let mut sum = image.len() as u64;
    for word in image.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        sum = mix64(sum ^ u64::from_le_bytes(bytes));
    }
    (sum >> 32) as u32
}

/// Reads the image at the beginning of `bytes`; the record, and the bytes behind it.
pub fn read_image(bytes: &[u8]) -> Result<(FlowRecord, &[u8]), ImageError> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(ImageError::Short)?;
    let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let (body, rest) = rest.split_at_checked(length).ok_or(ImageError::Short)?;
    if sum(body).to_le_bytes() != head[2..] {
        return Err(ImageError::Sum);
    }
    let mut body = Body(body);
    let record = body.record().ok_or(ImageError::Value)?;
    if body.0.is_empty() { Ok((record, rest)) } else { Err(ImageError::Value) }
}

/// What is not read yet of an image.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.take()? {
            [4] => Some(IpAddr::from(self.take::<4>()?)),
            [6] => Some(IpAddr::from(self.take::<16>()?)),
            _ => None,
        }
    }

    /// Counters; `old_of` is the protocol in an image that does not say what of them is known.
    fn counters(&mut self, old_of: Option<u8>) -> Option<Counters> {
        let (packets, bytes, first_ns, last_ns) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let known = match old_of {
            None => self.take::<1>()?[0],
            Some(TCP) => KNOWN_FLAGS | KNOWN_TTL_MIN | KNOWN_TTL_MAX,
            Some(_) => KNOWN_TTL_MIN | KNOWN_TTL_MAX,
        };
        let [tcp_flags, ttl_min, ttl_max] = self.take()?;
        let of = |bit: u8, value: u8| (known & bit != 0).then_some(value);
        Some(Counters {
            packets,
            bytes,
            first_ns,
            last_ns,
            tcp_flags: of(KNOWN_FLAGS, tcp_flags),
            ttl_min: of(KNOWN_TTL_MIN, ttl_min),
            ttl_max: of(KNOWN_TTL_MAX, ttl_max),
        })
    }

    /// Interfaces in and out, and the VLAN.
    fn interfaces(&mut self, flags: u16) -> Option<(u32, u32, u16)> {
        if flags & KNOWN != 0 {
            let vlan = self.u16()?;
            return Some((self.u32()?, self.u32()?, vlan));
        }
        let (ingress, vlan, egress) = (self.u16()?, self.u16()?, self.u16()?);
        Some((interface_of_port(ingress), interface_of_port(egress), vlan))
    }

    fn drops(&mut self) -> Option<Drops> {
        let (bytes, others) = (self.u64()?, self.u32()?);
        let [reasons] = self.take()?;
        let mut drops = Drops::default();
        let mut told = Vec::with_capacity(4);
        for _ in 0..reasons {
            let [code] = self.take()?;
            let reason = DropReason::from_code(code)?;
            told.push(reason);
            drops.add(reason, self.u32()?, 0);
        }
        if others > 0 {
            // A reason that is not told apart: any that has no place of its own.
            let other = DropReason::ALL.iter().find(|reason| !told.contains(reason))?;
            drops.add(*other, others, 0);
        }
        drops.bytes = bytes;
        Some(drops)
    }

    fn record(&mut self) -> Option<FlowRecord> {
        let flags = self.u16()?;
        let (src, dst) = (self.address()?, self.address()?);
        let (src_port, dst_port) = (self.u16()?, self.u16()?);
        let (ingress, egress, vlan) = self.interfaces(flags)?;
        let [protocol, traffic_class, end_reason, application] = self.take()?;
        let (src_as, dst_as, sampling_interval) = (self.u32()?, self.u32()?, self.u32()?);
        let has = |flag: u16| flags & flag != 0;
        let old_of = (!has(KNOWN)).then_some(protocol);
        let counters = self.counters(old_of)?;
        let mpls_label = if has(MPLS) { Some(self.u32()?) } else { None };
        let key =
            FlowKey { src, dst, src_port, dst_port, protocol, traffic_class, ingress, vlan, mpls_label };
        let reverse = if has(REVERSE) { Some(self.counters(old_of)?) } else { None };
        let next_hop = if has(NEXT_HOP) { Some(self.address()?) } else { None };
        let bgp_next_hop = if has(BGP_NEXT_HOP) { Some(self.address()?) } else { None };
        let translation = match has(TRANSLATION) {
            true => Some(Translation {
                src: self.address()?,
                dst: self.address()?,
                src_port: self.u16()?,
                dst_port: self.u16()?,
            }),
            false => None,
        };
        let drops = if has(DROPS) { self.drops()? } else { Drops::default() };
        let end_reason = match end_reason {
            0 => None,
            code => Some(EndReason::from_code(code)?),
        };
        Some(FlowRecord {
            reverse,
            application,
            egress,
            next_hop,
            src_as,
            dst_as,
            bgp_next_hop,
            translation,
            drops,
            sampling_interval,
            ..FlowRecord::new(key, counters, end_reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of TCP as the version before wrote it: ports from 0 in two bytes, no word of what is known.
    #[test]
    fn images_of_the_version_before_are_read() {
        let mut body = 0u16.to_le_bytes().to_vec();
        for last in [1, 2] {
            body.extend([4, 192, 0, 2, last]);
        }
        for value in [40_000u16, 443, 6, 7, u16::MAX] {
            body.extend(value.to_le_bytes());
        }
        body.extend([TCP, 0, 1, 5]);
        [0u32, 64_500, 1].iter().for_each(|value| body.extend(value.to_le_bytes()));
        [3u64, 300, 1_000, 2_000].iter().for_each(|value| body.extend(value.to_le_bytes()));
        body.extend([0x1b, 60, 64]);
        let head = [(body.len() as u16).to_le_bytes().to_vec(), sum(&body).to_le_bytes().to_vec()].concat();
        let image = [head, body].concat();
        let (record, rest) = read_image(&image).expect("an image");
        assert!(rest.is_empty());
        assert_eq!((record.key.ingress, record.egress, record.key.vlan), (7, 0, 7));
        let counters = record.counters;
        assert_eq!((counters.tcp_flags, counters.ttl_min), (Some(0x1b), Some(60)));
        assert_eq!((record.end_reason, record.dst_as), (Some(EndReason::IdleTimeout), 64_500));
        let mut again = Vec::new();
        write_image(&record, &mut again);
        assert_eq!(read_image(&again).expect("an image").0, record);
    }
}

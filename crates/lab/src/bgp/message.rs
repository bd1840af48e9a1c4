//! BGP messages as the laboratory writes and reads them: enough for a neighbor that announces, withdraws and
//! listens.
//!
//! This is not the daemon's codec and must not become it: what tests a daemon needs its own reading of the RFCs
//! (4271 section 4, 4760, 6793), or a mistake that both ends share goes unseen.
//!
//! Reading is strict if a wrong length would lead outside the message, and ignores everything that does not matter
//! for a prefix's path: attribute flags, order, unknown codes.

use std::net::{Ipv4Addr, Ipv6Addr};
use thalweg_base::{Address, IpPrefix, Prefix, mix64};
use thalweg_wire::bgp::{Family, attribute};

/// Bytes of the header: marker, length, type.
pub const HEADER_LEN: usize = 19;
/// The longest message without RFC 8654.
pub const MESSAGE_MAX: usize = 4096;
/// Stands for a four-octet AS number in a two-octet field (RFC 6793).
const AS_TRANS: u16 = 23456;

/// Message types.
pub mod kind {
    pub const OPEN: u8 = 1;
    pub const UPDATE: u8 = 2;
    pub const NOTIFICATION: u8 = 3;
    pub const KEEPALIVE: u8 = 4;
    /// ROUTE-REFRESH (RFC 2918)
    pub const ROUTE_REFRESH: u8 = 5;
}

/// Why bytes are no message, or no UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The marker is not all ones.
    #[error("a marker that is not all ones")]
    Marker,
    /// The header's length is out of range.
    #[error("a message of {0} bytes")]
    Length(usize),
    /// An inner length exceeds the message, or a prefix is longer than its family allows.
    #[error("an UPDATE with {0} that does not fit")]
    Body(&'static str),
}

/// Appends a message; `body` writes what follows the header.
pub fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0xff; 16]);
    out.extend_from_slice(&[0, 0, kind]);
    body(out);
    let length = (out.len() - start) as u16;
    out[start + 16..start + 18].copy_from_slice(&length.to_be_bytes());
}

/// The fields of an OPEN that vary.
#[derive(Clone, Debug)]
pub struct OpenFields {
    pub as_number: u32,
    pub hold_time_s: u16,
    pub router_id: Ipv4Addr,
    pub families: Vec<Family>,
}

/// Appends an OPEN with multiprotocol, route-refresh and four-octet AS capabilities.
pub fn open(out: &mut Vec<u8>, fields: &OpenFields) {
    let mut capabilities = Vec::new();
    for family in &fields.families {
        let (afi, safi) = family.afi_safi();
        capabilities.extend_from_slice(&[1, 4]);
        capabilities.extend_from_slice(&afi.to_be_bytes());
        capabilities.extend_from_slice(&[0, safi]);
    }
    capabilities.extend_from_slice(&[2, 0, 65, 4]);
    capabilities.extend_from_slice(&fields.as_number.to_be_bytes());
    message(out, kind::OPEN, |out| {
        out.push(4);
        let short = u16::try_from(fields.as_number).unwrap_or(AS_TRANS);
        out.extend_from_slice(&short.to_be_bytes());
        out.extend_from_slice(&fields.hold_time_s.to_be_bytes());
        out.extend_from_slice(&fields.router_id.octets());
        out.push((capabilities.len() + 2) as u8);
        out.extend_from_slice(&[2, capabilities.len() as u8]);
        out.extend_from_slice(&capabilities);
    });
}

/// Appends a KEEPALIVE.
pub fn keepalive(out: &mut Vec<u8>) {
    message(out, kind::KEEPALIVE, |_| {});
}

/// Appends a ROUTE-REFRESH.
pub fn route_refresh(out: &mut Vec<u8>, family: Family) {
    let (afi, safi) = family.afi_safi();
    message(out, kind::ROUTE_REFRESH, |out| {
        out.extend_from_slice(&afi.to_be_bytes());
        out.extend_from_slice(&[0, safi]);
    });
}

/// Appends a path attribute; sets the flag for extended length if the value needs it.
pub fn put_attribute(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    if value.len() > 255 {
        out.extend_from_slice(&[flags | attribute::FLAG_EXTENDED, code]);
        out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    } else {
        out.extend_from_slice(&[flags, code, value.len() as u8]);
    }
    out.extend_from_slice(value);
}

/// Appends a prefix in NLRI format.
pub fn put_prefix(out: &mut Vec<u8>, prefix: IpPrefix) {
    fn put<A: Address>(out: &mut Vec<u8>, prefix: Prefix<A>) {
        let bytes = usize::from(prefix.length().div_ceil(8));
        let address = prefix.address().to_u128() << (128 - u32::from(A::BITS));
        out.push(prefix.length());
        out.extend_from_slice(&address.to_be_bytes()[..bytes]);
    }
    match prefix {
        IpPrefix::V4(prefix) => put(out, prefix),
        IpPrefix::V6(prefix) => put(out, prefix),
    }
}

/// The family that a prefix belongs to.
pub fn family_of(prefix: IpPrefix) -> Family {
    match prefix {
        IpPrefix::V4(_) => Family::Ipv4,
        IpPrefix::V6(_) => Family::Ipv6,
    }
}

/// The next hops of an announcement.
#[derive(Clone, Copy, Debug)]
pub struct NextHops {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

/// Messages for one session, back to back.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub bytes: Vec<u8>,
    /// The offset of each message's end.
    pub ends: Vec<usize>,
    /// Prefixes announced and withdrawn.
    pub prefixes: u64,
}

impl Stream {
    /// The number of messages.
    pub fn messages(&self) -> usize {
        self.ends.len()
    }

    /// Appends UPDATEs that announce `prefixes` (all of one family) with `attributes`, which must have neither
    /// NEXT_HOP nor MP_REACH_NLRI. No UPDATE has more than `per_update` prefixes.
    pub fn announce(&mut self, attributes: &[u8], hops: NextHops, prefixes: &[IpPrefix], per_update: usize) {
        self.chunks(prefixes, per_update, attributes.len() + 64, |out, family, nlri| {
            out.extend_from_slice(&[0, 0]);
            let at = out.len();
            out.extend_from_slice(&[0, 0]);
            let well_known = attribute::FLAG_TRANSITIVE;
            out.extend_from_slice(attributes);
            match family {
                Family::Ipv4 => put_attribute(out, well_known, attribute::NEXT_HOP, &hops.v4.octets()),
                Family::Ipv6 => {
                    let mut value = vec![0, 2, 1, 16];
                    value.extend_from_slice(&hops.v6.octets());
                    value.push(0);
                    value.extend_from_slice(nlri);
                    put_attribute(out, attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, &value);
                }
            }
            let length = (out.len() - at - 2) as u16;
            out[at..at + 2].copy_from_slice(&length.to_be_bytes());
            if family == Family::Ipv4 {
                out.extend_from_slice(nlri);
            }
        });
    }

    /// Appends UPDATEs that withdraw `prefixes` (all of one family).
    pub fn withdraw(&mut self, prefixes: &[IpPrefix], per_update: usize) {
        self.chunks(prefixes, per_update, 32, |out, family, nlri| match family {
            Family::Ipv4 => {
                out.extend_from_slice(&(nlri.len() as u16).to_be_bytes());
                out.extend_from_slice(nlri);
                out.extend_from_slice(&[0, 0]);
            }
            Family::Ipv6 => {
                let mut value = vec![0, 2, 1];
                value.extend_from_slice(nlri);
                let mut attributes = Vec::new();
                put_attribute(&mut attributes, attribute::FLAG_OPTIONAL, attribute::MP_UNREACH_NLRI, &value);
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
                out.extend_from_slice(&attributes);
            }
        });
    }

    /// Splits `prefixes` so that each message fits, with `overhead` bytes besides the NLRI and the header.
    fn chunks(
        &mut self,
        prefixes: &[IpPrefix],
        per_update: usize,
        overhead: usize,
        mut body: impl FnMut(&mut Vec<u8>, Family, &[u8]),
    ) {
        let room = MESSAGE_MAX.saturating_sub(HEADER_LEN + 4 + overhead);
        let mut nlri = Vec::new();
        let mut count = 0;
        let mut iter = prefixes.iter().peekable();
        while let Some(&prefix) = iter.next() {
            put_prefix(&mut nlri, prefix);
            count += 1;
            let family = family_of(prefix);
            let next = iter.peek().map_or(0, |p| 1 + usize::from(p.length().div_ceil(8)));
            if next == 0 || count == per_update.max(1) || nlri.len() + next > room {
                message(&mut self.bytes, kind::UPDATE, |out| body(out, family, &nlri));
                self.ends.push(self.bytes.len());
                self.prefixes += count as u64;
                nlri.clear();
                count = 0;
            }
        }
    }
}

/// A message's type, its body, and its length with header; `None` if bytes are missing.
pub type Framed<'a> = Option<(u8, &'a [u8], usize)>;

/// Reads the first message in `bytes`.
pub fn frame(bytes: &[u8], length_max: usize) -> Result<Framed<'_>, Malformed> {
    let Some(header) = bytes.get(..HEADER_LEN) else { return Ok(None) };
    if header[..16] != [0xff; 16] {
        return Err(Malformed::Marker);
    }
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    if !(HEADER_LEN..=length_max).contains(&length) {
        return Err(Malformed::Length(length));
    }
    Ok(bytes.get(HEADER_LEN..length).map(|body| (header[18], body, length)))
}

/// A change that an UPDATE announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    Withdrawn(IpPrefix),
    /// The prefix now has this path.
    Announced(IpPrefix, PathView<'a>),
}

/// The value of an AS_PATH with four-octet AS numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathView<'a>(&'a [u8]);

impl<'a> PathView<'a> {
    /// Takes the attribute's value.
    pub fn new(value: &'a [u8]) -> Self {
        Self(value)
    }

    /// Whether any segment is an AS_SET, whose order has no meaning.
    pub fn has_sets(self) -> bool {
        const SET: u8 = 1;
        let mut rest = self.0;
        while let [kind, count, after @ ..] = rest {
            if *kind == SET {
                return true;
            }
            rest = after.get(4 * usize::from(*count)..).unwrap_or_default();
        }
        false
    }

    /// All AS numbers, in segments of any type.
    pub fn numbers(self) -> impl Iterator<Item = u32> + 'a {
        let mut rest = self.0;
        let mut left = 0;
        std::iter::from_fn(move || {
            while left == 0 {
                left = usize::from(*rest.get(1)?);
                rest = rest.get(2..)?;
            }
            left -= 1;
            let (number, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            Some(u32::from_be_bytes(*number))
        })
    }
}

/// Reads an UPDATE's body and calls `say` for each change, withdrawals first.
pub fn read_update<'a>(body: &'a [u8], mut say: impl FnMut(Said<'a>)) -> Result<(), Malformed> {
    let (withdrawn, rest) = counted(body, "withdrawn routes")?;
    let (attributes, nlri) = counted(rest, "path attributes")?;
    prefixes::<u32>(withdrawn, |p| say(Said::Withdrawn(p)))?;
    let mut path = PathView::default();
    let mut reach: Option<&[u8]> = None;
    let mut rest = attributes;
    while let [flags, code, after @ ..] = rest {
        let (value, next) = if flags & attribute::FLAG_EXTENDED != 0 {
            counted(after, "an attribute")?
        } else {
            let (length, after) = after.split_first().ok_or(Malformed::Body("an attribute"))?;
            after.split_at_checked(usize::from(*length)).ok_or(Malformed::Body("an attribute"))?
        };
        match *code {
            attribute::AS_PATH => path = PathView(value),
            attribute::MP_REACH_NLRI => reach = Some(value),
            attribute::MP_UNREACH_NLRI => match value {
                [0, 2, 1, nlri @ ..] => prefixes::<u128>(nlri, |p| say(Said::Withdrawn(p)))?,
                [0, 1, 1, nlri @ ..] => prefixes::<u32>(nlri, |p| say(Said::Withdrawn(p)))?,
                _ => {}
            },
            _ => {}
        }
        rest = next;
    }
    if !rest.is_empty() {
        return Err(Malformed::Body("an attribute"));
    }
    if let Some([0, afi, 1, hop_len, after @ ..]) = reach {
        let nlri = after.get(usize::from(*hop_len) + 1..).ok_or(Malformed::Body("MP_REACH_NLRI"))?;
        match afi {
            1 => prefixes::<u32>(nlri, |p| say(Said::Announced(p, path)))?,
            2 => prefixes::<u128>(nlri, |p| say(Said::Announced(p, path)))?,
            _ => {}
        }
    }
    prefixes::<u32>(nlri, |p| say(Said::Announced(p, path)))
}

fn counted<'a>(bytes: &'a [u8], what: &'static str) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let (length, rest) = bytes.split_first_chunk::<2>().ok_or(Malformed::Body(what))?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(Malformed::Body(what))
}

fn prefixes<A: Address>(mut bytes: &[u8], mut found: impl FnMut(IpPrefix)) -> Result<(), Malformed>
where
    Prefix<A>: Into<IpPrefix>,
{
    let wrong = Malformed::Body("a prefix");
    while let [length, rest @ ..] = bytes {
        let size = usize::from(length.div_ceil(8));
        let (address, next) = rest.split_at_checked(size).filter(|_| size <= 16).ok_or(wrong)?;
        let mut whole = [0; 16];
        whole[..size].copy_from_slice(address);
        let number = u128::from_be_bytes(whole) >> (128 - u32::from(A::BITS));
        found(Prefix::new(A::from_u128(number), *length).map_err(|_| wrong)?.into());
        bytes = next;
    }
    Ok(())
}

/// A hash of a path; never 0, which stands for no path.
pub fn path_hash(numbers: impl Iterator<Item = u32>) -> u64 {
    let mut hash = 0x243f_6a88_85a3_08d3_u64;
    for number in numbers {
        hash = mix64(hash ^ u64::from(number));
    }
    hash | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOPS: NextHops = NextHops { v4: Ipv4Addr::new(192, 0, 2, 1), v6: Ipv6Addr::LOCALHOST };

    fn path(numbers: &[u32]) -> Vec<u8> {
        let mut value = vec![2, numbers.len() as u8];
        numbers.iter().for_each(|n| value.extend_from_slice(&n.to_be_bytes()));
        let mut out = Vec::new();
        put_attribute(&mut out, attribute::FLAG_TRANSITIVE, attribute::ORIGIN, &[0]);
        put_attribute(&mut out, attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &value);
        out
    }

    fn said(stream: &Stream) -> Vec<(IpPrefix, Option<Vec<u32>>)> {
        let mut all = Vec::new();
        let mut rest = &stream.bytes[..];
        while !rest.is_empty() {
            let (kind, body, length) = frame(rest, MESSAGE_MAX).unwrap().expect("whole messages");
            assert_eq!(kind, kind::UPDATE);
            read_update(body, |said| match said {
                Said::Withdrawn(p) => all.push((p, None)),
                Said::Announced(p, path) => all.push((p, Some(path.numbers().collect()))),
            })
            .unwrap();
            rest = &rest[length..];
        }
        all
    }

    #[test]
    fn a_known_update() {
        // RFC 4271 4.3, by hand: one prefix 198.51.100.0/24, ORIGIN IGP, AS_PATH 64500, NEXT_HOP 192.0.2.1.
        let mut stream = Stream::default();
        stream.announce(&path(&[64500]), HOPS, &["198.51.100.0/24".parse().unwrap()], 10);
        let mut expected = vec![0xff; 16];
        expected.extend([0, 47, 2, 0, 0, 0, 20, 0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf4]);
        expected.extend([0x40, 3, 4, 192, 0, 2, 1, 24, 198, 51, 100]);
        assert_eq!(stream.bytes, expected);
        assert_eq!(stream.ends, [47]);
    }

    fn any_prefix() -> impl Strategy<Value = IpPrefix> {
        let v4 = (any::<u32>(), 0u8..=32).prop_map(|(a, l)| Prefix::new(a, l).unwrap().into());
        let v6 = (any::<u128>(), 0u8..=128).prop_map(|(a, l)| Prefix::new(a, l).unwrap().into());
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn what_is_announced_is_read(
            prefixes in prop::collection::vec(any_prefix(), 1..400),
            numbers in prop::collection::vec(any::<u32>(), 0..80), per_update in 1usize..600,
        ) {
            for family in Family::ALL {
                let prefixes: Vec<IpPrefix> =
                    prefixes.iter().copied().filter(|p| family_of(*p) == family).collect();
                let mut stream = Stream::default();
                stream.announce(&path(&numbers), HOPS, &prefixes, per_update);
                let expected: Vec<_> = prefixes.iter().map(|p| (*p, Some(numbers.clone()))).collect();
                prop_assert_eq!(said(&stream), expected);
                prop_assert_eq!(stream.prefixes, prefixes.len() as u64);
                prop_assert!(stream.messages() >= prefixes.len().div_ceil(per_update));
                let mut stream = Stream::default();
                stream.withdraw(&prefixes, per_update);
                let expected: Vec<_> = prefixes.iter().map(|p| (*p, None)).collect();
                prop_assert_eq!(said(&stream), expected);
            }
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_update(&bytes, |said| {
                if let Said::Announced(_, path) = said {
                    path.numbers().for_each(drop);
                }
            });
            let _ = frame(&bytes, MESSAGE_MAX);
        }
    }

    #[test]
    fn paths_hash_by_content_and_order() {
        let hash = |numbers: &[u32]| path_hash(numbers.iter().copied());
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[]), 0);
        assert_eq!(hash(&[7, 8]), hash(&[7, 8]));
    }
}

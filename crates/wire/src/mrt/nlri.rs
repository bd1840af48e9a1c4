//! Prefixes in NLRI format (RFC 4271 4.3, RFC 7911).

use super::bytes::Bytes;
use super::{Expected, Fault};
use thalweg_base::{Address, IpPrefix, Prefix};

/// Iterates over unchecked NLRI: items before the first fault are valid, and the fault is the last item. Bits
/// beyond a prefix's length are cleared.
#[derive(Clone, Debug)]
pub struct Prefixes<'a> {
    rest: Bytes<'a>,
    six: bool,
    add_path: bool,
}

impl<'a> Prefixes<'a> {
    pub(super) fn new(rest: Bytes<'a>, six: bool, add_path: bool) -> Self {
        Self { rest, six, add_path }
    }

    /// The bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest.rest()
    }

    fn read(&mut self) -> Result<(Option<u32>, IpPrefix), Fault> {
        let path_id = if self.add_path { Some(self.rest.u32("a path identifier")?) } else { None };
        Ok((path_id, prefix(&mut self.rest, self.six)?))
    }
}

impl Iterator for Prefixes<'_> {
    type Item = Result<(Option<u32>, IpPrefix), Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.rest = Bytes::new(&[], 0);
        }
        Some(item)
    }
}

/// Whether `nlri` consists of prefixes of at most `bits` bits, with or without path identifiers.
pub(super) fn is_nlri(nlri: &[u8], bits: u8, path_ids: bool) -> bool {
    let mut rest = nlri;
    while !rest.is_empty() {
        let at = if path_ids { 4 } else { 0 };
        let Some(&length) = rest.get(at) else { return false };
        let end = at + 1 + usize::from(length.div_ceil(8));
        match rest.get(end..) {
            Some(after) if length <= bits => rest = after,
            _ => return false,
        }
    }
    true
}

#[inline]
pub(super) fn prefix(bytes: &mut Bytes<'_>, six: bool) -> Result<IpPrefix, Fault> {
    if six { prefix_of::<u128>(bytes).map(IpPrefix::V6) } else { prefix_of::<u32>(bytes).map(IpPrefix::V4) }
}

#[inline]
fn prefix_of<A: Address>(bytes: &mut Bytes<'_>) -> Result<Prefix<A>, Fault> {
    let at = bytes.at();
    let length = bytes.u8("a prefix length")?;
    let out_of_range = Fault { at, expected: Expected::PrefixLength { found: length, max: A::BITS } };
    if length > A::BITS {
        return Err(out_of_range);
    }
    let bytes = bytes.take(usize::from(length.div_ceil(8)), "a prefix")?;
    let mut wide = [0; 16];
    let first = 16 - usize::from(A::BITS / 8);
    for (slot, byte) in wide[first..].iter_mut().zip(bytes.rest()) {
        *slot = *byte;
    }
    Prefix::new(A::from_u128(u128::from_be_bytes(wide)), length).map_err(|_| out_of_range)
}

/// A prefix from a whole address and a length.
pub(super) fn prefix_from(address: std::net::IpAddr, length: u8, at: usize) -> Result<IpPrefix, Fault> {
    match address {
        std::net::IpAddr::V4(v4) => Prefix::new(u32::from(v4), length).map(IpPrefix::V4),
        std::net::IpAddr::V6(v6) => Prefix::new(u128::from(v6), length).map(IpPrefix::V6),
    }
    .map_err(|error| Fault { at, expected: Expected::PrefixLength { found: length, max: error.max } })
}

//! The routes of an outlet as bytes, for the next process.
//!
//! ```text
//! magic 8 | next hops u32 | IPv4 prefixes u32 | IPv6 prefixes u32          numbers are little-endian
//! next hop:    target, backup: each a family (0 none, 4, 6, 255 discard) and its 0, 4 or 16 bytes
//! prefix:      next hop u16 | length u8 | address, 4 or 16 bytes
//! checksum 8, over all before it
//! ```
//!
//! Kept are next hops and not where they lead: the next process resolves them by its own configuration, links and
//! neighbors, and one that does not resolve there is in no packet's path.

use std::net::IpAddr;

use thalweg_base::{Address, IpPrefix, Prefix, mix64};

use super::hops::{Pair, Target};
use super::table::{self, PrefixTable, Tables};
use super::{Outlet, RouteAddress, RouteInstaller, Touched, in_order};

/// Changes with the format.
const MAGIC: [u8; 8] = *b"twfib\0\0\x01";
const CHECKSUM_BYTES: usize = 8;
/// Prefixes that are put back together at most, while others wait for the table.
const PART: usize = super::PIECE_CHANGES;

/// Why bytes are no saved routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    #[error("it is of another version of this program, or no saved table at all")]
    Magic,
    #[error("it is torn or damaged: its checksum is wrong")]
    Checksum,
    #[error("its contents are no routes")]
    Contents,
}

/// The routes of an outlet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedRoutes {
    hops: Vec<Pair>,
    /// With an index into `hops`.
    v4: Vec<(Prefix<u32>, u16)>,
    v6: Vec<(Prefix<u128>, u16)>,
}

/// Some of the saved routes of one family.
#[derive(Clone, Copy)]
enum Part<'s> {
    V4(&'s [(Prefix<u32>, u16)]),
    V6(&'s [(Prefix<u128>, u16)]),
}

impl SavedRoutes {
    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts them in order, in which [`Outlet::restore`] is fastest: a table writes neighboring prefixes together.
    pub fn sort(&mut self) {
        self.v4.sort_unstable_by_key(|(prefix, _)| (prefix.address(), prefix.length()));
        self.v6.sort_unstable_by_key(|(prefix, _)| (prefix.address(), prefix.length()));
    }

    /// Number of parts for [`Outlet::restore`].
    pub fn parts(&self) -> usize {
        self.all_parts().count()
    }

    fn all_parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.v4.chunks(PART).map(Part::V4).chain(self.v6.chunks(PART).map(Part::V6))
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(64 + 34 * self.hops.len() + 7 * self.v4.len() + 19 * self.v6.len());
        bytes.extend(MAGIC);
        for count in [self.hops.len(), self.v4.len(), self.v6.len()] {
            // No memory holds more; such bytes would be refused.
            bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        }
        for (target, backup) in &self.hops {
            match target {
                Target::Address(address) => put_address(&mut bytes, Some(*address)),
                Target::Discard => bytes.push(DISCARD),
            }
            put_address(&mut bytes, *backup);
        }
        put_prefixes(&mut bytes, &self.v4);
        put_prefixes(&mut bytes, &self.v6);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// The routes of these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, SavedError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(SavedError::Magic);
        }
        let (body, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(SavedError::Checksum)?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err(SavedError::Checksum);
        }
        let mut rest = body.get(MAGIC.len()..).ok_or(SavedError::Contents)?;
        Self::take(&mut rest).filter(|_| rest.is_empty()).ok_or(SavedError::Contents)
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let mut count = || usize::try_from(u32::from_le_bytes(take(rest)?)).ok();
        let (hops, v4, v6) = (count()?, count()?, count()?);
        let mut saved = Self::default();
        for _ in 0..hops {
            let target = match rest.first()? {
                &DISCARD => {
                    *rest = &rest[1..];
                    Target::Discard
                }
                _ => Target::Address(take_address(rest)??),
            };
            saved.hops.push((target, take_address(rest)?));
        }
        saved.v4 = take_prefixes(rest, v4, hops)?;
        saved.v6 = take_prefixes(rest, v6, hops)?;
        Some(saved)
    }
}

const NO_ADDRESS: u8 = 0;
const V4: u8 = 4;
const V6: u8 = 6;
const DISCARD: u8 = 255;

fn put_address(bytes: &mut Vec<u8>, address: Option<IpAddr>) {
    match address {
        None => bytes.push(NO_ADDRESS),
        Some(IpAddr::V4(address)) => {
            bytes.push(V4);
            bytes.extend(address.octets());
        }
        Some(IpAddr::V6(address)) => {
            bytes.push(V6);
            bytes.extend(address.octets());
        }
    }
}

fn put_prefixes<A: Address>(bytes: &mut Vec<u8>, prefixes: &[(Prefix<A>, u16)]) {
    for (prefix, hop) in prefixes {
        bytes.extend(hop.to_le_bytes());
        bytes.push(prefix.length());
        bytes.extend(&prefix.address().to_u128().to_le_bytes()[..usize::from(A::BITS / 8)]);
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

fn take_address(rest: &mut &[u8]) -> Option<Option<IpAddr>> {
    match take::<1>(rest)? {
        [NO_ADDRESS] => Some(None),
        [V4] => Some(Some(IpAddr::from(take::<4>(rest)?))),
        [V6] => Some(Some(IpAddr::from(take::<16>(rest)?))),
        _ => None,
    }
}

fn take_prefixes<A: Address>(rest: &mut &[u8], count: usize, hops: usize) -> Option<Vec<(Prefix<A>, u16)>> {
    let width = usize::from(A::BITS / 8);
    // Before room is made for them.
    if count.checked_mul(3 + width)? > rest.len() {
        return None;
    }
    let mut prefixes = Vec::with_capacity(count);
    for _ in 0..count {
        let hop = u16::from_le_bytes(take(rest)?);
        let [length] = take(rest)?;
        let (address, left) = rest.split_at_checked(width)?;
        *rest = left;
        let mut whole = [0; 16];
        whole[..width].copy_from_slice(address);
        let prefix = Prefix::new(A::from_u128(u128::from_le_bytes(whole)), length).ok()?;
        prefixes.push((prefix, hop));
    }
    prefixes.iter().all(|(_, hop)| usize::from(*hop) < hops).then_some(prefixes)
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix64(sum.rotate_left(1) ^ u64::from_le_bytes(word))
    })
}

impl Outlet {
    /// All routes, with next hops and backups.
    pub fn saved(&self) -> SavedRoutes {
        let (hops, index) = self.hops.pairs();
        let mut saved = SavedRoutes { hops, v4: Vec::new(), v6: Vec::new() };
        saved.v4.reserve(self.tables.v4.len());
        saved.v6.reserve(self.tables.v6.len());
        let of = |hop| index.get(&hop).copied();
        saved.v4.extend(self.tables.v4.iter().filter_map(|(prefix, hop)| Some((prefix, of(hop)?))));
        saved.v6.extend(self.tables.v6.iter().filter_map(|(prefix, hop)| Some((prefix, of(hop)?))));
        saved
    }

    /// Installs one part of what a predecessor saved, in an outlet that BGP has given nothing yet. What BGP then says of
    /// a prefix replaces it; [`Self::retain`] removes the rest.
    pub fn restore(&mut self, saved: &SavedRoutes, part: usize, installer: &mut dyn RouteInstaller) {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        match saved.all_parts().nth(part) {
            Some(Part::V4(routes)) => v4 = self.put_back(&saved.hops, routes),
            Some(Part::V6(routes)) => v6 = self.put_back(&saved.hops, routes),
            None => {}
        }
        self.install(&in_order(v4), &in_order(v6), installer);
    }

    fn put_back<A: RouteAddress>(&mut self, hops: &[Pair], routes: &[(Prefix<A>, u16)]) -> Vec<Touched<A>>
    where
        Tables: table::Both<A>,
        IpPrefix: From<Prefix<A>>,
    {
        let mut touched = Vec::with_capacity(routes.len());
        for (prefix, hop) in routes {
            let Some((target, backup)) = hops.get(usize::from(*hop)).copied() else { continue };
            let now = self.hops.take(target, backup.filter(|_| self.backups));
            let table: &mut PrefixTable<A> = table::Both::of_mut(&mut self.tables);
            let before = table.set_saved(*prefix, now);
            if let Some(before) = before {
                self.hops.release(before);
            }
            self.hops.mark_covered((*prefix).into());
            touched.push(Touched { prefix: *prefix, before, now });
        }
        touched
    }
}

#[cfg(test)]
mod tests;

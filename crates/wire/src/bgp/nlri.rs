//! Prefixes in messages: a length in bits, then as many bytes as it needs, preceded by a path identifier if
//! negotiated (RFC 7911).
//!
//! A [`Nlri`] contains only checked bytes (RFC 7606 5.3), so iterating over it cannot fail. Bits beyond the
//! length are "irrelevant" (RFC 4271 4.3) and are cleared.

use std::fmt;
use std::marker::PhantomData;

use thalweg_base::{Address, Prefix};

/// The checked prefixes of one field of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nlri<'a, A> {
    bytes: &'a [u8],
    count: u32,
    with_path_ids: bool,
    family: PhantomData<A>,
}

/// Why a field of prefixes is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NlriError {
    /// A prefix is longer than an address.
    #[error("prefix of {length} bits at byte {at}")]
    PrefixLength {
        length: u8,
        /// Offset in the field.
        at: usize,
    },
    /// The field ends within a prefix.
    #[error("the prefix at byte {at} is cut short")]
    Cut {
        /// Offset of the prefix in the field.
        at: usize,
    },
}

impl<'a, A: Address> Nlri<'a, A> {
    /// No prefixes.
    pub const EMPTY: Self = Self { bytes: &[], count: 0, with_path_ids: false, family: PhantomData };

    /// Checks a field.
    #[inline]
    pub fn parse(bytes: &'a [u8], with_path_ids: bool) -> Result<Self, NlriError> {
        let path_id_bytes = if with_path_ids { 4 } else { 0 };
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            let Some(&length) = bytes.get(at + path_id_bytes) else { return Err(NlriError::Cut { at }) };
            if length > A::BITS {
                return Err(NlriError::PrefixLength { length, at });
            }
            let next = at + path_id_bytes + 1 + usize::from(length).div_ceil(8);
            if next > bytes.len() {
                return Err(NlriError::Cut { at });
            }
            at = next;
            count += 1;
        }
        Ok(Self { bytes, count, with_path_ids, family: PhantomData })
    }

    /// The number of prefixes.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no prefixes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The undecoded field.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Path identifier (0 if not negotiated) and prefix, in order.
    #[inline]
    pub fn iter(&self) -> NlriIter<'a, A> {
        NlriIter {
            rest: self.bytes,
            left: self.count,
            with_path_ids: self.with_path_ids,
            family: PhantomData,
        }
    }
}

impl<A: Address> Default for Nlri<'_, A> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<A: Address> fmt::Debug for Nlri<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<A: Address> fmt::Display for Nlri<'_, A> {
    /// Separated by spaces; a path identifier other than 0 follows a `#`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (path_id, prefix)) in self.iter().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            write!(f, "{prefix}")?;
            if path_id != 0 {
                write!(f, "#{path_id}")?;
            }
        }
        Ok(())
    }
}

impl<'a, A: Address> IntoIterator for Nlri<'a, A> {
    type Item = (u32, Prefix<A>);
    type IntoIter = NlriIter<'a, A>;

    #[inline]
    fn into_iter(self) -> NlriIter<'a, A> {
        self.iter()
    }
}

/// Iterates over a [`Nlri`].
#[derive(Clone, Debug)]
pub struct NlriIter<'a, A> {
    rest: &'a [u8],
    left: u32,
    with_path_ids: bool,
    family: PhantomData<A>,
}

impl<A: Address> Iterator for NlriIter<'_, A> {
    type Item = (u32, Prefix<A>);

    #[inline]
    fn next(&mut self) -> Option<(u32, Prefix<A>)> {
        let mut rest = self.rest;
        let mut path_id = 0;
        if self.with_path_ids {
            let (four, after) = rest.split_first_chunk::<4>()?;
            path_id = u32::from_be_bytes(*four);
            rest = after;
        }
        let (&length, rest) = rest.split_first()?;
        let address = leading_bytes::<A>(rest, length);
        self.rest = rest.get(usize::from(length).div_ceil(8)..)?;
        self.left = self.left.saturating_sub(1);
        Some((path_id, Prefix::new(address, length).ok()?))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<A: Address> ExactSizeIterator for NlriIter<'_, A> {}

/// The address with these leading bytes; bits beyond `length` may be anything.
#[inline]
fn leading_bytes<A: Address>(bytes: &[u8], length: u8) -> A {
    if A::BITS == 32 {
        if let Some(four) = bytes.first_chunk::<4>() {
            return A::from_u128(u128::from(u32::from_be_bytes(*four)));
        }
        let mut four = [0; 4];
        copy_leading(bytes, length, &mut four);
        A::from_u128(u128::from(u32::from_be_bytes(four)))
    } else {
        if let Some(sixteen) = bytes.first_chunk::<16>() {
            return A::from_u128(u128::from_be_bytes(*sixteen));
        }
        let mut sixteen = [0; 16];
        copy_leading(bytes, length, &mut sixteen);
        A::from_u128(u128::from_be_bytes(sixteen))
    }
}

#[inline]
fn copy_leading(bytes: &[u8], length: u8, into: &mut [u8]) {
    let count = usize::from(length).div_ceil(8);
    for (to, from) in into.iter_mut().zip(bytes).take(count) {
        *to = *from;
    }
}

/// Bytes of the prefix in a message, without a path identifier.
#[inline]
pub fn nlri_length<A: Address>(prefix: Prefix<A>) -> usize {
    1 + usize::from(prefix.length()).div_ceil(8)
}

/// Appends a prefix, with its path identifier if negotiated.
#[inline]
pub fn write_nlri<A: Address>(out: &mut Vec<u8>, path_id: Option<u32>, prefix: Prefix<A>) {
    if let Some(path_id) = path_id {
        out.extend_from_slice(&path_id.to_be_bytes());
    }
    // The address, left-aligned in 17 bytes behind its length: a copy of fixed size, then truncated.
    let mut bytes = [0; 17];
    bytes[0] = prefix.length();
    let left = prefix.address().to_u128() << (128 - u32::from(A::BITS));
    bytes[1..].copy_from_slice(&left.to_be_bytes());
    out.extend_from_slice(&bytes[..nlri_length(prefix)]);
}

//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Sums are folded late. The one's complement sum of 16-bit words is the same in either byte order up to a
//! final swap, so words are loaded big-endian only where they are combined with fields read as numbers.

use std::net::IpAddr;

/// The one's complement sum of `bytes`, not yet inverted; an odd last byte is padded with zero.
/// `start` continues an earlier sum.
pub fn sum(bytes: &[u8], start: u32) -> u32 {
    let mut total = u64::from(start);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    match *words.remainder() {
        [a] => total += u64::from(a) << 8,
        [a, b] => total += u64::from(u16::from_be_bytes([a, b])),
        [a, b, c] => total += u64::from(u16::from_be_bytes([a, b])) + (u64::from(c) << 8),
        _ => {}
    }
    // Fold 64 bits to 32, then to 16 plus carries; the caller folds the rest.
    total = (total & 0xffff_ffff) + (total >> 32);
    let folded = (total & 0xffff) + ((total >> 16) & 0xffff) + (total >> 32);
    folded as u32
}

/// Folds a sum to 16 bits.
#[inline(always)]
pub fn fold(mut sum: u32) -> u16 {
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The checksum field for a sum: folded and inverted.
#[inline(always)]
pub fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// The part of a TCP or UDP checksum that comes from the IPv4 pseudo header.
pub fn pseudo_ipv4(src: u32, dst: u32, protocol: u8, transport_len: u16) -> u32 {
    (src >> 16)
        + (src & 0xffff)
        + (dst >> 16)
        + (dst & 0xffff)
        + u32::from(protocol)
        + u32::from(transport_len)
}

/// The sum over the pseudo header of a transport of `length` bytes (RFC 9293 3.1, RFC 8200 8.1). Both
/// addresses must be of one family.
pub fn pseudo_sum(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u32 {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo_ipv4(source.into(), destination.into(), protocol, length as u16)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let start = length as u32 + u32::from(protocol);
            sum(&destination.octets(), sum(&source.octets(), start))
        }
        _ => 0,
    }
}

/// A change to a checksum: old words out, new words in (RFC 1624, equation 3, HC' = ~(~HC + ~m + m')).
/// Collect all changes of a packet once and apply them to every checksum that covers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumDelta(u32);

impl ChecksumDelta {
    /// Replaces a 16-bit field.
    #[inline(always)]
    pub fn replace_u16(&mut self, old: u16, new: u16) {
        self.0 += u32::from(!old) + u32::from(new);
        self.0 = (self.0 & 0xffff) + (self.0 >> 16);
    }

    /// Replaces a 32-bit field.
    #[inline(always)]
    pub fn replace_u32(&mut self, old: u32, new: u32) {
        self.0 += u32::from(!(old >> 16) as u16) + u32::from(!old as u16) + (new >> 16) + (new & 0xffff);
        self.0 = (self.0 & 0xffff) + (self.0 >> 16);
    }

    /// Combines two changes.
    #[inline(always)]
    pub fn and(self, other: Self) -> Self {
        let sum = self.0 + other.0;
        Self((sum & 0xffff) + (sum >> 16))
    }

    /// The checksum after the change.
    #[inline(always)]
    pub fn apply(self, checksum: u16) -> u16 {
        !fold(u32::from(!checksum) + self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The obvious reference: 16 bits at a time, folding at every step.
    fn slow_sum(bytes: &[u8]) -> u16 {
        let mut s = 0u32;
        for pair in bytes.chunks(2) {
            s += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| u32::from(b));
            s = (s & 0xffff) + (s >> 16);
        }
        s as u16
    }

    #[test]
    fn rfc1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes, 0)), 0xddf2);
    }

    #[test]
    fn rfc1624_example() {
        // Section 4: 0xdd2f, a field changes from 0x5555 to 0x3285, result 0x0000.
        let mut delta = ChecksumDelta::default();
        delta.replace_u16(0x5555, 0x3285);
        assert_eq!(delta.apply(0xdd2f), 0x0000);
    }

    proptest! {
        #[test]
        fn equals_the_slow_sum(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(fold(sum(&bytes, 0)), slow_sum(&bytes));
        }

        #[test]
        fn incremental_equals_recomputed(mut bytes in proptest::collection::vec(any::<u8>(), 40), at in 1usize..9, new32: u32, new16: u16) {
            // Words 0 is the checksum's own place; never all zero, so +0 and -0 do not mix (RFC 1624, 3).
            bytes[38] |= 1;
            bytes[0] = 0; bytes[1] = 0;
            let before = finish(sum(&bytes, 0));
            let old32 = u32::from_be_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]]);
            let old16 = u16::from_be_bytes([bytes[2], bytes[3]]);
            let mut delta = ChecksumDelta::default();
            delta.replace_u32(old32, new32);
            delta.replace_u16(old16, new16);
            bytes[4 * at..4 * at + 4].copy_from_slice(&new32.to_be_bytes());
            bytes[2..4].copy_from_slice(&new16.to_be_bytes());
            prop_assert_eq!(delta.apply(before), finish(sum(&bytes, 0)));
        }
    }
}

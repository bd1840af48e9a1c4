//! Walks over IPv6 extension headers (RFC 8200 4); all code uses this walk.
//!
//! It follows hop-by-hop and destination options, routing, fragment and authentication headers (RFC 4302), at
//! most [`EXTENSIONS_MAX`] of them: real packets have at most three, and a longer chain only costs time. The
//! walk ends
//!
//! - at the first header of another kind: the transport, or an opaque one (ESP);
//! - behind the fragment header of a later fragment, because its payload is the middle of something;
//! - before a header that does not fit, and before the one that exceeds the limit;
//!   [`Extensions::is_complete`] tells.
//!
//! [`Extensions::protocol`] and [`Extensions::at`] give the header at which it ended.

use crate::ip_protocol::{AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};

/// Where the first header behind IPv6's own begins.
pub(super) const CHAIN_AT: usize = 40;

/// The most extension headers that are followed.
pub const EXTENSIONS_MAX: usize = 8;

/// A walk; yields each extension header that it passes.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    packet: &'a [u8],
    end: usize,
    protocol: u8,
    at: usize,
    left: usize,
    is_later_fragment: bool,
}

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    pub kind: u8,
    /// Offset from the first byte of the IPv6 header.
    pub at: usize,
    /// For a fragment header, the offset in units of eight bytes, two reserved bits, and whether more
    /// fragments follow; 0 for other headers.
    pub fragment_field: u16,
}

impl Extension {
    /// Whether the packet is a fragment. An atomic fragment (RFC 6946) is a whole packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment_field & 0xfff9 != 0
    }

    /// Whether the packet is a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment_field & 0xfff8 != 0
    }
}

impl<'a> Extensions<'a> {
    /// Walks over `packet`, which starts with its IPv6 header; `first` is the next header in it. The packet
    /// ends at `end`, possibly beyond the captured bytes; no extension header extends further.
    #[inline]
    pub fn new(packet: &'a [u8], end: usize, first: u8) -> Self {
        Self { packet, end, protocol: first, at: CHAIN_AT, left: EXTENSIONS_MAX, is_later_fragment: false }
    }

    /// The header that the walk has reached.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The offset of that header from the first byte of the IPv6 header.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether the walk is finished: false if it has not ended, and if it could not continue.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.is_later_fragment || !is_extension(self.protocol)
    }
}

#[inline(always)]
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS)
}

impl Iterator for Extensions<'_> {
    type Item = Extension;

    #[inline]
    fn next(&mut self) -> Option<Extension> {
        if self.left == 0 || self.is_complete() {
            return None;
        }
        let (kind, at) = (self.protocol, self.at);
        let (next, len, fragment_field) = match (kind, self.packet.get(at..)?) {
            (FRAGMENT, &[next, _, high, low, ..]) => (next, 8, u16::from_be_bytes([high, low])),
            (FRAGMENT, _) => return None,
            // In units of four bytes, minus two.
            (AUTHENTICATION, &[next, units, ..]) => (next, 8 + usize::from(units) * 4, 0),
            // In units of eight bytes, minus the first.
            (_, &[next, units, ..]) => (next, 8 + usize::from(units) * 8, 0),
            _ => return None,
        };
        if at + len > self.end {
            return None;
        }
        let extension = Extension { kind, at, fragment_field };
        self.left -= 1;
        self.protocol = next;
        self.at = at + len;
        self.is_later_fragment = extension.is_later_fragment();
        Some(extension)
    }
}

/// A fragment header to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentRepr {
    pub next_header: u8,
    /// As [`Extension::fragment_field`].
    pub field: u16,
    /// The same in all fragments of a datagram.
    pub identification: u32,
}

impl FragmentRepr {
    pub const BYTES: usize = 8;

    /// Encodes the header.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let ([a, b], [c, d, e, f]) = (self.field.to_be_bytes(), self.identification.to_be_bytes());
        [self.next_header, 0, a, b, c, d, e, f]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip_protocol::{ESP, TCP, UDP};
    use proptest::prelude::*;

    /// A chain of these headers, each with so many units of length or, for a fragment, this field; then `last`.
    fn chain(headers: &[(u8, u8)], last: u8) -> (u8, Vec<u8>) {
        let mut bytes = vec![0; 40];
        for (i, (kind, units)) in headers.iter().enumerate() {
            let next = headers.get(i + 1).map_or(last, |header| header.0);
            let len = match *kind {
                FRAGMENT => 8,
                AUTHENTICATION => 8 + usize::from(*units) * 4,
                _ => 8 + usize::from(*units) * 8,
            };
            let at = bytes.len();
            bytes.resize(at + len, 0xee);
            (bytes[at], bytes[at + 1]) = (next, *units);
            if *kind == FRAGMENT {
                (bytes[at + 2], bytes[at + 3]) = (0, *units);
            }
        }
        (headers.first().map_or(last, |header| header.0), bytes)
    }

    fn header() -> impl Strategy<Value = (u8, u8)> {
        let kind = prop::sample::select(vec![HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS]);
        prop_oneof![4 => (kind, 0u8..4), 1 => (Just(FRAGMENT), 0u8..2)]
    }

    proptest! {
        #[test]
        fn every_header_is_passed_once(
            headers in prop::collection::vec(header(), 0..=EXTENSIONS_MAX),
            last in prop::sample::select(vec![TCP, UDP, ESP, 59, 200]),
            payload in 0usize..30,
        ) {
            let (first, mut packet) = chain(&headers, last);
            let transport_at = packet.len();
            packet.resize(transport_at + payload, 0);
            let mut walk = Extensions::new(&packet, packet.len(), first);
            let passed: Vec<_> = walk.by_ref().collect();
            let kinds: Vec<u8> = passed.iter().map(|extension| extension.kind).collect();
            prop_assert_eq!(kinds, headers.iter().map(|header| header.0).collect::<Vec<_>>());
            prop_assert!(walk.is_complete());
            prop_assert_eq!((walk.protocol(), walk.at()), (last, transport_at));
            // Cut anywhere, it stops at the header that the cut is in, as it does if the packet says that it ends there.
            for cut in 40..transport_at {
                for (bytes, end) in [(&packet[..cut], cut), (&packet[..], cut)] {
                    let mut walk = Extensions::new(bytes, end, first);
                    let count = walk.by_ref().count();
                    prop_assert!(!walk.is_complete());
                    prop_assert!(walk.at() <= cut && count < headers.len());
                    prop_assert_eq!((walk.protocol(), walk.at()), (passed[count].kind, passed[count].at));
                }
            }
        }

        #[test]
        fn a_later_fragment_ends_the_walk(headers in prop::collection::vec(header(), 0..5), field in 8u8..=255, next: u8) {
            let (first, mut packet) = chain(&headers, FRAGMENT);
            let repr = FragmentRepr { next_header: next, field: field.into(), identification: 0x0102_0304 };
            packet.extend(repr.encode());
            let mut walk = Extensions::new(&packet, packet.len(), first);
            let last = walk.by_ref().last().unwrap();
            prop_assert!(last.is_later_fragment() && last.is_fragment() && walk.is_complete());
            prop_assert_eq!((walk.protocol(), walk.at()), (next, packet.len()));
        }

        #[test]
        fn nothing_makes_it_panic_or_run_away(packet in prop::collection::vec(any::<u8>(), 0..200), end in 0usize..400, first: u8) {
            let mut walk = Extensions::new(&packet, end, first);
            prop_assert!(walk.by_ref().count() <= EXTENSIONS_MAX);
            prop_assert!(walk.next().is_none() && (walk.at() == 40 || walk.at() <= end));
        }
    }

    #[test]
    fn a_chain_that_is_too_long_is_not_complete() {
        let (first, packet) = chain(&[(HOP_BY_HOP, 0); EXTENSIONS_MAX + 1], TCP);
        let mut walk = Extensions::new(&packet, packet.len(), first);
        assert_eq!(walk.by_ref().count(), EXTENSIONS_MAX);
        assert!(!walk.is_complete());
        assert_eq!((walk.protocol(), walk.at()), (HOP_BY_HOP, 40 + 8 * EXTENSIONS_MAX));
    }

    #[test]
    fn an_atomic_fragment_is_whole() {
        let (first, packet) = chain(&[(FRAGMENT, 0)], UDP);
        let mut walk = Extensions::new(&packet, packet.len(), first);
        let fragment = walk.next().unwrap();
        assert!(!fragment.is_fragment() && !fragment.is_later_fragment());
        assert_eq!((walk.protocol(), walk.at()), (UDP, 48));
        let (first, packet) = chain(&[(FRAGMENT, 1)], UDP);
        let fragment = Extensions::new(&packet, packet.len(), first).next().unwrap();
        assert!(fragment.is_fragment() && !fragment.is_later_fragment(), "more follow: the first");
    }
}

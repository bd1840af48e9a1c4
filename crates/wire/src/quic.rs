//! QUIC's Initial packets (RFC 9000, 17.2.2; version 2 RFC 9369), which carry TLS's hello: header and frames.
//!
//! Their keys follow from public values (RFC 9001, 5.2), so a watcher can remove the protection.
//! `thalweg-flow` does; here is what it needs to know: [`Version`] has the values, [`InitialView`] the places.

/// What protects Initial packets of a version.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    /// The first and the last version number that it is for.
    numbers: (u32, u32),
    pub salt: [u8; 20],
    /// The beginning of labels: `quic` or `quicv2`.
    pub label: &'static str,
    /// The two type bits of Initial packets.
    initial: u8,
}

/// Versions in use, and the drafts that were deployed.
const VERSIONS: [Version; 4] = [
    Version {
        numbers: (1, 1),
        salt: *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
        label: "quic",
        initial: 0,
    },
    Version {
        numbers: (0x6b33_43cf, 0x6b33_43cf),
        salt: *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
        label: "quicv2",
        initial: 1,
    },
    // Drafts 29 to 32, 33 and 34 had the values of version 1.
    Version {
        numbers: (0xff00_001d, 0xff00_0020),
        salt: *b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99",
        label: "quic",
        initial: 0,
    },
    // Drafts 23 to 28.
    Version {
        numbers: (0xff00_0017, 0xff00_001c),
        salt: *b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02",
        label: "quic",
        initial: 0,
    },
];

/// The most bytes of a connection identifier.
const ID_BYTES_MAX: usize = 20;
/// The first byte of a long header has these bits.
const LONG_HEADER: u8 = 0xc0;

/// An Initial packet whose protection is in place.
#[derive(Clone, Copy, Debug)]
pub struct InitialView<'a> {
    pub version: &'static Version,
    /// The destination's connection identifier; the keys of a client's first packets follow from it.
    pub destination: &'a [u8],
    /// From the first byte of the header to the end of the packet.
    pub packet: &'a [u8],
    /// Where the packet number begins.
    pub number_at: usize,
}

impl<'a> InitialView<'a> {
    /// Views the packet at the beginning of a datagram, or of what follows another packet in it. It must be there as
    /// a whole.
    pub fn new(datagram: &'a [u8]) -> Option<Self> {
        let (&[first, a, b, c, d], _) = datagram.split_first_chunk::<5>()?;
        let number = u32::from_be_bytes([a, b, c, d]);
        let version =
            VERSIONS.iter().find(|version| (version.numbers.0..=version.numbers.1).contains(&number))?;
        if first & 0xf0 != LONG_HEADER | version.initial << 4 {
            return None;
        }
        let mut rest = datagram.get(5..)?;
        let destination = id(&mut rest)?;
        let _source = id(&mut rest)?;
        let token = usize::try_from(varint(&mut rest)?).ok()?;
        rest = rest.get(token..)?;
        let length = usize::try_from(varint(&mut rest)?).ok()?;
        let number_at = datagram.len() - rest.len();
        let packet = datagram.get(..number_at.checked_add(length)?)?;
        Some(Self { version, destination, packet, number_at })
    }
}

fn id<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first()?;
    let length = usize::from(*length);
    let (id, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    (length <= ID_BYTES_MAX).then_some(id)
}

/// RFC 9000, 16: the two highest bits tell the length.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let (bytes, behind) = rest.split_at_checked(1 << (first >> 6))?;
    *rest = behind;
    let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (64 - 8 * bytes.len() + 2)))
}

/// The CRYPTO frames of an opened Initial packet: their places in the stream of handshake messages, and contents. It
/// ends at the first frame that such a packet may not have (RFC 9000, 12.4).
pub fn crypto_frames(mut payload: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    const PADDING: u8 = 0;
    const PING: u8 = 1;
    const ACK: u8 = 2;
    const ACK_ECN: u8 = 3;
    const CRYPTO: u8 = 6;
    std::iter::from_fn(move || {
        loop {
            let (kind, rest) = payload.split_first()?;
            payload = rest;
            match *kind {
                PADDING | PING => {}
                ACK | ACK_ECN => skip_ack(&mut payload, *kind == ACK_ECN)?,
                CRYPTO => {
                    let (place, length) =
                        (varint(&mut payload)?, usize::try_from(varint(&mut payload)?).ok()?);
                    let (content, rest) = payload.split_at_checked(length)?;
                    payload = rest;
                    return Some((place, content));
                }
                _ => return None,
            }
        }
    })
}

/// RFC 9000, 19.3.
fn skip_ack(rest: &mut &[u8], has_ecn: bool) -> Option<()> {
    let (_largest, _delay, ranges, _first) = (varint(rest)?, varint(rest)?, varint(rest)?, varint(rest)?);
    let counts = if has_ecn { 3 } else { 0 };
    // Each takes a byte at least, so the payload limits the loop.
    (0..ranges.saturating_mul(2).saturating_add(counts)).try_for_each(|_| varint(rest).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_lengths_of_the_rfc() {
        // RFC 9000, A.1.
        for (bytes, expected) in [
            (&b"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c"[..], 151_288_809_941_952_652),
            (b"\x9d\x7f\x3e\x7d", 494_878_333),
            (b"\x7b\xbd", 15_293),
            (b"\x25", 37),
            (b"\x40\x25", 37),
        ] {
            let mut rest = bytes;
            assert_eq!((varint(&mut rest), rest.len()), (Some(expected), 0));
            assert_eq!(varint(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn frames_are_found_behind_others() {
        let payload =
            b"\0\0\x01\x02\x05\0\x01\0\0\0\x06\0\x03abc\x03\x01\0\0\0\0\0\0\x06\x40\x03\x02de\0\x1cnot";
        assert_eq!(crypto_frames(payload).collect::<Vec<_>>(), [(0, &b"abc"[..]), (3, b"de")]);
        for end in 0..payload.len() {
            assert!(crypto_frames(&payload[..end]).count() <= 2);
        }
        let endless = [&b"\x02\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0"[..], &[0; 100]].concat();
        assert_eq!(crypto_frames(&endless).count(), 0);
    }

    #[test]
    fn an_initial_is_whole_or_none() {
        let packet = b"\xc1\0\0\0\x01\x04dest\x02sr\x01t\x05\0\0\0\0\0rest";
        let initial = InitialView::new(packet).expect("an initial");
        assert_eq!((initial.destination, initial.number_at, initial.packet.len()), (&b"dest"[..], 16, 21));
        assert!((0..21).all(|end| InitialView::new(&packet[..end]).is_none()));
        let handshake = [b"\xe1", &packet[1..]].concat();
        assert!(InitialView::new(&handshake).is_none());
    }
}

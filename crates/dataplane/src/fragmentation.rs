//! Fragments a packet for the MTU of the next link (RFC 791 2.3 and 3.2, RFC 1812 4.2.2.7 and 5.2.6).
//!
//! Every fragment but the last carries a multiple of eight bytes, as many as fit. The first keeps all options;
//! later ones keep those with the copy bit, in order, padded. If a fragment is fragmented again, its pieces count
//! from its own offset, and only the last piece of the last fragment clears the more-fragments flag.
//!
//! Only the sender fragments IPv6 packets (RFC 8200 5); for those the caller sends "packet too big". Who translates from
//! IPv4 is their sender: [`fragment_translated`].

use thalweg_wire::ip_protocol::FRAGMENT;
use thalweg_wire::ipv4::{
    DONT_FRAGMENT, HEADER_BYTES, Ipv4View, MORE_FRAGMENTS, OFFSET_MASK, write_checksum,
};
use thalweg_wire::ipv6::{self, FragmentRepr, Ipv6View};

/// The MTU that every link must support (RFC 791 3.2): the longest header and eight bytes.
pub const IPV4_MTU_BYTES_MIN: usize = 68;

const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Why a packet was not fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentationError {
    /// Not IPv4, truncated, or longer than a datagram can be.
    Malformed,
    /// Its sender forbids it: the caller sends ICMP "fragmentation needed".
    DontFragment,
    /// The link's MTU is below the minimum.
    MtuTooSmall {
        /// The link's MTU.
        mtu_bytes: usize,
    },
}

/// Splits `packet` (from its IP header; link-layer padding is left out) into fragments of at most `mtu_bytes`. A
/// packet that fits is returned whole, even with the don't-fragment flag.
///
/// The header checksum is computed anew, so the caller must have verified the packet's own.
pub fn fragment(packet: &[u8], mtu_bytes: usize) -> Result<Vec<Vec<u8>>, FragmentationError> {
    let view = Ipv4View::new(packet).ok().filter(Ipv4View::is_whole);
    let view = view.ok_or(FragmentationError::Malformed)?;
    let packet = view.packet();
    if packet.len() <= mtu_bytes {
        return Ok(vec![packet.to_vec()]);
    }
    let flags = view.flags_and_offset();
    if flags & DONT_FRAGMENT != 0 {
        return Err(FragmentationError::DontFragment);
    }
    if mtu_bytes < IPV4_MTU_BYTES_MIN {
        return Err(FragmentationError::MtuTooSmall { mtu_bytes });
    }
    let (first_header, payload) = packet.split_at(view.header_len());
    let start = usize::from(flags & OFFSET_MASK);
    if start * 8 + payload.len() > 0xffff {
        return Err(FragmentationError::Malformed);
    }
    let later_header = header_of_later(first_header)?;
    let mut fragments = Vec::with_capacity(payload.len() / (mtu_bytes - 60) + 1);
    let mut at = 0;
    while at < payload.len() {
        // All options are only in the datagram's first fragment, not in the first piece of a later one.
        let header = if at == 0 { first_header } else { &later_header };
        let room = (mtu_bytes - header.len()) / 8 * 8;
        let last = payload.len() - at <= mtu_bytes - header.len();
        let piece = if last { &payload[at..] } else { &payload[at..at + room] };
        let more = if last { flags & MORE_FRAGMENTS } else { MORE_FRAGMENTS };
        let place = flags & 0x8000 | more | (start + at / 8) as u16;
        fragments.push(piece_with(header, place, piece));
        at += piece.len();
    }
    Ok(fragments)
}

/// The MTU that every link must support for IPv6 (RFC 8200 5).
pub const IPV6_MTU_BYTES_MIN: usize = 1280;

/// The same for an IPv6 packet that NAT made of an IPv4 packet. If the IPv4 sender lets routers fragment it, and it is too
/// long, or if it is a fragment already, it has a fragment header (RFC 7915 4).
pub fn fragment_translated(packet: &[u8], mtu_bytes: usize) -> Result<Vec<Vec<u8>>, FragmentationError> {
    const HEADERS: usize = ipv6::HEADER_BYTES + FragmentRepr::BYTES;
    let view = Ipv6View::new(packet).ok().filter(Ipv6View::is_whole);
    let view = view.ok_or(FragmentationError::Malformed)?;
    let packet = view.packet();
    if packet.len() <= mtu_bytes {
        return Ok(vec![packet.to_vec()]);
    }
    let Some((headers, payload)) =
        packet.split_first_chunk::<HEADERS>().filter(|_| view.next_header() == FRAGMENT)
    else {
        return Err(FragmentationError::DontFragment);
    };
    if mtu_bytes < IPV6_MTU_BYTES_MIN {
        return Err(FragmentationError::MtuTooSmall { mtu_bytes });
    }
    let room = (mtu_bytes - HEADERS) / 8 * 8;
    let field = u16::from_be_bytes([headers[ipv6::HEADER_BYTES + 2], headers[ipv6::HEADER_BYTES + 3]]);
    if usize::from(field & !7) + payload.len() > 0xffff {
        return Err(FragmentationError::Malformed);
    }
    let count = payload.len().div_ceil(room);
    let pieces = payload.chunks(room).enumerate().map(|(i, piece)| {
        let more = if i + 1 == count { field & 1 } else { 1 };
        // Both fit: the end of the last piece does.
        let offset = (field & !7) + u16::try_from(i * room).unwrap_or(0);
        let length = u16::try_from(FragmentRepr::BYTES + piece.len()).unwrap_or(0);
        let mut fragment = [&headers[..], piece].concat();
        fragment[4..6].copy_from_slice(&length.to_be_bytes());
        fragment[ipv6::HEADER_BYTES + 2..][..2].copy_from_slice(&(offset | more).to_be_bytes());
        fragment
    });
    Ok(pieces.collect())
}

/// A fragment: its header with length, offset and checksum, and its part of the payload.
fn piece_with(header: &[u8], place: u16, piece: &[u8]) -> Vec<u8> {
    let mut fragment = Vec::with_capacity(header.len() + piece.len());
    fragment.extend_from_slice(header);
    fragment.extend_from_slice(piece);
    let total_len = fragment.len() as u16;
    fragment[0] = 0x40 | (header.len() / 4) as u8;
    fragment[2..4].copy_from_slice(&total_len.to_be_bytes());
    fragment[6..8].copy_from_slice(&place.to_be_bytes());
    write_checksum(&mut fragment[..header.len()]);
    fragment
}

/// The header with only those options that must be copied (RFC 791 3.1).
fn header_of_later(header: &[u8]) -> Result<Vec<u8>, FragmentationError> {
    let (fixed, mut options) = header.split_at(HEADER_BYTES);
    let mut copied = fixed.to_vec();
    while let [kind, rest @ ..] = options {
        match *kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => options = rest,
            kind => {
                let length = rest.first().map_or(0, |&length| usize::from(length));
                if length < 2 || length > options.len() {
                    return Err(FragmentationError::Malformed);
                }
                let (option, behind) = options.split_at(length);
                if kind & COPIED != 0 {
                    copied.extend_from_slice(option);
                }
                options = behind;
            }
        }
    }
    copied.resize(copied.len().next_multiple_of(4), END_OF_OPTIONS);
    Ok(copied)
}

#[cfg(test)]
mod tests;

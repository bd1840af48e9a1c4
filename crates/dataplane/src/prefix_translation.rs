//! NPTv6, prefix translation (RFC 6296): hosts keep one inside prefix whatever prefix a provider gives. One prefix stands
//! for the other in both directions, without state and for all protocols.
//!
//! A word of the address behind the prefix takes up the difference of the prefixes' sums, so checksums of transports and
//! of ICMPv6 hold (3.1). With prefixes up to /48 it is bits 48 to 63 (3.4), else the first word of the interface
//! identifier that is not all ones (3.5). All ones are not translated back, because in one's complement they are zero
//! too. Such an address has no counterpart and, behind a longer prefix than /48, neither has an interface identifier of
//! zeros (3.7): their packets are dropped.
//!
//! A pair belongs to an outside port, so several providers are several pairs with one inside prefix. The destination
//! is translated where packets come in, the source last of all, when the outside port is known: everything between
//! (routes, firewall, flows of packets that come in) knows hosts by their inside addresses. The packet that an ICMPv6
//! error quotes went the other way, and its other end is translated.
//!
//! Missing: prefixes of two lengths.

use crate::ingress::{be128, flow_hash_of_ipv6};
use ipnet::Ipv6Net;
use thalweg_base::{Batch, DropReason, Packet, PacketFlags};
use thalweg_wire::icmp;
use thalweg_wire::ip_protocol::ICMPV6;

/// The longest prefix of a pair: an interface identifier has 64 bits.
pub const PREFIX_LEN_MAX: u8 = 64;

/// Two prefixes of one length, of which the outside one is announced by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixPair {
    pub inside: Ipv6Net,
    pub outside: Ipv6Net,
    pub port: u16,
}

/// Where an address is in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Source,
    Destination,
}

impl Place {
    fn at(self) -> usize {
        match self {
            Self::Source => 8,
            Self::Destination => 24,
        }
    }
}

/// A prefix, what takes its place, and the difference of their sums.
#[derive(Clone, Copy, Debug)]
struct Replacement {
    from: u128,
    to: u128,
    mask: u128,
    adjustment: u16,
    length: u8,
}

impl Replacement {
    fn new(from: Ipv6Net, to: Ipv6Net) -> Self {
        let (from, to, length) = (u128::from(from.network()), u128::from(to.network()), to.prefix_len());
        let mask = u128::from(Ipv6Net::new(to.into(), length).unwrap_or_default().netmask());
        Self { from, to, mask, adjustment: add(sum(from), !sum(to)), length }
    }

    fn concerns(&self, address: u128) -> bool {
        address & self.mask == self.from
    }

    /// The address with the other prefix and the same sum; `None` if there is none.
    fn of(&self, address: u128) -> Option<u128> {
        let is_usable = |word: &u32| address >> (112 - 16 * word) & 0xffff != 0xffff;
        let word = if self.length <= 48 { Some(3).filter(is_usable) } else { (4..8).find(is_usable) }?;
        let shift = 112 - 16 * word;
        let old = u16::try_from(address >> shift & 0xffff).ok()?;
        let new = match add(old, self.adjustment) {
            0xffff => 0,
            new => new,
        };
        let is_mapped = self.length <= 48 || address & u128::from(u64::MAX) != 0;
        let moved = self.to | address & !self.mask;
        is_mapped.then_some(moved & !(0xffff << shift) | u128::from(new) << shift)
    }
}

/// The sum of two words with end-around carry.
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

fn sum(address: u128) -> u16 {
    let bytes = address.to_be_bytes();
    bytes.as_chunks::<2>().0.iter().fold(0, |sum, word| add(sum, u16::from_be_bytes(*word)))
}

/// A pair in both directions.
#[derive(Clone, Copy, Debug)]
struct Pair {
    port: u16,
    out: Replacement,
    into: Replacement,
}

/// All pairs, as a part of the stages where packets come in and go out.
#[derive(Clone, Debug, Default)]
pub struct PrefixTranslation(Box<[Pair]>);

impl PrefixTranslation {
    /// The translation of these pairs.
    pub fn new(pairs: &[PrefixPair]) -> Self {
        let pair = |pair: &PrefixPair| Pair {
            port: pair.port,
            out: Replacement::new(pair.inside, pair.outside),
            into: Replacement::new(pair.outside, pair.inside),
        };
        Self(pairs.iter().map(pair).collect())
    }

    /// Whether there are no pairs.
    pub fn is_idle(&self) -> bool {
        self.0.is_empty()
    }

    /// Translates destinations of packets that have come in. Of one that comes from inside, the source too, so that
    /// answers take the same way back.
    pub fn process_in(&self, batch: &mut Batch<'_>) {
        if self.is_idle() {
            return;
        }
        for (packet, frame) in batch.frames().filter(|(packet, _)| packet.is_alive() && packet.is_ipv6()) {
            let l3 = frame.get_mut(usize::from(packet.l3_offset)..).unwrap_or_default();
            let Some((source, destination)) = ends(l3) else { continue };
            let Some(pair) = self.0.iter().find(|pair| pair.into.concerns(destination)) else { continue };
            translate(packet, l3, &pair.into, Place::Destination, destination);
            if pair.out.concerns(source) {
                translate(packet, l3, &pair.out, Place::Source, source);
            }
            if let Some((source, destination)) = ends(l3) {
                packet.flow_hash = flow_hash_of_ipv6(packet, source, destination);
            }
        }
    }

    /// Translates sources of packets that go out, those included that wait for something on their way.
    pub fn process_out(&self, batch: &mut Batch<'_>) {
        if self.is_idle() {
            return;
        }
        for (packet, frame) in batch.frames().filter(|(packet, _)| packet.is_leaving() && packet.is_ipv6()) {
            let l3 = frame.get_mut(usize::from(packet.l3_offset)..).unwrap_or_default();
            let Some((source, _)) = ends(l3) else { continue };
            let is_it = |pair: &&Pair| pair.port == packet.port_out && pair.out.concerns(source);
            if let Some(pair) = self.0.iter().find(is_it) {
                translate(packet, l3, &pair.out, Place::Source, source);
            }
        }
    }
}

fn ends(l3: &[u8]) -> Option<(u128, u128)> {
    let header = l3.first_chunk()?;
    Some((be128(header, Place::Source.at()), be128(header, Place::Destination.at())))
}

/// Translates an address of a packet, and of the packet that an error quotes the one at the other place.
fn translate(packet: &mut Packet, l3: &mut [u8], by: &Replacement, place: Place, address: u128) {
    let Some(new) = by.of(address) else { return packet.drop_for_good(DropReason::PrefixAddress) };
    write(l3, place, new);
    let is_first = packet.protocol == ICMPV6 && !packet.flags.has(PacketFlags::LATER_FRAGMENT);
    let message = usize::from(packet.l4_offset.saturating_sub(packet.l3_offset));
    let is_error = is_first && l3.get(message).is_some_and(|kind| *kind < 128);
    let Some(quote) = l3.get_mut(message + icmp::HEADER_BYTES..).filter(|_| is_error) else { return };
    let (Some((source, destination)), 6) = (ends(quote), quote.first().map_or(0, |byte| byte >> 4)) else {
        return;
    };
    let (other, quoted) = match place {
        Place::Source => (Place::Destination, destination),
        Place::Destination => (Place::Source, source),
    };
    if let Some(new) = by.of(quoted).filter(|_| by.concerns(quoted)) {
        write(quote, other, new);
    }
}

fn write(l3: &mut [u8], place: Place, address: u128) {
    let at = place.at();
    if let Some(bytes) = l3.get_mut(at..at + 16) {
        bytes.copy_from_slice(&address.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;

//! Neighbor Discovery messages (RFC 4861 4): ICMPv6 messages with options behind a fixed part.
//!
//! This module decodes the format. The receiver validates hop limit, checksum and addresses (RFC 4861 6.1,
//! 7.1).

use crate::checksum::pseudo_sum;
pub use crate::icmp::v6::REDIRECT;

use crate::icmp::{self, IcmpRepr};
use crate::ip_protocol::ICMPV6;
use crate::{MacAddr, Malformed};
use std::net::Ipv6Addr;

pub const ROUTER_SOLICITATION: u8 = 133;
pub const ROUTER_ADVERTISEMENT: u8 = 134;
pub const NEIGHBOR_SOLICITATION: u8 = 135;
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;

/// Flag of a neighbor advertisement: the sender is a router.
pub const FROM_ROUTER: u8 = 0x80;
/// Flag of a neighbor advertisement: it answers a solicitation.
pub const SOLICITED: u8 = 0x40;
/// Flag of a neighbor advertisement: its MAC address replaces a known one.
pub const OVERRIDE: u8 = 0x20;

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// All nodes of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of a link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The group in which a node receives solicitations for its address (RFC 4291 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

/// The MAC address of a multicast group (RFC 2464 7).
pub fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// The link-local address made from a MAC address (RFC 4291 appendix A).
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A message of a kind that routers process.
#[derive(Clone, Copy, Debug)]
pub struct NdpView<'a> {
    message: &'a [u8],
    fixed_len: usize,
}

impl<'a> NdpView<'a> {
    /// Views a message from its ICMPv6 header to the end of the IP packet. Every option must have a non-zero
    /// length that fits; unknown options are skipped (RFC 4861 4.6). Returns `Malformed::Kind` for messages
    /// other than solicitations and neighbor advertisements.
    pub fn new(message: &'a [u8]) -> Result<Self, Malformed> {
        let fixed_len = match *message.first().ok_or(Malformed::Truncated)? {
            ROUTER_SOLICITATION => icmp::HEADER_BYTES,
            NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => icmp::HEADER_BYTES + 16,
            _ => return Err(Malformed::Kind),
        };
        let mut rest = message.get(fixed_len..).ok_or(Malformed::Truncated)?;
        while !rest.is_empty() {
            rest = split_option(rest).ok_or(Malformed::Length)?.1;
        }
        Ok(Self { message, fixed_len })
    }

    /// The ICMPv6 type.
    pub fn kind(&self) -> u8 {
        self.message[0]
    }

    /// The flags of a neighbor advertisement, [`FROM_ROUTER`] and others.
    pub fn flags(&self) -> u8 {
        self.message[4]
    }

    /// The target address of a neighbor solicitation or advertisement.
    pub fn target(&self) -> Option<Ipv6Addr> {
        let address: [u8; 16] = *self.message[icmp::HEADER_BYTES..self.fixed_len].first_chunk()?;
        Some(address.into())
    }

    /// The source link-layer address option, if present.
    pub fn source_mac(&self) -> Option<MacAddr> {
        self.mac_option(SOURCE_LINK_LAYER)
    }

    /// The target link-layer address option, if present.
    pub fn target_mac(&self) -> Option<MacAddr> {
        self.mac_option(TARGET_LINK_LAYER)
    }

    /// The first option of a kind with the length of a MAC address.
    fn mac_option(&self, kind: u8) -> Option<MacAddr> {
        let mut rest = &self.message[self.fixed_len..];
        while let Some((option, behind)) = split_option(rest) {
            match *option {
                [found, 1, a, b, c, d, e, f] if found == kind => return Some(MacAddr([a, b, c, d, e, f])),
                _ => rest = behind,
            }
        }
        None
    }
}

/// The first option and the rest.
fn split_option(options: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(*options.get(1)?) * 8;
    options.split_at_checked(length).filter(|_| length > 0)
}

/// A network that a router advertises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisedPrefix {
    pub prefix: Ipv6Addr,
    pub length: u8,
    /// Whether hosts may form addresses from it (RFC 4862).
    pub is_autonomous: bool,
    /// How long the prefix is on the link.
    pub valid_s: u32,
    /// How long addresses formed from it are preferred.
    pub preferred_s: u32,
}

/// A message to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NdpRepr {
    NeighborSolicitation {
        /// Its address.
        target: Ipv6Addr,
        source_mac: MacAddr,
    },
    NeighborAdvertisement {
        /// [`FROM_ROUTER`] and others.
        flags: u8,
        target: Ipv6Addr,
        target_mac: MacAddr,
    },
    RouterAdvertisement {
        /// The hop limit that hosts should use.
        hop_limit: u8,
        /// How long hosts may use the router as a default router.
        lifetime_s: u16,
        source_mac: MacAddr,
        /// The MTU of the link.
        mtu_bytes: u32,
        prefixes: Vec<AdvertisedPrefix>,
    },
}

impl NdpRepr {
    /// Encodes the ICMPv6 message from `source` to `destination`, with its checksum.
    pub fn encode(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut body = Vec::new();
        let (kind, rest) = match self {
            Self::NeighborSolicitation { target, source_mac } => {
                body.extend_from_slice(&target.octets());
                body.extend_from_slice(&mac_option(SOURCE_LINK_LAYER, *source_mac));
                (NEIGHBOR_SOLICITATION, [0; 4])
            }
            Self::NeighborAdvertisement { flags, target, target_mac } => {
                body.extend_from_slice(&target.octets());
                body.extend_from_slice(&mac_option(TARGET_LINK_LAYER, *target_mac));
                (NEIGHBOR_ADVERTISEMENT, [*flags, 0, 0, 0])
            }
            Self::RouterAdvertisement { hop_limit, lifetime_s, source_mac, mtu_bytes, prefixes } => {
                // Reachable and retransmission times are unspecified.
                body.extend_from_slice(&[0; 8]);
                body.extend_from_slice(&mac_option(SOURCE_LINK_LAYER, *source_mac));
                body.extend_from_slice(&[MTU, 1, 0, 0]);
                body.extend_from_slice(&mtu_bytes.to_be_bytes());
                prefixes.iter().for_each(|prefix| prefix.encode(&mut body));
                let [high, low] = lifetime_s.to_be_bytes();
                (ROUTER_ADVERTISEMENT, [*hop_limit, 0, high, low])
            }
        };
        let length = icmp::HEADER_BYTES + body.len();
        let pseudo = pseudo_sum(source.into(), destination.into(), ICMPV6, length);
        let header = IcmpRepr { kind, code: 0, rest }.encode(&body, pseudo);
        [&header[..], &body].concat()
    }
}

impl AdvertisedPrefix {
    fn encode(&self, out: &mut Vec<u8>) {
        const ON_LINK: u8 = 0x80;
        const AUTONOMOUS: u8 = 0x40;
        let flags = if self.is_autonomous { ON_LINK | AUTONOMOUS } else { ON_LINK };
        out.extend_from_slice(&[PREFIX_INFORMATION, 4, self.length, flags]);
        out.extend_from_slice(&self.valid_s.to_be_bytes());
        out.extend_from_slice(&self.preferred_s.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.prefix.octets());
    }
}

fn mac_option(kind: u8, mac: MacAddr) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac.0;
    [kind, 1, a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::IcmpView;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(source: u128, destination: u128, target: u128, mac: [u8; 6], flags: u8) {
            let (source, destination, target) = (source.into(), destination.into(), Ipv6Addr::from(target));
            let mac = MacAddr(mac);
            let asks = NdpRepr::NeighborSolicitation { target, source_mac: mac }.encode(source, destination);
            let tells = NdpRepr::NeighborAdvertisement { flags, target, target_mac: mac }.encode(source, destination);
            let view = NdpView::new(&asks).unwrap();
            prop_assert_eq!((view.kind(), view.target(), view.source_mac(), view.target_mac()),
                (NEIGHBOR_SOLICITATION, Some(target), Some(mac), None));
            let view = NdpView::new(&tells).unwrap();
            prop_assert_eq!((view.kind(), view.target(), view.source_mac(), view.target_mac(), view.flags()),
                (NEIGHBOR_ADVERTISEMENT, Some(target), None, Some(mac), flags));
            for message in [&asks, &tells] {
                let pseudo = pseudo_sum(source.into(), destination.into(), ICMPV6, message.len());
                prop_assert!(IcmpView::new(message).unwrap().checksum_holds(pseudo));
                for cut in 0..message.len() {
                    prop_assert_eq!(NdpView::new(&message[..cut]).is_ok(), cut == 24, "cut at {}", cut);
                }
            }
        }

        #[test]
        fn nothing_makes_it_panic(mut message in prop::collection::vec(any::<u8>(), 0..80), kind in 130u8..140) {
            if let Some(first) = message.first_mut() { *first = kind; }
            if let Ok(view) = NdpView::new(&message) {
                view.source_mac();
                view.target_mac();
                prop_assert_eq!(view.target().is_some(), view.kind() != ROUTER_SOLICITATION);
            }
        }
    }

    #[test]
    fn options_are_passed_over_or_refused() {
        let solicitation = |options: &[u8]| [&[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0], options].concat();
        let mac = [1, 1, 2, 0, 0, 0, 0, 9];
        let unknown = [[200, 2].to_vec(), vec![0; 14]].concat();
        let both = solicitation(&[&unknown[..], &mac].concat());
        assert_eq!(NdpView::new(&both).unwrap().source_mac(), Some(MacAddr([2, 0, 0, 0, 0, 9])));
        let longer = solicitation(&[[1, 2].to_vec(), vec![0; 14]].concat());
        assert_eq!(NdpView::new(&longer).unwrap().source_mac(), None, "not as long as a MAC address");
        for bad in [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 2, 0, 0, 0, 0, 0, 0], &[1]] {
            assert_eq!(NdpView::new(&solicitation(bad)).map(|_| ()), Err(Malformed::Length), "{bad:?}");
        }
        assert_eq!(NdpView::new(&[ROUTER_ADVERTISEMENT; 24]).map(|_| ()), Err(Malformed::Kind));
    }
}

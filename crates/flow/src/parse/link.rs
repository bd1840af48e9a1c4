//! The layers before the IP packet: link layers of captures and live ports, VLAN tags, MPLS labels, PPPoE.
//!
//! Every function takes the whole frame and an offset, so results are offsets in the frame. Nothing is read
//! twice, and loops have bounds.

use thalweg_base::{DropReason, LinkType};
use thalweg_wire::EtherType;

/// The most VLAN tags that are parsed.
pub const TAGS_MAX: usize = 8;
/// The most MPLS labels that are parsed.
pub const LABELS_MAX: usize = 16;
/// The most attributes of a netfilter log message that are parsed.
const ATTRIBUTES_MAX: usize = 32;

/// The network layer, according to the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Ipv4,
    Ipv6,
    Other,
}

impl Protocol {
    pub(super) fn version(self) -> Option<u8> {
        match self {
            Self::Ipv4 => Some(4),
            Self::Ipv6 => Some(6),
            Self::Other => None,
        }
    }
}

/// Facts of the link layer that may be part of a flow's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFacts {
    /// VLAN identifier of the outermost tag; 0 for no tag.
    pub vlan: u16,
    pub mpls_label: Option<u32>,
    has_tag: bool,
}

/// The network layer in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Offset of its header.
    pub at: usize,
    pub protocol: Protocol,
    pub facts: LinkFacts,
}

/// Finds the network layer of a frame, or says why there is none. A frame with a payload other than IP is no
/// error here.
pub fn network_of(link: LinkType, frame: &[u8]) -> Result<Network, DropReason> {
    match link {
        LinkType::Ethernet => ethernet(frame, 0),
        LinkType::RawIp => by_version(frame, 0),
        LinkType::LinuxCooked => {
            let ether_type = ether_type_at(frame, 14)?;
            behind_ether_type(frame, 16, ether_type)
        }
        LinkType::LinuxCooked2 => {
            // The type comes first; the header is twenty bytes long.
            let ether_type = ether_type_at(frame, 0)?;
            behind_ether_type(frame, 20, ether_type)
        }
        LinkType::BsdLoopback => bsd_loopback(frame),
        LinkType::Ppp => ppp(frame, 0),
        LinkType::CiscoHdlc => cisco_hdlc(frame),
        LinkType::FrameRelay => frame_relay(frame),
        LinkType::Fddi => llc(frame, 13, LinkFacts::default()),
        LinkType::Ieee80211 => ieee80211(frame, 0, false),
        LinkType::Radiotap => radiotap(frame),
        LinkType::NetfilterLog => netfilter_log(frame),
        LinkType::Unsupported => Err(DropReason::UnsupportedLink),
    }
}

pub(super) fn ethernet(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    let ether_type = ether_type_at(frame, at + 12)?;
    behind_ether_type(frame, at + 14, ether_type)
}

/// Bare IP, recognized by its version.
pub(super) fn by_version(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    match frame.get(at).map(|byte| byte >> 4) {
        Some(4) => Ok(found(at, Protocol::Ipv4)),
        Some(6) => Ok(found(at, Protocol::Ipv6)),
        Some(_) => Err(DropReason::IpVersion),
        None => Err(DropReason::FrameTooShort),
    }
}

pub(super) fn behind_ether_type(
    frame: &[u8],
    at: usize,
    ether_type: EtherType,
) -> Result<Network, DropReason> {
    follow(frame, at, ether_type, LinkFacts::default())
}

/// Follows tags, labels and PPPoE behind an EtherType that ends at `at`.
fn follow(
    frame: &[u8],
    mut at: usize,
    mut ether_type: EtherType,
    mut facts: LinkFacts,
) -> Result<Network, DropReason> {
    for _ in 0..=TAGS_MAX {
        let protocol = match ether_type {
            EtherType::IPV4 => Protocol::Ipv4,
            EtherType::IPV6 => Protocol::Ipv6,
            // IEEE 802.1Q, 802.1ad, and the values used before two tags were standardized.
            EtherType::VLAN | EtherType::QINQ | EtherType::QINQ_OLD | EtherType(0x9200 | 0x9300) => {
                let tag = be16_at(frame, at)?;
                if !facts.has_tag {
                    facts.has_tag = true;
                    facts.vlan = tag & 0x0fff;
                }
                ether_type = ether_type_at(frame, at + 2)?;
                at += 4;
                continue;
            }
            EtherType::MPLS | EtherType::MPLS_UPSTREAM => return labels(frame, at, facts),
            // RFC 2516: version and type, code, session, length, then PPP.
            EtherType::PPPOE_SESSION => return ppp_behind(frame, at + 6, facts),
            // Not a type but IEEE 802.3's length.
            EtherType(0..0x0600) => return llc(frame, at, facts),
            _ => Protocol::Other,
        };
        return Ok(Network { at, protocol, facts });
    }
    Err(DropReason::VlanDepth)
}

/// A label stack (RFC 3032). It does not name its payload; like any LSR, we recognize IP by its version.
fn labels(frame: &[u8], mut at: usize, mut facts: LinkFacts) -> Result<Network, DropReason> {
    for _ in 0..LABELS_MAX {
        let entry = be32_at(frame, at)?;
        facts.mpls_label.get_or_insert(entry >> 12);
        at += 4;
        if entry & 0x100 != 0 {
            let protocol = match frame.get(at).map(|byte| byte >> 4) {
                Some(4) => Protocol::Ipv4,
                Some(6) => Protocol::Ipv6,
                _ => Protocol::Other,
            };
            return Ok(Network { at, protocol, facts });
        }
    }
    Ok(Network { at, protocol: Protocol::Other, facts })
}

/// A label stack inside IP or UDP.
pub(super) fn mpls(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    labels(frame, at, LinkFacts::default())
}

/// PPP at `at`, with or without address and control bytes.
pub(super) fn ppp(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    ppp_behind(frame, at, LinkFacts::default())
}

fn ppp_behind(frame: &[u8], mut at: usize, facts: LinkFacts) -> Result<Network, DropReason> {
    match (byte_at(frame, at)?, byte_at(frame, at + 1)?) {
        (0xff, 0x03) => at += 2,
        // Cisco HDLC, which captures may label as PPP in HDLC framing.
        (0x0f | 0x8f, 0x00) => {
            let ether_type = ether_type_at(frame, at + 2)?;
            return follow(frame, at + 4, ether_type, facts);
        }
        _ => {}
    }
    // RFC 1661, 6.5: a protocol below 256 may be one byte long; first bytes are even, last ones odd.
    let first = byte_at(frame, at)?;
    let (protocol, len) = if first & 1 == 1 { (u16::from(first), 1) } else { (be16_at(frame, at)?, 2) };
    at += len;
    let protocol = match protocol {
        0x0021 => Protocol::Ipv4,
        0x0057 => Protocol::Ipv6,
        0x0281 | 0x0283 => return labels(frame, at, facts),
        _ => Protocol::Other,
    };
    Ok(Network { at, protocol, facts })
}

fn cisco_hdlc(frame: &[u8]) -> Result<Network, DropReason> {
    let ether_type = ether_type_at(frame, 2)?;
    behind_ether_type(frame, 4, ether_type)
}

/// The family has the byte order of the capturing machine; all values fit one byte. IPv6 has a different
/// number on each system.
fn bsd_loopback(frame: &[u8]) -> Result<Network, DropReason> {
    let family = be32_at(frame, 0)?.to_be_bytes();
    let protocol = match family[0] | family[3] {
        2 => Protocol::Ipv4,
        10 | 23 | 24 | 28 | 30 => Protocol::Ipv6,
        _ => Protocol::Other,
    };
    Ok(found(4, protocol))
}

/// A Q.922 address of two to four bytes, then RFC 2427, or Cisco's EtherType.
fn frame_relay(frame: &[u8]) -> Result<Network, DropReason> {
    let mut at = 0;
    while byte_at(frame, at)? & 1 == 0 {
        at += 1;
        if at > 4 {
            return Ok(found(at, Protocol::Other));
        }
    }
    at += 1;
    if byte_at(frame, at)? != 0x03 {
        let ether_type = ether_type_at(frame, at)?;
        return behind_ether_type(frame, at + 2, ether_type);
    }
    at += 1;
    // A byte of padding may precede the identifier.
    at += usize::from(byte_at(frame, at)? == 0);
    match byte_at(frame, at)? {
        0xcc => Ok(found(at + 1, Protocol::Ipv4)),
        0x8e => Ok(found(at + 1, Protocol::Ipv6)),
        0x80 => snap(frame, at + 1, LinkFacts::default()),
        _ => Ok(found(at, Protocol::Other)),
    }
}

/// IEEE 802.2: service access points of SNAP or IP, unnumbered information.
fn llc(frame: &[u8], at: usize, facts: LinkFacts) -> Result<Network, DropReason> {
    match be32_at(frame, at)?.to_be_bytes() {
        [0xaa, 0xaa, 0x03, _] => snap(frame, at + 3, facts),
        [0x06, 0x06, 0x03, _] => Ok(Network { at: at + 3, protocol: Protocol::Ipv4, facts }),
        _ => Ok(Network { at, protocol: Protocol::Other, facts }),
    }
}

/// Organization and type at `at`. Two organizations use EtherTypes: none (RFC 1042), and 802.1H's bridge
/// tunnel.
fn snap(frame: &[u8], at: usize, facts: LinkFacts) -> Result<Network, DropReason> {
    let organization = be32_at(frame, at)? >> 8;
    let ether_type = ether_type_at(frame, at + 3)?;
    // A length would lead back to LLC.
    if matches!(organization, 0 | 0xf8) && ether_type.0 >= 0x0600 {
        follow(frame, at + 5, ether_type, facts)
    } else {
        Ok(Network { at: at + 5, protocol: Protocol::Other, facts })
    }
}

/// Unencrypted IEEE 802.11 data frames with one packet. `padded`: the header is padded to a multiple of four
/// bytes.
fn ieee80211(frame: &[u8], at: usize, padded: bool) -> Result<Network, DropReason> {
    let [control, flags, ..] = be32_at(frame, at)?.to_be_bytes();
    behind_control(frame, at, (control, flags), padded)
}

/// Like [`ieee80211`], but the bytes of the frame control field may be exchanged, as some CAPWAP access
/// points do. The LLC header decides.
pub(super) fn ieee80211_of_capwap(frame: &[u8], at: usize) -> Result<Network, DropReason> {
    let [first, second, ..] = be32_at(frame, at)?.to_be_bytes();
    match behind_control(frame, at, (first, second), false) {
        Ok(Network { protocol: Protocol::Other, .. }) | Err(_) => {
            behind_control(frame, at, (second, first), false)
        }
        found => found,
    }
}

fn behind_control(
    frame: &[u8],
    at: usize,
    (control, flags): (u8, u8),
    padded: bool,
) -> Result<Network, DropReason> {
    let is_data = control & 0x0f == 0x08;
    let (has_no_data, has_qos) = (control & 0x40 != 0, control & 0x80 != 0);
    let is_encrypted = flags & 0x40 != 0;
    if !is_data || has_no_data || is_encrypted {
        return Ok(found(at, Protocol::Other));
    }
    let mut header = 24;
    if flags & 0x03 == 0x03 {
        header += 6; // the fourth address of a frame between access points
    }
    if has_qos {
        if byte_at(frame, at + header)? & 0x80 != 0 {
            return Ok(found(at, Protocol::Other)); // several packets in one
        }
        header += 2;
        if flags & 0x80 != 0 {
            header += 4; // HT control
        }
    }
    if padded {
        header = header.next_multiple_of(4);
    }
    llc(frame, at + header, LinkFacts::default())
}

/// radiotap.org: version, padding, length, and words that list the fields; we need only the flags.
fn radiotap(frame: &[u8]) -> Result<Network, DropReason> {
    const TIMER: u32 = 1;
    const FLAGS: u32 = 2;
    const MORE: u32 = 1 << 31;
    const FLAG_DATA_PADDED: u8 = 0x20;
    let start = be32_at(frame, 0)?.to_be_bytes();
    let len = usize::from(u16::from_le_bytes([start[2], start[3]]));
    let header = frame.get(..len).filter(|header| header.len() >= 8).ok_or(DropReason::FrameTooShort)?;
    let present = be32_at(header, 4)?.swap_bytes();
    let mut at = 8;
    let mut word = present;
    while word & MORE != 0 {
        word = be32_at(header, at)?.swap_bytes();
        at += 4;
    }
    if present & TIMER != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let padded = present & FLAGS != 0 && byte_at(header, at)? & FLAG_DATA_PADDED != 0;
    ieee80211(frame, len, padded)
}

/// Family, version, resource, then attributes in the machine's byte order: length, type, value, padded to a
/// multiple of four.
fn netfilter_log(frame: &[u8]) -> Result<Network, DropReason> {
    const PAYLOAD: u16 = 9;
    let protocol = match byte_at(frame, 0)? {
        2 => Protocol::Ipv4,
        10 => Protocol::Ipv6,
        _ => Protocol::Other,
    };
    let mut at = 4;
    for _ in 0..ATTRIBUTES_MAX {
        let header = be32_at(frame, at)?.to_be_bytes();
        // A short length in one byte order is long in the other, and the type is a small number.
        let (len, kind) = match header {
            [low, high, kind, 0] => (u16::from_le_bytes([low, high]), u16::from(kind)),
            [high, low, _, kind] => (u16::from_be_bytes([high, low]), u16::from(kind)),
        };
        if len < 4 {
            return Err(DropReason::FrameTooShort);
        }
        if kind == PAYLOAD {
            return Ok(found(at + 4, protocol));
        }
        at += usize::from(len).next_multiple_of(4);
    }
    Ok(found(at, Protocol::Other))
}

fn found(at: usize, protocol: Protocol) -> Network {
    Network { at, protocol, facts: LinkFacts::default() }
}

pub(super) fn byte_at(frame: &[u8], at: usize) -> Result<u8, DropReason> {
    frame.get(at).copied().ok_or(DropReason::FrameTooShort)
}

pub(super) fn be16_at(frame: &[u8], at: usize) -> Result<u16, DropReason> {
    let bytes = frame.get(at..).and_then(|rest| rest.first_chunk()).ok_or(DropReason::FrameTooShort)?;
    Ok(u16::from_be_bytes(*bytes))
}

pub(super) fn ether_type_at(frame: &[u8], at: usize) -> Result<EtherType, DropReason> {
    be16_at(frame, at).map(EtherType)
}

pub(super) fn be32_at(frame: &[u8], at: usize) -> Result<u32, DropReason> {
    let bytes = frame.get(at..).and_then(|rest| rest.first_chunk()).ok_or(DropReason::FrameTooShort)?;
    Ok(u32::from_be_bytes(*bytes))
}

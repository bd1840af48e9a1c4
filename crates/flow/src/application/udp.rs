//! Recognizes applications over UDP by the first bytes of a datagram.

use super::openvpn::is_openvpn;
use super::{Ports, be16_at, be32_at, by_ports, by_start, first_bytes, first_bytes_of};
use thalweg_wire::application::code_of;
use thalweg_wire::ip_protocol;

const BITTORRENT: u8 = code_of("bittorrent");
const DHCP: u8 = code_of("dhcp");
const DNS: u8 = code_of("dns");
const DNSCRYPT: u8 = code_of("dnscrypt");
const DTLS: u8 = code_of("dtls");
const IPFIX: u8 = code_of("ipfix");
const LLMNR: u8 = code_of("llmnr");
const MDNS: u8 = code_of("mdns");
const MGCP: u8 = code_of("mgcp");
const NETFLOW: u8 = code_of("netflow");
const NTP: u8 = code_of("ntp");
const OPENVPN: u8 = code_of("openvpn");
const QUIC: u8 = code_of("quic");
const RTCP: u8 = code_of("rtcp");
const RTP: u8 = code_of("rtp");
const SIP: u8 = code_of("sip");
const SSDP: u8 = code_of("ssdp");
const STUN: u8 = code_of("stun");
const WIREGUARD: u8 = code_of("wireguard");

/// Applications that the first bytes alone identify.
const STARTS: [(&[u8], u8); 6] = [
    (b"M-SEARCH * HTTP/1.", SSDP),
    (b"NOTIFY * HTTP/1.", SSDP),
    (b"d1:ad2:id20:", BITTORRENT),
    (b"d1:rd2:id20:", BITTORRENT),
    (b"d2:ip", BITTORRENT),
    // A response; queries begin with bytes that the resolver chose.
    (b"r6fnvWj8", DNSCRYPT),
];

pub(super) const SIP_METHODS: [&[u8]; 14] = [
    b"INVITE ",
    b"REGISTER ",
    b"OPTIONS ",
    b"ACK ",
    b"BYE ",
    b"CANCEL ",
    b"SUBSCRIBE ",
    b"NOTIFY ",
    b"MESSAGE ",
    b"INFO ",
    b"PRACK ",
    b"UPDATE ",
    b"REFER ",
    b"PUBLISH ",
];
pub(super) const SIP_VERSION: &[u8] = b"SIP/2.0 ";
const MGCP_VERBS: [&[u8]; 9] =
    [b"EPCF ", b"CRCX ", b"MDCX ", b"DLCX ", b"RQNT ", b"NTFY ", b"AUEP ", b"AUCX ", b"RSIP "];
const SSDP_ANSWER: &[u8] = b"HTTP/1.";

static IS_FIRST: [bool; 256] = {
    let mut is_first = first_bytes(&SIP_METHODS, [false; 256]);
    is_first = first_bytes(&MGCP_VERBS, is_first);
    is_first = first_bytes(&[SIP_VERSION, SSDP_ANSWER], is_first);
    first_bytes_of(&STARTS, is_first)
};

pub(super) fn application_of(payload: &[u8], ports: Ports) -> Option<u8> {
    if payload.first().is_some_and(|first| IS_FIRST[usize::from(*first)]) {
        if let Some(code) = by_start(&STARTS, payload) {
            return Some(code);
        }
        if ports.have(1900) && payload.starts_with(SSDP_ANSWER) {
            return Some(SSDP);
        }
        if let Some(code) = sip(payload).or_else(|| mgcp(payload)) {
            return Some(code);
        }
    }
    stun(payload)
        .or_else(|| by_port_and_form(payload, ports))
        .or_else(|| dtls(payload))
        .or_else(|| quic(payload))
        .or_else(|| wireguard(payload))
        .or_else(|| is_openvpn(payload).then_some(OPENVPN))
        .or_else(|| dhcp(payload))
        .or_else(|| if may_be_rtp(ports) { rtp(payload) } else { None })
}

/// RTP uses negotiated ports and resembles much else: so it must not use another protocol's port, nor a
/// server's.
fn may_be_rtp(ports: Ports) -> bool {
    ports.src >= 1024 && ports.dst >= 1024 && by_ports(ip_protocol::UDP, ports.src, ports.dst).is_none()
}

/// Protocols without a magic number need their port and a plausible header.
fn by_port_and_form(payload: &[u8], ports: Ports) -> Option<u8> {
    let dns = [(53, DNS), (5353, MDNS), (5355, LLMNR)];
    if let Some((_, code)) = dns.iter().find(|(port, _)| ports.have(*port)) {
        return is_dns(payload).then_some(*code);
    }
    if ports.have(123) {
        let first = *payload.first()?;
        let (version, mode) = (first >> 3 & 7, first & 7);
        // Control and private messages (modes 6 and 7) are shorter.
        let is_whole = payload.len() >= 48 || mode >= 6 && payload.len() >= 8;
        return ((1..=4).contains(&version) && mode != 0 && is_whole).then_some(NTP);
    }
    // Exporters need a configured port, mostly 2055 or 9995. Checked: version, and record count or length.
    if [2055, 4739, 9995, 9996].iter().any(|port| ports.have(*port)) {
        let (version, count) = (be16_at(payload, 0)?, usize::from(be16_at(payload, 2)?));
        return match version {
            5 if payload.len() == 24 + count * 48 => Some(NETFLOW),
            9 if count > 0 && payload.len() >= 24 => Some(NETFLOW),
            10 if count == payload.len() => Some(IPFIX),
            _ => None,
        };
    }
    None
}

/// Requests begin with a method and a URI of one of two schemes, responses with the version.
pub(super) fn sip(payload: &[u8]) -> Option<u8> {
    if payload.starts_with(SIP_VERSION) {
        return Some(SIP);
    }
    let uri = SIP_METHODS.iter().find_map(|method| payload.strip_prefix(*method))?;
    let has_scheme =
        |scheme: &[u8]| uri.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    (has_scheme(b"sip:") || has_scheme(b"sips:") || has_scheme(b"tel:")).then_some(SIP)
}

/// Two zero bits, a length that is a multiple of four, and the magic cookie of RFC 5389.
pub(super) fn stun(payload: &[u8]) -> Option<u8> {
    let (kind, len) = (be16_at(payload, 0)?, usize::from(be16_at(payload, 2)?));
    let fits = kind >> 14 == 0 && len % 4 == 0 && payload.len() >= 20;
    (fits && be32_at(payload, 4)? == 0x2112_a442).then_some(STUN)
}

/// A message with consistent counts whose first name, if any, is well-formed.
pub(super) fn is_dns(payload: &[u8]) -> bool {
    let Some((header, mut rest)) = payload.split_first_chunk::<12>() else { return false };
    let count = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let (operation, reserved) = (header[2] >> 3 & 15, header[3] & 0x40);
    let (questions, records) = (count(4), count(6) + count(8) + count(10));
    if operation > 6 || reserved != 0 || questions + records == 0 {
        return false;
    }
    // A question takes at least five bytes, a record eleven; the last may be cut.
    if questions.saturating_sub(1) * 5 > rest.len() || questions > 256 {
        return false;
    }
    let mut bytes = 0;
    loop {
        match rest {
            [0, ..] => return true,
            [0xc0..=0xff, ..] => return bytes > 0 || questions == 0,
            [len @ 1..=63, behind @ ..] => {
                bytes += usize::from(*len) + 1;
                if bytes > 255 {
                    return false;
                }
                match behind.get(usize::from(*len)..) {
                    Some(next) => rest = next,
                    None => return true,
                }
            }
            [] => return true,
            _ => return false,
        }
    }
}

/// Content type, version, epoch, sequence number, length. Versions: 1.0 and 1.2 (ones' complement), which 1.3
/// also sends, and the one that OpenSSL used before 1.0 was finished, as Cisco AnyConnect still does. In a
/// young session the highest 16 of the number's 48 bits are 0; then the length need not fit, since a capture
/// may have cut the packet.
fn dtls(payload: &[u8]) -> Option<u8> {
    const HEADER: usize = 13;
    const LENGTH_MAX: usize = (1 << 14) + 2048;
    const WITH_CONNECTION_ID: u8 = 25;
    let ([kind @ 20..=25, 0xfe, 0xff | 0xfd, ..] | [kind @ 20..=24, 0x01, 0x00, ..]) = payload else {
        return None;
    };
    let (epoch, number_high) = (be16_at(payload, 3)?, be16_at(payload, 5)?);
    if *kind == WITH_CONNECTION_ID {
        // The position of the length depends on the length of the identifier, which only the endpoints know.
        return (epoch > 0 && number_high == 0 && payload.len() > HEADER).then_some(DTLS);
    }
    let len = usize::from(be16_at(payload, 11)?);
    // Before the handshake ends, the epoch is 0; records other than handshakes are recognized by those around
    // them.
    let is_new = epoch <= 1 || *kind == 23;
    let fits = HEADER + len <= payload.len() || number_high == 0 && len <= LENGTH_MAX && is_record(payload);
    (is_new && len > 0 && fits).then_some(DTLS)
}

/// Whether the bytes behind the header of a cut DTLS record can be its beginning: for a clear-text handshake,
/// a known message type with consistent lengths; anything if encrypted.
fn is_record(payload: &[u8]) -> bool {
    const HEADER: usize = 13;
    if payload[0] != 22 || be16_at(payload, 3) != Some(0) {
        return payload.len() > HEADER && be16_at(payload, 3) != Some(0);
    }
    let (Some(message), Some(sequence)) = (be32_at(payload, HEADER), be16_at(payload, HEADER + 4)) else {
        return false;
    };
    let three = |at: usize| be32_at(payload, at).map(|word| word & 0xff_ffff);
    let (kind, length) = (message >> 24, message & 0xff_ffff);
    let Some((start, part)) = three(HEADER + 5).zip(three(HEADER + 8)) else { return false };
    matches!(kind, 0..=4 | 8 | 11..=16 | 20..=24) && sequence < 64 && start + part <= length
}

/// A long header with the fixed bit, a version in use, and identifiers of at most 20 bytes; or Google's QUIC
/// before that.
fn quic(payload: &[u8]) -> Option<u8> {
    let first = *payload.first()?;
    if first & 0x80 != 0 {
        let version = be32_at(payload, 1)?;
        let is_google = matches!(version.to_be_bytes(), [b'Q' | b'T', b'0', b'0'..=b'9', b'0'..=b'9']);
        // Both versions, and drafts.
        let is_ietf = matches!(version, 1 | 0x6b33_43cf | 0xff00_0001..=0xff00_0022);
        let id_len = usize::from(*payload.get(5)?);
        // Google's QUIC had both lengths in one byte.
        let has_fixed_bit = first & 0x40 != 0;
        return (is_google || is_ietf && has_fixed_bit && id_len <= 20).then_some(QUIC);
    }
    // Public flags with a version: an identifier of eight bytes, then "Q0" and two digits.
    if first & 0x09 == 0x09 {
        let [b'Q', b'0', b'0'..=b'9', b'0'..=b'9'] = *payload.get(9..)?.first_chunk()? else { return None };
        return Some(QUIC);
    }
    None
}

/// Type, three zeros, and the length of that type.
fn wireguard(payload: &[u8]) -> Option<u8> {
    let [kind, 0, 0, 0, ..] = *payload else { return None };
    let fits = matches!((kind, payload.len()), (1, 148) | (2, 92) | (3, 64));
    fits.then_some(WIREGUARD)
}

/// Request or reply, and the magic cookie where the options begin.
fn dhcp(payload: &[u8]) -> Option<u8> {
    (matches!(payload.first()?, 1 | 2) && be32_at(payload, 236)? == 0x6382_5363).then_some(DHCP)
}

/// A verb of four letters, a transaction and an endpoint.
fn mgcp(payload: &[u8]) -> Option<u8> {
    if !MGCP_VERBS.iter().any(|verb| payload.starts_with(verb)) {
        return None;
    }
    let line = payload[..payload.len().min(256)].split(|byte| *byte == b'\n').next()?;
    line.windows(8).any(|window| window == b"MGCP 1.0").then_some(MGCP)
}

/// RTP and RTCP fix little more than a version of two bits, so everything checkable has to fit: RTCP's length; for RTP no
/// padding, no contributing sources (senders use neither), a payload type in use and a header extension that ends inside.
fn rtp(payload: &[u8]) -> Option<u8> {
    let [first, second, ..] = *payload else { return None };
    if payload.len() < 8 || first >> 6 != 2 {
        return None;
    }
    if (200..=207).contains(&second) {
        let len = (usize::from(be16_at(payload, 2)?) + 1) * 4;
        return (len <= payload.len() && len >= 8).then_some(RTCP);
    }
    let kind = second & 0x7f;
    let is_in_use = matches!(kind, 0 | 3..=18 | 25 | 26 | 28 | 31..=34 | 96..=127);
    let header = match first {
        0x80 => 12,
        0x90 => 16 + usize::from(be16_at(payload, 14)?) * 4,
        _ => return None,
    };
    (is_in_use && payload.len() > header).then_some(RTP)
}

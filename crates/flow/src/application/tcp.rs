//! Recognizes applications over TCP by the beginning of a side's first segment.

use super::openvpn::is_openvpn_stream;
use super::{Ports, be16_at, be32_at, by_ports, by_start, first_bytes, first_bytes_of, udp};
use thalweg_wire::application::code_of;
use thalweg_wire::ip_protocol;

const BGP: u8 = code_of("bgp");
const BITTORRENT: u8 = code_of("bittorrent");
const DNS: u8 = code_of("dns");
const FTP: u8 = code_of("ftp");
const HTTP: u8 = code_of("http");
const IMAP: u8 = code_of("imap");
const MQTT: u8 = code_of("mqtt");
const OPENVPN: u8 = code_of("openvpn");
const POP3: u8 = code_of("pop3");
const RDP: u8 = code_of("rdp");
const RTMP: u8 = code_of("rtmp");
const RTSP: u8 = code_of("rtsp");
const SMB: u8 = code_of("smb");
const SMTP: u8 = code_of("smtp");
const SSH: u8 = code_of("ssh");
const TLS: u8 = code_of("tls");
const VNC: u8 = code_of("vnc");
const XMPP: u8 = code_of("xmpp");

/// Applications inside TLS that have their own port.
const SECURED: [u8; 7] = [
    code_of("https"),
    code_of("imaps"),
    code_of("pop3s"),
    code_of("sips"),
    code_of("dot"),
    code_of("ldaps"),
    code_of("smtps"),
];

/// HTTP methods with the following space, and the beginnings of responses and of HTTP/2.
const HTTP_STARTS: [&[u8]; 11] = [
    b"GET ",
    b"POST ",
    b"HTTP/1.",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"CONNECT ",
    b"PATCH ",
    b"TRACE ",
    b"PRI * HTTP/2.0\r\n",
];

/// Applications that the first bytes alone identify.
const STARTS: [(&[u8], u8); 9] = [
    (b"SSH-2.0-", SSH),
    (b"SSH-1.", SSH),
    (b"\x13BitTorrent protocol", BITTORRENT),
    (b"EHLO ", SMTP),
    (b"HELO ", SMTP),
    (b"+OK ", POP3),
    (b"* OK ", IMAP),
    (b"RFB 003.", VNC),
    (&[0xff; 16], BGP),
];

/// RTSP methods; for those that HTTP or SIP share, the URI decides.
const RTSP_METHODS: [&[u8]; 7] =
    [b"OPTIONS ", b"DESCRIBE ", b"SETUP ", b"PLAY ", b"ANNOUNCE ", b"GET_PARAMETER ", b"TEARDOWN "];
const RTSP_VERSIONS: [&[u8]; 2] = [b"RTSP/1.0 ", b"RTSP/2.0 "];
const XMPP_STARTS: [&[u8]; 2] = [b"<?xml", b"<stream:"];
/// The beginning of a server's greeting in SMTP and FTP.
const GREETING: &[u8] = b"220";

/// First bytes of everything that text or its beginning alone identifies. Most payloads in the middle of a
/// flow are random bytes; this table spares them the comparisons.
static IS_FIRST: [bool; 256] = {
    let mut is_first = first_bytes(&HTTP_STARTS, [false; 256]);
    is_first = first_bytes(&RTSP_METHODS, is_first);
    is_first = first_bytes(&RTSP_VERSIONS, is_first);
    is_first = first_bytes(&XMPP_STARTS, is_first);
    is_first = first_bytes(&[GREETING, udp::SIP_VERSION], is_first);
    is_first = first_bytes(&udp::SIP_METHODS, is_first);
    first_bytes_of(&STARTS, is_first)
};

pub(super) fn application_of(payload: &[u8], ports: Ports) -> Option<u8> {
    if is_tls(payload) {
        // A port with its own name for this TLS application decides.
        let secured = by_ports(ip_protocol::TCP, ports.src, ports.dst);
        return secured.filter(|code| SECURED.contains(code)).or(Some(TLS));
    }
    if payload.first().is_some_and(|first| IS_FIRST[usize::from(*first)]) {
        if let Some(code) = by_start(&STARTS, payload) {
            return Some(code);
        }
        if let Some(code) = by_text(payload).or_else(|| greeting(payload)) {
            return Some(code);
        }
    }
    binary(payload)
        .or_else(|| udp::stun(payload))
        .or_else(|| (ports.have(53) && is_dns(payload)).then_some(DNS))
        .or_else(|| is_openvpn_stream(payload).then_some(OPENVPN))
}

/// Requests and responses of HTTP and its relatives.
fn by_text(payload: &[u8]) -> Option<u8> {
    if let Some(code) = udp::sip(payload) {
        return Some(code);
    }
    if is_rtsp(payload) {
        return Some(RTSP);
    }
    if HTTP_STARTS.iter().any(|start| payload.starts_with(start)) {
        return Some(HTTP);
    }
    XMPP_STARTS.iter().any(|start| payload.starts_with(start)).then(|| {
        let head = &payload[..payload.len().min(200)];
        head.windows(14).any(|window| window == b"<stream:stream").then_some(XMPP)
    })?
}

fn is_rtsp(payload: &[u8]) -> bool {
    let uri = |method: &[u8]| payload.strip_prefix(method).is_some_and(|rest| rest.starts_with(b"rtsp://"));
    RTSP_VERSIONS.iter().any(|version| payload.starts_with(version))
        || RTSP_METHODS.iter().any(|method| uri(method))
}

/// Decides whose greeting it is.
fn greeting(payload: &[u8]) -> Option<u8> {
    if !payload.starts_with(GREETING) || !matches!(payload.get(3), Some(b' ' | b'-')) {
        return None;
    }
    let line = payload[..payload.len().min(256)].split(|byte| *byte == b'\n').next()?;
    let says = |word: &[u8]| line.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
    if says(b"SMTP") { Some(SMTP) } else { says(b"FTP").then_some(FTP) }
}

/// Protocols that begin with a length and a magic number.
fn binary(payload: &[u8]) -> Option<u8> {
    let [first, second, third, fourth] = *payload.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([third, fourth]));
    match (first, second) {
        // A NetBIOS session message with SMB 1, 2, or encrypted 3.
        (0, _) => match payload.get(4..8)? {
            [0xfd..=0xff, b'S', b'M', b'B'] => Some(SMB),
            _ => None,
        },
        // TPKT with a connection request or confirmation; H.323 uses TPKT without these.
        (3, 0) if length >= 11 => match payload.get(5)? {
            0xe0 | 0xd0 if payload.len() <= length => Some(RDP),
            _ => None,
        },
        // CONNECT, its remaining length in one or two bytes, the protocol name.
        (0x10, _) => {
            let name = if second & 0x80 == 0 { payload.get(2..8)? } else { payload.get(3..9)? };
            matches!(name, b"\x00\x04MQTT" | b"\x00\x06MQIs").then_some(MQTT)
        }
        // Version, then a time and zeros: the first handshake message, which fills several segments.
        (3, _) if payload.len() >= 1024 && be32_at(payload, 5)? == 0 => Some(RTMP),
        _ => None,
    }
}

/// A handshake record that begins with a client's or server's hello.
fn is_tls(payload: &[u8]) -> bool {
    let Some(&[0x16, 0x03, 0..=4, high, low, 1 | 2, 0, ..]) = payload.first_chunk::<9>() else {
        return false;
    };
    // A hello has at least a version, 32 random bytes, and lengths.
    (42..=16_384 + 256).contains(&u16::from_be_bytes([high, low]))
}

/// A length, then a message as over UDP.
fn is_dns(payload: &[u8]) -> bool {
    be16_at(payload, 0).is_some_and(|len| len >= 12) && udp::is_dns(payload.get(2..).unwrap_or_default())
}

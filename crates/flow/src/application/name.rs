//! Finds the server name that a client requests: in TLS's hello (RFC 6066) or HTTP's Host header.
//!
//! Both are in the client's first segment, unless it was cut. Segments are not reassembled.

use super::be16_at;

/// The longest name that DNS allows.
const NAME_BYTES_MAX: usize = 255;
/// How much of a request is searched for the Host header.
const HEADER_BYTES_MAX: usize = 2048;
/// The most extensions of a hello that are parsed.
const EXTENSIONS_MAX: usize = 64;

/// The server name in a client's first payload. It contains only letters, digits, dots and hyphens, for HTTP
/// also the characters of an address, and has at most 255 bytes.
pub fn server_name(payload: &[u8]) -> Option<&str> {
    let name = match payload.first()? {
        0x16 => tls_name(payload)?,
        b'A'..=b'Z' => http_host(payload)?,
        _ => return None,
    };
    let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(is_fit) {
        return None;
    }
    std::str::from_utf8(name).ok()
}

/// Record, handshake, hello: version, random, session, cipher suites, compression, extensions. Extension 0 is
/// a list of names, the first of which is the host.
fn tls_name(payload: &[u8]) -> Option<&[u8]> {
    const RECORD_AND_HANDSHAKE: usize = 5 + 4;
    const CLIENT_HELLO: u8 = 1;
    if payload.get(1) != Some(&3) || payload.get(5) != Some(&CLIENT_HELLO) {
        return None;
    }
    let mut at = RECORD_AND_HANDSHAKE + 2 + 32;
    at += 1 + usize::from(*payload.get(at)?);
    at += 2 + usize::from(be16_at(payload, at)?);
    at += 1 + usize::from(*payload.get(at)?);
    at += 2;
    for _ in 0..EXTENSIONS_MAX {
        let (kind, len) = (be16_at(payload, at)?, usize::from(be16_at(payload, at + 2)?));
        at += 4;
        if kind == 0 {
            let is_host = *payload.get(at + 2)? == 0;
            let name_len = usize::from(be16_at(payload, at + 3)?);
            return payload.get(at + 5..at + 5 + name_len).filter(|_| is_host && name_len + 5 <= len);
        }
        at += len;
    }
    None
}

fn http_host(payload: &[u8]) -> Option<&[u8]> {
    let head = &payload[..payload.len().min(HEADER_BYTES_MAX)];
    let mut lines = head.split(|byte| *byte == b'\n');
    if !lines.next()?.trim_ascii_end().windows(7).any(|window| window == b"HTTP/1.") {
        return None;
    }
    for line in lines {
        let (true, line) = (line.ends_with(b"\r"), line.trim_ascii_end()) else { return None };
        if line.is_empty() {
            return None;
        }
        if line.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"host:")) {
            return Some(line[5..].trim_ascii());
        }
    }
    None
}

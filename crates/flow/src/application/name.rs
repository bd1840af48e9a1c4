//! The name of the server that a client asks for: in TLS's hello (RFC 6066) or HTTP's Host line.
//!
//! Both stand in the first segment that a client sends, if that is not cut. Nothing is put together from several segments.

use super::be16_at;

/// The longest name that DNS allows.
const NAME_BYTES_MAX: usize = 255;
/// How much of a request is searched for its Host line.
const HEADER_BYTES_MAX: usize = 2048;
/// Limit of extensions of a hello to parse.
const EXTENSIONS_MAX: usize = 64;

/// The server's name in the first payload of a client. Only names that can be one: letters, digits, dots, hyphens, and for HTTP
/// what an address needs. Never longer than 255 bytes.
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

/// Record, handshake, hello: version, random, session, cipher suites, compression, extensions; of those, number 0, a list of
/// names of which the first is the host.
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

//! From a frame to a line of text, similar to the input of `build`, with every checksum checked. Written without
//! the router's own parsers, so that they do not check themselves.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from(b[0]) << 8 | u16::from(b[1]))
}

/// The ones' complement sum of 16-bit words, written plainly after RFC 1071.
fn ones(bytes: &[u8]) -> u32 {
    let mut total: u32 =
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total
}

/// An Ethernet frame. `cut`: the capture truncated it.
pub(crate) fn frame(frame: &[u8], cut: bool) -> String {
    let mac = |m: &[u8]| m.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let mut text = format!("{} > {} ", mac(&frame[6..12]), mac(&frame[..6]));
    let mut at = 12;
    while be16(frame, at) == 0x8100 {
        let _ = write!(text, "vlan {} ", be16(frame, at + 2));
        at += 4;
    }
    match be16(frame, at) {
        0x0800 => ip4(&mut text, &frame[at + 2..], cut),
        0x86dd => ip6(&mut text, &frame[at + 2..], cut),
        other => text = format!("{text}ethertype {other:04x}"),
    }
    if cut {
        let _ = write!(text, " snap {}", frame.len());
    }
    text
}

fn ip4(text: &mut String, ip: &[u8], cut: bool) {
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    let _ = write!(text, "ip {} > {} ttl {}", address(12), address(16), ip[8]);
    let header_len = usize::from(ip[0] & 15) * 4;
    let fragment = be16(ip, 6);
    for (name, value) in [("tos", u16::from(ip[1])), ("id", be16(ip, 4)), ("frag", (fragment & 0x1fff) * 8)] {
        if value != 0 {
            let _ = write!(text, " {name} {value}");
        }
    }
    if fragment & 0x2000 != 0 {
        text.push_str(" more");
    }
    if header_len > 20 {
        let _ = write!(text, " options {} bytes", header_len - 20);
    }
    if ones(&ip[..header_len]) != 0xffff {
        text.push_str(" BAD-HEADER-CHECKSUM");
    }
    let total = usize::from(be16(ip, 2));
    let payload = &ip[header_len..total.min(ip.len())];
    let mut pseudo = ip[12..20].to_vec();
    pseudo.extend([0, ip[9]]);
    pseudo.extend(((total - header_len) as u16).to_be_bytes());
    if fragment & 0x1fff != 0 {
        let _ = write!(text, " data {}", payload.len());
    } else {
        upper(text, ip[9], payload, &pseudo, cut || ip.len() < total || fragment != 0);
    }
}

fn ip6(text: &mut String, ip: &[u8], cut: bool) {
    let address = |at: usize| -> Ipv6Addr {
        let bytes: [u8; 16] = ip[at..at + 16].try_into().unwrap_or_default();
        bytes.into()
    };
    let _ = write!(text, "ip {} > {} ttl {}", address(8), address(24), ip[7]);
    let tos = ip[0] << 4 | ip[1] >> 4;
    if tos != 0 {
        let _ = write!(text, " tos {tos}");
    }
    let mut next = ip[6];
    let mut rest = &ip[40..];
    let mut fragment = false;
    while let (0 | 43 | 44 | 60, true) = (next, rest.len() >= 8) {
        let len = if next == 44 { 8 } else { 8 + usize::from(rest[1]) * 8 };
        let name =
            ["hop", "routing", "frag6", "dest"][[0, 43, 44, 60].iter().position(|n| *n == next).unwrap_or(0)];
        let _ = write!(text, " {name} {len} bytes");
        fragment |= next == 44;
        let later = next == 44 && be16(rest, 2) & 0xfff8 != 0;
        next = rest[0];
        rest = &rest[len..];
        if later {
            let _ = write!(text, " data {}", rest.len());
            return;
        }
    }
    let mut pseudo = ip[8..40].to_vec();
    pseudo.extend([0, next]);
    pseudo.extend((rest.len() as u16).to_be_bytes());
    upper(text, next, rest, &pseudo, cut || fragment);
}

/// `judge_not`: a part of what the checksum covers is missing.
fn upper(text: &mut String, protocol: u8, bytes: &[u8], pseudo: &[u8], judge_not: bool) {
    let ports = (be16(bytes, 0), be16(bytes, 2));
    let covered = [pseudo, bytes].concat();
    let (header_len, sound) = match protocol {
        17 => {
            let _ = write!(text, " udp {} > {}", ports.0, ports.1);
            (8, be16(bytes, 6) == 0 || ones(&covered) == 0xffff)
        }
        6 => {
            let flags = bytes.get(13).copied().unwrap_or(0);
            let letters: String =
                "FSRPA".chars().enumerate().filter(|(i, _)| flags >> i & 1 == 1).map(|(_, c)| c).collect();
            let _ = write!(text, " tcp {} > {} {letters}", ports.0, ports.1);
            let header_len = usize::from(bytes.get(12).copied().unwrap_or(0) >> 4) * 4;
            let options = bytes.get(20..header_len).unwrap_or_default();
            if !options.is_empty() {
                let digits: String = options.iter().map(|byte| format!("{byte:02x}")).collect();
                let _ = write!(text, " opt {digits}");
            }
            (20 + options.len(), ones(&covered) == 0xffff)
        }
        1 | 58 => {
            let sound = ones(if protocol == 1 { bytes } else { &covered }) == 0xffff;
            match (protocol, bytes.first().copied().unwrap_or(0)) {
                (1, 8) | (58, 128) => {
                    let _ = write!(text, " echo {} {}", be16(bytes, 4), be16(bytes, 6));
                }
                (1, 0) | (58, 129) => {
                    let _ = write!(text, " echo-reply {} {}", be16(bytes, 4), be16(bytes, 6));
                }
                (_, kind) => {
                    let rest = u32::from(be16(bytes, 4)) << 16 | u32::from(be16(bytes, 6));
                    let _ = write!(text, " error {kind} {} {rest}", bytes.get(1).copied().unwrap_or(0));
                    if !judge_not && !sound {
                        text.push_str(" BAD-CHECKSUM");
                    }
                    text.push_str(" about ");
                    match bytes.get(8..) {
                        Some(quote) if protocol == 1 && quote.len() >= 20 => ip4(text, quote, false),
                        Some(quote) if quote.len() >= 40 => ip6(text, quote, false),
                        _ => text.push_str("nothing"),
                    }
                    return;
                }
            }
            (8, sound)
        }
        other => {
            let _ = write!(text, " proto {other}");
            (0, true)
        }
    };
    if bytes.len() > header_len {
        let _ = write!(text, " data {}", bytes.len() - header_len);
    }
    if !judge_not && !sound {
        text.push_str(" BAD-CHECKSUM");
    }
}

//! Recognizes OpenVPN's control channel: opcode and key in one byte, a session identifier, and fields that
//! depend on the protection.
//!
//! ```text
//! plain      opcode | session 8 |                                acks | [remote 8] | number 4 | TLS
//! tls-auth   opcode | session 8 | HMAC 16 to 64 | id 4 | time 4 | acks | [remote 8] | number 4 | TLS
//! tls-crypt  opcode | session 8 | id 4 | time 4 | tag 32 | encrypted
//! ```
//!
//! Data channel packets are encrypted and have almost no fixed fields, so a flow with only those is not
//! recognized. Source: OpenVPN's `ssl_pkt.h`, `tls_crypt.h` (version 2.6).

use super::be32_at;

const SESSION: usize = 1 + 8;
const ID_AND_TIME: usize = 4 + 4;
/// MD5, SHA-1, SHA-256, SHA-512.
const HMAC_BYTES: [usize; 4] = [16, 20, 32, 64];
const CRYPT_TAG: usize = 32;
/// The encrypted part of a reset in tls-crypt: no acknowledgment or one of a remote session, and a number.
const RESET_BYTES: [usize; 2] = [1 + 4, 1 + 4 + 8 + 4];
/// The most acknowledgments in a packet.
const ACKS_MAX: usize = 8;
/// Control packets are numbered from 0, and there are few.
const NUMBER_MAX: u32 = 0xffff;
/// The first packet identifier of tls-crypt-v2.
const EARLY_ID: u32 = 0x0f00_0001;
/// 2000-01-01.
const TIME_MIN: u32 = 946_684_800;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opcode {
    ResetByClient,
    ResetByServer,
    Control,
    Ack,
}

impl Opcode {
    /// Resets always use key 0, and so does everything until keys are renewed.
    fn of(first: u8) -> Option<Self> {
        Some(match first {
            0x08 | 0x38 | 0x50 => Self::ResetByClient,
            0x10 | 0x40 => Self::ResetByServer,
            0x20 => Self::Control,
            0x28 => Self::Ack,
            _ => return None,
        })
    }
}

/// Whether a datagram is a control channel packet.
pub(super) fn is_openvpn(packet: &[u8]) -> bool {
    let Some(opcode) = packet.first().and_then(|first| Opcode::of(*first)) else { return false };
    is_control(packet, opcode, 0)
        || HMAC_BYTES.iter().any(|bytes| is_control(packet, opcode, *bytes))
        || is_encrypted_reset(packet, opcode)
}

/// [`is_openvpn`] for a stream, where a length precedes each packet.
pub(super) fn is_openvpn_stream(segment: &[u8]) -> bool {
    let Some((length, rest)) = segment.split_first_chunk::<2>() else { return false };
    rest.get(..usize::from(u16::from_be_bytes(*length))).is_some_and(is_openvpn)
}

/// Tests for a plain packet, or one with an HMAC of this many bytes.
fn is_control(packet: &[u8], opcode: Opcode, hmac: usize) -> bool {
    let mut at = SESSION + hmac;
    if hmac > 0 {
        if !has_id_and_time(packet, at) {
            return false;
        }
        at += ID_AND_TIME;
    }
    let Some(acks) = packet.get(at).map(|acks| usize::from(*acks)).filter(|acks| *acks <= ACKS_MAX) else {
        return false;
    };
    let is_number = |at: usize| be32_at(packet, at).is_some_and(|number| number <= NUMBER_MAX);
    if !(0..acks).all(|ack| is_number(at + 1 + 4 * ack)) {
        return false;
    }
    at += 1 + 4 * acks + if acks > 0 { 8 } else { 0 };
    if opcode == Opcode::Ack {
        return acks > 0 && at == packet.len();
    }
    let is_first = be32_at(packet, at) == Some(0);
    let rest = packet.get(at + 4..).unwrap_or_default();
    match opcode {
        Opcode::ResetByClient => is_first && acks == 0 && rest.is_empty(),
        Opcode::ResetByServer => is_first && acks == 1 && rest.is_empty(),
        // When a TLS record spans several packets, only the first begins with its header.
        Opcode::Control => is_number(at) && matches!(rest, [0x14..=0x17, 3, 0..=4, ..]),
        Opcode::Ack => false,
    }
}

fn is_encrypted_reset(packet: &[u8], opcode: Opcode) -> bool {
    let head = SESSION + ID_AND_TIME + CRYPT_TAG;
    let behind = packet.len().saturating_sub(head);
    let fits = match (packet.first(), opcode) {
        // The client's wrapped key follows; its last two bytes are its length.
        (Some(0x50), _) => behind > RESET_BYTES[0] + 2,
        (_, Opcode::ResetByClient) => behind == RESET_BYTES[0],
        (_, Opcode::ResetByServer) => behind == RESET_BYTES[1],
        _ => false,
    };
    fits && has_id_and_time(packet, SESSION)
}

/// An identifier of one of the first packets, and a plausible time.
fn has_id_and_time(packet: &[u8], at: usize) -> bool {
    let is_id = |id: u32| (1..=NUMBER_MAX).contains(&id) || (EARLY_ID..=EARLY_ID + NUMBER_MAX).contains(&id);
    be32_at(packet, at).is_some_and(is_id) && be32_at(packet, at + 4).is_some_and(|time| time >= TIME_MIN)
}

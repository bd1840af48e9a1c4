//! ICMP errors through NAT (RFC 5508): valid errors around quoted packets that are right, truncated, altered, or
//! of other sessions, from outside and from inside.
//!
//! An error with right checksums leaves with right ones. An error from outside goes to the host of its session
//! and quotes what that host sent. Nothing of the quoted packet changes except addresses, ports and checksums. No
//! error creates a session.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{Ipv4Addr, SocketAddrV4};
use thalweg_dataplane::nat::testing::{
    INSIDE, OUTSIDE, SECOND_NS, any, checksums, chunk, config, icmp, label,
};
use thalweg_dataplane::nat::{Labeler, NatProtocol, NatStage, PortForward};
use thalweg_wire::checksum::{finish, sum};

const SHARDS: u16 = 4;
const SESSIONS: u8 = 6;

struct Bench {
    labeler: Labeler,
    nat: NatStage,
    now_ns: u64,
}

impl Bench {
    /// The packet after NAT, unless it was dropped.
    fn pass(&mut self, port_in: u16, packet: &[u8], wire_len: u32) -> Option<Vec<u8>> {
        let mut chunk = chunk(&[(port_in, packet, wire_len)], self.now_ns);
        label(&self.labeler, &mut chunk, SHARDS);
        self.nat.run_groups(&mut chunk, 0..1, 1);
        self.nat.run_crossing(&mut chunk, &mut |_, _, _| ());
        chunk.packets()[0].is_alive().then(|| chunk.frame(0).to_vec())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Sessions of all kinds: what the inside host sent, and what left.
fn open_sessions(bench: &mut Bench) -> Vec<(Vec<u8>, Vec<u8>)> {
    let outside = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), 80);
    (0..SESSIONS)
        .map(|n| {
            let protocol = [NatProtocol::Tcp, NatProtocol::Udp, NatProtocol::Icmp][usize::from(n % 3)];
            let inside = SocketAddrV4::new(Ipv4Addr::new(192, 168, 0, 10 + n), 5000 + u16::from(n));
            let sent = any(protocol, inside, outside, 0x02);
            let seen = bench.pass(INSIDE, &sent, sent.len() as u32).expect("there is room for six sessions");
            (sent, seen)
        })
        .collect()
}

/// Adds IPv4 options to a quoted packet and corrects the header's length and checksum.
fn with_options(quote: &mut Vec<u8>, words: usize) {
    if quote.len() < 20 {
        return;
    }
    quote.splice(20..20, vec![1; 4 * words]);
    quote[0] = 0x45 + words as u8;
    let total = (u16::from_be_bytes([quote[2], quote[3]]) + 4 * words as u16).to_be_bytes();
    quote[2..4].copy_from_slice(&total);
    quote[10..12].fill(0);
    let header = finish(sum(&quote[..20 + 4 * words], 0));
    quote[10..12].copy_from_slice(&header.to_be_bytes());
}

/// Swaps addresses and ports, as in a reply. All checksums stay right, because they do not depend on the order of
/// what they add.
fn turn(packet: &mut [u8]) {
    let (source, rest) = packet[12..].split_at_mut(4);
    source.swap_with_slice(&mut rest[..4]);
    if packet[9] != 1 {
        let (source, rest) = packet[20..].split_at_mut(2);
        source.swap_with_slice(&mut rest[..2]);
    }
}

fn alter(quote: &mut Vec<u8>, step: &[u8; 8]) {
    if step[2] & 0x0c == 0x0c {
        with_options(quote, usize::from(step[6] & 7));
    }
    if step[2] & 0x10 != 0 {
        quote.truncate(usize::from(step[3]));
    }
    if step[2] & 0x20 != 0
        && let Some(byte) = quote.get_mut(usize::from(step[4]))
    {
        *byte ^= step[5];
    }
    if step[2] & 0x40 != 0 && quote.len() >= 20 {
        // The sender itself damaged the packet, so the header's checksum is right.
        quote[10..12].fill(0);
        let header = finish(sum(&quote[..20], 0));
        quote[10..12].copy_from_slice(&header.to_be_bytes());
    }
}

fn unchanged_but_for_translation(before: &[u8], after: &[u8]) {
    assert_eq!(before.len(), after.len());
    let quote = 28;
    let header = usize::from(before.get(quote).map_or(0, |b| b & 15)) * 4;
    let l4 = quote + header;
    let protocol = before.get(quote + 9).copied().unwrap_or(0);
    let may_change = |at: usize| {
        let checksum = match protocol {
            6 => 16,
            17 => 6,
            _ => 2,
        };
        (2..4).contains(&(at.wrapping_sub(20))) // the error's own checksum
            || (10..20).contains(&at) // outer checksum and addresses
            || (quote + 10..quote + 20).contains(&at)
            || (l4..l4 + 4).contains(&at) && protocol != 1
            || (l4 + 4..l4 + 6).contains(&at) && protocol == 1
            || (l4 + checksum..l4 + checksum + 2).contains(&at)
    };
    for (at, (a, b)) in before.iter().zip(after).enumerate() {
        assert!(a == b || may_change(at), "byte {at} of {before:02x?} became {after:02x?}");
    }
}

fuzz_target!(|input: &[u8]| {
    let mut config = config(2);
    (config.shards, config.sessions_max, config.port_range) = (SHARDS, 64, 5000..=5127);
    config.forwards = vec![PortForward {
        protocol: NatProtocol::Udp,
        public_address: 1,
        public_port: 53,
        inside_address: [192, 168, 0, 1].into(),
        vrf: 0,
        inside_port: 5353,
        count: 1,
    }];
    let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), NatStage::new(&config)) else {
        panic!("the configuration is valid")
    };
    let mut bench = Bench { labeler, nat, now_ns: SECOND_NS };
    let sessions = open_sessions(&mut bench);
    let opened = bench.nat.counters().sessions_created;
    for step in input.as_chunks::<8>().0 {
        bench.now_ns += u64::from(step[7] >> 4) * SECOND_NS;
        let (sent, seen) = &sessions[usize::from(step[0]) % sessions.len()];
        let from_outside = step[1] & 1 == 0;
        // From outside, about a packet that left; from inside, about one that came in. The other way round, it is
        // about a packet of another session.
        let mut quote = if from_outside { seen.clone() } else { sent.clone() };
        if (step[1] & 2 == 0) != from_outside {
            turn(&mut quote);
        }
        alter(&mut quote, step);
        let kind = [3, 11, 12, 4, 5, 0, 13, step[6]][usize::from(step[1] >> 2 & 7)];
        let to = if from_outside {
            word(seen, 12)
        } else {
            u32::from(Ipv4Addr::new(203, 0, 113, 1 + (step[1] >> 5)))
        };
        let to = if step[1] & 0xe0 == 0xe0 { word(&quote, 12) } else { to };
        let from = if from_outside { u32::from(Ipv4Addr::new(203, 0, 113, 77)) } else { word(sent, 12) };
        let error = icmp(from, to, kind, [0, 0, step[6], step[7]], &quote);
        let snapped = error.len() as u32 + u32::from(step[2] & 1) * 40;
        let valid = checksums(&error).is_ok();
        let Some(out) = bench.pass(if from_outside { OUTSIDE } else { INSIDE }, &error, snapped) else {
            continue;
        };
        if valid && snapped == error.len() as u32 {
            assert!(checksums(&out).is_ok(), "{:?}: was {error:02x?}", checksums(&out));
        }
        if matches!(kind, 3 | 4 | 5 | 11 | 12) {
            unchanged_but_for_translation(&error, &out);
            if from_outside && word(&out, 16) != to {
                assert_eq!(word(&out, 16) >> 16, 0xc0a8, "to a host inside: {out:02x?}");
                assert_eq!(word(&out, 16), word(&out, 40), "about a packet of that host: {out:02x?}");
            }
        }
    }
    let echoes = input.as_chunks::<8>().0.iter().any(|s| matches!(s[1] >> 2 & 7, 5 | 7));
    assert!(echoes || bench.nat.counters().sessions_created == opened, "an error opened a session");
});

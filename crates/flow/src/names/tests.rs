//! However a message is cut, the name is the same, or it is counted that there is none.

use super::*;
use crate::key::{Key, NAME_LOOKS_MAX};
use proptest::prelude::*;
use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use thalweg_wire::testing::{client_hello, in_records};

const ALL: NameOptions = NameOptions { tls: true, quic: true, http: true, dns: true, ja4: true };

/// A flow of a shard.
struct Flow {
    looks: Looks,
    key: Key<3>,
    names: FlowNames,
}

impl Flow {
    fn new() -> Self {
        Self { looks: Looks::new(ALL), key: Key([0; 3]), names: FlowNames::default() }
    }

    fn see(&mut self, payload: &Payload<'_>) {
        self.see_in(7, payload);
    }

    fn see_in(&mut self, slot: u32, payload: &Payload<'_>) {
        if self.key.wants_names() {
            let next = self.looks.look(slot, self.key.name_notes(), payload, &mut self.names);
            self.key.note_names(next, self.names != FlowNames::default());
        }
    }

    fn texts(&self) -> [String; 3] {
        [self.names.server, self.names.alpn, self.names.ja4].map(|name| name.text().into_owned())
    }
}

fn segment(sequence: u32, bytes: &[u8]) -> Payload<'_> {
    Payload { protocol: TCP, ports: [50_000, 443], sequence, backward: false, bytes }
}

fn datagram(port: u16, bytes: &[u8]) -> Payload<'_> {
    Payload { protocol: UDP, ports: [50_000, port], sequence: 0, backward: false, bytes }
}

/// A client's Initial packet of version 1 with these CRYPTO frames; the number has four bytes.
fn seal(destination: &[u8], number: u32, frames: &[(u64, &[u8])]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (place, content) in frames {
        let varint = |number: u64| (number as u16 | 0x4000).to_be_bytes();
        payload.push(6);
        payload.extend(varint(*place));
        payload.extend(varint(content.len() as u64));
        payload.extend_from_slice(content);
    }
    payload.resize(payload.len().max(1100), 0);
    let mut packet = vec![0xc3, 0, 0, 0, 1, destination.len() as u8];
    packet.extend_from_slice(destination);
    packet.extend([0, 0]);
    packet.extend(((payload.len() + 4 + 16) as u16 | 0x4000).to_be_bytes());
    let number_at = packet.len();
    packet.extend(number.to_be_bytes());
    // The keys follow from a view of the packet, as when it is opened.
    let whole = [&packet[..], &vec![0; payload.len() + 16]].concat();
    let initial = InitialView::new(&whole).expect("a header");
    let (key, mut nonce, header_key) = crypto::client_keys(&initial, destination).expect("keys");
    nonce[8..].iter_mut().zip(number.to_be_bytes()).for_each(|(nonce, number)| *nonce ^= number);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("a key"));
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(&packet), &mut payload).expect("room");
    let sample = &payload[..16];
    let mask =
        HeaderProtectionKey::new(&AES_128, &header_key).expect("a key").new_mask(sample).expect("a mask");
    packet[0] ^= mask[0] & 0x0f;
    packet[number_at..].iter_mut().zip(&mask[1..]).for_each(|(byte, mask)| *byte ^= mask);
    packet.extend(payload);
    packet
}

const OF_TLS: [&str; 3] = ["www.example.org", "h2,http/1.1", "t13d1516h2_8daaf6152771_e5627efa2ab1"];

fn hello() -> Vec<u8> {
    client_hello(Some("WWW.example.org"), &["h2", "http/1.1"])
}

proptest! {
    /// Segments cut anywhere, in any order behind the first, some of them twice.
    #[test]
    fn a_name_in_segments_is_that_of_the_whole(
        record_bytes in 1usize..800,
        mut cuts in prop::collection::vec(0usize..1000, 0..4),
        order in any::<u64>(),
        first in any::<u32>(),
        again in any::<bool>(),
    ) {
        let stream = in_records(&hello(), record_bytes);
        cuts.iter_mut().for_each(|cut| *cut %= stream.len());
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts: Vec<(usize, &[u8])> =
            cuts.windows(2).map(|cut| (cut[0], &stream[cut[0]..cut[1]])).collect();
        parts[1..].sort_by_key(|(start, _)| thalweg_base::mix64(order ^ *start as u64));
        if again {
            parts.insert(1, parts[0]);
        }
        let mut flow = Flow::new();
        for (start, bytes) in &parts {
            flow.see(&segment(first.wrapping_add(*start as u32), bytes));
        }
        if parts.len() <= usize::from(NAME_LOOKS_MAX) {
            prop_assert_eq!((flow.texts(), flow.looks.counts.given_up), (OF_TLS.map(str::to_owned), 0));
            prop_assert!(!flow.key.wants_names());
        } else {
            prop_assert!(flow.texts() == OF_TLS.map(str::to_owned) || flow.looks.counts.given_up == 1);
        }
        prop_assert!(flow.looks.parts.is_empty());
    }

    /// CRYPTO frames cut anywhere, spread over packets and datagrams in any order.
    #[test]
    fn a_name_in_frames_is_that_of_the_whole(
        cuts in prop::collection::vec(1usize..700, 0..12), order in any::<u64>(), datagrams in 1usize..4,
    ) {
        let message = hello();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % message.len()).collect();
        cuts.extend([0, message.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut frames: Vec<(u64, &[u8])> =
            cuts.windows(2).map(|cut| (cut[0] as u64, &message[cut[0]..cut[1]])).collect();
        frames.sort_by_key(|(start, _)| thalweg_base::mix64(order ^ start));
        let mut flow = Flow::new();
        for (number, frames) in frames.chunks(frames.len().div_ceil(datagrams)).enumerate() {
            let packet = seal(b"destinat", number as u32, frames);
            // What follows the packet is none.
            flow.see(&datagram(443, &[&packet[..], &[0; 30]].concat()));
        }
        let [server, alpn, ja4] = flow.texts();
        prop_assert_eq!([server.as_str(), alpn.as_str()], [OF_TLS[0], OF_TLS[1]]);
        prop_assert_eq!(ja4, "q13d1516h2_8daaf6152771_e5627efa2ab1");
        prop_assert_eq!(flow.looks.counts.given_up, 0);
    }

    /// No payload is too strange, and memory has its limit.
    #[test]
    fn anything_may_come(
        payloads in prop::collection::vec((any::<bool>(), 0u32..10_000, prop::collection::vec(any::<u8>(), 1..400)), 0..200),
    ) {
        let mut flow = Flow::new();
        for (slot, (is_tcp, sequence, mut bytes)) in (0..).zip(payloads) {
            if is_tcp {
                bytes[0] = 0x16;
            }
            flow.key = Key([0; 3]);
            let payload = if is_tcp { segment(sequence, &bytes) } else { datagram(53, &bytes) };
            flow.see_in(slot % 100, &payload);
        }
        prop_assert!(flow.looks.parts.len() <= PARTS_MAX);
        prop_assert!(flow.looks.memory_bytes() <= PARTS_MAX * 2 * assembly::BYTES_MAX);
    }
}

#[test]
fn what_does_not_become_whole_is_counted() {
    let stream = in_records(&hello(), 5000);
    let mut flow = Flow::new();
    flow.see(&segment(100, &stream[..300]));
    assert_eq!(flow.texts()[0], "www.example.org", "its beginning shows it");
    // A gap, and nothing that fills it.
    (0..3).for_each(|n| flow.see(&segment(500 + n, &stream[400..410])));
    assert_eq!((flow.looks.counts.given_up, flow.key.wants_names()), (1, false));
    let mut flow = Flow::new();
    flow.see(&segment(0, &stream[..300]));
    flow.see(&segment(1 << 20, b"far away"));
    assert_eq!((flow.looks.counts.given_up, flow.looks.parts.len()), (1, 0));
    // The first of too many gives way.
    let mut flow = Flow::new();
    for slot in 0..=PARTS_MAX as u32 {
        flow.key = Key([0; 3]);
        flow.see_in(slot, &segment(0, &stream[..300]));
    }
    assert_eq!((flow.looks.counts.given_up, flow.looks.parts.len()), (1, PARTS_MAX));
    flow.see_in(0, &segment(300, &stream[300..]));
    assert_eq!((flow.looks.counts.given_up, flow.key.wants_names()), (1, false), "counted once");
}

#[test]
fn a_server_in_a_biflow_does_not_disturb() {
    let stream = in_records(&hello(), 5000);
    let mut flow = Flow::new();
    flow.see(&segment(100, &stream[..300]));
    flow.see(&Payload { backward: true, ..segment(400, b"\x16\x03\x03\0\x02ab") });
    flow.see(&segment(400, &stream[300..]));
    assert_eq!(flow.texts(), OF_TLS);
}

#[test]
fn a_request_may_be_cut_before_its_host() {
    let request = b"GET / HTTP/1.1\r\nUser-Agent: x\r\nHost: Example.org:8080\r\n\r\n";
    for cut in 1..request.len() {
        let mut flow = Flow::new();
        flow.see(&segment(1, &request[..cut]));
        flow.see(&segment(1 + cut as u32, &request[cut..]));
        assert_eq!(
            (flow.texts()[0].as_str(), flow.looks.counts.given_up),
            ("example.org", 0),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_retry_changes_the_keys() {
    let message = hello();
    let (one, other) = message.split_at(200);
    let mut flow = Flow::new();
    flow.see(&datagram(443, &seal(b"clients", 0, &[(0, one)])));
    // After a Retry the hello begins anew, with the identifier that the server chose.
    flow.see(&datagram(443, &seal(b"servers", 1, &[(0, one)])));
    flow.see(&datagram(443, &seal(b"servers", 2, &[(200, other)])));
    assert_eq!((flow.texts()[0].as_str(), flow.looks.counts.given_up), ("www.example.org", 0));
}

#[test]
fn a_question_has_the_answers_that_belong_to_it() {
    let query =
        |name: &[u8], id: u8| [&[0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 1, 0, 1]].concat();
    let response = |name: &[u8], id: u8, code: u8| {
        let answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
        [&[0, id, 0x81, code, 0, 1, 0, 2, 0, 0, 0, 0][..], name, &[0, 1, 0, 1], answer, answer].concat()
    };
    let (one, other) = (b"\x03One\x04test\0", b"\x05other\x04test\0");
    let mut flow = Flow::new();
    flow.see(&datagram(53, &query(one, 1)));
    flow.see(&datagram(53, &query(other, 2)));
    flow.see(&datagram(53, &response(other, 2, 0)));
    assert_eq!((flow.names.dns_answers, flow.names.dns_code), (Name::NONE, None));
    flow.see(&datagram(53, &response(one, 1, 3)));
    assert_eq!(flow.names.dns_question.text(), "one.test");
    assert_eq!(flow.names.dns_answers.text(), "192.0.2.1,192.0.2.1");
    assert_eq!((flow.names.dns_type, flow.names.dns_code), (1, Some(3)));
    let mut flow = Flow::new();
    let in_tcp = [&[0, 40][..], &query(b"\0", 3)].concat();
    flow.see(&Payload { ports: [53, 50_000], ..segment(1, &in_tcp) });
    assert_eq!(flow.names.dns_question.text(), ".", "the root");
}

//! Runs the program in an interpreter and compares it with the router's own code on the same packets.

use std::collections::HashMap;
use std::net::SocketAddr;

use proptest::prelude::*;
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::{MacAddr, checksum, ip_protocol, testing};

use super::super::assembler::interpreter::{End, Machine, Values};
use super::super::program::program;
use super::*;

mod ingress;

const FLOWS_V4: i32 = 11;
const FLOWS_V6: i32 = 14;
const STATE: i32 = 12;
const COUNTS: i32 = 13;
const NOTES: i32 = 15;
/// The counter of lost frames, behind those of two ports.
const LOST: u32 = 2;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OUT_MACS: [u8; 12] = [2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 0, 2];
const MTU: u32 = 1500;

/// The fields of a packet.
#[derive(Clone, Debug)]
struct Made {
    source: [u8; 4],
    destination: [u8; 4],
    ports: [u16; 2],
    is_tcp: bool,
    tos: u8,
    ttl: u8,
    flags: u8,
    payload: Vec<u8>,
    padding: usize,
    /// UDP without a checksum, or a checksum left to hardware.
    checksum: Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    Right,
    None,
    Unfinished,
}

impl Made {
    fn frame(&self) -> Vec<u8> {
        let from = SocketAddr::from((self.source, self.ports[0]));
        let to = SocketAddr::from((self.destination, self.ports[1]));
        let protocol = if self.is_tcp { ip_protocol::TCP } else { ip_protocol::UDP };
        let (mut segment, checksum_at) = match self.is_tcp {
            true => (testing::tcp_segment(from, to, self.flags, [0; 2], &self.payload), 16),
            false => (testing::udp_segment(from, to, &self.payload), 6),
        };
        let left = match self.checksum {
            Checksum::Right => None,
            Checksum::None => Some(0),
            Checksum::Unfinished => {
                Some(checksum::fold(checksum::pseudo_sum(from.ip(), to.ip(), protocol, segment.len())))
            }
        };
        if let Some(left) = left {
            segment[checksum_at..checksum_at + 2].copy_from_slice(&left.to_be_bytes());
        }
        let header = Ipv4Repr {
            ttl: self.ttl,
            traffic_class: self.tos,
            identification: 7,
            flags_and_offset: 0x4000,
            ..Ipv4Repr::new(self.source.into(), self.destination.into(), protocol, segment.len())
        };
        let mut frame = [&MAC.0[..], &[2, 0, 0, 0, 7, 7], &[8, 0], &testing::ipv4(header, &segment)].concat();
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    /// The packet that goes out for it: with another source if it is translated.
    fn forwarded(&self, translated: Option<([u8; 4], u16)>) -> Vec<u8> {
        let mut out = Self { ttl: self.ttl - 1, ..self.clone() };
        if let Some((source, port)) = translated {
            out.source = source;
            out.ports[0] = port;
        }
        let mut frame = out.frame();
        frame[..12].copy_from_slice(&OUT_MACS);
        frame
    }
}

fn made() -> impl Strategy<Value = Made> {
    let ends = (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<[u16; 2]>(), any::<bool>(), any::<u8>());
    let rest = (2u8..=255, 0u8..=255, prop::collection::vec(any::<u8>(), 0..40), 0usize..20, 0u8..10);
    (ends, rest).prop_map(
        |((source, destination, ports, is_tcp, tos), (ttl, flags, payload, padding, checksum))| {
            let checksum = match checksum {
                0 if !is_tcp => Checksum::None,
                1 => Checksum::Unfinished,
                _ => Checksum::Right,
            };
            let flags = flags & !7;
            Made { source, destination, ports, is_tcp, tos, ttl, flags, payload, padding, checksum }
        },
    )
}

fn egress() -> Egress {
    Egress { port: 1, interface: 5, mtu: MTU }
}

/// A machine with the port's state, and the flow of `frame` installed as forwarded to `after`.
fn machine(frame: &[u8], installed: Option<(&FlowKey, &FlowAction)>) -> Machine {
    let state = State { generation: 3, epoch: 100, mac: MAC };
    let empty = |key: u32, value: u32| Values::from([(vec![0xff; key as usize], vec![0; value as usize])]);
    let mut flows_v4 = empty(KEY_V4_BYTES, VALUE_V4_BYTES);
    let mut flows_v6 = empty(KEY_V6_BYTES, VALUE_V6_BYTES);
    if let Some((key, action)) = installed {
        let mut value = action.value(3, 100).to_vec();
        match key {
            FlowKey::V4(bytes) => flows_v4.insert(bytes.to_vec(), value),
            FlowKey::V6(bytes) => {
                value.truncate(VALUE_V6_BYTES as usize);
                flows_v6.insert(bytes.to_vec(), value)
            }
        };
    }
    let counts = (0..=LOST).map(|port| (port.to_ne_bytes().to_vec(), vec![0; 16])).collect();
    let states = HashMap::from([(vec![0; 4], state.bytes().to_vec())]);
    let notes = HashMap::from([(vec![0; 4], vec![0; NOTE_BYTES as usize])]);
    let maps = HashMap::from([
        (FLOWS_V4, flows_v4),
        (FLOWS_V6, flows_v6),
        (STATE, states),
        (COUNTS, counts),
        (NOTES, notes),
    ]);
    Machine { frame: frame.to_vec(), maps, ..Machine::default() }
}

fn slots() -> Vec<super::super::assembler::Slot> {
    slots_that_need(false)
}

fn slots_that_need(needs_finished_checksums: bool) -> Vec<super::super::assembler::Slot> {
    program(7, Some(&maps(needs_finished_checksums)))
}

fn maps(needs_finished_checksums: bool) -> OffloadMaps {
    OffloadMaps {
        flows_v4: FLOWS_V4,
        flows_v6: FLOWS_V6,
        state: STATE,
        counts: COUNTS,
        lost_at: 2,
        notes: NOTES,
        needs_finished_checksums,
    }
}

const UP: End = End::ToSocket { map: 7, queue: 0 };

/// A packet without a key goes to the router unchanged; a packet with one is forwarded.
fn program_and_router_agree(frame: &[u8]) -> Result<(), TestCaseError> {
    let key = FlowKey::of_frame(frame);
    let installed = key.map(|key| {
        let mut after = frame.to_vec();
        after[..12].copy_from_slice(&OUT_MACS);
        (key, FlowAction::between(&key, &after, egress()).unwrap())
    });
    let mut machine = machine(frame, installed.as_ref().map(|(key, action)| (key, action)));
    // The program must find no flow for frames without a key, even if every possible key is installed.
    let end = machine.run(&slots());
    prop_assert_eq!(end == UP, key.is_none(), "{:?}", key);
    if key.is_none() {
        prop_assert_eq!(&machine.frame, frame);
    }
    Ok(())
}

proptest! {
    #[test]
    fn does_to_later_packets_what_was_done_to_the_first(
        first in made(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        ttl in 2u8..=255,
        translated in prop::option::of((any::<[u8; 4]>(), any::<u16>())),
    ) {
        let key = FlowKey::of_frame(&first.frame()).unwrap();
        let action = FlowAction::between(&key, &first.forwarded(translated), egress()).unwrap();
        let later = Made { payload, ttl, ..first };
        let frame = later.frame();
        prop_assert_eq!(FlowKey::of_frame(&frame), Some(key));
        let mut machine = machine(&frame, Some((&key, &action)));
        let end = machine.run(&slots());
        let is_translated = translated.is_some_and(|ends| ends != (later.source, later.ports[0]));
        // A finished checksum may look unfinished too.
        let at = if later.is_tcp { 50 } else { 40 };
        let [from, to] = [later.source, later.destination].map(u32::from_be_bytes);
        let length = (frame.len() - later.padding - 34) as u16;
        let unfinished = checksum::fold(checksum::pseudo_ipv4(from, to, frame[23], length));
        if is_translated && frame[at..at + 2] == unfinished.to_be_bytes() {
            prop_assert_eq!(end, UP);
            prop_assert_eq!(machine.frame, frame);
            return Ok(());
        }
        prop_assert_eq!(end, End::Redirected { interface: 5 });
        let mut expected = later.forwarded(translated);
        if !is_translated {
            // The frame is unchanged in any case.
            expected[at..at + 2].copy_from_slice(&frame[at..at + 2]);
        }
        prop_assert_eq!(&machine.frame, &expected);
        let count = &machine.maps[&COUNTS][&1u32.to_ne_bytes().to_vec()];
        let bytes = (frame.len() - later.padding) as u64;
        prop_assert_eq!(count, &[1u64.to_ne_bytes(), bytes.to_ne_bytes()].concat());
    }

    #[test]
    fn knows_what_the_router_knows(frame in made(), at in 0usize..60, value: u8, cut in 0usize..80) {
        // The program and the router agree about which frames have a key, whatever is wrong with the frame.
        let mut frame = frame.frame();
        let last = frame.len() - 1;
        frame[at.min(last)] = value;
        frame.truncate(frame.len().saturating_sub(cut.saturating_sub(60)));
        frame[..6].copy_from_slice(&MAC.0);
        program_and_router_agree(&frame)?;
    }
}

fn plain() -> Made {
    Made {
        source: [10, 0, 0, 1],
        destination: [192, 0, 2, 1],
        ports: [4000, 53],
        is_tcp: false,
        tos: 0,
        ttl: 64,
        flags: 0,
        payload: vec![1, 2, 3],
        padding: 0,
        checksum: Checksum::Right,
    }
}

#[test]
fn what_is_not_leased_goes_up() {
    let frame = plain().frame();
    let key = FlowKey::of_frame(&frame).unwrap();
    let action = FlowAction::between(&key, &plain().forwarded(None), egress()).unwrap();
    let end = |change: &dyn Fn(&mut Machine)| {
        let mut machine = machine(&frame, Some((&key, &action)));
        change(&mut machine);
        machine.run(&slots())
    };
    let set_state = |state: State| {
        move |machine: &mut Machine| {
            machine.maps.get_mut(&STATE).unwrap().insert(vec![0; 4], state.bytes().to_vec());
        }
    };
    let now = State { generation: 3, epoch: 100, mac: MAC };
    assert_eq!(end(&|_| {}), End::Redirected { interface: 5 });
    assert_eq!(end(&set_state(State { epoch: 101, ..now })), UP);
    assert_eq!(end(&set_state(State { epoch: 99, ..now })), End::Redirected { interface: 5 });
    assert_eq!(end(&set_state(State { generation: 4, ..now })), UP);
    assert_eq!(end(&set_state(State { mac: MacAddr([2, 0, 0, 0, 0, 3]), ..now })), UP);
    assert_eq!(end(&set_state(State { mac: MacAddr([6, 0, 0, 0, 0, 1]), ..now })), UP);
    assert_eq!(end(&|machine| machine.maps.get_mut(&FLOWS_V4).unwrap().retain(|key, _| key[0] == 0xff)), UP);
    // A frame to a group of neighbors, whatever it carries (RFC 1812 5.3.4).
    assert_eq!(end(&|machine| machine.frame[0] |= 1), UP);
    assert_eq!(end(&|machine| machine.frame[..6].fill(0xff)), UP);
    // Longer than the next link allows.
    let long = Made { payload: vec![0; MTU as usize - 27], ..plain() }.frame();
    assert_eq!(end(&|machine| machine.frame = long.clone()), UP);
    let fits = Made { payload: vec![0; MTU as usize - 28], ..plain() }.frame();
    assert_eq!(end(&|machine| machine.frame = fits.clone()), End::Redirected { interface: 5 });
}

#[test]
fn what_has_no_flow() {
    let of = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = plain().frame();
        change(&mut frame);
        FlowKey::of_frame(&frame)
    };
    assert!(of(&|_| {}).is_some());
    assert!(of(&|frame| frame[24] ^= 1).is_none());
    assert!(of(&|frame| frame.truncate(44)).is_none());
    for flags in [1, 2, 4, 0x12] {
        assert!(FlowKey::of_frame(&Made { is_tcp: true, flags, ..plain() }.frame()).is_none());
    }
    assert!(FlowKey::of_frame(&Made { is_tcp: true, flags: 0x10, ..plain() }.frame()).is_some());
    assert!(FlowKey::of_frame(&Made { ttl: 1, ..plain() }.frame()).is_none());
}

#[test]
fn what_cannot_be_done_again_is_no_action() {
    let key = FlowKey::of_frame(&plain().frame()).unwrap();
    let after = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = plain().forwarded(None);
        change(&mut frame);
        FlowAction::between(&key, &frame, egress())
    };
    assert!(after(&|_| {}).is_some());
    // Another DS field, a tag, another protocol.
    assert!(after(&|frame| frame[15] = 0x2e).is_none());
    assert!(after(&|frame| frame[12] = 0x81).is_none());
    assert!(after(&|frame| frame[23] = 6).is_none());
    assert!(after(&|frame| frame.truncate(30)).is_none());
}

/// The fields of an IPv6 packet.
#[derive(Clone, Debug)]
struct MadeV6 {
    ends: [u8; 32],
    ports: [u8; 4],
    is_tcp: bool,
    class_and_label: u32,
    hop_limit: u8,
    flags: u8,
    payload: Vec<u8>,
    padding: usize,
}

impl MadeV6 {
    fn frame(&self) -> Vec<u8> {
        let mut segment = vec![0x5a; if self.is_tcp { 20 } else { 8 }];
        segment[..4].copy_from_slice(&self.ports);
        if self.is_tcp {
            segment[13] = self.flags;
        }
        segment.extend(&self.payload);
        let first = (0x6000_0000 | self.class_and_label & 0xfff_ffff).to_be_bytes();
        let length = (segment.len() as u16).to_be_bytes();
        let rest = [length[0], length[1], if self.is_tcp { 6 } else { 17 }, self.hop_limit];
        let ip = [&first[..], &rest, &self.ends, &segment].concat();
        let mut frame = [&MAC.0[..], &[2, 0, 0, 0, 7, 7, 0x86, 0xdd], &ip].concat();
        frame.resize(frame.len() + self.padding, 0);
        frame
    }

    fn forwarded(&self) -> Vec<u8> {
        let mut frame = self.frame();
        frame[..12].copy_from_slice(&OUT_MACS);
        frame[21] -= 1;
        frame
    }
}

fn made_v6() -> impl Strategy<Value = MadeV6> {
    let who = (any::<[[u8; 16]; 2]>(), any::<[u8; 4]>(), any::<bool>(), any::<u32>());
    let rest = (2u8..=255, any::<u8>(), prop::collection::vec(any::<u8>(), 0..40), 0usize..20);
    (who, rest).prop_map(|((ends, ports, is_tcp, class_and_label), (hop_limit, flags, payload, padding))| {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&ends[0]);
        both[16..].copy_from_slice(&ends[1]);
        let flags = flags & !7;
        MadeV6 { ends: both, ports, is_tcp, class_and_label, hop_limit, flags, payload, padding }
    })
}

proptest! {
    #[test]
    fn does_the_same_to_ipv6(
        first in made_v6(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        hop_limit in 2u8..=255,
        label in 0u32..0x10_0000,
    ) {
        let key = FlowKey::of_frame(&first.frame()).unwrap();
        let action = FlowAction::between(&key, &first.forwarded(), egress()).unwrap();
        // Another flow label is the same flow.
        let class_and_label = first.class_and_label & !0xf_ffff | label;
        let later = MadeV6 { payload, hop_limit, class_and_label, ..first };
        let frame = later.frame();
        prop_assert_eq!(FlowKey::of_frame(&frame), Some(key));
        let mut machine = machine(&frame, Some((&key, &action)));
        prop_assert_eq!(machine.run(&slots()), End::Redirected { interface: 5 });
        prop_assert_eq!(&machine.frame, &later.forwarded());
        let count = &machine.maps[&COUNTS][&1u32.to_ne_bytes().to_vec()];
        let bytes = (frame.len() - later.padding) as u64;
        prop_assert_eq!(count, &[1u64.to_ne_bytes(), bytes.to_ne_bytes()].concat());
    }

    #[test]
    fn knows_of_ipv6_what_the_router_knows(frame in made_v6(), at in 0usize..80, value: u8, cut in 0usize..100) {
        let mut frame = frame.frame();
        let last = frame.len() - 1;
        frame[at.min(last)] = value;
        frame.truncate(frame.len().saturating_sub(cut.saturating_sub(70)));
        frame[..6].copy_from_slice(&MAC.0);
        program_and_router_agree(&frame)?;
    }
}

proptest! {
    /// Where redirection loses the kernel's mark, unfinished packets go to the router, and all others are forwarded
    /// as usual.
    #[test]
    fn unfinished_checksums_go_up_where_they_would_be_lost(v4 in made(), v6 in made_v6(), is_unfinished: bool) {
        let key = FlowKey::of_frame(&v4.frame()).unwrap();
        let action = FlowAction::between(&key, &v4.forwarded(None), egress()).unwrap();
        let frame = v4.frame();
        let at = if v4.is_tcp { 50 } else { 40 };
        let [from, to] = [v4.source, v4.destination].map(u32::from_be_bytes);
        let length = (frame.len() - v4.padding - 34) as u16;
        let pseudo = checksum::fold(checksum::pseudo_ipv4(from, to, frame[23], length)).to_be_bytes();
        let is_left = frame[at..at + 2] == pseudo && (v4.is_tcp || pseudo != [0, 0]);
        let mut machine_v4 = machine(&frame, Some((&key, &action)));
        let end = machine_v4.run(&slots_that_need(true));
        prop_assert_eq!(end, if is_left { UP } else { End::Redirected { interface: 5 } });
        prop_assert_eq!(machine_v4.frame, if is_left { frame } else { v4.forwarded(None) });

        let mut frame = v6.frame();
        let length = (frame.len() - v6.padding - 54) as u32;
        let mut pseudo = frame[22..54].to_vec();
        pseudo.extend(length.to_be_bytes());
        pseudo.extend([0, 0, 0, frame[20]]);
        let pseudo = checksum::fold(checksum::sum(&pseudo, 0)).to_be_bytes();
        let at = if v6.is_tcp { 70 } else { 60 };
        if is_unfinished {
            frame[at..at + 2].copy_from_slice(&pseudo);
        }
        let is_left = frame[at..at + 2] == pseudo && (v6.is_tcp || pseudo != [0, 0]);
        let mut after = frame.clone();
        after[..12].copy_from_slice(&OUT_MACS);
        after[21] -= 1;
        let key = FlowKey::of_frame(&frame).unwrap();
        let action = FlowAction::between(&key, &after, egress()).unwrap();
        let mut machine_v6 = machine(&frame, Some((&key, &action)));
        let end = machine_v6.run(&slots_that_need(true));
        prop_assert_eq!(end, if is_left { UP } else { End::Redirected { interface: 5 } });
        prop_assert_eq!(machine_v6.frame, if is_left { frame } else { after });
    }
}

#[test]
fn what_changes_an_ipv6_packet_is_no_action() {
    let made = MadeV6 {
        ends: [0x20; 32],
        ports: [1, 2, 3, 4],
        is_tcp: false,
        class_and_label: 0,
        hop_limit: 64,
        flags: 0,
        payload: vec![1, 2, 3],
        padding: 0,
    };
    let key = FlowKey::of_frame(&made.frame()).unwrap();
    let after = |at: usize, value: u8| {
        let mut frame = made.forwarded();
        frame[at] = value;
        FlowAction::between(&key, &frame, egress())
    };
    assert!(after(0, 2).is_some());
    // A tag, the DS field, the protocol, an address, a port.
    for (at, value) in [(12, 0x81), (15, 0xb0), (20, 6), (22, 0x21), (57, 9)] {
        assert!(after(at, value).is_none(), "{at}");
    }
    // Longer than the next link allows, by one byte.
    let action = FlowAction::between(&key, &made.forwarded(), egress()).unwrap();
    for (bytes, is_forwarded) in [(MTU as usize - 48, true), (MTU as usize - 47, false)] {
        let long = MadeV6 { payload: vec![0; bytes], ..made.clone() }.frame();
        let end = machine(&long, Some((&key, &action))).run(&slots());
        assert_eq!(end == End::Redirected { interface: 5 }, is_forwarded, "{bytes}");
    }
}

#[test]
fn leases_end_together_and_not_late() {
    for now in 1000..1300 {
        let end = last_epoch(now, 300);
        assert!((now + 250..=now + 300).contains(&end), "{now}: {end}");
        assert_eq!(end % 50, 0);
        assert_eq!(last_epoch(now, 0), now);
        assert_eq!(last_epoch(now, 7), now + 7);
    }
}

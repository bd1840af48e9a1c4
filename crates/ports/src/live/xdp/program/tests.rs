//! Decodes the program to text, and runs it in an interpreter against a reference that reads frames the plain way.

use super::super::assembler::code;
use super::super::assembler::interpreter::{End, Machine};
use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn parts(slot: Slot) -> (u8, u8) {
    let (low, high) = (slot.registers & 15, slot.registers >> 4);
    if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
}

/// One instruction a line, as the head of the module writes them.
fn text(slots: &[Slot]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(&slot) = slots.get(at) {
        let (d, s) = parts(slot);
        let (i, o) = (slot.immediate, slot.offset);
        let to = (at as isize + 1 + isize::from(o)) as usize;
        lines.push(match slot.code {
            code::LOAD_IMMEDIATE_64 => {
                assert_eq!((s, slots[at + 1].code), (code::IS_MAP, 0));
                format!("r{d} = map {i}")
            }
            0x71 => format!("r{d} = u8[r{s} + {o}]"),
            0x69 => format!("r{d} = u16[r{s} + {o}]"),
            0x61 => format!("r{d} = u32[r{s} + {o}]"),
            code::MOVE => format!("r{d} = {i}"),
            code::MOVE_REGISTER => format!("r{d} = r{s}"),
            code::ADD => format!("r{d} += {i}"),
            code::AND => format!("r{d} &= {i}"),
            code::JUMP => format!("goto {to}"),
            code::JUMP_IF_EQUAL_32 => format!("if r{d} == {:#x} goto {to}", i as u32),
            code::JUMP_UNLESS_EQUAL_32 => format!("if r{d} != {:#x} goto {to}", i as u32),
            code::JUMP_IF_GREATER_REGISTER => format!("if r{d} > r{s} goto {to}"),
            code::CALL => format!("call {i}"),
            code::EXIT => "exit".into(),
            code => panic!("unknown code {code:#x}"),
        });
        at += if slot.code == code::LOAD_IMMEDIATE_64 { 2 } else { 1 };
    }
    lines
}

/// What should happen, without registers.
fn is_left(leave: &LeaveToKernel, frame: &[u8]) -> bool {
    if *leave == LeaveToKernel::None {
        return false;
    }
    if frame.len() < 14 {
        return true;
    }
    let to: &[IpAddr] = if let LeaveToKernel::NonIpAndTo(to) = leave { to } else { &[] };
    if matches!(leave, LeaveToKernel::NonIpAndTo(_)) && frame[0] & 1 == 1 {
        return true;
    }
    let (mut kind, mut rest) = (&frame[12..14], &frame[14..]);
    for _ in 0..2 {
        if kind == [0x81, 0] || kind == [0x88, 0xa8] {
            if rest.len() < 4 {
                return true;
            }
            (kind, rest) = (&rest[2..4], &rest[4..]);
        }
    }
    match kind {
        [8, 0] if rest.len() < 20 => false,
        [8, 0] => to.contains(&IpAddr::V4(Ipv4Addr::new(rest[16], rest[17], rest[18], rest[19]))),
        [0x86, 0xdd] if rest.len() < 40 => false,
        [0x86, 0xdd] => {
            let bytes: [u8; 16] = std::array::from_fn(|i| rest[24 + i]);
            to.contains(&IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => true,
    }
}

#[test]
fn the_plain_program() {
    let expected = ["r6 = r1", "r2 = u32[r6 + 16]", "r1 = map 7", "r3 = 2", "call 51", "exit"];
    assert_eq!(text(&program(7, &LeaveToKernel::None, None)), expected);
}

#[test]
fn the_program_that_leaves_what_is_not_ip() {
    // Jumps count slots; the map takes two.
    let expected = [
        "r6 = r1",
        "r2 = u32[r6 + 0]",
        "r3 = u32[r6 + 4]",
        "r4 = r2",
        "r4 += 14",
        "if r4 > r3 goto 42",
        "r5 = u16[r2 + 12]",
        "r2 += 14",
        "if r5 == 0x81 goto 10",
        "if r5 != 0xa888 goto 15",
        "r4 = r2",
        "r4 += 4",
        "if r4 > r3 goto 42",
        "r5 = u16[r2 + 2]",
        "r2 += 4",
        "if r5 == 0x81 goto 17",
        "if r5 != 0xa888 goto 22",
        "r4 = r2",
        "r4 += 4",
        "if r4 > r3 goto 42",
        "r5 = u16[r2 + 2]",
        "r2 += 4",
        "if r5 == 0xdd86 goto 29",
        "if r5 != 0x8 goto 42",
    ];
    let lines = text(&program(7, &LeaveToKernel::NonIp, None));
    let lines: Vec<&str> = lines.iter().map(|line| line.as_str()).collect();
    let pass = program(7, &LeaveToKernel::NonIp, None).len() - 2;
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(*line, expected.replace("goto 42", &format!("goto {pass}")));
    }
    assert_eq!(lines[lines.len() - 2..], ["r0 = 2", "exit"]);
}

#[test]
fn the_largest_program_is_within_reach_of_its_jumps() {
    let address = |i: usize| IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | i as u128));
    let addresses: Vec<IpAddr> = (0..ADDRESSES_MAX).map(address).collect();
    let slots = program(7, &LeaveToKernel::NonIpAndTo(addresses), None);
    assert!(slots.len() < 4096, "{}", slots.len());
}

fn address() -> impl Strategy<Value = IpAddr> {
    // Few addresses, with the sign bits set, so that frames hit them.
    prop_oneof![
        (0u8..4, 0u8..3).prop_map(|(a, b)| IpAddr::V4(Ipv4Addr::new(a, 0x90, 0, 0xf0 + b))),
        (0u8..3, 0u8..3).prop_map(|(a, b)| {
            let mut bytes = [0xfe; 16];
            (bytes[0], bytes[15]) = (a, b);
            IpAddr::V6(Ipv6Addr::from(bytes))
        }),
    ]
}

fn leave() -> impl Strategy<Value = LeaveToKernel> {
    prop_oneof![
        Just(LeaveToKernel::None),
        Just(LeaveToKernel::NonIp),
        prop::collection::vec(address(), 0..6).prop_map(LeaveToKernel::NonIpAndTo),
    ]
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop_oneof![Just([0x81u8, 0, 0, 5]), Just([0x88, 0xa8, 0, 7])];
    (0u8..4, prop::collection::vec(tag, 0..4), address(), any::<bool>(), 0usize..90).prop_map(
        |(first, tags, to, arp, cut)| {
            let mut frame = vec![first, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
            frame.extend(tags.iter().flatten());
            match to {
                _ if arp => frame.extend([8, 6].iter().chain(&[0; 28])),
                IpAddr::V4(to) => {
                    frame.extend([8, 0].iter().chain(&[0; 16]).chain(&to.octets()).chain(&[0; 8]));
                }
                IpAddr::V6(to) => {
                    frame.extend([0x86, 0xdd].iter().chain(&[0; 24]).chain(&to.octets()).chain(&[0; 8]));
                }
            }
            frame.truncate(cut.max(1));
            frame
        },
    )
}

proptest! {
    #[test]
    fn decides_as_the_oracle(leave in leave(), frame in frame(), queue in 0u32..64) {
        let mut machine = Machine { frame: frame.clone(), queue, ..Machine::default() };
        let end = machine.run(&program(7, &leave, None));
        let expected =
            if is_left(&leave, &frame) { End::Pass } else { End::ToSocket { map: 7, queue: queue.into() } };
        prop_assert_eq!(end, expected);
    }
}

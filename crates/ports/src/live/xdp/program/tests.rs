//! Decodes the program to text, and runs it in an interpreter.

use super::super::assembler::code;
use super::super::assembler::interpreter::{End, Machine};
use super::*;

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
        lines.push(match slot.code {
            code::LOAD_IMMEDIATE_64 => {
                assert_eq!((s, slots[at + 1].code), (code::IS_MAP, 0));
                format!("r{d} = map {i}")
            }
            0x61 => format!("r{d} = u32[r{s} + {o}]"),
            code::MOVE => format!("r{d} = {i}"),
            code::MOVE_REGISTER => format!("r{d} = r{s}"),
            code::CALL => format!("call {i}"),
            code::EXIT => "exit".into(),
            code => panic!("unknown code {code:#x}"),
        });
        at += if slot.code == code::LOAD_IMMEDIATE_64 { 2 } else { 1 };
    }
    lines
}

#[test]
fn the_plain_program() {
    let expected = ["r6 = r1", "r2 = u32[r6 + 16]", "r1 = map 7", "r3 = 2", "call 51", "exit"];
    assert_eq!(text(&program(7, None)), expected);
}

#[test]
fn each_frame_goes_to_the_socket_of_its_queue() {
    for (queue, frame) in [(0, vec![]), (3, vec![0xff; 14]), (63, vec![2; 1514])] {
        let mut machine = Machine { frame, queue, ..Machine::default() };
        assert_eq!(machine.run(&program(7, None)), End::ToSocket { map: 7, queue: queue.into() });
    }
}

//! Instructions of BPF, one method each, and jumps to places that are known later.
//!
//! The numbers are those of the kernel's `struct bpf_insn` (linux/bpf.h, linux/bpf_common.h), a stable interface.

/// One slot of a program: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Slot {
    pub(super) code: u8,
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// The registers: R0 is what a call or the program returns, R1 to R5 are arguments and lost in a call, R6 to R9 are
/// kept, R10 is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}
use Register::R0;

/// A place to jump to, known by the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// How much a load or a store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    U8 = 0x10,
    U16 = 0x08,
    U32 = 0x00,
    U64 = 0x18,
}

/// Classes and operations of `code`.
pub(super) mod code {
    pub(in super::super) const LOAD_IMMEDIATE_64: u8 = 0x18;
    /// With a [`Width`](super::Width).
    pub(in super::super) const LOAD: u8 = 0x61;
    /// With a [`Width`](super::Width).
    pub(in super::super) const STORE: u8 = 0x63;
    pub(in super::super) const MOVE: u8 = 0xb7;
    pub(in super::super) const MOVE_REGISTER: u8 = 0xbf;
    /// Of the lower 32 bits; the upper ones become zero.
    pub(in super::super) const MOVE_REGISTER_32: u8 = 0xbc;
    pub(in super::super) const ADD: u8 = 0x07;
    pub(in super::super) const ADD_REGISTER: u8 = 0x0f;
    pub(in super::super) const AND: u8 = 0x57;
    pub(in super::super) const XOR: u8 = 0xa7;
    pub(in super::super) const SHIFT_RIGHT: u8 = 0x77;
    /// To network order; the immediate says of how many bits.
    pub(in super::super) const TO_NETWORK_ORDER: u8 = 0xdc;
    pub(in super::super) const JUMP: u8 = 0x05;
    pub(in super::super) const JUMP_IF_EQUAL: u8 = 0x15;
    /// Comparisons of the lower 32 bits: the immediate is not extended by its sign.
    pub(in super::super) const JUMP_IF_EQUAL_32: u8 = 0x16;
    pub(in super::super) const JUMP_UNLESS_EQUAL_32: u8 = 0x56;
    pub(in super::super) const JUMP_IF_LESS_32: u8 = 0xa6;
    pub(in super::super) const JUMP_IF_EQUAL_REGISTER: u8 = 0x1d;
    pub(in super::super) const JUMP_UNLESS_EQUAL_REGISTER: u8 = 0x5d;
    pub(in super::super) const JUMP_IF_GREATER_REGISTER: u8 = 0x2d;
    pub(in super::super) const CALL: u8 = 0x85;
    pub(in super::super) const EXIT: u8 = 0x95;
    /// The source "register" that says that the immediate is a map's file descriptor.
    pub(in super::super) const IS_MAP: u8 = 1;
    /// That the address of the map's only value is meant.
    pub(in super::super) const IS_MAP_VALUE: u8 = 2;
}

/// Functions of the kernel that programs call.
pub(super) mod helper {
    /// Map, key: the value's address, or zero.
    pub(in super::super) const MAP_LOOK_UP: i32 = 1;
    /// Interface, flags.
    pub(in super::super) const REDIRECT: i32 = 23;
    /// Map, key, what to do if there is nothing.
    pub(in super::super) const REDIRECT_MAP: i32 = 51;
}

/// What a program answers: the kernel's stack is to take the frame.
pub(super) const XDP_PASS: i32 = 2;

/// `struct xdp_md`.
pub(super) mod context {
    pub(in super::super) const DATA: i16 = 0;
    pub(in super::super) const DATA_END: i16 = 4;
    pub(in super::super) const QUEUE: i16 = 16;
}

/// Writes a program.
#[derive(Default)]
pub(super) struct Assembler {
    slots: Vec<Slot>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, destination: Register, source: u8, offset: i16, immediate: i32) {
        let destination = destination as u8;
        let registers = if cfg!(target_endian = "little") {
            destination | source << 4
        } else {
            destination << 4 | source
        };
        self.slots.push(Slot { code, registers, offset, immediate });
    }

    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.emit(code::MOVE, to, 0, 0, value);
    }

    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.emit(code::MOVE_REGISTER, to, from as u8, 0, 0);
    }

    /// The upper half becomes zero.
    pub(super) fn copy_32(&mut self, to: Register, from: Register) {
        self.emit(code::MOVE_REGISTER_32, to, from as u8, 0, 0);
    }

    pub(super) fn add(&mut self, to: Register, value: i32) {
        self.emit(code::ADD, to, 0, 0, value);
    }

    pub(super) fn add_register(&mut self, to: Register, value: Register) {
        self.emit(code::ADD_REGISTER, to, value as u8, 0, 0);
    }

    pub(super) fn and(&mut self, to: Register, mask: i32) {
        self.emit(code::AND, to, 0, 0, mask);
    }

    pub(super) fn xor(&mut self, to: Register, mask: i32) {
        self.emit(code::XOR, to, 0, 0, mask);
    }

    pub(super) fn shift_right(&mut self, to: Register, bits: i32) {
        self.emit(code::SHIFT_RIGHT, to, 0, 0, bits);
    }

    /// Turns the lower 16 bits from the machine's order into the network's or back; the others become zero.
    pub(super) fn swap_16(&mut self, to: Register) {
        self.emit(code::TO_NETWORK_ORDER, to, 0, 0, 16);
    }

    pub(super) fn load(&mut self, width: Width, to: Register, base: Register, offset: i16) {
        self.emit(code::LOAD | width as u8, to, base as u8, offset, 0);
    }

    pub(super) fn store(&mut self, width: Width, base: Register, offset: i16, from: Register) {
        self.emit(code::STORE | width as u8, base, from as u8, offset, 0);
    }

    pub(super) fn load_map(&mut self, to: Register, map: i32) {
        self.emit(code::LOAD_IMMEDIATE_64, to, code::IS_MAP, 0, map);
        self.emit(0, R0, 0, 0, 0);
    }

    /// The address of the only value of an array.
    pub(super) fn load_map_value(&mut self, to: Register, map: i32) {
        self.emit(code::LOAD_IMMEDIATE_64, to, code::IS_MAP_VALUE, 0, map);
        self.emit(0, R0, 0, 0, 0);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.emit(code::CALL, R0, 0, 0, helper);
    }

    pub(super) fn exit(&mut self) {
        self.emit(code::EXIT, R0, 0, 0, 0);
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.slots.len());
    }

    fn emit_jump(&mut self, code: u8, register: Register, source: u8, immediate: i32, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.emit(code, register, source, 0, immediate);
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.emit_jump(code::JUMP, R0, 0, 0, to);
    }

    pub(super) fn jump_if_equal(&mut self, register: Register, value: u32, to: Label) {
        self.emit_jump(code::JUMP_IF_EQUAL_32, register, 0, value as i32, to);
    }

    pub(super) fn jump_unless_equal(&mut self, register: Register, value: u32, to: Label) {
        self.emit_jump(code::JUMP_UNLESS_EQUAL_32, register, 0, value as i32, to);
    }

    pub(super) fn jump_if_less(&mut self, register: Register, than: u32, to: Label) {
        self.emit_jump(code::JUMP_IF_LESS_32, register, 0, than as i32, to);
    }

    /// For addresses.
    pub(super) fn jump_if_null(&mut self, register: Register, to: Label) {
        self.emit_jump(code::JUMP_IF_EQUAL, register, 0, 0, to);
    }

    pub(super) fn jump_if_same(&mut self, register: Register, other: Register, to: Label) {
        self.emit_jump(code::JUMP_IF_EQUAL_REGISTER, register, other as u8, 0, to);
    }

    pub(super) fn jump_unless_same(&mut self, register: Register, other: Register, to: Label) {
        self.emit_jump(code::JUMP_UNLESS_EQUAL_REGISTER, register, other as u8, 0, to);
    }

    pub(super) fn jump_if_greater(&mut self, register: Register, than: Register, to: Label) {
        self.emit_jump(code::JUMP_IF_GREATER_REGISTER, register, than as u8, 0, to);
    }

    /// Jumps unless `bytes` bytes from `base` on lie before `end`. `scratch` is lost.
    pub(super) fn jump_unless_present(
        &mut self,
        base: Register,
        bytes: i32,
        end: Register,
        scratch: Register,
        to: Label,
    ) {
        self.copy(scratch, base);
        self.add(scratch, bytes);
        self.jump_if_greater(scratch, end, to);
    }

    pub(super) fn finish(mut self) -> Vec<Slot> {
        for (at, label) in self.jumps {
            // Every label is placed and near: programs are written in this crate and their length is bounded.
            let to = self.labels[label.0].unwrap_or(at);
            self.slots[at].offset = (to as isize - at as isize - 1) as i16;
        }
        self.slots
    }
}

#[cfg(test)]
pub(super) mod interpreter;

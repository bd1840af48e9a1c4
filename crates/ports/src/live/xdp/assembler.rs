//! An assembler for BPF: a table of instructions, and jumps to labels that are placed later.
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

/// The registers. R0 is the result of a call and of the program. R1 to R5 are arguments and lost in a call, R6 to
/// R9 are preserved, R10 is the end of the stack.
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

/// A target of jumps, which must be placed before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// The size of a load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    U8 = 0x10,
    U16 = 0x08,
    U32 = 0x00,
    U64 = 0x18,
}

/// Makes of each row `CODE = number: method(arguments) => destination, source, immediate;` a constant in [`code`]
/// and a method that writes the instruction. The methods of jumps also take a label.
macro_rules! instructions {
    (
        plain {
            $($(#[$about:meta])* $code:ident = $number:literal:
                $name:ident($($argument:ident: $type:ty),*) => $to:expr, $source:expr, $immediate:expr;)*
        }
        jumps {
            $($(#[$about_jump:meta])* $jump_code:ident = $jump_number:literal:
                $jump:ident($($jump_argument:ident: $jump_type:ty),*) => $on:expr, $other:expr, $value:expr;)*
        }
    ) => {
        /// The classes and operations of instructions.
        pub(super) mod code {
            pub(in super::super) const LOAD_IMMEDIATE_64: u8 = 0x18;
            /// With a [`Width`](super::Width).
            pub(in super::super) const LOAD: u8 = 0x61;
            /// With a [`Width`](super::Width).
            pub(in super::super) const STORE: u8 = 0x63;
            /// In the source register: the immediate is a map's file descriptor.
            pub(in super::super) const IS_MAP: u8 = 1;
            /// In the source register: it stands for the address of the map's only value.
            pub(in super::super) const IS_MAP_VALUE: u8 = 2;
            $(pub(in super::super) const $code: u8 = $number;)*
            $(pub(in super::super) const $jump_code: u8 = $jump_number;)*
        }

        impl Assembler {
            $($(#[$about])* pub(super) fn $name(&mut self, $($argument: $type),*) {
                self.emit(code::$code, $to, $source as u8, 0, $immediate);
            })*
            $($(#[$about_jump])* pub(super) fn $jump(&mut self, $($jump_argument: $jump_type,)* to: Label) {
                self.jumps.push((self.slots.len(), to));
                self.emit(code::$jump_code, $on, $other as u8, 0, $value);
            })*
        }
    };
}

instructions! {
    plain {
        MOVE = 0xb7: set(to: Register, value: i32) => to, R0, value;
        MOVE_REGISTER = 0xbf: copy(to: Register, from: Register) => to, from, 0;
        /// Sets the upper half to zero.
        MOVE_REGISTER_32 = 0xbc: copy_32(to: Register, from: Register) => to, from, 0;
        ADD = 0x07: add(to: Register, value: i32) => to, R0, value;
        ADD_REGISTER = 0x0f: add_register(to: Register, value: Register) => to, value, 0;
        SUBTRACT_REGISTER = 0x1f: subtract_register(to: Register, value: Register) => to, value, 0;
        MULTIPLY_REGISTER = 0x2f: multiply_register(to: Register, value: Register) => to, value, 0;
        DIVIDE_REGISTER = 0x3f: divide_register(to: Register, value: Register) => to, value, 0;
        AND = 0x57: and(to: Register, mask: i32) => to, R0, mask;
        XOR = 0xa7: xor(to: Register, mask: i32) => to, R0, mask;
        SHIFT_RIGHT = 0x77: shift_right(to: Register, bits: i32) => to, R0, bits;
        /// Converts the lower 16 bits between the machine's byte order and the network's; the others become zero.
        TO_NETWORK_ORDER = 0xdc: swap_16(to: Register) => to, R0, 16;
        CALL = 0x85: call(helper: i32) => R0, R0, helper;
        EXIT = 0x95: exit() => R0, R0, 0;
    }
    jumps {
        JUMP = 0x05: jump() => R0, R0, 0;
        /// For addresses.
        JUMP_IF_EQUAL = 0x15: jump_if_null(register: Register) => register, R0, 0;
        /// Compares the lower 32 bits, like the next two, so that the immediate is not sign-extended.
        JUMP_IF_EQUAL_32 = 0x16: jump_if_equal(register: Register, value: u32) => register, R0, value as i32;
        JUMP_UNLESS_EQUAL_32 = 0x56: jump_unless_equal(register: Register, value: u32) => register, R0, value as i32;
        JUMP_IF_LESS_32 = 0xa6: jump_if_less(register: Register, than: u32) => register, R0, than as i32;
        JUMP_IF_EQUAL_REGISTER = 0x1d: jump_if_same(register: Register, other: Register) => register, other, 0;
        JUMP_UNLESS_EQUAL_REGISTER = 0x5d: jump_unless_same(register: Register, other: Register) => register, other, 0;
        JUMP_IF_GREATER_REGISTER = 0x2d: jump_if_greater(register: Register, than: Register) => register, than, 0;
    }
}

/// The kernel's functions that programs call.
pub(super) mod helper {
    /// Arguments: map, key. Returns the value's address, or zero.
    pub(in super::super) const MAP_LOOK_UP: i32 = 1;
    /// Arguments: context, the checksum's offset, 0, the difference of the sum, flags. Pointers into the frame end.
    pub(in super::super) const REPLACE_CHECKSUM: i32 = 11;
    /// Arguments: interface, flags.
    pub(in super::super) const REDIRECT: i32 = 23;
    /// Arguments: context, offset, where to, how many bytes. Returns 0, or an error.
    pub(in super::super) const LOAD_BYTES: i32 = 26;
    /// Arguments: context, how many bytes must lie in one piece. Pointers into the frame end.
    pub(in super::super) const PULL: i32 = 39;
    /// Arguments: map, key, what to do if there is no entry.
    pub(in super::super) const REDIRECT_MAP: i32 = 51;

    /// Of [`REPLACE_CHECKSUM`]: the difference is of the pseudo header, which an unfinished checksum holds.
    pub(in super::super) const PSEUDO_HEADER: i32 = 1 << 4;
    /// Of [`REPLACE_CHECKSUM`]: zero stands for no checksum, as in UDP.
    pub(in super::super) const ZERO_IS_NONE: i32 = 1 << 5;
}

/// The result of an XDP program that lets the kernel's stack take the frame.
pub(super) const XDP_PASS: i32 = 2;
/// The result of a program at the ingress that drops the frame.
pub(super) const INGRESS_DROP: i32 = 2;
/// The result of a filter whose socket gets the whole frame; 0 is the other.
pub(super) const FILTER_ACCEPT: i32 = -1;

/// Offsets in `struct xdp_md`.
pub(super) mod context {
    pub(in super::super) const DATA: i16 = 0;
    pub(in super::super) const DATA_END: i16 = 4;
    pub(in super::super) const QUEUE: i16 = 16;
}

/// Offsets in `struct __sk_buff`, the context of filters and programs at the ingress.
pub(super) mod buffer {
    pub(in super::super) const LENGTH: i16 = 0;
    pub(in super::super) const HAS_TAG: i16 = 20;
    pub(in super::super) const DATA: i16 = 76;
    pub(in super::super) const DATA_END: i16 = 80;
    /// Payload of each packet of a merged frame, else 0.
    pub(in super::super) const SEGMENT_BYTES: i16 = 176;
}

#[derive(Default)]
pub(super) struct Assembler {
    slots: Vec<Slot>,
    /// The slot of each label.
    labels: Vec<Option<usize>>,
    /// Slots of jumps, and their labels.
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

    /// Loads the address of an array's only value.
    pub(super) fn load_map_value(&mut self, to: Register, map: i32) {
        self.emit(code::LOAD_IMMEDIATE_64, to, code::IS_MAP_VALUE, 0, map);
        self.emit(0, R0, 0, 0, 0);
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts the label at the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.slots.len());
    }

    /// Jumps unless `bytes` bytes from `base` lie before `end`. Overwrites `scratch`.
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
            // Every label is placed and near: this crate writes all programs, and their length is bounded.
            let to = self.labels[label.0].unwrap_or(at);
            self.slots[at].offset = (to as isize - at as isize - 1) as i16;
        }
        self.slots
    }
}

#[cfg(test)]
pub(super) mod interpreter;

//! The XDP program, written instruction by instruction.
//!
//! It runs in the kernel for every frame that arrives, before anything else sees it, and decides between two ends:
//! the socket of the frame's receive queue, or the kernel's own stack. Without conditions it is six slots long:
//!
//! ```text
//! r2 = u32[r1 + 16]        the queue; r1 is the context, struct xdp_md
//! r1 = map                 two slots; the map of sockets by queue
//! r3 = XDP_PASS            what to do if there is no socket for the queue
//! call redirect_map
//! exit
//! ```
//!
//! With conditions ([`LeaveToKernel`]) it walks from the Ethernet header over at most two VLAN tags to the IP
//! header. A frame too short for what it claims to be goes to our socket, where it is counted by name, except that
//! one without a whole Ethernet header is not IP.
//!
//! The numbers are those of the kernel's `struct bpf_insn`, which is a stable interface; the tests decode the
//! program back to text and run it in an interpreter against an oracle, and the kernel's verifier is the last test.

use std::net::IpAddr;

/// What stays with the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LeaveToKernel {
    /// Nothing: every frame is ours.
    #[default]
    None,
    /// What is neither IPv4 nor IPv6, ARP above all.
    NonIp,
    /// That, frames to group addresses (broadcasts; multicasts, with them neighbour discovery), and packets to these
    /// addresses; at most [`ADDRESSES_MAX`].
    NonIpAndTo(Vec<IpAddr>),
}

/// Addresses that a program compares a packet's destination with. One takes up to nine slots; jumps reach 32,767.
pub const ADDRESSES_MAX: usize = 256;

/// One slot of a program: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Slot {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The registers: R0 is what a call or the program returns, R1 to R5 are arguments and lost in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
}
use Register::{R0, R1, R2, R3, R4, R5, R6};

/// A place to jump to, known by the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

// Classes, sizes and operations of `code` (linux/bpf.h, linux/bpf_common.h).
const LOAD_IMMEDIATE_64: u8 = 0x18;
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const JUMP: u8 = 0x05;
/// Comparisons of the lower 32 bits: the immediate is not extended by its sign.
const JUMP_IF_EQUAL_32: u8 = 0x16;
const JUMP_UNLESS_EQUAL_32: u8 = 0x56;
const JUMP_IF_GREATER_REGISTER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The source "register" that says that the immediate is a map's file descriptor.
const IS_MAP: u8 = 1;

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

/// `struct xdp_md`.
mod context {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const QUEUE: i16 = 16;
}

#[derive(Default)]
struct Assembler {
    slots: Vec<Slot>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, code: u8, destination: Register, source: u8, offset: i16, immediate: i32) {
        let (destination, source) = (destination as u8, source);
        let registers = if cfg!(target_endian = "little") {
            destination | source << 4
        } else {
            destination << 4 | source
        };
        self.slots.push(Slot { code, registers, offset, immediate });
    }

    fn set(&mut self, to: Register, value: i32) {
        self.emit(MOVE, to, 0, 0, value);
    }

    fn copy(&mut self, to: Register, from: Register) {
        self.emit(MOVE_REGISTER, to, from as u8, 0, 0);
    }

    fn add(&mut self, to: Register, value: i32) {
        self.emit(ADD, to, 0, 0, value);
    }

    fn and(&mut self, to: Register, mask: i32) {
        self.emit(AND, to, 0, 0, mask);
    }

    fn load_u8(&mut self, to: Register, base: Register, offset: i16) {
        self.emit(LOAD_8, to, base as u8, offset, 0);
    }

    fn load_u16(&mut self, to: Register, base: Register, offset: i16) {
        self.emit(LOAD_16, to, base as u8, offset, 0);
    }

    fn load_u32(&mut self, to: Register, base: Register, offset: i16) {
        self.emit(LOAD_32, to, base as u8, offset, 0);
    }

    fn load_map(&mut self, to: Register, map: i32) {
        self.emit(LOAD_IMMEDIATE_64, to, IS_MAP, 0, map);
        self.emit(0, R0, 0, 0, 0);
    }

    fn call(&mut self, helper: i32) {
        self.emit(CALL, R0, 0, 0, helper);
    }

    fn exit(&mut self) {
        self.emit(EXIT, R0, 0, 0, 0);
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.slots.len());
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.emit(JUMP, R0, 0, 0, 0);
    }

    fn jump_if_equal(&mut self, register: Register, value: u32, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.emit(JUMP_IF_EQUAL_32, register, 0, 0, value as i32);
    }

    fn jump_unless_equal(&mut self, register: Register, value: u32, to: Label) {
        self.jumps.push((self.slots.len(), to));
        self.emit(JUMP_UNLESS_EQUAL_32, register, 0, 0, value as i32);
    }

    /// Jumps unless `octets` octets from `base` on lie before the end in R3. Uses R4.
    fn jump_unless_present(&mut self, base: Register, octets: i32, to: Label) {
        self.copy(R4, base);
        self.add(R4, octets);
        self.jumps.push((self.slots.len(), to));
        self.emit(JUMP_IF_GREATER_REGISTER, R4, R3 as u8, 0, 0);
    }

    fn finish(mut self) -> Vec<Slot> {
        for (at, label) in self.jumps {
            // Every label is placed and near: the program is written below and its length is bounded.
            let to = self.labels[label.0].unwrap_or(at);
            self.slots[at].offset = (to as isize - at as isize - 1) as i16;
        }
        self.slots
    }
}

/// A 16-bit field's value as it is loaded from a frame.
fn wire_u16(value: u16) -> u32 {
    u32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// The program for a map of sockets by queue.
pub(super) fn program(map: i32, leave: &LeaveToKernel) -> Vec<Slot> {
    let mut a = Assembler::default();
    let (take, pass) = (a.label(), a.label());
    a.copy(R6, R1);
    let may_pass = *leave != LeaveToKernel::None;
    if may_pass {
        conditions(&mut a, leave, take, pass);
    }
    a.place(take);
    a.load_u32(R2, R6, context::QUEUE);
    a.load_map(R1, map);
    a.set(R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.exit();
    if may_pass {
        a.place(pass);
        a.set(R0, XDP_PASS);
        a.exit();
    }
    a.finish()
}

/// Jumps to `pass` for what is the kernel's, to `take` or through for what is ours.
fn conditions(a: &mut Assembler, leave: &LeaveToKernel, take: Label, pass: Label) {
    const ETHERNET: i32 = 14;
    const VLAN: i32 = 4;
    a.load_u32(R2, R6, context::DATA);
    a.load_u32(R3, R6, context::DATA_END);
    a.jump_unless_present(R2, ETHERNET, pass);
    let addresses = match leave {
        LeaveToKernel::NonIpAndTo(addresses) => {
            // The group bit is the lowest of the first octet of the destination.
            a.load_u8(R5, R2, 0);
            a.and(R5, 1);
            a.jump_if_equal(R5, 1, pass);
            addresses.as_slice()
        }
        _ => &[],
    };
    a.load_u16(R5, R2, 12);
    a.add(R2, ETHERNET);
    for _ in 0..2 {
        let (tagged, untagged) = (a.label(), a.label());
        a.jump_if_equal(R5, wire_u16(0x8100), tagged);
        a.jump_unless_equal(R5, wire_u16(0x88a8), untagged);
        a.place(tagged);
        a.jump_unless_present(R2, VLAN, pass);
        a.load_u16(R5, R2, 2);
        a.add(R2, VLAN);
        a.place(untagged);
    }
    let ipv6 = a.label();
    a.jump_if_equal(R5, wire_u16(0x86dd), ipv6);
    a.jump_unless_equal(R5, wire_u16(0x0800), pass);
    ipv4_addresses(a, addresses, take, pass);
    a.jump(take);
    a.place(ipv6);
    ipv6_addresses(a, addresses, take, pass);
}

fn ipv4_addresses(a: &mut Assembler, addresses: &[IpAddr], take: Label, pass: Label) {
    a.jump_unless_present(R2, 20, take);
    a.load_u32(R5, R2, 16);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            a.jump_if_equal(R5, u32::from_ne_bytes(address.octets()), pass);
        }
    }
}

fn ipv6_addresses(a: &mut Assembler, addresses: &[IpAddr], take: Label, pass: Label) {
    a.jump_unless_present(R2, 40, take);
    for address in addresses {
        if let IpAddr::V6(address) = address {
            let next = a.label();
            for (octets, offset) in address.octets().chunks_exact(4).zip([24i16, 28, 32, 36]) {
                a.load_u32(R5, R2, offset);
                let word = u32::from_ne_bytes([octets[0], octets[1], octets[2], octets[3]]);
                a.jump_unless_equal(R5, word, next);
            }
            a.jump(pass);
            a.place(next);
        }
    }
}

#[cfg(test)]
mod tests;

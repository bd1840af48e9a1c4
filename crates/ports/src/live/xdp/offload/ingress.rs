//! Two programs for a packet socket and the ingress behind it, where merged frames pass whole.
//!
//! ```text
//! frame ──> socket's filter: a flow with a valid lease? ─┬─ no ──> the socket, and so the router
//!                                                        └─ yes: notes it, and the socket does not get the frame
//!       ──> ingress: noted? ─┬─ no ──> dropped, the socket has it
//!                            └─ yes ──> rewrite ──> count ──> out by the other port
//! ```
//!
//! The kernel shows a frame to packet sockets first and runs the ingress right after them, on the same processor, so one
//! note for each processor is enough. The filter writes it for every frame. The ingress asks for nothing that the
//! filter has asked for, so no frame is in both places, and none in neither: if the filter's flow should be gone, or the
//! frame's head cannot be had in one piece, the frame is dropped and counted.
//!
//! Checksums are changed by the kernel, which knows what a sender on the same machine has left unfinished.

use super::super::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use super::super::assembler::{
    Assembler, FILTER_ACCEPT, INGRESS_DROP, Label, Register, Slot, Width, buffer, helper,
};
use super::OffloadMaps;
use super::emit::{self, At, Family, IP, STACK_LENGTH, TCP, V4, V6};
use super::flow::offset;

// Offsets on the stack, below those of `emit`.
/// The address of the note.
const STACK_NOTE: i16 = -64;
/// The number of the note, 0.
const STACK_NUMBER: i16 = -72;
const STACK_PACKETS: i16 = -80;
const STACK_COPY: i16 = STACK_PACKETS - COPY_BYTES;
/// Where the frame begins in it: so its addresses are at multiples of four, as on the stack they must be.
const STACK_HEAD: i16 = STACK_COPY + 2;

/// The longest head: IPv6 and TCP without options.
const HEAD_BYTES: i32 = emit::TRANSPORT_V6 + emit::TCP_BYTES;
/// Room for it, in whole words.
const COPY_BYTES: i16 = 80;
/// The shortest: IPv4 and UDP.
const HEAD_MIN: i32 = emit::TRANSPORT_V4 + emit::UDP_BYTES;

/// The filter of the packet sockets of a port.
pub(in super::super) fn filter(maps: &OffloadMaps) -> Vec<Slot> {
    let mut a = Assembler::default();
    let (accept, v6, found) = (a.label(), a.label(), a.label());
    a.copy(R6, R1);
    load_note(&mut a, maps, accept);
    a.store(Width::U64, R10, STACK_NOTE, R0);
    a.set(R1, 0);
    a.store(Width::U64, R0, 0, R1);
    a.load(Width::U32, R1, R6, buffer::HAS_TAG);
    a.jump_unless_equal(R1, 0, accept);
    copy_head(&mut a, accept);
    emit::split_families(&mut a, v6, accept);
    emit::find_v4(&mut a, At::Filter, maps, accept);
    a.jump(found);
    a.place(v6);
    emit::find_v6(&mut a, At::Filter, maps, accept);
    a.place(found);
    a.load(Width::U64, R1, R10, STACK_NOTE);
    a.set(R2, 1);
    a.store(Width::U64, R1, 0, R2);
    a.set(R0, 0);
    a.exit();
    a.place(accept);
    a.set(R0, FILTER_ACCEPT);
    a.exit();
    a.finish()
}

/// The program at the ingress. Without maps it drops everything.
pub(in super::super) fn ingress(maps: Option<&OffloadMaps>) -> Vec<Slot> {
    let mut a = Assembler::default();
    let drop = a.label();
    if let Some(maps) = maps {
        let (lost, v6) = (a.label(), a.label());
        a.copy(R6, R1);
        take_note(&mut a, maps, drop);
        pull_head(&mut a, lost);
        emit::split_families(&mut a, v6, lost);
        emit::look_up_v4(&mut a, maps, lost);
        emit::load_length_v4(&mut a);
        measure(&mut a, V4, lost);
        forward_v4(&mut a, maps, lost);
        a.place(v6);
        emit::require(&mut a, At::Ingress, emit::TRANSPORT_V6 + emit::UDP_BYTES, lost);
        emit::look_up_v6(&mut a, maps, lost);
        emit::load_length_v6(&mut a);
        measure(&mut a, V6, lost);
        emit::rewrite_v6(&mut a);
        emit::rewrite_ethernet(&mut a);
        emit::count(&mut a, maps, Some(STACK_PACKETS));
        emit::redirect(&mut a);
        a.place(lost);
        a.set(R5, 0);
        a.store(Width::U64, R10, STACK_LENGTH, R5);
        a.set(R5, maps.lost_at);
        emit::count_by(&mut a, maps, None);
    }
    a.place(drop);
    a.set(R0, INGRESS_DROP);
    a.exit();
    a.finish()
}

/// Leaves the address of this processor's note in R0.
fn load_note(a: &mut Assembler, maps: &OffloadMaps, none: Label) {
    a.set(R1, 0);
    a.store(Width::U32, R10, STACK_NUMBER, R1);
    emit::look_up(a, maps.notes, STACK_NUMBER, none);
}

/// Goes on if the filter has noted the frame, and clears the note.
fn take_note(a: &mut Assembler, maps: &OffloadMaps, none: Label) {
    load_note(a, maps, none);
    a.load(Width::U64, R1, R0, 0);
    a.jump_if_equal(R1, 0, none);
    a.set(R1, 0);
    a.store(Width::U64, R0, 0, R1);
}

/// Leaves a copy of the frame's beginning at R7 and the frame's length in R8.
fn copy_head(a: &mut Assembler, unknown: Label) {
    a.load(Width::U32, R8, R6, buffer::LENGTH);
    a.jump_if_less(R8, HEAD_MIN.unsigned_abs(), unknown);
    a.set(R1, 0);
    for at in (STACK_COPY..STACK_PACKETS).step_by(8) {
        a.store(Width::U64, R10, at, R1);
    }
    load_head_bytes(a, R4);
    a.copy(R1, R6);
    a.set(R2, 0);
    a.copy(R3, R10);
    a.add(R3, STACK_HEAD.into());
    a.call(helper::LOAD_BYTES);
    a.jump_unless_equal(R0, 0, unknown);
    a.copy(R7, R10);
    a.add(R7, STACK_HEAD.into());
}

/// The frame's length is in R8; leaves that of its head, which the verifier knows to be more than nothing.
fn load_head_bytes(a: &mut Assembler, to: Register) {
    let is_long = a.label();
    a.set(to, HEAD_BYTES);
    a.jump_if_greater(R8, to, is_long);
    a.copy(to, R8);
    a.place(is_long);
}

/// Makes the frame's head one piece that may be written, from R7 to R8.
fn pull_head(a: &mut Assembler, lost: Label) {
    a.load(Width::U32, R8, R6, buffer::LENGTH);
    load_head_bytes(a, R2);
    a.copy(R1, R6);
    a.call(helper::PULL);
    a.jump_unless_equal(R0, 0, lost);
    a.load(Width::U32, R7, R6, buffer::DATA);
    a.load(Width::U32, R8, R6, buffer::DATA_END);
    emit::require(a, At::Ingress, HEAD_MIN, lost);
}

/// Expects the IP packet's length in R2. Leaves the number of packets on the wire, and their length, on the stack.
fn measure(a: &mut Assembler, family: Family, lost: Label) {
    let done = a.label();
    a.copy(R5, R2);
    a.set(R0, 1);
    a.load(Width::U32, R1, R6, buffer::SEGMENT_BYTES);
    a.jump_if_equal(R1, 0, done);
    emit::load_header_bytes(a, At::Ingress, family, lost);
    a.jump_if_greater(R2, R5, done);
    // The payload, in parts of R1 bytes of which the last may be shorter.
    a.copy(R0, R5);
    a.subtract_register(R0, R2);
    a.add_register(R0, R1);
    a.add(R0, -1);
    a.divide_register(R0, R1);
    // Each but one brings headers that the merged frame does not have.
    a.add(R2, IP.into());
    a.copy(R4, R0);
    a.add(R4, -1);
    a.multiply_register(R2, R4);
    a.add_register(R5, R2);
    a.place(done);
    a.store(Width::U64, R10, STACK_PACKETS, R0);
    a.store(Width::U64, R10, STACK_LENGTH, R5);
}

fn forward_v4(a: &mut Assembler, maps: &OffloadMaps, lost: Label) {
    let (as_it_is, tcp, out) = (a.label(), a.label(), a.label());
    a.load(Width::U32, R1, R9, offset::TRANSLATED);
    a.jump_if_equal(R1, 0, as_it_is);
    emit::rewrite_ends(a);
    a.place(as_it_is);
    emit::rewrite_v4(a);
    emit::rewrite_ethernet(a);
    // The frame's beginning is not needed any more.
    a.load(Width::U8, R7, R7, emit::PROTOCOL);
    emit::count(a, maps, Some(STACK_PACKETS));
    a.load(Width::U32, R1, R9, offset::TRANSLATED);
    a.jump_if_equal(R1, 0, out);
    a.jump_if_equal(R7, TCP, tcp);
    change_checksum(a, emit::UDP_CHECKSUM, helper::ZERO_IS_NONE, lost);
    a.jump(out);
    a.place(tcp);
    change_checksum(a, emit::TCP_CHECKSUM, 0, lost);
    a.place(out);
    emit::redirect(a);
}

fn change_checksum(a: &mut Assembler, at: i16, flags: i32, lost: Label) {
    for (delta, more) in [(offset::ADDRESSES_DELTA, helper::PSEUDO_HEADER), (offset::PORTS_DELTA, 0)] {
        a.copy(R1, R6);
        a.set(R2, at.into());
        a.set(R3, 0);
        a.load(Width::U32, R4, R9, delta);
        a.set(R5, flags | more);
        a.call(helper::REPLACE_CHECKSUM);
        a.jump_unless_equal(R0, 0, lost);
    }
}

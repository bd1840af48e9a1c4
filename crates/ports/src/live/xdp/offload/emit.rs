//! Emits the instructions that forward a packet of a known flow.
//!
//! They handle one frame in one pass, without a loop. The common parts of IPv4 and IPv6 (lease, length, counting,
//! sending) are emitted for each. R6 is the context, R7 the start of the frame, R8 its end, R9 the flow's value.
//! `ingress.rs` uses the same parts in two programs more.

use super::super::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use super::super::assembler::{Assembler, Label, Register, Width, buffer, context, helper};
use super::OffloadMaps;
use super::flow::offset;
use thalweg_wire::{EtherType, ip_protocol, tcp};

// Offsets in a frame.
pub(super) const TYPE: i16 = 12;
pub(super) const IP: i16 = 14;
// IPv4.
const TRAFFIC_CLASS: i16 = 15;
pub(super) const TOTAL_LENGTH: i16 = 16;
const FRAGMENT: i16 = 20;
const TIME_TO_LIVE: i16 = 22;
pub(super) const PROTOCOL: i16 = 23;
const CHECKSUM: i16 = 24;
const SOURCE: i16 = 26;
const DESTINATION: i16 = 30;
const SOURCE_PORT: i16 = 34;
const DESTINATION_PORT: i16 = 36;
pub(super) const UDP_CHECKSUM: i16 = 40;
pub(super) const TCP_CHECKSUM: i16 = 50;
// IPv6.
pub(super) const PAYLOAD_LENGTH: i16 = 18;
const NEXT_HEADER: i16 = 20;
pub(super) const HOP_LIMIT: i16 = 21;
const ADDRESSES_V6: i16 = 22;
const PORTS_V6: i16 = 54;

/// The offset of the transport header.
pub(super) const TRANSPORT_V4: i32 = 34;
pub(super) const TRANSPORT_V6: i32 = 54;
pub(super) const UDP_BYTES: i32 = 8;
/// Without options.
pub(super) const TCP_BYTES: i32 = 20;
/// Relative to the transport header.
const TCP_FLAGS: i16 = tcp::FLAGS_AT as i16;
pub(super) const TCP: u32 = ip_protocol::TCP as u32;
const UDP: u32 = ip_protocol::UDP as u32;
/// FIN, SYN and RST, which the router must see to follow connections.
const TCP_CHANGES: i32 = (tcp::FIN | tcp::SYN | tcp::RST) as i32;

// Offsets on the stack.
/// The IP packet's length; of a merged frame, that of all its packets and of their Ethernet headers but one.
pub(super) const STACK_LENGTH: i16 = -8;
const STACK_PORT: i16 = -16;
const STACK_KEY: i16 = -56;

/// Where a program runs, and what it has of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Before all else: the whole frame, in one piece.
    Xdp,
    /// A packet socket's filter: a copy of the head, the frame's length in R8. It only decides.
    Filter,
    /// The interface's ingress, behind the socket: the head, of a frame that the filter has decided about.
    Ingress,
}

/// The version of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// The offset of the transport header.
    pub(super) transport: i32,
    /// The offset of the protocol.
    protocol: i16,
    /// The offset of TCP's header length.
    tcp_length: i16,
}

pub(super) const V4: Family = Family { transport: TRANSPORT_V4, protocol: PROTOCOL, tcp_length: 46 };
pub(super) const V6: Family = Family { transport: TRANSPORT_V6, protocol: NEXT_HEADER, tcp_length: 66 };

/// Forwards the frame and ends, or jumps to `unknown` with the frame unchanged. Expects the context in R6 and keeps
/// it there.
pub(in super::super) fn forward(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    let v6 = a.label();
    a.load(Width::U32, R7, R6, context::DATA);
    a.load(Width::U32, R8, R6, context::DATA_END);
    require(a, At::Xdp, TRANSPORT_V4 + UDP_BYTES, unknown);
    split_families(a, v6, unknown);
    find_v4(a, At::Xdp, maps, unknown);
    rewrite_transport(a, maps.needs_finished_checksums, unknown);
    rewrite_v4(a);
    leave(a, maps);
    a.place(v6);
    find_v6(a, At::Xdp, maps, unknown);
    if maps.needs_finished_checksums {
        check_checksum_v6(a, unknown);
    }
    rewrite_v6(a);
    leave(a, maps);
}

/// Goes on with IPv4, and jumps with the others.
pub(super) fn split_families(a: &mut Assembler, v6: Label, unknown: Label) {
    a.load(Width::U16, R5, R7, TYPE);
    a.jump_if_equal(R5, wire_u16(EtherType::IPV6.0), v6);
    a.jump_unless_equal(R5, wire_u16(EtherType::IPV4.0), unknown);
}

/// Leaves the value of the flow, whose lease is valid, in R9.
pub(super) fn find_v4(a: &mut Assembler, at: At, maps: &OffloadMaps, unknown: Label) {
    check_v4(a, at, unknown);
    look_up_v4(a, maps, unknown);
    check_lease(a, maps, unknown);
    check_fits(a, at, V4, unknown);
}

/// Leaves the value of the flow, whose lease is valid, in R9.
pub(super) fn find_v6(a: &mut Assembler, at: At, maps: &OffloadMaps, unknown: Label) {
    check_v6(a, at, unknown);
    look_up_v6(a, maps, unknown);
    check_lease(a, maps, unknown);
    check_fits(a, at, V6, unknown);
}

/// Jumps unless the frame has so many bytes.
pub(super) fn require(a: &mut Assembler, at: At, bytes: i32, unknown: Label) {
    match at {
        At::Filter => a.jump_if_less(R8, bytes.unsigned_abs(), unknown),
        At::Xdp | At::Ingress => a.jump_unless_present(R7, bytes, R8, R4, unknown),
    }
}

/// Writes the new Ethernet addresses and sends the frame.
fn leave(a: &mut Assembler, maps: &OffloadMaps) {
    rewrite_ethernet(a);
    count(a, maps, None);
    redirect(a);
}

pub(super) fn rewrite_ethernet(a: &mut Assembler) {
    for at in [0, 4, 8] {
        a.load(Width::U32, R5, R9, offset::ETHERNET + at);
        a.store(Width::U32, R7, at, R5);
    }
}

pub(super) fn redirect(a: &mut Assembler) {
    a.load(Width::U32, R1, R9, offset::INTERFACE);
    a.set(R2, 0);
    a.call(helper::REDIRECT);
    a.exit();
}

fn check_v4(a: &mut Assembler, at: At, unknown: Label) {
    a.load(Width::U8, R5, R7, IP);
    a.jump_unless_equal(R5, 0x45, unknown);
    a.load(Width::U16, R5, R7, FRAGMENT);
    // Only "do not fragment" may be set.
    a.and(R5, wire_u16(0xbfff) as i32);
    a.jump_unless_equal(R5, 0, unknown);
    a.load(Width::U8, R5, R7, TIME_TO_LIVE);
    a.jump_if_less(R5, 2, unknown);
    a.load(Width::U32, R1, R7, IP);
    for word in 1..5 {
        a.load(Width::U32, R5, R7, IP + 4 * word);
        a.add_register(R1, R5);
    }
    fold(a, R1, R5);
    a.jump_unless_equal(R1, 0xffff, unknown);
    check_transport(a, at, V4, unknown);
    load_length_v4(a);
    check_length(a, at, unknown);
}

/// Leaves the IP packet's length in R2.
pub(super) fn load_length_v4(a: &mut Assembler) {
    a.load(Width::U16, R2, R7, TOTAL_LENGTH);
    a.swap_16(R2);
}

/// Leaves the IP packet's length in R2.
pub(super) fn load_length_v6(a: &mut Assembler) {
    a.load(Width::U16, R2, R7, PAYLOAD_LENGTH);
    a.swap_16(R2);
    a.add(R2, TRANSPORT_V6 - i32::from(IP));
}

fn check_v6(a: &mut Assembler, at: At, unknown: Label) {
    require(a, at, TRANSPORT_V6 + UDP_BYTES, unknown);
    a.load(Width::U8, R5, R7, IP);
    a.and(R5, 0xf0);
    a.jump_unless_equal(R5, 0x60, unknown);
    a.load(Width::U8, R5, R7, HOP_LIMIT);
    a.jump_if_less(R5, 2, unknown);
    check_transport(a, at, V6, unknown);
    load_length_v6(a);
    check_length(a, at, unknown);
}

/// Leaves the shortest length of an IP packet of this protocol in R3.
fn check_transport(a: &mut Assembler, at: At, family: Family, unknown: Label) {
    let (known, begins) = (a.label(), family.transport);
    a.load(Width::U8, R5, R7, family.protocol);
    a.set(R3, begins + UDP_BYTES - i32::from(IP));
    a.jump_if_equal(R5, UDP, known);
    a.jump_unless_equal(R5, TCP, unknown);
    require(a, at, begins + TCP_BYTES, unknown);
    a.load(Width::U8, R4, R7, begins as i16 + TCP_FLAGS);
    a.and(R4, TCP_CHANGES);
    a.jump_unless_equal(R4, 0, unknown);
    a.set(R3, begins + TCP_BYTES - i32::from(IP));
    a.place(known);
}

/// Expects the IP packet's length in R2 and the shortest in R3; leaves the length on the stack.
fn check_length(a: &mut Assembler, at: At, unknown: Label) {
    // The verifier needs a bound.
    a.and(R2, 0x1_ffff);
    a.jump_if_greater(R3, R2, unknown);
    a.store(Width::U64, R10, STACK_LENGTH, R2);
    match at {
        At::Filter => a.set(R4, IP.into()),
        At::Xdp | At::Ingress => {
            a.copy(R4, R7);
            a.add(R4, IP.into());
        }
    }
    a.add_register(R4, R2);
    a.jump_if_greater(R4, R8, unknown);
}

pub(super) fn look_up_v4(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    for (width, from, to) in [
        (Width::U32, SOURCE, 0),
        (Width::U32, DESTINATION, 4),
        (Width::U32, SOURCE_PORT, 8),
        (Width::U8, PROTOCOL, 12),
        (Width::U8, TRAFFIC_CLASS, 13),
    ] {
        a.load(width, R5, R7, from);
        a.store(width, R10, STACK_KEY + to, R5);
    }
    a.set(R5, 0);
    a.store(Width::U16, R10, STACK_KEY + 14, R5);
    look_up_flow(a, maps.flows_v4, unknown);
}

pub(super) fn look_up_v6(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    for word in 0..8 {
        a.load(Width::U32, R5, R7, ADDRESSES_V6 + 4 * word);
        a.store(Width::U32, R10, STACK_KEY + 4 * word, R5);
    }
    a.load(Width::U32, R5, R7, PORTS_V6);
    a.store(Width::U32, R10, STACK_KEY + 32, R5);
    a.load(Width::U8, R5, R7, NEXT_HEADER);
    a.store(Width::U16, R10, STACK_KEY + 36, R5);
    a.load(Width::U16, R5, R7, IP);
    // Without the flow label.
    a.and(R5, wire_u16(0xfff0) as i32);
    a.store(Width::U16, R10, STACK_KEY + 38, R5);
    look_up_flow(a, maps.flows_v6, unknown);
}

/// Leaves the flow's value in R9.
fn look_up_flow(a: &mut Assembler, flows: i32, unknown: Label) {
    look_up(a, flows, STACK_KEY, unknown);
    a.copy(R9, R0);
}

/// Leaves the address of the map's value for the key at this place of the stack in R0.
pub(super) fn look_up(a: &mut Assembler, map: i32, key: i16, none: Label) {
    a.load_map(R1, map);
    a.copy(R2, R10);
    a.add(R2, key.into());
    a.call(helper::MAP_LOOK_UP);
    a.jump_if_null(R0, none);
}

fn check_lease(a: &mut Assembler, maps: &OffloadMaps, unknown: Label) {
    a.load_map_value(R1, maps.state);
    a.load(Width::U32, R2, R1, 0);
    a.load(Width::U32, R3, R9, offset::GENERATION);
    a.jump_unless_same(R2, R3, unknown);
    a.load(Width::U32, R2, R1, 4);
    a.load(Width::U32, R3, R9, offset::UNTIL_EPOCH);
    a.jump_if_greater(R2, R3, unknown);
    // A copy of the frame has them at no multiple of four.
    for at in [0, 2, 4] {
        a.load(Width::U16, R2, R1, 8 + at);
        a.load(Width::U16, R3, R7, at);
        a.jump_unless_same(R2, R3, unknown);
    }
}

/// Jumps if the packet, or one of those that were merged, is longer than the next link allows.
fn check_fits(a: &mut Assembler, at: At, family: Family, unknown: Label) {
    a.load(Width::U64, R2, R10, STACK_LENGTH);
    if at == At::Filter {
        let single = a.label();
        a.load(Width::U32, R1, R6, buffer::SEGMENT_BYTES);
        a.jump_if_equal(R1, 0, single);
        load_header_bytes(a, at, family, unknown);
        a.add_register(R2, R1);
        a.place(single);
    }
    a.load(Width::U32, R3, R9, offset::MTU);
    a.jump_if_greater(R2, R3, unknown);
}

/// Leaves the length of IP and transport header in R2. Uses R3 and R4.
pub(super) fn load_header_bytes(a: &mut Assembler, at: At, family: Family, unknown: Label) {
    let done = a.label();
    let ip_bytes = family.transport - i32::from(IP);
    a.set(R2, ip_bytes + UDP_BYTES);
    a.load(Width::U8, R3, R7, family.protocol);
    a.jump_unless_equal(R3, TCP, done);
    require(a, at, family.transport + TCP_BYTES, unknown);
    a.load(Width::U8, R2, R7, family.tcp_length);
    // The number of words is in the upper half.
    a.shift_right(R2, 2);
    a.and(R2, 0x3c);
    a.add(R2, ip_bytes);
    a.place(done);
}

/// Changes only packets that are translated. With `checks_all` it also checks the checksums of the others.
fn rewrite_transport(a: &mut Assembler, checks_all: bool, unknown: Label) {
    let (tcp, ports, done) = (a.label(), a.label(), a.label());
    if !checks_all {
        a.load(Width::U32, R3, R9, offset::TRANSLATED);
        a.jump_if_equal(R3, 0, done);
    }
    a.load(Width::U8, R5, R7, PROTOCOL);
    a.jump_if_equal(R5, TCP, tcp);
    a.load(Width::U16, R1, R7, UDP_CHECKSUM);
    // RFC 768: the sender computed none.
    a.jump_if_equal(R1, 0, ports);
    refuse_unfinished(a, unknown);
    let finished = a.label();
    apply(a, offset::TRANSPORT_DELTA);
    a.jump_unless_equal(R1, 0, finished);
    a.set(R1, 0xffff);
    a.place(finished);
    a.store(Width::U16, R7, UDP_CHECKSUM, R1);
    a.jump(ports);
    a.place(tcp);
    require(a, At::Xdp, TRANSPORT_V4 + TCP_BYTES, unknown);
    a.load(Width::U16, R1, R7, TCP_CHECKSUM);
    refuse_unfinished(a, unknown);
    apply(a, offset::TRANSPORT_DELTA);
    a.store(Width::U16, R7, TCP_CHECKSUM, R1);
    a.place(ports);
    rewrite_ends(a);
    a.place(done);
}

/// Writes addresses and ports of IPv4.
pub(super) fn rewrite_ends(a: &mut Assembler) {
    for (width, from, to) in [
        (Width::U16, offset::SOURCE_PORT, SOURCE_PORT),
        (Width::U16, offset::DESTINATION_PORT, DESTINATION_PORT),
        (Width::U32, offset::SOURCE, SOURCE),
        (Width::U32, offset::DESTINATION, DESTINATION),
    ] {
        a.load(width, R5, R9, from);
        a.store(width, R7, to, R5);
    }
}

/// Jumps to `unknown` if the checksum in R1 is exactly the sum of the pseudo header.
fn refuse_unfinished(a: &mut Assembler, unknown: Label) {
    refuse_pseudo_sum(a, TRANSPORT_V4, PROTOCOL, SOURCE, 2, unknown);
}

fn check_checksum_v6(a: &mut Assembler, unknown: Label) {
    let (tcp, loaded, done) = (a.label(), a.label(), a.label());
    a.load(Width::U8, R5, R7, NEXT_HEADER);
    a.jump_if_equal(R5, TCP, tcp);
    a.load(Width::U16, R1, R7, TRANSPORT_V6 as i16 + (UDP_CHECKSUM - TRANSPORT_V4 as i16));
    // RFC 6935: tunnels may have none.
    a.jump_if_equal(R1, 0, done);
    a.jump(loaded);
    a.place(tcp);
    require(a, At::Xdp, TRANSPORT_V6 + TCP_BYTES, unknown);
    a.load(Width::U16, R1, R7, TRANSPORT_V6 as i16 + (TCP_CHECKSUM - TRANSPORT_V4 as i16));
    a.place(loaded);
    refuse_pseudo_sum(a, TRANSPORT_V6, NEXT_HEADER, ADDRESSES_V6, 8, unknown);
    a.place(done);
}

/// Jumps to `unknown` if R1 is the sum of the pseudo header: `words` words of addresses, protocol and length.
fn refuse_pseudo_sum(
    a: &mut Assembler,
    transport: i32,
    protocol: i16,
    addresses: i16,
    words: i16,
    unknown: Label,
) {
    a.load(Width::U64, R2, R10, STACK_LENGTH);
    a.add(R2, i32::from(IP) - transport);
    a.swap_16(R2);
    for word in 0..words {
        a.load(Width::U32, R3, R7, addresses + 4 * word);
        a.add_register(R2, R3);
    }
    a.load(Width::U8, R3, R7, protocol);
    a.swap_16(R3);
    a.add_register(R2, R3);
    fold(a, R2, R3);
    a.jump_if_same(R2, R1, unknown);
}

pub(super) fn rewrite_v4(a: &mut Assembler) {
    a.load(Width::U16, R1, R7, CHECKSUM);
    apply(a, offset::HEADER_DELTA);
    a.store(Width::U16, R7, CHECKSUM, R1);
    a.load(Width::U8, R5, R7, TIME_TO_LIVE);
    a.add(R5, -1);
    a.store(Width::U8, R7, TIME_TO_LIVE, R5);
}

pub(super) fn rewrite_v6(a: &mut Assembler) {
    a.load(Width::U8, R5, R7, HOP_LIMIT);
    a.add(R5, -1);
    a.store(Width::U8, R7, HOP_LIMIT, R5);
}

/// Adds one packet, or those whose number is at this place of the stack, to the counter of the flow's egress port.
pub(super) fn count(a: &mut Assembler, maps: &OffloadMaps, packets: Option<i16>) {
    a.load(Width::U32, R5, R9, offset::PORT);
    count_by(a, maps, packets);
}

/// Expects the counter's number in R5.
pub(super) fn count_by(a: &mut Assembler, maps: &OffloadMaps, packets: Option<i16>) {
    let counted = a.label();
    a.store(Width::U32, R10, STACK_PORT, R5);
    look_up(a, maps.counts, STACK_PORT, counted);
    a.load(Width::U64, R1, R0, 0);
    match packets {
        None => a.add(R1, 1),
        Some(place) => {
            a.load(Width::U64, R2, R10, place);
            a.add_register(R1, R2);
        }
    }
    a.store(Width::U64, R0, 0, R1);
    a.load(Width::U64, R1, R0, 8);
    a.load(Width::U64, R2, R10, STACK_LENGTH);
    a.add_register(R1, R2);
    a.add(R1, IP.into());
    a.store(Width::U64, R0, 8, R1);
    a.place(counted);
}

/// Folds a one's complement sum of up to a dozen 32-bit words to 16 bits.
fn fold(a: &mut Assembler, sum: Register, scratch: Register) {
    a.copy(scratch, sum);
    a.shift_right(scratch, 32);
    a.copy_32(sum, sum);
    a.add_register(sum, scratch);
    for _ in 0..3 {
        a.copy(scratch, sum);
        a.shift_right(scratch, 16);
        a.and(sum, 0xffff);
        a.add_register(sum, scratch);
    }
}

/// Updates the checksum in R1 by the flow's difference at `delta` (RFC 1624, equation 3).
fn apply(a: &mut Assembler, delta: i16) {
    a.xor(R1, 0xffff);
    a.load(Width::U32, R2, R9, delta);
    a.add_register(R1, R2);
    fold(a, R1, R2);
    a.xor(R1, 0xffff);
}

/// The value of a 16-bit field as a program loads it from a frame.
fn wire_u16(value: u16) -> u32 {
    u32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

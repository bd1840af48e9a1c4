//! The XDP program, written instruction by instruction.
//!
//! It runs in the kernel for every frame that arrives, before anything else sees the frame, and chooses between two
//! destinations: the socket of the frame's receive queue, or the kernel's own stack. Without conditions it is six
//! slots long:
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
//! header. A frame too short for its IP header goes to our socket, where it is counted by name; one too short for
//! its Ethernet header or tags is not IP and goes to the kernel.
//!
//! The numbers are those of the kernel's `struct bpf_insn`, which is a stable interface. The tests decode the
//! program back to text and run it in an interpreter against a reference; the kernel's verifier is the last test.

use std::net::IpAddr;

use super::assembler::Register::{R0, R1, R2, R3, R4, R5, R6};
use super::assembler::{Assembler, Label, Slot, Width, XDP_PASS, context, helper};
use super::offload::{self, OffloadMaps};
use thalweg_wire::EtherType;

/// The frames that the kernel's stack gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LeaveToKernel {
    #[default]
    None,
    /// Frames that are neither IPv4 nor IPv6, above all ARP.
    NonIp,
    /// Those, frames to group addresses (broadcast; multicast, which includes neighbor discovery), and packets to
    /// these addresses, at most [`ADDRESSES_MAX`].
    NonIpAndTo(Vec<IpAddr>),
}

/// The most addresses that a program compares a packet's destination with. Each takes up to nine slots; jumps reach
/// 32,767.
pub const ADDRESSES_MAX: usize = 256;

/// The value of a 16-bit field as a program loads it from a frame.
pub(super) fn wire_u16(value: u16) -> u32 {
    u32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// The program for a map of sockets by queue. With `flows`, it first forwards the packets of known flows.
pub(super) fn program(map: i32, leave: &LeaveToKernel, flows: Option<&OffloadMaps>) -> Vec<Slot> {
    let mut a = Assembler::default();
    let (take, pass) = (a.label(), a.label());
    a.copy(R6, R1);
    if let Some(maps) = flows {
        let unknown = a.label();
        offload::forward(&mut a, maps, unknown);
        a.place(unknown);
    }
    let may_pass = *leave != LeaveToKernel::None;
    if may_pass {
        conditions(&mut a, leave, take, pass);
    }
    a.place(take);
    a.load(Width::U32, R2, R6, context::QUEUE);
    a.load_map(R1, map);
    a.set(R3, XDP_PASS);
    a.call(helper::REDIRECT_MAP);
    a.exit();
    if may_pass {
        a.place(pass);
        a.set(R0, XDP_PASS);
        a.exit();
    }
    a.finish()
}

/// Jumps to `pass` for the kernel's frames. For ours it jumps to `take` or falls through.
fn conditions(a: &mut Assembler, leave: &LeaveToKernel, take: Label, pass: Label) {
    const ETHERNET: i32 = 14;
    const VLAN: i32 = 4;
    a.load(Width::U32, R2, R6, context::DATA);
    a.load(Width::U32, R3, R6, context::DATA_END);
    a.jump_unless_present(R2, ETHERNET, R3, R4, pass);
    let addresses = match leave {
        LeaveToKernel::NonIpAndTo(addresses) => {
            // The group bit is the lowest bit of the destination's first byte.
            a.load(Width::U8, R5, R2, 0);
            a.and(R5, 1);
            a.jump_if_equal(R5, 1, pass);
            addresses.as_slice()
        }
        _ => &[],
    };
    a.load(Width::U16, R5, R2, 12);
    a.add(R2, ETHERNET);
    for _ in 0..2 {
        let (tagged, untagged) = (a.label(), a.label());
        a.jump_if_equal(R5, wire_u16(EtherType::VLAN.0), tagged);
        a.jump_unless_equal(R5, wire_u16(EtherType::QINQ.0), untagged);
        a.place(tagged);
        a.jump_unless_present(R2, VLAN, R3, R4, pass);
        a.load(Width::U16, R5, R2, 2);
        a.add(R2, VLAN);
        a.place(untagged);
    }
    let ipv6 = a.label();
    a.jump_if_equal(R5, wire_u16(EtherType::IPV6.0), ipv6);
    a.jump_unless_equal(R5, wire_u16(EtherType::IPV4.0), pass);
    ipv4_addresses(a, addresses, take, pass);
    a.jump(take);
    a.place(ipv6);
    ipv6_addresses(a, addresses, take, pass);
}

fn ipv4_addresses(a: &mut Assembler, addresses: &[IpAddr], take: Label, pass: Label) {
    a.jump_unless_present(R2, 20, R3, R4, take);
    a.load(Width::U32, R5, R2, 16);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            a.jump_if_equal(R5, u32::from_ne_bytes(address.octets()), pass);
        }
    }
}

fn ipv6_addresses(a: &mut Assembler, addresses: &[IpAddr], take: Label, pass: Label) {
    a.jump_unless_present(R2, 40, R3, R4, take);
    for address in addresses {
        if let IpAddr::V6(address) = address {
            let next = a.label();
            for (bytes, offset) in address.octets().chunks_exact(4).zip([24i16, 28, 32, 36]) {
                a.load(Width::U32, R5, R2, offset);
                let word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                a.jump_unless_equal(R5, word, next);
            }
            a.jump(pass);
            a.place(next);
        }
    }
}

#[cfg(test)]
mod tests;

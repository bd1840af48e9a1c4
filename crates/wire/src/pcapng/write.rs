//! Writes pcapng: one section, its interfaces, and packets with metadata.
//!
//! Functions append blocks to a buffer, so the caller decides where they go and in which pieces. Numbers are
//! little-endian, times nanoseconds since the epoch. Every program that displays a packet also displays its
//! comment.

use super::{BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, MAGIC};

/// Ethernet frames.
pub const LINK_ETHERNET: u16 = 1;
/// IP packets without a link layer.
pub const LINK_RAW_IP: u16 = 101;

const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION_TEXT: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const PACKET_DROP_COUNT: u16 = 4;
const NANOSECONDS: u8 = 9;

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Inbound,
    /// The packet left the router, or was about to.
    Outbound,
}

/// A packet to write.
#[derive(Clone, Copy, Debug)]
pub struct PacketBlock<'a> {
    /// The interface's number, in order of writing.
    pub interface: u32,
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// The original length; the frame may be shorter.
    pub wire_len: u32,
    /// The captured frame.
    pub frame: &'a [u8],
    pub direction: Direction,
    /// Packets of the interface that were lost since the previous one.
    pub lost_before: u64,
    pub comment: &'a str,
}

/// Begins a file. `application` is the name of the writing program.
pub fn section_header(out: &mut Vec<u8>, application: &str) {
    block(out, u32::from_le_bytes(MAGIC), |out| {
        out.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend(1u16.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        // The length of the section is unknown.
        out.extend(u64::MAX.to_le_bytes());
        option(out, SECTION_APPLICATION, application.as_bytes());
        end_of_options(out);
    });
}

/// Describes the next interface; the first one has number 0.
pub fn interface(out: &mut Vec<u8>, link: u16, snap_len: u32, name: &str, description: &str) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend(link.to_le_bytes());
        out.extend([0, 0]);
        out.extend(snap_len.to_le_bytes());
        option(out, INTERFACE_NAME, name.as_bytes());
        if !description.is_empty() {
            option(out, INTERFACE_DESCRIPTION_TEXT, description.as_bytes());
        }
        option(out, INTERFACE_RESOLUTION, &[NANOSECONDS]);
        end_of_options(out);
    });
}

/// Writes a packet.
pub fn packet(out: &mut Vec<u8>, packet: &PacketBlock<'_>) {
    block(out, ENHANCED_PACKET, |out| {
        let captured_len = packet.frame.len() as u32;
        let halves = [(packet.time_ns >> 32) as u32, packet.time_ns as u32];
        for number in
            [packet.interface, halves[0], halves[1], captured_len, packet.wire_len.max(captured_len)]
        {
            out.extend(number.to_le_bytes());
        }
        out.extend_from_slice(packet.frame);
        pad(out, packet.frame.len());
        let flags: u32 = match packet.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        option(out, PACKET_FLAGS, &flags.to_le_bytes());
        if packet.lost_before > 0 {
            option(out, PACKET_DROP_COUNT, &packet.lost_before.to_le_bytes());
        }
        if !packet.comment.is_empty() {
            option(out, COMMENT, packet.comment.as_bytes());
        }
        end_of_options(out);
    });
}

/// Wraps what `body` appends, a multiple of four bytes, in a block.
fn block(out: &mut Vec<u8>, block_type: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(block_type.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend(length);
    out[start + 4..start + 8].copy_from_slice(&length);
}

/// An option has at most 65,535 bytes; more is cut.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend([0; 4]);
}

fn pad(out: &mut Vec<u8>, length: usize) {
    out.resize(out.len() + length.next_multiple_of(4) - length, 0);
}

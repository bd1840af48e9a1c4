//! Reads pcapng capture files: blocks, some of which hold frames.
//!
//! [`SectionReader::next_block`] examines the bytes at the start of a block and says what the block is, or
//! how many bytes it needs. It stores facts of earlier blocks (byte order, interfaces) but never the bytes
//! themselves, so a caller may leave every frame where it was read.
//!
//! | block | treatment |
//! |---|---|
//! | section header | starts over: byte order, no interfaces |
//! | interface description | stored: link type, snap length, `if_name`, `if_tsresol`, `if_tsoffset` |
//! | enhanced packet, simple packet, packet (obsolete) | a frame |
//! | any other | skipped by its length, however long |
//!
//! Limits: a block that is read has at most [`BLOCK_BYTES_MAX`] bytes, a section at most [`INTERFACES_MAX`]
//! interfaces, an interface name at most [`NAME_BYTES_MAX`] bytes; anything beyond is an error (a longer name
//! is ignored). The length at a block's end must equal the one at its start; it is not checked for skipped
//! blocks.
//!
//! [`mod@write`] writes files.
//!
//! Format: draft-ietf-opsawg-pcapng. Missing: name resolution, statistics, secrets and custom blocks, which
//! hold no frames.

use crate::pcap::{ByteOrder, FRAME_BYTES_MAX, link_type};
use thalweg_base::LinkType;

/// The block type at the beginning of every file, the same in both byte orders.
pub const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The longest block that is read (others are skipped at any length): a frame and ample options.
pub const BLOCK_BYTES_MAX: usize = FRAME_BYTES_MAX + 65_536;
/// The most interfaces in one section.
pub const INTERFACES_MAX: usize = 4096;
/// The most bytes of an interface's name.
pub const NAME_BYTES_MAX: usize = 255;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET_OBSOLETE: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Bytes around every block: type and length before, length after.
const BLOCK_FRAME: usize = 12;
/// From the start of an enhanced (or obsolete) packet block to its frame.
const PACKET_HEADER: usize = 28;
const SIMPLE_HEADER: usize = 12;

/// The unit of an interface's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// Nanoseconds per unit.
    Multiply(u64),
    /// Units per nanosecond.
    Divide(u64),
    /// A second has two to this power of units.
    Binary(u32),
}

impl Resolution {
    fn of_option(value: u8) -> Self {
        let exponent = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            Resolution::Binary(exponent)
        } else if exponent <= 9 {
            Resolution::Multiply(10u64.pow(9 - exponent))
        } else {
            // If it does not fit, every time becomes the epoch.
            Resolution::Divide(10u64.checked_pow(exponent - 9).unwrap_or(u64::MAX))
        }
    }

    #[inline(always)]
    fn nanoseconds(self, units: u64) -> u64 {
        match self {
            Resolution::Multiply(n) => units.saturating_mul(n),
            Resolution::Divide(n) => units / n,
            Resolution::Binary(bits) => {
                let scaled = (u128::from(units) * 1_000_000_000) >> bits;
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        }
    }
}

/// The content of an interface description block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub link: LinkType,
    /// Longest frame; 0 for no limit.
    pub snap_len: u32,
    /// `None` if there is no name of acceptable length.
    pub name: Option<Box<[u8]>>,
    resolution: Resolution,
    offset_ns: i64,
}

impl Interface {
    #[inline(always)]
    fn arrival_ns(&self, high: u32, low: u32) -> u64 {
        let ns = self.resolution.nanoseconds(u64::from(high) << 32 | u64::from(low));
        ns.saturating_add_signed(self.offset_ns)
    }
}

/// The position of a frame in the given bytes, and its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes from the block's start to the frame.
    pub at: usize,
    pub captured_len: usize,
    pub wire_len: u32,
    /// Nanoseconds since the epoch; simple packets have no time.
    pub arrival_ns: Option<u64>,
    /// Index into [`SectionReader::interfaces`].
    pub interface: usize,
}

/// The block at the start of the given bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// A frame; the next block begins `len` bytes later.
    Frame {
        /// Bytes of the block.
        len: usize,
        frame: Frame,
    },
    /// No frame; the next block begins `len` bytes later, possibly beyond the given bytes.
    Skip {
        /// Bytes of the block.
        len: usize,
    },
    /// A new interface; otherwise like `Skip`.
    Interface {
        /// Bytes of the block.
        len: usize,
    },
    /// Too few bytes: call again with at least this many.
    Need(usize),
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapngError {
    /// The file does not begin with a section header.
    #[error("expected a section header block, found block type {block_type:#010x}")]
    NotACapture {
        /// The block type it begins with.
        block_type: u32,
    },
    /// A section header without the byte-order magic.
    #[error("expected the byte-order magic, found {found:#010x}")]
    ByteOrderMagic {
        /// Little-endian.
        found: u32,
    },
    /// A block length that is not a multiple of four, too small for its type, or above the limit.
    #[error(
        "expected a length fit for block type {block_type:#x} (a multiple of 4, at most {BLOCK_BYTES_MAX}), \
         found {bytes}"
    )]
    BlockLength {
        block_type: u32,
        /// The length.
        bytes: u32,
    },
    /// The length at the end of a block differs from the one at its start.
    #[error("expected the block to end with its length {first}, found {second}")]
    TrailingLength {
        /// The length at the block's start.
        first: u32,
        second: u32,
    },
    /// A frame that does not fit its block or exceeds the limit.
    #[error("expected a frame that fits its block and {FRAME_BYTES_MAX} bytes, found {bytes} bytes")]
    FrameLength {
        /// Its length.
        bytes: u32,
    },
    #[error("expected a described interface, found number {interface}")]
    NoInterface {
        /// Its number.
        interface: u32,
    },
    #[error("expected at most {INTERFACES_MAX} interfaces in a section")]
    TooManyInterfaces,
}

/// Reads blocks and stores what they say about later ones.
#[derive(Clone, Debug, Default)]
pub struct SectionReader {
    order: Option<ByteOrder>,
    interfaces: Vec<Interface>,
}

impl SectionReader {
    /// Makes a reader for the start of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// The interfaces of the current section.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Examines the block at the start of `bytes`, which may end anywhere. After an error the rest of the
    /// file is unreadable.
    #[inline]
    pub fn next_block(&mut self, bytes: &[u8]) -> Result<Block, PcapngError> {
        let Some(head) = bytes.first_chunk::<BLOCK_FRAME>() else { return Ok(Block::Need(BLOCK_FRAME)) };
        if head[..4] == MAGIC {
            return self.section_header(bytes, head);
        }
        let number = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let Some(order) = self.order else {
            return Err(PcapngError::NotACapture { block_type: u32::from_le_bytes(number(0)) });
        };
        let (block_type, block_len) = (order.u32(number(0)), order.u32(number(4)));
        let len = block_len as usize;
        let bad_length = PcapngError::BlockLength { block_type, bytes: block_len };
        if len < BLOCK_FRAME || !len.is_multiple_of(4) {
            return Err(bad_length);
        }
        let least = match block_type {
            ENHANCED_PACKET | PACKET_OBSOLETE => PACKET_HEADER + 4,
            SIMPLE_PACKET => SIMPLE_HEADER + 4,
            INTERFACE_DESCRIPTION => 20,
            _ => return Ok(Block::Skip { len }),
        };
        if len < least || len > BLOCK_BYTES_MAX {
            return Err(bad_length);
        }
        let Some(block) = bytes.get(..len) else { return Ok(Block::Need(len)) };
        check_trailer(order, block, block_len)?;
        match block_type {
            INTERFACE_DESCRIPTION => self.interface_description(order, block),
            SIMPLE_PACKET => self.simple_packet(order, block),
            _ => self.packet(order, block, block_type),
        }
    }

    #[cold]
    fn section_header(&mut self, bytes: &[u8], head: &[u8; BLOCK_FRAME]) -> Result<Block, PcapngError> {
        let number = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let order = [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find(|order| order.u32(number(8)) == BYTE_ORDER_MAGIC)
            .ok_or(PcapngError::ByteOrderMagic { found: u32::from_le_bytes(number(8)) })?;
        let block_len = order.u32(number(4));
        let len = block_len as usize;
        if !(28..=BLOCK_BYTES_MAX).contains(&len) || !len.is_multiple_of(4) {
            return Err(PcapngError::BlockLength { block_type: u32::from_le_bytes(MAGIC), bytes: block_len });
        }
        let Some(block) = bytes.get(..len) else { return Ok(Block::Need(len)) };
        check_trailer(order, block, block_len)?;
        self.order = Some(order);
        self.interfaces.clear();
        Ok(Block::Skip { len })
    }

    #[cold]
    fn interface_description(&mut self, order: ByteOrder, block: &[u8]) -> Result<Block, PcapngError> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(PcapngError::TooManyInterfaces);
        }
        let mut interface = Interface {
            link: link_type(u32::from(order.u16_at(block, 8).unwrap_or(u16::MAX))),
            snap_len: order.u32_at(block, 12).unwrap_or(0),
            name: None,
            resolution: Resolution::Multiply(1000),
            offset_ns: 0,
        };
        let options = block.get(16..block.len() - 4).unwrap_or(&[]);
        for (code, value) in (Options { order, rest: options }) {
            match (code, value) {
                (2, name) if (1..=NAME_BYTES_MAX).contains(&name.len()) => {
                    // Some writers include the string's terminator in its length.
                    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                    interface.name = (end > 0).then(|| name[..end].into());
                }
                (9, &[resolution, ..]) => interface.resolution = Resolution::of_option(resolution),
                (14, offset) if offset.len() == 8 => {
                    let halves = (order.u32_at(offset, 0), order.u32_at(offset, 4));
                    if let (Some(first), Some(second)) = halves {
                        let (high, low) =
                            if order == ByteOrder::Little { (second, first) } else { (first, second) };
                        let seconds = (u64::from(high) << 32 | u64::from(low)) as i64;
                        interface.offset_ns = seconds.saturating_mul(1_000_000_000);
                    }
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(Block::Interface { len: block.len() })
    }

    #[inline]
    fn packet(&self, order: ByteOrder, block: &[u8], block_type: u32) -> Result<Block, PcapngError> {
        // The caller has checked the length; the code below would refuse an empty header.
        let empty = [0; PACKET_HEADER];
        let header = block.first_chunk::<PACKET_HEADER>().unwrap_or(&empty);
        let number = |at: usize| order.u32([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let id = match block_type {
            PACKET_OBSOLETE => u32::from(order.u16([header[8], header[9]])),
            _ => number(8),
        };
        let interface = self.interfaces.get(id as usize).ok_or(PcapngError::NoInterface { interface: id })?;
        let captured_len = number(20) as usize;
        if captured_len > (block.len() - PACKET_HEADER - 4).min(FRAME_BYTES_MAX) {
            return Err(PcapngError::FrameLength { bytes: number(20) });
        }
        let frame = Frame {
            at: PACKET_HEADER,
            captured_len,
            wire_len: number(24).max(number(20)),
            arrival_ns: Some(interface.arrival_ns(number(12), number(16))),
            interface: id as usize,
        };
        Ok(Block::Frame { len: block.len(), frame })
    }

    fn simple_packet(&self, order: ByteOrder, block: &[u8]) -> Result<Block, PcapngError> {
        let interface = self.interfaces.first().ok_or(PcapngError::NoInterface { interface: 0 })?;
        let wire_len = order.u32_at(block, 8).unwrap_or(0);
        let snap_len = if interface.snap_len == 0 { usize::MAX } else { interface.snap_len as usize };
        let room = block.len() - SIMPLE_HEADER - 4;
        let captured_len = (wire_len as usize).min(snap_len).min(room);
        if captured_len > FRAME_BYTES_MAX {
            return Err(PcapngError::FrameLength { bytes: wire_len });
        }
        let frame = Frame { at: SIMPLE_HEADER, captured_len, wire_len, arrival_ns: None, interface: 0 };
        Ok(Block::Frame { len: block.len(), frame })
    }
}

#[inline(always)]
fn check_trailer(order: ByteOrder, block: &[u8], first: u32) -> Result<(), PcapngError> {
    let second = block.last_chunk::<4>().map_or(0, |bytes| order.u32(*bytes));
    if first == second { Ok(()) } else { Err(PcapngError::TrailingLength { first, second }) }
}

/// Iterates over options (code and value); ends at the end-of-options mark or at the first malformed option.
struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let code = self.order.u16_at(self.rest, 0).filter(|&code| code != 0)?;
        let len = usize::from(self.order.u16_at(self.rest, 2)?);
        let value = self.rest.get(4..4 + len)?;
        self.rest = self.rest.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((code, value))
    }
}

pub mod write;

#[cfg(test)]
mod tests;

//! VLAN tags (IEEE 802.1Q): the bytes behind a tag's EtherType.
//!
//! ```text
//! bits  3         1              12       16
//!      +----------+---------------+-------+------------+
//!      | priority | drop eligible | VLAN  | EtherType  |
//!      +----------+---------------+-------+------------+
//! ```

use crate::header::header;
use crate::{EtherType, Malformed};

/// Bytes that a tag adds to a frame: its EtherType and its control information.
pub const TAG_BYTES: usize = 4;

/// The VLAN in a tag's control information; 0 means none, as in priority tags.
#[inline(always)]
pub const fn id_of(control: u16) -> u16 {
    control & 0x0fff
}

/// A tag, behind its EtherType.
#[derive(Clone, Copy, Debug)]
pub struct VlanView<'a> {
    header: &'a [u8; TAG_BYTES],
    payload: &'a [u8],
}

impl<'a> VlanView<'a> {
    /// Views the bytes behind a tag's EtherType.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, payload) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { header, payload })
    }

    /// The bytes behind the tag.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

header! {
    VlanView,
    /// A tag to encode, behind its EtherType.
    VlanRepr, TAG_BYTES;
    /// Priority, drop eligible, VLAN.
    control: u16 = 0;
    /// The type of what follows the tag.
    ether_type: EtherType = 2;
}

impl VlanRepr {
    /// Encodes the bytes behind the tag's EtherType.
    #[inline]
    pub fn encode(&self) -> [u8; TAG_BYTES] {
        self.fields()
    }
}

//! VLAN tags (IEEE 802.1Q): what stands behind a tag's EtherType.
//!
//! ```text
//! bits  3         1              12       16
//!      +----------+---------------+-------+------------+
//!      | priority | drop eligible | VLAN  | EtherType  |
//!      +----------+---------------+-------+------------+
//! ```

use crate::{EtherType, Malformed};

/// Bytes that a tag adds to a frame: its EtherType and its control information.
pub const TAG_BYTES: usize = 4;

/// The VLAN in a tag's control information; 0 stands for none, as in tags that carry only a priority.
#[inline(always)]
pub const fn id_of(control: u16) -> u16 {
    control & 0x0fff
}

/// A tag, behind its EtherType.
#[derive(Clone, Copy, Debug)]
pub struct VlanView<'a> {
    tag: &'a [u8; 4],
    payload: &'a [u8],
}

impl<'a> VlanView<'a> {
    /// Views what follows a tag's EtherType.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (tag, payload) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { tag, payload })
    }

    /// Priority, drop eligible, VLAN.
    #[inline]
    pub fn control(&self) -> u16 {
        u16::from_be_bytes([self.tag[0], self.tag[1]])
    }

    /// What the tag stands before.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType::from_be_bytes([self.tag[2], self.tag[3]])
    }

    /// What follows the tag.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A tag to be written behind its EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanRepr {
    /// Priority, drop eligible, VLAN.
    pub control: u16,
    /// What the tag stands before.
    pub ether_type: EtherType,
}

impl VlanRepr {
    /// What follows the tag's EtherType.
    #[inline]
    pub fn encode(&self) -> [u8; TAG_BYTES] {
        let ([a, b], [c, d]) = (self.control.to_be_bytes(), self.ether_type.to_be_bytes());
        [a, b, c, d]
    }
}

impl From<VlanView<'_>> for VlanRepr {
    fn from(view: VlanView<'_>) -> Self {
        Self { control: view.control(), ether_type: view.ether_type() }
    }
}

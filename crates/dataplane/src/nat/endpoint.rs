//! Ends of a session, and the words by which they are looked up.

/// The end of a packet by which its session is found, and which is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum End {
    /// The source, an inside endpoint, becomes the public one: a packet from inside.
    Source = 0,
    /// The destination, a public endpoint, becomes the inside one: a packet from outside.
    Destination = 1,
}

/// An inside address, and the VRF that it is in: hosts of two may have one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inside {
    pub(crate) vrf: u8,
    pub(crate) address: u32,
}

impl Inside {
    /// Both in one word.
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.vrf) << 32 | u64::from(self.address)
    }
}

/// Where a key has the VRF of an inside endpoint; public endpoints have the shard's.
const VRF_AT: u32 = 57;

/// What the VRF adds to a key: nothing to a public endpoint's. Computed without branches.
#[inline(always)]
pub(crate) fn vrf_part(end: End, vrf: u8) -> u64 {
    (u64::from(vrf) << VRF_AT) & (end as u64).wrapping_sub(1)
}

/// An endpoint in one word: end, protocol number, port, address.
#[inline(always)]
pub(crate) fn endpoint_key(end: End, protocol: u8, address: u32, port: u16) -> u64 {
    (end as u64) << 56 | u64::from(protocol) << 48 | u64::from(port) << 32 | u64::from(address)
}

/// The key of an inside endpoint.
#[inline(always)]
pub(crate) fn inside_key(protocol: u8, inside: Inside, port: u16) -> u64 {
    endpoint_key(End::Source, protocol, inside.address, port) | vrf_part(End::Source, inside.vrf)
}

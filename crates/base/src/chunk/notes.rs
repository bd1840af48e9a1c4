//! What stages leave to later ones about packets.

/// Addresses and ports of an IPv4 packet as it arrived, before NAT. Addresses are in network order; for ICMP
/// echo both ports are the identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub src: [u8; 4],
    pub dst: [u8; 4],
    pub src_port: u16,
    pub dst_port: u16,
}

impl Origin {
    /// Whether it is that of a packet: addresses of one that NAT does not translate, or translates from IPv6, are not kept.
    #[inline(always)]
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }
}

/// What NAT leaves to later stages about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    pub origin: Origin,
    /// The record of its session in its shard, plus one; 0 without one, or [`Self::UNPROVEN`].
    pub session: u32,
    /// The record of the firewall's state that the session names, plus one; 0 if it names none.
    pub state: u32,
}

impl Translated {
    /// In place of a session: an ICMP error from outside was translated without one, so nothing says that it is about a
    /// packet that was sent.
    pub const UNPROVEN: u32 = u32::MAX;
}

/// A connection that another one has announced, as the real hosts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expected {
    pub protocol: u8,
    pub is_ipv6: bool,
    /// Address and port; port 0 for protocols without ports.
    pub to: (u128, u16),
    /// Who will begin it; `None` for anybody.
    pub from: Option<u128>,
    /// Seconds for which it is expected.
    pub lifetime_s: u32,
}

//! EtherTypes (IEEE 802.3, clause 3.2.6): the type of what follows an Ethernet header, a VLAN tag or a tunnel
//! header.

/// An EtherType. Values below 0x0600 are lengths of IEEE 802.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct EtherType(pub u16);

impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const ARP: Self = Self(0x0806);
    /// Transparent Ethernet bridging: an Ethernet frame in a tunnel.
    pub const BRIDGED_ETHERNET: Self = Self(0x6558);
    /// IEEE 802.1Q's tag.
    pub const VLAN: Self = Self(0x8100);
    pub const IPV6: Self = Self(0x86dd);
    /// PPP in a tunnel.
    pub const PPP: Self = Self(0x880b);
    pub const MPLS: Self = Self(0x8847);
    /// MPLS with a label that the sender assigned.
    pub const MPLS_UPSTREAM: Self = Self(0x8848);
    /// PPP over Ethernet, session stage.
    pub const PPPOE_SESSION: Self = Self(0x8864);
    /// IEEE 802.1ad's outer tag.
    pub const QINQ: Self = Self(0x88a8);
    /// The outer tag of vendors before two tags were standardized; 0x9200 and 0x9300 are rarer variants.
    pub const QINQ_OLD: Self = Self(0x9100);

    /// Decodes the type.
    #[inline(always)]
    pub const fn from_be_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes))
    }

    /// Encodes the type.
    #[inline(always)]
    pub const fn to_be_bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// Whether a VLAN tag of one of the two standard kinds follows.
    #[inline(always)]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ)
    }

    /// Whether an IP packet follows.
    #[inline(always)]
    pub const fn is_ip(self) -> bool {
        matches!(self, Self::IPV4 | Self::IPV6)
    }

    /// The type of a packet that is known to be IP, by its first byte.
    #[inline]
    pub fn of_packet(packet: &[u8]) -> Self {
        if packet.first().is_some_and(|byte| byte >> 4 == 6) { Self::IPV6 } else { Self::IPV4 }
    }
}

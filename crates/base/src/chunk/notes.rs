//! What stages leave to later ones about packets.

use std::net::IpAddr;

use crate::{DropReason, Packet};

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

/// A packet that was sampled as it arrived, on its way to the stage that knows its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSample {
    /// Its place among the packets of its chunk as they arrived ([`Packet::index`](crate::Packet::index)).
    pub index: u16,
    pub port_in: u16,
    /// Packets that its worker has seen at this port since the worker's last sample there, this one included.
    pub pool: u32,
    /// One packet in this many is sampled.
    pub rate: u32,
    /// `None` for a packet that begins with something other than Ethernet and IP.
    pub start: Option<PacketStart>,
    /// `None` where it is not known, or not yet.
    pub fate: Option<PacketFate>,
}

/// How a packet begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketStart {
    /// Ethernet, or IP by its version.
    pub link: StartLink,
    /// Length of the packet on the wire, from there on.
    pub wire_bytes: u32,
    /// The outermost VLAN.
    pub vlan: Option<u16>,
    pub bytes: Vec<u8>,
}

/// What a [`PacketStart`] begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartLink {
    Ethernet,
    Ipv4,
    Ipv6,
}

/// What a router did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It leaves, with these addresses (source, destination).
    Leaves {
        port_out: u16,
        next_hop: u16,
        addresses: Option<(IpAddr, IpAddr)>,
    },
    Dropped(DropReason),
}

/// Finds the parts of a chunk that get its samples: those of their packets.
pub(super) struct SampleOwners {
    samples: Vec<PacketSample>,
    /// By index of the packet; empty without samples.
    parts: Vec<usize>,
}

impl SampleOwners {
    /// `packets` is the number of packets in the chunk.
    pub(super) fn of(samples: Vec<PacketSample>, packets: usize) -> Self {
        let parts = vec![0; if samples.is_empty() { 0 } else { packets }];
        Self { samples, parts }
    }

    #[inline(always)]
    pub(super) fn note(&mut self, packet: &Packet, part: usize) {
        if let Some(of_packet) = self.parts.get_mut(usize::from(packet.index)) {
            *of_packet = part;
        }
    }

    /// Gives each sample with its part.
    pub(super) fn each(self, mut give: impl FnMut(usize, PacketSample)) {
        let Self { samples, parts } = self;
        let part_of = |sample: &PacketSample| parts.get(usize::from(sample.index)).copied();
        samples.into_iter().for_each(|sample| give(part_of(&sample).unwrap_or(0), sample));
    }
}

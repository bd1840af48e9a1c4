//! Messages to the host thread: packets that it must handle, and ports that changed.

use crossbeam_channel::Sender;
use thalweg_base::{DropReason, LinkType, NO_PORT, Packet, PacketFlags};
use thalweg_wire::MacAddr;

use crate::capture::Seen;
use crate::vlan;

/// A packet that left the fast path and concerns the router itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Punt {
    pub(crate) reason: DropReason,
    pub(crate) port_in: u16,
    /// The port that outgoing lists and the firewall have judged it for, if its route leads to one.
    pub(crate) port_out: u16,
    /// The port whose counters the packet is in: `port_in`, or no port if the router made it.
    pub(crate) counted_at: u16,
    /// The number in the tables that its route led to.
    pub(crate) next_hop: u32,
    /// Chooses among equal paths.
    pub(crate) flow_hash: u32,
    pub(crate) class: u8,
    pub(crate) flags: PacketFlags,
    /// Where the IP header begins in `frame`, if the packet is IP.
    pub(crate) l3_offset: u16,
    /// The present frame, without VLAN tags; NAT has rewritten it if `flags` say so.
    pub(crate) frame: Vec<u8>,
}

impl Punt {
    pub(crate) fn new(reason: DropReason, packet: &Packet, frame: &[u8]) -> Self {
        Self {
            reason,
            port_in: packet.port_in,
            port_out: packet.port_out,
            counted_at: counted_at(packet),
            next_hop: packet.next_hop.into(),
            flow_hash: packet.flow_hash,
            class: packet.class,
            flags: packet.flags,
            l3_offset: vlan::offset_without_tags(packet.l3_offset),
            frame: vlan::without_tags(frame, packet.l3_offset),
        }
    }

    /// The packet as captures see it.
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen {
            frame: &self.frame,
            is_ip: self.counted_at == NO_PORT,
            is_leaving: false,
            port_in: self.port_in,
            port_out: NO_PORT,
            class: self.class,
        }
    }

    /// Whether it was sent to this router's MAC address alone.
    pub(crate) fn came_to_one(&self) -> bool {
        self.l3_offset < 14 || self.frame.first().is_some_and(|byte| byte & 1 == 0)
    }

    /// The IP packet without padding. Its header gives the length, because the stage that dropped it may not have
    /// noted it yet.
    pub(crate) fn ip_packet(&self) -> &[u8] {
        let rest = self.frame.get(usize::from(self.l3_offset)..).unwrap_or_default();
        let length = match (rest.first().map(|byte| byte >> 4), rest.get(2..6)) {
            (Some(4), Some(field)) => usize::from(u16::from_be_bytes([field[0], field[1]])),
            (Some(6), Some(field)) => 40 + usize::from(u16::from_be_bytes([field[2], field[3]])),
            _ => 0,
        };
        &rest[..rest.len().min(length)]
    }
}

/// The queues to the host thread.
#[derive(Clone)]
pub(crate) struct ToHost {
    /// Messages of neighbors and packets for the router.
    pub(crate) host_frames: Sender<Punt>,
    /// Packets to resolve, to fragment or to answer with an error.
    pub(crate) slow_path: Sender<Punt>,
}

impl ToHost {
    /// The queue for a packet that was dropped for this reason; `None` if the router has nothing to do about it.
    pub(crate) fn way(&self, reason: DropReason) -> Option<&Sender<Punt>> {
        use DropReason as R;
        match reason {
            R::NotIp | R::Local | R::NotUnicast | R::LinkLocal | R::MartianSource => Some(&self.host_frames),
            R::TtlExpired
            | R::MtuExceeded
            | R::NoRoute
            | R::Unreachable
            | R::NeighborUnresolved
            | R::NatNoMapping
            | R::FragmentWithoutFirst
            | R::AclDenied
            | R::FirewallDenied => Some(&self.slow_path),
            _ => None,
        }
    }
}

/// Whether NAT had no session for a new flow.
pub(crate) fn is_refusal(reason: DropReason) -> bool {
    use DropReason as R;
    matches!(
        reason,
        R::NatTableFull
            | R::NatPortsExhausted
            | R::NatPortLimit
            | R::NatHostLimit
            | R::NatHostRate
            | R::NatPeerTaken
    )
}

/// The port whose counters a packet is in. Packets that the router injects are bare IP and count as its own.
pub(crate) fn counted_at(packet: &Packet) -> u16 {
    if packet.link == LinkType::RawIp { NO_PORT } else { packet.port_in }
}

/// A port's new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkChange {
    pub(crate) port: u16,
    pub(crate) is_up: bool,
    pub(crate) mac: MacAddr,
    pub(crate) far_end: Option<MacAddr>,
    pub(crate) mtu: u32,
}

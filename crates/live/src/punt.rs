//! Messages to the host thread: packets that it must handle, and ports that changed.

use crossbeam_channel::Sender;
use thalweg_base::{DropReason, LinkType, NO_PORT, Packet, PacketFlags};
use thalweg_wire::MacAddr;

use crate::capture::Seen;
use crate::vlan;

/// A packet that left the fast path and concerns the router itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Punt {
    /// Why it left.
    pub(crate) reason: DropReason,
    /// Where it came in.
    pub(crate) port_in: u16,
    /// The port whose counters it is in: the same, or none if the router made it.
    pub(crate) counted_at: u16,
    /// The number that its route led to.
    pub(crate) next_hop: u32,
    /// Chooses among equal paths.
    pub(crate) flow_hash: u32,
    /// Its class.
    pub(crate) class: u8,
    /// Facts about it.
    pub(crate) flags: PacketFlags,
    /// Where its IP header begins in `frame`, if it is IP.
    pub(crate) l3_offset: u16,
    /// The frame as it is now, without VLAN tags: NAT has rewritten it where `flags` say so.
    pub(crate) frame: Vec<u8>,
}

impl Punt {
    pub(crate) fn new(reason: DropReason, packet: &Packet, frame: &[u8]) -> Self {
        Self {
            reason,
            port_in: packet.port_in,
            counted_at: counted_at(packet),
            next_hop: packet.next_hop,
            flow_hash: packet.flow_hash,
            class: packet.class,
            flags: packet.flags,
            l3_offset: vlan::offset_without_tags(packet.l3_offset),
            frame: vlan::without_tags(frame, packet.l3_offset),
        }
    }

    /// The packet for captures.
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

    /// Whether the link layer brought it to this router alone.
    pub(crate) fn came_to_one(&self) -> bool {
        self.l3_offset < 14 || self.frame.first().is_some_and(|byte| byte & 1 == 0)
    }

    /// The IP packet, without padding. Its header says how long it is: the stage that dropped it may not have come to
    /// noting that.
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

/// The ways to the host thread.
#[derive(Clone)]
pub(crate) struct ToHost {
    /// For what is for the host.
    pub(crate) host_frames: Sender<Punt>,
    /// For what is slow_path.
    pub(crate) slow_path: Sender<Punt>,
}

impl ToHost {
    /// Where a packet that cannot be forwarded for this reason goes: it is for the router itself, or the router has to
    /// do or to say something about it. `None` if it has not.
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
            | R::AclDenied => Some(&self.slow_path),
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

/// The port whose counters a packet is in. What the router has put in comes as bare IP, and is its own.
pub(crate) fn counted_at(packet: &Packet) -> u16 {
    if packet.link == LinkType::RawIp { NO_PORT } else { packet.port_in }
}

/// A port is different from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkChange {
    /// Which.
    pub(crate) port: u16,
    /// Whether it is up.
    pub(crate) is_up: bool,
    /// Its MAC address.
    pub(crate) mac: MacAddr,
    /// Its MTU.
    pub(crate) mtu: u32,
}

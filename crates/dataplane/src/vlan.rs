//! VLAN sub-interfaces (IEEE 802.1Q): ports that share a wire with another, their *parent*, and are distinguished
//! by a tag.
//!
//! All stages but the first, and all configuration, treat a sub-interface like any other port. Two tables make it
//! one:
//!
//! - [`VlanTable`], on the way in: the tag of a frame and its port select the sub-interface. Frames without a tag,
//!   and those with VLAN 0 (a priority without a VLAN, 802.1Q 6.9), stay with the parent. A tag without a
//!   sub-interface drops the frame as `unknown-vlan`, and so does a second tag after that of a sub-interface:
//!   otherwise a neighbor in one VLAN could reach another one with two tags. Ports on a wire without sub-interfaces
//!   accept no VLAN's frames either ([`VlanTable::refusing`]); other ports skip tags, as captures of trunks need.
//! - [`EgressTags`], on the way out: the code that hands frames to a driver looks up the parent and the tag, and
//!   inserts the tag as it copies the frame. Frames in a chunk never have one.
//!
//! Only tagged frames use the first table. The second is one read per frame, or none if no port is a sub-interface.
//!
//! Missing: sub-interfaces with two tags (802.1ad), tags of another type than 0x8100 on the way out, and the
//! priority bits, which leave as 0.

use thalweg_base::{DropReason, NO_PORT};
use thalweg_wire::EtherType;
use thalweg_wire::ethernet::ADDRESS_BYTES;
use thalweg_wire::vlan::{TAG_BYTES, id_of};

/// Valid VLANs: 0 stands for none, 4095 is reserved.
pub const VLAN_IDS: std::ops::RangeInclusive<u16> = 1..=4094;
/// Values of a tag's VLAN field.
const IDS: usize = 1 << 12;

/// How a port treats tags.
#[derive(Clone, Debug, Default)]
enum Side {
    /// It skips them.
    #[default]
    Plain,
    /// It has sub-interfaces: by VLAN, the port or [`NO_PORT`].
    Parent(Box<[u16; IDS]>),
    /// It accepts none: it is a sub-interface itself, or a port on a wire without any.
    Refusing,
}

/// The ingress port of each tagged frame. Takes eight kilobytes for each port with sub-interfaces.
#[derive(Clone, Debug, Default)]
pub struct VlanTable {
    sides: Vec<Side>,
}

impl VlanTable {
    /// Takes sub-interfaces as port, parent, VLAN. Of two with the same parent and VLAN, the later one counts.
    /// Invalid VLANs are ignored.
    pub fn new(sub_interfaces: impl IntoIterator<Item = (u16, u16, u16)>) -> Self {
        let mut table = Self::default();
        for (port, parent, vlan) in sub_interfaces.into_iter().filter(|s| VLAN_IDS.contains(&s.2)) {
            if let Side::Parent(ports) = table.side(parent) {
                ports[usize::from(vlan)] = port;
            } else {
                let mut ports = Box::new([NO_PORT; IDS]);
                ports[usize::from(vlan)] = port;
                *table.side(parent) = Side::Parent(ports);
            }
            let side = table.side(port);
            if matches!(side, Side::Plain) {
                *side = Side::Refusing;
            }
        }
        table
    }

    /// Makes these ports refuse tagged frames unless they have sub-interfaces.
    pub fn refusing(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        for port in ports {
            let side = self.side(port);
            if matches!(side, Side::Plain) {
                *side = Side::Refusing;
            }
        }
        self
    }

    fn side(&mut self, port: u16) -> &mut Side {
        let at = usize::from(port);
        if self.sides.len() <= at {
            self.sides.resize_with(at + 1, Side::default);
        }
        &mut self.sides[at]
    }

    /// The ingress port of a frame with this tag that arrived on `port`.
    pub fn port_behind(&self, port: u16, tag: u16) -> Result<u16, DropReason> {
        let vlan = id_of(tag);
        match self.sides.get(usize::from(port)) {
            None | Some(Side::Plain) => Ok(port),
            Some(_) if vlan == 0 => Ok(port),
            Some(Side::Refusing) => Err(DropReason::UnknownVlan),
            Some(Side::Parent(ports)) => match ports[usize::from(vlan)] {
                NO_PORT => Err(DropReason::UnknownVlan),
                sub_interface => Ok(sub_interface),
            },
        }
    }
}

/// How frames of a sub-interface leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressTag {
    pub parent: u16,
    /// Tag control information: priority, drop eligible, VLAN.
    pub tci: u16,
}

impl EgressTag {
    /// Writes the frame into `out`, with the tag after the MAC addresses. Returns its new length; `None` if it has
    /// no Ethernet header or does not fit.
    pub fn write(self, frame: &[u8], out: &mut [u8]) -> Option<usize> {
        let (macs, rest) = frame.split_at_checked(ADDRESS_BYTES)?;
        let len = frame.len() + TAG_BYTES;
        let out = out.get_mut(..len)?;
        out[..ADDRESS_BYTES].copy_from_slice(macs);
        out[ADDRESS_BYTES..ADDRESS_BYTES + 2].copy_from_slice(&EtherType::VLAN.to_be_bytes());
        out[ADDRESS_BYTES + 2..ADDRESS_BYTES + 4].copy_from_slice(&self.tci.to_be_bytes());
        out[ADDRESS_BYTES + TAG_BYTES..].copy_from_slice(rest);
        Some(len)
    }
}

/// The tags of all sub-interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressTags {
    by_port: Vec<Option<EgressTag>>,
}

impl EgressTags {
    /// From sub-interfaces: port, parent, VLAN.
    pub fn new(sub_interfaces: impl IntoIterator<Item = (u16, u16, u16)>) -> Self {
        let mut by_port = Vec::new();
        for (port, parent, vlan) in sub_interfaces.into_iter().filter(|s| VLAN_IDS.contains(&s.2)) {
            let at = usize::from(port);
            by_port.resize(by_port.len().max(at + 1), None);
            by_port[at] = Some(EgressTag { parent, tci: vlan });
        }
        Self { by_port }
    }

    /// Takes sub-interfaces as port, parent, VLAN.
    #[inline(always)]
    pub fn get(&self, port: u16) -> Option<EgressTag> {
        self.by_port.get(usize::from(port)).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::Ingress;
    use crate::test_support::*;
    use thalweg_base::LinkType;

    /// How frames of this port leave; `None` if it is not a sub-interface.
    const SUB_INTERFACES: [(u16, u16, u16); 2] = [(2, 0, 10), (3, 0, 20)];

    fn run(tags: &[u16], port: u16, v6: bool) -> (u16, Option<&'static str>) {
        let (ethertype, ip) = match v6 {
            true => (0x86dd, udp6([0x20; 16], [0x21; 16], 1, 2, b"x")),
            false => (0x0800, udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2, b"x")),
        };
        let frame = Frame::new(ethernet(tags, ethertype, &ip), LinkType::Ethernet).on_port(port);
        let mut chunk = chunk(vec![frame]);
        let vlans = VlanTable::new(SUB_INTERFACES);
        Ingress { drop_martians: false, vlans, ..Default::default() }.process(&mut chunk.batch(0));
        let packet = &chunk.packets()[0];
        (packet.port_in, packet.drop_reason().map(|r| r.name()))
    }

    #[test]
    fn the_tag_names_the_port() {
        let unknown = Some("unknown-vlan");
        for v6 in [false, true] {
            let cases = [
                (&[][..], 0, (0, None)),
                (&[0xe000], 0, (0, None)),
                (&[10], 0, (2, None)),
                (&[0xe000 | 20], 0, (3, None)),
                (&[11], 0, (0, unknown)),
                (&[4095], 0, (0, unknown)),
                (&[0, 10], 0, (2, None)),
                (&[10, 0], 0, (2, None)),
                (&[10, 20], 0, (2, unknown)),
                (&[20, 10], 0, (3, unknown)),
                // A port without sub-interfaces, and one that the source does not know.
                (&[], 1, (1, None)),
                (&[10], 1, (1, None)),
                (&[10, 99], 1, (1, None)),
                (&[10], 700, (700, None)),
                (&[], 2, (2, None)),
                (&[10], 2, (2, unknown)),
            ];
            for (tags, port, expected) in cases {
                assert_eq!(run(tags, port, v6), expected, "{tags:?} on {port}");
            }
        }
    }

    #[test]
    fn a_wire_without_sub_interfaces_takes_no_vlan() {
        let table = VlanTable::new(SUB_INTERFACES).refusing([0, 1]);
        assert_eq!(table.port_behind(1, 10), Err(DropReason::UnknownVlan));
        // A priority and no VLAN.
        assert_eq!((table.port_behind(1, 0), table.port_behind(1, 0xe000)), (Ok(1), Ok(1)));
        // What has sub-interfaces goes on to have them, and others skip tags.
        assert_eq!((table.port_behind(0, 20), table.port_behind(5, 20)), (Ok(3), Ok(5)));
        assert_eq!(table.port_behind(0, 11), Err(DropReason::UnknownVlan));
    }

    #[test]
    fn arp_in_a_vlan_belongs_to_the_sub_interface_and_can_be_found() {
        let frame = Frame::new(ethernet(&[20], 0x0806, &[0; 28]), LinkType::Ethernet);
        let mut chunk = chunk(vec![frame]);
        let vlans = VlanTable::new(SUB_INTERFACES);
        Ingress { drop_martians: true, vlans, ..Default::default() }.process(&mut chunk.batch(0));
        let packet = &chunk.packets()[0];
        assert_eq!((packet.port_in, packet.l3_offset), (3, 18));
        assert_eq!(packet.drop_reason(), Some(DropReason::NotIp));
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let tags = EgressTags::new(SUB_INTERFACES);
        assert_eq!((tags.get(0), tags.get(1), tags.get(9)), (None, None, None));
        let tag = tags.get(3).unwrap();
        assert_eq!(tag, EgressTag { parent: 0, tci: 20 });
        let frame = ethernet(&[], 0x0800, b"packet");
        let mut out = [0; 64];
        assert_eq!(tag.write(&frame, &mut out), Some(24));
        assert_eq!(out[..24], ethernet(&[20], 0x0800, b"packet"));
        assert_eq!(tag.write(&frame, &mut out[..23]), None);
        assert_eq!(tag.write(&frame[..11], &mut out), None);
    }

    #[test]
    fn what_cannot_be_a_vlan_is_left_out() {
        let table = VlanTable::new([(1, 0, 0), (2, 0, 4095), (3, 0, 5000)]);
        assert_eq!(table.port_behind(0, 7), Ok(0));
        assert_eq!(EgressTags::new([(1, 0, 0)]), EgressTags::default());
    }
}

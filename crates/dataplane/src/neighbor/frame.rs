//! Ethernet frames around ARP and Neighbor Discovery, with one VLAN tag or none.

use thalweg_wire::ethernet::{EthernetRepr, EthernetView, FRAME_BYTES_MIN};
use thalweg_wire::vlan::{VlanView, id_of};
use thalweg_wire::{EtherType, MacAddr, Malformed};

/// A parsed frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) destination: MacAddr,
    pub(super) source: MacAddr,
    /// The VLAN of its tag; `None` without a tag or with one that carries only a priority.
    pub(super) vlan: Option<u16>,
    pub(super) ether_type: EtherType,
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(super) fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let view = EthernetView::new(frame)?;
        let (destination, source) = (view.destination(), view.source());
        let (vlan, ether_type, payload) = match view.ether_type() {
            EtherType::VLAN => {
                let tag = VlanView::new(view.payload())?;
                let vlan = Some(id_of(tag.control())).filter(|&vlan| vlan != 0);
                (vlan, tag.ether_type(), tag.payload())
            }
            ether_type => (None, ether_type, view.payload()),
        };
        Ok(Self { destination, source, vlan, ether_type, payload })
    }
}

/// A complete frame, padded.
pub(super) fn build(header: EthernetRepr, vlan: Option<u16>, payload: &[&[u8]]) -> Vec<u8> {
    let mut frame = header.encode_tagged(vlan.map(id_of));
    payload.iter().for_each(|part| frame.extend_from_slice(part));
    if frame.len() < FRAME_BYTES_MIN {
        frame.resize(FRAME_BYTES_MIN, 0);
    }
    frame
}

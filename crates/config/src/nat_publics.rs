//! The public addresses of `[nat]`, for what names one of them.

use std::net::Ipv4Addr;

use crate::diagnostic::{ErrorKind, one_of};
use crate::ports::Ports;
use crate::reader::{Item, Reader};
use crate::types::{PortIndex, VrfIndex};

/// The public addresses.
pub(crate) struct Publics<'p> {
    pub(crate) outsides: &'p [PortIndex],
    /// By outside port.
    pub(crate) pools: &'p [Vec<Ipv4Addr>],
    /// The first address of the first port, unless that waits for one.
    pub(crate) first: Option<usize>,
}

impl Publics<'_> {
    /// All addresses, each with the place of its outside port, in the order in which they are counted.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, Ipv4Addr)> + '_ {
        self.pools
            .iter()
            .enumerate()
            .flat_map(|(place, pool)| pool.iter().map(move |address| (place, *address)))
    }

    /// The VRF of an outside port.
    pub(crate) fn vrf_of(&self, ports: &Ports, place: usize) -> VrfIndex {
        self.outsides.get(place).map_or(0, |port| ports.vrf_of(*port))
    }

    /// The public addresses that are in a VRF.
    pub(crate) fn of_vrf<'s>(
        &'s self,
        ports: &'s Ports,
        vrf: VrfIndex,
    ) -> impl Iterator<Item = Ipv4Addr> + 's {
        self.all().filter(move |(place, _)| self.vrf_of(ports, *place) == vrf).map(|(_, address)| address)
    }

    /// The place of the outside port that an item names.
    pub(crate) fn outside(&self, reader: &mut Reader, ports: &Ports, item: &Item<'_>) -> Option<usize> {
        let port = ports.named(reader, item)?;
        let place = self.outsides.iter().position(|outside| *outside == port);
        if place.is_none() {
            let message = format!("`{}` is no outside port", ports.name(port));
            let expected = one_of(self.outsides.iter().map(|port| ports.name(*port)));
            reader.error(ErrorKind::UnknownName, &item.span, message, expected);
        }
        place
    }
}

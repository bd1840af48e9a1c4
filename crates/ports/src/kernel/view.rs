//! The kernel's view of the network, in which next hops are resolved.

use std::net::IpAddr;

use thalweg_base::IpPrefix;
use thalweg_wire::MacAddr;

use super::error::KernelError;
use super::message::{AttributesOf, Message, MessageWriter, u16_at, u32_at};
use super::route::{self, FoundRoute, RouteTarget};
use super::socket::Netlink;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: Box<str>,
    /// It is enabled and has a carrier.
    pub is_up: bool,
    pub mac: Option<MacAddr>,
    pub mtu_bytes: u32,
    /// How often its carrier came or went since it exists.
    pub carrier_changes: u32,
}

/// One of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub interface: u32,
    pub address: IpAddr,
    /// The network reached through it; for a point-to-point link, the other end.
    pub network: IpPrefix,
}

/// A neighbor on a link, found by ARP or Neighbor Discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    pub interface: u32,
    pub address: IpAddr,
    /// `None` while unknown.
    pub mac: Option<MacAddr>,
    /// It was probed and did not answer.
    pub is_silent: bool,
}

/// The network according to the kernel, without our own routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkView {
    /// By number.
    pub links: Vec<Link>,
    pub addresses: Vec<InterfaceAddress>,
    pub neighbors: Vec<Neighbor>,
    /// Others' routes of the main table to connected networks ([`RouteTarget::Interface`]) and through
    /// gateways. A route with several paths has several items; a next-hop object is replaced by its paths.
    pub routes: Vec<FoundRoute>,
}

impl NetworkView {
    /// Reads the view, without routes of `own_protocol`.
    pub fn read(own_protocol: u8) -> Result<Self, KernelError> {
        let mut view = Self::default();
        let mut netlink = Netlink::open()?;
        view.links = links(&mut netlink)?;
        view.addresses = addresses(&mut netlink)?;
        netlink.list("its neighbors", libc::RTM_GETNEIGH, &[0; 12], |message| {
            view.neighbors.extend(neighbor(&message));
        })?;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let (mut request, sequence) = (MessageWriter::default(), netlink.sequences(1));
            route::write_dump(&mut request, sequence, family, libc::RT_TABLE_MAIN.into(), 0);
            netlink.dump("its routes", &request, sequence, |message| {
                let ways = route::parse_ways(&message).into_iter();
                view.routes.extend(ways.filter(|route| route.protocol != own_protocol));
            })?;
        }
        Ok(view)
    }

    /// Reads only our addresses, on all interfaces of this network namespace.
    pub fn read_addresses() -> Result<Vec<InterfaceAddress>, KernelError> {
        addresses(&mut Netlink::open()?)
    }

    /// Reads only the interfaces.
    pub fn read_links() -> Result<Vec<Link>, KernelError> {
        links(&mut Netlink::open()?)
    }

    /// Whether the address is one of ours.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// The interface with this number.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The cost of a route: its metric, but 0 for a network that is connected by one of our addresses,
    /// whatever metric the kernel or a network manager gave it.
    pub fn cost(route: &FoundRoute) -> u32 {
        /// The kernel itself installed the route with the address.
        const PROTOCOL_KERNEL: u8 = libc::RTPROT_KERNEL;
        match route.target {
            Some(RouteTarget::Interface(_)) if route.protocol == PROTOCOL_KERNEL => 0,
            _ => route.metric,
        }
    }

    /// The networks reached without a gateway, through interfaces that are up.
    pub fn connected(&self) -> impl Iterator<Item = (IpPrefix, u32)> + '_ {
        self.routes.iter().filter_map(|route| match route.target {
            Some(RouteTarget::Interface(interface)) if self.link(interface)?.is_up => {
                Some((route.prefix, interface))
            }
            _ => None,
        })
    }
}

fn links(netlink: &mut Netlink) -> Result<Vec<Link>, KernelError> {
    let mut links = Vec::new();
    netlink.list("its interfaces", libc::RTM_GETLINK, &[0; 16], |message| links.extend(link(&message)))?;
    Ok(links)
}

fn addresses(netlink: &mut Netlink) -> Result<Vec<InterfaceAddress>, KernelError> {
    let mut addresses = Vec::new();
    netlink.list("its addresses", libc::RTM_GETADDR, &[0; 8], |message| {
        addresses.extend(interface_address(&message));
    })?;
    Ok(addresses)
}

/// The link in a message that lists, reports or removes one.
pub(super) fn link(message: &Message<'_>) -> Option<Link> {
    // struct ifinfomsg: family, padding, type 2, index 4, flags 4, change 4.
    if !matches!(message.kind, libc::RTM_NEWLINK | libc::RTM_DELLINK) {
        return None;
    }
    let index = u32_at(message.body, 4)?;
    let flags = u32_at(message.body, 8)?;
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    let is_up = flags & up == up;
    let mut link = Link { index, name: "".into(), is_up, mac: None, mtu_bytes: 0, carrier_changes: 0 };
    for (kind, value) in AttributesOf(message.body.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                link.name = String::from_utf8_lossy(value).trim_end_matches('\0').into();
            }
            libc::IFLA_MTU => link.mtu_bytes = u32_at(value, 0).unwrap_or(0),
            libc::IFLA_ADDRESS => link.mac = value.try_into().ok(),
            libc::IFLA_CARRIER_CHANGES => link.carrier_changes = u32_at(value, 0).unwrap_or(0),
            _ => {}
        }
    }
    Some(link)
}

/// The address in a message that lists, reports or removes one.
pub(super) fn interface_address(message: &Message<'_>) -> Option<InterfaceAddress> {
    // struct ifaddrmsg: family, prefix length, flags, scope, index 4.
    if !matches!(message.kind, libc::RTM_NEWADDR | libc::RTM_DELADDR) {
        return None;
    }
    let length = *message.body.get(1)?;
    let interface = u32_at(message.body, 4)?;
    let (mut local, mut peer) = (None, None);
    for (kind, value) in AttributesOf(message.body.get(8..)?) {
        match kind {
            libc::IFA_LOCAL => local = route::address(value),
            libc::IFA_ADDRESS => peer = route::address(value),
            _ => {}
        }
    }
    // IPv6 gives its own address only as the peer, unless there is a peer.
    let (address, other) = (local.or(peer)?, peer.or(local)?);
    Some(InterfaceAddress { interface, address, network: route::prefix_of(other, length)? })
}

/// The neighbor in a message that lists, reports or removes one.
pub(super) fn neighbor(message: &Message<'_>) -> Option<Neighbor> {
    // struct ndmsg: family, padding 3, index 4, state 2, flags, type.
    if !matches!(message.kind, libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH) {
        return None;
    }
    let interface = u32_at(message.body, 4)?;
    let state = u16_at(message.body, 8)?;
    let known = state & (libc::NUD_INCOMPLETE | libc::NUD_FAILED | libc::NUD_NOARP) == 0;
    let (mut address, mut mac) = (None, None);
    for (kind, value) in AttributesOf(message.body.get(12..)?) {
        match kind {
            libc::NDA_DST => address = route::address(value),
            libc::NDA_LLADDR => mac = value.try_into().ok().filter(|_| known),
            _ => {}
        }
    }
    let is_silent = message.kind == libc::RTM_NEWNEIGH && state & libc::NUD_FAILED != 0;
    Some(Neighbor { interface, address: address?, mac, is_silent })
}

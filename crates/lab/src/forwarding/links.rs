//! Builds the network of routers with several ports: a link from each port to a namespace of testers.
//!
//! ```text
//! testers (one namespace)              router
//! t0 ===================== p0  198.18.0.0/24
//! t1 ===================== p1  198.18.1.0/24       198.19.I.0/24: behind the sink of port I, 198.18.I.3
//! t2 ...                   p2 ...
//! ```
//!
//! As in [`super::topology`], neighbors are permanent entries, and no interface has a sink's MAC address: the testers'
//! kernel counts a frame and discards it as another host's.

use super::ForwardingError;
use super::namespace::Namespace;
use super::topology::link;
use std::net::Ipv4Addr;
use thalweg_wire::MacAddr;

/// The most ports: each has networks of its own.
pub const PORTS_MAX: usize = 64;

/// A port of the router, with the tester's interface at the other end of its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPort {
    /// The router's interface.
    pub name: String,
    /// Its address, in a /24.
    pub address: Ipv4Addr,
    pub mac: MacAddr,
    /// The next hop of frames that leave here.
    pub sink: Ipv4Addr,
    pub sink_mac: MacAddr,
    /// The network behind the sink, a /24.
    pub network: Ipv4Addr,
    /// The tester's interface.
    pub tester: String,
    pub tester_mac: MacAddr,
}

impl RouterPort {
    /// The port of this number, below [`PORTS_MAX`].
    pub fn new(number: u8) -> Self {
        let mac = |host| MacAddr([2, 0, 0, 1, number, host]);
        Self {
            name: format!("p{number}"),
            address: Ipv4Addr::new(198, 18, number, 1),
            mac: mac(1),
            sink: Ipv4Addr::new(198, 18, number, 3),
            sink_mac: mac(3),
            network: Ipv4Addr::new(198, 19, number, 0),
            tester: format!("t{number}"),
            tester_mac: mac(2),
        }
    }

    /// The port that this one exchanges frames with: 0 with 1, 2 with 3.
    pub fn peer(number: usize) -> usize {
        number ^ 1
    }
}

/// The two namespaces with their links. Dropping it removes them.
#[derive(Debug)]
pub struct Links {
    pub testers: Namespace,
    pub router: Namespace,
    pub ports: Vec<RouterPort>,
}

impl Links {
    /// Builds the network; `count` is even and at most [`PORTS_MAX`].
    pub fn new(count: usize, mtu: usize) -> Result<Self, ForwardingError> {
        let ports: Vec<RouterPort> = (0..).map(RouterPort::new).take(count.min(PORTS_MAX)).collect();
        let links = Self { testers: Namespace::new("t")?, router: Namespace::new("r")?, ports };
        for port in &links.ports {
            let tester = (&links.testers, port.tester.as_str(), port.tester_mac);
            link(tester, (&links.router, &port.name, port.mac), mtu)?;
        }
        Ok(links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_peers_and_share_nothing_with_them() {
        for number in 0..6u8 {
            let peer = RouterPort::peer(number.into());
            assert_eq!(RouterPort::peer(peer), usize::from(number));
            let (port, peer) = (RouterPort::new(number), RouterPort::new(peer as u8));
            assert!(port.network != peer.network && port.mac != peer.mac && port.sink_mac != port.tester_mac);
        }
    }
}

//! Builds the experiment's network: a tester on both sides of a router, each in its own namespace.
//!
//! ```text
//!            198.18.0.0/24                     198.19.0.0/24
//!  tester-a ============== router ============== tester-b
//!     | a0 .2          a1 .1    b1 .1          b0 .2    |
//!     |                                        (.3 sink)|
//!     |  d0            198.18.255.0/30          d1      |
//!     +=================================================+     the generator alone
//! ```
//!
//! Addresses are those that RFC 2544 appendix C sets aside. All neighbors are permanent entries, so no frame but
//! the tester's is on the wire. The test frames' next hop, the *sink*, has a MAC address that no interface has:
//! tester-b's kernel counts the frame and discards it as not its own, which is the cheapest way to receive.
//! Application tests use tester-b's real address; their interfaces send frames as on a wire, with complete
//! checksums and no longer than the MTU, unless the topology is one of hosts that merge segments
//! ([`Topology::merging`]), as hosts and virtual machines usually do.
//!
//! Results are compared with the direct link from tester to tester: one virtual link and the sink, without a
//! router.
//!
//! The router's interfaces are up but have no addresses: the measured router sets them. Each set-up has a new
//! topology, so nothing remains from the one before; dropping the value removes it.

use super::ForwardingError;
use super::namespace::Namespace;
use super::packet_socket::plain_frames;
use std::net::Ipv4Addr;
use thalweg_wire::MacAddr;

/// The router's interfaces, toward tester-a and tester-b.
pub const ROUTER_PORTS: [&str; 2] = ["a1", "b1"];
/// The testers' interfaces at the other ends.
pub const TESTER_PORTS: [&str; 2] = ["a0", "b0"];
/// The direct link.
pub const DIRECT_PORTS: [&str; 2] = ["d0", "d1"];

/// The router's addresses, each in a /24.
pub const ROUTER_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 19, 0, 1)];
/// The testers' addresses in the same networks.
pub const TESTER_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 19, 0, 2)];
/// The next hop of test frames.
pub const SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 3);
/// The direct link's addresses.
pub const DIRECT_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 255, 1), Ipv4Addr::new(198, 18, 255, 2)];

/// MAC addresses of the router's interfaces.
pub const ROUTER_MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0x0a, 1]), MacAddr([2, 0, 0, 0, 0x0b, 1])];
pub const TESTER_MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0x0a, 2]), MacAddr([2, 0, 0, 0, 0x0b, 2])];
const DIRECT_MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0x0d, 1]), MacAddr([2, 0, 0, 0, 0x0d, 2])];
/// No interface has it.
pub const SINK_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0x0b, 3]);

/// The three namespaces with their links. Dropping it removes them.
#[derive(Debug)]
pub struct Topology {
    /// The sender's side.
    pub tester_a: Namespace,
    pub router: Namespace,
    /// The receiver's side.
    pub tester_b: Namespace,
}

impl Topology {
    /// Builds the network; `mtu` applies to all links.
    pub fn new(mtu: usize) -> Result<Self, ForwardingError> {
        let topology = Self::merging(mtu)?;
        for (i, tester) in [&topology.tester_a, &topology.tester_b].into_iter().enumerate() {
            tester.inside(|| plain_frames(TESTER_PORTS[i]).and_then(|()| plain_frames(DIRECT_PORTS[i])))?;
        }
        Ok(topology)
    }

    /// Builds the network with testers whose kernels hand over merged TCP segments.
    pub fn merging(mtu: usize) -> Result<Self, ForwardingError> {
        let topology = Self {
            tester_a: Namespace::new("a")?,
            router: Namespace::new("r")?,
            tester_b: Namespace::new("b")?,
        };
        let Self { tester_a: a, router: r, tester_b: b } = &topology;
        link((a, TESTER_PORTS[0], TESTER_MACS[0]), (r, ROUTER_PORTS[0], ROUTER_MACS[0]), mtu)?;
        link((b, TESTER_PORTS[1], TESTER_MACS[1]), (r, ROUTER_PORTS[1], ROUTER_MACS[1]), mtu)?;
        link((a, DIRECT_PORTS[0], DIRECT_MACS[0]), (b, DIRECT_PORTS[1], DIRECT_MACS[1]), mtu)?;
        for (i, tester) in [a, b].into_iter().enumerate() {
            let (port, direct) = (TESTER_PORTS[i], DIRECT_PORTS[i]);
            tester.ip(&format!("address add {}/24 dev {port}", TESTER_ADDRESSES[i]))?;
            tester.ip(&format!("address add {}/30 dev {direct}", DIRECT_ADDRESSES[i]))?;
            neighbor(tester, ROUTER_ADDRESSES[i], ROUTER_MACS[i], port)?;
            neighbor(tester, DIRECT_ADDRESSES[1 - i], DIRECT_MACS[1 - i], direct)?;
            tester.ip(&format!("route add default via {}", ROUTER_ADDRESSES[i]))?;
        }
        Ok(topology)
    }
}

impl Topology {
    /// Gives the testers' interfaces another MTU, for what programs send.
    pub fn set_tester_mtu(&self, mtu: usize) -> Result<(), ForwardingError> {
        for (i, tester) in [&self.tester_a, &self.tester_b].into_iter().enumerate() {
            for port in [TESTER_PORTS[i], DIRECT_PORTS[i]] {
                tester.ip(&format!("link set {port} mtu {mtu}"))?;
            }
        }
        Ok(())
    }
}

/// Adds a permanent neighbor.
pub fn neighbor(
    namespace: &Namespace,
    address: Ipv4Addr,
    mac: MacAddr,
    port: &str,
) -> Result<(), ForwardingError> {
    namespace.ip(&format!("neighbor replace {address} lladdr {mac} dev {port} nud permanent"))
}

type End<'a> = (&'a Namespace, &'a str, MacAddr);

pub(crate) fn link(from: End<'_>, to: End<'_>, mtu: usize) -> Result<(), ForwardingError> {
    let ((namespace, port, mac), (peer, peer_port, peer_mac)) = (from, to);
    namespace.ip(&format!(
        "link add {port} mtu {mtu} address {} type veth peer name {peer_port} mtu {mtu} address {} netns {}",
        mac,
        peer_mac,
        peer.name()
    ))?;
    peer.ip(&format!("link set {peer_port} up"))?;
    namespace.ip(&format!("link set {port} up"))
}

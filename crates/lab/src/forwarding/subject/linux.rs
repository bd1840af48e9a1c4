//! The kernel's own forwarding, and its masquerading by nftables: the native baseline.
//!
//! The whole table goes in by netlink, in batches; as routes of one protocol number, so that it is seen where they
//! are from. Neighbors are permanent entries. Reverse path filtering is off: it costs a look-up that the other
//! subjects do not make.

use super::{Label, Subject, Task, has_program};
use crate::forwarding::ForwardingError;
use crate::forwarding::links::{Links, RouterPort};
use crate::forwarding::load::ONE_ROUTE;
use crate::forwarding::topology::{
    ROUTER_ADDRESSES, ROUTER_PORTS, SINK_ADDRESS, SINK_MAC, TESTER_ADDRESSES, TESTER_MACS, Topology, neighbor,
};
use ipnet::Ipv4Net;
use std::io;
use thalweg_base::Prefix;
use thalweg_ports::kernel::{KernelOptions, KernelRoute, KernelRoutes, RouteChange, RouteTarget};

/// Its name in results.
pub const NAME: &str = "linux";

/// Sessions the kernel may track.
const CONNTRACK_MAX: &str = "1000000";
/// Translation of everything that leaves by the outer port.
const MASQUERADE: &str = "add table ip thalweg_lab; \
     add chain ip thalweg_lab out { type nat hook postrouting priority srcnat; }; \
     add rule ip thalweg_lab out oifname b1 masquerade";

/// The kernel.
#[derive(Debug)]
pub struct Linux(Label);

impl Default for Linux {
    fn default() -> Self {
        Self(Label::new(NAME, "kernel", ""))
    }
}

impl Subject for Linux {
    fn label(&self) -> &Label {
        &self.0
    }

    fn refuses(&self, task: &Task<'_>) -> Option<String> {
        (task.nat && !has_program("nft")).then(|| "nft is not here (package nftables)".to_owned())
    }

    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError> {
        forward(topology, task.table)?;
        if task.nat {
            let router = &topology.router;
            router.exec(&["nft", MASQUERADE])?;
            // Some kernels let only the first namespace set it; then the machine's own limit holds.
            let _ = router.set("netfilter/nf_conntrack_max", CONNTRACK_MAX);
        }
        Ok(())
    }

    fn set_up_ports(&mut self, links: &Links, _: usize) -> Option<Result<(), ForwardingError>> {
        Some(forward_ports(links))
    }
}

/// Addresses, neighbors, settings and routes of a kernel with several ports.
fn forward_ports(links: &Links) -> Result<(), ForwardingError> {
    let router = &links.router;
    for RouterPort { name, address, sink, sink_mac, network, .. } in &links.ports {
        router.ip(&format!("address add {address}/24 dev {name}"))?;
        neighbor(router, *sink, *sink_mac, name)?;
        router.set(&format!("ipv4/conf/{name}/rp_filter"), "0")?;
        router.ip(&format!("route add {network}/24 via {sink} dev {name}"))?;
    }
    router.set("ipv4/conf/all/rp_filter", "0")?;
    router.set("ipv4/ip_forward", "1")
}

/// Addresses, neighbors, settings and routes of a kernel that forwards.
pub(crate) fn forward(topology: &Topology, table: &[Ipv4Net]) -> Result<(), ForwardingError> {
    let router = &topology.router;
    for (i, port) in ROUTER_PORTS.into_iter().enumerate() {
        router.ip(&format!("address add {}/24 dev {port}", ROUTER_ADDRESSES[i]))?;
        neighbor(router, TESTER_ADDRESSES[i], TESTER_MACS[i], port)?;
        router.set(&format!("ipv4/conf/{port}/rp_filter"), "0")?;
    }
    router.set("ipv4/conf/all/rp_filter", "0")?;
    router.set("ipv4/ip_forward", "1")?;
    neighbor(router, SINK_ADDRESS, SINK_MAC, ROUTER_PORTS[1])?;
    let (network, length) = ONE_ROUTE;
    router.ip(&format!("route add {network}/{length} via {SINK_ADDRESS} dev {}", ROUTER_PORTS[1]))?;
    if table.is_empty() { Ok(()) } else { router.inside(|| install(table)) }
}

fn install(table: &[Ipv4Net]) -> io::Result<()> {
    let target = RouteTarget::Gateway { address: SINK_ADDRESS.into(), interface: None };
    let changes: Vec<RouteChange> = table
        .iter()
        .filter_map(|net| Prefix::new(u32::from(net.network()), net.prefix_len()).ok())
        .map(|prefix| RouteChange::Replace(KernelRoute { prefix: prefix.into(), target }))
        .collect();
    let mut routes = KernelRoutes::open(KernelOptions::default()).map_err(io::Error::other)?;
    let report = routes.apply(&changes).map_err(io::Error::other)?;
    match report.failures.first() {
        None => Ok(()),
        Some(first) => Err(io::Error::other(format!(
            "the kernel refused {} of {} routes, the first: {first:?}",
            report.failed,
            changes.len()
        ))),
    }
}

//! The translators and firewalls under test: our router and the kernel, both with one pool of public addresses, or both
//! with the same rules.
//!
//! Sources are in [`INSIDE`], a network behind tester-a; destinations are behind the sink; the public addresses
//! are [`POOL`] addresses from [`POOL_FIRST`] on. The kernel translates with nftables' `snat` to that range.

use crate::forwarding::ForwardingError;
use crate::forwarding::load::ONE_ROUTE;
use crate::forwarding::subject::linux::{self, forward};
use crate::forwarding::subject::thalweg::PORTS;
use crate::forwarding::subject::{Label, Subject, Task, has_program};
use crate::forwarding::topology::{ROUTER_PORTS, TESTER_ADDRESSES, Topology};
use crate::stages::measure::{firewall, unused_network};
use crate::workload::frames::Endpoint;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_base::uninterrupted;

/// The network of inside hosts.
pub const INSIDE: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 128, 0), 17);
/// The first of [`POOL`] public addresses, which are enough for two million sessions.
pub const POOL_FIRST: Ipv4Addr = Ipv4Addr::new(198, 19, 64, 1);
/// The number of public addresses; see [`POOL_FIRST`].
pub const POOL: u32 = 32;
/// The number of inside hosts.
const HOSTS: u32 = 32_000;
const PORT_FIRST: u32 = 1024;
/// The number of different sessions.
pub const SESSIONS_MAX: u32 = HOSTS * 64_000;

/// Both endpoints of the `n`-th session; each session has its own inside endpoint.
pub fn session(n: u32) -> (Endpoint, Endpoint) {
    let (inside, remote) = (u32::from(INSIDE.0), u32::from(ONE_ROUTE.0));
    let host = 1 + n % HOSTS;
    let port = (PORT_FIRST + n / HOSTS % 64_000) as u16;
    // Port 7 is echo (RFC 862), to which test frames are sent.
    (Endpoint { address: inside + host, port }, Endpoint { address: remote + host, port: 7 })
}

/// The route to inside hosts.
fn inside_route() -> String {
    let (network, length) = INSIDE;
    format!("\n[[routes]]\nprefix = \"{network}/{length}\"\nvia = \"{}\"\n", TESTER_ADDRESSES[0])
}

/// What is added to our router's usual configuration for a firewall.
pub fn firewall_configuration(rules: u32, states_max: u32) -> String {
    inside_route() + &firewall(rules, PORTS, states_max)
}

/// What is added to our router's usual configuration for NAT.
pub fn configuration(sessions_max: u32) -> String {
    let first = u32::from(POOL_FIRST);
    let pool: Vec<String> = (0..POOL).map(|i| format!("\"{}\"", Ipv4Addr::from(first + i))).collect();
    let route = inside_route();
    format!(
        "{route}\n[nat]\noutside = \"{}\"\ninside = [\"{}\"]\naddresses = \
         [{}]\nport_selection = \"hash\"\nsessions_max = {sessions_max}\nhost_sessions_max = 0\nhost_sessions_per_second = 0\n",
        PORTS[1],
        PORTS[0],
        pool.join(", ")
    )
}

/// The kernel with nftables: `snat` to the pool, or a firewall.
#[derive(Debug)]
pub struct Nftables {
    label: Label,
    rules: String,
    /// Where the rules are written for nft.
    file: PathBuf,
}

impl Nftables {
    /// With `snat` to the pool; files go into `folder`.
    pub fn nat(folder: &Path) -> Self {
        let last = Ipv4Addr::from(u32::from(POOL_FIRST) + POOL - 1);
        let chain = format!(
            "chain out {{ type nat hook postrouting priority srcnat; oifname {} snat to {POOL_FIRST}-{last}; }}",
            ROUTER_PORTS[1]
        );
        Self::with(&chain, folder, "nat")
    }

    /// With the rules of [`firewall_configuration`].
    pub fn firewall(rules: u32, folder: &Path) -> Self {
        let way = format!("iifname {} oifname {}", ROUTER_PORTS[0], ROUTER_PORTS[1]);
        let deny: String =
            (1..rules).map(|n| format!("{way} ip daddr {} drop\n", unused_network(n))).collect();
        let chain = format!(
            "chain forward {{ type filter hook forward priority filter; policy drop;\nct state established,related \
             accept\n{deny}{way} accept\n}}"
        );
        let mut this = Self::with(&chain, folder, &format!("firewall-{rules}"));
        this.label.change = rules_of(rules);
        this
    }

    fn with(chain: &str, folder: &Path, name: &str) -> Self {
        let rules = format!("table ip thalweg_lab {{\n{chain}\n}}\n");
        Self {
            label: Label::new(linux::NAME, "nftables", ""),
            rules,
            file: folder.join(format!("{name}.nft")),
        }
    }

    fn write(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.file.parent().unwrap_or(Path::new("")))?;
        std::fs::write(&self.file, &self.rules)
    }
}

/// How a router with so many rules differs.
pub fn rules_of(rules: u32) -> String {
    format!("{rules} rules")
}

impl Subject for Nftables {
    fn label(&self) -> &Label {
        &self.label
    }

    fn refuses(&self, _: &Task<'_>) -> Option<String> {
        (!has_program("nft")).then(|| "nft is not here (package nftables)".to_owned())
    }

    fn set_up(&mut self, topology: &Topology, _: &Task<'_>) -> Result<(), ForwardingError> {
        forward(topology, &[])?;
        let router = &topology.router;
        router.ip(&format!(
            "route add {}/{} via {} dev {}",
            INSIDE.0, INSIDE.1, TESTER_ADDRESSES[0], ROUTER_PORTS[0]
        ))?;
        let what = || format!("writing {}", self.file.display());
        self.write().map_err(|source| ForwardingError::System { what: what(), source })?;
        router.exec(&["nft", "-f", &self.file.display().to_string()]).map(drop)
    }
}

/// A message to the kernel's connection tracking: delete all entries of every family, with an answer. Layout:
/// `struct nlmsghdr` and `struct nfgenmsg` (linux/netlink.h, nfnetlink_conntrack.h).
const FORGET_ALL: [u8; 20] = [20, 0, 0, 0, 2, 1, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// `NETLINK_NETFILTER`, and the type of an answer with an error code.
const NETFILTER: i32 = 12;
const ERROR: [u8; 2] = 2u16.to_ne_bytes();
/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Deletes all tracked connections in the router's namespace; returns the seconds that took, and their number.
pub fn forget_all(topology: &Topology) -> Result<(f64, u64), ForwardingError> {
    topology.router.inside(|| {
        let before = connections()?;
        let mut socket =
            Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(Protocol::from(NETFILTER)))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let begin = Instant::now();
        // A message without an address goes to the kernel.
        socket.send(&FORGET_ALL)?;
        let mut answer = [0; 256];
        let length = uninterrupted(|| socket.read(&mut answer))?;
        let elapsed_s = begin.elapsed().as_secs_f64();
        match answer.get(..length).and_then(|answer| Some((answer.get(4..6)?, answer.get(16..20)?))) {
            Some((kind, [0, 0, 0, 0])) if kind == ERROR => Ok((elapsed_s, before)),
            Some((kind, &[a, b, c, d])) if kind == ERROR => {
                Err(io::Error::from_raw_os_error(-i32::from_ne_bytes([a, b, c, d])))
            }
            _ => Err(io::Error::other("connection tracking gave an answer that is none")),
        }
    })
}

/// The number of connections that the kernel tracks in this thread's namespace.
fn connections() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn both_firewalls_have_the_same_rules() {
        let text = firewall_configuration(3, 1000);
        assert_eq!(text.matches("[[firewall.rules]]").count(), 3);
        let kernel = Nftables::firewall(3, Path::new("folder"));
        assert_eq!(kernel.label().to_string(), "linux nftables, 3 rules");
        for unused in ["100.0.1.0/24", "100.0.2.0/24"] {
            assert!(text.contains(unused) && kernel.rules.contains(&format!("ip daddr {unused} drop")));
        }
        let order = ["policy drop", "ct state established", "drop\n", "oifname b1 accept"]
            .map(|word| kernel.rules.find(word));
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}: {}", kernel.rules);
    }

    #[test]
    fn sessions_have_ends_of_their_own_in_their_networks() {
        let inside: ipnet::Ipv4Net = "198.18.128.0/17".parse().unwrap();
        let remote = ipnet::Ipv4Net::new(ONE_ROUTE.0, ONE_ROUTE.1).unwrap();
        let mut seen = HashSet::new();
        for n in (0..100_000).chain([SESSIONS_MAX - 1]) {
            let (from, to) = session(n);
            assert!(seen.insert(from), "{n}: {from:?}");
            assert!(inside.contains(&Ipv4Addr::from(from.address)) && from.port >= 1024);
            assert!(remote.contains(&Ipv4Addr::from(to.address)));
        }
    }
}

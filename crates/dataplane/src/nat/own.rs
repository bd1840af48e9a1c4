//! Public ports and flows of the router itself: a public address may also be used by programs that run on the
//! router.
//!
//! | the router has | it gets |
//! |---|---|
//! | a socket open to all senders (it listens, or is bound and not connected) | the port: sessions never get it, and one that has it ends |
//! | a flow to one remote endpoint, on a free port | the port, for as long as it has such flows |
//! | the same on a port with a session | packets from that endpoint; the session keeps all others |
//!
//! A port forward keeps its port. Claims of flows end [`FLOW_LIFE_S`] after their last renewal. Tables are bounded;
//! a claim without room is counted, and packets of its flow are treated like any others.

use super::config::NatProtocol;
use super::endpoint::{End, endpoint_key};
use std::collections::HashMap;

/// Seconds for which a flow of the router stays claimed. Its owner must renew the claim before they have passed.
pub(crate) const FLOW_LIFE_S: u32 = 120;
/// The most flows of one shard.
const FLOWS_MAX: usize = 1024;

/// A public port of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnPort {
    pub protocol: NatProtocol,
    /// The public address.
    pub address: std::net::Ipv4Addr,
    /// The port, or the identifier of ICMP echo.
    pub port: u16,
}

impl OwnPort {
    /// The look-up key of its packets.
    pub(crate) fn key(&self) -> u64 {
        endpoint_key(End::Destination, self.protocol.number(), self.address.into(), self.port)
    }
}

/// A flow between the router and one remote endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnFlow {
    /// The router's end.
    pub at: OwnPort,
    /// The other end; its port is 0 for ICMP echo.
    pub remote: std::net::SocketAddrV4,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The flow was claimed before.
    Already,
    Now,
    NoRoom,
}

/// The router's ports and flows in one shard; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPorts {
    /// The router's ports; `true` if reserved as a whole, `false` if held only for flows.
    ports: HashMap<OwnPort, bool>,
    /// The second until which each flow is claimed.
    flows: HashMap<OwnFlow, u32>,
    next_sweep_s: u32,
}

impl OwnPorts {
    /// Whether a port is reserved as a whole.
    pub(crate) fn is_reserved(&self, port: &OwnPort) -> bool {
        self.ports.get(port) == Some(&true)
    }

    /// Marks a port as the router's, as a whole or for its flows.
    pub(crate) fn hold(&mut self, port: OwnPort, whole: bool) {
        let held = self.ports.entry(port).or_default();
        *held |= whole;
    }

    /// Claims a flow until the given second.
    pub(crate) fn keep(&mut self, flow: OwnFlow, until_s: u32) -> Claimed {
        if let Some(kept) = self.flows.get_mut(&flow) {
            *kept = until_s;
            return Claimed::Already;
        }
        if self.flows.len() >= FLOWS_MAX {
            return Claimed::NoRoom;
        }
        self.flows.insert(flow, until_s);
        Claimed::Now
    }

    pub(crate) fn has_flow(&self, flow: &OwnFlow) -> bool {
        self.flows.contains_key(flow)
    }

    pub(crate) fn has_flows_on(&self, port: &OwnPort) -> bool {
        self.flows.keys().any(|flow| flow.at == *port)
    }

    /// Releases the reserved ports that are not in `wanted`; returns those without flows, which are free.
    pub(crate) fn release_unwanted(&mut self, wanted: &[OwnPort]) -> Vec<OwnPort> {
        let unwanted: Vec<OwnPort> = self
            .ports
            .iter()
            .filter(|(port, whole)| **whole && wanted.binary_search(port).is_err())
            .map(|(port, _)| *port)
            .collect();
        let has_flows = |port: &OwnPort| self.flows.keys().any(|flow| flow.at == *port);
        let (held, free): (Vec<_>, Vec<_>) = unwanted.into_iter().partition(has_flows);
        held.iter().for_each(|port| *self.ports.entry(*port).or_default() = false);
        self.ports.retain(|port, _| !free.contains(port));
        free
    }

    /// Whether a search for expired flows is due.
    pub(crate) fn is_due(&self, now_s: u32) -> bool {
        now_s >= self.next_sweep_s && !self.flows.is_empty()
    }

    /// Removes expired flows. Returns their ports, each with whether it is free: it was held for its flows alone,
    /// and none is left.
    pub(crate) fn sweep(&mut self, now_s: u32) -> Vec<(OwnPort, bool)> {
        self.next_sweep_s = now_s.saturating_add(10);
        let mut ports: Vec<OwnPort> = Vec::new();
        self.flows.retain(|flow, until_s| {
            let lives = *until_s >= now_s;
            if !lives {
                ports.push(flow.at);
            }
            lives
        });
        ports.sort_unstable();
        ports.dedup();
        ports.retain(|port| !self.has_flows_on(port));
        let mut free = |port: OwnPort| {
            let is_free = self.ports.get(&port) == Some(&false);
            if is_free {
                self.ports.remove(&port);
            }
            (port, is_free)
        };
        ports.into_iter().map(&mut free).collect()
    }

    /// The ports reserved as a whole, and the flows with the seconds until which they are claimed.
    pub(crate) fn all(&self) -> (Vec<OwnPort>, Vec<(OwnFlow, u32)>) {
        let whole = self.ports.iter().filter(|(_, whole)| **whole).map(|(port, _)| *port);
        (whole.collect(), self.flows.iter().map(|(flow, until_s)| (*flow, *until_s)).collect())
    }

    /// Numbers of ports and flows.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.ports.len() as u64, self.flows.len() as u64)
    }
}

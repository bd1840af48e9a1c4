//! Public ports and flows of the router itself: its public address is also the address of programs that run on it.
//!
//! | what the router has | what it gets |
//! |---|---|
//! | a socket that anybody may send to (it listens, or is bound and connected to nobody) | the port: sessions never get it, and one that has it ends |
//! | a flow to one remote endpoint, on a port that is free | the port, as long as it has such flows |
//! | the same on a port that a session has | what comes from that endpoint; the session goes on with everybody else |
//!
//! A port forward stays where the configuration has put it. Claims of flows end [`FLOW_LIFE_S`] after they were last
//! made. Tables are bounded; a claim without room is counted, and its flow shares the fate of any packet.

use super::config::NatProtocol;
use super::layout::{End, endpoint_key};
use std::collections::HashMap;

/// Seconds that a flow of the router itself stays claimed. Its owner renews the claim before they are over.
pub(crate) const FLOW_LIFE_S: u32 = 120;
/// Flows that one shard keeps in mind.
const FLOWS_MAX: usize = 1024;

/// A public port of the router's.
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
    /// Where it is on the router.
    pub at: OwnPort,
    /// The other end; its port is 0 for ICMP echo.
    pub remote: std::net::SocketAddrV4,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The flow is the router's, as it was before.
    Already,
    Now,
    /// There is no room.
    NoRoom,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPorts {
    /// Ports that are the router's, and whether as a whole; without, they are while they have flows.
    ports: HashMap<OwnPort, bool>,
    /// Until when each flow is kept in mind: by the port's key and the remote endpoint.
    flows: HashMap<OwnFlow, u32>,
    next_sweep_s: u32,
}

impl OwnPorts {
    /// Whether a port is the router's as a whole.
    pub(crate) fn is_reserved(&self, port: &OwnPort) -> bool {
        self.ports.get(port) == Some(&true)
    }

    /// The router has a port from now on, as a whole or for its flows.
    pub(crate) fn hold(&mut self, port: OwnPort, whole: bool) {
        let held = self.ports.entry(port).or_default();
        *held |= whole;
    }

    /// Keeps a flow in mind until the second given.
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

    /// Whether there is such a flow.
    pub(crate) fn has_flow(&self, flow: &OwnFlow) -> bool {
        self.flows.contains_key(flow)
    }

    /// Whether a port has flows.
    pub(crate) fn has_flows_on(&self, port: &OwnPort) -> bool {
        self.flows.keys().any(|flow| flow.at == *port)
    }

    /// Takes the ports back that are not in `wanted` as a whole any more and have no flows; they are free.
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

    /// Whether it is time to look for flows that are over.
    pub(crate) fn is_due(&self, now_s: u32) -> bool {
        now_s >= self.next_sweep_s && !self.flows.is_empty()
    }

    /// Forgets flows that are over. The ports that had some of them, and whether the router held the port for its flows
    /// alone: then it is free.
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

    /// Ports that are the router's as a whole, and its flows with the seconds until which they are kept in mind.
    pub(crate) fn all(&self) -> (Vec<OwnPort>, Vec<(OwnFlow, u32)>) {
        let whole = self.ports.iter().filter(|(_, whole)| **whole).map(|(port, _)| *port);
        (whole.collect(), self.flows.iter().map(|(flow, until_s)| (*flow, *until_s)).collect())
    }

    /// Ports and flows in numbers.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.ports.len() as u64, self.flows.len() as u64)
    }
}

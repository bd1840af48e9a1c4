//! Tells NAT which public ports the router's own programs use, from their sockets and from the packets they send.
//!
//! ```text
//!   thread "sockets": every second ── the kernel's sockets ──> ports open to any sender: reserved
//!                                                         └──> connections, idle ones too: claimed
//!   thread "mirror":  a frame from the kernel ── from a public address ──> its flow: claimed at once
//! ```
//!
//! NAT decides what a program gets (`crates/dataplane/src/nat/own.rs`). An unconnected UDP socket counts as a
//! service when two consecutive reads have seen it: resolvers open one for a single query, which is a flow.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use thalweg_base::{Chunk, DropReason};
use thalweg_dataplane::nat::{NatProtocol, OwnFlow, OwnPort};
use thalweg_node::plan::NatStage;
use thalweg_node::plan::RouterPlan;
use thalweg_ports::kernel::{SystemSocket, SystemSockets};
use thalweg_ports::live::LiveClock;

use crate::offload::FlowOffload;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the thread sleeps between checks of its stop flag.
const NAP: Duration = Duration::from_millis(100);
/// How often to claim a continuing flow again: several times within NAT's timeout.
const CLAIM_AGAIN_NS: u64 = 20_000_000_000;
/// Flows whose last claim is remembered.
const CLAIMS_MAX: usize = 8192;

/// A flow of a local program, in the form that NAT claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flow {
    WithPorts(OwnFlow),
    /// Protocol, public address, peer.
    Bare(u8, Ipv4Addr, Ipv4Addr),
}

/// Claims flows, but each only every [`CLAIM_AGAIN_NS`].
#[derive(Default)]
struct Claims {
    at_ns: HashMap<Flow, u64>,
}

impl Claims {
    fn claim(&mut self, nat: &NatStage, flow: Flow, now_ns: u64) {
        let is_fresh = |at_ns: &u64| now_ns.saturating_sub(*at_ns) < CLAIM_AGAIN_NS;
        if self.at_ns.get(&flow).is_some_and(is_fresh) {
            return;
        }
        if self.at_ns.len() >= CLAIMS_MAX {
            self.at_ns.retain(|_, at_ns| is_fresh(at_ns));
        }
        if self.at_ns.len() < CLAIMS_MAX {
            self.at_ns.insert(flow, now_ns);
        }
        flow.claim(nat, now_ns);
    }
}

impl Flow {
    fn claim(self, nat: &NatStage, now_ns: u64) {
        match self {
            Flow::WithPorts(flow) => nat.claim(flow, now_ns),
            Flow::Bare(protocol, public, peer) => nat.claim_bare(protocol, public, peer, now_ns),
        }
    }
}

/// Claims the flow of a frame that the router itself sends.
pub(crate) fn claim(nat: &NatStage, frame: &[u8], now_ns: u64) {
    if let Some(flow) = flow_of(frame, |address| nat.is_public(address)) {
        flow.claim(nat, now_ns);
    }
}

/// Claims the flows of frames that the kernel sends through mirrors.
pub(crate) struct OwnTraffic {
    plan: Arc<ArcSwap<RouterPlan>>,
    claims: Claims,
}

impl OwnTraffic {
    pub(crate) fn new(plan: Arc<ArcSwap<RouterPlan>>) -> Self {
        Self { plan, claims: Claims::default() }
    }

    /// Why packets that the kernel sends may not leave, if the firewall has rules about the router's own.
    pub(crate) fn judge(&self, chunk: &mut Chunk) -> Vec<Option<DropReason>> {
        self.plan.load().judge_own(chunk)
    }

    /// Called before a frame is sent.
    pub(crate) fn sent(&mut self, frame: &[u8], now_ns: u64) {
        if let Some(nat) = self.plan.load().nat_stage()
            && let Some(flow) = flow_of(frame, |address| nat.is_public(address))
        {
            self.claims.claim(&nat, flow, now_ns);
        }
    }
}

/// The flow of a frame from a public address to a unicast address.
fn flow_of(frame: &[u8], is_public: impl Fn(Ipv4Addr) -> bool) -> Option<Flow> {
    let packet = frame.get(14..).filter(|_| frame[12..14] == [8, 0])?;
    let header: &[u8; 20] = packet.first_chunk()?;
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let (source, destination) = (address(12), address(16));
    let to_one = !destination.is_broadcast() && !destination.is_multicast();
    if header[0] >> 4 != 4 || !is_public(source) || !to_one {
        return None;
    }
    let Some(protocol) = NatProtocol::from_ip(header[9]) else {
        return Some(Flow::Bare(header[9], source, destination));
    };
    let is_later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let segment = packet.get(usize::from(header[0] & 15) * 4..).filter(|_| !is_later)?;
    let word = |at: usize| Some(u16::from_be_bytes(segment.get(at..at + 2)?.try_into().ok()?));
    let (port, remote_port) = match protocol {
        // Only echo messages have an identifier; an error is no flow.
        NatProtocol::Icmp => (word(4).filter(|_| matches!(segment[0], 0 | 8))?, 0),
        _ => (word(0)?, word(2)?),
    };
    let at = OwnPort { protocol, address: source, port };
    Some(Flow::WithPorts(OwnFlow { at, remote: SocketAddrV4::new(destination, remote_port) }))
}

/// Reads the kernel's sockets and reports them to NAT, on a thread of its own.
pub(crate) struct SocketWatcher {
    plan: Arc<ArcSwap<RouterPlan>>,
    clock: LiveClock,
    offload: Option<Arc<FlowOffload>>,
    sockets: SystemSockets,
    claims: Claims,
    /// UDP ports open to any sender at the last read.
    seen: HashSet<OwnPort>,
    /// What was reserved last, and with which NAT.
    reserved: Vec<OwnPort>,
    told: Option<Arc<NatStage>>,
    is_blind: bool,
}

impl SocketWatcher {
    pub(crate) fn new(
        plan: Arc<ArcSwap<RouterPlan>>,
        clock: LiveClock,
        offload: Option<Arc<FlowOffload>>,
    ) -> Self {
        Self {
            plan,
            clock,
            offload,
            sockets: SystemSockets::open(),
            claims: Claims::default(),
            seen: HashSet::new(),
            reserved: Vec::new(),
            told: None,
            is_blind: false,
        }
    }

    pub(crate) fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.look();
            let until = Instant::now() + LOOK_EVERY;
            while Instant::now() < until && !stop.load(Ordering::Acquire) {
                thread::sleep(NAP);
            }
        }
    }

    fn look(&mut self) {
        let plan = self.plan.load_full();
        let Some(nat) = plan.nat_stage() else { return };
        let sockets = match self.sockets.read() {
            Ok(sockets) => {
                self.is_blind = false;
                sockets
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::warn!(
                        "NAT does not know the ports of the router's own programs: cannot read the system's \
                         sockets: {error}; keep those ports out of [nat] ports until that works"
                    );
                }
                return;
            }
        };
        let wanted = self.tell_apart(&nat, plan.router_addresses(), &sockets);
        let is_same_nat = self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &nat));
        if !is_same_nat || wanted != self.reserved {
            let displaced = nat.counters().router_displaced;
            nat.reserve(&wanted, self.clock.now_ns());
            if nat.counters().router_displaced > displaced
                && let Some(offload) = &self.offload
            {
                offload.invalidate();
            }
            (self.reserved, self.told) = (wanted, Some(nat));
        }
    }

    /// Claims the connections among the sockets. Returns the ports open to any sender, sorted.
    fn tell_apart(
        &mut self,
        nat: &NatStage,
        addresses: &[Ipv4Addr],
        sockets: &[SystemSocket],
    ) -> Vec<OwnPort> {
        let now_ns = self.clock.now_ns();
        let (mut wanted, mut seen) = (Vec::new(), HashSet::new());
        for socket in sockets {
            let Some(protocol) = NatProtocol::from_ip(socket.protocol) else { continue };
            let local =
                addresses.iter().filter(|address| socket.local.is_none_or(|local| local == **address));
            for address in local {
                let port = OwnPort { protocol, address: *address, port: socket.port };
                match (socket.remote, protocol) {
                    (Some(remote), _) => {
                        self.claims.claim(nat, Flow::WithPorts(OwnFlow { at: port, remote }), now_ns);
                    }
                    (None, NatProtocol::Udp) => {
                        if self.seen.contains(&port) {
                            wanted.push(port);
                        }
                        seen.insert(port);
                    }
                    (None, _) => wanted.push(port),
                }
            }
        }
        self.seen = seen;
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, source: [u8; 4], destination: [u8; 4], segment: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 20 + segment.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend(segment);
        frame
    }

    #[test]
    fn flows_of_the_router_are_recognized() {
        const PUBLIC: [u8; 4] = [198, 51, 100, 1];
        let flow = |frame: &[u8]| flow_of(frame, |address| address == Ipv4Addr::from(PUBLIC));
        let to = [203, 0, 113, 7];
        let at = |protocol, port| OwnPort { protocol, address: PUBLIC.into(), port };
        let remote = |port| SocketAddrV4::new(to.into(), port);
        let udp = frame(17, PUBLIC, to, &[0x9c, 0x40, 0, 123, 0, 8, 0, 0]);
        let expected = OwnFlow { at: at(NatProtocol::Udp, 40_000), remote: remote(123) };
        assert_eq!(flow(&udp), Some(Flow::WithPorts(expected)));
        let ping = frame(1, PUBLIC, to, &[8, 0, 0, 0, 0, 77, 0, 1]);
        let expected = OwnFlow { at: at(NatProtocol::Icmp, 77), remote: remote(0) };
        assert_eq!(flow(&ping), Some(Flow::WithPorts(expected)));
        assert_eq!(flow(&frame(47, PUBLIC, to, &[])), Some(Flow::Bare(47, PUBLIC.into(), to.into())));
        let error = frame(1, PUBLIC, to, &[3, 0, 0, 0, 0, 77, 0, 1]);
        let nobodys = [
            frame(17, [10, 1, 0, 1], to, &[0; 8]),
            frame(17, PUBLIC, [224, 0, 0, 5], &[0; 8]),
            frame(17, PUBLIC, to, &[0, 1]),
            frame(1, PUBLIC, to, &[]),
            error,
        ];
        assert!(nobodys.iter().all(|frame| flow(frame).is_none()));
        assert!((0..udp.len()).all(|n| n >= 38 || flow(&udp[..n]).is_none()));
    }
}

//! Decides which flows the kernel forwards, and for how long (see [`thalweg_ports::live::xdp::offload`]).
//!
//! ```text
//! feed: flow seen before? ──candidate: key, generation──> stages ──> sink: what became of it? ──install──> kernel
//! ```
//!
//! The feed notes the flow of some packets before the stages rewrite them; the sink installs what became of those
//! that were sent. A flow becomes a candidate when it is seen twice without others having taken its place in a
//! small table, so a flood of one-packet flows installs little. At most [`LOOKS`] packets of a chunk are examined.
//!
//! Every packet of a class with a policer, and of a port with a queue, an ACL or a tag, needs the stages; so these
//! flows are not offloaded, nor are those that leave through TAPs. A firewall decides about a flow when it begins, and
//! the XDP program hands up whatever begins or ends TCP; but rules about established packets, and windows, need every
//! packet. Counters of rules do not count what the kernel forwards. A thread advances the clock of leases, and ends
//! all leases when the forwarding tables change, so a change reaches offloaded flows within [`LOOK_EVERY`]; BGP's
//! routes change all the time, so their changes count only once a second.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use thalweg_base::{Chunk, NO_SHARD, Packet, PacketFlags};
use thalweg_config::{Driver, PortConfig, RouterConfig};
use thalweg_node::egress::has_queues;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_ports::kernel::{DriverFeatures, KernelError};
use thalweg_ports::live::PortFacts;
use thalweg_ports::live::link::Links;
use thalweg_ports::live::xdp::offload::{Egress, FlowAction, FlowKey, Offload, OffloadOptions};

/// Packets examined per chunk.
const LOOKS: usize = 128;
/// Sets of places for flows seen once, and the places of a set. With one place, two flows that take turns never see
/// their own note again, and of 60,000 flows some 3,000 share a place.
const SETS: usize = 1 << 18;
const PLACES: usize = 4;
/// Slots for chunks with candidates: more than can be between feed and sink.
const WAITING: usize = 64;
/// How often the clock of leases advances.
pub(crate) const TURN: Duration = Duration::from_millis(100);
/// How often to compare the forwarding tables' number of changes: until then, offloaded packets may leave by a dead
/// link.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Turns per second. Once a second, drivers are checked for redirected packets and changes of BGP's routes end
/// leases; if they did so more often, a full table would leave no leases.
const TURNS_PER_S: u32 = 10;
/// The longest lease: a long flow passes through the router this often.
const LEASE_MAX_S: u32 = 30;
/// Only packets that pass the router keep a NAT session alive, so a lease lasts for this part of the shortest
/// timeout.
const TIMEOUT_PART: u32 = 4;
/// Below this timeout, flows are not offloaded.
const TIMEOUT_MIN_S: u32 = 4;

/// Packets and bytes that the kernel forwarded, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloaded {
    /// Packets and bytes that arrived at the port.
    pub received: (u64, u64),
    /// Packets and bytes that left through the port.
    pub sent: (u64, u64),
}

/// The router's side of flow offload; see the module.
pub(crate) struct FlowOffload {
    /// By ingress port.
    ports: Vec<Option<Arc<Offload>>>,
    /// By egress port; `None` for ports that no flow may leave through.
    ways_out: Vec<Option<WayOut>>,
    rules: ArcSwap<Rules>,
    candidates: [Mutex<Candidates>; WAITING],
    refused: AtomicU64,
    /// By port, the number of pauses that hold.
    paused: Vec<AtomicU32>,
}

struct WayOut {
    /// The interface is found again by its name if it disappears and returns.
    name: String,
    /// The interface index; zero while there is no such interface.
    interface: AtomicU32,
    mtu: AtomicU32,
    /// Whether its driver accepts frames that XDP programs of other drivers redirect.
    takes_redirected: AtomicBool,
}

#[derive(Default)]
struct Candidates {
    chunk: u64,
    flows: Vec<Candidate>,
}

#[derive(Clone, Copy)]
struct Candidate {
    index: u16,
    generation: u32,
    key: FlowKey,
}

impl FlowOffload {
    /// `None` if no port offloads flows.
    pub(crate) fn new(
        config: &RouterConfig,
        ports: Vec<Option<Arc<Offload>>>,
        facts: &[&PortFacts],
    ) -> Option<Arc<Self>> {
        ports.iter().any(Option::is_some).then_some(())?;
        let ways_out = config.ports.iter().zip(facts).map(|(port, facts)| {
            let driver = port.interface.as_ref().map(|interface| interface.driver);
            let takes = driver.is_some_and(Driver::takes_interface)
                && port.sub_interface.is_none()
                && facts.far_end.is_none();
            let mtu = AtomicU32::new(facts.mtu.min(port.mtu.into()));
            let (name, interface) = (facts.interface.clone(), AtomicU32::new(facts.index));
            takes.then_some(WayOut { name, interface, mtu, takes_redirected: AtomicBool::new(false) })
        });
        let rules = Rules::of(config);
        let lease_s = rules.lease_s;
        let this = Self {
            ports,
            ways_out: ways_out.collect(),
            rules: ArcSwap::from_pointee(rules),
            candidates: std::array::from_fn(|_| Mutex::default()),
            refused: AtomicU64::new(0),
            paused: config.ports.iter().map(|_| AtomicU32::new(0)).collect(),
        };
        this.set_lease(lease_s);
        Some(Arc::new(this))
    }

    /// Applies another configuration and ends all leases. No packet may be between feed and sink.
    pub(crate) fn set_rules(&self, mut rules: Rules) {
        self.set_lease(rules.lease_s);
        self.forget_others(&mut rules);
        self.rules.store(Arc::new(rules));
        self.invalidate();
    }

    /// No flow leaves through ports that a reload added or moved: only interfaces known at the start are used.
    fn forget_others(&self, rules: &mut Rules) {
        for (place, (lets_out, interface)) in rules.lets_out.iter_mut().zip(&rules.interfaces).enumerate() {
            let way = self.ways_out.get(place).and_then(Option::as_ref);
            *lets_out &= way.is_some_and(|way| interface.as_ref() == Some(&way.name));
        }
    }

    fn set_lease(&self, seconds: u32) {
        self.ports.iter().flatten().for_each(|offload| offload.set_lease(seconds * TURNS_PER_S));
    }

    /// Installs the chunk's candidates that were sent. `number` counts chunks over all lanes and is the one given
    /// to [`Sampler::look_at`].
    pub(crate) fn install(&self, chunk: &Chunk, number: u64) {
        let mut waiting = self.waiting(number);
        if waiting.chunk != number {
            return;
        }
        // A farm's chunk arrives in parts; keep candidates that are in another part.
        waiting.flows.retain(|candidate| {
            // A packet is at its index unless classes were reordered.
            let is_it = |packet: &Packet| packet.index == candidate.index;
            let packets = chunk.packets();
            let place = Some(usize::from(candidate.index)).filter(|at| packets.get(*at).is_some_and(is_it));
            let Some(place) = place.or_else(|| packets.iter().position(is_it)) else { return true };
            self.install_flow(candidate, chunk, place);
            false
        });
    }

    fn install_flow(&self, candidate: &Candidate, chunk: &Chunk, place: usize) {
        let packet = &chunk.packets()[place];
        let is_paused = self.is_paused(packet.port_in) || self.is_paused(packet.port_out);
        // A helper reads every packet of such a flow.
        let is_hairpin = packet.flags.has(PacketFlags::NAT_OUT | PacketFlags::NAT_IN);
        let is_read = packet.crossing_shard != NO_SHARD && !is_hairpin;
        if is_paused || is_read || !packet.is_alive() || !self.rules.load().allow(packet) {
            return;
        }
        let Some(Some(offload)) = self.ports.get(usize::from(packet.port_in)) else { return };
        let Some(Some(way)) = self.ways_out.get(usize::from(packet.port_out)) else { return };
        let (interface, mtu) = (way.interface.load(Ordering::Relaxed), way.mtu.load(Ordering::Relaxed));
        if interface == 0 || offload.is_native() && !way.takes_redirected.load(Ordering::Relaxed) {
            return;
        }
        let egress = Egress { port: packet.port_out, interface, mtu };
        let Some(action) = FlowAction::between(&candidate.key, chunk.egress_frame(place), egress) else {
            return;
        };
        if let Err(error) = offload.install(&candidate.key, &action, candidate.generation)
            && self.refused.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!("cannot offload a flow, and perhaps others: {error}");
        }
    }

    /// Ends all leases because something that decides about packets has changed.
    pub(crate) fn invalidate(&self) {
        self.each(Offload::invalidate);
    }

    /// Has all packets that arrive at or leave through `port` (`None`: any port) pass the stages until the result
    /// is dropped. A candidate chosen earlier has an old generation and is not installed; one chosen later finds
    /// the pause.
    pub(crate) fn pause(self: &Arc<Self>, port: Option<u16>) -> OffloadPause {
        let all = 0..self.paused.len() as u16;
        let ports: Vec<u16> = all.filter(|each| port.is_none_or(|port| port == *each)).collect();
        for port in &ports {
            self.paused[usize::from(*port)].fetch_add(1, Ordering::SeqCst);
        }
        self.invalidate();
        OffloadPause { offload: self.clone(), ports }
    }

    fn is_paused(&self, port: u16) -> bool {
        self.paused.get(usize::from(port)).is_some_and(|paused| paused.load(Ordering::SeqCst) > 0)
    }

    /// Advances the clock of leases until `stop` returns true, and ends all leases when tables, interfaces or
    /// drivers change.
    pub(crate) fn run(&self, tables: &ForwardingTables, stop: impl Fn() -> bool) {
        let (mut links, mut has_failed) = (None, false);
        let mut features = self.features();
        let mut seen_routes = None;
        let mut seen = None;
        for turn in 0_u32.. {
            if stop() {
                return;
            }
            let route_changes = self.look_at_tables(tables);
            let found = self.find_interfaces(&mut links);
            if let (Err(error), false) = (&found, has_failed) {
                tracing::warn!("cannot watch for interfaces that return: {error}");
            }
            has_failed = found.is_err();
            let mut has_moved = found.unwrap_or(false);
            let is_new_second = turn.is_multiple_of(TURNS_PER_S);
            if let Some(features) = features.as_mut().filter(|_| is_new_second) {
                has_moved |= self.look_at_features(features).unwrap_or_else(|error| {
                    tracing::warn!("cannot ask what drivers support: {error}");
                    false
                });
            }
            if is_new_second {
                has_moved |= seen_routes.replace(route_changes).is_some_and(|before| before != route_changes);
            }
            if has_moved {
                self.invalidate();
            }
            self.each(Offload::advance);
            self.look_for_changes(tables, &mut seen, &stop);
        }
    }

    /// Copies the ports' MTUs; no frame fits where the header would have to come off. Returns the number of the last
    /// change of BGP's routes.
    fn look_at_tables(&self, tables: &ForwardingTables) -> u64 {
        let tables = tables.read();
        for (port, way) in (0..).zip(&self.ways_out) {
            if let (Some(way), Some(link)) = (way, tables.port(port)) {
                way.mtu.store(if link.far_end.is_some() { 0 } else { link.mtu }, Ordering::Relaxed);
            }
        }
        tables.route_changes()
    }

    /// Waits for one turn, and ends leases whenever the tables change meanwhile.
    fn look_for_changes(&self, tables: &ForwardingTables, seen: &mut Option<u64>, stop: impl Fn() -> bool) {
        let until = Instant::now() + TURN;
        while Instant::now() < until && !stop() {
            let changes = tables.read().changes();
            if seen.replace(changes).is_some_and(|before| before != changes) {
                self.invalidate();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns whether an interface has disappeared, returned or been replaced.
    fn find_interfaces(&self, links: &mut Option<Links>) -> io::Result<bool> {
        let links = match links {
            Some(links) => links,
            None => links.insert(Links::open()?),
        };
        let mut has_moved = false;
        for way in self.ways_out.iter().flatten() {
            let now = links.index(&way.name).unwrap_or(0);
            has_moved |= way.interface.swap(now, Ordering::Relaxed) != now;
        }
        Ok(has_moved)
    }

    /// Needed only in native mode: an XDP program in a driver can only redirect to drivers that accept it.
    fn features(&self) -> Option<DriverFeatures> {
        self.ports.iter().flatten().any(|offload| offload.is_native()).then_some(())?;
        let refused = |error: &KernelError| tracing::warn!("flows are not offloaded in native mode: {error}");
        DriverFeatures::open().inspect_err(refused).ok()
    }

    /// Returns whether a driver no longer accepts redirected frames.
    fn look_at_features(&self, features: &mut DriverFeatures) -> Result<bool, KernelError> {
        let takers = features.takes_redirected()?;
        let mut has_lost = false;
        for way in self.ways_out.iter().flatten() {
            let takes = takers.contains(&way.interface.load(Ordering::Relaxed));
            let took = way.takes_redirected.swap(takes, Ordering::Relaxed);
            if took != takes {
                tracing::info!(
                    interface = way.name,
                    "flows of ports in native mode are {}handed over to it",
                    if takes { "" } else { "not " }
                );
            }
            has_lost |= took && !takes;
        }
        Ok(has_lost)
    }

    fn each(&self, act: impl Fn(&Offload) -> io::Result<()>) {
        for offload in self.ports.iter().flatten() {
            if let Err(error) = act(offload) {
                tracing::error!("cannot invalidate offloaded flows after a change: {error}");
            }
        }
    }

    /// What the kernel forwarded, by port.
    pub(crate) fn forwarded(&self) -> Vec<Offloaded> {
        let mut sums = vec![Offloaded::default(); self.ports.len()];
        for (came_in, offload) in self.ports.iter().enumerate() {
            let counts = offload.as_ref().map(|offload| offload.forwarded());
            for (left, (packets, bytes)) in counts.into_iter().flatten().flatten().enumerate() {
                let add = |sum: (u64, u64)| (sum.0 + packets, sum.1 + bytes);
                sums[came_in].received = add(sums[came_in].received);
                sums[left].sent = add(sums[left].sent);
            }
        }
        sums
    }

    fn waiting(&self, chunk: u64) -> parking_lot::MutexGuard<'_, Candidates> {
        let slot = &self.candidates[(chunk % WAITING as u64) as usize];
        slot.lock()
    }
}

/// Keeps flows out of the kernel until it is dropped.
pub(crate) struct OffloadPause {
    offload: Arc<FlowOffload>,
    ports: Vec<u16>,
}

impl OffloadPause {
    /// The paused ports among those that offload flows.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let takes = |port: &u16| self.offload.ports.get(usize::from(*port)).is_some_and(Option::is_some);
        let ports = &self.ports;
        ports.iter().copied().filter(takes)
    }
}

impl Drop for OffloadPause {
    fn drop(&mut self) {
        for port in &self.ports {
            self.offload.paused[usize::from(*port)].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The most flows of one port in the kernel, for IPv4 and IPv6 each: some 70 MB of its memory.
const FLOWS: u32 = 1 << 18;

/// Makes the kernel's tables for a port's flows if the configuration wants them. If that fails, the port works
/// without.
pub(crate) fn flows_of(
    config: &RouterConfig,
    port: &PortConfig,
    carries_vlans: bool,
) -> Option<Arc<Offload>> {
    port.interface.as_ref().filter(|interface| interface.offload)?;
    if carries_vlans {
        // The XDP program does not see a tag that the driver strips from the frame.
        tracing::warn!(port = port.name, "flows are not offloaded: the port carries VLANs");
        return None;
    }
    match Offload::create(&OffloadOptions { flows: FLOWS, ports: config.ports.len() as u32 }) {
        Ok(offload) => Some(Arc::new(offload)),
        Err(error) => {
            tracing::warn!(port = port.name, "flows are not offloaded: {error}");
            None
        }
    }
}

/// Which flows the configuration allows in the kernel.
pub(crate) struct Rules {
    /// By ingress port; `lets_out` by egress port.
    takes: Vec<bool>,
    lets_out: Vec<bool>,
    /// By port.
    interfaces: Vec<Option<String>>,
    is_policed: Vec<bool>,
    lease_s: u32,
}

impl Rules {
    pub(crate) fn of(config: &RouterConfig) -> Self {
        let lease_s = lease_s(config);
        let lasts = lease_s > 0;
        if !lasts {
            tracing::warn!(
                "flows are not offloaded: a timeout of [nat.timeouts] or [firewall.timeouts] is below {TIMEOUT_MIN_S} s"
            );
        }
        let needs_all = config.firewall.as_ref().is_some_and(|config| config.firewall.needs_every_packet());
        if needs_all {
            tracing::warn!(
                "flows are not offloaded: the firewall checks windows, or has rules about established packets"
            );
        }
        let lasts = lasts && !needs_all;
        // The packets of one flow may differ in it.
        let asks_dscp = config.routing.rules.iter().any(|rule| !rule.rule.dscp.is_empty());
        let lets_out = (0u16..).zip(&config.ports);
        let interface = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.name.clone());
        Self {
            interfaces: config.ports.iter().map(interface).collect(),
            takes: config.ports.iter().map(|port| lasts && !asks_dscp && port.acl_in.is_none()).collect(),
            lets_out: lets_out.map(|(i, port)| port.acl_out.is_none() && !has_queues(config, i)).collect(),
            is_policed: config.qos.classes.iter().map(|class| class.policer.is_some()).collect(),
            lease_s,
        }
    }

    fn allow(&self, packet: &Packet) -> bool {
        let of = |list: &[bool], place: usize| list.get(place).copied().unwrap_or(false);
        of(&self.takes, packet.port_in.into())
            && of(&self.lets_out, packet.port_out.into())
            && !of(&self.is_policed, packet.class.into())
    }
}

/// The length of a lease in seconds; 0 if NAT sessions or the firewall's connections would not outlive it.
fn lease_s(config: &RouterConfig) -> u32 {
    let nat = config.nat.as_ref().map(|nat| {
        let timeouts = &nat.timeouts;
        timeouts.udp_s.min(timeouts.tcp_established_s).min(timeouts.tcp_transitory_s)
    });
    let firewall = config.firewall.as_ref().map(|config| {
        let timeouts = &config.firewall.timeouts;
        timeouts.udp_s.min(timeouts.tcp_established_s).min(timeouts.tcp_transitory_s)
    });
    let shortest = nat.into_iter().chain(firewall).min();
    shortest.map_or(LEASE_MAX_S, |timeout| (timeout / TIMEOUT_PART).min(LEASE_MAX_S))
}

/// Chooses candidates where chunks enter; one per feed.
pub(crate) struct Sampler {
    offload: Arc<FlowOffload>,
    seen: Seen,
    turn: usize,
    /// By port, read anew for each chunk; kept to reuse the memory.
    generations: Vec<Option<u32>>,
}

impl Sampler {
    pub(crate) fn new(offload: Arc<FlowOffload>) -> Self {
        Self { offload, seen: Seen::new(), turn: 0, generations: Vec::new() }
    }

    /// Examines some packets of a chunk before the stages. `number` counts chunks over all lanes.
    pub(crate) fn look_at(&mut self, chunk: &Chunk, number: u64) {
        let packets = chunk.packets().len();
        let generations = self.offload.ports.iter().map(|port| port.as_ref().map(|port| port.generation()));
        self.generations.clear();
        self.generations.extend(generations);
        let mut waiting = self.offload.waiting(number);
        waiting.chunk = number;
        waiting.flows.clear();
        self.turn = self.turn.wrapping_add(LOOKS);
        for look in 0..packets.min(LOOKS) {
            let at = (self.turn + look) % packets;
            let packet = &chunk.packets()[at];
            let generation = self.generations.get(usize::from(packet.port_in)).copied().flatten();
            let Some(generation) = generation else { continue };
            let Some(key) = FlowKey::of_frame(chunk.frame(at)) else { continue };
            if self.seen.again(key.hash()) {
                waiting.flows.push(Candidate { index: packet.index, generation, key });
            }
        }
    }
}

/// The flows seen lately, by hash.
struct Seen(Vec<[u32; PLACES]>);

impl Seen {
    fn new() -> Self {
        Self(vec![[0; PLACES]; SETS])
    }

    /// Notes a flow in place of the oldest of its set; returns whether it was there already. A free place holds
    /// zero, so a flow that hashes to zero is there from the start, which is harmless.
    fn again(&mut self, hash: u32) -> bool {
        let set = &mut self.0[hash as usize % SETS];
        let is_there = set.contains(&hash);
        if !is_there {
            set.rotate_right(1);
            set[0] = hash;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_take_turns_are_all_seen_again() {
        let mut seen = Seen::new();
        let flows: Vec<u32> = (1..=PLACES as u32).map(|turn| turn * SETS as u32 + 7).collect();
        assert!(flows.iter().all(|flow| !seen.again(*flow)));
        assert!(flows.iter().all(|flow| seen.again(*flow)));
    }

    #[test]
    fn a_flood_of_flows_in_one_place_forgets_a_flow() {
        let mut seen = Seen::new();
        let flood = (1..=PLACES as u32 + 1).map(|turn| turn * SETS as u32 + 7);
        assert!(flood.clone().all(|flow| !seen.again(flow)));
        assert!(!seen.again(SETS as u32 + 7));
    }
}

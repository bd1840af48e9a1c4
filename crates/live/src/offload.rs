//! Flows handed to the kernel: which, when, and for how long (see [`thalweg_ports::live::xdp::offload`]).
//!
//! ```text
//! feed: a packet of a flow seen before? ──candidate: key, generation──> stages ──> sink: what became of it? ──install──> kernel
//! ```
//!
//! The feed notes the flow of some packets before the stages rewrite them, the sink installs what has become of those
//! that went out. A flow has to be seen twice while its place in a small table is its own, so that a flood of flows
//! of one packet each installs little; and no chunk is looked at beyond [`LOOKS`] packets.
//!
//! Not handed over: flows of classes with a policer, through ports with a queue or an access list or a tag, and out of
//! TAPs; for those every packet has something to say. A thread turns the clock of leases, and ends all of them when
//! the forwarding tables have changed, so a change reaches flows in the kernel within [`LOOK_EVERY`]; BGP's routes, which
//! change all the time, within a second.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use thalweg_base::{Chunk, Packet};
use thalweg_config::{Driver, PortConfig, RouterConfig};
use thalweg_node::egress::has_queues;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_ports::kernel::{DriverFeatures, KernelError};
use thalweg_ports::live::PortFacts;
use thalweg_ports::live::link::Links;
use thalweg_ports::live::xdp::offload::{Egress, FlowAction, FlowKey, Offload, OffloadOptions};

/// Limit of packets to examine in a chunk.
const LOOKS: usize = 128;
/// Flows that are remembered as seen once; a power of two.
const SEEN: usize = 1 << 20;
/// Chunks whose candidates wait: as many as can be on their way, and more.
const WAITING: usize = 64;
/// How often the clock of leases turns.
pub(crate) const TURN: Duration = Duration::from_millis(100);
/// How often to check whether the forwarding tables have changed: packets of leases go by a dead link until then.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Rounds per second: how often drivers are checked for still taking what is redirected, and the upper limit for changes of
/// BGP's routes end leases, or a full table would leave none.
const TURNS_PER_S: u32 = 10;
/// The longest lease, seconds: a long flow passes through the router this often.
const LEASE_MAX_S: u32 = 30;
/// NAT's sessions must outlive the leases of their flows. Only packets that come up keep them alive, so a lease lasts for
/// this part of the shortest timeout.
const TIMEOUT_PART: u32 = 4;
/// Timeouts below this leave no lease. Seconds.
const TIMEOUT_MIN_S: u32 = 4;

/// Packets and bytes that the kernel forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloaded {
    /// That came in by the port.
    pub received: (u64, u64),
    /// That left by the port.
    pub sent: (u64, u64),
}

/// See the module.
pub(crate) struct FlowOffload {
    /// By the port that flows come in by.
    ports: Vec<Option<Arc<Offload>>>,
    /// By the port that they leave by.
    ways_out: Vec<Option<WayOut>>,
    rules: ArcSwap<Rules>,
    candidates: [Mutex<Candidates>; WAITING],
    refused: AtomicU64,
    /// By port, how many want all of its packets to come up.
    paused: Vec<AtomicU32>,
}

struct WayOut {
    /// Its name, by which it is found again when it was away.
    name: String,
    /// Its number; zero while it is away.
    interface: AtomicU32,
    mtu: AtomicU32,
    /// Whether its driver takes what programs in other drivers redirect to it.
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
    /// For a router's ports with what they have; `None` if none has anything.
    pub(crate) fn new(
        config: &RouterConfig,
        ports: Vec<Option<Arc<Offload>>>,
        facts: &[&PortFacts],
    ) -> Option<Arc<Self>> {
        ports.iter().any(Option::is_some).then_some(())?;
        let ways_out = config.ports.iter().zip(facts).map(|(port, facts)| {
            let driver = port.interface.as_ref().map(|interface| interface.driver);
            let takes = driver.is_some_and(Driver::takes_interface) && port.sub_interface.is_none();
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

    /// Another configuration is in force; no packet is on its way. All leases end.
    pub(crate) fn set_rules(&self, mut rules: Rules) {
        self.set_lease(rules.lease_s);
        self.forget_others(&mut rules);
        self.rules.store(Arc::new(rules));
        self.invalidate();
    }

    /// Ports that a reload has brought take no part: flows leave by the interfaces that ports had at the start.
    fn forget_others(&self, rules: &mut Rules) {
        for (place, (lets_out, interface)) in rules.lets_out.iter_mut().zip(&rules.interfaces).enumerate() {
            let way = self.ways_out.get(place).and_then(Option::as_ref);
            *lets_out &= way.is_some_and(|way| interface.as_ref() == Some(&way.name));
        }
    }

    fn set_lease(&self, seconds: u32) {
        self.ports.iter().flatten().for_each(|offload| offload.set_lease(seconds * TURNS_PER_S));
    }

    /// Installs what has become of the candidates of the chunk, whose number among all lanes' this is.
    pub(crate) fn install(&self, chunk: &Chunk, number: u64) {
        let mut waiting = self.waiting(number);
        if waiting.chunk != number {
            return;
        }
        // A farm's chunks come in parts: a flow that is not in this part is in another.
        waiting.flows.retain(|candidate| {
            // Packets are where they were unless classes changed their order.
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
        if is_paused || !packet.is_alive() || !self.rules.load().allow(packet) {
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

    /// Ends all leases: something that decides about packets has changed.
    pub(crate) fn invalidate(&self) {
        self.each(Offload::invalidate);
    }

    /// Has all packets that come in or leave by a port, or by any, come up for as long as the answer lives. A flow whose
    /// candidate was chosen before has the generation of before, and is not installed; one chosen later finds the pause.
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

    /// Turns the clock of leases until `stop` says so, and ends all when the tables have changed.
    pub(crate) fn run(&self, tables: &ForwardingTables, stop: impl Fn() -> bool) {
        let links = Links::open()
            .inspect_err(|error| tracing::warn!("cannot watch for interfaces that return: {error}"))
            .ok();
        let mut features = self.features();
        let mut seen_routes = None;
        let mut seen = None;
        for turn in 0_u32.. {
            if stop() {
                return;
            }
            let route_changes = self.look_at_tables(tables);
            let mut has_moved = self.find_interfaces(&links);
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

    /// Notes the MTUs of ports. The number of the last change of BGP's routes.
    fn look_at_tables(&self, tables: &ForwardingTables) -> u64 {
        let tables = tables.read();
        for (port, way) in (0..).zip(&self.ways_out) {
            if let (Some(way), Some(link)) = (way, tables.port(port)) {
                way.mtu.store(link.mtu, Ordering::Relaxed);
            }
        }
        tables.route_changes()
    }

    /// Spends a turn looking at the tables, and ends leases whenever they have changed.
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

    /// Whether an interface has gone, or is another one now.
    fn find_interfaces(&self, links: &Option<Links>) -> bool {
        let mut has_moved = false;
        for way in self.ways_out.iter().flatten() {
            let Some(links) = links else { continue };
            let now = links.index(&way.name).unwrap_or(0);
            has_moved |= way.interface.swap(now, Ordering::Relaxed) != now;
        }
        has_moved
    }

    /// Where to ask what drivers can do, if it matters: a program that runs in a driver can only redirect to drivers that
    /// take it.
    fn features(&self) -> Option<DriverFeatures> {
        self.ports.iter().flatten().any(|offload| offload.is_native()).then_some(())?;
        let refused = |error: &KernelError| tracing::warn!("flows are not offloaded in native mode: {error}");
        DriverFeatures::open().inspect_err(refused).ok()
    }

    /// Whether a port does not take any more what it took.
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

/// Flows go into the kernel again when this goes.
pub(crate) struct OffloadPause {
    offload: Arc<FlowOffload>,
    ports: Vec<u16>,
}

impl OffloadPause {
    /// The ports that take or send flows in the kernel otherwise.
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

/// Flows of a port that the kernel forwards at most, of IPv4 and of IPv6 each: some 70 MB of its memory.
const FLOWS: u32 = 1 << 18;

/// Tables for a port's flows, if it is to have some. Without them the port works, and all packets go up.
pub(crate) fn flows_of(
    config: &RouterConfig,
    port: &PortConfig,
    carries_vlans: bool,
) -> Option<Arc<Offload>> {
    port.interface.as_ref().filter(|interface| interface.offload)?;
    if carries_vlans {
        // A tag beside the frame is not seen by the program.
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

/// Which flows may be handed over, by what a configuration says.
pub(crate) struct Rules {
    /// By the port they come in by, and by the one they leave by.
    takes: Vec<bool>,
    lets_out: Vec<bool>,
    /// By port, its interface.
    interfaces: Vec<Option<String>>,
    is_policed: Vec<bool>,
    lease_s: u32,
}

impl Rules {
    /// Those of a configuration.
    pub(crate) fn of(config: &RouterConfig) -> Self {
        let lease_s = lease_s(config);
        let lasts = lease_s > 0;
        if !lasts {
            tracing::warn!("flows are not offloaded: a timeout of [nat.timeouts] is below {TIMEOUT_MIN_S} s");
        }
        let lets_out = (0u16..).zip(&config.ports);
        let interface = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.name.clone());
        Self {
            interfaces: config.ports.iter().map(interface).collect(),
            takes: config.ports.iter().map(|port| lasts && port.acl_in.is_none()).collect(),
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

/// How long a flow is left to the kernel, in seconds; 0 if sessions of NAT would not outlive it.
fn lease_s(config: &RouterConfig) -> u32 {
    let shortest = config.nat.as_ref().map(|nat| {
        let timeouts = &nat.timeouts;
        timeouts.udp_s.min(timeouts.tcp_established_s).min(timeouts.tcp_transitory_s)
    });
    shortest.map_or(LEASE_MAX_S, |timeout| (timeout / TIMEOUT_PART).min(LEASE_MAX_S))
}

/// Chooses candidates where chunks come in. Used by one thread.
pub(crate) struct Sampler {
    offload: Arc<FlowOffload>,
    seen: Vec<u32>,
    turn: usize,
    /// By port, as a chunk found them; kept for its memory.
    generations: Vec<Option<u32>>,
}

impl Sampler {
    pub(crate) fn new(offload: Arc<FlowOffload>) -> Self {
        Self { offload, seen: vec![0; SEEN], turn: 0, generations: Vec::new() }
    }

    /// Looks at some packets of a chunk that no stage has seen yet, and whose number among all lanes' this is.
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
            let hash = key.hash();
            let seen = &mut self.seen[hash as usize % SEEN];
            // Zero is nobody, or somebody rare.
            if std::mem::replace(seen, hash) == hash {
                waiting.flows.push(Candidate { index: packet.index, generation, key });
            }
        }
    }
}

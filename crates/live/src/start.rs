//! Assembles a live router from its configuration, and starts its threads.
//!
//! The order: open the ports and put what was found into the tables; make what threads share and the channels
//! between them; hand each side its part; start the threads, the packet thread last. If a step fails, dropping the
//! router stops what was started.

use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, bounded};
use ipnet::{IpNet, Ipv4Net};
use thalweg_base::NO_PORT;
use thalweg_config::{PortConfig, RouterConfig};
use thalweg_dataplane::egress::EgressQueue;
use thalweg_dataplane::icmp::{IcmpConfig, IcmpWriter};
use thalweg_dataplane::nat::NatConfig;
use thalweg_dataplane::neighbor::{NeighborConfig, PortIdentity};
use thalweg_dataplane::vlan::VlanTable;
use thalweg_dataplane::vrrp::{VirtualRouters, VrrpConfig};
use thalweg_exec::{Priority, Rank};
use thalweg_node::egress::{egress_config, has_queues};
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::live_tables::PortLink;
use thalweg_node::plan::RouterPlan;
use thalweg_node::{BuildError, sub_interfaces};
use thalweg_ports::live::link::ReadLink;
use thalweg_ports::live::{LiveClock, LiveSource, PortFacts, SourceOptions};

use crate::counters::{ADDED_MAX, Counters};
use crate::feed::Feed;
use crate::halves::HalvesSlot;
use crate::host::{Host, Intake, NatPorts, Parts, PortMacs, Question};
use crate::inject::{InjectedRx, Injector, injection};
use crate::lanes::{LaneNumber, QueueRx, check_named, deal, lanes_wanted};
use crate::links::{LinkWatcher, WatchChange, Watched};
use crate::mirror::{Forwarder, MirrorHalves, Mirrors};
use crate::offload::{FlowOffload, Sampler};
use crate::open::{OpenError, start_dpdk};
use crate::outbox::{Outbox, Outboxes};
use crate::own_ports::{OwnTraffic, SocketWatcher};
use crate::packets::{Exchange, Packets};
use crate::port_mac::PortMac;
use crate::ports::{self, PortState, PortStates, frame_bytes_max};
use crate::punt::{LinkChange, Punt, ToHost};
use crate::received::Received;
use crate::router::{LiveOptions, LiveRouter, refusal};
use crate::sink::{LiveSink, SinkParts};
use crate::standby::{Secret, StandbyThread};
use crate::vlan;
use crate::workers::Workers;

/// How often to expire flows, since a flow without packets does not end by itself.
const FLOWS_TURN: Duration = Duration::from_millis(250);

/// Capacity of each of the host thread's queues: some milliseconds of its work.
const PUNTS_MAX: usize = 4096;

const NEWS_MAX: usize = 64;

/// A lane's source, with the port and queue number of each of its receiving halves.
type LaneSource = (LiveSource, Vec<(u16, u16)>);

struct Opened {
    halves: Vec<QueueRx>,
    outboxes: Outboxes,
    states: PortStates,
    offload: Option<Arc<FlowOffload>>,
    virtual_macs: PortMacs,
    /// By port, what reads the link's state if the kernel does not report it.
    links: Vec<Option<Box<dyn ReadLink>>>,
}

/// Both ends of the channels between threads.
struct Ways {
    to_host: ToHost,
    intake: Intake,
    questions: Sender<Question>,
    changes: Sender<LinkChange>,
    injector: Injector,
    injected: InjectedRx,
}

impl Ways {
    fn new(counters: &Arc<Counters>) -> Result<Self, OpenError> {
        let (host_frames, host_frames_receiver): (Sender<Punt>, Receiver<Punt>) = bounded(PUNTS_MAX);
        let (slow_path, slow_path_receiver) = bounded(PUNTS_MAX);
        let (questions, asked) = bounded(NEWS_MAX);
        let (changes, links) = bounded(NEWS_MAX);
        let (injector, injected) = injection(counters.clone()).map_err(OpenError::System)?;
        let intake = Intake {
            host_frames: host_frames_receiver,
            slow_path: slow_path_receiver,
            questions: asked,
            links,
        };
        Ok(Self {
            to_host: ToHost { host_frames, slow_path },
            intake,
            questions,
            changes,
            injector,
            injected,
        })
    }
}

impl LiveRouter {
    /// Opens the ports and starts all threads. The ports of `tables`, made from the same configuration, are updated
    /// with what was found. Fails if a port cannot be opened or a thread cannot start; nothing keeps running then.
    pub fn start(
        config: &RouterConfig,
        tables: Arc<ForwardingTables>,
        options: &LiveOptions,
    ) -> Result<Self, OpenError> {
        check_named(config, &options.model)?;
        let secret = config.standby.as_ref().map(|standby| Secret::read(&standby.key)).transpose();
        let secret = secret.map_err(OpenError::Standby)?;
        let run = options.seed;
        let seed = secret.as_ref().map_or(options.seed, Secret::seed);
        let options = &LiveOptions { seed, ..options.clone() };
        let names = config.ports.iter().map(|port| port.name.clone()).collect();
        let counters = Arc::new(Counters::named(names, ADDED_MAX));
        counters.taps.set_classes(class_names(config));
        let mut opened = open_all(config, lanes_wanted(&options.model), &counters)?;
        let own_links = std::mem::take(&mut opened.links);
        let ports = live_ports(config, &opened.states);
        update_tables(&tables, &ports);
        let Ways { to_host, intake, questions, changes, injector, injected } = Ways::new(&counters)?;
        let (watch, watch_changes) = bounded(NEWS_MAX);
        let (mirrors, mirror_halves) = open_mirrors(&ports)?;
        let plan = plan(config, &tables, options)?;
        let lanes = deal(std::mem::take(&mut opened.halves), lanes_wanted(&options.model));
        let mut router = Self::assemble(
            config,
            tables,
            options,
            (opened, counters),
            plan,
            (questions, watch),
            lanes.len(),
        );
        let standby = router.open_standby(config, secret, run)?;
        let host = router.host(config, options, &ports, injector, mirrors);
        let sources = router.live_sources(lanes, injected, options)?;
        router.wakers.extend(sources.iter().map(|(source, _)| source.waker()));
        let lanes = router.lanes(sources, to_host);
        let states = router.states();
        let watched = ports.iter().zip(states.iter().flatten()).zip(own_links);
        let watched =
            watched.map(|(((port, config, _), state), link)| watched_port(*port, config, state, link));
        let links = LinkWatcher::new(watched.collect(), changes, watch_changes);
        let links = links.map_err(OpenError::Kernel)?;
        // Packets wait for these threads, but strangers can cause any amount of their work: they run before other
        // programs, but never in real time.
        let beside = options.model.priority.min(Priority::Nice);
        let watch = move |stop: &AtomicBool| {
            Rank::take(beside);
            links.run(stop);
        };
        router.spawn("links", watch)?;
        let serve = move |stop: &AtomicBool| {
            Rank::take(beside);
            host.run(&intake, stop);
        };
        router.spawn("host", serve)?;
        router.spawn_offload()?;
        router.spawn_mirrors(mirror_halves)?;
        router.spawn_sockets()?;
        if let Some(standby) = standby {
            router.spawn("standby", move |stop| standby.run(stop))?;
        }
        router.spawn_egress(options.model.priority)?;
        router.spawn_flows()?;
        router.spawn_packets(lanes, options)?;
        Ok(router)
    }

    fn assemble(
        config: &RouterConfig,
        tables: Arc<ForwardingTables>,
        options: &LiveOptions,
        (opened, counters): (Opened, Arc<Counters>),
        plan: RouterPlan,
        (questions, watch): (Sender<Question>, Sender<WatchChange>),
        lanes: usize,
    ) -> Self {
        let is_one_workers = lanes > 1 || options.model.workers == 1;
        Self {
            stop: Arc::default(),
            wakers: Vec::new(),
            queue_clock: Arc::default(),
            threads: Vec::new(),
            packets: None,
            counters,
            received: Arc::new(Received::new(lanes)),
            worker_counters: Arc::new(Workers::new(is_one_workers.then_some(lanes))),
            outboxes: opened.outboxes,
            states: Mutex::new(opened.states),
            lanes: (0..lanes).map(|_| HalvesSlot::default()).collect(),
            mirror_halves: HalvesSlot::default(),
            watch,
            offload: opened.offload,
            virtual_macs: opened.virtual_macs,
            standby: None,
            questions,
            ended: Arc::default(),
            config: Mutex::new(Arc::new(config.clone())),
            plan: Arc::new(ArcSwap::from_pointee(plan)),
            tables,
            flow_outlet: options.flow_outlet.clone(),
            exchange: Arc::new(Exchange::new(lanes)),
            clock: LiveClock::start(),
            workers: options.model.workers,
            class: Arc::new(AtomicU8::new(config.qos.default_class)),
            tells_refusals: Arc::new(AtomicBool::new(refusal(config).is_some())),
        }
    }

    fn host(
        &self,
        config: &RouterConfig,
        options: &LiveOptions,
        ports: &[(u16, &PortConfig, LinkChange)],
        injector: Injector,
        mirrors: Mirrors,
    ) -> Host {
        let neighbors = NeighborConfig { seed: options.seed, ..NeighborConfig::default() };
        let down = ports.iter().filter(|(.., change)| !change.is_up).map(|(port, ..)| *port);
        let parts = Parts {
            identities: ports.iter().map(|(_, port, change)| identity(config, port, change)).collect(),
            icmp: IcmpWriter::new(IcmpConfig { seed: options.seed, ..IcmpConfig::default() }),
            tables: self.tables.clone(),
            outboxes: self.outboxes.clone(),
            queue_clock: self.queue_clock.clone(),
            injector,
            mirrors,
            virtual_macs: self.virtual_macs.clone(),
            nat_ports: NatPorts::of(config),
            standby: self.standby.clone(),
            nat: self.nat(),
            firewall: self.firewall_watch(config),
            refusal: refusal(config),
            counters: self.counters.clone(),
            clock: self.clock,
            class: config.qos.default_class,
        };
        let mut host = Host::new(neighbors, VirtualRouters::new(config.vrrp.clone()), parts, down);
        let neighbors = config.neighbors.iter();
        host.configure_neighbors(neighbors.map(|neighbor| (neighbor.port, neighbor.address, neighbor.mac)));
        host.configure_checks(&config.routing.checks);
        host
    }

    /// The thread that exchanges state with the other router, if there is one, and what it shares with others.
    fn open_standby(
        &mut self,
        config: &RouterConfig,
        secret: Option<Secret>,
        run: u64,
    ) -> Result<Option<StandbyThread>, OpenError> {
        let Some((settings, secret)) = config.standby.as_ref().zip(secret) else { return Ok(None) };
        let thread = StandbyThread::open(settings, (secret, config), self.plan.clone(), self.clock, run);
        let thread = thread.map_err(OpenError::Standby)?;
        self.standby = Some(thread.share());
        Ok(Some(thread))
    }

    /// The feed and the sink of each lane.
    fn lanes(&self, sources: Vec<LaneSource>, host: ToHost) -> Vec<(Feed, LiveSink)> {
        let (of, parts) = (sources.len(), self.sink_parts(host));
        let lane = |(index, source): (usize, LaneSource)| {
            let lane = LaneNumber { index, of };
            let halves = self.lanes[index].clone();
            let (stop, received, exchange) =
                (self.stop.clone(), self.received.clone(), self.exchange.clone());
            let sampler = self.offload.clone().map(Sampler::new);
            let feed =
                Feed::new(lane, (source, halves), stop, received, exchange, sampler, self.counters.clone());
            (feed, LiveSink::new(lane, parts.clone()))
        };
        sources.into_iter().enumerate().map(lane).collect()
    }

    /// One source per lane. The first also takes packets that the router injects.
    fn live_sources(
        &self,
        mut lanes: Vec<Vec<QueueRx>>,
        injected: InjectedRx,
        options: &LiveOptions,
    ) -> Result<Vec<LaneSource>, OpenError> {
        lanes[0].push(QueueRx { port: NO_PORT, queue: 0, of: 1, worker: None, rx: Box::new(injected) });
        let source = SourceOptions {
            chunk_packets: options.chunk_packets,
            frame_bytes_max: frame_bytes_max(self.states().iter().flatten().map(|state| &**state)),
            busy_poll: options.busy_poll,
            ..SourceOptions::default()
        };
        let lane = |queues: Vec<QueueRx>| {
            let numbers = queues.iter().map(|queue| (queue.port, queue.queue)).collect();
            let halves = queues.into_iter().map(|queue| (queue.port, queue.rx)).collect();
            Ok((LiveSource::new(halves, source, self.clock).map_err(OpenError::System)?, numbers))
        };
        lanes.into_iter().map(lane).collect()
    }

    fn sink_parts(&self, host: ToHost) -> SinkParts {
        SinkParts {
            outboxes: self.outboxes.clone(),
            queue_clock: self.queue_clock.clone(),
            host,
            counters: self.counters.clone(),
            exchange: self.exchange.clone(),
            clock: self.clock,
            tells_refusals: self.tells_refusals.clone(),
            offload: self.offload.clone(),
            workers: self.worker_counters.clone(),
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), OpenError> {
        let stop = self.stop.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(&stop));
        self.threads.push(thread.map_err(OpenError::System)?);
        Ok(())
    }

    fn spawn_offload(&mut self) -> Result<(), OpenError> {
        let Some(offload) = self.offload.clone() else { return Ok(()) };
        let tables = self.tables.clone();
        self.spawn("offload", move |stop| offload.run(&tables, || stop.load(Ordering::Acquire)))
    }

    /// The thread runs even without mirrors, because a reload may add some.
    fn spawn_mirrors(&mut self, halves: MirrorHalves) -> Result<(), OpenError> {
        let (outboxes, queue_clock) = (self.outboxes.clone(), self.queue_clock.clone());
        let (class, counters) = (self.class.clone(), self.counters.clone());
        let own = OwnTraffic::new(self.plan.clone());
        let later = self.mirror_halves.clone();
        let forwarder =
            Forwarder::new((halves, later), self.clock, outboxes, queue_clock, counters, class, own);
        let forwarder = forwarder.map_err(OpenError::System)?;
        self.wakers.push(forwarder.waker());
        self.spawn("mirror", move |stop| forwarder.run(stop))
    }

    /// Reports TCP and UDP ports of local programs to NAT; it also runs without NAT, because a reload may add it.
    fn spawn_sockets(&mut self) -> Result<(), OpenError> {
        let watcher = SocketWatcher::new(self.plan.clone(), self.clock, self.offload.clone());
        self.spawn("sockets", move |stop| watcher.run(stop))
    }

    /// Queues send by the clock, so this thread has the priority of those that process packets.
    fn spawn_egress(&mut self, priority: Priority) -> Result<(), OpenError> {
        let (outboxes, queue_clock, clock) = (self.outboxes.clone(), self.queue_clock.clone(), self.clock);
        self.spawn("egress", move |stop| {
            let mut rank = Rank::take(priority);
            let ends = || {
                rank.look();
                stop.load(Ordering::Acquire)
            };
            queue_clock.run(&outboxes, || clock.now_ns(), ends);
        })
    }

    /// Expires flows without packets, and passes on NAT's events while no packet arrives.
    fn spawn_flows(&mut self) -> Result<(), OpenError> {
        if self.flow_outlet.is_none() {
            return Ok(());
        }
        let (plan, clock) = (self.plan.clone(), self.clock);
        self.spawn("flows", move |stop| {
            while !stop.load(Ordering::Acquire) {
                thread::sleep(FLOWS_TURN);
                let plan = plan.load();
                plan.send_nat_events();
                if let Some(flows) = plan.flows() {
                    flows.advance(clock.now_ns());
                }
            }
        })
    }

    fn spawn_packets(
        &mut self,
        lanes: Vec<(Feed, LiveSink)>,
        options: &LiveOptions,
    ) -> Result<(), OpenError> {
        let (plan, exchange) = (self.plan.clone(), self.exchange.clone());
        let (counters, stop) = (self.counters.clone(), self.stop.clone());
        let (model, workers) = (options.model.clone(), self.worker_counters.clone());
        let packets = Packets { plan, lanes, model, exchange, workers, counters, stop };
        let ended = self.ended.clone();
        let work = move || {
            if let Err(error) = packets.run() {
                tracing::error!("packets: {error}");
            }
            ended.store(true, Ordering::Release);
        };
        let thread = thread::Builder::new().name("packets".to_owned()).spawn(work);
        self.packets = Some(thread.map_err(OpenError::System)?);
        Ok(())
    }
}

/// The names of classes, by class number.
pub(crate) fn class_names(config: &RouterConfig) -> Vec<String> {
    config.qos.classes.iter().map(|class| class.name.clone()).collect()
}

pub(crate) fn open_mirrors(
    ports: &[(u16, &PortConfig, LinkChange)],
) -> Result<(Mirrors, MirrorHalves), OpenError> {
    let mirrored: Vec<_> =
        ports.iter().map(|(port, config, change)| (*port, *config, change.mac, change.mtu)).collect();
    Mirrors::open(&mirrored).map_err(|source| OpenError::Port { port: "mirrors".to_owned(), source })
}

/// Opens all ports, each with one sending half per lane if the driver has that many.
fn open_all(config: &RouterConfig, lanes: usize, counters: &Arc<Counters>) -> Result<Opened, OpenError> {
    let (mut halves, mut own, mut states) = (Vec::new(), Vec::new(), Vec::new());
    let (mut offloads, mut links) = (Vec::new(), Vec::new());
    let mut virtual_macs = PortMacs::new();
    for VrrpConfig { port, .. } in &config.vrrp {
        if virtual_macs.iter().all(|(known, _)| known != port) {
            virtual_macs.push((*port, Arc::default()));
        }
    }
    let claims: Vec<_> = config.ports.iter().map(ports::claim).collect::<Result<_, _>>()?;
    start_dpdk(config)?;
    let vlans = VlanTable::new(sub_interfaces(config));
    for (index, claim) in (0u16..).zip(claims) {
        if config.ports[usize::from(index)].sub_interface.is_some() {
            own.push(None);
            states.push(None);
            offloads.push(None);
            links.push(None);
            continue;
        }
        let macs = virtual_macs.iter().find(|(port, _)| *port == index).map(|(_, macs)| macs.clone());
        let opened = ports::open(config, index, lanes, claim, macs)?;
        halves.extend(opened.halves);
        let queue = has_queues(config, index).then(|| EgressQueue::new(egress_config(config, index)));
        own.push(Some(Outbox::new(index, opened.tx, queue, vlans.clone(), counters.clone())));
        states.push(Some(Arc::new(opened.state)));
        offloads.push(opened.offload);
        links.push(opened.link);
    }
    let (outboxes, states) = vlan::with_sub_interfaces(config, own, states)?;
    let facts: Vec<&PortFacts> = states.iter().flatten().map(|state| &state.facts).collect();
    let offload = FlowOffload::new(config, offloads, &facts);
    Ok(Opened { halves, outboxes: Outboxes::new(outboxes), states, offload, virtual_macs, links })
}

/// The non-vacant ports, each with the state of its link.
pub(crate) fn live_ports<'c>(
    config: &'c RouterConfig,
    states: &PortStates,
) -> Vec<(u16, &'c PortConfig, LinkChange)> {
    let port = |(index, (config, state)): (u16, (&'c PortConfig, &Option<Arc<PortState>>))| {
        let PortState { facts, later, .. } = &**state.as_ref()?;
        let mtu = facts.mtu.min(config.mtu.into());
        let PortFacts { mac, far_end, .. } = *facts;
        Some((index, config, LinkChange { port: index, is_up: later.is_none(), mac, far_end, mtu }))
    };
    (0u16..).zip(config.ports.iter().zip(states)).filter_map(port).collect()
}

pub(crate) fn update_tables(tables: &ForwardingTables, ports: &[(u16, &PortConfig, LinkChange)]) {
    for &(index, PortConfig { default_mac, vrf, .. }, LinkChange { is_up, mac, far_end, mtu, .. }) in ports {
        let (default_mac, vrf) = (*default_mac, *vrf);
        tables.set_port(index, PortLink { mac, mtu, default_mac, far_end, is_up, vrf });
    }
}

/// The addresses that NAT uses on a port, without the port's own and those that belong to whichever router is Active.
pub(crate) fn translated(config: &RouterConfig, port: u16) -> Vec<Ipv4Net> {
    let mut outsides = config.nat.iter().flat_map(NatConfig::outsides).enumerate();
    let Some((place, nat)) = outsides.find(|(_, nat)| nat.outside_port == port) else { return Vec::new() };
    let own = &config.ports[usize::from(port)].addresses;
    let shared = config.vrrp.iter().filter(|shared| shared.port == port).flat_map(|shared| &shared.addresses);
    let others: Vec<IpAddr> = own.iter().map(IpNet::addr).chain(shared.copied()).collect();
    let is_other = |address: &Ipv4Addr| !others.contains(&IpAddr::V4(*address));
    let of_many = nat.public_addresses.into_iter().filter(is_other).map(Ipv4Net::from);
    let of_one = nat.one_to_one.iter().filter(|pair| pair.outside == place).map(|pair| pair.public);
    of_many.chain(of_one).collect()
}

pub(crate) fn identity(config: &RouterConfig, port: &PortConfig, change: &LinkChange) -> PortIdentity {
    let addresses = port.addresses.iter().map(|net| (net.addr(), net.prefix_len())).collect();
    let advertise = port.interface.as_ref().is_some_and(|interface| interface.router_advertisements);
    PortIdentity {
        router_advertisements: advertise,
        translated: translated(config, change.port),
        far_end: change.far_end,
        ..PortIdentity::new(change.mac, addresses, change.mtu)
    }
}

pub(crate) fn watched_port(
    port: u16,
    config: &PortConfig,
    state: &PortState,
    link: Option<Box<dyn ReadLink>>,
) -> Watched {
    let interface = config.interface.as_ref();
    let name = interface.map(|interface| interface.in_system().unwrap_or(&interface.name).to_owned());
    Watched {
        port,
        interface: name.unwrap_or_default(),
        link,
        mac: PortMac::of(config),
        mtu: state.mtu.clone(),
    }
}

fn plan(
    config: &RouterConfig,
    tables: &ForwardingTables,
    options: &LiveOptions,
) -> Result<RouterPlan, OpenError> {
    let router = tables.read().router();
    let mut plan = RouterPlan::with_hash_seed(config, router, options.seed).map_err(OpenError::Build)?;
    if let (Some(flows), Some(outlet)) = (&config.flows, &options.flow_outlet) {
        let metered = plan.with_flows(&flows.meter, options.seed, outlet.clone());
        plan = metered.map_err(|error| OpenError::Build(BuildError::Flows(error.to_string())))?;
        plan = plan.with_samples(flows.packet_sampling(), options.seed);
        if let Some(logging) = flows.nat_events {
            plan = plan.with_nat_events(logging, outlet.clone());
        }
    }
    Ok(plan.for_workers(options.model.workers))
}

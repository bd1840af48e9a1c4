//! Putting a live router together, and starting its threads.
//!
//! In this order: ports are opened and the tables told what was found; what threads have in common and the ways between
//! them are made; then each side takes what is its own, and the threads start, that of the packets last. If anything
//! fails on the way, what was started stops again with the router.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, bounded};
use thalweg_base::NO_PORT;
use thalweg_dataplane::egress::EgressQueue;
use thalweg_dataplane::icmp::{IcmpConfig, IcmpWriter};
use thalweg_dataplane::neighbour::{NeighbourConfig, PortIdentity};
use thalweg_dataplane::vlan::VlanTable;
use thalweg_exec::{Priority, Rank};
use thalweg_node::config::{PortConfig, RouterConfig};
use thalweg_node::egress::{egress_config, has_queues};
use thalweg_node::plan::RouterPlan;
use thalweg_node::{BuildError, sub_interfaces};
use thalweg_ports::live::link::ReadLink;
use thalweg_ports::live::reopen::OpenedLater;
use thalweg_ports::live::tap::TapControl;
use thalweg_ports::live::xdp::offload::Offload;
use thalweg_ports::live::{LiveClock, LiveError, LiveSource, PortFacts, SourceOptions};

use crate::claim::Claim;
use crate::counters::Counters;
use crate::feed::{Feed, Received};
use crate::host::{Host, Intake, LinkChange, Parts, Question, Tables};
use crate::inject::{InjectedRx, Injector, injection};
use crate::lanes::{LaneNumber, QueueRx, deal, lanes_wanted};
use crate::links::{LinkWatcher, Watched};
use crate::mirror::{Forwarder, MirrorHalves, Mirrors};
use crate::offload::{FlowOffload, Sampler, flows_of};
use crate::open::{OpenError, OpenedPort, open_port, start_dpdk, wait_for};
use crate::outbox::Outbox;
use crate::outlook::leftover_addresses;
use crate::own_ports::{OwnTraffic, SocketWatcher};
use crate::packets::{Exchange, Packets};
use crate::port_mac::PortMac;
use crate::router::{LiveOptions, LiveRouter, refusal};
use crate::sink::{LiveSink, Punt, SinkParts, ToHost};
use crate::vlan;
use crate::workers::Workers;

/// How often flows without packets are looked for.
const FLOWS_TURN: Duration = Duration::from_millis(250);

/// Packets for the host thread that may wait in each of its queues: some milliseconds of its work.
const PUNTS_MAX: usize = 4096;

/// Questions and news of ports that may wait.
const NEWS_MAX: usize = 64;

/// A lane's source, and the numbers of its queues.
type LaneSource = (LiveSource, Vec<u16>);

/// Ports that were opened.
struct Opened {
    halves: Vec<QueueRx>,
    outboxes: Arc<[Outbox]>,
    facts: Vec<PortFacts>,
    /// Of ports whose interface was not there; of a VLAN, its parent's.
    later: Vec<Option<OpenedLater>>,
    offload: Option<Arc<FlowOffload>>,
    /// Of each port what tells of its link, where the system does not.
    links: Vec<Option<Box<dyn ReadLink>>>,
    _taps: Vec<TapControl>,
    claims: Vec<Claim>,
}

/// Both ends of the ways between threads.
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
        let (heard, hearing): (Sender<Punt>, Receiver<Punt>) = bounded(PUNTS_MAX);
        let (owed, owing) = bounded(PUNTS_MAX);
        let (questions, asked) = bounded(NEWS_MAX);
        let (changes, links) = bounded(NEWS_MAX);
        let (injector, injected) = injection(counters.clone()).map_err(OpenError::System)?;
        let intake = Intake { heard: hearing, owed: owing, questions: asked, links };
        Ok(Self { to_host: ToHost { heard, owed }, intake, questions, changes, injector, injected })
    }
}

impl LiveRouter {
    /// Opens the ports and starts. `tables` are those of the configuration; their ports are told what was found.
    pub fn start(
        config: &RouterConfig,
        tables: Arc<dyn Tables>,
        options: &LiveOptions,
    ) -> Result<Self, OpenError> {
        let counters = Arc::new(Counters::named(config.ports.iter().map(|port| port.name.clone())));
        counters.taps.set_classes(class_names(config));
        let mut opened = open_all(config, lanes_wanted(&options.model), &counters)?;
        let own_links = std::mem::take(&mut opened.links);
        let ports = live_ports(config, &opened);
        tell_tables(&*tables, &ports);
        let Ways { to_host, intake, questions, changes, injector, injected } = Ways::new(&counters)?;
        let (mirrors, mirror_halves) = open_mirrors(&ports)?;
        let plan = plan(config, &*tables, options)?;
        let lanes = deal(std::mem::take(&mut opened.halves), lanes_wanted(&options.model));
        let mut router =
            Self::assemble(config, tables, options, (opened, counters), plan, questions, lanes.len());
        let host = router.host(config, options, &ports, injector, mirrors);
        let sources = live_sources(lanes, injected, &router.facts, options, router.clock)?;
        router.wakers.extend(sources.iter().map(|(source, _)| source.waker()));
        let lanes = router.lanes(sources, to_host);
        let watched = ports.iter().zip(&router.mtus).zip(own_links);
        let watched = watched.map(|(((port, config, _), mtu), link)| watched_port(*port, config, mtu, link));
        let links = LinkWatcher::new(watched.collect(), changes).map_err(OpenError::Kernel)?;
        // What packets wait for, but can be asked for by strangers without end: before others, never at once.
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
        router.spawn_egress(options.model.priority)?;
        router.spawn_flows()?;
        router.spawn_packets(lanes, options)?;
        Ok(router)
    }

    /// The router without threads, for so many lanes.
    fn assemble(
        config: &RouterConfig,
        tables: Arc<dyn Tables>,
        options: &LiveOptions,
        (opened, counters): (Opened, Arc<Counters>),
        plan: RouterPlan,
        questions: Sender<Question>,
        lanes: usize,
    ) -> Self {
        let mtu = |port: &PortConfig| Arc::new(AtomicU32::new(port.mtu.into()));
        let is_one_workers = lanes > 1 || options.model.workers == 1;
        Self {
            stop: Arc::default(),
            wakers: Vec::new(),
            server: Arc::default(),
            threads: Vec::new(),
            packets: None,
            counters,
            received: Arc::new(Received::new(lanes)),
            worker_books: Arc::new(Workers::new(is_one_workers.then_some(lanes))),
            outboxes: opened.outboxes,
            names: config.ports.iter().map(|port| port.name.clone()).collect(),
            facts: opened.facts,
            later: opened.later,
            offload: opened.offload,
            questions,
            ended: Arc::default(),
            config: Mutex::new(Arc::new(config.clone())),
            plan: Arc::new(ArcSwap::from_pointee(plan)),
            tables,
            flow_outlet: options.flow_outlet.clone(),
            exchange: Arc::new(Exchange::new(lanes)),
            clock: LiveClock::start(),
            workers: options.model.workers,
            mtus: config.ports.iter().map(mtu).collect(),
            class: Arc::new(AtomicU8::new(config.qos.default_class)),
            tells_refusals: Arc::new(AtomicBool::new(refusal(config).is_some())),
            _claims: opened.claims,
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
        let mut host = Host::new(Parts {
            neighbours: NeighbourConfig { seed: options.seed, ..NeighbourConfig::default() },
            identities: ports.iter().map(|(_, port, change)| identity(config, port, change)).collect(),
            down: ports.iter().filter(|(.., change)| !change.is_up).map(|(port, ..)| *port).collect(),
            icmp: IcmpWriter::new(IcmpConfig { seed: options.seed, ..IcmpConfig::default() }),
            tables: self.tables.clone(),
            outboxes: self.outboxes.clone(),
            server: self.server.clone(),
            injector,
            mirrors,
            outside: config.nat.as_ref().map(|nat| nat.outside),
            nat: self.nat(),
            refusal: refusal(config),
            counters: self.counters.clone(),
            clock: self.clock,
            class: config.qos.default_class,
        });
        let stations = config.neighbours.iter();
        host.configure_stations(stations.map(|station| (station.port, station.address, station.mac)));
        host
    }

    /// Ways in and out, for each lane.
    fn lanes(&self, sources: Vec<LaneSource>, host: ToHost) -> Vec<(Feed, LiveSink)> {
        let (of, parts) = (sources.len(), self.sink_parts(host));
        let lane = |(index, source)| {
            let lane = LaneNumber { index, of };
            let (stop, received, exchange) =
                (self.stop.clone(), self.received.clone(), self.exchange.clone());
            let sampler = self.offload.clone().map(Sampler::new);
            let feed = Feed::new(lane, source, stop, received, exchange, sampler, self.counters.clone());
            (feed, LiveSink::new(lane, parts.clone()))
        };
        sources.into_iter().enumerate().map(lane).collect()
    }

    fn sink_parts(&self, host: ToHost) -> SinkParts {
        SinkParts {
            outboxes: self.outboxes.clone(),
            server: self.server.clone(),
            host,
            counters: self.counters.clone(),
            exchange: self.exchange.clone(),
            clock: self.clock,
            tells_refusals: self.tells_refusals.clone(),
            offload: self.offload.clone(),
            workers: self.worker_books.clone(),
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
        self.spawn("offload", move |stop| offload.run(&*tables, || stop.load(Ordering::Acquire)))
    }

    fn spawn_mirrors(&mut self, halves: MirrorHalves) -> Result<(), OpenError> {
        if halves.is_empty() {
            return Ok(());
        }
        let (outboxes, server) = (self.outboxes.clone(), self.server.clone());
        let (class, counters) = (self.class.clone(), self.counters.clone());
        let own = OwnTraffic::new(self.plan.clone());
        let forwarder = Forwarder::new(halves, self.clock, outboxes, server, counters, class, own);
        let forwarder = forwarder.map_err(OpenError::System)?;
        self.wakers.push(forwarder.waker());
        self.spawn("mirror", move |stop| forwarder.run(stop))
    }

    /// Tells NAT of the ports of the system's programs, whether or not there is NAT yet.
    fn spawn_sockets(&mut self) -> Result<(), OpenError> {
        let watcher = SocketWatcher::new(self.plan.clone(), self.clock, self.offload.clone());
        self.spawn("sockets", move |stop| watcher.run(stop))
    }

    /// Queues send packets by the clock, so the thread that does it is ranked as those that work on packets.
    fn spawn_egress(&mut self, priority: Priority) -> Result<(), OpenError> {
        let (outboxes, server, clock) = (self.outboxes.clone(), self.server.clone(), self.clock);
        self.spawn("egress", move |stop| {
            let mut rank = Rank::take(priority);
            let ends = || {
                rank.look();
                stop.load(Ordering::Acquire)
            };
            server.run(&outboxes, || clock.now_ns(), ends);
        })
    }

    /// Ends flows that have no packets any more, and passes on what NAT tells where no packet comes.
    fn spawn_flows(&mut self) -> Result<(), OpenError> {
        if self.flow_outlet.is_none() {
            return Ok(());
        }
        let (plan, clock) = (self.plan.clone(), self.clock);
        self.spawn("flows", move |stop| {
            while !stop.load(Ordering::Acquire) {
                thread::sleep(FLOWS_TURN);
                let plan = plan.load();
                plan.tell_nat_events();
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
        let (model, workers) = (options.model.clone(), self.worker_books.clone());
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

/// What classes are called, by their numbers.
pub(crate) fn class_names(config: &RouterConfig) -> Vec<String> {
    config.qos.classes.iter().map(|class| class.name.clone()).collect()
}

fn open_mirrors(ports: &[(u16, &PortConfig, LinkChange)]) -> Result<(Mirrors, MirrorHalves), OpenError> {
    let mirrored: Vec<_> =
        ports.iter().map(|(port, config, change)| (*port, *config, change.mac, change.mtu)).collect();
    Mirrors::open(&mirrored).map_err(|source| OpenError::Port { port: "mirrors".to_owned(), source })
}

/// Opens the ports, with as many sending halves for `lanes` lanes as their drivers have.
fn open_all(config: &RouterConfig, lanes: usize, counters: &Arc<Counters>) -> Result<Opened, OpenError> {
    let mut offloads = vec![None; config.ports.len()];
    let (mut halves, mut own, mut taps, mut links) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut later = vec![None; config.ports.len()];
    let claims = config.ports.iter().filter_map(claim).collect::<Result<_, _>>()?;
    start_dpdk(config)?;
    for (index, port_config) in (0u16..).zip(&config.ports) {
        if port_config.sub_interface.is_some() {
            own.push(None);
            links.push(None);
            continue;
        }
        let carries_vlans = vlan::carries_vlans(config, index);
        let flows = flows_of(config, port_config, carries_vlans);
        let opened = open_port(config, port_config, lanes, carries_vlans, flows.clone())
            .or_else(|why| wait_instead(why, port_config, lanes, carries_vlans, flows.clone()))?;
        let OpenedPort { mut port, tap, link, later: comes } = opened;
        if comes.is_none() {
            port.facts.mac = PortMac::of(port_config).with(port.facts.mac);
            say_opened(port_config, &port.facts);
        }
        later[usize::from(index)] = comes;
        offloads[usize::from(index)] = flows;
        let of = port.rx.len() as u16;
        let queues = (0..).zip(port.rx);
        halves.extend(queues.map(|(queue, rx)| QueueRx { port: index, queue, of, rx }));
        let others = (1..lanes).map_while(|_| port.tx.another()).collect();
        let queue = has_queues(config, index).then(|| EgressQueue::new(egress_config(config, index)));
        let vlans = VlanTable::new(sub_interfaces(config));
        own.push(Some((Outbox::new(index, (port.tx, others), queue, vlans, counters.clone()), port.facts)));
        taps.extend(tap);
        links.push(link);
    }
    for (index, sub) in config.ports.iter().enumerate() {
        if let Some(sub) = sub.sub_interface {
            later[index] = later[usize::from(sub.parent)].clone();
        }
    }
    let (outboxes, facts) = vlan::with_sub_interfaces(config, own)?;
    let offload = FlowOffload::new(config, offloads, &facts);
    Ok(Opened { halves, outboxes: outboxes.into(), facts, later, offload, links, _taps: taps, claims })
}

/// A port without an interface must not keep the others from working: it waits, where that is all there is to it.
fn wait_instead(
    why: OpenError,
    config: &PortConfig,
    lanes: usize,
    carries_vlans: bool,
    flows: Option<Arc<Offload>>,
) -> Result<OpenedPort, OpenError> {
    let OpenError::Port { source: LiveError::NoSuchInterface { interface }, .. } = &why else {
        return Err(why);
    };
    tracing::warn!(port = config.name, "interface {interface} is not there; the port works when it appears");
    wait_for(config, lanes, carries_vlans, flows).ok_or(why)
}

fn say_opened(config: &PortConfig, facts: &PortFacts) {
    tracing::info!(
        port = config.name,
        interface = facts.interface,
        mode = facts.mode,
        why_not_better = facts.why_not_better,
        "open"
    );
    if let Some(interface) = &config.interface {
        for finding in leftover_addresses(interface) {
            tracing::warn!(port = config.name, "{finding}");
        }
    }
}

/// Makes the port's interface this router's, if it has one of its own.
fn claim(config: &PortConfig) -> Option<Result<Claim, OpenError>> {
    if config.sub_interface.is_some() {
        return None;
    }
    let taken = Claim::take(config.interface.as_ref()?.exclusive()?);
    Some(taken.map_err(|holder| OpenError::Claimed { port: config.name.clone(), holder }))
}

/// Ports with what was found of them.
fn live_ports<'c>(config: &'c RouterConfig, opened: &Opened) -> Vec<(u16, &'c PortConfig, LinkChange)> {
    let port = |(index, (config, facts)): (u16, (&'c PortConfig, &PortFacts))| {
        let is_up = opened.later[usize::from(index)].is_none();
        let change = LinkChange { port: index, is_up, mac: facts.mac, mtu: facts.mtu.min(config.mtu.into()) };
        (index, config, change)
    };
    (0u16..).zip(config.ports.iter().zip(&opened.facts)).map(port).collect()
}

fn tell_tables(tables: &dyn Tables, ports: &[(u16, &PortConfig, LinkChange)]) {
    tables.with(&mut |tables| {
        for (index, _, change) in ports {
            if let Some(before) = tables.port(*index) {
                let link = thalweg_node::live::PortLink {
                    mac: change.mac,
                    mtu: change.mtu,
                    is_up: change.is_up,
                    ..before
                };
                tables.set_port(*index, link);
            }
        }
    });
}

/// Addresses that NAT gives out on a port, its own left out.
pub(crate) fn translated(config: &RouterConfig, port: u16) -> Vec<Ipv4Addr> {
    let Some(nat) = config.nat.as_ref().filter(|nat| nat.outside == port) else { return Vec::new() };
    let own = &config.ports[usize::from(port)].addresses;
    let is_other = |address: &Ipv4Addr| own.iter().all(|net| net.addr() != IpAddr::V4(*address));
    nat.addresses.iter().copied().filter(is_other).collect()
}

fn identity(config: &RouterConfig, port: &PortConfig, change: &LinkChange) -> PortIdentity {
    let addresses = port.addresses.iter().map(|net| (net.addr(), net.prefix_len())).collect();
    let advertise = port.interface.as_ref().is_some_and(|interface| interface.router_advertisements);
    PortIdentity {
        router_advertisements: advertise,
        translated: translated(config, change.port),
        ..PortIdentity::new(change.mac, addresses, change.mtu)
    }
}

fn watched_port(
    port: u16,
    config: &PortConfig,
    mtu: &Arc<AtomicU32>,
    link: Option<Box<dyn ReadLink>>,
) -> Watched {
    let interface = config.interface.as_ref();
    let name = interface.map(|interface| interface.in_system().unwrap_or(&interface.name).to_owned());
    Watched { port, interface: name.unwrap_or_default(), link, mac: PortMac::of(config), mtu: mtu.clone() }
}

/// A source for each lane. What the router puts in comes by the first.
fn live_sources(
    mut lanes: Vec<Vec<QueueRx>>,
    injected: InjectedRx,
    facts: &[PortFacts],
    options: &LiveOptions,
    clock: LiveClock,
) -> Result<Vec<LaneSource>, OpenError> {
    lanes[0].push(QueueRx { port: NO_PORT, queue: 0, of: 1, rx: Box::new(injected) });
    let longest = facts.iter().map(|facts| facts.mtu).max().unwrap_or(1500) as usize;
    let source = SourceOptions {
        chunk_packets: options.chunk_packets,
        frame_bytes_max: longest + FRAME_OVERHEAD,
        ..SourceOptions::default()
    };
    let lane = |queues: Vec<QueueRx>| {
        let numbers = queues.iter().map(|queue| queue.queue).collect();
        let halves = queues.into_iter().map(|queue| (queue.port, queue.rx)).collect();
        Ok((LiveSource::new(halves, source, clock).map_err(OpenError::System)?, numbers))
    };
    lanes.into_iter().map(lane).collect()
}

/// An Ethernet header and two tags.
const FRAME_OVERHEAD: usize = 14 + 8;

fn plan(config: &RouterConfig, tables: &dyn Tables, options: &LiveOptions) -> Result<RouterPlan, OpenError> {
    let mut router = None;
    tables.with(&mut |tables| router = Some(tables.router()));
    let Some(router) = router else { return Err(OpenError::System(std::io::Error::other("no tables"))) };
    let mut plan = RouterPlan::with_hash_seed(config, router, options.seed).map_err(OpenError::Build)?;
    if let (Some(flows), Some(outlet)) = (&config.flows, &options.flow_outlet) {
        let metered = plan.with_flows(&flows.meter, options.seed, outlet.clone());
        plan = metered.map_err(|error| OpenError::Build(BuildError::Flows(error.to_string())))?;
        if let Some(logging) = flows.nat_events {
            plan = plan.with_nat_events(logging, outlet.clone());
        }
    }
    Ok(plan.for_workers(options.model.workers))
}

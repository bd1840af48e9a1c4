//! Putting a live router together, and looking at it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use arc_swap::ArcSwap;
use crossbeam_channel::{Sender, bounded};
use thalweg_dataplane::egress::EgressQueue;
use thalweg_dataplane::icmp::{IcmpConfig, IcmpError, IcmpWriter};
use thalweg_dataplane::nat::NatStage;
use thalweg_dataplane::neighbour::{NeighbourConfig, PortIdentity};
use thalweg_dataplane::vlan::VlanTable;
use thalweg_exec::ModelOptions;
use thalweg_node::config::{NatRefusal, PortConfig, RouterConfig};
use thalweg_node::egress::{egress_config, has_queues};
use thalweg_node::plan::RouterPlan;
use thalweg_node::sub_interfaces;
use thalweg_ports::live::{
    LiveClock, LiveSource, PortFacts, RxCounters, SourceOptions, SourceWaker, TxCounters,
};

use crate::claim::Claim;
use crate::counters::Counters;
use crate::feed::{Feed, Received, sum_of};
use crate::host::{Host, Intake, LinkChange, Parts, Question, Tables};
use crate::inject::{InjectedRx, injection};
use crate::lanes::{LaneNumber, QueueRx, deal, lanes_wanted};
use crate::links::{LinkWatcher, Watched};
use crate::mirror::{Forwarder, MirrorHalves, Mirrors};
use crate::offload::{FlowOffload, Offloaded, Sampler, flows_of};
use crate::open::{OpenError, OpenedPort, open_port};
use crate::outbox::{Outbox, Server};
use crate::packets::{Exchange, Packets};
use crate::sink::{LiveSink, SinkParts, ToHost};
use crate::vlan;
use crate::workers::{WorkerStatus, Workers};

/// Packets for the host thread that may wait in each of its queues: some milliseconds of its work.
const PUNTS_MAX: usize = 4096;

/// Questions and news of ports that may wait.
const NEWS_MAX: usize = 64;

/// How to run.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The model and its workers.
    pub model: ModelOptions,
    /// Packets that one chunk holds at most.
    pub chunk_packets: usize,
    /// Against strangers that choose collisions.
    pub seed: u64,
}

/// A port as it is now.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// Its name in the configuration.
    pub name: String,
    /// How it was opened.
    pub facts: PortFacts,
    /// What its driver received.
    pub received: RxCounters,
    /// Of that, what came by each receive queue that is worked on apart; of a sub-interface nothing is known.
    pub queues: Vec<RxCounters>,
    /// What its driver sent.
    pub sent: TxCounters,
    /// Frames that wait in its queues.
    pub queued: u64,
    /// What the kernel forwarded by itself.
    pub offloaded: Offloaded,
}

/// A router that runs. It stops when it is dropped.
pub struct LiveRouter {
    stop: Arc<AtomicBool>,
    pub(crate) wakers: Vec<SourceWaker>,
    pub(crate) server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    packets: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    received: Arc<Received>,
    worker_books: Arc<Workers>,
    pub(crate) outboxes: Arc<[Outbox]>,
    names: Vec<String>,
    facts: Vec<PortFacts>,
    pub(crate) offload: Option<Arc<FlowOffload>>,
    questions: Sender<Question>,
    ended: Arc<AtomicBool>,
    /// The configuration in force; locked for as long as another takes its place.
    pub(crate) config: Mutex<Arc<RouterConfig>>,
    /// The plan in force.
    pub(crate) plan: Arc<ArcSwap<RouterPlan>>,
    pub(crate) tables: Arc<dyn Tables>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) clock: LiveClock,
    pub(crate) workers: usize,
    /// What the configuration says: the largest packet of each port, and the class of what the router itself sends.
    pub(crate) mtus: Vec<Arc<AtomicU32>>,
    pub(crate) class: Arc<AtomicU8>,
    /// Whether hosts are told that get no NAT session.
    pub(crate) tells_refusals: Arc<AtomicBool>,
    _claims: Vec<Claim>,
}

/// Ports that were opened.
struct Opened {
    halves: Vec<QueueRx>,
    outboxes: Arc<[Outbox]>,
    facts: Vec<PortFacts>,
    offload: Option<Arc<FlowOffload>>,
    _taps: Vec<thalweg_ports::live::tap::TapControl>,
    claims: Vec<Claim>,
}

impl LiveRouter {
    /// Opens the ports and starts. `tables` are those of the configuration; their ports are told what was found.
    pub fn start(
        config: &RouterConfig,
        tables: Arc<dyn Tables>,
        options: &LiveOptions,
    ) -> Result<Self, OpenError> {
        let clock = LiveClock::start();
        let counters = Arc::new(Counters::new(config.ports.len()));
        let server = Arc::new(Server::default());
        let mut opened = open_all(config, lanes_wanted(&options.model), &counters)?;
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicBool::new(false));
        let ports = live_ports(config, &opened.facts);
        tell_tables(&*tables, &ports);
        let ((heard, hearing), (owed, owing)) = (bounded(PUNTS_MAX), bounded(PUNTS_MAX));
        let (questions, asked) = bounded(NEWS_MAX);
        let (changes, changed) = bounded(NEWS_MAX);
        let (injector, injected) = injection(counters.clone()).map_err(OpenError::System)?;
        let mirrored: Vec<_> =
            ports.iter().map(|(port, config, change)| (*port, *config, change.mac, change.mtu)).collect();
        let (mirrors, mirror_halves) = Mirrors::open(&mirrored)
            .map_err(|source| OpenError::Port { port: "mirrors".to_owned(), source })?;
        let class = config.qos.default_class;
        let plan = plan(config, &*tables, options)?;
        let (nat, refusal) = (plan.nat_stage(), refusal(config));
        let host = host(
            config,
            Parts {
                neighbours: NeighbourConfig { seed: options.seed, ..NeighbourConfig::default() },
                identities: ports.iter().map(|(_, config, change)| identity(config, change)).collect(),
                icmp: IcmpWriter::new(IcmpConfig { seed: options.seed, ..IcmpConfig::default() }),
                tables: tables.clone(),
                outboxes: opened.outboxes.clone(),
                server: server.clone(),
                injector,
                mirrors,
                outside: config.nat.as_ref().map(|nat| nat.outside),
                nat: nat.clone(),
                refusal,
                counters: counters.clone(),
                clock,
                class,
            },
        );
        let sources = live_sources(&mut opened, injected, options, clock)?;
        let lanes = sources.len();
        let mut wakers: Vec<_> = sources.iter().map(|(source, _)| source.waker()).collect();
        let received = Arc::new(Received::new(lanes));
        let exchange = Arc::new(Exchange::new(lanes));
        let is_one_workers = lanes > 1 || options.model.workers == 1;
        let worker_books = Arc::new(Workers::new(is_one_workers.then_some(lanes)));
        let tells_refusals = Arc::new(AtomicBool::new(refusal.is_some()));
        let to = SinkParts {
            outboxes: opened.outboxes.clone(),
            server: server.clone(),
            host: ToHost { heard, owed },
            counters: counters.clone(),
            exchange: exchange.clone(),
            clock,
            tells_refusals: tells_refusals.clone(),
            offload: opened.offload.clone(),
            workers: worker_books.clone(),
        };
        let lane = |(index, source)| {
            let lane = LaneNumber { index, of: lanes };
            let (stop, received, exchange) = (stop.clone(), received.clone(), exchange.clone());
            let sampler = opened.offload.clone().map(Sampler::new);
            let feed = Feed::new(lane, source, stop, received, exchange, sampler);
            (feed, LiveSink::new(lane, to.clone()))
        };
        let lanes = sources.into_iter().enumerate().map(lane).collect();
        let plan = Arc::new(ArcSwap::from_pointee(plan));
        let mtus: Vec<_> =
            config.ports.iter().map(|port| Arc::new(AtomicU32::new(port.mtu.into()))).collect();
        let mut router = Self {
            stop,
            wakers: Vec::new(),
            server,
            threads: Vec::new(),
            packets: None,
            counters,
            received,
            worker_books,
            outboxes: opened.outboxes.clone(),
            names: config.ports.iter().map(|port| port.name.clone()).collect(),
            facts: opened.facts.clone(),
            offload: opened.offload.clone(),
            questions,
            ended,
            config: Mutex::new(Arc::new(config.clone())),
            plan,
            tables,
            exchange,
            clock,
            workers: options.model.workers,
            mtus,
            class: Arc::new(AtomicU8::new(class)),
            tells_refusals,
            _claims: std::mem::take(&mut opened.claims),
        };
        let watched = ports.iter().zip(&router.mtus);
        let watched = watched.map(|((port, config, change), mtu)| watched_port(*port, config, change, mtu));
        let watched = watched.collect();
        let links = LinkWatcher::new(watched, changes).map_err(OpenError::Kernel)?;
        router.spawn("links", move |stop| links.run(stop))?;
        router.spawn("host", move |stop| {
            host.run(&Intake { heard: hearing, owed: owing, questions: asked, links: changed }, stop);
        })?;
        if let Some(offload) = opened.offload.clone() {
            let tables = router.tables.clone();
            router.spawn("offload", move |stop| {
                offload.run(&*tables, || stop.load(Ordering::Acquire));
            })?;
        }
        wakers.extend(router.spawn_mirrors(mirror_halves, clock)?);
        let (outboxes, server) = (opened.outboxes.clone(), router.server.clone());
        router.spawn("egress", move |stop| {
            server.run(&outboxes, || clock.now_ns(), || stop.load(Ordering::Acquire));
        })?;
        router.wakers = wakers;
        router.packets = Some(router.spawn_packets(lanes, options)?);
        Ok(router)
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

    fn spawn_mirrors(
        &mut self,
        halves: MirrorHalves,
        clock: LiveClock,
    ) -> Result<Option<SourceWaker>, OpenError> {
        if halves.is_empty() {
            return Ok(None);
        }
        let (outboxes, server) = (self.outboxes.clone(), self.server.clone());
        let class = self.class.clone();
        let forwarder = Forwarder::new(halves, clock, outboxes, server, self.counters.clone(), class);
        let forwarder = forwarder.map_err(OpenError::System)?;
        let waker = forwarder.waker();
        self.spawn("mirror", move |stop| forwarder.run(stop))?;
        Ok(Some(waker))
    }

    fn spawn_packets(
        &self,
        lanes: Vec<(Feed, LiveSink)>,
        options: &LiveOptions,
    ) -> Result<JoinHandle<()>, OpenError> {
        let (plan, exchange) = (self.plan.clone(), self.exchange.clone());
        let (workers, stop) = (self.worker_books.clone(), self.stop.clone());
        let packets = Packets { plan, lanes, model: options.model.clone(), exchange, workers, stop };
        let ended = self.ended.clone();
        let work = move || {
            if let Err(error) = packets.run() {
                tracing::error!("packets: {error}");
            }
            ended.store(true, Ordering::Release);
        };
        thread::Builder::new().name("packets".to_owned()).spawn(work).map_err(OpenError::System)
    }

    /// Whether packets are not worked on any more, though nobody has asked for it.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire)
    }

    /// The books.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// NAT's sessions, if there is NAT.
    pub fn nat(&self) -> Option<Arc<NatStage>> {
        self.plan.load().nat_stage()
    }

    /// The time as packets have it.
    pub fn clock(&self) -> LiveClock {
        self.clock
    }

    /// The ports as they are now.
    pub fn ports(&self) -> Vec<PortStatus> {
        let offloaded = self.offload.as_ref().map(|offload| offload.forwarded()).unwrap_or_default();
        let status = |(port, (name, facts)): (u16, (&String, &PortFacts))| {
            let outbox = &self.outboxes[usize::from(port)];
            let queues = self.received.of(port);
            let (received, sent) = match outbox.is_sub_interface() {
                true => vlan::numbers_of(self.counters.port(port)),
                false => (sum_of(&queues), outbox.driver()),
            };
            let offloaded = offloaded.get(usize::from(port)).copied().unwrap_or_default();
            let (name, facts, queued) = (name.clone(), facts.clone(), outbox.queued());
            PortStatus { name, facts, received, queues, sent, queued, offloaded }
        };
        (0..).zip(self.names.iter().zip(&self.facts)).map(status).collect()
    }

    /// What the threads of the model have done.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.worker_books.status()
    }

    /// Does something with a port's queue, if it has one.
    pub fn with_queue<T>(&self, port: u16, act: impl FnOnce(&mut EgressQueue<Vec<u8>>) -> T) -> Option<T> {
        self.outboxes.get(usize::from(port))?.with_queue(act)
    }

    /// Asks the host thread; `None` if it does not answer in time.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Host) -> T + Send + 'static) -> Option<T> {
        self.order(|host| question(host))
    }

    /// The configuration in force. Waits while another takes its place.
    pub fn config(&self) -> Arc<RouterConfig> {
        self.config_in_force().clone()
    }

    /// The plan in force, which another may follow at any time.
    pub fn plan(&self) -> Arc<RouterPlan> {
        self.plan.load_full()
    }

    pub(crate) fn config_in_force(&self) -> MutexGuard<'_, Arc<RouterConfig>> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the host thread do something; `None` if it does not come to it in time.
    pub(crate) fn order<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Option<T> {
        let answer = Arc::new(Mutex::new(None));
        let (done, wait) = bounded(1);
        let slot = answer.clone();
        let asked = self.questions.send_timeout(
            Box::new(move |host| {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(question(host));
                // Whoever asked may have gone.
                let _ = done.send(());
            }),
            ANSWER_WAIT,
        );
        asked.ok()?;
        wait.recv_timeout(ANSWER_WAIT).ok()?;
        answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Stops: no packet is received any more, those on their way are finished.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(SourceWaker::wake);
        self.server.ring();
        if let Some(packets) = self.packets.take()
            && packets.join().is_err()
        {
            tracing::error!("the packet threads panicked");
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread panicked");
            }
        }
    }
}

/// What hosts are told that get no NAT session.
pub(crate) fn refusal(config: &RouterConfig) -> Option<IcmpError> {
    match config.nat.as_ref()?.refusal {
        NatRefusal::HostUnreachable => Some(IcmpError::HostUnreachable),
        NatRefusal::Prohibited => Some(IcmpError::Prohibited),
        NatRefusal::Silent => None,
    }
}

/// How long an answer of the host thread is waited for.
const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

impl Drop for LiveRouter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Opens the ports, with as many sending halves for `lanes` lanes as their drivers have.
fn open_all(config: &RouterConfig, lanes: usize, counters: &Arc<Counters>) -> Result<Opened, OpenError> {
    let mut offloads = vec![None; config.ports.len()];
    let (mut halves, mut own, mut taps) = (Vec::new(), Vec::new(), Vec::new());
    let claims = config.ports.iter().filter_map(claim).collect::<Result<_, _>>()?;
    for (index, port_config) in (0u16..).zip(&config.ports) {
        if port_config.sub_interface.is_some() {
            own.push(None);
            continue;
        }
        let carries_vlans = vlan::carries_vlans(config, index);
        let flows = flows_of(config, port_config, carries_vlans);
        let OpenedPort { mut port, tap } = open_port(port_config, lanes, carries_vlans, flows.clone())?;
        tracing::info!(
            port = port_config.name,
            interface = port.facts.interface,
            mode = port.facts.mode,
            why_not_better = port.facts.why_not_better,
            "open"
        );
        offloads[usize::from(index)] = flows;
        let of = port.rx.len() as u16;
        let queues = (0..).zip(port.rx);
        halves.extend(queues.map(|(queue, rx)| QueueRx { port: index, queue, of, rx }));
        let others = (1..lanes).map_while(|_| port.tx.another()).collect();
        let queue = has_queues(config, index).then(|| EgressQueue::new(egress_config(config, index)));
        let vlans = VlanTable::new(sub_interfaces(config));
        own.push(Some((Outbox::new(index, (port.tx, others), queue, vlans, counters.clone()), port.facts)));
        taps.extend(tap);
    }
    let (outboxes, facts) = vlan::with_sub_interfaces(config, own)?;
    let offload = FlowOffload::new(config, offloads, &facts);
    Ok(Opened { halves, outboxes: outboxes.into(), facts, offload, _taps: taps, claims })
}

/// Makes the port's interface this router's, if it has one of its own.
fn claim(config: &PortConfig) -> Option<Result<Claim, OpenError>> {
    if config.sub_interface.is_some() {
        return None;
    }
    let taken = Claim::take(&config.interface.as_ref()?.name);
    Some(taken.map_err(|holder| OpenError::Claimed { port: config.name.clone(), holder }))
}

/// Ports with what was found of them.
fn live_ports<'c>(config: &'c RouterConfig, facts: &[PortFacts]) -> Vec<(u16, &'c PortConfig, LinkChange)> {
    let port = |(index, (config, facts)): (u16, (&'c PortConfig, &PortFacts))| {
        let own = config.interface.as_ref().is_none_or(|interface| interface.own_mac);
        let change = LinkChange {
            port: index,
            is_up: true,
            mac: if own { facts.mac } else { config.mac },
            mtu: facts.mtu.min(config.mtu.into()),
        };
        (index, config, change)
    };
    (0u16..).zip(config.ports.iter().zip(facts)).map(port).collect()
}

fn tell_tables(tables: &dyn Tables, ports: &[(u16, &PortConfig, LinkChange)]) {
    tables.with(&mut |tables| {
        for (index, _, change) in ports {
            if let Some(before) = tables.port(*index) {
                let link = thalweg_node::live::PortLink { mac: change.mac, mtu: change.mtu, ..before };
                tables.set_port(*index, link);
            }
        }
    });
}

fn identity(config: &PortConfig, change: &LinkChange) -> PortIdentity {
    let addresses = config.addresses.iter().map(|net| (net.addr(), net.prefix_len())).collect();
    let advertise = config.interface.as_ref().is_some_and(|interface| interface.router_advertisements);
    PortIdentity { router_advertisements: advertise, ..PortIdentity::new(change.mac, addresses, change.mtu) }
}

fn host(config: &RouterConfig, parts: Parts) -> Host {
    let mut host = Host::new(parts);
    for neighbour in &config.neighbours {
        host.set_static(neighbour.port, neighbour.address, neighbour.mac);
    }
    host
}

fn watched_port(port: u16, config: &PortConfig, change: &LinkChange, mtu: &Arc<AtomicU32>) -> Watched {
    let interface = config.interface.as_ref();
    Watched {
        port,
        interface: interface.map(|interface| interface.name.clone()).unwrap_or_default(),
        mac: interface.is_some_and(|interface| !interface.own_mac).then_some(change.mac),
        mtu: mtu.clone(),
    }
}

/// A source for each lane, with the numbers of its queues. What the router puts in comes by the first.
fn live_sources(
    opened: &mut Opened,
    injected: InjectedRx,
    options: &LiveOptions,
    clock: LiveClock,
) -> Result<Vec<(LiveSource, Vec<u16>)>, OpenError> {
    let mut lanes = deal(std::mem::take(&mut opened.halves), lanes_wanted(&options.model));
    let own = QueueRx { port: thalweg_base::NO_PORT, queue: 0, of: 1, rx: Box::new(injected) };
    lanes[0].push(own);
    let longest = opened.facts.iter().map(|facts| facts.mtu).max().unwrap_or(1500) as usize;
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
    let plan = RouterPlan::with_router(config, router, None).map_err(OpenError::Build)?;
    Ok(plan.for_workers(options.model.workers))
}

//! Routers on a simulated network, driven on virtual time by one thread.
//!
//! Each router is a real [`Speaker`] behind a scheduling that does what the daemon's sharded one does, with the
//! difference that chance decides which worker does what next: a batch may be applied to some shards long before
//! it is to others, and an export may come between. With one worker it is the serial scheduling.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mio::{Poll, Token};
use thalweg_bgp::export::ExportLimits;
use thalweg_bgp::rib::NextHopView;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_exec::control::{Control, Notice, Share, Wakers};
use thalweg_node::control::{BgpNeighborView, BgpRequest, RouteFilter, RouteView, UpdateGroupView};
use thalweg_node::speaker::{Restart, Speaker, SpeakerOptions, SpeakerWorker, Work};

use crate::fabric::{Fabric, Link, LinkState, SharedFabric, SimulatedNetwork, lock};
use crate::random::Random;

/// A router that does not come to rest within this many rounds of a moment never will.
const ROUNDS_MAX: usize = 20_000;

struct Node {
    speaker: Speaker,
    worker: SpeakerWorker,
    poll: Poll,
    turns: BTreeSet<usize>,
    /// Batches before each worker; shards and lanes belong to the worker whose number they leave.
    inboxes: Vec<VecDeque<Rc<Work>>>,
    due_ms: Vec<u64>,
}

/// One thing a worker may do.
enum Step {
    Read(usize),
    Apply(usize),
    Chores(usize),
    Export(usize),
    Tick(usize),
}

pub(crate) struct World {
    pub(crate) fabric: SharedFabric,
    pub(crate) random: Random,
    pub(crate) limits: ExportLimits,
    configs: Vec<Arc<BgpConfig>>,
    nodes: Vec<Option<Node>>,
    seed: u64,
}

/// The address and identifier of a router.
pub(crate) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, (node / 250) as u8, (node % 250 + 1) as u8)
}

pub(crate) fn config(text: &str) -> Arc<BgpConfig> {
    match RouterConfig::from_text("router.toml", text, Path::new("")) {
        Ok(config) => Arc::new(config.bgp.expect("[bgp] in the configuration")),
        Err(errors) => panic!("{errors}\n{text}"),
    }
}

impl World {
    /// Routers with these configurations, linked as said, all running.
    pub(crate) fn new(seed: u64, configs: &[String], links: &[(usize, usize)]) -> Self {
        Self::with_limits(seed, configs, links, ExportLimits::default())
    }

    pub(crate) fn with_limits(
        seed: u64,
        configs: &[String],
        links: &[(usize, usize)],
        limits: ExportLimits,
    ) -> Self {
        let fabric = Arc::new(Mutex::new(Fabric::default()));
        let mut random = Random::new(seed);
        for node in 0..configs.len() {
            lock(&fabric).add_place(address(node));
        }
        for &(a, b) in links {
            let latency_ms = 1 + random.below(20) as u64;
            lock(&fabric).set_link(a, b, Link { latency_ms, ..Link::default() });
        }
        let configs: Vec<_> = configs.iter().map(|text| config(text)).collect();
        let nodes = configs.iter().map(|_| None).collect();
        let mut world = Self { fabric, random, limits, configs, nodes, seed };
        (0..world.configs.len()).for_each(|node| world.start(node));
        world
    }

    pub(crate) fn now_ms(&self) -> u64 {
        lock(&self.fabric).now_ms
    }

    /// Starts a router, with an empty memory.
    pub(crate) fn start(&mut self, node: usize) {
        self.start_with(node, None);
    }

    /// Starts a router that knows this of its predecessor.
    pub(crate) fn start_with(&mut self, node: usize, restart: Option<Restart>) {
        let workers = 1 + self.random.below(3);
        let options = SpeakerOptions {
            network: Box::new(SimulatedNetwork { fabric: self.fabric.clone(), node }),
            readers: Vec::new(),
            tap: None,
            seed: self.random.next(),
            limits: self.limits,
            restart,
            scheduling: "simulated".to_owned(),
            profile_functions: false,
        };
        let speaker = Speaker::new(self.configs[node].clone(), options).expect("a speaker");
        let poll = Poll::new().expect("a poller");
        speaker.begin(workers, Wakers::default());
        let worker = speaker.worker();
        self.nodes[node] = Some(Node {
            speaker,
            worker,
            poll,
            turns: BTreeSet::new(),
            inboxes: (0..workers).map(|_| VecDeque::new()).collect(),
            due_ms: vec![0; workers],
        });
        lock(&self.fabric).set_up(node, true);
    }

    /// A router stops dead; its connections end.
    pub(crate) fn stop(&mut self, node: usize) {
        self.nodes[node] = None;
        lock(&self.fabric).set_up(node, false);
    }

    pub(crate) fn is_running(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    pub(crate) fn set_link(&mut self, a: usize, b: usize, state: LinkState) {
        lock(&self.fabric).set_link_state(a, b, state);
    }

    pub(crate) fn speaker(&self, node: usize) -> &Speaker {
        &self.nodes[node].as_ref().expect("a running router").speaker
    }

    /// Gives a running router another configuration; what it did, in words.
    pub(crate) fn reload(&mut self, node: usize, text: &str) -> Vec<String> {
        self.configs[node] = config(text);
        let done = self.speaker(node).reload(self.configs[node].clone()).expect("a good configuration");
        self.wake(node);
        done
    }

    /// Asks a running router for something; the first error.
    pub(crate) fn ask(&mut self, node: usize, request: &BgpRequest) {
        let answer = self.speaker(node).answer(request, &mut |_| Ok(())).expect("a listener");
        answer.expect("a good request");
        self.wake(node);
    }

    /// Tells a running router how next hops are reached; whether it is news.
    pub(crate) fn set_next_hops(&mut self, node: usize, view: NextHopView) -> bool {
        let is_news = self.speaker(node).set_next_hops(view);
        self.wake(node);
        is_news
    }

    fn wake(&mut self, node: usize) {
        self.nodes[node].as_mut().expect("a running router").due_ms.fill(0);
    }

    /// All routes of a router.
    pub(crate) fn routes(&self, node: usize) -> Vec<RouteView> {
        self.items(node, &BgpRequest::Routes(RouteFilter::default()))
    }

    pub(crate) fn neighbors(&self, node: usize) -> Vec<BgpNeighborView> {
        self.items(node, &BgpRequest::Neighbors)
    }

    pub(crate) fn update_groups(&self, node: usize) -> Vec<UpdateGroupView> {
        self.items(node, &BgpRequest::UpdateGroups)
    }

    pub(crate) fn items<T: serde::de::DeserializeOwned>(&self, node: usize, request: &BgpRequest) -> Vec<T> {
        let mut items = Vec::new();
        let answer = self.speaker(node).answer(request, &mut |item| {
            items.push(serde_json::from_value(item).expect("a view"));
            Ok(())
        });
        answer.expect("a listener").expect("a good request");
        items
    }

    /// Routes of a router as text, one a line, sorted: who sent what, and what is best.
    pub(crate) fn table(&self, node: usize) -> Vec<String> {
        let line = |route: RouteView| {
            let best = if route.best { "*" } else { " " };
            let stale = if route.stale { " stale" } else { "" };
            let RouteView { prefix, neighbor, as_path, path_id, next_hop, .. } = route;
            format!("{best} {prefix} from {neighbor} id {path_id} [{as_path}] via {next_hop}{stale}")
        };
        let mut lines: Vec<String> = self.routes(node).into_iter().map(line).collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) fn is_established(&self, node: usize, neighbor: usize) -> bool {
        let at = |each: &BgpNeighborView| each.address == std::net::IpAddr::V4(address(neighbor));
        self.neighbors(node).iter().any(|each| at(each) && each.state == "Established")
    }

    /// Runs for a time.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        let end_ms = self.now_ms() + ms;
        loop {
            self.moment();
            let next = lock(&self.fabric).next_event_ms().into_iter();
            let dues = self.nodes.iter().flatten().flat_map(|node| node.due_ms.iter().copied());
            let next = next.chain(dues).min().unwrap_or(end_ms).max(self.now_ms() + 1);
            lock(&self.fabric).advance(next.min(end_ms));
            if next >= end_ms {
                self.moment();
                return;
            }
        }
    }

    pub(crate) fn run_s(&mut self, seconds: u64) {
        self.run_ms(seconds * 1000);
    }

    /// Runs until something is the case; panics if it is not after a time.
    pub(crate) fn run_until(&mut self, what: &str, seconds: u64, is: impl Fn(&Self) -> bool) {
        let end_ms = self.now_ms() + seconds * 1000;
        while !is(self) {
            assert!(self.now_ms() < end_ms, "seed {}: not within {seconds} s: {what}", self.seed);
            self.run_ms(100);
        }
    }

    /// Everything that happens at this moment.
    fn moment(&mut self) {
        let readiness = lock(&self.fabric).readiness();
        for (node, session, readable, writable) in readiness {
            if let Some(node) = &mut self.nodes[node] {
                node.speaker.ready(session, readable, writable);
                node.turns.insert(session);
            }
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        self.random.shuffle(&mut order);
        for index in order {
            let now_ms = self.now_ms();
            let seed = self.seed;
            let Some(node) = &mut self.nodes[index] else { continue };
            let fabric = self.fabric.clone();
            let idle = node.turns.is_empty()
                && node.due_ms.iter().all(|due| *due > now_ms)
                && !lock(&fabric).has_backlog(index);
            if !idle {
                node.run(now_ms, &mut self.random, || lock(&fabric).has_backlog(index), seed);
            }
        }
    }
}

impl Node {
    /// Works until there is nothing to do at this moment.
    fn run(&mut self, now_ms: u64, random: &mut Random, backlog: impl Fn() -> bool, seed: u64) {
        let mut rests = 0;
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            if backlog() {
                self.speaker.accept(&mut self.worker, now_ms);
                busy = true;
            }
            let mut steps: Vec<Step> = self.turns.iter().copied().map(Step::Read).collect();
            for worker in 0..self.due_ms.len() {
                steps.extend([Step::Apply(worker), Step::Chores(worker)]);
                steps.extend([Step::Export(worker), Step::Tick(worker)]);
            }
            random.shuffle(&mut steps);
            for step in steps {
                busy |= self.step(step, now_ms);
            }
            while let Some(notice) = self.speaker.poll_notice() {
                if let Notice::Opened(session) = notice {
                    self.speaker
                        .attach(session, self.poll.registry(), Token(session))
                        .expect("nothing to go wrong");
                    self.due_ms.fill(0);
                    self.turns.insert(session);
                    busy = true;
                }
            }
            rests = if busy { 0 } else { rests + 1 };
            if rests == 2 {
                return;
            }
        }
        panic!("seed {seed}: a router finds no rest at {now_ms} ms");
    }

    /// Does a step; whether there may be more to do.
    fn step(&mut self, step: Step, now_ms: u64) -> bool {
        let of = self.due_ms.len();
        match step {
            Step::Read(session) => {
                let reading = self.speaker.read(&mut self.worker, session, now_ms);
                if let Some(batch) = reading.batch {
                    let batch = Rc::new(batch);
                    self.inboxes.iter_mut().for_each(|inbox| inbox.push_back(batch.clone()));
                }
                if !reading.more {
                    self.turns.remove(&session);
                }
                self.speaker.write(&mut self.worker, session, now_ms);
                true
            }
            Step::Apply(index) => {
                let Some(batch) = self.inboxes[index].pop_front() else { return false };
                for shard in (index..self.speaker.shards()).step_by(of) {
                    if self.speaker.touches(&batch, shard) {
                        self.speaker.apply(&mut self.worker, shard, &batch, now_ms);
                    }
                }
                true
            }
            Step::Chores(index) => {
                let more = self.speaker.background_work(&mut self.worker, Share { index, of }, now_ms);
                if more {
                    self.speaker.write_share(&mut self.worker, Share::ALL, now_ms);
                }
                more
            }
            Step::Export(index) => {
                let all_applied = self.inboxes.iter().all(VecDeque::is_empty);
                let exported = self.speaker.export(&mut self.worker, index, all_applied, now_ms);
                if exported.grew {
                    self.speaker.write_share(&mut self.worker, Share::ALL, now_ms);
                }
                exported.grew || exported.held
            }
            Step::Tick(index) if self.due_ms[index] <= now_ms => {
                self.due_ms[index] = self.speaker.tick(&mut self.worker, Share { index, of }, now_ms);
                true
            }
            Step::Tick(_) => false,
        }
    }
}

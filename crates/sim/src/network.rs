//! Routers and links on virtual time.
//!
//! Time advances in *windows* as long as the shortest latency of a link. Nothing that a router sends in a
//! window reaches another router before the window ends. So the routers with work in a window run in any
//! order and on any thread, each through its own moments. A router runs as far ahead as its own shortest link
//! permits, often through several windows at once: its memory is then in the caches, where a thousand routers
//! in turn would drive it out. A router without work is not visited. The result is the same for any number of
//! threads.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mio::{Poll, Registry};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::export::ExportLimits;
use thalweg_bgp::rib::NextHopView;
use thalweg_bgp::session::State;
use thalweg_config::BgpConfig;
use thalweg_node::control::BgpRequest;
use thalweg_node::speaker::{Restart, RouteReader, SessionObserver, Speaker, SpeakerOptions};
use xxhash_rust::xxh3::xxh3_128;

use crate::chance::Random;
use crate::error::SimError;
use crate::labor::{Costs, Timed};
use crate::link::{Link, LinkState, Span};
use crate::router::{Interleaving, Place, Router};
use crate::site::{SharedSite, SimulatedNetwork, Site};
use crate::windows;

/// Unused attribute sets are swept after this many UPDATEs.
const SWEEP_EVERY_UPDATES: u64 = 1 << 20;

/// Settings of the whole network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkOptions {
    /// Determines everything random.
    pub seed: u64,
    /// What routers keep for neighbors that read slowly.
    pub limits: ExportLimits,
    /// The order in which a router's workers take their turns.
    pub interleaving: Interleaving,
    /// The number of threads that run routers.
    pub threads: usize,
    /// Attribute sets are kept once for all routers instead of once for each. This takes less memory, and an
    /// idle router does not look for sets to sweep.
    pub shares_attributes: bool,
    /// Arrivals are rounded up to multiples of this many microseconds, so that a router receives together
    /// what a real one would find in its sockets when it reads them.
    pub grain_us: u64,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            limits: ExportLimits::default(),
            interleaving: Interleaving::Fixed,
            threads: 1,
            shares_attributes: true,
            grain_us: 1000,
        }
    }
}

/// What a router starts with besides its configuration.
#[derive(Default)]
pub struct Start {
    /// Set if the router has restarted and its neighbors may have kept its routes.
    pub restart: Option<Restart>,
    /// Sees what the neighbors send.
    pub observer: Option<Arc<dyn SessionObserver>>,
    /// Sees the changes of the router's table.
    pub watch: Vec<Box<dyn RouteReader>>,
}

/// The result of a run until quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// No UPDATE was sent or in flight for the requested time, and all sessions that can be up are up.
    pub is_quiet: bool,
    /// When the last UPDATE was sent or arrived.
    pub last_update_us: u64,
    /// Sessions that could be up but are not.
    pub sessions_down: usize,
}

/// Totals over all routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The UPDATE messages sent.
    pub updates: u64,
    /// The bytes of all messages sent.
    pub bytes: u64,
}

/// A simulated network: call [`run_us`](Self::run_us) and the like to advance its time.
pub struct Network {
    options: NetworkOptions,
    now_us: u64,
    places: Arc<Vec<Arc<Place>>>,
    /// The number of each router's links.
    degrees: Vec<u32>,
    by_address: BTreeMap<Ipv4Addr, usize>,
    links: BTreeMap<(usize, usize), Link>,
    /// The shortest latency of a link, which is the length of a window.
    window_us: u64,
    /// When each router has work next. An entry is outdated if its time is not that of the router's place.
    agenda: BinaryHeap<Reverse<(u64, u32)>>,
    /// How often each router was started.
    starts: Vec<u64>,
    interner: Arc<Interner>,
    swept_at: u64,
    /// UPDATEs sent, by step.
    steps: BTreeMap<u64, u64>,
    registry: Arc<Registry>,
    _poll: Poll,
}

impl Network {
    /// An empty network.
    pub fn new(options: NetworkOptions) -> Result<Self, SimError> {
        let poll = Poll::new()?;
        Ok(Self {
            options,
            now_us: 0,
            places: Arc::default(),
            degrees: Vec::new(),
            by_address: BTreeMap::new(),
            links: BTreeMap::new(),
            window_us: u64::MAX,
            agenda: BinaryHeap::new(),
            starts: Vec::new(),
            interner: Arc::new(Interner::new(options.seed)),
            swept_at: 0,
            steps: BTreeMap::new(),
            registry: Arc::new(poll.registry().try_clone()?),
            _poll: poll,
        })
    }

    /// Adds a place for a router with this address and returns its number.
    pub fn add_router(&mut self, address: Ipv4Addr) -> usize {
        let number = self.places.len();
        let site = Arc::new(Mutex::new(Site::new(number as u32, address, self.options.grain_us)));
        let place = Place { site, router: Mutex::new(None), next_us: AtomicU64::new(u64::MAX) };
        Arc::make_mut(&mut self.places).push(Arc::new(place));
        self.starts.push(0);
        self.degrees.push(0);
        self.by_address.insert(address, number);
        number
    }

    /// Links two routers, or changes their link.
    pub fn set_link(&mut self, a: usize, b: usize, link: Link) {
        let link = Link { latency_us: link.latency_us.max(1), ..link };
        let was = self.links.insert((a.min(b), a.max(b)), link);
        if was.is_none() {
            [a, b].into_iter().for_each(|node| self.degrees[node] += 1);
        }
        for (at, to) in [(a, b), (b, a)] {
            let address = self.places[to].site.lock().address;
            let mut site = self.places[at].site.lock();
            site.now_us = self.now_us;
            site.set_link(to as u32, address, link);
            if was.is_some_and(|was| was.state != link.state) {
                site.set_link_state(to as u32, link.state);
            }
        }
        self.window_us = match was {
            Some(was) if was.latency_us != link.latency_us => {
                self.links.values().map(|link| link.latency_us).min().unwrap_or(u64::MAX)
            }
            _ => self.window_us.min(link.latency_us),
        };
        [a, b].into_iter().for_each(|node| self.touched(node));
    }

    /// The link between two routers.
    pub fn link(&self, a: usize, b: usize) -> Result<Link, SimError> {
        self.links.get(&(a.min(b), a.max(b))).copied().ok_or(SimError::NoLink(a, b))
    }

    /// Changes the state of a link.
    pub fn set_link_state(&mut self, a: usize, b: usize, state: LinkState) -> Result<(), SimError> {
        let link = self.link(a, b)?;
        self.set_link(a, b, Link { state, ..link });
        Ok(())
    }

    /// Starts a router with an empty memory; stops it first if it is running.
    pub fn start(&mut self, node: usize, config: Arc<BgpConfig>, start: Start) -> Result<(), SimError> {
        self.stop(node);
        let place = &self.places[node];
        self.starts[node] += 1;
        let mut random = Random::of(Random::of(self.options.seed, node as u64).next_u64(), self.starts[node]);
        let options = SpeakerOptions {
            network: Box::new(SimulatedNetwork(place.site.clone())),
            readers: start.watch,
            observer: start.observer,
            seed: random.next_u64(),
            limits: self.options.limits,
            scheduling: "simulated".to_owned(),
            profile_functions: false,
            restart: start.restart,
            interner: self.options.shares_attributes.then(|| self.interner.clone()),
            one_shard: self.options.interleaving == Interleaving::Fixed,
        };
        let (site, registry) = (place.site.clone(), self.registry.clone());
        let router = Router::new(config, options, site, registry, random, self.options.interleaving);
        let router = router.map_err(|source| SimError::Router { router: node, source })?;
        *place.router.lock() = Some(router);
        self.touched(node);
        Ok(())
    }

    /// Stops a router abruptly; its connections end.
    pub fn stop(&mut self, node: usize) {
        self.places[node].site.lock().now_us = self.now_us;
        *self.places[node].router.lock() = None;
        self.touched(node);
    }

    /// Whether a router is running.
    pub fn is_running(&self, node: usize) -> bool {
        self.places[node].router.lock().is_some()
    }

    /// The number of routers, running or not.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no router.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The current virtual time.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// A clock that shows the router's own moment while it works.
    pub fn clock(&self, node: usize) -> Clock {
        Clock(self.places[node].site.clone())
    }

    /// The BGP speaker of a router.
    pub fn speaker(&self, node: usize) -> Result<Arc<Speaker>, SimError> {
        let router = self.places[node].router.lock();
        router.as_ref().map(|router| router.speaker.clone()).ok_or(SimError::NotRunning(node))
    }

    /// Adds what is on its way to a router; false if that is not all that its connections hold.
    pub(crate) fn write_site_state(&self, node: usize, state: &mut Vec<u8>) -> bool {
        let mut site = self.places[node].site.lock();
        // The router may have had nothing to do for a while.
        site.now_us = self.now_us;
        site.write_state(state)
    }

    /// Gives a running router another configuration; returns the speaker's report in words.
    pub fn reload(&mut self, node: usize, config: Arc<BgpConfig>) -> Result<Vec<String>, SimError> {
        let done = self.act(node, |speaker| speaker.reload(config))?;
        done.map_err(|reason| SimError::Refused { router: node, reason: reason.to_string() })
    }

    /// Inserts bytes between those that a router sends to a neighbor, on all connections that have room.
    pub fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let mut site = self.places[from].site.lock();
        site.now_us = self.now_us;
        site.inject(to as u32, bytes);
        drop(site);
        self.touched(from);
    }

    /// Gives a running router a view of next hops; returns whether it changed anything.
    pub fn set_next_hops(&mut self, node: usize, view: NextHopView) -> Result<bool, SimError> {
        self.act(node, |speaker| speaker.set_next_hops(view))
    }

    /// Sends a command to a running router.
    pub fn command(&mut self, node: usize, request: &BgpRequest) -> Result<(), SimError> {
        self.act(node, |speaker| ask::<serde_json::Value>(speaker, node, request))?.map(drop)
    }

    /// Sends a query to a running router.
    pub fn ask<T: DeserializeOwned>(&self, node: usize, request: &BgpRequest) -> Result<Vec<T>, SimError> {
        let speaker = self.speaker(node)?;
        ask(&speaker, node, request)
    }

    /// Acts on a speaker, which then checks all its work again.
    fn act<T>(&mut self, node: usize, action: impl FnOnce(&Speaker) -> T) -> Result<T, SimError> {
        let place = &self.places[node];
        place.site.lock().now_us = self.now_us;
        let mut router = place.router.lock();
        let running = router.as_mut().ok_or(SimError::NotRunning(node))?;
        let done = action(&running.speaker);
        running.wake();
        drop(router);
        self.touched(node);
        Ok(done)
    }

    /// Notes that a router was changed from outside.
    fn touched(&mut self, node: usize) {
        let mut sooner = vec![node as u32];
        windows::deliver(&self.places, node, &mut sooner);
        let next_us = windows::next_us(&self.places[node]).max(self.now_us);
        self.places[node].next_us.store(next_us, Ordering::Release);
        sooner.into_iter().for_each(|node| self.schedule(node));
    }

    /// Enters a router into the agenda at the time of its place.
    fn schedule(&mut self, node: u32) {
        let next_us = self.places[node as usize].next_us.load(Ordering::Acquire);
        if next_us != u64::MAX {
            self.agenda.push(Reverse((next_us, node)));
        }
    }

    /// The time of the next event.
    fn peek(&mut self) -> Option<u64> {
        while let Some(&Reverse((at_us, node))) = self.agenda.peek() {
            if self.places[node as usize].next_us.load(Ordering::Acquire) == at_us {
                return Some(at_us);
            }
            self.agenda.pop();
        }
        None
    }

    /// Takes the routers with work before `end_us` off the agenda.
    fn take_active(&mut self, end_us: u64, active: &mut Vec<u32>) {
        active.clear();
        while self.peek().is_some_and(|at_us| at_us < end_us) {
            if let Some(Reverse((_, node))) = self.agenda.pop() {
                self.places[node as usize].next_us.store(u64::MAX, Ordering::Release);
                active.push(node);
            }
        }
    }

    /// Runs for a duration of virtual time.
    pub fn run_us(&mut self, us: u64) -> Result<(), SimError> {
        self.run_until_us(self.now_us + us)
    }

    /// Runs until a time, including its events.
    pub fn run_until_us(&mut self, until_us: u64) -> Result<(), SimError> {
        let threads = self.options.threads.clamp(1, thalweg_exec::THREADS_MAX);
        let (mut active, mut sooner) = (Vec::new(), Vec::new());
        windows::with_threads(threads, |pool| {
            while let Some(start_us) = self.peek().filter(|at_us| *at_us <= until_us) {
                let span = Span { start_us, until_us };
                let end_us = span.end_us(self.window_us, self.options.grain_us);
                self.now_us = start_us;
                self.take_active(end_us, &mut active);
                if threads > 1 {
                    // A router with many links has most to do. If it came last, all other threads would wait for it.
                    active.sort_unstable_by_key(|node| Reverse(self.degrees[*node as usize]));
                }
                pool.run(&self.places, &active, span, &mut sooner)?;
                active.iter().chain(&sooner).for_each(|node| self.schedule(*node));
                sooner.clear();
            }
            self.now_us = until_us;
            self.sweep();
            for place in self.places.iter() {
                place.site.lock().sent.drain_steps(&mut self.steps);
            }
            Ok(())
        })
    }

    fn sweep(&mut self) {
        let updates = self.traffic().updates;
        if updates - self.swept_at >= SWEEP_EVERY_UPDATES {
            self.swept_at = updates;
            self.interner.sweep();
        }
    }

    /// Runs until no UPDATE was in flight for `quiet_us` and all sessions that can be up are up, or until
    /// `limit_us` of virtual time from now on have passed.
    pub fn run_until_quiet(&mut self, quiet_us: u64, limit_us: u64) -> Result<Quiet, SimError> {
        let end_us = self.now_us.saturating_add(limit_us);
        let begun_us = self.now_us;
        loop {
            let last_update_us = self.last_update_us();
            let is_silent = last_update_us.max(begun_us) + quiet_us <= self.now_us;
            if is_silent || self.now_us >= end_us {
                let sessions_down = self.sessions_down()?;
                let is_quiet = is_silent && sessions_down == 0;
                if is_quiet || self.now_us >= end_us {
                    return Ok(Quiet { is_quiet, last_update_us, sessions_down });
                }
            }
            let next_us = (last_update_us.max(begun_us) + quiet_us).max(self.now_us + quiet_us / 4);
            self.run_until_us(next_us.min(end_us).max(self.now_us + 1))?;
        }
    }

    /// When the last byte of an UPDATE was sent or arrived, or when the last router finishes what it
    /// received.
    pub fn last_update_us(&self) -> u64 {
        let last = |place: &Arc<Place>| {
            let site = place.site.lock();
            site.updated_us.max(site.free_us())
        };
        self.places.iter().map(last).max().unwrap_or(0)
    }

    /// From now on, UPDATEs cost a router virtual time; none for `None`.
    pub fn set_costs(&mut self, costs: Option<&Costs>) {
        self.places.iter().for_each(|place| place.site.lock().labor.costs = costs.cloned());
    }

    /// From now on, times the moments of all routers by the processor time of the computing thread, which
    /// does not depend on other programs.
    pub fn start_stopwatch(&mut self) {
        self.places.iter().for_each(|place| place.site.lock().labor.timed = Some(Vec::new()));
    }

    /// Returns the timed moments and forgets them.
    pub fn take_timed(&mut self) -> Vec<Timed> {
        let take = |place: &Arc<Place>| place.site.lock().labor.timed.take().unwrap_or_default();
        self.places.iter().flat_map(take).collect()
    }

    /// Counts sessions that are not established between two running routers whose link is up, once for each
    /// end.
    pub fn sessions_down(&self) -> Result<usize, SimError> {
        let mut down = 0;
        for node in (0..self.places.len()).filter(|node| self.is_running(*node)) {
            for session in self.speaker(node)?.sessions() {
                let IpAddr::V4(address) = session.address else { continue };
                let Some(&peer) = self.by_address.get(&address) else { continue };
                let is_up = self.link(node, peer).is_ok_and(|link| link.state == LinkState::Up);
                down += usize::from(is_up && self.is_running(peer) && session.state != State::Established);
            }
        }
        Ok(down)
    }

    /// The totals so far.
    pub fn traffic(&self) -> Traffic {
        self.places.iter().fold(Traffic::default(), |total, place| {
            let sent = &place.site.lock().sent;
            Traffic { updates: total.updates + sent.updates, bytes: total.bytes + sent.bytes }
        })
    }

    /// The UPDATEs sent since the last call, by step of [`STEP_US`](crate::STEP_US).
    pub fn take_update_steps(&mut self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.steps)
    }

    /// A digest of every byte sent, with its time and connection.
    pub fn digest(&self) -> u128 {
        let each = self.places.iter().flat_map(|place| place.site.lock().sent.digest_so_far().to_le_bytes());
        xxh3_128(&each.collect::<Vec<u8>>())
    }
}

fn ask<T: DeserializeOwned>(
    speaker: &Speaker,
    node: usize,
    request: &BgpRequest,
) -> Result<Vec<T>, SimError> {
    let refused = |reason: String| SimError::Refused { router: node, reason };
    let mut items = Vec::new();
    let answer = speaker.answer(request, &mut |item| {
        items.push(serde_json::from_value(item));
        Ok(())
    });
    answer.map_err(|error| refused(error.to_string()))?.map_err(|error| refused(error.to_string()))?;
    let items: Result<Vec<T>, _> = items.into_iter().collect();
    items.map_err(|error| refused(format!("answers with something else: {error}")))
}

/// Shows the router's own moment while it works.
#[derive(Clone)]
pub struct Clock(SharedSite);

impl Clock {
    /// The virtual time at the router.
    pub fn now_us(&self) -> u64 {
        self.0.lock().now_us
    }
}

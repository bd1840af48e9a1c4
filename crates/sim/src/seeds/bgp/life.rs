//! Runs a trial: a plan's network from its start to the last check.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::export::ExportLimits;
use thalweg_bgp::rib::NextHopView;
use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_node::control::BgpRequest;
use thalweg_node::speaker::Restart;

use super::invariants;
use super::plan::{Event, Fault, Features, Plan, RouterPlan};
use super::text::{
    self, CONNECT_RETRY_S, DEFERRAL_S, IDLE_HOLD_MAX_S, STALE_S, SUPPRESS_MAX_S, ipv6_address,
};
use crate::chance::Random;
use crate::error::SimError;
use crate::link::{Link, LinkState};
use crate::network::{Network, NetworkOptions, Start};
use crate::policy::address;
use crate::router::Interleaving;
use crate::seeds::coverage::{self, Coverage};
use crate::seeds::trial::{Moment, Trial, Verdict, Violation, Voice, panicked};

/// The virtual time without UPDATEs after which a network has converged.
const QUIET_S: u64 = 3;
/// A network that still sends UPDATEs after this time never converges.
const WORK_MAX_S: u64 = 300;
/// The interval at which a listener is told of events.
const VOICE_STEP_US: u64 = 50_000;

const SECOND_US: u64 = 1_000_000;

/// Runs a plan. `threads` run its routers; the result is the same for any number.
pub fn run(plan: &Plan, threads: usize, voice: Option<Voice<'_>>) -> Trial {
    let mut coverage = Coverage::default();
    meet_plan(plan, &mut coverage);
    let mut life = match Life::new(plan, threads, voice) {
        Ok(life) => life,
        Err(error) => {
            let verdict = Verdict::Broken(broken_simulation(&error, 0));
            return Trial { verdict, coverage, ..Trial::default() };
        }
    };
    let played =
        coverage::listening(|| catch_unwind(AssertUnwindSafe(|| life.play(&plan.rounds, &mut coverage))));
    let virtual_us = life.network.now_us();
    let verdict = match played {
        Ok(Ok(())) => Verdict::Held,
        Ok(Err(violation)) => Verdict::Broken(violation),
        Err(panic) => Verdict::Broken(panicked(panic.as_ref(), virtual_us)),
    };
    let is_whole = !matches!(&verdict, Verdict::Broken(Violation { invariant: "no panic", .. }));
    let (updates, digest) =
        if is_whole { (life.network.traffic().updates, life.network.digest()) } else { (0, 0) };
    if !is_whole {
        // Dropping a router that panicked may panic again.
        std::mem::forget(life);
    }
    Trial { verdict, coverage, virtual_us, updates, digest, ..Trial::default() }
}

/// Records the features of a plan.
fn meet_plan(plan: &Plan, coverage: &mut Coverage) {
    let Features { ipv6, paths, short_messages, no_refresh, graceful_restart, .. } = plan.features;
    let Features { roles, mrai_ms, short_logs, interleaved, large_as, damping, .. } = plan.features;
    let features = [
        ("IPv6", ipv6),
        ("additional paths", paths >= 2),
        ("short messages", short_messages),
        ("no route refresh", no_refresh),
        ("graceful restart", graceful_restart),
        ("roles", roles),
        ("MRAI", mrai_ms > 0),
        ("short logs", short_logs),
        ("several workers", interleaved),
        ("large AS numbers", large_as),
        ("damping", damping),
        ("route server", plan.routers.iter().any(|router| router.route_server)),
        ("relationships", plan.links.iter().any(|link| link.is.is_some())),
        ("one AS at two sites", plan.routers.iter().any(|router| router.site_of.is_some())),
        ("ORIGIN", plan.links.iter().any(|link| link.ends.iter().any(|end| end.incomplete))),
        ("anycast", plan.routers.iter().filter(|router| router.anycast).count() > 1),
    ];
    for (name, _) in features.iter().chain(&plan.kinds_inside()).filter(|(_, has)| *has) {
        coverage.meet("feature", name);
    }
}

fn broken_simulation(error: &SimError, at_us: u64) -> Violation {
    let (invariant, router) = match error {
        SimError::NoRest { router, .. } => ("a router comes to rest", Some(*router)),
        SimError::Refused { router, .. } => ("requests are accepted", Some(*router)),
        SimError::Router { router, .. } | SimError::NotRunning(router) => ("a router runs", Some(*router)),
        SimError::NoLink(..) | SimError::Poller(_) => ("the simulation works", None),
    };
    Violation { invariant, router, at_us, text: error.to_string() }
}

struct Life<'a> {
    /// The plan with all changes so far.
    plan: Plan,
    network: Network,
    /// Ends of links whose session is shut down, or whose peer address is unreachable.
    shut: BTreeSet<(usize, usize)>,
    no_way: BTreeSet<(usize, usize)>,
    random: Random,
    voice: Option<Voice<'a>>,
}

impl<'a> Life<'a> {
    fn new(plan: &Plan, threads: usize, voice: Option<Voice<'a>>) -> Result<Self, SimError> {
        let features = &plan.features;
        let limits =
            ExportLimits { log_bytes_max: 1, pending_max: 4, dump_routes_max: 16, dump_bytes_max: 1 };
        let mut network = Network::new(NetworkOptions {
            seed: plan.seed,
            limits: if features.short_logs { limits } else { ExportLimits::default() },
            interleaving: if features.interleaved { Interleaving::Random } else { Interleaving::Fixed },
            threads,
            ..NetworkOptions::default()
        })?;
        for router in 0..plan.routers.len() {
            network.add_router(address(router));
        }
        for link in &plan.links {
            let state = Link {
                latency_us: link.latency_us,
                rate: link.rate,
                capacity: link.capacity,
                ..Link::default()
            };
            network.set_link(link.a, link.b, state);
        }
        let random = Random::of(plan.seed, 2);
        let (shut, no_way) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { plan: plan.clone(), network, shut, no_way, random, voice })
    }

    fn broken(&self, error: SimError) -> Violation {
        broken_simulation(&error, self.network.now_us())
    }

    fn tell(&mut self, moment: Moment) {
        let at_us = self.network.now_us();
        if let Some(voice) = &mut self.voice {
            voice(at_us, moment);
        }
    }

    fn play(&mut self, rounds: &[Vec<Event>], coverage: &mut Coverage) -> Result<(), Violation> {
        for router in 0..self.plan.routers.len() {
            self.start(router, None).map_err(|error| self.broken(error))?;
        }
        self.settle(coverage)?;
        for events in rounds {
            for event in events {
                self.run_us(u64::from(event.after_ms) * 1000, coverage)?;
                let router = self.random.below(self.plan.routers.len());
                invariants::always(&self.network, router, &self.shut_neighbors(router), coverage)?;
                coverage.meet("fault", event.what.name());
                self.tell(Moment::Fault(event.what));
                self.happen(event.what).map_err(|error| self.broken(error))?;
            }
            self.mend().map_err(|error| self.broken(error))?;
            self.tell(Moment::Mended);
            if events.iter().any(|event| matches!(event.what, Fault::Silent(_) | Fault::Garbage { .. })) {
                // A connection that was on a silent link is dead, and its ends notice only when the hold time
                // expires. Some garbage is noticed only with the next message.
                self.run_us((u64::from(self.plan.features.hold_s) + 1) * SECOND_US, coverage)?;
            }
            self.settle(coverage)?;
        }
        Ok(())
    }

    /// The neighbors with which a router was told to end its session.
    fn shut_neighbors(&self, router: usize) -> Vec<String> {
        let ends = self.shut.iter().filter(|(link, end)| self.plan.router_at(*link, *end) == router);
        ends.map(|(link, end)| text::neighbor_name(router, self.plan.router_at(*link, 1 - end))).collect()
    }

    /// Runs for a duration and records what was logged.
    fn run_us(&mut self, us: u64, coverage: &mut Coverage) -> Result<(), Violation> {
        let end_us = self.network.now_us() + us;
        let step_us = if self.voice.is_some() { VOICE_STEP_US } else { us.max(1) };
        loop {
            let until_us = (self.network.now_us() + step_us).min(end_us);
            let run = self.network.run_until_us(until_us);
            for line in coverage::take_lines() {
                coverage.meet_line(&line.text);
                if let Some((router, other)) = text::routers_of_name(&line.neighbor) {
                    self.tell(Moment::Logged { router, other, text: line.text });
                }
            }
            run.map_err(|error| self.broken(error))?;
            if until_us >= end_us {
                return Ok(());
            }
        }
    }

    /// Waits until sessions are established and routes have converged, then checks everything.
    fn settle(&mut self, coverage: &mut Coverage) -> Result<(), Violation> {
        let hold_s = u64::from(self.plan.features.hold_s);
        let latency_us = self.plan.links.iter().map(|link| link.latency_us).max().unwrap_or(0);
        let up_us = (2 * (CONNECT_RETRY_S + hold_s) + IDLE_HOLD_MAX_S) * SECOND_US + 20 * latency_us;
        let begun_us = self.network.now_us();
        while self.network.sessions_down().map_err(|error| self.broken(error))? > 0 {
            if self.network.now_us() > begun_us + up_us {
                return Err(invariants::session_down(&self.network, up_us));
            }
            self.run_us(SECOND_US / 2, coverage)?;
        }
        if self.plan.features.graceful_restart {
            self.run_us((STALE_S + DEFERRAL_S + 1) * SECOND_US, coverage)?;
        }
        // A suppressed route comes back after its last flap.
        let damped_s = if self.plan.features.damping { SUPPRESS_MAX_S } else { 0 };
        let quiet_us = (QUIET_S + damped_s) * SECOND_US
            + 2 * u64::from(self.plan.features.mrai_ms) * 1000
            + 8 * latency_us;
        let end_us = self.network.now_us() + WORK_MAX_S * SECOND_US;
        loop {
            self.run_us(quiet_us / 2, coverage)?;
            let now_us = self.network.now_us();
            let sessions_down = self.network.sessions_down().map_err(|error| self.broken(error))?;
            if sessions_down == 0 && self.network.last_update_us() + quiet_us <= now_us {
                break;
            }
            if now_us > end_us {
                let text = format!("UPDATEs after {WORK_MAX_S} s without a fault");
                return Err(Violation {
                    invariant: "routes come to rest",
                    router: None,
                    at_us: now_us,
                    text,
                });
            }
        }
        invariants::at_rest(&self.network, &self.plan, coverage)?;
        self.tell(Moment::Checked);
        Ok(())
    }

    fn config(&self, router: usize) -> Result<Arc<BgpConfig>, SimError> {
        let text = text::configuration(&self.plan, router);
        let refused = |reason: String| SimError::Refused { router, reason };
        let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
        let config = config.map_err(|errors| refused(errors.to_string()))?;
        config.bgp.map(Arc::new).ok_or_else(|| refused("its configuration has no [bgp]".to_owned()))
    }

    fn start(&mut self, router: usize, restart: Option<Restart>) -> Result<(), SimError> {
        let start = Start { restart, ..Start::default() };
        self.network.start(router, self.config(router)?, start)?;
        self.shut.retain(|(link, end)| self.plan.router_at(*link, *end) != router);
        self.tell_ways(router)
    }

    fn reload(&mut self, router: usize) -> Result<(), SimError> {
        if self.network.is_running(router) {
            let config = self.config(router)?;
            self.network.reload(router, config)?;
            self.tell_ways(router)?;
        }
        Ok(())
    }

    /// Gives a router its view of next hops.
    fn tell_ways(&mut self, router: usize) -> Result<(), SimError> {
        let hosts = |at: usize| [address(at).into(), ipv6_address(at).into()].map(IpPrefix::host);
        if self.plan.is_inside(router) {
            let lost = |to: usize| {
                let mut links = self.plan.links_of(router);
                links.any(|(link, end, other)| other == to && self.no_way.contains(&(link, end)))
            };
            let all = self.plan.inside_and_beside(router).into_iter().filter(|to| *to != router);
            let cost = |to: usize| (!lost(to)).then(|| Plan::cost_inside(to));
            let ways = all.flat_map(|to| hosts(to).map(|host| (host, cost(to))));
            let view = NextHopView::new(ways.collect::<Vec<_>>());
            return self.network.set_next_hops(router, view).map(drop);
        }
        let beside: Vec<usize> = self.plan.links_of(router).map(|(.., other)| other).collect();
        let ways = self.plan.links_of(router).flat_map(|(link, end, other)| {
            let metric = self.plan.links[link].ends[end].metric;
            let metric = (!self.no_way.contains(&(link, end))).then_some(metric);
            // A route server's clients are reached through it.
            let server = Some(other).filter(|other| self.plan.routers[*other].route_server);
            let behind = server.into_iter().flat_map(|server| self.plan.links_of(server));
            let behind = behind.map(|(.., client)| client);
            let behind = behind.filter(|client| *client != router && !beside.contains(client));
            let routers: Vec<usize> = std::iter::once(other).chain(behind).collect();
            routers.into_iter().flat_map(hosts).map(move |host| (host, metric))
        });
        let view = NextHopView::new(ways.collect::<Vec<_>>());
        self.network.set_next_hops(router, view).map(drop)
    }

    /// Sends a command to the router at an end of a link, if it is running.
    fn ask(
        &mut self,
        link: usize,
        end: usize,
        request: impl FnOnce(String) -> BgpRequest,
    ) -> Result<(), SimError> {
        let (router, other) = (self.plan.router_at(link, end), self.plan.router_at(link, 1 - end));
        if !self.network.is_running(router) {
            return Ok(());
        }
        match self.network.command(router, &request(text::neighbor_name(router, other))) {
            // Without a session no routes can be requested and nothing can be ended.
            Err(SimError::Refused { .. }) => Ok(()),
            done => done,
        }
    }

    fn set_state(&mut self, link: usize, state: LinkState) -> Result<(), SimError> {
        let ends = self.plan.links[link];
        self.network.set_link_state(ends.a, ends.b, state)
    }

    fn happen(&mut self, fault: Fault) -> Result<(), SimError> {
        let words = String::new();
        match fault {
            Fault::Down(link) => self.set_state(link, LinkState::Down),
            Fault::Silent(link) => self.set_state(link, LinkState::Silent),
            Fault::Up(link) => self.set_state(link, LinkState::Up),
            Fault::Speed { link, rate, capacity } => {
                let ends = self.plan.links[link];
                let now = self.network.link(ends.a, ends.b)?;
                self.network.set_link(ends.a, ends.b, Link { rate, capacity, ..now });
                Ok(())
            }
            Fault::Stop(router) => {
                self.network.stop(router);
                Ok(())
            }
            Fault::Start(router) if self.network.is_running(router) => Ok(()),
            Fault::Start(router) => self.start(router, None),
            Fault::Restart(router) => self.restart(router),
            Fault::Reset { link, end } => {
                self.ask(link, end, |neighbor| BgpRequest::Reset { neighbor, text: words })
            }
            Fault::Shutdown { link, end } => {
                self.shut.insert((link, end));
                self.ask(link, end, |neighbor| BgpRequest::Shutdown { neighbor, text: words })
            }
            Fault::Garbage { link, end, bytes } => {
                let garbage: Vec<u8> = (0..bytes).map(|_| self.random.next_u64() as u8).collect();
                let (from, to) = (self.plan.router_at(link, end), self.plan.router_at(link, 1 - end));
                self.network.inject(from, to, &garbage);
                Ok(())
            }
            Fault::Refresh { link, end } => self.ask(link, end, |neighbor| BgpRequest::Refresh { neighbor }),
            Fault::Announce { router, now } => {
                let RouterPlan { prefixes, anycast, .. } = now;
                self.plan.routers[router] = RouterPlan { prefixes, anycast, ..self.plan.routers[router] };
                self.reload(router)
            }
            Fault::Policy { link, end, now } => {
                self.plan.links[link].ends[end] = now;
                self.reload(self.plan.router_at(link, end))
            }
            Fault::NoWay { link, end } => {
                self.no_way.insert((link, end));
                self.ways_changed(self.plan.router_at(link, end))
            }
            Fault::Ways(router) => {
                self.no_way.retain(|(link, end)| self.plan.router_at(*link, *end) != router);
                self.ways_changed(router)
            }
        }
    }

    fn ways_changed(&mut self, router: usize) -> Result<(), SimError> {
        if self.network.is_running(router) { self.tell_ways(router) } else { Ok(()) }
    }

    fn restart(&mut self, router: usize) -> Result<(), SimError> {
        if !self.network.is_running(router) {
            return Ok(());
        }
        let neighbors = self.network.speaker(router)?.restart_neighbors();
        self.network.stop(router);
        self.start(router, Some(Restart { neighbors: Some(neighbors) }))
    }

    /// Repairs all faults: links have their speed, routers run, sessions may come up, and next hops are
    /// reachable.
    fn mend(&mut self) -> Result<(), SimError> {
        for number in 0..self.plan.links.len() {
            let link = self.plan.links[number];
            let now = self.network.link(link.a, link.b)?;
            let mended = Link { state: LinkState::Up, rate: link.rate, capacity: link.capacity, ..now };
            self.network.set_link(link.a, link.b, mended);
        }
        for (link, end) in std::mem::take(&mut self.shut) {
            self.ask(link, end, |neighbor| BgpRequest::Start { neighbor })?;
        }
        self.no_way.clear();
        for router in 0..self.plan.routers.len() {
            match self.network.is_running(router) {
                true => self.tell_ways(router)?,
                false => self.start(router, None)?,
            }
        }
        Ok(())
    }
}

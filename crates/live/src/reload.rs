//! Another configuration for a router that runs, and no packet lost by it.
//!
//! | step | what | can it fail |
//! |---|---|---|
//! | prepare | compare, build the next plan, compare routes, allocate | yes: nothing has changed |
//! | gateways | numbers of new targets; their gateways are resolved before a packet wants them | yes: nothing has changed |
//! | routes | by difference, slice by slice | yes: they are put back |
//! | the rest of the program | whatever else takes the same file (BGP) | yes: routes are put back |
//! | turn | with no packet on its way: plan, NAT, policers, queues | only if packets are not worked on at all |
//! | afterwards | numbers of old routes are free; addresses, stations, mirrors, MTUs | no |
//!
//! What the router remembers goes on: sessions and their public ports, what policers have saved, what waits in queues,
//! neighbours, counters.
//!
//! Interfaces, drivers, MAC addresses, mirrors and VLANs are what the ports were opened with; another of these needs a
//! restart, and is refused.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_dataplane::egress::EgressConfig;
use thalweg_node::BuildError;
use thalweg_node::config::{PortConfig, RouterConfig};
use thalweg_node::egress::{egress_config, has_queues};
use thalweg_node::live::{LiveTables, PortLink, RouteChange, RouteCounts, RouteDifference};
use thalweg_node::plan::{Successor, TakenOver};
use thalweg_text::units::{count, counted, duration};

use crate::host::{HostChange, PortChange};
use crate::offload::Rules;
use crate::packets::{NotSwapped, Swapped};
use crate::router::{LiveRouter, refusal};
use crate::start::{class_names, translated};

/// Prefixes changed before others may have the tables: below a millisecond.
const SLICE: usize = 512;

/// What others get of the tables between two slices.
const BETWEEN_SLICES: Duration = Duration::from_micros(50);

/// How long new gateways have to answer before routes lead to them.
const GATEWAYS_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked whether they have.
const GATEWAYS_LOOK: Duration = Duration::from_millis(5);

/// How long the packet thread may take to finish what is on its way.
const SWAP_WAIT: Duration = Duration::from_secs(10);

/// Why a configuration was not taken over. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadError {
    /// Something is different that only a start can change.
    Restart {
        /// The key, as the configuration has it.
        key: String,
    },
    /// The configuration cannot be built, or the tables have no room for its routes.
    Build(BuildError),
    /// Somebody else did not take it.
    Refused(String),
    /// The threads that would have to take it do not answer.
    Stuck(&'static str),
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restart { key } => {
                write!(f, "{key} is different: that needs a restart; nothing was changed")
            }
            Self::Build(error) => write!(f, "{error}; nothing was changed"),
            Self::Refused(why) => f.write_str(why),
            Self::Stuck(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for ReloadError {}

/// A configuration that can be taken over.
pub struct Prepared {
    /// The one it was compared with.
    before: Arc<RouterConfig>,
    config: Arc<RouterConfig>,
    successor: Successor,
    routes: RouteDifference,
    host: HostChange,
    /// Whether packets are worked on differently at all.
    turns: bool,
    changes: Vec<String>,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// In words, a line each; empty if nothing is different.
    pub changes: Vec<String>,
    /// Routes.
    pub routes: RouteCounts,
    /// How long routes took to change.
    pub routes_took: Duration,
    /// How the plan was exchanged, if it was.
    pub swapped: Option<Swapped>,
    /// What became of NAT's sessions and the like.
    pub taken_over: TakenOver,
}

impl LiveRouter {
    /// Does everything about another configuration that can be refused or takes long, and changes nothing.
    pub fn prepare(&self, config: Arc<RouterConfig>) -> Result<Prepared, ReloadError> {
        let before = self.config();
        same_ports(&before, &config)?;
        let mut router = None;
        self.tables.with(&mut |tables| router = Some(tables.router()));
        let router = router.ok_or(ReloadError::Stuck("the forwarding tables do not answer"))?;
        let plan = self.plan.load_full();
        let successor = plan.successor(&before, &config, router, self.workers, self.flow_outlet.clone());
        let successor = successor.map_err(ReloadError::Build)?;
        let routes = RouteDifference::between(&before, &config);
        let changes = differences(&before, &config);
        let turns = !changes.is_empty() || routes.counts() != RouteCounts::default();
        let host = host_change(&before, &config);
        Ok(Prepared { before, config, successor, routes, host, turns, changes })
    }

    /// Takes the configuration over. `also` is done when all that remains cannot fail; if it does, nothing is changed.
    /// What it says it did becomes part of the answer.
    pub fn reload(
        &self,
        prepared: Prepared,
        also: impl FnOnce() -> Result<Vec<String>, String>,
    ) -> Result<Reloaded, ReloadError> {
        let mut in_force = self.config_in_force();
        let Prepared { before, config, successor, routes, host, turns, mut changes } = prepared;
        if !Arc::ptr_eq(&before, &in_force) {
            return Err(ReloadError::Stuck("another configuration was taken over meanwhile: try again"));
        }
        if !turns {
            changes.extend(also().map_err(ReloadError::Refused)?);
            *in_force = config;
            return Ok(Reloaded { changes, ..Reloaded::default() });
        }
        let counts = routes.counts();
        let begun = Instant::now();
        let mut change = self.change_routes(routes)?;
        let routes_took = begun.elapsed();
        match also() {
            Ok(more) => changes.extend(more),
            Err(why) => {
                self.undo_routes(&mut change);
                return Err(ReloadError::Refused(why));
            }
        }
        let (swapped, taken_over) = match self.turn(&config, successor) {
            Ok(done) => done,
            Err(error) => {
                self.undo_routes(&mut change);
                return Err(error);
            }
        };
        let mut change = Some(change);
        self.with_tables(|tables| change.take().into_iter().for_each(|change| tables.finish_routes(change)));
        self.follow(&in_force, &config, host);
        *in_force = config;
        let nat = self.nat().map(|nat| nat.counters().sessions_active);
        changes.push(in_words(counts, nat, &taken_over, swapped));
        Ok(Reloaded { changes, routes: counts, routes_took, swapped: Some(swapped), taken_over })
    }

    fn with_tables<T>(&self, mut act: impl FnMut(&mut LiveTables) -> T) -> Option<T> {
        let mut answer = None;
        self.tables.with(&mut |tables| answer = Some(act(tables)));
        answer
    }

    /// Changes routes by difference.
    fn change_routes(&self, routes: RouteDifference) -> Result<RouteChange, ReloadError> {
        let stuck = ReloadError::Stuck("the forwarding tables do not answer");
        let silent = self.order(|host| host.unresolved_gateways()).unwrap_or_default();
        let mut routes = Some(routes);
        let begun = self.with_tables(|tables| routes.take().map(|routes| tables.begin_routes(routes)));
        let mut change = begun.flatten().ok_or(stuck.clone())?.map_err(ReloadError::Build)?;
        self.wait_for_gateways(&silent);
        loop {
            match self.with_tables(|tables| tables.change_routes(&mut change, SLICE)) {
                Some(Ok(true)) => return Ok(change),
                Some(Ok(false)) => thread::sleep(BETWEEN_SLICES),
                Some(Err(error)) => {
                    self.undo_routes(&mut change);
                    return Err(ReloadError::Build(error));
                }
                None => return Err(stuck),
            }
        }
    }

    /// Waits until the gateways of new routes are resolved: a packet that meets one before is held, but not many are.
    /// Those that were silent before are not waited for.
    fn wait_for_gateways(&self, silent: &[(u16, IpAddr)]) {
        let until = Instant::now() + GATEWAYS_WAIT;
        while Instant::now() < until {
            let unresolved = self.order(|host| host.unresolved_gateways()).unwrap_or_default();
            if unresolved.iter().all(|gateway| silent.contains(gateway)) {
                return;
            }
            thread::sleep(GATEWAYS_LOOK);
        }
    }

    fn undo_routes(&self, change: &mut RouteChange) {
        while self.with_tables(|tables| tables.undo_routes(change, SLICE)) == Some(false) {
            thread::sleep(BETWEEN_SLICES);
        }
    }

    /// Exchanges the plan, and with no packet on its way what belongs to it.
    fn turn(&self, config: &RouterConfig, successor: Successor) -> Result<(Swapped, TakenOver), ReloadError> {
        let queues: Vec<Option<EgressConfig>> = (0..config.ports.len() as u16)
            .map(|port| has_queues(config, port).then(|| egress_config(config, port)))
            .collect();
        let (outboxes, clock) = (self.outboxes.clone(), self.clock);
        let (class, own) = (config.qos.default_class, self.class.clone());
        let offload = self.offload.clone().map(|offload| (offload, Rules::of(config)));
        let taken = Arc::<Mutex<TakenOver>>::default();
        let told = taken.clone();
        let (counters, names) = (self.counters.clone(), class_names(config));
        let turn = move |before: &thalweg_node::plan::RouterPlan| {
            let now_ns = clock.now_ns();
            counters.taps.set_classes(names);
            // A sub-interface has its parent's.
            for (outbox, queue) in
                outboxes.iter().zip(queues).filter(|(outbox, _)| !outbox.is_sub_interface())
            {
                outbox.set_queue(queue, now_ns);
            }
            if let Some((offload, rules)) = offload {
                offload.set_rules(rules);
            }
            own.store(class, Ordering::Relaxed);
            let (plan, taken) = successor.take_over(before);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = taken;
            plan
        };
        let wake = || self.wakers.iter().for_each(thalweg_ports::live::SourceWaker::wake);
        let swapped = self.exchange.swap(Box::new(turn), wake, SWAP_WAIT).map_err(|why| {
            ReloadError::Stuck(match why {
                NotSwapped::Ended => "packets are not forwarded any more: see the log",
                NotSwapped::TimedOut => "the packets on their way do not come to an end; nothing was changed",
            })
        })?;
        self.server.ring();
        let taken = *taken.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((swapped, taken))
    }

    /// What does not concern packets on their way.
    fn follow(&self, before: &RouterConfig, config: &RouterConfig, host: HostChange) {
        self.with_tables(|tables| {
            for (index, (old, new)) in (0..).zip(before.ports.iter().zip(&config.ports)) {
                let link = tables.port(index).filter(|_| old.default_mac != new.default_mac);
                if let Some(link) = link {
                    tables.set_port(index, PortLink { default_mac: new.default_mac, ..link });
                }
            }
        });
        for (mtu, port) in self.mtus.iter().zip(&config.ports) {
            mtu.store(port.mtu.into(), Ordering::Relaxed);
        }
        self.tells_refusals.store(host.refusal.is_some(), Ordering::Relaxed);
        let nat = self.nat();
        if self.order(|host_thread| host_thread.change(host, nat)).is_none() {
            tracing::error!("the host thread does not answer: addresses and stations are as before");
        }
    }
}

/// Ports are opened once: what they were opened with must be the same.
fn same_ports(before: &RouterConfig, after: &RouterConfig) -> Result<(), ReloadError> {
    let restart = |key: String| Err(ReloadError::Restart { key });
    let names = |config: &RouterConfig| config.ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>();
    if names(before) != names(after) {
        return restart("[ports] (which there are, or their order)".to_owned());
    }
    if before.kernel != after.kernel {
        return restart("[kernel]".to_owned());
    }
    if before.dpdk != after.dpdk {
        return restart("[dpdk]".to_owned());
    }
    let outlets = |config: &RouterConfig| {
        let flows = config.flows.clone()?;
        Some((flows.collectors, flows.balance, flows.observation_domain, flows.store, flows.nat_events))
    };
    if outlets(before) != outlets(after) {
        return restart("[flows] (whether there is any, who gets records, and `nat_events`)".to_owned());
    }
    for (old, new) in before.ports.iter().zip(&after.ports) {
        if let Some(key) = key_of_restart(old, new) {
            return restart(format!("`{key}` of [ports.{}]", new.name));
        }
    }
    Ok(())
}

fn key_of_restart(old: &PortConfig, new: &PortConfig) -> Option<&'static str> {
    let interface = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.name.clone());
    let driver = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.driver);
    let device = |port: &PortConfig| port.interface.as_ref().and_then(|interface| interface.device.clone());
    let own_mac = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.own_mac);
    let offload = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.offload);
    let queues = |port: &PortConfig| port.interface.as_ref().and_then(|interface| interface.queues);
    let xdp_mode = |port: &PortConfig| port.interface.as_ref().map(|interface| interface.xdp_mode);
    let mirror = |port: &PortConfig| port.interface.as_ref().and_then(|interface| interface.mirror.clone());
    [
        ("interface", interface(old) != interface(new)),
        ("driver", driver(old) != driver(new)),
        ("device", device(old) != device(new)),
        ("mac", own_mac(old) != own_mac(new) || old.mac != new.mac),
        ("mirror", mirror(old) != mirror(new)),
        ("queues", queues(old) != queues(new)),
        ("offload", offload(old) != offload(new)),
        ("xdp_mode", xdp_mode(old) != xdp_mode(new)),
        ("vlan", old.sub_interface != new.sub_interface),
    ]
    .into_iter()
    .find_map(|(key, differs)| differs.then_some(key))
}

/// What is different besides routes, in words.
fn differences(before: &RouterConfig, after: &RouterConfig) -> Vec<String> {
    let mut changes = Vec::new();
    for (old, new) in before.ports.iter().zip(&after.ports) {
        if old != new {
            changes.push(format!("port {}: settings changed", new.name));
        }
    }
    match (&before.nat, &after.nat) {
        (None, Some(_)) => changes.push("NAT starts".to_owned()),
        (Some(_), None) => changes.push("NAT ends".to_owned()),
        (old, new) if old != new => changes.push("NAT: settings changed".to_owned()),
        _ => {}
    }
    if before.acls != after.acls {
        changes.push("access lists changed".to_owned());
    }
    if before.qos != after.qos {
        changes.push("classes and queues changed".to_owned());
    }
    if before.validate != after.validate {
        changes.push("[validate] changed".to_owned());
    }
    if before.flows != after.flows {
        changes.push("flows: metering changed, the flow cache starts empty".to_owned());
    }
    if before.neighbours != after.neighbours {
        changes.push("[[neighbours]] changed".to_owned());
    }
    changes
}

fn host_change(before: &RouterConfig, after: &RouterConfig) -> HostChange {
    let advertises =
        |port: &PortConfig| port.interface.as_ref().is_some_and(|interface| interface.router_advertisements);
    let port_of = |config: &RouterConfig, index: u16| {
        let port = &config.ports[usize::from(index)];
        let (addresses, advertises) = (port.addresses.clone(), advertises(port));
        PortChange { port: index, addresses, translated: translated(config, index), advertises }
    };
    let ports = (0..).zip(&after.ports).map(|(index, _)| (port_of(before, index), port_of(after, index)));
    let stations = |config: &RouterConfig| {
        config.neighbours.iter().map(|each| (each.port, each.address, each.mac)).collect::<Vec<_>>()
    };
    let (old, new) = (stations(before), stations(after));
    let is_kept = |port: u16, address: IpAddr| new.iter().any(|each| (each.0, each.1) == (port, address));
    HostChange {
        ports: ports.filter(|(old, new)| old != new).map(|(_, new)| new).collect(),
        forgotten: old.iter().map(|each| (each.0, each.1)).filter(|each| !is_kept(each.0, each.1)).collect(),
        stations: new.iter().filter(|each| !old.contains(each)).copied().collect(),
        outside: after.nat.as_ref().map(|nat| nat.outside),
        refusal: refusal(after),
        class: after.qos.default_class,
    }
}

/// What a reload came to, in one line.
fn in_words(routes: RouteCounts, nat: Option<u64>, taken: &TakenOver, swapped: Swapped) -> String {
    let mut words = Vec::new();
    if routes != RouteCounts::default() {
        let set = counted(routes.set as u64, "route");
        words.push(format!("{set} added or changed, {} removed", count(routes.removed as u64)));
    }
    let ended = taken.sessions.map_or(0, |sessions| sessions.displaced);
    if let Some(kept) = nat {
        let ended = match ended {
            0 => String::new(),
            ended => format!(", {} ended", count(ended)),
        };
        words.push(format!("{} kept{ended}", counted(kept, "NAT session")));
    }
    words.push(format!("paused {}", duration(swapped.pause.as_nanos() as u64)));
    words.join("; ")
}

#[cfg(test)]
mod tests;

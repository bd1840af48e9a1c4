//! Takes over another configuration while the router runs, without losing a packet.
//!
//! | step | what | can it fail |
//! |---|---|---|
//! | prepare | compare, build the next plan, compare routes, allocate, open new ports | yes: nothing has changed |
//! | gateways | number new targets; resolve their gateways before a packet needs them | yes: nothing has changed |
//! | routes | by difference, slice by slice | yes: they are put back |
//! | turn | with no packet in the plan: plan, NAT, policers, queues | if the packet thread is stuck: routes are put back |
//! | BGP | applies its part of the file, which it accepted before | no |
//! | afterwards | free numbers of old routes; addresses, static neighbors, mirrors, MTUs | no |
//!
//! State survives: NAT sessions and their public ports, tokens of policers, packets in queues, neighbors and
//! counters.
//!
//! Ports are added, removed and changed too: see `ports`. A port keeps its driver and the driver's options as long
//! as it has its interface; changing those needs a restart, and is refused.

mod ports;

use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use thalweg_config::{PortConfig, RouterConfig, needs_restart};
use thalweg_dataplane::egress::EgressConfig;
use thalweg_dataplane::nat::NatConfig;
use thalweg_node::BuildError;
use thalweg_node::egress::{egress_config, has_queues};
use thalweg_node::live_tables::{PortLink, RouteChange, RouteCounts, RouteDifference};
use thalweg_node::plan::{Migrated, NextPlan};
use thalweg_text::units::{count, counted, duration};

use crate::host::{HostChange, NatPorts, PortChange};
use crate::offload::Rules;
use crate::packets::{NotSwapped, Swapped};
use crate::router::{LiveRouter, refusal};
use crate::start::{class_names, translated};
use ports::{PortDifference, PortsChange, moves_ports};

/// Prefixes changed per hold of the tables' lock: less than a millisecond.
const SLICE: usize = 512;

/// How long other writers have the lock between two slices.
const BETWEEN_SLICES: Duration = Duration::from_micros(50);

/// How long new gateways may take to answer before routes lead to them.
const GATEWAYS_WAIT: Duration = Duration::from_secs(1);

const GATEWAYS_LOOK: Duration = Duration::from_millis(5);

/// How long the packet thread may take to finish packets in the plan.
const SWAP_WAIT: Duration = Duration::from_secs(10);

/// Why a configuration was not taken over. The running one stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A difference needs a restart.
    #[error("{key} differs, which needs a restart; nothing was changed")]
    Restart {
        /// The key as written in the configuration.
        key: String,
    },
    /// The configuration cannot be built, or the tables have no room for its routes.
    #[error("{0}; nothing was changed")]
    Build(BuildError),
    /// A port or an interface cannot be opened or changed.
    #[error("{0}")]
    Refused(String),
    /// Another reload interfered, or a thread did not answer in time.
    #[error("{0}")]
    Stuck(&'static str),
}

/// A configuration that was checked and can be taken over with [`LiveRouter::reload`]; dropping it undoes the
/// preparation.
pub struct Prepared {
    /// The configuration it was compared with; a reload in between makes this one fail.
    before: Arc<RouterConfig>,
    config: Arc<RouterConfig>,
    successor: NextPlan,
    routes: RouteDifference,
    host: HostChange,
    ports: Option<PortsChange>,
    /// Whether anything outside BGP differs, so that packets must stop for a moment.
    turns: bool,
    changes: Vec<String>,
}

impl LiveRouter {
    /// Lists what another configuration would change, or returns why it would be refused. Opens and changes
    /// nothing.
    pub fn compare(&self, config: &RouterConfig) -> Result<Vec<String>, ReloadError> {
        let before = self.config();
        let (difference, mut changes) = compared(&before, config)?;
        self.can_open(&before, config, &difference)?;
        changes.extend(routes_in_words(RouteDifference::between(&before, config).counts()));
        Ok(changes)
    }

    /// Does everything that can be refused or takes long, and changes nothing that packets meet.
    pub fn prepare(&self, config: Arc<RouterConfig>) -> Result<Prepared, ReloadError> {
        let before = self.config();
        let (difference, changes) = compared(&before, &config)?;
        let router = self.tables.router_of(&config).map_err(ReloadError::Build)?;
        let plan = self.plan.load_full();
        let successor = plan.successor(&before, &config, router, self.workers, self.flow_outlet.clone());
        let successor = successor.map_err(ReloadError::Build)?;
        let routes = RouteDifference::between(&before, &config);
        let turns = !changes.is_empty() || routes.counts() != RouteCounts::default();
        let host = host_change(&before, &config);
        // Last, because the network can notice it.
        let ports = self.prepare_ports(&before, &config, difference)?;
        let turns = turns || ports.is_some();
        Ok(Prepared { before, config, successor, routes, host, ports, turns, changes })
    }

    /// Takes the configuration over. `also` runs when nothing can fail any more: BGP takes over its part. Its lines
    /// become part of the result: one line per change, none if nothing differs.
    pub fn reload(
        &self,
        prepared: Prepared,
        also: impl FnOnce() -> Vec<String>,
    ) -> Result<Vec<String>, ReloadError> {
        let mut in_force = self.config_in_force();
        let Prepared { before, config, successor, routes, host, mut ports, turns, mut changes } = prepared;
        if !Arc::ptr_eq(&before, &in_force) {
            return Err(ReloadError::Stuck("another reload ran meanwhile: try again"));
        }
        if !turns {
            changes.extend(also());
            *in_force = config;
            return Ok(changes);
        }
        let counts = routes.counts();
        let ways_before = self.outboxes.load();
        if let Some(ports) = &ports {
            self.begin_ports(ports, &config);
        }
        let exchanged = self.change_routes_and_turn(&config, (routes, successor), ports.as_mut());
        let (swapped, taken_over) = match exchanged {
            Ok(exchanged) => exchanged,
            Err(error) => {
                if let Some(ports) = ports {
                    self.undo_ports(ports);
                    self.outboxes.replace(ways_before.to_vec());
                    self.counters.set_names(before.ports.iter().map(|port| port.name.clone()));
                }
                return Err(error);
            }
        };
        changes.extend(also());
        let closed = ports.is_some_and(|ports| self.finish_ports(ports, &ways_before, &config));
        let lost = if closed || moves_ports(&before, &config) {
            self.end_sessions_of_lost_hosts(&before, &config)
        } else {
            0
        };
        self.apply_off_path(&in_force, &config, host);
        *in_force = config;
        let nat = self.nat().map(|nat| nat.counters().sessions_active);
        changes.push(in_words(counts, nat, &taken_over, lost, swapped));
        Ok(changes)
    }

    /// Does what may still fail after `prepare`; on failure, the routes are put back.
    fn change_routes_and_turn(
        &self,
        config: &RouterConfig,
        (routes, mut successor): (RouteDifference, NextPlan),
        ports: Option<&mut PortsChange>,
    ) -> Result<(Swapped, Migrated), ReloadError> {
        let mut change = self.change_routes(routes, &ports)?;
        successor.set_targets(change.targets());
        let turned = self.turn(config, successor, ports).inspect_err(|_| self.undo_routes(&mut change))?;
        self.tables.finish_routes(change);
        Ok(turned)
    }

    fn change_routes(
        &self,
        routes: RouteDifference,
        ports: &Option<&mut PortsChange>,
    ) -> Result<RouteChange, ReloadError> {
        let silent = self.order(|host| host.unresolved_gateways()).unwrap_or_default();
        let mut change = self.tables.begin_routes(routes).map_err(ReloadError::Build)?;
        self.wait_for_gateways(&silent, ports);
        loop {
            match self.tables.change_routes(&mut change, SLICE) {
                Ok(true) => return Ok(change),
                Ok(false) => thread::sleep(BETWEEN_SLICES),
                Err(error) => {
                    self.undo_routes(&mut change);
                    return Err(ReloadError::Build(error));
                }
            }
        }
    }

    /// Waits until gateways of new routes are resolved, because few packets can wait for a neighbor. It skips
    /// gateways that did not answer before, and those on new ports, whose answers arrive only after the turn.
    fn wait_for_gateways(&self, silent: &[(u16, IpAddr)], ports: &Option<&mut PortsChange>) {
        let is_new = |port: u16| ports.as_ref().is_some_and(|ports| ports.brings(port));
        let until = Instant::now() + GATEWAYS_WAIT;
        while Instant::now() < until {
            let unresolved = self.order(|host| host.unresolved_gateways()).unwrap_or_default();
            if unresolved.iter().all(|gateway| silent.contains(gateway) || is_new(gateway.0)) {
                return;
            }
            thread::sleep(GATEWAYS_LOOK);
        }
    }

    fn undo_routes(&self, change: &mut RouteChange) {
        while !self.tables.undo_routes(change, SLICE) {
            thread::sleep(BETWEEN_SLICES);
        }
    }

    /// Exchanges the plan and what belongs to it while no packet is in it.
    fn turn(
        &self,
        config: &RouterConfig,
        successor: NextPlan,
        ports: Option<&mut PortsChange>,
    ) -> Result<(Swapped, Migrated), ReloadError> {
        let change_ports = ports.map(|ports| ports.turn(&self.lanes, &self.outboxes));
        let queues: Vec<Option<EgressConfig>> = (0..config.ports.len() as u16)
            .map(|port| has_queues(config, port).then(|| egress_config(config, port)))
            .collect();
        let (outboxes, clock) = (self.outboxes.clone(), self.clock);
        let (class, own) = (config.qos.default_class, self.class.clone());
        let offload = self.offload.clone().map(|offload| (offload, Rules::of(config)));
        let taken = Arc::<Mutex<Migrated>>::default();
        let told = taken.clone();
        let (counters, names) = (self.counters.clone(), class_names(config));
        let turn = move |before: &thalweg_node::plan::RouterPlan| {
            let now_ns = clock.now_ns();
            counters.taps.set_classes(names);
            if let Some(change_ports) = change_ports {
                change_ports();
            }
            // A sub-interface shares its parent's queue.
            for (outbox, queue) in
                outboxes.load().iter().zip(queues).filter(|(outbox, _)| !outbox.is_sub_interface())
            {
                outbox.set_queue(queue, now_ns);
            }
            if let Some((offload, rules)) = offload {
                offload.set_rules(rules);
            }
            own.store(class, Ordering::Relaxed);
            let (plan, taken) = successor.migrate_state(before);
            *told.lock() = taken;
            plan
        };
        let wake = || self.wakers.iter().for_each(thalweg_ports::live::SourceWaker::wake);
        let swapped = self.exchange.swap(Box::new(turn), wake, SWAP_WAIT).map_err(|why| {
            ReloadError::Stuck(match why {
                NotSwapped::Ended => "the router stopped forwarding packets: see the log",
                NotSwapped::TimedOut => "the packets on their way do not come to an end; nothing was changed",
            })
        })?;
        self.queue_clock.wake();
        let taken = *taken.lock();
        Ok((swapped, taken))
    }

    /// Applies changes that do not concern packets in the plan.
    fn apply_off_path(&self, before: &RouterConfig, config: &RouterConfig, host: HostChange) {
        for (index, (old, new)) in (0..).zip(before.ports.iter().zip(&config.ports)) {
            if (old.default_mac, old.vrf, old.mtu) != (new.default_mac, new.vrf, new.mtu) {
                let PortConfig { default_mac, vrf, mtu, .. } = *new;
                // A larger MTU is what the link allows, which its thread reads.
                self.tables.update_port(index, |link| PortLink {
                    default_mac,
                    vrf,
                    mtu: link.mtu.min(mtu.into()),
                    ..link
                });
            }
        }
        for (state, port) in self.states().iter().zip(&config.ports) {
            if let Some(state) = state {
                state.mtu.store(port.mtu.into(), Ordering::Relaxed);
            }
        }
        if let Some(standby) = &self.standby {
            standby.configure(config);
        }
        self.tells_refusals.store(host.refusal.is_some(), Ordering::Relaxed);
        let (nat, firewall) = (self.nat(), self.firewall_watch(config));
        if self.order(|host_thread| host_thread.change(host, nat, firewall)).is_none() {
            tracing::error!("the host thread is busy: addresses and static neighbors change when it is free");
        }
    }
}

/// Compares the ports, and lists all differences; fails if one cannot be applied.
fn compared(
    before: &RouterConfig,
    after: &RouterConfig,
) -> Result<(PortDifference, Vec<String>), ReloadError> {
    let difference = PortDifference::between(before, after)?;
    if let Some(key) = needs_restart(before, after) {
        return Err(ReloadError::Restart { key });
    }
    let mut changes = difference.in_words(before, after);
    changes.extend(differences(before, after, &difference.new));
    Ok((difference, changes))
}

/// Lists differences other than routes. Ports in `opened`, and removed ones, are skipped.
fn differences(before: &RouterConfig, after: &RouterConfig, opened: &[u16]) -> Vec<String> {
    let mut changes = Vec::new();
    for (port, (old, new)) in (0..).zip(before.ports.iter().zip(&after.ports)) {
        if old != new && !new.is_vacant() && !opened.contains(&port) {
            changes.push(format!("port {}: settings changed", new.name));
        }
    }
    match (&before.nat, &after.nat) {
        (None, Some(_)) => changes.push("NAT starts".to_owned()),
        (Some(_), None) => changes.push("NAT ends".to_owned()),
        (Some(old), Some(new)) => {
            // Untranslated addresses follow from routes, which are listed separately.
            let old = NatConfig { untranslated: new.untranslated.clone(), ..old.clone() };
            if old != *new {
                changes.push("NAT: settings changed".to_owned());
            }
        }
        (None, None) => {}
    }
    if !before.routing.has_rules_of(&after.routing) {
        changes.push("routing rules changed".to_owned());
    }
    if before.acls != after.acls {
        changes.push("access lists changed".to_owned());
    }
    match (&before.firewall, &after.firewall) {
        (None, Some(_)) => changes.push("the firewall starts".to_owned()),
        (Some(_), None) => changes.push("the firewall ends".to_owned()),
        (old, new) if old != new => changes.push("firewall: settings changed".to_owned()),
        _ => {}
    }
    if before.qos != after.qos {
        changes.push("classes and queues changed".to_owned());
    }
    if before.validate != after.validate {
        changes.push("[validate] changed".to_owned());
    }
    if before.flows != after.flows {
        let meter = |config: &RouterConfig| config.flows.as_ref().map(|flows| flows.meter.clone());
        changes.push(match meter(before) == meter(after) {
            true => "flows: settings changed, the flow cache stays".to_owned(),
            false => "flows: metering changed, the flow cache starts empty".to_owned(),
        });
    }
    if before.routing.checks != after.routing.checks {
        changes.push("health checks of gateways changed".to_owned());
    }
    if before.neighbors != after.neighbors {
        changes.push("[[neighbors]] changed".to_owned());
    }
    changes
}

fn host_change(before: &RouterConfig, after: &RouterConfig) -> HostChange {
    let advertises =
        |port: &PortConfig| port.interface.as_ref().is_some_and(|interface| interface.router_advertisements);
    let port_of = |config: &RouterConfig, index: u16| {
        let port = config.ports.get(usize::from(index))?;
        let (addresses, advertises) = (port.addresses.clone(), advertises(port));
        let mirrored = addresses.iter().copied().filter(|net| !port.learned.contains(net)).collect();
        Some(PortChange {
            port: index,
            addresses,
            mirrored,
            translated: translated(config, index),
            advertises,
        })
    };
    let ports = (0..).zip(&after.ports).map(|(index, _)| (port_of(before, index), port_of(after, index)));
    let static_neighbors = |config: &RouterConfig| {
        config.neighbors.iter().map(|each| (each.port, each.address, each.mac)).collect::<Vec<_>>()
    };
    let (old, new) = (static_neighbors(before), static_neighbors(after));
    let is_kept = |port: u16, address: IpAddr| new.iter().any(|each| (each.0, each.1) == (port, address));
    HostChange {
        ports: ports.filter(|(old, new)| old != new).filter_map(|(_, new)| new).collect(),
        forgotten: old.iter().map(|each| (each.0, each.1)).filter(|each| !is_kept(each.0, each.1)).collect(),
        static_neighbors: new.iter().filter(|each| !old.contains(each)).copied().collect(),
        checks: after.routing.checks.clone(),
        nat_ports: NatPorts::of(after),
        refusal: refusal(after),
        class: after.qos.default_class,
    }
}

/// Summarizes a reload in one line.
fn in_words(routes: RouteCounts, nat: Option<u64>, taken: &Migrated, lost: u64, swapped: Swapped) -> String {
    let mut words: Vec<String> = routes_in_words(routes).into_iter().collect();
    let ended = taken.sessions.map_or(0, |sessions| sessions.displaced) + lost;
    if let Some(kept) = nat {
        let ended = match ended {
            0 => String::new(),
            ended => format!(", {} ended", count(ended)),
        };
        words.push(format!("{} kept{ended}", counted(kept, "NAT session")));
    }
    if taken.states_lost > 0 {
        words.push(format!("{} of the firewall ended", counted(taken.states_lost, "connection")));
    }
    words.push(format!("paused {}", duration(swapped.pause.as_nanos() as u64)));
    words.join("; ")
}

fn routes_in_words(routes: RouteCounts) -> Option<String> {
    let RouteCounts { added, changed, removed } = routes;
    let parts = [(added, "added"), (changed, "changed"), (removed, "removed")];
    let mut parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let (number, what) = parts.next()?;
    let first = format!("{} {what}", counted(number as u64, "route"));
    let rest = parts.map(|(number, what)| format!(", {} {what}", count(number as u64)));
    Some(rest.fold(first, |line, part| line + &part))
}

#[cfg(test)]
mod tests;

//! The router's forwarding tables. They are made before anything reads or writes them, and shared by handles.
//!
//! Three threads write them, under one lock: the host thread (neighbors, links), the one that follows the kernel
//! (others' routes), and the one that installs BGP's best routes. A reload changes configured routes under the same
//! lock. Packets take no lock: they read what [`LiveTables`] publishes. Other readers hold the lock for one query
//! ([`ForwardingTables::read`]).

use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_base::IpPrefix;
use thalweg_bgp::route::{SHARDS, SharedChanges};
use thalweg_wire::MacAddr;

use super::ground::{self, Alternatives, alternatives_of, routes_of, underlay_of};
use super::{Forwarding, Inbox, Task, rescan, view_of};
use crate::BuildError;
use crate::control::{
    AnswerError, FibNextHop, FibRouteView, FibView, ForwardingView, KernelSyncView, VrfView,
};
use crate::fib::{
    Batch, Outlet, OutletConfig, PIECE_CHANGES, SavedRoutes, Underlay, UnderlayRoute, UnderlayTarget, Way,
};
use crate::live_tables::{LiveTables, OtherWays, PortLink, RouteChange, RouteDifference};
use crate::speaker::Speaker;
use thalweg_config::{NextHopCheck, RouterConfig, VrfIndex};
use thalweg_dataplane::route::Router;
use thalweg_dataplane::vrf::table_of;

/// The timeout of a wait on the inbox. It has no effect on latency: every task wakes the thread.
const WAIT: Duration = Duration::from_secs(10);

/// The same while a predecessor's routes are in the tables, which go when the restart is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ranks of paths that BGP reports: the best one and its backup.
const RANKS: usize = 2;

/// The routes of a configuration, for [`ForwardingTables::set_configured`]. Made before the lock is taken, because
/// it may be a full table.
#[derive(Debug)]
pub struct ConfiguredRoutes {
    routes: Vec<(IpPrefix, UnderlayTarget)>,
    alternatives: Vec<(IpPrefix, Vec<UnderlayTarget>)>,
    ports: Vec<String>,
    vrfs: Vec<String>,
    resolves_bgp: bool,
}

impl ConfiguredRoutes {
    /// The routes of `config`.
    pub fn of(config: &RouterConfig) -> Self {
        let (routes, alternatives) = (routes_of(config).collect(), alternatives_of(config));
        let (ports, vrfs) = (names_of_ports(config), names_of_vrfs(config));
        Self { routes, alternatives, ports, vrfs, resolves_bgp: config.bgp.is_some() }
    }
}

fn names_of_ports(config: &RouterConfig) -> Vec<String> {
    config.ports.iter().map(|port| port.name.clone()).collect()
}

fn names_of_vrfs(config: &RouterConfig) -> Vec<String> {
    config.routing.vrf_names().map(str::to_owned).collect()
}

/// The number of the VRF that is asked for. The names are those of all, by number; empty for those that a reload removed.
pub fn vrf_named<'n>(names: impl Iterator<Item = &'n str>, name: &str) -> Result<VrfIndex, AnswerError> {
    let mut all = (0..).zip(names).filter(|(_, known)| !known.is_empty());
    let found = all.find(|(_, known)| *known == name).map(|(vrf, _)| vrf);
    found.ok_or_else(|| AnswerError::UnknownVrf(name.to_owned()))
}

/// The forwarding tables of a router; see the module.
pub struct ForwardingTables {
    state: Mutex<State>,
    /// The queue of BGP's best routes, if they are installed here.
    inbox: Option<Arc<Inbox>>,
    /// A version that grows with every change of the router's own routes.
    generation: AtomicU64,
    /// The configured routes, kept to export them to the kernel or to add others' routes to them.
    configured: Mutex<Vec<(IpPrefix, UnderlayTarget)>>,
    /// Decisions learn here which next hops are dead. Not if the kernel's routes tell them.
    tells_next_hops: bool,
    /// Whether configured routes are kept, and whether next hops resolve by others' routes too.
    keeps_configured: bool,
    has_others: bool,
    /// How often the configured routes were replaced.
    reloads: AtomicU64,
    kernel_sync: Mutex<Option<KernelSyncView>>,
}

struct State {
    tables: LiveTables,
    /// BGP's routes in the tables.
    outlet: Outlet,
    /// Names of ports, indexed by link.
    ports: Vec<String>,
    /// Names of tables; empty for one that a reload removed.
    vrfs: Vec<String>,
    alternatives: Alternatives,
    /// The version of link and neighbor state that the routes have followed.
    life: u64,
    /// Routes that a predecessor saved are in the tables, and BGP has not selected ours.
    has_saved: bool,
}

/// The tables under their lock, for one query.
pub struct TablesRead<'t>(MutexGuard<'t, State>);

impl Deref for TablesRead<'_> {
    type Target = LiveTables;

    fn deref(&self) -> &LiveTables {
        &self.0.tables
    }
}

impl State {
    /// The table that a name stands for.
    fn vrf(&self, name: Option<&str>) -> Result<VrfIndex, AnswerError> {
        name.map_or(Ok(0), |name| vrf_named(self.vrfs.iter().map(String::as_str), name))
    }

    fn name_of(&self, vrf: VrfIndex) -> String {
        self.vrfs.get(usize::from(vrf)).cloned().unwrap_or_default()
    }

    /// The paths of packets that match a number.
    fn ways(&self, hop: u16, host: Option<IpAddr>) -> Vec<FibNextHop> {
        let way = |(port, neighbor, mac): (u16, Option<IpAddr>, Option<MacAddr>)| FibNextHop {
            port: self.ports.get(usize::from(port)).cloned().unwrap_or_default(),
            neighbor,
            mac: mac.map(|mac| mac.to_string()),
            state: None,
        };
        self.tables.ways_of(hop, host).into_iter().map(way).collect()
    }
}

impl ForwardingTables {
    /// Tables with the routes of the configuration. BGP's best routes come through the inbox, if given.
    pub fn new(config: &RouterConfig, inbox: Option<Arc<Inbox>>) -> Result<Self, BuildError> {
        let tables = LiveTables::new(config)?;
        let outlet_config =
            OutletConfig { first_hop: tables.first_hop(), backups: true, ..OutletConfig::default() };
        let outlet = Outlet::new(outlet_config, underlay_of(config));
        let (ports, vrfs) = (names_of_ports(config), names_of_vrfs(config));
        let configured = match config.kernel.import || config.kernel.export {
            true => routes_of(config).collect(),
            false => Vec::new(),
        };
        let (generation, kernel_sync) = (AtomicU64::new(1), Mutex::default());
        let checks = config.bgp.as_ref().map(|bgp| bgp.next_hop_check);
        let alternatives = Alternatives::new(alternatives_of(config));
        Ok(Self {
            state: Mutex::new(State { tables, outlet, ports, vrfs, alternatives, life: 0, has_saved: false }),
            inbox,
            tells_next_hops: checks == Some(NextHopCheck::Off) && !config.ports.is_empty(),
            generation,
            configured: Mutex::new(configured),
            keeps_configured: config.kernel.import || config.kernel.export,
            has_others: config.kernel.import,
            reloads: AtomicU64::new(0),
            kernel_sync,
        })
    }

    /// Changes whenever the result of [`Self::desired`] may have changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The router's own routes, configured and BGP, with their targets: what the kernel should have. BGP's come
    /// first, so that of two routes for a prefix the later counts. Routes to the router itself are left out.
    pub fn desired(&self) -> Vec<(IpPrefix, UnderlayTarget)> {
        let of_bgp = |(prefix, way)| match way {
            Way::Neighbor { address, link } => {
                (prefix, UnderlayTarget::Gateway { address, link: Some(link) })
            }
            Way::Discard => (prefix, UnderlayTarget::Discard),
        };
        let state = self.state.lock();
        let mut all: Vec<_> = state.outlet.desired().map(of_bgp).collect();
        let configured = self.configured();
        let others = configured.iter().filter(|(_, target)| *target != UnderlayTarget::Local);
        all.extend(others.map(|route| state.alternatives.now(*route)));
        all
    }

    /// Resolves BGP's next hops by the configured routes and by these of others.
    pub fn set_others_underlay(&self, others: impl Iterator<Item = (IpPrefix, UnderlayTarget)>) {
        let route = |metric| move |(prefix, target)| UnderlayRoute { prefix, target, metric };
        let State { outlet, tables, alternatives, .. } = &mut *self.state.lock();
        let underlay = {
            let configured = self.configured();
            let configured = configured.iter().map(|route| alternatives.now(*route)).map(route(0));
            Underlay::with_metrics(others.map(route(1)).chain(configured))
        };
        outlet.set_underlay(underlay, tables);
        self.ground_changed();
    }

    /// Tells readers that the underlay changed.
    fn ground_changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(inbox) = &self.inbox {
            inbox.note_ground();
        }
    }

    /// Adapts routes to the latest link and neighbor state.
    fn follow_life(&self, state: &mut State) {
        let life = state.tables.life_changes();
        if std::mem::replace(&mut state.life, life) == life {
            return;
        }
        let State { outlet, tables, alternatives, .. } = state;
        let moved = alternatives.choose(tables);
        if !moved.is_empty() {
            outlet.move_underlay(&moved, tables);
        }
        self.ground_changed();
    }

    /// Tells the decision process which next hops are dead.
    fn update_next_hops(&self, speaker: &Speaker) {
        let view = {
            let State { outlet, tables, .. } = &*self.state.lock();
            let silent = tables.silent().into_iter().map(|(port, address)| (port.into(), address));
            outlet.underlay().view_of_life(|target| ground::is_alive(tables, target), silent)
        };
        speaker.set_next_hops(view);
    }

    /// Changes whenever links or neighbors died or came back.
    pub fn life_changes(&self) -> u64 {
        self.state.lock().life
    }

    /// The first of these that is not known to be dead, or else the first.
    pub fn alive_of(&self, targets: &[UnderlayTarget]) -> Option<UnderlayTarget> {
        let state = self.state.lock();
        let alive = targets.iter().copied().find(|target| ground::is_alive(&state.tables, *target));
        alive.or(targets.first().copied())
    }

    /// Sets what `show` reports of the kernel sync.
    pub fn set_kernel_sync(&self, view: KernelSyncView) {
        *self.kernel_sync.lock() = Some(view);
    }

    /// Installs BGP's best routes until the inbox is closed: the body of a thread.
    pub fn run(&self, speaker: &Speaker) {
        let Some(inbox) = &self.inbox else { return };
        speaker.report_ranks(RANKS);
        loop {
            match inbox.next(self.patience()) {
                Task::Ground if self.tells_next_hops => self.update_next_hops(speaker),
                Task::Ground => {}
                Task::Changes(changes) => self.install(&changes),
                Task::Rescan(shard) => {
                    let State { outlet, tables, .. } = &mut *self.state.lock();
                    rescan(speaker, shard, outlet, tables);
                    self.generation.fetch_add(1, Ordering::AcqRel);
                }
                Task::Idle => self.end_restart(speaker),
                Task::Closed => return,
            }
        }
    }

    /// Installs changes of best routes, which came in this order.
    fn install(&self, changes: &[SharedChanges]) {
        let batch = Batch::of(changes.iter().map(|each| &**each));
        for piece in batch.pieces(PIECE_CHANGES) {
            let mut state = self.state.lock();
            let State { outlet, tables, .. } = &mut *state;
            outlet.handle_piece(piece, tables);
            self.generation.fetch_add(1, Ordering::AcqRel);
            // Neighbors, links and questions have their turn between two pieces.
            MutexGuard::unlock_fair(state);
        }
    }

    /// Puts in the routes that a predecessor saved, before BGP brings any. They stay until the speaker's restart is over
    /// ([`Speaker::is_restarting`]).
    pub fn restore(&self, mut saved: SavedRoutes) {
        saved.sort();
        for part in 0..saved.parts() {
            // Between two parts others have their turn.
            let mut state = self.state.lock();
            let State { outlet, tables, .. } = &mut *state;
            outlet.restore(&saved, part, tables);
            state.has_saved = true;
            MutexGuard::unlock_fair(state);
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// BGP's routes, for a successor.
    pub fn saved(&self) -> SavedRoutes {
        self.state.lock().outlet.saved()
    }

    /// Removes the saved routes that no neighbor has repeated, once BGP has selected and all of it is installed.
    fn end_restart(&self, speaker: &Speaker) {
        if !self.state.lock().has_saved || speaker.is_restarting() {
            return;
        }
        // What was selected may have come since the inbox was empty; it changes nothing here, and is counted there.
        let count = |state: &State| state.outlet.counters().prefixes.iter().sum::<u64>();
        let mut removed = 0;
        for shard in 0..SHARDS {
            let mut state = self.state.lock();
            let before = count(&state);
            let State { outlet, tables, .. } = &mut *state;
            rescan(speaker, shard, outlet, tables);
            removed += before.saturating_sub(count(&state));
        }
        self.state.lock().has_saved = false;
        self.generation.fetch_add(1, Ordering::AcqRel);
        tracing::info!(removed, "restart: removed saved routes that are not announced any more");
    }

    /// How long the installing thread waits for a task.
    fn patience(&self) -> Duration {
        if self.state.lock().has_saved { LOOK_EVERY } else { WAIT }
    }

    /// Locks the tables for a query. While it holds the result, a thread must not call other methods.
    pub fn read(&self) -> TablesRead<'_> {
        TablesRead(self.state.lock())
    }

    /// Changes the tables, and then adapts routes to the new link and neighbor state.
    fn change<T>(&self, change: impl FnOnce(&mut LiveTables) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state.tables);
        self.follow_life(&mut state);
        result
    }

    /// See [`LiveTables::set_port`].
    pub fn set_port(&self, port: u16, link: PortLink) {
        self.change(|tables| tables.set_port(port, link));
    }

    /// Updates the link of a port that is already set; ignores others.
    pub fn update_port(&self, port: u16, update: impl FnOnce(PortLink) -> PortLink) {
        self.change(|tables| {
            if let Some(link) = tables.port(port) {
                tables.set_port(port, update(link));
            }
        });
    }

    /// See [`LiveTables::set_neighbors`].
    pub fn set_neighbors(&self, news: &[((u16, IpAddr), Option<MacAddr>)]) -> usize {
        self.change(|tables| tables.set_neighbors(news))
    }

    /// See [`LiveTables::set_check`].
    pub fn set_check(&self, gateway: (u16, IpAddr), has_failed: bool) {
        self.change(|tables| tables.set_check(gateway, has_failed));
    }

    /// See [`LiveTables::set_virtual`].
    pub fn set_virtual(&self, port: u16, address: IpAddr, is_ours: bool) {
        self.change(|tables| tables.set_virtual(port, address, is_ours));
    }

    /// See [`LiveTables::set_others`].
    pub fn set_others(&self, changes: &[(IpPrefix, Option<OtherWays>)]) -> usize {
        self.change(|tables| tables.set_others(changes))
    }

    /// See [`LiveTables::router_of`].
    pub fn router_of(&self, config: &RouterConfig) -> Result<Router, BuildError> {
        self.state.lock().tables.router_of(config)
    }

    /// See [`LiveTables::begin_routes`].
    pub fn begin_routes(&self, routes: RouteDifference) -> Result<RouteChange, BuildError> {
        self.change(|tables| tables.begin_routes(routes))
    }

    /// See [`LiveTables::change_routes`].
    pub fn change_routes(&self, change: &mut RouteChange, most: usize) -> Result<bool, BuildError> {
        self.change(|tables| tables.change_routes(change, most))
    }

    /// See [`LiveTables::finish_routes`].
    pub fn finish_routes(&self, change: RouteChange) {
        self.change(|tables| tables.finish_routes(change));
    }

    /// See [`LiveTables::undo_routes`].
    pub fn undo_routes(&self, change: &mut RouteChange, most: usize) -> bool {
        self.change(|tables| tables.undo_routes(change, most))
    }

    /// Resolves next hops of BGP routes with another configuration's routes, and passes these to the kernel sync.
    /// If others' routes count too, their source adds them again ([`Self::reloads`]).
    pub fn set_configured(&self, routes: ConfiguredRoutes) {
        let ConfiguredRoutes { routes, alternatives, ports, vrfs, resolves_bgp } = routes;
        {
            let mut state = self.state.lock();
            (state.ports, state.vrfs) = (ports, vrfs);
            let State { outlet, tables, alternatives: chosen, .. } = &mut *state;
            *chosen = Alternatives::new(alternatives);
            chosen.choose(tables);
            if resolves_bgp && !self.has_others {
                outlet.set_underlay(Underlay::new(routes.iter().map(|route| chosen.now(*route))), tables);
            }
        }
        if self.keeps_configured {
            *self.configured() = routes;
        }
        self.reloads.fetch_add(1, Ordering::AcqRel);
        self.ground_changed();
    }

    /// How often the configured routes were replaced.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    fn configured(&self) -> MutexGuard<'_, Vec<(IpPrefix, UnderlayTarget)>> {
        self.configured.lock()
    }
}

impl Forwarding for ForwardingTables {
    fn status(&self) -> ForwardingView {
        let state = self.state.lock();
        let view = view_of(
            "fib",
            &state.outlet,
            self.inbox.as_ref().map(|inbox| inbox.counters()).unwrap_or_default(),
        );
        let kernel_sync = self.kernel_sync.lock().clone();
        ForwardingView { table_bytes: Some(state.tables.fib().memory_bytes() as u64), kernel_sync, ..view }
    }

    fn lookup(&self, vrf: Option<&str>, destination: IpPrefix) -> Result<FibView, AnswerError> {
        let state = self.state.lock();
        let (tables, vrf) = (&state.tables, state.vrf(vrf)?);
        let host = Some(destination.address())
            .filter(|address| usize::from(destination.length()) == if address.is_ipv4() { 32 } else { 128 });
        // The look-up uses the same table as packets.
        let (hop, prefix, vrf) = match host {
            Some(address) => tables.fib().lookup(vrf, address),
            None => {
                let found = tables.fib().covering(vrf, destination);
                found.map_or((0, None, vrf), |(hop, prefix)| (hop, Some(prefix), vrf))
            }
        };
        let action = if prefix.is_some() { action_of(tables, hop) } else { "no route" };
        let next_hops = state.ways(hop, host);
        let first = next_hops.first().filter(|_| action == "forward");
        Ok(FibView {
            destination: host.map_or(destination.to_string(), |address| address.to_string()),
            vrf: state.name_of(vrf),
            prefix: prefix.map(|prefix| prefix.to_string()),
            action: action.to_owned(),
            hop,
            neighbor: first.and_then(|way| way.neighbor),
            port: first.map(|way| way.port.clone()).filter(|port| !port.is_empty()),
            source: prefix.map(|_| tables.source_of(hop).to_owned()),
            next_hops,
        })
    }

    fn routes(
        &self,
        vrf: Option<&str>,
        after: Option<IpPrefix>,
        most: usize,
    ) -> Result<Vec<FibRouteView>, AnswerError> {
        let state = self.state.lock();
        let (tables, vrf) = (&state.tables, state.vrf(vrf)?);
        let view = |(prefix, hop): (IpPrefix, u16)| FibRouteView {
            vrf: state.name_of(vrf),
            leaks_from: table_of(hop).map(|from| state.name_of(from)),
            prefix: prefix.to_string(),
            action: action_of(tables, hop).to_owned(),
            source: tables.source_of(hop).to_owned(),
            next_hops: state.ways(hop, None),
        };
        Ok(tables.fib().routes_after(vrf, after, most).into_iter().map(view).collect())
    }

    fn vrfs(&self) -> Result<Vec<VrfView>, AnswerError> {
        let state = self.state.lock();
        let of_ports = || (0..).zip(&state.ports).filter(|(_, name)| !name.is_empty());
        let view = |(vrf, name): (VrfIndex, &String)| {
            let ports = of_ports().filter(|(port, _)| state.tables.vrf_of(*port) == vrf);
            let [ipv4, ipv6] = state.tables.fib().routes(vrf).map(|count| count as u64);
            let ports = ports.map(|(_, name)| name.clone()).collect();
            VrfView { name: name.clone(), number: vrf, ports, ipv4, ipv6 }
        };
        let named = (0..).zip(&state.vrfs).filter(|(_, name)| !name.is_empty());
        Ok(named.map(view).collect())
    }
}

/// What happens to packets that match a number.
fn action_of(tables: &LiveTables, hop: u16) -> &'static str {
    match tables.fib().way(hop) {
        Some(Way::Neighbor { .. }) => "forward",
        Some(Way::Discard) => "discard",
        None => tables.ending_of(hop),
    }
}

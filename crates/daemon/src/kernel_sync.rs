//! `[kernel]`: a thread that keeps the forwarding table and the kernel's in sync. Routes are handled here,
//! neighbors in [`neighbors`].
//!
//! ```text
//! kernel's news ──> FollowedRoutes ── what leads to ports ──> forwarding table, next hops of BGP      (import)
//! forwarding table ── configured, BGP's ──> KernelRoutes::repair: what differs goes into the kernel   (export)
//! ```
//!
//! A kernel route leads to a port if it uses the port's mirror or its interface. Our own routes in the kernel carry
//! our protocol number and are never imported, so nothing goes round in circles.
//!
//! Notifications suffice while none is lost. All routes are read at the start; again when notifications were lost,
//! and when a link or an address changed, because the kernel then drops IPv4 routes without notice; and every
//! `repair_s` seconds, to find what notifications missed. Only differences that this last scan finds are called
//! drift. Reading takes at most a [`SHARE`]th of the time.
//!
//! Exported routes are compared with the kernel's whenever the router's own routes or a link change, and every
//! `repair_s` seconds. A difference without a change of the router's own routes is drift: somebody changed them, or
//! the kernel dropped them with a link. A route that the kernel refused before and now accepts is not drift. The
//! first comparison removes a predecessor's routes; ours are removed at the end.

mod neighbors;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_base::IpPrefix;
use thalweg_config::{KernelSync, RouterConfig};
use thalweg_node::control::KernelSyncView;
use thalweg_node::fib::UnderlayTarget;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::live_tables::{OtherWay, OtherWays};
use thalweg_ports::kernel::{
    FollowedRoutes, Heard, KernelError, KernelOptions, KernelRoute, KernelRoutes, PROTOCOL, RouteTarget,
};
use thalweg_ports::live::link::Links;

use crate::failures::Failures;
use crate::packets::PacketSide;
use neighbors::{Interfaces, NeighborSync};

/// Interval at which the kernel's notifications are read.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Delay from a change of links to reading all routes.
const SETTLE: Duration = Duration::from_millis(100);

/// After reading or comparing, the next one waits this many times as long as the last took.
const SHARE: u32 = 8;

/// Delay from a failure to the next try.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Routes imported before other writers of the table get their turn.
const BATCH: usize = 1024;

/// A port's interfaces in the system.
#[derive(PartialEq, Eq)]
struct Names {
    port: u16,
    mirror: Option<String>,
    interface: Option<String>,
}

/// Keeps the forwarding table and the kernel's in sync; see the module.
pub(crate) struct KernelSyncer {
    tables: Arc<ForwardingTables>,
    config: KernelSync,
    resolves_bgp: bool,
    names: Vec<Names>,
    /// Networks of ports, which the kernel knows by the mirrors' addresses.
    connected: HashSet<IpPrefix>,
    /// The source of the configuration in force.
    packets: Option<Arc<PacketSide>>,
    links: Links,
    /// Ports by interface index, and mirrors by port.
    ports: HashMap<u32, u16>,
    mirrors: HashMap<u16, u32>,
    followed: FollowedRoutes,
    kernel: KernelRoutes,
    imported: HashSet<IpPrefix>,
    view: KernelSyncView,
    failures: Failures,
    read_at: Option<Instant>,
    read_not_before: Instant,
    scan_at: Instant,
    export_not_before: Instant,
    exported_generation: u64,
    /// The kernel's routes have changed, or may have.
    look_again: bool,
    /// Refusals of the kernel at the last comparison.
    refused: u64,
    underlay_is_old: bool,
    /// The versions of reloads, and of links and neighbors, that the underlay reflects.
    reloads: u64,
    life: u64,
    underlay_not_before: Instant,
    neighbors: Option<NeighborSync>,
}

impl KernelSyncer {
    /// Opens the sockets to the kernel. The thread does the first read.
    pub(crate) fn new(
        tables: Arc<ForwardingTables>,
        packets: Option<Arc<PacketSide>>,
        config: &RouterConfig,
    ) -> Result<Self, KernelError> {
        let metric = config.kernel.metric;
        // Gateways count as on-link: the router resolves them itself.
        let options = KernelOptions { metric, on_link: true, ..KernelOptions::default() };
        let now = Instant::now();
        let sync = config.kernel;
        let neighbors = packets.clone().filter(|_| sync.import_neighbors || sync.export_neighbors);
        let neighbors =
            neighbors.map(|packets| NeighborSync::new(packets, tables.clone(), sync)).transpose()?;
        let follows_routes = sync.import || sync.export;
        Ok(Self {
            tables,
            config: config.kernel,
            resolves_bgp: config.bgp.is_some(),
            names: names_of(config),
            connected: networks_of(config),
            packets,
            links: Links::open().map_err(|source| KernelError::Open { source })?,
            ports: HashMap::new(),
            mirrors: HashMap::new(),
            followed: match follows_routes {
                true => FollowedRoutes::open(PROTOCOL)?,
                false => FollowedRoutes::open_for_links(PROTOCOL)?,
            },
            kernel: KernelRoutes::open(options)?,
            imported: HashSet::new(),
            view: KernelSyncView::default(),
            failures: Failures::default(),
            read_at: Some(now),
            read_not_before: now,
            scan_at: now + Duration::from_secs(config.kernel.repair_s.into()),
            export_not_before: now,
            exported_generation: 0,
            look_again: false,
            refused: 0,
            underlay_is_old: false,
            reloads: 0,
            life: 0,
            underlay_not_before: now,
            neighbors,
        })
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let more = self.import();
            let scan = Instant::now() >= self.scan_at;
            if scan {
                self.scan_at = Instant::now() + Duration::from_secs(self.config.repair_s.into());
                self.view.scans += 1;
                if self.follows_routes() {
                    self.look_for_import_drift();
                }
            }
            self.export(scan);
            self.keep_neighbors(scan);
            self.publish();
            if !more {
                thread::sleep(LOOK_EVERY);
            }
        }
        if self.config.export {
            match self.kernel.remove_all() {
                Ok(report) => tracing::info!(removed = report.deleted, "kernel: removed our routes"),
                Err(error) => tracing::error!("kernel: cannot remove our routes: {error}"),
            }
        }
    }

    /// Reads notifications and applies them. Returns whether there are more.
    fn import(&mut self) -> bool {
        let mut changed = Vec::new();
        let heard = self.read_changes(&mut changed);
        if self.read_at.is_some_and(|at| at <= Instant::now()) {
            self.read_at = None;
            // Routes to renumbered interfaces now lead to other ports.
            if self.find_interfaces() {
                changed.extend(self.followed.prefixes());
                self.exported_generation = 0;
            }
            if let Some(neighbors) = &mut self.neighbors {
                neighbors.handle_links(&Interfaces { ports: &self.ports, mirrors: &self.mirrors });
            }
            if self.follows_routes() {
                self.read_all(&mut changed);
            }
            // The kernel may have dropped our routes too.
            self.look_again = true;
        }
        self.write_changed(&changed);
        let reloads = self.tables.reloads();
        if std::mem::replace(&mut self.reloads, reloads) != reloads {
            self.underlay_is_old = true;
            if let Some(packets) = &self.packets {
                let config = packets.config();
                self.connected = networks_of(&config);
                let names = names_of(&config);
                if names != self.names {
                    // Ports came or went, and their routes with them.
                    self.names = names;
                    self.read_at.get_or_insert(Instant::now());
                }
            }
        }
        let life = self.tables.life_changes();
        self.underlay_is_old |= std::mem::replace(&mut self.life, life) != life;
        let resolves = self.resolves_bgp && self.config.import && !heard.more;
        if self.underlay_is_old && resolves && Instant::now() >= self.underlay_not_before {
            let begun = Instant::now();
            self.underlay_is_old = false;
            self.update_underlay();
            self.underlay_not_before = Instant::now() + begun.elapsed() * SHARE;
        }
        heard.more
    }

    fn follows_routes(&self) -> bool {
        self.config.import || self.config.export
    }

    fn keep_neighbors(&mut self, scan: bool) {
        let interfaces = Interfaces { ports: &self.ports, mirrors: &self.mirrors };
        let Some(neighbors) = &mut self.neighbors else { return };
        let kept = neighbors.turn(&interfaces, scan);
        self.view.neighbors = Some(neighbors.view());
        if let Err(error) = kept {
            self.failed(&error.to_string());
        }
    }

    /// Reads notifications, and schedules the full reads that they require.
    fn read_changes(&mut self, changed: &mut Vec<IpPrefix>) -> Heard {
        let heard = match self.followed.hear(changed) {
            Ok(heard) => heard,
            Err(error) => {
                self.failed(&format!("listening: {error}"));
                return Heard::default();
            }
        };
        self.view.notifications += heard.routes;
        if heard.overrun {
            self.view.overruns += 1;
            self.read_at.get_or_insert(Instant::now().max(self.read_not_before));
        }
        if heard.links {
            self.read_at.get_or_insert((Instant::now() + SETTLE).max(self.read_not_before));
        }
        heard
    }

    /// Reads everything. Differences are always repaired; they count as drift only if no notification could explain
    /// them: the kernel announces a link before it drops the link's routes.
    fn look_for_import_drift(&mut self) {
        let mut changed = Vec::new();
        self.read_all(&mut changed);
        let mut news = Vec::new();
        let heard = self.read_changes(&mut news);
        if heard != Heard::default() || self.read_at.is_some() {
            changed.extend(news);
            return self.write_changed(&changed);
        }
        let drift =
            changed.iter().filter(|prefix| self.imported.contains(*prefix) || self.ways(**prefix).is_some());
        let drift = drift.count() as u64;
        if drift > 0 && self.config.import {
            self.view.import_drift += drift;
            tracing::warn!(routes = drift, "kernel: corrected drift of imported routes");
        }
        self.write_changed(&changed);
    }

    fn read_all(&mut self, changed: &mut Vec<IpPrefix>) {
        let begun = Instant::now();
        if let Err(error) = self.followed.read_all(changed) {
            self.failed(&format!("reading routes: {error}"));
            self.read_at = Some(Instant::now() + AFTER_FAILURE);
        }
        self.view.reads += 1;
        self.read_not_before = Instant::now() + begun.elapsed() * SHARE;
    }

    /// Finds the interfaces of ports; returns whether they changed.
    fn find_interfaces(&mut self) -> bool {
        let (mut ports, mut mirrors) = (HashMap::new(), HashMap::new());
        for Names { port, mirror, interface } in &self.names {
            let index = |name: &Option<String>| self.links.index(name.as_deref()?).ok();
            if let Some(index) = index(mirror) {
                ports.insert(index, *port);
                mirrors.insert(*port, index);
            }
            if let Some(index) = index(interface) {
                ports.insert(index, *port);
            }
        }
        let differ = (&ports, &mirrors) != (&self.ports, &self.mirrors);
        (self.ports, self.mirrors) = (ports, mirrors);
        differ
    }

    /// The paths of a kernel route through ports, ordered by metric; `None` if there are none.
    fn ways(&self, prefix: IpPrefix) -> Option<OtherWays> {
        if is_of_a_link(prefix) {
            return None;
        }
        let port = |interface: &u32| self.ports.get(interface).copied();
        let way = |target: &RouteTarget| match target {
            RouteTarget::Gateway { address, interface } => {
                Some(OtherWay::Gateway { port: port(interface.as_ref()?)?, address: *address })
            }
            RouteTarget::Interface(interface) => Some(OtherWay::Connected { port: port(interface)? }),
            RouteTarget::Blackhole => Some(OtherWay::Blackhole),
            RouteTarget::Unreachable => Some(OtherWay::Unreachable),
            RouteTarget::Object(_) => None,
        };
        let routes = self.followed.ranked(prefix).map(|ways| ways.iter().filter_map(way).collect::<Vec<_>>());
        // Routes through other interfaces are not ours, and neither are those behind them.
        let ways: Vec<_> = routes.take_while(|ways| !ways.is_empty()).collect();
        (!ways.is_empty()).then_some(ways)
    }

    /// Brings the forwarding table in line with the known routes for these prefixes.
    fn write_changed(&mut self, changed: &[IpPrefix]) {
        if !self.config.import {
            return;
        }
        for part in changed.chunks(BATCH) {
            let mut changes = Vec::with_capacity(part.len());
            for prefix in part {
                let ways = self.ways(*prefix);
                let had = match ways {
                    Some(_) => !self.imported.insert(*prefix),
                    None => self.imported.remove(prefix),
                };
                if had || ways.is_some() {
                    changes.push((*prefix, ways));
                }
            }
            if !changes.is_empty() {
                let without_room = self.tables.set_others(&changes);
                self.view.without_room += without_room as u64;
                self.underlay_is_old = true;
            }
        }
    }

    /// Has BGP's next hops resolve by others' routes too.
    fn update_underlay(&self) {
        let target = |way: &OtherWay| match *way {
            OtherWay::Gateway { port, address } => {
                UnderlayTarget::Gateway { address, link: Some(port.into()) }
            }
            OtherWay::Connected { port } => UnderlayTarget::Connected { link: port.into() },
            OtherWay::Blackhole => UnderlayTarget::Discard,
            OtherWay::Unreachable => UnderlayTarget::Unreachable,
        };
        // The first live path of several, because a next hop has one.
        let others: Vec<_> = self
            .imported
            .iter()
            .filter_map(|prefix| {
                let ways: Vec<_> = self.ways(*prefix)?.iter().flatten().map(target).collect();
                let first = if ways.len() > 1 { self.tables.alive_of(&ways) } else { ways.first().copied() };
                Some((*prefix, first?))
            })
            .collect();
        self.tables.set_others_underlay(others.into_iter());
    }

    /// Puts the router's routes into the kernel where the two differ.
    fn export(&mut self, scan: bool) {
        let generation = self.tables.generation();
        let is_news = generation != self.exported_generation;
        let is_due = (is_news || self.look_again) && Instant::now() >= self.export_not_before;
        // Before the first read the interfaces are unknown.
        if !self.config.export || self.view.reads == 0 || !(scan || is_due) {
            return;
        }
        let begun = Instant::now();
        self.export_not_before = begun + AFTER_FAILURE;
        let wanted = self.wanted();
        self.view.exported = wanted.len() as u64;
        let routes = wanted.into_iter().map(|(prefix, target)| KernelRoute { prefix, target });
        match self.kernel.repair(routes) {
            Ok(report) => {
                self.exported_generation = generation;
                self.look_again = false;
                let found = report.missing + report.extra + report.changed;
                let mended = found.saturating_sub(report.failed);
                let drift = if is_news { 0 } else { mended.saturating_sub(self.refused) };
                self.refused = report.failed;
                self.view.exported -= report.failed.min(self.view.exported);
                if scan {
                    self.view.last_scan = Some(report.to_string());
                }
                if drift > 0 {
                    self.view.export_drift += drift;
                    tracing::warn!("kernel: corrected drift of routes: {report}");
                }
                for failure in &report.failures {
                    self.failed(&failure.to_string());
                }
            }
            Err(error) => return self.failed(&format!("cannot read routes for the kernel: {error}")),
        }
        self.export_not_before = Instant::now() + begun.elapsed() * SHARE;
    }

    /// The routes that the kernel should have.
    fn wanted(&mut self) -> HashMap<IpPrefix, RouteTarget> {
        let (mut wanted, mut without_mirror) = (HashMap::new(), 0);
        for (prefix, target) in self.tables.desired() {
            let mirror = |link: u32| self.mirrors.get(&u16::try_from(link).ok()?).copied();
            let target = match target {
                UnderlayTarget::Connected { .. } if self.connected.contains(&prefix) => continue,
                UnderlayTarget::Local => continue,
                UnderlayTarget::Connected { link } => mirror(link).map(RouteTarget::Interface),
                UnderlayTarget::Gateway { address, link } => link
                    .and_then(mirror)
                    .map(|interface| RouteTarget::Gateway { address, interface: Some(interface) }),
                UnderlayTarget::Discard => Some(RouteTarget::Blackhole),
                UnderlayTarget::Unreachable => Some(RouteTarget::Unreachable),
            };
            match target {
                Some(target) => drop(wanted.insert(prefix, target)),
                None => without_mirror += 1,
            }
        }
        self.view.without_mirror = without_mirror;
        wanted
    }

    fn failed(&mut self, what: &str) {
        if self.failures.push(what) {
            tracing::error!("kernel: {what}");
        }
    }

    fn publish(&mut self) {
        self.view.kernel_routes = self.followed.prefixes().len() as u64;
        let (imported, behind) = self.tables.read().others();
        (self.view.imported, self.view.imported_behind) = (imported as u64, behind as u64);
        self.view.failures = self.failures.list();
        self.tables.set_kernel_sync(self.view.clone());
    }
}

/// The interfaces of ports.
fn names_of(config: &RouterConfig) -> Vec<Names> {
    let ports = (0u16..).zip(&config.ports).filter_map(|(port, config)| {
        let interface = config.interface.as_ref()?;
        // A sub-interface shares its parent's interface, which counts for the parent's port.
        let own = config.sub_interface.is_none().then(|| interface.in_system().map(str::to_owned)).flatten();
        Some(Names { port, mirror: interface.mirror.clone(), interface: own })
    });
    ports.collect()
}

/// The connected networks of ports.
fn networks_of(config: &RouterConfig) -> HashSet<IpPrefix> {
    let nets = config.ports.iter().flat_map(|port| &port.addresses);
    nets.filter_map(|net| net.trunc().to_string().parse().ok()).collect()
}

/// Whether a prefix is meaningful on one link only.
fn is_of_a_link(prefix: IpPrefix) -> bool {
    match prefix.address() {
        std::net::IpAddr::V4(address) => address.is_link_local() || address.is_multicast(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

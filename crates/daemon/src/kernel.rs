//! `install = "kernel"`: a thread that installs best routes in the kernel's table and keeps them there.
//!
//! It processes the inbox, and between batches it does three other things: it follows the kernel's networks and
//! others' routes ([`Networks`]), by which next hops resolve and, with `next_hop_check`, paths are chosen; it scans
//! for drift when that is due; and it reports.
//!
//! A predecessor's routes are removed at the start, unless this is a graceful restart: then they keep forwarding,
//! each is replaced when its successor is selected, and the first scan for drift, which removes those without one,
//! waits for the end of the restart. At the end our routes are removed, unless they are to stay for the next
//! process.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_base::IpPrefix;
use thalweg_config::{BgpConfig, NextHopCheck};
use thalweg_node::control::{AnswerError, FibRouteView, FibView, ForwardingView, KernelView, VrfView};
use thalweg_node::fib::{Outlet, OutletConfig};
use thalweg_node::forwarding::{Forwarding, Inbox, Task, rescan, view_of};
use thalweg_node::speaker::{Restart, Speaker};
use thalweg_ports::kernel::{KernelError, KernelOptions, KernelRoutes};

use crate::failures::Failures;
use crate::kernel_installer::KernelInstaller;
use crate::networks::{Networks, PAUSE_AFTER_FAILURE};
use crate::restart::is_wanted;

/// How long it waits for changes before it does other things.
const WAIT: Duration = Duration::from_millis(100);

/// After a scan for drift, the next one waits at least this many times as long as the scan took.
const REPAIR_SHARE: u32 = 20;

/// Interval at which the status is updated under load.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// The status that queries read.
pub(crate) struct KernelForwarding {
    view: Mutex<ForwardingView>,
}

impl Forwarding for KernelForwarding {
    fn status(&self) -> ForwardingView {
        self.view.lock().clone()
    }

    fn lookup(&self, _vrf: Option<&str>, destination: IpPrefix) -> Result<FibView, AnswerError> {
        Err(AnswerError::InKernel(format!("get {}", destination.address())))
    }

    fn routes(
        &self,
        _vrf: Option<&str>,
        _after: Option<IpPrefix>,
        _most: usize,
    ) -> Result<Vec<FibRouteView>, AnswerError> {
        self.in_kernel()
    }

    fn vrfs(&self) -> Result<Vec<VrfView>, AnswerError> {
        self.in_kernel()
    }
}

impl KernelForwarding {
    fn in_kernel<T>(&self) -> Result<T, AnswerError> {
        let table = self.view.lock().kernel.as_ref().map_or(254, |kernel| kernel.table);
        Err(AnswerError::InKernel(format!("show table {table}")))
    }
}

/// The state of the thread.
pub(crate) struct KernelThread {
    inbox: Arc<Inbox>,
    shared: Arc<KernelForwarding>,
    networks: Networks,
    /// Whether decisions learn which next hops can be reached.
    checks_next_hops: bool,
    outlet: Outlet,
    installer: KernelInstaller,
    totals: KernelView,
    failures: Failures,
    told_at: Option<Instant>,
    reported_at: Instant,
    repair_at: Instant,
    repair_every: Duration,
    /// A predecessor's routes are in place, and the speaker has not selected ours yet.
    is_restarting: bool,
    /// The next scan removes the predecessor's remaining routes.
    sweeps: bool,
    /// Whether routes stay at the end.
    keeps_routes: Arc<AtomicBool>,
}

impl KernelThread {
    /// Opens the sockets to the kernel and reads the networks. A predecessor's routes are removed, unless this is a
    /// restart. Such routes also prove a restart, if neighbors may have kept our routes.
    pub(crate) fn new(
        inbox: Arc<Inbox>,
        config: &BgpConfig,
        restart: &mut Option<Restart>,
        keeps_routes: &Arc<AtomicBool>,
    ) -> Result<Self, KernelError> {
        let options = KernelOptions {
            table: config.kernel.table,
            metric: config.kernel.metric,
            ..KernelOptions::default()
        };
        let mut installer = KernelInstaller::new(KernelRoutes::open(options)?);
        let found = installer.count()?;
        if found > 0 && is_wanted(config) {
            restart.get_or_insert_default();
        }
        match restart {
            Some(_) => {
                tracing::info!(found, "kernel: keeping a predecessor's routes until ours are selected")
            }
            None if found > 0 => {
                let removed = installer.remove_stale()?.deleted;
                tracing::info!(removed, "kernel: removed a predecessor's routes");
            }
            None => {}
        }
        let networks = Networks::open(options.protocol)?;
        let now = Instant::now();
        let repair_every = Duration::from_secs(config.kernel.repair_s.into());
        let totals = KernelView { table: options.table, protocol: options.protocol, ..KernelView::default() };
        let mut thread = Self {
            shared: Arc::new(KernelForwarding { view: Mutex::default() }),
            inbox,
            checks_next_hops: config.next_hop_check == NextHopCheck::Kernel,
            outlet: Outlet::new(OutletConfig::default(), networks.underlay().clone()),
            networks,
            installer,
            totals,
            failures: Failures::default(),
            told_at: None,
            reported_at: now,
            repair_at: now + repair_every,
            repair_every,
            is_restarting: restart.is_some(),
            sweeps: false,
            keeps_routes: keeps_routes.clone(),
        };
        thread.report();
        Ok(thread)
    }

    /// Answers queries while the thread runs.
    pub(crate) fn forwarding(&self) -> Arc<dyn Forwarding> {
        self.shared.clone()
    }

    /// Tells decisions which next hops can be reached, if configured. The first call precedes any session's routes.
    pub(crate) fn update_next_hops(&self, speaker: &Speaker) {
        if self.checks_next_hops {
            speaker.set_next_hops(self.networks.underlay().next_hop_view());
        }
    }

    /// Works until the inbox is closed.
    pub(crate) fn run(mut self, speaker: &Speaker) {
        loop {
            let task = self.inbox.next(WAIT);
            let is_idle = matches!(task, Task::Idle);
            match task {
                Task::Changes(changes) => {
                    self.outlet.handle_all(changes.iter().map(|each| &**each), &mut self.installer);
                }
                Task::Rescan(shard) => rescan(speaker, shard, &mut self.outlet, &mut self.installer),
                Task::Idle | Task::Ground => {}
                Task::Closed => return self.finish(),
            }
            self.follow_networks(speaker);
            if self.is_restarting && is_idle && !speaker.is_restarting() {
                // When the inbox is next empty, all selected routes are installed.
                (self.is_restarting, self.sweeps) = (false, true);
                self.repair_at = Instant::now();
                continue;
            }
            self.repair(is_idle);
            self.collect();
            if is_idle || self.reported_at.elapsed() >= REPORT_EVERY {
                self.report();
            }
        }
    }

    /// Resolves next hops by the present networks.
    fn follow_networks(&mut self, speaker: &Speaker) {
        let outlet = &self.outlet;
        match self.networks.follow(|address| outlet.is_next_hop(address)) {
            Ok(true) => {
                self.update_next_hops(speaker);
                self.outlet.set_underlay(self.networks.underlay().clone(), &mut self.installer);
            }
            Ok(false) => {}
            Err(error) => self.failed(&error.to_string()),
        }
    }

    /// Scans for drift when that is due and nothing else is to be done.
    fn repair(&mut self, is_idle: bool) {
        let now = Instant::now();
        if now < self.repair_at || !is_idle || self.is_restarting {
            return;
        }
        match self.installer.repair(&self.outlet) {
            Ok(report) => {
                self.totals.repairs += 1;
                self.totals.repaired += report.missing + report.extra + report.changed - report.failed;
                if std::mem::take(&mut self.sweeps) {
                    tracing::info!(
                        removed = report.extra,
                        "restart: removed the predecessor's routes that are not announced any more"
                    );
                } else if !report.is_clean() {
                    tracing::warn!("kernel: corrected drift of routes: {report}");
                }
                for failure in &report.failures {
                    self.failed(&failure.to_string());
                }
                self.totals.last_repair = Some(report.to_string());
            }
            Err(error) => self.failed(&format!("cannot look for drift: {error}")),
        }
        self.repair_at = now + self.repair_every.max(now.elapsed() * REPAIR_SHARE);
    }

    /// Adds up the results of changes.
    fn collect(&mut self) {
        let (report, error) = self.installer.take_report();
        self.totals.replaced += report.replaced;
        self.totals.deleted += report.deleted;
        self.totals.failed += report.failed;
        for failure in &report.failures {
            self.failed(&failure.to_string());
        }
        if let Some(error) = error {
            self.failed(&error.to_string());
        }
    }

    fn failed(&mut self, what: &str) {
        if self.told_at.is_none_or(|at| at.elapsed() >= PAUSE_AFTER_FAILURE) {
            self.told_at = Some(Instant::now());
            tracing::error!("kernel: {what}");
        }
        self.failures.push(what);
    }

    fn report(&mut self) {
        self.reported_at = Instant::now();
        let kernel = KernelView {
            network_reads: self.networks.reads(),
            failures: self.failures.list(),
            ..self.totals.clone()
        };
        let view = view_of("kernel", &self.outlet, self.inbox.counters());
        *self.shared.view.lock() = ForwardingView { kernel: Some(kernel), ..view };
    }

    fn finish(mut self) {
        if self.keeps_routes.load(Ordering::Acquire) {
            return tracing::info!("kernel: leaving our routes for the next process");
        }
        match self.installer.remove_stale() {
            Ok(report) => tracing::info!(removed = report.deleted, "kernel: removed our routes"),
            Err(error) => tracing::error!("kernel: cannot remove our routes: {error}"),
        }
    }
}

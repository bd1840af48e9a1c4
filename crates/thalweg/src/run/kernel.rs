//! `install = "kernel"`: best routes into the kernel's table, and kept there. A thread of its own.
//!
//! It works off the inbox, and between batches looks at three other things: what the kernel says about networks and
//! others' routes, by which next hops are resolved; whether it is time to look for drift; what to report.
//!
//! The kernel's networks are read again [`SETTLE`] after something changed, but so that reading takes no more than one
//! twentieth of the time: with a million of our own routes in the same table, listing others' takes a second.
//!
//! Routes that a predecessor left are removed at the start, and ours at the end. With `forwarding_preserved` in some
//! neighbour's graceful restart they stay both times, and the first scan for drift, which removes what nobody announced
//! again, waits until neighbours had the restart time to do so.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_node::config::BgpConfig;
use thalweg_node::fib::{Outlet, OutletConfig, Underlay};
use thalweg_node::forwarding::{
    FibView, Forwarding, ForwardingView, Inbox, KernelView, Task, rescan, view_of,
};
use thalweg_node::speaker::Speaker;
use thalweg_ports::kernel::{
    KernelError, KernelEvent, KernelOptions, KernelRoutes, Monitor, NetworkView, Watch,
};

use crate::kernel_installer::{KernelInstaller, underlay};

/// How long to wait for changes before looking at other things.
const WAIT: Duration = Duration::from_millis(100);

/// Changes of networks come in groups: an interface, its addresses, its routes.
const SETTLE: Duration = Duration::from_millis(100);

/// Reading the kernel's networks waits for so many times as long as it took.
const READ_SHARE: u32 = 20;

/// Events of the kernel looked at in one turn.
const EVENTS_PER_TURN: usize = 4096;

/// How often the status is brought up to date while there is work.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Failures the status keeps.
const FAILURES_KEPT: usize = 16;

/// Failures are told at most this often.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The status, for whoever asks.
pub(super) struct KernelForwarding {
    view: Mutex<ForwardingView>,
}

impl Forwarding for KernelForwarding {
    fn status(&self) -> ForwardingView {
        self.lock().clone()
    }

    fn lookup(&self, destination: IpAddr) -> Result<FibView, String> {
        Err(format!("best routes are in the kernel: ask it, with `ip route get {destination}`"))
    }
}

impl KernelForwarding {
    fn lock(&self) -> MutexGuard<'_, ForwardingView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread owns.
pub(super) struct KernelThread {
    inbox: Arc<Inbox>,
    shared: Arc<KernelForwarding>,
    options: KernelOptions,
    monitor: Monitor,
    outlet: Outlet,
    underlay: Underlay,
    installer: KernelInstaller,
    totals: KernelView,
    failures: VecDeque<String>,
    told_at: Option<Instant>,
    reported_at: Instant,
    /// When the networks are to be read again.
    read_at: Option<Instant>,
    not_before: Instant,
    repair_at: Instant,
    repair_every: Duration,
    keeps_routes: bool,
}

impl KernelThread {
    /// Opens the ways to the kernel, removes what a predecessor left, and says for the first time where next hops are.
    pub(super) fn new(inbox: Arc<Inbox>, config: &BgpConfig) -> Result<Self, KernelError> {
        let options = KernelOptions {
            table: config.kernel.table,
            metric: config.kernel.metric,
            ..KernelOptions::default()
        };
        let mut installer = KernelInstaller::new(KernelRoutes::open(options)?);
        let restart = preserved_s(config);
        if restart.is_none() {
            let removed = installer.remove_stale()?.deleted;
            if removed > 0 {
                tracing::info!(removed, "kernel: routes of a predecessor were removed");
            }
        }
        let watch = Watch { links: true, addresses: true, neighbors: false, routes: true };
        let monitor = Monitor::open(watch)?;
        let underlay = underlay(&NetworkView::read(options.protocol)?);
        let now = Instant::now();
        let repair_every = Duration::from_secs(config.kernel.repair_s.into());
        let totals = KernelView {
            table: options.table,
            protocol: options.protocol,
            network_reads: 1,
            ..KernelView::default()
        };
        let mut thread = Self {
            shared: Arc::new(KernelForwarding { view: Mutex::default() }),
            inbox,
            options,
            monitor,
            outlet: Outlet::new(OutletConfig::default(), underlay.clone()),
            underlay,
            installer,
            totals,
            failures: VecDeque::new(),
            told_at: None,
            reported_at: now,
            read_at: None,
            not_before: now,
            repair_at: now + restart.map_or(repair_every, Duration::from_secs),
            repair_every,
            keeps_routes: restart.is_some(),
        };
        thread.report();
        Ok(thread)
    }

    /// What others may ask while the thread runs.
    pub(super) fn forwarding(&self) -> Arc<KernelForwarding> {
        self.shared.clone()
    }

    /// Works until the inbox is closed.
    pub(super) fn run(mut self, speaker: &Speaker) {
        loop {
            let task = self.inbox.next(WAIT);
            let is_idle = matches!(task, Task::Idle);
            match task {
                Task::Changes(changes) => self.outlet.handle_changes(&changes, &mut self.installer),
                Task::Rescan(shard) => rescan(speaker, shard, &mut self.outlet, &mut self.installer),
                Task::Idle => {}
                Task::Closed => return self.finish(),
            }
            self.hear();
            self.follow_networks();
            self.repair(is_idle);
            self.collect();
            if is_idle || self.reported_at.elapsed() >= REPORT_EVERY {
                self.report();
            }
        }
    }

    /// Listens to what the kernel says; our own routes are no news.
    fn hear(&mut self) {
        for _ in 0..EVENTS_PER_TURN {
            match self.monitor.poll_event() {
                Ok(None) => return,
                Ok(Some(KernelEvent::Route(route) | KernelEvent::RouteGone(route)))
                    if route.protocol == self.options.protocol => {}
                Ok(Some(KernelEvent::Neighbor(_) | KernelEvent::NeighborGone(_))) => {}
                Ok(Some(_)) => {
                    let at = (Instant::now() + SETTLE).max(self.not_before);
                    self.read_at.get_or_insert(at);
                }
                Err(error) => return self.failed(&format!("listening: {error}")),
            }
        }
    }

    /// Resolves next hops by the networks there are now.
    fn follow_networks(&mut self) {
        if self.read_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.read_at = None;
        let begun = Instant::now();
        match NetworkView::read(self.options.protocol) {
            Ok(view) => {
                self.totals.network_reads += 1;
                let underlay = underlay(&view);
                if underlay != self.underlay {
                    self.underlay = underlay.clone();
                    self.outlet.set_underlay(underlay, &mut self.installer);
                }
            }
            Err(error) => {
                self.failed(&format!("reading networks: {error}"));
                self.read_at = Some(Instant::now() + TELL_EVERY);
            }
        }
        self.not_before = Instant::now() + begun.elapsed() * READ_SHARE;
    }

    /// Looks for drift when it is time and nothing else is to be done.
    fn repair(&mut self, is_idle: bool) {
        let now = Instant::now();
        if now < self.repair_at || !is_idle {
            return;
        }
        match self.installer.repair(&self.outlet) {
            Ok(report) => {
                self.totals.repairs += 1;
                self.totals.repaired += report.missing + report.extra + report.changed - report.failed;
                if !report.is_clean() {
                    tracing::warn!("kernel: routes were not as they should be, and were mended: {report}");
                }
                for failure in &report.failures {
                    self.failed(&failure.to_string());
                }
                self.totals.last_repair = Some(report.to_string());
            }
            Err(error) => self.failed(&format!("looking for drift: {error}")),
        }
        self.repair_at = now + self.repair_every.max(now.elapsed() * READ_SHARE);
    }

    /// Takes over what became of changes.
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
        if self.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.told_at = Some(Instant::now());
            tracing::error!("kernel: {what}");
        }
        if self.failures.len() == FAILURES_KEPT {
            self.failures.pop_front();
        }
        self.failures.push_back(what.to_owned());
    }

    fn report(&mut self) {
        self.reported_at = Instant::now();
        let kernel = KernelView { failures: self.failures.iter().cloned().collect(), ..self.totals.clone() };
        let view = view_of("kernel", &self.outlet, self.inbox.counters());
        *self.shared.lock() = ForwardingView { kernel: Some(kernel), ..view };
    }

    fn finish(mut self) {
        if self.keeps_routes {
            return tracing::info!("kernel: routes stay for the restart");
        }
        match self.installer.remove_stale() {
            Ok(report) => tracing::info!(removed = report.deleted, "kernel: our routes were removed"),
            Err(error) => tracing::error!("kernel: our routes could not be removed: {error}"),
        }
    }
}

/// How long neighbours have to announce their routes again after a restart over which routes stay; `None` where they
/// do not.
fn preserved_s(config: &BgpConfig) -> Option<u64> {
    let dynamic = config.groups.iter().filter_map(|group| group.dynamic.as_ref());
    let neighbors = config.neighbors.iter().map(|neighbor| &**neighbor);
    let all = neighbors.chain(dynamic.map(|range| &range.template));
    let restarts = all.filter_map(|neighbor| neighbor.capabilities.graceful_restart);
    restarts.filter(|restart| restart.forwarding_preserved).map(|restart| restart.time_s.into()).max()
}

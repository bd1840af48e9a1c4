//! The kernel's networks and other programs' routes, read again when they change.
//!
//! Changes come in groups (an interface, its addresses, its routes), so a read waits [`SETTLE`] after the first,
//! and reading takes at most a [`READ_SHARE`]th of the time: with a million of our own routes in the same table,
//! listing others' takes a second. Our own routes cause no reads and are never in the result, so BGP's choices do
//! not decide what BGP may choose.
//!
//! A gateway or next hop that the kernel has solicited in vain (its neighbor table says FAILED) is silent: routes
//! through it do not count, and the address itself is unreachable, until the kernel knows its MAC address again.
//! The kernel solicits only when there are packets, and none go where no route leads, so we have it ask every
//! [`ASK_EVERY`]. Other neighbors do not count: a scan of a network must not make the router decide routes again.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_node::fib::Underlay;
use thalweg_node::speaker::Speaker;
use thalweg_ports::kernel::{
    KernelError, KernelEvent, Monitor, Neighbor, NeighborKey, NetworkView, RouteTarget, Watch, ask_for,
};

use crate::kernel_installer::underlay;

/// Delay from the first change to the read.
const SETTLE: Duration = Duration::from_millis(100);

/// After a read, the next one waits at least this many times as long as the read took.
const READ_SHARE: u32 = 20;

/// Interval at which the kernel solicits silent neighbors.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Silent gateways and next hops remembered.
const SILENT_MAX: usize = 1024;

/// Kernel events processed in one turn.
const EVENTS_PER_TURN: usize = 4096;

/// Pause after a failed read, and between two log lines about failures.
pub(crate) const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What the kernel did not say.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworksError {
    #[error("listening: {0}")]
    Listen(KernelError),
    #[error("asking for silent gateways: {0}")]
    Ask(KernelError),
    #[error("reading networks: {0}")]
    Read(KernelError),
}

/// The present networks and others' routes.
pub(crate) struct Networks {
    protocol: u8,
    monitor: Monitor,
    underlay: Underlay,
    reads: u64,
    /// When they are due to be read again.
    read_at: Option<Instant>,
    not_before: Instant,
    gateways: HashSet<NeighborKey>,
    silent: BTreeSet<NeighborKey>,
    /// When the kernel is to solicit again; `None` if we lack the permission.
    ask_at: Option<Instant>,
}

impl Networks {
    /// Reads them for the first time. Routes of `protocol` are ours.
    pub(crate) fn open(protocol: u8) -> Result<Self, KernelError> {
        // Opened before the read, so that no change is missed in between.
        let monitor = Monitor::open(Watch { links: true, addresses: true, neighbors: true, routes: true })?;
        let view = NetworkView::read(protocol)?;
        let now = Instant::now();
        let mut networks = Self {
            protocol,
            monitor,
            underlay: Underlay::default(),
            reads: 1,
            read_at: None,
            not_before: now,
            gateways: HashSet::new(),
            silent: BTreeSet::new(),
            ask_at: Some(now),
        };
        networks.apply(&view, |_| false);
        Ok(networks)
    }

    /// Applies what was read; returns whether the underlay changed.
    fn apply(&mut self, view: &NetworkView, is_next_hop: impl Fn(IpAddr) -> bool) -> bool {
        let gateways = view.routes.iter().filter_map(|route| match route.target? {
            RouteTarget::Gateway { address, interface } => Some((interface?, address)),
            _ => None,
        });
        self.gateways = gateways.collect();
        self.silent.retain(|(interface, _)| view.link(*interface).is_some_and(|link| link.is_up));
        for neighbor in &view.neighbors {
            self.note(neighbor, &is_next_hop);
        }
        let underlay = underlay(view, &self.silent);
        underlay != std::mem::replace(&mut self.underlay, underlay.clone())
    }

    /// Applies the kernel's news of a neighbor; returns whether it became silent or answers again.
    fn note(&mut self, neighbor: &Neighbor, is_next_hop: impl Fn(IpAddr) -> bool) -> bool {
        let place = (neighbor.interface, neighbor.address);
        if neighbor.mac.is_some() {
            return self.silent.remove(&place);
        }
        let matters = self.gateways.contains(&place) || is_next_hop(neighbor.address);
        let has_room = self.silent.len() < SILENT_MAX && self.ask_at.is_some();
        let is_new = neighbor.is_silent && matters && has_room;
        is_new && self.silent.insert(place)
    }

    /// Has the kernel solicit silent neighbors. Without the permission none counts as silent, because it would stay
    /// so for ever.
    fn ask(&mut self) -> Result<(), KernelError> {
        let now = Instant::now();
        if self.silent.is_empty() || self.ask_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.ask_at = Some(now + ASK_EVERY);
        let asked = ask_for(&Vec::from_iter(self.silent.iter().copied()));
        if matches!(asked, Err(KernelError::NotPermitted)) {
            self.ask_at = None;
            self.silent.clear();
            self.read_at.get_or_insert(self.not_before);
        }
        asked
    }

    /// The underlay as of the last read.
    pub(crate) fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Number of reads.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Processes notifications, and reads if a read is due; returns whether the underlay changed. `is_next_hop`
    /// selects the addresses whose silence matters besides gateways.
    pub(crate) fn follow(&mut self, is_next_hop: impl Fn(IpAddr) -> bool) -> Result<bool, NetworksError> {
        self.read_changes(&is_next_hop).map_err(NetworksError::Listen)?;
        self.ask().map_err(NetworksError::Ask)?;
        if self.read_at.is_none_or(|at| at > Instant::now()) {
            return Ok(false);
        }
        self.read_at = None;
        let begun = Instant::now();
        let read = NetworkView::read(self.protocol);
        self.not_before = Instant::now() + begun.elapsed() * READ_SHARE;
        match read {
            Ok(view) => {
                self.reads += 1;
                Ok(self.apply(&view, is_next_hop))
            }
            Err(error) => {
                self.read_at = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                Err(NetworksError::Read(error))
            }
        }
    }

    fn read_changes(&mut self, is_next_hop: impl Fn(IpAddr) -> bool) -> Result<(), KernelError> {
        for _ in 0..EVENTS_PER_TURN {
            match self.monitor.poll_event()? {
                None => return Ok(()),
                Some(KernelEvent::Route(route) | KernelEvent::RouteGone(route))
                    if route.protocol == self.protocol => {}
                Some(KernelEvent::Neighbor(neighbor)) => {
                    if self.note(&neighbor, &is_next_hop) {
                        self.read_at.get_or_insert(self.not_before);
                    }
                }
                // The kernel forgot the neighbor, which does not say whether it would answer.
                Some(KernelEvent::NeighborGone(_)) => {}
                Some(_) => {
                    let at = (Instant::now() + SETTLE).max(self.not_before);
                    self.read_at.get_or_insert(at);
                }
            }
        }
        Ok(())
    }
}

/// `next_hop_check = "kernel"` in a router that installs nothing in the kernel: a thread that tells decisions which
/// next hops can be reached.
pub(crate) struct NextHopThread {
    networks: Networks,
}

impl NextHopThread {
    /// Interval at which notifications are read.
    const WAIT: Duration = Duration::from_millis(100);

    pub(crate) fn new(protocol: u8) -> Result<Self, KernelError> {
        Ok(Self { networks: Networks::open(protocol)? })
    }

    /// Sets the view of next hops before any session brings routes.
    pub(crate) fn begin(&self, speaker: &Speaker) {
        speaker.set_next_hops(self.networks.underlay().next_hop_view());
    }

    /// Works until `stop` is set.
    pub(crate) fn run(mut self, speaker: &Speaker, stop: &Arc<AtomicBool>) {
        let mut told_at: Option<Instant> = None;
        while !stop.load(Ordering::Acquire) {
            let config = speaker.config();
            let is_next_hop = |address| config.neighbors.iter().any(|each| each.address == address);
            match self.networks.follow(is_next_hop) {
                Ok(true) => self.begin(speaker),
                Ok(false) => {}
                Err(error) if told_at.is_none_or(|at| at.elapsed() >= PAUSE_AFTER_FAILURE) => {
                    told_at = Some(Instant::now());
                    tracing::error!("next hops: {error}");
                }
                Err(_) => {}
            }
            thread::sleep(Self::WAIT);
        }
    }
}

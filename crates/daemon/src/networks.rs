//! The kernel's networks and other programs' routes, read again when they change.
//!
//! Changes come in groups (an interface, its addresses, its routes), so reading waits [`SETTLE`] after the first of
//! them, and takes no more than one [`READ_SHARE`]th of the time: with a million of our own routes in the same table,
//! listing others' takes a second. Our own routes are no news, and never in what is read: what BGP chose does not
//! decide what BGP may choose.
//!
//! A gateway or next hop that the kernel has asked for in vain (its neighbor table says FAILED) is silent: routes through
//! it count no more, and the address itself is not reached, until the kernel knows its MAC address again. The kernel asks
//! only when there are packets, and none go to where no route leads, so we have it ask every [`ASK_EVERY`]. Other neighbors
//! do not count: a scan of a network must not make the router decide routes again.

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

/// From the first change to reading.
const SETTLE: Duration = Duration::from_millis(100);

/// Reading waits for so many times as long as it took.
const READ_SHARE: u32 = 20;

/// How often the kernel is to ask for who is silent.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Silent gateways and next hops that are kept in mind.
const SILENT_MAX: usize = 1024;

/// Events of the kernel looked at in one turn.
const EVENTS_PER_TURN: usize = 4096;

/// After reading failed, and between two words about failures.
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

/// Networks and others' routes as they are now.
pub(crate) struct Networks {
    protocol: u8,
    monitor: Monitor,
    underlay: Underlay,
    reads: u64,
    /// When they are to be read again.
    read_at: Option<Instant>,
    not_before: Instant,
    gateways: HashSet<NeighborKey>,
    silent: BTreeSet<NeighborKey>,
    /// When the kernel is to ask again; `None` where it may not.
    ask_at: Option<Instant>,
}

impl Networks {
    /// Reads them for the first time. Routes of `protocol` are ours.
    pub(crate) fn open(protocol: u8) -> Result<Self, KernelError> {
        // First, so that nothing is missed in between.
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
        networks.migrate_state(&view, |_| false);
        Ok(networks)
    }

    /// Takes over what was read; whether next hops are reached differently.
    fn migrate_state(&mut self, view: &NetworkView, is_next_hop: impl Fn(IpAddr) -> bool) -> bool {
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

    /// What the kernel says of a neighbor; whether it went silent or answers again.
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

    /// Has the kernel ask for who is silent. Where we may not have it ask, nobody is: they would be so for ever.
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

    /// What they were when they were read last.
    pub(crate) fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// How often they were read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Listens, and reads them if it is time; whether they are others than before. `is_next_hop` says of whom else but
    /// gateways it matters whether they are silent.
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
                Ok(self.migrate_state(&view, is_next_hop))
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
                // Forgotten, which says nothing of whether it would answer.
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

/// `next_hop_check = "kernel"` in a router that installs nothing there: a thread that listens and tells.
pub(crate) struct NextHopThread {
    networks: Networks,
}

impl NextHopThread {
    /// How often is listened.
    const WAIT: Duration = Duration::from_millis(100);

    pub(crate) fn new(protocol: u8) -> Result<Self, KernelError> {
        Ok(Self { networks: Networks::open(protocol)? })
    }

    /// Says for the first time which next hops can be reached: before any session brings routes.
    pub(crate) fn begin(&self, speaker: &Speaker) {
        speaker.set_next_hops(self.networks.underlay().next_hop_view());
    }

    /// Works until it is told to stop.
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

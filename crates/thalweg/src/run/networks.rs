//! What the kernel says of networks and others' routes: read again when something has changed.
//!
//! Changes come in groups (an interface, its addresses, its routes), so reading waits [`SETTLE`] after the first of
//! them, and takes no more than one [`READ_SHARE`]th of the time: with a million of our own routes in the same table,
//! listing others' takes a second. Our own routes are no news, and never in what is read: what BGP chose does not
//! decide what BGP may choose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_node::fib::Underlay;
use thalweg_node::speaker::Speaker;
use thalweg_ports::kernel::{KernelError, KernelEvent, Monitor, NetworkView, Watch};

use crate::kernel_installer::underlay;

/// From the first change to reading.
const SETTLE: Duration = Duration::from_millis(100);

/// Reading waits for so many times as long as it took.
const READ_SHARE: u32 = 20;

/// Events of the kernel looked at in one turn.
const EVENTS_PER_TURN: usize = 4096;

/// After reading failed, and between two words about failures.
pub(super) const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Networks and others' routes as they are now.
pub(super) struct Networks {
    protocol: u8,
    monitor: Monitor,
    underlay: Underlay,
    reads: u64,
    /// When they are to be read again.
    read_at: Option<Instant>,
    not_before: Instant,
}

impl Networks {
    /// Reads them for the first time. Routes of `protocol` are ours.
    pub(super) fn open(protocol: u8) -> Result<Self, KernelError> {
        // First, so that nothing is missed in between.
        let monitor = Monitor::open(Watch { links: true, addresses: true, neighbors: false, routes: true })?;
        let underlay = underlay(&NetworkView::read(protocol)?);
        Ok(Self { protocol, monitor, underlay, reads: 1, read_at: None, not_before: Instant::now() })
    }

    /// What they were when they were read last.
    pub(super) fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// How often they were read.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// Listens, and reads them if it is time; whether they are others than before.
    pub(super) fn follow(&mut self) -> Result<bool, String> {
        self.hear().map_err(|error| format!("listening: {error}"))?;
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
                let underlay = underlay(&view);
                let differs = underlay != self.underlay;
                self.underlay = underlay;
                Ok(differs)
            }
            Err(error) => {
                self.read_at = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                Err(format!("reading networks: {error}"))
            }
        }
    }

    fn hear(&mut self) -> Result<(), KernelError> {
        for _ in 0..EVENTS_PER_TURN {
            match self.monitor.poll_event()? {
                None => return Ok(()),
                Some(KernelEvent::Route(route) | KernelEvent::RouteGone(route))
                    if route.protocol == self.protocol => {}
                Some(KernelEvent::Neighbor(_) | KernelEvent::NeighborGone(_)) => {}
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
pub(super) struct NextHopThread {
    networks: Networks,
}

impl NextHopThread {
    /// How often is listened.
    const WAIT: Duration = Duration::from_millis(100);

    pub(super) fn new(protocol: u8) -> Result<Self, KernelError> {
        Ok(Self { networks: Networks::open(protocol)? })
    }

    /// Says for the first time which next hops can be reached: before any session brings routes.
    pub(super) fn begin(&self, speaker: &Speaker) {
        speaker.set_next_hops(self.networks.underlay().next_hop_view());
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self, speaker: &Speaker, stop: &Arc<AtomicBool>) {
        let mut told_at: Option<Instant> = None;
        while !stop.load(Ordering::Acquire) {
            match self.networks.follow() {
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

//! Watches interfaces, and reports their changes to the host thread.
//!
//! At each notification of the kernel, the ports' interfaces are read again and differences reported. They are also
//! read at intervals, in case notifications are lost. A link that went down and up between two reads is reported as
//! both, because its other end may be another host now. On a busy machine the kernel reports only the last state;
//! its count of carrier changes reveals the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use thalweg_ports::kernel::{KernelError, KernelEvent, Link, Monitor, NetworkView, Watch};
use thalweg_ports::live::link::{LinkFacts, Links, ReadLink};
use thalweg_wire::MacAddr;

use crate::port_mac::PortMac;
use crate::punt::LinkChange;

/// How often to check whether a reload changed a port's MTU. The kernel's notifications are handled at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often to read interfaces without a notification.
const READ_EVERY: Duration = Duration::from_secs(2);

/// A port whose interface is watched.
pub(crate) struct Watched {
    pub(crate) port: u16,
    pub(crate) interface: String,
    /// Reads the link's state if the kernel does not report it.
    pub(crate) link: Option<Box<dyn ReadLink>>,
    /// Decides the MAC address that the router uses.
    pub(crate) mac: PortMac,
    /// The largest IP packet that the configuration allows, in bytes; a reload may change it.
    pub(crate) mtu: Arc<AtomicU32>,
}

/// Ports that a reload adds and removes.
#[derive(Default)]
pub(crate) struct WatchChange {
    pub(crate) gone: Vec<u16>,
    pub(crate) new: Vec<Watched>,
}

/// See the module.
pub(crate) struct LinkWatcher {
    monitor: Monitor,
    links: Links,
    watched: Vec<(Watched, Option<LinkChange>)>,
    /// The last known count of carrier changes, by interface.
    carrier: BTreeMap<Box<str>, u32>,
    /// The MTUs last seen in `mtu` of each port, in the same order.
    told: Vec<u32>,
    changes: Sender<LinkChange>,
    ports: Receiver<WatchChange>,
}

impl LinkWatcher {
    pub(crate) fn new(
        watched: Vec<Watched>,
        changes: Sender<LinkChange>,
        ports: Receiver<WatchChange>,
    ) -> Result<Self, KernelError> {
        let watch = Watch { links: true, addresses: false, neighbors: false, routes: false };
        let monitor = Monitor::open(watch)?;
        let links = Links::open().map_err(|source| KernelError::Open { source })?;
        let mut this = Self {
            monitor,
            links,
            watched: Vec::new(),
            carrier: BTreeMap::new(),
            told: Vec::new(),
            changes,
            ports,
        };
        this.change_watched(WatchChange { new: watched, ..WatchChange::default() });
        Ok(this)
    }

    fn change_watched(&mut self, WatchChange { gone, new }: WatchChange) {
        self.watched.retain(|(watched, _)| !gone.contains(&watched.port));
        self.watched.extend(new.into_iter().map(|each| (each, None)));
        let allowed = |(watched, _): &(Watched, _)| watched.mtu.load(Ordering::Relaxed);
        self.told = self.watched.iter().map(allowed).collect();
        match NetworkView::read_links() {
            Ok(links) => {
                let links = links.into_iter().filter(|link| self.watches(&link.name));
                self.carrier = links.map(|link| (link.name, link.carrier_changes)).collect();
            }
            Err(error) => tracing::error!("cannot read how often links changed: {error}"),
        }
    }

    fn watches(&self, interface: &str) -> bool {
        self.watched.iter().any(|(watched, _)| watched.interface == interface)
    }

    pub(crate) fn run(mut self, stop: &AtomicBool) {
        let mut read_at = Instant::now();
        while !stop.load(Ordering::Acquire) {
            let mut down = Vec::new();
            let heard = self.read_changes(&mut down);
            self.pass_on_flaps(&down);
            let mut has_others = false;
            while let Ok(change) = self.ports.try_recv() {
                self.change_watched(change);
                has_others = true;
            }
            if heard || has_others || self.is_told_otherwise() || Instant::now() >= read_at {
                self.read();
                read_at = Instant::now() + READ_EVERY;
            }
            if let Err(error) = self.monitor.wait(LOOK_EVERY) {
                tracing::error!("cannot wait for link changes: {error}");
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Whether a reload changed an MTU since the last check.
    fn is_told_otherwise(&mut self) -> bool {
        let mut differs = false;
        for ((watched, _), told) in self.watched.iter().zip(&mut self.told) {
            let allowed = watched.mtu.load(Ordering::Relaxed);
            differs |= std::mem::replace(told, allowed) != allowed;
        }
        differs
    }

    /// Reads all notifications. Returns whether there were any, and adds interfaces reported as down to `down`.
    fn read_changes(&mut self, down: &mut Vec<Box<str>>) -> bool {
        let mut any = false;
        loop {
            match self.monitor.poll_event() {
                Ok(Some(event)) => {
                    any = true;
                    if let KernelEvent::Link(link) = event
                        && self.watches(&link.name)
                        && was_down(&link, self.carrier.insert(link.name.clone(), link.carrier_changes))
                    {
                        down.push(link.name);
                    }
                }
                Ok(None) => return any,
                // Notifications were lost, so read the interfaces.
                Err(_) => return true,
            }
        }
    }

    fn pass_on_flaps(&mut self, down: &[Box<str>]) {
        for (watched, known) in &mut self.watched {
            let was_down = down.iter().any(|name| **name == *watched.interface);
            if let (true, Some(known)) = (was_down, known)
                && known.is_up
            {
                known.is_up = false;
                tracing::info!(interface = watched.interface, up = false, "link");
                // Fails only when the host thread has ended.
                let _ = self.changes.send(*known);
            }
        }
    }

    fn read(&mut self) {
        for (watched, known) in &mut self.watched {
            let facts = match &mut watched.link {
                Some(link) => link.read(),
                None => self.links.read(&watched.interface),
            };
            let facts = facts.ok();
            let change = change_of(watched, facts.as_ref(), *known);
            if *known == Some(change) {
                continue;
            }
            if known.is_some_and(|known| known.is_up != change.is_up) {
                tracing::info!(interface = watched.interface, up = change.is_up, "link");
            }
            // Fails only when the host thread has ended.
            let _ = self.changes.send(change);
            *known = Some(change);
        }
    }
}

/// Whether a link is down, or was down since its carrier changes were counted.
fn was_down(link: &Link, before: Option<u32>) -> bool {
    !link.is_up || before.is_some_and(|before| link.carrier_changes.wrapping_sub(before) >= 2)
}

fn change_of(watched: &Watched, facts: Option<&LinkFacts>, known: Option<LinkChange>) -> LinkChange {
    let before = known.map(|known| (known.mac, known.far_end, known.mtu));
    let now = facts.map(|facts| (watched.mac.with(facts.mac), facts.far_end, facts.mtu));
    let unknown = || (watched.mac.with(MacAddr([0; 6])), None, u32::MAX);
    let (mac, far_end, mtu) = now.or(before).unwrap_or_else(unknown);
    LinkChange {
        port: watched.port,
        is_up: facts.is_some_and(|facts| facts.is_up && facts.has_carrier),
        mac,
        far_end,
        mtu: mtu.min(watched.mtu.load(Ordering::Relaxed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_came_back_was_down() {
        let link = |is_up, carrier_changes| Link {
            index: 1,
            name: "wan".into(),
            is_up,
            mac: None,
            mtu_bytes: 1500,
            carrier_changes,
        };
        assert!(was_down(&link(false, 3), Some(2)));
        assert!(was_down(&link(true, 4), Some(2)), "both changes at once");
        assert!(was_down(&link(true, 1), Some(u32::MAX)), "the count has wrapped");
        assert!(!was_down(&link(true, 4), Some(3)), "it was passed on as down before");
        assert!(!was_down(&link(true, 4), Some(4)));
        assert!(!was_down(&link(true, 4), None));
    }
}

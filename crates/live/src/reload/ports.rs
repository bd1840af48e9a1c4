//! Adds, removes and changes ports of a running router: their interfaces, VLANs and mirrors.
//!
//! A port keeps its number as long as the router runs, so nothing indexed by the others' numbers has to move: see
//! [`ConfigSource::config_in_places`](thalweg_config::ConfigSource::config_in_places).
//!
//! | step | what | can it fail |
//! |---|---|---|
//! | prepare | claim and open new ports, make new mirrors | yes: they are closed again |
//! | begin | tables, host thread and senders learn of new ports; their gateways are resolved | it can be undone |
//! | turn | lanes take over receiving halves, VLANs lead to their ports | with the turn |
//! | finish | remove queues, neighbors, mirrors and NAT sessions of removed ports; close their drivers | no |

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::{Driver, PortConfig, RouterConfig, port_needs_restart};
use thalweg_dataplane::nat::EndedBy;
use thalweg_dataplane::neighbor::PortIdentity;
use thalweg_dataplane::vlan::VlanTable;
use thalweg_node::sub_interfaces;
use thalweg_ports::live::SourceWaker;

use super::ReloadError;
use crate::counters::ADDED_MAX;
use crate::halves::{HalvesChange, HalvesSlot};
use crate::host::HostPorts;
use crate::lanes::{QueueRx, deal_out};
use crate::links::{WatchChange, Watched};
use crate::mirror::{MirrorHalves, Mirrors};
use crate::open::OpenError;
use crate::outbox::{Outbox, Outboxes};
use crate::ports::{self, PortStates, frame_bytes_max};
use crate::punt::LinkChange;
use crate::router::{ANSWER_WAIT, LiveRouter};
use crate::start::{identity, live_ports, open_mirrors, update_tables, watched_port};
use crate::vlan;

/// How long a thread may take to release a receiving half.
const SETTLE_WAIT: Duration = Duration::from_secs(1);

type Numbers = Vec<u16>;

/// Port numbers by what changes. A port that is opened again is both removed and new.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PortDifference {
    pub(super) gone: Numbers,
    pub(super) new: Numbers,
    without_mirror: Numbers,
    with_mirror: Numbers,
}

impl PortDifference {
    /// Compares two configurations; fails if a difference needs a restart.
    pub(super) fn between(before: &RouterConfig, after: &RouterConfig) -> Result<Self, ReloadError> {
        let mut all = Self::default();
        // Lists parents before their sub-interfaces.
        let count = before.ports.len().max(after.ports.len()) as u16;
        let is_sub = |port: &u16| present(after, *port).is_some_and(|port| port.sub_interface.is_some());
        let (subs, own): (Numbers, Numbers) = (0..count).partition(is_sub);
        for port in own.into_iter().chain(subs) {
            let (old, new) = (present(before, port), present(after, port));
            let is_kept = match (old, new) {
                (Some(old), Some(new)) => all.keeps(old, new)?,
                _ => false,
            };
            if !is_kept {
                all.gone.extend(old.map(|_| port));
                all.new.extend(new.map(|_| port));
            }
            if let Some(new) = new.filter(|_| !is_kept) {
                can_be_added(new)?;
            }
            let mirrors = [old, new].map(|config| config.and_then(mirror));
            if mirrors[0] != mirrors[1] {
                all.without_mirror.extend(mirrors[0].map(|_| port));
                all.with_mirror.extend(mirrors[1].map(|_| port));
            }
        }
        all.nothing_moves(before, after)?;
        Ok(all)
    }

    /// Whether a port stays open as it is.
    fn keeps(&self, old: &PortConfig, new: &PortConfig) -> Result<bool, ReloadError> {
        if old.name != new.name {
            return Err(ReloadError::Stuck("the configuration was read for other ports"));
        }
        let parent = new.sub_interface.map(|sub| sub.parent);
        let is_elsewhere = old.sub_interface != new.sub_interface
            || parent.is_some_and(|parent| self.new.contains(&parent))
            || (parent.is_none() && name(old) != name(new));
        if is_elsewhere {
            return Ok(false);
        }
        match port_needs_restart(old, new) {
            Some(key) => Err(ReloadError::Restart { key: format!("`{key}` of [ports.{}]", new.name) }),
            None => Ok(true),
        }
    }

    /// Refuses an interface, VLAN or mirror that moves from one port to another: both cannot hold it at the same
    /// time.
    fn nothing_moves(&self, before: &RouterConfig, after: &RouterConfig) -> Result<(), ReloadError> {
        let moved = |what: &str, from: &[u16], to: &[u16], of: fn(&PortConfig) -> Option<&str>| {
            let had = from.iter().filter_map(|port| present(before, *port));
            let moved = had.filter_map(|old| Some((old, of(old)?))).find_map(|(old, name)| {
                let gets = |new: &&PortConfig| of(new) == Some(name) && new.name != old.name;
                Some((old, name, to.iter().filter_map(|port| present(after, *port)).find(gets)?))
            });
            moved.map_or(Ok(()), |(old, name, new)| {
                Err(ReloadError::Refused(format!(
                    "{what} {name} moves from port {0} to port {1}: take it from {0} with one reload, and give it to {1} with \
                     the next; nothing was changed",
                    old.name, new.name
                )))
            })
        };
        moved("interface", &self.gone, &self.new, exclusive)?;
        moved("mirror", &self.without_mirror, &self.with_mirror, mirror)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a number belonged to no port before.
    fn is_fresh(&self, port: u16) -> bool {
        self.new.contains(&port) && !self.gone.contains(&port)
    }

    /// One line for each port that is added, removed or changed.
    pub(super) fn in_words(&self, before: &RouterConfig, after: &RouterConfig) -> Vec<String> {
        let mut words = Vec::new();
        let named = |config: &RouterConfig, port: u16| {
            present(config, port).map(|port| port.name.clone()).unwrap_or_default()
        };
        for &port in self.gone.iter().filter(|port| !self.new.contains(port)) {
            words.push(format!("port {}: removed", named(before, port)));
        }
        for &port in &self.new {
            let what = if self.gone.contains(&port) { "opened anew" } else { "added" };
            words.push(format!("port {}: {what}", named(after, port)));
        }
        words
    }
}

fn present(config: &RouterConfig, port: u16) -> Option<&PortConfig> {
    config.ports.get(usize::from(port)).filter(|port| !port.is_vacant())
}

/// Whether a port has moved to another VRF.
pub(super) fn moves_ports(before: &RouterConfig, after: &RouterConfig) -> bool {
    let both = before.ports.iter().zip(&after.ports);
    both.filter(|(old, new)| !old.is_vacant() && !new.is_vacant()).any(|(old, new)| old.vrf != new.vrf)
}

fn name(port: &PortConfig) -> Option<&str> {
    port.interface.as_ref().map(|interface| interface.name.as_str())
}

fn mirror(port: &PortConfig) -> Option<&str> {
    port.interface.as_ref()?.mirror.as_deref()
}

fn exclusive(port: &PortConfig) -> Option<&str> {
    port.interface.as_ref().filter(|_| port.sub_interface.is_none())?.exclusive()
}

/// Refuses ports that need what is made only at the start, for all ports.
fn can_be_added(port: &PortConfig) -> Result<(), ReloadError> {
    let Some(interface) = port.interface.as_ref().filter(|_| port.sub_interface.is_none()) else {
        return Ok(());
    };
    let at_start =
        [("driver = \"dpdk\"", interface.driver == Driver::Dpdk), ("offload = true", interface.offload)];
    match at_start.into_iter().find(|(_, has)| *has) {
        Some((key, _)) => Err(ReloadError::Refused(format!(
            "`{key}` of [ports.{}]: only a restart can add a port with it; nothing was changed",
            port.name
        ))),
        None => Ok(()),
    }
}

/// Ports that are open but not yet known to the rest of the router.
pub(super) struct PortsChange {
    difference: PortDifference,
    outboxes: Vec<Outbox>,
    states: PortStates,
    halves: Vec<QueueRx>,
    mirrors: Mirrors,
    mirror_halves: MirrorHalves,
    watched: Vec<Watched>,
    identities: Vec<(u16, PortIdentity, bool)>,
}

impl PortsChange {
    pub(super) fn brings(&self, port: u16) -> bool {
        self.difference.new.contains(&port)
    }

    /// Returns what to do at the turn: replace the lanes' receiving halves and the outboxes.
    pub(super) fn turn(&mut self, lanes: &[HalvesSlot], outboxes: &Outboxes) -> impl FnOnce() + Send + use<> {
        let halves = std::mem::take(&mut self.halves);
        let frame_bytes_max = frame_bytes_max(self.states.iter().flatten().map(|state| &**state));
        let gone = self.difference.gone.clone();
        let changes: Vec<_> = deal_out(halves, lanes.len(), self.states.len())
            .into_iter()
            .map(|new| HalvesChange { gone: gone.clone(), new, frame_bytes_max })
            .collect();
        let (lanes, outboxes, after) = (lanes.to_vec(), outboxes.clone(), self.outboxes.clone());
        move || {
            lanes.iter().zip(changes).for_each(|(lane, change)| lane.put(change));
            outboxes.replace(after);
        }
    }
}

impl LiveRouter {
    /// Opens new ports and mirrors. The running ports are untouched; dropping the result closes what was opened.
    pub(super) fn prepare_ports(
        &self,
        before: &RouterConfig,
        after: &RouterConfig,
        difference: PortDifference,
    ) -> Result<Option<PortsChange>, ReloadError> {
        if difference.is_empty() {
            return Ok(None);
        }
        self.can_open(before, after, &difference)?;
        let (outboxes, states, opened) = self.open_new(after, &difference).map_err(failed)?;
        let mut ports = live_ports(after, &states);
        let mirrored: Vec<_> =
            ports.iter().filter(|(port, ..)| difference.with_mirror.contains(port)).copied().collect();
        let (mirrors, mirror_halves) = open_mirrors(&mirrored).map_err(failed)?;
        ports.retain(|(port, ..)| difference.new.contains(port));
        let (mut halves, mut links) = (Vec::new(), Vec::new());
        for port in opened {
            halves.extend(port.halves);
            links.push((port.index, port.link));
        }
        let mut link =
            |port: u16| links.iter_mut().find(|(of, _)| *of == port).and_then(|(_, link)| link.take());
        let watched = ports.iter().filter_map(|(port, config, _)| {
            Some(watched_port(*port, config, states[usize::from(*port)].as_ref()?, link(*port)))
        });
        let watched = watched.collect();
        let identity = |(port, config, change): &(u16, &PortConfig, LinkChange)| {
            (*port, identity(after, config, change), change.is_up)
        };
        let identities = ports.iter().map(identity).collect();
        Ok(Some(PortsChange {
            difference,
            outboxes,
            states,
            halves,
            mirrors,
            mirror_halves,
            watched,
            identities,
        }))
    }

    /// Checks without opening whether new ports could be opened.
    pub(super) fn can_open(
        &self,
        before: &RouterConfig,
        after: &RouterConfig,
        difference: &PortDifference,
    ) -> Result<(), ReloadError> {
        if after.ports.len() > self.counters.ports_max() {
            return Err(ReloadError::Refused(format!(
                "{ADDED_MAX} ports were added since the start; more need a restart; nothing was changed"
            )));
        }
        for port in &difference.new {
            let port = &after.ports[usize::from(*port)];
            if let Some(worker) = port.last_worker().filter(|worker| *worker >= self.lanes.len()) {
                return Err(ReloadError::Refused(format!(
                    "port {} gives a queue to worker {worker}, and this router has {} with queues (the first is 0); more \
                     need a restart; nothing was changed",
                    port.name,
                    self.lanes.len()
                )));
            }
            ports::claim(port).map_err(failed)?;
        }
        self.carries_first_vlan(before, after, difference)
    }

    /// Opens new ports. Returns the outboxes and facts of all ports.
    fn open_new(
        &self,
        after: &RouterConfig,
        difference: &PortDifference,
    ) -> Result<(Vec<Outbox>, PortStates, Vec<Opened>), OpenError> {
        let (known, ways) = (self.states(), self.outboxes.load());
        let vlans = Arc::new(VlanTable::new(sub_interfaces(after)));
        let mut claims = Vec::new();
        for port in &difference.new {
            claims.push((*port, ports::claim(&after.ports[usize::from(*port)])?));
        }
        let (mut own, mut states, mut opened) = (Vec::new(), Vec::new(), Vec::new());
        for (index, config) in (0u16..).zip(&after.ports) {
            let place = usize::from(index);
            let claim = claims.iter_mut().find(|(port, _)| *port == index).map(|(_, claim)| claim.take());
            let (way, state) = match claim {
                _ if config.is_vacant() => (Some(Outbox::vacant(index, &self.counters)), None),
                Some(_) if config.sub_interface.is_some() => (None, None),
                None if config.sub_interface.is_some() => (None, known.get(place).cloned().flatten()),
                Some(claim) => {
                    let macs = self.virtual_macs.iter().find(|(port, _)| *port == index);
                    let macs = macs.map(|(_, macs)| macs.clone());
                    let port = ports::open(after, index, self.lanes.len(), claim, macs)?;
                    let state = Arc::new(port.state);
                    opened.push(Opened { index, halves: port.halves, link: port.link });
                    let way = Outbox::new(index, port.tx, None, VlanTable::default(), self.counters.clone());
                    (Some(way.with_vlans(&vlans)), Some(state))
                }
                None => {
                    let way = ways.get(place).map(|way| way.with_vlans(&vlans));
                    (way, known.get(place).cloned().flatten())
                }
            };
            own.push(way);
            states.push(state);
        }
        let (outboxes, states) = vlan::with_sub_interfaces(after, own, states)?;
        Ok((outboxes, states, opened))
    }

    /// Refuses the first VLAN of a port that was opened without support for tags.
    fn carries_first_vlan(
        &self,
        before: &RouterConfig,
        after: &RouterConfig,
        difference: &PortDifference,
    ) -> Result<(), ReloadError> {
        let states = self.states();
        for (index, port) in (0u16..).zip(&after.ports).filter(|(index, _)| !difference.new.contains(index)) {
            if ports::carries_vlans(before, index) || !ports::carries_vlans(after, index) {
                continue;
            }
            let Some(interface) = &port.interface else { continue };
            let mode = states[usize::from(index)].as_ref().map(|state| state.facts_now().mode);
            let sees_tags = mode.is_some_and(|mode| mode.starts_with("af_packet"));
            if interface.offload || (interface.driver == Driver::Auto && !sees_tags) {
                return Err(ReloadError::Refused(format!(
                    "port {0} carries no VLAN yet, and was opened without support for tags: its first VLAN needs a restart \
                     (with `driver = \"af_packet\"` and without `offload` in [ports.{0}] VLANs come by reload); nothing was \
                     changed",
                    port.name
                )));
            }
        }
        Ok(())
    }

    /// Tells tables, host thread and senders of new ports. They can send then, but receive only after the turn.
    pub(super) fn begin_ports(&self, change: &PortsChange, after: &RouterConfig) {
        let fresh = |port: u16| change.difference.is_fresh(port);
        self.counters.set_names(after.ports.iter().map(|port| port.name.clone()));
        let before = self.outboxes.load();
        let outboxes = (0u16..).zip(&change.outboxes);
        let begun = outboxes.map(|(port, new)| match before.get(usize::from(port)) {
            Some(old) if !fresh(port) => old.clone(),
            _ => new.clone(),
        });
        self.outboxes.replace(begun.collect());
        self.report_links(change, after, fresh);
        let identities = change.identities.iter().filter(|(port, ..)| fresh(*port));
        let host = HostPorts { new: identities.cloned().collect(), ..HostPorts::default() };
        self.order_ports(host);
    }

    pub(super) fn undo_ports(&self, change: PortsChange) {
        let PortsChange { difference, outboxes, .. } = change;
        let fresh: Numbers =
            difference.new.iter().copied().filter(|port| difference.is_fresh(*port)).collect();
        shut(&outboxes, &fresh, self.clock.now_ns());
        self.order_ports(HostPorts { gone: fresh, ..HostPorts::default() });
    }

    /// Closes removed ports after the turn; whether there were any.
    pub(super) fn finish_ports(
        &self,
        mut change: PortsChange,
        closed: &[Outbox],
        after: &RouterConfig,
    ) -> bool {
        let both: Numbers = change
            .difference
            .new
            .iter()
            .copied()
            .filter(|port| change.difference.gone.contains(port))
            .collect();
        let reopened = |port: u16| both.contains(&port);
        let PortDifference { gone, without_mirror, .. } = &change.difference;
        let (gone, without_mirror) = (gone.clone(), without_mirror.clone());
        self.watch(WatchChange { gone: gone.clone(), new: std::mem::take(&mut change.watched) });
        self.order_ports(HostPorts {
            gone,
            new: change.identities.iter().filter(|(port, ..)| reopened(*port)).cloned().collect(),
            without_mirror,
            mirrors: std::mem::take(&mut change.mirrors),
        });
        self.report_links(&change, after, reopened);
        let PortsChange { difference, states, mirror_halves, .. } = change;
        let half = |(port, rx)| QueueRx { port, queue: 0, of: 1, worker: None, rx };
        let new = mirror_halves.into_iter().map(half).collect();
        self.mirror_halves.put(HalvesChange { gone: difference.without_mirror, new, frame_bytes_max: 0 });
        self.wakers.iter().for_each(SourceWaker::wake);
        shut(closed, &difference.gone, self.clock.now_ns());
        *self.states.lock() = states;
        for slot in self.lanes.iter().chain([&self.mirror_halves]) {
            if !slot.wait_until_taken(SETTLE_WAIT) {
                tracing::error!("the receiver of a removed port is not closed yet");
            }
        }
        !difference.gone.is_empty()
    }

    fn watch(&self, change: WatchChange) {
        if self.watch.send_timeout(change, ANSWER_WAIT).is_err() {
            tracing::error!("the link thread does not answer: it still follows the old ports");
        }
    }

    fn order_ports(&self, change: HostPorts) {
        if self.order(|host| host.change_ports(change)).is_none() {
            tracing::error!("the host thread is busy: it still has the old ports");
        }
    }

    fn report_links(&self, change: &PortsChange, after: &RouterConfig, which: impl Fn(u16) -> bool) {
        let mut ports = live_ports(after, &change.states);
        ports.retain(|(port, ..)| which(*port));
        update_tables(&self.tables, &ports);
    }

    /// Ends the sessions of inside hosts that were behind a port of their VRF and are behind none any more. Returns how
    /// many.
    pub(super) fn end_sessions_of_lost_hosts(&self, before: &RouterConfig, after: &RouterConfig) -> u64 {
        let (Some(nat), Some(old), Some(new)) = (self.nat(), &before.nat, &after.nat) else { return 0 };
        let (had, has) = (&old.untranslated, &new.untranslated);
        let holds = |nets: &[(u16, ipnet::Ipv4Net)], vrf: u16, host: Ipv4Addr| {
            let next = nets.partition_point(|(of, net)| (*of, net.network()) <= (vrf, host));
            let net = next.checked_sub(1).map(|place| nets[place]);
            net.is_some_and(|(of, net)| of == vrf && net.contains(&host))
        };
        let vrfs: Vec<u16> =
            new.inside_ports.iter().map(|port| after.ports[usize::from(*port)].vrf).collect();
        let is_lost = |vrf: u16, host: Ipv4Addr| {
            !vrfs.contains(&vrf) || holds(had, vrf, host) && !holds(has, vrf, host)
        };
        let ended = nat.end_sessions(
            self.clock.now_ns(),
            EndedBy::Configuration,
            |session| match session.inside.ip() {
                IpAddr::V4(host) => is_lost(session.vrf, host),
                IpAddr::V6(_) => !vrfs.contains(&session.vrf),
            },
            |session| is_lost(session.vrf, session.inside),
        );
        self.end_leases();
        ended
    }
}

struct Opened {
    index: u16,
    halves: Vec<QueueRx>,
    link: Option<Box<dyn thalweg_ports::live::link::ReadLink>>,
}

/// Stops sending through these ports. A sub-interface is skipped: its parent sends.
fn shut(outboxes: &[Outbox], ports: &[u16], now_ns: u64) {
    let ways = ports.iter().filter_map(|port| outboxes.get(usize::from(*port)));
    ways.filter(|way| !way.is_sub_interface()).for_each(|way| drop(way.shut(now_ns)));
}

fn failed(error: OpenError) -> ReloadError {
    ReloadError::Refused(format!("{error}; nothing was changed"))
}

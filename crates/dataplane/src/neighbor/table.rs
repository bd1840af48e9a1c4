//! The table: look-ups, and changes over time. [`super::receive`] has the changes that frames cause.

use super::arp;
use super::config::is_neighbor_address;
use super::entry::{Entry, NeighborState as State};
use super::nd;
use super::store::{Key, Store};
use super::{
    NeighborConfig, NeighborCounters, NeighborOutput as Output, NeighborView, PortIdentity, Unreachable,
};
use crate::rate_limit::TokenBucket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use thalweg_base::XorShift64Star;
use thalweg_wire::{MacAddr, ndp};

/// Announcements after a port or an address comes up, and their interval (RFC 5227 1.1).
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL_NS: u64 = 2_000_000_000;
/// The first advertisements have a shorter interval (RFC 4861 6.2.4).
const INITIAL_ADVERTISEMENTS: u8 = 3;
const INITIAL_ADVERTISEMENT_NS: u64 = 16_000_000_000;
/// The first pause of a silent wanted neighbor; it doubles each time.
const WANTED_PAUSE_NS: u64 = 1_000_000_000;

/// The state of a port that is up.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) identity: PortIdentity,
    solicitations: TokenBucket,
    pub(super) defenses: TokenBucket,
    announcements_left: u8,
    /// When the next announcement is due; `u64::MAX` is never. Likewise for advertisements.
    announce_ns: u64,
    advertisements_sent: u8,
    pub(super) advertise_ns: u64,
    pub(super) advertised_ns: Option<u64>,
}

/// All neighbors of all ports. `P` is a waiting packet: its bytes, with whatever else the caller needs back.
///
/// Give it frames and time, and after each call poll its outputs until there are none.
#[derive(Clone, Debug)]
pub struct NeighborTable<P = Vec<u8>> {
    pub(super) config: NeighborConfig,
    pub(super) ports: BTreeMap<u16, Port>,
    pub(super) store: Store<P>,
    statics: BTreeMap<Key, MacAddr>,
    wanted: BTreeSet<Key>,
    outputs: VecDeque<Output<P>>,
    queued_bytes: usize,
    pub(super) counters: NeighborCounters,
    pub(super) chance: XorShift64Star,
}

impl<P: AsRef<[u8]>> NeighborTable<P> {
    /// A table for ports numbered from 0, all up.
    pub fn new(config: NeighborConfig, ports: Vec<PortIdentity>, now_ns: u64) -> Self {
        let mut table = Self {
            chance: XorShift64Star::new(config.seed),
            config,
            ports: BTreeMap::new(),
            store: Store::default(),
            statics: BTreeMap::new(),
            wanted: BTreeSet::new(),
            outputs: VecDeque::new(),
            queued_bytes: 0,
            counters: NeighborCounters::default(),
        };
        for (number, identity) in (0..).zip(ports) {
            table.set_port(number, Some(identity), now_ns);
        }
        table
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timer`](Self::handle_timer) next, if nothing else happens.
    pub fn next_deadline(&self) -> Option<u64> {
        let ports = self.ports.values().map(|port| port.announce_ns.min(port.advertise_ns));
        let neighbors = self.store.next_timer().map(|(deadline, _)| deadline);
        ports.chain(neighbors).min().filter(|&deadline| deadline != u64::MAX)
    }

    /// The counters.
    pub fn counters(&self) -> &NeighborCounters {
        &self.counters
    }

    /// All neighbors, by port and address.
    pub fn view(&self) -> impl Iterator<Item = NeighborView> + '_ {
        self.store.iter().map(|((port, address), entry)| entry.view(port, address))
    }

    /// The MAC address of a neighbor, if known.
    pub fn lookup(&self, port: u16, address: IpAddr) -> Option<MacAddr> {
        let known = || self.store.get((port, address)).filter(|entry| entry.state.is_resolved());
        self.far_end(port).or_else(|| known().map(|entry| entry.mac))
    }

    fn far_end(&self, port: u16) -> Option<MacAddr> {
        self.port(port)?.far_end
    }

    /// The router's identity on a port that is up, its link-local address included.
    pub fn port(&self, port: u16) -> Option<&PortIdentity> {
        self.ports.get(&port).map(|port| &port.identity)
    }

    /// Numbers of packets and bytes that wait for neighbors.
    pub fn waiting(&self) -> (usize, usize) {
        (self.store.iter().map(|(_, entry)| entry.queue.len()).sum(), self.queued_bytes)
    }

    /// Resolves the next hop of a packet: forwards the packet at once if it is known; otherwise the packet waits
    /// until it is known or given up.
    pub fn resolve(&mut self, port: u16, next_hop: IpAddr, packet: P, now_ns: u64) {
        let key = (port, next_hop);
        self.counters.packets_in += 1;
        if let Some(mac) = self.far_end(port) {
            return self.forward(key, mac, packet);
        }
        match self.store.state(key) {
            Some(state) if state.is_resolved() => {
                self.used(port, next_hop, now_ns);
                if let Some(mac) = self.lookup(port, next_hop) {
                    self.forward(key, mac, packet);
                }
            }
            Some(State::Failed) => {
                self.enqueue(key, packet);
                self.start(key, now_ns);
            }
            Some(_) => self.enqueue(key, packet),
            None => match self.admit_unresolved(key) {
                Ok(()) => {
                    self.store.insert(key, Entry::new(State::Incomplete, MacAddr::ZERO, false, now_ns));
                    self.enqueue(key, packet);
                    self.start(key, now_ns);
                }
                Err(why) => self.unreachable(key, packet, why),
            },
        }
    }

    /// Reports traffic to a neighbor: a STALE one is probed soon.
    pub fn used(&mut self, port: u16, address: IpAddr, now_ns: u64) {
        let delay_ns = self.config.delay_ns;
        self.store.update((port, address), |entry| {
            entry.used_ns = now_ns;
            if entry.state == State::Stale {
                entry.state = State::Delay;
                entry.deadline_ns = now_ns.saturating_add(delay_ns);
            }
        });
    }

    /// Solicits a neighbor (a gateway) before there is traffic, and again for ever. Returns `false` if there are
    /// `wanted_max` already. Its port may still be down.
    pub fn want(&mut self, port: u16, address: IpAddr, now_ns: u64) -> bool {
        let key = (port, address);
        if !self.wanted.contains(&key) && self.wanted.len() >= self.config.wanted_max {
            return false;
        }
        self.wanted.insert(key);
        self.begin_wanted(key, now_ns);
        true
    }

    /// Treats the neighbor like any other again.
    pub fn unwant(&mut self, port: u16, address: IpAddr) {
        let key = (port, address);
        self.wanted.remove(&key);
        self.store.update(key, |entry| entry.is_wanted = false);
        if self.store.state(key) == Some(State::Failed) {
            self.remove(key, Unreachable::NoAnswer);
        }
    }

    /// Configures a neighbor's MAC address; `None` removes the configuration: the address is probed, and used
    /// meanwhile. Returns `false` if there are `wanted_max` already. It is in force while its port is up.
    pub fn set_static(&mut self, port: u16, address: IpAddr, mac: Option<MacAddr>, now_ns: u64) -> bool {
        let key = (port, address);
        let Some(mac) = mac else {
            if self.statics.remove(&key).is_some() && self.ports.contains_key(&port) {
                self.end_static(key, now_ns);
            }
            return true;
        };
        if !self.statics.contains_key(&key) && self.statics.len() >= self.config.wanted_max {
            return false;
        }
        self.statics.insert(key, mac);
        if self.ports.contains_key(&port) {
            self.begin_static(key, mac, now_ns);
        }
        true
    }

    /// Brings a port up, changes it, or with `None` takes it down. Neighbors outside its networks are lost, all of
    /// them if it is down, and their waiting packets are unreachable. The port's own MAC address and MTU are in no
    /// output: the caller writes them into the adjacencies again.
    pub fn set_port(&mut self, port: u16, identity: Option<PortIdentity>, now_ns: u64) {
        let Some(identity) = identity.map(PortIdentity::completed) else {
            self.ports.remove(&port);
            for key in self.store.keys_of_port(port) {
                self.remove(key, Unreachable::PortDown);
            }
            return;
        };
        if self.ports.get(&port).is_some_and(|known| known.identity == identity) {
            return;
        }
        let advertise_ns = if identity.router_advertisements { now_ns } else { u64::MAX };
        let announce_ns = if identity.far_end.is_some() { u64::MAX } else { now_ns };
        let entry = Port {
            identity,
            solicitations: TokenBucket::default(),
            defenses: TokenBucket::default(),
            announcements_left: ANNOUNCEMENTS,
            announce_ns,
            advertisements_sent: 0,
            advertise_ns,
            advertised_ns: None,
        };
        self.ports.insert(port, entry);
        for key in self.store.keys_of_port(port) {
            let is_near = || self.port(port).is_some_and(|identity| identity.is_on_link(key.1));
            let is_asked = self.far_end(port).is_none() && (self.wanted.contains(&key) || is_near());
            let kept = self.statics.contains_key(&key) || is_asked;
            if !kept {
                self.remove(key, Unreachable::NotANeighbor);
            }
        }
        let statics: Vec<_> =
            self.statics.iter().filter(|(key, _)| key.0 == port).map(|(k, m)| (*k, *m)).collect();
        for (key, mac) in statics {
            self.begin_static(key, mac, now_ns);
        }
        let wanted: Vec<_> = self.wanted.iter().filter(|key| key.0 == port).copied().collect();
        for key in wanted {
            self.begin_wanted(key, now_ns);
        }
        self.announce_if_due(port, now_ns);
        self.advertise_if_due(port, now_ns);
    }

    /// Performs all due actions.
    pub fn handle_timer(&mut self, now_ns: u64) {
        while let Some((deadline, key)) = self.store.next_timer() {
            if deadline > now_ns {
                break;
            }
            self.handle_deadline(key, now_ns);
            debug_assert!(
                self.store.get(key).is_none_or(|entry| entry.deadline_ns > now_ns || now_ns == u64::MAX),
                "what was due is put off, or this would not end"
            );
        }
        let ports: Vec<u16> = self.ports.keys().copied().collect();
        for port in ports {
            self.announce_if_due(port, now_ns);
            self.advertise_if_due(port, now_ns);
        }
    }

    fn handle_deadline(&mut self, key: Key, now_ns: u64) {
        let Some(entry) = self.store.get(key) else { return };
        let all_sent = entry.sent >= self.config.solicitations_max;
        let idle = self.config.idle_ns.is_some_and(|idle| now_ns.saturating_sub(entry.used_ns) >= idle);
        match entry.state {
            State::Incomplete if all_sent => self.give_up(key, now_ns),
            State::Incomplete => self.solicit(key, now_ns),
            State::Failed => self.start(key, now_ns),
            State::Reachable if entry.is_wanted => self.begin_probes(key, now_ns),
            State::Reachable => self.set_stale(key, now_ns),
            State::Stale if idle && !entry.is_wanted => self.remove(key, Unreachable::NoAnswer),
            State::Probe if all_sent => self.lose(key, now_ns),
            State::Stale | State::Delay => self.begin_probes(key, now_ns),
            State::Probe => self.probe(key, now_ns),
            State::Static => {
                self.store.update(key, |entry| entry.deadline_ns = u64::MAX);
            }
        }
    }

    // --- the life of an entry -------------------------------------------------------------------

    fn begin_wanted(&mut self, key: Key, now_ns: u64) {
        if !self.ports.contains_key(&key.0) || self.far_end(key.0).is_some() {
            return;
        }
        if self.store.update(key, |entry| entry.is_wanted = true).is_none() {
            self.store.insert(key, Entry::new(State::Incomplete, MacAddr::ZERO, true, now_ns));
            self.start(key, now_ns);
        }
    }

    fn begin_static(&mut self, key: Key, mac: MacAddr, now_ns: u64) {
        if self.store.get(key).is_none() {
            self.store.insert(
                key,
                Entry::new(State::Incomplete, MacAddr::ZERO, self.wanted.contains(&key), now_ns),
            );
        }
        self.set_mac(key, mac, now_ns);
        self.store.update(key, |entry| {
            (entry.state, entry.deadline_ns, entry.confirmed_ns) = (State::Static, u64::MAX, Some(now_ns));
        });
        self.release(key, mac);
    }

    /// The configured address stays in use until the neighbor answers a probe, which follows soon, so that senders
    /// do not have to wait.
    fn end_static(&mut self, key: Key, now_ns: u64) {
        let is_wanted = self.wanted.contains(&key);
        let is_near = self.port(key.0).is_some_and(|identity| identity.is_on_link(key.1));
        let has_room = is_wanted || is_near && self.admit_resolved(key.0, true);
        if !has_room {
            return self.remove(key, Unreachable::NoAnswer);
        }
        let deadline_ns = now_ns.saturating_add(self.config.delay_ns.max(1));
        self.store.update(key, |entry| {
            (entry.state, entry.deadline_ns, entry.used_ns) = (State::Delay, deadline_ns, now_ns);
            entry.is_wanted = is_wanted;
        });
    }

    /// Starts to solicit, with the first solicitation.
    fn start(&mut self, key: Key, now_ns: u64) {
        self.store.update(key, |entry| (entry.state, entry.sent) = (State::Incomplete, 0));
        self.solicit(key, now_ns);
    }

    /// Solicits all neighbors, or waits until the rate permits it.
    fn solicit(&mut self, key: Key, now_ns: u64) {
        let is_wanted = self.store.get(key).is_some_and(|entry| entry.is_wanted);
        let rate = self.config.solicitations;
        let Some(port) = self.ports.get_mut(&key.0) else { return self.give_up(key, now_ns) };
        if !is_wanted && !port.solicitations.take(rate, now_ns) {
            let ready_ns = port.solicitations.ready_at(rate).max(now_ns.saturating_add(1));
            self.counters.solicitations_delayed += 1;
            self.store.update(key, |entry| entry.deadline_ns = ready_ns);
            return;
        }
        let Some(frame) = question(&port.identity, key.1, None) else { return self.give_up(key, now_ns) };
        self.counters.solicitations_sent += 1;
        self.asked(key, frame, now_ns);
    }

    fn begin_probes(&mut self, key: Key, now_ns: u64) {
        self.store.update(key, |entry| (entry.state, entry.sent) = (State::Probe, 0));
        self.probe(key, now_ns);
    }

    /// Solicits a known neighbor by unicast.
    fn probe(&mut self, key: Key, now_ns: u64) {
        let mac = self.store.get(key).map(|entry| entry.mac);
        let frame = self.ports.get(&key.0).and_then(|port| question(&port.identity, key.1, mac));
        let Some(frame) = frame else { return self.lose(key, now_ns) };
        self.counters.probes_sent += 1;
        self.asked(key, frame, now_ns);
    }

    fn asked(&mut self, key: Key, frame: Vec<u8>, now_ns: u64) {
        let retransmit_ns = self.config.retransmit_ns.max(1);
        self.store.update(key, |entry| {
            entry.sent = entry.sent.saturating_add(1);
            entry.deadline_ns = now_ns.saturating_add(retransmit_ns);
        });
        self.send(key.0, frame);
    }

    /// Gives up a silent neighbor: its waiting packets are unreachable; a wanted one is solicited again later.
    fn give_up(&mut self, key: Key, now_ns: u64) {
        let Some(entry) = self.store.get(key) else { return };
        if !entry.is_wanted {
            return self.remove(key, Unreachable::NoAnswer);
        }
        let longest_ns = self.config.wanted_pause_max_ns.max(WANTED_PAUSE_NS);
        let queue = self.store.update(key, |entry| {
            entry.pause_ns = (entry.pause_ns * 2).clamp(WANTED_PAUSE_NS, longest_ns);
            entry.state = State::Failed;
            entry.deadline_ns = now_ns.saturating_add(entry.pause_ns);
            std::mem::take(&mut entry.queue)
        });
        self.refuse_all(key, queue.unwrap_or_default(), Unreachable::NoAnswer);
        let (port, address) = key;
        self.outputs.push_back(Output::Silent { port, address });
    }

    /// Handles a known neighbor that does not answer.
    fn lose(&mut self, key: Key, now_ns: u64) {
        if !self.store.get(key).is_some_and(|entry| entry.is_wanted) {
            return self.remove(key, Unreachable::NoAnswer);
        }
        self.told_lost(key);
        self.start(key, now_ns);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: Key, why: Unreachable) {
        let Some(entry) = self.store.remove(key) else { return };
        if entry.state.is_resolved() {
            self.told_lost(key);
        }
        self.refuse_all(key, entry.queue, why);
    }

    fn told_lost(&mut self, (port, address): Key) {
        self.counters.lost += 1;
        self.outputs.push_back(Output::Lost { port, address });
    }

    /// Sets an entry's MAC address and outputs a change. The caller then sets the state and releases waiting
    /// packets.
    pub(super) fn set_mac(&mut self, key: Key, mac: MacAddr, now_ns: u64) {
        let (port, address) = key;
        let before = self.lookup(port, address);
        if before == Some(mac) {
            return;
        }
        self.store.update(key, |entry| {
            entry.mac = mac;
            entry.changed_ns = before.map(|_| now_ns);
            entry.pause_ns = 0;
            if before.is_none() {
                entry.state = State::Stale;
            }
        });
        self.outputs.push_back(match before {
            None => {
                self.counters.resolved += 1;
                Output::Resolved { port, address, mac }
            }
            Some(_) => {
                self.counters.changed += 1;
                Output::Changed { port, address, mac }
            }
        });
    }

    pub(super) fn set_stale(&mut self, key: Key, now_ns: u64) {
        let is_wanted = self.store.get(key).is_some_and(|entry| entry.is_wanted);
        let until_idle = self.config.idle_ns.filter(|_| !is_wanted).zip(self.store.get(key));
        let idle_at = until_idle.map_or(0, |(idle_ns, entry)| entry.used_ns.saturating_add(idle_ns));
        let deadline_ns = now_ns.saturating_add(self.config.stale_ns.max(1)).max(idle_at);
        self.store.update(key, |entry| (entry.state, entry.deadline_ns) = (State::Stale, deadline_ns));
    }

    /// RFC 4861 6.3.2: from half to one and a half of the base time, so that not all entries expire together.
    pub(super) fn set_reachable(&mut self, key: Key, now_ns: u64) {
        let is_wanted = self.store.get(key).is_some_and(|entry| entry.is_wanted);
        let base = if is_wanted { self.config.wanted_reachable_ns } else { self.config.reachable_ns };
        let base = base.max(2);
        let spread = u64::from(self.chance.below(1 << 16)).saturating_mul(base >> 16);
        let deadline_ns =
            now_ns.saturating_add(base / 2).saturating_add(spread).max(now_ns.saturating_add(1));
        self.store.update(key, |entry| {
            (entry.state, entry.deadline_ns, entry.confirmed_ns) =
                (State::Reachable, deadline_ns, Some(now_ns));
        });
    }

    // --- budgets --------------------------------------------------------------------------------

    fn admit_unresolved(&self, (port, address): Key) -> Result<(), Unreachable> {
        let Some(identity) = self.port(port) else { return Err(Unreachable::PortDown) };
        let can_be = is_neighbor_address(address) && !identity.answers_for(address);
        if !can_be || identity.source_for(address).is_none() {
            return Err(Unreachable::NotANeighbor);
        }
        let room = self.store.total().unresolved < self.config.unresolved_max
            && self.store.of_port(port).unresolved < self.config.unresolved_per_port_max;
        if room { Ok(()) } else { Err(Unreachable::TooManyUnresolved) }
    }

    /// Whether there is room for another resolved neighbor; one that answered a solicitation replaces the one that
    /// has been STALE longest.
    pub(super) fn admit_resolved(&mut self, port: u16, answered: bool) -> bool {
        let port_full = self.store.of_port(port).resolved >= self.config.entries_per_port_max;
        if !port_full && self.store.total().resolved < self.config.entries_max {
            return true;
        }
        let leaves = answered.then(|| self.store.longest_stale(port_full.then_some(port))).flatten();
        let Some(key) = leaves else { return false };
        self.counters.evicted += 1;
        self.remove(key, Unreachable::NoAnswer);
        true
    }

    // --- packets and outputs --------------------------------------------------------------------

    fn enqueue(&mut self, key: Key, packet: P) {
        let most = self.config.queue_packets_max.max(1);
        let displaced = self
            .store
            .update(key, |entry| if entry.queue.len() < most { None } else { entry.queue.pop_front() });
        if let Some(packet) = displaced.flatten() {
            self.queued_bytes -= packet.as_ref().len();
            self.unreachable(key, packet, Unreachable::Displaced);
        }
        let length = packet.as_ref().len();
        if self.queued_bytes + length > self.config.queue_bytes_max {
            return self.unreachable(key, packet, Unreachable::QueueFull);
        }
        self.queued_bytes += length;
        self.store.update(key, |entry| entry.queue.push_back(packet));
    }

    /// Forwards the packets that wait for a neighbor.
    pub(super) fn release(&mut self, key: Key, mac: MacAddr) {
        let queue = self.store.update(key, |entry| std::mem::take(&mut entry.queue));
        for packet in queue.unwrap_or_default() {
            self.queued_bytes -= packet.as_ref().len();
            self.forward(key, mac, packet);
        }
    }

    fn refuse_all(&mut self, key: Key, queue: VecDeque<P>, why: Unreachable) {
        for packet in queue {
            self.queued_bytes -= packet.as_ref().len();
            self.unreachable(key, packet, why);
        }
    }

    fn forward(&mut self, (port, address): Key, mac: MacAddr, packet: P) {
        self.counters.packets_forwarded += 1;
        self.outputs.push_back(Output::Forward { port, address, mac, packet });
    }

    fn unreachable(&mut self, (port, address): Key, packet: P, why: Unreachable) {
        self.counters.packets_unreachable[why.index()] += 1;
        self.outputs.push_back(Output::Unreachable { port, address, packet, why });
    }

    pub(super) fn send(&mut self, port: u16, frame: Vec<u8>) {
        self.outputs.push_back(Output::Send { port, frame });
    }

    // --- what the router says unasked ------------------------------------------------------------

    fn announce_if_due(&mut self, number: u16, now_ns: u64) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.announce_ns > now_ns {
            return;
        }
        port.announcements_left = port.announcements_left.saturating_sub(1);
        let again_ns = now_ns.saturating_add(ANNOUNCE_INTERVAL_NS);
        port.announce_ns = if port.announcements_left > 0 { again_ns } else { u64::MAX };
        let identity = port.identity.clone();
        for address in identity.announced() {
            self.announce(number, &identity, address);
        }
    }

    /// Announces one of our addresses to all (RFC 5227 2.3, RFC 4861 7.2.6).
    pub(super) fn announce(&mut self, number: u16, identity: &PortIdentity, address: IpAddr) {
        let frame = match address {
            IpAddr::V4(address) => arp::announcement(identity.mac_of(address.into()), address, identity.vlan),
            IpAddr::V6(address) => {
                let group = ndp::ALL_NODES;
                nd::advertisement_frame(identity, address, group, ndp::group_mac(group), false)
            }
        };
        self.counters.announcements_sent += 1;
        self.send(number, frame);
    }

    fn advertise_if_due(&mut self, number: u16, now_ns: u64) {
        let lifetime_s = self.config.router_lifetime_s;
        // RFC 4861 6.2.1: from a third of the longest interval to the whole of it.
        let longest_ns = self.config.router_advertisement_ns.max(4_000_000_000);
        let spread = u64::from(self.chance.below(1 << 16)) * ((longest_ns / 3 * 2) >> 16);
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.advertise_ns > now_ns {
            return;
        }
        port.advertisements_sent = port.advertisements_sent.saturating_add(1);
        let pause_ns = longest_ns / 3 + spread;
        let early = port.advertisements_sent < INITIAL_ADVERTISEMENTS;
        let pause_ns = if early { pause_ns.min(INITIAL_ADVERTISEMENT_NS) } else { pause_ns };
        port.advertise_ns = now_ns.saturating_add(pause_ns);
        port.advertised_ns = Some(now_ns);
        let Some(source) = port.identity.link_local() else {
            port.advertise_ns = u64::MAX;
            return;
        };
        let frame = nd::router_advertisement_frame(&port.identity, source, lifetime_s);
        self.counters.router_advertisements_sent += 1;
        self.send(number, frame);
    }

    /// Checks bounds and counters; panics if they are wrong. For tests and fuzzing.
    pub fn assert_consistent(&self) {
        self.store.assert_consistent();
        let (packets, bytes) = self.waiting();
        let queued = self.store.iter().flat_map(|(_, entry)| &entry.queue);
        assert_eq!(bytes, queued.map(|packet| packet.as_ref().len()).sum::<usize>());
        assert!(bytes <= self.config.queue_bytes_max);
        let unreachable: u64 = self.counters.packets_unreachable.iter().sum();
        let gone = self.counters.packets_forwarded + unreachable;
        assert_eq!(self.counters.packets_in, gone + packets as u64, "a packet is lost or doubled");
        let total = self.store.total();
        assert!(total.resolved <= self.config.entries_max + self.config.wanted_max);
        assert!(total.unresolved <= self.config.unresolved_max + self.config.wanted_max);
        for ((port, _), entry) in self.store.iter() {
            assert!(self.ports.contains_key(&port), "a neighbor on a port that is down");
            assert!(entry.queue.len() <= self.config.queue_packets_max.max(1));
        }
    }
}

/// A solicitation for an address; `None` if the port has no source address for it.
fn question(identity: &PortIdentity, target: IpAddr, to: Option<MacAddr>) -> Option<Vec<u8>> {
    match (identity.source_for(target)?, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            Some(arp::request(identity.mac_of(source.into()), source, target, to, identity.vlan))
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            Some(nd::solicitation_frame(identity, source, target, to))
        }
        _ => None,
    }
}

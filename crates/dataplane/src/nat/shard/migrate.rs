//! Shards that succeed others when the configuration changes.
//!
//! Settings of behavior (lifetimes, filters) change in place. Settings of placement (addresses, ports, shards, the
//! size of the table) are fixed when a table is made; if they change, another table takes over every session that
//! fits it: its public address and port still exist, belong to the same shard as its inside endpoint, and are free.
//! The others end and are counted.

use super::super::config::{Filtering, NatConfig};
use super::super::endpoint::End;
use super::super::hosts::Hosts;
use super::super::nat64::is_number;
use super::super::pools::{Pool, Pools};
use super::super::session::{Life, Session, SessionState};
use super::{NatCounters, NatShard};
use crate::records::WHEEL_S;
use crate::reverse_path::SourceCheck;
use std::sync::Arc;

/// A filter that admits all, for a session whose destinations are not known.
const ADMITS_ALL: [u64; 4] = [u64::MAX; 4];

/// What a session remembers of its destinations when the filtering changes. It refuses nobody whom it admitted: the
/// addresses of remembered endpoints are not known, and a remembered address admits all its ports.
fn refiltered(remotes: [u64; 4], before: Filtering, now: Filtering) -> [u64; 4] {
    use Filtering::*;
    match (before, now) {
        (AddressDependent, AddressAndPortDependent) => remotes,
        (before, now) if before == now => remotes,
        (_, EndpointIndependent) => Session::EMPTY.remotes,
        (_, AddressDependent | AddressAndPortDependent) => ADMITS_ALL,
    }
}

impl NatShard {
    /// Changes the behavior of sessions. Remaining lifetimes are cut to the new ones, as if the last packet had
    /// just arrived. A session created without a filter stays without one.
    pub(crate) fn set_behavior(&mut self, config: &NatConfig) {
        let timeouts_s = SessionState::timeouts(&config.timeouts);
        let (before, filtering) = (self.filtering, config.filtering);
        self.filtering = filtering;
        self.refreshed_from_outside = SessionState::refreshed_from_outside(config.inbound_refresh);
        if filtering != before {
            let (used, _) = self.sessions.split_at_mut(self.fresh as usize);
            let live = used.iter_mut().filter(|session| session.is_live());
            live.for_each(|session| session.remotes = refiltered(session.remotes, before, filtering));
        }
        self.drops_half_open = config.hosts.drops_half_open;
        // The counts of a pool stay with its name.
        let pools = Pools::new(config);
        let before = |pool: &Pool| self.pools.all().iter().position(|old| old.name == pool.name);
        let refused = pools.all().iter().map(|pool| before(pool).map_or(0, |old| self.refused[old]));
        self.refused = refused.collect();
        self.pools = pools;
        self.bare_s = config.timeouts.bare_s;
        self.count_hosts_anew(config);
        self.is_pressed &= self.drops_half_open;
        if timeouts_s != self.timeouts_s {
            let t = &config.timeouts;
            self.half_open_s = t.tcp_transitory_s;
            let shortest = [t.tcp_established_s.min(t.tcp_transitory_s), t.udp_s, t.icmp_s];
            self.horizons_s = shortest.map(|s| (s + 1).min(WHEEL_S - 1));
            self.timeouts_s = timeouts_s;
            self.refile();
            self.set_half_open_lifetime();
        }
        self.feel_pressure();
    }

    /// Sets which sources may create sessions.
    pub(crate) fn set_sources(&mut self, sources: Option<Arc<SourceCheck>>) {
        self.sources = sources;
    }

    /// Counts the sessions of inside addresses again, for new limits.
    fn count_hosts_anew(&mut self, config: &NatConfig) {
        let mut hosts = Hosts::new(&self.layout, self.shard, config);
        self.sessions().for_each(|session| hosts.has_another(&self.layout, session.inside()));
        self.hosts = hosts;
    }

    /// Files every session again.
    fn refile(&mut self) {
        self.wheel.clear();
        for at in 0..self.fresh as usize {
            let session = &mut self.sessions[at];
            if session.is_live() && session.state != SessionState::Forward {
                let longest_s = self.now_s.saturating_add(self.timeouts_s[session.state as usize]);
                session.expires_s = session.expires_s.min(longest_s);
                self.file(at);
            }
        }
    }

    /// The live sessions, except port forwards.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &Session> {
        let used = &self.sessions[..self.fresh as usize];
        used.iter().filter(|session| session.is_live() && session.state != SessionState::Forward)
    }

    /// The second of its last packet.
    pub(crate) fn now_s(&self) -> u32 {
        self.now_s
    }

    /// Takes over a predecessor's counters; the predecessor sees no more packets. Its sessions are
    /// [adopted](Self::adopt) one by one.
    pub(crate) fn succeed(&mut self, old: &NatShard) {
        let counters = NatCounters { sessions_active: 0, ..old.counters };
        self.counters.add(&counters);
        for (pool, refused) in old.pools.all().iter().zip(&old.refused) {
            if let Some(at) = self.pools.all().iter().position(|own| own.name == pool.name) {
                self.refused[at] += refused;
            }
        }
        for (mine, theirs) in self.translated.iter_mut().zip(old.translated) {
            *mine += theirs;
        }
        self.succeed_log(old);
    }

    /// Takes over a session of a shard with the same hash seed, if it fits here. A session that does not fit ends at
    /// `now_ns` and is logged.
    pub(crate) fn adopt(&mut self, session: &Session, before: &NatShard, now_ns: u64) -> bool {
        let host = before.host_of(session.addresses[0]);
        let mut session = *session;
        if let Some(host) = host {
            let Some(number) = self.hosts6.take(self.layout.home_of(host), host) else {
                // Its host has no number here, so nothing can be logged about it.
                self.counters.sessions_displaced += 1;
                return false;
            };
            session.addresses[0] = number;
        }
        let placed =
            if before.layout.vrf == self.layout.vrf { self.place(&session, before.filtering) } else { None };
        let placed = placed.filter(|placed| self.place_in_block(placed, now_ns));
        if let Some(placed) = placed {
            self.take_in(placed);
        } else {
            self.counters.sessions_displaced += 1;
            self.log_displaced(&session, now_ns);
        }
        if host.is_some() {
            self.hosts6.release(session.addresses[0]);
        }
        placed.is_some()
    }

    /// Gives the subscriber of a placed session the block of its port. Without, gives the port back.
    pub(super) fn place_in_block(&mut self, placed: &Session, now_ns: u64) -> bool {
        let Some(subscribers) = &mut self.subscribers else { return true };
        let (inside, port) = (placed.inside(), placed.ports[1]);
        let (protocol, address) = (placed.protocol(), usize::from(placed.public_index));
        match subscribers.adopt(&self.layout, protocol, inside, (address, port)) {
            Ok(given_out) => {
                if let Some(ports) = given_out {
                    self.log_adopted(inside, address, ports, now_ns);
                }
                true
            }
            Err(_) => {
                let bitmap = self.layout.bitmap(protocol, address, port & 1);
                self.ports.release(bitmap, self.layout.bitmap_place(port));
                false
            }
        }
    }

    /// Puts a session that has its [place](Self::place) into the table.
    pub(super) fn take_in(&mut self, placed: Session) {
        let at = self.insert(placed);
        self.file(at);
        self.hosts.has_another(&self.layout, placed.inside());
        self.counters.sessions_active += 1;
    }

    /// The session as it would be here, with its public port taken; `before` is the filtering where it was.
    pub(super) fn place(&mut self, session: &Session, before: Filtering) -> Option<Session> {
        let [inside, public] = session.addresses;
        let [inside_port, public_port] = session.ports;
        let belongs_here = self.layout.port_shard(public_port) == self.shard
            && self.layout.session_shard(session.protocol(), self.home_of(session.inside()), inside_port)
                == self.shard
            && (!is_number(inside) || self.layout.nat64.is_some());
        if !belongs_here || self.counters.sessions_active >= u64::from(self.sessions_max) {
            return None;
        }
        let key = session.key(End::Source);
        if self.find(End::Source, key, self.layout.hash(key)).is_some() {
            // A port forward has the endpoint now.
            return None;
        }
        let index = self.layout.public_index(public)?;
        let bitmap = self.layout.bitmap(session.protocol(), index as usize, public_port & 1);
        if !self.ports.take(bitmap, self.layout.bitmap_place(public_port)) {
            return None;
        }
        let longest_s = self.now_s.saturating_add(self.timeouts_s[session.state as usize]);
        Some(Session {
            public_index: index as u8,
            expires_s: session.expires_s.min(longest_s),
            remotes: refiltered(session.remotes, before, self.filtering),
            life: if session.life == Life::Alone { Life::Alone } else { Life::Several },
            ..*session
        })
    }
}

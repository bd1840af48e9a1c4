//! Sessions copied to a standby router, and taken over from an active one. An IPv6 host's number means something in this
//! router alone, so the copy has its address. Nothing of a copy is logged: the router that made the session has logged it.

use super::super::config::{Filtering, NatProtocol};
use super::super::endpoint::End;
use super::super::nat64::{Hosts6, is_number};
use super::super::session::{Kind, Life, Session, SessionState};
use super::NatShard;
use crate::records::slice;
use crate::standby::{Changes, Copied, Here};
use std::net::IpAddr;
use thalweg_wire::standby::{Change, Entry, SessionEntry};

impl NatShard {
    /// Notes a session that is new or in another state.
    pub(super) fn note(&mut self, at: usize) {
        let (session, filtering, hosts) = (&self.sessions[at], self.filtering, &self.hosts6);
        self.changes.note(|| Change { is_end: false, entry: session.copy(hosts, filtering) });
    }

    /// Notes the end of a session.
    pub(super) fn note_end(&mut self, session: &Session) {
        let (filtering, hosts) = (self.filtering, &self.hosts6);
        self.changes.note(|| Change { is_end: true, entry: session.copy(hosts, filtering) });
    }

    /// Takes over a copy; whether there is room.
    fn take_over(&mut self, copy: Session) -> bool {
        for end in [End::Source, End::Destination] {
            let key = copy.key(end);
            let Some(at) = self.find(end, key, self.layout.hash(key)) else { continue };
            let known = &mut self.sessions[at];
            if known.state == SessionState::Forward {
                return false;
            }
            if (known.vrf(), known.ends()) == (copy.vrf(), copy.ends()) {
                known.state = copy.state;
                known.life = if known.life == Life::Shared { Life::Shared } else { copy.life };
                known.expires_s =
                    self.now_s.saturating_add(self.timeouts_s[usize::from(copy.state.number())]);
                self.refile_one(at);
                return true;
            }
            // The active router is right about who has an endpoint.
            self.end_now(at);
        }
        let open = Filtering::EndpointIndependent;
        let placed = self.place(&copy, open).filter(|placed| self.place_in_block(placed, 0));
        placed.map(|placed| self.take_in(placed)).is_some()
    }

    /// Does something that is not logged.
    fn unlogged<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let log = self.log.take();
        let done = act(self);
        self.log = log;
        done
    }
}

impl Copied for NatShard {
    fn pass_time(&mut self, now_s: u32) {
        self.advance_to(now_s);
    }

    fn live(&self) -> u64 {
        self.counters.sessions_active
    }

    fn walk_records(
        &mut self,
        from: usize,
        count: usize,
        renews: bool,
        _here: Here,
        show: &mut dyn FnMut(Entry),
    ) -> Option<usize> {
        let (records, rest) = slice(from, count, self.fresh);
        for session in &mut self.sessions[records] {
            if !session.is_live() || session.state == SessionState::Forward {
                continue;
            }
            if renews {
                session.expires_s =
                    self.now_s.saturating_add(self.timeouts_s[usize::from(session.state.number())]);
            }
            show(session.copy(&self.hosts6, self.filtering));
        }
        rest
    }

    fn put(&mut self, entry: &Entry, _here: Here) -> bool {
        let Entry::Session(copy) = entry else { return false };
        let inside = match copy.inside.0 {
            IpAddr::V4(inside) => Some(inside.into()).filter(|inside| !is_number(*inside)),
            IpAddr::V6(host) => self.hosts6.take(self.layout.home_of(host.into()), host.into()),
        };
        let Some(inside) = inside.filter(|_| self.layout.has_vrf(copy.vrf)) else { return false };
        let copy = Session::copied(copy, inside, self.filtering);
        let taken = copy.map(|copy| self.unlogged(|shard| shard.take_over(copy)));
        self.hosts6.release(inside);
        self.feel_pressure();
        taken.unwrap_or(false)
    }

    fn end_copy(&mut self, entry: &Entry) {
        let Entry::Session(copy) = entry else { return };
        let inside = match copy.inside.0 {
            IpAddr::V4(inside) => Some(inside.into()),
            IpAddr::V6(host) => self.hosts6.number_of(host.into()),
        };
        let inside = inside.filter(|_| self.layout.has_vrf(copy.vrf));
        let copy = inside.and_then(|inside| Session::copied(copy, inside, self.filtering));
        let Some(copy) = copy else { return };
        let key = copy.key(End::Source);
        let Some(at) = self.find(End::Source, key, self.layout.hash(key)) else { return };
        let known = &self.sessions[at];
        if known.state != SessionState::Forward && known.ends() == copy.ends() {
            self.unlogged(|shard| shard.end_now(at));
            self.feel_pressure();
        }
    }

    fn noted(&mut self) -> &mut Changes {
        &mut self.changes
    }
}

impl Session {
    /// What another router gets of it. A filter of destinations means nothing there.
    fn copy(&self, hosts: &Hosts6, filtering: Filtering) -> Entry {
        let [inside, public] = self.ends();
        let remote = self.remote().filter(|_| !filtering.asks_for_sender());
        Entry::Session(SessionEntry {
            protocol: self.protocol().number(),
            state: self.state.number(),
            is_several: self.life != Life::Alone,
            vrf: self.vrf(),
            inside: (hosts.ip_of(inside.0), inside.1),
            public,
            remote: remote.map_or((0, 0), |remote| (remote.ip().to_bits(), remote.port())),
        })
    }

    /// A session from a copy, without its place in a table; `None` if it makes no sense. `inside` is its inside address
    /// here.
    fn copied(copy: &SessionEntry, inside: u32, filtering: Filtering) -> Option<Self> {
        let (protocol, state) =
            (NatProtocol::from_ip(copy.protocol)?, SessionState::from_number(copy.state)?);
        let mut session = Self {
            // Its life is cut to that of its state.
            expires_s: u32::MAX,
            addresses: [inside, copy.public.0],
            ports: [copy.inside.1, copy.public.1],
            kind: Kind::new(protocol, copy.vrf),
            state,
            life: if copy.is_several { Life::Several } else { Life::Alone },
            ..Self::EMPTY
        };
        if copy.remote != (0, 0) {
            session.set_remote(filtering, copy.remote.0, copy.remote.1);
        }
        state.is_of(protocol).then_some(session)
    }
}

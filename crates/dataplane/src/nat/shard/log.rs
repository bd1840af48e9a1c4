//! Logs events of a shard's sessions, blocks and limits, if enabled.

use super::super::config::{Filtering, NatProtocol};
use super::super::endpoint::Inside;
use super::super::events::{EventLog, Happening, Limit, NatEvent, NatLogging};
use super::super::session::{Session, SessionState};
use super::super::subscribers::Refusal;
use super::NatShard;
use crate::records::{number, place};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

impl NatShard {
    /// Sets the events to log. Pending events stay if the setting is unchanged.
    pub(crate) fn set_logging(&mut self, logging: Option<NatLogging>) {
        if self.log.as_ref().map(|log| log.logging) != logging {
            self.log = logging.map(|logging| Box::new(EventLog::new(logging, self.sessions_max)));
        }
    }

    /// Passes pending events to `take`. Returns how many were lost since the last call.
    #[inline]
    pub(crate) fn hand_out_events(&mut self, take: &mut dyn FnMut(NatEvent)) -> u64 {
        self.log.as_mut().map_or(0, |log| log.hand_out(take))
    }

    /// Numbers of logged and of lost events.
    pub(super) fn event_counts(&self) -> (u64, u64) {
        self.log.as_ref().map_or((0, 0), |log| log.counts())
    }

    /// Sets the time of events that a packet which makes a session causes: its arrival.
    pub(super) fn note_time(&mut self, arrival_ns: u64, state: SessionState) {
        let ends_s = self.now_s.saturating_add(self.timeouts_s[state as usize]).saturating_add(1);
        if let Some(log) = &mut self.log {
            log.set_time(arrival_ns, self.now_s, ends_s);
        }
    }

    /// Logs a new session.
    pub(super) fn log_created(&mut self, at: usize) {
        let inside = self.address_of(self.sessions[at].addresses[0]);
        let Some(log) = self.log.as_deref_mut().filter(|log| log.logging != NatLogging::Blocks) else {
            return;
        };
        log.log(session_event(&self.sessions[at], inside, true, log.logging, self.filtering));
    }

    /// Logs the end of a session; it lived until the end of the second before `ended_s`.
    pub(super) fn log_ended(&mut self, session: &Session, ended_s: u32) {
        let inside = self.address_of(session.addresses[0]);
        let Some(log) = self.log.as_deref_mut().filter(|log| log.logging != NatLogging::Blocks) else {
            return;
        };
        log.log_at_second(ended_s, session_event(session, inside, false, log.logging, self.filtering));
    }

    /// A time that can be logged as the end of everything: nothing began later.
    pub(crate) fn end_ns(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.not_before(self.now_s))
    }

    /// Logs a block assigned to a subscriber.
    pub(super) fn log_allocated(&mut self, subscriber: Inside, address: usize, ports: (u16, u16)) {
        let happening = self.block_event(true, subscriber, address, ports);
        if let Some(log) = self.log.as_mut().filter(|log| log.logging == NatLogging::Blocks) {
            log.log(happening);
        }
    }

    /// Logs a block that a subscriber has from a former table.
    pub(super) fn log_adopted(&mut self, subscriber: Inside, address: usize, ports: (u16, u16), now_ns: u64) {
        let happening = self.block_event(true, subscriber, address, ports);
        if let Some(log) = self.log.as_mut().filter(|log| log.logging == NatLogging::Blocks) {
            log.log_at(now_ns, happening);
        }
    }

    /// Logs a block that a subscriber released.
    pub(super) fn log_given_back(
        &mut self,
        subscriber: Inside,
        address: usize,
        ports: (u16, u16),
        ended_s: u32,
    ) {
        let happening = self.block_event(false, subscriber, address, ports);
        if let Some(log) = self.log.as_mut().filter(|log| log.logging == NatLogging::Blocks) {
            log.log_at_second(ended_s, happening);
        }
    }

    fn block_event(
        &self,
        allocated: bool,
        subscriber: Inside,
        address: usize,
        ports: (u16, u16),
    ) -> Happening {
        let public = self.layout.addresses[address].into();
        let pool = number(self.pools.of_address(address));
        let vrf = subscriber.vrf.into();
        let subscriber = self.address_of(subscriber.address);
        Happening::Block { allocated, vrf, subscriber, public, ports, pool }
    }

    /// Logs that the shard has reached its limit of sessions.
    pub(super) fn log_table_full(&mut self) {
        let now_s = self.now_s;
        let limit = self.sessions_max.saturating_mul(self.layout.shards());
        if let Some(log) = &mut self.log
            && log.is_news(Limit::Sessions, now_s)
        {
            log.log(Happening::TableFull { limit });
        }
    }

    /// Logs that an inside address has reached its limit of sessions.
    pub(super) fn log_host_limit(&mut self, inside: Inside) {
        let (now_s, subscriber) = (self.now_s, self.address_of(inside.address));
        let limit = self.hosts.limit(self.pool_of(inside));
        if let Some(log) = &mut self.log
            && log.is_news(Limit::Host, now_s)
        {
            log.log(Happening::SubscriberLimit { vrf: inside.vrf.into(), subscriber, limit });
        }
    }

    /// Logs that no port is left for an inside address.
    pub(super) fn log_ports_exhausted(&mut self, protocol: NatProtocol, inside: Inside) {
        let now_s = self.now_s;
        let paired = self.layout.paired_address(inside.address, &self.publics_of(inside));
        // Without a public address, none is exhausted.
        let Some(public) = self.layout.addresses.get(paired).copied() else { return };
        if let Some(log) = &mut self.log
            && log.is_news(Limit::Ports(protocol), now_s)
        {
            log.log(Happening::PortsExhausted { public: public.into(), protocol });
        }
    }

    /// Logs that a subscriber got no port.
    pub(super) fn log_refused(&mut self, refusal: Refusal, protocol: NatProtocol, inside: Inside) {
        let (now_s, subscriber) = (self.now_s, self.address_of(inside.address));
        let pool = self.pool_of(inside);
        let Some(log) = self.log.as_mut() else { return };
        match refusal {
            Refusal::Limit(limit) => {
                let subscribers = self.subscribers.as_mut();
                if subscribers.is_some_and(|subscribers| subscribers.is_news(inside, now_s)) {
                    log.log(Happening::SubscriberLimit { vrf: inside.vrf.into(), subscriber, limit });
                }
            }
            Refusal::NoBlock if log.is_news(Limit::Blocks, now_s) => {
                log.log(Happening::BlocksExhausted { pool: number(pool) });
            }
            Refusal::BlockIsFull => self.log_ports_exhausted(protocol, inside),
            Refusal::NoBlock | Refusal::NoSubscriber => {}
        }
    }

    /// Logs a session that lost its place at this time.
    pub(super) fn log_displaced(&mut self, session: &Session, ended_ns: u64) {
        let inside = self.address_of(session.addresses[0]);
        let Some(log) = self.log.as_deref_mut().filter(|log| log.logging != NatLogging::Blocks) else {
            return;
        };
        log.log_at(ended_ns, session_event(session, inside, false, log.logging, self.filtering));
    }

    /// Logs the end of all sessions, except port forwards, and blocks.
    pub(crate) fn log_end_of_all(&mut self) {
        let Some(logging) = self.log.as_ref().map(|log| log.logging) else { return };
        if logging == NatLogging::Blocks {
            return self.log_end_of_blocks(self.end_ns());
        }
        let end_ns = self.end_ns();
        for at in 0..self.fresh as usize {
            let session = self.sessions[at];
            if session.is_live() && session.state != SessionState::Forward {
                self.log_displaced(&session, end_ns);
            }
        }
    }

    /// Logs the release of all blocks at this time, if blocks are logged.
    pub(crate) fn log_end_of_blocks(&mut self, ended_ns: u64) {
        let Some(subscribers) = &self.subscribers else { return };
        let mut log = self.log.take();
        let known = |inside| self.address_of(inside);
        subscribers.visit_given_out(&self.layout, &known, &mut |block| {
            let Some(log) = log.as_mut().filter(|log| log.logging == NatLogging::Blocks) else { return };
            let (vrf, subscriber, public) = (block.vrf, block.inside, block.public);
            let ports = (*block.ports.start(), *block.ports.end());
            let address = self.layout.public_index(public.into()).unwrap_or_default();
            let pool = number(self.pools.of_address(place(address)));
            let happening = Happening::Block { allocated: false, vrf, subscriber, public, ports, pool };
            log.log_at(ended_ns, happening);
        });
        self.log = log;
    }

    /// Takes over the pending events of the shard's predecessor.
    pub(super) fn succeed_log(&mut self, old: &NatShard) {
        if let (Some(log), Some(old)) = (&mut self.log, &old.log) {
            log.succeed(old);
        }
    }
}

fn session_event(
    session: &Session,
    inside: IpAddr,
    created: bool,
    logging: NatLogging,
    filtering: Filtering,
) -> Happening {
    let inside = SocketAddr::new(inside, session.ports[0]);
    let public = SocketAddrV4::new(session.addresses[1].into(), session.ports[1]);
    // A filter is in place of the first remote.
    let is_kept = logging == NatLogging::Sessions && !filtering.asks_for_sender();
    let remote = session.remote().filter(|_| is_kept);
    let vrf = session.vrf().into();
    Happening::Session { created, protocol: session.protocol(), vrf, inside, public, remote }
}

//! The session with one neighbor: RFC 4271 section 8 without sockets, threads or clocks.
//!
//! ```text
//!              handle_start                 connection                OPEN              KEEPALIVE
//!   stopped ───────────────> Connect/Active ──────────> OpenSent ───────────> OpenConfirm ──────> Established
//!      ^                       ^      ^                    │                      │                    │
//!      │ handle_stop           │ time │ connection lost    │ error, NOTIFICATION  │                    │
//!      └── from anywhere     resting <┴────────────────────┴──────────────────────┴────────────────────┘
//! ```
//!
//! A session has a slot for the connection that it opens and one for the connection that the neighbor opens, and
//! resolves a collision by BGP identifier (6.8, RFC 6286). `Idle` is both stopped and resting. Only a protocol
//! error makes a session rest (IdleHoldTimer, DampPeerOscillations): a NOTIFICATION other than Cease and Hold Timer
//! Expired, sent or received. The rest doubles with each such error in a row, up to a limit. After any other end (a
//! broken connection, silence, Cease) the neighbor may reconnect at once, and only our own attempts become less
//! frequent. A session that was up for [`STABLE_MS`] resets both counts. Of the optional attributes,
//! PassiveTcpEstablishment, AllowAutomaticStart and DampPeerOscillations are implemented. DelayOpen is not: its
//! purpose, fewer collisions, does not need a timer here.
//!
//! # Driving it
//!
//! Inputs are the `handle_*` and `note_*` calls, each with the time. After each of them the driver
//!
//! 1. applies the routes that [`Session::handle_bytes`] returned,
//! 2. performs what [`Session::poll_action`] returns, until it returns `None`,
//! 3. writes what [`Session::poll_output`] gives,
//! 4. calls [`Session::handle_timer`] at [`Session::next_deadline`].
//!
//! The order of 1 and 2 is right because `handle_bytes` returns after each message whose effect is ordered among
//! the routes (End-of-RIB, marks of a refresh, up, down). The caller calls it again for the rest of the bytes, until a
//! call neither consumes anything nor leaves an action: a session may come up before the message that shows it is
//! consumed.
//!
//! # Invariants
//!
//! - Output consists of whole messages only, and nothing follows a NOTIFICATION on a connection.
//! - [`Action::Established`] and [`Action::Down`] alternate.
//! - A message that ends the session leaves no route behind; one with errors that RFC 7606 limits to its routes
//!   withdraws exactly these.
//! - Stale routes end: each family that is stale has a deadline.
//!
//! RFCs: 4271, 2918, 4486, 4724, 5492, 6286, 6608, 6793, 7313, 7606, 8538, 8654, 9003, 9072, 9234, 9687. MD5 and
//! TTL security are the socket's; missing are BFD (9384), long-lived graceful restart (9494) and TCP-AO.

pub mod config;
pub mod counters;
pub mod import;

mod action;
mod assume;
mod connection;
mod lifecycle;
mod messages;
mod negotiate;
mod remarks;
mod stale;
mod timers;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::Throttle;
use thalweg_wire::bgp::{Family, MessageKind, RefreshKind, RouteRefresh};

use crate::peer::{Millis, PeerId};
use connection::Slot;
use remarks::Remarks;
use stale::StaleRoutes;
use timers::Chance;

pub use action::{Action, Admission, Cause, DownReason, Event, Refusal, StaleEnd, State, StopReason};
pub use assume::{AssumedNeighbor, assume};
pub use config::NeighborConfig;
pub use counters::{MessageCounters, SessionCounters, Transitions};
pub use import::{Importer, Remark};
pub use negotiate::{Connection, Negotiated, NeighborRestart, OpenProblem};

/// [`Session::handle_bytes`] returns after this many routes, so that one neighbor does not hold a core: about a
/// millisecond's work.
pub const ROUTES_PER_CALL: usize = 4096;

/// A session that was up this long no longer counts as one of a series of failures.
pub const STABLE_MS: u64 = 60_000;

/// One neighbor's session.
#[derive(Debug)]
pub struct Session {
    config: Arc<NeighborConfig>,
    id: PeerId,
    run: Run,
    chance: Chance,
    slots: [Slot; 2],
    dialing: bool,
    /// ConnectRetryTimer: when an attempt times out, or the next one begins.
    connect_at: Option<Millis>,
    /// Failed connection attempts in a row.
    connect_failures: u32,
    /// Sessions and attempts in a row that ended with a protocol error.
    failures: u32,
    /// Sessions in a row that were lost without a protocol error.
    losses: u32,
    /// The neighbor rejected our capabilities with Unsupported Optional Parameter.
    without_capabilities: bool,
    /// The daemon has just restarted.
    restarting: bool,
    /// Forwarding by the neighbor's routes continues between its sessions.
    forwarding: bool,
    /// When it came up or went down the last time; of one that was never up, when it was first started.
    changed_at: Option<Millis>,
    stale: StaleRoutes,
    prefix_warned: [bool; 2],
    above_told: [bool; 2],
    /// For UPDATEs with errors, and for attempts to connect that failed.
    bad_updates: Throttle,
    failed_connects: Throttle,
    remarks: Remarks,
    actions: VecDeque<Action>,
    counters: SessionCounters,
}

/// Whether the session wants to be up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// Until [`Session::handle_start`].
    Stopped,
    /// Until this time.
    Resting(Millis),
    Seeking,
}

impl Session {
    /// Creates a stopped session. `seed` varies its timers, so that both ends, or a thousand sessions, do not act
    /// at the same time.
    pub fn new(config: Arc<NeighborConfig>, id: PeerId, seed: u64) -> Self {
        Self {
            config,
            id,
            run: Run::Stopped,
            chance: Chance::new(seed),
            slots: [Slot::default(), Slot::default()],
            dialing: false,
            connect_at: None,
            connect_failures: 0,
            failures: 0,
            losses: 0,
            without_capabilities: false,
            restarting: false,
            forwarding: false,
            changed_at: None,
            stale: StaleRoutes::default(),
            prefix_warned: [false; 2],
            above_told: [false; 2],
            bad_updates: Throttle::default(),
            failed_connects: Throttle::default(),
            remarks: Remarks::default(),
            actions: VecDeque::new(),
            counters: SessionCounters::default(),
        }
    }

    /// The neighbor's index.
    pub fn id(&self) -> PeerId {
        self.id
    }

    /// The configuration in force.
    pub fn config(&self) -> &Arc<NeighborConfig> {
        &self.config
    }

    /// Replaces the configuration. The content of OPEN changes only with the next session: the caller stops this
    /// one with [`StopReason::ConfigChanged`] if [`NeighborConfig::difference`](config::NeighborConfig::difference)
    /// asks for it.
    pub fn set_config(&mut self, config: Arc<NeighborConfig>) {
        self.config = config;
        self.prefix_warned = [false; 2];
    }

    /// Sets whether OPENs say that the daemon has restarted and kept forwarding (RFC 4724). True after a graceful
    /// restart, until the session is up and routes are selected.
    pub fn set_restarting(&mut self, restarting: bool) {
        self.restarting = restarting;
    }

    /// The state of the connection that is further.
    pub fn state(&self) -> State {
        let further = self.slots.iter().map(|slot| slot.state).max().unwrap_or_default();
        match self.run {
            Run::Seeking if further == State::Idle && self.dialing => State::Connect,
            Run::Seeking if further == State::Idle => State::Active,
            _ => further,
        }
    }

    /// Whether the session waits for [`Self::handle_start`].
    pub fn is_stopped(&self) -> bool {
        self.run == Run::Stopped
    }

    /// What both ends negotiated, while the session is up.
    pub fn negotiated(&self) -> Option<&Arc<Negotiated>> {
        self.established().and_then(|conn| self.slot(conn).agreed.as_ref())
    }

    /// The connection that carries the session, while it is up.
    pub fn established(&self) -> Option<Connection> {
        Connection::ALL.into_iter().find(|conn| self.slot(*conn).state == State::Established)
    }

    /// How long the session has been up.
    pub fn up_ms(&self, now: Millis) -> Option<u64> {
        self.established().and_then(|_| self.unchanged_ms(now))
    }

    /// How long the session has been down, or has not come up since it was first started.
    pub fn down_ms(&self, now: Millis) -> Option<u64> {
        self.unchanged_ms(now).filter(|_| self.established().is_none())
    }

    fn unchanged_ms(&self, now: Millis) -> Option<u64> {
        self.changed_at.map(|changed_at| now.since(changed_at))
    }

    /// The families with stale routes, by index.
    pub fn stale_families(&self) -> [bool; 2] {
        self.stale.families()
    }

    /// The totals so far.
    pub fn counters(&self) -> &SessionCounters {
        &self.counters
    }

    /// Whether [`Self::poll_action`] has something to return.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next action for the driver.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() {
            self.counters.transitions.note(self.state());
            if self.actions.capacity() > 0 {
                // Actions are few and far between, and the room for some is a good part of a session.
                self.actions = VecDeque::new();
            }
        }
        action
    }

    /// Appends the bytes to write on a connection: whole messages.
    pub fn poll_output(&mut self, conn: Connection, out: &mut Vec<u8>) {
        out.append(&mut self.slots[conn.index()].output);
    }

    /// Notes that the neighbor took bytes that we wrote, which restarts the send hold timer.
    pub fn handle_written(&mut self, conn: Connection, now: Millis) {
        let send_hold_ms = self.send_hold_ms(conn);
        let slot = &mut self.slots[conn.index()];
        if slot.send_hold_at.is_some() {
            slot.send_hold_at = Some(now.plus(send_hold_ms));
        }
    }

    /// Notes whether bytes wait that the socket does not take. Meanwhile the send hold timer runs (RFC 9687).
    pub fn note_pending_output(&mut self, conn: Connection, pending: bool, now: Millis) {
        let send_hold_ms = self.send_hold_ms(conn);
        let slot = &mut self.slots[conn.index()];
        slot.send_hold_at = match slot.send_hold_at {
            _ if !pending || !slot.is_open() => None,
            None => Some(now.plus(send_hold_ms)),
            running => running,
        };
    }

    /// Notes whether received bytes wait at the driver. Meanwhile the neighbor is not silent, only we are late, so
    /// the hold timer does not end the session.
    pub fn note_pending_input(&mut self, conn: Connection, pending: bool) {
        let slot = &mut self.slots[conn.index()];
        slot.input_waits = pending && slot.is_open();
    }

    /// Counts UPDATEs that the driver sent.
    pub fn note_updates_sent(&mut self, count: u64) {
        self.counters.sent.update += count;
    }

    /// Asks the neighbor to send all routes of the family again. `false` if that was not negotiated.
    pub fn refresh(&mut self, family: Family) -> bool {
        let agreed = |each: &&Arc<Negotiated>| each.route_refresh && each.family(family);
        let Some(conn) = self.established().filter(|_| self.negotiated().filter(agreed).is_some()) else {
            return false;
        };
        self.write_refresh(conn, family, RefreshKind::Request);
        self.event(Event::RefreshSent(family));
        true
    }

    /// Marks the beginning or end of the response to a refresh (RFC 7313), in the order of control messages.
    /// `false` if marks were not negotiated.
    pub fn mark_refresh(&mut self, family: Family, kind: RefreshKind) -> bool {
        let agreed = |each: &&Arc<Negotiated>| each.enhanced_refresh && each.family(family);
        let Some(conn) = self.established().filter(|_| self.negotiated().filter(agreed).is_some()) else {
            return false;
        };
        self.write_refresh(conn, family, kind);
        true
    }

    fn write_refresh(&mut self, conn: Connection, family: Family, kind: RefreshKind) {
        let message = RouteRefresh { family: family.into(), kind };
        self.slots[conn.index()].send_refresh(message, &mut self.counters);
    }

    /// Handles a new connection; returns what to do with it. After [`Admission::Replace`], the driver closes the
    /// old connection of this slot before it polls actions.
    pub fn handle_connected(
        &mut self,
        conn: Connection,
        local: IpAddr,
        remote: IpAddr,
        now: Millis,
    ) -> Admission {
        if conn == Connection::Outgoing {
            self.dialing = false;
        }
        let admission = self.admission(conn, local);
        match admission {
            Admission::Refuse(refusal) => {
                self.counters.refused += 1;
                self.event(Event::Refused(refusal));
                return admission;
            }
            Admission::Replace if self.slot(conn).state == State::Established => {
                self.session_down(conn, DownReason::Restarted, now);
            }
            Admission::Replace => {
                let state = self.slot(conn).state;
                self.slots[conn.index()].close();
                self.attempt_failed(conn, state, DownReason::ConnectionLost, now);
            }
            Admission::Accept => {}
        }
        let state = negotiate::OfferState {
            without_capabilities: self.without_capabilities,
            restarting: self.restarting,
            forwarding: self.forwarding || self.restarting,
        };
        let open = negotiate::offer(&self.config, state);
        let open_hold_ms = u64::from(self.config.timers.open_hold_s) * 1000;
        self.slots[conn.index()].open(local, remote, open, open_hold_ms, now);
        self.counters.sent.count(MessageKind::Open);
        if !self.dialing {
            self.connect_at = None;
            self.dial_beside_a_silent_one(now);
        }
        admission
    }

    fn admission(&self, conn: Connection, local: IpAddr) -> Admission {
        let wrong_address = |wanted: IpAddr| conn == Connection::Incoming && wanted != local;
        match self.run {
            Run::Stopped => return Admission::Refuse(Refusal::Stopped),
            Run::Resting(_) => return Admission::Refuse(Refusal::Resting),
            Run::Seeking if self.config.transport.local_address.is_some_and(wrong_address) => {
                return Admission::Refuse(Refusal::LocalAddress);
            }
            Run::Seeking => {}
        }
        // RFC 4724 4.2: a neighbor that connects again has restarted, even if its old connection seems to be up.
        let restarts = self.negotiated().is_some_and(|agreed| restarts_gracefully(agreed));
        match (self.established(), self.slot(conn).is_open()) {
            (Some(_), _) if !restarts || conn == Connection::Outgoing => {
                Admission::Refuse(Refusal::Established)
            }
            // The neighbor has only one connection of its own: a new one means that the old one is dead.
            (_, true) => Admission::Replace,
            (_, false) => Admission::Accept,
        }
    }

    /// Handles a failure to open our connection.
    pub fn handle_connect_failed(&mut self, reason: &str, now: Millis) {
        if !self.dialing {
            return;
        }
        self.dialing = false;
        let retry_ms = self.connect_later(now);
        self.connect_failed(reason.to_owned(), retry_ms.unwrap_or(0), now);
    }

    /// Handles the loss of a connection.
    pub fn handle_disconnected(&mut self, conn: Connection, now: Millis) {
        let state = self.slot(conn).state;
        match state {
            State::Idle | State::Connect | State::Active => {}
            State::Established => self.session_down(conn, DownReason::ConnectionLost, now),
            State::OpenSent | State::OpenConfirm => {
                self.slots[conn.index()].close();
                self.attempt_failed(conn, state, DownReason::ConnectionLost, now);
                if !self.any_open() && !self.dialing {
                    self.connect_later(now);
                }
            }
        }
    }

    /// Handles the loss of the link to the neighbor: its connections cannot survive (RFC 4271 8.2.1.4 event 18,
    /// TcpConnectionFails, before the hold timer expires). The caller closes them.
    pub fn handle_link_down(&mut self, what: &str, now: Millis) {
        for conn in Connection::ALL {
            match self.slot(conn).state {
                State::Established => self.session_down(conn, DownReason::LinkDown(what.into()), now),
                State::OpenSent | State::OpenConfirm => self.handle_disconnected(conn, now),
                State::Idle | State::Connect | State::Active => {}
            }
        }
    }

    /// Handles the return of the link: connects at once, whatever failed meanwhile. A rest after a protocol error
    /// continues.
    pub fn handle_link_up(&mut self, now: Millis) {
        if self.any_open() || self.run != Run::Seeking {
            return;
        }
        (self.connect_failures, self.losses) = (0, 0);
        self.abandon_connect();
        self.seek(now);
    }

    fn slot(&self, conn: Connection) -> &Slot {
        &self.slots[conn.index()]
    }

    fn any_open(&self) -> bool {
        self.slots.iter().any(Slot::is_open)
    }

    fn act(&mut self, action: Action) {
        if self.actions.capacity() == 0 {
            // Mostly one to perform and one to log.
            self.actions.reserve_exact(2);
        }
        self.actions.push_back(action);
    }

    fn event(&mut self, event: Event) {
        self.act(Action::Event(event));
    }
}

/// Whether to keep the neighbor's routes while it restarts.
fn restarts_gracefully(agreed: &Negotiated) -> bool {
    agreed.graceful_restart.is_some_and(|restart| restart.families.iter().any(Option::is_some))
}

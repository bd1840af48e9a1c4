//! How a session starts, comes up and ends.

use std::sync::Arc;

use thalweg_base::Throttle;
use thalweg_wire::bgp::{AfiSafi, Capabilities, Family, Notification, cease, error, open_error};

use super::action::{Action, Cause, DownReason, Event, StaleEnd, State, StopReason};
use super::config::{MaxPrefixesAction, NeighborConfig};
use super::negotiate::{Connection, Negotiated};
use super::{Run, STABLE_MS, Session, restarts_gracefully};
use crate::peer::Millis;

/// What follows a stop.
#[derive(Clone, Copy, Debug)]
enum After {
    /// Nothing, until the session is started.
    Nothing,
    /// The session connects again at once.
    Seek,
    /// The session rests as after a failure.
    Rest,
    /// The session rests for this many seconds.
    RestFor(u32),
}

/// What follows a session or attempt that was not stopped here.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A rest: one end violated the protocol, and would most likely do so again at once.
    Rest,
    /// The neighbor may reconnect at once.
    Seek,
}

impl Next {
    /// What follows a NOTIFICATION with this error code.
    fn after(code: u8) -> Self {
        match code {
            error::CEASE | error::HOLD_TIMER | error::SEND_HOLD_TIMER => Self::Seek,
            _ => Self::Rest,
        }
    }
}

impl Session {
    /// Starts the session, at once even if it rests. Has no effect if it has started.
    pub fn handle_start(&mut self, now: Millis) {
        if self.run == Run::Seeking {
            return;
        }
        (self.failures, self.losses) = (0, 0);
        self.connect_failures = 0;
        self.without_capabilities = false;
        self.changed_at.get_or_insert(now);
        self.event(Event::Started);
        self.seek(now);
    }

    /// Ends the session or the attempts at one. The reason decides what follows.
    pub fn handle_stop(&mut self, reason: StopReason, now: Millis) {
        if self.run == Run::Stopped {
            return;
        }
        let after = self.after(&reason);
        let notification = stop_notification(&reason);
        self.abandon_connect();
        let was_up = self.established().is_some();
        for conn in Connection::ALL {
            self.stop_connection(conn, &reason, &notification, now);
        }
        if !keeps_routes(&reason) {
            self.withdraw_stale(StaleEnd::Stopped);
        }
        if !was_up {
            self.event(Event::Stopped(reason));
        }
        self.without_capabilities = false;
        self.connect_at = None;
        match after {
            After::Nothing => self.run = Run::Stopped,
            After::Seek => self.seek(now),
            After::Rest => self.rest(now),
            After::RestFor(seconds) => self.run = Run::Resting(now.plus_s(u64::from(seconds))),
        }
    }

    fn after(&self, reason: &StopReason) -> After {
        match reason {
            StopReason::Shutdown { .. } | StopReason::Deconfigured | StopReason::Restarting => After::Nothing,
            StopReason::Reset { .. } | StopReason::ConfigChanged => After::Seek,
            StopReason::OutOfResources => After::Rest,
            StopReason::MaxPrefixes { family, .. } => match self.config.max_prefixes[family.index()] {
                Some(limit) => match limit.action {
                    MaxPrefixesAction::Restart { after_s } => After::RestFor(after_s),
                    MaxPrefixesAction::Stop | MaxPrefixesAction::Warn => After::Nothing,
                },
                None => After::Nothing,
            },
        }
    }

    fn stop_connection(
        &mut self,
        conn: Connection,
        reason: &StopReason,
        notification: &Notification,
        now: Millis,
    ) {
        let state = self.slot(conn).state;
        let agreed = self.slot(conn).agreed.clone().filter(|_| state == State::Established);
        let restart = agreed.as_ref().and_then(|agreed| agreed.graceful_restart);
        if !self.slot(conn).is_open() {
            return;
        }
        let cause = Cause::Stopped(reason.clone());
        if *reason == StopReason::Restarting && restart.is_some() {
            self.act(Action::Close(conn));
            return self.session_down(conn, DownReason::Dropped { cause }, now);
        }
        let hard = restart.is_some_and(|restart| restart.notification) && !keeps_routes(reason);
        let notification = match hard {
            true => notification.clone().into_hard_reset(),
            false => notification.clone(),
        };
        self.slots[conn.index()].send_notification(&notification, &mut self.counters);
        self.act(Action::Close(conn));
        if state == State::Established {
            self.session_down(conn, DownReason::Sent { notification, cause }, now);
        } else {
            self.slots[conn.index()].close();
        }
    }

    /// Notes how many prefixes of the family the RIB has from the neighbor, and enforces the limit.
    pub fn note_prefix_count(&mut self, family: Family, count: u32, now: Millis) {
        self.counters.prefixes[family.index()] = count;
        let Some(max) = self.config.max_prefixes[family.index()] else { return };
        let limit = max.limit;
        if count > limit && max.action != MaxPrefixesAction::Warn {
            if self.established().is_some() {
                self.counters.prefix_limit_exceeded += 1;
                self.handle_stop(StopReason::MaxPrefixes { family, limit }, now);
            }
            return;
        }
        let near = count >= max.warns_at();
        let warned = std::mem::replace(&mut self.prefix_warned[family.index()], near);
        let above_told = std::mem::replace(&mut self.above_told[family.index()], count > limit);
        if count > limit && !above_told {
            self.counters.prefix_limit_exceeded += 1;
            self.event(Event::PrefixesAboveLimit { family, count, limit });
        } else if near && !warned {
            self.event(Event::PrefixesNearLimit { family, count, limit });
        }
    }

    /// Ends a connection because of an error found here, and the session if that connection carries it.
    pub(super) fn fail(&mut self, conn: Connection, notification: Notification, cause: Cause, now: Millis) {
        let state = self.slot(conn).state;
        if state == State::Idle {
            return;
        }
        self.slots[conn.index()].send_notification(&notification, &mut self.counters);
        self.act(Action::Close(conn));
        let next = Next::after(notification.code);
        let reason = DownReason::Sent { notification, cause };
        if state == State::Established {
            self.session_down(conn, reason, now);
            return self.go_on(next, now);
        }
        self.slots[conn.index()].close();
        self.attempt_failed(conn, state, reason, now);
        self.try_again(next, now);
    }

    /// Handles a NOTIFICATION from the neighbor.
    pub(super) fn ended_by_neighbor(&mut self, conn: Connection, notification: Notification, now: Millis) {
        let state = self.slot(conn).state;
        self.act(Action::Close(conn));
        if state == State::Established {
            let next = Next::after(notification.code);
            self.session_down(conn, DownReason::Received(notification), now);
            return self.go_on(next, now);
        }
        let what = (notification.code, notification.subcode);
        let offered = self.slot(conn).offered.as_ref();
        let capable = offered.is_some_and(|open| open.capabilities != Capabilities::default());
        let stumbled = what == (error::OPEN, open_error::UNSUPPORTED_PARAMETER);
        self.slots[conn.index()].close();
        self.attempt_failed(conn, state, DownReason::Received(notification), now);
        // RFC 5492 3: retries a neighbor that does not support capabilities without them.
        self.without_capabilities = stumbled && capable;
        if self.without_capabilities {
            self.event(Event::WithoutCapabilities);
            if !self.any_open() && !self.dialing {
                self.connect(now);
            }
        } else {
            self.try_again(Next::after(what.0), now);
        }
    }

    /// Continues after a session, unless the other connection may still become one.
    fn go_on(&mut self, next: Next, now: Millis) {
        match next {
            _ if self.run != Run::Seeking => {}
            _ if self.any_open() => self.dial_beside_a_silent_one(now),
            Next::Rest => self.rest(now),
            Next::Seek => self.seek_after_loss(now),
        }
    }

    /// Continues after an attempt, unless the other connection may still become a session.
    fn try_again(&mut self, next: Next, now: Millis) {
        match next {
            Next::Rest if self.run == Run::Seeking && !self.any_open() => self.rest(now),
            Next::Seek if !self.any_open() && !self.dialing => drop(self.connect_later(now)),
            _ => {}
        }
    }

    /// Once the other connection is gone, a connection that waited for it continues or carries the session.
    pub(super) fn resume_remaining(&mut self, now: Millis) {
        for conn in Connection::ALL {
            let is_alone = !self.slot(conn.other()).is_open();
            if is_alone && self.slot(conn).answer_at.is_some() {
                self.answer(conn, now);
            }
            if is_alone && self.slot(conn).establish_at.is_some() {
                self.establish(conn, now);
            }
        }
    }

    /// Handles and reports the end of a connection that never carried a session.
    pub(super) fn attempt_failed(
        &mut self,
        connection: Connection,
        state: State,
        reason: DownReason,
        now: Millis,
    ) {
        match reason {
            DownReason::Sent { cause: Cause::Collision, .. } => {}
            // A neighbor that shuts down may still accept a connection and close it: keep the reason why the
            // session ended.
            DownReason::ConnectionLost => self.counters.last_connect_error = Some(reason.to_string()),
            _ => {
                self.counters.last_error = Some(reason.to_string());
                self.counters.last_error_at = Some(now);
            }
        }
        self.event(Event::AttemptFailed { connection, state, reason });
        self.resume_remaining(now);
        self.dial_beside_a_silent_one(now);
    }

    /// Brings the session up.
    pub(super) fn establish(&mut self, conn: Connection, now: Millis) {
        let Some(agreed) = self.slot(conn).agreed.clone() else { return };
        let slot = &mut self.slots[conn.index()];
        slot.state = State::Established;
        (slot.establish_at, slot.answer_at) = (None, None);
        let other = conn.other();
        if self.slot(other).is_open() {
            self.close_collided(other, now);
        }
        self.abandon_connect();
        self.connect_failures = 0;
        self.failed_connects = Throttle::default();
        self.changed_at = Some(now);
        self.counters.established += 1;
        self.prefix_warned = [false; 2];
        self.above_told = [false; 2];
        self.routes_came_back(&agreed, now);
        // From now on, our forwarding does not depend on the session.
        self.forwarding = true;
        self.act(Action::Established(agreed.clone()));
        self.event(Event::Up(agreed));
    }

    /// Of the routes kept over a restart, withdraws those that the neighbor no longer forwards by.
    fn routes_came_back(&mut self, agreed: &Negotiated, now: Millis) {
        let restart = agreed.graceful_restart;
        let forwarding =
            Family::ALL.map(|family| restart.and_then(|each| each.families[family.index()]).unwrap_or(false));
        let stale_s = self.config.capabilities.graceful_restart.map_or(0, |restart| restart.stale_path_s);
        for family in self.stale.came_back(forwarding, now.plus_s(u64::from(stale_s))) {
            self.act(Action::WithdrawStale(family));
            self.event(Event::StaleWithdrawn { family, why: StaleEnd::NotForwarding });
        }
    }

    /// Takes the session down. The caller decides what follows, unless the connection broke or was replaced.
    pub(super) fn session_down(&mut self, conn: Connection, reason: DownReason, now: Millis) {
        let agreed = self.slot(conn).agreed.clone();
        self.slots[conn.index()].close();
        let up_ms = self.unchanged_ms(now).unwrap_or(0);
        self.changed_at = Some(now);
        if up_ms >= STABLE_MS {
            (self.failures, self.losses) = (0, 0);
        }
        // A route that is stale already is not kept over another failure (RFC 4724 4.2).
        self.withdraw_stale(StaleEnd::FailedAgain);
        let retained = agreed.map_or([false; 2], |agreed| self.retained(&agreed, &reason, now));
        self.counters.flaps += 1;
        self.counters.prefixes = [0; 2];
        self.counters.last_error = Some(reason.to_string());
        self.counters.last_error_at = Some(now);
        self.act(Action::Down { reason: reason.clone(), retained });
        self.event(Event::Down { reason: reason.clone(), up_ms, retained });
        if matches!(reason, DownReason::ConnectionLost | DownReason::LinkDown(_)) {
            self.go_on(Next::Seek, now);
        }
    }

    /// Starts the restart timer and returns the families whose routes are kept.
    fn retained(&mut self, agreed: &Arc<Negotiated>, reason: &DownReason, now: Millis) -> [bool; 2] {
        let Some(restart) = agreed.graceful_restart.filter(|_| restarts_gracefully(agreed)) else {
            return [false; 2];
        };
        let graceful = match reason {
            DownReason::ConnectionLost | DownReason::LinkDown(_) | DownReason::Restarted => true,
            DownReason::Dropped { .. } => false,
            DownReason::Received(notification) => restart.notification && !notification.is_hard_reset(),
            DownReason::Sent { notification, cause } => {
                let wanted = !matches!(cause, Cause::Stopped(reason) if !keeps_routes(reason));
                restart.notification && !notification.is_hard_reset() && wanted
            }
        };
        if !graceful || restart.time_s == 0 {
            return [false; 2];
        }
        let retained = restart.families.map(|family| family.is_some());
        self.stale.await_return(retained, now.plus_s(u64::from(restart.time_s)));
        retained
    }
}

/// Whether the neighbor's routes may be kept over a stop for this reason.
fn keeps_routes(reason: &StopReason) -> bool {
    matches!(reason, StopReason::Reset { .. } | StopReason::ConfigChanged | StopReason::Restarting)
}

/// The NOTIFICATION for a stop.
fn stop_notification(reason: &StopReason) -> Notification {
    let text = |subcode, text: &str| match text.is_empty() {
        true => Notification::new(error::CEASE, subcode),
        false => Notification::with_text(subcode, text),
    };
    match reason {
        StopReason::Shutdown { text: words } => text(cease::ADMINISTRATIVE_SHUTDOWN, words),
        StopReason::Reset { text: words } => text(cease::ADMINISTRATIVE_RESET, words),
        StopReason::Restarting => text(cease::ADMINISTRATIVE_RESET, ""),
        StopReason::Deconfigured => text(cease::PEER_DECONFIGURED, ""),
        StopReason::ConfigChanged => text(cease::OTHER_CONFIGURATION_CHANGE, ""),
        StopReason::OutOfResources => text(cease::OUT_OF_RESOURCES, ""),
        StopReason::MaxPrefixes { family, limit } => {
            let AfiSafi { afi, safi } = AfiSafi::from(*family);
            let ([high, low], [a, b, c, d]) = (afi.to_be_bytes(), limit.to_be_bytes());
            let data = [high, low, safi, a, b, c, d];
            Notification::with_data(error::CEASE, cease::MAXIMUM_PREFIXES, &data)
        }
    }
}

/// The connection that survives a collision (RFC 4271 6.8, RFC 6286 2.3): that of the end with the higher
/// identifier, or with the higher AS if the identifiers are equal.
pub(super) fn surviving(config: &NeighborConfig, agreed: &Negotiated) -> Connection {
    let ours = (config.router_id, agreed.local_as);
    match ours > (agreed.remote_router_id, agreed.remote_as) {
        true => Connection::Outgoing,
        false => Connection::Incoming,
    }
}

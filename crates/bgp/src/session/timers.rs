//! The timers of a session and their durations.

use thalweg_base::mix64;
use thalweg_wire::bgp::{Notification, error};

use super::action::{Action, Cause, Event, StaleEnd, State};
use super::negotiate::Connection;
use super::remarks::REPEAT_MS;
use super::{Run, Session};
use crate::peer::Millis;

/// The time before the first attempt to connect is repeated; it doubles. Short, because a neighbor refuses connections
/// until it learns that our killed process's session is dead, which takes it a few tenths of a second.
const CONNECT_RETRY_FIRST_MS: u64 = 50;

/// How much longer the hold timer waits while received bytes wait for us.
const HOLD_EXTENSION_MS: u64 = 10_000;

/// The least default of the send hold time (RFC 9687).
const SEND_HOLD_MIN_MS: u64 = 8 * 60 * 1000;

/// A random number generator (splitmix64), good enough to keep timers apart.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Between three quarters and all of it (RFC 4271 10).
    pub(super) fn jitter(&mut self, milliseconds: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let quarter = milliseconds / 4;
        milliseconds - if quarter == 0 { 0 } else { mix64(self.0) % (quarter + 1) }
    }
}

impl Session {
    /// When [`Self::handle_timer`] must be called next.
    pub fn next_deadline(&self) -> Option<Millis> {
        let resting = match self.run {
            Run::Resting(until) => Some(until),
            Run::Stopped | Run::Seeking => None,
        };
        let slots = self.slots.iter().filter_map(|slot| slot.next_deadline());
        slots.chain(resting).chain(self.connect_at).chain(self.stale.next_deadline()).min()
    }

    /// Handles all timers that have expired.
    pub fn handle_timer(&mut self, now: Millis) {
        for conn in Connection::ALL {
            self.connection_timers(conn, now);
        }
        for (family, why) in self.stale.expire(now) {
            self.act(Action::WithdrawStale(family));
            self.event(Event::StaleWithdrawn { family, why });
        }
        if self.run_is_over(now) {
            self.seek(now);
        }
        if self.connect_at.is_some_and(|at| at <= now) {
            self.connect_at = None;
            if self.dialing {
                // The attempt timed out; the next one replaces it at once.
                self.counters.connect_failures += 1;
                self.connect_failures = self.connect_failures.saturating_add(1);
                self.connect_failed("no answer".to_owned(), 0, now);
            }
            match self.run == Run::Seeking && !self.any_promising() {
                true => self.dial(now),
                false => self.abandon_connect(),
            }
        }
    }

    fn run_is_over(&self, now: Millis) -> bool {
        matches!(self.run, Run::Resting(until) if until <= now)
    }

    fn connection_timers(&mut self, conn: Connection, now: Millis) {
        let due = |at: Option<Millis>| at.is_some_and(|at| at <= now);
        if due(self.slot(conn).send_hold_at) {
            let send_hold_ms = self.send_hold_ms(conn);
            let notification = Notification::new(error::SEND_HOLD_TIMER, 0);
            self.fail(conn, notification, Cause::SendHoldTimer { send_hold_ms }, now);
        }
        if due(self.slot(conn).hold_at) {
            if self.slot(conn).input_waits {
                self.slots[conn.index()].hold_at = Some(now.plus(HOLD_EXTENSION_MS));
            } else {
                let hold_ms = self.slot(conn).hold_ms;
                self.fail(conn, Notification::new(error::HOLD_TIMER, 0), Cause::HoldTimer { hold_ms }, now);
            }
        }
        if due(self.slot(conn).answer_at) {
            self.answer_is_due(conn, now);
        }
        if due(self.slot(conn).establish_at) {
            self.establish(conn, now);
        }
        if due(self.slot(conn).keepalive_at) {
            self.slots[conn.index()].send_keepalive(&mut self.counters);
            self.start_keepalive(conn, now);
        }
    }

    /// Starts the KeepaliveTimer, if the hold time requires it.
    pub(super) fn start_keepalive(&mut self, conn: Connection, now: Millis) {
        let slot = &mut self.slots[conn.index()];
        let every_ms = slot.agreed.as_ref().map_or(0, |agreed| agreed.keepalive_ms);
        slot.keepalive_at = (every_ms > 0).then(|| now.plus(self.chance.jitter(every_ms).max(1)));
    }

    /// How long the neighbor may read nothing.
    pub(super) fn send_hold_ms(&self, conn: Connection) -> u64 {
        match self.config.timers.send_hold_s {
            Some(seconds) => u64::from(seconds) * 1000,
            None => SEND_HOLD_MIN_MS.max(2 * self.slot(conn).hold_ms),
        }
    }

    /// Starts to connect to the neighbor.
    pub(super) fn seek(&mut self, now: Millis) {
        self.run = Run::Seeking;
        self.connect(now);
    }

    /// Opens a connection, if this end may.
    pub(super) fn connect(&mut self, now: Millis) {
        if !self.config.passive && !self.any_open() {
            self.dial(now);
        }
    }

    fn dial(&mut self, now: Millis) {
        self.dialing = true;
        self.counters.connect_attempts += 1;
        self.connect_at = Some(now.plus(self.retry_ms()));
        self.act(Action::Connect);
    }

    fn retry_ms(&mut self) -> u64 {
        let longest_ms = u64::from(self.config.timers.connect_retry_s.max(1)) * 1000;
        self.chance.jitter(longest_ms)
    }

    /// Connects although the neighbor's connection is open: it may be dead, which would become known only after
    /// minutes. If the neighbor waited for us in the same way, nobody would connect meanwhile, so we do, after the
    /// usual time.
    pub(super) fn dial_beside_a_silent_one(&mut self, now: Millis) {
        let is_silent = self.slot(Connection::Incoming).is_open() && !self.any_promising();
        if is_silent && self.run == Run::Seeking && !self.config.passive && !self.dialing {
            self.connect_at = Some(now.plus(self.retry_ms()));
        }
    }

    /// Whether some connection may become a session: one of ours, or one of the neighbor's on which it has sent
    /// something.
    fn any_promising(&self) -> bool {
        let incoming = self.slot(Connection::Incoming);
        self.slot(Connection::Outgoing).is_open() || incoming.is_open() && incoming.state != State::OpenSent
    }

    /// Schedules another attempt, soon at first and then less and less often; returns the delay, if any.
    pub(super) fn connect_later(&mut self, now: Millis) -> Option<u64> {
        self.counters.connect_failures += 1;
        self.connect_failures = self.connect_failures.saturating_add(1);
        self.connect_after(self.connect_failures.max(self.losses), now)
    }

    /// Schedules the next attempt by the number of failures in a row; returns the delay, if this end connects.
    fn connect_after(&mut self, in_a_row: u32, now: Millis) -> Option<u64> {
        if self.run != Run::Seeking || self.config.passive || self.any_open() {
            return None;
        }
        let longest_ms = u64::from(self.config.timers.connect_retry_s.max(1)) * 1000;
        let doubled = CONNECT_RETRY_FIRST_MS << in_a_row.saturating_sub(1).min(12);
        let retry_ms = self.chance.jitter(doubled.min(longest_ms));
        self.connect_at = Some(now.plus(retry_ms));
        Some(retry_ms)
    }

    /// Reports that an attempt to connect failed. The kernel silently drops segments with a wrong signature, so a
    /// timeout is the only sign of a wrong password.
    pub(super) fn connect_failed(&mut self, mut reason: String, retry_ms: u64, now: Millis) {
        if self.config.transport.password.is_some() {
            reason += " (a password is configured: the neighbor's may differ or be missing)";
        }
        if let Some(count) = self.failed_connects.once(now.0, REPEAT_MS) {
            self.event(Event::ConnectFailed { reason: reason.clone(), count, retry_ms });
        }
        self.counters.last_connect_error = Some(reason);
    }

    /// After a session that was lost without a protocol error, connects at once the first time, then less and less
    /// often; the neighbor may connect at any time.
    pub(super) fn seek_after_loss(&mut self, now: Millis) {
        self.abandon_connect();
        self.losses = self.losses.saturating_add(1);
        match self.losses {
            1 => self.connect(now),
            losses => _ = self.connect_after(losses - 1, now),
        }
    }

    /// Abandons the connection that is being opened.
    pub(super) fn abandon_connect(&mut self) {
        self.connect_at = None;
        if std::mem::take(&mut self.dialing) {
            self.act(Action::AbandonConnect);
        }
    }

    /// Rests after a protocol error, longer each time.
    pub(super) fn rest(&mut self, now: Millis) {
        self.failures = self.failures.saturating_add(1);
        self.abandon_connect();
        let timers = &self.config.timers;
        let (first, longest) = (u64::from(timers.idle_hold_s), u64::from(timers.idle_hold_max_s));
        let rest_s = first.saturating_mul(1 << (self.failures - 1).min(20)).min(longest.max(first));
        let rest_ms = self.chance.jitter(rest_s * 1000);
        self.run = Run::Resting(now.plus(rest_ms));
        self.event(Event::Resting { rest_ms, failures: self.failures });
    }

    /// Withdraws the stale routes of all families.
    pub(super) fn withdraw_stale(&mut self, why: StaleEnd) {
        for family in self.stale.take_all() {
            self.act(Action::WithdrawStale(family));
            self.event(Event::StaleWithdrawn { family, why });
        }
    }
}

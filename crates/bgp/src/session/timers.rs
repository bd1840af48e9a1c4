//! What happens when time passes, and how long things last.

use thalweg_base::mix64;
use thalweg_wire::bgp::{Notification, error};

use super::action::{Action, Cause, Event, StaleEnd, State};
use super::negotiate::Connection;
use super::remarks::REPEAT_MS;
use super::{Run, Session};
use crate::peer::Millis;

/// The first attempts to connect follow each other after this time, doubling.
const CONNECT_RETRY_FIRST_MS: u64 = 1_000;

/// How much longer a neighbor may be silent whose bytes wait for us.
const HOLD_EXTENSION_MS: u64 = 10_000;

/// The least a send hold time is by default (RFC 9687).
const SEND_HOLD_MIN_MS: u64 = 8 * 60 * 1000;

/// Chance from a seed (splitmix64): good enough to keep timers apart.
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
    /// When [`Self::handle_timer`] has something to do next.
    pub fn next_deadline(&self) -> Option<Millis> {
        let resting = match self.run {
            Run::Resting(until) => Some(until),
            Run::Stopped | Run::Seeking => None,
        };
        let slots = self.slots.iter().filter_map(|slot| slot.next_deadline());
        slots.chain(resting).chain(self.connect_at).chain(self.stale.next_deadline()).min()
    }

    /// Time has passed.
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
                // Given up; the next attempt takes its place at once.
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

    /// Starts the KeepaliveTimer, where the hold time asks for one.
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

    /// Begins to seek the neighbor.
    pub(super) fn seek(&mut self, now: Millis) {
        self.run = Run::Seeking;
        self.connect(now);
    }

    /// Opens a connection, if that is ours to do.
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

    /// A connection of the neighbor's may be dead before it says anything, which we would know after minutes only. If the
    /// neighbor waits for us in the same way, nobody would connect for as long: we do, after the usual time.
    pub(super) fn dial_beside_a_silent_one(&mut self, now: Millis) {
        let is_silent = self.slot(Connection::Incoming).is_open() && !self.any_promising();
        if is_silent && self.run == Run::Seeking && !self.config.passive && !self.dialing {
            self.connect_at = Some(now.plus(self.retry_ms()));
        }
    }

    /// Whether some connection may become a session: one of ours, or one of the neighbor's on which it has said something.
    fn any_promising(&self) -> bool {
        let incoming = self.slot(Connection::Incoming);
        self.slot(Connection::Outgoing).is_open() || incoming.is_open() && incoming.state != State::OpenSent
    }

    /// Another attempt later: soon at first, then less and less often. How much later, if there is one.
    pub(super) fn connect_later(&mut self, now: Millis) -> Option<u64> {
        self.counters.connect_failures += 1;
        self.connect_failures = self.connect_failures.saturating_add(1);
        self.connect_after(self.connect_failures.max(self.losses), now)
    }

    /// Sets the time of the next attempt, by how many failed in a row; how long that is, if connecting is ours to do.
    fn connect_after(&mut self, in_a_row: u32, now: Millis) -> Option<u64> {
        if self.run != Run::Seeking || self.config.passive || self.any_open() {
            return None;
        }
        let longest_ms = u64::from(self.config.timers.connect_retry_s.max(1)) * 1000;
        let doubled = CONNECT_RETRY_FIRST_MS << in_a_row.saturating_sub(1).min(10);
        let retry_ms = self.chance.jitter(doubled.min(longest_ms));
        self.connect_at = Some(now.plus(retry_ms));
        Some(retry_ms)
    }

    /// Says that an attempt to connect failed. The kernel drops segments with a wrong signature without a word, so
    /// that silence is all there is to see of a wrong password.
    pub(super) fn connect_failed(&mut self, mut reason: String, retry_ms: u64, now: Millis) {
        if self.config.transport.password.is_some() {
            reason += " (a password is configured: the neighbor's may differ or be missing)";
        }
        if let Some(count) = self.failed_connects.once(now.0, REPEAT_MS) {
            self.event(Event::ConnectFailed { reason: reason.clone(), count, retry_ms });
        }
        self.counters.last_connect_error = Some(reason);
    }

    /// After a session that was lost without a protocol error: connects at once the first time, then less and less
    /// often; the neighbor may connect at any time.
    pub(super) fn seek_after_loss(&mut self, now: Millis) {
        self.abandon_connect();
        self.losses = self.losses.saturating_add(1);
        match self.losses {
            1 => self.connect(now),
            losses => _ = self.connect_after(losses - 1, now),
        }
    }

    /// Gives up the connection being opened.
    pub(super) fn abandon_connect(&mut self) {
        self.connect_at = None;
        if std::mem::take(&mut self.dialing) {
            self.act(Action::AbandonConnect);
        }
    }

    /// After a protocol error: rests, longer each time.
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

    /// Stale routes of all families go now.
    pub(super) fn withdraw_stale(&mut self, why: StaleEnd) {
        for family in self.stale.take_all() {
            self.act(Action::WithdrawStale(family));
            self.event(Event::StaleWithdrawn { family, why });
        }
    }
}

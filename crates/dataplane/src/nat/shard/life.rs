//! The end of sessions: the wheel of seconds, and sessions that end early.
//!
//! Sessions can leave their bucket early: refused connections do within seconds, others when they are cleared or the
//! table is full.

use super::super::endpoint::End;
use super::super::session::{Life, Session, SessionState};
use super::{EndedBy, NatShard, Segment, SessionInfo};
use crate::records::{WHEEL_S, slice};
use thalweg_wire::tcp;

/// A half-open session makes room for another only if it had no packet for this many seconds: longer than a
/// handshake takes, even with a lost SYN or two.
const HALF_OPEN_IDLE_S: u32 = 4;
/// The lifetime of half-open sessions while more than half of the table is in use, in seconds.
const HALF_OPEN_SHORT_S: u32 = 30;
/// Records examined in a search for a half-open session. After a search without success there is no other one in
/// that second.
const LOOKS: u32 = 64;

impl NatShard {
    /// Files a session under the second in which it must be checked: its end, or sooner.
    pub(super) fn file(&mut self, at: usize) {
        let session = &self.sessions[at];
        let horizon_s = self.horizons_s[session.protocol() as usize];
        // Pressure may shorten its life before its end.
        let is_cut = self.drops_half_open && session.state.is_half_open();
        let horizon_s = self.now_s + if is_cut { horizon_s.min(HALF_OPEN_SHORT_S + 1) } else { horizon_s };
        self.wheel.file(at, session.expires_s.saturating_add(1).min(horizon_s));
    }

    /// Handles a TCP segment with SYN or RST by its sequence and acknowledgment numbers; `before` is the session's
    /// state before it. See [`super::super::session`].
    #[cold]
    #[inline(never)]
    pub(super) fn check_syn_or_rst(&mut self, at: usize, end: End, before: SessionState, segment: Segment) {
        let Segment { sequence, acknowledged, flags } = segment;
        let session = &mut self.sessions[at];
        if !flags.has(tcp::RST) {
            if end == End::Source && !flags.has(tcp::ACK) {
                session.awaited = sequence.wrapping_add(1);
            }
            if before.has_connection() && session.life == Life::Alone {
                session.life = Life::Several;
            }
            let state = session.state;
            if state.is_half_open() && !before.is_half_open() {
                self.refile_one(at);
            }
            if state != before {
                self.note(at);
            }
            return;
        }
        let named = if before == SessionState::SynSent { acknowledged } else { sequence };
        let is_proven = session.life == Life::Alone && (end == End::Source || named == session.awaited);
        let state = before.after_reset(is_proven);
        if state != before {
            session.state = state;
            session.expires_s = self.now_s.saturating_add(self.timeouts_s[state as usize]);
            self.refile_one(at);
            self.note(at);
        }
    }

    /// Files a session again whose life has become shorter.
    pub(super) fn refile_one(&mut self, at: usize) {
        self.wheel.unfile(at);
        self.file(at);
    }

    /// Advances time and removes expired sessions.
    #[cold]
    #[inline(never)]
    pub(super) fn expire(&mut self, now_s: u32) {
        let from_s = (self.now_s + 1).max(now_s.saturating_sub(WHEEL_S - 1));
        self.now_s = now_s;
        for second in from_s..=now_s {
            let mut list = self.wheel.take(second);
            while let Some(at) = list.checked_sub(1) {
                let at = at as usize;
                list = self.wheel.next(at);
                if self.sessions[at].expires_s < now_s && !self.is_kept(at) {
                    let ended_s = self.sessions[at].expires_s.saturating_add(1);
                    self.remove(at, Some(ended_s));
                    self.counters.sessions_expired += 1;
                } else {
                    self.file(at);
                }
            }
        }
        self.bare.sweep_if_due(now_s);
        self.help.calls.sweep(now_s);
        if self.own.is_due(now_s) {
            self.forget_own_flows();
        }
        self.feel_pressure();
    }

    /// Ends a session now, whatever is left of its life.
    pub(super) fn end_now(&mut self, at: usize) {
        self.wheel.unfile(at);
        self.remove(at, None);
    }

    /// Removes a session from everything but the wheel. It ended with second `ended_s`, or ends now.
    fn remove(&mut self, at: usize, ended_s: Option<u32>) {
        let session = self.sessions[at];
        self.note_end(&session);
        for end in [End::Source, End::Destination] {
            self.index.remove(self.layout.hash(session.key(end)), at);
        }
        let port = session.ports[1];
        let bitmap = self.layout.bitmap(session.protocol(), usize::from(session.public_index), port & 1);
        self.ports.release(bitmap, self.layout.bitmap_place(port));
        match ended_s {
            Some(ended_s) => self.log_ended(&session, ended_s),
            None => self.log_displaced(&session, self.end_ns()),
        }
        let ended_s = ended_s.unwrap_or(self.now_s);
        if let Some(subscribers) = &mut self.subscribers {
            let (inside, public) = (session.inside(), usize::from(session.public_index));
            let given_back =
                subscribers.release(&self.layout, session.protocol(), inside, (public, port), ended_s);
            if let Some(ports) = given_back {
                self.log_given_back(inside, public, ports, ended_s);
            }
        }
        self.hosts.ended(&self.layout, session.inside());
        self.hosts6.release(session.addresses[0]);
        self.sessions[at] = Session::EMPTY;
        self.wheel.set_free(at, self.free);
        self.free = at as u32 + 1;
        self.counters.sessions_active -= 1;
        self.leave_port_to_router(&session);
    }

    /// Shortens the life of half-open sessions when the table becomes more than half full, and restores it below
    /// three eighths.
    pub(super) fn feel_pressure(&mut self) {
        if !self.drops_half_open {
            return;
        }
        let (active, max) = (self.counters.sessions_active, u64::from(self.sessions_max));
        let is_pressed = if self.is_pressed { active * 8 > max * 3 } else { active * 2 > max };
        if is_pressed != self.is_pressed {
            self.is_pressed = is_pressed;
            self.set_half_open_lifetime();
        }
    }

    /// Sets the lifetime of half-open sessions according to the pressure.
    pub(super) fn set_half_open_lifetime(&mut self) {
        let full_s = self.half_open_s;
        let lifetime_s = if self.is_pressed { full_s.min(HALF_OPEN_SHORT_S) } else { full_s };
        use SessionState::{PickedUp, SynReceived, SynSent};
        for state in [SynSent, PickedUp, SynReceived] {
            self.timeouts_s[state as usize] = lifetime_s;
        }
    }

    /// Ends a half-open TCP session that was idle for some seconds, if a short search finds one. RFC 6888 REQ-11d
    /// protects mappings in use, but nobody has answered on this one.
    pub(super) fn drop_half_open(&mut self) -> bool {
        if !self.drops_half_open || self.subscribers.is_some() || self.now_s < self.look_again_s {
            return false;
        }
        for _ in 0..LOOKS.min(self.fresh) {
            self.hand = if self.hand + 1 >= self.fresh { 0 } else { self.hand + 1 };
            let session = &self.sessions[self.hand as usize];
            let left_s = session.expires_s.saturating_sub(self.now_s);
            let short_s = self.half_open_s.min(HALF_OPEN_SHORT_S);
            // Which of the two lifetimes a session has is not recorded; if more is left than the shorter one, it
            // has the longer.
            let idle_s = if left_s > short_s { self.half_open_s } else { short_s }.saturating_sub(left_s);
            if session.is_live() && session.state.is_half_open() && idle_s >= HALF_OPEN_IDLE_S {
                self.end_now(self.hand as usize);
                self.counters.half_open_dropped += 1;
                return true;
            }
        }
        self.look_again_s = self.now_s + 1;
        false
    }

    /// Ends live sessions that `which` admits, among `count` records from record `from` on. Returns how many, and
    /// where to continue if there are more.
    pub(crate) fn end_sessions(
        &mut self,
        from: usize,
        count: usize,
        why: EndedBy,
        which: impl Fn(&SessionInfo) -> bool,
    ) -> (u64, Option<usize>) {
        let (records, rest) = slice(from, count, self.fresh);
        let mut ended = 0;
        for at in records {
            let session = &self.sessions[at];
            let may_end = session.is_live() && session.state != SessionState::Forward;
            if may_end && which(&self.info(session, self.now_s)) {
                self.end_now(at);
                ended += 1;
            }
        }
        self.count_ended(why, ended);
        (ended, rest)
    }

    pub(super) fn count_ended(&mut self, why: EndedBy, ended: u64) {
        match why {
            EndedBy::Request => self.counters.sessions_cleared += ended,
            EndedBy::Configuration => self.counters.sessions_displaced += ended,
        }
    }
}

//! How messages change a session.

use std::sync::Arc;

use thalweg_wire::bgp::{
    Attributes, Family, Frame, MessageKind, Notification, Open, RefreshKind, RouteRefresh, Update, Verdict,
    cease, error, frame, fsm_error,
};

use super::action::{Action, Cause, DownReason, Event, State};
use super::lifecycle::surviving;
use super::negotiate::{self, Connection, Ends};
use super::remarks::{excerpt, write_hex};
use super::{Importer, ROUTES_PER_CALL, Session, restarts_gracefully};
use crate::peer::Millis;
use crate::route::RouteBatchBuilder;

/// The least time between two events about bad UPDATEs; they are counted meanwhile.
const BAD_UPDATE_EVENT_MS: u64 = 10_000;

/// Bytes of a message's header.
const HEADER_BYTES: usize = 19;

/// How long a connection that is ready waits for another one that has precedence.
const ESTABLISH_DELAY_MS: u64 = 3_000;

/// How long the neighbor may take to close one of two connections before we do.
const ANSWER_MS: u64 = 1_000;

impl Session {
    /// Handles bytes of a connection; returns how many it consumed. It consumes only whole messages, and stops at
    /// an action that is ordered among the routes or after [`ROUTES_PER_CALL`] routes: the caller keeps the rest,
    /// performs the actions, and calls again until a call consumes nothing and leaves no action.
    pub fn handle_bytes(
        &mut self,
        conn: Connection,
        bytes: &[u8],
        now: Millis,
        import: &mut Importer,
        out: &mut RouteBatchBuilder,
    ) -> usize {
        let used = self.take_messages(conn, bytes, now, import, out);
        self.emit_remarks(import, now);
        used
    }

    fn take_messages(
        &mut self,
        conn: Connection,
        bytes: &[u8],
        now: Millis,
        import: &mut Importer,
        out: &mut RouteBatchBuilder,
    ) -> usize {
        let routes_max = out.len() + ROUTES_PER_CALL;
        let mut used = 0;
        loop {
            if !self.slot(conn).is_open() {
                // Ignore what follows on a connection that has ended.
                return bytes.len();
            }
            if out.len() >= routes_max || self.actions.iter().any(Action::is_ordered) {
                return used;
            }
            let rest = bytes.get(used..).unwrap_or(&[]);
            match frame(rest, self.slot(conn).length_max()) {
                Ok(None) => return used,
                Ok(Some(message)) if self.is_chosen_by(conn, message.kind) => self.establish(conn, now),
                Ok(Some(message)) => {
                    used += message.length;
                    self.message(conn, message, now, import, out);
                }
                Err(error) => {
                    let message = excerpt("message header", rest.get(..HEADER_BYTES).unwrap_or(rest));
                    self.fail(conn, error.notification(), Cause::Malformed { message }, now);
                    return bytes.len();
                }
            }
        }
    }

    fn message(
        &mut self,
        conn: Connection,
        message: Frame<'_>,
        now: Millis,
        import: &mut Importer,
        out: &mut RouteBatchBuilder,
    ) {
        self.counters.received.count(message.kind);
        self.counters.received_bytes += message.length as u64;
        match (self.slot(conn).state, message.kind) {
            (State::Established, MessageKind::Update) => self.update(conn, message.body, now, import, out),
            (State::Established, MessageKind::Keepalive) => self.slots[conn.index()].heard(now),
            (State::Established, MessageKind::RouteRefresh) => self.route_refresh(conn, message.body, now),
            (State::OpenSent, MessageKind::Open) => self.open(conn, message.body, now),
            (State::OpenConfirm, MessageKind::Keepalive) => self.confirmed(conn, now),
            (_, MessageKind::Notification) => {
                // Framing has checked that the two bytes are present.
                let notification = Notification::parse(message.body).unwrap_or(Notification::new(0, 0));
                self.ended_by_neighbor(conn, notification, now);
            }
            (state, kind) => self.unexpected(conn, state, kind, now),
        }
    }

    /// Handles the KEEPALIVE that answers our OPEN: the session is up, unless the neighbor may be closing this
    /// connection in favor of the other one. By RFC 4271 6.8 alone, two ends that connect at the same time could
    /// each close one connection: we ours, which waits for an OPEN, and the neighbor its own, on which OPEN has
    /// arrived.
    fn confirmed(&mut self, conn: Connection, now: Millis) {
        let slot = &mut self.slots[conn.index()];
        slot.heard(now);
        if slot.answer_at.is_some() {
            slot.is_confirmed = true;
            return;
        }
        let survivor = slot.agreed.as_ref().map(|agreed| surviving(&self.config, agreed));
        let other = self.slot(conn.other());
        let is_open = other.state == State::OpenSent || other.answer_at.is_some();
        if is_open && survivor == Some(conn.other()) {
            self.slots[conn.index()].establish_at = Some(now.plus(ESTABLISH_DELAY_MS));
        } else {
            self.establish(conn, now);
        }
    }

    /// Whether a message shows that the neighbor has chosen this connection.
    fn is_chosen_by(&self, conn: Connection, kind: MessageKind) -> bool {
        let routes = matches!(kind, MessageKind::Update | MessageKind::Keepalive | MessageKind::RouteRefresh);
        self.slot(conn).establish_at.is_some() && routes
    }

    /// Handles a message that the state does not expect (RFC 6608).
    fn unexpected(&mut self, conn: Connection, state: State, kind: MessageKind, now: Millis) {
        let subcode = match state {
            State::OpenSent => fsm_error::OPEN_SENT,
            State::OpenConfirm => fsm_error::OPEN_CONFIRM,
            State::Established => fsm_error::ESTABLISHED,
            State::Idle | State::Connect | State::Active => fsm_error::UNSPECIFIED,
        };
        let message = match kind {
            MessageKind::Open => "OPEN",
            MessageKind::Update => "UPDATE",
            MessageKind::Notification => "NOTIFICATION",
            MessageKind::Keepalive => "KEEPALIVE",
            MessageKind::RouteRefresh => "ROUTE-REFRESH",
        };
        // RFC 6608 3: the data is the type of the message.
        let notification = Notification::with_data(error::FSM, subcode, &[kind as u8]);
        self.fail(conn, notification, Cause::Unexpected { message, state }, now);
    }

    fn open(&mut self, conn: Connection, body: &[u8], now: Millis) {
        let open = match Open::parse(body) {
            Ok(open) => open,
            Err(notification) => return self.malformed(conn, notification, "OPEN", body, now),
        };
        let slot = self.slot(conn);
        let ends = Ends { connection: conn, local: slot.local, remote: slot.remote };
        let Some(offered) = slot.offered.as_ref() else { return };
        let agreed = match negotiate::agree(&self.config, offered, open, ends) {
            Ok(agreed) => Arc::new(agreed),
            Err((notification, problem)) => {
                return self.fail(conn, notification, Cause::Open(problem), now);
            }
        };
        if !self.resolve_collision(conn, &agreed, now) {
            return;
        }
        let waits = self.may_be_closed(conn, surviving(&self.config, &agreed));
        let slot = &mut self.slots[conn.index()];
        slot.state = State::OpenConfirm;
        slot.hold_ms = u64::from(agreed.hold_time_s) * 1000;
        slot.agreed = Some(agreed);
        slot.heard(now);
        match waits {
            true => slot.answer_at = Some(now.plus(ANSWER_MS)),
            false => self.answer(conn, now),
        }
    }

    /// Whether KEEPALIVE must wait on a connection whose OPEN has arrived. The neighbor is up as soon as it has
    /// KEEPALIVE, so closing a connection after that in favor of the other would end the neighbor's session.
    /// KEEPALIVE waits if the other connection takes precedence once its OPEN arrives. It also waits if the other
    /// connection, without precedence, was answered already: the neighbor knows on which of them it is up, and
    /// closes the other.
    fn may_be_closed(&self, conn: Connection, survivor: Connection) -> bool {
        match self.slot(conn.other()).state {
            State::OpenSent => survivor != conn,
            State::OpenConfirm => survivor == conn,
            _ => false,
        }
    }

    /// Answers the OPEN that arrived with KEEPALIVE.
    pub(super) fn answer(&mut self, conn: Connection, now: Millis) {
        let slot = &mut self.slots[conn.index()];
        slot.answer_at = None;
        slot.send_keepalive(&mut self.counters);
        let is_confirmed = std::mem::take(&mut slot.is_confirmed);
        self.start_keepalive(conn, now);
        if is_confirmed {
            self.confirmed(conn, now);
        }
    }

    /// Closes the connection without precedence (RFC 4271 6.8) after the neighbor has closed neither.
    pub(super) fn answer_is_due(&mut self, conn: Connection, now: Millis) {
        let other = conn.other();
        if self.slot(other).state == State::OpenConfirm {
            self.close_collided(other, now);
        }
        // Closing the other connection may have answered this one.
        if self.slot(conn).answer_at.is_some() {
            self.answer(conn, now);
        }
    }

    pub(super) fn close_collided(&mut self, conn: Connection, now: Millis) {
        let collision = Notification::new(error::CEASE, cease::CONNECTION_COLLISION);
        self.fail(conn, collision, Cause::Collision, now);
    }

    /// RFC 4271 6.8, when OPEN arrives on `conn`; returns whether `conn` continues.
    fn resolve_collision(&mut self, conn: Connection, agreed: &negotiate::Negotiated, now: Millis) -> bool {
        let other = conn.other();
        match self.slot(other).state {
            State::Established => {
                if self.negotiated().is_some_and(|old| restarts_gracefully(old)) {
                    // RFC 4724 5: the old connection is dead; the neighbor has restarted.
                    self.act(Action::Close(other));
                    self.session_down(other, DownReason::Restarted, now);
                    return true;
                }
                self.close_collided(conn, now);
                false
            }
            State::OpenConfirm => {
                self.counters.collisions += 1;
                let loser = surviving(&self.config, agreed).other();
                if loser == conn || self.slot(other).answer_at.is_some() {
                    self.close_collided(loser, now);
                }
                loser != conn
            }
            _ => true,
        }
    }

    fn update(
        &mut self,
        conn: Connection,
        body: &[u8],
        now: Millis,
        import: &mut Importer,
        out: &mut RouteBatchBuilder,
    ) {
        self.slots[conn.index()].heard(now);
        let Some(agreed) = self.slot(conn).agreed.as_ref() else { return };
        if !import.is_for(agreed) {
            import.begin(agreed, &self.config, self.id);
        }
        let update = match Update::parse(body, &agreed.codec, import.facts()) {
            Ok(update) => update,
            Err(notification) => return self.malformed(conn, notification, "UPDATE", body, now),
        };
        import.import(&update, body, out);
        if update.verdict != Verdict::Good || !update.discards.is_empty() {
            self.bad_update(&update, now);
        }
        if let Some(family) = update.end_of_rib() {
            self.end_of_rib(conn, family);
        }
    }

    fn end_of_rib(&mut self, conn: Connection, family: Family) {
        if !self.slot(conn).agreed.as_ref().is_some_and(|agreed| agreed.family(family)) {
            return;
        }
        if self.stale.end_of_rib(family) {
            self.act(Action::WithdrawStale(family));
        }
        self.act(Action::EndOfRib(family));
    }

    /// Ends the session because of a malformed message.
    #[cold]
    fn malformed(&mut self, conn: Connection, said: Notification, kind: &str, body: &[u8], now: Millis) {
        self.fail(conn, said, Cause::Malformed { message: excerpt(kind, body) }, now);
    }

    #[cold]
    fn bad_update(&mut self, update: &Update<'_>, now: Millis) {
        let (problem, action) = match update.verdict {
            Verdict::TreatAsWithdraw(problem) => {
                self.counters.treated_as_withdraw += 1;
                (problem, "its routes are withdrawn (treat-as-withdraw")
            }
            Verdict::Good => {
                self.counters.attributes_discarded += update.discards.len() as u64;
                match update.discards.iter().next() {
                    Some(problem) => (problem, "left out (attribute discard"),
                    None => return,
                }
            }
        };
        let Some(count) = self.bad_updates.once(now.0, BAD_UPDATE_EVENT_MS) else { return };
        // If the attribute is missing or has no single place, show them all.
        let whole = Attributes::new(update.field()).find(|each| each.code == problem.code);
        let mut text = format!("{problem}; {action}, RFC 7606): ");
        write_hex(&mut text, whole.map_or(update.field(), |attribute| attribute.whole));
        self.event(Event::BadUpdate { problem: text, count });
    }

    /// RFC 2918, RFC 7313. Ignores what was not negotiated, and unknown families and kinds.
    fn route_refresh(&mut self, conn: Connection, body: &[u8], now: Millis) {
        self.slots[conn.index()].heard(now);
        let refresh = match RouteRefresh::parse(body) {
            Ok(refresh) => refresh,
            Err(notification) => return self.malformed(conn, notification, "ROUTE-REFRESH", body, now),
        };
        let agreed = self.slot(conn).agreed.as_ref();
        let known = |family: &Family| agreed.is_some_and(|agreed| agreed.family(*family));
        let family = refresh.and_then(|refresh| refresh.family.kept()).filter(known);
        let (plain, marks) =
            agreed.map_or((false, false), |agreed| (agreed.route_refresh, agreed.enhanced_refresh));
        match (family, refresh.map(|refresh| refresh.kind)) {
            (Some(family), Some(RefreshKind::Request)) if plain => {
                self.act(Action::Resend(family));
                self.event(Event::RefreshReceived(family));
            }
            (Some(family), Some(RefreshKind::Begin)) if marks => {
                let until = now.plus_s(u64::from(self.config.timers.refresh_stale_s));
                self.stale.refresh_began(family, until);
                self.act(Action::MarkStale(family));
            }
            (Some(family), Some(RefreshKind::End)) if marks && self.stale.refresh_ended(family) => {
                self.act(Action::WithdrawStale(family));
            }
            _ => self.counters.refresh_ignored += 1,
        }
    }
}

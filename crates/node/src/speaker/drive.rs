//! Carries out what sessions ask for: connections, tables for neighbors that came up, withdrawals for those that
//! went down.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_bgp::export::DumpKind;
use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::config::KeepRejected;
use thalweg_bgp::session::{Action, Admission, Connection, Negotiated};
use thalweg_exec::control_plane::Notice;
use thalweg_wire::bgp::{Family, cease};

use super::network::{ByteStream, Incoming};
use super::parting::{self, Whose};
use super::shards::ShardOp;
use super::slot::{Link, PeerSlot, PeerState};
use super::{Speaker, log};

impl Speaker {
    /// Carries out all of the session's pending actions. `after` collects work that must follow the routes just
    /// decoded. Returns whether the session ended.
    pub(super) fn drive(
        &self,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        now: Millis,
        after: &mut Vec<ShardOp>,
    ) -> bool {
        let mut ended = false;
        while let Some(action) = state.session.poll_action() {
            match action {
                Action::Connect => self.connect(slot, state, now),
                Action::AbandonConnect => drop(self.close(slot, state, Connection::Outgoing)),
                Action::Close(connection) => {
                    let words = state.last_words(connection);
                    let link = self.close(slot, state, connection);
                    if let Some(link) = link.filter(|link| !link.connecting && !words.is_empty()) {
                        self.partings.part(link.stream, words, Whose::Neighbor, now);
                    }
                }
                Action::Established(negotiated) => self.established(slot, state, &negotiated, now),
                Action::Down { retained, .. } => {
                    ended = true;
                    after.clear();
                    self.down(slot, state, retained);
                }
                Action::Resend(family) => self.resend(state, family),
                Action::MarkStale(family) => after.push(ShardOp::MarkStale(slot.id, family)),
                Action::WithdrawStale(family) => after.push(ShardOp::Sweep(slot.clone(), family)),
                Action::EndOfRib(family) => {
                    log::end_of_rib(&state.config.name, family);
                    after.extend(self.end_mark(state.config.address, family));
                }
                Action::Event(event) => log::session(&state.config.name, &event),
            }
        }
        let next_ms = state.next_deadline_ms();
        // The thread that runs the timers may sleep until the former deadline.
        if next_ms < slot.deadline_ms.swap(next_ms, Ordering::AcqRel) {
            self.notice(Notice::Sooner(slot.id.index()));
        }
        self.note_deadline(slot);
        self.release_dynamic(slot, state);
        ended
    }

    /// Frees the slot of a dynamic neighbor once its connections and its stale routes are gone.
    fn release_dynamic(&self, slot: &PeerSlot, state: &PeerState) {
        let is_gone = state.links.iter().all(Option::is_none)
            && state.negotiated.is_none()
            && state.session.stale_families() == [false; 2];
        if state.dynamic && is_gone && !slot.free.swap(true, Ordering::AcqRel) {
            self.give_up_address(slot, &state.config);
        }
    }

    /// [`Self::drive`] when no decoded routes are waiting: posts the work to the shards.
    pub(super) fn drive_alone(&self, slot: &Arc<PeerSlot>, state: &mut PeerState, now: Millis) {
        let mut after = Vec::new();
        self.drive(slot, state, now, &mut after);
        for op in after {
            self.post_to_shards(&op);
        }
    }

    /// Posts work that no batch carries to all shards.
    pub(super) fn post_to_shards(&self, op: &ShardOp) {
        self.shards.iter().for_each(|shard| shard.post(op.clone()));
        self.wake();
    }

    fn connect(&self, slot: &PeerSlot, state: &mut PeerState, now: Millis) {
        self.close(slot, state, Connection::Outgoing);
        match self.network.connect(&state.config) {
            Ok(stream) => self.open(slot, state, Connection::Outgoing, stream, true),
            Err(error) => state.session.handle_connect_failed(&error.to_string(), now),
        }
    }

    fn open(
        &self,
        slot: &PeerSlot,
        state: &mut PeerState,
        connection: Connection,
        stream: Box<dyn ByteStream>,
        connecting: bool,
    ) {
        state.links[connection as usize] = Some(Box::new(Link::new(stream, connecting)));
        slot.note_ready(true, true);
        self.notice(Notice::Opened(slot.id.index()));
    }

    /// Removes a connection, which closes when the result is dropped.
    pub(super) fn close(
        &self,
        slot: &PeerSlot,
        state: &mut PeerState,
        connection: Connection,
    ) -> Option<Box<Link>> {
        let link = state.links[connection as usize].take();
        if link.is_some() && state.links.iter().all(Option::is_none) {
            self.notice(Notice::Closed(slot.id.index()));
        }
        link
    }

    /// Handles a connection that a neighbor opened. Gives it back if the slot has been freed since it was looked up:
    /// the next neighbor would take the slot, and this one would wait for an answer in vain.
    pub(super) fn incoming(
        &self,
        slot: &Arc<PeerSlot>,
        mut incoming: Incoming,
        now: Millis,
    ) -> Option<Incoming> {
        let mut state = self.look(slot);
        if slot.is_free() {
            return Some(incoming);
        }
        let (local, remote) = incoming.stream.addresses().ok()?;
        incoming.stream.apply(&state.config).ok()?;
        // If an established session is replaced, its other end is gone and would not receive a NOTIFICATION.
        let was_up = state.session.established() == Some(Connection::Incoming);
        match state.session.handle_connected(Connection::Incoming, local.ip(), remote.ip(), now) {
            Admission::Accept => {}
            Admission::Replace => {
                let old = self.close(slot, &mut state, Connection::Incoming);
                if let Some(link) = old.filter(|_| !was_up) {
                    let words = parting::cease(cease::CONNECTION_COLLISION);
                    self.partings.part(link.stream, words, Whose::Neighbor, now);
                }
            }
            Admission::Refuse(refusal) => {
                if let Some(notification) = refusal.notification() {
                    let words = parting::cease(notification.subcode);
                    self.partings.part(incoming.stream, words, Whose::Stranger, now);
                }
                self.drive_alone(slot, &mut state, now);
                return None;
            }
        }
        self.open(slot, &mut state, Connection::Incoming, incoming.stream, false);
        self.drive_alone(slot, &mut state, now);
        None
    }

    /// Checks whether an outgoing connection succeeded or failed.
    pub(super) fn check_connecting(&self, slot: &Arc<PeerSlot>, state: &mut PeerState, now: Millis) {
        let Some(link) = &mut state.links[Connection::Outgoing as usize] else { return };
        if !link.connecting {
            return;
        }
        match link.stream.connected() {
            None => {}
            Some(Ok(())) => {
                link.connecting = false;
                let Ok((local, remote)) = link.stream.addresses() else { return };
                let admission =
                    state.session.handle_connected(Connection::Outgoing, local.ip(), remote.ip(), now);
                if let Admission::Refuse(refusal) = admission {
                    let link = self.close(slot, state, Connection::Outgoing);
                    if let (Some(link), Some(notification)) = (link, refusal.notification()) {
                        let words = parting::cease(notification.subcode);
                        self.partings.part(link.stream, words, Whose::Neighbor, now);
                    }
                }
            }
            Some(Err(error)) => {
                self.close(slot, state, Connection::Outgoing);
                state.session.handle_connect_failed(&error.to_string(), now);
            }
        }
    }

    fn established(
        &self,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        negotiated: &Arc<Negotiated>,
        now: Millis,
    ) {
        let info = Arc::new(negotiated.peer_info(slot.id, &state.config));
        self.change_peers(|peers| peers.insert(info));
        let config = state.config.clone();
        state.receiving(&self.interner).1.begin(negotiated, &config, slot.id);
        self.set_import_policy(state, negotiated);
        state.receiving(&self.interner).1.set_vrps(self.origins.vrps());
        slot.ask_again.store(false, Ordering::Release);
        slot.paths.set_received_whole(state.config.import.keep_rejected == KeepRejected::All);
        state.negotiated = Some(negotiated.clone());
        state.limit_hops(negotiated);
        self.observers.each(|observer| observer.state_changed(negotiated, true));
        self.sessions_changed.store(true, Ordering::Release);
        self.restart.handle_up(state.config.address, negotiated, now);
        if !self.restart.is_active() {
            state.session.set_restarting(false);
        }
        if !self.restart.holds(negotiated.families) {
            self.start_sending(slot, state, negotiated);
        }
    }

    /// Starts sending the table, and every change from now on.
    pub(super) fn start_sending(
        &self,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        negotiated: &Arc<Negotiated>,
    ) {
        let info = Arc::new(negotiated.peer_info(slot.id, &state.config));
        let mut sending = self.join_group(slot, &state.config, negotiated, &info);
        sending.want(DumpKind::Initial);
        state.sending = Some(Box::new(sending));
        self.wake();
    }

    pub(super) fn set_import_policy(&self, state: &mut PeerState, negotiated: &Negotiated) {
        let rules = state.config.import.rules.as_deref();
        let policy = rules.map(|rules| self.config().policy(Some(rules), negotiated.kind));
        state.receiving(&self.interner).1.set_policy(policy);
    }

    pub(super) fn down(&self, slot: &Arc<PeerSlot>, state: &mut PeerState, retained: [bool; 2]) {
        slot.epoch.fetch_add(1, Ordering::AcqRel);
        slot.new_import.lock().take();
        if let Some(sending) = state.sending.take() {
            self.leave_group(slot, *sending);
        }
        let Some(negotiated) = state.negotiated.take() else { return };
        slot.paths.set_sent(None);
        self.sessions_changed.store(true, Ordering::Release);
        self.observers.each(|observer| observer.state_changed(&negotiated, false));
        for family in Family::ALL.into_iter().filter(|family| negotiated.family(*family)) {
            match retained[family.index()] {
                true => {
                    slot.withdrawals_begin(self.shards.len());
                    self.post_to_shards(&ShardOp::Retain(slot.clone(), family));
                }
                false => self.withdraw_all(slot, family),
            }
        }
    }

    /// Has the shards withdraw all routes of a neighbor in a family.
    pub(super) fn withdraw_all(&self, slot: &Arc<PeerSlot>, family: Family) {
        slot.withdrawals_begin(self.shards.len());
        self.post_to_shards(&ShardOp::Withdraw(slot.clone(), family));
    }

    fn resend(&self, state: &mut PeerState, family: Family) {
        let enhanced = state.negotiated.as_ref().is_some_and(|negotiated| negotiated.enhanced_refresh);
        if let Some(sending) = &mut state.sending {
            sending.want(DumpKind::Refresh { family, enhanced });
            self.wake();
        }
    }
}

//! Reads neighbors' connections.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Connection;
use thalweg_exec::control_plane::Reading;

use super::profile::{Function, Profile};
use super::progress::Pending;
use super::shards::{ShardOp, Work};
use super::slot::{PeerSlot, PeerState, READ_BYTES};
use super::{Speaker, SpeakerWorker, log};

/// Routes that one turn of a neighbor reads at most, not counting the excess of its last UPDATE.
const BATCH_ROUTES: usize = 16_384;

/// The result of a neighbor's turn.
#[derive(Default)]
struct Turn {
    more: bool,
    ended: bool,
    /// Work for the shards that follows the routes.
    after: Vec<ShardOp>,
    /// UPDATEs read; counted only when profiling.
    updates: u32,
}

/// The result of one read.
enum Look {
    /// Perhaps bytes, and nothing more for now.
    Nothing,
    /// Bytes, and there may be more.
    Some,
    /// The connection has ended.
    Ended,
}

impl Speaker {
    pub(super) fn read_slot(
        &self,
        worker: &mut SpeakerWorker,
        slot: &Arc<PeerSlot>,
        now: Millis,
    ) -> Reading<Work> {
        if !slot.take_readable() {
            return Reading { batch: None, more: false };
        }
        if slot.is_withdrawing() {
            // A new session begins only when the routes of the last one are gone; the withdrawal would remove its
            // own too.
            slot.note_ready(true, false);
            return Reading { batch: None, more: true };
        }
        let mut state = slot.lock();
        let worked = catch_unwind(AssertUnwindSafe(|| self.read_links(worker, slot, &mut state, now)));
        let Turn { more, ended, after, updates } = worked.unwrap_or_else(|panic| {
            self.contain(slot, &mut state, now, &*panic);
            Turn { ended: true, ..Turn::default() }
        });
        if more {
            slot.note_ready(true, false);
        }
        let routes = worker.builder.finish(slot.id, now.seconds());
        let epoch = slot.epoch.load(Ordering::Acquire);
        let policy = slot.policy.load(Ordering::Acquire);
        drop(state);
        if ended {
            // The routes read before the end are void, but the work of a session that follows is not.
            after.iter().for_each(|op| self.post_to_shards(op));
            self.profile.worked_off(updates);
            return Reading { batch: None, more };
        }
        if routes.is_empty() && after.is_empty() {
            self.profile.worked_off(updates);
            return Reading { batch: None, more };
        }
        let mut work =
            Work { slot: Some(slot.clone()), epoch, policy, routes, after, pending: Pending::default() };
        if updates > 0 {
            let touched = (0..self.shards.len()).filter(|shard| work.touches(self.parts(*shard))).count();
            work.pending = Pending::new(updates, touched);
        }
        Reading { batch: Some(work), more }
    }

    fn read_links(
        &self,
        worker: &mut SpeakerWorker,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        now: Millis,
    ) -> Turn {
        let mut turn = Turn::default();
        self.profile.time(Function::Housekeeping, || {
            self.check_connecting(slot, state, now);
            slot.note_prefix_counts(state, now);
            turn.ended |= self.drive(slot, state, now, &mut turn.after);
        });
        for connection in Connection::ALL {
            let look = take_bytes(worker, state, connection, &self.profile);
            let waits = self.work_off(worker, slot, state, connection, now, &mut turn);
            turn.more |= waits;
            match look {
                Look::Nothing => {}
                Look::Some => turn.more = true,
                // What came before the end may say why.
                Look::Ended if waits => {}
                Look::Ended => {
                    self.close(slot, state, connection);
                    state.session.handle_disconnected(connection, now);
                }
            }
            self.profile.time(Function::Housekeeping, || {
                turn.ended |= self.drive(slot, state, now, &mut turn.after);
            });
        }
        turn
    }

    /// Has the session process the bytes taken from a connection: all of them, unless the batch is full, the shards
    /// have work before the next message, or a session ended. Returns whether the rest waits for the next turn.
    fn work_off(
        &self,
        worker: &mut SpeakerWorker,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        connection: Connection,
        now: Millis,
        turn: &mut Turn,
    ) -> bool {
        let (mut done, mut waits) = (0, false);
        loop {
            let rest = &worker.buffer[done..];
            if rest.is_empty() {
                break;
            }
            let (used, updates) = self.profile.time_messages(rest, || {
                let (session, importer) = state.receiving(&self.interner);
                session.handle_bytes(connection, rest, now, importer, &mut worker.builder)
            });
            turn.updates += updates;
            let used = used.min(rest.len());
            if let Some(negotiated) = &state.negotiated
                && negotiated.connection == connection
                && used > 0
            {
                self.observers.each(|observer| observer.received(negotiated, &rest[..used]));
            }
            done += used;
            // A session comes up before it consumes the message that shows it.
            let acts = state.session.has_actions();
            turn.ended |= self.drive(slot, state, now, &mut turn.after);
            if used == 0 && !acts {
                break;
            }
            if turn.ended || !turn.after.is_empty() || worker.builder.len() >= BATCH_ROUTES {
                waits = done < worker.buffer.len();
                break;
            }
        }
        if let Some(link) = &mut state.links[connection as usize] {
            link.unread.extend_from_slice(&worker.buffer[done..]);
            state.session.note_pending_input(connection, waits);
        }
        waits
    }

    /// Ends a session whose processing panicked.
    fn contain(
        &self,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        now: Millis,
        panic: &(dyn std::any::Any + Send),
    ) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        log::panicked(&state.config.name, &text);
        for connection in Connection::ALL {
            self.close(slot, state, connection);
        }
        // The session may be in any state, so a new one replaces it; its neighbor sees the connection close.
        self.replace_session(slot, state, now);
    }
}

/// Reads from a connection into the worker's buffer, after the bytes that were left unprocessed.
fn take_bytes(
    worker: &mut SpeakerWorker,
    state: &mut PeerState,
    connection: Connection,
    profile: &Profile,
) -> Look {
    let SpeakerWorker { buffer, arrived, .. } = worker;
    buffer.clear();
    let Some(link) = &mut state.links[connection as usize] else { return Look::Nothing };
    if link.connecting {
        return Look::Nothing;
    }
    buffer.append(&mut link.unread);
    if buffer.len() >= READ_BYTES {
        // The longest message fits, so the buffer holds something to process first.
        return Look::Some;
    }
    let read = profile.time(Function::Read, || {
        arrived.resize(READ_BYTES, 0);
        link.stream.read(arrived)
    });
    let (bytes, look) = match read {
        Ok(0) => (0, Look::Ended),
        Ok(bytes) if bytes < READ_BYTES && link.stream.short_read_is_last() => (bytes, Look::Nothing),
        Ok(bytes) => (bytes, Look::Some),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, Look::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, Look::Some),
        Err(_) => (0, Look::Ended),
    };
    buffer.extend_from_slice(&arrived[..bytes]);
    look
}

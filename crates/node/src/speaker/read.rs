//! Reading a neighbour's connections.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Connection;
use thalweg_exec::control::Reading;
use thalweg_wire::bgp::Family;

use super::profile::{Function, Profile};
use super::shards::Work;
use super::slot::{PeerSlot, PeerState, READ_BYTES};
use super::{Speaker, SpeakerWorker, log};

/// What one look at a connection showed.
enum Look {
    /// Nothing now.
    Nothing,
    /// Something, and perhaps more.
    Some,
    /// It is over.
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
            // A new session begins when the routes of the last one are gone, or they would take its own along.
            slot.note_ready(true, false);
            return Reading { batch: None, more: true };
        }
        let mut state = slot.lock();
        let worked = catch_unwind(AssertUnwindSafe(|| self.read_links(worker, slot, &mut state, now)));
        let (more, ended, after) = worked.unwrap_or_else(|panic| {
            self.contain(slot, &mut state, now, &*panic);
            (false, true, Vec::new())
        });
        if more {
            slot.note_ready(true, false);
        }
        let routes = worker.builder.finish(slot.id, now.seconds());
        let epoch = slot.epoch.load(Ordering::Acquire);
        drop(state);
        let batch = (!ended && !(routes.is_empty() && after.is_empty())).then(|| Work {
            slot: Some(slot.clone()),
            epoch,
            routes,
            after,
        });
        Reading { batch, more }
    }

    /// Reads both connections; whether there may be more, whether a session ended, and what the shards have to
    /// do after the routes.
    fn read_links(
        &self,
        worker: &mut SpeakerWorker,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        now: Millis,
    ) -> (bool, bool, Vec<super::shards::ShardOp>) {
        let (mut more, mut ended, mut after) = (false, false, Vec::new());
        self.check_connecting(slot, state, now);
        for family in Family::ALL {
            let count = slot.paths[family.index()].load(Ordering::Relaxed).max(0);
            state.session.note_prefix_count(family, count as u32, now);
        }
        ended |= self.drive(slot, state, now, &mut after);
        for connection in Connection::ALL {
            match read_link(worker, state, connection, now, &self.profile) {
                Look::Nothing => {}
                Look::Some => more = true,
                Look::Ended => {
                    self.close(slot, state, connection);
                    state.session.handle_disconnected(connection, now);
                }
            }
            ended |= self.drive(slot, state, now, &mut after);
        }
        (more, ended, after)
    }

    /// A panic while a session was worked on ends that session.
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
        // The session that panicked may be in any state; it is replaced by a new one, and what it was
        // connected to learns of it by the connection's end.
        self.replace_session(slot, state, now);
    }
}

/// Reads a connection once and works off what came.
fn read_link(
    worker: &mut SpeakerWorker,
    state: &mut PeerState,
    connection: Connection,
    now: Millis,
    profile: &Profile,
) -> Look {
    let Some(link) = &mut state.links[connection as usize] else { return Look::Nothing };
    if link.connecting {
        return Look::Nothing;
    }
    let kept = link.unread.len();
    let buffer = &mut worker.buffer;
    if buffer.len() < kept + READ_BYTES {
        buffer.resize(kept + READ_BYTES, 0);
    }
    buffer[..kept].copy_from_slice(&link.unread);
    let read = profile.time(Function::Read, || link.stream.read(&mut buffer[kept..kept + READ_BYTES]));
    let (octets, look) = match read {
        Ok(0) => (0, Look::Ended),
        Ok(octets) => (octets, Look::Some),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, Look::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => (0, Look::Some),
        Err(_) => (0, Look::Ended),
    };
    link.unread.clear();
    let all = &buffer[..kept + octets];
    let used = profile.time(Function::Parse, || {
        state.session.handle_bytes(connection, all, now, &mut state.importer, &mut worker.builder)
    });
    let rest = &all[used.min(all.len())..];
    let Some(link) = &mut state.links[connection as usize] else { return look };
    link.unread.extend_from_slice(rest);
    state.session.note_pending_input(connection, matches!(look, Look::Some));
    // The session stopped before the end: there is something to do before it goes on.
    match look {
        Look::Nothing if used > 0 && !rest.is_empty() => Look::Some,
        look => look,
    }
}

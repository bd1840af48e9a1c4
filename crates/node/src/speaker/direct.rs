//! Neighbors on our own links: a link that goes down ends their sessions at once, and one that returns starts them.
//!
//! This applies to external neighbors one hop away (RFC 4271 8.2.1.4, event 18: TcpConnectionFails). Others may be
//! reachable another way, so their hold timer decides.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Connection;

use super::Speaker;
use super::slot::{PeerSlot, PeerState};

impl Speaker {
    /// The addresses of external neighbors one hop away.
    pub fn direct_neighbors(&self) -> Vec<IpAddr> {
        let slots = self.slots_in_use();
        let direct = slots.iter().filter_map(|slot| {
            let state = self.look(slot);
            let kind = state.negotiated.as_ref().map(|negotiated| negotiated.kind);
            let kind = kind.or_else(|| state.config.certain_kind())?;
            state.config.is_one_hop_away(kind).then_some(state.config.address)
        });
        direct.collect()
    }

    /// Ends the session with a neighbor whose link is down. `what` describes the event in the log.
    pub fn handle_link_down(&self, neighbor: IpAddr, what: &str) {
        let now = self.last_time();
        self.with_slot(neighbor, now, |speaker, slot, state| {
            state.session.handle_link_down(what, now);
            // A pending connection cannot succeed either; the next attempt opens a new one.
            for connection in Connection::ALL {
                speaker.close(slot, state, connection);
            }
        });
        self.wake();
    }

    /// Starts the session with a neighbor whose link is back.
    pub fn handle_link_up(&self, neighbor: IpAddr) {
        let now = self.last_time();
        self.with_slot(neighbor, now, |_, _, state| state.session.handle_link_up(now));
        self.wake();
    }

    /// The time of the scheduling's last tick, for other threads.
    pub(super) fn last_time(&self) -> Millis {
        Millis(self.now_ms.load(Ordering::Relaxed))
    }

    /// Runs `act` on a neighbor's slot, and then carries out the session's actions.
    pub(super) fn with_slot(
        &self,
        neighbor: IpAddr,
        now: Millis,
        act: impl FnOnce(&Self, &Arc<PeerSlot>, &mut PeerState),
    ) {
        let id = self.by_address.lock().get(&neighbor).copied();
        let Some(slot) = id.and_then(|id| self.slot(id.index())) else { return };
        {
            let mut state = slot.lock();
            act(self, &slot, &mut state);
            self.drive_alone(&slot, &mut state, now);
        }
        self.write_slot(&slot, now);
    }
}

//! Neighbors on our own links: a link that goes down ends their sessions at once, and one that returns starts them.
//!
//! This applies to external neighbors one hop away (RFC 4271 8.2.1.4, event 18: TcpConnectionFails). Others may be
//! reachable another way, so their hold timer decides.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_bgp::peer::{Millis, PeerKind};
use thalweg_bgp::session::config::RemoteAs;
use thalweg_bgp::session::{Connection, NeighborConfig};

use super::slot::{PeerSlot, PeerState};
use super::{Speaker, lock};

impl Speaker {
    /// The addresses of external neighbors one hop away.
    pub fn direct_neighbors(&self) -> Vec<IpAddr> {
        let slots = self.slots_in_use();
        let configs = slots.iter().map(|slot| slot.lock().config.clone());
        configs.filter(|config| is_direct(config)).map(|config| config.address).collect()
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
    fn last_time(&self) -> Millis {
        Millis(self.now_ms.load(Ordering::Relaxed))
    }

    /// Runs `act` on a neighbor's slot, and then carries out the session's actions.
    pub(super) fn with_slot(
        &self,
        neighbor: IpAddr,
        now: Millis,
        act: impl FnOnce(&Self, &Arc<PeerSlot>, &mut PeerState),
    ) {
        let id = lock(&self.by_address).get(&neighbor).copied();
        let Some(slot) = id.and_then(|id| self.slot(id.index())) else { return };
        {
            let mut state = slot.lock();
            act(self, &slot, &mut state);
            self.drive_alone(&slot, &mut state, now);
        }
        self.write_slot(&slot, now);
    }
}

/// Whether a neighbor is external and on one of our links.
fn is_direct(neighbor: &NeighborConfig) -> bool {
    let is_external = match neighbor.remote_as {
        RemoteAs::One(asn) => neighbor.kind(asn) == PeerKind::External,
        RemoteAs::AnyOf(_) | RemoteAs::Any => true,
    };
    let hops = neighbor.transport.ttl_security_hops.or(neighbor.transport.multihop_ttl);
    is_external && hops.is_none_or(|hops| hops <= 1) && !neighbor.address.is_loopback()
}

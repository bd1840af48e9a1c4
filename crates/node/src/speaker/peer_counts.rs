//! Tells the counts of a neighbor what a piece of work in a shard has changed.

use thalweg_bgp::peer::PeerId;
use thalweg_bgp::rib::RibShard;
use thalweg_wire::bgp::Family;

use super::slot::PeerSlot;

/// The routes of a neighbor in a shard before a piece of work: in the RIB and as received, by family.
pub(super) struct Counted {
    paths: [usize; 2],
    received: [usize; 2],
    refused: u64,
}

impl Counted {
    pub(super) fn of(rib: &RibShard, peer: PeerId) -> Self {
        Self {
            paths: Family::ALL.map(|family| rib.peer_paths(peer, family)),
            received: Family::ALL.map(|family| rib.peer_received(peer, family)),
            refused: rib.received_refused(),
        }
    }

    /// Tells the neighbor's counts what the work has changed.
    pub(super) fn note(self, rib: &RibShard, slot: &PeerSlot) {
        let after = Self::of(rib, slot.id);
        for family in Family::ALL {
            let at = family.index();
            slot.paths.count(family, self.paths[at], after.paths[at]);
            slot.paths.count_received(family, self.received[at], after.received[at]);
        }
        if after.refused != self.refused {
            slot.paths.note_received_refused();
        }
    }
}

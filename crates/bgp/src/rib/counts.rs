//! The counters of a family of a shard.

use crate::peer::PeerId;

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) announced: u64,
    pub(super) replaced: u64,
    pub(super) repeated: u64,
    pub(super) withdrawn: u64,
    pub(super) unknown_withdrawn: u64,
    pub(super) changes: u64,
    pub(super) prefixes_refused: u64,
    pub(super) paths_refused: u64,
}

/// The number of paths by neighbor.
#[derive(Default)]
pub(super) struct PeerCounts {
    local: u32,
    peers: Vec<u32>,
    /// The most paths of a neighbor.
    pub(super) max: Option<usize>,
}

impl PeerCounts {
    #[inline]
    fn slot(&mut self, peer: PeerId) -> &mut u32 {
        if peer == PeerId::LOCAL {
            return &mut self.local;
        }
        if self.peers.len() <= peer.index() {
            self.peers.resize(peer.index() + 1, 0);
        }
        &mut self.peers[peer.index()]
    }

    #[inline]
    pub(super) fn add(&mut self, peer: PeerId) {
        *self.slot(peer) += 1;
    }

    #[inline]
    pub(super) fn remove(&mut self, peer: PeerId) {
        *self.slot(peer) -= 1;
    }

    /// Whether the neighbor has as many paths as it may.
    #[inline]
    pub(super) fn is_full(&self, peer: PeerId) -> bool {
        self.max.is_some_and(|max| self.get(peer) >= max)
    }

    pub(super) fn get(&self, peer: PeerId) -> usize {
        let count = if peer == PeerId::LOCAL { Some(&self.local) } else { self.peers.get(peer.index()) };
        count.map_or(0, |count| *count as usize)
    }

    pub(super) fn bytes(&self) -> usize {
        self.peers.capacity() * size_of::<u32>()
    }
}

//! Assigns slots to neighbors.
//!
//! Two things can fail: there may be [`PEERS_MAX`] neighbors already, and the kernel may refuse a password on a
//! listening socket. Both are checked before anything changes, and passwords already set are restored when
//! something else fails: either all neighbors get their slots or none does.

use std::io;
use std::sync::Arc;

use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::session::{Importer, NeighborConfig, Session};

use super::network::Network;
use super::slot::{PathCounts, PeerSlot, PeerState};
use super::{Speaker, lock, log};

/// Neighbors at most, dynamic ones included.
pub(super) const PEERS_MAX: usize = 16_384;

/// Neighbors that the network was told to expect. Dropping it undoes that, unless it was [kept](Self::keep).
pub(super) struct Expecting<'a> {
    network: &'a dyn Network,
    undo: Vec<(Arc<NeighborConfig>, bool)>,
}

impl<'a> Expecting<'a> {
    pub(super) fn new(network: &'a dyn Network) -> Self {
        Self { network, undo: Vec::new() }
    }

    /// Expects a neighbor, in place of the one expected at its address before.
    pub(super) fn expect(
        &mut self,
        neighbor: &Arc<NeighborConfig>,
        was: Option<Arc<NeighborConfig>>,
    ) -> io::Result<()> {
        self.network.expect(neighbor, true)?;
        self.undo.push(was.map_or_else(|| (neighbor.clone(), false), |was| (was, true)));
        Ok(())
    }

    pub(super) fn keep(mut self) {
        self.undo.clear();
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        while let Some((neighbor, expected)) = self.undo.pop() {
            if let Err(error) = self.network.expect(&neighbor, expected) {
                log::password_stays(&neighbor.name, &error);
            }
        }
    }
}

impl Speaker {
    /// Gives a neighbor a slot and starts its session.
    pub(super) fn add_neighbor(
        &self,
        config: Arc<NeighborConfig>,
        dynamic: bool,
        now: Millis,
    ) -> io::Result<Arc<PeerSlot>> {
        let mut expecting = Expecting::new(&*self.network);
        let added = self
            .add_neighbors(std::slice::from_ref(&config), dynamic, now, || expecting.expect(&config, None))?;
        expecting.keep();
        added.into_iter().next().ok_or_else(|| io::Error::other("there is no place"))
    }

    /// Gives neighbors slots and starts their sessions, if there is a slot for each and `consent`, called after
    /// that check, succeeds. A neighbor that already has one of the addresses is retired.
    pub(super) fn add_neighbors(
        &self,
        configs: &[Arc<NeighborConfig>],
        dynamic: bool,
        now: Millis,
        consent: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Vec<Arc<PeerSlot>>> {
        let mut slots = self.slots.write();
        let free = slots.iter().map(|slot| slot.is_free() && !slot.is_withdrawing());
        let places = places(free, configs.len(), PEERS_MAX)
            .ok_or_else(|| io::Error::other(format!("there may be {PEERS_MAX} neighbors")))?;
        consent()?;
        let (mut added, mut replaced) = (Vec::with_capacity(configs.len()), Vec::new());
        for (&index, config) in places.iter().zip(configs) {
            let slot = self.new_slot(index, config, dynamic, now);
            match slots.get_mut(index) {
                Some(place) => {
                    self.shards.iter().for_each(|shard| shard.rib().forget_peer(slot.id));
                    *place = slot.clone();
                }
                None => slots.push(slot.clone()),
            }
            replaced.extend(lock(&self.by_address).insert(config.address, slot.id));
            added.push(slot);
        }
        drop(slots);
        for slot in replaced.iter().filter_map(|id| self.slot(id.index())) {
            let mut state = slot.lock();
            self.retire(&slot, &mut state, now);
        }
        Ok(added)
    }

    fn new_slot(
        &self,
        index: usize,
        config: &Arc<NeighborConfig>,
        dynamic: bool,
        now: Millis,
    ) -> Arc<PeerSlot> {
        let id = PeerId(index as u16);
        let mut session = Session::new(config.clone(), id, self.seed.wrapping_add(index as u64));
        session.set_restarting(self.restart.is_active());
        if config.enabled {
            session.handle_start(now);
        }
        let state = PeerState {
            paths: Arc::new(PathCounts::new(config)),
            session,
            importer: Importer::new(self.interner.clone()),
            links: [None, None],
            negotiated: None,
            sending: None,
            written_bytes: 0,
            dynamic,
            config: config.clone(),
        };
        Arc::new(PeerSlot::new(id, state))
    }

    /// The configuration of the neighbor at this address now.
    pub(super) fn config_at(&self, config: &NeighborConfig) -> Option<Arc<NeighborConfig>> {
        let id = lock(&self.by_address).get(&config.address).copied()?;
        let slot = self.slot(id.index())?;
        let was = slot.lock().config.clone();
        Some(was)
    }

    /// Frees the neighbor's address, unless another neighbor already has it.
    pub(super) fn give_up_address(&self, slot: &PeerSlot, config: &NeighborConfig) {
        let mut by_address = lock(&self.by_address);
        if by_address.get(&config.address) != Some(&slot.id) {
            return;
        }
        by_address.remove(&config.address);
        drop(by_address);
        if let Err(error) = self.network.expect(config, false) {
            log::password_stays(&config.name, &error);
        }
    }
}

/// Indexes of `wanted` slots: free ones first, then new ones. `None` if there would be more than `max`.
fn places(free: impl Iterator<Item = bool>, wanted: usize, max: usize) -> Option<Vec<usize>> {
    let (mut count, mut places) = (0, Vec::with_capacity(wanted));
    for is_free in free {
        if is_free && places.len() < wanted {
            places.push(count);
        }
        count += 1;
    }
    let more = wanted - places.len();
    places.extend(count..count + more);
    (more == 0 || count + more <= max).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn free_places_are_taken_first() {
        let free = [false, true, false, true];
        let at_most = |wanted, max| places(free.into_iter(), wanted, max);
        assert_eq!(at_most(0, 4), Some(vec![]));
        assert_eq!(at_most(1, 4), Some(vec![1]));
        assert_eq!(at_most(2, 4), Some(vec![1, 3]));
        assert_eq!(at_most(4, 6), Some(vec![1, 3, 4, 5]));
    }

    #[test]
    fn there_are_only_so_many() {
        assert_eq!(places([true, false].into_iter(), 2, 2), None);
        assert_eq!(places([false; 3].into_iter(), 1, 3), None);
        assert_eq!(places([true; 3].into_iter(), 3, 3), Some(vec![0, 1, 2]));
        assert_eq!(places(std::iter::empty(), 1, 0), None);
    }
}

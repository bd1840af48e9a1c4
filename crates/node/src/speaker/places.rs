//! Assigns slots to neighbors.
//!
//! Two things can fail: there may be [`PEERS_MAX`] neighbors already, and the kernel may refuse a password on a
//! listening socket. A reload [reserves](Reservation) both before anything changes: either all its neighbors get
//! their slots or none does.

use std::io;
use std::sync::Arc;

use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::session::{NeighborConfig, Session};

use super::slot::{PeerSlot, PeerState};
use super::{Speaker, log};

/// Neighbors at most, dynamic ones included.
pub(super) const PEERS_MAX: usize = 16_384;

/// What a prepared reload holds: slots for new neighbors, and passwords on listening sockets. Dropping it gives them
/// back, unless it was [used](Self::give_slots).
pub(super) struct Reservation<'s> {
    speaker: &'s Speaker,
    expected: Vec<Arc<NeighborConfig>>,
}

impl Reservation<'_> {
    /// Expects a neighbor, in place of the one at its address.
    pub(super) fn expect(&mut self, neighbor: &Arc<NeighborConfig>) -> io::Result<()> {
        self.speaker.network.expect(neighbor, true)?;
        self.expected.push(neighbor.clone());
        Ok(())
    }

    /// Gives the neighbors for whom slots were reserved their slots, and starts their sessions.
    pub(super) fn give_slots(mut self, neighbors: &[Arc<NeighborConfig>], now: Millis) {
        self.expected.clear();
        let mut slots = self.speaker.slots.write();
        let replaced =
            neighbors.iter().map(|neighbor| self.speaker.place(&mut slots, neighbor, false, now).1);
        let replaced: Vec<PeerId> = replaced.flatten().collect();
        drop(slots);
        replaced.into_iter().for_each(|id| self.speaker.retire_replaced(id, now));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        for neighbor in self.expected.drain(..) {
            let restored = match self.speaker.config_at(&neighbor) {
                Some(was) => self.speaker.network.expect(&was, true),
                None => self.speaker.network.expect(&neighbor, false),
            };
            if let Err(error) = restored {
                log::password_stays(&neighbor.name, &error);
            }
        }
        self.speaker.reserved.lock().clear();
    }
}

impl Speaker {
    /// Reserves slots for new neighbors; one reload at a time.
    pub(super) fn reserve(&self, neighbors: &[Arc<NeighborConfig>]) -> io::Result<Reservation<'_>> {
        let slots = self.slots.read();
        check_room(in_use(&slots), neighbors.len())?;
        self.reserved.lock().extend(neighbors.iter().map(|neighbor| neighbor.address));
        Ok(Reservation { speaker: self, expected: Vec::new() })
    }

    /// Gives a neighbor a slot and starts its session. A neighbor that already has the address is retired.
    pub(super) fn add_neighbor(
        &self,
        config: Arc<NeighborConfig>,
        dynamic: bool,
        now: Millis,
    ) -> io::Result<Arc<PeerSlot>> {
        let mut slots = self.slots.write();
        {
            let reserved = self.reserved.lock();
            if reserved.contains(&config.address) {
                return Err(io::Error::other("a reload that is under way configures this neighbor"));
            }
            check_room(in_use(&slots), reserved.len() + 1)?;
        }
        self.network.expect(&config, true)?;
        let (slot, replaced) = self.place(&mut slots, &config, dynamic, now);
        drop(slots);
        if let Some(id) = replaced {
            self.retire_replaced(id, now);
        }
        Ok(slot)
    }

    /// Puts a neighbor into the first free slot, or a new one. Returns the slot, and the neighbor that had the
    /// address.
    fn place(
        &self,
        slots: &mut Vec<Arc<PeerSlot>>,
        config: &Arc<NeighborConfig>,
        dynamic: bool,
        now: Millis,
    ) -> (Arc<PeerSlot>, Option<PeerId>) {
        let index = slots.iter().position(|slot| is_free(slot)).unwrap_or(slots.len());
        let slot = self.new_slot(index, config, dynamic, now);
        match slots.get_mut(index) {
            Some(place) => {
                self.shards.iter().for_each(|shard| shard.rib().forget_peer(slot.id));
                *place = slot.clone();
            }
            None => slots.push(slot.clone()),
        }
        let replaced = self.by_address.lock().insert(config.address, slot.id);
        (slot, replaced)
    }

    fn retire_replaced(&self, id: PeerId, now: Millis) {
        if let Some(slot) = self.slot(id.index()) {
            let mut state = self.look(&slot);
            self.retire(&slot, &mut state, now);
        }
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
            session,
            importer: None,
            links: [None, None],
            negotiated: None,
            sending: None,
            written_bytes: 0,
            dynamic,
            config: config.clone(),
        };
        let slot = PeerSlot::new(id, state);
        self.note_deadline(&slot);
        Arc::new(slot)
    }

    /// The configuration of the neighbor at this address now.
    pub(super) fn config_at(&self, config: &NeighborConfig) -> Option<Arc<NeighborConfig>> {
        let id = self.by_address.lock().get(&config.address).copied()?;
        let slot = self.slot(id.index())?;
        let was = self.look(&slot).config.clone();
        Some(was)
    }

    /// Frees the neighbor's address, unless another neighbor already has it.
    pub(super) fn give_up_address(&self, slot: &PeerSlot, config: &NeighborConfig) {
        let mut by_address = self.by_address.lock();
        if by_address.get(&config.address) != Some(&slot.id) {
            return;
        }
        by_address.remove(&config.address);
        drop(by_address);
        if self.reserved.lock().contains(&config.address) {
            // The next neighbor there is expected already.
            return;
        }
        if let Err(error) = self.network.expect(config, false) {
            log::password_stays(&config.name, &error);
        }
    }
}

fn is_free(slot: &PeerSlot) -> bool {
    slot.is_free() && !slot.is_withdrawing()
}

fn in_use(slots: &[Arc<PeerSlot>]) -> usize {
    slots.iter().filter(|slot| !is_free(slot)).count()
}

/// Fails unless `wanted` more neighbors get slots.
fn check_room(in_use: usize, wanted: usize) -> io::Result<()> {
    match in_use + wanted <= PEERS_MAX {
        true => Ok(()),
        false => Err(io::Error::other(format!("there may be {PEERS_MAX} neighbors"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{PEERS_MAX, check_room};

    #[test]
    fn there_are_only_so_many() {
        assert!(check_room(PEERS_MAX - 1, 1).is_ok());
        assert!(check_room(PEERS_MAX, 0).is_ok());
        assert!(check_room(PEERS_MAX - 1, 2).is_err());
        assert!(check_room(PEERS_MAX, 1).is_err());
    }
}

//! Maps a key's hash to the slot of its flow: buckets of one cache line, with eight tags and eight slots.
//!
//! A flow is in one of two buckets, both given by its hash: in the first if that has room to spare, otherwise
//! in the emptier one. So most look-ups read one line, none reads more than two, and no flow ever moves.
//! Choosing the emptier of two makes full buckets rare (Azar, Broder, Karlin and Upfal, 1994). In a full
//! cache half of the places are taken and one flow in seven is in its second bucket; of 2.8 million flows
//! none found both buckets full (`a_full_index_has_room_for_everybody`). At a load of six in ten, 2 in
//! 100,000 did, and one flow in four was in its second bucket.
//!
//! The flow's entry records which bucket it is in ([`Place::second`]), so removal touches only that one.
//! (Placing both buckets in one page of 4 KiB would spare the TLB and gains 5 % in a flood. But pages fill
//! less evenly than the whole, and some flows would find both buckets full.)
//!
//! The system provides zeroed memory when it is touched. The indexes of all shards share one piece of it.

use crate::memory::{self, Laid, Share};
use thalweg_base::{Refused, prefetch_all};

/// Flows in a bucket.
const PLACES: usize = 8;
/// The first bucket takes this many flows before the second one is considered.
const PREFERRED: u32 = 6;
/// Places per flow of a full cache.
const PLACES_PER_FLOW: u64 = 2;

/// Tags, then slots. Tag 0 marks a free place.
type Bucket = [u32; 2 * PLACES];

/// The place of a flow, or of a flow to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    bucket: u32,
    place: u32,
    pub(crate) second: bool,
}

/// Finds flows by hash; see the module documentation.
#[derive(Debug)]
pub(crate) struct Index {
    buckets: Share<Bucket>,
    count: u32,
}

impl Index {
    pub(crate) fn new(indexes: usize, flows_max: u32, huge_pages: bool) -> Result<Vec<Self>, Refused> {
        let places = u64::from(flows_max) * PLACES_PER_FLOW;
        let count = places.div_ceil(PLACES as u64).max(2) as u32;
        let shares = Share::zeroed(indexes, count as usize, Laid::Apart, huge_pages)?;
        Ok(shares.into_iter().map(|buckets| Self { buckets, count }).collect())
    }

    /// Counts all buckets, touched or not.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    pub(crate) fn buckets(&self) -> usize {
        self.count as usize
    }

    #[inline(always)]
    fn pair(&self, hash: u64) -> [u32; 2] {
        let bucket = |half: u32| ((u64::from(half) * u64::from(self.count)) >> 32) as u32;
        [bucket(hash as u32), bucket((hash >> 32) as u32)]
    }

    /// Uses other bits of the hash than the buckets do.
    #[inline(always)]
    fn tag(hash: u64) -> u32 {
        (hash as u32 ^ (hash >> 32) as u32).max(1)
    }

    /// A bit for each place of the bucket with this tag.
    #[inline(always)]
    fn tagged(bucket: &Bucket, tag: u32) -> u32 {
        bucket.first_chunk().map_or(0, |tags| memory::places_of(tag, tags))
    }

    /// Prefetches the first or the second bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64, second: bool) {
        prefetch_all(&self.buckets[self.pair(hash)[usize::from(second)] as usize]);
    }

    /// A slot in the first bucket that is probably the flow's; prefetches the second bucket if there is none.
    #[inline(always)]
    pub(crate) fn guess(&self, hash: u64) -> Option<u32> {
        let [first, second] = self.pair(hash);
        let guess = self.guess_in(first, hash);
        if guess.is_none() {
            prefetch_all(&self.buckets[second as usize]);
        }
        guess
    }

    /// [`Self::guess`] for the second bucket.
    #[inline(always)]
    pub(crate) fn guess_second(&self, hash: u64) -> Option<u32> {
        self.guess_in(self.pair(hash)[1], hash)
    }

    #[inline(always)]
    fn guess_in(&self, bucket: u32, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[bucket as usize];
        let places = Self::tagged(bucket, Self::tag(hash));
        (places != 0).then(|| bucket[PLACES + places.trailing_zeros() as usize])
    }

    /// The slot with this hash for which `is` returns `true`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let (tag, [first, second]) = (Self::tag(hash), self.pair(hash));
        let found = match self.place_in(first, tag, &mut is) {
            None => self.place_in(second, tag, &mut is),
            found => found,
        };
        found.map(|(_, slot)| slot)
    }

    /// The matching place in this bucket, and its slot.
    #[inline(always)]
    fn place_in(&self, bucket: u32, tag: u32, is: &mut impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let words = &self.buckets[bucket as usize];
        let mut places = Self::tagged(words, tag);
        while places != 0 {
            let place = places.trailing_zeros() as usize;
            let slot = words[PLACES + place];
            if is(slot) {
                return Some((place, slot));
            }
            places &= places - 1;
        }
        None
    }

    /// A free place for a flow with this hash; `None` if both its buckets are full.
    #[inline(always)]
    pub(crate) fn vacancy(&self, hash: u64) -> Option<Place> {
        let [first, second] = self.pair(hash);
        let free = |bucket: u32| Self::tagged(&self.buckets[bucket as usize], 0);
        let of_first = free(first);
        let used = PLACES as u32 - of_first.count_ones();
        let (bucket, places) = if used < PREFERRED {
            (first, of_first)
        } else {
            let of_second = free(second);
            if of_second.count_ones() > of_first.count_ones() {
                (second, of_second)
            } else {
                (first, of_first)
            }
        };
        (places != 0).then_some(Place { bucket, place: places.trailing_zeros(), second: bucket != first })
    }

    /// The slots in the first bucket of this hash; one of them is evicted if there is no vacancy.
    pub(crate) fn rivals(&self, hash: u64) -> [u32; PLACES] {
        let bucket = &self.buckets[self.pair(hash)[0] as usize];
        std::array::from_fn(|place| bucket[PLACES + place])
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, place: Place, hash: u64, slot: u32) {
        let bucket = &mut self.buckets[place.bucket as usize];
        debug_assert_eq!(bucket[place.place as usize], 0);
        bucket[place.place as usize] = Self::tag(hash);
        bucket[PLACES + place.place as usize] = slot;
    }

    /// Removes a slot from the bucket that holds it.
    #[inline(always)]
    pub(crate) fn remove(&mut self, hash: u64, slot: u32, second: bool) {
        let bucket = self.pair(hash)[usize::from(second)];
        let found = self.place_in(bucket, Self::tag(hash), &mut |other| other == slot);
        debug_assert!(found.is_some(), "a flow in the cache is in the index");
        if let Some((place, _)) = found {
            self.buckets[bucket as usize][place] = 0;
        }
    }

    pub(crate) fn clear(&mut self) {
        (0..self.count as usize).for_each(|bucket| self.buckets[bucket] = [0; 2 * PLACES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    #[test]
    fn a_full_index_has_room_for_everybody() {
        let mut rng = XorShift64Star::new(9);
        let (mut refused, mut in_second, mut sought) = (0u64, 0u64, 0u64);
        for flows_max in [16u32, 1000, 65_536, 500_000] {
            let mut index = Index::new(1, flows_max, false).unwrap().remove(0);
            let mut hashes = std::collections::VecDeque::new();
            for slot in 0..flows_max * 5 {
                if hashes.len() == flows_max as usize {
                    let (hash, slot, second) = hashes.pop_front().unwrap();
                    index.remove(hash, slot, second);
                }
                let hash = rng.next_u64();
                match index.vacancy(hash) {
                    Some(place) => {
                        in_second += u64::from(place.second);
                        index.put(place, hash, slot);
                        hashes.push_back((hash, slot, place.second));
                    }
                    None => refused += 1,
                }
                sought += 1;
            }
            for (hash, slot, _) in hashes {
                assert_eq!(index.find(hash, |found| found == slot), Some(slot));
                assert_eq!(index.find(hash ^ 1 << 20, |found| found == slot), None);
            }
        }
        assert_eq!(refused, 0, "of {sought}");
        assert!(in_second * 6 < sought, "{in_second} of {sought} in their second bucket");
    }

    #[test]
    fn a_flow_in_either_bucket_is_found_and_what_was_taken_out_is_not() {
        let mut index = Index::new(2, 100, true).unwrap().remove(1);
        let hash = 0x1234_5678_9abc_def0;
        let (mut slots, mut seconds) = (Vec::new(), Vec::new());
        while let Some(place) = index.vacancy(hash) {
            let slot = slots.len() as u32 + 100;
            index.put(place, hash, slot);
            slots.push(slot);
            seconds.push(place.second);
        }
        assert_eq!(slots.len(), 2 * PLACES);
        assert_eq!(seconds.iter().filter(|second| **second).count(), PLACES);
        assert!(slots.iter().all(|slot| index.find(hash, |found| found == *slot) == Some(*slot)));
        assert!(index.rivals(hash).iter().all(|slot| slots.contains(slot)));
        index.remove(hash, 104, seconds[4]);
        assert_eq!(index.find(hash, |slot| slot == 104), None);
        assert!(index.vacancy(hash).is_some());
        index.clear();
        assert_eq!(index.find(hash, |_| true), None);
    }
}

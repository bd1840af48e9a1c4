//! Admission to a full cache in a flood of single-packet flows.
//!
//! Each such flow would evict another one and soon be evicted itself, for a record that can be made at once.
//! So while nearly all victims have only one packet, one new flow in [`ADMITTED`] enters the cache, and the
//! first packet of any other becomes a record. A flow that goes on enters soon, at the cost of few additional
//! records (sample and hold: Estan and Varghese, SIGCOMM 2002). That costs half as much as eviction, and
//! longer flows keep their places.

use thalweg_base::XorShift64Star;

/// In a flood, one new flow in this many enters.
const ADMITTED: u32 = 8;
/// This many single-packet victims are a flood.
const SINGLES: u32 = 64;
/// A victim with several packets cancels this many single-packet ones.
const SEVERAL: u32 = 8;

/// Detects floods; see the module documentation.
#[derive(Debug)]
pub(crate) struct Flood {
    singles: u32,
    chance: XorShift64Star,
}

impl Flood {
    pub(crate) fn new(seed: u64) -> Self {
        Self { singles: 0, chance: XorShift64Star::new(seed) }
    }

    /// Notes an evicted flow with this many packets.
    #[inline(always)]
    pub(crate) fn note_victim(&mut self, packets: u32) {
        self.singles = match packets {
            0 | 1 => (self.singles + 1).min(SINGLES),
            _ => self.singles.saturating_sub(SEVERAL),
        };
    }

    /// Whether a new flow enters the full cache; in a flood most do not.
    #[inline(always)]
    pub(crate) fn admits(&mut self) -> bool {
        self.singles < SINGLES || self.chance.below(ADMITTED) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(flood: &mut Flood) -> usize {
        (0..8000).filter(|_| flood.admits()).count()
    }

    #[test]
    fn most_flows_stay_outside_while_victims_have_one_packet_each() {
        let mut flood = Flood::new(7);
        (1..SINGLES).for_each(|_| flood.note_victim(1));
        assert_eq!(admitted(&mut flood), 8000, "not yet");
        flood.note_victim(1);
        assert!((800..1200).contains(&admitted(&mut flood)));
        flood.note_victim(2);
        assert_eq!(admitted(&mut flood), 8000, "flows of several packets go, too");
        (0..SEVERAL).for_each(|_| flood.note_victim(1));
        assert!(admitted(&mut flood) < 1200);
        (0..100).for_each(|_| flood.note_victim(1000));
        (1..SINGLES).for_each(|_| flood.note_victim(1));
        assert_eq!(admitted(&mut flood), 8000);
    }
}

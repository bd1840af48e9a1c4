//! A flood of flows of one packet each, while there is no room: most of them are not let into the cache.
//!
//! Each would drive out another of its kind and be driven out in turn, for a record that can be made at once. So as long as
//! nearly all flows that have to go had but one packet, one new flow in [`ADMITTED`] is let in, and the first packet of any other
//! is a record. A flow that goes on is let in soon, with few records more than it would have had (sample and hold: Estan and
//! Varghese, SIGCOMM 2002). That costs half of what eviction costs, and flows that are worth their place keep it.

use thalweg_base::XorShift64Star;

/// One new flow in so many is let in.
const ADMITTED: u32 = 8;
/// So many flows of one packet that had to go are a flood.
const SINGLES: u32 = 64;
/// For so many of them counts a flow of several packets that had to go.
const SEVERAL: u32 = 8;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Flood {
    singles: u32,
    chance: XorShift64Star,
}

impl Flood {
    pub(crate) fn new(seed: u64) -> Self {
        Self { singles: 0, chance: XorShift64Star::new(seed) }
    }

    /// A flow had to go, after so many packets.
    #[inline(always)]
    pub(crate) fn note_victim(&mut self, packets: u32) {
        self.singles = match packets {
            0 | 1 => (self.singles + 1).min(SINGLES),
            _ => self.singles.saturating_sub(SEVERAL),
        };
    }

    /// Whether a new flow, for which there is no room, is let in. Not in a flood, as a rule.
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

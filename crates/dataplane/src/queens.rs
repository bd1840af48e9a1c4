//! Synthetic work: counts the ways to place N queens on an N x N board so that none attacks another.
//!
//! The router emulator of the source article does little real work per packet, so it adds this count to every stage
//! to stand for the work of a real router. We do the same (`--work queens:N`), to compare execution models when
//! computation, not memory or synchronization, dominates.
//!
//! The search goes row by row. Three words hold the attacked columns of the next row: by column, and by the two
//! diagonals, which move one column per row. The free columns are tried one bit after another. There is no table
//! and no allocation, so it measures the core alone. Cost on one core of the development machine: 0.7 microseconds
//! for N = 6, 9 for N = 8; it grows about fourfold per queen.
//!
//! Missing on purpose: mirror symmetry (it would halve the work, and the work is the point).

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

use thalweg_base::mix64;

/// The largest board, which takes tens of seconds. Larger sizes are clamped to it.
pub const QUEENS_MAX: u32 = 16;
const _: () = assert!(QUEENS_MAX < u32::BITS, "the columns of a board are bits of a word");

/// Stages with synthetic work: after bandwidth management, NAT, routing and output.
pub const WORK_STAGES: usize = 4;

/// The board sizes of each stage, from least to largest; each packet's size is drawn from that range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Boards([(u8, u8); WORK_STAGES]);

impl Boards {
    /// The same board for every stage and packet.
    pub fn even(n: u8) -> Self {
        Self([(n, n); WORK_STAGES])
    }

    /// The board of a packet in a stage. It depends only on the packet's number and the stage.
    pub fn of(&self, stage: usize, packet: u64) -> u32 {
        let (least, largest) = self.0[stage % WORK_STAGES];
        let sizes = u64::from(largest.saturating_sub(least)) + 1;
        // A range of one size needs no draw.
        let drawn = if sizes == 1 { 0 } else { mix64(packet ^ ((stage as u64) << 48)) % sizes };
        u32::from(least) + drawn as u32
    }
}

/// `8`; `4-10` to draw; `8/6/8/10` by stage.
impl fmt::Display for Boards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.0.iter().all(|range| *range == self.0[0]) { &self.0[..1] } else { &self.0[..] };
        for (nth, (least, largest)) in shown.iter().enumerate() {
            let slash = if nth > 0 { "/" } else { "" };
            match least == largest {
                true => write!(f, "{slash}{least}")?,
                false => write!(f, "{slash}{least}-{largest}")?,
            }
        }
        Ok(())
    }
}

/// A text that does not describe boards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?}: expected a board from 1 to {QUEENS_MAX}, a range such as 4-10 to draw each packet's from, or one of these for \
     each of the {WORK_STAGES} stages, such as 6/8/6/10"
)]
pub struct UnknownBoards(String);

impl FromStr for Boards {
    type Err = UnknownBoards;

    fn from_str(text: &str) -> Result<Self, UnknownBoards> {
        let wrong = || UnknownBoards(text.to_owned());
        let size = |text: &str| text.parse::<u8>().ok().filter(|n| (1..=QUEENS_MAX).contains(&u32::from(*n)));
        let range = |text: &str| {
            let (least, largest) = text.split_once('-').unwrap_or((text, text));
            Some((size(least)?, size(largest)?)).filter(|(least, largest)| least <= largest)
        };
        let ranges: Option<Vec<(u8, u8)>> = text.split('/').map(range).collect();
        match ranges.ok_or_else(wrong)?.as_slice() {
            [one] => Ok(Self([*one; WORK_STAGES])),
            all => all.try_into().map(Self).map_err(|_| wrong()),
        }
    }
}

/// The number of ways to place `n` queens on an `n` x `n` board; `n` is clamped to `1..=`[`QUEENS_MAX`].
///
/// The compiler can neither compute the result in advance nor drop a call whose result is unused.
pub fn solutions(n: u32) -> u64 {
    let n = black_box(n).clamp(1, QUEENS_MAX);
    let board = (1u32 << n) - 1;
    black_box(place(board, 0, 0, 0))
}

/// Ways to fill the remaining rows, given the columns attacked from above.
fn place(board: u32, columns: u32, left: u32, right: u32) -> u64 {
    if columns == board {
        return 1;
    }
    let mut count = 0;
    let mut free = board & !(columns | left | right);
    while free != 0 {
        let queen = free & free.wrapping_neg();
        free ^= queen;
        count += place(board, columns | queen, (left | queen) << 1, (right | queen) >> 1);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_are_written_as_they_are_read() {
        for text in ["8", "4-10", "8/6/8/10", "1-3/8/8/2"] {
            assert_eq!(text.parse::<Boards>().map(|boards| boards.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("7/7/7/7".parse(), Ok(Boards::even(7)));
        for bad in ["", "0", "17", "9-4", "8/8", "8/8/8/8/8", "a", "4-", "-4"] {
            assert!(bad.parse::<Boards>().is_err(), "{bad}");
        }
    }

    /// All sizes are about equally frequent, and a packet's size never changes.
    #[test]
    fn boards_are_drawn_evenly_and_for_good() {
        let boards: Boards = "4-7/5/5/5".parse().unwrap();
        let mut drawn = [0; 4];
        for packet in 0..4000 {
            let size = boards.of(0, packet);
            assert_eq!(size, boards.of(0, packet));
            drawn[size as usize - 4] += 1;
            assert_eq!(boards.of(1, packet), 5);
        }
        assert!(drawn.iter().all(|times| (900..1100).contains(times)), "{drawn:?}");
        let wide: Boards = "4-7".parse().unwrap();
        assert!((0..100).any(|packet| wide.of(0, packet) != wide.of(1, packet)), "stages draw by themselves");
    }

    #[test]
    fn known_counts() {
        // OEIS A000170.
        let known = [1, 0, 0, 2, 10, 4, 40, 92, 352, 724];
        for (n, expected) in (1..).zip(known) {
            assert_eq!(solutions(n), expected, "{n} queens");
        }
    }

    #[test]
    fn no_board_is_the_smallest_board() {
        assert_eq!(solutions(0), solutions(1));
    }
}

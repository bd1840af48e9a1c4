//! Synthetic work: counting the ways to place N queens on an N x N board so that none attacks another.
//!
//! The router emulator of the source article does little real work per packet, so it adds this count to
//! every stage to stand for the work of a real router, and so do we (`--work queens:N`), to compare
//! execution models when computation, not memory or synchronization, is what takes the time.
//!
//! The search goes row by row. Three words say which columns of the next row are attacked: by column, and
//! by the two diagonals, which move one place per row. One bit of the free columns is tried after the other.
//! There is no table and no allocation, so what is measured is the core alone. Cost on one core of the
//! development machine: 0.7 microseconds for N = 6, 9 for N = 8; it grows about fourfold per queen.
//!
//! Missing on purpose: mirror symmetry (it would halve the work, and the work is the point).

use std::hint::black_box;

/// The largest board, which takes tens of seconds. Larger ones are counted as this.
pub const QUEENS_MAX: u32 = 16;
const _: () = assert!(QUEENS_MAX < u32::BITS, "the columns of a board are bits of a word");

/// Ways to place `n` queens on an `n` x `n` board; `n` is held to `1..=`[`QUEENS_MAX`].
///
/// The compiler can neither compute the result at compile time nor drop the call of a caller who ignores it.
pub fn solutions(n: u32) -> u64 {
    let n = black_box(n).clamp(1, QUEENS_MAX);
    let board = (1u32 << n) - 1;
    black_box(place(board, 0, 0, 0))
}

/// Ways to fill the rows that are left, given the columns attacked from above.
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

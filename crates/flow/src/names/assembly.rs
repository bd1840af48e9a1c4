//! Puts the bytes of a message together that arrive in pieces, in any order.

/// The most bytes of a message: hellos with post-quantum keys and resumed sessions have two to three thousand.
pub(super) const BYTES_MAX: usize = 8192;
/// The most pieces that do not touch each other; some clients cut a hello into dozens on purpose.
const PIECES_MAX: usize = 64;

/// The pieces of one message.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    /// Beginnings and ends of what is there, in order, with gaps between.
    pieces: Vec<(usize, usize)>,
}

impl Assembly {
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + size_of_val(&*self.pieces)
    }

    /// Adds a piece; returns `false` if that makes the message too long, or too many pieces.
    pub(super) fn insert(&mut self, place: u64, piece: &[u8]) -> bool {
        let Some((start, end)) = range(place, piece.len()) else { return false };
        if piece.is_empty() {
            return true;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(piece);
        // All pieces that it touches become one with it.
        let first = self.pieces.partition_point(|(_, end)| *end < start);
        let behind = self.pieces.partition_point(|(start, _)| *start <= end);
        let touched = self.pieces.get(first..behind).unwrap_or_default();
        let start = touched.first().map_or(start, |(first, _)| start.min(*first));
        let end = touched.last().map_or(end, |(_, last)| end.max(*last));
        self.pieces.splice(first..behind.max(first), [(start, end)]);
        self.pieces.len() <= PIECES_MAX
    }

    /// What is there without a gap, from the first byte on.
    pub(super) fn beginning(&self) -> &[u8] {
        match self.pieces.first() {
            Some((0, end)) => &self.bytes[..*end],
            _ => &[],
        }
    }
}

fn range(place: u64, length: usize) -> Option<(usize, usize)> {
    let start = usize::try_from(place).ok()?;
    let end = start.checked_add(length).filter(|end| *end <= BYTES_MAX)?;
    Some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    /// Against a list of bytes that are there.
    #[test]
    fn pieces_in_any_order_make_the_message() {
        let mut chance = XorShift64Star::new(11);
        let message: Vec<u8> = (0..3000u32).map(|n| (n * 7 % 251) as u8).collect();
        for _ in 0..200 {
            let mut assembly = Assembly::default();
            let mut there = vec![false; message.len()];
            for _ in 0..chance.below(60) {
                let start = chance.below(message.len() as u32) as usize;
                let end = (start + chance.below(400) as usize).min(message.len());
                assert!(assembly.insert(start as u64, &message[start..end]));
                there[start..end].fill(true);
                let known = there.iter().take_while(|is| **is).count();
                assert_eq!(assembly.beginning(), &message[..known]);
            }
        }
    }

    #[test]
    fn what_is_too_long_or_in_too_many_pieces_is_refused() {
        assert!(!Assembly::default().insert(BYTES_MAX as u64, b"x"));
        assert!(!Assembly::default().insert(u64::MAX, b"x"));
        let mut assembly = Assembly::default();
        let refused = (0..).find(|n| !assembly.insert(n * 2, b"x"));
        assert_eq!(refused, Some(PIECES_MAX as u64));
        assert!(assembly.memory_bytes() <= 2 * BYTES_MAX);
    }
}

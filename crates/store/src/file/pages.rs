//! Decodes the values of a page to vectors: PLAIN, RLE_DICTIONARY and DELTA_BINARY_PACKED (Parquet's
//! `Encodings.md`), and definition levels.
//!
//! The Parquet library's column readers are not used, because queries work on dictionary indices: a filter
//! tests each distinct address once, and a sum is indexed by the code. Every length is checked; a page that
//! is shorter than it says is an error.

/// Why a page is malformed.
pub(super) type Fault = &'static str;

const SHORT: Fault = "a page is shorter than it says";

/// Bit-packed values, least significant bit first.
struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
}

impl Packed<'_> {
    /// How many of the first `count` values [`Self::get_swiftly`] can read.
    fn swift(&self, count: usize) -> usize {
        match (self.width, self.bytes.len().checked_sub(8)) {
            (1..=56, Some(last)) => ((last * 8 + 7) / self.width as usize + 1).min(count),
            _ => 0,
        }
    }

    /// The value at this index, which must be below [`Self::swift`].
    #[inline(always)]
    fn get_swiftly(&self, number: usize) -> u64 {
        let bit = number * self.width as usize;
        let word = self.bytes.get(bit / 8..).and_then(|bytes| bytes.first_chunk());
        (word.map_or(0, |word| u64::from_le_bytes(*word)) >> (bit % 8)) & ((1 << self.width) - 1)
    }

    /// The value at this index. Its bytes must exist; bytes beyond the end count as zero.
    #[inline]
    fn get(&self, number: usize) -> u64 {
        let bit = number * self.width as usize;
        let (byte, shift) = (bit / 8, (bit % 8) as u32);
        let mask = if self.width == 64 { u64::MAX } else { (1u64 << self.width) - 1 };
        if let Some(window) = self.bytes.get(byte..byte + 8)
            && shift + self.width <= 64
            && let Ok(window) = window.try_into()
        {
            return (u64::from_le_bytes(window) >> shift) & mask;
        }
        let mut wide = [0u8; 16];
        let tail = self.bytes.get(byte..).unwrap_or(&[]);
        let length = tail.len().min(16);
        wide[..length].copy_from_slice(&tail[..length]);
        (u128::from_le_bytes(wide) >> shift) as u64 & mask
    }
}

/// Reads bytes sequentially.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    /// A length of four bytes.
    pub(super) fn length(&mut self) -> Result<usize, Fault> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    /// ULEB128.
    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of a page does not end")
    }

    fn zigzag(&mut self) -> Result<i64, Fault> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

/// Unpacks groups of eight values of `W` bits; with a constant width, that takes few instructions.
fn unpack<const W: usize>(bytes: &[u8], out: &mut [u32]) {
    let half = |bytes: &[u8]| {
        let mut wide = [0; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        u128::from_le_bytes(wide)
    };
    let mask = u32::MAX >> (32 - W);
    for (group, eight) in bytes.as_chunks::<W>().0.iter().zip(out.as_chunks_mut::<8>().0) {
        let (low, high) = (half(&group[..W.div_ceil(2)]), half(&group[W / 2..]) >> (W % 2 * 4));
        for (number, value) in eight.iter_mut().enumerate() {
            let word = if number < 4 { low } else { high };
            *value = (word >> (number % 4 * W)) as u32 & mask;
        }
    }
}

type Unpack = fn(&[u8], &mut [u32]);

/// For widths from 1.
const UNPACK: [Unpack; 32] = [
    unpack::<1>,
    unpack::<2>,
    unpack::<3>,
    unpack::<4>,
    unpack::<5>,
    unpack::<6>,
    unpack::<7>,
    unpack::<8>,
    unpack::<9>,
    unpack::<10>,
    unpack::<11>,
    unpack::<12>,
    unpack::<13>,
    unpack::<14>,
    unpack::<15>,
    unpack::<16>,
    unpack::<17>,
    unpack::<18>,
    unpack::<19>,
    unpack::<20>,
    unpack::<21>,
    unpack::<22>,
    unpack::<23>,
    unpack::<24>,
    unpack::<25>,
    unpack::<26>,
    unpack::<27>,
    unpack::<28>,
    unpack::<29>,
    unpack::<30>,
    unpack::<31>,
    unpack::<32>,
];

/// How values of a frequent width are unpacked.
fn unpacker(width: u32) -> Option<Unpack> {
    UNPACK.get((width as usize).checked_sub(1)?).copied()
}

/// A part of the RLE hybrid.
enum Run<'a> {
    Packed(Packed<'a>),
    Same(u32),
}

/// The parts of `count` values of `width` bits.
struct Runs<'a> {
    cursor: Cursor<'a>,
    width: u32,
    left: usize,
}

impl<'a> Runs<'a> {
    fn new(bytes: &'a [u8], width: u32, count: usize) -> Result<Self, Fault> {
        match width {
            0..=32 => Ok(Self { cursor: Cursor::new(bytes), width, left: count }),
            _ => Err("a dictionary index of more than 32 bits"),
        }
    }

    /// The next part, and how many values it has; `None` at the end.
    fn next(&mut self) -> Result<Option<(Run<'a>, usize)>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        let header = self.cursor.varint()?;
        let count = usize::try_from(header >> 1).map_err(|_| SHORT)?;
        let run = if header & 1 == 1 {
            let length = count.checked_mul(self.width as usize).ok_or(SHORT)?;
            let values = count.checked_mul(8).ok_or(SHORT)?.min(self.left);
            // Writers may truncate the last group.
            let bytes = self.cursor.take(length.min(self.cursor.rest().len()))?;
            if bytes.len() * 8 < values * self.width as usize {
                return Err(SHORT);
            }
            (Run::Packed(Packed { bytes, width: self.width }), values)
        } else {
            let mut value = [0u8; 4];
            let length = self.width.div_ceil(8) as usize;
            value[..length].copy_from_slice(self.cursor.take(length)?);
            (Run::Same(u32::from_le_bytes(value)), count.min(self.left))
        };
        if run.1 == 0 {
            return Err("an empty run in a page");
        }
        self.left -= run.1;
        Ok(Some(run))
    }
}

/// Appends `count` values of `width` bits from runs and bit-packed groups (the RLE hybrid).
pub(super) fn runs(bytes: &[u8], width: u32, count: usize, out: &mut Vec<u32>) -> Result<(), Fault> {
    let mut runs = Runs::new(bytes, width, count)?;
    while let Some((run, values)) = runs.next()? {
        match run {
            Run::Packed(packed) => {
                let start = out.len();
                let whole = values / 8 * 8;
                let swift = match unpacker(width) {
                    Some(unpack) => {
                        out.resize(start + whole, 0);
                        unpack(packed.bytes, &mut out[start..]);
                        whole
                    }
                    None => 0,
                };
                out.extend((swift..values).map(|number| packed.get(number) as u32));
            }
            Run::Same(value) => out.resize(out.len() + values, value),
        }
    }
    Ok(())
}

/// [`runs`], of which only those at these ascending places are appended.
pub(super) fn runs_at(
    bytes: &[u8],
    width: u32,
    count: usize,
    places: impl Iterator<Item = usize>,
    out: &mut Vec<u32>,
) -> Result<(), Fault> {
    let mut runs = Runs::new(bytes, width, count)?;
    let mut places = places.peekable();
    let mut first = 0;
    while places.peek().is_some() {
        let (run, values) = runs.next()?.ok_or(SHORT)?;
        while let Some(place) = places.next_if(|place| *place < first + values) {
            out.push(match &run {
                Run::Packed(packed) => packed.get(place - first) as u32,
                Run::Same(value) => *value,
            });
        }
        first += values;
    }
    Ok(())
}

/// DELTA_BINARY_PACKED: `count` values of 64 bits.
pub(super) fn deltas(bytes: &[u8], count: usize, out: &mut Vec<u64>) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    let block_values = cursor.varint()?;
    let miniblocks = cursor.varint()?;
    let total = cursor.varint()?;
    let mut value = cursor.zigzag()? as u64;
    if total < count as u64 {
        return Err(SHORT);
    }
    if count == 0 {
        return Ok(());
    }
    if miniblocks == 0 || block_values > 1 << 20 || block_values % miniblocks != 0 {
        return Err("a page of deltas with impossible blocks");
    }
    let per_miniblock = (block_values / miniblocks) as usize;
    if per_miniblock == 0 || !per_miniblock.is_multiple_of(8) {
        return Err("a page of deltas with impossible blocks");
    }
    out.reserve(count);
    out.push(value);
    let mut left = count - 1;
    let mut above: Vec<u32> = Vec::new();
    while left > 0 {
        let least = cursor.zigzag()? as u64;
        let widths = cursor.take(miniblocks as usize)?;
        for width in widths {
            if left == 0 {
                break;
            }
            let width = u32::from(*width);
            if width > 64 {
                return Err("a delta of more than 64 bits");
            }
            let values = left.min(per_miniblock);
            let packed = Packed { bytes: cursor.take(per_miniblock / 8 * width as usize)?, width };
            if let Some(unpack) = unpacker(width).filter(|_| values == per_miniblock) {
                above.resize(per_miniblock, 0);
                unpack(packed.bytes, &mut above);
                value = add_up(value, least, above.iter().map(|above| u64::from(*above)), out);
            } else {
                let swift = packed.swift(values);
                value = add_up(value, least, (0..swift).map(|number| packed.get_swiftly(number)), out);
                value = add_up(value, least, (swift..values).map(|number| packed.get(number)), out);
            }
            left -= values;
        }
    }
    Ok(())
}

/// Appends numbers, each the one before and the least difference and what it has above that; returns the last. The
/// closure owns the number: borrowed, it would be in memory, and each addition would wait for that.
#[inline(always)]
fn add_up(mut value: u64, least: u64, above: impl Iterator<Item = u64>, out: &mut Vec<u64>) -> u64 {
    out.extend(above.map(move |above| {
        value = value.wrapping_add(least.wrapping_add(above));
        value
    }));
    // The first number is there.
    out.last().copied().unwrap_or_default()
}

/// PLAIN numbers of eight bytes.
pub(super) fn plain_wide(bytes: &[u8], count: usize, out: &mut Vec<u64>) -> Result<(), Fault> {
    let bytes = bytes.get(..count.checked_mul(8).ok_or(SHORT)?).ok_or(SHORT)?;
    out.extend(bytes.as_chunks().0.iter().map(|value| u64::from_le_bytes(*value)));
    Ok(())
}

/// PLAIN numbers of four bytes.
pub(super) fn plain_numbers(bytes: &[u8], count: usize, out: &mut Vec<u32>) -> Result<(), Fault> {
    let bytes = bytes.get(..count.checked_mul(4).ok_or(SHORT)?).ok_or(SHORT)?;
    out.extend(bytes.as_chunks().0.iter().map(|value| u32::from_le_bytes(*value)));
    Ok(())
}

/// PLAIN texts, each preceded by its length; `take` also gets where it begins.
pub(super) fn plain_texts<'a>(
    bytes: &'a [u8],
    count: usize,
    mut take: impl FnMut(&'a [u8], usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    for _ in 0..count {
        let length = cursor.length()?;
        let from = bytes.len() - cursor.rest().len();
        take(cursor.take(length)?, from)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_of_the_specification() {
        // Encodings.md: 0 to 7 in three bits each.
        let bytes = [0b0000_0011, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let mut out = Vec::new();
        runs(&bytes, 3, 8, &mut out).unwrap();
        assert_eq!(out, (0..8).collect::<Vec<u32>>());
        // A run of nine sevens and a packed group.
        let mut bytes = vec![18, 7];
        bytes.extend([0b0000_0011, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        let mut out = Vec::new();
        runs(&bytes, 3, 12, &mut out).unwrap();
        assert_eq!(out, [7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 1, 2]);
        let mut some = Vec::new();
        runs_at(&bytes, 3, 12, [0, 8, 9, 11].into_iter(), &mut some).unwrap();
        assert_eq!(some, [7, 7, 0, 2]);
        assert!(runs_at(&bytes, 3, 12, [12].into_iter(), &mut some).is_err());
        assert!(runs(&bytes[..3], 3, 12, &mut Vec::new()).is_err());
        assert!(runs(&[0, 0], 3, 1, &mut Vec::new()).is_err(), "empty runs must not go on for ever");
    }

    #[test]
    fn wide_packed_values() {
        for width in 1u32..=64 {
            let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
            let values: Vec<u64> = (0..32u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask).collect();
            let mut bytes = vec![0u8; 4 * width as usize];
            for (number, value) in values.iter().enumerate() {
                for bit in 0..width as usize {
                    if value >> bit & 1 == 1 {
                        let at = number * width as usize + bit;
                        bytes[at / 8] |= 1 << (at % 8);
                    }
                }
            }
            let packed = Packed { bytes: &bytes, width };
            let read: Vec<u64> = (0..32).map(|number| packed.get(number)).collect();
            assert_eq!(read, values, "{width} bits");
            if let Some(unpack) = unpacker(width) {
                let mut read = [0; 32];
                unpack(&bytes, &mut read);
                assert!(
                    read.iter().zip(&values).all(|(read, value)| u64::from(*read) == *value),
                    "{width} bits"
                );
            }
            let swift = packed.swift(32);
            assert!(width > 56 && swift == 0 || width <= 56 && swift * width as usize <= bytes.len() * 8);
            let read: Vec<u64> = (0..swift).map(|number| packed.get_swiftly(number)).collect();
            assert_eq!(read, values[..swift], "{width} bits");
            // What is short of eight bytes behind the value is not read swiftly.
            assert!(width > 56 || swift == 32 || swift * width as usize / 8 + 8 > bytes.len());
        }
    }

    #[test]
    fn whatever_comes_is_no_panic() {
        let mut chance = thalweg_base::XorShift64Star::new(7);
        for _ in 0..20_000 {
            let length = (chance.next_u64() % 40) as usize;
            let bytes: Vec<u8> = (0..length).map(|_| chance.next_u64() as u8).collect();
            let count = (chance.next_u64() % 200) as usize;
            let width = (chance.next_u64() % 40) as u32;
            let _ = runs(&bytes, width, count, &mut Vec::new());
            let _ = deltas(&bytes, count, &mut Vec::new());
            let _ = runs_at(&bytes, width, count, (0..count).step_by(3), &mut Vec::new());
            let _ = plain_wide(&bytes, count, &mut Vec::new());
            let _ = plain_texts(&bytes, count, |_, _| Ok(()));
        }
    }
}

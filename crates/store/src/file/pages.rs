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

/// Appends `count` values of `width` bits from runs and bit-packed groups (the RLE hybrid).
pub(super) fn runs(bytes: &[u8], width: u32, count: usize, out: &mut Vec<u32>) -> Result<(), Fault> {
    if width > 32 {
        return Err("a dictionary index of more than 32 bits");
    }
    let mut cursor = Cursor::new(bytes);
    let mut left = count;
    while left > 0 {
        let header = cursor.varint()?;
        if header & 1 == 1 {
            let groups = usize::try_from(header >> 1).map_err(|_| SHORT)?;
            let length = groups.checked_mul(width as usize).ok_or(SHORT)?;
            let values = groups.checked_mul(8).ok_or(SHORT)?.min(left);
            // Writers may truncate the last group.
            let packed = Packed { bytes: cursor.take(length.min(cursor.rest().len()))?, width };
            if packed.bytes.len() * 8 < values * width as usize {
                return Err(SHORT);
            }
            // The exact number of values spares a capacity check for each.
            let swift = packed.swift(values);
            out.extend((0..swift).map(|number| packed.get_swiftly(number) as u32));
            out.extend((swift..values).map(|number| packed.get(number) as u32));
            left -= values;
        } else {
            let values = usize::try_from(header >> 1).map_err(|_| SHORT)?.min(left);
            if values == 0 {
                return Err("an empty run in a page");
            }
            let mut value = [0u8; 4];
            let length = width.div_ceil(8) as usize;
            value[..length].copy_from_slice(cursor.take(length)?);
            out.resize(out.len() + values, u32::from_le_bytes(value));
            left -= values;
        }
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
            let swift = packed.swift(values);
            out.extend((0..swift).map(|number| {
                value = value.wrapping_add(least).wrapping_add(packed.get_swiftly(number));
                value
            }));
            out.extend((swift..values).map(|number| {
                value = value.wrapping_add(least).wrapping_add(packed.get(number));
                value
            }));
            left -= values;
        }
    }
    Ok(())
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

/// PLAIN texts, each preceded by its length.
pub(super) fn plain_texts<'a>(
    bytes: &'a [u8],
    count: usize,
    mut take: impl FnMut(&'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(bytes);
    for _ in 0..count {
        let length = cursor.length()?;
        take(cursor.take(length)?)?;
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
        assert!(runs(&bytes[..3], 3, 12, &mut Vec::new()).is_err());
        assert!(runs(&[0, 0], 3, 1, &mut Vec::new()).is_err(), "empty runs must not go on for ever");
    }

    #[test]
    fn wide_packed_values() {
        for width in [1u32, 7, 8, 31, 33, 57, 60, 63, 64] {
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
            let _ = runs(&bytes, (chance.next_u64() % 40) as u32, count, &mut Vec::new());
            let _ = deltas(&bytes, count, &mut Vec::new());
            let _ = plain_wide(&bytes, count, &mut Vec::new());
            let _ = plain_texts(&bytes, count, |_| Ok(()));
        }
    }
}

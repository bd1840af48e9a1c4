//! Checksums of a file's content.
//!
//! Parquet has a checksum per page, but the library that writes our files does not write them, and they would
//! not cover the footer. So the footer has two entries: `thalweg.sums`, checksums of the bytes of each
//! column of each row group (one of its dictionary, so that it can be looked at alone, and one of its other
//! pages), and `thalweg.footer`, a checksum of everything in the footer that we use,
//! including those checksums. Opening a file checks the second; reading a column checks the first, since its
//! bytes are in memory then.
//!
//! The checksum is XXH3 with 64 bits. It detects disk errors and files that were truncated or copied badly;
//! it does not protect against people, who can change it with the file.

use std::fmt::Write as _;

use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use xxhash_rust::xxh3::xxh3_64;

use super::pages::Fault;

/// Characters of a checksum.
const DIGITS: usize = 16;

/// The checksum of some bytes.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Formats the checksums of the columns of row groups.
pub(super) fn write_sums(groups: &[Vec<u64>]) -> String {
    let mut text = String::new();
    for sum in groups.iter().flatten() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{sum:016x}");
    }
    text
}

/// Parses the checksums of row groups.
pub(super) fn read_sums(text: &str, groups: usize, per_group: usize) -> Result<Vec<Vec<u64>>, Fault> {
    const BAD: Fault = "its checksums are damaged";
    let digits = text.as_bytes().chunks(DIGITS).map(|digits| {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == DIGITS);
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(BAD)
    });
    let sums: Vec<u64> = digits.collect::<Result<_, _>>()?;
    if groups.checked_mul(per_group) != Some(sums.len()) {
        return Err(BAD);
    }
    Ok(sums.chunks(per_group.max(1)).map(<[u64]>::to_vec).collect())
}

/// The checksum of the footer's facts that we use: positions of columns, counts and bounds of values; and of
/// our own texts, the version among them. Earlier versions had no use for some.
pub(super) fn sum_of_footer(groups: &[RowGroupMetaData], texts: &[&str], is_current: bool) -> u64 {
    let mut facts: Vec<u8> = Vec::new();
    let mut put = |fact: u64| facts.extend_from_slice(&fact.to_le_bytes());
    for group in groups {
        put(group.num_rows() as u64);
        for column in group.columns() {
            let (start, length) = column.byte_range();
            [start, length, column.num_values() as u64].into_iter().for_each(&mut put);
            put(sum(format!("{:?}", column.compression()).as_bytes()));
            match column.statistics() {
                Some(Statistics::Int32(of)) => {
                    bounds(of.min_opt(), of.max_opt(), |value| *value as u64, &mut put)
                }
                Some(Statistics::Int64(of)) => {
                    bounds(of.min_opt(), of.max_opt(), |value| *value as u64, &mut put)
                }
                Some(Statistics::ByteArray(of)) if is_current => {
                    bounds(of.min_opt(), of.max_opt(), |value| sum(value.data()), &mut put)
                }
                _ => {}
            }
            if is_current {
                put(column.data_page_offset() as u64);
            }
            put(column.statistics().and_then(Statistics::null_count_opt).map_or(0, |count| count + 1));
        }
    }
    for text in texts {
        put(sum(text.as_bytes()));
    }
    sum(&facts)
}

fn bounds<T>(min: Option<&T>, max: Option<&T>, number: impl Fn(&T) -> u64, put: &mut impl FnMut(u64)) {
    for bound in [min, max] {
        put(u64::from(bound.is_some()));
        put(bound.map_or(0, &number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_length_shows() {
        let mut chance = thalweg_base::XorShift64Star::new(3);
        for length in [0, 1, 7, 8, 31, 32, 33, 64, 100] {
            let bytes: Vec<u8> = (0..length).map(|_| chance.next_u64() as u8).collect();
            let whole = sum(&bytes);
            for bit in 0..length * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(sum(&flipped), whole, "bit {bit} of {length} bytes");
            }
            let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
            assert_ne!(sum(&longer), whole);
        }
    }

    #[test]
    fn sums_come_back_from_their_text() {
        let sums = vec![vec![0, u64::MAX, 7], vec![1, 2, 0xdead_beef]];
        let text = write_sums(&sums);
        assert_eq!(read_sums(&text, 2, 3), Ok(sums));
        assert!(read_sums(&text, 3, 3).is_err());
        assert!(read_sums(&text[1..], 2, 3).is_err());
        assert!(read_sums(&text.replace('f', "x"), 2, 3).is_err());
    }
}

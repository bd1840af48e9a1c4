//! The fast parser of the text trace: it reads one line from 64 bytes with bit masks (see the head of
//! `trace.rs`).
//!
//! Invariant: this file only *accepts* lines. Every other line goes to the careful parser, so errors are
//! described in one place. It never reads beyond the given slice.

use super::{Addresses, FieldOrder, PortName, TraceError, TraceLine, parse_line};
use crate::application;
use std::ops::Range;

/// Bytes examined together, and how far a load may reach beyond them.
const WINDOW: usize = 64;
const REACH: usize = 8;

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Packet(TraceLine<'a>),
    /// Blank or a comment.
    Nothing,
    /// Malformed.
    Bad(TraceError),
}

/// Passes the lines in `range` of `text` to `each`, until it returns false or a line has no line feed. Bytes behind the
/// range may be looked at, which makes the last line as fast as the others.
#[inline]
pub fn each_line<'a>(
    text: &'a [u8],
    range: Range<usize>,
    order: FieldOrder,
    each: impl FnMut(Step<'a>) -> bool,
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
    {
        #[allow(unsafe_code)] // masks by 6 instructions instead of 80 (benchmark `input`)
        // SAFETY: the processor has all that is asked for.
        return unsafe { each_line_avx512(text, range, order, each) };
    }
    walk::<false>(text, range, order, each);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
fn each_line_avx512<'a>(
    text: &'a [u8],
    range: Range<usize>,
    order: FieldOrder,
    each: impl FnMut(Step<'a>) -> bool,
) {
    walk::<true>(text, range, order, each);
}

/// See [`each_line`]. `WIDE` needs a processor with AVX-512 BW.
#[inline(always)]
pub(super) fn walk<'a, const WIDE: bool>(
    text: &'a [u8],
    range: Range<usize>,
    order: FieldOrder,
    mut each: impl FnMut(Step<'a>) -> bool,
) {
    let mut at = range.start;
    while at < range.end {
        let input = &text[at..];
        let plain = input
            .first_chunk::<{ WINDOW + REACH }>()
            .and_then(|window| plain_line(&Masks::of::<WIDE>(window), window, input, order));
        let (len, step) = match plain {
            Some((len, line)) => (len, Step::Packet(line)),
            None => match careful_line(input, order) {
                Some(found) => found,
                None => return,
            },
        };
        if !each(step) {
            return;
        }
        at += len;
    }
}

#[cold]
fn careful_line(input: &[u8], order: FieldOrder) -> Option<(usize, Step<'_>)> {
    let end = input.iter().position(|&b| b == b'\n')?;
    let step = match parse_line(&input[..end], order) {
        Ok(Some(line)) => Step::Packet(line),
        Ok(None) => Step::Nothing,
        Err(error) => Step::Bad(error),
    };
    Some((end + 1, step))
}

/// Parses an IPv4 line of six fields and at most 64 bytes.
#[inline(always)]
fn plain_line<'a>(
    masks: &Masks,
    window: &[u8; WINDOW + REACH],
    input: &'a [u8],
    order: FieldOrder,
) -> Option<(usize, TraceLine<'a>)> {
    if masks.line_feed == 0 {
        return None;
    }
    let end = masks.line_feed.trailing_zeros() as usize;
    // All bits up to and including the line feed, which is white space and ends the last field.
    let line = masks.line_feed ^ (masks.line_feed - 1);
    let white = masks.white;
    let mut starts = !white & (white << 1 | 1) & line;
    let mut ends = white & (!white << 1) & line;
    let mut field = [(0usize, 0usize); 6];
    for f in &mut field {
        // A missing field makes both 64 and fails the checks below, since field 5 must exist.
        *f = (starts.trailing_zeros() as usize, ends.trailing_zeros() as usize);
        starts &= starts.wrapping_sub(1);
        ends &= ends.wrapping_sub(1);
    }
    if field[5].0 >= WINDOW || starts != 0 || window[field[0].0 & 63] == b'#' {
        return None;
    }
    let first = ipv4(window, masks, field[1])?;
    let second = ipv4(window, masks, field[2])?;
    let first_port = number16(window, masks, field[3])?;
    let second_port = number16(window, masks, field[4])?;
    let (protocol, application) = protocol(window, field[5])?;

    let (from, to) = field[0];
    let name = input.get(from..to)?;
    let key = if to - from <= 8 { word(window, from) & low_bytes(to - from) } else { 0 };
    let (source, destination, source_port, destination_port) = match order {
        FieldOrder::DestinationFirst => (second, first, second_port, first_port),
        FieldOrder::SourceFirst => (first, second, first_port, second_port),
    };
    let line = TraceLine {
        port: PortName { bytes: name, key },
        addresses: Addresses::V4 { source, destination },
        source_port,
        destination_port,
        protocol,
        application,
    };
    Some((end + 1, line))
}

/// The eight bytes from `at`, first byte lowest.
#[inline(always)]
fn word(window: &[u8; WINDOW + REACH], at: usize) -> u64 {
    // The mask avoids the bounds check; callers pass places inside the window.
    let at = at & (WINDOW - 1);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&window[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// A mask of the lowest `n` bytes, 1 to 8.
#[inline(always)]
fn low_bytes(n: usize) -> u64 {
    u64::MAX >> (((8 - n) * 8) & 63)
}

/// Bits `from..to` of a mask.
#[inline(always)]
fn bits(from: usize, to: usize) -> u64 {
    (1u64 << (to & 63)).wrapping_sub(1u64 << (from & 63))
}

#[inline(always)]
fn ipv4(window: &[u8; WINDOW + REACH], masks: &Masks, (from, to): (usize, usize)) -> Option<u32> {
    let here = bits(from, to);
    let mut dots = masks.dot & here;
    let d1 = dots.trailing_zeros() as usize;
    dots &= dots.wrapping_sub(1);
    let d2 = dots.trailing_zeros() as usize;
    dots &= dots.wrapping_sub(1);
    let d3 = dots.trailing_zeros() as usize;
    let fourth_dot = dots & dots.wrapping_sub(1);
    if d3 >= WINDOW || fourth_dot != 0 || (masks.dot | masks.digit) & here != here {
        return None;
    }
    // Lengths minus one: 0, 1 or 2; an empty number wraps to a large value.
    let lens = [d1 - from, d2 - d1 - 1, d3 - d2 - 1, to - d3 - 1].map(|n| n.wrapping_sub(1));
    if lens.iter().fold(0, |all, &n| all | usize::from(n > 2)) != 0 {
        return None;
    }
    let a = byte(window, from, lens[0]);
    let b = byte(window, d1 + 1, lens[1]);
    let c = byte(window, d2 + 1, lens[2]);
    let d = byte(window, d3 + 1, lens[3]);
    (a | b | c | d <= 255).then_some(a << 24 | b << 16 | c << 8 | d)
}

/// The value of one to three digits; `more` follow the first.
#[inline(always)]
fn byte(window: &[u8; WINDOW + REACH], at: usize, more: usize) -> u32 {
    let at = at & (WINDOW - 1);
    let raw = u32::from_le_bytes([window[at], window[at + 1], window[at + 2], window[at + 3]]);
    // Shift the digits to the top of the word, zero bytes below: byte 3 is ones, byte 2 tens, byte 1
    // hundreds.
    let digits = (raw & 0x0f0f_0f0f) << ((24 - 8 * more) & 31);
    // Plain sums: one multiplication would carry into the tenth bit, which distinguishes 256 from 0.
    (digits >> 24) + 10 * (digits >> 16 & 0xff) + 100 * (digits >> 8 & 0xff)
}

#[inline(always)]
fn number16(window: &[u8; WINDOW + REACH], masks: &Masks, (from, to): (usize, usize)) -> Option<u16> {
    let here = bits(from, to);
    let len = to - from;
    if masks.digit & here != here || len > 5 {
        return None;
    }
    // Eight digits with leading zeros, folded to pairs, fours, eight.
    let digits = (word(window, from) & 0x0f0f_0f0f_0f0f_0f0f) << (((8 - len) * 8) & 63);
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    let value = fours.wrapping_mul(10_000 << 32 | 1) >> 32;
    u16::try_from(value).ok()
}

/// IP protocol number and application code of a name of up to eight letters.
#[inline(always)]
fn protocol(window: &[u8; WINDOW + REACH], (from, to): (usize, usize)) -> Option<(u8, u8)> {
    let len = to - from;
    if len > 8 {
        return None;
    }
    // Setting bit 5 folds capitals; no other byte above the space becomes a letter, digit or hyphen.
    let key = (word(window, from) | 0x2020_2020_2020_2020) & low_bytes(len);
    let code = application::code_by_short_key(key);
    let transport = application::transport_of(code);
    // The careful parser handles ICMPv6 on an IPv4 line, numbers and unknown names.
    (code != 0 && transport != crate::ip_protocol::ICMPV6).then_some((transport, code))
}

/// A bit per byte of the window for each kind of byte.
struct Masks {
    white: u64,
    line_feed: u64,
    dot: u64,
    digit: u64,
}

#[cfg(target_arch = "x86_64")]
impl Masks {
    /// `WIDE` needs a processor with AVX-512 BW.
    #[inline(always)]
    #[allow(unsafe_code)] // 29 ns a line against 46 with `portable_masks` (benchmark `input`)
    fn of<const WIDE: bool>(window: &[u8; WINDOW + REACH]) -> Self {
        if WIDE {
            // SAFETY: the caller's promise.
            return unsafe { avx512_masks(window) };
        }
        // SAFETY: SSE2 is part of the x86-64 architecture.
        unsafe { sse2_masks(window) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn avx512_masks(window: &[u8; WINDOW + REACH]) -> Masks {
    use std::arch::x86_64::{
        _mm512_cmpeq_epi8_mask, _mm512_cmple_epu8_mask, _mm512_loadu_epi8, _mm512_set1_epi8, _mm512_sub_epi8,
    };
    #[allow(unsafe_code)]
    // SAFETY: the window has more than 64 bytes.
    let v = unsafe { _mm512_loadu_epi8(window.as_ptr().cast()) };
    let of = |byte: u8| _mm512_set1_epi8(byte.cast_signed());
    Masks {
        white: _mm512_cmple_epu8_mask(v, of(b' ')),
        line_feed: _mm512_cmpeq_epi8_mask(v, of(b'\n')),
        dot: _mm512_cmpeq_epi8_mask(v, of(b'.')),
        digit: _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, of(b'0')), of(9)),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn sse2_masks(window: &[u8; WINDOW + REACH]) -> Masks {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8, _mm_sub_epi8,
    };
    let mut masks = Masks { white: 0, line_feed: 0, dot: 0, digit: 0 };
    for at in [0, 16, 32, 48] {
        let bits = |m: __m128i| u64::from(_mm_movemask_epi8(m) as u32) << at;
        let v = _mm_set_epi64x(word(window, at + 8) as i64, word(window, at) as i64);
        let value = _mm_sub_epi8(v, _mm_set1_epi8(b'0' as i8));
        masks.white |= bits(_mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(b' ' as i8)), v));
        masks.line_feed |= bits(_mm_cmpeq_epi8(v, _mm_set1_epi8(b'\n' as i8)));
        masks.dot |= bits(_mm_cmpeq_epi8(v, _mm_set1_epi8(b'.' as i8)));
        masks.digit |= bits(_mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value));
    }
    masks
}

#[cfg(not(target_arch = "x86_64"))]
impl Masks {
    #[inline(always)]
    fn of<const WIDE: bool>(window: &[u8; WINDOW + REACH]) -> Self {
        portable_masks(window)
    }
}

/// The version for other architectures, and the reference in tests: eight bytes at a time in a word.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable_masks(window: &[u8; WINDOW + REACH]) -> Masks {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Moves the high bit of each byte to bit `byte` of the result.
    let gather = |high: u64| ((high >> 7) & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    // Sets the high bit of each byte below `limit` (at most 128); bytes from 128 on never match.
    let below = |w: u64, limit: u64| !((w & LOW) + (128 - limit) * ONES) & !w & !LOW;
    let equal = |w: u64, byte: u64| below(w ^ (byte * ONES), 1);
    let mut masks = Masks { white: 0, line_feed: 0, dot: 0, digit: 0 };
    for at in (0..WINDOW).step_by(8) {
        let w = word(window, at);
        masks.white |= gather(below(w, 0x21)) << at;
        masks.line_feed |= gather(equal(w, u64::from(b'\n'))) << at;
        masks.dot |= gather(equal(w, u64::from(b'.'))) << at;
        masks.digit |= gather(below(w, 0x3a) & !below(w, 0x30)) << at;
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_lines_are_taken_by_this_half() {
        // Agreement with the careful half would not tell: it answers for all that is refused here.
        for text in [
            "eth3 104.44.44.10 10.230.30.03 4003 5003 ftp\n",
            "eth3 255.255.255.255 000.001.010.199 65535 00000 FTP-data\r\n",
            "eth3\t1.2.3.4   5.6.7.8 1 2 icmp \n",
            "eth0 100.200.100.200 100.200.100.200 65535 65535 https         \n",
        ] {
            let mut window = [b'x'; WINDOW + REACH];
            window[..text.len()].copy_from_slice(text.as_bytes());
            let masks = Masks::of::<false>(&window);
            let taken = plain_line(&masks, &window, &window, FieldOrder::DestinationFirst);
            let careful = parse_line(text.trim_end().as_bytes(), FieldOrder::DestinationFirst);
            assert_eq!(taken.map(|(len, line)| (len, Ok(Some(line)))), Some((text.len(), careful)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn masks_mean_what_they_say(bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(b' '), Just(b'\n'), Just(b'.'), 0x2fu8..0x3b], WINDOW + REACH)) {
            let mut window = [0; WINDOW + REACH];
            window.copy_from_slice(&bytes);
            for masks in [Masks::of::<false>(&window), portable_masks(&window)] {
                for (i, &b) in window[..WINDOW].iter().enumerate() {
                    prop_assert_eq!(masks.white >> i & 1 == 1, b <= b' ');
                    prop_assert_eq!(masks.line_feed >> i & 1 == 1, b == b'\n');
                    prop_assert_eq!(masks.dot >> i & 1 == 1, b == b'.');
                    prop_assert_eq!(masks.digit >> i & 1 == 1, b.is_ascii_digit());
                }
            }
        }
    }
}

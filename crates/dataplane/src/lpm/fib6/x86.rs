//! [`Fib6`]'s key compares with AVX2 and AVX-512: all keys of a line in one or two instructions.
//!
//! The lines are loaded in assembly: another thread may be writing them (a batch that saw this is
//! repeated), for which Rust's own vector loads have no defined meaning.
#![allow(unsafe_code)] // target features and vector loads, paid for by `benches/lpm.rs`

use super::{Compare, Fib6, Line};
use crate::lpm::NextHopId;
use std::arch::asm;
use std::arch::x86_64::*;

/// The caller checked that the processor has AVX2, BMI2 and POPCNT.
pub(super) fn lanes_avx2(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn run(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
        fib.lanes::<Avx2>(addresses, next_hops);
    }
    // SAFETY: `lookup_batch_with` comes here only if `Kernel::Avx2` is supported.
    unsafe { run(fib, addresses, next_hops) }
}

/// The caller checked that the processor has AVX-512 F, BW and VL besides.
pub(super) fn lanes_avx512(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,popcnt")]
    fn run(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
        fib.lanes::<Avx512>(addresses, next_hops);
    }
    // SAFETY: `lookup_batch_with` comes here only if `Kernel::Avx512` is supported.
    unsafe { run(fib, addresses, next_hops) }
}

/// Used only inside `lanes_avx2`.
struct Avx2;

/// Used only inside `lanes_avx512`.
struct Avx512;

/// How many of 16 keys are less than `x`.
///
/// # Safety
/// 32 readable bytes lie at `keys`.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn less_avx2(keys: *const u64, x: u16) -> u32 {
    let line: __m256i;
    // SAFETY: the caller promises the bytes; nothing but a load.
    unsafe {
        asm!("vmovdqu {}, [{}]", out(ymm_reg) line, in(reg) keys, options(readonly, nostack, preserves_flags));
    }
    // x - key, not below 0, is 0 where the key is not less.
    let not_less =
        _mm256_cmpeq_epi16(_mm256_subs_epu16(_mm256_set1_epi16(x as i16), line), _mm256_setzero_si256());
    16 - (_mm256_movemask_epi8(not_less) as u32).count_ones() / 2
}

/// How many of 16 keys are less than `x`.
///
/// # Safety
/// 32 readable bytes lie at `keys`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
unsafe fn less_of_16_avx512(keys: *const u64, x: u16) -> u32 {
    let line: __m256i;
    // SAFETY: the caller promises the bytes; nothing but a load.
    unsafe {
        asm!("vmovdqu {}, [{}]", out(ymm_reg) line, in(reg) keys, options(readonly, nostack, preserves_flags));
    }
    u32::from(_mm256_cmplt_epu16_mask(line, _mm256_set1_epi16(x as i16))).count_ones()
}

/// How many of 32 keys are less than `x`.
///
/// # Safety
/// 64 readable bytes lie at `keys`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
unsafe fn less_of_32_avx512(keys: *const u64, x: u16) -> u32 {
    let line: __m512i;
    // SAFETY: the caller promises the bytes; nothing but a load.
    unsafe {
        asm!("vmovdqu64 {}, [{}]", out(zmm_reg) line, in(reg) keys, options(readonly, nostack, preserves_flags));
    }
    _mm512_cmplt_epu16_mask(line, _mm512_set1_epi16(x as i16)).count_ones()
}

/// The first word of a line; the region keeps 64 readable bytes from any word on.
#[inline(always)]
fn keys(line: Line<'_>) -> *const u64 {
    std::ptr::from_ref(line.lines.at(line.first)).cast()
}

impl Compare for Avx2 {
    #[inline(always)]
    fn less_of_16(line: Line<'_>, x: u16) -> u32 {
        // SAFETY: the type is used only where AVX2 and POPCNT are enabled; `keys` gives 64 bytes.
        unsafe { less_avx2(keys(line), x) }
    }

    #[inline(always)]
    fn less_of_32(line: Line<'_>, x: u16) -> u32 {
        // SAFETY: as above; the second half is the line's.
        unsafe { less_avx2(keys(line), x) + less_avx2(keys(line).add(4), x) }
    }
}

impl Compare for Avx512 {
    #[inline(always)]
    fn less_of_16(line: Line<'_>, x: u16) -> u32 {
        // SAFETY: the type is used only where these features are enabled; `keys` gives 64 bytes.
        unsafe { less_of_16_avx512(keys(line), x) }
    }

    #[inline(always)]
    fn less_of_32(line: Line<'_>, x: u16) -> u32 {
        // SAFETY: as above.
        unsafe { less_of_32_avx512(keys(line), x) }
    }
}

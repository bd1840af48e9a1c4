//! [`Fib4`]'s first level on x86-64: the portable loop with BMI2 and POPCNT, and one with AVX-512.
//!
//! The AVX-512 loop takes eight addresses at a time: gather eight nodes, count bits with
//! `vpopcntq`, gather eight values. Its gathers are written in assembly because they read words that
//! the writer may be storing: an aligned word is gathered whole on x86-64, but Rust's own gathers
//! count as plain reads, for which racing is undefined.
#![allow(unsafe_code)] // target features and vector gathers, paid for by `benches/lpm.rs`

use super::Fib4;
use crate::lpm::NextHopId;
use std::arch::asm;
use std::arch::x86_64::*;

/// The caller checked that the processor has BMI2 and POPCNT.
pub(super) fn first_level_bmi2(fib: &Fib4, addresses: &[u32], next_hops: &mut [NextHopId]) -> NextHopId {
    #[target_feature(enable = "bmi1,bmi2,popcnt,avx2")]
    fn run(fib: &Fib4, addresses: &[u32], next_hops: &mut [NextHopId]) -> NextHopId {
        fib.first_level(addresses, next_hops)
    }
    // SAFETY: `lookup_batch_with` comes here only if `Kernel::Avx2` is supported, which these are.
    unsafe { run(fib, addresses, next_hops) }
}

/// The caller checked that the processor has AVX-512 F, BW, VL and VPOPCNTDQ.
pub(super) fn first_level_avx512(fib: &Fib4, addresses: &[u32], next_hops: &mut [NextHopId]) -> NextHopId {
    // SAFETY: `lookup_batch_with` comes here only if `Kernel::Avx512` is supported.
    unsafe { run_avx512(fib, addresses, next_hops) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq,bmi1,bmi2,popcnt,avx2")]
fn run_avx512(fib: &Fib4, addresses: &[u32], next_hops: &mut [NextHopId]) -> NextHopId {
    let (heads, tail) = addresses.as_chunks::<8>();
    let (outs, tail_out) = next_hops.as_chunks_mut::<8>();
    let mut any = _mm_setzero_si128();
    for (head, out) in heads.iter().zip(outs) {
        // SAFETY: eight addresses and eight results of 2 bytes are what the references cover. The
        // node indices are below 2^19, the size of the root; a node's base plus at most 31 stays in
        // `values` with its slack, because the pool keeps 128 values back.
        unsafe {
            let address = _mm256_loadu_si256(head.as_ptr().cast());
            let node = gather_u64(fib.root.as_ptr().cast(), _mm256_srli_epi32::<13>(address));
            let slot = _mm256_and_si256(_mm256_srli_epi32::<8>(address), _mm256_set1_epi32(31));
            let below = _mm512_sllv_epi64(_mm512_set1_epi64(-1), _mm512_cvtepu32_epi64(slot));
            let below = _mm512_and_si512(_mm512_andnot_si512(below, node), _mm512_set1_epi64(0x7fff_ffff));
            let position = _mm512_add_epi64(_mm512_srli_epi64::<32>(node), _mm512_popcnt_epi64(below));
            let value = gather_u32_at_u16(fib.values.as_ptr().cast(), position);
            let value = _mm256_cvtepi32_epi16(value);
            any = _mm_or_si128(any, value);
            _mm_storeu_si128(out.as_mut_ptr().cast(), value);
        }
    }
    let mut folded = [0_u16; 8];
    // SAFETY: the array has 16 bytes.
    unsafe { _mm_storeu_si128(folded.as_mut_ptr().cast(), any) };
    folded.into_iter().fold(fib.first_level(tail, tail_out), |all, one| all | one)
}

/// `base[index]` for eight indices.
///
/// # Safety
/// All indices lie in the memory at `base`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn gather_u64(base: *const u64, index: __m256i) -> __m512i {
    let mut found = _mm512_setzero_si512();
    // SAFETY: as the caller promises; the mask register is changed, memory only read.
    unsafe {
        asm!(
            "kxnorw {mask}, {mask}, {mask}",
            "vpgatherdq {found}{{{mask}}}, [{base} + {index}*8]",
            mask = out(kreg) _,
            found = inout(zmm_reg) found,
            base = in(reg) base,
            index = in(ymm_reg) index,
            options(readonly, nostack, preserves_flags)
        );
    }
    found
}

/// The four bytes from `base[index]` on for eight indices.
///
/// # Safety
/// All indices lie in the memory at `base`, with two more bytes behind the last.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn gather_u32_at_u16(base: *const u16, index: __m512i) -> __m256i {
    let mut found = _mm256_setzero_si256();
    // SAFETY: as the caller promises; the mask register is changed, memory only read.
    unsafe {
        asm!(
            "kxnorw {mask}, {mask}, {mask}",
            "vpgatherqd {found}{{{mask}}}, [{base} + {index}*2]",
            mask = out(kreg) _,
            found = inout(ymm_reg) found,
            base = in(reg) base,
            index = in(zmm_reg) index,
            options(readonly, nostack, preserves_flags)
        );
    }
    found
}

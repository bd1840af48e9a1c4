//! [`Fib4`]'s first level on x86-64: the portable loop with BMI2 and POPCNT, and one with AVX-512.
//!
//! The AVX-512 loop works in two passes over 64 addresses: nodes and, with `vpopcntq`, positions; then
//! values. Loads are written in assembly because the writer may be storing the same words: an aligned
//! word is loaded whole on x86-64, but Rust's vector loads count as plain reads, for which racing is
//! undefined. They are single loads and inserts, not gathers, which took a fifth longer (Zen 5).
#![allow(unsafe_code)] // target features and vector gathers, paid for by `thalweg lab lpm`

use super::Fib4;
use crate::lpm::NextHopId;
use std::arch::asm;
use std::arch::x86_64::*;

/// Look-ups in flight together.
const LANES: usize = 64;

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
    let (groups, rest) = addresses.as_chunks::<LANES>();
    let (outs, rest_out) = next_hops.as_chunks_mut::<LANES>();
    let mut any = _mm_setzero_si128();
    for (group, out) in groups.iter().zip(outs) {
        any = _mm_or_si128(any, lanes_avx512(fib, group, out));
    }
    let mut folded = [0_u16; 8];
    // SAFETY: the array has 16 bytes.
    unsafe { _mm_storeu_si128(folded.as_mut_ptr().cast(), any) };
    folded.into_iter().fold(fib.first_level(rest, rest_out), |all, one| all | one)
}

/// All nodes and positions first, then all values: 64 independent loads each time.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vpopcntdq,bmi1,bmi2,popcnt,avx2")]
fn lanes_avx512(fib: &Fib4, addresses: &[u32; LANES], next_hops: &mut [NextHopId; LANES]) -> __m128i {
    let mut positions = [0_u32; LANES];
    for (eight, positions) in addresses.as_chunks::<8>().0.iter().zip(positions.as_chunks_mut::<8>().0) {
        // SAFETY: eight addresses and eight positions are what the references cover. Node indices are
        // below 2^19, the size of the root.
        unsafe {
            let address = _mm256_loadu_si256(eight.as_ptr().cast());
            let node = load_nodes(fib.root.as_ptr().cast(), eight);
            let slot = _mm256_and_si256(_mm256_srli_epi32::<8>(address), _mm256_set1_epi32(31));
            let from_slot = _mm512_sllv_epi64(_mm512_set1_epi64(-1), _mm512_cvtepu32_epi64(slot));
            // Bits from 31 on are the base's: a slot is below 32, so `from_slot` has them all but the
            // one at 31, which is zero in every node.
            let before = _mm512_andnot_si512(from_slot, node);
            let position = _mm512_add_epi64(_mm512_srli_epi64::<32>(node), _mm512_popcnt_epi64(before));
            _mm256_storeu_si256(positions.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(position));
        }
    }
    let mut any = _mm_setzero_si128();
    for (positions, out) in positions.as_chunks::<8>().0.iter().zip(next_hops.as_chunks_mut::<8>().0) {
        // SAFETY: eight results of 2 bytes are what the reference covers. A node's base plus at most
        // 31 stays in `values`, because the pool keeps 128 of them back.
        unsafe {
            let value = load_values(fib.values.as_ptr().cast(), positions);
            any = _mm_or_si128(any, value);
            _mm_storeu_si128(out.as_mut_ptr().cast(), value);
        }
    }
    any
}

/// The nodes of eight addresses. Plain loads and shuffles: faster than a gather on Zen 5.
///
/// # Safety
/// `root` has 2^19 words.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
unsafe fn load_nodes(root: *const u64, addresses: &[u32; 8]) -> __m512i {
    let mut pairs = [_mm_setzero_si128(); 4];
    for (pair, two) in pairs.iter_mut().zip(addresses.as_chunks::<2>().0) {
        // SAFETY: the indices have 19 bits; memory is only read.
        unsafe {
            asm!(
                "vmovq {pair}, qword ptr [{root} + {first}*8]",
                "vmovhps {pair}, {pair}, qword ptr [{root} + {second}*8]",
                pair = out(xmm_reg) *pair,
                root = in(reg) root,
                first = in(reg) u64::from(two[0] >> 13),
                second = in(reg) u64::from(two[1] >> 13),
                options(readonly, nostack, preserves_flags)
            );
        }
    }
    let low = _mm256_set_m128i(pairs[1], pairs[0]);
    let high = _mm256_set_m128i(pairs[3], pairs[2]);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// The values at eight positions.
///
/// # Safety
/// All positions lie in the memory at `values`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_values(values: *const u16, positions: &[u32; 8]) -> __m128i {
    let found: __m128i;
    // SAFETY: the positions are 32 bytes; the rest is as the caller promises; memory is only read.
    unsafe {
        asm!(
            "mov {a:e}, [{at}]",
            "mov {b:e}, [{at} + 4]",
            "vpxor {found}, {found}, {found}",
            "vpinsrw {found}, {found}, word ptr [{values} + {a}*2], 0",
            "mov {a:e}, [{at} + 8]",
            "vpinsrw {found}, {found}, word ptr [{values} + {b}*2], 1",
            "mov {b:e}, [{at} + 12]",
            "vpinsrw {found}, {found}, word ptr [{values} + {a}*2], 2",
            "mov {a:e}, [{at} + 16]",
            "vpinsrw {found}, {found}, word ptr [{values} + {b}*2], 3",
            "mov {b:e}, [{at} + 20]",
            "vpinsrw {found}, {found}, word ptr [{values} + {a}*2], 4",
            "mov {a:e}, [{at} + 24]",
            "vpinsrw {found}, {found}, word ptr [{values} + {b}*2], 5",
            "mov {b:e}, [{at} + 28]",
            "vpinsrw {found}, {found}, word ptr [{values} + {a}*2], 6",
            "vpinsrw {found}, {found}, word ptr [{values} + {b}*2], 7",
            a = out(reg) _,
            b = out(reg) _,
            at = in(reg) positions.as_ptr(),
            values = in(reg) values,
            found = out(xmm_reg) found,
            options(readonly, nostack, preserves_flags)
        );
    }
    found
}

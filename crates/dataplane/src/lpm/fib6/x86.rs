//! [`Fib6`] on x86-64: key compares with AVX2 and AVX-512, all keys of a line in one or two instructions, and for
//! AVX-512 a batch kernel of its own.
//!
//! That kernel takes a full batch through four passes: root and middle slots; lanes with trees of height 2 or more
//! (a compacted list); one splitter line; one bottom line. The last two process all lanes in order, without
//! branches, so that the answers can be stored in whole vectors. Any other batch length uses the lane by lane
//! algorithm of the portable code.
//!
//! The lines are loaded in assembly: another thread may be writing them (a batch that saw this is repeated), for
//! which Rust's own vector loads have no defined meaning.
#![allow(unsafe_code)] // target features and vector loads, paid for by `thalweg lab lpm`

use super::{
    Compare, DEEPER, Fib6, HEIGHT_SHIFT, LANES, LINES_LOG2, Line, MIDDLE_LOG2, ROOT_BITS, WIDE, height_of,
};
use crate::lpm::NextHopId;
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use thalweg_base::prefetch;

/// The caller checked that the processor has AVX2, BMI2 and POPCNT.
pub(super) fn lanes_avx2(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn run(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
        fib.lanes::<Avx2>(addresses, next_hops);
    }
    // SAFETY: `lookup_batch_with` comes here only if `Kernel::Avx2` is supported.
    unsafe { run(fib, addresses, next_hops) }
}

/// The caller checked that the processor also has AVX-512 F, BW, DQ and VL.
pub(super) fn lanes_avx512(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
    // SAFETY: `lookup_batch_with` comes here only if `Kernel::Avx512` is supported.
    unsafe { run_avx512(fib, addresses, next_hops) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
fn run_avx512(fib: &Fib6, addresses: &[u128], next_hops: &mut [NextHopId]) {
    match (<&[u128; LANES]>::try_from(addresses), <&mut [NextHopId; LANES]>::try_from(&mut *next_hops)) {
        (Ok(full), Ok(out)) => {
            let mut descent = MaybeUninit::<Descent>::uninit();
            // SAFETY: `Descent` is integers, and `direct_steps` writes each entry that is read later.
            let descent = unsafe { &mut *descent.as_mut_ptr() };
            let trees = direct_steps(fib, full, out, descent);
            if trees.any != 0 {
                split_steps(fib, full, descent, &trees);
                if bottom_step(fib, full, out, descent, trees.any) & DEEPER != 0 {
                    fib.deeper_lanes(addresses, next_hops);
                }
            }
        }
        _ => fib.lanes::<Avx512>(addresses, next_hops),
    }
}

/// The positions of a full batch's lanes in their trees: after the first steps, all of them are in a line of height
/// 1 or at the bottom. The line below that of height 1 is at `below + count * step`; for lanes at the bottom `step`
/// is 0, so this is the line itself, and no lane needs a branch.
#[repr(align(64))]
struct Descent {
    /// By lane: the tree's slot; 0, which is as good as any, if there is no tree.
    slots: [u32; LANES],
    /// By lane, in bytes: the line, the start of the lines below it, and their distance.
    lines: [u32; LANES],
    below: [u32; LANES],
    step: [u32; LANES],
    /// By lane, in bytes: the bottom line.
    bottoms: [u32; LANES],
    /// Lanes whose tree has height 2 or more. The space after the last lane is for vector stores.
    taller: [u8; LANES + 16],
}

/// The lanes with trees, and how many of them are in `Descent::taller`.
struct Trees {
    any: u64,
    taller: usize,
}

/// Root and middle for a full batch, sixteen slots at a time. Stores answers in `next_hops`, trees in `descent`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn direct_steps(
    fib: &Fib6,
    addresses: &[u128; LANES],
    next_hops: &mut [NextHopId; LANES],
    descent: &mut Descent,
) -> Trees {
    let mut slots = [_mm512_setzero_si512(); LANES / 16];
    let mut middle = slots;
    let groups = addresses.as_chunks::<16>().0.iter();
    for (group, (slots, middle)) in groups.zip(slots.iter_mut().zip(&mut middle)) {
        (*slots, *middle) = root_step(fib, group);
    }
    let mut trees = Trees { any: 0, taller: 0 };
    for (group, (&slot, &index)) in slots.iter().zip(&middle).enumerate() {
        let mut slot = slot;
        let blocks = _mm512_movepi32_mask(slot);
        // SAFETY: stores are of 16 entries at a multiple of 16 below `LANES`, or to the lists from at
        // most 48 on: their lengths count lanes before this group. Middle indices are cut to the
        // region's 26 bits, as `Region::at` does.
        unsafe {
            if blocks != 0 {
                slot = _mm512_mask_mov_epi32(slot, blocks, middle_step(fib, index));
            }
            _mm256_storeu_si256(next_hops.as_mut_ptr().add(group * 16).cast(), _mm512_cvtepi32_epi16(slot));
            let with_tree = _mm512_movepi32_mask(slot);
            let slot = _mm512_maskz_mov_epi32(with_tree, slot);
            _mm512_storeu_si512(descent.slots.as_mut_ptr().add(group * 16).cast(), slot);
            let line = _mm512_and_si512(_mm512_slli_epi32::<6>(slot), _mm512_set1_epi32(LINE_BYTES as i32));
            let tall = _mm512_test_epi32_mask(slot, _mm512_set1_epi32(3 << HEIGHT_SHIFT));
            let line_bytes = _mm512_set1_epi32(64);
            let below = _mm512_mask_add_epi32(line, tall, line, line_bytes);
            let wide = _mm512_test_epi32_mask(slot, _mm512_set1_epi32(WIDE as i32));
            let step = _mm512_maskz_mov_epi32(tall, line_bytes);
            let step = _mm512_mask_slli_epi32::<1>(step, wide, step);
            _mm512_storeu_si512(descent.lines.as_mut_ptr().add(group * 16).cast(), line);
            _mm512_storeu_si512(descent.below.as_mut_ptr().add(group * 16).cast(), below);
            _mm512_storeu_si512(descent.step.as_mut_ptr().add(group * 16).cast(), step);
            if with_tree != 0 {
                trees.any |= u64::from(with_tree) << (group * 16);
                let first = _mm_set1_epi8(group as i8 * 16);
                let lanes =
                    _mm_add_epi8(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), first);
                let lanes = _mm512_cvtepu8_epi32(lanes);
                let taller = _mm512_test_epi32_mask(slot, _mm512_set1_epi32(2 << HEIGHT_SHIFT));
                let list = _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(taller, lanes));
                _mm_storeu_si128(descent.taller.as_mut_ptr().add(trees.taller).cast(), list);
                trees.taller += taller.count_ones() as usize;
            }
        }
    }
    trees
}

/// The bits of a line's number in bytes.
const LINE_BYTES: u32 = (8 << LINES_LOG2) - 64;

/// The bits 32..48 of a lane's address.
#[inline(always)]
fn tree_bits(addresses: &[u128; LANES], lane: usize) -> u16 {
    (addresses[lane] >> 80) as u16
}

/// Takes all lanes to their bottom lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt,bmi2")]
fn split_steps(fib: &Fib6, addresses: &[u128; LANES], descent: &mut Descent, trees: &Trees) {
    for &lane in &descent.taller[..trees.taller.min(LANES)] {
        let lane = usize::from(lane) % LANES;
        let mut slot = descent.slots[lane];
        // Once, except for a tree of more than 16,384 runs.
        while height_of(slot) > 1 {
            slot = fib.split::<Avx512>(slot, tree_bits(addresses, lane));
        }
        let line = slot << 6 & LINE_BYTES;
        prefetch(fib.lines.at(line as usize / 8));
        descent.lines[lane] = line;
        descent.below[lane] = line + 64;
    }
    let lines = fib.lines.as_ptr().cast();
    for group in 0..LANES / 8 {
        if trees.any >> (group * 8) & 0xff == 0 {
            continue;
        }
        for lane in group * 8..group * 8 + 8 {
            // SAFETY: `lines` are cut to the region's size.
            let count = unsafe { less_at(lines, descent.lines[lane], tree_bits(addresses, lane)) };
            descent.bottoms[lane] = descent.below[lane] + count * descent.step[lane];
        }
    }
}

/// How many of the 32 keys in the line at byte `line` are less than `x`.
///
/// # Safety
/// 64 readable bytes lie at `line`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
unsafe fn less_at(lines: *const u8, line: u32, x: u16) -> u32 {
    let count: u32;
    // SAFETY: as the caller promises; nothing but a load and a compare.
    unsafe {
        asm!(
            "vpcmpnleuw {mask}, {x}, [{lines} + {line}]",
            "kmovd {count:e}, {mask}",
            "popcnt {count:e}, {count:e}",
            mask = out(kreg) _, x = in(zmm_reg) _mm512_set1_epi16(x as i16), lines = in(reg) lines,
            line = in(reg) u64::from(line), count = lateout(reg) count,
            options(readonly, nostack)
        );
    }
    count
}

/// The answers in the bottom lines, in lane order, so that they are stored in whole vectors: a lane without a tree
/// reads some line uselessly. Returns the bitwise OR of all answers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,popcnt")]
fn bottom_step(
    fib: &Fib6,
    addresses: &[u128; LANES],
    next_hops: &mut [NextHopId; LANES],
    descent: &Descent,
    trees: u64,
) -> NextHopId {
    let lines = fib.lines.as_ptr().cast();
    let mut any = _mm_setzero_si128();
    for group in 0..LANES / 8 {
        let with_tree = (trees >> (group * 8)) as u8;
        if with_tree == 0 {
            continue;
        }
        let mut at = [0_u64; 8];
        for (index, at) in at.iter_mut().enumerate() {
            let lane = group * 8 + index;
            // SAFETY: `below` and up to 32 steps end inside the region's slack.
            *at = unsafe { answer_at(lines, descent.bottoms[lane], tree_bits(addresses, lane)) };
        }
        // SAFETY: eight results of 2 bytes lie at a multiple of eight; `answer_at` tells where answers are.
        unsafe {
            let to: *mut __m128i = next_hops.as_mut_ptr().add(group * 8).cast();
            let found = _mm_unpacklo_epi64(
                load_answers(lines, [at[0], at[1], at[2], at[3]]),
                load_answers(lines, [at[4], at[5], at[6], at[7]]),
            );
            let found = _mm_mask_mov_epi16(_mm_loadu_si128(to), with_tree, found);
            any = _mm_or_si128(any, found);
            _mm_storeu_si128(to, found);
        }
    }
    let mut folded = [0_u16; 8];
    // SAFETY: the array has 16 bytes.
    unsafe { _mm_storeu_si128(folded.as_mut_ptr().cast(), any) };
    folded.into_iter().fold(0, |all, one| all | one)
}

/// The offset from `lines + 32` of the answer for `x` in the bottom line at byte `bottom`.
///
/// # Safety
/// 32 readable bytes lie at `bottom`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
unsafe fn answer_at(lines: *const u8, bottom: u32, x: u16) -> u64 {
    let count: u64;
    // SAFETY: as the caller promises; nothing but a load and a compare.
    unsafe {
        asm!(
            "vpcmpnleuw {mask}, {x}, [{lines} + {bottom}]",
            "kmovw {count:e}, {mask}",
            "popcnt {count:e}, {count:e}",
            mask = out(kreg) _, x = in(ymm_reg) _mm256_set1_epi16(x as i16), lines = in(reg) lines,
            bottom = in(reg) u64::from(bottom), count = lateout(reg) count,
            options(readonly, nostack)
        );
    }
    u64::from(bottom) + 2 * count
}

/// The answers at four offsets from `answer_at`, in the vector's lower half.
///
/// # Safety
/// 34 readable bytes lie at each offset.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_answers(lines: *const u8, at: [u64; 4]) -> __m128i {
    let found;
    // SAFETY: as the caller promises; memory is only read.
    unsafe {
        asm!(
            "movzx {a:e}, word ptr [{lines} + {a} + 32]",
            "vmovd {found}, {a:e}",
            "vpinsrw {found}, {found}, word ptr [{lines} + {b} + 32], 1",
            "vpinsrw {found}, {found}, word ptr [{lines} + {c} + 32], 2",
            "vpinsrw {found}, {found}, word ptr [{lines} + {d} + 32], 3",
            lines = in(reg) lines, a = inout(reg) at[0] => _, b = in(reg) at[1], c = in(reg) at[2],
            d = in(reg) at[3], found = out(xmm_reg) found,
            options(readonly, nostack, preserves_flags)
        );
    }
    found
}

/// The root slots of sixteen addresses, and the indices of their middle slots if they have some.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn root_step(fib: &Fib6, addresses: &[u128; 16]) -> (__m512i, __m512i) {
    // SAFETY: root indices have 20 bits, as the root has; the vectors are in the array's 256 bytes.
    unsafe {
        let slot = load_slots(fib.root.as_ptr().cast(), |lane| (addresses[lane] >> (128 - ROOT_BITS)) as u64);
        let from: *const i32 = addresses.as_ptr().cast();
        let vector = |at: usize| _mm512_loadu_si512(from.add(at * 16).cast());
        // Bits 0..32 are the last of an address's four words.
        let words = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 0, 0, 0, 0, 0, 0, 0, 0);
        let (low, high) = (
            _mm512_permutex2var_epi32(vector(0), words, vector(1)),
            _mm512_permutex2var_epi32(vector(2), words, vector(3)),
        );
        let bits = _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high));
        let bits = _mm512_and_si512(bits, _mm512_set1_epi32(0xfff));
        let index = _mm512_or_si512(_mm512_slli_epi32::<12>(slot), bits);
        // Cut to the region's bits, as `Region::at` does.
        (slot, _mm512_and_si512(index, _mm512_set1_epi32((1 << MIDDLE_LOG2) - 1)))
    }
}

/// The middle slots at these indices.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
fn middle_step(fib: &Fib6, index: __m512i) -> __m512i {
    let mut indices = [0_u32; 16];
    // SAFETY: the array has 64 bytes; the indices were cut to the region's size.
    unsafe {
        _mm512_storeu_si512(indices.as_mut_ptr().cast(), index);
        load_slots(fib.middle.as_ptr().cast(), |lane| u64::from(indices[lane]))
    }
}

/// The words at sixteen indices. Single loads and inserts: a gather takes longer (Zen 5).
///
/// # Safety
/// All indices lie in the memory at `slots`.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
unsafe fn load_slots(slots: *const u32, index: impl Fn(usize) -> u64) -> __m512i {
    let mut quarters = [_mm_setzero_si128(); 4];
    for (quarter, at) in quarters.iter_mut().zip([0, 4, 8, 12]) {
        // SAFETY: as the caller promises; memory is only read.
        unsafe {
            asm!(
                "vmovd {found}, dword ptr [{slots} + {a}*4]",
                "vpinsrd {found}, {found}, dword ptr [{slots} + {b}*4], 1",
                "vpinsrd {found}, {found}, dword ptr [{slots} + {c}*4], 2",
                "vpinsrd {found}, {found}, dword ptr [{slots} + {d}*4], 3",
                slots = in(reg) slots, a = in(reg) index(at), b = in(reg) index(at + 1),
                c = in(reg) index(at + 2), d = in(reg) index(at + 3), found = out(xmm_reg) *quarter,
                options(readonly, nostack, preserves_flags)
            );
        }
    }
    let low = _mm256_set_m128i(quarters[1], quarters[0]);
    let high = _mm256_set_m128i(quarters[3], quarters[2]);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
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

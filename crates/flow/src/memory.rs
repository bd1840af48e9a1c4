//! What the flow cache asks of the machine: lines that will be wanted, pages that may be large, eight tags compared at
//! once. What it buys: `cargo bench -p thalweg-flow --bench meter`, a million flows at random, where each packet touches
//! two lines and two pages at random.
#![allow(unsafe_code)]

/// Asks the cache for all lines of `slice[at]`; nothing for an `at` past the end.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = slice.get(at) {
        for line in 0..size_of::<T>().div_ceil(64) {
            // SAFETY: a prefetch is not an access; the address is inside an element anyway.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    std::ptr::from_ref(item).cast::<i8>().add(line * 64),
                );
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// A bit for each of the tags that is this one.
#[inline(always)]
pub(crate) fn places_of(tag: u32, tags: &[u32; 8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: both loads are of 16 octets inside the 32 of the array, and need no alignment; SSE2 is in the baseline.
        unsafe {
            let (wanted, at) = (_mm_set1_epi32(tag as i32), tags.as_ptr().cast::<__m128i>());
            let low = _mm_cmpeq_epi32(_mm_loadu_si128(at), wanted);
            let high = _mm_cmpeq_epi32(_mm_loadu_si128(at.add(1)), wanted);
            // Each a word of all ones or none: narrowed twice, they are eight octets of which the mask takes a bit each.
            let octets = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
            _mm_movemask_epi8(octets) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable_places_of(tag, tags)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable_places_of(tag: u32, tags: &[u32; 8]) -> u32 {
    (0..8).fold(0, |places, place| places | u32::from(tags[place] == tag) << place)
}

/// Asks for huge pages for what a list has reserved; a refusal costs speed only. Pages that were touched before stay as
/// they are.
pub(crate) fn advise_huge_pages<T>(list: &Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        const HUGE_PAGE: usize = 2 << 20;
        let (start, octets) = (list.as_ptr().cast::<u8>(), list.capacity() * size_of::<T>());
        let skip = start.align_offset(HUGE_PAGE);
        let whole = octets.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
        if whole > 0 {
            let start = start.wrapping_add(skip).cast_mut().cast();
            // SAFETY: whole pages inside the list's own allocation; the advice changes no content.
            unsafe { libc::madvise(start, whole, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = list;
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    #[test]
    fn tags_are_found_where_they_are() {
        let mut rng = XorShift64Star::new(2);
        for _ in 0..2000 {
            // Tags that differ in few bits, some of them twice.
            let tags = std::array::from_fn(|_| rng.below(3) << rng.below(31));
            for tag in tags.into_iter().chain([0, 1, u32::MAX]) {
                assert_eq!(places_of(tag, &tags), portable_places_of(tag, &tags));
            }
        }
    }
}

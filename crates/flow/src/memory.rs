//! Hints about memory: lines that will be wanted, pages that may be large. What they buy:
//! `cargo bench -p thalweg-flow --bench meter`, a million flows at random, where each packet touches two lines and two
//! pages at random.
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

//! A hint to the cache, and nothing else. What it buys: `cargo bench -p thalweg-flow --bench meter`, a million flows at
//! random, where each packet touches two lines at random.
#![allow(unsafe_code)]

/// Asks the cache for all lines of `slice[at]`; nothing for an `at` past the end.
#[inline(always)]
pub(crate) fn whole<T>(slice: &[T], at: usize) {
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

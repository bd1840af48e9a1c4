//! A hint to the cache, and nothing else. What it buys: `cargo bench -p thalweg-dataplane --bench nat`,
//! established sessions at 100k and 1M, where each packet touches two lines at random.
#![allow(unsafe_code)]

/// Asks the cache for the line that holds `slice[at]`; nothing for an `at` past the end.
#[inline(always)]
pub(crate) fn read<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = slice.get(at) {
        // SAFETY: a prefetch is not an access; the address is that of an element anyway.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                std::ptr::from_ref(item).cast(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

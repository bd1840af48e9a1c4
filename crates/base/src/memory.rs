//! Prefetching, and memory in large pages, for hot structures whose packets touch cache lines and pages at
//! random. `thalweg lab lpm` and the benchmarks `nat` (data plane) and `meter` (flow) measure the gain.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Size and alignment of a huge page on supported machines.
pub const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache line at an address: a hint, harmless for any value.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is not an access, whatever the address; SSE is in the baseline.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches all cache lines of an item.
#[inline(always)]
pub fn prefetch_all<T>(item: &T) {
    for line in 0..size_of::<T>().div_ceil(LINE) {
        prefetch(std::ptr::from_ref(item).cast::<u8>().wrapping_add(line * LINE));
    }
}

/// Prefetches the cache line of an item, if the index is in range.
#[inline(always)]
pub fn prefetch_at<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        prefetch(item);
    }
}

/// The system refused to allocate this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub usize);

/// Zeroed memory, aligned to a cache line or, with huge pages, to a huge page. The system provides pages when
/// they are touched, so a large reserve costs only address space.
#[derive(Debug)]
pub struct ZeroedMemory {
    start: NonNull<u8>,
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the type owns plain memory; the holder of the pointer answers for every access.
unsafe impl Send for ZeroedMemory {}
// SAFETY: as above.
unsafe impl Sync for ZeroedMemory {}

impl ZeroedMemory {
    /// Allocates at least this many bytes, in huge pages if requested and the system has them.
    pub fn new(bytes: usize, huge_pages: bool) -> Result<Self, Refused> {
        // With a small alignment, zeros come from the system; with a large one, the allocator would write
        // them itself. So the alignment is done here. Small requests are padded little: the allocator zeroes
        // reused memory by hand.
        let alignment = if huge_pages { HUGE_PAGE } else { LINE };
        let asked = bytes.checked_add(alignment).ok_or(Refused(usize::MAX))?;
        let layout = Layout::from_size_align(asked, 16).map_err(|_| Refused(asked))?;
        // SAFETY: the layout's size is not zero.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Refused(asked))?;
        let skip = allocation.as_ptr().align_offset(alignment);
        // SAFETY: less than the alignment is skipped, which was asked for on top.
        let start = unsafe { allocation.add(skip) };
        if huge_pages {
            advise_huge_pages(start.as_ptr(), bytes);
        }
        Ok(Self { start, allocation, layout })
    }

    /// The address of the first byte.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for ZeroedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

/// Requests huge pages for memory that is not touched yet; a refusal only costs speed.
pub fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let (bytes, start) = (size_of_val(memory), memory.as_mut_ptr().cast::<u8>());
    let skip = start.align_offset(HUGE_PAGE).min(bytes);
    advise_huge_pages(start.wrapping_add(skip), bytes - skip);
}

/// `start` must be aligned to a huge page.
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        let whole = bytes / HUGE_PAGE * HUGE_PAGE;
        if whole > 0 {
            // SAFETY: whole pages inside the caller's own memory; the advice changes no content.
            unsafe { libc::madvise(start.cast(), whole, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_huge_pages_is_memory() {
        for count in [0, 1, 1000, 1 << 20] {
            let mut numbers: Vec<u64> = Vec::with_capacity(count);
            prefer_huge_pages(numbers.spare_capacity_mut());
            numbers.extend(0..count as u64);
            assert!(numbers.iter().copied().eq(0..count as u64));
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        assert!(
            ZeroedMemory::new(usize::MAX, true).is_err()
                && ZeroedMemory::new(isize::MAX as usize, true).is_err()
        );
        let memory = ZeroedMemory::new(1 << 22, true).unwrap();
        assert_eq!(memory.start().as_ptr() as usize % HUGE_PAGE, 0);
    }
}

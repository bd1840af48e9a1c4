//! What hot structures ask of the machine: lines that will be wanted, and memory in large pages. What it buys is measured where
//! it is used: `thalweg lab lpm`, and the benchmarks `nat` of the data plane and `meter` of flows, whose packets touch lines and
//! pages at random.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Size and alignment of a huge page on the machines this is for.
pub const HUGE_PAGE: usize = 2 << 20;
/// A line of the cache.
const LINE: usize = 64;

/// Asks the cache for the line at an address: a hint, harmless for any value.
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

/// Asks the cache for all lines of an item.
#[inline(always)]
pub fn prefetch_all<T>(item: &T) {
    for line in 0..size_of::<T>().div_ceil(LINE) {
        prefetch(std::ptr::from_ref(item).cast::<u8>().wrapping_add(line * LINE));
    }
}

/// Asks the cache for the line of an item, if there is one.
#[inline(always)]
pub fn prefetch_at<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        prefetch(item);
    }
}

/// The system has no so much memory: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub usize);

/// Zeroed memory that begins at a line of the cache, or where a huge page does if it is to have some. The system gives pages
/// when they are touched, so a large reserve costs address space alone.
#[derive(Debug)]
pub struct ZeroedMemory {
    start: NonNull<u8>,
    allocation: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory that it owns; who may touch what is a matter of who has the pointer.
unsafe impl Send for ZeroedMemory {}
// SAFETY: as above.
unsafe impl Sync for ZeroedMemory {}

impl ZeroedMemory {
    /// At least so many bytes, in huge pages if the system likes.
    pub fn new(bytes: usize, huge_pages: bool) -> Result<Self, Refused> {
        // Zeros of a small alignment come from the system; of a large one the allocator would write them. So it is made here.
        // What is small is asked for without much to skip: the allocator zeroes by hand what it gives a second time.
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

    /// Where it begins.
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

/// Asks for huge pages in memory that is not touched yet; a refusal costs speed only.
pub fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let (bytes, start) = (size_of_val(memory), memory.as_mut_ptr().cast::<u8>());
    let skip = start.align_offset(HUGE_PAGE).min(bytes);
    advise_huge_pages(start.wrapping_add(skip), bytes - skip);
}

/// The same from an address on that is aligned to a huge page.
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

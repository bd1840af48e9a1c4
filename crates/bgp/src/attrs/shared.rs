//! A shared attribute set in one piece of memory.
//!
//! ```text
//! AttrRef ──> count  8 B | head 40 B | bytes
//! ```
//!
//! The table of attribute sets is larger than any cache: a set that is found is waited for. In one piece it is one run
//! of lines, which the processor fetches together, and one allocation instead of two. `cargo bench -p thalweg-bgp --bench
//! rib -- intern` and `cargo bench -p thalweg-sim --bench converge` measure the gain. Miri (`cargo +nightly miri test -p
//! thalweg-bgp --lib attrs::shared`, with strict provenance) finds nothing to object to.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::hash::{Hash, Hasher};
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::{Attrs, Head};

/// What comes before the bytes.
#[repr(C)]
struct Counted {
    count: AtomicUsize,
    head: Head,
}

// An `Attrs` begins at the head; its bytes follow the head without a gap.
const _: () = assert!(size_of::<Counted>() == offset_of!(Counted, head) + size_of::<Head>());

/// A shared attribute set. Two of one [`Interner`](super::Interner) are equal if and only if they are the same object.
pub struct AttrRef(NonNull<Counted>);

// SAFETY: the set is immutable, and the count is atomic.
unsafe impl Send for AttrRef {}
// SAFETY: as above.
unsafe impl Sync for AttrRef {}

impl AttrRef {
    /// Copies a set to memory of its own.
    pub(super) fn new(head: Head, bytes: &[u8]) -> Self {
        assert!(head.bytes() == bytes.len(), "the head has the length of the bytes");
        let layout = layout(bytes.len());
        // SAFETY: the layout has room for the head, so its size is not zero.
        let start = unsafe { alloc(layout) }.cast::<Counted>();
        let Some(set) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: the layout has room for what is written, aligned for `Counted`, and nobody else knows of it.
        unsafe {
            set.write(Counted { count: AtomicUsize::new(1), head });
            ptr::copy_nonoverlapping(bytes.as_ptr(), set.add(1).cast().as_ptr(), bytes.len());
        }
        Self(set)
    }

    /// A number that identifies the set as long as a reference to it is held.
    #[inline]
    pub fn id(&self) -> usize {
        self.0.addr().get()
    }

    /// Whether there is another reference to the set.
    pub(super) fn is_held_elsewhere(&self) -> bool {
        self.count().load(Ordering::Acquire) > 1
    }

    #[inline]
    fn count(&self) -> &AtomicUsize {
        // SAFETY: the memory lives as long as this reference to it.
        unsafe { &self.0.as_ref().count }
    }
}

/// The memory of a set with so many bytes, which is a multiple of the head's alignment, as an `Attrs` is.
fn layout(bytes: usize) -> Layout {
    let rest = Layout::array::<u8>(bytes).ok();
    let whole = rest.and_then(|rest| Layout::new::<Counted>().extend(rest).ok());
    // A set is made of messages, so it is far from being too large.
    whole.map_or_else(Layout::new::<Counted>, |(whole, _)| whole.pad_to_align())
}

impl std::ops::Deref for AttrRef {
    type Target = Attrs;

    #[inline]
    fn deref(&self) -> &Attrs {
        // SAFETY: the memory lives as long as this reference to it. The address of the head comes from the pointer to
        // the whole, so it may be used for the bytes after the head; there are as many as the head says.
        unsafe {
            let head = &raw const (*self.0.as_ptr()).head;
            let bytes = (*head).bytes();
            &*(ptr::slice_from_raw_parts(head.cast::<u8>(), bytes) as *const Attrs)
        }
    }
}

impl Clone for AttrRef {
    #[inline]
    fn clone(&self) -> Self {
        // The new reference comes from an existing one, so nothing needs an order.
        let count = self.count().fetch_add(1, Ordering::Relaxed);
        if count > usize::MAX / 2 {
            // More references than fit into memory: they were leaked, and the count is about to wrap.
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for AttrRef {
    #[inline]
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) == 1 {
            // Whatever others did with the set happened before their references went.
            fence(Ordering::Acquire);
            // SAFETY: this was the last reference; the set was allocated in `new` with this layout.
            unsafe {
                let bytes = self.0.as_ref().head.bytes();
                dealloc(self.0.as_ptr().cast(), layout(bytes));
            }
        }
    }
}

impl PartialEq for AttrRef {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for AttrRef {}

impl Hash for AttrRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AttrsBuilder, Interner, NextHop};
    use super::*;

    fn set(bytes: usize) -> AttrRef {
        let mut builder = AttrsBuilder::default();
        builder.next_hop = NextHop::V4([192, 0, 2, 1].into());
        builder.set(0xc0, 99, &vec![7; bytes]).unwrap();
        Interner::new(1).intern(&mut builder)
    }

    #[test]
    fn a_set_of_any_length_reads_back_and_outlives_its_table() {
        for bytes in (0..100).chain([255, 256, 4000, 65_535]) {
            let held = set(bytes);
            assert_eq!(held.get(99), Some(&vec![7; bytes][..]));
            assert_eq!(held.next_hop(), NextHop::V4([192, 0, 2, 1].into()));
            assert_eq!(held.id() % align_of::<Counted>(), 0);
        }
    }

    #[test]
    fn references_count() {
        let one = set(20);
        assert!(!one.is_held_elsewhere());
        let two = one.clone();
        assert!(one.is_held_elsewhere() && one == two && one.id() == two.id());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let held = two.clone();
                scope.spawn(move || (0..1000).for_each(|_| drop(held.clone())));
            }
        });
        drop(two);
        assert!(!one.is_held_elsewhere());
        assert_eq!(size_of::<Option<AttrRef>>(), size_of::<usize>());
    }
}

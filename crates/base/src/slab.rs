//! The memory of packets: one slab holds the bytes of one chunk.
//!
//! A farm hands the packets of one chunk to several workers, and each rewrites headers of its own packets
//! only. Copying the packets into separate memory would cost as much as routing them, so the parts share the
//! slab and write to disjoint spans of it. Rust cannot see that the spans are disjoint; this module and
//! `chunk.rs` are built so that safe code cannot make them overlap:
//!
//! - only [`crate::ChunkBuilder`] makes spans, each behind the end of the previous one; behind them all is room from
//!   which a packet that grows claims another span, and no part of it is claimed twice;
//! - a [`Packet`](crate::Packet) cannot be copied or made elsewhere, and its span cannot be changed;
//! - a packet carries the tag of its slab, and every access compares it: if a packet is swapped into a chunk
//!   of another slab, the access panics.
//!
//! `thalweg lab models` measures the gain (farm against run-to-completion).
#![allow(unsafe_code)]

use crate::Packet;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Bytes before each frame that belong to it, so that a link-layer header can be written in front of a bare
/// IP packet in place. A pcap record header is exactly this long.
pub(crate) const HEADROOM: usize = 16;

static NEXT_TAG: AtomicU32 = AtomicU32::new(1);

/// The bytes of one chunk's packets. The memory returns to its pool when the last part of the chunk is
/// dropped.
pub struct Slab {
    bytes: UnsafeCell<Vec<u8>>,
    tag: u32,
    /// Where the bytes begin that no packet has.
    free: AtomicUsize,
    home: Option<Arc<dyn SlabHome>>,
}

// SAFETY: the bytes are reached only through `span` and [`Window`], whose callers hold the only packet
// that names the span (see the module text); the vector itself is never grown or replaced while shared.
unsafe impl Sync for Slab {}

impl Slab {
    /// A slab whose packets have the first `used` bytes.
    pub(crate) fn new(bytes: Vec<u8>, used: usize, home: Option<Arc<dyn SlabHome>>) -> Self {
        let (bytes, free) = (UnsafeCell::new(bytes), AtomicUsize::new(used));
        Self { bytes, tag: NEXT_TAG.fetch_add(1, Ordering::Relaxed), free, home }
    }

    /// Makes room for this many bytes behind the packets, if a packet's offset can name them.
    pub(crate) fn make_room(&mut self, count: usize) {
        let (bytes, end) = (self.bytes.get_mut(), self.free.get_mut().saturating_add(count));
        if bytes.len() < end && u32::try_from(end).is_ok() {
            bytes.resize(end, 0);
        }
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// Returns the bytes of a span.
    ///
    /// # Safety
    /// `tag`, `start` and `len` come from a packet the caller borrows (or lie inside its span).
    #[inline(always)]
    pub(crate) unsafe fn span(&self, tag: u32, start: usize, len: usize) -> &[u8] {
        assert!(tag == self.tag, "packet used with the slab of another chunk");
        // SAFETY: reads the vector's pointer and length, which nothing writes while the slab is shared.
        let bytes = unsafe { &*self.bytes.get() };
        debug_assert!(start + len <= bytes.len());
        // SAFETY: the builder checked the span against the buffer when it made the packet, and the tag says that this
        // is that buffer; no one writes while the packet is borrowed.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().add(start), len) }
    }

    /// A view to change packets by: the address of the bytes, read once.
    #[inline(always)]
    pub(crate) fn window(&self) -> Window<'_> {
        // SAFETY: reads the vector's pointer and length, which nothing writes while the slab is shared.
        let bytes = unsafe { &*self.bytes.get() };
        Window { tag: self.tag, bytes: bytes.as_ptr(), len: bytes.len(), free: &self.free }
    }

    /// The bytes and their pool, for another slab.
    pub(crate) fn take(&mut self) -> (Vec<u8>, Option<Arc<dyn SlabHome>>) {
        (std::mem::take(self.bytes.get_mut()), self.home.take())
    }

    /// The bytes, while nobody else has the slab.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut()
    }

    pub(crate) fn home(&self) -> Option<&dyn SlabHome> {
        self.home.as_deref()
    }
}

/// See [`Slab::window`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    tag: u32,
    bytes: *const u8,
    /// Of all bytes. Spans are checked by it in debug builds; the builder checked them already.
    len: usize,
    free: &'a AtomicUsize,
}

impl<'a> Window<'a> {
    /// Claims a span of the room behind the packets: no other call gets any of it.
    pub(crate) fn claim(self, count: usize) -> Option<usize> {
        let after = |free: usize| free.checked_add(count).filter(|end| *end <= self.len);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok()
    }

    /// The bytes of a span, for changes.
    ///
    /// # Safety
    /// `tag`, `start` and `len` come from a packet the caller borrows mutably for `'a`, or lie inside its span.
    #[inline(always)]
    pub(crate) unsafe fn span_mut(self, tag: u32, start: usize, len: usize) -> &'a mut [u8] {
        assert!(tag == self.tag, "packet used with the slab of another chunk");
        debug_assert!(start + len <= self.len);
        // SAFETY: the builder checked the span against the buffer when it made the packet, and the tag says that
        // this is that buffer; the borrow of the only packet with this span makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.add(start).cast_mut(), len) }
    }

    /// [`Self::span_mut`] for a length known at compile time.
    ///
    /// # Safety
    /// As [`Self::span_mut`].
    #[inline(always)]
    pub(crate) unsafe fn array_mut<const N: usize>(self, tag: u32, start: usize) -> &'a mut [u8; N] {
        assert!(tag == self.tag, "packet used with the slab of another chunk");
        debug_assert!(start + N <= self.len);
        // SAFETY: as above; an array of bytes has no alignment of its own.
        unsafe { &mut *self.bytes.add(start).cast_mut().cast() }
    }

    /// Prefetches the line at `start`; any value is harmless.
    #[inline(always)]
    pub(crate) fn prefetch(self, start: usize) {
        crate::prefetch(self.bytes.wrapping_add(start));
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put(std::mem::take(self.bytes.get_mut()));
        }
    }
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab").field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// A pool that chunks take their memory from and return it to, between a source and a sink.
pub trait SlabHome: Send + Sync + std::fmt::Debug {
    fn put(&self, buffer: Vec<u8>);

    /// Returns an empty list for descriptors. It reuses a returned list if there is one, because its lines
    /// may still be in a cache.
    fn take_list(&self) -> Vec<Packet>;

    fn put_list(&self, list: Vec<Packet>);
}

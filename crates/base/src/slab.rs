//! The memory of packets: one slab holds the bytes of one chunk.
//!
//! A farm hands the packets of one chunk to several workers, each of which rewrites headers of its own
//! packets only. Copying them apart would cost as much as routing them, so the parts share the slab and
//! write to disjoint spans of it. Rust cannot see that the spans are disjoint; this module and
//! `chunk.rs` are built so that safe code cannot make them overlap:
//!
//! - spans are handed out by [`crate::ChunkBuilder`] alone, each behind the end of the one before;
//! - a [`Packet`](crate::Packet) cannot be copied or made elsewhere, and its span cannot be changed;
//! - a packet carries the tag of its slab, and every access compares it: a packet swapped into a chunk
//!   of another slab makes the access panic, not read foreign bytes.
//!
//! What this buys is measured by `thalweg lab models` (farm against run-to-completion).
#![allow(unsafe_code)]

use crate::Packet;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes before each frame that belong to it, so that a link-layer header can be put in front of a
/// bare IP packet in place. A capture's own record header leaves exactly this much.
pub(crate) const HEADROOM: usize = 16;

static NEXT_TAG: AtomicU32 = AtomicU32::new(1);

/// The bytes of one chunk's packets. Goes back to its pool when the last part of the chunk is gone.
pub struct Slab {
    bytes: UnsafeCell<Vec<u8>>,
    tag: u32,
    home: Option<Arc<dyn SlabHome>>,
}

// SAFETY: the bytes are reached only through `span` and `span_mut`, whose callers hold the only packet
// that names the span (see the module text); the vector itself is never grown or replaced once shared.
unsafe impl Sync for Slab {}

impl Slab {
    pub(crate) fn new(bytes: Vec<u8>, home: Option<Arc<dyn SlabHome>>) -> Self {
        Self { bytes: UnsafeCell::new(bytes), tag: NEXT_TAG.fetch_add(1, Ordering::Relaxed), home }
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    #[inline(always)]
    fn span_ptr(&self, tag: u32, start: usize, len: usize) -> *mut u8 {
        assert!(tag == self.tag, "packet used with the slab of another chunk");
        // SAFETY: reads the vector's pointer and length, which nothing writes while the slab is shared.
        let bytes = unsafe { &*self.bytes.get() };
        debug_assert!(start + len <= bytes.len());
        // SAFETY: the builder checked the span against the buffer when it made the packet, and the tag
        // says that this is that buffer.
        unsafe { bytes.as_ptr().add(start).cast_mut() }
    }

    /// The bytes of a span.
    ///
    /// # Safety
    /// `tag`, `start` and `len` come from a packet the caller borrows (or lie inside its span).
    #[inline(always)]
    pub(crate) unsafe fn span(&self, tag: u32, start: usize, len: usize) -> &[u8] {
        // SAFETY: in bounds by `span_ptr`; no one writes while the packet is borrowed.
        unsafe { std::slice::from_raw_parts(self.span_ptr(tag, start, len), len) }
    }

    /// The bytes of a span, to be changed.
    ///
    /// # Safety
    /// `tag`, `start` and `len` come from a packet the caller borrows mutably for as long as the result
    /// lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // disjoint spans of one buffer, see the module text
    pub(crate) unsafe fn span_mut(&self, tag: u32, start: usize, len: usize) -> &mut [u8] {
        // SAFETY: in bounds by `span_ptr`; the caller's mutable borrow of the only packet with this span
        // makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.span_ptr(tag, start, len), len) }
    }

    /// The slab as a loop over packets sees it: where the bytes are, read once.
    #[inline(always)]
    pub(crate) fn window(&self) -> Window<'_> {
        // SAFETY: reads the vector's pointer, which nothing writes while the slab is shared.
        let bytes = unsafe { (*self.bytes.get()).as_ptr() };
        Window { tag: self.tag, bytes, slab: PhantomData }
    }

    /// Where the chunk's memory goes when it is done with.
    pub(crate) fn home(&self) -> Option<&dyn SlabHome> {
        self.home.as_deref()
    }

    /// Asks the cache for the line at `start`; harmless for any value.
    #[inline(always)]
    pub(crate) fn prefetch(&self, start: usize) {
        // SAFETY: reads the vector's pointer, which nothing writes while the slab is shared.
        let bytes = unsafe { (*self.bytes.get()).as_ptr() };
        crate::prefetch(bytes.wrapping_add(start));
    }
}

/// See [`Slab::window`].
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    tag: u32,
    bytes: *const u8,
    slab: PhantomData<&'a Slab>,
}

impl<'a> Window<'a> {
    /// As [`Slab::span_mut`].
    ///
    /// # Safety
    /// `tag`, `start` and `len` come from a packet the caller borrows mutably for `'a`, or lie inside its span.
    #[inline(always)]
    pub(crate) unsafe fn span_mut(self, tag: u32, start: usize, len: usize) -> &'a mut [u8] {
        assert!(tag == self.tag, "packet used with the slab of another chunk");
        // SAFETY: the builder checked the span against the buffer when it made the packet, and the tag says that
        // this is that buffer; the borrow of the only packet with this span makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.add(start).cast_mut(), len) }
    }

    /// The same for a number of bytes that is known beforehand.
    ///
    /// # Safety
    /// As [`Self::span_mut`].
    #[inline(always)]
    pub(crate) unsafe fn array_mut<const N: usize>(self, tag: u32, start: usize) -> &'a mut [u8; N] {
        assert!(tag == self.tag, "packet used with the slab of another chunk");
        // SAFETY: as above; an array of bytes has no alignment of its own.
        unsafe { &mut *self.bytes.add(start).cast_mut().cast() }
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

/// Where the memory of chunks comes from, and goes when they are done with: a pool between a source and a sink.
pub trait SlabHome: Send + Sync + std::fmt::Debug {
    /// Takes a buffer back.
    fn put(&self, buffer: Vec<u8>);

    /// An empty list for descriptors; one that was put, if there is any, because its lines may still be in a cache.
    fn take_list(&self) -> Vec<Packet>;

    /// Takes a list of descriptors back.
    fn put_list(&self, list: Vec<Packet>);
}

//! The rings that an AF_XDP socket shares with the kernel.
//!
//! ```text
//! fill       we produce    frames that may be received into        addresses
//! receive    we consume    what arrived, and where                 descriptors
//! transmit   we produce    what is to be sent                      descriptors
//! completion we consume    frames that have been sent              addresses
//! ```
//!
//! A ring is a power of two of entries and two free-running counters: the producer's, behind the last entry that it
//! wrote, and the consumer's, behind the last that it has finished. Entries between them belong to the consumer,
//! the others to the producer. Each side writes only its own counter, with release, and reads the other's with
//! acquire, so entries are written before they are seen and read before they are overwritten. Each side caches the
//! other's counter and reads it again only when the cached value does not suffice, because a read moves a cache
//! line.
//!
//! The four kinds of rings at the end of the file convert between addresses and [`Frame`]s: a frame that goes into
//! a ring is given up, and one that comes out has no other owner.
//!
//! Unsafe because the kernel is on the other end of the memory. The gain is the whole of AF_XDP.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::umem::{Frame, Mapping, Umem};

/// An entry of a ring: an address or a descriptor in the kernel's layout.
///
/// # Safety
/// Any bytes must be a valid value, and the layout must be the kernel's.
unsafe trait Entry: Copy {}

// SAFETY: an address in the region.
unsafe impl Entry for u64 {}
// SAFETY: three integers without padding.
unsafe impl Entry for libc::xdp_desc {}

/// The offsets of a ring's parts, and of its memory in the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
    pub(super) flags: u64,
    pub(super) page_offset: libc::off_t,
}

/// A ring's memory, for either end.
#[derive(Debug)]
struct Ring<E> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<E>,
    size: u32,
    /// Unmaps the memory when dropped.
    _mapping: Mapping,
    _entries: PhantomData<E>,
}

// SAFETY: the pointers are into the mapping, which this value owns and which may move between threads.
unsafe impl<E: Entry> Send for Ring<E> {}

impl<E: Entry> Ring<E> {
    fn map(socket: BorrowedFd<'_>, layout: Layout, size: u32) -> io::Result<Self> {
        let bytes = layout.entries as usize + size as usize * size_of::<E>();
        let counters_end =
            [layout.producer, layout.consumer, layout.flags].map(|offset| offset as usize + size_of::<u32>());
        let aligned = [layout.producer, layout.consumer, layout.flags].iter().all(|offset| offset % 4 == 0)
            && layout.entries.is_multiple_of(align_of::<E>() as u64);
        if !aligned || counters_end.iter().any(|&end| end > bytes) || !size.is_power_of_two() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel reports an impossible ring layout",
            ));
        }
        let mapping = Mapping::shared(bytes, socket.as_raw_fd(), layout.page_offset)?;
        // SAFETY: all four lie in the mapping, as checked above.
        let at = |offset: u64| unsafe { mapping.start().add(offset as usize) };
        Ok(Self {
            producer: at(layout.producer).cast(),
            consumer: at(layout.consumer).cast(),
            flags: at(layout.flags).cast(),
            entries: at(layout.entries).cast(),
            size,
            _mapping: mapping,
            _entries: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, in the mapping, and only accessed atomically, by the kernel too.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn slot(&self, index: u32) -> *mut E {
        // SAFETY: the index is within the ring, whose entries lie in the mapping.
        unsafe { self.entries.as_ptr().add((index & (self.size - 1)) as usize) }
    }
}

/// Our end of a ring that the kernel reads.
#[derive(Debug)]
struct Producer<E> {
    ring: Ring<E>,
    /// Behind the last entry written. The kernel sees entries up to the shared counter.
    next: u32,
    /// Behind the last entry known to be finished.
    reclaimed: u32,
}

impl<E: Entry> Producer<E> {
    fn map(socket: BorrowedFd<'_>, layout: Layout, size: u32) -> io::Result<Self> {
        let ring = Ring::map(socket, layout, size)?;
        let next = ring.producer().load(Ordering::Relaxed);
        Ok(Self { ring, next, reclaimed: next })
    }

    /// Entries that may be written, as far as is known; [`Producer::reclaim`] may find more.
    #[inline]
    fn room(&self) -> u32 {
        self.ring.size - self.pending()
    }

    /// Entries written and not known to be finished.
    #[inline]
    fn pending(&self) -> u32 {
        self.next.wrapping_sub(self.reclaimed)
    }

    /// Writes an entry if there is room. The kernel does not see it before [`Producer::submit`].
    #[inline]
    fn push(&mut self, entry: E) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the slot is ours, because the consumer has finished with it.
        unsafe { self.ring.slot(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the written entries to the kernel.
    #[inline]
    fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Reads the kernel's counter and shows each entry that the kernel has finished since the last call, oldest
    /// first.
    fn reclaim(&mut self, mut show: impl FnMut(E)) {
        let seen = self.ring.consumer().load(Ordering::Acquire);
        // A counter outside the pending entries is nonsense, and ignored.
        if self.next.wrapping_sub(seen) > self.pending() {
            return;
        }
        while self.reclaimed != seen {
            // SAFETY: we wrote it, and it was not overwritten: `room` excludes it until it is reclaimed.
            show(unsafe { self.ring.slot(self.reclaimed).read() });
            self.reclaimed = self.reclaimed.wrapping_add(1);
        }
    }
}

/// Our end of a ring that the kernel writes.
#[derive(Debug)]
struct Consumer<E> {
    ring: Ring<E>,
    /// The next entry to take.
    next: u32,
    /// The producer's counter when last read.
    producer_seen: u32,
}

impl<E: Entry> Consumer<E> {
    fn map(socket: BorrowedFd<'_>, layout: Layout, size: u32) -> io::Result<Self> {
        let ring = Ring::map(socket, layout, size)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        Ok(Self { ring, next, producer_seen: next })
    }

    /// Entries that are there. Reads the kernel's counter if fewer than `wanted` were known.
    #[inline]
    fn available(&mut self, wanted: u32) -> u32 {
        let known = self.producer_seen.wrapping_sub(self.next);
        if known >= wanted {
            return known;
        }
        let seen = self.ring.producer().load(Ordering::Acquire);
        // More entries than the ring holds are nonsense, and ignored.
        if seen.wrapping_sub(self.next) <= self.ring.size {
            self.producer_seen = seen;
        }
        self.producer_seen.wrapping_sub(self.next)
    }

    /// The entry `ahead` behind the next one, if it is there.
    #[inline]
    fn peek(&self, ahead: u32) -> Option<E> {
        if ahead >= self.producer_seen.wrapping_sub(self.next) {
            return None;
        }
        // SAFETY: in the ring and written, since it lies before the producer's counter, which was read with
        // acquire.
        Some(unsafe { self.ring.slot(self.next.wrapping_add(ahead)).read() })
    }

    /// Takes the next entries, which must have been peeked at.
    #[inline]
    fn advance(&mut self, entries: u32) {
        debug_assert!(entries <= self.producer_seen.wrapping_sub(self.next));
        self.next = self.next.wrapping_add(entries);
    }

    /// Lets the kernel overwrite the entries taken.
    fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// Frames for the kernel to receive into.
#[derive(Debug)]
pub(super) struct FillRing(Producer<u64>);

impl FillRing {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: Layout, size: u32) -> io::Result<Self> {
        Producer::map(socket, layout, size).map(Self)
    }

    /// Gives a frame to the kernel, or returns it if there is no room.
    #[inline]
    pub(super) fn give(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.0.room() == 0 {
            self.0.reclaim(|_| ());
        }
        if self.0.push(frame.offset()) { Ok(()) } else { Err(frame) }
    }

    pub(super) fn submit(&mut self) {
        self.0.submit();
    }

    /// Whether the kernel waits for a call to continue.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.ring.needs_wakeup()
    }
}

/// A received piece of an Ethernet frame, within one frame of the region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) bytes: u32,
    /// The next piece belongs to the same Ethernet frame.
    pub(super) more: bool,
}

/// Frames that were received into.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    ring: Consumer<libc::xdp_desc>,
    umem: Arc<Umem>,
}

impl ReceiveRing {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        layout: Layout,
        size: u32,
        umem: &Arc<Umem>,
    ) -> io::Result<Self> {
        Ok(Self { ring: Consumer::map(socket, layout, size)?, umem: Arc::clone(umem) })
    }

    /// Pieces that are there. Reads the kernel's counter if fewer than `wanted` were known.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        self.ring.available(wanted)
    }

    /// The piece `ahead` behind the next one, if it is there.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> Option<Piece> {
        self.ring.peek(ahead).map(|entry| Piece {
            address: entry.addr,
            bytes: entry.len,
            more: entry.options & libc::XDP_PKT_CONTD != 0,
        })
    }

    /// Copies bytes of the piece `ahead` behind the next one, which stays in the ring. Returns false if it has fewer.
    #[inline]
    pub(super) fn copy_out(&self, ahead: u32, into: &mut [u8]) -> bool {
        let has = |entry: &libc::xdp_desc| usize::try_from(entry.len).is_ok_and(|bytes| bytes >= into.len());
        let Some(entry) = self.ring.peek(ahead).filter(has) else { return false };
        // SAFETY: the kernel gave the frame back with this entry, and nobody else has it before `take` gets there,
        // which needs `&mut self`. This right to it ends here.
        let frame = unsafe { self.umem.returned(entry.addr) };
        frame.is_some_and(|frame| self.umem.copy_out(&frame, entry.addr, into))
    }

    /// Takes the frame of the next piece, which must be there; `None` if the kernel named no valid frame.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Frame> {
        let entry = self.ring.peek(0)?;
        self.ring.advance(1);
        // SAFETY: the kernel gives it back with this entry, which is not read again.
        unsafe { self.umem.returned(entry.addr) }
    }

    pub(super) fn release(&mut self) {
        self.ring.release();
    }
}

/// Frames to send.
#[derive(Debug)]
pub(super) struct TransmitRing(Producer<libc::xdp_desc>);

impl TransmitRing {
    pub(super) fn map(socket: BorrowedFd<'_>, layout: Layout, size: u32) -> io::Result<Self> {
        Producer::map(socket, layout, size).map(Self)
    }

    /// Frames that may be given, as far as is known; [`TransmitRing::reclaim`] may find more.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.0.room()
    }

    /// Gives a frame with `bytes` bytes at its start to the kernel, or returns it if there is no room. With `more`,
    /// the next one belongs to the same Ethernet frame.
    #[inline]
    pub(super) fn give(&mut self, frame: Frame, bytes: u32, more: bool) -> Result<(), Frame> {
        let options = if more { libc::XDP_PKT_CONTD } else { 0 };
        let entry = libc::xdp_desc { addr: frame.offset(), len: bytes, options };
        if self.0.push(entry) { Ok(()) } else { Err(frame) }
    }

    pub(super) fn submit(&mut self) {
        self.0.submit();
    }

    /// Frames that the kernel has not processed, as far as is known.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        self.0.pending()
    }

    /// Shows the bytes of each frame that the kernel has processed since the last call, and whether more frames
    /// belonged to the same Ethernet frame.
    pub(super) fn reclaim(&mut self, mut show: impl FnMut(u32, bool)) {
        self.0.reclaim(|entry| show(entry.len, entry.options & libc::XDP_PKT_CONTD != 0));
    }

    /// Whether the kernel waits for a call to continue.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.ring.needs_wakeup()
    }
}

/// Frames that have been sent, or could not be.
#[derive(Debug)]
pub(super) struct CompletionRing {
    ring: Consumer<u64>,
    umem: Arc<Umem>,
}

impl CompletionRing {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        layout: Layout,
        size: u32,
        umem: &Arc<Umem>,
    ) -> io::Result<Self> {
        Ok(Self { ring: Consumer::map(socket, layout, size)?, umem: Arc::clone(umem) })
    }

    /// Takes back all frames that are there.
    pub(super) fn take_all(&mut self, into: &mut Vec<Frame>) {
        for _ in 0..self.ring.available(u32::MAX) {
            let Some(address) = self.ring.peek(0) else { break };
            self.ring.advance(1);
            // SAFETY: the kernel gives it back with this entry, which is not read again.
            into.extend(unsafe { self.umem.returned(address) });
        }
        self.ring.release();
    }
}

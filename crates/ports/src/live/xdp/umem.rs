//! The memory that we share with the kernel for frames: one region, cut into frames of equal size.
//!
//! The holder of a [`Frame`] may touch that frame's memory. A `Frame` is a number that cannot be copied or
//! invented: all are made with the region. One moves into the fill or transmit ring when the kernel gets the frame,
//! and comes out of the receive or completion ring when the kernel returns it. So no two holders have the same
//! frame, and none has one that the kernel has. We trust the kernel not to return frames that it was not given. But
//! numbers from it are checked against the region's size, so a broken kernel costs wrong bytes and not memory
//! safety.
//!
//! Unsafe because the region is raw memory: the kernel writes into parts of it while we read others, which no slice
//! over the whole could express. The gain is the whole of AF_XDP.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory of the process, whichever thread uses it; its users control the accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives out only the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private memory, zeroed.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// Memory that a descriptor offers at an offset.
    pub(super) fn shared(bytes: usize, descriptor: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, descriptor, offset)
    }

    fn map(bytes: usize, flags: i32, descriptor: i32, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>());
        start.map(|start| Self { start, bytes }).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` made it with this length, and every user borrowed or owned this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The right to a frame: its offset in the region.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame(u64);

impl Frame {
    pub(super) fn offset(&self) -> u64 {
        self.0
    }
}

/// A region and the size of its frames.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    frame_bytes: u32,
}

impl Umem {
    /// A region of `frames` frames, and the frames. `frame_bytes` is 2048 or 4096.
    pub(super) fn create(frames: u32, frame_bytes: u32) -> io::Result<(Self, Vec<Frame>)> {
        let mapping = Mapping::anonymous(frames as usize * frame_bytes as usize)?;
        let all = (0..frames).map(|i| Frame(u64::from(i) * u64::from(frame_bytes))).collect();
        Ok((Self { mapping, frame_bytes }, all))
    }

    pub(super) fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The frame that the kernel returned by an address in it; `None` for an address outside the region.
    ///
    /// # Safety
    /// The address must be from an entry that the kernel put into a ring, and one right to its frame may exist at a
    /// time.
    #[inline]
    pub(super) unsafe fn returned(&self, address: u64) -> Option<Frame> {
        let start = address & !(u64::from(self.frame_bytes) - 1);
        (start < self.mapping.bytes() as u64).then_some(Frame(start))
    }

    /// Copies bytes out of a frame, from `address`. Returns false if they do not lie in the frame.
    #[inline]
    pub(super) fn copy_out(&self, frame: &Frame, address: u64, into: &mut [u8]) -> bool {
        let within = address.wrapping_sub(frame.0);
        let size = u64::from(self.frame_bytes);
        if within > size || into.len() as u64 > size - within {
            return false;
        }
        // SAFETY: the bytes lie in the frame, which lies in the region. The caller holds the frame, so nothing
        // writes to it now; `into` is not in the region, because no slice is.
        unsafe {
            let from = self.mapping.start().as_ptr().add(address as usize);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        true
    }

    /// Copies bytes to the start of a frame. Returns false if there is no room for them.
    #[inline]
    pub(super) fn copy_in(&self, frame: &mut Frame, bytes: &[u8]) -> bool {
        if bytes.len() > self.frame_bytes as usize {
            return false;
        }
        // SAFETY: the bytes fit the frame, which lies in the region and belongs to the caller alone; `bytes` are
        // not in the region, because no slice is.
        unsafe {
            let to = self.mapping.start().as_ptr().add(frame.0 as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        true
    }

    /// Prefetches the cache line at an address; harmless for any value.
    #[inline(always)]
    pub(super) fn prefetch(&self, address: u64) {
        thalweg_base::prefetch(self.mapping.start().as_ptr().wrapping_add(address as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_what_is_put_in_and_nothing_beyond() {
        let (umem, mut frames) = Umem::create(4, 2048).unwrap();
        assert_eq!(frames.iter().map(Frame::offset).collect::<Vec<_>>(), [0, 2048, 4096, 6144]);
        let bytes: Vec<u8> = (0..2048u32).map(|i| i as u8).collect();
        assert!(umem.copy_in(&mut frames[1], &bytes));
        assert!(!umem.copy_in(&mut frames[1], &[0; 2049]));
        let mut out = [0; 2048];
        assert!(umem.copy_out(&frames[1], 2048, &mut out));
        assert_eq!(out[..], bytes);
        assert!(umem.copy_out(&frames[1], 2048 + 256, &mut out[..1792]));
        assert_eq!(out[..1792], bytes[256..]);
        // Behind its end, before its start, and far away.
        assert!(!umem.copy_out(&frames[1], 2048 + 256, &mut out[..1793]));
        assert!(!umem.copy_out(&frames[1], 2047, &mut out[..1]));
        assert!(!umem.copy_out(&frames[1], u64::MAX, &mut out[..1]));
        assert!(umem.copy_out(&frames[2], 4096, &mut out[..8]));
        assert_eq!(out[..8], [0; 8]);
        umem.prefetch(u64::MAX);
    }

    #[test]
    fn what_the_kernel_returns_is_one_of_the_frames() {
        let (umem, frames) = Umem::create(2, 4096).unwrap();
        // SAFETY: nobody uses what comes back.
        let returned = |address| unsafe { umem.returned(address) };
        assert_eq!(returned(256).as_ref(), Some(&frames[0]));
        assert_eq!(returned(4096 + 4095).as_ref(), Some(&frames[1]));
        assert_eq!(returned(8192), None);
        assert_eq!(returned(u64::MAX), None);
    }
}

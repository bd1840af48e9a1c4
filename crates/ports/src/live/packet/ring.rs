//! The receive ring: slots shared with the kernel.
//!
//! ```text
//! |status|length|snaplen|mac|net|time|vlan|  link address  | .. |offload header|Ethernet frame ...       |
//!  0      4      8       12  14  16   24    32                   mac - 10       mac                slot_bytes
//! ```
//!
//! A slot belongs to the kernel while its status word is 0, and otherwise to us. The kernel writes the frame first
//! and the status last; we read the status first and write 0 when done.
//!
//! Unsafe because the kernel writes the mapped memory; a slice shows it only while the status says that the slot is
//! ours. The gain: receiving without a call for each frame (benchmark `live`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::live::segment::OFFLOAD_BYTES;
use crate::socket_option;

/// Bytes in front of a frame in its slot: headers, the link address, and alignment; rounded up generously.
const SLOT_OVERHEAD: usize = 128;
const SLOT_BYTES_MIN: usize = 2048;
/// The kernel allocates blocks one by one, each in one piece if it can.
const BLOCK_BYTES: usize = 256 << 10;
/// The most memory of a ring: 64 Ki slots of 2 KiB, fewer larger ones.
const RING_BYTES_MAX: usize = 128 << 20;
/// Longer frames arrive through the socket's queue: slots for the longest segments would be mostly empty.
const SLOT_BYTES_MAX: usize = 16 << 10;

/// How far ahead slots are prefetched, and how many lines of each: the slot's headers, and those of the frame.
const PREFETCH_SLOTS: usize = 4;
#[cfg(target_arch = "x86_64")]
const PREFETCH_LINES: usize = 3;

/// The mapped ring.
pub(super) struct Ring {
    memory: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

// SAFETY: this value alone has the mapping, which is not bound to a thread.
unsafe impl Send for Ring {}

/// A frame in its slot.
pub(super) struct Slot<'a> {
    /// `TP_STATUS_*`.
    pub(super) status: u32,
    /// The frame's length, even if the slot holds less of it.
    pub(super) frame_bytes: usize,
    /// The VLAN tag that was stripped: identifier with priority, and protocol.
    pub(super) vlan: Option<(u16, u16)>,
    /// Offload header and frame, as much as fits the slot.
    pub(super) content: Option<(&'a [u8; OFFLOAD_BYTES], &'a [u8])>,
}

impl Ring {
    /// Gives a packet socket a ring for frames up to `frame_bytes`. The socket must use TPACKET_V2 and offload
    /// headers.
    pub(super) fn map(socket: BorrowedFd<'_>, frame_bytes: usize, frames: usize) -> io::Result<Self> {
        let slot_bytes =
            (frame_bytes + SLOT_OVERHEAD).next_power_of_two().clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX);
        let slots = frames.clamp(BLOCK_BYTES / slot_bytes, RING_BYTES_MAX / slot_bytes).next_power_of_two();
        let bytes = slots * slot_bytes;
        let request = [BLOCK_BYTES, bytes / BLOCK_BYTES, slot_bytes, slots];
        let mut value = [0; 16];
        for (field, number) in value.chunks_exact_mut(4).zip(request) {
            field.copy_from_slice(&(number as u32).to_ne_bytes());
        }
        socket_option::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &value)?;
        // SAFETY: maps new memory at an address that the kernel chooses.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        match NonNull::new(memory.cast::<u8>()) {
            Some(memory) if memory.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { memory, slot_bytes, slots, next: 0 })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        debug_assert!(slot < self.slots);
        // SAFETY: the slot is below `slots`, so it is within the mapping, and slots are aligned to 2 KiB. The
        // status is the slot's first word, which both sides access as one word.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(slot * self.slot_bytes).cast()) }
    }

    /// The frame `ahead` behind the next one, if it is there. It remains where it is until
    /// [`give_back`](Self::give_back) has returned it.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<Slot<'_>> {
        if ahead >= self.slots {
            return None;
        }
        let number = (self.next + ahead) & (self.slots - 1);
        let status = self.status(number).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: within the mapping as above. The kernel has handed the slot over and writes to it only after its
        // status is 0, which only `give_back` sets, with `&mut self`. The slice leaves out the status word.
        let slot = unsafe {
            let start = self.memory.as_ptr().add(number * self.slot_bytes);
            std::slice::from_raw_parts(start.add(4), self.slot_bytes - 4)
        };
        let word = |at: usize| u32::from_ne_bytes([slot[at - 4], slot[at - 3], slot[at - 2], slot[at - 1]]);
        let half = |at: usize| u16::from_ne_bytes([slot[at - 4], slot[at - 3]]);
        let (kept, mac) = (word(8) as usize, usize::from(half(12)));
        let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            (half(24), if known { half(26) } else { libc::ETH_P_8021Q as u16 })
        });
        let content = mac
            .checked_sub(OFFLOAD_BYTES + 4)
            .and_then(|offload| slot.get(offload..))
            .and_then(|rest| rest.split_first_chunk::<OFFLOAD_BYTES>())
            .and_then(|(offload, frame)| Some((offload, frame.get(..kept)?)));
        Some(Slot { status, frame_bytes: word(4) as usize, vlan, content })
    }

    /// Returns the next frame's slot to the kernel.
    #[inline]
    pub(super) fn give_back(&mut self) {
        self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) & (self.slots - 1);
        self.prefetch((self.next + PREFETCH_SLOTS) & (self.slots - 1));
    }

    /// Prefetches the headers in a slot, which another core has written.
    #[inline]
    fn prefetch(&self, slot: usize) {
        for line in 0..PREFETCH_LINES {
            thalweg_base::prefetch(self.memory.as_ptr().wrapping_add(slot * self.slot_bytes + line * 64));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and no reference is left: slots borrow the ring.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.slots * self.slot_bytes) };
    }
}

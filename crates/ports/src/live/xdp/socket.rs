//! One AF_XDP socket: creating, binding, querying and waking it.
//!
//! Unsafe because its options are structures, and binding and waking are C calls. The gain is the whole of AF_XDP.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use super::rings::{CompletionRing, FillRing, Layout, ReceiveRing, TransmitRing};
use super::umem::Umem;
use crate::socket_option;

/// A queue stays taken for a moment after its last socket was closed, because the kernel cleans up later.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);
const BUSY_TRIES: u32 = 100;
/// The most frames that one call sends in copy mode (linux/if_xdp.h, since Linux 6.17); without this option, 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

#[derive(Debug)]
pub(super) struct XdpSocket {
    descriptor: OwnedFd,
}

/// The parameters of [`XdpSocket::bind`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub(super) interface: u32,
    pub(super) queue: u32,
    pub(super) zero_copy: bool,
    /// Frames may lie in several buffers.
    pub(super) multi_buffer: bool,
}

impl XdpSocket {
    pub(super) fn open() -> io::Result<Self> {
        // SAFETY: no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, without another owner.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Registers the region with the kernel, which keeps its pages for as long as it uses them.
    pub(super) fn register(&self, umem: &Umem) -> io::Result<()> {
        let region = umem.mapping();
        let mut bytes = Vec::with_capacity(size_of::<libc::xdp_umem_reg>());
        // struct xdp_umem_reg: address, length, frame size, headroom, flags, metadata length. The kernel writes
        // only into frames that the fill ring names.
        bytes.extend_from_slice(&(region.start().as_ptr().expose_provenance() as u64).to_ne_bytes());
        bytes.extend_from_slice(&(region.bytes() as u64).to_ne_bytes());
        for word in [umem.frame_bytes(), 0, 0, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        socket_option::set(self.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &bytes)
    }

    fn create_ring(&self, option: libc::c_int, size: u32) -> io::Result<()> {
        socket_option::set_int(self.as_fd(), libc::SOL_XDP, option, size as i32)
    }

    /// Creates and maps the fill and completion rings.
    pub(super) fn memory_rings(
        &self,
        fill: u32,
        completion: u32,
        umem: &Arc<Umem>,
    ) -> io::Result<(FillRing, CompletionRing)> {
        self.create_ring(libc::XDP_UMEM_FILL_RING, fill)?;
        self.create_ring(libc::XDP_UMEM_COMPLETION_RING, completion)?;
        let offsets = self.offsets()?;
        let at = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let fill = FillRing::map(self.as_fd(), layout(&offsets.fr, at), fill)?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let completion = CompletionRing::map(self.as_fd(), layout(&offsets.cr, at), completion, umem)?;
        Ok((fill, completion))
    }

    pub(super) fn receive_ring(&self, size: u32, umem: &Arc<Umem>) -> io::Result<ReceiveRing> {
        self.create_ring(libc::XDP_RX_RING, size)?;
        let layout = layout(&self.offsets()?.rx, libc::XDP_PGOFF_RX_RING);
        ReceiveRing::map(self.as_fd(), layout, size, umem)
    }

    pub(super) fn transmit_ring(&self, size: u32) -> io::Result<TransmitRing> {
        self.create_ring(libc::XDP_TX_RING, size)?;
        // Saves system calls. A kernel without this option sends 32 frames a call.
        let _ = socket_option::set_int(self.as_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, size as i32);
        TransmitRing::map(self.as_fd(), layout(&self.offsets()?.tx, libc::XDP_PGOFF_TX_RING), size)
    }

    /// Binds the socket with its own region, or with that of `owner`.
    pub(super) fn bind(&self, binding: &Binding, owner: Option<&XdpSocket>) -> io::Result<()> {
        let flags = match owner {
            // The other flags are the owner's.
            Some(_) => libc::XDP_SHARED_UMEM,
            None => {
                let copy = if binding.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
                let multi_buffer = if binding.multi_buffer { libc::XDP_USE_SG } else { 0 };
                copy | multi_buffer | libc::XDP_USE_NEED_WAKEUP
            }
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: binding.interface,
            sxdp_queue_id: binding.queue,
            sxdp_shared_umem_fd: owner.map_or(0, |owner| owner.descriptor() as u32),
        };
        for _ in 0..BUSY_TRIES {
            let (pointer, length) = (std::ptr::from_ref(&address), size_of::<libc::sockaddr_xdp>());
            // SAFETY: the address is live and of the length given; the kernel only reads it.
            let result = unsafe { libc::bind(self.descriptor(), pointer.cast(), length as libc::socklen_t) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
            sleep(BUSY_TIMEOUT);
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// The kernel's counters.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.option(libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    /// Whether the driver writes into the region itself.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let options: libc::xdp_options = self.option(libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Takes the socket's pending error. The end of the interface is reported this way.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let code: libc::c_int = self.option(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
    }

    fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        self.option(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
    }

    fn option<T: Plain>(&self, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
        // SAFETY: integers, for which zero is valid.
        let mut value: T = unsafe { std::mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        let pointer = std::ptr::from_mut(&mut value).cast();
        // SAFETY: the kernel writes at most `length` bytes to the value, which is that long, and any bytes are a
        // valid value.
        match unsafe { libc::getsockopt(self.descriptor(), level, option, pointer, &mut length) } {
            0 if length as usize == size_of::<T>() => Ok(value),
            0 => Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's AF_XDP is too old")),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Lets the kernel send the frames in the transmit ring.
    pub(super) fn kick_transmit(&self) -> io::Result<()> {
        // SAFETY: an empty message without an address.
        let result = unsafe {
            libc::sendto(self.descriptor(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets the kernel receive into the frames of the fill ring.
    pub(super) fn kick_receive(&self) {
        let (no_address, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: an empty buffer and no address. The result does not matter: the call is repeated if necessary.
        unsafe {
            libc::recvfrom(
                self.descriptor(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                no_address,
                no_length,
            );
        }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn layout(offset: &libc::xdp_ring_offset, page_offset: libc::off_t) -> Layout {
    Layout {
        producer: offset.producer,
        consumer: offset.consumer,
        entries: offset.desc,
        flags: offset.flags,
        page_offset,
    }
}

/// A type that the kernel may fill in.
///
/// # Safety
/// Any bytes must be a valid value.
unsafe trait Plain {}

// SAFETY: all are integers.
unsafe impl Plain for libc::c_int {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_mmap_offsets {}

/// A descriptor that is readable when one of several is.
#[derive(Debug)]
pub(super) struct AnyOf(OwnedFd);

impl AnyOf {
    pub(super) fn new<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Self> {
        // SAFETY: no pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, without another owner.
        let any = Self(unsafe { OwnedFd::from_raw_fd(epoll) });
        for descriptor in descriptors {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: both descriptors are open, and the event is live for the call.
            let result =
                unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor.as_raw_fd(), &mut event) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(any)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

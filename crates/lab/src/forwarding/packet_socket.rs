//! Packet sockets of the tester (packet(7)): a sender that bypasses the queueing discipline in batches, and a
//! receiver of test frames with the kernel's arrival times.
//!
//! The tester does not use the router's ports: if it shared code with its subject, it would share its mistakes. It
//! sends batches of [`BATCH`] by `sendmmsg`, as the kernel's reference measurements do, so figures are comparable.
//!
//! `unsafe`: these are C calls, and there is no other way to a packet socket. The report's ceiling shows what a
//! batch saves over a call per frame.
#![allow(unsafe_code)]

use super::frame::{MAGIC, SEQUENCE_AT, STAMP_AT};
use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Frames per system call.
pub(crate) const BATCH: usize = 64;
/// Bytes that may wait in a socket's buffers: a tenth of a second of the smallest frames, with the kernel's
/// overhead.
const SOCKET_BUFFER: i32 = 64 << 20;
/// The size of the receive buffer: more than the largest test frame.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// The index of an interface in this thread's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<i32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a string that ends with a zero byte and lives longer than the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => i32::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// Sets a socket option; `value` must have the type that the kernel expects.
fn set<T: Copy>(socket: &OwnedFd, level: i32, option: i32, value: T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t; // a few bytes
    // SAFETY: the kernel reads `length` bytes of a live value of that size, and writes none.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a packet socket on an interface of this thread's network namespace. Protocol 0 receives nothing.
fn open(interface: &str, protocol: u16) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    bind(&socket, interface, protocol)?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, interface: &str, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface_index(interface)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives longer than the call, which reads `length` bytes of it.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes an interface of this thread's network namespace send frames as on a wire: with complete checksums, and no
/// longer than its MTU. Otherwise the kernel passes 64 KiB of TCP in one unfinished piece between virtual
/// interfaces, which measures no forwarding of frames.
pub(crate) fn plain_frames(interface: &str) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    for command in [ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO] {
        let mut value = EthtoolValue { command, data: 0 };
        // SAFETY: all-zero bytes are a request for the interface without a name.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // The last byte stays the terminating zero.
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(room)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request and the value it points to live longer than the call, and are as large as this call's
        // kind wants them.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) } < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Commands of `linux/ethtool.h`: transmit checksums, TCP segmentation, generic segmentation.
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;

/// Sends frames of one length from buffers of its own.
#[derive(Debug)]
pub(crate) struct PacketSender {
    socket: OwnedFd,
    frame_bytes: usize,
    buffers: Vec<u8>,
}

impl PacketSender {
    /// Opens a sender on an interface of this thread's network namespace.
    pub(crate) fn open(interface: &str, frame_bytes: usize) -> io::Result<Self> {
        let socket = open(interface, 0)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1i32)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER)?;
        Ok(Self { socket, frame_bytes, buffers: vec![0; BATCH * frame_bytes] })
    }

    /// One of [`BATCH`] buffers.
    pub(crate) fn frame_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.buffers[at * self.frame_bytes..][..self.frame_bytes]
    }

    /// Sends the buffers from `first` up to `end`; returns how many the interface took. An error concerns the
    /// first.
    pub(crate) fn send(&mut self, first: usize, end: usize) -> io::Result<usize> {
        let end = end.min(BATCH);
        let count = end.saturating_sub(first);
        // SAFETY: all-zero bytes are a message without address, data and options.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let frames = self.buffers.chunks_exact_mut(self.frame_bytes).skip(first);
        for ((message, piece), frame) in messages.iter_mut().zip(&mut pieces).zip(frames).take(count) {
            *piece = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` messages point to pieces, these to buffers; all live longer than the call, which
        // reads the buffers and writes only lengths into `messages`.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Receives test frames, or a sample of them.
#[derive(Debug)]
pub(crate) struct PacketReceiver {
    socket: OwnedFd,
    frame: Vec<u8>,
}

/// Keeps the kernel stamping what arrives, as long as it lives. The kernel begins some time after the first socket that
/// wants stamps; a frame that arrives before that is stamped when it is read.
#[derive(Debug)]
pub(crate) struct Stamping {
    _socket: OwnedFd,
}

impl Stamping {
    pub(crate) fn begin(interface: &str) -> io::Result<Self> {
        let socket = open(interface, 0)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1i32)?;
        Ok(Self { _socket: socket })
    }
}

/// When a frame arrived, and its length; the bytes are in [`PacketReceiver::frame`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Nanoseconds since 1970, by the kernel.
    pub(crate) arrived_ns: u64,
    pub(crate) bytes: usize,
}

impl PacketReceiver {
    /// Opens a receiver on an interface of this thread's network namespace, for test frames whose sequence number
    /// has no bit of `mask` set. It waits at most `timeout` for a frame.
    pub(crate) fn open(interface: &str, mask: u32, timeout: Duration) -> io::Result<Self> {
        // Bound to no protocol until the filter is in place, so that no other frame is queued.
        let socket = open(interface, 0)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1i32)?;
        let timeout = libc::timeval {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_usec: timeout.subsec_micros().into(),
        };
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeout)?;
        attach(&socket, &filter(mask))?;
        bind(&socket, interface, libc::ETH_P_IP as u16)?;
        Ok(Self { socket, frame: vec![0; FRAME_BYTES_MAX] })
    }

    pub(crate) fn frame(&self, arrival: Arrival) -> &[u8] {
        &self.frame[..arrival.bytes.min(self.frame.len())]
    }

    /// The next frame; `None` if none arrived in time.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Arrival>> {
        let mut piece = libc::iovec { iov_base: self.frame.as_mut_ptr().cast(), iov_len: self.frame.len() };
        let mut control = [0u64; 16];
        // SAFETY: all-zero bytes are a message without address, data and options.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control);
        // SAFETY: piece and control point to live memory of the lengths given, which nobody else uses meanwhile.
        let bytes = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut message, 0) };
        let Ok(bytes) = usize::try_from(bytes) else {
            let error = io::Error::last_os_error();
            let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            return if nothing { Ok(None) } else { Err(error) };
        };
        // SAFETY: the kernel has filled in the control data, whose length it says; the macros stay within it.
        let arrived_ns = unsafe { timestamp(&message) };
        Ok(Some(Arrival { arrived_ns: arrived_ns.unwrap_or(0), bytes }))
    }
}

/// The kernel's timestamp among the control data.
///
/// # Safety
/// `message` must be as `recvmsg` left it, its control data still alive.
unsafe fn timestamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the caller's promise.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: not null, so within the control data; the kernel aligns headers.
        let header = unsafe { &*at };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS {
            // SAFETY: such a header is followed by a `timespec`, whatever its alignment.
            let time: libc::timespec =
                unsafe { libc::CMSG_DATA(at).cast::<libc::timespec>().read_unaligned() };
            return Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        }
        // SAFETY: the caller's promise.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    None
}

/// A filter that passes test frames whose sequence number has no bit of `mask` set.
fn filter(mask: u32) -> [libc::sock_filter; 7] {
    let code = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |k: u32, jt: u8, jf: u8| libc::sock_filter { jt, jf, ..code(JUMP_EQUAL, k) };
    const JUMP_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    [
        code(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, STAMP_AT as u32),
        jump(MAGIC.into(), 0, 4),
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, SEQUENCE_AT as u32),
        code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask),
        jump(0, 0, 1),
        code(libc::BPF_RET | libc::BPF_K, u32::MAX),
        code(libc::BPF_RET | libc::BPF_K, 0),
    ]
}

fn attach(socket: &OwnedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    // The kernel copies the instructions before the call returns, and does not write to them.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

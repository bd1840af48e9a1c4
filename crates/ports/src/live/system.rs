//! System calls that live ports need and that neither the standard library nor `socket2` has.
//!
//! Unsafe because they are C calls that take pointers; every function here is safe to call with any arguments.
//! There is no other way to packets, so no measurement justifies them, except for [`send_frames`], which hands the
//! kernel many frames in one call.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::segment::OFFLOAD_BYTES;
use thalweg_wire::EtherType;

/// The length of an interface name with its final zero.
pub(super) const NAME_BYTES: usize = libc::IFNAMSIZ;

thalweg_base::words! {
    /// The `ioctl` calls on interfaces; each exchanges one [`InterfaceRequest`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum InterfaceCall {
        Index => "SIOCGIFINDEX",
        Name => "SIOCGIFNAME",
        Flags => "SIOCGIFFLAGS",
        SetFlags => "SIOCSIFFLAGS",
        Mtu => "SIOCGIFMTU",
        SetMtu => "SIOCSIFMTU",
        Mac => "SIOCGIFHWADDR",
        SetMac => "SIOCSIFHWADDR",
        /// On `/dev/net/tun`, not on a socket: attaches to the interface or creates it.
        TunAttach => "TUNSETIFF",
    }
}

impl InterfaceCall {
    fn number(self) -> libc::Ioctl {
        let number = match self {
            Self::Index => libc::SIOCGIFINDEX,
            Self::Name => libc::SIOCGIFNAME,
            Self::Flags => libc::SIOCGIFFLAGS,
            Self::SetFlags => libc::SIOCSIFFLAGS,
            Self::Mtu => libc::SIOCGIFMTU,
            Self::SetMtu => libc::SIOCSIFMTU,
            Self::Mac => libc::SIOCGIFHWADDR,
            Self::SetMac => libc::SIOCSIFHWADDR,
            Self::TunAttach => return libc::TUNSETIFF,
        };
        number as libc::Ioctl
    }
}

/// `struct ifreq`: a name, and a union of which each call uses its part.
#[repr(C, align(8))]
pub(super) struct InterfaceRequest {
    pub(super) name: [u8; NAME_BYTES],
    pub(super) value: [u8; size_of::<libc::ifreq>() - NAME_BYTES],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());
const _: () = assert!(align_of::<InterfaceRequest>() >= align_of::<libc::ifreq>());

/// Makes the call; the kernel writes the answer to `request`.
pub(super) fn interface_call(
    fd: BorrowedFd<'_>,
    call: InterfaceCall,
    request: &mut InterfaceRequest,
) -> io::Result<()> {
    // SAFETY: each call reads and writes one `struct ifreq` without following a pointer in it, and
    // `InterfaceRequest` has the same size and alignment.
    match unsafe { libc::ioctl(fd.as_raw_fd(), call.number(), &raw mut *request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes an `ethtool` call on the interface that the request names; `structure` is the whole structure of the command
/// in its first word.
pub(super) fn ethtool<const WORDS: usize>(
    fd: BorrowedFd<'_>,
    mut request: InterfaceRequest,
    structure: &mut [u32; WORDS],
) -> io::Result<()> {
    let pointer = structure.as_mut_ptr().expose_provenance().to_ne_bytes();
    request.value[..pointer.len()].copy_from_slice(&pointer);
    let question = libc::SIOCETHTOOL as libc::Ioctl;
    // SAFETY: the call reads and writes an `ifreq`, whose layout `InterfaceRequest` has, and the structure that
    // it points to. Callers pass the whole structure that the kernel reads and writes for the command in its
    // first word.
    match unsafe { libc::ioctl(fd.as_raw_fd(), question, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets or clears the carrier of a TAP interface.
pub(super) fn tun_set_carrier(fd: BorrowedFd<'_>, carrier: bool) -> io::Result<()> {
    let carrier = libc::c_int::from(carrier);
    // SAFETY: the call reads one `int` from the pointer.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETCARRIER, &raw const carrier) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets the length of the offload headers of a TAP interface.
pub(super) fn tun_set_header_bytes(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the call reads one `int` from the pointer.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The numeric settings of a TAP interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunNumber {
    /// Whether the interface stays when no program is attached.
    Persist,
    /// The work that the kernel leaves to us: `TUN_F_*`.
    Offload,
}

/// Changes a setting.
pub(super) fn tun_set(fd: BorrowedFd<'_>, what: TunNumber, value: u32) -> io::Result<()> {
    let call = match what {
        TunNumber::Persist => libc::TUNSETPERSIST,
        TunNumber::Offload => libc::TUNSETOFFLOAD,
    };
    // SAFETY: both calls take an integer, no pointer.
    match unsafe { libc::ioctl(fd.as_raw_fd(), call, libc::c_ulong::from(value)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Binds a packet socket to an interface. The socket receives frames of `protocol`, which is given in host byte
/// order.
pub(super) fn bind_packet(socket: BorrowedFd<'_>, protocol: u16, index: u32) -> io::Result<()> {
    let address = packet_address(protocol, index);
    // SAFETY: the kernel reads as many bytes as the address has.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), PACKET_ADDRESS_BYTES) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const PACKET_ADDRESS_BYTES: libc::socklen_t = size_of::<libc::sockaddr_ll>() as libc::socklen_t;

fn packet_address(protocol: u16, index: u32) -> libc::sockaddr_ll {
    // SAFETY: `sockaddr_ll` consists of integers and an array of them; all zeros are a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    address
}

/// The most frames in one call of [`send_frames`].
pub(super) const SEND_FRAMES_MAX: usize = 64;

/// Sends the first frames of `spans` (start and length within `bytes`), each as one message, as many as the socket
/// takes without waiting. Returns how many, at least one unless `spans` is empty; an error is that of the first.
///
/// `bare` is the interface if it has no link layer: the kernel is then told of each packet which protocol it is.
pub(super) fn send_frames(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    spans: &[(u32, u32)],
    bare: Option<u32>,
) -> io::Result<usize> {
    let names = bare.map(|index| [EtherType::IPV4, EtherType::IPV6].map(|of| packet_address(of.0, index)));
    let mut vectors = [const { MaybeUninit::<libc::iovec>::zeroed() }; SEND_FRAMES_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; SEND_FRAMES_MAX];
    let mut count = 0;
    for ((&(start, length), vector), header) in spans.iter().zip(&mut vectors).zip(&mut headers) {
        let frame = &bytes[start as usize..][..length as usize];
        let vector =
            vector.write(libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() });
        // SAFETY: `mmsghdr` consists of integers and pointers; all zeros, as it was made, are a valid value.
        let header = unsafe { header.assume_init_mut() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        if let Some([v4, v6]) = &names {
            let is_v6 = frame.get(OFFLOAD_BYTES).is_some_and(|byte| byte >> 4 == 6);
            header.msg_hdr.msg_name = std::ptr::from_ref(if is_v6 { v6 } else { v4 }).cast_mut().cast();
            header.msg_hdr.msg_namelen = PACKET_ADDRESS_BYTES;
        }
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    let flags = libc::MSG_DONTWAIT as _;
    // SAFETY: the first `count` headers are written; each names one vector, which names a part of `bytes`, and perhaps
    // one of `names`; all of them outlive the call. The kernel reads frames and names, and writes only the headers'
    // lengths.
    match unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), count, flags) } {
        sent @ 0.. => Ok(sent as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor to wait for; see [`wait`].
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Waiting(libc::pollfd);

impl Waiting {
    pub(super) fn for_reading(fd: RawFd) -> Self {
        Self(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// Whether the descriptor is readable or has failed.
    pub(super) fn is_ready(&self) -> bool {
        self.0.revents != 0
    }
}

/// Waits until a descriptor is readable or has failed, or the timeout has passed; a signal ends the wait early.
pub(super) fn wait(descriptors: &mut [Waiting], timeout: Duration) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as _,
    };
    let count = descriptors.len() as libc::nfds_t;
    // SAFETY: `Waiting` is a `pollfd`, and the kernel reads and writes `count` of them. For a closed descriptor it
    // only reports an error.
    match unsafe { libc::ppoll(descriptors.as_mut_ptr().cast(), count, &raw const time, std::ptr::null()) } {
        0.. => Ok(()),
        _ => {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            descriptors.iter_mut().for_each(|each| each.0.revents = 0);
            Ok(())
        }
    }
}

/// A counter that is readable while it is not zero (eventfd).
pub(super) fn event_counter() -> io::Result<File> {
    // SAFETY: no pointers.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new and has no other owner.
        fd => Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) })),
    }
}

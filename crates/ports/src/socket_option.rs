//! Socket options that neither the standard library nor `socket2` supports: MD5 passwords, GTSM, and those of
//! netlink and packet sockets.
//!
//! Unsafe because `setsockopt` and `getsockopt` are C calls. No measurement is needed to justify it: the
//! kernel offers no other way to MD5 (RFC 2385), GTSM (RFC 5082) and packet rings.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option of a socket to the given bytes, whose meaning is not checked.
pub(crate) fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let Ok(length) = libc::socklen_t::try_from(value.len()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel reads at most `length` bytes
    // from the pointer, which is to a live slice of that length, and writes none.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option into `value`; returns how many bytes the kernel wrote.
pub(crate) fn get(socket: BorrowedFd<'_>, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let Ok(mut length) = libc::socklen_t::try_from(value.len()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes at most `length` bytes to the
    // pointer, which is to a live slice of that length, and the true length to `length`.
    match unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length)
    } {
        0 => Ok(length as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option of type `int`.
pub(crate) fn set_int(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    set(socket, level, option, &value.to_ne_bytes())
}

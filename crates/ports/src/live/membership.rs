//! Multicast and promiscuous mode of an interface, for as long as a packet socket of ours is open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

use crate::socket_option;

/// The frames that a packet socket asks an interface to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListensTo {
    /// All multicast frames.
    Groups,
    /// All frames (promiscuous mode).
    Everybody,
}

/// Asks for them until the socket is closed.
pub(super) fn ask(socket: BorrowedFd<'_>, index: u32, listens_to: ListensTo) -> io::Result<()> {
    let kind = match listens_to {
        ListensTo::Groups => libc::PACKET_MR_ALLMULTI,
        ListensTo::Everybody => libc::PACKET_MR_PROMISC,
    };
    // struct packet_mreq: index, kind, length of the address, address.
    let mut membership = [0; 16];
    membership[..4].copy_from_slice(&index.to_ne_bytes());
    membership[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
    socket_option::set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// A socket that receives nothing and keeps an interface promiscuous.
#[derive(Debug)]
pub(super) struct Promiscuous {
    _socket: Socket,
}

impl Promiscuous {
    /// Makes the interface promiscuous. Needs `CAP_NET_RAW`.
    pub(super) fn begin(index: u32) -> io::Result<Self> {
        // Without a protocol the socket gets no copy of any frame.
        let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec().nonblocking(), None)?;
        ask(socket.as_fd(), index, ListensTo::Everybody)?;
        Ok(Self { _socket: socket })
    }
}

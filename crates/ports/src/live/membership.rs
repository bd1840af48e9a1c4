//! Multicast and promiscuous mode of an interface, while our packet socket is open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

use crate::socket_option;

/// What a packet socket may ask an interface to listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListensTo {
    /// Frames to any group.
    Groups,
    /// Frames to anybody.
    Everybody,
}

/// Asks for it. It ends with the socket.
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

/// A socket that receives nothing and has an interface listen to everybody.
#[derive(Debug)]
pub(super) struct Promiscuous {
    _socket: Socket,
}

impl Promiscuous {
    /// Begins. Needs `CAP_NET_RAW`.
    pub(super) fn begin(index: u32) -> io::Result<Self> {
        // Without a protocol no frame is copied to it.
        let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec().nonblocking(), None)?;
        ask(socket.as_fd(), index, ListensTo::Everybody)?;
        Ok(Self { _socket: socket })
    }
}

//! How full the buffer is of the socket that a socket of ours sends datagrams to, if it is on this system
//! (`NETLINK_SOCK_DIAG`, sock_diag(7)): no rate tells how fast a program reads, and UDP does not tell what it misses.

use std::net::{IpAddr, SocketAddr};

use super::error::KernelError;
use super::message::{AttributesOf, u32_at};
use super::socket::Netlink;
use super::sockets::SOCK_DIAG_BY_FAMILY;

/// `INET_DIAG_SKMEMINFO`: an array of counters, of which these are the ones of the receive buffer.
const MEMORY: u16 = 7;
const TAKEN: usize = 0;
const LIMIT: usize = 1;
const DROPPED: usize = 8;
/// Bytes of an answer before its attributes (`inet_diag_msg`).
const ANSWER_BYTES: usize = 72;

/// The buffer of the receiving socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerBuffer {
    /// Bytes that wait, with the kernel's overhead.
    pub taken: u32,
    pub limit: u32,
    /// Datagrams that found no room, of every sender, since the socket was opened; wraps.
    pub dropped: u32,
}

/// Asks for the buffer of one socket.
#[derive(Debug)]
pub struct PeerSocket {
    netlink: Netlink,
    /// `inet_diag_req_v2`.
    request: [u8; 56],
}

impl PeerSocket {
    /// The receiver of what a socket at `ours` sends to `theirs`; `None` if it is elsewhere or the kernel does not
    /// tell.
    pub fn find(ours: SocketAddr, theirs: SocketAddr) -> Option<Self> {
        if !theirs.ip().is_loopback() && ours.ip() != theirs.ip() {
            return None;
        }
        let mut request = [0; 56];
        let family = if theirs.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        request[0] = u8::try_from(family).ok()?;
        (request[1], request[2]) = (u8::try_from(libc::IPPROTO_UDP).ok()?, 1 << (MEMORY - 1));
        request[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        // Of a datagram: the sender stands first.
        request[8..10].copy_from_slice(&ours.port().to_be_bytes());
        request[10..12].copy_from_slice(&theirs.port().to_be_bytes());
        for (at, address) in [(12, ours.ip()), (28, theirs.ip())] {
            match address {
                IpAddr::V4(address) => request[at..at + 4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => request[at..at + 16].copy_from_slice(&address.octets()),
            }
        }
        // Any cookie.
        request[48..56].fill(0xff);
        Some(Self { netlink: Netlink::of(libc::NETLINK_SOCK_DIAG).ok()?, request })
    }

    /// `None` if nobody listens there now.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not support the question.
    pub fn read(&mut self) -> Result<Option<PeerBuffer>, KernelError> {
        let what = "a socket's buffer";
        match self.netlink.one(what, SOCK_DIAG_BY_FAMILY, &self.request, |message| buffer(message.body)) {
            Err(KernelError::Refused { refusal, .. }) if refusal.errno == libc::ENOENT => {
                // Nobody listens, or the module is missing: then no socket at all is known.
                Ok(None)
            }
            answer => answer,
        }
    }
}

fn buffer(answer: &[u8]) -> Option<PeerBuffer> {
    let mut attributes = AttributesOf(answer.get(ANSWER_BYTES..)?);
    let (_, counters) = attributes.find(|(kind, _)| *kind == MEMORY)?;
    let counter = |at: usize| u32_at(counters, 4 * at);
    Some(PeerBuffer { taken: counter(TAKEN)?, limit: counter(LIMIT)?, dropped: counter(DROPPED)? })
}

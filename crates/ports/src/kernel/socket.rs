//! A netlink socket: requests, dumps, answers.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thalweg_base::uninterrupted;

use super::error::{KernelError, Refusal};
use super::message::{AttributesOf, HEADER, Message, MessageWriter, Messages, u32_at};
use crate::socket_option;

/// The receive buffer: a batch of refused routes fits, and some 20,000 notifications.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The most bytes of one `send`.
const SEND_BUFFER_BYTES: usize = 2 << 20;
/// The kernel fills dump datagrams up to 32 KiB; a link with many virtual functions may need more.
const DATAGRAM_BYTES: usize = 256 << 10;
/// The kernel answers while it executes a request; after this long without an answer it hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;

/// A netlink socket.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    buffer: Box<[u8]>,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for links, addresses, routes and neighbors.
    pub(super) fn open() -> Result<Self, KernelError> {
        Self::of(libc::NETLINK_ROUTE)
    }

    /// Opens a socket for another netlink family.
    pub(super) fn of(protocol: i32) -> Result<Self, KernelError> {
        let open = |source| KernelError::Open { source };
        let family = Domain::from(libc::AF_NETLINK);
        let protocol = Some(Protocol::from(protocol));
        let socket = Socket::new(family, Type::RAW.cloexec(), protocol).map_err(open)?;
        socket.set_read_timeout(Some(TIMEOUT)).map_err(open)?;
        set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES).map_err(open)?;
        set_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER_BYTES).map_err(open)?;
        for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK, libc::NETLINK_GET_STRICT_CHK] {
            socket_option::set_int(socket.as_fd(), libc::SOL_NETLINK, option, 1).map_err(open)?;
        }
        let netlink = Self { socket, buffer: vec![0; DATAGRAM_BYTES].into_boxed_slice(), sequence: 1 };
        // The first message gives the socket its address. Until then its address is 0, like that of the
        // kernel, which sends an event to all but its author. This message requests nothing and gets no
        // answer.
        let mut noop = MessageWriter::default();
        noop.begin(libc::NLMSG_NOOP as u16, 0, 0, &[]);
        noop.end();
        netlink.send(&noop)?;
        Ok(netlink)
    }

    /// Subscribes to a multicast group.
    pub(super) fn join(&self, group: u32) -> Result<(), KernelError> {
        let membership = libc::NETLINK_ADD_MEMBERSHIP;
        socket_option::set_int(self.socket.as_fd(), libc::SOL_NETLINK, membership, group as i32)
            .map_err(|source| KernelError::Open { source })
    }

    pub(super) fn set_nonblocking(&self) -> Result<(), KernelError> {
        self.socket.set_nonblocking(true).map_err(|source| KernelError::Open { source })
    }

    /// The sequence number of the first of `count` requests.
    pub(super) fn sequences(&mut self, count: u32) -> u32 {
        if self.sequence.checked_add(count).is_none() {
            self.sequence = 1;
        }
        let first = self.sequence;
        self.sequence += count;
        first
    }

    /// Sends requests, the last of which must request an acknowledgment, and waits until all are executed.
    /// Calls `failed` with the sequence number and the reason of each refused request.
    ///
    /// # Errors
    ///
    /// [`KernelError::Overrun`] if answers were lost; the requests may have been executed.
    pub(super) fn execute(
        &mut self,
        requests: &MessageWriter,
        last: u32,
        mut failed: impl FnMut(u32, Refusal),
    ) -> Result<(), KernelError> {
        let first = last - (requests.count() - 1);
        self.send(requests)?;
        loop {
            let datagram = self.receive()?;
            for message in Messages(&self.buffer[..datagram]) {
                // An answer to an earlier, abandoned request.
                if !(first..=last).contains(&message.sequence) {
                    continue;
                }
                if let Some(answer) = answer(&message) {
                    if let Err(refusal) = answer {
                        failed(message.sequence, refusal);
                    }
                    if message.sequence == last {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Sends a dump request and calls `visit` with each message. Returns whether the tables changed
    /// meanwhile, so that the list may be neither the old nor the new one.
    pub(super) fn dump(
        &mut self,
        what: &'static str,
        request: &MessageWriter,
        sequence: u32,
        mut visit: impl FnMut(Message<'_>),
    ) -> Result<bool, KernelError> {
        self.send(request)?;
        let mut interrupted = false;
        loop {
            let datagram = self.receive()?;
            for message in Messages(&self.buffer[..datagram]) {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= message.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
                if i32::from(message.kind) == libc::NLMSG_DONE {
                    return match done(&message) {
                        Ok(()) => Ok(interrupted),
                        Err(refusal) => Err(KernelError::Refused { what, refusal }),
                    };
                }
                match answer(&message) {
                    None => visit(message),
                    Some(Ok(())) => {}
                    Some(Err(refusal)) => return Err(KernelError::Refused { what, refusal }),
                }
            }
        }
    }

    /// [`Self::dump`] with a request that is only a header.
    pub(super) fn list(
        &mut self,
        what: &'static str,
        kind: u16,
        header: &[u8],
        visit: impl FnMut(Message<'_>),
    ) -> Result<bool, KernelError> {
        let sequence = self.sequences(1);
        let mut request = MessageWriter::default();
        request.begin(kind, REQUEST | libc::NLM_F_DUMP as u16, sequence, header);
        request.end();
        self.dump(what, &request, sequence, visit)
    }

    /// Sends a request that is only a header and has one message as its answer.
    pub(super) fn one<T>(
        &mut self,
        what: &'static str,
        kind: u16,
        header: &[u8],
        read: impl Fn(Message<'_>) -> T,
    ) -> Result<T, KernelError> {
        let sequence = self.sequences(1);
        let mut request = MessageWriter::default();
        request.begin(kind, REQUEST, sequence, header);
        request.end();
        self.send(&request)?;
        loop {
            let datagram = self.receive()?;
            // Others are answers to earlier, abandoned requests.
            let mut messages = Messages(&self.buffer[..datagram]);
            let Some(message) = messages.find(|message| message.sequence == sequence) else { continue };
            return match answer(&message) {
                Some(Err(refusal)) => Err(KernelError::Refused { what, refusal }),
                Some(Ok(())) | None => Ok(read(message)),
            };
        }
    }

    /// The messages waiting now; `None` if there are none.
    pub(super) fn events(&mut self) -> Result<Option<Messages<'_>>, KernelError> {
        match self.receive() {
            Ok(length) => Ok(Some(Messages(&self.buffer[..length]))),
            Err(KernelError::Socket { source }) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send(&self, requests: &MessageWriter) -> Result<(), KernelError> {
        let sent = uninterrupted(|| self.socket.send(requests.bytes()));
        sent.map(drop).map_err(|source| KernelError::Socket { source })
    }

    fn receive(&mut self) -> Result<usize, KernelError> {
        uninterrupted(|| (&self.socket).read(&mut self.buffer)).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::ENOBUFS) => KernelError::Overrun,
                _ => KernelError::Socket { source },
            }
        })
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets a buffer's size beyond the system's limit if we may, otherwise up to it.
fn set_buffer(socket: &Socket, force: i32, ask: i32, bytes: usize) -> io::Result<()> {
    let bytes = bytes as i32;
    socket_option::set_int(socket.as_fd(), libc::SOL_SOCKET, force, bytes)
        .or_else(|_| socket_option::set_int(socket.as_fd(), libc::SOL_SOCKET, ask, bytes))
}

/// The result in an acknowledgment; `None` for other messages.
fn answer(message: &Message<'_>) -> Option<Result<(), Refusal>> {
    /// The answer has only the header of the request.
    const CAPPED: u16 = 0x100;
    /// Attributes follow.
    const HAS_ATTRIBUTES: u16 = 0x200;
    if i32::from(message.kind) != libc::NLMSG_ERROR {
        return None;
    }
    let errno = u32_at(message.body, 0).map_or(libc::EPROTO, |code| -(code as i32));
    if errno == 0 {
        return Some(Ok(()));
    }
    let echoed = if message.flags & CAPPED != 0 {
        HEADER
    } else {
        u32_at(message.body, 4).map_or(0, |length| (length as usize).next_multiple_of(4))
    };
    let attributes = if message.flags & HAS_ATTRIBUTES != 0 { message.body.get(4 + echoed..) } else { None };
    Some(Err(Refusal { errno, message: attributes.and_then(text) }))
}

/// The result of a dump.
fn done(message: &Message<'_>) -> Result<(), Refusal> {
    let errno = u32_at(message.body, 0).map_or(0, |code| -(code as i32));
    if errno == 0 {
        return Ok(());
    }
    Err(Refusal { errno, message: message.body.get(4..).and_then(text) })
}

fn text(attributes: &[u8]) -> Option<Box<str>> {
    const MESSAGE: u16 = 1;
    let (_, text) = AttributesOf(attributes).find(|(kind, _)| *kind == MESSAGE)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').into())
}

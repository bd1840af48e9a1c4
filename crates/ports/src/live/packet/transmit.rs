//! The sending half of an AF_PACKET port.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use thalweg_base::uninterrupted;

use crate::live::link::{LinkFacts, Links};
use crate::live::segment::{OFFLOAD_BYTES, Opening};
use crate::live::system::{self, SEND_FRAMES_MAX};
use crate::live::{LiveError, NotTaken, PortTx, TxCounters, bare, segment};
use crate::socket_option;

/// The bytes of unsent frames that the interface may hold, including the kernel's overhead: some 340 small frames
/// or 110 of 1,500 bytes. More would only wait outside the router's own queues, which could order them.
pub const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Frames pushed and not yet taken by the kernel: room for one batch while another is being sent.
pub const PENDING_FRAMES_MAX: usize = 4 * SEND_FRAMES_MAX;

/// How often to check an interface that is down.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Frames refused as too long after which the MTU is read anew.
const REFUSED_PER_LOOK: u64 = 64;
/// Merged frames in a row that the kernel has to refuse until the port asks for single ones.
const UNCUT_MAX: u8 = 2;
const ETHERNET: usize = 14;
/// The offload header of a single frame.
const NOTHING_LEFT_TO_DO: [u8; OFFLOAD_BYTES] = [0; OFFLOAD_BYTES];

pub(super) struct PacketTx {
    interface: String,
    links: Links,
    socket: Socket,
    bypass: bool,
    index: u32,
    mtu: usize,
    /// The interface has no link layer.
    is_bare: bool,
    /// The pushed frames, each behind an offload header, one behind the other.
    bytes: Vec<u8>,
    /// Where each frame lies in `bytes`.
    spans: Vec<(u32, u32)>,
    /// How many of them were sent or have failed.
    done: usize,
    /// When the interface was found down or gone, or last checked after that.
    down: Option<Instant>,
    too_long: u64,
    /// Merged frames in a row that the kernel did not cut.
    uncut: u8,
    counters: TxCounters,
}

impl PacketTx {
    pub(super) fn open(interface: &str, facts: &LinkFacts, bypass: bool) -> Result<Self, LiveError> {
        let links = Links::open().map_err(LiveError::call(interface, "socket"))?;
        let socket = attach(interface, facts.index, bypass)?;
        Ok(Self {
            interface: interface.to_owned(),
            links,
            socket,
            bypass,
            index: facts.index,
            mtu: facts.mtu as usize,
            is_bare: facts.far_end.is_some(),
            bytes: Vec::with_capacity(PENDING_FRAMES_MAX * 2048),
            spans: Vec::with_capacity(PENDING_FRAMES_MAX),
            done: 0,
            down: None,
            too_long: 0,
            uncut: 0,
            counters: TxCounters::default(),
        })
    }

    /// Whether `bytes` with the link header of `frame` are too many for the interface.
    fn is_too_long(&mut self, frame: &[u8], bytes: usize) -> bool {
        let fits = |mtu: usize| bytes <= mtu + ETHERNET || bytes <= mtu + segment::link_header_bytes(frame);
        if fits(self.mtu) {
            return false;
        }
        if self.too_long.is_multiple_of(REFUSED_PER_LOOK) {
            self.mtu = self.links.mtu(&self.interface).map_or(self.mtu, |mtu| mtu as usize);
        }
        self.too_long += 1;
        !fits(self.mtu)
    }

    /// Hands the kernel as many frames as it takes. `Ok` if it took all, or may take more later.
    fn send(&mut self) -> io::Result<()> {
        let names = self.is_bare.then_some(self.index);
        // Counted with their headers, as they were received.
        let header = if self.is_bare { ETHERNET } else { 0 };
        while self.done < self.spans.len() {
            match system::send_frames(self.socket.as_fd(), &self.bytes, &self.spans[self.done..], names) {
                Ok(sent) => {
                    let bytes: u64 = self.spans[self.done..self.done + sent]
                        .iter()
                        .map(|(_, length)| u64::from(*length))
                        .sum();
                    self.counters.frames += sent as u64;
                    self.counters.bytes += bytes + (sent * header) as u64 - (sent * OFFLOAD_BYTES) as u64;
                    self.done += sent;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => return Ok(()),
                    Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                        self.lose_pending();
                        self.down = Some(Instant::now());
                        return Err(error);
                    }
                    // The interface had no room (ENOBUFS), or refused this frame: the kernel has dropped it.
                    _ => {
                        self.counters.failed += 1;
                        self.done += 1;
                    }
                },
            }
        }
        self.spans.clear();
        self.bytes.clear();
        self.done = 0;
        Ok(())
    }

    fn lose_pending(&mut self) {
        self.counters.failed += (self.spans.len() - self.done) as u64;
        self.spans.clear();
        self.bytes.clear();
        self.done = 0;
    }

    /// Checks whether the interface is back; attaches to it if its number has changed.
    fn look(&mut self) -> io::Result<()> {
        let facts = self.links.read(&self.interface);
        let facts = facts.map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        if facts.index != self.index {
            let made = attach(&self.interface, facts.index, self.bypass);
            self.socket = made.map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
            self.index = facts.index;
        }
        self.mtu = facts.mtu as usize;
        self.is_bare = facts.far_end.is_some();
        self.uncut = 0;
        if facts.is_up { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENETDOWN)) }
    }
}

impl PortTx for PacketTx {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        if self.down.is_some() {
            return Err(NotTaken::Down);
        }
        if self.is_too_long(frame, frame.len()) {
            return Err(NotTaken::TooLong);
        }
        if self.spans.len() - self.done >= SEND_FRAMES_MAX {
            // The frames are still in the cache. The next flush reports a failure.
            if self.send().is_err() {
                return Err(NotTaken::Down);
            }
        }
        if self.spans.len() >= PENDING_FRAMES_MAX {
            return Err(NotTaken::Full);
        }
        let frame = match self.is_bare {
            false => frame,
            true => match bare::undress(frame) {
                Some(packet) => packet,
                None => {
                    self.counters.failed += 1;
                    return Ok(());
                }
            },
        };
        self.spans.push((self.bytes.len() as u32, (OFFLOAD_BYTES + frame.len()) as u32));
        self.bytes.extend_from_slice(&NOTHING_LEFT_TO_DO);
        self.bytes.extend_from_slice(frame);
        Ok(())
    }

    /// Sends at once, behind all frames pushed before, so that the payload is not copied first.
    fn push_merged(&mut self, frame: &[u8], segment_bytes: u16) -> Result<(), NotTaken> {
        if self.down.is_some() {
            return Err(NotTaken::Down);
        }
        if self.uncut >= UNCUT_MAX {
            return Err(NotTaken::Merged);
        }
        let mut opening = Opening::new(frame, segment_bytes).map_err(|_| NotTaken::Merged)?;
        if self.is_too_long(frame, opening.longest()) {
            return Err(NotTaken::TooLong);
        }
        if self.send().is_err() {
            return Err(NotTaken::Down);
        }
        if self.pending() > 0 {
            return Err(NotTaken::Full);
        }
        if self.is_bare {
            opening.undress();
        }
        let sent = send_whole(&self.socket, frame, &opening, &mut self.counters);
        match sent {
            Ok(()) => self.uncut = 0,
            Err(NotTaken::Merged) => self.uncut += 1,
            Err(NotTaken::Down) => self.down = Some(Instant::now()),
            Err(NotTaken::Full | NotTaken::TooLong) => {}
        }
        sent
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(looked) = self.down {
            if looked.elapsed() < LOOK_EVERY {
                return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
            }
            self.down = Some(Instant::now());
            self.look()?;
            self.down = None;
        }
        self.send()
    }

    fn pending(&self) -> usize {
        self.spans.len() - self.done
    }

    fn another(&mut self) -> Option<Box<dyn PortTx>> {
        let facts = self.links.read(&self.interface).ok()?;
        Some(Box::new(Self::open(&self.interface, &facts, self.bypass).ok()?))
    }

    fn counters(&mut self) -> TxCounters {
        self.counters
    }
}

/// Sends a merged frame at once, without a copy of its payload.
pub(in crate::live) fn send_whole(
    socket: &Socket,
    frame: &[u8],
    opening: &Opening,
    counters: &mut TxCounters,
) -> Result<(), NotTaken> {
    let parts = [IoSlice::new(opening.bytes()), IoSlice::new(&frame[opening.rest_at()..])];
    match uninterrupted(|| socket.send_vectored(&parts)) {
        Ok(_) => {
            counters.frames += opening.count() as u64;
            counters.bytes += opening.wire_bytes() as u64;
            Ok(())
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN) => Err(NotTaken::Full),
            // Past the queueing discipline the kernel does not cut for an interface that cannot: it drops (ENOBUFS).
            Some(libc::EINVAL | libc::ENOBUFS) => Err(NotTaken::Merged),
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Err(NotTaken::Down),
            // As with single frames, the kernel has dropped it.
            _ => {
                counters.failed += opening.count() as u64;
                Ok(())
            }
        },
    }
}

/// A socket that sends on the interface and receives nothing. Each frame has an offload header.
pub(in crate::live) fn attach(interface: &str, index: u32, bypass: bool) -> Result<Socket, LiveError> {
    let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec().nonblocking(), None)
        .map_err(LiveError::call(interface, "socket(AF_PACKET)"))?;
    let fd = socket.as_fd();
    system::bind_packet(fd, 0, index).map_err(LiveError::call(interface, "bind"))?;
    socket_option::set_int(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
        .map_err(LiveError::call(interface, "setsockopt(PACKET_VNET_HDR)"))?;
    if bypass {
        socket_option::set_int(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
            .map_err(LiveError::call(interface, "setsockopt(PACKET_QDISC_BYPASS)"))?;
    }
    let bytes = SEND_BUFFER_BYTES as i32;
    socket_option::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| socket_option::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
        .map_err(LiveError::call(interface, "setsockopt(SO_SNDBUF)"))?;
    Ok(socket)
}

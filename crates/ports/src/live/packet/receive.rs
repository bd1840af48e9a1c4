//! The receiving half of an AF_PACKET port.

use parking_lot::MutexGuard;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use socket2::{Domain, Socket, Type};
use thalweg_base::{ChunkBuilder, LinkType};

use super::ring::{Ring, Slot};
use super::{Attached, Exclusive, Shared};
use crate::live::link::{LinkFacts, Links};
use crate::live::membership::{self, ListensTo};
use crate::live::segment::{self, OFFLOAD_BYTES, Offload, Segments};
use crate::live::{LiveError, PortRx, RxCounters, is_for, system};
use crate::socket_option;

/// The most receiving halves of a port: more cores than any machine should need for one interface.
pub const QUEUES_MAX: usize = 64;
/// The bytes that a socket's own queue may hold. It takes the frames longer than a slot: merged segments of up to
/// 64 KiB, so about a hundred of them.
pub const RECEIVE_QUEUE_BYTES: usize = 8 << 20;

/// The longest merged segment, with Ethernet header and two tags. Longer ones ("big TCP", off by default) are
/// refused.
const LARGE_BYTES: usize = (64 << 10) + 22;
/// How many frames one call may examine beyond its limit without passing them on.
const SKIPPED_MAX: usize = 1024;
const ETHERNET: usize = 14;
/// The length of both addresses at a frame's start.
const ADDRESSES: usize = 12;
/// The length of a VLAN tag.
const TAG: usize = 4;
/// Refused frames between two readings of the MTU, which may have been raised.
const REFUSED_PER_LOOK: u64 = 64;

/// A group of sockets that share an interface's flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fanout {
    id: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Administratively down; the socket is still attached.
    Down,
    /// Gone; another interface of this name may appear.
    Gone,
}

/// A frame in `PacketRx::large`, behind its offload header, that has not been passed on completely.
struct Held {
    bytes: usize,
    vlan: Option<(u16, u16)>,
    checksum: Option<(u16, u16)>,
    segments: Option<Segments>,
}

pub(super) struct PacketRx {
    shared: Arc<Shared>,
    links: Links,
    socket: Socket,
    ring: Ring,
    ring_frames: usize,
    fanout: bool,
    index: u32,
    mtu: usize,
    state: State,
    large: Box<[u8]>,
    held: Option<Held>,
    counters: RxCounters,
}

/// The result of taking a frame.
enum Took {
    /// The frame was passed on, is held, or was counted.
    It,
    /// There is no frame.
    Nothing,
    /// The chunk has no room for it.
    NoRoom,
}

/// The chunk that takes the frames, and the port and time to note there.
struct Destination<'a> {
    port: u16,
    now_ns: u64,
    into: &'a mut ChunkBuilder,
}

enum Pushed {
    Yes,
    NoRoom,
    TooLong,
    Damaged,
}

impl PacketRx {
    pub(super) fn open(
        shared: Arc<Shared>,
        facts: &LinkFacts,
        ring_frames: usize,
        fanout: bool,
    ) -> Result<Self, LiveError> {
        let links = Links::open().map_err(LiveError::call(&shared.interface, "socket"))?;
        let (socket, ring) = {
            let mut attached = shared.lock();
            shared.attach(&mut attached, facts.mtu, ring_frames, fanout)?
        };
        Ok(Self {
            shared,
            links,
            socket,
            ring,
            ring_frames,
            fanout,
            index: facts.index,
            mtu: facts.mtu as usize,
            state: if facts.is_up { State::Up } else { State::Down },
            large: vec![0; OFFLOAD_BYTES + LARGE_BYTES].into_boxed_slice(),
            held: None,
            counters: RxCounters::default(),
        })
    }

    /// Checks whether the interface is back.
    fn look(&mut self) -> io::Result<()> {
        let interface = &self.shared.interface;
        match self.links.read(interface) {
            Ok(facts) if facts.index == self.index && self.state == State::Down => {
                if facts.is_up {
                    self.mtu = facts.mtu as usize;
                    self.state = State::Up;
                    return Ok(());
                }
                Err(io::Error::from_raw_os_error(libc::ENETDOWN))
            }
            // Another interface of the same name.
            Ok(facts) => {
                self.reattach(&facts)?;
                if self.state == State::Up {
                    return Ok(());
                }
                Err(io::Error::from_raw_os_error(libc::ENETDOWN))
            }
            Err(_) => {
                self.state = State::Gone;
                Err(io::Error::from_raw_os_error(libc::ENODEV))
            }
        }
    }

    fn reattach(&mut self, facts: &LinkFacts) -> io::Result<()> {
        self.count_missed();
        let mut attached = self.shared.lock();
        if attached.index != facts.index {
            let exclusive = self.shared.exclusive.then(|| Exclusive::attach(facts.index).ok()).flatten();
            *attached = Attached { index: facts.index, _exclusive: exclusive, fanout: None };
        }
        let made = self.shared.attach(&mut attached, facts.mtu, self.ring_frames, self.fanout);
        (self.socket, self.ring) = made.map_err(|error| match error {
            LiveError::Call { source, .. } => source,
            _ => io::Error::from_raw_os_error(libc::ENODEV),
        })?;
        self.index = facts.index;
        self.mtu = facts.mtu as usize;
        self.state = if facts.is_up { State::Up } else { State::Down };
        Ok(())
    }

    /// Called when no frame is there: returns the socket's error, if it has one.
    fn check(&mut self) -> io::Result<()> {
        let Some(error) = self.socket.take_error()? else { return Ok(()) };
        let index = self.links.index(&self.shared.interface).ok();
        self.state = if index == Some(self.index) { State::Down } else { State::Gone };
        // If it is up again already, nothing is wrong.
        if self.state == State::Down && self.links.is_up(&self.shared.interface).unwrap_or(false) {
            self.state = State::Up;
            return Ok(());
        }
        Err(error)
    }

    /// Adds the kernel's count of frames that found the ring full; reading it resets it.
    fn count_missed(&mut self) {
        let mut value = [0; 8];
        let (fd, option) = (self.socket.as_fd(), libc::PACKET_STATISTICS);
        if let Ok(8) = socket_option::get(fd, libc::SOL_PACKET, option, &mut value) {
            let [_, _, _, _, a, b, c, d] = value;
            self.counters.missed += u64::from(u32::from_ne_bytes([a, b, c, d]));
        }
    }

    /// Takes the frame in the next slot.
    fn take(&mut self, to: &mut Destination<'_>) -> Took {
        let Self { ring, counters, shared, large, .. } = self;
        let Some(Slot { status, frame_bytes, vlan, content }) = ring.peek() else { return Took::Nothing };
        if status & libc::TP_STATUS_COPY != 0 {
            ring.give_back();
            self.take_queued(frame_bytes, vlan);
            return Took::It;
        }
        match content {
            Some((_, frame)) if frame.len() == frame_bytes && !shared.is_ours(frame) => counters.foreign += 1,
            Some((offload, frame)) if frame.len() == frame_bytes => match Offload::parse(offload) {
                Ok(Offload { segments: None, checksum }) => match to.push(frame, vlan, checksum, self.mtu) {
                    Pushed::NoRoom => return Took::NoRoom,
                    Pushed::TooLong if self.mtu_has_grown() => return Took::It,
                    pushed => self.count(pushed, frame_bytes + tag_bytes(vlan)),
                },
                Ok(offload) => {
                    large[OFFLOAD_BYTES..][..frame_bytes].copy_from_slice(frame);
                    self.hold(offload, frame_bytes, vlan);
                }
                Err(_) => counters.refused += 1,
            },
            // The frame did not fit, and the kernel had no memory for a copy.
            _ => counters.missed += 1,
        }
        self.ring.give_back();
        Took::It
    }

    /// Takes the next frame of the socket's queue; its slot has announced it.
    fn take_queued(&mut self, frame_bytes: usize, vlan: Option<(u16, u16)>) {
        let read = (&self.socket).read(&mut self.large);
        // A longer frame than expected was cut.
        if read.ok() != Some(OFFLOAD_BYTES + frame_bytes) {
            self.counters.refused += 1;
            return;
        }
        let offload = self.large.first_chunk().map(Offload::parse);
        if !self.shared.is_ours(&self.large[OFFLOAD_BYTES..]) {
            self.counters.foreign += 1;
        } else if let Some(Ok(offload)) = offload {
            self.hold(offload, frame_bytes, vlan);
        } else {
            self.counters.refused += 1;
        }
    }

    /// Keeps the frame in `large`, to pass it on in pieces or when there is room.
    fn hold(&mut self, offload: Offload, bytes: usize, vlan: Option<(u16, u16)>) {
        let Offload { checksum, segments } = offload;
        let frame = &self.large[OFFLOAD_BYTES..][..bytes];
        match segments.map(|kind| Segments::new(frame, kind, checksum)).transpose() {
            Ok(segments) => self.held = Some(Held { bytes, vlan, checksum, segments }),
            Err(_) => self.counters.refused += 1,
        }
    }

    /// Passes on the next piece of the held frame.
    fn take_held(&mut self, mut held: Held, to: &mut Destination<'_>) -> Took {
        let frame = &self.large[OFFLOAD_BYTES..][..held.bytes];
        let (pushed, bytes) = match &mut held.segments {
            None => (to.push(frame, held.vlan, held.checksum, self.mtu), held.bytes),
            Some(segments) => {
                let bytes = segments.next_bytes().unwrap_or(0);
                (to.push_segment(frame, held.vlan, segments, self.mtu), bytes)
            }
        };
        match pushed {
            Pushed::NoRoom => {
                self.held = Some(held);
                return Took::NoRoom;
            }
            Pushed::TooLong if self.mtu_has_grown() => {
                self.held = Some(held);
                return Took::It;
            }
            Pushed::TooLong => held.segments.iter_mut().for_each(Segments::skip),
            Pushed::Yes | Pushed::Damaged => {}
        }
        self.count(pushed, bytes + tag_bytes(held.vlan));
        if held.segments.is_some_and(|segments| segments.left() > 0) {
            self.held = Some(held);
        }
        Took::It
    }

    fn count(&mut self, pushed: Pushed, bytes: usize) {
        match pushed {
            Pushed::Yes => {
                self.counters.frames += 1;
                self.counters.bytes += bytes as u64;
            }
            Pushed::NoRoom => {}
            Pushed::Damaged | Pushed::TooLong => self.counters.refused += 1,
        }
    }

    /// Occasionally reads the MTU anew. Returns whether it was raised, so that a frame that was too long may fit.
    fn mtu_has_grown(&mut self) -> bool {
        if !self.counters.refused.is_multiple_of(REFUSED_PER_LOOK) {
            return false;
        }
        let before = self.mtu;
        self.mtu = self.links.mtu(&self.shared.interface).map_or(before, |mtu| mtu as usize);
        self.mtu > before
    }
}

impl PortRx for PacketRx {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        if self.state != State::Up {
            self.look()?;
        }
        let before = into.len();
        let mut to = Destination { port, now_ns, into };
        // A flood of foreign frames must not keep the thread here.
        for _ in 0..limit + SKIPPED_MAX {
            if to.into.len() - before >= limit {
                break;
            }
            let took = match self.held.take() {
                Some(held) => self.take_held(held, &mut to),
                None => self.take(&mut to),
            };
            match took {
                Took::It => {}
                Took::NoRoom => break,
                Took::Nothing => {
                    if to.into.len() == before {
                        self.check()?;
                    }
                    break;
                }
            }
        }
        Ok(into.len() - before)
    }

    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn counters(&mut self) -> RxCounters {
        self.count_missed();
        if self.shared.follows
            && let Ok(facts) = self.links.read(&self.shared.interface)
        {
            self.shared.mac.store(facts.mac.to_u64(), Ordering::Relaxed);
        }
        self.counters
    }
}

impl Destination<'_> {
    /// Where a frame of `bytes` bytes will begin in the chunk's buffer, if it fits.
    fn room(&mut self, bytes: usize) -> Option<usize> {
        let at = self.into.next_frame_offset();
        let fits = at + bytes <= self.into.buffer_mut().len() && self.into.len() < ChunkBuilder::PACKETS_MAX;
        fits.then_some(at)
    }

    /// Copies a frame, restores its tag and finishes its checksum.
    #[inline]
    fn push(
        &mut self,
        frame: &[u8],
        vlan: Option<(u16, u16)>,
        checksum: Option<(u16, u16)>,
        mtu: usize,
    ) -> Pushed {
        if is_too_long(frame, mtu) {
            return Pushed::TooLong;
        }
        if frame.len() < ETHERNET {
            return Pushed::Damaged;
        }
        let bytes = frame.len() + tag_bytes(vlan);
        let Some(at) = self.room(bytes) else { return Pushed::NoRoom };
        let slot = &mut self.into.buffer_mut()[at..at + bytes];
        let frame_at = match vlan {
            None => 0,
            Some(_) => TAG,
        };
        slot[frame_at..].copy_from_slice(frame);
        if let Some((start, offset)) = checksum
            && segment::finish_checksum(&mut slot[frame_at..], start, offset).is_err()
        {
            return Pushed::Damaged;
        }
        self.name(at, bytes, vlan);
        Pushed::Yes
    }

    fn push_segment(
        &mut self,
        frame: &[u8],
        vlan: Option<(u16, u16)>,
        segments: &mut Segments,
        mtu: usize,
    ) -> Pushed {
        let Some(segment_bytes) = segments.next_bytes() else { return Pushed::Damaged };
        // Each segment has the frame's link header.
        if segment_bytes > mtu + segment::link_header_bytes(frame) {
            return Pushed::TooLong;
        }
        let bytes = segment_bytes + tag_bytes(vlan);
        let Some(at) = self.room(bytes) else { return Pushed::NoRoom };
        let slot = &mut self.into.buffer_mut()[at + tag_bytes(vlan)..at + bytes];
        segments.write_next(frame, slot);
        self.name(at, bytes, vlan);
        Pushed::Yes
    }

    /// Adds the bytes at `at` to the chunk as a frame. First inserts the tag between addresses and type; there is
    /// room for it.
    fn name(&mut self, at: usize, bytes: usize, vlan: Option<(u16, u16)>) {
        if let Some((tag, protocol)) = vlan {
            let frame = &mut self.into.buffer_mut()[at..at + bytes];
            frame.copy_within(TAG..TAG + ADDRESSES, 0);
            frame[ADDRESSES..ADDRESSES + 2].copy_from_slice(&protocol.to_be_bytes());
            frame[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tag.to_be_bytes());
        }
        self.into.push(at, bytes, bytes as u32, self.now_ns, LinkType::Ethernet, self.port, 0);
    }
}

fn tag_bytes(vlan: Option<(u16, u16)>) -> usize {
    if vlan.is_some() { TAG } else { 0 }
}

/// Whether the frame's payload is longer than the interface's MTU. Tags do not count.
#[inline]
fn is_too_long(frame: &[u8], mtu: usize) -> bool {
    frame.len() > mtu + ETHERNET && frame.len() > mtu + segment::link_header_bytes(frame)
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Attached> {
        self.attached.lock()
    }

    /// Whether the frame is for this port: sent to its address or a group.
    #[inline]
    fn is_ours(&self, frame: &[u8]) -> bool {
        self.everything || is_for(self.mac.load(Ordering::Relaxed), frame)
    }

    /// Makes a socket with a ring and attaches it to the interface.
    fn attach(
        &self,
        attached: &mut Attached,
        mtu: u32,
        ring_frames: usize,
        fanout: bool,
    ) -> Result<(Socket, Ring), LiveError> {
        let name = &self.interface;
        let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec().nonblocking(), None)
            .map_err(LiveError::call(name, "socket(AF_PACKET)"))?;
        let fd = socket.as_fd();
        let packet = libc::SOL_PACKET;
        let set = |option, call, value: i32| {
            socket_option::set_int(fd, packet, option, value).map_err(LiveError::call(name, call))
        };
        set(libc::PACKET_VERSION, "setsockopt(PACKET_VERSION)", libc::tpacket_versions::TPACKET_V2 as i32)?;
        set(libc::PACKET_VNET_HDR, "setsockopt(PACKET_VNET_HDR)", 1)?;
        set(libc::PACKET_COPY_THRESH, "setsockopt(PACKET_COPY_THRESH)", 1)?;
        set(libc::PACKET_IGNORE_OUTGOING, "setsockopt(PACKET_IGNORE_OUTGOING)", 1)?;
        let queue = RECEIVE_QUEUE_BYTES as i32;
        socket_option::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, queue)
            .or_else(|_| socket_option::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, queue))
            .map_err(LiveError::call(name, "setsockopt(SO_RCVBUF)"))?;
        let ring = Ring::map(fd, mtu as usize + ETHERNET + 2 * TAG, ring_frames)
            .map_err(LiveError::call(name, "setsockopt(PACKET_RX_RING)"))?;
        system::bind_packet(fd, libc::ETH_P_ALL as u16, attached.index)
            .map_err(LiveError::call(name, "bind"))?;
        let everybody = self.promiscuous.then_some(ListensTo::Everybody);
        for listens_to in [ListensTo::Groups].into_iter().chain(everybody) {
            membership::ask(fd, attached.index, listens_to)
                .map_err(LiveError::call(name, "setsockopt(PACKET_ADD_MEMBERSHIP)"))?;
        }
        if fanout {
            self.join(attached, &socket)?;
        }
        // Discards the error that the interface is down: the halves know that already.
        let _ = socket.take_error();
        Ok((socket, ring))
    }

    /// Joins the group of sockets over which flows are spread, or founds it.
    fn join(&self, attached: &mut Attached, socket: &Socket) -> Result<(), LiveError> {
        let name = &self.interface;
        let option = libc::PACKET_FANOUT;
        let set = |value: u32| {
            socket_option::set_int(socket.as_fd(), libc::SOL_PACKET, option, value as i32)
                .map_err(LiveError::call(name, "setsockopt(PACKET_FANOUT)"))
        };
        if let Some(Fanout { id }) = attached.fanout {
            return set(libc::PACKET_FANOUT_HASH << 16 | u32::from(id));
        }
        // The kernel chooses an unused number.
        set((libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16)?;
        let mut value = [0; 4];
        socket_option::get(socket.as_fd(), libc::SOL_PACKET, option, &mut value)
            .map_err(LiveError::call(name, "getsockopt(PACKET_FANOUT)"))?;
        attached.fanout = Some(Fanout { id: u32::from_ne_bytes(value) as u16 });
        Ok(())
    }
}

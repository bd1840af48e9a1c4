//! The receiving half of an AF_PACKET port.

use parking_lot::MutexGuard;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use socket2::{Domain, Socket, Type};
use thalweg_base::ChunkBuilder;
use thalweg_wire::MacAddr;
use thalweg_wire::ethernet::HEADER_BYTES as ETHERNET;
use thalweg_wire::vlan::TAG_BYTES as TAG;

use super::ring::{Ring, Slot};
use super::{Attached, Exclusive, Shared};
use crate::live::intake::{Destination, Intake, Took};
use crate::live::link::{LinkFacts, Links};
use crate::live::membership::{self, ListensTo};
use crate::live::passing::{Flow, LOOK_MAX, Passing, limit_of};
use crate::live::segment::{OFFLOAD_BYTES, Offload};
use crate::live::{LiveError, PortRx, RxCounters, bare, is_for, system};
use crate::socket_option;

/// The most receiving halves of a port: more cores than any machine should need for one interface.
pub const QUEUES_MAX: usize = 64;
/// The bytes that a socket's own queue may hold. It takes the frames longer than a slot: merged segments of up to
/// 64 KiB, so about a hundred of them.
pub const RECEIVE_QUEUE_BYTES: usize = 8 << 20;

/// How many frames one call may examine beyond its limit without passing them on.
const SKIPPED_MAX: usize = 1024;
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

pub(super) struct PacketRx {
    shared: Arc<Shared>,
    links: Links,
    socket: Socket,
    ring: Ring,
    ring_frames: usize,
    fanout: bool,
    index: u32,
    mtu: usize,
    /// The interface has no link layer.
    is_bare: bool,
    state: State,
    intake: Intake,
    passing: Passing,
    /// The ring had more frames than the last chunk took.
    is_behind: bool,
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
            is_bare: facts.far_end.is_some(),
            state: if facts.is_up { State::Up } else { State::Down },
            intake: Intake::new(),
            passing: Passing::default(),
            is_behind: false,
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
            let offload = self.shared.offload.as_deref();
            let taken = self.shared.exclusive.then(|| Exclusive::attach(facts.index, offload).ok()).flatten();
            *attached = Attached { index: facts.index, exclusive: taken, fanout: None };
        }
        let made = self.shared.attach(&mut attached, facts.mtu, self.ring_frames, self.fanout);
        (self.socket, self.ring) = made.map_err(|error| match error {
            LiveError::Call { source, .. } => source,
            _ => io::Error::from_raw_os_error(libc::ENODEV),
        })?;
        self.passing.clear();
        self.index = facts.index;
        self.mtu = facts.mtu as usize;
        self.is_bare = facts.far_end.is_some();
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
            self.intake.counters.missed += u64::from(u32::from_ne_bytes([a, b, c, d]));
        }
        if let Some(lost) = self.shared.offload.as_ref().and_then(|offload| offload.lost().ok()) {
            let before = self.shared.lost_before.fetch_max(lost, Ordering::Relaxed);
            self.intake.counters.missed += lost.saturating_sub(before);
        }
    }

    /// Takes the frame in the next slot, behind those that have passed.
    fn take_next(&mut self, to: &mut Destination<'_>) -> Took {
        while self.passing.next_has_passed() {
            self.give_back();
        }
        match self.take(0, to) {
            Took::It => self.give_back(),
            Took::TooLong if self.mtu_has_grown() => {}
            Took::TooLong => {
                self.give_back();
                return self.intake.refuse();
            }
            took => return took,
        }
        Took::It
    }

    fn give_back(&mut self) {
        self.ring.give_back();
        self.passing.leaves();
    }

    /// Takes frames that wait behind others, of flows that have none before them.
    fn pass(&mut self, limit: usize, to: &mut Destination<'_>) {
        let before = to.into.len();
        self.passing.begin();
        for _ in 0..LOOK_MAX {
            let ahead = self.passing.len();
            if to.into.len() - before >= limit {
                break;
            }
            let Some(Slot { status, content, .. }) = self.ring.peek(ahead) else { break };
            let flow = Flow::of(content.map_or(&[], |(_, frame)| frame));
            // A queued frame is read in its turn, and merged segments may have to be cut.
            let is_single = status & libc::TP_STATUS_COPY == 0
                && content.is_some_and(|(offload, _)| {
                    Offload::parse(offload).is_ok_and(|offload| offload.segments.is_none())
                });
            let passes = is_single && self.passing.may_pass(flow);
            match if passes { self.take(ahead, to) } else { Took::TooLong } {
                Took::It => self.passing.pass(flow),
                Took::TooLong => self.passing.hold(flow),
                Took::NoRoom | Took::Nothing => break,
            }
        }
    }

    /// Takes the frame `ahead` behind the next one, which stays in its slot.
    fn take(&mut self, ahead: usize, to: &mut Destination<'_>) -> Took {
        let Self { ring, intake, shared, socket, mtu, is_bare, .. } = self;
        let Some(Slot { status, frame_bytes, vlan, content }) = ring.peek(ahead) else {
            return Took::Nothing;
        };
        let is_queued = status & libc::TP_STATUS_COPY != 0;
        if is_queued || *is_bare {
            let header = if *is_bare { ETHERNET } else { 0 };
            let whole = |buffer: &mut [u8]| {
                let room = &mut buffer[header..];
                // A queued frame is the next one of the socket's queue.
                let bytes = match content {
                    _ if is_queued => (&*socket).read(room).unwrap_or(0),
                    Some((offload, packet)) => copied(offload, packet, room),
                    None => 0,
                };
                let own = MacAddr::from_u64(shared.mac.load(Ordering::Relaxed));
                Ok(match bytes == OFFLOAD_BYTES + frame_bytes {
                    true if *is_bare => bare::dress(buffer, frame_bytes, own),
                    true => bytes,
                    false => 0,
                })
            };
            let is_ours = |frame: &[u8]| shared.is_ours(frame);
            // One more byte, to detect a longer one.
            let longest = header + frame_bytes + 1;
            intake.read(longest, (vlan, *mtu), to, is_ours, whole).unwrap_or(Took::It)
        } else {
            match content {
                Some((_, frame)) if frame.len() == frame_bytes && !shared.is_ours(frame) => {
                    intake.counters.foreign += 1;
                    Took::It
                }
                Some((offload, frame)) if frame.len() == frame_bytes => {
                    intake.take(offload, frame, vlan, *mtu, to)
                }
                // The frame did not fit, and the kernel had no memory for a copy.
                _ => {
                    intake.counters.missed += 1;
                    Took::It
                }
            }
        }
    }

    /// Passes on the next piece of the held frame.
    fn take_held(&mut self, to: &mut Destination<'_>) -> Option<Took> {
        match self.intake.take_held(self.mtu, to)? {
            Took::TooLong if self.mtu_has_grown() => Some(Took::It),
            Took::TooLong => Some(self.intake.refuse()),
            took => Some(took),
        }
    }

    /// Occasionally reads the MTU anew. Returns whether it was raised, so that a frame that was too long may fit.
    fn mtu_has_grown(&mut self) -> bool {
        if !self.intake.counters.refused.is_multiple_of(REFUSED_PER_LOOK) {
            return false;
        }
        let before = self.mtu;
        self.mtu = self.links.mtu(&self.shared.interface).map_or(before, |mtu| mtu as usize);
        self.mtu > before
    }
}

/// Copies an offload header and its frame; returns how many bytes, 0 without room for them.
fn copied(offload: &[u8; OFFLOAD_BYTES], frame: &[u8], to: &mut [u8]) -> usize {
    let bytes = OFFLOAD_BYTES + frame.len();
    let Some(to) = to.get_mut(..bytes) else { return 0 };
    to[..OFFLOAD_BYTES].copy_from_slice(offload);
    to[OFFLOAD_BYTES..].copy_from_slice(frame);
    bytes
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
        self.is_behind = true;
        // A flood of foreign frames must not keep the thread here.
        for _ in 0..limit + SKIPPED_MAX {
            if to.into.len() - before >= limit {
                break;
            }
            let took = match self.take_held(&mut to) {
                Some(took) => took,
                None => self.take_next(&mut to),
            };
            match took {
                Took::It | Took::TooLong => {}
                Took::NoRoom => break,
                Took::Nothing => {
                    self.is_behind = false;
                    if to.into.len() == before {
                        self.check()?;
                    }
                    break;
                }
            }
        }
        Ok(into.len() - before)
    }

    fn receive_passing(&mut self, port: u16, now_ns: u64, limit: usize, into: &mut ChunkBuilder) -> usize {
        // What is left of a held frame goes before the rest of its flow.
        if !self.is_behind || self.is_bare || self.intake.is_holding() {
            return 0;
        }
        let before = into.len();
        self.pass(limit_of(limit), &mut Destination { port, now_ns, into });
        into.len() - before
    }

    fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn counters(&mut self) -> RxCounters {
        self.count_missed();
        if self.shared.follows
            && let Ok(facts) = self.links.read(&self.shared.interface)
        {
            self.shared.set_mac(facts.mac);
        }
        self.intake.counters
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Attached> {
        self.attached.lock()
    }

    /// Sets the port's address.
    pub(super) fn set_mac(&self, mac: MacAddr) {
        let before = self.mac.swap(mac.to_u64(), Ordering::Relaxed);
        if let Some(offload) = self.offload.as_ref().filter(|_| before != mac.to_u64()) {
            // If this fails, frames to the new address go through the router: slower, not wrong.
            let _ = offload.set_mac(mac);
        }
    }

    /// Whether the frame is for this port: sent to its address or a group.
    #[inline]
    fn is_ours(&self, frame: &[u8]) -> bool {
        self.everything || is_for(self.mac.load(Ordering::Relaxed), self.virtual_macs.as_deref(), frame)
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
        if let Some(exclusive) = &attached.exclusive {
            exclusive.guard(fd).map_err(LiveError::call(name, "setsockopt(SO_ATTACH_BPF)"))?;
        }
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

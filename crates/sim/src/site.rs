//! One router's place in the network: its links, its ends of connections, and the parcels on their way to it.
//!
//! Routers share nothing. What one sends to another is a [`Parcel`] that arrives after the latency of their
//! link, so routers may run on different threads as long as none is ahead of another by more than that.
//! Parcels that arrive at the same moment are ordered by sender, whichever ran first.
//!
//! A connection is a stream of bytes in each direction. Written bytes take the link's latency, then arrive at
//! the link's rate. The reader returns room as it reads, so a slow reader blocks the writer. Readiness is
//! edge-triggered, as with the kernel's poller: it is signaled when something arrives, or when room is back
//! after a write that found none. A reader that fills its buffer and does not read on gets no further signal.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_bgp::session::NeighborConfig;
use thalweg_exec::control_plane::{Registry, Token};
use thalweg_node::speaker::{ByteStream, Incoming, Network};

use crate::labor::Labor;
use crate::link::{Link, LinkState, Span};
use crate::meter::{Meter, Sent};

const PORT: u16 = 179;

/// A reader returns room once it exceeds this fraction of the capacity, not at each read.
const ROOM_PARTS: usize = 4;

/// A connection: the router that opened it, and that router's count.
pub(crate) type ConnectionId = (u32, u32);

/// The content of a parcel.
#[derive(Debug)]
pub(crate) enum What {
    /// The other router opens a connection.
    Open,
    /// Our connection is established, or was refused.
    Opened(bool),
    Bytes(Box<[u8]>),
    /// The sender writes nothing more; it is gone altogether, or still reads.
    End {
        gone: bool,
    },
    /// The other end has read this many bytes.
    Room(usize),
}

/// Something on its way to a router.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) at_us: u64,
    pub(crate) from: u32,
    /// The sender's count of parcels.
    pub(crate) order: u64,
    pub(crate) to: u32,
    pub(crate) connection: ConnectionId,
    pub(crate) what: What,
}

impl Parcel {
    fn key(&self) -> (u64, u32, u64) {
        (self.at_us, self.from, self.order)
    }
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Parcel {}

impl PartialOrd for Parcel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Parcel {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Pending,
    Open,
    Refused,
}

/// Our end of a connection.
struct End {
    peer: u32,
    /// The link to the peer as it is now.
    link: Link,
    opening: Opening,
    token: Option<usize>,
    arrived: VecDeque<Box<[u8]>>,
    /// Bytes of the first piece that were read.
    taken: usize,
    /// Bytes that were read and whose room was not returned yet.
    unreturned: usize,
    /// Bytes that we wrote and whose room was not returned yet.
    on_the_way: usize,
    /// When the last byte that we wrote arrives.
    last_us: u64,
    /// The other end writes nothing more.
    has_ended: bool,
    /// The other end is gone, or the link went down.
    is_cut: bool,
    /// The link was silent once, so the connection is dead.
    is_silent: bool,
    /// We write nothing more.
    is_shut: bool,
    /// A write found no room.
    is_starved: bool,
    readable: bool,
    writable: bool,
    meter: Meter,
}

impl End {
    fn new(peer: u32, link: Link, opening: Opening) -> Self {
        Self {
            peer,
            link,
            opening,
            token: None,
            arrived: VecDeque::new(),
            taken: 0,
            unreturned: 0,
            on_the_way: 0,
            last_us: 0,
            has_ended: false,
            is_cut: false,
            is_silent: false,
            is_shut: false,
            is_starved: false,
            readable: false,
            writable: false,
            meter: Meter::default(),
        }
    }

    fn cut(&mut self) {
        self.arrived.clear();
        (self.taken, self.on_the_way, self.unreturned) = (0, 0, 0);
        (self.has_ended, self.is_cut) = (true, true);
        (self.readable, self.writable) = (true, true);
        if self.opening == Opening::Pending {
            self.opening = Opening::Refused;
        }
    }
}

/// Everything the network knows about one router.
pub(crate) struct Site {
    pub(crate) number: u32,
    pub(crate) address: Ipv4Addr,
    pub(crate) is_up: bool,
    pub(crate) now_us: u64,
    /// By neighbor.
    links: BTreeMap<u32, (Ipv4Addr, Link)>,
    /// The shortest latency of its links.
    latency_us: u64,
    ends: BTreeMap<ConnectionId, End>,
    /// Ends with events that the router was not told yet.
    news: Vec<ConnectionId>,
    backlog: VecDeque<ConnectionId>,
    connections: u32,
    order: u64,
    /// Arrival times are multiples of this.
    grain_us: u64,
    arriving: BinaryHeap<Reverse<Parcel>>,
    /// What the router sent, for the network to deliver.
    pub(crate) leaving: Vec<Parcel>,
    pub(crate) sent: Sent,
    /// When the last piece of an UPDATE was sent or arrived.
    pub(crate) updated_us: u64,
    pub(crate) labor: Labor,
}

pub(crate) type SharedSite = Arc<Mutex<Site>>;

/// A session whose connection has events.
pub(crate) struct Ready {
    pub(crate) session: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Site {
    pub(crate) fn new(number: u32, address: Ipv4Addr, grain_us: u64) -> Self {
        Self {
            number,
            address,
            is_up: false,
            now_us: 0,
            links: BTreeMap::new(),
            latency_us: u64::MAX,
            ends: BTreeMap::new(),
            news: Vec::new(),
            backlog: VecDeque::new(),
            connections: 0,
            order: 0,
            grain_us: grain_us.max(1),
            arriving: BinaryHeap::new(),
            leaving: Vec::new(),
            sent: Sent::default(),
            updated_us: 0,
            labor: Labor::default(),
        }
    }

    /// Adds or changes a link to a neighbor.
    pub(crate) fn set_link(&mut self, peer: u32, address: Ipv4Addr, link: Link) {
        self.links.insert(peer, (address, link));
        self.latency_us = self.links.values().map(|(_, link)| link.latency_us).min().unwrap_or(u64::MAX);
        for id in self.ends_to(peer) {
            // A smaller capacity must not wait for room that a larger one held back, and a writer must not
            // wait for room that exists now.
            if let Some(end) = self.ends.get_mut(&id) {
                end.link = link;
            }
            self.return_room(id, 0);
            if let Some(end) = self.ends.get_mut(&id).filter(|end| end.on_the_way < link.capacity)
                && std::mem::take(&mut end.is_starved)
            {
                end.writable = true;
                self.news.push(id);
            }
        }
    }

    /// The time before which nothing new arrives.
    pub(crate) fn end_us(&self, span: Span) -> u64 {
        span.end_us(self.latency_us, self.grain_us)
    }

    pub(crate) fn link(&self, peer: u32) -> Option<Link> {
        self.links.get(&peer).map(|(_, link)| *link)
    }

    fn ends_to(&self, peer: u32) -> Vec<ConnectionId> {
        self.ends.iter().filter(|(_, end)| end.peer == peer).map(|(id, _)| *id).collect()
    }

    /// Changes the state of a link and of the connections on it.
    pub(crate) fn set_link_state(&mut self, peer: u32, state: LinkState) {
        let Some((_, link)) = self.links.get_mut(&peer) else { return };
        link.state = state;
        for id in self.ends_to(peer) {
            let Some(end) = self.ends.get_mut(&id).filter(|end| !end.is_silent) else { continue };
            match state {
                LinkState::Up => {}
                LinkState::Down => {
                    end.cut();
                    self.news.push(id);
                }
                LinkState::Silent => {
                    end.is_silent = true;
                    end.arrived.clear();
                }
            }
        }
    }

    /// Starts the router with an empty memory, or stops it abruptly.
    pub(crate) fn set_up(&mut self, is_up: bool) {
        self.is_up = is_up;
        self.news.clear();
        for id in std::mem::take(&mut self.backlog) {
            self.let_go(id);
        }
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// When the next parcel arrives.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.arriving.peek().map(|Reverse(parcel)| parcel.at_us)
    }

    /// What is on its way, in no order.
    pub(crate) fn arriving(&self) -> impl Iterator<Item = &Reverse<Parcel>> {
        self.arriving.iter()
    }

    /// All that arrived was read, no message is cut, nobody waits for room, and computing takes no time.
    pub(crate) fn is_plain(&self) -> bool {
        let is_plain =
            |end: &End| end.arrived.is_empty() && !end.is_starved && !end.meter.is_within_a_message();
        self.labor.costs.is_none() && !self.has_news() && self.ends.values().all(is_plain)
    }

    /// Whether there are events that the router was not told yet.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty() || self.has_backlog()
    }

    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.arriving.push(Reverse(parcel));
    }

    /// Receives all arrivals until a time, which becomes now.
    pub(crate) fn advance(&mut self, now_us: u64) {
        self.now_us = now_us;
        while self.next_us().is_some_and(|at_us| at_us <= now_us) {
            if let Some(Reverse(parcel)) = self.arriving.pop() {
                self.arrive(parcel);
            }
        }
        self.labor.begin(now_us, self.number);
    }

    /// When the router finishes what it received; until then it sends and receives nothing.
    pub(crate) fn free_us(&self) -> u64 {
        self.labor.free_us
    }

    /// When messages sent now leave.
    fn leaves_us(&self) -> u64 {
        self.now_us.max(self.labor.free_us)
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Parcel { from, connection, what, .. } = parcel;
        if matches!(what, What::Open) {
            self.arrive_open(from, connection);
            return;
        }
        let end = match self.ends.get_mut(&connection) {
            Some(end) if end.is_silent => return,
            Some(end) if !end.is_cut => end,
            // The other end does not know that ours is gone.
            _ if matches!(what, What::Bytes(_) | What::Opened(true)) => {
                return self.send(from, connection, What::End { gone: true });
            }
            _ => return,
        };
        let was_told = end.readable || end.writable;
        match what {
            What::Open => {}
            What::Opened(accepted) => {
                end.opening = if accepted { Opening::Open } else { Opening::Refused };
                (end.readable, end.writable) = (true, true);
            }
            What::Bytes(bytes) => {
                let (begun, touched) = end.meter.received(&bytes);
                self.labor.take_in(begun);
                if touched {
                    self.updated_us = self.now_us;
                }
                end.arrived.push_back(bytes);
                end.readable = true;
            }
            What::End { gone } => {
                end.has_ended = true;
                end.is_cut |= gone && end.arrived.is_empty();
                end.is_shut |= gone;
                end.readable = true;
            }
            What::Room(bytes) => {
                end.on_the_way = end.on_the_way.saturating_sub(bytes);
                end.writable |= std::mem::take(&mut end.is_starved);
            }
        }
        if !was_told && (end.readable || end.writable) {
            self.news.push(connection);
        }
    }

    fn arrive_open(&mut self, from: u32, connection: ConnectionId) {
        // A link that went down or silent has already handled the opener's end.
        let Some(link) = self.link(from).filter(|link| link.state == LinkState::Up) else { return };
        if self.is_up {
            self.ends.insert(connection, End::new(from, link, Opening::Open));
            self.backlog.push_back(connection);
        }
        self.send(from, connection, What::Opened(self.is_up));
    }

    /// Collects the sessions with events. An end that the router has not registered yet keeps its events.
    pub(crate) fn take_news(&mut self, ready: &mut Vec<Ready>) {
        for id in self.news.drain(..) {
            let Some(end) = self.ends.get_mut(&id) else { continue };
            let Some(session) = end.token else { continue };
            let readable = std::mem::take(&mut end.readable);
            let writable = std::mem::take(&mut end.writable);
            if readable || writable {
                ready.push(Ready { session, readable, writable });
            }
        }
    }

    fn send(&mut self, to: u32, connection: ConnectionId, what: What) {
        let latency_us = self.links.get(&to).map_or(1, |(_, link)| link.latency_us);
        self.send_at(self.leaves_us() + latency_us, to, connection, what);
    }

    fn send_at(&mut self, at_us: u64, to: u32, connection: ConnectionId, what: What) {
        self.order += 1;
        let at_us = at_us.next_multiple_of(self.grain_us);
        let parcel = Parcel { at_us, from: self.number, order: self.order, to, connection, what };
        if to == self.number { self.push(parcel) } else { self.leaving.push(parcel) }
    }

    fn connect(&mut self, to: IpAddr) -> io::Result<ConnectionId> {
        let link = self.links.iter().find(|(_, (address, _))| IpAddr::V4(*address) == to);
        let (&peer, &(_, link)) = link.ok_or(io::ErrorKind::NetworkUnreachable)?;
        let id = (self.number, self.connections);
        self.connections += 1;
        let mut end = End::new(peer, link, Opening::Pending);
        end.is_silent = link.state == LinkState::Silent;
        self.ends.insert(id, end);
        match link.state {
            LinkState::Up => self.send(peer, id, What::Open),
            LinkState::Down => {
                self.send_at(self.now_us + 2 * link.latency_us, self.number, id, What::Opened(false));
            }
            LinkState::Silent => {}
        }
        Ok(id)
    }

    fn read(&mut self, id: ConnectionId, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.ends.get_mut(&id).ok_or(io::ErrorKind::NotConnected)?;
        let mut bytes = 0;
        while let Some(piece) = end.arrived.front() {
            let rest = &piece[end.taken..];
            let taken = rest.len().min(buffer.len() - bytes);
            buffer[bytes..bytes + taken].copy_from_slice(&rest[..taken]);
            bytes += taken;
            if taken < rest.len() {
                end.taken += taken;
                break;
            }
            end.taken = 0;
            end.arrived.pop_front();
        }
        if bytes == 0 {
            return if end.has_ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        if end.has_ended && end.arrived.is_empty() {
            // A short read is the last: the end of the stream is an event of its own.
            end.readable = true;
            self.news.push(id);
        }
        end.unreturned += bytes;
        let least = end.link.capacity / ROOM_PARTS;
        self.return_room(id, least);
        Ok(bytes)
    }

    /// Returns the room of read bytes if it exceeds `least`.
    fn return_room(&mut self, id: ConnectionId, least: usize) {
        let Some(end) = self.ends.get_mut(&id).filter(|end| end.unreturned > least) else { return };
        let (peer, latency_us) = (end.peer, end.link.latency_us);
        let bytes = std::mem::take(&mut end.unreturned);
        if !end.is_cut && !end.is_silent {
            self.send_at(self.leaves_us() + latency_us, peer, id, What::Room(bytes));
        }
    }

    fn write(&mut self, id: ConnectionId, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let now_us = self.leaves_us();
        let end = self.ends.get_mut(&id).ok_or(io::ErrorKind::NotConnected)?;
        let link = end.link;
        if end.is_shut || end.is_cut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let asked: usize = slices.iter().map(|slice| slice.len()).sum();
        let taken = asked.min(link.capacity.saturating_sub(end.on_the_way));
        end.is_starved = taken < asked;
        if taken == 0 {
            return if asked > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(0) };
        }
        end.on_the_way += taken;
        let mut bytes = Vec::with_capacity(taken);
        for slice in slices {
            let room = taken - bytes.len();
            bytes.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        if end.meter.sent(now_us, &bytes, &mut self.sent) {
            self.updated_us = now_us;
        }
        self.sent.digest(now_us, id, &bytes);
        if end.is_silent {
            return Ok(taken);
        }
        let (peer, rate) = (end.peer, link.rate.max(1));
        let mut at_us = end.last_us.max(now_us + link.latency_us);
        let takes_us = |bytes: usize| bytes as u64 * 1000 / rate as u64;
        let before_last = (taken - 1) / rate * rate;
        end.last_us = at_us + takes_us(before_last) + takes_us(taken - before_last);
        if before_last == 0 {
            // It arrives within a millisecond, as nearly everything does.
            self.send_at(at_us + takes_us(taken), peer, id, What::Bytes(bytes.into()));
            return Ok(taken);
        }
        for piece in bytes.chunks(rate) {
            at_us += takes_us(piece.len());
            self.send_at(at_us, peer, id, What::Bytes(piece.into()));
        }
        Ok(taken)
    }

    /// Writes foreign bytes to all the router's connections with a neighbor, except those without room.
    pub(crate) fn inject(&mut self, peer: u32, bytes: &[u8]) {
        for id in self.ends_to(peer) {
            if self.ends.get(&id).is_some_and(|end| end.opening == Opening::Open) {
                let _ = self.write(id, &[IoSlice::new(bytes)]);
            }
        }
    }

    /// Ends the sending direction of a connection.
    fn end(&mut self, id: ConnectionId, gone: bool) {
        let leaves_us = self.leaves_us();
        let Some(end) = self.ends.get_mut(&id) else { return };
        if end.is_cut || end.is_silent || (end.is_shut && !gone) {
            return;
        }
        end.is_shut = true;
        let (peer, at_us) = (end.peer, end.last_us.max(leaves_us + end.link.latency_us));
        self.send_at(at_us, peer, id, What::End { gone });
    }

    fn let_go(&mut self, id: ConnectionId) {
        self.end(id, true);
        self.ends.remove(&id);
    }

    fn addresses(&self, id: ConnectionId) -> io::Result<(SocketAddr, SocketAddr)> {
        let end = self.ends.get(&id).ok_or(io::ErrorKind::NotConnected)?;
        let (peer, _) = self.links.get(&end.peer).ok_or(io::ErrorKind::NotConnected)?;
        let opener_port = 40_000 + (id.1 % 20_000) as u16;
        let is_ours = id.0 == self.number;
        let (ours, theirs) = if is_ours { (opener_port, PORT) } else { (PORT, opener_port) };
        Ok((SocketAddr::new(self.address.into(), ours), SocketAddr::new((*peer).into(), theirs)))
    }
}

/// The router's handle of one end of a connection.
struct SimulatedStream {
    site: SharedSite,
    id: ConnectionId,
}

impl ByteStream for SimulatedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.site.lock().read(self.id, buffer)
    }

    fn short_read_is_last(&self) -> bool {
        true
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.site.lock().write(self.id, slices)
    }

    fn shut_down_write(&mut self) -> io::Result<()> {
        self.site.lock().end(self.id, false);
        Ok(())
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        match self.site.lock().ends.get(&self.id).map(|end| end.opening) {
            Some(Opening::Pending) => None,
            Some(Opening::Open) => Some(Ok(())),
            Some(Opening::Refused) | None => Some(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.site.lock().addresses(self.id)
    }

    fn apply(&mut self, _: &NeighborConfig) -> io::Result<()> {
        Ok(())
    }

    fn register(&mut self, _: &Registry, token: Token) -> io::Result<()> {
        let mut site = self.site.lock();
        if let Some(end) = site.ends.get_mut(&self.id) {
            end.token = Some(token.0);
            if end.readable || end.writable {
                site.news.push(self.id);
            }
        }
        Ok(())
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.site.lock().let_go(self.id);
    }
}

/// A router's access to the network.
pub(crate) struct SimulatedNetwork(pub(crate) SharedSite);

impl Network for SimulatedNetwork {
    fn register_listeners(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        let Some(id) = self.0.lock().backlog.pop_front() else { return Ok(None) };
        let stream = SimulatedStream { site: self.0.clone(), id };
        let Ok((_, remote)) = stream.addresses() else { return Ok(None) };
        Ok(Some(Incoming { stream: Box::new(stream), remote }))
    }

    fn connect(&self, neighbor: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        let id = self.0.lock().connect(neighbor.address)?;
        Ok(Box::new(SimulatedStream { site: self.0.clone(), id }))
    }

    fn expect(&self, _: &NeighborConfig, _: bool) -> io::Result<()> {
        Ok(())
    }
}

//! Links, connections and the clock of a simulated network.
//!
//! A connection is two pipes. What is written to a pipe takes the link's latency to arrive, then arrives at the
//! link's rate; a pipe holds a bounded number of bytes, so that a slow end stops the other one. A link that is
//! *down* ends its connections for both ends and refuses new ones; one that is *silent* swallows everything and
//! says nothing, and connections that were on it stay dead when it is back, as those of a router that lost its
//! memory are.
//!
//! Readiness is told in edges, as the kernel's poller does in the daemon: when something new arrived, when there
//! is room again after a write that found none. A reader that forgets to read to the end stays forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use thalweg_bgp::session::NeighborConfig;
use thalweg_exec::control::{Registry, Token};
use thalweg_node::speaker::{ByteStream, Incoming, Network};

const PORT: u16 = 179;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Up,
    /// Connections end, new ones are refused.
    Down,
    /// Nothing arrives and nobody is told.
    Silent,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) state: LinkState,
    pub(crate) latency_ms: u64,
    /// Bytes that arrive in a millisecond.
    pub(crate) rate: usize,
    /// Bytes on the way, before a writer has to wait.
    pub(crate) capacity: usize,
}

impl Default for Link {
    fn default() -> Self {
        Self { state: LinkState::Up, latency_ms: 3, rate: 1 << 20, capacity: 64 << 10 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Pending,
    Open,
    Refused,
}

#[derive(Default)]
struct Pipe {
    /// When each piece arrives.
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// When the last piece arrives, or arrived.
    last_ms: u64,
    /// When the reader finds the end.
    ends_ms: Option<u64>,
}

#[derive(Default)]
struct End {
    node: usize,
    token: Option<usize>,
    /// Its owner let go of it.
    dropped: bool,
    /// Something arrived, or it opened, and nobody was told yet.
    news_until_ms: Option<u64>,
    told_end: bool,
    told_open: bool,
    /// A write found no room.
    starved: bool,
}

struct Wire {
    ends: [End; 2],
    /// What each end wrote.
    pipes: [Pipe; 2],
    link: (usize, usize),
    opening: Opening,
    opens_ms: u64,
    silent: bool,
    ports: [u16; 2],
}

struct Place {
    address: Ipv4Addr,
    up: bool,
    backlog: VecDeque<u64>,
}

/// Everything between the routers.
#[derive(Default)]
pub(crate) struct Fabric {
    pub(crate) now_ms: u64,
    places: Vec<Place>,
    links: BTreeMap<(usize, usize), Link>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
}

pub(crate) type SharedFabric = Arc<Mutex<Fabric>>;

pub(crate) fn lock(fabric: &SharedFabric) -> MutexGuard<'_, Fabric> {
    fabric.lock().expect("one thread")
}

fn key(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// A session whose connection has news: node, session, readable, writable.
pub(crate) type Readiness = (usize, usize, bool, bool);

impl Fabric {
    pub(crate) fn add_place(&mut self, address: Ipv4Addr) {
        self.places.push(Place { address, up: false, backlog: VecDeque::new() });
    }

    pub(crate) fn set_up(&mut self, node: usize, up: bool) {
        self.places[node].up = up;
        self.places[node].backlog.clear();
    }

    pub(crate) fn set_link(&mut self, a: usize, b: usize, link: Link) {
        self.links.insert(key(a, b), link);
    }

    pub(crate) fn link(&mut self, a: usize, b: usize) -> &mut Link {
        self.links.get_mut(&key(a, b)).expect("a link of the topology")
    }

    /// Changes a link and what is on it.
    pub(crate) fn set_link_state(&mut self, a: usize, b: usize, state: LinkState) {
        self.link(a, b).state = state;
        let now_ms = self.now_ms;
        for wire in self.wires.values_mut().filter(|wire| wire.link == key(a, b)) {
            match state {
                LinkState::Up => {}
                LinkState::Down => {
                    for pipe in wire.pipes.iter_mut().filter(|_| !wire.silent) {
                        pipe.clear();
                        pipe.ends_ms = Some(now_ms);
                    }
                }
                LinkState::Silent => {
                    wire.silent = true;
                    wire.pipes.iter_mut().for_each(Pipe::clear);
                }
            }
        }
    }

    /// Connections wait to be taken in.
    pub(crate) fn has_backlog(&self, node: usize) -> bool {
        !self.places[node].backlog.is_empty()
    }

    /// When something happens next.
    pub(crate) fn next_event_ms(&self) -> Option<u64> {
        let now_ms = self.now_ms;
        let of_wire = |wire: &Wire| {
            let opens = (wire.opening == Opening::Pending).then_some(wire.opens_ms);
            let pieces = wire.pipes.iter().flat_map(|pipe| {
                let next = pipe.pieces.iter().map(|piece| piece.0).find(|ms| *ms > now_ms);
                next.into_iter().chain(pipe.ends_ms)
            });
            opens.into_iter().chain(pieces).filter(|ms| *ms > now_ms).min()
        };
        self.wires.values().filter_map(of_wire).min()
    }

    pub(crate) fn advance(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.wires.retain(|_, wire| !wire.ends.iter().all(|end| end.dropped));
        for (id, wire) in &mut self.wires {
            if wire.opening != Opening::Pending || wire.opens_ms > now_ms {
                continue;
            }
            let to = wire.ends[1].node;
            wire.opening = match self.links[&wire.link].state {
                LinkState::Silent => continue,
                LinkState::Up if self.places[to].up => {
                    self.places[to].backlog.push_back(*id);
                    Opening::Open
                }
                LinkState::Up | LinkState::Down => Opening::Refused,
            };
        }
    }

    /// Who has to be told what.
    pub(crate) fn readiness(&mut self) -> Vec<Readiness> {
        let (now_ms, links) = (self.now_ms, &self.links);
        let mut all = Vec::new();
        for wire in self.wires.values_mut() {
            for side in 0..2 {
                let (ours, theirs) = (&wire.pipes[side], &wire.pipes[1 - side]);
                let end = &mut wire.ends[side];
                let Some(session) = end.token.filter(|_| !end.dropped) else { continue };
                let arrived = theirs.pieces.iter().map(|piece| piece.0).take_while(|ms| *ms <= now_ms).last();
                let ended = theirs.ends_ms.is_some_and(|ms| ms <= now_ms);
                let opened = wire.opening != Opening::Pending;
                let news = arrived > end.news_until_ms;
                let readable = news || (ended && !end.told_end) || (opened && !end.told_open);
                let room = ours.bytes < links[&wire.link].capacity || ours.ends_ms.is_some();
                let writable = (end.starved && room) || (opened && !end.told_open);
                end.news_until_ms = end.news_until_ms.max(arrived);
                (end.told_end, end.told_open) = (ended, opened);
                if writable {
                    end.starved = false;
                }
                if readable || writable {
                    all.push((end.node, session, readable, writable));
                }
            }
        }
        all
    }

    fn connect(&mut self, from: usize, to: IpAddr) -> io::Result<u64> {
        let to = self.places.iter().position(|place| IpAddr::V4(place.address) == to);
        let to = to.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let link = *self.links.get(&key(from, to)).ok_or(io::ErrorKind::NetworkUnreachable)?;
        let id = self.next_wire;
        self.next_wire += 1;
        let end = |node| End { node, ..End::default() };
        self.wires.insert(
            id,
            Wire {
                ends: [end(from), end(to)],
                pipes: Default::default(),
                link: key(from, to),
                opening: Opening::Pending,
                opens_ms: self.now_ms + 2 * link.latency_ms,
                silent: false,
                ports: [40_000 + (id % 20_000) as u16, PORT],
            },
        );
        Ok(id)
    }

    fn read(&mut self, id: u64, side: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let now_ms = self.now_ms;
        let wire = self.wires.get_mut(&id).ok_or(io::ErrorKind::NotConnected)?;
        let pipe = &mut wire.pipes[1 - side];
        let mut bytes = 0;
        while let Some((_, piece)) = pipe.pieces.front_mut().filter(|piece| piece.0 <= now_ms) {
            let taken = piece.len().min(buffer.len() - bytes);
            buffer[bytes..bytes + taken].copy_from_slice(&piece[..taken]);
            bytes += taken;
            piece.drain(..taken);
            if !piece.is_empty() {
                break;
            }
            pipe.pieces.pop_front();
        }
        pipe.bytes -= bytes;
        match bytes {
            0 if pipe.ends_ms.is_some_and(|ms| ms <= now_ms) => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn write(&mut self, id: u64, side: usize, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let now_ms = self.now_ms;
        let wire = self.wires.get_mut(&id).ok_or(io::ErrorKind::NotConnected)?;
        let link = self.links[&wire.link];
        if wire.pipes[1 - side].ends_ms.is_some_and(|ms| ms <= now_ms) && wire.ends[1 - side].dropped
            || wire.pipes[side].ends_ms.is_some()
        {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let pipe = &mut wire.pipes[side];
        let asked: usize = slices.iter().map(|slice| slice.len()).sum();
        let taken = asked.min(link.capacity.saturating_sub(pipe.bytes));
        wire.ends[side].starved = taken < asked;
        if taken == 0 && asked > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(taken).collect();
        pipe.bytes += taken;
        if wire.silent {
            return Ok(taken);
        }
        pipe.last_ms = pipe.last_ms.max(now_ms + link.latency_ms);
        for piece in bytes.chunks(link.rate) {
            pipe.pieces.push_back((pipe.last_ms, piece.to_vec()));
            if piece.len() == link.rate {
                pipe.last_ms += 1;
            }
        }
        Ok(taken)
    }

    fn let_go(&mut self, id: u64, side: usize) {
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.ends[side].dropped = true;
        }
        self.end(id, side);
    }

    /// Nothing more comes from this end.
    fn end(&mut self, id: u64, side: usize) {
        let now_ms = self.now_ms;
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let latency_ms = self.links[&wire.link].latency_ms;
        let pipe = &mut wire.pipes[side];
        if !wire.silent && pipe.ends_ms.is_none() {
            pipe.ends_ms = Some(pipe.last_ms.max(now_ms + latency_ms));
        }
    }
}

impl Pipe {
    fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }
}

/// One end of a connection.
struct SimulatedStream {
    fabric: SharedFabric,
    wire: u64,
    side: usize,
}

impl ByteStream for SimulatedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        lock(&self.fabric).read(self.wire, self.side, buffer)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        lock(&self.fabric).write(self.wire, self.side, slices)
    }

    fn shut_down_write(&mut self) -> io::Result<()> {
        lock(&self.fabric).end(self.wire, self.side);
        Ok(())
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        match lock(&self.fabric).wires.get(&self.wire).map(|wire| wire.opening) {
            Some(Opening::Pending) => None,
            Some(Opening::Open) => Some(Ok(())),
            Some(Opening::Refused) | None => Some(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let fabric = lock(&self.fabric);
        let wire = fabric.wires.get(&self.wire).ok_or(io::ErrorKind::NotConnected)?;
        let address = |side: usize| {
            SocketAddr::new(fabric.places[wire.ends[side].node].address.into(), wire.ports[side])
        };
        Ok((address(self.side), address(1 - self.side)))
    }

    fn apply(&mut self, _: &NeighborConfig) -> io::Result<()> {
        Ok(())
    }

    fn register(&mut self, _: &Registry, token: Token) -> io::Result<()> {
        if let Some(wire) = lock(&self.fabric).wires.get_mut(&self.wire) {
            wire.ends[self.side].token = Some(token.0);
        }
        Ok(())
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        lock(&self.fabric).let_go(self.wire, self.side);
    }
}

/// A router's access to the network.
pub(crate) struct SimulatedNetwork {
    pub(crate) fabric: SharedFabric,
    pub(crate) node: usize,
}

impl Network for SimulatedNetwork {
    fn register_listeners(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        let wire = lock(&self.fabric).places[self.node].backlog.pop_front();
        let Some(wire) = wire else { return Ok(None) };
        let stream = SimulatedStream { fabric: self.fabric.clone(), wire, side: 1 };
        let Ok((_, remote)) = stream.addresses() else { return Ok(None) };
        Ok(Some(Incoming { stream: Box::new(stream), remote }))
    }

    fn connect(&self, neighbor: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        let wire = lock(&self.fabric).connect(self.node, neighbor.address)?;
        Ok(Box::new(SimulatedStream { fabric: self.fabric.clone(), wire, side: 0 }))
    }

    fn expect(&self, _: &NeighborConfig, _: bool) -> io::Result<()> {
        Ok(())
    }
}

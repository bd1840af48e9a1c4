//! Two sessions on virtual time, joined by pipes of bytes.
//!
//! A connection is a pair of pipes. When one end closes it, the other end learns that after it has read what was
//! sent before. Faults are fields of [`Net`]. Each end keeps a table of the other's routes, as a driver would.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{AttrRef, Interner};
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::policy::Policy;
use thalweg_bgp::route::{RouteBatchBuilder, SHARDS, WITHDRAWN};
use thalweg_bgp::session::{
    Action, Admission, Connection, Event, Importer, NeighborConfig, Session, State, StopReason,
};
use thalweg_wire::bgp::{
    Family, MessageKind, begin_attributes, begin_update, finish_attributes, finish_message, frame,
    write_attribute, write_nlri,
};

/// An end's state of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) attrs: AttrRef,
    pub(crate) stale: bool,
}

/// One router with one session.
pub(crate) struct End {
    pub(crate) session: Session,
    pub(crate) import: Importer,
    pub(crate) interner: Arc<Interner>,
    out: RouteBatchBuilder,
    pub(crate) routes: BTreeMap<(IpPrefix, u32), Route>,
    pub(crate) log: Vec<Event>,
    pub(crate) ups: usize,
    pub(crate) downs: Vec<[bool; 2]>,
    pub(crate) resends: Vec<Family>,
    pub(crate) ends_of_rib: Vec<Family>,
    /// The messages that this end wrote, by connection, to check that every byte it sends is framed.
    pub(crate) wrote: Vec<MessageKind>,
    dials: bool,
}

impl End {
    fn new(config: NeighborConfig, id: u16, seed: u64) -> Self {
        let interner = Arc::new(Interner::new(seed));
        let mut import = Importer::new(interner.clone());
        import.set_policy(Some(Arc::new(Policy::accept_all())));
        Self {
            session: Session::new(Arc::new(config), PeerId(id), seed),
            import,
            interner,
            out: RouteBatchBuilder::default(),
            routes: BTreeMap::new(),
            log: Vec::new(),
            ups: 0,
            downs: Vec::new(),
            resends: Vec::new(),
            ends_of_rib: Vec::new(),
            wrote: Vec::new(),
            dials: false,
        }
    }

    pub(crate) fn prefixes(&self) -> Vec<String> {
        self.routes.keys().map(|(prefix, _)| prefix.to_string()).collect()
    }

    /// The log as text.
    pub(crate) fn words(&self) -> String {
        self.log.iter().map(|event| event.to_string() + "\n").collect()
    }

    fn apply_routes(&mut self, now: Millis) {
        let batch = self.out.finish(self.session.id(), now.seconds());
        for shard in 0..SHARDS {
            let v4 = batch.v4.shard(shard).iter().map(|i| (IpPrefix::from(i.prefix), i.path_id, i.attrs));
            let v6 = batch.v6.shard(shard).iter().map(|i| (IpPrefix::from(i.prefix), i.path_id, i.attrs));
            for (prefix, path_id, attrs) in v4.chain(v6) {
                if attrs == WITHDRAWN {
                    self.routes.remove(&(prefix, path_id));
                } else {
                    let attrs = batch.attrs[attrs as usize].clone();
                    self.routes.insert((prefix, path_id), Route { attrs, stale: false });
                }
            }
        }
    }

    fn act(&mut self, action: &Action) {
        let of = |prefix: &IpPrefix| match prefix {
            IpPrefix::V4(_) => Family::Ipv4,
            IpPrefix::V6(_) => Family::Ipv6,
        };
        match action {
            Action::Established(_) => {
                assert_eq!(self.ups, self.downs.len(), "up and down alternate");
                self.ups += 1;
            }
            Action::Down { retained, .. } => {
                self.downs.push(*retained);
                assert_eq!(self.ups, self.downs.len(), "up and down alternate");
                self.routes.retain(|(prefix, _), route| {
                    route.stale = true;
                    retained[of(prefix).index()]
                });
            }
            Action::Resend(family) => self.resends.push(*family),
            Action::MarkStale(family) => {
                let ours = self.routes.iter_mut().filter(|((prefix, _), _)| of(prefix) == *family);
                ours.for_each(|(_, route)| route.stale = true);
            }
            Action::WithdrawStale(family) => {
                self.routes.retain(|(prefix, _), route| of(prefix) != *family || !route.stale);
            }
            Action::EndOfRib(family) => self.ends_of_rib.push(*family),
            Action::Event(event) => {
                assert!(!event.to_string().is_empty());
                self.log.push(event.clone());
            }
            Action::Connect | Action::AbandonConnect | Action::Close(_) => {}
        }
    }
}

/// The connection that the end with the same index in [`Net`] opened.
#[derive(Default)]
struct Link {
    /// By end: whether it has this connection.
    open: [bool; 2],
    /// By end: bytes in flight to it.
    to: [VecDeque<u8>; 2],
    /// By end: bytes that it has read and its session has not taken yet.
    held: [Vec<u8>; 2],
    /// One end has vanished without the other noticing.
    ghost: bool,
}

/// Two ends and the network between them.
pub(crate) struct Net {
    pub(crate) ends: [End; 2],
    links: [Link; 2],
    pub(crate) now: Millis,
    /// Connections can be opened.
    pub(crate) reachable: bool,
    /// Bytes arrive; otherwise they wait.
    pub(crate) flowing: [bool; 2],
    /// A new connection reaches the accepting end only later.
    pub(crate) slow_accept: bool,
    waiting_accepts: Vec<usize>,
    /// The number of bytes that arrive at once.
    pub(crate) chunk: Box<dyn FnMut() -> usize>,
}

pub(crate) fn address(end: usize) -> IpAddr {
    IpAddr::from([198, 18, 0, end as u8 + 1])
}

/// The configuration of one of two external neighbors.
pub(crate) fn config(end: usize) -> NeighborConfig {
    let as_of = |end: usize| 64_600 + end as u32;
    let id = std::net::Ipv4Addr::new(198, 18, 0, end as u8 + 1);
    NeighborConfig::new(address(1 - end), as_of(1 - end), as_of(end), id)
}

fn slot(end: usize, link: usize) -> Connection {
    if end == link { Connection::Outgoing } else { Connection::Incoming }
}

fn link_of(end: usize, conn: Connection) -> usize {
    if conn == Connection::Outgoing { end } else { 1 - end }
}

impl Net {
    pub(crate) fn new(a: NeighborConfig, b: NeighborConfig, seed: u64) -> Self {
        Self {
            ends: [End::new(a, 0, seed), End::new(b, 1, seed.wrapping_add(1))],
            links: [Link::default(), Link::default()],
            now: Millis(1000),
            reachable: true,
            flowing: [true; 2],
            slow_accept: false,
            waiting_accepts: Vec::new(),
            chunk: Box::new(|| usize::MAX),
        }
    }

    /// Two ends with the usual configuration, started and up.
    pub(crate) fn up() -> Self {
        Self::up_with(config(0), config(1))
    }

    pub(crate) fn up_with(a: NeighborConfig, b: NeighborConfig) -> Self {
        let mut net = Self::new(a, b, 7);
        net.start();
        net.run_ms(3_000);
        assert!(net.is_up(), "{}---\n{}", net.ends[0].words(), net.ends[1].words());
        net
    }

    pub(crate) fn start(&mut self) {
        for end in 0..2 {
            self.ends[end].session.handle_start(self.now);
        }
        self.settle();
    }

    pub(crate) fn stop(&mut self, end: usize, reason: StopReason) {
        self.ends[end].session.handle_stop(reason, self.now);
        self.settle();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.ends.iter().all(|end| end.session.state() == State::Established)
    }

    pub(crate) fn state(&self, end: usize) -> State {
        self.ends[end].session.state()
    }

    /// Lets time pass and processes everything that happens in it.
    pub(crate) fn run_ms(&mut self, milliseconds: u64) {
        let until = self.now.plus(milliseconds);
        loop {
            self.settle();
            let next = self.ends.iter().filter_map(|end| end.session.next_deadline()).min();
            match next {
                Some(at) if at <= until => self.now = at.max(self.now),
                _ => break,
            }
            for end in 0..2 {
                self.ends[end].session.handle_timer(self.now);
            }
        }
        self.now = until;
    }

    /// Moves bytes and performs actions until nothing more happens.
    pub(crate) fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "events do not end");
            let mut busy = false;
            for end in 0..2 {
                busy |= self.do_actions(end);
                busy |= self.dial(end);
            }
            busy |= !self.slow_accept && self.accept_waiting();
            for (end, link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                busy |= self.carry(end, link);
            }
            if !busy {
                break;
            }
        }
    }

    /// Lets connections appear at the accepting end.
    pub(crate) fn accept_waiting(&mut self) -> bool {
        let waiting = std::mem::take(&mut self.waiting_accepts);
        for &link in &waiting {
            let end = 1 - link;
            if !self.links[link].open[link] {
                continue;
            }
            let (local, remote) = (address(end), address(1 - end));
            match self.ends[end].session.handle_connected(Connection::Incoming, local, remote, self.now) {
                Admission::Accept | Admission::Replace => {
                    (self.links[link].open[end], self.links[link].ghost) = (true, false);
                }
                Admission::Refuse(_) => self.cut_at(link, link),
            }
            self.do_actions(end);
        }
        !waiting.is_empty()
    }

    fn dial(&mut self, end: usize) -> bool {
        if !std::mem::take(&mut self.ends[end].dials) {
            return false;
        }
        let session = &mut self.ends[end].session;
        if !self.reachable {
            session.handle_connect_failed("connection refused", self.now);
            return true;
        }
        // The connection that this one replaces is gone, and the other end reads the rest of its bytes.
        let ghost = self.links[end].ghost && self.links[end].open[1 - end];
        while !ghost && self.links[end].open[1 - end] && self.flowing[1 - end] {
            self.carry(1 - end, end);
        }
        if !ghost {
            self.cut_at(1 - end, end);
        }
        self.links[end] = Link { ghost, ..Link::default() };
        self.links[end].open[1 - end] = ghost;
        let session = &mut self.ends[end].session;
        let (local, remote) = (address(end), address(1 - end));
        let admission = session.handle_connected(Connection::Outgoing, local, remote, self.now);
        if !matches!(admission, Admission::Refuse(_)) {
            self.links[end].open[end] = true;
            self.waiting_accepts.push(end);
        }
        true
    }

    fn do_actions(&mut self, end: usize) -> bool {
        let mut busy = false;
        while let Some(action) = self.ends[end].session.poll_action() {
            busy = true;
            self.ends[end].act(&action);
            match action {
                Action::Connect => self.ends[end].dials = true,
                Action::AbandonConnect => self.ends[end].dials = false,
                Action::Close(conn) => {
                    let link = link_of(end, conn);
                    self.write(end, link);
                    self.links[link].open[end] = false;
                    self.links[link].held[end].clear();
                }
                _ => {}
            }
        }
        for link in 0..2 {
            if self.links[link].open[end] {
                self.write(end, link);
            }
        }
        busy
    }

    fn write(&mut self, end: usize, link: usize) {
        let mut bytes = Vec::new();
        self.ends[end].session.poll_output(slot(end, link), &mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let message = frame(rest, 65_535).expect("well-framed").expect("a complete message");
            self.ends[end].wrote.push(message.kind);
            rest = &rest[message.length..];
        }
        if !(self.links[link].ghost && end != link) {
            self.links[link].to[1 - end].extend(bytes);
        }
    }

    fn carry(&mut self, end: usize, link: usize) -> bool {
        let conn = slot(end, link);
        if !self.links[link].open[end] || !self.flowing[end] || self.links[link].ghost {
            return false;
        }
        let count = (self.chunk)().min(self.links[link].to[end].len());
        let arrived: Vec<u8> = self.links[link].to[end].drain(..count).collect();
        self.links[link].held[end].extend(arrived);
        let mut busy = count > 0;
        loop {
            let here = &mut self.ends[end];
            let held = &self.links[link].held[end];
            let used = here.session.handle_bytes(conn, held, self.now, &mut here.import, &mut here.out);
            self.links[link].held[end].drain(..used);
            self.ends[end].apply_routes(self.now);
            let acted = self.do_actions(end);
            busy |= used > 0 || acted;
            if used == 0 && !acted {
                break;
            }
        }
        let other_closed = !self.links[link].open[1 - end] && !self.waiting_accepts.contains(&link);
        if self.links[link].open[end] && other_closed && self.links[link].to[end].is_empty() {
            self.cut_at(end, link);
            return true;
        }
        busy
    }

    /// One end learns that a connection is gone.
    fn cut_at(&mut self, end: usize, link: usize) {
        if std::mem::take(&mut self.links[link].open[end]) {
            self.links[link].held[end].clear();
            self.ends[end].session.handle_disconnected(slot(end, link), self.now);
            self.do_actions(end);
        }
    }

    /// Breaks all connections, for both ends.
    pub(crate) fn cut(&mut self) {
        for link in 0..2 {
            for end in 0..2 {
                self.links[link].to[end].clear();
                self.cut_at(end, link);
            }
        }
        self.settle();
    }

    /// One end loses its whole state, as by kill -9, and restarts at once. The other end learns that its
    /// connections have ended only if `noticed`.
    pub(crate) fn crash(&mut self, end: usize, noticed: bool) {
        let config = self.ends[end].session.config().as_ref().clone();
        self.ends[end] = End::new(config, end as u16, self.now.0);
        for link in 0..2 {
            self.links[link].open[end] = false;
            self.links[link].to = Default::default();
            self.links[link].ghost = !noticed;
            if noticed {
                self.cut_at(1 - end, link);
            }
        }
    }

    /// Sends bytes on a session's connection, as the export side of this end does.
    pub(crate) fn send(&mut self, end: usize, bytes: &[u8]) {
        self.settle();
        let conn = self.ends[end].session.established().expect("the session is up");
        self.links[link_of(end, conn)].to[1 - end].extend(bytes);
    }

    /// Sends bytes on a session's own connection that no router has written.
    pub(crate) fn inject(&mut self, end: usize, bytes: &[u8]) {
        let here = &mut self.ends[end];
        let conn = Connection::Outgoing;
        here.session.handle_bytes(conn, bytes, self.now, &mut here.import, &mut here.out);
        self.settle();
    }

    /// Same as `inject`, and delivers them.
    pub(crate) fn deliver(&mut self, end: usize, bytes: &[u8]) {
        self.send(end, bytes);
        self.settle();
    }
}

/// An UPDATE that announces IPv4 prefixes with an AS_PATH of these ASes.
pub(crate) fn announce(path: &[u32], prefixes: &[&str]) -> Vec<u8> {
    announce_with(path, prefixes, |_| {})
}

/// Same as `announce`, with attributes that `more` appends.
pub(crate) fn announce_with(path: &[u32], prefixes: &[&str], more: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut value = vec![];
    if !path.is_empty() {
        value.extend([2, path.len() as u8]);
        path.iter().for_each(|asn| value.extend(asn.to_be_bytes()));
    }
    let mut out = Vec::new();
    let message = begin_update(&mut out);
    let attributes = begin_attributes(&mut out, message);
    write_attribute(&mut out, 0x40, 1, &[0]);
    write_attribute(&mut out, 0x40, 2, &value);
    write_attribute(&mut out, 0x40, 3, &[192, 0, 2, 1]);
    more(&mut out);
    finish_attributes(&mut out, attributes);
    write_prefixes(&mut out, prefixes);
    finish_message(&mut out, message).expect("the message fits");
    out
}

/// An UPDATE that withdraws IPv4 prefixes.
pub(crate) fn withdraw(prefixes: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let message = begin_update(&mut out);
    write_prefixes(&mut out, prefixes);
    let attributes = begin_attributes(&mut out, message);
    finish_attributes(&mut out, attributes);
    finish_message(&mut out, message).expect("the message fits");
    out
}

fn write_prefixes(out: &mut Vec<u8>, prefixes: &[&str]) {
    for prefix in prefixes {
        match prefix.parse().expect("a prefix") {
            IpPrefix::V4(prefix) => write_nlri(out, None, prefix),
            IpPrefix::V6(prefix) => write_nlri(out, None, prefix),
        }
    }
}

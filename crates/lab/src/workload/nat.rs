//! Makes traffic of sessions behind an address translator.
//!
//! A reply must be addressed to the public endpoint that the translator chose, which is not known in advance. So
//! this workload has three steps:
//!
//! 1. [`NatSessions::openers`]: one packet outward per session. The caller sends them through the router.
//! 2. [`NatSessions::learn`]: the translated packets come back here; each tells its session's public endpoint.
//! 3. [`NatSessions::traffic`]: packets both ways over all sessions that were learnt, in random order.

use super::frames::{Endpoint, Frame, FrameSource, ends_of, udp};
use ipnet::Ipv4Net;
use thalweg_base::{Chunk, XorShift64Star};

const INSIDE_PORT_FIRST: u16 = 1024;

/// The number and shape of the sessions.
#[derive(Clone, Debug)]
pub struct NatOptions {
    /// Sessions, each with its own inside endpoint.
    pub sessions: u32,
    pub inside: Ipv4Net,
    pub outside: Ipv4Net,
    pub inside_port: u16,
    pub outside_port: u16,
    /// Whether a session counts only if its source was translated; a firewall leaves it as it is.
    pub translates: bool,
    /// How many of 100 packets come from outside.
    pub inward_percent: u32,
    pub seed: u64,
}

/// The inside network has too few endpoints for the requested sessions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sessions} sessions need as many inside endpoints; there are {endpoints}")]
pub struct TooFewEndpoints {
    pub sessions: u32,
    pub endpoints: u64,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    inside: Endpoint,
    remote: Endpoint,
    public: Option<Endpoint>,
}

/// The sessions, and their public endpoints as far as known.
#[derive(Clone, Debug)]
pub struct NatSessions {
    options: NatOptions,
    sessions: Vec<Session>,
}

impl NatSessions {
    /// Sessions from distinct inside endpoints to outside hosts drawn at random.
    pub fn new(options: NatOptions) -> Result<Self, TooFewEndpoints> {
        let (first, hosts) = hosts(options.inside);
        let ports = u64::from(u16::MAX - INSIDE_PORT_FIRST) + 1;
        let endpoints = u64::from(hosts) * ports;
        if u64::from(options.sessions) > endpoints {
            return Err(TooFewEndpoints { sessions: options.sessions, endpoints });
        }
        let (outside_first, outside_hosts) = hosts_at_least_one(options.outside);
        let mut rng = XorShift64Star::new(options.seed);
        let session = |i: u32| Session {
            inside: Endpoint { address: first + i % hosts, port: INSIDE_PORT_FIRST + (i / hosts) as u16 },
            remote: Endpoint { address: outside_first + rng.below(outside_hosts), port: 443 },
            public: None,
        };
        let sessions = (0..options.sessions).map(session).collect();
        Ok(Self { options, sessions })
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The number of sessions with a known public endpoint.
    pub fn established(&self) -> usize {
        self.sessions.iter().filter(|s| s.public.is_some()).count()
    }

    /// The first packet of every session, in order. After [`NatSessions::len`] packets they begin again.
    pub fn openers(&self) -> Openers<'_> {
        Openers { sessions: self, next: 0 }
    }

    /// Learns public endpoints from translated openers. Dropped packets are ignored.
    pub fn learn(&mut self, chunk: &Chunk) {
        for (i, packet) in chunk.packets().iter().enumerate() {
            let number = (chunk.first_packet_number - 1) + u64::from(packet.index);
            let session = usize::try_from(number).ok().and_then(|n| self.sessions.get_mut(n));
            let (Some(session), true) = (session, packet.is_alive()) else { continue };
            let Some((source, _)) = ends_of(chunk.frame(i)) else { continue };
            let is_one = source != session.inside || !self.options.translates;
            session.public = is_one.then_some(source);
        }
    }

    /// A reply to every session with a known public endpoint, in order, and outward packets for the others;
    /// [`NatSessions::len`] in all.
    pub fn replies(&self) -> Replies<'_> {
        Replies { sessions: self, next: 0 }
    }

    /// How many of a chunk of translated [`NatSessions::replies`] arrived at their inside endpoint.
    pub fn answered(&self, chunk: &Chunk) -> usize {
        let is_right = |(i, packet): (usize, &thalweg_base::Packet)| {
            let number = (chunk.first_packet_number - 1) + u64::from(packet.index);
            let session = usize::try_from(number).ok().and_then(|n| self.sessions.get(n));
            let to = ends_of(chunk.frame(i)).map(|(_, to)| to);
            packet.is_alive() && session.is_some_and(|s| s.public.is_some() && to == Some(s.inside))
        };
        chunk.packets().iter().enumerate().filter(|both| is_right(*both)).count()
    }

    /// The number of sessions that share a public endpoint with another: none behind a correct translator.
    pub fn shared_endpoints(&self) -> usize {
        let mut public: Vec<u64> = self
            .sessions
            .iter()
            .filter_map(|s| s.public)
            .map(|end| u64::from(end.address) << 16 | u64::from(end.port))
            .collect();
        let all = public.len();
        public.sort_unstable();
        public.dedup();
        all - public.len()
    }

    /// Packets in both directions over the established sessions; outward over all sessions if none is established.
    pub fn traffic(&self) -> Traffic<'_> {
        self.traffic_from(self.options.seed ^ 0x7eaf_f1c5)
    }

    /// [`NatSessions::traffic`] in another random order.
    pub fn traffic_from(&self, seed: u64) -> Traffic<'_> {
        let established = (0u32..).zip(&self.sessions).filter(|(_, s)| s.public.is_some()).map(|(i, _)| i);
        let mut used: Vec<u32> = established.collect();
        if used.is_empty() {
            used = (0..self.options.sessions).collect();
        }
        Traffic { sessions: self, used, rng: XorShift64Star::new(seed), number: 0 }
    }
}

/// The first host address and the number of hosts, without network and broadcast address.
fn hosts(net: Ipv4Net) -> (u32, u32) {
    let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
    match net.prefix_len() {
        32 => (first, 1),
        31 => (first, 2),
        _ => (first + 1, last - first - 1),
    }
}

fn hosts_at_least_one(net: Ipv4Net) -> (u32, u32) {
    let (first, count) = hosts(net);
    (first, count.max(1))
}

/// See [`NatSessions::replies`].
#[derive(Debug)]
pub struct Replies<'a> {
    sessions: &'a NatSessions,
    next: usize,
}

impl FrameSource for Replies<'_> {
    fn next_frame(&mut self, frame: &mut Frame) -> u16 {
        let all = &self.sessions.sessions;
        let session = all.get(self.next % all.len().max(1));
        let number = self.next as u64;
        self.next += 1;
        let options = &self.sessions.options;
        match session.map(|session| (session, session.public)) {
            Some((session, Some(public))) => {
                udp(frame, session.remote, public, number);
                options.outside_port
            }
            Some((session, None)) => {
                udp(frame, session.inside, session.remote, number);
                options.inside_port
            }
            None => options.inside_port,
        }
    }
}

/// See [`NatSessions::openers`].
#[derive(Debug)]
pub struct Openers<'a> {
    sessions: &'a NatSessions,
    next: usize,
}

impl FrameSource for Openers<'_> {
    fn next_frame(&mut self, frame: &mut Frame) -> u16 {
        let all = &self.sessions.sessions;
        if let Some(session) = all.get(self.next % all.len().max(1)) {
            udp(frame, session.inside, session.remote, self.next as u64);
        }
        self.next += 1;
        self.sessions.options.inside_port
    }
}

/// See [`NatSessions::traffic`].
#[derive(Debug)]
pub struct Traffic<'a> {
    sessions: &'a NatSessions,
    used: Vec<u32>,
    rng: XorShift64Star,
    number: u64,
}

impl FrameSource for Traffic<'_> {
    fn next_frame(&mut self, frame: &mut Frame) -> u16 {
        let options = &self.sessions.options;
        let drawn = self.rng.below(self.used.len() as u32) as usize;
        let inward = self.rng.below(100) < options.inward_percent;
        self.number += 1;
        let Some(session) = self.used.get(drawn).and_then(|i| self.sessions.sessions.get(*i as usize)) else {
            return options.inside_port; // no sessions at all: the frame stays as it is
        };
        match session.public.filter(|_| inward) {
            Some(public) => {
                udp(frame, session.remote, public, self.number);
                options.outside_port
            }
            None => {
                udp(frame, session.inside, session.remote, self.number);
                options.inside_port
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::{Chunks, tests::parse};
    use super::*;
    use std::collections::{HashMap, HashSet};
    use thalweg_base::DropReason;

    const PUBLIC: u32 = 0xcb00_7101; // 203.0.113.1

    fn options(sessions: u32) -> NatOptions {
        NatOptions {
            sessions,
            inside: "192.168.0.0/24".parse().unwrap(),
            outside: "20.0.0.0/8".parse().unwrap(),
            inside_port: 1,
            outside_port: 0,
            translates: true,
            inward_percent: 40,
            seed: 12,
        }
    }

    /// A translator for tests: the i-th packet's source becomes the public address and port 20000 + i. Every
    /// tenth packet is dropped.
    fn translate(chunk: &mut Chunk) {
        let first = chunk.first_packet_number - 1;
        for k in 0..chunk.batch_count() {
            let mut batch = chunk.batch(k);
            for i in 0..batch.len() {
                let (packet, frame) = batch.packet_and_frame(i);
                let number = first + u64::from(packet.index);
                if number % 10 == 9 {
                    packet.drop_for(DropReason::NatTableFull);
                }
                frame[26..30].copy_from_slice(&PUBLIC.to_be_bytes());
                frame[34..36].copy_from_slice(&(20_000 + number as u16).to_be_bytes());
            }
        }
    }

    #[test]
    fn replies_go_to_what_the_translator_chose() {
        let mut sessions = NatSessions::new(options(1000)).unwrap();
        let mut openers = sessions.openers();
        let mut chunks: Vec<Chunk> = Chunks::new(&mut openers, 1000, 300, 0).collect();
        let inside: HashSet<Endpoint> = sessions.sessions.iter().map(|s| s.inside).collect();
        assert_eq!(inside.len(), 1000, "inside endpoints are distinct");
        for chunk in &mut chunks {
            translate(chunk);
            sessions.learn(chunk);
        }
        assert_eq!(sessions.established(), 900);

        let by_public: HashMap<u16, Session> =
            sessions.sessions.iter().filter_map(|s| Some((s.public?.port, *s))).collect();
        let mut traffic = sessions.traffic();
        let mut inward = 0;
        for chunk in Chunks::new(&mut traffic, 5000, 512, 0) {
            for i in 0..chunk.packets().len() {
                let (from, to) = parse(chunk.frame(i)).unwrap();
                if chunk.packets()[i].port_in == 0 {
                    inward += 1;
                    let session = by_public[&to.port];
                    assert_eq!((from, to.address), (session.remote, PUBLIC));
                } else {
                    assert!(inside.contains(&from));
                }
            }
        }
        // 2000 expected; five deviations are 173.
        assert!((1827..2173).contains(&inward), "{inward}");
    }

    #[test]
    fn a_firewall_leaves_sources_as_they_are() {
        for translates in [false, true] {
            let mut sessions = NatSessions::new(NatOptions { translates, ..options(100) }).unwrap();
            let chunks: Vec<Chunk> = Chunks::new(&mut sessions.openers(), 100, 60, 0).collect();
            chunks.iter().for_each(|chunk| sessions.learn(chunk));
            let expected = if translates { 0 } else { 100 };
            assert_eq!((sessions.established(), sessions.shared_endpoints()), (expected, 0));
        }
    }

    #[test]
    fn sessions_that_do_not_fit_are_refused() {
        let net = "10.0.0.1/32".parse().unwrap();
        let error = NatSessions::new(NatOptions { inside: net, ..options(70_000) }).unwrap_err();
        assert_eq!(error, TooFewEndpoints { sessions: 70_000, endpoints: 64_512 });
        let whole: Ipv4Net = "0.0.0.0/0".parse().unwrap();
        assert!(NatSessions::new(NatOptions { inside: whole, outside: whole, ..options(10) }).is_ok());
    }

    #[test]
    fn nothing_learnt_or_nothing_there_is_no_panic() {
        let sessions = NatSessions::new(options(10)).unwrap();
        let mut traffic = sessions.traffic();
        for chunk in Chunks::new(&mut traffic, 50, 50, 0) {
            assert!(chunk.packets().iter().all(|p| p.port_in == 1), "outward only");
        }
        let empty = NatSessions::new(options(0)).unwrap();
        assert!(empty.is_empty());
        assert_eq!(Chunks::new(&mut empty.traffic(), 5, 5, 0).count(), 1);
        assert_eq!(Chunks::new(&mut empty.openers(), 5, 5, 0).count(), 1);
    }
}

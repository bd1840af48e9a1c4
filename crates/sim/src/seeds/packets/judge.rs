//! Checks every packet that leaves or is dropped, and NAT's sessions after every chunk.
//!
//! The judge knows of sessions what is visible from outside: the endpoint with which a packet left, until
//! when a session must live, and from when it cannot live any more. Lifetimes are whole seconds of the
//! chunk's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use thalweg_base::DropReason;
use thalweg_dataplane::nat::testing::checksums;
use thalweg_wire::{icmp, ip_protocol, tcp};

use super::expect::{self, Role};
use super::frames::{Arrival, ETHERNET, Endpoint, FORWARD, Header, Seen, inside, is_of_damaged, public};
use super::plan::{NatSetup, Plan, Setup};
use super::text::{BLOCKS, REMARKED};

/// A packet's port and frame when it left, or its drop reason.
pub(super) type Fate = Result<(u16, Vec<u8>), DropReason>;

/// The broken rule, and how it was broken.
pub(super) type Broken = (&'static str, String);

/// How long a first fragment is remembered, in seconds.
const FRAGMENT_S: u64 = 30;
/// A half-open session that was idle for this time may be evicted for another.
const HALF_OPEN_S: u32 = 4;

/// A session as NAT lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    pub(super) inside: Endpoint,
    pub(super) public: Endpoint,
}

/// A session as derived from its packets.
#[derive(Clone, Debug)]
struct Session {
    public: Endpoint,
    /// The last time when it was certainly refreshed.
    refreshed_s: u64,
    /// The peers to which it has sent, and their ports; the port is 0 where there is none.
    remotes: BTreeSet<SocketAddrV4>,
    /// A RST has passed, so the session may end at any time.
    may_end: bool,
}

/// A first fragment.
#[derive(Clone, Copy, Debug)]
struct First {
    at_s: u64,
    from: Option<Endpoint>,
    to: Option<Endpoint>,
}

/// A packet to translate.
#[derive(Clone, Copy)]
struct Look<'a> {
    setup: &'a Setup,
    nat: &'a NatSetup,
    role: Role,
    arrival: &'a Arrival,
    header: &'a Header,
    now_s: u64,
}

/// The state of all checks; the head of the module says what it checks.
pub(super) struct Judge {
    /// The shortest and longest lifetimes of all configurations: UDP, established, transitory, ICMP, others.
    lives_s: ([u32; 5], [u32; 5]),
    keeps_half_open: bool,
    /// Whether inbound packets refresh sessions: in all configurations, in at least one.
    refreshes_inbound: (bool, bool),
    sessions: BTreeMap<Endpoint, Session>,
    /// The last time a packet was sent from an inside endpoint, or to a public one.
    sent_s: BTreeMap<Endpoint, u64>,
    came_s: BTreeMap<Endpoint, u64>,
    /// Inside hosts and the peers to which they sent with a protocol without ports.
    bare: BTreeSet<(Ipv4Addr, Ipv4Addr)>,
    /// First fragments, by addresses and identification.
    firsts: BTreeMap<(IpAddr, IpAddr, u16), First>,
    /// Endpoints that sent or received a RST. Only NAT knows whether their sessions ended.
    resets: BTreeSet<Endpoint>,
    /// Public endpoints that were seen, as destinations of later packets.
    pub(super) seen: Vec<Seen>,
    before: Vec<Listed>,
}

impl Judge {
    pub(super) fn new(plan: &Plan) -> Self {
        let nats: Vec<&NatSetup> = plan.routers.iter().filter_map(|setup| setup.nat.as_ref()).collect();
        let over = |pick: fn(u32, u32) -> u32| {
            let lives = nats.iter().map(|nat| nat.lives_s());
            lives.reduce(|a, b| std::array::from_fn(|at| pick(a[at], b[at]))).unwrap_or_default()
        };
        Self {
            lives_s: (over(u32::min), over(u32::max)),
            keeps_half_open: nats.iter().all(|nat| nat.keep_half_open),
            refreshes_inbound: (
                nats.iter().all(|nat| nat.inbound_refresh),
                nats.iter().any(|nat| nat.inbound_refresh),
            ),
            sessions: BTreeMap::new(),
            sent_s: BTreeMap::new(),
            came_s: BTreeMap::new(),
            bare: BTreeSet::new(),
            firsts: BTreeMap::new(),
            resets: BTreeSet::new(),
            seen: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Notes arrivals before they are processed: the times at which sessions may have been refreshed.
    pub(super) fn arrives(&mut self, setup: &Setup, arrivals: &[Arrival], now_s: u64) {
        // Damaged packets count too: most get through, because a router does not check a transport's payload.
        let header = |arrival: &Arrival| Some((arrival.port_in, Header::of(arrival.l3())?));
        let headers: Vec<(u16, Header)> = arrivals.iter().filter_map(header).collect();
        for (_, header) in headers.iter().filter(|(_, header)| header.is_fragment && !header.is_later) {
            let first = First { at_s: now_s, from: header.from(), to: header.to() };
            self.firsts.insert((header.source, header.destination, header.identification), first);
        }
        for (port_in, header) in &headers {
            let role = expect::role(setup, *port_in, header);
            if header.flags & tcp::RST != 0 {
                self.resets.extend([header.from(), header.to()].into_iter().flatten());
            }
            if matches!(role, Role::Out | Role::Hairpin) {
                self.note_sender(header, now_s);
            }
            if matches!(role, Role::In | Role::Hairpin)
                && let Some(to) = if header.is_later {
                    self.first_of(header).and_then(|first| first.to)
                } else {
                    header.to()
                }
            {
                self.came_s.insert(to, now_s);
            }
        }
        for (inside, session) in &mut self.sessions {
            session.may_end |= self.resets.contains(inside) || self.resets.contains(&session.public);
        }
    }

    fn note_sender(&mut self, header: &Header, now_s: u64) {
        if let Some(from) = self.whole_from(header) {
            self.sent_s.insert(from, now_s);
        }
        if let (IpAddr::V4(from), IpAddr::V4(to), ip_protocol::GRE) =
            (header.source, header.destination, header.protocol)
        {
            self.bare.insert((from, to));
        }
    }

    /// The source endpoint of a packet; of a later fragment, that of its first.
    fn whole_from(&self, header: &Header) -> Option<Endpoint> {
        if header.is_later { self.first_of(header)?.from } else { header.from() }
    }

    fn first_of(&self, header: &Header) -> Option<First> {
        self.firsts.get(&(header.source, header.destination, header.identification)).copied()
    }

    /// Checks the fate of a packet.
    pub(super) fn packet(
        &mut self,
        setup: &Setup,
        arrival: &Arrival,
        fate: &Fate,
        now_s: u64,
    ) -> Result<(), Broken> {
        if !arrival.is_whole {
            return Ok(());
        }
        let Some(header) = Header::of(arrival.l3()) else { return Ok(()) };
        let broken = |rule: &'static str, what: String| (rule, format!("{what}: {header:?}"));
        if let Ok((port, frame)) = fate {
            leaves_as_it_must(setup, arrival, &header, *port, frame)
                .map_err(|(rule, text)| broken(rule, text))?;
        }
        let reason = fate.as_ref().err().copied();
        if let Some(expected) = expect::refused(setup, arrival, &header) {
            return match reason {
                Some(reason) if reason == expected => Ok(()),
                _ => Err(broken(
                    "what is refused goes no further",
                    format!("{} and not {}", said(reason), expected.name()),
                )),
            };
        }
        if reason == Some(DropReason::Policed) {
            return match expect::may_be_policed(setup, &header) {
                true => Ok(()),
                false => Err(broken("only a policed class is policed", "policed".to_owned())),
            };
        }
        let role = expect::role(setup, arrival.port_in, &header);
        match (role, &setup.nat) {
            (Role::None, _) | (_, None) => {
                let expected = expect::leaves(setup, &header);
                let found = fate.as_ref().map(|(port, _)| *port).map_err(|reason| *reason);
                match found == expected {
                    true => Ok(()),
                    false => Err(broken("packets follow routes", format!("{found:?} and not {expected:?}"))),
                }
            }
            (_, Some(nat)) => {
                let look = Look { setup, nat, role, arrival, header: &header, now_s };
                self.translated(look, fate).map_err(|(rule, text)| broken(rule, text))
            }
        }
    }

    fn translated(&mut self, look: Look<'_>, fate: &Fate) -> Result<(), Broken> {
        let Look { role, header, now_s, .. } = look;
        let (_, frame) = match fate {
            Ok(left) => left,
            Err(reason) => return self.not_translated(look, *reason),
        };
        let Some(out) = Header::of(&frame[ETHERNET..]) else {
            return Err(("what leaves is whole", "its header cannot be read".to_owned()));
        };
        let is_remembered = |first: First| now_s <= first.at_s + FRAGMENT_S + 1;
        if header.is_later && !self.first_of(header).is_some_and(is_remembered) {
            return Err(("no fragment passes before its first", format!("to {}", out.destination)));
        }
        if matches!(role, Role::Out | Role::Hairpin) {
            self.source(look, &out)?;
        } else if out.source != header.source {
            return Err(("only what is inside is translated", format!("its source became {}", out.source)));
        }
        if matches!(role, Role::In | Role::Hairpin) {
            return match header.icmp.filter(|_| header.ports.is_none()) {
                Some(_) => self.about(look, &out),
                None => self.destination(look, &out),
            };
        }
        if (out.destination, out.ports.map(|ports| ports.1))
            != (header.destination, header.ports.map(|ports| ports.1))
            && header.protocol != ip_protocol::ICMP
        {
            return Err(("only what is inside is translated", format!("it went to {}", out.destination)));
        }
        Ok(())
    }

    /// Checks the source of a translated packet.
    fn source(&mut self, look: Look<'_>, out: &Header) -> Result<(), Broken> {
        let Look { nat, header, now_s, .. } = look;
        let IpAddr::V4(address) = out.source else { return Ok(()) };
        if !expect::is_public(nat, address) {
            return Err(("inside hosts leave with public addresses", format!("left from {address}")));
        }
        let inside = self.whole_from(header);
        let Some(inside) = inside else { return Ok(()) };
        let known = self.sessions.get(&inside).filter(|session| self.lives(inside, session, now_s));
        if header.is_later {
            // A later fragment has the ports of its first, so only the address is visible.
            return match known.filter(|session| session.public.address != address) {
                None => Ok(()),
                Some(session) => Err((
                    "an endpoint keeps its public one",
                    format!("{:?}, a fragment from {address}", session.public),
                )),
            };
        }
        let Some(public) = out.from() else { return Ok(()) };
        let is_forward = nat.forward && (public.address, public.port) == (forwarded().0, FORWARD.0);
        if !(nat.ports.0..=nat.ports.1).contains(&public.port) && !is_forward {
            return Err(("public ports are those of the range", format!("{public:?}")));
        }
        if let Some(session) = known.filter(|session| session.public != public) {
            let text = format!("{inside:?} had {:?}, now {public:?}", session.public);
            return Err(("an endpoint keeps its public one", text));
        }
        if let Some((other, _)) = self.owner(public, now_s).filter(|(other, _)| *other != inside) {
            return Err((
                "a public endpoint is one host's",
                format!("{public:?} of {other:?} went to {inside:?}"),
            ));
        }
        self.refresh(inside, public, header, now_s);
        Ok(())
    }

    fn refresh(&mut self, inside: Endpoint, public: Endpoint, header: &Header, now_s: u64) {
        let fresh = Session {
            public,
            refreshed_s: now_s,
            remotes: BTreeSet::new(),
            may_end: self.resets.contains(&inside) || self.resets.contains(&public),
        };
        let goes_on = |session: &Session| session.public == public && self.lives(inside, session, now_s);
        let goes_on = self.sessions.get(&inside).is_some_and(goes_on);
        let session = self.sessions.entry(inside).or_insert_with(|| fresh.clone());
        if !goes_on {
            *session = fresh;
        }
        session.refreshed_s = now_s;
        if let IpAddr::V4(remote) = header.destination {
            let remote = SocketAddrV4::new(remote, header.ports.map_or(0, |ports| ports.1));
            session.remotes.insert(remote);
            let seen = Seen { public, inside, remote };
            if !self.seen.iter().any(|other| (other.public, other.inside) == (public, inside)) {
                self.seen.push(seen);
            }
        }
    }

    /// Checks the destination of a translated packet.
    fn destination(&mut self, look: Look<'_>, out: &Header) -> Result<(), Broken> {
        let Look { nat, header, now_s, .. } = look;
        if header.protocol == ip_protocol::GRE {
            let (IpAddr::V4(to), IpAddr::V4(from)) = (out.destination, header.source) else { return Ok(()) };
            return match self.bare.contains(&(to, from)) {
                true => Ok(()),
                false => Err(("answers reach who asked", format!("{to} never sent to {from}"))),
            };
        }
        let (Some(to), Some(inside)) = (header.to(), out.to()) else { return Ok(()) };
        let is_forward = nat.forward
            && to.protocol == ip_protocol::UDP
            && (to.address, to.port) == (forwarded().0, FORWARD.0);
        if is_forward {
            return match (inside.address, inside.port) == (forwarded().1, FORWARD.1) {
                true => Ok(()),
                false => Err(("answers reach who asked", format!("a forwarded port went to {inside:?}"))),
            };
        }
        let owner = self.owner(to, now_s).map(|(owner, _)| owner);
        if let Some(owner) = owner.filter(|owner| *owner != inside) {
            return Err(("answers reach who asked", format!("{to:?} of {owner:?} went to {inside:?}")));
        }
        let Some(sent_s) = self.sent_s.get(&inside).copied() else {
            if is_of_damaged(inside.address) {
                return Ok(());
            }
            return Err(("answers reach who asked", format!("{inside:?} never sent anything")));
        };
        let (_, longest) = self.life_s(inside.protocol, &self.lives_s.1);
        let (always, sometimes) = self.refreshes_inbound;
        let is_tcp = inside.protocol == ip_protocol::TCP;
        let is_over = sent_s + u64::from(longest) < now_s && !is_of_damaged(inside.address);
        if !is_tcp && !sometimes && is_over {
            return Err(("what has expired is gone", format!("{inside:?} sent {} s ago", now_s - sent_s)));
        }
        let session = self.sessions.get_mut(&inside).filter(|session| session.public == to);
        if let Some(session) = session.filter(|_| always && !is_tcp) {
            session.refreshed_s = now_s;
            if owner.is_none() {
                // It may be another session, which a hairpin began that was dropped at its other end.
                session.remotes.clear();
            }
        }
        Ok(())
    }

    /// An ICMP error goes to the sender of the packet that it quotes.
    fn about(&self, Look { arrival, now_s, .. }: Look<'_>, out: &Header) -> Result<(), Broken> {
        const QUOTE: usize = 28;
        let quote = arrival.l3().get(QUOTE..).and_then(Header::of);
        let Some(sender) = quote.and_then(|quote| quote.from()) else { return Ok(()) };
        match self.owner(sender, now_s) {
            Some((inside, _)) if out.destination != IpAddr::V4(inside.address) => Err((
                "answers reach who asked",
                format!("an error about {inside:?} went to {}", out.destination),
            )),
            _ => Ok(()),
        }
    }

    /// The inside endpoint that certainly has a public endpoint.
    fn owner(&self, public: Endpoint, now_s: u64) -> Option<(Endpoint, &Session)> {
        let mut owners = self.sessions.iter().map(|(inside, session)| (*inside, session));
        owners.find(|(inside, session)| session.public == public && self.lives(*inside, session, now_s))
    }

    /// Checks a packet that NAT should have translated and that did not leave.
    fn not_translated(&mut self, look: Look<'_>, reason: DropReason) -> Result<(), Broken> {
        let Look { setup, nat, role, header, now_s, .. } = look;
        let is_nats = expect::is_of_nat(nat, header, reason);
        if reason == DropReason::TtlExpired && header.ttl <= 1 {
            // A packet that cannot leave creates no session.
            return Ok(());
        }
        if role == Role::Out && !is_nats {
            // After NAT it is forwarded like any other.
            return match expect::leaves(setup, header) {
                Err(expected) if expected == reason => Ok(()),
                expected => Err(("packets follow routes", format!("{} and not {expected:?}", reason.name()))),
            };
        }
        let refuses_new = |reason| {
            use DropReason::*;
            matches!(reason, NatPortsExhausted | NatTableFull | NatPortLimit | NatHostLimit | NatHostRate)
        };
        let live = |endpoint: Option<Endpoint>| {
            let inside = endpoint?;
            self.sessions.get_key_value(&inside).filter(|(at, session)| self.lives(**at, session, now_s))
        };
        if role == Role::Out
            && let Some((inside, session)) = live(self.whole_from(header)).filter(|_| refuses_new(reason))
        {
            let text = format!("{inside:?} has {:?} and was refused: {}", session.public, reason.name());
            return Err(("who has a session is not refused one", text));
        }
        if role != Role::Out && matches!(reason, DropReason::NatNoMapping | DropReason::NatFiltered) {
            return self.not_answered(look, reason);
        }
        Ok(())
    }

    /// Checks a packet to a public endpoint that did not get through.
    fn not_answered(&self, look: Look<'_>, reason: DropReason) -> Result<(), Broken> {
        let Look { nat, header, now_s, .. } = look;
        let Some(to) = header.to() else { return Ok(()) };
        let (Some((owner, session)), IpAddr::V4(from)) = (self.owner(to, now_s), header.source) else {
            return Ok(());
        };
        let has_sent_to = |remote: &SocketAddrV4| {
            let by_port = nat.port_dependent && to.protocol != ip_protocol::ICMP;
            *remote.ip() == from && (!by_port || header.ports.is_some_and(|ports| ports.0 == remote.port()))
        };
        let is_admitted = !nat.address_dependent || session.remotes.iter().any(has_sent_to);
        match is_admitted || reason == DropReason::NatNoMapping {
            true => Err((
                "answers reach who asked",
                format!("{owner:?} has {to:?}, and {} for {from}", reason.name()),
            )),
            false => Ok(()),
        }
    }

    /// The shortest and longest lifetime of a session, given these lifetimes.
    fn life_s(&self, protocol: u8, lives_s: &[u32; 5]) -> (u32, u32) {
        let [udp, established, transitory, icmp, other] = *lives_s;
        match protocol {
            ip_protocol::UDP => (udp, udp),
            ip_protocol::ICMP => (icmp, icmp),
            ip_protocol::TCP => {
                let half_open = if self.keeps_half_open { u32::MAX } else { HALF_OPEN_S - 1 };
                (transitory.min(established).min(half_open), transitory.max(established))
            }
            _ => (other, other),
        }
    }

    /// Whether a session certainly exists.
    fn lives(&self, inside: Endpoint, session: &Session, now_s: u64) -> bool {
        // After a reload to longer lifetimes a half-open session may seem to have been idle for long, and be
        // evicted.
        let may_look_old = !self.keeps_half_open && self.lives_s.0 != self.lives_s.1;
        if may_look_old && inside.protocol == ip_protocol::TCP {
            return false;
        }
        let (shortest, _) = self.life_s(inside.protocol, &self.lives_s.0);
        !session.may_end && now_s <= session.refreshed_s + u64::from(shortest)
    }

    /// Checks the sessions after a chunk, in order and without port forwards. `refused` has the inside
    /// endpoints that got none, and why.
    pub(super) fn sessions(
        &mut self,
        nat: &NatSetup,
        listed: Vec<Listed>,
        refused: &[(Endpoint, DropReason)],
        now_s: u64,
    ) -> Result<(), Broken> {
        let mut owners: BTreeMap<Endpoint, Endpoint> = BTreeMap::new();
        let mut inside: BTreeMap<Endpoint, Endpoint> = BTreeMap::new();
        for each in &listed {
            if let Some(other) = owners.insert(each.public, each.inside) {
                return Err((
                    "a public endpoint is one host's",
                    format!("{:?}: {other:?}, {:?}", each.public, each.inside),
                ));
            }
            if let Some(other) = inside.insert(each.inside, each.public) {
                return Err((
                    "an endpoint has one public one",
                    format!("{:?}: {other:?}, {:?}", each.inside, each.public),
                ));
            }
            let comes = each.inside.protocol == ip_protocol::TCP || self.refreshes_inbound.1;
            let came_s = self.came_s.get(&each.public).filter(|_| comes);
            let touched = [self.sent_s.get(&each.inside), came_s];
            let touched_s = touched.into_iter().flatten().max().copied().unwrap_or(0);
            let (_, longest) = self.life_s(each.inside.protocol, &self.lives_s.1);
            let is_over = touched_s + u64::from(longest) < now_s || !self.sent_s.contains_key(&each.inside);
            if is_over && !is_of_damaged(each.inside.address) {
                return Err((
                    "what has expired is gone",
                    format!("{:?}, last touched {} s ago", each, now_s - touched_s),
                ));
            }
        }
        for (at, session) in &self.sessions {
            if self.lives(*at, session, now_s)
                && inside.get(at).is_some_and(|public| *public != session.public)
            {
                return Err(("an endpoint keeps its public one", format!("{at:?}: {:?}", session.public)));
            }
            let is_forward = nat.forward && (at.address, at.port) == (forwarded().1, FORWARD.1);
            if self.lives(*at, session, now_s) && !inside.contains_key(at) && !is_forward {
                return Err((
                    "a session lives as long as it may",
                    format!("{at:?} had {:?}", session.public),
                ));
            }
        }
        within_limits(nat, &listed)?;
        for (endpoint, reason) in refused {
            justified(nat, &listed, *endpoint, *reason)?;
        }
        self.before = listed;
        Ok(())
    }

    /// Checks the sessions that remain after a reload.
    pub(super) fn reloaded(
        &mut self,
        (old, new): (&Setup, &Setup),
        listed: Vec<Listed>,
        now_s: u64,
    ) -> Result<(), Broken> {
        let before: BTreeMap<Endpoint, Endpoint> =
            self.before.iter().map(|each| (each.inside, each.public)).collect();
        if let Some(other) = listed.iter().find(|each| before.get(&each.inside) != Some(&each.public)) {
            return Err(("a reload makes no sessions", format!("{other:?}")));
        }
        if let (Some(old), Some(new)) = (&old.nat, &new.nat)
            && new.has_places_of(old)
        {
            let has = |at: &Endpoint| listed.iter().any(|each| each.inside == *at);
            let mut lost = self.sessions.iter().filter(|(at, session)| {
                before.get(at) == Some(&session.public) && self.lives(**at, session, now_s) && !has(at)
            });
            if let Some((at, _)) = lost.next() {
                return Err(("a reload keeps sessions", format!("{at:?} lost its own")));
            }
        }
        self.sessions.retain(|at, session| {
            listed.iter().any(|each| (each.inside, each.public) == (*at, session.public))
        });
        self.before = listed;
        Ok(())
    }

    /// Checks the sessions that remain after a host's were cleared.
    pub(super) fn cleared(&mut self, host: Ipv4Addr, listed: Vec<Listed>, now_s: u64) -> Result<(), Broken> {
        let is_left = |each: &Listed| each.inside.address != host && self.before.contains(each);
        let must_be = |each: &&Listed| {
            let session = self.sessions.get(&each.inside).filter(|session| session.public == each.public);
            each.inside.address != host
                && session.is_some_and(|session| self.lives(each.inside, session, now_s))
        };
        let lost = self.before.iter().filter(must_be).find(|each| !listed.contains(each));
        if let Some(other) = listed.iter().find(|each| !is_left(each)).or(lost) {
            return Err(("only the sessions that were named end", format!("{other:?}")));
        }
        self.sessions.retain(|at, _| at.address != host);
        self.before = listed;
        Ok(())
    }

    /// The number of sessions at the last check.
    pub(super) fn count(&self) -> usize {
        self.before.len()
    }
}

/// The address of a forwarded port, and its host.
fn forwarded() -> (Ipv4Addr, Ipv4Addr) {
    (public(0), inside(0, 1).1)
}

fn said(reason: Option<DropReason>) -> String {
    reason.map_or("it left".to_owned(), |reason| reason.name().to_owned())
}

/// The shard of a port.
fn shard_of(nat: &NatSetup, port: u16) -> u16 {
    let bits = nat.block.map_or(1, u16::trailing_zeros);
    (port >> bits) & (nat.shards - 1)
}

fn within_limits(nat: &NatSetup, listed: &[Listed]) -> Result<(), Broken> {
    let per_shard = nat.sessions_max.div_ceil(nat.shards.into()) as usize;
    let mut shards: BTreeMap<u16, usize> = BTreeMap::new();
    let mut hosts: BTreeMap<(u8, Ipv4Addr), usize> = BTreeMap::new();
    for each in listed {
        *shards.entry(shard_of(nat, each.public.port)).or_default() += 1;
        *hosts.entry((each.inside.protocol, each.inside.address)).or_default() += 1;
    }
    if let Some((shard, count)) = shards.iter().find(|(_, count)| **count > per_shard) {
        return Err((
            "no table is above its limit",
            format!("shard {shard} has {count} sessions of {per_shard}"),
        ));
    }
    let Some(block) = nat.block else { return Ok(()) };
    match hosts.iter().find(|(_, count)| **count > usize::from(block * BLOCKS)) {
        None => Ok(()),
        Some((host, count)) => {
            Err(("no host is above its limit", format!("{host:?} has {count} sessions in blocks of {block}")))
        }
    }
}

/// Checks that a host refused for lack of resources was refused rightly.
fn justified(
    nat: &NatSetup,
    listed: &[Listed],
    endpoint: Endpoint,
    reason: DropReason,
) -> Result<(), Broken> {
    if nat.hash && nat.shards > 1 || nat.block.is_some() {
        return Ok(());
    }
    let shard = shard_of(nat, endpoint.port);
    let in_shard = |each: &&Listed| shard_of(nat, each.public.port) == shard;
    let (has, room) = match reason {
        DropReason::NatTableFull => {
            (listed.iter().filter(in_shard).count(), nat.sessions_max.div_ceil(nat.shards.into()) as usize)
        }
        DropReason::NatPortsExhausted => {
            let ports = (nat.ports.0..=nat.ports.1).filter(|port| shard_of(nat, *port) == shard);
            let forwards = nat.forward && endpoint.protocol == ip_protocol::UDP;
            let is_forwarded = forwards
                && (nat.ports.0..=nat.ports.1).contains(&FORWARD.0)
                && shard_of(nat, FORWARD.0) == shard;
            let room = ports.count() * usize::from(nat.addresses) - usize::from(is_forwarded);
            let of_protocol = |each: &&Listed| each.inside.protocol == endpoint.protocol;
            (listed.iter().filter(in_shard).filter(of_protocol).count(), room)
        }
        _ => return Ok(()),
    };
    match has >= room {
        true => Ok(()),
        false => {
            let text = format!("{endpoint:?}: {}, with {has} of {room} in shard {shard}", reason.name());
            Err(("nobody is refused while there is room", text))
        }
    }
}

/// Checks what holds for every packet that leaves.
fn leaves_as_it_must(
    setup: &Setup,
    arrival: &Arrival,
    header: &Header,
    port: u16,
    frame: &[u8],
) -> Result<(), Broken> {
    let l3 = &frame[ETHERNET..];
    let Some(out) = Header::of(l3) else {
        return Err(("what leaves is whole", "its header cannot be read".to_owned()));
    };
    let expected_mac = [2, 0, 0, 0, 0xff, port as u8];
    if frame[..6] != expected_mac {
        return Err(("frames go to the next hop", format!("{:02x?}", &frame[..6])));
    }
    match expect::leaves(setup, &Header { ttl: header.ttl, ..out }) {
        Ok(way) if way == port => {}
        other => return Err(("packets follow routes", format!("by port {port}, and {other:?} is right"))),
    }
    if out.ttl + 1 != header.ttl || out.length != header.length {
        return Err(("what leaves is whole", format!("TTL {} of {} bytes", out.ttl, out.length)));
    }
    let is_remarked = expect::may_be_remarked(setup, header) && out.dscp == REMARKED;
    if out.dscp != header.dscp && !is_remarked {
        return Err(("what leaves is whole", format!("DSCP {} became {}", header.dscp, out.dscp)));
    }
    if arrival.l3()[0] >> 4 == 4 {
        checksums(l3).map_err(|wrong| ("checksums are right", wrong.to_string()))?;
    }
    match content(arrival.l3(), header) == content(l3, &out) {
        true => Ok(()),
        false => Err(("what leaves is whole", "its content is another".to_owned())),
    }
}

/// The part of a packet that no router changes: all but addresses, ports, TTL, DSCP and checksums. Of an
/// error that quotes a packet, only the beginning.
fn content(l3: &[u8], header: &Header) -> Vec<u8> {
    let mut bytes = l3[..header.length.min(l3.len())].to_vec();
    let start = if header.source.is_ipv6() { 40 } else { usize::from(l3[0] & 15) * 4 };
    bytes[..start].fill(0);
    let mut hide = |at: usize, count: usize| {
        bytes.iter_mut().skip(start + at).take(count).for_each(|byte| *byte = 0);
    };
    match (header.protocol, header.is_later) {
        (_, true) => {}
        (ip_protocol::UDP, _) => [(0, 4), (6, 2)].into_iter().for_each(|(at, count)| hide(at, count)),
        (ip_protocol::TCP, _) => [(0, 4), (16, 2)].into_iter().for_each(|(at, count)| hide(at, count)),
        (ip_protocol::ICMP, _) if header.ports.is_some() => hide(2, 4),
        (ip_protocol::ICMP, _) => {
            debug_assert!(header.icmp.is_some_and(|(kind, _)| kind == icmp::v4::UNREACHABLE));
            bytes.truncate(start + 2);
        }
        _ => {}
    }
    bytes
}

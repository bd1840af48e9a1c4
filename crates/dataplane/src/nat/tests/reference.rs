//! The shards compared with an obvious reference: a list of sessions, searched from end to end, expired at every
//! packet. It shares with the shards only what is decided and tested elsewhere: the TCP states, and the hash that
//! selects a session's shard, paired address and first port to try.

use super::*;
use crate::nat::endpoint::{End, Inside, inside_key};
use crate::nat::layout::Layout;
use crate::nat::session::TcpFlags;
use crate::nat::testing::{config, fuzz_one, icmp, udp};
use crate::nat::{
    AddressPair, Filtering, HostLimits, NatGroup, NatTimeouts, PortSelection, SessionState, group_shards,
    shard_group,
};
use proptest::prelude::*;
use std::collections::HashSet;

type Endpoint = (NatProtocol, SocketAddrV4);

struct ReferenceSession {
    inside: Endpoint,
    public: Endpoint,
    state: SessionState,
    expires_s: u64,
    remotes: HashSet<SocketAddrV4>,
    /// The number that proves a RST, and whether there may be several connections.
    awaited: u32,
    several: bool,
}

struct Reference {
    config: NatConfig,
    layout: Layout,
    sessions: Vec<ReferenceSession>,
}

impl Reference {
    fn new(config: &NatConfig) -> Self {
        let forward = |f: &PortForward| ReferenceSession {
            inside: (f.protocol, SocketAddrV4::new(f.inside_address, f.inside_port)),
            public: (f.protocol, SocketAddrV4::new(config.public_addresses[f.public_address], f.public_port)),
            state: SessionState::Forward,
            expires_s: u64::MAX,
            remotes: HashSet::new(),
            awaited: 0,
            several: false,
        };
        let sessions = config.forwards.iter().map(forward).collect();
        Self { config: config.clone(), layout: Layout::new(config), sessions }
    }

    fn expire(&mut self, now_ns: u64) -> u64 {
        let now_s = now_ns / SECOND_NS;
        self.sessions.retain(|s| s.expires_s >= now_s);
        now_s
    }

    fn lifetime_s(&self, state: SessionState) -> u64 {
        let t = &self.config.timeouts;
        use SessionState::*;
        u64::from(match state {
            Udp => t.udp_s,
            Icmp => t.icmp_s,
            Established | FinOut | FinIn => t.tcp_established_s,
            SynSent | PickedUp | SynReceived | Closing | Reset => t.tcp_transitory_s,
            Aborted => t.tcp_aborted_s.min(t.tcp_transitory_s),
            Forward => return u64::MAX / 2,
        })
    }

    /// The effect of a SYN or a RST on a TCP session, apart from its flags.
    fn track_state(
        &mut self,
        at: usize,
        outbound: bool,
        flags: u8,
        numbers: Numbers,
        before: SessionState,
        now_s: u64,
    ) {
        use SessionState::*;
        let [sequence, acknowledged] = numbers;
        let session = &mut self.sessions[at];
        if session.inside.0 != NatProtocol::Tcp {
            return;
        }
        if flags == RST {
            let number = if before == SynSent { acknowledged } else { sequence };
            let is_proven = !session.several && (outbound || number == session.awaited);
            let after = match before {
                _ if is_proven => Aborted,
                Established | FinOut | FinIn => Reset,
                _ => before,
            };
            if after != before {
                session.state = after;
                let expires_s = now_s + self.lifetime_s(after);
                self.sessions[at].expires_s = expires_s;
            }
        } else if flags == SYN || flags == SYN_ACK {
            if outbound && flags == SYN {
                session.awaited = sequence.wrapping_add(1);
            }
            session.several |= [PickedUp, Established, FinOut, FinIn, Reset].contains(&before);
        }
    }

    /// The public endpoint of a packet from inside.
    fn outbound(
        &mut self,
        from: Endpoint,
        to: SocketAddrV4,
        (flags, numbers): (u8, Numbers),
        now_ns: u64,
    ) -> Result<SocketAddrV4, DropReason> {
        let now_s = self.expire(now_ns);
        if !self.sessions.iter().any(|s| s.inside == from) {
            self.create(from, flags, now_s)?;
        }
        let at = self.sessions.iter().position(|s| s.inside == from).unwrap();
        let before = self.sessions[at].state;
        let state = before.after(End::Source, TcpFlags(flags));
        let expires_s = now_s + self.lifetime_s(state);
        let session = &mut self.sessions[at];
        session.remotes.insert(to);
        (session.state, session.expires_s) = (state, expires_s);
        session.awaited = numbers[1];
        let public = session.public.1;
        self.track_state(at, true, flags, numbers, before, now_s);
        Ok(public)
    }

    fn create(&mut self, from: Endpoint, flags: u8, now_s: u64) -> Result<(), DropReason> {
        let (protocol, endpoint) = from;
        let address = u32::from(*endpoint.ip());
        let host = Inside { vrf: 0, address };
        let shard = self.layout.session_shard(protocol, host, endpoint.port());
        let in_shard = |s: &&ReferenceSession| {
            s.state != SessionState::Forward && self.layout.port_shard(s.public.1.port()) == shard
        };
        if self.sessions.iter().filter(in_shard).count() >= self.config.sessions_per_shard() as usize {
            return Err(DropReason::NatTableFull);
        }
        let pairs_of_all_shards = 2 * u32::from(self.config.shards);
        let first = match self.config.port_selection {
            PortSelection::Preserve => u32::from(endpoint.port()) / pairs_of_all_shards,
            PortSelection::Hash => {
                let hash = self.layout.hash(inside_key(protocol.number(), host, endpoint.port()));
                ((hash >> 8) % (65536 / u64::from(pairs_of_all_shards))) as u32
            }
        };
        let all = self.config.public_addresses.len();
        let inside = IpAddr::V4(*endpoint.ip());
        let group = self.config.groups.iter().find(|g| g.inside.iter().any(|net| net.contains(&inside)));
        let rest = self.config.groups.first().map_or(all, |group| group.addresses.start);
        let pool = group.map_or(0..rest, |group| group.addresses.clone());
        let paired = self.layout.paired_address(address, &pool) - pool.start;
        let publics = &self.config.public_addresses[pool];
        for parity in [endpoint.port() % 2, 1 - endpoint.port() % 2] {
            for n in 0..publics.len() {
                let mut ports: Vec<u16> = self
                    .config
                    .port_range
                    .clone()
                    .filter(|p| p % 2 == parity && self.layout.port_shard(*p) == shard)
                    .collect();
                ports.sort_by_key(|&p| u32::from(p).wrapping_sub(first * pairs_of_all_shards) & 0xffff);
                for port in ports {
                    let public = (protocol, SocketAddrV4::new(publics[(paired + n) % publics.len()], port));
                    if self.sessions.iter().all(|s| s.public != public) {
                        let state = SessionState::initial(protocol, TcpFlags(flags));
                        let expires_s = now_s + self.lifetime_s(state);
                        let remotes = HashSet::new();
                        let (inside, awaited, several) = (from, 0, false);
                        self.sessions.push(ReferenceSession {
                            inside,
                            public,
                            state,
                            expires_s,
                            remotes,
                            awaited,
                            several,
                        });
                        return Ok(());
                    }
                }
            }
        }
        Err(DropReason::NatPortsExhausted)
    }

    /// The inside endpoint of a packet from outside.
    fn inbound(
        &mut self,
        from: SocketAddrV4,
        to: Endpoint,
        (flags, numbers): (u8, Numbers),
        now_ns: u64,
    ) -> Result<SocketAddrV4, DropReason> {
        let now_s = self.expire(now_ns);
        let Some(at) = self.sessions.iter().position(|s| s.public == to) else {
            return Err(DropReason::NatNoMapping);
        };
        if !self.admits(at, from) {
            return Err(DropReason::NatFiltered);
        }
        let before = self.sessions[at].state;
        let state = before.after(End::Destination, TcpFlags(flags));
        let refresh = match to.0 {
            NatProtocol::Tcp => {
                use SessionState::*;
                state != before || [Established, FinOut, FinIn].contains(&state)
            }
            _ => self.config.inbound_refresh,
        };
        if refresh {
            self.sessions[at].expires_s = now_s + self.lifetime_s(state);
        }
        self.sessions[at].state = state;
        self.track_state(at, false, flags, numbers, before, now_s);
        Ok(self.sessions[at].inside.1)
    }

    fn admits(&self, at: usize, from: SocketAddrV4) -> bool {
        let s = &self.sessions[at];
        let knows_address = s.remotes.iter().any(|remote| remote.ip() == from.ip());
        s.state == SessionState::Forward
            || match self.config.filtering {
                Filtering::EndpointIndependent => true,
                Filtering::AddressDependent => knows_address,
                Filtering::AddressAndPortDependent if s.public.0 == NatProtocol::Icmp => knows_address,
                Filtering::AddressAndPortDependent => s.remotes.contains(&from),
            }
    }

    /// Source and destination in the quote of an ICMP error about a packet from `public` to `remote`.
    fn error_inbound(
        &mut self,
        public: Endpoint,
        remote: SocketAddrV4,
        now_ns: u64,
    ) -> Result<SocketAddrV4, DropReason> {
        self.expire(now_ns);
        let at = self.sessions.iter().position(|s| s.public == public).ok_or(DropReason::NatNoMapping)?;
        let at = Some(at).filter(|&at| self.admits(at, remote)).ok_or(DropReason::NatIcmp)?;
        Ok(self.sessions[at].inside.1)
    }
}

/// Sequence and acknowledgment numbers of a TCP segment.
type Numbers = [u32; 2];

/// An event; numbers choose among few values so that events interact.
#[derive(Clone, Debug)]
enum Event {
    Wait { ms: u64 },
    Out { protocol: u8, host: u8, port: u8, remote: Remote, flags: u8, numbers: Numbers },
    In { session: usize, remote: Remote, flags: u8, numbers: Numbers },
    InUnknown { protocol: u8, address: usize, port: u16, remote: Remote },
    Hairpin { host: u8, port: u8, session: usize, flags: u8 },
    ErrorIn { session: usize, remote: Remote },
}

/// A remote host and one of its ports.
type Remote = (u8, u16);

fn any_remote() -> impl Strategy<Value = Remote> {
    (1u8..4, 80u16..82)
}

const FLAGS: [u8; 5] = [SYN, SYN_ACK, ACK, FIN, RST];

fn event() -> impl Strategy<Value = Event> {
    let numbers = || [0u32..3, 0u32..3];
    let out = (0u8..3, 1u8..5, 0u8..6, any_remote(), 0u8..5, numbers()).prop_map(
        |(protocol, host, port, remote, flags, numbers)| Event::Out {
            protocol,
            host,
            port,
            remote,
            flags,
            numbers,
        },
    );
    prop_oneof![
        2 => prop_oneof![0u64..900, 1000u64..6000, 1000u64..40_000, 500_000u64..2_000_000]
            .prop_map(|ms| Event::Wait { ms }),
        6 => out,
        4 => (any::<usize>(), any_remote(), 0u8..5, numbers())
            .prop_map(|(session, remote, flags, numbers)| Event::In { session, remote, flags, numbers }),
        1 => (0u8..3, 0usize..2, 1990u16..2060, any_remote()).prop_map(|(protocol, address, port, remote)| {
            Event::InUnknown { protocol, address, port, remote }
        }),
        1 => (1u8..5, 0u8..6, any::<usize>(), 0u8..5)
            .prop_map(|(host, port, session, flags)| Event::Hairpin { host, port, session, flags }),
        1 => (any::<usize>(), any_remote()).prop_map(|(session, remote)| Event::ErrorIn { session, remote }),
    ]
}

fn small_config() -> impl Strategy<Value = NatConfig> {
    let filtering = prop::sample::select(Filtering::ALL.to_vec());
    let switches = (any::<bool>(), filtering, any::<bool>(), any::<bool>(), any::<u64>());
    (1u8..3, 0u32..4, 4u32..40, switches).prop_map(|(addresses, shards, sessions_max, switches)| {
        let (hash, filtering, inbound_refresh, long, hash_seed) = switches;
        let [brief, open] = if long { [700, 1500] } else { [3, 20] };
        NatConfig {
            shards: 1 << shards,
            sessions_max,
            port_range: 2000..=2031,
            port_selection: if hash { PortSelection::Hash } else { PortSelection::Preserve },
            filtering,
            inbound_refresh,
            timeouts: NatTimeouts {
                udp_s: brief,
                tcp_established_s: open,
                tcp_transitory_s: brief + 1,
                icmp_s: 2,
                ..NatTimeouts::default()
            },
            forwards: vec![forward(NatProtocol::Udp, 2004, host(1, inside_port(2)))],
            groups: (addresses == 2 && hash_seed % 2 == 1).then(group_of_two).into_iter().collect(),
            hash_seed,
            ..config(addresses)
        }
    })
}

/// Two hosts that have the second address for themselves.
fn group_of_two() -> NatGroup {
    NatGroup {
        name: "two".to_owned(),
        vrf: 0,
        inside: vec!["192.168.0.2/31".parse().unwrap()],
        addresses: 1..2,
        outside: 0,
        limits: HostLimits::default(),
        ports_max: 0,
    }
}

fn inside_port(choice: u8) -> u16 {
    [2000, 2001, 2002, 53, 40_000, 65_535][usize::from(choice) % 6]
}

/// Applies one event to both and compares.
fn play(router: &mut Router, reference: &mut Reference, event: &Event) {
    let now_ns = router.now_ns;
    let known = |reference: &Reference, n: usize| {
        (!reference.sessions.is_empty()).then(|| reference.sessions[n % reference.sessions.len()].public)
    };
    match *event {
        Event::Wait { ms } => router.now_ns += ms * 1_000_000,
        Event::Out { protocol, host: h, port, remote: r, flags, numbers } => {
            let (protocol, flags) = (NatProtocol::from_code(protocol), FLAGS[usize::from(flags)]);
            let (from, to) = (host(h, inside_port(port)), remote(r.0, r.1));
            let expected = reference.outbound((protocol, from), to, (flags, numbers), now_ns);
            let bytes = router.leave(&numbered(protocol, from, to, (flags, numbers)));
            assert_eq!(bytes.map(|b| source(&b)), expected);
        }
        Event::In { session, remote: r, flags, numbers } => {
            let Some((protocol, public)) = known(reference, session) else { return };
            let flags = FLAGS[usize::from(flags)];
            compare_inbound(router, reference, protocol, remote(r.0, r.1), public, (flags, numbers));
        }
        Event::InUnknown { protocol, address, port, remote: r } => {
            let publics = &reference.config.public_addresses;
            let public = SocketAddrV4::new(publics[address % publics.len()], port);
            compare_inbound(
                router,
                reference,
                NatProtocol::from_code(protocol),
                remote(r.0, r.1),
                public,
                (ACK, [0; 2]),
            );
        }
        Event::Hairpin { host: h, port, session, flags } => {
            let Some((protocol, public)) = known(reference, session) else { return };
            if protocol == NatProtocol::Icmp {
                return;
            }
            let (from, flags) = (host(h, inside_port(port)), FLAGS[usize::from(flags)]);
            reference.expire(now_ns);
            let is_there = reference.sessions.iter().any(|s| s.public == (protocol, public));
            let expected = is_there
                .then_some(())
                .ok_or(DropReason::NatNoMapping)
                .and_then(|()| reference.outbound((protocol, from), public, (flags, [0; 2]), now_ns))
                .and_then(|caller| {
                    let to = reference.inbound(caller, (protocol, public), (flags, [0; 2]), now_ns)?;
                    Ok((caller, to))
                });
            let bytes = router.leave(&testing::any(protocol, from, public, flags));
            assert_eq!(bytes.map(|b| (source(&b), destination(&b))), expected);
        }
        Event::ErrorIn { session, remote: r } => {
            let Some((protocol, public)) = known(reference, session) else { return };
            let to = remote(r.0, r.1);
            let quote = testing::any(protocol, public, to, ACK);
            let error = icmp(1 << 24 | 1, (*public.ip()).into(), 3, [0; 4], &quote);
            let expected = reference.error_inbound((protocol, public), to, now_ns);
            let bytes = router.arrive(&error);
            assert_eq!(
                bytes.map(|b| (source(&b[28..]), b[16..20].to_vec())),
                expected.map(|inside| { (inside, inside.ip().octets().to_vec()) })
            );
        }
    }
}

/// A packet of a protocol; of TCP with these flags and numbers.
fn numbered(protocol: NatProtocol, from: SocketAddrV4, to: SocketAddrV4, tcp: (u8, Numbers)) -> Vec<u8> {
    match protocol {
        NatProtocol::Tcp => testing::tcp_numbered(from, to, tcp.0, tcp.1),
        _ => testing::any(protocol, from, to, tcp.0),
    }
}

fn compare_inbound(
    router: &Router,
    reference: &mut Reference,
    protocol: NatProtocol,
    from: SocketAddrV4,
    public: SocketAddrV4,
    tcp: (u8, Numbers),
) {
    let expected = reference.inbound(from, (protocol, public), tcp, router.now_ns);
    let packet = match protocol {
        NatProtocol::Icmp => testing::echo((*from.ip()).into(), (*public.ip()).into(), 0, public.port()),
        _ => numbered(protocol, from, public, tcp),
    };
    assert_eq!(router.arrive(&packet).map(|b| destination(&b)), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn translates_as_the_reference_does(config in small_config(), events in proptest::collection::vec(event(), 1..300)) {
        let mut router = Router::new(&config);
        let mut reference = Reference::new(&config);
        for event in &events {
            play(&mut router, &mut reference, event);
        }
        reference.expire(router.now_ns);
        router.nat.advance(router.now_ns);
        let mut ours: Vec<_> = router.sessions().iter().map(|s| (s.protocol, s.inside, s.public, s.state)).collect();
        let mut theirs: Vec<_> =
            reference.sessions.iter().map(|s| (s.inside.0, SocketAddr::V4(s.inside.1), s.public.1, s.state)).collect();
        ours.sort_by_key(|s| (s.0, s.1));
        theirs.sort_by_key(|s| (s.0, s.1));
        prop_assert_eq!(ours, theirs);
        let counters = router.nat.counters();
        let forwards = config.forwards.len() as u64;
        prop_assert_eq!(counters.sessions_active + forwards, reference.sessions.len() as u64);
        prop_assert_eq!(counters.sessions_created - counters.sessions_expired, counters.sessions_active);
    }

    #[test]
    fn no_bytes_panic_or_spoil_a_checksum(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_one(&data);
    }
}

/// How a chunk is cut up among workers.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Not at all: the reference.
    Whole,
    /// By lists of the shard index, groups in reverse order.
    Lists(usize),
    /// By walking and skipping, odd groups first.
    Skipping(usize),
    /// Split by owner, merged again.
    Split(usize),
}

fn run_cut(router: &Router, mut chunk: Chunk, cut: Cut) -> Chunk {
    label(&router.labeler, &mut chunk, router.shards);
    let shards = usize::from(router.shards);
    let group_of = |shard: u16, groups: usize| shard_group(usize::from(shard), groups, shards);
    match cut {
        Cut::Whole => router.nat.run_groups(&mut chunk, 0..1, 1),
        Cut::Lists(groups) => {
            let members: Vec<(u16, u16)> =
                (0..).zip(chunk.packets()).map(|(i, p)| (i, group_of(p.shard, groups) as u16)).collect();
            chunk.shard_index.build(groups, &members);
            for group in (0..groups).rev() {
                router.nat.run_groups(&mut chunk, group..group + 1, groups);
            }
        }
        Cut::Skipping(groups) => {
            for group in (0..groups).filter(|g| g % 2 == 1).chain((0..groups).filter(|g| g % 2 == 0)) {
                router.nat.run_groups(&mut chunk, group..group + 1, groups);
            }
        }
        Cut::Split(groups) => {
            let mut parts = chunk.split(groups, |p| group_of(p.shard, groups));
            for (group, part) in parts.iter_mut().enumerate() {
                assert!(group_shards(group, groups, shards).len() <= shards);
                router.nat.run_groups(part, group..group + 1, groups);
            }
            chunk = Chunk::merge(parts);
        }
    }
    router.nat.run_crossing(&mut chunk, &mut |_, _, _| ());
    chunk
}

/// The same, but the second public address is that of one host.
fn with_second_alone(mut config: NatConfig) -> NatConfig {
    let public = config.public_addresses.pop().unwrap().into();
    config.one_to_one = vec![AddressPair { vrf: 0, inside: (*host(5, 0).ip()).into(), public, outside: 0 }];
    config
}

/// A packet by a handful of numbers: from inside to outside, back to a port that may be mapped, or
/// between inside hosts.
fn packet(kind: u8, protocol: u8, h: u8, port: u16, r: u8) -> (u16, Vec<u8>) {
    let protocol = NatProtocol::from_code(protocol);
    let public = at([198, 51, 100, 1 + h % 2], 2000 + port);
    match kind {
        0..=3 => (INSIDE, testing::any(protocol, host(h, 2000 + port), remote(r, 80), FLAGS[usize::from(r)])),
        4..=6 => (OUTSIDE, testing::any(protocol, remote(r, 80), public, FLAGS[usize::from(r)])),
        7 => (INSIDE, testing::any(protocol, host(h, 2000 + port), public, SYN)),
        _ => {
            let quote = udp(public, remote(r, 80), b"quoted");
            (OUTSIDE, icmp(77 << 24, (*public.ip()).into(), 11, [0; 4], &quote))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_order_of_groups_gives_the_same(
        hash: bool,
        is_second_alone: bool,
        groups in 1usize..10,
        chunks in proptest::collection::vec(
            (0u64..5, proptest::collection::vec((0u8..9, 0u8..3, 1u8..6, 0u16..40, 1u8..5), 0..120)), 1..8),
    ) {
        let port_selection = if hash { PortSelection::Hash } else { PortSelection::Preserve };
        let timeouts = NatTimeouts { udp_s: 3, tcp_established_s: 8, tcp_transitory_s: 4, icmp_s: 2, ..NatTimeouts::default() };
        let config =
            NatConfig { shards: 8, sessions_max: 120, port_range: 2000..=2047, port_selection, timeouts, ..config(2) };
        let config = if is_second_alone { with_second_alone(config) } else { config };
        let cuts = [Cut::Whole, Cut::Lists(groups), Cut::Skipping(groups), Cut::Split(groups)];
        let outcomes = cuts.map(|cut| {
            let mut router = Router::new(&config);
            let mut frames = Vec::new();
            for (wait_s, packets) in &chunks {
                router.wait_s(*wait_s);
                let packets: Vec<_> = packets.iter().map(|&(k, p, h, port, r)| packet(k, p, h, port, r)).collect();
                let list: Vec<_> = packets.iter().map(|(port, b)| (*port, &b[..], b.len() as u32)).collect();
                let chunk = run_cut(&router, chunk(&list, router.now_ns), cut);
                for (i, p) in chunk.packets().iter().enumerate() {
                    if p.is_alive() {
                        checksums(chunk.frame(i)).unwrap();
                    }
                    frames.push((p.drop_reason(), p.src_port, p.dst_port, chunk.frame(i).to_vec()));
                }
            }
            (frames, router.nat.counters(), router.sessions())
        });
        for (cut, outcome) in cuts.iter().zip(&outcomes) {
            prop_assert_eq!(outcome, &outcomes[0], "{:?}", cut);
        }
    }
}

//! A slow firewall: a list of connections, each a few facts, rules tested one by one. It shares no code with the fast
//! one but the parsing of headers for rules, and knows packets by what the test made them from.

use super::*;
use crate::acl::Facts;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A packet as the test makes it.
#[derive(Clone, Debug)]
enum What {
    Udp {
        ports: (u16, u16),
    },
    Tcp {
        ports: (u16, u16),
        flags: u8,
        sequence: u32,
        acknowledged: u32,
    },
    Echo {
        is_request: bool,
        id: u16,
    },
    /// A protocol that the firewall does not know.
    Other,
    /// A message that is neither echo nor error.
    Message,
    /// About the last packet of this many before.
    Error {
        back: usize,
    },
}

#[derive(Clone, Debug)]
struct Sent {
    from: usize,
    to: usize,
    is_ipv6: bool,
    what: What,
}

/// Two hosts in the lan, two in the wan, one in the dmz.
fn address(host: usize, is_ipv6: bool) -> IpAddr {
    let net = [1u8, 1, 9, 9, 2][host];
    if is_ipv6 {
        return Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, host as u16 + 1).into();
    }
    let first = match net {
        1 => 10,
        2 => 172,
        _ => 198,
    };
    Ipv4Addr::new(first, 16, 0, host as u8 + 1).into()
}

fn bytes(sent: &Sent, before: &[(Sent, Vec<u8>)]) -> Vec<u8> {
    let (source, destination) = (address(sent.from, sent.is_ipv6), address(sent.to, sent.is_ipv6));
    match &sent.what {
        What::Udp { ports } => {
            testing::udp(SocketAddr::new(source, ports.0), SocketAddr::new(destination, ports.1), b"data")
        }
        What::Tcp { ports, flags, sequence, acknowledged } => {
            let (from, to) = (SocketAddr::new(source, ports.0), SocketAddr::new(destination, ports.1));
            let segment = testing::tcp_segment(from, to, *flags, [*sequence, *acknowledged], b"");
            testing::ip(source, destination, 6, &segment)
        }
        What::Echo { is_request, id } => {
            super::echo(&source.to_string(), &destination.to_string(), *is_request, *id)
        }
        What::Other => testing::ip(source, destination, 47, &[0; 12]),
        What::Message => testing::icmp(source, destination, if sent.is_ipv6 { 200 } else { 13 }, [0; 4], b""),
        What::Error { back } => match quoted(*back, before) {
            Some((_, about)) if addresses_of(about).0.is_ipv6() == sent.is_ipv6 => {
                let kind = if sent.is_ipv6 { 1 } else { 3 };
                testing::icmp(source, destination, kind, [0; 4], about)
            }
            // About nothing that can be read.
            _ => testing::icmp(source, destination, if sent.is_ipv6 { 1 } else { 3 }, [0; 4], b"?"),
        },
    }
}

fn quoted(back: usize, before: &[(Sent, Vec<u8>)]) -> Option<&(Sent, Vec<u8>)> {
    before.get(before.len().checked_sub(back + 1)?)
}

/// A connection: side 0 began it.
#[derive(Clone, Debug)]
struct Connection {
    protocol: u8,
    ends: [SocketAddr; 2],
    facts: TcpFacts,
    answered: bool,
    until_s: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TcpFacts {
    is_tcp: bool,
    /// A SYN began it, and this is the number after it.
    begun: Option<u32>,
    syn_back: bool,
    opened: bool,
    fins: [bool; 2],
    doubted: bool,
    over: bool,
    expects: [Option<u32>; 2],
}

impl TcpFacts {
    fn waits(&self) -> bool {
        self.begun.is_some() && !self.syn_back && !self.over
    }

    fn is_open(&self) -> bool {
        self.opened && !self.over && !self.doubted && self.fins != [true; 2]
    }
}

#[derive(PartialEq, Eq)]
enum Says {
    Belongs,
    Invalid,
    Begins,
}

/// The slow firewall.
struct Slow {
    config: FirewallConfig,
    connections: Vec<Connection>,
}

impl Slow {
    fn lifetime_s(&self, connection: &Connection) -> u64 {
        let (t, tcp) = (&self.config.timeouts, &connection.facts);
        u64::from(match connection.protocol {
            6 if tcp.over => t.tcp_aborted_s.min(t.tcp_transitory_s),
            6 if tcp.is_open() => t.tcp_established_s,
            6 => t.tcp_transitory_s,
            17 => t.udp_s,
            1 | 58 => t.icmp_s,
            _ => t.other_s,
        })
    }

    fn find(&self, protocol: u8, ends: [SocketAddr; 2], asks: Option<usize>) -> Option<(usize, usize)> {
        self.connections.iter().enumerate().find_map(|(place, known)| {
            let side = (0..2).find(|side| known.ends == [ends[*side], ends[1 - side]])?;
            // An echo belongs to the end that asks.
            let fits = known.protocol == protocol && asks.is_none_or(|asks| asks == side);
            fits.then_some((place, side))
        })
    }

    fn judge(
        &mut self,
        sent: &Sent,
        before: &[(Sent, Vec<u8>)],
        packet: &thalweg_base::Packet,
        l3: &[u8],
        now_s: u64,
    ) -> Option<DropReason> {
        self.connections.retain(|known| known.until_s >= now_s);
        let (from, to) = (self.config.zone(packet.port_in), self.config.zone(packet.port_out));
        let is_tracked = from != to
            || !self.config.permits(from, to)
            || self
                .config
                .rules
                .iter()
                .any(|rule| PacketState::ALL.iter().any(|state| rule.is_about(*state, from, to)));
        if !is_tracked {
            return None;
        }
        let ends = |sent: &Sent, ports: (u16, u16)| {
            [(sent.from, ports.0), (sent.to, ports.1)]
                .map(|(host, port)| SocketAddr::new(address(host, sent.is_ipv6), port))
        };
        let icmp = if sent.is_ipv6 { 58 } else { 1 };
        let asker = |is_request: bool| Some(usize::from(!is_request));
        let key = |sent: &Sent| match sent.what {
            What::Udp { ports } => Some((17, ends(sent, ports), None)),
            What::Tcp { ports, .. } => Some((6, ends(sent, ports), None)),
            What::Echo { is_request, id } => Some((icmp, ends(sent, (id, id)), asker(is_request))),
            What::Other => Some((47, ends(sent, (0, 0)), None)),
            What::Message | What::Error { .. } => None,
        };
        let (state, keeps) = match (&sent.what, key(sent)) {
            (What::Error { back }, _) => {
                let about = quoted(*back, before).filter(|(about, _)| about.is_ipv6 == sent.is_ipv6);
                let known = about.is_some_and(|(about, _)| {
                    about.from == sent.to
                        && key(about)
                            .is_some_and(|(protocol, ends, asks)| self.find(protocol, ends, asks).is_some())
                });
                (if known { PacketState::Related } else { PacketState::Invalid }, None)
            }
            (_, None) => (PacketState::New, None),
            (what, Some((protocol, ends, asks))) => match self.meet(what, protocol, ends, asks, now_s) {
                Some(Says::Belongs) => (PacketState::Established, None),
                Some(Says::Invalid) => (PacketState::Invalid, None),
                Some(Says::Begins) | None if can_begin(what, self.config.picks_up) => {
                    (PacketState::New, Some((protocol, ends)))
                }
                _ => (PacketState::Invalid, None),
            },
        };
        let facts = Facts::of(packet, l3).expect("facts");
        let found = self
            .config
            .rules
            .iter()
            .find(|rule| rule.is_about(state, from, to) && rule.rule.holds(&facts))
            .map(|rule| rule.rule.action);
        let permits = match state {
            PacketState::New => self.config.permits(from, to),
            PacketState::Established | PacketState::Related => true,
            PacketState::Invalid => from == to,
        };
        match (found, permits, state) {
            (Some(Action::Permit), ..) | (None, true, _) => {}
            (Some(_), ..) => return Some(DropReason::FirewallDenied),
            (None, false, PacketState::Invalid) => return Some(DropReason::FirewallInvalid),
            (None, false, _) => return Some(DropReason::FirewallNotAsked),
        }
        if let Some((protocol, ends)) = keeps {
            self.begin(&sent.what, protocol, ends, now_s);
        }
        None
    }

    fn begin(&mut self, what: &What, protocol: u8, ends: [SocketAddr; 2], now_s: u64) {
        let mut facts = TcpFacts { is_tcp: protocol == 6, ..TcpFacts::default() };
        if let What::Tcp { flags, sequence, acknowledged, .. } = *what {
            facts.begun = (flags & SYN != 0).then_some(sequence.wrapping_add(1));
            facts.opened = flags & SYN == 0;
            facts.expects[0] = (flags & ACK != 0).then_some(acknowledged);
        }
        let mut connection = Connection { protocol, ends, facts, answered: false, until_s: 0 };
        connection.until_s = now_s + self.lifetime_s(&connection);
        self.connections.push(connection);
    }

    /// A packet meets its connection; `None` if there is none.
    fn meet(
        &mut self,
        what: &What,
        protocol: u8,
        ends: [SocketAddr; 2],
        asks: Option<usize>,
        now_s: u64,
    ) -> Option<Says> {
        let (place, side) = self.find(protocol, ends, asks)?;
        let mut known = self.connections[place].clone();
        let before = (known.facts, known.answered);
        if let What::Tcp { flags, sequence, acknowledged, .. } = *what {
            match segment(&mut known.facts, side, flags, sequence, acknowledged) {
                Says::Begins => {
                    self.connections.remove(place);
                    return Some(Says::Begins);
                }
                Says::Invalid => return Some(Says::Invalid),
                Says::Belongs => {}
            }
        } else {
            known.answered |= side == 1;
        }
        let phase = |(facts, answered): (TcpFacts, bool)| {
            (facts.syn_back, facts.opened, facts.fins, facts.doubted, facts.over, answered)
        };
        let has_changed = phase(before) != phase((known.facts, known.answered));
        let facts = &known.facts;
        let refreshes = match protocol {
            _ if has_changed => true,
            6 if facts.waits() => side == 0,
            6 => facts.is_open(),
            _ => known.answered || side == 0,
        };
        if refreshes {
            known.until_s = now_s + self.lifetime_s(&known);
        }
        self.connections[place] = known;
        Some(Says::Belongs)
    }
}

fn is_sound(flags: u8) -> bool {
    let kind = flags & (SYN | FIN | RST);
    kind.count_ones() <= 1 && (flags & ACK != 0 || kind == SYN || kind == RST)
}

fn can_begin(what: &What, picks_up: bool) -> bool {
    match *what {
        What::Tcp { flags, .. } => {
            is_sound(flags) && (flags == SYN || picks_up && flags & (SYN | FIN | RST | ACK) == ACK)
        }
        What::Echo { is_request, .. } => is_request,
        _ => true,
    }
}

/// A segment from a side; `acknowledged` counts only with ACK.
fn segment(tcp: &mut TcpFacts, side: usize, flags: u8, sequence: u32, acknowledged: u32) -> Says {
    if !is_sound(flags) {
        return Says::Invalid;
    }
    let (syn, ack, fin) = (flags & SYN != 0, flags & ACK != 0, flags & FIN != 0);
    let ended = tcp.over || tcp.doubted || tcp.fins == [true; 2];
    if flags & RST != 0 {
        let is_proven = match (tcp.waits(), side) {
            (true, 0) => true,
            (true, _) => ack && Some(acknowledged) == tcp.begun,
            (false, _) => tcp.expects[1 - side] == Some(sequence),
        };
        if is_proven {
            tcp.over = true;
        } else if tcp.is_open() {
            (tcp.doubted, tcp.fins) = (true, [false; 2]);
        }
        return Says::Belongs;
    }
    if ended && syn && !ack {
        return Says::Begins;
    }
    if tcp.waits() && side == 0 && !syn {
        return Says::Invalid;
    }
    if tcp.waits() && side == 1 && syn {
        tcp.syn_back = true;
    } else if tcp.syn_back && !tcp.opened && !tcp.over && side == 0 && ack && !syn {
        tcp.opened = true;
    } else if tcp.doubted && !tcp.over && side == 0 && ack {
        tcp.doubted = false;
    }
    let was_open = tcp.is_open();
    if fin && !tcp.waits() && !tcp.over && !tcp.doubted && tcp.fins != [true; 2] {
        tcp.opened = true;
        tcp.fins[side] = true;
    }
    let of_another = tcp.waits() && side == 1;
    if !(of_another || syn && was_open) {
        if syn && tcp.expects[1 - side].is_none() && side == 0 && tcp.begun.is_some() {
            tcp.begun = Some(sequence.wrapping_add(1));
        }
        if ack && tcp.expects[side].is_none_or(|known| (acknowledged.wrapping_sub(known) as i32) > 0) {
            tcp.expects[side] = Some(acknowledged);
        }
    }
    Says::Belongs
}

fn what() -> impl Strategy<Value = What> {
    let port = || prop_oneof![Just(80u16), Just(443), Just(4000)];
    let flags = prop_oneof![
        4 => Just(SYN),
        4 => Just(SYN_ACK),
        6 => Just(ACK),
        2 => Just(FIN_ACK),
        2 => Just(RST),
        1 => Just(RST | ACK),
        1 => any::<u8>().prop_map(|flags| flags & 0x17),
    ];
    let number = || prop_oneof![Just(1u32), Just(2), Just(5), Just(u32::MAX)];
    prop_oneof![
        3 => (port(), port()).prop_map(|ports| What::Udp { ports }),
        8 => (port(), flags, number(), number()).prop_map(|(port, flags, sequence, acknowledged)| What::Tcp {
            ports: (port, 80), flags, sequence, acknowledged,
        }),
        2 => (any::<bool>(), 1u16..3).prop_map(|(is_request, id)| What::Echo { is_request, id }),
        1 => Just(What::Other),
        1 => Just(What::Message),
        2 => (0usize..6).prop_map(|back| What::Error { back }),
    ]
}

/// Packets, many of them the answer to the one before.
fn traffic() -> impl Strategy<Value = Vec<(Sent, bool, u64)>> {
    let sent = (0usize..5, 1usize..5, prop::bool::weighted(0.3), what())
        .prop_map(|(from, step, is_ipv6, what)| Sent { from, to: (from + step) % 5, is_ipv6, what });
    let pause_s = prop_oneof![12 => Just(0u64), 3 => 0u64..20, 1 => 100u64..300, 1 => Just(8000)];
    prop::collection::vec((sent, prop::bool::weighted(0.6), pause_s), 1..60)
}

/// The packet as it would come the other way, with the ports of a packet before.
fn answer(sent: &mut Sent, to: &Sent) {
    (sent.from, sent.to, sent.is_ipv6) = (to.to, to.from, to.is_ipv6);
    match (&mut sent.what, &to.what) {
        (What::Udp { ports }, What::Udp { ports: asked }) => *ports = (asked.1, asked.0),
        (What::Tcp { ports, .. }, What::Tcp { ports: asked, .. }) => *ports = (asked.1, asked.0),
        _ => {}
    }
}

fn rules() -> impl Strategy<Value = Vec<ZoneRule>> {
    let zones = || prop::collection::vec(prop_oneof![Just(LAN), Just(WAN), Just(DMZ)], 0..2);
    let action = prop_oneof![2 => Just(Action::Permit), 1 => Just(Action::Deny), 1 => Just(Action::Reject)];
    let states = prop_oneof![
        4 => Just(Vec::new()),
        1 => prop::sample::subsequence(PacketState::ALL.to_vec(), 1..4),
    ];
    let ports = prop_oneof![Just(Vec::new()), Just(vec![80..=80]), Just(vec![443..=4000])];
    let protocols = prop_oneof![Just(Vec::new()), Just(vec![6u8]), Just(vec![17u8]), Just(vec![1u8, 58])];
    let made = (action, zones(), zones(), states, ports, protocols).prop_map(
        |(action, from, to, states, destination_ports, protocols)| ZoneRule {
            rule: Rule { destination_ports, protocols, ..Rule::all(action) },
            states,
            ..super::rule(action, &from, &to)
        },
    );
    prop::collection::vec(made, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_slow_firewall_decides_the_same(
        traffic in traffic(),
        rules in rules(),
        policy in prop_oneof![3 => Just(Policy::OutgoingOnly), 1 => Just(Policy::Deny), 1 => Just(Policy::Permit)],
        picks_up in any::<bool>(),
    ) {
        let config = FirewallConfig { rules, policy, picks_up, ..config() };
        let mut site = Site::new(&config);
        let mut slow = Slow { config, connections: Vec::new() };
        let mut before: Vec<(Sent, Vec<u8>)> = Vec::new();
        for (mut sent, answers, pause_s) in traffic {
            if let Some((last, _)) = before.last().filter(|_| answers) {
                answer(&mut sent, last);
            }
            site.wait_s(pause_s);
            let packet = bytes(&sent, &before);
            let mut chunk = site.arrive(vec![packet.clone()]);
            let now_s = site.now_ns / SECOND_NS;
            let expected = {
                let mut batch = chunk.batch(0);
                let (packet, l3) = batch.packet_and_l3(0);
                slow.judge(&sent, &before, packet, l3, now_s)
            };
            site.stage.run_groups(&site.rules, &mut chunk, 0..1, 1, &site.counts);
            let found = chunk.packets()[0].drop_reason();
            prop_assert_eq!(found, expected, "{:?} at {} s after {:?}", sent, now_s, before);
            site.stage.advance(site.now_ns);
            slow.connections.retain(|known| known.until_s >= now_s);
            prop_assert_eq!(site.stage.counters().states_active, slow.connections.len() as u64);
            before.push((sent, packet));
        }
        // Whatever was decided was counted.
        let counted: u64 = site.counts.all().iter().map(|rule| rule.packets).sum();
        prop_assert!(counted <= before.len() as u64);
    }
}

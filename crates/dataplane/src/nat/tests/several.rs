//! Several outside ports, compared with as many NATs that have one port each: whatever belongs to a port must be treated
//! as if the others did not exist.

use super::*;
use crate::nat::testing::{echo, icmp, ipv4};
use crate::nat::{NatCounters, OtherOutside};
use proptest::prelude::*;
use thalweg_base::NO_SHARD;

/// The other outside ports.
const OTHERS: [u16; 2] = [2, 3];

/// Three outside ports, and a forward of each to a host of its own.
fn config() -> NatConfig {
    let forward = |n: u8| forward(NatProtocol::Udp, 53, host(n, 5001));
    let other = |(n, port): (u8, &u16)| OtherOutside {
        port: *port,
        public_addresses: (1..=n).map(|address| [198, 18, n, address].into()).collect(),
        forwards: vec![forward(n)],
    };
    NatConfig {
        shards: 4,
        sessions_max: 64,
        port_range: 5000..=5063,
        forwards: vec![forward(0)],
        others: (1..).zip(&OTHERS).map(other).collect(),
        ..testing::config(1)
    }
}

/// The place of the outside port by which packets to a destination leave; `None` for another port.
fn way(destination: u32) -> Option<usize> {
    Some(destination as usize % 4).filter(|place| *place < 3)
}

/// The NAT, and its reference of three.
struct Both {
    labeler: Labeler,
    nat: NatStage,
    references: Vec<Router>,
    ports: Vec<u16>,
    /// Packets that came in by another port than their session's.
    elsewhere: u64,
}

impl Both {
    fn new(config: &NatConfig) -> Self {
        let reference = |outside: NatConfig| Router::new(&NatConfig { outside_port: OUTSIDE, ..outside });
        Self {
            labeler: Labeler::new(config).unwrap(),
            nat: NatStage::new(config).unwrap(),
            references: config.outsides().map(reference).collect(),
            ports: config.outside_ports().collect(),
            elsewhere: 0,
        }
    }

    fn run(&self, port_in: u16, bytes: &[u8]) -> Outcome {
        let mut chunk = chunk(&[(port_in, bytes, bytes.len() as u32)], self.references[0].now_ns);
        let (mut batch, _) = chunk.whole();
        let (packet, l3) = batch.packet_and_l3(0);
        self.labeler.label_toward(packet, l3, |_, to, home| home.or_else(|| way(to)));
        chunk.crosses_shards = chunk.packets()[0].crossing_shard != NO_SHARD;
        // Three groups out of as many shards as the power of two above twelve.
        self.nat.run_groups(&mut chunk, 0..2, 3);
        self.nat.run_groups(&mut chunk, 2..3, 3);
        self.nat.run_crossing(&mut chunk, &mut |_, _, _| ());
        match chunk.packets()[0].drop_reason() {
            Some(reason) => Err(reason),
            None => Ok(chunk.frame(0).to_vec()),
        }
    }

    /// What the references say: the one that has the public address, or by whose port the packet leaves.
    fn expected(&mut self, port_in: u16, bytes: &[u8]) -> Outcome {
        let [from, to] = [&bytes[12..16], &bytes[16..20]].map(|ip| <[u8; 4]>::try_from(ip).unwrap());
        let owner = self.references.iter().position(|reference| reference.nat.is_public(to.into()));
        if port_in != INSIDE {
            let Some(owner) = owner else { return Ok(bytes.to_vec()) };
            let outcome = self.references[owner].arrive(bytes);
            self.elsewhere += u64::from(outcome.is_ok() && port_in != self.ports[owner]);
            return outcome;
        }
        let home = bytes[9] == 17 && from[..3] == [192, 168, 0] && bytes[20..22] == 5001u16.to_be_bytes();
        let home = home.then_some(usize::from(from[3])).filter(|host| *host < 3);
        match owner.or(home).or(way(u32::from_be_bytes(to))) {
            Some(place) => self.references[place].leave(bytes),
            None => Ok(bytes.to_vec()),
        }
    }

    fn check(&mut self, port_in: u16, bytes: &[u8]) -> Outcome {
        let expected = self.expected(port_in, bytes);
        let outcome = self.run(port_in, bytes);
        assert_eq!(outcome, expected, "port {port_in}: {bytes:02x?}");
        outcome
    }

    fn wait_s(&mut self, seconds: u64) {
        self.references.iter_mut().for_each(|reference| reference.wait_s(seconds));
    }

    fn sessions(&self) -> Vec<String> {
        let (mut all, mut next) = (Vec::new(), Some(Cursor::default()));
        while let Some(from) = next {
            next = self.nat.sessions(from, self.references[0].now_ns, |_| true, &mut all);
        }
        sorted(all)
    }

    fn finish(self) {
        let mut sum = NatCounters { in_by_other_port: self.elsewhere, ..NatCounters::default() };
        self.references.iter().for_each(|reference| sum.add(&reference.nat.counters()));
        assert_eq!(self.nat.counters(), sum);
        let theirs = self.references.iter().flat_map(Router::sessions).collect();
        assert_eq!(self.sessions(), sorted(theirs));
    }
}

fn sorted(sessions: Vec<SessionInfo>) -> Vec<String> {
    let mut all: Vec<String> = sessions.iter().map(|session| format!("{session:?}")).collect();
    all.sort();
    all
}

proptest! {
    #[test]
    fn each_outside_port_is_a_nat_of_its_own(steps in proptest::collection::vec(any::<[u8; 5]>(), 1..120)) {
        let mut both = Both::new(&config());
        let mut left: Vec<Vec<u8>> = Vec::new();
        for [kind, who, whom, port, more] in steps {
            both.wait_s(u64::from(more & 7) * 20);
            let inside = host(who & 3, 5000 + u16::from(port & 3));
            let outside = remote(whom & 15, 80);
            let public = SocketAddrV4::new(
                config().all_public_addresses().nth(usize::from(whom) % 4).unwrap(),
                [53, 5000, 5001, 5002][usize::from(port >> 2 & 3)],
            );
            let protocol = NatProtocol::ALL[usize::from(port >> 4) % 3];
            let arrival = [OUTSIDE, OTHERS[0], OTHERS[1]][usize::from(who >> 2) % 3];
            let earlier = left.get(usize::from(more) % left.len().max(1)).cloned();
            let (port_in, bytes) = match (kind & 7, earlier) {
                (0 | 1, _) => (INSIDE, testing::any(protocol, inside, outside, [SYN, ACK][usize::from(more >> 7)])),
                (2, _) => (INSIDE, testing::any(protocol, inside, public, SYN)),
                (3, _) => (arrival, testing::any(protocol, outside, public, ACK)),
                (4, _) => (INSIDE, ipv4((*inside.ip()).into(), (*outside.ip()).into(), 47, 0, &[0; 8])),
                (5, Some(sent)) if sent[9] == 47 => {
                    let [a, b] = [&sent[12..16], &sent[16..20]].map(|ip| u32::from_be_bytes(ip.try_into().unwrap()));
                    (arrival, ipv4(b, a, 47, 0, &[0; 8]))
                }
                (5 | 6, Some(sent)) if sent[9] != 47 => {
                    let (from, to) = (destination(&sent), source(&sent));
                    let answer = match sent[9] {
                        1 => echo((*from.ip()).into(), (*to.ip()).into(), 0, to.port()),
                        6 => testing::tcp(from, to, SYN_ACK),
                        _ => testing::udp(from, to, b"back"),
                    };
                    (arrival, answer)
                }
                (_, Some(sent)) => {
                    let to = u32::from_be_bytes(sent[12..16].try_into().unwrap());
                    (arrival, icmp(u32::from_be_bytes([203, 0, 113, 77]), to, 3, [0; 4], &sent))
                }
                _ => continue,
            };
            if let (Ok(sent), INSIDE) = (both.check(port_in, &bytes), port_in) {
                left.push(sent);
            }
        }
        both.finish();
    }
}

#[test]
fn an_answer_to_a_forwarded_packet_leaves_by_the_forwards_port() {
    let mut both = Both::new(&config());
    let (client, server) = (remote(4, 999), host(1, 5001));
    assert_eq!(way((*client.ip()).into()), Some(0), "the route would lead elsewhere");
    let question = both.check(OTHERS[0], &testing::udp(client, at([198, 18, 1, 1], 53), b"?")).unwrap();
    assert_eq!(destination(&question), server);
    let answer = both.check(INSIDE, &testing::udp(server, client, b"!")).unwrap();
    assert_eq!(source(&answer), at([198, 18, 1, 1], 53));
    // So does what the server says about it.
    let refused = icmp((*server.ip()).into(), (*client.ip()).into(), 3, [0; 4], &question);
    let told = both.run(INSIDE, &refused).unwrap();
    assert_eq!(told[12..16], [198, 18, 1, 1]);
}

#[test]
fn sessions_follow_their_address_into_the_next_configuration() {
    let old = config();
    let mut both = Both::new(&old);
    for to in 0..3 {
        both.check(INSIDE, &testing::udp(host(9, 5000), remote(to, 80), b"?")).unwrap();
    }
    let before = both.sessions();
    // The ports change places, and the table is larger.
    let mut turned = NatConfig { sessions_max: 128, ..old.clone() };
    turned.others.swap(0, 1);
    let next = Both { references: both.references, ..Both::new(&turned) };
    let moved = next.nat.migrate_from(&both.nat);
    assert_eq!((moved.kept, moved.displaced, next.sessions()), (3, 0, before));
    // One port goes, with its session.
    turned.others.truncate(1);
    let last = Both { references: next.references, ..Both::new(&turned) };
    let moved = last.nat.migrate_from(&next.nat);
    assert_eq!((moved.kept, moved.displaced), (2, 1));
}

#[test]
fn outside_ports_share_nothing() {
    use crate::nat::NatConfigError::*;
    let with = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = config();
        change(&mut config);
        config.validate()
    };
    assert_eq!(with(&|_| ()), Ok(()));
    assert_eq!(with(&|c| c.others[1].port = OUTSIDE), Err(OutsideTwice(OUTSIDE)));
    assert_eq!(with(&|c| c.others[1].port = INSIDE), Err(InsideIsOutside(INSIDE)));
    let first = config().public_addresses[0];
    assert_eq!(with(&|c| c.others[1].public_addresses.push(first)), Err(PublicAddressTwice(first)));
    let taken = config().forwards[0].inside_address;
    let refused = Err(ForwardInsideTwice(NatProtocol::Udp, taken, 5001));
    assert_eq!(with(&|c| c.others[1].forwards[0].inside_address = taken), refused);
    let many = |c: &mut NatConfig| {
        let other = |port| OtherOutside { port, public_addresses: Vec::new(), forwards: Vec::new() };
        c.others = (10..20).map(other).collect();
    };
    assert_eq!(with(&many), Err(TooManyOutsides(11)));
}

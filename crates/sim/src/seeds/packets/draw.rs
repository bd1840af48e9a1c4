//! Draws a plan from a seed.

use thalweg_exec::ModelKind;

use super::frames::WELL_KNOWN;
use super::plan::{
    Act, ClassSetup, Deny, FlowSetup, Item, Kind, LANS_MAX, NatSetup, Piece, Plan, Protocol, Setup, Step,
};
use crate::chance::Random;

/// Ranges of public ports: all that are possible, a few, and those that inside hosts use themselves.
const PORTS: [(u16, u16); 3] = [(1024, 65_535), (2000, 2063), (4000, 4127)];

impl Plan {
    /// The plan that a seed draws.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, 3);
        let random = &mut random;
        let mut routers = vec![setup(random)];
        for _ in 0..random.below(4) {
            let before = routers[random.below(routers.len())].clone();
            routers.push(changed(random, before));
        }
        // The models start anew after each reload, so the number of workers is small.
        let model = ModelKind::ALL[1 + random.below(ModelKind::ALL.len() - 1)];
        let count = 4 + random.below(24);
        let steps = (0..count).map(|_| step(random, routers.len())).collect();
        Self { seed, model, workers: 1 + random.below(3), routers, steps }
    }
}

fn setup(random: &mut Random) -> Setup {
    Setup {
        more_lans: random.below(LANS_MAX.into()) as u8,
        small_mtu: random.happens(0.2),
        lost_gateway: random.happens(0.05),
        strict_sources: random.happens(0.2),
        deny: deny(random),
        nat: random.happens(0.8).then(|| nat(random)),
        classes: random.happens(0.4).then(|| classes(random)),
        flows: random.happens(0.6).then(|| flows(random)),
    }
}

fn deny(random: &mut Random) -> Option<Deny> {
    match random.below(10) {
        0 => Some(Deny::Udp),
        1 | 2 => Some(Deny::Host(random.below(6) as u8)),
        _ => None,
    }
}

fn nat(random: &mut Random) -> NatSetup {
    let ports = PORTS[random.below(PORTS.len())];
    let room = u32::from(ports.1 - ports.0) + 1;
    // Blocks of subscribers need a range of their own in each shard.
    let block = (room > 1000 && random.happens(0.25)).then(|| [16, 64][random.below(2)]);
    let mut nat = NatSetup {
        addresses: 1 + random.below(3) as u8,
        ports,
        shards: 1 << random.below(5),
        sessions_max: [16, 64, 256, 1024][random.below(4)],
        hash: random.happens(0.4),
        address_dependent: random.happens(0.3),
        port_dependent: false,
        no_hairpin: random.happens(0.15),
        inbound_refresh: random.happens(0.3),
        keep_half_open: random.happens(0.3),
        host_limits: if random.happens(0.2) { (4 + random.below(60) as u32, 8) } else { (0, 0) },
        short_lives: random.happens(0.6),
        block,
        forward: random.happens(0.3),
    };
    nat.port_dependent = nat.address_dependent && random.happens(0.4);
    nat
}

fn classes(random: &mut Random) -> ClassSetup {
    ClassSetup {
        policed_bps: random.happens(0.7).then(|| [8_000, 200_000][random.below(2)]),
        remark: random.happens(0.3),
    }
}

fn flows(random: &mut Random) -> FlowSetup {
    FlowSetup {
        flows_max: [16, 64, 4096][random.below(3)],
        idle_s: [2, 15][random.below(2)],
        active_s: [4, 60][random.below(2)],
        biflow: random.happens(0.3),
        sample: if random.happens(0.1) { 3 } else { 1 },
        without_ports: random.happens(0.15),
    }
}

/// A change by an operator, mostly of one setting.
fn changed(random: &mut Random, mut setup: Setup) -> Setup {
    for _ in 0..1 + random.below(2) {
        match random.below(9) {
            0 => setup.nat = random.happens(0.8).then(|| nat(random)),
            1 => setup.flows = random.happens(0.7).then(|| flows(random)),
            2 => setup.classes = random.happens(0.6).then(|| classes(random)),
            3 => setup.deny = deny(random),
            4 => setup.small_mtu = !setup.small_mtu,
            5 => setup.lost_gateway = !setup.lost_gateway,
            6 => setup.strict_sources = !setup.strict_sources,
            _ => match (&mut setup.nat, random.below(6)) {
                (Some(nat), 0) => {
                    nat.address_dependent = !nat.address_dependent;
                    nat.port_dependent = nat.address_dependent && random.happens(0.4);
                }
                (Some(nat), 1) => nat.short_lives = !nat.short_lives,
                (Some(nat), 2) => nat.inbound_refresh = !nat.inbound_refresh,
                (Some(nat), 3) => nat.addresses = 1 + random.below(3) as u8,
                (Some(nat), 4) => nat.sessions_max = [16, 64, 256, 1024][random.below(4)],
                (Some(nat), _) => nat.forward = !nat.forward,
                (None, _) => {}
            },
        }
    }
    setup
}

fn step(random: &mut Random, setups: usize) -> Step {
    let after_ms = match random.below(10) {
        0..5 => random.below(20),
        5..8 => 900 + random.below(3000),
        8 => random.below(30_000),
        // Long enough for every lifetime of minutes to end.
        _ => random.below(400_000),
    };
    let what = match random.below(20) {
        0 | 1 if setups > 1 => Act::Reload(random.below(setups)),
        2 => Act::Clear(random.below(8) as u8),
        _ => Act::Packets((0..1 + random.below(24)).flat_map(|_| items(random)).collect()),
    };
    Step { after_ms: after_ms as u32, what }
}

/// Mostly one item; most first fragments come with their last one.
fn items(random: &mut Random) -> Vec<Item> {
    let first = item(random);
    let last = Item { piece: Piece::Last, ..first };
    match first.piece == Piece::First && random.happens(0.7) {
        true => vec![first, last],
        false => vec![first],
    }
}

fn item(random: &mut Random) -> Item {
    use Kind::*;
    let kind = match random.below(40) {
        0..14 => Out,
        14..22 => Back,
        22 | 23 => Knock,
        24..27 => Hairpin,
        27 => ErrorIn,
        28 => ErrorOut,
        29 | 30 => Across,
        31 | 32 => Six,
        _ => Kind::ALL[random.below(Kind::ALL.len())],
    };
    let protocol = match random.below(16) {
        0..6 => Protocol::Udp,
        6..9 => Protocol::TcpSyn,
        9..11 => Protocol::TcpAck,
        11 => Protocol::TcpFin,
        12 => Protocol::TcpRst,
        13 | 14 => Protocol::Echo,
        _ => Protocol::Gre,
    };
    let is_udp = protocol == Protocol::Udp;
    Item {
        kind,
        times: if random.happens(0.1) { 2 + random.below(60) as u16 } else { 1 },
        host: random.below(6) as u8,
        port: if random.happens(0.1) { WELL_KNOWN } else { 4000 + random.below(24) as u16 },
        remote: random.below(4) as u8,
        protocol,
        piece: match random.below(12) {
            0 if is_udp => Piece::First,
            1 if is_udp => Piece::Last,
            _ => Piece::Whole,
        },
        ttl: if random.happens(0.04) { random.below(3) as u8 } else { 64 },
        dscp: [0, 0, 46, 8][random.below(4)],
        bytes: if random.happens(0.15) { random.below(1200) as u16 } else { random.below(40) as u16 },
        flip: random.happens(0.03).then(|| random.below(60) as u8),
    }
}

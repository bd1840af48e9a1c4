//! A real trace of updates on one core, from bytes to best routes: framing, decoding, checks, a policy with
//! rules, interning, sixteen shards, decision. Sockets and export are left out.
//!
//!     cargo bench -p thalweg-bgp --bench trace --profile quick
//!
//! The trace (shared data, see `thalweg-testdata`) has 118,663 announced and withdrawn prefixes of 20 neighbors.
//! Each neighbor's messages come in pieces of 64 KiB, in turn, as from a socket. `first` fills an empty table;
//! `again` sends the same into the filled table.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{Millis, PeerId, PeerTable};
use thalweg_bgp::policy::{
    Action, Amount, AsPathPattern, Between, CommunityPattern, CommunitySet, Condition, NumberSet, Policy,
    PrefixSet, Rule, RuleLibrary, RuleSet, Verdict,
};
use thalweg_bgp::rib::{RibShard, ShardConfig};
use thalweg_bgp::route::{Changes, RouteBatchBuilder, SHARDS};
use thalweg_bgp::session::{Connection, Importer, NeighborConfig, Session};
use thalweg_wire::bgp::{Capabilities, Family, Open, write_keepalive};
use thalweg_wire::mrt::Records;

const TRACE: &str = "mrt/updates.routeviews.20260222.1530.bz2";
const PIECE: usize = 64 << 10;
const NOW: Millis = Millis(1000);

fn main() {
    divan::main();
}

/// Five rules on prefixes, AS numbers, lengths, communities and paths, and a default that changes the route.
fn policy() -> Policy {
    let bogons = [
        "0.0.0.0/8 le 32",
        "10.0.0.0/8 le 32",
        "127.0.0.0/8 le 32",
        "192.168.0.0/16 le 32",
        "fc00::/7 le 128",
    ];
    let bogons = PrefixSet::new(bogons.iter().map(|text| text.parse().expect("an entry")));
    let blackhole = "blackhole".parse::<CommunityPattern>().expect("a name");
    let conditions = [
        Condition::Prefix(Arc::new(bogons)),
        Condition::AnyAs(Arc::new(NumberSet::new([0..=0, 23_456..=23_456, 4_200_000_000..=u32::MAX]))),
        Condition::PathLength(Between { first: 65, last: 65_535 }),
        Condition::CommunityAny(Arc::new(CommunitySet::new([blackhole]))),
        Condition::AsPath([AsPathPattern::new("^64500(_64500)*$").expect("a pattern")].into()),
    ];
    let reject =
        |condition| Rule { conditions: vec![condition], verdict: Some(Verdict::Reject), ..Rule::default() };
    let mut rules: Vec<Rule> = conditions.into_iter().map(reject).collect();
    let actions = vec![Action::LocalPref(Amount::Set(200))];
    rules.push(Rule { actions, verdict: Some(Verdict::Accept), ..Rule::default() });
    let library = RuleLibrary { sets: [("in".into(), RuleSet { rules, default: None })].into() };
    Policy::compile(&library, &["in".into()]).expect("a policy")
}

/// UPDATEs by neighbor.
fn streams() -> Option<BTreeMap<(IpAddr, u32), Vec<u8>>> {
    let path = thalweg_testdata::shared(TRACE)?;
    let mut bytes = Vec::new();
    bzip2::read::MultiBzDecoder::new(std::fs::File::open(path).ok()?).read_to_end(&mut bytes).ok()?;
    let mut streams: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for record in Records::new(&bytes) {
        if let Ok(Some(message)) = record.message()
            && message.message_type == 2
        {
            message.write(streams.entry((message.peer.address, message.peer.asn)).or_default());
        }
    }
    Some(streams)
}

struct Neighbor {
    session: Session,
    import: Importer,
    bytes: Vec<u8>,
    done: usize,
}

struct Daemon {
    neighbors: Vec<Neighbor>,
    peers: PeerTable,
    shards: Vec<RibShard>,
    out: RouteBatchBuilder,
}

fn daemon(streams: &BTreeMap<(IpAddr, u32), Vec<u8>>) -> Daemon {
    let interner = Arc::new(Interner::new(1));
    let policy = Arc::new(policy());
    let mut peers = PeerTable::default();
    let neighbors = streams.iter().enumerate().map(|(index, ((address, asn), bytes))| {
        let mut config = NeighborConfig::new(*address, *asn, 64_600, Ipv4Addr::new(198, 18, 0, 1));
        config.capabilities.families = [true; 2];
        config.import.first_as_check = false;
        config.import.reject_as_set = false;
        let config = Arc::new(config);
        let mut session = Session::new(config.clone(), PeerId(index as u16), 1);
        let mut import = Importer::new(interner.clone());
        let mut open = Vec::new();
        let families = Family::ALL.map(Into::into).to_vec();
        let capabilities = Capabilities { families, four_octet_as: Some(*asn), ..Capabilities::default() };
        Open::new(*asn, 0, Ipv4Addr::new(10, 0, 0, index as u8 + 1), capabilities).write(&mut open);
        write_keepalive(&mut open);
        session.handle_start(NOW);
        session.handle_connected(Connection::Incoming, IpAddr::from([198, 18, 0, 1]), *address, NOW);
        let mut none = RouteBatchBuilder::default();
        let mut rest = &open[..];
        while !rest.is_empty() {
            let used = session.handle_bytes(Connection::Incoming, rest, NOW, &mut import, &mut none);
            rest = &rest[used..];
            while session.poll_action().is_some() {}
        }
        import.set_policy(Some(policy.clone()));
        let info = session.negotiated().expect("the session is up").peer_info(PeerId(index as u16), &config);
        peers.insert(Arc::new(info));
        Neighbor { session, import, bytes: bytes.clone(), done: 0 }
    });
    let neighbors = neighbors.collect();
    let shard = |shard| ShardConfig { shard, seed: 1, ..ShardConfig::default() };
    let shards = (0..SHARDS).map(|index| RibShard::new(shard(index))).collect();
    Daemon { neighbors, peers, shards, out: RouteBatchBuilder::default() }
}

impl Daemon {
    /// Processes the whole trace; returns the number of routes.
    fn run(&mut self) -> usize {
        let mut routes = 0;
        self.neighbors.iter_mut().for_each(|each| each.done = 0);
        loop {
            let mut any = false;
            for (index, each) in self.neighbors.iter_mut().enumerate() {
                let end = (each.done + PIECE).min(each.bytes.len());
                while each.done < end {
                    let piece = &each.bytes[each.done..end];
                    let used = each.session.handle_bytes(
                        Connection::Incoming,
                        piece,
                        NOW,
                        &mut each.import,
                        &mut self.out,
                    );
                    while each.session.poll_action().is_some() {}
                    if used == 0 {
                        break;
                    }
                    each.done += used;
                    any = true;
                }
                let batch = self.out.finish(PeerId(index as u16), 1);
                routes += batch.len();
                for (index, shard) in self.shards.iter_mut().enumerate() {
                    if batch.touches(index) {
                        let mut changes = Changes { shard: index, ..Changes::default() };
                        shard.apply(&batch, &self.peers, &mut changes);
                    }
                }
            }
            if !any {
                return routes;
            }
        }
    }
}

fn bench(bencher: Bencher<'_, '_>, filled: bool) {
    let Some(streams) = streams() else {
        thalweg_testdata::skipped(TRACE);
        return;
    };
    let routes = daemon(&streams).run();
    bencher
        .counter(ItemsCount::new(routes))
        .with_inputs(|| {
            let mut daemon = daemon(&streams);
            if filled {
                daemon.run();
            }
            daemon
        })
        .bench_local_refs(Daemon::run);
}

#[divan::bench]
fn first(bencher: Bencher<'_, '_>) {
    bench(bencher, false);
}

#[divan::bench]
fn again(bencher: Bencher<'_, '_>) {
    bench(bencher, true);
}

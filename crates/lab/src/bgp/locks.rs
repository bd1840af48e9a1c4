//! Ablations of a table that one thread per neighbor updates: compares where its locks are.
//!
//! | table | locks |
//! |---|---|
//! | `trie, one lock` | one for all |
//! | `trie, a lock per shard` | sixteen, by the prefix's hash, as in the RIB |
//! | `trie, locks per node` | two for each node, as in the thesis: one to pass it, one to change what it holds |
//! | `the RIB` | that of the router, a lock for each of its sixteen shards |
//!
//! The trie is the same in all three: a node for each bit of a prefix, paths at its end, and the best of them
//! chosen again after each change. So only the locks differ. Nothing is read, decoded or announced. Every run must
//! end with the best paths that a plain map has.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use thalweg_base::{IpPrefix, Prefix, mix64};
use thalweg_bgp::attrs::{AttrsBuilder, Interner, NextHop, SegmentKind};
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use thalweg_bgp::rib::{RibShard, ShardConfig};
use thalweg_bgp::route::{Changes, RouteBatch, RouteBatchBuilder, SHARDS, WITHDRAWN, shard_of};

use super::bench::Run;
use super::in_memory::InMemoryError;
use super::message::{HEADER_LEN, MESSAGE_MAX, Malformed, Said, Stream, frame, read_update};
use super::scenario::Scenario;
use crate::cores::Cores;
use crate::cpu_time::process_cpu_s;

thalweg_base::words! {
    /// A table, and where its locks are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Locked {
        OneLock => "trie, one lock",
        Shards => "trie, a lock per shard",
        Nodes => "trie, locks per node",
        Rib => "the RIB",
    }
}

/// A neighbor's route; no hops if it is withdrawn.
#[derive(Clone, Copy, Debug)]
struct Route {
    prefix: Prefix<u32>,
    hops: u32,
}

/// A neighbor's messages, UPDATE by UPDATE.
type Said4 = Vec<Vec<Route>>;

/// The neighbor whose path is the best, by prefix.
type Best = BTreeMap<Prefix<u32>, usize>;

/// A neighbor's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Path {
    hops: u32,
    neighbor: usize,
}

/// All paths of a prefix.
#[derive(Debug, Default)]
struct Entry {
    paths: Vec<Path>,
    best: Option<Path>,
}

impl Entry {
    fn put(&mut self, path: Path) {
        self.paths.retain(|known| known.neighbor != path.neighbor);
        if path.hops > 0 {
            self.paths.push(path);
        }
        self.best = self.paths.iter().min().copied();
    }
}

#[derive(Debug, Default)]
struct Node {
    passing: RwLock<()>,
    children: [OnceLock<Box<Node>>; 2],
    entry: Mutex<Entry>,
}

impl Node {
    fn put(&self, prefix: Prefix<u32>, path: Path, locks_nodes: bool) {
        self.at(prefix, locks_nodes).entry.lock().put(path);
    }

    fn at(&self, prefix: Prefix<u32>, locks_nodes: bool) -> &Node {
        let mut node = self;
        for bit in (0..u32::BITS).rev().take(prefix.length().into()) {
            let child = &node.children[usize::from(prefix.address() >> bit & 1 == 1)];
            let passing = locks_nodes.then(|| node.passing.read());
            let found = child.get();
            drop(passing);
            node = match found {
                Some(found) => found,
                None => {
                    let _changing = locks_nodes.then(|| node.passing.write());
                    child.get_or_init(Box::default)
                }
            };
        }
        node
    }

    fn collect(&self, prefix: Prefix<u32>, best: &mut Best) {
        if let Some(path) = self.entry.lock().best {
            best.insert(prefix, path.neighbor);
        }
        for (bit, child) in (0..).zip(&self.children) {
            let length = prefix.length() + 1;
            let Some(child) = child.get() else { continue };
            let address = prefix.address() | bit << (u32::BITS - u32::from(length));
            Prefix::new(address, length).into_iter().for_each(|prefix| child.collect(prefix, best));
        }
    }
}

/// A table under test.
trait Table: Sync {
    fn apply(&self, neighbor: usize, said: &[Vec<Route>]);
    fn best(&self) -> Best;
}

/// The trie under each kind of lock, with one root per lock around it.
struct Tries {
    roots: Vec<Mutex<Node>>,
    /// The root that no lock is around.
    open: Node,
    locks_nodes: bool,
}

impl Tries {
    fn new(locked: Locked) -> Self {
        let roots = match locked {
            Locked::OneLock => 1,
            Locked::Shards | Locked::Rib => SHARDS,
            Locked::Nodes => 0,
        };
        Self {
            roots: (0..roots).map(|_| Mutex::default()).collect(),
            open: Node::default(),
            locks_nodes: locked == Locked::Nodes,
        }
    }

    fn put(&self, neighbor: usize, route: Route) {
        let path = Path { hops: route.hops, neighbor };
        match self.roots.as_slice() {
            [] => self.open.put(route.prefix, path, self.locks_nodes),
            roots => roots[shard_of(route.prefix) % roots.len()].lock().put(route.prefix, path, false),
        }
    }
}

impl Table for Tries {
    fn apply(&self, neighbor: usize, said: &[Vec<Route>]) {
        said.iter().flatten().for_each(|route| self.put(neighbor, *route));
    }

    fn best(&self) -> Best {
        let mut best = Best::new();
        let Ok(all) = Prefix::new(0, 0) else { return best };
        self.open.collect(all, &mut best);
        self.roots.iter().for_each(|root| root.lock().collect(all, &mut best));
        best
    }
}

/// The router's own table.
struct Rib {
    shards: Vec<Mutex<RibShard>>,
    peers: PeerTable,
    batches: Vec<Vec<RouteBatch>>,
    prefixes: Vec<Prefix<u32>>,
}

impl Rib {
    fn new(said: &[Said4]) -> Self {
        let shard =
            |shard| Mutex::new(RibShard::new(ShardConfig { shard, seed: 9, ..ShardConfig::default() }));
        let interner = Interner::new(1);
        let batches = said
            .iter()
            .enumerate()
            .map(|(neighbor, said)| said.iter().map(|routes| batch(&interner, neighbor, routes)).collect());
        let mut prefixes: Vec<Prefix<u32>> =
            said.iter().flatten().flatten().map(|route| route.prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            peers: peers(said.len()),
            batches: batches.collect(),
            prefixes,
        }
    }
}

impl Table for Rib {
    fn apply(&self, neighbor: usize, _: &[Vec<Route>]) {
        for batch in &self.batches[neighbor] {
            for (nth, shard) in self.shards.iter().enumerate().filter(|(nth, _)| batch.touches(*nth)) {
                let mut changes = Changes { shard: nth, ..Changes::default() };
                shard.lock().apply(batch, &self.peers, &mut changes);
            }
        }
    }

    fn best(&self) -> Best {
        let best = |prefix: &Prefix<u32>| {
            let shard = self.shards[shard_of(*prefix)].lock();
            let peer = shard.lookup(*prefix)?.best()?.peer;
            Some((*prefix, peer.index()))
        };
        self.prefixes.iter().filter_map(best).collect()
    }
}

fn address_of(neighbor: usize) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0001 + u32::try_from(neighbor).unwrap_or(u32::MAX >> 8))
}

fn peer_of(neighbor: usize) -> PeerId {
    PeerId(u16::try_from(neighbor).unwrap_or(u16::MAX - 1))
}

fn peers(count: usize) -> PeerTable {
    let mut table = PeerTable::default();
    for neighbor in 0..count {
        table.insert(Arc::new(PeerInfo {
            id: peer_of(neighbor),
            name: format!("neighbor {neighbor}").into(),
            address: IpAddr::V4(address_of(neighbor)),
            local_address: IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
            remote_as: 64_600 + u32::from(peer_of(neighbor).0),
            local_as: 65_000,
            kind: PeerKind::External,
            // The lowest router ID wins among equal paths, as in the trie.
            router_id: address_of(neighbor),
            role: None,
            route_server_client: false,
        }));
    }
    table
}

fn batch(interner: &Interner, neighbor: usize, routes: &[Route]) -> RouteBatch {
    let mut builder = RouteBatchBuilder::default();
    for route in routes {
        let mut attrs = WITHDRAWN;
        if route.hops > 0 {
            let mut set = AttrsBuilder::default();
            set.next_hop = NextHop::V4(address_of(neighbor));
            let own = 64_600 + u32::from(peer_of(neighbor).0);
            // A longer path is cut to the room there is; a difference would show in the comparison.
            for _ in 0..route.hops {
                if set.prepend(own, 1, SegmentKind::Sequence).is_err() {
                    break;
                }
            }
            attrs = builder.push_attrs(interner.intern(&mut set));
        }
        builder.push_v4(route.prefix, 0, attrs);
    }
    builder.finish(peer_of(neighbor), 1)
}

fn routes_of(stream: &Stream) -> Result<Said4, Malformed> {
    let mut said = Vec::with_capacity(stream.messages());
    let mut rest = stream.bytes.as_slice();
    while let Some((_, body, length)) = frame(rest, MESSAGE_MAX)? {
        debug_assert!(length >= HEADER_LEN);
        let mut routes = Vec::new();
        let mut add = |prefix: IpPrefix, hops| {
            if let IpPrefix::V4(prefix) = prefix {
                routes.push(Route { prefix, hops });
            }
        };
        read_update(body, |item| match item {
            Said::Withdrawn(prefix) => add(prefix, 0),
            Said::Announced(prefix, path) => {
                add(prefix, u32::try_from(path.numbers().count()).unwrap_or(u32::MAX).max(1));
            }
        })?;
        said.push(routes);
        rest = &rest[length..];
    }
    Ok(said)
}

/// The best paths by a plain map.
fn expected(said: &[Said4]) -> Best {
    let mut entries: HashMap<Prefix<u32>, Entry> = HashMap::new();
    for (neighbor, said) in said.iter().enumerate() {
        for route in said.iter().flatten() {
            entries.entry(route.prefix).or_default().put(Path { hops: route.hops, neighbor });
        }
    }
    entries.into_iter().filter_map(|(prefix, entry)| Some((prefix, entry.best?.neighbor))).collect()
}

/// Applies the messages of a scenario's last phase, with one thread per neighbor.
pub(crate) fn measure(locked: Locked, scenario: &Scenario, cores: &Cores) -> Result<Run, InMemoryError> {
    let phase = scenario.phases.last().ok_or(InMemoryError::NoPhase)?;
    let said = phase.streams.iter().map(routes_of).collect::<Result<Vec<_>, _>>()?;
    let table: Box<dyn Table> = match locked {
        Locked::Rib => Box::new(Rib::new(&said)),
        _ => Box::new(Tries::new(locked)),
    };
    let (elapsed_s, cpu_s) = cores.run(|| applied(&*table, &said)).map_err(InMemoryError::system("cores"))?;
    let best = table.best();
    let expected = expected(&said);
    if best != expected {
        let right = expected.iter().filter(|(prefix, path)| best.get(prefix) == Some(path)).count();
        let (expected, there) = (expected.len(), best.len());
        return Err(InMemoryError::WrongPaths { table: locked.name(), expected, right, there });
    }
    let digest = best.iter().fold(0, |sum, (prefix, neighbor)| {
        mix64(sum ^ u64::from(prefix.address()) << 8 ^ u64::from(prefix.length()) ^ (*neighbor as u64) << 40)
    });
    Ok(Run {
        updates: said.iter().map(|said| said.len() as u64).sum(),
        prefixes: said.iter().flatten().map(|routes| routes.len() as u64).sum(),
        elapsed_s,
        cpu_s,
        threads: said.len(),
        preloaded_share: 1.0,
        digest,
        ..Run::default()
    })
}

/// Elapsed time and processor time in seconds, from when all threads are ready until the last is done.
fn applied(table: &dyn Table, said: &[Said4]) -> (f64, f64) {
    let ready = Barrier::new(said.len() + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = said
            .iter()
            .enumerate()
            .map(|(neighbor, said)| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    table.apply(neighbor, said);
                    Instant::now()
                })
            })
            .collect();
        let cpu = process_cpu_s();
        let begun = Instant::now();
        ready.wait();
        let ends = threads.into_iter().filter_map(|thread| thread.join().ok());
        let elapsed = ends.max().map_or(0.0, |end| end.saturating_duration_since(begun).as_secs_f64());
        (elapsed, process_cpu_s() - cpu)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::table::{Neighbors, Packing};

    const NEIGHBORS: Neighbors =
        Neighbors { count: 5, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };

    #[test]
    fn every_table_comes_to_the_same_best_paths() {
        let cores = Cores::here().unwrap();
        let mut digests = Vec::new();
        for locked in Locked::ALL {
            let scenario = Scenario::overlap(900, Packing::Real, NEIGHBORS, 3);
            let run = measure(locked, &scenario, &cores).unwrap();
            assert_eq!((run.prefixes, run.threads), (4500, 5), "{locked}");
            digests.push(run.digest);
            // After all routes are withdrawn, nothing is left.
            let gone = measure(locked, &Scenario::wu(3, 200, NEIGHBORS, 3), &cores).unwrap();
            assert_eq!((gone.prefixes, gone.digest), (200, 0), "{locked}");
        }
        digests.dedup();
        assert_eq!(digests.len(), 1);
    }

    /// Checks what the locks are: while one prefix is being changed, another can be changed under every lock
    /// except a single one for all; in the same shard only with locks per node.
    #[test]
    fn locks_are_where_the_names_say() {
        let prefix = |n: u32| Prefix::new(0x0100_0000 + (n << 8), 24).unwrap();
        let held = prefix(0);
        let other =
            |same: bool| (1..).map(prefix).find(|p| (shard_of(*p) == shard_of(held)) == same).unwrap();
        for (locked, in_same, in_another) in
            [(Locked::OneLock, false, false), (Locked::Shards, false, true), (Locked::Nodes, true, true)]
        {
            let tries = Tries::new(locked);
            tries.put(0, Route { prefix: held, hops: 3 });
            let root = tries.roots.get(shard_of(held) % tries.roots.len().max(1)).map(Mutex::lock);
            let node = root.is_none().then(|| tries.open.at(held, true).entry.lock());
            let is_free = |prefix| {
                let shard = tries.roots.get(shard_of(prefix) % tries.roots.len().max(1));
                shard.map_or_else(
                    || tries.open.at(prefix, true).entry.try_lock().is_some(),
                    |s| s.try_lock().is_some(),
                )
            };
            assert_eq!((is_free(other(true)), is_free(other(false))), (in_same, in_another), "{locked}");
            assert!(!is_free(held), "{locked}");
            drop((root, node));
        }
    }
}

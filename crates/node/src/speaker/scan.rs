//! The RIB for others than neighbors: looking at all of it, routes that no session brought, and the way to next hops.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use thalweg_bgp::rib::{NextHopView, RibAddress, ScanCursor, ScannedRoute};
use thalweg_bgp::route::RouteBatch;

use super::places::PEERS_MAX;
use super::shards::{ShardOp, Work};
use super::{Speaker, lock};

/// Prefixes looked at under one hold of a shard's lock: well below a millisecond.
const SLICE_PREFIXES: usize = 1024;

/// Sets of changes that may wait before an export queue while routes are put in from a file. A session is held back by its
/// reading being a turn of the same threads; a file has no such brake.
const WAITING_MAX: usize = 512;

/// How long to wait until export queues have caught up.
const PAUSE: Duration = Duration::from_millis(1);

/// Where routes come from that are simply there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSource {
    /// What tables call it.
    pub name: Arc<str>,
    pub address: IpAddr,
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
}

impl Speaker {
    /// A slice of one family's routes of one shard; whether that was the last. `visit` runs under the shard's lock
    /// and only copies.
    pub fn scan_shard<A: RibAddress>(
        &self,
        shard: usize,
        cursor: &mut ScanCursor,
        visit: &mut dyn FnMut(ScannedRoute<'_, A>),
    ) -> bool {
        let Some(slot) = self.shards.get(shard) else { return true };
        slot.rib().scan::<A>(cursor, SLICE_PREFIXES, visit)
    }

    /// All neighbors with a session or with routes left, and static sources.
    pub fn peer_table(&self) -> Arc<PeerTable> {
        self.peers()
    }

    /// One copy of each attribute set.
    pub fn interner(&self) -> &Arc<Interner> {
        &self.interner
    }

    /// Seconds since the scheduling began.
    pub fn uptime_s(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed) / 1000
    }

    /// Gives sources that have no session places among the neighbors; they keep them. Sources for which there is
    /// no place get none.
    pub fn add_static_sources(&self, sources: &[StaticSource]) -> Vec<Option<PeerId>> {
        let local_as = self.config().local_as;
        let mut places = Vec::with_capacity(sources.len());
        self.change_peers(|peers| {
            let mut index = peers.iter().map(|peer| peer.id.index() + 1).max().unwrap_or(0).max(PEERS_MAX);
            for source in sources {
                // The last number means this router itself.
                let id = u16::try_from(index).ok().map(PeerId).filter(|id| *id != PeerId::LOCAL);
                places.push(id);
                let Some(id) = id else { continue };
                index += 1;
                peers.insert(Arc::new(PeerInfo {
                    id,
                    name: source.name.clone(),
                    address: source.address,
                    local_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                    remote_as: source.asn,
                    local_as,
                    kind: if source.asn == local_as { PeerKind::Internal } else { PeerKind::External },
                    router_id: source.router_id,
                    role: None,
                    route_server_client: false,
                }));
            }
        });
        places
    }

    /// Puts routes of a static source into the RIB. Waits until the scheduling runs, and while those who read
    /// changes are behind; not to be called by a thread of the scheduling.
    pub fn apply_static(&self, routes: RouteBatch) {
        let export_queues = self.export_queues.wait();
        while export_queues.iter().any(|queue| queue.waiting() > WAITING_MAX) {
            self.wake();
            thread::sleep(PAUSE);
        }
        let work = Work::of_nobody(routes);
        self.apply_work(&work);
    }

    /// Says which next hops can be reached from now on, and at what cost; until the first time, all can, at none.
    /// Whether that is another answer than before: then every route is decided on anew, in slices between other work.
    pub fn set_next_hops(&self, view: NextHopView) -> bool {
        let mut current = lock(&self.next_hops);
        if **current == view {
            return false;
        }
        *current = Arc::new(view);
        // Posted under the lock: two callers' views come to all shards in one order.
        self.post_to_shards(&ShardOp::NextHops(current.clone()));
        true
    }

    /// Has changes carry the paths after the best up to this rank, for readers of changes.
    pub fn report_ranks(&self, ranks: usize) {
        if ranks > self.depth.fetch_max(ranks, Ordering::AcqRel) {
            self.post_to_shards(&ShardOp::Deepen(ranks));
        }
    }

    /// Applies work that no session brought.
    pub(super) fn apply_work(&self, work: &Work) {
        for (index, shard) in self.shards.iter().enumerate() {
            if work.routes.touches(index) {
                shard.apply(index, work, || self.peers(), |changes| self.deliver(changes));
            }
        }
        self.wake();
    }
}

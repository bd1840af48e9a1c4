//! Access to the RIB for other users than neighbors: scans, routes that no session brought, and next hops.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use thalweg_bgp::rib::{NextHopView, RibAddress, ScanCursor, ScannedRoute};
use thalweg_bgp::route::RouteBatch;

use super::Speaker;
use super::places::PEERS_MAX;
use super::shards::{ShardOp, Work};

/// Prefixes scanned while holding a shard's lock once: well below a millisecond.
const SLICE_PREFIXES: usize = 1024;

/// Sets of changes that may wait in an export queue while routes come from a file. Sessions are read in turns by
/// the same threads, which holds them back; nothing else holds back a file.
const WAITING_MAX: usize = 512;

/// Pause between two checks whether export queues have caught up.
const PAUSE: Duration = Duration::from_millis(1);

/// A source of routes that has no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSource {
    /// The name that tables show.
    pub name: Arc<str>,
    pub address: IpAddr,
    pub asn: u32,
    pub router_id: Ipv4Addr,
}

impl Speaker {
    /// Visits a slice of one family's routes in one shard; returns whether it was the last. `visit` runs under the
    /// shard's lock and should only copy.
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

    /// The table of attribute sets.
    pub fn interner(&self) -> &Arc<Interner> {
        &self.interner
    }

    /// Seconds since the scheduling began.
    pub fn uptime_s(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed) / 1000
    }

    /// Adds sources without a session to the table of neighbors, for good. The result has `None` for each source
    /// beyond the last free number.
    pub fn add_static_sources(&self, sources: &[StaticSource]) -> Vec<Option<PeerId>> {
        let local_as = self.config().local_as;
        let mut places = Vec::with_capacity(sources.len());
        self.change_peers(|peers| {
            let mut index = peers.iter().map(|peer| peer.id.index() + 1).max().unwrap_or(0).max(PEERS_MAX);
            for source in sources {
                // The last number stands for this router itself.
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

    /// Applies routes of a static source. Blocks until the scheduling runs, and while export queues are behind; a
    /// thread of the scheduling must not call it.
    pub fn apply_static(&self, routes: RouteBatch) {
        let export_queues = self.export_queues.wait();
        while export_queues.iter().any(|queue| queue.waiting() > WAITING_MAX) {
            self.wake();
            thread::sleep(PAUSE);
        }
        let work = Work::of_nobody(routes);
        self.apply_work(&work);
    }

    /// Sets which next hops can be reached, and at what cost; before the first call, all can, at no cost. Returns
    /// whether the view changed: then every route is decided again, in slices between other work.
    pub fn set_next_hops(&self, view: NextHopView) -> bool {
        let mut current = self.next_hops.lock();
        if **current == view {
            return false;
        }
        *current = Arc::new(view);
        // Posted under the lock, so that the views of two callers reach all shards in one order.
        self.post_to_shards(&ShardOp::NextHops(current.clone()));
        true
    }

    /// Has changes carry the paths after the best, down to this rank.
    pub fn report_ranks(&self, ranks: usize) {
        if ranks > self.depth.fetch_max(ranks, Ordering::AcqRel) {
            self.post_to_shards(&ShardOp::Deepen(ranks));
        }
    }

    /// Applies work that no session brought.
    pub(super) fn apply_work(&self, work: &Work) {
        for (index, shard) in self.shards.iter().enumerate() {
            if work.touches(self.parts(index)) {
                shard.apply(index, work, || self.peers(), |changes| self.deliver(changes));
            }
        }
        self.wake();
    }
}

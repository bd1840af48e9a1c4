//! Judges the kept routes of a neighbor again, after its import policy has changed: the neighbor is not asked to
//! repeat what the router already has. The result is that of a route refresh under the new policy.

use thalweg_bgp::attrs::AttrsBuilder;
use thalweg_bgp::peer::{PeerId, PeerTable};
use thalweg_bgp::rib::{RibAddress, RibShard, ScanCursor};
use thalweg_bgp::route::{Changes, RouteBatchBuilder, WITHDRAWN};

use super::slot::NewImport;

/// Judges the neighbor's routes of the next `budget` prefixes of a shard; returns whether they were the last.
pub(super) fn reimport<A: RibAddress>(
    import: &NewImport,
    peer: PeerId,
    rib: &mut RibShard,
    cursor: &mut ScanCursor,
    budget: usize,
    peers: &PeerTable,
    changes: &mut Changes,
) -> bool {
    let (mut routes, mut edit) = (RouteBatchBuilder::default(), AttrsBuilder::default());
    let done = rib.scan_received::<A>(cursor, budget, &mut |route| {
        // A stale route is about to be repeated or removed; until then it stays as it was.
        for path in route.paths().filter(|path| path.peer == peer && !path.stale) {
            let judged = import.judge.again(path.attrs, A::to_ip_prefix(route.prefix), &mut edit);
            let index = judged.map_or(WITHDRAWN, |attrs| routes.push_attrs(attrs));
            routes.push(route.prefix, path.path_id, index);
        }
    });
    rib.apply(&routes.finish(peer, import.received_s), peers, changes);
    done
}

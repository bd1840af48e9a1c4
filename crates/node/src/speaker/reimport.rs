//! Judges routes again that the router already has, so that no neighbor has to repeat them: the kept routes of a neighbor
//! whose import has changed, and those of all neighbors whose validity has changed with the VRPs (RFC 9324). The result is
//! that of a route refresh.
//!
//! New VRPs concern the prefixes that the changed ones cover. The RIB has no order of prefixes, so its slices visit all of
//! them; a look-up among the changed VRPs, which are few, passes over the others. Of routes that are not kept the
//! validity is compared, and if that may lead to another result, the neighbor is asked for its routes. Until it answers,
//! those are withdrawn that `rpki = "reject-invalid"` rejects.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_base::Prefix;
use thalweg_bgp::attrs::AttrsBuilder;
use thalweg_bgp::peer::{PeerId, PeerTable};
use thalweg_bgp::rib::{PathView, RibAddress, RibShard, ScanCursor};
use thalweg_bgp::route::{Changes, RouteBatchBuilder, WITHDRAWN};
use thalweg_bgp::rpki::{Validity, VrpTable};
use thalweg_bgp::session::config::KeepRejected;

use super::peer_counts::Counted;
use super::slot::{NewImport, PeerSlot};

/// New VRPs, and the neighbors whose import asks for validity.
pub(super) struct Revalidation {
    pub(super) old: Arc<VrpTable>,
    pub(super) new: Arc<VrpTable>,
    /// The VRPs that only one of them has.
    pub(super) changed: VrpTable,
    pub(super) neighbors: HashMap<PeerId, Revalidated>,
}

/// A neighbor whose routes may have another validity.
pub(super) struct Revalidated {
    pub(super) slot: Arc<PeerSlot>,
    /// The session's number.
    pub(super) epoch: u32,
    pub(super) import: Arc<NewImport>,
}

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
            judge_again(import, route.prefix, &path, &mut edit, &mut routes);
        }
    });
    rib.apply(&routes.finish(peer, import.received_s), peers, changes);
    done
}

/// Judges a kept route again.
fn judge_again<A: RibAddress>(
    import: &NewImport,
    prefix: Prefix<A>,
    path: &PathView<'_>,
    edit: &mut AttrsBuilder,
    routes: &mut RouteBatchBuilder,
) {
    let judged = import.judge.again(path.attrs, A::to_ip_prefix(prefix), edit);
    if !import.judge.stays_kept(judged.as_ref().err()) {
        routes.push_received(prefix, path.path_id, WITHDRAWN);
    }
    let index = judged.map_or(WITHDRAWN, |attrs| routes.push_attrs(attrs));
    routes.push(prefix, path.path_id, index);
}

impl Revalidation {
    /// Judges kept routes of the next `budget` prefixes again; returns whether they were the last.
    pub(super) fn kept<A: RibAddress>(
        &self,
        rib: &mut RibShard,
        cursor: &mut ScanCursor,
        budget: usize,
        peers: &PeerTable,
        changes: &mut Changes,
    ) -> bool {
        let (mut again, mut edit) = (HashMap::new(), AttrsBuilder::default());
        let done = rib.scan_received::<A>(cursor, budget, &mut |route| {
            self.each_changed(&route, |neighbor, path, _| {
                let routes: &mut RouteBatchBuilder = again.entry(path.peer).or_default();
                judge_again(&neighbor.import, route.prefix, path, &mut edit, routes);
            });
        });
        self.apply(again, rib, peers, changes);
        done
    }

    /// The same for routes that are not kept.
    pub(super) fn not_kept<A: RibAddress>(
        &self,
        rib: &mut RibShard,
        cursor: &mut ScanCursor,
        budget: usize,
        peers: &PeerTable,
        changes: &mut Changes,
    ) -> bool {
        let mut again: HashMap<PeerId, RouteBatchBuilder> = HashMap::new();
        let done = rib.scan::<A>(cursor, budget, &mut |route| {
            self.each_changed(&route, |neighbor, path, validity| {
                let judge = &neighbor.import.judge;
                if judge.keeps() == KeepRejected::All {
                    return;
                }
                let rejects = judge.rejects_invalid() && validity == Validity::Invalid;
                if rejects {
                    let routes = again.entry(path.peer).or_default();
                    routes.push(route.prefix, path.path_id, WITHDRAWN);
                }
                if rejects || judge.policy_depends_on_validity() {
                    neighbor.slot.ask_again.store(true, Ordering::Release);
                }
            });
        });
        self.apply(again, rib, peers, changes);
        done
    }

    /// The paths of a prefix whose validity is another than before, with that validity.
    fn each_changed<A: RibAddress>(
        &self,
        route: &thalweg_bgp::rib::ScannedRoute<'_, A>,
        mut see: impl FnMut(&Revalidated, &PathView<'_>, Validity),
    ) {
        let prefix = A::to_ip_prefix(route.prefix);
        if !self.changed.covers(prefix) {
            return;
        }
        for path in route.paths().filter(|path| !path.stale) {
            let Some(neighbor) = self.neighbors.get(&path.peer) else { continue };
            // A later session has judged its routes by these VRPs, or later ones.
            if neighbor.epoch != neighbor.slot.epoch.load(Ordering::Acquire) {
                continue;
            }
            let judge = &neighbor.import.judge;
            let by = |vrps| judge.validator_by(vrps).validity_of(prefix, path.attrs);
            let (old, new) = (by(&*self.old), by(&*self.new));
            if old != new {
                see(neighbor, &path, new);
            }
        }
    }

    fn apply(
        &self,
        again: HashMap<PeerId, RouteBatchBuilder>,
        rib: &mut RibShard,
        peers: &PeerTable,
        changes: &mut Changes,
    ) {
        for (peer, mut routes) in again {
            let Some(neighbor) = self.neighbors.get(&peer) else { continue };
            let before = Counted::of(rib, peer);
            neighbor.slot.revalidated.fetch_add(routes.len() as u64, Ordering::Relaxed);
            rib.apply(&routes.finish(peer, neighbor.import.received_s), peers, changes);
            before.note(rib, &neighbor.slot);
        }
    }
}

//! What neighbors sent, before import policy (Adj-RIB-In), of those whose routes are kept. Why import rejects a route
//! is not stored: the neighbor's judge, asked again, says the same as it did when the route arrived.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use thalweg_base::Prefix;
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::rib::{PathView, RibAddress, ScanCursor};
use thalweg_bgp::session::config::KeepRejected;
use thalweg_bgp::session::import::{Judge, Rejection};
use thalweg_wire::bgp::Family;

use super::Speaker;
use super::query::{SLICE_PREFIXES, Selection, communities_of};
use super::shards::ShardSlot;
use crate::control::{Answer, AnswerError, Emit, RouteView, to_json};

/// The state of one query.
struct ReceivedQuery<'s> {
    selection: &'s Selection,
    interner: &'s Interner,
    judges: HashMap<PeerId, Arc<Judge>>,
    edit: AttrsBuilder,
    left: usize,
}

/// A kept route, copied out of a shard.
struct Kept<A> {
    prefix: Prefix<A>,
    peer: PeerId,
    path_id: u32,
    received_s: u32,
    stale: bool,
    attrs: AttrRef,
}

impl Speaker {
    /// Emits the selected routes as neighbors sent them, or of those the rejected ones.
    pub(super) fn received(&self, selection: &Selection, emit: Emit<'_>) -> Answer {
        let mut judges = HashMap::new();
        for slot in self.slots_in_use() {
            let mut state = self.look(&slot);
            let keeps = state.config.import.keep_rejected;
            if keeps == KeepRejected::All || keeps == KeepRejected::Rpki && selection.filter.rejected {
                judges.insert(slot.id, state.receiving(&self.interner).1.judge().clone());
            }
        }
        if let Some(neighbor) = selection.neighbor
            && !judges.contains_key(&neighbor)
        {
            let name = selection.filter.neighbor.clone().unwrap_or_default();
            return Ok(Err(AnswerError::KeepsNothing(name)));
        }
        let left = selection.filter.limit.unwrap_or(usize::MAX);
        let mut query = ReceivedQuery {
            selection,
            interner: &self.interner,
            judges,
            edit: AttrsBuilder::default(),
            left,
        };
        for shard in &self.shards {
            if selection.has(Family::Ipv4) {
                query.emit_shard::<u32>(shard, emit)?;
            }
            if selection.has(Family::Ipv6) {
                query.emit_shard::<u128>(shard, emit)?;
            }
        }
        Ok(Ok(()))
    }
}

impl ReceivedQuery<'_> {
    fn emit_shard<A: RibAddress>(&mut self, shard: &ShardSlot, emit: Emit<'_>) -> io::Result<()> {
        let (mut cursor, mut done) = (ScanCursor::START, false);
        let mut found: Vec<Kept<A>> = Vec::new();
        while !done && self.left > 0 {
            let (selection, judges) = (self.selection, &self.judges);
            done = shard.rib().scan_received::<A>(&mut cursor, SLICE_PREFIXES, &mut |route| {
                if !selection.is_inside(A::to_ip_prefix(route.prefix)) {
                    return;
                }
                let wanted = |path: &PathView<'_>| {
                    selection.neighbor.is_none_or(|peer| path.peer == peer)
                        && judges.contains_key(&path.peer)
                        && selection.admits(path.attrs)
                };
                found.extend(route.paths().filter(wanted).map(|path| Kept {
                    prefix: route.prefix,
                    peer: path.peer,
                    path_id: path.path_id,
                    received_s: path.received_s,
                    stale: path.stale,
                    attrs: path.attrs.clone(),
                }));
            });
            for kept in found.drain(..) {
                if let Some(view) = self.view(&kept).filter(|_| self.left > 0) {
                    self.left -= 1;
                    emit(to_json(&view))?;
                }
            }
        }
        Ok(())
    }

    /// The view of a route, if it is wanted.
    fn view<A: RibAddress>(&mut self, kept: &Kept<A>) -> Option<RouteView> {
        let judge = self.judges.get(&kept.peer)?;
        let reason = judge.again(&kept.attrs, A::to_ip_prefix(kept.prefix), &mut self.edit).err();
        if self.selection.filter.rejected && reason.is_none() {
            return None;
        }
        let path = PathView {
            attrs: &kept.attrs,
            peer: kept.peer,
            path_id: kept.path_id,
            local_id: 0,
            received_s: kept.received_s,
            rank: None,
            stale: kept.stale,
            unreachable: false,
            damped: false,
        };
        let mut view = self.selection.route_view(kept.prefix, &path, false);
        if let Some(reason) = reason {
            view.why = Some(reason.rejection.to_string());
            view.rejected = Some(reason.rejection.name().to_owned());
            view.rule = judge.describe(reason);
            if reason.rejection == Rejection::Policy {
                // With those that rules added before they rejected it: this is how operators mark reasons.
                view.communities = communities_of(&self.interner.intern(&mut self.edit));
            }
        }
        Some(view)
    }
}

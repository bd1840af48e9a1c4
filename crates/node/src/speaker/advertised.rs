//! What a neighbor is sent (Adj-RIB-Out), and what export keeps from it. Neither is stored; each query computes it from
//! the RIB.

use std::io;
use std::sync::Arc;

use thalweg_base::Prefix;
use thalweg_bgp::export::{Outgoing, Preview};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::rib::{RibAddress, ScanCursor};
use thalweg_bgp::route::Chosen;
use thalweg_wire::bgp::Family;
use thalweg_wire::mrt::{AsSize, PathView};

use super::Speaker;
use super::query::{SLICE_PREFIXES, Selection, unknown};
use crate::control::{Answer, AnswerError, Emit, RouteView, SentRouteView, to_json};

/// The state of one query.
struct Advertised<'s> {
    speaker: &'s Speaker,
    selection: Selection,
    preview: Preview,
    member: PeerId,
    name: Arc<str>,
    as_size: AsSize,
    attributes: Vec<u8>,
    left: usize,
}

/// A prefix, copied out of a shard.
struct Found<A> {
    prefix: Prefix<A>,
    paths: Vec<Chosen>,
    /// The best path, if what is asked for are routes that are kept from the neighbor.
    best: Option<RouteView>,
}

impl Speaker {
    /// Emits what a neighbor is sent of the selected routes, or which of the best it is not sent, computed from the RIB
    /// and the export policy of now. A neighbor that reads slowly may not have received all of it yet.
    pub(super) fn advertised(&self, neighbor: &str, selection: Selection, emit: Emit<'_>) -> Answer {
        let Some(slot) = self.find(neighbor) else { return Ok(Err(unknown(neighbor))) };
        let (preview, as_size, name) = {
            let state = self.look(&slot);
            let Some(negotiated) = &state.negotiated else {
                return Ok(Err(AnswerError::SentNothing(neighbor.to_owned())));
            };
            let info = Arc::new(negotiated.peer_info(slot.id, &state.config));
            let view = self.export_view(&state.config, negotiated, &info);
            let as_size = if view.codec.four_octet_as { AsSize::Four } else { AsSize::Two };
            let mut preview = Preview::new(Arc::new(view), info.clone());
            preview.join(slot.id, info.remote_as);
            (preview, as_size, state.config.name.clone())
        };
        let left = selection.filter.limit.unwrap_or(usize::MAX);
        let (member, attributes) = (slot.id, Vec::new());
        let mut advertised =
            Advertised { speaker: self, selection, preview, member, name, as_size, attributes, left };
        let [ipv4, ipv6] = Family::ALL.map(|family| {
            advertised.selection.has(family) && advertised.preview.view().families[family.index()]
        });
        for shard in 0..self.shards.len() {
            if ipv4 {
                advertised.emit_shard::<u32>(shard, emit)?;
            }
            if ipv6 {
                advertised.emit_shard::<u128>(shard, emit)?;
            }
        }
        Ok(Ok(()))
    }
}

impl Advertised<'_> {
    fn emit_shard<A: RibAddress>(&mut self, shard: usize, emit: Emit<'_>) -> io::Result<()> {
        let (mut cursor, mut done) = (ScanCursor::START, false);
        let mut found = Vec::new();
        while !done && self.left > 0 {
            let (selection, member) = (&self.selection, self.member);
            let is_sent = selection.filter.advertised_to.is_some();
            done = self.speaker.shards[shard].rib().scan::<A>(&mut cursor, SLICE_PREFIXES, &mut |route| {
                let prefix = route.prefix;
                if !selection.is_inside(A::to_ip_prefix(prefix)) {
                    return;
                }
                let best = route.best().filter(|path| !is_sent && path.peer != member);
                let best = best.filter(|path| selection.wants(path, true));
                if is_sent || best.is_some() {
                    let best = best.map(|path| selection.route_view(prefix, &path, true));
                    found.push(Found {
                        prefix,
                        paths: route.ranked().map(|path| path.chosen()).collect(),
                        best,
                    });
                }
            });
            for Found { prefix, paths, best } in found.drain(..) {
                let outgoing = self.preview.outgoing(prefix, &paths, &self.selection.peers).to_vec();
                if let Some(best) = best {
                    if self.left > 0 && !outgoing.iter().any(|each| self.preview.goes_to(each, member)) {
                        self.left -= 1;
                        emit(to_json(&best))?;
                    }
                    continue;
                }
                for each in outgoing {
                    if self.left > 0 && self.is_wanted(&each) {
                        self.left -= 1;
                        self.preview.encode(A::FAMILY, &each, &mut self.attributes);
                        let path = PathView::new(&self.attributes, self.as_size);
                        let prefix = A::to_ip_prefix(prefix);
                        emit(to_json(&SentRouteView::new(prefix, each.path_id.into(), &path, &self.name)))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self, outgoing: &Outgoing) -> bool {
        self.preview.goes_to(outgoing, self.member)
            && self.selection.neighbor.is_none_or(|source| outgoing.source == source)
            && self.selection.admits(&outgoing.attrs)
    }
}

//! Counts that are not kept but taken, in rounds: how many routes each neighbor is sent, and how many paths have which
//! validity.
//!
//! Export remembers nothing, and validity is not stored, so a count is a walk over the table, in slices, without a lock
//! while it judges. Neighbors of an update group share one evaluation. The driver paces the rounds.

use std::collections::HashMap;
use std::sync::Arc;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::Attrs;
use thalweg_bgp::export::{Preview, Tally};
use thalweg_bgp::rib::{RibAddress, ScanCursor};
use thalweg_bgp::route::Chosen;
use thalweg_bgp::rpki::Validity;
use thalweg_wire::bgp::Family;

use super::Speaker;
use super::query::SLICE_PREFIXES;
use super::slot::PeerSlot;

/// The neighbors of an update group.
struct Counted {
    preview: Preview,
    members: Vec<Arc<PeerSlot>>,
    /// By family.
    tallies: [Tally; 2],
}

impl Speaker {
    /// Counts what neighbors are sent.
    pub fn count_sent(&self) {
        let mut groups: HashMap<usize, Counted> = HashMap::new();
        for slot in self.slots_in_use() {
            let state = self.look(&slot);
            let (Some(negotiated), Some(sending)) = (&state.negotiated, &state.sending) else {
                slot.paths.set_sent(None);
                continue;
            };
            let info = Arc::new(negotiated.peer_info(slot.id, &state.config));
            let group = groups.entry(Arc::as_ptr(&sending.group).addr()).or_insert_with(|| {
                let view = self.export_view(&state.config, negotiated, &info);
                let preview = Preview::new(Arc::new(view), info.clone());
                Counted { preview, members: Vec::new(), tallies: Default::default() }
            });
            group.preview.join(slot.id, info.remote_as);
            drop(state);
            group.members.push(slot);
        }
        for shard in 0..self.shards.len() {
            self.count_shard::<u32>(shard, &mut groups);
            self.count_shard::<u128>(shard, &mut groups);
        }
        for Counted { members, tallies, .. } in groups.into_values() {
            for slot in members {
                slot.paths.set_sent(Some(tallies.each_ref().map(|tally| tally.of(slot.id))));
            }
        }
    }

    fn count_shard<A: RibAddress>(&self, shard: usize, groups: &mut HashMap<usize, Counted>) {
        let (peers, mut cursor, mut done) = (self.peers(), ScanCursor::START, groups.is_empty());
        let mut found: Vec<(Prefix<A>, Vec<Chosen>)> = Vec::new();
        while !done {
            done = self.shards[shard].rib().scan::<A>(&mut cursor, SLICE_PREFIXES, &mut |route| {
                found.push((route.prefix, route.ranked().map(|path| path.chosen()).collect()));
            });
            for group in groups.values_mut() {
                let Counted { preview, tallies, .. } = group;
                let tally = &mut tallies[A::FAMILY.index()];
                found.iter().for_each(|(prefix, paths)| preview.count(*prefix, paths, &peers, tally));
            }
            found.clear();
        }
    }

    /// Counts the paths in the RIB by validity, if there is any RPKI.
    pub fn count_validity(&self) {
        let origins = self.view_origins();
        if self.origins.vrps().is_none() {
            return;
        }
        let (mut valid, mut not_found, mut invalid) = ([0; 2], [0; 2], [0; 2]);
        let mut count = |family: Family, prefix: IpPrefix, attrs: &Attrs| {
            let counts = match origins.validity(prefix, attrs) {
                None => return,
                Some(Validity::Valid) => &mut valid,
                Some(Validity::NotFound) => &mut not_found,
                Some(Validity::Invalid) => &mut invalid,
            };
            counts[family.index()] += 1;
        };
        for shard in 0..self.shards.len() {
            let mut cursor = ScanCursor::START;
            while !self.scan_shard::<u32>(shard, &mut cursor, &mut |route| {
                route.paths().for_each(|path| count(Family::Ipv4, route.prefix.into(), path.attrs));
            }) {}
            let mut cursor = ScanCursor::START;
            while !self.scan_shard::<u128>(shard, &mut cursor, &mut |route| {
                route.paths().for_each(|path| count(Family::Ipv6, route.prefix.into(), path.attrs));
            }) {}
        }
        self.origins.set_counts(valid.into(), not_found.into(), invalid.into());
    }
}

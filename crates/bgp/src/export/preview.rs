//! Computes what neighbors with one export view would be sent for a prefix, without messages, to evaluate a
//! configuration before it is in use. It evaluates the same function as [`super::UpdateGroup`].

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use thalweg_base::{IpPrefix, Prefix};
use thalweg_wire::bgp::{Family, attribute, write_attribute};

use super::attributes::{self, Block};
use super::audience::{AudienceCode, Tally};
use super::origins::Origins;
use super::queue::QueueAddress;
use super::rules::{Offer, Rules};
use super::view::ExportView;
use super::{Exported, exported};
use crate::attrs::AttrRef;
use crate::peer::{PeerId, PeerInfo, PeerTable};
use crate::route::{Chosen, RouteAddress};

/// The most fingerprints that are remembered.
const KNOWN_MAX: usize = 16_384;

/// After this many prefixes, sets of neighbors are dropped; a route server makes many.
const SETS_PREFIXES_MAX: u32 = 65_536;

/// A route that would be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub source: PeerId,
    /// After export policy, before the attributes that export itself adds or removes.
    pub attrs: AttrRef,
    /// A hash of all encoded attributes: equal for equal bytes.
    pub fingerprint: u64,
    /// The identifier it would be sent with; 0 without add-path.
    pub path_id: u16,
    origins: Origins,
    audience: AudienceCode,
}

/// Fingerprints by the address of the attributes after policy (which are kept with the value), origins, and family.
type Known = HashMap<(usize, Origins, Family), (AttrRef, u64), FixedState>;

/// The view of some neighbors, applied to prefixes one by one.
pub struct Preview {
    rules: Rules,
    out: Vec<Exported>,
    outgoing: Vec<Outgoing>,
    block: Block,
    known: Known,
    /// The number of prefixes since sets were dropped.
    prefixes: u32,
}

impl Preview {
    /// Creates a preview without members. `representative` stands for the members where the policy examines the
    /// neighbor.
    pub fn new(view: Arc<ExportView>, representative: Arc<PeerInfo>) -> Self {
        Self {
            rules: Rules::new(view, representative),
            out: Vec::new(),
            outgoing: Vec::new(),
            block: Block::default(),
            known: HashMap::with_hasher(FixedState::default()),
            prefixes: 0,
        }
    }

    /// What the members have in common.
    pub fn view(&self) -> &Arc<ExportView> {
        &self.rules.view
    }

    /// Adds a neighbor to the members.
    pub fn join(&mut self, peer: PeerId, remote_as: u32) {
        self.rules.join(peer, remote_as);
        self.rules.clear_sets();
    }

    /// Removes a neighbor from the members.
    pub fn leave(&mut self, peer: PeerId) {
        self.rules.leave(peer);
        self.rules.clear_sets();
    }

    /// The routes that would be sent for a prefix with these paths, in order of rank; [`Self::goes_to`] says to
    /// whom. `peers` must be the same table every time, unless [`Self::forget`] is called before another one.
    pub fn outgoing<A: RouteAddress>(
        &mut self,
        prefix: Prefix<A>,
        paths: &[Chosen],
        peers: &PeerTable,
    ) -> &[Outgoing] {
        self.outgoing.clear();
        self.prefixes += 1;
        if self.prefixes == SETS_PREFIXES_MAX {
            self.rules.clear_sets();
            self.prefixes = 0;
        }
        if self.rules.view.families[A::FAMILY.index()] {
            match A::to_ip_prefix(prefix) {
                IpPrefix::V4(prefix) => self.fill(prefix, paths, peers),
                IpPrefix::V6(prefix) => self.fill(prefix, paths, peers),
            }
        }
        &self.outgoing
    }

    /// Counts for the members what they would be sent for a prefix with these paths: a route each, with add-path
    /// several.
    pub fn count<A: RouteAddress>(
        &mut self,
        prefix: Prefix<A>,
        paths: &[Chosen],
        peers: &PeerTable,
        tally: &mut Tally,
    ) {
        if !self.rules.view.families[A::FAMILY.index()] {
            return;
        }
        self.rules.clear_sets();
        match A::to_ip_prefix(prefix) {
            IpPrefix::V4(prefix) => exported(&mut self.rules, prefix, paths.iter(), peers, &mut self.out),
            IpPrefix::V6(prefix) => exported(&mut self.rules, prefix, paths.iter(), peers, &mut self.out),
        }
        self.out.drain(..).for_each(|out| self.rules.audiences.count(out.offer.audience, tally));
    }

    /// Whether a member would be sent this route of the last [`Self::outgoing`].
    pub fn goes_to(&self, outgoing: &Outgoing, member: PeerId) -> bool {
        self.rules.audiences.includes(outgoing.audience, member)
    }

    /// Writes to `out` the path attributes of a route of the last [`Self::outgoing`] as they would be sent, except
    /// that MP_REACH_NLRI has the next hop only.
    pub fn encode(&mut self, family: Family, outgoing: &Outgoing, out: &mut Vec<u8>) {
        let Self { rules, block, .. } = self;
        attributes::attributes(&rules.view, family, &outgoing.attrs, outgoing.origins, block);
        out.clear();
        out.extend_from_slice(&block.bytes);
        let next_hop = &block.next_hop[..usize::from(block.next_hop_length)];
        if !next_hop.is_empty() {
            let value = [&[block.next_hop_length], next_hop].concat();
            write_attribute(out, attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, &value);
        }
    }

    /// Forgets neighbors, for another table of peers.
    pub fn forget(&mut self) {
        self.rules.forget_sources();
        self.rules.clear_sets();
    }

    fn fill<A: QueueAddress>(&mut self, prefix: Prefix<A>, paths: &[Chosen], peers: &PeerTable) {
        let mut out = std::mem::take(&mut self.out);
        exported(&mut self.rules, prefix, paths.iter(), peers, &mut out);
        for Exported { source, offer, path_id, .. } in out.drain(..) {
            let fingerprint = self.fingerprint(A::FAMILY, &offer.attrs, offer.origins);
            let Offer { attrs, origins, audience, .. } = offer;
            self.outgoing.push(Outgoing { source, attrs, fingerprint, path_id, origins, audience });
        }
        self.out = out;
    }

    fn fingerprint(&mut self, family: Family, attrs: &AttrRef, origins: Origins) -> u64 {
        let key = (attrs.id(), origins, family);
        if let Some((_, known)) = self.known.get(&key) {
            return *known;
        }
        attributes::attributes(&self.rules.view, family, attrs, origins, &mut self.block);
        let fingerprint = FixedState::with_seed(0).hash_one(&self.block);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, (attrs.clone(), fingerprint));
        fingerprint
    }
}

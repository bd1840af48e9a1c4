//! What neighbors with one export view would be sent of a prefix, without messages: for code that evaluates a
//! configuration before it is in use. It is the function that [`super::UpdateGroup`] evaluates.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use thalweg_base::{IpPrefix, Prefix};
use thalweg_wire::bgp::{Family, attribute, write_attribute};

use super::attributes::{self, Block};
use super::audience::AudienceCode;
use super::origins::Origins;
use super::queue::QueueAddress;
use super::rules::{Offer, Rules};
use super::view::ExportView;
use super::{Exported, exported};
use crate::attrs::AttrRef;
use crate::peer::{PeerId, PeerInfo, PeerTable};
use crate::route::{Chosen, RouteAddress};

/// Fingerprints that are remembered.
const KNOWN_MAX: usize = 16_384;

/// Prefixes after which sets of neighbors are forgotten, of which a route server makes many.
const SETS_PREFIXES_MAX: u32 = 65_536;

/// A route that would be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Who it came from.
    pub source: PeerId,
    /// Its attributes after export policy, before those that export itself adds or takes away.
    pub attrs: AttrRef,
    /// Of all attributes as they would be encoded: equal for equal bytes.
    pub fingerprint: u64,
    /// The identifier it would be sent with; 0 without add-path.
    pub path_id: u16,
    origins: Origins,
    audience: AudienceCode,
}

/// By the attributes after policy (by place, so they are kept with the answer), what else decides, and family.
type Known = HashMap<(usize, Origins, Family), (AttrRef, u64), FixedState>;

/// The view of some neighbors, applied to prefixes one by one.
pub struct Preview {
    rules: Rules,
    out: Vec<Exported>,
    outgoing: Vec<Outgoing>,
    block: Block,
    known: Known,
    /// Since sets were forgotten.
    prefixes: u32,
}

impl Preview {
    /// A preview for nobody yet. `representative` stands for the members where the policy looks at the neighbor.
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

    /// Adds a member.
    pub fn join(&mut self, peer: PeerId, remote_as: u32) {
        self.rules.join(peer, remote_as);
        self.rules.clear_sets();
    }

    /// Takes a member out.
    pub fn leave(&mut self, peer: PeerId) {
        self.rules.leave(peer);
        self.rules.clear_sets();
    }

    /// What would be sent of a prefix with these paths, in order of rank; [`Self::goes_to`] says to whom. `peers` is
    /// the same table every time, or [`Self::forget`] is called before another one.
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

    /// Whether a member would be sent one of what [`Self::outgoing`] said last.
    pub fn goes_to(&self, outgoing: &Outgoing, member: PeerId) -> bool {
        self.rules.audiences.includes(outgoing.audience, member)
    }

    /// Puts the path attributes of one of what [`Self::outgoing`] said last into `out`, as they would be sent, but for
    /// MP_REACH_NLRI, which has the next hop only.
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

    /// Forgets what it knows of neighbors: the table may be another.
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

//! Decides which routes a view exports and to which neighbors: everything about an exported route except its bytes.
//!
//! The order of the rules: well-known communities, roles (RFC 9234), the route's source (RFC 4271 9.2.1, RFC 4456),
//! loops if configured, control communities (RFC 7947), policy, next hop, length. All are functions of (view,
//! prefix, attributes, source), so the old route always tells what a neighbor had.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use thalweg_base::IpPrefix;
use thalweg_wire::bgp::Family;

use super::attributes::{self, Block};
use super::audience::{AudienceCode, Audiences, PeerSet};
use super::origins::{Marks, Origins, next_hop};
use super::view::{ExportView, NextHopRule, RouteServerRules};
use crate::attrs::{AttrRef, Attrs, AttrsBuilder, Interner, NextHop, flag};
use crate::peer::{PeerId, PeerInfo, PeerKind, PeerTable, Role};
use crate::policy::{Outcome, Policy, RouteContext};

/// A route to send.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    /// After policy.
    pub(super) attrs: AttrRef,
    pub(super) origins: Origins,
    pub(super) audience: AudienceCode,
    /// How often the AS path is prepended for which members (route server).
    pub(super) prepended: Vec<(u8, AudienceCode)>,
}

/// The decision about a route.
#[derive(Clone, Debug)]
enum Judgement {
    Goes(Offer),
    Stays,
    /// The attributes leave no room for a prefix.
    TooLong,
}

/// The neighbor that sent a route, looked up once for a run of routes.
#[derive(Clone, Debug)]
struct Source {
    peer: PeerId,
    info: Option<Arc<PeerInfo>>,
    origins: Origins,
    blocked: bool,
}

pub(super) struct Rules {
    pub(super) view: Arc<ExportView>,
    /// Stands for all members where a policy examines the neighbor.
    pub(super) representative: Arc<PeerInfo>,
    pub(super) audiences: Audiences,
    /// Members by AS number, for control communities.
    members_by_as: Vec<(u32, PeerId)>,
    /// Members by address, as of the last look-up; and the last next hop that was looked up, with its member.
    members_by_address: Option<HashMap<IpAddr, PeerId, FixedState>>,
    last_next_hop: Option<(IpAddr, Option<PeerId>)>,
    reject_flags: u16,
    /// Flags, source and length alone decide.
    pub(super) simple: bool,
    own_next_hop: [bool; 2],
    source: Option<Source>,
    edit: AttrsBuilder,
    interner: Interner,
    /// Offers by attributes and source, if they hold for every prefix.
    memo: Memo,
    /// Routes rejected because their attributes do not fit into a message.
    pub(super) too_long: u64,
}

/// Keys contain an address, so the value keeps the attribute set at that address.
type Memo = HashMap<(Family, usize, PeerId), (AttrRef, Judgement), FixedState>;

/// The most offers that are remembered.
const MEMO_MAX: usize = 16_384;

impl Rules {
    pub(super) fn new(view: Arc<ExportView>, representative: Arc<PeerInfo>) -> Self {
        let own_next_hop = Family::ALL
            .map(|family| view.next_hop == NextHopRule::Own && view.own_next_hop(family).is_some());
        let control = view.route_server.is_some_and(|rules| rules.control_as.is_some());
        let simple = *view.policy == Policy::accept_all() && !control && !view.sender_loop_check;
        Self {
            reject_flags: reject_flags(&view),
            simple,
            own_next_hop,
            representative,
            audiences: Audiences::default(),
            members_by_as: Vec::new(),
            members_by_address: None,
            last_next_hop: None,
            source: None,
            edit: AttrsBuilder::default(),
            interner: Interner::new(0x7e57),
            memo: HashMap::with_hasher(FixedState::default()),
            too_long: 0,
            view,
        }
    }

    /// The same rules for some of the members.
    pub(super) fn for_members(&self, members: &PeerSet) -> Self {
        let mut rules = Self::new(self.view.clone(), self.representative.clone());
        for &(remote_as, peer) in self.members_by_as.iter().filter(|(_, peer)| members.contains(*peer)) {
            rules.join(peer, remote_as);
        }
        rules
    }

    /// Other rules for the same members.
    pub(super) fn with_view(&self, view: Arc<ExportView>, representative: Arc<PeerInfo>) -> Self {
        let mut rules = Self::new(view, representative);
        self.members_by_as.iter().for_each(|&(remote_as, peer)| rules.join(peer, remote_as));
        rules
    }

    /// Drops sets and offers once no queue holds a code of them.
    pub(super) fn clear_sets(&mut self) {
        self.audiences.clear_sets();
        let used = self.memo.len();
        self.memo.clear();
        if self.memo.capacity() > 8 * used.max(128) {
            self.memo.shrink_to(2 * used);
        }
    }

    pub(super) fn join(&mut self, peer: PeerId, remote_as: u32) {
        self.audiences.members.insert(peer);
        self.members_by_as.retain(|(_, each)| *each != peer);
        self.members_by_as.push((remote_as, peer));
        (self.members_by_address, self.last_next_hop) = (None, None);
    }

    pub(super) fn leave(&mut self, peer: PeerId) {
        self.audiences.members.remove(peer);
        self.members_by_as.retain(|(_, each)| *each != peer);
        (self.members_by_address, self.last_next_hop) = (None, None);
    }

    /// Removes from the audience the member whose own address is the next hop: it would send packets to itself (RFC
    /// 4271 5.1.3).
    #[inline]
    fn without_next_hop(
        &mut self,
        audience: AudienceCode,
        next_hop: IpAddr,
        source: Option<IpAddr>,
        peers: &PeerTable,
    ) -> AudienceCode {
        // Usually the address is that of the source, which is not in the audience anyway.
        if self.view.next_hop == NextHopRule::Own || source == Some(next_hop) {
            return audience;
        }
        match self.member_at(next_hop, peers) {
            None => audience,
            Some(member) => self.audiences.minus(audience, AudienceCode::only(member)),
        }
    }

    fn member_at(&mut self, address: IpAddr, peers: &PeerTable) -> Option<PeerId> {
        if let Some((last, member)) = self.last_next_hop
            && last == address
        {
            return member;
        }
        let known = self.members_by_address.take().unwrap_or_else(|| {
            let members = self.audiences.members.iter().filter_map(|peer| peers.get(peer));
            members.map(|info| (info.address, info.id)).collect()
        });
        let found = known.get(&address).copied();
        if known.len() < self.audiences.members.len() {
            // The table predates the join of a member.
            return found;
        }
        self.members_by_address = Some(known);
        self.last_next_hop = Some((address, found));
        found
    }

    /// Forgets neighbors, for another table of peers.
    pub(super) fn forget_sources(&mut self) {
        self.source = None;
    }

    /// The source of a neighbor's routes.
    #[inline]
    pub(super) fn origins(&mut self, peer: PeerId, peers: &PeerTable) -> Origins {
        self.source(peer, peers).origins
    }

    #[inline]
    fn source(&mut self, peer: PeerId, peers: &PeerTable) -> &Source {
        if self.source.as_ref().is_none_or(|source| source.peer != peer) {
            self.source = Some(self.look_up(peer, peers));
        }
        self.source.get_or_insert_with(|| Source {
            peer,
            info: None,
            origins: Origins {
                kind: None,
                router_id: Ipv4Addr::UNSPECIFIED,
                changed: Marks::default(),
                prepend: 0,
            },
            blocked: false,
        })
    }

    fn look_up(&self, peer: PeerId, peers: &PeerTable) -> Source {
        let info = peers.get(peer).cloned();
        let kind = info.as_ref().map(|info| info.kind);
        let router_id = info.as_ref().map_or(Ipv4Addr::UNSPECIFIED, |info| info.router_id);
        // RFC 4456 section 6: from a client to everybody, from another internal neighbor to clients only.
        let blocked = kind == Some(PeerKind::Internal) && self.view.kind == PeerKind::Internal;
        Source {
            peer,
            info,
            origins: Origins { kind, router_id, changed: Marks::default(), prepend: 0 },
            blocked,
        }
    }

    /// The fast answer if [`Self::simple`] holds: who may have the route, [`AudienceCode::NOBODY`] for none.
    #[inline]
    pub(super) fn simple_audience(
        &mut self,
        family: Family,
        attrs: &Attrs,
        peer: PeerId,
        peers: &PeerTable,
    ) -> AudienceCode {
        let source = self.source(peer, peers);
        let (blocked, origins) = (source.blocked, source.origins);
        let sender = source.info.as_ref().map(|info| info.address);
        if blocked || attrs.flags & self.reject_flags != 0 {
            return AudienceCode::NOBODY;
        }
        let mut audience = AudienceCode::all_except(peer);
        if !self.own_next_hop[family.index()] {
            let Some(next_hop) = self.next_hop(family, attrs, origins) else { return AudienceCode::NOBODY };
            audience = self.without_next_hop(audience, next_hop.address(), sender, peers);
        }
        if !self.fits(family, attrs, origins) {
            self.too_long += 1;
            return AudienceCode::NOBODY;
        }
        audience
    }

    /// If [`Self::simple`] holds: whether two routes of a neighbor look the same to the members, which have both or
    /// none.
    #[inline]
    pub(super) fn simple_same(
        &mut self,
        family: Family,
        old: &Attrs,
        new: &Attrs,
        peer: PeerId,
        peers: &PeerTable,
    ) -> bool {
        if (old.flags ^ new.flags) & self.reject_flags != 0 {
            return false;
        }
        let origins = self.origins(peer, peers);
        attributes::same(&self.view, family, old, new, origins)
    }

    /// The full answer.
    pub(super) fn offer(
        &mut self,
        family: Family,
        prefix: IpPrefix,
        attrs: &AttrRef,
        peer: PeerId,
        peers: &PeerTable,
    ) -> Option<Offer> {
        if self.view.policy.depends_on_prefix() {
            let judgement = self.judge(family, prefix, attrs, peer, peers);
            return self.count(judgement);
        }
        let key = (family, attrs.id(), peer);
        if let Some((_, judgement)) = self.memo.get(&key) {
            let judgement = judgement.clone();
            return self.count(judgement);
        }
        let judgement = self.judge(family, prefix, attrs, peer, peers);
        if self.memo.len() < MEMO_MAX {
            self.memo.insert(key, (attrs.clone(), judgement.clone()));
        }
        self.count(judgement)
    }

    fn count(&mut self, judgement: Judgement) -> Option<Offer> {
        match judgement {
            Judgement::Goes(offer) => Some(offer),
            Judgement::Stays => None,
            Judgement::TooLong => {
                self.too_long += 1;
                None
            }
        }
    }

    fn judge(
        &mut self,
        family: Family,
        prefix: IpPrefix,
        attrs: &AttrRef,
        peer: PeerId,
        peers: &PeerTable,
    ) -> Judgement {
        let source = self.source(peer, peers).clone();
        if source.blocked || attrs.flags & self.reject_flags != 0 {
            return Judgement::Stays;
        }
        if self.view.sender_loop_check && self.view.remote_as.is_some_and(|asn| attrs.path_contains(asn)) {
            return Judgement::Stays;
        }
        let audience = self.controlled(attrs, AudienceCode::all_except(peer));
        if audience == AudienceCode::NOBODY {
            return Judgement::Stays;
        }
        let prepended = self.prepended(attrs);
        let context = RouteContext {
            prefix,
            peer: &self.representative,
            source: source.info.as_deref(),
            validator: None,
        };
        let mut origins = source.origins;
        let attrs = match self.view.policy.evaluate(&context, attrs, &mut self.edit) {
            Outcome::Reject { .. } => return Judgement::Stays,
            Outcome::Accept => attrs.clone(),
            Outcome::AcceptChanged(changed) => {
                origins.changed = changed.into();
                self.interner.intern(&mut self.edit)
            }
        };
        let Some(next_hop) = self.next_hop(family, &attrs, origins) else { return Judgement::Stays };
        let sender = source.info.as_ref().map(|info| info.address);
        let audience = self.without_next_hop(audience, next_hop.address(), sender, peers);
        let longest = Origins { prepend: prepended.iter().map(|each| each.0).max().unwrap_or(0), ..origins };
        if !self.fits(family, &attrs, longest) {
            return Judgement::TooLong;
        }
        Judgement::Goes(Offer { attrs, origins, audience, prepended })
    }

    /// The next hop to send; `None` if the neighbors cannot be given any.
    pub(super) fn next_hop(&self, family: Family, attrs: &Attrs, origins: Origins) -> Option<NextHop> {
        next_hop(&self.view, family, attrs, origins)
    }

    /// Whether the attributes leave room for a prefix in a message. Attributes grow by our AS, by reflection, and
    /// twice where two-octet AS numbers come with AS4_PATH.
    #[inline]
    fn fits(&self, family: Family, attrs: &Attrs, origins: Origins) -> bool {
        const ADDED_MAX: usize = 256;
        let limit = self.view.message_length_max();
        if attrs.encoded().len() * 2 + ADDED_MAX <= limit {
            return true;
        }
        let mut block = Block::default();
        attributes::attributes(&self.view, family, attrs, origins, &mut block);
        block.message_length_min(family) <= limit
    }

    /// The clients for which control communities prepend, and how often.
    fn prepended(&mut self, attrs: &Attrs) -> Vec<(u8, AudienceCode)> {
        let Some(RouteServerRules { control_as: Some(asn), .. }) = self.view.route_server else {
            return Vec::new();
        };
        if attrs.flags & flag::LARGE_COMMUNITIES == 0 || attrs.neighbor_as == 0 {
            return Vec::new();
        }
        let times = |remote_as: u32| {
            let mine = |each: &[u32; 3]| each[0] == asn && each[2] == remote_as;
            let counts = attrs.large_communities().filter(mine).map(|each| each[1]);
            counts.filter(|function| (101..=103).contains(function)).max().map_or(0, |it| it - 100)
        };
        let mut prepended = Vec::new();
        for count in 1..=3u8 {
            let members = self.members_by_as.iter();
            let members: PeerSet =
                members.filter(|each| times(each.0) == u32::from(count)).map(|each| each.1).collect();
            if !members.is_empty() {
                prepended.push((count, self.audiences.code(members)));
            }
        }
        prepended
    }

    /// The audience that control communities leave.
    fn controlled(&mut self, attrs: &Attrs, audience: AudienceCode) -> AudienceCode {
        let Some(RouteServerRules { control_as: Some(asn), .. }) = self.view.route_server else {
            return audience;
        };
        if attrs.flags & (flag::COMMUNITIES | flag::LARGE_COMMUNITIES) == 0 {
            return audience;
        }
        let control = ControlCommunities::of(attrs, asn);
        if control.is_empty() {
            return audience;
        }
        let allowed: PeerSet = self
            .members_by_as
            .iter()
            .filter(|(remote_as, _)| control.allows(*remote_as))
            .map(|(_, peer)| *peer)
            .collect();
        let allowed = self.audiences.code(allowed);
        self.audiences.and(audience, allowed)
    }
}

/// The control communities of a route. `0:X` and `RS:0:X` hide it from AS X, `0:RS` and `RS:0:0` from all. `RS:X`
/// and `RS:1:X` give it to AS X, and if there is one of these, the others do not get it. `RS:101:X`, `RS:102:X` and
/// `RS:103:X` prepend the first AS of the path once, twice and three times toward AS X.
#[derive(Debug, Default)]
struct ControlCommunities {
    denied: Vec<u32>,
    listed: Vec<u32>,
    only_listed: bool,
}

impl ControlCommunities {
    fn of(attrs: &Attrs, asn: u32) -> Self {
        let mut control = Self::default();
        for community in attrs.communities() {
            match (community >> 16, community & 0xffff) {
                (0, target) if target == asn => control.only_listed = true,
                (0, target) => control.denied.push(target),
                (high, target) if high == asn && target != asn => control.list(target),
                _ => {}
            }
        }
        for [admin, function, target] in attrs.large_communities() {
            match (admin == asn, function, target) {
                (true, 0, 0) => control.only_listed = true,
                (true, 0, target) => control.denied.push(target),
                (true, 1, target) if target != 0 => control.list(target),
                _ => {}
            }
        }
        control
    }

    fn list(&mut self, target: u32) {
        self.only_listed = true;
        self.listed.push(target);
    }

    fn is_empty(&self) -> bool {
        !self.only_listed && self.denied.is_empty()
    }

    fn allows(&self, asn: u32) -> bool {
        !self.denied.contains(&asn) && (!self.only_listed || self.listed.contains(&asn))
    }
}

/// The attribute flags that keep a route from every member.
fn reject_flags(view: &ExportView) -> u16 {
    let mut flags = 0;
    // RFC 7947 2.2.4 wants a route server to pass well-known communities on.
    if view.route_server.is_none() {
        flags |= flag::NO_ADVERTISE;
        flags |= match view.kind {
            PeerKind::External => flag::NO_EXPORT | flag::NO_EXPORT_SUBCONFED,
            PeerKind::Confederation => flag::NO_EXPORT_SUBCONFED,
            PeerKind::Internal | PeerKind::InternalClient => 0,
        };
    }
    // RFC 9234 section 5, egress rule 2.
    if view.kind == PeerKind::External
        && matches!(view.role, Some(Role::Provider | Role::Peer | Role::RouteServer))
    {
        flags |= flag::ONLY_TO_CUSTOMER;
    }
    flags
}

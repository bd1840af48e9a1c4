//! Turns UPDATEs into routes: interprets a neighbor's attributes and decides which of its routes are wanted.
//!
//! ```text
//! Update ──> key of the attributes ──> cache ─────────────── hit ──────────────┐
//!                                        └ miss ─> checks ─> build ─> policy ─> intern ─> routes
//! ```
//!
//! Everything except a policy that examines prefixes depends only on the attributes and the next hop. They are
//! handled once per UPDATE, or not at all if one of the last [`CACHE_SLOTS`] attribute fields repeats, which is
//! common for a neighbor that sends one prefix per UPDATE. A rejected route is pushed as withdrawn, because the
//! neighbor's previous route is no longer valid either. If the neighbor's routes are kept (`keep_rejected`), each is
//! also pushed as it was received, for the shard's Adj-RIB-In before policy.
//! With `keep_rejected = "rpki"` that is done with those only that other VRPs may let in.
//!
//! In order: loops (own AS, confederation, ORIGINATOR_ID, CLUSTER_LIST; RFC 4271 9.1.2, 4456, 5065), first AS (RFC
//! 4271 6.3), AS_SET (RFC 9774), next hop (RFC 4271 5.1.3), route leaks (RFC 9234), no policy (RFC 8212), the origin
//! (RFC 6811), policy.
//! Then GRACEFUL_SHUTDOWN (RFC 8326): a route with that community after policy gets LOCAL_PREF 0, so that no policy
//! prefers it by accident, and a policy that removes the community exempts the route. Then BLACKHOLE (RFC 7999
//! 3.3): the router discards traffic for a route that still has it, if the neighbor's configuration honors that.
//! Martian prefixes (RFC 4271 6.3) are skipped one by one.
//!
//! A policy that does not examine prefixes works on the attributes while they are built, so only what it accepts is
//! interned. What a worker decodes with (`Scratch`) serves all of its neighbors. An UPDATE allocates nothing except
//! for new attribute sets. Missing: next hops that are addresses of other interfaces of this router. Damping is part
//! of the RIB.

mod cache;
mod checks;
mod judge;
mod martians;

use std::sync::Arc;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_wire::bgp::{CodeSet, Family, MpNlri, NextHop, Nlri, PeerFacts, Update, Verdict};

use super::config::{KeepRejected, NeighborConfig};
use super::negotiate::Negotiated;
use crate::attrs::{AttrRef, AttrsBuilder, Interner, flag};
use crate::peer::{PeerId, PeerInfo};
use crate::policy::Policy;
use crate::route::{RouteAddress, RouteBatchBuilder, Scratch, WITHDRAWN};
use crate::rpki::VrpTable;
use cache::Cache;
use judge::Judged;

pub use cache::CACHE_SLOTS;
pub use checks::Rejection;
pub use judge::{Judge, Reason, build};
pub use martians::is_martian;

/// Converts the UPDATEs of one neighbor to routes. Kept beside its session, which passes in what was negotiated;
/// the driver sets the policy.
pub struct Importer {
    judge: Arc<Judge>,
    agreed: Option<Arc<Negotiated>>,
    families: [bool; 2],
    four_octet_as: bool,
    facts: PeerFacts,
    cache: Cache,
    counters: ImportCounters,
    /// The last prefix of each remark there was: most neighbors cause none.
    examples: Vec<(Remark, IpPrefix)>,
}

/// Something about received routes that deserves a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    Rejected(Rejection),
    /// The routes have the community BLACKHOLE, and their traffic is discarded.
    BlackholeHonored,
    /// The routes have the community BLACKHOLE, which is not honored for them; they are ordinary routes.
    BlackholeIgnored,
}

impl Remark {
    /// The number of remarks.
    pub const COUNT: usize = Rejection::COUNT + 2;

    /// All of them, in order of [`Self::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        let rejections = Rejection::all().map(Self::Rejected);
        rejections.chain([Self::BlackholeHonored, Self::BlackholeIgnored])
    }

    /// Index into arrays with an element for each.
    pub const fn index(self) -> usize {
        match self {
            Self::Rejected(rejection) => rejection.index(),
            Self::BlackholeHonored => Rejection::COUNT,
            Self::BlackholeIgnored => Rejection::COUNT + 1,
        }
    }
}

/// The outcome of a neighbor's routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounters {
    /// Announced and accepted.
    pub accepted: u64,
    /// Withdrawn by the neighbor.
    pub withdrawn: u64,
    /// Announced in an UPDATE with errors, and withdrawn for that reason (RFC 7606).
    pub treated_as_withdraw: u64,
    /// Announced, by [`Remark::index`]: rejected, or accepted with BLACKHOLE.
    remarks: [u64; Remark::COUNT],
    /// Prefixes of families that were not negotiated; ignored.
    pub other_family: u64,
    /// UPDATEs with MP attributes of unknown families; ignored.
    pub unknown_family: u64,
    /// Attribute fields found in the cache.
    pub cache_hits: u64,
    /// Attribute fields not found there.
    pub cache_misses: u64,
}

impl ImportCounters {
    /// Announced and rejected, for any reason.
    pub fn rejected_total(&self) -> u64 {
        Rejection::all().map(|rejection| self.rejected(rejection)).sum()
    }

    /// Announced and rejected for this reason.
    pub fn rejected(&self, rejection: Rejection) -> u64 {
        self.remarks(Remark::Rejected(rejection))
    }

    /// Announced with this remark.
    pub fn remarks(&self, remark: Remark) -> u64 {
        self.remarks[remark.index()]
    }
}

impl Importer {
    /// Creates an importer without a session or a policy.
    pub fn new(interner: Arc<Interner>) -> Self {
        Self {
            judge: Arc::new(Judge::new(interner)),
            agreed: None,
            families: [false; 2],
            four_octet_as: true,
            facts: PeerFacts::default(),
            cache: Cache::default(),
            counters: ImportCounters::default(),
            examples: Vec::new(),
        }
    }

    /// Whether it was set up for this session.
    #[inline]
    pub(super) fn is_for(&self, agreed: &Arc<Negotiated>) -> bool {
        self.agreed.as_ref().is_some_and(|each| Arc::ptr_eq(each, agreed))
    }

    /// Prepares for the first UPDATE of a session.
    pub fn begin(&mut self, agreed: &Arc<Negotiated>, config: &NeighborConfig, id: PeerId) {
        Arc::make_mut(&mut self.judge).peer = agreed.peer_info(id, config);
        self.agreed = Some(agreed.clone());
        self.families = agreed.families;
        self.four_octet_as = agreed.codec.four_octet_as;
        self.set_config(config);
    }

    /// Applies a changed configuration during a session.
    pub fn set_config(&mut self, config: &NeighborConfig) {
        self.facts = PeerFacts {
            side: self.peer().kind.side(),
            in_confederation: config.confederation.is_some(),
            discard: config
                .import
                .discard_attributes
                .iter()
                .fold(CodeSet::EMPTY, |set, code| set.with(*code)),
        };
        Arc::make_mut(&mut self.judge).set_config(config);
        self.cache.clear();
    }

    /// Sets the policy for routes from now on; `None` if none is configured.
    pub fn set_policy(&mut self, policy: Option<Arc<Policy>>) {
        Arc::make_mut(&mut self.judge).policy = policy;
        self.cache.clear();
    }

    /// Sets the VRPs that say how valid routes are from now on. What is cached was decided without them.
    pub fn set_vrps(&mut self, vrps: Option<Arc<VrpTable>>) {
        Arc::make_mut(&mut self.judge).vrps = vrps;
    }

    /// How to parse the neighbor's UPDATEs.
    pub fn facts(&self) -> &PeerFacts {
        &self.facts
    }

    /// The neighbor.
    pub fn peer(&self) -> &PeerInfo {
        &self.judge.peer
    }

    /// What decides about the neighbor's routes now.
    pub fn judge(&self) -> &Arc<Judge> {
        &self.judge
    }

    /// The totals of its routes so far.
    pub fn counters(&self) -> &ImportCounters {
        &self.counters
    }

    /// The last prefix with this remark.
    pub fn example(&self, remark: Remark) -> Option<IpPrefix> {
        self.examples.iter().find(|(of, _)| *of == remark).map(|(_, example)| *example)
    }

    fn remark(&mut self, remark: Remark, count: usize, example: IpPrefix) {
        self.counters.remarks[remark.index()] += count as u64;
        match self.examples.iter_mut().find(|(of, _)| *of == remark) {
            Some((_, last)) => *last = example,
            None => self.examples.push((remark, example)),
        }
    }

    /// Adds the routes of an UPDATE to `out`; `body` is what it was parsed from. Withdrawn routes come first, as
    /// RFC 4271 4.3 says.
    pub fn import(&mut self, update: &Update<'_>, body: &[u8], out: &mut RouteBatchBuilder) {
        if !update.withdrawn.is_empty() {
            self.withdraw(update.withdrawn, out);
        }
        match update.mp_unreach {
            Some(MpNlri::Ipv4(routes)) => self.withdraw(routes, out),
            Some(MpNlri::Ipv6(routes)) => self.withdraw(routes, out),
            None => {}
        }
        let unknown = update.foreign_reach.is_some() || update.foreign_unreach.is_some();
        self.counters.unknown_family += u64::from(unknown);
        if !update.announces() {
            return;
        }
        if update.verdict != Verdict::Good {
            return self.withdraw_announced(update, out);
        }
        if !update.reach_v4.is_empty()
            && let Some(next_hop) = update.next_hop
        {
            self.announce(update, body, NextHop::V4(next_hop), update.reach_v4, out);
        }
        if let Some(reach) = update.mp_reach {
            match reach.routes {
                MpNlri::Ipv4(routes) => self.announce(update, body, reach.next_hop, routes, out),
                MpNlri::Ipv6(routes) => self.announce(update, body, reach.next_hop, routes, out),
            }
        }
    }

    /// RFC 7606: withdraws what an UPDATE with errors announces.
    #[cold]
    fn withdraw_announced(&mut self, update: &Update<'_>, out: &mut RouteBatchBuilder) {
        let withdrawn_before = self.counters.withdrawn;
        self.withdraw(update.reach_v4, out);
        match update.mp_reach.map(|reach| reach.routes) {
            Some(MpNlri::Ipv4(routes)) => self.withdraw(routes, out),
            Some(MpNlri::Ipv6(routes)) => self.withdraw(routes, out),
            None => {}
        }
        self.counters.treated_as_withdraw += self.counters.withdrawn - withdrawn_before;
        self.counters.withdrawn = withdrawn_before;
    }

    #[inline]
    fn withdraw<A: Announced>(&mut self, routes: Nlri<'_, A>, out: &mut RouteBatchBuilder) {
        if !self.agreed_on::<A>(routes.len()) {
            return;
        }
        self.counters.withdrawn += routes.len() as u64;
        for (path_id, prefix) in routes {
            out.push(prefix, path_id, WITHDRAWN);
        }
        if self.judge.keeps() != KeepRejected::None {
            routes.into_iter().for_each(|(path_id, prefix)| out.push_received(prefix, path_id, WITHDRAWN));
        }
    }

    /// Whether the family was negotiated; counts the routes if not.
    #[inline]
    fn agreed_on<A: RouteAddress>(&mut self, count: usize) -> bool {
        let agreed = self.families[A::FAMILY.index()];
        self.counters.other_family += if agreed { 0 } else { count as u64 };
        agreed
    }

    #[inline]
    fn announce<A: Announced>(
        &mut self,
        update: &Update<'_>,
        body: &[u8],
        next_hop: NextHop,
        routes: Nlri<'_, A>,
        out: &mut RouteBatchBuilder,
    ) {
        let Some((_, first)) = routes.iter().next() else { return };
        if !self.agreed_on::<A>(routes.len()) {
            return;
        }
        let first = A::to_ip_prefix(first);
        let mut kept = None;
        let Judged { received, outcome } =
            self.judged(update, body, next_hop, first, A::FAMILY, &mut out.scratch);
        if let Some(received) = received {
            let index = out.push_received_attrs(received);
            // Of the others, those that other VRPs may let in follow.
            let all = if self.judge.keeps() == KeepRejected::All { index } else { WITHDRAWN };
            routes.into_iter().for_each(|(path_id, prefix)| out.push_received(prefix, path_id, all));
            kept = Some(index).filter(|index| *index != all);
        }
        let by_prefix = self.judge.is_by_prefix();
        match outcome {
            Ok(attrs) if by_prefix || attrs.has(flag::BLACKHOLE) => {
                self.announce_by_prefix(&attrs, by_prefix, kept, routes, out);
            }
            Ok(attrs) => {
                self.counters.accepted += routes.len() as u64;
                let index = out.push_attrs(attrs);
                for (path_id, prefix) in routes {
                    if A::is_martian(prefix) && self.judge.ignores_martians() {
                        self.counters.accepted -= 1;
                        self.pass_over(prefix, path_id, out);
                    } else {
                        out.push(prefix, path_id, index);
                    }
                }
            }
            Err(reason) => {
                self.remark(Remark::Rejected(reason.rejection), routes.len(), first);
                for (path_id, prefix) in routes {
                    out.push(prefix, path_id, WITHDRAWN);
                }
            }
        }
    }

    /// The result for the attributes, from the cache or computed.
    #[inline]
    fn judged(
        &mut self,
        update: &Update<'_>,
        body: &[u8],
        next_hop: NextHop,
        first: IpPrefix,
        family: Family,
        scratch: &mut Scratch,
    ) -> Judged {
        let key = cache::Key::new(attribute_field(body), update, next_hop, family);
        if let Some(judged) = self.cache.get(&key) {
            self.counters.cache_hits += 1;
            return judged.clone();
        }
        self.counters.cache_misses += 1;
        let judged = self.judge.update(update, next_hop, first, self.four_octet_as, scratch);
        self.cache.put(&key, judged.clone());
        judged
    }

    /// RFC 4271 6.3: ignores such a prefix; a route from before the check was enabled is withdrawn.
    #[cold]
    fn pass_over<A: Announced>(&mut self, prefix: Prefix<A>, path_id: u32, out: &mut RouteBatchBuilder) {
        self.remark(Remark::Rejected(Rejection::Martian), 1, A::to_ip_prefix(prefix));
        out.push(prefix, path_id, WITHDRAWN);
    }

    /// Counts what became of a route with BLACKHOLE, and returns its attributes.
    fn blackhole(&mut self, attrs: AttrRef, prefix: IpPrefix, edit: &mut AttrsBuilder) -> AttrRef {
        if !attrs.has(flag::BLACKHOLE) {
            return attrs;
        }
        let discarding = self.judge.discarding(&attrs, prefix, edit);
        let honored = discarding.is_some();
        self.remark(if honored { Remark::BlackholeHonored } else { Remark::BlackholeIgnored }, 1, prefix);
        discarding.unwrap_or(attrs)
    }

    /// `by_policy`: `attrs` are those before policy, which looks at prefixes. `kept`: with these attributes, routes are
    /// kept that other VRPs may let in.
    fn announce_by_prefix<A: Announced>(
        &mut self,
        attrs: &AttrRef,
        by_policy: bool,
        kept: Option<u32>,
        routes: Nlri<'_, A>,
        out: &mut RouteBatchBuilder,
    ) {
        // Adjacent prefixes mostly share an index, so it is looked up only when it changes.
        let mut last: Option<(AttrRef, u32)> = None;
        for (path_id, prefix) in routes {
            if A::is_martian(prefix) && self.judge.ignores_martians() {
                self.pass_over(prefix, path_id, out);
                continue;
            }
            let ip_prefix = A::to_ip_prefix(prefix);
            let judged = match by_policy {
                true => self.judge.prefix(attrs, ip_prefix, &mut out.scratch.builder),
                false => Ok(attrs.clone()),
            };
            let index = match judged {
                Ok(accepted) => {
                    self.counters.accepted += 1;
                    let accepted = self.blackhole(accepted, ip_prefix, &mut out.scratch.builder);
                    match &last {
                        Some((same, index)) if *same == accepted => *index,
                        _ => {
                            let index = out.push_attrs(accepted.clone());
                            last = Some((accepted, index));
                            index
                        }
                    }
                }
                Err(reason) => {
                    self.remark(Remark::Rejected(reason.rejection), 1, ip_prefix);
                    if let Some(kept) = kept.filter(|_| self.judge.stays_kept(Some(&reason))) {
                        out.push_received(prefix, path_id, kept);
                    }
                    WITHDRAWN
                }
            };
            out.push(prefix, path_id, index);
        }
    }
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("peer", self.peer()).field("counters", &self.counters).finish()
    }
}

/// The path attributes in the body of an UPDATE; parsing has checked the lengths.
#[inline]
fn attribute_field(body: &[u8]) -> &[u8] {
    let field = |bytes: &[u8]| -> Option<(usize, usize)> {
        let length = u16::from_be_bytes(*bytes.first_chunk::<2>()?);
        Some((2, 2 + usize::from(length)))
    };
    let found = field(body).and_then(|(_, end)| body.get(end..)).and_then(|rest| {
        let (start, end) = field(rest)?;
        rest.get(start..end)
    });
    found.unwrap_or(&[])
}

/// An address of the routes that neighbors announce.
trait Announced: RouteAddress {
    fn is_martian(prefix: Prefix<Self>) -> bool;
}

impl Announced for u32 {
    #[inline]
    fn is_martian(prefix: Prefix<u32>) -> bool {
        martians::is_martian_v4(prefix)
    }
}

impl Announced for u128 {
    #[inline]
    fn is_martian(prefix: Prefix<u128>) -> bool {
        martians::is_martian_v6(prefix)
    }
}

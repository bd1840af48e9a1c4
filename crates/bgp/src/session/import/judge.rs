//! What becomes of a route that a neighbor announced: checks, policy, GRACEFUL_SHUTDOWN and BLACKHOLE.
//!
//! A [`Judge`] holds all that the answer depends on besides the route. It never changes while others have it: a new
//! configuration or policy makes another. So a thread can judge kept routes again while the session reads on, and
//! the answer to a query names the rule that rejects a route without anybody having stored it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Aggregator, Attribute, NextHop, Update, attribute, community};

use super::super::config::{HonorBlackhole, KeepRejected, NeighborConfig};
use super::checks::{Checks, Rejection};
use super::martians::is_martian;
use crate::attrs::{AttrRef, AttrsBuilder, Interner, flag};
use crate::peer::{PeerId, PeerInfo, PeerKind};
use crate::policy::{Outcome, Policy, RouteContext, RuleId};
use crate::route::Scratch;
use crate::rpki::{Validator, Validity, VrpTable};

/// LOCAL_PREF of a route that will be withdrawn soon (RFC 8326).
const LOCAL_PREF_GRACEFUL_SHUTDOWN: u32 = 0;

/// Why a route is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    pub rejection: Rejection,
    /// The rule that decided, if policy did; [`Judge::describe`] puts it in words.
    pub rule: Option<RuleId>,
}

impl From<Rejection> for Reason {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, rule: None }
    }
}

/// What becomes of attributes, whatever the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// As they were received, if the neighbor's routes are kept like that.
    pub(super) received: Option<AttrRef>,
    /// Before policy, or after it if the policy ignores prefixes.
    pub(super) outcome: Result<AttrRef, Reason>,
}

/// Decides about one neighbor's routes.
#[derive(Clone)]
pub struct Judge {
    interner: Arc<Interner>,
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) peer: PeerInfo,
    checks: Checks,
    honor_blackhole: HonorBlackhole,
    keeps: KeepRejected,
    reject_invalid: bool,
    /// `None`: no RPKI is configured.
    pub(super) vrps: Option<Arc<VrpTable>>,
    /// Our AS as others see it.
    own_as: u32,
}

impl Judge {
    /// For no neighbor yet.
    pub(super) fn new(interner: Arc<Interner>) -> Self {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let peer = PeerInfo {
            id: PeerId::LOCAL,
            name: "".into(),
            address: nobody,
            local_address: nobody,
            remote_as: 0,
            local_as: 0,
            kind: PeerKind::External,
            router_id: Ipv4Addr::UNSPECIFIED,
            role: None,
            route_server_client: false,
        };
        Self {
            interner,
            policy: None,
            peer,
            checks: Checks::default(),
            honor_blackhole: HonorBlackhole::No,
            keeps: KeepRejected::None,
            reject_invalid: false,
            vrps: None,
            own_as: 0,
        }
    }

    /// The same with another configuration of the neighbor.
    pub(super) fn set_config(&mut self, config: &NeighborConfig) {
        self.checks = Checks::new(config, &self.peer);
        self.honor_blackhole = config.import.honor_blackhole.clone();
        self.keeps = config.import.keep_rejected;
        self.reject_invalid = config.import.reject_invalid;
        self.own_as = config.confederation.as_ref().map_or(config.local_as, |each| each.id);
    }

    /// Which of the neighbor's routes are kept as it sent them.
    pub fn keeps(&self) -> KeepRejected {
        self.keeps
    }

    /// Whether other VRPs may lead to another result.
    pub fn depends_on_validity(&self) -> bool {
        self.reject_invalid || self.policy_depends_on_validity()
    }

    /// Whether that is because of policy.
    pub fn policy_depends_on_validity(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.depends_on_validity())
    }

    /// Whether a route that was rejected for this reason, or accepted, is kept as it was received.
    pub fn stays_kept(&self, rejected: Option<&Reason>) -> bool {
        match (self.keeps, rejected.map(|reason| reason.rejection)) {
            (KeepRejected::None, _) => false,
            (KeepRejected::All, _) => true,
            // Other VRPs may let it in.
            (KeepRejected::Rpki, Some(Rejection::RpkiInvalid)) => true,
            (KeepRejected::Rpki, Some(Rejection::Policy)) => self.policy_depends_on_validity(),
            (KeepRejected::Rpki, _) => false,
        }
    }

    /// Whether invalid routes are rejected whatever policy says.
    pub fn rejects_invalid(&self) -> bool {
        self.reject_invalid
    }

    /// Says how valid routes are, by the VRPs of now.
    pub fn validator(&self) -> Option<Validator<'_>> {
        self.vrps.as_deref().map(|vrps| self.validator_by(vrps))
    }

    /// The same by other VRPs.
    pub fn validator_by<'v>(&self, vrps: &'v VrpTable) -> Validator<'v> {
        Validator::new(vrps, self.own_as)
    }

    /// Whether the RPKI calls a route invalid.
    fn is_invalid(&self, attrs: &AttrRef, prefix: IpPrefix) -> bool {
        self.validator().is_some_and(|each| each.validity_of(prefix, attrs) == Validity::Invalid)
    }

    /// The deciding rule of a [`Reason`] in words.
    pub fn describe(&self, reason: Reason) -> Option<String> {
        Some(self.policy.as_ref()?.describe(reason.rule?))
    }

    /// Whether the prefix decides too, so that [`Self::prefix`] applies the policy.
    pub(super) fn is_by_prefix(&self) -> bool {
        self.reject_invalid || self.policy.as_ref().is_some_and(|policy| policy.depends_on_prefix())
    }

    /// Whether a prefix is ignored because no network has it (RFC 4271 6.3).
    pub(super) fn ignores_martians(&self) -> bool {
        self.checks.martians
    }

    /// Judges the attributes of an UPDATE; `first` is one of its prefixes.
    pub(super) fn update(
        &self,
        update: &Update<'_>,
        next_hop: NextHop,
        first: IpPrefix,
        four_octet_as: bool,
        scratch: &mut Scratch,
    ) -> Judged {
        let Scratch { builder, path } = scratch;
        let path = update.as_path(path);
        let mut received = None;
        if self.keeps != KeepRejected::None {
            build(builder, update, next_hop, path, four_octet_as);
            received = Some(self.interner.intern(builder));
        }
        let outcome = self.check(path, next_hop).and_then(|()| {
            if received.is_none() {
                build(builder, update, next_hop, path, four_octet_as);
            }
            self.built(first, builder)
        });
        Judged { received, outcome }
    }

    /// Judges a route that was kept as it was received; the result is that of receiving it now. `edit` is memory to
    /// work in.
    pub fn again(
        &self,
        received: &AttrRef,
        prefix: IpPrefix,
        edit: &mut AttrsBuilder,
    ) -> Result<AttrRef, Reason> {
        self.check(received.as_path().value(), received.next_hop())?;
        edit.load(received);
        let judged = self.built(prefix, edit)?;
        if self.checks.martians && is_martian(prefix) {
            return Err(Rejection::Martian.into());
        }
        let accepted = if self.is_by_prefix() { self.prefix(&judged, prefix, edit)? } else { judged };
        Ok(self.discarding(&accepted, prefix, edit).unwrap_or(accepted))
    }

    /// The checks that need no other attributes.
    fn check(&self, path: &[u8], next_hop: NextHop) -> Result<(), Reason> {
        self.checks.path(path)?;
        Ok(self.checks.next_hop(next_hop)?)
    }

    /// The other checks, and the policy if prefixes do not matter.
    fn built(&self, first: IpPrefix, builder: &mut AttrsBuilder) -> Result<AttrRef, Reason> {
        self.checks.attributes(builder)?;
        match &self.policy {
            None if self.peer.kind == PeerKind::External => return Err(Rejection::NoPolicy.into()),
            // It is applied to each prefix.
            _ if self.is_by_prefix() => return Ok(self.interner.intern(builder)),
            None => {}
            Some(policy) => {
                let route = RouteContext { prefix: first, peer: &self.peer, source: None, validator: None };
                if let Outcome::Reject { rule } = policy.evaluate_in_place(&route, builder) {
                    return Err(Reason { rejection: Rejection::Policy, rule: Some(rule) });
                }
            }
        }
        let attrs = self.interner.intern(builder);
        Ok(self.shutting_down(attrs, builder))
    }

    /// Applies the check of its origin and the policy to one route.
    pub(super) fn prefix(
        &self,
        attrs: &AttrRef,
        prefix: IpPrefix,
        edit: &mut AttrsBuilder,
    ) -> Result<AttrRef, Reason> {
        if self.reject_invalid && self.is_invalid(attrs, prefix) {
            return Err(Rejection::RpkiInvalid.into());
        }
        let Some(policy) = &self.policy else { return Ok(self.shutting_down(attrs.clone(), edit)) };
        let route = RouteContext { prefix, peer: &self.peer, source: None, validator: self.validator() };
        match policy.evaluate(&route, attrs, edit) {
            Outcome::Accept => Ok(self.shutting_down(attrs.clone(), edit)),
            Outcome::AcceptChanged(_) => {
                let changed = self.interner.intern(edit);
                Ok(self.shutting_down(changed, edit))
            }
            Outcome::Reject { rule } => Err(Reason { rejection: Rejection::Policy, rule: Some(rule) }),
        }
    }

    /// RFC 8326 4.1: a route from outside that will be withdrawn soon is the last choice.
    #[inline]
    fn shutting_down(&self, attrs: AttrRef, edit: &mut AttrsBuilder) -> AttrRef {
        if !attrs.has(flag::GRACEFUL_SHUTDOWN) || self.peer.kind.is_internal() {
            return attrs;
        }
        edit.load(&attrs);
        edit.local_pref = Some(LOCAL_PREF_GRACEFUL_SHUTDOWN);
        self.interner.intern(edit)
    }

    /// RFC 7999 3.3: discards the traffic for a route that policy accepted with BLACKHOLE, if that is configured
    /// for the neighbor; else `None`. The route stays in this AS (3.2).
    pub(super) fn discarding(
        &self,
        attrs: &AttrRef,
        prefix: IpPrefix,
        edit: &mut AttrsBuilder,
    ) -> Option<AttrRef> {
        if !attrs.has(flag::BLACKHOLE) || !self.honor_blackhole.covers(prefix) {
            return None;
        }
        edit.load(attrs);
        edit.discard = true;
        if attrs.flags & (flag::NO_EXPORT | flag::NO_ADVERTISE) == 0 {
            let communities: Vec<u32> = attrs.communities().chain([community::NO_EXPORT]).collect();
            if edit.set_communities(&communities).is_err() {
                // 16,383 communities leave no room for another; a route that must not leave this AS is then not
                // accepted.
                edit.load(attrs);
            }
        }
        Some(self.interner.intern(edit))
    }
}

/// Builds the stored form of an UPDATE's attributes. `as_path` comes from [`Update::as_path`].
pub fn build(
    builder: &mut AttrsBuilder,
    update: &Update<'_>,
    next_hop: NextHop,
    as_path: &[u8],
    four_octet_as: bool,
) {
    builder.clear();
    builder.origin = update.origin;
    builder.med = update.med;
    builder.local_pref = update.local_pref;
    builder.next_hop = next_hop;
    for Attribute { flags, code, value, .. } in update.attributes() {
        let aggregator;
        let value = match code {
            attribute::ORIGIN | attribute::NEXT_HOP | attribute::MED | attribute::LOCAL_PREF => continue,
            attribute::AS_PATH => as_path,
            attribute::AGGREGATOR if !four_octet_as => {
                aggregator = update.aggregator().map(Aggregator::to_bytes);
                match &aggregator {
                    Some(bytes) => bytes.as_slice(),
                    None => continue,
                }
            }
            _ => value,
        };
        // A value read from a message is not too long. A path merged from two could be, but the codec bounds it far
        // below that.
        let _ = builder.set(flags, code, value);
    }
}

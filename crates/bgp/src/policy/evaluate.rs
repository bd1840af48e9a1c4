//! Evaluates the rules of a policy for a route.
//!
//! Conditions read the original attribute set until a rule changes something, and the builder from then on; both
//! implement [`View`]. The original set has the most frequently read values as plain fields. Attributes that are in
//! the builder from the beginning have no original set.

use std::net::IpAddr;

use thalweg_wire::bgp::{AsPath, Origin, attribute};

use super::actions::{apply, family};
use super::community::CommunityViews;
use super::program::Program;
use super::rules::{Condition, Verdict};
use super::{Changed, Outcome, RouteContext, RuleId};
use crate::attrs::{Attrs, AttrsBuilder, LOCAL_PREF_DEFAULT, flag};
use crate::rpki::Validity;

/// The attributes that conditions read.
pub(super) trait View {
    fn origin(&self) -> Origin;
    fn med(&self) -> Option<u32>;
    fn local_pref(&self) -> u32;
    fn weight(&self) -> u32;
    fn next_hop(&self) -> IpAddr;
    fn as_path(&self) -> AsPath<'_>;
    fn path_facts(&self) -> PathFacts;
    fn value(&self, code: u8) -> &[u8];
    fn communities(&self) -> CommunityViews<'_>;
    fn only_to_customer(&self) -> Option<u32> {
        <[u8; 4]>::try_from(self.value(attribute::ONLY_TO_CUSTOMER)).ok().map(u32::from_be_bytes)
    }
}

/// Facts about an AS_PATH that decisions and conditions read, counted like [`Head`](crate::attrs::Head).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathFacts {
    pub(super) neighbor_as: u32,
    pub(super) origin_as: u32,
    pub(super) length: u32,
}

impl PathFacts {
    pub(super) fn of(path: AsPath<'_>) -> Self {
        let mut facts = Self::default();
        let mut first_segment = true;
        for segment in path.segments().filter(|segment| !segment.kind.is_confederation()) {
            let mut asns = segment.asns();
            let is_set = segment.kind.is_set();
            facts.length += if is_set { 1 } else { asns.len() as u32 };
            let first = asns.next().filter(|_| !is_set).unwrap_or(0);
            facts.origin_as = if is_set { 0 } else { asns.next_back().unwrap_or(first) };
            facts.neighbor_as = if first_segment { first } else { facts.neighbor_as };
            first_segment = false;
        }
        facts
    }
}

impl View for Attrs {
    #[inline]
    fn origin(&self) -> Origin {
        self.origin
    }

    #[inline]
    fn med(&self) -> Option<u32> {
        Attrs::med(self)
    }

    #[inline]
    fn local_pref(&self) -> u32 {
        self.local_pref
    }

    #[inline]
    fn weight(&self) -> u32 {
        self.weight
    }

    fn next_hop(&self) -> IpAddr {
        Attrs::next_hop(self).address()
    }

    #[inline]
    fn as_path(&self) -> AsPath<'_> {
        Attrs::as_path(self)
    }

    #[inline]
    fn path_facts(&self) -> PathFacts {
        PathFacts {
            neighbor_as: self.neighbor_as,
            origin_as: self.origin_as,
            length: u32::from(self.path_length),
        }
    }

    #[inline]
    fn value(&self, code: u8) -> &[u8] {
        self.get(code).unwrap_or(&[])
    }

    #[inline]
    fn communities(&self) -> CommunityViews<'_> {
        const ANY: u16 = flag::COMMUNITIES | flag::EXTENDED_COMMUNITIES | flag::LARGE_COMMUNITIES;
        if self.flags & ANY == 0 {
            return CommunityViews::default();
        }
        CommunityViews::of(self.attributes())
    }
}

impl View for AttrsBuilder {
    fn origin(&self) -> Origin {
        self.origin
    }

    fn med(&self) -> Option<u32> {
        self.med
    }

    fn local_pref(&self) -> u32 {
        self.local_pref.unwrap_or(LOCAL_PREF_DEFAULT)
    }

    fn weight(&self) -> u32 {
        self.weight
    }

    fn next_hop(&self) -> IpAddr {
        self.next_hop.address()
    }

    fn as_path(&self) -> AsPath<'_> {
        AttrsBuilder::as_path(self)
    }

    fn path_facts(&self) -> PathFacts {
        PathFacts::of(AttrsBuilder::as_path(self))
    }

    fn value(&self, code: u8) -> &[u8] {
        self.get(code).unwrap_or(&[])
    }

    fn communities(&self) -> CommunityViews<'_> {
        CommunityViews::of(self.attributes())
    }
}

impl Condition {
    #[inline]
    pub(super) fn holds(&self, route: &RouteContext<'_>, attrs: &(impl View + ?Sized)) -> bool {
        match self {
            Self::Prefix(set) => set.contains(route.prefix),
            Self::PrefixLength(range) => range.contains(u32::from(route.prefix.length())),
            Self::Family(wanted) => *wanted == family(route.prefix),
            Self::AsPath(patterns) => {
                let path = attrs.as_path();
                patterns.iter().any(|pattern| pattern.matches(path))
            }
            // 0 stands for "none", and no AS has this number (RFC 7607).
            Self::OriginAs(set) => {
                let asn = attrs.path_facts().origin_as;
                asn != 0 && set.contains(asn)
            }
            Self::NeighborAs(set) => {
                let asn = attrs.path_facts().neighbor_as;
                asn != 0 && set.contains(asn)
            }
            Self::AnyAs(set) => {
                attrs.as_path().segments().any(|segment| segment.asns().any(|asn| set.contains(asn)))
            }
            Self::PathLength(range) => range.contains(attrs.path_facts().length),
            Self::CommunityAny(set) => set.any(&attrs.communities()),
            Self::CommunityAll(set) => set.all(&attrs.communities()),
            Self::CommunityNone(set) => !set.any(&attrs.communities()),
            Self::CommunityCount(range) => range.contains(attrs.communities().count()),
            Self::Origin(origins) => origins.contains(&attrs.origin()),
            Self::Med(range) => attrs.med().is_some_and(|med| range.contains(med)),
            Self::LocalPref(range) => range.contains(attrs.local_pref()),
            Self::Weight(range) => range.contains(attrs.weight()),
            Self::NextHop(set) => set.covers_address(attrs.next_hop()),
            Self::Neighbor(patterns) => patterns.iter().any(|each| each.matches(Some(route.peer))),
            Self::Source(patterns) => patterns.iter().any(|each| each.matches(route.source)),
            Self::OnlyToCustomer(wanted) => attrs.only_to_customer().is_some() == *wanted,
            Self::OnlyToCustomerAs(set) => attrs.only_to_customer().is_some_and(|asn| set.contains(asn)),
            Self::Validity(wanted) => {
                let facts = attrs.path_facts();
                let validity = route.validator.map_or(Validity::NotFound, |validator| {
                    validator.validity(route.prefix, facts.origin_as, facts.length)
                });
                wanted.contains(&validity)
            }
        }
    }
}

/// The verdict and the deciding rule.
type Decision = (Verdict, RuleId);

/// The evaluation of one route.
pub(super) struct Evaluation<'a> {
    program: &'a Program,
    route: &'a RouteContext<'a>,
    /// The attributes; `None` if `edit` holds them.
    original: Option<&'a Attrs>,
    edit: &'a mut AttrsBuilder,
    /// Set if a rule has changed the route.
    changed: Option<Changed>,
}

impl<'a> Evaluation<'a> {
    #[inline]
    pub(super) fn run(
        program: &'a Program,
        route: &'a RouteContext<'a>,
        original: Option<&'a Attrs>,
        edit: &'a mut AttrsBuilder,
    ) -> Outcome {
        let mut evaluation = Self { program, route, original, edit, changed: None };
        let mut decision = None;
        for set in &program.chain {
            decision = evaluation.ask(*set);
            if decision.is_some() {
                break;
            }
        }
        match (decision, evaluation.changed) {
            (Some((Verdict::Accept, _)), None) => Outcome::Accept,
            (Some((Verdict::Accept, _)), Some(changed)) => Outcome::AcceptChanged(changed),
            (Some((Verdict::Reject, rule)), _) => Outcome::Reject { rule },
            (None, _) => Outcome::Reject { rule: RuleId::END },
        }
    }

    fn ask(&mut self, index: u16) -> Option<Decision> {
        let set = self.program.sets.get(usize::from(index))?;
        for (place, rule) in set.rules.iter().enumerate() {
            if !self.all(&rule.conditions) || !rule.unless.is_empty() && self.all(&rule.unless) {
                continue;
            }
            let id = RuleId { set: index, rule: place as u16 };
            for action in &rule.actions {
                if let Some(original) = self.original.take() {
                    self.edit.load(original);
                }
                let changed = self.changed.get_or_insert_default();
                if apply(action, self.route, self.edit, changed).is_err() {
                    // A value that does not fit into an attribute cannot be announced.
                    return Some((Verdict::Reject, id));
                }
            }
            if let Some(decision) = rule.call.and_then(|called| self.ask(called)) {
                return Some(decision);
            }
            if let Some(verdict) = rule.verdict {
                return Some((verdict, id));
            }
        }
        let id = RuleId { set: index, rule: set.rules.len() as u16 };
        set.default.map(|verdict| (verdict, id))
    }

    #[inline]
    fn all(&self, conditions: &[Condition]) -> bool {
        match self.original {
            Some(attrs) => conditions.iter().all(|each| each.holds(self.route, attrs)),
            None => conditions.iter().all(|each| each.holds(self.route, &*self.edit)),
        }
    }
}

//! The language of rules: conditions, actions, and sets of rules that call each other by name.
//!
//! A [`RuleLibrary`] holds the rule sets of a configuration; [`Policy::compile`](super::Policy::compile) compiles a
//! policy from some of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Family, Origin};

use super::{AsPathPattern, CommunityList, CommunitySet, NumberSet, PrefixSet};
use crate::peer::{PeerInfo, PeerKind, Role};
use crate::rpki::Validity;

/// The final decision about a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Accept,
    Reject,
}

/// A named list of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    pub rules: Vec<Rule>,
    /// The decision if no rule decides; with `None`, the caller of the set continues.
    pub default: Option<Verdict>,
}

/// If the conditions hold, applies the actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// For logs; may be empty.
    pub name: Arc<str>,
    pub conditions: Vec<Condition>,
    /// The rule does not apply if all of these hold, unless the list is empty.
    pub unless: Vec<Condition>,
    /// Applied in order.
    pub actions: Vec<Action>,
    /// A rule set to evaluate next, which may decide.
    pub call: Option<Arc<str>>,
    /// With `None`, the next rule is evaluated.
    pub verdict: Option<Verdict>,
}

/// A range of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    pub first: u32,
    pub last: u32,
}

impl Between {
    /// Whether the range contains the number.
    #[inline]
    pub fn contains(self, number: u32) -> bool {
        self.first <= number && number <= self.last
    }
}

/// A condition on a route. Of a list, any entry may hold unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The set admits the prefix.
    Prefix(Arc<PrefixSet>),
    PrefixLength(Between),
    Family(Family),
    /// A pattern matches the AS_PATH.
    AsPath(Arc<[AsPathPattern]>),
    /// The originating AS: the last of the AS_PATH.
    OriginAs(Arc<NumberSet>),
    /// The neighboring AS: the first of the AS_PATH.
    NeighborAs(Arc<NumberSet>),
    /// An AS anywhere in the AS_PATH, including sets and confederation segments.
    AnyAs(Arc<NumberSet>),
    /// The length of the AS_PATH as decisions count it.
    PathLength(Between),
    /// The route has a community of the set.
    CommunityAny(Arc<CommunitySet>),
    /// The route has a community for every entry of the set.
    CommunityAll(Arc<CommunitySet>),
    /// The route has no community of the set.
    CommunityNone(Arc<CommunitySet>),
    /// The number of communities of all kinds.
    CommunityCount(Between),
    Origin(Vec<Origin>),
    /// MULTI_EXIT_DISC; never holds for a route without it.
    Med(Between),
    /// LOCAL_PREF, or 100 if the route has none.
    LocalPref(Between),
    Weight(Between),
    /// A prefix of the set contains the next hop, whatever lengths it admits.
    NextHop(Arc<PrefixSet>),
    /// The neighbor whose policy this is.
    Neighbor(Arc<[PeerPattern]>),
    /// The sender of the route; at import, the neighbor itself.
    Source(Arc<[PeerPattern]>),
    /// Whether ONLY_TO_CUSTOMER is present.
    OnlyToCustomer(bool),
    /// ONLY_TO_CUSTOMER is present with one of these numbers.
    OnlyToCustomerAs(Arc<NumberSet>),
    /// What the RPKI says of its origin; not-found where there is none.
    Validity(Vec<Validity>),
}

/// Matches neighbors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerPattern {
    Name(Arc<str>),
    Address(IpAddr),
    /// Any address of the prefix except these: the form of a group with dynamic neighbors.
    Range {
        prefix: IpPrefix,
        /// Neighbors with their own configuration.
        except: Arc<[IpAddr]>,
    },
    As(Arc<NumberSet>),
    Kind(PeerKind),
    Role(Role),
    /// No neighbor: the route originates here.
    Local,
}

impl PeerPattern {
    /// Whether the pattern matches the neighbor, or the absence of one.
    pub fn matches(&self, peer: Option<&PeerInfo>) -> bool {
        let Some(peer) = peer else { return matches!(self, Self::Local) };
        match self {
            Self::Name(name) => *name == peer.name,
            Self::Address(address) => *address == peer.address,
            Self::Range { prefix, except } => {
                prefix.contains(peer.address) && !except.contains(&peer.address)
            }
            Self::As(numbers) => numbers.contains(peer.remote_as),
            Self::Kind(PeerKind::Internal) => peer.kind.is_internal(),
            Self::Kind(kind) => *kind == peer.kind,
            Self::Role(role) => peer.role == Some(*role),
            Self::Local => false,
        }
    }
}

/// A new value, or a change of the old one. Sums saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Set(u32),
    Add(u32),
    Subtract(u32),
}

impl Amount {
    /// The new value.
    pub fn apply(self, old: u32) -> u32 {
        match self {
            Self::Set(value) => value,
            Self::Add(more) => old.saturating_add(more),
            Self::Subtract(less) => old.saturating_sub(less),
        }
    }
}

/// The AS number to prepend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrependAs {
    /// Our AS in the session.
    Own,
    /// The first AS of the path; an empty path stays.
    Last,
    Given(u32),
}

/// How often one rule may prepend an AS number; most networks filter longer paths.
pub const PREPEND_MAX: u8 = 32;

/// A change to a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    LocalPref(Amount),
    /// A route without MULTI_EXIT_DISC counts as 0.
    Med(Amount),
    MedRemove,
    Weight(u32),
    Origin(Origin),
    /// Sets the next hop of routes of the address's family; others keep theirs.
    NextHop {
        /// For IPv4 routes.
        v4: Option<Ipv4Addr>,
        v6: Option<Ipv6Addr>,
    },
    /// Sets the next hop to our address in the session.
    NextHopSelf,
    /// Keeps the next hop, also toward external neighbors.
    NextHopUnchanged,
    /// Sets the next hop to the neighbor's own address.
    NextHopPeer,
    /// Prepends an AS number to the AS_PATH.
    Prepend {
        asn: PrependAs,
        /// At most [`PREPEND_MAX`].
        count: u8,
    },
    /// Removes private AS numbers (RFC 6996) from the AS_PATH.
    RemovePrivateAs,
    /// Replaces private AS numbers by ours.
    ReplacePrivateAs,
    /// Replaces all communities.
    CommunitiesSet(Arc<CommunityList>),
    /// Adds the communities that are missing.
    CommunitiesAdd(Arc<CommunityList>),
    /// Removes the communities in the set.
    CommunitiesRemove(Arc<CommunitySet>),
    /// If the route has a community of the set, removes all those in the set and adds the list.
    CommunitiesReplace(Arc<CommunitySet>, Arc<CommunityList>),
    /// Sets whether this router discards the traffic for the route. Never set for a default route.
    Discard(bool),
}

/// The rule sets of a configuration, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLibrary {
    pub sets: BTreeMap<Arc<str>, RuleSet>,
}

/// The deepest nesting of calls between rule sets.
pub const CALLS_MAX: usize = 16;

/// The most rule sets of a policy, and the most rules of a set.
pub const RULES_MAX: usize = 60_000;

/// The name of the built-in rule set that accepts everything.
pub const ACCEPT: &str = "accept";

/// The name of the built-in rule set that rejects everything.
pub const REJECT: &str = "reject";

/// Why rule sets cannot be compiled to a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("no rule set is called `{name}`")]
    Unknown { name: Arc<str> },
    #[error("rule sets call each other in a loop: {}", .names.join(" -> "))]
    Cycle {
        /// The names along the loop, with the first repeated at the end.
        names: Vec<Arc<str>>,
    },
    #[error("rule sets call each other more than {CALLS_MAX} deep at `{name}`")]
    TooDeep {
        /// The rule set that is called too deep.
        name: Arc<str>,
    },
    #[error("more than {RULES_MAX} rules or rule sets at `{name}`")]
    TooMany {
        /// The rule set.
        name: Arc<str>,
    },
}

//! What rules say: conditions, actions, and sets of rules that call each other by name.
//!
//! A [`RuleLibrary`] holds the rule sets of a configuration; [`Policy::compile`](super::Policy::compile) makes
//! a policy of some of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Family, Origin};

use super::{AsPathPattern, CommunityList, CommunitySet, NumberSet, PrefixSet};
use crate::peer::{PeerInfo, PeerKind, Role};

/// The end of a route's way through the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It does not.
    Reject,
}

/// Rules in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    pub rules: Vec<Rule>,
    /// What becomes of a route that no rule decided; `None`: the caller of the set goes on.
    pub default: Option<Verdict>,
}

/// If all conditions hold, then do all of this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What logs call it; may be empty.
    pub name: Arc<str>,
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// And not all of these, unless there are none.
    pub unless: Vec<Condition>,
    /// What is changed, in order.
    pub actions: Vec<Action>,
    /// A rule set that is asked next; if it decides, that is it.
    pub call: Option<Arc<str>>,
    /// The decision; `None`: the next rule is asked.
    pub verdict: Option<Verdict>,
}

/// Numbers from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// The least.
    pub first: u32,
    /// The greatest.
    pub last: u32,
}

impl Between {
    /// Whether the number is one of them.
    #[inline]
    pub fn contains(self, number: u32) -> bool {
        self.first <= number && number <= self.last
    }
}

/// What can be asked about a route. Of lists, any entry may hold unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The set admits the prefix.
    Prefix(Arc<PrefixSet>),
    PrefixLength(Between),
    /// The address family.
    Family(Family),
    /// A pattern fits the AS_PATH.
    AsPath(Arc<[AsPathPattern]>),
    /// The AS that announced the route first: the last of the AS_PATH.
    OriginAs(Arc<NumberSet>),
    /// The AS the route came from: the first of the AS_PATH.
    NeighborAs(Arc<NumberSet>),
    /// An AS anywhere in the AS_PATH, sets and confederation segments included.
    AnyAs(Arc<NumberSet>),
    /// The length of the AS_PATH as decisions count it.
    PathLength(Between),
    /// A community of the set is there.
    CommunityAny(Arc<CommunitySet>),
    /// Every entry of the set has a community.
    CommunityAll(Arc<CommunitySet>),
    /// No community of the set is there.
    CommunityNone(Arc<CommunitySet>),
    /// How many communities of all kinds there are.
    CommunityCount(Between),
    Origin(Vec<Origin>),
    /// MULTI_EXIT_DISC; a route without it does not fit.
    Med(Between),
    /// LOCAL_PREF, 100 if there is none.
    LocalPref(Between),
    Weight(Between),
    /// The next hop lies in a prefix of the set, whatever lengths it admits.
    NextHop(Arc<PrefixSet>),
    /// The neighbor whose policy this is.
    Neighbor(Arc<[PeerPattern]>),
    /// At export: who sent the route. At import the neighbor itself.
    Source(Arc<[PeerPattern]>),
    /// ONLY_TO_CUSTOMER is there (`true`) or not.
    OnlyToCustomer(bool),
    /// ONLY_TO_CUSTOMER is there with one of these numbers.
    OnlyToCustomerAs(Arc<NumberSet>),
}

/// What a neighbor may look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerPattern {
    Name(Arc<str>),
    Address(IpAddr),
    /// Any address of the prefix but these: how a group with dynamic neighbors is said.
    Range {
        /// Where its address lies.
        prefix: IpPrefix,
        /// Neighbors that have a place of their own.
        except: Arc<[IpAddr]>,
    },
    As(Arc<NumberSet>),
    /// What it is to us.
    Kind(PeerKind),
    Role(Role),
    /// No neighbor: the route originates here.
    Local,
}

impl PeerPattern {
    /// Whether the neighbor, or nobody, looks like it.
    pub fn matches(&self, peer: Option<&PeerInfo>) -> bool {
        let Some(peer) = peer else { return matches!(self, Self::Local) };
        match self {
            Self::Name(name) => *name == peer.name,
            Self::Address(address) => *address == peer.address,
            Self::Range { prefix, except } => {
                let inside = match (prefix, peer.address) {
                    (IpPrefix::V4(prefix), IpAddr::V4(address)) => prefix.contains(u32::from(address)),
                    (IpPrefix::V6(prefix), IpAddr::V6(address)) => prefix.contains(u128::from(address)),
                    _ => false,
                };
                inside && !except.contains(&peer.address)
            }
            Self::As(numbers) => numbers.contains(peer.remote_as),
            Self::Kind(PeerKind::Internal) => peer.kind.is_internal(),
            Self::Kind(kind) => *kind == peer.kind,
            Self::Role(role) => peer.role == Some(*role),
            Self::Local => false,
        }
    }
}

/// A new value, or how the old one changes; sums end at the ends of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This value.
    Set(u32),
    /// So much more.
    Add(u32),
    /// So much less.
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

/// Which AS number is put before the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrependAs {
    /// Ours toward the neighbor.
    Own,
    /// The one the path begins with; nothing happens to an empty path.
    Last,
    Given(u32),
}

/// How often one rule may prepend an AS number: longer paths are filtered by most networks.
pub const PREPEND_MAX: u8 = 32;

/// What a rule changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// LOCAL_PREF.
    LocalPref(Amount),
    /// MULTI_EXIT_DISC; a route without it counts as 0.
    Med(Amount),
    /// No MULTI_EXIT_DISC.
    MedRemove,
    Weight(u32),
    Origin(Origin),
    /// The next hop of routes of the address's family; others keep theirs.
    NextHop {
        /// For IPv4 routes.
        v4: Option<Ipv4Addr>,
        /// For IPv6 routes.
        v6: Option<Ipv6Addr>,
    },
    /// Our address toward the neighbor becomes the next hop.
    NextHopSelf,
    /// The next hop stays, toward external neighbors too.
    NextHopUnchanged,
    /// The neighbor's own address becomes the next hop.
    NextHopPeer,
    /// An AS number is put before the AS_PATH.
    Prepend {
        asn: PrependAs,
        /// How often, at most [`PREPEND_MAX`].
        count: u8,
    },
    /// Private AS numbers (RFC 6996) leave the AS_PATH.
    RemovePrivateAs,
    /// Private AS numbers become ours.
    ReplacePrivateAs,
    /// The route has exactly these communities.
    CommunitiesSet(Arc<CommunityList>),
    /// These are added, unless they are there.
    CommunitiesAdd(Arc<CommunityList>),
    /// Those in the set go.
    CommunitiesRemove(Arc<CommunitySet>),
    /// If one of the set is there, all of it goes and these come.
    CommunitiesReplace(Arc<CommunitySet>, Arc<CommunityList>),
    /// This router discards what the route attracts, or no longer does. Never so for a default route.
    Discard(bool),
}

/// Rule sets by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLibrary {
    /// The rule sets.
    pub sets: BTreeMap<Arc<str>, RuleSet>,
}

/// How deep rule sets may call each other.
pub const CALLS_MAX: usize = 16;

/// Rule sets that one policy may consist of, and rules of a set.
pub const RULES_MAX: usize = 60_000;

/// The name of the built-in rule set that accepts everything.
pub const ACCEPT: &str = "accept";

/// The name of the built-in rule set that rejects everything.
pub const REJECT: &str = "reject";

/// Why rule sets do not make a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No rule set has this name.
    #[error("no rule set is called `{name}`")]
    Unknown { name: Arc<str> },
    /// A rule set calls itself, directly or through others.
    #[error("rule sets call each other in a loop: {}", .names.join(" -> "))]
    Cycle {
        /// The names on the way, the first again at the end.
        names: Vec<Arc<str>>,
    },
    /// Calls within calls within calls.
    #[error("rule sets call each other more than {CALLS_MAX} deep at `{name}`")]
    TooDeep {
        /// Where it becomes too deep.
        name: Arc<str>,
    },
    /// Too many rules.
    #[error("more than {RULES_MAX} rules or rule sets at `{name}`")]
    TooMany {
        /// The rule set.
        name: Arc<str>,
    },
}

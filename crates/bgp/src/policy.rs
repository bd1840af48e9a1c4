//! Import and export policy: named sets of rules that accept, reject and change routes.
//!
//! ```text
//! Policy = chain of rule sets          rule set = rules in order, then perhaps a default
//!   rule = conditions, all of which must hold -> actions -> another rule set -> accept | reject | next
//! ```
//!
//! A route passes the rule sets of the chain in order. The first rule that accepts or rejects decides. `next` (and
//! a called rule set that does not decide) continues with the next rule; a rule set without a default continues
//! with the next of the chain. A route that nothing decided is rejected (RFC 8212 asks for that default). Rules see
//! the changes of earlier rules; the changes of a rejected route are dropped.
//!
//! Everything is compiled before the first route: prefix sets to hash tables by length, AS-path patterns to
//! automata over AS numbers, AS and community sets to sorted arrays. A [`Policy`] is immutable; a new configuration
//! makes a new one. Evaluation allocates only if a rule changes attributes.

mod actions;
mod as_path;
mod community;
mod evaluate;
mod numbers;
mod prefix_set;
mod program;
mod rules;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thalweg_base::IpPrefix;

use crate::attrs::{Attrs, AttrsBuilder};
use crate::peer::PeerInfo;
use crate::rpki::Validator;

pub use as_path::{AsPathError, AsPathPattern, AsPathProblem, GROUPS_MAX, PATTERN_MAX_BYTES, POSITIONS_MAX};
pub use community::{
    Community, CommunityError, CommunityList, CommunityPattern, CommunityProblem, CommunitySet,
    community_names,
};
use evaluate::Evaluation;
pub use numbers::NumberSet;
pub use prefix_set::{PrefixEntry, PrefixEntryError, PrefixEntryProblem, PrefixSet};
use program::Program;
pub use rules::{
    ACCEPT, Action, Amount, Between, CALLS_MAX, Condition, PREPEND_MAX, PeerPattern, PolicyError, PrependAs,
    REJECT, RULES_MAX, Rule, RuleLibrary, RuleSet, Verdict,
};

/// A route as a policy sees it, without its attributes.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    pub prefix: IpPrefix,
    /// The neighbor whose policy this is: the sender at import, the receiver at export.
    pub peer: &'a PeerInfo,
    /// At export, the sender of the route; `None` at import and for routes that originate here.
    pub source: Option<&'a PeerInfo>,
    /// Says how valid the route is; `None` where no RPKI is configured, and at export.
    pub validator: Option<Validator<'a>>,
}

/// The decision about a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The route passes unchanged.
    Accept,
    /// The route passes with the attributes that are now in the builder.
    AcceptChanged(Changed),
    Reject {
        /// The deciding rule; [`Policy::describe`] puts it in words.
        rule: RuleId,
    },
}

/// Changes that the attributes do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Set if policy decided the next hop, so that export does not apply its own rule.
    pub next_hop: NextHopChoice,
    /// Policy set or removed the MED: export neither drops nor adds one.
    pub med: bool,
}

/// The policy's decision about the next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHopChoice {
    /// The usual rules of import and export apply.
    #[default]
    Usual,
    /// Use the builder's next hop: `unchanged`, or an address from the policy.
    Keep,
    /// Our address in the session. The builder already has it if its family is the session's.
    Own,
}

/// The rule, or the end of a rule set, that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId {
    /// The index of the rule set in the policy.
    set: u16,
    /// The index of the rule in the set; the number of rules stands for the default.
    rule: u16,
}

impl RuleId {
    /// No rule decided, and no rule set has a default.
    const END: Self = Self { set: u16::MAX, rule: 0 };
}

/// Rules for the routes of a neighbor in one direction, immutable. Two are equal if they do the same to every route
/// for the same reasons, so that neighbors with equal policies can share an update group, and a reload detects
/// which policies changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    name: Arc<str>,
    program: Program,
    depends_on_prefix: bool,
    depends_on_neighbor: bool,
    depends_on_source: bool,
    depends_on_validity: bool,
}

impl Policy {
    /// Accepts every route unchanged.
    pub fn accept_all() -> Self {
        Self::compile(&RuleLibrary::default(), &[ACCEPT.into()]).unwrap_or_else(|_| Self::reject_all())
    }

    /// Rejects every route.
    pub fn reject_all() -> Self {
        Self::from_program(REJECT.into(), Program { sets: [].into(), chain: [].into() })
    }

    /// Compiles these rule sets, applied in order. [`ACCEPT`] and [`REJECT`] need no definition.
    pub fn compile(library: &RuleLibrary, chain: &[Arc<str>]) -> Result<Self, PolicyError> {
        Ok(Self::from_program(chain.join(", ").into(), Program::new(library, chain)?))
    }

    fn from_program(name: Arc<str>, program: Program) -> Self {
        Self {
            name,
            depends_on_prefix: program.depends_on_prefix(),
            depends_on_neighbor: program.depends_on_neighbor(),
            depends_on_source: program.depends_on_source(),
            depends_on_validity: program.depends_on_validity(),
            program,
        }
    }

    /// The configured names of its rule sets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the decision can differ between two prefixes of one family with the same attributes. If not, one
    /// evaluation serves all of them.
    pub fn depends_on_prefix(&self) -> bool {
        self.depends_on_prefix
    }

    /// Whether the decision can differ between two neighbors with this policy, the same local AS and the same local
    /// address. If so, they cannot share an update group.
    pub fn depends_on_neighbor(&self) -> bool {
        self.depends_on_neighbor
    }

    /// Whether the decision can differ between two senders of the same attributes. If not, export evaluates each
    /// attribute set only once.
    pub fn depends_on_source(&self) -> bool {
        self.depends_on_source
    }

    /// Whether the decision can differ under other VRPs. At export nothing says how valid a route is.
    pub fn depends_on_validity(&self) -> bool {
        self.depends_on_validity
    }

    /// Decides about a route. After [`Outcome::AcceptChanged`], `edit` holds the new attributes; otherwise its
    /// content is meaningless.
    #[inline]
    pub fn evaluate(&self, route: &RouteContext<'_>, attrs: &Attrs, edit: &mut AttrsBuilder) -> Outcome {
        Evaluation::run(&self.program, route, Some(attrs), edit)
    }

    /// Decides about a route whose attributes are in `edit`, where they are changed. A set that the policy rejects
    /// or changes is then never stored.
    #[inline]
    pub fn evaluate_in_place(&self, route: &RouteContext<'_>, edit: &mut AttrsBuilder) -> Outcome {
        Evaluation::run(&self.program, route, None, edit)
    }

    /// Describes a rule for logs and `show`: "customers-in, rule 3 (no-bogons)".
    pub fn describe(&self, rule: RuleId) -> String {
        self.program.describe(rule)
    }
}

impl Hash for Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

#[cfg(test)]
mod tests;

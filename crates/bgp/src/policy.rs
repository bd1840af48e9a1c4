//! Import and export policy: named sets of rules that accept, reject and change routes.
//!
//! ```text
//! Policy = chain of rule sets          rule set = rules in order, then perhaps a default
//!   rule = conditions, all of which must hold -> actions -> another rule set -> accept | reject | next
//! ```
//!
//! A route goes through the rule sets of the chain in order. The first rule that accepts or rejects decides;
//! `next` (and a called rule set that does not decide) goes on with the next rule, a rule set that ends
//! without a default with the next of the chain, and a route that nothing decided is rejected (RFC 8212 asks
//! for that default). Rules see what earlier rules changed; what a rejected route went through is forgotten.
//!
//! Everything is compiled before the first route comes: prefix sets to hash tables by length, AS-path patterns
//! to automata over AS numbers, AS and community sets to sorted arrays. A [`Policy`] never changes; a new
//! configuration makes a new one. Evaluation allocates only when a rule changes attributes.

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

/// What a policy knows of a route besides its attributes.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    /// Where it leads.
    pub prefix: IpPrefix,
    /// The neighbor whose policy this is: the sender at import, the receiver at export.
    pub peer: &'a PeerInfo,
    /// At export: who sent it; `None` at import and for routes that originate here.
    pub source: Option<&'a PeerInfo>,
}

/// What becomes of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passes as it is.
    Accept,
    /// It passes with the attributes that the builder holds now.
    AcceptChanged(Changed),
    /// It does not pass.
    Reject {
        /// What decided; [`Policy::describe`] says it in words.
        rule: RuleId,
    },
}

/// What the attributes do not say about a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// What was decided about the next hop, so that export does not apply its own rule to it.
    pub next_hop: NextHopChoice,
    /// The MED is what policy made it (or none): export neither drops nor adds one.
    pub med: bool,
}

/// What policy decided about the next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHopChoice {
    /// Nothing: the usual rules of import and export hold.
    #[default]
    Usual,
    /// The builder's next hop is to be used: `unchanged`, or an address that policy gave.
    Keep,
    /// Our own address toward the neighbor. The builder has it already where its family is the session's.
    Own,
}

/// Which rule, or which end of a rule set, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId {
    /// Place of the rule set in the policy.
    set: u16,
    /// Place of the rule in it; the number of rules for its default.
    rule: u16,
}

impl RuleId {
    /// No rule decided and no rule set has a default.
    const END: Self = Self { set: u16::MAX, rule: 0 };
}

/// Rules for the routes of a neighbor, in one direction. Immutable. Two are equal if they do the same to every
/// route for the same reasons, so that neighbors with equal policies can share an update group and a reload
/// sees which policies changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    name: Arc<str>,
    program: Program,
    depends_on_prefix: bool,
    depends_on_neighbor: bool,
    depends_on_source: bool,
}

impl Policy {
    /// Accepts every route as it is.
    pub fn accept_all() -> Self {
        Self::compile(&RuleLibrary::default(), &[ACCEPT.into()]).unwrap_or_else(|_| Self::reject_all())
    }

    /// Rejects every route.
    pub fn reject_all() -> Self {
        Self::from_program(REJECT.into(), Program { sets: [].into(), chain: [].into() })
    }

    /// The policy that these rule sets are, one after the other. [`ACCEPT`] and [`REJECT`] need no definition.
    pub fn compile(library: &RuleLibrary, chain: &[Arc<str>]) -> Result<Self, PolicyError> {
        Ok(Self::from_program(chain.join(", ").into(), Program::new(library, chain)?))
    }

    fn from_program(name: Arc<str>, program: Program) -> Self {
        Self {
            name,
            depends_on_prefix: program.depends_on_prefix(),
            depends_on_neighbor: program.depends_on_neighbor(),
            depends_on_source: program.depends_on_source(),
            program,
        }
    }

    /// What the configuration calls it: the names of its rule sets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the answer can differ between two prefixes of one family with the same attributes. If not, one
    /// evaluation serves all of them.
    pub fn depends_on_prefix(&self) -> bool {
        self.depends_on_prefix
    }

    /// Whether the answer can differ between two neighbors that have this policy and the same local AS and
    /// local address. If so, they cannot share an update group.
    pub fn depends_on_neighbor(&self) -> bool {
        self.depends_on_neighbor
    }

    /// Whether the answer can differ between two senders of the same attributes. If not, export needs to ask
    /// only once for each attribute set.
    pub fn depends_on_source(&self) -> bool {
        self.depends_on_source
    }

    /// Decides about a route. With [`Outcome::AcceptChanged`], `edit` holds the new attributes; otherwise what
    /// it holds means nothing.
    #[inline]
    pub fn evaluate(&self, route: &RouteContext<'_>, attrs: &Attrs, edit: &mut AttrsBuilder) -> Outcome {
        Evaluation::run(&self.program, route, attrs, edit)
    }

    /// A rule in words, for logs and `show`: "customers-in, rule 3 (no-bogons)".
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

//! Compiles rule sets: resolves names to indexes and keeps only what a policy reaches.

use std::sync::Arc;

use super::RuleId;
use super::rules::{
    ACCEPT, Action, CALLS_MAX, Condition, PolicyError, REJECT, RULES_MAX, Rule, RuleLibrary, RuleSet, Verdict,
};

/// All rule sets that a policy can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) sets: Box<[CompiledSet]>,
    /// The sets to evaluate, in order.
    pub(super) chain: Box<[u16]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledSet {
    pub(super) name: Arc<str>,
    pub(super) rules: Box<[CompiledRule]>,
    pub(super) default: Option<Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledRule {
    name: Arc<str>,
    pub(super) conditions: Box<[Condition]>,
    pub(super) unless: Box<[Condition]>,
    pub(super) actions: Box<[Action]>,
    pub(super) call: Option<u16>,
    pub(super) verdict: Option<Verdict>,
}

impl Program {
    /// Compiles the rule sets of these names, and those that they call.
    pub(super) fn new(library: &RuleLibrary, chain: &[Arc<str>]) -> Result<Self, PolicyError> {
        let mut compiler = Compiler { library, places: Vec::new(), sets: Vec::new(), open: Vec::new() };
        let chain = chain.iter().map(|name| compiler.set(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { sets: compiler.sets.into(), chain: chain.into() })
    }

    pub(super) fn describe(&self, id: RuleId) -> String {
        let Some(set) = self.sets.get(usize::from(id.set)) else {
            return "no rule decided".to_owned();
        };
        match set.rules.get(usize::from(id.rule)) {
            None => format!("default of {}", set.name),
            Some(rule) if rule.name.is_empty() => format!("{}, rule {}", set.name, id.rule + 1),
            Some(rule) => format!("{}, rule {} ({})", set.name, id.rule + 1, rule.name),
        }
    }

    fn rules(&self) -> impl Iterator<Item = &CompiledRule> {
        self.sets.iter().flat_map(|set| &set.rules)
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.rules().flat_map(|rule| rule.conditions.iter().chain(&rule.unless))
    }

    pub(super) fn depends_on_prefix(&self) -> bool {
        let by_action = |action: &Action| matches!(action, Action::Discard(_));
        let by_condition = |each: &Condition| {
            matches!(each, Condition::Prefix(_) | Condition::PrefixLength(_) | Condition::Validity(_))
        };
        self.conditions().any(by_condition) || self.rules().any(|rule| rule.actions.iter().any(by_action))
    }

    pub(super) fn depends_on_neighbor(&self) -> bool {
        let by_action = |action: &Action| matches!(action, Action::NextHopPeer);
        self.conditions().any(|each| matches!(each, Condition::Neighbor(_)))
            || self.rules().any(|rule| rule.actions.iter().any(by_action))
    }

    pub(super) fn depends_on_source(&self) -> bool {
        self.conditions().any(|each| matches!(each, Condition::Source(_)))
    }

    pub(super) fn depends_on_validity(&self) -> bool {
        self.conditions().any(|each| matches!(each, Condition::Validity(_)))
    }
}

struct Compiler<'a> {
    library: &'a RuleLibrary,
    /// The names of the sets, by index.
    places: Vec<Arc<str>>,
    sets: Vec<CompiledSet>,
    /// The sets whose calls are being followed, to detect loops.
    open: Vec<Arc<str>>,
}

impl Compiler<'_> {
    fn set(&mut self, name: &Arc<str>) -> Result<u16, PolicyError> {
        if let Some(start) = self.open.iter().position(|open| open == name) {
            let names = self.open.iter().skip(start).chain([name]).cloned().collect();
            return Err(PolicyError::Cycle { names });
        }
        if let Some(place) = self.places.iter().position(|placed| placed == name) {
            return Ok(place as u16);
        }
        if self.open.len() >= CALLS_MAX {
            return Err(PolicyError::TooDeep { name: name.clone() });
        }
        let builtin;
        let set = match self.library.sets.get(name) {
            Some(set) => set,
            None => {
                let default = match &**name {
                    ACCEPT => Verdict::Accept,
                    REJECT => Verdict::Reject,
                    _ => return Err(PolicyError::Unknown { name: name.clone() }),
                };
                builtin = RuleSet { rules: Vec::new(), default: Some(default) };
                &builtin
            }
        };
        if set.rules.len() > RULES_MAX || self.sets.len() >= RULES_MAX {
            return Err(PolicyError::TooMany { name: name.clone() });
        }
        self.open.push(name.clone());
        let rules = set.rules.iter().map(|rule| self.rule(rule)).collect::<Result<Vec<_>, _>>()?;
        self.open.pop();
        self.places.push(name.clone());
        self.sets.push(CompiledSet { name: name.clone(), rules: rules.into(), default: set.default });
        Ok((self.sets.len() - 1) as u16)
    }

    fn rule(&mut self, rule: &Rule) -> Result<CompiledRule, PolicyError> {
        Ok(CompiledRule {
            name: rule.name.clone(),
            conditions: rule.conditions.clone().into(),
            unless: rule.unless.clone().into(),
            actions: rule.actions.clone().into(),
            call: rule.call.as_ref().map(|name| self.set(name)).transpose()?,
            verdict: rule.verdict,
        })
    }
}

//! Lists made of some rules of a sequence: the firewall's for each pair of zones, the routing rules' for each port.
//! Equal ones are one list.

use super::{AccessList, AclBindings, AclError, AclSet, Action, Rule};
use std::collections::HashMap;

/// The lists so far, and the rules in them by number.
#[derive(Clone, Debug, Default)]
pub struct RuleLists {
    known: HashMap<Vec<u16>, u16>,
    members: Vec<Box<[u16]>>,
}

impl RuleLists {
    /// The number of the list of these rules; `None` if there are none, or too many lists.
    pub fn list(&mut self, rules: Vec<u16>) -> Option<u16> {
        if rules.is_empty() {
            return None;
        }
        if let Some(list) = self.known.get(&rules) {
            return Some(*list);
        }
        let list = u16::try_from(self.members.len()).ok()?;
        self.members.push(rules.as_slice().into());
        self.known.insert(rules, list);
        Some(list)
    }

    /// Compiles the lists of these rules, by number.
    pub fn compile(
        &self,
        rule: impl Fn(usize) -> Rule,
        default: Action,
        bindings: &AclBindings,
        version: u64,
    ) -> Result<AclSet, AclError> {
        let of = |members: &[u16]| members.iter().map(|number| rule(usize::from(*number))).collect();
        let lists = self.members.iter().map(|members| AccessList { rules: of(members), default });
        let lists: Vec<AccessList> = lists.collect();
        AclSet::compile(&lists, bindings, version)
    }

    /// The number of the rule at a place of a list.
    #[inline(always)]
    pub fn rule(&self, list: u16, place: usize) -> Option<u16> {
        self.members.get(usize::from(list))?.get(place).copied()
    }
}

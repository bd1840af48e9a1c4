//! Compares configurations for a reload: what only a restart can change, and what BGP has to do.
//!
//! The rows of keys define which of them need a restart ([`Differs`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerKind;
use thalweg_bgp::session::config::{ConfigDifference, KeepRejected, NeighborConfig};

use crate::bgp_types::BgpConfig;
use crate::key::{Differs, Reload, Row, Table};
use crate::ports::PORT_TABLE;
use crate::registry::tables;
use crate::types::{PortConfig, RouterConfig};

/// The first key for which a forwarding router needs a restart, if any; for ports see [`port_needs_restart`],
/// for BGP [`diff`].
pub fn needs_restart(before: &RouterConfig, after: &RouterConfig) -> Option<String> {
    let differs = |differs: Differs| matches!(differs, Differs::Router(differs) if differs(before, after));
    fixed_keys().find(|(.., rule)| differs(*rule)).map(|(table, row, _)| {
        let default = row.info().otherwise.map(|words| format!(" (if not given: {words})"));
        format!("{}{}", place(table, row), default.unwrap_or_default())
    })
}

/// The first key whose change needs the port to be opened again, if any.
pub fn port_needs_restart(before: &PortConfig, after: &PortConfig) -> Option<&'static str> {
    let differs = |row: &&&dyn Row| matches!(row.reload(), Reload::Restart(Differs::Port(differs)) if differs(before, after));
    PORT_TABLE.rows.iter().find(differs).map(|row| row.name())
}

/// What a running BGP daemon cannot change.
fn restarts(old: &BgpConfig, new: &BgpConfig) -> Vec<String> {
    let differs = |differs: Differs| matches!(differs, Differs::Bgp(differs) if differs(old, new));
    let keys = fixed_keys().filter(|(.., rule)| differs(*rule));
    keys.map(|(table, row, _)| format!("{} changed: it takes effect with a restart", place(table, row)))
        .collect()
}

/// Every key that only a restart can change, with its table and its comparison.
fn fixed_keys() -> impl Iterator<Item = (&'static Table, &'static dyn Row, Differs)> {
    let rows = tables().into_iter().flat_map(|table| table.rows.iter().map(move |row| (table, *row)));
    rows.filter_map(|(table, row)| match row.reload() {
        Reload::Restart(differs) => Some((table, row, differs)),
        Reload::Live | Reload::Session => None,
    })
}

/// A key with its section; for a key that begins a section, that section.
fn place(table: &Table, row: &dyn Row) -> String {
    match row.table() {
        Some(begun) => begun.title.to_owned(),
        None => format!("`{}` of {}", row.name(), table.title),
    }
}

/// The differences between two configurations of BGP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpDiff {
    pub added: Vec<Arc<NeighborConfig>>,
    /// With their old configuration.
    pub removed: Vec<Arc<NeighborConfig>>,
    /// Neighbors whose session must restart.
    pub reset: Vec<Arc<NeighborConfig>>,
    /// Neighbors that keep their session; the new settings are applied directly.
    pub quiet: Vec<Arc<NeighborConfig>>,
    /// Neighbors that keep their session, and whose routes must be filtered again.
    pub refiltered: Vec<Refiltered>,
    /// New or changed groups with dynamic neighbors.
    pub groups_changed: Vec<Arc<str>>,
    /// Removed groups with dynamic neighbors.
    pub groups_removed: Vec<Arc<str>>,
    /// Prefixes to originate.
    pub networks_added: Vec<IpPrefix>,
    /// Prefixes to withdraw.
    pub networks_removed: Vec<IpPrefix>,
    /// Changes that need a restart, in words.
    pub restart: Vec<String>,
}

/// A neighbor whose routes must be filtered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refiltered {
    /// The new configuration.
    pub neighbor: Arc<NeighborConfig>,
    /// Import changed: request its routes again (route refresh).
    pub import: bool,
    /// Export changed: send its routes again.
    pub export: bool,
}

impl BgpDiff {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a reload must do for BGP. Neighbors are identified by their addresses.
pub fn diff(old: &BgpConfig, new: &BgpConfig) -> BgpDiff {
    let mut diff = BgpDiff { restart: restarts(old, new), ..BgpDiff::default() };
    let before: BTreeMap<_, _> = old.neighbors.iter().map(|n| (n.address, n)).collect();
    let after: BTreeMap<_, _> = new.neighbors.iter().map(|n| (n.address, n)).collect();
    diff.removed = old.neighbors.iter().filter(|n| !after.contains_key(&n.address)).cloned().collect();
    for neighbor in &new.neighbors {
        match before.get(&neighbor.address) {
            None => diff.added.push(neighbor.clone()),
            Some(was) => compare(&mut diff, old, new, was, neighbor),
        }
    }
    for group in &new.groups {
        let was = old.groups.iter().find(|was| was.name == group.name).and_then(|was| was.dynamic.as_ref());
        let same_policies = group.dynamic.as_ref().zip(was).is_some_and(|(range, was)| {
            policies_changed(old, new, &was.template, &range.template) == (false, false)
        });
        if group.dynamic.is_some() && (was != group.dynamic.as_ref() || !same_policies) {
            diff.groups_changed.push(group.name.clone());
        }
    }
    let still =
        |name: &Arc<str>| new.groups.iter().any(|group| group.name == *name && group.dynamic.is_some());
    let gone = old.groups.iter().filter(|group| group.dynamic.is_some() && !still(&group.name));
    diff.groups_removed = gone.map(|group| group.name.clone()).collect();
    let only_in = |a: &[IpPrefix], b: &[IpPrefix]| a.iter().filter(|p| !b.contains(p)).copied().collect();
    diff.networks_added = only_in(&new.networks, &old.networks);
    diff.networks_removed = only_in(&old.networks, &new.networks);
    diff
}

fn compare(
    diff: &mut BgpDiff,
    old: &BgpConfig,
    new: &BgpConfig,
    was: &Arc<NeighborConfig>,
    neighbor: &Arc<NeighborConfig>,
) {
    let difference = neighbor.difference(was);
    if difference == ConfigDifference::Session {
        diff.reset.push(neighbor.clone());
        return;
    }
    let (import, export) = policies_changed(old, new, was, neighbor);
    // Rules under another name with the same effect are no difference.
    let unnamed = |c: &NeighborConfig| {
        let (mut import, mut export) = (c.import.clone(), c.export.clone());
        (import.rules, export.rules) = (None, None);
        (import, export)
    };
    let ((mut import_was, export_was), (import_is, export_is)) = (unnamed(was), unnamed(neighbor));
    if import_is.keep_rejected == KeepRejected::None {
        // To forget routes, nobody has to send them.
        import_was.keep_rejected = KeepRejected::None;
    }
    let import = import || import_was != import_is;
    let export = export || export_was != export_is;
    if import || export {
        diff.refiltered.push(Refiltered { neighbor: neighbor.clone(), import, export });
    } else if difference != ConfigDifference::None {
        diff.quiet.push(neighbor.clone());
    }
}

/// Whether the effects of import and export policy changed.
fn policies_changed(
    old: &BgpConfig,
    new: &BgpConfig,
    was: &NeighborConfig,
    neighbor: &NeighborConfig,
) -> (bool, bool) {
    // The kind matters only without configured rules; a change of AS resets the session anyway.
    let kind = |config: &NeighborConfig| config.certain_kind().unwrap_or(PeerKind::External);
    let policy = |config: &BgpConfig, rules: &Option<Vec<Arc<str>>>, neighbor: &NeighborConfig| {
        config.policy(rules.as_deref(), kind(neighbor))
    };
    (
        policy(old, &was.import.rules, was) != policy(new, &neighbor.import.rules, neighbor),
        policy(old, &was.export.rules, was) != policy(new, &neighbor.export.rules, neighbor),
    )
}

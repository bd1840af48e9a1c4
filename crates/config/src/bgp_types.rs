//! What `[bgp]` comes to, and what a reload has to do to get from one such configuration to another.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerKind;
use thalweg_bgp::policy::{Policy, RuleLibrary};
use thalweg_bgp::rib::{DampingConfig, DecisionConfig};
use thalweg_bgp::session::config::{Confederation, ConfigDifference, DynamicRange, NeighborConfig};
use thalweg_exec::control::SchedulingKind;

/// Everything about BGP, checked, with defaults and groups applied.
#[derive(Clone, Debug)]
pub struct BgpConfig {
    /// Our AS; inside a confederation our member AS.
    pub local_as: u32,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// Where neighbors may connect to; may be empty.
    pub listen: Vec<SocketAddr>,
    /// How work is spread over threads.
    pub scheduling: SchedulingKind,
    /// Threads; `None`: one for each core.
    pub threads: Option<usize>,
    /// Where best routes go.
    pub install: Install,
    /// How long routes are not selected after a graceful restart of ours, while neighbors have not sent their tables.
    pub selection_deferral_s: u32,
    /// What becomes of routes when the router is stopped.
    pub on_stop: OnStop,
    /// What says which next hops can be reached.
    pub next_hop_check: NextHopCheck,
    /// How routes go into the kernel, where they do.
    pub kernel: KernelConfig,
    /// The confederation we are a member of.
    pub confederation: Option<Arc<Confederation>>,
    /// How paths are compared.
    pub decision: DecisionConfig,
    /// Route flap damping, where configured.
    pub damping: Option<DampingConfig>,
    /// Prefixes that originate here.
    pub networks: Vec<IpPrefix>,
    /// Neighbors in file order.
    pub neighbors: Vec<Arc<NeighborConfig>>,
    /// Groups in file order.
    pub groups: Vec<GroupConfig>,
    /// What is written in MRT format.
    pub mrt: MrtConfig,
    /// An MRT file whose routes the RIB has from the beginning.
    pub seed_mrt: Option<PathBuf>,
    /// All rule sets.
    pub library: RuleLibrary,
    /// Tests of rule sets that were run, successfully.
    pub tests_passed: usize,
    /// Policies by the names of their rule sets: every combination that a neighbor or group has.
    pub policies: BTreeMap<Vec<Arc<str>>, Arc<Policy>>,
    /// What a neighbor without policy has: everything inside our AS, nothing outside (RFC 8212).
    pub(crate) accept: Arc<Policy>,
    pub(crate) reject: Arc<Policy>,
}

/// Where best routes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Install {
    /// Nowhere: a route server or reflector.
    None,
    /// Into the data plane's forwarding table.
    #[default]
    Fib,
    /// Into the kernel's.
    Kernel,
}

impl Install {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fib => "fib",
            Self::Kernel => "kernel",
        }
    }
}

/// What becomes of routes when the router is stopped, if whoever stops it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStop {
    /// Neighbors are told that the sessions end, and routes are removed from the kernel.
    #[default]
    RemoveRoutes,
    /// Neighbors with graceful restart are told nothing, and routes stay in the kernel for the next process.
    KeepRoutes,
}

impl OnStop {
    /// By whether routes stay.
    pub fn of(keep_routes: bool) -> Self {
        if keep_routes { Self::KeepRoutes } else { Self::RemoveRoutes }
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::RemoveRoutes => "remove-routes",
            Self::KeepRoutes => "keep-routes",
        }
    }
}

/// What says which next hops can be reached, and at what cost (RFC 4271 sections 9.1.2.1 and 9.1.2.2 e).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHopCheck {
    /// Nothing: all can, and none is nearer than another.
    #[default]
    Off,
    /// The kernel's networks and routes, without ours.
    Kernel,
}

impl NextHopCheck {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Kernel => "kernel",
        }
    }

    /// What it checks with.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Off => "nothing",
            Self::Kernel => "the kernel's routes",
        }
    }
}

/// A group of neighbors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Its name.
    pub name: Arc<str>,
    /// Neighbors that are not named one by one, where the group has such.
    pub dynamic: Option<Arc<DynamicRange>>,
}

/// How routes go into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// The kernel's table.
    pub table: u32,
    /// The metric our routes carry.
    pub metric: u32,
    /// Seconds between scans for routes that others removed or changed.
    pub repair_s: u32,
}

impl Default for KernelConfig {
    fn default() -> Self {
        // The main table; behind what administrators and DHCP clients install.
        Self { table: 254, metric: 116, repair_s: 60 }
    }
}

/// What is written in MRT format (RFC 6396).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MrtConfig {
    /// Where dumps of the RIB go; strftime-like `%Y%m%d.%H%M%S` is replaced by the time.
    pub dump: Option<PathBuf>,
    /// Seconds between two dumps.
    pub dump_interval_s: u32,
    /// Where the stream of updates goes.
    pub updates: Option<PathBuf>,
    /// Seconds after which a new file of updates begins.
    pub rotate_s: u32,
    /// Whether files are compressed.
    pub compress: bool,
}

impl BgpConfig {
    /// The policy of a neighbor of this kind with these rule sets configured (or none).
    pub fn policy(&self, rules: Option<&[Arc<str>]>, kind: PeerKind) -> Arc<Policy> {
        match rules {
            Some(names) => self.policies.get(names).unwrap_or(&self.reject).clone(),
            // RFC 8212 speaks of external neighbors only; members of a confederation are one AS to the world.
            None if kind == PeerKind::External => self.reject.clone(),
            None => self.accept.clone(),
        }
    }
}

/// What is different between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpDiff {
    /// Neighbors that were not there before.
    pub added: Vec<Arc<NeighborConfig>>,
    /// Neighbors that are gone, as they were.
    pub removed: Vec<Arc<NeighborConfig>>,
    /// Neighbors whose session has to begin anew.
    pub reset: Vec<Arc<NeighborConfig>>,
    /// Neighbors that keep their session: the new settings are taken over as they are.
    pub quiet: Vec<Arc<NeighborConfig>>,
    /// Neighbors that keep their session, and whose routes have to be filtered again.
    pub refiltered: Vec<Refiltered>,
    /// Groups with dynamic neighbors that are new or changed.
    pub groups_changed: Vec<Arc<str>>,
    /// Groups with dynamic neighbors that are gone.
    pub groups_removed: Vec<Arc<str>>,
    /// Prefixes to originate.
    pub networks_added: Vec<IpPrefix>,
    /// Prefixes to withdraw.
    pub networks_removed: Vec<IpPrefix>,
    /// Things that change only with a restart, in words.
    pub restart: Vec<String>,
}

/// A neighbor whose routes have to be filtered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refiltered {
    /// Its new settings.
    pub neighbor: Arc<NeighborConfig>,
    /// What it sends: ask it again (route refresh).
    pub import: bool,
    /// What it is sent: export anew.
    pub export: bool,
}

impl BgpDiff {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What has to be done to get from one configuration to another. Neighbors are the same if their addresses are.
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
    // Rules by another name that come to the same are no difference.
    let unnamed = |c: &NeighborConfig| {
        let (mut import, mut export) = (c.import.clone(), c.export.clone());
        (import.rules, export.rules) = (None, None);
        (import, export)
    };
    let ((import_was, export_was), (import_is, export_is)) = (unnamed(was), unnamed(neighbor));
    let import = import || import_was != import_is;
    let export = export || export_was != export_is;
    if import || export {
        diff.refiltered.push(Refiltered { neighbor: neighbor.clone(), import, export });
    } else if difference != ConfigDifference::None {
        diff.quiet.push(neighbor.clone());
    }
}

/// Whether import and export policy do something else than before.
fn policies_changed(
    old: &BgpConfig,
    new: &BgpConfig,
    was: &NeighborConfig,
    neighbor: &NeighborConfig,
) -> (bool, bool) {
    // The kind matters only where no rules are configured; a change of AS resets the session anyway.
    let kind = |config: &NeighborConfig| match config.remote_as {
        thalweg_bgp::session::config::RemoteAs::One(asn) => config.kind(asn),
        _ => PeerKind::External,
    };
    let policy = |config: &BgpConfig, rules: &Option<Vec<Arc<str>>>, neighbor: &NeighborConfig| {
        config.policy(rules.as_deref(), kind(neighbor))
    };
    (
        policy(old, &was.import.rules, was) != policy(new, &neighbor.import.rules, neighbor),
        policy(old, &was.export.rules, was) != policy(new, &neighbor.export.rules, neighbor),
    )
}

/// What a running daemon cannot change.
fn restarts(old: &BgpConfig, new: &BgpConfig) -> Vec<String> {
    let mut words = Vec::new();
    let mut fixed = |name: &str, differs: bool| {
        if differs {
            words.push(format!("{name} changed: it takes effect with a restart"));
        }
    };
    fixed("as", old.local_as != new.local_as);
    fixed("router_id", old.router_id != new.router_id);
    fixed("listen", old.listen != new.listen);
    fixed("scheduling", old.scheduling != new.scheduling);
    fixed("threads", old.threads != new.threads);
    fixed("install", old.install != new.install);
    fixed("next_hop_check", old.next_hop_check != new.next_hop_check);
    fixed("[bgp.kernel]", old.kernel != new.kernel);
    fixed("confederation", old.confederation != new.confederation);
    fixed("the decision process", old.decision != new.decision);
    fixed("damping", old.damping != new.damping);
    fixed("[bgp.mrt]", old.mrt != new.mrt);
    fixed("[bgp.seed]", old.seed_mrt != new.seed_mrt);
    words
}

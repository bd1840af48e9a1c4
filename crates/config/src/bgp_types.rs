//! The checked BGP configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerKind;
use thalweg_bgp::policy::{Policy, RuleLibrary};
use thalweg_bgp::rib::{DampingConfig, DecisionConfig};
use thalweg_bgp::rpki::CacheConfig;
use thalweg_bgp::session::config::{Confederation, DynamicRange, NeighborConfig};
use thalweg_exec::control_plane::SchedulingKind;

/// The compiled policies of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTable {
    /// By the names of their rule sets: every combination that a neighbor or group uses.
    pub(crate) used: BTreeMap<Vec<Arc<str>>, Arc<Policy>>,
    /// The policy of neighbors without rules: `accept` inside our AS, `reject` outside (RFC 8212).
    pub(crate) accept: Arc<Policy>,
    pub(crate) reject: Arc<Policy>,
}

impl PolicyTable {
    /// How many policies neighbors and groups use.
    pub fn count(&self) -> usize {
        self.used.len()
    }
}

/// The BGP configuration, with defaults and groups applied.
#[derive(Clone, Debug)]
pub struct BgpConfig {
    /// Our AS; in a confederation our member AS.
    pub local_as: u32,
    pub router_id: Ipv4Addr,
    /// The addresses on which neighbors may connect; may be empty.
    pub listen: Vec<SocketAddr>,
    /// How work is spread over threads.
    pub scheduling: SchedulingKind,
    /// `None`: one per core.
    pub threads: Option<usize>,
    /// Where best routes go.
    pub install: Install,
    /// Whether the forwarding table is saved for the next process.
    pub save_fib: bool,
    /// How long route selection waits after our graceful restart while neighbors have not sent their tables.
    pub selection_deferral_s: u32,
    pub on_stop: OnStop,
    pub next_hop_check: NextHopCheck,
    /// How routes are installed in the kernel.
    pub kernel: KernelConfig,
    pub confederation: Option<Arc<Confederation>>,
    /// How paths are compared.
    pub decision: DecisionConfig,
    pub damping: Option<DampingConfig>,
    /// Prefixes originated here.
    pub networks: Vec<IpPrefix>,
    /// In file order.
    pub neighbors: Vec<Arc<NeighborConfig>>,
    /// In file order.
    pub groups: Vec<GroupConfig>,
    pub mrt: MrtConfig,
    /// An MRT file that is loaded into the RIB at the start.
    pub seed_mrt: Option<PathBuf>,
    /// Where VRPs come from, in order of preference.
    pub rpki: Vec<RpkiSource>,
    pub library: Arc<RuleLibrary>,
    /// The number of rule tests that passed.
    pub tests_passed: usize,
    pub policies: Arc<PolicyTable>,
}

/// A source of VRPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpkiSource {
    pub place: RpkiPlace,
    /// Times and limits; a file has the last two only.
    pub cache: CacheConfig,
}

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpkiPlace {
    /// A cache that speaks RTR.
    Cache(SocketAddr),
    /// JSON as rpki-client and other validators write it.
    File(PathBuf),
}

impl fmt::Display for RpkiPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache(address) => address.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

thalweg_base::words! {
    /// Where best routes go.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Install {
        /// Nowhere: a route server or reflector.
        None => "none",
        /// Into the data plane's forwarding table.
        #[default]
        Fib => "fib",
        /// Into the kernel's table.
        Kernel => "kernel",
    }
}

thalweg_base::words! {
    /// What happens to routes when the router is stopped, unless the command says otherwise.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OnStop {
        /// Sessions end with a notification, and routes are removed from the kernel.
        #[default]
        RemoveRoutes => "remove-routes",
        /// Neighbors with graceful restart get no notification, and routes stay in the kernel for the next
        /// process.
        KeepRoutes => "keep-routes",
    }
}

impl OnStop {
    /// Chooses by whether routes stay.
    pub fn of(keep_routes: bool) -> Self {
        if keep_routes { Self::KeepRoutes } else { Self::RemoveRoutes }
    }
}

thalweg_base::words! {
    /// What decides which next hops are reachable, and at what cost (RFC 4271 sections 9.1.2.1 and 9.1.2.2
    /// e).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum NextHopCheck {
        /// Nothing: all are reachable at equal cost.
        #[default]
        Off => "off",
        /// The kernel's networks and routes, without ours.
        Kernel => "kernel",
    }
}

impl NextHopCheck {
    /// The source of the check, in words.
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
    pub name: Arc<str>,
    /// Neighbors that are not listed individually, if the group allows them.
    pub dynamic: Option<Arc<DynamicRange>>,
}

/// How routes are installed in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelConfig {
    pub table: u32,
    /// The metric of our routes.
    pub metric: u32,
    /// Seconds between scans for routes that others removed or changed.
    pub repair_s: u32,
}

/// What is written in MRT format (RFC 6396).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MrtConfig {
    /// Path of RIB dumps; `%Y%m%d.%H%M%S` and the like are replaced by the time.
    pub dump: Option<PathBuf>,
    /// Seconds between dumps.
    pub dump_interval_s: u32,
    /// Path of the stream of updates.
    pub updates: Option<PathBuf>,
    /// Seconds until a new file of updates begins.
    pub rotate_s: u32,
    pub compress: bool,
}

impl BgpConfig {
    /// Whether VRPs have a source.
    pub fn has_rpki(&self) -> bool {
        !self.rpki.is_empty()
    }

    /// The policy of a neighbor of this kind with these rule sets, or without any.
    pub fn policy(&self, rules: Option<&[Arc<str>]>, kind: PeerKind) -> Arc<Policy> {
        let PolicyTable { used, accept, reject } = &*self.policies;
        let policy = match rules {
            Some(names) => used.get(names).unwrap_or(reject),
            // RFC 8212 concerns external neighbors only; members of a confederation are one AS to the
            // outside.
            None if kind == PeerKind::External => reject,
            None => accept,
        };
        policy.clone()
    }
}

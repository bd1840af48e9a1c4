//! What `[bgp]` comes to.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerKind;
use thalweg_bgp::policy::{Policy, RuleLibrary};
use thalweg_bgp::rib::{DampingConfig, DecisionConfig};
use thalweg_bgp::session::config::{Confederation, DynamicRange, NeighborConfig};
use thalweg_exec::control_plane::SchedulingKind;

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

thalweg_base::words! {
    /// Where best routes go.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Install {
        /// Nowhere: a route server or reflector.
        None => "none",
        /// Into the data plane's forwarding table.
        #[default]
        Fib => "fib",
        /// Into the kernel's.
        Kernel => "kernel",
    }
}

thalweg_base::words! {
    /// What becomes of routes when the router is stopped and the command does not say it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OnStop {
        /// Neighbors are told that the sessions end, and routes are removed from the kernel.
        #[default]
        RemoveRoutes => "remove-routes",
        /// Neighbors with graceful restart are told nothing, and routes stay in the kernel for the next process.
        KeepRoutes => "keep-routes",
    }
}

impl OnStop {
    /// By whether routes stay.
    pub fn of(keep_routes: bool) -> Self {
        if keep_routes { Self::KeepRoutes } else { Self::RemoveRoutes }
    }
}

thalweg_base::words! {
    /// What says which next hops can be reached, and at what cost (RFC 4271 sections 9.1.2.1 and 9.1.2.2 e).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum NextHopCheck {
        /// Nothing: all can, and none is nearer than another.
        #[default]
        Off => "off",
        /// The kernel's networks and routes, without ours.
        Kernel => "kernel",
    }
}

impl NextHopCheck {
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

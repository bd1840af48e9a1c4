//! Builds the parts of a router from a checked configuration.
//!
//! The target of a route becomes a next-hop group of ready-made rewrites. Neighbors become host routes, so sending
//! to one is no special case. Network and broadcast addresses of connected networks become routes to a drop (RFC
//! 2644: directed broadcasts are not forwarded).

use crate::plan::{
    Filters, Firewall, Nat, NatStage, Outside, RouterParts, RouterPlan, WayRules, shards_with,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use thalweg_base::DropReason;
use thalweg_config::{self as config, RouteTarget, RouterConfig, VrfIndex, VrfRoutes};
use thalweg_dataplane::acl::{AccessList, AclBindings, AclError, AclSet};
use thalweg_dataplane::classify::Classifier;
use thalweg_dataplane::ingress::{BroadcastSet, Ingress, PortGuess};
use thalweg_dataplane::lpm::{Fib4, Fib4Writer, Fib6, Fib6Writer, LpmError};
use thalweg_dataplane::mss::MssClamp;
use thalweg_dataplane::nat::{Labeler, NatConfig};
use thalweg_dataplane::police::Police;
use thalweg_dataplane::prefix_translation::PrefixTranslation;
use thalweg_dataplane::queens::Boards;
use thalweg_dataplane::reverse_path::{ReversePath, SourceCheck};
use thalweg_dataplane::route::{Adjacency, NextHops, Router};
use thalweg_dataplane::schedule::Scheduler;
use thalweg_dataplane::vlan::{EgressTags, VlanTable};
use thalweg_dataplane::vrf::{VrfTables, table_number, table_of};
use thalweg_wire::MacAddr;

/// Why a valid configuration cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// More distinct next hops than the look-up tables have numbers for.
    TooManyNextHops {
        /// The most there may be.
        limit: usize,
    },
    /// NAT refuses its configuration.
    Nat(String),
    /// The look-up tables cannot hold the routes.
    Routes(String),
    /// An access list cannot be compiled.
    Acl(AclError),
    /// The meter refuses its options.
    Flows(String),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::TooManyNextHops { limit } => {
                write!(f, "the routes and neighbors lead to more than {limit} different next hops")
            }
            BuildError::Nat(reason) => write!(f, "nat: {reason}"),
            BuildError::Routes(reason) => write!(f, "routes: {reason}"),
            BuildError::Acl(error) => write!(f, "acl: {error}"),
            BuildError::Flows(reason) => write!(f, "flows: {reason}"),
        }
    }
}

impl std::error::Error for BuildError {}

impl RouterPlan {
    /// The router of a configuration, with N-queens work after each stage if requested.
    pub fn from_config(config: &RouterConfig, work_queens: Option<Boards>) -> Result<Self, BuildError> {
        Self::with_routes(config, &Routes::build(config)?, work_queens)
    }

    /// The same with look-up tables already built from this configuration.
    pub fn with_routes(
        config: &RouterConfig,
        routes: &Routes,
        work_queens: Option<Boards>,
    ) -> Result<Self, BuildError> {
        Self::with_router(config, routes.router(), work_queens)
    }

    /// The same with a routing stage over tables that the caller maintains.
    pub fn with_router(
        config: &RouterConfig,
        router: Router,
        work_queens: Option<Boards>,
    ) -> Result<Self, BuildError> {
        Self::build(config, router, work_queens, NatConfig::HASH_SEED_FIXED)
    }

    /// The same for live ports: NAT's hashes use a secret seed, so that attackers cannot choose endpoints that
    /// collide. Public ports depend on the seed too, so plans that succeed this one keep it.
    pub fn with_hash_seed(config: &RouterConfig, router: Router, hash_seed: u64) -> Result<Self, BuildError> {
        Self::build(config, router, None, hash_seed)
    }

    fn build(
        config: &RouterConfig,
        router: Router,
        work_queens: Option<Boards>,
        hash_seed: u64,
    ) -> Result<Self, BuildError> {
        let new = |nat| Nat::new(&nat_keyed(nat, hash_seed), config);
        let nat = config.nat.as_ref().map(new).transpose()?;
        let firewall = config.firewall.as_ref();
        let shards = shards_with(nat.as_ref());
        let firewall = firewall.map(|new| Firewall::new(new, shards, hash_seed)).transpose();
        let firewall = firewall.map_err(BuildError::Acl)?;
        let plan = Self::with_tables(config, router, work_queens, (nat, firewall), hash_seed)?;
        plan.check_sources_of_sessions();
        Ok(plan)
    }

    /// The same with given NAT and firewall.
    pub(crate) fn with_tables(
        config: &RouterConfig,
        router: Router,
        work_queens: Option<Boards>,
        (nat, firewall): (Option<Nat>, Option<Firewall>),
        hash_seed: u64,
    ) -> Result<Self, BuildError> {
        let source_modes = config.ports.iter().map(|port| port.urpf);
        let session_sources = SourceCheck::new(source_modes, router.clone()).map(Arc::new);
        Ok(RouterPlan::new(RouterParts {
            session_sources,
            router_addresses: router_addresses(config),
            ingress: Ingress {
                drop_martians: config.validate.martians,
                port_guess: port_guess(config),
                vlans: vlan_table(config),
                broadcasts: broadcasts(config),
            },
            filters: Filters::from_config(config, 0)?,
            classifier: classifier(&config.qos),
            police: Police::new(&config.qos.classes.iter().map(|class| class.policer).collect::<Vec<_>>()),
            scheduler: Scheduler::new(
                &config.qos.classes.iter().map(|class| class.service).collect::<Vec<_>>(),
            ),
            nat,
            way_rules: WayRules::of(config).map_err(BuildError::Acl)?,
            firewall: firewall
                .map(|firewall| firewall.within(router_addresses(config), vrfs_of_ports(config))),
            router,
            ports: config.ports.len(),
            classes: config.qos.classes.len(),
            work_queens,
            hash_seed,
        }))
    }
}

impl Filters {
    /// The source checks, access lists and segment limits of a configuration. `version` distinguishes the counters of these lists
    /// from those of earlier lists.
    pub fn from_config(config: &RouterConfig, version: u64) -> Result<Self, BuildError> {
        let lists: Vec<AccessList> = config.acls.iter().map(|acl| acl.list.clone()).collect();
        let bindings = AclBindings {
            inbound: config.ports.iter().map(|port| port.acl_in).collect(),
            outbound: config.ports.iter().map(|port| port.acl_out).collect(),
        };
        Ok(Self {
            reverse_path: ReversePath::new(config.ports.iter().map(|port| port.urpf)),
            acls: AclSet::compile(&lists, &bindings, version).map_err(BuildError::Acl)?,
            mss: MssClamp::new(config.ports.iter().map(|port| port.mss)),
            prefixes: PrefixTranslation::new(&config.prefix_pairs),
        })
    }
}

/// The VRF of each port; empty if there is one table.
pub(crate) fn vrfs_of_ports(config: &RouterConfig) -> Vec<VrfIndex> {
    let ports = config.ports.iter().filter(|_| !config.routing.vrfs.is_empty());
    ports.map(|port| port.vrf).collect()
}

/// The broadcast addresses of connected networks (a /31 and a /32 have none: RFC 3021), except those that a
/// configured neighbor really uses.
fn broadcasts(config: &RouterConfig) -> BroadcastSet {
    let nets = config.ports.iter().flat_map(|port| port.addresses.iter().map(move |net| (net, port.vrf)));
    let all = nets.filter_map(|(net, vrf)| match net {
        IpNet::V4(net) if net.prefix_len() <= 30 => Some((net.broadcast(), vrf)),
        _ => None,
    });
    let is_used = |(address, vrf): &(Ipv4Addr, VrfIndex)| {
        let neighbors = config.neighbors.iter().filter(|n| config.ports[usize::from(n.port)].vrf == *vrf);
        neighbors.map(|n| n.address).any(|of| of == IpAddr::V4(*address))
    };
    BroadcastSet::new(all.filter(|broadcast| !is_used(broadcast)), vrfs_of_ports(config))
}

/// The VLANs of ports. A port with an interface refuses frames of VLANs that it does not have, live or from a
/// capture.
fn vlan_table(config: &RouterConfig) -> VlanTable {
    let ports = (0u16..).zip(&config.ports);
    let on_wires = ports.filter(|(_, port)| port.interface.is_some()).map(|(index, _)| index);
    VlanTable::new(sub_interfaces(config)).refusing(on_wires)
}

/// Port, parent and VLAN of every sub-interface.
pub fn sub_interfaces(config: &RouterConfig) -> impl Iterator<Item = (u16, u16, u16)> {
    let ports = (0u16..).zip(&config.ports);
    ports.filter_map(|(index, port)| port.sub_interface.map(|s| (index, s.parent, s.vlan)))
}

/// The VLAN tags that frames of sub-interfaces leave with.
pub fn egress_tags(config: &RouterConfig) -> EgressTags {
    EgressTags::new(sub_interfaces(config))
}

/// The look-up tables and next hops of a configuration. They hold no state of packets, so any number of routers can
/// share them: building a full table takes longer than most replays.
#[derive(Clone)]
pub struct Routes {
    targets: Arc<[u16]>,
    main: (Arc<Fib4>, Arc<Fib6>),
    vrfs: Option<Arc<VrfTables>>,
    next_hops: NextHops,
}

impl Routes {
    /// Builds the tables of a configuration.
    pub fn build(config: &RouterConfig) -> Result<Self, BuildError> {
        let macs: HashMap<(u16, IpAddr), MacAddr> =
            config.neighbors.iter().map(|n| ((n.port, n.address), n.mac)).collect();
        let mut groups = Groups::default();
        (0u16..).zip(&config.ports).for_each(|(index, port)| groups.hops.set_mtu(index, port.mtu.into()));
        let mut ids = Vec::with_capacity(config.routing.targets.len());
        for target in &config.routing.targets {
            if let RouteTarget::Table(vrf) = target {
                ids.push(table_number(*vrf));
                continue;
            }
            // Links and neighbors of a replay never change, so only the preferred paths count.
            let paths = match target.preferred() {
                RouteTarget::Local(port) => vec![AdjacencyKey::Local(*port)],
                RouteTarget::Blackhole => vec![AdjacencyKey::Drop(DropReason::Blackhole)],
                RouteTarget::Unreachable => vec![AdjacencyKey::Drop(DropReason::Unreachable)],
                RouteTarget::Routes => vec![AdjacencyKey::Drop(DropReason::NoRoute)],
                RouteTarget::Forward(hops) => hops.iter().map(|hop| adjacency(hop, config, &macs)).collect(),
                RouteTarget::Ranked(_) | RouteTarget::Table(_) => Vec::new(),
            };
            ids.push(groups.id(paths, config)?);
        }
        let tables = config.routing.tables();
        let tables = tables.map(|(vrf, v4, v6)| table_of_vrf(config, (vrf, v4, v6), &ids, &mut groups));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let main = tables[0].clone();
        let vrfs = (tables.len() > 1).then(|| Arc::new(VrfTables::new(vrfs_of_ports(config), tables)));
        Ok(Self { targets: ids.as_slice().into(), main, vrfs, next_hops: groups.hops })
    }

    /// A routing stage over these tables.
    pub fn router(&self) -> Router {
        Router {
            targets: Arc::clone(&self.targets),
            fib4: Arc::clone(&self.main.0),
            fib6: Arc::clone(&self.main.1),
            vrfs: self.vrfs.clone(),
            next_hops: self.next_hops.clone().into(),
        }
    }
}

/// The tables of a VRF; `ids` are the numbers of the configuration's targets.
fn table_of_vrf(
    config: &RouterConfig,
    (vrf, v4, v6): VrfRoutes<'_>,
    ids: &[u16],
    groups: &mut Groups,
) -> Result<(Arc<Fib4>, Arc<Fib6>), BuildError> {
    let id_of = |target: &u32| ids.get(*target as usize).copied().unwrap_or(0);
    let mut v4: Vec<(Ipv4Net, u16)> = v4.iter().map(|(net, t)| (*net, id_of(t))).collect();
    let mut v6: Vec<(Ipv6Net, u16)> = v6.iter().map(|(net, t)| (*net, id_of(t))).collect();
    let defaults4 = v4.iter_mut().filter(|r| r.0.prefix_len() == 0).map(|r| &mut r.1);
    let defaults6 = v6.iter_mut().filter(|r| r.0.prefix_len() == 0).map(|r| &mut r.1);
    for id in defaults4.chain(defaults6).filter(|id| table_of(**id).is_none()) {
        *id = groups.id_for_default(*id, config)?;
    }
    let hosts = host_routes(config, vrf, groups)?;
    let taken4: HashSet<Ipv4Net> = v4.iter().map(|r| r.0).filter(|n| n.prefix_len() == 32).collect();
    let taken6: HashSet<Ipv6Net> = v6.iter().map(|r| r.0).filter(|n| n.prefix_len() == 128).collect();
    for (host, id) in hosts {
        match host {
            IpNet::V4(net) if !taken4.contains(&net) => v4.push((net, id)),
            IpNet::V6(net) if !taken6.contains(&net) => v6.push((net, id)),
            _ => {}
        }
    }
    let refused = |e: LpmError| BuildError::Routes(e.to_string());
    let v4 = Fib4Writer::from_routes(v4).map_err(refused)?;
    let v6 = Fib6Writer::from_routes(v6).map_err(refused)?;
    Ok((Arc::clone(v4.table()), Arc::clone(v6.table())))
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("next_hops", &self.next_hops.len()).finish_non_exhaustive()
    }
}

/// Guesses the port of packets without one: the port where their source is connected, else the one toward the rest
/// of the world: NAT's outside port, the port of a default route, or the first port.
fn port_guess(config: &RouterConfig) -> PortGuess {
    let ports = (0u16..).zip(&config.ports);
    // Of equal networks the last counts: that of the main table.
    let (main, others): (Vec<_>, Vec<_>) = ports.partition(|(_, port)| port.vrf == 0);
    let connected = others.into_iter().chain(main);
    let connected =
        connected.flat_map(|(index, port)| port.addresses.iter().map(move |net| (net.trunc(), index)));
    let default_route = |target: Option<u32>| match config.routing.targets.get(target? as usize)?.preferred()
    {
        RouteTarget::Forward(hops) => hops.first().map(|h| h.port),
        _ => None,
    };
    let v4 = config.routing.v4.iter().find(|r| r.0.prefix_len() == 0).map(|r| r.1);
    let v6 = config.routing.v6.iter().find(|r| r.0.prefix_len() == 0).map(|r| r.1);
    let fallback = config
        .nat
        .as_ref()
        .map(|nat| nat.outside_port)
        .or_else(|| default_route(v4))
        .or_else(|| default_route(v6))
        .unwrap_or(0);
    PortGuess::new(connected, Some(fallback))
}

fn classifier(qos: &config::QosConfig) -> Classifier {
    let classes = (0u8..).zip(&qos.classes);
    let matches = classes.flat_map(|(index, class)| class.matches.iter().map(move |m| (m.clone(), index)));
    Classifier::new(matches, qos.default_class)
}

impl Nat {
    /// NAT with a table of its own, all memory allocated.
    pub(crate) fn new(nat: &NatConfig, config: &RouterConfig) -> Result<Self, BuildError> {
        let stage = NatStage::new(nat).map_err(|refused| BuildError::Nat(refused.to_string()))?;
        Self::with_stage(nat, config, Arc::new(stage))
    }

    /// NAT with this table.
    pub(crate) fn with_stage(
        nat: &NatConfig,
        config: &RouterConfig,
        stage: Arc<NatStage>,
    ) -> Result<Self, BuildError> {
        let labeler = Labeler::new(nat).map_err(|refused| BuildError::Nat(refused.to_string()))?;
        let gateway = |port| config.routing.outsides.iter().find(|(of, _)| *of == port).map(|(_, way)| *way);
        let outsides = nat.outside_ports().map(|port| Outside { port, gateway: gateway(port) }).collect();
        Ok(Self { labeler, stage, outsides })
    }
}

/// A NAT configuration with this hash seed.
pub(crate) fn nat_keyed(config: &NatConfig, hash_seed: u64) -> NatConfig {
    NatConfig { hash_seed, ..config.clone() }
}

/// Public addresses that a port of the main table has too, where the router's programs are.
fn router_addresses(config: &RouterConfig) -> Vec<Ipv4Addr> {
    let public = config.nat.iter().flat_map(NatConfig::main_public_addresses);
    let is_own = |address: &Ipv4Addr| {
        let ports = config.ports.iter().filter(|port| port.vrf == 0);
        ports.flat_map(|port| &port.addresses).any(|net| net.addr() == IpAddr::V4(*address))
    };
    public.filter(is_own).collect()
}

/// Fills the table of next hops, with each distinct group once.
#[derive(Default)]
struct Groups {
    hops: NextHops,
    known: HashMap<Vec<AdjacencyKey>, u16>,
    /// The group for default routes that corresponds to each group of other routes.
    defaults: HashMap<u16, u16>,
}

/// An adjacency as a hash key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum AdjacencyKey {
    Forward(u16, MacAddr),
    Glean(u16),
    Local(u16),
    Drop(DropReason),
}

impl Groups {
    fn id(&mut self, paths: Vec<AdjacencyKey>, config: &RouterConfig) -> Result<u16, BuildError> {
        if let Some(&id) = self.known.get(&paths) {
            return Ok(id);
        }
        let adjacencies = adjacencies(&paths, config);
        let limit = NextHops::GROUPS_MAX;
        let id = self.hops.add(&adjacencies).ok_or(BuildError::TooManyNextHops { limit })?;
        self.known.insert(paths, id);
        Ok(id)
    }

    /// A group with the same paths as another, only for default routes: a source check that disregards default
    /// routes recognizes them by the group.
    fn id_for_default(&mut self, like: u16, config: &RouterConfig) -> Result<u16, BuildError> {
        if let Some(&id) = self.defaults.get(&like) {
            return Ok(id);
        }
        let Some(paths) = self.known.iter().find(|(_, id)| **id == like).map(|(paths, _)| paths) else {
            return Ok(like);
        };
        let limit = NextHops::GROUPS_MAX;
        let paths = adjacencies(paths, config);
        let id = self.hops.add_default(&paths).ok_or(BuildError::TooManyNextHops { limit })?;
        self.defaults.insert(like, id);
        Ok(id)
    }
}

fn adjacencies(paths: &[AdjacencyKey], config: &RouterConfig) -> Vec<Adjacency> {
    let adjacency = |path: &AdjacencyKey| match *path {
        AdjacencyKey::Forward(port, destination_mac) => Adjacency::Forward {
            port,
            destination_mac,
            source_mac: config.ports[usize::from(port)].mac,
            mtu_bytes: u32::from(config.ports[usize::from(port)].mtu),
        },
        AdjacencyKey::Glean(port) => Adjacency::Glean { port },
        AdjacencyKey::Local(port) => Adjacency::Local { port },
        AdjacencyKey::Drop(reason) => Adjacency::Drop(reason),
    };
    paths.iter().map(adjacency).collect()
}

fn adjacency(
    hop: &config::NextHop,
    config: &RouterConfig,
    macs: &HashMap<(u16, IpAddr), MacAddr>,
) -> AdjacencyKey {
    let listed = hop.gateway.and_then(|gateway| macs.get(&(hop.port, gateway)).copied());
    match listed.or(config.ports[usize::from(hop.port)].default_mac) {
        Some(mac) => AdjacencyKey::Forward(hop.port, mac),
        None => AdjacencyKey::Glean(hop.port),
    }
}

/// Host routes: neighbors, and the network and broadcast addresses of connected IPv4 networks. Neighbors come last,
/// so that they win over a broadcast address that is really in use.
fn host_routes(
    config: &RouterConfig,
    vrf: VrfIndex,
    groups: &mut Groups,
) -> Result<Vec<(IpNet, u16)>, BuildError> {
    let mut routes: HashMap<IpNet, u16> = HashMap::new();
    let nobody = groups.id(vec![AdjacencyKey::Drop(DropReason::NotUnicast)], config)?;
    for net in config.ports.iter().filter(|p| p.vrf == vrf).flat_map(|p| &p.addresses) {
        // RFC 3021: a /31 has neither; a /32 is a single host.
        if let (IpNet::V4(n), 0..=30) = (net, net.prefix_len()) {
            routes.insert(IpNet::from(IpAddr::V4(n.network())), nobody);
            routes.insert(IpNet::from(IpAddr::V4(n.broadcast())), nobody);
        }
    }
    let is_in_vrf = |n: &&config::StaticNeighbor| config.ports[usize::from(n.port)].vrf == vrf;
    for neighbor in config.neighbors.iter().filter(is_in_vrf) {
        let id = groups.id(vec![AdjacencyKey::Forward(neighbor.port, neighbor.mac)], config)?;
        routes.insert(IpNet::from(neighbor.address), id);
    }
    Ok(routes.into_iter().collect())
}

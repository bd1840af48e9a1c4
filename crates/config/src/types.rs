//! A checked configuration: plain data, with names resolved to indices.
//!
//! Ports and classes are numbered in file order. A packet carries a `PortIndex` in `port_in` and `port_out`,
//! and the index of its class in `class`. Nothing here can be inconsistent: every index is valid, no port
//! range is empty, no rate is zero.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;

use thalweg_base::BATCH_PACKETS;
use thalweg_dataplane::acl::{AccessList, Rule};
use thalweg_dataplane::classify::Match;
use thalweg_dataplane::egress::{Aqm, STRICT_SHARE_PERCENT_DEFAULT};
use thalweg_dataplane::firewall::{FirewallConfig as Firewall, ROUTER, Zone};
use thalweg_dataplane::gateway_check::CheckConfig;
use thalweg_dataplane::mss::SegmentLimit;
use thalweg_dataplane::nat::NatConfig;
use thalweg_dataplane::police::PolicerConfig;
use thalweg_dataplane::prefix_translation::PrefixPair;
use thalweg_dataplane::reverse_path::ReversePathMode;
use thalweg_dataplane::routing_rules::RoutingRule;
use thalweg_dataplane::schedule::Service;
use thalweg_dataplane::vrrp::VrrpConfig;
use thalweg_exec::Priority;
use thalweg_flow::alarm::AlarmRule;
use thalweg_wire::MacAddr;

use crate::bgp_types::BgpConfig;
use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::flows_types::FlowsConfig;
use crate::web_types::WebConfig;

/// Index into [`RouterConfig::ports`].
pub type PortIndex = u16;
/// The most ports of a router; the last number is never used.
pub const PORTS_MAX: usize = PortIndex::MAX as usize;
/// Index into [`QosConfig::classes`].
pub type ClassIndex = u8;
/// A table of routes: 0 is the main one, others are [`RoutingConfig::vrfs`].
pub type VrfIndex = u16;
/// The name of the main table.
pub const MAIN_VRF: &str = "main";
/// Index into [`RoutingConfig::targets`].
pub type TargetIndex = u32;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// In file order; empty only for a router with BGP alone.
    pub ports: Vec<PortConfig>,
    /// MAC addresses of directly connected neighbors.
    pub neighbors: Vec<StaticNeighbor>,
    /// All routes, including local and connected ones.
    pub routing: RoutingConfig,
    /// Virtual routers, in file order.
    pub vrrp: Vec<VrrpConfig>,
    /// The router that takes over sessions and states.
    pub standby: Option<StandbyConfig>,
    pub nat: Option<NatConfig>,
    /// In file order.
    pub prefix_pairs: Vec<PrefixPair>,
    /// In file order.
    pub acls: Vec<AclConfig>,
    pub firewall: Option<FirewallConfig>,
    /// What rules of access lists and of the firewall may name. The rules have their own copies.
    pub sets: BTreeMap<String, NamedSet>,
    /// Never empty.
    pub qos: QosConfig,
    pub validate: ValidateConfig,
    pub bgp: Option<BgpConfig>,
    /// What is kept in sync with the kernel.
    pub kernel: KernelSync,
    /// How DPDK starts, if a port uses it.
    pub dpdk: DpdkConfig,
    /// What is metered, and where the records go.
    pub flows: Option<FlowsConfig>,
    /// Rules about what flows count.
    pub alarms: Vec<AlarmRule>,
    /// Placement and priority of the threads that work on packets.
    pub workers: WorkersConfig,
    /// Where the HTTP API is served, if it is.
    pub web: Option<WebConfig>,
    /// Where the router answers `show` and similar commands.
    pub control: ControlConfig,
    /// As whom the process runs, and what it denies itself.
    pub system: SystemConfig,
    /// The files that the configuration names.
    pub files: Files,
    /// Settings that are valid but probably not intended.
    pub warnings: Vec<Diagnostic>,
    /// The text of the configuration.
    pub text: std::sync::Arc<str>,
}

/// The other router of the virtual routers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyConfig {
    /// This router's end.
    pub listen: SocketAddr,
    pub peer: SocketAddr,
    /// The file with the secret of both.
    pub key: PathBuf,
}

/// The sockets on which the router answers, and whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    pub socket: PathBuf,
    /// The group that may open it beside the router's user.
    pub group: Option<String>,
    /// Where the router answers readers, and changes nothing.
    pub read_socket: Option<PathBuf>,
    /// The group that alone may open that one; without it everybody.
    pub read_group: Option<String>,
}

/// As whom the process runs, and what it denies itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemConfig {
    /// The user that it becomes if root starts it.
    pub user: Option<String>,
    /// Deny files that the configuration does not name, and system calls that a router does not need.
    pub sandbox: bool,
}

/// The threads that work on packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersConfig {
    /// The scheduling priority among other threads.
    pub priority: Priority,
    /// How many there are, unless the command line says it.
    pub count: usize,
    /// Cores that threads are bound to, in turn; unbound if `None`.
    pub cores: Option<Vec<usize>>,
    /// How many packets one receives at most before it works on them.
    pub batch_packets: usize,
    /// For how long they ask ports that have run dry before they sleep; zero sleeps at once.
    pub busy_poll: Duration,
}

impl Default for WorkersConfig {
    fn default() -> Self {
        Self {
            priority: Priority::RealTime,
            count: 1,
            cores: None,
            batch_packets: BATCH_PACKETS,
            busy_poll: Duration::ZERO,
        }
    }
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    pub name: String,
    /// The name in text traces and as a pcapng interface; by default the port's name.
    pub trace_name: String,
    pub mac: MacAddr,
    /// The table in which packets that arrive here are looked up.
    pub vrf: VrfIndex,
    /// The router's own addresses, each with its connected prefix.
    pub addresses: Vec<IpNet>,
    /// The part of `addresses` that programs have given to the port's mirror.
    pub learned: Vec<IpNet>,
    /// The largest IP packet that may leave here, in bytes.
    pub mtu: u16,
    /// The MAC address for unlisted neighbors; without it, their packets are dropped.
    pub default_mac: Option<MacAddr>,
    /// The interface that `thalweg run` opens; replays need none.
    pub interface: Option<InterfaceConfig>,
    /// Set for a sub-interface.
    pub sub_interface: Option<SubInterface>,
    /// The access list for incoming packets: an index into [`RouterConfig::acls`].
    pub acl_in: Option<u16>,
    /// The access list for outgoing packets.
    pub acl_out: Option<u16>,
    /// The source check of incoming packets.
    pub urpf: ReversePathMode,
    /// What bounds the segments of TCP connections through this port.
    pub mss: Option<SegmentLimit>,
}

impl PortConfig {
    /// The entry for a port that a reload removed, so that other ports keep their numbers. It has no name, so
    /// nothing in a configuration can refer to it.
    pub(crate) fn vacant() -> Self {
        Self::named(String::new())
    }

    /// A port with only a name.
    pub(crate) fn named(name: String) -> Self {
        Self {
            trace_name: name.clone(),
            mac: MacAddr::ZERO,
            vrf: 0,
            addresses: Vec::new(),
            learned: Vec::new(),
            mtu: MTU_DEFAULT,
            default_mac: None,
            interface: None,
            sub_interface: None,
            acl_in: None,
            acl_out: None,
            urpf: ReversePathMode::Off,
            mss: None,
            name,
        }
    }

    /// Whether a reload removed this port.
    pub fn is_vacant(&self) -> bool {
        self.name.is_empty()
    }

    /// The last worker that one of its receive queues is said to belong to.
    pub fn last_worker(&self) -> Option<usize> {
        self.interface.as_ref()?.queue_workers.as_ref()?.iter().copied().max()
    }
}

/// The default of `mtu`.
pub(crate) const MTU_DEFAULT: u16 = 1500;

/// What is kept in sync between the forwarding table and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSync {
    /// Import others' routes that lead to ports into the forwarding table.
    pub import: bool,
    /// Export the router's routes to the kernel's table.
    pub export: bool,
    /// Import permanent neighbors of the kernel.
    pub import_neighbors: bool,
    /// Export neighbors that the router has resolved to the kernel's tables for mirrors.
    pub export_neighbors: bool,
    /// The metric of exported routes.
    pub metric: u32,
    /// Seconds between checks for drift.
    pub repair_s: u32,
}

impl KernelSync {
    /// Whether anything is kept in sync.
    pub fn is_on(&self) -> bool {
        self.import || self.export || self.import_neighbors || self.export_neighbors
    }
}

impl Default for KernelSync {
    fn default() -> Self {
        Self {
            import: false,
            export: false,
            import_neighbors: false,
            export_neighbors: false,
            metric: 116,
            repair_s: 60,
        }
    }
}

/// How DPDK is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkConfig {
    /// The arguments of its environment; if empty, the router chooses them.
    pub eal: Vec<String>,
    /// Memory in frames, for each port and direction.
    pub mbufs: u32,
}

impl Default for DpdkConfig {
    fn default() -> Self {
        Self { eal: Vec::new(), mbufs: 4096 }
    }
}

/// A port on another port's link, distinguished by a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubInterface {
    /// The port that owns the link; never a sub-interface itself.
    pub parent: PortIndex,
    /// 1 to 4094; unique among the sub-interfaces of a parent.
    pub vlan: u16,
}

/// A port's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Its name in the system; for a DPDK device, its name there.
    pub name: String,
    pub driver: Driver,
    /// A DPDK device with its driver's arguments: `net_af_packet0,iface=eth0`.
    pub device: Option<String>,
    /// With driver `capture`: what is played.
    pub capture: Option<Capture>,
    /// The port uses the interface's own MAC address.
    pub own_mac: bool,
    /// The name of the TAP interface that represents the port in the system, if enabled.
    pub mirror: Option<String>,
    /// Announce the router to hosts on the link (RFC 4861).
    pub router_advertisements: bool,
    /// Let the kernel forward packets of flows that the router has decided.
    pub offload: bool,
    /// The number of receive queues with workers of their own, if configured.
    pub queues: Option<u16>,
    /// The worker of each, where the configuration says.
    pub queue_workers: Option<Vec<usize>>,
    /// Where an XDP program runs; `None` for the best place.
    pub xdp_mode: Option<XdpPlace>,
}

/// A capture that a port plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    pub path: PathBuf,
    /// Frames of all its interfaces in a second.
    pub rate: u32,
}

thalweg_base::words! {
    /// Where an XDP program runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum XdpPlace {
        /// In the interface's driver.
        Native => "native",
        /// Behind the driver.
        Generic => "generic",
    }
}

impl InterfaceConfig {
    /// An interface with defaults for everything else.
    pub(crate) fn named(name: String, driver: Driver) -> Self {
        Self {
            name,
            driver,
            device: None,
            capture: None,
            own_mac: true,
            mirror: None,
            router_advertisements: false,
            offload: false,
            queues: None,
            queue_workers: None,
            xdp_mode: None,
        }
    }

    /// The system's interface that the port uses. Not every DPDK device has one, and no capture.
    pub fn in_system(&self) -> Option<&str> {
        /// DPDK drivers that take over an interface, and their arguments for it.
        const DRIVERS: [&str; 3] = ["net_af_packet", "net_af_xdp", "net_pcap"];
        const KEYS: [&str; 3] = ["iface", "rx_iface", "rx_iface_in"];
        let Some(device) = &self.device else {
            return (self.driver != Driver::Capture).then_some(&self.name);
        };
        let mut told = device.split(',').filter_map(|part| part.split_once('='));
        let is_by_system = DRIVERS.iter().any(|driver| device.starts_with(driver));
        told.find_map(|(key, value)| (is_by_system && KEYS.contains(&key)).then_some(value))
    }

    /// The resource that only one router in the system may use: an interface or a NIC. Other DPDK devices are
    /// private to a router.
    pub fn exclusive(&self) -> Option<&str> {
        let card = self.device.as_ref().is_some_and(|device| !device.starts_with("net_"));
        self.in_system().or(card.then_some(&self.name))
    }
}

thalweg_base::words! {
    /// The driver of an interface.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Driver {
        /// The best that works: AF_XDP, otherwise AF_PACKET.
        #[default]
        Auto => "auto",
        AfXdp => "af_xdp",
        AfPacket => "af_packet",
        /// A TAP interface, created for the port: the system is the neighbor on it.
        Tap => "tap",
        /// A DPDK device, if DPDK is built in.
        Dpdk => "dpdk",
        /// A capture file, again and again; what is sent is discarded.
        Capture => "capture",
    }
}

impl Driver {
    /// Whether it uses an interface of the system, which has receive queues and may come and go.
    pub fn takes_interface(self) -> bool {
        !matches!(self, Self::Tap | Self::Dpdk | Self::Capture)
    }

    /// Whether it uses XDP programs.
    pub fn has_xdp(self) -> bool {
        matches!(self, Self::AfXdp | Self::Auto)
    }
}

/// A neighbor on a connected network, with its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor {
    pub port: PortIndex,
    /// Within a connected prefix of the port, or IPv6 link-local.
    pub address: IpAddr,
    pub mac: MacAddr,
}

/// All routes, ready for building a look-up table.
///
/// Sorted by prefix (address, then length) and without duplicates. If several sources have the same prefix,
/// local beats connected beats `[[routes]]` beats route files, and a later file beats an earlier one. An IPv4
/// route takes 12 bytes, an IPv6 route 24.
#[derive(Clone, Debug, Default)]
pub struct RoutingConfig {
    /// IPv4 prefixes of the main table, each with an index into `targets`.
    pub v4: Vec<(Ipv4Net, TargetIndex)>,
    /// IPv6 prefixes, each with an index into `targets`.
    pub v6: Vec<(Ipv6Net, TargetIndex)>,
    /// The tables of VRFs 1 and following.
    pub vrfs: Vec<VrfConfig>,
    /// All targets are different and used.
    pub targets: Vec<RouteTarget>,
    /// Where NAT has several outside ports: the target that leads to the gateways of each, as far as default routes
    /// name them.
    pub outsides: Vec<(PortIndex, TargetIndex)>,
    /// Rules that are asked before the routes, and their names. The first, if there are any, leaves packets for what
    /// ports are connected to, the router itself included, to the routes.
    pub rules: Vec<RoutingRule>,
    pub rule_names: Vec<String>,
    /// Health checks of gateways; at most one of each.
    pub checks: Vec<CheckConfig>,
    pub sources: RouteSources,
}

/// A VRF, with routes like those of the main table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VrfConfig {
    /// Empty if a reload removed it, so that others keep their numbers.
    pub name: String,
    pub v4: Vec<(Ipv4Net, TargetIndex)>,
    pub v6: Vec<(Ipv6Net, TargetIndex)>,
}

impl RoutingConfig {
    /// The target with this index.
    pub fn target_of(&self, index: TargetIndex) -> Option<&RouteTarget> {
        self.targets.get(usize::try_from(index).ok()?)
    }

    /// The index of a target, which is added if it is new.
    pub(crate) fn target(&mut self, target: RouteTarget) -> TargetIndex {
        let known = self.targets.iter().position(|known| *known == target);
        let place = known.unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        TargetIndex::try_from(place).unwrap_or(TargetIndex::MAX)
    }

    /// Whether the rules are those of another configuration, in which targets may have other numbers.
    pub fn has_rules_of(&self, other: &Self) -> bool {
        fn parts(of: &RoutingConfig) -> impl Iterator<Item = (&[PortIndex], &Rule, Option<&RouteTarget>)> {
            of.rules.iter().map(|rule| (&rule.from[..], &rule.rule, of.target_of(rule.target)))
        }
        self.rule_names == other.rule_names && parts(self).eq(parts(other))
    }

    /// The gateways of IPv4 default routes on a port, preferred ones first.
    pub(crate) fn gateways_on(&self, port: PortIndex) -> Vec<NextHop> {
        let defaults = self.v4.iter().filter(|(net, _)| net.prefix_len() == 0);
        let targets = defaults.filter_map(|(_, target)| self.target_of(*target));
        let hops = targets.flat_map(RouteTarget::tiers).filter_map(|tier| match tier {
            RouteTarget::Forward(hops) => Some(hops),
            _ => None,
        });
        let mut found: Vec<NextHop> = Vec::new();
        for hop in hops.flatten().filter(|hop| hop.port == port && hop.gateway.is_some()) {
            if !found.contains(hop) {
                found.push(*hop);
            }
        }
        found
    }
}

/// The number of routes from each source, before duplicates were resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteSources {
    /// The router's own addresses.
    pub local: usize,
    /// Prefixes of ports.
    pub connected: usize,
    /// From `[[routes]]`.
    pub configured: usize,
    /// Lines of route files.
    pub files: usize,
    /// Prefixes that lead to other tables.
    pub leaked: usize,
    /// Routes replaced by another one for the same prefix.
    pub replaced: usize,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteTarget {
    /// The router itself, which has the address on this port.
    Local(PortIndex),
    /// Out of a port; several next hops are ECMP, chosen by flow hash. Never empty.
    Forward(Vec<NextHop>),
    /// Discard silently.
    Blackhole,
    /// Discard as unreachable.
    Unreachable,
    /// As the routes say; only of routing rules.
    Routes,
    /// As the routes of another table say. Never ranked.
    Table(VrfIndex),
    /// Several targets in order of preference: each is used while all before it are dead. At least two, and
    /// none is ranked itself.
    Ranked(Vec<RouteTarget>),
}

impl RouteTarget {
    /// The targets in order of preference; the target itself if it is not ranked.
    pub fn tiers(&self) -> &[RouteTarget] {
        match self {
            Self::Ranked(tiers) => tiers,
            one => std::slice::from_ref(one),
        }
    }

    /// The preferred target; the target itself if it is not ranked.
    pub fn preferred(&self) -> &RouteTarget {
        self.tiers().first().unwrap_or(self)
    }
}

/// A single path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    pub port: PortIndex,
    /// The neighbor to send to; `None` sends to the destination itself (on-link).
    pub gateway: Option<IpAddr>,
}

/// Traffic classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosConfig {
    /// In file order, in which they are tried; always includes `default`.
    pub classes: Vec<Class>,
    /// The class of packets that match no other, named `default`.
    pub default_class: ClassIndex,
    /// Ports with `[[qos.egress]]`, each at most once.
    pub egress: Vec<PortEgress>,
}

/// A traffic class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    pub service: Service,
    /// A packet belongs to the class if it meets any of these; empty only for `default`.
    pub matches: Vec<Match>,
    pub policer: Option<PolicerConfig>,
    /// The class's queue at every live port.
    pub queue: ClassQueue,
}

/// Preamble and start delimiter, frame check sequence, and the gap between frames (IEEE 802.3).
pub(crate) const OVERHEAD_ETHERNET: u16 = 24;
/// The default limit of packets that wait in a class: sixteen batches, enough for what arrives while the
/// port's thread loses its core for some milliseconds.
pub(crate) const LIMIT_PACKETS_DEFAULT: u32 = 4096;
pub(crate) const INTERVAL_MS_DEFAULT: u32 = 100;
pub(crate) const INTERVAL_MS_MAX: u64 = 4_000;
/// RFC 8289 section 4.3.
const TARGET_US_DEFAULT: u32 = 5_000;

/// The `[[qos.egress]]` configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEgress {
    pub port: PortIndex,
    /// The maximum rate in bits per second; `None` is unshaped.
    pub rate_bps: Option<u64>,
    /// The burst after a pause, if configured.
    pub burst_bytes: Option<u32>,
    /// Bytes that a frame takes on the line in addition to its own.
    pub overhead_bytes: u16,
    /// The maximum share of strict classes while weighted ones wait, 1 to 100.
    pub strict_share_percent: u8,
    /// Limits of single classes at this port, which replace their own.
    pub class_rates: Vec<(ClassIndex, u64)>,
}

impl PortEgress {
    /// A port with defaults for everything.
    pub fn unshaped(port: PortIndex) -> Self {
        Self {
            port,
            rate_bps: None,
            burst_bytes: None,
            overhead_bytes: OVERHEAD_ETHERNET,
            strict_share_percent: STRICT_SHARE_PERCENT_DEFAULT,
            class_rates: Vec::new(),
        }
    }
}

/// The queue of a class at every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassQueue {
    /// The class's own limit in bits per second.
    pub rate_bps: Option<u64>,
    /// The burst after a pause, if configured.
    pub burst_bytes: Option<u32>,
    /// The most waiting bytes, if configured.
    pub limit_bytes: Option<u32>,
    /// The most waiting packets.
    pub limit_packets: u32,
    /// Active queue management.
    pub codel: Option<CodelConfig>,
}

impl ClassQueue {
    /// The default queue of a class. A strict class has no active queue management: its traffic has a steady
    /// rate and does not slow down on request.
    pub(crate) fn of(service: Service) -> Self {
        let codel = match service {
            Service::Strict(_) => None,
            Service::Weight(_) => Some(CodelConfig::default()),
        };
        Self {
            rate_bps: None,
            burst_bytes: None,
            limit_bytes: None,
            limit_packets: LIMIT_PACKETS_DEFAULT,
            codel,
        }
    }
}

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The tolerated standing delay, if configured.
    pub target_us: Option<u32>,
    /// How long the delay must have been exceeded.
    pub interval_ms: u32,
    /// Mark packets instead of dropping them if they support it.
    pub ecn: bool,
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self { target_us: None, interval_ms: INTERVAL_MS_DEFAULT, ecn: true }
    }
}

impl CodelConfig {
    /// CoDel at a port where a full frame takes `frame_us`. The default target is RFC 8289's or, on slow
    /// ports, the time of two frames, since a single one may exceed the former; the interval is at least
    /// twice the target.
    pub fn on(&self, frame_us: u64) -> Aqm {
        let slowest = INTERVAL_MS_MAX * 1_000 / 2;
        let slow = (2 * frame_us.min(slowest)).min(slowest) as u32;
        let target_us = self.target_us.unwrap_or(TARGET_US_DEFAULT.max(slow));
        let interval_ms = match self.target_us {
            Some(_) => self.interval_ms,
            None => self.interval_ms.max((2 * target_us).div_ceil(1_000)),
        };
        Aqm { target_us, interval_ms, ecn: self.ecn }
    }
}

/// An access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclConfig {
    pub name: String,
    pub list: AccessList,
    /// A name for each rule: its own, or its number from 1.
    pub rule_names: Vec<String>,
}

/// Addresses and ports that a name stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedSet {
    pub addresses: Vec<IpNet>,
    pub ports: Vec<RangeInclusive<u16>>,
    /// The file that some of them are from.
    pub file: Option<PathBuf>,
}

/// The firewall, and the names of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallConfig {
    pub firewall: Firewall,
    /// Zone 1 and following; ports without a zone are in zone 0.
    pub zone_names: Vec<String>,
    /// A name for each rule: its own, or its number from 1.
    pub rule_names: Vec<String>,
}

impl FirewallConfig {
    /// The zone that is the router itself.
    pub const ROUTER_NAME: &str = "router";

    /// The name of a zone; `-` for ports without one.
    pub fn zone_name(&self, zone: Zone) -> &str {
        if zone == ROUTER {
            return Self::ROUTER_NAME;
        }
        usize::from(zone)
            .checked_sub(1)
            .and_then(|place| self.zone_names.get(place))
            .map_or("-", String::as_str)
    }

    /// The name of a rule; `policy` if none decided.
    pub fn rule_name(&self, rule: u16) -> &str {
        self.rule_names.get(usize::from(rule)).map_or("policy", String::as_str)
    }
}

/// The checks that packets must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidateConfig {
    /// Drop addresses that are never valid sources or never routed (RFC 1812 section 5.3.7).
    pub martians: bool,
}

impl Default for ValidateConfig {
    fn default() -> Self {
        Self { martians: true }
    }
}

//! A configuration after it has been checked: plain data, names resolved to indices.
//!
//! Ports and classes are numbered in the order of the file; `PortIndex` is what a packet carries in
//! `port_in` and `port_out`, and the place of a class is what it carries in `class`. Nothing here can be
//! inconsistent: an index points at something, a port range is not empty, a rate is not zero.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;

use thalweg_base::BATCH_PACKETS;
use thalweg_dataplane::acl::AccessList;
use thalweg_dataplane::classify::Match;
use thalweg_dataplane::egress::{Aqm, STRICT_SHARE_PERCENT_DEFAULT};
use thalweg_dataplane::nat::{NatConfig, NatLogging};
use thalweg_dataplane::police::PolicerConfig;
use thalweg_dataplane::reverse_path::ReversePathMode;
use thalweg_dataplane::schedule::Service;
use thalweg_exec::Priority;
use thalweg_flow::MeterOptions;
use thalweg_wire::MacAddr;

use crate::bgp_types::BgpConfig;
use crate::diagnostic::Diagnostic;

/// Place of a port in [`RouterConfig::ports`].
pub type PortIndex = u16;
/// Ports a router can have; the last number is no port's.
pub const PORTS_MAX: usize = PortIndex::MAX as usize;
/// Place of a class in [`QosConfig::classes`].
pub type ClassIndex = u8;
/// Place of a target in [`RoutingConfig::targets`].
pub type TargetIndex = u32;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Ports in file order; empty only where BGP is all there is.
    pub ports: Vec<PortConfig>,
    /// MAC addresses of directly connected neighbors.
    pub neighbors: Vec<StaticNeighbor>,
    /// Every route the router knows, local and connected ones included.
    pub routing: RoutingConfig,
    /// Address translation, where configured.
    pub nat: Option<NatConfig>,
    /// Access lists in file order.
    pub acls: Vec<AclConfig>,
    /// Traffic classes; never empty.
    pub qos: QosConfig,
    /// Which checks packets have to pass.
    pub validate: ValidateConfig,
    /// BGP, where configured.
    pub bgp: Option<BgpConfig>,
    /// Whether forwarding and the kernel are kept in step.
    pub kernel: KernelSync,
    /// How DPDK is started, where a port is driven by it.
    pub dpdk: DpdkConfig,
    /// What is metered, and who gets the records.
    pub flows: Option<FlowsConfig>,
    /// How the threads that work on packets are placed and ranked.
    pub workers: WorkersConfig,
    /// Where the router listens for `show` and its like.
    pub control_socket: PathBuf,
    /// What is allowed but most likely not meant.
    pub warnings: Vec<Diagnostic>,
    /// The text it was read from.
    pub text: std::sync::Arc<str>,
}

/// The threads that work on packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersConfig {
    /// How soon they get a core that others want too.
    pub priority: Priority,
    /// How many there are, unless the command line says it.
    pub count: usize,
    /// Cores that they are bound to, in turn; not bound if not given.
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

/// Flow metering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// How flows are told apart, timed and sampled. Shards and seeds are the router's to say.
    pub meter: MeterOptions,
    /// Who gets records, as addresses: `ipfix://192.0.2.9:4739`.
    pub collectors: Vec<String>,
    /// Each record goes to one of them, else to all.
    pub balance: bool,
    /// The first observation domain; further collectors have those that follow.
    pub observation_domain: u32,
    /// Datagrams are handed to the kernel together, which cuts them.
    pub gso: bool,
    /// The folder of the dataset where records are kept.
    pub store: Option<PathBuf>,
    /// What of it is kept.
    pub keep: KeepConfig,
    /// Which events of NAT collectors are told, if any.
    pub nat_events: Option<NatLogging>,
}

impl Default for FlowsConfig {
    fn default() -> Self {
        Self {
            meter: MeterOptions { fates: true, ..MeterOptions::default() },
            collectors: Vec::new(),
            balance: false,
            observation_domain: 1,
            gso: true,
            store: None,
            keep: KeepConfig::default(),
            nat_events: None,
        }
    }
}

/// What of a dataset is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepConfig {
    /// Hours that ended so many seconds ago are removed.
    pub age_s: Option<u64>,
    /// The oldest records are removed until the files have at most so many bytes.
    pub bytes: Option<u64>,
    /// Bytes of the file system that stay free; the store has a rule of its own if this says nothing.
    pub free: Option<u64>,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its name in the configuration and in reports.
    pub name: String,
    /// Its name in text traces and as a pcapng interface; the port's own name unless said otherwise.
    pub trace_name: String,
    /// MAC address of the port.
    pub mac: MacAddr,
    /// The router's own addresses, each with the prefix that is connected here.
    pub addresses: Vec<IpNet>,
    /// Those of them that are not configured: a program has given them to the port's mirror.
    pub learned: Vec<IpNet>,
    /// Largest IP packet that may leave here, in bytes.
    pub mtu: u16,
    /// Where frames to neighbors that are not listed go; without it they are dropped.
    pub default_mac: Option<MacAddr>,
    /// The interface that `thalweg run` opens for it; replays need none.
    pub interface: Option<InterfaceConfig>,
    /// What makes it a sub-interface, if it is one.
    pub sub_interface: Option<SubInterface>,
    /// The access list for what comes in here: its place in [`RouterConfig::acls`].
    pub acl_in: Option<u16>,
    /// The same for what leaves here.
    pub acl_out: Option<u16>,
    /// The source check of packets that enter here.
    pub urpf: ReversePathMode,
}

impl PortConfig {
    /// What stands at the number of a port that a reload took away: other ports keep their numbers. It has no name, so
    /// nothing in a configuration can refer to it.
    pub(crate) fn vacant() -> Self {
        Self::named(String::new())
    }

    /// A port of which nothing but its name is known.
    pub(crate) fn named(name: String) -> Self {
        Self {
            trace_name: name.clone(),
            mac: MacAddr::ZERO,
            addresses: Vec::new(),
            learned: Vec::new(),
            mtu: MTU_DEFAULT,
            default_mac: None,
            interface: None,
            sub_interface: None,
            acl_in: None,
            acl_out: None,
            urpf: ReversePathMode::Off,
            name,
        }
    }

    /// Whether this is only the number of a port that a reload took away.
    pub fn is_vacant(&self) -> bool {
        self.name.is_empty()
    }

    /// The last worker that one of its receive queues is said to belong to.
    pub fn last_worker(&self) -> Option<usize> {
        self.interface.as_ref()?.queue_workers.as_ref()?.iter().copied().max()
    }
}

/// The largest IP packet of a port that does not say.
pub(crate) const MTU_DEFAULT: u16 = 1500;

/// How the forwarding table and the kernel's are kept in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSync {
    /// Others' routes that lead to ports are taken into the forwarding table.
    pub import: bool,
    /// The router's routes are put into the kernel's table.
    pub export: bool,
    /// Neighbors that somebody set for good in the kernel are the router's too.
    pub import_neighbors: bool,
    /// Neighbors that the router has resolved are put into the kernel's tables of mirrors.
    pub export_neighbors: bool,
    /// The metric of those.
    pub metric: u32,
    /// Seconds between two looks for drift.
    pub repair_s: u32,
}

impl KernelSync {
    /// Whether anything is kept in step at all.
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
    /// The arguments of its environment; empty, they are made up.
    pub eal: Vec<String>,
    /// Frames that there is memory for, of each port, each way.
    pub mbufs: u32,
}

impl Default for DpdkConfig {
    fn default() -> Self {
        Self { eal: Vec::new(), mbufs: 4096 }
    }
}

/// A port on another's wire, told apart by a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubInterface {
    /// The port whose wire it is; never a sub-interface itself.
    pub parent: PortIndex,
    /// The VLAN, 1 to 4094; different for all sub-interfaces of a parent.
    pub vlan: u16,
}

/// A port's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Its name in the system; of a device of DPDK's its name there.
    pub name: String,
    /// How it is driven.
    pub driver: Driver,
    /// A device of DPDK's with what its driver is told: `net_af_packet0,iface=eth0`.
    pub device: Option<String>,
    /// Whether the port's MAC address is the interface's own.
    pub own_mac: bool,
    /// The name of the TAP interface that stands for the port in the system, if there is to be one.
    pub mirror: Option<String>,
    /// Tell hosts on the link that a router is here (RFC 4861).
    pub router_advertisements: bool,
    /// Let the kernel forward packets of flows that have been decided on.
    pub offload: bool,
    /// Receive queues that are worked on apart, where the configuration says.
    pub queues: Option<u16>,
    /// The worker of each, where the configuration says.
    pub queue_workers: Option<Vec<usize>>,
    /// Where an XDP program is to run; the best place if nothing is said.
    pub xdp_mode: Option<XdpPlace>,
}

thalweg_base::words! {
    /// Where an XDP program runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum XdpPlace {
        /// In the interface's driver.
        Native => "native",
        /// Behind it.
        Generic => "generic",
    }
}

impl InterfaceConfig {
    /// An interface of which nothing else is said.
    pub(crate) fn named(name: String, driver: Driver) -> Self {
        Self {
            name,
            driver,
            device: None,
            own_mac: true,
            mirror: None,
            router_advertisements: false,
            offload: false,
            queues: None,
            queue_workers: None,
            xdp_mode: None,
        }
    }

    /// The interface of the system's that the port works by. Not every device of DPDK's has one.
    pub fn in_system(&self) -> Option<&str> {
        /// Drivers of DPDK's that take an interface over, and how they are told which.
        const DRIVERS: [&str; 3] = ["net_af_packet", "net_af_xdp", "net_pcap"];
        const KEYS: [&str; 3] = ["iface", "rx_iface", "rx_iface_in"];
        let Some(device) = &self.device else { return Some(&self.name) };
        let mut told = device.split(',').filter_map(|part| part.split_once('='));
        let is_by_system = DRIVERS.iter().any(|driver| device.starts_with(driver));
        told.find_map(|(key, value)| (is_by_system && KEYS.contains(&key)).then_some(value))
    }

    /// What only one router of the system may have: an interface, or a card. Other devices of DPDK's are a router's own.
    pub fn exclusive(&self) -> Option<&str> {
        let card = self.device.as_ref().is_some_and(|device| !device.starts_with("net_"));
        self.in_system().or(card.then_some(&self.name))
    }
}

thalweg_base::words! {
    /// How an interface is driven.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Driver {
        /// The best that works: AF_XDP, else AF_PACKET.
        #[default]
        Auto => "auto",
        /// AF_XDP sockets.
        AfXdp => "af_xdp",
        /// AF_PACKET rings.
        AfPacket => "af_packet",
        /// A TAP interface, made for the port: the system is the neighbor on it.
        Tap => "tap",
        /// A device of DPDK's, where that is built in.
        Dpdk => "dpdk",
    }
}

impl Driver {
    /// Whether it takes an interface that the system has: with its receive queues, and it may come and go.
    pub fn takes_interface(self) -> bool {
        !matches!(self, Self::Tap | Self::Dpdk)
    }

    /// Whether XDP programs run for it.
    pub fn has_xdp(self) -> bool {
        matches!(self, Self::AfXdp | Self::Auto)
    }
}

/// A neighbor on a connected network, with its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor {
    /// The port it is on.
    pub port: PortIndex,
    /// Its address, within a connected prefix of that port or IPv6 link-local.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: MacAddr,
}

/// Every route, ready to be built into a look-up table.
///
/// Sorted by prefix (address, then length) and without duplicates. Where several sources name the same
/// prefix, local beats connected beats `[[routes]]` beats route files, and a later file beats an earlier
/// one. Twelve bytes an IPv4 route, 24 an IPv6 route.
#[derive(Clone, Debug, Default)]
pub struct RoutingConfig {
    /// IPv4 prefixes, each with its place in `targets`.
    pub v4: Vec<(Ipv4Net, TargetIndex)>,
    /// IPv6 prefixes, each with its place in `targets`.
    pub v6: Vec<(Ipv6Net, TargetIndex)>,
    /// Where routes lead; every entry is different and used.
    pub targets: Vec<RouteTarget>,
    /// Where the routes came from.
    pub sources: RouteSources,
}

/// How many routes each source gave, before duplicates were resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteSources {
    /// Router's own addresses.
    pub local: usize,
    /// Prefixes of the ports.
    pub connected: usize,
    /// `[[routes]]`.
    pub configured: usize,
    /// Lines of route files.
    pub files: usize,
    /// Routes replaced by another for the same prefix.
    pub replaced: usize,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteTarget {
    /// The router itself, which owns the address on this port.
    Local(PortIndex),
    /// Out of a port; more than one is ECMP, chosen by flow hash. Never empty.
    Forward(Vec<NextHop>),
    /// Discard silently.
    Blackhole,
    /// Discard as unreachable.
    Unreachable,
    /// Several of the others, the preferred one first: each serves while those before it are dead. Two at least, and
    /// none of them ranked itself.
    Ranked(Vec<RouteTarget>),
}

impl RouteTarget {
    /// The targets that serve one after the other: itself, where it is not ranked.
    pub fn tiers(&self) -> &[RouteTarget] {
        match self {
            Self::Ranked(tiers) => tiers,
            one => std::slice::from_ref(one),
        }
    }

    /// The preferred target; itself, where it is not ranked.
    pub fn preferred(&self) -> &RouteTarget {
        self.tiers().first().unwrap_or(self)
    }
}

/// One way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The port to leave by.
    pub port: PortIndex,
    /// The neighbor to send to; `None` sends to the destination itself (on-link).
    pub gateway: Option<IpAddr>,
}

/// Traffic classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosConfig {
    /// Classes in file order, which is the order they are tried in; the class `default` is always there.
    pub classes: Vec<Class>,
    /// The class of packets that match none: the one named `default`.
    pub default_class: ClassIndex,
    /// Ports whose egress is configured, each at most once.
    pub egress: Vec<PortEgress>,
}

/// One traffic class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name in reports.
    pub name: String,
    /// How it is served.
    pub service: Service,
    /// A packet belongs to the class if it meets any of these; empty only for `default`.
    pub matches: Vec<Match>,
    pub policer: Option<PolicerConfig>,
    /// Its queue at every live port.
    pub queue: ClassQueue,
}

/// Preamble and start delimiter, frame check sequence, and the gap between frames (IEEE 802.3).
pub(crate) const OVERHEAD_ETHERNET: u16 = 24;
/// Packets that wait at most in a class unless told otherwise: sixteen batches, so that what arrives while
/// the port's thread is kept from its core for some milliseconds finds room.
pub(crate) const LIMIT_PACKETS_DEFAULT: u32 = 4096;
pub(crate) const INTERVAL_MS_DEFAULT: u32 = 100;
pub(crate) const INTERVAL_MS_MAX: u64 = 4_000;
/// RFC 8289 section 4.3.
const TARGET_US_DEFAULT: u32 = 5_000;

/// What `[[qos.egress]]` says of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEgress {
    pub port: PortIndex,
    /// Bits per second that leave at most; `None`: unshaped.
    pub rate_bps: Option<u64>,
    /// Bytes at once after a pause, where given.
    pub burst_bytes: Option<u32>,
    /// Bytes a frame takes on the line besides its own.
    pub overhead_bytes: u16,
    /// Bound on strict classes while weighted ones wait, 1 to 100.
    pub strict_share_percent: u8,
    /// Bounds of single classes at this port, in place of their own.
    pub class_rates: Vec<(ClassIndex, u64)>,
}

impl PortEgress {
    /// A port of which nothing is said.
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
    /// The class's own bound in bits per second.
    pub rate_bps: Option<u64>,
    /// Bytes at once after a pause, where given.
    pub burst_bytes: Option<u32>,
    /// Bytes that wait at most, where given.
    pub limit_bytes: Option<u32>,
    /// Packets that wait at most.
    pub limit_packets: u32,
    /// Active queue management.
    pub codel: Option<CodelConfig>,
}

impl ClassQueue {
    /// The queue of a class of which nothing is said. A strict class has no active queue management: what
    /// belongs there is sent at a steady rate and does not slow down when told to.
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
    /// The wait that is tolerated for long, where given.
    pub target_us: Option<u32>,
    /// For how long it must have been longer.
    pub interval_ms: u32,
    /// Whether packets that can carry a mark are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self { target_us: None, interval_ms: INTERVAL_MS_DEFAULT, ecn: true }
    }
}

impl CodelConfig {
    /// Where a full frame takes `frame_us`. Unless told otherwise, the target is RFC 8289's, or on slow ports
    /// what two frames take, as one alone may take longer than that; and the interval is at least twice the target.
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

/// One access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclConfig {
    pub name: String,
    /// What it says.
    pub list: AccessList,
    /// Names of its rules, as many as there are: their own or their numbers, from 1.
    pub rule_names: Vec<String>,
}

/// Which checks packets have to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidateConfig {
    /// Drop addresses that can never be a source or be routed (RFC 1812 section 5.3.7).
    pub martians: bool,
}

impl Default for ValidateConfig {
    fn default() -> Self {
        Self { martians: true }
    }
}

//! The configuration of NAT as a plain structure, and the reasons to refuse one.

use super::endpoint::Inside;
use super::nat64::Nat64Prefix;
use crate::helpers::Helpers;
use crate::vrf::VRFS_MAX;
use ipnet::{IpNet, Ipv4Net};
use std::net::Ipv4Addr;
use std::ops::{Range, RangeInclusive};

thalweg_base::words! {
    /// The transport protocols with ports, or identifiers, that NAT translates.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum NatProtocol {
        /// TCP (RFC 5382).
        Tcp = 0 => "tcp",
        /// UDP (RFC 4787).
        Udp = 1 => "udp",
        /// ICMP echo, whose identifier is treated as a port (RFC 5508).
        Icmp = 2 => "icmp",
    }
}

impl NatProtocol {
    /// Whether NAT translates the ports of this protocol number; computed without branches.
    #[inline(always)]
    pub fn translates(number: u8) -> bool {
        const NUMBERS: u32 = 1 << 1 | 1 << 6 | 1 << 17;
        number < 32 && NUMBERS >> number & 1 == 1
    }

    /// The protocol with this number in the IP header.
    #[inline(always)]
    pub fn from_ip(number: u8) -> Option<Self> {
        match number {
            6 => Some(NatProtocol::Tcp),
            17 => Some(NatProtocol::Udp),
            1 => Some(NatProtocol::Icmp),
            _ => None,
        }
    }

    /// Its number in the IP header.
    #[inline(always)]
    pub fn number(self) -> u8 {
        match self {
            NatProtocol::Tcp => 6,
            NatProtocol::Udp => 17,
            NatProtocol::Icmp => 1,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            0 => NatProtocol::Tcp,
            1 => NatProtocol::Udp,
            _ => NatProtocol::Icmp,
        }
    }
}

thalweg_base::words! {
    /// How a new session's public port is chosen, which also decides how sessions spread over shards.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum PortSelection {
        /// The inside port if it is free (RFC 4787 section 4.2.1), else one of the same shard. Sessions with the
        /// same inside port share a shard, so a network where all hosts use one port needs `Hash`.
        #[default]
        Preserve => "preserve",
        /// A port derived from a keyed hash of the inside endpoint; spreads any traffic evenly.
        Hash => "hash",
    }
}

thalweg_base::words! {
    /// Which outside senders a session admits (RFC 4787 section 5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Filtering {
        /// All that know the public port: peer-to-peer programs and games need this.
        #[default]
        EndpointIndependent => "endpoint-independent",
        /// Addresses that the inside endpoint has sent to, from any of their ports. Stored as a 256-bit Bloom
        /// filter per session: it never refuses such an address, and admits another with the probability `(1 -
        /// (63/64)^n)^4` after `n` of them (6e-8 for one, 5e-4 for ten, 9 % for fifty).
        AddressDependent => "address-dependent",
        /// Endpoints that the inside endpoint has sent to, in the same filter; of ICMP echo, addresses.
        AddressAndPortDependent => "address-and-port-dependent",
    }
}

/// How long an idle session lives, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatTimeouts {
    /// UDP; RFC 4787 REQ-5 requires at least 120 and recommends 300.
    pub udp_s: u32,
    /// Established TCP connections; RFC 5382 REQ-5 requires at least 7440 (2 h 4 min).
    pub tcp_established_s: u32,
    /// TCP connections that are opening or closing, or were reset by a possibly forged RST; RFC 5382 REQ-5 requires
    /// at least 240.
    pub tcp_transitory_s: u32,
    /// TCP connections that were certainly refused or reset; never longer than `tcp_transitory_s`.
    pub tcp_aborted_s: u32,
    /// ICMP echo; RFC 5508 REQ-2 requires at least 60.
    pub icmp_s: u32,
    /// Protocols without ports.
    pub bare_s: u32,
}

impl NatTimeouts {
    /// What a configuration without keys means.
    pub const DEFAULT: Self = Self {
        udp_s: 300,
        tcp_established_s: 7440,
        tcp_transitory_s: 240,
        tcp_aborted_s: 10,
        icmp_s: 60,
        bare_s: 600,
    };
}

impl Default for NatTimeouts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

thalweg_base::words! {
    /// How a host is informed about a packet that gets no session because a limit is reached or a resource is
    /// exhausted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum NatRefusal {
        /// ICMP "host unreachable" (RFC 6888 REQ-11b).
        #[default]
        HostUnreachable => "host-unreachable",
        /// ICMP "communication administratively prohibited" (RFC 5508 REQ-8).
        Prohibited => "prohibited",
        /// Not at all.
        Silent => "silent",
    }
}

/// A static mapping of public ports to inside ports, first to first and the others in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// TCP or UDP.
    pub protocol: NatProtocol,
    /// Index into [`NatConfig::public_addresses`].
    pub public_address: usize,
    /// First public port; may lie outside the port range of sessions.
    pub public_port: u16,
    pub inside_address: Ipv4Addr,
    /// The VRF of the inside host.
    pub vrf: u16,
    /// First inside port.
    pub inside_port: u16,
    /// Number of ports.
    pub count: u16,
}

impl PortForward {
    /// The ports that lead inside.
    pub fn public_ports(&self) -> RangeInclusive<u16> {
        ports_from(self.public_port, self.count)
    }

    /// The ports of the inside host, in the order of the public ones.
    pub fn inside_ports(&self) -> RangeInclusive<u16> {
        ports_from(self.inside_port, self.count)
    }

    /// The inside host.
    pub(crate) fn inside(&self) -> Inside {
        Inside { vrf: small(self.vrf), address: self.inside_address.into() }
    }

    /// Each of its ports as a separate forward.
    pub(crate) fn each(self) -> impl Iterator<Item = Self> {
        let pairs = self.public_ports().zip(self.inside_ports());
        pairs.map(move |(public_port, inside_port)| Self { public_port, inside_port, count: 1, ..self })
    }

    /// Whether both forwards have a public port in common, which would then lead to two endpoints.
    pub fn shares_public_port(&self, other: &Self) -> bool {
        (self.protocol, self.public_address) == (other.protocol, other.public_address)
            && overlap(&self.public_ports(), &other.public_ports())
    }

    /// Whether both forwards have an inside endpoint in common. Its replies could use only one of the public ports,
    /// because an inside endpoint has one (endpoint-independent mapping).
    pub fn shares_inside_port(&self, other: &Self) -> bool {
        (self.protocol, self.vrf, self.inside_address) == (other.protocol, other.vrf, other.inside_address)
            && overlap(&self.inside_ports(), &other.inside_ports())
    }
}

fn ports_from(first: u16, count: u16) -> RangeInclusive<u16> {
    first..=first.saturating_add(count.saturating_sub(1))
}

fn overlap(a: &RangeInclusive<u16>, b: &RangeInclusive<u16>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

/// How blocks of public ports are assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockAllocation {
    /// Any free block, on demand.
    Dynamic,
    /// The n-th address of these networks has the n-th block (RFC 7422), so no log is needed. Other addresses get
    /// none.
    Deterministic(Vec<Ipv4Net>),
}

/// Public ports in blocks, each assigned to one inside address, and the limits of one address (RFC 6888 REQ-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberConfig {
    pub allocation: BlockAllocation,
    /// Ports in a block: a power of two.
    pub block_size: u16,
    /// Public ports of each protocol that a subscriber may use. With dynamic blocks, this decides the number of
    /// blocks.
    pub ports_max: u32,
    /// Sessions of all protocols that a subscriber may have.
    pub sessions_max: u32,
    /// Seconds before a released dynamic block may go to another subscriber (RFC 6888 REQ-8).
    pub hold_s: u32,
}

impl SubscriberConfig {
    pub const BLOCK_SIZE_MIN: u16 = 16;
    pub const BLOCK_SIZE_MAX: u16 = 16_384;

    /// Blocks that a subscriber with this many ports may have.
    pub(crate) fn blocks_max(&self, ports_max: u32) -> u32 {
        match self.allocation {
            BlockAllocation::Dynamic => ports_max.div_ceil(u32::from(self.block_size)),
            BlockAllocation::Deterministic(_) => 1,
        }
    }
}

impl Default for SubscriberConfig {
    fn default() -> Self {
        let (block_size, ports_max) = (512, 2048);
        let sessions_max = 3 * ports_max;
        Self { allocation: BlockAllocation::Dynamic, block_size, ports_max, sessions_max, hold_s: 120 }
    }
}

/// Limits of one inside address, and what happens when the table fills up. [`Default`] has no limits;
/// [`HostLimits::fair`] suits networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Sessions of one inside address, all protocols together; `None` is no limit. If subscribers have blocks,
    /// their own limit applies instead.
    pub sessions_max: Option<u32>,
    /// New sessions of one inside address per second; `None` is no limit.
    pub new_per_second: Option<u32>,
    /// Whether half-open TCP sessions live shorter when more than half of the table is in use, and make room for
    /// others when nothing else is free.
    pub drops_half_open: bool,
}

impl HostLimits {
    /// Limits for hosts that share a table of this size: a sixteenth of the table each, and a quarter of that per
    /// second. That is enough for any host, and too little to starve the others.
    pub fn fair(sessions_max: u32) -> Self {
        let sessions = (sessions_max / 16).clamp(64, 4096);
        let rate = (sessions / 4).clamp(100, 1000);
        Self { sessions_max: Some(sessions), new_per_second: Some(rate), drops_half_open: true }
    }
}

/// Inside hosts with public addresses and limits of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatGroup {
    pub name: String,
    /// Prefixes of IPv6 are for NAT64's hosts.
    pub inside: Vec<IpNet>,
    /// The VRF of the hosts.
    pub vrf: u16,
    /// Indexes of its public addresses among those of its outside port, behind those of all other hosts.
    pub addresses: Range<usize>,
    /// The place of the outside port among several.
    pub outside: usize,
    /// Of one inside address; with blocks of subscribers `sessions_max` is exact.
    pub limits: HostLimits,
    /// Public ports of each protocol that one inside address may use, if subscribers have blocks.
    pub ports_max: u32,
}

/// An outside port beside the first: a NAT of its own, with the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherOutside {
    pub port: u16,
    pub public_addresses: Vec<Ipv4Addr>,
    /// Their indexes count from this port's first address.
    pub forwards: Vec<PortForward>,
}

/// Inside addresses and as many public ones that stand for them, first for first and the others in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPair {
    pub inside: Ipv4Net,
    /// The VRF of the inside addresses; the public ones are in that of their port.
    pub vrf: u16,
    /// As long as `inside`.
    pub public: Ipv4Net,
    /// The place of the outside port among several.
    pub outside: usize,
}

/// Packets from inside that are not translated, unless they go to a public address. An empty list admits all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatException {
    /// The VRF of the senders; none means all.
    pub vrf: Option<u16>,
    pub sources: Vec<Ipv4Net>,
    pub destinations: Vec<Ipv4Net>,
}

impl NatException {
    /// The pairs of source and destination that it is about.
    pub fn pairs(&self) -> usize {
        self.sources.len().max(1) * self.destinations.len().max(1)
    }
}

/// The settings of NAT64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat64Config {
    /// The prefix under which IPv6 hosts reach IPv4 hosts.
    pub prefix: Nat64Prefix,
    /// The smallest MTU of the inside ports.
    pub mtu_bytes: u16,
}

/// The configuration of NAT44, and of NAT64 by the same sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatConfig {
    /// The port where packets for the public addresses arrive; the first if there are several.
    pub outside_port: u16,
    /// The other outside ports. Each has its own sessions, tables and limits of hosts.
    pub others: Vec<OtherOutside>,
    /// Ports whose packets are translated on their way out.
    pub inside_ports: Vec<u16>,
    /// The addresses that inside hosts appear under, at most 256. While there is none, every new session is refused
    /// as if all ports were in use.
    pub public_addresses: Vec<Ipv4Addr>,
    /// The VRFs of ports, if some port of NAT is in one; other ports are in the main table, 0.
    pub vrfs: Vec<u16>,
    /// Destinations that inside hosts of a VRF reach untranslated: the router's inside networks there.
    pub untranslated: Vec<(u16, Ipv4Net)>,
    /// Hosts with public addresses of their own, which no session has.
    pub one_to_one: Vec<AddressPair>,
    pub exceptions: Vec<NatException>,
    /// The first that has a host counts.
    pub groups: Vec<NatGroup>,
    /// Protocols whose messages are rewritten.
    pub helpers: Helpers,
    /// Public ports (and ICMP identifiers) for sessions.
    pub port_range: RangeInclusive<u16>,
    /// Number of shards: a power of two, 1 to 256. It decides which public ports a session can get, so results
    /// depend on it, but never on the number of workers.
    pub shards: u16,
    /// Sessions in all; every shard holds its share, rounded up. Traffic does not spread perfectly evenly, so leave
    /// a quarter of headroom.
    pub sessions_max: u32,
    pub port_selection: PortSelection,
    pub filtering: Filtering,
    /// Whether inside hosts reach one another through public addresses (RFC 4787 REQ-9).
    pub hairpin: bool,
    /// Whether packets from outside refresh a UDP or ICMP session too. RFC 4787 REQ-6 requires it only of packets
    /// from inside; otherwise an outsider could keep a session alive for ever.
    pub inbound_refresh: bool,
    pub timeouts: NatTimeouts,
    pub forwards: Vec<PortForward>,
    /// Blocks of ports and limits for each inside address; with `None` all hosts share all ports.
    pub subscribers: Option<SubscriberConfig>,
    pub hosts: HostLimits,
    /// How a host is informed whose session is refused.
    pub refusal: NatRefusal,
    /// IPv6 hosts inside reach IPv4 hosts.
    pub nat64: Option<Nat64Config>,
    /// The secret key of every hash, against traffic made to collide. A live router draws it at start; a replay
    /// uses a fixed one, because public ports depend on it.
    pub hash_seed: u64,
}

impl NatConfig {
    /// The most outside ports.
    pub const OUTSIDES_MAX: usize = 8;
    /// The most pairs of source and destination in exceptions: packets are compared with each.
    pub const EXCEPTIONS_MAX: usize = 64;
    /// The most inside prefixes of groups: the first packet of a session is compared with each.
    pub const GROUP_PREFIXES_MAX: usize = 256;

    /// The hash seed for reproducible results.
    pub const HASH_SEED_FIXED: u64 = 0x7468_616c_7765_6721;
}

impl Default for NatConfig {
    /// Recommended values; ports and addresses are empty.
    fn default() -> Self {
        Self {
            outside_port: 0,
            others: Vec::new(),
            inside_ports: Vec::new(),
            public_addresses: Vec::new(),
            vrfs: Vec::new(),
            untranslated: Vec::new(),
            one_to_one: Vec::new(),
            exceptions: Vec::new(),
            groups: Vec::new(),
            helpers: Helpers::default(),
            port_range: 1024..=65535,
            shards: 64,
            sessions_max: 65_536,
            port_selection: PortSelection::Preserve,
            filtering: Filtering::EndpointIndependent,
            hairpin: true,
            inbound_refresh: false,
            timeouts: NatTimeouts::default(),
            forwards: Vec::new(),
            subscribers: None,
            hosts: HostLimits::default(),
            refusal: NatRefusal::default(),
            nat64: None,
            hash_seed: Self::HASH_SEED_FIXED,
        }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatConfigError {
    /// More public addresses than a session's index can name.
    #[error("{0} public addresses; at most 256 are supported")]
    TooManyPublicAddresses(usize),
    /// More outside ports than [`NatConfig::OUTSIDES_MAX`].
    #[error("{} outside ports; at most {} are supported", .0, NatConfig::OUTSIDES_MAX)]
    TooManyOutsides(usize),
    /// The same outside port twice.
    #[error("outside port {0} is given twice")]
    OutsideTwice(u16),
    /// The same public address twice.
    #[error("public address {0} is given twice")]
    PublicAddressTwice(Ipv4Addr),
    #[error("NAT needs at least one inside port")]
    NoInsidePort,
    /// A port that is both inside and outside.
    #[error("port {0} is both inside and outside")]
    InsideIsOutside(u16),
    /// Not a power of two from 1 to 256.
    #[error("{0} shards; expected a power of two from 1 to 256")]
    Shards(u16),
    /// The range has no port, or so few that a shard would own none.
    #[error("port range {from}-{to} leaves some of {shards} shards without a port")]
    PortRange {
        from: u16,
        to: u16,
        /// The shards, each of which needs one.
        shards: u16,
    },
    /// Zero, or more than 2^30 sessions.
    #[error("{0} sessions; expected 1 to 2^30")]
    SessionsMax(u32),
    /// A lifetime of zero or more than [`NatConfig::TIMEOUT_MAX_S`].
    #[error("timeout {name} = {seconds} s; expected 1 to {}", NatConfig::TIMEOUT_MAX_S)]
    Timeout {
        name: &'static str,
        /// Its value.
        seconds: u32,
    },
    /// A port forward of a protocol without ports.
    #[error("port forward for {}; expected tcp or udp", .0.name())]
    ForwardProtocol(NatProtocol),
    /// A port forward on a public address that does not exist.
    #[error("port forward for public address number {index}; there are {addresses}, from 0")]
    ForwardAddress {
        index: usize,
        /// The number of public addresses.
        addresses: usize,
    },
    /// A port forward of port 0.
    #[error("port 0 cannot be forwarded")]
    ForwardPort,
    /// Two forwards of one public port.
    #[error("{} {}:{} is forwarded twice", .0.name(), .1, .2)]
    ForwardPublicTwice(NatProtocol, Ipv4Addr, u16),
    /// Two forwards to one inside endpoint; see [`PortForward::shares_inside_port`].
    #[error("two port forwards lead to {} {}:{}; an inside endpoint has one public port", .0.name(), .1, .2)]
    ForwardInsideTwice(NatProtocol, Ipv4Addr, u16),
    /// Not a power of two, or outside the permitted range.
    #[error(
        "blocks of {} ports; expected a power of two from {} to {}",
        .0,
        SubscriberConfig::BLOCK_SIZE_MIN,
        SubscriberConfig::BLOCK_SIZE_MAX
    )]
    BlockSize(u16),
    /// A subscriber limit of zero.
    #[error("a subscriber needs at least one port and one session")]
    SubscriberLimit,
    /// Some shards would own no block.
    #[error("{blocks} port blocks leave some of {shards} shards without one")]
    Blocks {
        /// Blocks on each address.
        blocks: u32,
        /// The shards, each of which needs one.
        shards: u16,
    },
    /// There are fewer deterministic blocks than subscribers, or no subscribers.
    #[error("{wanted} subscribers share {there} port blocks; each needs its own")]
    Subscribers {
        /// Addresses that need a block.
        wanted: u64,
        /// Blocks on all public addresses.
        there: u64,
    },
    /// Networks of two lengths that are to stand for each other.
    #[error("{0} and {1} are of two sizes")]
    PairLengths(Ipv4Net, Ipv4Net),
    /// An address with two counterparts, or that sessions have too.
    #[error("{0} has two translations")]
    PairTwice(Ipv4Net),
    /// A pair at an outside port that does not exist.
    #[error("addresses of outside port number {0}, which does not exist")]
    PairOutside(usize),
    /// A group without public addresses or inside hosts, with addresses that others have too, with a limit of zero, or
    /// one of too many.
    #[error("group {0} needs inside prefixes, public addresses of its own, and limits above zero; at most {max} prefixes in all", max = NatConfig::GROUP_PREFIXES_MAX)]
    Group(String),
    /// Deterministic blocks for hosts of several VRFs.
    #[error("deterministic blocks do not tell the hosts of several VRFs apart")]
    SubscriberVrfs,
    /// A VRF that there cannot be.
    #[error("there are at most {VRFS_MAX} VRFs, and this is number {0}")]
    Vrf(u16),
    /// A network of subscribers that overlaps another.
    #[error("subscribers {0} are given twice")]
    SubscriberTwice(Ipv4Net),
}

/// A VRF's number in a byte: there are at most [`VRFS_MAX`].
pub(crate) fn small(vrf: u16) -> u8 {
    u8::try_from(vrf).unwrap_or(0)
}

impl NatConfig {
    /// Longest lifetime accepted, 194 days.
    pub const TIMEOUT_MAX_S: u32 = 1 << 24;

    /// The outside ports, the first one first.
    pub fn outside_ports(&self) -> impl Iterator<Item = u16> + '_ {
        std::iter::once(self.outside_port).chain(self.others.iter().map(|other| other.port))
    }

    /// The VRF of a port of NAT.
    pub(crate) fn vrf_of(&self, port: u16) -> u8 {
        self.vrfs.get(usize::from(port)).map_or(0, |vrf| small(*vrf))
    }

    /// The public addresses of all outside ports.
    pub fn all_public_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let others = self.others.iter().flat_map(|other| &other.public_addresses);
        self.public_addresses.iter().chain(others).copied()
    }

    /// Those of them that are in the main table, where the router's programs may have them too.
    pub fn main_public_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let others = self.others.iter().map(|other| (other.port, &other.public_addresses));
        let all = std::iter::once((self.outside_port, &self.public_addresses)).chain(others);
        all.filter(|(port, _)| self.vrf_of(*port) == 0).flat_map(|(_, addresses)| addresses).copied()
    }

    /// The configuration of each outside port, as if it were the only one.
    pub fn outsides(&self) -> impl Iterator<Item = Self> + '_ {
        let groups_of = |place: usize| {
            let own = self.groups.iter().filter(|group| group.outside == place);
            own.map(|group| NatGroup { outside: 0, ..group.clone() }).collect()
        };
        let others = self.others.iter().zip(1..).map(move |(other, place)| Self {
            outside_port: other.port,
            public_addresses: other.public_addresses.clone(),
            forwards: other.forwards.clone(),
            groups: groups_of(place),
            others: Vec::new(),
            ..self.clone()
        });
        let groups = groups_of(0);
        std::iter::once(Self { others: Vec::new(), groups, ..self.clone() }).chain(others)
    }

    /// Checks everything that does not depend on the rest of the router's configuration.
    pub fn validate(&self) -> Result<(), NatConfigError> {
        let outsides: Vec<Self> = self.outsides().collect();
        if outsides.len() > Self::OUTSIDES_MAX {
            return Err(NatConfigError::TooManyOutsides(outsides.len()));
        }
        if let Some(vrf) = self.vrfs.iter().find(|vrf| usize::from(**vrf) >= VRFS_MAX) {
            return Err(NatConfigError::Vrf(*vrf));
        }
        let mut of_inside = self.inside_ports.iter().map(|port| self.vrf_of(*port));
        let first = of_inside.next();
        if self.has_deterministic_blocks() && of_inside.any(|vrf| Some(vrf) != first) {
            return Err(NatConfigError::SubscriberVrfs);
        }
        self.validate_pairs(&outsides)?;
        if let Some(group) = self.groups.iter().find(|group| group.outside >= outsides.len()) {
            return Err(NatConfigError::PairOutside(group.outside));
        }
        for (i, outside) in outsides.iter().enumerate() {
            outside.validate_alone()?;
            for earlier in &outsides[..i] {
                outside.validate_beside(earlier)?;
            }
        }
        Ok(())
    }

    /// An address has one translation: no pair shares any with another, with the pools or with port forwards.
    fn validate_pairs(&self, outsides: &[Self]) -> Result<(), NatConfigError> {
        let overlap = |a: &Ipv4Net, b: &Ipv4Net| a.contains(b) || b.contains(a);
        for (i, pair) in self.one_to_one.iter().enumerate() {
            if pair.inside.prefix_len() != pair.public.prefix_len() {
                return Err(NatConfigError::PairLengths(pair.inside, pair.public));
            }
            if pair.outside >= outsides.len() {
                return Err(NatConfigError::PairOutside(pair.outside));
            }
            let public_vrf = |outside: &Self| outside.vrf_of(outside.outside_port);
            let vrf = public_vrf(&outsides[pair.outside]);
            let is_beside = |place: usize| outsides.get(place).is_some_and(|other| public_vrf(other) == vrf);
            let is_other = |other: &AddressPair| {
                other.vrf == pair.vrf && overlap(&other.inside, &pair.inside)
                    || is_beside(other.outside) && overlap(&other.public, &pair.public)
            };
            let has = |outside: &Self| {
                let leads_there = |forward: &PortForward| {
                    forward.vrf == pair.vrf && pair.inside.contains(&forward.inside_address)
                };
                public_vrf(outside) == vrf
                    && outside.public_addresses.iter().any(|address| pair.public.contains(address))
                    || outside.forwards.iter().any(leads_there)
            };
            if self.one_to_one[..i].iter().any(is_other) || outsides.iter().any(has) {
                return Err(NatConfigError::PairTwice(pair.public));
            }
        }
        Ok(())
    }

    /// What two outside ports must not share. An inside endpoint has one outside port too: its answers leave there.
    fn validate_beside(&self, other: &Self) -> Result<(), NatConfigError> {
        if self.outside_port == other.outside_port {
            return Err(NatConfigError::OutsideTwice(self.outside_port));
        }
        let is_beside = self.vrf_of(self.outside_port) == self.vrf_of(other.outside_port);
        let twice = self.public_addresses.iter().find(|a| is_beside && other.public_addresses.contains(a));
        if let Some(address) = twice {
            return Err(NatConfigError::PublicAddressTwice(*address));
        }
        let shares = |f: &&PortForward| other.forwards.iter().any(|theirs| theirs.shares_inside_port(f));
        match self.forwards.iter().find(shares) {
            Some(f) => Err(NatConfigError::ForwardInsideTwice(f.protocol, f.inside_address, f.inside_port)),
            None => Ok(()),
        }
    }

    fn validate_alone(&self) -> Result<(), NatConfigError> {
        self.validate_addresses()?;
        if self.inside_ports.is_empty() {
            return Err(NatConfigError::NoInsidePort);
        }
        if self.inside_ports.contains(&self.outside_port) {
            return Err(NatConfigError::InsideIsOutside(self.outside_port));
        }
        if !self.shards.is_power_of_two() || self.shards > 256 {
            return Err(NatConfigError::Shards(self.shards));
        }
        // A shard owns pairs of ports: one pair in every `2 * shards` ports.
        let (from, to) = (*self.port_range.start(), *self.port_range.end());
        if from == 0 || u32::from(to) + 1 < u32::from(from) + 2 * u32::from(self.shards) {
            return Err(NatConfigError::PortRange { from, to, shards: self.shards });
        }
        if self.sessions_max == 0 || self.sessions_max > 1 << 30 {
            return Err(NatConfigError::SessionsMax(self.sessions_max));
        }
        let t = &self.timeouts;
        let timeouts = [
            ("udp", t.udp_s),
            ("tcp-established", t.tcp_established_s),
            ("tcp-transitory", t.tcp_transitory_s),
            ("tcp-aborted", t.tcp_aborted_s),
            ("icmp", t.icmp_s),
            ("other", t.bare_s),
        ];
        for (name, seconds) in timeouts {
            if seconds == 0 || seconds > Self::TIMEOUT_MAX_S {
                return Err(NatConfigError::Timeout { name, seconds });
            }
        }
        self.validate_groups()?;
        self.validate_subscribers()?;
        self.validate_forwards()
    }

    fn validate_groups(&self) -> Result<(), NatConfigError> {
        let (mut taken, mut prefixes) = (self.default_group().addresses.end, 0);
        for group in &self.groups {
            let Range { start, end } = group.addresses;
            prefixes += group.inside.len();
            let limits = [group.limits.sessions_max, group.limits.new_per_second];
            let is_sound = start == taken && end > start && end <= self.public_addresses.len();
            let can_have = !limits.contains(&Some(0)) && (self.subscribers.is_none() || group.ports_max > 0);
            if !is_sound || !can_have || group.inside.is_empty() || prefixes > Self::GROUP_PREFIXES_MAX {
                return Err(NatConfigError::Group(group.name.clone()));
            }
            taken = end;
        }
        Ok(())
    }

    fn validate_addresses(&self) -> Result<(), NatConfigError> {
        if self.public_addresses.len() > 256 {
            return Err(NatConfigError::TooManyPublicAddresses(self.public_addresses.len()));
        }
        for (i, address) in self.public_addresses.iter().enumerate() {
            if self.public_addresses[..i].contains(address) {
                return Err(NatConfigError::PublicAddressTwice(*address));
            }
        }
        Ok(())
    }

    fn validate_forwards(&self) -> Result<(), NatConfigError> {
        for (i, f) in self.forwards.iter().enumerate() {
            if f.protocol == NatProtocol::Icmp {
                return Err(NatConfigError::ForwardProtocol(f.protocol));
            }
            let Some(&address) = self.public_addresses.get(f.public_address) else {
                let addresses = self.public_addresses.len();
                return Err(NatConfigError::ForwardAddress { index: f.public_address, addresses });
            };
            if f.public_port == 0 || f.inside_port == 0 {
                return Err(NatConfigError::ForwardPort);
            }
            let (first, inside) = (f.public_port, f.inside_port);
            for earlier in &self.forwards[..i] {
                if earlier.shares_public_port(f) {
                    let port = first.max(earlier.public_port);
                    return Err(NatConfigError::ForwardPublicTwice(f.protocol, address, port));
                }
                if earlier.shares_inside_port(f) {
                    let port = inside.max(earlier.inside_port);
                    return Err(NatConfigError::ForwardInsideTwice(f.protocol, f.inside_address, port));
                }
            }
        }
        Ok(())
    }

    /// Each forwarded port as a separate forward.
    pub(crate) fn each_forward(&self) -> impl Iterator<Item = PortForward> {
        self.forwards.iter().flat_map(|forward| forward.each())
    }

    /// Whether a table made for `other` has its sessions where one made for this configuration would have them.
    /// Only the settings compared here determine the table; all others can be changed in place.
    pub fn has_table_of(&self, other: &Self) -> bool {
        let limits = |config: &Self| (config.shards, config.sessions_max, config.port_selection);
        limits(self) == limits(other)
            && self.public_addresses == other.public_addresses
            && self.port_range == other.port_range
            && self.vrfs == other.vrfs
            && self.forwards == other.forwards
            && self.others == other.others
            && self.subscribers == other.subscribers
            && self.nat64 == other.nat64
            && (self.groups == other.groups || !self.has_deterministic_blocks())
    }

    /// Whether an inside address determines its block.
    fn has_deterministic_blocks(&self) -> bool {
        let allocation = self.subscribers.as_ref().map(|subscribers| &subscribers.allocation);
        matches!(allocation, Some(BlockAllocation::Deterministic(_)))
    }

    /// The capacity of one shard, not counting port forwards.
    pub fn sessions_per_shard(&self) -> u32 {
        self.sessions_max.div_ceil(u32::from(self.shards))
    }
}

//! A router and its packets as data: seeds draw them, and scenario files store them.

use serde::{Deserialize, Serialize};
use thalweg_exec::ModelKind;

use crate::seeds::is_default;

/// The most packets of a plan, repetitions included.
const PACKETS_MAX: usize = 100_000;
/// The most inside ports.
pub(super) const LANS_MAX: u8 = 3;

/// A router, its packets, and the events between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Keys the hashes of NAT and of the flow cache.
    pub seed: u64,
    /// The execution model that must give the same answer as the serial one.
    #[serde(with = "model_name")]
    pub model: ModelKind,
    pub workers: usize,
    /// The configurations; the first one is in force at the start.
    pub routers: Vec<Setup>,
    /// The events, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
}

mod model_name {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use thalweg_exec::ModelKind;

    pub(super) fn serialize<S: Serializer>(model: &ModelKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(model.name())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<ModelKind, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A configuration. By default it has one inside port, an outside port, and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    /// Inside ports beyond the first.
    #[serde(skip_serializing_if = "is_default")]
    pub more_lans: u8,
    /// The outside port's MTU is 400 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub small_mtu: bool,
    /// The outside gateway's MAC address is unknown.
    #[serde(skip_serializing_if = "is_default")]
    pub lost_gateway: bool,
    /// Sources on inside ports are checked (`urpf = "strict"`).
    #[serde(skip_serializing_if = "is_default")]
    pub strict_sources: bool,
    /// The denial in the access list of inside ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<NatSetup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassSetup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowSetup>,
}

impl Setup {
    /// Inside ports.
    pub(super) fn lans(&self) -> u8 {
        1 + self.more_lans
    }
}

/// The denial in an access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deny {
    /// Packets of an inside host.
    Host(u8),
    Udp,
}

/// The settings of NAT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatSetup {
    pub addresses: u8,
    /// The first and last public port.
    pub ports: (u16, u16),
    /// A power of two.
    pub shards: u16,
    pub sessions_max: u32,
    /// NAT chooses ports by hash.
    #[serde(skip_serializing_if = "is_default")]
    pub hash: bool,
    /// Only hosts that an inside host has sent to may answer.
    #[serde(skip_serializing_if = "is_default")]
    pub address_dependent: bool,
    /// And only from ports that it has sent to.
    #[serde(skip_serializing_if = "is_default")]
    pub port_dependent: bool,
    /// Inside hosts do not reach each other by public addresses.
    #[serde(skip_serializing_if = "is_default")]
    pub no_hairpin: bool,
    /// Inbound packets refresh sessions, too.
    #[serde(skip_serializing_if = "is_default")]
    pub inbound_refresh: bool,
    /// Half-open TCP sessions are not evicted for others.
    #[serde(skip_serializing_if = "is_default")]
    pub keep_half_open: bool,
    /// The limits of a host's sessions and of its new ones per second; 0: no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub host_limits: (u32, u32),
    /// Lifetimes are seconds instead of minutes.
    #[serde(skip_serializing_if = "is_default")]
    pub short_lives: bool,
    /// The ports of a subscriber's block; each subscriber has two blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u16>,
    /// UDP port 5000 of the first public address leads to the first host.
    #[serde(skip_serializing_if = "is_default")]
    pub forward: bool,
}

impl Default for NatSetup {
    fn default() -> Self {
        Self {
            addresses: 1,
            ports: (1024, 65_535),
            shards: 4,
            sessions_max: 256,
            hash: false,
            address_dependent: false,
            port_dependent: false,
            no_hairpin: false,
            inbound_refresh: false,
            keep_half_open: false,
            host_limits: (0, 0),
            short_lives: false,
            block: None,
            forward: false,
        }
    }
}

impl NatSetup {
    /// Lifetimes of UDP, established TCP, transitory TCP, ICMP, and others, in seconds.
    pub(super) fn lives_s(&self) -> [u32; 5] {
        if self.short_lives { [3, 20, 4, 2, 3] } else { [300, 7440, 240, 60, 600] }
    }

    /// Whether the session tables have the same layout, so that the table survives a reload from one to the
    /// other.
    pub(super) fn has_places_of(&self, other: &Self) -> bool {
        let places = |nat: &Self| {
            (nat.addresses, nat.ports, nat.shards, nat.sessions_max, nat.hash, nat.block, nat.forward)
        };
        places(self) == places(other)
    }
}

/// Traffic classes: voice and bulk, by DSCP. Voice has priority over all others, and bulk comes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassSetup {
    /// The rate of voice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policed_bps: Option<u32>,
    /// Voice beyond this rate is remarked instead of dropped.
    #[serde(skip_serializing_if = "is_default")]
    pub remark: bool,
}

/// The settings of the meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowSetup {
    /// The most flows in the cache; each shard has its part, at least 16.
    pub flows_max: u32,
    pub idle_s: u16,
    pub active_s: u16,
    /// Both directions are in one record.
    #[serde(skip_serializing_if = "is_default")]
    pub biflow: bool,
    /// One packet in this many is sampled.
    pub sample: u32,
    /// Flow keys have no ports.
    #[serde(skip_serializing_if = "is_default")]
    pub without_ports: bool,
}

impl Default for FlowSetup {
    fn default() -> Self {
        Self { flows_max: 4096, idle_s: 15, active_s: 60, biflow: false, sample: 1, without_ports: false }
    }
}

/// An event, and its delay after the previous one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub after_ms: u32,
    pub what: Act,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    Packets(Vec<Item>),
    /// Another configuration comes into force; sessions, policers and flows go on.
    Reload(usize),
    /// An operator clears all sessions of an inside host.
    Clear(u8),
}

impl Act {
    /// The name for coverage.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Packets(_) => "packets",
            Self::Reload(_) => "reload",
            Self::Clear(_) => "sessions cleared",
        }
    }
}

/// One or more similar packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Item {
    pub kind: Kind,
    /// The number of packets; each comes from the next port of the inside host.
    #[serde(skip_serializing_if = "is_one")]
    pub times: u16,
    pub host: u8,
    /// The inside port. For answers: the index among the public endpoints that were seen.
    pub port: u16,
    pub remote: u8,
    pub protocol: Protocol,
    #[serde(skip_serializing_if = "is_default")]
    pub piece: Piece,
    /// The TTL or hop limit.
    #[serde(skip_serializing_if = "is_usual_ttl")]
    pub ttl: u8,
    #[serde(skip_serializing_if = "is_default")]
    pub dscp: u8,
    /// The bytes of payload beyond the first few.
    #[serde(skip_serializing_if = "is_default")]
    pub bytes: u16,
    /// The byte of the IP packet that is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flip: Option<u8>,
}

fn is_one(times: &u16) -> bool {
    *times == 1
}

fn is_usual_ttl(ttl: &u8) -> bool {
    *ttl == 64
}

impl Default for Item {
    fn default() -> Self {
        Self {
            kind: Kind::Out,
            times: 1,
            host: 0,
            port: 4000,
            remote: 0,
            protocol: Protocol::Udp,
            piece: Piece::Whole,
            ttl: 64,
            dscp: 0,
            bytes: 0,
            flip: None,
        }
    }
}

thalweg_base::words! {
    /// The source and destination of a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Kind {
        /// An inside host to an outside one.
        Out => "out",
        /// An outside host to a public endpoint that was seen.
        Back => "back",
        /// An outside host to any public port, used or not.
        Knock => "knock",
        /// An inside host to a public endpoint that was seen.
        Hairpin => "hairpin",
        /// An outside router sends an error about a packet from a public endpoint that was seen.
        ErrorIn => "error-in",
        /// An inside host sends an error about a packet to its endpoint.
        ErrorOut => "error-out",
        /// An inside host to another.
        Across => "across",
        /// An inside host to a blackhole route.
        Blackhole => "blackhole",
        /// An inside host to a destination without a route.
        Unreachable => "unreachable",
        /// An inside host to a network without a known MAC address.
        Unresolved => "unresolved",
        /// An inside host to the router.
        Local => "local",
        /// An inside host to a multicast group.
        Multicast => "multicast",
        /// The source address is invalid.
        Martian => "martian",
        /// An inside host with another host's address.
        Forged => "forged",
        /// An inside host to an outside one over IPv6.
        Six => "six",
        /// An inside host to an IPv6 destination without a route.
        SixNowhere => "six-nowhere",
        /// Random bytes in a frame of IPv4.
        Garbage => "garbage",
        /// A frame of another protocol.
        NotIp => "not-ip",
    }
}

/// The transport of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Udp,
    TcpSyn,
    TcpAck,
    TcpFin,
    TcpRst,
    /// ICMP echo.
    Echo,
    /// GRE, which has no ports.
    Gre,
}

/// The part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Piece {
    #[default]
    Whole,
    First,
    /// The second and last one.
    Last,
}

/// Why a plan is invalid.
#[derive(Debug, thiserror::Error)]
pub enum PlanFault {
    #[error("there is no configuration: [[routers]] is missing")]
    NoRouter,
    #[error("{0} workers; 1 to 8 are possible")]
    Workers(usize),
    #[error("configuration {0} has more than {LANS_MAX} inside ports")]
    InsidePorts(usize),
    #[error("there is no configuration {0} to be put in force")]
    NoConfiguration(usize),
    #[error("{0} packets; {PACKETS_MAX} are possible")]
    Packets(usize),
}

impl Plan {
    /// Returns an error if the plan is invalid.
    pub(in crate::seeds) fn check(&self) -> Result<(), PlanFault> {
        if self.routers.is_empty() {
            return Err(PlanFault::NoRouter);
        }
        if !(1..=8).contains(&self.workers) {
            return Err(PlanFault::Workers(self.workers));
        }
        for (at, setup) in self.routers.iter().enumerate() {
            if setup.more_lans >= LANS_MAX {
                return Err(PlanFault::InsidePorts(at));
            }
        }
        for step in &self.steps {
            if let Act::Reload(setup) = step.what
                && setup >= self.routers.len()
            {
                return Err(PlanFault::NoConfiguration(setup));
            }
        }
        match self.packets() {
            0..=PACKETS_MAX => Ok(()),
            packets => Err(PlanFault::Packets(packets)),
        }
    }

    /// The number of packets of all steps.
    pub fn packets(&self) -> usize {
        let chunks = self.steps.iter().filter_map(|step| match &step.what {
            Act::Packets(items) => Some(items),
            _ => None,
        });
        chunks.flatten().map(|item| usize::from(item.times)).sum()
    }

    /// The most ports that any of its routers has.
    pub fn ports(&self) -> usize {
        self.routers.iter().map(|setup| 3 + usize::from(setup.more_lans)).max().unwrap_or(0)
    }

    /// Whether a packet is a fragment.
    pub(super) fn has_fragments(&self) -> bool {
        let is_piece = |item: &Item| item.piece != Piece::Whole;
        self.steps.iter().any(|step| matches!(&step.what, Act::Packets(items) if items.iter().any(is_piece)))
    }
}

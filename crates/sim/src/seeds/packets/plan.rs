//! A router and the packets it gets as data: what a seed draws, what a scenario file holds.

use serde::{Deserialize, Serialize};
use thalweg_exec::ModelKind;

use crate::seeds::is_default;

/// Packets of a plan at most, each as often as it is sent.
const PACKETS_MAX: usize = 100_000;
/// Inside ports at most.
pub(super) const LANS_MAX: u8 = 3;

/// A router, its packets, and what happens to it meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Keys the hashes of NAT and of the flow cache.
    pub seed: u64,
    /// The execution model that has to give the answer of the serial one.
    #[serde(with = "model_name")]
    pub model: ModelKind,
    pub workers: usize,
    /// Configurations. The first is in force at the start.
    pub routers: Vec<Setup>,
    /// What happens, in order.
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

/// A configuration. Without anything it has one inside port and an outside port, and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    /// Inside ports beyond the first.
    #[serde(skip_serializing_if = "is_default")]
    pub more_lans: u8,
    /// MTU of the outside port is 400 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub small_mtu: bool,
    /// Nobody knows the MAC address of the outside gateway.
    #[serde(skip_serializing_if = "is_default")]
    pub lost_gateway: bool,
    /// Sources on inside ports are checked (`urpf = "strict"`).
    #[serde(skip_serializing_if = "is_default")]
    pub strict_sources: bool,
    /// What the access list of inside ports denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Deny>,
    /// Translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<NatSetup>,
    /// Traffic classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassSetup>,
    /// Metering by flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowSetup>,
}

impl Setup {
    /// Inside ports.
    pub(super) fn lans(&self) -> u8 {
        1 + self.more_lans
    }
}

/// What an access list denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deny {
    /// What an inside host sends.
    Host(u8),
    Udp,
}

/// Translation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatSetup {
    /// Public addresses.
    pub addresses: u8,
    /// First and last public port.
    pub ports: (u16, u16),
    /// A power of two.
    pub shards: u16,
    /// Sessions, at most.
    pub sessions_max: u32,
    /// Ports by hash.
    #[serde(skip_serializing_if = "is_default")]
    pub hash: bool,
    /// Only those a host has sent to may answer.
    #[serde(skip_serializing_if = "is_default")]
    pub address_dependent: bool,
    /// Inside hosts do not reach each other by public addresses.
    #[serde(skip_serializing_if = "is_default")]
    pub no_hairpin: bool,
    /// What comes in keeps a session alive, too.
    #[serde(skip_serializing_if = "is_default")]
    pub inbound_refresh: bool,
    /// Half-open TCP sessions do not make room for others.
    #[serde(skip_serializing_if = "is_default")]
    pub keep_half_open: bool,
    /// Sessions of a host and new ones in a second; 0: no limit.
    #[serde(skip_serializing_if = "is_default")]
    pub host_limits: (u32, u32),
    /// Lifetimes of seconds, not minutes.
    #[serde(skip_serializing_if = "is_default")]
    pub short_lives: bool,
    /// Ports of a subscriber's block, with two blocks each.
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
    /// Lifetimes of UDP, established TCP, TCP on its way up or down, ICMP, and others, in seconds.
    pub(super) fn lives_s(&self) -> [u32; 5] {
        if self.short_lives { [3, 20, 4, 2, 3] } else { [300, 7440, 240, 60, 600] }
    }

    /// Whether sessions have the same places in both: the table stays when one follows the other.
    pub(super) fn has_places_of(&self, other: &Self) -> bool {
        let places = |nat: &Self| {
            (nat.addresses, nat.ports, nat.shards, nat.sessions_max, nat.hash, nat.block, nat.forward)
        };
        places(self) == places(other)
    }
}

/// Traffic classes: voice by DSCP before all others, and bulk by DSCP behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassSetup {
    /// Voice may send so many bits in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policed_bps: Option<u32>,
    /// What it sends beyond is marked, not dropped.
    #[serde(skip_serializing_if = "is_default")]
    pub remark: bool,
}

/// Metering by flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowSetup {
    /// Flows in the cache, at most; each shard has its part, 16 at least.
    pub flows_max: u32,
    /// Idle timeout, in seconds.
    pub idle_s: u16,
    /// Active timeout, in seconds.
    pub active_s: u16,
    /// Both directions in one record.
    #[serde(skip_serializing_if = "is_default")]
    pub biflow: bool,
    /// One packet in N is sampled.
    pub sample: u32,
    /// Ports do not tell flows apart.
    #[serde(skip_serializing_if = "is_default")]
    pub without_ports: bool,
}

impl Default for FlowSetup {
    fn default() -> Self {
        Self { flows_max: 4096, idle_s: 15, active_s: 60, biflow: false, sample: 1, without_ports: false }
    }
}

/// Something that happens, and how long after what was before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Milliseconds.
    pub after_ms: u32,
    pub what: Act,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// A chunk of packets arrives.
    Packets(Vec<Item>),
    /// Another configuration is put in force, while sessions, policers and flows go on.
    Reload(usize),
    /// An operator ends all sessions of an inside host.
    Clear(u8),
}

impl Act {
    /// Its name, for coverage.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Packets(_) => "packets",
            Self::Reload(_) => "reload",
            Self::Clear(_) => "sessions cleared",
        }
    }
}

/// Packets that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Item {
    /// Source and destination.
    pub kind: Kind,
    /// How many; each is from the next port of the inside host.
    #[serde(skip_serializing_if = "is_one")]
    pub times: u16,
    /// The inside host.
    pub host: u8,
    /// Its port. With answers: which of the public endpoints that were seen.
    pub port: u16,
    /// The outside host.
    pub remote: u8,
    /// Transport.
    pub protocol: Protocol,
    /// Which part of a datagram it is.
    #[serde(skip_serializing_if = "is_default")]
    pub piece: Piece,
    /// TTL or hop limit.
    #[serde(skip_serializing_if = "is_usual_ttl")]
    pub ttl: u8,
    #[serde(skip_serializing_if = "is_default")]
    pub dscp: u8,
    /// Bytes of payload beyond the first few.
    #[serde(skip_serializing_if = "is_default")]
    pub bytes: u16,
    /// This byte of the IP packet is damaged.
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

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An inside host to an outside one.
    Out,
    /// An outside host to a public endpoint that was seen.
    Back,
    /// An outside host to a public port, and it may be nobody's.
    Knock,
    /// An inside host to a public endpoint that was seen.
    Hairpin,
    /// A router outside about a packet from a public endpoint that was seen.
    ErrorIn,
    /// An inside host about a packet that came for its endpoint.
    ErrorOut,
    /// An inside host to another.
    Across,
    /// An inside host to where packets are discarded silently.
    Blackhole,
    /// An inside host to where nothing leads.
    Unreachable,
    /// An inside host to a network without a known MAC address.
    Unresolved,
    /// An inside host to the router.
    Local,
    /// An inside host to a group.
    Multicast,
    /// From a source that can be none.
    Martian,
    /// An inside host with another's address.
    Forged,
    /// An inside host to an outside one by IPv6.
    Six,
    /// An inside host to where no route of IPv6 leads.
    SixNowhere,
    /// Bytes without sense in a frame of IPv4.
    Garbage,
    /// A frame of another protocol.
    NotIp,
}

impl Kind {
    pub(super) const ALL: [Self; 18] = [
        Self::Out,
        Self::Back,
        Self::Knock,
        Self::Hairpin,
        Self::ErrorIn,
        Self::ErrorOut,
        Self::Across,
        Self::Blackhole,
        Self::Unreachable,
        Self::Unresolved,
        Self::Local,
        Self::Multicast,
        Self::Martian,
        Self::Forged,
        Self::Six,
        Self::SixNowhere,
        Self::Garbage,
        Self::NotIp,
    ];
}

/// Transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Udp,
    /// The first segment of TCP.
    TcpSyn,
    /// A segment of TCP.
    TcpAck,
    /// The last one.
    TcpFin,
    /// One that ends it.
    TcpRst,
    /// ICMP echo.
    Echo,
    /// GRE, which has no ports.
    Gre,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Piece {
    /// All of it.
    #[default]
    Whole,
    /// The first fragment.
    First,
    /// The second and last one.
    Last,
}

impl Plan {
    /// What is wrong with it.
    pub(in crate::seeds) fn check(&self) -> Result<(), String> {
        if self.routers.is_empty() {
            return Err("there is no configuration: [[routers]] is missing".to_owned());
        }
        if !(1..=8).contains(&self.workers) {
            return Err(format!("{} workers; 1 to 8 are possible", self.workers));
        }
        for (at, setup) in self.routers.iter().enumerate() {
            if setup.more_lans >= LANS_MAX {
                return Err(format!("configuration {at} has more than {LANS_MAX} inside ports"));
            }
        }
        for step in &self.steps {
            if let Act::Reload(setup) = step.what
                && setup >= self.routers.len()
            {
                return Err(format!("there is no configuration {setup} to be put in force"));
            }
        }
        match self.packets() {
            0..=PACKETS_MAX => Ok(()),
            packets => Err(format!("{packets} packets; {PACKETS_MAX} are possible")),
        }
    }

    /// Packets of all steps.
    pub fn packets(&self) -> usize {
        let chunks = self.steps.iter().filter_map(|step| match &step.what {
            Act::Packets(items) => Some(items),
            _ => None,
        });
        chunks.flatten().map(|item| usize::from(item.times)).sum()
    }

    /// Ports of the router that has the most.
    pub fn ports(&self) -> usize {
        self.routers.iter().map(|setup| 3 + usize::from(setup.more_lans)).max().unwrap_or(0)
    }

    /// Whether a packet is a fragment.
    pub(super) fn has_fragments(&self) -> bool {
        let is_piece = |item: &Item| item.piece != Piece::Whole;
        self.steps.iter().any(|step| matches!(&step.what, Act::Packets(items) if items.iter().any(is_piece)))
    }
}

//! Requests and answers about the packet path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FirewallFilter, FirewallStateFilter, NatClear, NatSessionFilter};

/// A request to a router that forwards packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum PacketRequest {
    /// One item for each rule of each access list: its matches.
    AccessLists,
    /// One item for each class with a policer: packets by color.
    Policers,
    /// One item for each port: its interface, driver and counters.
    Ports,
    /// What was received, sent, handed to the router itself and dropped, by reason.
    Counters,
    /// One item for each neighbor on the ports' links: ARP and ND.
    Neighbors,
    /// One item for each health check of a gateway.
    GatewayChecks,
    /// One item for each virtual router.
    VirtualRouters,
    /// What this router and its standby, or the one that it stands by, have of each other; no item without one.
    Standby,
    /// One item for each class of each port that has a queue.
    Queues,
    /// One item for each NAT session that passes the filter.
    NatSessions(NatSessionFilter),
    /// One item for each block of a subscriber's public ports that passes the filter.
    NatBlocks(NatSessionFilter),
    /// NAT's counters of sessions, drops and events.
    NatCounters,
    /// End NAT sessions.
    NatClear(NatClear),
    /// One item for each connection of the firewall that passes the filter.
    FirewallStates(FirewallStateFilter),
    /// One item for each rule of the firewall, and the policy: its matches and rates.
    FirewallRules,
    /// One item for each named set of addresses and ports.
    FirewallSets,
    /// The firewall's counters of connections and drops.
    FirewallCounters,
    /// End connections of the firewall.
    FirewallClear(FirewallFilter),
    /// The counters of the flow meter.
    FlowCache,
    /// The fate of a packet, stage by stage.
    TracePacket {
        /// The packet in the notation of [`crate::trace::PacketSpec`].
        packet: String,
    },
}

impl PacketRequest {
    /// Whether it changes anything.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::NatClear(_) | Self::FirewallClear(_) => true,
            Self::AccessLists
            | Self::Policers
            | Self::Ports
            | Self::Counters
            | Self::Neighbors
            | Self::GatewayChecks
            | Self::VirtualRouters
            | Self::Standby
            | Self::Queues
            | Self::NatSessions(_)
            | Self::NatBlocks(_)
            | Self::NatCounters
            | Self::FirewallStates(_)
            | Self::FirewallRules
            | Self::FirewallSets
            | Self::FirewallCounters
            | Self::FlowCache
            | Self::TracePacket { .. } => false,
        }
    }
}

/// A port, as [`PacketRequest::Ports`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortView {
    pub name: String,
    pub interface: String,
    /// The driver and its mode.
    pub mode: String,
    /// Why a better mode is not in use.
    pub why_not_better: Option<String>,
    pub mac: String,
    /// The largest IP packet.
    pub mtu: u32,
    /// Whether the link is up.
    #[serde(default)]
    pub up: bool,
    /// Frames received.
    pub received: u64,
    pub received_bytes: u64,
    /// Frames that arrived and were lost for want of room.
    pub missed: u64,
    /// Frames addressed to another MAC address.
    pub foreign: u64,
    /// Counters of receive queues with a lane of their own; together `received` less the offloaded frames.
    #[serde(default)]
    pub queues: Vec<ReceiveQueueView>,
    /// Frames sent.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Frames that the interface refused.
    pub failed: u64,
    /// Frames that wait in its queues.
    pub queued: u64,
    /// Received frames that the kernel forwarded by itself.
    pub offloaded: u64,
    /// SYNs whose maximum segment size was lowered to this port's limit.
    #[serde(default)]
    pub mss_lowered: u64,
    /// How long packets stayed that left by this port, from the receive ring to its queue: a sample of them.
    #[serde(default)]
    pub residence: SojournView,
    /// Rates over the last seconds; none before the second sample.
    #[serde(default)]
    pub rates: Option<PortRates>,
}

/// A port's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRates {
    /// Frames received.
    pub packets_received_per_s: u64,
    /// Bits received, counted from the Ethernet header.
    pub bits_received_per_s: u64,
    /// Frames sent.
    pub packets_sent_per_s: u64,
    /// Bits sent, counted from the Ethernet header.
    pub bits_sent_per_s: u64,
}

/// The output rate of a class's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRates {
    /// Frames sent.
    pub packets_per_s: u64,
    /// Bits sent, counted from the Ethernet header.
    pub bits_per_s: u64,
}

/// A rule of an access list, as [`PacketRequest::AccessLists`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclRuleView {
    pub list: String,
    /// The rule's name or number; `default` for packets that no rule matches.
    pub rule: String,
    pub action: String,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes, counted from the IP header.
    pub bytes: u64,
    /// Ports whose incoming packets the list filters.
    pub ports_in: Vec<String>,
    /// Ports whose outgoing packets the list filters.
    pub ports_out: Vec<String>,
}

/// A class's policer, as [`PacketRequest::Policers`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicerView {
    pub class: String,
    pub committed_bps: u64,
    pub peak_bps: Option<u64>,
    /// Packets within the committed rate.
    pub green: u64,
    /// Packets above it, within the peak rate or excess burst.
    pub yellow: u64,
    /// Packets above both.
    pub red: u64,
    /// What happens to red packets: `drop` or `remark`.
    pub red_action: String,
}

/// A receive queue of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveQueueView {
    /// Frames received.
    pub received: u64,
    pub received_bytes: u64,
    /// Frames that arrived and were lost for want of room.
    pub missed: u64,
}

/// A thread that processes packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// The thread's role and number.
    pub name: String,
    /// Packets that it took through all stages, the router's own included; `None` where workers share packets.
    pub packets: Option<u64>,
    /// The chunks that they came in; `None` where workers share them.
    #[serde(default)]
    pub chunks: Option<u64>,
    /// How often busy polling found packets; `None` where workers share them.
    #[serde(default)]
    pub polled: Option<u64>,
    /// Processor time in milliseconds, the kernel's part of receiving and sending included.
    pub cpu_ms: u64,
    /// The thread's priority: `real-time 1`, `nice -10` or `normal`; `None` if it has ended.
    #[serde(default)]
    pub scheduling: Option<String>,
    /// The cores it may use, in the kernel's list format.
    #[serde(default)]
    pub cores: Option<String>,
}

/// The counters of a router on live interfaces, as [`PacketRequest::Counters`] shows them. When nothing moves,
/// `received` is the sum of `sent`, `queued`, `waiting_for_neighbor`, all of `to_host` and all of `dropped`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountersView {
    /// Packets that arrived at ports or that the router itself made.
    pub received: u64,
    /// Of these, the router's own: answers, errors, neighbor solicitations, fragments, frames of mirrors.
    pub own: u64,
    /// Of these, packets that the kernel forwarded by decisions the router had made for their flows.
    pub offloaded: u64,
    pub sent: u64,
    pub queued: u64,
    /// Packets handed to the router itself, by reason.
    pub to_host: BTreeMap<String, u64>,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that wait for their neighbor's MAC address.
    pub waiting_for_neighbor: u64,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors that limits or rules suppressed.
    pub icmp_errors_withheld: u64,
    /// How long packets stayed, from the receive ring to their port's queue: a sample of them.
    #[serde(default)]
    pub residence: SojournView,
    /// One item for each thread of the model.
    #[serde(default)]
    pub workers: Vec<WorkerView>,
}

/// A neighbor on a port's link, as [`PacketRequest::Neighbors`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighborView {
    pub port: String,
    pub address: String,
    /// Its MAC address, if known.
    pub mac: Option<String>,
    /// `reachable`, `stale`, and so on.
    pub state: String,
    /// The source of its MAC address: `learned`, `configured` or `kernel`; none while it is unknown.
    #[serde(default)]
    pub source: Option<String>,
    /// Packets that wait for it.
    pub waiting: u64,
}

/// The health check of a gateway, as [`PacketRequest::GatewayChecks`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayCheckView {
    pub port: String,
    pub gateway: String,
    /// Who must answer.
    pub target: String,
    /// `waiting`, `passed` or `failed`.
    pub state: String,
    /// Echo requests.
    pub requests: u64,
    /// Their answers that came in time.
    pub answers: u64,
    /// How often the check began to fail.
    pub failures: u64,
    /// The round-trip time of the last answer.
    pub rtt_us: Option<f64>,
}

/// A virtual router, as [`PacketRequest::VirtualRouters`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VirtualRouterView {
    pub port: String,
    /// Its number (VRID).
    pub id: u8,
    pub addresses: Vec<String>,
    /// `initialize`, `backup` or `active`.
    pub state: String,
    pub priority: u8,
    /// The address of the Active router that was heard last, if it is another.
    pub active: Option<String>,
    /// What that router advertises.
    pub active_priority: Option<u8>,
    /// Advertisements sent.
    pub sent: u64,
    /// Valid advertisements of others.
    pub received: u64,
    /// Advertisements that were not used, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// How often this router became Active.
    pub became_active: u64,
}

/// The exchange of state with the other router of the virtual routers, as [`PacketRequest::Standby`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StandbyView {
    /// `alone`, `different`, `idle`, `conflict`, `copying`, `covered`, `learning` or `ready`.
    pub state: String,
    /// The same in words.
    pub means: String,
    /// Parts of tables that the standby is known to lack; under load a few are always on their way.
    pub behind: u32,
    /// NAT sessions here, without port forwards, and states of the firewall.
    pub sessions: u64,
    pub states: u64,
    /// The same of the other router.
    pub peer_sessions: u64,
    pub peer_states: u64,
    /// Whether the rules of the firewall are the same on both routers.
    pub same_rules: bool,
    /// Datagrams, changes and entries, by what became of them.
    pub counters: BTreeMap<String, u64>,
}

/// A class's queue at a port, as [`PacketRequest::Queues`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    pub port: String,
    pub class: String,
    pub enqueued: u64,
    /// Packets sent.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped_full: u64,
    /// Packets dropped by active queue management.
    pub dropped_managed: u64,
    /// Packets marked (ECN) by active queue management instead.
    pub marked: u64,
    /// Packets that wait.
    pub waiting: u64,
    /// The median sojourn time.
    pub sojourn_p50_us: f64,
    pub sojourn_p99_us: f64,
    #[serde(default)]
    pub sojourn_p999_us: f64,
    #[serde(default)]
    pub sojourn: SojournView,
    /// Rates over the last seconds; none before the second sample.
    #[serde(default)]
    pub rates: Option<QueueRates>,
}

/// A distribution of times since the start; sojourn times to two digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SojournView {
    /// Packets that left within each of [`SojournView::BOUNDS_US`] microseconds.
    pub within: Vec<u64>,
    /// All packets that left.
    pub packets: u64,
    pub sum_us: f64,
}

impl SojournView {
    /// The bounds, from a microsecond to a second.
    pub const BOUNDS_US: [u32; 19] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
        500_000, 1_000_000,
    ];
}

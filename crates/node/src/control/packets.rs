//! Answers about the packet path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NatClear, NatSessionFilter};

/// What can be asked of a router that forwards packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum PacketRequest {
    /// One item for each rule of each access list: what met it.
    AccessLists,
    /// One item for each class with a policer: what it called packets.
    Policers,
    /// One item for each port: its interface, driver and counters.
    Ports,
    /// What was received, sent, handed to the router itself and dropped, by reason.
    Counters,
    /// One item for each neighbor on the ports' links: ARP and ND.
    Neighbors,
    /// One item for each class of each port that has a queue.
    Queues,
    /// One item for each NAT session that passes the filter.
    NatSessions(NatSessionFilter),
    /// One item for each block of public ports that a subscriber has and that passes the filter.
    NatBlocks(NatSessionFilter),
    /// What NAT has done.
    NatCounters,
    /// End NAT sessions.
    NatClear(NatClear),
    /// The counters of the flow meter.
    FlowCache,
    /// What would become of a packet, stage by stage.
    TracePacket {
        /// The packet, as [`crate::trace::PacketSpec`] reads it.
        packet: String,
    },
}

/// A port, as [`PacketRequest::Ports`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortView {
    /// Its name in the configuration.
    pub name: String,
    pub interface: String,
    /// The driver, and how it works.
    pub mode: String,
    /// Why it is not a better mode.
    pub why_not_better: Option<String>,
    /// Its MAC address.
    pub mac: String,
    /// Largest IP packet.
    pub mtu: u32,
    /// Whether the link is up.
    #[serde(default)]
    pub up: bool,
    /// Frames received.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Frames that were there and could not be taken.
    pub missed: u64,
    /// Frames for other neighbors.
    pub foreign: u64,
    /// What came by each receive queue that is worked on apart; together `received` less what was offloaded.
    #[serde(default)]
    pub queues: Vec<ReceiveQueueView>,
    /// Frames sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Frames that the interface did not take.
    pub failed: u64,
    /// Frames that wait in its queues.
    pub queued: u64,
    /// Of the frames received, those that the kernel forwarded by itself.
    pub offloaded: u64,
    /// Over the last seconds; none before there are two looks at the counters.
    #[serde(default)]
    pub rates: Option<PortRates>,
}

/// What a port does in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRates {
    /// Frames received.
    pub packets_received_per_s: u64,
    /// Bits of them, from the Ethernet header on.
    pub bits_received_per_s: u64,
    /// Frames sent.
    pub packets_sent_per_s: u64,
    /// Bits of them.
    pub bits_sent_per_s: u64,
}

/// What a class's queue lets out in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRates {
    /// Frames sent.
    pub packets_per_s: u64,
    /// Bits of them, from the Ethernet header on.
    pub bits_per_s: u64,
}

/// A rule of an access list, as [`PacketRequest::AccessLists`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclRuleView {
    pub list: String,
    /// The rule's name or number; `default` where no rule is met.
    pub rule: String,
    /// What it says: `permit`, `deny` or `reject`.
    pub action: String,
    /// Packets that met it.
    pub packets: u64,
    /// Bytes of them, from the IP header on.
    pub bytes: u64,
    /// Ports whose incoming packets the list is asked about.
    pub ports_in: Vec<String>,
    /// Ports whose leaving packets the list is asked about.
    pub ports_out: Vec<String>,
}

/// A class's policer, as [`PacketRequest::Policers`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicerView {
    pub class: String,
    /// The committed rate, bits per second.
    pub committed_bps: u64,
    /// The peak rate, where there is one.
    pub peak_bps: Option<u64>,
    /// Packets within the committed rate.
    pub green: u64,
    /// Packets above it, within the peak rate or excess burst.
    pub yellow: u64,
    /// Packets above both.
    pub red: u64,
    /// What becomes of red packets: `drop`, or `remark`.
    pub red_action: String,
}

/// A receive queue of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveQueueView {
    /// Frames received.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Frames that were there and could not be taken.
    pub missed: u64,
}

/// A thread that works on packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its role and number.
    pub name: String,
    /// Packets that it took through all stages, the router's own among them; `None` where workers share packets.
    pub packets: Option<u64>,
    /// The chunks that they came in; `None` where workers share them.
    #[serde(default)]
    pub chunks: Option<u64>,
    /// Processor time that it has used, milliseconds, the kernel's part of receiving and sending included.
    pub cpu_ms: u64,
    /// How soon it gets a core: `real-time 1`, `nice -10` or `normal`; `None` of one that has ended.
    #[serde(default)]
    pub scheduling: Option<String>,
    /// The cores it may use, as the kernel lists them.
    #[serde(default)]
    pub cores: Option<String>,
}

/// The counters of a router on live interfaces, as [`PacketRequest::Counters`] shows them. When nothing moves, `received` is
/// the sum of `sent`, `queued`, `waiting_for_neighbor`, all of `to_host` and all of `dropped`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountersView {
    /// Came in by ports, or was made by the router itself.
    pub received: u64,
    /// Of these, what the router made: answers, errors, questions for neighbors, fragments, frames of mirrors.
    pub own: u64,
    /// Of these, forwarded by the kernel as the router had decided for their flows.
    pub offloaded: u64,
    /// Were sent.
    pub sent: u64,
    /// Wait in queues.
    pub queued: u64,
    /// Were handed to the router itself, by reason.
    pub to_host: BTreeMap<String, u64>,
    /// Were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that wait for their neighbor.
    pub waiting_for_neighbor: u64,
    /// ICMP errors written.
    pub icmp_errors: u64,
    /// ICMP errors that were not written, because of limits or because none is due.
    pub icmp_errors_withheld: u64,
    /// One item for each thread of the model.
    #[serde(default)]
    pub workers: Vec<WorkerView>,
}

/// A neighbor on a port's link, as [`PacketRequest::Neighbors`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighborView {
    pub port: String,
    pub address: String,
    /// Its MAC address, if it is known.
    pub mac: Option<String>,
    /// `reachable`, `stale`, and so on.
    pub state: String,
    /// Where its MAC address is known from: `learned`, `configured` or `kernel`; none while it is not known.
    #[serde(default)]
    pub source: Option<String>,
    /// Packets that wait for it.
    pub waiting: u64,
}

/// A class's queue at a port, as [`PacketRequest::Queues`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    pub port: String,
    pub class: String,
    /// Packets put in.
    pub enqueued: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Dropped because the queue was full.
    pub dropped_full: u64,
    /// Dropped by active queue management.
    pub dropped_managed: u64,
    /// Marked instead.
    pub marked: u64,
    /// Packets that wait.
    pub waiting: u64,
    /// How long half of the packets waited, microseconds.
    pub sojourn_p50_us: f64,
    /// How long 99 of 100 waited at most, microseconds.
    pub sojourn_p99_us: f64,
    /// How long 999 of 1000 waited at most, microseconds.
    #[serde(default)]
    pub sojourn_p999_us: f64,
    /// Over the last seconds; none before there are two looks at the counters.
    #[serde(default)]
    pub rates: Option<QueueRates>,
}

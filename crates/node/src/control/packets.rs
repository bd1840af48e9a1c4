//! What a router on live interfaces shows of its packets.

use serde::{Deserialize, Serialize};

/// A port, as [`super::Request::Ports`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortView {
    /// Its name in the configuration.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// The driver, and how it works.
    pub mode: String,
    /// Why it is not a better mode.
    pub why_not_better: Option<String>,
    /// Its MAC address.
    pub mac: String,
    /// Largest IP packet.
    pub mtu: u32,
    /// Frames received.
    pub received: u64,
    /// Octets of them.
    pub received_octets: u64,
    /// Frames that were there and could not be taken.
    pub missed: u64,
    /// Frames for other stations.
    pub foreign: u64,
    /// What came by each receive queue that is worked on apart; together `received` less what was offloaded.
    #[serde(default)]
    pub queues: Vec<ReceiveQueueView>,
    /// Frames sent.
    pub sent: u64,
    /// Octets of them.
    pub sent_octets: u64,
    /// Frames that the interface did not take.
    pub failed: u64,
    /// Frames that wait in its queues.
    pub queued: u64,
    /// Of the frames received, those that the kernel forwarded by itself.
    pub offloaded: u64,
}

/// A receive queue of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveQueueView {
    /// Frames received.
    pub received: u64,
    /// Octets of them.
    pub received_octets: u64,
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
    /// Processor time that it has used, milliseconds, the kernel's part of receiving and sending included.
    pub cpu_ms: u64,
    /// How soon it gets a core: `real-time 1`, `nice -10` or `normal`; `None` of one that has ended.
    #[serde(default)]
    pub scheduling: Option<String>,
    /// The cores it may use, as the kernel lists them.
    #[serde(default)]
    pub cores: Option<String>,
}

/// The books of a router on live interfaces, as [`super::Request::Counters`] shows them. When nothing moves, `received` is
/// the sum of `sent`, `queued`, `waiting_for_neighbour`, all of `to_host` and all of `dropped`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountersView {
    /// Came in by ports, or was made by the router itself.
    pub received: u64,
    /// Of these, what the router made: answers, errors, questions for neighbours, fragments, frames of mirrors.
    pub own: u64,
    /// Of these, forwarded by the kernel as the router had decided for their flows.
    pub offloaded: u64,
    /// Were sent.
    pub sent: u64,
    /// Wait in queues.
    pub queued: u64,
    /// Were handed to the router itself, by reason.
    pub to_host: Vec<(String, u64)>,
    /// Were dropped, by reason.
    pub dropped: Vec<(String, u64)>,
    /// Packets that wait for their neighbour.
    pub waiting_for_neighbour: u64,
    /// ICMP errors written.
    pub icmp_errors: u64,
    /// ICMP errors that were not written, because of limits or because none is due.
    pub icmp_errors_withheld: u64,
    /// One item for each thread of the model.
    #[serde(default)]
    pub workers: Vec<WorkerView>,
}

/// A neighbour on a port's link, as [`super::Request::Arp`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArpView {
    /// The port.
    pub port: String,
    /// Its address.
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

/// A class's queue at a port, as [`super::Request::Queues`] shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    /// The port.
    pub port: String,
    /// The class.
    pub class: String,
    /// Packets put in.
    pub enqueued: u64,
    /// Packets sent.
    pub sent: u64,
    /// Octets of them.
    pub sent_octets: u64,
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
}

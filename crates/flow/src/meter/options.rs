//! Options of a meter, and which of them are invalid.

use crate::application::Labeling;
use crate::sampling::Sampling;

const SECOND_NS: u64 = 1_000_000_000;

/// The optional fields of the flow key. Addresses and protocol are always in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFields {
    /// Transport ports, and type and code of ICMP.
    pub ports: bool,
    pub traffic_class: bool,
    /// The port that a packet arrived on.
    pub ingress: bool,
    pub vlan: bool,
    /// The label at the top of an MPLS stack.
    pub mpls: bool,
}

impl Default for KeyFields {
    fn default() -> Self {
        Self { ports: true, traffic_class: true, ingress: true, vlan: true, mpls: true }
    }
}

/// Which bytes of a packet are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bytes {
    /// Bytes of the IP packet by its length field.
    #[default]
    Ip,
    /// Bytes of the frame on the wire.
    Frame,
}

/// Where a protocol is chosen.
type ProtocolOf = fn(&mut NameOptions) -> &mut bool;

/// The names that first payloads are searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameOptions {
    pub tls: bool,
    pub quic: bool,
    pub http: bool,
    /// Questions and answers; from answers the names of later flows.
    pub dns: bool,
    /// Fingerprints of the hellos of TLS and QUIC, if those are looked for.
    pub ja4: bool,
}

impl NameOptions {
    /// The protocols, by the words for them.
    pub const PROTOCOLS: [(&'static str, ProtocolOf); 4] = [
        ("tls", |options| &mut options.tls),
        ("quic", |options| &mut options.quic),
        ("http", |options| &mut options.http),
        ("dns", |options| &mut options.dns),
    ];

    /// Whether anything is looked for.
    pub fn any(&self) -> bool {
        self.tls || self.quic || self.http || self.dns
    }
}

/// The configuration of a meter. `Default` is the default of `thalweg probe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterOptions {
    pub key: KeyFields,
    /// The most flows in the cache, over all shards. Each shard has an equal part.
    pub flows_max: u32,
    /// The number of shards, on which different threads may work.
    pub shards: u16,
    /// A flow without a packet for this many nanoseconds has ended.
    pub idle_timeout_ns: u64,
    /// A continuing flow is reported when its first unreported packet is this old, in nanoseconds.
    pub active_timeout_ns: u64,
    /// A TCP flow with FIN or RST ends when no packet follows for this many nanoseconds.
    pub end_linger_ns: u64,
    /// Count both directions as one flow (RFC 5103). Traffic class and ingress port are then those of its
    /// first packet and do not distinguish flows, since the reverse direction may have others.
    pub biflow: bool,
    pub count: Bytes,
    pub sampling: Sampling,
    /// Packets have passed a router: keep what became of them (egress port, drops), at 44 bytes per flow.
    pub fates: bool,
    /// A watcher may be told what flows count while they go on, at 24 bytes per flow; see [`Watch`](crate::Watch).
    pub watched: bool,
    /// Use huge pages for the cache: a third faster with hundreds of thousands of flows, but each family and
    /// the index then take memory in steps of 2 MiB. Small caches never use them.
    pub huge_pages: bool,
    /// How flows get their application. The parser examines payloads and the deliverer of records examines
    /// ports; the meter stores what it is given.
    pub labeling: Labeling,
    /// The names that first payloads are searched for: none by default, since they tell what people do, and cost 28
    /// bytes per flow.
    pub names: NameOptions,
    /// Whether lines and messages have the flow's community ID. The meter does nothing for it.
    pub community_id: bool,
    /// The secret key of hashes, so that outsiders cannot construct colliding flows.
    pub hash_key: [u64; 2],
}

impl Default for MeterOptions {
    fn default() -> Self {
        Self {
            key: KeyFields::default(),
            flows_max: 1 << 20,
            shards: 16,
            idle_timeout_ns: 15 * SECOND_NS,
            active_timeout_ns: 60 * SECOND_NS,
            end_linger_ns: 2 * SECOND_NS,
            biflow: false,
            count: Bytes::Ip,
            sampling: Sampling::All,
            fates: false,
            watched: false,
            huge_pages: true,
            labeling: Labeling::default(),
            names: NameOptions::default(),
            community_id: false,
            hash_key: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
        }
    }
}

/// Why a meter cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeterError {
    #[error("{0} shards: there must be 1 to {SHARDS_MAX}")]
    Shards(u16),
    #[error(
        "{flows_max} flows in {shards} shards: each shard must have {SHARD_FLOWS_MIN} to \
         {SHARD_FLOWS_MAX} flows"
    )]
    FlowsMax {
        /// Over all shards.
        flows_max: u32,
        shards: u16,
    },
    #[error("the {0} timeout must not be 0")]
    Timeout(&'static str),
    #[error("sampling one packet in 0: the interval must be at least 1")]
    Sampling,
    #[error("no memory for the flow cache: the system refused {bytes} bytes")]
    OutOfMemory {
        /// Bytes of the refused request.
        bytes: usize,
    },
}

const SHARDS_MAX: u16 = 4096;
const SHARD_FLOWS_MIN: u32 = 16;
const SHARD_FLOWS_MAX: u32 = 1 << 30;

impl MeterOptions {
    pub(crate) fn shard_flows_max(&self) -> u32 {
        self.flows_max.div_ceil(u32::from(self.shards.max(1)))
    }

    /// Whether the options are valid.
    pub fn validate(&self) -> Result<(), MeterError> {
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return Err(MeterError::Shards(self.shards));
        }
        if !(SHARD_FLOWS_MIN..=SHARD_FLOWS_MAX).contains(&self.shard_flows_max()) {
            return Err(MeterError::FlowsMax { flows_max: self.flows_max, shards: self.shards });
        }
        let timeouts = [("idle", self.idle_timeout_ns), ("active", self.active_timeout_ns)];
        if let Some((which, _)) = timeouts.iter().find(|(_, ns)| *ns == 0) {
            return Err(MeterError::Timeout(which));
        }
        if self.sampling.interval() == 0 { Err(MeterError::Sampling) } else { Ok(()) }
    }
}

//! Options of a meter, and which it refuses.

use crate::application::Labeling;
use crate::sampling::Sampling;

const SECOND_NS: u64 = 1_000_000_000;

/// Which of the fields that may be left out tell flows apart. Addresses and protocol always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFields {
    /// Transport ports, ICMP's type and code.
    pub ports: bool,
    /// Type of service or traffic class.
    pub traffic_class: bool,
    /// The port a packet came in by.
    pub ingress: bool,
    /// The outermost VLAN tag.
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
    /// Those of the IP packet by its own length field.
    #[default]
    Ip,
    /// Those of the frame as it was on the wire.
    Frame,
}

/// What a meter is told. `Default` is what `thalweg probe` does if not told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterOptions {
    /// What tells flows apart.
    pub key: KeyFields,
    /// Flows in the cache at most, all shards together. Each shard has an equal part of it.
    pub flows_max: u32,
    /// Shards, which different threads may work on.
    pub shards: u16,
    /// Idle timeout: a flow without a packet for this many nanoseconds has ended.
    pub idle_timeout_ns: u64,
    /// A flow that goes on is reported when its first unreported packet is so old. Nanoseconds.
    pub active_timeout_ns: u64,
    /// A TCP flow that was ended by FIN or RST ends when no packet followed for this many nanoseconds.
    pub end_linger_ns: u64,
    /// Both directions as one flow (RFC 5103). The traffic class and the port it came in by are then those of its first
    /// packet and do not tell flows apart: an answer need not have the same.
    pub biflow: bool,
    /// Which bytes are counted.
    pub count: Bytes,
    /// Which packets are sampled.
    pub sampling: Sampling,
    /// Whether packets have been through a router: what became of them (egress port, drops) is kept, at 44 bytes a flow.
    pub fates: bool,
    /// Whether the cache asks for huge pages: a third faster when it has hundreds of thousands of flows, but memory is then
    /// taken in steps of 2 MiB, by each family and the index. Small caches have none.
    pub huge_pages: bool,
    /// How flows come by the name of their application. The parser looks at payloads, the deliverer of records at
    /// ports; the meter keeps what it is told.
    pub labeling: Labeling,
    /// Secret with which hashes are keyed, so that nobody outside can make flows that share a place.
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
            huge_pages: true,
            labeling: Labeling::default(),
            hash_key: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
        }
    }
}

/// Why there is no such meter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeterError {
    /// There must be 1 to 4096 shards.
    #[error("{0} shards: there must be 1 to {SHARDS_MAX}")]
    Shards(u16),
    /// Each shard must have room for 16 flows at least, and for 2^30 at most.
    #[error(
        "{flows_max} flows in {shards} shards: each shard must have {SHARD_FLOWS_MIN} to \
         {SHARD_FLOWS_MAX} flows"
    )]
    FlowsMax {
        /// What was asked for.
        flows_max: u32,
        /// Over so many shards.
        shards: u16,
    },
    /// A timeout must not be 0.
    #[error("the {0} timeout must not be 0")]
    Timeout(&'static str),
    /// One in 0 packets cannot be sampled.
    #[error("sampling one packet in 0: the interval must be at least 1")]
    Sampling,
    /// Memory for the cache was refused.
    #[error("no memory for the flow cache: the system refused {bytes} bytes")]
    OutOfMemory {
        /// Bytes that were asked for at once.
        bytes: usize,
    },
}

const SHARDS_MAX: u16 = 4096;
const SHARD_FLOWS_MIN: u32 = 16;
const SHARD_FLOWS_MAX: u32 = 1 << 30;

impl MeterOptions {
    /// Flows a shard may have.
    pub(crate) fn shard_flows_max(&self) -> u32 {
        self.flows_max.div_ceil(u32::from(self.shards.max(1)))
    }

    /// Whether there can be such a meter.
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

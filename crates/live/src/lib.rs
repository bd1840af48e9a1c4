//! A router on live interfaces: where ports, stages, models and the router as a host meet. ARCHITECTURE.md has the
//! picture.
//!
//! | thread | does |
//! |---|---|
//! | `packets` and the model's workers | receive, all stages, sink; with several receive queues, each worker for its own |
//! | `egress` | serves queues by the clock |
//! | `host` | neighbors, ICMP, packets for the router; writes their routes into the forwarding tables |
//! | `mirror` | packets that the system sends by mirrors |
//! | `links` | changes of interfaces |
//! | `offload` | the clock of flows that the kernel forwards, if there are any |
//!
//! `feed` and `sink` are the ends of the plan; `reload` and `packets` swap plans while packets pass; `capture` taps
//! packets. Every queue between two threads is bounded, and what does not fit is dropped by name. Stages and models
//! do not know this crate; it does not know BGP, the control socket or the command line.

mod capture;
mod counters;
mod feed;
mod halves;
mod host;
mod inject;
mod interface_lock;
mod lanes;
mod links;
mod mirror;
mod offload;
mod open;
mod outbox;
mod own_ports;
mod packets;
mod port_mac;
mod ports;
mod preflight;
mod punt;
mod received;
mod reload;
mod router;
mod sink;
mod start;
mod vlan;
mod workers;

pub use capture::{CaptureClient, CaptureError, CaptureStream};
pub use counters::{Counters, PortCounters, Traffic};
pub use host::{Host, HostNumbers, KernelNeighborCounts, NeighborSource};
pub use interface_lock::ClaimError;
pub use offload::Offloaded;
pub use open::{OpenError, open_port, start_dpdk};
pub use packets::Swapped;
pub use preflight::{PortPreflight, preflight};
pub use reload::{Prepared, ReloadError, Reloaded};
pub use router::{LiveOptions, LiveRouter, PortStatus};
pub use workers::WorkerStatus;

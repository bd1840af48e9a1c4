//! A router on live interfaces: where ports, stages, models and the router as a host meet.
//!
//! ```text
//!          rx halves                                                       outboxes: queue, tx half
//! NICs ──────────────> feed ──Chunk──> model runs the plan ──> sink ──────────────────────────> NICs
//!                       ^                                       │ Punt                    ^
//!                       │ injected                              v                         │
//!                       └──────────────────────────────────── host ──────────────────────┤
//!                                                               │  ^ tables, neighbors   │
//!                                                               v                         │
//!                                                            mirrors <── the system ──────┘
//! ```
//!
//! | thread | does |
//! |---|---|
//! | `packets` and the model's workers | receive, all stages, sink; with several receive queues, each worker for its own |
//! | `egress` | serves queues by the clock |
//! | `host` | neighbors, ICMP, what is for the router; writes the forwarding tables |
//! | `mirror` | what the system sends by mirrors |
//! | `links` | hears of interfaces that change |
//! | `offload` | turns the clock of flows that the kernel forwards, if there are any |
//!
//! Whoever wants to see packets as they pass taps them: see `capture`.
//!
//! Another configuration is taken over while packets pass: see `reload` and `packets`.
//!
//! Nothing waits for anything that is not its own: every queue between two threads has a bound, and what does not fit is
//! dropped by name.

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

pub use capture::{CaptureClient, CaptureStream};
pub use counters::{Counters, PortCounters, Traffic};
pub use host::{Host, HostNumbers, KernelNeighborCounts, NeighborSource};
pub use offload::Offloaded;
pub use open::{OpenError, open_port, start_dpdk};
pub use packets::Swapped;
pub use preflight::{PortPreflight, preflight};
pub use reload::{Prepared, ReloadError, Reloaded};
pub use router::{LiveOptions, LiveRouter, PortStatus};
pub use workers::WorkerStatus;

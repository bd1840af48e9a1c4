//! The router on live interfaces: connects ports, stages, models and the host thread. ARCHITECTURE.md has the
//! picture.
//!
//! | thread | does |
//! |---|---|
//! | `packets` and the model's workers | receive, all stages, sink; with lanes, each worker for its own queues |
//! | `egress` | serves queues by the clock |
//! | `host` | neighbors, ICMP, packets for the router; writes neighbors' routes into the tables |
//! | `mirror` | packets that the kernel sends through mirrors |
//! | `links` | changes of interfaces |
//! | `offload` | leases of flows that the kernel forwards, if ports offload flows |
//! | `flows` | expires flows and passes on NAT's events while no packet arrives |
//! | `sockets` | TCP and UDP ports of local programs, for NAT |
//!
//! `feed` and `sink` are the ends of the plan; `reload` and `packets` exchange plans while packets pass; `capture`
//! taps packets. Every queue between two threads is bounded; what does not fit is dropped with a reason. Stages and
//! models do not know this crate; it does not know BGP's engine, the control socket or the command line.

mod capture;
mod counters;
mod feed;
mod firewall_watch;
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
mod residence;
mod router;
mod sink;
mod standby;
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
pub use reload::{Prepared, ReloadError};
pub use router::{LiveOptions, LiveRouter, PortStatus};
pub use standby::StandbyError;

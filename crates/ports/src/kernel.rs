//! The kernel's routing tables through rtnetlink: installs our routes, repairs drift, reports events and next
//! hops.
//!
//! ```text
//! KernelRoutes   apply(changes)   install, replace, delete: thousands per system call, refusals by prefix
//!                read, repair     lists our routes; repairs and counts missing, extra and changed ones
//!                remove_all       removes what an earlier process left
//! NetworkView    read             links, addresses, neighbors, others' routes: what next hops resolve to
//! Monitor        poll_event       changes of all these, as they happen
//! FollowedRoutes hear, read_all   others' routes, kept up to date
//! KernelNeighbors hear, read       permanent neighbors of others, and ours
//!                apply            adds and removes ours
//! DriverFeatures read             capabilities of interfaces for XDP programs
//! LinkCounters   read             what it counts of an interface
//! SystemSockets  read             ports and connections of the system's programs
//! Listener       at               who listens on a port: a process, or another program
//! PeerSocket     read             how full the buffer of a local receiver of datagrams is
//! ```
//!
//! # Ownership of routes
//!
//! Every route of ours carries our protocol number ([`PROTOCOL`] unless configured otherwise), and only
//! routes with it are ever listed, compared or removed. The kernel *replaces* a route by prefix, table and
//! metric, no matter who installed it; so no other program should use our metric ([`METRIC`]).
//!
//! # Batches
//!
//! A `send` carries up to [`BATCH_ROUTES`] messages; the kernel executes them before it returns. Only the
//! last requests an acknowledgment; of the others, the kernel answers only those it refuses, with the
//! message's sequence number, which gives the prefix. So a successful batch costs two system calls. Requests
//! are idempotent: a batch whose answers were lost (`ENOBUFS`) is sent again in halves.
//!
//! # Drift
//!
//! Routes can disappear without our action: the kernel drops those of a link that goes down, and
//! administrators change routes. [`KernelRoutes::repair`] lists our routes (the kernel filters by table and
//! protocol), compares them with the wanted ones and repairs the differences. If others change the tables
//! meanwhile, the list may be neither the old nor the new state ([`RepairReport::interrupted`]); repairs are
//! idempotent, and the next scan finds the rest.
//!
//! Missing: several paths per route (next-hop objects could have them), MPLS, VRFs other than by table
//! number.

mod address;
mod error;
mod features;
mod followed;
mod installer;
mod link_counters;
mod listener;
mod message;
mod monitor;
mod neighbors;
mod peer;
mod repair;
mod route;
mod socket;
mod sockets;
mod view;
mod xdp;

pub use address::{add_address, remove_address};
pub use error::{KernelError, Refusal, RouteFailure};
pub use features::DriverFeatures;
pub use followed::{FollowedRoutes, Heard};
pub use installer::{
    ApplyReport, BATCH_ROUTES, FAILURES_KEPT, KernelOptions, KernelRoutes, METRIC, PROTOCOL, RouteChange,
};
pub use link_counters::{DirectionCounts, InterfaceCounts, LinkCounters};
pub use listener::Listener;
pub use monitor::{KernelEvent, Monitor, Watch};
pub use neighbors::{
    KERNEL_NEIGHBORS_MAX, KernelNeighbors, NeighborChange, NeighborKey, NeighborNews, NeighborReport, ask_for,
};
pub use peer::{PeerBuffer, PeerSocket};
pub use repair::RepairReport;
pub use route::{FoundRoute, KernelRoute, RouteTarget};
pub use sockets::{SystemSocket, SystemSockets};
pub use view::{InterfaceAddress, Link, Neighbor, NetworkView};
pub use xdp::XdpAttachment;

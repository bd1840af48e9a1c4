//! The kernel's routing tables, by rtnetlink: our routes in, drift found and mended, events and next hops out.
//!
//! ```text
//! KernelRoutes   apply(changes)   install, replace, delete: thousands per system call, refusals by prefix
//!                read, repair     what is there; what was missing, extra, changed: mended and counted
//!                remove_all       what a predecessor left
//! NetworkView    read             links, addresses, neighbors, others' routes: what next hops resolve to
//! Monitor        poll_event       changes of all these, as they happen
//! FollowedRoutes hear, read_all   others' routes, kept up to date
//! KernelNeighbors hear, read       neighbors that others set for good, and ours
//!                apply            ours in and out
//! DriverFeatures read             what interfaces can do for XDP programs
//! SystemSockets  read             ports and connections of the system's programs
//! ```
//!
//! # Whose routes are whose
//!
//! Every route of ours carries our protocol number ([`PROTOCOL`] unless configured otherwise), and only routes with
//! it are ever listed, compared or removed. The kernel *replaces* by prefix, table and metric alone, no matter
//! who installed the route; the metric ([`METRIC`]) therefore should be nobody else's.
//!
//! # Batches
//!
//! A `send` carries up to [`BATCH_ROUTES`] messages; the kernel executes them before it returns. Only the last
//! asks for an acknowledgement; of the others the kernel answers those it refuses, with the message's sequence
//! number, from which the prefix follows. So a good batch costs two system calls. Requests are idempotent: a batch
//! whose answers were lost (`ENOBUFS`) is sent again in halves.
//!
//! # Drift
//!
//! Routes vanish without our doing: the kernel drops those of a link that goes down, and people type. A
//! [`KernelRoutes::repair`] lists ours (the kernel filters by table and protocol), compares with what is wanted
//! and mends the difference. While others change the tables, the list may have been neither the old nor the new
//! state ([`RepairReport::interrupted`]); mending is idempotent, and the next scan finds the rest.
//!
//! Missing: several paths of one route (as next-hop objects they could be), MPLS, VRFs' tables beyond their number.

mod address;
mod error;
mod features;
mod followed;
mod installer;
mod message;
mod monitor;
mod neighbors;
mod objects;
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
pub use monitor::{KernelEvent, Monitor, Watch};
pub use neighbors::{
    KERNEL_NEIGHBORS_MAX, KernelNeighbors, NeighborChange, NeighborKey, NeighborNews, NeighborReport, ask_for,
};
pub use repair::RepairReport;
pub use route::{FoundRoute, KernelRoute, RouteTarget};
pub use sockets::{SystemSocket, SystemSockets};
pub use view::{InterfaceAddress, Link, Neighbor, NetworkView};
pub use xdp::XdpAttachment;

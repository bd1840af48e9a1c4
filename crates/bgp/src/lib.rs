//! BGP-4 without sockets, threads or clocks: bytes and milliseconds go in; bytes, routes and actions come out.
//!
//! - [`session`]: the state machine of one neighbor, its timers, import of received UPDATEs.
//! - [`attrs`], [`route`], [`peer`]: attribute sets, shared by all routes that have them; what moves between the
//!   parts.
//! - [`policy`]: rules that accept, reject and change routes.
//! - [`rib`]: a shard of the table with all paths, the decision process, flap damping.
//! - [`export`]: update groups: who gets a change, packed and encoded once.
//! - [`rpki`]: the validity of origins, and the client of caches that say so.
//!
//! Message formats are in `thalweg-wire`. `thalweg-node` joins the parts; `thalweg-exec` decides which thread runs
//! them. Nothing here knows the configuration file, the forwarding table or the kernel. The only locks are those of
//! the attribute table's stripes and of a group's log.

pub mod attrs;
pub mod export;
pub mod peer;
pub mod policy;
pub mod rib;
pub mod route;
pub mod rpki;
pub mod session;

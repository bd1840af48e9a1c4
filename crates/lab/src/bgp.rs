//! A laboratory for BGP daemons: neighbors that send pre-built bytes, and a clock that runs until a daemon has
//! processed them.
//!
//! ```text
//! table, replay ──> streams of messages ──> scenario (phases, what should come of them)
//!                                               │ order: who sends when
//! daemon (a process) <── TCP ── client (neighbors) + monitor (the one that listens)
//! speaker (in memory) <── feed (the same streams)                │
//!                                               │
//!                                   functions, bench: one measurement ──> experiment: cells, rounds, tables, report
//! receive: ways to read from TCP, without a daemon; locks: tables with locks elsewhere; caches: what is touched
//! ```
//!
//! [`message`] is an encoder and decoder of its own: what checks a daemon must not share the daemon's mistakes.
//! The tests of interoperation use [`client`], [`table`] and [`replay`] too, as neighbors that can misbehave.
//!
//! Missing: IPv6 in generated tables (files bring it), passive neighbors, add-path and extended messages in what
//! the neighbors send.

pub mod bench;
pub mod caches;
pub mod client;
pub mod daemon;
pub mod experiment;
mod feed;
pub mod functions;
pub(crate) mod in_memory;
mod locks;
pub mod message;
pub mod monitor;
pub mod order;
pub mod progress;
pub mod receive;
pub mod replay;
pub mod scenario;
pub mod schedulings;
pub mod table;

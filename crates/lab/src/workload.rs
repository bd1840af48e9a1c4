//! Workloads: input made from a seed, the same on every machine.
//!
//! - [`trace`]: text packet traces, as large as wanted; the default options give the published trace.
//! - [`destinations`]: addresses to look up, drawn from a prefix list in three ways.
//! - [`flood`]: the smallest packets to such destinations.
//! - [`nat`]: sessions behind a translator, opened, then used both ways.
//! - [`frames`]: frames for all of these, and chunks of them in memory.
//! - [`capture`]: frames into a capture file of any size, in constant memory.
//! - [`prefixes`]: a generated table of routes, where no real one is at hand.
//! - [`generate`]: input file and configuration of a whole experiment, from its name.
//!
//! Missing: IPv6 frames, mixed frame sizes, bursts. Real captures bring those.

pub mod capture;
pub mod destinations;
pub mod flood;
pub mod flows;
pub mod frames;
pub mod generate;
pub mod nat;
pub mod prefixes;
pub mod trace;

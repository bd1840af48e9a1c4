//! A router on live interfaces: the tables that change while packets pass.
//!
//! Replay builds its tables once. A live router's tables change for three reasons: neighbors are resolved and lost,
//! ports come and go, routes come from neighbors or from another configuration. All of them go through
//! [`LiveTables`], which has one owner; the packet path reads what it publishes.

mod others;
mod tables;

pub use others::{OtherWay, OtherWays};
pub use tables::{LiveTables, NEIGHBORS_MAX, PortLink, RouteChange, RouteCounts, RouteDifference};

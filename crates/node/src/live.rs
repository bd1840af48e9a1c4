//! A router on live interfaces: the tables that change while packets pass.
//!
//! Replay builds its tables once. A live router's tables change for three reasons: neighbors are resolved and lost,
//! ports come and go, routes come from neighbors or from another configuration. All of them go through
//! [`LiveTables`], which has one owner; the packet path reads what it publishes.

mod tables;

pub use tables::{
    LiveTables, NEIGHBORS_MAX, OtherWay, OtherWays, PortLink, RouteChange, RouteCounts, RouteDifference,
};

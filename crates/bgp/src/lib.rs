//! The BGP-4 protocol without sockets, threads or clocks.

pub mod attrs;
pub mod export;
pub mod peer;
pub mod policy;
pub mod rib;
pub mod route;
pub mod session;

//! Live ports in a network namespace of their own, which needs root.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "live/faults.rs"]
mod faults;
#[path = "live/packet.rs"]
mod packet;
#[path = "live/tap.rs"]
mod tap;
#[path = "live/tcp.rs"]
mod tcp;
#[path = "live/veth.rs"]
mod veth;

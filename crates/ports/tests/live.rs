//! Live ports in their own network namespace, which needs root.
#![cfg(target_os = "linux")]

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

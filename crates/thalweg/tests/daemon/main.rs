//! The router as a process: started from a configuration, asked, changed and ended as an operator would.
//!
//! Routers talk to each other over loopback (127.0.0.1, 127.0.0.2 ..) on a port that was free a moment ago. Nothing
//! sleeps for a fixed time: whatever is expected is asked for until it is there, or a generous deadline has passed.

#![cfg(target_os = "linux")]

#[path = "../../../ports/tests/common/mod.rs"]
mod namespace;
mod router;

mod control;
mod kernel;
mod next_hops;
mod received;
mod tables;

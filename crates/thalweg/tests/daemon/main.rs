//! The router as a process: started with a configuration, queried, changed and stopped as an operator would.
//!
//! Routers connect to each other over loopback (127.0.0.1, 127.0.0.2 ..) on a port that was free a moment ago.
//! Nothing sleeps for a fixed time: a test asks until the expected answer comes or a generous deadline passes.

#![cfg(target_os = "linux")]

#[path = "../../../web/tests/console/browser.rs"]
#[allow(dead_code, reason = "the console's own tests press keys and change its look")]
mod browser;
#[path = "../../../ports/tests/common/mod.rs"]
mod namespace;
mod router;

mod control;
mod delivery;
mod demo;
mod kernel;
mod next_hops;
mod received;
mod rights;
mod service;
mod tables;
mod web;

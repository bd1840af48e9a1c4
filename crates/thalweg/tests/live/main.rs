//! The router on live interfaces, with real programs around it: hosts in namespaces that the tests make, joined to the
//! router by cables. Needs root; says so loudly elsewhere.

#![cfg(target_os = "linux")]

mod faults;
mod mirror;
mod nat;
mod programs;
mod reload;
mod site;

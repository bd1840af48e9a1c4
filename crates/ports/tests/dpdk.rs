//! DPDK's virtual devices as ports. Those that work by interfaces of the kernel's are in a network namespace of their
//! own, which needs root.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "each test binary uses its part")]
mod common;
#[path = "dpdk/kernel.rs"]
mod kernel;
#[path = "dpdk/memory.rs"]
mod memory;
#[allow(dead_code, reason = "each test binary uses its part")]
#[path = "live/veth.rs"]
mod veth;

use thalweg_ports::live::LiveError;
use thalweg_ports::live::dpdk::{self, DpdkOptions};
use thalweg_ports::live::link::ReadLink;
use veth::End;

/// Starts DPDK, as every test here does: once, whichever is the first.
fn start() {
    // Room for all that is open at once.
    let devices = [(); 12].map(|()| DpdkOptions { mtu: 9000, ..DpdkOptions::new("net_null") });
    dpdk::start(&[], &devices).unwrap();
}

fn try_open(options: &DpdkOptions) -> Result<(End, Box<dyn ReadLink>), LiveError> {
    start();
    let (port, link) = dpdk::open(options)?;
    Ok((End::new(port), link))
}

fn open(device: &str) -> (End, Box<dyn ReadLink>) {
    try_open(&DpdkOptions::new(device)).unwrap()
}

/// Why a device is not available.
fn refusal(device: &str) -> String {
    match try_open(&DpdkOptions::new(device)) {
        Ok(_) => panic!("{device} was opened"),
        Err(error) => error.to_string(),
    }
}

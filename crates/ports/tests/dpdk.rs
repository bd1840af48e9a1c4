//! DPDK's virtual devices as ports. Devices on kernel interfaces are tested in their own network namespace, which
//! needs root.
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

/// Starts DPDK. Every test calls this; the first call starts it.
fn start() {
    // Memory for all devices that are open at the same time.
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

/// Why a device cannot be opened.
fn refusal(device: &str) -> String {
    match try_open(&DpdkOptions::new(device)) {
        Ok(_) => panic!("{device} was opened"),
        Err(error) => error.to_string(),
    }
}

//! DPDK: devices that a library in this process drives, past the kernel. Optional, by the cargo feature `dpdk`.
//!
//! ```text
//! device ─> rte_eth_rx_burst, 32 frames ─> copied to the chunk ── stages ── copied to a buffer ─> rte_eth_tx_burst ─> device
//! ```
//!
//! # Choices
//!
//! - **No hugepages where no card needs them.** Virtual devices (`net_null0`, `net_pcap0,..`, `net_af_packet0,iface=eth0`,
//!   `net_tap0`) run with ordinary memory and without a look at the PCI bus. Where a PCI device is named, DPDK's own
//!   defaults hold: hugepages, kept out of the file system, and only that device is touched.
//! - **Frames are copied**, as by the other drivers: a chunk's bytes lie together. What DPDK saves is the kernel.
//! - **Nothing tells when a frame comes.** The receiving half says that it has to be polled ([`PortRx::is_polled`]) and
//!   its source asks it again and again, then naps: see [`super::LiveSource`].
//! - **One queue each way.** Which thread uses it does not matter, only that it is one at a time. Threads that use a
//!   device are made known to DPDK, which then keeps buffers at hand for them.
//! - **Started once.** DPDK can be started once in a process, with one set of arguments; it stays until the process
//!   ends. Devices come and go.
//! - **The interface is the router's** where a device works by an interface of the kernel's (`net_af_packet`,
//!   `net_pcap`): as with AF_PACKET, the host's own stack gets nothing of what arrives.
//!
//! # What a device does not say
//!
//! `net_af_packet` and `net_pcap` hand up what the kernel has: checksums that a local sender at a veth's other end has
//! left to hardware are unfinished (`ethtool -K .. tx off` there). Both follow their interface's link here, since they
//! do not themselves.
//!
//! Missing: several queues; interfaces that go and come back under another number (the router has to be started again);
//! checksums and segmentation by the card.
//!
//! [`PortRx::is_polled`]: super::PortRx::is_polled

#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod environment;
#[cfg(feature = "dpdk")]
mod open;
#[cfg(feature = "dpdk")]
mod receive;
#[cfg(feature = "dpdk")]
mod shim;
#[cfg(feature = "dpdk")]
mod transmit;

use super::driver::{Driver, Probed, Request};
use super::link::ReadLink;
use super::{LiveError, Port};

#[cfg(feature = "dpdk")]
pub use environment::{said, start};
#[cfg(feature = "dpdk")]
pub use open::open;
use thalweg_wire::MacAddr;

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// Its name and what its driver is told, as DPDK has it: `net_af_packet0,iface=eth0`, `0000:03:00.0`.
    pub device: String,
    /// The port's own address: frames to it, and to groups, are the port's. `None` takes the device's. If it is another
    /// one, the device takes everything.
    pub mac: Option<MacAddr>,
    /// Largest IP packet. Devices that cannot take so much take less.
    pub mtu: u16,
    /// Frames that there is memory for, each way: see [`MBUFS`].
    pub mbufs: u32,
}

/// Frames that there is memory for where nobody says otherwise: twice what a device's ring, what waits for it and what
/// threads keep at hand may take.
pub const MBUFS: u32 = 4096;

impl DpdkOptions {
    /// A device with packets of Ethernet's length.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into(), mac: None, mtu: 1500, mbufs: MBUFS }
    }

    /// The device's name, without what its driver is told.
    pub fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default()
    }
}

/// DPDK as a driver of ports.
pub struct Dpdk;

/// In a device's arguments: its driver writes over this file when it is opened.
const EMPTIES_A_FILE: &str = "tx_pcap=";

impl Dpdk {
    fn options(request: &Request) -> DpdkOptions {
        let device = request.device.clone().unwrap_or_else(|| request.interface.clone());
        DpdkOptions { device, mac: request.mac, mtu: request.mtu, mbufs: request.mbufs }
    }
}

impl Driver for Dpdk {
    fn open(&self, request: &Request) -> Result<super::Opened, LiveError> {
        let (port, link) = open(&Self::options(request))?;
        Ok(super::Opened { link: Some(link), ..port.into() })
    }

    fn probe(&self, request: &Request) -> Result<Probed, LiveError> {
        let options = Self::options(request);
        if cfg!(feature = "dpdk") && options.device.contains(EMPTIES_A_FILE) {
            let mode = "dpdk net_pcap (not tried: that would empty its file)".to_owned();
            return Ok(Probed { mode, ..Probed::default() });
        }
        let (Port { facts, .. }, mut link) = open(&options)?;
        let mut findings = Vec::new();
        if !link.read().is_ok_and(|facts| facts.has_carrier) {
            findings.push(format!("{} has no link", options.name()));
        }
        if facts.mtu < request.mtu.into() {
            findings.push(format!(
                "{} takes packets of {} bytes, the configuration says {}: the smaller counts",
                options.name(),
                facts.mtu,
                request.mtu
            ));
        }
        Ok(Probed { mode: facts.mode, why_not_better: facts.why_not_better, findings })
    }
}

/// A device as a port, and what tells of its link.
pub type Opened = (Port, Box<dyn ReadLink>);

/// Starts DPDK in this process for these devices, with `arguments` for its environment; empty, they are made up. Does
/// nothing if it runs with the same arguments.
///
/// # Errors
///
/// Always: DPDK is not built in.
#[cfg(not(feature = "dpdk"))]
pub fn start(_arguments: &[String], devices: &[DpdkOptions]) -> Result<(), LiveError> {
    devices.first().map_or(Ok(()), |device| Err(not_built_in(device)))
}

/// What DPDK said since the last call: nothing, since it is not built in.
#[cfg(not(feature = "dpdk"))]
pub fn said() -> String {
    String::new()
}

/// Opens a device as a port.
///
/// # Errors
///
/// Always: DPDK is not built in.
#[cfg(not(feature = "dpdk"))]
pub fn open(options: &DpdkOptions) -> Result<Opened, LiveError> {
    Err(not_built_in(options))
}

#[cfg(not(feature = "dpdk"))]
fn not_built_in(options: &DpdkOptions) -> LiveError {
    LiveError::NotBuiltIn {
        interface: options.name().to_owned(),
        driver: "dpdk",
        remedy: "build it with `cargo build --release --features dpdk` (Debian: `apt-get install libdpdk-dev` first)",
    }
}

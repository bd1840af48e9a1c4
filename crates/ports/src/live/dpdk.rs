//! DPDK: a library in this process drives devices past the kernel. Optional, by the cargo feature `dpdk`.
//!
//! ```text
//! device ─> rte_eth_rx_burst, 32 frames ─> copied to the chunk ── stages ── copied to a buffer ─> rte_eth_tx_burst ─> device
//! ```
//!
//! # Choices
//!
//! - **No hugepages where no card needs them.** Virtual devices (`net_null0`, `net_pcap0,..`,
//!   `net_af_packet0,iface=eth0`, `net_tap0`) run with ordinary memory and without a scan of the PCI bus. If a PCI
//!   device is named, DPDK's own defaults apply: hugepages, kept out of the file system; only that device is
//!   touched.
//! - **Frames are copied**, as by the other drivers: a chunk's bytes lie together. What DPDK saves is the kernel.
//! - **Nothing announces a frame.** The receiving half declares that it must be polled ([`PortRx::is_polled`]), and
//!   its source polls it repeatedly, then naps: see [`super::LiveSource`].
//! - **One queue each way.** Any thread may use it, one at a time. Threads that use a device are registered with
//!   DPDK, which then keeps buffers cached for them.
//! - **Started once.** DPDK can be started once in a process, with one set of arguments, and stays until the
//!   process ends. Devices come and go.
//! - **The interface belongs to the router** if a device uses a kernel interface (`net_af_packet`, `net_pcap`): as
//!   with AF_PACKET, the host's stack receives none of its packets.
//!
//! # What a device does not report
//!
//! `net_af_packet` and `net_pcap` pass on what the kernel has: checksums that a local sender at a veth's other end
//! has left to hardware are unfinished (`ethtool -K .. tx off` there). The two do not follow the link of their
//! interface themselves, so this module does.
//!
//! Missing: several queues; interfaces that come back under another number (restart the router); checksums and
//! segmentation by the card.
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

/// The options of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// The device's name and its driver's arguments, in DPDK's syntax: `net_af_packet0,iface=eth0`, `0000:03:00.0`.
    pub device: String,
    /// The port's own address: the port receives frames to it and to groups. `None` takes the device's address.
    /// With an address other than the device's, the device becomes promiscuous.
    pub mac: Option<MacAddr>,
    /// The largest IP packet in bytes. A device that cannot take it gets a smaller MTU.
    pub mtu: u16,
    /// Frame buffers for each direction: see [`MBUFS`].
    pub mbufs: u32,
}

/// The default number of frame buffers for each direction: twice what a device's ring, waiting frames and the
/// threads' caches may take.
pub const MBUFS: u32 = 4096;

impl DpdkOptions {
    /// A device with Ethernet's usual MTU.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into(), mac: None, mtu: 1500, mbufs: MBUFS }
    }

    /// The device's name, without the arguments.
    pub fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default()
    }
}

/// The driver of ports that use DPDK.
pub struct Dpdk;

/// In a device's arguments, this means that its driver overwrites a file when the device is opened.
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

/// A port, and the reader of its link.
pub type Opened = (Port, Box<dyn ReadLink>);

/// Starts DPDK in this process for these devices, with `arguments` for its environment (EAL); if they are empty,
/// suitable ones are chosen. Does nothing if DPDK runs with the same arguments.
///
/// # Errors
///
/// Always: DPDK is not built in.
#[cfg(not(feature = "dpdk"))]
pub fn start(_arguments: &[String], devices: &[DpdkOptions]) -> Result<(), LiveError> {
    devices.first().map_or(Ok(()), |device| Err(not_built_in(device)))
}

/// DPDK's log output since the last call: empty, since DPDK is not built in.
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

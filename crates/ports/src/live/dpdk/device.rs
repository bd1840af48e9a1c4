//! An open device: its address, its MTU, its link.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::shim::{Device, DeviceFacts};
use crate::live::LiveError;
use crate::live::link::{LinkFacts, Links, ReadLink};
use crate::live::packet::exclusive::Exclusive;
use thalweg_wire::MacAddr;

/// DPDK's drivers that use a kernel interface and share it with the host.
const BY_THE_KERNEL: [&str; 2] = ["net_af_packet", "net_pcap"];

/// The one of these whose address is the interface's.
const HAS_ITS_ADDRESS: &str = "net_af_packet";

/// The kernel interface that a device uses.
pub(super) struct Kernel {
    links: Links,
    index: u32,
    has_its_address: bool,
    /// Keeps the host's stack from the packets as long as it exists.
    _exclusive: Option<Exclusive>,
    pub(super) why_shared: Option<String>,
}

impl Kernel {
    pub(super) fn of(device: &str, facts: &DeviceFacts) -> Result<Option<Self>, LiveError> {
        let driver = facts.driver();
        if facts.interface == 0 || !BY_THE_KERNEL.contains(&driver.as_str()) {
            return Ok(None);
        }
        let links = Links::open().map_err(LiveError::call(device, "socket"))?;
        let (exclusive, why_shared) = match Exclusive::attach(facts.interface, None) {
            Ok(exclusive) => (Some(exclusive), None),
            Err(error) => (None, Some(format!("the host's stack still receives its packets: {error}"))),
        };
        let has_its_address = driver == HAS_ITS_ADDRESS;
        Ok(Some(Self { links, index: facts.interface, has_its_address, _exclusive: exclusive, why_shared }))
    }

    fn read(&self) -> Result<LinkFacts, LiveError> {
        self.links.read(&self.links.name(self.index)?)
    }
}

/// The common state of a port's halves.
pub(super) struct Shared {
    pub(super) device: Arc<Device>,
    pub(super) name: String,
    pub(super) kernel: Option<Kernel>,
    /// The port has the device's address, even if that changes.
    pub(super) follows: bool,
    pub(super) mac: AtomicU64,
    /// The MTU with which the device was opened.
    pub(super) mtu_max: u32,
    pub(super) mtu: AtomicU32,
}

impl Shared {
    pub(super) fn mac(&self) -> u64 {
        self.mac.load(Ordering::Relaxed)
    }

    /// The largest IP packet in bytes.
    pub(super) fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed) as usize
    }

    /// Reads the state of the device and updates what both halves see.
    pub(super) fn look(&self) -> Result<LinkFacts, LiveError> {
        let has_link = self.device.has_link();
        let mac = MacAddr::from_u64(self.mac.load(Ordering::Relaxed));
        let (index, mtu) = (0, self.mtu_max);
        let mut facts = LinkFacts { index, mac, mtu, is_up: true, has_carrier: has_link, far_end: None };
        if let Some(kernel) = &self.kernel {
            let interface = kernel.read()?;
            facts.index = interface.index;
            facts.mtu = self.mtu_max.min(interface.mtu);
            facts.is_up = interface.is_up;
            facts.has_carrier = has_link && interface.has_carrier;
            if kernel.has_its_address && self.follows {
                facts.mac = interface.mac;
            }
        }
        self.mac.store(facts.mac.to_u64(), Ordering::Relaxed);
        self.mtu.store(facts.mtu, Ordering::Relaxed);
        Ok(facts)
    }

    /// Reads the state of the device; an error if no frames can pass.
    pub(super) fn passes(&self) -> io::Result<()> {
        match self.look() {
            Ok(facts) if facts.has_carrier => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ENETDOWN)),
            Err(error) => Err(io::Error::from_raw_os_error(error.errno().unwrap_or(libc::ENODEV))),
        }
    }

    pub(super) fn mode(&self, facts: &DeviceFacts) -> String {
        let interface = self.kernel.as_ref().and_then(|kernel| kernel.links.name(kernel.index).ok());
        match interface {
            Some(interface) => format!("dpdk {} on {interface}", facts.driver()),
            None => format!("dpdk {}", facts.driver()),
        }
    }
}

/// The reader of a device's link.
pub(super) struct DeviceLink(pub(super) Arc<Shared>);

impl ReadLink for DeviceLink {
    fn read(&mut self) -> Result<LinkFacts, LiveError> {
        self.0.look()
    }
}

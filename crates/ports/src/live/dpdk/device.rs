//! A device as a port: opening it, and what is known of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::environment::{self, with_what_was_said};
use super::receive::DpdkRx;
use super::shim::{Device, DeviceFacts, Wish};
use super::transmit::DpdkTx;
use super::{DpdkOptions, Opened};
use crate::live::link::{LinkFacts, Links, ReadLink};
use crate::live::packet::exclusive::Exclusive;
use crate::live::{LiveError, Port, PortFacts};
use thalweg_wire::MacAddr;

/// Drivers of DPDK's that work by an interface of the kernel's, and share it with the host.
const BY_THE_KERNEL: [&str; 2] = ["net_af_packet", "net_pcap"];

/// Of these, the one whose address is the interface's.
const HAS_ITS_ADDRESS: &str = "net_af_packet";

/// Opens a device as a port. DPDK must have been started ([`super::start`]).
///
/// # Errors
///
/// DPDK was not started, does not know the device, cannot open it, or has it already.
pub fn open(options: &DpdkOptions) -> Result<Opened, LiveError> {
    let name = options.name().to_owned();
    let failed = |what: &'static str| {
        let interface = name.clone();
        move |error: io::Error| LiveError::Dpdk { interface, what, said: explain(&error) }
    };
    let runs = environment::running(options)?;
    // What was said before is not about this.
    super::said();
    let attached = Device::attach(runs, &options.device).map_err(failed("attach"))?;
    let facts = attached.facts().map_err(failed("ask"))?;
    let mac = options.mac.unwrap_or(facts.mac);
    let (mtu, room) = environment::frame_sizes(options);
    let wish = Wish { mtu, room, frames: options.mbufs, everything: mac != facts.mac };
    let (receiver, sender, device) = attached.start(wish).map_err(failed("start the device"))?;
    let facts = device.facts().map_err(failed("ask"))?;
    let mtu = mtu.min(facts.mtu);
    let shared = Arc::new(Shared {
        kernel: Kernel::of(&name, &facts)?,
        device,
        name,
        follows: options.mac.is_none(),
        mac: AtomicU64::new(mac.to_u64()),
        mtu_max: u32::from(mtu),
        mtu: AtomicU32::new(u32::from(mtu)),
    });
    let now = shared.look()?;
    let port_facts = PortFacts {
        interface: shared.name.clone(),
        index: facts.interface,
        mac: now.mac,
        mtu: now.mtu,
        mode: shared.mode(&facts),
        why_not_better: shared.kernel.as_ref().and_then(|kernel| kernel.why_shared.clone()),
    };
    let rx = Box::new(DpdkRx::new(shared.clone(), receiver));
    let tx = Box::new(DpdkTx::new(shared.clone(), sender));
    Ok((Port { rx: vec![rx], tx, facts: port_facts }, Box::new(DeviceLink(shared))))
}

/// What the kernel's numbers mean here.
fn explain(error: &io::Error) -> String {
    let what = match error.raw_os_error() {
        Some(libc::EEXIST) => "it is open already: each port needs a device of its own".to_owned(),
        // What DPDK's drivers say when anything at all is wrong.
        Some(libc::EPERM) => "refused".to_owned(),
        Some(libc::EFAULT | libc::ENODEV) => "no such device".to_owned(),
        Some(libc::ENOMEM) => "not enough memory: fewer `mbufs`, or more by [dpdk] eal".to_owned(),
        _ => error.to_string(),
    };
    with_what_was_said(&what)
}

/// An interface of the kernel's that a device works by.
struct Kernel {
    links: Links,
    index: u32,
    has_its_address: bool,
    /// Does its work by being there.
    _exclusive: Option<Exclusive>,
    why_shared: Option<String>,
}

impl Kernel {
    fn of(device: &str, facts: &DeviceFacts) -> Result<Option<Self>, LiveError> {
        let driver = facts.driver();
        if facts.interface == 0 || !BY_THE_KERNEL.contains(&driver.as_str()) {
            return Ok(None);
        }
        let links = Links::open().map_err(LiveError::call(device, "socket"))?;
        let (exclusive, why_shared) = match Exclusive::attach(facts.interface) {
            Ok(exclusive) => (Some(exclusive), None),
            Err(error) => (None, Some(format!("the host's stack sees its packets too: {error}"))),
        };
        let has_its_address = driver == HAS_ITS_ADDRESS;
        Ok(Some(Self { links, index: facts.interface, has_its_address, _exclusive: exclusive, why_shared }))
    }

    fn read(&self) -> Result<LinkFacts, LiveError> {
        self.links.read(&self.links.name(self.index)?)
    }
}

/// What the halves of a port have in common.
pub(super) struct Shared {
    pub(super) device: Arc<Device>,
    name: String,
    kernel: Option<Kernel>,
    /// The address is the device's, whatever that is.
    follows: bool,
    mac: AtomicU64,
    /// What the device was opened for, and what it takes now.
    mtu_max: u32,
    mtu: AtomicU32,
}

impl Shared {
    /// The port's address as a number.
    pub(super) fn mac(&self) -> u64 {
        self.mac.load(Ordering::Relaxed)
    }

    /// Largest IP packet.
    pub(super) fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed) as usize
    }

    /// Looks what has become of the device; both halves know then.
    fn look(&self) -> Result<LinkFacts, LiveError> {
        let has_link = self.device.has_link();
        let mac = MacAddr::from_u64(self.mac.load(Ordering::Relaxed));
        let mut facts = LinkFacts { index: 0, mac, mtu: self.mtu_max, is_up: true, has_carrier: has_link };
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

    /// Whether frames pass, after another look; as the halves say it.
    pub(super) fn passes(&self) -> io::Result<()> {
        match self.look() {
            Ok(facts) if facts.has_carrier => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ENETDOWN)),
            Err(error) => Err(io::Error::from_raw_os_error(error.errno().unwrap_or(libc::ENODEV))),
        }
    }

    fn mode(&self, facts: &DeviceFacts) -> String {
        let interface = self.kernel.as_ref().and_then(|kernel| kernel.links.name(kernel.index).ok());
        match interface {
            Some(interface) => format!("dpdk {} on {interface}", facts.driver()),
            None => format!("dpdk {}", facts.driver()),
        }
    }
}

/// Tells of a device's link.
struct DeviceLink(Arc<Shared>);

impl ReadLink for DeviceLink {
    fn read(&mut self) -> Result<LinkFacts, LiveError> {
        self.0.look()
    }
}

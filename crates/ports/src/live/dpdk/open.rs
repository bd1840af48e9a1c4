//! Opens a device as a port.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::device::{DeviceLink, Kernel, Shared};
use super::environment::{self, with_what_was_said};
use super::receive::DpdkRx;
use super::shim::{Device, Wish};
use super::transmit::DpdkTx;
use super::{DpdkOptions, Opened};
use crate::live::{LiveError, Port, PortFacts};

/// Opens a device as a port. DPDK must have been started ([`super::start`]).
///
/// # Errors
///
/// DPDK was not started, does not know the device, cannot open it, or has opened it already.
pub fn open(options: &DpdkOptions) -> Result<Opened, LiveError> {
    let name = options.name().to_owned();
    let failed = |what: &'static str| {
        let interface = name.clone();
        move |error: io::Error| LiveError::Dpdk { interface, what, said: explain(&error) }
    };
    let runs = environment::running(options)?;
    // Discards earlier log output, which is not about this device.
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
        far_end: None,
        mtu: now.mtu,
        mode: shared.mode(&facts),
        why_not_better: shared.kernel.as_ref().and_then(|kernel| kernel.why_shared.clone()),
    };
    let rx = Box::new(DpdkRx::new(shared.clone(), receiver));
    let tx = Box::new(DpdkTx::new(shared.clone(), sender));
    Ok((Port { rx: vec![rx], tx, facts: port_facts }, Box::new(DeviceLink(shared))))
}

/// The meaning of an error number here.
fn explain(error: &io::Error) -> String {
    let what = match error.raw_os_error() {
        Some(libc::EEXIST) => "it is open already: each port needs a device of its own".to_owned(),
        // DPDK's drivers return this for any kind of failure.
        Some(libc::EPERM) => "refused".to_owned(),
        Some(libc::EFAULT | libc::ENODEV) => "no such device".to_owned(),
        Some(libc::ENOMEM) => "not enough memory: fewer `mbufs`, or more by [dpdk] eal".to_owned(),
        _ => error.to_string(),
    };
    with_what_was_said(&what)
}

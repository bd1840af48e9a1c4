//! Opens ports: chooses the driver, and falls back if one does not work.

use std::sync::Arc;

use thalweg_config::{Capture, Driver, InterfaceConfig, PortConfig, RouterConfig, XdpPlace};
use thalweg_exec::ModelKind;
use thalweg_ports::live::dpdk::{self, DpdkOptions};
use thalweg_ports::live::reopen::{self, OpenedLater};
use thalweg_ports::live::xdp::XdpMode;
use thalweg_ports::live::xdp::offload::Offload;
use thalweg_ports::live::{self, LiveError, Opened, Playback, PortFacts, Request, VirtualMacs};

use crate::interface_lock::ClaimError;

/// Why a router cannot start on its interfaces.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A port has no interface.
    #[error("port {port} has no interface: add `interface = \"eth0\"` to [ports.{port}]")]
    NoInterface {
        /// Its name.
        port: String,
    },
    /// A VLAN sub-interface has an egress queue of its own.
    #[error("port {port} is a VLAN of port {parent} and shares its queue: name {parent} in [[qos.egress]]")]
    ShapedSubInterface {
        port: String,
        /// The port that owns the queue.
        parent: String,
    },
    /// Another router holds a port's interface.
    #[error("port {port}: {holder}")]
    Claimed {
        port: String,
        /// The interface and its holder.
        holder: ClaimError,
    },
    /// A port assigns a queue to a worker that does not exist.
    #[error(
        "port {port} gives a queue to worker {worker}, and there are {workers} (the first is 0): run with --workers {} or \
         more, or change `queue_workers`",
        worker + 1
    )]
    NoSuchWorker {
        port: String,
        /// The highest worker number that it names.
        worker: usize,
        /// The number of workers.
        workers: usize,
    },
    /// A port assigns queues to workers, but the model's workers share all packets.
    #[error(
        "port {port} has `queue_workers`, and workers of the model {model} have no queues of their own: run with \
         --model {other}, or leave the key out"
    )]
    SharedQueues {
        port: String,
        /// The configured model.
        model: ModelKind,
        /// A model whose workers own queues.
        other: ModelKind,
    },
    /// A port cannot be opened.
    #[error("port {port}: {source}")]
    Port {
        /// Its name.
        port: String,
        source: LiveError,
    },
    /// The configuration cannot be built.
    #[error(transparent)]
    Build(thalweg_node::BuildError),
    /// State cannot be exchanged with the other router.
    #[error(transparent)]
    Standby(crate::standby::StandbyError),
    /// A thread or a pair of sockets could not be created.
    #[error("the system is out of a resource: {0}")]
    System(std::io::Error),
    /// The kernel does not announce interface changes.
    #[error("cannot watch interfaces: {0}")]
    Kernel(thalweg_ports::kernel::KernelError),
}

/// A port that was opened, or that waits for its interface.
pub struct OpenedPort {
    /// What was opened; for a port that waits, a stand-in.
    pub opened: Opened,
    /// What is found when the interface of a waiting port appears.
    pub later: Option<OpenedLater>,
}

/// Starts DPDK if a port uses it. A process can start DPDK only once, and only with one set of arguments.
///
/// # Errors
///
/// Names the first port that uses DPDK.
pub fn start_dpdk(config: &RouterConfig) -> Result<(), OpenError> {
    let devices: Vec<(&PortConfig, DpdkOptions)> =
        config.ports.iter().filter_map(|port| Some((port, dpdk_options(port, config.dpdk.mbufs)?))).collect();
    let options: Vec<DpdkOptions> = devices.iter().map(|(_, options)| options.clone()).collect();
    let failed = |source| OpenError::Port {
        port: devices.first().map_or("", |(port, _)| &port.name).to_owned(),
        source,
    };
    dpdk::start(&config.dpdk.eal, &options).map_err(failed)
}

fn dpdk_options(config: &PortConfig, mbufs: u32) -> Option<DpdkOptions> {
    let interface = config.interface.as_ref().filter(|_| config.sub_interface.is_none())?;
    let mac = (!interface.own_mac).then_some(config.mac);
    Some(DpdkOptions { device: interface.device.clone()?, mac, mtu: config.mtu, mbufs })
}

/// What to ask of a driver. `queues` receiving halves, if the configuration does not say.
pub(crate) fn request(
    config: &PortConfig,
    interface: &InterfaceConfig,
    queues: usize,
    mbufs: u32,
) -> Request {
    Request {
        interface: interface.name.clone(),
        device: interface.device.clone(),
        mac: (!interface.own_mac).then_some(config.mac),
        virtual_macs: None,
        mtu: config.mtu,
        queues: interface.queues.map_or(queues, usize::from),
        modes: modes(interface),
        offload: None,
        mbufs,
        playback: interface.capture.clone().map(|Capture { path, rate }| Playback { path, rate }),
    }
}

/// Opens with the port's driver; for `auto` with the best that works, and `remark` gets the reason why no better
/// one did. `carries_vlans`: other ports are sub-interfaces of this one.
pub(crate) fn by_driver<T>(
    driver: Driver,
    carries_vlans: bool,
    interface: &str,
    use_it: impl Fn(&dyn live::Driver) -> Result<T, LiveError>,
    remark: impl Fn(&mut T, String),
) -> Result<T, LiveError> {
    let named = |driver: Driver| {
        let found = live::DRIVERS.iter().find(|(name, _)| *name == driver.name());
        let missing = || LiveError::NotBuiltIn {
            interface: interface.to_owned(),
            driver: driver.name(),
            remedy: "use another driver",
        };
        found.ok_or_else(missing).and_then(|(_, driver)| use_it(*driver))
    };
    let instead = |why: String| {
        let mut done = named(Driver::AfPacket)?;
        remark(&mut done, why);
        Ok(done)
    };
    match driver {
        Driver::Auto if carries_vlans => instead(TAGS_ARE_TAKEN_OFF.to_owned()),
        Driver::Auto => named(Driver::AfXdp).or_else(|why| instead(format!("AF_XDP does not work: {why}"))),
        driver => named(driver),
    }
}

/// What a driver shares with others: the kernel's tables of the port's flows, and the addresses of virtual routers.
pub(crate) type Shared = (Option<Arc<Offload>>, Option<Arc<VirtualMacs>>);

/// Opens a port as configured.
pub fn open_port(
    router: &RouterConfig,
    config: &PortConfig,
    queues: usize,
    carries_vlans: bool,
    (offload, virtual_macs): Shared,
) -> Result<OpenedPort, OpenError> {
    let Some(interface) = &config.interface else {
        return Err(OpenError::NoInterface { port: config.name.clone() });
    };
    let request = Request { offload, virtual_macs, ..request(config, interface, queues, router.dpdk.mbufs) };
    let opened = by_driver(
        interface.driver,
        carries_vlans,
        &interface.name,
        |driver| driver.open(&request),
        |opened, why| remark(&mut opened.port.facts, why),
    );
    if interface.driver == Driver::Dpdk {
        for line in dpdk::said().lines() {
            tracing::info!(port = config.name, "DPDK: {line}");
        }
    }
    let opened = opened.and_then(|opened| match opened.port.facts.far_end {
        Some(_) if carries_vlans => {
            Err(LiveError::BadOption { interface: interface.name.clone(), why: NO_VLANS.to_owned() })
        }
        _ => Ok(opened),
    });
    let failed = |source| OpenError::Port { port: config.name.clone(), source };
    Ok(OpenedPort { opened: opened.map_err(failed)?, later: None })
}

/// Adds why no better driver is used, unless the driver has said so.
fn remark(facts: &mut PortFacts, why: String) {
    facts.why_not_better.get_or_insert(why);
}

const WAITING: &str = "waits for its interface";

/// Makes a port whose interface does not exist yet; it opens when the interface appears. `None` for drivers that
/// create their interface.
pub(crate) fn wait_for(
    config: &PortConfig,
    queues: usize,
    carries_vlans: bool,
    (offload, virtual_macs): Shared,
) -> Option<OpenedPort> {
    let interface = config.interface.as_ref().filter(|interface| interface.driver.takes_interface())?;
    let (driver, name) = (interface.driver, interface.name.clone());
    // DPDK ports cannot wait, so no mbufs are needed.
    let request = Request { offload, virtual_macs, ..request(config, interface, queues, 0) };
    let facts = PortFacts {
        interface: name.clone(),
        index: 0,
        mac: request.mac.unwrap_or_default(),
        far_end: None,
        mtu: config.mtu.into(),
        mode: WAITING.to_owned(),
        why_not_better: None,
    };
    let queues = request.queues;
    let open = move || {
        by_driver(
            driver,
            carries_vlans,
            &name,
            |driver| driver.open_once(&request),
            |port, why| remark(&mut port.facts, why),
        )
    };
    let (port, later) = reopen::open_later(facts, queues, Box::new(open));
    Some(OpenedPort { opened: port.into(), later: Some(later) })
}

/// Why an interface cannot be the parent of sub-interfaces.
pub(crate) const NO_VLANS: &str = "it carries IP packets without Ethernet headers, so it has no VLANs";

/// With a tag that XDP does not see, a frame of a VLAN looks like one of its parent: the one who configures it must
/// rule that out.
const TAGS_ARE_TAKEN_OFF: &str = "AF_XDP does not see VLAN tags that hardware, or a veth's sender, keeps beside the \
     frame; where they are in it (ethtool -K .. rxvlan off, of a veth's other end txvlan off), ask for driver af_xdp";

/// The modes of AF_XDP that the configuration allows, best first.
fn modes(interface: &InterfaceConfig) -> Vec<XdpMode> {
    let is_allowed = |mode: &XdpMode| {
        let place = if *mode == XdpMode::GenericCopy { XdpPlace::Generic } else { XdpPlace::Native };
        interface.xdp_mode.is_none_or(|wanted| wanted == place)
    };
    XdpMode::ALL.into_iter().filter(is_allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_of_the_configuration_is_there() {
        for (name, driver) in Driver::NAMES {
            let used = by_driver(driver, false, "eth0", |_| Ok(()), |_, _| {});
            assert!(used.is_ok(), "{name}");
        }
        assert_eq!(live::DRIVERS.len() + 1, Driver::NAMES.len(), "all but auto");
    }
}

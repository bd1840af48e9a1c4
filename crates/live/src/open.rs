//! Opening ports: which driver, and what if it does not work.

use std::sync::Arc;

use thalweg_config::{Driver, InterfaceConfig, PortConfig, RouterConfig, XdpPlace};
use thalweg_exec::ModelKind;
use thalweg_ports::live::dpdk::{self, DpdkOptions};
use thalweg_ports::live::reopen::{self, OpenedLater};
use thalweg_ports::live::xdp::XdpMode;
use thalweg_ports::live::xdp::offload::Offload;
use thalweg_ports::live::{self, LiveError, Opened, PortFacts, Request};

use crate::interface_lock::ClaimError;

/// Why a router cannot run on its interfaces.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A port has no interface.
    #[error("port {port} has no interface: add `interface = \"eth0\"` to [ports.{port}]")]
    NoInterface {
        /// Its name.
        port: String,
    },
    /// A VLAN sub-interface has queues of its own.
    #[error("port {port} is a VLAN of port {parent} and shares its queue: name {parent} in [[qos.egress]]")]
    ShapedSubInterface {
        /// Its name.
        port: String,
        /// The port that has the queue.
        parent: String,
    },
    /// Another router has a port's interface.
    #[error("port {port}: {holder}")]
    Claimed {
        /// The port's name.
        port: String,
        /// The interface, and who has it.
        holder: ClaimError,
    },
    /// A port gives a queue to a worker that is not there.
    #[error(
        "port {port} gives a queue to worker {worker}, and there are {workers} (the first is 0): run with --workers {} or \
         more, or change `queue_workers`",
        worker + 1
    )]
    NoSuchWorker {
        /// Its name.
        port: String,
        /// The last that it names.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// A port gives queues to workers where all share them.
    #[error(
        "port {port} has `queue_workers`, and workers of the model {model} have no queues of their own: run with \
         --model {other}, or leave the key out"
    )]
    SharedQueues {
        /// Its name.
        port: String,
        /// Whose workers share all packets.
        model: ModelKind,
        /// The one whose workers have.
        other: ModelKind,
    },
    /// A port cannot be opened.
    #[error("port {port}: {source}")]
    Port {
        /// Its name.
        port: String,
        /// Why not.
        source: LiveError,
    },
    /// The configuration cannot be built.
    #[error(transparent)]
    Build(thalweg_node::BuildError),
    /// A thread or a pair of sockets could not be created.
    #[error("the system is out of a resource: {0}")]
    System(std::io::Error),
    /// The kernel does not announce interface changes.
    #[error("cannot watch interfaces: {0}")]
    Kernel(thalweg_ports::kernel::KernelError),
}

/// A port that was opened, or that waits for its interface: then with what is found when that comes.
pub struct OpenedPort {
    /// The port.
    pub opened: Opened,
    /// Of a port that waits.
    pub later: Option<OpenedLater>,
}

/// Starts DPDK, if a port of the configuration is driven by it. It cannot be started again with other arguments in the
/// same process.
///
/// # Errors
///
/// Names the first port that is.
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

/// DPDK's settings of a port.
fn dpdk_options(config: &PortConfig, mbufs: u32) -> Option<DpdkOptions> {
    let interface = config.interface.as_ref().filter(|_| config.sub_interface.is_none())?;
    let mac = (!interface.own_mac).then_some(config.mac);
    Some(DpdkOptions { device: interface.device.clone()?, mac, mtu: config.mtu, mbufs })
}

/// A port as its configuration wants it, with `queues` receiving halves where that says nothing of them.
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
        mtu: config.mtu,
        queues: interface.queues.map_or(queues, usize::from),
        modes: modes(interface),
        offload: None,
        mbufs,
    }
}

/// Uses the driver of a port; `auto` the best one that works, of which `remark` says why it is not a better one.
/// `carries_vlans` says that other ports are its sub-interfaces.
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

/// Opens a port of a router as its configuration says; `offload` is for flows that the kernel may forward.
pub fn open_port(
    router: &RouterConfig,
    config: &PortConfig,
    queues: usize,
    carries_vlans: bool,
    offload: Option<Arc<Offload>>,
) -> Result<OpenedPort, OpenError> {
    let Some(interface) = &config.interface else {
        return Err(OpenError::NoInterface { port: config.name.clone() });
    };
    let request = Request { offload, ..request(config, interface, queues, router.dpdk.mbufs) };
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
    let failed = |source| OpenError::Port { port: config.name.clone(), source };
    Ok(OpenedPort { opened: opened.map_err(failed)?, later: None })
}

/// Why a port is not driven in a better way, unless its driver has said.
fn remark(facts: &mut PortFacts, why: String) {
    facts.why_not_better.get_or_insert(why);
}

/// How a port is called that has no interface yet.
const WAITING: &str = "waits for its interface";

/// A port whose interface is not there: it is opened when it appears. `None` for drivers that make what they need.
pub(crate) fn wait_for(
    config: &PortConfig,
    queues: usize,
    carries_vlans: bool,
    offload: Option<Arc<Offload>>,
) -> Option<OpenedPort> {
    let interface = config.interface.as_ref().filter(|interface| interface.driver.takes_interface())?;
    let (driver, name) = (interface.driver, interface.name.clone());
    // Nothing of DPDK's waits.
    let request = Request { offload, ..request(config, interface, queues, 0) };
    let facts = PortFacts {
        interface: name.clone(),
        index: 0,
        mac: request.mac.unwrap_or_default(),
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

/// A tag that XDP does not see makes a frame one of the parent's: that has to be ruled out by who asks for it.
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

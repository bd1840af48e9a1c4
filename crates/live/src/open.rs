//! Opening ports: which driver, and what if it does not work.

use std::sync::Arc;

use thalweg_config::{Driver, InterfaceConfig, PortConfig, RouterConfig, XdpPlace};
use thalweg_ports::live::dpdk::{self, DpdkOptions};
use thalweg_ports::live::link::ReadLink;
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::reopen::{self, OpenedLater};
use thalweg_ports::live::tap::{self, TapControl, TapOptions};
use thalweg_ports::live::xdp::offload::Offload;
use thalweg_ports::live::xdp::{self, XdpMode, XdpOptions};
use thalweg_ports::live::{LiveError, Port, PortFacts};
use thalweg_wire::MacAddr;

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
        holder: String,
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
    /// A thread or a pair of sockets cannot be had.
    #[error("the system has no more of something: {0}")]
    System(std::io::Error),
    /// The kernel's news of interfaces cannot be had.
    #[error("hearing of interfaces: {0}")]
    Kernel(thalweg_ports::kernel::KernelError),
}

/// A port and, if it is a TAP, what changes its interface.
pub struct OpenedPort {
    /// The port.
    pub port: Port,
    /// Of a TAP.
    pub tap: Option<TapControl>,
    /// What tells of its link, where the system does not.
    pub link: Option<Box<dyn ReadLink>>,
    /// Of a port whose interface was not there: what is found when it comes.
    pub later: Option<OpenedLater>,
}

impl OpenedPort {
    /// A port whose interface the system knows all about.
    fn of(port: Port) -> Self {
        Self { port, tap: None, link: None, later: None }
    }
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

/// What DPDK is told of a port that it drives.
pub(crate) fn dpdk_options(config: &PortConfig, mbufs: u32) -> Option<DpdkOptions> {
    let interface = config.interface.as_ref().filter(|_| config.sub_interface.is_none())?;
    let mac = (!interface.own_mac).then_some(config.mac);
    Some(DpdkOptions { device: interface.device.clone()?, mac, mtu: config.mtu, mbufs })
}

/// Opens a port of a router as its configuration says, with `queues` receiving halves where that says nothing of them;
/// `offload` is for flows that the kernel may forward. `carries_vlans` says that other ports are its sub-interfaces.
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
    let failed = |source| OpenError::Port { port: config.name.clone(), source };
    let mac = (!interface.own_mac).then_some(config.mac);
    let queues = interface.queues.map_or(queues, usize::from);
    match interface.driver {
        Driver::Tap => open_tap(interface, config),
        Driver::Dpdk => open_dpdk(config, router.dpdk.mbufs),
        Driver::AfPacket => open_packet(interface, queues, mac).map(OpenedPort::of),
        Driver::AfXdp => open_xdp(interface, queues, mac, offload).map(OpenedPort::of),
        Driver::Auto if carries_vlans => open_for_vlans(interface, queues, mac).map(OpenedPort::of),
        Driver::Auto => open_xdp(interface, queues, mac, offload)
            .or_else(|why| open_instead(interface, queues, mac, &why))
            .map(OpenedPort::of),
    }
    .map_err(failed)
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
    let interface = config.interface.clone()?;
    let driver = interface.driver;
    if matches!(driver, Driver::Tap | Driver::Dpdk) {
        return None;
    }
    let mac = (!interface.own_mac).then_some(config.mac);
    let queues = interface.queues.map_or(queues, usize::from);
    let facts = PortFacts {
        interface: interface.name.clone(),
        index: 0,
        mac: mac.unwrap_or_default(),
        mtu: config.mtu.into(),
        mode: WAITING.to_owned(),
        why_not_better: None,
    };
    let xdp = move |interface: &InterfaceConfig| xdp::open(&xdp_options(interface, queues, offload.clone()));
    let open = move || match driver {
        Driver::AfXdp if mac.is_some() => Err(no_own_mac(&interface.name)),
        Driver::AfXdp => xdp(&interface),
        Driver::Auto if carries_vlans => open_for_vlans(&interface, queues, mac),
        Driver::Auto if mac.is_none() => {
            xdp(&interface).or_else(|why| open_instead(&interface, queues, mac, &why))
        }
        _ => open_packet(&interface, queues, mac),
    };
    let (port, later) = reopen::open_later(facts, queues, Box::new(open));
    Some(OpenedPort { later: Some(later), ..OpenedPort::of(port) })
}

/// AF_PACKET, which sees all tags.
fn open_for_vlans(
    interface: &InterfaceConfig,
    queues: usize,
    mac: Option<MacAddr>,
) -> Result<Port, LiveError> {
    let mut port = open_packet(interface, queues, mac)?;
    port.facts.why_not_better.get_or_insert(TAGS_ARE_TAKEN_OFF.to_owned());
    Ok(port)
}

/// AF_PACKET, where AF_XDP does not work.
fn open_instead(
    interface: &InterfaceConfig,
    queues: usize,
    mac: Option<MacAddr>,
    why: &LiveError,
) -> Result<Port, LiveError> {
    let mut port = open_packet(interface, queues, mac)?;
    port.facts.why_not_better.get_or_insert(format!("AF_XDP does not work: {why}"));
    Ok(port)
}

/// A tag that XDP does not see makes a frame one of the parent's: that has to be ruled out by who asks for it.
pub(crate) const TAGS_ARE_TAKEN_OFF: &str = "AF_XDP does not see VLAN tags that hardware, or a veth's sender, keeps beside the \
     frame; where they are in it (ethtool -K .. rxvlan off, of a veth's other end txvlan off), ask for driver af_xdp";

fn open_xdp(
    interface: &InterfaceConfig,
    queues: usize,
    mac: Option<MacAddr>,
    offload: Option<Arc<Offload>>,
) -> Result<Port, LiveError> {
    if mac.is_some() {
        return Err(no_own_mac(&interface.name));
    }
    let options = xdp_options(interface, queues, offload);
    reopen::open_again(Box::new(move || xdp::open(&options)))
}

fn xdp_options(interface: &InterfaceConfig, queues: usize, offload: Option<Arc<Offload>>) -> XdpOptions {
    XdpOptions { offload, modes: modes(interface), halves: queues, ..XdpOptions::new(&interface.name) }
}

/// The modes of AF_XDP that the configuration allows, best first.
pub(crate) fn modes(interface: &InterfaceConfig) -> Vec<XdpMode> {
    let is_allowed = |mode: &XdpMode| {
        let place = if *mode == XdpMode::GenericCopy { XdpPlace::Generic } else { XdpPlace::Native };
        interface.xdp_mode.is_none_or(|wanted| wanted == place)
    };
    XdpMode::ALL.into_iter().filter(is_allowed).collect()
}

/// AF_XDP for a port with another MAC address than its interface's.
pub(crate) fn no_own_mac(interface: &str) -> LiveError {
    let why = "AF_XDP takes what the interface takes: leave `mac` out, or use driver af_packet".to_owned();
    LiveError::BadOption { interface: interface.to_owned(), why }
}

fn open_packet(interface: &InterfaceConfig, queues: usize, mac: Option<MacAddr>) -> Result<Port, LiveError> {
    packet::open(&PacketOptions { mac, queues, ..PacketOptions::new(&interface.name) })
}

fn open_tap(interface: &InterfaceConfig, config: &PortConfig) -> Result<OpenedPort, LiveError> {
    let options = TapOptions { mtu: config.mtu.into(), ..TapOptions::new(&interface.name) };
    let (port, control) = tap::open(&options)?;
    Ok(OpenedPort { tap: Some(control), ..OpenedPort::of(port) })
}

fn open_dpdk(config: &PortConfig, mbufs: u32) -> Result<OpenedPort, LiveError> {
    let options = dpdk_options(config, mbufs).unwrap_or_else(|| DpdkOptions::new(&config.name));
    let (port, link) = dpdk::open(&options)?;
    for line in dpdk::said().lines() {
        tracing::info!(port = config.name, "DPDK: {line}");
    }
    Ok(OpenedPort { link: Some(link), ..OpenedPort::of(port) })
}

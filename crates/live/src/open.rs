//! Opening ports: which driver, and what if it does not work.

use std::fmt;

use thalweg_node::config::{Driver, InterfaceConfig, PortConfig};
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::tap::{self, TapControl, TapOptions};
use thalweg_ports::live::xdp::offload::OffloadOptions;
use thalweg_ports::live::xdp::{self, XdpOptions};
use thalweg_ports::live::{LiveError, Port};

/// Why a router cannot run on its interfaces.
#[derive(Debug)]
pub enum OpenError {
    /// A port has no interface.
    NoInterface {
        /// Its name.
        port: String,
    },
    /// A port is a VLAN on another's wire.
    SubInterface {
        /// Its name.
        port: String,
    },
    /// A port cannot be opened.
    Port {
        /// Its name.
        port: String,
        /// Why not.
        source: LiveError,
    },
    /// The configuration cannot be built.
    Build(thalweg_node::BuildError),
    /// A thread or a pair of sockets cannot be had.
    System(std::io::Error),
    /// The kernel's news of interfaces cannot be had.
    Kernel(thalweg_ports::kernel::KernelError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface { port } => {
                write!(f, "port {port} has no interface: add `interface = \"eth0\"` to [ports.{port}]")
            }
            Self::SubInterface { port } => write!(
                f,
                "port {port} is a VLAN sub-interface, which `thalweg run` does not serve yet (`thalweg replay` does)"
            ),
            Self::Port { port, source } => write!(f, "port {port}: {source}"),
            Self::Build(error) => write!(f, "{error}"),
            Self::System(error) => write!(f, "the system has no more of something: {error}"),
            Self::Kernel(error) => write!(f, "hearing of interfaces: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// A port and, if it is a TAP, what changes its interface.
pub struct OpenedPort {
    /// The port.
    pub port: Port,
    /// Of a TAP.
    pub tap: Option<TapControl>,
}

/// Flows of a port that the kernel forwards at most: some 12 MB of its memory.
const OFFLOADED_FLOWS: u32 = 1 << 16;

/// Opens a port, one of `ports`, as its configuration says.
pub fn open_port(config: &PortConfig, ports: u32) -> Result<OpenedPort, OpenError> {
    if config.sub_interface.is_some() {
        return Err(OpenError::SubInterface { port: config.name.clone() });
    }
    let Some(interface) = &config.interface else {
        return Err(OpenError::NoInterface { port: config.name.clone() });
    };
    let failed = |source| OpenError::Port { port: config.name.clone(), source };
    let mac = (!interface.own_mac).then_some(config.mac);
    match interface.driver {
        Driver::Tap => open_tap(interface, config),
        Driver::AfPacket => open_packet(interface, mac),
        Driver::AfXdp => open_xdp(interface, mac, ports),
        Driver::Auto => open_xdp(interface, mac, ports).or_else(|why| {
            let mut opened = open_packet(interface, mac)?;
            opened.port.facts.why_not_better.get_or_insert(format!("AF_XDP does not work: {why}"));
            Ok(opened)
        }),
    }
    .map_err(failed)
}

fn open_xdp(interface: &InterfaceConfig, mac: Option<[u8; 6]>, ports: u32) -> Result<OpenedPort, LiveError> {
    if mac.is_some() {
        let why =
            "AF_XDP takes what the interface takes: leave `mac` out, or use driver af_packet".to_owned();
        return Err(LiveError::BadOption { interface: interface.name.clone(), why });
    }
    let offload = interface.offload.then_some(OffloadOptions { flows: OFFLOADED_FLOWS, ports });
    let options = XdpOptions { offload, ..XdpOptions::new(&interface.name) };
    Ok(OpenedPort { port: xdp::open(&options)?, tap: None })
}

fn open_packet(interface: &InterfaceConfig, mac: Option<[u8; 6]>) -> Result<OpenedPort, LiveError> {
    let options = PacketOptions { mac, ..PacketOptions::new(&interface.name) };
    Ok(OpenedPort { port: packet::open(&options)?, tap: None })
}

fn open_tap(interface: &InterfaceConfig, config: &PortConfig) -> Result<OpenedPort, LiveError> {
    let options = TapOptions { mtu: config.mtu.into(), ..TapOptions::new(&interface.name) };
    let (port, control) = tap::open(&options)?;
    Ok(OpenedPort { port, tap: Some(control) })
}

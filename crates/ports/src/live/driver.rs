//! The interface of all drivers. A new driver is a module that implements [`Driver`], a row in [`super::DRIVERS`],
//! and a name in the configuration.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_wire::MacAddr;

use super::link::ReadLink;
use super::xdp::XdpMode;
use super::xdp::offload::Offload;
use super::{LiveError, Port, VirtualMacs};

/// The wanted settings of a port, of which each driver uses its own.
#[derive(Clone)]
pub struct Request {
    /// The name of the interface in the system, or of the device in DPDK.
    pub interface: String,
    /// A DPDK device with its driver's arguments.
    pub device: Option<String>,
    /// The port's own address; `None` takes the interface's.
    pub mac: Option<MacAddr>,
    /// The addresses of virtual routers, if the port may have some: it then listens to all frames.
    pub virtual_macs: Option<Arc<VirtualMacs>>,
    /// The largest IP packet in bytes.
    pub mtu: u16,
    /// Number of receiving halves.
    pub queues: usize,
    /// Allowed modes of AF_XDP, best first.
    pub modes: Vec<XdpMode>,
    /// The flows that the kernel may forward.
    pub offload: Option<Arc<Offload>>,
    /// DPDK's frame buffers for each direction.
    pub mbufs: u32,
    /// What the driver `capture` plays.
    pub playback: Option<Playback>,
}

/// A capture that stands for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Playback {
    pub path: PathBuf,
    /// Frames of all its interfaces in a second.
    pub rate: u32,
}

/// A value that only has to be kept alive.
pub type Held = Box<dyn Any + Send + Sync>;

/// An open port, with what else belongs to it.
pub struct Opened {
    pub port: Port,
    /// The reader of its link, if the system does not report it.
    pub link: Option<Box<dyn ReadLink>>,
    /// Must live as long as the port.
    pub held: Option<Held>,
}

impl From<Port> for Opened {
    fn from(port: Port) -> Self {
        Self { port, link: None, held: None }
    }
}

/// How a port would be driven on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// The driver and its mode.
    pub mode: String,
    /// Why the mode is not a better one.
    pub why_not_better: Option<String>,
    /// Possible surprises, each with a remedy.
    pub findings: Vec<String>,
}

/// A way to drive interfaces.
pub trait Driver: Sync {
    /// Opens a port, which recovers by itself when its interface disappears and comes back.
    fn open(&self, request: &Request) -> Result<Opened, LiveError>;

    /// Opens a port that the caller opens again when its interface has come back.
    fn open_once(&self, request: &Request) -> Result<Port, LiveError> {
        self.open(request).map(|opened| opened.port)
    }

    /// Tries to open the port as [`open`](Self::open) would, and closes it again. Meanwhile frames still reach the
    /// system.
    fn probe(&self, request: &Request) -> Result<Probed, LiveError>;
}

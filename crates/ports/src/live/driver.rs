//! The interface of all drivers. A new driver is a module that offers [`Driver`], a row of [`super::DRIVERS`], and its
//! name in the configuration.

use std::any::Any;
use std::sync::Arc;

use thalweg_wire::MacAddr;

use super::link::ReadLink;
use super::xdp::XdpMode;
use super::xdp::offload::Offload;
use super::{LiveError, Port};

/// How a port is wanted. A driver takes what concerns it.
#[derive(Clone)]
pub struct Request {
    /// The interface's name in the system; of a device of DPDK's its name there.
    pub interface: String,
    /// A device of DPDK's with what its driver is told.
    pub device: Option<String>,
    /// The port's own address; `None` takes the interface's.
    pub mac: Option<MacAddr>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Receiving halves.
    pub queues: usize,
    /// Modes of AF_XDP that may be used, best first.
    pub modes: Vec<XdpMode>,
    /// Flows that the kernel may forward.
    pub offload: Option<Arc<Offload>>,
    /// Frames that DPDK has memory for, each way.
    pub mbufs: u32,
}

/// What is kept and never asked.
pub type Held = Box<dyn Any + Send + Sync>;

/// A port, and what else its driver gives.
pub struct Opened {
    pub port: Port,
    /// What tells of its link, where the system does not.
    pub link: Option<Box<dyn ReadLink>>,
    /// What has to last as long as the port does.
    pub held: Option<Held>,
}

impl From<Port> for Opened {
    fn from(port: Port) -> Self {
        Self { port, link: None, held: None }
    }
}

/// What a port would come to here and now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// The driver, and how it would work.
    pub mode: String,
    /// Why it is not a better mode.
    pub why_not_better: Option<String>,
    /// What will surprise, and what to do about it.
    pub findings: Vec<String>,
}

/// A way of driving interfaces.
pub trait Driver: Sync {
    /// Opens a port, which comes back with its interface.
    fn open(&self, request: &Request) -> Result<Opened, LiveError>;

    /// Opens a port that somebody else opens again when its interface has come back.
    fn open_once(&self, request: &Request) -> Result<Port, LiveError> {
        self.open(request).map(|opened| opened.port)
    }

    /// Tries it as [`open`](Self::open) would, and lets go of it again. Frames go on to the system meanwhile.
    fn probe(&self, request: &Request) -> Result<Probed, LiveError>;
}

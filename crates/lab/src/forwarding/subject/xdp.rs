//! `xdp-forward` of the xdp-tools: the kernel's routes, looked up before a packet has become a socket buffer.
//!
//! It needs a version that has the program (1.5; Debian 12 has 1.3) and interfaces whose peers take frames sent by
//! XDP. Where it does not load or does not forward, it is left out with what it said.

use super::{Label, Subject, Task, has_program, linux};
use crate::forwarding::ForwardingError;
use crate::forwarding::topology::{ROUTER_PORTS, Topology};

/// `xdp-forward`.
#[derive(Debug)]
pub struct XdpForward(Label);

impl Default for XdpForward {
    fn default() -> Self {
        Self(Label::new("xdp-forward", "xdp", ""))
    }
}

impl Subject for XdpForward {
    fn label(&self) -> &Label {
        &self.0
    }

    fn refuses(&self, task: &Task<'_>) -> Option<String> {
        if !has_program("xdp-forward") {
            return Some("xdp-forward is not here (xdp-tools 1.5)".to_owned());
        }
        task.nat.then(|| "xdp-forward does not translate".to_owned())
    }

    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError> {
        linux::forward(topology, task.table)?;
        let [a, b] = ROUTER_PORTS;
        topology.router.exec(&["xdp-forward", "load", a, b]).map(drop)
    }

    fn said(&self) -> String {
        "the program was loaded, but frames do not come through".to_owned()
    }
}

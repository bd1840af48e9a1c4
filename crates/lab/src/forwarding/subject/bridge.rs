//! The kernel's bridge: the switch that the article on execution models (seed document 004) measures beside its routers.
//!
//! It forwards frames unchanged, so test frames to a router's address do not pass, and only applications are measured.
//! Each tester sends to the other's MAC address where it would send to the gateway's.

use super::{Label, Subject, Task};
use crate::forwarding::ForwardingError;
use crate::forwarding::topology::{
    ROUTER_ADDRESSES, ROUTER_PORTS, TESTER_MACS, TESTER_PORTS, Topology, neighbor,
};

/// A subject that switches frames instead of routing them.
#[derive(Debug)]
pub struct Bridge(Label);

impl Default for Bridge {
    fn default() -> Self {
        Self(Label::new("bridge", "kernel", ""))
    }
}

impl Subject for Bridge {
    fn label(&self) -> &Label {
        &self.0
    }

    fn is_switch(&self) -> bool {
        true
    }

    fn refuses(&self, task: &Task<'_>) -> Option<String> {
        task.nat.then(|| "a bridge does not translate".to_owned())
    }

    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError> {
        let switch = &topology.router;
        switch.ip(&format!("link add sw mtu {} type bridge forward_delay 0 stp_state 0", task.mtu))?;
        for port in ROUTER_PORTS {
            switch.ip(&format!("link set {port} master sw"))?;
        }
        switch.ip("link set sw up")?;
        let testers = [&topology.tester_a, &topology.tester_b];
        (0..2)
            .try_for_each(|i| neighbor(testers[i], ROUTER_ADDRESSES[i], TESTER_MACS[1 - i], TESTER_PORTS[i]))
    }
}

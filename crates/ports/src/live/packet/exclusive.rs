//! Keeps an interface's packets from the host's own stack.
//!
//! Packet sockets see a packet before the traffic control hook at the interface's ingress (tcx, Linux 6.6) does. A
//! program at that hook drops everything. It lives as long as a descriptor of this process, so nothing has to be
//! cleaned up.

use std::io;

use crate::live::xdp::{Link, drop_at_ingress};

/// While this value lives, no packet that arrives gets past the packet sockets.
#[derive(Debug)]
pub(in crate::live) struct Exclusive {
    _link: Link,
}

impl Exclusive {
    /// Attaches to the interface with this number. Needs `CAP_NET_ADMIN` and `CAP_BPF`, and a kernel with tcx.
    pub(in crate::live) fn attach(index: u32) -> io::Result<Self> {
        Ok(Self { _link: drop_at_ingress(index)? })
    }
}

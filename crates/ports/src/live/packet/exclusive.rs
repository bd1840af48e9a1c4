//! Keeps an interface's packets from the host's own stack.
//!
//! Packet sockets see a packet before the traffic control hook at the interface's ingress (tcx, Linux 6.6) does. A
//! program at that hook drops everything, except packets of flows that the kernel forwards
//! ([`crate::live::xdp::offload`]). It lives as long as a descriptor of this process, so nothing has to be cleaned up.

use std::io;
use std::os::fd::BorrowedFd;

use crate::live::xdp::offload::Offload;
use crate::live::xdp::{Filter, Link, at_ingress};

/// While this value lives, no packet that arrives gets past the packet sockets, unless the router has decided so.
#[derive(Debug)]
pub(in crate::live) struct Exclusive {
    _link: Link,
    filter: Option<Filter>,
}

impl Exclusive {
    /// Attaches to the interface with this number. Needs `CAP_NET_ADMIN` and `CAP_BPF`, and a kernel with tcx.
    pub(in crate::live) fn attach(index: u32, offload: Option<&Offload>) -> io::Result<Self> {
        let maps = offload.map(|offload| offload.maps(false, false));
        let filter = maps.as_ref().map(Filter::load).transpose()?;
        Ok(Self { _link: at_ingress(index, maps.as_ref())?, filter })
    }

    /// Has the socket leave the kernel's flows to the program. Each socket of the interface must.
    pub(in crate::live) fn guard(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.filter.as_ref().map_or(Ok(()), |filter| filter.attach(socket))
    }

    pub(in crate::live) fn forwards(&self) -> bool {
        self.filter.is_some()
    }
}

//! Monitors changes of the kernel's tables.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::error::KernelError;
use super::message::Message;
use super::route::{self, FoundRoute};
use super::socket::Netlink;
use super::view::{self, InterfaceAddress, Link, Neighbor};

/// The kinds of changes to monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    pub links: bool,
    pub addresses: bool,
    pub neighbors: bool,
    /// Including our own.
    pub routes: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// A new or changed interface.
    Link(Link),
    /// An interface was removed.
    LinkGone(u32),
    /// We have a new address.
    Address(InterfaceAddress),
    /// We no longer have an address.
    AddressGone(InterfaceAddress),
    /// A new or changed neighbor.
    Neighbor(Neighbor),
    /// A neighbor was removed.
    NeighborGone(Neighbor),
    /// A new or changed route.
    Route(FoundRoute),
    /// A route was removed.
    RouteGone(FoundRoute),
    /// Events were lost: read everything again.
    Overrun,
}

/// Receives changes. [`Monitor::poll_event`] never blocks; use [`Monitor::wait`], or register it with a
/// poller for reading.
#[derive(Debug)]
pub struct Monitor {
    netlink: Netlink,
    /// Events of the datagram read last, which has one message or few.
    pending: VecDeque<KernelEvent>,
    /// For [`Self::wait`], made on first use.
    poll: Option<Poll>,
}

impl Monitor {
    /// Subscribes to changes.
    pub fn open(watch: Watch) -> Result<Self, KernelError> {
        let netlink = Netlink::open()?;
        netlink.set_nonblocking()?;
        let groups = [
            (watch.links, libc::RTNLGRP_LINK),
            (watch.addresses, libc::RTNLGRP_IPV4_IFADDR),
            (watch.addresses, libc::RTNLGRP_IPV6_IFADDR),
            (watch.neighbors, libc::RTNLGRP_NEIGH),
            (watch.routes, libc::RTNLGRP_IPV4_ROUTE),
            (watch.routes, libc::RTNLGRP_IPV6_ROUTE),
        ];
        for (wanted, group) in groups {
            if wanted {
                netlink.join(group)?;
            }
        }
        Ok(Self { netlink, pending: VecDeque::new(), poll: None })
    }

    /// Waits until there may be an event, or for this long. Call it after taking all pending events.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let poll = match &mut self.poll {
            Some(poll) => poll,
            none => {
                let poll = Poll::new()?;
                let socket = self.netlink.as_fd().as_raw_fd();
                poll.registry().register(&mut SourceFd(&socket), Token(0), Interest::READABLE)?;
                none.insert(poll)
            }
        };
        match poll.poll(&mut Events::with_capacity(1), Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    /// The next event; `None` if there is none now.
    pub fn poll_event(&mut self) -> Result<Option<KernelEvent>, KernelError> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.netlink.events() {
                Ok(Some(messages)) => self.pending.extend(messages.filter_map(|message| event(&message))),
                Ok(None) => return Ok(None),
                Err(KernelError::Overrun) => return Ok(Some(KernelEvent::Overrun)),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

fn event(message: &Message<'_>) -> Option<KernelEvent> {
    Some(match message.kind {
        libc::RTM_NEWLINK => KernelEvent::Link(view::link(message)?),
        libc::RTM_DELLINK => KernelEvent::LinkGone(view::link(message)?.index),
        libc::RTM_NEWADDR => KernelEvent::Address(view::interface_address(message)?),
        libc::RTM_DELADDR => KernelEvent::AddressGone(view::interface_address(message)?),
        libc::RTM_NEWNEIGH => KernelEvent::Neighbor(view::neighbor(message)?),
        libc::RTM_DELNEIGH => KernelEvent::NeighborGone(view::neighbor(message)?),
        libc::RTM_NEWROUTE => KernelEvent::Route(route::parse(message)?),
        libc::RTM_DELROUTE => KernelEvent::RouteGone(route::parse(message)?),
        _ => return None,
    })
}

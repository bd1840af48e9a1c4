//! The programs of a packet socket's port: at the interface's ingress, and in front of the socket.

use std::io;
use std::os::fd::BorrowedFd;

use super::bpf::{FILTER, INGRESS, Link, Program};
use super::offload::{self, OffloadMaps};
use crate::socket_option;

/// Attaches a program to the ingress of an interface, behind its packet sockets (tcx), that stays as long as the link.
/// It drops every packet, except those of the flows in `maps` that the sockets' filter leaves to it.
pub(in crate::live) fn at_ingress(interface: u32, maps: Option<&OffloadMaps>) -> io::Result<Link> {
    Program::load(INGRESS, &offload::ingress(maps), false)?.link(interface, INGRESS, 0)
}

/// The filter of packet sockets in front of that program.
#[derive(Debug)]
pub(in crate::live) struct Filter(Program);

impl Filter {
    pub(in crate::live) fn load(maps: &OffloadMaps) -> io::Result<Self> {
        Program::load(FILTER, &offload::filter(maps), false).map(Self)
    }

    pub(in crate::live) fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        socket_option::set_int(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, self.0.descriptor())
    }
}

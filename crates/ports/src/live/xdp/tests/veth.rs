//! A veth between `v0`, which the driver gets, and `v1`, where the test sends and receives by a raw packet socket.
//!
//! Unsafe because no crate in use binds such a socket safely.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::super::interface::Interface;
use crate::namespace::ip;

/// All frames, as the argument of a packet socket: in network order.
const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();

/// The far end of the veth.
pub(super) struct FarEnd(Socket);

/// Makes the veth; `queues` are arguments of `ip link add` about the queues of both ends.
pub(super) fn veth(mtu: u32, queues: &str) -> FarEnd {
    ip(&format!("link add v0 {queues} type veth peer name v1 {queues}"));
    for end in ["v0", "v1"] {
        // No packets of the kernel's own.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
        ip(&format!("link set {end} mtu {mtu} up"));
    }
    FarEnd::of("v1")
}

impl FarEnd {
    pub(super) fn of(interface: &str) -> Self {
        let index = Interface::find(interface).unwrap().index;
        let socket =
            Socket::new(Domain::from(libc::AF_PACKET), Type::RAW, Some(Protocol::from(i32::from(ALL))))
                .unwrap();
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: the storage is large enough for any address, and zeros are a valid one.
        let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL;
        address.sll_ifindex = index as i32;
        // SAFETY: the storage holds an address of this length.
        let address = unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) };
        socket.bind(&address).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Self(socket)
    }

    pub(super) fn send(&self, frame: &[u8]) {
        assert_eq!(self.0.send(frame).unwrap(), frame.len());
    }

    pub(super) fn try_send(&self, frame: &[u8]) -> io::Result<usize> {
        self.0.send(frame)
    }

    /// The next frame for which `wanted` holds.
    pub(super) fn receive(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut buffer = vec![0; 70_000];
        loop {
            let length = match io::Read::read(&mut &self.0, &mut buffer) {
                // Reported once, after the interface was down.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => continue,
                result => result.expect("a frame within five seconds"),
            };
            if wanted(&buffer[..length]) {
                return buffer[..length].to_vec();
            }
        }
    }
}

/// Waits until the descriptor is readable, five seconds at most. Returns whether it is.
pub(super) fn is_readable(descriptor: RawFd) -> bool {
    poll(descriptor, 5000)
}

/// Whether the descriptor becomes readable within `timeout_ms`.
pub(super) fn poll(descriptor: RawFd, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    unsafe { libc::poll(&mut poll, 1, timeout_ms) == 1 }
}

//! What an interface is, by `ioctl`: its number, address, MTU, state, queues and driver.
//!
//! Asked again while a port runs (after a frame was refused, and with the counters), so it is cheap: one descriptor
//! is kept, and a question is one system call. Names can change; after it was found, an interface is its number.
//!
//! Unsafe because `ioctl` takes a pointer to whatever the request says. No measurement pays for it: netlink would
//! answer most of this without, but not by one call, and not the number of queues.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

// linux/ethtool.h
const GET_DRIVER: u32 = 0x03;
const GET_GRO: u32 = 0x2b;
const SET_GRO: u32 = 0x2c;
const GET_CHANNELS: u32 = 0x3c;

/// Drivers of interfaces on which local senders leave checksums unfinished, because no wire follows.
const WITHOUT_A_WIRE: [&str; 5] = ["veth", "tun", "virtio_net", "vif", "hv_netvsc"];

/// An interface of the namespace in which this was made.
#[derive(Debug)]
pub(super) struct Interface {
    socket: Socket,
    pub(super) index: u32,
}

/// Whether frames can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Switched off, or without a carrier.
    Down,
    Gone,
}

/// `struct ifreq`: a name, and what the request is about.
#[repr(C, align(8))]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: [u8; size_of::<libc::ifreq>() - libc::IFNAMSIZ],
}

impl Request {
    fn word(&self) -> u32 {
        u32::from_ne_bytes([self.data[0], self.data[1], self.data[2], self.data[3]])
    }
}

impl Interface {
    pub(super) fn find(name: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let mut request = Request { name: [0; _], data: [0; _] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        ask(&socket, libc::SIOCGIFINDEX, &mut request)?;
        Ok(Self { socket, index: request.word() })
    }

    /// A request by the name it has now.
    fn request(&self) -> io::Result<Request> {
        let mut request = Request { name: [0; _], data: [0; _] };
        request.data[..4].copy_from_slice(&self.index.to_ne_bytes());
        ask(&self.socket, libc::SIOCGIFNAME, &mut request)?;
        request.data = [0; _];
        Ok(request)
    }

    pub(super) fn mac(&self) -> io::Result<[u8; 6]> {
        let mut request = self.request()?;
        ask(&self.socket, libc::SIOCGIFHWADDR, &mut request)?;
        // struct sockaddr: family, then the address.
        if u16::from_ne_bytes([request.data[0], request.data[1]]) != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not an Ethernet interface"));
        }
        Ok(std::array::from_fn(|i| request.data[2 + i]))
    }

    pub(super) fn mtu(&self) -> io::Result<u32> {
        let mut request = self.request()?;
        ask(&self.socket, libc::SIOCGIFMTU, &mut request)?;
        Ok(request.word())
    }

    /// Whether frames can leave now.
    pub(super) fn state(&self) -> State {
        let flags = self.request().and_then(|mut request| {
            ask(&self.socket, libc::SIOCGIFFLAGS, &mut request)?;
            Ok(i32::from(u16::from_ne_bytes([request.data[0], request.data[1]])))
        });
        let up = libc::IFF_UP | libc::IFF_RUNNING;
        match flags {
            Ok(flags) if flags & up == up => State::Up,
            Ok(_) => State::Down,
            Err(_) => State::Gone,
        }
    }

    /// Receive and transmit queues in use; one each where the driver does not say.
    pub(super) fn queues(&self) -> (u32, u32) {
        // struct ethtool_channels: command, four maxima, then receive, transmit, other, combined.
        let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        match self.ethtool(&mut channels) {
            Ok(()) => ((channels[5] + channels[8]).max(1), (channels[6] + channels[8]).max(1)),
            Err(_) => (1, 1),
        }
    }

    /// Whether frames may arrive whose transport checksum is unfinished.
    pub(super) fn has_unfinished_checksums(&self) -> bool {
        // struct ethtool_drvinfo: command, driver 32, version 32 and so on: 196 octets.
        let mut info = [0; 49];
        info[0] = GET_DRIVER;
        if self.ethtool(&mut info).is_err() {
            return true;
        }
        let octets: Vec<u8> = info[1..9].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let driver = octets.split(|&octet| octet == 0).next().unwrap_or(&[]);
        WITHOUT_A_WIRE.iter().any(|name| name.as_bytes() == driver)
    }

    /// Switches the merging of received segments; whether it was on.
    pub(super) fn set_gro(&self, on: bool) -> io::Result<bool> {
        // struct ethtool_value: command, value.
        let mut value = [GET_GRO, 0];
        self.ethtool(&mut value)?;
        let before = value[1] != 0;
        if before != on {
            self.ethtool(&mut [SET_GRO, u32::from(on)])?;
        }
        Ok(before)
    }

    /// One of ethtool's commands; `structure` is the whole of the command's structure.
    fn ethtool<const WORDS: usize>(&self, structure: &mut [u32; WORDS]) -> io::Result<()> {
        let mut request = self.request()?;
        let pointer = structure.as_mut_ptr().expose_provenance().to_ne_bytes();
        request.data[..pointer.len()].copy_from_slice(&pointer);
        ask(&self.socket, libc::SIOCETHTOOL, &mut request)
    }
}

fn ask(socket: &Socket, question: libc::Ioctl, request: &mut Request) -> io::Result<()> {
    // SAFETY: every question asked in this file reads and writes an `ifreq`, whose layout and size `Request` has. The
    // one that holds a pointer, `SIOCETHTOOL`, comes from `ethtool`, whose callers pass the whole of the structure
    // that the kernel reads and writes for the command in its first word.
    match unsafe { libc::ioctl(socket.as_raw_fd(), question, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

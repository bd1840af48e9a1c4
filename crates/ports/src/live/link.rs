//! Interfaces: reads and changes their number, address, MTU and state.
//!
//! It uses `ioctl`, which answers for one name without a dump of all interfaces, in the network namespace of the
//! thread that opened the [`Links`].

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Socket, Type};

use super::system::{self, InterfaceCall, InterfaceRequest, NAME_BYTES};
use super::{LiveError, bare};
use thalweg_wire::MacAddr;

/// The present properties of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    pub index: u32,
    pub mac: MacAddr,
    /// The largest IP packet that it takes, in bytes.
    pub mtu: u32,
    /// It is administratively up.
    pub is_up: bool,
    /// It is up and has a carrier: the cable is plugged in.
    pub has_carrier: bool,
    /// The MAC address to which all frames go, if the interface has no link layer; it and `mac` are then made up.
    pub far_end: Option<MacAddr>,
}

/// What an interface says of its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSpeed {
    pub bits_per_s: Option<u64>,
    pub is_full_duplex: Option<bool>,
}

/// Reads the link of a port that is not, or not only, an interface of the kernel.
pub trait ReadLink: Send {
    /// The present state of the link.
    fn read(&mut self) -> Result<LinkFacts, LiveError>;
}

/// Queries interfaces and changes them.
#[derive(Debug)]
pub struct Links {
    socket: Socket,
}

/// `ETHTOOL_GSET` of linux/ethtool.h.
const GET_LINK: u32 = 1;

/// Hardware types that carry Ethernet frames: Ethernet, and loopback, which imitates it.
const ETHERNET_TYPES: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];

impl Links {
    /// Opens a socket in this thread's network namespace. Needs no rights; changing an interface needs
    /// `CAP_NET_ADMIN`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(Domain::UNIX, Type::DGRAM, None)? })
    }

    /// Reads all properties of an interface.
    pub fn read(&self, interface: &str) -> Result<LinkFacts, LiveError> {
        let index = self.index(interface)?;
        let flags = self.flags(interface)?;
        let hardware = self.ask(interface, InterfaceCall::Mac, |_| {})?.value;
        let [kind_low, kind_high, m0, m1, m2, m3, m4, m5, ..] = hardware;
        let kind = u16::from_ne_bytes([kind_low, kind_high]);
        let is_bare = bare::is_bare(kind);
        if !is_bare && !ETHERNET_TYPES.contains(&kind) {
            return Err(LiveError::NoPackets { interface: interface.to_owned(), hardware: kind });
        }
        let mac = MacAddr([m0, m1, m2, m3, m4, m5]);
        let has = |flag: i32| flags & flag as u16 != 0;
        Ok(LinkFacts {
            index,
            mac: if is_bare { bare::own_mac(index) } else { mac },
            mtu: self.mtu(interface)?,
            is_up: has(libc::IFF_UP),
            has_carrier: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
            far_end: is_bare.then_some(bare::FAR_END),
        })
    }

    /// The name of the interface with this number.
    pub(super) fn name(&self, index: u32) -> Result<String, LiveError> {
        let mut request = InterfaceRequest { name: [0; NAME_BYTES], value: [0; _] };
        request.set_number(index);
        let call = InterfaceCall::Name;
        system::interface_call(self.socket.as_fd(), call, &mut request)
            .map_err(LiveError::call(&format!("interface {index}"), call.name()))?;
        let name = request.name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// An interface's number.
    pub fn index(&self, interface: &str) -> Result<u32, LiveError> {
        Ok(self.ask(interface, InterfaceCall::Index, |_| {})?.number())
    }

    /// An interface's MTU in bytes.
    pub fn mtu(&self, interface: &str) -> Result<u32, LiveError> {
        Ok(self.ask(interface, InterfaceCall::Mtu, |_| {})?.number())
    }

    /// Whether an interface is administratively up.
    pub fn is_up(&self, interface: &str) -> Result<bool, LiveError> {
        Ok(self.flags(interface)? & libc::IFF_UP as u16 != 0)
    }

    /// The speed of an interface's link. Nothing is known of it without a carrier, or if the driver does not tell.
    pub fn speed(&self, interface: &str) -> LinkSpeed {
        // struct ethtool_cmd: command, two masks, speed 2 bytes, duplex 1, port 1, 12 bytes, the speed's upper half 2
        // bytes, and so on: 44 bytes.
        let mut settings = [GET_LINK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        if self.ethtool(interface, &mut settings).is_err() {
            return LinkSpeed::default();
        }
        let [a, b, duplex, _] = settings[3].to_ne_bytes();
        let [c, d, ..] = settings[7].to_ne_bytes();
        let halves = [[a, b], [c, d]].map(u16::from_ne_bytes).map(u32::from);
        let mbit_per_s = halves[1] << 16 | halves[0];
        let is_known = !matches!(mbit_per_s, 0 | u32::MAX);
        LinkSpeed {
            bits_per_s: is_known.then(|| u64::from(mbit_per_s) * 1_000_000),
            is_full_duplex: matches!(duplex, 0 | 1).then_some(duplex == 1),
        }
    }

    /// Makes an `ethtool` call; `structure` is the whole structure of the command in its first word.
    pub(super) fn ethtool<const WORDS: usize>(
        &self,
        interface: &str,
        structure: &mut [u32; WORDS],
    ) -> io::Result<()> {
        let request = InterfaceRequest::named(interface).map_err(io::Error::other)?;
        system::ethtool(self.socket.as_fd(), request, structure)
    }

    /// Changes an interface's MTU.
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), LiveError> {
        self.ask(interface, InterfaceCall::SetMtu, |request| request.set_number(mtu)).map(|_| ())
    }

    /// Changes an interface's address. Some interfaces refuse that while they are up.
    pub fn set_mac(&self, interface: &str, mac: MacAddr) -> Result<(), LiveError> {
        let set = |request: &mut InterfaceRequest| {
            request.value[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
            request.value[2..8].copy_from_slice(&mac.0);
        };
        self.ask(interface, InterfaceCall::SetMac, set).map(|_| ())
    }

    /// Sets an interface administratively up or down.
    pub fn set_up(&self, interface: &str, up: bool) -> Result<(), LiveError> {
        self.set_flag(interface, libc::IFF_UP, up)
    }

    /// Sets whether the host asks for MAC addresses on an interface; if not, it sends all frames to the interface's
    /// own.
    pub fn set_asks(&self, interface: &str, asks: bool) -> Result<(), LiveError> {
        self.set_flag(interface, libc::IFF_NOARP, !asks)
    }

    fn set_flag(&self, interface: &str, flag: i32, on: bool) -> Result<(), LiveError> {
        let (flags, flag) = (self.flags(interface)?, flag as u16);
        let wanted = if on { flags | flag } else { flags & !flag };
        if wanted == flags {
            return Ok(());
        }
        let set = |request: &mut InterfaceRequest| request.value[..2].copy_from_slice(&wanted.to_ne_bytes());
        self.ask(interface, InterfaceCall::SetFlags, set).map(|_| ())
    }

    fn flags(&self, interface: &str) -> Result<u16, LiveError> {
        let answer = self.ask(interface, InterfaceCall::Flags, |_| {})?;
        Ok(u16::from_ne_bytes([answer.value[0], answer.value[1]]))
    }

    fn ask(
        &self,
        interface: &str,
        call: InterfaceCall,
        fill: impl FnOnce(&mut InterfaceRequest),
    ) -> Result<InterfaceRequest, LiveError> {
        let mut request = InterfaceRequest::named(interface)?;
        fill(&mut request);
        system::interface_call(self.socket.as_fd(), call, &mut request)
            .map_err(LiveError::call(interface, call.name()))?;
        Ok(request)
    }
}

impl InterfaceRequest {
    /// An empty request about an interface.
    pub(super) fn named(interface: &str) -> Result<Self, LiveError> {
        let bytes = interface.as_bytes();
        let bad = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b':' | 0);
        if bytes.is_empty() || bytes.len() >= NAME_BYTES || bytes.iter().any(bad) {
            return Err(LiveError::BadName { interface: interface.to_owned() });
        }
        let mut request = Self { name: [0; NAME_BYTES], value: [0; _] };
        request.name[..bytes.len()].copy_from_slice(bytes);
        Ok(request)
    }

    fn number(&self) -> u32 {
        let [a, b, c, d, ..] = self.value;
        u32::from_ne_bytes([a, b, c, d])
    }

    fn set_number(&mut self, number: u32) {
        self.value[..4].copy_from_slice(&number.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_others_are_not() {
        let links = Links::open().unwrap();
        let facts = links.read("lo").unwrap();
        assert!(facts.index > 0 && facts.mtu >= 1500 && facts.mac == MacAddr::ZERO, "{facts:?}");
        assert_eq!(links.name(facts.index).unwrap(), "lo");
        assert!(matches!(links.name(0), Err(LiveError::NoSuchInterface { .. })));
        assert!(matches!(links.read("nosuch0"), Err(LiveError::NoSuchInterface { .. })));
        for name in ["", "a b", "a/b", "sixteen_letters_", "a\0"] {
            assert!(matches!(links.read(name), Err(LiveError::BadName { .. })), "{name:?}");
        }
    }
}

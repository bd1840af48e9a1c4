//! The sockets of the system's programs: which ports are in use, and by which connections.
//!
//! They come from `NETLINK_SOCK_DIAG` (sock_diag(7)) or, if the kernel lacks that module, from the tables in
//! `/proc/net`. The list covers IPv4, and the IPv4 part of IPv6 sockets: `::` includes every IPv4 address,
//! and `::ffff:192.0.2.1` is one. An IPv6-only socket looks like one for both families and counts as such.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use super::error::KernelError;
use super::socket::Netlink;

pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_SYN_RECV: u8 = 3;
const TCP_TIME_WAIT: u8 = 6;
const TCP_LISTEN: u8 = 10;
const TCP_NEW_SYN_RECV: u8 = 12;

/// All protocols with their tables in `/proc/net`.
const TABLES: [(i32, i32, &str); 4] = [
    (libc::IPPROTO_TCP, libc::AF_INET, "tcp"),
    (libc::IPPROTO_TCP, libc::AF_INET6, "tcp6"),
    (libc::IPPROTO_UDP, libc::AF_INET, "udp"),
    (libc::IPPROTO_UDP, libc::AF_INET6, "udp6"),
];

/// A TCP or UDP socket that receives IPv4 packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SystemSocket {
    /// 6 or 17.
    pub protocol: u8,
    /// `None` for every address of the system.
    pub local: Option<Ipv4Addr>,
    pub port: u16,
    /// `None` if any host may send to it.
    pub remote: Option<SocketAddrV4>,
}

/// Reads the system's sockets.
#[derive(Debug)]
pub struct SystemSockets {
    /// `None` if the kernel does not support the query.
    netlink: Option<Netlink>,
}

impl SystemSockets {
    /// Opens a reader for the network namespace of the calling thread.
    pub fn open() -> Self {
        Self { netlink: Netlink::of(libc::NETLINK_SOCK_DIAG).ok() }
    }

    /// All current sockets.
    ///
    /// # Errors
    ///
    /// Fails if neither the kernel nor `/proc/net` lists them.
    pub fn read(&mut self) -> io::Result<Vec<SystemSocket>> {
        if let Some(netlink) = &mut self.netlink {
            match dump(netlink) {
                Ok(sockets) => return Ok(sockets),
                // The module is missing or may not be loaded.
                Err(KernelError::Refused { .. }) => self.netlink = None,
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        let mut sockets = Vec::new();
        for (protocol, family, name) in TABLES {
            match std::fs::read_to_string(format!("/proc/thread-self/net/{name}")) {
                Ok(table) => sockets.extend(table.lines().filter_map(|line| row(protocol as u8, line))),
                // A kernel without IPv6.
                Err(error) if family == libc::AF_INET6 && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sockets)
    }
}

fn dump(netlink: &mut Netlink) -> Result<Vec<SystemSocket>, KernelError> {
    let mut sockets = Vec::new();
    for (protocol, family, _) in TABLES {
        let mut header = [0u8; 56];
        (header[0], header[1]) = (family as u8, protocol as u8);
        header[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        netlink.list("the system's sockets", SOCK_DIAG_BY_FAMILY, &header, |message| {
            sockets.extend(diagnosed(protocol as u8, message.body));
        })?;
    }
    Ok(sockets)
}

/// A socket from the kernel's `inet_diag_msg`.
fn diagnosed(protocol: u8, body: &[u8]) -> Option<SystemSocket> {
    let (family, state) = (*body.first()?, *body.get(1)?);
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| {
        let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
        Some(if i32::from(family) == libc::AF_INET {
            Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
        } else {
            IpAddr::V6(bytes.into())
        })
    };
    socket(protocol, state, (address(8)?, port(4)?), (address(24)?, port(6)?))
}

/// A socket from a line of a table in `/proc/net`.
pub(super) fn row(protocol: u8, line: &str) -> Option<SystemSocket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (endpoint(words.next()?)?, endpoint(words.next()?)?);
    socket(protocol, u8::from_str_radix(words.next()?, 16).ok()?, local, remote)
}

/// `0100007F:1F90`: words of the address in host byte order.
fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = match address.len() {
        8 => IpAddr::V4(word(0)?.into()),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[4 * at..4 * at + 4].copy_from_slice(&word(8 * at)?);
            }
            IpAddr::V6(bytes.into())
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

/// `None` for a socket that receives no IPv4 packets, or that belongs to another listed socket.
fn socket(
    protocol: u8,
    state: u8,
    (local, port): (IpAddr, u16),
    (remote, remote_port): (IpAddr, u16),
) -> Option<SystemSocket> {
    let is_tcp = i32::from(protocol) == libc::IPPROTO_TCP;
    let is_over = is_tcp && [TCP_SYN_RECV, TCP_TIME_WAIT, TCP_NEW_SYN_RECV].contains(&state);
    if port == 0 || is_over || is_tcp && remote_port == 0 && state != TCP_LISTEN {
        return None;
    }
    let local = v4(local)?;
    let remote = match remote_port {
        0 => None,
        port => Some(SocketAddrV4::new(v4(remote)??, port)),
    };
    Some(SystemSocket { protocol, local, port, remote })
}

/// The IPv4 part of an address: one address, every address, or none at all.
fn v4(address: IpAddr) -> Option<Option<Ipv4Addr>> {
    match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(None),
        IpAddr::V4(address) => Some(Some(address)),
        IpAddr::V6(address) => address.to_ipv4_mapped().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    fn found_in(sockets: &[SystemSocket], protocol: u8, port: u16) -> Vec<SystemSocket> {
        sockets.iter().filter(|s| (s.protocol, s.port) == (protocol, port)).copied().collect()
    }

    #[test]
    fn both_ways_find_what_was_opened() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let everywhere = UdpSocket::bind("0.0.0.0:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect("127.0.0.1:9").unwrap();
        let port = |address: std::net::SocketAddr| address.port();
        for netlink in [Netlink::of(libc::NETLINK_SOCK_DIAG).ok(), None] {
            let sockets = SystemSockets { netlink }.read().unwrap();
            let loopback = Some(Ipv4Addr::LOCALHOST);
            let to = |port: u16| Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
            let (server, from) = (port(listener.local_addr().unwrap()), port(client.local_addr().unwrap()));
            let expected = SystemSocket { protocol: 6, local: loopback, port: server, remote: None };
            assert!(found_in(&sockets, 6, server).contains(&expected));
            let expected = SystemSocket { protocol: 6, local: loopback, port: from, remote: to(server) };
            assert_eq!(found_in(&sockets, 6, from), [expected]);
            let at = port(everywhere.local_addr().unwrap());
            let expected = SystemSocket { protocol: 17, local: None, port: at, remote: None };
            assert_eq!(found_in(&sockets, 17, at), [expected]);
            let at = port(connected.local_addr().unwrap());
            let expected = SystemSocket { protocol: 17, local: loopback, port: at, remote: to(9) };
            assert_eq!(found_in(&sockets, 17, at), [expected]);
        }
    }

    #[test]
    fn rows_of_every_kind() {
        let wildcard = "00000000000000000000000000000000";
        let mapped = if cfg!(target_endian = "little") {
            "0000000000000000FFFF00000A0200C0"
        } else {
            "00000000000000000000FFFFC000020A"
        };
        let line = |local: &str, remote: &str, state: &str| format!(" 0: {local}:0016 {remote} {state} 0 0");
        let listens = row(6, &line(wildcard, &format!("{wildcard}:0000"), "0A")).unwrap();
        assert_eq!((listens.local, listens.port, listens.remote), (None, 22, None));
        let speaks = row(6, &line(mapped, &format!("{mapped}:1F90"), "01")).unwrap();
        assert_eq!(speaks.remote, Some("192.0.2.10:8080".parse().unwrap()));
        assert_eq!(row(6, &line(mapped, &format!("{mapped}:1F90"), "06")), None, "TIME-WAIT");
        assert_eq!(row(6, &line(wildcard, &format!("{wildcard}:0000"), "07")), None, "bound, not listening");
        assert_eq!(row(17, "  sl  local_address rem_address   st"), None);
        assert_eq!(row(17, ""), None);
    }
}

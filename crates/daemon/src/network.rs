//! The speaker's network on TCP sockets.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use thalweg_base::IpPrefix;
use thalweg_bgp::session::NeighborConfig;
use thalweg_node::speaker::{ByteStream, Incoming, Network};
use thalweg_ports::kernel::NetworkView;
use thalweg_ports::tcp::{HopLimit, Listener, Md5Key, Progress, SignatureFaults, Stream, TcpError, connect};

/// The listening sockets and their passwords.
pub(crate) struct TcpNetwork {
    listeners: Vec<Listener>,
    /// Passwords set on the listening sockets.
    keys: Mutex<HashMap<IpAddr, Md5Key>>,
}

impl TcpNetwork {
    /// Listens on all of the addresses. One that no interface has yet is told, and is no error: it may come later, by
    /// DHCP or by a network that starts after the router.
    pub(crate) fn listen(addresses: &[SocketAddr]) -> Result<Self, TcpError> {
        let listeners = addresses.iter().map(|address| Listener::bind(*address));
        let listeners: Vec<_> = listeners.collect::<Result<_, _>>()?;
        for listener in listeners.iter().filter(|listener| !listener.has_address()) {
            let address = listener.address();
            tracing::warn!(%address, "no interface has the address that BGP listens on; neighbors connect once one has it");
        }
        Ok(Self { listeners, keys: Mutex::default() })
    }

    /// Sets or removes a password on all sockets of the address's family, or on none after an error.
    fn set_key(&self, address: IpAddr, key: Option<&Md5Key>, was: Option<&Md5Key>) -> Result<(), TcpError> {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let listeners = self.listeners.iter().filter(|each| each.address().is_ipv4() == address.is_ipv4());
        let mut done: Vec<&Listener> = Vec::new();
        for listener in listeners {
            if let Err(error) = listener.set_md5_key(address, length, key) {
                for listener in done {
                    // Restoring should work, because the key was there before; if not, connections fail, which is
                    // logged.
                    let _ = listener.set_md5_key(address, length, was);
                }
                return Err(error);
            }
            done.push(listener);
        }
        Ok(())
    }
}

impl Network for TcpNetwork {
    fn register_listeners(&self, registry: &Registry, token: Token) -> io::Result<()> {
        self.listeners.iter().try_for_each(|listener| {
            registry.register(&mut SourceFd(&listener.as_fd().as_raw_fd()), token, Interest::READABLE)
        })
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        for listener in &self.listeners {
            if let Some((stream, remote)) = listener.accept().map_err(io::Error::other)? {
                return Ok(Some(Incoming { stream: Box::new(TcpStream(stream)), remote }));
            }
        }
        Ok(None)
    }

    fn connect(&self, neighbor: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        let remote = SocketAddr::new(neighbor.address, neighbor.transport.port);
        let key = key(neighbor)?;
        let local = neighbor.transport.local_address;
        let stream = connect(local, remote, hop_limit(neighbor), key.as_ref()).map_err(io::Error::other)?;
        Ok(Box::new(TcpStream(stream)))
    }

    fn expect(&self, neighbor: &NeighborConfig, expected: bool) -> io::Result<()> {
        let key = if expected { key(neighbor)? } else { None };
        let mut keys = self.keys.lock();
        let was = keys.get(&neighbor.address);
        if key.as_ref() == was {
            return Ok(());
        }
        self.set_key(neighbor.address, key.as_ref(), was).map_err(io::Error::other)?;
        match key {
            Some(key) => keys.insert(neighbor.address, key),
            None => keys.remove(&neighbor.address),
        };
        Ok(())
    }

    fn shared_network(&self, local: IpAddr, remote: IpAddr) -> Option<IpPrefix> {
        if local.is_loopback() {
            return None;
        }
        let own = NetworkView::read_addresses().inspect_err(|error| {
            tracing::warn!(
                "cannot read the networks of interfaces, so next hops on them do not resolve: {error}"
            );
        });
        let own = own.ok()?.into_iter().filter(|own| own.address == local);
        own.map(|own| own.network).find(|network| network.contains(remote))
    }

    fn signature_faults(&self) -> Option<[u64; 3]> {
        let faults = SignatureFaults::read()?;
        Some([faults.wrong, faults.missing, faults.unexpected])
    }
}

fn key(neighbor: &NeighborConfig) -> io::Result<Option<Md5Key>> {
    let password = neighbor.transport.password.as_ref();
    password.map(|secret| Md5Key::new(secret.reveal().as_bytes())).transpose().map_err(io::Error::other)
}

fn hop_limit(neighbor: &NeighborConfig) -> HopLimit {
    let transport = &neighbor.transport;
    match (transport.ttl_security_hops, transport.multihop_ttl) {
        (Some(hops), _) => HopLimit::Gtsm(hops),
        (None, Some(ttl)) => HopLimit::Send(ttl),
        (None, None) if neighbor.certain_kind().is_some_and(|kind| neighbor.is_one_hop_away(kind)) => {
            HopLimit::Send(1)
        }
        (None, None) => HopLimit::Any,
    }
}

struct TcpStream(Stream);

impl ByteStream for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        progress(self.0.read(buffer))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        progress(self.0.write_vectored(slices))
    }

    fn shut_down_write(&mut self) -> io::Result<()> {
        self.0.shutdown_write().map_err(io::Error::other)
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        match self.0.connected() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(io::Error::other(error))),
        }
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.0.local_address().map_err(io::Error::other)?, self.0.remote_address()))
    }

    fn apply(&mut self, neighbor: &NeighborConfig) -> io::Result<()> {
        self.0.apply(hop_limit(neighbor)).map_err(io::Error::other)
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&self.0.as_fd().as_raw_fd()), token, interest)
    }
}

fn progress(result: Result<Progress, TcpError>) -> io::Result<usize> {
    match result {
        Ok(Progress::Bytes(bytes)) => Ok(bytes),
        Ok(Progress::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Ok(Progress::Closed) => Ok(0),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_bgp::session::config::RemoteAs;

    use super::{HopLimit, NeighborConfig, hop_limit};

    #[test]
    fn packets_to_external_neighbors_go_one_hop() {
        let mut neighbor =
            NeighborConfig::new([198, 18, 1, 1].into(), 64_600, 65_000, [198, 18, 0, 1].into());
        let mut sent = |remote_as| {
            neighbor.remote_as = remote_as;
            hop_limit(&neighbor)
        };
        assert_eq!(sent(RemoteAs::One(64_600)), HopLimit::Send(1));
        assert_eq!(sent(RemoteAs::One(65_000)), HopLimit::Any);
        assert_eq!(sent(RemoteAs::AnyOf(vec![(64_512, 64_600)])), HopLimit::Send(1));
        assert_eq!(sent(RemoteAs::Any), HopLimit::Any, "an internal neighbor may be further away");
        neighbor.transport.multihop_ttl = Some(4);
        assert_eq!(hop_limit(&neighbor), HopLimit::Send(4));
        neighbor.transport.ttl_security_hops = Some(2);
        assert_eq!(hop_limit(&neighbor), HopLimit::Gtsm(2));
    }
}

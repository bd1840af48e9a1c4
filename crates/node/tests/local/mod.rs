//! Neighbors of a speaker with real threads: local sockets instead of TCP, with addresses chosen by the test.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Interest, Registry, Token};
use thalweg_base::Prefix;
use thalweg_bgp::session::NeighborConfig;
use thalweg_bgp::session::config::RemoteAs;
use thalweg_node::control::BgpRequest;
use thalweg_node::speaker::{ByteStream, Incoming, Network, Speaker};
use thalweg_wire::bgp::{
    Capabilities, Family, GracefulRestart, Open, RestartFamily, attribute, begin_attributes, begin_update,
    finish_attributes, finish_message, write_attribute, write_keepalive, write_nlri,
};

/// A run that takes longer than this is wrong, not slow.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(100);

/// A connection with addresses chosen by the test.
struct LocalStream {
    stream: mio::net::UnixStream,
    remote: SocketAddr,
    breaks: bool,
    applied: Arc<Mutex<Vec<RemoteAs>>>,
}

impl ByteStream for LocalStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!self.breaks, "a stream that breaks, as the test wants it");
        self.stream.read(buffer)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(slices)
    }

    fn shut_down_write(&mut self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        Some(Ok(()))
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((SocketAddr::from(([127, 0, 0, 1], 179)), self.remote))
    }

    fn apply(&mut self, neighbor: &NeighborConfig) -> io::Result<()> {
        self.applied.lock().unwrap().push(neighbor.remote_as.clone());
        Ok(())
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }
}

/// Connections that the test makes; the doorbell stands for the listening socket.
pub(crate) struct LocalNetwork {
    waiting: Arc<Mutex<VecDeque<LocalStream>>>,
    doorbell: Mutex<mio::net::UnixStream>,
}

impl Network for LocalNetwork {
    fn register_listeners(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut *self.doorbell.lock().unwrap(), token, Interest::READABLE)
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        while self.doorbell.lock().unwrap().read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        let next = self.waiting.lock().unwrap().pop_front();
        Ok(next.map(|stream| Incoming { remote: stream.remote, stream: Box::new(stream) }))
    }

    fn connect(&self, _: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn expect(&self, _: &NeighborConfig, _: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Where a neighbor of the test connects.
pub(crate) struct Door {
    waiting: Arc<Mutex<VecDeque<LocalStream>>>,
    bell: UnixStream,
    /// A thread that reads from connections made from now on panics.
    pub(crate) breaks: bool,
    /// The ASes by which options of connections were chosen.
    pub(crate) applied: Arc<Mutex<Vec<RemoteAs>>>,
}

impl Door {
    /// Opens a new connection from an address; returns the neighbor's end.
    pub(crate) fn connect(&mut self, from: Ipv4Addr) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let remote = SocketAddr::new(from.into(), 40_000);
        let stream = mio::net::UnixStream::from_std(far);
        let (breaks, applied) = (self.breaks, self.applied.clone());
        self.waiting.lock().unwrap().push_back(LocalStream { stream, remote, breaks, applied });
        self.bell.write_all(&[1]).unwrap();
        near
    }
}

/// A network whose neighbors connect through the door.
pub(crate) fn network() -> (LocalNetwork, Door) {
    let (bell, doorbell) = UnixStream::pair().unwrap();
    doorbell.set_nonblocking(true).unwrap();
    let waiting = Arc::new(Mutex::new(VecDeque::new()));
    let doorbell = Mutex::new(mio::net::UnixStream::from_std(doorbell));
    (
        LocalNetwork { waiting: waiting.clone(), doorbell },
        Door { waiting, bell, breaks: false, applied: Arc::default() },
    )
}

/// Ends a scheduling and closes connections when dropped: if a test fails, its threads must end before it can.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool, pub(crate) &'a Speaker, pub(crate) Vec<UnixStream>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.wake();
        for stream in &self.2 {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// OPEN, and the KEEPALIVE that accepts the other's.
pub(crate) fn greeting(asn: u32, router_id: Ipv4Addr) -> Vec<u8> {
    let families = Family::ALL.map(Into::into).to_vec();
    let restart = RestartFamily { family: Family::Ipv4.into(), forwarding: true };
    let graceful_restart = Some(GracefulRestart {
        restarting: false,
        notification: false,
        time_s: 600,
        families: vec![restart],
    });
    let capabilities = Capabilities {
        families,
        route_refresh: true,
        extended_message: true,
        graceful_restart,
        ..Capabilities::default()
    };
    let mut bytes = Vec::new();
    Open::new(asn, 0, router_id, capabilities).write(&mut bytes);
    write_keepalive(&mut bytes);
    bytes
}

/// Appends an UPDATE that announces.
pub(crate) fn announce(out: &mut Vec<u8>, attributes: impl FnOnce(&mut Vec<u8>), prefixes: &[Prefix<u32>]) {
    let message = begin_update(out);
    let start = begin_attributes(out, message);
    attributes(out);
    finish_attributes(out, start);
    prefixes.iter().for_each(|prefix| write_nlri(out, None, *prefix));
    finish_message(out, message).unwrap();
}

/// ORIGIN, AS_PATH and NEXT_HOP.
pub(crate) fn plain_attributes(path: &[u32], next_hop: [u8; 4]) -> impl FnOnce(&mut Vec<u8>) {
    let mut value = vec![2, path.len() as u8];
    path.iter().for_each(|asn| value.extend_from_slice(&asn.to_be_bytes()));
    move |out| {
        write_attribute(out, attribute::FLAG_TRANSITIVE, attribute::ORIGIN, &[0]);
        write_attribute(out, attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &value);
        write_attribute(out, attribute::FLAG_TRANSITIVE, attribute::NEXT_HOP, &next_hop);
    }
}

/// What the speaker answers.
pub(crate) fn ask<T: serde::de::DeserializeOwned>(speaker: &Speaker, request: &BgpRequest) -> Vec<T> {
    let mut views = Vec::new();
    let answer = speaker.answer(request, &mut |item| {
        views.push(serde_json::from_value(item).unwrap());
        Ok(())
    });
    answer.unwrap().unwrap();
    views
}

/// Waits for a condition.
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is() {
        assert!(Instant::now() < until, "still waiting: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

//! The laboratory's own collector: receives what a probe exports over loopback, and counts its records.
//!
//! On a machine with few cores a collector competes with the probe. So while the probe runs, messages are only read
//! from the socket and stored, up to `KEPT_BYTES_MAX`, and decoded afterwards. (Beyond that limit they are decoded
//! at once; messages that overflow the socket's buffer meanwhile are lost and counted.)
//!
//! Decoding is that of `thalweg_flow::import`. Sequence numbers reveal losses: of data records in IPFIX, of
//! messages in NetFlow 9.
//!
//! The [`fingerprint`](Collected::fingerprint) is a sum of hashes of the records. Two runs with the same records,
//! in any order, have the same fingerprint.

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use thalweg_base::{mix64, uninterrupted};
use thalweg_flow::FlowRecord;
use thalweg_flow::import::Importer;
use thalweg_wire::netflow::decode::{Limits, Source, stream_message_bytes};

/// Bytes of messages that may wait to be decoded.
const KEPT_BYTES_MAX: usize = 512 << 20;
/// The requested size of the socket's buffer; only root gets it.
const BUFFER_BYTES: usize = 256 << 20;
/// The longest UDP payload.
const DATAGRAM_MAX: usize = 65_536;
/// How long to wait for messages between checks of whether the probe has ended.
const NAP: Duration = Duration::from_millis(5);

/// How messages arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// IPFIX or NetFlow, one message per datagram.
    Udp,
    /// IPFIX over one connection.
    Tcp,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub messages: u64,
    pub records: u64,
    /// The sum of their packet counters, in both directions.
    pub packets: u64,
    pub bytes: u64,
    /// Missing by sequence numbers: data records in IPFIX, messages in NetFlow 9.
    pub missing: u64,
    /// Messages, sets and records that could not be decoded.
    pub faults: u64,
    /// The sum over all records of a hash of key, counters and times.
    pub fingerprint: u64,
}

/// A thread that receives until it is told that nothing more comes.
#[derive(Debug)]
pub(super) struct Listening<T> {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<T>>,
}

impl<T: Send + 'static> Listening<T> {
    pub(super) fn start(
        address: SocketAddr,
        work: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = thread::Builder::new().name("collector".to_owned()).spawn(move || work(&told))?;
        Ok(Self { address, over, thread })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn finish(self) -> io::Result<T> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the collector's thread died")))
    }
}

/// A socket on a free port of 127.0.0.1, with a large buffer.
pub(super) fn udp_socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    if set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        // The most without privileges: a faster probe loses more.
        socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES)?;
    }
    socket.set_read_timeout(Some(NAP))?;
    Ok(socket)
}

/// A collector that listens on loopback.
#[derive(Debug)]
pub struct Collector {
    listening: Listening<Collected>,
    transport: Transport,
}

impl Collector {
    /// Listens on a free port of 127.0.0.1.
    pub fn start(transport: Transport) -> io::Result<Self> {
        let listening = match transport {
            Transport::Udp => {
                let socket = udp_socket()?;
                Listening::start(socket.local_addr()?, move |over| {
                    let mut kept = Kept::new(Source::datagrams(1));
                    datagrams(&socket, over, |datagram| kept.keep(datagram))?;
                    Ok(kept.finish())
                })?
            }
            Transport::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                listener.set_nonblocking(true)?;
                Listening::start(listener.local_addr()?, move |over| stream(&listener, over))?
            }
        };
        Ok(Self { listening, transport })
    }

    /// The address to export to.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// The transport to export over.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns what was received. Call it after the probe has ended: then all that it sent has arrived or is lost.
    pub fn finish(self) -> io::Result<Collected> {
        self.listening.finish()
    }
}

/// Messages waiting to be decoded, and the counts of those decoded.
struct Kept {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    importer: Importer,
    source: Source,
    collected: Collected,
}

impl Kept {
    fn new(source: Source) -> Self {
        let (importer, collected) = (Importer::new(Limits::default()), Collected::default());
        Self { bytes: Vec::new(), ends: Vec::new(), importer, source, collected }
    }

    fn keep(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
        if self.bytes.len() > KEPT_BYTES_MAX {
            self.decode();
        }
    }

    fn decode(&mut self) {
        let Self { bytes, ends, importer, source, collected } = self;
        let (mut from, mut flows) = (0, Vec::new());
        for to in ends.drain(..) {
            collected.messages += 1;
            let message = bytes.get(from..to).unwrap_or_default();
            match importer.handle_message(*source, message, 0, &mut flows) {
                Ok(report) => collected.faults += u64::from(report.faults),
                Err(_) => collected.faults += 1,
            }
            for flow in flows.drain(..) {
                collected.records += 1;
                collected.packets += flow.packets();
                collected.bytes += flow.bytes();
                collected.fingerprint = collected.fingerprint.wrapping_add(fingerprint(&flow));
            }
            from = to;
        }
        bytes.clear();
    }

    fn finish(mut self) -> Collected {
        self.decode();
        let decoder = self.importer.decoder();
        self.collected.missing = decoder.counters().sequence.units_missing;
        self.collected.faults += decoder.waiting().0 as u64 + decoder.counters().sets_given_up;
        self.collected
    }
}

/// A hash of a flow's key and counters; the same on every machine and in every run.
fn fingerprint(flow: &FlowRecord) -> u64 {
    struct Mixed(u64);
    impl Hasher for Mixed {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for part in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                self.0 = mix64(self.0 ^ u64::from_le_bytes(word)).wrapping_add(part.len() as u64);
            }
        }
    }
    let (counters, mut state) = (&flow.counters, Mixed(1));
    flow.key.hash(&mut state);
    [counters.packets, counters.bytes, counters.first_ns, counters.last_ns].hash(&mut state);
    [counters.tcp_flags, counters.ttl_min, counters.ttl_max].hash(&mut state);
    flow.end_reason.hash(&mut state);
    state.finish()
}

/// Receives datagrams until nothing more comes.
pub(super) fn datagrams(
    socket: &UdpSocket,
    over: &AtomicBool,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut datagram = vec![0; DATAGRAM_MAX];
    loop {
        // Read before the socket, so that everything sent before the end is received.
        let is_over = over.load(Ordering::Relaxed);
        match socket.recv(&mut datagram) {
            Ok(len) => take(datagram.get(..len).unwrap_or_default()),
            Err(error) if is_nothing_yet(&error) && is_over => return Ok(()),
            Err(error) if is_nothing_yet(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn stream(listener: &TcpListener, over: &AtomicBool) -> io::Result<Collected> {
    let mut kept = Kept::new(Source::stream(1));
    // A probe opens one connection, and another if that breaks.
    loop {
        let is_over = over.load(Ordering::Relaxed);
        match listener.accept() {
            Ok((connection, _)) => connected(connection, &mut kept)?,
            Err(error) if is_nothing_yet(&error) && is_over => return Ok(kept.finish()),
            Err(error) if is_nothing_yet(&error) => thread::sleep(NAP),
            Err(error) => return Err(error),
        }
    }
}

/// Reads a connection to its end.
fn connected(mut connection: TcpStream, kept: &mut Kept) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    let mut received = vec![0; 1 << 20];
    let mut len = 0;
    loop {
        let room = received.get_mut(len..).unwrap_or_default();
        match uninterrupted(|| connection.read(room)) {
            Ok(0) => {
                kept.collected.faults += u64::from(len > 0);
                return Ok(());
            }
            Ok(more) => len += more,
            Err(error) => return Err(error),
        }
        let mut from = 0;
        loop {
            let rest = received.get(from..len).unwrap_or_default();
            let Ok(message) = stream_message_bytes(rest) else {
                // Where the next message begins is unknown.
                kept.collected.faults += 1;
                return Ok(());
            };
            let Some(message) = message.and_then(|bytes| rest.get(..bytes)) else { break };
            kept.keep(message);
            from += message.len();
        }
        received.copy_within(from..len, 0);
        len -= from;
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// IPFIX with one template (source, destination, packets in four bytes) and records of it.
    fn message(sequence: u32, flows: &[(u8, u32)], with_template: bool) -> Vec<u8> {
        let template = [8u16, 4, 12, 4, 2, 4].map(u16::to_be_bytes).concat();
        let mut sets = Vec::new();
        if with_template {
            sets.extend([0, 2, 0, 20, 1, 0, 0, 3]);
            sets.extend(template);
        }
        sets.extend([1, 0]);
        sets.extend((4 + 12 * flows.len() as u16).to_be_bytes());
        for (host, packets) in flows {
            sets.extend([10, 0, 0, *host, 192, 0, 2, 1]);
            sets.extend(packets.to_be_bytes());
        }
        let mut message = vec![0, 10];
        message.extend((16 + sets.len() as u16).to_be_bytes());
        message.extend([0x65, 0, 0, 0]);
        message.extend(sequence.to_be_bytes());
        message.extend([0, 0, 0, 1]);
        message.extend(sets);
        message
    }

    #[test]
    fn datagrams_are_counted_and_what_is_missing_too() {
        let collector = Collector::start(Transport::Udp).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let send = |message: &[u8]| socket.send_to(message, collector.address()).unwrap();
        send(&message(0, &[(1, 5), (2, 6)], true));
        send(&message(5, &[(3, 7)], false));
        send(b"no message");
        let collected = collector.finish().unwrap();
        assert_eq!((collected.messages, collected.records, collected.packets), (3, 3, 18));
        assert_eq!((collected.missing, collected.faults), (3, 1));
    }

    #[test]
    fn a_stream_is_the_same_and_order_does_not_matter() {
        let orders: [&[(u8, u32)]; 3] =
            [&[(1, 5), (2, 6), (3, 7)], &[(3, 7), (1, 5), (2, 6)], &[(1, 5), (2, 7), (3, 6)]];
        let collected = orders.map(|flows| {
            let collector = Collector::start(Transport::Tcp).unwrap();
            let mut connection = TcpStream::connect(collector.address()).unwrap();
            for byte in message(0, flows, true) {
                connection.write_all(&[byte]).unwrap();
            }
            drop(connection);
            collector.finish().unwrap()
        });
        assert!(
            collected.iter().all(|c| (c.records, c.packets, c.missing, c.faults) == (3, 18, 0, 0)),
            "{collected:?}"
        );
        assert_eq!(collected[0].fingerprint, collected[1].fingerprint);
        assert_ne!(collected[0].fingerprint, collected[2].fingerprint);
    }

    #[test]
    fn what_is_no_message_ends_the_stream_and_is_counted() {
        let collector = Collector::start(Transport::Tcp).unwrap();
        let mut connection = TcpStream::connect(collector.address()).unwrap();
        connection.write_all(&[0, 9, 0, 0, 0, 0]).unwrap();
        drop(connection);
        assert_eq!(collector.finish().unwrap(), Collected { faults: 1, ..Collected::default() });
        let nobody = Collector::start(Transport::Tcp).unwrap();
        assert_eq!(nobody.finish().unwrap(), Collected::default());
    }
}

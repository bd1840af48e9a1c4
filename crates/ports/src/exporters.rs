//! Receives from exporters: datagrams of NetFlow and IPFIX, and streams of IPFIX over TCP.
//!
//! ```text
//! UDP socket ── thread ──┐
//! TCP listener ─ thread ─┼──> bounded queue ──> reader of messages
//!   connection ─ thread ─┘
//! ```
//!
//! A full queue blocks the threads. A stream's sender then waits; datagrams fill the socket's receive buffer,
//! and further ones are lost, which the kernel counts ([`Received::Dropped`]) and gaps in the exporter's sequence numbers
//! show. At the end, data that the
//! kernel already has is still read, for at most [`LAST_WORDS`].
//!
//! Limits: [`CONNECTIONS_MAX`] connections, each with one incomplete message.
//!
//! Missing: TLS, DTLS, SCTP.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use socket2::{Domain, Protocol, Socket, Type};
use thalweg_wire::netflow::decode::{Fault, stream_message_bytes};

use crate::socket_option;

/// The most connections at a time.
pub const CONNECTIONS_MAX: usize = 256;
/// The capacity of the queue.
const QUEUE_MESSAGES: usize = 4096;
/// The receive buffer for datagrams: 0.1 s at a hundred thousand per second.
const RECEIVE_BUFFER_BYTES: i32 = 16 << 20;
/// How often threads check whether they should end.
const TURN: Duration = Duration::from_millis(100);

/// How long a reader that has read everything lets messages gather. A thread that waits for a queue is woken for each
/// message, which takes longer than reading it.
const GATHER: Duration = Duration::from_millis(1);

/// The longest time for reading what exporters sent before the end.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// An event from the sockets.
#[derive(Debug)]
pub enum Received {
    /// A datagram, or a message of a stream.
    Message {
        from: SocketAddr,
        /// The message came over a connection.
        is_stream: bool,
        bytes: Vec<u8>,
    },
    /// A connection ended.
    Closed {
        from: SocketAddr,
        /// The error, if it did not end cleanly.
        why: Option<StreamEnd>,
    },
    /// So many datagrams more were dropped at a socket, most likely because its buffer was full.
    Dropped(u64),
    /// A connection was refused because of the limit.
    Refused(SocketAddr),
    /// A socket failed.
    Failed(io::Error),
}

/// Why a connection ended early.
#[derive(Debug)]
pub enum StreamEnd {
    /// The bytes are not IPFIX messages.
    NoMessage(Fault),
    /// It ended inside a message, after this many bytes.
    Cut(usize),
    /// An error of the system.
    Error(io::Error),
}

/// Sockets for exporters, and their threads. Dropping this ends them.
pub struct Exporters {
    queue: Receiver<Received>,
    /// `None` at the end.
    sender: Option<Sender<Received>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Default for Exporters {
    fn default() -> Self {
        let (sender, queue) = bounded(QUEUE_MESSAGES);
        Self { queue, sender: Some(sender), stop: Arc::default(), threads: Vec::new() }
    }
}

impl Exporters {
    /// Receives datagrams at an address; returns the actual address, for port 0.
    pub fn listen_udp(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        let room =
            |option| socket_option::set_int(socket.as_fd(), libc::SOL_SOCKET, option, RECEIVE_BUFFER_BYTES);
        // Only root may exceed `net.core.rmem_max`; others get what the kernel allows.
        room(libc::SO_RCVBUFFORCE).or_else(|_| room(libc::SO_RCVBUF))?;
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(TURN))?;
        let bound = socket.local_addr()?;
        self.spawn(move |sender, stop| take_datagrams(&socket, &sender, &stop))?;
        Ok(bound)
    }

    /// Accepts connections at an address; returns the actual address, for port 0.
    pub fn listen_tcp(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(64)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        self.spawn(move |sender, stop| accept(&listener, &sender, &stop))?;
        Ok(bound)
    }

    /// Waits for the next event, and a moment more, so that others are there already when it is asked again.
    pub fn next(&self, timeout: Duration) -> Option<Received> {
        if let Ok(received) = self.queue.try_recv() {
            return Some(received);
        }
        std::thread::sleep(GATHER);
        self.queue.recv_timeout(timeout).ok()
    }

    /// Stops listening. Returns what has arrived already.
    pub fn rest(&mut self) -> impl Iterator<Item = Received> {
        self.stop.store(true, Ordering::Relaxed);
        // The queue ends when the last thread does.
        self.sender = None;
        self.queue.iter()
    }

    fn spawn(
        &mut self,
        work: impl FnOnce(Sender<Received>, Arc<AtomicBool>) + Send + 'static,
    ) -> io::Result<()> {
        let Some(sender) = self.sender.clone() else { return Err(io::ErrorKind::NotConnected.into()) };
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name("exporters".to_owned());
        self.threads.push(thread.spawn(move || work(sender, stop))?);
        Ok(())
    }
}

impl Drop for Exporters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sender = None;
        // No thread waits for room in a queue that is gone.
        self.queue = bounded(0).1;
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported that.
            let _ = thread.join();
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// When a thread must end: at once if there is nothing to read, soon otherwise.
struct Ending<'a> {
    stop: &'a AtomicBool,
    until: Option<Instant>,
}

impl Ending<'_> {
    fn has_come(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_over(&mut self) -> bool {
        self.has_come() && Instant::now() >= *self.until.get_or_insert_with(|| Instant::now() + LAST_WORDS)
    }
}

fn take_datagrams(socket: &UdpSocket, queue: &Sender<Received>, stop: &AtomicBool) {
    read_datagrams(socket, queue, stop);
    let dropped = dropped_at(socket);
    if dropped > 0 {
        // The reader learns of it, or is gone.
        let _ = queue.send(Received::Dropped(dropped));
    }
}

/// Datagrams that the kernel dropped at a socket; 0 if it does not say.
fn dropped_at(socket: &UdpSocket) -> u64 {
    /// Of the numbers that the kernel gives about a socket's memory, that of its drops.
    const DROPS: usize = 8;
    let mut numbers = [0; 4 * (DROPS + 1)];
    let got = socket_option::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut numbers);
    let drops = numbers.as_chunks::<4>().0[DROPS];
    got.ok().filter(|length| *length >= numbers.len()).map_or(0, |_| u32::from_ne_bytes(drops).into())
}

fn read_datagrams(socket: &UdpSocket, queue: &Sender<Received>, stop: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    let mut ending = Ending { stop, until: None };
    while !ending.is_over() {
        let heard = match socket.recv_from(&mut buffer) {
            Ok((bytes, from)) => {
                Received::Message { from, is_stream: false, bytes: buffer[..bytes].to_vec() }
            }
            // The signal that ends the process may have interrupted the call: data that arrived before must
            // still be read.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_pause(&error) && !ending.has_come() => continue,
            Err(error) if is_pause(&error) => return,
            Err(error) => {
                // The reader learns of it, or is gone.
                let _ = queue.send(Received::Failed(error));
                return;
            }
        };
        if queue.send(heard).is_err() {
            return;
        }
    }
}

fn accept(listener: &TcpListener, queue: &Sender<Received>, stop: &Arc<AtomicBool>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let mut ending = Ending { stop, until: None };
    while !ending.is_over() {
        match listener.accept() {
            Ok((_, from)) if connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX => {
                if queue.send(Received::Refused(from)).is_err() {
                    return;
                }
            }
            Ok((stream, from)) => {
                connections.fetch_add(1, Ordering::Relaxed);
                let (heard, stop, open) = (queue.clone(), Arc::clone(stop), Arc::clone(&connections));
                let work = move || {
                    let why = read_stream(stream, from, &heard, &stop);
                    // As above.
                    let _ = heard.send(Received::Closed { from, why });
                    open.fetch_sub(1, Ordering::Relaxed);
                };
                if let Err(error) = std::thread::Builder::new().name("exporter".to_owned()).spawn(work) {
                    let _ = queue.send(Received::Failed(error));
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_pause(&error) && ending.has_come() => return,
            Err(error) if is_pause(&error) => std::thread::sleep(TURN / 4),
            // A single connection failed before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let _ = queue.send(Received::Failed(error));
                return;
            }
        }
    }
}

/// Cuts a connection's bytes into messages until it ends.
fn read_stream(
    mut stream: TcpStream,
    from: SocketAddr,
    queue: &Sender<Received>,
    stop: &AtomicBool,
) -> Option<StreamEnd> {
    if let Err(error) = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(TURN))) {
        return Some(StreamEnd::Error(error));
    }
    // A message has at most 65,535 bytes.
    let mut buffer = vec![0; 1 << 17];
    let mut filled = 0;
    let mut ending = Ending { stop, until: None };
    while !ending.is_over() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return (filled > 0).then_some(StreamEnd::Cut(filled)),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_pause(&error) && !ending.has_come() => continue,
            Err(error) if is_pause(&error) => return None,
            Err(error) => return Some(StreamEnd::Error(error)),
        }
        let mut at = 0;
        loop {
            match stream_message_bytes(&buffer[at..filled]) {
                Err(fault) => return Some(StreamEnd::NoMessage(fault)),
                Ok(Some(length)) if at + length <= filled => {
                    let bytes = buffer[at..at + length].to_vec();
                    if queue.send(Received::Message { from, is_stream: true, bytes }).is_err() {
                        return None;
                    }
                    at += length;
                }
                Ok(_) => break,
            }
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While nobody takes messages, the queue and then the socket's buffer fill; the kernel counts the rest.
    #[test]
    fn datagrams_that_find_the_buffer_full_are_counted() {
        let mut exporters = Exporters::default();
        let to = exporters.listen_udp("127.0.0.1:0".parse().unwrap()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        // With its overhead a datagram takes twice as much of the buffer, and the buffer may be twice as large.
        let sent = QUEUE_MESSAGES + 2 * RECEIVE_BUFFER_BYTES as usize / 1400;
        for _ in 0..sent {
            sender.send_to(&[0; 1400], to).unwrap();
        }
        let (mut messages, mut dropped) = (0, 0);
        for received in exporters.rest() {
            match received {
                Received::Message { .. } => messages += 1,
                Received::Dropped(more) => dropped += more,
                other => panic!("{other:?}"),
            }
        }
        assert!(dropped > 0 && messages > 0 && messages + dropped <= sent as u64, "{messages} {dropped}");
    }
}

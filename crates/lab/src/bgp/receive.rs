//! Compares ways to read messages from a TCP socket. In chapter 5 of the thesis, reading headers and payloads from
//! TCP takes a quarter of the time.
//!
//! | strategy | system calls | copies in user space |
//! |---|---|---|
//! | [`Strategy::TwoReads`] | two for each message: header, then the rest (what Quagga does) | none |
//! | [`Strategy::Buffered`] | one for up to 256 KiB of messages | the part of a message at a buffer's end |
//! | [`Strategy::Uring`] | one for several completions of a multishot receive into provided buffers | the same |
//!
//! A sender thread pushes a pre-built stream through a loopback connection; the receiver frames every message
//! (length and type, no more) and counts. Both elapsed time and the receiver thread's processor time are measured,
//! because on a small or loaded machine sender and receiver share cores.

use super::message::{HEADER_LEN, MESSAGE_MAX, Stream, frame, kind};
use crate::cpu_time::thread_cpu_s;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

mod uring;

/// Bytes that [`Strategy::Buffered`] reads at once.
pub const BUFFER: usize = 256 << 10;

thalweg_base::words! {
    /// A way to receive.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Strategy {
        /// Reads the header, then the payload.
        TwoReads => "two reads a message",
        /// Reads what has arrived, at most [`BUFFER`].
        Buffered => "large buffered reads",
        /// One multishot receive into buffers provided in advance.
        Uring => "io_uring",
    }
}

/// The results of receiving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Received {
    pub messages: u64,
    pub updates: u64,
    pub bytes: u64,
    /// The receiver's system calls.
    pub system_calls: u64,
    /// Time from the first byte to the last message, in seconds.
    pub elapsed_s: f64,
    /// The receiving thread's processor time, in seconds.
    pub cpu_s: f64,
}

impl Received {
    fn count(&mut self, kind: u8, length: usize) {
        self.messages += 1;
        self.updates += u64::from(kind == kind::UPDATE);
        self.bytes += length as u64;
    }
}

/// Sends `stream` over a loopback connection, `rounds` times, and receives it in one way.
///
/// Errors are the system's: no loopback, no io_uring ([`io::ErrorKind::Unsupported`] or a refusal), or a stream
/// that is no BGP ([`io::ErrorKind::InvalidData`]).
pub fn measure(strategy: Strategy, stream: &Stream, rounds: usize) -> io::Result<Received> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut out = TcpStream::connect(address)?;
            for _ in 0..rounds {
                out.write_all(&stream.bytes)?;
            }
            out.shutdown(std::net::Shutdown::Write)?;
            // Closing before everything is read would discard the rest.
            out.set_read_timeout(Some(Duration::from_secs(60)))?;
            out.read(&mut [0]).map(drop)
        });
        let (socket, _) = listener.accept()?;
        // Lets the sender fill the buffers first, so that every strategy starts alike.
        std::thread::sleep(Duration::from_millis(20));
        let cpu_s = thread_cpu_s();
        let begun = Instant::now();
        let received = match strategy {
            Strategy::TwoReads => two_reads(&socket),
            Strategy::Buffered => buffered(&socket),
            Strategy::Uring => uring::receive(&socket),
        };
        let (elapsed, cpu_s) = (begun.elapsed(), thread_cpu_s() - cpu_s);
        drop(socket);
        // If the reader failed, the sender fails with a broken pipe; the reader's error is more useful.
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
        let mut received = received?;
        sent?;
        received.elapsed_s = elapsed.as_secs_f64();
        received.cpu_s = cpu_s;
        Ok(received)
    })
}

fn two_reads(mut socket: &TcpStream) -> io::Result<Received> {
    let mut received = Received::default();
    let mut message = [0; MESSAGE_MAX];
    loop {
        let mut have = 0;
        // The header, which nearly always arrives in one read, then the length it gives.
        let mut wanted = HEADER_LEN;
        while have < wanted {
            let read = socket.read(&mut message[have..wanted])?;
            received.system_calls += 1;
            match (read, have) {
                (0, 0) => return Ok(received),
                (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => have += read,
            }
            if have == HEADER_LEN {
                wanted = usize::from(u16::from_be_bytes([message[16], message[17]]));
                if !(HEADER_LEN..=MESSAGE_MAX).contains(&wanted) {
                    return Err(invalid());
                }
            }
        }
        match frame(&message[..wanted], MESSAGE_MAX) {
            Ok(Some((kind, _, length))) => received.count(kind, length),
            _ => return Err(invalid()),
        }
    }
}

fn buffered(mut socket: &TcpStream) -> io::Result<Received> {
    let mut received = Received::default();
    let mut buffer = vec![0; BUFFER];
    let mut have = 0;
    loop {
        let read = socket.read(&mut buffer[have..])?;
        received.system_calls += 1;
        if read == 0 {
            return if have == 0 { Ok(received) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        have += read;
        let taken = take(&buffer[..have], &mut received)?;
        buffer.copy_within(taken..have, 0);
        have -= taken;
    }
}

/// Counts all whole messages; returns their bytes.
fn take(bytes: &[u8], received: &mut Received) -> io::Result<usize> {
    let mut taken = 0;
    while let Some((kind, _, length)) = frame(&bytes[taken..], MESSAGE_MAX).map_err(|_| invalid())? {
        received.count(kind, length);
        taken += length;
    }
    Ok(taken)
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a stream of BGP messages")
}

#[cfg(test)]
mod tests {
    use super::super::table::{Neighbors, Packing, PathKind, Table};
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn every_strategy_receives_every_message() {
        let neighbors = Neighbors { count: 1, address: Ipv4Addr::LOCALHOST, as_number: 64_600 };
        for packing in [Packing::Small, Packing::Large] {
            let stream = Table::made(5000, packing, neighbors, 3).announce(0, PathKind::Any, true);
            for strategy in Strategy::ALL {
                let received = match measure(strategy, &stream, 3) {
                    Ok(received) => received,
                    // Forbidden in some containers; there is no other way to know.
                    Err(error) if strategy == Strategy::Uring && !uring::is_allowed() => {
                        thalweg_testdata::skipped(&format!("io_uring: {error}"));
                        continue;
                    }
                    Err(error) => panic!("{strategy}: {error}"),
                };
                let messages = 3 * stream.messages() as u64;
                assert_eq!((received.messages, received.updates), (messages, messages), "{strategy}");
                assert_eq!(received.bytes, 3 * stream.bytes.len() as u64);
                let is_two = strategy == Strategy::TwoReads;
                assert_eq!(received.system_calls > 2 * messages, is_two, "{strategy}: {received:?}");
            }
        }
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        let stream = Stream { bytes: vec![0; 30], ends: vec![30], prefixes: 0 };
        for strategy in [Strategy::TwoReads, Strategy::Buffered] {
            assert_eq!(measure(strategy, &stream, 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}

//! What programs see of a router, as in the comparison of run-to-completion and pipelining (figures 4 and 5 of seed
//! document 004): throughput and half of the round-trip time over TCP, by message size.
//!
//! *Ping-pong*: a message of so many bytes goes over, one of as many comes back; half of that time, a hundred times
//! over. *Stream*: a thousand messages one way as fast as they are taken, then one byte back that says that all have
//! come. Both over one connection without Nagle's delay, from tester-a's real address to tester-b's. Segments are no
//! longer than a frame ([`super::topology`]). With them goes the direct link, as the article has it.
//!
//! The two programs run on different cores. Where the kernel chooses, they sometimes share one, and a message wakes
//! nobody: half a round trip of 3 µs instead of 22, whatever is in the way.

use super::ForwardingError;
use super::latency::Percentiles;
use super::tester::Way;
use super::topology::{DIRECT_ADDRESSES, TESTER_ADDRESSES, Topology};
use crate::cores::Cores;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Message sizes in the article's range, and fewer for a quick run.
const MESSAGE_BYTES: [usize; 10] = [1, 64, 256, 512, 1024, 2048, 4096, 16_384, 32_768, MESSAGE_BYTES_MAX];
const MESSAGE_BYTES_QUICK: [usize; 2] = [1, MESSAGE_BYTES_MAX];
const MESSAGE_BYTES_MAX: usize = 64_000;
/// How far other message sizes are from what one segment holds, and in a quick run.
const AROUND: [isize; 7] = [-64, -16, -1, 0, 1, 16, 64];
const AROUND_QUICK: [isize; 2] = [0, 1];
/// The bytes of a packet that are not payload: headers of IP and TCP, and TCP's time stamps.
const OVERHEAD: usize = 20 + 20 + 12;
/// MTUs of the article.
pub const MTUS: [usize; 2] = [1500, 1436];
/// Round trips that are timed; as many as in the article.
pub const ROUND_TRIPS: usize = 100;
/// Round trips before those.
const WARM_UP: usize = 10;
/// Messages of a stream; as many as in the article.
pub const MESSAGES: usize = 1000;
/// Nothing may stand still for longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A request: what, message size, how many; and the answer after a stream.
const REQUEST_BYTES: usize = 9;
const PING_PONG: u8 = 1;
const STREAM: u8 = 2;

/// Message sizes: over the article's range, and densely around what one segment holds with each MTU.
pub fn message_bytes(mtus: &[usize], is_quick: bool) -> Vec<usize> {
    let (sizes, around): (&[usize], &[isize]) =
        if is_quick { (&MESSAGE_BYTES_QUICK, &AROUND_QUICK) } else { (&MESSAGE_BYTES, &AROUND) };
    let near = |mtu: &usize| {
        let segment = mtu.saturating_sub(OVERHEAD);
        around.iter().filter_map(move |by| segment.checked_add_signed(*by))
    };
    let all: BTreeSet<usize> = sizes.iter().copied().chain(mtus.iter().flat_map(near)).collect();
    all.into_iter().filter(|bytes| (1..=MESSAGE_BYTES_MAX).contains(bytes)).collect()
}

/// What one message size came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// The MTU of both programs' interfaces.
    pub mtu: usize,
    pub message_bytes: usize,
    /// Half of each round trip's time.
    pub half_round_trip: Percentiles,
    /// Bytes per second of a stream.
    pub bytes_per_second: f64,
}

/// Exchanges messages of each size. Ends early, with an error, once `stop` is set.
pub fn exchange(
    topology: &Topology,
    way: Way,
    mtu: usize,
    sizes: &[usize],
    stop: &AtomicBool,
) -> Result<Vec<Exchange>, ForwardingError> {
    let [_, address] = if way == Way::Router { TESTER_ADDRESSES } else { DIRECT_ADDRESSES };
    let bind = || TcpListener::bind(SocketAddrV4::new(address, 0));
    let listener = topology.tester_b.inside(bind)?;
    let failed = |source| ForwardingError::System { what: format!("messages to {address}"), source };
    let server = listener.local_addr().map_err(failed)?;
    let cores = Cores::here().map_err(failed)?;
    let [client_core, server_core] = [0, 1].map(|place| cores.only(place));
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || server_core.run(|| serve(&listener))?);
        let ask = || {
            let stream = connect(server)?;
            sizes.iter().map(|bytes| measure(&stream, mtu, *bytes, stop)).collect::<io::Result<Vec<_>>>()
        };
        let result = topology.tester_a.inside(|| client_core.run(ask)?);
        if result.is_err() {
            // The server may still be waiting for somebody; this one says nothing.
            let _ = topology.tester_b.inside(|| connect(server));
        }
        let served = serving.join().unwrap_or_else(|_| Err(io::Error::other("the server ended early")));
        if stop.load(Ordering::Relaxed) {
            return Err(ForwardingError::Interrupted);
        }
        let result = result?;
        served.map_err(failed)?;
        Ok(result)
    })
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))
}

fn measure(
    mut stream: &TcpStream,
    mtu: usize,
    message_bytes: usize,
    stop: &AtomicBool,
) -> io::Result<Exchange> {
    let mut message = vec![0x5a; message_bytes];
    request(stream, PING_PONG, message_bytes, WARM_UP + ROUND_TRIPS)?;
    let mut halves_ns = Vec::with_capacity(ROUND_TRIPS);
    for trip in 0..WARM_UP + ROUND_TRIPS {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let begin = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        let ns = begin.elapsed().as_nanos() / 2;
        if trip >= WARM_UP {
            halves_ns.push(u64::try_from(ns).unwrap_or(u64::MAX));
        }
    }
    request(stream, STREAM, message_bytes, MESSAGES)?;
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        stream.write_all(&message)?;
    }
    stream.read_exact(&mut [0])?;
    let elapsed_s = begin.elapsed().as_secs_f64();
    Ok(Exchange {
        mtu,
        message_bytes,
        half_round_trip: Percentiles::of(halves_ns).unwrap_or_default(),
        bytes_per_second: (message_bytes * MESSAGES) as f64 / elapsed_s.max(f64::MIN_POSITIVE),
    })
}

/// Says what comes; waits until the server is ready, so that it is not part of what is timed.
fn request(mut stream: &TcpStream, what: u8, message_bytes: usize, count: usize) -> io::Result<()> {
    let mut request = [what; REQUEST_BYTES];
    request[1..5].copy_from_slice(&(message_bytes as u32).to_be_bytes());
    request[5..9].copy_from_slice(&(count as u32).to_be_bytes());
    stream.write_all(&request)?;
    stream.read_exact(&mut [0])
}

/// Serves one connection to its end.
fn serve(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    prepare(&stream)?;
    let mut message = Vec::new();
    loop {
        let mut request = [0; REQUEST_BYTES];
        match stream.read_exact(&mut request) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let [what, b0, b1, b2, b3, c0, c1, c2, c3] = request;
        message.resize((u32::from_be_bytes([b0, b1, b2, b3]) as usize).min(MESSAGE_BYTES_MAX), 0);
        let count = u32::from_be_bytes([c0, c1, c2, c3]);
        stream.write_all(&[1])?;
        for _ in 0..count {
            stream.read_exact(&mut message)?;
            if what == PING_PONG {
                stream.write_all(&message)?;
            }
        }
        if what == STREAM {
            stream.write_all(&[1])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_sizes_are_dense_around_what_a_segment_holds() {
        let sizes = message_bytes(&MTUS, false);
        assert!(sizes.is_sorted() && sizes.first() == Some(&1) && sizes.last() == Some(&64_000));
        // 1436 and 1500 bytes less 52.
        let near = |segment: usize| sizes.iter().filter(|bytes| bytes.abs_diff(segment) <= 16).count();
        assert_eq!((near(1384), near(1448)), (5, 5), "{sizes:?}");
        assert_eq!(message_bytes(&MTUS, true), [1, 1384, 1385, 1448, 1449, 64_000]);
        assert_eq!(message_bytes(&[40], true), [1, 64_000], "no room for a segment");
    }

    #[test]
    fn messages_go_over_and_come_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&listener));
            let stream = connect(server).unwrap();
            let go_on = AtomicBool::new(false);
            for bytes in [1, 5000] {
                let exchange = measure(&stream, 1500, bytes, &go_on).unwrap();
                assert_eq!((exchange.message_bytes, exchange.half_round_trip.samples), (bytes, ROUND_TRIPS));
                assert!(exchange.bytes_per_second > 0.0);
            }
            let stop = AtomicBool::new(true);
            assert_eq!(measure(&stream, 1500, 1, &stop).unwrap_err().kind(), io::ErrorKind::Interrupted);
            drop(stream);
            // In the middle of what was promised.
            assert!(serving.join().unwrap().is_err());
        });
    }
}

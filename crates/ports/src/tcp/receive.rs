//! Ways to receive from many neighbors in one thread: the same bytes, at different cost.
//!
//! | way | system calls | copies |
//! |---|---|---|
//! | [`TwoReads`] | a poll a round, and two reads a message: 19 bytes, then as many as they say (Quagga) | none |
//! | [`Buffered`] | a poll a round, and a read of up to [`READ_BYTES`] a neighbor | the consumer's rest of a message |
//! | [`Uring`] | one a round for all neighbors: the kernel fills buffers as bytes arrive | the same |
//!
//! They exist to be compared: the thesis behind the schedulings found half of its time in reading and asked for
//! hardware; this asks what software can do. The daemon reads as [`Buffered`] does.

#[cfg(feature = "io-uring")]
mod uring;

use std::collections::VecDeque;
use std::time::Duration;

use super::error::TcpError;
use super::poller::{Interest, Poller};
use super::stream::{Progress, Stream};

#[cfg(feature = "io-uring")]
pub use uring::Uring;

/// The largest read of [`Buffered`]. Larger ones are not faster: what the kernel holds of a connection seldom
/// fills it.
pub const READ_BYTES: usize = 256 << 10;

/// Reads from one neighbor before it is the others' turn.
pub const READS_PER_TURN: usize = 64;

/// The longest message [`TwoReads`] believes in (RFC 8654); a longer length closes the connection.
pub const MESSAGE_LENGTH_MAX: usize = 65_535;

const HEADER: usize = 19;

/// What a neighbor sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Bytes, in order.
    Bytes(&'a [u8]),
    /// Its end: nothing more comes. Also when the connection broke.
    Closed,
}

/// A way to receive.
pub trait Receive {
    /// Receives from a connection too, and calls it by this number.
    fn add(&mut self, stream: Stream, number: usize) -> Result<(), TcpError>;

    /// Waits until something comes (at most for `timeout`) and passes on what came, a bounded amount.
    fn receive(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(usize, Received<'_>),
    ) -> Result<(), TcpError>;
}

/// What [`TwoReads`] and [`Buffered`] have in common: a poller, and connections with more to read.
struct Polled<S> {
    poller: Poller,
    connections: Vec<Option<(Stream, S)>>,
    /// Connections that may have more to read; each once.
    ready: VecDeque<usize>,
    waiting: Vec<bool>,
    /// Connections to read until their end.
    closing: Vec<bool>,
}

impl<S: Default> Polled<S> {
    fn new() -> Result<Self, TcpError> {
        let poller = Poller::new()?;
        let (waiting, closing) = (Vec::new(), Vec::new());
        Ok(Self { poller, connections: Vec::new(), ready: VecDeque::new(), waiting, closing })
    }

    fn add(&mut self, stream: Stream, number: usize) -> Result<(), TcpError> {
        if self.connections.len() <= number {
            self.connections.resize_with(number + 1, || None);
            self.waiting.resize(number + 1, false);
            self.closing.resize(number + 1, false);
        }
        self.poller.registrar().register(&stream, number, Interest::Read)?;
        self.connections[number] = Some((stream, S::default()));
        Ok(())
    }

    /// Polls, then gives each ready connection a turn; it says whether it may have more (`None`: it is closed).
    fn round(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(usize, Received<'_>),
        mut turn: impl FnMut(&Stream, &mut S, &mut dyn FnMut(Received<'_>)) -> Option<bool>,
    ) -> Result<(), TcpError> {
        let timeout = if self.ready.is_empty() { timeout } else { Some(Duration::ZERO) };
        for event in self.poller.poll(timeout)?.iter().filter(|event| event.readable) {
            if let Some(closing) = self.closing.get_mut(event.token) {
                *closing |= event.read_closed;
            }
            if let Some(waiting) = self.waiting.get_mut(event.token)
                && !std::mem::replace(waiting, true)
            {
                self.ready.push_back(event.token);
            }
        }
        for _ in 0..self.ready.len() {
            let Some(number) = self.ready.pop_front() else { break };
            self.waiting[number] = false;
            let Some(slot) = self.connections.get_mut(number) else { continue };
            let Some((stream, state)) = slot else { continue };
            match turn(stream, state, &mut |received| sink(number, received)) {
                Some(false) if !self.closing[number] => {}
                Some(_) => {
                    self.waiting[number] = true;
                    self.ready.push_back(number);
                }
                None => {
                    *slot = None;
                    self.closing[number] = false;
                    sink(number, Received::Closed);
                }
            }
        }
        Ok(())
    }
}

/// Reads each message's header, then its body.
pub struct TwoReads(Polled<Partial>);

/// A message that is not complete.
#[derive(Default)]
struct Partial {
    bytes: Vec<u8>,
    have: usize,
}

impl TwoReads {
    /// Without connections.
    pub fn new() -> Result<Self, TcpError> {
        Polled::new().map(Self)
    }
}

impl Receive for TwoReads {
    fn add(&mut self, stream: Stream, number: usize) -> Result<(), TcpError> {
        self.0.add(stream, number)
    }

    fn receive(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(usize, Received<'_>),
    ) -> Result<(), TcpError> {
        self.0.round(timeout, sink, |stream, partial, sink| {
            for _ in 0..READS_PER_TURN {
                let want = partial.wanted()?;
                partial.bytes.resize(want, 0);
                match stream.read(&mut partial.bytes[partial.have..]) {
                    Ok(Progress::Bytes(count)) => partial.have += count,
                    Ok(Progress::WouldBlock) => return Some(false),
                    Ok(Progress::Closed) | Err(_) => {
                        if partial.have > 0 {
                            sink(Received::Bytes(&partial.bytes[..partial.have]));
                        }
                        return None;
                    }
                }
                if partial.have >= HEADER && partial.wanted()? == partial.have {
                    sink(Received::Bytes(&partial.bytes[..partial.have]));
                    partial.have = 0;
                }
            }
            Some(true)
        })
    }
}

impl Partial {
    /// How many bytes the header, and once that is there, the message has; `None` if it cannot be a message.
    fn wanted(&self) -> Option<usize> {
        if self.have < HEADER {
            return Some(HEADER);
        }
        let length = usize::from(u16::from_be_bytes([*self.bytes.get(16)?, *self.bytes.get(17)?]));
        (HEADER..=MESSAGE_LENGTH_MAX).contains(&length).then_some(length)
    }
}

/// Reads as much as there is.
pub struct Buffered {
    polled: Polled<()>,
    buffer: Box<[u8]>,
}

impl Buffered {
    /// Without connections.
    pub fn new() -> Result<Self, TcpError> {
        Ok(Self { polled: Polled::new()?, buffer: vec![0; READ_BYTES].into_boxed_slice() })
    }
}

impl Receive for Buffered {
    fn add(&mut self, stream: Stream, number: usize) -> Result<(), TcpError> {
        self.polled.add(stream, number)
    }

    fn receive(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(usize, Received<'_>),
    ) -> Result<(), TcpError> {
        let buffer = &mut self.buffer;
        self.polled.round(timeout, sink, |stream, (), sink| match stream.read(buffer) {
            Ok(Progress::Bytes(count)) => {
                sink(Received::Bytes(&buffer[..count]));
                Some(count == buffer.len())
            }
            Ok(Progress::WouldBlock) => Some(false),
            Ok(Progress::Closed) | Err(_) => None,
        })
    }
}

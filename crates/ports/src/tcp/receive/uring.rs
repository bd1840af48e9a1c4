//! Receiving by io_uring: one request per connection that stays (multishot), and buffers the kernel takes from a
//! pool as bytes arrive.
//!
//! ```text
//! connection ── RecvMulti ──┐                         completion: connection, buffer, length
//! connection ── RecvMulti ──┼── kernel fills a buffer ──> sink ── ProvideBuffers ──> pool
//! ```
//!
//! A round is one system call: it returns the buffers of the round before, waits, and finds what came to all
//! connections.
//!
//! Unsafe because the kernel writes into the pool while requests are under way. What makes that right: the pool is
//! one allocation that lives until no request does; a buffer is read only between its completion and its return;
//! dropping cancels all requests and waits for their end, and leaks the pool if that fails. What pays for it is to
//! be measured by the laboratory; nothing else uses this file.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::{Receive, Received};
use crate::tcp::error::TcpError;
use crate::tcp::stream::Stream;

/// Bytes of a buffer: what a connection delivers at once at most.
const BUFFER_BYTES: usize = 64 << 10;
/// Buffers in the pool, of all connections together.
const BUFFERS: u16 = 32;
/// Requests that one system call takes.
const ENTRIES: u32 = 128;

const GROUP: u16 = 1;
/// Marks completions that are no connection's.
const HOUSEKEEPING: u64 = u64::MAX;

/// Receives from many connections through one ring.
pub struct Uring {
    ring: IoUring,
    pool: *mut u8,
    connections: Vec<Option<Stream>>,
    /// Connections without a request.
    idle: Vec<usize>,
    /// Requests under way.
    requests: usize,
}

impl Uring {
    /// Without connections. Fails where the kernel has no io_uring, or forbids it.
    pub fn new() -> Result<Self, TcpError> {
        let ring = IoUring::new(ENTRIES).map_err(failed)?;
        let pool = vec![0_u8; usize::from(BUFFERS) * BUFFER_BYTES].into_boxed_slice();
        let pool = Box::into_raw(pool).cast::<u8>();
        let mut this = Self { ring, pool, connections: Vec::new(), idle: Vec::new(), requests: 0 };
        for buffer in 0..BUFFERS {
            this.provide(buffer)?;
        }
        Ok(this)
    }

    fn buffer(&self, buffer: u16) -> *mut u8 {
        assert!(buffer < BUFFERS, "the kernel names a buffer that it was given");
        // SAFETY: the pool has BUFFERS times BUFFER_BYTES bytes and `buffer` is below BUFFERS.
        unsafe { self.pool.add(usize::from(buffer) * BUFFER_BYTES) }
    }

    /// Gives a buffer to the kernel.
    fn provide(&mut self, buffer: u16) -> Result<(), TcpError> {
        let at = self.buffer(buffer);
        let entry = opcode::ProvideBuffers::new(at, BUFFER_BYTES as i32, 1, GROUP, buffer).build();
        self.push(entry.user_data(HOUSEKEEPING))
    }

    /// Adds a request; submits those before it if there is no room.
    fn push(&mut self, entry: squeue::Entry) -> Result<(), TcpError> {
        // SAFETY: the entry refers to the pool and to descriptors of `connections`, and both live until no
        // request does (see `drop`).
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit().map_err(failed)?;
        }
        self.requests += 1;
        Ok(())
    }

    fn request_idle(&mut self) -> Result<(), TcpError> {
        for number in std::mem::take(&mut self.idle) {
            let Some(Some(stream)) = self.connections.get(number) else { continue };
            let descriptor = types::Fd(stream.as_fd().as_raw_fd());
            let entry = opcode::RecvMulti::new(descriptor, GROUP).build();
            self.push(entry.user_data(number as u64))?;
        }
        Ok(())
    }

    fn complete(
        &mut self,
        completion: &cqueue::Entry,
        sink: &mut dyn FnMut(usize, Received<'_>),
    ) -> Result<(), TcpError> {
        let more = cqueue::more(completion.flags());
        self.requests -= usize::from(!more);
        if completion.user_data() == HOUSEKEEPING {
            return Ok(());
        }
        let number = completion.user_data() as usize;
        let buffer = cqueue::buffer_select(completion.flags());
        match usize::try_from(completion.result()) {
            Ok(length @ 1..) => {
                if let Some(buffer) = buffer {
                    let at = self.buffer(buffer);
                    // SAFETY: the kernel has filled `length` bytes, at most the buffer's, and does not touch
                    // the buffer again before it is provided below, after the slice's last use.
                    let bytes = unsafe { std::slice::from_raw_parts(at, length.min(BUFFER_BYTES)) };
                    sink(number, Received::Bytes(bytes));
                }
                if !more {
                    self.idle.push(number);
                }
            }
            // The pool was empty, or a signal came: once more.
            Err(_) if matches!(-completion.result(), libc::ENOBUFS | libc::EINTR | libc::EAGAIN) => {
                self.idle.push(number);
            }
            // Its end, or it broke.
            Ok(0) | Err(_) => {
                if let Some(slot) = self.connections.get_mut(number) {
                    *slot = None;
                }
                sink(number, Received::Closed);
            }
        }
        buffer.map_or(Ok(()), |buffer| self.provide(buffer))
    }

    /// Submits, and waits for one completion at least or until the time is over.
    fn wait(&self, timeout: Option<Duration>) -> Result<(), TcpError> {
        let result = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let time = types::Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }
}

impl Receive for Uring {
    fn add(&mut self, stream: Stream, number: usize) -> Result<(), TcpError> {
        // On a non-blocking socket a request fails instead of waiting.
        stream.set_blocking()?;
        if self.connections.len() <= number {
            self.connections.resize_with(number + 1, || None);
        }
        self.connections[number] = Some(stream);
        self.idle.push(number);
        Ok(())
    }

    fn receive(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut dyn FnMut(usize, Received<'_>),
    ) -> Result<(), TcpError> {
        self.request_idle()?;
        if self.ring.completion().is_empty() {
            self.wait(timeout)?;
        }
        // As many as the pool has buffers: then they go back.
        for _ in 0..2 * BUFFERS {
            let Some(completion) = self.ring.completion().next() else { break };
            self.complete(&completion, sink)?;
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build().user_data(HOUSEKEEPING);
        let mut canceled = self.push(cancel).is_ok();
        while canceled && self.requests > 0 {
            canceled = self.wait(Some(Duration::from_secs(1))).is_ok();
            let ended = self.ring.completion().filter(|each| !cqueue::more(each.flags())).count();
            // Everything canceled ends at once; if nothing does, the kernel is not to be trusted with the pool.
            canceled &= ended > 0;
            self.requests = self.requests.saturating_sub(ended);
        }
        if canceled {
            let pool = std::ptr::slice_from_raw_parts_mut(self.pool, usize::from(BUFFERS) * BUFFER_BYTES);
            // SAFETY: the pointer is what `into_raw` gave for a slice of this length, and no request is left
            // that writes to it.
            drop(unsafe { Box::from_raw(pool) });
        } else {
            // The descriptors must not be used again either.
            std::mem::forget(std::mem::take(&mut self.connections));
        }
    }
}

fn failed(source: io::Error) -> TcpError {
    TcpError::Poll { source }
}

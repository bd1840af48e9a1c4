//! Receives with io_uring: one multishot receive that completes repeatedly into buffers provided in advance.
//!
//! `unsafe` is needed in two places: pushing a submission, where the kernel cannot check that the memory lives
//! until completion, and reading a buffer. Its purpose is only to show which part of the cost of receiving is
//! system calls. The laboratory measures that (`thalweg lab bgp`, "receive"); nothing else uses it.
#![allow(unsafe_code)]

use super::{Received, take};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// The number of provided buffers, and the bytes of each: 1 MiB in all, as much as the socket holds.
const BUFFERS: u16 = 32;
const BUFFER: usize = 32 << 10;
const GROUP: u16 = 7;
const RECEIVE: u64 = 1;
const PROVIDE: u64 = 2;

/// Whether the kernel permits a ring at all.
#[cfg(test)]
pub(super) fn is_allowed() -> bool {
    IoUring::new(4).is_ok()
}

/// Receives until the other end closes.
pub(super) fn receive(socket: &TcpStream) -> io::Result<Received> {
    let mut received = Received::default();
    let mut buffers = vec![0u8; usize::from(BUFFERS) * BUFFER];
    let mut ring = IoUring::new(64)?;
    let receive = opcode::RecvMulti::new(types::Fd(socket.as_raw_fd()), GROUP).build().user_data(RECEIVE);
    let all = opcode::ProvideBuffers::new(buffers.as_mut_ptr(), BUFFER as i32, BUFFERS, GROUP, 0)
        .build()
        .user_data(PROVIDE);
    // SAFETY: `buffers` is not moved, and freed only below, when no request is left that could write to it.
    let outcome = unsafe { run(&mut ring, &mut buffers, &receive, &all, &mut received) };
    drop(ring);
    if outcome.is_err() {
        // The receive may still be active, and dropping a ring does not wait for it, so the buffers (1 MiB) are
        // leaked.
        std::mem::forget(buffers);
    }
    outcome.map(|()| received)
}

/// # Safety
/// `buffers` must outlive every request of `ring`.
unsafe fn run(
    ring: &mut IoUring,
    buffers: &mut [u8],
    receive: &squeue::Entry,
    all: &squeue::Entry,
    received: &mut Received,
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { push(ring, all)? };
    // SAFETY: the entry holds a descriptor and numbers, no pointer.
    unsafe { push(ring, receive)? };
    let mut carried: Vec<u8> = Vec::new();
    loop {
        ring.submit_and_wait(1)?;
        received.system_calls += 1;
        let mut given_back = Vec::new();
        let (mut ended, mut again) = (false, false);
        // Completions are taken out before new requests go in: both borrow the ring.
        for completion in ring.completion() {
            let result = completion.result();
            if completion.user_data() == PROVIDE {
                if result < 0 {
                    return Err(io::Error::from_raw_os_error(-result));
                }
                continue;
            }
            if result == -ENOBUFS {
                again = true;
                continue;
            }
            if result < 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            let Some(id) = cqueue::buffer_select(completion.flags()) else {
                ended = result == 0;
                continue;
            };
            let start = usize::from(id) * BUFFER;
            let bytes = buffers.get(start..start + result as usize).unwrap_or_default();
            handle(bytes, &mut carried, received)?;
            ended |= result == 0;
            again |= !cqueue::more(completion.flags());
            given_back.push(id);
        }
        if ended {
            return if carried.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        for id in given_back {
            let at = usize::from(id) * BUFFER;
            let buffer = buffers.get_mut(at..at + BUFFER).unwrap_or_default().as_mut_ptr();
            let one =
                opcode::ProvideBuffers::new(buffer, BUFFER as i32, 1, GROUP, id).build().user_data(PROVIDE);
            // SAFETY: the caller's promise; nobody reads the buffer until the kernel has filled it.
            unsafe { push(ring, &one)? };
        }
        if again {
            // SAFETY: no pointer in it.
            unsafe { push(ring, receive)? };
        }
    }
}

const ENOBUFS: i32 = 105;

/// # Safety
/// What `entry` points to must live until it has completed.
unsafe fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the caller's promise.
    if unsafe { ring.submission().push(entry) }.is_ok() {
        return Ok(());
    }
    ring.submit()?;
    // SAFETY: the caller's promise.
    unsafe { ring.submission().push(entry) }.map_err(|_| io::Error::other("the submission queue is full"))
}

/// Counts the messages of a buffer; keeps the incomplete one at its end.
fn handle(bytes: &[u8], carried: &mut Vec<u8>, received: &mut Received) -> io::Result<()> {
    if carried.is_empty() {
        let taken = take(bytes, received)?;
        carried.extend_from_slice(&bytes[taken..]);
    } else {
        carried.extend_from_slice(bytes);
        let taken = take(carried, received)?;
        carried.drain(..taken);
    }
    Ok(())
}

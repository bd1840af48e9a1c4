//! Connections that end with a NOTIFICATION.
//!
//! A socket that is closed while the other end still sends answers with a reset, and a program that gets a reset
//! may never read what came before it. So we write the NOTIFICATION, shut down our direction, and discard what
//! still arrives until the other end closes too: for [`TIME_MS`] at most, with a bounded number of bytes read every
//! half second. Nothing waits for it.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

use thalweg_base::uninterrupted;
use thalweg_bgp::peer::Millis;
use thalweg_wire::bgp::{Notification, error};

use super::network::ByteStream;

/// Time that the other end has to close, in milliseconds.
const TIME_MS: u64 = 5000;

/// Connections at most. The next neighbor displaces the oldest.
const PARTING_MAX: usize = 256;

/// Strangers get no room beyond this number, so that they cannot displace neighbors.
const STRANGERS_MAX: usize = PARTING_MAX / 4;

/// Bytes that one read takes.
const READ_BYTES: usize = 16 << 10;
const READS_PER_LOOK: usize = 16;

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Neighbor,
    Stranger,
}

/// All connections that are ending.
#[derive(Default)]
pub(super) struct Partings(Mutex<VecDeque<Parting>>);

struct Parting {
    stream: Box<dyn ByteStream>,
    /// Bytes still to be written.
    words: Vec<u8>,
    is_shut: bool,
    until: Millis,
}

impl Partings {
    /// Writes `words` and closes the connection when the other end has closed it or [`TIME_MS`] have passed.
    pub(super) fn part(&self, stream: Box<dyn ByteStream>, words: Vec<u8>, whose: Whose, now: Millis) {
        let mut parting = Parting { stream, words, is_shut: false, until: Millis(now.0 + TIME_MS) };
        if parting.step(&mut [0; 4096]) {
            return;
        }
        let mut all = self.0.lock();
        match whose {
            Whose::Stranger if all.len() >= STRANGERS_MAX => return,
            Whose::Neighbor if all.len() >= PARTING_MAX => drop(all.pop_front()),
            _ => {}
        }
        all.push_back(parting);
    }

    /// Whether no connection is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Serves all connections; returns whether any are left.
    pub(super) fn look(&self, now: Millis) -> bool {
        let mut all = self.0.lock();
        if all.is_empty() {
            return false;
        }
        let mut buffer = vec![0; READ_BYTES];
        all.retain_mut(|parting| now < parting.until && !parting.step(&mut buffer));
        !all.is_empty()
    }
}

impl Parting {
    /// Reads, writes and shuts down as far as the socket allows; returns whether the connection is finished.
    /// Reading comes first: a neighbor that blocks on a write reads nothing before we take its bytes.
    fn step(&mut self, buffer: &mut [u8]) -> bool {
        let mut has_ended = false;
        for _ in 0..READS_PER_LOOK {
            match uninterrupted(|| self.stream.read(buffer)) {
                Ok(0) => has_ended = true,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
            break;
        }
        while !self.words.is_empty() {
            match uninterrupted(|| self.stream.write_vectored(&[IoSlice::new(&self.words)])) {
                Ok(0) => return true,
                Ok(written) => drop(self.words.drain(..written)),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        if !std::mem::replace(&mut self.is_shut, true) && self.stream.shut_down_write().is_err() {
            return true;
        }
        has_ended
    }
}

/// A Cease NOTIFICATION.
pub(super) fn cease(subcode: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    Notification::new(error::CEASE, subcode).write(&mut bytes);
    bytes
}

//! Outgoing messages: the open one, and closed ones that wait to be polled.
//!
//! All are consecutive in one buffer, which is reused from its beginning when every message was taken. It
//! grows with the work of one call and shrinks again after an unusually large one; after a few calls nothing
//! is allocated.

use super::{Amount, ExportTotals};
use std::collections::VecDeque;
use std::ops::Range;

/// The most memory that the empty buffer keeps, in bytes.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Consecutive messages of one length; the last may be shorter.
#[derive(Debug, Default)]
pub struct Train {
    bytes: Vec<u8>,
    each: usize,
    amounts: Vec<Amount>,
}

impl Train {
    /// All messages, concatenated.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length of every message but the last.
    pub fn message_bytes(&self) -> usize {
        self.each
    }

    /// Each message with the amount in it.
    pub fn messages(&self) -> impl Iterator<Item = (&[u8], Amount)> {
        self.bytes.chunks(self.each.max(1)).zip(self.amounts.iter().copied())
    }

    /// The amount in all messages.
    pub fn amount(&self) -> Amount {
        self.amounts.iter().copied().sum()
    }
}

/// The buffer; see the module documentation.
pub(super) struct MessageBuffer {
    buffer: Vec<u8>,
    /// The beginning of the open message, and the end of the closed ones.
    start: usize,
    /// The write position; equal to `start` if no message is open.
    at: usize,
    /// The limit of the open message.
    limit: usize,
    opened_ns: Option<u64>,
    closed: VecDeque<(Range<usize>, Amount)>,
    message_bytes_max: usize,
    /// The amount in the open message.
    pub(super) counts: Amount,
    pub(super) totals: ExportTotals,
    /// The time of the call in progress.
    pub(super) now_ns: u64,
}

impl MessageBuffer {
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            at: 0,
            limit: 0,
            opened_ns: None,
            closed: VecDeque::new(),
            message_bytes_max,
            counts: Amount::default(),
            totals: ExportTotals::default(),
            now_ns: 0,
        }
    }

    pub(super) fn opened_ns(&self) -> Option<u64> {
        self.opened_ns
    }

    pub(super) fn is_open(&self) -> bool {
        self.opened_ns.is_some()
    }

    /// Opens a message with an empty header. The limit of its records is rounded down to a multiple of `align`
    /// bytes, which leaves room for padding.
    pub(super) fn open(&mut self, header_bytes: usize, align: usize) {
        let end = self.start + self.message_bytes_max;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.at = self.start + header_bytes;
        self.limit = end - self.message_bytes_max % align;
        self.opened_ns = Some(self.now_ns);
    }

    /// Bytes that the open message can still take.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.limit - self.at
    }

    /// The next bytes of the open message, for writing; the caller ensures that they fit.
    #[inline(always)]
    pub(super) fn take(&mut self, bytes: usize) -> &mut [u8] {
        debug_assert!(bytes <= self.left());
        let at = self.at;
        self.at += bytes;
        &mut self.buffer[at..at + bytes]
    }

    /// Appends bytes; the caller ensures that they fit.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.take(bytes.len()).copy_from_slice(bytes);
    }

    /// The write position relative to the beginning of the open message.
    pub(super) fn position(&self) -> usize {
        self.at - self.start
    }

    pub(super) fn patch(&mut self, position: usize, bytes: &[u8]) {
        let at = self.start + position;
        self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Closes the open message; returns its length in bytes.
    pub(super) fn close(&mut self) -> usize {
        let bytes = self.position();
        self.closed.push_back((self.start..self.at, self.counts));
        self.counts = Amount::default();
        self.start = self.at;
        self.opened_ns = None;
        bytes
    }

    /// See [`Exporter::poll_message`](super::Exporter::poll_message).
    pub(super) fn poll(&mut self, message: &mut Vec<u8>) -> Option<Amount> {
        let Some((range, counts)) = self.closed.pop_front() else {
            self.rewind();
            return None;
        };
        message.clear();
        message.extend_from_slice(&self.buffer[range]);
        Some(counts)
    }

    /// See [`Exporter::poll_train`](super::Exporter::poll_train).
    pub(super) fn poll_train(&mut self, train: &mut Train, bytes_max: usize, messages_max: usize) -> bool {
        train.amounts.clear();
        let Some((first, counts)) = self.closed.pop_front() else {
            self.rewind();
            return false;
        };
        train.each = first.len();
        train.amounts.push(counts);
        let mut end = first.end;
        let mut longest = train.each;
        // Messages are consecutive; nothing can follow a shorter one.
        while longest == train.each
            && train.amounts.len() < messages_max
            && let Some((next, counts)) = self.closed.front()
            && next.len() <= train.each
            && next.end - first.start <= bytes_max
        {
            longest = next.len();
            end = next.end;
            train.amounts.push(*counts);
            self.closed.pop_front();
        }
        train.bytes.clear();
        train.bytes.extend_from_slice(&self.buffer[first.start..end]);
        true
    }

    /// Drops all messages, open and closed; returns the amount in them.
    pub(super) fn clear(&mut self) -> Amount {
        let closed = self.closed.drain(..).map(|(_, counts)| counts);
        let unsent = closed.chain([std::mem::take(&mut self.counts)]).sum();
        self.opened_ns = None;
        self.start = 0;
        self.at = 0;
        unsent
    }

    /// Moves the open message to the beginning of the buffer, which is otherwise empty.
    fn rewind(&mut self) {
        if self.start == 0 {
            return;
        }
        self.buffer.copy_within(self.start..self.at, 0);
        self.at -= self.start;
        self.limit = self.limit.saturating_sub(self.start);
        self.start = 0;
        if self.buffer.len() > KEPT_BYTES_MAX {
            self.buffer.truncate(self.message_bytes_max);
            self.buffer.shrink_to_fit();
        }
    }
}

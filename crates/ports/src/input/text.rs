//! Reads text traces: every line becomes a packet in the slab.
//!
//! Packets are 64 bytes apart, so that each shares one cache line with its frame and its Ethernet header.

use super::chunks::Chunks;
use super::report::Reporter;
use super::stream::Stream;
use crate::PortNames;
use std::sync::Arc;
use thalweg_base::{Chunk, ChunkBuilder, LinkType};
use thalweg_wire::trace::{
    Expected, FieldOrder, LINE_BYTES_MAX, PACKET_SLOT, Step, TraceError, TraceLine, WIRE_OVERHEAD, next_line,
    parse_line,
};

/// Bytes of text read at a time: they fit the second-level cache together with their packets.
const TEXT_BYTES: usize = 256 * 1024;

pub(super) struct TextReader {
    stream: Stream,
    name: Arc<str>,
    port: Option<u16>,
    names: Arc<PortNames>,
    text: Vec<u8>,
    pos: usize,
    filled: usize,
    /// Lines taken.
    lines: u64,
    /// Bytes of these lines.
    bytes: u64,
    /// The rest of an overlong line is being discarded.
    in_long_line: bool,
    ended: bool,
}

impl TextReader {
    pub(super) fn new(stream: Stream, name: Arc<str>, port: Option<u16>, names: Arc<PortNames>) -> Self {
        let text = vec![0; TEXT_BYTES];
        Self {
            stream,
            name,
            port,
            names,
            text,
            pos: 0,
            filled: 0,
            lines: 0,
            bytes: 0,
            in_long_line: false,
            ended: false,
        }
    }

    /// The next chunk of this file; `None` at its end.
    pub(super) fn next_chunk(&mut self, chunks: &mut Chunks, reporter: &mut Reporter) -> Option<Chunk> {
        if self.ended {
            return None;
        }
        let mut filling = Filling::new(chunks);
        let (lines_before, bytes_before) = (self.lines, self.bytes);
        while !reporter.is_fatal() && filling.builder.len() < chunks.packets_max {
            self.take_lines(&mut filling, chunks, reporter);
            if reporter.is_fatal() || filling.builder.len() >= chunks.packets_max {
                break;
            }
            if !self.refill(reporter) {
                self.last_line(&mut filling, reporter);
                self.ended = true;
                break;
            }
        }
        self.ended |= reporter.is_fatal();
        chunks.trace_packets += filling.builder.len() as u64;
        reporter.add(self.lines - lines_before, 0, self.bytes - bytes_before, 0);
        chunks.finish(filling.builder, filling.latest_ns, reporter)
    }

    /// Takes lines from the available text until it or the chunk is exhausted.
    fn take_lines(&mut self, filling: &mut Filling, chunks: &Chunks, reporter: &mut Reporter) {
        let from = self.pos;
        let order = filling.order;
        while filling.builder.len() < chunks.packets_max {
            let (len, step) = next_line(&self.text[self.pos..self.filled], order);
            match step {
                Step::Packet(line) if !self.in_long_line => {
                    let port = match self.port {
                        Some(port) => port,
                        None => self.names.port_of(line.port),
                    };
                    filling.push(&line, port);
                }
                Step::Incomplete => break,
                Step::Bad(error) if !self.in_long_line => {
                    self.bad(&error, reporter);
                    if reporter.is_fatal() {
                        self.pos += len;
                        self.lines += 1;
                        break;
                    }
                }
                _ => {}
            }
            self.in_long_line = false;
            self.pos += len;
            self.lines += 1;
        }
        self.bytes += (self.pos - from) as u64;
    }

    /// Makes room and reads more text; returns `false` at the end of the stream.
    fn refill(&mut self, reporter: &mut Reporter) -> bool {
        let waiting = self.filled - self.pos;
        if waiting > LINE_BYTES_MAX {
            if !self.in_long_line {
                self.bad(&TraceError { column: LINE_BYTES_MAX + 1, expected: Expected::LineFeed }, reporter);
            }
            self.in_long_line = true;
            self.bytes += waiting as u64;
            self.filled = 0;
        } else {
            self.text.copy_within(self.pos..self.filled, 0);
            self.filled = waiting;
        }
        self.pos = 0;
        let read = self.stream.read(&mut self.text[self.filled..]);
        self.filled += read;
        read > 0
    }

    /// Handles a last line without a line feed, or reports an error that cut the stream short.
    fn last_line(&mut self, filling: &mut Filling, reporter: &mut Reporter) {
        let failure = self.stream.take_failure();
        let rest = self.filled - self.pos;
        self.bytes += rest as u64;
        if let Some(error) = failure {
            let what = format!("expected more lines, but reading failed: {error}");
            reporter.bad_line(&self.name, self.lines + 1, rest + 1, "read-error", &what);
            return;
        }
        if rest == 0 && !self.in_long_line {
            return;
        }
        self.lines += 1;
        if self.in_long_line {
            return;
        }
        let line = &self.text[self.pos..self.filled];
        match parse_line(line, filling.order) {
            Ok(Some(line)) => {
                let port = self.port.unwrap_or_else(|| self.names.port_of(line.port));
                filling.push(&line, port);
            }
            Ok(None) => {}
            Err(error) => self.bad_at(self.lines, &error, reporter),
        }
    }

    #[cold]
    fn bad(&self, error: &TraceError, reporter: &mut Reporter) {
        self.bad_at(self.lines + 1, error, reporter);
    }

    fn bad_at(&self, line: u64, error: &TraceError, reporter: &mut Reporter) {
        reporter.bad_line(&self.name, line, error.column, error.expected.reason(), error);
    }
}

/// A chunk under construction.
struct Filling {
    builder: ChunkBuilder,
    order: FieldOrder,
    /// Where the next packet goes.
    at: usize,
    arrival_ns: u64,
    step_ns: u64,
    latest_ns: u64,
}

impl Filling {
    fn new(chunks: &Chunks) -> Self {
        let mut builder = chunks.builder();
        builder.grow((chunks.packets_max + 2) * PACKET_SLOT);
        // A frame with its headroom must begin a cache line.
        let lead = builder.buffer_mut().as_ptr().align_offset(PACKET_SLOT).min(PACKET_SLOT);
        let step_ns = chunks.options.trace_step_ns;
        let passed_ns = chunks.trace_packets.saturating_mul(step_ns);
        Self {
            builder,
            order: chunks.options.field_order,
            at: lead + ChunkBuilder::HEADROOM,
            arrival_ns: chunks.options.trace_start_ns.saturating_add(passed_ns),
            step_ns,
            latest_ns: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, line: &TraceLine<'_>, port: u16) {
        if self.builder.buffer_mut().len() < self.at + PACKET_SLOT {
            self.builder.grow((self.at + PACKET_SLOT) * 2);
        }
        let Some(slot) = self
            .builder
            .buffer_mut()
            .get_mut(self.at..)
            .and_then(|rest| rest.first_chunk_mut::<PACKET_SLOT>())
        else {
            return; // Cannot happen: grown above.
        };
        let len = line.write_packet(slot);
        let wire_len = (len + WIRE_OVERHEAD) as u32;
        self.builder.push(self.at, len, wire_len, self.arrival_ns, LinkType::RawIp, port, line.application);
        self.latest_ns = self.arrival_ns;
        self.arrival_ns = self.arrival_ns.saturating_add(self.step_ns);
        // A packet and the headroom of the next fit one slot; the longest IPv6 packets need two.
        self.at += if len + ChunkBuilder::HEADROOM <= PACKET_SLOT { PACKET_SLOT } else { 2 * PACKET_SLOT };
    }
}

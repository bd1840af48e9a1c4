//! Text traces, in two halves: [`TextReader`] cuts off the lines of a chunk, [`Lines`] makes packets of them.
//!
//! Cutting only searches line feeds, a tenth of the work, so any number of threads can parse what one cuts. Both
//! halves count the same lines as packets: all but blank ones and comments. So the time of each packet is known
//! before the lines in front of it are parsed; that of a malformed line stays empty.
//!
//! Packets are 64 bytes apart, so that each shares one cache line with its frame and its Ethernet header.

use super::chunks::{Chunks, TextPool};
use super::report::{Begun, Reporter};
use super::stream::Stream;
use crate::PortNames;
use memchr::memchr_iter;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ChunkBuilder, LinkType, Parse};
use thalweg_wire::trace::{
    FieldOrder, LINE_BYTES_MAX, PACKET_SLOT, Step, TraceError, TraceLine, WIRE_OVERHEAD, each_line,
    parse_line,
};

/// The assumed bytes of a line until the first chunk is complete.
const LINE_BYTES_GUESS: usize = 48;
/// The smallest read.
const READ_BYTES_MIN: usize = 4096;
/// What is kept of a line that is too long: enough to see that.
const LINE_BYTES_KEPT: usize = LINE_BYTES_MAX + 1;
/// Room behind the last line, because lines are examined in windows.
const BEHIND: usize = 128;

pub(super) struct TextReader {
    stream: Stream,
    trace: Arc<Trace>,
    /// Text behind the last chunk's.
    carry: Vec<u8>,
    /// Lines cut off.
    lines: u64,
    /// The expected bytes of a chunk, from the previous one.
    chunk_bytes: usize,
    ended: bool,
}

/// What all lines of a trace have in common.
#[derive(Debug)]
struct Trace {
    input: Begun,
    port: Option<u16>,
    names: Arc<PortNames>,
    order: FieldOrder,
    step_ns: u64,
    reporter: Reporter,
    texts: TextPool,
}

impl Trace {
    #[cold]
    fn bad_line(&self, line: u64, error: &TraceError) {
        self.reporter.bad_line(&self.input, (line, error.column), error.expected.reason(), error);
    }
}

/// The lines of a chunk.
#[derive(Debug)]
pub(super) struct Lines {
    trace: Arc<Trace>,
    text: Vec<u8>,
    /// Where they are in the text.
    range: Range<usize>,
    /// The number of the first line.
    first: u64,
    /// How many have a packet unless they are malformed; at least one.
    packets: usize,
    /// Arrival of the first packet.
    arrival_ns: u64,
}

/// Text from which a chunk is cut off.
struct Cut {
    text: Vec<u8>,
    /// The line of the first packet.
    from: usize,
    /// The line whose end is not known yet. There is no line feed between it and `searched`.
    at: usize,
    searched: usize,
    filled: usize,
    lines: u64,
    /// Lines before that of the first packet.
    skipped: u64,
    packets: usize,
}

impl TextReader {
    pub(super) fn new(
        stream: Stream,
        input: Begun,
        port: Option<u16>,
        names: Arc<PortNames>,
        chunks: &Chunks,
        reporter: &Reporter,
    ) -> Self {
        let trace = Trace {
            input,
            port,
            names,
            order: chunks.options.field_order,
            step_ns: chunks.options.trace_step_ns,
            reporter: reporter.clone(),
            texts: Arc::clone(&chunks.texts),
        };
        let chunk_bytes = chunks.packets_max * LINE_BYTES_GUESS;
        Self { stream, trace: Arc::new(trace), carry: Vec::new(), lines: 0, chunk_bytes, ended: false }
    }

    /// The lines of the next chunk; `None` at the end of this file.
    pub(super) fn next_lines(&mut self, chunks: &mut Chunks) -> Option<Lines> {
        if self.ended {
            return None;
        }
        let mut cut = Cut::new(self.trace.texts.lock().pop().unwrap_or_default(), &self.carry);
        let mut bytes = self.carry.len() as u64;
        while !cut.take_lines(self.trace.order, chunks) {
            let read = self.fill(&mut cut, chunks.packets_max);
            bytes += read as u64;
            if read == 0 {
                self.last_line(&mut cut, chunks);
                break;
            }
        }
        self.carry.clear();
        self.carry.extend_from_slice(&cut.text[cut.at..cut.filled]);
        self.trace.reporter.add(cut.lines, 0, bytes.saturating_sub(self.carry.len() as u64));
        let first = self.lines + cut.skipped + 1;
        self.lines += cut.lines;
        if cut.packets == 0 {
            self.trace.texts.lock().push(cut.text);
            return None;
        }
        let range = cut.from..cut.at;
        if cut.packets == chunks.packets_max {
            self.chunk_bytes = range.len();
        }
        let arrival_ns = chunks.next_arrival(cut.packets);
        let trace = Arc::clone(&self.trace);
        Some(Lines { trace, text: cut.text, range, first, packets: cut.packets, arrival_ns })
    }

    /// Reads as much text as the rest of the chunk is expected to need; returns how much there was.
    fn fill(&mut self, cut: &mut Cut, packets_max: usize) -> usize {
        if cut.packets == 0 {
            cut.make_room();
        }
        let taken = cut.at - cut.from;
        let rest = (taken * (packets_max - cut.packets)).checked_div(cut.packets);
        let expected = rest.unwrap_or(self.chunk_bytes).min(self.chunk_bytes);
        let target = cut.filled.max(cut.at + expected) + READ_BYTES_MIN;
        cut.grow(target);
        let read = self.stream.read(&mut cut.text[cut.filled..target]);
        cut.filled += read;
        read
    }

    /// Handles a last line without a line feed, or reports an error that cut the stream short.
    fn last_line(&mut self, cut: &mut Cut, chunks: &Chunks) {
        let rest = cut.filled - cut.at;
        if let Some(error) = self.stream.take_failure() {
            let what = format!("expected more lines, but reading failed: {error}");
            let place = (self.lines + cut.lines + 1, rest + 1);
            self.trace.reporter.bad_line(&self.trace.input, place, "read-error", &what);
            cut.filled = cut.at;
        } else if rest > 0 {
            cut.grow(cut.filled + 1);
            cut.text[cut.filled] = b'\n';
            cut.filled += 1;
            cut.take_lines(self.trace.order, chunks);
        }
        // A line that is too long for this chunk is the next one.
        self.ended = cut.at == cut.filled;
    }
}

impl Cut {
    fn new(text: Vec<u8>, carry: &[u8]) -> Self {
        let filled = carry.len();
        let mut cut = Self { text, from: 0, at: 0, searched: 0, filled, lines: 0, skipped: 0, packets: 0 };
        cut.grow(filled);
        cut.text[..filled].copy_from_slice(carry);
        cut
    }

    fn grow(&mut self, bytes: usize) {
        if self.text.len() < bytes + BEHIND {
            self.text.resize(bytes + BEHIND, 0);
        }
    }

    /// Takes whole lines. Returns whether the chunk is complete; otherwise it needs more text.
    fn take_lines(&mut self, order: FieldOrder, chunks: &Chunks) -> bool {
        loop {
            let mut too_long = None;
            let searched = self.searched;
            for found in memchr_iter(b'\n', &self.text[searched..self.filled]) {
                let end = searched + found;
                if end - self.at > LINE_BYTES_KEPT {
                    too_long = Some(end);
                    break;
                }
                if self.packets > 0 && end - self.from >= chunks.bytes_max {
                    return true;
                }
                // Blank lines and comments begin with nothing above `#`.
                let line = &self.text[self.at..end];
                let has_packet = self.text[self.at] > b'#' || !matches!(parse_line(line, order), Ok(None));
                self.at = end + 1;
                self.lines += 1;
                if has_packet {
                    self.packets += 1;
                    if self.packets == chunks.packets_max {
                        return true;
                    }
                } else if self.packets == 0 {
                    (self.from, self.skipped) = (self.at, self.lines);
                }
            }
            match too_long {
                Some(end) => self.shorten(end),
                None => {
                    self.searched = self.filled;
                    if self.filled - self.at > LINE_BYTES_KEPT {
                        self.shorten(self.filled);
                    }
                    return false;
                }
            }
        }
    }

    /// Removes what is too much of the line that reaches to `end`.
    fn shorten(&mut self, end: usize) {
        let kept = self.at + LINE_BYTES_KEPT;
        self.text.copy_within(end..self.filled, kept);
        self.filled -= end - kept;
        self.searched = kept;
    }

    /// Moves the text to the front when no line of it has a packet.
    fn make_room(&mut self) {
        self.text.copy_within(self.at..self.filled, 0);
        (self.searched, self.filled) = (self.searched - self.at, self.filled - self.at);
        (self.from, self.at) = (0, 0);
    }
}

impl Lines {
    /// The number of packets if no line is malformed.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// Arrival of the last packet.
    pub(super) fn latest_ns(&self) -> u64 {
        self.arrival_ns.saturating_add(self.trace.step_ns.saturating_mul(self.packets as u64 - 1))
    }
}

impl Parse for Lines {
    fn parse(self: Box<Self>, builder: &mut ChunkBuilder) {
        let Lines { trace, text, range, first, packets, arrival_ns } = *self;
        let mut filling = Filling::new(builder, packets, arrival_ns, trace.step_ns);
        let mut number = first;
        each_line(&text, range, trace.order, |step| {
            match step {
                Step::Packet(line) => {
                    let port = trace.port.unwrap_or_else(|| trace.names.port_of(line.port));
                    filling.push(&line, port);
                }
                Step::Nothing => {}
                Step::Bad(error) => {
                    trace.bad_line(number, &error);
                    if trace.reporter.is_strict() {
                        return false;
                    }
                    filling.pass_over();
                }
            }
            number += 1;
            true
        });
        trace.reporter.add_packets(&trace.input, builder.len());
        trace.texts.lock().push(text);
    }
}

/// A chunk under construction.
struct Filling<'b> {
    builder: &'b mut ChunkBuilder,
    /// Where the next packet goes.
    at: usize,
    arrival_ns: u64,
    step_ns: u64,
}

impl<'b> Filling<'b> {
    fn new(builder: &'b mut ChunkBuilder, packets: usize, arrival_ns: u64, step_ns: u64) -> Self {
        builder.grow((packets + 2) * PACKET_SLOT);
        // A frame with its headroom must begin a cache line.
        let lead = builder.buffer_mut().as_ptr().align_offset(PACKET_SLOT).min(PACKET_SLOT);
        Self { builder, at: lead + ChunkBuilder::HEADROOM, arrival_ns, step_ns }
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
        self.pass_over();
        // A packet and the headroom of the next fit one slot; the longest IPv6 packets need two.
        self.at += if len + ChunkBuilder::HEADROOM <= PACKET_SLOT { PACKET_SLOT } else { 2 * PACKET_SLOT };
    }

    /// Leaves the time of a packet to it.
    #[inline(always)]
    fn pass_over(&mut self) {
        self.arrival_ns = self.arrival_ns.saturating_add(self.step_ns);
    }
}

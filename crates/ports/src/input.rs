//! Reads packets from files into chunks: text traces and captures, plain or compressed.
//!
//! ```text
//! files -> (decompress, its own thread) -> FileSource -> Chunk, perhaps unparsed -> a model
//!                                              ^                                      |
//!                                              +----------- slabs come back ----------+
//! ```
//!
//! # Threads
//! The thread that asks for a chunk reads it. Bytes that the kernel has just copied are then in the cache of the
//! core that works on them. To find the ends of a capture's packets is all that there is to parse; of a trace,
//! [`FileSource::next_cut`] only finds the ends of lines, and the thread that gets the chunk has them
//! [parsed](Chunk::parse).
//!
//! # Promises
//! - **Constant memory.** Chunks are read into a fixed number of slabs; while all are in flight, the reader
//!   waits. [`InputOptions::slabs`] times [`InputOptions::slab_bytes`] is the most they hold, and the most that text
//!   holds which is not parsed yet.
//! - **Frames stay where they were read.** The record header in front of a frame is the headroom that a chunk
//!   needs, so only the kernel copies a capture's bytes. Only bytes read beyond the end of a chunk (a few
//!   records) move to the next slab.
//! - **Chunks depend on the input alone**, not on how a pipe delivers it or who parses it: a chunk ends when it has
//!   `chunk_packets` packets, when the next record or line would end more than `slab_bytes` behind the start of its
//!   first (frames of more than 1,600 bytes on average), or with its file. A malformed line counts as a packet.
//! - **Damage is reported, not hidden.** Everything before it is delivered. A malformed line costs one
//!   packet; in a capture nothing after the damage can be trusted, so that file ends there and the next
//!   follows. With `strict` the first of either is an error. Offsets count in the uncompressed stream. Inputs
//!   without any usable packet are named.
//!
//! # Formats and ports
//! Compression and format are recognized by content. A packet arrives on the port given for its file
//! (`port=PATH`), otherwise on the one that its line or its capture's interface names. In a trace, an unknown
//! name gives [`UNKNOWN_PORT`](thalweg_base::UNKNOWN_PORT), and the packet is dropped. Captures name
//! interfaces of another machine, so an unknown name is like none: [`NO_PORT`](thalweg_base::NO_PORT), and
//! the router decides.
//!
//! A trace has no times: its packets arrive `trace_step_ns` apart. The time of a malformed line stays empty.
//!
//! Missing: several readers at once; following a file that grows.

mod capture;
mod chunks;
mod preload;
mod report;
mod spec;
mod stream;
mod text;

#[cfg(test)]
mod tests;

pub use report::{ISSUES_KEPT, InputError, InputReport, Issue, Place, Progress};
pub use spec::InputSpec;
pub(crate) use stream::ReadAhead;
pub use stream::decompressed;

use crate::PortNames;
use capture::CaptureReader;
use chunks::Chunks;
use report::Reporter;
use spec::Location;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use stream::Stream;
use text::TextReader;
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk, ChunkBuilder};
use thalweg_wire::trace::FieldOrder;

/// How input is read.
#[derive(Clone, Debug)]
pub struct InputOptions {
    /// 1 to 65,535; other values are limited to that range.
    pub chunk_packets: usize,
    /// The most chunks in memory: in the queue and in use by a model. At least 1.
    pub slabs: usize,
    /// Stop at the first malformed line or damage.
    pub strict: bool,
    pub field_order: FieldOrder,
    /// Arrival of the first packet of text traces.
    pub trace_start_ns: u64,
    /// Time between the packets of text traces.
    pub trace_step_ns: u64,
    /// Decompress in a separate thread.
    pub read_ahead: bool,
}

impl Default for InputOptions {
    fn default() -> Self {
        Self {
            chunk_packets: CHUNK_PACKETS_DEFAULT,
            slabs: 32,
            strict: false,
            field_order: FieldOrder::default(),
            trace_start_ns: 0,
            trace_step_ns: 1000,
            read_ahead: true,
        }
    }
}

impl InputOptions {
    /// The most bytes one chunk's slab holds.
    pub fn slab_bytes(&self) -> usize {
        (self.packets() * 1600).max(1 << 20)
    }

    fn packets(&self) -> usize {
        self.chunk_packets.clamp(1, ChunkBuilder::PACKETS_MAX)
    }
}

/// Reads files consecutively into chunks. Sequence and packet numbers continue from file to file, and the
/// clock never goes back.
pub struct FileSource {
    waiting: VecDeque<Waiting>,
    current: Option<Reader>,
    names: Arc<PortNames>,
    chunks: Chunks,
    reporter: Reporter,
    read_ahead: bool,
    failed: bool,
}

struct Waiting {
    name: Arc<str>,
    location: Location,
    port: Option<u16>,
}

enum Reader {
    Text(Box<TextReader>),
    Capture(Box<CaptureReader>),
}

impl FileSource {
    /// Opens these inputs. Errors with [`InputError::NoSuchPort`] or, for a missing file,
    /// [`InputError::Open`], before anything is read.
    pub fn open(specs: Vec<InputSpec>, names: PortNames, options: &InputOptions) -> Result<Self, InputError> {
        let mut waiting = VecDeque::with_capacity(specs.len());
        let mut bytes_total = Some(0);
        for spec in specs {
            let port = match &spec.port {
                None => None,
                Some(port) => Some(names.find(port.as_bytes()).ok_or_else(|| InputError::NoSuchPort {
                    input: spec.name().to_string(),
                    port: port.clone(),
                })?),
            };
            let name: Arc<str> = spec.name().into();
            let bytes =
                spec.location.bytes().map_err(|error| InputError::Open { input: name.to_string(), error })?;
            bytes_total = bytes_total.zip(bytes).map(|(total, more): (u64, u64)| total + more);
            waiting.push_back(Waiting { name, location: spec.location, port });
        }
        Ok(Self {
            waiting,
            current: None,
            names: Arc::new(names),
            chunks: Chunks::new(options),
            reporter: Reporter::new(options.strict, bytes_total),
            read_ahead: options.read_ahead,
            failed: false,
        })
    }

    /// Shared counters of the progress.
    pub fn progress(&self) -> Arc<Progress> {
        self.reporter.progress()
    }

    /// The report so far, on what was parsed.
    pub fn report(&self) -> InputReport {
        self.reporter.report()
    }

    /// The next chunk; waits for a slab if all are in flight. `None` is the end. No chunk is empty. Nothing follows
    /// an error.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, InputError> {
        self.next(true)
    }

    /// As [`Self::next_chunk`], but the chunk may have to be [parsed](Chunk::parse) first, and may turn out to be
    /// empty: its lines are malformed. A strict source parses, because nothing may follow a bad line.
    pub fn next_cut(&mut self) -> Result<Option<Chunk>, InputError> {
        self.next(self.reporter.is_strict())
    }

    fn next(&mut self, parses: bool) -> Result<Option<Chunk>, InputError> {
        while !self.failed {
            if let Some(issue) = self.reporter.fatal() {
                self.failed = true;
                return Err(InputError::Strict(issue));
            }
            let Some(reader) = &mut self.current else {
                match self.waiting.pop_front() {
                    None => break,
                    Some(input) => {
                        let opened = self.start(input);
                        self.failed = opened.is_err();
                        self.current = opened?;
                        if self.current.is_none() {
                            self.reporter.end_file();
                        }
                        continue;
                    }
                }
            };
            let chunk = match reader {
                Reader::Text(text) => match text.next_lines(&mut self.chunks) {
                    Some(lines) => {
                        let (packets, latest_ns) = (lines.packets(), lines.latest_ns());
                        match self.chunks.of_lines(Box::new(lines), packets, latest_ns, parses) {
                            None => continue,
                            chunk => chunk,
                        }
                    }
                    None => None,
                },
                Reader::Capture(capture) => capture.next_chunk(&mut self.chunks, &self.reporter),
            };
            if chunk.is_some() {
                return Ok(chunk);
            }
            self.current = None;
            self.reporter.end_file();
        }
        Ok(None)
    }

    /// Packets of all chunks so far; malformed lines count.
    pub fn packets(&self) -> u64 {
        self.chunks.packets()
    }

    fn start(&mut self, input: Waiting) -> Result<Option<Reader>, InputError> {
        let open_error = |error| InputError::Open { input: input.name.to_string(), error };
        let reader: Box<dyn Read + Send> = match input.location {
            Location::Path(path) => Box::new(File::open(path).map_err(open_error)?),
            Location::Stdin => Box::new(std::io::stdin()),
            Location::Reader(reader) => reader,
        };
        let begun = self.reporter.start_file(input.name);
        let progress = self.reporter.progress();
        let stream = Stream::start(reader, progress, self.read_ahead);
        let (stream, head) = match stream {
            Ok(started) => started,
            Err(error) => {
                self.reporter.damage(&begun, 0, None, "read-error", &error);
                return Ok(None);
            }
        };
        if head.is_empty() {
            self.reporter.found_empty(&begun);
        }
        let (names, port) = (Arc::clone(&self.names), input.port);
        match stream::Format::of(&head) {
            stream::Format::Text => {
                let reader = TextReader::new(stream, begun, port, names, &self.chunks, &self.reporter);
                Ok(Some(Reader::Text(Box::new(reader))))
            }
            stream::Format::Capture => {
                Ok(Some(Reader::Capture(Box::new(CaptureReader::new(stream, begun, port, names)))))
            }
            stream::Format::Unknown => {
                let what = "expected a text trace, pcap or pcapng";
                self.reporter.damage(&begun, 0, None, "unknown-format", &what);
                Ok(None)
            }
        }
    }
}

impl std::fmt::Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSource").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

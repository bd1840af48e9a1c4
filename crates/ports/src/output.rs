//! Writes packets to files: a capture per egress port, or one text trace.
//!
//! Every configured port gets its file when the output is created, so an unused port has an empty capture
//! instead of a missing one. Files are buffered and flushed by `finish`; they are not synced to disk, which a
//! replay does not need.
//!
//! Missing: limits on the size of files, compression.

use crate::PortNames;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use thalweg_wire::ethernet::ip_packet_of;
use thalweg_wire::pcap::{FileHeader, RecordHeader};
use thalweg_wire::trace::{FieldOrder, PortName, TraceLine};

const BUFFER_BYTES: usize = 64 * 1024;
const LINK_ETHERNET: u32 = 1;

/// A packet that leaves the router.
#[derive(Clone, Copy, Debug)]
pub struct PacketOut<'a> {
    /// Number of the egress port.
    pub port: u16,
    /// In nanoseconds since the epoch.
    pub arrival_ns: u64,
    /// Length on the wire.
    pub wire_len: u32,
    /// Application code; 0 if unknown.
    pub application: u8,
    /// The captured part of the Ethernet frame.
    pub frame: &'a [u8],
}

/// Why output cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("cannot create {path}: {error}")]
    Create {
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    #[error("cannot write {path}: {error}")]
    Write {
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A port's name cannot be a file name.
    #[error("expected port names that can be file names, found \"{name}\"")]
    PortName { name: String },
    /// A packet for a port that does not exist.
    #[error("packet for port number {port}, which does not exist")]
    NoSuchPort {
        /// The number.
        port: u16,
    },
}

/// The totals of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputTotals {
    pub packets: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Packets that the format cannot express (frames without IP in a text trace).
    pub skipped: u64,
}

/// One capture per egress port: `DIR/<port>.pcap`, nanoseconds, Ethernet.
#[derive(Debug)]
pub struct PortCaptures {
    files: Vec<(PathBuf, BufWriter<File>)>,
    header: FileHeader,
    totals: OutputTotals,
}

impl PortCaptures {
    /// Creates the directory if necessary, and a capture for every port, replacing existing ones.
    pub fn create(directory: &Path, ports: &PortNames) -> Result<Self, OutputError> {
        let create_error = |path: &Path, error| OutputError::Create { path: path.to_path_buf(), error };
        std::fs::create_dir_all(directory).map_err(|error| create_error(directory, error))?;
        let header = FileHeader::nanoseconds(LINK_ETHERNET);
        let mut captures = Self { files: Vec::new(), header, totals: OutputTotals::default() };
        for name in ports.iter() {
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
                return Err(OutputError::PortName { name: name.to_string() });
            }
            let path = directory.join(format!("{name}.pcap"));
            let file = File::create(&path).map_err(|error| create_error(&path, error))?;
            let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
            let bytes = header.encode();
            captures.totals.bytes += bytes.len() as u64;
            // Written to the file at once, so that even an aborted run leaves valid captures.
            if let Err(error) = writer.write_all(&bytes).and_then(|()| writer.flush()) {
                return Err(OutputError::Write { path, error });
            }
            captures.files.push((path, writer));
        }
        Ok(captures)
    }

    /// Appends a packet to its port's capture.
    pub fn write(&mut self, packet: &PacketOut<'_>) -> Result<(), OutputError> {
        let (path, writer) = self
            .files
            .get_mut(usize::from(packet.port))
            .ok_or(OutputError::NoSuchPort { port: packet.port })?;
        let captured_len = packet.frame.len() as u32;
        let wire_len = packet.wire_len.max(captured_len);
        let record = RecordHeader::new(&self.header, packet.arrival_ns, captured_len, wire_len);
        let record = record.encode(&self.header);
        writer
            .write_all(&record)
            .and_then(|()| writer.write_all(packet.frame))
            .map_err(|error| OutputError::Write { path: path.clone(), error })?;
        self.totals.packets += 1;
        self.totals.bytes += (record.len() + packet.frame.len()) as u64;
        Ok(())
    }

    /// Flushes all captures and returns the totals.
    pub fn finish(mut self) -> Result<OutputTotals, OutputError> {
        for (path, writer) in &mut self.files {
            writer.flush().map_err(|error| OutputError::Write { path: path.clone(), error })?;
        }
        Ok(self.totals)
    }
}

/// All packets as one text trace, each with its egress port.
pub struct TraceOutput {
    writer: Box<dyn Write + Send>,
    path: PathBuf,
    ports: PortNames,
    order: FieldOrder,
    line: Vec<u8>,
    totals: OutputTotals,
}

impl TraceOutput {
    /// Creates (or replaces) a file; `-` is standard output.
    pub fn create(path: &Path, ports: PortNames, order: FieldOrder) -> Result<Self, OutputError> {
        let writer: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()))
        } else {
            let file = File::create(path)
                .map_err(|error| OutputError::Create { path: path.to_path_buf(), error })?;
            Box::new(BufWriter::with_capacity(BUFFER_BYTES, file))
        };
        let path = path.to_path_buf();
        Ok(Self { writer, path, ports, order, line: Vec::new(), totals: OutputTotals::default() })
    }

    /// Appends a packet's line. Frames without IP are counted, not written.
    pub fn write(&mut self, packet: &PacketOut<'_>) -> Result<(), OutputError> {
        let name = self.ports.name(packet.port).ok_or(OutputError::NoSuchPort { port: packet.port })?;
        let name = PortName::new(name.as_bytes());
        let line =
            ip_packet_of(packet.frame).and_then(|ip| TraceLine::of_packet(name, ip, packet.application));
        let Some(line) = line else {
            self.totals.skipped += 1;
            return Ok(());
        };
        self.line.clear();
        line.print(self.order, &mut self.line);
        self.writer
            .write_all(&self.line)
            .map_err(|error| OutputError::Write { path: self.path.clone(), error })?;
        self.totals.packets += 1;
        self.totals.bytes += self.line.len() as u64;
        Ok(())
    }

    /// Flushes the trace and returns the totals.
    pub fn finish(mut self) -> Result<OutputTotals, OutputError> {
        self.writer.flush().map_err(|error| OutputError::Write { path: self.path.clone(), error })?;
        Ok(self.totals)
    }
}

impl fmt::Debug for TraceOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceOutput").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! The sinks of processed chunks.

use crate::{Output, ReplayError};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_base::Chunk;
use thalweg_config::RouterConfig;
use thalweg_dataplane::vlan::EgressTags;
use thalweg_exec::Sink;
use thalweg_ports::{OutputError, PacketOut, PortCaptures, PortNames, TraceOutput};
use thalweg_wire::trace::FieldOrder;
use thalweg_wire::vlan::TAG_BYTES;

const ETHERNET_HEADER: u32 = 14;
/// The longest frame: an IP packet of 65,575 bytes (IPv6 with its header), Ethernet header and VLAN tag.
const FRAME_MAX: usize = 65_575 + 14 + TAG_BYTES;

/// For output `none`: the chunk's memory returns to the reader.
pub(crate) struct DropSink;

impl Sink<Chunk> for DropSink {
    fn accept(&mut self, _chunk: Chunk) {}
}

/// For output `none` of preloaded input: keeps the bytes, so that freeing them is not part of the run.
/// Descriptors are freed, so that a farm finds memory for its parts as without preloading.
#[derive(Default)]
pub(crate) struct KeepSink(Vec<Chunk>);

impl Sink<Chunk> for KeepSink {
    fn accept(&mut self, mut chunk: Chunk) {
        chunk.forget_packets();
        self.0.push(chunk);
    }
}

enum Writer {
    Captures(PortCaptures, Tagger),
    Trace(TraceOutput),
}

impl Writer {
    fn write(&mut self, packet: PacketOut<'_>) -> Result<(), OutputError> {
        match self {
            Writer::Captures(captures, tagger) => captures.write(&tagger.tagged(packet)),
            Writer::Trace(trace) => trace.write(&packet),
        }
    }
}

/// Writes frames of VLAN sub-interfaces as they leave: tagged, on the parent.
struct Tagger {
    tags: EgressTags,
    frame: Box<[u8]>,
}

impl Tagger {
    fn new(config: &RouterConfig) -> Self {
        Self { tags: thalweg_node::egress_tags(config), frame: vec![0; FRAME_MAX].into() }
    }

    fn tagged<'a>(&'a mut self, packet: PacketOut<'a>) -> PacketOut<'a> {
        let Some(tag) = self.tags.get(packet.port) else { return packet };
        let Some(len) = tag.write(packet.frame, &mut self.frame) else { return packet };
        PacketOut {
            port: tag.parent,
            wire_len: packet.wire_len + TAG_BYTES as u32,
            frame: &self.frame[..len],
            ..packet
        }
    }
}

/// Writes every packet that leaves. After an error it tells the source to end and takes no more packets.
pub(crate) struct FileSink {
    writer: Writer,
    paths: Vec<PathBuf>,
    error: Option<OutputError>,
    stop: Arc<AtomicBool>,
}

impl FileSink {
    /// A sink for this output; `None` if nothing is written.
    pub(crate) fn create(config: &RouterConfig, output: &Output) -> Result<Option<Self>, ReplayError> {
        let (writer, paths) = match output {
            Output::None => return Ok(None),
            Output::Captures(directory) => {
                let names = PortNames::new(config.ports.iter().map(|p| p.name.clone()));
                let captures = PortCaptures::create(directory, &names).map_err(output_error)?;
                let paths = config.ports.iter().map(|p| directory.join(format!("{}.pcap", p.name)));
                (Writer::Captures(captures, Tagger::new(config)), paths.collect())
            }
            Output::Trace(directory) => {
                let made = std::fs::create_dir_all(directory);
                made.map_err(|source| ReplayError::Output { path: directory.clone(), source })?;
                let path = directory.join("trace.txt");
                let names = PortNames::new(config.ports.iter().map(|p| p.trace_name.clone()));
                let trace = TraceOutput::create(&path, names, FieldOrder::default()).map_err(output_error)?;
                (Writer::Trace(trace), vec![path])
            }
        };
        Ok(Some(Self { writer, paths, error: None, stop: Arc::default() }))
    }

    /// Set once writing has failed.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Flushes everything; returns the written files, or the first error.
    pub(crate) fn finish(self) -> Result<Vec<String>, ReplayError> {
        if let Some(error) = self.error {
            return Err(output_error(error));
        }
        match self.writer {
            Writer::Captures(captures, _) => captures.finish(),
            Writer::Trace(trace) => trace.finish(),
        }
        .map_err(output_error)?;
        Ok(self.paths.iter().map(|p| p.display().to_string()).collect())
    }
}

impl Sink<Chunk> for FileSink {
    fn accept(&mut self, chunk: Chunk) {
        if self.error.is_some() {
            return;
        }
        for (i, packet) in chunk.packets().iter().enumerate() {
            if !packet.is_alive() {
                continue;
            }
            let out = PacketOut {
                port: packet.port_out,
                arrival_ns: packet.arrival_ns,
                wire_len: ETHERNET_HEADER + packet.ip_len,
                application: packet.application,
                frame: chunk.egress_frame(i),
            };
            if let Err(error) = self.writer.write(out) {
                self.error = Some(error);
                self.stop.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

fn output_error(error: OutputError) -> ReplayError {
    match error {
        OutputError::Create { path, error } | OutputError::Write { path, error } => {
            ReplayError::Output { path, source: error }
        }
        other => ReplayError::Options(other.to_string()),
    }
}

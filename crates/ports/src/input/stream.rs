//! The uncompressed bytes of one input, whatever its compression.

use super::report::Progress;
use bzip2::read::MultiBzDecoder;
use crossbeam_channel::{Receiver, Sender, bounded};
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use thalweg_base::uninterrupted;

/// Bytes that identify the format.
const HEAD_BYTES: usize = 64;
/// The size of reads from compressed files.
const COMPRESSED_READ_BYTES: usize = 256 * 1024;
/// The size of blocks from a decompressing thread, and how many it may be ahead.
const AHEAD_BLOCK_BYTES: usize = 256 * 1024;
const AHEAD_BLOCKS: usize = 4;

type Source = Box<dyn Read + Send>;

/// The format of an input, by its first bytes.
pub(super) enum Format {
    Text,
    Capture,
    Unknown,
}

impl Format {
    pub(super) fn of(head: &[u8]) -> Self {
        use thalweg_wire::{pcap, pcapng};
        match head.first_chunk::<4>() {
            Some(magic) if pcap::FileHeader::is_magic(magic) || *magic == pcapng::MAGIC => Format::Capture,
            // Text has no control bytes except tab, line feed and carriage return; comments may have bytes
            // above 127.
            _ if head.iter().all(|&b| b >= b' ' || matches!(b, b'\t' | b'\n' | b'\r')) => Format::Text,
            _ => Format::Unknown,
        }
    }
}

/// An open input. It stores the first error and treats it as the end.
pub(super) struct Stream {
    source: Source,
    ended: bool,
    failure: Option<io::Error>,
}

impl Stream {
    /// Opens the stream and examines its first bytes, which will be read again.
    pub(super) fn start(
        source: Source,
        progress: Arc<Progress>,
        read_ahead: bool,
    ) -> io::Result<(Self, Vec<u8>)> {
        let counted = Counted { source, progress };
        let (compressed, source) = decompressed(counted)?;
        let source: Source = if compressed && read_ahead { ReadAhead::spawn(source)? } else { source };
        let (head, failure, source) = Prefixed::peek(source, HEAD_BYTES);
        // A stream that fails at once is damaged at byte 0; otherwise, after the bytes that exist.
        if let (Some(error), true) = (failure, head.is_empty()) {
            return Err(error);
        }
        Ok((Self { source: Box::new(source), ended: false, failure: None }, head))
    }

    /// Reads at least one byte unless the stream has ended.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        while !self.ended && !buffer.is_empty() {
            match uninterrupted(|| self.source.read(buffer)) {
                Ok(0) => self.ended = true,
                Ok(n) => return n.min(buffer.len()),
                Err(error) => {
                    self.failure = Some(error);
                    self.ended = true;
                }
            }
        }
        0
    }

    /// Discards up to `bytes` bytes; returns how many there were.
    pub(super) fn skip(&mut self, bytes: u64) -> u64 {
        let mut scratch = [0; 8192];
        let mut left = bytes;
        while left > 0 {
            let part = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.read(&mut scratch[..part]) {
                0 => break,
                n => left -= n as u64,
            }
        }
        bytes - left
    }

    /// The error that ended the stream, if there was one.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }
}

/// Counts bytes for the progress bar.
struct Counted {
    source: Source,
    progress: Arc<Progress>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        self.progress.add_bytes(n);
        Ok(n)
    }
}

/// Some bytes, then a source. `failed` is an error that occurred while peeking and must occur again.
struct Prefixed<R> {
    prefix: Vec<u8>,
    at: usize,
    failed: Option<io::ErrorKind>,
    source: R,
}

impl<R: Read> Prefixed<R> {
    /// Up to `bytes` first bytes of a source, the error that prevented more, and the whole source again.
    fn peek(mut source: R, bytes: usize) -> (Vec<u8>, Option<io::Error>, Self) {
        let mut prefix = Vec::with_capacity(bytes);
        let failure = source.by_ref().take(bytes as u64).read_to_end(&mut prefix).err();
        let failed = failure.as_ref().map(io::Error::kind);
        (prefix.clone(), failure, Self { prefix, at: 0, failed, source })
    }
}

impl<R: Read> Read for Prefixed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.prefix.get(self.at..).unwrap_or(&[]);
        if left.is_empty() {
            return match self.failed {
                Some(kind) => Err(kind.into()),
                None => self.source.read(buffer),
            };
        }
        let n = left.len().min(buffer.len());
        buffer[..n].copy_from_slice(&left[..n]);
        self.at += n;
        Ok(n)
    }
}

/// Decompresses `source` (gzip, Zstandard or bzip2, recognized by content, not by name); returns whether it
/// was compressed. Several consecutive compressed members are one stream.
pub fn decompressed(source: impl Read + Send + 'static) -> io::Result<(bool, Box<dyn Read + Send>)> {
    let (head, failure, source) = Prefixed::peek(source, 6);
    if let (Some(error), true) = (failure, head.is_empty()) {
        return Err(error);
    }
    let buffered = |source| BufReader::with_capacity(COMPRESSED_READ_BYTES, source);
    Ok(match head[..] {
        [0x1f, 0x8b, 8, ..] => (true, Box::new(MultiGzDecoder::new(buffered(source)))),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => {
            (true, Box::new(MultiBzDecoder::new(buffered(source))))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            (true, Box::new(ZstandardFrames::new(buffered(source))))
        }
        _ => (false, Box::new(source)),
    })
}

/// Consecutive Zstandard frames; skippable ones are skipped (RFC 8878 3.1.2), checksums checked.
struct ZstandardFrames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> ZstandardFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), within: false }
    }

    /// Advances to the next frame; `false` at the end.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(said), Some(is)) if said != is => Err(invalid("Zstandard checksum is wrong")),
            _ => Ok(()),
        }
    }
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl<R: BufRead> Read for ZstandardFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.within {
                if !self.begin_frame()? {
                    return Ok(0);
                }
                self.within = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(invalid)?;
            }
            match self.decoder.read(buffer)? {
                0 => {
                    self.end_frame()?;
                    self.within = false;
                }
                n => return Ok(n),
            }
        }
    }
}

/// Reads a source on its own thread, a few blocks ahead.
pub(crate) struct ReadAhead {
    blocks: Receiver<io::Result<Vec<u8>>>,
    spent: Sender<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl ReadAhead {
    pub(crate) fn spawn(mut source: Source) -> io::Result<Source> {
        let (filled, blocks) = bounded(AHEAD_BLOCKS);
        let (spent, empty) = bounded::<Vec<u8>>(AHEAD_BLOCKS + 2);
        std::thread::Builder::new().name("decompress".into()).spawn(move || {
            loop {
                let mut block = empty.try_recv().unwrap_or_default();
                block.clear();
                let result = source.by_ref().take(AHEAD_BLOCK_BYTES as u64).read_to_end(&mut block);
                // The bytes before an error are valid.
                if !block.is_empty() && filled.send(Ok(block)).is_err() {
                    return;
                }
                match result {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) => {
                        let _ = filled.send(Err(error));
                        return;
                    }
                }
            }
        })?;
        Ok(Box::new(Self { blocks, spent, block: Vec::new(), at: 0 }))
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            // A closed channel is the end: the thread sends its error before it ends.
            let Ok(next) = self.blocks.recv() else { return Ok(0) };
            let spent = std::mem::replace(&mut self.block, next?);
            let _ = self.spent.try_send(spent);
            self.at = 0;
        }
        let left = &self.block[self.at..];
        let n = left.len().min(buffer.len());
        buffer[..n].copy_from_slice(&left[..n]);
        self.at += n;
        Ok(n)
    }
}

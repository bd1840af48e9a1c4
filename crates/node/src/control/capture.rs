//! A capture over the control socket.
//!
//! ```text
//! client: {"request":"capture",..}\n                          .. closes its half: enough ..
//! router: {"item":CaptureBegun}\n  pcapng blocks ..  {"item":CaptureSummary}\n {"done":{"items":2}}\n
//! ```
//!
//! Packets come as the blocks of a pcapng file, which can be written as they are. No block begins with `{`, so a reader
//! knows by one byte which of both comes next. A capture is the last thing a connection is used for.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::server::{LiveControl, write_line};
use super::{Line, Request};

/// How long a look at the client takes while it says nothing, which is always.
const LOOK: Duration = Duration::from_millis(1);

/// What to capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureRequest {
    /// Where: the name of a stage, `arrived`, `to-host`, `sent` or `dropped`. Without, `arrived`; with a reason, `dropped`.
    pub point: Option<String>,
    /// Only what comes in or leaves by this port, by its name or its interface's.
    pub port: Option<String>,
    /// Only what was not forwarded for this reason.
    pub reason: Option<String>,
    /// Only what passes this filter: see [`crate::capture`].
    pub filter: Option<String>,
    /// No more packets than this.
    pub count: Option<u64>,
    /// No longer than this.
    pub seconds: Option<u32>,
    /// No more bytes of a packet than this.
    pub snaplen: Option<u32>,
    /// No more packets a second than this.
    pub rate: Option<u32>,
}

/// A capture runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureBegun {
    /// Where it captures.
    pub point: String,
    /// Ports whose flows the kernel does not forward by itself meanwhile.
    pub offload_paused: Vec<String>,
}

/// What became of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureSummary {
    /// Packets that were to be captured.
    pub wanted: u64,
    /// That were.
    pub captured: u64,
    /// That were not, because too many waited to be written.
    pub queue_full: u64,
    /// That were not, because of the limit of packets a second.
    pub over_rate: u64,
    /// Why it ended.
    pub ended: String,
}

/// Who gets a capture.
pub trait CaptureClient {
    /// The capture has begun: said before anything else.
    fn begin(&mut self, begun: &CaptureBegun) -> io::Result<()>;

    /// Takes whole blocks of the file.
    fn write(&mut self, blocks: &[u8]) -> io::Result<()>;

    /// Nothing more comes for a while.
    fn flush(&mut self) -> io::Result<()>;

    /// Whether it has enough.
    fn has_enough(&mut self) -> bool;
}

/// A client at the other end of a socket.
struct SocketClient<'s> {
    stream: &'s UnixStream,
    reader: BufReader<&'s UnixStream>,
    writer: BufWriter<&'s UnixStream>,
}

impl CaptureClient for SocketClient<'_> {
    fn begin(&mut self, begun: &CaptureBegun) -> io::Result<()> {
        self.stream.set_read_timeout(Some(LOOK))?;
        write_line(&mut self.writer, &Line::Item(serde_json::to_value(begun)?))?;
        self.writer.flush()
    }

    fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        self.writer.write_all(blocks)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn has_enough(&mut self) -> bool {
        match self.reader.fill_buf() {
            Ok([]) => true,
            Ok(said) => {
                let length = said.len();
                self.reader.consume(length);
                false
            }
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            ),
        }
    }
}

/// Serves a capture to its end, and with it the connection.
pub(super) fn serve(
    request: &CaptureRequest,
    live: Result<&dyn LiveControl, String>,
    stream: &UnixStream,
    reader: BufReader<&UnixStream>,
    writer: BufWriter<&UnixStream>,
) -> io::Result<()> {
    let mut client = SocketClient { stream, reader, writer };
    let result = match live {
        Ok(live) => live.capture(request, &mut client)?,
        Err(none) => Err(none),
    };
    match result {
        Ok(summary) => {
            write_line(&mut client.writer, &Line::Item(serde_json::to_value(summary)?))?;
            write_line(&mut client.writer, &Line::Done { items: 2 })?;
        }
        Err(error) => write_line(&mut client.writer, &Line::Error(error))?,
    }
    client.writer.flush()
}

impl Request {
    /// What to capture, if that is what is asked for.
    pub(super) fn as_capture(&self) -> Option<&CaptureRequest> {
        match self {
            Self::Capture(capture) => Some(capture),
            _ => None,
        }
    }
}

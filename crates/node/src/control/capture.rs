//! A capture over the control socket.
//!
//! ```text
//! client: {"request":"capture",..}\n                          .. closes its half: enough ..
//! router: {"item":CaptureBegun}\n  pcapng blocks ..  {"item":CaptureSummary}\n {"done":{"items":2}}\n
//! ```
//!
//! Packets come as the blocks of a pcapng file, which can be written as they are. No block begins with `{`, so a reader
//! knows by one byte which of both comes next. A capture is the last thing a connection is used for.

use serde::{Deserialize, Serialize};

use super::Request;

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
    pub ended: String,
}

impl Request {
    /// What to capture, if that is what is asked for.
    pub fn as_capture(&self) -> Option<&CaptureRequest> {
        match self {
            Self::Capture(capture) => Some(capture),
            _ => None,
        }
    }
}

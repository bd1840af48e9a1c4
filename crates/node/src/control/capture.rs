//! A capture over the control socket.
//!
//! ```text
//! client: {"request":"capture",..}\n                          .. closes its half: enough ..
//! router: {"item":CaptureBegun}\n  pcapng blocks ..  {"item":CaptureSummary}\n {"done":{"items":2}}\n
//! ```
//!
//! Packets come as blocks of a pcapng file, which can be written unchanged. No block begins with `{`, so the first
//! byte tells a reader whether a block or a line follows. A connection ends with its capture.

use serde::{Deserialize, Serialize};

use super::Request;

/// Selects packets and limits a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureRequest {
    /// The name of a stage, `arrived`, `to-host`, `sent` or `dropped`. The default is `arrived`; with a reason,
    /// `dropped`.
    pub point: Option<String>,
    /// Only packets that enter or leave by this port, given by its name or its interface's.
    pub port: Option<String>,
    /// Only packets that were not forwarded, for this reason.
    pub reason: Option<String>,
    /// Only packets that match this filter: see [`crate::capture`].
    pub filter: Option<String>,
    /// At most this many packets.
    pub count: Option<u64>,
    /// At most this long.
    pub seconds: Option<u32>,
    /// At most this many bytes of a packet.
    pub snaplen: Option<u32>,
    /// At most this many packets a second.
    pub rate: Option<u32>,
}

/// The first item: the capture runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureBegun {
    /// The capture point.
    pub point: String,
    /// Ports whose flows the kernel does not forward by itself during the capture.
    pub offload_paused: Vec<String>,
}

/// The last item: the capture's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureSummary {
    /// Packets that matched.
    pub wanted: u64,
    pub captured: u64,
    /// Packets lost because too many waited to be written.
    pub queue_full: u64,
    /// Packets left out by the limit of packets a second.
    pub over_rate: u64,
    pub ended: String,
}

impl Request {
    /// The capture request, if it is one.
    pub fn as_capture(&self) -> Option<&CaptureRequest> {
        match self {
            Self::Capture(capture) => Some(capture),
            _ => None,
        }
    }
}

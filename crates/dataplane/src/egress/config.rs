//! The configuration of an egress port's queues: plain data.

use crate::schedule::Service;

/// The most classes of a port: a packet carries its class in a byte.
pub const CLASSES_MAX: usize = 256;
/// Strict levels are 0 to 15; a higher number counts as 15.
pub const STRICT_LEVEL_MAX: u8 = 15;
/// The default upper bound, in percent, of strict classes' share while weighted classes wait.
///
/// Expedited traffic should be a small part of a port (RFC 3246 section 2 expects it to arrive below its service
/// rate), so nine tenths never bind in a well configured network. If a network is not, or a download is marked as
/// voice, a tenth keeps alive the routing protocols and shells that are needed for repair.
pub const STRICT_SHARE_PERCENT_DEFAULT: u8 = 90;

/// The queues of one egress port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// The port's rate in bits per second; `None`: as fast as the port accepts.
    pub rate_bps: Option<u64>,
    /// What may leave at once after a pause. A larger packet leaves when the bucket is full, and leaves it in debt.
    pub burst_bytes: u32,
    /// Bytes that each packet takes on the line beyond its given length: preamble, frame check sequence and gap of
    /// Ethernet are 24. They count toward rates and shares, not toward byte counters.
    pub overhead_bytes: u16,
    /// The upper bound, in percent, of strict classes' share while weighted classes wait; 100 is no bound. It holds
    /// nothing back while no weighted class has a packet.
    pub strict_share_percent: u8,
    /// The class of packets whose class is not configured here; it also inherits the packets of classes that a new
    /// configuration removes.
    pub default_class: u8,
    /// A packet's class is an index into these. At most [`CLASSES_MAX`], later ones are ignored; an empty list
    /// becomes one default class.
    pub classes: Vec<EgressClass>,
}

/// One class on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressClass {
    /// A new configuration finds the class's queue by its name.
    pub name: String,
    pub service: Service,
    /// The most the class may send, even if the port is idle otherwise; `None`: no bound.
    pub rate_bps: Option<u64>,
    /// What it may send at once after a pause.
    pub burst_bytes: u32,
    /// Packets that may wait.
    pub limit_packets: u32,
    /// Bytes that may wait.
    pub limit_bytes: u32,
    /// Active queue management; without it the queue fills up to its limit.
    pub aqm: Option<Aqm>,
}

/// Controlled delay (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aqm {
    /// The tolerated wait in a standing queue.
    pub target_us: u32,
    /// For how long all packets must have waited longer before senders are told: about the longest round trip of
    /// these senders. At most 4000.
    pub interval_ms: u32,
    /// Whether ECN-capable packets are marked instead of dropped (RFC 3168).
    pub ecn: bool,
}

impl Default for Aqm {
    /// 5 ms and 100 ms, the values of RFC 8289 section 4.3 for the Internet, with ECN.
    fn default() -> Self {
        Self { target_us: 5_000, interval_ms: 100, ecn: true }
    }
}

impl Default for EgressClass {
    /// Weight 1, 1000 full frames, CoDel.
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            service: Service::Weight(1),
            rate_bps: None,
            burst_bytes: 0,
            limit_packets: 1000,
            limit_bytes: 1_514_000,
            aqm: Some(Aqm::default()),
        }
    }
}

impl Default for EgressConfig {
    /// An unshaped port with one class.
    fn default() -> Self {
        Self {
            rate_bps: None,
            burst_bytes: 0,
            overhead_bytes: 0,
            strict_share_percent: STRICT_SHARE_PERCENT_DEFAULT,
            default_class: 0,
            classes: vec![EgressClass::default()],
        }
    }
}

//! The configuration of an egress port's queues: plain data.

use crate::schedule::Service;

/// Classes a port can have: a packet carries its class in a byte.
pub const CLASSES_MAX: usize = 256;
/// Strict levels are 0 to 15; a higher number counts as 15.
pub const STRICT_LEVEL_MAX: u8 = 15;
/// Of what leaves while weighted classes wait, strict ones take at most this many percent unless told
/// otherwise.
///
/// Expedited traffic is to be a small part of a port (RFC 3246 section 2 wants it to arrive below the rate
/// it is served at), so nine tenths never bind in a network that is set up well. Where it is not, or where
/// somebody marks a download as voice, a tenth keeps routing protocols and a shell alive, which are needed
/// to mend it.
pub const STRICT_SHARE_PERCENT_DEFAULT: u8 = 90;

/// The queues of one egress port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// What may leave, in bits per second; `None`: as fast as the port takes it.
    pub rate_bps: Option<u64>,
    /// What may leave at once after a pause. A packet larger than the burst leaves when the bucket is full
    /// and is owed for afterwards.
    pub burst_bytes: u32,
    /// What each packet takes on the line beyond the length it is given with: preamble, frame check
    /// sequence and gap of Ethernet are 24 bytes. Counts toward rates and shares, not toward bytes.
    pub overhead_bytes: u16,
    /// Of what leaves while weighted classes wait, at most this many percent is of strict classes; 100 is
    /// no bound. Nothing is held back by it while no weighted class has a packet to send.
    pub strict_share_percent: u8,
    /// The class of packets whose class is not configured here, and heir of classes that a new
    /// configuration no longer has.
    pub default_class: u8,
    /// Classes; a packet's class is its place here. At most [`CLASSES_MAX`], later ones are ignored; a port
    /// without any gets one.
    pub classes: Vec<EgressClass>,
}

/// One class at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressClass {
    /// Its name, by which a new configuration finds its queue.
    pub name: String,
    /// When its turn comes.
    pub service: Service,
    /// The most the class may send, also when the port has nothing else to do; `None`: no such bound.
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

/// Controlled delay, RFC 8289.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aqm {
    /// The wait that is tolerated as standing queue.
    pub target_us: u32,
    /// The time for which every packet must have waited longer before senders are told: about the longest
    /// round trip of those who are to be told. At most 4000.
    pub interval_ms: u32,
    /// Whether ECN-capable packets are marked instead of dropped (RFC 3168).
    pub ecn: bool,
}

impl Default for Aqm {
    /// 5 ms and 100 ms, RFC 8289 section 4.3's for the Internet, with ECN.
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

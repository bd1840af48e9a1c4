//! `[[qos.egress]]`, the rate of a port, and `[qos.classes.queue]`, the queue that a class has at every port.
//!
//! ```toml
//! [[qos.egress]]                  # one for each port that is to be shaped or treated specially
//! port = "wan"                    # required
//! rate = "100 Mbit/s"             # what leaves at most, `overhead` included; default: as fast as it goes
//! burst = "12500 B"               # what leaves at once after a pause; default: what leaves in 1 ms
//! overhead = 24                   # bytes a frame takes on the line besides its own; default 24, Ethernet's
//! strict_share_percent = 90       # of what leaves while weighted classes wait, strict ones get at most this
//! class_rates = { voice = "30 Mbit/s" }   # a class's own bound at this port, in place of its `rate`
//!
//! [qos.classes.queue]
//! rate = "30 Mbit/s"              # the class's own bound at every port, idle or not; default: none
//! burst = "4 KiB"                 # what it may send at once after a pause; default: what it sends in 1 ms
//! limit = "256 KiB"               # bytes that wait at most; default: by the rate, see docs/qos.md
//! limit_packets = 4096            # packets that wait at most
//! aqm = "codel"                   # RFC 8289, or "none"; default: codel, for strict classes none
//! target_us = 5000                # wait that is tolerated for long; default 5000, more on slow ports
//! interval_ms = 100               # for that long: about the longest round trip of senders
//! ecn = true                      # mark packets that can carry it instead of dropping them (RFC 3168)
//! ```
//!
//! What is not said here is decided where the port is known: `crates/node/src/egress.rs`.

use std::ops::Range;

use thalweg_dataplane::egress::{Aqm, BURST_BYTES_MAX, STRICT_SHARE_PERCENT_DEFAULT};

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::ports::Ports;
use crate::qos::{read_rate, read_size};
use crate::reader::{At, Item, Reader, Section};
use crate::types::{Class, ClassIndex, PortIndex, Service};

/// Preamble and start delimiter, frame check sequence, and the gap between frames (IEEE 802.3).
const OVERHEAD_ETHERNET: u16 = 24;
/// What a line adds beyond this (ATM cells, tunnels) is a share of the packet, which no constant is.
const OVERHEAD_MAX: u64 = 256;
/// Packets that wait at most in a class unless told otherwise: sixteen batches, so that what arrives while
/// the port's thread is kept from its core for some milliseconds finds room.
const LIMIT_PACKETS_DEFAULT: u32 = 4096;
const LIMIT_PACKETS_MAX: u64 = 1 << 20;
const LIMIT_BYTES_MAX: u64 = 1 << 30;
/// Below this a full Ethernet frame never finds room.
const FULL_FRAME_BYTES: u64 = 1514;
const INTERVAL_MS_DEFAULT: u32 = 100;
const INTERVAL_MS_MAX: u64 = 4_000;
const TARGET_US_MAX: u64 = 1_000_000;
/// RFC 8289 section 4.3.
const TARGET_US_DEFAULT: u32 = 5_000;

/// What `[[qos.egress]]` says of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEgress {
    /// The port.
    pub port: PortIndex,
    /// Bits per second that leave at most; `None`: unshaped.
    pub rate_bps: Option<u64>,
    /// Bytes at once after a pause, where given.
    pub burst_bytes: Option<u32>,
    /// Bytes a frame takes on the line besides its own.
    pub overhead_bytes: u16,
    /// Bound on strict classes while weighted ones wait, 1 to 100.
    pub strict_share_percent: u8,
    /// Bounds of single classes at this port, in place of their own.
    pub class_rates: Vec<(ClassIndex, u64)>,
}

impl PortEgress {
    /// A port of which nothing is said.
    pub fn unshaped(port: PortIndex) -> Self {
        Self {
            port,
            rate_bps: None,
            burst_bytes: None,
            overhead_bytes: OVERHEAD_ETHERNET,
            strict_share_percent: STRICT_SHARE_PERCENT_DEFAULT,
            class_rates: Vec::new(),
        }
    }
}

/// The queue of a class at every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassQueue {
    /// The class's own bound in bits per second.
    pub rate_bps: Option<u64>,
    /// Bytes at once after a pause, where given.
    pub burst_bytes: Option<u32>,
    /// Bytes that wait at most, where given.
    pub limit_bytes: Option<u32>,
    /// Packets that wait at most.
    pub limit_packets: u32,
    /// Active queue management.
    pub codel: Option<CodelConfig>,
}

impl ClassQueue {
    /// The queue of a class of which nothing is said. A strict class has no active queue management: what
    /// belongs there is sent at a steady rate and does not slow down when told to.
    pub(crate) fn of(service: Service) -> Self {
        let codel = match service {
            Service::Strict { .. } => None,
            Service::Weighted { .. } => Some(CodelConfig::default()),
        };
        Self {
            rate_bps: None,
            burst_bytes: None,
            limit_bytes: None,
            limit_packets: LIMIT_PACKETS_DEFAULT,
            codel,
        }
    }
}

/// CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The wait that is tolerated for long, where given.
    pub target_us: Option<u32>,
    /// For how long it must have been longer.
    pub interval_ms: u32,
    /// Whether packets that can carry a mark are marked instead of dropped.
    pub ecn: bool,
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self { target_us: None, interval_ms: INTERVAL_MS_DEFAULT, ecn: true }
    }
}

impl CodelConfig {
    /// Where a full frame takes `frame_us`. Unless told otherwise, the target is RFC 8289's, or on slow ports
    /// what two frames take, as one alone may take longer than that; and the interval is at least twice the target.
    pub fn on(&self, frame_us: u64) -> Aqm {
        let slowest = INTERVAL_MS_MAX * 1_000 / 2;
        let slow = (2 * frame_us.min(slowest)).min(slowest) as u32;
        let target_us = self.target_us.unwrap_or(TARGET_US_DEFAULT.max(slow));
        let interval_ms = match self.target_us {
            Some(_) => self.interval_ms,
            None => self.interval_ms.max((2 * target_us).div_ceil(1_000)),
        };
        Aqm { target_us, interval_ms, ecn: self.ecn }
    }
}

/// Reads `[qos.classes.queue]`.
pub(crate) fn read_queue(reader: &mut Reader, class: &mut Section<'_>, service: Service) -> ClassQueue {
    let mut queue = ClassQueue::of(service);
    let Some(item) = class.take("queue") else { return queue };
    let Some(mut section) = reader.section(&item, "[qos.classes.queue]".to_owned()) else { return queue };
    queue.rate_bps = section.take("rate").and_then(|item| read_rate(reader, &item)).map(|rate| rate.value);
    queue.burst_bytes = section.take("burst").and_then(|item| read_burst(reader, &item));
    if let Some(item) = section.take("limit") {
        queue.limit_bytes = read_limit(reader, &item);
    }
    if let Some(item) = section.take("limit_packets") {
        let packets = reader.integer(&item, 1..=LIMIT_PACKETS_MAX, "packets");
        queue.limit_packets = packets.map_or(LIMIT_PACKETS_DEFAULT, |packets| packets as u32);
    }
    if let Some(item) = section.take("aqm")
        && let Some(is_managed) = reader.word(&item, &[("codel", true), ("none", false)])
    {
        queue.codel = is_managed.then(|| queue.codel.unwrap_or_default());
    }
    read_codel(reader, &mut section, &mut queue.codel);
    section.finish(reader);
    queue
}

fn read_codel(reader: &mut Reader, section: &mut Section<'_>, codel: &mut Option<CodelConfig>) {
    let target = section.take("target_us");
    let interval = section.take("interval_ms");
    let ecn = section.take("ecn");
    let Some(codel) = codel else {
        // Each of them would do nothing, which is hardly what was meant.
        for item in [target, interval, ecn].into_iter().flatten() {
            let message =
                format!("`{}` belongs to active queue management, which this class has not", item.key);
            reader.error(ErrorKind::Conflict, &item.span, message, "`aqm = \"codel\"` beside it");
        }
        return;
    };
    if let Some(item) = &interval {
        let interval = reader.integer(item, 1..=INTERVAL_MS_MAX, "milliseconds");
        codel.interval_ms = interval.map_or(INTERVAL_MS_DEFAULT, |ms| ms as u32);
    }
    if let Some(item) = &target {
        let target = reader.integer(item, 1..=TARGET_US_MAX, "microseconds");
        codel.target_us = target.map(|us| us as u32);
        if codel.target_us.is_some_and(|us| us >= codel.interval_ms * 1_000) {
            let message = "the target is not below the interval";
            let expected = "a twentieth to a tenth of `interval_ms` (RFC 8289 section 4.3)";
            reader.error(ErrorKind::Conflict, &item.span, message, expected);
        }
    }
    if let Some(ecn) = ecn.and_then(|item| reader.boolean(&item)) {
        codel.ecn = ecn;
    }
}

/// Reads `[[qos.egress]]`.
pub(crate) fn read_ports(
    reader: &mut Reader,
    list: &Item<'_>,
    ports: &Ports,
    classes: &[Class],
) -> Vec<PortEgress> {
    let mut egress: Vec<(PortEgress, Range<usize>)> = Vec::new();
    for entry in reader.list(list) {
        let Some(mut section) = reader.section(&entry, "[[qos.egress]]".to_owned()) else { continue };
        let port = section.require("port", "\"wan\"");
        let index = port.as_ref().and_then(|item| ports.named(reader, item));
        let settings = read_settings(reader, &mut section, classes);
        section.finish(reader);
        let (Some(index), Some(port)) = (index, port) else { continue };
        if let Some((_, first)) = egress.iter().find(|(earlier, _)| earlier.port == index) {
            let expected = format!("a port other than that of {}", reader.line(first));
            reader.error(ErrorKind::Duplicate, &port.span, "this port has its egress already", expected);
            continue;
        }
        egress.push((PortEgress { port: index, ..settings }, port.span));
    }
    egress.into_iter().map(|(egress, _)| egress).collect()
}

fn read_settings(reader: &mut Reader, section: &mut Section<'_>, classes: &[Class]) -> PortEgress {
    let mut egress = PortEgress::unshaped(PortIndex::MAX);
    let rate = section.take("rate").and_then(|item| read_rate(reader, &item));
    egress.rate_bps = rate.as_ref().map(|rate| rate.value);
    if let Some(item) = section.take("burst") {
        egress.burst_bytes = read_burst(reader, &item);
        if rate.is_none() {
            let message = "a port without a rate has no burst";
            reader.error(ErrorKind::Conflict, &item.span, message, "`rate = \"100 Mbit/s\"` beside it");
        }
    }
    if let Some(item) = section.take("overhead") {
        let bytes = reader.integer(&item, 0..=OVERHEAD_MAX, "bytes for each frame");
        egress.overhead_bytes = bytes.map_or(OVERHEAD_ETHERNET, |bytes| bytes as u16);
    }
    if let Some(item) = section.take("strict_share_percent") {
        let percent = reader.integer(&item, 1..=100, "percent");
        egress.strict_share_percent = percent.map_or(STRICT_SHARE_PERCENT_DEFAULT, |percent| percent as u8);
    }
    if let Some(item) = section.take("class_rates")
        && let Some(rates) = reader.section(&item, "class_rates".to_owned())
    {
        for (name_span, item) in rates.into_names() {
            let class = class_named(reader, classes, item.key, &name_span);
            let class_rate = read_rate(reader, &item);
            if let (Some(port), Some(class)) = (&rate, &class_rate) {
                warn_of_idle_bound(reader, port, class);
            }
            egress.class_rates.extend(class.zip(class_rate.map(|rate| rate.value)));
        }
    }
    egress
}

/// A class's bound above the port's is allowed, but never felt.
fn warn_of_idle_bound(reader: &mut Reader, port: &At<u64>, class: &At<u64>) {
    if class.value >= port.value {
        let message = "the class's bound is not below the port's, so it is never felt";
        let expected = format!("a rate below that of {}", reader.line(&port.span));
        reader.warning(ErrorKind::Conflict, &class.span, message, expected);
    }
}

fn class_named(
    reader: &mut Reader,
    classes: &[Class],
    name: &str,
    span: &Range<usize>,
) -> Option<ClassIndex> {
    if let Some(index) = classes.iter().position(|class| class.name == name) {
        return Some(index as ClassIndex);
    }
    let names = || classes.iter().map(|class| class.name.as_str());
    let suggestion = nearest(name, names()).map(|name| format!("did you mean `{name}`?"));
    let message = format!("no class is named `{name}`");
    reader.error(ErrorKind::UnknownName, span, message, one_of(names())).help = suggestion;
    None
}

fn read_burst(reader: &mut Reader, item: &Item<'_>) -> Option<u32> {
    let size = read_size(reader, item)?;
    if size.value == 0 || size.value > u64::from(BURST_BYTES_MAX) {
        let message = format!("`{}` is out of range", item.key);
        reader.error(ErrorKind::BadValue, &item.span, message, "1 B to 1 GiB");
        return None;
    }
    Some(size.value as u32)
}

fn read_limit(reader: &mut Reader, item: &Item<'_>) -> Option<u32> {
    let size = read_size(reader, item)?;
    if size.value == 0 || size.value > LIMIT_BYTES_MAX {
        reader.error(ErrorKind::BadValue, &item.span, "`limit` is out of range", "1 B to 1 GiB");
        return None;
    }
    if size.value < FULL_FRAME_BYTES {
        let message = "a full frame does not fit into this queue and is always dropped";
        reader.warning(ErrorKind::BadValue, &item.span, message, "at least 1514 bytes");
    }
    Some(size.value as u32)
}

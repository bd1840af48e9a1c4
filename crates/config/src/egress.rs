//! `[[qos.egress]]`, the rate of a port, and `[qos.classes.queue]`, the queue of a class at every port.
//!
//! `crates/node/src/egress.rs` derives missing values when the port is known.

use std::ops::Range;

use thalweg_dataplane::egress::{BURST_BYTES_MAX, STRICT_SHARE_PERCENT_DEFAULT};
use thalweg_dataplane::schedule::Service;

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::items::{RATE, SIZE, read_rate, read_size};
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::{
    Class, ClassIndex, ClassQueue, CodelConfig, INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX, LIMIT_PACKETS_DEFAULT,
    OVERHEAD_ETHERNET, PortEgress, PortIndex,
};

pub(crate) static QUEUE: Key<Sub> = Key::section("queue", &QUEUE_TABLE)
    .otherwise("by the class's service")
    .help("the class's queue at every live port");
table! {
    static QUEUE_TABLE: "qos.classes.queue", "[qos.classes.queue]";

    static QUEUE_RATE: Key<u64> = Key::by("rate", RATE, read_rate)
        .help("rate limit of the class at each port, even if the port is idle: `\"30 Mbit/s\"`");
    static QUEUE_BURST: Key<u32> = Key::by("burst", SIZE, read_burst)
        .otherwise("what it sends in 1 ms, at least two full frames")
        .help("burst after a pause, in bytes");
    static LIMIT: Key<u32> = Key::by("limit", SIZE, read_limit)
        .otherwise("what leaves in 250 ms, at most 4 MiB; for strict classes 20 ms, 1 MiB")
        .help("queue limit in bytes: `\"256 KiB\"`");
    static LIMIT_PACKETS: Key<u32> = Key::number("limit_packets", 1..=LIMIT_PACKETS_MAX)
        .unit("packets")
        .default(LIMIT_PACKETS_DEFAULT)
        .help("queue limit in packets");
    static AQM: Key<bool> = Key::word("aqm", &[("codel", true), ("none", false)])
        .otherwise("`\"codel\"`; for strict classes `\"none\"`")
        .help("`\"codel\"` (RFC 8289) or `\"none\"`");
    static TARGET_US: Key<u32> = Key::number("target_us", 1..=1_000_000)
        .unit("microseconds")
        .otherwise("`5000`, more where two full frames take longer")
        .help("CoDel's target delay, below `interval_ms`");
    static INTERVAL_MS: Key<u32> = Key::number("interval_ms", 1..=INTERVAL_MS_MAX)
        .unit("milliseconds")
        .default(INTERVAL_MS_DEFAULT)
        .help("CoDel's interval");
    static ECN: Key<bool> =
        Key::flag("ecn").default(true).help("mark ECN-capable packets instead of dropping them (RFC 3168)");
}

pub(crate) static EGRESS: Key<Sub> =
    Key::sections("egress", &EGRESS_TABLE).help("shaping and queues of a live port");
table! {
    static EGRESS_TABLE: "qos.egress", "[[qos.egress]]";

    static PORT: Key<()> = Key::raw("port", "a port").required("\"wan\"").help("the port");
    static RATE_OF_PORT: Key<u64> = Key::by("rate", RATE, read_rate)
        .otherwise("as much as the port takes")
        .help("shaping rate of the port: `\"100 Mbit/s\"`");
    static BURST_OF_PORT: Key<u32> = Key::by("burst", SIZE, read_burst)
        .otherwise("what leaves in 1 ms, at least two full frames")
        .help("burst after a pause, in bytes; needs `rate`");
    static OVERHEAD: Key<u16> = Key::number("overhead", 0..=OVERHEAD_MAX)
        .unit("bytes for each frame")
        .default(OVERHEAD_ETHERNET)
        .help("overhead of a frame on the line, in bytes");
    static STRICT_SHARE_PERCENT: Key<u8> = Key::number("strict_share_percent", 1..=100)
        .unit("percent")
        .default(STRICT_SHARE_PERCENT_DEFAULT)
        .help("rate limit of all strict classes together while weighted classes wait");
    static CLASS_RATES: Key<()> = Key::raw("class_rates", "a table of rates by class").help(
        "rate limits of classes at this port, in place of their queues' `rate`: `{ voice = \"30 Mbit/s\" }`",
    );
}

/// Larger overheads (ATM cells, tunnels) are proportional to the packet, so no constant describes them.
const OVERHEAD_MAX: u64 = 256;
const LIMIT_PACKETS_MAX: u64 = 1 << 20;
const LIMIT_BYTES_MAX: u64 = 1 << 30;
/// With less, a full Ethernet frame never fits.
const FULL_FRAME_BYTES: u64 = 1514;
pub(crate) fn read_queue(reader: &mut Reader, class: &mut Section<'_>, service: Service) -> ClassQueue {
    let mut queue = ClassQueue::of(service);
    let mut section = class.section_or_empty(reader, &QUEUE);
    queue.rate_bps = section.get(reader, &QUEUE_RATE);
    queue.burst_bytes = section.get(reader, &QUEUE_BURST);
    queue.limit_bytes = section.get(reader, &LIMIT);
    section.set(reader, &LIMIT_PACKETS, &mut queue.limit_packets);
    if let Some(is_managed) = section.get(reader, &AQM) {
        queue.codel = is_managed.then(|| queue.codel.unwrap_or_default());
    }
    read_codel(reader, &mut section, &mut queue.codel);
    section.finish(reader);
    queue
}

fn read_codel(reader: &mut Reader, section: &mut Section<'_>, codel: &mut Option<CodelConfig>) {
    let Some(codel) = codel else {
        // None of these has an effect here, which is probably not intended.
        let keys = [section.take(&TARGET_US), section.take(&INTERVAL_MS), section.take(&ECN)];
        for item in keys.into_iter().flatten() {
            let message =
                format!("`{}` belongs to active queue management, which this class does not use", item.key);
            reader.error(ErrorKind::Conflict, &item.span, message, "`aqm = \"codel\"` beside it");
        }
        return;
    };
    let target = section.read(reader, &TARGET_US);
    section.set(reader, &INTERVAL_MS, &mut codel.interval_ms);
    section.set(reader, &ECN, &mut codel.ecn);
    if let Some(At { span, .. }) = target.as_ref().filter(|at| at.value >= codel.interval_ms * 1_000) {
        let message = "the target is not below the interval";
        let expected = "a twentieth to a tenth of `interval_ms` (RFC 8289 section 4.3)";
        reader.error(ErrorKind::Conflict, span, message, expected);
    }
    codel.target_us = target.map(|at| at.value);
}

pub(crate) fn read_ports(
    reader: &mut Reader,
    sections: Vec<Section<'_>>,
    ports: &Ports,
    classes: &[Class],
) -> Vec<PortEgress> {
    let mut egress: Vec<(PortEgress, Range<usize>)> = Vec::new();
    for mut section in sections {
        let port = section.take(&PORT);
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
    let rate = section.read(reader, &RATE_OF_PORT);
    egress.rate_bps = rate.as_ref().map(|rate| rate.value);
    if let Some(item) = section.take(&BURST_OF_PORT) {
        egress.burst_bytes = BURST_OF_PORT.value(reader, &item);
        if rate.is_none() {
            let message = "a port without a rate has no burst";
            reader.error(ErrorKind::Conflict, &item.span, message, "`rate = \"100 Mbit/s\"` beside it");
        }
    }
    section.set(reader, &OVERHEAD, &mut egress.overhead_bytes);
    section.set(reader, &STRICT_SHARE_PERCENT, &mut egress.strict_share_percent);
    let rates = section.take(&CLASS_RATES);
    let rates = rates.and_then(|item| reader.names(&item)).unwrap_or_default();
    for (name_span, item) in rates {
        let class = class_named(reader, classes, item.key, &name_span);
        let class_rate = read_rate(reader, &item);
        if let (Some(port), Some(value)) = (&rate, class_rate) {
            warn_of_idle_bound(reader, port, &At { value, span: item.span });
        }
        egress.class_rates.extend(class.zip(class_rate));
    }
    egress
}

/// A class's limit above the port's is valid but never effective.
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
    if size == 0 || size > u64::from(BURST_BYTES_MAX) {
        let message = format!("`{}` is out of range", item.key);
        reader.error(ErrorKind::BadValue, &item.span, message, "1 B to 1 GiB");
        return None;
    }
    Some(size as u32)
}

fn read_limit(reader: &mut Reader, item: &Item<'_>) -> Option<u32> {
    let size = read_size(reader, item)?;
    if size == 0 || size > LIMIT_BYTES_MAX {
        reader.error(ErrorKind::BadValue, &item.span, "`limit` is out of range", "1 B to 1 GiB");
        return None;
    }
    if size < FULL_FRAME_BYTES {
        let message = "a full frame does not fit into this queue and is always dropped";
        reader.warning(ErrorKind::BadValue, &item.span, message, "at least 1514 bytes");
    }
    Some(size as u32)
}

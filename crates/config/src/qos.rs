//! `[[qos.classes]]` and their policers, and `[validate]`.
//!
//! ```toml
//! [[qos.classes]]
//! name = "voice"          # required; a packet takes the first class that matches
//! strict = 0              # served before everything of a higher level, 0 first; or:
//! weight = 4              # a share of what strict classes leave, 1 to 1000; default 1
//! match = [               # required but for the class `default`: any entry, all keys of the entry
//!   { dscp = ["ef", 46] },                                     # names or numbers
//!   { application = ["rtp", "sip"] },                          # by name, as in text traces
//!   { protocol = "udp", destination_ports = "10000-20000" },   # source_ports too
//!   { source = "10.0.0.0/8", destination = ["192.0.2.0/24"] },
//!   { port_in = "lan" },
//! ]
//!
//! [qos.classes.policer]
//! kind = "trtcm"          # RFC 2698: cir, cbs, pir, pbs; or "srtcm", RFC 2697: cir, cbs, ebs
//! cir = "2 Mbit/s"        # rates: bit/s, kbit/s, Mbit/s, Gbit/s, or a number of bits per second
//! cbs = "64 KiB"          # bursts: B, kB, KiB, MB, MiB, or a number of bytes
//! pir = "4 Mbit/s"
//! pbs = "128 KiB"
//! color_aware = false    # let the packet's own color count
//! yellow_dscp = "af12"    # new DSCP of yellow packets; default: unchanged
//! red = "drop"            # or "remark", with red_dscp
//! red_dscp = "af13"
//!
//! # [qos.classes.queue] and [[qos.egress]]: egress.rs
//!
//! [validate]
//! martians = true         # drop addresses that can never be (RFC 1812 section 5.3.7)
//! ```
//!
//! Packets of no class go to the class `default`, which has weight 1 unless it is configured.

use std::ops::Range;

use thalweg_wire::application::{self, APPLICATIONS};

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::egress::{self, ClassQueue};
use crate::nat::port_range;
use crate::ports::Ports;
use crate::reader::{At, Item, Reader, Section, integer_of};
use crate::types::{
    Class, ClassIndex, Match, Meter, Policer, PortRange, QosConfig, RedAction, Service, ValidateConfig,
};
use crate::values;

/// A packet carries its class in a byte.
const CLASSES_MAX: usize = 256;
const LEVEL_MAX: u64 = 15;
const WEIGHT_MAX: u64 = 1000;
const BURST_MAX_BYTES: u64 = 1 << 40;
const RATE_MAX_BPS: u64 = 1 << 50;
const DEFAULT: &str = "default";

/// Reads `[qos]`.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> QosConfig {
    let mut classes: Vec<(Class, Range<usize>)> = Vec::new();
    let mut egress = None;
    if let Some(item) = root.take("qos")
        && let Some(mut section) = reader.section(&item, "[qos]".to_owned())
    {
        if let Some(list) = section.take("classes") {
            for entry in reader.list(&list) {
                read_class(reader, &entry, ports, &mut classes);
            }
        }
        egress = section.take("egress");
        section.finish(reader);
    }
    let mut classes: Vec<Class> = classes.into_iter().map(|(class, _)| class).collect();
    let default = classes.iter().position(|class| class.name == DEFAULT).unwrap_or_else(|| {
        let service = Service::Weighted { weight: 1 };
        let queue = ClassQueue::of(service);
        classes.push(Class { name: DEFAULT.to_owned(), service, matches: Vec::new(), policer: None, queue });
        classes.len() - 1
    });
    let egress = egress.map_or_else(Vec::new, |list| egress::read_ports(reader, &list, ports, &classes));
    QosConfig { classes, default_class: default as ClassIndex, egress }
}

/// Reads `[validate]`.
pub(crate) fn read_validate(reader: &mut Reader, root: &mut Section<'_>) -> ValidateConfig {
    let mut validate = ValidateConfig::default();
    if let Some(item) = root.take("validate")
        && let Some(mut section) = reader.section(&item, "[validate]".to_owned())
    {
        if let Some(martians) = section.take("martians").and_then(|item| reader.boolean(&item)) {
            validate.martians = martians;
        }
        section.finish(reader);
    }
    validate
}

fn read_class(
    reader: &mut Reader,
    entry: &Item<'_>,
    ports: &Ports,
    classes: &mut Vec<(Class, Range<usize>)>,
) {
    let Some(mut section) = reader.section(entry, "[[qos.classes]]".to_owned()) else { return };
    let name = section.require("name", "\"voice\"").and_then(|item| reader.parse(&item, parse_name));
    if let Some(name) = &name {
        section.title = format!("class `{}`", name.value);
    }
    let service = read_service(reader, &mut section);
    let is_default = name.as_ref().is_some_and(|name| name.value == DEFAULT);
    let matches = read_matches(reader, &mut section, ports, is_default);
    let policer = section.take("policer").and_then(|item| read_policer(reader, &item));
    let queue = egress::read_queue(reader, &mut section, service);
    section.finish(reader);
    let Some(At { value: name, span }) = name else { return };
    if let Some((_, first)) = classes.iter().find(|(class, _)| class.name == name) {
        let expected = format!("a name other than that of {}", reader.line(first));
        reader.error(ErrorKind::Duplicate, &span, format!("two classes are named `{name}`"), expected);
        return;
    }
    // One place is kept for `default`, whether or not it is configured.
    if classes.len() >= CLASSES_MAX - 1 && !is_default {
        let expected = format!("at most {CLASSES_MAX}, `default` included");
        reader.error(ErrorKind::TooMany, &span, "too many classes", expected);
        return;
    }
    classes.push((Class { name, service, matches, policer, queue }, span));
}

pub(crate) fn parse_name(text: &str) -> Result<String, &'static str> {
    let is_allowed = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    if !text.trim().is_empty() && text.chars().count() <= 64 && text.chars().all(is_allowed) {
        Ok(text.to_owned())
    } else {
        Err("up to 64 letters, digits, blanks, `-`, `_` and `.`")
    }
}

fn read_service(reader: &mut Reader, section: &mut Section<'_>) -> Service {
    let strict = section.take("strict");
    let weight = section.take("weight");
    match (strict, weight) {
        (Some(_), Some(weight)) => {
            let message = "a class is served by `strict` or `weight`, not both";
            reader.error(ErrorKind::Conflict, &weight.span, message, "either of them alone");
            Service::Weighted { weight: 1 }
        }
        (Some(item), None) => {
            let level = reader.integer(&item, 0..=LEVEL_MAX, "").unwrap_or(0) as u8;
            Service::Strict { level }
        }
        (None, Some(item)) => {
            let weight = reader.integer(&item, 1..=WEIGHT_MAX, "").unwrap_or(1) as u16;
            Service::Weighted { weight }
        }
        (None, None) => Service::Weighted { weight: 1 },
    }
}

fn read_matches(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    is_default: bool,
) -> Vec<Match> {
    if is_default {
        if let Some(item) = section.take("match") {
            let message = "class `default` takes what matches no other class";
            reader.error(ErrorKind::Conflict, &item.span, message, "no `match` here");
        }
        return Vec::new();
    }
    let Some(item) = section.require("match", "[{ dscp = \"ef\" }]") else { return Vec::new() };
    let entries = reader.filled_list(&item);
    entries.iter().filter_map(|entry| read_match(reader, entry, ports)).collect()
}

fn read_match(reader: &mut Reader, entry: &Item<'_>, ports: &Ports) -> Option<Match> {
    let mut section = reader.section(entry, "an entry of `match`".to_owned())?;
    let matched = Match {
        dscp: read_list(reader, &mut section, "dscp", read_dscp),
        applications: read_list(reader, &mut section, "application", read_application),
        protocols: read_list(reader, &mut section, "protocol", read_protocol),
        source_ports: read_list(reader, &mut section, "source_ports", |r, i| {
            port_range(r, i).map(|at| at.value)
        }),
        destination_ports: read_list(reader, &mut section, "destination_ports", |r, i| {
            port_range(r, i).map(|at| at.value)
        }),
        sources: read_list(reader, &mut section, "source", read_prefix),
        destinations: read_list(reader, &mut section, "destination", read_prefix),
        ports_in: read_list(reader, &mut section, "port_in", |reader, item| ports.named(reader, item)),
    };
    let span = section.span.clone();
    let is_empty = section.is_empty();
    section.finish(reader);
    if is_empty {
        let finding = reader.error(
            ErrorKind::BadValue,
            &span,
            "an entry without keys matches every packet",
            "dscp, application, protocol, source_ports, destination_ports, source, destination or port_in",
        );
        finding.help = Some("the class named `default` takes what matches no other class".to_owned());
        return None;
    }
    check_match(reader, &matched, &span);
    Some(matched)
}

/// Conditions that no packet can meet together.
fn check_match(reader: &mut Reader, matched: &Match, span: &Range<usize>) {
    const WITH_PORTS: [u8; 3] = [6, 17, 132];
    let has_ports = |ports: &[PortRange]| !ports.is_empty();
    let wants_ports = has_ports(&matched.source_ports) || has_ports(&matched.destination_ports);
    let some_protocol = matched.protocols.first();
    if wants_ports && some_protocol.is_some() && !matched.protocols.iter().any(|p| WITH_PORTS.contains(p)) {
        let message = "packets of this protocol have no ports";
        reader.error(ErrorKind::Conflict, span, message, "protocol tcp, udp or sctp, or no ports");
    }
    check_families(reader, &matched.sources, &matched.destinations, span);
}

/// No packet has a source of one family and a destination of the other.
pub(crate) fn check_families(
    reader: &mut Reader,
    sources: &[ipnet::IpNet],
    destinations: &[ipnet::IpNet],
    span: &Range<usize>,
) {
    let families = |nets: &[ipnet::IpNet]| {
        (nets.iter().any(|n| n.addr().is_ipv4()), nets.iter().any(|n| n.addr().is_ipv6()))
    };
    if !sources.is_empty() && !destinations.is_empty() {
        let (from, to) = (families(sources), families(destinations));
        if !(from.0 && to.0 || from.1 && to.1) {
            let message = "source and destination are of different families";
            reader.error(ErrorKind::Conflict, span, message, "prefixes of the same family");
        }
    }
}

/// The values of a key that is one value or a list of them.
pub(crate) fn read_list<T>(
    reader: &mut Reader,
    section: &mut Section<'_>,
    key: &'static str,
    read: impl Fn(&mut Reader, &Item<'_>) -> Option<T>,
) -> Vec<T> {
    match section.take(key) {
        Some(item) => reader.filled_list(&item).iter().filter_map(|entry| read(reader, entry)).collect(),
        None => Vec::new(),
    }
}

pub(crate) fn read_prefix(reader: &mut Reader, item: &Item<'_>) -> Option<ipnet::IpNet> {
    reader.parse(item, values::prefix).map(|at| at.value)
}

pub(crate) fn read_dscp(reader: &mut Reader, item: &Item<'_>) -> Option<u8> {
    if integer_of(item.value).is_some() {
        return reader.integer(item, 0..=63, "").map(|n| n as u8);
    }
    const EXPECTED: &str = "a number from 0 to 63, or a name such as ef, af41, cs6";
    let name = reader.string(item, EXPECTED)?;
    let value = values::dscp(name);
    if value.is_none() {
        let suggestion = nearest(name, values::DSCP_NAMES.iter().map(|(name, _)| *name));
        let finding =
            reader.error(ErrorKind::UnknownName, &item.span, format!("no DSCP is named `{name}`"), EXPECTED);
        finding.help = suggestion.map(|s| format!("did you mean `{s}`?"));
    }
    value
}

fn read_application(reader: &mut Reader, item: &Item<'_>) -> Option<u8> {
    const EXPECTED: &str = "the name of an application protocol, such as rtp, sip, http, dns";
    let name = reader.string(item, EXPECTED)?;
    let found = application::by_name(name);
    if found.is_none() {
        let message = format!("no application is named `{name}`");
        let suggestion = nearest(name, APPLICATIONS.iter().map(|a| a.name));
        let finding = reader.error(ErrorKind::UnknownName, &item.span, message, EXPECTED);
        finding.help = Some(match suggestion {
            Some(s) => format!("did you mean `{s}`?"),
            None => format!("known are {}", one_of(APPLICATIONS.iter().map(|a| a.name))),
        });
    }
    found.map(|application| application.code)
}

pub(crate) fn read_protocol(reader: &mut Reader, item: &Item<'_>) -> Option<u8> {
    if integer_of(item.value).is_some() {
        return reader.integer(item, 0..=255, "").map(|n| n as u8);
    }
    reader.word(item, values::PROTOCOLS)
}

fn read_policer(reader: &mut Reader, item: &Item<'_>) -> Option<Policer> {
    let mut section = reader.section(item, "[qos.classes.policer]".to_owned())?;
    let kind = section.require("kind", "\"trtcm\"");
    let two_rate = kind.and_then(|item| reader.word(&item, &[("trtcm", true), ("srtcm", false)]));
    let cir = section.require("cir", "\"2 Mbit/s\"").and_then(|item| read_rate(reader, &item));
    let cbs = section.require("cbs", "\"64 KiB\"").and_then(|item| read_size(reader, &item));
    // With an unknown kind, the keys of both are known.
    let (mut pir, mut pbs, mut ebs) = (None, None, None);
    if two_rate != Some(false) {
        pir =
            take_for(&mut section, "pir", "\"4 Mbit/s\"", two_rate).and_then(|item| read_rate(reader, &item));
        pbs =
            take_for(&mut section, "pbs", "\"128 KiB\"", two_rate).and_then(|item| read_size(reader, &item));
    }
    if two_rate != Some(true) {
        let two_rate = two_rate.map(|two| !two);
        ebs =
            take_for(&mut section, "ebs", "\"128 KiB\"", two_rate).and_then(|item| read_size(reader, &item));
    }
    let color_aware = section
        .take_renamed("color_aware", "colour_aware")
        .and_then(|item| reader.boolean(&item))
        .unwrap_or(false);
    let yellow_dscp = section.take("yellow_dscp").and_then(|item| read_dscp(reader, &item));
    let red = read_red(reader, &mut section);
    section.finish(reader);
    let (cir, cbs) = (cir?, cbs?);
    let meter = if two_rate? {
        two_rate_meter(reader, &cir, &cbs, &pir?, &pbs?)?
    } else {
        single_rate_meter(reader, &cir, &cbs, &ebs?)?
    };
    Some(Policer { meter, color_aware, yellow_dscp, red })
}

fn take_for<'a>(
    section: &mut Section<'a>,
    key: &'static str,
    example: &'static str,
    required: Option<bool>,
) -> Option<Item<'a>> {
    if required == Some(true) { section.require(key, example) } else { section.take(key) }
}

fn two_rate_meter(
    reader: &mut Reader,
    cir: &At<u64>,
    cbs: &At<u64>,
    pir: &At<u64>,
    pbs: &At<u64>,
) -> Option<Meter> {
    if pir.value < cir.value {
        let message = "the peak rate is below the committed rate";
        reader.error(ErrorKind::Conflict, &pir.span, message, "at least `cir` (RFC 2698 section 2)");
        return None;
    }
    for (key, burst) in [("cbs", cbs), ("pbs", pbs)] {
        check_burst(reader, key, burst)?;
    }
    Some(Meter::TwoRate {
        cir_bps: cir.value,
        cbs_bytes: cbs.value,
        pir_bps: pir.value,
        pbs_bytes: pbs.value,
    })
}

fn single_rate_meter(reader: &mut Reader, cir: &At<u64>, cbs: &At<u64>, ebs: &At<u64>) -> Option<Meter> {
    if cbs.value == 0 && ebs.value == 0 {
        let message = "both bursts are zero, so no packet would pass";
        let expected = "`cbs` or `ebs` above zero (RFC 2697 section 2)";
        reader.error(ErrorKind::BadValue, &ebs.span, message, expected);
        return None;
    }
    let larger = if cbs.value >= ebs.value { ("cbs", cbs) } else { ("ebs", ebs) };
    check_burst(reader, larger.0, larger.1)?;
    Some(Meter::SingleRate { cir_bps: cir.value, cbs_bytes: cbs.value, ebs_bytes: ebs.value })
}

/// RFC 2697 and 2698: a burst holds at least the largest packet, or that packet never passes.
fn check_burst(reader: &mut Reader, key: &str, burst: &At<u64>) -> Option<()> {
    const LARGE_PACKET_BYTES: u64 = 1500;
    if burst.value == 0 {
        let message = format!("{key} is zero, so no packet would pass");
        reader.error(ErrorKind::BadValue, &burst.span, message, "a burst above zero");
        return None;
    }
    if burst.value < LARGE_PACKET_BYTES {
        let message = format!("{key} is smaller than a large packet, which then never passes");
        reader.warning(ErrorKind::BadValue, &burst.span, message, "at least 1500 bytes");
    }
    Some(())
}

fn read_red(reader: &mut Reader, section: &mut Section<'_>) -> RedAction {
    let red = section.take("red");
    let red_dscp = section.take("red_dscp");
    let remark = match &red {
        Some(item) => reader.word(item, &[("drop", false), ("remark", true)]),
        None => Some(false),
    };
    let dscp = red_dscp.as_ref().and_then(|item| read_dscp(reader, item));
    match (remark, red, red_dscp) {
        (Some(true), Some(red), None) => {
            let message = "remarking red packets needs a new DSCP";
            reader.error(ErrorKind::MissingKey, &red.span, message, "`red_dscp = \"af13\"` beside it");
            RedAction::Drop
        }
        (Some(false), _, Some(red_dscp)) => {
            let message = "dropped packets have no DSCP";
            reader.error(ErrorKind::Conflict, &red_dscp.span, message, "`red = \"remark\"` beside it");
            RedAction::Drop
        }
        (Some(true), ..) => dscp.map_or(RedAction::Drop, |dscp| RedAction::Remark { dscp }),
        _ => RedAction::Drop,
    }
}

pub(crate) fn read_rate(reader: &mut Reader, item: &Item<'_>) -> Option<At<u64>> {
    if integer_of(item.value).is_some() {
        let value = reader.integer(item, 1..=RATE_MAX_BPS, "bits per second")?;
        return Some(At { value, span: item.span.clone() });
    }
    let rate = reader.parse(item, values::rate)?;
    within(reader, item, rate, RATE_MAX_BPS, "at most 1125 Tbit/s")
}

pub(crate) fn read_size(reader: &mut Reader, item: &Item<'_>) -> Option<At<u64>> {
    if integer_of(item.value).is_some() {
        let value = reader.integer(item, 0..=BURST_MAX_BYTES, "bytes")?;
        return Some(At { value, span: item.span.clone() });
    }
    let size = reader.parse(item, values::size)?;
    within(reader, item, size, BURST_MAX_BYTES, "at most 1024 GiB")
}

fn within(reader: &mut Reader, item: &Item<'_>, at: At<u64>, most: u64, expected: &str) -> Option<At<u64>> {
    if at.value > most {
        reader.error(ErrorKind::BadValue, &at.span, format!("`{}` is out of range", item.key), expected);
        return None;
    }
    Some(at)
}

//! `[[qos.classes]]` with their policers, and `[validate]`. Queues and ports are in `egress.rs`.
//!
//! Packets that match no class belong to the class `default`, which has weight 1 unless it is configured.

use std::ops::{Range, RangeInclusive};

use ipnet::IpNet;
use thalweg_dataplane::classify::Match;
use thalweg_dataplane::police::{ColorAction, Marker, PolicerConfig};
use thalweg_dataplane::schedule::Service;
use thalweg_wire::application::{self, APPLICATIONS};

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::egress;
use crate::items::{
    DSCP_LIST, PORT_LIST, PREFIX_LIST, PROTOCOL_LIST, RATE, SIZE, check_families, parse_name, port_range,
    read_dscp, read_prefix, read_protocol, read_rate, read_size,
};
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::{Class, ClassIndex, ClassQueue, QosConfig, ValidateConfig};

pub(crate) static QOS: Key<Sub> =
    Key::section("qos", &TABLE).help("traffic classes, and the queues of ports");
table! {
    static TABLE: "qos", "[qos]";

    static CLASSES: Key<Sub> = Key::sections("classes", &CLASS_TABLE)
        .help("traffic classes, in order; a packet takes the first that matches");
    row egress::EGRESS;
}

table! {
    static CLASS_TABLE: "qos.classes", "[[qos.classes]]";

    static NAME: Key<String> =
        Key::text("name", "a name", parse_name).required("\"voice\"").help("its name in reports");
    static STRICT: Key<u8> = Key::number("strict", 0..=LEVEL_MAX)
        .help("strict priority level, served before higher levels and before all weights; 0 is first");
    static WEIGHT: Key<u16> = Key::number("weight", 1..=WEIGHT_MAX)
        .otherwise("1")
        .help("instead of `strict`: share of the rate that strict classes leave");
    static MATCH: Key<Sub> = Key::sections("match", &MATCH_TABLE)
        .otherwise("required but for `default`")
        .example("[{ dscp = \"ef\" }]")
        .help("entries: a packet matches any entry, and of that entry all keys");
    static POLICER: Key<Sub> = Key::section("policer", &POLICER_TABLE).help("policer of the class");
    row egress::QUEUE;
}

table! {
    static MATCH_TABLE: "qos.classes.match", "an entry of `match`";

    static DSCP: Key<Vec<u8>> = Key::by("dscp", DSCP_LIST, |reader, item| reader.all(item, read_dscp))
        .help("names or numbers: `[\"ef\", 46]`");
    static APPLICATION: Key<Vec<u8>> =
        Key::by("application", "a name or a list", |reader, item| reader.all(item, read_application))
            .help("names as in [text traces](formats.md): `[\"rtp\", \"sip\"]`");
    static PROTOCOL: Key<Vec<u8>> =
        Key::by("protocol", PROTOCOL_LIST, |reader, item| reader.all(item, read_protocol))
            .help("transport: `\"udp\"`, or a number");
    static SOURCE_PORTS: Key<Vec<RangeInclusive<u16>>> =
        Key::by("source_ports", PORT_LIST, |reader, item| reader.all(item, port_range))
            .help("numbers or ranges: `\"10000-20000\"`");
    static DESTINATION_PORTS: Key<Vec<RangeInclusive<u16>>> =
        Key::by("destination_ports", PORT_LIST, |reader, item| reader.all(item, port_range))
            .help("numbers or ranges: `\"10000-20000\"`");
    static SOURCE: Key<Vec<IpNet>> =
        Key::by("source", PREFIX_LIST, |reader, item| reader.all(item, read_prefix)).help("prefixes");
    static DESTINATION: Key<Vec<IpNet>> =
        Key::by("destination", PREFIX_LIST, |reader, item| reader.all(item, read_prefix)).help("prefixes");
    static PORT_IN: Key<()> = Key::raw("port_in", "a port or a list").help("ingress ports");
}

table! {
    static POLICER_TABLE: "qos.classes.policer", "[qos.classes.policer]";

    static KIND: Key<bool> = Key::word("kind", &[("trtcm", true), ("srtcm", false)])
        .required("\"trtcm\"")
        .help("`\"trtcm\"`, two rates and three colors, RFC 2698; or `\"srtcm\"`, one rate, RFC 2697");
    static CIR: Key<u64> =
        Key::by("cir", RATE, read_rate).required("\"2 Mbit/s\"").help("committed rate: `\"2 Mbit/s\"`");
    static CBS: Key<u64> =
        Key::by("cbs", SIZE, read_size).required("\"64 KiB\"").help("committed burst: `\"64 KiB\"`");
    static PIR: Key<u64> = Key::by("pir", RATE, read_rate)
        .otherwise("required for `\"trtcm\"`")
        .example("\"4 Mbit/s\"")
        .help("peak rate");
    static PBS: Key<u64> = Key::by("pbs", SIZE, read_size)
        .otherwise("required for `\"trtcm\"`")
        .example("\"128 KiB\"")
        .help("peak burst");
    static EBS: Key<u64> = Key::by("ebs", SIZE, read_size)
        .otherwise("required for `\"srtcm\"`")
        .example("\"128 KiB\"")
        .help("excess burst");
    static COLOR_AWARE: Key<bool> = Key::flag("color_aware")
        .former("colour_aware")
        .default(false)
        .help("color-aware: start from the color that the DSCP shows");
    static YELLOW_DSCP: Key<u8> = Key::by("yellow_dscp", "a DSCP", read_dscp)
        .otherwise("unchanged")
        .help("new DSCP of yellow packets: `\"af12\"`");
    static RED: Key<bool> = Key::word("red", &[("drop", false), ("remark", true)])
        .default(false)
        .help("`\"drop\"`, or `\"remark\"` with `red_dscp`");
    static RED_DSCP: Key<u8> = Key::by("red_dscp", "a DSCP", read_dscp).help("new DSCP of red packets");
}

pub(crate) static VALIDATE: Key<Sub> =
    Key::section("validate", &VALIDATE_TABLE).help("checks of received packets");
table! {
    static VALIDATE_TABLE: "validate", "[validate]";

    static MARTIANS: Key<bool> = Key::flag("martians").default(true).help(
        "drop addresses that can never be a source or be routed (RFC 1812 section 5.3.7). Whatever this says, broadcast and \
         multicast are never forwarded or translated, nor is a unicast packet in a frame to a broadcast or multicast MAC address",
    );
}

/// A packet carries its class in a byte.
const CLASSES_MAX: usize = 256;
const LEVEL_MAX: u64 = 15;
const WEIGHT_MAX: u64 = 1000;
const DEFAULT: &str = "default";

pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &Ports) -> QosConfig {
    let mut classes: Vec<(Class, Range<usize>)> = Vec::new();
    let mut section = root.section_or_empty(reader, &QOS);
    for class in section.sections(reader, &CLASSES) {
        read_class(reader, class, ports, &mut classes);
    }
    let egress = section.sections(reader, &egress::EGRESS);
    section.finish(reader);
    let mut classes: Vec<Class> = classes.into_iter().map(|(class, _)| class).collect();
    let default = classes.iter().position(|class| class.name == DEFAULT).unwrap_or_else(|| {
        let service = Service::Weight(1);
        let queue = ClassQueue::of(service);
        classes.push(Class { name: DEFAULT.to_owned(), service, matches: Vec::new(), policer: None, queue });
        classes.len() - 1
    });
    let egress = egress::read_ports(reader, egress, ports, &classes);
    QosConfig { classes, default_class: default as ClassIndex, egress }
}

pub(crate) fn read_validate(reader: &mut Reader, root: &mut Section<'_>) -> ValidateConfig {
    let mut validate = ValidateConfig::default();
    let mut section = root.section_or_empty(reader, &VALIDATE);
    section.set(reader, &MARTIANS, &mut validate.martians);
    section.finish(reader);
    validate
}

fn read_class(
    reader: &mut Reader,
    mut section: Section<'_>,
    ports: &Ports,
    classes: &mut Vec<(Class, Range<usize>)>,
) {
    let name = section.read(reader, &NAME);
    if let Some(name) = &name {
        section.title = format!("class `{}`", name.value);
    }
    let service = read_service(reader, &mut section);
    let is_default = name.as_ref().is_some_and(|name| name.value == DEFAULT);
    let matches = read_matches(reader, &mut section, ports, is_default);
    let policer = section.section(reader, &POLICER).and_then(|policer| read_policer(reader, policer));
    let queue = egress::read_queue(reader, &mut section, service);
    section.finish(reader);
    let Some(At { value: name, span }) = name else { return };
    if let Some((_, first)) = classes.iter().find(|(class, _)| class.name == name) {
        let expected = format!("a name other than that of {}", reader.line(first));
        reader.error(ErrorKind::Duplicate, &span, format!("two classes are named `{name}`"), expected);
        return;
    }
    // One place is reserved for `default`, configured or not.
    if classes.len() >= CLASSES_MAX - 1 && !is_default {
        let expected = format!("at most {CLASSES_MAX}, `default` included");
        reader.error(ErrorKind::TooMany, &span, "too many classes", expected);
        return;
    }
    classes.push((Class { name, service, matches, policer, queue }, span));
}

fn read_service(reader: &mut Reader, section: &mut Section<'_>) -> Service {
    let strict = section.take(&STRICT);
    let weight = section.take(&WEIGHT);
    match (strict, weight) {
        (Some(_), Some(weight)) => {
            let message = "a class is served by `strict` or `weight`, not both";
            reader.error(ErrorKind::Conflict, &weight.span, message, "either of them alone");
            Service::Weight(1)
        }
        (Some(item), None) => Service::Strict(STRICT.value(reader, &item).unwrap_or(0)),
        (None, Some(item)) => Service::Weight(WEIGHT.value(reader, &item).unwrap_or(1)),
        (None, None) => Service::Weight(1),
    }
}

fn read_matches(
    reader: &mut Reader,
    section: &mut Section<'_>,
    ports: &Ports,
    is_default: bool,
) -> Vec<Match> {
    if is_default {
        if let Some(item) = section.take(&MATCH) {
            let message = "class `default` takes what matches no other class";
            reader.error(ErrorKind::Conflict, &item.span, message, "no `match` here");
        }
        return Vec::new();
    }
    let Some(item) = section.require(&MATCH) else { return Vec::new() };
    let entries = reader.filled_list(&item);
    entries.iter().filter_map(|entry| read_match(reader, entry, ports)).collect()
}

fn read_match(reader: &mut Reader, entry: &Item<'_>, ports: &Ports) -> Option<Match> {
    let mut section = reader.section(entry, &MATCH_TABLE)?;
    let mut matched = Match::default();
    section.set(reader, &DSCP, &mut matched.dscp);
    section.set(reader, &APPLICATION, &mut matched.applications);
    section.set(reader, &PROTOCOL, &mut matched.protocols);
    section.set(reader, &SOURCE_PORTS, &mut matched.source_ports);
    section.set(reader, &DESTINATION_PORTS, &mut matched.destination_ports);
    section.set(reader, &SOURCE, &mut matched.sources);
    section.set(reader, &DESTINATION, &mut matched.destinations);
    if let Some(item) = section.take(&PORT_IN) {
        let entries = reader.filled_list(&item);
        matched.ports_in = entries.iter().filter_map(|entry| ports.named(reader, entry)).collect();
    }
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

/// Reports conditions that no packet can meet together.
fn check_match(reader: &mut Reader, matched: &Match, span: &Range<usize>) {
    const WITH_PORTS: [u8; 3] = [6, 17, 132];
    let wants_ports = !matched.source_ports.is_empty() || !matched.destination_ports.is_empty();
    let some_protocol = matched.protocols.first();
    if wants_ports && some_protocol.is_some() && !matched.protocols.iter().any(|p| WITH_PORTS.contains(p)) {
        let message = "packets of this protocol have no ports";
        reader.error(ErrorKind::Conflict, span, message, "protocol tcp, udp or sctp, or no ports");
    }
    check_families(reader, &matched.sources, &matched.destinations, span);
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

fn read_policer(reader: &mut Reader, mut section: Section<'_>) -> Option<PolicerConfig> {
    let two_rate = section.read(reader, &KIND).map(|at| at.value);
    let (cir, cbs) = (section.read(reader, &CIR), section.read(reader, &CBS));
    let mut read = |key: &'static Key<u64>, is_required| {
        let item = if is_required { section.require(key) } else { section.take(key) }?;
        Some(At { value: key.value(reader, &item)?, span: item.span })
    };
    // If the kind is unknown, the keys of both kinds are accepted.
    let (mut pir, mut pbs, mut ebs) = (None, None, None);
    if two_rate != Some(false) {
        (pir, pbs) = (read(&PIR, two_rate.is_some()), read(&PBS, two_rate.is_some()));
    }
    if two_rate != Some(true) {
        ebs = read(&EBS, two_rate.is_some());
    }
    let color_aware = section.get(reader, &COLOR_AWARE).unwrap_or_default();
    let yellow = section.get(reader, &YELLOW_DSCP).map_or(ColorAction::Pass, ColorAction::Remark);
    let red = read_red(reader, &mut section);
    section.finish(reader);
    let (cir, cbs) = (cir?, cbs?);
    let marker = if two_rate? {
        two_rate_marker(reader, &cir, &cbs, &pir?, &pbs?)?
    } else {
        single_rate_marker(reader, &cir, &cbs, &ebs?)?
    };
    Some(PolicerConfig { marker, color_aware, yellow, red })
}

fn two_rate_marker(
    reader: &mut Reader,
    cir: &At<u64>,
    cbs: &At<u64>,
    pir: &At<u64>,
    pbs: &At<u64>,
) -> Option<Marker> {
    if pir.value < cir.value {
        let message = "the peak rate is below the committed rate";
        reader.error(ErrorKind::Conflict, &pir.span, message, "at least `cir` (RFC 2698 section 2)");
        return None;
    }
    for (key, burst) in [("cbs", cbs), ("pbs", pbs)] {
        check_burst(reader, key, burst)?;
    }
    Some(Marker::TwoRate {
        cir_bps: cir.value,
        cbs_bytes: cbs.value,
        pir_bps: pir.value,
        pbs_bytes: pbs.value,
    })
}

fn single_rate_marker(reader: &mut Reader, cir: &At<u64>, cbs: &At<u64>, ebs: &At<u64>) -> Option<Marker> {
    if cbs.value == 0 && ebs.value == 0 {
        let message = "both bursts are zero, so no packet would pass";
        let expected = "`cbs` or `ebs` above zero (RFC 2697 section 2)";
        reader.error(ErrorKind::BadValue, &ebs.span, message, expected);
        return None;
    }
    let larger = if cbs.value >= ebs.value { ("cbs", cbs) } else { ("ebs", ebs) };
    check_burst(reader, larger.0, larger.1)?;
    Some(Marker::SingleRate { cir_bps: cir.value, cbs_bytes: cbs.value, ebs_bytes: ebs.value })
}

/// RFC 2697 and 2698: a burst must hold the largest packet, or that packet never passes.
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

fn read_red(reader: &mut Reader, section: &mut Section<'_>) -> ColorAction {
    let red = section.take(&RED);
    let red_dscp = section.take(&RED_DSCP);
    let remark = match &red {
        Some(item) => RED.value(reader, item),
        None => Some(false),
    };
    let dscp = red_dscp.as_ref().and_then(|item| RED_DSCP.value(reader, item));
    match (remark, red, red_dscp) {
        (Some(true), Some(red), None) => {
            let message = "remarking red packets needs a new DSCP";
            reader.error(ErrorKind::MissingKey, &red.span, message, "`red_dscp = \"af13\"` beside it");
            ColorAction::Drop
        }
        (Some(false), _, Some(red_dscp)) => {
            let message = "dropped packets have no DSCP";
            reader.error(ErrorKind::Conflict, &red_dscp.span, message, "`red = \"remark\"` beside it");
            ColorAction::Drop
        }
        (Some(true), ..) => dscp.map_or(ColorAction::Drop, ColorAction::Remark),
        _ => ColorAction::Drop,
    }
}

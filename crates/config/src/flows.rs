//! `[flows]`: what passes is metered, and who gets the records.
//!
//! ```toml
//! [flows]
//! collectors = ["ipfix://192.0.2.9:4739"]   # also v9://, v5://, ipfix+tcp://, ipfix+tls://, kafka://
//! balance = false                           # each record to one of them, by its flow; else all get all
//! store = "flows"                           # a folder for Parquet files; relative paths begin at the configuration
//! keep = "30d"                              # records older than this are removed: s, m, h, d, w
//! keep_bytes = "20GB"                       # the oldest records are removed until the files have no more: kB, MB, GB, TB
//! keep_free = "1GB"                         # the oldest records are removed, and none written, while less is free on the disk
//! idle_timeout_s = 15
//! active_timeout_s = 60
//! flows_max = 1048576
//! sample = 1                                # one packet in so many
//! sampling = "count"                        # or "random"
//! key = ["ports", "traffic-class", "ingress", "vlan", "mpls"]
//! biflow = false                            # both directions in one record
//! applications = "ports"                    # what names them: also "payload", "none"
//! observation_domain = 1
//! gso = true                                # false: datagrams are handed to the kernel one by one
//! nat_events = "off"                        # or "sessions", "bindings", "blocks": what collectors are told of NAT
//! ```

use std::path::Path;

use thalweg_flow::application::Labeling;
use thalweg_flow::{KeyFields, MeterOptions, Sampling};

use crate::bgp::path;
use crate::diagnostic::ErrorKind;
use crate::nat_events;
use crate::ports::Ports;
use crate::quantity;
use crate::reader::{Reader, Section};
use crate::types::{FlowsConfig, NatConfig, PortConfig};

const SECOND_NS: u64 = 1_000_000_000;
/// As IPFIX has it in `flowIdleTimeout`.
const TIMEOUT_S: std::ops::RangeInclusive<u64> = 1..=65_535;
const FLOWS_MAX: std::ops::RangeInclusive<u64> = 65_536..=268_435_456;
const SAMPLE: std::ops::RangeInclusive<u64> = 1..=1_000_000;
const DOMAIN: std::ops::RangeInclusive<u64> = 1..=4_294_900_000;
const COLLECTORS_MAX: usize = 16;
const EXPECTED_QUERY: &str =
    "nothing behind the port; with ipfix ?options=in-domain, ?names=variable or both with & between";
/// Who hears which protocol how.
const SCHEMES: [&str; 5] = ["ipfix", "ipfix+tcp", "ipfix+tls", "v9", "v5"];
/// A topic in place of a collector.
const KAFKA: &str = "kafka";

/// Reads the section.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    nat: Option<&NatConfig>,
    folder: &Path,
) -> Option<FlowsConfig> {
    let item = root.take("flows")?;
    let mut section = reader.section(&item, "[flows]".to_owned())?;
    let mut flows = FlowsConfig::default();
    if let Some(collectors) = section.take("collectors") {
        for entry in reader.filled_list(&collectors) {
            flows.collectors.extend(reader.parse(&entry, collector).map(|collector| collector.value));
        }
        if flows.collectors.len() > COLLECTORS_MAX {
            let message = "too many collectors";
            reader.error(ErrorKind::TooMany, &collectors.span, message, "at most 16");
        }
    }
    if let Some(balance) = section.take("balance") {
        flows.balance = reader.boolean(&balance).unwrap_or_default();
    }
    if let Some(gso) = section.take("gso") {
        flows.gso = reader.boolean(&gso).unwrap_or(true);
    }
    flows.store = section.take("store").and_then(|item| path(reader, &item, folder));
    read_keep(reader, &mut section, &mut flows);
    read_numbers(reader, &mut section, &mut flows);
    read_key(reader, &mut section, &mut flows.meter);
    flows.nat_events = nat_events::read(reader, &mut section, nat, !flows.collectors.is_empty());
    let warns = flows.collectors.is_empty() && flows.store.is_none();
    section.finish(reader);
    if warns {
        let message = "nobody gets the flow records: they are only shown";
        reader.warning(ErrorKind::MissingKey, &item.span, message, "`collectors` or `store`");
    }
    let offloads = |port: &PortConfig| port.interface.as_ref().is_some_and(|interface| interface.offload);
    if ports.configs.iter().any(offloads) {
        let message = "what the kernel forwards by itself is not metered";
        reader.error(ErrorKind::Conflict, &item.span, message, "no port with `offload`, or no [flows]");
    }
    Some(flows)
}

fn read_keep(reader: &mut Reader, section: &mut Section<'_>, flows: &mut FlowsConfig) {
    let mut first = None;
    let keep = &mut flows.keep;
    type Parse = fn(&str) -> Result<u64, &'static str>;
    let keys: [(&str, Parse, &mut Option<u64>); 3] = [
        ("keep", quantity::seconds, &mut keep.age_s),
        ("keep_bytes", quantity::bytes, &mut keep.bytes),
        ("keep_free", quantity::bytes, &mut keep.free),
    ];
    for (key, parse, value) in keys {
        if let Some(item) = section.take(key) {
            *value = reader.parse(&item, parse).map(|parsed| parsed.value);
            first.get_or_insert((key, item.span));
        }
    }
    if let (None, Some((key, span))) = (&flows.store, first) {
        let message = format!("`{key}` says what of a store is kept, and there is no store");
        reader.error(ErrorKind::MissingKey, &span, message, "`store`, the folder where records are kept");
    }
}

fn read_numbers(reader: &mut Reader, section: &mut Section<'_>, flows: &mut FlowsConfig) {
    let meter = &mut flows.meter;
    let mut timeouts =
        [("idle_timeout_s", &mut meter.idle_timeout_ns), ("active_timeout_s", &mut meter.active_timeout_ns)];
    for (key, value) in &mut timeouts {
        let number = section.take(key).and_then(|item| reader.integer(&item, TIMEOUT_S, "seconds"));
        **value = number.map_or(**value, |seconds| seconds * SECOND_NS);
    }
    if let Some(item) = section.take("flows_max") {
        let number = reader.integer(&item, FLOWS_MAX, "flows");
        meter.flows_max = number.map_or(meter.flows_max, |number| number as u32);
    }
    if let Some(item) = section.take("observation_domain") {
        let number = reader.integer(&item, DOMAIN, "");
        flows.observation_domain = number.map_or(flows.observation_domain, |number| number as u32);
    }
    let interval = section.take("sample").and_then(|item| reader.integer(&item, SAMPLE, "packets"));
    let interval = interval.unwrap_or(1) as u32;
    let words = [("count", false), ("random", true)];
    let is_random = section.take("sampling").and_then(|item| reader.word(&item, &words));
    meter.sampling = match (interval, is_random) {
        (1, _) => Sampling::All,
        (interval, Some(true)) => Sampling::Random { interval, seed: 0 },
        (interval, _) => Sampling::Count { interval },
    };
}

fn read_key(reader: &mut Reader, section: &mut Section<'_>, meter: &mut MeterOptions) {
    if let Some(biflow) = section.take("biflow") {
        meter.biflow = reader.boolean(&biflow).unwrap_or_default();
    }
    if let Some(item) = section.take("applications") {
        meter.labeling = reader.word(&item, &Labeling::ALL).unwrap_or_default();
    }
    let Some(key) = section.take("key") else { return };
    let mut fields =
        KeyFields { ports: false, traffic_class: false, ingress: false, vlan: false, mpls: false };
    type Place = fn(&mut KeyFields) -> &mut bool;
    const WORDS: [(&str, Place); 5] = [
        ("ports", |fields| &mut fields.ports),
        ("traffic-class", |fields| &mut fields.traffic_class),
        ("ingress", |fields| &mut fields.ingress),
        ("vlan", |fields| &mut fields.vlan),
        ("mpls", |fields| &mut fields.mpls),
    ];
    for entry in reader.list(&key) {
        if let Some(place) = reader.word(&entry, &WORDS) {
            *place(&mut fields) = true;
        }
    }
    meter.key = fields;
}

/// `ipfix://host:port` or `kafka://host:port/topic`; what the host is called is found out when it is needed, and so is
/// what else is said of a topic.
fn collector(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "\"ipfix://192.0.2.9:4739\"; also ipfix+tcp://, ipfix+tls://, v9://, v5://; a name or an address, and a port; or \"kafka://192.0.2.9:9092/TOPIC\"";
    let (scheme, rest) = text.split_once("://").ok_or(EXPECTED)?;
    if scheme == KAFKA {
        let (brokers, topic) = rest.split_once('/').ok_or(EXPECTED)?;
        let has_all = !brokers.is_empty() && !topic.is_empty() && !text.chars().any(char::is_whitespace);
        return if has_all { Ok(text.to_owned()) } else { Err(EXPECTED) };
    }
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let is_choice = |word: &str| ["options=in-domain", "names=variable"].contains(&word);
    if query.is_some_and(|query| !scheme.starts_with("ipfix") || !query.split('&').all(is_choice)) {
        return Err(EXPECTED_QUERY);
    }
    let (host, port) = place.rsplit_once(':').ok_or(EXPECTED)?;
    let is_address = !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c == '/');
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if SCHEMES.contains(&scheme) && is_address && is_port { Ok(text.to_owned()) } else { Err(EXPECTED) }
}

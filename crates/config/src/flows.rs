//! `[flows]`: which packets are metered, and where the records go.

use std::net::IpAddr;
use std::path::PathBuf;

use thalweg_base::Name;
use thalweg_dataplane::nat::{NatConfig, NatLogging};
use thalweg_flow::alarm::{AlarmRule, WebhookTarget};
use thalweg_flow::application::Labeling;
use thalweg_flow::{KeyFields, MeterOptions, NameOptions, PacketSampling, Sampling};

use crate::diagnostic::ErrorKind;
use crate::flows_types::{CollectorTls, FlowsConfig, SpoolConfig, gets_samples};
use crate::key::{Differs, Key, Sub, table};
use crate::nat_events;
use crate::ports::Ports;
use crate::quantity;
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::types::{PortConfig, RouterConfig};
use crate::values;
use crate::web;

pub(crate) static FLOWS: Key<Sub> = Key::section("flows", &TABLE)
    .restart(Differs::Router(|old, new| old.flows.is_some() != new.flows.is_some()))
    .help("[flow metering](flows.md): flow records go to collectors and a store");
table! {
    static TABLE: "flows", "[flows]";

    static COLLECTORS: Key<Vec<String>> = Key::by("collectors", "one or a list of at most 16", collectors)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.collectors.clone())))
        .help(
            "who gets the records: `\"ipfix://192.0.2.9:4739\"`, also `v9://`, `v5://`, `ipfix+tcp://`, `ipfix+tls://`; \
             [`kafka://`](export.md#kafka) and [`clickhouse://`](export.md#clickhouse); [IPFIX with `?options=in-domain`](export.md); \
             and who gets samples of packets: [`sflow://`](export.md#sflow)",
        );
    static SFLOW_SAMPLING: Key<u32> = Key::number("sflow_sampling", 1..=PacketSampling::RATE_MAX as u64)
        .unit("packets")
        .default_of(|| PacketSampling::default().rate)
        .help("one packet in N is sampled for collectors of [sFlow](export.md#sflow), at random");
    static SFLOW_HEADER: Key<u16> =
        Key::number("sflow_header", PacketSampling::HEADER_BYTES_MIN as u64..=PacketSampling::HEADER_BYTES_MAX as u64)
            .unit("bytes")
            .default_of(|| PacketSampling::default().header_bytes)
            .help("the most bytes of a packet in its sample");
    static SFLOW_COUNTERS_S: Key<u32> = Key::number("sflow_counters_s", 0..=86_400)
        .unit("seconds")
        .default_of(|| FlowsConfig::default().sflow_counters_s)
        .help("the [counters of all ports](export.md#counters-of-interfaces) are sent to collectors of sFlow this often; 0: never");
    static SFLOW_AGENT: Key<IpAddr> = Key::text("sflow_agent", "an address", values::address)
        .otherwise("`router_id` of `[bgp]`, or else the first port's first address")
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.sflow_agent)))
        .help("address by which collectors of sFlow know this router");
    static BALANCE: Key<bool> = Key::flag("balance")
        .default_of(|| FlowsConfig::default().balance)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.balance)))
        .help("send each record to one collector, chosen by its flow, instead of to all");
    static OBSERVATION_DOMAIN: Key<u32> = Key::number("observation_domain", 1..=4_294_900_000)
        .default_of(|| FlowsConfig::default().observation_domain)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.observation_domain)))
        .help("observation domain ID of the first collector's session; each further session adds one");
    static EXPORTER: Key<String> = Key::text("exporter", "a name", exporter)
        .otherwise("the host's name")
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.exporter.clone())))
        .help("this router's name in the [dataset](flow-store.md), in lines and in messages: the field `exporter`");
    static GSO: Key<bool> = Key::flag("gso")
        .default_of(|| FlowsConfig::default().gso)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.gso)))
        .help(
            "hand datagrams of one length to the kernel together; `false`: one at a time, so that a [capture on this \
             host](export.md#captures-on-the-exporter) shows them as sent",
        );
    static SPOOL: Key<PathBuf> = Key::by("spool", "a path", Reader::made_folder)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.spool.clone())))
        .help(
            "folder where records wait while a collector with a connection is [down](export.md#when-a-collector-is-down), \
             relative to this file",
        );
    static SPOOL_BYTES: Key<u64> = Key::text("spool_bytes", "a size", quantity::bytes)
        .default_toml("\"256MB\"")
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.spool.clone())))
        .help("limit of the spool, shared by all collectors");
    static COLLECTOR_CA: Key<PathBuf> = Key::by("collector_ca", "a path", Reader::path)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.tls.clone())))
        .help("certificates (PEM) of the authorities that sign those of collectors with TLS");
    static COLLECTOR_CERTIFICATE: Key<PathBuf> = Key::by("collector_certificate", "a path", Reader::path)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.tls.clone())))
        .help("our own certificate (PEM), for collectors that ask for one; with `collector_key`");
    static COLLECTOR_KEY: Key<PathBuf> = Key::by("collector_key", "a path", Reader::path)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.tls.clone())))
        .help("that certificate's private key (PEM)");
    static STORE: Key<PathBuf> = Key::by("store", "a path", Reader::made_folder)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.store.clone())))
        .help("folder of the [dataset](flow-store.md) for records, relative to this file");
    static KEEP: Key<u64> = Key::text("keep", "a time", quantity::seconds)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.keep.age_s)))
        .help(
            "hours of the store that ended longer ago are [removed](flow-store.md#what-is-kept): `\"30d\"`; units `s`, `m`, \
             `h`, `d`, `w`",
        );
    static KEEP_BYTES: Key<u64> = Key::text("keep_bytes", "a size", quantity::bytes)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.keep.bytes)))
        .help(
            "limit of the dataset's size; the oldest records are removed: `\"20GB\"`; units `kB`, `MB`, `GB`, \
             `TB`",
        );
    static KEEP_FREE: Key<u64> = Key::text("keep_free", "a size", quantity::bytes)
        .otherwise("5 % of it, at most 1 GB")
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.keep.free)))
        .help("keep this much of the file system free: the oldest records are removed, and none are written, below it: `\"1GB\"`");
    static KEEP_MINUTES: Key<u64> = Key::text("keep_minutes", "a time", quantity::seconds)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.keep.minutes_s)))
        .help("keep [sums by minutes](flow-store.md#rollups) for this long, longer than records: `\"30d\"`");
    static KEEP_HOURS: Key<u64> = Key::text("keep_hours", "a time", quantity::seconds)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.keep.hours_s)))
        .help("keep [sums by hours](flow-store.md#rollups) for this long: `\"730d\"`");
    static ICEBERG: Key<bool> = Key::flag("iceberg")
        .default_of(|| FlowsConfig::default().iceberg)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.iceberg)))
        .help("keep the store as a table of [Apache Iceberg](flow-store.md#apache-iceberg), too, and the [archive](flow-store.md#the-bucket-as-a-table)");
    static ARCHIVE: Key<String> = Key::by("archive", "an address", |reader, item| address(reader, item, archive))
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.archive.clone())))
        .help(
            "bucket of [S3](flow-store.md#an-archive-on-s3) that complete hours of the store go to; `keep` then removes only what \
             is there: `\"s3://BUCKET/PREFIX\"`",
        );
    static ARCHIVE_KEEP: Key<u64> = Key::text("archive_keep", "a time", quantity::seconds)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.keep.archive_s)))
        .help(
            "hours of the archive that ended longer ago, and were sent longer ago, are [removed](flow-store.md#an-archive-on-s3) \
             there: `\"365d\"`",
        );
    static FEED: Key<String> = Key::by("feed", "an address", |reader, item| address(reader, item, feed))
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.feed.clone())))
        .help(
            "topic of Kafka that all records of the store go to, [each once](export.md#each-record-once); `keep` then removes only \
             what was sent: `\"kafka://HOST:PORT/TOPIC\"`",
        );
    static MMDB: Key<Vec<PathBuf>> = Key::by("mmdb", "a path or a list of at most 8", databases)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.mmdb.clone())))
        .help(
            "databases of the [country and AS](flows.md#facts-about-addresses) of addresses, in MMDB; a file that changes is \
             read again",
        );
    static NETWORKS: Key<PathBuf> = Key::by("networks", "a path", Reader::path)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.networks.clone())))
        .help(
            "list of [names of networks](flows.md#facts-about-addresses): lines `10.0.0.0/8,office`; a file that changes is \
             read again",
        );
    static ALARM_WEBHOOK: Key<String> = Key::text("alarm_webhook", "an address", webhook)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.alarm_webhook.clone())))
        .help("web server that [events of alarms](alarms.md#how-it-is-told) are posted to: `\"https://hooks.example.net/abc\"`");
    static ALARM_WEBHOOK_CA: Key<PathBuf> = Key::by("alarm_webhook_ca", "a path", Reader::path)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.alarm_webhook.clone())))
        .otherwise("the system's")
        .help("certificates (PEM) of the authorities that may have signed that server's");
    static IDLE_TIMEOUT_S: Key<u64> = Key::number("idle_timeout_s", 1..=TIMEOUT_MAX_S)
        .unit("seconds")
        .default_of(|| MeterOptions::default().idle_timeout_ns / SECOND_NS)
        .help("idle timeout: a flow without packets ends after it");
    static ACTIVE_TIMEOUT_S: Key<u64> = Key::number("active_timeout_s", 1..=TIMEOUT_MAX_S)
        .unit("seconds")
        .default_of(|| MeterOptions::default().active_timeout_ns / SECOND_NS)
        .help("active timeout: a flow that continues is reported each time");
    static FLOWS_MAX: Key<u32> = Key::number("flows_max", 65_536..=268_435_456)
        .unit("flows")
        .default_of(|| MeterOptions::default().flows_max)
        .help("limit of flows in the cache");
    static SAMPLE: Key<u32> = Key::number("sample", 1..=1_000_000)
        .unit("packets")
        .default(1)
        .help("sampling interval: one packet in N is metered");
    static SAMPLING: Key<bool> = Key::word("sampling", &[("count", false), ("random", true)])
        .default(false)
        .help("`\"count\"`: every so-many-th; `\"random\"`: each with the same chance");
    static NAT_EVENTS: Key<Option<NatLogging>> = Key::word(
        "nat_events",
        &[
            ("off", None),
            ("sessions", Some(NatLogging::Sessions)),
            ("bindings", Some(NatLogging::Bindings)),
            ("blocks", Some(NatLogging::Blocks)),
        ],
    )
    .default(None)
    .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.nat_events)))
    .help("[NAT events](flows.md#nat-events) for collectors and the dataset");
    static KEY: Key<KeyFields> = Key::by(
        "key",
        "any of `\"ports\"`, `\"traffic-class\"`, `\"ingress\"`, `\"vlan\"`, `\"mpls\"`",
        key_fields,
    )
    .default_toml("[\"ports\", \"traffic-class\", \"ingress\", \"vlan\", \"mpls\"]")
    .help("fields of the flow key besides addresses and protocol");
    static BIFLOW: Key<bool> = Key::flag("biflow")
        .default_of(|| MeterOptions::default().biflow)
        .help("both directions in one record (RFC 5103)");
    static APPLICATIONS: Key<Labeling> = Key::word("applications", &Labeling::ALL).default_of(|| MeterOptions::default().labeling).help(
        "what names a flow's application: `\"ports\"`; `\"payload\"`, how its first payloads begin, and ports where they \
         say nothing; `\"none\"`",
    );
    static NAMES: Key<NameOptions> =
        Key::by("names", "any of `\"tls\"`, `\"quic\"`, `\"http\"`, `\"dns\"`", names).default_toml("[]").help(
            "protocols whose [names](flows.md#names) first payloads are searched for; they tell who visited what",
        );
    static JA4: Key<bool> = Key::flag("ja4")
        .default_of(|| MeterOptions::default().names.ja4)
        .help("[fingerprints](flows.md#names) of the clients whose hellos `names` reads");
    static COMMUNITY_ID: Key<bool> = Key::flag("community_id")
        .default_of(|| MeterOptions::default().community_id)
        .restart(Differs::Router(|old, new| differ(old, new, |flows| flows.meter.community_id)))
        .help("[community ID](flows.md#names) in messages to Kafka");
}

/// Whether an export setting differs. The section key covers whether there is metering at all.
fn differ<T: PartialEq>(old: &RouterConfig, new: &RouterConfig, of: fn(&FlowsConfig) -> T) -> bool {
    old.flows.as_ref().zip(new.flows.as_ref()).is_some_and(|(old, new)| of(old) != of(new))
}

const SECOND_NS: u64 = 1_000_000_000;
/// The limit of IPFIX's `flowIdleTimeout`.
const TIMEOUT_MAX_S: u64 = 65_535;
const COLLECTORS_MAX: usize = 16;
const DATABASES_MAX: usize = 8;
const SPOOL_BYTES_DEFAULT: u64 = 256_000_000;
const EXPECTED_QUERY: &str =
    "nothing behind the port; with ipfix ?options=in-domain, ?names=variable or both with & between";
/// Protocols and transports of collectors.
const SCHEMES: [&str; 6] = ["ipfix", "ipfix+tcp", "ipfix+tls", "v9", "v5", "sflow"];
/// Options of addresses that name a file: of Kafka and ClickHouse, and of S3.
const FILE_OPTIONS: [&str; 3] = ["password_file", "credentials_file", "tls_ca"];
const SFLOW_PORT: &str = "6343";
/// A topic of Kafka or a table of ClickHouse in place of a collector.
const SCHEMES_WITH_PATH: [&str; 4] = ["kafka", "kafka+tls", "clickhouse", "clickhouse+tls"];

pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    nat: Option<&NatConfig>,
    alarms: &[At<AlarmRule>],
) -> Option<FlowsConfig> {
    let section = root.section(reader, &FLOWS);
    if let (None, Some(alarm)) = (&section, alarms.first()) {
        let message = "alarms are about flows, and no flows are metered";
        reader.error(ErrorKind::MissingKey, &alarm.span, message, "a section [flows]");
    }
    let mut section = section?;
    let mut flows = FlowsConfig::default();
    flows.meter.watched = !alarms.is_empty();
    let collectors = section.read(reader, &COLLECTORS);
    section.set(reader, &BALANCE, &mut flows.balance);
    section.set(reader, &GSO, &mut flows.gso);
    flows.exporter = section.get(reader, &EXPORTER);
    flows.store = section.get(reader, &STORE);
    read_connections(reader, &mut section, collectors, &mut flows);
    section.set(reader, &MMDB, &mut flows.mmdb);
    flows.networks = section.get(reader, &NETWORKS);
    let (url, authorities) = (section.get(reader, &ALARM_WEBHOOK), section.get(reader, &ALARM_WEBHOOK_CA));
    flows.alarm_webhook = url.map(|url| WebhookTarget { url, authorities });
    read_sflow(reader, &mut section, &mut flows);
    read_keep(reader, &mut section, &mut flows);
    read_meter(reader, &mut section, &mut flows);
    let nat_events = section.read(reader, &NAT_EVENTS);
    let has_receivers =
        flows.store.is_some() || flows.collectors.iter().any(|address| !gets_samples(address));
    flows.nat_events = nat_events.and_then(|at| nat_events::check(reader, at, nat, has_receivers));
    let warns = flows.collectors.is_empty() && flows.store.is_none();
    let span = section.finish(reader).unwrap_or_default();
    if warns {
        let message = "nobody gets the flow records: they are only shown";
        reader.warning(ErrorKind::MissingKey, &span, message, "`collectors` or `store`");
    }
    let offloads = |port: &PortConfig| port.interface.as_ref().is_some_and(|interface| interface.offload);
    if ports.configs.iter().any(offloads) {
        let message = "what the kernel forwards by itself is not metered";
        reader.error(ErrorKind::Conflict, &span, message, "no port with `offload`, or no [flows]");
    }
    Some(flows)
}

/// A name of an exporter: a filter's word must be able to name it.
fn exporter(text: &str) -> Result<String, &'static str> {
    let is_word = |c: char| c.is_alphanumeric() || "-_.:/".contains(c);
    let fits = !text.is_empty() && text.len() <= Name::BYTES_MAX && text.chars().all(is_word);
    if fits { Ok(text.to_owned()) } else { Err("letters, digits and - _ . : /, at most 127 bytes") }
}

/// Reads nothing but the store's folder, for a program that only queries it.
pub(crate) fn read_store(reader: &mut Reader, root: &mut Section<'_>) -> Option<PathBuf> {
    root.section(reader, &FLOWS)?.get(reader, &STORE)
}

fn collectors(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<String>> {
    let entries = reader.filled_list(item);
    let mut collectors: Vec<String> = Vec::new();
    for entry in &entries {
        let Some(value) = address(reader, entry, collector) else { continue };
        if collectors.contains(&value) {
            let message = format!("collector `{value}` is given twice");
            reader.error(ErrorKind::Duplicate, &entry.span, message, "each collector once");
        }
        collectors.push(value);
    }
    if collectors.len() > COLLECTORS_MAX {
        reader.error(ErrorKind::TooMany, &item.span, "too many collectors", "at most 16");
    }
    Some(collectors)
}

/// An address whose options may name files.
fn address(
    reader: &mut Reader,
    item: &Item<'_>,
    parse: fn(&str) -> Result<String, &'static str>,
) -> Option<String> {
    let At { value, .. } = reader.parse(item, parse)?;
    Some(reader.address_with_files(&value, &FILE_OPTIONS))
}

/// The rest of it is checked on use.
fn archive(text: &str) -> Result<String, &'static str> {
    let bucket = text.strip_prefix("s3://").and_then(|rest| rest.split(['/', '?']).next());
    let is_address =
        bucket.is_some_and(|bucket| !bucket.is_empty()) && !text.chars().any(char::is_whitespace);
    if is_address { Ok(text.to_owned()) } else { Err("\"s3://BUCKET/PREFIX\"") }
}

/// The rest of it is checked on use.
fn feed(text: &str) -> Result<String, &'static str> {
    let rest = ["kafka://", "kafka+tls://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let has_topic = rest.and_then(|rest| rest.split_once('/')).is_some_and(|(brokers, topic)| {
        !brokers.is_empty() && !topic.split('?').next().unwrap_or_default().is_empty()
    });
    let is_address = has_topic && !text.chars().any(char::is_whitespace);
    if is_address { Ok(text.to_owned()) } else { Err("\"kafka://HOST:PORT/TOPIC\"") }
}

/// The rest of it is checked on use.
fn webhook(text: &str) -> Result<String, &'static str> {
    let is_address =
        ["http://", "https://"].iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    let is_address = is_address && !text.chars().any(char::is_whitespace);
    if is_address { Ok(text.to_owned()) } else { Err("\"https://HOST/PATH\" or \"http://HOST/PATH\"") }
}

fn databases(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<PathBuf>> {
    let paths = reader.all(item, Reader::path)?;
    if paths.len() > DATABASES_MAX {
        reader.error(ErrorKind::TooMany, &item.span, "too many databases", "at most 8");
    }
    Some(paths)
}

/// What only collectors with a connection need.
fn read_connections(
    reader: &mut Reader,
    section: &mut Section<'_>,
    collectors: Option<At<Vec<String>>>,
    flows: &mut FlowsConfig,
) {
    let (spool, bytes) = (section.read(reader, &SPOOL), section.get(reader, &SPOOL_BYTES));
    let authorities = section.read(reader, &COLLECTOR_CA);
    let (certificate, key) =
        (section.read(reader, &COLLECTOR_CERTIFICATE), section.read(reader, &COLLECTOR_KEY));
    let any = |ends: &[&str]| {
        let addresses = collectors.iter().flat_map(|at| &at.value);
        let mut schemes = addresses.filter_map(|address| address.split_once("://"));
        schemes.any(|(scheme, _)| ends.iter().any(|end| scheme.ends_with(end)))
    };
    if let Some(at) = spool.as_ref().filter(|_| !any(&["+tcp", "+tls", "kafka", "clickhouse"])) {
        let message = "no collector's records would wait in it: none has a connection";
        reader.error(ErrorKind::Conflict, &at.span, message, "a collector by TCP, TLS, Kafka or ClickHouse");
    }
    if let Some(at) = collectors.as_ref().filter(|_| any(&["+tls"]) && authorities.is_none()) {
        let message = "a collector with TLS, and nothing says whom to trust";
        reader.error(
            ErrorKind::MissingKey,
            &at.span,
            message,
            "`collector_ca`, the authorities' certificates",
        );
    }
    let identity = web::identity(reader, certificate, key, ["collector_certificate", "collector_key"]);
    flows.tls = CollectorTls { authorities: authorities.map(|at| at.value), identity };
    flows.collectors = collectors.map(|at| at.value).unwrap_or_default();
    flows.spool =
        spool.map(|at| SpoolConfig { folder: at.value, bytes: bytes.unwrap_or(SPOOL_BYTES_DEFAULT) });
}

/// What only collectors of sFlow get.
fn read_sflow(reader: &mut Reader, section: &mut Section<'_>, flows: &mut FlowsConfig) {
    let (rate, header, counters, agent) = (
        section.read(reader, &SFLOW_SAMPLING),
        section.read(reader, &SFLOW_HEADER),
        section.read(reader, &SFLOW_COUNTERS_S),
        section.read(reader, &SFLOW_AGENT),
    );
    let spans = [
        rate.as_ref().map(|at| at.span.clone()),
        header.as_ref().map(|at| at.span.clone()),
        counters.as_ref().map(|at| at.span.clone()),
        agent.as_ref().map(|at| at.span.clone()),
    ];
    if let (None, Some(span)) = (flows.packet_sampling(), spans.into_iter().flatten().next()) {
        let message = "nobody gets samples: no collector is one of sFlow";
        reader.warning(ErrorKind::Conflict, &span, message, "`sflow://HOST` in `collectors`");
    }
    let default = PacketSampling::default();
    flows.sflow = PacketSampling {
        rate: rate.map_or(default.rate, |at| at.value),
        header_bytes: header.map_or(default.header_bytes, |at| at.value),
    };
    flows.sflow_counters_s = counters.map_or(flows.sflow_counters_s, |at| at.value);
    flows.sflow_agent = agent.map(|at| at.value);
}

fn read_keep(reader: &mut Reader, section: &mut Section<'_>, flows: &mut FlowsConfig) {
    let mut first = section.take(&ICEBERG).and_then(|item| {
        flows.iceberg = ICEBERG.value(reader, &item)?;
        flows.iceberg.then(|| (ICEBERG.name(), item.span))
    });
    let archive = section.take(&ARCHIVE);
    let is_archived = archive.is_some();
    if let Some(item) = archive {
        flows.archive = ARCHIVE.value(reader, &item);
        first.get_or_insert((ARCHIVE.name(), item.span));
    }
    if let Some(item) = section.take(&FEED) {
        flows.feed = FEED.value(reader, &item);
        first.get_or_insert((FEED.name(), item.span));
    }
    let archive_keep = section.take(&ARCHIVE_KEEP);
    if let Some(item) = &archive_keep {
        flows.keep.archive_s = ARCHIVE_KEEP.value(reader, item);
        if !is_archived {
            let message = "`archive_keep` is about an archive, and there is no archive";
            reader.error(
                ErrorKind::MissingKey,
                &item.span,
                message,
                "`archive`, the bucket that hours go to",
            );
        }
    }
    let keep = &mut flows.keep;
    let keys = [
        (&KEEP, &mut keep.age_s),
        (&KEEP_BYTES, &mut keep.bytes),
        (&KEEP_FREE, &mut keep.free),
        (&KEEP_MINUTES, &mut keep.minutes_s),
        (&KEEP_HOURS, &mut keep.hours_s),
    ];
    let mut sums = Vec::new();
    for (key, value) in keys {
        if let Some(item) = section.take(key) {
            *value = key.value(reader, &item);
            if [KEEP_MINUTES.name(), KEEP_HOURS.name()].contains(&key.name()) {
                sums.extend(value.map(|age_s| (key.name(), age_s, item.span.clone())));
            }
            first.get_or_insert((key.name(), item.span));
        }
    }
    if let (Some(item), Some(archive_s), Some(age_s)) = (archive_keep, keep.archive_s, keep.age_s)
        && archive_s < age_s
    {
        let message = "`archive_keep` removes records from the archive before `keep` removes them here";
        reader.warning(ErrorKind::Conflict, &item.span, message, "a longer time than that of `keep`");
    }
    for (key, _, span) in
        sums.into_iter().filter(|(_, sums_s, _)| keep.age_s.is_some_and(|age_s| *sums_s <= age_s))
    {
        let message = format!("`{key}` keeps sums no longer than `keep` keeps their records");
        reader.warning(ErrorKind::Conflict, &span, message, "a longer time than that of `keep`");
    }
    if let (None, Some((key, span))) = (&flows.store, first) {
        let message = format!("`{key}` is about a store, and there is no store");
        reader.error(ErrorKind::MissingKey, &span, message, "`store`, the folder where records are kept");
    }
}

fn read_meter(reader: &mut Reader, section: &mut Section<'_>, flows: &mut FlowsConfig) {
    let meter = &mut flows.meter;
    let timeouts =
        [(&IDLE_TIMEOUT_S, &mut meter.idle_timeout_ns), (&ACTIVE_TIMEOUT_S, &mut meter.active_timeout_ns)];
    for (key, timeout_ns) in timeouts {
        *timeout_ns = section.get(reader, key).map_or(*timeout_ns, |seconds| seconds * SECOND_NS);
    }
    section.set(reader, &FLOWS_MAX, &mut meter.flows_max);
    section.set(reader, &OBSERVATION_DOMAIN, &mut flows.observation_domain);
    let interval = section.get(reader, &SAMPLE).unwrap_or(1);
    meter.sampling = match (interval, section.get(reader, &SAMPLING)) {
        (1, _) => Sampling::All,
        (interval, Some(true)) => Sampling::Random { interval, seed: 0 },
        (interval, _) => Sampling::Count { interval },
    };
    section.set(reader, &BIFLOW, &mut meter.biflow);
    section.set(reader, &APPLICATIONS, &mut meter.labeling);
    section.set(reader, &KEY, &mut meter.key);
    section.set(reader, &NAMES, &mut meter.names);
    section.set(reader, &JA4, &mut meter.names.ja4);
    section.set(reader, &COMMUNITY_ID, &mut meter.community_id);
}

fn names(reader: &mut Reader, item: &Item<'_>) -> Option<NameOptions> {
    let mut names = NameOptions::default();
    for entry in reader.list(item) {
        if let Some(place) = reader.word(&entry, &NameOptions::PROTOCOLS) {
            *place(&mut names) = true;
        }
    }
    Some(names)
}

fn key_fields(reader: &mut Reader, item: &Item<'_>) -> Option<KeyFields> {
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
    for entry in reader.list(item) {
        if let Some(place) = reader.word(&entry, &WORDS) {
            *place(&mut fields) = true;
        }
    }
    Some(fields)
}

/// `ipfix://host:port`, `sflow://host`, `kafka://host:port/topic` or `clickhouse://host:port/table`. The host is resolved, and
/// options of a topic or table are checked, only on use.
fn collector(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "\"ipfix://192.0.2.9:4739\"; also ipfix+tcp://, ipfix+tls://, v9://, v5://; a name or an address, and a port; or \"kafka://192.0.2.9:9092/TOPIC\", \"clickhouse://192.0.2.9:8123/TABLE\", \"sflow://192.0.2.9\"";
    let (scheme, rest) = text.split_once("://").ok_or(EXPECTED)?;
    if SCHEMES_WITH_PATH.contains(&scheme) {
        let (servers, path) = rest.split_once('/').ok_or(EXPECTED)?;
        let has_all = !servers.is_empty() && !path.is_empty() && !text.chars().any(char::is_whitespace);
        return if has_all { Ok(text.to_owned()) } else { Err(EXPECTED) };
    }
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let is_choice = |word: &str| ["options=in-domain", "names=variable"].contains(&word);
    if query.is_some_and(|query| !scheme.starts_with("ipfix") || !query.split('&').all(is_choice)) {
        return Err(EXPECTED_QUERY);
    }
    // Only sFlow has a port that everybody uses.
    let has_port = scheme != "sflow"
        || place.rsplit_once(':').is_some_and(|(host, _)| !host.starts_with('[') || host.ends_with(']'));
    let (host, port) = if has_port { place.rsplit_once(':').ok_or(EXPECTED)? } else { (place, SFLOW_PORT) };
    let is_address = !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c == '/');
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if SCHEMES.contains(&scheme) && is_address && is_port { Ok(text.to_owned()) } else { Err(EXPECTED) }
}

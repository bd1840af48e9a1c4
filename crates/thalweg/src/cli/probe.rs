//! Arguments of `thalweg probe`.

use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use thalweg_exec::ModelKind;
use thalweg_flow::alarm::WebhookTarget;
use thalweg_flow::application::Labeling;
use thalweg_flow::parse::ParseOptions;
use thalweg_flow::{Bytes, KeyFields, MeterOptions, NameOptions, PacketSampling, Sampling};
use thalweg_probe::{
    AlarmOptions, Deal, ExportTargets, FileInput, Input, LiveDriver, LiveInput, ProbeOptions, SflowOptions,
    Shape, Spool, TlsOptions,
};
use thalweg_replay::Work;

use super::choices::{Choice, MODELS, one_of};
use super::enrich::EnrichArgs;
use super::keep::KeepArgs;
use super::{Cores, parse_cores};

#[derive(Debug, Args)]
#[command(after_help = PROBE_HELP)]
#[command(group = ArgGroup::new("sent").multiple(true).args(["export", "feed"]))]
pub(crate) struct ProbeArgs {
    /// Captures and text traces, in order; `-` is standard input
    ///
    /// `PORT=FILE` sets the ingress port of the file's packets, a part of the flow key.
    #[arg(value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Capture from this interface until interrupted (repeatable)
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["inputs", "loops", "rate", "preload", "strict", "deal"],
          help_heading = "Input")]
    pub(crate) interface: Vec<String>,
    /// Driver that captures from interfaces
    #[arg(long, value_parser = one_of(DRIVERS), default_value = "af-packet", requires = "interface", help_heading = "Input")]
    pub(crate) driver: LiveDriver,
    /// Packets that can wait for the probe, of each interface, before further ones are missed [default: 50000, which is
    /// 50 ms at a million a second; af-xdp: 8192 of each receive queue]
    #[arg(long, value_name = "N", requires = "interface", value_parser = clap::value_parser!(u32).range(64..=65536),
          help_heading = "Input")]
    pub(crate) ring: Option<u32>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", requires = "interface", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "Input")]
    pub(crate) seconds: Option<u32>,
    /// Stop after about this many packets
    #[arg(long, value_name = "N", requires = "interface", value_parser = clap::value_parser!(u64).range(1..),
          help_heading = "Input")]
    pub(crate) packets: Option<u64>,
    /// Process the input this many times; timestamps continue from pass to pass
    #[arg(long = "loop", value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "Input")]
    pub(crate) loops: u32,
    /// Read at this rate, in packets per second [default: as fast as possible]
    #[arg(long, value_name = "PPS", help_heading = "Input")]
    pub(crate) rate: Option<NonZeroU64>,
    /// Read all input into memory before timing starts
    #[arg(long, help_heading = "Input")]
    pub(crate) preload: bool,
    /// Stop at the first bad line or damaged capture
    #[arg(long, help_heading = "Input")]
    pub(crate) strict: bool,
    /// Fields of the flow key besides addresses and protocol, or `none`
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "FIELDS",
        default_value = "ports,traffic-class,ingress,vlan,mpls",
        help_heading = "Metering"
    )]
    pub(crate) key: Vec<KeyArg>,
    /// Meter both directions as one flow (RFC 5103)
    #[arg(long, help_heading = "Metering")]
    pub(crate) biflow: bool,
    /// Length that byte counters add up
    #[arg(long, value_parser = one_of(COUNTS), default_value = "ip", help_heading = "Metering")]
    pub(crate) count: Bytes,
    /// Sample one packet in N: every Nth, or with `random:N` at random
    #[arg(long, value_name = "1:N", value_parser = parse_sampling, help_heading = "Metering")]
    pub(crate) sample: Option<Sampling>,
    /// Meter the packets inside tunnels: GRE, IP in IP, VXLAN, GTP-U
    #[arg(long, help_heading = "Metering")]
    pub(crate) tunnels: bool,
    /// How a flow's application is identified
    #[arg(long, value_parser = one_of(APPLICATIONS), default_value = "ports", value_name = "BY", help_heading = "Metering")]
    pub(crate) applications: Labeling,
    /// Names that a flow's first payloads are searched for; they tell who visited what
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PROTOCOLS", help_heading = "Metering")]
    pub(crate) names: Vec<NameArg>,
    /// Fingerprint clients by their hellos in TLS and QUIC (JA4)
    #[arg(long, requires = "names", help_heading = "Metering")]
    pub(crate) ja4: bool,
    /// End a flow after this many seconds without a packet
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "15", help_heading = "Flow cache")]
    pub(crate) idle_timeout: Nanoseconds,
    /// Report a flow that continues, every this many seconds
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "60", help_heading = "Flow cache")]
    pub(crate) active_timeout: Nanoseconds,
    /// Limit of flows in the cache; beyond it, the flow closest to its timeout is reported early
    #[arg(long, value_name = "N", default_value = "1048576", help_heading = "Flow cache")]
    pub(crate) flows_max: NonZeroU32,
    /// Do not use huge pages: saves up to 20 MiB with few flows, is slower with many
    #[arg(long, help_heading = "Flow cache")]
    pub(crate) small_pages: bool,
    /// Send records to a collector: ipfix://HOST:PORT, ipfix+tcp://, ipfix+tls://, v9://, v5://, to Kafka:
    /// kafka://HOST:PORT/TOPIC, or to ClickHouse: clickhouse://HOST:PORT/TABLE, clickhouse+tls://; or samples of packets: sflow://HOST:PORT
    /// (repeatable)
    #[arg(short, long, value_name = "URL", help_heading = "Export")]
    pub(crate) export: Vec<String>,
    /// Distribute flows over the collectors by hash, instead of sending all flows to each
    #[arg(long, requires = "export", help_heading = "Export")]
    pub(crate) export_balance: bool,
    /// Limit the rate to each collector, in datagrams per second, so that it loses none [default: unlimited]
    #[arg(long, value_name = "N", requires = "export", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "Export")]
    pub(crate) export_rate: Option<u32>,
    /// Do not use UDP GSO, so that a capture on this host shows datagrams as they are on the wire
    #[arg(long, requires = "export", help_heading = "Export")]
    pub(crate) no_gso: bool,
    /// Observation domain ID of the first collector's session; each further session adds one
    #[arg(long, value_name = "N", requires = "export", default_value = "1", help_heading = "Export")]
    pub(crate) export_domain: u32,
    /// Sample one packet in N for collectors of sFlow, at random
    #[arg(long, value_name = "N", requires = "export", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=i64::from(PacketSampling::RATE_MAX)),
          help_heading = "Export")]
    pub(crate) sflow_sampling: u32,
    /// The most bytes of a packet in its sFlow sample
    #[arg(long, value_name = "BYTES", requires = "export", default_value = "128",
          value_parser = clap::value_parser!(u16).range(i64::from(PacketSampling::HEADER_BYTES_MIN)..=i64::from(PacketSampling::HEADER_BYTES_MAX)), help_heading = "Export")]
    pub(crate) sflow_header: u16,
    /// Send the counters of the captured interfaces to collectors of sFlow, every this many seconds; 0 is never
    #[arg(long, value_name = "S", requires_all = ["interface", "export"], default_value = "30",
          value_parser = clap::value_parser!(u32).range(0..=i64::from(SflowOptions::COUNTERS_S_MAX)), help_heading = "Export")]
    pub(crate) sflow_counters: u32,
    /// Address by which collectors of sFlow know this probe [default: the one from which the first of them is reached]
    #[arg(long, value_name = "ADDRESS", requires = "export", help_heading = "Export")]
    pub(crate) sflow_agent: Option<IpAddr>,
    /// Spool records in this folder while a TCP or TLS collector, or Kafka, is down
    #[arg(long, value_name = "DIR", requires = "export", help_heading = "Export")]
    pub(crate) spool: Option<PathBuf>,
    /// Limit of the spool, in MB
    #[arg(long, value_name = "MB", requires = "spool", default_value = "256", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "Export")]
    pub(crate) spool_mb: u32,
    /// CA certificates (PEM) to verify collectors and brokers with
    #[arg(long, value_name = "FILE", requires = "sent", help_heading = "Export")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Name to expect in the collector's certificate [default: its host name or address]
    #[arg(long, value_name = "NAME", requires = "export", help_heading = "Export")]
    pub(crate) tls_name: Option<String>,
    /// Client certificate (PEM), for collectors and brokers that ask for one
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Export")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Export")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Write records to this file as JSON, one object per line; `-` is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,
    /// Write records to this file as CSV; `-` is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the flow's community ID into lines and messages
    #[arg(long, help_heading = "Output")]
    pub(crate) community_id: bool,
    /// Judge the flows of each second by the rules `[[alarms]]` of this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) alarms: Option<PathBuf>,
    /// Post events of alarms to this web server: https://HOST/PATH or http://HOST/PATH
    #[arg(long, value_name = "URL", requires = "alarms", help_heading = "Output")]
    pub(crate) alarm_webhook: Option<String>,
    /// CA certificates (PEM) to verify that server with [default: the system's]
    #[arg(long, value_name = "FILE", requires = "alarm_webhook", help_heading = "Output")]
    pub(crate) alarm_webhook_ca: Option<PathBuf>,
    /// Add records to the dataset in this folder, for `thalweg flows`
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) store: Option<PathBuf>,
    /// Name of this probe in records [default: the host's name; none for files]
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    pub(crate) exporter: Option<String>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    #[command(flatten)]
    pub(crate) enrich: EnrichArgs,
    /// Execution model: how packets are spread over cores [default: tokens for files, serial for files of less than
    /// 32 MiB, run-to-completion for interfaces; farm with --readers or --pipelines]
    #[arg(long, value_parser = one_of(MODELS), help_heading = "Execution")]
    pub(crate) model: Option<ModelKind>,
    /// Synthetic work per packet, to compare shapes on coarser work: `none`, `queens:N`, or `queens:4-8`, random
    #[arg(long, value_name = "WORK", default_value = "none", help_heading = "Execution")]
    pub(crate) work: Work,
    /// Worker threads of each pipeline [default: one per core; 1 for small files, with --readers or --pipelines]
    #[arg(long, value_name = "W", help_heading = "Execution")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Reader threads of each pipeline, which parse packets for its workers [default: 1]
    #[arg(long, value_name = "R", help_heading = "Execution")]
    pub(crate) readers: Option<NonZeroUsize>,
    /// Pipelines, each with its own capture queue and flow cache [default: 1]
    #[arg(long, value_name = "P", help_heading = "Execution")]
    pub(crate) pipelines: Option<NonZeroUsize>,
    /// How packets are distributed over pipelines
    #[arg(long, value_parser = one_of(DEALS), default_value = "hash", help_heading = "Execution")]
    pub(crate) deal: Deal,
    /// Chunks in flight in the tokens model
    #[arg(long, value_name = "N", default_value = "24", help_heading = "Execution")]
    pub(crate) tokens: NonZeroUsize,
    /// Packets read and scheduled together, at most 65535 [default: 1600 from files, 256 from interfaces]
    #[arg(long, value_name = "PACKETS", help_heading = "Execution")]
    pub(crate) chunk: Option<NonZeroUsize>,
    /// Shards of each pipeline's flow cache
    #[arg(long, value_name = "N", default_value = "16", help_heading = "Execution")]
    pub(crate) shards: u16,
    /// Pin threads to these cores: `0,1` or `0-3`
    #[arg(long, value_name = "CORES", value_parser = parse_cores, help_heading = "Execution")]
    pub(crate) pin: Option<Cores>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyArg {
    /// TCP, UDP or SCTP ports; ICMP type and code
    Ports,
    /// IPv4 type of service, IPv6 traffic class
    TrafficClass,
    /// Ingress interface
    Ingress,
    /// Outermost VLAN tag
    Vlan,
    /// Top label of the MPLS stack
    Mpls,
    /// Nothing
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameArg {
    /// The server's name and application protocols in TLS
    Tls,
    /// The same in QUIC
    Quic,
    /// The host in HTTP
    Http,
    /// Questions and answers in DNS; later flows to an address get the name that it was asked for
    Dns,
}

/// How the application of a flow is identified.
const APPLICATIONS: &[Choice<Labeling>] = &[
    ("ports", "By its ports", Labeling::Ports),
    ("payload", "By its first payloads, or by its ports if those do not tell", Labeling::Payload),
    ("none", "Not at all", Labeling::None),
];

const COUNTS: &[Choice<Bytes>] = &[
    ("ip", "IP packets, by their length fields", Bytes::Ip),
    ("frames", "Ethernet frames, as on the wire", Bytes::Frame),
];

const DEALS: &[Choice<Deal>] = &[
    ("hash", "By a hash of addresses, like the receive queues of a network card", Deal::Hash),
    ("files", "One input file per pipeline", Deal::Files),
];

const DRIVERS: &[Choice<LiveDriver>] = &[
    ("af-packet", "AF_PACKET: copies; the host keeps receiving its packets", LiveDriver::AfPacket),
    ("af-xdp", "AF_XDP: takes all packets from the host; for a mirror (SPAN) port", LiveDriver::AfXdp),
];

/// A time that was given in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nanoseconds(u64);

fn parse_seconds(text: &str) -> Result<Nanoseconds, String> {
    /// Thirty years: longer than any capture, and far below the limit of 64-bit nanoseconds.
    const SECONDS_MAX: f64 = 1e9;
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= SECONDS_MAX);
    let seconds = seconds.ok_or("expected seconds above 0, such as `15` or `0.5`")?;
    Ok(Nanoseconds((seconds * 1e9).round().max(1.0) as u64))
}

/// A fixed seed makes random sampling choose the same packets in every run.
const SAMPLING_SEED: u64 = 1;

fn parse_sampling(text: &str) -> Result<Sampling, String> {
    let (kind, interval) = text.split_once(':').unwrap_or(("", text));
    let interval = interval.parse::<u32>().ok().filter(|interval| *interval > 0);
    match (kind, interval) {
        ("1", Some(interval)) => Ok(Sampling::Count { interval }),
        ("random", Some(interval)) => Ok(Sampling::Random { interval, seed: SAMPLING_SEED }),
        _ => Err("expected `1:N` for every Nth packet, or `random:N` for each with a chance of one in N"
            .to_owned()),
    }
}

impl ProbeArgs {
    /// The options for the probe, or why the arguments contradict each other.
    pub(crate) fn options(&self) -> Result<ProbeOptions, String> {
        if self.key.contains(&KeyArg::None) && self.key.len() > 1 {
            return Err("--key none excludes other fields".to_owned());
        }
        if self.keep.need_a_dataset() && self.store.is_none() {
            return Err(
                "--keep and other --keep-.., --iceberg, --archive and --feed need a dataset: add --store DIR"
                    .to_owned(),
            );
        }
        let has = |field| self.key.contains(&field);
        let meter = MeterOptions {
            key: KeyFields {
                ports: has(KeyArg::Ports),
                traffic_class: has(KeyArg::TrafficClass),
                ingress: has(KeyArg::Ingress),
                vlan: has(KeyArg::Vlan),
                mpls: has(KeyArg::Mpls),
            },
            flows_max: self.flows_max.get(),
            shards: self.shards,
            idle_timeout_ns: self.idle_timeout.0,
            active_timeout_ns: self.active_timeout.0,
            biflow: self.biflow,
            huge_pages: !self.small_pages,
            count: self.count,
            sampling: self.sample.unwrap_or(Sampling::All),
            labeling: self.applications,
            names: NameOptions {
                tls: self.names.contains(&NameArg::Tls),
                quic: self.names.contains(&NameArg::Quic),
                http: self.names.contains(&NameArg::Http),
                dns: self.names.contains(&NameArg::Dns),
                ja4: self.ja4,
            },
            community_id: self.community_id,
            ..MeterOptions::default()
        };
        let files = FileInput {
            inputs: self.inputs.clone(),
            loops: self.loops,
            rate_pps: self.rate.map(NonZeroU64::get),
            preload: self.preload,
            deal: self.deal,
            strict: self.strict,
        };
        let input = match self.interface.is_empty() {
            true => Input::Files(files),
            false => Input::Live(self.live()),
        };
        Ok(ProbeOptions {
            shape: self.shape(&input)?,
            chunk_packets: self.chunk.map(NonZeroUsize::get),
            parsing: ParseOptions { tunnels: self.tunnels },
            meter,
            work: self.work.boards(),
            export: self.export(),
            exporter: self.exporter.clone(),
            json: self.json.clone(),
            csv: self.csv.clone(),
            store: self.store.clone(),
            keep: self.keep.options(self.tls()),
            enrich: self.enrich.files(),
            alarms: self.alarms()?,
            ..ProbeOptions::new(input)
        })
    }

    fn alarms(&self) -> Result<AlarmOptions, String> {
        let rules = self.alarms.as_deref().map(thalweg_config::alarms_of).transpose();
        let rules = rules.map_err(|errors| errors.to_string())?.unwrap_or_default();
        let authorities = self.alarm_webhook_ca.clone();
        let webhook = self.alarm_webhook.clone().map(|url| WebhookTarget { url, authorities });
        Ok(AlarmOptions { rules, webhook })
    }

    fn live(&self) -> LiveInput {
        LiveInput {
            interfaces: self.interface.clone(),
            driver: self.driver,
            ring: self.ring,
            seconds: self.seconds,
            packets: self.packets,
        }
    }

    fn tls(&self) -> TlsOptions {
        TlsOptions {
            authorities: self.tls_ca.clone(),
            server_name: self.tls_name.clone(),
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
        }
    }

    fn export(&self) -> ExportTargets {
        ExportTargets {
            addresses: self.export.clone(),
            balance: self.export_balance,
            observation_domain: self.export_domain,
            spool: self
                .spool
                .clone()
                .map(|folder| Spool { folder, bytes_max: u64::from(self.spool_mb) * 1_000_000 }),
            tls: self.tls(),
            datagrams_per_s_max: self.export_rate,
            one_by_one: self.no_gso,
            sflow: SflowOptions {
                sampling: PacketSampling { rate: self.sflow_sampling, header_bytes: self.sflow_header },
                agent: self.sflow_agent,
                counters: SflowOptions::every_s(self.sflow_counters),
            },
        }
    }

    fn shape(&self, input: &Input) -> Result<Shape, String> {
        let is_farm = self.readers.is_some() || self.pipelines.is_some();
        let model = match (self.model, input) {
            (Some(model), _) => model,
            (None, _) if is_farm => ModelKind::Farm,
            (None, Input::Live(_)) => ModelKind::RunToCompletion,
            (None, Input::Files(files)) if self.takes_threads(files) => ModelKind::Tokens,
            (None, Input::Files(_)) => ModelKind::Serial,
        };
        if self.readers.is_some() && !model.has_readers() {
            return Err(format!(
                "{model} has no readers of its own: leave out --readers, or take --model farm or chain"
            ));
        }
        let workers = match (self.workers, model) {
            (Some(workers), ModelKind::Serial) if workers.get() > 1 => {
                return Err(format!("the serial model has one worker, not {workers}: leave out --workers"));
            }
            (Some(workers), _) => workers.get(),
            (None, ModelKind::Serial) => 1,
            (None, _) if is_farm => 1,
            (None, _) => cores(),
        };
        let or_one = |count: Option<NonZeroUsize>| count.map_or(1, NonZeroUsize::get);
        Ok(Shape {
            pipelines: or_one(self.pipelines),
            model,
            workers,
            readers: or_one(self.readers),
            tokens: self.tokens.get(),
            pin_cores: self.pin.clone().map_or(Vec::new(), |cores| cores.0),
        })
    }

    /// Whether several threads meter files, if no model is asked for.
    fn takes_threads(&self, files: &FileInput) -> bool {
        self.workers.map_or_else(|| cores() > 1 && !files.is_small(), |workers| workers.get() > 1)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

const PROBE_HELP: &str = "\
A record counts what a flow sent since it began or was last reported. A flow is reported when it ends (idle timeout, TCP
FIN or RST), after each active timeout, and at the end of the input.

For packets and bytes, the summary holds: seen = exported + cached + dropped by reason.

Examples:
  thalweg probe office.pcapng                                  a summary
  thalweg probe office.pcapng --json -                         a line per record
  thalweg probe office.pcapng --csv flows.csv --biflow         both directions in one record
  thalweg probe office.pcapng --store flows                    for: thalweg flows --data flows top src
  thalweg probe lan=a.pcap wan=b.pcap --key ports,ingress      flows by ingress port
  thalweg probe office.pcapng --export ipfix://192.0.2.1:4739  to a collector
  thalweg probe office.pcapng --export kafka://192.0.2.1:9092/flows?format=protobuf    to Kafka (cargo feature `kafka`)
  thalweg probe office.pcapng --export clickhouse://192.0.2.1:8123/flows               to ClickHouse
  thalweg probe --interface eth1 --export sflow://192.0.2.1    samples and counters to a collector of sFlow
  thalweg probe big.pcap --readers 1 --workers 2               one reader, two workers
  thalweg probe big.pcap --model chain --workers 2             the same in a line, as in ffProbe
  thalweg probe big.pcap --pipelines 2 --readers 1 --workers 1 two pipelines of 1R+1W
  thalweg probe --interface eth1 --seconds 60 --json -         an interface, for a minute
  thalweg probe big.pcap --preload --loop 10 --format json     a benchmark, from memory";

//! Arguments of `thalweg flows`.

use std::path::PathBuf;

use super::choices::{Choice, one_of};
use super::flows_import::FlowsImportArgs;
use super::keep::{KeepArgs, seconds};
use clap::{Args, Subcommand};
use thalweg_flow::fields::Field;
use thalweg_ports::collector::TlsOptions;
use thalweg_store::query::{Key, Metric};
use thalweg_text::calendar::{SECOND_NS, parse_time};

#[derive(Debug, Args)]
#[command(after_help = FLOWS_HELP)]
pub(crate) struct FlowsArgs {
    /// Folder of the dataset, or its archive, s3://BUCKET/PREFIX (repeatable: several are asked as one, and files that are in
    /// both count once)
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/thalweg/flows")]
    pub(crate) data: Vec<PathBuf>,
    /// Read files only; do not ask the dataset's writer for records that are not on disk yet
    #[arg(long, global = true)]
    pub(crate) no_live: bool,
    /// Ask another program than a dataset: a router's console, http://HOST:PORT or https://.., or ClickHouse,
    /// clickhouse://HOST:PORT/DATABASE.TABLE or clickhouse+tls://.. with ?user=NAME&password_file=FILE
    #[arg(long, global = true, value_name = "URL", conflicts_with_all = ["data", "no_live"])]
    pub(crate) url: Option<String>,
    /// File with the console's token on its first line [default: the variable THALWEG_TOKEN, if it is set]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Certificates of the authorities that sign that server's, in PEM [default: the system's], or those of --feed's brokers
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: FlowsAction,
}

impl FlowsArgs {
    /// How the brokers of a feed are known.
    pub(crate) fn feed_tls(&self) -> TlsOptions {
        TlsOptions { authorities: self.tls_ca.clone(), ..TlsOptions::default() }
    }

    /// What is asked, for messages.
    pub(crate) fn place(&self) -> String {
        self.url.clone().unwrap_or_else(|| self.folders())
    }

    /// The datasets' folders, for messages.
    pub(crate) fn folders(&self) -> String {
        self.data.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowsAction {
    /// Rank hosts, ports, autonomous systems or applications by traffic
    Top(FlowsTopArgs),
    /// Print flow records: the latest ones, or new ones as they arrive
    List(FlowsListArgs),
    /// Show traffic over time, in total or by key
    Graph(FlowsGraphArgs),
    /// Import NetFlow, IPFIX and sFlow, from captures or as a collector
    Import(FlowsImportArgs),
    /// Show the size and time range of the dataset, and files that are skipped
    Stats,
    /// Merge small files, archive complete hours, remove records beyond --keep, --keep-bytes and --keep-free, and make rollups
    ///
    /// Only needed for a dataset that no program writes to. A writer merges files by itself, and removes records if it
    /// is configured to: a router with `keep`, `keep_bytes` and `keep_free` in `[flows]`, `thalweg probe --store` and
    /// `thalweg flows import` with --keep, --keep-bytes and --keep-free. With --keep-minutes and --keep-hours, records of
    /// hours that have ended are summed, and the sums answer `top` and `graph` where records are gone.
    Compact(KeepArgs),
}

/// Which records.
#[derive(Debug, Args)]
pub(crate) struct FlowsWhichArgs {
    /// Only records of the last 30s, 15m, 1h, 7d and so on [default: all records]
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with_all = ["from", "to"])]
    pub(crate) last: Option<u64>,
    /// Only records from this time on (UTC): 2026-11-22, 2026-11-22T05:30, or seconds since the epoch
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) from: Option<u64>,
    /// Only records before this time (UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) to: Option<u64>,
    /// Threads to use [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Print CSV with a header line
    #[arg(long)]
    pub(crate) csv: bool,
    /// Print counters in tables with three digits and k, M or G
    #[arg(long, conflicts_with = "csv")]
    pub(crate) human: bool,
    /// Print sampled packets and bytes as counted, not multiplied by the sampling interval
    #[arg(long)]
    pub(crate) raw: bool,
    /// Ask records only, not the sums by minutes and hours (--keep-minutes, --keep-hours)
    #[arg(long)]
    pub(crate) no_rollups: bool,
    /// Count a flow that several exporters metered once: as the one did that saw most of it
    #[arg(long)]
    pub(crate) dedup: bool,
    /// Only records that match this filter, see below; quote < > ! ( ) in a shell [default: all records]
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = TOP_HELP)]
pub(crate) struct FlowsTopArgs {
    /// Keys to rank, separated by commas, see below
    #[arg(value_name = "KEY[,KEY..]", value_parser = parse_keys)]
    pub(crate) keys: Keys,
    /// Counter to rank by
    #[arg(long, value_parser = one_of(METRICS), default_value = "bytes")]
    pub(crate) by: Metric,
    /// Print at most this many rows
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct FlowsListArgs {
    /// Print new records as they arrive, until interrupted
    #[arg(short, long, conflicts_with_all = ["n", "last", "from", "to", "no_live", "dedup"])]
    pub(crate) follow: bool,
    /// Print this many of the latest records
    #[arg(short, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) n: u32,
    /// Print these fields instead, separated by commas, by their names in JSON: src,dst,dst_port,bytes
    #[arg(long, value_name = "FIELD[,FIELD..]", value_parser = parse_fields)]
    pub(crate) columns: Option<Fields>,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Debug, Args)]
#[command(after_help = GRAPH_HELP)]
pub(crate) struct FlowsGraphArgs {
    /// Draw a line for each of the largest values of this key, or of several separated by commas
    #[arg(long, value_name = "KEY", value_parser = parse_keys)]
    pub(crate) key: Option<Keys>,
    /// Counter to show
    #[arg(long, value_parser = one_of(METRICS), default_value = "bytes")]
    pub(crate) by: Metric,
    /// Length of a step: 30s, 5m, 1h [default: a thirtieth of the time shown]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) step: Option<u64>,
    /// Draw the graph into this SVG file instead
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    pub(crate) svg: Option<PathBuf>,
    /// Draw areas on top of each other instead of lines
    #[arg(long, requires = "svg")]
    pub(crate) stacked: bool,
    /// Draw the other direction too, below: the same question with source and destination exchanged
    #[arg(long, requires = "svg")]
    pub(crate) both: bool,
    /// Draw this many values of the key; the rest is summed
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

/// The counter to rank by or to show.
const METRICS: &[Choice<Metric>] = &[
    ("packets", "", Metric::Packets),
    ("bytes", "", Metric::Bytes),
    ("flows", "Flow records; a long flow has several", Metric::Flows),
];

/// Keys in the order of columns.
#[derive(Clone, Debug)]
pub(crate) struct Keys(pub(crate) Vec<Key>);

fn parse_keys(text: &str) -> Result<Keys, String> {
    let keys: Result<Vec<Key>, _> = text.split(',').map(str::parse).collect();
    keys.map(Keys).map_err(|error| error.to_string())
}

/// Fields of records, in the order of columns.
#[derive(Clone, Debug)]
pub(crate) struct Fields(pub(crate) Vec<Field>);

fn parse_fields(text: &str) -> Result<Fields, String> {
    let field = |name: &str| {
        Field::named(name).ok_or_else(|| {
            let names: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
            format!("`{name}` is not a field; expected some of {}", names.join(", "))
        })
    };
    text.split(',').map(field).collect::<Result<_, _>>().map(Fields)
}

/// Parses a time span to nanoseconds.
fn parse_span(text: &str) -> Result<u64, String> {
    seconds(text)?.checked_mul(SECOND_NS).ok_or_else(|| "expected less than 584 years".to_owned())
}

fn parse_moment(text: &str) -> Result<u64, String> {
    parse_time(text)
        .ok_or_else(|| "expected a time in UTC, such as 2026-11-22 or 2026-11-22T05:30:00".to_owned())
}

/// Help texts: each command combines the parts it needs. Attributes accept only literals, hence macros.
macro_rules! counting {
    () => {
        "\
A record counts at the time of its last packet. Packets and bytes are the sums of both directions. Sampled
traffic is multiplied by the sampling interval, unless --raw is given.
"
    };
}

macro_rules! keys {
    () => {
        "
Keys:
  src dst host, src-port dst-port port, src-as dst-as as       host, port and as match either end
  src-country dst-country country, src-net dst-net network, next-as
  proto app ingress egress next-hop bgp-next-hop vlan mpls tos end drop nat-src nat-dst nat-src-port
  icmp-type icmp-code exporter exporter-address domain
  in-if out-if (names of interfaces) in-vrf out-vrf direction event
  server-name resolved-name dns-name dns-type dns-code alpn ja4
"
    };
}

macro_rules! filters {
    () => {
        "
Filters:
  [src|dst] ADDRESS, [src|dst] net PREFIX, [src|dst] host NAME, [src|dst] port N, [src|dst] as N
  proto NAME_OR_N, tcp, udp, icmp, icmpv6, ipv4, ipv6, app NAME, end REASON, flags SA, nat
  next-hop, bgp-next-hop, nat-src, nat-dst PREFIX; exporter NAME, ADDRESS or PREFIX
  in-if, out-if NAME, of an interface or its description; NAME* is the beginning of a name
  country, src-country, dst-country DE; network, src-net, dst-net NAME
  name *.example.org, server-name, resolved-name, dns-name, dns-type, dns-code, alpn, ja4
  event WORD, or any: of NAT and firewalls, which other questions leave out; direction ingress or egress
  ingress, egress, vlan, mpls, tos, dscp, ttl, packets, bytes, duration, dropped, sampling, icmp-type, icmp-code,
  domain, in-vrf, out-vrf, next-as N
  N is a number, FROM-TO, several of them separated by commas, or a comparison: > 10, <= 5k, != 0
  a port may have a service's name: port https,8080-8089; PREFIX, ADDRESS, country and network may be lists too
  join tests with and, or, not, ( )
"
    };
}

macro_rules! top_examples {
    () => {
        "
  thalweg flows --url https://router.example.net:8443 --token-file token top app --last 1h
  thalweg flows --url clickhouse://192.0.2.1/flows top src,dst --last 1d
  thalweg flows top src --last 1h
  thalweg flows --data s3://bucket/edge1 --data /var/lib/thalweg/flows top src --last 60d
  thalweg flows top src,dst,dst-port --by packets -n 20 --from 2026-11-22T05:00 --to 2026-11-22T06:00 udp"
    };
}

macro_rules! list_examples {
    () => {
        "
  thalweg flows list 'src net 10.0.0.0/8 and dst port dns,https and packets > 10 and not as 64500'
  thalweg flows list --columns flow_start,src,dst,bytes,server_name --last 5m
  thalweg flows list --follow tcp and flags S"
    };
}

macro_rules! graph_examples {
    () => {
        "
  thalweg flows graph --last 1d tcp
  thalweg flows graph --key app --step 5m --last 6h --svg apps.svg --stacked
  thalweg flows graph --key dst-as --last 1d --svg peers.svg --stacked --both src net 192.0.2.0/24"
    };
}

const FLOWS_HELP: &str = concat!(
    counting!(),
    keys!(),
    filters!(),
    "\nExamples:",
    top_examples!(),
    list_examples!(),
    graph_examples!()
);
const TOP_HELP: &str = concat!(counting!(), keys!(), filters!(), "\nExamples:", top_examples!());
const LIST_HELP: &str = concat!(counting!(), filters!(), "\nExamples:", list_examples!());
const GRAPH_HELP: &str = concat!(counting!(), keys!(), filters!(), "\nExamples:", graph_examples!());

//! Arguments of `thalweg flows`.

use std::path::PathBuf;

use super::choices::{Choice, one_of};
use super::flows_import::FlowsImportArgs;
use super::keep::{KeepArgs, seconds};
use clap::{Args, Subcommand};
use thalweg_store::query::{Key, Metric};
use thalweg_text::calendar::{SECOND_NS, parse_time};

#[derive(Debug, Args)]
#[command(after_help = FLOWS_HELP)]
pub(crate) struct FlowsArgs {
    /// The dataset's folder
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/thalweg/flows")]
    pub(crate) data: PathBuf,
    /// Only what is in files: do not ask the dataset's writer for records that are not on disk yet
    #[arg(long, global = true)]
    pub(crate) no_live: bool,
    #[command(subcommand)]
    pub(crate) action: FlowsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowsAction {
    /// Rank hosts, ports, autonomous systems or applications by traffic
    Top(FlowsTopArgs),
    /// Print flow records: the latest ones, or as they come in
    List(FlowsListArgs),
    /// Show traffic over time, in all or by key
    Graph(FlowsGraphArgs),
    /// Add what others export: NetFlow and IPFIX out of captures, or sent here
    Import(FlowsImportArgs),
    /// Say what the dataset consists of, and which files are skipped
    Stats,
    /// Join small files and remove what need not be kept
    ///
    /// For a dataset that nobody writes. A writer joins its files by itself, and removes what need not be kept if told to:
    /// a router by the keys `keep`, `keep_bytes` and `keep_free` of `[flows]`, `thalweg probe --store` and `thalweg flows import`
    /// by --keep, --keep-bytes and --keep-free.
    Compact(KeepArgs),
}

/// Which records.
#[derive(Debug, Args)]
pub(crate) struct FlowsWhichArgs {
    /// Records of the time until now: 30s, 15m, 1h, 7d [default: all records]
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with_all = ["from", "to"])]
    pub(crate) last: Option<u64>,
    /// Records from this time on (UTC): 2026-11-22, 2026-11-22T05:30, or seconds since the epoch
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) from: Option<u64>,
    /// Records before this time (UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) to: Option<u64>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Print rows as comma-separated values, with a header
    #[arg(long)]
    pub(crate) csv: bool,
    /// Print counters of tables with k, M or G, and three digits
    #[arg(long, conflicts_with = "csv")]
    pub(crate) human: bool,
    /// Packets and bytes of sampled traffic as counted, not multiplied by the sampling interval
    #[arg(long)]
    pub(crate) raw: bool,
    /// Which records, in the words below [default: all records]; < > ! ( ) need quotes in a shell
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = TOP_HELP)]
pub(crate) struct FlowsTopArgs {
    /// What to rank: a key from the list below, or several with commas
    #[arg(value_name = "KEY[,KEY..]", value_parser = parse_keys)]
    pub(crate) keys: Keys,
    /// Rank by
    #[arg(long, value_parser = one_of(METRICS), default_value = "bytes")]
    pub(crate) by: Metric,
    /// Rows printed at most
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct FlowsListArgs {
    /// Print records as the dataset's writer gets them, until interrupted
    #[arg(short, long, conflicts_with_all = ["n", "last", "from", "to", "no_live"])]
    pub(crate) follow: bool,
    /// Records printed at most, the latest ones
    #[arg(short, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Debug, Args)]
#[command(after_help = GRAPH_HELP)]
pub(crate) struct FlowsGraphArgs {
    /// One line for each of the largest values of this key (or several, with commas)
    #[arg(long, value_name = "KEY", value_parser = parse_keys)]
    pub(crate) key: Option<Keys>,
    /// Show
    #[arg(long, value_parser = one_of(METRICS), default_value = "bytes")]
    pub(crate) by: Metric,
    /// Length of a step: 30s, 5m, 1h [default: about 30 steps in all]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) step: Option<u64>,
    /// Draw the graph into this SVG file instead
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    pub(crate) svg: Option<PathBuf>,
    /// How many values of the key have a line of their own
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

/// What is ranked or shown.
const METRICS: &[Choice<Metric>] = &[
    ("packets", "", Metric::Packets),
    ("bytes", "", Metric::Bytes),
    ("flows", "Records: a long flow is reported several times", Metric::Flows),
];

/// Keys, in the order in which they are shown.
#[derive(Clone, Debug)]
pub(crate) struct Keys(pub(crate) Vec<Key>);

fn parse_keys(text: &str) -> Result<Keys, String> {
    let keys: Result<Vec<Key>, _> = text.split(',').map(str::parse).collect();
    keys.map(Keys).map_err(|error| error.to_string())
}

/// A length of time, in nanoseconds.
fn parse_span(text: &str) -> Result<u64, String> {
    seconds(text)?.checked_mul(SECOND_NS).ok_or_else(|| "expected less than 584 years".to_owned())
}

fn parse_moment(text: &str) -> Result<u64, String> {
    parse_time(text)
        .ok_or_else(|| "expected a time in UTC, such as 2026-11-22 or 2026-11-22T05:30:00".to_owned())
}

/// Help on words: of each command those that it knows, as whole texts because attributes take no others.
macro_rules! counting {
    () => {
        "\
A record belongs to the time at which its last packet came. Packets and bytes are those of both directions, of sampled
traffic multiplied by the sampling interval; --raw leaves them as counted.
"
    };
}

macro_rules! keys {
    () => {
        "
Keys:
  src dst host, src-port dst-port port, src-as dst-as as       host, port and as mean either end
  proto app ingress egress next-hop bgp-next-hop vlan mpls tos end drop nat-src nat-dst nat-src-port
  icmp-type icmp-code
"
    };
}

macro_rules! filters {
    () => {
        "
Filters:
  [src|dst] ADDRESS, [src|dst] net PREFIX, [src|dst] port N, [src|dst] as N
  proto NAME_OR_N, tcp, udp, icmp, icmpv6, ipv4, ipv6, app NAME, end REASON, flags SA, nat
  next-hop, bgp-next-hop, nat-src, nat-dst PREFIX
  ingress, egress, vlan, mpls, tos, dscp, ttl, packets, bytes, duration, dropped, sampling, icmp-type, icmp-code N
  N is a number, FROM-TO, or a comparison: > 10, <= 5k, != 0; tests are joined by and, or, not, ( )
"
    };
}

macro_rules! top_examples {
    () => {
        "
  thalweg flows top src --last 1h
  thalweg flows top src,dst,dst-port --by packets -n 20 --from 2026-11-22T05:00 --to 2026-11-22T06:00 udp"
    };
}

macro_rules! list_examples {
    () => {
        "
  thalweg flows list 'src net 10.0.0.0/8 and (dst port 53 or port 443) and packets > 10 and not as 64500'
  thalweg flows list --follow tcp and flags S"
    };
}

macro_rules! graph_examples {
    () => {
        "
  thalweg flows graph --last 1d tcp
  thalweg flows graph --key app --step 5m --last 6h --svg apps.svg"
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

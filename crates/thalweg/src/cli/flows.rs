//! Arguments of `thalweg flows`.

use std::path::PathBuf;

use super::flows_import::FlowsImportArgs;
use super::keep::{KeepArgs, seconds};
use clap::{Args, Subcommand, ValueEnum};
use thalweg_store::calendar::{SECOND_NS, parse_time};
use thalweg_store::query::{Key, Metric};

#[derive(Debug, Args)]
#[command(after_help = FLOWS_HELP)]
pub(crate) struct FlowsArgs {
    /// The dataset's folder
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/thalweg/flows")]
    pub(crate) data: PathBuf,
    /// Only what is in files: do not ask whoever writes the dataset what is not on disk yet
    #[arg(long, global = true)]
    pub(crate) no_live: bool,
    #[command(subcommand)]
    pub(crate) action: FlowsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowsAction {
    /// The largest of whatever kind: hosts, ports, autonomous systems, applications
    Top(FlowsTopArgs),
    /// Flow records themselves, the latest ones, or as they come in
    List(FlowsListArgs),
    /// Traffic over time, in all or by key
    Graph(FlowsGraphArgs),
    /// Add what others export: NetFlow and IPFIX out of captures, or sent here
    Import(FlowsImportArgs),
    /// What the dataset consists of, and which files are skipped
    Stats,
    /// Join small files and remove what need not be kept
    ///
    /// For a dataset that nobody writes. Whoever writes one joins its files, and removes what need not be kept if told to:
    /// a router by the keys `keep`, `keep_bytes` and `keep_free` of `[flows]`, `thalweg probe --store` and `thalweg flows import`
    /// by --keep, --keep-bytes and --keep-free.
    Compact(KeepArgs),
}

/// Which records.
#[derive(Debug, Args)]
pub(crate) struct FlowsWhichArgs {
    /// Records of the time until now: 30s, 15m, 1h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_span, conflicts_with_all = ["from", "to"])]
    pub(crate) last: Option<u64>,
    /// Records from this time on (UTC): 2026-11-22, 2026-11-22T05:30, or seconds since the epoch
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) from: Option<u64>,
    /// Records before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) to: Option<u64>,
    /// Threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// Rows as comma-separated values, with a header
    #[arg(long)]
    pub(crate) csv: bool,
    /// Counters of tables with k, M or G, and three digits
    #[arg(long, conflicts_with = "csv")]
    pub(crate) human: bool,
    /// Packets and octets of sampled traffic as counted, not multiplied by the sampling interval
    #[arg(long)]
    pub(crate) raw: bool,
    /// Which records: all, unless it is said; several words need no quotes, signs do
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FlowsTopArgs {
    /// By what records are summed up: one key, or several with commas
    #[arg(value_name = "KEY[,KEY..]", value_parser = parse_keys)]
    pub(crate) keys: Keys,
    /// What is ranked
    #[arg(long, value_enum, default_value_t = MetricArg::Octets)]
    pub(crate) by: MetricArg,
    /// How many
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FlowsListArgs {
    /// Records as they come to whoever writes the dataset, until interrupted
    #[arg(short, long, conflicts_with_all = ["n", "last", "from", "to", "no_live"])]
    pub(crate) follow: bool,
    /// How many
    #[arg(short, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FlowsGraphArgs {
    /// One line for each of the largest values of this key (or several, with commas)
    #[arg(long, value_name = "KEY", value_parser = parse_keys)]
    pub(crate) key: Option<Keys>,
    /// What is shown
    #[arg(long, value_enum, default_value_t = MetricArg::Octets)]
    pub(crate) by: MetricArg,
    /// Length of a step [default: such that there are about 30]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub(crate) step: Option<u64>,
    /// Draw it into this file
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    pub(crate) svg: Option<PathBuf>,
    /// How many values of the key have a line of their own
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) n: u32,
    #[command(flatten)]
    pub(crate) which: FlowsWhichArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricArg {
    Packets,
    Octets,
    /// Records: a long flow is reported several times
    Flows,
}

impl From<MetricArg> for Metric {
    fn from(metric: MetricArg) -> Self {
        match metric {
            MetricArg::Packets => Self::Packets,
            MetricArg::Octets => Self::Octets,
            MetricArg::Flows => Self::Flows,
        }
    }
}

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

const FLOWS_HELP: &str = "\
A record belongs to the time at which its last packet came. Packets and octets are those of both directions, of sampled
traffic multiplied by the sampling interval; --raw leaves them as counted.

Keys:
  src dst host, src-port dst-port port, src-as dst-as as       host, port and as mean either end
  proto app ingress egress next-hop bgp-next-hop vlan mpls tos end drop nat-src nat-dst nat-src-port
  icmp-type icmp-code

Filters:
  [src|dst] ADDRESS, [src|dst] net PREFIX, [src|dst] port N, [src|dst] as N
  proto NAME_OR_N, tcp, udp, icmp, icmpv6, ipv4, ipv6, app NAME, end REASON, flags SA, nat
  next-hop, bgp-next-hop, nat-src, nat-dst PREFIX
  ingress, egress, vlan, mpls, tos, dscp, ttl, packets, octets, duration, dropped, sampling, icmp-type, icmp-code N
  N is a number, FROM-TO, or a comparison: > 10, <= 5k, != 0; tests are joined by and, or, not, ( )

Examples:
  thalweg flows top src --last 1h
  thalweg flows top src,dst,dst-port --by packets -n 20 --from 2026-11-22T05:00 --to 2026-11-22T06:00 udp
  thalweg flows list 'src net 10.0.0.0/8 and (dst port 53 or port 443) and packets > 10 and not as 64500'
  thalweg flows graph --key app --step 5m --last 6h --svg apps.svg
  thalweg flows list --follow tcp and flags S";

//! Arguments of `thalweg capture`.

use std::path::PathBuf;

use clap::Args;

use crate::client::SocketArgs;

#[derive(Debug, Args)]
#[command(after_help = CAPTURE_HELP)]
pub(crate) struct CaptureArgs {
    /// Where to capture: `arrived`, a stage (`ingress`, `nat`, `route`, ..), `to-host`, `sent` or `dropped`
    ///
    /// [default: arrived; with --reason dropped]
    #[arg(value_name = "POINT")]
    pub(crate) point: Option<String>,
    /// Only packets received or sent on this port, by its name or its interface's
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Only packets dropped for this reason, as `show counters` names it
    #[arg(long, value_name = "REASON")]
    pub(crate) reason: Option<String>,
    /// Only packets that match all of these clauses at the point of capture
    #[arg(long, value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Stop after this many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: Option<u32>,
    /// Capture at most this many bytes of a packet
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..=65_535))]
    pub(crate) snaplen: Option<u32>,
    /// Capture at most this many packets per second
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Write this pcapng file; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) router: SocketArgs,
}

const CAPTURE_HELP: &str = "\
Points:
  arrived    packets as received, before the first stage
  STAGE      packets as this stage passed them on: translated behind nat, with the egress link's header behind route
  to-host    packets for the router itself
  sent       frames that were sent, the router's own included
  dropped    packets that `show counters` counts as dropped

Filter:
  [[not] CLAUSE]...
    ip | ipv6 | arp | udp | tcp | icmp | protocol NUMBER
    src PREFIX | dst PREFIX | host PREFIX
    sport PORTS | dport PORTS | port PORTS             53 or 8000-8099
    dscp NAME_OR_N | flags syn,ack,.. | fragment

Examples:
  thalweg capture nat -o - | tshark -r -
  thalweg capture --reason nat-no-mapping --count 10 -o strangers.pcapng
  thalweg capture arrived --port lan --filter 'src 10.0.0.0/8 udp dport 53' --seconds 10 -o dns.pcapng";

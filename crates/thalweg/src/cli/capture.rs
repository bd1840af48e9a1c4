//! Arguments of `thalweg capture`.

use std::path::PathBuf;

use clap::Args;

use super::SOCKET_DEFAULT;

#[derive(Debug, Args)]
#[command(after_help = CAPTURE_HELP)]
pub(crate) struct CaptureArgs {
    /// Where: `arrived`, a stage (`ingress`, `nat`, `route`, ..), `to-host`, `sent` or `dropped`
    ///
    /// [default: arrived; with --reason dropped]
    #[arg(value_name = "POINT")]
    pub(crate) point: Option<String>,
    /// Only packets that come in or leave by this port, by its name or its interface's
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Only packets that are not forwarded for this reason, as `show counters` calls it
    #[arg(long, value_name = "REASON")]
    pub(crate) reason: Option<String>,
    /// Only packets for which all of these hold, as they are where they are captured
    #[arg(long, value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// End after so many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: Option<u32>,
    /// Keep no more than so many bytes of a packet
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..=65_535))]
    pub(crate) snaplen: Option<u32>,
    /// Keep no more than so many packets a second
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// The pcapng file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The router's control socket
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
}

const CAPTURE_HELP: &str = "\
Points:
  arrived    as packets came in, before the first stage
  STAGE      packets that the stage has let pass, as it left them: behind nat translated, behind route with
             the header of the link they leave by
  to-host    what the router itself has taken
  sent       frames that drivers have taken, the router's own included
  dropped    everything that `show counters` counts as dropped

The filter:
  [[not] CLAUSE]...
    ip | ipv6 | arp | udp | tcp | icmp | protocol NUMBER
    src PREFIX | dst PREFIX | host PREFIX
    sport PORTS | dport PORTS | port PORTS             53 or 8000-8099
    dscp NAME_OR_N | flags syn,ack,.. | fragment

Examples:
  thalweg capture nat -o - | tshark -r -
  thalweg capture --reason nat-no-mapping --count 10 -o strangers.pcapng
  thalweg capture arrived --port lan --filter 'src 10.0.0.0/8 udp dport 53' --seconds 10 -o dns.pcapng";

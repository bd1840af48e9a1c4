//! Arguments of `thalweg trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::client::SocketArgs;

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Trace a packet that arrives on a port
    ///
    /// The packet passes the real stages, with the router's sessions, neighbors and queues as they are now, and changes
    /// nothing: no session opens, no counter changes, no neighbor is resolved. With --config, it passes a router that
    /// has just started with that file.
    #[command(after_help = TRACE_HELP)]
    Packet {
        /// The packet, in quotes: PORT ip SOURCE -> DESTINATION ..., see below
        #[arg(value_name = "PACKET")]
        packet: String,
        #[command(flatten)]
        router: SocketArgs,
        /// Trace in a router with this configuration file, not in a running one
        #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
        config: Option<PathBuf>,
    },
}

const TRACE_HELP: &str = "\
Packet:
  PORT ip SOURCE -> DESTINATION [TRANSPORT] [OPTION]...
    PORT        the ingress port, by its name or its interface's
    TRANSPORT   udp [SOURCE_PORT ->] PORT | tcp [SOURCE_PORT ->] PORT | icmp [TYPE[/CODE]] | protocol NUMBER
    OPTION      ttl N | dscp NAME_OR_N | length BYTES | df | flags syn,ack,.. | fragment first|later

Examples:
  thalweg trace packet 'eth0 ip 10.0.0.1 -> 8.8.8.8 udp 53'
  thalweg trace packet --config router.toml 'lan ip 2001:db8::2 -> 2001:db8:9::1 tcp 443 dscp ef length 1400'";

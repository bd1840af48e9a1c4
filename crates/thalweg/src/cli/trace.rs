//! Arguments of `thalweg trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SOCKET_DEFAULT;

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) thing: TraceThing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceThing {
    /// A packet that arrives on a port
    ///
    /// The packet goes through the stages that all packets go through, and leaves nothing behind: no session is made,
    /// nothing is counted, no neighbor is asked for. The answer is that of the running router, with its sessions,
    /// neighbors and queues as they are now; with --config, that of a router which has just started with this file.
    #[command(after_help = TRACE_HELP)]
    Packet {
        /// The packet: PORT ip SOURCE -> DESTINATION and more, in quotes
        #[arg(value_name = "PACKET")]
        packet: String,
        /// The router's control socket
        #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT, conflicts_with = "config")]
        socket: PathBuf,
        /// Ask this configuration instead of a running router
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

const TRACE_HELP: &str = "\
The packet:
  PORT ip SOURCE -> DESTINATION [TRANSPORT] [OPTION]...
    PORT        a port of the configuration, or its interface: where the packet comes in
    TRANSPORT   udp [SOURCE_PORT ->] PORT | tcp [SOURCE_PORT ->] PORT | icmp [TYPE[/CODE]] | protocol NUMBER
    OPTION      ttl N | dscp NAME_OR_N | length BYTES | df | flags syn,ack,.. | fragment first|later

Examples:
  thalweg trace packet 'eth0 ip 10.0.0.1 -> 8.8.8.8 udp 53'
  thalweg trace packet --config router.toml 'lan ip 2001:db8::2 -> 2001:db8:9::1 tcp 443 dscp ef length 1400'";

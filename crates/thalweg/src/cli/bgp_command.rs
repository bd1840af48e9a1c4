//! Arguments of `thalweg bgp`.

use clap::{Args, Subcommand};

use crate::client::SocketArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg bgp refresh transit-1
  thalweg bgp shutdown transit-1 \"maintenance until 14:00 UTC\"")]
pub(crate) struct BgpArgs {
    #[command(flatten)]
    pub(crate) router: SocketArgs,
    #[command(subcommand)]
    pub(crate) command: BgpCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BgpCommand {
    /// Ask a neighbor to send its routes again (ROUTE-REFRESH)
    Refresh {
        /// The neighbor's name or address
        neighbor: String,
    },
    /// Close a session and open it again
    Reset(SessionEndArgs),
    /// Close a session and keep it down until `bgp start`
    Shutdown(SessionEndArgs),
    /// Open a session that `bgp shutdown` closed
    Start {
        /// The neighbor's name or address
        neighbor: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SessionEndArgs {
    /// The neighbor's name or address
    pub(crate) neighbor: String,
    /// Reason to send to the neighbor (RFC 9003)
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) text: String,
}

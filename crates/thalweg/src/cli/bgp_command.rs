//! Arguments of `thalweg bgp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SOCKET_DEFAULT;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg bgp refresh transit-1
  thalweg bgp shutdown transit-1 \"maintenance until 14:00 UTC\"")]
pub(crate) struct BgpArgs {
    /// The router's control socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
    #[command(subcommand)]
    pub(crate) command: BgpCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BgpCommand {
    /// Ask a neighbor for its routes again
    Refresh {
        /// Name or address
        neighbor: String,
    },
    /// End a session and begin anew
    Reset(SessionEndArgs),
    /// End a session until it is started again
    Shutdown(SessionEndArgs),
    /// Start a session that was shut down
    Start {
        /// Name or address
        neighbor: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SessionEndArgs {
    /// Name or address
    pub(crate) neighbor: String,
    /// A text for people at the other end
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) text: String,
}

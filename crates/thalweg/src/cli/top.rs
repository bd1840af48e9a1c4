//! Arguments of `thalweg top`.

use clap::Args;

use crate::client::SocketArgs;

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) router: SocketArgs,
    /// Seconds between two frames
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
}

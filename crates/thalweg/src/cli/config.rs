//! `thalweg config`.

use clap::{Args, Subcommand};

/// Commands about configurations in general.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List configuration keys: type, range, default, and whether a reload can change it
    Keys(ConfigKeysArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  thalweg config keys nat.timeouts\n  thalweg config keys --format json")]
pub(crate) struct ConfigKeysArgs {
    /// Only this section, such as nat.timeouts or ports.NAME
    pub(crate) section: Option<String>,
}

//! `thalweg config`.

use clap::{Args, Subcommand};

/// What is said of configurations in general.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigThing {
    /// Everything a configuration may say: each key with its type, range and default, and whether a reload can change it
    Keys(ConfigKeysArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  thalweg config keys nat.timeouts\n  thalweg config keys --format json")]
pub(crate) struct ConfigKeysArgs {
    /// One section alone, such as nat.timeouts or ports.NAME
    pub(crate) section: Option<String>,
}

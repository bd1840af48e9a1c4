//! What of a dataset is kept: arguments of all commands that write one.

use clap::Args;
use thalweg_config::quantity;
use thalweg_store::Retention;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct KeepArgs {
    /// Remove hours of the dataset that ended longer ago than this: 12h, 30d
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "What is kept")]
    keep: Option<u64>,
    /// Remove the oldest records until the dataset has at most so many bytes: 500MB, 20GB
    #[arg(long, alias = "keep-bytes", value_name = "BYTES", value_parser = bytes, help_heading = "What is kept")]
    keep_bytes: Option<u64>,
    /// Write nothing while less is free on the file system [default: 5 % of it, at most 1GB]; with any of these three options
    /// the oldest records are removed for it
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "What is kept")]
    keep_free: Option<u64>,
}

impl KeepArgs {
    /// Whether any of them was given: then records may be removed.
    pub(crate) fn are_given(&self) -> bool {
        self.keep.is_some() || self.keep_bytes.is_some() || self.keep_free.is_some()
    }

    /// As the store wants them.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            age_max_s: self.keep,
            bytes_max: self.keep_bytes,
            free_min: self.keep_free,
            makes_room: self.are_given(),
        }
    }
}

/// A length of time, in seconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    quantity::seconds(text).map_err(|expected| format!("expected {expected}"))
}

fn bytes(text: &str) -> Result<u64, String> {
    quantity::bytes(text).map_err(|expected| format!("expected {expected}"))
}

//! What becomes of a dataset: arguments of all commands that write one.

use std::io::Write;

use clap::Args;
use thalweg_config::quantity;
use thalweg_ports::collector::{KafkaAddress, TlsOptions};
use thalweg_ports::s3::S3Address;
use thalweg_probe::KeepOptions;
use thalweg_store::{Retention, RollupRetention};

#[derive(Clone, Debug, Args)]
pub(crate) struct KeepArgs {
    /// Remove records older than this, by the hour: 12h, 30d
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "Retention")]
    keep: Option<u64>,
    /// Limit the dataset's size: 500MB, 20GB; the oldest records are removed
    #[arg(long, alias = "keep-bytes", value_name = "BYTES", value_parser = bytes, help_heading = "Retention")]
    keep_bytes: Option<u64>,
    /// Keep this much of the file system free [default: 5 %, at most 1GB]; below it writing stops or, with any of these
    /// three options, the oldest records are removed
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Retention")]
    keep_free: Option<u64>,
    /// Sum records by minutes, and keep the sums for this long: 30d
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "Retention")]
    keep_minutes: Option<u64>,
    /// Sum records by hours, and keep the sums for this long: 730d
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "Retention")]
    keep_hours: Option<u64>,
    /// Keep the dataset as a table of Apache Iceberg, too, and with --archive the bucket as another one; one that is there is
    /// always kept
    #[arg(long)]
    iceberg: bool,
    /// Send complete hours to a bucket of S3, s3://BUCKET/PREFIX; --keep then removes only what is there. Behind a `?`:
    /// endpoint=URL, region=NAME, style=path or host, credentials_file=FILE, profile=NAME, tls_ca=FILE, joined by &
    #[arg(long, value_name = "URL", value_parser = archive)]
    archive: Option<String>,
    /// Remove hours from that bucket that ended, and were sent, longer ago than this: 365d
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "archive", help_heading = "Retention")]
    archive_keep: Option<u64>,
    /// Send all records to a topic of Kafka, each once, kafka://HOST:PORT/TOPIC; --keep then removes only what was sent
    #[arg(long, value_name = "ADDRESS", value_parser = feed)]
    feed: Option<String>,
}

impl KeepArgs {
    /// Whether any option was given: then a dataset is needed.
    pub(crate) fn need_a_dataset(&self) -> bool {
        let keeps_sums = self.keep_minutes.is_some() || self.keep_hours.is_some();
        self.may_remove() || keeps_sums || self.iceberg || self.archive.is_some() || self.feed.is_some()
    }

    /// Tells of a time that defeats another one, as `thalweg check` does of keys. Said once, when the command begins.
    pub(crate) fn tell(&self) {
        if self.archive_keep.zip(self.keep).is_some_and(|(archive_s, here_s)| archive_s < here_s) {
            let what = "--archive-keep removes records from the bucket before --keep removes them here: give it a longer time";
            let _ = writeln!(std::io::stderr(), "warning: {what}");
        }
    }

    fn may_remove(&self) -> bool {
        self.keep.is_some() || self.keep_bytes.is_some() || self.keep_free.is_some()
    }

    /// What becomes of the dataset; the feed's brokers may have TLS.
    pub(crate) fn options(&self, feed_tls: TlsOptions) -> KeepOptions {
        let (archive, feed) = (self.archive.clone(), self.feed.clone());
        KeepOptions { retention: self.retention(), iceberg: self.iceberg, archive, feed, feed_tls }
    }

    /// The policy for the store.
    fn retention(&self) -> Retention {
        Retention {
            age_max_s: self.keep,
            bytes_max: self.keep_bytes,
            free_min: self.keep_free,
            makes_room: self.may_remove(),
            rollups: RollupRetention { minutes_s: self.keep_minutes, hours_s: self.keep_hours },
            archive_age_max_s: self.archive_keep,
        }
    }
}

fn archive(text: &str) -> Result<String, String> {
    text.parse::<S3Address>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn feed(text: &str) -> Result<String, String> {
    text.parse::<KafkaAddress>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Parses a time span to seconds.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    quantity::seconds(text).map_err(|expected| format!("expected {expected}"))
}

fn bytes(text: &str) -> Result<u64, String> {
    quantity::bytes(text).map_err(|expected| format!("expected {expected}"))
}

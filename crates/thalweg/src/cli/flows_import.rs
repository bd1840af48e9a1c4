//! Arguments of `thalweg flows import`.

use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_ports::collector::TlsOptions;
use thalweg_probe::{ExporterNames, ImportOptions, ImportSource, NamesError, SnmpOptions};

use super::enrich::EnrichArgs;
use super::keep::KeepArgs;

#[derive(Debug, Args)]
#[command(after_help = IMPORT_HELP)]
pub(crate) struct FlowsImportArgs {
    /// Captures or files of messages, `-` for a capture on standard input; udp://ADDRESS:PORT or tcp://ADDRESS:PORT to
    /// listen
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<ImportSource>,
    /// File with names: lines `exporter ADDRESS NAME` and `interface ADDRESS NUMBER NAME DESCRIPTION`
    #[arg(long, value_name = "FILE")]
    pub(crate) names: Option<PathBuf>,
    /// File with a community of SNMP (version 2c) on its first line: exporters that send here are asked for the names and
    /// descriptions of their interfaces
    #[arg(long, value_name = "FILE")]
    pub(crate) snmp_community: Option<PathBuf>,
    /// Port on which exporters answer
    #[arg(long, value_name = "PORT", default_value_t = 161, requires = "snmp_community")]
    pub(crate) snmp_port: u16,
    /// In captures, read only packets to this UDP or TCP port
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Stop after this many seconds [default: when interrupted]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: Option<u32>,
    /// Do not add records to the dataset
    #[arg(long)]
    pub(crate) no_store: bool,
    /// Write records to this file as JSON, one object per line; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write records to this file as CSV; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    #[command(flatten)]
    pub(crate) enrich: EnrichArgs,
}

impl FlowsImportArgs {
    /// The options with the dataset's folder, or why the arguments contradict each other.
    pub(crate) fn options(&self, data: &Path, feed_tls: TlsOptions) -> Result<ImportOptions, String> {
        let is_stdout = |path: &&PathBuf| path.as_os_str() == "-";
        if self.json.iter().chain(&self.csv).filter(is_stdout).count() > 1 {
            return Err("standard output can be JSON or CSV, not both".to_owned());
        }
        let is_stdin = |source: &&ImportSource| **source == ImportSource::File("-".into());
        if self.sources.iter().filter(is_stdin).count() > 1 {
            return Err("standard input (`-`) can be read only once".to_owned());
        }
        if self.keep.need_a_dataset() && self.no_store {
            return Err(
                "--keep and other --keep-.., --iceberg, --archive and --feed need a dataset: leave out --no-store"
                    .to_owned(),
            );
        }
        Ok(ImportOptions {
            sources: self.sources.clone(),
            names: self.names()?,
            snmp: self.snmp()?,
            port: self.port,
            seconds: self.seconds,
            store: (!self.no_store).then(|| data.to_owned()),
            json: self.json.clone(),
            csv: self.csv.clone(),
            keep: self.keep.options(feed_tls),
            enrich: self.enrich.files(),
        })
    }

    fn snmp(&self) -> Result<Option<SnmpOptions>, String> {
        let Some(path) = &self.snmp_community else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let community = text.lines().next().unwrap_or_default().trim().to_owned();
        Ok(Some(SnmpOptions { community, port: self.snmp_port }))
    }

    fn names(&self) -> Result<ExporterNames, String> {
        let Some(path) = &self.names else { return Ok(ExporterNames::default()) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        text.parse().map_err(|error: NamesError| format!("{}, {error}", path.display()))
    }
}

const IMPORT_HELP: &str = "\
Reads NetFlow 5, NetFlow 9, IPFIX and sFlow 5. Counters are stored as received, with the sampling interval in each record.
With port 0 the system chooses a port and prints it to standard error.

Examples:
  thalweg flows import netflow.pcapng --data flows
  thalweg flows import udp://0.0.0.0:2055 udp://[::]:4739 tcp://[::]:4739 --data /var/lib/thalweg/flows
  thalweg flows import udp://0.0.0.0:2055 --keep 30d --keep-bytes 20GB --names exporters.txt
  thalweg flows import export.ipfix --no-store --json - | jq .dst";

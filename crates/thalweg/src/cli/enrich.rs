//! Files with facts about addresses: arguments of `thalweg probe` and `thalweg flows import`.

use std::path::PathBuf;

use clap::Args;
use thalweg_probe::EnrichFiles;

#[derive(Clone, Debug, Args)]
pub(crate) struct EnrichArgs {
    /// Table of BGP routes (MRT) for origin AS, next AS and prefix of addresses
    #[arg(long, value_name = "FILE", help_heading = "Addresses")]
    rib: Option<PathBuf>,
    /// MMDB database for country and AS of addresses (repeatable: the first that knows an address counts)
    #[arg(long, value_name = "FILE", help_heading = "Addresses")]
    mmdb: Vec<PathBuf>,
    /// List of names of networks: lines PREFIX,NAME
    #[arg(long, value_name = "FILE", help_heading = "Addresses")]
    networks: Option<PathBuf>,
}

impl EnrichArgs {
    pub(crate) fn files(&self) -> EnrichFiles {
        EnrichFiles { rib: self.rib.clone(), databases: self.mmdb.clone(), networks: self.networks.clone() }
    }
}

//! `thalweg init` and `thalweg pages`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitKind {
    /// Forwards between the interfaces of this machine
    Router,
    /// Counts flows of copied traffic
    Probe,
    /// Speaks BGP with clients and forwards nothing
    RouteServer,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg init router                              print it
  sudo thalweg init router -o /etc/thalweg/router.toml --force")]
pub(crate) struct InitArgs {
    /// What the machine will be
    #[arg(value_enum)]
    pub(crate) kind: InitKind,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PagesArgs {
    /// Folder that stands for /usr/share
    pub(crate) folder: PathBuf,
}

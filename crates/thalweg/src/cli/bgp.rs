//! The command line of `thalweg lab bgp`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_lab::bgp::experiment::Part;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab bgp                                             everything, on a made-up table
  thalweg lab bgp --only speed-up,functions --threads 1,2,4
  thalweg lab bgp --trace updates.20260222.1530.bz2           the peers of an MRT file
  thalweg lab bgp --quick                                     under two minutes, to see that it works")]
pub(crate) struct LabBgpArgs {
    /// An MRT file whose peers announce, instead of a made-up table
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Parts of the experiment [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = "What to vary")]
    pub(crate) only: Vec<BgpPartArg>,
    /// Schedulings to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SCHEDULINGS",
        default_value = "serial,per-peer,dynamic,sharded",
        help_heading = "What to vary"
    )]
    pub(crate) schedulings: Vec<BgpSchedulingArg>,
    /// Thread counts [default: 1 and each power of two up to the number of cores]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = "What to vary")]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// Neighbors that announce
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) neighbors: NonZeroUsize,
    /// Prefixes that each neighbor announces [default: 50000, 100000 in Wu's loads; 20000, 50000 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) prefixes: Option<NonZeroUsize>,
    /// Runs of each cell that count, in shuffled order [default: 5; 3 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<NonZeroUsize>,
    /// Folder for report.html, results.json and the daemon's files
    #[arg(long, value_name = "DIR", default_value = "lab-bgp")]
    pub(crate) output: PathBuf,
    /// Few and short runs, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of what is made and of the order of runs
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BgpPartArg {
    /// Time by scheduling and threads
    SpeedUp,
    /// Time per UPDATE by function
    Functions,
    /// Time by traffic mix
    Mixes,
    /// Time by the client's way of sending
    Ways,
    /// Time of every 500 UPDATEs along a long trace
    Blocks,
    /// The eight loads of Wu et al.
    Wu,
    /// Ways to receive messages
    Receive,
}

impl BgpPartArg {
    pub(crate) fn part(self) -> Part {
        match self {
            BgpPartArg::SpeedUp => Part::SpeedUp,
            BgpPartArg::Functions => Part::Functions,
            BgpPartArg::Mixes => Part::Mixes,
            BgpPartArg::Ways => Part::Ways,
            BgpPartArg::Blocks => Part::Blocks,
            BgpPartArg::Wu => Part::Wu,
            BgpPartArg::Receive => Part::Receive,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BgpSchedulingArg {
    /// One thread does everything: the reference for all others
    Serial,
    /// A thread for each neighbor
    PerPeer,
    /// A fixed pool takes ready tasks of any neighbor
    Dynamic,
    /// Sessions on any thread, each shard of the table on one
    Sharded,
}

impl BgpSchedulingArg {
    pub(crate) fn name(self) -> &'static str {
        match self {
            BgpSchedulingArg::Serial => "serial",
            BgpSchedulingArg::PerPeer => "per-peer",
            BgpSchedulingArg::Dynamic => "dynamic",
            BgpSchedulingArg::Sharded => "sharded",
        }
    }
}

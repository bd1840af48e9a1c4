//! The command line of `thalweg lab forwarding`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_lab::forwarding::ablation::Technique;
use thalweg_lab::forwarding::experiment::Part;
use thalweg_lab::forwarding::frame::FrameSize;
use thalweg_lab::forwarding::load::Scenario;

use crate::lab::args::{LabRouterArgs, LabRunArgs, VARY, number};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab forwarding --quick                                 under two minutes, to see that it works
  thalweg lab forwarding --prefixes full-table.txt.gz            everything, with your own table
  thalweg lab forwarding --only throughput,cost --subjects linux,thalweg --frames 64,1518
  thalweg lab forwarding --only application --scenarios one:1    what programs see, a switch beside it
  thalweg lab forwarding --only ports --frames 64,128,256,1024   2, 4 and 6 ports, both directions
  thalweg lab forwarding --only throughput,cost --frames 64 --subjects thalweg
      --ablate polling,huge-pages,copies,affinity,batch          what each technique brings
  thalweg lab forwarding --trial 60 --bursts 50 --runs 20        as long as RFC 2544 asks for
It runs in its own network namespaces, which needs root, and removes them at the end.
Defaults: 3 rounds, trials of 1 s, run-to-completion and pipeline; with --quick 1, 0.1 s, run-to-completion.")]
pub(crate) struct LabForwardingArgs {
    /// Parts of the experiment; latency to cost need throughput [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = VARY)]
    pub(crate) only: Vec<Part>,
    /// Routers to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SUBJECTS",
        default_value = "linux,bridge,xdp-forward,thalweg",
        help_heading = VARY
    )]
    pub(crate) subjects: Vec<SubjectArg>,
    /// Frame sizes with FCS [default: 64,128,256,512,1024,1280,1518; 64,1518 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = frame_size, help_heading = VARY)]
    pub(crate) frames: Vec<FrameSize>,
    /// The router's task (one route, the full table, or NAT) and the number of flows [default:
    /// one:1,one:10000,full:60000,nat:1,nat:10000; one:1,full:60000,nat:10000 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "KIND:FLOWS", help_heading = VARY)]
    pub(crate) scenarios: Vec<Scenario>,
    /// Measure all frame sizes in all scenarios, not only in the first
    #[arg(long, help_heading = VARY)]
    pub(crate) all_frames: bool,
    /// Table of prefixes, the first word of each line, plain or compressed [default: a generated table]
    #[arg(long, value_name = "FILE")]
    pub(crate) prefixes: Option<PathBuf>,
    /// Also measure thalweg with each of these changed, one at a time, beside the unchanged one
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TECHNIQUES", help_heading = VARY)]
    pub(crate) ablate: Vec<Technique>,
    /// Numbers of ports in part `ports` [default: 2,4,6]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = port_count, help_heading = VARY)]
    pub(crate) ports: Vec<usize>,
    /// Accepted loss, as a share of frames: 0.0001 is one in ten thousand
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = number(0.0..=0.5))]
    pub(crate) loss: f64,
    /// Searches for the longest burst; the report gives their mean [default: 5; 1 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) bursts: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

fn frame_size(text: &str) -> Result<FrameSize, String> {
    let bytes = text.parse().map_err(|_| format!("{text:?} is no number of bytes"))?;
    FrameSize::new(bytes).map_err(|error| error.to_string())
}

fn port_count(text: &str) -> Result<usize, String> {
    let count = text.parse().map_err(|_| format!("{text:?} is no number of ports"))?;
    if (2..=16).contains(&count) && count % 2 == 0 {
        Ok(count)
    } else {
        Err("expected 2, 4, .. 16".to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SubjectArg {
    /// The Linux kernel's forwarding and NAT, the baseline
    Linux,
    /// The Linux kernel's bridge, a switch: in part `application` only
    Bridge,
    /// xdp-forward from xdp-tools
    XdpForward,
    /// This program, with each driver and model
    Thalweg,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LabForwardingArgs,
    }

    fn parse(arguments: &str) -> Result<LabForwardingArgs, clap::Error> {
        Line::try_parse_from(format!("forwarding {arguments}").split_whitespace()).map(|line| line.args)
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for bad in [
            "--frames 63",
            "--frames 9999",
            "--scenarios two:1",
            "--loss 0.9",
            "--trial 0",
            "--trial nan",
            "--subjects bird",
            "--runs 0",
            "--models serial",
            "--only speed",
            "--ports 3",
            "--ports 18",
            "--ablate luck",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let args = parse("--frames 64,9000 --scenarios one:1,nat:5 --only back-to-back").expect("valid");
        assert_eq!((args.frames.len(), args.scenarios.len()), (2, 2));
        assert_eq!(args.only[0], Part::BackToBack);
    }
}

//! The command line of `thalweg lab network`.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_lab::network::sessions::Collect;
use thalweg_sim::churn::Load;
use thalweg_sim::policy::Policy;
use thalweg_sim::prefixes::PrefixPlan;

use crate::cli::{Choice, one_of};
use crate::lab::args::{LabRunArgs, number};

const LOADS: &[Choice<Load>] = &[
    ("announcements", "New prefixes, about one per second; none is withdrawn", Load::Announcements),
    ("flaps", "Prefixes are withdrawn and announced again, a few of them most often", Load::Flaps),
    ("links", "Links fail for a minute", Load::Links),
    ("resets", "Sessions are reset", Load::Resets),
    ("beacons", "Ten prefixes, announced for two hours and withdrawn for two", Load::Beacons),
    ("surge", "All flaps in one second", Load::Surge),
];

const POLICIES: &[Choice<Policy>] = &[
    (
        "relationships",
        "Customers before peers before providers, tagged with communities",
        Policy::Relationships,
    ),
    ("roles", "The same, with BGP roles (RFC 9234)", Policy::Roles),
    ("everything", "Accept and announce everything", Policy::Everything),
];

/// How routes are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkEngine {
    /// Simulated routers exchange UPDATEs in virtual time
    Sessions,
    /// Only the stable state of the graph is computed, for the whole Internet
    Fixpoint,
}

/// How a graph grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grow {
    /// New ASes link to ASes with many links (Barabási and Albert)
    Preferential,
    /// New ASes link to ASes nearby (Waxman)
    Waxman,
    /// Like preferential, with links added later (Bu and Towsley)
    Glp,
}

/// IBGP topologies to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IbgpArg {
    /// Full mesh
    Mesh,
    /// Two route reflectors in the middle
    Reflectors,
}

/// Virtual time that processing takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProcessingArg {
    /// No time
    None,
    /// As long as UPDATEs of a small network take on this machine
    Measured,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab network --ases 1000 --degree 12 --load announcements --events 1000 --collect 12
  thalweg lab network --ases 300 --load links --events 20 --output net
  thalweg lab network --caida 20260801.as-rel2.txt.bz2 --engine fixpoint --origin 13335
  thalweg lab network --ases 10000 --engine fixpoint --hijack 9000,9001 --rov 0.3
  thalweg lab network --zoo Geant2012.graphml --ibgp mesh,reflectors
  thalweg lab network --quick                          100 ASes and 20 link failures, to see that it works
For each recorded AS, the folder holds ASN-updates.mrt, ASN-rib.mrt and ASN-router.toml, for `thalweg mrt` and \
`thalweg lab bgp --trace`; with --packets also a trace for `thalweg replay`.")]
pub(crate) struct LabNetworkArgs {
    /// Number of ASes to generate [default: 1000; 100 with --quick]
    #[arg(long, value_name = "N", conflicts_with_all = ["caida", "brite"], value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) ases: Option<u32>,
    /// Growth model of the generated graph [default: one like the Internet; preferential with --degree]
    #[arg(long, value_enum, value_name = "MODEL", conflicts_with_all = ["caida", "brite"])]
    pub(crate) grow: Option<Grow>,
    /// Average number of neighbors in a growth model [default: 4]
    #[arg(long, value_name = "N", conflicts_with_all = ["caida", "brite"])]
    pub(crate) degree: Option<NonZeroUsize>,
    /// Read the graph from CAIDA's AS relationships, serial-1 or serial-2, plain or compressed
    #[arg(long, value_name = "FILE")]
    pub(crate) caida: Option<PathBuf>,
    /// Read the graph from a BRITE file; relationships follow from the degree
    #[arg(long, value_name = "FILE", conflicts_with = "caida")]
    pub(crate) brite: Option<PathBuf>,
    /// Read the routers of one AS from a Topology Zoo file (GraphML)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["caida", "brite", "ases", "grow", "degree"])]
    pub(crate) zoo: Option<PathBuf>,
    /// How routes are computed
    #[arg(long, value_enum, default_value = "sessions", value_name = "ENGINE")]
    pub(crate) engine: NetworkEngine,
    /// Prefixes per AS: a number, or `measured` for the Internet's distribution; `total:N` for N in all
    #[arg(long, default_value = "1", value_name = "N", value_parser = prefixes, help_heading = "With sessions")]
    pub(crate) prefixes: PrefixPlan,
    /// Routing policy of the ASes
    #[arg(long, default_value = "relationships", value_parser = one_of(POLICIES), value_name = "POLICY", help_heading = "With sessions")]
    pub(crate) policy: Policy,
    /// Load after the cold start
    #[arg(long, value_parser = one_of(LOADS), value_name = "LOAD", help_heading = "With sessions")]
    pub(crate) load: Option<Load>,
    /// Number of events
    #[arg(long, default_value = "100", value_name = "N", requires = "load", help_heading = "With sessions")]
    pub(crate) events: NonZeroUsize,
    /// Record what an AS with about N neighbors receives, or a given AS such as AS7
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = collect, help_heading = "With sessions")]
    pub(crate) collect: Vec<Collect>,
    /// Minimum route advertisement interval (MRAI), in seconds
    #[arg(long, default_value = "0", value_name = "S", help_heading = "With sessions")]
    pub(crate) mrai: u32,
    /// Exempt withdrawals from --mrai
    #[arg(long, requires = "mrai", help_heading = "With sessions")]
    pub(crate) withdrawals_at_once: bool,
    /// Folder with configurations of ASes, named ASN-router.toml; they replace the policy's
    #[arg(long, value_name = "DIR", help_heading = "With sessions")]
    pub(crate) configurations: Option<PathBuf>,
    /// IBGP topologies to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "mesh,reflectors",
        value_name = "TOPOLOGIES",
        help_heading = "Within one AS"
    )]
    pub(crate) ibgp: Vec<IbgpArg>,
    /// Number of border routers
    #[arg(long, value_name = "N", default_value = "3", help_heading = "Within one AS")]
    pub(crate) exits: NonZeroUsize,
    /// Virtual time that processing takes
    #[arg(long, value_enum, default_value = "none", value_name = "HOW", help_heading = "With sessions")]
    pub(crate) processing: ProcessingArg,
    /// Multiply measured processing times by this factor
    #[arg(long, default_value = "1", value_name = "F", value_parser = number(0.001..=1e6), requires = "processing", help_heading = "With sessions")]
    pub(crate) processing_scale: f64,
    /// Write a trace of N packets, a table and a configuration for each recorded AS, for `thalweg replay`
    #[arg(long, value_name = "N", requires = "collect", help_heading = "With sessions")]
    pub(crate) packets: Option<NonZeroU64>,
    /// Originate a prefix only in this AS [default: in each AS]
    #[arg(long, value_name = "AS", help_heading = "With the fixpoint")]
    pub(crate) origin: Option<u32>,
    /// Let ATTACKER announce a prefix of VICTIM
    #[arg(long, value_name = "VICTIM,ATTACKER", value_parser = two_ases, conflicts_with = "origin", help_heading = "With the fixpoint")]
    pub(crate) hijack: Option<(u32, u32)>,
    /// Let this AS leak routes of providers and peers to all its neighbors
    #[arg(long, value_name = "AS", help_heading = "With the fixpoint")]
    pub(crate) leak: Option<u32>,
    /// Share of ASes that validate the origin (ROV), from 0 to 1
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = number(0.0..=1.0), help_heading = "With the fixpoint")]
    pub(crate) rov: f64,
    /// Share of ASes that reject leaks (ASPA), from 0 to 1
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = number(0.0..=1.0), help_heading = "With the fixpoint")]
    pub(crate) aspa: f64,
    /// Threads to use [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

fn prefixes(text: &str) -> Result<PrefixPlan, String> {
    let (plan, number): (fn(usize) -> PrefixPlan, _) = match text.strip_prefix("total:") {
        _ if text == "measured" => return Ok(PrefixPlan::Measured),
        Some(number) => (PrefixPlan::Total, number),
        None => (PrefixPlan::Each, text),
    };
    match number.parse() {
        Ok(count @ 1..=10_000) => Ok(plan(count)),
        _ => {
            Err("expected a number from 1 to 10000, `total:` before such a number, or `measured`".to_owned())
        }
    }
}

fn collect(text: &str) -> Result<Collect, String> {
    let asn = text.strip_prefix("AS").or_else(|| text.strip_prefix("as"));
    let parsed = match asn {
        Some(asn) => asn.parse().map(Collect::As),
        None => text.parse().map(Collect::Neighbors),
    };
    parsed.map_err(|_| "expected a number of neighbors such as `12`, or an AS such as `AS7`".to_owned())
}

fn two_ases(text: &str) -> Result<(u32, u32), String> {
    let two = text.split_once(',').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    match two {
        Some((victim, attacker)) if victim != attacker => Ok((victim, attacker)),
        _ => Err("expected two AS numbers such as `13335,64500`".to_owned()),
    }
}

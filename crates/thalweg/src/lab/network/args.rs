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
    ("announcements", "new prefixes, about one a second; none goes", Load::Announcements),
    ("flaps", "prefixes are withdrawn and announced again, few of them most of the time", Load::Flaps),
    ("links", "links fail for a minute", Load::Links),
    ("resets", "sessions are reset", Load::Resets),
    ("beacons", "ten prefixes, two hours announced and two hours withdrawn", Load::Beacons),
    ("surge", "the flaps all in one second", Load::Surge),
];

const POLICIES: &[Choice<Policy>] = &[
    (
        "relationships",
        "customers before peers before providers, marked by communities",
        Policy::Relationships,
    ),
    ("roles", "the same, and the roles of RFC 9234", Policy::Roles),
    ("everything", "everything is accepted and announced", Policy::Everything),
];

/// What finds the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkEngine {
    /// Routers with sessions, UPDATEs and virtual time
    Sessions,
    /// The stable state of the graph alone, for the whole Internet
    Fixpoint,
}

/// How a graph grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grow {
    /// New ASes link to those with many links (Barabási and Albert)
    Preferential,
    /// New ASes link to those nearby (Waxman)
    Waxman,
    /// As preferential, with links added later (Bu and Towsley)
    Glp,
}

/// How the routers of one AS tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IbgpArg {
    /// Each has a session with each
    Mesh,
    /// Each has a session with two route reflectors in the middle
    Reflectors,
}

/// Whether computing takes virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProcessingArg {
    /// It takes none
    None,
    /// As long as a small network's UPDATEs take on this machine
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
  thalweg lab network --quick                          100 ASes and 20 failures of links, to see that it works
A recorded AS leaves ASN-updates.mrt, ASN-rib.mrt and ASN-router.toml in the folder, with --packets also \
a trace that `thalweg replay` forwards; `thalweg lab bgp --trace` and \
`thalweg mrt` read them.")]
pub(crate) struct LabNetworkArgs {
    /// How many ASes to make [default: 1000; 100 with --quick]
    #[arg(long, value_name = "N", conflicts_with_all = ["caida", "brite"], value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) ases: Option<u32>,
    /// Make a graph that grows in this way [default: one like the Internet; preferential with --degree]
    #[arg(long, value_enum, value_name = "WAY", conflicts_with_all = ["caida", "brite"])]
    pub(crate) grow: Option<Grow>,
    /// Neighbors on average of a graph that grows [default: 4]
    #[arg(long, value_name = "N", conflicts_with_all = ["caida", "brite"])]
    pub(crate) degree: Option<NonZeroUsize>,
    /// Read the graph: CAIDA's AS relationships, serial-1 or serial-2, plain or compressed
    #[arg(long, value_name = "FILE")]
    pub(crate) caida: Option<PathBuf>,
    /// Read the graph: a file of BRITE, with relationships by degree
    #[arg(long, value_name = "FILE", conflicts_with = "caida")]
    pub(crate) brite: Option<PathBuf>,
    /// Read the routers of one AS: a file of the Topology Zoo (GraphML)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["caida", "brite", "ases", "grow", "degree"])]
    pub(crate) zoo: Option<PathBuf>,
    /// What finds the routes
    #[arg(long, value_enum, default_value = "sessions", value_name = "ENGINE")]
    pub(crate) engine: NetworkEngine,
    /// Prefixes of each AS: a number, or `measured` as on the Internet
    #[arg(long, default_value = "1", value_name = "N", value_parser = prefixes, help_heading = "With sessions")]
    pub(crate) prefixes: PrefixPlan,
    /// What routers do with routes
    #[arg(long, default_value = "relationships", value_parser = one_of(POLICIES), value_name = "POLICY", help_heading = "With sessions")]
    pub(crate) policy: Policy,
    /// What happens after the cold start
    #[arg(long, value_parser = one_of(LOADS), value_name = "LOAD", help_heading = "With sessions")]
    pub(crate) load: Option<Load>,
    /// How often
    #[arg(long, default_value = "100", value_name = "N", requires = "load", help_heading = "With sessions")]
    pub(crate) events: NonZeroUsize,
    /// Record what an AS with about N neighbors hears, or AS numbers such as AS7
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = collect, help_heading = "With sessions")]
    pub(crate) collect: Vec<Collect>,
    /// The least time between advertisements of a prefix (MRAI), in seconds
    #[arg(long, default_value = "0", value_name = "S", help_heading = "With sessions")]
    pub(crate) mrai: u32,
    /// Withdrawals do not wait for it
    #[arg(long, requires = "mrai", help_heading = "With sessions")]
    pub(crate) withdrawals_at_once: bool,
    /// A folder with configurations of ASes, ASN-router.toml: they are used instead of the policy's
    #[arg(long, value_name = "DIR", help_heading = "With sessions")]
    pub(crate) configurations: Option<PathBuf>,
    /// How the routers of one AS tell each other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "mesh,reflectors",
        value_name = "WAYS",
        help_heading = "Within one AS"
    )]
    pub(crate) ibgp: Vec<IbgpArg>,
    /// How many of them have a neighbor outside
    #[arg(long, value_name = "N", default_value = "3", help_heading = "Within one AS")]
    pub(crate) exits: NonZeroUsize,
    /// Whether computing takes virtual time
    #[arg(long, value_enum, default_value = "none", value_name = "HOW", help_heading = "With sessions")]
    pub(crate) processing: ProcessingArg,
    /// Computing takes so many times as long as on this machine
    #[arg(long, default_value = "1", value_name = "F", value_parser = scale, requires = "processing", help_heading = "With sessions")]
    pub(crate) processing_scale: f64,
    /// Write a trace of N packets, a table and a configuration for each recorded AS: `thalweg replay` forwards them
    #[arg(long, value_name = "N", requires = "collect", help_heading = "With sessions")]
    pub(crate) packets: Option<NonZeroU64>,
    /// Whose prefix [default: one of each AS]
    #[arg(long, value_name = "AS", help_heading = "With the fixpoint")]
    pub(crate) origin: Option<u32>,
    /// A prefix of VICTIM that ATTACKER announces too
    #[arg(long, value_name = "VICTIM,ATTACKER", value_parser = two_ases, conflicts_with = "origin", help_heading = "With the fixpoint")]
    pub(crate) hijack: Option<(u32, u32)>,
    /// An AS that passes what it has from providers and peers on to all its neighbors
    #[arg(long, value_name = "AS", help_heading = "With the fixpoint")]
    pub(crate) leak: Option<u32>,
    /// Share of ASes that drop routes of a wrong origin (ROV)
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = share, help_heading = "With the fixpoint")]
    pub(crate) rov: f64,
    /// Share of ASes that drop leaked routes (ASPA)
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = share, help_heading = "With the fixpoint")]
    pub(crate) aspa: f64,
    /// Threads [default: the number of cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

fn prefixes(text: &str) -> Result<PrefixPlan, String> {
    match text {
        "measured" => Ok(PrefixPlan::Measured),
        _ => match text.parse() {
            Ok(count @ 1..=10_000) => Ok(PrefixPlan::Each(count)),
            _ => Err("expected a number from 1 to 10000, or `measured`".to_owned()),
        },
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

fn scale(text: &str) -> Result<f64, String> {
    number(text, 0.001..=1e6)
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0 to 1".to_owned())
}

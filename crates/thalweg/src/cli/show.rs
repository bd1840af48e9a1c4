//! Arguments of `thalweg show` and `thalweg bgp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SOCKET_DEFAULT;
use super::show_nat::NatArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg show status
  thalweg show neighbors
  thalweg show route 192.0.2.1
  thalweg show routes --source configured
  thalweg show bgp neighbor transit-1")]
pub(crate) struct ShowArgs {
    /// The router's control socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
    #[command(subcommand)]
    pub(crate) thing: ShowThing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShowThing {
    /// How the router is: what is wrong, what is up and down, NAT, memory
    Status,
    /// Versions of this program and of the router
    Version,
    /// The configuration in force, passwords masked
    Config,
    /// Ports: interface, link, driver, what they received and sent, and how fast
    Ports,
    /// Neighbors on the ports' links (ARP, ND)
    #[command(visible_alias = "arp")]
    Neighbors,
    /// The forwarding table: the route of one destination, or all routes, a line for each
    #[command(visible_aliases = ["routes", "route"])]
    Fib {
        /// A packet's destination, or a prefix: its route and where that leads
        #[arg(conflicts_with_all = ["inside", "family", "source", "limit"])]
        destination: Option<String>,
        /// Only prefixes inside this one
        #[arg(long, value_name = "PREFIX")]
        inside: Option<String>,
        /// Only one family
        #[arg(long, value_name = "FAMILY", value_parser = ["ipv4", "ipv6"])]
        family: Option<String>,
        /// Only routes from here
        #[arg(long, value_name = "SOURCE", value_parser = ["connected", "configured", "kernel", "bgp"])]
        source: Option<String>,
        /// No more than this many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Where BGP's best routes go (the forwarding table or the kernel), and how well that works
    Forwarding,
    /// BGP: neighbors, routes, table sizes
    Bgp(ShowBgpArgs),
    /// Packets received, sent, for the router itself, and dropped by reason; what each worker did
    Counters,
    /// Rules of access lists, and how many packets met each
    Acl,
    /// Policers of classes, and how many packets were green, yellow and red
    Policers,
    /// Queues of ports by class: sent, dropped, marked, how long packets waited
    Queues,
    /// The flow meter's counters: what was seen, reported, is in the cache, and belongs to no flow
    FlowCache,
    /// NAT sessions, a line for each; or blocks of ports, or counters
    Nat(NatArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg show bgp neighbors
  thalweg show bgp route 192.0.2.1 --why
  thalweg show bgp routes --neighbor transit-1 --origin-as 64496 --format json")]
pub(crate) struct ShowBgpArgs {
    #[command(subcommand)]
    pub(crate) thing: ShowBgp,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShowBgp {
    /// Neighbors, a line for each
    Neighbors,
    /// One neighbor in full: state, timers, capabilities, counters, last error
    Neighbor {
        /// Name or address
        neighbor: String,
    },
    /// Routes, a line for each
    Routes(RouteFilterArgs),
    /// Routes to one destination, in full
    Route {
        /// An address (the most specific prefix that covers it) or a prefix
        destination: String,
        /// Only this very prefix
        #[arg(long)]
        exact: bool,
        /// Say of each route why it is or is not the best
        #[arg(long)]
        why: bool,
    },
    /// How many prefixes, routes and attribute sets there are
    Rib,
    /// Groups of neighbors that get the same UPDATEs
    UpdateGroups,
    /// What memory is used for
    Memory,
    /// Time spent by function, of a router started with --profile-functions
    Functions,
}

#[derive(Debug, Args)]
pub(crate) struct RouteFilterArgs {
    /// Only prefixes inside this one
    #[arg(long, value_name = "PREFIX")]
    pub(crate) inside: Option<String>,
    /// Only routes of this neighbor, by name or address
    #[arg(long, value_name = "NEIGHBOR")]
    pub(crate) neighbor: Option<String>,
    /// Only routes whose AS path has this AS
    #[arg(long, value_name = "AS")]
    pub(crate) through_as: Option<u32>,
    /// Only routes that this AS announced first
    #[arg(long, value_name = "AS")]
    pub(crate) origin_as: Option<u32>,
    /// Only routes with this community: 64496:1 or 64496:1:2
    #[arg(long, value_name = "COMMUNITY")]
    pub(crate) community: Option<String>,
    /// Only one family
    #[arg(long, value_name = "FAMILY", value_parser = ["ipv4", "ipv6"])]
    pub(crate) family: Option<String>,
    /// Only best routes
    #[arg(long)]
    pub(crate) best: bool,
    /// No more than this many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg bgp refresh transit-1
  thalweg bgp shutdown transit-1 \"maintenance until 14:00 UTC\"")]
pub(crate) struct BgpArgs {
    /// The router's control socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
    #[command(subcommand)]
    pub(crate) command: BgpCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BgpCommand {
    /// Ask a neighbor for its routes again
    Refresh {
        /// Name or address
        neighbor: String,
    },
    /// End a session and begin anew
    Reset(SessionEndArgs),
    /// End a session until it is started again
    Shutdown(SessionEndArgs),
    /// Start a session that was shut down
    Start {
        /// Name or address
        neighbor: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SessionEndArgs {
    /// Name or address
    pub(crate) neighbor: String,
    /// A text for people at the other end
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) text: String,
}

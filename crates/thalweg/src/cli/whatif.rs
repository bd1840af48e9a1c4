//! Arguments of `thalweg whatif`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use thalweg_bgp::peer::Role;
use thalweg_config::ROLES;
use thalweg_node::whatif::{Condition, Failing};

use super::keep::seconds;
use crate::client::SocketArgs;

#[derive(Debug, Args)]
#[command(override_usage = "\
thalweg whatif [OPTIONS] <OLD.toml> [NEW.toml] --table <FILE>...
       thalweg whatif [OPTIONS] [NEW.toml] --live [--socket <PATH>]")]
#[command(after_help = "\
Examples:
  thalweg whatif router.toml new.toml --table rib.mrt
  thalweg whatif router.toml new.toml --table rib.mrt.bz2 --map 192.0.2.7=transit-1 --why
  thalweg whatif router.toml --table rib.mrt --fail each --flows /var/lib/thalweg/flows --last 1d
  thalweg whatif router.toml new.toml --table rib.mrt --fail-on 'lost>0,leak>0'
  thalweg whatif new.toml --live --why
Conditions of --fail-on compare counters of the report:
  prefixes              lost, new, moved, attributes
  announced routes      more, less, resent, leak
  neighbors             added, removed, down
  traffic               bytes-moved, bytes-lost: a number, or a share such as 5%
  the worst failure     fail-lost, fail-moved, fail-leak, fail-bytes-lost
The table must hold routes as neighbors sent them, as a route collector's does. thalweg's own dumps hold them after import.
With --live, a running router asks its neighbors to send their routes again (ROUTE-REFRESH) and goes on as before; nothing
else is sent, and nothing is changed. The configuration in force is the old one. Ctrl-C ends it at any time.
Exit codes: 0 success, 1 a condition holds, the table is damaged or a neighbor did not send all its routes, 2 wrong usage or
configuration.")]
pub(crate) struct WhatIfArgs {
    /// The present configuration, except with --live, and the new one [default: the present one, to see what failures do]
    #[arg(value_name = "CONFIG.toml", num_args = 0..=2, required_unless_present = "live")]
    pub(crate) configs: Vec<PathBuf>,
    /// Received routes: MRT tables, plain or .gz, .bz2, .zst
    #[arg(long, required_unless_present = "live", num_args = 1.., value_name = "FILE")]
    pub(crate) table: Vec<PathBuf>,
    /// Take the configuration and the received routes from a running router
    #[arg(long, conflicts_with = "table")]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) router: SocketArgs,
    /// Take the routes of the table's peer ADDRESS as received from NEIGHBOR, by name or address [default: the neighbor
    /// with that address]
    #[arg(long, value_name = "ADDRESS=NEIGHBOR", value_parser = mapping)]
    pub(crate) map: Vec<(IpAddr, String)>,
    /// Role of a neighbor, to find leaks: provider, customer, peer, route-server, route-server-client [default: its
    /// `role`]
    #[arg(long, value_name = "NEIGHBOR=ROLE", value_parser = role)]
    pub(crate) role: Vec<(String, Role)>,
    /// Let this neighbor fail; `each` lets every neighbor fail in turn
    #[arg(long, value_name = "NEIGHBOR|each")]
    pub(crate) fail: Option<String>,
    /// Report the traffic that would move, from the flow records in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) flows: Option<PathBuf>,
    /// Only traffic of the last 1h, 7d and so on [default: all records]
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "flows")]
    pub(crate) last: Option<u64>,
    /// Show examples: prefixes with their paths before and after, and why paths are missing
    #[arg(long)]
    pub(crate) why: bool,
    /// Exit with code 1 if one of these conditions holds, such as `lost>0`
    #[arg(long, value_name = "CONDITION,..", value_parser = conditions)]
    pub(crate) fail_on: Option<Conditions>,
}

/// Conditions of `--fail-on`.
#[derive(Clone, Debug)]
pub(crate) struct Conditions(pub(crate) Vec<Condition>);

impl WhatIfArgs {
    pub(crate) fn failing(&self) -> Failing {
        match self.fail.as_deref() {
            None => Failing::None,
            Some("each") => Failing::Each,
            Some(name) => Failing::One(name.to_owned()),
        }
    }
}

fn mapping(text: &str) -> Result<(IpAddr, String), String> {
    let (address, name) = text.split_once('=').ok_or("expected ADDRESS=NEIGHBOR")?;
    let address = address.parse().map_err(|_| format!("{address:?} is no address"))?;
    Ok((address, name.to_owned()))
}

fn role(text: &str) -> Result<(String, Role), String> {
    let (name, role) = text.rsplit_once('=').ok_or("expected NEIGHBOR=ROLE")?;
    let found = ROLES.iter().find(|(known, _)| *known == role).map(|(_, role)| *role);
    let role =
        found.ok_or_else(|| format!("expected a role: {}", ROLES.map(|(known, _)| known).join(", ")))?;
    Ok((name.to_owned(), role))
}

fn conditions(text: &str) -> Result<Conditions, String> {
    Condition::parse_all(text).map(Conditions).map_err(|error| error.to_string())
}

//! Arguments of `thalweg whatif`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use thalweg_bgp::peer::Role;
use thalweg_config::ROLES;
use thalweg_node::whatif::{Condition, Failing};

use super::keep::seconds;
use crate::client::SOCKET_DEFAULT;

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
Conditions compare what the report counts: lost, new, moved, attributes (prefixes); more, less, resent, leak (routes that
neighbors are sent); added, removed, down (neighbors); bytes-moved, bytes-lost (a number, or a share such as 5%);
fail-lost, fail-moved, fail-leak, fail-bytes-lost (of the worst failure).
The table is one of routes as neighbors sent them, such as a route collector's: thalweg's own dumps have them after import.
With --live a router that runs asks its neighbors for their routes again (route refresh) and goes on as before; nothing else
is sent, and nothing is changed. Its configuration in force is the old one. Ctrl-C ends it at any time.
Exit codes: 0 done, 1 a condition of --fail-on holds, the table is damaged or a neighbor did not send all of its routes, 2 bad
usage or configuration.")]
pub(crate) struct WhatIfArgs {
    /// The configuration as it is, unless --live says where it comes from, and the one as it would be [default: the same, to see
    /// what failures do]
    #[arg(value_name = "CONFIG.toml", num_args = 0..=2, required_unless_present = "live")]
    pub(crate) configs: Vec<PathBuf>,
    /// Routes that neighbors sent: MRT tables, plain or .gz, .bz2, .zst
    #[arg(long, required_unless_present = "live", num_args = 1.., value_name = "FILE")]
    pub(crate) table: Vec<PathBuf>,
    /// Take routes and configuration from a router that runs
    #[arg(long, conflicts_with = "table")]
    pub(crate) live: bool,
    /// The router's control socket
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT, requires = "live")]
    pub(crate) socket: PathBuf,
    /// Routes of the table's peer ADDRESS are those of NEIGHBOR, by name or address [default: the neighbor with the address]
    #[arg(long, value_name = "ADDRESS=NEIGHBOR", value_parser = mapping)]
    pub(crate) map: Vec<(IpAddr, String)>,
    /// What a neighbor is to us, for leaks: provider, customer, peer, route-server, route-server-client [default: its `role`]
    #[arg(long, value_name = "NEIGHBOR=ROLE", value_parser = role)]
    pub(crate) role: Vec<(String, Role)>,
    /// What the failure of this neighbor would do, or of each one
    #[arg(long, value_name = "NEIGHBOR|each")]
    pub(crate) fail: Option<String>,
    /// Say which traffic would move: the folder of a dataset of flow records
    #[arg(long, value_name = "DIR")]
    pub(crate) flows: Option<PathBuf>,
    /// Traffic of the time until now: 1h, 7d [default: all records]
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "flows")]
    pub(crate) last: Option<u64>,
    /// Show some prefixes with their paths before and after, and why paths are missing
    #[arg(long)]
    pub(crate) why: bool,
    /// End with exit code 1 if one of these conditions holds
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

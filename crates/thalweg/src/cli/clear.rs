//! Arguments of `thalweg clear`.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::SOCKET_DEFAULT;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg clear nat --inside 192.168.1.10
  thalweg clear nat --protocol tcp --inside 192.168.1.10:40000 --remote 198.51.100.7:443
  thalweg clear nat --all")]
pub(crate) struct ClearArgs {
    /// The router's control socket
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
    #[command(subcommand)]
    pub(crate) thing: ClearThing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClearThing {
    /// End NAT sessions: their public ports are free at once
    ///
    /// What is given is asked of a session together. The next packet of its inside host makes another session. Port forwards
    /// stay. Says how many sessions ended; none is no error.
    Nat(ClearNatArgs),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct ClearNatArgs {
    /// Sessions of this inside host (a subscriber), or of one port (ICMP: identifier) of it
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) inside: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions on this public address, or on one port (ICMP: identifier) of it
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) outside: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions whose first packet went here (not kept with address-dependent filtering)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) remote: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions of one protocol: tcp, udp, icmp, gre, esp, ah, sctp, or its number
    #[arg(long, group = "which")]
    pub(crate) protocol: Option<String>,
    /// All sessions
    #[arg(long, group = "which", conflicts_with_all = ["inside", "outside", "remote", "protocol"])]
    pub(crate) all: bool,
}

/// `198.51.100.1` or `198.51.100.1:4000`.
pub(crate) fn endpoint(text: &str) -> Result<(Ipv4Addr, Option<u16>), String> {
    let expected = || format!("`{text}`: expected an IPv4 address, or address:port");
    match text.split_once(':') {
        None => Ok((text.parse().map_err(|_| expected())?, None)),
        Some((address, port)) => {
            Ok((address.parse().map_err(|_| expected())?, Some(port.parse().map_err(|_| expected())?)))
        }
    }
}

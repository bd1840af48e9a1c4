//! Arguments of `thalweg clear`.

use std::net::Ipv4Addr;

use clap::{ArgGroup, Args, Subcommand};

use crate::client::SocketArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg clear nat --inside 192.168.1.10
  thalweg clear nat --protocol tcp --inside 192.168.1.10:40000 --remote 198.51.100.7:443
  thalweg clear nat --all")]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub(crate) router: SocketArgs,
    #[command(subcommand)]
    pub(crate) command: ClearCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClearCommand {
    /// Clear NAT sessions; their public ports are free at once
    ///
    /// Clears the sessions that match all given options, and prints how many they were (0 is not an error). The next
    /// packet from the inside host opens a new session. Port forwards stay.
    Nat(ClearNatArgs),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct ClearNatArgs {
    /// Sessions of this inside host, or of one port (ICMP: identifier)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) inside: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions on this public address, or on one port (ICMP: identifier)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) outside: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions whose first packet went to this address (not known with address-dependent filtering)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) remote: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions of this protocol: tcp, udp, icmp, gre, esp, ah, sctp, or a number
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

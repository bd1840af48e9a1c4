//! Arguments of `thalweg clear`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::{ArgGroup, Args, Subcommand};
use thalweg_node::control::FirewallFilter;

use crate::client::SocketArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg clear nat --inside 192.168.1.10
  thalweg clear nat --protocol tcp --inside 192.168.1.10:40000 --remote 198.51.100.7:443
  thalweg clear nat --all
  thalweg clear firewall --from guests --to internet
  thalweg clear firewall --source [2001:db8:1::7]:40000 --protocol udp")]
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
    /// Clear connections of the firewall
    ///
    /// Clears the connections that match all given options, and prints how many they were (0 is not an error). The
    /// rules are asked about their next packets as about new ones. Sessions of NAT stay.
    Firewall(ClearFirewallArgs),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true).args(FirewallFilterArgs::NAMES))]
pub(crate) struct ClearFirewallArgs {
    #[command(flatten)]
    pub(crate) which: FirewallFilterArgs,
    /// All connections
    #[arg(long, group = "which", conflicts_with_all = FirewallFilterArgs::NAMES)]
    pub(crate) all: bool,
}

/// Which connections of the firewall.
#[derive(Clone, Debug, Args)]
pub(crate) struct FirewallFilterArgs {
    /// Only connections that this host began, or from one port (ICMP: identifier)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint_of_either_family)]
    source: Option<(IpAddr, Option<u16>)>,
    /// Only connections to this host, or to one port
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint_of_either_family)]
    destination: Option<(IpAddr, Option<u16>)>,
    /// Only connections of IPv4 that begin or end in this VRF
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// Only connections from this zone
    #[arg(long, value_name = "ZONE")]
    from: Option<String>,
    /// Only connections to this zone
    #[arg(long, value_name = "ZONE")]
    to: Option<String>,
    /// Only connections of this family: ipv4 or ipv6
    #[arg(long)]
    family: Option<String>,
    /// Only connections of this protocol: tcp, udp, icmp, icmpv6, gre, esp, ah, sctp, or a number
    #[arg(long)]
    protocol: Option<String>,
}

impl FirewallFilterArgs {
    pub(crate) const NAMES: [&str; 7] = ["source", "destination", "vrf", "from", "to", "family", "protocol"];
}

impl From<FirewallFilterArgs> for FirewallFilter {
    fn from(args: FirewallFilterArgs) -> Self {
        let FirewallFilterArgs { source, destination, vrf, from, to, family, protocol } = args;
        Self {
            source: source.map(|(address, _)| address),
            source_port: source.and_then(|(_, port)| port),
            destination: destination.map(|(address, _)| address),
            destination_port: destination.and_then(|(_, port)| port),
            vrf,
            from,
            to,
            family,
            protocol,
        }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct ClearNatArgs {
    /// Sessions of this inside host, or of one port (ICMP: identifier)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint_of_either_family, group = "which")]
    pub(crate) inside: Option<(IpAddr, Option<u16>)>,
    /// Sessions of inside hosts in this VRF
    #[arg(long, value_name = "NAME", group = "which")]
    pub(crate) vrf: Option<String>,
    /// Sessions on this public address, or on one port (ICMP: identifier)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) outside: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions whose first packet went to this address (known with endpoint-independent filtering alone)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint, group = "which")]
    pub(crate) remote: Option<(Ipv4Addr, Option<u16>)>,
    /// Sessions of this protocol: tcp, udp, icmp, gre, esp, ah, sctp, or a number
    #[arg(long, group = "which")]
    pub(crate) protocol: Option<String>,
    /// All sessions
    #[arg(long, group = "which", conflicts_with_all = ["inside", "vrf", "outside", "remote", "protocol"])]
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

/// `198.51.100.1`, `198.51.100.1:4000`, `2001:db8::1` or `[2001:db8::1]:4000`.
fn endpoint_of_either_family(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let alone = text.parse().ok().map(|address| (address, None));
    let with_port = || text.parse::<SocketAddr>().ok().map(|end| (end.ip(), Some(end.port())));
    alone
        .or_else(with_port)
        .ok_or_else(|| format!("`{text}`: expected an address, address:port or [address]:port"))
}

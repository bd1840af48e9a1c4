//! Arguments of `thalweg show nat`.

use std::net::Ipv4Addr;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct NatArgs {
    /// Only sessions of this inside host
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) inside: Option<Ipv4Addr>,
    /// Only sessions on this public address, or on one port (ICMP: identifier) of it
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint)]
    pub(crate) outside: Option<(Ipv4Addr, Option<u16>)>,
    /// Only one protocol: tcp, udp, icmp, gre, esp, ah, sctp, or its number
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// No more than this many lines
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Blocks of ports that subscribers have, instead of sessions
    #[arg(long, conflicts_with = "protocol")]
    pub(crate) blocks: bool,
    /// What NAT has done and what is in use, instead of sessions
    #[arg(long, conflicts_with_all = ["inside", "outside", "protocol", "limit", "blocks"])]
    pub(crate) counters: bool,
}

/// `198.51.100.1` or `198.51.100.1:4000`.
pub(super) fn endpoint(text: &str) -> Result<(Ipv4Addr, Option<u16>), String> {
    let expected = || format!("`{text}`: expected an IPv4 address, or address:port");
    match text.split_once(':') {
        None => Ok((text.parse().map_err(|_| expected())?, None)),
        Some((address, port)) => {
            Ok((address.parse().map_err(|_| expected())?, Some(port.parse().map_err(|_| expected())?)))
        }
    }
}

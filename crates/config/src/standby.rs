//! `[standby]`: the other router of the virtual routers, which gets NAT's sessions and the firewall's states.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, table};
use crate::reader::Reader;
use crate::section::Section;
use crate::types::StandbyConfig;
use crate::values;

const CHANGED: Differs = Differs::Router(|before, after| before.standby != after.standby);
const ADDRESS: &str = "an address with a port";

pub(crate) static STANDBY: Key<Sub> = Key::section("standby", &TABLE).restart(CHANGED).help(
    "live: keeps the other router of [[vrrp]] up to date about sessions and states: see [failover.md](failover.md#a-standby-with-state)",
);
table! {
    static TABLE: "standby", "[standby]";

    static LISTEN: Key<SocketAddr> = Key::text("listen", ADDRESS, end)
        .required("\"10.255.0.1:29190\"")
        .restart(CHANGED)
        .help("the kernel's own address and UDP port for this, best on a link between the two routers alone");
    static PEER: Key<SocketAddr> = Key::text("peer", ADDRESS, end)
        .required("\"10.255.0.2:29190\"")
        .restart(CHANGED)
        .help("the same of the other router");
    static KEY: Key<PathBuf> = Key::by("key", "a path", Reader::path)
        .required("\"standby.key\"")
        .restart(CHANGED)
        .help("the file whose first line is the secret of both routers, 32 to 256 characters; what is not authentic is dropped");
}

/// The address and port of one end.
fn end(text: &str) -> Result<SocketAddr, &'static str> {
    let end: SocketAddr = text.parse().map_err(|_| ADDRESS)?;
    let is_own = |address: IpAddr| values::is_unicast(address) || address.is_loopback();
    (is_own(end.ip()) && end.port() != 0).then_some(end).ok_or(ADDRESS)
}

/// What the section needs of the others.
pub(crate) struct Others {
    pub(crate) has_virtual_routers: bool,
    pub(crate) has_state: bool,
    pub(crate) has_blocks: bool,
}

pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, others: &Others) -> Option<StandbyConfig> {
    let mut section = root.section(reader, &STANDBY)?;
    let (listen, peer) = (section.read(reader, &LISTEN), section.read(reader, &PEER));
    let key = section.get(reader, &KEY);
    let span = section.finish(reader).unwrap_or_default();
    let needs = [
        (!others.has_virtual_routers, "no virtual router says which of the two routers forwards", "[[vrrp]]"),
        (!others.has_state, "there is no state that the other router could need", "[nat] or [firewall]"),
        (
            others.has_blocks,
            "sessions in blocks of subscribers cannot be copied",
            "[nat] without `subscribers`",
        ),
    ];
    for (_, message, expected) in needs.into_iter().filter(|(lacks, ..)| *lacks) {
        reader.error(ErrorKind::Conflict, &span, message, expected);
    }
    let (listen, peer) = (listen?.value, peer?);
    if listen == peer.value || listen.is_ipv4() != peer.value.is_ipv4() {
        let message = format!("{} cannot be the other router of {listen}", peer.value);
        reader.error(ErrorKind::Conflict, &peer.span, message, "another address of the same family");
    }
    Some(StandbyConfig { listen, peer: peer.value, key: key? })
}

//! `thalweg show nat`: sessions, blocks of ports and counters of a running router's NAT.

use std::net::{IpAddr, Ipv4Addr};

use clap::Args;
use thalweg_config::MAIN_VRF;
use thalweg_node::control::{
    NatBlockView, NatCountersView, NatSessionFilter, NatSessionView, PacketRequest, Request,
};
use thalweg_text::units::{age, count};
use thalweg_text::{Align, Table};

use super::{Print, Question, Show};
use crate::cli::endpoint;
use crate::client::{parse, parse_all};
use crate::tables::{table, width};

pub(super) const SHOW: &[Show] =
    &[Show::reads::<NatArgs>("nat", "NAT sessions, port blocks, pools or counters")];

#[derive(Debug, Args)]
struct NatArgs {
    /// Only sessions of this inside host
    #[arg(long, value_name = "ADDRESS")]
    inside: Option<IpAddr>,
    /// Only sessions of inside hosts in this VRF
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// Only sessions on this public address, or on one port (ICMP: identifier)
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = endpoint)]
    outside: Option<(Ipv4Addr, Option<u16>)>,
    /// Only sessions of this protocol: tcp, udp, icmp, gre, esp, ah, sctp, or a number
    #[arg(long)]
    protocol: Option<String>,
    /// Print at most this many lines
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show the port blocks of subscribers instead of sessions
    #[arg(long, conflicts_with = "protocol")]
    blocks: bool,
    /// Show NAT counters instead of sessions
    #[arg(long, conflicts_with_all = ["inside", "vrf", "outside", "protocol", "limit", "blocks", "pools"])]
    counters: bool,
    /// Show the pools of public addresses instead of sessions
    #[arg(long, conflicts_with_all = ["inside", "vrf", "outside", "protocol", "limit", "blocks"])]
    pools: bool,
}

impl From<NatArgs> for Question {
    fn from(args: NatArgs) -> Self {
        let filter = NatSessionFilter {
            inside: args.inside,
            vrf: args.vrf,
            public: args.outside.map(|(address, _)| address),
            port: args.outside.and_then(|(_, port)| port),
            protocol: args.protocol,
            limit: args.limit,
        };
        let (request, print) = match (args.counters | args.pools, args.blocks) {
            (true, _) => (
                PacketRequest::NatCounters,
                if args.pools {
                    Print::Page(|items| Ok(parse_all(items)?.iter().map(pools).collect()))
                } else {
                    Print::Page(|items| Ok(parse_all(items)?.iter().map(counters).collect()))
                },
            ),
            (false, true) => {
                (PacketRequest::NatBlocks(filter), Print::Page(|items| Ok(blocks(&parse_all(items)?))))
            }
            (false, false) => (
                PacketRequest::NatSessions(filter),
                Print::Rows(session_columns, |item| Ok(session_row(&parse(item)?))),
            ),
        };
        (Request::Packets(request), print)
    }
}

/// The columns of sessions.
fn session_columns() -> Table {
    let columns = [
        ("Protocol", Align::Left),
        ("Inside", Align::Left),
        ("Public", Align::Left),
        ("First remote", Align::Left),
        ("State", Align::Left),
        ("Idle", Align::Right),
        ("Left", Align::Right),
        ("Packets out", Align::Right),
        ("Packets in", Align::Right),
    ];
    Table::new("", columns).optional(&["Packets in", "Packets out", "Idle", "Left", "First remote"])
}

fn session_row(session: &NatSessionView) -> Vec<String> {
    let none = || "-".to_owned();
    vec![
        session.protocol.clone(),
        in_vrf(session.inside.to_string(), Some(&session.vrf)),
        session.public.to_string(),
        session.remote.map_or_else(none, |remote| remote.to_string()),
        session.state.clone(),
        age(session.idle_s.into()),
        session.remaining_s.map_or_else(none, |left_s| age(left_s.into())),
        count(session.packets_out.into()),
        count(session.packets_in.into()),
    ]
}

/// A host, with its VRF if that is known and not the main table.
pub(super) fn in_vrf(host: String, vrf: Option<&str>) -> String {
    match vrf {
        Some(vrf) if !vrf.is_empty() && vrf != MAIN_VRF => format!("{host} in {vrf}"),
        _ => host,
    }
}

fn blocks(blocks: &[NatBlockView]) -> String {
    if blocks.is_empty() {
        return "no subscriber has a block of ports ([nat.subscribers] gives them some)\n".to_owned();
    }
    Table::of("", blocks)
        .words("Inside", |block| in_vrf(block.inside.to_string(), Some(&block.vrf)))
        .words("Public", |block| block.public.to_string())
        .words("Ports", |block| format!("{}-{}", block.first, block.last))
        .number("TCP", |block| block.tcp.to_string())
        .number("UDP", |block| block.udp.to_string())
        .number("ICMP", |block| block.icmp.to_string())
        .table()
        .render(width())
}

fn pools(view: &NatCountersView) -> String {
    Table::of("", &view.pools)
        .words("Pool", |pool| pool.name.clone())
        .number("Addresses", |pool| count(pool.addresses))
        .number("Ports each", |pool| count(pool.ports))
        .number("TCP", |pool| count(pool.tcp))
        .number("UDP", |pool| count(pool.udp))
        .number("ICMP", |pool| count(pool.icmp))
        .number("Blocks", |pool| format!("{} of {}", count(pool.blocks_used), count(pool.blocks)))
        .number("Refused", |pool| count(pool.refused))
        .table()
        .render(width())
}

fn counters(view: &NatCountersView) -> String {
    let mut rows = vec![vec!["sessions at most".to_owned(), count(view.sessions_max)]];
    rows.extend(view.counters.iter().map(|(name, n)| vec![name.replace('_', " "), count(*n)]));
    table(&["NAT", "Now"], &[1], rows)
}

//! `thalweg show nat`: sessions, blocks of ports and counters of a running router's NAT.

use std::net::Ipv4Addr;

use thalweg_node::control::{
    NatBlockView, NatClear, NatCleared, NatCountersView, NatSessionFilter, NatSessionView, Request,
};
use thalweg_text::units::{age, count};
use thalweg_text::{Align, Table};

use crate::cli::{ClearNatArgs, NatArgs};
use crate::tables::table;

pub(super) fn request(args: &NatArgs) -> Request {
    let filter = NatSessionFilter {
        inside: args.inside,
        public: args.outside.map(|(address, _)| address),
        port: args.outside.and_then(|(_, port)| port),
        protocol: args.protocol.clone(),
        limit: args.limit,
    };
    match (args.counters, args.blocks) {
        (true, _) => Request::NatCounters,
        (false, true) => Request::NatBlocks(filter),
        (false, false) => Request::NatSessions(filter),
    }
}

pub(super) fn clear_request(args: &ClearNatArgs) -> Request {
    let split = |endpoint: Option<(Ipv4Addr, Option<u16>)>| {
        (endpoint.map(|(address, _)| address), endpoint.and_then(|(_, port)| port))
    };
    let (inside, inside_port) = split(args.inside);
    let (public, port) = split(args.outside);
    let (remote, remote_port) = split(args.remote);
    let protocol = args.protocol.clone();
    Request::NatClear(NatClear { inside, inside_port, public, port, remote, remote_port, protocol })
}

pub(super) fn cleared(cleared: NatCleared) -> String {
    match cleared.ended {
        1 => "1 NAT session ended\n".to_owned(),
        n => format!("{} NAT sessions ended\n", count(n)),
    }
}

/// Columns of sessions, a line for each.
pub(super) fn session_columns() -> Table {
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

pub(super) fn session_row(session: &NatSessionView) -> Vec<String> {
    let none = || "-".to_owned();
    vec![
        session.protocol.clone(),
        session.inside.to_string(),
        session.public.to_string(),
        session.remote.map_or_else(none, |remote| remote.to_string()),
        session.state.clone(),
        age(session.idle_s.into()),
        session.remaining_s.map_or_else(none, |left_s| age(left_s.into())),
        count(session.packets_out.into()),
        count(session.packets_in.into()),
    ]
}

pub(super) fn blocks(blocks: &[NatBlockView]) -> String {
    if blocks.is_empty() {
        return "no subscriber has a block of ports ([nat.subscribers] gives them some)\n".to_owned();
    }
    let rows = blocks.iter().map(|block| {
        vec![
            block.inside.to_string(),
            block.public.to_string(),
            format!("{}-{}", block.first, block.last),
            block.tcp.to_string(),
            block.udp.to_string(),
            block.icmp.to_string(),
        ]
    });
    table(&["Inside", "Public", "Ports", "TCP", "UDP", "ICMP"], &[3, 4, 5], rows)
}

pub(super) fn counters(view: &NatCountersView) -> String {
    let mut rows = vec![vec!["sessions at most".to_owned(), count(view.sessions_max)]];
    rows.extend(view.counters.iter().map(|(name, n)| vec![name.replace('_', " "), count(*n)]));
    table(&["NAT", "Now"], &[1], rows)
}

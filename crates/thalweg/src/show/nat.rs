//! `thalweg show nat`: sessions, blocks of ports and counters of a running router's NAT.

use std::net::Ipv4Addr;

use thalweg_node::control::{
    NatBlockView, NatClear, NatCleared, NatCountersView, NatSessionFilter, NatSessionView, Request,
};

use crate::cli::{ClearNatArgs, NatArgs};
use crate::tables::{count, table};

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

pub(super) const SESSION_COLUMNS: &str = "prot inside                public                first remote          state         idle   left        out         in";

pub(super) fn session_line(session: &NatSessionView) -> String {
    let left = session.remaining_s.map_or_else(|| "-".to_owned(), |left_s| format!("{left_s} s"));
    let remote = session.remote.map_or_else(|| "-".to_owned(), |remote| remote.to_string());
    format!(
        "{:<4} {:<21} {:<21} {:<21} {:<12} {:>5} {:>6} {:>10} {:>10}\n",
        session.protocol,
        session.inside.to_string(),
        session.public.to_string(),
        remote,
        session.state,
        format!("{} s", session.idle_s),
        left,
        session.packets_out,
        session.packets_in,
    )
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

//! What a router on live interfaces tells of its NAT: slices of the session table, as long as whoever asks takes them.

use std::io;

use serde_json::Value;
use thalweg_dataplane::nat::{BlockInfo, Cursor, NatProtocol, NatStage, SessionInfo};
use thalweg_node::control::{NatBlockView, NatCountersView, NatSessionFilter, NatSessionView};

/// What is said where nothing is translated.
pub(super) const NO_NAT: &str = "this router translates nothing: its configuration has no [nat]";

pub(super) fn counters(nat: &NatStage, sessions_max: u64) -> NatCountersView {
    let counters = nat.counters().rows().map(|(name, value)| (name.to_owned(), value)).collect();
    NatCountersView { sessions_max, counters }
}

pub(super) fn sessions(
    nat: &NatStage,
    now_ns: u64,
    filter: &NatSessionFilter,
    item: &mut dyn FnMut(Value) -> io::Result<()>,
) -> io::Result<Result<(), String>> {
    let protocol = match filter.protocol.as_deref().map(protocol_named).transpose() {
        Ok(protocol) => protocol,
        Err(unknown) => return Ok(Err(unknown)),
    };
    let keep = |session: &SessionInfo| {
        filter.inside.is_none_or(|address| session.inside.ip() == &address)
            && filter.public.is_none_or(|address| session.public.ip() == &address)
            && filter.port.is_none_or(|port| session.public.port() == port)
            && protocol.is_none_or(|protocol| session.protocol == protocol)
    };
    in_slices(
        filter.limit,
        |from, into| nat.sessions(from, now_ns, keep, into),
        |session| {
            let view = serde_json::to_value(session_view(&session));
            item(view.map_err(io::Error::other)?)
        },
    )
}

pub(super) fn blocks(
    nat: &NatStage,
    filter: &NatSessionFilter,
    item: &mut dyn FnMut(Value) -> io::Result<()>,
) -> io::Result<Result<(), String>> {
    let keep = |block: &BlockInfo| {
        filter.inside.is_none_or(|address| block.inside == address)
            && filter.public.is_none_or(|address| block.public == address)
            && filter.port.is_none_or(|port| block.ports.contains(&port))
    };
    in_slices(
        filter.limit,
        |from, into| nat.blocks(from, keep, into),
        |block| {
            let view = serde_json::to_value(block_view(&block));
            item(view.map_err(io::Error::other)?)
        },
    )
}

/// Takes slice after slice and hands out what is in them, up to a limit.
fn in_slices<T>(
    limit: Option<usize>,
    slice: impl Fn(Cursor, &mut Vec<T>) -> Option<Cursor>,
    mut item: impl FnMut(T) -> io::Result<()>,
) -> io::Result<Result<(), String>> {
    let mut left = limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next.filter(|_| left > 0) {
        next = slice(from, &mut found);
        found.truncate(left);
        left -= found.len();
        found.drain(..).try_for_each(&mut item)?;
    }
    Ok(Ok(()))
}

fn protocol_named(name: &str) -> Result<NatProtocol, String> {
    NatProtocol::ALL
        .into_iter()
        .find(|protocol| protocol.name() == name)
        .ok_or_else(|| format!("`{name}` is not translated: expected tcp, udp or icmp"))
}

fn session_view(session: &SessionInfo) -> NatSessionView {
    NatSessionView {
        protocol: session.protocol.name().to_owned(),
        inside: session.inside,
        public: session.public,
        remote: session.remote,
        state: session.state.name().to_owned(),
        idle_s: session.idle_s,
        remaining_s: session.remaining_s,
        packets_out: session.packets_out,
        packets_in: session.packets_in,
    }
}

fn block_view(block: &BlockInfo) -> NatBlockView {
    let [tcp, udp, icmp] = block.sessions;
    NatBlockView {
        inside: block.inside,
        public: block.public,
        first: *block.ports.start(),
        last: *block.ports.end(),
        tcp,
        udp,
        icmp,
    }
}

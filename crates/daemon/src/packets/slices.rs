//! What lists of sessions and of connections share: slices for as long as the client reads, and names of protocols.

use std::io;

use thalweg_dataplane::nat::NatProtocol;
use thalweg_node::control::{Answer, AnswerError};
use thalweg_wire::ip_protocol;

/// Emits items slice by slice, up to a limit.
pub(super) fn in_slices<C: Default, T>(
    limit: Option<usize>,
    slice: impl Fn(C, &mut Vec<T>) -> Option<C>,
    mut item: impl FnMut(T) -> io::Result<()>,
) -> Answer {
    let mut left = limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let mut next = Some(C::default());
    while let Some(from) = next.filter(|_| left > 0) {
        next = slice(from, &mut found);
        found.truncate(left);
        left -= found.len();
        found.drain(..).try_for_each(&mut item)?;
    }
    Ok(Ok(()))
}

/// Names of protocols that [`NatProtocol`] lacks.
const OTHER_NAMES: [(u8, &str); 5] =
    [(47, "gre"), (50, "esp"), (51, "ah"), (ip_protocol::ICMPV6, "icmpv6"), (132, "sctp")];

fn names() -> impl Iterator<Item = (u8, &'static str)> {
    let with_ports = NatProtocol::ALL.iter().map(|protocol| (protocol.number(), protocol.name()));
    with_ports.chain(OTHER_NAMES)
}

pub(super) fn protocol_named(name: &str) -> Result<u8, AnswerError> {
    let named = names().find(|(_, known)| *known == name).map(|(number, _)| number);
    named.or_else(|| name.parse().ok()).ok_or_else(|| AnswerError::Protocol(name.to_owned()))
}

/// The name of a protocol, or its number.
pub(super) fn protocol_name(protocol: u8) -> String {
    let named = names().find(|(number, _)| *number == protocol);
    named.map_or_else(|| protocol.to_string(), |(_, name)| name.to_owned())
}

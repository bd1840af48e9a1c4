//! JSON lines, one object each. No string contains characters that need escaping.

use super::{
    Action, Change, Lines, origin_name, push_address, push_as_path, push_community, push_ipv4, push_number,
    push_prefix, route_next_hop,
};
use crate::mrt::PathView;
use std::io::Write;
use std::net::IpAddr;
use thalweg_base::IpPrefix;

/// Appends an object and a line feed.
pub(super) fn push(out: &mut Vec<u8>, lines: &mut Lines, change: &Change<'_, '_>) {
    let action = match change.action {
        Action::Route { .. } => "route",
        Action::Announce { .. } => "announce",
        Action::Withdraw { .. } => "withdraw",
        Action::State { .. } => "state",
    };
    let _ = write!(out, "{{\"action\":\"{action}\",\"format\":\"{}\",\"time\":", lines.format);
    out.extend_from_slice(&lines.time);
    let scratch = &mut lines.scratch;
    out.extend_from_slice(b",\"peer\":\"");
    push_address(out, change.peer.address);
    out.extend_from_slice(b"\",\"peer_as\":");
    push_number(out, change.peer.asn);
    match change.action {
        Action::Route { entry, path } => {
            destination(out, entry.prefix, entry.path_id);
            number(out, "originated", Some(entry.originated_s));
            attributes(out, scratch, path, route_next_hop(path));
        }
        Action::Announce { prefix, path_id, next_hop, path } => {
            destination(out, prefix, path_id);
            attributes(out, scratch, path, next_hop);
        }
        Action::Withdraw { prefix, path_id } => destination(out, prefix, path_id),
        Action::State { old, new } => {
            number(out, "old_state", Some(old.into()));
            number(out, "new_state", Some(new.into()));
        }
    }
    out.extend_from_slice(b"}\n");
}

fn key(out: &mut Vec<u8>, name: &str) {
    let _ = write!(out, ",\"{name}\":");
}

fn number(out: &mut Vec<u8>, name: &str, value: Option<u32>) {
    if let Some(value) = value {
        key(out, name);
        push_number(out, value);
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    key(out, name);
    out.push(b'"');
    value(out);
    out.push(b'"');
}

fn destination(out: &mut Vec<u8>, prefix: IpPrefix, path_id: Option<u32>) {
    text(out, "prefix", |out| push_prefix(out, prefix));
    number(out, "path_id", path_id);
}

/// A list of strings, each from `N` bytes of `value`.
fn list<const N: usize>(
    out: &mut Vec<u8>,
    name: &str,
    value: &[u8],
    mut item: impl FnMut(&mut Vec<u8>, [u8; N]),
) {
    let items = value.as_chunks::<N>().0;
    if items.is_empty() {
        return;
    }
    key(out, name);
    for (place, each) in items.iter().enumerate() {
        out.extend_from_slice(if place == 0 { b"[\"" } else { b",\"" });
        item(out, *each);
        out.push(b'"');
    }
    out.push(b']');
}

fn attributes(out: &mut Vec<u8>, scratch: &mut Vec<u8>, path: &PathView<'_>, next_hop: Option<IpAddr>) {
    text(out, "as_path", |out| push_as_path(out, path, scratch));
    text(out, "origin", |out| out.extend_from_slice(origin_name(path.origin).as_bytes()));
    if let Some(next_hop) = next_hop {
        text(out, "next_hop", |out| push_address(out, next_hop));
    }
    number(out, "local_pref", path.local_pref);
    number(out, "med", path.med);
    list::<4>(out, "communities", path.communities, push_community);
    list::<8>(out, "extended_communities", path.extended_communities, |out, each| {
        let _ = write!(out, "{:016x}", u64::from_be_bytes(each));
    });
    list::<12>(out, "large_communities", path.large_communities, |out, each| {
        let (words, _) = each.as_chunks::<4>();
        for (place, word) in words.iter().enumerate() {
            if place > 0 {
                out.push(b':');
            }
            push_number(out, u32::from_be_bytes(*word));
        }
    });
    if path.atomic_aggregate {
        out.extend_from_slice(b",\"atomic_aggregate\":true");
    }
    if let Some((asn, address)) = path.aggregator {
        text(out, "aggregator", |out| {
            push_number(out, asn);
            out.push(b' ');
            push_ipv4(out, address);
        });
    }
}

//! Writes routes and changes as text: a line each in the format of `bgpdump -m` (or `-M`), or a JSON object.
//!
//! ```text
//! TABLE_DUMP2|TIME|B|PEER|AS|PREFIX|AS_PATH|ORIGIN|NEXT_HOP|LOCAL_PREF|MED|COMMUNITIES|AG or NAG|AGGREGATOR|
//! BGP4MP|TIME|A|..  the same            BGP4MP|TIME|W|PEER|AS|PREFIX            BGP4MP|TIME|STATE|PEER|AS|OLD|NEW
//! ```
//! With path identifiers the format's name ends in `_AP` and the identifier follows the prefix. As in
//! bgpdump, a missing next hop is 255.255.255.255, a missing MED or LOCAL_PREF is 0, and lines of type BGP
//! have no empty field for missing communities. Unlike it, prefixes have no bits beyond their length (newer
//! versions agree), and multicast routes of TABLE_DUMP_V2 are printed.

mod json;

use super::path::segments;
use super::{Content, Direction, Endpoint, Fault, PathView, Record, RecordType, RibEntry};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_base::IpPrefix;

/// A date and time of day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
}

impl Civil {
    /// Converts seconds since the epoch; no leap seconds.
    pub fn from_unix(seconds: u64) -> Self {
        const DAY_S: u64 = 86_400;
        let (days, second) = (seconds / DAY_S, seconds % DAY_S);
        // Years that begin in March have their leap day last; 719,468 days separate 0000-03-01 and
        // 1970-01-01.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let from_march = era * 400 + year;
        Self {
            year: (from_march + u64::from(month >= 10)) as i64,
            month: if month < 10 { month + 3 } else { month - 9 } as u8,
            day: (day - (153 * month + 2) / 5 + 1) as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }
}

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Seconds since the epoch and all fields (`-m`).
    Unix,
    /// `MM/DD/YY HH:MM:SS`; announcements end with ORIGIN (`-M`).
    Human,
    /// A JSON object:
    ///
    /// `{"action":"route"|"announce"|"withdraw"|"state","format":..,"time":..,"peer":..,"peer_as":..}` and,
    /// if present, `prefix`, `path_id`, `originated`, `as_path`, `origin`, `next_hop`, `local_pref`, `med`,
    /// `communities`, `extended_communities` (hexadecimal), `large_communities`, `atomic_aggregate`,
    /// `aggregator`, `old_state`, `new_state`.
    Json,
}

/// One route or change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'c, 'a> {
    pub peer: Endpoint,
    pub action: Action<'c, 'a>,
}

/// What a change does.
#[derive(Clone, Copy, Debug)]
pub enum Action<'c, 'a> {
    /// A route of a table.
    Route {
        /// The route.
        entry: &'c RibEntry<'a>,
        path: &'c PathView<'a>,
    },
    Announce {
        prefix: IpPrefix,
        path_id: Option<u32>,
        /// The next hop for the prefix's family.
        next_hop: Option<IpAddr>,
        path: &'c PathView<'a>,
    },
    Withdraw {
        /// Where it led.
        prefix: IpPrefix,
        path_id: Option<u32>,
    },
    State {
        /// The state before.
        old: u16,
        new: u16,
    },
}

/// Calls `visit` for each route or change of a record, in order; withdrawals of an UPDATE come first, and
/// IPv4 comes before other families. Visits everything readable and returns the first fault.
pub fn visit_changes<'a>(content: &Content<'a>, mut visit: impl FnMut(&Change<'_, 'a>)) -> Result<(), Fault> {
    match content {
        Content::Peers(_) | Content::Skipped => Ok(()),
        Content::Rib(rib) => {
            let mut fault = None;
            for entry in rib.entries() {
                let path = entry.path();
                fault = fault.or(path.fault);
                let peer = Endpoint { address: entry.peer.address, asn: entry.peer.asn };
                visit(&Change { peer, action: Action::Route { entry: &entry, path: &path } });
            }
            fault.map_or(Ok(()), Err)
        }
        Content::StateChange(state) => {
            let action = Action::State { old: state.old, new: state.new };
            visit(&Change { peer: state.peer, action });
            Ok(())
        }
        Content::Message(message) => {
            let Some(update) = message.update()? else { return Ok(()) };
            let path = PathView::at(update.attributes, update.as_size);
            let peer = message.peer;
            let mut fault = path.fault;
            let unreach = path.mp_unreach.and_then(|mp| mp.prefixes(update.add_path));
            for item in update.withdrawn().chain(unreach.into_iter().flatten()) {
                match item {
                    Ok((path_id, prefix)) => {
                        visit(&Change { peer, action: Action::Withdraw { prefix, path_id } });
                    }
                    Err(each) => fault = fault.or(Some(each)),
                }
            }
            let mut announce = |item: Result<(Option<u32>, IpPrefix), Fault>, next_hop| match item {
                Ok((path_id, prefix)) => {
                    let action = Action::Announce { prefix, path_id, next_hop, path: &path };
                    visit(&Change { peer, action });
                }
                Err(each) => fault = fault.or(Some(each)),
            };
            for item in update.announced() {
                announce(item, path.next_hop.map(IpAddr::V4));
            }
            if let Some((mp, prefixes)) =
                path.mp_reach.and_then(|mp| Some((mp, mp.prefixes(update.add_path)?)))
            {
                for item in prefixes {
                    announce(item, mp.next_hop_address());
                }
            }
            fault.map_or(Ok(()), Err)
        }
    }
}

/// Appends a record's lines. Writes everything readable and returns the first fault.
///
/// The lines of one 64-KiB UPDATE can take gigabytes, since each repeats the same long path. Readers of
/// untrusted files should use [`Lines`] and empty `out` from time to time.
pub fn write_lines(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    content: &Content<'_>,
    style: Style,
) -> Result<(), Fault> {
    let mut lines = Lines::new(record, content, style);
    visit_changes(content, |change| lines.push(out, change))
}

/// Writes the lines of one record, change by change.
#[derive(Debug)]
pub struct Lines {
    style: Style,
    /// Format and time are the same in all lines of a record.
    format: &'static str,
    time: Vec<u8>,
    old_bgp: bool,
    scratch: Vec<u8>,
}

impl Lines {
    /// Prepares for the changes of a record.
    pub fn new(record: &Record<'_>, content: &Content<'_>, style: Style) -> Self {
        let mut time = Vec::with_capacity(32);
        push_time(&mut time, record, style);
        let old_bgp = record.kind.kind == RecordType::BGP;
        Self { style, format: format_name(content), time, old_bgp, scratch: Vec::new() }
    }

    /// Appends a line of at most about 300 KiB: attributes have at most 64 KiB, and a byte becomes at most
    /// five.
    pub fn push(&mut self, out: &mut Vec<u8>, change: &Change<'_, '_>) {
        if self.style == Style::Json {
            return json::push(out, self, change);
        }
        out.extend_from_slice(self.format.as_bytes());
        out.push(b'|');
        out.extend_from_slice(&self.time);
        let full = self.style == Style::Unix;
        Line { out, scratch: &mut self.scratch, full, old_bgp: self.old_bgp }.write(change);
    }
}

/// The first field of a line.
fn format_name(content: &Content<'_>) -> &'static str {
    let kind = match content {
        Content::Rib(rib) => {
            return match (rib.kind.kind, rib.add_path()) {
                (RecordType::TABLE_DUMP, _) => "TABLE_DUMP",
                (_, false) => "TABLE_DUMP2",
                (_, true) => "TABLE_DUMP2_AP",
            };
        }
        Content::Message(message) => {
            let local = message.direction == Direction::Sent;
            match (message.kind.kind == RecordType::BGP4MP_ET, local, message.add_path) {
                (false, false, true) => return "BGP4MP_AP",
                (false, true, false) => return "BGP4MP_LOCAL",
                (false, true, true) => return "BGP4MP_LOCAL_AP",
                (true, false, true) => return "BGP4MP_ET_AP",
                (true, true, false) => return "BGP4MP_ET_LOCAL",
                (true, true, true) => return "BGP4MP_ET_LOCAL_AP",
                (_, false, false) => message.kind,
            }
        }
        Content::StateChange(state) => state.kind,
        Content::Peers(_) | Content::Skipped => return "",
    };
    kind.kind_name().unwrap_or("")
}

fn push_time(out: &mut Vec<u8>, record: &Record<'_>, style: Style) {
    match style {
        Style::Unix | Style::Json => push_number(out, record.time_s),
        Style::Human => {
            let at = Civil::from_unix(record.time_s.into());
            let year = at.year % 100;
            let Civil { month, day, hour, minute, second, .. } = at;
            let _ = write!(out, "{month:02}/{day:02}/{year:02} {hour:02}:{minute:02}:{second:02}");
        }
    }
    if let Some(microseconds) = record.microseconds {
        let _ = write!(out, ".{microseconds:06}");
    }
}

/// A line under construction.
struct Line<'o> {
    out: &'o mut Vec<u8>,
    scratch: &'o mut Vec<u8>,
    full: bool,
    old_bgp: bool,
}

impl Line<'_> {
    fn write(mut self, change: &Change<'_, '_>) {
        let peer = change.peer;
        match change.action {
            Action::Route { entry, path } => {
                self.begin(b"|B|", peer, entry.prefix);
                let next_hop = route_next_hop(path);
                self.attributes(entry.path_id, path, next_hop);
            }
            Action::Announce { prefix, path_id, next_hop, path } => {
                self.begin(b"|A|", peer, prefix);
                self.attributes(path_id, path, next_hop);
            }
            Action::Withdraw { prefix, .. } => self.begin(b"|W|", peer, prefix),
            Action::State { old, new } => {
                self.peer(b"|STATE|", peer);
                push_number(self.out, old.into());
                self.out.push(b'|');
                push_number(self.out, new.into());
            }
        }
        self.out.push(b'\n');
    }

    fn peer(&mut self, action: &[u8], peer: Endpoint) {
        self.out.extend_from_slice(action);
        push_address(self.out, peer.address);
        self.out.push(b'|');
        push_number(self.out, peer.asn);
        self.out.push(b'|');
    }

    fn begin(&mut self, action: &[u8], peer: Endpoint, prefix: IpPrefix) {
        self.peer(action, peer);
        push_prefix(self.out, prefix);
    }

    fn attributes(&mut self, path_id: Option<u32>, path: &PathView<'_>, next_hop: Option<IpAddr>) {
        let out = &mut *self.out;
        out.push(b'|');
        if let Some(path_id) = path_id {
            push_number(out, path_id);
            out.push(b'|');
        }
        push_as_path(out, path, self.scratch);
        out.push(b'|');
        out.extend_from_slice(origin_name(path.origin).as_bytes());
        if !self.full {
            return;
        }
        out.push(b'|');
        push_address(out, next_hop.unwrap_or(IpAddr::V4(Ipv4Addr::BROADCAST)));
        out.push(b'|');
        push_number(out, path.local_pref.unwrap_or(0));
        out.push(b'|');
        push_number(out, path.med.unwrap_or(0));
        out.push(b'|');
        push_communities(out, path.communities);
        if !self.old_bgp || !path.communities.is_empty() {
            out.push(b'|');
        }
        out.extend_from_slice(if path.atomic_aggregate { b"AG|" } else { b"NAG|" });
        if let Some((asn, address)) = path.aggregator {
            push_number(out, asn);
            out.push(b' ');
            push_ipv4(out, address);
        }
        out.push(b'|');
    }
}

/// The next hop of a table's route: from MP_REACH_NLRI if present.
fn route_next_hop(path: &PathView<'_>) -> Option<IpAddr> {
    let mp = path.mp_reach.and_then(|mp| mp.next_hop_address());
    mp.or(path.next_hop.map(IpAddr::V4))
}

fn origin_name(origin: Option<u8>) -> &'static str {
    match origin {
        Some(0) => "IGP",
        Some(1) => "EGP",
        _ => "INCOMPLETE",
    }
}

#[inline]
fn push_number(out: &mut Vec<u8>, number: u32) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn push_ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    for (place, byte) in address.octets().into_iter().enumerate() {
        if place > 0 {
            out.push(b'.');
        }
        push_number(out, byte.into());
    }
}

fn push_ipv6(out: &mut Vec<u8>, address: Ipv6Addr) {
    // C libraries print embedded IPv4 addresses (RFC 4291 2.5.5.1) this way; Rust does not.
    match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            out.extend_from_slice(b"::");
            push_ipv4(out, Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
        }
        _ => {
            let _ = write!(out, "{address}");
        }
    }
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => push_ipv4(out, v4),
        IpAddr::V6(v6) => push_ipv6(out, v6),
    }
}

fn push_prefix(out: &mut Vec<u8>, prefix: IpPrefix) {
    push_address(out, prefix.address());
    out.push(b'/');
    push_number(out, prefix.length().into());
}

/// `64496 64497 {64498,64499}`, or bgpdump's error mark if the path is malformed.
fn push_as_path(out: &mut Vec<u8>, path: &PathView<'_>, scratch: &mut Vec<u8>) {
    if !path.is_path_whole() {
        out.extend_from_slice(b"! Error !");
        return;
    }
    let Some(path) = path.four_octet_path(scratch) else { return };
    let mut space = false;
    for (kind, asns) in segments(path, 4) {
        let (open, between, close): (&[u8], u8, &[u8]) = match kind {
            1 => (b"{", b',', b"}"),
            3 => (b"(", b' ', b")"),
            4 => (b"[", b',', b"]"),
            _ => (b"", b' ', b""),
        };
        if space {
            out.push(b' ');
        }
        out.extend_from_slice(open);
        space = false;
        for asn in asns.as_chunks::<4>().0 {
            if space {
                out.push(between);
            }
            push_number(out, u32::from_be_bytes(*asn));
            space = true;
        }
        out.extend_from_slice(close);
    }
}

fn push_community(out: &mut Vec<u8>, community: [u8; 4]) {
    use crate::bgp::community::{NO_ADVERTISE, NO_EXPORT, NO_EXPORT_SUBCONFED};
    match u32::from_be_bytes(community) {
        NO_EXPORT => out.extend_from_slice(b"no-export"),
        NO_ADVERTISE => out.extend_from_slice(b"no-advertise"),
        NO_EXPORT_SUBCONFED => out.extend_from_slice(b"local-AS"),
        number => {
            push_number(out, number >> 16);
            out.push(b':');
            push_number(out, number & 0xffff);
        }
    }
}

fn push_communities(out: &mut Vec<u8>, communities: &[u8]) {
    for (place, community) in communities.as_chunks::<4>().0.iter().enumerate() {
        if place > 0 {
            out.push(b' ');
        }
        push_community(out, *community);
    }
}

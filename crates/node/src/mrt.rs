//! Writes the RIB and neighbors' messages as records of MRT files (RFC 6396, RFC 8050).
//!
//! A [`RibDump`] scans the RIB a slice at a time, under one shard's lock for well below a millisecond, and encodes
//! each slice outside the lock. A dump is exact for each prefix, but not a snapshot of one moment, as is usual for
//! collectors.
//!
//! A record has all routes of a prefix, after import policy, with the attributes as stored: LOCAL_PREF if the route
//! carries one, MP_REACH_NLRI with only the next hop. This router's own routes have a peer of their own, with its
//! identifier, its AS and the address 0.0.0.0. Left out and counted are routes of neighbors that came up after the
//! dump began, and routes that exceed a record.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{AttrRef, NextHop};
use thalweg_bgp::peer::{PeerId, PeerTable};
use thalweg_bgp::rib::{RibAddress, ScanCursor};
use thalweg_bgp::route::SHARDS;
use thalweg_bgp::session::Negotiated;
use thalweg_wire::bgp::{MessageKind, MpNlri, PeerFacts, Update, attribute, frame, write_attribute};
use thalweg_wire::mrt::{
    AsSize, Direction, Endpoint, MessageForm, Peer, PeerIndex, RibRecord, Timestamp, WriteError,
    write_message, write_peer_index_table, write_state_change,
};

use crate::speaker::Speaker;

/// A route found by the scan.
struct Found {
    prefix: IpPrefix,
    peer: PeerId,
    path_id: u32,
    received_s: u32,
    attrs: AttrRef,
}

/// Counters of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpCounters {
    /// Records, each with the routes of one prefix.
    pub prefixes: u64,
    pub routes: u64,
    /// Routes of neighbors that came up after the dump began.
    pub unknown_peer: u64,
    /// Routes that a record had no room for.
    pub refused: u64,
}

/// A dump of the RIB in progress.
pub struct RibDump {
    places: HashMap<PeerId, u16>,
    local: u16,
    /// Restricts the dump to these neighbors.
    only: Option<Vec<PeerId>>,
    time_s: u32,
    /// The wall clock at the speaker's time 0.
    epoch_s: u64,
    family: usize,
    shard: usize,
    cursor: ScanCursor,
    sequence: u32,
    found: Vec<Found>,
    attributes: Vec<u8>,
    counters: DumpCounters,
}

impl RibDump {
    /// Begins a dump and appends its table of peers. `now_s` is seconds since the epoch.
    pub fn begin(speaker: &Speaker, now_s: u64, out: &mut Vec<u8>) -> Result<Self, WriteError> {
        let config = speaker.config();
        let peers = speaker.peer_table();
        let (places, index) = peer_index(&peers, config.router_id, config.local_as);
        let time_s = now_s as u32;
        write_peer_index_table(out, time_s, &index)?;
        Ok(Self {
            local: (index.peers.len() - 1) as u16,
            places,
            only: None,
            time_s,
            epoch_s: now_s.saturating_sub(speaker.uptime_s()),
            family: 0,
            shard: 0,
            cursor: ScanCursor::START,
            sequence: 0,
            found: Vec::new(),
            attributes: Vec::new(),
            counters: DumpCounters::default(),
        })
    }

    /// Restricts the dump to neighbors with these addresses.
    pub fn only_of(mut self, speaker: &Speaker, neighbors: &[IpAddr]) -> Self {
        let peers = speaker.peer_table();
        self.only =
            Some(peers.iter().filter(|info| neighbors.contains(&info.address)).map(|info| info.id).collect());
        self
    }

    /// Appends the records of the next slice; returns whether it was the last.
    pub fn step(&mut self, speaker: &Speaker, out: &mut Vec<u8>) -> bool {
        let done = match self.family {
            0 => self.scan::<u32>(speaker),
            _ => self.scan::<u128>(speaker),
        };
        self.write(out);
        if done {
            (self.shard, self.cursor) = (self.shard + 1, ScanCursor::START);
            if self.shard == SHARDS {
                (self.family, self.shard) = (self.family + 1, 0);
            }
        }
        self.family > 1
    }

    /// The counters so far.
    pub fn counters(&self) -> DumpCounters {
        self.counters
    }

    fn scan<A: RibAddress>(&mut self, speaker: &Speaker) -> bool {
        let (found, only) = (&mut self.found, &self.only);
        speaker.scan_shard::<A>(self.shard, &mut self.cursor, &mut |route| {
            let prefix = A::to_ip_prefix(route.prefix);
            let wanted = |peer: PeerId| only.as_ref().is_none_or(|only| only.contains(&peer));
            found.extend(route.paths().filter(|path| wanted(path.peer)).map(|path| Found {
                prefix,
                peer: path.peer,
                path_id: path.path_id,
                received_s: path.received_s,
                attrs: path.attrs.clone(),
            }));
        })
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        let found = std::mem::take(&mut self.found);
        for routes in found.chunk_by(|a, b| a.prefix == b.prefix) {
            let Some(first) = routes.first() else { continue };
            let add_path = routes.iter().any(|route| route.path_id != 0);
            let mut record = RibRecord::begin(out, self.time_s, self.sequence, first.prefix, add_path);
            for route in routes {
                let place = match route.peer {
                    PeerId::LOCAL => Some(self.local),
                    peer => self.places.get(&peer).copied(),
                };
                let Some(place) = place else {
                    self.counters.unknown_peer += 1;
                    continue;
                };
                self.attributes.clear();
                encode(&mut self.attributes, &route.attrs);
                let originated_s = (self.epoch_s + u64::from(route.received_s)) as u32;
                let pushed = record.push(place, originated_s, route.path_id, &self.attributes);
                self.counters.refused += u64::from(pushed.is_err());
            }
            let count = record.finish();
            if count > 0 {
                self.sequence = self.sequence.wrapping_add(1);
                self.counters.prefixes += 1;
                self.counters.routes += u64::from(count);
            }
        }
        self.found = found;
        self.found.clear();
    }
}

/// The table of peers with this router last, and the index of each neighbor in it.
fn peer_index(peers: &PeerTable, router_id: Ipv4Addr, local_as: u32) -> (HashMap<PeerId, u16>, PeerIndex) {
    let mut places = HashMap::new();
    let mut index = PeerIndex { collector: router_id, view: String::new(), peers: Vec::new() };
    // Indexes have 16 bits, and one is this router's.
    for info in peers.iter().take(usize::from(u16::MAX) - 1) {
        places.insert(info.id, index.peers.len() as u16);
        index.peers.push(Peer { id: info.router_id, address: info.address, asn: info.remote_as });
    }
    let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    index.peers.push(Peer { id: router_id, address: nowhere, asn: local_as });
    (places, index)
}

/// Appends an attribute set in TABLE_DUMP_V2 form: ordered by type, with four-octet AS numbers.
pub fn encode(out: &mut Vec<u8>, attrs: &AttrRef) {
    let encoded = attrs.encoded();
    // The offset of the first attribute with this type or a higher one.
    let place_of = |code: u8| -> usize {
        attrs.attributes().take_while(|each| each.code < code).map(|each| each.whole.len()).sum()
    };
    let (fields, mp_reach) = (place_of(attribute::NEXT_HOP), place_of(attribute::MP_REACH_NLRI));
    write_attribute(out, attribute::FLAG_TRANSITIVE, attribute::ORIGIN, &[attrs.origin as u8]);
    out.extend_from_slice(&encoded[..fields]);
    if let NextHop::V4(address) = attrs.next_hop() {
        write_attribute(out, attribute::FLAG_TRANSITIVE, attribute::NEXT_HOP, &address.octets());
    }
    if let Some(med) = attrs.med() {
        write_attribute(out, attribute::FLAG_OPTIONAL, attribute::MED, &med.to_be_bytes());
    }
    if let Some(local_pref) = attrs.local_pref() {
        write_attribute(out, attribute::FLAG_TRANSITIVE, attribute::LOCAL_PREF, &local_pref.to_be_bytes());
    }
    out.extend_from_slice(&encoded[fields..mp_reach]);
    if let NextHop::V6 { global, link_local } = attrs.next_hop() {
        let addresses: Vec<u8> =
            [Some(global), link_local].iter().flatten().flat_map(|each| each.octets()).collect();
        let value = [&[addresses.len() as u8], addresses.as_slice()].concat();
        write_attribute(out, attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, &value);
    }
    out.extend_from_slice(&encoded[mp_reach..]);
}

/// MRT's numbers for states of RFC 4271 8.2.2.
const IDLE: u16 = 1;
const OPEN_CONFIRM: u16 = 5;
const ESTABLISHED: u16 = 6;

/// The neighbor's end and ours.
fn endpoints(session: &Negotiated) -> (Endpoint, Endpoint) {
    let peer = Endpoint { address: session.remote_address, asn: session.remote_as };
    (peer, Endpoint { address: session.local_address, asn: session.local_as })
}

/// Appends a record of a session that came up or went down.
pub fn write_session_state(out: &mut Vec<u8>, time: Timestamp, session: &Negotiated, is_up: bool) {
    let (peer, local) = endpoints(session);
    let (old, new) = if is_up { (OPEN_CONFIRM, ESTABLISHED) } else { (ESTABLISHED, IDLE) };
    // This cannot fail: both ends of a connection have addresses of one family.
    let _ = write_state_change(out, time, peer, local, old, new);
}

/// Appends a record for each message of the `wanted` kinds in a run of whole messages that a session received;
/// returns the number of records.
pub fn write_session_messages(
    out: &mut Vec<u8>,
    time: Timestamp,
    session: &Negotiated,
    messages: &[u8],
    wanted: &[MessageKind],
) -> u64 {
    let (peer, local) = endpoints(session);
    let (mut rest, mut written) = (messages, 0);
    while let Ok(Some(message)) = frame(rest, session.codec.message_length_max()) {
        let (whole, next) = rest.split_at(message.length.min(rest.len()));
        if wanted.contains(&message.kind) {
            let form = MessageForm {
                direction: Direction::Received,
                as_size: if session.codec.four_octet_as { AsSize::Four } else { AsSize::Two },
                add_path: has_path_ids(session, message.body),
            };
            // This cannot fail: the longest message fits into a record.
            let _ = write_message(out, time, peer, local, form, whole);
            written += 1;
        }
        rest = next;
    }
    written
}

/// Whether the message's NLRI has path identifiers, which depends on its family.
fn has_path_ids(session: &Negotiated, body: &[u8]) -> bool {
    let by_family = session.codec.add_path_receive;
    if by_family[0] == by_family[1] {
        return by_family[0];
    }
    let Ok(update) = Update::parse(body, &session.codec, &PeerFacts::default()) else { return by_family[0] };
    let routes = update.mp_reach.map(|reach| reach.routes).or(update.mp_unreach);
    routes.map_or(by_family[0], |routes: MpNlri<'_>| by_family[routes.family().index()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_bgp::attrs::{AttrsBuilder, Interner};

    fn codes(attrs: &AttrRef) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, attrs);
        thalweg_bgp::attrs::Attributes::new(&out).map(|each| each.code).collect()
    }

    #[test]
    fn fields_stand_among_the_other_attributes_in_order() {
        let interner = Interner::new(1);
        let mut builder = AttrsBuilder::default();
        builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &[2, 1, 0, 0, 0, 7]).unwrap();
        builder.set_communities(&[1]).unwrap();
        builder.set_large_communities(&[[1, 2, 3]]).unwrap();
        builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 1));
        builder.med = Some(5);
        builder.local_pref = Some(50);
        assert_eq!(codes(&interner.intern(&mut builder)), [1, 2, 3, 4, 5, 8, 32]);
        builder.next_hop = NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None };
        builder.med = None;
        assert_eq!(codes(&interner.intern(&mut builder)), [1, 2, 5, 8, 14, 32]);
        builder.set_large_communities(&[]).unwrap();
        assert_eq!(codes(&interner.intern(&mut builder)), [1, 2, 5, 8, 14]);
    }
}

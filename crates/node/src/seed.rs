//! Routes of an MRT table in the RIB, without any session: for laboratories and tests.
//!
//! Each peer of the file becomes a static source with its own place among the neighbors, address, AS and identifier,
//! so that decisions among its routes are those a router with these sessions would make. Its routes are accepted as
//! they are, without policy and without looking for loops, if a session would find no error in them (RFC 7606); the
//! others are counted. They stay for as long as the router runs.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{AttrRef, Attributes, AttrsBuilder, NextHop};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::RouteBatchBuilder;
use thalweg_bgp::session::import::build;
use thalweg_wire::bgp::{Codec, MpNlri, PeerFacts, PeerSide, Update, Verdict, attribute};
use thalweg_wire::mrt::{AsSize, Peer, RibEntry};

use crate::speaker::{Speaker, StaticSource};

/// Routes of a source that are put into the RIB together.
const BATCH_ROUTES: usize = 2048;

/// What became of a file's routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeedCounters {
    /// Put into the RIB.
    pub routes: u64,
    /// Peers that have routes.
    pub peers: u64,
    /// Not put in, because a session would not accept the attributes.
    pub refused: u64,
    /// Not put in, because there is no place for more sources.
    pub without_place: u64,
}

/// Puts routes of a table into a speaker's RIB.
pub struct Seeder<'s> {
    speaker: &'s Speaker,
    places: HashMap<(IpAddr, u32, Ipv4Addr), Option<usize>>,
    sources: Vec<(PeerId, RouteBatchBuilder)>,
    builder: AttrsBuilder,
    attributes: Vec<u8>,
    reach: Vec<u8>,
    path: Vec<u8>,
    counters: SeedCounters,
}

impl<'s> Seeder<'s> {
    /// A seeder that has not seen any route.
    pub fn new(speaker: &'s Speaker) -> Self {
        Self {
            speaker,
            places: HashMap::new(),
            sources: Vec::new(),
            builder: AttrsBuilder::default(),
            attributes: Vec::new(),
            reach: Vec::new(),
            path: Vec::new(),
            counters: SeedCounters::default(),
        }
    }

    /// Takes in a route of the file.
    pub fn push(&mut self, entry: &RibEntry<'_>) {
        let Some(place) = self.place(entry.peer) else {
            self.counters.without_place += 1;
            return;
        };
        let Some(attrs) = self.attrs(entry) else {
            self.counters.refused += 1;
            return;
        };
        let Some((id, routes)) = self.sources.get_mut(place) else { return };
        let (index, path_id) = (routes.push_attrs(attrs), entry.path_id.unwrap_or(0));
        match entry.prefix {
            IpPrefix::V4(prefix) => routes.push_v4(prefix, path_id, index),
            IpPrefix::V6(prefix) => routes.push_v6(prefix, path_id, index),
        }
        self.counters.routes += 1;
        if routes.len() >= BATCH_ROUTES {
            self.speaker.apply_static(routes.finish(*id, 0));
        }
    }

    /// What was put in so far.
    pub fn counters(&self) -> SeedCounters {
        self.counters
    }

    /// Puts in what is left.
    pub fn finish(mut self) -> SeedCounters {
        for (id, routes) in &mut self.sources {
            if !routes.is_empty() {
                self.speaker.apply_static(routes.finish(*id, 0));
            }
        }
        self.counters
    }

    fn place(&mut self, peer: Peer) -> Option<usize> {
        let key = (peer.address, peer.asn, peer.id);
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let source = StaticSource {
            name: format!("mrt-{}", peer.address).into(),
            address: peer.address,
            asn: peer.asn,
            router_id: peer.id,
        };
        let id = self.speaker.add_static_sources(&[source]).first().copied().flatten();
        let place = id.map(|id| {
            self.sources.push((id, RouteBatchBuilder::default()));
            self.counters.peers += 1;
            self.sources.len() - 1
        });
        self.places.insert(key, place);
        place
    }

    /// The attributes, read as a session would read them.
    fn attrs(&mut self, entry: &RibEntry<'_>) -> Option<AttrRef> {
        let internal = self.complete(entry)?;
        let four_octet_as = entry.as_size == AsSize::Four;
        let codec = Codec {
            four_octet_as,
            extended_messages: true,
            add_path_receive: [false; 2],
            add_path_send: [false; 2],
            extended_next_hop: true,
        };
        let side = if internal { PeerSide::Internal } else { PeerSide::External };
        let facts = PeerFacts { side, ..PeerFacts::default() };
        let update = Update::from_parts(&[], &self.attributes, &self.reach, &codec, &facts).ok()?;
        if update.verdict != Verdict::Good {
            return None;
        }
        let next_hop = match (update.mp_reach, update.next_hop) {
            (Some(reach), _) => match reach.routes {
                MpNlri::Ipv4(_) | MpNlri::Ipv6(_) => reach.next_hop,
            },
            (None, Some(address)) => NextHop::V4(address),
            (None, None) => return None,
        };
        let path = update.as_path(&mut self.path);
        build(&mut self.builder, &update, next_hop, path, four_octet_as);
        Some(self.speaker.interner().intern(&mut self.builder))
    }

    /// Makes of the entry's attributes those of an UPDATE: MP_REACH_NLRI, of which tables mostly have the next hop
    /// only, gets its family and the prefix back. Whether LOCAL_PREF is there; `None` if the lengths do not fit.
    fn complete(&mut self, entry: &RibEntry<'_>) -> Option<bool> {
        let Self { attributes, reach, .. } = self;
        attributes.clear();
        reach.clear();
        let mut prefix = Vec::with_capacity(17);
        push_prefix(&mut prefix, entry.prefix);
        let (mut internal, mut mp_reach, mut length) = (false, false, 0);
        for each in Attributes::new(entry.attributes) {
            length += each.whole.len();
            internal |= each.code == attribute::LOCAL_PREF;
            if each.code != attribute::MP_REACH_NLRI {
                attributes.extend_from_slice(each.whole);
                continue;
            }
            mp_reach = true;
            let next_hop = next_hop_field(each.value)?;
            let afi = if matches!(entry.prefix, IpPrefix::V4(_)) { 1 } else { 2 };
            let size = u8::try_from(5 + next_hop.len() + prefix.len()).ok()?;
            attributes.extend_from_slice(&[attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, size]);
            attributes.extend_from_slice(&[0, afi, 1, next_hop.len() as u8]);
            attributes.extend_from_slice(next_hop);
            attributes.push(0);
            attributes.extend_from_slice(&prefix);
        }
        if !mp_reach {
            reach.extend_from_slice(&prefix);
        }
        let announces = mp_reach || matches!(entry.prefix, IpPrefix::V4(_));
        (length == entry.attributes.len() && announces).then_some(internal)
    }
}

/// The next hop of an MP_REACH_NLRI, shortened as in RFC 6396 4.3.4 or whole.
fn next_hop_field(value: &[u8]) -> Option<&[u8]> {
    match value {
        [length, rest @ ..] if rest.len() == usize::from(*length) => Some(rest),
        [_, _, _, length, rest @ ..] => rest.get(..usize::from(*length)),
        _ => None,
    }
}

fn push_prefix(out: &mut Vec<u8>, prefix: IpPrefix) {
    out.push(prefix.length());
    let bytes = usize::from(prefix.length().div_ceil(8));
    match prefix.address() {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()[..bytes]),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()[..bytes]),
    }
}

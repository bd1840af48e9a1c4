//! Puts routes of an MRT table into the RIB without any session, for laboratories and tests.
//!
//! Each peer of the file becomes a static source with its own address, AS and identifier, so that the decision
//! process treats its routes like those of a session. Routes are accepted without policy and loop detection if a
//! session would find no error in them (RFC 7606); the others are counted. They stay for the life of the router.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, NextHop};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::RouteBatchBuilder;
use thalweg_bgp::session::import::build;
use thalweg_wire::bgp::{Codec, MpNlri, PeerFacts, PeerSide, Update, Verdict};
use thalweg_wire::mrt::{AsSize, Peer, RibEntry};

use crate::mrt_update::UpdateFields;
use crate::speaker::{Speaker, StaticSource};

/// Routes of a source that are applied together.
const BATCH_ROUTES: usize = 2048;

/// Counters of a file's routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeedCounters {
    /// Routes put into the RIB.
    pub routes: u64,
    /// Peers with routes.
    pub peers: u64,
    /// Routes left out because a session would not accept the attributes.
    pub refused: u64,
    /// Routes left out because there are too many sources.
    pub without_place: u64,
}

/// Puts routes of a table into a speaker's RIB.
pub struct Seeder<'s> {
    speaker: &'s Speaker,
    places: HashMap<(IpAddr, u32, Ipv4Addr), Option<usize>>,
    sources: Vec<(PeerId, RouteBatchBuilder)>,
    builder: AttrsBuilder,
    fields: UpdateFields,
    path: Vec<u8>,
    counters: SeedCounters,
}

impl<'s> Seeder<'s> {
    /// A seeder without routes.
    pub fn new(speaker: &'s Speaker) -> Self {
        Self {
            speaker,
            places: HashMap::new(),
            sources: Vec::new(),
            builder: AttrsBuilder::default(),
            fields: UpdateFields::default(),
            path: Vec::new(),
            counters: SeedCounters::default(),
        }
    }

    /// Adds a route of the file.
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

    /// The counters so far.
    pub fn counters(&self) -> SeedCounters {
        self.counters
    }

    /// Applies the remaining routes.
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

    /// The attributes, decoded as by a session.
    fn attrs(&mut self, entry: &RibEntry<'_>) -> Option<AttrRef> {
        let internal = self.fields.fill(entry, None)?;
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
        let update =
            Update::from_parts(&[], &self.fields.attributes, &self.fields.reach, &codec, &facts).ok()?;
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
}

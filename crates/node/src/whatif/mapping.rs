//! Assigns peers of the table to neighbors.
//!
//! As in a reload, an address identifies a neighbor, which has one number under both configurations. A peer is the
//! neighbor at its address, unless the user mapped it to another: then it is the neighbor of that name under each
//! configuration.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_bgp::peer::{PeerId, Role};
use thalweg_bgp::session::NeighborConfig;
use thalweg_wire::mrt::{Peer, RibEntry};

use super::report::{Both, MappedPeer, Table, TablePeer};
use super::shadow::Shadow;
use super::{Failing, Options, WhatIfError};

/// Names that an error lists.
const NAMES_SHOWN: usize = 12;

/// A peer of the table.
struct Row {
    peer: Peer,
    places: [Option<PeerId>; 2],
    names: [Option<String>; 2],
    routes: u64,
}

/// A neighbor's entry.
struct Place {
    configs: [Option<Arc<NeighborConfig>>; 2],
    /// The configurations whose router already has the neighbor.
    added: [bool; 2],
}

/// The neighbors of both configurations and the table's peers; see the [module](self).
pub(super) struct Mapping {
    places: Vec<Place>,
    by_address: HashMap<IpAddr, PeerId>,
    rows: Vec<Row>,
    by_peer: HashMap<Peer, usize>,
    /// The row of each index in the table's own list of peers, if known.
    by_index: Vec<Option<usize>>,
    map: HashMap<IpAddr, String>,
    roles: Vec<(PeerId, Role)>,
    failing: Vec<IpAddr>,
    fail_each: bool,
}

impl Mapping {
    pub(super) fn new(sides: &[Shadow; 2], options: &Options) -> Result<Self, WhatIfError> {
        let mut mapping = Self {
            places: Vec::new(),
            by_address: HashMap::new(),
            rows: Vec::new(),
            by_peer: HashMap::new(),
            by_index: Vec::new(),
            map: options.map.iter().cloned().collect(),
            roles: Vec::new(),
            failing: Vec::new(),
            fail_each: options.failing == Failing::Each,
        };
        for neighbor in sides.iter().flat_map(|side| &side.config.neighbors) {
            mapping.place(neighbor.address, sides);
        }
        for (address, name) in &options.map {
            mapping.known(&format!("--map {address}={name}"), name, sides)?;
        }
        for (name, role) in &options.roles {
            let address = mapping.known(&format!("--role {name}"), name, sides)?;
            let place = mapping.place(address, sides);
            mapping.roles.extend(place.map(|place| (place, *role)));
        }
        if let Failing::One(name) = &options.failing {
            let address = mapping.known("--fail", name, sides)?;
            mapping.failing.push(address);
        }
        Ok(mapping)
    }

    /// The number of the neighbor at an address, if either configuration has one.
    fn place(&mut self, address: IpAddr, sides: &[Shadow; 2]) -> Option<PeerId> {
        if let Some(place) = self.by_address.get(&address) {
            return Some(*place);
        }
        let configs = [0, 1].map(|at: usize| sides[at].configured(address));
        if configs == [None, None] {
            return None;
        }
        let place = PeerId(u16::try_from(self.places.len()).ok()?);
        if place == PeerId::LOCAL {
            return None;
        }
        self.places.push(Place { configs, added: [false; 2] });
        self.by_address.insert(address, place);
        Some(place)
    }

    /// The address of a neighbor in either configuration.
    fn known(&self, option: &str, name: &str, sides: &[Shadow; 2]) -> Result<IpAddr, WhatIfError> {
        let found = sides.iter().rev().find_map(|side| address_of(side, name));
        found.ok_or_else(|| WhatIfError::UnknownNeighbor {
            option: option.to_owned(),
            name: name.to_owned(),
            known: self.known_names(),
        })
    }

    fn known_names(&self) -> String {
        let names: BTreeSet<String> = self.places_all().map(|place| self.name(place)).collect();
        match names.is_empty() {
            true => "none".to_owned(),
            false => listed(names.into_iter()),
        }
    }

    /// The neighbor that has this route, under each configuration; adds it if necessary.
    pub(super) fn places(&mut self, entry: &RibEntry<'_>, sides: &mut [Shadow; 2]) -> [Option<PeerId>; 2] {
        let index = entry.peer_index.map(usize::from);
        let known = index.and_then(|index| self.by_index.get(index).copied().flatten());
        let row = match known.filter(|row| self.rows[*row].peer == entry.peer) {
            Some(row) => row,
            None => {
                let row = self.row(entry.peer, sides);
                if let Some(index) = index {
                    if self.by_index.len() <= index {
                        self.by_index.resize(index + 1, None);
                    }
                    self.by_index[index] = Some(row);
                }
                row
            }
        };
        self.rows[row].routes += 1;
        self.rows[row].places
    }

    fn row(&mut self, peer: Peer, sides: &mut [Shadow; 2]) -> usize {
        if let Some(row) = self.by_peer.get(&peer) {
            return *row;
        }
        let (mut places, mut names) = ([None, None], [None, None]);
        for at in 0..2 {
            let address = match self.map.get(&peer.address) {
                Some(name) => address_of(&sides[at], name),
                None => Some(peer.address),
            };
            let place = address.and_then(|address| self.place(address, sides));
            let Some((place, config)) = place.and_then(|place| Some((place, self.config(place, at)?))) else {
                continue;
            };
            names[at] = Some(config.name.to_string());
            places[at] = Some(place);
            if !std::mem::replace(&mut self.places[place.index()].added[at], true) {
                sides[at].add(place, config, Some(&peer));
            }
        }
        self.rows.push(Row { peer, places, names, routes: 0 });
        self.by_peer.insert(peer, self.rows.len() - 1);
        self.rows.len() - 1
    }

    fn config(&self, place: PeerId, at: usize) -> Option<Arc<NeighborConfig>> {
        self.places.get(place.index())?.configs[at].clone()
    }

    /// Errors if no peer of the table is a neighbor.
    pub(super) fn check(&self) -> Result<(), WhatIfError> {
        if self.rows.iter().any(|row| row.places != [None, None]) {
            return Ok(());
        }
        let peer = |row: &Row| format!("{} (AS {}, {} routes)", row.peer.address, row.peer.asn, row.routes);
        Err(WhatIfError::NothingMapped {
            peers: listed(self.rows.iter().map(peer)),
            known: self.known_names(),
        })
    }

    /// Adds neighbors without routes in the table: they are up and are sent routes too.
    pub(super) fn add_others(&mut self, sides: &mut [Shadow; 2]) {
        for (index, place) in self.places.iter_mut().enumerate() {
            for (at, side) in sides.iter_mut().enumerate() {
                let Some(config) = &place.configs[at] else { continue };
                if !std::mem::replace(&mut place.added[at], true) {
                    side.add(PeerId(index as u16), config.clone(), None);
                }
            }
        }
    }

    pub(super) fn places_all(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.places.len()).map(|index| PeerId(index as u16))
    }

    /// The neighbor's name.
    pub(super) fn name(&self, place: PeerId) -> String {
        if place == PeerId::LOCAL {
            return "local".to_owned();
        }
        let place = self.places.get(place.index());
        let config = place.and_then(|place| place.configs.iter().rev().flatten().next());
        config.map_or_else(String::new, |config| config.name.to_string())
    }

    /// The role of each neighbor: from the options, else from the new configuration, else from the old one.
    pub(super) fn relations(&self, sides: &[Shadow; 2]) -> Vec<Option<Role>> {
        let relation = |place: PeerId| {
            let said = self.roles.iter().find(|(of, _)| *of == place).map(|(_, role)| *role);
            let role = |at: usize| sides[at].peers.get(place).and_then(|info| info.role);
            said.or_else(|| role(1)).or_else(|| role(0))
        };
        self.places_all().map(relation).collect()
    }

    /// Neighbors whose failure is to be evaluated.
    pub(super) fn failing(&self) -> Vec<PeerId> {
        match self.fail_each {
            true => self.places_all().collect(),
            false => {
                self.failing.iter().filter_map(|address| self.by_address.get(address).copied()).collect()
            }
        }
    }

    /// The table, for the report.
    pub(super) fn table(&self, routes: u64, faulty: u64) -> Table {
        let mut table = Table { routes, faulty, ..Table::default() };
        for row in &self.rows {
            let Peer { address, asn, id } = row.peer;
            let peer = TablePeer { address, asn, router_id: id, routes: row.routes };
            match &row.names {
                [None, None] => table.unmapped.push(peer),
                [before, after] => table.mapped.push(MappedPeer {
                    peer,
                    neighbor: Both { before: before.clone(), after: after.clone() },
                }),
            }
        }
        table
    }
}

/// The address of a neighbor given by name or address.
fn address_of(side: &Shadow, name: &str) -> Option<IpAddr> {
    let named = side.config.neighbors.iter().find(|neighbor| *neighbor.name == *name);
    named.map(|neighbor| neighbor.address).or_else(|| {
        let address: IpAddr = name.parse().ok()?;
        side.configured(address).map(|neighbor| neighbor.address)
    })
}

/// The first names, and how many more there are.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let shown: Vec<String> = names.take(NAMES_SHOWN).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

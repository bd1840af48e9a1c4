//! Predicts what another configuration would do to a routing table: which best paths change, what each neighbor
//! would be sent more or less, which of that would be leaks, and where traffic would go.
//!
//! ```text
//! route of the table ──> neighbor ──> import, shards, under the old configuration ──┐
//!                           │                                                       ├─> comparison ──> Report
//!                           └───────> import, shards, under the new configuration ──┘
//! ```
//!
//! One pass over the table evaluates both configurations, with one shared table of attribute sets, so that equal
//! attributes are one place in memory. Import, decision and export are the code of the running router (`shadow`);
//! nothing is announced and there is no session.
//!
//! Neither table nor configuration says the following, so it is assumed: every enabled neighbor is up and has
//! agreed to everything offered; every next hop is reachable at the same cost; no route is damped; there are no
//! routes from other programs. Changes that a reload cannot make are assumed to be in force, and the report says
//! that they need a restart.

mod compare;
mod condition;
mod mapping;
mod report;
mod shadow;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::peer::{PeerId, Role};
use thalweg_bgp::session::import::Rejection;
use thalweg_config::{BgpConfig, diff};
use thalweg_wire::mrt::RibEntry;

pub use compare::{Exports, Kind, Prefixes};
pub use condition::{Condition, ConditionError, Held, Needs};
pub use report::{
    Both, Change, Down, Example, Export, Failure, FailureCounts, Import, Live, MappedPeer, Move,
    NeighborChange, Report, Table, TablePeer, Traffic,
};

use crate::mrt_update::UpdateFields;
use compare::Comparison;
use mapping::Mapping;
use shadow::{Fate, Shadow};
use traffic::TrafficSums;

/// Examples of each kind.
const EXAMPLES: usize = 3;

/// Rejections by only one configuration that are remembered, for examples.
const TURNED_AWAY_MAX: usize = 1 << 16;

/// A fixed hash seed: no attacker can choose attributes to suit this one run.
const SEED: u64 = 0x7768_6174;

/// Why a question cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhatIfError {
    /// A name that neither configuration has.
    #[error("{option}: no neighbor is called {name} or has that address; there are {known}")]
    UnknownNeighbor {
        /// The option that has the name.
        option: String,
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The table has no routes.
    #[error(
        "the table has no routes: expected a RIB dump (TABLE_DUMP or TABLE_DUMP_V2), not a file of updates"
    )]
    NoRoutes,
    /// No peer of the table is a neighbor.
    #[error(
        "none of the table's peers is a neighbor of either configuration: map them with --map \
         ADDRESS=NEIGHBOR. The table has {peers}; neighbors are {known}"
    )]
    NothingMapped {
        /// Peers of the table.
        peers: String,
        known: String,
    },
}

/// The failures to evaluate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Failing {
    #[default]
    None,
    /// The failure of one neighbor, given by name or address.
    One(String),
    /// The failure of each neighbor, one at a time.
    Each,
}

/// The options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Peers of the table by address, and the name or address of the neighbor that each is.
    pub map: Vec<(IpAddr, String)>,
    /// Roles of neighbors whose configuration has none.
    pub roles: Vec<(String, Role)>,
    pub failing: Failing,
    /// Give examples with reasons.
    pub why: bool,
}

/// Routes that one configuration rejects and the other does not, and why.
type TurnedAway = HashMap<(IpPrefix, PeerId), Rejection>;

/// A comparison that still takes in the table.
pub struct WhatIf {
    options: Options,
    sides: [Shadow; 2],
    mapping: Mapping,
    fields: UpdateFields,
    routes: u64,
    faulty: u64,
    /// Indexed by neighbor.
    imports: BTreeMap<PeerId, Import>,
    turned_away: [TurnedAway; 2],
}

impl WhatIf {
    /// Begins a comparison between two configurations.
    pub fn new(old: Arc<BgpConfig>, new: Arc<BgpConfig>, options: Options) -> Result<Self, WhatIfError> {
        let interner = Arc::new(Interner::new(SEED));
        let sides = [Shadow::new(old, interner.clone()), Shadow::new(new, interner)];
        let mapping = Mapping::new(&sides, &options)?;
        Ok(Self {
            options,
            sides,
            mapping,
            fields: UpdateFields::default(),
            routes: 0,
            faulty: 0,
            imports: BTreeMap::new(),
            turned_away: Default::default(),
        })
    }

    /// Adds a route of the table.
    pub fn push(&mut self, entry: &RibEntry<'_>) {
        self.routes += 1;
        let places = self.mapping.places(entry, &mut self.sides);
        let mut fates = [Fate::NoSession; 2];
        for (at, place) in places.into_iter().enumerate() {
            if let Some(place) = place {
                fates[at] = self.sides[at].import(place, entry, &mut self.fields);
            }
        }
        self.faulty += u64::from(fates.contains(&Fate::Faulty));
        for (at, place) in places.into_iter().enumerate() {
            let Some(place) = place else { continue };
            let import = self.imports.entry(place).or_default();
            import.routes += u64::from(at == 0 || places[0] != places[1]);
            let both = match fates[at] {
                Fate::Accepted => &mut import.accepted,
                Fate::OtherFamily => &mut import.other_family,
                Fate::Rejected(rejection) => import.rejected.entry(rejection.name()).or_default(),
                Fate::NoSession | Fate::Faulty => continue,
            };
            *(if at == 0 { &mut both.before } else { &mut both.after }) += 1;
            let turned = &mut self.turned_away[at];
            if let (Fate::Rejected(rejection), Fate::Accepted) = (fates[at], fates[1 - at])
                && self.options.why
                && turned.len() < TURNED_AWAY_MAX
            {
                turned.insert((entry.prefix, place), rejection);
            }
        }
    }

    /// Ends the table: runs the decision process and puts neighbors into groups.
    pub fn converge(mut self) -> Result<Converged, WhatIfError> {
        if self.routes == 0 {
            return Err(WhatIfError::NoRoutes);
        }
        self.mapping.check()?;
        self.mapping.add_others(&mut self.sides);
        self.sides.iter_mut().for_each(Shadow::converge);
        Ok(Converged { traffic: None, inner: self })
    }
}

/// A comparison with complete tables.
pub struct Converged {
    inner: WhatIf,
    traffic: Option<TrafficSums>,
}

impl Converged {
    /// Adds bytes that were sent to an address.
    pub fn add_traffic(&mut self, destination: IpAddr, bytes: u64) {
        let sides = &self.inner.sides;
        let [old, new] = [0, 1].map(|at: usize| sides[at].route_to(destination));
        self.traffic.get_or_insert_default().add([old, new], bytes);
    }

    /// Has the report cover traffic even if no record falls into the requested time.
    pub fn with_traffic(&mut self) {
        self.traffic.get_or_insert_default();
    }

    /// Compares the two configurations.
    pub fn report(mut self) -> Report {
        let inner = &mut self.inner;
        let relations = inner.mapping.relations(&inner.sides);
        let mut report =
            Report { table: inner.mapping.table(inner.routes, inner.faulty), ..Report::default() };
        let difference = diff(&inner.sides[0].config, &inner.sides[1].config);
        report.restart = difference.restart.clone();
        report.neighbors = neighbor_changes(&difference);
        report.down = inner.down();
        report.imports = inner.imports();
        let (mut found, [old, new]) = (Found::default(), &mut inner.sides);
        let mut comparison = Comparison::of(old, new, &relations);
        comparison.run(old, new, &mut |kind, prefix, peers| found.note(kind, prefix, peers));
        report.prefixes = comparison.prefixes;
        for (place, routes) in comparison.exports.iter().enumerate().filter(|(_, routes)| !routes.is_empty())
        {
            let neighbor = inner.mapping.name(PeerId(place as u16));
            report.exports.push(Export { neighbor, routes: *routes });
            report.exports_total += *routes;
        }
        drop(comparison);
        if inner.options.why {
            report.examples = inner.examples(&found);
        }
        report.traffic = self.traffic.as_ref().map(|traffic| traffic.report(&self.inner.mapping));
        report.failures = self.failures(&relations);
        report
    }

    fn failures(&mut self, relations: &[Option<Role>]) -> Vec<Failure> {
        let Self { inner, traffic } = self;
        let places = inner.mapping.failing();
        let mut failures = Vec::new();
        for place in places {
            let mut counts = [None; 2];
            let mut moves = Vec::new();
            for (at, shadow) in inner.sides.iter_mut().enumerate() {
                if shadow.is_up(place) {
                    let bytes = traffic.as_ref().map(|traffic| traffic.by_prefix(at));
                    let (count, moved) = fail(shadow, place, relations, bytes);
                    counts[at] = Some(count);
                    if at == 1 {
                        moves = traffic::moves(&moved, &inner.mapping);
                    }
                }
            }
            let [before, after] = counts;
            failures.push(Failure {
                neighbor: inner.mapping.name(place),
                counts: Both { before, after },
                moves,
            });
        }
        failures
    }
}

/// Evaluates a neighbor's failure, and restores the neighbor.
fn fail(
    shadow: &mut Shadow,
    place: PeerId,
    relations: &[Option<Role>],
    bytes: Option<&HashMap<IpPrefix, u64>>,
) -> (FailureCounts, traffic::Moves) {
    let mut comparison = Comparison::of_failure(shadow, place, relations);
    let mut moves = traffic::Moves::default();
    let mut homeless = Vec::new();
    let withdrawn = shadow.withdraw(place, &mut |changes, mut side| {
        comparison.changes(changes, &mut side, &mut |kind, prefix, peers| {
            let Some(bytes) = bytes.and_then(|bytes| bytes.get(&prefix)) else { return };
            match kind {
                Kind::Moved => *moves.entry(peers).or_default() += *bytes,
                Kind::Lost => homeless.push((prefix, peers[0], *bytes)),
                Kind::New | Kind::Attributes | Kind::Leak => {}
            }
        });
    });
    // A shorter prefix may still have a path.
    for (prefix, from, bytes) in homeless {
        let to = shadow.route_to(prefix.address()).map(|(_, to)| to);
        *moves.entry([from, to]).or_default() += bytes;
    }
    shadow.put_back(&withdrawn);
    let (moved, lost) = traffic::split(&moves);
    let leaks = comparison.exports.iter().map(|exports| exports.leaks).sum();
    let counts = FailureCounts {
        lost: comparison.prefixes.lost,
        moved: comparison.prefixes.moved,
        leaks,
        bytes_moved: moved,
        bytes_lost: lost,
    };
    (counts, moves)
}

/// A prefix, and the neighbors of its best paths.
type Instance = (IpPrefix, [Option<PeerId>; 2]);

/// Prefixes for examples.
#[derive(Default)]
struct Found(BTreeMap<Kind, Vec<Instance>>);

impl Found {
    fn note(&mut self, kind: Kind, prefix: IpPrefix, peers: [Option<PeerId>; 2]) {
        let of_kind = self.0.entry(kind).or_default();
        // At most one for each pair of neighbors: ten thousand prefixes that move together are one example.
        if of_kind.len() < EXAMPLES && !of_kind.iter().any(|(_, others)| *others == peers) {
            of_kind.push((prefix, peers));
        }
    }
}

impl WhatIf {
    fn examples(&self, found: &Found) -> Vec<Example> {
        let all = found.0.iter().flat_map(|(kind, found)| found.iter().map(move |each| (*kind, each)));
        let example = |(kind, (prefix, peers)): (Kind, &Instance)| {
            let [before, after] = [0, 1].map(|at: usize| self.sides[at].explain(*prefix));
            let mut notes = Vec::new();
            for at in 0..2 {
                notes.extend(self.missing(at, *prefix, peers[1 - at]));
            }
            Example { kind, prefix: prefix.to_string(), paths: Both { before, after }, notes }
        };
        all.map(example).collect()
    }

    /// Why a side lacks the path that is the other side's best.
    fn missing(&self, at: usize, prefix: IpPrefix, best: Option<PeerId>) -> Option<String> {
        let when = if at == 0 { "before" } else { "after" };
        let place = best?;
        let shadow = &self.sides[at];
        let name = self.mapping.name(place);
        if place == PeerId::LOCAL {
            let has = shadow.config.networks.contains(&prefix);
            return (!has).then(|| format!("{when}, {prefix} is not among `networks`"));
        }
        if let Some(why) = shadow.refused.get(&place) {
            return Some(format!("{when}, {name} is not up: {why}"));
        }
        let Some(neighbor) = shadow.neighbor(place) else {
            return Some(format!("{when}, there is no neighbor {name}"));
        };
        if let Some(why) = &neighbor.down {
            return Some(format!("{when}, {name} is not up: {why}"));
        }
        let rejection = self.turned_away[at].get(&(prefix, place))?;
        Some(format!("{when}, import rejects the route of {name}: {}", rejection.name().replace('_', " ")))
    }

    fn down(&self) -> Vec<Down> {
        let why = |at: usize, place: PeerId| {
            let shadow = &self.sides[at];
            let down = shadow.neighbor(place).and_then(|neighbor| neighbor.down.clone());
            shadow.refused.get(&place).cloned().or(down)
        };
        let all = self.mapping.places_all().map(|place| (place, why(0, place), why(1, place)));
        all.filter(|(_, before, after)| before.is_some() || after.is_some())
            .map(|(place, before, after)| Down {
                neighbor: self.mapping.name(place),
                why: Both { before, after },
            })
            .collect()
    }

    fn imports(&self) -> Vec<Import> {
        let named = |(place, import): (&PeerId, &Import)| Import {
            neighbor: self.mapping.name(*place),
            ..import.clone()
        };
        self.imports.iter().map(named).collect()
    }
}

fn neighbor_changes(difference: &thalweg_config::BgpDiff) -> Vec<NeighborChange> {
    let named = |name: &Arc<str>, change| NeighborChange { neighbor: name.to_string(), change };
    let removed = difference.removed.iter().map(|each| named(&each.name, Change::Removed));
    let added = difference.added.iter().map(|each| named(&each.name, Change::Added));
    let reset = difference.reset.iter().map(|each| named(&each.name, Change::SessionRestarts));
    let quiet = difference.quiet.iter().map(|each| named(&each.name, Change::Settings));
    let refiltered = difference.refiltered.iter().map(|each| {
        let change = match (each.import, each.export) {
            (true, true) => Change::ImportAndExport,
            (true, false) => Change::Import,
            (false, _) => Change::Export,
        };
        named(&each.neighbor.name, change)
    });
    removed.chain(added).chain(reset).chain(refiltered).chain(quiet).collect()
}

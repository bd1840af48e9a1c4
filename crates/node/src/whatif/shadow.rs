//! A router's BGP under one configuration, without sessions. Routes go in through the import of their neighbor, and
//! what each neighbor would be sent comes out. Its parts are those of the [`Speaker`](crate::speaker::Speaker),
//! called in the same order by one thread, so without locks.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use thalweg_base::{Address, IpPrefix, Prefix};
use thalweg_bgp::attrs::Interner;
use thalweg_bgp::export::Preview;
use thalweg_bgp::peer::{Millis, PeerId, PeerTable};
use thalweg_bgp::rib::{RibAddress, RibShard, ScanCursor, ShardConfig, Withdrawal};
use thalweg_bgp::route::{Changes, RouteBatch, RouteBatchBuilder, SHARDS, shard_of};
use thalweg_bgp::session::config::{MaxPrefixesAction, RemoteAs};
use thalweg_bgp::session::import::Rejection;
use thalweg_bgp::session::{AssumedNeighbor, Importer, Negotiated, NeighborConfig, assume};
use thalweg_config::BgpConfig;
use thalweg_wire::bgp::{Family, Update, Verdict};
use thalweg_wire::mrt::{AsSize, Peer, RibEntry};

use crate::control::RouteView;
use crate::mrt_update::UpdateFields;
use crate::speaker::{ViewOrigins, explained, origination, view_of};

/// Routes of a neighbor that are applied to the shards together.
const BATCH_ROUTES: usize = 2048;

/// Prefixes withdrawn, scanned or decided at once; it bounds the changes held in memory.
const SLICE_PREFIXES: usize = 4096;

/// What happened to a route of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The configuration lacks the neighbor, or its session would not be up.
    NoSession,
    Accepted,
    /// Import rejected it.
    Rejected(Rejection),
    /// The session does not carry its family.
    OtherFamily,
    /// A session would not accept the attributes (RFC 7606), or they fit in no message.
    Faulty,
}

/// A neighbor whose session is up.
pub(super) struct Neighbor {
    pub(super) config: Arc<NeighborConfig>,
    negotiated: Arc<Negotiated>,
    /// The same, except that AS numbers have the table's length.
    reading: Arc<Negotiated>,
    importer: Importer,
    routes: RouteBatchBuilder,
    /// Why its session would not stay up.
    pub(super) down: Option<String>,
}

/// Neighbors that are sent the same.
pub(super) struct Group {
    pub(super) preview: Preview,
    pub(super) members: Vec<PeerId>,
}

/// A table's state for export.
pub(super) type Side<'a> = (&'a mut [Group], &'a PeerTable);

/// Withdrawn routes, to be restored.
pub(super) type Withdrawn = Vec<RouteBatch>;

/// A router's BGP without sessions; see the [module](self).
pub(super) struct Shadow {
    pub(super) config: Arc<BgpConfig>,
    interner: Arc<Interner>,
    /// Indexed by neighbor.
    neighbors: Vec<Option<Neighbor>>,
    /// Why neighbors never come up.
    pub(super) refused: HashMap<PeerId, String>,
    pub(super) peers: PeerTable,
    shards: Vec<RibShard>,
    pub(super) groups: Vec<Group>,
    changes: Changes,
    body: Vec<u8>,
}

impl Shadow {
    pub(super) fn new(config: Arc<BgpConfig>, interner: Arc<Interner>) -> Self {
        let shard =
            |shard| RibShard::new(ShardConfig { shard, decision: config.decision, ..ShardConfig::default() });
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            interner,
            neighbors: Vec::new(),
            refused: HashMap::new(),
            peers: PeerTable::default(),
            groups: Vec::new(),
            changes: Changes::default(),
            body: Vec::new(),
            config,
        }
    }

    /// The configuration of the neighbor at an address: its own, or that of its dynamic range.
    pub(super) fn configured(&self, address: IpAddr) -> Option<Arc<NeighborConfig>> {
        let named = self.config.neighbors.iter().find(|neighbor| neighbor.address == address);
        named.cloned().or_else(|| {
            let mut ranges = self.config.groups.iter().filter_map(|group| group.dynamic.as_ref());
            ranges.find(|range| range.contains(address)).map(|range| Arc::new(range.neighbor(address)))
        })
    }

    /// Adds the neighbor at an address with its session up. `peer` is the peer of the table whose routes it gets.
    pub(super) fn add(&mut self, place: PeerId, config: Arc<NeighborConfig>, peer: Option<&Peer>) {
        if !config.enabled {
            self.refused.insert(place, "it is disabled (`enabled = false`)".to_owned());
            return;
        }
        let negotiated = match assume(&config, assumed(&config, peer)) {
            Ok(negotiated) => Arc::new(negotiated),
            Err(problem) => {
                self.refused.insert(place, problem.to_string());
                return;
            }
        };
        let mut importer = Importer::new(self.interner.clone());
        importer.begin(&negotiated, &config, place);
        let rules = config.import.rules.as_deref();
        importer.set_policy(rules.map(|rules| self.config.policy(Some(rules), negotiated.kind)));
        self.peers.insert(Arc::new(negotiated.peer_info(place, &config)));
        if self.neighbors.len() <= place.index() {
            self.neighbors.resize_with(place.index() + 1, || None);
        }
        let routes = RouteBatchBuilder::default();
        let reading = negotiated.clone();
        self.neighbors[place.index()] =
            Some(Neighbor { config, negotiated, reading, importer, routes, down: None });
    }

    pub(super) fn neighbor(&self, place: PeerId) -> Option<&Neighbor> {
        self.neighbors.get(place.index())?.as_ref()
    }

    /// Whether the neighbor's session is up.
    pub(super) fn is_up(&self, place: PeerId) -> bool {
        self.neighbor(place).is_some_and(|neighbor| neighbor.down.is_none())
    }

    /// Imports a route of the table as if its neighbor had sent it.
    pub(super) fn import(&mut self, place: PeerId, entry: &RibEntry<'_>, fields: &mut UpdateFields) -> Fate {
        let Some(neighbor) = self.neighbors.get_mut(place.index()).and_then(Option::as_mut) else {
            return Fate::NoSession;
        };
        let fate = neighbor.import(entry, fields, &mut self.body);
        if neighbor.routes.len() >= BATCH_ROUTES {
            let batch = neighbor.routes.finish(place, 0);
            self.apply(&batch);
        }
        fate
    }

    fn apply(&mut self, batch: &RouteBatch) {
        for (index, shard) in self.shards.iter_mut().enumerate().filter(|(index, _)| batch.touches(*index)) {
            shard.apply(batch, &self.peers, &mut self.changes);
            debug_assert_eq!(self.changes.shard, index);
            forget(&mut self.changes);
        }
    }

    /// Ends the table: adds this router's own networks, ends sessions that exceed their limits, and puts neighbors
    /// into groups.
    pub(super) fn converge(&mut self) {
        let mut own = origination(&self.interner, &[], &self.config.networks, &[]);
        self.apply(&own.finish(PeerId::LOCAL, 0));
        for place in self.places() {
            let neighbor = self.neighbors.get_mut(place.index()).and_then(Option::as_mut);
            let batch = neighbor.map(|neighbor| neighbor.routes.finish(place, 0));
            batch.iter().for_each(|batch| self.apply(batch));
        }
        for place in self.places() {
            if let Some(why) = self.above_limit(place) {
                self.withdraw(place, &mut |_, _| {});
                if let Some(neighbor) = &mut self.neighbors[place.index()] {
                    neighbor.down = Some(why);
                }
            }
        }
        self.make_groups();
    }

    /// Neighbors that came up.
    fn places(&self) -> Vec<PeerId> {
        self.peers.iter().map(|info| info.id).collect()
    }

    fn above_limit(&self, place: PeerId) -> Option<String> {
        let neighbor = self.neighbor(place)?;
        Family::ALL.into_iter().find_map(|family| {
            let limit = neighbor.config.max_prefixes[family.index()]?;
            let paths: usize = self.shards.iter().map(|shard| shard.peer_paths(place, family)).sum();
            let above = paths > limit.limit as usize && limit.action != MaxPrefixesAction::Warn;
            above.then(|| format!("{paths} {family} prefixes are above its limit of {}", limit.limit))
        })
    }

    /// Neighbors with equal views share a group, as in update groups; then shards report as many ranks as a view
    /// needs.
    fn make_groups(&mut self) {
        let mut depth = 1;
        for place in self.places() {
            let Some(neighbor) = self.neighbors[place.index()].as_ref().filter(|each| each.down.is_none())
            else {
                continue;
            };
            let info = Arc::new(neighbor.negotiated.peer_info(place, &neighbor.config));
            let rules = neighbor.config.export.rules.as_deref();
            let policy = self.config.policy(rules, info.kind);
            let view = Arc::new(view_of(&neighbor.config, &neighbor.negotiated, &info, policy, None));
            depth = Family::ALL.iter().map(|family| view.depth(*family)).fold(depth, usize::max);
            let found = self.groups.iter().position(|group| *group.preview.view() == view);
            let at = found.unwrap_or_else(|| {
                self.groups.push(Group { preview: Preview::new(view, info.clone()), members: Vec::new() });
                self.groups.len() - 1
            });
            self.groups[at].preview.join(place, info.remote_as);
            self.groups[at].members.push(place);
        }
        if depth > 1 {
            for shard in &mut self.shards {
                shard.set_depth(depth);
                for family in Family::ALL {
                    let mut cursor = ScanCursor::START;
                    let (peers, changes) = (&self.peers, &mut self.changes);
                    while !shard.reevaluate(family, &mut cursor, SLICE_PREFIXES, peers, changes) {
                        forget(changes);
                    }
                    forget(changes);
                }
            }
        }
    }

    pub(super) fn group_of(&self, place: PeerId) -> Option<usize> {
        self.groups.iter().position(|group| group.members.contains(&place))
    }

    /// Ends a neighbor's session: withdraws its routes and passes the changes, with the groups, to `show`. Returns
    /// the withdrawn routes, for [`Self::put_back`].
    pub(super) fn withdraw(&mut self, place: PeerId, show: &mut dyn FnMut(&Changes, Side<'_>)) -> Withdrawn {
        let withdrawn = self.saved(place);
        let Self { shards, groups, peers, changes, .. } = self;
        for shard in shards {
            for family in Family::ALL {
                let (mut cursor, mut done) = (ScanCursor::START, false);
                while !done {
                    let which = Withdrawal::All(place);
                    done = shard.withdraw(which, family, &mut cursor, SLICE_PREFIXES, peers, changes);
                    show(changes, (groups, peers));
                    forget(changes);
                }
            }
        }
        withdrawn
    }

    /// All routes of a neighbor.
    fn saved(&self, place: PeerId) -> Withdrawn {
        let (mut batches, mut routes) = (Vec::new(), RouteBatchBuilder::default());
        for shard in &self.shards {
            save::<u32>(shard, place, &mut routes, &mut batches, RouteBatchBuilder::push_v4);
            save::<u128>(shard, place, &mut routes, &mut batches, RouteBatchBuilder::push_v6);
        }
        batches.push(routes.finish(place, 0));
        batches
    }

    /// Restores a neighbor's routes.
    pub(super) fn put_back(&mut self, withdrawn: &Withdrawn) {
        withdrawn.iter().for_each(|batch| self.apply(batch));
    }

    /// The longest matching prefix that has a best path, and that path's neighbor.
    pub(super) fn route_to(&self, address: IpAddr) -> Option<(IpPrefix, PeerId)> {
        match address {
            IpAddr::V4(address) => self.route_to_in(u32::from(address)),
            IpAddr::V6(address) => self.route_to_in(u128::from(address)),
        }
    }

    fn route_to_in<A: RibAddress + Address>(&self, address: A) -> Option<(IpPrefix, PeerId)> {
        let matches = self.shards.iter().filter_map(|shard| shard.longest_match(address));
        let longest = matches.max_by_key(|route| route.prefix.length())?;
        Some((A::to_ip_prefix(longest.prefix), longest.best()?.peer))
    }

    /// The paths of a prefix, each with why it is or is not the best.
    pub(super) fn explain(&self, prefix: IpPrefix) -> Vec<RouteView> {
        match prefix {
            IpPrefix::V4(prefix) => explained(
                &self.shards[shard_of(prefix)],
                prefix,
                true,
                &self.peers,
                &ViewOrigins::default(),
                Millis(0),
            ),
            IpPrefix::V6(prefix) => explained(
                &self.shards[shard_of(prefix)],
                prefix,
                true,
                &self.peers,
                &ViewOrigins::default(),
                Millis(0),
            ),
        }
    }

    /// The parts that a comparison reads.
    pub(super) fn parts(&mut self) -> (&[RibShard], &mut [Group], &PeerTable) {
        (&self.shards, &mut self.groups, &self.peers)
    }
}

impl Neighbor {
    fn import(&mut self, entry: &RibEntry<'_>, fields: &mut UpdateFields, body: &mut Vec<u8>) -> Fate {
        self.read_as(entry.as_size == AsSize::Four);
        let codec = &self.reading.codec;
        let family = match entry.prefix {
            IpPrefix::V4(_) => Family::Ipv4,
            IpPrefix::V6(_) => Family::Ipv6,
        };
        let with_id = codec.add_path_receive[family.index()];
        let path_id = with_id.then(|| entry.path_id.unwrap_or(0));
        let Some(body) = fields.fill(entry, path_id).and_then(|_| fields.body(body)) else {
            return Fate::Faulty;
        };
        let Ok(update) = Update::parse(body, codec, self.importer.facts()) else { return Fate::Faulty };
        if update.verdict != Verdict::Good {
            return Fate::Faulty;
        }
        let before = *self.importer.counters();
        self.importer.import(&update, body, &mut self.routes);
        let after = self.importer.counters();
        if after.accepted > before.accepted {
            return Fate::Accepted;
        }
        let grew = |rejection: &Rejection| after.rejected(*rejection) > before.rejected(*rejection);
        match Rejection::all().find(grew) {
            Some(rejection) => Fate::Rejected(rejection),
            None => Fate::OtherFamily,
        }
    }

    /// Old tables have AS numbers of two bytes, whatever the session has.
    fn read_as(&mut self, four_octet_as: bool) {
        if self.reading.codec.four_octet_as == four_octet_as {
            return;
        }
        let mut reading = (*self.reading).clone();
        reading.codec.four_octet_as = four_octet_as;
        self.reading = Arc::new(reading);
        let place = self.importer.peer().id;
        self.importer.begin(&self.reading, &self.config, place);
    }
}

/// The OPEN that we assume of a neighbor, from the table and the configuration.
fn assumed(config: &NeighborConfig, peer: Option<&Peer>) -> AssumedNeighbor {
    let asn = match &config.remote_as {
        RemoteAs::One(asn) => *asn,
        other => match peer.filter(|peer| other.matches(peer.asn)) {
            Some(peer) => peer.asn,
            None => match other {
                RemoteAs::AnyOf(ranges) => ranges.first().map_or(0, |range| range.0),
                _ => 0,
            },
        },
    };
    let usable = |id: &Ipv4Addr| !id.is_unspecified() && *id != config.router_id;
    let by_address = match config.address {
        IpAddr::V4(address) => address,
        // Any identifier but ours will do: it decides only between paths that are otherwise equal.
        IpAddr::V6(address) => Ipv4Addr::from(u128::from(address) as u32 | 1),
    };
    let router_id = peer.map(|peer| peer.id).filter(usable).unwrap_or(by_address);
    let unspecified: IpAddr = match config.address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    AssumedNeighbor { asn, router_id, local_address: config.transport.local_address.unwrap_or(unspecified) }
}

fn forget(changes: &mut Changes) {
    changes.v4.clear();
    changes.v6.clear();
}

fn save<A: RibAddress>(
    shard: &RibShard,
    place: PeerId,
    routes: &mut RouteBatchBuilder,
    batches: &mut Withdrawn,
    push: fn(&mut RouteBatchBuilder, Prefix<A>, u32, u32),
) {
    if shard.peer_paths(place, A::FAMILY) == 0 {
        return;
    }
    let (mut cursor, mut done) = (ScanCursor::START, false);
    while !done {
        done = shard.scan::<A>(&mut cursor, SLICE_PREFIXES, &mut |route| {
            for path in route.paths().filter(|path| path.peer == place) {
                let attrs = routes.push_attrs(path.attrs.clone());
                push(routes, route.prefix, path.path_id, attrs);
            }
        });
        if routes.len() >= BATCH_ROUTES {
            batches.push(routes.finish(place, 0));
        }
    }
}

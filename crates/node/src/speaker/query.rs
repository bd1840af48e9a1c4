//! Answers questions about a running speaker.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;
use thalweg_base::{IpPrefix, Prefix};
use thalweg_bgp::attrs::{Attrs, flag};
use thalweg_bgp::peer::{Millis, PeerId, PeerInfo, PeerTable};
use thalweg_bgp::rib::{Explained, PathView, RibAddress, RibShard, ScanCursor, Step, Verdict};
use thalweg_bgp::session::config::KeepRejected;
use thalweg_bgp::session::import::Rejection;
use thalweg_bgp::session::{MessageCounters, Negotiated, Remark, State, StopReason, Transitions};
use thalweg_wire::bgp::Family;

use super::Speaker;
use super::origins::ViewOrigins;
use super::slot::{PeerSlot, PeerState};
use crate::ProcessFacts;
use crate::control::{
    Answer, AnswerError, BgpNeighborView, BgpRequest, Emit, MemoryView, MessagesView, NegotiatedView,
    RibView, RouteFilter, RouteView, UpDown, communities, emit_all, to_json,
};

/// Prefixes scanned while holding a shard's lock once.
pub(super) const SLICE_PREFIXES: usize = 1024;

/// Receives routes. An error means that the reader is gone.
type EmitRoute<'e> = &'e mut dyn FnMut(RouteView) -> io::Result<()>;

/// A session's state and counters.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The neighbor's name in the configuration.
    pub name: Arc<str>,
    pub address: IpAddr,
    pub state: State,
    /// State transitions so far.
    pub transitions: Transitions,
    /// Routes from the neighbor in the RIB, both families together.
    pub accepted: u64,
}

/// Receives a prefix, a path, whether it is the best, and its neighbor.
type SeePath<'a> = dyn FnMut(IpPrefix, &PathView<'_>, bool, Option<&PeerInfo>) + 'a;

impl Speaker {
    /// Answers a request, one item at a time.
    pub fn answer(&self, request: &BgpRequest, emit: Emit<'_>) -> Answer {
        let now = self.last_time();
        match request {
            BgpRequest::Neighbors => emit_all(Ok(self.neighbors()), emit),
            BgpRequest::Neighbor { neighbor } => {
                let slot = self.find(neighbor).ok_or_else(|| unknown(neighbor));
                emit_all(slot.map(|slot| [neighbor_view(&slot, &self.look(&slot), now)]), emit)
            }
            BgpRequest::Routes(filter) => match (filter.export_to(), self.select(filter)) {
                (_, Err(error)) => Ok(Err(error)),
                (Some(neighbor), Ok(selection)) => self.advertised(neighbor, selection, emit),
                (None, Ok(selection)) if filter.pre_policy || filter.rejected => {
                    self.received(&selection, emit)
                }
                (None, Ok(selection)) => selection.emit_all(self, &mut |view| emit(to_json(&view))),
            },
            BgpRequest::Route { destination, exact, why } => self.route(destination, *exact, *why, now, emit),
            BgpRequest::Rib => emit_all(Ok([self.rib_view()]), emit),
            BgpRequest::Rpki => emit_all(self.rpki_view().map(|view| [view]), emit),
            BgpRequest::Vrps { prefix, origin_as } => {
                emit_all(self.validity_view(prefix, *origin_as).map(|view| [view]), emit)
            }
            BgpRequest::UpdateGroups => emit_all(Ok(self.group_views()), emit),
            BgpRequest::Memory => emit_all(Ok([self.memory_view()]), emit),
            BgpRequest::Functions => {
                let functions = self.profile.to_json();
                emit_all(functions.map(|functions| [functions]).ok_or(AnswerError::NotProfiled), emit)
            }
            BgpRequest::Refresh { neighbor } => Ok(self.refresh_neighbor(neighbor, now)),
            BgpRequest::Reset { neighbor, text } => {
                Ok(self.stop_neighbor(neighbor, StopReason::Reset { text: text.clone() }, now))
            }
            BgpRequest::Shutdown { neighbor, text } => {
                Ok(self.stop_neighbor(neighbor, StopReason::Shutdown { text: text.clone() }, now))
            }
            BgpRequest::Start { neighbor } => Ok(self.with_neighbor(neighbor, now, |state| {
                state.session.handle_start(now);
                Ok(())
            })),
        }
    }

    /// The view of each neighbor.
    pub fn neighbors(&self) -> Vec<BgpNeighborView> {
        let now = self.last_time();
        self.slots_in_use().iter().map(|slot| neighbor_view(slot, &self.look(slot), now)).collect()
    }

    /// The session of each neighbor, and its routes in the RIB.
    pub fn sessions(&self) -> Vec<SessionFacts> {
        let facts = |slot: &Arc<PeerSlot>| {
            let state = self.look(slot);
            SessionFacts {
                name: state.config.name.clone(),
                address: state.config.address,
                state: state.session.state(),
                transitions: state.session.counters().transitions,
                accepted: Family::ALL.map(|family| u64::from(slot.paths.get(family))).iter().sum(),
            }
        };
        self.slots_in_use().iter().map(facts).collect()
    }

    /// Passes all paths in the RIB to `see`, shard by shard.
    pub fn each_path(&self, see: &mut SeePath<'_>) {
        let peers = self.peers();
        for shard in &self.shards {
            let rib = shard.rib();
            see_all::<u32>(&rib, &peers, see);
            see_all::<u128>(&rib, &peers, see);
        }
    }

    /// How many neighbors are up and down, and a sentence for each that is down.
    pub fn neighbor_status(&self) -> (UpDown, Vec<String>) {
        let (mut count, mut problems) = (UpDown::default(), Vec::new());
        for slot in self.slots_in_use() {
            let state = self.look(&slot);
            if state.session.state() == State::Established {
                count.up += 1;
                continue;
            }
            count.down += 1;
            let why = state.session.counters().last_error.as_deref().unwrap_or("never established");
            problems.push(format!("neighbor {} is {}: {why}", state.config.name, state.session.state()));
        }
        (count, problems)
    }

    pub(super) fn find(&self, neighbor: &str) -> Option<Arc<PeerSlot>> {
        let address: Option<IpAddr> = neighbor.parse().ok();
        self.slots_in_use().into_iter().find(|slot| {
            let state = self.look(slot);
            *state.config.name == *neighbor || Some(state.config.address) == address
        })
    }

    fn with_neighbor(
        &self,
        neighbor: &str,
        now: Millis,
        act: impl FnOnce(&mut PeerState) -> Result<(), AnswerError>,
    ) -> Result<(), AnswerError> {
        let slot = self.find(neighbor).ok_or_else(|| unknown(neighbor))?;
        let result = {
            let mut state = slot.lock();
            let result = act(&mut state);
            self.drive_alone(&slot, &mut state, now);
            result
        };
        self.write_slot(&slot, now);
        self.wake();
        result
    }

    fn refresh_neighbor(&self, neighbor: &str, now: Millis) -> Result<(), AnswerError> {
        self.with_neighbor(neighbor, now, |state| {
            let Some(negotiated) = state.negotiated.clone() else {
                return Err(AnswerError::SessionDown(neighbor.to_owned()));
            };
            if !negotiated.route_refresh {
                return Err(AnswerError::NoRouteRefresh(neighbor.to_owned()));
            }
            for family in Family::ALL.into_iter().filter(|family| negotiated.family(*family)) {
                state.session.refresh(family);
            }
            Ok(())
        })
    }

    fn stop_neighbor(&self, neighbor: &str, reason: StopReason, now: Millis) -> Result<(), AnswerError> {
        self.with_neighbor(neighbor, now, |state| {
            state.session.handle_stop(reason, now);
            Ok(())
        })
    }

    pub(super) fn select(&self, filter: &RouteFilter) -> Result<Selection, AnswerError> {
        let now = self.last_time();
        let neighbor = match &filter.neighbor {
            None => None,
            Some(name) => Some(self.find(name).ok_or_else(|| unknown(name))?.id),
        };
        let prefix = |text: &Option<String>| text.as_deref().map(AnswerError::prefix).transpose();
        let (inside, after) = (prefix(&filter.inside)?, prefix(&filter.after)?);
        let family = match (filter.family.as_deref(), inside) {
            (Some("ipv4"), _) | (None, Some(IpPrefix::V4(_))) => Some(Family::Ipv4),
            (Some("ipv6"), _) | (None, Some(IpPrefix::V6(_))) => Some(Family::Ipv6),
            (Some(other), _) => return Err(AnswerError::Family(other.to_owned())),
            (None, None) => None,
        };
        let (peers, origins) = (self.peers(), self.view_origins());
        Ok(Selection { filter: filter.clone(), neighbor, inside, after, family, now, peers, origins })
    }

    fn route(&self, destination: &str, exact: bool, why: bool, now: Millis, emit: Emit<'_>) -> Answer {
        let prefix = match (destination.parse::<IpPrefix>(), destination.parse::<IpAddr>()) {
            (Ok(prefix), _) => prefix,
            (_, Ok(IpAddr::V4(address))) => Prefix::from(ipnet::Ipv4Net::from(address)).into(),
            (_, Ok(IpAddr::V6(address))) => Prefix::from(ipnet::Ipv6Net::from(address)).into(),
            (Err(error), Err(_)) => {
                return Ok(Err(AnswerError::Destination { text: destination.to_owned(), error }));
            }
        };
        match prefix {
            IpPrefix::V4(prefix) => self.route_of(prefix, exact, why, now, emit)?,
            IpPrefix::V6(prefix) => self.route_of(prefix, exact, why, now, emit)?,
        }
        Ok(Ok(()))
    }

    fn route_of<A: RibAddress>(
        &self,
        destination: Prefix<A>,
        exact: bool,
        why: bool,
        now: Millis,
        emit: Emit<'_>,
    ) -> io::Result<()> {
        let (peers, origins) = (self.peers(), self.view_origins());
        for length in (0..=destination.length()).rev() {
            if exact && length != destination.length() {
                return Ok(());
            }
            let Ok(prefix) = Prefix::new(destination.address(), length) else { return Ok(()) };
            let views = {
                let rib = self.shards[self.shard_of(prefix)].rib();
                explained(&rib, prefix, why, &peers, &origins, now)
            };
            if !views.is_empty() {
                return views.iter().try_for_each(|view| emit(to_json(view)));
            }
        }
        Ok(())
    }

    /// A summary of the RIB.
    pub fn rib_view(&self) -> RibView {
        let (mut prefixes, mut paths, mut kept, mut kept_refused) = ([0; 2], [0; 2], [0; 2], 0);
        for shard in &self.shards {
            let counters = shard.rib().counters();
            for family in Family::ALL {
                prefixes[family.index()] += counters.prefixes[family.index()] as u64;
                paths[family.index()] += counters.paths[family.index()] as u64;
                kept[family.index()] += counters.received_paths[family.index()] as u64;
            }
            kept_refused += counters.received_refused;
        }
        let config = self.config();
        RibView {
            local_as: config.local_as,
            router_id: config.router_id.to_string(),
            prefixes: prefixes.into(),
            paths: paths.into(),
            kept: kept.into(),
            kept_refused,
            attribute_sets: self.interner.counters().sets as u64,
            unknown_refused: self.strangers.count(),
            shards: self.shards.len(),
            scheduling: self.scheduling.clone(),
            restart: self.restart.view(self.last_time()),
        }
    }

    fn memory_view(&self) -> MemoryView {
        let (mut rib, mut received) = (0, 0);
        for shard in &self.shards {
            let counters = shard.rib().counters();
            rib += counters.bytes as u64;
            received += counters.received_bytes as u64;
        }
        let process = ProcessFacts::read();
        MemoryView {
            rib,
            received,
            attributes: self.interner.counters().bytes as u64,
            update_groups: self.group_views().iter().map(|view| view.log_bytes).sum(),
            resident: process.resident,
            resident_peak: process.resident_peak,
        }
    }
}

fn see_all<A: RibAddress>(rib: &RibShard, peers: &PeerTable, see: &mut SeePath<'_>) {
    let mut cursor = ScanCursor::START;
    rib.scan::<A>(&mut cursor, usize::MAX, &mut |route| {
        let best = route.best().map(|best| (best.peer, best.local_id));
        for path in route.paths() {
            let is_best = best == Some((path.peer, path.local_id));
            see(A::to_ip_prefix(route.prefix), &path, is_best, peers.get(path.peer).map(|info| &**info));
        }
    });
}

/// Both families of a shard from their beginnings on.
const BOTH: [Option<ScanCursor>; 2] = [Some(ScanCursor::START); 2];

/// The selected routes of a `show` request.
pub(super) struct Selection {
    pub(super) filter: RouteFilter,
    pub(super) neighbor: Option<PeerId>,
    inside: Option<IpPrefix>,
    after: Option<IpPrefix>,
    family: Option<Family>,
    pub(super) now: Millis,
    pub(super) peers: Arc<PeerTable>,
    origins: ViewOrigins,
}

impl Selection {
    fn emit_all(&self, speaker: &Speaker, emit: EmitRoute<'_>) -> Answer {
        let mut left = self.filter.limit.unwrap_or(usize::MAX);
        let (first, mut from) = match self.start(speaker) {
            Ok((shard, from)) => (shard, from),
            Err(gone) => return Ok(Err(gone)),
        };
        for shard in speaker.shards.iter().skip(first) {
            let [ipv4, ipv6] = std::mem::replace(&mut from, BOTH);
            if let Some(cursor) = ipv4.filter(|_| self.has(Family::Ipv4)) {
                self.emit_shard::<u32>(|| shard.rib(), cursor, &mut left, emit)?;
            }
            if let Some(cursor) = ipv6.filter(|_| self.has(Family::Ipv6)) {
                self.emit_shard::<u128>(|| shard.rib(), cursor, &mut left, emit)?;
            }
        }
        Ok(Ok(()))
    }

    /// The shard in which the list begins, and where in it: by family, `None` for one that is done.
    fn start(&self, speaker: &Speaker) -> Result<(usize, [Option<ScanCursor>; 2]), AnswerError> {
        let Some(after) = self.after else { return Ok((0, BOTH)) };
        let (shard, from) = match after {
            IpPrefix::V4(prefix) => {
                let shard = speaker.shard_of(prefix);
                let cursor = speaker.shards[shard].rib().behind(prefix);
                (shard, cursor.map(|cursor| [Some(cursor), Some(ScanCursor::START)]))
            }
            IpPrefix::V6(prefix) => {
                let shard = speaker.shard_of(prefix);
                (shard, speaker.shards[shard].rib().behind(prefix).map(|cursor| [None, Some(cursor)]))
            }
        };
        from.map(|from| (shard, from)).ok_or_else(|| AnswerError::CursorGone(after.to_string()))
    }

    fn emit_shard<'s, A: RibAddress>(
        &self,
        rib: impl Fn() -> parking_lot::MutexGuard<'s, RibShard>,
        mut cursor: ScanCursor,
        left: &mut usize,
        emit: EmitRoute<'_>,
    ) -> io::Result<()> {
        let mut found = Vec::new();
        loop {
            let done = rib().scan::<A>(&mut cursor, SLICE_PREFIXES, &mut |route| {
                if !self.is_inside(A::to_ip_prefix(route.prefix)) {
                    return;
                }
                let best = route.best().map(|best| (best.peer, best.local_id));
                for path in route.paths() {
                    let is_best = best == Some((path.peer, path.local_id));
                    if found.len() < *left && self.wants(&path, is_best) {
                        found.push(self.route_view(route.prefix, &path, is_best));
                    }
                }
            });
            *left -= found.len();
            found.drain(..).try_for_each(&mut *emit)?;
            if done || *left == 0 {
                return Ok(());
            }
        }
    }

    pub(super) fn route_view<A: RibAddress>(
        &self,
        prefix: Prefix<A>,
        path: &PathView<'_>,
        best: bool,
    ) -> RouteView {
        route_view(prefix, path, best, &self.peers, &self.origins, self.now)
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.family.is_none_or(|only| only == family)
    }

    pub(super) fn is_inside(&self, prefix: IpPrefix) -> bool {
        self.inside.is_none_or(|outer| outer.covers(prefix))
    }

    pub(super) fn wants(&self, path: &PathView<'_>, is_best: bool) -> bool {
        (!self.filter.best || is_best)
            && self.neighbor.is_none_or(|peer| path.peer == peer)
            && self.admits(path.attrs)
    }

    /// Whether the filter admits a route with these attributes.
    pub(super) fn admits(&self, attrs: &Attrs) -> bool {
        let filter = &self.filter;
        filter.origin_as.is_none_or(|asn| attrs.origin_as == asn)
            && filter.through_as.is_none_or(|asn| attrs.path_contains(asn))
            && filter.community.as_ref().is_none_or(|text| communities_of(attrs).contains(text))
    }
}

/// The paths of a prefix. With `why`, each says why it is or is not the best.
pub(crate) fn explained<A: RibAddress>(
    rib: &RibShard,
    prefix: Prefix<A>,
    why: bool,
    peers: &PeerTable,
    origins: &ViewOrigins,
    now: Millis,
) -> Vec<RouteView> {
    let explained = rib.explain(prefix, peers);
    let views = explained.iter().map(|each| {
        let is_best = each.verdict == Verdict::Best;
        let mut view = route_view(prefix, &each.path, is_best, peers, origins, now);
        view.why = why.then(|| why_text(each, &explained, peers));
        view
    });
    views.collect()
}

fn route_view<A: RibAddress>(
    prefix: Prefix<A>,
    path: &PathView<'_>,
    best: bool,
    peers: &PeerTable,
    origins: &ViewOrigins,
    now: Millis,
) -> RouteView {
    let attrs = path.attrs;
    RouteView {
        prefix: prefix.to_string(),
        best,
        neighbor: peer_name(peers, path.peer),
        next_hop: attrs.next_hop().to_string(),
        as_path: attrs.as_path().to_string(),
        origin: attrs.origin.to_string(),
        med: attrs.med(),
        local_pref: attrs.local_pref,
        weight: attrs.weight,
        communities: communities_of(attrs),
        discard: attrs.has(flag::DISCARD),
        path_id: path.path_id,
        age_s: u64::from(now.seconds().saturating_sub(path.received_s)),
        stale: path.stale,
        validity: origins.validity(A::to_ip_prefix(prefix), attrs).map(|each| each.to_string()),
        why: None,
        rejected: None,
        rule: None,
    }
}

/// The verdict with the winner's name instead of its number, and the costs of next hops if they decided.
fn why_text(each: &Explained<'_>, all: &[Explained<'_>], peers: &PeerTable) -> String {
    let (step, winner, winner_path_id) = match each.verdict {
        Verdict::LostAt { step, winner, winner_path_id } => (step, winner, winner_path_id),
        Verdict::Unreachable => return format!("next hop {} unreachable", each.path.attrs.next_hop()),
        other => return other.to_string(),
    };
    let mut text = match winner_path_id {
        0 => format!("{step} than {}", peer_name(peers, winner)),
        id => format!("{step} than path {id} of {}", peer_name(peers, winner)),
    };
    let is_winner =
        |other: &&Explained<'_>| (other.path.peer, other.path.path_id) == (winner, winner_path_id);
    if step == Step::IgpMetric
        && let (Some(own), Some(Some(its))) =
            (each.metric, all.iter().find(is_winner).map(|other| other.metric))
    {
        text += &format!(" (cost {own}, not {its})");
    }
    text
}

fn peer_name(peers: &PeerTable, peer: PeerId) -> String {
    match peer {
        PeerId::LOCAL => "local".to_owned(),
        peer => peers.get(peer).map_or_else(|| peer.to_string(), |info| info.name.to_string()),
    }
}

/// All communities in operators' notation.
pub(super) fn communities_of(attrs: &Attrs) -> Vec<String> {
    communities(attrs.communities(), attrs.large_communities(), attrs.extended_communities())
}

fn neighbor_view(slot: &PeerSlot, state: &PeerState, now: Millis) -> BgpNeighborView {
    let counters = state.session.counters();
    let import = state.importer.as_ref().map(|importer| *importer.counters()).unwrap_or_default();
    let accepted = Family::ALL.map(|family| u64::from(slot.paths.get(family)));
    let by_reason = |rejection: Rejection| (rejection.name(), import.rejected(rejection));
    let rejected: BTreeMap<&str, u64> = Rejection::all().map(by_reason).collect();
    let kept = Family::ALL.map(|family| slot.paths.received(family));
    let keep = state.config.import.keep_rejected;
    let keeps = keep != KeepRejected::None;
    let is_whole = keep == KeepRejected::All && slot.paths.is_received_whole();
    let missing = Family::ALL.map(|family| kept[family.index()].saturating_sub(accepted[family.index()]));
    let rejected_now = match keep {
        KeepRejected::Rpki => Some(kept),
        _ => is_whole.then_some(missing),
    };
    BgpNeighborView {
        name: state.config.name.to_string(),
        address: state.config.address,
        remote_as: match &state.negotiated {
            Some(negotiated) => negotiated.remote_as.to_string(),
            None => state.config.remote_as.to_string().trim_start_matches("AS ").to_owned(),
        },
        description: state.config.description.clone(),
        state: state.session.state().to_string(),
        uptime_s: state.session.up_ms(now).map(|ms| ms / 1000),
        down_s: state.session.down_ms(now).map(|ms| ms / 1000),
        accepted: accepted.iter().sum(),
        accepted_by_family: accepted.into(),
        kept_by_family: keeps.then(|| kept.into()),
        rejected_by_family: rejected_now.map(Into::into),
        sent_by_family: slot.paths.sent().map(Into::into),
        updates_received: counters.received.update,
        messages_received: counters.received.total(),
        received_by_type: messages_view(counters.received),
        messages_sent: counters.sent.total(),
        sent_by_type: messages_view(counters.sent),
        bytes_sent: state.written_bytes,
        flaps: counters.flaps,
        last_error: counters.last_error.clone(),
        negotiated: state.negotiated.as_deref().map(negotiated_view),
        counters: json!({
            "treated_as_withdraw": counters.treated_as_withdraw,
            "attributes_discarded": counters.attributes_discarded,
            "connect_attempts": counters.connect_attempts,
            "connect_failures": counters.connect_failures,
            "refused": counters.refused,
            "established": counters.established,
            "collisions": counters.collisions,
            "prefix_limit_exceeded": counters.prefix_limit_exceeded,
            "announced_accepted": import.accepted,
            "withdrawn": import.withdrawn,
            "announced_rejected": import.rejected_total(),
            "rejected": rejected,
            "blackholes_honored": import.remarks(Remark::BlackholeHonored),
            "blackholes_ignored": import.remarks(Remark::BlackholeIgnored),
            "last_connect_error": counters.last_connect_error,
            "other_family": import.other_family,
            "unknown_family": import.unknown_family,
        }),
    }
}

fn messages_view(counters: MessageCounters) -> MessagesView {
    let MessageCounters { open, update, notification, keepalive, route_refresh } = counters;
    MessagesView { open, update, notification, keepalive, route_refresh }
}

fn negotiated_view(negotiated: &Negotiated) -> NegotiatedView {
    let families = Family::ALL.into_iter().filter(|family| negotiated.family(*family));
    NegotiatedView {
        families: families.map(|family| family.to_string()).collect(),
        router_id: negotiated.remote_router_id.to_string(),
        hold_time_s: negotiated.hold_time_s,
        four_octet_as: negotiated.codec.four_octet_as,
        extended_messages: negotiated.codec.extended_messages,
        route_refresh: negotiated.route_refresh,
        enhanced_refresh: negotiated.enhanced_refresh,
        add_path_receive: negotiated.codec.add_path_receive.into(),
        add_path_send: negotiated.codec.add_path_send.into(),
        graceful_restart: negotiated.graceful_restart.is_some(),
    }
}

pub(super) fn unknown(neighbor: &str) -> AnswerError {
    AnswerError::UnknownNeighbor(neighbor.to_owned())
}

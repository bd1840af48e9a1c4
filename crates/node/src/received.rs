//! Routes of a running router's neighbors as they sent them, before import. The router keeps no Adj-RIB-In; the
//! client assembles one from copies of the sessions' messages ([`crate::control::ReceivedRequest`]).
//!
//! ```text
//! neighbor with route refresh     is asked ──> UPDATEs ──> complete at the end mark (RFC 7313), or when no new route comes
//! neighbor without                routes of the RIB, as import left them
//! neighbor that is not up         no routes
//! ```
//!
//! A few neighbors are asked at a time, so that neither the router nor the client has all tables at once. Time is
//! an argument. A neighbor that does not complete in time, or whose session ends, is reported and has no routes.

mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;
use thalweg_base::IpPrefix;
use thalweg_wire::bgp::{Family, MessageKind, RefreshKind, RouteRefresh};
use thalweg_wire::mrt::{Content, Message, Peer, RibEntry, StateChange};

use crate::control::{BgpNeighborView, ReceivedRequest};
use table::Table;

/// Neighbors asked at the same time.
const AT_ONCE: usize = 4;

/// A neighbor that marks no end is complete when no new route came for this long and there are at least as many
/// routes as the router has accepted.
const QUIET_MS: u64 = 5_000;

/// An incomplete neighbor is given up when no new route came for this long.
const STALLED_MS: u64 = 60_000;

/// A neighbor is given up after this time in any case.
const LONGEST_MS: u64 = 600_000;

/// MRT's number for the state of an established session.
const ESTABLISHED: u16 = 6;

/// The source of a neighbor's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// The neighbor's own messages.
    AsSent,
    /// The RIB, after import: the neighbor does not offer route refresh.
    AfterImport,
    /// None.
    Unknown,
}

/// A neighbor of the running router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    pub neighbor: String,
    pub address: IpAddr,
    pub known: Known,
    /// Number of its routes.
    pub routes: u64,
    /// A remark for the reader of a report.
    pub note: Option<String>,
}

/// A neighbor's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// Its session is not up.
    Down,
    /// It cannot refresh; the RIB's routes are used.
    AfterImport,
    Waiting,
    Asked,
    Complete,
    /// It failed for this reason.
    Failed(String),
}

/// The progress of one family.
#[derive(Clone, Copy, Debug, Default)]
struct OfFamily {
    exchanged: bool,
    /// Routes in the router's RIB, after import.
    accepted: u64,
    /// A refresh began (RFC 7313).
    begun: bool,
    ended: bool,
    /// When the last new route came, or the request was sent.
    news_ms: u64,
}

struct Neighbor {
    name: String,
    peer: Peer,
    marks: bool,
    families: [OfFamily; 2],
    progress: Progress,
    asked_ms: u64,
    note: Option<String>,
}

/// The received routes of all neighbors; see the [module](self).
pub struct Received {
    neighbors: Vec<Neighbor>,
    by_address: HashMap<IpAddr, usize>,
    table: Table,
}

impl Received {
    /// Starts with these neighbors and no routes.
    pub fn new(neighbors: &[BgpNeighborView]) -> Self {
        let neighbors: Vec<Neighbor> = neighbors.iter().map(Neighbor::new).collect();
        let by_address = neighbors.iter().enumerate().map(|(at, each)| (each.peer.address, at)).collect();
        Self { by_address, table: Table::new(neighbors.len()), neighbors }
    }

    /// The request to the router.
    pub fn request(&self) -> ReceivedRequest {
        let of = |wanted: fn(&Progress) -> bool| {
            self.neighbors
                .iter()
                .filter(|each| wanted(&each.progress))
                .map(|each| each.peer.address)
                .collect()
        };
        ReceivedRequest {
            watch: of(|progress| *progress != Progress::Down),
            after_import: of(|progress| *progress == Progress::AfterImport),
        }
    }

    /// The next neighbor to ask for its routes; marks it as asked.
    pub fn next(&mut self, now_ms: u64) -> Option<IpAddr> {
        let asked = self.neighbors.iter().filter(|each| each.progress == Progress::Asked).count();
        let waiting = self.neighbors.iter_mut().find(|each| each.progress == Progress::Waiting);
        let next = waiting.filter(|_| asked < AT_ONCE)?;
        next.progress = Progress::Asked;
        next.asked_ms = now_ms;
        next.families.iter_mut().for_each(|family| family.news_ms = now_ms);
        Some(next.peer.address)
    }

    /// Notes that the router could not ask the neighbor.
    pub fn handle_refused(&mut self, neighbor: IpAddr, why: String) {
        if let Some(at) = self.by_address.get(&neighbor) {
            self.fail(*at, why);
        }
    }

    /// Processes a record.
    pub fn handle(&mut self, content: &Content<'_>, now_ms: u64) {
        match content {
            Content::Rib(rib) => {
                for entry in rib.entries() {
                    let at = self.by_address.get(&entry.peer.address).copied();
                    if let Some(at) = at.filter(|at| self.neighbors[*at].progress == Progress::AfterImport) {
                        self.table.insert_entry(at, &entry);
                        self.fail_if_full(at);
                    }
                }
            }
            Content::Message(message) => self.handle_message(message, now_ms),
            Content::StateChange(state) => self.handle_state(state),
            Content::Peers(_) | Content::Skipped => {}
        }
    }

    fn handle_message(&mut self, message: &Message<'_>, now_ms: u64) {
        let Some(at) = self.by_address.get(&message.peer.address).copied() else { return };
        let neighbor = &mut self.neighbors[at];
        if neighbor.progress != Progress::Asked && neighbor.progress != Progress::Complete {
            return;
        }
        if message.message_type == MessageKind::RouteRefresh as u8 {
            if let Ok(Some(refresh)) = RouteRefresh::parse(message.body())
                && let Some(family) = refresh.family.kept()
            {
                self.handle_mark(at, family, refresh.kind, now_ms);
            }
            return;
        }
        self.table.handle_update(at, message, |family| neighbor.families[family.index()].news_ms = now_ms);
        self.fail_if_full(at);
    }

    fn fail_if_full(&mut self, at: usize) {
        if self.table.is_full() {
            self.fail(at, format!("there are more than {} routes in all", table::ROUTES_MAX));
        }
    }

    fn handle_mark(&mut self, at: usize, family: Family, kind: RefreshKind, now_ms: u64) {
        let neighbor = &mut self.neighbors[at];
        let of_family = &mut neighbor.families[family.index()];
        match kind {
            // What the neighbor sent before does not count (RFC 7313 4).
            RefreshKind::Begin if neighbor.progress == Progress::Asked => {
                self.table.remove(at, Some(family));
                *of_family = OfFamily { begun: true, ended: false, news_ms: now_ms, ..*of_family };
            }
            RefreshKind::End if of_family.begun => of_family.ended = true,
            RefreshKind::Request | RefreshKind::Begin | RefreshKind::End => {}
        }
    }

    fn handle_state(&mut self, state: &StateChange) {
        let at = self.by_address.get(&state.peer.address).copied();
        let Some(at) = at.filter(|_| state.new != ESTABLISHED) else { return };
        match self.neighbors[at].progress {
            Progress::Waiting | Progress::Asked => {
                self.fail(at, "its session ended before it had sent all routes".to_owned());
            }
            Progress::AfterImport | Progress::Complete => {
                self.neighbors[at].note = Some("its session has ended since".to_owned());
            }
            Progress::Down | Progress::Failed(_) => {}
        }
    }

    fn fail(&mut self, at: usize, why: String) {
        self.neighbors[at].progress = Progress::Failed(why);
        self.table.remove(at, None);
    }

    /// Checks time limits; returns whether every neighbor is complete or given up.
    pub fn is_complete(&mut self, now_ms: u64) -> bool {
        for at in 0..self.neighbors.len() {
            if self.neighbors[at].progress != Progress::Asked {
                continue;
            }
            match self.neighbors[at].outcome(self.table.counts(at), now_ms) {
                Progress::Failed(why) => self.fail(at, why),
                progress => self.neighbors[at].progress = progress,
            }
        }
        let open = |each: &Neighbor| matches!(each.progress, Progress::Waiting | Progress::Asked);
        !self.neighbors.iter().any(open)
    }

    /// The number of routes.
    pub fn routes(&self) -> u64 {
        (0..self.neighbors.len()).flat_map(|at| self.table.counts(at)).sum()
    }

    /// The source of each neighbor's routes.
    pub fn sources(&self) -> Vec<Source> {
        let source = |(at, each): (usize, &Neighbor)| {
            let (known, why) = match &each.progress {
                Progress::AfterImport => (Known::AfterImport, None),
                Progress::Complete => (Known::AsSent, None),
                Progress::Down => (Known::Unknown, Some("it is not up")),
                Progress::Waiting | Progress::Asked => {
                    (Known::Unknown, Some("it has not sent all routes yet"))
                }
                Progress::Failed(why) => (Known::Unknown, Some(why.as_str())),
            };
            let note = why.map(str::to_owned).or_else(|| each.note.clone());
            let routes = self.table.counts(at).iter().sum();
            Source { neighbor: each.name.clone(), address: each.peer.address, known, routes, note }
        };
        self.neighbors.iter().enumerate().map(source).collect()
    }

    /// Sentences about neighbors that are up and whose routes are missing.
    pub fn failures(&self) -> Vec<String> {
        let failure = |each: &Neighbor| match &each.progress {
            Progress::Failed(why) => Some(format!("routes of {} are left out: {why}", each.name)),
            _ => None,
        };
        self.neighbors.iter().filter_map(failure).collect()
    }

    /// Visits and removes all routes.
    pub fn drain<E>(&mut self, mut visit: impl FnMut(&RibEntry<'_>) -> Result<(), E>) -> Result<(), E> {
        let peers: Vec<Peer> = self.neighbors.iter().map(|each| each.peer).collect();
        self.table.drain(&peers, &mut visit)
    }

    /// The name of the neighbor at an address.
    pub fn name(&self, address: IpAddr) -> Option<&str> {
        self.by_address.get(&address).map(|at| self.neighbors[*at].name.as_str())
    }
}

impl Neighbor {
    fn new(view: &BgpNeighborView) -> Self {
        let negotiated = view.negotiated.as_ref();
        let accepted = [view.accepted_by_family.ipv4, view.accepted_by_family.ipv6];
        let of_family = |family: Family| OfFamily {
            exchanged: negotiated.is_some_and(|agreed| agreed.families.contains(&family.to_string())),
            accepted: accepted[family.index()],
            ..OfFamily::default()
        };
        Self {
            name: view.name.clone(),
            peer: Peer {
                id: negotiated
                    .and_then(|agreed| agreed.router_id.parse().ok())
                    .unwrap_or(Ipv4Addr::UNSPECIFIED),
                address: view.address,
                asn: view.remote_as.parse().unwrap_or(0),
            },
            marks: negotiated.is_some_and(|agreed| agreed.enhanced_refresh),
            families: Family::ALL.map(of_family),
            progress: match negotiated {
                None => Progress::Down,
                Some(agreed) if agreed.route_refresh => Progress::Waiting,
                Some(_) => Progress::AfterImport,
            },
            asked_ms: 0,
            note: None,
        }
    }

    /// Whether one that was asked has sent everything, or why it is not waited for any longer.
    fn outcome(&self, counts: [u64; 2], now_ms: u64) -> Progress {
        let mut open = Family::ALL.into_iter().filter(|family| {
            let of_family = self.families[family.index()];
            let quiet = now_ms.saturating_sub(of_family.news_ms) >= QUIET_MS;
            let all_there = counts[family.index()] >= of_family.accepted;
            of_family.exchanged && !if self.marks { of_family.ended } else { quiet && all_there }
        });
        let Some(family) = open.next() else { return Progress::Complete };
        let (stalled_ms, asked_ms) = (
            now_ms.saturating_sub(self.families[family.index()].news_ms),
            now_ms.saturating_sub(self.asked_ms),
        );
        if stalled_ms < STALLED_MS && asked_ms < LONGEST_MS {
            return Progress::Asked;
        }
        let sent = counts[family.index()];
        Progress::Failed(match self.marks {
            true => {
                format!("it sent {sent} {family} routes in {} s and no end of the refresh", asked_ms / 1000)
            }
            false => format!(
                "it sent {sent} {family} routes in {} s, and the router has {} of it",
                asked_ms / 1000,
                self.families[family.index()].accepted
            ),
        })
    }
}

fn family_of(prefix: IpPrefix) -> Family {
    match prefix {
        IpPrefix::V4(_) => Family::Ipv4,
        IpPrefix::V6(_) => Family::Ipv6,
    }
}

//! Counters of a neighbor. They survive the end of a session and start at 0 with the daemon.

use thalweg_wire::bgp::MessageKind;

use super::action::State;
use crate::peer::Millis;

/// Messages by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounters {
    pub open: u64,
    pub update: u64,
    pub notification: u64,
    pub keepalive: u64,
    pub route_refresh: u64,
}

impl MessageCounters {
    pub(super) fn count(&mut self, kind: MessageKind) {
        let counter = match kind {
            MessageKind::Open => &mut self.open,
            MessageKind::Update => &mut self.update,
            MessageKind::Notification => &mut self.notification,
            MessageKind::Keepalive => &mut self.keepalive,
            MessageKind::RouteRefresh => &mut self.route_refresh,
        };
        *counter += 1;
    }

    /// The number of all messages.
    pub fn total(&self) -> u64 {
        self.open + self.update + self.notification + self.keepalive + self.route_refresh
    }
}

/// Each pair of states that a session has moved between, as its driver sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transitions {
    last: State,
    /// A bit for each pair.
    seen: u64,
}

impl Transitions {
    pub(super) fn note(&mut self, state: State) {
        if state != self.last {
            let place = |state: State| State::ALL.iter().position(|each| *each == state).unwrap_or(0);
            self.seen |= 1 << (place(self.last) * State::ALL.len() + place(state));
            self.last = state;
        }
    }

    /// The state before and the state after; each pair once.
    pub fn pairs(self) -> impl Iterator<Item = (State, State)> {
        let pairs = State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to)));
        pairs.enumerate().filter(move |(at, _)| self.seen & 1 << at != 0).map(|(_, pair)| pair)
    }
}

/// The counters of one neighbor's sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    pub received: MessageCounters,
    /// The driver reports the UPDATEs.
    pub sent: MessageCounters,
    pub received_bytes: u64,
    pub connect_attempts: u64,
    pub connect_failures: u64,
    /// Connections from the neighbor that we closed at once.
    pub refused: u64,
    /// How often the session became Established.
    pub established: u64,
    /// How often it left Established.
    pub flaps: u64,
    /// How often the neighbor exceeded the prefix limit of a family.
    pub prefix_limit_exceeded: u64,
    pub transitions: Transitions,
    /// Collisions of two connections.
    pub collisions: u64,
    /// UPDATEs whose routes were withdrawn because of an error (RFC 7606).
    pub treated_as_withdraw: u64,
    /// UPDATEs of which a bad attribute was ignored (RFC 7606).
    pub attributes_discarded: u64,
    /// ROUTE-REFRESH messages ignored: not negotiated, or of an unknown family or kind.
    pub refresh_ignored: u64,
    /// Control messages not written because too much output was waiting.
    pub output_dropped: u64,
    /// Prefixes by family, as the driver last reported them.
    pub prefixes: [u32; 2],
    /// The last error in words.
    pub last_error: Option<String>,
    pub last_error_at: Option<Millis>,
    pub last_connect_error: Option<String>,
}

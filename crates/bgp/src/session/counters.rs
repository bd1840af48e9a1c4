//! Counters of a session. They survive the loss of a session and start at 0 with the daemon.

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

    /// All of them.
    pub fn total(&self) -> u64 {
        self.open + self.update + self.notification + self.keepalive + self.route_refresh
    }
}

/// From which state to which other one a session has gone, as its driver sees that.
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

    /// Each pair once.
    pub fn pairs(self) -> impl Iterator<Item = (State, State)> {
        let pairs = State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to)));
        pairs.enumerate().filter(move |(at, _)| self.seen & 1 << at != 0).map(|(_, pair)| pair)
    }
}

/// What a session counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Messages that came.
    pub received: MessageCounters,
    /// Messages that went; UPDATEs as the driver reports them.
    pub sent: MessageCounters,
    /// Bytes of the messages that came.
    pub received_bytes: u64,
    /// Attempts to connect.
    pub connect_attempts: u64,
    /// Attempts that failed.
    pub connect_failures: u64,
    /// Connections of the neighbor that were closed at once.
    pub refused: u64,
    /// How often the session came up.
    pub established: u64,
    /// How often it went down.
    pub flaps: u64,
    /// How often the neighbor had more prefixes of a family than its limit allows.
    pub prefix_limit_exceeded: u64,
    /// States it has gone through.
    pub transitions: Transitions,
    /// Collisions of two connections.
    pub collisions: u64,
    /// UPDATEs whose routes were withdrawn because of an error (RFC 7606).
    pub treated_as_withdraw: u64,
    /// UPDATEs of which a bad attribute was ignored (RFC 7606).
    pub attributes_discarded: u64,
    /// ROUTE-REFRESHes that were ignored: not agreed on, or of no known family or kind.
    pub refresh_ignored: u64,
    /// Control messages not written because too much output waits already.
    pub output_dropped: u64,
    /// Prefixes by family, as the driver reported them last.
    pub prefixes: [u32; 2],
    /// The last error in words.
    pub last_error: Option<String>,
    /// When it came.
    pub last_error_at: Option<Millis>,
    /// Why the last attempt to connect failed.
    pub last_connect_error: Option<String>,
}

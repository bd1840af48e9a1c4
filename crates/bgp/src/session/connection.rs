//! One of a session's two connections: its state, its output and its timers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_wire::bgp::{
    EXTENDED_MESSAGE_LENGTH_MAX, MESSAGE_LENGTH_MAX, MessageKind, Notification, Open, RouteRefresh,
    write_keepalive,
};

use super::action::State;
use super::counters::SessionCounters;
use super::negotiate::Negotiated;
use crate::peer::Millis;

/// The most bytes of control messages that wait to be written. A neighbor that does not read gets no further
/// KEEPALIVEs or refreshes; a NOTIFICATION always fits, because nothing follows it.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// A connection slot. At least one of the two is closed most of the time.
#[derive(Debug)]
pub(super) struct Slot {
    /// `Idle` without a connection, otherwise one of the last three states.
    pub(super) state: State,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) offered: Option<Box<Open>>,
    pub(super) agreed: Option<Arc<Negotiated>>,
    /// Whole control messages.
    pub(super) output: Vec<u8>,
    /// The hold time; 0 means none.
    pub(super) hold_ms: u64,
    pub(super) hold_at: Option<Millis>,
    pub(super) keepalive_at: Option<Millis>,
    pub(super) send_hold_at: Option<Millis>,
    /// Received bytes wait at the driver.
    pub(super) input_waits: bool,
    /// In OpenConfirm: KEEPALIVE has arrived, and until this time the other connection may still take precedence.
    pub(super) establish_at: Option<Millis>,
    /// In OpenConfirm: OPEN has arrived; our KEEPALIVE waits because the other connection may take precedence.
    pub(super) answer_at: Option<Millis>,
    /// In OpenConfirm: KEEPALIVE arrived before we sent ours.
    pub(super) is_confirmed: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            state: State::Idle,
            local: Ipv4Addr::UNSPECIFIED.into(),
            remote: Ipv4Addr::UNSPECIFIED.into(),
            offered: None,
            agreed: None,
            output: Vec::new(),
            hold_ms: 0,
            hold_at: None,
            keepalive_at: None,
            send_hold_at: None,
            input_waits: false,
            establish_at: None,
            answer_at: None,
            is_confirmed: false,
        }
    }
}

impl Slot {
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Idle
    }

    /// Sends OPEN on a new connection.
    pub(super) fn open(&mut self, local: IpAddr, remote: IpAddr, open: Open, hold_ms: u64, now: Millis) {
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        open.write(&mut output);
        *self = Self {
            state: State::OpenSent,
            local,
            remote,
            offered: Some(Box::new(open)),
            output,
            hold_ms,
            ..Self::default()
        };
        self.heard(now);
    }

    /// Closes the slot. Output that waits is kept for a last attempt to write it.
    pub(super) fn close(&mut self) {
        let output = std::mem::take(&mut self.output);
        *self = Self { output, ..Self::default() };
    }

    /// Restarts the hold timer: the neighbor has sent something.
    pub(super) fn heard(&mut self, now: Millis) {
        self.hold_at = (self.hold_ms > 0).then(|| now.plus(self.hold_ms));
    }

    /// The longest message to accept. Having offered longer ones, we must accept them, whatever the neighbor
    /// offered (RFC 8654 4), but only after its OPEN.
    pub(super) fn length_max(&self) -> usize {
        let offered = self.offered.as_ref().is_some_and(|open| open.capabilities.extended_message);
        if offered && self.state > State::OpenSent { EXTENDED_MESSAGE_LENGTH_MAX } else { MESSAGE_LENGTH_MAX }
    }

    pub(super) fn send_keepalive(&mut self, counters: &mut SessionCounters) {
        if self.has_room(counters) {
            write_keepalive(&mut self.output);
            counters.sent.count(MessageKind::Keepalive);
        }
    }

    pub(super) fn send_refresh(&mut self, refresh: RouteRefresh, counters: &mut SessionCounters) {
        if self.has_room(counters) {
            refresh.write(&mut self.output);
            counters.sent.count(MessageKind::RouteRefresh);
        }
    }

    pub(super) fn send_notification(&mut self, notification: &Notification, counters: &mut SessionCounters) {
        notification.write(&mut self.output);
        counters.sent.count(MessageKind::Notification);
    }

    fn has_room(&self, counters: &mut SessionCounters) -> bool {
        let room = self.output.len() < OUTPUT_BYTES_MAX;
        counters.output_dropped += u64::from(!room);
        room
    }

    /// When one of its timers expires next.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        [self.hold_at, self.keepalive_at, self.send_hold_at, self.establish_at, self.answer_at]
            .into_iter()
            .flatten()
            .min()
    }
}

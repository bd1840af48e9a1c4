//! The entry of one neighbor.

use std::collections::VecDeque;
use std::net::IpAddr;
use thalweg_wire::MacAddr;

thalweg_base::words! {
    /// A neighbor's state (RFC 4861 7.3.2; the diagram is at the module's head).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NeighborState {
        /// Solicited, not answered yet.
        Incomplete => "incomplete",
        /// Wanted and silent; solicited again after a pause.
        Failed => "failed",
        /// Confirmed recently.
        Reachable => "reachable",
        /// Known, not confirmed recently.
        Stale => "stale",
        /// In use and about to be probed.
        Delay => "delay",
        /// Being probed.
        Probe => "probe",
        /// Configured.
        Static => "static",
    }
}

impl NeighborState {
    /// Whether the MAC address is known.
    pub fn is_resolved(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }
}

/// A neighbor for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborView {
    pub port: u16,
    pub address: IpAddr,
    pub mac: Option<MacAddr>,
    pub state: NeighborState,
    /// Whether it announced itself as a router (Neighbor Discovery only).
    pub is_router: bool,
    /// Whether it is solicited regardless of traffic.
    pub is_wanted: bool,
    /// Time of the last confirmation; for a static one, when it was set.
    pub confirmed_ns: Option<u64>,
    /// When its use was last reported.
    pub used_ns: u64,
    pub packets_waiting: usize,
}

/// The budget in which an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Budget {
    Unlimited,
    Unresolved,
    Resolved,
}

#[derive(Clone, Debug)]
pub(super) struct Entry<P> {
    pub(super) state: NeighborState,
    /// Meaningless while unresolved.
    pub(super) mac: MacAddr,
    /// Time of the next action; `u64::MAX` is never.
    pub(super) deadline_ns: u64,
    /// Solicitations sent in this state.
    pub(super) sent: u8,
    pub(super) confirmed_ns: Option<u64>,
    pub(super) used_ns: u64,
    /// When the MAC address last changed.
    pub(super) changed_ns: Option<u64>,
    pub(super) is_router: bool,
    pub(super) is_wanted: bool,
    /// The last pause of a wanted neighbor.
    pub(super) pause_ns: u64,
    pub(super) queue: VecDeque<P>,
}

impl<P> Entry<P> {
    pub(super) fn new(state: NeighborState, mac: MacAddr, is_wanted: bool, now_ns: u64) -> Self {
        Self {
            state,
            mac,
            deadline_ns: u64::MAX,
            sent: 0,
            confirmed_ns: None,
            used_ns: now_ns,
            changed_ns: None,
            is_router: false,
            is_wanted,
            pause_ns: 0,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn budget(&self) -> Budget {
        if self.is_wanted || self.state == NeighborState::Static {
            Budget::Unlimited
        } else if self.state.is_resolved() {
            Budget::Resolved
        } else {
            Budget::Unresolved
        }
    }

    pub(super) fn view(&self, port: u16, address: IpAddr) -> NeighborView {
        NeighborView {
            port,
            address,
            mac: self.state.is_resolved().then_some(self.mac),
            state: self.state,
            is_router: self.is_router,
            is_wanted: self.is_wanted,
            confirmed_ns: self.confirmed_ns,
            used_ns: self.used_ns,
            packets_waiting: self.queue.len(),
        }
    }
}

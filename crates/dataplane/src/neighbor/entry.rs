//! One neighbor.

use std::collections::VecDeque;
use std::net::IpAddr;
use thalweg_wire::MacAddr;

thalweg_base::words! {
    /// Where a neighbor stands (RFC 4861 7.3.2; the diagram is at the module's head).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NeighborState {
        /// Asked for, not yet answered.
        Incomplete => "incomplete",
        /// Wanted, did not answer, is asked for again after a pause.
        Failed => "failed",
        /// Confirmed not long ago.
        Reachable => "reachable",
        /// Known, not confirmed lately.
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

/// A neighbor, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborView {
    /// The port it is on.
    pub port: u16,
    pub address: IpAddr,
    /// Its MAC address, if known.
    pub mac: Option<MacAddr>,
    /// Where it stands.
    pub state: NeighborState,
    /// It said that it is a router (Neighbor Discovery only).
    pub is_router: bool,
    /// Asked for whether there is traffic or not.
    pub is_wanted: bool,
    /// When it was last confirmed; of a static one, when it was set.
    pub confirmed_ns: Option<u64>,
    /// When the table was last told that it is used.
    pub used_ns: u64,
    /// Packets that wait for it.
    pub packets_waiting: usize,
}

/// Which budget an entry counts in.
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
    /// When something is to be done; `u64::MAX` is never.
    pub(super) deadline_ns: u64,
    /// Questions sent in this state.
    pub(super) sent: u8,
    pub(super) confirmed_ns: Option<u64>,
    pub(super) used_ns: u64,
    /// When the MAC address last became another.
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

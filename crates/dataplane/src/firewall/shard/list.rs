//! Connections for display, and their end on request.

use super::StateShard;
use crate::firewall::config::Zone;
use crate::firewall::flow::IPV6;
use crate::firewall::state::Phase;
use crate::records::slice;

/// What is remembered of a connection for display alone: no packet but its first reads or writes it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    pub(super) at_s: u32,
    /// Where it came from and went to.
    pub(super) zones: (Zone, Zone),
}

const _: () = assert!(size_of::<Begun>() == 8);

/// A state for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateInfo {
    pub protocol: u8,
    pub is_ipv6: bool,
    /// The end that began the connection: address (IPv4 in the lowest 32 bits) and port.
    pub origin: (u128, u16),
    pub other: (u128, u16),
    /// The VRFs of the two ends; `None` with IPv6, which one VRF at most routes where there is a firewall.
    pub vrfs: Option<(u16, u16)>,
    /// The zones of the two ends, by the rules that admitted it.
    pub zones: (Zone, Zone),
    pub phase: Phase,
    /// The rule that admitted it; one past the last is the policy.
    pub rule: u16,
    /// The version of the rules that admitted it. Under others, numbers of rules and zones mean something else.
    pub generation: u16,
    /// Seconds since it began.
    pub age_s: u32,
    /// Seconds since the last packet that refreshed it.
    pub idle_s: u32,
    /// Seconds until it ends without a refresh.
    pub remaining_s: u32,
}

impl StateShard {
    /// The state in a record, if it is alive.
    fn info(&self, at: usize, now_s: u32) -> Option<StateInfo> {
        let state = self.states.get(at).filter(|state| state.is_live() && state.expires_s >= now_s)?;
        let (key, origin, begun) = (state.key(), state.origin(), self.begun[at]);
        let remaining_s = state.expires_s - now_s;
        Some(StateInfo {
            protocol: key.protocol,
            is_ipv6: key.marks & IPV6 != 0,
            origin: key.end(origin),
            other: key.end(1 - origin),
            vrfs: key.vrf(origin).zip(key.vrf(1 - origin)),
            zones: begun.zones,
            phase: state.phase,
            rule: state.rule,
            generation: state.generation,
            age_s: now_s.saturating_sub(begun.at_s),
            idle_s: self.settings.lifetime_s(key.protocol, state.phase).saturating_sub(remaining_s),
            remaining_s,
        })
    }

    /// Shows the states alive among `count` records from record `from` on; returns where to continue, if there are
    /// more. The order is arbitrary but reproducible.
    pub(crate) fn visit(
        &self,
        now_s: u32,
        from: usize,
        count: usize,
        show: impl FnMut(StateInfo),
    ) -> Option<usize> {
        let (records, rest) = slice(from, count, self.fresh);
        records.filter_map(|at| self.info(at, now_s.max(self.now_s))).for_each(show);
        rest
    }

    /// Ends the states among `count` records from record `from` on that `which` names; returns where to continue.
    pub(crate) fn end(
        &mut self,
        from: usize,
        count: usize,
        which: impl Fn(&StateInfo) -> bool,
    ) -> (u64, Option<usize>) {
        let (records, rest) = slice(from, count, self.fresh);
        let before = self.counters.states_cleared;
        for at in records {
            if self.info(at, self.now_s).is_some_and(|state| which(&state)) {
                self.end_now(at);
                self.counters.states_cleared += 1;
            }
        }
        (self.counters.states_cleared - before, rest)
    }
}

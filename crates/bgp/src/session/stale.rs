//! Tracks stale routes, which are kept although they are unconfirmed: those of a neighbor that restarts (RFC 4724),
//! and those that a refresh has not repeated yet (RFC 7313).
//!
//! ```text
//!            session lost                  session up                   End-of-RIB
//!   fresh ───────────────> awaits return ────────────> awaits the end ─────────────> fresh
//!                             │ restart timer              │ stale path timer
//!                             └──────── withdrawn <────────┘
//! ```

use thalweg_wire::bgp::Family;

use super::action::StaleEnd;
use crate::peer::Millis;

/// By family: whether routes are stale, and until when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StaleRoutes {
    restart: [Option<Until>; 2],
    refresh: [Option<Millis>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// The neighbor must be back by this time.
    Return(Millis),
    /// End-of-RIB must arrive by this time.
    EndOfRib(Millis),
}

impl Until {
    fn deadline(self) -> (Millis, StaleEnd) {
        match self {
            Self::Return(at) => (at, StaleEnd::RestartTimer),
            Self::EndOfRib(at) => (at, StaleEnd::StalePathTimer),
        }
    }
}

impl StaleRoutes {
    /// The session is lost; routes of these families are kept until `restart_at`.
    pub(super) fn await_return(&mut self, families: [bool; 2], restart_at: Millis) {
        self.refresh = [None; 2];
        self.restart = families.map(|kept| kept.then_some(Until::Return(restart_at)));
    }

    /// The session is up again; routes that the neighbor still forwards by are kept until `stale_at`. Returns the
    /// families whose routes are not kept.
    pub(super) fn came_back(&mut self, forwarding: [bool; 2], stale_at: Millis) -> Vec<Family> {
        let mut gone = Vec::new();
        for family in Family::ALL {
            let place = &mut self.restart[family.index()];
            if place.is_some() {
                *place = forwarding[family.index()].then_some(Until::EndOfRib(stale_at));
                gone.extend(place.is_none().then_some(family));
            }
        }
        gone
    }

    /// A refresh begins: all routes of the family are stale until they are repeated.
    pub(super) fn refresh_began(&mut self, family: Family, until: Millis) {
        self.refresh[family.index()] = Some(until);
    }

    /// A refresh ended; returns whether one had begun.
    pub(super) fn refresh_ended(&mut self, family: Family) -> bool {
        self.restart[family.index()] = None;
        self.refresh[family.index()].take().is_some()
    }

    /// End-of-RIB arrived; returns whether to withdraw stale routes. During a refresh, the end of the refresh
    /// decides.
    pub(super) fn end_of_rib(&mut self, family: Family) -> bool {
        self.restart[family.index()].take().is_some() && self.refresh[family.index()].is_none()
    }

    /// Removes and returns what has expired.
    pub(super) fn expire(&mut self, now: Millis) -> Vec<(Family, StaleEnd)> {
        let mut expired = Vec::new();
        for family in Family::ALL {
            let restart = self.restart[family.index()].map(Until::deadline);
            let refresh = self.refresh[family.index()].map(|at| (at, StaleEnd::RefreshTimer));
            if let Some((_, why)) = [restart, refresh].into_iter().flatten().find(|(at, _)| *at <= now) {
                (self.restart[family.index()], self.refresh[family.index()]) = (None, None);
                expired.push((family, why));
            }
        }
        expired
    }

    /// Removes and returns all stale families.
    pub(super) fn take_all(&mut self) -> Vec<Family> {
        let families = self.families();
        *self = Self::default();
        Family::ALL.into_iter().filter(|family| families[family.index()]).collect()
    }

    /// Families with stale routes.
    pub(super) fn families(&self) -> [bool; 2] {
        Family::ALL
            .map(|family| self.restart[family.index()].is_some() || self.refresh[family.index()].is_some())
    }

    /// When [`Self::expire`] must be called next.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let restart = self.restart.iter().flatten().map(|until| until.deadline().0);
        restart.chain(self.refresh.iter().flatten().copied()).min()
    }
}

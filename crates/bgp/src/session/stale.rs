//! Routes that are kept although nobody stands behind them now: those of a neighbor that restarts (RFC 4724),
//! and those that a refresh has not confirmed yet (RFC 7313).
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

/// By family, what is stale and until when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StaleRoutes {
    restart: [Option<Until>; 2],
    refresh: [Option<Millis>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// The neighbor is back.
    Return(Millis),
    /// It has sent everything.
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
    /// The session is lost; routes of these families stay until `restart_at`.
    pub(super) fn await_return(&mut self, families: [bool; 2], restart_at: Millis) {
        self.refresh = [None; 2];
        self.restart = families.map(|kept| kept.then_some(Until::Return(restart_at)));
    }

    /// The session is up again; families whose routes the neighbor still forwards by stay until `stale_at`.
    /// Those that do not stay.
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

    /// A refresh begins: all routes of the family are stale until they come again.
    pub(super) fn refresh_began(&mut self, family: Family, until: Millis) {
        self.refresh[family.index()] = Some(until);
    }

    /// A refresh ended. Whether one had begun.
    pub(super) fn refresh_ended(&mut self, family: Family) -> bool {
        self.restart[family.index()] = None;
        self.refresh[family.index()].take().is_some()
    }

    /// End-of-RIB came. Whether stale routes are to go for it; during a refresh its end decides.
    pub(super) fn end_of_rib(&mut self, family: Family) -> bool {
        self.restart[family.index()].take().is_some() && self.refresh[family.index()].is_none()
    }

    /// Takes what is over.
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

    /// Takes everything that is stale.
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

    /// When [`Self::expire`] finds something.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let restart = self.restart.iter().flatten().map(|until| until.deadline().0);
        restart.chain(self.refresh.iter().flatten().copied()).min()
    }
}

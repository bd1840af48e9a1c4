//! Finds and repairs drift between our routes and the kernel's.

use std::collections::HashMap;
use std::fmt;

use thalweg_base::IpPrefix;

use super::error::{KernelError, RouteFailure};
use super::installer::{ApplyReport, BATCH_ROUTES, KernelRoutes, RouteChange};
use super::route::{FoundRoute, KernelRoute, RouteTarget};

/// What a scan found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Correct routes.
    pub good: u64,
    /// Wanted routes that did not exist.
    pub missing: u64,
    /// Routes of ours that are not wanted.
    pub extra: u64,
    /// Routes with another target.
    pub changed: u64,
    /// Repairs that the kernel refused.
    pub failed: u64,
    /// The first refusals.
    pub failures: Vec<RouteFailure>,
    /// The tables changed during the scan: counts may be wrong, and the next scan corrects that.
    pub interrupted: bool,
}

impl RepairReport {
    /// Whether nothing had to be repaired.
    pub fn is_clean(&self) -> bool {
        self.missing + self.extra + self.changed == 0
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { good, missing, extra, changed, failed, .. } = self;
        write!(f, "{good} good, {missing} missing, {extra} extra, {changed} changed, {failed} not mended")
    }
}

/// Our routes in the kernel for comparison, ordered by prefix and metric, 64 bytes each.
struct Found {
    routes: Vec<Entry>,
    /// Distinct targets; full tables have few.
    targets: Vec<Option<RouteTarget>>,
}

struct Entry {
    prefix: IpPrefix,
    metric: u32,
    target: u32,
    wanted: bool,
}

impl Found {
    fn read(kernel: &mut KernelRoutes) -> Result<(Self, bool), KernelError> {
        let mut targets = Vec::new();
        let mut numbers = HashMap::new();
        let mut routes = Vec::new();
        let interrupted = kernel.read(|FoundRoute { prefix, target, metric, .. }| {
            let target = *numbers.entry(target).or_insert_with(|| {
                targets.push(target);
                targets.len() as u32 - 1
            });
            routes.push(Entry { prefix, metric, target, wanted: false });
        })?;
        routes.sort_unstable_by_key(|route| (route.prefix, route.metric));
        // An interrupted list may contain a route twice.
        routes.dedup_by_key(|route| (route.prefix, route.metric));
        Ok((Self { routes, targets }, interrupted))
    }

    fn find(&mut self, prefix: IpPrefix, metric: u32) -> Option<(&mut Entry, Option<RouteTarget>)> {
        let at = self.routes.binary_search_by_key(&(prefix, metric), |r| (r.prefix, r.metric)).ok()?;
        let entry = self.routes.get_mut(at)?;
        let target = self.targets.get(entry.target as usize).copied().flatten();
        Some((entry, target))
    }
}

impl KernelRoutes {
    /// Compares our routes in the kernel with the wanted ones (in any order, each prefix once) and repairs
    /// the differences. Takes about 64 bytes of memory per kernel route while it runs.
    ///
    /// # Errors
    ///
    /// As [`Self::apply`]; some repairs may have been made then.
    pub fn repair(
        &mut self,
        desired: impl IntoIterator<Item = KernelRoute>,
    ) -> Result<RepairReport, KernelError> {
        let (mut found, interrupted) = Found::read(self)?;
        let mut report = RepairReport { interrupted, ..RepairReport::default() };
        let mut mends = Vec::new();
        for wanted in desired {
            match found.find(wanted.prefix, self.place.metric) {
                Some((entry, target)) => {
                    entry.wanted = true;
                    if target.is_some_and(|target| wanted.target.is_met_by(target)) {
                        report.good += 1;
                        continue;
                    }
                    report.changed += 1;
                }
                None => report.missing += 1,
            }
            mends.push(RouteChange::Replace(wanted));
            if mends.len() == BATCH_ROUTES {
                report.note(self.apply(&mends)?);
                mends.clear();
            }
        }
        report.note(self.apply(&mends)?);
        let extra: Vec<_> = found.routes.iter().filter(|r| !r.wanted).map(|r| (r.prefix, r.metric)).collect();
        report.extra = extra.len() as u64;
        report.note(self.delete_found(&extra)?);
        Ok(report)
    }
}

impl RepairReport {
    fn note(&mut self, mended: ApplyReport) {
        self.failed += mended.failed;
        self.failures.extend(mended.failures);
        self.failures.truncate(super::FAILURES_KEPT);
    }
}

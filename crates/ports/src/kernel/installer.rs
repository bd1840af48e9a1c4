//! Installs our routes in the kernel.

use thalweg_base::IpPrefix;

use super::error::{KernelError, Refusal, RouteFailure};
use super::message::MessageWriter;
use super::route::{self, FoundRoute, KernelRoute, Place};
use super::socket::Netlink;

/// The protocol number of our routes. `rtnetlink.h` gives 186 to BGP, but other daemons use it and remove
/// such routes at their start; 116 is unassigned.
pub const PROTOCOL: u8 = 116;

/// The metric of our routes: after those of administrators (0) and DHCP clients (100), before those of IPv6
/// autoconfiguration (1024).
pub const METRIC: u32 = 116;

/// Messages per system call. More are not faster, and hold the kernel's lock longer.
pub const BATCH_ROUTES: usize = 1024;

/// The most refusals that a report keeps; all are counted.
pub const FAILURES_KEPT: usize = 16;

/// Table and properties of our routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// 254 is the kernel's main table.
    pub table: u32,
    pub protocol: u8,
    /// At least 1, because the kernel replaces 0 with 1024 for IPv6 routes.
    pub metric: u32,
    /// Gateways are on the link of the route's interface, although no address there has a network with them:
    /// for a caller that has found the gateways itself.
    pub on_link: bool,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self { table: libc::RT_TABLE_MAIN.into(), protocol: PROTOCOL, metric: METRIC, on_link: false }
    }
}

impl KernelOptions {
    pub(super) fn place(self) -> Place {
        let Self { table, protocol, metric, on_link } = self;
        Place { table, protocol, metric: metric.max(1), on_link }
    }
}

/// A change of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// Installs the route or replaces ours of the same prefix.
    Replace(KernelRoute),
    /// Removes our route of the prefix.
    Delete(IpPrefix),
}

impl RouteChange {
    /// The prefix that changes.
    pub fn prefix(&self) -> IpPrefix {
        match self {
            Self::Replace(route) => route.prefix,
            Self::Delete(prefix) => *prefix,
        }
    }
}

/// The result of a batch of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    pub replaced: u64,
    pub deleted: u64,
    /// Routes to remove that did not exist.
    pub absent: u64,
    pub failed: u64,
    /// The first [`FAILURES_KEPT`] refusals.
    pub failures: Vec<RouteFailure>,
}

impl ApplyReport {
    /// Adds the result of another batch.
    pub fn add(&mut self, other: ApplyReport) {
        self.replaced += other.replaced;
        self.deleted += other.deleted;
        self.absent += other.absent;
        self.failed += other.failed;
        let room = FAILURES_KEPT.saturating_sub(self.failures.len());
        self.failures.extend(other.failures.into_iter().take(room));
    }

    fn fail(&mut self, prefix: IpPrefix, refusal: Refusal) {
        self.failed += 1;
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(RouteFailure { prefix, refusal });
        }
    }
}

/// Our routes in one of the kernel's tables.
#[derive(Debug)]
pub struct KernelRoutes {
    pub(super) netlink: Netlink,
    pub(super) place: Place,
    pub(super) writer: MessageWriter,
}

impl KernelRoutes {
    /// Opens a socket. Reading needs no privilege; changing does, and the first change reports its absence.
    pub fn open(options: KernelOptions) -> Result<Self, KernelError> {
        Ok(Self { netlink: Netlink::open()?, place: options.place(), writer: MessageWriter::default() })
    }

    /// Applies changes in order. A refused change does not stop the others.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotPermitted`] without the privilege to change routes; other errors when the socket
    /// fails. Some changes may have been applied then.
    pub fn apply(&mut self, changes: &[RouteChange]) -> Result<ApplyReport, KernelError> {
        let mut report = ApplyReport::default();
        for batch in changes.chunks(BATCH_ROUTES) {
            self.apply_batch(batch, &mut report)?;
        }
        Ok(report)
    }

    fn apply_batch(&mut self, batch: &[RouteChange], report: &mut ApplyReport) -> Result<(), KernelError> {
        let mut attempt = ApplyReport::default();
        match self.try_batch(batch, &mut attempt) {
            Ok(()) => {
                report.add(attempt);
                Ok(())
            }
            Err(KernelError::Overrun) if batch.len() > 1 => {
                let (front, back) = batch.split_at(batch.len() / 2);
                self.apply_batch(front, report)?;
                self.apply_batch(back, report)
            }
            Err(error) => Err(error),
        }
    }

    fn try_batch(&mut self, batch: &[RouteChange], report: &mut ApplyReport) -> Result<(), KernelError> {
        if batch.is_empty() {
            return Ok(());
        }
        let Self { netlink, place, writer } = self;
        let first = netlink.sequences(batch.len() as u32);
        writer.clear();
        for (change, sequence) in batch.iter().zip(first..) {
            match change {
                RouteChange::Replace(wanted) => route::write_replace(writer, sequence, wanted, *place),
                RouteChange::Delete(prefix) => route::write_delete(writer, sequence, *prefix, *place),
            }
            match change {
                RouteChange::Replace(_) => report.replaced += 1,
                RouteChange::Delete(_) => report.deleted += 1,
            }
        }
        writer.add_flags_to_last(libc::NLM_F_ACK as u16);
        let mut permitted = true;
        netlink.execute(writer, first + (batch.len() as u32 - 1), |sequence, refusal| {
            let Some(change) = batch.get((sequence - first) as usize) else { return };
            permitted &= refusal.errno != libc::EPERM;
            match change {
                RouteChange::Replace(_) => report.replaced -= 1,
                RouteChange::Delete(_) => report.deleted -= 1,
            }
            match change {
                RouteChange::Delete(_) if refusal.errno == libc::ESRCH => report.absent += 1,
                _ => report.fail(change.prefix(), refusal),
            }
        })?;
        if permitted { Ok(()) } else { Err(KernelError::NotPermitted) }
    }

    /// Calls `visit` with every route of ours, IPv4 before IPv6; returns whether the tables changed
    /// meanwhile.
    pub fn read(&mut self, mut visit: impl FnMut(FoundRoute)) -> Result<bool, KernelError> {
        let mut interrupted = false;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let sequence = self.netlink.sequences(1);
            self.writer.clear();
            route::write_dump(&mut self.writer, sequence, family, self.place.table, self.place.protocol);
            let place = self.place;
            let result = self.netlink.dump("its routes", &self.writer, sequence, |message| {
                // Old kernels do not filter and list everything.
                let found = route::parse(&message);
                if let Some(found) = found.filter(|r| r.protocol == place.protocol && r.table == place.table)
                {
                    visit(found);
                }
            });
            interrupted |= match result {
                // The answer for a table that never had a route.
                Err(KernelError::Refused { refusal, .. }) if refusal.errno == libc::ENOENT => false,
                other => other?,
            };
        }
        Ok(interrupted)
    }

    /// Removes all our routes, such as those a previous process left. After a graceful restart, keep them and
    /// call [`Self::repair`] once routes have been selected.
    pub fn remove_all(&mut self) -> Result<ApplyReport, KernelError> {
        let mut found = Vec::new();
        self.read(|route| found.push((route.prefix, route.metric)))?;
        self.delete_found(&found)
    }

    /// Removes routes of ours by prefix and metric, which may differ from the current metric.
    pub(super) fn delete_found(&mut self, found: &[(IpPrefix, u32)]) -> Result<ApplyReport, KernelError> {
        let configured = self.place;
        let mut report = ApplyReport::default();
        let mut result = Ok(());
        for same_metric in found.chunk_by(|a, b| a.1 == b.1) {
            let deletions: Vec<_> =
                same_metric.iter().map(|(prefix, _)| RouteChange::Delete(*prefix)).collect();
            self.place.metric = same_metric[0].1;
            match self.apply(&deletions) {
                Ok(part) => report.add(part),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.place = configured;
        result.map(|()| report)
    }
}

//! Routes of ours into the kernel.

use thalweg_base::IpPrefix;

use super::error::{KernelError, Refusal, RouteFailure};
use super::message::MessageWriter;
use super::route::{self, FoundRoute, KernelRoute, Place};
use super::socket::Netlink;

/// The protocol number our routes carry. `rtnetlink.h` gives 186 to BGP, but other daemons use it and remove at
/// their start what carries it; 116 is nobody's.
pub const PROTOCOL: u8 = 116;

/// The metric our routes carry: after what administrators (0) and DHCP clients (100) install, before what IPv6
/// autoconfiguration does (1024).
pub const METRIC: u32 = 116;

/// Messages per system call. More are not faster, and hold the kernel's lock longer.
pub const BATCH_ROUTES: usize = 1024;

/// Refusals a report keeps; the others are only counted.
pub const FAILURES_KEPT: usize = 16;

/// Where our routes go and what they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// The table; 254 is the kernel's main table.
    pub table: u32,
    /// The protocol number.
    pub protocol: u8,
    /// The metric; at least 1, because the kernel takes 0 of an IPv6 route for 1024.
    pub metric: u32,
    /// Gateways are on the link of the interface that a route names, though no address there has a network with them: for
    /// who has found out by itself where gateways are.
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

/// What is to happen to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// The route is installed, or replaces ours of the prefix.
    Replace(KernelRoute),
    /// Our route of the prefix is removed.
    Delete(IpPrefix),
}

impl RouteChange {
    /// The prefix.
    pub fn prefix(&self) -> IpPrefix {
        match self {
            Self::Replace(route) => route.prefix,
            Self::Delete(prefix) => *prefix,
        }
    }
}

/// What became of a batch of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Routes installed or replaced.
    pub replaced: u64,
    /// Routes removed.
    pub deleted: u64,
    /// Routes to be removed that were not there (any more).
    pub absent: u64,
    /// Changes the kernel refused.
    pub failed: u64,
    /// The first [`FAILURES_KEPT`] of them.
    pub failures: Vec<RouteFailure>,
}

impl ApplyReport {
    /// Adds what became of another batch.
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
    /// Opens the way to the kernel's tables. Reading needs no right; changing does, and the first change says so.
    pub fn open(options: KernelOptions) -> Result<Self, KernelError> {
        Ok(Self { netlink: Netlink::open()?, place: options.place(), writer: MessageWriter::default() })
    }

    /// Executes changes in order. A refused one does not keep the others from being executed.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotPermitted`] without the right to change routes; otherwise when the socket fails. Some
    /// changes may have been executed then.
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

    /// Shows every route of ours, IPv4 before IPv6; whether the tables changed meanwhile.
    pub fn read(&mut self, mut visit: impl FnMut(FoundRoute)) -> Result<bool, KernelError> {
        let mut interrupted = false;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let sequence = self.netlink.sequences(1);
            self.writer.clear();
            route::write_dump(&mut self.writer, sequence, family, self.place.table, self.place.protocol);
            let place = self.place;
            let result = self.netlink.dump("its routes", &self.writer, sequence, |message| {
                // A kernel that does not filter lists everything.
                let found = route::parse(&message);
                if let Some(found) = found.filter(|r| r.protocol == place.protocol && r.table == place.table)
                {
                    visit(found);
                }
            });
            interrupted |= match result {
                // What the kernel says of a table that nothing was ever put into.
                Err(KernelError::Refused { refusal, .. }) if refusal.errno == libc::ENOENT => false,
                other => other?,
            };
        }
        Ok(interrupted)
    }

    /// Removes every route of ours, such as those a predecessor left. After a graceful restart, keep them and call
    /// [`Self::repair`] once routes have been selected.
    pub fn remove_all(&mut self) -> Result<ApplyReport, KernelError> {
        let mut found = Vec::new();
        self.read(|route| found.push((route.prefix, route.metric)))?;
        self.delete_found(&found)
    }

    /// Removes routes of ours by prefix and metric, which may be another than the one we install with now.
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

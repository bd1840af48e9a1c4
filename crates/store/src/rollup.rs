//! Rollups: the records of each hour, summed by step and by the fields of `KEPT`, beside the records of a writer.
//!
//! ```text
//! DIR/.rollups/minute/date=2026-11-22/hour=5/flows-...-00000000002b.rollup
//! DIR/.rollups/hour/date=2026-11-22/hour=5/flows-...-00000000002c.rollup
//! ```
//!
//! A row of a rollup is a record whose other fields are unknown, with the number of its records: so files, pruning and
//! sums are those of records. The footer names the files that it covers (`RollupFacts`). What counts of an hour is its
//! rollup and the files that this does not cover, so each record counts once:
//!
//! - **Late records** are in a file that the rollup does not cover. The next rollup is the sum of the one before and of
//!   that file; it replaces the one before as a joined file replaces small ones.
//! - **Records that are removed** are covered first, and stay among the covered. So a name that is covered and not there
//!   any more tells that records are gone.
//! - Files that are covered are not joined: a joined file has another name.
//! - Numbers of files are those of the writer, so that no file gets the name of one that is gone.
//!
//! A crash at any step changes no answer: until a rollup has its name, its files are not covered.
//!
//! Bounds: an hour has at most `ROWS_MAX` rows, the largest. Twice as many and one row group are in memory. Smaller
//! ones are summed without addresses and ASes; if exporters and interfaces alone are too many, without interfaces,
//! protocols and applications, too. The footer says so (`folded`), and then questions by these fields are not asked
//! of the rollup while there are records.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use thalweg_base::Name;
use thalweg_flow::fields::Field;
use thalweg_flow::{Counters, Direction, ExporterId, FlowKey, FlowRecord, NO_AS, NO_INTERFACE};
use thalweg_text::calendar::SECOND_NS;

use crate::block::Block;
use crate::dataset::{self, name_of};
use crate::error::StoreError;
use crate::file::{FlowFile, RollupFacts};
use crate::schema::RECORDS;

mod choose;

pub use choose::{Needs, Step};

pub(crate) const FOLDER: &str = ".rollups";
/// The most rows of an hour.
const ROWS_MAX: usize = 100_000;
/// Rows between checks whether to stop.
const LOOK_ROWS: usize = 4096;

/// How fine a rollup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Minute,
    Hour,
}

impl Level {
    /// The coarsest last.
    pub(crate) const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    fn step_s(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }

    /// The folder of its files, in that of a writer.
    pub(crate) fn folder(self, part: &Path) -> PathBuf {
        part.join(FOLDER).join(match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
        })
    }
}

/// Which rollups are made, and how long they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollupRetention {
    /// Sums by minutes are removed when their hour ended longer ago than this.
    pub minutes_s: Option<u64>,
    /// Sums by hours likewise.
    pub hours_s: Option<u64>,
}

impl RollupRetention {
    /// The age at which sums go; `None` if there are none.
    pub(crate) fn age_max_s(self, level: Level) -> Option<u64> {
        match level {
            Level::Minute => self.minutes_s,
            Level::Hour => self.hours_s,
        }
    }

    /// Whether there are any.
    pub(crate) fn is_wanted(self) -> bool {
        self != Self::default()
    }
}

/// The fields of a rollup's rows that questions may name. What small rows have lost is in the first places.
const KEPT: [Field; 13] = [
    Field::Src,
    Field::Dst,
    Field::SrcAs,
    Field::DstAs,
    Field::Ingress,
    Field::Egress,
    Field::Protocol,
    Field::App,
    Field::ExporterName,
    Field::ExporterAddress,
    Field::ExporterDomain,
    Field::DirectionWord,
    Field::SamplingInterval,
];
/// How many of them small rows lack, by how far they were folded.
const LOST: [usize; 3] = [0, 4, 8];
/// Columns that are read to sum records.
const READ: [Field; 7] = [
    Field::FlowEnd,
    Field::Packets,
    Field::Bytes,
    Field::ReversePackets,
    Field::ReverseBytes,
    Field::EventWord,
    RECORDS,
];

/// The fields by which records are summed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kept {
    step_ns: u64,
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    ingress: u32,
    egress: u32,
    application: u8,
    src_as: u32,
    dst_as: u32,
    exporter: (Name, Option<IpAddr>, Option<u32>),
    direction: Option<Direction>,
    sampling_interval: u32,
}

/// Packets and bytes, and those of the opposite direction.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    records: u64,
    forward: (u64, u64),
    reverse: Option<(u64, u64)>,
}

impl Kept {
    fn of(record: &FlowRecord, step_ns: u64) -> Self {
        let last_ns = record.counters.last_ns;
        let ExporterId { name, address, domain } = record.exporter;
        Self {
            step_ns: last_ns - last_ns % step_ns,
            src: record.key.src,
            dst: record.key.dst,
            protocol: record.key.protocol,
            ingress: record.key.ingress,
            egress: record.egress,
            application: record.application,
            src_as: record.src_as,
            dst_as: record.dst_as,
            exporter: (name, address, domain),
            direction: record.details.direction,
            sampling_interval: record.sampling_interval,
        }
    }

    /// The key of the row in which small rows are summed; see [`LOST`].
    fn folded(self, how_far: u64) -> Self {
        let any: IpAddr = match self.src {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let folded = Self { src: any, dst: any, src_as: NO_AS, dst_as: NO_AS, ..self };
        match how_far {
            0 => self,
            1 => folded,
            _ => Self { ingress: NO_INTERFACE, egress: NO_INTERFACE, protocol: 0, application: 0, ..folded },
        }
    }

    /// The bytes of its row, as on the wire.
    fn size(&self, amounts: &Amounts) -> u64 {
        let bytes = amounts.forward.1.saturating_add(amounts.reverse.unwrap_or_default().1);
        bytes.saturating_mul(self.sampling_interval.max(1).into())
    }

    fn row(&self, amounts: Amounts, step_ns: u64) -> FlowRecord {
        let key = FlowKey {
            src: self.src,
            dst: self.dst,
            src_port: 0,
            dst_port: 0,
            protocol: self.protocol,
            traffic_class: 0,
            ingress: self.ingress,
            vlan: 0,
            mpls_label: None,
        };
        let counters = |(packets, bytes)| Counters {
            packets,
            bytes,
            first_ns: self.step_ns,
            last_ns: self.step_ns + step_ns - 1,
            ..Counters::default()
        };
        let mut row = FlowRecord::new(key, counters(amounts.forward), None);
        row.reverse = amounts.reverse.map(counters);
        row.egress = self.egress;
        row.application = self.application;
        (row.src_as, row.dst_as) = (self.src_as, self.dst_as);
        let (name, address, domain) = self.exporter;
        row.exporter = ExporterId { address, domain, name };
        row.details.direction = self.direction;
        row.sampling_interval = self.sampling_interval;
        row.next_as = u32::try_from(amounts.records).unwrap_or(u32::MAX);
        row
    }
}

impl Amounts {
    /// Those of a record, or of a row of a rollup.
    fn of(record: &FlowRecord, is_row: bool) -> Self {
        let of = |counters: &Counters| (counters.packets, counters.bytes);
        let records = if is_row { record.next_as.into() } else { 1 };
        Self { records, forward: of(&record.counters), reverse: record.reverse.as_ref().map(of) }
    }

    fn add(&mut self, more: Self) {
        let add =
            |sum: (u64, u64), more: (u64, u64)| (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
        self.records += more.records;
        self.forward = add(self.forward, more.forward);
        if let Some(reverse) = more.reverse {
            self.reverse = Some(add(self.reverse.unwrap_or_default(), reverse));
        }
    }
}

type Rows = HashMap<Kept, Amounts, RandomState>;

/// The sums of some files.
pub(crate) struct Summed {
    rows: Rows,
    pub(crate) facts: RollupFacts,
}

/// The rollup of an hour, or several while one replaces others.
pub(crate) fn of_hour(part: &Path, level: Level, hour: u64) -> Result<Vec<Arc<FlowFile>>, StoreError> {
    let partition = dataset::partition_path(&level.folder(part), hour);
    let view = dataset::open_all(&dataset::published(&partition)?)?;
    match view.skipped.named.into_iter().next() {
        // What it covers is unknown.
        Some((path, what)) => Err(StoreError::Unreadable { path, what }),
        None => Ok(view.files),
    }
}

/// The names of the files of an hour that are in its rollups.
pub(crate) fn covered(part: &Path, hour: u64) -> Result<HashSet<String>, StoreError> {
    let mut names = HashSet::new();
    for level in Level::ALL {
        let facts = of_hour(part, level, hour)?;
        let facts = facts.iter().filter_map(|file| file.rollup.as_ref());
        names.extend(facts.flat_map(|facts| facts.covers.iter().cloned()));
    }
    Ok(names)
}

/// The sums of an earlier rollup and of files; `None` if this must stop.
pub(crate) fn sum(
    level: Level,
    earlier: &[Arc<FlowFile>],
    files: &[Arc<FlowFile>],
    stops: &dyn Fn() -> bool,
) -> Result<Option<Summed>, StoreError> {
    let facts = RollupFacts { step_s: level.step_s(), span_ns: (u64::MAX, 0), ..RollupFacts::default() };
    let mut summed = Summed { rows: Rows::default(), facts };
    for file in earlier.iter().chain(files) {
        match &file.rollup {
            Some(rollup) => {
                summed.facts.folded = summed.facts.folded.max(rollup.folded);
                summed.facts.covers.extend(rollup.covers.iter().cloned());
            }
            None => drop(summed.facts.covers.insert(name_of(&file.path).to_owned())),
        }
        if let Some((from, to)) = file.span() {
            let span = &mut summed.facts.span_ns;
            *span = (span.0.min(from), span.1.max(to));
        }
        for number in 0..file.row_groups.len() {
            if !summed.add(file, number, ROWS_MAX, stops)? {
                return Ok(None);
            }
        }
    }
    summed.fold(ROWS_MAX);
    Ok(Some(summed))
}

/// Whether a rollup has the records of this file.
pub(crate) fn is_covered(file: &FlowFile, rollup: &FlowFile) -> bool {
    rollup.rollup.as_ref().is_some_and(|facts| facts.covers.contains(name_of(&file.path)))
}

impl Summed {
    /// The rows by time.
    pub(crate) fn into_records(self) -> Vec<FlowRecord> {
        let step_ns = self.facts.step_s * SECOND_NS;
        let mut rows: Vec<FlowRecord> =
            self.rows.into_iter().map(|(kept, amounts)| kept.row(amounts, step_ns)).collect();
        rows.sort_by_key(|row| (row.counters.last_ns, row.key));
        rows
    }

    /// Adds the rows of a row group; returns `false` if this must stop.
    fn add(
        &mut self,
        file: &FlowFile,
        number: usize,
        rows_max: usize,
        stops: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let step_ns = self.facts.step_s * SECOND_NS;
        let group = file.row_groups[number];
        let fields: BTreeSet<usize> = KEPT.iter().chain(&READ).map(|field| field.index()).collect();
        let fields: Vec<Field> = fields.into_iter().map(|place| Field::STORED[place]).collect();
        let mut block = Block::new(group.rows);
        file.load(number, &fields, &mut block)?;
        for row in 0..group.rows {
            if row % LOOK_ROWS == 0 && stops() {
                return Ok(false);
            }
            let record = block.record_of(row, &fields)?;
            if record.details.event.is_some() {
                continue;
            }
            let amounts = Amounts::of(&record, file.rollup.is_some());
            self.rows.entry(Kept::of(&record, step_ns)).or_default().add(amounts);
            if self.rows.len() >= rows_max.saturating_mul(2) {
                self.fold(rows_max);
            }
        }
        Ok(true)
    }

    /// Sums the smallest rows beyond so many without addresses and ASes; if what is left are too many still, further.
    fn fold(&mut self, rows_max: usize) {
        if self.rows.len() > rows_max {
            self.facts.folded = self.facts.folded.max(1);
            keep_largest(&mut self.rows, rows_max);
        }
        let is_rest = |kept: &Kept| *kept == kept.folded(1);
        if self.facts.folded > 0 && self.rows.keys().filter(|kept| is_rest(kept)).count() > rows_max {
            self.facts.folded = 2;
            fold_rows(&mut self.rows, 2, |kept, _| is_rest(kept));
        }
    }
}

/// Sums the smallest rows beyond so many without addresses and ASes. So what a large row has is exact, unless it was
/// among the smallest when memory was full.
fn keep_largest(sums: &mut Rows, rows_max: usize) {
    let surplus = sums.len().saturating_sub(rows_max);
    let Some(last) = surplus.checked_sub(1) else { return };
    let mut sizes: Vec<u64> = sums.iter().map(|(kept, amounts)| kept.size(amounts)).collect();
    let (smaller, size, _) = sizes.select_nth_unstable(last);
    let size = *size;
    let mut of_this_size = surplus - smaller.iter().filter(|smaller| **smaller < size).count();
    fold_rows(sums, 1, |kept, amounts| {
        let this = kept.size(amounts);
        let is_last = this == size && of_this_size > 0;
        of_this_size -= usize::from(is_last);
        this < size || is_last
    });
}

/// Sums some of the rows without the fields that are lost so far.
fn fold_rows(rows: &mut Rows, how_far: u64, is_small: impl FnMut(&Kept, &mut Amounts) -> bool) {
    let small: Vec<(Kept, Amounts)> = rows.extract_if(is_small).collect();
    for (kept, amounts) in small {
        rows.entry(kept.folded(how_far)).or_default().add(amounts);
    }
}

#[cfg(test)]
mod tests;

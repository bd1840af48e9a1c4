//! Rollups: the records of each hour, summed by step and by the fields of [`Kept`], in a dataset of their own.
//!
//! A row of a rollup is a record whose other fields are unknown: so files, upkeep and queries are those of
//! records. An hour's rollup is one file. If the hour's records are not the same any more, because late ones came, it
//! is made again and replaces the earlier file as a joined file replaces small ones (see [`crate::upkeep`]): a crash
//! at any step changes no answer. An hour that has lost records to retention keeps the rollup that it has.
//!
//! Bounds: twice the rows that an hour may have (`rows_max`) and one row group are in memory.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use thalweg_base::Name;
use thalweg_flow::fields::Field;
use thalweg_flow::{Counters, Direction, ExporterId, FlowKey, FlowRecord, NO_AS};
use thalweg_text::calendar::{HOUR_NS, SECOND_NS};

use crate::block::Block;
use crate::dataset::{self, Dataset, Skipped, View, Window};
use crate::error::StoreError;
use crate::filter::Filter;
use crate::query::{Metric, Query, Sums, top};
use crate::writer::{Writer, WriterOptions};

/// Says that a folder is a rollup, and its step in seconds. Readers skip it, because its name begins with a dot.
const MARK: &str = ".rollup";

/// What a rollup is made of.
#[derive(Clone, Copy, Debug)]
pub struct RollupOptions {
    /// Divides an hour.
    pub step_s: u64,
    /// Whether addresses are among the fields that are kept.
    pub hosts: bool,
    /// The most rows of an hour. Smaller ones are summed without addresses and ASes.
    pub rows_max: usize,
    /// Only hours that ended before this.
    pub until_ns: u64,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct RolledUp {
    pub hours_made: u64,
    /// Hours whose rollup is of the same packets and bytes.
    pub hours_unchanged: u64,
    /// Hours with fewer records than their rollup was made of: it stays.
    pub hours_kept: u64,
    /// Hours with files that could not be read: they have no new rollup.
    pub hours_incomplete: u64,
    /// Records in the rollups that were made, and their rows.
    pub records: u64,
    pub rows: u64,
    /// Records in rows that were summed without addresses and ASes, because there were too many.
    pub records_in_rest: u64,
    pub skipped: Skipped,
}

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
    fn of(record: &FlowRecord, step_ns: u64, hosts: bool) -> Self {
        let last_ns = record.counters.last_ns;
        let ExporterId { name, address, domain } = record.exporter;
        let kept = Self {
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
        };
        if hosts { kept } else { kept.without_hosts() }
    }

    fn without_hosts(self) -> Self {
        let any: IpAddr = match self.src {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { src: any, dst: any, ..self }
    }

    /// The key of the row in which small rows are summed.
    fn rest(self) -> Self {
        Self { src_as: NO_AS, dst_as: NO_AS, ..self.without_hosts() }
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
        row
    }
}

impl Amounts {
    fn of(record: &FlowRecord) -> Self {
        let of = |counters: &Counters| (counters.packets, counters.bytes);
        Self { records: 1, forward: of(&record.counters), reverse: record.reverse.as_ref().map(of) }
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

/// Sums every whole hour of a dataset into another folder.
pub fn roll_up(source: &Dataset, target: &Path, options: RollupOptions) -> Result<RolledUp, StoreError> {
    if options.step_s == 0 || 3600 % options.step_s != 0 {
        return Err(StoreError::Query(
            "the step of a rollup must divide an hour: 1m, 5m, 15m, 1h".to_owned(),
        ));
    }
    let parts = source.parts()?;
    mark(&parts, target, options.step_s)?;
    let writer_options = WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| 0) };
    let (writer, recovery) = Writer::open(target, writer_options)?;
    let mut done = RolledUp { skipped: recovery.skipped, ..RolledUp::default() };
    let mut hours = BTreeSet::new();
    for part in &parts {
        hours.extend(dataset::partitions(part)?.into_iter().map(|partition| partition.hour));
    }
    for hour in hours.into_iter().filter(|hour| (hour + 1).saturating_mul(HOUR_NS) <= options.until_ns) {
        roll_up_hour(source, &writer, hour, options, &mut done)?;
    }
    writer.close()?;
    Ok(done)
}

/// Marks a new folder as a rollup. A folder with records of its own is refused, because rollups replace files.
fn mark(parts: &[PathBuf], target: &Path, step_s: u64) -> Result<(), StoreError> {
    fs::create_dir_all(target).map_err(StoreError::io("create", target))?;
    let real = |path: &Path| path.canonicalize().map_err(StoreError::io("find", path));
    let place = real(target)?;
    for part in parts {
        let part = real(part)?;
        if place.starts_with(&part) || part.starts_with(&place) {
            let what = "a rollup needs a folder outside the dataset, and not around it";
            return Err(StoreError::Query(format!("{}: {what}", target.display())));
        }
    }
    let path = target.join(MARK);
    match fs::read_to_string(&path) {
        Ok(text) if text.trim() == step_s.to_string() => return Ok(()),
        Ok(text) => {
            let what =
                format!("is a rollup in steps of {} s; name another folder for {step_s} s", text.trim());
            return Err(StoreError::Query(format!("{} {what}", target.display())));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    }
    let mut file = dataset::Temporary::of(path.clone());
    // A mark that a crash left unfinished is written again.
    if dataset::folder(target)?.iter().any(|found| found != file.path()) {
        let what = "is neither empty nor a rollup; name another folder";
        return Err(StoreError::Query(format!("{} {what}", target.display())));
    }
    fs::write(file.path(), step_s.to_string()).map_err(StoreError::io("write", &path))?;
    file.publish()?;
    dataset::sync_folder(target)
}

/// Packets and bytes as counted, without events.
fn totals(view: &View) -> Result<(Sums, Skipped), StoreError> {
    let query = Query { raw: true, ..Query::new(Window::ALL, Filter::default()) };
    let answer = top(view, &query, &[], Metric::Bytes, 0)?;
    Ok((answer.total, answer.scanned.skipped))
}

fn roll_up_hour(
    source: &Dataset,
    writer: &Writer,
    hour: u64,
    options: RollupOptions,
    done: &mut RolledUp,
) -> Result<(), StoreError> {
    let window = Window { from_ns: hour * HOUR_NS, to_ns: (hour + 1).saturating_mul(HOUR_NS) };
    let view = source.view(window)?;
    let (records, skipped) = totals(&view)?;
    if skipped.count > 0 {
        done.hours_incomplete += 1;
        done.skipped.join(skipped);
        return Ok(());
    }
    if records.flows == 0 {
        return Ok(());
    }
    let earlier = dataset::view_of_part(writer.root(), window)?;
    let (known, skipped) = totals(&earlier)?;
    done.skipped.join(skipped);
    if known.flows > 0 {
        if (known.packets, known.bytes) == (records.packets, records.bytes) {
            done.hours_unchanged += 1;
            return Ok(());
        }
        if known.packets > records.packets || known.bytes > records.bytes {
            done.hours_kept += 1;
            return Ok(());
        }
    }
    let rows = summed(&view, options, done)?;
    done.rows += rows.len() as u64;
    done.records += records.flows;
    writer.replace_hour(hour, &rows, &earlier.files)?;
    done.hours_made += 1;
    Ok(())
}

/// The rows of an hour, by time.
fn summed(view: &View, options: RollupOptions, done: &mut RolledUp) -> Result<Vec<FlowRecord>, StoreError> {
    let step_ns = options.step_s * SECOND_NS;
    let mut sums = Rows::default();
    for file in &view.files {
        for (number, group) in file.row_groups.iter().enumerate() {
            let mut block = Block::new(group.rows);
            file.load(number, Field::STORED, &mut block)?;
            for row in 0..group.rows {
                let record = block.record(row)?;
                if record.details.event.is_some() {
                    continue;
                }
                sums.entry(Kept::of(&record, step_ns, options.hosts)).or_default().add(Amounts::of(&record));
                if sums.len() >= options.rows_max.saturating_mul(2) {
                    done.records_in_rest += keep_largest(&mut sums, options.rows_max)?;
                }
            }
        }
    }
    done.records_in_rest += keep_largest(&mut sums, options.rows_max)?;
    let mut rows: Vec<FlowRecord> = sums.iter().map(|(kept, amounts)| kept.row(*amounts, step_ns)).collect();
    rows.sort_by_key(|row| (row.counters.last_ns, row.key));
    Ok(rows)
}

/// Sums the smallest rows beyond so many without addresses and ASes, and returns how many records have lost these. So
/// what a large row has is exact, unless it was among the smallest when memory was full.
fn keep_largest(sums: &mut Rows, rows_max: usize) -> Result<u64, StoreError> {
    let surplus = sums.len().saturating_sub(rows_max);
    let Some(last) = surplus.checked_sub(1) else { return Ok(0) };
    let mut sizes: Vec<u64> = sums.iter().map(|(kept, amounts)| kept.size(amounts)).collect();
    let (smaller, size, _) = sizes.select_nth_unstable(last);
    let size = *size;
    let mut of_this_size = surplus - smaller.iter().filter(|smaller| **smaller < size).count();
    let is_small = |kept: &Kept, amounts: &mut Amounts| {
        let this = kept.size(amounts);
        let is_last = this == size && of_this_size > 0;
        of_this_size -= usize::from(is_last);
        this < size || is_last
    };
    let small: Vec<(Kept, Amounts)> = sums.extract_if(is_small).collect();
    let mut moved = 0;
    for (kept, amounts) in small {
        let rest = kept.rest();
        moved += if kept == rest { 0 } else { amounts.records };
        sums.entry(rest).or_default().add(amounts);
    }
    // Exporters and interfaces are few; if not, memory has an end here, too.
    if sums.iter().filter(|(kept, _)| **kept == kept.rest()).count() > rows_max {
        let what = "an hour has too many exporters and interfaces for a rollup; give more rows";
        return Err(StoreError::Query(what.to_owned()));
    }
    Ok(moved)
}

#[cfg(test)]
mod tests;

//! Measures this router's own look-up structures and turns the results into rows.
//!
//! `lpm/measure.rs` measures. This module reads or generates the table and compares the answers: structures that
//! find different next hops are not worth comparing.

use super::measure::{self, Options, Report, Spread};
use super::{LpmRow, Range};
use crate::workload::prefixes;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use thalweg_dataplane::lpm::LpmError;
use thalweg_dataplane::lpm::workload::Routes;

/// Routes of the generated table.
const MADE_V4: usize = 900_000;
const MADE_V6: usize = 160_000;
/// Routes of the generated table with `--quick`.
const MADE_QUICK_V4: usize = 100_000;
const MADE_QUICK_V6: usize = 20_000;
/// The most text that a table may have once decompressed: a thousand times that of a full Internet table.
const TEXT_BYTES_MAX: u64 = 1 << 32;

/// Why there are no rows.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The table cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// The file contains no prefix.
    #[error("{path} has no prefixes; {bad_lines} lines are not prefixes")]
    NoPrefixes {
        path: PathBuf,
        /// Lines without a prefix.
        bad_lines: usize,
    },
    /// The structures cannot hold the table.
    #[error(transparent)]
    Table(#[from] LpmError),
    /// Two structures gave different answers for the same addresses: a bug in this program.
    #[error(
        "{family}, {kind} addresses: the structures do not agree:{}",
        .answers.iter().map(|(name, hits, sum)| format!(" {name} {hits} hits, sum {sum};")).collect::<String>()
    )]
    Disagree {
        /// `IPv4` or `IPv6`.
        family: String,
        /// How addresses were drawn.
        kind: String,
        /// Each structure's number of hits and sum of next hops.
        answers: Vec<(String, u64, u64)>,
    },
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// Counted passes over the addresses.
    pub passes: usize,
    /// A tenth of the work.
    pub quick: bool,
}

/// A table, and where it comes from.
#[derive(Debug)]
pub struct BenchTable {
    routes: Routes,
    /// A few words for the report.
    pub description: String,
}

impl BenchTable {
    /// Reads one prefix per line, plain or compressed; ignores the rest of each line.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let wrong = |source| BenchError::Read { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(wrong)?;
        let (_, reader) = thalweg_ports::decompressed(file).map_err(wrong)?;
        let mut text = Vec::new();
        reader.take(TEXT_BYTES_MAX).read_to_end(&mut text).map_err(wrong)?;
        let text = String::from_utf8_lossy(&text);
        let first_words: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let routes = Routes::from_text(&first_words.join("\n"));
        if routes.v4.is_empty() && routes.v6.is_empty() {
            return Err(BenchError::NoPrefixes { path: path.to_path_buf(), bad_lines: routes.bad_lines });
        }
        let description = format!("{}, {}", path.display(), size(&routes));
        Ok(Self { routes, description })
    }

    /// Generates a table from a seed.
    pub fn made(seed: u64, quick: bool) -> Self {
        let (v4, v6) = if quick { (MADE_QUICK_V4, MADE_QUICK_V6) } else { (MADE_V4, MADE_V6) };
        let mut text = String::new();
        prefixes::v4(v4, seed).iter().for_each(|net| text += &format!("{net}\n"));
        prefixes::v6(v6, seed).iter().for_each(|net| text += &format!("{net}\n"));
        let routes = Routes::from_text(&text);
        let description =
            format!("a generated table, spread more evenly than a real one, {}, seed {seed}", size(&routes));
        Self { routes, description }
    }
}

fn size(routes: &Routes) -> String {
    let bad = match routes.bad_lines {
        0 => String::new(),
        n => format!(", {n} lines that are no prefix"),
    };
    format!("{} IPv4 and {} IPv6 prefixes{bad}", routes.v4.len(), routes.v6.len())
}

/// Measures every structure. Calls `progress` with what is done next.
pub fn bench(
    table: &BenchTable,
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<LpmRow>, BenchError> {
    let defaults = Options::default();
    let scale = if options.quick { 10 } else { 1 };
    let both = !table.routes.v4.is_empty() && !table.routes.v6.is_empty();
    let options = Options {
        addresses: defaults.addresses / scale,
        passes: options.passes.max(1),
        // Updates are measured for both families or not at all.
        updates: if both { defaults.updates / scale } else { 0 },
        all_variants: true,
        ..defaults
    };
    let reports = measure::measure(&table.routes, &options, progress)?;
    let reports: Vec<Report> = reports.into_iter().filter(|report| report.routes > 0).collect();
    agree(&reports)?;
    Ok(reports.iter().flat_map(rows).collect())
}

/// All structures of a family must have found the same.
fn agree(reports: &[Report]) -> Result<(), BenchError> {
    for first in reports {
        for (at, timing) in first.timings.iter().enumerate() {
            let of_family = || reports.iter().filter(|r| r.family == first.family);
            let answer = |r: &Report| r.timings.get(at).map(|t| t.answers);
            if of_family().any(|r| answer(r) != Some(timing.answers)) {
                let answers = of_family().filter_map(|r| answer(r).map(|a| (r.name.clone(), a.hits, a.sum)));
                return Err(BenchError::Disagree {
                    family: family(first),
                    kind: timing.kind.to_string(),
                    answers: answers.collect(),
                });
            }
        }
    }
    Ok(())
}

fn family(report: &Report) -> String {
    format!("IPv{}", report.family)
}

fn rows(report: &Report) -> Vec<LpmRow> {
    let (structure, mode) = report.name.split_once(' ').unwrap_or((&report.name, "default"));
    let range = |s: Spread| Range { median: s.median, min: s.min, max: s.max };
    report
        .timings
        .iter()
        .map(|timing| LpmRow {
            structure: structure.to_owned(),
            family: family(report),
            kind: timing.kind.to_string(),
            mode: mode.to_owned(),
            mlps: range(timing.wall_mlps),
            cpu_mlps: timing.cpu_mlps.median,
            memory_bytes: report.table_bytes as u64,
            build_s: report.build_s,
            updates_per_s: report.updates.map(|u| u.per_second),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_is_measured_on_every_kind_and_agrees() {
        let mut text = String::from("# a table\n0.0.0.0/0 192.0.2.1 core\n::/0\nnonsense\n");
        prefixes::v4(500, 3).iter().for_each(|net| text += &format!("{net} 192.0.2.1\n"));
        prefixes::v6(300, 3).iter().for_each(|net| text += &format!("{net}\n"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.txt.gz");
        let mut gz = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
        gz.finish().unwrap();

        let table = BenchTable::read(&path).unwrap();
        assert!(table.description.ends_with("501 IPv4 and 301 IPv6 prefixes, 1 lines that are no prefix"));
        let rows = bench(&table, &BenchOptions { passes: 1, quick: true }, &mut |_| ()).unwrap();
        for structure in ["fib4", "dir24", "trie", "fib6", "trie6"] {
            let kinds: Vec<&str> = rows
                .iter()
                .filter(|row| row.structure == structure && row.mode == "default")
                .map(|row| row.kind.as_str())
                .collect();
            assert_eq!(kinds.len(), 3, "{structure}: {kinds:?}");
        }
        assert!(rows.iter().all(|row| row.mlps.median > 0.0 && row.memory_bytes > 0));
        assert!(rows.iter().any(|row| row.updates_per_s.is_some()));
    }

    #[test]
    fn a_table_of_one_family_is_measured_without_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.txt");
        std::fs::write(&path, "192.0.2.0/24\n198.51.100.0/24\n").unwrap();
        let table = BenchTable::read(&path).unwrap();
        let rows = bench(&table, &BenchOptions { passes: 1, quick: true }, &mut |_| ()).unwrap();
        assert!(rows.iter().all(|row| row.family == "IPv4"));
        std::fs::write(&path, "no prefix\n").unwrap();
        assert!(matches!(BenchTable::read(&path), Err(BenchError::NoPrefixes { bad_lines: 1, .. })));
        assert!(matches!(BenchTable::read(&folder.path().join("missing")), Err(BenchError::Read { .. })));
    }
}

//! The table to look up in: read from a file, or generated.

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
    /// DPDK's table stopped answering.
    #[error("rte_fib: {0}")]
    RteFib(#[from] super::rte_fib::RteFibError),
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

/// A table, and where it comes from.
#[derive(Debug)]
pub struct BenchTable {
    pub(super) routes: Routes,
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

#[cfg(test)]
mod tests {
    use super::super::measure::{Options, measure};
    use super::super::rte_fib::{Program, RteFibError};
    use super::*;

    fn without() -> Result<Program, RteFibError> {
        Err(RteFibError::NoLibrary)
    }

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
        let rows = measure(&table.routes, &Options::new(1, true), without(), &mut |_| ()).unwrap().rows;
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
        let rows = measure(&table.routes, &Options::new(1, true), without(), &mut |_| ()).unwrap().rows;
        assert!(rows.iter().all(|row| row.family == "IPv4"));
        std::fs::write(&path, "no prefix\n").unwrap();
        assert!(matches!(BenchTable::read(&path), Err(BenchError::NoPrefixes { bad_lines: 1, .. })));
        assert!(matches!(BenchTable::read(&folder.path().join("missing")), Err(BenchError::Read { .. })));
    }
}

//! `[bgp.seed]`: loads a routing table from a file, on a thread of its own while sessions come up.

use std::path::Path;
use std::time::{Duration, Instant};

use thalweg_node::seed::{SeedCounters, Seeder};
use thalweg_node::speaker::Speaker;
use thalweg_ports::MrtReader;
use thalweg_wire::mrt::Content;

/// Interval of log lines about progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Puts the routes of a file into the RIB; logs and skips what cannot be read.
pub(crate) fn seed(path: &Path, speaker: &Speaker) {
    let begun = Instant::now();
    let mut told_at = begun;
    let mut reader = match MrtReader::open(path) {
        Ok(reader) => reader,
        Err(error) => return tracing::error!("seed: {error}"),
    };
    let mut seeder = Seeder::new(speaker);
    let mut broken = 0u64;
    while let Some(item) = reader.next() {
        match item.map(|item| item.content) {
            Ok(Content::Rib(rib)) if !rib.multicast => rib.entries().for_each(|entry| seeder.push(&entry)),
            Ok(_) => {}
            Err(error) => {
                broken += 1;
                if broken == 1 {
                    tracing::warn!("seed: {error}");
                }
            }
        }
        if told_at.elapsed() >= PROGRESS_EVERY {
            told_at = Instant::now();
            tracing::info!(routes = seeder.counters().routes, "seed: reading {}", path.display());
        }
    }
    let SeedCounters { routes, peers, refused, without_place } = seeder.finish();
    let seconds = begun.elapsed().as_secs_f64();
    tracing::info!(
        routes,
        peers,
        refused = refused + without_place,
        broken_records = broken,
        "seed: {} is in the RIB after {seconds:.2} s",
        path.display()
    );
}

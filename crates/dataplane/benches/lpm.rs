//! `cargo bench -p thalweg-dataplane --bench lpm -- PREFIX-FILE[.gz] [PASSES] [all]`: times every
//! look-up structure on the prefixes of a file, one a line, and prints a table.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::Read;
use thalweg_dataplane::lpm::measure::{Options, Routes, measure};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(path) = arguments.first() else {
        eprintln!("lpm: no prefix file given, nothing measured");
        return Ok(());
    };
    let mut text = String::new();
    if path.ends_with(".gz") {
        MultiGzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    } else {
        File::open(path)?.read_to_string(&mut text)?;
    }
    let mut options = Options { all_variants: arguments.iter().any(|a| a == "all"), ..Options::default() };
    if let Some(passes) = arguments.get(1).and_then(|a| a.parse().ok()) {
        options.passes = passes;
    }
    let routes = Routes::from_text(&text);
    println!(
        "{:16} {:>7} {:>8} {:>8} | million look-ups/s per CPU second: median (min..max); wall median; hits, sum",
        "structure", "build s", "table MB", "total MB"
    );
    for report in measure(&routes, &options, &mut |_| ())? {
        println!(
            "{:16} {:7.2} {:8.1} {:8.1}",
            report.name,
            report.build_s,
            report.table_bytes as f64 / 1e6,
            report.total_bytes as f64 / 1e6
        );
        for timing in &report.timings {
            println!(
                "    {:8} {:7.1} ({:.1}..{:.1})  wall {:7.1}  hits {} sum {}",
                timing.kind.to_string(),
                timing.cpu_mlps.median,
                timing.cpu_mlps.min,
                timing.cpu_mlps.max,
                timing.wall_mlps.median,
                timing.answers.hits,
                timing.answers.sum
            );
        }
        if let Some(updates) = report.updates {
            println!(
                "    updates  {:.0}/s of {}, reader meanwhile {:.1} million look-ups/s",
                updates.per_second, updates.count, updates.reader_mlps
            );
        }
    }
    Ok(())
}

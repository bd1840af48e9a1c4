//! A report with generated numbers, to look at when a plot or the page is changed:
//! `cargo run -p thalweg-lab --example gallery FOLDER`.

use std::convert::Infallible;
use std::path::Path;
use thalweg_base::XorShift64Star;
use thalweg_lab::lpm::{self, LpmRow};
use thalweg_lab::models::{self, Cell, CellRun, Grid, RunOptions};
use thalweg_lab::plot;
use thalweg_lab::report::Origin;
use thalweg_lab::stats::Summary;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/gallery".to_owned());
    let folder = Path::new(&folder);

    let grid = Grid {
        models: ["serial", "run-to-completion", "pipeline", "tokens", "farm"].map(String::from).to_vec(),
        workers: vec![1, 2, 4, 8],
        chunk_packets: vec![64, 256, 1600, 6400],
        work: vec!["none".to_owned(), "queens:8".to_owned()],
    };
    let mut rng = XorShift64Star::new(1);
    let measure = |cell: &Cell| Ok::<_, Infallible>(made_up(cell, &mut rng));
    let outcome = models::run(&grid.cells(), &RunOptions::default(), measure, |_| ())?;
    println!("{}", models::table(&outcome));
    let origin = Origin::here("cargo run --example gallery", "generated numbers, nothing was measured");
    let report = models::report(&outcome, "Generated numbers, to look at the page.", origin.clone());
    let page = report.write(&folder.join("models"), &outcome)?;
    println!("{}", page.display());
    for (number, (svg, _)) in models::plots(&outcome).iter().enumerate() {
        std::fs::write(folder.join(format!("plot-{number}.svg")), plot::standalone(svg))?;
    }

    let rows = look_ups(&mut rng);
    println!("{}", lpm::table(&rows));
    let page = lpm::report(&rows, "Generated numbers, to look at the page.", origin)
        .write(&folder.join("lpm"), &rows)?;
    println!("{}", page.display());
    Ok(())
}

fn made_up(cell: &Cell, rng: &mut XorShift64Star) -> CellRun {
    let noise = 1.0 + f64::from(rng.below(1000)) / 8000.0;
    let (cost_ns, share, hold) = match cell.model.as_str() {
        "serial" => (45.0, 0.0, 1.0),
        "run-to-completion" => (48.0, 0.97, 1.1),
        "pipeline" => (60.0, 0.7, 3.0),
        "tokens" => (55.0, 0.9, 14.0),
        _ => (58.0, 0.88, 4.0),
    };
    let cost_ns = if cell.work == "none" { cost_ns } else { cost_ns + 40_000.0 };
    let workers = cell.workers as f64;
    let overhead = 1.0 + 30.0 / cell.chunk_packets as f64;
    let elapsed_s = 1e6 * cost_ns * 1e-9 * overhead * noise * ((1.0 - share) + share / workers);
    let residence_p50_ns = cost_ns * cell.chunk_packets as f64 * hold * noise;
    CellRun {
        packets: 1_000_000,
        elapsed_s,
        cpu_s: elapsed_s * workers,
        residence_p50_ns,
        residence_p99_ns: residence_p50_ns * (2.0 + hold * noise),
        max_rss_bytes: 50_000_000,
        samples: Vec::new(),
    }
}

fn look_ups(rng: &mut XorShift64Star) -> Vec<LpmRow> {
    let mut rows = Vec::new();
    let structures = [
        ("dir-24-8", "one", 95.0),
        ("dir-24-8", "batch", 190.0),
        ("poptrie", "one", 70.0),
        ("poptrie", "batch", 160.0),
        ("rte_fib", "avx512", 153.0),
    ];
    for (family, factor) in [("IPv4", 1.0), ("IPv6", 0.4)] {
        for (kind, ease) in [("inside", 1.0), ("random", 0.7), ("zipf", 2.9)] {
            for (structure, mode, speed) in structures {
                let median = speed * factor * ease;
                let spread = 1.0 + f64::from(rng.below(100)) / 1000.0;
                rows.push(LpmRow {
                    structure: structure.to_owned(),
                    family: family.to_owned(),
                    kind: kind.to_owned(),
                    mode: mode.to_owned(),
                    mlps: Summary::of(&[median / spread, median, median * spread]).expect("numbers"),
                    cpu_mlps: median * 1.02,
                    memory_bytes: if structure == "poptrie" { 12_000_000 } else { 70_000_000 },
                    build_s: 0.31,
                    updates_per_s: (mode == "batch").then_some(850_000.0),
                });
            }
        }
    }
    rows
}

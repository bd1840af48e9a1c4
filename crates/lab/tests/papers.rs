//! docs/papers/measured.md says what the results beside it say.

use std::fs;
use std::path::Path;

use thalweg_lab::all::{Written, origins, side_by_side};

const MACHINES: [&str; 2] = ["2-cores", "16-cores"];

/// The page ends with this table; `THALWEG_BLESS=1` writes it.
#[test]
fn the_page_of_results_is_current() {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers");
    let machines = MACHINES.map(|name| {
        let text = fs::read_to_string(papers.join(format!("results/{name}.json"))).expect("results");
        Written { name: name.replace('-', " "), written: serde_json::from_str(&text).expect("JSON") }
    });
    let table = side_by_side(&machines);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let headings: Vec<String> = table.columns().iter().map(|(heading, _)| heading.clone()).collect();
    let mut current = line(&headings) + &"|---".repeat(headings.len()) + "|\n";
    current.extend(table.rows().iter().map(|row| line(row)));
    current += "\nMachines:\n\n";
    current.extend(origins(&machines).iter().map(|origin| format!("- {origin}\n")));

    let page = papers.join("measured.md");
    let text = fs::read_to_string(&page).expect("the page");
    let (before, _) = text.split_once("| where |").expect("the table, which ends the page");
    let current = format!("{before}{current}");
    if std::env::var_os("THALWEG_BLESS").is_some() {
        fs::write(&page, &current).expect("it can be written");
    }
    let there = fs::read_to_string(&page).expect("the page");
    assert!(there == current, "docs/papers/measured.md is not current: run this with THALWEG_BLESS=1");
}

//! Tests all claims of the papers in one report: runs the experiments one after another, and judges each claim by
//! their results.
//!
//! The experiments that a paper needs, and their options, are data ([`crate::claims`]). The caller runs an
//! experiment; this module says what to run and summarizes the results. If an experiment fails, its claims are
//! "not run".

mod agenda;

pub use agenda::{Agenda, Task};

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::claims::{self, Judged, Step, Verdict};
use crate::noise::Noise;
use crate::report::{Origin, Report, columns};
use thalweg_text::Table;

/// The results of all claims.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// One entry per claim, in the papers' order.
    pub claims: Vec<Judged>,
    /// Experiments that ended without results, and why.
    pub failed: Vec<String>,
    /// Experiments that were not started, and why.
    pub left_out: Vec<String>,
    /// The number of passes; the last one may be incomplete.
    pub passes: usize,
    /// How quiet the machine was before and after.
    pub noise: Vec<Noise>,
}

/// Results of each paper's experiments, by paper and experiment.
pub type Results = BTreeMap<(String, String), Value>;

/// The experiments that these papers need; those of all papers if none is named.
pub fn steps(papers: &[String]) -> Vec<&'static Step> {
    claims::steps().iter().filter(|step| is_wanted(papers, &step.paper)).collect()
}

fn is_wanted(papers: &[String], paper: &str) -> bool {
    papers.is_empty() || papers.iter().any(|wanted| wanted == paper)
}

/// The numbers of the papers, all of which have claims. A constant, because every call of the program asks for
/// them.
pub const PAPERS: [&str; 5] = ["000", "001", "002", "003", "004"];

/// Judges the claims of these papers by the results of their experiments, over one or more passes.
pub fn judge(papers: &[String], passes: &[Results]) -> Vec<Judged> {
    let of_them = claims::all().iter().filter(|claim| is_wanted(papers, &claim.paper));
    let judged = of_them.map(|claim| {
        let key = (claim.paper.clone(), claim.experiment.clone().unwrap_or_default());
        claim.judge_passes(&passes.iter().filter_map(|results| results.get(&key)).collect::<Vec<_>>())
    });
    judged.collect()
}

/// A row for each claim.
pub fn table(outcome: &Outcome) -> Table {
    claims::table(&outcome.claims).unwrap_or_else(|| Table::new("No claims", []))
}

/// The number of claims by verdict.
pub fn lead(outcome: &Outcome) -> String {
    let count = |verdict| outcome.claims.iter().filter(|judged| judged.verdict == verdict).count();
    format!(
        "Of {} statements, {} are reproduced, {} differ and {} were not run.",
        outcome.claims.len(),
        count(Verdict::Reproduced),
        count(Verdict::Differs),
        count(Verdict::NotRun)
    )
}

/// The report; the experiments' own reports are in folders beside it.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("What the papers say", lead(outcome), origin);
    report.table(table(outcome));
    report.heading("How quiet the machine was");
    report.notes(outcome.noise.iter().zip(["Before", "Afterwards"]).map(|(noise, when)| noise.says(when)));
    report.heading("How to read this");
    report.notes([
        "A claim is data: place, statement, the paper's value, and a predicate on the results of an experiment. Verdicts \
         are computed. \"Not run\" means that this machine, or this run, has nothing to say about it.",
        "With several passes, medians over the passes decide; the smallest and the largest value stand beside.",
        "Each experiment has a report of its own, with tables, plots and spreads, in a folder beside this one.",
    ]);
    report.left_out(&[outcome.failed.as_slice(), &outcome.left_out].concat());
    report
}

/// An existing report of `lab all`.
pub struct Written {
    /// Its folder, as given by the user.
    pub name: String,
    /// The contents of its `results.json`.
    pub written: Value,
}

/// Compares the verdicts of several machines: one row per claim, one column per machine.
pub fn side_by_side(machines: &[Written]) -> Table {
    let names = machines.iter().map(|machine| format!("<{}", machine.name));
    let headings: Vec<String> =
        ["<where", "<claim", "<paper"].map(str::to_owned).into_iter().chain(names).collect();
    let mut table = Table::new("What the papers say, and what was found", columns(&headings.join(" | ")));
    for claim in claims::all() {
        let found = machines.iter().map(|machine| found(machine, &claim.id));
        let row = [claim.source(), claim.statement.clone(), claim.said.clone()];
        table.push(row.into_iter().chain(found));
    }
    table
}

fn found(machine: &Written, id: &str) -> String {
    let judged = machine.written["results"]["claims"].as_array().into_iter().flatten();
    let Some(judged) = judged.into_iter().find(|judged| judged["id"] == id) else { return "–".to_owned() };
    let verdict = judged["verdict"].as_str().unwrap_or("–").replace('-', " ");
    let here: Vec<f64> = judged["here"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    match claims::range(&here) {
        Some(here) => format!("{here}, {verdict}"),
        None => verdict,
    }
}

/// Descriptions of the machines.
pub fn origins(machines: &[Written]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let line = |Written { name, written }: &Written| {
        let (origin, machine) = (&written["origin"], &written["origin"]["machine"]);
        format!(
            "{name}: {}, {} cores, {}; commit {}, measured {}",
            text(&machine["processor"]),
            machine["cores"],
            text(&machine["kernel"]),
            text(&origin["commit"]),
            text(&origin["measured_at"])
        )
    };
    machines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;
    use serde_json::json;

    #[test]
    fn every_claim_has_a_row_whatever_was_run() {
        let wanted = ["003".to_owned()];
        let ran: Vec<&str> = steps(&wanted).iter().map(|step| step.experiment.as_str()).collect();
        assert_eq!(ran, ["bgp", "predict"]);
        let claimed = crate::stats::distinct(claims::all().iter().map(|claim| claim.paper.as_str()));
        assert_eq!(claimed, PAPERS);
        assert!(steps(&[]).len() > 2 && steps(&["999".to_owned()]).is_empty());
        let cell = |scheduling: &str, speed_up: f64| {
            let cell =
                json!({ "part": "speed-up", "scheduling": scheduling, "cores": 1, "load": "in memory" });
            json!({ "cell": cell, "speed_up": speed_up })
        };
        let results = json!({ "cells": [cell("per-peer", 0.9)] });
        let results = BTreeMap::from([(("003".to_owned(), "bgp".to_owned()), results)]);
        let quiet = Noise { median_ns: 1e6, p99_ratio: 1.01, disturbed_share: 0.0 };
        let outcome = Outcome {
            passes: 1,
            claims: judge(&wanted, std::slice::from_ref(&results)),
            failed: vec!["lab models: <broken>".to_owned()],
            left_out: vec!["lab qos: needs root".to_owned()],
            noise: vec![quiet],
        };
        assert!(outcome.claims.len() > 15, "all of the paper, also those that nothing measures");
        assert!(lead(&outcome).contains("1 are reproduced, 0 differ"), "{}", lead(&outcome));
        let origin = Origin {
            machine: Machine::unknown(),
            commit: "abc".into(),
            command: "thalweg lab all".into(),
            input: "made up".into(),
            measured_at: "now".into(),
        };
        let html = report(&outcome, origin).html();
        assert!(html.contains("figure 5.1") && html.contains("lab models: &lt;broken&gt;"), "{html}");
        assert!(html.contains("lab qos: needs root") && html.contains("1.01 times the median"), "{html}");
        // Results of another paper's experiment do not count.
        let other = judge(&["000".to_owned()], &[results]);
        assert!(other.iter().all(|judged| judged.verdict == Verdict::NotRun));
    }

    /// The median over the passes decides; a pass without the experiment does not count.
    #[test]
    fn passes_are_judged_together() {
        let pass = |speed_up: f64| {
            let cell =
                json!({ "part": "speed-up", "scheduling": "per-peer", "cores": 1, "load": "in memory" });
            let results = json!({ "cells": [{ "cell": cell, "speed_up": speed_up }] });
            BTreeMap::from([(("003".to_owned(), "bgp".to_owned()), results)])
        };
        let judged = |passes: &[Results]| {
            let judged = judge(&["003".to_owned()], passes);
            let claim = judged.into_iter().find(|judged| judged.id == "003/fig-4.3/1").expect("it is judged");
            (claim.here, claim.ranges, claim.verdict)
        };
        let once = judged(&[pass(1.2)]);
        assert_eq!(once, (vec![1.2], vec![], Verdict::Differs));
        let more = judged(&[pass(1.2), Results::new(), pass(0.8), pass(0.9)]);
        assert_eq!(more, (vec![0.9], vec![(0.8, 1.2)], Verdict::Reproduced));
        assert_eq!(judged(&[Results::new()]), (vec![], vec![], Verdict::NotRun));
    }

    #[test]
    fn machines_stand_side_by_side() {
        let claim =
            |verdict: &str, here: &[f64]| json!({ "id": "003/fig-4.3/1", "here": here, "verdict": verdict });
        let written = |claim: Value, cores: usize| {
            let machine = json!({ "processor": "made up", "cores": cores, "kernel": "Linux" });
            let origin = json!({ "machine": machine, "commit": "abc", "measured_at": "now" });
            json!({ "origin": origin, "results": { "claims": [claim] } })
        };
        let machines = [
            Written { name: "small".into(), written: written(claim("reproduced", &[0.9]), 2) },
            Written { name: "large".into(), written: written(claim("not-run", &[]), 64) },
        ];
        let table = side_by_side(&machines);
        assert_eq!(table.rows().len(), claims::all().len());
        let row = table.rows().iter().find(|row| row[3] != "–").expect("the claim");
        assert_eq!(row[3..], ["0.900, reproduced", "not run"]);
        assert!(origins(&machines)[1].contains("large: made up, 64 cores, Linux; commit abc, measured now"));
    }
}

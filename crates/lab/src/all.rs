//! Everything the papers claim, in one report: experiments run one after the other, claims judged by what they wrote.
//!
//! Which experiments a paper needs, and with which options, is data ([`crate::claims`]). Running one is the caller's
//! affair; this module says what to run and sums up the results. An experiment that failed leaves its claims "not run".

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::claims::{self, Judged, Step, Verdict};
use crate::report::{Origin, Report};
use thalweg_text::Table;

/// What came of all claims.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// One for each claim, in the papers' order.
    pub claims: Vec<Judged>,
    /// Experiments that did not end with results, and why.
    pub failed: Vec<String>,
}

/// The experiments of these papers; of all papers if none is named.
pub fn steps(papers: &[String]) -> Vec<&'static Step> {
    claims::steps().iter().filter(|step| is_wanted(papers, &step.paper)).collect()
}

fn is_wanted(papers: &[String], paper: &str) -> bool {
    papers.is_empty() || papers.iter().any(|wanted| wanted == paper)
}

/// Numbers of the papers that have claims.
pub fn papers() -> Vec<&'static str> {
    crate::stats::distinct(claims::all().iter().map(|claim| claim.paper.as_str()))
}

/// Judges the claims of these papers by the results of each paper's experiments.
pub fn judge(papers: &[String], results: &BTreeMap<(String, String), Value>, failed: Vec<String>) -> Outcome {
    let of_them = claims::all().iter().filter(|claim| is_wanted(papers, &claim.paper));
    let judged = of_them.map(|claim| {
        let experiment = claim.experiment.clone().unwrap_or_default();
        claim.judge(results.get(&(claim.paper.clone(), experiment)).unwrap_or(&Value::Null))
    });
    Outcome { claims: judged.collect(), failed }
}

/// A row for each claim.
pub fn table(outcome: &Outcome) -> Table {
    claims::table(&outcome.claims).unwrap_or_else(|| Table::new("No claims", []))
}

/// How many are which.
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

/// The report; the experiments' own reports lie in folders beside it.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("What the papers say", lead(outcome), origin);
    report.table(table(outcome));
    report.heading("How to read this");
    report.notes([
        "A claim is data: place, statement, the paper's value, and a predicate on the results of an experiment. Verdicts \
         are computed. \"Not run\" means that this machine, or this run, has nothing to say about it.",
        "Each experiment has a report of its own, with tables, plots and spreads, in a folder beside this one.",
    ]);
    report.left_out(&outcome.failed);
    report
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
        assert_eq!(ran, ["bgp"]);
        assert!(papers().len() > 2 && steps(&[]).len() > 2 && steps(&["999".to_owned()]).is_empty());
        let cell = |scheduling: &str, speed_up: f64| {
            let cell =
                json!({ "part": "speed-up", "scheduling": scheduling, "cores": 1, "load": "in memory" });
            json!({ "cell": cell, "speed_up": speed_up })
        };
        let results = json!({ "cells": [cell("per-peer", 0.9)] });
        let results = BTreeMap::from([(("003".to_owned(), "bgp".to_owned()), results)]);
        let outcome = judge(&wanted, &results, vec!["lab models: <broken>".to_owned()]);
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
        // The same results under another paper's name decide nothing.
        let other = judge(&["000".to_owned()], &results, Vec::new());
        assert!(other.claims.iter().all(|judged| judged.verdict == Verdict::NotRun));
    }
}

//! Churn by network size: how many UPDATEs a prefix that comes and goes at the edge causes for ASes in the
//! middle.

use thalweg_node::control::{BgpNeighborView, BgpRequest};
use thalweg_sim::Random;
use thalweg_sim::churn::Change;
use thalweg_sim::policy::Policy;
use thalweg_sim::topology::{AsGraph, Relation, internet};

use super::bed::{Bed, Setup};
use super::{Claim, Curves, Findings, Options, Part};
use crate::network::NetworkError;

const SOURCE: &str = "Elmokashfi, Kvalbein, Dovrolis 2010, 2012";
const MRAI_S: u32 = 30;

/// One size, with or without an MRAI on withdrawals.
struct Cell {
    ases: usize,
    waits: bool,
    /// UPDATEs per event that an AS without providers received.
    top: f64,
    /// The same over all ASes, per AS and event.
    each: f64,
}

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let (sizes, events): (&[usize], usize) =
        if options.quick { (&[40, 120], 2) } else { (&[100, 300, 1000, 2000], 20) };
    let about = format!(
        "Networks like the Internet, MRAI {MRAI_S} s; {events} prefixes of ASes at the edge are withdrawn and announced again, one \
         after the other. Withdrawals wait as RFC 4271 wants, or are sent at once (mrai_withdrawals)."
    );
    let columns = ["UPDATEs an event at the top", "UPDATEs an event at an AS"];
    let mut findings = Findings::new(Part::Growth, about, &columns);
    let mut cells = Vec::new();
    let mut lines = Vec::new();
    for waits in [true, false] {
        let name = if waits { "withdrawals wait" } else { "withdrawals at once" };
        let mut points = Vec::new();
        for &ases in sizes {
            progress(&format!("{ases} ASes, {name}"));
            let graph = internet(ases, options.seed)?;
            let cell = churn(&graph, waits, events, options)?;
            findings.row(format!("{ases} ASes, {name}"), [cell.top, cell.each]);
            points.push((ases as f64, cell.top));
            cells.push(cell);
        }
        lines.push((name.to_owned(), points));
    }
    findings.claims = claims(&cells);
    findings.curves.push(Curves {
        title: "Churn by size",
        caption: "UPDATEs that an AS without providers receives for each event.",
        x: "ASes",
        y: "UPDATEs",
        log_y: false,
        lines,
    });
    Ok(findings)
}

fn churn(graph: &AsGraph, waits: bool, events: usize, options: &Options) -> Result<Cell, NetworkError> {
    let mut setup =
        Setup { threads: options.threads, ..Setup::of(graph.clone(), options.seed).mrai_s(MRAI_S) };
    setup.timers.mrai_withdrawals = waits;
    let mut bed = Bed::new(Setup { policy: Policy::Relationships, ..setup })?;
    let edge = |node: &usize| graph.neighbors(*node, Relation::Customer).is_empty();
    let mut nodes: Vec<usize> = (0..graph.len()).filter(edge).collect();
    Random::of(options.seed, 0x6772_6f77).shuffle(&mut nodes);
    nodes.truncate(events);
    let announce: Vec<Change> =
        nodes.iter().enumerate().map(|(prefix, &node)| Change::Announce { node, prefix }).collect();
    bed.happen(&announce)?;
    let top = |node: &usize| graph.neighbors(*node, Relation::Provider).is_empty();
    let tops: Vec<usize> = (0..graph.len()).filter(top).collect();
    let before = received(&bed, &tops)?;
    let mut updates = 0;
    for (prefix, &node) in nodes.iter().enumerate() {
        for change in [Change::Withdraw { node, prefix }, Change::Announce { node, prefix }] {
            updates += bed.happen(&[change])?.updates;
        }
    }
    let per = |number: u64, of: usize| number as f64 / (of * nodes.len()).max(1) as f64;
    let at_top = received(&bed, &tops)? - before;
    Ok(Cell { ases: graph.len(), waits, top: per(at_top, tops.len()), each: per(updates, graph.len()) })
}

fn received(bed: &Bed, nodes: &[usize]) -> Result<u64, NetworkError> {
    let mut updates = 0;
    for &node in nodes {
        let neighbors: Vec<BgpNeighborView> = bed.simulation.network.ask(node, &BgpRequest::Neighbors)?;
        updates += neighbors.iter().map(|neighbor| neighbor.updates_received).sum::<u64>();
    }
    Ok(updates)
}

fn claims(cells: &[Cell]) -> Vec<Claim> {
    let of = |waits: bool| cells.iter().filter(move |cell| cell.waits == waits).collect::<Vec<_>>();
    let (waiting, at_once) = (of(true), of(false));
    let tops =
        |cells: &[&Cell]| cells.iter().map(|cell| format!("{:.1}", cell.top)).collect::<Vec<_>>().join(", ");
    let ends = |cells: &[&Cell]| {
        (cells.first().map_or(0.0, |cell| cell.top), cells.last().map_or(0.0, |cell| cell.top))
    };
    let more = waiting.iter().zip(&at_once).filter(|(waiting, at_once)| waiting.top >= at_once.top).count();
    vec![
        Claim::new(
            SOURCE,
            "Churn at the top grows with the network, as its ASes have more neighbors",
            format!(
                "{} UPDATEs an event with {} ASes",
                tops(&waiting),
                waiting.iter().map(|cell| cell.ases.to_string()).collect::<Vec<_>>().join(", ")
            ),
            ends(&waiting).1 > ends(&waiting).0 && ends(&at_once).1 > ends(&at_once).0,
        ),
        Claim::new(
            SOURCE,
            "Withdrawals that wait make more churn than withdrawals at once",
            format!("{} against {}", tops(&waiting), tops(&at_once)),
            more == waiting.len() && !waiting.is_empty(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_sim::topology::GraphBuilder;

    /// With one customer and no other path, an event is two UPDATEs; each further provider of the edge that the
    /// top can see adds to them.
    #[test]
    fn churn_grows_with_the_ways_to_the_edge() {
        let options = Options { parts: Vec::new(), quick: true, threads: 1, seed: 1 };
        let churn_of = |providers: u32| {
            let mut builder = GraphBuilder::new();
            for provider in 2..2 + providers {
                builder.link(100, provider, Relation::Provider, 10_000, 0);
                builder.link(provider, 1, Relation::Provider, 10_000, 0);
            }
            churn(&builder.build().unwrap(), true, 1, &options).unwrap().top
        };
        let (one, three) = (churn_of(1), churn_of(3));
        assert!((2.0..=2.5).contains(&one), "{one}");
        assert!(three >= one + 4.0, "{one} {three}");
    }
}

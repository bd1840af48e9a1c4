//! Kinds of events: a prefix of an AS with two providers is announced (T_up), moves to a shorter path (T_short)
//! or a longer one (T_long), and is withdrawn (T_down). And beacons, which are announced and withdrawn every two
//! hours.

use std::path::Path;
use std::sync::Arc;

use thalweg_config::{BgpConfig, RouterConfig};
use thalweg_sim::churn::Change;
use thalweg_sim::policy::{Policy, address};
use thalweg_sim::topology::{AsGraph, Relation, internet};
use thalweg_sim::{Random, SimError, Simulation};

use super::bed::{Bed, Seen, Setup};
use super::{Claim, Curves, Findings, Options, Part, at_share, distribution, median};
use crate::network::NetworkError;

const LABOVITZ: &str = "Labovitz, Ahuja, Bose, Jahanian 2000";
const OLIVEIRA: &str = "Oliveira, Zhang, Pei, Izhak-Ratzin, Zhang 2006";
const MAO: &str = "Mao, Bush, Griffin, Roughan 2003";
/// The usual MRAI of routers when the papers were written.
const MRAI_S: u32 = 30;
const TWO_HOURS_US: u64 = 7_200_000_000;
/// How many times the longer path repeats the origin's AS.
const PREPENDS: usize = 3;

thalweg_base::words! {
    /// The four kinds, in the order in which they happen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Up => "T_up",
        Long => "T_long",
        Short => "T_short",
        Down => "T_down",
    }
}

/// The times of all routers, and the UPDATEs, of all events of one kind.
struct Times {
    kind: Kind,
    converged_s: Vec<f64>,
    updates: Vec<f64>,
}

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let (ases, origins) = if options.quick { (40, 2) } else { (200, 20) };
    let graph = internet(ases, options.seed)?;
    let all = times(&graph, origins, MRAI_S, options, progress)?;
    let about = format!(
        "{ases} ASes like the Internet, MRAI {MRAI_S} s; {origins} ASes with two or more providers, whose second path has \
         the origin {PREPENDS} times more; T_long and T_short take the first path away and bring it back."
    );
    let columns = ["median, s", "90 %, s", "all, s", "UPDATEs an event"];
    let mut findings = Findings::new(Part::Events, about, &columns);
    let mut lines = Vec::new();
    let mut medians = Vec::new();
    for mut times in all {
        let [half, most, last] = [0.5, 0.9, 1.0].map(|share| at_share(&mut times.converged_s, share));
        findings.row(times.kind.name(), [half, most, last, median(&mut times.updates)]);
        lines.push((times.kind.name().to_owned(), distribution(&mut times.converged_s)));
        medians.push((most, median(&mut times.updates)));
    }
    findings.curves.push(Curves {
        title: "Convergence by kind of event",
        caption: "Share of routers whose best path changed that had their last one after so long.",
        x: "seconds after the event",
        y: "share of routers",
        log_y: false,
        lines,
    });
    let [up, long, short, down] = [medians[0], medians[1], medians[2], medians[3]];
    let text = |what: &[(&str, f64)]| {
        what.iter().map(|(name, value)| format!("{name} {value:.1}")).collect::<Vec<_>>().join(", ")
    };
    findings.claims = vec![
        Claim::new(
            LABOVITZ,
            "A withdrawal takes longest and costs most UPDATEs, an announcement least (90 % of routers, s)",
            text(&[("T_up", up.0), ("T_short", short.0), ("T_long", long.0), ("T_down", down.0)]),
            down.0 > up.0 && down.0 > short.0 && down.0 >= long.0 && down.1 > up.1,
        ),
        Claim::new(
            LABOVITZ,
            "T_short is as fast as T_up (within an interval)",
            text(&[("T_up", up.0), ("T_short", short.0)]),
            (short.0 - up.0).abs() <= f64::from(MRAI_S),
        ),
        Claim::new(
            OLIVEIRA,
            "Fail-over to a longer path is faster than a withdrawal",
            text(&[("T_long", long.0), ("T_down", down.0)]),
            long.0 < down.0,
        ),
    ];
    Ok(findings)
}

/// ASes without customers that have two or more providers, in random order.
fn multihomed(graph: &AsGraph, seed: u64) -> Vec<usize> {
    let is_one = |node: &usize| {
        graph.neighbors(*node, Relation::Customer).is_empty()
            && graph.neighbors(*node, Relation::Provider).len() >= 2
    };
    let mut found: Vec<usize> = (0..graph.len()).filter(is_one).collect();
    Random::of(seed, 0x6d75_6c74).shuffle(&mut found);
    found
}

fn times(
    graph: &AsGraph,
    origins: usize,
    mrai_s: u32,
    options: &Options,
    progress: &dyn Fn(&str),
) -> Result<Vec<Times>, NetworkError> {
    let setup = Setup { threads: options.threads, ..Setup::of(graph.clone(), options.seed).mrai_s(mrai_s) };
    let mut bed = Bed::new(Setup { policy: Policy::Relationships, ..setup })?;
    let mut all = Kind::ALL.map(|kind| Times { kind, converged_s: Vec::new(), updates: Vec::new() });
    for (prefix, node) in multihomed(graph, options.seed).into_iter().take(origins).enumerate() {
        for times in &mut all {
            progress(&format!("{} of origin {} of {origins}", times.kind.name(), prefix + 1));
            let seen = bed.observe(|simulation| act(simulation, node, prefix, times.kind))?;
            times.converged_s.extend(seen.converged_s);
            times.updates.push(seen.updates as f64);
        }
    }
    Ok(all.into())
}

fn act(simulation: &mut Simulation, node: usize, prefix: usize, kind: Kind) -> Result<(), SimError> {
    match kind {
        Kind::Up => {
            // The prefix exists before the paths get their lengths, and is announced with them at once.
            simulation.own(node, prefix);
            steer(simulation, node, true)
        }
        Kind::Long => steer(simulation, node, false),
        Kind::Short => steer(simulation, node, true),
        Kind::Down => simulation.apply(Change::Withdraw { node, prefix }),
    }
}

/// Announces a longer path to all providers but the first; the first gets the short one or none.
fn steer(simulation: &mut Simulation, node: usize, has_short: bool) -> Result<(), SimError> {
    let first = simulation.scenario().graph.neighbors(node, Relation::Provider)[0] as usize;
    let text = steered(&simulation.config_text(node), &address(first).to_string(), has_short);
    let config = parsed(node, &text)?;
    simulation.network.reload(node, config).map(drop)
}

fn steered(text: &str, first: &str, has_short: bool) -> String {
    let mut parts = text.split("[[bgp.neighbor]]");
    let mut steered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_first = part.contains(&format!("\"{first}\""));
        let export = match (is_first, has_short) {
            (true, true) => "export = \"own-and-customers\"",
            (true, false) => "export = \"reject\"",
            (false, _) => "export = [\"longer\", \"own-and-customers\"]",
        };
        steered += "[[bgp.neighbor]]";
        steered += &part.replace("export = \"own-and-customers\"", export);
    }
    steered + &format!("[[policy.rules.longer]]\nset = {{ prepend = {PREPENDS} }}\naction = \"next\"\n")
}

fn parsed(node: usize, text: &str) -> Result<Arc<BgpConfig>, SimError> {
    let refused = |reason: String| SimError::Refused { router: node, reason };
    let config = RouterConfig::from_text("router.toml", text, Path::new(""));
    let config = config.map_err(|errors| refused(errors.to_string()))?;
    config.bgp.map(Arc::new).ok_or_else(|| refused("no [bgp]".to_owned()))
}

/// Beacons: prefixes that are withdrawn and announced again every two hours.
pub(super) fn beacons(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let (ases, beacons, rounds) = if options.quick { (40, 2, 1) } else { (300, 8, 6) };
    let graph = internet(ases, options.seed)?;
    let nodes: Vec<usize> = multihomed(&graph, options.seed).into_iter().take(beacons).collect();
    let setup = Setup { threads: options.threads, ..Setup::of(graph, options.seed).mrai_s(MRAI_S) };
    let mut bed = Bed::new(Setup { policy: Policy::Relationships, ..setup })?;
    let mut all: Vec<(&str, Vec<f64>, Vec<f64>)> =
        vec![("announced", Vec::new(), Vec::new()), ("withdrawn", Vec::new(), Vec::new())];
    for round in 0..rounds {
        progress(&format!("beacons, round {} of {rounds}", round + 1));
        for (prefix, &node) in nodes.iter().enumerate() {
            let changes = [Change::Announce { node, prefix }, Change::Withdraw { node, prefix }];
            for (change, (_, times, updates)) in changes.into_iter().zip(&mut all) {
                let seen: Seen = bed.observe_for(TWO_HOURS_US, |simulation| simulation.apply(change))?;
                times.push(seen.converged_s.into_iter().fold(0.0, f64::max));
                updates.push(seen.updates as f64);
            }
        }
    }
    let about = format!(
        "{beacons} prefixes in a network of {ases} ASes like the Internet, MRAI {MRAI_S} s, {rounds} rounds of two hours with \
         and two without the prefix."
    );
    let columns = ["quickest, s", "median, s", "slowest, s", "UPDATEs an event"];
    let mut findings = Findings::new(Part::Beacons, about, &columns);
    let mut medians = Vec::new();
    let mut lines = Vec::new();
    for (name, mut times, mut updates) in all {
        let [low, half, high] = [0.0, 0.5, 1.0].map(|share| at_share(&mut times, share));
        findings.row(name, [low, half, high, median(&mut updates)]);
        medians.push((half, median(&mut updates)));
        lines.push((name.to_owned(), distribution(&mut times)));
    }
    findings.curves.push(Curves {
        title: "Beacons",
        caption: "Share of the events after which the last router had its last best path within so long.",
        x: "seconds after the event",
        y: "share of events",
        log_y: false,
        lines,
    });
    let (up, down) = (medians[0], medians[1]);
    findings.claims = vec![
        Claim::new(
            MAO,
            "Withdrawals converge more slowly than announcements: minutes, and about one",
            format!("median {:.0} s and {:.0} s", down.0, up.0),
            down.0 > up.0 && up.0 < 90.0 && down.0 < 600.0,
        ),
        Claim::new(
            MAO,
            "A withdrawal causes several times the UPDATEs of an announcement",
            format!("{:.1} times", down.1 / up.1.max(1.0)),
            down.1 > 1.5 * up.1,
        ),
    ];
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows that the interval determines the times, and that the measuring code does not cause the order of
    /// kinds: in a chain, without another path to try, a withdrawal is as fast as an announcement.
    #[test]
    fn without_other_paths_a_withdrawal_is_as_fast_as_an_announcement() {
        let mut builder = thalweg_sim::topology::GraphBuilder::new();
        for below in 1..6 {
            builder.link(below, below + 1, Relation::Provider, 10_000, 0);
        }
        let graph = builder.build().unwrap();
        let mut bed = Bed::new(Setup::of(graph, 1).mrai_s(5)).unwrap();
        let up = bed.happen(&[Change::Announce { node: 0, prefix: 0 }]).unwrap();
        let down = bed.happen(&[Change::Withdraw { node: 0, prefix: 0 }]).unwrap();
        assert_eq!((up.converged_s.len(), down.converged_s.len()), (6, 6));
        assert!(up.time_s < 0.2 && (up.time_s - down.time_s).abs() < 0.05, "{up:?} {down:?}");
        // A beacon gives the same times, and two hours pass.
        let begun_us = bed.simulation.network.now_us();
        let announce = Change::Announce { node: 0, prefix: 0 };
        let beacon = bed.observe_for(TWO_HOURS_US, |simulation| simulation.apply(announce)).unwrap();
        assert_eq!((beacon.converged_s.len(), beacon.updates), (6, up.updates));
        assert_eq!(bed.simulation.network.now_us() - begun_us, TWO_HOURS_US);
    }

    #[test]
    fn withdrawals_wait_for_intervals_where_there_are_other_paths() {
        let graph = internet(30, 3).unwrap();
        let options = Options { parts: Vec::new(), quick: true, threads: 1, seed: 3 };
        let slowest = |mrai_s| {
            let all = times(&graph, 1, mrai_s, &options, &|_| {}).unwrap();
            all.into_iter().map(|mut times| at_share(&mut times.converged_s, 1.0)).collect::<Vec<f64>>()
        };
        let (at_once, waiting) = (slowest(0), slowest(20));
        assert!(at_once.iter().all(|time| *time < 2.0), "{at_once:?}");
        assert!(waiting[3] > 15.0 && waiting[3] > waiting[0], "{waiting:?}");
    }

    #[test]
    fn the_first_provider_is_told_the_short_path_or_none() {
        let text = "[bgp]\n[[bgp.neighbor]]\naddress = \"1.1.1.1\"\nexport = \"own-and-customers\"\n\
                    [[bgp.neighbor]]\naddress = \"2.2.2.2\"\nexport = \"own-and-customers\"\n";
        let steered = super::steered(text, "1.1.1.1", false);
        assert!(steered.contains("\"1.1.1.1\"\nexport = \"reject\""), "{steered}");
        assert!(steered.contains("\"2.2.2.2\"\nexport = [\"longer\", \"own-and-customers\"]"), "{steered}");
    }
}

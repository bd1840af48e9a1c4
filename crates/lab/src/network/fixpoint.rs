//! Where routes end up in a graph of the whole Internet, by the second engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use thalweg_sim::Random;
use thalweg_sim::fixpoint::{Announcement, Class, Engine, Routes};
use thalweg_sim::topology::AsGraph;

use super::{GraphFacts, GraphSource, NetworkError, node};

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The graph.
    pub graph: GraphSource,
    /// Whose prefix; without one, every AS's, one after the other.
    pub origin: Option<u32>,
    /// Who announces it too.
    pub hijacker: Option<u32>,
    /// Who passes on what it should not.
    pub leaker: Option<u32>,
    /// The share of ASes that drop routes of a wrong origin.
    pub rov: f64,
    /// The share of ASes that drop routes by a leak.
    pub aspa: f64,
    /// Threads, where every AS is asked for.
    pub threads: usize,
    /// Decides who validates.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// Routes by the way they came: own, from customers, peers, providers; none.
    pub classes: [u64; 5],
    /// Routes by ASes on the path after the first.
    pub lengths: Vec<u64>,
    /// ASes whose route ends at the hijacker.
    pub hijacked: u64,
    /// ASes whose route goes by the leak.
    pub leaked: u64,
}

impl Found {
    fn add(&mut self, graph: &AsGraph, routes: Routes<'_>) {
        for node in 0..graph.len() {
            self.classes[class_index(routes.class(node))] += 1;
            self.hijacked += u64::from(routes.is_hijacked(node));
            self.leaked += u64::from(routes.is_leaked(node));
            if let Some(length) = routes.length(node) {
                if self.lengths.len() <= length {
                    self.lengths.resize(length + 1, 0);
                }
                self.lengths[length] += 1;
            }
        }
    }

    fn merge(&mut self, other: &Found) {
        self.classes.iter_mut().zip(other.classes).for_each(|(sum, more)| *sum += more);
        self.lengths.resize(self.lengths.len().max(other.lengths.len()), 0);
        self.lengths.iter_mut().zip(&other.lengths).for_each(|(sum, more)| *sum += more);
        self.hijacked += other.hijacked;
        self.leaked += other.leaked;
    }

    /// ASes with a route, over all announcements.
    pub fn reached(&self) -> u64 {
        self.classes[..4].iter().sum()
    }

    /// The mean number of ASes on a path after the first.
    pub fn mean_length(&self) -> f64 {
        let sum: u64 = self.lengths.iter().enumerate().map(|(length, routes)| length as u64 * routes).sum();
        sum as f64 / self.reached().max(1) as f64
    }
}

fn class_index(class: Class) -> usize {
    match class {
        Class::Own => 0,
        Class::Customer => 1,
        Class::Peer => 2,
        Class::Provider => 3,
        Class::Unreached => 4,
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The graph.
    pub graph: GraphFacts,
    /// What was asked, in words.
    pub question: String,
    /// How many prefixes.
    pub announcements: usize,
    /// What came of it.
    pub found: Found,
    /// ASes that drop routes of a wrong origin, and those that drop leaks.
    pub validating: [usize; 2],
    /// Time to read or make the graph, in seconds.
    pub graph_s: f64,
    /// Time for all announcements, in seconds.
    pub engine_s: f64,
    /// Threads.
    pub threads: usize,
}

/// Asks. `progress` hears how many announcements are done, of how many.
pub fn run(options: &Options, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Outcome, NetworkError> {
    let begun = Instant::now();
    let graph = options.graph.graph(options.seed)?;
    let graph_s = begun.elapsed().as_secs_f64();
    let asked = |asn: Option<u32>| asn.map(|asn| node(&graph, asn)).transpose();
    let (origin, hijacker, leaker) =
        (asked(options.origin)?, asked(options.hijacker)?, asked(options.leaker)?);
    let mut random = Random::new(options.seed);
    let mut validates =
        |share: f64| -> Vec<bool> { (0..graph.len()).map(|_| random.share() < share).collect() };
    let template = Announcement {
        origin: 0,
        hijacker,
        leaker,
        validates_origin: validates(options.rov),
        validates_path: validates(options.aspa),
    };
    let origins: Vec<usize> = origin.map_or_else(|| (0..graph.len()).collect(), |origin| vec![origin]);
    let threads = options.threads.clamp(1, origins.len());
    let begun = Instant::now();
    let found = ask(&graph, &template, &origins, threads, progress);
    let count = |all: &[bool]| all.iter().filter(|each| **each).count();
    Ok(Outcome {
        question: question(options),
        announcements: origins.len(),
        found,
        validating: [count(&template.validates_origin), count(&template.validates_path)],
        graph_s,
        engine_s: begun.elapsed().as_secs_f64(),
        threads,
        graph: GraphFacts::of(&graph, &options.graph),
    })
}

fn ask(
    graph: &AsGraph,
    template: &Announcement,
    origins: &[usize],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Found {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut found, mut engine) = (Found::default(), Engine::new(graph));
        let mut announcement = template.clone();
        while let Some(&origin) = origins.get(next.fetch_add(1, Ordering::Relaxed)) {
            announcement.origin = origin;
            found.add(graph, engine.routes(&announcement));
            progress(next.load(Ordering::Relaxed).min(origins.len()), origins.len());
        }
        found
    };
    let mut found = Found::default();
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        found.merge(&work());
        for other in others {
            match other.join() {
                Ok(more) => found.merge(&more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    found
}

fn question(options: &Options) -> String {
    let mut text = match options.origin {
        Some(asn) => format!("a prefix of AS {asn}"),
        None => "a prefix of each AS".to_owned(),
    };
    if let Some(asn) = options.hijacker {
        text += &format!(", announced by AS {asn} too");
    }
    if let Some(asn) = options.leaker {
        text += &format!(", leaked by AS {asn}");
    }
    text
}

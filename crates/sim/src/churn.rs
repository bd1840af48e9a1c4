//! Loads for a network: lists of changes with their times.

use crate::chance::Random;
use crate::link::LinkState;
use crate::topology::AsGraph;

/// A change of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An AS announces a prefix, given by its number.
    Announce {
        node: usize,
        prefix: usize,
    },
    Withdraw {
        node: usize,
        prefix: usize,
    },
    Link {
        a: usize,
        b: usize,
        state: LinkState,
    },
    /// An AS resets a session, which is then established again.
    Reset {
        node: usize,
        neighbor: usize,
    },
}

/// A change and its time, in microseconds after the start of the load.
pub type Event = (u64, Change);

thalweg_base::words! {
    /// The kinds of load.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Load {
        /// New prefixes are announced and none is withdrawn, as in the thesis's trace.
        Announcements => "announcements",
        /// Prefixes are withdrawn and announced again; most of the changes are those of a few prefixes.
        Flaps => "flaps",
        /// Links fail and come back.
        Links => "links",
        /// Sessions are reset.
        Resets => "resets",
        /// A few prefixes are announced and withdrawn alternately, every two hours.
        Beacons => "beacons",
        /// The changes of `Flaps`, all within one second.
        Surge => "surge",
    }
}

/// Gaps between changes of one prefix, in seconds, as quantiles measured at collectors in 2026. MRAI's 30 s
/// stand out.
const GAPS_S: [(f64, f64); 6] =
    [(0.0, 0.05), (0.1, 0.2), (0.25, 1.0), (0.5, 17.0), (0.75, 31.0), (0.9, 105.0)];
const LONGEST_GAP_S: f64 = 900.0;
const HOUR_US: u64 = 3_600_000_000;
const SECOND_US: f64 = 1e6;
/// New prefixes and failures come at random, one per second on average.
const MEAN_GAP_US: f64 = SECOND_US;
/// The Zipf exponent of changes over prefixes: a hundredth of the prefixes has a quarter of the changes.
const ZIPF: f64 = 1.0;

/// The changes of a load. `owners` holds the AS of each announced prefix; new prefixes get the numbers after
/// them.
pub fn events(load: Load, count: usize, graph: &AsGraph, owners: &[usize], seed: u64) -> Vec<Event> {
    let mut random = Random::of(seed, 0x0063_6875_726e);
    let mut all = match load {
        Load::Announcements => announcements(count, graph, owners.len(), &mut random),
        Load::Flaps => flaps(count, owners, &mut random),
        Load::Surge => {
            let mut all = flaps(count, owners, &mut random);
            all.sort_by_key(|event| event.0);
            let last = all.last().map_or(1, |event| event.0.max(1));
            all.iter_mut().for_each(|event| event.0 = (event.0 as f64 / last as f64 * SECOND_US) as u64);
            all
        }
        Load::Links => links(count, graph, &mut random),
        Load::Resets => resets(count, graph, &mut random),
        Load::Beacons => beacons(count, owners, &mut random),
    };
    all.sort_by_key(|event| event.0);
    all
}

/// The time of the next event of a Poisson process.
fn next_at_random(at_us: &mut u64, random: &mut Random) -> u64 {
    *at_us += (-(1.0 - random.share()).ln() * MEAN_GAP_US) as u64;
    *at_us
}

fn announcements(count: usize, graph: &AsGraph, first: usize, random: &mut Random) -> Vec<Event> {
    let mut at_us = 0;
    let mut one = |number| {
        let at_us = next_at_random(&mut at_us, random);
        (at_us, Change::Announce { node: random.below(graph.len()), prefix: first + number })
    };
    (0..count).map(&mut one).collect()
}

fn gap_us(random: &mut Random) -> u64 {
    let share = random.share();
    let mut low = GAPS_S[0];
    for high in GAPS_S.into_iter().chain([(1.0, LONGEST_GAP_S)]) {
        if share < high.0 {
            let part = (share - low.0) / (high.0 - low.0);
            return (low.1 * (high.1 / low.1).powf(part) * SECOND_US) as u64;
        }
        low = high;
    }
    (LONGEST_GAP_S * SECOND_US) as u64
}

/// Each prefix has a train of withdrawals and announcements, which begins within the first five minutes.
fn flaps(count: usize, owners: &[usize], random: &mut Random) -> Vec<Event> {
    let shares = zipf(owners.len());
    let mut order: Vec<usize> = (0..owners.len()).collect();
    random.shuffle(&mut order);
    let mut next_us: Vec<Option<(u64, bool)>> = vec![None; owners.len()];
    let mut all = Vec::with_capacity(count);
    for _ in 0..if owners.is_empty() { 0 } else { count } {
        let rank = shares.partition_point(|share| *share <= random.share()).min(owners.len() - 1);
        let prefix = order[rank];
        let begun = next_us[prefix];
        let (at_us, is_up) = begun.unwrap_or_else(|| (random.below(300_000_000) as u64, true));
        let node = owners[prefix];
        all.push((
            at_us,
            if is_up { Change::Withdraw { node, prefix } } else { Change::Announce { node, prefix } },
        ));
        next_us[prefix] = Some((at_us + gap_us(random), !is_up));
    }
    // At the end, every prefix is announced again.
    for (prefix, next) in next_us.into_iter().enumerate() {
        if let Some((at_us, false)) = next {
            all.push((at_us, Change::Announce { node: owners[prefix], prefix }));
        }
    }
    all
}

/// Cumulative shares of the changes, by prefix.
fn zipf(prefixes: usize) -> Vec<f64> {
    let weights = (1..=prefixes).map(|rank| (rank as f64).powf(-ZIPF));
    let total: f64 = weights.clone().sum();
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect()
}

fn links(count: usize, graph: &AsGraph, random: &mut Random) -> Vec<Event> {
    let ends = ends(graph);
    const DOWN_US: u64 = 60_000_000;
    let mut at_us = 0;
    let mut all = Vec::with_capacity(2 * count);
    let mut free_us = std::collections::BTreeMap::new();
    for _ in 0..count {
        let at = next_at_random(&mut at_us, random);
        let (a, b) = some_link(graph, &ends, random);
        // A link that is down does not fail again.
        let at = at.max(free_us.get(&(a, b)).copied().unwrap_or(0));
        all.push((at, Change::Link { a, b, state: LinkState::Down }));
        all.push((at + DOWN_US, Change::Link { a, b, state: LinkState::Up }));
        free_us.insert((a, b), at + 2 * DOWN_US);
    }
    all
}

fn resets(count: usize, graph: &AsGraph, random: &mut Random) -> Vec<Event> {
    let ends = ends(graph);
    let mut at_us = 0;
    let mut one = |_| {
        let at_us = next_at_random(&mut at_us, random);
        let (node, neighbor) = some_link(graph, &ends, random);
        (at_us, Change::Reset { node, neighbor })
    };
    (0..count).map(&mut one).collect()
}

/// Each node, once for each of its links.
fn ends(graph: &AsGraph) -> Vec<u32> {
    (0..graph.len()).flat_map(|node| std::iter::repeat_n(node as u32, graph.degree(node))).collect()
}

/// A link, all equally likely.
fn some_link(graph: &AsGraph, ends: &[u32], random: &mut Random) -> (usize, usize) {
    let a = ends[random.below(ends.len())] as usize;
    let at = random.below(graph.degree(a));
    let b = graph.links_of(a).nth(at).map_or(a, |(other, ..)| other);
    (a.min(b), a.max(b))
}

fn beacons(count: usize, owners: &[usize], random: &mut Random) -> Vec<Event> {
    const BEACONS: usize = 10;
    let mut prefixes: Vec<usize> = (0..owners.len()).collect();
    random.shuffle(&mut prefixes);
    prefixes.truncate(BEACONS);
    let mut all = Vec::new();
    for number in 0..count {
        let Some(&prefix) = prefixes.get(number % BEACONS.min(prefixes.len().max(1))) else { break };
        let round = (number / prefixes.len()) as u64;
        let (node, at_us) = (owners[prefix], 4 * HOUR_US * round + 1000 * random.below(1_000_000) as u64);
        all.push((at_us, Change::Withdraw { node, prefix }));
        all.push((at_us + 2 * HOUR_US, Change::Announce { node, prefix }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::internet;

    fn of(load: Load, count: usize) -> Vec<Event> {
        let graph = internet(200, 1).unwrap();
        let owners: Vec<usize> = (0..1000).map(|prefix| prefix % 200).collect();
        events(load, count, &graph, &owners, 1)
    }

    #[test]
    fn every_load_is_in_order_and_comes_from_its_seed() {
        for (name, load) in Load::NAMES {
            let all = of(load, 100);
            assert!(all.len() >= 100, "{name}: {}", all.len());
            assert!(all.is_sorted_by_key(|event| event.0), "{name}");
            assert_eq!(all, of(load, 100), "{name}");
            assert_eq!(load.name(), name);
        }
    }

    /// Checks the measured quantiles, and the share of the busiest hundredth of prefixes.
    #[test]
    fn flaps_have_measured_gaps_and_few_prefixes_have_many() {
        let mut random = Random::new(5);
        let mut gaps: Vec<u64> = (0..20_000).map(|_| gap_us(&mut random)).collect();
        gaps.sort_unstable();
        for (share, wanted_s) in [(0.1, 0.2), (0.25, 1.0), (0.5, 17.0), (0.75, 31.0), (0.9, 105.0)] {
            let is_s = gaps[(20_000.0 * share) as usize] as f64 / 1e6;
            assert!((is_s / wanted_s - 1.0_f64).abs() < 0.25, "{share}: {is_s}, measured {wanted_s}");
        }
        let all = of(Load::Flaps, 20_000);
        let mut by_prefix = vec![0; 1000];
        for (_, change) in &all {
            match change {
                Change::Announce { prefix, .. } | Change::Withdraw { prefix, .. } => by_prefix[*prefix] += 1,
                other => panic!("{other:?}"),
            }
        }
        by_prefix.sort_unstable_by(|a, b| b.cmp(a));
        let top = by_prefix[..10].iter().sum::<usize>() as f64 / all.len() as f64;
        assert!((0.12..0.3).contains(&top), "{top}");
    }

    #[test]
    fn what_goes_away_comes_back() {
        for load in [Load::Flaps, Load::Surge, Load::Beacons, Load::Links] {
            let mut down = std::collections::BTreeSet::new();
            for (_, change) in of(load, 300) {
                let (what, goes) = match change {
                    Change::Announce { prefix, .. } => ((prefix, 0), false),
                    Change::Withdraw { prefix, .. } => ((prefix, 0), true),
                    Change::Link { a, b, state } => ((a, b), state == LinkState::Down),
                    Change::Reset { .. } => continue,
                };
                let is_news = if goes { down.insert(what) } else { down.remove(&what) };
                assert!(is_news, "{load:?}: {what:?}");
            }
            assert!(down.is_empty(), "{load:?}");
        }
    }

    #[test]
    fn a_surge_takes_a_second() {
        assert!(of(Load::Surge, 500).last().unwrap().0 <= 1_000_000);
    }
}

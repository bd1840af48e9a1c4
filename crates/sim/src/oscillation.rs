//! Detects policies without a stable state, and the round in which routes oscillate.
//!
//! A network that does not come to rest although nothing happens to it any more is observed: of the prefix whose best paths
//! change most, each change at each router is kept. If the last of them are the same four times in a row, in the same
//! order, the network oscillates and one round is the answer; a network that only takes long repeats nothing, and is given
//! more time.
//!
//! Four times are a strong hint and no proof. The proof is a state (`state.rs`) of the whole network that recurs: routers
//! are deterministic and nothing comes from outside, so from there on everything goes as it went before. It is looked for
//! after each of the next rounds, and has to recur twice. Where timers decide too there is no such number, and the hint is
//! all there is.

use std::collections::BTreeMap;
use std::fmt;

use thalweg_base::IpPrefix;

use crate::error::SimError;
use crate::network::{Network, Quiet};
use crate::watch::Watch;

/// A round that repeats this often in a row is taken to go on for ever.
const TIMES: usize = 4;
/// A state that has not recurred after so many rounds is not waited for.
const RECURRENCES: u64 = 8;
/// How far apart moments are at which a first state is looked for, and how many there are.
const MOMENT_US: u64 = 1000;
const MOMENTS: usize = 32;
/// The virtual time before a network that is not quiet is first observed; each further observation doubles
/// it.
const PATIENCE_US: u64 = 8_000_000;

/// A change of a best path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at_us: u64,
    pub router: usize,
    /// The AS_PATH of the new best path; `None` if none is left.
    pub path: Option<String>,
}

/// An endless round of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The prefix whose best paths change.
    pub prefix: IpPrefix,
    pub period_us: u64,
    /// The changes of one round.
    pub steps: Vec<Step>,
    /// After this time all tables and all messages under way were the same again, and once more: it never ends.
    pub recurs_us: Option<u64>,
}

impl Cycle {
    /// The routers of the round, in ascending order.
    pub fn routers(&self) -> Vec<usize> {
        let mut routers: Vec<usize> = self.steps.iter().map(|step| step.router).collect();
        routers.sort_unstable();
        routers.dedup();
        routers
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routers: Vec<String> = self.routers().iter().map(usize::to_string).collect();
        let (seconds, changes) = (self.period_us as f64 / 1e6, self.steps.len());
        let proof = if self.recurs_us.is_some() { "for ever" } else { "as far as was seen" };
        write!(
            f,
            "{}: {changes} changes of best paths repeat every {seconds:.3} s {proof} at routers {}",
            self.prefix,
            routers.join(", ")
        )
    }
}

/// The final state of a network without further events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    Quiet(Quiet),
    Oscillating(Cycle),
    /// It did not become quiet in the given time, and nothing repeats.
    Restless(Quiet),
}

/// Runs a network until it is quiet (see [`Network::run_until_quiet`]) or found to oscillate. `watches` are
/// those of its routers, in order.
pub fn settle(
    network: &mut Network,
    watches: &[Watch],
    quiet_us: u64,
    limit_us: u64,
) -> Result<Settled, SimError> {
    let end_us = network.now_us().saturating_add(limit_us);
    let mut patience_us = PATIENCE_US.max(2 * quiet_us);
    loop {
        let begun_us = network.now_us();
        let quiet = network.run_until_quiet(quiet_us, patience_us.min(end_us.saturating_sub(begun_us)))?;
        if quiet.is_quiet {
            return Ok(Settled::Quiet(quiet));
        }
        if network.now_us() >= end_us {
            return Ok(Settled::Restless(quiet));
        }
        if let Some(prefix) = busiest(watches, begun_us) {
            watches.iter().for_each(|watch| watch.follow(Some(prefix)));
            let quiet = network.run_until_quiet(quiet_us, patience_us)?;
            let steps = followed(watches);
            watches.iter().for_each(|watch| watch.follow(None));
            if quiet.is_quiet {
                return Ok(Settled::Quiet(quiet));
            }
            if let Some((steps, period_us)) = last_round(&steps) {
                let recurs_us = recurrence(network, period_us)?;
                let steps = steps.to_vec();
                return Ok(Settled::Oscillating(Cycle { prefix, period_us, steps, recurs_us }));
            }
        }
        patience_us *= 2;
    }
}

/// After which time the state of the network recurs, if it does after some rounds of this length, and again.
fn recurrence(network: &mut Network, period_us: u64) -> Result<Option<u64>, SimError> {
    let mut first = None;
    for _ in 0..MOMENTS {
        first = network.state()?;
        if first.is_some() {
            break;
        }
        network.run_us(MOMENT_US)?;
    }
    let Some(first) = first else { return Ok(None) };
    let begun_us = network.now_us();
    for round in 1..=RECURRENCES {
        network.run_until_us(begun_us + round * period_us)?;
        if network.state()? == Some(first) {
            let recurs_us = round * period_us;
            network.run_us(recurs_us)?;
            return Ok((network.state()? == Some(first)).then_some(recurs_us));
        }
    }
    Ok(None)
}

/// The prefix whose best paths changed at the most routers since a time.
fn busiest(watches: &[Watch], since_us: u64) -> Option<IpPrefix> {
    let mut routers: BTreeMap<IpPrefix, usize> = BTreeMap::new();
    for prefix in watches.iter().flat_map(|watch| watch.changed_since(since_us)) {
        *routers.entry(prefix).or_default() += 1;
    }
    let most = *routers.values().max()?;
    routers.into_iter().find(|(_, count)| *count == most).map(|(prefix, _)| prefix)
}

fn followed(watches: &[Watch]) -> Vec<Step> {
    let of = |(router, watch): (usize, &Watch)| {
        watch.followed().into_iter().map(move |(at_us, path)| Step { at_us, router, path })
    };
    let mut steps: Vec<Step> = watches.iter().enumerate().flat_map(of).collect();
    steps.sort_by_key(|step| (step.at_us, step.router));
    steps
}

/// The shortest round that ends the steps [`TIMES`] times in a row, and its duration.
fn last_round(steps: &[Step]) -> Option<(&[Step], u64)> {
    let same = |a: &Step, b: &Step| (a.router, &a.path) == (b.router, &b.path);
    let repeats = |length: &usize| {
        let last = &steps[steps.len() - TIMES * length..];
        last.iter().zip(&last[*length..]).all(|(one, next)| same(one, next))
    };
    let length = (1..=steps.len() / TIMES).find(repeats)?;
    let round = &steps[steps.len() - length..];
    let first = &steps[steps.len() - TIMES * length];
    Some((round, (round[0].at_us - first.at_us) / (TIMES as u64 - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(of: &[(u64, usize, Option<&str>)]) -> Vec<Step> {
        of.iter()
            .map(|(at_us, router, path)| Step {
                at_us: *at_us,
                router: *router,
                path: path.map(str::to_owned),
            })
            .collect()
    }

    #[test]
    fn a_round_is_found_after_what_came_before_it() {
        let mut all = steps(&[(1, 3, Some("7")), (2, 2, None)]);
        for round in 0..TIMES as u64 {
            let at = 10 + 100 * round;
            all.extend(steps(&[(at, 1, Some("1 2")), (at + 5, 2, None), (at + 9, 1, Some("3"))]));
        }
        let (round, period_us) = last_round(&all).unwrap();
        assert_eq!((round.len(), period_us), (3, 100));
        assert_eq!(round[0].path.as_deref(), Some("1 2"));
        // One repetition less is not enough, and neither is a round with another end.
        assert_eq!(last_round(&all[..all.len() - 1]), None);
        all.last_mut().unwrap().path = None;
        assert_eq!(last_round(&all), None);
    }

    #[test]
    fn what_only_takes_long_is_no_round() {
        let explored: Vec<String> = (0..40).map(|length| "1 ".repeat(length)).collect();
        let all: Vec<_> = explored.iter().zip(0..).map(|(path, at)| (at, 1, Some(path.as_str()))).collect();
        assert_eq!(last_round(&steps(&all)), None);
        assert_eq!(last_round(&[]), None);
    }
}

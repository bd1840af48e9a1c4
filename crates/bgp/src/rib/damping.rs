//! Route flap damping (RFC 2439 with the corrections of RFC 7196): routes that come and go are set aside until they
//! have been quiet for a while.
//!
//! ```text
//! penalty   +1000 for each withdrawal, +500 for each change of attributes, halved every 15 minutes
//! above 6000                   suppressed: kept, not ranked
//! back below 750, or 60 min    used again
//! after the last flap
//! below 375                    forgotten
//! ```
//!
//! RFC 2439 (4.2) names the parameters without values; RFC 7196 lists the usual values (section 3, table 1) and
//! corrects two of them (section 6).
//!
//! | parameter | value here | source |
//! |---|---|---|
//! | withdrawal | 1000 | table 1: the usual one |
//! | announced again | 0 | RFC 2439 4.8.3; table 1: 0 with one vendor, 1000 with the other |
//! | other attributes | 500 | table 1: the usual one; RFC 2439 4.8.4 would count them like a withdrawal |
//! | suppressed above | 6000 | section 6: at least this; cautious operators at least 12,000. The usual 2000 and 3000 punish prefixes for being well connected |
//! | used again below | 750 | table 1: the usual one |
//! | half-life | 15 min | table 1: the usual one, whether the route is present or not; RFC 2439 4.2 allows for two |
//! | suppressed at most | 60 min | table 1: the usual one |
//! | penalty at most | 50,000 | section 6: at least this |
//!
//! In RFC 2439 4.5 the longest suppression follows from a ceiling of the penalty, so the ceiling follows from the
//! other parameters: with these, 750 doubled four times is 12,000, and no penalty would ever exceed a threshold of
//! 12,000 (RFC 7196 section 5). Here the two are independent: the penalty rises to its own maximum, and an hour
//! after its last flap a route is used again whatever its penalty; the rest is forgiven down to the reuse
//! threshold.
//!
//! Only routes of external neighbors are damped (RFC 2439 4). The end of a session is no flap of its routes; RFC
//! 2439 4.8.5 leaves this open. RFC 7196's test mode, which counts without suppressing, is missing.
//!
//! Only routes that flapped have records, which decay when they are read. Each record has one place in a heap of
//! deadlines, at or before the time of its next event. A family of a shard has at most
//! [`DampingConfig::records_max`] records; a route that flaps when all are in use is counted and not damped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use thalweg_base::{Address, Prefix};

use crate::peer::PeerId;

/// The parameters of damping. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DampingConfig {
    /// Added for each withdrawal.
    pub withdrawal_penalty: f32,
    /// Added for each announcement that changes attributes.
    pub attribute_change_penalty: f32,
    /// A route with a higher penalty is suppressed.
    pub suppress_threshold: f32,
    /// A suppressed route with a lower penalty is used again.
    pub reuse_threshold: f32,
    pub penalty_max: f32,
    /// The time in which a penalty halves.
    pub half_life_s: u32,
    /// The longest suppression after the last flap.
    pub max_suppress_s: u32,
    /// For a family of a shard. 65,536 records take about 6 MiB.
    pub records_max: usize,
}

impl DampingConfig {
    /// What a configuration without keys means.
    pub const DEFAULT: Self = Self {
        withdrawal_penalty: 1000.0,
        attribute_change_penalty: 500.0,
        suppress_threshold: 6000.0,
        reuse_threshold: 750.0,
        penalty_max: 50_000.0,
        half_life_s: 15 * 60,
        max_suppress_s: 60 * 60,
        records_max: 65_536,
    };
}

impl Default for DampingConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl DampingConfig {
    /// The rest of a penalty after some time.
    fn decayed(&self, penalty: f32, seconds: u32) -> f32 {
        let half_lives = f64::from(seconds) / f64::from(self.half_life_s.max(1));
        (f64::from(penalty) * (-half_lives).exp2()) as f32
    }

    /// The time until at most `target` is left.
    fn seconds_until(&self, penalty: f32, target: f32) -> u32 {
        if penalty <= target {
            return 0;
        }
        let half_lives = (f64::from(penalty) / f64::from(target.max(1.0))).log2();
        (half_lives * f64::from(self.half_life_s)).ceil() as u32
    }

    /// When a penalty as of `at_s` is low enough to be forgotten.
    fn forget_at(&self, penalty: f32, at_s: u32) -> u32 {
        at_s.saturating_add(self.seconds_until(penalty, self.reuse_threshold / 2.0))
    }

    /// When to examine a route that is not suppressed: no later than it could be reused if it became suppressed the
    /// next moment.
    fn next_look(&self, penalty: f32, at_s: u32, now_s: u32) -> u32 {
        let shortest =
            self.seconds_until(self.suppress_threshold, self.reuse_threshold).min(self.max_suppress_s);
        self.forget_at(penalty, at_s).min(now_s.saturating_add(shortest)).max(now_s.saturating_add(1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flap {
    Withdrawal,
    AttributeChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RouteKey<A> {
    pub prefix: Prefix<A>,
    pub peer: PeerId,
    pub path_id: u32,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    penalty: f32,
    at_s: u32,
    suppressed: bool,
}

/// The routes of one family that flapped.
pub(super) struct Damper<A> {
    config: DampingConfig,
    records: HashMap<RouteKey<A>, Record>,
    deadlines: BinaryHeap<Reverse<(u32, RouteKey<A>)>>,
    untracked: u64,
}

impl<A: Address> Damper<A> {
    pub(super) fn new(config: DampingConfig) -> Self {
        Self { config, records: HashMap::new(), deadlines: BinaryHeap::new(), untracked: 0 }
    }

    /// Counts a flap; returns whether the route is now suppressed.
    pub(super) fn handle_flap(&mut self, key: RouteKey<A>, flap: Flap, now_s: u32) -> bool {
        let added = match flap {
            Flap::Withdrawal => self.config.withdrawal_penalty,
            Flap::AttributeChange => self.config.attribute_change_penalty,
        };
        let config = self.config;
        if !self.records.contains_key(&key) {
            if self.records.len() >= config.records_max {
                self.untracked += 1;
                return false;
            }
            self.records.insert(key, Record { penalty: 0.0, at_s: now_s, suppressed: false });
            let at = config.next_look(added, now_s, now_s);
            self.deadlines.push(Reverse((at, key)));
        }
        let Some(record) = self.records.get_mut(&key) else { return false };
        let left = config.decayed(record.penalty, now_s.saturating_sub(record.at_s));
        record.penalty = (left + added).min(config.penalty_max);
        record.at_s = now_s.max(record.at_s);
        record.suppressed |= record.penalty > config.suppress_threshold;
        record.suppressed
    }

    pub(super) fn is_suppressed(&self, key: RouteKey<A>) -> bool {
        self.records.get(&key).is_some_and(|record| record.suppressed)
    }

    /// When [`Self::poll_reusable`] must be called next, in seconds.
    pub(super) fn next_deadline_s(&self) -> Option<u32> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns a route to use again. Call it until `None`, which also means that `budget`, a number of deadlines,
    /// is spent.
    pub(super) fn poll_reusable(&mut self, now_s: u32, budget: &mut usize) -> Option<RouteKey<A>> {
        while *budget > 0 {
            let Reverse((at, _)) = *self.deadlines.peek()?;
            if at > now_s {
                return None;
            }
            *budget -= 1;
            let Reverse((_, key)) = self.deadlines.pop()?;
            let Some(record) = self.records.get_mut(&key) else { continue };
            if record.suppressed {
                let reuse_at = record.reuse_at(&self.config);
                if reuse_at > now_s {
                    self.deadlines.push(Reverse((reuse_at, key)));
                    continue;
                }
                record.suppressed = false;
                record.penalty = self
                    .config
                    .decayed(record.penalty, now_s.saturating_sub(record.at_s))
                    .min(self.config.reuse_threshold);
                record.at_s = now_s;
                let at = self.config.next_look(record.penalty, now_s, now_s);
                self.deadlines.push(Reverse((at, key)));
                return Some(key);
            }
            if self.config.forget_at(record.penalty, record.at_s) > now_s {
                let at = self.config.next_look(record.penalty, record.at_s, now_s);
                self.deadlines.push(Reverse((at, key)));
            } else {
                self.records.remove(&key);
            }
        }
        None
    }

    pub(super) fn forget_peer(&mut self, peer: PeerId) {
        self.records.retain(|key, _| key.peer != peer);
        self.deadlines.retain(|Reverse((_, key))| key.peer != peer);
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn untracked(&self) -> u64 {
        self.untracked
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.capacity() * 8 / 7 * (size_of::<(RouteKey<A>, Record)>() + 1)
            + self.deadlines.capacity() * size_of::<(u32, RouteKey<A>)>()
    }
}

impl Record {
    fn reuse_at(&self, config: &DampingConfig) -> u32 {
        let wait = config.seconds_until(self.penalty, config.reuse_threshold).min(config.max_suppress_s);
        self.at_s.saturating_add(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> RouteKey<u32> {
        RouteKey { prefix: Prefix::new(0x0a00_0000, 8).unwrap(), peer: PeerId(1), path_id: 0 }
    }

    /// Flaps within a second until the route is suppressed.
    fn flaps_until_suppressed(config: DampingConfig, flap: Flap) -> usize {
        let mut damper = Damper::new(config);
        (1..=200).find(|_| damper.handle_flap(key(), flap, 10)).expect("it is suppressed some time")
    }

    #[test]
    fn thresholds_of_rfc_7196() {
        let usual = DampingConfig::default();
        let careful = DampingConfig { suppress_threshold: 12_000.0, ..usual };
        for (config, withdrawals) in [(usual, 7), (careful, 13)] {
            assert_eq!(flaps_until_suppressed(config, Flap::Withdrawal), withdrawals);
            assert_eq!(flaps_until_suppressed(config, Flap::AttributeChange), 2 * withdrawals - 1);
        }
    }

    #[test]
    fn the_highest_penalty_lasts_an_hour() {
        let mut damper = Damper::new(DampingConfig::default());
        for _ in 0..100 {
            damper.handle_flap(key(), Flap::Withdrawal, 10);
        }
        let penalty = |damper: &Damper<u32>, now_s: u32| {
            let record = damper.records[&key()];
            damper.config.decayed(record.penalty, now_s - record.at_s)
        };
        assert_eq!(penalty(&damper, 10), 50_000.0);
        // By its penalty alone it would be log2(50,000 / 750) = 6 half-lives.
        assert!(damper.config.seconds_until(50_000.0, 750.0) > 6 * 900);
        let mut at = 10;
        while damper.poll_reusable(at, &mut 10).is_none() {
            at = damper.next_deadline_s().unwrap();
        }
        assert_eq!(at, 10 + 3600);
        assert!(!damper.is_suppressed(key()));
        assert_eq!(penalty(&damper, at), 750.0, "no more than what would be used again");
    }
}

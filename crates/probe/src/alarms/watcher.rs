//! Sums up what the flows of one shard count, by the keys of all rules, and hands over the sums of each second.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;
use thalweg_flow::alarm::Measure;
use thalweg_flow::{FlowRecord, Watch};
use thalweg_store::query::RawValue;
use thalweg_wire::tcp::SYN;

use super::tally::{Fan, Heavy, Tally, hash_of};
use crate::alarm_rules::Rule;
use crate::deliver::Completing;

/// Flows that are looked at together: columns of these stay in the cache.
const BATCH: usize = 256;
/// Keys of a shard with a count of their own, and with a set of different things.
pub(super) const HEAVY_MAX: usize = 2048;
pub(super) const FAN_MAX: usize = 512;

/// The sums of one shard and second.
pub(super) struct Told {
    pub(super) interval: u64,
    /// By rule.
    pub(super) tallies: Vec<Tally>,
}

pub(crate) struct Watcher {
    pub(super) rules: Arc<[Rule]>,
    pub(super) completing: Completing,
    pub(super) seed: u64,
    pub(super) sender: Sender<Told>,
    /// Wait for room: packets of files can.
    pub(super) waits: bool,
    /// The first interval that is not told, for the judge; it knows that this watcher is gone when it alone has it.
    pub(super) told_until: Arc<AtomicU64>,
    /// Sums that found no room.
    pub(super) lost: Arc<AtomicU64>,
    pub(super) flows: Vec<FlowRecord>,
    pub(super) firsts: Vec<bool>,
    pub(super) tallies: Vec<Tally>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

pub(super) fn tallies(rules: &[Rule], heavy_max: usize, fan_max: usize) -> Vec<Tally> {
    let tally = |rule: &Rule| match rule.measure.is_distinct() {
        true => Tally::Fan(Fan::new(fan_max)),
        false => Tally::Heavy(Heavy::new(heavy_max)),
    };
    rules.iter().map(tally).collect()
}

impl Watch for Watcher {
    fn take(&mut self, counted: &FlowRecord, is_first: bool) {
        // A flow begins once, in the direction of its first packet.
        for (way, is_first) in counted.both_ways().zip([is_first, false]) {
            if way.counters.packets > 0 {
                self.flows.push(way);
                self.firsts.push(is_first);
            }
        }
        if self.flows.len() >= BATCH {
            self.sum_up();
        }
    }

    fn close(&mut self, interval: u64, next: u64) {
        self.sum_up();
        let told = Told { interval, tallies: self.tallies.iter_mut().map(Tally::take).collect() };
        let is_sent = match told.tallies.iter().all(Tally::is_empty) {
            true => true,
            false if self.waits => self.sender.send(told).is_ok(),
            false => self.sender.try_send(told).is_ok(),
        };
        self.lost.fetch_add(u64::from(!is_sent), Ordering::Relaxed);
        self.told_until.store(next, Ordering::Release);
    }
}

impl Watcher {
    fn sum_up(&mut self) {
        if self.flows.is_empty() {
            return;
        }
        self.completing.complete(&mut self.flows);
        let flows: Arc<[FlowRecord]> = self.flows.drain(..).collect();
        for (rule, tally) in self.rules.iter().zip(&mut self.tallies) {
            // A filter fails only on damaged files.
            let Ok(selected) = rule.filter.select(&flows) else { continue };
            let firsts = selected.iter().zip(&self.firsts);
            for (flow, (_, is_first)) in flows.iter().zip(firsts).filter(|(_, (selected, _))| **selected) {
                rule.each_key(flow, |key| count(tally, rule.measure, key, flow, *is_first, self.seed));
            }
        }
        self.firsts.clear();
    }
}

fn count(tally: &mut Tally, measure: Measure, key: RawValue, flow: &FlowRecord, is_first: bool, seed: u64) {
    let (counters, ends) = (&flow.counters, &flow.key);
    match tally {
        Tally::Fan(fan) => fan.add(
            key,
            match measure {
                Measure::Sources => hash_of(ends.src, None, seed),
                Measure::Ports => hash_of(ends.dst, Some(ends.dst_port), seed),
                _ => hash_of(ends.dst, None, seed),
            },
        ),
        Tally::Heavy(heavy) => {
            let amount = match measure {
                Measure::Packets => counters.packets,
                Measure::Bits => counters.bytes.saturating_mul(8),
                Measure::HalfOpen => u64::from(is_first && counters.tcp_flags == Some(SYN)),
                _ => u64::from(is_first),
            };
            heavy.add(key, amount.saturating_mul(flow.scale()));
        }
    }
}

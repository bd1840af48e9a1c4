//! Rates of ports and queues: counters are sampled once a second, and a rate is their growth over the last few
//! seconds.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use thalweg_dataplane::acl::RuleCount;
use thalweg_node::control::{PortRates, PortView, QueueRates, QueueView};

/// The interval between samples.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Samples kept: a rate covers the last five seconds.
const KEPT: usize = 5;

/// The shortest time that a rate may cover: below it, chance would dominate.
const SPAN_MIN: Duration = Duration::from_millis(500);

/// The latest samples of counters.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<VecDeque<Sample>>);

#[derive(Debug)]
struct Sample {
    at: Instant,
    /// By port: packets and bytes received, packets and bytes sent.
    ports: HashMap<String, [u64; 4]>,
    /// By port and class: packets and bytes sent.
    queues: HashMap<(String, String), [u64; 2]>,
    /// Matches of the firewall's rules, the policy last.
    rules: RuleMatches,
}

/// Matches of the firewall's rules, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleMatches {
    /// The version of the rules.
    pub(super) generation: u16,
    pub(super) counts: Vec<RuleCount>,
}

impl Rates {
    /// Adds a sample.
    pub(super) fn look(&self, at: Instant, ports: &[PortView], queues: &[QueueView], rules: RuleMatches) {
        let ports = ports.iter().map(|port| (port.name.clone(), of_port(port))).collect();
        let queues = queues.iter().map(|queue| (name_of(queue), [queue.sent, queue.sent_bytes])).collect();
        let mut samples = self.0.lock();
        samples.push_back(Sample { at, ports, queues, rules });
        while samples.len() > KEPT {
            samples.pop_front();
        }
    }

    /// Sets the rates of ports.
    pub(super) fn rate_ports(&self, now: Instant, ports: &mut [PortView]) {
        let samples = self.0.lock();
        let Some((first, seconds)) = span(&samples, now) else { return };
        for port in ports {
            let Some(before) = first.ports.get(&port.name) else { continue };
            let [packets_in, bytes_in, packets_out, bytes_out] = rates(of_port(port), *before, seconds);
            port.rates = Some(PortRates {
                packets_received_per_s: packets_in,
                bits_received_per_s: 8 * bytes_in,
                packets_sent_per_s: packets_out,
                bits_sent_per_s: 8 * bytes_out,
            });
        }
    }

    /// Sets the rates of queues.
    pub(super) fn rate_queues(&self, now: Instant, queues: &mut [QueueView]) {
        let samples = self.0.lock();
        let Some((first, seconds)) = span(&samples, now) else { return };
        for queue in queues {
            let Some(before) = first.queues.get(&name_of(queue)) else { continue };
            let [packets, bytes] = rates([queue.sent, queue.sent_bytes], *before, seconds);
            queue.rates = Some(QueueRates { packets_per_s: packets, bits_per_s: 8 * bytes });
        }
    }

    /// Packets and bits a second of each rule; `None` if the rules have changed since the oldest sample.
    pub(super) fn of_rules(&self, now: Instant, rules: &RuleMatches) -> Option<Vec<[u64; 2]>> {
        let samples = self.0.lock();
        let (first, seconds) = span(&samples, now)?;
        let is_same =
            (first.rules.generation, first.rules.counts.len()) == (rules.generation, rules.counts.len());
        let pairs = rules.counts.iter().zip(&first.rules.counts);
        is_same.then(|| {
            let rate = |(now, before): (&RuleCount, &RuleCount)| {
                let [packets, bytes] =
                    rates([now.packets, now.bytes], [before.packets, before.bytes], seconds);
                [packets, 8 * bytes]
            };
            pairs.map(rate).collect()
        })
    }
}

fn of_port(port: &PortView) -> [u64; 4] {
    [port.received, port.received_bytes, port.sent, port.sent_bytes]
}

fn name_of(queue: &QueueView) -> (String, String) {
    (queue.port.clone(), queue.class.clone())
}

/// The oldest sample and its age in seconds.
fn span(samples: &VecDeque<Sample>, now: Instant) -> Option<(&Sample, f64)> {
    let first = samples.front()?;
    let span = now.saturating_duration_since(first.at);
    (span >= SPAN_MIN).then_some((first, span.as_secs_f64()))
}

/// Counters may have been reset, hence `saturating_sub`.
fn rates<const N: usize>(now: [u64; N], before: [u64; N], seconds: f64) -> [u64; N] {
    std::array::from_fn(|i| (now[i].saturating_sub(before[i]) as f64 / seconds).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(received: u64, sent: u64) -> PortView {
        let (received_bytes, sent_bytes) = (100 * received, 100 * sent);
        PortView { name: "lan".to_owned(), received, received_bytes, sent, sent_bytes, ..PortView::default() }
    }

    #[test]
    fn a_rate_is_what_counters_grew_by_since_the_oldest_look() {
        let (rates, begun) = (Rates::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let rate = |now, received, sent| {
            let mut ports = [port(received, sent)];
            rates.rate_ports(at(now), &mut ports);
            ports[0].rates
        };
        assert_eq!(rate(0, 0, 0), None);
        rates.look(at(0), &[port(1000, 0)], &[], RuleMatches::default());
        assert_eq!(rate(0, 1000, 0), None, "no time has passed");
        let expected = PortRates {
            packets_received_per_s: 500,
            bits_received_per_s: 400_000,
            packets_sent_per_s: 10,
            bits_sent_per_s: 8_000,
        };
        assert_eq!(rate(2, 2000, 20), Some(expected));
        // Samples that are no longer kept do not count.
        (1..=KEPT as u64).for_each(|second| {
            rates.look(at(second), &[port(2000, 20)], &[], RuleMatches::default());
        });
        assert_eq!(rate(6, 2000, 20), Some(PortRates::default()));
        // Counters that were reset give rate 0.
        assert_eq!(rate(6, 0, 0), Some(PortRates::default()));
    }
    #[test]
    fn a_rule_has_a_rate_while_it_is_the_same_rule() {
        let (rates, begun) = (Rates::default(), Instant::now());
        let matches = |generation, packets| {
            let counts = vec![RuleCount { packets, bytes: 100 * packets }, RuleCount::default()];
            RuleMatches { generation, counts }
        };
        rates.look(begun, &[], &[], matches(1, 10));
        let later = begun + Duration::from_secs(2);
        assert_eq!(rates.of_rules(begun, &matches(1, 10)), None, "no time has passed");
        assert_eq!(rates.of_rules(later, &matches(1, 30)), Some(vec![[10, 8_000], [0, 0]]));
        assert_eq!(rates.of_rules(later, &matches(2, 30)), None, "other rules");
    }
}

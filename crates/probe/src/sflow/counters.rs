//! Counters of interfaces for counter samples: whose turn it is, and what the kernel knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_flow::NO_INTERFACE;
use thalweg_ports::kernel::{DirectionCounts, InterfaceCounts, LinkCounters};
use thalweg_wire::sflow::{CounterSample, DirectionCounters, InterfaceCounters};

use crate::interfaces::Interfaces;

/// Reads the counters of a port whose interface has this number.
pub type ReadCounters = Box<dyn FnMut(u16, u32) -> PortCount + Send>;

/// What there is to tell of a port's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCount {
    Counted(InterfaceCounters),
    /// The interface is gone, or nobody counts what it does.
    Uncounted,
    /// The port was removed, or has not begun.
    Absent,
}

impl From<Option<InterfaceCounters>> for PortCount {
    fn from(counters: Option<InterfaceCounters>) -> Self {
        counters.map_or(Self::Uncounted, Self::Counted)
    }
}

/// Reads counters from the kernel, in the network namespace of this thread.
pub fn kernel_counters() -> ReadCounters {
    // Without a socket no interface has counters, and the status says so.
    let mut links = LinkCounters::open().ok();
    Box::new(move |_port, number| {
        let counts = links.as_mut().and_then(|links| links.read(number).ok().flatten());
        counts.map(|counts| of_kernel(number, &counts)).into()
    })
}

fn of_kernel(interface: u32, counts: &InterfaceCounts) -> InterfaceCounters {
    let low = InterfaceCounters::low;
    let direction = |of: &DirectionCounts| DirectionCounters {
        bytes: Some(of.bytes),
        unicast: Some(low(of.packets)),
        discarded: Some(low(of.dropped)),
        errors: Some(low(of.errors)),
        ..DirectionCounters::default()
    };
    let others = counts.received.packets.saturating_sub(counts.multicast);
    InterfaceCounters {
        interface,
        kind: counts.kind,
        bits_per_s: counts.speed.bits_per_s.unwrap_or(0),
        is_full_duplex: counts.speed.is_full_duplex,
        is_enabled: counts.is_enabled,
        is_up: counts.is_up,
        received: DirectionCounters {
            unicast: Some(low(others)),
            multicast: Some(low(counts.multicast)),
            ..direction(&counts.received)
        },
        unknown_protocols: None,
        sent: direction(&counts.sent),
        is_promiscuous: Some(counts.is_promiscuous),
    }
}

/// How often counters are sent, or never. It may change while they are.
#[derive(Clone, Debug)]
pub(crate) struct CountersInterval(Arc<AtomicU64>);

impl CountersInterval {
    pub(crate) fn new(interval: Option<Duration>) -> Self {
        let own = Self(Arc::default());
        own.set(interval);
        own
    }

    /// The agent knows within a second.
    pub(crate) fn set(&self, interval: Option<Duration>) {
        let ms = interval.map_or(0, |interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX));
        self.0.store(ms, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }
}

/// Asks all interfaces in turn, once in each interval.
pub(super) struct Polling {
    read: ReadCounters,
    interval: CountersInterval,
    /// The next turn; `None` while there is to be none.
    due: Option<Instant>,
    /// The last sequence number by interface.
    sequences: BTreeMap<u32, u32>,
    /// Ports whose interface had no counters in the last turn.
    without: u64,
}

impl Polling {
    /// The first turn is due at once.
    pub(super) fn new(read: ReadCounters, interval: CountersInterval) -> Self {
        Self { read, interval, due: None, sequences: BTreeMap::new(), without: 0 }
    }

    /// When the next turn is; `None` for never, as things are.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Ports whose interface had no counters in the last turn.
    pub(super) fn without(&self) -> u64 {
        self.without
    }

    /// The samples that are due. Ports with the same interface have one together.
    pub(super) fn take(&mut self, now: Instant, interfaces: &Interfaces) -> Vec<CounterSample> {
        let Some(interval) = self.interval.get() else {
            (self.due, self.without) = (None, 0);
            return Vec::new();
        };
        // A shorter interval does not wait for the end of a longer one.
        let due = self.due.unwrap_or(now).min(now + interval);
        self.due = Some(due);
        if now < due {
            return Vec::new();
        }
        // The system was suspended, or has had no time for this thread: one turn is as good as many.
        self.due = Some(due + interval).filter(|next| *next > now).or(Some(now + interval));
        // One that returns with another number is another source.
        self.sequences.retain(|number, _| interfaces.numbers().any(|(_, other)| other == *number));
        self.without = 0;
        let mut samples: Vec<CounterSample> = Vec::new();
        for (port, number) in interfaces.numbers() {
            if samples.iter().any(|sample| sample.source == number) {
                continue;
            }
            let interface = match (self.read)(port, number) {
                PortCount::Counted(counters) if number != NO_INTERFACE => counters,
                PortCount::Absent => continue,
                PortCount::Counted(_) | PortCount::Uncounted => {
                    self.without += 1;
                    continue;
                }
            };
            let sequence = self.sequences.entry(number).or_default();
            *sequence = sequence.wrapping_add(1);
            samples.push(CounterSample { source: number, sequence: *sequence, interface: Some(interface) });
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::PortInterface;

    fn interfaces(numbers: &[u32]) -> Interfaces {
        let port = |number: &u32| PortInterface { number: *number, name: format!("p{number}") };
        Interfaces::new(numbers.iter().map(port).collect())
    }

    #[test]
    fn each_interface_has_its_turn_and_its_sequence() {
        let start = Instant::now();
        let read = |port: u16, interface: u32| match port {
            3 => PortCount::Uncounted,
            5 => PortCount::Absent,
            _ => PortCount::Counted(InterfaceCounters { interface, ..InterfaceCounters::default() }),
        };
        let every = |seconds| Some(Duration::from_secs(seconds)).filter(|interval| !interval.is_zero());
        let interval = CountersInterval::new(every(20));
        let mut polling = Polling::new(Box::new(read), interval.clone());
        let mut turn = |after_s: u64, numbers: &[u32]| {
            let samples = polling.take(start + Duration::from_secs(after_s), &interfaces(numbers));
            let told = samples.iter().map(|sample| {
                assert_eq!(sample.interface.map(|counters| counters.interface), Some(sample.source));
                (sample.source, sample.sequence)
            });
            (told.collect::<Vec<_>>(), polling.without())
        };
        // The third port is a VLAN of the first, the fourth has no counters, the fifth one's interface is gone, and the
        // sixth was removed.
        let all = [70_001, 4, 70_001, 9, NO_INTERFACE, 11];
        assert_eq!(turn(0, &all), (vec![(70_001, 1), (4, 1)], 2));
        assert_eq!(turn(19, &all), (vec![], 2), "not yet");
        assert_eq!(turn(20, &all), (vec![(70_001, 2), (4, 2)], 2));
        assert_eq!(turn(40, &[NO_INTERFACE, 4]), (vec![(4, 3)], 1));
        assert_eq!(turn(500, &[70_007, 4]), (vec![(70_007, 1), (4, 4)], 0), "late, and once");
        assert_eq!(turn(519, &[70_007, 4]).0, []);
        assert_eq!(turn(520, &[70_007, 4]).0, [(70_007, 2), (4, 5)]);

        interval.set(every(5));
        assert_eq!(turn(524, &[4]).0, [], "the next turn is in five seconds at the latest");
        assert_eq!(turn(529, &[4]).0, [(4, 6)]);
        assert_eq!(turn(534, &[4]).0, [(4, 7)]);
        interval.set(every(0));
        assert_eq!(turn(539, &[4, 9, NO_INTERFACE]), (vec![], 0), "never");
        interval.set(every(60));
        assert_eq!(turn(540, &[4]).0, [(4, 8)], "at once, and its sequence goes on");
        assert_eq!(turn(541, &[4]).0, []);
    }

    #[test]
    fn counts_of_the_kernel_keep_what_is_not_known() {
        let of = |packets, bytes, dropped, errors| DirectionCounts { packets, bytes, dropped, errors };
        let counts = InterfaceCounts {
            name: "eth0".into(),
            kind: InterfaceCounters::ETHERNET,
            is_enabled: true,
            is_up: false,
            is_promiscuous: false,
            speed: Default::default(),
            received: of((1 << 32) + 10, 1 << 40, 3, 4),
            multicast: 2,
            sent: of(20, 2000, 5, 6),
        };
        let told = of_kernel(7, &counts);
        assert_eq!((told.kind, told.bits_per_s, told.is_full_duplex), (InterfaceCounters::ETHERNET, 0, None));
        assert_eq!((told.is_enabled, told.is_up, told.is_promiscuous), (true, false, Some(false)));
        let known = |bytes, unicast, multicast, discarded, errors| DirectionCounters {
            bytes: Some(bytes),
            unicast: Some(unicast),
            multicast,
            broadcast: None,
            discarded: Some(discarded),
            errors: Some(errors),
        };
        assert_eq!(told.received, known(1 << 40, 8, Some(2), 3, 4), "packets begin again at 2^32");
        assert_eq!((told.sent, told.unknown_protocols), (known(2000, 20, None, 5, 6), None));
    }
}

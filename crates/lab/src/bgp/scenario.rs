//! Loads of one or two phases, with the expected result.
//!
//! The eight of Wu, Liao, Wolf and Gao ("Benchmarking BGP Routers", IISWC 2007) are four loads with small
//! UPDATEs (one prefix each) and with large ones (500). In their figures a *phase* is what is timed; a load with
//! two phases is timed in its second.
//!
//! | no. | load | first phase | timed phase |
//! |---|---|---|---|
//! | 1, 2 | start-up | – | neighbor 0 announces the table |
//! | 3, 4 | withdrawal | neighbor 0 announces | neighbor 0 withdraws it |
//! | 5, 6 | longer paths | neighbor 0 announces | neighbor 1 announces longer paths: nothing changes |
//! | 7, 8 | shorter paths | neighbor 0 announces | neighbor 1 announces shorter paths: everything changes |

use super::message::{NextHops, Stream, put_attribute};
use super::monitor::{Goal, mark};
use super::replay::Replay;
use super::table::{Neighbors, Packing, PathKind, Table};
use thalweg_base::IpPrefix;
use thalweg_wire::bgp::attribute;

/// What to send, and what to wait for.
#[derive(Clone, Debug)]
pub struct Phase {
    pub name: &'static str,
    /// The stream of each neighbor.
    pub streams: Vec<Stream>,
    /// The path hashes, by prefix, that the monitor should have at the end.
    pub expected: Vec<(IpPrefix, u64)>,
    /// The number of marks in the streams.
    pub marks: usize,
    pub goal: Goal,
}

impl Phase {
    /// UPDATEs of all neighbors.
    pub fn updates(&self) -> usize {
        self.streams.iter().map(Stream::messages).sum()
    }

    /// Prefixes announced and withdrawn by all neighbors.
    pub fn prefixes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.prefixes).sum()
    }
}

/// A load; its last phase is timed.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub neighbors: Neighbors,
    pub phases: Vec<Phase>,
    /// For a load from a file: each message's neighbor, in the file's order; else empty.
    pub arrival: Vec<u16>,
    /// The AS of each neighbor, unless they are consecutive.
    pub numbers: Vec<u32>,
}

thalweg_base::words! {
    /// Loads of Wu et al.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Load {
        /// One neighbor announces its table.
        StartUp => "start-up",
        /// One neighbor withdraws its table.
        Withdrawal => "withdrawal",
        /// Another neighbor announces longer paths.
        Longer => "longer paths",
        /// Another neighbor announces shorter paths.
        Shorter => "shorter paths",
    }
}

impl Scenario {
    /// One of the eight loads, numbered from 1.
    pub fn wu(number: usize, prefixes: usize, neighbors: Neighbors, seed: u64) -> Scenario {
        let load = Load::ALL[(number.max(1) - 1) / 2 % 4];
        let (size, packing) =
            if number % 2 == 1 { ("small", Packing::Small) } else { ("large", Packing::Large) };
        let neighbors = Neighbors { count: 2, ..neighbors };
        let table = Table::made(prefixes, packing, neighbors, seed);
        let base = table.announce(0, PathKind::Base, true);
        let expected: Vec<_> = table.expected(PathKind::Base, true, Some(0)).collect();
        let first = phase("announce", vec![base, Stream::default()], expected.clone(), Goal::Table);
        let second = |kind| vec![Stream::default(), table.announce(1, kind, true)];
        let phases = match load {
            Load::StartUp => vec![first],
            Load::Withdrawal => {
                let gone = vec![table.withdraw(0, true), Stream::default()];
                vec![first, phase("withdraw", gone, Vec::new(), Goal::Empty)]
            }
            Load::Longer => {
                let mut streams = second(PathKind::Longer);
                push_mark(&mut streams[1], &neighbors, 1, 0);
                vec![first, Phase { marks: 1, ..phase("longer", streams, expected, Goal::Marks(1)) }]
            }
            Load::Shorter => {
                let expected = table.expected(PathKind::Shorter, true, Some(1)).collect();
                vec![first, phase("shorter", second(PathKind::Shorter), expected, Goal::Table)]
            }
        };
        Scenario {
            name: format!("{number}: {load}, {size}"),
            neighbors,
            phases,
            arrival: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Every neighbor announces the whole table; one of them has the best path to each prefix.
    pub fn overlap(prefixes: usize, packing: Packing, neighbors: Neighbors, seed: u64) -> Scenario {
        let table = Table::made(prefixes, packing, neighbors, seed);
        let streams = (0..neighbors.count).map(|n| table.announce(n, PathKind::OneBest, true)).collect();
        let expected = table.expected(PathKind::OneBest, true, None).collect();
        Scenario {
            name: format!("{} x {prefixes} overlapping", neighbors.count),
            neighbors,
            phases: vec![phase("announce", streams, expected, Goal::Table)],
            arrival: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// The first `peers` peers of a file, in the file's order; each stream ends with a mark. There is no expected
    /// result: runs are compared with each other.
    pub fn replayed(name: &str, replay: &Replay, peers: usize, neighbors: Neighbors) -> Scenario {
        let (neighbors, mut streams, numbers) = of_file(replay, peers, neighbors);
        for (n, stream) in streams.iter_mut().enumerate() {
            push_mark_of(stream, &neighbors, n, numbers[n], n);
        }
        let arrival = replay.arrival.clone();
        let marks = streams.len();
        let timed = Phase { marks, ..phase("replay", streams, Vec::new(), Goal::MarksAlone(marks)) };
        Scenario { name: name.to_owned(), neighbors, phases: vec![timed], arrival, numbers }
    }

    /// A neighbor's AS.
    pub fn as_of(&self, neighbor: usize) -> u32 {
        self.numbers.get(neighbor).copied().unwrap_or_else(|| self.neighbors.as_of(neighbor))
    }

    /// The last phase, which is timed.
    pub fn timed(&self) -> Option<&Phase> {
        self.phases.last()
    }
}

/// The first `peers` peers of a file: the neighbors, their streams and their ASes.
fn of_file(replay: &Replay, peers: usize, neighbors: Neighbors) -> (Neighbors, Vec<Stream>, Vec<u32>) {
    let count = replay.peers.len().min(peers.max(1));
    let neighbors = Neighbors { count, ..neighbors };
    let streams = (0..count).map(|n| replay.stream(n, neighbors.hops_of(n))).collect();
    (neighbors, streams, replay.peers.iter().take(count).map(|peer| peer.as_number).collect())
}

fn phase(name: &'static str, streams: Vec<Stream>, expected: Vec<(IpPrefix, u64)>, goal: Goal) -> Phase {
    Phase { name, streams, expected, marks: 0, goal }
}

/// Appends a mark to a neighbor's stream.
pub fn push_mark(stream: &mut Stream, neighbors: &Neighbors, neighbor: usize, index: usize) {
    push_mark_of(stream, neighbors, neighbor, neighbors.as_of(neighbor), index);
}

fn push_mark_of(stream: &mut Stream, neighbors: &Neighbors, neighbor: usize, number: u32, index: usize) {
    let path = [&[2, 1], &number.to_be_bytes()[..]].concat();
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, attribute::FLAG_TRANSITIVE, attribute::ORIGIN, &[0]);
    put_attribute(&mut attributes, attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path);
    let hops: NextHops = neighbors.hops_of(neighbor);
    stream.announce(&attributes, hops, &[mark(index)], 1);
    stream.prefixes -= 1; // a mark does not count as load
}

#[cfg(test)]
mod tests {
    use super::super::message::{HEADER_LEN, Said, read_update};
    use super::super::monitor::Monitor;
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Instant;

    const NEIGHBORS: Neighbors =
        Neighbors { count: 3, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 };
    const AS: u32 = 65000;

    /// A router that prefers the shorter path, then the earlier one, and announces all changes to the monitor.
    fn route(scenario: &Scenario) -> Monitor {
        use std::collections::HashMap;
        let mut table: HashMap<IpPrefix, HashMap<usize, Vec<u32>>> = HashMap::new();
        let mut monitor = Monitor::new(AS);
        for phase in &scenario.phases {
            monitor.expect(phase.expected.iter().copied(), phase.marks, phase.goal);
            for (peer, stream) in phase.streams.iter().enumerate() {
                let mut start = 0;
                for end in &stream.ends {
                    let mut touched = Vec::new();
                    read_update(&stream.bytes[start + HEADER_LEN..*end], |said| match said {
                        Said::Announced(p, path) => {
                            table.entry(p).or_default().insert(peer, path.numbers().collect());
                            touched.push(p);
                        }
                        Said::Withdrawn(p) => {
                            table.entry(p).or_default().remove(&peer);
                            touched.push(p);
                        }
                    })
                    .unwrap();
                    start = *end;
                    for prefix in touched {
                        let best = table[&prefix].values().min_by_key(|path| path.len());
                        let mut out = Stream::default();
                        match best {
                            None => out.withdraw(&[prefix], 1),
                            Some(path) => {
                                let mut value = vec![2, path.len() as u8 + 1];
                                value.extend(AS.to_be_bytes());
                                path.iter().for_each(|n| value.extend(n.to_be_bytes()));
                                let mut attributes = Vec::new();
                                put_attribute(&mut attributes, 0x40, 2, &value);
                                out.announce(&attributes, NEIGHBORS.hops_of(0), &[prefix], 1);
                            }
                        }
                        monitor.handle_update(&out.bytes[HEADER_LEN..], Instant::now()).unwrap();
                    }
                }
            }
            assert!(monitor.reached().is_some(), "{}, {}: {:?}", scenario.name, phase.name, monitor.state());
        }
        monitor
    }

    #[test]
    fn every_load_reaches_its_goal_in_a_router_that_is_right() {
        for number in 1..=8 {
            let scenario = Scenario::wu(number, 700, NEIGHBORS, 9);
            assert_eq!(scenario.phases.len(), if number < 3 { 1 } else { 2 });
            let monitor = route(&scenario);
            let changes = match number {
                3 | 4 => monitor.heard().withdrawn,
                _ => monitor.heard().announced,
            };
            assert!(changes >= 700, "{number}");
            let updates = scenario.timed().unwrap().updates();
            assert_eq!(
                updates,
                if number % 2 == 1 { 700 } else { 2 } + usize::from(number == 5 || number == 6)
            );
        }
        route(&Scenario::overlap(500, Packing::Real, NEIGHBORS, 2));
    }
}

//! Compares the routes that a neighbor received with those that it should receive.
//!
//! For each prefix the monitor keeps one number: the hash of the path that the daemon announced, without the
//! daemon's leading AS; 0 for none. It also keeps the expected number. Two counters (correct prefixes, present
//! prefixes) tell in constant time after every UPDATE whether the daemon has converged.
//!
//! A *mark* is a prefix announced only to learn when everything sent before it has been processed: the monitor
//! records when it received the mark.

use super::message::{Malformed, Said, path_hash, read_update};
use hashbrown::HashMap;
use std::hash::BuildHasher;
use std::time::Instant;
use thalweg_base::{IpPrefix, Prefix, mix64};

/// Marks are host routes from this address on (RFC 6598 shared address space, which is in no public table).
const MARKS: u32 = 0x6440_0000;
/// The most marks: the rest of 100.64.0.0/10.
pub const MARKS_MAX: usize = 1 << 22;

/// The prefix of a mark.
pub fn mark(index: usize) -> IpPrefix {
    let address = MARKS | (index % MARKS_MAX) as u32;
    Prefix::new(address, 32).map_or_else(|_| unreachable!("32 bits are allowed"), IpPrefix::V4)
}

fn mark_index(prefix: IpPrefix) -> Option<usize> {
    match prefix {
        IpPrefix::V4(p) if p.length() == 32 && p.address() & !(MARKS_MAX as u32 - 1) == MARKS => {
            Some((p.address() ^ MARKS) as usize)
        }
        _ => None,
    }
}

/// When the monitor has received enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every expected prefix has the expected path.
    Table,
    /// No expected prefix is present.
    Empty,
    /// Every expected prefix has the expected path, and this many marks have been received.
    Marks(usize),
    /// This many marks have been received, for loads without an expected result.
    MarksAlone(usize),
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    want: u64,
    have: u64,
}

/// Counts of what was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Heard {
    pub updates: u64,
    /// Prefixes announced; more than there are is path hunting.
    pub announced: u64,
    pub withdrawn: u64,
    pub unexpected: u64,
    pub foreign_paths: u64,
}

/// Compares received routes with expected ones; see the module.
#[derive(Debug)]
pub struct Monitor {
    daemon_as: u32,
    slots: HashMap<IpPrefix, Slot, foldhash::fast::FixedState>,
    expected: usize,
    right: usize,
    present: usize,
    marks: Vec<Option<Instant>>,
    marks_heard: usize,
    goal: Goal,
    reached: Option<Instant>,
    last_update: Option<Instant>,
    heard: Heard,
}

impl Monitor {
    /// A monitor of a daemon in this AS, which expects nothing yet.
    pub fn new(daemon_as: u32) -> Self {
        Monitor {
            daemon_as,
            slots: HashMap::default(),
            expected: 0,
            right: 0,
            present: 0,
            marks: Vec::new(),
            marks_heard: 0,
            goal: Goal::Table,
            reached: None,
            last_update: None,
            heard: Heard::default(),
        }
    }

    /// Expects these paths and nothing else, and marks below `marks`. Routes received before stay.
    pub fn expect(&mut self, paths: impl Iterator<Item = (IpPrefix, u64)>, marks: usize, goal: Goal) {
        for slot in self.slots.values_mut() {
            slot.want = 0;
        }
        for (prefix, hash) in paths {
            self.slots.entry(prefix).or_default().want = hash;
        }
        self.slots.retain(|_, slot| slot.want != 0 || slot.have != 0);
        self.expected = self.slots.values().filter(|slot| slot.want != 0).count();
        self.right = self.slots.values().filter(|slot| slot.want != 0 && slot.want == slot.have).count();
        self.present = self.slots.values().filter(|slot| slot.have != 0).count();
        self.marks = vec![None; marks];
        self.marks_heard = 0;
        self.heard = Heard::default();
        self.goal = goal;
        self.reached = self.has(goal).then(Instant::now);
        self.last_update = None;
    }

    /// When the goal was reached; `None` if it no longer holds.
    pub fn reached(&self) -> Option<Instant> {
        self.reached
    }

    /// Whether a goal is reached now.
    pub fn has(&self, goal: Goal) -> bool {
        let right = self.right == self.expected && self.present == self.expected;
        match goal {
            Goal::Table => right,
            Goal::Empty => self.present == 0,
            Goal::Marks(count) => right && self.marks_heard >= count,
            Goal::MarksAlone(count) => self.marks_heard >= count,
        }
    }

    /// The numbers of expected prefixes, of correct ones, and of present ones.
    pub fn state(&self) -> (usize, usize, usize) {
        (self.expected, self.right, self.present)
    }

    /// Counters since [`Monitor::expect`].
    pub fn heard(&self) -> Heard {
        self.heard
    }

    /// A hash of all present prefixes with their paths, independent of order.
    pub fn digest(&self) -> u64 {
        let hasher = foldhash::fast::FixedState::default();
        let one = |(prefix, slot): (&IpPrefix, &Slot)| mix64(hasher.hash_one(prefix) ^ slot.have);
        self.slots.iter().filter(|(_, slot)| slot.have != 0).map(one).fold(0, u64::wrapping_add)
    }

    /// When the last UPDATE was received.
    pub fn last_update(&self) -> Option<Instant> {
        self.last_update
    }

    /// When each mark was first received.
    pub fn marks(&self) -> &[Option<Instant>] {
        &self.marks
    }

    /// Processes an UPDATE's body.
    pub fn handle_update(&mut self, body: &[u8], now: Instant) -> Result<(), Malformed> {
        self.heard.updates += 1;
        self.last_update = Some(now);
        let read = read_update(body, |said| match said {
            Said::Withdrawn(prefix) => {
                self.heard.withdrawn += 1;
                self.set(prefix, 0, now);
            }
            Said::Announced(prefix, path) => {
                self.heard.announced += 1;
                let mut numbers = path.numbers();
                if numbers.next() != Some(self.daemon_as) {
                    self.heard.foreign_paths += 1;
                }
                self.set(prefix, path_hash(numbers), now);
            }
        });
        self.note(now);
        read
    }

    /// Takes a whole table as received: for a daemon that announces nothing and was queried instead.
    pub fn take_table(&mut self, table: impl IntoIterator<Item = (IpPrefix, u64)>, now: Instant) {
        let table: HashMap<IpPrefix, u64, foldhash::fast::FixedState> = table.into_iter().collect();
        let held = self.slots.iter().filter(|(prefix, slot)| slot.have != 0 && !table.contains_key(*prefix));
        let gone: Vec<IpPrefix> = held.map(|(prefix, _)| *prefix).collect();
        gone.into_iter().for_each(|prefix| self.set(prefix, 0, now));
        table.into_iter().for_each(|(prefix, hash)| self.set(prefix, hash, now));
        self.note(now);
    }

    fn note(&mut self, now: Instant) {
        if !self.has(self.goal) {
            self.reached = None;
        } else if self.reached.is_none() {
            self.reached = Some(now);
        }
    }

    fn set(&mut self, prefix: IpPrefix, hash: u64, now: Instant) {
        if let Some(index) = mark_index(prefix) {
            if let Some(at @ None) = self.marks.get_mut(index).filter(|_| hash != 0) {
                *at = Some(now);
                self.marks_heard += 1;
            }
            return;
        }
        let slot = match self.slots.get_mut(&prefix) {
            Some(slot) => slot,
            None if hash == 0 => return,
            None => {
                self.heard.unexpected += 1;
                self.slots.entry(prefix).or_default()
            }
        };
        let is_right = |hash| u8::from(slot.want != 0 && slot.want == hash);
        self.right = self.right + usize::from(is_right(hash)) - usize::from(is_right(slot.have));
        self.present = self.present + usize::from(hash != 0) - usize::from(slot.have != 0);
        slot.have = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{HEADER_LEN, NextHops, Stream, put_attribute};
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const HOPS: NextHops = NextHops { v4: Ipv4Addr::new(192, 0, 2, 1), v6: Ipv6Addr::LOCALHOST };

    fn told(monitor: &mut Monitor, prefixes: &[IpPrefix], path: Option<&[u32]>) {
        let mut stream = Stream::default();
        match path {
            Some(path) => {
                let mut value = vec![2, path.len() as u8];
                path.iter().for_each(|n| value.extend_from_slice(&n.to_be_bytes()));
                let mut attributes = Vec::new();
                put_attribute(&mut attributes, 0x40, 2, &value);
                stream.announce(&attributes, HOPS, prefixes, 100);
            }
            None => stream.withdraw(prefixes, 100),
        }
        let (mut start, now) = (0, Instant::now());
        for end in stream.ends {
            monitor.handle_update(&stream.bytes[start + HEADER_LEN..end], now).unwrap();
            start = end;
        }
    }

    #[test]
    fn convergence_is_every_expected_path_and_no_other() {
        let prefix = |text: &str| text.parse::<IpPrefix>().unwrap();
        let (a, b, six) = (prefix("198.51.100.0/24"), prefix("192.0.2.0/24"), prefix("2001:db8::/32"));
        let mut monitor = Monitor::new(65000);
        assert!(monitor.has(Goal::Table) && monitor.has(Goal::Empty));
        let hash = |path: &[u32]| path_hash(path.iter().copied());
        monitor.expect([(a, hash(&[1, 2])), (six, hash(&[3]))].into_iter(), 1, Goal::Table);
        assert!(!monitor.has(Goal::Table));
        told(&mut monitor, &[a], Some(&[65000, 1, 2]));
        told(&mut monitor, &[six], Some(&[65000, 9]));
        assert_eq!(monitor.state(), (2, 1, 2));
        told(&mut monitor, &[six], Some(&[65000, 3]));
        assert!(monitor.has(Goal::Table) && !monitor.has(Goal::Marks(1)));
        assert!(monitor.reached().is_some());
        told(&mut monitor, &[mark(0)], Some(&[65000, 3]));
        assert!(monitor.has(Goal::Marks(1)) && monitor.marks()[0].is_some());
        told(&mut monitor, &[b], Some(&[1]));
        assert!(!monitor.has(Goal::Table), "a prefix that nobody expects");
        assert!(monitor.reached().is_none(), "not reached any more");
        assert_eq!((monitor.heard().unexpected, monitor.heard().foreign_paths), (1, 1));
        told(&mut monitor, &[b], None);
        assert!(monitor.has(Goal::Table));
        let digest = monitor.digest();
        told(&mut monitor, &[a], Some(&[65000, 7]));
        assert_ne!(monitor.digest(), digest, "another path");
        told(&mut monitor, &[a], Some(&[65000, 1, 2]));
        assert_eq!(monitor.digest(), digest);
        told(&mut monitor, &[a], None);
        told(&mut monitor, &[six], None);
        assert!(monitor.has(Goal::Empty) && !monitor.has(Goal::Table));
        assert_eq!(monitor.heard().withdrawn, 3);
    }

    #[test]
    fn a_table_that_was_asked_for_replaces_what_was_heard() {
        let prefix = |text: &str| text.parse::<IpPrefix>().unwrap();
        let (a, b) = (prefix("198.51.100.0/24"), prefix("192.0.2.0/24"));
        let hash = |path: &[u32]| path_hash(path.iter().copied());
        let now = Instant::now();
        let mut monitor = Monitor::new(65000);
        monitor.expect([(a, hash(&[1])), (b, hash(&[2]))].into_iter(), 1, Goal::Marks(1));
        monitor.take_table([(a, hash(&[1])), (b, hash(&[9]))], now);
        assert_eq!((monitor.state(), monitor.reached()), ((2, 1, 2), None));
        monitor.take_table([(a, hash(&[1])), (b, hash(&[2]))], now);
        assert!(monitor.reached().is_none(), "a mark is missing");
        monitor.take_table([(a, hash(&[1])), (b, hash(&[2])), (mark(0), hash(&[2]))], now);
        assert!(monitor.reached().is_some());
        // As if it had been told.
        let mut told_of = Monitor::new(65000);
        told_of.expect([(a, hash(&[1])), (b, hash(&[2]))].into_iter(), 0, Goal::Table);
        told(&mut told_of, &[a], Some(&[65000, 1]));
        told(&mut told_of, &[b], Some(&[65000, 2]));
        assert_eq!(told_of.digest(), monitor.digest());
        monitor.take_table([(a, hash(&[1]))], now);
        assert_eq!((monitor.state(), monitor.reached()), ((2, 1, 1), None), "b is gone");
    }

    #[test]
    fn expecting_anew_counts_what_is_there() {
        let a: IpPrefix = "198.51.100.0/24".parse().unwrap();
        let mut monitor = Monitor::new(1);
        monitor.expect([(a, path_hash([5].into_iter()))].into_iter(), 0, Goal::Table);
        told(&mut monitor, &[a], Some(&[1, 5]));
        assert!(monitor.has(Goal::Table));
        monitor.expect([(a, path_hash([6].into_iter()))].into_iter(), 0, Goal::Table);
        assert_eq!(monitor.state(), (1, 0, 1));
        monitor.expect(std::iter::empty(), 0, Goal::Empty);
        assert!(!monitor.has(Goal::Table) && !monitor.has(Goal::Empty), "it is still there");
        told(&mut monitor, &[a], None);
        assert!(monitor.has(Goal::Table) && monitor.has(Goal::Empty));
    }
}

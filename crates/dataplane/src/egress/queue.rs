//! The scheduler: classes, turns, and the three ways in which a packet's wait ends.

use super::bucket::Bucket;
use super::codel::Codel;
use super::config::{CLASSES_MAX, EgressClass, EgressConfig, STRICT_LEVEL_MAX};
use super::counters::ClassCounters;
use crate::schedule::Service;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use thalweg_base::DropReason;

/// Bytes of a turn for the smallest weight: more than a full Ethernet frame with tags and overhead, so that in most
/// networks it never has to grow.
const TURN_BYTES: u64 = 2_048;
/// Strict bytes that may leave in a row before the bound on their share applies: an I-frame of video or the voice
/// packets of three hundred calls, and at 100 Mbit/s no more than 5 ms of delay for others.
const STRICT_RUN_BYTES: i64 = 65_536;
/// The index of the weighted classes' group, after all strict levels.
const WEIGHTED: usize = STRICT_LEVEL_MAX as usize + 1;
const GROUPS: usize = WEIGHTED + 1;
const WEIGHTED_BIT: u32 = 1 << WEIGHTED;

/// The result of [`EgressQueue::dequeue`].
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// This packet must leave now.
    Packet {
        /// The packet as enqueued.
        item: T,
        class: u8,
        sojourn_ns: u64,
    },
    /// No packet may leave before this time, unless another is enqueued first.
    Wait {
        /// The first nanosecond at which one may.
        until_ns: u64,
    },
    /// Nothing waits.
    Empty,
}

/// The most urgent packets at a time.
pub const URGENT_MAX: usize = 64;

/// The queues of one egress port, for packets of any kind `T`.
#[derive(Debug)]
pub struct EgressQueue<T> {
    config: EgressConfig,
    classes: Vec<Class<T>>,
    groups: [Group; GROUPS],
    /// Urgent packets, each with the class that counts it.
    urgent: VecDeque<(u8, Waiting<T>)>,
    /// One bit for each group with a class in its ring.
    ready: u32,
    /// Classes held back by their own buckets, with the time until which they are.
    held: BinaryHeap<Reverse<(u64, u8)>>,
    bucket: Option<Bucket>,
    /// Bytes of a turn for the smallest weight: at least the largest packet so far.
    turn_bytes: u64,
    /// What strict classes may still send while weighted ones wait; in bytes times percent.
    strict_credit: i64,
    /// The latest time seen.
    clock_ns: u64,
}

/// A strict level, or all weighted classes.
#[derive(Debug, Default)]
struct Group {
    /// Classes with packets that their own buckets do not hold back; the first has its turn.
    ring: VecDeque<u8>,
    /// The smallest weight, which is the cost of a byte, so that turns of integer weights are integers.
    byte_cost: i64,
}

#[derive(Debug)]
struct Class<T> {
    queue: VecDeque<Waiting<T>>,
    group: usize,
    weight: i64,
    /// The rest of the turn, in bytes times the group's `byte_cost`.
    deficit: i64,
    bucket: Option<Bucket>,
    codel: Option<Codel>,
    /// The largest packet so far.
    large_bytes: u64,
    limit_packets: u64,
    limit_bytes: u64,
    counters: ClassCounters,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    bytes: u32,
    since_ns: u64,
}

/// Whose turn it is.
enum Turn {
    Class { group: usize, class: u8, charge: u64 },
    Wait { until_ns: u64 },
    Empty,
}

impl<T> EgressQueue<T> {
    /// Empty queues with full buckets.
    pub fn new(config: EgressConfig) -> Self {
        let mut queue = Self {
            config: EgressConfig { classes: Vec::new(), ..EgressConfig::default() },
            classes: Vec::new(),
            groups: Default::default(),
            urgent: VecDeque::new(),
            ready: 0,
            held: BinaryHeap::new(),
            bucket: None,
            turn_bytes: TURN_BYTES,
            strict_credit: 0,
            clock_ns: 0,
        };
        queue.set_config(config, 0);
        queue.strict_credit = queue.strict_credit_max();
        queue
    }

    /// The configuration in force.
    pub fn config(&self) -> &EgressConfig {
        &self.config
    }

    /// Each class's counters, in class order.
    pub fn counters(&self) -> impl ExactSizeIterator<Item = &ClassCounters> {
        self.classes.iter().map(|class| &class.counters)
    }

    /// Packets waiting in all classes.
    pub fn waiting(&self) -> u64 {
        self.counters().map(|counters| counters.waiting_packets).sum()
    }

    /// Puts a packet of `len` bytes into its class's queue, or hands it back if the queue is full.
    ///
    /// After a [`Next::Wait`], call [`dequeue`](Self::dequeue) again: the new packet may be allowed to leave first.
    #[inline]
    pub fn enqueue(&mut self, class: u8, item: T, len: u32, now_ns: u64) -> Result<(), (T, DropReason)> {
        self.clock_ns = self.clock_ns.max(now_ns);
        let index = self.class_or_default(class);
        let kept = &mut self.classes[usize::from(index)];
        let bytes = u64::from(len);
        kept.counters.enqueued += 1;
        if kept.counters.waiting_packets >= kept.limit_packets
            || kept.counters.waiting_bytes + bytes > kept.limit_bytes
        {
            kept.counters.dropped_full += 1;
            return Err((item, DropReason::QueueFull));
        }
        let was_empty = kept.queue.is_empty();
        kept.queue.push_back(Waiting { item, bytes: len, since_ns: self.clock_ns });
        kept.counters.kept(bytes);
        kept.large_bytes = kept.large_bytes.max(bytes);
        self.turn_bytes = self.turn_bytes.max(bytes + u64::from(self.config.overhead_bytes));
        if was_empty {
            self.join(index);
        }
        Ok(())
    }

    /// Enqueues an urgent packet, before all packets except earlier urgent ones, or hands it back if there are
    /// [`URGENT_MAX`]. This is for the few packets that the router itself must send on a line that others fill.
    pub fn enqueue_urgent(
        &mut self,
        class: u8,
        item: T,
        len: u32,
        now_ns: u64,
    ) -> Result<(), (T, DropReason)> {
        self.clock_ns = self.clock_ns.max(now_ns);
        let index = self.class_or_default(class);
        let counters = &mut self.classes[usize::from(index)].counters;
        counters.enqueued += 1;
        if self.urgent.len() >= URGENT_MAX {
            counters.dropped_full += 1;
            return Err((item, DropReason::QueueFull));
        }
        counters.kept(u64::from(len));
        self.urgent.push_back((index, Waiting { item, bytes: len, since_ns: self.clock_ns }));
        Ok(())
    }

    fn class_or_default(&self, class: u8) -> u8 {
        if usize::from(class) < self.classes.len() { class } else { self.config.default_class }
    }

    /// Returns the next packet to leave.
    ///
    /// `mark` sets congestion experienced in a packet ([`mark_ce`](super::mark_ce)) and returns whether the packet
    /// can carry it; `dropped` receives what active queue management drops, with its class.
    #[inline]
    pub fn dequeue(
        &mut self,
        now_ns: u64,
        mark: &mut impl FnMut(&mut T) -> bool,
        dropped: &mut impl FnMut(T, u8, DropReason),
    ) -> Next<T> {
        self.clock_ns = self.clock_ns.max(now_ns);
        self.release();
        if let Some(next) = self.serve_urgent() {
            return next;
        }
        loop {
            match self.turn() {
                Turn::Class { group, class, charge } => {
                    if let Some(packet) = self.serve(group, class, charge, mark, dropped) {
                        return packet;
                    }
                }
                Turn::Wait { until_ns } => return Next::Wait { until_ns },
                Turn::Empty => return Next::Empty,
            }
        }
    }

    /// Urgent packets wait only for the port's bucket.
    #[inline]
    fn serve_urgent(&mut self) -> Option<Next<T>> {
        let (_, first) = self.urgent.front()?;
        if let Some(bucket) = &mut self.bucket {
            let charge = u64::from(first.bytes) + u64::from(self.config.overhead_bytes);
            if let Err(until_ns) = bucket.ready(charge, self.clock_ns) {
                return Some(Next::Wait { until_ns });
            }
            bucket.take(charge);
        }
        let (class, Waiting { item, bytes, since_ns }) = self.urgent.pop_front()?;
        let sojourn_ns = self.clock_ns.saturating_sub(since_ns);
        let counters = &mut self.classes[usize::from(class)].counters;
        counters.taken(u64::from(bytes));
        counters.left(u64::from(bytes), sojourn_ns);
        Some(Next::Packet { item, class, sojourn_ns })
    }

    /// Removes all packets, for instance because the port is gone, and passes each with its class.
    pub fn purge(&mut self, taken: &mut impl FnMut(T, u8)) {
        self.end_urgency();
        for (index, class) in (0u8..).zip(&mut self.classes) {
            for waiting in class.queue.drain(..) {
                class.counters.taken(u64::from(waiting.bytes));
                class.counters.purged += 1;
                taken(waiting.item, index);
            }
        }
        self.rebuild_rings();
    }

    /// Changes the configuration and keeps waiting packets.
    ///
    /// A class keeps its queue, its counters and the tokens in its bucket if the new configuration has a class of
    /// its name; otherwise the default class inherits its packets, in order of arrival. Nothing is dropped, even if
    /// a new limit is lower: the queue then drains to it. Packets classified earlier still carry the old index of
    /// their class; change a class's index only when there are none.
    pub fn set_config(&mut self, mut config: EgressConfig, now_ns: u64) {
        self.clock_ns = self.clock_ns.max(now_ns);
        config.classes.truncate(CLASSES_MAX);
        if config.classes.is_empty() {
            config.classes.push(EgressClass::default());
        }
        if usize::from(config.default_class) >= config.classes.len() {
            config.default_class = 0;
        }
        config.strict_share_percent = config.strict_share_percent.clamp(1, 100);
        self.end_urgency();
        let names = std::mem::take(&mut self.config.classes).into_iter().map(|class| class.name);
        let mut old: Vec<(String, Class<T>)> = names.zip(std::mem::take(&mut self.classes)).collect();
        for class in &config.classes {
            let kept = old.iter().position(|(name, _)| *name == class.name);
            let mut kept = kept.map_or_else(Class::new, |place| old.remove(place).1);
            kept.configure(class, self.clock_ns);
            self.classes.push(kept);
        }
        let heir = &mut self.classes[usize::from(config.default_class)];
        let has_moved = old.iter().any(|(_, class)| !class.queue.is_empty());
        for (_, mut gone) in old {
            heir.queue.append(&mut gone.queue);
            heir.large_bytes = heir.large_bytes.max(gone.large_bytes);
            heir.counters.migrate_from(&gone.counters);
        }
        if has_moved {
            heir.queue.make_contiguous().sort_by_key(|waiting| waiting.since_ns);
        }
        match (&mut self.bucket, config.rate_bps) {
            (Some(bucket), Some(rate)) => bucket.change(rate, config.burst_bytes, self.clock_ns),
            (bucket, rate) => *bucket = rate.map(|rate| Bucket::new(rate, config.burst_bytes, self.clock_ns)),
        }
        self.config = config;
        self.strict_credit = self.strict_credit.min(self.strict_credit_max());
        self.rebuild_rings();
    }

    /// Moves urgent packets to the front of their own classes.
    fn end_urgency(&mut self) {
        while let Some((class, waiting)) = self.urgent.pop_back() {
            self.classes[usize::from(class)].queue.push_front(waiting);
        }
    }

    /// Every class with packets joins its ring again, with a new turn.
    fn rebuild_rings(&mut self) {
        self.ready = 0;
        self.held.clear();
        for (number, group) in self.groups.iter_mut().enumerate() {
            group.ring.clear();
            let weights = self.classes.iter().filter(|class| class.group == number).map(|class| class.weight);
            group.byte_cost = weights.min().unwrap_or(1);
        }
        for index in 0..self.classes.len() {
            if !self.classes[index].queue.is_empty() {
                self.join(index as u8);
            }
        }
    }

    /// Puts a class with packets in line, with a full turn.
    fn join(&mut self, index: u8) {
        let class = &mut self.classes[usize::from(index)];
        class.deficit = class.weight * self.turn_bytes as i64;
        self.groups[class.group].ring.push_back(index);
        self.ready |= 1 << class.group;
    }

    /// Takes the first class out of its ring: it has nothing to send, or may not.
    fn leave(&mut self, group: usize) {
        let ring = &mut self.groups[group].ring;
        ring.pop_front();
        if ring.is_empty() {
            self.ready &= !(1 << group);
        }
    }

    /// Puts classes whose buckets have filled back in line.
    #[inline]
    fn release(&mut self) {
        while let Some(Reverse((until_ns, class))) = self.held.peek().copied() {
            if until_ns > self.clock_ns {
                break;
            }
            self.held.pop();
            self.join(class);
        }
    }

    /// The group to serve: the first strict level, unless strict classes have had their share.
    #[inline]
    fn next_group(&self) -> Option<usize> {
        let weighted_waits = self.ready & WEIGHTED_BIT != 0;
        let ready =
            if weighted_waits && self.strict_credit < 0 { self.ready & WEIGHTED_BIT } else { self.ready };
        (ready != 0).then(|| ready.trailing_zeros() as usize)
    }

    /// Finds the class whose packet may leave now. A turn passes on at most once for each class, because it is
    /// never shorter than a packet.
    #[inline]
    fn turn(&mut self) -> Turn {
        while let Some(group) = self.next_group() {
            let ring = &mut self.groups[group];
            let Some(&index) = ring.ring.front() else {
                self.leave(group);
                continue;
            };
            let class = &mut self.classes[usize::from(index)];
            let Some(first) = class.queue.front() else {
                self.leave(group);
                continue;
            };
            let charge = u64::from(first.bytes) + u64::from(self.config.overhead_bytes);
            if class.deficit < charge as i64 * ring.byte_cost {
                class.deficit += class.weight * self.turn_bytes as i64;
                ring.ring.rotate_left(1);
                continue;
            }
            if let Some(bucket) = &mut class.bucket
                && let Err(until_ns) = bucket.ready(charge, self.clock_ns)
            {
                self.held.push(Reverse((until_ns, index)));
                self.leave(group);
                continue;
            }
            if let Some(bucket) = &mut self.bucket
                && let Err(until_ns) = bucket.ready(charge, self.clock_ns)
            {
                // A held class may be ready earlier, with a smaller packet.
                let held = self.held.peek().map_or(u64::MAX, |Reverse((held_until_ns, _))| *held_until_ns);
                return Turn::Wait { until_ns: until_ns.min(held) };
            }
            return Turn::Class { group, class: index, charge };
        }
        match self.held.peek() {
            Some(Reverse((until_ns, _))) => Turn::Wait { until_ns: *until_ns },
            None => Turn::Empty,
        }
    }

    /// Takes the first packet of the class whose turn it is, unless it must be dropped.
    #[inline]
    fn serve(
        &mut self,
        group: usize,
        index: u8,
        charge: u64,
        mark: &mut impl FnMut(&mut T) -> bool,
        dropped: &mut impl FnMut(T, u8, DropReason),
    ) -> Option<Next<T>> {
        let class = &mut self.classes[usize::from(index)];
        let Waiting { mut item, bytes, since_ns } = class.queue.pop_front()?;
        let is_last = class.queue.is_empty();
        class.counters.taken(u64::from(bytes));
        let sojourn_ns = self.clock_ns.saturating_sub(since_ns);
        if let Some(codel) = &mut class.codel {
            let behind = class.counters.waiting_bytes;
            if codel.signal(self.clock_ns, sojourn_ns, behind, class.large_bytes) {
                if codel.may_mark(sojourn_ns) && mark(&mut item) {
                    class.counters.marked += 1;
                } else {
                    class.counters.dropped_managed += 1;
                    dropped(item, index, DropReason::QueueManaged);
                    if is_last {
                        self.leave(group);
                    }
                    return None;
                }
            }
        }
        class.counters.left(u64::from(bytes), sojourn_ns);
        class.deficit -= charge as i64 * self.groups[group].byte_cost;
        if let Some(bucket) = &mut class.bucket {
            bucket.take(charge);
        }
        if let Some(bucket) = &mut self.bucket {
            bucket.take(charge);
        }
        self.account_shares(group, charge);
        if is_last {
            self.leave(group);
        }
        Some(Next::Packet { item, class: index, sojourn_ns })
    }

    /// While weighted classes wait, weighted bytes pay for strict ones: at a share of s percent a weighted byte
    /// earns s and a strict one costs 100 - s, so that s strict and 100 - s weighted bytes are even. Strict bytes
    /// that delay no weighted class are free.
    #[inline]
    fn account_shares(&mut self, group: usize, charge: u64) {
        let share = i64::from(self.config.strict_share_percent);
        let bytes = charge as i64;
        if group == WEIGHTED {
            let earned = self.strict_credit.saturating_add(bytes * share);
            self.strict_credit = earned.min(self.strict_credit_max());
        } else if self.ready & WEIGHTED_BIT != 0 {
            self.strict_credit -= bytes * (100 - share);
        }
    }

    fn strict_credit_max(&self) -> i64 {
        STRICT_RUN_BYTES * (100 - i64::from(self.config.strict_share_percent))
    }
}

impl<T> Class<T> {
    fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            group: WEIGHTED,
            weight: 1,
            deficit: 0,
            bucket: None,
            codel: None,
            large_bytes: 0,
            limit_packets: 0,
            limit_bytes: 0,
            counters: ClassCounters::default(),
        }
    }

    fn configure(&mut self, config: &EgressClass, now_ns: u64) {
        (self.group, self.weight) = match config.service {
            Service::Strict(level) => (usize::from(level.min(STRICT_LEVEL_MAX)), 1),
            Service::Weight(weight) => (WEIGHTED, i64::from(weight.max(1))),
        };
        match (&mut self.bucket, config.rate_bps) {
            (Some(bucket), Some(rate)) => bucket.change(rate, config.burst_bytes, now_ns),
            (bucket, rate) => *bucket = rate.map(|rate| Bucket::new(rate, config.burst_bytes, now_ns)),
        }
        match (&mut self.codel, config.aqm) {
            (Some(codel), Some(aqm)) => codel.change(aqm),
            (codel, aqm) => *codel = aqm.map(Codel::new),
        }
        self.limit_packets = u64::from(config.limit_packets);
        self.limit_bytes = u64::from(config.limit_bytes);
    }
}

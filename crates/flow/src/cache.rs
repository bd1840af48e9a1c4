//! A shard of the flow cache: flows, the index that finds them, the timing wheel that expires them, and the
//! shard's part of the totals.
//!
//! # When a flow ends
//!
//! A part of a flow's life ends at the earlier of two moments, known to the nanosecond from the packets' own
//! clock:
//!
//! ```text
//! quiet  = last packet + idle timeout      (after FIN or RST: last packet + linger)  -> IdleTimeout, EndDetected: removed
//! report = first unreported packet + active timeout                                  -> ActiveTimeout: counters restart
//! ```
//!
//! A packet that arrives at that moment or later finds the flow ended, whether or not the wheel has reached
//! it. So records depend neither on how packets are cut into chunks nor on the wheel's ticks. These only
//! affect when a record is emitted: within a tick (0.27 s) of the moment, by the clock of the observed chunk.
//! A flow that was reported and had no packet since is removed without another record.
//!
//! # When the clock goes back
//!
//! A packet ends its flow (`ForcedEnd`) if it arrives earlier than the flow's last packet by the active
//! timeout or more. A chunk whose clock is that far before a flow's last packet does the same: the capturing
//! host's clock was set back, or captures are not in order of time. The wheel then follows the clock. So no
//! record is longer than the active timeout, whatever clocks do. `flows_set_back` counts flows that end for
//! this reason.
//!
//! # When there is no room
//!
//! At the limit of flows, the flow that is next on the wheel is evicted. A flow with a packet since it was
//! last considered gets a second chance: it goes back on the wheel. So a flood of single packets mostly
//! evicts its own flows. If both buckets of a new flow are full, the stalest flow in the first bucket is
//! evicted. Both kinds are reported (`LackOfResources`) and counted. For the same reason, most new flows in
//! such a flood are reported with their first packet and never enter the cache ([`flood`]).
//!
//! # Cost
//!
//! A packet of a known flow reads its bucket and its entry, one cache line each, both prefetched
//! ([`prefetch_bucket`](Shard::prefetch_bucket), [`prefetch_entry`](Shard::prefetch_entry)). It allocates
//! nothing and scans only a bucket. In a full cache an IPv4 flow takes 64 bytes, plus 16 bytes of the index.

mod arena;
mod flood;
mod index;
mod lifetime;
mod names;
mod watching;

use crate::key::{Facts, Key, Matching, Outcome};
use crate::meter::options::{MeterError, MeterOptions};
use crate::meter::totals::{Amount, MeterTotals};
use crate::names::Looks;
use crate::record::{EndReason, FlowRecord};
use crate::sampling::Sampler;
use crate::wheel::{LIST, Linked, Wheel};
pub(crate) use arena::NO_SLOT;
use arena::{Arenas, Family, Fate, Half, place, state};
use flood::Flood;
use index::Index;
use lifetime::{Lifetime, Timeouts};
use thalweg_base::{DropReason, Refused};
use thalweg_wire::ip_protocol::TCP;
use thalweg_wire::tcp::{ACK, FIN, RST, SYN};
use watching::Watching;

/// The number of flows considered for one eviction.
const CHANCES: usize = 32;
/// Flows taken from the wheel at a time, so that memory for some is fetched while others are handled.
const VISITS: usize = 16;
/// How many evictions ahead a victim's bucket is prefetched.
const SCOUTED: u32 = 8;
/// A cache holds few flows if the index has more than this many buckets for each.
const FEW: usize = 32;
/// Places that one call of [`Shard::snapshot`] walks.
const SLICE: usize = 1024;
/// The first place of IPv6 flows in a snapshot.
const PLACES_V6: usize = usize::MAX / 2 + 1;

pub(crate) type Out<'a> = dyn FnMut(&FlowRecord) + 'a;

/// Walks ahead of evictions and prefetches what they need.
#[derive(Debug)]
struct Scout {
    /// A flow, or the end of a list: then the scout starts again.
    slot: u32,
    /// The number of flows between the next victim and the scout.
    ahead: u32,
}

impl Default for Scout {
    fn default() -> Self {
        Self { slot: LIST, ahead: 0 }
    }
}

/// A shard of the cache; see the module documentation.
#[derive(Debug)]
pub(crate) struct Shard {
    matching: Matching,
    timeouts: Timeouts,
    sampling_interval: u32,
    biflow: bool,
    flows_max: u32,
    flows: u32,
    index: Index,
    wheel: Wheel,
    arenas: Arenas,
    sampler: Sampler,
    scout: Scout,
    flood: Flood,
    looks: Looks,
    watching: Option<Watching>,
    /// Without the totals that the other fields imply.
    totals: MeterTotals,
}

impl Shard {
    /// Makes all shards. Their memory is reserved now and taken as flows arrive.
    pub(crate) fn all(options: &MeterOptions) -> Result<Vec<Self>, MeterError> {
        let refused = |Refused(bytes)| MeterError::OutOfMemory { bytes };
        let (shards, flows_max) = (usize::from(options.shards), options.shard_flows_max());
        let indexes = Index::new(shards, flows_max, options.huge_pages).map_err(refused)?;
        let arenas = Arenas::new(options).map_err(refused)?;
        let parts = (0..).zip(indexes).zip(arenas);
        Ok(parts.map(|((number, index), arenas)| Self::new(options, number, index, arenas)).collect())
    }

    fn new(options: &MeterOptions, number: u16, index: Index, arenas: Arenas) -> Self {
        Self {
            matching: Matching::new(options),
            timeouts: Timeouts {
                idle_ns: options.idle_timeout_ns,
                active_ns: options.active_timeout_ns,
                linger_ns: options.end_linger_ns.min(options.idle_timeout_ns),
            },
            sampling_interval: options.sampling.interval(),
            biflow: options.biflow,
            flows_max: options.shard_flows_max(),
            flows: 0,
            index,
            wheel: Wheel::new(),
            arenas,
            sampler: Sampler::new(options.sampling, number),
            scout: Scout::default(),
            flood: Flood::new(options.hash_key[0] ^ u64::from(number)),
            looks: Looks::new(options.names),
            watching: None,
            totals: MeterTotals::default(),
        }
    }

    pub(crate) fn totals(&self) -> MeterTotals {
        let memory = self.index.memory_bytes()
            + self.wheel.memory_bytes()
            + self.arenas.memory_bytes()
            + self.looks.memory_bytes()
            + size_of::<Self>();
        MeterTotals {
            flows_cached: u64::from(self.flows),
            memory_bytes: memory as u64,
            names: self.looks.counts,
            ..self.totals
        }
    }

    #[inline(always)]
    pub(crate) fn hash(&self, facts: &Facts) -> u64 {
        if facts.ipv6 { facts.key6().hash(&self.matching) } else { facts.key4().hash(&self.matching) }
    }

    /// Prefetches a packet's first bucket.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        self.index.prefetch(hash, false);
    }

    /// Prefetches a flow's entry, once its first bucket is cached, and returns its probable slot. If the flow is not
    /// in that bucket, prefetches the second one.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, hash: u64) -> Option<u32> {
        self.index.guess(hash).inspect(|slot| self.arenas.prefetch(*slot))
    }

    /// [`Self::prefetch_entry`], once the second bucket is cached.
    #[inline(always)]
    pub(crate) fn prefetch_second(&self, hash: u64) -> Option<u32> {
        self.index.guess_second(hash).inspect(|slot| self.arenas.prefetch(*slot))
    }

    /// Counts a packet as seen; returns whether it is sampled.
    #[inline(always)]
    pub(crate) fn sees(&mut self, bytes: u32) -> bool {
        self.totals.seen += Amount::one(bytes);
        let takes = self.sampler.takes();
        if !takes {
            self.totals.unsampled += Amount::one(bytes);
        }
        takes
    }

    /// Counts further packets of a frame that merges several. They are sampled if the first was: who samples gets
    /// single packets.
    #[cold]
    pub(crate) fn sees_further(&mut self, packets: u32, bytes: u64) {
        self.totals.seen += Amount { packets: u64::from(packets), bytes };
    }

    #[cold]
    pub(crate) fn count_unmetered(&mut self, reason: DropReason, packets: u64, bytes: u64) {
        self.totals.not_metered[reason as usize] += Amount { packets, bytes };
    }

    /// Counts a packet in its flow, with its outcome if the meter keeps outcomes. Returns the flow's slot, if it has
    /// one. `guess` is where the flow probably is: if so, the index need not be read again.
    #[inline(always)]
    pub(crate) fn count(
        &mut self,
        (hash, guess): (u64, u32),
        facts: &Facts,
        outcome: Option<&Outcome>,
        out: &mut Out<'_>,
    ) -> Option<u32> {
        if facts.ipv6 {
            self.count_key((hash, guess), &facts.key6(), facts, outcome, out)
        } else {
            self.count_key((hash, guess), &facts.key4(), facts, outcome, out)
        }
    }

    #[inline(always)]
    fn count_key<const WORDS: usize>(
        &mut self,
        (hash, guess): (u64, u32),
        key: &Key<WORDS>,
        facts: &Facts,
        outcome: Option<&Outcome>,
        out: &mut Out<'_>,
    ) -> Option<u32>
    where
        Key<WORDS>: Family,
    {
        // Fast path for nearly all packets: the flow is where it was guessed, has one direction and no outcome, and
        // neither the flow nor the packet ends anything. No two live flows have the same key.
        if !self.biflow
            && outcome.is_none()
            && facts.tcp_flags & (FIN | RST) == 0
            && let Some(at) = Key::<WORDS>::place(guess)
            && let Some(entry) = Key::<WORDS>::arena_mut(&mut self.arenas).live_mut(at)
            && entry.key.matches(key, &self.matching)
            && entry.half.surely_goes_on(facts.arrival_ns, &self.timeouts)
        {
            entry.half.state |= state::TOUCHED;
            entry.half.count(facts);
            entry.key.note_application(key);
            self.totals.cached += Amount::one(facts.bytes);
            return Some(guess);
        }
        self.count_any((hash, key), facts, outcome, out)
    }

    /// Slow path of [`Self::count`], for known and new flows.
    #[inline(never)]
    fn count_any<const WORDS: usize>(
        &mut self,
        (hash, key): (u64, &Key<WORDS>),
        facts: &Facts,
        outcome: Option<&Outcome>,
        out: &mut Out<'_>,
    ) -> Option<u32>
    where
        Key<WORDS>: Family,
    {
        let (arena, matching) = (Key::<WORDS>::arena(&self.arenas), &self.matching);
        let is =
            |slot| Key::<WORDS>::place(slot).is_some_and(|at| arena.entry(at).key.matches(key, matching));
        let (slot, touched) = match self.index.find(hash, is) {
            Some(slot) => {
                self.report_ended(slot, key, facts, out);
                (slot, state::TOUCHED)
            }
            None if self.flows >= self.flows_max && !self.flood.admits() => {
                self.pass_by(key, facts, outcome, out);
                return None;
            }
            None => (self.insert(hash, key, facts, out), 0),
        };
        let at = place(slot);
        let arena = Key::<WORDS>::arena_mut(&mut self.arenas);
        let entry = arena.entry_mut(at);
        entry.key.note_application(key);
        entry.half.state |= touched;
        let reversed = facts.backward != (entry.half.state & state::BACKWARD != 0);
        match if reversed { arena.reverse_mut(at) } else { None } {
            Some(reverse) => reverse.count(facts),
            None => arena.entry_mut(at).half.count(facts),
        }
        if let (Some(outcome), Some(fate)) = (outcome, arena.fate_mut(at)) {
            fate.count(outcome);
        }
        self.totals.cached += Amount::one(facts.bytes);
        // Other protocols have no TCP flags.
        if facts.tcp_flags & (FIN | RST) != 0 {
            self.note_end::<WORDS>(slot, reversed, facts);
        }
        Some(slot)
    }

    /// If the flow had ended when this packet arrived, reports it before the packet is counted.
    #[inline(always)]
    fn report_ended<const WORDS: usize>(
        &mut self,
        slot: u32,
        key: &Key<WORDS>,
        facts: &Facts,
        out: &mut Out<'_>,
    ) where
        Key<WORDS>: Family,
    {
        let lifetime = self.lifetime::<WORDS>(place(slot));
        let begins = lifetime.is_ended() && facts.tcp_flags & (SYN | ACK | RST) == SYN;
        let set_back = lifetime.is_ahead_of(facts.arrival_ns, &self.timeouts);
        if facts.arrival_ns >= lifetime.deadline_ns(&self.timeouts) || begins || lifetime.full || set_back {
            self.report_ended_now(slot, key, facts, &lifetime, begins, out);
        }
    }

    #[cold]
    fn report_ended_now<const WORDS: usize>(
        &mut self,
        slot: u32,
        key: &Key<WORDS>,
        facts: &Facts,
        lifetime: &Lifetime,
        begins: bool,
        out: &mut Out<'_>,
    ) where
        Key<WORDS>: Family,
    {
        let at = place(slot);
        if lifetime.is_ahead_of(facts.arrival_ns, &self.timeouts) {
            self.report::<WORDS>(at, EndReason::ForcedEnd, out);
            self.totals.flows_set_back += 1;
            self.totals.flows_created += 1;
            Key::arena_mut(&mut self.arenas).renew(at, *key, initial_state(facts));
            // Its present deadline may never come.
            self.wheel.unlink(slot, &mut self.arenas);
            self.wheel.push(slot, self.first_deadline_ns(facts), &mut self.arenas);
            return;
        }
        let due =
            lifetime.reports_first(&self.timeouts) && facts.arrival_ns >= lifetime.report_ns(&self.timeouts);
        let mut reported = lifetime.packets == 0;
        if due || lifetime.full {
            self.report::<WORDS>(at, EndReason::ActiveTimeout, out);
            reported = true;
        }
        if facts.arrival_ns >= lifetime.quiet_ns(&self.timeouts) || begins {
            if !reported {
                self.report::<WORDS>(at, lifetime.reason(), out);
            }
            // The new deadline is later than the present one, and the wheel finds it in time.
            Key::arena_mut(&mut self.arenas).renew(at, *key, initial_state(facts));
            self.totals.flows_created += 1;
        }
    }

    /// Reports a flow of one packet without entering it into the cache.
    fn pass_by<const WORDS: usize>(
        &mut self,
        key: &Key<WORDS>,
        facts: &Facts,
        outcome: Option<&Outcome>,
        out: &mut Out<'_>,
    ) where
        Key<WORDS>: Family,
    {
        let mut half = Half { state: initial_state(facts), ..Half::EMPTY };
        half.count(facts);
        let fate = outcome.map(|outcome| {
            let mut fate = Fate::none();
            fate.count(outcome);
            fate
        });
        let record = self.told(key, (&half, None), fate.as_ref(), EndReason::LackOfResources);
        self.totals.flows_created += 1;
        self.totals.passed_by += 1;
        self.tell_whole(&record);
        self.give_out(&record, out);
    }

    #[inline(always)]
    fn insert<const WORDS: usize>(
        &mut self,
        hash: u64,
        key: &Key<WORDS>,
        facts: &Facts,
        out: &mut Out<'_>,
    ) -> u32
    where
        Key<WORDS>: Family,
    {
        if self.flows >= self.flows_max {
            self.evict_earliest(out);
        }
        let vacancy = match self.index.vacancy(hash) {
            Some(vacancy) => Some(vacancy),
            None => {
                self.evict_rival(hash, out);
                self.index.vacancy(hash)
            }
        };
        let second = vacancy.is_some_and(|vacancy| vacancy.second);
        let state = initial_state(facts) | if second { state::SECOND } else { 0 };
        let at = Key::arena_mut(&mut self.arenas).allocate(*key, state);
        let slot = Key::<WORDS>::slot(at);
        debug_assert!(vacancy.is_some(), "one of the rivals has gone");
        if let Some(vacancy) = vacancy {
            self.index.put(vacancy, hash, slot);
        }
        self.wheel.push(slot, self.first_deadline_ns(facts), &mut self.arenas);
        self.flows += 1;
        self.totals.flows_created += 1;
        slot
    }

    #[inline(always)]
    fn first_deadline_ns(&self, facts: &Facts) -> u64 {
        facts.arrival_ns.saturating_add(self.timeouts.idle_ns.min(self.timeouts.active_ns))
    }

    /// Notes FIN and RST. A flow that they end gets an earlier place on the wheel.
    #[cold]
    fn note_end<const WORDS: usize>(&mut self, slot: u32, reversed: bool, facts: &Facts)
    where
        Key<WORDS>: Family,
    {
        let at = place(slot);
        let arena = Key::<WORDS>::arena_mut(&mut self.arenas);
        let half = &mut arena.entry_mut(at).half;
        if half.state & state::ENDED != 0 {
            return;
        }
        if facts.tcp_flags & FIN != 0 {
            half.state |= if reversed { state::FIN_REVERSE } else { state::FIN };
        }
        let both = if self.biflow { state::FIN | state::FIN_REVERSE } else { state::FIN };
        if facts.tcp_flags & RST != 0 || half.state & both == both {
            half.state |= state::ENDED;
            let deadline_ns =
                Lifetime::new(&arena.entry(at).half, arena.reverse(at)).deadline_ns(&self.timeouts);
            self.wheel.unlink(slot, &mut self.arenas);
            self.wheel.push(slot, deadline_ns, &mut self.arenas);
        }
    }

    /// Reports what was counted of a flow, if anything, and restarts its counters.
    fn report<const WORDS: usize>(&mut self, at: usize, reason: EndReason, out: &mut Out<'_>)
    where
        Key<WORDS>: Family,
    {
        let Some(record) = self.record::<WORDS>(at, reason) else { return };
        self.tell_rest::<WORDS>(at, &record);
        Key::<WORDS>::arena_mut(&mut self.arenas).begin_anew(at);
        self.totals.cached -= Amount::of(&record);
        self.give_out(&record, out);
    }

    /// Emits a record and counts it in the totals.
    #[inline(always)]
    fn give_out(&mut self, record: &FlowRecord, out: &mut Out<'_>) {
        self.totals.exported += Amount::of(record);
        if let Some(reason) = record.end_reason {
            self.totals.records[reason as usize - 1] += 1;
        }
        out(record);
    }

    /// The unreported part of a flow.
    fn record<const WORDS: usize>(&self, at: usize, reason: EndReason) -> Option<FlowRecord>
    where
        Key<WORDS>: Family,
    {
        let arena = Key::<WORDS>::arena(&self.arenas);
        let entry = arena.entry(at);
        let reverse = arena.reverse(at).filter(|reverse| reverse.packets > 0);
        if entry.half.packets == 0 && reverse.is_none() {
            return None;
        }
        let mut record = self.told(&entry.key, (&entry.half, reverse), arena.fate(at), reason);
        record.names = self.names::<WORDS>(at);
        Some(record)
    }

    #[inline(always)]
    fn told<const WORDS: usize>(
        &self,
        key: &Key<WORDS>,
        (half, reverse): (&Half, Option<&Half>),
        fate: Option<&Fate>,
        reason: EndReason,
    ) -> FlowRecord
    where
        Key<WORDS>: Family,
    {
        let flow_key = key.flow_key(half.state & state::BACKWARD != 0);
        let is_tcp = flow_key.protocol == TCP;
        let counters = half.counters(reverse.unwrap_or(&Half::EMPTY), is_tcp);
        let mut record = FlowRecord::new(flow_key, counters, reason);
        record.reverse = reverse.map(|reverse| reverse.counters(half, is_tcp));
        record.application = key.application();
        record.details.ingress_vrf = key.vrf();
        record.sampling_interval = self.sampling_interval;
        if let Some(fate) = fate {
            fate.write_to(&mut record);
        }
        record
    }

    /// Reports and removes the flows that have expired by this clock.
    #[inline]
    pub(crate) fn advance(&mut self, clock_ns: u64, out: &mut Out<'_>) {
        self.watch_clock(clock_ns);
        let tick = Wheel::tick_after(clock_ns) - 1;
        if tick > self.wheel.now() {
            self.turn(tick, out);
        } else if Wheel::tick_after(clock_ns.saturating_add(self.timeouts.active_ns)) <= self.wheel.now() {
            self.set_back(clock_ns, out);
        }
    }

    /// The clock went back: the wheel follows it, and flows ahead of it expire.
    #[cold]
    fn set_back(&mut self, clock_ns: u64, out: &mut Out<'_>) {
        let tick = Wheel::tick_after(clock_ns) - 1;
        self.wheel = Wheel::at(tick);
        self.scout = Scout::default();
        for at in 0..self.arenas.v4.len() {
            if self.arenas.v4.is_live(at) {
                self.hang_again::<3>(Key::<3>::slot(at), (clock_ns, tick), out);
            }
        }
        for at in 0..self.arenas.v6.len() {
            if self.arenas.v6.is_live(at) {
                self.hang_again::<6>(Key::<6>::slot(at), (clock_ns, tick), out);
            }
        }
    }

    /// Puts a flow that is on no list back on the wheel after it was set back, unless the flow has ended.
    fn hang_again<const WORDS: usize>(&mut self, slot: u32, (clock_ns, tick): (u64, u64), out: &mut Out<'_>)
    where
        Key<WORDS>: Family,
    {
        let hash = self.hash_of(slot);
        if self.lifetime::<WORDS>(place(slot)).is_ahead_of(clock_ns, &self.timeouts) {
            self.report::<WORDS>(place(slot), EndReason::ForcedEnd, out);
            self.totals.flows_set_back += 1;
            self.forget::<WORDS>(slot, hash);
        } else {
            self.visit::<WORDS>(slot, hash, tick, out);
        }
    }

    #[cold]
    fn turn(&mut self, tick: u64, out: &mut Out<'_>) {
        let mut due = self.wheel.turn_to(tick);
        while let Some(mut slot) = self.wheel.detach(&mut due) {
            while slot & LIST == 0 {
                let mut visits = [(0, 0); VISITS];
                let mut count = 0;
                while count < VISITS && slot & LIST == 0 {
                    let hash = self.hash_of(slot);
                    self.index.prefetch(hash, self.is_in_second(slot));
                    visits[count] = (slot, hash);
                    count += 1;
                    slot = self.arenas.links(slot).next;
                    self.arenas.prefetch(slot);
                }
                for &(slot, hash) in &visits[..count] {
                    if arena::is_ipv6(slot) {
                        self.visit::<6>(slot, hash, tick, out);
                    } else {
                        self.visit::<3>(slot, hash, tick, out);
                    }
                }
            }
        }
    }

    /// Handles a flow that was taken from the wheel.
    fn visit<const WORDS: usize>(&mut self, slot: u32, hash: u64, tick: u64, out: &mut Out<'_>)
    where
        Key<WORDS>: Family,
    {
        let at = place(slot);
        let is_over = |deadline_ns| Wheel::tick_after(deadline_ns) <= tick;
        let lifetime = self.lifetime::<WORDS>(at);
        if lifetime.reports_first(&self.timeouts) && is_over(lifetime.report_ns(&self.timeouts)) {
            self.report::<WORDS>(at, EndReason::ActiveTimeout, out);
        }
        let lifetime = self.lifetime::<WORDS>(at);
        if is_over(lifetime.quiet_ns(&self.timeouts)) {
            self.report::<WORDS>(at, lifetime.reason(), out);
            self.forget::<WORDS>(slot, hash);
        } else {
            self.wheel.push(slot, lifetime.deadline_ns(&self.timeouts), &mut self.arenas);
        }
    }

    fn lifetime<const WORDS: usize>(&self, at: usize) -> Lifetime
    where
        Key<WORDS>: Family,
    {
        let arena = Key::<WORDS>::arena(&self.arenas);
        Lifetime::new(&arena.entry(at).half, arena.reverse(at))
    }

    /// Removes a flow that is on no list from the cache.
    fn forget<const WORDS: usize>(&mut self, slot: u32, hash: u64)
    where
        Key<WORDS>: Family,
    {
        self.index.remove(hash, slot, self.is_in_second(slot));
        Key::<WORDS>::arena_mut(&mut self.arenas).free(place(slot));
        self.flows -= 1;
    }

    fn is_in_second(&self, slot: u32) -> bool {
        self.arenas.half(slot).state & state::SECOND != 0
    }

    fn hash_of(&self, slot: u32) -> u64 {
        let at = place(slot);
        if arena::is_ipv6(slot) {
            self.arenas.v6.entry(at).key.hash(&self.matching)
        } else {
            self.arenas.v4.entry(at).key.hash(&self.matching)
        }
    }

    /// Evicts one flow to make room.
    fn evict_earliest(&mut self, out: &mut Out<'_>) {
        let mut chances = CHANCES;
        while let Some(slot) = self.wheel.earliest() {
            let half = self.arenas.half_mut(slot);
            if half.state & state::TOUCHED != 0 && chances > 0 {
                half.state &= !state::TOUCHED;
                chances -= 1;
                let at = place(slot);
                let lifetime =
                    if arena::is_ipv6(slot) { self.lifetime::<6>(at) } else { self.lifetime::<3>(at) };
                self.wheel.unlink(slot, &mut self.arenas);
                self.wheel.push(slot, lifetime.deadline_ns(&self.timeouts), &mut self.arenas);
                continue;
            }
            self.totals.evicted_cache_full += 1;
            self.flood.note_victim(self.arenas.half(slot).packets);
            self.evict(slot, out);
            break;
        }
        self.prefetch_victims();
    }

    /// Prefetches for evictions to come: the bucket of the victim [`SCOUTED`] ahead, and the entry behind it.
    /// The scout's position is a guess, since flows may move on the wheel meanwhile.
    fn prefetch_victims(&mut self) {
        if self.scout.slot & LIST != 0 {
            let Some(slot) = self.wheel.earliest() else { return };
            self.scout = Scout { slot, ahead: 0 };
        }
        // One step keeps the distance; a second one closes the gap while it is too short.
        for _ in 0..1 + usize::from(self.scout.ahead < SCOUTED) {
            let slot = self.scout.slot;
            if slot & LIST != 0 || !self.arenas.is_live(slot) {
                self.scout.slot = LIST;
                return;
            }
            self.index.prefetch(self.hash_of(slot), self.is_in_second(slot));
            self.scout.slot = self.arenas.links(slot).next;
            self.scout.ahead += 1;
            self.arenas.prefetch(self.scout.slot);
        }
        self.scout.ahead -= 1;
    }

    /// Evicts one flow of this hash's first bucket.
    #[cold]
    fn evict_rival(&mut self, hash: u64, out: &mut Out<'_>) {
        let rivals = self.index.rivals(hash);
        if let Some(slot) = rivals.into_iter().min_by_key(|slot| self.arenas.half_mut(*slot).last_ns) {
            self.totals.evicted_bucket_full += 1;
            self.evict(slot, out);
        }
    }

    fn evict(&mut self, slot: u32, out: &mut Out<'_>) {
        let hash = self.hash_of(slot);
        self.wheel.unlink(slot, &mut self.arenas);
        if arena::is_ipv6(slot) {
            self.report::<6>(place(slot), EndReason::LackOfResources, out);
            self.forget::<6>(slot, hash);
        } else {
            self.report::<3>(place(slot), EndReason::LackOfResources, out);
            self.forget::<3>(slot, hash);
        }
    }

    /// Reports and removes all flows.
    pub(crate) fn flush(&mut self, reason: EndReason, out: &mut Out<'_>) {
        // Few flows are removed from the index one by one: clearing it would touch all of its memory.
        let few = self.flows as usize * FEW < self.index.buckets();
        for at in 0..self.arenas.v4.len() {
            if self.arenas.v4.is_live(at) {
                self.report::<3>(at, reason, out);
                if few {
                    let slot = Key::<3>::slot(at);
                    self.index.remove(self.hash_of(slot), slot, self.is_in_second(slot));
                }
            }
        }
        for at in 0..self.arenas.v6.len() {
            if self.arenas.v6.is_live(at) {
                self.report::<6>(at, reason, out);
                if few {
                    let slot = Key::<6>::slot(at);
                    self.index.remove(self.hash_of(slot), slot, self.is_in_second(slot));
                }
            }
        }
        if !few {
            self.index.clear();
        }
        self.arenas.clear();
        self.wheel.clear();
        self.scout = Scout::default();
        self.flows = 0;
    }

    /// Emits flows from place `from` on and returns where the next slice begins. Flows keep their places, and
    /// each family has its own, so a flow that lives through the whole walk appears once, whatever happens
    /// between slices.
    pub(crate) fn snapshot(&self, from: usize, out: &mut Out<'_>) -> Option<usize> {
        let (v4, v6) = (self.arenas.v4.len(), self.arenas.v6.len());
        match from.checked_sub(PLACES_V6) {
            None => {
                let end = from.saturating_add(SLICE).min(v4);
                for at in (from..end).filter(|at| self.arenas.v4.is_live(*at)) {
                    self.record::<3>(at, EndReason::ActiveTimeout).iter().for_each(&mut *out);
                }
                if end < v4 { Some(end) } else { (v6 > 0).then_some(PLACES_V6) }
            }
            Some(from) => {
                let end = from.saturating_add(SLICE).min(v6);
                for at in (from..end).filter(|at| self.arenas.v6.is_live(*at)) {
                    self.record::<6>(at, EndReason::ActiveTimeout).iter().for_each(&mut *out);
                }
                (end < v6).then_some(PLACES_V6 + end)
            }
        }
    }
}

fn initial_state(facts: &Facts) -> u8 {
    state::LIVE | if facts.backward { state::BACKWARD } else { 0 }
}

#[cfg(test)]
impl Shard {
    /// Sets the packet count of every flow, and adjusts the totals.
    pub(crate) fn pretend_packets(&mut self, packets: u32) {
        for at in 0..self.arenas.v4.len() {
            let half = &mut self.arenas.v4.entry_mut(at).half;
            let more = Amount { packets: u64::from(packets - half.packets), bytes: 0 };
            half.packets = packets;
            self.totals.seen += more;
            self.totals.cached += more;
        }
    }
}

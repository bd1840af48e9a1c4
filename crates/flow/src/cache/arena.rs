//! The memory of flows: one arena per family. It reserves all memory at the start and touches it as it grows,
//! so nothing is copied. The entries of all shards are interleaved in one piece of memory. Shards fill
//! evenly, so memory is used from its start, and large pages work with any number of shards. No two entries
//! share a cache line, so shards do not slow each other down.
//!
//! ```text
//!         key 24 or 48 | bytes 8 | first 8 | last 8 | packets 4 | flags, ttl min, max, state 4 | links 8
//! IPv4:   64 bytes, one cache line
//! IPv6:   88 bytes, two cache lines
//! ```
//!
//! Data that only some meters keep is in separate arrays: the reverse direction's counters (32 bytes per
//! flow), the fate of packets (44 bytes), names (28 bytes, which are read only if the key says that there are some) and
//! what was told of a flow that goes on (24 bytes).

use crate::key::{Facts, Key4, Key6, Outcome, translation};
use crate::memory::{Laid, Share};
use crate::meter::options::MeterOptions;
use crate::record::{Counters, FlowNames, FlowRecord, interface_of_port};
use crate::wheel::{LIST, Linked, Links};
use thalweg_base::{DropReason, NO_PORT, Origin, Refused, prefetch_all};

const OF_IPV6: u32 = 1 << 31;
const NO_ENTRY: u32 = u32::MAX;
/// No flow has this slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;

pub(crate) mod state {
    pub(crate) const LIVE: u8 = 1;
    /// The key has the endpoints of the first packet exchanged.
    pub(crate) const BACKWARD: u8 = 2;
    /// The first direction has sent FIN.
    pub(crate) const FIN: u8 = 4;
    /// The reverse direction has sent FIN.
    pub(crate) const FIN_REVERSE: u8 = 8;
    /// TCP has ended the flow.
    pub(crate) const ENDED: u8 = 16;
    /// The flow had a packet since it was last considered for eviction.
    pub(crate) const TOUCHED: u8 = 32;
    /// The flow is in the second bucket of its hash.
    pub(crate) const SECOND: u8 = 64;
    /// Something was told of the flow.
    pub(crate) const TOLD: u8 = 128;
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Half {
    pub(crate) bytes: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) packets: u32,
    pub(crate) tcp_flags: u8,
    pub(crate) ttl_min: u8,
    pub(crate) ttl_max: u8,
    /// State of the whole flow; used in the half of its first direction.
    pub(crate) state: u8,
}

impl Half {
    pub(crate) const EMPTY: Self = Self {
        bytes: 0,
        first_ns: u64::MAX,
        last_ns: 0,
        packets: 0,
        tcp_flags: 0,
        ttl_min: u8::MAX,
        ttl_max: 0,
        state: 0,
    };

    #[inline(always)]
    pub(crate) fn count(&mut self, facts: &Facts) {
        self.bytes += u64::from(facts.bytes);
        self.first_ns = self.first_ns.min(facts.arrival_ns);
        // A reported part does not count: this packet may have arrived a little earlier.
        let reported_ns = if self.packets == 0 { 0 } else { self.last_ns };
        self.last_ns = reported_ns.max(facts.arrival_ns);
        self.packets += 1;
        self.tcp_flags |= facts.tcp_flags;
        self.ttl_min = self.ttl_min.min(facts.ttl);
        self.ttl_max = self.ttl_max.max(facts.ttl);
    }

    /// Restarts the counters; keeps the time of the last packet and the flow's state.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { last_ns: self.last_ns, state: self.state, ..Self::EMPTY };
    }

    /// Counters for a record. A direction without packets has counts of 0, the other direction's time, and
    /// unknown header fields.
    #[inline(always)]
    pub(crate) fn counters(&self, other: &Self, is_tcp: bool) -> Counters {
        if self.packets == 0 {
            let at_ns = other.first_ns;
            return Counters { first_ns: at_ns, last_ns: at_ns, ..Counters::default() };
        }
        Counters {
            packets: u64::from(self.packets),
            bytes: self.bytes,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            tcp_flags: is_tcp.then_some(self.tcp_flags),
            ttl_min: Some(self.ttl_min),
            ttl_max: Some(self.ttl_max),
        }
    }
}

/// A flow, or a free entry, whose `next` leads to another one.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Entry<K> {
    pub(crate) key: K,
    pub(crate) half: Half,
    links: Links,
}

const _: () = assert!(size_of::<Entry<Key4>>() == 64 && size_of::<Entry<Key6>>() == 128);

/// What the router did with a flow's packets: 44 bytes, so that an IPv4 flow with its part of the index stays
/// below 128.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    /// Codes of drop reasons, in order of occurrence; 0 is none.
    reasons: [u8; 3],
    is_translated: bool,
    /// Dropped packets for each of `reasons`.
    dropped: [u32; 3],
    /// Packets dropped for further reasons.
    others: u32,
    /// Bytes of all dropped packets, low half first.
    bytes: [u32; 2],
    translated: Origin,
    egress: u16,
}

const _: () = assert!(size_of::<Fate>() == 44);

impl Fate {
    pub(crate) fn none() -> Self {
        Self {
            reasons: [0; 3],
            is_translated: false,
            dropped: [0; 3],
            others: 0,
            bytes: [0; 2],
            translated: Origin::default(),
            egress: NO_PORT,
        }
    }

    /// Forgets what was reported; keeps the egress port and the translation.
    fn begin_anew(&mut self) {
        *self = Self {
            egress: self.egress,
            is_translated: self.is_translated,
            translated: self.translated,
            ..Self::none()
        };
    }

    #[inline]
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        match outcome.drop {
            Some(reason) => self.drop(reason as u8, outcome.bytes),
            None => self.egress = outcome.egress,
        }
        if let Some(translated) = outcome.translated {
            (self.is_translated, self.translated) = (true, translated);
        }
    }

    #[cold]
    fn drop(&mut self, code: u8, bytes: u32) {
        let (low, carries) = self.bytes[0].overflowing_add(bytes);
        self.bytes = [low, self.bytes[1] + u32::from(carries)];
        let count = match self.reasons.iter().position(|reason| *reason == code || *reason == 0) {
            Some(place) => {
                self.reasons[place] = code;
                &mut self.dropped[place]
            }
            None => &mut self.others,
        };
        *count = count.saturating_add(1);
    }

    pub(crate) fn write_to(&self, record: &mut FlowRecord) {
        record.egress = interface_of_port(self.egress);
        record.translation = self.is_translated.then(|| translation(&self.translated));
        let mut bytes = u64::from(self.bytes[1]) << 32 | u64::from(self.bytes[0]);
        for (code, packets) in self.reasons.iter().zip(&self.dropped) {
            if let Some(reason) = DropReason::from_code(*code) {
                record.drops.add(reason, *packets, std::mem::take(&mut bytes));
            }
        }
        record.drops.add_without_reason(self.others, 0);
    }
}

/// What was told of the unreported part of a flow, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    bytes: [u64; 2],
    packets: [u32; 2],
}

impl Told {
    fn all(half: &Half, reverse: Option<&Half>) -> Self {
        let reverse = reverse.unwrap_or(&Half::EMPTY);
        Self { bytes: [half.bytes, reverse.bytes], packets: [half.packets, reverse.packets] }
    }
}

/// The flows of one family. Each optional array has as many places as `entries`, or none.
#[derive(Debug)]
pub(crate) struct Arena<K> {
    entries: Share<Entry<K>>,
    reverse: Share<Half>,
    fates: Share<Fate>,
    names: Share<FlowNames>,
    told: Share<Told>,
    free: u32,
    biflow: bool,
    with_fates: bool,
    with_names: bool,
    watched: bool,
}

impl<K: Copy> Arena<K> {
    /// Makes one arena per shard.
    fn new(options: &MeterOptions) -> Result<Vec<Self>, Refused> {
        let (shards, count) = (usize::from(options.shards), options.shard_flows_max() as usize);
        let entries = Share::new(shards, count, Laid::InTurn, options.huge_pages)?;
        // These elements are smaller than a cache line, so each shard gets its own part.
        let count_if = |kept: bool| if kept { count } else { 0 };
        let reverse = Share::new(shards, count_if(options.biflow), Laid::Apart, options.huge_pages)?;
        let fates = Share::new(shards, count_if(options.fates), Laid::Apart, options.huge_pages)?;
        let with_names = options.names.any();
        let names = Share::new(shards, count_if(with_names), Laid::Apart, options.huge_pages)?;
        let told = Share::new(shards, count_if(options.watched), Laid::Apart, options.huge_pages)?;
        let parts = entries.into_iter().zip(reverse).zip(fates).zip(names).zip(told);
        let arena = |((((entries, reverse), fates), names), told)| Self {
            entries,
            reverse,
            fates,
            names,
            told,
            free: NO_ENTRY,
            biflow: options.biflow,
            with_fates: options.fates,
            with_names,
            watched: options.watched,
        };
        Ok(parts.map(arena).collect())
    }

    /// Bytes of memory touched.
    fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry<K>>()
            + self.reverse.len() * size_of::<Half>()
            + self.fates.len() * size_of::<Fate>()
            + self.names.len() * size_of::<FlowNames>()
            + self.told.len() * size_of::<Told>()
    }

    /// The number of entries ever used.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_live(&self, at: usize) -> bool {
        self.entries.get(at).is_some_and(|entry| entry.half.state & state::LIVE != 0)
    }

    /// The flow at this place, if there is one.
    #[inline(always)]
    pub(crate) fn live_mut(&mut self, at: usize) -> Option<&mut Entry<K>> {
        self.entries.get_mut(at).filter(|entry| entry.half.state & state::LIVE != 0)
    }

    #[inline(always)]
    pub(crate) fn entry(&self, at: usize) -> &Entry<K> {
        &self.entries[at]
    }

    #[inline(always)]
    pub(crate) fn entry_mut(&mut self, at: usize) -> &mut Entry<K> {
        &mut self.entries[at]
    }

    /// The reverse direction, if the meter keeps it.
    #[inline(always)]
    pub(crate) fn reverse(&self, at: usize) -> Option<&Half> {
        self.reverse.get(at)
    }

    #[inline(always)]
    pub(crate) fn reverse_mut(&mut self, at: usize) -> Option<&mut Half> {
        self.reverse.get_mut(at)
    }

    /// What was found of a flow; meaningful only if its key says that there is something.
    pub(crate) fn names(&self, at: usize) -> Option<&FlowNames> {
        self.names.get(at)
    }

    pub(crate) fn set_names(&mut self, at: usize, names: FlowNames) {
        if let Some(place) = self.names.get_mut(at) {
            *place = names;
        }
    }

    pub(crate) fn fate(&self, at: usize) -> Option<&Fate> {
        self.fates.get(at)
    }

    #[inline(always)]
    pub(crate) fn fate_mut(&mut self, at: usize) -> Option<&mut Fate> {
        self.fates.get_mut(at)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        self.entries.get(at).into_iter().for_each(prefetch_all);
        self.reverse.get(at).into_iter().for_each(prefetch_all);
    }

    /// Takes an entry for a new flow; the caller ensures that there is room.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, key: K, state: u8) -> usize {
        let half = Half { state, ..Half::EMPTY };
        if self.free != NO_ENTRY {
            let at = self.free as usize;
            let entry = &mut self.entries[at];
            self.free = entry.links.next;
            (entry.key, entry.half) = (key, half);
            return at;
        }
        self.entries.push(Entry { key, half, links: Links { next: LIST, prev: LIST } });
        if self.biflow {
            self.reverse.push(Half::EMPTY);
        }
        if self.with_fates {
            self.fates.push(Fate::none());
        }
        if self.with_names {
            self.names.push(FlowNames::default());
        }
        if self.watched {
            self.told.push(Told::default());
        }
        self.entries.len() - 1
    }

    #[inline(always)]
    pub(crate) fn free(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        entry.half.state = 0;
        entry.links.next = self.free;
        self.free = at as u32;
        self.begin_anew_beside(at);
    }

    /// Whether a flow has counted something since it was told, if that is kept.
    pub(crate) fn has_untold(&self, at: usize) -> bool {
        let all = || Told::all(&self.entries[at].half, self.reverse.get(at));
        self.told.get(at).is_some_and(|told| *told != all())
    }

    /// What a flow has counted since it was told, and whether that is the first; `record` has everything
    /// unreported.
    pub(crate) fn tell(&mut self, at: usize, record: &FlowRecord) -> Option<(FlowRecord, bool)> {
        let told = self.told.get_mut(at)?;
        let half = &mut self.entries[at].half;
        let before = std::mem::replace(told, Told::all(half, self.reverse.get(at)));
        let is_first = half.state & state::TOLD == 0;
        half.state |= state::TOLD;
        let mut rest = *record;
        for (way, counters) in [Some(&mut rest.counters), rest.reverse.as_mut()].into_iter().enumerate() {
            let Some(counters) = counters else { continue };
            counters.packets -= u64::from(before.packets[way]);
            counters.bytes -= before.bytes[way];
        }
        Some((rest, is_first))
    }

    /// Restarts all counters of a flow.
    pub(crate) fn begin_anew(&mut self, at: usize) {
        self.entries[at].half.begin_anew();
        if let Some(reverse) = self.reverse.get_mut(at) {
            reverse.begin_anew();
        }
        if let Some(fate) = self.fates.get_mut(at) {
            fate.begin_anew();
        }
        if let Some(told) = self.told.get_mut(at) {
            *told = Told::default();
        }
    }

    /// Turns an entry into a new flow with the same key.
    pub(crate) fn renew(&mut self, at: usize, key: K, state: u8) {
        let entry = &mut self.entries[at];
        let state = state | entry.half.state & state::SECOND;
        entry.key = key;
        entry.half = Half { state, ..Half::EMPTY };
        self.begin_anew_beside(at);
    }

    #[inline(always)]
    fn begin_anew_beside(&mut self, at: usize) {
        if let Some(reverse) = self.reverse.get_mut(at) {
            *reverse = Half::EMPTY;
        }
        if let Some(fate) = self.fates.get_mut(at) {
            *fate = Fate::none();
        }
        if let Some(told) = self.told.get_mut(at) {
            *told = Told::default();
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.reverse.clear();
        self.fates.clear();
        self.names.clear();
        self.told.clear();
        self.free = NO_ENTRY;
    }
}

/// Both families, and the slots that name their flows.
#[derive(Debug)]
pub(crate) struct Arenas {
    pub(crate) v4: Arena<Key4>,
    pub(crate) v6: Arena<Key6>,
}

impl Arenas {
    /// Makes the arenas of all shards.
    pub(crate) fn new(options: &MeterOptions) -> Result<Vec<Self>, Refused> {
        let both = Arena::new(options)?.into_iter().zip(Arena::new(options)?);
        Ok(both.map(|(v4, v6)| Self { v4, v6 }).collect())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.v4.memory_bytes() + self.v6.memory_bytes()
    }

    pub(crate) fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        if is_ipv6(slot) { self.v6.prefetch(place(slot)) } else { self.v4.prefetch(place(slot)) }
    }

    pub(crate) fn is_live(&self, slot: u32) -> bool {
        if is_ipv6(slot) { self.v6.is_live(place(slot)) } else { self.v4.is_live(place(slot)) }
    }

    /// The half of a flow's first direction.
    #[inline(always)]
    pub(crate) fn half(&self, slot: u32) -> &Half {
        if is_ipv6(slot) { &self.v6.entry(place(slot)).half } else { &self.v4.entry(place(slot)).half }
    }

    #[inline(always)]
    pub(crate) fn half_mut(&mut self, slot: u32) -> &mut Half {
        if is_ipv6(slot) {
            &mut self.v6.entry_mut(place(slot)).half
        } else {
            &mut self.v4.entry_mut(place(slot)).half
        }
    }
}

impl Linked for Arenas {
    #[inline(always)]
    fn links(&mut self, slot: u32) -> &mut Links {
        if is_ipv6(slot) {
            &mut self.v6.entry_mut(place(slot)).links
        } else {
            &mut self.v4.entry_mut(place(slot)).links
        }
    }
}

#[inline(always)]
pub(crate) fn is_ipv6(slot: u32) -> bool {
    slot & OF_IPV6 != 0
}

/// The place of a slot in its arena.
#[inline(always)]
pub(crate) fn place(slot: u32) -> usize {
    (slot & !OF_IPV6) as usize
}

/// A key type that knows the arena of its flows.
pub(crate) trait Family: Copy {
    fn slot(at: usize) -> u32;
    /// The place of a slot, if it belongs to this family.
    fn place(slot: u32) -> Option<usize>;
    fn arena(arenas: &Arenas) -> &Arena<Self>;
    fn arena_mut(arenas: &mut Arenas) -> &mut Arena<Self>;
}

impl Family for Key4 {
    #[inline(always)]
    fn slot(at: usize) -> u32 {
        at as u32
    }

    #[inline(always)]
    fn place(slot: u32) -> Option<usize> {
        (!is_ipv6(slot)).then(|| place(slot))
    }

    #[inline(always)]
    fn arena(arenas: &Arenas) -> &Arena<Self> {
        &arenas.v4
    }

    #[inline(always)]
    fn arena_mut(arenas: &mut Arenas) -> &mut Arena<Self> {
        &mut arenas.v4
    }
}

impl Family for Key6 {
    #[inline(always)]
    fn slot(at: usize) -> u32 {
        at as u32 | OF_IPV6
    }

    #[inline(always)]
    fn place(slot: u32) -> Option<usize> {
        is_ipv6(slot).then(|| place(slot))
    }

    #[inline(always)]
    fn arena(arenas: &Arenas) -> &Arena<Self> {
        &arenas.v6
    }

    #[inline(always)]
    fn arena_mut(arenas: &mut Arenas) -> &mut Arena<Self> {
        &mut arenas.v6
    }
}

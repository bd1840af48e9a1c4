//! Keeps one copy of each attribute set.
//!
//! The table has stripes, each with its own lock that is held for one look-up, so that sessions that decode on
//! several cores seldom contend. When a stripe has doubled since its last sweep, it drops the sets that nobody else
//! holds. So garbage never exceeds the sets in use plus [`SWEEP_MIN`] per stripe. After routes are withdrawn, the
//! caller sweeps the rest ([`Interner::sweep_stripe`]).

use parking_lot::{Mutex, MutexGuard};

use hashbrown::HashTable;

use super::{AttrRef, Attrs, AttrsBuilder, Head};

/// A power of two; the upper bits of the hash select the stripe.
const STRIPES: usize = 64;

/// Stripes with fewer sets are not swept.
const SWEEP_MIN: usize = 64;

/// The table of attribute sets, shared by everything that creates or drops routes.
pub struct Interner {
    seed: u64,
    stripes: Box<[Mutex<Stripe>]>,
}

#[derive(Default)]
struct Stripe {
    sets: HashTable<AttrRef>,
    /// Of the sets, without the table.
    bytes: usize,
    sweep_at: usize,
}

/// The content of an [`Interner`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternerCounters {
    /// Includes sets that the next sweep drops.
    pub sets: usize,
    pub bytes: usize,
}

impl Interner {
    /// Creates an empty table. The secret `seed` keeps others from choosing attributes that collide.
    pub fn new(seed: u64) -> Self {
        Self { seed, stripes: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }

    /// Returns the set that `builder` describes: the existing copy, or a new one.
    pub fn intern(&self, builder: &mut AttrsBuilder) -> AttrRef {
        let (head, bytes) = builder.seal(self.seed);
        let mut stripe = self.stripe(head.hash);
        if let Some(found) = stripe.sets.find(head.hash, |each| same(each, &head, bytes)) {
            return found.clone();
        }
        if stripe.sets.len() >= stripe.sweep_at.max(SWEEP_MIN) {
            stripe.sweep();
        }
        let new = AttrRef::new(head, bytes);
        stripe.bytes += new.memory_bytes();
        stripe.sets.insert_unique(head.hash, new.clone(), |each| each.head.hash);
        new
    }

    /// Drops every set that nobody else holds.
    pub fn sweep(&self) {
        (0..self.stripes()).for_each(|stripe| self.sweep_stripe(stripe));
    }

    /// The number of stripes.
    pub fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// [`Self::sweep`] for one stripe, so that a large table is swept in slices.
    pub fn sweep_stripe(&self, stripe: usize) {
        if let Some(stripe) = self.stripes.get(stripe) {
            stripe.lock().sweep();
        }
    }

    /// The current number of sets and their memory.
    pub fn counters(&self) -> InternerCounters {
        let mut counters = InternerCounters::default();
        for stripe in &self.stripes {
            let stripe = stripe.lock();
            counters.sets += stripe.sets.len();
            counters.bytes += stripe.bytes + stripe.sets.capacity() * (size_of::<AttrRef>() + 1) * 8 / 7;
        }
        counters
    }

    fn stripe(&self, hash: u64) -> MutexGuard<'_, Stripe> {
        // hashbrown uses the top seven bits and the lowest; these are between.
        self.stripes[(hash >> 48) as usize % STRIPES].lock()
    }
}

impl Stripe {
    fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.sets.retain(|each| {
            let is_held = each.is_held_elsewhere();
            *bytes -= if is_held { 0 } else { each.memory_bytes() };
            is_held
        });
        self.sweep_at = self.sets.len() * 2;
        if self.sets.capacity() > 4 * self.sets.len().max(SWEEP_MIN) {
            self.sets.shrink_to(self.sweep_at, |each| each.head.hash);
        }
    }
}

/// A thread that panicked under the lock left a table that is whole: each change to it is one call.
fn same(set: &Attrs, head: &Head, bytes: &[u8]) -> bool {
    set.head == *head && set.bytes == *bytes
}

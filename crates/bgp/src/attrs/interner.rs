//! One copy of each attribute set.
//!
//! The table is cut into stripes, each behind a lock of its own that is held for one look-up, so that sessions
//! decoding on several cores rarely meet. A stripe holds its sets; when it has doubled since the last time, it
//! lets go of those that nobody else holds. Garbage therefore is never more than what is used, plus
//! [`SWEEP_MIN`] sets a stripe; after routes have gone, the caller sweeps the rest ([`Interner::sweep_stripe`]).

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use hashbrown::HashTable;

use super::{AttrRef, Attrs, AttrsBuilder, Head};

/// A power of two; the uppermost bits of the hash choose.
const STRIPES: usize = 64;

/// A stripe with fewer sets is not swept.
const SWEEP_MIN: usize = 64;

/// Where attribute sets live. Shared by everything that makes or drops routes.
pub struct Interner {
    seed: u64,
    stripes: Box<[Mutex<Stripe>]>,
}

#[derive(Default)]
struct Stripe {
    sets: HashTable<AttrRef>,
    sweep_at: usize,
}

/// What an [`Interner`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternerCounters {
    /// Sets in the table, with those that are about to go.
    pub sets: usize,
    /// Bytes of memory they take.
    pub bytes: usize,
}

impl Interner {
    /// An empty one. `seed` keeps strangers from choosing attributes that collide.
    pub fn new(seed: u64) -> Self {
        Self { seed, stripes: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }

    /// The set that `builder` describes; the one that is there, if there is one.
    pub fn intern(&self, builder: &mut AttrsBuilder) -> AttrRef {
        let (head, bytes) = builder.seal(self.seed);
        let mut stripe = self.stripe(head.hash);
        if let Some(found) = stripe.sets.find(head.hash, |each| same(each, &head, bytes)) {
            return found.clone();
        }
        if stripe.sets.len() >= stripe.sweep_at.max(SWEEP_MIN) {
            stripe.sweep();
        }
        let new = AttrRef(Arc::new(Attrs { head, bytes: bytes.into() }));
        stripe.sets.insert_unique(head.hash, new.clone(), |each| each.head.hash);
        new
    }

    /// Lets go of every set that nobody holds.
    pub fn sweep(&self) {
        (0..self.stripes()).for_each(|stripe| self.sweep_stripe(stripe));
    }

    /// Into how many stripes the table is cut.
    pub fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// The same for one stripe, so that a large table is swept a little at a time.
    pub fn sweep_stripe(&self, stripe: usize) {
        if let Some(stripe) = self.stripes.get(stripe) {
            stripe.lock().sweep();
        }
    }

    /// How much is held.
    pub fn counters(&self) -> InternerCounters {
        let mut counters = InternerCounters::default();
        for stripe in &self.stripes {
            let stripe = stripe.lock();
            counters.sets += stripe.sets.len();
            counters.bytes += stripe.sets.iter().map(|each| each.memory_bytes()).sum::<usize>();
            counters.bytes += stripe.sets.capacity() * (size_of::<AttrRef>() + 1) * 8 / 7;
        }
        counters
    }

    fn stripe(&self, hash: u64) -> MutexGuard<'_, Stripe> {
        // hashbrown takes the uppermost seven bits and the lowest; these are between.
        self.stripes[(hash >> 48) as usize % STRIPES].lock()
    }
}

impl Stripe {
    fn sweep(&mut self) {
        self.sets.retain(|each| Arc::strong_count(&each.0) > 1);
        self.sweep_at = self.sets.len() * 2;
        if self.sets.capacity() > 4 * self.sets.len().max(SWEEP_MIN) {
            self.sets.shrink_to(self.sweep_at, |each| each.head.hash);
        }
    }
}

/// A thread that panicked under the lock left a table that is whole: each change to it is one call.
fn same(set: &Attrs, head: &Head, bytes: &[u8]) -> bool {
    set.head == *head && *set.bytes == *bytes
}

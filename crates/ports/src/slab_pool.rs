//! The pool of slabs between a source and a sink. Taking a slab waits until a chunk has been dropped, which
//! bounds the memory of a run.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use thalweg_base::{ChunkBuilder, Packet, SlabHome};

/// A fixed number of circulating slab buffers.
///
/// The buffer returned last is taken first: its lines are most likely to be in a cache, and a short input
/// touches few buffers. Lists of descriptors circulate the same way.
#[derive(Clone, Debug)]
pub struct SlabPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity_bytes: usize,
    free: Mutex<Free>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Free {
    /// Existing buffers that are not in use.
    buffers: Vec<Vec<u8>>,
    /// Buffers that may still be allocated.
    unmade: usize,
    lists: Vec<Vec<Packet>>,
}

/// The most lists of descriptors that a pool keeps: 64 of 1600 packets are 6.5 MB.
const LISTS_MAX: usize = 64;

impl SlabPool {
    /// Makes a pool of `slabs` buffers of `capacity_bytes` each, which are allocated when first needed.
    pub fn new(slabs: usize, capacity_bytes: usize) -> Self {
        let free = Mutex::new(Free { unmade: slabs.max(1), ..Free::default() });
        Self { shared: Arc::new(Shared { capacity_bytes, free, returned: Condvar::new() }) }
    }

    /// A builder over a buffer of the pool; waits if all are in flight.
    pub fn builder(&self) -> ChunkBuilder {
        ChunkBuilder::from_home(self.take(), Arc::clone(&self.shared) as Arc<dyn SlabHome>)
    }

    fn take(&self) -> Vec<u8> {
        let mut free = self.shared.free.lock();
        loop {
            if let Some(buffer) = free.buffers.pop() {
                return buffer;
            }
            if free.unmade > 0 {
                free.unmade -= 1;
                drop(free);
                // The kernel zeroes it page by page, and only the pages that are used.
                return vec![0; self.shared.capacity_bytes];
            }
            self.shared.returned.wait(&mut free);
        }
    }
}

impl SlabHome for Shared {
    fn put(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock();
        if buffer.len() < self.capacity_bytes {
            free.unmade += 1;
        } else {
            free.buffers.push(buffer);
        }
        drop(free);
        self.returned.notify_one();
    }

    fn take_list(&self) -> Vec<Packet> {
        self.free.lock().lists.pop().unwrap_or_default()
    }

    fn put_list(&self, mut list: Vec<Packet>) {
        list.clear();
        let mut free = self.free.lock();
        // As many as there are chunks in flight; a farm may have more parts of chunks.
        if free.lists.len() < LISTS_MAX {
            free.lists.push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::LinkType;

    #[test]
    fn a_dropped_chunk_gives_its_buffer_back() {
        let pool = SlabPool::new(1, 512);
        for sequence in 0..3 {
            // With one buffer in the pool, the second round would wait for ever if the first kept it.
            let mut builder = pool.builder();
            builder.push(16, 8, 8, 0, LinkType::RawIp, 0, 0);
            let parts = builder.finish(sequence, 1, 0).split(3, |_| 1);
            drop(parts);
        }
        pool.builder().discard();
        drop(pool.builder().finish(3, 1, 0));
    }
}

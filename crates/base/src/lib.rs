//! What every room of the house shares: packets in chunks, the reasons a packet can be dropped for,
//! hashes that place a flow on a shard, prefixes, bounded tables, seeded chance, and how often a log repeats itself.
//!
//! The flow of data through Thalweg is a flow of [`Chunk`]s. A source cuts its input into chunks of
//! consecutive packets; the bytes of one chunk lie together in one [`Slab`], where the source put them,
//! and stay there until the sink has written them out. What is known *about* a packet lives in its
//! [`Packet`] descriptor, exactly one cache line, which moves between lists as the packet is scheduled,
//! split by shard and merged again. A stage sees at most [`BATCH_PACKETS`] of them at a time, as a
//! [`Batch`].
//!
//! Nothing in this crate knows a protocol, a thread, a file or a clock.

mod aged;
mod aged_sets;
mod chunk;
mod hash;
mod packet;
mod prefix;
mod rng;
mod slab;
mod throttle;
mod verdict;

pub use aged::Aged;
pub use aged_sets::AgedSets;
pub use chunk::{BATCH_PACKETS, Batch, CHUNK_PACKETS_DEFAULT, Chunk, ChunkBuilder, Origin, ShardIndex};
pub use hash::{mix64, symmetric_flow_hash};
pub use packet::{LinkType, NO_CLASS, NO_PORT, NO_SHARD, Packet, PacketFlags, UNKNOWN_PORT};
pub use prefix::{Address, IpPrefix, LengthOutOfRange, Prefix, PrefixTextError};
pub use rng::XorShift64Star;
pub use slab::{Slab, SlabPool};
pub use throttle::Throttle;
pub use verdict::DropReason;

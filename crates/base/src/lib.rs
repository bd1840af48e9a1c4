//! The types that every crate shares: packets in chunks, drop reasons, hashes that assign flows to shards,
//! prefixes, tables bounded by age, seeded randomness, limits for repeated log lines, ports to try, calls that
//! signals end, names from outside ([`Name`]), enums with a word for each value ([`words!`]), and structs of counters
//! ([`counters!`]).
//!
//! Data flows through Thalweg as [`Chunk`]s. A source cuts its input into chunks of consecutive packets. The
//! bytes of a chunk stay where the source put them, in one [`Slab`], until the sink has written them. A
//! [`Packet`] describes one packet: exactly one cache line, which moves between lists as packets are
//! scheduled, split by shard and merged again. A stage sees at most [`BATCH_PACKETS`] of them at a time, as a
//! [`Batch`].
//!
//! This crate has no thread, clock, file or socket, and no lock but that of the table of names. It reads no packet format, except that
//! [`Chunk::keep_origins`] reads IPv4 addresses. [`PacketFlags`], [`DropReason`] and [`Origin`] name facts of
//! IP and NAT here because stages of different crates share them.

mod aged;
mod aged_sets;
mod chunk;
mod counters;
mod exclusive;
mod free_ports;
mod hash;
mod interrupted;
mod memory;
mod name;
mod packet;
mod prefix;
mod rng;
mod slab;
mod throttle;
mod verdict;
mod words;

pub use aged::Aged;
pub use aged_sets::AgedSets;
pub use chunk::{
    BATCH_PACKETS, Batch, CHUNK_PACKETS_DEFAULT, Chunk, ChunkBuilder, Expected, Origin, PacketFate,
    PacketSample, PacketStart, Parse, ShardIndex, StartLink, Translated,
};
pub use exclusive::{Exclusion, Exclusive, OneThread};
pub use free_ports::free_port_candidates;
pub use hash::{mix64, symmetric_flow_hash};
pub use interrupted::uninterrupted;
pub use memory::{HUGE_PAGE, Refused, ZeroedMemory, prefer_huge_pages, prefetch, prefetch_all, prefetch_at};
pub use name::Name;
pub use packet::{LinkType, NO_CLASS, NO_PORT, NO_SHARD, Packet, PacketFlags, UNKNOWN_PORT};
pub use prefix::{Address, IpPrefix, LengthOutOfRange, Prefix, PrefixTextError};
pub use rng::XorShift64Star;
pub use slab::{Slab, SlabHome};
pub use throttle::Throttle;
pub use verdict::DropReason;

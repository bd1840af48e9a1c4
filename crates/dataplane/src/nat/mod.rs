//! NAT44: network address and port translation between an inside and an outside IPv4 network.
//!
//! It translates TCP, UDP, ICMP echo and the packets quoted by ICMP errors (RFC 3022), and all other protocols by
//! address alone, as RFC 4787 (UDP), RFC 5382 (TCP), RFC 5508 (ICMP) and RFC 7857 (updates) require. `docs/nat.md`
//! lists the decisions, requirement by requirement.
//!
//! [`Labeler`] decides per packet, without state, whether it is translated and by which shard; [`NatStage`] owns
//! the shards and translates chunks; [`NatShard`] owns the sessions and the public ports of one shard. A shard owns
//! a fixed slice of the ports of every public address, so both directions of a session belong to it and no shard
//! ever needs another's state. The only packets that need two shards are hairpins, from one inside host to another
//! through a public address: they wait until all other packets of their chunk are done (`hairpin.rs`).
//!
//! Several outside ports are as many NATs, each with its own public addresses and shards. The shards of all have one
//! row of numbers, so a packet's shard says which NAT translates it. A packet from outside belongs to the NAT that has
//! its destination; one from inside to that of the port by which its route leads, so the look-up comes first.
//!
//! Hosts may have public addresses of their own, which need no session (`one_to_one.rs`).
//!
//! Invariants:
//! - an inside endpoint has one public endpoint at a time on each outside port, and vice versa;
//! - results depend only on the sequence of packets and packet times given to each shard;
//! - no memory is allocated after construction, except one list of shards per chunk, the router's own ports and flows,
//!   and what a standby is told, all of which are bounded;
//! - exhaustion of any resource is a counted drop, and existing sessions continue;
//! - nothing in a packet panics: what cannot be translated is dropped with a reason.
//!
//! IPv6 hosts reach IPv4 hosts by the same sessions (`nat64`). Messages of FTP, SIP and PPTP, whose payloads name other
//! connections, are rewritten by choice (`help.rs`).
//!
//! Missing: ports of SCTP, sessions initiated from outside.

mod bare;
mod blocks;
mod calls;
mod config;
mod endpoint;
mod events;
mod hairpin;
mod help;
mod hosts;
mod label;
mod layout;
mod migrate;
mod nat64;
mod one_to_one;
mod own;
mod pools;
mod ports;
mod rewrite;
mod session;
mod shard;
mod stage;
mod subscribers;
#[doc(hidden)]
pub mod testing;
mod trial;

pub use config::{
    AddressPair, BlockAllocation, Filtering, HostLimits, Nat64Config, NatConfig, NatConfigError,
    NatException, NatGroup, NatProtocol, NatRefusal, NatTimeouts, OtherOutside, PortForward, PortSelection,
    SubscriberConfig,
};
pub(crate) use endpoint::End;
pub use events::{Happening, NatEvent, NatLogging, TOLD_AGAIN_S};
pub use hairpin::Judge;
pub use label::Labeler;
pub use layout::{group_shards, shard_group};
pub use migrate::NatMigration;
pub use nat64::Nat64Prefix;
#[doc(hidden)]
pub use nat64::testing::fuzz_one as fuzz_nat64;
pub use own::{OwnFlow, OwnPort};
pub use pools::PoolInfo;
pub(crate) use rewrite::rewrite_packet;
pub use session::SessionState;
pub use shard::{BareInfo, EndedBy, NatCounters, NatShard, SessionInfo};
pub use stage::{Cursor, NatStage};
pub use subscribers::BlockInfo;
pub use trial::Trial;

#[cfg(test)]
mod tests;

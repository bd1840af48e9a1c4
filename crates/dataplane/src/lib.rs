//! Packet stages, pure: each takes packets and changes them, and none has a thread, a file or a clock.
//!
//! A packet passes them in this order; the scope says what a model may do with each.
//!
//! | stage | module | scope |
//! |---|---|---|
//! | validate, find ports and VLANs, hash | [`ingress`], [`vlan`] | any batch |
//! | reverse path check | [`reverse_path`] | any batch |
//! | access lists, in and out | [`acl`] | any batch |
//! | class of service | [`classify`] | any batch |
//! | color and police, track fragments | [`police`], [`fragments`] | in order of arrival |
//! | order of service | [`schedule`] | one chunk |
//! | address and port translation | [`nat`] | per shard |
//! | look-up, TTL, MAC addresses | [`route`], [`lpm`] | any batch |
//! | counters | [`account`] | any batch |
//!
//! On a live port, packets that have passed wait for their turn in the queues of [`egress`], which belong to the
//! port and not to a chunk.
//!
//! Beside them stands what the router says for itself, one packet at a time: [`neighbor`] (ARP, Neighbor
//! Discovery), [`icmp`] (errors, echo), [`fragmentation`] of what is too long for the next link.

pub mod account;
pub mod acl;
pub mod classify;
pub mod egress;
pub mod fragmentation;
pub mod fragments;
pub mod icmp;
pub mod ingress;
pub mod ip_packet;
pub mod lpm;
pub mod nat;
pub mod neighbor;
pub mod police;
pub mod queens;
pub mod rate_limit;
pub mod reverse_path;
pub mod route;
pub mod schedule;
pub mod vlan;

#[cfg(test)]
mod test_support;

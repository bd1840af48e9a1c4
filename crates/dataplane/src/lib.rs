//! Packet stages, pure: each takes packets and changes them, without a thread, file, socket or clock. In this
//! order:
//!
//! | stage | module | scope |
//! |---|---|---|
//! | validate, find ports and VLANs, hash; reverse path check | [`ingress`], [`vlan`]; [`reverse_path`] | any batch |
//! | access lists, in and out; class | [`acl`]; [`classify`] | any batch |
//! | IPv6 prefixes, in and out | [`prefix_translation`] | any batch |
//! | color and police, track fragments | [`police`], [`fragments`] | in order of arrival |
//! | order of service | [`schedule`] | one chunk |
//! | address and port translation | [`nat`] | per shard |
//! | look-up, TTL, MAC addresses; segment sizes of TCP | [`route`], [`lpm`]; [`mss`] | any batch |
//! | connections between zones | [`firewall`] | per shard |
//! | what FTP, SIP and PPTP announce, at both of these | [`helpers`] | all shards |
//! | counters | [`account`] | any batch |
//!
//! Beside the stages: queues of live ports ([`egress`]), ARP and Neighbor Discovery ([`neighbor`]), ICMP
//! ([`icmp`]), health checks of gateways ([`gateway_check`]), virtual
//! routers ([`vrrp`]), their state at a [`standby`], IPv4 [`fragmentation`]. Nothing here depends on the execution model, interfaces or the configuration
//! file. Shards of NAT and of the firewall are in cells, for which the caller supplies locks if several threads share them.

pub mod account;
pub mod acl;
pub mod classify;
pub mod egress;
pub mod firewall;
pub mod fragmentation;
pub mod fragments;
pub mod gateway_check;
pub mod helpers;
pub mod icmp;
pub mod ingress;
pub mod ip_packet;
pub mod lpm;
pub mod mss;
pub mod nat;
pub mod neighbor;
pub mod police;
pub mod prefix_translation;
pub mod queens;
pub mod rate_limit;
mod records;
pub mod reverse_path;
pub mod route;
pub mod routing_rules;
pub mod schedule;
pub mod standby;
pub mod vlan;
pub mod vrrp;

#[cfg(test)]
mod test_support;

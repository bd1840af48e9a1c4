//! Byte formats: converts bytes to values and back. Nothing here opens a file or a socket, or knows what a
//! value is used for.
//!
//! **Packets**: a module for each header ([`ethernet`], [`vlan`], [`arp`], [`ipv4`], [`ipv6`], [`icmp`],
//! [`ndp`], [`udp`], [`tcp`], [`vrrp`]), all of one form. A *view* (`Ipv4View`) is made from bytes and checked once;
//! its accessors cannot fail. A *repr* (`Ipv4Repr`) is a header or message to encode, which always succeeds.
//! One row per field defines both. The stages that every packet passes (ingress, flow parsing, rewriting)
//! load their fields themselves; property tests compare them with the views. [`checksum`] has the Internet
//! checksum and its update; [`checksum_offload`] completes what senders leave to hardware.
//!
//! **Messages and files**: [`bgp`] (messages, the rules of each path attribute), [`mrt`], [`netflow`]
//! (NetFlow 5 and 9, IPFIX), [`sflow`], [`snmp`], [`pcap`], [`pcapng`], [`trace`]; [`standby`]: what a router tells the one that
//! would replace it; [`rtr`]: what a cache of the RPKI tells a router; [`application`]: names of applications, their protocols and ports. Of what flows begin with: [`tls`]
//! (ClientHello), [`quic`] (Initial packets), [`http`] (the host), [`dns`].
//!
//! A format that two crates need is defined here once.

pub mod application;
pub mod arp;
pub mod bgp;
pub mod checksum;
pub mod checksum_offload;
pub mod dns;
mod ether_type;
pub mod ethernet;
mod header;
pub mod http;
pub mod icmp;
pub mod ip_protocol;
pub mod ipv4;
pub mod ipv6;
mod mac_addr;
mod malformed;
pub mod mrt;
pub mod ndp;
pub mod netflow;
pub mod pcap;
pub mod pcapng;
pub mod quic;
pub mod rtr;
pub mod sflow;
pub mod snmp;
pub mod standby;
pub mod tcp;
pub mod testing;
pub mod tls;
pub mod trace;
pub mod udp;
pub mod vlan;
pub mod vrrp;

pub use ether_type::EtherType;
pub use mac_addr::{MacAddr, MacAddrError};
pub use malformed::Malformed;

//! Byte formats, pure: what packets and files look like, without reading any.
//!
//! **Packets**: a module for each header ([`ethernet`], [`vlan`], [`arp`], [`ipv4`], [`ipv6`], [`icmp`], [`ndp`], [`udp`],
//! [`tcp`]), all of one shape. A *view* (`Ipv4View`) is made from bytes and checked once; its accessors cannot fail. A *repr*
//! (`Ipv4Repr`) is a header or message to be written, and always encodes. One row per field gives both.
//! Sums are in [`checksum`] alone ([`checksum_offload`] finishes what senders leave to hardware), numbers in [`ip_protocol`] and [`EtherType`]. The stages that every packet takes (ingress,
//! flow parsing, rewriting) load their fields themselves, all checks at once; property tests hold them to the views.
//!
//! **Messages and files**: [`bgp`], [`mrt`], [`netflow`], [`pcap`], [`pcapng`], [`trace`].

pub mod application;
pub mod arp;
pub mod bgp;
pub mod checksum;
pub mod checksum_offload;
mod ether_type;
pub mod ethernet;
mod header;
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
pub mod tcp;
pub mod testing;
pub mod trace;
pub mod udp;
pub mod vlan;

pub use ether_type::EtherType;
pub use mac_addr::{MacAddr, MacAddrError};
pub use malformed::Malformed;

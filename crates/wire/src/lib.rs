//! Byte formats, pure: what packets and files look like, without reading any.

pub mod application;
pub mod bgp;
pub mod checksum;
pub mod ethernet;
pub mod mrt;
pub mod netflow;
pub mod pcap;
pub mod pcapng;
pub mod trace;

//! Tests of the neighbor table, with what they share; etherparse, which shares no code with the table, also reads
//! the frames.

mod arp;
mod capture;
mod hostile;
mod lifecycle;
mod model;
mod nd;

use super::frame::Frame;
use super::nd::Received;
use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use thalweg_wire::{MacAddr, ndp};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const START: u64 = 1000 * SECOND;

const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x10]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x11]);
const OUR4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 16);
const OUR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
const HOST_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x10);

type Output = NeighborOutput<Vec<u8>>;
type Table = NeighborTable<Vec<u8>>;

fn identity() -> PortIdentity {
    PortIdentity::new(OUR_MAC, vec![(OUR4.into(), 24), (OUR6.into(), 64)], 1500)
}

/// A second port, with a VLAN.
fn tagged() -> PortIdentity {
    let addresses = vec![(Ipv4Addr::new(10, 0, 1, 1).into(), 24)];
    PortIdentity { vlan: Some(7), ..PortIdentity::new(OUR_MAC, addresses, 1500) }
}

/// A table of both ports whose announcements are done.
fn table_of(config: NeighborConfig) -> Table {
    let mut table = Table::new(config, vec![identity(), tagged()], START - 10 * SECOND);
    table.handle_timer(START - 5 * SECOND);
    outputs(&mut table);
    table
}

fn table() -> Table {
    table_of(NeighborConfig::default())
}

fn outputs(table: &mut Table) -> Vec<Output> {
    table.assert_consistent();
    std::iter::from_fn(|| table.poll_output()).collect()
}

/// The only output, which must be a frame.
fn only_frame(table: &mut Table) -> Vec<u8> {
    match &outputs(table)[..] {
        [Output::Send { frame, .. }] => frame.clone(),
        others => panic!("one frame was expected: {others:?}"),
    }
}

/// Advances time as the caller's loop does; returns the outputs.
fn run_until(table: &mut Table, until_ns: u64) -> Vec<Output> {
    let mut all = Vec::new();
    while let Some(deadline) = table.next_deadline().filter(|&deadline| deadline <= until_ns) {
        table.handle_timer(deadline);
        all.extend(outputs(table));
        assert!(table.next_deadline().is_none_or(|next| next > deadline), "time does not go on");
    }
    all
}

fn resolved(address: impl Into<IpAddr>, mac: MacAddr) -> Output {
    Output::Resolved { port: 0, address: address.into(), mac }
}

fn changed(address: impl Into<IpAddr>, mac: MacAddr) -> Output {
    Output::Changed { port: 0, address: address.into(), mac }
}

fn lost(address: impl Into<IpAddr>) -> Output {
    Output::Lost { port: 0, address: address.into() }
}

fn forward(address: impl Into<IpAddr>, mac: MacAddr, packet: &[u8]) -> Output {
    Output::Forward { port: 0, address: address.into(), mac, packet: packet.to_vec() }
}

fn unreachable(address: impl Into<IpAddr>, packet: &[u8], why: Unreachable) -> Output {
    Output::Unreachable { port: 0, address: address.into(), packet: packet.to_vec(), why }
}

fn state(table: &Table, address: impl Into<IpAddr>) -> Option<NeighborState> {
    let address = address.into();
    table.view().find(|view| view.port == 0 && view.address == address).map(|view| view.state)
}

/// ARP for port 0, written by hand: operation, sender, target.
fn arp(operation: u8, sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr), to: MacAddr) -> Vec<u8> {
    let mut frame = [to.0, sender.0.0].concat();
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, operation]);
    frame.extend(sender.0.0);
    frame.extend(sender.1.octets());
    frame.extend(target.0.0);
    frame.extend(target.1.octets());
    frame.resize(60, 0);
    frame
}

fn arp_request(sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    arp(1, sender, (MacAddr::ZERO, target), MacAddr::BROADCAST)
}

fn arp_reply(sender: (MacAddr, Ipv4Addr)) -> Vec<u8> {
    arp(2, sender, (OUR_MAC, OUR4), OUR_MAC)
}

/// An IPv6 frame around an ICMPv6 message, with its checksum corrected.
fn icmp6(
    macs: (MacAddr, MacAddr),
    addresses: (Ipv6Addr, Ipv6Addr),
    hop_limit: u8,
    message: &[u8],
) -> Vec<u8> {
    let mut message = message.to_vec();
    message[2..4].fill(0);
    let icmp = etherparse::Icmpv6Type::Unknown {
        type_u8: message[0],
        code_u8: message[1],
        bytes5to8: message.get(4..8).map_or([0; 4], |b| [b[0], b[1], b[2], b[3]]),
    };
    let payload = message.get(8..).unwrap_or_default();
    let (source, destination) = (addresses.0.octets(), addresses.1.octets());
    let checksum = icmp.calc_checksum(source, destination, payload).expect("it is short");
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = [macs.1.0, macs.0.0].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, hop_limit]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(message);
    frame
}

/// A solicitation or advertisement: type, flags, target, an option with a MAC address.
fn nd_message(kind: u8, flags: u8, target: Ipv6Addr, option: Option<(u8, MacAddr)>) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    if let Some((kind, mac)) = option {
        message.extend([kind, 1]);
        message.extend(mac.0);
    }
    message
}

fn group_of(address: Ipv6Addr) -> (MacAddr, Ipv6Addr) {
    let group = ndp::solicited_node(address);
    (ndp::group_mac(group), group)
}

/// A host asks for an address of ours.
fn solicitation(from: (MacAddr, Ipv6Addr), target: Ipv6Addr) -> Vec<u8> {
    let (mac, group) = group_of(target);
    icmp6((from.0, mac), (from.1, group), 255, &nd_message(135, 0, target, Some((1, from.0))))
}

/// A host answers us.
fn advertisement(from: (MacAddr, Ipv6Addr), flags: u8) -> Vec<u8> {
    icmp6((from.0, OUR_MAC), (from.1, OUR6), 255, &nd_message(136, flags, from.1, Some((2, from.0))))
}

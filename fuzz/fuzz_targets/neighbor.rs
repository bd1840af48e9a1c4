//! The neighbor table between an attacker on the link and a caller: raw frames, frames with corrected checksums
//! and lengths, packets to resolve, ports that come and go, time that passes.
//!
//! Bounds hold, packets are neither lost nor duplicated, the outputs agree with the table, and deadlines advance.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_dataplane::neighbor::{NeighborConfig, NeighborOutput, NeighborTable, PortIdentity};
use thalweg_wire::MacAddr;
use thalweg_wire::checksum::{finish, sum};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OUR4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OUR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn identity(vlan: u8) -> PortIdentity {
    let mut port = PortIdentity::new(MAC, vec![(OUR4.into(), 28), (OUR6.into(), 64)], 1500);
    port.vlan = Some(u16::from(vlan)).filter(|&vlan| vlan != 0);
    port.router_advertisements = vlan & 1 == 0;
    port
}

/// Sixteen hosts of each family, so that steps often concern the same host.
fn host(byte: u8) -> IpAddr {
    let n = byte & 15;
    if byte & 16 == 0 {
        Ipv4Addr::new(10, 0, 0, n).into()
    } else {
        Ipv6Addr::from(u128::from(OUR6) - 1 + u128::from(n)).into()
    }
}

/// An ARP frame about two hosts; the input gives the rest.
fn arp(body: &[u8]) -> Vec<u8> {
    let byte = |at: usize| body.get(at).copied().unwrap_or(0);
    let mut frame = vec![0xff; 6];
    if byte(0) & 1 == 1 {
        frame.copy_from_slice(&MAC.0);
    }
    let mac = [2, 0, 0, 0, 1, byte(1) & 3];
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + (byte(0) >> 1 & 1)]);
    frame.extend(mac);
    frame.extend([10, 0, 0, byte(2) & 15]);
    frame.extend(MAC.0);
    frame.extend([10, 0, 0, byte(3) & 15]);
    frame
}

/// A message of Neighbor Discovery with a right checksum; the input gives everything behind the first fields.
fn nd(body: &[u8]) -> Vec<u8> {
    let byte = |at: usize| body.get(at).copied().unwrap_or(0);
    let address = |byte: u8| match host(byte | 16) {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => [0; 16],
    };
    let mut message = vec![133 + (byte(0) & 3), 0, 0, 0, byte(1), 0, 0, 0];
    message.extend(address(byte(2)));
    message.extend(body.get(6..).unwrap_or_default());
    let (source, destination) = (address(byte(3)), address(byte(4)));
    let pseudo = message.len() as u32 + 58;
    let checksum = finish(sum(&message, sum(&destination, sum(&source, pseudo))));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = MAC.0.to_vec();
    frame.extend([2, 0, 0, 0, 1, byte(5) & 3, 0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([58, 255]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(message);
    frame
}

fn settle(table: &mut NeighborTable, told: &mut BTreeMap<(u16, IpAddr), MacAddr>) {
    table.assert_consistent();
    while let Some(output) = table.poll_output() {
        match output {
            NeighborOutput::Resolved { port, address, mac } => {
                assert_eq!(told.insert((port, address), mac), None);
            }
            NeighborOutput::Changed { port, address, mac } => {
                assert!(told.insert((port, address), mac).is_some_and(|before| before != mac));
            }
            NeighborOutput::Lost { port, address } => assert!(told.remove(&(port, address)).is_some()),
            NeighborOutput::Silent { port, address } => assert!(!told.contains_key(&(port, address))),
            NeighborOutput::Send { frame, .. } => assert!((60..1600).contains(&frame.len())),
            NeighborOutput::Forward { .. } | NeighborOutput::Unreachable { .. } => {}
        }
    }
    let known = table.view().filter_map(|view| view.mac.map(|mac| ((view.port, view.address), mac)));
    assert_eq!(&known.collect::<BTreeMap<_, _>>(), told);
}

fuzz_target!(|input: &[u8]| {
    let config = NeighborConfig {
        entries_max: 10,
        entries_per_port_max: 8,
        unresolved_max: 6,
        unresolved_per_port_max: 4,
        wanted_max: 4,
        queue_bytes_max: 500,
        ..NeighborConfig::default()
    };
    let mut now = 1_000_000_000_000;
    let mut table: NeighborTable = NeighborTable::new(config, vec![identity(0), identity(7)], now);
    let mut told = BTreeMap::new();
    let mut rest = input;
    while let [what, place, length, tail @ ..] = rest {
        let (body, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let port = u16::from(place >> 6);
        let address = host(*place);
        match what & 15 {
            0 | 1 => drop(table.handle_arp(port, &arp(body), now)),
            2 => drop(table.handle_arp(port, body, now)),
            3 | 4 => drop(table.handle_nd(port, &nd(body), now)),
            5 => drop(table.handle_nd(port, body, now)),
            6 | 7 => table.resolve(port, address, body.to_vec(), now),
            8 => table.used(port, address, now),
            9 => drop(table.want(port, address, now)),
            10 => table.unwant(port, address),
            11 => drop(table.set_static(port, address, Some(MacAddr([2, 0, 0, 0, 2, what >> 4])), now)),
            12 => drop(table.set_static(port, address, None, now)),
            13 => table.set_port(port, (what & 16 == 0).then(|| identity(*length)), now),
            _ => {
                let until = now + u64::from(*length) * 100_000_000;
                while let Some(deadline) = table.next_deadline().filter(|&deadline| deadline <= until) {
                    table.handle_timer(deadline);
                    settle(&mut table, &mut told);
                    assert!(table.next_deadline().is_none_or(|next| next > deadline), "time does not go on");
                }
                now = until;
            }
        }
        settle(&mut table, &mut told);
    }
});

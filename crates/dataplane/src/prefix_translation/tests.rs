use super::*;
use crate::ingress::Ingress;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv6Addr};
use thalweg_base::{Chunk, ChunkBuilder, LinkType};
use thalweg_wire::testing;

const LAN: u16 = 1;
const WAN: u16 = 0;

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn address(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().into()
}

fn pair(inside: &str, outside: &str, port: u16) -> PrefixPair {
    PrefixPair { inside: net(inside), outside: net(outside), port }
}

/// A packet after validation, alone in a chunk.
fn arrives(port: u16, packet: &[u8]) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(packet.len() + 64);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + packet.len()].copy_from_slice(packet);
    builder.push(at, packet.len(), packet.len() as u32, 0, LinkType::RawIp, port, 0);
    let mut chunk = builder.finish(0, 1, 0);
    Ingress { drop_martians: true, ..Ingress::default() }.process(&mut chunk.batch(0));
    assert_eq!(chunk.packets()[0].drop_reason(), None);
    chunk
}

fn goes_in(translation: &PrefixTranslation, port: u16, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut chunk = arrives(port, packet);
    translation.process_in(&mut chunk.batch(0));
    chunk.packets()[0].drop_reason().map_or_else(|| Ok(chunk.frame(0).to_vec()), Err)
}

fn goes_out(translation: &PrefixTranslation, port: u16, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut chunk = arrives(LAN, packet);
    chunk.packets_mut()[0].port_out = port;
    translation.process_out(&mut chunk.batch(0));
    chunk.packets()[0].drop_reason().map_or_else(|| Ok(chunk.frame(0).to_vec()), Err)
}

fn udp(from: &str, to: &str) -> Vec<u8> {
    testing::udp(socket(from), socket(to), b"payload")
}

fn socket(text: &str) -> std::net::SocketAddr {
    text.parse().unwrap()
}

/// With the answer's destination of erratum 3033.
#[test]
fn rfc6296_3_6_example_of_48_bits() {
    let translation = PrefixTranslation::new(&[pair("fd01:203:405::/48", "2001:db8:1::/48", WAN)]);
    let out = goes_out(&translation, WAN, &udp("[fd01:203:405:1::1234]:1", "[2001:db8:ffff::1]:2")).unwrap();
    assert_eq!(out, udp("[2001:db8:1:d550::1234]:1", "[2001:db8:ffff::1]:2"), "the checksum holds");
    let into = udp("[2001:db8:ffff::1]:2", "[2001:db8:1:d550::1234]:1");
    assert_eq!(
        goes_in(&translation, WAN, &into).unwrap(),
        udp("[2001:db8:ffff::1]:2", "[fd01:203:405:1::1234]:1")
    );
    let by_another = udp("[fd01:203:405:1::1234]:1", "[2001:db8:ffff::1]:2");
    assert_eq!(goes_out(&translation, 7, &by_another).unwrap(), by_another, "another port");
}

#[test]
fn addresses_without_a_counterpart_are_dropped() {
    let short = PrefixTranslation::new(&[pair("fd01:203:405::/48", "2001:db8:1::/48", WAN)]);
    let long = PrefixTranslation::new(&[pair("fd01:203:405:6::/64", "2001:db8:1:2::/64", WAN)]);
    let refused = Err(DropReason::PrefixAddress);
    let to = "[2001:db8:ffff::1]:2";
    assert_eq!(goes_out(&short, WAN, &udp("[fd01:203:405:ffff::1]:1", to)), refused);
    assert_eq!(goes_out(&long, WAN, &udp("[fd01:203:405:6::]:1", to)), refused, "no interface identifier");
    assert!(goes_out(&short, WAN, &udp("[fd01:203:405:1::]:1", to)).is_ok());
    assert_eq!(goes_out(&long, WAN, &udp("[fd01:203:405:6:ffff:ffff:ffff:ffff]:1", to)), refused);
    assert_eq!(goes_in(&long, WAN, &udp(to, "[2001:db8:1:2:ffff:ffff:ffff:ffff]:1")), refused);
    assert!(goes_out(&long, WAN, &udp("[fd01:203:405:6:ffff:ffff:ffff:1]:1", to)).is_ok());
}

#[test]
fn each_outside_port_has_its_prefix() {
    let inside = "fd00:0:0:1::/64";
    let pairs = [pair(inside, "2001:db8:a::/64", WAN), pair(inside, "2001:db8:b::/64", 2)];
    let translation = PrefixTranslation::new(&pairs);
    for (port, prefix) in [(WAN, "2001:db8:a::/64"), (2, "2001:db8:b::/64")] {
        let packet = udp("[fd00:0:0:1::9]:1", "[2001:db8:ffff::1]:2");
        let out = goes_out(&translation, port, &packet).unwrap();
        let source = u128::from_be_bytes(out[8..24].try_into().unwrap());
        assert!(net(prefix).contains(&Ipv6Addr::from(source)));
        let back = testing::udp(socket("[2001:db8:ffff::1]:2"), (Ipv6Addr::from(source), 1), b"x");
        let into = goes_in(&translation, port, &back).unwrap();
        assert_eq!(into[24..40], address("fd00:0:0:1::9").to_be_bytes());
    }
}

#[test]
fn a_host_reaches_another_by_its_outside_address() {
    let translation = PrefixTranslation::new(&[pair("fd01:203:405::/48", "2001:db8:1::/48", WAN)]);
    let to = udp("[fd01:203:405:1::7]:1", "[2001:db8:1:d550::1234]:2");
    let after = goes_in(&translation, LAN, &to).unwrap();
    assert_eq!(after, udp("[2001:db8:1:d550::7]:1", "[fd01:203:405:1::1234]:2"));
    let answer = udp("[fd01:203:405:1::1234]:2", "[2001:db8:1:d550::7]:1");
    let back = goes_in(&translation, LAN, &answer).unwrap();
    assert_eq!(back, udp("[2001:db8:1:d550::1234]:2", "[fd01:203:405:1::7]:1"));
}

#[test]
fn both_directions_of_a_flow_have_one_hash() {
    let translation = PrefixTranslation::new(&[pair("fd01:203:405::/48", "2001:db8:1::/48", WAN)]);
    let out = arrives(LAN, &udp("[fd01:203:405:1::1234]:1", "[2001:db8:ffff::1]:2"));
    let mut into = arrives(WAN, &udp("[2001:db8:ffff::1]:2", "[2001:db8:1:d550::1234]:1"));
    translation.process_in(&mut into.batch(0));
    assert_eq!(out.packets()[0].flow_hash, into.packets()[0].flow_hash);
}

#[test]
fn errors_quote_what_their_receiver_has_sent() {
    let translation = PrefixTranslation::new(&[pair("fd01:203:405::/48", "2001:db8:1::/48", WAN)]);
    let error = |from: &str, to: &str, quote: &[u8]| {
        let [from, to] = [from, to].map(|text| IpAddr::V6(text.parse().unwrap()));
        testing::icmp(from, to, 3, [0; 4], quote)
    };
    let (inside, outside) = ("fd01:203:405:1::1234", "2001:db8:1:d550::1234");
    let sent = |from: &str| udp(&format!("[{from}]:1"), "[2001:db8:ffff::1]:2");
    let into = goes_in(&translation, WAN, &error("2001:db8:9::1", outside, &sent(outside))).unwrap();
    assert_eq!(into, error("2001:db8:9::1", inside, &sent(inside)));
    let got = |to: &str| udp("[2001:db8:ffff::1]:2", &format!("[{to}]:1"));
    let out = goes_out(&translation, WAN, &error(inside, "2001:db8:ffff::1", &got(inside))).unwrap();
    assert_eq!(out, error(outside, "2001:db8:ffff::1", &got(outside)));
}

proptest! {
    #[test]
    fn what_goes_out_comes_back_and_sums_stay(
        length in 16u8..=64, inside: u128, outside: u128, address: u128, other: u128,
    ) {
        let cut = |address: u128| Ipv6Net::new(address.into(), length).unwrap().trunc();
        let (inside, outside) = (cut(inside), cut(outside));
        let [out, into] = [Replacement::new(inside, outside), Replacement::new(outside, inside)];
        let address = out.from | address & !out.mask;
        prop_assert!(out.concerns(address));
        prop_assert_eq!(out.concerns(other), inside.contains(&Ipv6Addr::from(other)));
        if let Some(new) = out.of(address) {
            prop_assert!(outside.contains(&Ipv6Addr::from(new)));
            let sums_agree = sum(new) % 0xffff == sum(address) % 0xffff;
            prop_assert!(sums_agree, "one's complement has two zeros");
            prop_assert_eq!(into.of(new), Some(address));
        }
    }
}

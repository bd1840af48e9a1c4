//! The firewall with any packets: nothing panics, every packet has one fate, the table keeps its bounds, and groups of
//! shards one after the other decide as all of them together.
//!
//! The input is a row of packets: a byte with the port of arrival and of departure, seconds to wait, and whether the
//! packet before comes back instead; a byte with its length; the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, OneThread, Packet};
use thalweg_dataplane::acl::{Action, Rule};
use thalweg_dataplane::firewall::{
    FirewallConfig, FirewallRules, FirewallStage, PacketState, Policy, StateTimeouts, ZoneRule, state_hash,
};
use thalweg_dataplane::fragments::FragmentTracker;
use thalweg_dataplane::helpers::Helpers;
use thalweg_dataplane::ingress::Ingress;

const SHARDS: u16 = 4;
const STATES_MAX: u32 = 8;

fn config() -> FirewallConfig {
    let rule = |action, from: &[u8], states: &[PacketState]| ZoneRule {
        rule: Rule { protocols: vec![17], ..Rule::all(action) },
        from: from.to_vec(),
        to: Vec::new(),
        states: states.to_vec(),
        limit: None,
        logs: true,
    };
    FirewallConfig {
        zones: vec![1, 2, 3],
        outside: vec![2],
        policy: Policy::OutgoingOnly,
        rules: vec![
            rule(Action::Reject, &[3], &[]),
            rule(Action::Permit, &[3, 2], &[PacketState::New, PacketState::Invalid]),
        ],
        states_max: STATES_MAX,
        half_open_max: Some(3),
        checks_windows: true,
        picks_up: true,
        timeouts: StateTimeouts { udp_s: 3, ..StateTimeouts::DEFAULT },
        helpers: Helpers::default(),
    }
}

/// The packet as it would come back, as far as addresses and ports tell.
fn reversed(packet: &[u8]) -> Vec<u8> {
    let mut back = packet.to_vec();
    let (at, bytes) = if packet.first().is_some_and(|first| first >> 4 == 6) { (8, 16) } else { (12, 4) };
    for end in [(at, bytes), (at + 2 * bytes, 2)] {
        let (at, bytes) = end;
        if let Some(both) = back.get_mut(at..at + 2 * bytes) {
            both.rotate_left(bytes);
        }
    }
    back
}

fn chunk(packet: &[u8], ports: (u16, u16), now_ns: u64, fragments: &mut FragmentTracker) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(packet.len() + 2 * ChunkBuilder::HEADROOM);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + packet.len()].copy_from_slice(packet);
    builder.push(at, packet.len(), packet.len() as u32, now_ns, LinkType::RawIp, ports.0, 0);
    let mut chunk = builder.finish(0, 1, now_ns);
    Ingress { drop_martians: true, ..Ingress::default() }.process(&mut chunk.batch(0));
    fragments.process(&mut chunk, true);
    let mut batch = chunk.batch(0);
    for i in 0..batch.len() {
        let (packet, l3) = batch.packet_and_l3(i);
        packet.shard = state_hash(packet, l3) as u16 & (SHARDS - 1);
        packet.port_out = ports.1;
    }
    chunk
}

fn run(mut input: &[u8]) {
    let config = config();
    let Ok(rules) = FirewallRules::compile(&config, 0) else { panic!("the rules are few") };
    let new = || FirewallStage::<OneThread>::new(&config, SHARDS, 7);
    let (whole, parts) = (new(), new());
    let counts = [rules.counts(), rules.counts()];
    let mut trackers = [FragmentTracker::default(), FragmentTracker::default()];
    let (mut now_ns, mut last) = (1_000_000_000_000u64, Vec::new());
    while let [how, length, rest @ ..] = input {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        input = rest;
        let packet = if how & 0x80 != 0 { reversed(&last) } else { bytes.to_vec() };
        now_ns += u64::from(how >> 4 & 7) * 1_000_000_000;
        let ports = (u16::from(how & 3), u16::from(how >> 2 & 3));
        let mut all = chunk(&packet, ports, now_ns, &mut trackers[0]);
        let before = all.packets()[0].drop_reason();
        let tried = whole.try_packet(&rules, &mut chunk(&packet, ports, now_ns, &mut trackers[0].clone()), now_ns);
        whole.run_groups(&rules, &mut all, 0..1, 1, &counts[0]);
        let mut split = chunk(&packet, ports, now_ns, &mut trackers[1]);
        for group in 0..2 {
            parts.run_groups(&rules, &mut split, group..group + 1, 2, &counts[1]);
        }
        let fate = |chunk: &Chunk| chunk.packets().first().and_then(Packet::drop_reason);
        assert_eq!(fate(&all), fate(&split));
        assert!(before.is_none() || fate(&all) == before || before == Some(DropReason::MtuExceeded));
        assert!(before.is_none() || tried.is_none());
        assert_eq!(whole.counters(), parts.counters());
        assert!(whole.counters().states_active <= u64::from(STATES_MAX));
        last = packet;
    }
    let counted = |place: usize| counts[place].all().iter().map(|rule| rule.packets).sum::<u64>();
    assert_eq!(counted(0), counted(1));
    whole.advance(u64::MAX);
    assert_eq!(whole.counters().states_active, 0);
    whole.hand_out_events(&mut |_| ());
}

fuzz_target!(|input: &[u8]| run(input));

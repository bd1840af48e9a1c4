//! From frame to flow facts, in memory.
//!
//! `cargo bench -p thalweg-flow --bench parse`. Each sample gets 16,000 fresh frames of 64 bytes in chunks of 1600 (1 MB),
//! laid out before the clock starts: TCP and UDP at random.

use divan::Bencher;
use divan::counter::ItemsCount;
use thalweg_base::{Chunk, ChunkBuilder, LinkType, XorShift64Star};
use thalweg_flow::application::look;
use thalweg_flow::parse::{ParseOptions, parse};
use thalweg_wire::{EtherType, testing};

const CHUNKS: usize = 10;
const CHUNK_PACKETS: usize = 1600;

/// The headers before the IP packet.
#[derive(Clone, Copy, Debug)]
enum Front {
    Bare,
    Vlan,
    Mpls,
}

fn chunks(front: Front, version: u8) -> Vec<Chunk> {
    let mut rng = XorShift64Star::new(7);
    (0..CHUNKS)
        .map(|sequence| {
            let mut builder = ChunkBuilder::with_capacity(CHUNK_PACKETS * 192);
            for _ in 0..CHUNK_PACKETS {
                let frame = frame(front, version, rng.next_u64());
                let at = builder.next_frame_offset();
                builder.buffer_mut()[at..at + frame.len()].copy_from_slice(&frame);
                builder.push(at, frame.len(), frame.len() as u32, 0, LinkType::Ethernet, 0, 0);
            }
            builder.finish(sequence as u64, 1, 0)
        })
        .collect()
}

fn frame(front: Front, version: u8, random: u64) -> Vec<u8> {
    let protocol = if random & 1 == 0 { 6 } else { 17 };
    let segment = [random.to_be_bytes(), [0x50; 8], [0; 8]].concat();
    let packet = match version {
        4 => testing::ip([10, 0, 0, 1], [10, 0, 0, 2], protocol, &segment),
        _ => testing::ip([0x2020u16; 8], [0x2020u16; 8], protocol, &segment),
    };
    let ether_type = EtherType::of_packet(&packet);
    let header = match front {
        Front::Bare => testing::ethernet_header(&[], ether_type),
        Front::Vlan => testing::ethernet_header(&[7], ether_type),
        Front::Mpls => {
            [testing::ethernet_header(&[], EtherType::MPLS), vec![0x00, 0x01, 0x01, 0x40]].concat()
        }
    };
    [header, packet].concat()
}

fn measure(bencher: Bencher<'_, '_>, front: Front, version: u8, options: ParseOptions) {
    bencher
        .counter(ItemsCount::new(CHUNKS * CHUNK_PACKETS))
        .with_inputs(|| chunks(front, version))
        .bench_local_refs(|chunks| {
            for chunk in chunks {
                for k in 0..chunk.batch_count() {
                    for (packet, frame) in chunk.batch(k).frames() {
                        parse(packet, frame, &options);
                    }
                }
            }
        });
}

#[divan::bench]
fn ipv4(bencher: Bencher<'_, '_>) {
    measure(bencher, Front::Bare, 4, ParseOptions { tunnels: false });
}

#[divan::bench]
fn ipv4_tunnels_asked_for(bencher: Bencher<'_, '_>) {
    measure(bencher, Front::Bare, 4, ParseOptions { tunnels: true });
}

#[divan::bench]
fn ipv4_vlan(bencher: Bencher<'_, '_>) {
    measure(bencher, Front::Vlan, 4, ParseOptions { tunnels: false });
}

#[divan::bench]
fn ipv4_mpls(bencher: Bencher<'_, '_>) {
    measure(bencher, Front::Mpls, 4, ParseOptions { tunnels: false });
}

/// Parsing, and classifying payloads of 4 bytes (TCP) and 16 (UDP), which match no application.
#[divan::bench]
fn ipv4_payloads_looked_at(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(CHUNKS * CHUNK_PACKETS))
        .with_inputs(|| chunks(Front::Bare, 4))
        .bench_local_refs(|chunks| {
            for chunk in chunks {
                for k in 0..chunk.batch_count() {
                    for (packet, frame) in chunk.batch(k).frames() {
                        parse(packet, frame, &ParseOptions::default());
                    }
                    for (packet, frame) in chunk.batch(k).frames() {
                        look(packet, frame);
                    }
                }
            }
        });
}

#[divan::bench]
fn ipv6(bencher: Bencher<'_, '_>) {
    measure(bencher, Front::Bare, 6, ParseOptions { tunnels: false });
}

fn main() {
    divan::main();
}

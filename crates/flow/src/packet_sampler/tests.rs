use super::*;
use crate::parse::{ParseOptions, parse};
use thalweg_base::{Chunk, ChunkBuilder};
use thalweg_wire::{checksum, testing};

/// Parsed frames of Ethernet, those with a length of segments merged.
fn chunk_of(frames: &[(Vec<u8>, Option<u16>)]) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(1 << 16);
    for (frame, segment_bytes) in frames {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
        let length = u32::try_from(frame.len()).unwrap();
        builder.push(at, frame.len(), length, 0, LinkType::Ethernet, 0, 0);
        if let Some(segment_bytes) = segment_bytes {
            builder.merge_last(HEADERS, *segment_bytes);
        }
    }
    let mut chunk = builder.finish(0, 1, 0);
    for (packet, frame) in chunk.whole().0.frames() {
        parse(packet, frame, &ParseOptions::default());
    }
    chunk
}

const HEADERS: u8 = 14 + 20 + 8;

fn udp(payload: usize) -> Vec<u8> {
    testing::frame(&testing::udp(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2), &vec![7; payload]))
}

fn sampler(rate: u32) -> PacketSampler {
    PacketSampler::new(PacketSampling { rate, ..PacketSampling::default() }, 1, 0)
}

fn samples(sampler: &mut PacketSampler, chunk: &mut Chunk) -> Vec<PacketSample> {
    let mut all = Vec::new();
    let mut take = |sample| all.push(sample);
    chunk.whole().0.frames().for_each(|(packet, frame)| sampler.pass(packet, frame, &mut take));
    all
}

#[test]
fn skips_have_the_mean_of_their_rate() {
    let mut each = sampler(1);
    assert!((0..1000).all(|_| each.skip() == 0), "one in one is each packet");
    for rate in [2, 10, 1000] {
        let mut sampler = sampler(rate);
        let count = 100_000;
        let sum: u64 = (0..count).map(|_| sampler.skip() + 1).sum();
        let mean = sum as f64 / f64::from(count);
        // Five standard deviations: a geometric distribution has that of its mean.
        let bound = 5.0 * f64::from(rate) / f64::from(count).sqrt();
        assert!((mean - f64::from(rate)).abs() < bound, "{rate}: {mean}");
    }
}

#[test]
fn a_merged_frame_is_the_packets_on_the_wire() {
    let mut sampler = sampler(1);
    let all = samples(&mut sampler, &mut chunk_of(&[(udp(250), Some(100)), (udp(10), None)]));
    assert_eq!(all.iter().map(|sampled| sampled.pool).sum::<u32>(), 4);
    assert_eq!(all.iter().map(|sampled| sampled.index).collect::<Vec<_>>(), [0, 0, 0, 1]);
    let headers: Vec<&PacketStart> = all.iter().map(|sampled| sampled.start.as_ref().unwrap()).collect();
    let bytes: Vec<u32> = headers.iter().map(|header| header.wire_bytes).collect();
    assert_eq!(bytes, [142, 142, 92, 52]);
    for header in headers {
        let ip = &header.bytes[14..34];
        assert_eq!(u32::from(u16::from_be_bytes([ip[2], ip[3]])) + 14, header.wire_bytes);
        assert_eq!(checksum::finish(checksum::sum(ip, 0)), 0);
    }
}

#[test]
fn no_header_is_too_hostile() {
    let mut rng = XorShift64Star::new(3);
    for length in 0..300 {
        let bytes: Vec<u8> = (0..length).map(|_| rng.next_u64().to_be_bytes()[0]).collect();
        let mut builder = ChunkBuilder::with_capacity(4096);
        for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::Ppp, LinkType::LinuxCooked] {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
            builder.push(at, bytes.len(), u32::MAX, 0, link, 0, 0);
        }
        let mut chunk = builder.finish(0, 1, 0);
        for (packet, frame) in chunk.whole().0.frames() {
            parse(packet, frame, &ParseOptions::default());
            let start = start_of(packet, frame, (0, 128));
            assert!(start.is_some() || packet.link != LinkType::Ethernet);
        }
        let mut ip = bytes.clone();
        set_length(&mut ip, u32::MAX);
        assert_eq!(ip.len(), bytes.len());
    }
}

#[test]
fn samples_and_what_is_left_count_every_packet() {
    let mut sampler = sampler(7);
    let mut chunk = chunk_of(&vec![(udp(250), Some(100)); 200]);
    let told: u32 = samples(&mut sampler, &mut chunk).iter().map(|sample| sample.pool).sum();
    assert!(told < 600);
    assert_eq!(sampler.take_pools().collect::<Vec<_>>(), [(0, 600 - told)]);
    assert_eq!(sampler.take_pools().count(), 0);
}

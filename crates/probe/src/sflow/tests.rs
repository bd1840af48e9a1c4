use super::*;
use thalweg_base::{Chunk, ChunkBuilder};
use thalweg_flow::parse::{ParseOptions, parse};
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

fn pass(sampler: &mut Sampler, chunk: &mut Chunk) {
    chunk.whole().0.frames().for_each(|(packet, frame)| sampler.pass(packet, frame));
}

#[test]
fn skips_have_the_mean_of_their_rate() {
    let (queue, _arrivals) = SampleQueue::new((1, 128), true);
    assert!((0..1000).all(|_| queue.sampler().skip() == 0), "one in one is each packet");
    for rate in [2, 10, 1000] {
        let (queue, _arrivals) = SampleQueue::new((rate, 128), true);
        let mut sampler = queue.sampler();
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
    let (queue, arrivals) = SampleQueue::new((1, 128), true);
    let mut sampler = queue.sampler();
    pass(&mut sampler, &mut chunk_of(&[(udp(250), Some(100)), (udp(10), None)]));
    drop((sampler, queue));
    let all: Vec<Sampled> = arrivals.iter().collect();
    assert_eq!(all.iter().map(|sampled| sampled.pool).sum::<u32>(), 4);
    let headers: Vec<&Start> = all.iter().map(|sampled| sampled.header.as_ref().unwrap()).collect();
    let bytes: Vec<u32> = headers.iter().map(|header| header.bytes).collect();
    assert_eq!(bytes, [142, 142, 92, 52]);
    for header in headers {
        let ip = &header.start[14..34];
        assert_eq!(u32::from(u16::from_be_bytes([ip[2], ip[3]])) + 14, header.bytes);
        assert_eq!(checksum::finish(checksum::sum(ip, 0)), 0);
    }
}

#[test]
fn what_finds_the_queue_full_is_told_by_the_next_sample() {
    let (queue, arrivals) = SampleQueue::new((1, 64), false);
    let mut sampler = queue.sampler();
    let mut chunk = chunk_of(&[(udp(200), None)]);
    for _ in 0..QUEUE_SAMPLES + 7 {
        pass(&mut sampler, &mut chunk);
    }
    assert_eq!(queue.lost.load(Ordering::Relaxed), 7);
    assert_eq!(arrivals.try_iter().map(|sampled| (sampled.pool, sampled.drops)).max(), Some((1, 0)));
    pass(&mut sampler, &mut chunk);
    let next = arrivals.try_recv().unwrap();
    assert_eq!((next.pool, next.drops, next.header.unwrap().start.len()), (8, 7, 64));
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

use super::*;
use proptest::prelude::*;
use thalweg_base::{ChunkBuilder, LinkType};

fn chunk(packets: &[(u8, u32)]) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(packets.len() * 32 + 64);
    for _ in packets {
        builder.push(builder.next_frame_offset(), 1, 1, 0, LinkType::RawIp, 0, 0);
    }
    let mut chunk = builder.finish(0, 1, 0);
    for (p, &(class, bytes)) in chunk.packets_mut().iter_mut().zip(packets) {
        p.class = class;
        p.ip_len = bytes;
    }
    chunk
}

fn classes(chunk: &Chunk) -> Vec<u8> {
    chunk.packets().iter().map(|p| p.class).collect()
}

#[test]
fn strict_levels_come_first_whatever_their_numbers() {
    let scheduler =
        Scheduler::new(&[Service::Weight(1), Service::Strict(9), Service::Strict(2), Service::Strict(9)]);
    let mut c = chunk(&[(0, 100), (1, 100), (2, 100), (3, 100), (1, 100), (0, 100)]);
    scheduler.process(&mut c, &mut Vec::new());
    assert_eq!(classes(&c), [2, 1, 3, 1, 0, 0]);
}

#[test]
fn weights_share_bytes_not_packets() {
    let scheduler = Scheduler::new(&[Service::Weight(3), Service::Weight(1)]);
    // Class 0 sends 500-byte packets, class 1 full frames; both have plenty.
    let packets: Vec<(u8, u32)> = (0..400).flat_map(|_| [(0, 500), (1, 1500)]).collect();
    let mut c = chunk(&packets);
    scheduler.process(&mut c, &mut Vec::new());
    let mut bytes = [0u64; 2];
    for p in &c.packets()[..200] {
        bytes[usize::from(p.class)] += u64::from(p.ip_len);
    }
    let ratio = bytes[0] as f64 / bytes[1] as f64;
    assert!((2.8..3.3).contains(&ratio), "{bytes:?}");
}

proptest! {
    #[test]
    fn nothing_is_lost_and_no_class_is_reordered(
        services in proptest::collection::vec(prop_oneof![(0u8..3).prop_map(Service::Strict), (1u16..9).prop_map(Service::Weight)], 1..6),
        raw in proptest::collection::vec((0u8..6, 20u32..70_000), 0..300),
    ) {
        let packets: Vec<(u8, u32)> = raw.iter().map(|&(c, b)| (c % services.len() as u8, b)).collect();
        let mut c = chunk(&packets);
        Scheduler::new(&services).process(&mut c, &mut Vec::new());
        prop_assert_eq!(c.live_len(), packets.len());
        let mut seen: Vec<u16> = c.packets().iter().map(|p| p.index).collect();
        for class in 0..services.len() as u8 {
            let order: Vec<u16> = c.packets().iter().filter(|p| p.class == class).map(|p| p.index).collect();
            prop_assert!(order.is_sorted());
        }
        for (i, p) in c.packets().iter().enumerate() {
            prop_assert_eq!(usize::from(p.position), i);
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..packets.len() as u16).collect::<Vec<_>>());
        let strict_then_rest = c.packets().iter().map(|p| services[usize::from(p.class)]).map(|s| matches!(s, Service::Weight(_)));
        prop_assert!(strict_then_rest.is_sorted());
    }
}

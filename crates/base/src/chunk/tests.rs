use super::*;
use proptest::prelude::*;
use std::sync::Mutex;

fn chunk_of(frames: &[&[u8]]) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(4096);
    for frame in frames {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
        builder.push(at, frame.len(), frame.len() as u32, 0, LinkType::RawIp, 0, 0);
    }
    builder.finish(0, 1, 0)
}

#[test]
fn frames_keep_their_bytes_through_schedule_split_and_merge() {
    let frames: Vec<Vec<u8>> = (0..9u8).map(|n| vec![n; usize::from(n) + 1]).collect();
    let views: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut chunk = chunk_of(&views);
    chunk.packets_mut()[4].drop_for(crate::DropReason::NotIp);
    chunk.schedule(3, |p| p.is_alive().then_some(usize::from(p.index) % 3), &mut Vec::new());
    let order: Vec<u16> = chunk.packets().iter().map(|p| p.index).collect();
    assert_eq!(order, [0, 3, 6, 1, 7, 2, 5, 8, 4]);
    assert_eq!(chunk.live_len(), 8);

    let parts = chunk.split(2, |p| usize::from(p.index) % 2);
    assert_eq!(parts.iter().map(Chunk::live_len).collect::<Vec<_>>(), [4, 4]);
    let whole = Chunk::merge(parts);
    assert_eq!(whole.packets().iter().map(|p| p.index).collect::<Vec<_>>(), order);
    assert_eq!(whole.live_len(), 8);
    for (i, p) in whole.packets().iter().enumerate() {
        assert_eq!(whole.frame(i), frames[usize::from(p.index)]);
    }
}

#[test]
fn a_packet_grows_in_front_and_the_others_stay() {
    let frames: Vec<Vec<u8>> = (1..5u8).map(|n| vec![n; 40]).collect();
    let views: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut chunk = chunk_of(&views);
    for packet in chunk.packets_mut() {
        (packet.l3_offset, packet.ip_len) = (14, 20);
    }
    // The buffer has no more room than this.
    assert!(!chunk.batch(0).grow_l3(1, 4096));
    assert_eq!(chunk.frame(1), frames[1]);
    chunk.make_room(2 * 4096);
    let mut parts = chunk.split(2, |packet| usize::from(packet.index) % 2);
    for part in &mut parts {
        let mut batch = part.batch(0);
        for i in 0..batch.len() {
            let byte = batch.packets()[i].index as u8 + 0x11;
            assert!(batch.grow_l3(i, 20));
            let (packet, l3) = batch.packet_and_l3(i);
            l3[..20].fill(byte);
            packet.ip_len += 20;
        }
    }
    let mut chunk = Chunk::merge(parts);
    for n in 0..4u8 {
        let expected = [&[n + 1; 14][..], &[n + 0x11; 20], &[n + 1; 20]].concat();
        assert_eq!(
            chunk.frame(n.into()),
            expected,
            "the link layer's header, new bytes, the packet without padding"
        );
        assert_eq!(chunk.packets()[usize::from(n)].wire_len, 54);
        assert_eq!(chunk.batch(0).packet_and_egress(n.into()).1.len(), 54);
    }
}

#[test]
fn a_merged_frame_that_grows_counts_as_longer_segments() {
    let mut builder = ChunkBuilder::with_capacity(8192);
    builder.push(16, 2055, 2055, 0, LinkType::Ethernet, 0, 0);
    builder.merge_last(54, 1000);
    let mut chunk = builder.finish(0, 1, 0);
    (chunk.packets_mut()[0].l3_offset, chunk.packets_mut()[0].ip_len) = (14, 2041);
    assert!(chunk.batch(0).grow_l3(0, 20));
    let packet = &mut chunk.packets_mut()[0];
    packet.ip_len += 20;
    assert_eq!((packet.wire_packets(), packet.wire_len), (3, 2075 + 2 * 74));
    assert_eq!((packet.wire_ip_bytes(), packet.wire_ip_len_max()), (2061 + 2 * 60, 1060));
}

#[test]
#[should_panic(expected = "slab of another chunk")]
fn a_packet_swapped_into_another_chunk_is_caught() {
    let mut a = chunk_of(&[b"aaaa"]);
    let mut b = chunk_of(&[b"bbbb"]);
    std::mem::swap(&mut a.packets_mut()[0], &mut b.packets_mut()[0]);
    let _ = a.frame(0);
}

#[test]
#[should_panic(expected = "overlaps")]
fn overlapping_frames_are_refused() {
    let mut builder = ChunkBuilder::with_capacity(256);
    builder.push(16, 20, 20, 0, LinkType::RawIp, 0, 0);
    builder.push(40, 20, 20, 0, LinkType::RawIp, 0, 0);
}

#[test]
fn a_tail_is_replaced_in_place_or_behind_all_frames() {
    let mut chunk = chunk_of(&[b"first", b"second", b"third"]);
    assert!(chunk.replace_tail(1, 2, b"xy") && chunk.replace_tail(0, 4, b"-and-much-longer"));
    assert!(chunk.replace_tail(2, 0, &[7; 9000]), "the memory grows");
    assert_eq!((chunk.frame(0), chunk.frame(1)), (&b"firs-and-much-longer"[..], &b"sexy"[..]));
    assert_eq!((chunk.frame(2), chunk.packets()[2].wire_len), (&[7; 9000][..], 9000));
    let mut parts = chunk.split(2, |p| usize::from(p.index) % 2);
    assert!(!parts[0].replace_tail(0, 0, b"no"), "others have the memory too");
    assert_eq!(parts[0].frame(0), b"firs-and-much-longer");
}

#[test]
fn a_merged_frame_counts_as_its_segments() {
    let mut builder = ChunkBuilder::with_capacity(8192);
    // Headers of 14 and 40 bytes, then two segments of 1000 bytes and one of 1.
    builder.push(16, 2055, 2055, 0, LinkType::Ethernet, 0, 0);
    builder.merge_last(54, 1000);
    // Nothing to merge.
    builder.push(2087, 1054, 1054, 0, LinkType::Ethernet, 0, 0);
    builder.merge_last(54, 1000);
    let mut chunk = builder.finish(0, 1, 0);
    for packet in chunk.packets_mut() {
        packet.l3_offset = 14;
        packet.ip_len = packet.len - 14;
    }
    let [merged, single] = chunk.packets() else { panic!("two packets") };
    assert_eq!((merged.segment_bytes(), merged.wire_packets()), (Some(1000), 3));
    assert_eq!((merged.wire_len, merged.wire_ip_bytes()), (2 * 1054 + 55, 2 * 1040 + 41));
    assert_eq!([0, 1, 2].map(|nth| merged.wire_ip_len_of(nth)), [1040, 1040, 41]);
    assert_eq!((single.segment_bytes(), single.wire_packets()), (None, 1));
    assert_eq!((single.wire_len, single.wire_ip_bytes(), single.wire_ip_len_max()), (1054, 1040, 1040));
}

#[test]
#[should_panic(expected = "without bytes")]
fn a_frame_shorter_than_its_headers_merges_nothing() {
    let mut builder = ChunkBuilder::with_capacity(256);
    builder.push(16, 50, 50, 0, LinkType::Ethernet, 0, 0);
    builder.merge_last(54, 1000);
}

#[derive(Debug, Default)]
struct Home {
    buffers: Mutex<Vec<Vec<u8>>>,
    lists: Mutex<Vec<Vec<Packet>>>,
}

impl SlabHome for Home {
    fn put(&self, buffer: Vec<u8>) {
        self.buffers.lock().unwrap().push(buffer);
    }

    fn take_list(&self) -> Vec<Packet> {
        self.lists.lock().unwrap().pop().unwrap_or_default()
    }

    fn put_list(&self, mut list: Vec<Packet>) {
        list.clear();
        self.lists.lock().unwrap().push(list);
    }
}

#[test]
fn a_dropped_chunk_gives_its_buffer_back() {
    let home = Arc::new(Home::default());
    for sequence in 0..3 {
        let buffer = home.buffers.lock().unwrap().pop().unwrap_or(vec![0; 512]);
        let mut builder = ChunkBuilder::from_home(buffer, home.clone());
        builder.push(16, 8, 8, 0, LinkType::RawIp, 0, 0);
        let parts = builder.finish(sequence, 1, 0).split(3, |_| 1);
        assert!(home.buffers.lock().unwrap().is_empty());
        drop(parts);
        assert_eq!(home.buffers.lock().unwrap().len(), 1, "the one buffer, from the last of the parts");
    }
    assert!(!home.lists.lock().unwrap().is_empty());
}

proptest! {
    #[test]
    fn shard_index_partitions_in_order(groups in 1usize..9, raw in proptest::collection::vec(0u16..64, 0..300)) {
        let members: Vec<(u16, u16)> = (0..).zip(&raw).map(|(i, g)| (i, g % groups as u16)).collect();
        let mut index = ShardIndex::default();
        index.build(groups, &members);
        for g in 0..groups {
            let expected: Vec<u16> = members.iter().filter(|m| usize::from(m.1) == g).map(|m| m.0).collect();
            prop_assert_eq!(index.group(g), &expected[..]);
        }
    }

    #[test]
    fn schedule_is_a_stable_sort(ranks in proptest::collection::vec(proptest::option::of(0usize..4), 0..200)) {
        let frame = [0u8; 1];
        let views: Vec<&[u8]> = ranks.iter().map(|_| &frame[..]).collect();
        let mut builder = ChunkBuilder::with_capacity(20 * 256);
        for _ in &views {
            builder.push(builder.next_frame_offset(), 1, 1, 0, LinkType::RawIp, 0, 0);
        }
        let mut chunk = builder.finish(0, 1, 0);
        chunk.schedule(4, |p| ranks[usize::from(p.index)], &mut Vec::new());
        let mut expected: Vec<u16> = (0..ranks.len() as u16).collect();
        expected.sort_by_key(|&i| ranks[usize::from(i)].unwrap_or(4));
        prop_assert_eq!(chunk.packets().iter().map(|p| p.index).collect::<Vec<_>>(), expected);
        prop_assert_eq!(chunk.live_len(), ranks.iter().flatten().count());
    }
}

/// Makes a packet of each byte that it was given.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Parse for Bytes {
    fn parse(self: Box<Self>, builder: &mut ChunkBuilder) {
        builder.grow(64 * self.0.len());
        for (byte, arrival_ns) in self.0.into_iter().zip(100..) {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at] = byte;
            builder.push(at, 1, 1, arrival_ns, LinkType::RawIp, 0, 0);
        }
    }
}

#[test]
fn a_chunk_that_is_parsed_later_is_the_same() {
    let home = Arc::new(Home::default());
    let returned = || home.buffers.lock().unwrap().len();
    let unparsed = |bytes: &[u8]| {
        let builder = ChunkBuilder::from_home(Vec::new(), Arc::clone(&home) as Arc<dyn SlabHome>);
        builder.finish_unparsed(4, 17, 70, Box::new(Bytes(bytes.to_vec())))
    };
    let mut chunk = unparsed(&[7, 8, 9]);
    chunk.admitted_ns = 5;
    assert_eq!((chunk.packets().len(), chunk.live_len(), chunk.clock_ns), (0, 0, 70));
    for _ in 0..2 {
        chunk.parse();
        assert_eq!((chunk.sequence, chunk.first_packet_number, chunk.clock_ns), (4, 17, 100));
        assert_eq!((chunk.live_len(), chunk.admitted_ns), (3, 5));
        assert!((0..3).all(|i| chunk.frame(i) == [7 + i as u8]));
    }
    assert_eq!(returned(), 0);
    drop(chunk);
    assert_eq!(returned(), 1, "its memory goes home once");

    let mut empty = unparsed(&[]);
    empty.parse();
    assert_eq!((empty.live_len(), empty.clock_ns), (0, 70));
    drop((empty, unparsed(&[1])));
    assert_eq!(returned(), 3, "also without packets, and unparsed");
}

//! Distributes the packets of a file over pipelines, as a NIC distributes packets over its receive queues.
//!
//! ```text
//!                     ┌─part─> queue ─> pipeline 0
//! source ─> chunk ────┼─part─> queue ─> pipeline 1        parts share the chunk's memory
//!                     └─part─> queue ─> pipeline 2
//! ```
//!
//! A NIC hashes fields at fixed positions, and so does this module: the two IP addresses of Ethernet frames
//! (with up to two tags) and of bare IP packets. The hash is the same for both directions, like RSS with a
//! symmetric key. Unreadable packets go to the first queue, as with RSS. Ports are not hashed, as usual where
//! fragments matter: all fragments of a datagram stay with their flow.
//!
//! Every pipeline gets a part of every chunk, even if it is empty. So each sees the same clock and chunks as
//! a single pipeline would, and a flow's records do not depend on the number of pipelines.

use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use thalweg_base::{Chunk, LinkType, mix64, symmetric_flow_hash};
use thalweg_exec::Source;
use thalweg_wire::EtherType;
use thalweg_wire::ethernet::payload_of;

/// The capacity of a pipeline's queue, in parts.
const QUEUE_PARTS: usize = 4;

/// The queue of one pipeline, as its source.
pub(crate) struct Queue(Receiver<Chunk>);

impl Source<Chunk> for Queue {
    fn next(&mut self) -> Option<Chunk> {
        self.0.recv().ok()
    }
}

/// Starts a thread that distributes the chunks of `source` over queues, until the source ends or a queue is
/// closed.
pub(crate) fn deal<'scope, S: Source<Chunk> + Send>(
    scope: &'scope Scope<'scope, '_>,
    source: &'scope mut S,
    queues: usize,
) -> std::io::Result<(Vec<Queue>, ScopedJoinHandle<'scope, ()>)> {
    let (senders, receivers): (Vec<Sender<Chunk>>, Vec<_>) =
        (0..queues).map(|_| bounded(QUEUE_PARTS)).map(|(sender, receiver)| (sender, Queue(receiver))).unzip();
    let dealer = std::thread::Builder::new().name("dealer".to_owned());
    let handle = dealer.spawn_scoped(scope, move || {
        while let Some(chunk) = source.next() {
            let parts = split(chunk, senders.len());
            // A failed pipeline reports that itself; the others end with their input.
            if senders.iter().zip(parts).any(|(sender, part)| sender.send(part).is_err()) {
                return;
            }
        }
    })?;
    Ok((receivers, handle))
}

/// Splits a chunk into a part per queue.
fn split(mut chunk: Chunk, queues: usize) -> Vec<Chunk> {
    for (packet, frame) in chunk.whole().0.frames() {
        packet.flow_hash = receive_hash(packet.link, frame);
    }
    // The upper bits of the product: as even as the hash, without a division.
    chunk.split(queues, |packet| ((u64::from(packet.flow_hash) * queues as u64) >> 32) as usize)
}

/// The receive hash of a frame; 0 if it is unreadable.
fn receive_hash(link: LinkType, frame: &[u8]) -> u32 {
    match link {
        LinkType::Ethernet => ethernet_hash(frame),
        LinkType::RawIp => match frame.first().map(|first| first >> 4) {
            Some(4) => ipv4_hash(frame),
            Some(6) => ipv6_hash(frame),
            _ => 0,
        },
        _ => 0,
    }
}

fn ethernet_hash(frame: &[u8]) -> u32 {
    match payload_of(frame) {
        Some((EtherType::IPV4, packet)) => ipv4_hash(packet),
        Some((EtherType::IPV6, packet)) => ipv6_hash(packet),
        _ => 0,
    }
}

fn ipv4_hash(packet: &[u8]) -> u32 {
    match packet.get(12..20).and_then(|bytes| bytes.first_chunk::<8>()) {
        Some(bytes) => {
            let both = u64::from_be_bytes(*bytes);
            symmetric_flow_hash(both >> 32, both & u64::from(u32::MAX), 0)
        }
        None => 0,
    }
}

fn ipv6_hash(packet: &[u8]) -> u32 {
    let word = |at: usize| {
        let bytes = packet.get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>());
        bytes.map(|bytes| u64::from_be_bytes(*bytes))
    };
    match (word(8), word(16), word(24), word(32)) {
        (Some(a), Some(b), Some(c), Some(d)) => {
            symmetric_flow_hash(mix64(a).wrapping_add(b), mix64(c).wrapping_add(d), 0)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::ChunkBuilder;

    fn ipv4_frame(tags: usize, src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
        frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(src);
        frame.extend(dst);
        frame
    }

    fn chunk(frames: &[Vec<u8>]) -> Chunk {
        let mut builder = ChunkBuilder::with_capacity(100 * (frames.len() + 1));
        for frame in frames {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
            builder.push(at, frame.len(), frame.len() as u32, 5, LinkType::Ethernet, 0, 0);
        }
        builder.finish(3, 1, 0)
    }

    #[test]
    fn directions_and_tags_do_not_matter_and_addresses_do() {
        let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
        let hash = |frame: &[u8]| receive_hash(LinkType::Ethernet, frame);
        let there = hash(&ipv4_frame(0, a, b));
        assert_eq!(there, hash(&ipv4_frame(0, b, a)));
        assert_eq!(there, hash(&ipv4_frame(2, a, b)));
        assert_eq!(there, receive_hash(LinkType::RawIp, &ipv4_frame(0, a, b)[14..]));
        assert_ne!(there, hash(&ipv4_frame(0, a, c)));
        assert_eq!(hash(&ipv4_frame(3, a, b)), 0, "cards look no deeper either");
        assert_eq!(hash(&ipv4_frame(0, a, b)[..30]), 0);
        assert_eq!(hash(&[0; 10]), 0);
    }

    #[test]
    fn every_packet_goes_to_one_queue_and_all_queues_get_some() {
        let frames: Vec<_> = (0..200_u8).map(|n| ipv4_frame(0, [10, 0, 0, n], [10, 1, n, 9])).collect();
        for queues in [1, 2, 3, 7] {
            let parts = split(chunk(&frames), queues);
            assert_eq!(parts.len(), queues);
            assert_eq!(parts.iter().map(|part| part.packets().len()).sum::<usize>(), frames.len());
            assert!(parts.iter().all(|part| part.sequence == 3 && part.clock_ns == 5));
            let enough = frames.len() / queues / 2;
            assert!(parts.iter().all(|part| part.packets().len() > enough), "{queues} queues");
        }
    }
}

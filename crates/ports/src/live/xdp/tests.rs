//! The driver on veths, in network namespaces of their own.
//!
//! A veth cannot show what only a card has (zero-copy, a driver that sleeps), so that is not tested.

mod leases;
mod veth;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thalweg_base::{Chunk, ChunkBuilder};
use thalweg_wire::{MacAddr, checksum, testing};

use super::*;
use crate::live::{NotTaken, PortRx};
use crate::namespace::{in_namespace, ip};
use veth::{FarEnd, is_readable, veth};

/// The type of the tests' frames: for local experiments (IEEE 802, clause 9.2.3).
const KIND: [u8; 2] = [0x88, 0xb5];

/// A frame whose bytes follow from its number.
fn frame(number: u32, bytes: usize) -> Vec<u8> {
    // To a group, which every port takes.
    let mut frame = vec![3, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, KIND[0], KIND[1]];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..bytes.max(18)).map(|i| (i as u32 * 7 + number) as u8));
    frame
}

/// IPv4 and UDP between two addresses, with a right header checksum and no other.
fn datagram(to: [u8; 4], source_port: u16, bytes: usize) -> Vec<u8> {
    let segment =
        [&source_port.to_be_bytes()[..], &7000u16.to_be_bytes(), &(bytes as u16 - 34).to_be_bytes(), &[0; 2]];
    let mut segment = segment.concat();
    segment.resize(bytes - 34, 0x5a);
    let mut frame = testing::frame(&testing::ip([10, 9, 0, 77], to, 17, &segment));
    frame[0] |= 1;
    frame
}

fn options(mode: XdpMode) -> XdpOptions {
    XdpOptions { modes: vec![mode], ..XdpOptions::new("v0") }
}

fn frames(chunk: &Chunk) -> Vec<Vec<u8>> {
    (0..chunk.packets().len()).map(|i| chunk.frame(i).to_vec()).collect()
}

/// Receives until there are `wanted` frames, five seconds at most.
fn receive(rx: &mut dyn PortRx, wanted: usize) -> Vec<Vec<u8>> {
    let mut into = ChunkBuilder::with_capacity(wanted * 16_000 + 1_000_000);
    let start = Instant::now();
    while into.len() < wanted && start.elapsed() < Duration::from_secs(5) {
        let more = rx.receive(3, 77, wanted - into.len(), &mut into).unwrap();
        if more == 0 {
            is_readable(rx.fd());
        }
    }
    let chunk = into.finish(0, 1, 0);
    assert!(chunk.packets().iter().all(|p| p.port_in == 3 && p.arrival_ns == 77));
    frames(&chunk)
}

/// The next of our frames at the far end.
fn ours(far: &FarEnd) -> Vec<u8> {
    far.receive(|frame| frame[12..14] == KIND)
}

fn program_of_v0() -> Option<XdpAttachment> {
    XdpAttachment::read(Interface::find("v0").unwrap().index).unwrap()
}

/// The program is detached when the link's last descriptor is closed. A program that lists all links of the system,
/// as another of these tests does, may have one for a moment.
fn await_detached() {
    let start = Instant::now();
    while program_of_v0().is_some() {
        assert!(start.elapsed() < Duration::from_secs(5), "a program was left behind");
        sleep(Duration::from_millis(1));
    }
}

/// Frames of these lengths go both ways unchanged, in order, and are counted.
fn both_ways(far: &FarEnd, port: &mut Port, lengths: &[usize]) {
    let sent: Vec<_> = (0..).zip(lengths).map(|(i, &bytes)| frame(i, bytes)).collect();
    let bytes: u64 = sent.iter().map(|frame| frame.len() as u64).sum();
    for part in sent.chunks(200) {
        for frame in part {
            far.send(frame);
        }
        assert_eq!(receive(&mut *port.rx[0], part.len()), part);
    }
    let counted = port.rx[0].counters();
    assert_eq!((counted.frames, counted.bytes), (sent.len() as u64, bytes));
    assert_eq!((counted.missed, counted.refused), (0, 0));
    for part in sent.chunks(50) {
        for frame in part {
            port.tx.push(frame).unwrap();
        }
        port.tx.flush().unwrap();
        for frame in part {
            assert_eq!(ours(far), *frame);
        }
    }
    let counted = port.tx.counters();
    assert_eq!((counted.frames, counted.bytes, counted.failed), (sent.len() as u64, bytes, 0));
}

/// A switch that floods delivers frames for others, which the router must not take.
#[test]
fn frames_for_other_neighbors_are_left_alone() {
    in_namespace("live::xdp::tests::frames_for_other_neighbors_are_left_alone", || {
        let far = veth(1500, "");
        let mut port = open(&options(XdpMode::NativeCopy)).unwrap();
        let to = |mac: MacAddr, number| {
            let mut frame = frame(number, 100);
            frame[..6].copy_from_slice(&mac.0);
            frame
        };
        let ours = to(port.facts.mac, 2);
        for frame in [&to(MacAddr([2, 9, 9, 9, 9, 9]), 1), &ours, &frame(3, 100)] {
            far.send(frame);
        }
        assert_eq!(receive(&mut *port.rx[0], 2), [ours, frame(3, 100)]);
        let counted = port.rx[0].counters();
        assert_eq!((counted.frames, counted.foreign, counted.refused), (2, 1, 0));
    });
}

#[test]
fn frames_pass_both_ways_in_every_mode() {
    in_namespace("live::xdp::tests::frames_pass_both_ways_in_every_mode", || {
        let far = veth(1500, "");
        let lengths: Vec<usize> = (60..1514).step_by(3).chain([18, 1514, 1514]).collect();
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let mut port = open(&options(mode)).unwrap();
            assert_eq!(port.facts.mode, format!("af_xdp {mode}"));
            assert_eq!((port.facts.interface.as_str(), port.facts.mtu), ("v0", 1500));
            assert_eq!(port.facts.why_not_better, None);
            let attached = program_of_v0().unwrap();
            assert_eq!(attached.place, if mode.is_native() { 1 } else { 2 });
            both_ways(&far, &mut port, &lengths);
            drop(port);
            await_detached();
        }
    });
}

#[test]
fn the_best_mode_there_is_and_why_not_a_better_one() {
    in_namespace("live::xdp::tests::the_best_mode_there_is_and_why_not_a_better_one", || {
        let _far = veth(1500, "");
        let port = open(&XdpOptions::new("v0")).unwrap();
        assert_eq!(port.facts.mode, "af_xdp native copy");
        let why = port.facts.why_not_better.clone().unwrap();
        assert!(why.starts_with("native zero-copy: bind(AF_XDP): "), "{why}");
        drop(port);
        let found = probe("v0", &XdpMode::ALL);
        assert!(matches!(found[0], (XdpMode::NativeZeroCopy, Err(LiveError::Call { .. }))), "{found:?}");
        assert!(matches!(found[1..], [(_, Ok(())), (_, Ok(()))]), "{found:?}");
        assert!(matches!(probe("nobody0", &XdpMode::ALL)[..], [(_, Err(LiveError::NoSuchInterface { .. }))]));
        await_detached();
        let Err(error) = open(&XdpOptions::new("nobody0")) else { panic!("opened") };
        assert!(matches!(error, LiveError::NoSuchInterface { .. }), "{error}");
        let Err(error) = open(&XdpOptions { rx_frames: 100, ..XdpOptions::new("v0") }) else {
            panic!("opened")
        };
        assert!(error.to_string().contains("rx_frames is 100"), "{error}");
    });
}

#[test]
fn jumbo_frames_pass_in_pieces() {
    in_namespace("live::xdp::tests::jumbo_frames_pass_in_pieces", || {
        let far = veth(9000, "");
        // Around every number of pieces, received (3840 bytes each) and sent (4096).
        let lengths =
            [60, 1514, 3839, 3840, 3841, 4095, 4096, 4097, 7680, 7681, 8192, 8193, 9013, 9014, 9014, 64];
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let mut port = open(&options(mode)).unwrap();
            both_ways(&far, &mut port, &lengths);
            assert_eq!(port.tx.push(&frame(0, 9100)), Err(NotTaken::TooLong));
            // A smaller MTU is seen when the counters are next asked for.
            ip("link set v0 mtu 1500");
            port.rx[0].counters();
            assert_eq!(port.tx.push(&frame(0, 9014)), Err(NotTaken::TooLong));
            ip("link set v0 mtu 9000");
        }
    });
}

#[test]
fn every_queue_is_received_from() {
    in_namespace("live::xdp::tests::every_queue_is_received_from", || {
        let far = veth(1500, "numrxqueues 4 numtxqueues 4");
        let options = options(XdpMode::NativeCopy);
        let mut port = open(&options).unwrap();
        assert_eq!(port.facts.mode, "af_xdp native copy, 4 queues");
        assert!(!is_readable_now(&*port.rx[0]));
        // The kernel chooses the queue by flow; frames of one flow stay in order.
        let sent: Vec<_> =
            (0..600).map(|i| datagram([10, 9, 1, 1], i % 60, 60 + usize::from(i / 60))).collect();
        for frame in &sent {
            far.send(frame);
        }
        assert!(is_readable_now(&*port.rx[0]));
        let received = receive(&mut *port.rx[0], sent.len());
        assert!(!is_readable_now(&*port.rx[0]));
        let by_flow = |frames: &[Vec<u8>]| {
            let mut frames = frames.to_vec();
            frames.sort_by_key(|frame| [frame[34], frame[35]]);
            frames
        };
        assert_eq!(by_flow(&received), by_flow(&sent));
        port.tx.push(&frame(1, 100)).unwrap();
        port.tx.flush().unwrap();
        assert_eq!(ours(&far), frame(1, 100));
        drop(port);

        // A check from inside that more than one queue was used.
        let setup = Setup::new(&options).unwrap();
        let (mut bound, attachment) = setup.attempt(XdpMode::NativeCopy, &mut None).unwrap();
        // While no socket is in the map, frames continue to the kernel.
        far.send(&sent[0]);
        assert!(bound.queues.iter_mut().all(|queue| queue.receive.available(1) == 0));
        setup.connect(&bound, &attachment.map).unwrap();
        for frame in &sent {
            far.send(frame);
        }
        let waiting: Vec<u32> = bound.queues.iter_mut().map(|queue| queue.receive.available(1)).collect();
        assert_eq!(waiting.iter().sum::<u32>(), 600, "{waiting:?}");
        assert!(waiting.iter().all(|&frames| frames > 0), "{waiting:?}");
    });
}

#[test]
fn what_waits_behind_another_flow_passes_it() {
    in_namespace("live::xdp::tests::what_waits_behind_another_flow_passes_it", || {
        let far = veth(9000, "");
        let open = || open(&options(XdpMode::NativeCopy));
        let mut port = crate::live::reopen::open_again(Box::new(open)).unwrap();
        let bulk: Vec<_> = (0..400).map(|nth| datagram([10, 9, 1, 1], 1, 100 + nth)).collect();
        // In pieces, which keep their place, and so does what follows in their flow.
        let jumbo = [9000, 100].map(|bytes| datagram([10, 9, 1, 1], 3, bytes));
        let thin: Vec<_> = (0..3).map(|nth| datagram([10, 9, 1, 1], 2, 60 + nth)).collect();
        let rx = &mut *port.rx[0];
        // The kernel may still be delivering when the first chunk is taken, so that nothing waits behind it.
        let passes = (1..=20_u64).find(|_| {
            for frame in bulk.iter().chain(&jumbo).chain(&thin) {
                far.send(frame);
            }
            let (mut chunks, began) = (Vec::new(), Instant::now());
            while chunks.iter().map(Vec::len).sum::<usize>() < 405 {
                assert!(began.elapsed() < Duration::from_secs(20), "frames are lost");
                let mut into = ChunkBuilder::with_capacity(1_000_000);
                if rx.receive_passing(3, 77, 100, &mut into) == 0 {
                    rx.receive(3, 77, 100, &mut into).unwrap();
                }
                if !into.is_empty() {
                    chunks.push(frames(&into.finish(0, 1, 0)));
                }
            }
            let of_flow = |number: u8| -> Vec<_> {
                chunks.iter().flatten().filter(|frame| frame[35] == number).cloned().collect()
            };
            assert!(of_flow(1) == bulk, "bulk keeps its order");
            assert!(of_flow(3) == jumbo, "a frame in pieces was passed by the next of its flow");
            assert!(of_flow(2) == thin, "and so does what passes it");
            chunks[0] == bulk[..100] && chunks[1] == thin
        });
        let tries = passes.expect("in a chunk of its own, before the rest of its ring");
        let counted = rx.counters();
        assert_eq!((counted.frames, counted.refused, counted.missed), (405 * tries, 0, 0));
    });
}

fn is_readable_now(rx: &dyn PortRx) -> bool {
    veth::poll(rx.fd(), 0)
}

/// Checks the transport checksum of a frame from 10.8.0.1 to 10.8.0.2 without IP options.
fn assert_right_checksum(frame: &[u8]) {
    let segment = &frame[34..];
    let [from, to] = [[10, 8, 0, 1], [10, 8, 0, 2]].map(u32::from_be_bytes);
    let pseudo = checksum::pseudo_ipv4(from, to, frame[23], segment.len() as u16);
    assert_eq!(checksum::fold(checksum::sum(segment, pseudo)), 0xffff, "{frame:02x?}");
}

#[test]
fn checksums_left_to_hardware_are_completed() {
    in_namespace("live::xdp::tests::checksums_left_to_hardware_are_completed", || {
        let _far = veth(1500, "");
        ip("address add 10.8.0.1/24 dev v1");
        ip("neighbor add 10.8.0.2 lladdr 03:00:00:00:00:09 dev v1");
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let mut port = open(&options(mode)).unwrap();
            let sender = std::net::UdpSocket::bind("10.8.0.1:0").unwrap();
            for bytes in [0usize, 1, 2, 17, 1000, 1472] {
                sender.send_to(&vec![0xa5; bytes], "10.8.0.2:9").unwrap();
            }
            let connecting =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            connecting.set_nonblocking(true).unwrap();
            let to: std::net::SocketAddr = "10.8.0.2:9".parse().unwrap();
            let _ = connecting.connect(&to.into());
            let received = receive(&mut *port.rx[0], 7);
            assert_eq!(received.len(), 7);
            for frame in &received {
                assert_right_checksum(frame);
            }
            assert_eq!((received[0][23], received[6][23]), (17, 6));
        }
    });
}

#[test]
fn merged_segments_are_cut_or_refused() {
    in_namespace("live::xdp::tests::merged_segments_are_cut_or_refused", || {
        const UDP_SEGMENT: i32 = 103;
        for mtu in [1500, 9000] {
            let _far = veth(mtu, "");
            ip("address add 10.8.0.1/24 dev v1");
            ip("neighbor add 10.8.0.2 lladdr 03:00:00:00:00:09 dev v1");
            let sender = std::net::UdpSocket::bind("10.8.0.1:0").unwrap();
            crate::socket_option::set_int(sender.as_fd(), libc::SOL_UDP, UDP_SEGMENT, 1000).unwrap();
            // In native mode the sender's kernel cuts them first.
            let mut port = open(&options(XdpMode::NativeCopy)).unwrap();
            sender.send_to(&[0x5a; 12_000], "10.8.0.2:9").unwrap();
            let received = receive(&mut *port.rx[0], 12);
            assert_eq!(received.len(), 12);
            for frame in &received {
                assert_eq!(frame.len(), 1042);
                assert_right_checksum(frame);
            }
            drop(port);
            // In generic mode the original segments cannot be recovered.
            let mut port = open(&options(XdpMode::GenericCopy)).unwrap();
            sender.send_to(&[0x5a; 12_000], "10.8.0.2:9").unwrap();
            sender.send_to(&[0x5a; 500], "10.8.0.2:9").unwrap();
            assert_eq!(receive(&mut *port.rx[0], 1)[0].len(), 542);
            let counted = port.rx[0].counters();
            assert_eq!((counted.frames, counted.missed + counted.refused), (1, 1));
            assert_eq!(
                counted.refused,
                u64::from(mtu == 9000),
                "several pieces come up to us, and are refused here"
            );
            drop(port);
            ip("link delete v0");
        }
    });
}

#[test]
fn received_segments_are_not_merged_meanwhile() {
    in_namespace("live::xdp::tests::received_segments_are_not_merged_meanwhile", || {
        let _far = veth(1500, "");
        let v0 = Interface::find("v0").unwrap();
        for (mode, meanwhile) in [(XdpMode::NativeCopy, true), (XdpMode::GenericCopy, false)] {
            for before in [true, false] {
                v0.set_gro(before).unwrap();
                let port = open(&options(mode)).unwrap();
                let now = v0.set_gro(before && meanwhile).unwrap();
                // A veth with a program in it switches this on by itself; that does not matter here.
                assert!(mode.is_native() || now == (before && meanwhile));
                drop(port);
                await_detached();
                let after = v0.set_gro(before).unwrap();
                assert!(mode.is_native() || after == before, "{mode}");
            }
        }
    });
}

#[test]
fn generic_where_the_driver_cannot() {
    in_namespace("live::xdp::tests::generic_where_the_driver_cannot", || {
        // A veth refuses a program if its peer has more transmit queues than it has receive queues.
        ip("link add v0 numrxqueues 1 numtxqueues 1 type veth peer name v1 numrxqueues 4 numtxqueues 4");
        for end in ["v0", "v1"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
            ip(&format!("link set {end} up"));
        }
        let mut port = open(&XdpOptions::new("v0")).unwrap();
        assert_eq!(port.facts.mode, "af_xdp generic copy");
        let why = port.facts.why_not_better.clone().unwrap();
        assert!(why.starts_with("native zero-copy: bpf(LINK_CREATE): "), "{why}");
        assert!(why.contains("; native copy: bpf(LINK_CREATE): "), "{why}");
        both_ways(&FarEnd::of("v1"), &mut port, &[60, 1514]);
    });
}

#[test]
fn what_finds_no_room_is_counted() {
    in_namespace("live::xdp::tests::what_finds_no_room_is_counted", || {
        let far = veth(1500, "");
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let small = XdpOptions { rx_frames: 64, tx_frames: 64, ..options(mode) };
            let mut port = open(&small).unwrap();
            let sent: Vec<_> = (0..500).map(|i| frame(i, 200)).collect();
            for frame in &sent {
                far.send(frame);
            }
            assert_eq!(receive(&mut *port.rx[0], 64), sent[..64]);
            let counted = port.rx[0].counters();
            assert_eq!((counted.frames, counted.missed, counted.refused), (64, 436, 0));
            // And goes on.
            far.send(&sent[7]);
            assert_eq!(receive(&mut *port.rx[0], 1), sent[7..8]);

            for frame in &sent[..64] {
                port.tx.push(frame).unwrap();
            }
            assert_eq!(port.tx.push(&sent[64]), Err(NotTaken::Full));
            assert_eq!(port.tx.counters().frames, 0);
            port.tx.flush().unwrap();
            assert_eq!(port.tx.counters().frames, 64);
            port.tx.push(&sent[64]).unwrap();
            port.tx.flush().unwrap();
            for frame in &sent[..65] {
                assert_eq!(ours(&far), *frame);
            }

            // A chunk without room takes as many as fit; one that could never take the frame loses it.
            for frame in &sent[..3] {
                far.send(frame);
            }
            let mut into = ChunkBuilder::with_capacity(450);
            assert_eq!(port.rx[0].receive(0, 0, 9, &mut into).unwrap(), 2);
            assert_eq!(frames(&into.finish(0, 1, 0)), sent[..2]);
            let mut into = ChunkBuilder::with_capacity(100);
            assert_eq!(port.rx[0].receive(0, 0, 9, &mut into).unwrap(), 0);
            assert_eq!(port.rx[0].counters().refused, 1);
        }
    });
}

/// Waits until the interface sees itself in `state`, five seconds at most.
fn await_state(name: &str, state: interface::State) {
    let interface = Interface::find(name).unwrap();
    let start = Instant::now();
    while interface.state() != state && start.elapsed() < Duration::from_secs(5) {
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interface_may_go_and_come_back() {
    in_namespace("live::xdp::tests::an_interface_may_go_and_come_back", || {
        let far = veth(1500, "");
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let mut port = open(&options(mode)).unwrap();
            for down in ["v0", "v1"] {
                let before = port.tx.counters();
                port.tx.push(&frame(1, 100)).unwrap();
                ip(&format!("link set {down} down"));
                await_state("v0", interface::State::Down);
                assert_eq!(port.tx.flush().unwrap_err().raw_os_error(), Some(libc::ENETDOWN), "{down}");
                assert_eq!(port.tx.push(&frame(2, 100)), Err(NotTaken::Down));
                assert!(port.tx.flush().is_err());
                // No frame comes, which is no error: one may come again.
                let mut into = ChunkBuilder::with_capacity(10_000);
                assert_eq!(port.rx[0].receive(0, 1 << 40, 1, &mut into).unwrap(), 0);
                ip(&format!("link set {down} up"));
                await_state("v0", interface::State::Up);
                port.tx.flush().unwrap();
                port.tx.push(&frame(3, 100)).unwrap();
                port.tx.flush().unwrap();
                let after = port.tx.counters();
                // Without a carrier the frame was lost; with the interface switched off, it waited.
                let lost = u64::from(down == "v1");
                assert_eq!((after.frames - before.frames, after.failed - before.failed), (2 - lost, lost));
                while ours(&far) != frame(3, 100) {}
                let start = Instant::now();
                while far.try_send(&frame(4, 100)).is_err() && start.elapsed() < Duration::from_secs(5) {}
                assert_eq!(receive(&mut *port.rx[0], 1), [frame(4, 100)]);
            }
        }
    });
}

#[test]
fn an_interface_may_vanish() {
    in_namespace("live::xdp::tests::an_interface_may_vanish", || {
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let _far = veth(1500, "");
            let mut port = open(&options(mode)).unwrap();
            port.tx.push(&frame(1, 100)).unwrap();
            ip("link delete v0");
            let mut into = ChunkBuilder::with_capacity(10_000);
            let gone = |result: io::Result<usize>| result.unwrap_err().raw_os_error() == Some(libc::ENODEV);
            assert!(gone(port.rx[0].receive(0, 1 << 40, 1, &mut into)));
            assert!(gone(port.rx[0].receive(0, 1 << 40, 1, &mut into)));
            for _ in 0..2 {
                assert_eq!(port.tx.flush().unwrap_err().raw_os_error(), Some(libc::ENODEV));
                assert_eq!(port.tx.push(&frame(2, 100)), Err(NotTaken::Down));
                let counted = port.tx.counters();
                assert_eq!((counted.frames, counted.failed), (0, 1));
            }
            // An interface of the same name is a different one.
            drop(port);
            let far = veth(1500, "");
            both_ways(&far, &mut open(&options(mode)).unwrap(), &[60, 61]);
            ip("link delete v0");
        }
    });
}

#[test]
fn a_port_comes_back_with_its_interface() {
    in_namespace("live::xdp::tests::a_port_comes_back_with_its_interface", || {
        let far = veth(1500, "");
        let open = || open(&options(XdpMode::NativeCopy));
        let mut port = crate::live::reopen::open_again(Box::new(open)).unwrap();
        both_ways(&far, &mut port, &[60, 700]);
        let before = (port.rx[0].counters(), port.tx.counters());
        port.tx.push(&frame(1, 100)).unwrap();
        ip("link delete v0");
        let gone = |port: &mut crate::live::Port| {
            let mut into = ChunkBuilder::with_capacity(10_000);
            let received = port.rx[0].receive(0, 1 << 40, 1, &mut into);
            assert_eq!(received.unwrap_err().raw_os_error(), Some(libc::ENODEV));
            assert_eq!(port.tx.flush().unwrap_err().raw_os_error(), Some(libc::ENODEV));
            assert_eq!(port.tx.push(&frame(2, 100)), Err(NotTaken::Down));
        };
        gone(&mut port);
        gone(&mut port);
        let far = veth(1500, "");
        let start = Instant::now();
        // Whichever half asks first, the other one gets its own.
        while port.tx.flush().is_err() && start.elapsed() < Duration::from_secs(5) {}
        let mut into = ChunkBuilder::with_capacity(10_000);
        assert_eq!(port.rx[0].receive(0, 2 << 40, 1, &mut into).unwrap(), 0);
        far.send(&frame(3, 100));
        assert_eq!(receive(&mut *port.rx[0], 1), [frame(3, 100)]);
        port.tx.push(&frame(4, 100)).unwrap();
        port.tx.flush().unwrap();
        assert_eq!(ours(&far), frame(4, 100));
        let after = (port.rx[0].counters(), port.tx.counters());
        assert_eq!((after.0.frames, after.1.frames), (before.0.frames + 1, before.1.frames + 1));
        assert_eq!((before.1.failed, after.1.failed), (0, 1));
        ip("link delete v0");
    });
}

#[test]
fn what_another_one_holds_is_named() {
    in_namespace("live::xdp::tests::what_another_one_holds_is_named", || {
        let far = veth(1500, "");
        let first = open(&options(XdpMode::NativeCopy)).unwrap();
        let number = program_of_v0().unwrap().program;
        for mode in [XdpMode::NativeCopy, XdpMode::GenericCopy] {
            let Err(error) = open(&options(mode)) else { panic!("opened twice") };
            let text = error.to_string();
            assert!(matches!(error, LiveError::Occupied { .. }), "{text}");
            assert!(text.contains(&format!("number {number} (thalweg_xdp), held by BPF link ")), "{text}");
        }
        drop(first);
        both_ways(&far, &mut open(&options(XdpMode::NativeCopy)).unwrap(), &[60, 1514]);
    });
}

/// Set for the process that will be killed.
const VICTIM: &str = "THALWEG_TEST_VICTIM";

#[test]
fn nothing_is_left_after_a_kill() {
    let name = "live::xdp::tests::nothing_is_left_after_a_kill";
    in_namespace(name, || {
        if std::env::var_os(VICTIM).is_some() {
            let _port = open(&options(XdpMode::NativeCopy)).unwrap();
            println!("opened");
            sleep(Duration::from_secs(60));
            return;
        }
        let far = veth(1500, "");
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(VICTIM, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(victim.stdout.take().unwrap());
        assert!(said.lines().any(|line| line.unwrap().contains("opened")));
        assert!(program_of_v0().is_some());
        for _ in 0..10 {
            far.send(&frame(1, 100));
        }
        victim.kill().unwrap();
        // At once, while the kernel may still be removing the old one.
        let mut port = open(&options(XdpMode::NativeCopy)).unwrap();
        both_ways(&far, &mut port, &[60, 1514, 700]);
        victim.wait().unwrap();
        drop(port);
        await_detached();
    });
}

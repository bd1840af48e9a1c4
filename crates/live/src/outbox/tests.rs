use super::*;

use std::io;
use std::sync::Mutex as StdMutex;

use thalweg_dataplane::egress::{EgressClass, EgressConfig};
use thalweg_dataplane::schedule::Service;
use thalweg_ports::live::TxCounters;
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::testing;

/// A driver with limited room, and the frames that it accepted.
#[derive(Clone, Default)]
struct Driver(Arc<StdMutex<Taken>>);

#[derive(Default)]
struct Taken {
    room: usize,
    is_down: bool,
    /// It accepts frames but does not send them.
    is_stuck: bool,
    /// It sends merged frames whole.
    takes_merged: bool,
    kept: Vec<Vec<u8>>,
    frames: Vec<Vec<u8>>,
}

impl Driver {
    fn with<T>(&self, act: impl FnOnce(&mut Taken) -> T) -> T {
        act(&mut self.0.lock().expect("no test panics with it"))
    }
}

impl PortTx for Driver {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        self.with(|taken| {
            if taken.is_down {
                return Err(NotTaken::Down);
            }
            if frame.len() > 1514 {
                return Err(NotTaken::TooLong);
            }
            if taken.room == 0 {
                return Err(NotTaken::Full);
            }
            taken.room -= 1;
            let place = if taken.is_stuck { &mut taken.kept } else { &mut taken.frames };
            place.push(frame.to_vec());
            Ok(())
        })
    }

    fn push_merged(&mut self, frame: &[u8], _: u16) -> Result<(), NotTaken> {
        self.with(|taken| {
            if !taken.takes_merged {
                return Err(NotTaken::Merged);
            }
            if taken.room == 0 {
                return Err(NotTaken::Full);
            }
            taken.room -= 1;
            taken.frames.push(frame.to_vec());
            Ok(())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|taken| {
            if !taken.is_stuck {
                let kept = std::mem::take(&mut taken.kept);
                taken.frames.extend(kept);
            }
            if taken.is_down { Err(io::Error::other("down")) } else { Ok(()) }
        })
    }

    fn pending(&self) -> usize {
        self.with(|taken| taken.kept.len())
    }

    fn counters(&mut self) -> TxCounters {
        TxCounters::default()
    }
}

fn config(rate_bps: Option<u64>) -> EgressConfig {
    let class = EgressClass {
        name: "default".to_owned(),
        service: Service::Weight(1),
        rate_bps: None,
        burst_bytes: 3000,
        limit_packets: 8,
        limit_bytes: 1 << 20,
        aqm: None,
    };
    EgressConfig {
        rate_bps,
        burst_bytes: 3000,
        overhead_bytes: 0,
        strict_share_percent: 90,
        default_class: 0,
        classes: vec![class],
    }
}

/// Port 0 has VLANs 10 (port 1) and 20 (port 2).
const VLANS: [(u16, u16, u16); 2] = [(1, 0, 10), (2, 0, 20)];

fn outbox(driver: &Driver, queue: Option<EgressConfig>) -> (Outbox, Arc<Counters>) {
    let counters = Arc::new(Counters::new(3));
    let queue = queue.map(EgressQueue::new);
    let halves = (Box::new(driver.clone()) as _, Vec::new());
    let outbox = Outbox::new(0, halves, queue, VlanTable::new(VLANS), counters.clone());
    (outbox, counters)
}

fn send(outbox: &Outbox, frames: &[Vec<u8>], now_ns: u64) -> Rest {
    let mut open = outbox.open();
    frames.iter().for_each(|frame| open.send(0, frame, now_ns));
    open.finish(now_ns)
}

fn frames(count: u8, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number; bytes]).collect()
}

#[test]
fn without_a_queue_frames_go_at_once_or_are_dropped() {
    let driver = Driver::default();
    driver.with(|taken| taken.room = 3);
    let (outbox, counters) = outbox(&driver, None);
    assert_eq!(send(&outbox, &frames(5, 100), 0), Rest::Empty);
    assert_eq!(driver.with(|taken| taken.frames.clone()), frames(3, 100));
    assert_eq!(counters.dropped(), [(DropReason::TransmitFailed, 2)]);
    assert_eq!(counters.port(0).sent.get(), (3, 300));
    driver.with(|taken| (taken.room, taken.is_down) = (9, true));
    send(&outbox, &frames(2, 100), 1);
    driver.with(|taken| taken.is_down = false);
    send(&outbox, &[vec![0; 2000]], 2);
    assert_eq!(counters.dropped(), [(DropReason::TransmitFailed, 5)]);
    assert_eq!(outbox.queued(), 0);
}

#[test]
fn what_a_driver_keeps_is_asked_for_again_soon() {
    let driver = Driver::default();
    driver.with(|taken| (taken.room, taken.is_stuck) = (9, true));
    let (outbox, _) = outbox(&driver, None);
    let Rest::Until(at_ns) = send(&outbox, &frames(3, 100), 0) else { panic!("three frames are left") };
    assert_eq!(outbox.serve(at_ns), Rest::Until(2 * at_ns));
    driver.with(|taken| taken.is_down = true);
    assert_eq!(outbox.serve(at_ns), Rest::Empty, "a port that is down is not retried continuously");
    driver.with(|taken| (taken.is_down, taken.is_stuck) = (false, false));
    assert_eq!(outbox.serve(2 * at_ns), Rest::Empty);
    assert_eq!(driver.with(|taken| taken.frames.clone()), frames(3, 100));
}

#[test]
fn a_queue_waits_for_a_driver_that_is_full() {
    let driver = Driver::default();
    driver.with(|taken| taken.room = 2);
    let (outbox, counters) = outbox(&driver, Some(config(None)));
    assert!(matches!(send(&outbox, &frames(6, 100), 0), Rest::Until(_)));
    assert_eq!((driver.with(|taken| taken.frames.len()), outbox.queued()), (2, 4));
    driver.with(|taken| taken.room = 10);
    assert_eq!(outbox.serve(1_000_000), Rest::Empty);
    assert_eq!(driver.with(|taken| taken.frames.clone()), frames(6, 100), "in order, none twice");
    assert_eq!((counters.dropped(), outbox.queued()), (vec![], 0));
}

#[test]
fn what_does_not_fit_the_queue_is_dropped_by_name() {
    let driver = Driver::default();
    let (outbox, counters) = outbox(&driver, Some(config(None)));
    // One frame is held for the driver, eight wait.
    send(&outbox, &frames(1, 100), 0);
    send(&outbox, &frames(10, 100), 1);
    let dropped: u64 = counters.dropped().iter().map(|(_, count)| count).sum();
    assert_eq!((outbox.queued(), dropped), (9, 2));
    assert_eq!(counters.dropped(), [(DropReason::QueueFull, 2)]);
}

#[test]
fn a_shaped_port_sends_by_the_clock() {
    let driver = Driver::default();
    driver.with(|taken| taken.room = 100);
    // At 8 Mbit/s a byte takes a microsecond.
    let (outbox, _) = outbox(&driver, Some(config(Some(8_000_000))));
    let Rest::Until(at_ns) = send(&outbox, &frames(8, 1000), 0) else { panic!("it has to wait") };
    assert_eq!(driver.with(|taken| taken.frames.len()), 3, "the burst");
    assert_eq!(at_ns, 1_000_000, "a byte a microsecond");
    let mut now_ns = 0;
    while let Rest::Until(until_ns) = outbox.serve(now_ns) {
        assert!(until_ns > now_ns, "time goes on");
        now_ns = until_ns;
    }
    assert_eq!((driver.with(|taken| taken.frames.len()), now_ns), (8, 5_000_000));
}

/// Sub-interfaces send through their parent, tagged and with counters of their own, with and without a queue.
#[test]
fn sub_interfaces_share_their_parents_way_out() {
    for queue in [None, Some(config(None))] {
        let driver = Driver::default();
        driver.with(|taken| taken.room = 64);
        let (parent, counters) = outbox(&driver, queue);
        let sub = |vlan| parent.sub_interface(EgressTag { parent: 0, tci: vlan });
        let subs = [sub(10), sub(20)];
        let frame = [&[7; 12], &[0x08, 0x00][..], &[1; 50]].concat();
        let mut expected = Vec::new();
        for (from, vlan) in
            [(&parent, None), (&subs[0], Some(10)), (&subs[1], Some(20)), (&subs[0], Some(10))]
        {
            send(from, std::slice::from_ref(&frame), 0);
            let tag = vlan.map_or(vec![], |vlan| vec![0x81, 0, 0, vlan]);
            expected.push([&frame[..12], &tag, &frame[12..]].concat());
        }
        // A frame that is too short for a header, and so cannot be tagged.
        send(&subs[1], &[vec![1; 11]], 0);
        driver.with(|taken| assert_eq!(taken.frames, expected));
        let sent: Vec<_> = counters.ports.iter().map(|port| port.sent.get()).collect();
        assert_eq!(sent[..3], [(1, 64), (2, 136), (1, 68)]);
        assert_eq!(counters.dropped(), [(DropReason::TransmitFailed, 1)]);
        assert!(subs.iter().all(|sub| sub.is_sub_interface() && sub.queued() == 0));
        assert!(subs.iter().all(|sub| sub.serve(0) == Rest::Empty && sub.with_queue(|_| ()).is_none()));
    }
}

#[test]
fn another_queue_keeps_what_waits_and_in_order() {
    let driver = Driver::default();
    driver.with(|taken| taken.room = 1);
    let (outbox, counters) = outbox(&driver, Some(config(None)));
    send(&outbox, &frames(6, 100), 0);
    assert_eq!((driver.with(|taken| taken.frames.len()), outbox.queued()), (1, 5), "one is held");
    // A slower queue with another class; then none, which takes effect once the queue is empty.
    let mut other = config(Some(8_000_000));
    other.classes[0].name = "other".to_owned();
    outbox.set_queue(Some(other), 1);
    assert_eq!(outbox.queued(), 5);
    outbox.set_queue(None, 2);
    assert_eq!(outbox.queued(), 5);
    send(&outbox, &[vec![6; 100]], 3);
    assert_eq!(driver.with(|taken| taken.frames.len()), 1, "the packet waits behind the others");
    driver.with(|taken| taken.room = 100);
    assert_eq!(outbox.serve(1_000_000), Rest::Empty);
    assert_eq!(driver.with(|taken| taken.frames.clone()), frames(7, 100), "all of them, in order");
    assert!(outbox.with_queue(|_| ()).is_none(), "the queue is gone");
    send(&outbox, &[vec![7; 100]], 2_000_000);
    assert_eq!(driver.with(|taken| taken.frames.clone()), frames(8, 100));
    assert_eq!((counters.dropped(), counters.port(0).sent.get()), (vec![], (8, 800)));
    // Back to a queue.
    outbox.set_queue(Some(config(None)), 3_000_000);
    assert!(outbox.with_queue(|_| ()).is_some());
    outbox.set_queue(None, 3_000_001);
    assert!(outbox.with_queue(|_| ()).is_none(), "an empty queue is removed at once");
}

/// The thread that serves queues may be delayed: each sender then dequeues more than it enqueues.
#[test]
fn a_queue_that_may_send_gets_shorter_by_everybody_who_sends() {
    let driver = Driver::default();
    let mut deep = config(None);
    deep.classes[0].limit_packets = 1000;
    let (outbox, counters) = outbox(&driver, Some(deep));
    for _ in 0..4 {
        send(&outbox, &frames(200, 100), 0);
    }
    assert_eq!(outbox.queued(), 800);
    outbox.set_queue(None, 1);
    driver.with(|taken| taken.room = usize::MAX);
    let mut waiting = outbox.queued();
    let mut rounds = 0;
    while outbox.with_queue(|_| ()).is_some() {
        send(&outbox, &frames(200, 100), 2 + rounds);
        assert!(outbox.queued() < waiting, "{} of {waiting}", outbox.queued());
        (waiting, rounds) = (outbox.queued(), rounds + 1);
    }
    assert_eq!(driver.with(|taken| taken.frames.len() as u64), 800 + 200 * rounds);
    assert_eq!(counters.dropped(), []);
}

#[test]
fn a_frame_that_is_held_alone_is_sent_without_a_queue() {
    let driver = Driver::default();
    let (outbox, _) = outbox(&driver, Some(config(None)));
    send(&outbox, &frames(1, 100), 0);
    outbox.set_queue(None, 1);
    assert_eq!(outbox.queued(), 1);
    driver.with(|taken| taken.room = 1);
    assert_eq!(outbox.serve(1_000_000), Rest::Empty);
    assert_eq!(driver.with(|taken| taken.frames.clone()), frames(1, 100));
    assert_eq!(outbox.queued(), 0);
    assert!(outbox.with_queue(|_| ()).is_none());
}

/// A removed port: waiting and late packets are dropped with a reason, and the driver is closed.
#[test]
fn what_a_port_that_goes_still_has_is_counted() {
    let driver = Driver::default();
    let (outbox, counters) = outbox(&driver, Some(config(Some(8_000_000))));
    driver.with(|taken| taken.room = 9);
    send(&outbox, &frames(6, 1000), 0);
    let (sent, _) = counters.port(0).sent.get();
    assert!(outbox.queued() == 6 - sent && (1..6).contains(&sent));
    let vlan = outbox.sub_interface(EgressTag { parent: 0, tci: 10 });
    let halves = outbox.shut(1);
    assert_eq!((halves.len(), outbox.queued()), (1, 0));
    assert_eq!(counters.dropped(), [(DropReason::TransmitFailed, 6 - sent)]);
    send(&outbox, &frames(2, 100), 2);
    send(&vlan, &frames(3, 100), 2);
    assert_eq!(counters.dropped(), [(DropReason::TransmitFailed, 11 - sent)]);
    assert_eq!(driver.with(|taken| taken.frames.len()) as u64, sent, "the driver has no more");
}

#[test]
fn what_keeps_a_router_in_the_network_goes_before_what_waits() {
    let ip = |tos: u8| [&[9; 12][..], &[8, 0, 0x45, tos], &[0; 30]].concat();
    let ip6 = |class: u8, kind: u8| {
        let head = [0x60 | class >> 4, class << 4, 0, 0, 0, 8, 58, 255];
        [&[9; 12][..], &[0x86, 0xdd], &head, &[0; 32], &[kind; 8]].concat()
    };
    let arp = [&[9; 12][..], &[8, 6], &[0; 28]].concat();
    let urgent = [arp, ip(0xc0), ip(0xe0), ip6(0xc0, 1), ip6(0, 135)];
    let others = [ip(0), ip(0xb8), ip6(0, 128), ip6(0xb8, 1), vec![9; 14], vec![]];
    assert!(urgent.iter().all(|frame| is_urgent(frame)));
    assert!(!others.iter().any(|frame| is_urgent(frame)));

    let driver = Driver::default();
    let (outbox, counters) = outbox(&driver, Some(config(None)));
    // The first frame is held for the driver, which has no room.
    send(&outbox, &frames(9, 100), 0);
    let mut open = outbox.open();
    open.send_own(0, &others[0], 1);
    open.send_own(0, &urgent[1], 1);
    open.finish(1);
    assert_eq!(counters.dropped(), [(DropReason::QueueFull, 1)], "the one that is not urgent");
    driver.with(|taken| taken.room = 100);
    assert_eq!(outbox.serve(1_000_000), Rest::Empty);
    let sent = driver.with(|taken| taken.frames.clone());
    assert_eq!((sent.len(), &sent[0], &sent[1]), (10, &vec![0; 100], &urgent[1]));
}

/// Whole if the driver can and nothing waits, otherwise cut; counted as the packets that they are.
#[test]
fn merged_frames_are_sent_whole_or_cut() {
    let segment =
        testing::tcp_segment(([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into(), 0x10, [0; 2], &[7; 2500]);
    let header = Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, segment.len());
    let frame = testing::frame(&testing::ipv4(header, &segment));
    let headers = frame.len() - 2500;
    let merged = Merged { frame: &frame, segment_bytes: 1000 };
    let bytes = 2500 + 3 * headers as u64;
    let lengths =
        |driver: &Driver| driver.with(|taken| taken.frames.iter().map(Vec::len).collect::<Vec<_>>());
    for (takes_merged, queue) in [(true, None), (false, None), (true, Some(config(None)))] {
        let driver = Driver::default();
        driver.with(|taken| (taken.room, taken.takes_merged) = (9, takes_merged));
        let (parent, counters) = outbox(&driver, queue);
        let whole = takes_merged && parent.with_queue(|_| ()).is_none();
        let vlan = parent.sub_interface(EgressTag { parent: 0, tci: 10 });
        for (from, port, tag) in [(&parent, 0, 0), (&vlan, 1, TAG_BYTES)] {
            driver.with(|taken| taken.frames.clear());
            let mut open = from.open();
            open.send_merged(0, merged, 0);
            open.finish(0);
            let each = [1000, 1000, 500].map(|payload| payload + headers + tag).to_vec();
            assert_eq!(lengths(&driver), if whole { vec![frame.len() + tag] } else { each });
            assert_eq!(counters.port(port).sent.get(), (3, bytes + 3 * tag as u64));
        }
        assert_eq!(counters.dropped(), []);
        driver.with(|taken| (taken.room, taken.is_down) = (0, !whole));
        if whole || !takes_merged {
            let mut open = parent.open();
            open.send_merged(0, merged, 0);
            open.finish(0);
            assert_eq!(counters.dropped(), [(DropReason::TransmitFailed, 3)]);
        }
    }
}

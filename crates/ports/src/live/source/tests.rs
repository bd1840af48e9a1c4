//! The source's promises, on ports made of lists.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use thalweg_base::LinkType;

/// The frames to come, and whether the port is broken. Its descriptor is always ready.
#[derive(Clone)]
struct Scripted {
    frames: Arc<Mutex<VecDeque<Vec<u8>>>>,
    broken: Arc<AtomicBool>,
    always_ready: Arc<File>,
    /// It has no descriptor.
    polled: bool,
    /// How many times it has no frame before it has one.
    late: Arc<AtomicU32>,
}

impl Scripted {
    fn new(tag: u8, frames: usize) -> Self {
        let always_ready = system::event_counter().unwrap();
        (&always_ready).write_all(&1_u64.to_ne_bytes()).unwrap();
        Self {
            frames: Arc::new(Mutex::new((0..frames).map(|number| vec![tag, number as u8]).collect())),
            broken: Arc::default(),
            always_ready: Arc::new(always_ready),
            polled: false,
            late: Arc::default(),
        }
    }

    fn half(&self, port: u16) -> (u16, Box<dyn PortRx>) {
        (port, Box::new(self.clone()))
    }
}

impl PortRx for Scripted {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        if self.late.load(Ordering::Relaxed) > 0 {
            self.late.fetch_sub(1, Ordering::Relaxed);
            return Ok(0);
        }
        let mut taken = 0;
        let mut frames = self.frames.lock().unwrap();
        while taken < limit {
            let at = into.next_frame_offset();
            let room = into.buffer_mut().len() - at;
            let Some(frame) = frames.pop_front_if(|frame| frame.len() <= room) else { break };
            into.buffer_mut()[at..at + frame.len()].copy_from_slice(&frame);
            into.push(at, frame.len(), frame.len() as u32, now_ns, LinkType::Ethernet, port, 0);
            taken += 1;
        }
        Ok(taken)
    }

    fn fd(&self) -> std::os::fd::RawFd {
        if self.polled { -1 } else { self.always_ready.as_raw_fd() }
    }

    fn is_polled(&self) -> bool {
        self.polled
    }

    fn counters(&mut self) -> RxCounters {
        RxCounters::default()
    }
}

fn source(ports: &[&Scripted], chunk_packets: usize) -> LiveSource {
    let halves = ports.iter().zip(0..).map(|(port, number)| port.half(number)).collect();
    let options = SourceOptions { chunk_packets, ..SourceOptions::default() };
    LiveSource::new(halves, options, LiveClock::start()).unwrap()
}

const NOW: Duration = Duration::ZERO;

fn per_port(chunk: &Chunk, ports: usize) -> Vec<usize> {
    (0..ports).map(|port| chunk.packets().iter().filter(|p| usize::from(p.port_in) == port).count()).collect()
}

#[test]
fn ports_share_a_chunk_and_none_is_left_out() {
    let (busy, quiet, other) = (Scripted::new(1, 100), Scripted::new(2, 2), Scripted::new(3, 30));
    let mut source = source(&[&busy, &quiet, &other], 12);
    // A third each; the others get what the quiet one leaves.
    let chunk = source.next_chunk(NOW).unwrap().unwrap();
    let shares = per_port(&chunk, 3);
    assert_eq!((shares[1], shares.iter().sum::<usize>()), (2, 12), "{shares:?}");
    assert!(shares[0] >= 4 && shares[2] >= 4, "{shares:?}");
    let mut total = 12;
    while let Some(chunk) = source.next_chunk(NOW).unwrap() {
        let shares = per_port(&chunk, 3);
        assert!(shares[0] == 12 || shares[2] > 0 || total > 40, "{shares:?}");
        total += chunk.packets().len();
    }
    assert_eq!(total, 132);
}

#[test]
fn each_port_begins_in_turn() {
    let ports = [Scripted::new(1, 50), Scripted::new(2, 50), Scripted::new(3, 50)];
    let mut source = source(&[&ports[0], &ports[1], &ports[2]], 1);
    let mut order = Vec::new();
    for _ in 0..9 {
        order.push(source.next_chunk(NOW).unwrap().unwrap().packets()[0].port_in);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn numbers_and_clock_have_no_gaps() {
    let port = Scripted::new(1, 1000);
    let mut source = source(&[&port], 64);
    let (mut packets, mut sequence, mut clock_ns) = (0, 0, 0);
    while let Some(chunk) = source.next_chunk(NOW).unwrap() {
        assert_eq!((chunk.sequence, chunk.first_packet_number), (sequence, packets + 1));
        assert!(chunk.clock_ns >= clock_ns);
        assert_eq!(chunk.frame(0), [1, packets as u8]);
        (packets, sequence, clock_ns) =
            (packets + chunk.packets().len() as u64, sequence + 1, chunk.clock_ns);
    }
    assert_eq!((packets, sequence), (1000, 16));
}

#[test]
fn a_source_has_run_dry_when_a_chunk_takes_all_there_is() {
    let port = Scripted::new(1, 10);
    let mut source = source(&[&port], 4);
    for left in [6, 2, 0] {
        let chunk = source.next_chunk(NOW).unwrap().unwrap();
        assert_eq!(port.frames.lock().unwrap().len(), left);
        let dry_ns = if left > 0 { 0 } else { chunk.packets()[0].arrival_ns };
        assert_eq!(source.dry_ns(), dry_ns);
    }
}

#[test]
fn a_failure_is_said_once_and_tried_again() {
    let (good, bad) = (Scripted::new(1, 10), Scripted::new(2, 10));
    bad.broken.store(true, Ordering::Relaxed);
    let mut source = source(&[&good, &bad], 5);
    for _ in 0..2 {
        assert_eq!(per_port(&source.next_chunk(NOW).unwrap().unwrap(), 2), [5, 0]);
    }
    let change = source.poll_change().unwrap();
    assert_eq!((change.port, change.half), (1, 1));
    assert_eq!(change.failed.unwrap().raw_os_error(), Some(libc::ENETDOWN));
    assert!(source.poll_change().is_none());
    bad.broken.store(false, Ordering::Relaxed);
    // The good one's descriptor is always ready here, but it has no frame.
    let chunk = source.next_chunk(Duration::from_secs(20)).unwrap().unwrap();
    assert_eq!(per_port(&chunk, 2), [0, 5]);
    assert!(source.poll_change().unwrap().failed.is_none());
}

#[test]
fn who_is_quiet_is_asked_though_another_fills_every_chunk() {
    let (busy, quiet) = (Scripted::new(1, 1000), Scripted::new(2, 0));
    let mut source = source(&[&busy, &quiet], 4);
    // Both are asked; the quiet one has nothing.
    assert_eq!(per_port(&source.next_chunk(NOW).unwrap().unwrap(), 2), [4, 0]);
    assert_eq!(per_port(&source.next_chunk(NOW).unwrap().unwrap(), 2), [4, 0]);
    quiet.frames.lock().unwrap().push_back(vec![2, 0]);
    assert_eq!(per_port(&source.next_chunk(NOW).unwrap().unwrap(), 2), [3, 1]);
}

#[test]
fn a_chunk_has_no_more_bytes_than_the_pace_allows() {
    let port = Scripted::new(1, 0);
    let frames = (0..400).map(|number| vec![number as u8; 1500]).collect();
    *port.frames.lock().unwrap() = frames;
    let mut source = source(&[&port], 400);
    let mut got = 0;
    while let Some(chunk) = source.next_chunk(NOW).unwrap() {
        let bytes: usize = (0..chunk.packets().len()).map(|at| chunk.frame(at).len()).sum();
        assert!(bytes <= pace::BYTES_MAX, "{bytes}");
        got += chunk.packets().len();
    }
    assert_eq!(got, 400);
}

#[test]
fn what_has_to_be_polled_is_asked_without_being_ready() {
    let polled = Scripted { polled: true, ..Scripted::new(1, 0) };
    let broken = Scripted { polled: true, ..Scripted::new(2, 5) };
    broken.broken.store(true, Ordering::Relaxed);
    let mut source = source(&[&polled, &broken], 16);
    assert!(source.next_chunk(Duration::from_millis(1)).unwrap().is_none(), "it has nothing");
    assert_eq!(source.poll_change().unwrap().port, 1);
    // A frame that nothing announces arrives while the source naps.
    let frames = polled.frames.clone();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(2 * SPIN_FOR);
        frames.lock().unwrap().push_back(vec![1, 0]);
    });
    assert_eq!(source.next_chunk(Duration::from_secs(20)).unwrap().unwrap().frame(0), [1, 0]);
    sender.join().unwrap();
    // A failed one is retried like any other, and a wake ends the wait.
    broken.broken.store(false, Ordering::Relaxed);
    assert_eq!(per_port(&source.next_chunk(Duration::from_secs(20)).unwrap().unwrap(), 2), [0, 5]);
    source.waker().wake();
    let began = Instant::now();
    assert!(source.next_chunk(Duration::from_secs(3600)).unwrap().is_none());
    assert!(began.elapsed() < Duration::from_secs(1800));
}

#[test]
fn a_wake_ends_the_wait() {
    let halves = Vec::new();
    let mut source = LiveSource::new(halves, SourceOptions::default(), LiveClock::start()).unwrap();
    let waker = source.waker();
    waker.wake();
    waker.wake();
    let began = Instant::now();
    assert!(source.next_chunk(Duration::from_secs(3600)).unwrap().is_none());
    assert!(began.elapsed() < Duration::from_secs(1800));
    // It counted once.
    assert!(source.next_chunk(NOW).unwrap().is_none());
    let thread = std::thread::spawn(move || waker.wake());
    assert!(source.next_chunk(Duration::from_secs(3600)).unwrap().is_none());
    thread.join().unwrap();
}

#[test]
fn the_rate_is_that_of_the_last_window() {
    let mut rate = Rate::default();
    let (start, window) = (1_000_000_000_000, RATE_WINDOW_NS);
    rate.add(1, start);
    assert!(!rate.is_high(start), "one packet since the epoch");
    for at in 1..=10 {
        rate.add(20, start + at * window / 10);
    }
    assert!(rate.is_high(start + window), "200 in a millisecond");
    assert!(!rate.is_high(start + 3 * window), "and none since");
    rate.add(50, start + 3 * window);
    assert!(!rate.is_high(start + 3 * window), "25 in a millisecond");
}

#[test]
fn halves_come_and_go() {
    let [first, second, third] = [0, 1, 2].map(|tag| Scripted::new(tag, 3));
    let mut source = source(&[&first, &second], 64);
    let chunk = source.next_chunk(NOW).unwrap().expect("there are frames");
    assert_eq!(per_port(&chunk, 3), [3, 3, 0]);
    second.frames.lock().unwrap().push_back(vec![1, 9]);
    // Longer frames than before fit too.
    third.frames.lock().unwrap().push_back(vec![2; 9000]);
    let back = source.exchange(&[1], vec![third.half(2)], 9018);
    assert_eq!((back.len(), source.counters().map(|(port, _)| port).collect::<Vec<_>>()), (1, vec![0, 2]));
    let next = source.next_chunk(NOW).unwrap().expect("there are frames");
    assert_eq!(per_port(&next, 3), [0, 0, 4], "nothing by the one that is gone");
    assert_eq!(next.frame(3).len(), 9000);
    assert_eq!((next.sequence, next.first_packet_number), (1, 7), "numbers go on");
}

/// A port whose descriptor announces nothing is polled all the same, once that has paid.
#[test]
fn a_busy_polling_source_asks_instead_of_waiting() {
    let port = Scripted::new(1, 2);
    let options =
        SourceOptions { chunk_packets: 1, busy_poll: Duration::from_secs(60), ..SourceOptions::default() };
    let mut source = LiveSource::new(vec![port.half(0)], options, LiveClock::start()).unwrap();
    source.spin = Spin::alone(options.busy_poll);
    port.late.store(1, Ordering::Relaxed);
    let first = source.next_chunk(Duration::from_secs(20)).unwrap();
    assert!(first.is_some(), "its descriptor says so");
    (&*port.always_ready).read_exact(&mut [0; 8]).unwrap();
    port.late.store(1000, Ordering::Relaxed);
    let second = source.next_chunk(Duration::from_secs(20)).unwrap();
    assert!(second.is_some(), "only who asks hears of it");
    assert_eq!(port.late.load(Ordering::Relaxed), 0);
    // A wake-up ends the polling.
    source.waker().wake();
    assert!(source.next_chunk(Duration::from_secs(20)).unwrap().is_none());
}

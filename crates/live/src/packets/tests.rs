use super::*;

use std::sync::mpsc;

use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_config::RouterConfig;
use thalweg_exec::ModelKind;
use thalweg_node::plan::RouterPlan;

use crate::received::Received;

const CONFIG: &str = r#"
[ports.lan]
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24"]
[ports.wan]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24"]
default_mac = "02:00:00:00:ff:02"
[[routes]]
prefix = "0.0.0.0/0"
via = "198.51.100.2"
"#;

fn plan(extra: &str) -> RouterPlan {
    let text = format!("{CONFIG}{extra}");
    let config = RouterConfig::from_text("test.toml", &text, std::path::Path::new("")).expect("valid");
    RouterPlan::from_config(&config, None).expect("it can be built")
}

/// Chunks of numbered datagrams, as fast as they are read, like a live feed. Numbers start again for each model,
/// and the exchange ends the input. With several lanes, each has the datagrams of its own hosts.
struct Endless {
    lane: u32,
    lanes: u32,
    exchange: Arc<Exchange>,
    stop: Arc<AtomicBool>,
    sequence: u64,
    given: u32,
    has_ended: bool,
}

const CHUNK: u32 = 64;

impl Source<Chunk> for Endless {
    fn next(&mut self) -> Option<Chunk> {
        if self.stop.load(Ordering::Acquire) || self.exchange.is_wanted() {
            (self.sequence, self.has_ended) = (0, true);
            return None;
        }
        if std::mem::take(&mut self.has_ended) {
            self.exchange.resumes();
        }
        let mut builder = ChunkBuilder::with_capacity(CHUNK as usize * 128);
        for _ in 0..CHUNK {
            let packet = datagram(self.given * self.lanes + self.lane);
            self.given += 1;
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + packet.len()].copy_from_slice(&packet);
            builder.push(at, packet.len(), packet.len() as u32, 1, LinkType::RawIp, 0, 0);
        }
        self.exchange.gives(CHUNK as usize);
        let chunk = builder.finish(self.sequence, 1, 0);
        self.sequence += 1;
        Some(chunk)
    }
}

/// A datagram from one of 16 hosts to the outside, with its number as payload.
fn datagram(number: u32) -> Vec<u8> {
    let mut packet =
        vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2 + (number % 16) as u8, 192, 0, 2, 9];
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet.extend([0x13, 0x88, 0, 53, 0, 12, 0, 0]);
    packet.extend(number.to_be_bytes());
    packet
}

/// Records by host which numbers came through, and in which form.
struct Recorder {
    exchange: Arc<Exchange>,
    tell: mpsc::Sender<(u32, Option<thalweg_base::DropReason>, [u8; 4])>,
}

impl Sink<Chunk> for Recorder {
    fn accept(&mut self, chunk: Chunk) {
        for (i, packet) in chunk.packets().iter().enumerate() {
            let frame = chunk.frame(i);
            let number = u32::from_be_bytes([frame[28], frame[29], frame[30], frame[31]]);
            let source = [frame[12], frame[13], frame[14], frame[15]];
            // At the very end the receiver may be gone.
            let _ = self.tell.send((number, packet.drop_reason(), source));
        }
        self.exchange.takes(chunk.packets().len());
    }
}

const NAT: &str = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n";

/// In every model, plans change twenty times under load: each packet comes through once, in order within its
/// flow, and as one of the plans makes it.
#[test]
fn no_packet_is_lost_doubled_or_overtaken() {
    for (kind, workers, lanes) in [
        (ModelKind::Serial, 1, 1),
        (ModelKind::RunToCompletion, 2, 1),
        (ModelKind::RunToCompletion, 2, 2),
        (ModelKind::RunToCompletion, 4, 4),
        (ModelKind::Pipeline, 2, 1),
        (ModelKind::Tokens, 2, 1),
        (ModelKind::Farm, 2, 1),
    ] {
        let exchange = Arc::new(Exchange::new(lanes as usize));
        let stop = Arc::<AtomicBool>::default();
        let (tell, told) = mpsc::channel();
        let feed = |lane| Endless {
            lane,
            lanes,
            exchange: exchange.clone(),
            stop: stop.clone(),
            sequence: 0,
            given: 0,
            has_ended: false,
        };
        let recorder = || Recorder { exchange: exchange.clone(), tell: tell.clone() };
        let counters = Arc::new(Workers::new(None));
        let shared = Arc::new(ArcSwap::from_pointee(plan("").for_workers(workers)));
        let packets = Packets {
            plan: shared.clone(),
            lanes: (0..lanes).map(|lane| (feed(lane), recorder())).collect(),
            model: ModelOptions::new(kind, workers),
            exchange: exchange.clone(),
            workers: counters.clone(),
            counters: Arc::new(Counters::new(2)),
            stop: stop.clone(),
        };
        drop(tell);
        let thread = std::thread::spawn(move || packets.run());
        let mut seen = Vec::new();
        for round in 0..20 {
            // Waits until packets have passed each plan.
            seen.push(told.recv().expect("packets come"));
            let extra = if round % 2 == 0 { NAT } else { "" };
            let turn = move |_: &RouterPlan| plan(extra).for_workers(workers);
            exchange.swap(Box::new(turn), || (), Duration::from_secs(60)).expect("the plan is swapped");
        }
        stop.store(true, Ordering::Release);
        thread.join().expect("the thread does not panic").expect("no error");
        seen.extend(told.iter());
        assert_eq!(exchange.given.load(Ordering::Acquire), seen.len() as u64, "{kind}: none is lost");
        let mut numbers: Vec<u32> = seen.iter().map(|(number, ..)| *number).collect();
        for host in 0..16 {
            let flow: Vec<u32> = numbers.iter().copied().filter(|number| number % 16 == host).collect();
            assert!(flow.is_sorted(), "{kind}: order within a flow");
        }
        numbers.sort_unstable();
        for lane in 0..lanes {
            let mut of_lane = numbers.iter().filter(|number| *number % lanes == lane).enumerate();
            assert!(of_lane.all(|(i, n)| i as u32 * lanes + lane == *n), "{kind}: each once");
        }
        assert!(!counters.status(&Received::new(1)).is_empty(), "{kind}: who worked is counted");
        assert!(seen.iter().all(|(_, dropped, _)| dropped.is_none()), "{kind}: none is dropped");
        let translated = seen.iter().filter(|(.., source)| *source == [198, 51, 100, 1]).count();
        assert!(translated > 0 && translated < seen.len(), "{kind}: plans were in force by turns");
        assert_eq!(
            exchange.swap(Box::new(|_| plan("")), || (), Duration::from_secs(1)),
            Err(NotSwapped::Ended),
            "nobody is there any more"
        );
    }
}

/// If a feed does not react, the request is withdrawn, and has no effect later.
#[test]
fn a_request_that_nobody_hears_is_withdrawn() {
    let exchange = Exchange::new(1);
    let refused = exchange.swap(Box::new(|_| unreachable!("the plan is not swapped")), || (), Duration::ZERO);
    assert_eq!(refused, Err(NotSwapped::TimedOut));
    assert!(!exchange.is_wanted() && exchange.turn().is_none());
}

/// A feed that has ended its input does not wait for other feeds after the request is withdrawn.
#[test]
fn all_feeds_end_when_one_has() {
    let exchange = Exchange::new(2);
    exchange.state.lock().turn = Some(Box::new(|_| unreachable!("the plan is not swapped")));
    exchange.wanted.store(true, Ordering::Release);
    assert!(exchange.is_wanted(), "the first feed ends");
    // The request is withdrawn.
    exchange.state.lock().turn = None;
    exchange.wanted.store(false, Ordering::Release);
    assert!(exchange.is_wanted(), "the second feed must end too");
    assert!(exchange.turn().is_none());
    assert!(!exchange.is_wanted(), "both feeds continue");
    exchange.give_up();
    assert!(exchange.is_wanted(), "a worker is lost");
}

/// The pause lasts until the last feed receives again.
#[test]
fn an_exchange_is_over_when_all_feeds_are_back() {
    let exchange = Exchange::new(2);
    exchange.state.lock().turn = Some(Box::new(|_| plan("")));
    exchange.wanted.store(true, Ordering::Release);
    exchange.gives(5);
    exchange.takes(3);
    assert!(exchange.is_wanted() && exchange.is_wanted());
    assert!(exchange.turn().is_some());
    exchange.resumes();
    assert!(exchange.state.lock().swapped.is_none());
    exchange.resumes();
    assert_eq!(exchange.state.lock().swapped.map(|swapped| swapped.in_flight), Some(2));
}

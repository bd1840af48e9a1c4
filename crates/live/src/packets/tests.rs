use super::*;

use std::sync::mpsc;

use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_exec::ModelKind;
use thalweg_node::config::RouterConfig;
use thalweg_node::plan::RouterPlan;

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

/// Chunks of numbered datagrams as fast as they are taken, as a live feed gives them: numbered anew for each model, and
/// ended by the exchange.
struct Endless {
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
            let packet = datagram(self.given);
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

/// From one of 16 hosts to another world, with its number as payload.
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

/// Notes by host which numbers came through, and how they left.
struct Book {
    exchange: Arc<Exchange>,
    tell: mpsc::Sender<(u32, Option<thalweg_base::DropReason>, [u8; 4])>,
}

impl Sink<Chunk> for Book {
    fn accept(&mut self, chunk: Chunk) {
        for (i, packet) in chunk.packets().iter().enumerate() {
            let frame = chunk.frame(i);
            let number = u32::from_be_bytes([frame[28], frame[29], frame[30], frame[31]]);
            let source = [frame[12], frame[13], frame[14], frame[15]];
            // Nobody listens at the very end.
            let _ = self.tell.send((number, packet.drop_reason(), source));
        }
        self.exchange.takes(chunk.packets().len());
    }
}

const NAT: &str = "[nat]\noutside = \"wan\"\ninside = [\"lan\"]\naddresses = [\"198.51.100.1\"]\n";

/// In every model, plans change twenty times under load: each packet comes through once, in order within its flow, and
/// each as one of the plans has it.
#[test]
fn no_packet_is_lost_doubled_or_overtaken() {
    for (kind, workers) in [
        (ModelKind::Serial, 1),
        (ModelKind::RunToCompletion, 2),
        (ModelKind::Pipeline, 2),
        (ModelKind::Tokens, 2),
        (ModelKind::Farm, 2),
    ] {
        let exchange = Arc::<Exchange>::default();
        let stop = Arc::<AtomicBool>::default();
        let (tell, told) = mpsc::channel();
        let feed = Endless {
            exchange: exchange.clone(),
            stop: stop.clone(),
            sequence: 0,
            given: 0,
            has_ended: false,
        };
        let shared = Arc::new(ArcSwap::from_pointee(plan("").for_workers(workers)));
        let packets = Packets {
            plan: shared.clone(),
            feed,
            sink: Book { exchange: exchange.clone(), tell },
            model: ModelOptions::new(kind, workers),
            exchange: exchange.clone(),
            counters: Arc::new(Counters::new(2)),
            stop: stop.clone(),
        };
        let thread = std::thread::spawn(move || packets.run());
        let mut seen = Vec::new();
        for round in 0..20 {
            // So that packets have passed each plan.
            seen.push(told.recv().expect("packets come"));
            let extra = if round % 2 == 0 { NAT } else { "" };
            let turn = move |_: &RouterPlan| plan(extra).for_workers(workers);
            exchange.swap(Box::new(turn), || (), Duration::from_secs(60)).expect("it turns");
        }
        stop.store(true, Ordering::Release);
        thread.join().expect("no panic").expect("no error");
        seen.extend(told.iter());
        assert_eq!(exchange.given.load(Ordering::Acquire), seen.len() as u64, "{kind}: none is lost");
        let mut numbers: Vec<u32> = seen.iter().map(|(number, ..)| *number).collect();
        for host in 0..16 {
            let flow: Vec<u32> = numbers.iter().copied().filter(|number| number % 16 == host).collect();
            assert!(flow.is_sorted(), "{kind}: order within a flow");
        }
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..seen.len() as u32), "{kind}: each once");
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

/// A feed that does not come to it: the request is withdrawn, and nothing happens later.
#[test]
fn a_request_that_nobody_hears_is_withdrawn() {
    let exchange = Exchange::default();
    let refused = exchange.swap(Box::new(|_| unreachable!("nobody turns")), || (), Duration::ZERO);
    assert_eq!(refused, Err(NotSwapped::TimedOut));
    assert!(!exchange.is_wanted() && exchange.turn().is_none());
}

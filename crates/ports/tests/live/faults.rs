//! Interfaces that go down, are removed, and return.

use std::time::{Duration, Instant};

use thalweg_ports::live::NotTaken;
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{LiveClock, LiveSource, PortChange, PortTx, SourceOptions};
use thalweg_wire::MacAddr;

use super::veth::{TIMEOUT, assert_same, frames, veth};
use crate::common::{in_namespace, ip};

fn next_change(source: &mut LiveSource, got: &mut Vec<Vec<u8>>) -> PortChange {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < TIMEOUT, "nothing was said");
        receive(source, got);
        if let Some(change) = source.poll_change() {
            return change;
        }
    }
}

fn receive(source: &mut LiveSource, got: &mut Vec<Vec<u8>>) {
    if let Some(chunk) = source.next_chunk(Duration::from_millis(5)).unwrap() {
        got.extend((0..chunk.packets().len()).map(|at| chunk.frame(at).to_vec()));
    }
}

fn send(tx: &mut dyn PortTx, frames: &[Vec<u8>]) {
    for frame in frames {
        tx.push(frame).unwrap();
    }
    tx.flush().unwrap();
}

fn until_flushes(tx: &mut dyn PortTx) {
    let began = Instant::now();
    while tx.flush().is_err() {
        assert!(began.elapsed() < TIMEOUT, "it does not come back");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_port_that_goes_comes_back_and_others_go_on() {
    in_namespace("live::faults::a_port_that_goes_comes_back_and_others_go_on", || {
        veth("a0", "a1");
        veth("b0", "b1");
        let [a0, mut a1, b0, mut b1] =
            ["a0", "a1", "b0", "b1"].map(|name| packet::open(&PacketOptions::new(name)).unwrap());
        let mut tx = a0.tx;
        let halves = [(0, a0.rx), (1, b0.rx)];
        let halves = halves.into_iter().flat_map(|(port, rx)| rx.into_iter().map(move |half| (port, half)));
        let mut source =
            LiveSource::new(halves.collect(), SourceOptions::default(), LiveClock::start()).unwrap();
        let mut got = Vec::new();
        let to_b = frames(b0.facts.mac, b1.facts.mac, 50);

        for round in 0..2 {
            // Down.
            ip("link set a0 down");
            let change = next_change(&mut source, &mut got);
            assert_eq!((change.port, change.half), (0, 0), "round {round}");
            assert_eq!(change.failed.unwrap().raw_os_error(), Some(libc::ENETDOWN));
            let from_a = frames(a1.facts.mac, a0.facts.mac, 3);
            from_a.iter().for_each(|frame| tx.push(frame).unwrap());
            assert_eq!(tx.flush().unwrap_err().raw_os_error(), Some(libc::ENETDOWN));
            assert_eq!((tx.counters().failed, tx.pending()), (3 * (round + 1), 0));
            assert_eq!(tx.push(&from_a[0]), Err(NotTaken::Down));
            // The other interface continues.
            send(&mut *b1.tx, &to_b);
            while got.len() < to_b.len() {
                receive(&mut source, &mut got);
            }
            assert_same(&got, &to_b);
            got.clear();
            assert!(source.poll_change().is_none(), "logged once");
            // Up.
            ip("link set a0 up");
            let change = next_change(&mut source, &mut got);
            assert!(change.port == 0 && change.failed.is_none());
            until_flushes(&mut *tx);
            let to_a = frames(a0.facts.mac, a1.facts.mac, 20);
            until_flushes(&mut *a1.tx);
            send(&mut *a1.tx, &to_a);
            while got.len() < to_a.len() {
                receive(&mut source, &mut got);
            }
            assert_same(&got, &to_a);
            got.clear();
        }

        // Removed, then created again under the same name with another index and address.
        ip("link delete a0");
        let change = next_change(&mut source, &mut got);
        assert!(change.port == 0 && change.failed.is_some());
        send(&mut *b1.tx, &to_b);
        while got.len() < to_b.len() {
            receive(&mut source, &mut got);
        }
        got.clear();
        assert!(tx.push(&to_b[0]).is_err() || tx.flush().is_err());
        ip(&format!("link add a0 address {} type veth peer name a1", text(a0.facts.mac)));
        ip("link set a0 up");
        ip("link set a1 up");
        while next_change(&mut source, &mut got).failed.is_some() {}
        let mut a1 = packet::open(&PacketOptions::new("a1")).unwrap();
        let to_a = frames(a0.facts.mac, a1.facts.mac, 20);
        send(&mut *a1.tx, &to_a);
        while got.len() < to_a.len() {
            receive(&mut source, &mut got);
        }
        assert_same(&got, &to_a);
        until_flushes(&mut *tx);
        let (failed, sent) = (tx.counters().failed, tx.counters().frames);
        send(&mut *tx, &frames(a1.facts.mac, a0.facts.mac, 5));
        assert_eq!((tx.counters().failed, tx.counters().frames), (failed, sent + 5));
    });
}

#[test]
fn a_port_may_be_opened_before_it_is_up() {
    in_namespace("live::faults::a_port_may_be_opened_before_it_is_up", || {
        veth("a0", "a1");
        ip("link set a0 down");
        let a0 = packet::open(&PacketOptions::new("a0")).unwrap();
        let halves = a0.rx.into_iter().map(|half| (0, half)).collect();
        let mut source = LiveSource::new(halves, SourceOptions::default(), LiveClock::start()).unwrap();
        let mut got = Vec::new();
        assert!(next_change(&mut source, &mut got).failed.is_some());
        ip("link set a0 up");
        assert!(next_change(&mut source, &mut got).failed.is_none());
        let mut a1 = packet::open(&PacketOptions::new("a1")).unwrap();
        let to_a = frames(a0.facts.mac, a1.facts.mac, 20);
        send(&mut *a1.tx, &to_a);
        while got.len() < to_a.len() {
            receive(&mut source, &mut got);
        }
        assert_same(&got, &to_a);
    });
}

fn text(mac: MacAddr) -> String {
    mac.to_string()
}

//! Devices on kernel interfaces: `net_af_packet`, `net_pcap`, `net_tap`.

use std::io;
use std::time::{Duration, Instant};

use thalweg_ports::live::link::Links;
use thalweg_ports::live::{NotTaken, PortRx};
use thalweg_wire::MacAddr;

use crate::common::{in_namespace, ip};
use crate::veth::{End, TIMEOUT, assert_same, frame, frames, veth};
use crate::{open, refusal};

/// Frames sent before the other end reads.
const PIECE: usize = 50;

/// Both directions along a veth, with AF_PACKET at its other end.
fn both_ways(device: &str, mode: &str) {
    veth("v0", "v1");
    let mut one = End::packet("v0");
    let (mut other, _link) = open(device);
    assert_eq!(other.facts.mode, mode);
    assert_eq!((other.facts.mtu, other.facts.index), (1500, Links::open().unwrap().index("v1").unwrap()));
    assert_eq!(other.facts.why_not_better, None);
    let there = frames(other.facts.mac, one.facts.mac, 700);
    let back = frames(one.facts.mac, other.facts.mac, 700);
    // A few at a time: the kernel drops frames when libpcap's buffer is full, and how many fit depends on when
    // the reader runs.
    for there in there.chunks(PIECE) {
        one.send(there);
        assert_same(&other.receive(there.len()), there);
    }
    for back in back.chunks(PIECE) {
        other.send(back);
        assert_same(&one.receive(back.len()), back);
    }
    // Its own frames do not return, and no frame was lost.
    assert!(other.receive_once(Duration::from_millis(20)).is_empty());
    let (_, received) = other.source.counters().next().unwrap();
    assert_eq!((received.frames, received.missed, received.refused, received.foreign), (700, 0, 0, 0));
    let sent = other.tx.counters();
    assert_eq!((sent.frames, sent.failed), (700, 0));
}

#[test]
fn by_af_packet_frames_arrive_as_they_were_sent() {
    in_namespace("kernel::by_af_packet_frames_arrive_as_they_were_sent", || {
        // The default ring of 512 frames would drop some without counting them.
        both_ways("net_af_packet0,iface=v1,framecnt=2048", "dpdk net_af_packet on v1");
    });
}

#[test]
fn by_libpcap_frames_arrive_as_they_were_sent() {
    in_namespace("kernel::by_libpcap_frames_arrive_as_they_were_sent", || {
        both_ways("net_pcap0,iface=v1,phy_mac=1", "dpdk net_pcap on v1");
    });
}

#[test]
fn tags_that_the_kernel_takes_off_come_back() {
    in_namespace("kernel::tags_that_the_kernel_takes_off_come_back", || {
        veth("v0", "v1");
        let mut one = End::packet("v0");
        let (mut other, _link) = open("net_af_packet0,iface=v1");
        let mut tagged = frames(other.facts.mac, one.facts.mac, 70);
        for (at, frame) in (0_u8..).zip(&mut tagged) {
            frame.splice(12..12, [0x81, 0, 0xa0, at]);
        }
        tagged.retain(|frame| frame.len() <= 1518);
        one.send(&tagged);
        assert_same(&other.receive(tagged.len()), &tagged);
    });
}

#[test]
fn the_host_gets_nothing_of_what_arrives() {
    in_namespace("kernel::the_host_gets_nothing_of_what_arrives", || {
        veth("v0", "v1");
        ip("addr add 192.0.2.1/24 dev v1");
        let mut one = End::packet("v0");
        let (mut other, _link) = open("net_af_packet0,iface=v1");
        // An ARP request for 192.0.2.1, which the host would answer.
        let mut question = vec![0xff; 6];
        question.extend(one.facts.mac.0);
        question.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        question.extend(one.facts.mac.0);
        question.extend([192, 0, 2, 9, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
        question.resize(60, 0);
        let after = frame(one.facts.mac, other.facts.mac, 1, 60);
        one.send(std::slice::from_ref(&question));
        assert_same(&other.receive(1), &[question]);
        other.send(std::slice::from_ref(&after));
        assert_same(&one.receive(1), &[after]);
    });
}

/// Repeats a question until its answer is yes.
fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ask() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_down(result: &io::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(ENETDOWN))
}

const ENETDOWN: i32 = 100;

#[test]
fn an_interface_that_goes_down_is_said_to_be_and_comes_back() {
    in_namespace("kernel::an_interface_that_goes_down_is_said_to_be_and_comes_back", || {
        veth("v0", "v1");
        let mut one = End::packet("v0");
        let (mut other, mut link) = open("net_af_packet0,iface=v1");
        ip("link set v0 down");
        eventually("the link is down", || {
            let facts = link.read().unwrap();
            facts.is_up && !facts.has_carrier
        });
        eventually("the receiving half says so", || {
            other.receive_once(Duration::from_millis(60));
            other.source.poll_change().is_some_and(|change| change.failed.is_some())
        });
        ip("link set v1 down");
        // Frames sent now are lost and counted, or refused.
        let to = one.facts.mac;
        let lost = frame(to, other.facts.mac, 1, 60);
        let mut pushed = 0;
        eventually("the sending half says so", || {
            let taken = other.tx.push(&lost);
            pushed += u64::from(taken.is_ok());
            let is_over = taken == Err(NotTaken::Down);
            is_over || is_down(&other.tx.flush())
        });
        let counters = other.tx.counters();
        assert_eq!(counters.frames + counters.failed + other.tx.pending() as u64, pushed, "{counters:?}");
        ip("link set v1 address 02:00:00:00:00:77");
        ip("link set v1 up");
        ip("link set v0 up");
        eventually("it is back", || link.read().unwrap().has_carrier && other.tx.flush().is_ok());
        assert_eq!(link.read().unwrap().mac, MacAddr([2, 0, 0, 0, 0, 0x77]));
        one = End::packet("v0");
        let there = frames(MacAddr([2, 0, 0, 0, 0, 0x77]), one.facts.mac, 100);
        one.send(&there);
        assert_same(&other.receive(there.len()), &there);
        let back = frames(to, MacAddr([2, 0, 0, 0, 0, 0x77]), 100);
        other.send(&back);
        eventually("frames arrive again", || one.receive_once(Duration::from_millis(50)).contains(&back[99]));
    });
}

#[test]
fn tap_makes_an_interface_of_the_hosts() {
    in_namespace("kernel::tap_makes_an_interface_of_the_hosts", || {
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let (mut port, link) = open("net_tap0,iface=dt0");
        ip("link set dt0 up");
        let mut host = End::packet("dt0");
        let there = frames(port.facts.mac, MacAddr([2, 0, 0, 0, 0, 9]), 300);
        host.send(&there);
        assert_same(&port.receive(there.len()), &there);
        let back = frames(host.facts.mac, port.facts.mac, 300);
        port.send(&back);
        assert_same(&host.receive(back.len()), &back);
        drop((port, link));
        assert!(Links::open().unwrap().index("dt0").is_err(), "the interface disappears with its port");
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    in_namespace("kernel::an_interface_that_is_not_there_is_named", || {
        let said = refusal("net_af_packet0,iface=nosuch0");
        assert!(said.contains("net_af_packet0") && said.contains("No such device"), "{said}");
    });
}

/// A half without a file descriptor says that it must be polled.
#[test]
fn a_half_has_to_be_polled() {
    crate::start();
    let options = thalweg_ports::live::dpdk::DpdkOptions::new("net_ring9");
    let (port, _link) = thalweg_ports::live::dpdk::open(&options).unwrap();
    let half: &dyn PortRx = &*port.rx[0];
    assert!(half.is_polled() && half.fd() == -1);
}

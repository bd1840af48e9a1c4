//! Real packets of a host's kernel, with merged segments and unfinished checksums, forwarded between two ports.
//!
//! ```text
//! namespace "-left"            here                   namespace "-right"
//! TcpStream ── l1 ══ l0  <- bridge of two ports ->  r0 ══ r1 ── TcpListener
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use thalweg_base::ChunkBuilder;
use thalweg_ports::live::NotTaken;
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::segment::{self, Segments};
use thalweg_ports::live::tap::{self, TapOptions};
use thalweg_wire::MacAddr;

use super::veth::{End, TIMEOUT, assert_same, frame, veth};
use crate::common::{in_namespace, ip};
use thalweg_testdata::uninterrupted;

/// A namespace with one end of a veth, or this one, and threads in it.
struct Host {
    side: &'static str,
    name: Option<String>,
}

impl Host {
    fn new(side: &'static str, number: u8) -> Self {
        let name = format!("thalweg-{}-{side}", std::process::id());
        ip(&format!("netns add {name}"));
        let (inside, host) = (name.clone(), Self { side, name: Some(name) });
        ip(&format!(
            "link add {side}0 type veth peer name {side}1 address 02:00:00:00:00:0{number} netns {inside}"
        ));
        ip(&format!("link set {side}0 up"));
        ip(&format!("-n {inside} address add 198.18.0.{number}/24 dev {side}1"));
        ip(&format!("-n {inside} address add 2001:db8::{number}/64 dev {side}1 nodad"));
        ip(&format!("-n {inside} link set {side}1 up"));
        host
    }

    /// The port at the other end, which receives frames for the host with this number.
    fn port(&self, number: u8) -> End {
        let mac = Some(MacAddr([2, 0, 0, 0, 0, number]));
        let options = PacketOptions { mac, ..PacketOptions::new(format!("{}0", self.side)) };
        End::new(packet::open(&options).unwrap())
    }

    fn run<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace = self.name.as_ref().map(|name| File::open(format!("/run/netns/{name}")).unwrap());
        std::thread::spawn(move || {
            if let Some(namespace) = namespace {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            }
            body()
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            ip(&format!("netns delete {name}"));
        }
    }
}

/// Fails unless the frame is valid on a wire: within the MTU, with right checksums.
fn check(frame: &[u8]) -> Result<(), String> {
    if frame.len() > 1514 {
        return Err(format!("{} bytes", frame.len()));
    }
    let packet = SlicedPacket::from_ethernet(frame).map_err(|error| error.to_string())?;
    let right = match (&packet.net, &packet.transport) {
        (Some(NetSlice::Ipv4(net)), Some(TransportSlice::Tcp(tcp))) => {
            let header = net.header().to_header();
            header.header_checksum == header.calc_header_checksum()
                && is_sum(tcp.calc_checksum_ipv4(header.source, header.destination).ok(), tcp.checksum())
        }
        (Some(NetSlice::Ipv6(net)), Some(TransportSlice::Tcp(tcp))) => {
            let header = net.header();
            is_sum(tcp.calc_checksum_ipv6(header.source(), header.destination()).ok(), tcp.checksum())
        }
        (Some(NetSlice::Ipv4(net)), Some(TransportSlice::Udp(udp))) => {
            let header = net.header().to_header();
            let wanted =
                udp.to_header().calc_checksum_ipv4_raw(header.source, header.destination, udp.payload());
            wanted == Ok(udp.checksum())
        }
        _ => true,
    };
    if right { Ok(()) } else { Err(format!("a wrong checksum in {packet:?}")) }
}

/// Whether a checksum is the wanted one. One's complement has two zeros, and completing a checksum late, as the
/// kernel and we do, gives the other one in one of 65,536 frames.
fn is_sum(wanted: Option<u16>, is: u16) -> bool {
    wanted.is_some_and(|wanted| wanted == is || (wanted == 0 && is == 0xffff))
}

/// Passes frames between two ports until stopped; returns what was wrong with any.
fn bridge(ends: &mut [End; 2], stop: &AtomicBool) -> Vec<String> {
    let mut wrong = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for (from, to) in [(0, 1), (1, 0)] {
            let frames = ends[from].receive_once(Duration::from_millis(1));
            wrong.extend(frames.iter().filter_map(|frame| check(frame).err()));
            ends[to].send(&frames);
        }
    }
    wrong
}

/// The same with segments that stay merged where they arrive merged. Checks each as a wire would carry it.
fn bridge_merged(ends: &mut [End; 2], stop: &AtomicBool, merged: &mut u32) -> Vec<String> {
    let mut wrong = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for (from, to) in [(0, 1), (1, 0)] {
            let Some(chunk) = ends[from].source.next_chunk(Duration::from_millis(1)).unwrap() else {
                continue;
            };
            for (at, packet) in chunk.packets().iter().enumerate() {
                let frame = chunk.frame(at);
                let Some(segment_bytes) = packet.segment_bytes() else {
                    wrong.extend(check(frame).err());
                    ends[to].send(&[frame.to_vec()]);
                    continue;
                };
                *merged += 1;
                let mut segments =
                    Segments::of_tcp(frame, segment::link_header_bytes(frame), segment_bytes).unwrap();
                while let Some(bytes) = segments.next_bytes() {
                    let mut segment = vec![0; bytes];
                    segments.write_next(frame, &mut segment);
                    wrong.extend(check(&segment).err());
                }
                while let Err(why) = ends[to].tx.push_merged(frame, segment_bytes) {
                    assert_eq!(why, NotTaken::Full);
                    ends[to].tx.flush().unwrap();
                }
            }
            ends[to].drain();
        }
    }
    wrong
}

#[test]
fn what_hosts_send_passes_as_frames() {
    in_namespace("live::tcp::what_hosts_send_passes_as_frames", || {
        let (left, right) = hosts();
        let mut ends = [left.port(2), right.port(1)];
        let wrong = exchange(&left, &right, |stop| bridge(&mut ends, stop));
        assert!(wrong.is_empty(), "{} frames, of which the first: {}", wrong.len(), wrong[0]);
        let (_, counters) = ends[0].source.counters().next().unwrap();
        // On a busy machine some frames may find the ring full; TCP sends them again.
        assert_eq!(counters.refused, 0, "{counters:?}");
        // The kernel did merge segments: it gave the interface fewer packets than frames came out.
        let given = ip(&format!("-n {} -s link show left1", left.name.as_ref().unwrap()));
        let line = given.lines().skip_while(|line| !line.contains("TX:")).nth(1).unwrap();
        let packets: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(packets < counters.frames, "{packets} packets, {counters:?}");
    });
}

#[test]
fn merged_segments_of_hosts_pass_whole() {
    in_namespace("live::tcp::merged_segments_of_hosts_pass_whole", || {
        let (left, right) = hosts();
        let mut ends = [left.port(2), right.port(1)];
        pass_whole(&left, &right, &mut ends);
    });
}

#[test]
fn merged_segments_pass_whole_between_a_tap_and_a_veth() {
    in_namespace("live::tcp::merged_segments_pass_whole_between_a_tap_and_a_veth", || {
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        let mac = Some(MacAddr([2, 0, 0, 0, 0, 1]));
        let (port, _control) =
            tap::open(&TapOptions { mac, merged: true, ..TapOptions::new("left0") }).unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/left0/disable_ipv6", "0").unwrap();
        ip("address add 198.18.0.1/24 dev left0");
        ip("address add 2001:db8::1/64 dev left0 nodad");
        let (left, right) = (Host { side: "left", name: None }, Host::new("right", 2));
        let mut ends = [End::new(port), right.port(1)];
        pass_whole(&left, &right, &mut ends);
    });
}

/// Lets two hosts exchange TCP whose segments stay merged between the ports.
fn pass_whole(left: &Host, right: &Host, ends: &mut [End; 2]) {
    ends.iter_mut().for_each(|end| end.source.take_merged(true));
    let mut merged = 0;
    let wrong = exchange(left, right, |stop| bridge_merged(ends, stop, &mut merged));
    assert!(wrong.is_empty(), "{} frames, of which the first: {}", wrong.len(), wrong[0]);
    assert!(merged > 10, "{merged} merged frames");
    for at in [0, 1] {
        let (_, received) = ends[at].source.counters().next().unwrap();
        let sent = ends[1 - at].tx.counters();
        assert_eq!((received.refused, sent.failed), (0, 0), "{received:?} {sent:?}");
        assert_eq!((received.frames, received.bytes), (sent.frames, sent.bytes), "counted as on a wire");
    }
}

/// Two hosts, each behind a veth.
fn hosts() -> (Host, Host) {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    (Host::new("left", 1), Host::new("right", 2))
}

/// Has one host send to the other by TCP over IPv4 and IPv6, and by UDP, and checks what arrives. Returns what `pass`
/// does, which passes frames until stopped.
fn exchange<T>(left: &Host, right: &Host, pass: impl FnOnce(&AtomicBool) -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8 ^ (at >> 11) as u8).collect();

    let listening =
        right.run(|| ["198.18.0.2:7", "[2001:db8::2]:7"].map(|at| TcpListener::bind(at).unwrap()));
    let listeners = listening.join().unwrap();
    let datagrams = right.run(|| UdpSocket::bind("198.18.0.2:9").unwrap()).join().unwrap();
    datagrams.set_read_timeout(Some(TIMEOUT)).unwrap();
    let receiving = right.run(move || {
        listeners.map(|listener| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        })
    });
    let sent = content.clone();
    let sending = {
        let stop = Arc::clone(&stop);
        left.run(move || {
            let _stop = StopOnDrop(stop);
            for at in ["198.18.0.2:7", "[2001:db8::2]:7"] {
                let address = at.parse().unwrap();
                let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).unwrap();
                stream.write_all(&sent).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                // Waits until the other side has closed, so no frame is in flight when the bridge stops.
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                let _ = stream.read(&mut [0]);
            }
            let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
            socket.send_to(b"unfinished until it was here", "198.18.0.2:9").unwrap();
            let mut got = [0; 64];
            let length = uninterrupted(|| datagrams.recv(&mut got)).unwrap();
            got[..length].to_vec()
        })
    };
    let passed = pass(&stop);
    assert_eq!(sending.join().unwrap(), b"unfinished until it was here");
    for got in receiving.join().unwrap() {
        assert!(got == content, "{} bytes of {} arrived as they were sent", got.len(), content.len());
    }
    passed
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_chunk_without_room_leaves_the_rest_for_the_next() {
    in_namespace("live::tcp::a_chunk_without_room_leaves_the_rest_for_the_next", || {
        veth("v0", "v1");
        let mut one = End::packet("v0");
        let mut other = packet::open(&PacketOptions::new("v1")).unwrap();
        let sent: Vec<_> =
            (0..20).map(|number| frame(other.facts.mac, one.facts.mac, number, 1000)).collect();
        one.send(&sent);
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let mut builder = ChunkBuilder::with_capacity(3100);
            let taken = other.rx[0].receive(3, 5, 100, &mut builder).unwrap();
            assert!(taken <= 3);
            let chunk = builder.finish(0, 1, 0);
            got.extend((0..taken).map(|at| chunk.frame(at).to_vec()));
        }
        assert_same(&got, &sent);
    });
}

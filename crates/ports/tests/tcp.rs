//! Connections over loopback, and in a namespace for tests of network failures.
#![cfg(target_os = "linux")]

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::common::{in_namespace, ip};
use thalweg_ports::tcp::{HopLimit, Listener, Md5Key, Progress, Stream, TcpError, connect};

/// A test that waits longer has failed; normally none waits nearly as long.
const TIMEOUT: Duration = Duration::from_secs(20);

fn listen(address: &str) -> Listener {
    Listener::bind(address.parse().unwrap()).unwrap()
}

/// Repeats until there is an answer.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        assert!(begun.elapsed() < TIMEOUT, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Both ends of a connection to the listener.
fn pair(listener: &Listener, hop_limit: HopLimit, key: Option<&Md5Key>) -> (Stream, Stream) {
    let ours = connect(Some(listener.address().ip()), listener.address(), hop_limit, key).unwrap();
    let (theirs, from) = until("accept", || listener.accept().unwrap());
    until("connected", || ours.connected().unwrap().then_some(()));
    assert_eq!(ours.local_address().unwrap(), from);
    assert_eq!(theirs.remote_address(), from);
    assert_eq!(theirs.local_address().unwrap(), ours.remote_address());
    (ours, theirs)
}

fn send(stream: &Stream, bytes: &[u8]) {
    assert_eq!(stream.write(bytes).unwrap(), Progress::Bytes(bytes.len()));
}

fn receive(stream: &Stream, count: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    until("bytes", || {
        match stream.read(&mut buffer).unwrap() {
            Progress::Bytes(n) => got.extend_from_slice(&buffer[..n]),
            Progress::WouldBlock => {}
            Progress::Closed => panic!("closed after {} bytes", got.len()),
        }
        (got.len() >= count).then_some(())
    });
    got
}

/// A kernel counter of this namespace, such as those of MD5 and GTSM.
fn kernel_counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks(2) {
        let place = pair[0].split_whitespace().position(|each| each == name);
        if let Some(place) = place {
            return pair[1].split_whitespace().nth(place).unwrap().parse().unwrap();
        }
    }
    panic!("the kernel counts no {name}")
}

#[test]
fn bytes_pass_both_ways_and_the_end_is_seen() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = listen(address);
        assert!(listener.accept().unwrap().is_none(), "no neighbor has connected yet");
        let (ours, theirs) = pair(&listener, HopLimit::Any, None);
        let mut buffer = [0; 16];
        assert_eq!(theirs.read(&mut buffer).unwrap(), Progress::WouldBlock);
        let slices = [IoSlice::new(b"first, "), IoSlice::new(b""), IoSlice::new(b"second")];
        assert_eq!(ours.write_vectored(&slices).unwrap(), Progress::Bytes(13));
        assert_eq!(receive(&theirs, 13), b"first, second");
        send(&theirs, b"back");
        assert_eq!(receive(&ours, 4), b"back");
        ours.shutdown_write().unwrap();
        until("the end", || (theirs.read(&mut buffer).unwrap() == Progress::Closed).then_some(()));
        send(&theirs, b"still");
        assert_eq!(receive(&ours, 5), b"still");
    }
}

#[test]
fn more_slices_than_the_kernel_takes_are_written_in_part() {
    let listener = listen("127.0.0.1:0");
    let (ours, _theirs) = pair(&listener, HopLimit::Any, None);
    let slices = vec![IoSlice::new(b"x"); 3000];
    assert_eq!(ours.write_vectored(&slices).unwrap(), Progress::Bytes(1024));
}

#[test]
fn a_neighbor_that_does_not_read_fills_its_socket_only() {
    let listener = listen("127.0.0.1:0");
    let (ours, theirs) = pair(&listener, HopLimit::Any, None);
    let chunk = vec![7; 65_536];
    let mut written = 0;
    while let Progress::Bytes(count) = ours.write(&chunk).unwrap() {
        written += count;
        assert!(written < 1 << 30, "the socket takes everything");
    }
    let got = receive(&theirs, written).len();
    assert_eq!(got, written);
}

#[test]
fn a_reset_is_an_error_of_the_connection() {
    let listener = listen("127.0.0.1:0");
    let (ours, theirs) = pair(&listener, HopLimit::Any, None);
    theirs.reset_on_drop().unwrap();
    drop(theirs);
    let error = until("the reset", || ours.read(&mut [0; 8]).err());
    assert!(
        matches!(&error, TcpError::Connection { source } if source.kind() == std::io::ErrorKind::ConnectionReset)
    );
}

#[test]
fn many_neighbors_connect_before_the_first_is_accepted() {
    // More than the backlog of 128 that the standard library uses.
    const NEIGHBORS: usize = 300;
    let listener = listen("127.0.0.1:0");
    let ours: Vec<_> = (0..NEIGHBORS)
        .map(|i| {
            let local = IpAddr::from([127, 0, 1 + (i / 250) as u8, 1 + (i % 250) as u8]);
            connect(Some(local), listener.address(), HopLimit::Any, None).unwrap()
        })
        .collect();
    for stream in &ours {
        until("connected", || stream.connected().unwrap().then_some(()));
    }
    let mut addresses = std::collections::BTreeSet::new();
    while let Some((_, from)) = listener.accept().unwrap() {
        addresses.insert(from.ip());
    }
    assert_eq!(addresses.len(), NEIGHBORS, "each from its own address");
}

/// An address that comes by DHCP, or with a network that starts later.
#[test]
fn it_listens_on_an_address_that_is_not_there_yet() {
    in_namespace("tcp::it_listens_on_an_address_that_is_not_there_yet", || {
        ip("link set lo up");
        for address in ["198.51.100.7", "2001:db8::7"] {
            let any_port = SocketAddr::new(address.parse().unwrap(), 0);
            let listener = Listener::bind(any_port).unwrap();
            assert!(!listener.has_address(), "{address}");
            ip(&format!("address add {address} dev lo nodad"));
            let to = listener.address();
            // As a neighbor does, who tries again: the first SYN may come before all of the kernel knows the address.
            until("a connection", || {
                let _ours = connect(Some(to.ip()), to, HopLimit::Any, None).ok()?;
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(2) {
                    if let Some(accepted) = listener.accept().unwrap() {
                        return Some(accepted);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                None
            });
            assert!(Listener::bind(any_port).unwrap().has_address(), "{address}");
        }
    });
}

#[test]
fn errors_say_what_to_do() {
    let first = listen("127.0.0.1:0");
    let again = Listener::bind(first.address()).expect_err("the address is in use");
    assert_eq!(
        again.to_string(),
        format!(
            "cannot listen on {}: another program listens there; stop it, or listen on another address or port",
            first.address()
        )
    );
    let nobody: SocketAddr = "192.0.2.77:0".parse().unwrap();
    let error = connect(Some(nobody.ip()), first.address(), HopLimit::Any, None).expect_err("not ours");
    assert_eq!(error.to_string(), "cannot connect from 192.0.2.77: no interface has this address");
    let error =
        connect(Some("::1".parse().unwrap()), first.address(), HopLimit::Any, None).expect_err("mixed");
    assert!(matches!(error, TcpError::FamiliesDiffer { .. }), "{error}");
    let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let error = TcpError::Listen { address: "0.0.0.0:179".parse().unwrap(), source };
    assert_eq!(
        error.to_string(),
        "cannot listen on 0.0.0.0:179: port 179 needs root or CAP_NET_BIND_SERVICE, or choose a port above 1023"
    );
    let refused = {
        let closed = listen("127.0.0.1:0").address();
        match connect(None, closed, HopLimit::Any, None) {
            Ok(stream) => until("refused", || stream.connected().err()).to_string(),
            Err(error) => error.to_string(),
        }
    };
    assert!(refused.contains("refused"), "{refused}");
}

#[test]
fn equal_passwords_connect_and_others_do_not() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = listen(address);
        let neighbor = listener.address().ip();
        let bits = if neighbor.is_ipv6() { 128 } else { 32 };
        let [right, wrong] = [b"right", b"wrong"].map(|key| Md5Key::new(key).unwrap());
        listener.set_md5_key(neighbor, bits, Some(&right)).unwrap();

        for (key, counter) in [(Some(&wrong), "TCPMD5Failure"), (None, "TCPMD5NotFound")] {
            let before = kernel_counter(counter);
            let ours = connect(None, listener.address(), HopLimit::Any, key).unwrap();
            until(counter, || (kernel_counter(counter) > before).then_some(()));
            assert!(!ours.connected().unwrap());
            assert!(listener.accept().unwrap().is_none());
        }
        let (ours, theirs) = pair(&listener, HopLimit::Any, Some(&right));
        send(&ours, b"signed");
        assert_eq!(receive(&theirs, 6), b"signed");

        // A changed password applies to later connections; after its removal only unsigned ones succeed.
        listener.set_md5_key(neighbor, bits, Some(&wrong)).unwrap();
        pair(&listener, HopLimit::Any, Some(&wrong));
        send(&theirs, b"the old one lives");
        assert_eq!(receive(&ours, 17).len(), 17);
        listener.set_md5_key(neighbor, bits, None).unwrap();
        listener.set_md5_key(neighbor, bits, None).unwrap();
        pair(&listener, HopLimit::Any, None);
    }
}

#[test]
fn a_password_for_a_prefix_and_a_longer_one_within() {
    let listener = listen("127.0.0.1:0");
    let [wide, narrow] = [b"wide", b"slim"].map(|key| Md5Key::new(key).unwrap());
    listener.set_md5_key([127, 0, 7, 0].into(), 24, Some(&wide)).unwrap();
    listener.set_md5_key([127, 0, 7, 9].into(), 32, Some(&narrow)).unwrap();
    for (local, key) in
        [([127, 0, 7, 1], Some(&wide)), ([127, 0, 7, 9], Some(&narrow)), ([127, 0, 8, 1], None)]
    {
        let ours = connect(Some(local.into()), listener.address(), HopLimit::Any, key).unwrap();
        let (_theirs, from) = until("accept", || listener.accept().unwrap());
        assert_eq!(from.ip(), IpAddr::from(local));
        until("connected", || ours.connected().unwrap().then_some(()));
    }
    let before = kernel_counter("TCPMD5Failure");
    let ours = connect(Some([127, 0, 7, 9].into()), listener.address(), HopLimit::Any, Some(&wide)).unwrap();
    until("refused", || (kernel_counter("TCPMD5Failure") > before).then_some(()));
    assert!(!ours.connected().unwrap());
    let error =
        listener.set_md5_key("::1".parse().unwrap(), 128, Some(&wide)).expect_err("a family of its own");
    assert!(error.to_string().contains("another address family"), "{error}");
    listener.set_md5_key([127, 0, 7, 0].into(), 33, None).expect_err("too long");
}

#[test]
fn a_connection_changes_its_password_on_both_sides() {
    let listener = listen("127.0.0.1:0");
    let [old, new] = [b"old", b"new"].map(|key| Md5Key::new(key).unwrap());
    listener.set_md5_key(listener.address().ip(), 32, Some(&old)).unwrap();
    let (ours, theirs) = pair(&listener, HopLimit::Any, Some(&old));
    ours.set_md5_key(Some(&new)).unwrap();
    theirs.set_md5_key(Some(&new)).unwrap();
    send(&ours, b"signed anew");
    assert_eq!(receive(&theirs, 11), b"signed anew");
}

#[test]
fn keys_without_room_are_an_error_that_helps() {
    let listener = listen("127.0.0.1:0");
    let key = Md5Key::new(&[b'k'; 80]).unwrap();
    let mut set = 0u32;
    let error = loop {
        match listener.set_md5_key(IpAddr::from((0x0a00_0000 + set).to_be_bytes()), 32, Some(&key)) {
            Ok(()) => set += 1,
            Err(error) => break error,
        }
        if set > 100_000 {
            return thalweg_testdata::skipped("net.core.optmem_max has room for 100,000 keys");
        }
    };
    assert!(error.to_string().contains("net.core.optmem_max"), "{error}");
    // Removing a key makes room for another one.
    listener.set_md5_key([10, 0, 0, 0].into(), 32, None).unwrap();
    listener.set_md5_key([10, 200, 0, 0].into(), 32, Some(&key)).unwrap();
}

#[test]
fn packets_from_afar_are_not_taken() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (near, two_hops, far) = (HopLimit::Gtsm(1), HopLimit::Gtsm(2), HopLimit::Send(254));
        // The listener answers from any distance; the connection ignores packets from too far away.
        let listener = listen(address);
        let (ours, theirs) = pair(&listener, far, None);
        theirs.apply(two_hops).unwrap();
        send(&ours, b"two hops");
        assert_eq!(receive(&theirs, 8), b"two hops");
        theirs.apply(near).unwrap();
        let before = kernel_counter("TCPMinTTLDrop");
        send(&ours, b"too far");
        until("dropped", || (kernel_counter("TCPMinTTLDrop") > before).then_some(()));
        assert_eq!(theirs.read(&mut [0; 8]).unwrap(), Progress::WouldBlock);
    }
}

//! All ways to receive give the bytes that were sent.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use thalweg_base::XorShift64Star;
use thalweg_ports::tcp::{Buffered, ListenOptions, Listener, Receive, Received, TwoReads};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Messages as BGP frames them: 16 bytes of ones, the length, a type, anything.
fn messages(random: &mut XorShift64Star, at_least: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < at_least {
        let length = if random.below(20) == 0 { 65_535 } else { 19 + random.below(500) as u16 };
        bytes.extend_from_slice(&[0xff; 16]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend((18..length).map(|_| random.next_u64() as u8));
    }
    bytes
}

/// Every way there is here.
fn ways() -> Vec<(&'static str, Box<dyn Receive>)> {
    let mut ways: Vec<(&'static str, Box<dyn Receive>)> = vec![
        ("two reads", Box::new(TwoReads::new().unwrap())),
        ("buffered", Box::new(Buffered::new().unwrap())),
    ];
    #[cfg(feature = "io-uring")]
    match thalweg_ports::tcp::Uring::new() {
        Ok(uring) => ways.push(("io_uring", Box::new(uring))),
        Err(error) => thalweg_testdata::skipped(&format!("receiving by io_uring: {error}")),
    }
    ways
}

/// Connects `count` neighbors to the receiver; their ends, in order.
fn connect(receiver: &mut dyn Receive, count: usize) -> Vec<TcpStream> {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    (0..count)
        .map(|number| {
            let theirs = TcpStream::connect(listener.address()).unwrap();
            let begun = Instant::now();
            let stream = loop {
                if let Some((stream, _)) = listener.accept().unwrap() {
                    break stream;
                }
                assert!(begun.elapsed() < TIMEOUT);
            };
            receiver.add(stream, number).unwrap();
            theirs
        })
        .collect()
}

/// Receives until all are closed; what each sent, and in which pieces.
fn receive_all(receiver: &mut dyn Receive, count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut pieces = vec![Vec::new(); count];
    let mut open = count;
    let begun = Instant::now();
    while open > 0 {
        assert!(begun.elapsed() < TIMEOUT, "{open} connections are not closed");
        receiver
            .receive(Some(Duration::from_millis(100)), &mut |number, received| match received {
                Received::Bytes(bytes) => pieces[number].push(bytes.to_vec()),
                Received::Closed => open -= 1,
            })
            .unwrap();
    }
    pieces
}

#[test]
fn all_ways_give_the_same_bytes() {
    const NEIGHBORS: usize = 7;
    for (name, mut receiver) in ways() {
        let mut random = XorShift64Star::new(11);
        let sent: Vec<_> = (0..NEIGHBORS).map(|i| messages(&mut random, 300_000 * i)).collect();
        let theirs = connect(&mut *receiver, NEIGHBORS);
        let pieces = std::thread::scope(|scope| {
            for (number, (mut stream, bytes)) in theirs.into_iter().zip(&sent).enumerate() {
                scope.spawn(move || {
                    let mut random = XorShift64Star::new(number as u64 + 1);
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        // Small pieces cut headers in two.
                        let most = if random.below(2) == 0 { 40 } else { 200_000 };
                        let (piece, more) = rest.split_at(rest.len().min(1 + random.below(most) as usize));
                        stream.write_all(piece).unwrap();
                        rest = more;
                    }
                });
            }
            receive_all(&mut *receiver, NEIGHBORS)
        });
        for (number, (pieces, sent)) in pieces.iter().zip(&sent).enumerate() {
            assert!(pieces.concat() == *sent, "{name}: neighbor {number}'s bytes differ");
            if name == "two reads" {
                let whole =
                    |piece: &Vec<u8>| piece.len() == usize::from(u16::from_be_bytes([piece[16], piece[17]]));
                assert!(pieces.iter().all(whole), "{name}: a piece is no message");
            }
        }
    }
}

#[test]
fn the_end_is_seen_behind_the_last_bytes() {
    // Bytes and end are there before the first look: one event says both.
    for (name, mut receiver) in ways() {
        let mut theirs = connect(&mut *receiver, 2);
        let bytes = messages(&mut XorShift64Star::new(3), 1000);
        theirs[1].write_all(&bytes).unwrap();
        drop(theirs);
        let pieces = receive_all(&mut *receiver, 2);
        assert!(pieces[0].is_empty() && pieces[1].concat() == bytes, "{name}");
    }
}

#[test]
fn a_length_that_cannot_be_closes_one_connection() {
    let mut receiver = TwoReads::new().unwrap();
    let mut theirs = connect(&mut receiver, 2);
    let mut bad = [0xff; 19];
    bad[16..18].copy_from_slice(&18_u16.to_be_bytes());
    theirs[0].write_all(&bad).unwrap();
    let good = messages(&mut XorShift64Star::new(3), 1);
    theirs[1].write_all(&good).unwrap();
    let mut closed = Vec::new();
    let mut got = Vec::new();
    let begun = Instant::now();
    while closed.is_empty() || got != good {
        assert!(begun.elapsed() < TIMEOUT);
        receiver
            .receive(Some(Duration::from_millis(100)), &mut |number, received| match received {
                Received::Bytes(bytes) => got.extend_from_slice(bytes),
                Received::Closed => closed.push(number),
            })
            .unwrap();
    }
    assert_eq!(closed, [0]);
}

#[test]
fn a_receiver_may_go_while_bytes_come() {
    for (_, mut receiver) in ways() {
        let theirs = connect(&mut *receiver, 3);
        std::thread::scope(|scope| {
            for mut stream in theirs {
                // Ends when nobody listens any more.
                scope.spawn(move || while stream.write_all(&[0xff; 10_000]).is_ok() {});
            }
            let mut got = 0;
            let begun = Instant::now();
            // Read as a header, ones are that of the longest message there is.
            while got == 0 {
                assert!(begun.elapsed() < TIMEOUT);
                let mut sink =
                    |_, received: Received<'_>| got += usize::from(matches!(received, Received::Bytes(_)));
                receiver.receive(Some(Duration::from_millis(100)), &mut sink).unwrap();
            }
            drop(receiver);
        });
    }
}

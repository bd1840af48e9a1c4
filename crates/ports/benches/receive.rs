//! What receiving costs, by way, number of neighbors and length of messages: processor time of the receiving thread
//! per megabyte, the sender on another core.
//!
//! ```text
//! cargo bench -p thalweg-ports --bench receive --profile quick
//! ```

#[cfg(target_os = "linux")]
mod linux {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::Instant;

    use thalweg_ports::tcp::{Buffered, ListenOptions, Listener, Receive, Received, TwoReads};

    const ROUNDS: usize = 5;

    /// Processor time of this thread, in nanoseconds.
    fn processor_ns() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
    }

    fn make(way: &str) -> Option<Box<dyn Receive>> {
        Some(match way {
            "two reads" => Box::new(TwoReads::new().ok()?),
            "buffered" => Box::new(Buffered::new().ok()?),
            #[cfg(feature = "io-uring")]
            "io_uring" => Box::new(thalweg_ports::tcp::Uring::new().ok()?),
            _ => return None,
        })
    }

    /// Bytes, seconds and processor time of receiving everything.
    fn run(way: &str, neighbors: usize, message: u16, total: usize) -> Option<(usize, f64, u64)> {
        let mut receiver = make(way)?;
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(address, &ListenOptions::default()).expect("the loopback");
        let mut bytes = vec![0xff; 16];
        bytes.extend_from_slice(&message.to_be_bytes());
        bytes.resize(usize::from(message), 2);
        let piece = bytes.repeat(32_768 / usize::from(message));
        let theirs: Vec<_> = (0..neighbors)
            .map(|number| {
                let theirs = TcpStream::connect(listener.address()).expect("connected");
                let (stream, _) = std::iter::from_fn(|| Some(listener.accept().expect("accepted")))
                    .flatten()
                    .next()
                    .expect("endless");
                receiver.add(stream, number).expect("added");
                theirs
            })
            .collect();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..total / neighbors / piece.len() {
                    for mut stream in &theirs {
                        stream.write_all(&piece).expect("written");
                    }
                }
            });
            let (begun, processor) = (Instant::now(), processor_ns());
            let (mut open, mut got) = (neighbors, 0);
            while open > 0 {
                let mut sink = |_, received: Received<'_>| match received {
                    Received::Bytes(bytes) => got += bytes.len(),
                    Received::Closed => open -= 1,
                };
                receiver.receive(None, &mut sink).expect("received");
            }
            Some((got, begun.elapsed().as_secs_f64(), processor_ns() - processor))
        })
    }

    pub(super) fn main() {
        println!("{:>10} {:>7}  {:<10} {:>9} {:>12}", "neighbors", "message", "way", "MB/s", "CPU us/MB");
        for neighbors in [1, 10, 100] {
            for message in [60, 4096] {
                let total = if message == 60 { 32 << 20 } else { 128 << 20 };
                let ways = ["two reads", "buffered", "io_uring"];
                let mut all = ways.map(|_| Vec::new());
                for _ in 0..ROUNDS {
                    for (way, results) in ways.iter().zip(&mut all) {
                        results.extend(run(way, neighbors, message, total));
                    }
                }
                for (way, results) in ways.iter().zip(&mut all) {
                    results.sort_by_key(|(_, _, processor)| *processor);
                    let Some((got, seconds, processor)) = results.get(results.len() / 2) else { continue };
                    let megabytes = *got as f64 / 1e6;
                    println!(
                        "{neighbors:>10} {message:>7}  {way:<10} {:>9.0} {:>12.0}",
                        megabytes / seconds,
                        *processor as f64 / 1e3 / megabytes,
                    );
                }
            }
        }
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
}

//! Frames per second of CPU time through AF_XDP, from one veth to another. Needs root: it makes its namespaces
//! itself.
//!
//! ```text
//! cargo bench -p thalweg-ports --bench xdp --profile quick -- [FRAME_BYTES..] [generic] [frames=N]
//! ```
//!
//! One thread sends from a packet socket into a veth. Another one receives frames by the driver into chunks and
//! sends each by the driver into a second veth, whose far end drops it. On a veth, the sender's call carries the
//! frame up to the driver's ring, and the driver's call to send carries it to the end; so the CPU time of both
//! threads is measured. Results: first the sender alone, into a far end that drops frames; then the forwarder,
//! with its time for receiving (including the copy out of the ring), pushing (the copy into the ring) and
//! flushing (the kernel's sending).

#[cfg(target_os = "linux")]
mod linux {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use thalweg_ports::SlabPool;
    use thalweg_ports::live::Port;
    use thalweg_ports::live::xdp::{self, XdpMode, XdpOptions};

    const INSIDE: &str = "THALWEG_BENCH_NAMESPACE";
    const SECONDS: f64 = 2.0;

    fn run(line: &str) -> bool {
        let mut words = line.split_whitespace();
        let status = Command::new(words.next().unwrap_or_default()).args(words).status();
        status.is_ok_and(|status| status.success())
    }

    pub(super) fn main() {
        let arguments: Vec<String> = std::env::args().skip(1).filter(|each| each != "--bench").collect();
        if std::env::var_os(INSIDE).is_some() {
            return inside(&arguments);
        }
        let name = format!("thalweg-bench-{}", std::process::id());
        if !run(&format!("ip netns add {name}")) {
            return println!("needs root");
        }
        let program = std::env::current_exe().expect("the path of this program");
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &name]).arg(program).args(&arguments).env(INSIDE, "1");
        let status = inside.status();
        run(&format!("ip netns delete {name}"));
        assert!(status.is_ok_and(|status| status.success()), "failed inside the namespace");
    }

    fn open(interface: &str, generic: bool, frames: u32) -> Port {
        let modes = vec![if generic { XdpMode::GenericCopy } else { XdpMode::NativeCopy }];
        let options =
            XdpOptions { modes, rx_frames: frames, tx_frames: frames, ..XdpOptions::new(interface) };
        xdp::open(&options).expect("a port")
    }

    fn inside(arguments: &[String]) {
        let generic = arguments.iter().any(|each| each == "generic");
        let frames =
            arguments.iter().find_map(|each| each.strip_prefix("frames=")?.parse().ok()).unwrap_or(2048);
        let mut lengths: Vec<usize> = arguments.iter().filter_map(|each| each.parse().ok()).collect();
        if lengths.is_empty() {
            lengths = vec![60, 1514];
        }
        for cable in ["a0 type veth peer name a1", "b0 type veth peer name b1"] {
            assert!(run(&format!("ip link add {cable}")));
        }
        for end in ["a0", "a1", "b0", "b1"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1");
            assert!(run(&format!("ip link set {end} up")));
        }
        for length in lengths {
            let ceiling = sender_alone(length);
            let (mut near, mut far) = (open("a1", generic, frames), open("b0", generic, frames));
            forward(&mut near, &mut far, length, ceiling);
        }
    }

    /// Nanoseconds of CPU time of this thread.
    fn cpu_ns() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
    }

    /// The machine's CPU time in nanoseconds, without idle time.
    fn busy_ns() -> u64 {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .skip(1)
            .filter_map(|t| t.parse().ok())
            .collect();
        let idle = ticks.get(3).unwrap_or(&0) + ticks.get(4).unwrap_or(&0);
        (ticks.iter().take(8).sum::<u64>() - idle) * 10_000_000
    }

    fn received(interface: &str) -> u64 {
        let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    struct Blast {
        stop: Arc<AtomicBool>,
        cpu_ns: Arc<AtomicU64>,
        sent: Arc<AtomicU64>,
        thread: std::thread::JoinHandle<()>,
    }

    /// Sends into `a0` as fast as one socket can, until stopped. It uses the driver itself, which costs the
    /// kernel the least.
    fn blast(length: usize) -> Blast {
        let (stop, cpu, sent) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (stopped, cpu_out, sent_out) = (Arc::clone(&stop), Arc::clone(&cpu), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let mut port = open("a0", false, 64);
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
            frame.extend(((length - 14) as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, 17, 0x66, 0x3d, 10, 0, 0, 1, 10, 0, 0, 2, 7, 8, 0, 9]);
            frame.extend(((length - 34) as u16).to_be_bytes());
            frame.resize(length, 0);
            let start = cpu_ns();
            while !stopped.load(Ordering::Relaxed) {
                while port.tx.push(&frame).is_ok() {}
                let _ = port.tx.flush();
                sent_out.store(port.tx.counters().frames, Ordering::Relaxed);
                cpu_out.store(cpu_ns() - start, Ordering::Relaxed);
            }
        });
        Blast { stop, cpu_ns: cpu, sent, thread }
    }

    impl Blast {
        fn so_far(&self) -> (u64, u64) {
            (self.sent.load(Ordering::Relaxed), self.cpu_ns.load(Ordering::Relaxed))
        }

        fn end(self) {
            self.stop.store(true, Ordering::Relaxed);
            let _ = self.thread.join();
        }
    }

    fn sleep(seconds: f64) {
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }

    /// The sender's nanoseconds per frame when the far end drops everything.
    fn sender_alone(length: usize) -> f64 {
        let blast = blast(length);
        sleep(0.5);
        let before = (blast.so_far(), received("a1"));
        sleep(SECONDS);
        let after = (blast.so_far(), received("a1"));
        blast.end();
        let (sent, cpu) = (after.0.0 - before.0.0, after.0.1 - before.0.1);
        let each = cpu as f64 / sent.max(1) as f64;
        println!(
            "{length:5} sender alone: {:.3} M sent/s, {each:.0} ns of its CPU each",
            sent as f64 / SECONDS / 1e6
        );
        each
    }

    fn forward(near: &mut Port, far: &mut Port, length: usize, ceiling: f64) {
        let blast = blast(length);
        let pool = SlabPool::new(4, 256 * 2048);
        let mut spent = [0u64; 3];
        let mut before = None;
        let start = Instant::now();
        let (mut chunks, mut measured) = (0u64, 0u64);
        loop {
            let elapsed = start.elapsed().as_secs_f64();
            if elapsed > 0.5 + SECONDS {
                break;
            }
            if before.is_none() && elapsed > 0.5 {
                before = Some((cpu_ns(), busy_ns(), received("b1"), blast.so_far(), near.rx[0].counters()));
                (spent, chunks, measured) = ([0; 3], 0, 0);
            }
            let at = Instant::now();
            let mut into = pool.builder();
            let taken = near.rx[0].receive(0, 0, 256, &mut into).expect("the interface stays");
            if taken == 0 {
                into.discard();
                std::thread::yield_now();
                continue;
            }
            let chunk = into.finish(0, 1, 0);
            let then = Instant::now();
            for i in 0..taken {
                while far.tx.push(chunk.frame(i)).is_err() {
                    let _ = far.tx.flush();
                }
            }
            drop(chunk);
            let pushed = Instant::now();
            let _ = far.tx.flush();
            spent[0] += (then - at).as_nanos() as u64;
            spent[1] += (pushed - then).as_nanos() as u64;
            spent[2] += pushed.elapsed().as_nanos() as u64;
            chunks += 1;
            measured += taken as u64;
        }
        let Some((cpu, busy, got, sent, counted)) = before else { return };
        let (cpu, busy, got) = (cpu_ns() - cpu, busy_ns() - busy, received("b1") - got);
        let now = blast.so_far();
        let missed = near.rx[0].counters().missed - counted.missed;
        blast.end();
        let (sent, sender_cpu) = (now.0 - sent.0, now.1 - sent.1);
        let each = |ns: u64| ns as f64 / measured.max(1) as f64;
        println!(
            "{length:5} {}: {:.3} M/s arrived of {:.3} sent, missed {missed}; forwarder {:.0} ns of CPU each: receive {:.0}, push {:.0}, flush {:.0}; {:.0} a chunk; sender {:.0} ns a frame sent ({ceiling:.0} alone); machine {:.0} ns a frame arrived",
            near.facts.mode,
            got as f64 / SECONDS / 1e6,
            sent as f64 / SECONDS / 1e6,
            each(cpu),
            each(spent[0]),
            each(spent[1]),
            each(spent[2]),
            measured as f64 / chunks.max(1) as f64,
            sender_cpu as f64 / sent.max(1) as f64,
            busy as f64 / got.max(1) as f64,
        );
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
}

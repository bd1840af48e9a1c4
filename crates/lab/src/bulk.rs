//! The experiment on bulk TCP: what customers do all day, through a router that translates addresses.
//!
//! tester-a is inside, tester-b outside. TCP connections carry as much as they can, up, down, or four of them up, while
//! a ping from tester-a measures what that does to others. Both testers are hosts as they usually are: their kernels
//! hand over merged segments of up to 64 KiB. Every router gets the same loads in the same run, and the kernel with
//! masquerading is among them, also between hosts that send single frames: that is what a router sees behind a wire,
//! and what one that cuts frames leaves of the rest.
//!
//! A load is counted where it is read, after a warm-up. Threads here write and read blocks of 128 KiB, as iperf3 does;
//! the pings are those of `ping`, whose answers the kernel stamps when they arrive.
//!
//! Missing: loss, UDP, IPv6, many short connections.

pub mod render;

use crate::forwarding::attempts::{Attempts, attempts};
use crate::forwarding::latency::Percentiles;
use crate::forwarding::subject::{Label, Subject, Task, has_program};
use crate::forwarding::topology::{TESTER_ADDRESSES, Topology};
use crate::forwarding::{ForwardingError, wait};
use crate::stats::Summary;
use serde::Serialize;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::XorShift64Star;

/// The links' MTU.
const MTU: usize = 1500;
const BLOCK_BYTES: usize = 128 << 10;
/// How long a router may take to start forwarding.
const START_WAIT: Duration = Duration::from_secs(20);
const CONNECT_WAIT: Duration = Duration::from_millis(500);
/// Nothing may stand still for longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between looks at the clock.
const TICK: Duration = Duration::from_millis(10);
/// Seconds between pings.
const PING_EVERY_S: f64 = 0.005;

thalweg_base::words! {
    /// The connections that carry a load, and which way.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Load {
        /// One connection, from inside to outside.
        Up => "up",
        /// One connection, from outside to inside; inside opens it.
        Down => "down",
        /// Four connections, from inside to outside.
        FourUp => "four-up",
    }
}

impl Load {
    fn connections(self) -> usize {
        if self == Self::FourUp { 4 } else { 1 }
    }
}

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub loads: Vec<Load>,
    /// Translate addresses.
    pub nat: bool,
    /// How long a load runs before it counts, in seconds.
    pub warm_up_s: f64,
    /// How long it counts, in seconds.
    pub trial_s: f64,
    pub runs: usize,
    /// The seed of the order of runs.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            loads: Load::ALL.to_vec(),
            nat: true,
            warm_up_s: 1.0,
            trial_s: 5.0,
            runs: 3,
            seed: XorShift64Star::DEFAULT_SEED,
        }
    }
}

/// A router, and what kind of hosts are beside it.
pub struct Router {
    pub subject: Box<dyn Subject>,
    /// The hosts send single frames with complete checksums.
    pub single_frames: bool,
}

impl Router {
    /// Its name in results.
    pub fn label(&self) -> Label {
        let label = self.subject.label().clone();
        if self.single_frames { Label { change: "single frames".to_owned(), ..label } } else { label }
    }
}

/// A router's result for one load.
#[derive(Clone, Debug, Serialize)]
pub struct BulkResult {
    #[serde(flatten)]
    pub label: Label,
    pub load: Load,
    /// Bits of payload per second, all connections together.
    pub bits_per_second: Summary,
    /// The ratio of the median to the kernel's with this load.
    pub native_ratio: Option<f64>,
    /// Round trips of pings beside the load: medians of the rounds.
    pub ping: Option<Percentiles>,
    /// The 99th percentile of these in each round, in nanoseconds.
    pub ping_p99_ns: Option<Summary>,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    pub trial_s: f64,
    pub nat: bool,
    /// One entry per router and load.
    pub cells: Vec<BulkResult>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// What one load came to in one round.
#[derive(Clone, Debug)]
struct Run {
    load: Load,
    bits_per_second: f64,
    ping: Option<Percentiles>,
}

/// Measures all routers. Calls `step` with the number of steps done, their total and the next one. A router that
/// cannot be set up or does not forward is left out from then on.
pub fn run(
    routers: &mut [Router],
    options: &Options,
    stop: &AtomicBool,
    step: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, ForwardingError> {
    let labels: Vec<Label> = routers.iter().map(Router::label).collect();
    let names: Vec<String> = labels.iter().map(Label::to_string).collect();
    let once = |at: usize| once(&mut routers[at], options, stop);
    let Attempts { runs, left_out } = attempts((options.runs, options.seed), &names, step, once)?;
    let runs: Vec<Vec<Run>> = runs.into_iter().map(|rounds| rounds.into_iter().flatten().collect()).collect();
    let cells = sum_up(&labels, &runs, &options.loads);
    if cells.is_empty() {
        return Err(ForwardingError::Nothing(left_out));
    }
    Ok(Outcome { runs: options.runs, trial_s: options.trial_s, nat: options.nat, cells, left_out })
}

/// Measures one router once with each load, in a topology of its own.
fn once(router: &mut Router, options: &Options, stop: &AtomicBool) -> Result<Vec<Run>, ForwardingError> {
    let task = Task { nat: options.nat, table: &[], mtu: MTU };
    let missing = (!has_program("ping")).then(|| "ping is not here (package iputils-ping)".to_owned());
    if let Some(said) = router.subject.refuses(&task).or(missing) {
        return Err(ForwardingError::Command { command: router.label().to_string(), said });
    }
    let topology = if router.single_frames { Topology::new(MTU)? } else { Topology::merging(MTU)? };
    let subject = router.subject.as_mut();
    let ran = subject.set_up(&topology, &task).and_then(|()| {
        wait_until_it_forwards(&topology, stop).map_err(|error| match error {
            ForwardingError::NotForwarding { sent, received, fault, .. } => {
                ForwardingError::NotForwarding { sent, received, fault, said: subject.said() }
            }
            other => other,
        })?;
        options.loads.iter().map(|load| trial(&topology, *load, options, stop)).collect()
    });
    router.subject.tear_down();
    ran
}

fn wait_until_it_forwards(topology: &Topology, stop: &AtomicBool) -> Result<(), ForwardingError> {
    let listener = listen(topology)?;
    let failed = |source| ForwardingError::System { what: "a listener's address".to_owned(), source };
    let server = listener.local_addr().map_err(failed)?;
    let end = Instant::now() + START_WAIT;
    let mut tried = 0;
    while topology.tester_a.inside(|| TcpStream::connect_timeout(&server, CONNECT_WAIT)).is_err() {
        tried += 1;
        if stop.load(Ordering::Relaxed) {
            return Err(ForwardingError::Interrupted);
        }
        if Instant::now() > end {
            return Err(ForwardingError::NotForwarding {
                sent: tried,
                received: 0,
                fault: None,
                said: String::new(),
            });
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

fn listen(topology: &Topology) -> Result<TcpListener, ForwardingError> {
    topology.tester_b.inside(|| TcpListener::bind(SocketAddrV4::new(TESTER_ADDRESSES[1], 0)))
}

/// Runs a load with pings beside it.
fn trial(
    topology: &Topology,
    load: Load,
    options: &Options,
    stop: &AtomicBool,
) -> Result<Run, ForwardingError> {
    let listener = listen(topology)?;
    let failed =
        |source| ForwardingError::System { what: format!("the connections of {}", load.name()), source };
    let server = listener.local_addr().map_err(failed)?;
    let pairs = (0..load.connections()).map(|_| {
        let inside = topology.tester_a.inside(|| connect(server))?;
        let (outside, _) = listener.accept().map_err(failed)?;
        prepare(&outside).map_err(failed)?;
        Ok(if load == Load::Down { (outside, inside) } else { (inside, outside) })
    });
    let pairs = pairs.collect::<Result<Vec<(TcpStream, TcpStream)>, ForwardingError>>()?;
    let (bytes, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let warm_up = Duration::from_secs_f64(options.warm_up_s);
    let ping_s = options.trial_s.max(PING_EVERY_S);
    std::thread::scope(|scope| {
        for (from, to) in &pairs {
            scope.spawn(|| write_until(from, &done));
            scope.spawn(|| read_until_end(to, &bytes));
        }
        let result = wait(warm_up, stop).and_then(|()| {
            let pinging = scope.spawn(|| ping(topology, ping_s));
            let (begin, before) = (Instant::now(), bytes.load(Ordering::Relaxed));
            wait(Duration::from_secs_f64(options.trial_s), stop)?;
            let (elapsed, after) = (begin.elapsed(), bytes.load(Ordering::Relaxed));
            let ping = pinging.join().unwrap_or(Err(ForwardingError::Interrupted))?;
            let bits_per_second = (after - before) as f64 * 8.0 / elapsed.as_secs_f64();
            Ok(Run { load, bits_per_second, ping })
        });
        done.store(true, Ordering::Relaxed);
        for (from, to) in &pairs {
            // Ends calls that wait.
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
        result
    })
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))
}

fn write_until(mut stream: &TcpStream, done: &AtomicBool) {
    let block = vec![0x5a; BLOCK_BYTES];
    while !done.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Nothing more is counted; the trial shows what came until then.
            Err(_) => return,
        }
    }
}

fn read_until_end(mut stream: &TcpStream, bytes: &AtomicU64) {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return,
            Ok(read) => _ = bytes.fetch_add(read as u64, Ordering::Relaxed),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Pings tester-b from tester-a for so many seconds. Lost pings are not among the percentiles.
fn ping(topology: &Topology, seconds: f64) -> Result<Option<Percentiles>, ForwardingError> {
    let count = format!("{:.0}", (seconds / PING_EVERY_S).ceil());
    let (deadline, to) = (seconds.ceil(), TESTER_ADDRESSES[1]);
    // It fails with 1 if answers are missing at the deadline: a busy machine sends less often than it should.
    let command = format!("ping -n -i {PING_EVERY_S} -c {count} -w {deadline:.0} {to} || [ $? = 1 ]");
    let said = topology.tester_a.exec(&["sh", "-c", &command])?;
    Ok(Percentiles::of(round_trips_ns(&said)))
}

/// The times in the output of `ping`: `64 bytes from 198.19.0.2: icmp_seq=1 ttl=63 time=0.045 ms`.
fn round_trips_ns(said: &str) -> Vec<u64> {
    let time = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once(" time=")?;
        let ms: f64 = rest.strip_suffix(" ms")?.trim().parse().ok()?;
        Duration::try_from_secs_f64(ms / 1e3).ok()?.as_nanos().try_into().ok()
    };
    said.lines().filter_map(time).collect()
}

/// The results of all routers, each compared with the kernel's.
fn sum_up(labels: &[Label], runs: &[Vec<Run>], loads: &[Load]) -> Vec<BulkResult> {
    let mut cells = Vec::new();
    for (label, runs) in labels.iter().zip(runs) {
        for load in loads {
            let here: Vec<&Run> = runs.iter().filter(|run| run.load == *load).collect();
            let rates: Vec<f64> = here.iter().map(|run| run.bits_per_second).collect();
            let Some(bits_per_second) = Summary::of(&rates) else { continue };
            let pings: Vec<Percentiles> = here.iter().filter_map(|run| run.ping).collect();
            let p99: Vec<f64> = pings.iter().map(|ping| ping.p99_ns as f64).collect();
            cells.push(BulkResult {
                label: label.clone(),
                load: *load,
                bits_per_second,
                native_ratio: None,
                ping: Percentiles::median_of(&pings),
                ping_p99_ns: Summary::of(&p99),
            });
        }
    }
    let native: Vec<(Load, f64)> = cells
        .iter()
        .filter(|cell| cell.label.is_native() && cell.label.change.is_empty())
        .map(|cell| (cell.load, cell.bits_per_second.median))
        .collect();
    for cell in &mut cells {
        let kernel = native.iter().find(|(load, median)| *load == cell.load && *median > 0.0);
        cell.native_ratio = kernel.map(|(_, median)| cell.bits_per_second.median / median);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_pings_are_read() {
        let said = "PING 198.19.0.2 (198.19.0.2) 56(84) bytes of data.\n\
                    64 bytes from 198.19.0.2: icmp_seq=1 ttl=63 time=0.045 ms\n\
                    64 bytes from 198.19.0.2: icmp_seq=2 ttl=63 time=12.5 ms\n\
                    From 198.18.0.1 icmp_seq=3 Destination Host Unreachable\n\n\
                    --- 198.19.0.2 ping statistics ---\n\
                    3 packets transmitted, 2 received, 33% packet loss, time 2ms\n\
                    rtt min/avg/max/mdev = 0.045/6.272/12.500/6.227 ms\n";
        assert_eq!(round_trips_ns(said), [45_000, 12_500_000]);
        assert!(round_trips_ns("time=x ms").is_empty());
    }

    #[test]
    fn routers_are_compared_with_the_kernel_between_usual_hosts() {
        let linux = Label::new("linux", "kernel", "");
        let single = Label { change: "single frames".to_owned(), ..linux.clone() };
        let labels = [single, linux, Label::new("thalweg", "af_packet", "run-to-completion")];
        let run = |load, gbit: f64| Run { load, bits_per_second: gbit * 1e9, ping: None };
        let runs = [
            vec![run(Load::Up, 3.0)],
            vec![run(Load::Up, 12.0), run(Load::Up, 10.0), run(Load::Up, 8.0), run(Load::Down, 10.0)],
            vec![run(Load::Up, 9.0), run(Load::FourUp, 9.0)],
        ];
        let cells = sum_up(&labels, &runs, &Load::ALL);
        let ratios: Vec<_> = cells.iter().map(|cell| (cell.load, cell.native_ratio)).collect();
        assert_eq!(
            ratios,
            [
                (Load::Up, Some(0.3)),
                (Load::Up, Some(1.0)),
                (Load::Down, Some(1.0)),
                (Load::Up, Some(0.9)),
                (Load::FourUp, None),
            ]
        );
        let table = render::table(&Outcome { runs: 3, trial_s: 5.0, nat: true, cells, left_out: Vec::new() });
        assert_eq!(table.rows().len(), 5);
    }

    #[test]
    fn a_load_runs_until_it_is_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = connect(listener.local_addr().unwrap()).unwrap();
        let (to, _) = listener.accept().unwrap();
        let (bytes, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| write_until(&from, &done));
            scope.spawn(|| read_until_end(&to, &bytes));
            while bytes.load(Ordering::Relaxed) < 10 * BLOCK_BYTES as u64 {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
            from.shutdown(Shutdown::Both).unwrap();
            let _ = to.shutdown(Shutdown::Both);
        });
        let stop = AtomicBool::new(true);
        assert!(matches!(wait(TIMEOUT, &stop), Err(ForwardingError::Interrupted)));
    }
}

//! The cost of the models on synthetic work of known weight: speed-up over serial with heavy (1.5 µs a packet) and
//! light (30 ns) work in the shape of the packet router, jobs of 1600 packets.
//!
//! `cargo bench -p thalweg-exec --bench models [-- ROUNDS [WORKERS]] [NAME]`; with a name, only serial and the rows
//! that contain it.
//!
//! Neither divan nor criterion, because the result is a ratio on a machine that may have other users. Each round
//! runs every model once, in random order. The speed-up is the median over rounds of serial's time by the model's
//! *in the same round*, with quartiles. Next comes serial's best time by the model's best, which is what an
//! undisturbed machine would show if each had one undisturbed round. Then the processor time by serial's, which
//! others disturb less: two workers cannot do better than 2 divided by that. Last, waits and sleeps per job, of all
//! threads together.

use std::env;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Mutex;
use thalweg_base::{XorShift64Star, mix64};
use thalweg_exec::{ExecError, ModelKind, ModelOptions, Plan, Scope, Sink, Source, StageSpec, run};

const JOB_PACKETS: usize = 1600;
const BATCH: usize = 256;
const GROUPS: usize = 16;

/// Each stage's share of the work, in eighths. The ordered stage and the sorting do only what they must.
const STAGES: [(&str, Scope, u64); 6] = [
    ("validate", Scope::Batches, 2),
    ("police", Scope::Ordered, 0),
    ("schedule", Scope::Whole, 0),
    ("translate", Scope::PerShard, 2),
    ("route", Scope::Batches, 3),
    ("rewrite", Scope::Batches, 1),
];

/// As large as the descriptor of a real packet.
#[derive(Clone)]
struct Packet {
    value: u64,
    group: u16,
    position: u16,
    _rest: [u64; 6],
}

struct Job {
    sequence: u64,
    packets: Vec<Packet>,
    /// Packet positions by group.
    by_group: Vec<Vec<u16>>,
}

struct Synthetic {
    stages: Vec<StageSpec>,
    /// Rounds of work per packet and eighth.
    turns: u64,
    groups: Vec<Mutex<u64>>,
    policer: Mutex<u64>,
}

impl Synthetic {
    fn new(turns: u64) -> Self {
        let spec = |&(name, scope, _): &(&str, Scope, u64)| StageSpec { name: name.to_owned(), scope };
        Self {
            stages: STAGES.iter().map(spec).collect(),
            turns,
            groups: (0..GROUPS).map(|_| Mutex::new(0)).collect(),
            policer: Mutex::new(0),
        }
    }

    fn mill(&self, stage: usize, value: u64) -> u64 {
        (0..self.turns * STAGES[stage].2).fold(value, |x, _| black_box(mix64(x)))
    }
}

fn index_groups(job: &mut Job) {
    job.by_group.iter_mut().for_each(Vec::clear);
    job.by_group.resize_with(GROUPS, || Vec::with_capacity(2 * JOB_PACKETS / GROUPS));
    for (i, packet) in (0u16..).zip(&job.packets) {
        job.by_group[usize::from(packet.group)].push(i);
    }
}

impl Plan for Synthetic {
    type Job = Job;
    type Scratch = ();

    fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    fn shard_groups(&self) -> usize {
        GROUPS
    }

    fn scratch(&self) {}

    fn sequence(&self, job: &Job) -> u64 {
        job.sequence
    }

    fn admit(&self, _: &mut Job, _: u64) {}

    fn batches(&self, _: usize, job: &Job) -> usize {
        job.packets.len().div_ceil(BATCH)
    }

    fn run_batch(&self, stage: usize, job: &mut Job, batch: usize, _: u64, (): &mut ()) {
        let end = (batch * BATCH + BATCH).min(job.packets.len());
        for packet in &mut job.packets[batch * BATCH..end] {
            packet.value = self.mill(stage, packet.value);
        }
    }

    fn run_whole(&self, stage: usize, job: &mut Job, (): &mut ()) {
        if self.stages[stage].scope == Scope::Whole {
            index_groups(job);
        } else if let Ok(mut policer) = self.policer.lock() {
            *policer = job.packets.iter().fold(*policer, |sum, packet| sum.wrapping_add(packet.value));
        }
    }

    fn run_shards(&self, stage: usize, job: &mut Job, groups: Range<usize>, (): &mut ()) {
        for group in groups {
            let Ok(mut state) = self.groups[group].lock() else { return };
            for &i in &job.by_group[group] {
                let packet = &mut job.packets[usize::from(i)];
                packet.value = self.mill(stage, packet.value);
                *state = state.wrapping_add(packet.value);
            }
        }
    }

    fn crosses(&self, _: usize, _: &Job) -> bool {
        false
    }

    fn run_crossing(&self, _: usize, _: &mut Job, (): &mut ()) {}

    fn split(&self, job: Job, owners: &[usize], parts: usize) -> Vec<Job> {
        let room = job.packets.len() / parts + 16;
        let part =
            |_| Job { sequence: job.sequence, packets: Vec::with_capacity(room), by_group: Vec::new() };
        let mut out: Vec<Job> = (0..parts).map(part).collect();
        for packet in job.packets {
            out[owners[usize::from(packet.group)]].packets.push(packet);
        }
        out.iter_mut().for_each(index_groups);
        out
    }

    fn merge(&self, parts: Vec<Job>) -> Job {
        let sequence = parts[0].sequence;
        let mut packets = Vec::with_capacity(parts.iter().map(|part| part.packets.len()).sum());
        let mut parts: Vec<_> = parts.into_iter().map(|part| part.packets.into_iter()).collect();
        // Each part is in order, so the next packet is at the head of one part.
        let head = |part: &std::vec::IntoIter<Packet>| part.as_slice().first().map(|packet| packet.position);
        while let Some(part) = parts.iter_mut().filter(|p| p.len() > 0).min_by_key(|p| head(p)) {
            packets.extend(part.next());
        }
        Job { sequence, packets, by_group: Vec::new() }
    }
}

struct Preloaded(std::vec::IntoIter<Job>);

impl Source<Job> for Preloaded {
    fn next(&mut self) -> Option<Job> {
        self.0.next()
    }
}

/// Counts the packets. Keeps the jobs that were made beforehand, because freeing all that memory is not the models'
/// work. Drops the parts that `split` has made, so that the next split finds the memory.
#[derive(Default)]
struct Checksum {
    sum: u64,
    packets: u64,
    kept: Vec<Job>,
}

impl Sink<Job> for Checksum {
    fn accept(&mut self, job: Job) {
        self.packets += job.packets.len() as u64;
        self.sum = job.packets.iter().fold(self.sum, |sum, packet| sum.wrapping_add(packet.value));
        if job.packets.capacity() == JOB_PACKETS {
            self.kept.push(job);
        }
    }
}

fn jobs(count: u64) -> Vec<Job> {
    let mut rng = XorShift64Star::new(1);
    let mut packets = || {
        (0..JOB_PACKETS as u16)
            .map(|position| Packet {
                value: rng.next_u64(),
                group: rng.below(GROUPS as u32) as u16,
                position,
                _rest: [0; 6],
            })
            .collect()
    };
    let job = |sequence| -> Job {
        let mut job = Job { sequence, packets: packets(), by_group: Vec::new() };
        index_groups(&mut job);
        job
    };
    (0..count).map(job).collect()
}

/// The rounds per eighth that make a given amount of work per packet, from the cost of a round in the serial run.
fn turns_for(ns_per_packet: f64) -> Result<u64, ExecError> {
    const TURNS: u64 = 20;
    let mut costs = [1, 1 + TURNS].map(|turns| (turns, Vec::new()));
    for _ in 0..9 {
        for (turns, times) in &mut costs {
            let mut serial = Cell::new("", ModelOptions::new(ModelKind::Serial, 1));
            measure(&mut serial, *turns, 10)?;
            times.extend(serial.cpu);
        }
    }
    let [one, many] = costs.map(|(_, times)| quantile(&times, 0.5) * 1e9 / (10 * JOB_PACKETS) as f64);
    let ns_per_turn = (many - one) / TURNS as f64;
    Ok((1.0 + (ns_per_packet - one) / ns_per_turn).round().max(1.0) as u64)
}

struct Cell {
    name: String,
    options: ModelOptions,
    elapsed: Vec<f64>,
    cpu: Vec<f64>,
    waits: Vec<f64>,
    parks: Vec<f64>,
}

impl Cell {
    fn new(name: impl Into<String>, options: ModelOptions) -> Self {
        Self {
            name: name.into(),
            options,
            elapsed: Vec::new(),
            cpu: Vec::new(),
            waits: Vec::new(),
            parks: Vec::new(),
        }
    }
}

fn measure(cell: &mut Cell, turns: u64, count: u64) -> Result<u64, ExecError> {
    let plan = Synthetic::new(turns);
    let mut sink = Checksum::default();
    let report = run(&plan, &mut Preloaded(jobs(count).into_iter()), &mut sink, &cell.options)?;
    assert_eq!(sink.packets, count * JOB_PACKETS as u64);
    cell.elapsed.push(report.elapsed.as_secs_f64());
    cell.cpu.push(report.threads.iter().map(|thread| thread.cpu.as_secs_f64()).sum());
    cell.waits.push(report.threads.iter().map(|t| t.waits).sum::<u64>() as f64 / count as f64);
    cell.parks.push(report.threads.iter().map(|t| t.parks).sum::<u64>() as f64 / count as f64);
    Ok(sink.sum)
}

/// The value at a quantile of the sorted list.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn table(
    title: &str,
    ns_per_packet: f64,
    count: u64,
    rounds: usize,
    workers: usize,
    only: &str,
) -> Result<(), ExecError> {
    let turns = turns_for(ns_per_packet)?;
    let new = |kind| ModelOptions::new(kind, workers);
    let farm = ModelOptions { workers: (workers - 1).max(1), ..new(ModelKind::Farm) };
    let cells = [
        ("serial".to_owned(), new(ModelKind::Serial)),
        ("run-to-completion".to_owned(), new(ModelKind::RunToCompletion)),
        ("pipeline".to_owned(), new(ModelKind::Pipeline)),
        ("tokens".to_owned(), new(ModelKind::Tokens)),
        (format!("farm 1R + {}W", farm.workers), farm.clone()),
        (format!("farm 1R + {workers}W"), new(ModelKind::Farm)),
        (format!("farm {workers}R + {workers}W"), ModelOptions { readers: workers, ..new(ModelKind::Farm) }),
        (
            format!("farm {workers}R + {workers}W ordered"),
            ModelOptions { readers: workers, ordered: true, ..new(ModelKind::Farm) },
        ),
    ];
    let mut cells: Vec<Cell> = cells
        .into_iter()
        .filter(|(name, _)| name == "serial" || name.contains(only))
        .map(|(name, options)| Cell::new(name, options))
        .collect();
    let mut rng = XorShift64Star::new(7);
    let mut order: Vec<usize> = (0..cells.len()).collect();
    let mut sums = Vec::new();
    for _ in 0..rounds {
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u32 + 1) as usize);
        }
        for &i in &order {
            sums.push(measure(&mut cells[i], turns, count)?);
        }
    }
    assert!(sums.windows(2).all(|pair| pair[0] == pair[1]), "the models disagree");
    println!("\n{title}: {count} jobs of {JOB_PACKETS} packets, {rounds} rounds");
    println!(
        "{:<24} {:>10} {:>9} {:>13} {:>6} {:>9} {:>6} {:>6}",
        "model", "ns/packet", "speed-up", "quartiles", "best", "cpu", "waits", "parks"
    );
    let serial = (cells[0].elapsed.clone(), cells[0].cpu.clone());
    for cell in &cells {
        let speed_up: Vec<f64> = serial.0.iter().zip(&cell.elapsed).map(|(s, m)| s / m).collect();
        let cpu: Vec<f64> = serial.1.iter().zip(&cell.cpu).map(|(s, m)| m / s).collect();
        println!(
            "{:<24} {:>10.1} {:>9.2} {:>6.2}–{:<6.2} {:>6.2} {:>9.3} {:>6.2} {:>6.2}",
            cell.name,
            quantile(&cell.elapsed, 0.5) * 1e9 / (count * JOB_PACKETS as u64) as f64,
            quantile(&speed_up, 0.5),
            quantile(&speed_up, 0.25),
            quantile(&speed_up, 0.75),
            quantile(&serial.0, 0.0) / quantile(&cell.elapsed, 0.0),
            quantile(&cpu, 0.5),
            quantile(&cell.waits, 0.5),
            quantile(&cell.parks, 0.5),
        );
    }
    Ok(())
}

fn main() -> Result<(), ExecError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    // Only `cargo bench` passes this; under `cargo test` one small round shows that the benchmark works.
    let bench = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(if bench { 15 } else { 1 }).max(1);
    let workers = numbers.next().unwrap_or(2).max(1);
    let is_name = |argument: &&String| !argument.starts_with('-') && argument.parse::<usize>().is_err();
    let only = arguments.iter().find(is_name).map_or("", String::as_str);
    let scale = if bench { 1 } else { 10 };
    table("heavy work, 1.5 µs a packet", 1500.0, 160 / scale, rounds, workers, only)?;
    table("light work, 30 ns a packet", 30.0, 1000 / scale, rounds, workers, only)
}

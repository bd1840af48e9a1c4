//! Lanes: each flow gets the serial model's answer in the same order, whatever the number of lanes; no two jobs
//! enter state at once; lanes end properly.
//!
//! `PROPTEST_CASES=100000 cargo test -p thalweg-exec --release --test models any_lanes` is the stress run.

use crate::toy::shake;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use thalweg_base::{XorShift64Star, mix64};
use thalweg_exec::{
    ExecError, Lane, ModelKind, ModelOptions, Plan, RunReport, Scope, Sink, Source, StageSpec, run_lanes,
};

const FLOWS: u64 = 48;
const SHARDS: usize = 16;
const STAGES: [Scope; 6] =
    [Scope::Batches, Scope::Ordered, Scope::Whole, Scope::PerShard, Scope::Batches, Scope::PerShard];
const CROSSING_STAGES: [usize; 2] = [3, 5];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    flow: u64,
    /// Place in its flow.
    number: u64,
    value: u64,
}

#[derive(Clone, Debug)]
struct Job {
    lane: usize,
    sequence: u64,
    packets: Vec<Packet>,
    crosses: bool,
    admitted: bool,
}

/// Chains of hashes by flow, in an ordered piece of state and in shards. A flow's chain shows any change of order.
struct Flows {
    stages: Vec<StageSpec>,
    groups: usize,
    ordered: Mutex<Vec<u64>>,
    shards: Vec<Vec<Mutex<Vec<u64>>>>,
    /// The sequence due in the ordered stage, by stage and lane.
    due: Mutex<BTreeMap<(usize, usize), u64>>,
    crossing: [AtomicBool; STAGES.len()],
    inside: [AtomicUsize; STAGES.len()],
    crossings: AtomicUsize,
    jitter: bool,
    /// Lane, sequence, stage.
    trap: Option<(usize, u64, usize)>,
}

impl Flows {
    fn new(groups: usize, jitter: bool) -> Self {
        let chains = || Mutex::new((0..FLOWS).map(mix64).collect::<Vec<u64>>());
        let spec = |(i, &scope): (usize, &Scope)| StageSpec { name: format!("{scope:?}-{i}"), scope };
        Self {
            stages: STAGES.iter().enumerate().map(spec).collect(),
            groups,
            ordered: chains(),
            shards: STAGES.iter().map(|_| (0..groups).map(|_| chains()).collect()).collect(),
            due: Mutex::default(),
            crossing: Default::default(),
            inside: Default::default(),
            crossings: AtomicUsize::new(0),
            jitter,
            trap: None,
        }
    }

    fn group(&self, flow: u64) -> usize {
        (flow as usize % SHARDS) * self.groups / SHARDS
    }

    fn spring(&self, job: &Job, stage: usize) {
        assert_ne!(self.trap, Some((job.lane, job.sequence, stage)), "trap");
        if self.jitter {
            shake(job.sequence.wrapping_mul(31).wrapping_add((job.lane * 7 + stage) as u64));
        }
    }

    /// The final chains of all groups.
    fn state(&self) -> Vec<Vec<u64>> {
        let of_stage = |stage: &Vec<Mutex<Vec<u64>>>| {
            (0..FLOWS).map(|flow| stage[self.group(flow)].lock().unwrap()[flow as usize]).collect()
        };
        let mut all: Vec<Vec<u64>> = self.shards.iter().map(of_stage).collect();
        all.push(self.ordered.lock().unwrap().clone());
        all
    }
}

impl Plan for Flows {
    type Job = Job;
    type Scratch = u64;

    fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    fn shard_groups(&self) -> usize {
        self.groups
    }

    fn scratch(&self) -> u64 {
        0
    }

    fn sequence(&self, job: &Job) -> u64 {
        job.sequence
    }

    fn admit(&self, job: &mut Job, _: u64) {
        assert!(!std::mem::replace(&mut job.admitted, true), "admitted twice");
    }

    fn batches(&self, _: usize, job: &Job) -> usize {
        job.packets.len().div_ceil(4)
    }

    fn run_batch(&self, stage: usize, job: &mut Job, batch: usize, _: u64, packets: &mut u64) {
        self.spring(job, stage);
        let end = (batch * 4 + 4).min(job.packets.len());
        for packet in &mut job.packets[batch * 4..end] {
            packet.value = mix64(packet.value ^ stage as u64);
            *packets += 1;
        }
    }

    fn run_whole(&self, stage: usize, job: &mut Job, _: &mut u64) {
        if STAGES[stage] == Scope::Whole {
            return self.spring(job, stage);
        }
        let mut chains = self.ordered.try_lock().expect("two jobs in an ordered stage");
        self.spring(job, stage);
        let mut due = self.due.try_lock().expect("two jobs in an ordered stage");
        let due = due.entry((stage, job.lane)).or_default();
        assert_eq!(*due, job.sequence, "a lane's jobs in order");
        *due += 1;
        for packet in &mut job.packets {
            let chain = &mut chains[packet.flow as usize];
            *chain = mix64(*chain ^ packet.value);
            packet.value = *chain;
        }
    }

    fn run_shards(&self, stage: usize, job: &mut Job, groups: Range<usize>, _: &mut u64) {
        for group in groups {
            let mut chains = self.shards[stage][group].try_lock().expect("two jobs in a group");
            self.inside[stage].fetch_add(1, SeqCst);
            assert!(job.crosses || !self.crossing[stage].load(SeqCst), "a job beside one that crosses");
            self.spring(job, stage);
            if job.crosses {
                // From its first group on.
                self.crossing[stage].store(true, SeqCst);
                assert_eq!(self.inside[stage].load(SeqCst), 1, "a job that crosses beside another");
            }
            for packet in job.packets.iter_mut().filter(|packet| self.group(packet.flow) == group) {
                let chain = &mut chains[packet.flow as usize];
                *chain = mix64(*chain ^ packet.value);
                packet.value = *chain;
            }
            self.inside[stage].fetch_sub(1, SeqCst);
        }
    }

    fn crosses(&self, _: usize, job: &Job) -> bool {
        job.crosses
    }

    fn run_crossing(&self, stage: usize, job: &mut Job, _: &mut u64) {
        let all: Vec<_> = self.shards[stage].iter().map(|group| group.try_lock()).collect();
        assert!(all.iter().all(Result::is_ok), "a job beside one that crosses");
        self.spring(job, stage);
        assert_eq!(self.inside[stage].load(SeqCst), 0);
        self.crossing[stage].store(false, SeqCst);
        self.crossings.fetch_add(1, SeqCst);
    }

    fn split(&self, _: Job, _: &[usize], _: usize) -> Vec<Job> {
        unreachable!("no farm")
    }

    fn merge(&self, _: Vec<Job>) -> Job {
        unreachable!("no farm")
    }
}

struct From<I, F>(I, F);

impl<I: Iterator<Item = Job> + Send, F: FnMut(Option<u64>) + Send> Source<Job> for From<I, F> {
    fn next(&mut self) -> Option<Job> {
        let job = self.0.next();
        (self.1)(job.as_ref().map(|job| job.sequence));
        job
    }
}

#[derive(Default)]
struct To(Vec<Job>);

impl Sink<Job> for To {
    fn accept(&mut self, job: Job) {
        self.0.push(job);
    }
}

/// Cuts packets of flows into jobs. A flow has one lane, as a card's hash would give it.
fn input(seed: u64, packets: u64, lanes: usize, crossing_one_in: u32) -> Vec<Vec<Job>> {
    let mut rng = XorShift64Star::new(seed);
    let mut numbers = vec![0; FLOWS as usize];
    let mut queues: Vec<Vec<Packet>> = vec![Vec::new(); lanes];
    for _ in 0..packets {
        let flow = u64::from(rng.below(FLOWS as u32));
        let number = numbers[flow as usize];
        numbers[flow as usize] += 1;
        let lane = mix64(flow ^ seed) as usize % lanes;
        queues[lane].push(Packet { flow, number, value: mix64(flow << 32 ^ number) });
    }
    let mut jobs = Vec::new();
    for (lane, packets) in queues.into_iter().enumerate() {
        let (mut rest, mut of_lane) = (packets.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (now, later) = rest.split_at((1 + rng.below(12) as usize).min(rest.len()));
            let crosses = crossing_one_in > 0 && rng.below(crossing_one_in) == 0;
            let sequence = of_lane.len() as u64;
            of_lane.push(Job { lane, sequence, packets: now.to_vec(), crosses, admitted: false });
            rest = later;
        }
        jobs.push(of_lane);
    }
    jobs
}

/// The output by flow, in order.
fn by_flow<'j>(jobs: impl Iterator<Item = &'j Job>) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut flows: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for packet in jobs.flat_map(|job| &job.packets) {
        flows.entry(packet.flow).or_default().push((packet.number, packet.value));
    }
    flows
}

/// Runs the same packets through the serial model, one lane after the other.
fn oracle(lanes: &[Vec<Job>]) -> (Flows, Vec<Job>) {
    let plan = Flows::new(1, false);
    let mut jobs: Vec<Job> = lanes.iter().flatten().cloned().collect();
    for (sequence, job) in jobs.iter_mut().enumerate() {
        (job.lane, job.sequence) = (0, sequence as u64);
    }
    let mut sink = To::default();
    let mut source = From(jobs.into_iter(), |_| ());
    thalweg_exec::run(&plan, &mut source, &mut sink, &ModelOptions::new(ModelKind::Serial, 1)).unwrap();
    (plan, sink.0)
}

fn run(
    plan: &Flows,
    lanes: &[Vec<Job>],
    pin_cores: Option<&[usize]>,
) -> (Result<RunReport<u64>, ExecError>, Vec<Vec<Job>>) {
    let mut sources: Vec<_> = lanes.iter().map(|jobs| From(jobs.iter().cloned(), |_| ())).collect();
    let mut sinks: Vec<To> = lanes.iter().map(|_| To::default()).collect();
    let ends = sources.iter_mut().zip(&mut sinks).map(|(source, sink)| Lane { source, sink });
    let report = run_lanes(plan, ends.collect(), pin_cores, &|| ());
    (report, sinks.into_iter().map(|sink| sink.0).collect())
}

fn compare(seed: u64, packets: u64, lanes: usize, groups: usize, crossing_one_in: u32, jitter: bool) {
    let input = input(seed, packets, lanes, crossing_one_in);
    let (expected_plan, expected) = oracle(&input);
    let plan = Flows::new(groups, jitter);
    let (report, out) = run(&plan, &input, None);
    let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let context = format!("seed {seed}, {lanes} lanes, {groups} groups");
    assert_eq!(plan.state(), expected_plan.state(), "state: {context}");
    assert_eq!(by_flow(out.iter().flatten()), by_flow(expected.iter()), "flows: {context}");
    for (sent, got) in input.iter().zip(&out) {
        assert!(got.iter().map(|job| job.sequence).eq(0..sent.len() as u64), "each lane in order: {context}");
    }
    let jobs: usize = input.iter().map(Vec::len).sum();
    assert_eq!(report.jobs, jobs as u64);
    assert_eq!(report.threads.iter().map(|thread| thread.jobs).sum::<u64>(), report.jobs);
    assert_eq!(report.scratches.iter().sum::<u64>(), 2 * packets, "{context}");
    let crossing = input.iter().flatten().filter(|job| job.crosses).count() * CROSSING_STAGES.len();
    assert_eq!(plan.crossings.load(SeqCst), crossing, "{context}");
}

#[test]
fn flows_get_what_the_serial_model_gives_them() {
    for lanes in 1..=6 {
        for groups in [1, 2, 3, 8, 16] {
            compare((lanes * 100 + groups) as u64, 800, lanes, groups, 5, true);
        }
    }
}

proptest! {
    #[test]
    fn any_lanes(
        seed in any::<u64>(),
        packets in 0..600u64,
        lanes in 1..=8usize,
        groups in 1..=16usize,
        crossing_one_in in 0..6u32,
        jitter in any::<bool>(),
    ) {
        compare(seed, packets, lanes, groups, crossing_one_in, jitter);
    }
}

/// A lane that waits for input that never comes learns that another lane is lost.
#[test]
fn a_lost_worker_ends_the_lanes_that_wait() {
    for (stage, scope) in STAGES.iter().enumerate() {
        let mut plan = Flows::new(4, false);
        plan.trap = Some((0, 2, stage));
        let input = input(9, 400, 1, 3);
        let (told, waits) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut busy = From(input[0].iter().cloned(), |sequence| {
            while sequence == Some(2) && !waits.load(SeqCst) {
                std::thread::yield_now();
            }
        });
        let mut silent = From(std::iter::empty(), |_| {
            waits.store(true, SeqCst);
            while !told.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let (mut out, mut nothing) = (To::default(), To::default());
        let lanes = vec![
            Lane { source: &mut busy, sink: &mut out },
            Lane { source: &mut silent, sink: &mut nothing },
        ];
        match run_lanes(&plan, lanes, None, &|| told.store(true, SeqCst)) {
            Err(ExecError::Panicked { role: "worker", index: 0, at, .. }) => {
                assert_eq!(at, format!("stage \"{scope:?}-{stage}\""));
            }
            other => panic!("stage {stage}: {:?}", other.map(|report| report.jobs)),
        }
        assert!(out.0.iter().map(|job| job.sequence).eq(0..2), "every finished job came out");
    }
}

#[test]
fn lanes_end_one_by_one() {
    let mut lanes = input(4, 300, 3, 4);
    lanes[1].clear();
    lanes[2].truncate(1);
    let plan = Flows::new(4, true);
    let (report, out) = run(&plan, &lanes, None);
    assert_eq!(report.unwrap().jobs, lanes[0].len() as u64 + 1);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [lanes[0].len(), 0, 1]);
}

#[test]
fn senseless_lanes_are_errors() {
    let none = run_lanes(&Flows::new(1, false), Vec::new(), None, &|| ());
    assert!(matches!(none, Err(ExecError::Workers(0))));
    let lanes = input(4, 30, 2, 0);
    assert!(matches!(run(&Flows::new(0, false), &lanes, None).0, Err(ExecError::NoShardGroups)));
    assert!(matches!(run(&Flows::new(1, false), &lanes, Some(&[])).0, Err(ExecError::NoCores)));
    assert!(matches!(
        run(&Flows::new(1, false), &lanes, Some(&[1023])).0,
        Err(ExecError::Pin { core: 1023, .. })
    ));
    let mut gap = lanes;
    gap[1].remove(1);
    let found = run(&Flows::new(1, false), &gap, None).0;
    assert!(matches!(found, Err(ExecError::OutOfSequence { expected: 1, found: 2 })));
}

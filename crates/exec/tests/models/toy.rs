//! A toy plan in which every broken promise shows. State is chains of hashes, so any change of order changes the
//! result; locks are only tried, so any overlap panics; every state checks sequence numbers.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg_base::{XorShift64Star, mix64};
use thalweg_exec::{ModelOptions, Plan, RunReport, Scope, Sink, Source, StageSpec, VirtualCores};

/// Shards; groups are made of neighboring ones, so results do not depend on how many groups there are.
pub(crate) const SHARDS: usize = 16;

const BATCH: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) id: u64,
    pub(crate) value: u64,
    pub(crate) shard: usize,
    /// The packet needs this shard as well.
    pub(crate) other_shard: Option<usize>,
    position: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) sequence: u64,
    pub(crate) packets: Vec<Packet>,
    /// Packets of the whole job.
    size: usize,
    admitted_ns: Option<u64>,
    /// Batches run, as (stage, batch).
    pub(crate) log: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OrderedState {
    next: u64,
    chain: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupState {
    next: u64,
    chains: [u64; SHARDS],
}

/// Where the plan should panic: stage (or another place) and sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    Stage(usize, u64),
    Crossing(usize, u64),
    Admit(u64),
    Split(u64),
    Merge(u64),
}

pub(crate) struct Toy {
    stages: Vec<StageSpec>,
    groups: usize,
    jitter: bool,
    ordered: Vec<Mutex<OrderedState>>,
    shards: Vec<Vec<Mutex<GroupState>>>,
    pub(crate) trap: Option<Trap>,
    /// Called in every stage with stage, sequence and group, if there is one.
    pub(crate) hook: Option<Hook>,
}

pub(crate) type Hook = Box<dyn Fn(usize, u64, Option<usize>) + Sync>;

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) batches: u64,
    pub(crate) packets_sharded: u64,
    pub(crate) crossings: u64,
}

impl Toy {
    pub(crate) fn new(scopes: &[Scope], groups: usize, jitter: bool) -> Self {
        let group = || Mutex::new(GroupState { next: 0, chains: [1; SHARDS] });
        Self {
            stages: scopes
                .iter()
                .enumerate()
                .map(|(i, &scope)| StageSpec { name: format!("{scope:?}-{i}"), scope })
                .collect(),
            groups,
            jitter,
            ordered: scopes.iter().map(|_| Mutex::default()).collect(),
            shards: scopes.iter().map(|_| (0..groups).map(|_| group()).collect()).collect(),
            trap: None,
            hook: None,
        }
    }

    pub(crate) fn group(&self, shard: usize) -> usize {
        shard * self.groups / SHARDS
    }

    /// All state, in a form that does not depend on the number of groups.
    pub(crate) fn state(&self) -> Vec<(u64, Vec<u64>)> {
        self.ordered
            .iter()
            .zip(&self.shards)
            .map(|(ordered, groups)| {
                let chains = (0..SHARDS).map(|s| groups[self.group(s)].lock().unwrap().chains[s]).collect();
                (ordered.lock().unwrap().chain, chains)
            })
            .collect()
    }

    /// Wastes a little time now and then, differently for every place and run of the test.
    fn shake(&self, a: u64, b: usize) {
        if self.jitter {
            shake(a.wrapping_mul(31).wrapping_add(b as u64));
        }
    }

    fn visit(&self, stage: usize, sequence: u64, group: Option<usize>) {
        if let Some(hook) = &self.hook {
            hook(stage, sequence, group);
        }
    }

    fn spring(&self, trap: Trap) {
        assert_ne!(self.trap, Some(trap), "trap");
    }
}

pub(crate) fn shake(salt: u64) {
    match mix64(salt) % 16 {
        0 => std::thread::sleep(Duration::from_micros(mix64(salt + 1) % 60)),
        1..4 => std::thread::yield_now(),
        4..6 => (0..mix64(salt + 2) % 2000).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

impl Plan for Toy {
    type Job = Job;
    type Scratch = Counts;

    fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    fn shard_groups(&self) -> usize {
        self.groups
    }

    fn scratch(&self) -> Counts {
        Counts::default()
    }

    fn sequence(&self, job: &Job) -> u64 {
        job.sequence
    }

    fn admit(&self, job: &mut Job, now_ns: u64) {
        self.spring(Trap::Admit(job.sequence));
        assert!(job.admitted_ns.is_none(), "admitted twice");
        job.admitted_ns = Some(now_ns);
    }

    fn batches(&self, stage: usize, job: &Job) -> usize {
        assert_eq!(self.stages[stage].scope, Scope::Batches);
        job.packets.len().div_ceil(BATCH)
    }

    fn run_batch(&self, stage: usize, job: &mut Job, batch: usize, now_ns: u64, scratch: &mut Counts) {
        self.spring(Trap::Stage(stage, job.sequence));
        assert_eq!(self.stages[stage].scope, Scope::Batches);
        assert!(job.admitted_ns.is_some_and(|admitted| admitted <= now_ns), "the clock went back");
        self.visit(stage, job.sequence, None);
        let end = (batch * BATCH + BATCH).min(job.packets.len());
        for packet in &mut job.packets[batch * BATCH..end] {
            packet.value = mix64(packet.value ^ stage as u64);
        }
        job.log.push((stage, batch));
        scratch.batches += 1;
        self.shake(job.sequence, stage * 100 + batch);
    }

    fn run_whole(&self, stage: usize, job: &mut Job, _: &mut Counts) {
        self.spring(Trap::Stage(stage, job.sequence));
        assert_eq!(job.packets.len(), job.size, "a stage that wants the whole job got a part");
        self.visit(stage, job.sequence, None);
        if self.stages[stage].scope == Scope::Whole {
            job.packets.sort_by_key(|packet| packet.value % 3);
            for (position, packet) in job.packets.iter_mut().enumerate() {
                packet.position = position;
            }
            self.shake(job.sequence, stage * 1000);
            return;
        }
        let mut state = self.ordered[stage].try_lock().expect("two jobs in an ordered stage");
        assert_eq!(state.next, job.sequence, "ordered stage out of order");
        self.shake(job.sequence, stage * 1000);
        for packet in &mut job.packets {
            state.chain = mix64(state.chain ^ packet.value);
            packet.value = state.chain;
        }
        state.chain = mix64(state.chain.wrapping_add(job.sequence));
        state.next += 1;
    }

    fn run_shards(&self, stage: usize, job: &mut Job, groups: Range<usize>, scratch: &mut Counts) {
        self.spring(Trap::Stage(stage, job.sequence));
        assert_eq!(self.stages[stage].scope, Scope::PerShard);
        for group in groups {
            self.visit(stage, job.sequence, Some(group));
            let mut state = self.shards[stage][group].try_lock().expect("two jobs in a group");
            assert_eq!(state.next, job.sequence, "group out of order");
            self.shake(job.sequence, stage * 1000 + group);
            for packet in job.packets.iter_mut().filter(|packet| self.group(packet.shard) == group) {
                let chain = &mut state.chains[packet.shard];
                *chain = mix64(*chain ^ packet.value);
                packet.value = *chain;
                scratch.packets_sharded += 1;
            }
            state.next += 1;
        }
    }

    fn crosses(&self, _: usize, job: &Job) -> bool {
        job.packets.iter().any(|packet| packet.other_shard.is_some())
    }

    fn run_crossing(&self, stage: usize, job: &mut Job, scratch: &mut Counts) {
        self.spring(Trap::Crossing(stage, job.sequence));
        assert_eq!(job.packets.len(), job.size, "crossing of a part");
        scratch.crossings += 1;
        let mut groups: Vec<_> =
            self.shards[stage].iter().map(|g| g.try_lock().expect("a job beside a crossing one")).collect();
        self.shake(job.sequence, stage * 1000 + 500);
        assert!(groups.iter().all(|g| g.next == job.sequence + 1), "a later job before a crossing one");
        for packet in &mut job.packets {
            let Some(other) = packet.other_shard else { continue };
            let (a, b) = (self.group(packet.shard), self.group(other));
            let moved = mix64(groups[a].chains[packet.shard] ^ packet.value);
            groups[a].chains[packet.shard] = mix64(moved);
            groups[b].chains[other] = mix64(groups[b].chains[other] ^ moved);
            packet.value = groups[b].chains[other];
        }
    }

    fn split(&self, job: Job, owners: &[usize], parts: usize) -> Vec<Job> {
        self.spring(Trap::Split(job.sequence));
        assert_eq!(owners.len(), self.groups);
        let empty = Job { packets: Vec::new(), log: Vec::new(), ..job };
        let mut out = vec![empty; parts];
        for packet in job.packets {
            out[owners[self.group(packet.shard)]].packets.push(packet);
        }
        out
    }

    fn merge(&self, parts: Vec<Job>) -> Job {
        self.spring(Trap::Merge(parts[0].sequence));
        merge(parts)
    }
}

pub(crate) fn merge(parts: Vec<Job>) -> Job {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().expect("at least one part");
    for part in parts {
        assert_eq!(part.sequence, whole.sequence);
        whole.packets.extend(part.packets);
        whole.log.extend(part.log);
    }
    whole.packets.sort_by_key(|packet| packet.position);
    assert_eq!(whole.packets.len(), whole.size, "packets were lost or duplicated");
    whole
}

/// Random jobs of zero to forty packets; one in `crossing_one_in` jobs has packets that cross.
pub(crate) fn jobs(seed: u64, count: u64, crossing_one_in: u32) -> Vec<Job> {
    let mut rng = XorShift64Star::new(seed);
    let mut id = 0;
    (0..count)
        .map(|sequence| {
            let size = if rng.below(8) == 0 { 0 } else { rng.below(40) as usize };
            let crosses = crossing_one_in > 0 && rng.below(crossing_one_in) == 0;
            let packets = (0..size)
                .map(|position| {
                    id += 1;
                    let other = rng.below(SHARDS as u32) as usize;
                    Packet {
                        id,
                        value: mix64(id ^ seed),
                        shard: rng.below(SHARDS as u32) as usize,
                        other_shard: (crosses && rng.below(4) == 0).then_some(other),
                        position,
                    }
                })
                .collect();
            Job { sequence, packets, size, admitted_ns: None, log: Vec::new() }
        })
        .collect()
}

pub(crate) struct Jobs<I, F> {
    pub(crate) jobs: I,
    pub(crate) before: F,
}

impl<I: Iterator<Item = Job> + Send, F: FnMut(u64) + Send> Source<Job> for Jobs<I, F> {
    fn next(&mut self) -> Option<Job> {
        let job = self.jobs.next();
        (self.before)(job.as_ref().map_or(u64::MAX, |job| job.sequence));
        job
    }
}

pub(crate) struct Collect<F: FnMut(u64) + Send> {
    pub(crate) jobs: Vec<Job>,
    pub(crate) before: F,
}

impl<F: FnMut(u64) + Send> Sink<Job> for Collect<F> {
    fn accept(&mut self, job: Job) {
        (self.before)(job.sequence);
        self.jobs.push(job);
    }
}

pub(crate) struct Outcome {
    pub(crate) report: RunReport<Counts>,
    pub(crate) delivered: Vec<Job>,
}

/// Runs jobs through the toy plan and checks what must hold for any run.
pub(crate) fn run(toy: &Toy, input: &[Job], options: &ModelOptions) -> Outcome {
    run_on(None, toy, input, options, "")
}

/// The same on virtual cores.
pub(crate) fn run_on(
    cores: Option<&Arc<VirtualCores>>,
    toy: &Toy,
    input: &[Job],
    options: &ModelOptions,
    name: &str,
) -> Outcome {
    let jitter = toy.jitter;
    let mut source = Jobs {
        jobs: input.iter().cloned(),
        before: |sequence: u64| {
            if jitter {
                shake(sequence.wrapping_mul(77))
            }
        },
    };
    let mut sink = Collect {
        jobs: Vec::new(),
        before: |sequence: u64| {
            if jitter {
                shake(sequence.wrapping_mul(99))
            }
        },
    };
    let report = thalweg_exec::run_on(cores, toy, &mut source, &mut sink, options)
        .unwrap_or_else(|error| panic!("{name}: {error} under {options:?}"));
    assert_eq!(report.jobs, input.len() as u64);
    assert_eq!(report.kind, options.kind);
    Outcome { report, delivered: sink.jobs }
}

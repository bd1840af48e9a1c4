//! What stages cost: recorded in a serial run, spent again on virtual cores.
//!
//! [`record`] puts a recorder between the serial model and a plan; it reads the clock around each stage of each
//! job. [`imitate`] runs a model over the record. Its stages have the scopes of the recorded ones and spend the
//! time that those took, so a model places jobs, waits and hands over as usual; only the work itself is missing.
//!
//! A `PerShard` stage is recorded as a whole, and its groups spend equal parts of it: an uneven hash is not
//! imitated. The cost of splitting and merging a job is measured when the job ends. The first step that another
//! core runs on a job also spends the time to fetch the job's cache lines.

use crate::around::{Around, Piece};
use crate::options::{ModelKind, ModelOptions};
use crate::plan::{Plan, Scope, Sink, Source, StageSpec};
use crate::report::{ExecError, RunReport};
use crate::virtual_cores::{HandOver, VirtualCores};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// What each job of a serial run cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// The stages, in order.
    pub stages: Vec<(String, Scope)>,
    /// The first stage that may run on parts of a job ([`Plan::first_split_stage`]).
    pub first_split_stage: usize,
    /// The jobs, in order.
    pub jobs: Vec<JobCost>,
}

/// What one job cost, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCost {
    /// Packets, or whatever else a job consists of.
    pub packets: u64,
    pub source_ns: u64,
    /// One for each stage.
    pub stages_ns: Vec<u64>,
    pub sink_ns: u64,
    /// Splitting the job for two workers.
    pub split_ns: u64,
    /// Merging the two parts again.
    pub merge_ns: u64,
    pub crosses: bool,
}

impl Costs {
    /// The sum of all stages, the source and the sink: the time that one core needs.
    pub fn total_ns(&self) -> u64 {
        self.jobs.iter().map(|job| job.source_ns + job.sink_ns + job.stages_ns.iter().sum::<u64>()).sum()
    }

    /// The same jobs repeated until there are `jobs` of them.
    pub fn repeated(&self, jobs: usize) -> Costs {
        Costs { jobs: self.jobs.iter().cycle().take(jobs).cloned().collect(), ..self.clone() }
    }

    /// Packets of all jobs.
    pub fn packets(&self) -> u64 {
        self.jobs.iter().map(|job| job.packets).sum()
    }

    /// The median of several records of the same run, job by job and stage by stage, so that a disturbance of one
    /// record does not count. `None` if there is no record, or they are not of the same run.
    pub fn median(records: &[Costs]) -> Option<Costs> {
        let first = records.first()?;
        let alike = |record: &Costs| record.stages == first.stages && record.jobs.len() == first.jobs.len();
        if !records.iter().all(alike) {
            return None;
        }
        let mut median = first.clone();
        for (number, job) in median.jobs.iter_mut().enumerate() {
            let of = |value: &dyn Fn(&JobCost) -> u64| {
                let mut values: Vec<u64> = records.iter().map(|record| value(&record.jobs[number])).collect();
                values.sort_unstable();
                values[values.len() / 2]
            };
            job.source_ns = of(&|job| job.source_ns);
            job.sink_ns = of(&|job| job.sink_ns);
            job.split_ns = of(&|job| job.split_ns);
            job.merge_ns = of(&|job| job.merge_ns);
            for stage in 0..job.stages_ns.len() {
                job.stages_ns[stage] = of(&|job| job.stages_ns.get(stage).copied().unwrap_or(0));
            }
        }
        Some(median)
    }
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Records a plan while the serial model runs it.
struct Recorder<'a, P: Plan, F> {
    plan: &'a P,
    packets: F,
    jobs: &'a Mutex<Vec<JobCost>>,
}

impl<P: Plan, F: Fn(&P::Job) -> u64 + Sync> Recorder<'_, P, F> {
    /// Adds the duration of `run` to the last job.
    fn time<R>(&self, run: impl FnOnce() -> R, place: impl FnOnce(&mut JobCost) -> &mut u64) -> R {
        let start = Instant::now();
        let result = run();
        let took = since(start);
        if let Some(job) = self.jobs.lock().last_mut() {
            *place(job) += took;
        }
        result
    }
}

impl<P: Plan, F: Fn(&P::Job) -> u64 + Sync> Around for Recorder<'_, P, F> {
    type Inner = P;
    type Scratch = P::Scratch;

    fn inner(&self) -> &P {
        self.plan
    }

    fn scratch(&self) -> P::Scratch {
        self.plan.scratch()
    }

    fn stage(
        &self,
        stage: usize,
        _: Piece,
        job: &mut P::Job,
        scratch: &mut P::Scratch,
        run: impl FnOnce(&mut P::Job, &mut P::Scratch),
    ) {
        self.time(|| run(job, scratch), |cost| &mut cost.stages_ns[stage]);
    }

    fn admit(&self, job: &mut P::Job, now_ns: u64) {
        if let Some(cost) = self.jobs.lock().last_mut() {
            cost.packets = (self.packets)(job);
            cost.stages_ns = vec![0; self.plan.stages().len()];
        }
        self.time(|| self.plan.admit(job, now_ns), |cost| &mut cost.source_ns);
    }

    fn crosses(&self, stage: usize, job: &P::Job) -> bool {
        let crosses = self.time(|| self.plan.crosses(stage, job), |cost| &mut cost.stages_ns[stage]);
        if let Some(cost) = self.jobs.lock().last_mut() {
            cost.crosses |= crosses;
        }
        crosses
    }
}

struct RecordedSource<'a, J> {
    source: &'a mut dyn Source<J>,
    jobs: &'a Mutex<Vec<JobCost>>,
}

impl<J> Source<J> for RecordedSource<'_, J> {
    fn next(&mut self) -> Option<J> {
        let start = Instant::now();
        let job = self.source.next();
        let source_ns = since(start);
        if job.is_some() {
            self.jobs.lock().push(JobCost { source_ns, ..JobCost::default() });
        }
        job
    }
}

struct RecordedSink<'a, P: Plan> {
    plan: &'a P,
    sink: &'a mut dyn Sink<P::Job>,
    jobs: &'a Mutex<Vec<JobCost>>,
}

impl<P: Plan> Sink<P::Job> for RecordedSink<'_, P> {
    fn accept(&mut self, job: P::Job) {
        let groups = self.plan.shard_groups();
        let owners: Vec<usize> = (0..groups).map(|group| group * 2 / groups).collect();
        let start = Instant::now();
        let parts = self.plan.split(job, &owners, 2);
        let split_ns = since(start);
        let start = Instant::now();
        let job = self.plan.merge(parts);
        let merge_ns = since(start);
        let start = Instant::now();
        self.sink.accept(job);
        let sink_ns = since(start);
        if let Some(cost) = self.jobs.lock().last_mut() {
            *cost = JobCost { sink_ns, split_ns, merge_ns, ..std::mem::take(cost) };
        }
    }
}

/// Runs all jobs under the serial model and records what they cost; `packets` counts the packets of a job. Fails as
/// [`run`](crate::run) does.
pub fn record<P: Plan>(
    plan: &P,
    source: &mut dyn Source<P::Job>,
    sink: &mut dyn Sink<P::Job>,
    packets: impl Fn(&P::Job) -> u64 + Sync,
) -> Result<(RunReport<P::Scratch>, Costs), ExecError> {
    let jobs = Mutex::new(Vec::new());
    let recorder = Recorder { plan, packets, jobs: &jobs };
    let mut source = RecordedSource { source, jobs: &jobs };
    let mut sink = RecordedSink { plan, sink, jobs: &jobs };
    let options = ModelOptions::new(ModelKind::Serial, 1);
    let report = crate::run(&recorder, &mut source, &mut sink, &options)?;
    let stages = plan.stages().iter().map(|stage| (stage.name.clone(), stage.scope)).collect();
    let jobs = std::mem::take(&mut *jobs.lock());
    Ok((report, Costs { stages, first_split_stage: plan.first_split_stage(), jobs }))
}

/// What a machine's cores cost each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCosts {
    /// Waiting and waking.
    pub hand_over: HandOver,
    /// Fetching a packet from another core's cache, in picoseconds.
    pub move_ps_per_packet: u64,
}

/// Runs a model over recorded costs on `cores` virtual cores. `groups` is the number of shard groups that the plan
/// would have for that many workers.
pub fn imitate(
    costs: &Costs,
    machine: &MachineCosts,
    cores: usize,
    groups: usize,
    options: &ModelOptions,
) -> Result<RunReport<()>, ExecError> {
    let cores = VirtualCores::new(cores, machine.hand_over.clone());
    let plan = Imitation {
        costs,
        stages: costs
            .stages
            .iter()
            .map(|(name, scope)| StageSpec { name: name.clone(), scope: *scope })
            .collect(),
        groups,
        cores: Arc::clone(&cores),
        move_ps_per_packet: machine.move_ps_per_packet,
    };
    let mut source = ImitatedSource { plan: &plan, next: 0 };
    let mut sink = ImitatedSink(&plan);
    crate::run_on(Some(&cores), &plan, &mut source, &mut sink, options)
}

/// A plan that spends recorded costs instead of working.
struct Imitation<'a> {
    costs: &'a Costs,
    stages: Vec<StageSpec>,
    groups: usize,
    cores: Arc<VirtualCores>,
    move_ps_per_packet: u64,
}

/// A job, or the part of it that belongs to some groups.
struct Imitated {
    sequence: usize,
    groups: usize,
    /// The thread whose cache holds it.
    at: usize,
}

impl Imitation<'_> {
    fn cost(&self, job: &Imitated) -> &JobCost {
        &self.costs.jobs[job.sequence]
    }

    /// Spends the share of `ns` that belongs to `groups` groups.
    fn spend(&self, ns: u64, groups: usize) {
        self.cores.spend(ns * groups as u64 / self.groups as u64);
    }

    /// Spends the cost of fetching the job if another thread had it last.
    fn fetch(&self, job: &mut Imitated) {
        let here = self.cores.thread();
        if job.at != here {
            job.at = here;
            self.spend(self.cost(job).packets * self.move_ps_per_packet / 1000, job.groups);
        }
    }
}

impl Plan for Imitation<'_> {
    type Job = Imitated;
    type Scratch = ();

    fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    fn shard_groups(&self) -> usize {
        self.groups
    }

    fn scratch(&self) {}

    fn sequence(&self, job: &Imitated) -> u64 {
        job.sequence as u64
    }

    fn admit(&self, job: &mut Imitated, _: u64) {
        job.at = self.cores.thread();
    }

    fn batches(&self, _: usize, _: &Imitated) -> usize {
        1
    }

    fn run_batch(&self, stage: usize, job: &mut Imitated, _: usize, _: u64, (): &mut ()) {
        self.run_whole(stage, job, &mut ());
    }

    fn run_whole(&self, stage: usize, job: &mut Imitated, (): &mut ()) {
        self.fetch(job);
        self.spend(self.cost(job).stages_ns[stage], job.groups);
    }

    fn run_shards(&self, stage: usize, job: &mut Imitated, groups: Range<usize>, (): &mut ()) {
        self.fetch(job);
        self.spend(self.cost(job).stages_ns[stage], groups.len());
    }

    fn crosses(&self, _: usize, job: &Imitated) -> bool {
        self.cost(job).crosses
    }

    /// Its cost was recorded with the stage.
    fn run_crossing(&self, _: usize, _: &mut Imitated, (): &mut ()) {}

    fn first_split_stage(&self) -> usize {
        self.costs.first_split_stage
    }

    fn split(&self, mut job: Imitated, owners: &[usize], parts: usize) -> Vec<Imitated> {
        self.fetch(&mut job);
        self.spend(self.cost(&job).split_ns, job.groups);
        let of = |part: usize| owners.iter().filter(|owner| **owner == part).count();
        (0..parts).map(|part| Imitated { groups: of(part), ..job }).collect()
    }

    fn merge(&self, parts: Vec<Imitated>) -> Imitated {
        let at = self.cores.thread();
        let job = Imitated { sequence: parts[0].sequence, groups: self.groups, at };
        self.spend(self.cost(&job).merge_ns, self.groups);
        job
    }
}

struct ImitatedSource<'a> {
    plan: &'a Imitation<'a>,
    next: usize,
}

impl Source<Imitated> for ImitatedSource<'_> {
    fn next(&mut self) -> Option<Imitated> {
        let job = self.plan.costs.jobs.get(self.next)?;
        self.plan.cores.spend(job.source_ns);
        self.next += 1;
        Some(Imitated { sequence: self.next - 1, groups: self.plan.groups, at: self.plan.cores.thread() })
    }
}

struct ImitatedSink<'a>(&'a Imitation<'a>);

impl Sink<Imitated> for ImitatedSink<'_> {
    fn accept(&mut self, job: Imitated) {
        self.0.spend(self.0.cost(&job).sink_ns, job.groups);
    }
}

//! A router: a real [`Speaker`] behind a scheduling that does what the daemon's sharded one does.
//!
//! With [`Interleaving::Fixed`] one worker does everything in one order, as the daemon's serial scheduling
//! does. With [`Interleaving::Random`] there are up to three workers in random order: a batch may be applied
//! to some shards long before it is to others, and an export may come between.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mio::{Registry, Token};
use parking_lot::Mutex;
use thalweg_exec::control_plane::{ControlPlane, Notice, Share, Wakers};
use thalweg_node::speaker::{Speaker, SpeakerOptions, SpeakerWorker, Work};

use crate::chance::Random;
use crate::site::{Ready, SharedSite};

/// A router that still has work after this many rounds of one moment will never finish.
const ROUNDS_MAX: usize = 20_000;

/// A router with remaining work checks it at least this often.
const LOOK_MS: u64 = 500;

/// The order in which a router's workers do their work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interleaving {
    /// Always the same, with one worker.
    #[default]
    Fixed,
    /// The order and the number of workers are random.
    Random,
}

/// A piece of a worker's work.
#[derive(Clone, Copy)]
enum Step {
    Read(usize),
    Apply(usize),
    Background(usize),
    Export(usize),
    Tick(usize),
}

pub(crate) struct Router {
    pub(crate) speaker: Arc<Speaker>,
    site: SharedSite,
    registry: Arc<Registry>,
    random: Random,
    interleaving: Interleaving,
    /// Whether checks that would find nothing are skipped.
    rests: bool,
    /// Sessions that may have something to read.
    turns: BTreeSet<usize>,
    /// The batches waiting for each worker. Shards and export queues belong to the worker given by their
    /// number modulo the workers.
    inboxes: Vec<VecDeque<Arc<Work>>>,
    due_ms: Vec<u64>,
    ready: Vec<Ready>,
    /// The steps of a round; kept to reuse the memory.
    steps: Vec<Step>,
}

impl Router {
    pub(crate) fn new(
        config: Arc<thalweg_config::BgpConfig>,
        options: SpeakerOptions,
        site: SharedSite,
        registry: Arc<Registry>,
        mut random: Random,
        interleaving: Interleaving,
    ) -> io::Result<Self> {
        let workers = match interleaving {
            Interleaving::Fixed => 1,
            Interleaving::Random => 1 + random.below(3),
        };
        // Half of the routers with random turns keep the checks that find nothing.
        let rests = interleaving == Interleaving::Fixed || options.seed.is_multiple_of(2);
        let speaker = Speaker::new(config, options)?;
        speaker.begin(workers, Wakers::default());
        site.lock().set_up(true);
        Ok(Self {
            speaker: Arc::new(speaker),
            site,
            registry,
            rests,
            random,
            interleaving,
            turns: BTreeSet::new(),
            inboxes: vec![VecDeque::new(); workers],
            due_ms: vec![0; workers],
            ready: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// When the next timer expires.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Something came from outside, so everything is checked again.
    pub(crate) fn wake(&mut self) {
        self.due_ms.fill(0);
    }

    /// Does all work of a moment; returns false if there is no end to it.
    pub(crate) fn run(&mut self, worker: &mut SpeakerWorker, now_us: u64) -> io::Result<bool> {
        let now_ms = now_us / 1000;
        {
            let mut site = self.site.lock();
            site.advance(now_us);
            site.take_news(&mut self.ready);
        }
        for Ready { session, readable, writable } in self.ready.drain(..) {
            self.speaker.ready(session, readable, writable);
            self.turns.insert(session);
        }
        let mut rests = 0;
        for _ in 0..ROUNDS_MAX {
            let busy = self.round(worker, now_ms)?;
            rests = if busy { 0 } else { rests + 1 };
            if rests == self.idle_rounds() {
                self.rest(now_ms);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rounds without work after which none is left. In random order a step may leave work for one before it.
    fn idle_rounds(&self) -> usize {
        match self.interleaving {
            Interleaving::Fixed => 1,
            Interleaving::Random => 2,
        }
    }

    /// Skips checks that would find nothing.
    fn rest(&mut self, now_ms: u64) {
        if !self.rests {
            return;
        }
        match self.speaker.rests_until_ms() {
            Some(until_ms) => self.due_ms.fill(until_ms),
            // Work came up while checks were skipped, so they resume now.
            None if self.due_ms() > now_ms + LOOK_MS => self.due_ms.fill(0),
            None => {}
        }
    }

    /// Does each piece of work once; returns whether there may be more.
    fn round(&mut self, worker: &mut SpeakerWorker, now_ms: u64) -> io::Result<bool> {
        let mut busy = false;
        if self.site.lock().has_backlog() {
            self.speaker.accept(worker, now_ms);
            busy = true;
        }
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        steps.extend(self.turns.iter().copied().map(Step::Read));
        for index in 0..self.due_ms.len() {
            steps.extend([Step::Apply(index), Step::Background(index)]);
            steps.extend([Step::Export(index), Step::Tick(index)]);
        }
        if self.interleaving == Interleaving::Random {
            self.random.shuffle(&mut steps);
        }
        for step in &steps {
            busy |= self.step(worker, *step, now_ms);
        }
        self.steps = steps;
        while let Some(notice) = self.speaker.poll_notice() {
            match notice {
                Notice::Opened(session) => {
                    self.speaker.attach(session, &self.registry, Token(session))?;
                    self.turns.insert(session);
                }
                Notice::Closed(_) => continue,
                Notice::Sooner(_) => {}
            }
            self.due_ms.fill(0);
            busy = true;
        }
        Ok(busy)
    }

    /// Returns whether there may be more to do.
    fn step(&mut self, worker: &mut SpeakerWorker, step: Step, now_ms: u64) -> bool {
        let of = self.due_ms.len();
        match step {
            Step::Read(session) => {
                let reading = self.speaker.read(worker, session, now_ms);
                if let Some(batch) = reading.batch {
                    let batch = Arc::new(batch);
                    self.inboxes.iter_mut().for_each(|inbox| inbox.push_back(batch.clone()));
                }
                if !reading.more {
                    self.turns.remove(&session);
                }
                self.speaker.write(worker, session, now_ms);
                true
            }
            Step::Apply(index) => {
                let waiting = self.inboxes[index].len();
                // In random order the batches of a moment may be applied far apart.
                let count = if self.interleaving == Interleaving::Random { waiting.min(1) } else { waiting };
                for batch in self.inboxes[index].drain(..count) {
                    for shard in (index..self.speaker.shards()).step_by(of) {
                        if self.speaker.touches(&batch, shard) {
                            self.speaker.apply(worker, shard, &batch, now_ms);
                        }
                    }
                }
                count > 0
            }
            Step::Background(index) => {
                let more = self.speaker.background_work(worker, Share { index, of }, now_ms);
                if more {
                    self.speaker.write_share(worker, Share::ALL, now_ms);
                }
                more
            }
            Step::Export(index) => {
                let all_applied = self.inboxes.iter().all(VecDeque::is_empty);
                let exported = self.speaker.export(worker, index, all_applied, now_ms);
                if exported.grew {
                    self.speaker.write_share(worker, Share::ALL, now_ms);
                }
                exported.grew || exported.held
            }
            Step::Tick(index) if self.due_ms[index] <= now_ms => {
                self.due_ms[index] = self.speaker.tick(worker, Share { index, of }, now_ms);
                true
            }
            Step::Tick(_) => false,
        }
    }
}

/// A router, or the place of one that is not running.
pub(crate) struct Place {
    pub(crate) site: SharedSite,
    pub(crate) router: Mutex<Option<Router>>,
    /// When it has work next.
    pub(crate) next_us: AtomicU64,
}

impl Drop for Router {
    /// Stops the router abruptly; its connections end with its speaker.
    fn drop(&mut self) {
        self.site.lock().set_up(false);
    }
}

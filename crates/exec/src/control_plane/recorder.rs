//! What a control plane's work costs: recorded around each call while the serial scheduling runs it.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{ControlPlane, Exported, Notice, Reading, Registry, Share, Token, Wakers};

/// What a control plane did in a serial run, and what each part cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlCosts {
    /// The sessions that were read.
    pub sessions: Vec<SessionCosts>,
    /// All exports together, without the calls that found nothing.
    pub export_ns: u64,
    /// An export that finds nothing.
    pub export_call_ns: u64,
    /// A write that finds nothing.
    pub write_call_ns: u64,
    /// A round's background work when there is none; timers are rare.
    pub round_ns: u64,
    /// The run ends when all is in the shards, not when it is written.
    pub ends_when_applied: bool,
}

/// What a session cost, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCosts {
    /// In order.
    pub reads: Vec<ReadCost>,
    /// All writes together, without the calls that found nothing.
    pub write_ns: u64,
}

/// What was read at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCost {
    pub read_ns: u64,
    /// The shards it was applied to, and what that took in each.
    pub shards_ns: Vec<(usize, u64)>,
}

impl ControlCosts {
    /// The work of all sessions: what one core needs without the rounds and the calls that find nothing.
    pub fn total_ns(&self) -> u64 {
        let session = |session: &SessionCosts| session.reads_ns() + session.write_ns;
        self.sessions.iter().map(session).sum::<u64>() + self.export_ns
    }

    /// The time in the shards.
    pub fn applied_ns(&self) -> u64 {
        self.sessions.iter().flat_map(|session| &session.reads).map(ReadCost::applied_ns).sum()
    }
}

impl SessionCosts {
    /// Reading and applying.
    pub fn reads_ns(&self) -> u64 {
        self.reads.iter().map(|read| read.read_ns + read.applied_ns()).sum()
    }
}

impl ReadCost {
    fn applied_ns(&self) -> u64 {
        self.shards_ns.iter().map(|(_, ns)| ns).sum()
    }
}

/// A control plane that also records what it costs. It is meant for the serial scheduling.
pub struct ControlRecorder<'c, C> {
    control: &'c C,
    /// Nothing before the recording begins.
    recording: Mutex<Option<Recording>>,
    /// The highest number of a session that was opened, and one.
    opened: AtomicUsize,
}

#[derive(Default)]
struct Recording {
    sessions: Vec<SessionCosts>,
    /// What each export took, and whether it found something.
    exports_ns: Vec<(u64, bool)>,
    /// A batch was applied since the last export. Where nobody is told the routes, that alone says that an export has
    /// something to do.
    changed: bool,
    /// The session of each write, and what it took.
    writes_ns: Vec<(usize, u64)>,
    /// What each round's background work took, and whether there was some.
    rounds_ns: Vec<(u64, bool)>,
}

/// A batch, and which read it came from, if that was recorded.
#[derive(Debug)]
pub struct RecordedBatch<B> {
    batch: B,
    read: Option<(usize, usize)>,
}

impl<'c, C: ControlPlane> ControlRecorder<'c, C> {
    /// A control plane that does not record yet.
    pub fn new(control: &'c C) -> Self {
        Self { control, recording: Mutex::new(None), opened: AtomicUsize::new(0) }
    }

    /// Records from now on.
    pub fn start(&self) {
        *self.recording.lock() = Some(Recording::default());
    }

    /// Ends the recording; the costs of what it saw.
    pub fn finish(&self, ends_when_applied: bool) -> ControlCosts {
        let recording = self.recording.lock().take().unwrap_or_default();
        recording.costs(ends_when_applied)
    }

    fn time<R>(&self, run: impl FnOnce() -> R, note: impl FnOnce(&mut Recording, u64, &R)) -> R {
        let began = Instant::now();
        let result = run();
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(recording) = self.recording.lock().as_mut() {
            note(recording, took, &result);
        }
        result
    }
}

impl Recording {
    fn session(&mut self, session: usize) -> &mut SessionCosts {
        if self.sessions.len() <= session {
            self.sessions.resize_with(session + 1, SessionCosts::default);
        }
        &mut self.sessions[session]
    }

    /// A batch was applied to a shard, and which read it came from, if that was recorded.
    fn applied(&mut self, read: Option<(usize, usize)>, shard: usize, ns: u64) {
        self.changed = true;
        if let Some((session, read)) = read {
            self.session(session).reads[read].shards_ns.push((shard, ns));
        }
    }

    fn exported(&mut self, ns: u64, exported: Exported) {
        let found = std::mem::take(&mut self.changed) | exported.grew | exported.held;
        self.exports_ns.push((ns, found));
    }

    fn costs(mut self, ends_when_applied: bool) -> ControlCosts {
        let export_call_ns = call_ns(&self.exports_ns);
        // Nobody says whether a write found something; the cheapest one found the least.
        let write_call_ns = self.writes_ns.iter().map(|(_, ns)| *ns).min().unwrap_or(0);
        // A run that ends with the last route in its shard tells nobody.
        let writes = std::mem::take(&mut self.writes_ns).into_iter().filter(|_| !ends_when_applied);
        for (session, ns) in writes {
            self.session(session).write_ns += ns.saturating_sub(write_call_ns);
        }
        ControlCosts {
            sessions: self.sessions,
            export_ns: self.exports_ns.iter().map(|(ns, _)| ns.saturating_sub(export_call_ns)).sum(),
            export_call_ns,
            write_call_ns,
            round_ns: call_ns(&self.rounds_ns),
            ends_when_applied,
        }
    }
}

/// The cost of a call that finds nothing: the median of those; if every call found something, the cheapest one.
/// A scheduling with more threads makes more calls, so what they find must not count as the cost of calling.
fn call_ns(calls: &[(u64, bool)]) -> u64 {
    let mut idle: Vec<u64> = calls.iter().filter(|(_, found)| !found).map(|(ns, _)| *ns).collect();
    idle.sort_unstable();
    let cheapest = || calls.iter().map(|(ns, _)| *ns).min();
    idle.get(idle.len() / 2).copied().or_else(cheapest).unwrap_or(0)
}

impl<C: ControlPlane> ControlPlane for ControlRecorder<'_, C> {
    type Worker = C::Worker;
    type Batch = RecordedBatch<C::Batch>;

    fn worker(&self) -> C::Worker {
        self.control.worker()
    }

    fn shards(&self) -> usize {
        self.control.shards()
    }

    fn begin(&self, export_queues: usize, wakers: Wakers) {
        self.control.begin(export_queues, wakers);
    }

    fn attach_listeners(&self, registry: &Registry, token: Token) -> io::Result<()> {
        self.control.attach_listeners(registry, token)
    }

    fn attach(&self, session: usize, registry: &Registry, token: Token) -> io::Result<()> {
        self.control.attach(session, registry, token)
    }

    fn accept(&self, worker: &mut C::Worker, now_ms: u64) {
        self.control.accept(worker, now_ms);
    }

    fn ready(&self, session: usize, readable: bool, writable: bool) {
        self.control.ready(session, readable, writable);
    }

    fn read(&self, worker: &mut C::Worker, session: usize, now_ms: u64) -> Reading<Self::Batch> {
        let mut read = None;
        let Reading { batch, more } = self.time(
            || self.control.read(worker, session, now_ms),
            |recording, read_ns, _| {
                let reads = &mut recording.session(session).reads;
                reads.push(ReadCost { read_ns, shards_ns: Vec::new() });
                read = Some((session, reads.len() - 1));
            },
        );
        Reading { batch: batch.map(|batch| RecordedBatch { batch, read }), more }
    }

    fn touches(&self, batch: &Self::Batch, shard: usize) -> bool {
        self.control.touches(&batch.batch, shard)
    }

    fn apply(&self, worker: &mut C::Worker, shard: usize, batch: &Self::Batch, now_ms: u64) {
        self.time(
            || self.control.apply(worker, shard, &batch.batch, now_ms),
            |recording, ns, ()| recording.applied(batch.read, shard, ns),
        );
    }

    fn export(&self, worker: &mut C::Worker, queue: usize, now: bool, now_ms: u64) -> Exported {
        self.time(
            || self.control.export(worker, queue, now, now_ms),
            |recording, ns, exported| recording.exported(ns, *exported),
        )
    }

    fn write(&self, worker: &mut C::Worker, session: usize, now_ms: u64) {
        self.time(
            || self.control.write(worker, session, now_ms),
            |recording, ns, ()| recording.writes_ns.push((session, ns)),
        );
    }

    /// One session after the other, so that each one's cost is known.
    fn write_share(&self, worker: &mut C::Worker, share: Share, now_ms: u64) {
        let opened = self.opened.load(Ordering::Relaxed);
        (0..opened)
            .filter(|session| share.has(*session))
            .for_each(|session| self.write(worker, session, now_ms));
    }

    fn tick(&self, worker: &mut C::Worker, share: Share, now_ms: u64) -> u64 {
        self.control.tick(worker, share, now_ms)
    }

    fn background_work(&self, worker: &mut C::Worker, share: Share, now_ms: u64) -> bool {
        self.time(
            || self.control.background_work(worker, share, now_ms),
            |recording, ns, worked| recording.rounds_ns.push((ns, *worked)),
        )
    }

    fn poll_notice(&self) -> Option<Notice> {
        let notice = self.control.poll_notice();
        if let Some(Notice::Opened(session)) = notice {
            self.opened.fetch_max(session + 1, Ordering::Relaxed);
        }
        notice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_after_a_batch_has_found_something_though_nobody_is_told() {
        let mut recording = Recording::default();
        recording.exported(1, Exported::default());
        recording.applied(None, 0, 1);
        recording.exported(1, Exported::default());
        recording.exported(1, Exported::default());
        assert_eq!(
            recording.exports_ns.iter().map(|(_, found)| *found).collect::<Vec<_>>(),
            [false, true, false]
        );
    }

    #[test]
    fn what_a_call_finds_is_not_the_cost_of_calling() {
        // Most calls of a busy run find something.
        let busy = [(700, true), (650, true), (3, false), (800, true), (5, false), (4, false)];
        assert_eq!(call_ns(&busy), 4);
        assert_eq!((call_ns(&[(700, true), (650, true)]), call_ns(&[])), (650, 0));
        let recording = Recording { exports_ns: busy.to_vec(), ..Recording::default() };
        let costs = recording.costs(true);
        assert_eq!((costs.export_call_ns, costs.export_ns), (4, 700 + 650 + 800 - 3 * 4 + 1));
    }
}

//! `sharded`: each session, shard and export queue has one worker that owns it. A worker decodes the bytes of its
//! sessions into batches and queues each batch at the workers whose shards it touches. The owner of a shard applies
//! it and appends the changes to the export queues. The owner of an export queue encodes them and wakes the
//! workers, which write them to their sessions. Everything moves in batches, so hundreds of routes cost one lock
//! and one wake-up.
//!
//! Order: a shard's batches are applied in the order in which its owner received them. The batches of one session
//! come from one worker, in the order in which it read them. Deadlock is impossible because no thread waits for a
//! queue: a session that may not queue another batch is read later.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder};

use super::machine::Machine;
use super::seat::{Seat, join_all};
use super::thread::{Poller, Sockets, ThreadWaker, Wakers, stopped};
use super::{BATCHES_IN_FLIGHT_MAX, ControlPlane, Notice, Share};

/// Sessions read by a worker before it looks at its inbox again.
const READS_PER_ROUND: usize = 8;

/// A queued batch, and how many workers still have to apply it.
struct InFlight<B> {
    batch: B,
    workers_left: AtomicUsize,
}

/// The queues of a worker. [`BATCHES_IN_FLIGHT_MAX`] bounds the inbox.
struct WorkerQueue<B> {
    inbox: Mutex<VecDeque<Arc<InFlight<B>>>>,
    /// The worker's export queue may have changes.
    export: AtomicBool,
    write: AtomicBool,
    /// A timer of one of the worker's sessions may expire sooner than the last tick said.
    timers: AtomicBool,
    waker: ThreadWaker,
    sockets: Sockets,
}

struct Pool<'c, C: ControlPlane> {
    control: &'c C,
    stop: &'c AtomicBool,
    machine: &'c Machine,
    wakers: Wakers,
    queues: Vec<WorkerQueue<C::Batch>>,
    in_flight: AtomicUsize,
}

pub(super) fn run<C: ControlPlane>(
    control: &C,
    threads: usize,
    machine: &Machine,
    stop: &AtomicBool,
) -> io::Result<()> {
    let wakers = Wakers::default();
    let (mut seated, mut queues) = (Vec::new(), Vec::new());
    for index in 0..threads {
        let seat = Seat::new(machine, format!("shard-{index}"));
        let poller = seat.poller()?;
        wakers.add(poller.waker());
        queues.push(WorkerQueue {
            inbox: Mutex::new(VecDeque::with_capacity(BATCHES_IN_FLIGHT_MAX)),
            export: AtomicBool::new(false),
            write: AtomicBool::new(false),
            timers: AtomicBool::new(false),
            waker: poller.waker(),
            sockets: poller.sockets().clone(),
        });
        seated.push((seat, poller));
    }
    control.begin(threads, wakers.clone());
    queues[0].sockets.listen(control)?;
    let pool = Pool { control, stop, machine, wakers, queues, in_flight: AtomicUsize::new(0) };
    thread::scope(|scope| {
        let (pool, mut result, mut handles) = (&pool, Ok(()), Vec::new());
        let mut others = seated.into_iter().enumerate();
        let own = others.next();
        for (index, (seat, poller)) in others {
            match seat.spawn(scope, Builder::new(), || pool.end(), move || pool.work(index, poller)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    result = Err(error);
                    stop.store(true, Ordering::Release);
                }
            }
        }
        if let Some((index, (seat, poller))) = own {
            result = result.and(seat.occupy(|| pool.end(), || pool.work(index, poller)));
        }
        join_all(handles, result)
    })
}

impl<C: ControlPlane> Pool<'_, C> {
    /// Ends all threads.
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.wake_all();
    }

    /// The body of a worker's thread. When it ends, whatever the reason, all workers end.
    fn work(&self, index: usize, mut poller: Poller) -> io::Result<()> {
        let result = self.rounds(index, &mut poller);
        self.end();
        result
    }

    fn rounds(&self, index: usize, poller: &mut Poller) -> io::Result<()> {
        let share = Share { index, of: self.queues.len() };
        let mut worker = self.control.worker();
        let (mut due_ms, mut busy) = (0, true);
        while !stopped(self.stop) {
            poller.poll(self.control, self.machine, busy, due_ms)?;
            let now = self.machine.now_ms();
            busy = self.apply_inbox(&mut worker, share, now);
            for _ in 0..poller.turns().len().min(READS_PER_ROUND) {
                let Some(session) = poller.turns().next() else { break };
                if self.read(&mut worker, session, now) {
                    poller.turns().want(session);
                }
                self.control.write(&mut worker, session, now);
            }
            if self.queues[index].timers.swap(false, Ordering::SeqCst) {
                due_ms = 0;
            }
            busy |= poller.housekeeping(self.control, &mut worker, share, &mut due_ms, now);
            busy |= self.export(&mut worker, share, now);
            if self.queues[index].write.swap(false, Ordering::SeqCst) || busy {
                self.control.write_share(&mut worker, share, now);
            }
            while let Some(notice) = self.control.poll_notice() {
                let session = match notice {
                    Notice::Opened(session) | Notice::Sooner(session) => session,
                    Notice::Closed(_) => continue,
                };
                let queue = &self.queues[session % self.queues.len()];
                if notice == Notice::Opened(session) {
                    queue.sockets.attach(self.control, session)?;
                }
                queue.timers.store(true, Ordering::SeqCst);
                queue.waker.wake();
            }
        }
        Ok(())
    }

    /// Reads a session and queues the batch at the workers whose shards it touches. Returns whether to read again.
    fn read(&self, worker: &mut C::Worker, session: usize, now: u64) -> bool {
        if self.in_flight.load(Ordering::Acquire) >= BATCHES_IN_FLIGHT_MAX {
            return true;
        }
        let reading = self.control.read(worker, session, now);
        if let Some(batch) = reading.batch {
            let owners = self.owners(&batch);
            if owners.is_empty() {
                return reading.more;
            }
            self.in_flight.fetch_add(1, Ordering::AcqRel);
            let batch = Arc::new(InFlight { batch, workers_left: AtomicUsize::new(owners.len()) });
            for owner in owners {
                let queue = &self.queues[owner];
                queue.inbox.lock().push_back(batch.clone());
                queue.waker.wake();
            }
        }
        reading.more
    }

    fn owners(&self, batch: &C::Batch) -> Vec<usize> {
        let mut owners = Vec::with_capacity(self.queues.len().min(self.control.shards()));
        for shard in 0..self.control.shards() {
            let owner = shard % self.queues.len();
            if self.control.touches(batch, shard) && !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        owners
    }

    /// Applies batches from the worker's inbox. Returns whether there were any.
    fn apply_inbox(&self, worker: &mut C::Worker, share: Share, now: u64) -> bool {
        let inbox = &self.queues[share.index].inbox;
        let mut any = false;
        // The inbox may fill while it is emptied, and sessions need their turn too.
        for _ in 0..BATCHES_IN_FLIGHT_MAX {
            let Some(next) = inbox.lock().pop_front() else { break };
            any = true;
            for shard in (share.index..self.control.shards()).step_by(share.of) {
                if self.control.touches(&next.batch, shard) {
                    self.control.apply(worker, shard, &next.batch, now);
                }
            }
            if next.workers_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.in_flight.fetch_sub(1, Ordering::AcqRel);
                self.set_flag_of_all(|queue| &queue.export);
            }
        }
        any
    }

    /// Exports the worker's export queue. Returns whether to call it again soon. Holds changes back while other
    /// parts of their batches are still being applied, so that they go out together.
    fn export(&self, worker: &mut C::Worker, share: Share, now: u64) -> bool {
        let asked = self.queues[share.index].export.swap(false, Ordering::SeqCst);
        let all_applied = self.in_flight.load(Ordering::Acquire) == 0;
        let exported = self.control.export(worker, share.index, all_applied, now);
        if exported.grew {
            self.set_flag_of_all(|queue| &queue.write);
        }
        asked || (exported.held && all_applied)
    }

    fn set_flag_of_all(&self, flag: impl Fn(&WorkerQueue<C::Batch>) -> &AtomicBool) {
        for queue in &self.queues {
            flag(queue).store(true, Ordering::SeqCst);
            queue.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Exported, Reading, Registry, SchedulingKind, SchedulingOptions, Token, schedule_on};
    use super::*;

    /// Something happens to a session that belongs to another worker than the one that is told.
    struct Opening {
        notice: Notice,
        /// The worker whose session it is.
        owner: usize,
        stop: AtomicBool,
        wakers: Mutex<Wakers>,
        has_ticked: AtomicBool,
        is_told: AtomicBool,
        is_attached: AtomicBool,
        /// Rounds of the owner since then.
        rounds: AtomicUsize,
        /// The owner's timers ran since then.
        is_done: AtomicBool,
    }

    impl Opening {
        fn new(notice: Notice, owner: usize) -> Self {
            let no = || AtomicBool::new(false);
            let (stop, has_ticked, is_told, is_attached, is_done) = (no(), no(), no(), no(), no());
            let (wakers, rounds) = (Mutex::default(), AtomicUsize::default());
            Self { notice, owner, stop, wakers, has_ticked, is_told, is_attached, rounds, is_done }
        }

        fn end(&self) {
            self.stop.store(true, Ordering::SeqCst);
            self.wakers.lock().wake_all();
        }
    }

    impl ControlPlane for Opening {
        type Worker = ();
        type Batch = ();

        fn worker(&self) {}

        fn shards(&self) -> usize {
            2
        }

        fn begin(&self, _: usize, wakers: Wakers) {
            *self.wakers.lock() = wakers;
        }

        fn attach_listeners(&self, _: &Registry, _: Token) -> io::Result<()> {
            Ok(())
        }

        fn attach(&self, _: usize, _: &Registry, _: Token) -> io::Result<()> {
            self.is_attached.store(true, Ordering::SeqCst);
            Ok(())
        }

        fn accept(&self, (): &mut (), _: u64) {}

        fn ready(&self, _: usize, _: bool, _: bool) {}

        fn read(&self, (): &mut (), _: usize, _: u64) -> Reading<()> {
            Reading { batch: None, more: false }
        }

        fn touches(&self, (): &(), _: usize) -> bool {
            false
        }

        fn apply(&self, (): &mut (), _: usize, (): &(), _: u64) {}

        fn export(&self, (): &mut (), _: usize, _: bool, _: u64) -> Exported {
            Exported::default()
        }

        fn write(&self, (): &mut (), _: usize, _: u64) {}

        fn write_share(&self, (): &mut (), _: Share, _: u64) {}

        /// The next timer is far away, until something happens.
        fn tick(&self, (): &mut (), share: Share, now_ms: u64) -> u64 {
            if share.index == self.owner {
                self.has_ticked.store(true, Ordering::SeqCst);
                if self.is_attached.load(Ordering::SeqCst) {
                    self.is_done.store(true, Ordering::SeqCst);
                    self.end();
                }
            }
            now_ms + 1_000_000
        }

        fn background_work(&self, (): &mut (), share: Share, _: u64) -> bool {
            let is_attached = self.is_attached.load(Ordering::SeqCst);
            if share.index == self.owner && is_attached && self.rounds.fetch_add(1, Ordering::SeqCst) == 20 {
                self.end();
            }
            false
        }

        fn poll_notice(&self) -> Option<Notice> {
            let is_first = thread::current().name() != Some("shard-1");
            let may = is_first && self.has_ticked.load(Ordering::SeqCst);
            let notice = (may && !self.is_told.swap(true, Ordering::SeqCst)).then_some(self.notice);
            if matches!(notice, Some(Notice::Sooner(_))) {
                self.is_attached.store(true, Ordering::SeqCst);
            }
            notice
        }
    }

    #[test]
    fn the_owner_of_a_session_looks_at_its_timers_when_they_come_nearer() {
        for notice in [Notice::Opened(1), Notice::Sooner(1)] {
            let opening = Opening::new(notice, 1);
            run(&opening, 2, &Machine::real(), &opening.stop).expect("threads");
            assert!(opening.is_done.load(Ordering::SeqCst), "{notice:?}");
        }
    }

    #[test]
    fn all_schedulings_look_at_timers_that_come_nearer() {
        for kind in [SchedulingKind::Serial, SchedulingKind::PerPeer, SchedulingKind::Dynamic] {
            let opening = Opening::new(Notice::Sooner(1), 0);
            let options = SchedulingOptions { kind, threads: 2 };
            schedule_on(&Machine::real(), &opening, options, &opening.stop).expect("threads");
            assert!(opening.is_done.load(Ordering::SeqCst), "{kind}");
        }
    }
}

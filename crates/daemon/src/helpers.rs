//! Threads beside BGP's scheduling: readers of best routes, followers of the kernel, MRT files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_config::{BgpConfig, Install, NextHopCheck, OnStop, RouterConfig};
use thalweg_exec::thread_cpu_time;
use thalweg_node::fib::SavedRoutes;
use thalweg_node::forwarding::{Forwarding, ForwardingTables, Inbox};
use thalweg_node::speaker::{Restart, RouteReader, SessionObserver, Speaker};
use thalweg_ports::kernel::PROTOCOL;

use crate::bgp_links::BgpLinks;
use crate::error::RunError;
use crate::kernel::KernelThread;
use crate::kernel_sync::KernelSyncer;
use crate::mrt::{self, UpdateRecorder};
use crate::networks::NextHopThread;
use crate::packets::PacketSide;
use crate::restart::{self, NoteKeeper};
use crate::rpki;
use crate::saved_fib::FibSaver;
use crate::seed;

/// The error text if the system refuses a thread.
pub(crate) const NO_THREAD: &str = "cannot start a thread";

/// The shortest pause between two rounds of counting.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Counting takes at most this part of a core's time.
const COUNT_SHARE: u32 = 100;

/// All threads beside the scheduling, before and while they run.
pub(crate) struct Helpers {
    inbox: Option<Arc<Inbox>>,
    tables: Option<Arc<ForwardingTables>>,
    kernel: Option<KernelThread>,
    next_hops: Option<NextHopThread>,
    bgp_links: Option<BgpLinks>,
    forwarding: Option<Arc<dyn Forwarding>>,
    recorder: Option<Arc<UpdateRecorder>>,
    saver: Option<Arc<FibSaver>>,
    /// Puts a predecessor's routes into the tables.
    restoring: Option<JoinHandle<()>>,
    /// What a predecessor left, until the speaker takes it.
    pub(crate) restart: Option<Restart>,
    /// Whether routes stay in the kernel at the end.
    pub(crate) keeps_routes: Arc<AtomicBool>,
    /// Stops the threads that have no inbox.
    pub(crate) stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    pub(crate) fn new(
        bgp: Option<&BgpConfig>,
        config: &RouterConfig,
        tables: Option<Arc<ForwardingTables>>,
        inbox: Option<Arc<Inbox>>,
        mut restart: Option<Restart>,
    ) -> Result<Self, RunError> {
        let keeps_routes = Arc::<AtomicBool>::default();
        let kernel = match (bgp, &inbox) {
            (Some(bgp), Some(inbox)) if bgp.install == Install::Kernel => {
                Some(KernelThread::new(inbox.clone(), bgp, &mut restart, &keeps_routes)?)
            }
            _ => None,
        };
        let of_tables = || tables.clone().map(|tables| tables as Arc<dyn Forwarding>);
        let forwarding = kernel.as_ref().map(KernelThread::forwarding).or_else(of_tables);
        // The kernel's thread does this itself.
        let alone = bgp.is_some_and(|bgp| bgp.next_hop_check == NextHopCheck::Kernel) && kernel.is_none();
        let next_hops = alone.then(|| NextHopThread::new(PROTOCOL)).transpose()?;
        let writes = bgp.is_some_and(|bgp| bgp.mrt.dump.is_some() || bgp.mrt.updates.is_some());
        let recorder = writes.then(|| Arc::new(UpdateRecorder::of_all()));
        let (stop, threads) = (Arc::default(), Vec::new());
        // Without it, sessions end by their hold timer, so this is no reason to stop.
        let bgp_links = bgp.map(|_| BgpLinks::new(config)).transpose().unwrap_or_else(|error| {
            tracing::warn!(
                "cannot watch links, so sessions on a dead link end only when their hold timer expires: {error}"
            );
            None
        });
        Ok(Self {
            inbox,
            tables,
            kernel,
            next_hops,
            bgp_links,
            forwarding,
            recorder,
            saver: None,
            restoring: None,
            restart,
            keeps_routes,
            stop,
            threads,
        })
    }

    pub(crate) fn readers(&self) -> Vec<Box<dyn RouteReader>> {
        self.inbox.iter().map(|inbox| inbox.reader()).collect()
    }

    pub(crate) fn observer(&self) -> Option<Arc<dyn SessionObserver>> {
        self.recorder.clone().map(|recorder| recorder as Arc<dyn SessionObserver>)
    }

    pub(crate) fn forwarding(&self) -> Option<Arc<dyn Forwarding>> {
        self.forwarding.clone()
    }

    /// Saves the forwarding table in this file from the start of BGP on, and begins to put in what a predecessor saved:
    /// beside the ports, which take as long to open.
    pub(crate) fn save_fib(&mut self, file: Option<PathBuf>, saved: Option<SavedRoutes>) -> io::Result<()> {
        let (Some(file), Some(tables)) = (file, self.tables.clone()) else { return Ok(()) };
        self.saver = Some(Arc::new(FibSaver::new(file, tables.clone())));
        if let Some(saved) = saved {
            let body = move || tables.restore(saved);
            self.restoring = Some(thread::Builder::new().name("restore".to_owned()).spawn(body)?);
        }
        Ok(())
    }

    /// Leaves the table for a successor, or nothing.
    pub(crate) fn close_fib(&self, speaker: &Speaker, on_stop: OnStop) {
        self.saver.iter().for_each(|saver| saver.close(speaker, on_stop));
    }

    /// Starts the thread that keeps the restart note, if neighbors may keep our routes.
    pub(crate) fn keep_note(
        &mut self,
        bgp: &BgpConfig,
        speaker: &Arc<Speaker>,
        note: &Arc<NoteKeeper>,
    ) -> io::Result<()> {
        if !restart::is_wanted(bgp) {
            return Ok(());
        }
        let (speaker, note, stop) = (speaker.clone(), note.clone(), self.stop.clone());
        self.spawn("restart-note", move || note.run(&speaker, &stop))
    }

    pub(crate) fn start(&mut self, bgp: &Arc<BgpConfig>, speaker: &Arc<Speaker>) -> io::Result<()> {
        // BGP's routes come after the saved ones, which would replace them otherwise.
        if self.restoring.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread of this program panicked; please report it");
        }
        if let Some(saver) = self.saver.clone() {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            self.spawn("save-fib", move || saver.run(&speaker, &stop))?;
        }
        if let (Some(tables), Install::Fib) = (self.tables.clone(), bgp.install) {
            let speaker = speaker.clone();
            self.spawn("fib", move || tables.run(&speaker))?;
        }
        if let Some(kernel) = self.kernel.take() {
            let speaker = speaker.clone();
            kernel.update_next_hops(&speaker);
            self.spawn("kernel", move || kernel.run(&speaker))?;
        }
        if let Some(next_hops) = self.next_hops.take() {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            next_hops.begin(&speaker);
            self.spawn("next-hops", move || next_hops.run(&speaker, &stop))?;
        }
        if let Some(links) = self.bgp_links.take() {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            self.spawn("bgp-links", move || links.run(&speaker, &stop))?;
        }
        {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            self.spawn("counts", move || count(&speaker, &stop))?;
        }
        if bgp.has_rpki() {
            let (speaker, stop) = (speaker.clone(), self.stop.clone());
            self.spawn("rpki", move || rpki::run(&speaker, &stop))?;
        }
        if let Some(recorder) = self.recorder.clone() {
            let (speaker, bgp) = (speaker.clone(), bgp.clone());
            self.spawn("mrt", move || mrt::write(&bgp.mrt, &recorder, &speaker))?;
        }
        if let Some(path) = bgp.seed_mrt.clone() {
            let speaker = speaker.clone();
            // Nobody waits for it at the end: it leaves nothing to clean up.
            thread::Builder::new().name("seed".to_owned()).spawn(move || seed::seed(&path, &speaker))?;
        }
        Ok(())
    }

    /// Starts the kernel sync, if configured. The mirrors must exist.
    pub(crate) fn run_kernel_sync(
        &mut self,
        config: &RouterConfig,
        packets: Option<Arc<PacketSide>>,
    ) -> Result<(), RunError> {
        let Some(tables) = self.tables.clone().filter(|_| config.kernel.is_on()) else {
            return Ok(());
        };
        let (kernel_sync, stop) = (KernelSyncer::new(tables, packets, config)?, self.stop.clone());
        self.spawn("in-step", move || kernel_sync.run(&stop)).map_err(RunError::system(NO_THREAD))
    }

    pub(crate) fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(body)?);
        Ok(())
    }

    /// Stops the threads and waits for them.
    pub(crate) fn stop(&mut self) {
        if let Some(recorder) = &self.recorder {
            recorder.close();
        }
        if let Some(inbox) = &self.inbox {
            inbox.close();
        }
        self.stop.store(true, Ordering::Release);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of this program panicked; please report it");
            }
        }
    }
}

/// Counts in rounds, until `stop` is set.
fn count(speaker: &Speaker, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let before = thread_cpu_time();
        speaker.count_sent();
        speaker.count_validity();
        // Not the time that passed: on a busy machine, a round waits for others most of it.
        let used = thread_cpu_time().saturating_sub(before);
        thread::park_timeout(COUNT_EVERY.max(used * COUNT_SHARE));
    }
}

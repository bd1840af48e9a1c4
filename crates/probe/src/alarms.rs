//! Alarms: rules about what flows count, judged each second of the packets' clock.
//!
//! ```text
//! shard of a meter ──flows of a second──> Watcher: filter, key, sums ──bounded queue──> Judge ──> events, active alarms
//!     (Watch)                              (one for each shard)                         (a thread)
//! ```
//!
//! Packets cost nothing: once a second each shard tells what its flows have counted, and a flow that ends tells the
//! rest (`thalweg_flow::Watch`). Memory is bounded whatever the traffic: [`tally`] says what a sum may lack. From
//! live packets a second's sums without room in the queue are lost and counted; those of files wait.
//!
//! An event comes within 1.1 s of the end of the window that caused it: the next chunk closes a second, and the
//! judge looks at least every [`TURN`].

mod judge;
mod tally;
mod watcher;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use thalweg_flow::Watch;
use thalweg_flow::alarm::{AlarmAction, AlarmEvent, AlarmReport};
use thalweg_ports::webhook::Webhook;
use thalweg_store::Notify;

use crate::ProbeError;
use crate::alarm_rules::{AlarmOptions, Rule};
use crate::deliver::Completing;
use judge::Judge;
use watcher::{Told, Watcher};

/// How often the judge looks whether a second is complete.
const TURN: Duration = Duration::from_millis(100);
/// Seconds of shards that may wait.
const QUEUE_MAX: usize = 1024;
/// Events that are kept for readers.
const EVENTS_MAX: usize = 1000;
/// What watchers and the judge share.
#[derive(Default)]
struct Shared {
    /// How far each watcher has told.
    told_until: Mutex<Vec<Arc<AtomicU64>>>,
    lost: Arc<AtomicU64>,
    report: Mutex<AlarmReport>,
}

/// Alarms at work.
pub(crate) struct Alarms {
    rules: Arc<[Rule]>,
    shared: Arc<Shared>,
    /// `None` when ended.
    sender: Mutex<Option<Sender<Told>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    waits: bool,
    seed: u64,
}

impl Alarms {
    /// Starts the judge; events are notices. Packets of files can wait, and give the same answer each time; of live
    /// ones nobody can predict the hashes of addresses.
    pub(crate) fn start(
        options: &AlarmOptions,
        action: Option<Box<dyn AlarmAction>>,
        waits: bool,
        notify: &Notify,
    ) -> Result<Self, ProbeError> {
        let AlarmOptions { rules, webhook } = options;
        let seed = if waits { 0 } else { RandomState::new().build_hasher().finish() };
        let webhook = webhook.as_ref().map(|target| Webhook::start(&target.url, target.authorities.clone()));
        let webhook = webhook.transpose()?;
        let rules = Rule::all(rules)?;
        let (sender, told) = bounded(QUEUE_MAX);
        let shared = Arc::new(Shared::default());
        let (judge, notify) = (Judge::new(Arc::clone(&rules)), notify.clone());
        let judging = Judging { judge, shared: Arc::clone(&shared), told, notify, webhook, action };
        let thread = std::thread::Builder::new().name("alarms".to_owned());
        let thread = thread.spawn(move || judging.run()).map_err(ProbeError::Thread)?;
        let (sender, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Self { rules, shared, sender, thread, waits, seed })
    }

    /// A watcher for a shard; none when alarms have ended.
    pub(crate) fn watcher(&self, completing: &Completing) -> Option<Box<dyn Watch>> {
        let sender = self.sender.lock().clone()?;
        let told_until = Arc::<AtomicU64>::default();
        self.shared.told_until.lock().push(Arc::clone(&told_until));
        let watcher = Watcher {
            rules: Arc::clone(&self.rules),
            completing: completing.clone(),
            seed: self.seed,
            sender,
            waits: self.waits,
            told_until,
            lost: Arc::clone(&self.shared.lost),
            flows: Vec::new(),
            firsts: Vec::new(),
            tallies: watcher::tallies(&self.rules, watcher::HEAVY_MAX, watcher::FAN_MAX),
        };
        Some(Box::new(watcher))
    }

    /// The present state.
    pub(crate) fn report(&self) -> AlarmReport {
        self.shared.report.lock().clone()
    }

    /// Judges what was told, and ends. Watchers must be gone.
    pub(crate) fn finish(&self) -> AlarmReport {
        self.sender.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // If it panicked, its report stays as it was.
            let _ = thread.join();
        }
        self.report()
    }
}

/// The judge's thread.
struct Judging {
    judge: Judge,
    shared: Arc<Shared>,
    told: Receiver<Told>,
    notify: Notify,
    webhook: Option<Webhook>,
    action: Option<Box<dyn AlarmAction>>,
}

impl Judging {
    fn run(mut self) {
        loop {
            let first = self.told.recv_timeout(TURN);
            // Before the rest of the queue: what was told before this is in it.
            let until = self.told_until();
            match first {
                Ok(told) => self.judge.take(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.judge.finish();
                    self.publish();
                    let posted = self.webhook.take().map(Webhook::finish);
                    self.shared.report.lock().webhook = posted;
                    return;
                }
            }
            while let Ok(told) = self.told.try_recv() {
                self.judge.take(told);
            }
            if until > 0 {
                self.judge.judge_until(until);
            }
            self.publish();
            if let Some(action) = &mut self.action {
                action.turn();
            }
        }
    }

    /// The first second that a watcher has not told; 0 if there is none.
    fn told_until(&self) -> u64 {
        let mut watchers = self.shared.told_until.lock();
        // Only this list has those of watchers that are gone.
        watchers.retain(|watcher| Arc::strong_count(watcher) > 1);
        watchers.iter().map(|watcher| watcher.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Tells the operator and the web server; neither is waited for.
    fn tell(&mut self, event: &AlarmEvent) {
        let text = event.to_string();
        match event.is_raised() {
            true => self.notify.warn(&text),
            false => self.notify.info(&text),
        }
        if let Some(action) = &mut self.action {
            action.take(event);
        }
        // Serializing numbers and texts cannot fail.
        if let (Some(webhook), Ok(mut json)) = (&self.webhook, serde_json::to_value(event)) {
            // Slack and Mattermost show this field.
            json["text"] = text.into();
            webhook.post(json.to_string());
        }
    }

    fn publish(&mut self) {
        let events = std::mem::take(&mut self.judge.events);
        events.iter().for_each(|event| self.tell(event));
        let mut report = self.shared.report.lock();
        report.counters = self.judge.counters;
        report.counters.lost = self.shared.lost.load(Ordering::Relaxed);
        report.rules.clone_from(&self.judge.by_rule);
        report.webhook = self.webhook.as_ref().map(Webhook::counts);
        if !events.is_empty() || !report.active.is_empty() {
            report.active = self.judge.active();
        }
        report.events.extend(events);
        let surplus = report.events.len().saturating_sub(EVENTS_MAX);
        report.events.drain(..surplus);
    }
}

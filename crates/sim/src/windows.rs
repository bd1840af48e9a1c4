//! Runs the active routers of a window on one thread or several.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use parking_lot::Mutex;
use thalweg_exec::thread_cpu_time;
use thalweg_node::speaker::SpeakerWorker;

use crate::error::SimError;
use crate::router::Place;

/// Below this number of routers one thread runs them all: waking others would cost more than it saves.
const ROUTERS_MIN: usize = 4;

/// The time of the router's next work.
pub(crate) fn next_us(place: &Place) -> u64 {
    let site = place.site.lock();
    let arrival_us = site.next_us().unwrap_or(u64::MAX);
    let news_us = if site.is_up && site.has_news() { site.now_us } else { u64::MAX };
    let free_us = site.free_us();
    drop(site);
    let due_ms = place.router.lock().as_ref().map_or(u64::MAX, |router| router.due_ms());
    arrival_us.min(news_us).min(due_ms.saturating_mul(1000)).max(free_us)
}

/// Runs a router through all its moments before the end of a window.
fn run_one(place: &Place, number: u32, end_us: u64, worker: &mut SpeakerWorker) -> Result<(), SimError> {
    loop {
        let at_us = next_us(place);
        if at_us >= end_us {
            return Ok(());
        }
        let at_us = at_us.max(place.site.lock().now_us);
        match place.router.lock().as_mut() {
            None => place.site.lock().advance(at_us),
            Some(router) => {
                let begun = place.site.lock().labor.timed.is_some().then(thread_cpu_time);
                match router.run(worker, at_us) {
                    Ok(true) => {}
                    Ok(false) => return Err(SimError::NoRest { router: number as usize, at_us }),
                    Err(source) => return Err(SimError::Router { router: number as usize, source }),
                }
                if let Some(begun) = begun {
                    place.site.lock().labor.time(thread_cpu_time().saturating_sub(begun));
                }
            }
        }
    }
}

struct Window {
    places: Vec<(u32, Arc<Place>)>,
    end_us: u64,
    next: AtomicUsize,
    failure: Mutex<Option<Failure>>,
}

enum Failure {
    Error(SimError),
    Panic(Box<dyn Any + Send>),
}

impl Window {
    /// Runs routers that no other thread has taken, until none is left.
    fn work(&self, worker: &mut SpeakerWorker) {
        while let Some((number, place)) = self.places.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let done = catch_unwind(AssertUnwindSafe(|| run_one(place, *number, self.end_us, worker)));
            let failure = match done {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Failure::Error(error),
                Err(panic) => Failure::Panic(panic),
            };
            self.failure.lock().get_or_insert(failure);
        }
    }
}

struct Shared {
    /// Threads meet here before each window, or before they end, and after each window.
    barrier: Barrier,
    window: Mutex<Option<Arc<Window>>>,
}

/// The threads that run windows: the caller's, and others if there are any.
pub(crate) struct Pool {
    /// The caller's.
    worker: SpeakerWorker,
    shared: Option<Arc<Shared>>,
}

impl Pool {
    /// Runs routers through their moments before `end_us`.
    pub(crate) fn run(&mut self, places: &[Arc<Place>], active: &[u32], end_us: u64) -> Result<(), SimError> {
        let worker = &mut self.worker;
        let shared = match &self.shared {
            Some(shared) if active.len() >= ROUTERS_MIN => shared,
            _ => {
                let mut run = |node: &u32| run_one(&places[*node as usize], *node, end_us, worker);
                return active.iter().try_for_each(&mut run);
            }
        };
        let window = Arc::new(Window {
            places: active.iter().map(|node| (*node, places[*node as usize].clone())).collect(),
            end_us,
            next: AtomicUsize::new(0),
            failure: Mutex::new(None),
        });
        *shared.window.lock() = Some(window.clone());
        shared.barrier.wait();
        window.work(worker);
        shared.barrier.wait();
        match window.failure.lock().take() {
            None => Ok(()),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            *shared.window.lock() = None;
            shared.barrier.wait();
        }
    }
}

/// Calls `body` with a pool of `threads` threads.
pub(crate) fn with_threads<T>(threads: usize, body: impl FnOnce(&mut Pool) -> T) -> T {
    let worker = SpeakerWorker::default();
    if threads <= 1 {
        return body(&mut Pool { worker, shared: None });
    }
    let shared = Arc::new(Shared { barrier: Barrier::new(threads), window: Mutex::new(None) });
    thread::scope(|scope| {
        for _ in 1..threads {
            let shared = shared.clone();
            scope.spawn(move || {
                let mut worker = SpeakerWorker::default();
                loop {
                    shared.barrier.wait();
                    let Some(window) = shared.window.lock().clone() else { return };
                    window.work(&mut worker);
                    shared.barrier.wait();
                }
            });
        }
        body(&mut Pool { worker, shared: Some(shared) })
    })
}

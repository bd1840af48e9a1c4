//! Runs the active routers of a window on one thread or several.
//!
//! A thread delivers what its router sent as soon as the router has run, while others still run: nothing that is sent in a
//! window arrives before its end, and arrivals are ordered by time and sender, in any order of delivery.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use parking_lot::Mutex;
use thalweg_exec::thread_cpu_time;
use thalweg_node::speaker::SpeakerWorker;

use crate::error::SimError;
use crate::link::Span;
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

/// Delivers the parcels of a router. Adds their receivers to `sooner` if they have work earlier than before.
pub(crate) fn deliver(places: &[Arc<Place>], from: usize, sooner: &mut Vec<u32>) {
    let mut leaving = std::mem::take(&mut places[from].site.lock().leaving);
    for parcel in leaving.drain(..) {
        let (to, at_us) = (parcel.to, parcel.at_us);
        let receiver = &places[to as usize];
        receiver.site.lock().push(parcel);
        if receiver.next_us.fetch_min(at_us, Ordering::AcqRel) > at_us {
            sooner.push(to);
        }
    }
    // Keeps the memory of ordinary traffic, but not that of a burst.
    if leaving.capacity() <= 64 {
        places[from].site.lock().leaving = leaving;
    }
}

/// Runs a router through all its moments as far as its links permit.
fn run_one(
    places: &[Arc<Place>],
    number: u32,
    span: Span,
    worker: &mut SpeakerWorker,
    sooner: &mut Vec<u32>,
) -> Result<(), SimError> {
    let place = &*places[number as usize];
    let end_us = place.site.lock().end_us(span);
    loop {
        let at_us = next_us(place);
        if at_us >= end_us {
            deliver(places, number as usize, sooner);
            place.next_us.fetch_min(at_us, Ordering::AcqRel);
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
    places: Arc<Vec<Arc<Place>>>,
    active: Vec<u32>,
    span: Span,
    next: AtomicUsize,
    sooner: Mutex<Vec<u32>>,
    failure: Mutex<Option<Failure>>,
}

enum Failure {
    Error(SimError),
    Panic(Box<dyn Any + Send>),
}

impl Window {
    /// Runs routers that no other thread has taken, until none is left.
    fn work(&self, worker: &mut SpeakerWorker) {
        let mut sooner = Vec::new();
        while let Some(number) = self.active.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let run = || run_one(&self.places, *number, self.span, worker, &mut sooner);
            let done = catch_unwind(AssertUnwindSafe(run));
            let failure = match done {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Failure::Error(error),
                Err(panic) => Failure::Panic(panic),
            };
            self.failure.lock().get_or_insert(failure);
        }
        self.sooner.lock().append(&mut sooner);
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
    /// Runs routers through their next moments, in this order as far as there are threads for them. Adds to `sooner` the
    /// routers that have work earlier than before.
    pub(crate) fn run(
        &mut self,
        places: &Arc<Vec<Arc<Place>>>,
        active: &[u32],
        span: Span,
        sooner: &mut Vec<u32>,
    ) -> Result<(), SimError> {
        let worker = &mut self.worker;
        let shared = match &self.shared {
            Some(shared) if active.len() >= ROUTERS_MIN => shared,
            _ => {
                let mut run = |node: &u32| run_one(places, *node, span, worker, sooner);
                return active.iter().try_for_each(&mut run);
            }
        };
        let window = Arc::new(Window {
            places: places.clone(),
            active: active.to_vec(),
            span,
            next: AtomicUsize::new(0),
            sooner: Mutex::default(),
            failure: Mutex::new(None),
        });
        *shared.window.lock() = Some(window.clone());
        shared.barrier.wait();
        window.work(worker);
        shared.barrier.wait();
        sooner.append(&mut window.sooner.lock());
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

//! Measures what it costs to hand work from one core of this machine to another.
//!
//! Each figure is a median of rounds, so that a disturbance of some rounds does not count. The benchmarks use the
//! same turns, waits and sleeps as the models do.

use crate::costs::MachineCosts;
use crate::os;
use crate::stop::RunControl;
use crate::turn::Turn;
use crate::virtual_cores::HandOver;
use parking_lot::Mutex;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
/// Hand-overs in a round.
const HOPS: u64 = 2_000;
/// Sleeps and wake-ups in a round.
const WAKE_UPS: u64 = 200;
/// The job that is moved between cores: the packets of a chunk, with one more cache line each for headers.
const PACKETS: usize = 1600;
const LINES_PER_PACKET: usize = 2;
const WORDS_PER_LINE: usize = 8;
/// How long the kernel lets a thread run while others want its core: the kernel's default, not measured.
const SLICE_NS: u64 = 3_000_000;

/// Measures all costs but contention: [`HandOver::contention_permille`] stays empty.
pub fn measure_machine() -> MachineCosts {
    let hop_ns = median(|| {
        let turn = Turn::default();
        ping_pong(HOPS, None, &|target, control| drop(turn.wait(target, control)), &|value| turn.set(value))
    });
    let sleeping = |core| median(|| parked(core));
    let woken_ns = sleeping(None);
    let wake_ns = median(unpark_cost);
    let switch_ns = os::current_core().map_or(0, |core| sleeping(Some(core)).saturating_sub(wake_ns));
    let hand_over = HandOver {
        hop_ns,
        spin_ns: median(spin_time),
        wake_ns,
        wake_latency_ns: woken_ns.saturating_sub(wake_ns),
        switch_ns,
        slice_ns: SLICE_NS,
        contention_permille: Vec::new(),
    };
    MachineCosts { hand_over, move_ps_per_packet: median(move_ps) }
}

fn median(mut measure: impl FnMut() -> u64) -> u64 {
    let mut all: Vec<u64> = (0..ROUNDS).map(|_| measure()).collect();
    all.sort_unstable();
    all[ROUNDS / 2]
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Lets two threads take turns; returns the nanoseconds of one turn.
fn ping_pong(
    turns: u64,
    core: Option<usize>,
    wait: &(dyn Fn(u64, &RunControl) + Sync),
    set: &(dyn Fn(u64) + Sync),
) -> u64 {
    let control = RunControl::default();
    let took = Mutex::new(0);
    thread::scope(|scope| {
        for side in 0..2 {
            let (control, took) = (&control, &took);
            scope.spawn(move || {
                let _bound = core.map(os::pin_current_thread);
                wait(side, control);
                let start = Instant::now();
                for turn in (side..turns).step_by(2) {
                    wait(turn, control);
                    set(turn + 1);
                }
                *took.lock() = ns(start.elapsed()) / turns;
            });
        }
    });
    took.into_inner()
}

/// Lets two threads sleep and wake each other without spinning; returns the nanoseconds between two wake-ups.
fn parked(core: Option<usize>) -> u64 {
    let value = std::sync::atomic::AtomicU64::new(0);
    let sides: [Mutex<Option<thread::Thread>>; 2] = Default::default();
    let wait = |target: u64, _: &RunControl| {
        *sides[side_of(target)].lock() = Some(thread::current());
        while value.load(std::sync::atomic::Ordering::SeqCst) < target {
            thread::park();
        }
    };
    let set = |turn: u64| {
        value.store(turn, std::sync::atomic::Ordering::SeqCst);
        sides[side_of(turn)].lock().iter().for_each(thread::Thread::unpark);
    };
    ping_pong(WAKE_UPS, core, &wait, &set)
}

fn side_of(turn: u64) -> usize {
    usize::from(turn % 2 == 1)
}

/// The cost of waking a sleeping thread, for the thread that wakes it.
fn unpark_cost() -> u64 {
    let (turn, control) = (Turn::default(), RunControl::default());
    let sleeps = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        let (turn, control, sleeps) = (&turn, &control, &sleeps);
        scope.spawn(move || {
            for target in 1..=WAKE_UPS {
                drop(turn.wait(target, control));
                sleeps.store(target, std::sync::atomic::Ordering::SeqCst);
            }
        });
        let mut total = Duration::ZERO;
        for target in 1..=WAKE_UPS {
            while !turn.has_sleeper() {
                thread::yield_now();
            }
            let start = Instant::now();
            turn.set(target);
            total += start.elapsed();
            while sleeps.load(std::sync::atomic::Ordering::SeqCst) < target {
                thread::yield_now();
            }
        }
        ns(total) / WAKE_UPS
    })
}

/// How long a thread tries before it sleeps, when no other thread wants its core.
fn spin_time() -> u64 {
    let start = Instant::now();
    let mut backoff = RunControl::default().backoff();
    while backoff.try_again() {}
    ns(start.elapsed())
}

/// The additional cost of a packet that another core had last, in picoseconds.
fn move_ps() -> u64 {
    let lines = PACKETS * LINES_PER_PACKET;
    let job = Mutex::new(vec![0u64; lines * WORDS_PER_LINE]);
    let touch = || {
        let mut words = job.lock();
        let start = Instant::now();
        words.iter_mut().step_by(WORDS_PER_LINE).for_each(|word| *word = black_box(*word + 1));
        ns(start.elapsed())
    };
    touch();
    let own = touch();
    let turn = Turn::default();
    let moved = Mutex::new(Vec::new());
    let wait = |target: u64, control: &RunControl| {
        drop(turn.wait(target, control));
        if target > 1 {
            moved.lock().push(touch());
        }
    };
    ping_pong(60, None, &wait, &|value| turn.set(value));
    let mut moved = moved.into_inner();
    moved.sort_unstable();
    let moved = moved.get(moved.len() / 2).copied().unwrap_or(own);
    moved.saturating_sub(own) * 1000 / PACKETS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_costs() {
        let MachineCosts { hand_over, .. } = measure_machine();
        assert!(hand_over.hop_ns > 0 && hand_over.spin_ns > 0, "{hand_over:?}");
        assert!(hand_over.wake_ns > 0, "{hand_over:?}");
    }
}

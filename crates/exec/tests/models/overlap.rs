//! Models really spread the work: two things that a model should do at the same time wait for each other, so a
//! model that did one after the other would wait in vain.

use crate::toy::{Hook, Toy, jobs, run};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use thalweg_exec::{ModelKind, ModelOptions, Scope};

use Scope::{Batches as B, Ordered as O, PerShard as S, Whole as W};

/// Stage, sequence and group.
type Visit = (usize, u64, Option<usize>);

/// Much longer than a thread may be kept from running; only a failing test waits that long.
const IN_VAIN: Duration = Duration::from_secs(20);

/// Makes each of two visits wait until the other has come.
fn rendezvous(meeting: [Visit; 2]) -> Hook {
    let (arrived, bell) = (Mutex::new([false; 2]), Condvar::new());
    Box::new(move |stage, sequence, group| {
        let Some(me) = meeting.iter().position(|&visit| visit == (stage, sequence, group)) else { return };
        let mut arrived = arrived.lock().unwrap();
        arrived[me] = true;
        bell.notify_all();
        let until = Instant::now() + IN_VAIN;
        while !arrived[1 - me] {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{:?} waited in vain for {:?}", meeting[me], meeting[1 - me]);
            arrived = bell.wait_timeout(arrived, left).unwrap().0;
        }
    })
}

fn meet(kind: ModelKind, scopes: &[Scope], meeting: [Visit; 2]) {
    let mut toy = Toy::new(scopes, 2, false);
    toy.hook = Some(rendezvous(meeting));
    run(&toy, &jobs(1, 40, 0), &ModelOptions::new(kind, 2));
}

#[test]
fn two_jobs_in_one_stage() {
    for kind in [ModelKind::RunToCompletion, ModelKind::Tokens] {
        meet(kind, &[O, W, O], [(1, 0, None), (1, 1, None)]);
        meet(kind, &[O, W, S], [(1, 20, None), (1, 21, None)]);
    }
}

#[test]
fn two_jobs_in_one_sharded_stage_on_different_groups() {
    for kind in [ModelKind::RunToCompletion, ModelKind::Tokens] {
        meet(kind, &[S, W], [(0, 10, Some(1)), (0, 11, Some(0))]);
    }
}

#[test]
fn two_parts_of_one_job_in_the_farm() {
    meet(ModelKind::Farm, &[B, S, B], [(1, 10, Some(0)), (1, 10, Some(1))]);
}

#[test]
fn the_farm_reads_while_it_works() {
    meet(ModelKind::Farm, &[O, S], [(0, 11, None), (1, 10, Some(0))]);
}

#[test]
fn two_jobs_in_two_stages_of_the_pipeline() {
    // After calibration. Two stages on two threads can only be cut in one way.
    meet(ModelKind::Pipeline, &[W, O], [(0, 21, None), (1, 20, None)]);
}

/// A worker that sleeps because every token is taken or parked wakes when its token's turn comes, while the worker
/// that passed the turn on is busy with its own token.
#[test]
fn a_parked_token_wakes_a_sleeping_worker() {
    let mut toy = Toy::new(&[O, W], 1, false);
    let meeting = rendezvous([(1, 0, None), (1, 1, None)]);
    toy.hook = Some(Box::new(move |stage, sequence, group| {
        if (stage, sequence) == (0, 0) {
            // Long enough for the other worker to park job 1 and to sleep. If it does not, the test passes without
            // testing anything.
            std::thread::sleep(Duration::from_millis(50));
        }
        meeting(stage, sequence, group);
    }));
    run(&toy, &jobs(1, 10, 0), &ModelOptions { tokens: 2, ..ModelOptions::new(ModelKind::Tokens, 2) });
}

//! The schedulings of a control plane on virtual cores: laws of their durations, and that no schedule loses work.

use std::time::Duration;

use thalweg_exec::HandOver;
use thalweg_exec::control_plane::{
    ControlCosts, ControlMachine, ReadCost, SchedulingKind, SchedulingOptions, SessionCosts, explore_control,
    imitate_control,
};

const SHARDS: usize = 16;
/// Schedules of each scheduling.
const SCHEDULES: u64 = 200;

/// Sessions that are read so many times; each read goes to shards in turn.
fn costs(sessions: usize, reads: usize, read_ns: u64, apply_ns: u64) -> ControlCosts {
    let read = |session: usize, read: usize| ReadCost {
        read_ns,
        shards_ns: vec![((session * 5 + read) % SHARDS, apply_ns)],
    };
    let session = |session: usize| SessionCosts {
        reads: (0..reads).map(|number| read(session, number)).collect(),
        write_ns: 0,
    };
    ControlCosts {
        sessions: (0..sessions).map(session).collect(),
        ends_when_applied: true,
        ..ControlCosts::default()
    }
}

/// What the work of all takes, over what the scheduling takes.
fn speed_up(costs: &ControlCosts, kind: SchedulingKind, cores: usize) -> f64 {
    let machine = ControlMachine { cores, hand_over: HandOver::default(), poll_ns: 0 };
    let took = imitate_control(costs, &machine, SchedulingOptions { kind, threads: cores }).unwrap();
    costs.total_ns() as f64 / took.as_nanos() as f64
}

#[test]
fn one_core_takes_the_sum_under_every_scheduling() {
    let costs = costs(8, 50, 2_000, 3_000);
    assert_eq!(costs.total_ns(), 8 * 50 * 5_000);
    for kind in SchedulingKind::ALL {
        let of_one = speed_up(&costs, kind, 1);
        assert!((0.95..=1.0).contains(&of_one), "{kind}: {of_one}");
    }
}

#[test]
fn sessions_that_meet_nowhere_use_every_core() {
    let costs = costs(64, 40, 10_000, 10);
    for kind in [SchedulingKind::PerPeer, SchedulingKind::Dynamic, SchedulingKind::Sharded] {
        for cores in [2, 4, 16] {
            let speed_up = speed_up(&costs, kind, cores);
            assert!((0.85 * cores as f64..=cores as f64).contains(&speed_up), "{kind}, {cores}: {speed_up}");
        }
    }
}

/// All work is under one lock: no scheduling is faster than one core, and the speed-up comes back with the shards.
#[test]
fn what_is_in_one_shard_is_done_by_one_at_a_time() {
    let spread = costs(32, 20, 10, 10_000);
    let mut one = spread.clone();
    for read in one.sessions.iter_mut().flat_map(|session| &mut session.reads) {
        read.shards_ns[0].0 = 3;
    }
    for kind in [SchedulingKind::PerPeer, SchedulingKind::Dynamic, SchedulingKind::Sharded] {
        let (bound, free) = (speed_up(&one, kind, 8), speed_up(&spread, kind, 8));
        assert!(bound <= 1.01, "{kind}: {bound}");
        assert!(free > 4.0, "{kind}: {free}");
    }
}

/// The export queue is one thread's at a time, and its time counts where routes are advertised.
#[test]
fn export_bounds_the_speed_up_where_it_counts() {
    let mut costs = costs(32, 20, 10_000, 1_000);
    costs.export_ns = costs.total_ns();
    costs.sessions[31].write_ns = 1_000;
    let unadvertised = speed_up(&costs, SchedulingKind::Sharded, 8);
    costs.ends_when_applied = false;
    for kind in [SchedulingKind::PerPeer, SchedulingKind::Dynamic, SchedulingKind::Sharded] {
        let speed_up = speed_up(&costs, kind, 8);
        assert!(speed_up <= 2.01, "{kind}: half of the work is the export queue's: {speed_up}");
    }
    assert!(unadvertised > 2.5, "{unadvertised}");
}

/// The pool sleeps until the master deals sessions out.
#[test]
fn waking_costs_what_the_machine_takes() {
    let costs = costs(4, 100, 1_000, 1_000);
    let took = |wake_latency_ns| {
        let hand_over = HandOver { wake_latency_ns, wake_ns: wake_latency_ns / 10, ..HandOver::default() };
        let machine = ControlMachine { cores: 4, hand_over, poll_ns: 100 };
        let options = SchedulingOptions { kind: SchedulingKind::Dynamic, threads: 4 };
        imitate_control(&costs, &machine, options).unwrap()
    };
    assert!(took(50_000) > took(0) + Duration::from_micros(50), "{:?}, {:?}", took(50_000), took(0));
    assert_eq!(took(3_000), took(3_000), "the same costs take the same time");
}

/// Random costs of waking and of every step: whatever the order, all that is read is applied, exported and written.
#[test]
fn no_schedule_loses_work() {
    let mut costs = costs(5, 6, 300, 200);
    costs.export_ns = 2_000;
    costs.sessions[0].write_ns = 500;
    costs.sessions[4].write_ns = 900;
    for seed in 0..SCHEDULES {
        for kind in SchedulingKind::ALL {
            let options = SchedulingOptions { kind, threads: 3 };
            let took = explore_control(&costs, 2, seed, options);
            let took = took.unwrap_or_else(|error| panic!("{kind}, seed {seed}: {error}"));
            assert!(took.as_nanos() > 0);
        }
    }
}

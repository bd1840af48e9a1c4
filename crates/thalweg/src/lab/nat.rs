//! `thalweg lab nat`: address translation in memory and live, as RFC 9693 has it.

use thalweg_lab::forwarding::method::SearchOptions;
use thalweg_lab::forwarding::subject::Subject;
use thalweg_lab::forwarding::subject::thalweg::{DRIVERS, Thalweg};
use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::nat::subject::{KernelPool, configuration};
use thalweg_lab::nat::{self, Options, Part, render};
use thalweg_lab::report::Origin;

use super::{command_line, failed, forwarding, show_all};
use crate::Failure;
use crate::cli::{Format, LabNatArgs, RouterArg};
use crate::progress::Steps;
use crate::signals::stop_on_signals;

/// Room of our router's table: more than all trials of a set-up search open, as much as the pool has ports.
const SESSIONS_MAX: u32 = 1 << 21;
const MEMORY_QUICK: [u32; 2] = [4_000, 100_000];
const LIVE_QUICK: [u32; 1] = [10_000];
const SET_UP_QUICK: u32 = 10_000;
const CAPACITY_QUICK: u32 = 40_000;
const FILL_QUICK: u32 = 1 << 16;
const TRIAL_S_QUICK: f64 = 0.1;
const WIDTH_QUICK: f64 = 0.05;

pub(super) fn run(args: &LabNatArgs, format: Format) -> Result<(), Failure> {
    let options = options(args);
    if options.is_live() && !is_root() {
        return Err(failed(nat::NatError::from(ForwardingError::NotRoot)));
    }
    let stop = stop_on_signals()?;
    let mut subjects = if options.is_live() { subjects(args)? } else { Vec::new() };
    if options.is_live() {
        namespace::sweep();
    }
    let mut steps: Option<Steps> = None;
    let outcome = nat::run(&mut subjects, &options, &stop, &mut |done, total, what| {
        steps.get_or_insert_with(|| Steps::on_terminal(Some(total))).at(done, what);
    });
    if let Some(steps) = steps {
        steps.finish();
    }
    let outcome = outcome.map_err(failed)?;
    let input = format!(
        "64-byte frames; set-up trials of {} sessions, {} public addresses; seed {}",
        options.set_up_sessions,
        nat::subject::POOL,
        args.run.seed(1)
    );
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show_all(&report, &outcome, &render::tables(&outcome), &args.run.output("lab-nat"), format)
}

fn options(args: &LabNatArgs) -> Options {
    let (usual, quick) = (Options::default(), args.run.quick);
    let or = |given: &[u32], quickly: &[u32], usually: &[u32]| match (given, quick) {
        ([], true) => quickly.to_vec(),
        ([], false) => usually.to_vec(),
        (given, _) => given.to_vec(),
    };
    Options {
        parts: match args.only.as_slice() {
            [] => Part::ALL.to_vec(),
            parts => parts.to_vec(),
        },
        memory_sessions: or(&args.sessions, &MEMORY_QUICK, &usual.memory_sessions),
        fill_room: if quick { FILL_QUICK } else { usual.fill_room },
        live_sessions: or(&args.live_sessions, &LIVE_QUICK, &usual.live_sessions),
        set_up_sessions: args.set_up_sessions.unwrap_or(if quick {
            SET_UP_QUICK
        } else {
            usual.set_up_sessions
        }),
        capacity_limit: args.capacity_limit.unwrap_or(if quick {
            CAPACITY_QUICK
        } else {
            usual.capacity_limit
        }),
        runs: args.run.runs(usual.runs, 1),
        trial_s: args.router.trial.unwrap_or(if quick { TRIAL_S_QUICK } else { usual.trial_s }),
        search: SearchOptions {
            width: if quick { WIDTH_QUICK } else { usual.search.width },
            ..SearchOptions::default()
        },
        seed: args.run.seed(1),
        ..usual
    }
}

fn subjects(args: &LabNatArgs) -> Result<Vec<Box<dyn Subject>>, Failure> {
    let program = forwarding::own_program()?;
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for subject in &args.subjects {
        match subject {
            RouterArg::Linux => subjects.push(Box::new(KernelPool::default())),
            RouterArg::Thalweg => {
                for (driver, model) in args.router.shapes(&DRIVERS, &["run-to-completion"])? {
                    let router = Thalweg::new(&program, driver, model, &args.run.output("lab-nat"));
                    subjects.push(Box::new(router.with(&configuration(SESSIONS_MAX))));
                }
            }
        }
    }
    Ok(subjects)
}

//! Predicts the schedulings of the BGP daemon on more cores than this machine has.
//!
//! The load is that of `lab bgp` in memory: every neighbor announces the same table at once. A serial run of the speaker
//! is recorded call by call ([`ControlRecorder`](thalweg_exec::control_plane::ControlRecorder)), contention is measured
//! with two serial speakers at once, and the schedulings as shipped run on virtual cores over the record. As in the thesis
//! nobody is told the routes: the time ends when the last UPDATE is in the table.
//!
//! Validation runs the real speaker under each scheduling on the cores that this machine has; nothing of these runs
//! enters the costs.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_exec::control_plane::{
    ControlCosts, ControlMachine, SchedulingKind, SchedulingOptions, imitate_control,
};

use super::{Curve, Fit, MachineCosts, Options, PredictError, Predicted, Validation, core_counts, recorded};
use crate::bgp::daemon::Advertise;
use crate::bgp::in_memory::{self, InMemoryError, Spec};
use crate::bgp::scenario::Scenario;
use crate::bgp::table::{Neighbors, Packing};
use crate::cores::Cores;
use crate::stats::Summary;

/// What the predictions are called where models have a kind of work.
pub(crate) const WORK: &str = "BGP";
/// The thesis: its scheduling with a thread for each neighbor, its cores, and the least speed-up it found there.
const THESIS: (SchedulingKind, usize, f64) = (SchedulingKind::PerPeer, 16, 5.5);
/// The longest time for a load.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What the daemon is given to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub neighbors: Neighbors,
    pub prefixes: usize,
}

/// The measured costs of the daemon's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BgpCosts {
    /// The load, in words.
    pub load: String,
    pub updates: u64,
    /// The cost of work while 1, 2, ... cores work, in thousandths of its cost on one.
    pub contention_permille: Vec<u64>,
    /// Asking the kernel for events.
    pub poll_ns: u64,
    pub costs: ControlCosts,
}

/// A result of the thesis beside the prediction for it.
#[derive(Clone, Debug, Serialize)]
pub struct Thesis {
    pub scheduling: String,
    pub cores: usize,
    /// What the thesis found at least.
    pub found: f64,
    pub predicted: f64,
}

/// Predictions of schedulings.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BgpOutcome {
    pub points: Vec<Predicted>,
    pub curves: Vec<Curve>,
    pub thesis: Vec<Thesis>,
    /// Empty if nothing was measured.
    pub validation: Vec<Validation>,
}

fn spec(scheduling: SchedulingKind, threads: usize, cores: Cores, seed: u64) -> Spec {
    Spec {
        scheduling,
        threads,
        common_poller: false,
        cores,
        advertise: Advertise::None,
        way: None,
        block: 0,
        seed,
        timeout: TIMEOUT,
    }
}

fn failed(reason: impl ToString) -> PredictError {
    PredictError::Bgp(reason.to_string())
}

fn scenario(load: Load, seed: u64) -> Scenario {
    Scenario::overlap(load.prefixes, Packing::Real, load.neighbors, seed)
}

/// Schedulings that can use several cores.
fn parallel() -> impl Iterator<Item = SchedulingKind> {
    SchedulingKind::ALL.into_iter().filter(|kind| *kind != SchedulingKind::Serial)
}

/// Records serial runs, alone and beside a copy.
pub fn calibrate(
    load: Load,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<BgpCosts, PredictError> {
    progress("recording BGP");
    let (scenario, here) = (scenario(load, options.seed), Cores::here().map_err(failed)?);
    let record = |is_beside: bool| {
        let cores = if is_beside { here.clone() } else { here.first(1) };
        let (run, costs) =
            in_memory::record(&spec(SchedulingKind::Serial, 1, cores, options.seed), &scenario)?;
        Ok((run.elapsed_s, (run.updates, costs)))
    };
    let (mut records, contention_permille) =
        recorded(options.runs, record, || InMemoryError::Panicked).map_err(failed)?;
    records.sort_by_key(|(_, costs)| costs.total_ns());
    let (updates, costs) = records.swap_remove(records.len() / 2);
    if costs.total_ns() == 0 {
        return Err(failed("the load has no UPDATE"));
    }
    Ok(BgpCosts {
        load: scenario.name,
        updates,
        contention_permille,
        poll_ns: ControlMachine::measure_poll_ns().map_err(failed)?,
        costs,
    })
}

/// How much faster than the serial scheduling on one core.
fn speed_up(
    bgp: &BgpCosts,
    machine: &MachineCosts,
    kind: SchedulingKind,
    cores: usize,
) -> Result<(f64, Duration), PredictError> {
    let mut hand_over = machine.hand_over.clone();
    hand_over.contention_permille.clone_from(&bgp.contention_permille);
    let imitate = |kind, cores, threads| {
        let machine = ControlMachine { cores, hand_over: hand_over.clone(), poll_ns: bgp.poll_ns };
        imitate_control(&bgp.costs, &machine, SchedulingOptions { kind, threads })
            .map_err(|error| failed(format!("{kind} on {cores} virtual cores: {error}")))
    };
    let serial = imitate(SchedulingKind::Serial, 1, 1)?;
    let took = imitate(kind, cores, cores)?;
    Ok((serial.as_secs_f64() / took.as_secs_f64().max(1e-9), took))
}

/// Runs every scheduling with every core count over the costs.
pub(crate) fn predict(
    bgp: &BgpCosts,
    machine: &MachineCosts,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<BgpOutcome, PredictError> {
    let mut outcome = BgpOutcome::default();
    for kind in parallel() {
        let mut curve = Vec::new();
        for &cores in &options.cores {
            progress(&format!("{kind} on {cores} virtual cores"));
            let (speed_up, took) = speed_up(bgp, machine, kind, cores)?;
            curve.push((cores as f64, speed_up));
            outcome.points.push(Predicted {
                work: WORK.to_owned(),
                model: kind.to_string(),
                cores,
                per_second: bgp.updates as f64 / took.as_secs_f64().max(1e-9),
                speed_up,
                saturated_on: None,
            });
        }
        let (work, model) = (WORK.to_owned(), kind.to_string());
        outcome.curves.push(Curve { work, model, amdahl: Fit::amdahl(&curve), usl: Fit::usl(&curve) });
    }
    let (kind, cores, found) = THESIS;
    let predicted = speed_up(bgp, machine, kind, cores)?.0;
    outcome.thesis.push(Thesis { scheduling: kind.to_string(), cores, found, predicted });
    Ok(outcome)
}

/// Measures the schedulings on 2, 4, ... cores of this machine, in rounds, beside the predictions.
pub(crate) fn validate(
    outcome: &mut BgpOutcome,
    (bgp, machine): (&BgpCosts, &MachineCosts),
    load: Load,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(), PredictError> {
    let here = Cores::here().map_err(failed)?;
    let scenario = scenario(load, options.seed);
    let counts: Vec<usize> = core_counts().into_iter().filter(|cores| *cores <= here.count()).collect();
    let cells: Vec<_> = parallel().flat_map(|kind| counts.iter().map(move |cores| (kind, *cores))).collect();
    let mut measured = vec![Vec::new(); cells.len()];
    for round in 0..=options.runs {
        let serial = elapsed_s(&scenario, SchedulingKind::Serial, here.first(1), options)?;
        for ((kind, cores), measured) in cells.iter().zip(&mut measured) {
            progress(&format!("measuring {kind} on {cores} cores"));
            let took = elapsed_s(&scenario, *kind, here.first(*cores), options)?;
            if round > 0 {
                measured.push(serial / took);
            }
        }
    }
    for ((kind, cores), measured) in cells.into_iter().zip(measured) {
        let predicted = speed_up(bgp, machine, kind, cores)?.0;
        let Some(measured) = Summary::of(&measured) else { continue };
        outcome.validation.push(Validation {
            work: WORK.to_owned(),
            model: kind.to_string(),
            workers: cores,
            predicted,
            error: predicted / measured.median - 1.0,
            measured,
        });
    }
    Ok(())
}

fn elapsed_s(
    scenario: &Scenario,
    kind: SchedulingKind,
    cores: Cores,
    options: &Options,
) -> Result<f64, PredictError> {
    let spec = spec(kind, cores.count(), cores, options.seed);
    in_memory::measure(&spec, scenario).map(|run| run.elapsed_s).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOAD: Load = Load {
        neighbors: Neighbors { count: 6, address: Ipv4Addr::new(127, 0, 1, 1), as_number: 64_600 },
        prefixes: 300,
    };

    fn options(cores: &[usize]) -> Options {
        Options { cores: cores.to_vec(), tokens: None, runs: 1, seed: 1 }
    }

    /// Other tests run beside these, and may have been on the core while something was timed: what schedulings do
    /// differently often costs nothing here, so that only the work counts.
    fn undisturbed(mut bgp: BgpCosts) -> BgpCosts {
        bgp.contention_permille = vec![1000];
        (bgp.costs.export_ns, bgp.costs.export_call_ns) = (0, 0);
        (bgp.costs.write_call_ns, bgp.costs.round_ns, bgp.poll_ns) = (0, 0, 500);
        bgp
    }

    /// The record has all that was sent, and the schedulings do all of it on virtual cores.
    #[test]
    fn a_recorded_daemon_is_predicted() {
        let options = options(&[1, 2, 4]);
        let bgp = calibrate(LOAD, &options, &mut |_| ()).unwrap();
        assert!(bgp.contention_permille.len() > 4 && bgp.contention_permille[0] == 1000);
        assert!(bgp.costs.round_ns > 0 && bgp.costs.export_call_ns > 0 && bgp.costs.write_call_ns > 0);
        let bgp = undisturbed(bgp);
        assert!(bgp.updates >= 6 * 20, "{}", bgp.updates);
        let read = |session: &&thalweg_exec::control_plane::SessionCosts| session.reads_ns() > 0;
        assert!(bgp.costs.sessions.iter().filter(read).count() >= 6, "every neighbor was read");
        assert!(bgp.costs.applied_ns() > 0 && bgp.poll_ns > 0);
        let machine = MachineCosts::default();
        let outcome = predict(&bgp, &machine, &options, &mut |_| ()).unwrap();
        assert_eq!(outcome.points.len(), 3 * 3);
        for point in &outcome.points {
            assert!(point.speed_up > 0.3 && point.speed_up < 1.2 * point.cores as f64, "{point:?}");
        }
        let again = predict(&bgp, &machine, &options, &mut |_| ()).unwrap();
        let speeds =
            |outcome: &BgpOutcome| outcome.points.iter().map(|point| point.speed_up).collect::<Vec<_>>();
        assert_eq!(speeds(&outcome), speeds(&again), "the same costs give the same prediction");
        assert_eq!(outcome.thesis.len(), 1);
    }

    /// A daemon whose work is all in one shard gains nothing there, whatever the scheduling.
    #[test]
    fn a_prediction_moves_with_what_it_is_made_of() {
        let options = options(&[4]);
        let mut bgp = undisturbed(calibrate(LOAD, &options, &mut |_| ()).unwrap());
        for read in bgp.costs.sessions.iter_mut().flat_map(|session| &mut session.reads) {
            read.read_ns = 10;
            read.shards_ns = vec![(0, 10_000)];
        }
        for point in predict(&bgp, &MachineCosts::default(), &options, &mut |_| ()).unwrap().points {
            assert!(point.speed_up < 1.1, "{point:?}");
        }
    }
}

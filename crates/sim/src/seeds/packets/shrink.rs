//! Derives smaller plans from one that fails.

use thalweg_exec::ModelKind;

use super::plan::{Act, Item, NatSetup, Piece, Plan, Setup};
use crate::seeds::shrink::{Step, changed, parts};

/// In order: steps that remove most come first.
pub(in crate::seeds) const STEPS: [Step<Plan>; 7] = [
    without_steps,
    without_items,
    with_fewer_packets,
    with_plain_routers,
    with_plain_items,
    with_sooner_steps,
    with_a_plain_model,
];

fn without_steps(plan: &Plan) -> Vec<Plan> {
    parts(plan.steps.len()).map(|gone| changed(plan, |plan| drop(plan.steps.drain(gone)))).collect()
}

/// Each list of packets, and the number of its step.
fn chunks(plan: &Plan) -> impl Iterator<Item = (usize, &Vec<Item>)> {
    plan.steps.iter().enumerate().filter_map(|(at, step)| match &step.what {
        Act::Packets(items) => Some((at, items)),
        _ => None,
    })
}

fn with_items(plan: &Plan, at: usize, change: impl FnOnce(&mut Vec<Item>)) -> Plan {
    changed(plan, |plan| {
        if let Act::Packets(items) = &mut plan.steps[at].what {
            change(items);
        }
    })
}

fn without_items(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (at, items) in chunks(plan) {
        plans.extend(parts(items.len()).map(|gone| with_items(plan, at, |items| drop(items.drain(gone)))));
    }
    plans
}

fn with_fewer_packets(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (at, items) in chunks(plan) {
        for (place, item) in items.iter().enumerate().filter(|(_, item)| item.times > 1) {
            for times in [1, item.times / 2, item.times - 1] {
                plans.push(with_items(plan, at, |items| items[place].times = times));
            }
        }
    }
    plans
}

fn with_plain_routers(plan: &Plan) -> Vec<Plan> {
    let changes: [fn(&mut Setup); 8] = [
        |setup| setup.more_lans = 0,
        |setup| setup.small_mtu = false,
        |setup| setup.lost_gateway = false,
        |setup| setup.strict_sources = false,
        |setup| setup.deny = None,
        |setup| setup.nat = None,
        |setup| setup.classes = None,
        |setup| setup.flows = None,
    ];
    let of_nat: [fn(&mut NatSetup); 11] = [
        |nat| *nat = NatSetup::default(),
        |nat| nat.addresses = 1,
        |nat| nat.shards = 1,
        |nat| nat.hash = false,
        |nat| nat.port_dependent = false,
        |nat| (nat.address_dependent, nat.port_dependent) = (false, false),
        |nat| nat.inbound_refresh = false,
        |nat| nat.keep_half_open = false,
        |nat| nat.host_limits = (0, 0),
        |nat| nat.block = None,
        |nat| nat.forward = false,
    ];
    let mut plans = Vec::new();
    for at in 0..plan.routers.len() {
        plans.extend(changes.iter().map(|change| changed(plan, |plan| change(&mut plan.routers[at]))));
        if plan.routers[at].nat.is_some() {
            plans.extend(
                of_nat
                    .iter()
                    .map(|change| changed(plan, |plan| plan.routers[at].nat.iter_mut().for_each(change))),
            );
        }
    }
    // Removes a configuration that is never in force.
    let is_used = |at: usize| plan.steps.iter().any(|step| step.what == Act::Reload(at));
    if let Some(last) = plan.routers.len().checked_sub(1).filter(|last| *last > 0 && !is_used(*last)) {
        plans.push(changed(plan, |plan| plan.routers.truncate(last)));
    }
    plans.retain(|smaller| smaller != plan);
    plans
}

fn with_plain_items(plan: &Plan) -> Vec<Plan> {
    let changes: [fn(&mut Item); 7] = [
        |item| item.piece = Piece::Whole,
        |item| item.ttl = 64,
        |item| item.dscp = 0,
        |item| item.bytes = 0,
        |item| item.flip = None,
        |item| item.host = 0,
        |item| item.remote = 0,
    ];
    let mut plans = Vec::new();
    for (at, items) in chunks(plan) {
        for place in 0..items.len() {
            plans
                .extend(changes.iter().map(|change| with_items(plan, at, |items| change(&mut items[place]))));
        }
    }
    plans.retain(|smaller| smaller != plan);
    plans
}

fn with_sooner_steps(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (at, step) in plan.steps.iter().enumerate().filter(|(_, step)| step.after_ms > 0) {
        for after_ms in [0, step.after_ms / 10 * 5] {
            if after_ms < step.after_ms {
                plans.push(changed(plan, |plan| plan.steps[at].after_ms = after_ms));
            }
        }
    }
    plans
}

fn with_a_plain_model(plan: &Plan) -> Vec<Plan> {
    let plain = changed(plan, |plan| (plan.model, plan.workers) = (ModelKind::RunToCompletion, 1));
    [plain].into_iter().filter(|smaller| smaller != plan).collect()
}

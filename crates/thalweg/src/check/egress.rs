//! The queues part of `thalweg check`: what each live port does with packets that wait.

use std::fmt::Write;

use serde_json::{Value, json};
use thalweg_config::{PortIndex, RouterConfig};
use thalweg_dataplane::egress::{EgressClass, EgressConfig};
use thalweg_node::egress::{egress_config, has_queues};
use thalweg_text::units::{count, exact_bit_rate, exact_bytes};

use super::{join, port_name};
use crate::tables::table;

/// Groups of ports with equal queues. Ports without queues are left out.
fn plans(config: &RouterConfig) -> Vec<(Vec<PortIndex>, EgressConfig)> {
    let mut plans: Vec<(Vec<PortIndex>, EgressConfig)> = Vec::new();
    for port in ports_with_queues(config) {
        let plan = egress_config(config, port);
        match plans.iter_mut().find(|(_, known)| *known == plan) {
            Some((ports, _)) => ports.push(port),
            None => plans.push((vec![port], plan)),
        }
    }
    plans
}

fn ports_with_queues(config: &RouterConfig) -> impl Iterator<Item = PortIndex> {
    (0..).zip(&config.ports).map(|(port, _)| port).filter(|port| has_queues(config, *port))
}

pub(super) fn render(text: &mut String, config: &RouterConfig) {
    for (ports, plan) in plans(config) {
        let names = join(ports.iter().map(|port| port_name(config, *port)));
        let rows = plan.classes.iter().map(|class| {
            vec![
                class.name.clone(),
                class.service.to_string(),
                class.rate_bps.map_or_else(|| "none".to_owned(), |bps| shaper(bps, class.burst_bytes)),
                format!(
                    "{} packets, {}",
                    count(class.limit_packets.into()),
                    exact_bytes(class.limit_bytes.into())
                ),
                managed(class),
            ]
        });
        let rate = match plan.rate_bps {
            Some(bps) => format!("at most {}", shaper(bps, plan.burst_bytes)),
            None => "as fast as the port takes it".to_owned(),
        };
        let _ =
            writeln!(text, "Queues of {names}: {rate}, {} bytes of overhead a frame", plan.overhead_bytes);
        *text += &table(&["class", "served", "own bound", "holds", "managed"], &[], rows);
        let _ = writeln!(text, "{}\n", share(&plan));
    }
}

fn shaper(bps: u64, burst_bytes: u32) -> String {
    format!("{} / {}", exact_bit_rate(bps), exact_bytes(burst_bytes.into()))
}

fn managed(class: &EgressClass) -> String {
    let Some(aqm) = class.aqm else { return "no".to_owned() };
    let ecn = if aqm.ecn { ", ECN" } else { "" };
    let target = match aqm.target_us {
        us if us.is_multiple_of(1_000) => format!("{} ms", us / 1_000),
        us => format!("{us} µs"),
    };
    format!("CoDel {target} / {} ms{ecn}", aqm.interval_ms)
}

fn share(plan: &EgressConfig) -> String {
    match plan.strict_share_percent {
        100 => "Strict classes may take everything.".to_owned(),
        percent => format!("Strict classes take at most {percent} % while others wait."),
    }
}

/// One object per port with queues.
pub(super) fn to_json(config: &RouterConfig) -> Vec<Value> {
    let port = |index: PortIndex| {
        let plan = egress_config(config, index);
        json!({
            "port": port_name(config, index),
            "rate_bps": plan.rate_bps,
            "burst_bytes": plan.burst_bytes,
            "overhead_bytes": plan.overhead_bytes,
            "strict_share_percent": plan.strict_share_percent,
            "classes": plan.classes.iter().map(class_json).collect::<Vec<_>>(),
        })
    };
    ports_with_queues(config).map(port).collect()
}

fn class_json(class: &EgressClass) -> Value {
    json!({
        "name": class.name,
        "rate_bps": class.rate_bps,
        "burst_bytes": class.burst_bytes,
        "limit_packets": class.limit_packets,
        "limit_bytes": class.limit_bytes,
        "aqm": class.aqm.map(|aqm| json!({
            "target_us": aqm.target_us, "interval_ms": aqm.interval_ms, "ecn": aqm.ecn,
        })),
    })
}

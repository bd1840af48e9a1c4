//! Looks after the firewall off the fast path: ends connections in idle shards, and writes what rules log.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use thalweg_base::Throttle;
use thalweg_config::{FirewallConfig, RouterConfig};
use thalweg_dataplane::firewall::{FirewallEvent, ipv4_of};
use thalweg_node::plan::{FirewallStage, RouterPlan};

/// How often one rule may log a line.
const LINE_EVERY_MS: u64 = 1_000;

/// The firewall of the plan in force, and how much each rule has logged.
pub(crate) struct FirewallWatch {
    stage: Arc<FirewallStage>,
    config: FirewallConfig,
    ports: Vec<String>,
    /// By rule.
    throttles: Vec<Throttle>,
}

impl FirewallWatch {
    /// `None` without a firewall.
    pub(crate) fn of(plan: &RouterPlan, config: &RouterConfig) -> Option<Self> {
        let (stage, settings) = (&plan.firewall()?.stage, config.firewall.as_ref()?);
        Some(Self {
            stage: Arc::clone(stage),
            config: settings.clone(),
            ports: config.ports.iter().map(|port| port.name.clone()).collect(),
            throttles: vec![Throttle::default(); settings.rule_names.len()],
        })
    }

    /// Ends what has expired and writes the log. Call it about once a second.
    pub(crate) fn look(&mut self, now_ns: u64) {
        self.stage.advance(now_ns);
        let mut last: Vec<Option<FirewallEvent>> = vec![None; self.throttles.len()];
        let throttles = &mut self.throttles;
        self.stage.hand_out_events(&mut |event| {
            let rule = usize::from(event.rule);
            if let (Some(throttle), Some(last)) = (throttles.get_mut(rule), last.get_mut(rule)) {
                throttle.note(1);
                *last = Some(event);
            }
        });
        for (throttle, event) in self.throttles.iter_mut().zip(last) {
            let Some(event) = event else { continue };
            let Some(packets) = throttle.due(now_ns / 1_000_000, LINE_EVERY_MS) else { continue };
            // What has no port comes from the router itself, or is for it.
            let port = |port: u16| self.ports.get(usize::from(port)).map_or("router", String::as_str);
            tracing::info!(
                packets,
                source = %endpoint(&event, event.source),
                destination = %endpoint(&event, event.destination),
                protocol = event.protocol,
                state = %event.state,
                "firewall: rule {} {}: {} to {}",
                self.config.rule_name(event.rule),
                event.action,
                port(event.port_in),
                port(event.port_out),
            );
        }
    }
}

fn endpoint(event: &FirewallEvent, (address, port): (u128, u16)) -> SocketAddr {
    let address = match event.is_ipv6 {
        true => IpAddr::V6(Ipv6Addr::from(address)),
        false => IpAddr::V4(ipv4_of(address)),
    };
    SocketAddr::new(address, port)
}

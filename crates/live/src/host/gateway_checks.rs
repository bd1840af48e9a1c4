//! Checks gateways: sends the requests of [`GatewayChecks`], and tells the forwarding tables what comes of them.
//!
//! A request goes straight to its gateway, whatever the routes say. Its answer comes back like any packet for the
//! router, and is counted as one.

use std::net::IpAddr;

use thalweg_dataplane::gateway_check::{CheckConfig, CheckOutput, CheckView};
use thalweg_dataplane::icmp::{Echo, echo_request};
use thalweg_wire::EtherType;
use thalweg_wire::ethernet::EthernetRepr;

use super::Host;
use crate::own_ports;

impl Host {
    /// Replaces the health checks.
    pub(crate) fn configure_checks(&mut self, checks: &[CheckConfig]) {
        let now_ns = self.parts.clock.now_ns();
        self.checks.set(checks, now_ns);
        self.work_off_checks(now_ns);
    }

    /// The health checks and their results.
    pub fn checks(&self) -> impl Iterator<Item = CheckView> + '_ {
        self.checks.view()
    }

    pub(super) fn run_checks(&mut self, now_ns: u64) {
        self.checks.handle_timer(now_ns);
        self.work_off_checks(now_ns);
    }

    /// Returns whether the packet answers a check.
    pub(super) fn is_check_answer(&mut self, packet: &[u8], now_ns: u64) -> bool {
        let is_answer = self.checks.handle_packet(packet, now_ns);
        self.work_off_checks(now_ns);
        is_answer
    }

    fn work_off_checks(&mut self, now_ns: u64) {
        while let Some(output) = self.checks.poll_output() {
            match output {
                // A request that cannot leave has no answer, which is the truth about its gateway.
                CheckOutput::Send { check, echo } => _ = self.send_check(check, echo, now_ns),
                CheckOutput::Changed { check, has_failed } => {
                    let CheckConfig { port, gateway, target, .. } = check;
                    self.parts.tables.set_check((port, gateway), has_failed);
                    let name = self.parts.counters.name(port);
                    match has_failed {
                        true => tracing::warn!(
                            port = name, %gateway, %target,
                            "the gateway fails its check: routes with another path leave it"
                        ),
                        false => {
                            tracing::info!(port = name, %gateway, %target, "the gateway may be used again");
                        }
                    }
                }
            }
        }
    }

    /// `None` if the gateway's MAC address is not known, its port is down, or the router has no address to ask from.
    fn send_check(&self, check: CheckConfig, echo: Echo, now_ns: u64) -> Option<()> {
        let CheckConfig { port, gateway, target, .. } = check;
        let identity = self.neighbors.port(port)?;
        let source = match target {
            IpAddr::V6(target) if target.is_unicast_link_local() => identity.link_local()?.into(),
            _ => identity.source_beyond(target)?,
        };
        let known = self.neighbors.lookup(port, gateway);
        let destination = known.or_else(|| self.parts.tables.read().port(port)?.default_mac)?;
        let packet = echo_request(source, target, echo)?;
        let ether_type = EtherType::of_packet(&packet);
        let header = EthernetRepr { destination, source: identity.mac, ether_type };
        let frame = [&header.encode()[..], &packet].concat();
        if let Some(nat) = &self.parts.nat {
            // Before it leaves, so that the answer is not taken for a host's.
            own_ports::claim(nat, &frame, now_ns);
        }
        self.parts.counters.add_own(frame.len() as u64);
        self.send_own(port, &frame, now_ns);
        Some(())
    }
}

//! What ports, tables, checks and receivers of flow records add to the status: what is wrong, in words.

use thalweg_config::RouterConfig;
use thalweg_dataplane::gateway_check::CheckState;
use thalweg_flow::alarm::{Alarm, AlarmReport};
use thalweg_node::control::{GatewayCheckView, NatUse, PacketStatus, PortView, UpDown};
use thalweg_ports::live::link::Links;
use thalweg_probe::OutletStatus;

use super::PacketSide;
use crate::flows::FlowSide;

impl PacketSide {
    /// What it adds to [`Request::Status`](thalweg_node::control::Request::Status).
    pub(crate) fn status(&self) -> PacketStatus {
        let ports = self.ports();
        let up = ports.iter().filter(|port| port.up).count() as u64;
        let config = self.router.read().config();
        let mut problems: Vec<String> =
            ports.iter().filter(|port| !port.up).map(|port| why_down(&config, port)).collect();
        let checks = self.gateway_checks().unwrap_or_default();
        let failed = checks.iter().filter(|check| check.state == CheckState::Failed.name());
        problems.extend(failed.map(|GatewayCheckView { port, gateway, target, .. }| {
            format!("gateway {gateway} of port {port} fails its check: {target} does not answer")
        }));
        let standby = self.router.read().standby().filter(|view| view.state.is_problem());
        problems.extend(standby.map(|view| format!("standby: {}", view.state.means())));
        if self.has_ended() {
            problems.push("the router stopped forwarding packets: see the log".to_owned());
        }
        let nat = self.nat_use();
        problems.extend(nat.and_then(|nat| {
            nearly_full("NAT's table", (nat.sessions, nat.sessions_max), "sessions", "[nat] sessions_max")
        }));
        problems.extend(self.firewall_use().and_then(|used| {
            nearly_full("the firewall's table", used, "connections", "[firewall] states_max")
        }));
        let (outlets, _) = self.flows.as_ref().map(FlowSide::outlets).unwrap_or_default();
        problems.extend(outlets.iter().filter_map(not_reached));
        problems.extend(self.flows.as_ref().map(FlowSide::alarms).iter().flat_map(active_alarms));
        PacketStatus { ports: UpDown { up, down: ports.len() as u64 - up }, nat, problems }
    }

    fn nat_use(&self) -> Option<NatUse> {
        let sessions_max = self.nat_sessions_max();
        let router = self.router.read();
        router.nat().map(|nat| NatUse { sessions: nat.counters().sessions_active, sessions_max })
    }

    /// The firewall's connections, and how many fit.
    fn firewall_use(&self) -> Option<(u64, u64)> {
        let used = self.with_firewall(|config, firewall| {
            Ok((firewall.stage.counters().states_active, config.firewall.states_max.into()))
        });
        used.ok()
    }
}

/// A problem if nine tenths of a table are used.
fn nearly_full(table: &str, (used, most): (u64, u64), of: &str, limit: &str) -> Option<String> {
    (used * 10 >= most * 9).then(|| format!("{table} is nearly full: {used} of {most} {of} ({limit})"))
}

fn not_reached(outlet: &OutletStatus) -> Option<String> {
    let error = outlet.error.as_ref()?;
    let what = if outlet.sflow { "samples" } else { "flow records" };
    Some(format!("{what} do not reach {} ({} lost so far): {error}", outlet.to, outlet.lost_in_all()))
}

/// A sentence for each rule with active alarms: there may be a thousand of one.
fn active_alarms(report: &AlarmReport) -> Vec<String> {
    let rules = report.rules.iter().filter(|rule| rule.active > 0);
    let sentence = |rule: &str| {
        let mut alarms = report.active.iter().filter(|alarm| alarm.rule == rule);
        let Alarm { key, of, measure, since, peak, .. } = alarms.next()?;
        let more = match alarms.count() {
            0 => String::new(),
            others => format!("; {others} more"),
        };
        Some(format!("alarm {rule} is active: {key} {of} since {since}, at most {peak} {measure}{more}"))
    };
    rules.filter_map(|rule| sentence(&rule.rule)).collect()
}

fn why_down(config: &RouterConfig, port: &PortView) -> String {
    let interface =
        config.ports.iter().find(|one| one.name == port.name).and_then(|one| one.interface.as_ref());
    let is_of_system = interface.is_some_and(|interface| interface.driver.takes_interface());
    let is_gone = is_of_system && Links::open().is_ok_and(|links| links.index(&port.interface).is_err());
    let what = if is_gone { "does not exist" } else { "has no link" };
    format!("port {} is down: interface {} {what}", port.name, port.interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_flow::alarm::AlarmRuleCounters;

    #[test]
    fn a_table_is_nearly_full_from_nine_tenths_on() {
        let said = |used, most| nearly_full("NAT's table", (used, most), "sessions", "[nat] sessions_max");
        assert_eq!(said(89, 100), None);
        assert_eq!(
            said(90, 100).as_deref(),
            Some("NAT's table is nearly full: 90 of 100 sessions ([nat] sessions_max)")
        );
    }

    #[test]
    fn each_rule_with_active_alarms_has_one_sentence() {
        let alarm = |rule: &str, of: &str| Alarm {
            rule: rule.to_owned(),
            key: "dst".to_owned(),
            of: of.to_owned(),
            measure: "packets-per-second".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
            peak: 9,
        };
        let rule = |rule: &str, active: usize| AlarmRuleCounters {
            rule: rule.to_owned(),
            active,
            ..AlarmRuleCounters::default()
        };
        let report = AlarmReport {
            active: vec![alarm("one", "192.0.2.1"), alarm("two", "192.0.2.2"), alarm("one", "192.0.2.3")],
            rules: vec![rule("none", 0), rule("one", 2), rule("two", 1)],
            ..AlarmReport::default()
        };
        let since = "since 2026-01-01T00:00:00Z, at most 9 packets-per-second";
        let expected = [
            format!("alarm one is active: dst 192.0.2.1 {since}; 1 more"),
            format!("alarm two is active: dst 192.0.2.2 {since}"),
        ];
        assert_eq!(active_alarms(&report), expected);
    }

    #[test]
    fn samples_are_no_records() {
        let outlet = OutletStatus {
            to: "there".to_owned(),
            lost: [("ended".to_owned(), 2)].into(),
            ..OutletStatus::default()
        };
        assert_eq!(not_reached(&outlet), None, "it takes them");
        let failing = OutletStatus { error: Some("no route".to_owned()), ..outlet };
        assert_eq!(
            not_reached(&failing).as_deref(),
            Some("flow records do not reach there (2 lost so far): no route")
        );
        let of_samples = OutletStatus { sflow: true, ..failing };
        assert_eq!(
            not_reached(&of_samples).as_deref(),
            Some("samples do not reach there (2 lost so far): no route")
        );
    }
}

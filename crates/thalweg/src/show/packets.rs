//! The state of the packet path, as tables.

use std::collections::BTreeMap;

use thalweg_node::control::{
    AclRuleView, CountersView, GatewayCheckView, NeighborView, PacketRequest, PolicerView, PortRates,
    PortView, QueueRates, QueueView, Request, StandbyView, VirtualRouterView,
};
use thalweg_text::Table;
use thalweg_text::units::{bit_rate, bytes, count, duration, exact_bit_rate, packet_rate};

use super::{Does, Print, Show};
use crate::client::parse_all;
use crate::tables::{remark, table, width};

pub(super) const SHOW: &[Show] = &[
    Show::asks(
        "ports",
        "Ports: interface, link, driver, traffic and rates",
        Request::Packets(PacketRequest::Ports),
        Print::Page(|items| Ok(ports(&parse_all(items)?))),
    ),
    Show {
        name: "neighbors",
        aliases: &["arp"],
        help: "Neighbors on the ports' links (ARP, ND)",
        does: Does::Asks(
            Request::Packets(PacketRequest::Neighbors),
            Print::Page(|items| Ok(neighbors(&parse_all(items)?))),
        ),
    },
    Show::asks(
        "checks",
        "Health checks of gateways: state, answers, failures, round-trip time",
        Request::Packets(PacketRequest::GatewayChecks),
        Print::Page(|items| Ok(gateway_checks(&parse_all(items)?))),
    ),
    Show::asks(
        "vrrp",
        "Virtual routers: state, addresses, the Active router, advertisements",
        Request::Packets(PacketRequest::VirtualRouters),
        Print::Page(|items| Ok(virtual_routers(&parse_all(items)?))),
    ),
    Show::asks(
        "standby",
        "Sessions and states at the other router: who has what, who is behind, datagrams",
        Request::Packets(PacketRequest::Standby),
        Print::Page(|items| Ok(standby(&parse_all(items)?))),
    ),
    Show::asks(
        "counters",
        "Packets received, sent, delivered to the router and dropped by reason; load of each worker",
        Request::Packets(PacketRequest::Counters),
        Print::Page(|items| Ok(parse_all(items)?.iter().map(counters).collect())),
    ),
    Show::asks(
        "acl",
        "Access list rules with the packets that matched each",
        Request::Packets(PacketRequest::AccessLists),
        Print::Page(|items| Ok(access_lists(&parse_all(items)?))),
    ),
    Show::asks(
        "policers",
        "Policers by class, with green, yellow and red packets",
        Request::Packets(PacketRequest::Policers),
        Print::Page(|items| Ok(policers(&parse_all(items)?))),
    ),
    Show::asks(
        "queues",
        "Queues by port and class: sent, dropped, ECN-marked, delay",
        Request::Packets(PacketRequest::Queues),
        Print::Page(|items| Ok(queues(&parse_all(items)?))),
    ),
];

fn ports(ports: &[PortView]) -> String {
    let mut text = port_table(ports).render(width());
    for port in ports {
        if port.queues.len() > 1 {
            let queues: Vec<String> = port.queues.iter().map(|queue| count(queue.received)).collect();
            text += &remark(&format!("{}: in by queue: {}", port.name, queues.join(", ")));
        }
        if port.mss_lowered > 0 {
            text += &remark(&format!("{}: MSS lowered in {} SYNs", port.name, count(port.mss_lowered)));
        }
        if let Some(why) = &port.why_not_better {
            text += &remark(&format!("{}: {}, because {why}", port.name, port.mode));
        }
    }
    text
}

fn port_table(ports: &[PortView]) -> Table {
    let rate = |port: &PortView, of: fn(&PortRates) -> u64, form: fn(f64) -> String| {
        port.rates.as_ref().map_or_else(|| "-".to_owned(), |rates| form(of(rates) as f64))
    };
    let least_first = ["MAC", "MTU", "Offloaded", "Queued", "Interface", "Driver"];
    let then = ["Bytes in", "Bytes out", "In pps", "Out pps", "Failed", "Missed"];
    Table::of("", ports)
        .words("Port", |port| port.name.clone())
        .words("Interface", |port| port.interface.clone())
        .words("Link", |port| if port.up { "up" } else { "down" }.to_owned())
        .words("Driver", |port| port.mode.clone())
        .words("MAC", |port| port.mac.clone())
        .number("MTU", |port| count(port.mtu.into()))
        .number("Packets in", |port| count(port.received))
        .number("Bytes in", |port| bytes(port.received_bytes))
        .number("In pps", |port| rate(port, |rates| rates.packets_received_per_s, packet_rate))
        .number("In bit/s", |port| rate(port, |rates| rates.bits_received_per_s, bit_rate))
        .number("Packets out", |port| count(port.sent))
        .number("Bytes out", |port| bytes(port.sent_bytes))
        .number("Out pps", |port| rate(port, |rates| rates.packets_sent_per_s, packet_rate))
        .number("Out bit/s", |port| rate(port, |rates| rates.bits_sent_per_s, bit_rate))
        .number("Missed", |port| count(port.missed))
        .number("Failed", |port| count(port.failed))
        .number("Queued", |port| count(port.queued))
        .number("Offloaded", |port| count(port.offloaded))
        .optional(&[least_first, then].concat())
        .table()
}

fn counters(view: &CountersView) -> String {
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    let mut rows = vec![
        vec!["received".to_owned(), count(view.received)],
        vec!["  of these the router's own".to_owned(), count(view.own)],
        vec!["  of these forwarded by the kernel".to_owned(), count(view.offloaded)],
        vec!["sent".to_owned(), count(view.sent)],
        vec!["wait in queues".to_owned(), count(view.queued)],
        vec!["to the router itself".to_owned(), count(sum(&view.to_host))],
    ];
    let by_reason = |counts: &BTreeMap<String, u64>| {
        // The most frequent first.
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        counts.into_iter().map(|(name, n)| vec![format!("  {name}"), count(*n)]).collect::<Vec<_>>()
    };
    rows.extend(by_reason(&view.to_host));
    rows.push(vec!["dropped".to_owned(), count(sum(&view.dropped))]);
    rows.extend(by_reason(&view.dropped));
    rows.push(vec!["wait for a neighbor".to_owned(), count(view.waiting_for_neighbor)]);
    rows.push(vec!["ICMP errors written".to_owned(), count(view.icmp_errors)]);
    rows.push(vec!["ICMP errors withheld".to_owned(), count(view.icmp_errors_withheld)]);
    let mut text = table(&["", "Packets"], &[1], rows);
    if !view.workers.is_empty() {
        text += &Table::of("", &view.workers)
            .words("Thread", |worker| worker.name.clone())
            .number("Packets", |worker| worker.packets.map_or("shared".to_owned(), count))
            .number("Per chunk", |worker| {
                let both = worker.packets.zip(worker.chunks).filter(|(_, chunks)| *chunks > 0);
                both.map_or(String::new(), |(packets, chunks)| {
                    format!("{:.1}", packets as f64 / chunks as f64)
                })
            })
            .number("Polled", |worker| worker.polled.map_or(String::new(), count))
            .number("CPU", |worker| format!("{:.2} s", worker.cpu_ms as f64 / 1000.0))
            .words("Priority", |worker| worker.scheduling.clone().unwrap_or_default())
            .words("Cores", |worker| worker.cores.clone().unwrap_or_default())
            .table()
            .render(width());
    }
    text
}

fn neighbors(neighbors: &[NeighborView]) -> String {
    Table::of("", neighbors)
        .words("Port", |each| each.port.clone())
        .words("Address", |each| each.address.clone())
        .words("MAC", |each| each.mac.clone().unwrap_or_default())
        .words("State", |each| each.state.clone())
        .words("Source", |each| each.source.clone().unwrap_or_default())
        .number("Waiting", |each| count(each.waiting))
        .table()
        .render(width())
}

fn micros(us: f64) -> String {
    duration((us * 1000.0) as u64)
}

fn gateway_checks(checks: &[GatewayCheckView]) -> String {
    if checks.is_empty() {
        return "no gateway has a health check: `check` of [[routes]] gives it one\n".to_owned();
    }
    Table::of("", checks)
        .words("Port", |each| each.port.clone())
        .words("Gateway", |each| each.gateway.clone())
        .words("Target", |each| each.target.clone())
        .words("State", |each| each.state.clone())
        .number("Requests", |each| count(each.requests))
        .number("Answers", |each| count(each.answers))
        .number("Failures", |each| count(each.failures))
        .number("RTT", |each| each.rtt_us.map_or("-".to_owned(), micros))
        .optional(&["Requests", "Answers", "RTT"])
        .table()
        .render(width())
}

fn virtual_routers(routers: &[VirtualRouterView]) -> String {
    if routers.is_empty() {
        return "no virtual router: [[vrrp]] makes one\n".to_owned();
    }
    let active = |each: &VirtualRouterView| match (&each.active, each.active_priority) {
        (Some(address), Some(priority)) => format!("{address} ({priority})"),
        _ if each.state == "active" => "this router".to_owned(),
        _ => "-".to_owned(),
    };
    Table::of("", routers)
        .words("Port", |each| each.port.clone())
        .number("ID", |each| each.id.to_string())
        .words("Addresses", |each| each.addresses.join(", "))
        .words("State", |each| each.state.clone())
        .number("Priority", |each| each.priority.to_string())
        .words("Active", active)
        .number("Sent", |each| count(each.sent))
        .number("Received", |each| count(each.received))
        .number("Ignored", |each| count(each.ignored.values().sum()))
        .number("Became active", |each| count(each.became_active))
        .optional(&["Became active", "Ignored", "Received", "Sent"])
        .table()
        .render(width())
}

fn standby(views: &[StandbyView]) -> String {
    let Some(view) = views.first() else {
        return "no standby is configured: add a section [standby] with `listen`, `peer` and `key`\n"
            .to_owned();
    };
    let behind = match (view.state.as_str(), view.behind) {
        ("covered" | "ready", 0) => "; in step".to_owned(),
        (_, 0) => String::new(),
        (_, parts) => format!("; behind by {} parts", count(parts.into())),
    };
    let rules =
        if view.same_rules { "" } else { "\nThe rules of the firewall differ: states are judged again" };
    let rows = [
        ("NAT sessions", view.sessions, view.peer_sessions),
        ("firewall states", view.states, view.peer_states),
    ];
    let tables = Table::of("", rows)
        .words("Table", |(name, ..)| name.to_owned())
        .number("Here", |(_, here, _)| count(here))
        .number("At the other router", |(.., there)| count(there));
    let counters = Table::of("", &view.counters)
        .words("Counter", |(name, _)| name.replace('_', " "))
        .number("Count", |(_, number)| count(*number));
    let (tables, counters) = (tables.table().render(width()), counters.table().render(width()));
    format!("{}: {}{behind}{rules}\n\n{tables}\n{counters}", view.state, view.means)
}

fn queues(queues: &[QueueView]) -> String {
    if queues.is_empty() {
        return "no port has a queue: [[qos.egress]] gives it one\n".to_owned();
    }
    let rate = |queue: &QueueView, of: fn(&QueueRates) -> u64, form: fn(f64) -> String| {
        queue.rates.as_ref().map_or_else(|| "-".to_owned(), |rates| form(of(rates) as f64))
    };
    Table::of("", queues)
        .words("Port", |each| each.port.clone())
        .words("Class", |each| each.class.clone())
        .number("Packets sent", |each| count(each.sent))
        .number("Bytes sent", |each| bytes(each.sent_bytes))
        .number("pps now", |each| rate(each, |rates| rates.packets_per_s, packet_rate))
        .number("bit/s now", |each| rate(each, |rates| rates.bits_per_s, bit_rate))
        .number("Dropped full", |each| count(each.dropped_full))
        .number("Dropped CoDel", |each| count(each.dropped_managed))
        .number("ECN marks", |each| count(each.marked))
        .number("Waiting", |each| count(each.waiting))
        .number("Wait p50", |each| micros(each.sojourn_p50_us))
        .number("Wait p99", |each| micros(each.sojourn_p99_us))
        .optional(&["ECN marks", "Wait p50", "Bytes sent", "Waiting", "Dropped CoDel", "pps now"])
        .table()
        .render(width())
}

/// The rules of access lists, with their matches.
fn access_lists(rules: &[AclRuleView]) -> String {
    if rules.is_empty() {
        return "no access list: [[acl]] makes one\n".to_owned();
    }
    let bound = |rule: &AclRuleView| {
        let ports = |ports: &[String], way: &str| {
            ports.iter().map(|port| format!("{way} {port}")).collect::<Vec<_>>()
        };
        [ports(&rule.ports_in, "into"), ports(&rule.ports_out, "out of")].concat().join(", ")
    };
    Table::of("", rules)
        .words("List", |rule| rule.list.clone())
        .words("Rule", |rule| rule.rule.clone())
        .words("Action", |rule| rule.action.clone())
        .number("Packets", |rule| count(rule.packets))
        .number("Bytes", |rule| bytes(rule.bytes))
        .words("Bound to ports", |rule| match bound(rule) {
            bound if bound.is_empty() => "no port".to_owned(),
            bound => bound,
        })
        .optional(&["Bound to ports", "Bytes"])
        .table()
        .render(width())
}

/// Policers, with the colors they assigned.
fn policers(policers: &[PolicerView]) -> String {
    if policers.is_empty() {
        return "no class has a policer: `policer` of [[qos.classes]] gives it one\n".to_owned();
    }
    Table::of("", policers)
        .words("Class", |each| each.class.clone())
        .number("Committed", |each| exact_bit_rate(each.committed_bps))
        .number("Peak", |each| each.peak_bps.map_or_else(|| "-".to_owned(), exact_bit_rate))
        .number("Green", |each| count(each.green))
        .number("Yellow", |each| count(each.yellow))
        .number("Red", |each| count(each.red))
        .words("Red packets", |each| each.red_action.clone())
        .optional(&["Peak", "Committed"])
        .table()
        .render(width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_fit_every_terminal_with_all_their_digits() {
        let rates = PortRates {
            packets_received_per_s: 1_234_567,
            bits_sent_per_s: 987_654_321,
            ..PortRates::default()
        };
        let port = |name: &str, received| PortView {
            name: name.to_owned(),
            interface: "enp129s0f0np0".to_owned(),
            mode: "AF_XDP, zero copy, 4 queues".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: 9000,
            up: true,
            received,
            received_bytes: 12_345_678_901,
            sent: 2_800_899,
            missed: 1_000_001,
            rates: Some(rates),
            ..PortView::default()
        };
        let table = port_table(&[port("wan", 98_765_432_101), port("office-lan.120", 7)]);
        for width in [60, 80, 100, 200] {
            let text = table.render(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for whole in ["office-lan.120", "98,765,432,101", "2,800,899", "988 Mbit/s"] {
                assert!(text.contains(whole), "{width}: {whole} is not in\n{text}");
            }
            // Numbers stand to the right, below the ends of their headings.
            let lines: Vec<&str> = text.lines().collect();
            let ends =
                |line: &str, what: &str| line.find(what).map(|at| line[..at].chars().count() + what.len());
            let row =
                |name: &str| lines.iter().find(|line| line.starts_with(name)).copied().unwrap_or_default();
            if !text.contains("Port            ") || text.contains('─') {
                assert_eq!(ends(row("wan"), "2,800,899"), ends(row("office-lan.120"), "2,800,899"), "{text}");
            }
        }
        assert_eq!(table.render(None).lines().count(), 4, "a pipe gets a line for each row");
    }
}

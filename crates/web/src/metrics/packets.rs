//! Samples about packets: ports, drops, queues, NAT, the firewall.

use std::collections::BTreeMap;

use thalweg_base::DropReason;
use thalweg_node::control::{
    CountersView, FirewallCountersView, ForwardingView, GatewayCheckView, NatCountersView, PortView,
    QueueView, SojournView, StandbyView, VirtualRouterView,
};

use super::{Each, Views, seconds};
use crate::exposition::{Exposition, Family};

/// NAT's counters of dropped packets, by the names of `show nat --counters`.
const NAT_DROPS: [&str; 10] = [
    "filtered",
    "host_limit",
    "host_rate",
    "icmp_errors_rejected",
    "no_mapping",
    "peer_taken",
    "port_limit",
    "ports_exhausted",
    "spoofed",
    "table_full",
];

/// The firewall's counters of dropped packets, by the names of `show firewall --counters`.
const FIREWALL_DROPS: [&str; 6] = ["denied", "host_limit", "invalid", "limited", "not_asked", "table_full"];

pub(super) fn write(text: &mut Exposition, views: &Views) {
    if let Some(ports) = &views.ports {
        write_ports(text, ports);
    }
    if let Some(counters) = &views.counters {
        write_counters(text, counters);
    }
    if let Some(checks) = &views.checks {
        write_checks(text, checks);
    }
    if let Some(routers) = &views.virtual_routers {
        write_virtual_routers(text, routers);
    }
    if let Some(standby) = &views.standby {
        write_standby(text, standby);
    }
    if let Some(queues) = &views.queues {
        write_queues(text, queues);
    }
    write_rules(text, views);
    if let Some(nat) = &views.nat {
        write_nat(text, nat);
    }
    if let Some(firewall) = &views.firewall {
        write_firewall(text, firewall);
    }
    if let Some(forwarding) = &views.forwarding {
        write_forwarding(text, forwarding);
    }
}

fn write_ports(text: &mut Exposition, ports: &[PortView]) {
    let counters: [Each<PortView>; 9] = [
        ("port_received_packets", "Frames received.", |port| port.received),
        ("port_received_bytes", "Bytes received, from the Ethernet header on.", |port| port.received_bytes),
        ("port_sent_packets", "Frames sent.", |port| port.sent),
        ("port_sent_bytes", "Bytes sent, from the Ethernet header on.", |port| port.sent_bytes),
        ("port_missed_packets", "Frames that arrived and were lost for want of room.", |port| port.missed),
        ("port_foreign_packets", "Frames addressed to another MAC address.", |port| port.foreign),
        ("port_failed_packets", "Frames that the interface refused.", |port| port.failed),
        ("port_offloaded_packets", "Received frames that the kernel forwarded by itself.", |port| {
            port.offloaded
        }),
        (
            "port_mss_lowered_packets",
            "SYNs whose maximum segment size was lowered to the port's limit.",
            |port| port.mss_lowered,
        ),
    ];
    for (name, help, of) in counters {
        let mut family = text.counter(name, help);
        ports.iter().for_each(|port| family.sample(&[("port", &port.name)], of(port)));
    }
    let mut up = text.gauge("port_up", "Whether the link is up.");
    ports.iter().for_each(|port| up.sample(&[("port", &port.name)], port.up));
    let mut queued = text.gauge("port_queued_packets", "Frames that wait in the queues of the port.");
    ports.iter().for_each(|port| queued.sample(&[("port", &port.name)], port.queued));
    let mut info = text.gauge("port_info", "1, with the interface and the driver of the port.");
    for port in ports {
        info.sample(&[("port", &port.name), ("interface", &port.interface), ("driver", &port.mode)], 1u64);
    }
    let mut residence = text.histogram(
        "residence_seconds",
        "How long packets stayed, from the receive ring to the queue of the port by which they left: a sample.",
    );
    for port in ports {
        write_times(&mut residence, &[("port", &port.name)], &port.residence);
    }
}

fn write_counters(text: &mut Exposition, view: &CountersView) {
    text.counter("received_packets", "Packets that arrived, or that the router made.")
        .sample(&[], view.received);
    text.counter("sent_packets", "Packets sent.").sample(&[], view.sent);
    text.counter("own_packets", "Packets that the router made.").sample(&[], view.own);
    text.gauge("waiting_for_neighbor_packets", "Packets that wait for a MAC address.")
        .sample(&[], view.waiting_for_neighbor);
    text.counter("icmp_errors", "ICMP errors sent.").sample(&[], view.icmp_errors);
    text.counter("icmp_errors_withheld", "ICMP errors that limits or rules suppressed.")
        .sample(&[], view.icmp_errors_withheld);
    let by_reason: [(&str, &str, &BTreeMap<String, u64>); 2] = [
        ("dropped_packets", "Packets dropped, each for one reason.", &view.dropped),
        ("to_host_packets", "Packets handed to the router itself.", &view.to_host),
    ];
    for (name, help, counts) in by_reason {
        let mut family = text.counter(name, help);
        for reason in DropReason::ALL {
            let count = counts.get(reason.name()).copied().unwrap_or(0);
            family.sample(&[("reason", reason.name())], count);
        }
    }
    let mut cpu = text.counter("worker_cpu_seconds", "Processor time of a thread that works on packets.");
    for worker in &view.workers {
        cpu.sample(&[("worker", &worker.name)], seconds(worker.cpu_ms));
    }
    let mut packets = text.counter("worker_packets", "Packets that a thread took through all stages.");
    for worker in &view.workers {
        packets.sample(&[("worker", &worker.name)], worker.packets.unwrap_or(0));
    }
}

fn write_checks(text: &mut Exposition, checks: &[GatewayCheckView]) {
    fn labels(check: &GatewayCheckView) -> [(&str, &str); 2] {
        [("port", &check.port), ("gateway", &check.gateway)]
    }
    let mut up = text.gauge("gateway_check_up", "Whether the gateway does not fail its health check.");
    for check in checks {
        up.sample(&labels(check), check.state != "failed");
    }
    let counters: [Each<GatewayCheckView>; 3] = [
        ("gateway_check_requests", "Echo requests of the check.", |check| check.requests),
        ("gateway_check_answers", "Their answers that came in time.", |check| check.answers),
        ("gateway_check_failures", "How often the check began to fail.", |check| check.failures),
    ];
    for (name, help, of) in counters {
        let mut family = text.counter(name, help);
        checks.iter().for_each(|check| family.sample(&labels(check), of(check)));
    }
}

fn write_virtual_routers(text: &mut Exposition, routers: &[VirtualRouterView]) {
    let ids: Vec<String> = routers.iter().map(|each| each.id.to_string()).collect();
    let labels = |place: usize| -> [(&str, &str); 3] {
        let each = &routers[place];
        let is_ipv6 = each.addresses.iter().any(|address| address.contains(':'));
        [("port", &each.port), ("id", &ids[place]), ("family", if is_ipv6 { "ipv6" } else { "ipv4" })]
    };
    let all = || routers.iter().enumerate();
    let mut active =
        text.gauge("vrrp_active", "Whether this router is the Active one of the virtual router.");
    all().for_each(|(place, each)| active.sample(&labels(place), each.state == "active"));
    let counters: [Each<VirtualRouterView>; 3] = [
        ("vrrp_sent_packets", "Advertisements sent.", |each| each.sent),
        ("vrrp_received_packets", "Valid advertisements of others.", |each| each.received),
        ("vrrp_became_active", "How often this router became Active.", |each| each.became_active),
    ];
    for (name, help, of) in counters {
        let mut family = text.counter(name, help);
        all().for_each(|(place, each)| family.sample(&labels(place), of(each)));
    }
}

fn write_standby(text: &mut Exposition, view: &StandbyView) {
    let is = |states: &[&str]| states.contains(&view.state.as_str());
    text.gauge("standby_ready", "Whether the standby had everything of the active router.")
        .sample(&[], is(&["covered", "ready"]));
    text.gauge("standby_behind_parts", "Parts of tables that the standby is known to lack.")
        .sample(&[], u64::from(view.behind));
    let mut entries = text
        .gauge("standby_entries", "NAT sessions and states of the firewall, here and at the other router.");
    let all = [
        ("sessions", "here", view.sessions),
        ("sessions", "peer", view.peer_sessions),
        ("states", "here", view.states),
        ("states", "peer", view.peer_states),
    ];
    for (table, router, count) in all {
        entries.sample(&[("table", table), ("router", router)], count);
    }
    let mut events =
        text.counter("standby_events", "Datagrams, changes and entries, by what became of them.");
    view.counters.iter().for_each(|(kind, count)| events.sample(&[("kind", kind)], *count));
}

fn write_queues(text: &mut Exposition, queues: &[QueueView]) {
    let counters: [Each<QueueView>; 4] = [
        ("egress_enqueued_packets", "Packets that entered the queue of a class.", |queue| queue.enqueued),
        ("egress_sent_packets", "Packets sent from the queue of a class.", |queue| queue.sent),
        ("egress_sent_bytes", "Their bytes.", |queue| queue.sent_bytes),
        ("egress_marked_packets", "Packets marked (ECN) by active queue management.", |queue| queue.marked),
    ];
    for (name, help, of) in counters {
        let mut family = text.counter(name, help);
        for queue in queues {
            family.sample(&labels(queue), of(queue));
        }
    }
    let mut dropped = text.counter("egress_dropped_packets", "Packets that the queue of a class dropped.");
    for queue in queues {
        let [port, class] = labels(queue);
        dropped.sample(&[port, class, ("cause", "full")], queue.dropped_full);
        dropped.sample(&[port, class, ("cause", "managed")], queue.dropped_managed);
    }
    let mut waiting = text.gauge("egress_waiting_packets", "Packets that wait in the queue of a class.");
    for queue in queues {
        waiting.sample(&labels(queue), queue.waiting);
    }
    let mut sojourn =
        text.histogram("egress_sojourn_seconds", "How long packets waited in the queue of a class.");
    for queue in queues {
        write_times(&mut sojourn, &labels(queue), &queue.sojourn);
    }
}

fn write_times(family: &mut Family<'_>, labels: &[(&str, &str)], times: &SojournView) {
    let bounds = SojournView::BOUNDS_US.iter().map(|bound| f64::from(*bound) / 1e6);
    family.buckets(labels, bounds.zip(times.within.iter().copied()), (times.packets, times.sum_us / 1e6));
}

fn labels(queue: &QueueView) -> [(&str, &str); 2] {
    [("port", &queue.port), ("class", &queue.class)]
}

fn write_rules(text: &mut Exposition, views: &Views) {
    let (policers, acls) = (views.policers.iter().flatten(), views.acls.iter().flatten());
    if views.policers.is_some() {
        let mut family = text.counter("policed_packets", "Packets that a class's policer marked, by color.");
        for policer in policers {
            for (color, number) in
                [("green", policer.green), ("yellow", policer.yellow), ("red", policer.red)]
            {
                family.sample(&[("class", &policer.class), ("color", color)], number);
            }
        }
    }
    if views.acls.is_some() {
        let mut family =
            text.counter("acl_matched_packets", "Packets that matched a rule of an access list.");
        for rule in acls {
            family.sample(
                &[("list", &rule.list), ("rule", &rule.rule), ("action", &rule.action)],
                rule.packets,
            );
        }
    }
}

fn write_nat(text: &mut Exposition, nat: &NatCountersView) {
    let counter = |name: &str| nat.counters.get(name).copied().unwrap_or(0);
    text.counter("nat_sessions_created", "NAT sessions made.").sample(&[], counter("sessions_created"));
    text.counter("nat_sessions_expired", "NAT sessions that expired.")
        .sample(&[], counter("sessions_expired"));
    let mut translated = text.counter("nat_translated_packets", "Packets translated.");
    for direction in ["out", "in"] {
        translated.sample(&[("direction", direction)], counter(&format!("translated_{direction}")));
    }
    let mut dropped = text.counter("nat_dropped_packets", "Packets that NAT dropped.");
    for reason in NAT_DROPS {
        dropped.sample(&[("reason", reason)], counter(reason));
    }
    let mut helped =
        text.counter("nat_helper_messages", "Messages of FTP, SIP and PPTP, by what became of them.");
    for (result, name) in [
        ("rewritten", "helped"),
        ("unread", "help_unread"),
        ("refused", "help_refused"),
        ("unexpected", "help_unexpected"),
    ] {
        helped.sample(&[("result", result)], counter(name));
    }
    let mut ports = text.gauge("nat_pool_ports", "Public ports of a pool, of each protocol.");
    nat.pools.iter().for_each(|pool| ports.sample(&[("pool", &pool.name)], pool.ports));
    let mut used = text.gauge("nat_pool_used_ports", "Those in use, by protocol.");
    for pool in &nat.pools {
        for (protocol, number) in [("tcp", pool.tcp), ("udp", pool.udp), ("icmp", pool.icmp)] {
            used.sample(&[("pool", &pool.name), ("protocol", protocol)], number);
        }
    }
    let mut refused = text.counter("nat_pool_refused_sessions", "Sessions refused to hosts of a pool.");
    nat.pools.iter().for_each(|pool| refused.sample(&[("pool", &pool.name)], pool.refused));
}

fn write_firewall(text: &mut Exposition, firewall: &FirewallCountersView) {
    let counter = |name: &str| firewall.counters.get(name).copied().unwrap_or(0);
    text.gauge("firewall_states", "Connections of the firewall.").sample(&[], counter("states_active"));
    text.gauge("firewall_states_max", "Connections that fit.").sample(&[], firewall.states_max);
    text.counter("firewall_states_created", "Connections begun.").sample(&[], counter("states_created"));
    text.counter("firewall_states_expired", "Connections that ran out.")
        .sample(&[], counter("states_expired"));
    let mut dropped = text.counter("firewall_dropped_packets", "Packets that the firewall dropped.");
    for reason in FIREWALL_DROPS {
        dropped.sample(&[("reason", reason)], counter(reason));
    }
}

fn write_forwarding(text: &mut Exposition, view: &ForwardingView) {
    let mut prefixes = text.gauge("fib_prefixes", "BGP prefixes installed.");
    prefixes.sample(&[("family", "ipv4")], view.prefixes.ipv4);
    prefixes.sample(&[("family", "ipv6")], view.prefixes.ipv6);
    text.gauge("fib_saved_prefixes", "Of these, those of a saved table that BGP has not repeated yet.")
        .sample(&[], view.saved_prefixes);
    text.gauge("fib_unresolved_prefixes", "Prefixes not installed because their next hop is unresolved.")
        .sample(&[], view.unresolved_prefixes);
    text.counter("fib_changes", "Changes of best routes received.").sample(&[], view.changes);
    text.counter("fib_dropped_changes", "Changes dropped because too many waited; scans follow.")
        .sample(&[], view.dropped);
    if let Some(kernel) = &view.kernel {
        text.counter("kernel_refused_changes", "Changes of routes that the kernel refused.")
            .sample(&[], kernel.failed);
    }
}

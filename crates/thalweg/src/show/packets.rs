//! What a router on live interfaces tells of itself, as tables.

use thalweg_node::control::{ArpView, CountersView, PortView, QueueView, WorkerView};

use crate::tables::{byte_size, count, table};

pub(super) fn ports(ports: &[PortView]) -> String {
    let rows = ports.iter().map(|port| {
        vec![
            port.name.clone(),
            port.interface.clone(),
            port.mode.clone(),
            port.mac.clone(),
            port.mtu.to_string(),
            count(port.received),
            byte_size(port.received_octets),
            count(port.missed),
            count(port.sent),
            byte_size(port.sent_octets),
            count(port.failed),
            count(port.queued),
            count(port.offloaded),
        ]
    });
    let header = [
        "Port",
        "Interface",
        "Driver",
        "MAC",
        "MTU",
        "In",
        "Octets",
        "Missed",
        "Out",
        "Octets",
        "Failed",
        "Queued",
        "Offloaded",
    ];
    let mut text = table(&header, &[4, 5, 6, 7, 8, 9, 10, 11, 12], rows);
    for port in ports {
        if port.queues.len() > 1 {
            let queues: Vec<String> = port.queues.iter().map(|queue| count(queue.received)).collect();
            text += &format!("{}: in by queue: {}\n", port.name, queues.join(", "));
        }
        if let Some(why) = &port.why_not_better {
            text += &format!("{}: {}, because {why}\n", port.name, port.mode);
        }
    }
    text
}

pub(super) fn counters(view: &CountersView) -> String {
    let sum = |counts: &[(String, u64)]| counts.iter().map(|(_, n)| n).sum::<u64>();
    let mut rows = vec![
        vec!["received".to_owned(), count(view.received)],
        vec!["  of these the router's own".to_owned(), count(view.own)],
        vec!["  of these forwarded by the kernel".to_owned(), count(view.offloaded)],
        vec!["sent".to_owned(), count(view.sent)],
        vec!["wait in queues".to_owned(), count(view.queued)],
        vec!["to the router itself".to_owned(), count(sum(&view.to_host))],
    ];
    let by_reason = |counts: &[(String, u64)]| {
        counts.iter().map(|(name, n)| vec![format!("  {name}"), count(*n)]).collect::<Vec<_>>()
    };
    rows.extend(by_reason(&view.to_host));
    rows.push(vec!["dropped".to_owned(), count(sum(&view.dropped))]);
    rows.extend(by_reason(&view.dropped));
    rows.push(vec!["wait for a neighbour".to_owned(), count(view.waiting_for_neighbour)]);
    rows.push(vec!["ICMP errors written".to_owned(), count(view.icmp_errors)]);
    rows.push(vec!["ICMP errors withheld".to_owned(), count(view.icmp_errors_withheld)]);
    let mut text = table(&["", "Packets"], &[1], rows);
    if !view.workers.is_empty() {
        let row = |worker: &WorkerView| {
            let packets = worker.packets.map_or("shared".to_owned(), count);
            let cpu = format!("{:.2} s", worker.cpu_ms as f64 / 1000.0);
            let (scheduling, cores) = (worker.scheduling.clone(), worker.cores.clone());
            vec![worker.name.clone(), packets, cpu, scheduling.unwrap_or_default(), cores.unwrap_or_default()]
        };
        let titles = ["Thread", "Packets", "CPU", "Priority", "Cores"];
        text += &table(&titles, &[1, 2], view.workers.iter().map(row));
    }
    text
}

pub(super) fn arp(neighbours: &[ArpView]) -> String {
    let rows = neighbours.iter().map(|each| {
        vec![
            each.port.clone(),
            each.address.clone(),
            each.mac.clone().unwrap_or_default(),
            each.state.clone(),
            each.source.clone().unwrap_or_default(),
            count(each.waiting),
        ]
    });
    table(&["Port", "Address", "MAC", "State", "Source", "Waiting"], &[5], rows)
}

pub(super) fn queues(queues: &[QueueView]) -> String {
    if queues.is_empty() {
        return "no port has a queue: [[qos.egress]] gives it one\n".to_owned();
    }
    let rows = queues.iter().map(|each| {
        vec![
            each.port.clone(),
            each.class.clone(),
            count(each.sent),
            byte_size(each.sent_octets),
            count(each.dropped_full),
            count(each.dropped_managed),
            count(each.marked),
            count(each.waiting),
            format!("{:.0} µs", each.sojourn_p50_us),
            format!("{:.0} µs", each.sojourn_p99_us),
        ]
    });
    let header =
        ["Port", "Class", "Sent", "Octets", "Full", "Managed", "Marked", "Waiting", "Wait p50", "p99"];
    table(&header, &[2, 3, 4, 5, 6, 7, 8, 9], rows)
}

//! Samples about flows: the meter, the receivers of records and samples, alarms.

use thalweg_flow::alarm::AlarmReport;
use thalweg_flow::export::{RecordLoss, Unexportable};
use thalweg_flow::{EndReason, SampleLoss};
use thalweg_node::control::{FlowCacheView, FlowOutletView};

use super::Views;
use crate::exposition::{Exposition, Family};

pub(super) fn write(text: &mut Exposition, views: &Views) {
    let Some(flows) = &views.flows else { return };
    write_meter(text, flows);
    if views.nat.is_some() {
        write_nat_events(text, flows);
    }
    write_records(text, &flows.outlets);
    write_datagrams(text, &flows.outlets);
    write_sflow(text, &flows.outlets);
    write_alarms(text, &flows.alarms);
}

fn write_meter(text: &mut Exposition, flows: &FlowCacheView) {
    text.gauge("flow_cached", "Flows in the cache.").sample(&[], flows.flows);
    text.gauge("flow_memory_bytes", "Memory of the flow cache.").sample(&[], flows.memory_bytes);
    text.counter("flow_created", "Flows that entered the cache.").sample(&[], flows.flows_created);
    text.counter("flow_seen_packets", "Packets that reached the meter.").sample(&[], flows.seen.packets);
    let mut records = text.counter("flow_records", "Flow records, by the reason for which they were made.");
    for reason in EndReason::ALL {
        records.sample(&[("reason", reason.name())], flows.records.get(reason.name()).copied().unwrap_or(0));
    }
    text.counter("flow_lost_records", "Flow records lost because a queue was full.")
        .sample(&[], flows.records_lost);
    text.counter("flow_lost_packets", "Packets in those records.").sample(&[], flows.packets_lost);
    text.counter("flow_evicted", "Flows reported early because the cache or their bucket was full.")
        .sample(&[], flows.flows_evicted);
}

/// What NAT tells by records. Without NAT there is nothing to tell.
fn write_nat_events(text: &mut Exposition, flows: &FlowCacheView) {
    text.counter("nat_events", "Events of NAT handed over for export.").sample(&[], flows.nat_events);
    text.counter("nat_events_lost", "Events of NAT lost because the queue for export was full.")
        .sample(&[], flows.nat_events_lost);
}

/// Collectors and stores of records.
fn write_records(text: &mut Exposition, outlets: &[FlowOutletView]) {
    let of_records = || outlets.iter().filter(|outlet| !outlet.sflow);
    let mut delivered =
        text.counter("flow_delivered_records", "Flow records that reached a collector or a store.");
    of_records().for_each(|outlet| delivered.sample(&[("to", &outlet.to)], outlet.records));
    let mut waiting =
        text.gauge("flow_waiting_records", "Flow records on their way to a collector or a store.");
    of_records().for_each(|outlet| waiting.sample(&[("to", &outlet.to)], outlet.waiting));
    let mut lost = text.counter(
        "flow_outlet_lost_records",
        "Flow records that a collector or a store did not get, by reason.",
    );
    write_lost(&mut lost, of_records(), &RecordLoss::ALL.map(RecordLoss::name));
    let mut unexportable = text.counter(
        "flow_outlet_unexportable_records",
        "Flow records that the protocol of a collector cannot express, by reason.",
    );
    write_lost(&mut unexportable, of_records(), &Unexportable::ALL.map(Unexportable::name));
    let mut up =
        text.gauge("flow_outlet_up", "Whether a collector or a store accepts flow records or samples.");
    outlets.iter().for_each(|outlet| up.sample(&[("to", &outlet.to)], outlet.error.is_none()));
}

/// What each of these lost for each of these reasons.
fn write_lost<'v>(
    family: &mut Family<'_>,
    outlets: impl Iterator<Item = &'v FlowOutletView>,
    reasons: &[&str],
) {
    for outlet in outlets {
        for reason in reasons {
            let count = outlet.lost.get(*reason).copied().unwrap_or(0);
            family.sample(&[("to", &outlet.to), ("reason", reason)], count);
        }
    }
}

fn write_datagrams(text: &mut Exposition, outlets: &[FlowOutletView]) {
    let mut refused = text.counter(
        "flow_refused_datagrams",
        "Datagrams to a collector that an ICMP error answered: nobody listens.",
    );
    outlets.iter().for_each(|outlet| refused.sample(&[("to", &outlet.to)], outlet.datagrams_refused));
    let mut dropped = text.counter(
        "flow_dropped_datagrams",
        "Datagrams that the socket of a collector on this system had no room for.",
    );
    outlets.iter().for_each(|outlet| dropped.sample(&[("to", &outlet.to)], outlet.datagrams_dropped));
}

/// Collectors of sFlow. Without one there are no series.
fn write_sflow(text: &mut Exposition, outlets: &[FlowOutletView]) {
    let collectors = || outlets.iter().filter(|outlet| outlet.sflow);
    if collectors().next().is_none() {
        return;
    }
    let mut packets =
        text.counter("sflow_packet_samples", "Samples of packets that a collector of sFlow got.");
    collectors().for_each(|outlet| packets.sample(&[("to", &outlet.to)], outlet.records));
    let mut counters = text
        .counter("sflow_interface_samples", "Samples of interfaces' counters that a collector of sFlow got.");
    collectors().for_each(|outlet| counters.sample(&[("to", &outlet.to)], outlet.counter_samples));
    let mut lost =
        text.counter("sflow_lost_samples", "Samples that a collector of sFlow did not get, by reason.");
    write_lost(&mut lost, collectors(), &SampleLoss::ALL.map(SampleLoss::name));
    let mut uncounted = text.gauge(
        "sflow_uncounted_interfaces",
        "Ports whose interface had no counters for a collector of sFlow when they were last read.",
    );
    collectors().for_each(|outlet| uncounted.sample(&[("to", &outlet.to)], outlet.interfaces_uncounted));
}

fn write_alarms(text: &mut Exposition, alarms: &AlarmReport) {
    let rules = &alarms.rules;
    let mut active = text.gauge("alarm_active", "Active alarms, by the rule that raised them.");
    rules.iter().for_each(|rule| active.sample(&[("rule", &rule.rule)], rule.active as u64));
    let mut raised = text.counter("alarm_raised", "Alarms that were raised, by rule.");
    rules.iter().for_each(|rule| raised.sample(&[("rule", &rule.rule)], rule.raised));
    text.gauge(
        "alarm_blackholes",
        "Hosts that BGP announces with the community BLACKHOLE because of alarms.",
    )
    .sample(&[], alarms.blackholes.len() as u64);
    let missed = alarms.counters;
    let mut missed_by = text.counter("alarm_missed", "What alarms could not see or tell, by reason.");
    let posted = alarms.webhook.clone().unwrap_or_default();
    for (reason, count) in [
        ("webhook", posted.given_up + posted.dropped),
        ("refused", missed.refused),
        ("uncertain", missed.uncertain),
        ("late", missed.late),
        ("lost", missed.lost),
        ("blackhole", missed.blackholes_refused),
    ] {
        missed_by.sample(&[("reason", reason)], count);
    }
}

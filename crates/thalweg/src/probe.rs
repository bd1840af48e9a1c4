//! `thalweg probe`: meters flows, and accounts for every packet.

use thalweg_base::DropReason;
use thalweg_probe::summary::{EXPORT_QUEUE, UNDELIVERED, UNSAMPLED};
use thalweg_probe::{ProbeOptions, ProbeSummary};
use thalweg_text::units::{bytes, count, counted, duration, packet_rate, share};

use crate::Failure;
use crate::cli::{Format, ProbeArgs};
use crate::metering::{self, outlets, print_summary};
use crate::progress::Bar;
use crate::show::alarm_events;
use crate::signals::stop_on_signals;
use crate::summary::{issues, to_json};
use crate::tables::{remark, table};

pub(crate) fn run(args: &ProbeArgs, format: Format) -> Result<(), Failure> {
    if args.inputs.is_empty() && args.interface.is_empty() {
        let there = match interfaces() {
            names if names.is_empty() => String::new(),
            names => format!(" (here: {})", names.join(", ")),
        };
        return Err(Failure::Usage(format!(
            "nothing to meter: name captures, as in `thalweg probe capture.pcap`, or an interface with --interface{there}"
        )));
    }
    let options = args.options().map_err(Failure::Usage)?;
    args.keep.tell();
    let stop = stop_on_signals()?;
    let bar = Bar::on_terminal();
    let result = thalweg_probe::probe(&options, &stop, &bar);
    bar.finish();
    let summary = result.map_err(|error| metering::failure(error, has_one_output(&options)))?;
    let text = match format {
        Format::Human => render(&summary),
        Format::Json => to_json(&summary),
    };
    print_summary(&text, options.json.iter().chain(&options.csv))?;
    if !summary.conserved {
        return Err(Failure::ProbeConservation(Box::new(summary)));
    }
    let failures = summary.failures();
    if failures.is_empty() { Ok(()) } else { Err(Failure::Incomplete(failures)) }
}

/// The names of this machine's interfaces.
fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// Whether records have only one receiver.
fn has_one_output(options: &ProbeOptions) -> bool {
    let others = [options.json.is_some(), options.csv.is_some(), options.store.is_some()];
    others.into_iter().filter(|is_there| *is_there).count() + options.export.addresses.len() == 1
}

fn render(summary: &ProbeSummary) -> String {
    let mut text = String::new();
    totals(&mut text, summary);
    drops(&mut text, summary);
    records(&mut text, summary);
    outlets(&mut text, &summary.outlets);
    captured(&mut text, summary);
    alarms(&mut text, summary);
    let found = &summary.input_issues;
    issues(&mut text, found.total, &found.by_kind, &found.first);
    law(&mut text, summary);
    text
}

fn totals(text: &mut String, s: &ProbeSummary) {
    let of = |n: usize, what: &str| counted(n as u64, what);
    let mut shape = Vec::new();
    if s.pipelines > 1 {
        shape.push(of(s.pipelines, "pipeline"));
    }
    if s.readers > 0 {
        shape.push(of(s.readers, "reader"));
    }
    shape.push(of(s.workers, "worker"));
    *text += &remark(&format!("{}, {}: {}", s.model, shape.join(", "), packet_rate(s.packets_per_second)));
    let time = |seconds: f64| duration((seconds.max(0.0) * 1e9) as u64);
    *text += &remark(&format!(
        "{} packets of {} flows in {}\nprocessor time {}, memory at most {:.1} MB\n",
        count(s.packets_seen),
        count(s.flows),
        time(s.elapsed_s),
        time(s.cpu_s),
        s.rss_peak_bytes as f64 / 1e6,
    ));
}

fn drops(text: &mut String, s: &ProbeSummary) {
    if s.dropped.is_empty() {
        return;
    }
    let mut reasons: Vec<(&String, &u64)> = s.dropped.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let rows = reasons.into_iter().map(|(name, packets)| {
        let bytes = s.dropped_bytes.get(name).copied().unwrap_or_default();
        vec![name.clone(), count(*packets), count(bytes), meaning(name).to_owned()]
    });
    *text += &table(&["dropped", "packets", "bytes", "meaning"], &[1, 2], rows);
    text.push('\n');
}

fn meaning(name: &str) -> &'static str {
    match name {
        UNSAMPLED => "Passed over by sampling, as it was told to.",
        UNDELIVERED => "Metered, but the records reached no outlet: see the deliveries.",
        EXPORT_QUEUE => "Metered, but records came faster than they could be delivered.",
        _ => {
            DropReason::ALL.iter().find(|reason| reason.name() == name).map_or("", |reason| reason.meaning())
        }
    }
}

fn records(text: &mut String, s: &ProbeSummary) {
    if s.records_by_reason.is_empty() {
        return;
    }
    let made: u64 = s.records_by_reason.values().sum();
    let rows = s.records_by_reason.iter().map(|(reason, n)| vec![reason.clone(), count(*n), share(*n, made)]);
    *text += &table(&["records because of", "records", "share"], &[1, 2], rows);
    if s.flows_set_back > 0 {
        *text += &remark(&format!(
            "{} ended because the clock of the packets went back: it was set while they were captured, or inputs are not in \
             the order of time",
            counted(s.flows_set_back, "flow")
        ));
    }
    if s.flows_evicted > 0 {
        *text += &remark(&format!(
            "{} flows were reported early because the cache ({}) was full: --flows-max makes it larger",
            count(s.flows_evicted),
            bytes(s.cache_bytes)
        ));
    }
    if let Some(names) = s.names {
        *text += &remark(&format!(
            "{} have names, from {}; {} not whole",
            counted(names.flows, "flow"),
            counted(names.payloads, "payload"),
            counted(names.given_up, "message"),
        ));
        let lost = names.resolved_evicted + names.forgotten;
        if lost > 0 {
            *text += &remark(&format!("{} had to go for others", counted(lost, "name")));
        }
    }
    text.push('\n');
}

fn alarms(text: &mut String, s: &ProbeSummary) {
    let Some(alarms) = &s.alarms else { return };
    *text += &alarm_events(alarms);
    let (raised, active) = (alarms.raised(), alarms.active() as u64);
    *text += &remark(&format!("{} alarms raised, {} active\n", count(raised), count(active)));
}

fn captured(text: &mut String, s: &ProbeSummary) {
    if s.captured.is_empty() {
        return;
    }
    let rows = s.captured.iter().map(|port| {
        let numbers = [port.packets, port.missed, port.refused].map(count);
        [port.interface.clone(), port.mode.clone()].into_iter().chain(numbers).collect()
    });
    let header = ["interface", "captured by", "packets", "missed, ring full", "refused"];
    *text += &table(&header, &[2, 3, 4], rows);
    for port in &s.captured {
        for trouble in &port.troubles {
            *text += &remark(&format!("{}: {trouble}", port.interface));
        }
    }
    text.push('\n');
}

/// The terms of conservation, in packets and in bytes.
fn law(text: &mut String, s: &ProbeSummary) {
    let dropped_bytes = s.dropped_bytes.values().sum();
    let rows = [
        ("packets", s.packets_seen, s.packets_exported, s.packets_cached, s.dropped_total()),
        ("bytes", s.bytes_seen, s.bytes_exported, s.bytes_cached, dropped_bytes),
    ];
    *text += &remark(&format!("{} records exported", count(s.records_exported)));
    for (what, seen, exported, cached, dropped) in rows {
        *text += &remark(&format!(
            "{what}: {} seen = {} exported + {} cached + {} dropped",
            count(seen),
            count(exported),
            count(cached),
            count(dropped)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::expect;
    use std::collections::BTreeMap;
    use thalweg_probe::{InputIssues, OutletSummary};

    fn full() -> ProbeSummary {
        let of = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        ProbeSummary {
            packets_seen: 1_000_000,
            bytes_seen: 64_000_000,
            frame_bytes_seen: 78_000_000,
            packets_exported: 900_000,
            bytes_exported: 57_600_000,
            records_exported: 20_000,
            records_by_reason: of(&[("idle-timeout", 15_000), ("forced-end", 5_000)]),
            dropped: of(&[(UNSAMPLED, 99_000), ("not-ip", 1_000)]),
            dropped_bytes: of(&[(UNSAMPLED, 6_340_000), ("not-ip", 60_000)]),
            flows: 19_000,
            flows_evicted: 7,
            conserved: true,
            elapsed_s: 0.1,
            packets_per_second: 1e7,
            cpu_s: 0.15,
            rss_peak_bytes: 40_500_000,
            cache_bytes: 16 << 20,
            pipelines: 2,
            model: "farm".to_owned(),
            readers: 1,
            workers: 2,
            outlets: vec![OutletSummary {
                to: "ipfix://192.0.2.1:4739".to_owned(),
                records: 20_000,
                packets: 900_000,
                bytes: 57_600_000,
                lost: of(&[("refused", 3)]),
                ..OutletSummary::default()
            }],
            input_issues: InputIssues {
                total: 12,
                by_kind: of(&[("truncated", 12)]),
                first: vec!["x.pcap: byte 7: expected \u{1b}[31m a record".to_owned()],
                useless: Vec::new(),
                cut: Vec::new(),
            },
            ..ProbeSummary::default()
        }
    }

    #[test]
    fn everything_there_is() {
        assert!(full().is_conserved());
        expect("probe.txt", &render(&full()));
    }

    #[test]
    fn json_names_are_the_documented_ones() {
        let json = serde_json::json!(full());
        expect("probe.json", &to_json(&full()));
        let promised = [
            "packets_seen",
            "packets_exported",
            "bytes_exported",
            "records_exported",
            "dropped",
            "elapsed_s",
            "packets_per_second",
            "rss_peak_bytes",
            "cpu_s",
        ];
        assert!(promised.iter().all(|name| json.get(name).is_some()));
        let manual = include_str!("../../../docs/probe.md");
        for name in json.as_object().expect("an object").keys() {
            assert!(manual.contains(&format!("`{name}`")), "{name} is not in docs/probe.md");
        }
    }
}

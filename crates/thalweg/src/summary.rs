//! Prints a replay's summary as tables: what happened to every packet.

use std::collections::BTreeMap;

use thalweg_base::DropReason;
use thalweg_replay::summary::{INPUT_ISSUES_SHOWN_MAX, InputIssue, ReplaySummary};
use thalweg_text::units::{count, counted, duration, packet_rate, share};

use crate::tables::{remark, table};

/// A summary as one JSON object, with fields in their order.
pub(crate) fn to_json(summary: &impl serde::Serialize) -> String {
    // Plain data with string keys always serializes.
    serde_json::to_string_pretty(summary).map_or_else(|error| error.to_string(), |json| json + "\n")
}

/// The whole summary. Names come from the configuration, which allows no control characters; messages quote
/// the input and are cleaned.
pub(crate) fn render(summary: &ReplaySummary) -> String {
    let mut text = String::new();
    totals(&mut text, summary);
    ports(&mut text, summary);
    classes(&mut text, summary);
    drops(&mut text, summary);
    acls(&mut text, summary);
    nat(&mut text, summary);
    let found = &summary.input_issues;
    let place = |issue: &InputIssue| format!("{}, {}: {}", issue.file, issue.place, issue.message);
    let first: Vec<String> = found.first.iter().take(INPUT_ISSUES_SHOWN_MAX).map(place).collect();
    issues(&mut text, found.total, &found.by_kind, &first);
    for output in &summary.outputs {
        text += &remark(&format!("wrote {output}"));
    }
    text
}

fn totals(text: &mut String, s: &ReplaySummary) {
    let dropped = s.dropped_total();
    let workers = if s.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", s.workers) };
    *text += &remark(&format!("{}, {workers}: {}", s.model, packet_rate(s.packets_per_second)));
    let elapsed = duration((s.elapsed_s.max(0.0) * 1e9) as u64);
    *text += &remark(&format!(
        "{} packets in, {} out, {} dropped ({}) in {elapsed}\n\
         residence time p50 {}, p99 {}, longest {}\n",
        count(s.packets_in),
        count(s.packets_out),
        count(dropped),
        share(dropped, s.packets_in),
        duration(s.latency.latency_ns_p50),
        duration(s.latency.latency_ns_p99),
        duration(s.latency.latency_ns_max),
    ));
}

fn ports(text: &mut String, s: &ReplaySummary) {
    let rows = s.ports.iter().map(|(name, p)| {
        let numbers = [p.packets_in, p.bytes_in, p.packets_out, p.bytes_out, p.dropped];
        std::iter::once(name.to_owned()).chain(numbers.map(count)).collect()
    });
    let header = ["port", "packets in", "bytes in", "packets out", "bytes out", "dropped on arrival"];
    *text += &table(&header, &[1, 2, 3, 4, 5], rows);
    text.push('\n');
}

fn classes(text: &mut String, s: &ReplaySummary) {
    let colored = s.classes.iter().any(|(_, class)| class.colors.is_some());
    let mut header = vec!["class", "packets", "bytes", "dropped", "residence p50", "p99"];
    if colored {
        header.push("green / yellow / red");
    }
    let rows = s.classes.iter().map(|(name, c)| {
        let mut row = vec![name.to_owned(), count(c.packets), count(c.bytes), count(c.dropped)];
        // Without packets there is no distribution.
        let latency = |ns| if c.packets == 0 { "-".to_owned() } else { duration(ns) };
        row.extend([latency(c.latency.latency_ns_p50), latency(c.latency.latency_ns_p99)]);
        if colored {
            row.push(c.colors.map_or_else(
                || "-".to_owned(),
                |k| format!("{} / {} / {}", count(k.green), count(k.yellow), count(k.red)),
            ));
        }
        row
    });
    *text += &table(&header, &[1, 2, 3, 4, 5, 6], rows);
    text.push('\n');
}

fn drops(text: &mut String, s: &ReplaySummary) {
    if s.dropped_total() == 0 {
        return;
    }
    let mut reasons: Vec<(&String, u64)> =
        s.dropped.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (name, *n)).collect();
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let rows = reasons.into_iter().map(|(name, n)| {
        let reason = DropReason::ALL.iter().find(|reason| reason.name() == name.as_str());
        let meaning = reason.map_or("", |reason| reason.meaning());
        vec![name.clone(), count(n), meaning.to_owned()]
    });
    *text += &table(&["dropped", "packets", "meaning"], &[1], rows);
    text.push('\n');
}

/// The most rules listed for an access list; a longer list shows only rules with matches.
const ACL_RULES_SHOWN_MAX: usize = 40;

fn acls(text: &mut String, s: &ReplaySummary) {
    for (name, rules) in s.acls.iter() {
        let all = rules.len() <= ACL_RULES_SHOWN_MAX;
        let met: Vec<_> = rules.iter().filter(|rule| all || rule.packets > 0).collect();
        let shown = &met[..met.len().min(ACL_RULES_SHOWN_MAX)];
        let rows = shown
            .iter()
            .map(|rule| vec![rule.rule.clone(), rule.action.clone(), count(rule.packets), count(rule.bytes)]);
        let title = format!("access list {name}");
        *text += &table(&[&title, "action", "packets", "bytes"], &[2, 3], rows);
        if shown.len() < rules.len() {
            *text += &remark(&format!("... and {} other rules", count((rules.len() - shown.len()) as u64)));
        }
        text.push('\n');
    }
}

fn nat(text: &mut String, s: &ReplaySummary) {
    let Some(n) = &s.nat else { return };
    *text += &remark(&format!(
        "NAT: {} sessions at the end, {} made, {} expired\n     {} packets translated out, {} in, {} between inside hosts\n",
        count(n.sessions),
        count(n.sessions_created),
        count(n.sessions_expired),
        count(n.translated_out),
        count(n.translated_in),
        count(n.hairpinned),
    ));
}

/// The issues of an input: their total, and the first ones.
pub(crate) fn issues(text: &mut String, total: u64, by_kind: &BTreeMap<String, u64>, first: &[String]) {
    if total == 0 {
        return;
    }
    let kinds: Vec<String> = by_kind.iter().map(|(kind, n)| format!("{} {kind}", count(*n))).collect();
    let (places, kinds) = (counted(total, "place"), kinds.join(", "));
    *text += &remark(&format!("{places} in the input could not be used: {kinds}"));
    for issue in first {
        *text += &remark(&format!("  {}", clean(issue)));
    }
    let shown = first.len() as u64;
    if total > shown {
        *text += &remark(&format!("  ... and {} more", count(total - shown)));
    }
    text.push('\n');
}

/// Input must not control the terminal.
fn clean(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thalweg_replay::summary::{
        AclRuleSummary, ClassSummary, Colors, InputIssue, InputIssues, Latency, Named, NatSummary,
        PortSummary,
    };

    fn full() -> ReplaySummary {
        let latency = Latency { latency_ns_p50: 850, latency_ns_p99: 12_345, latency_ns_max: 2_000_000 };
        let port = PortSummary {
            packets_in: 1_000,
            bytes_in: 64_000,
            packets_out: 990,
            bytes_out: 63_360,
            dropped: 10,
        };
        let voice = ClassSummary {
            packets: 990,
            bytes: 63_360,
            dropped: 3,
            colors: Some(Colors { green: 980, yellow: 10, red: 3 }),
            latency,
        };
        ReplaySummary {
            packets_in: 1_000,
            bytes_in: 64_000,
            packets_out: 990,
            bytes_out: 63_360,
            dropped: BTreeMap::from([("no-route".to_owned(), 7), ("policed".to_owned(), 3)]),
            elapsed_s: 0.0005,
            cpu_s: 0.0,
            packets_per_second: 2e6,
            model: "tokens".to_owned(),
            workers: 2,
            latency,
            ports: Named(vec![("wan".to_owned(), PortSummary::default()), ("lan".to_owned(), port)]),
            classes: Named(vec![
                ("voice".to_owned(), voice),
                ("default".to_owned(), ClassSummary::default()),
            ]),
            acls: Named(vec![(
                "from-internet".to_owned(),
                vec![
                    AclRuleSummary {
                        rule: "web".to_owned(),
                        action: "permit".to_owned(),
                        packets: 988,
                        bytes: 62_000,
                    },
                    AclRuleSummary {
                        rule: "default".to_owned(),
                        action: "deny".to_owned(),
                        packets: 2,
                        bytes: 90,
                    },
                ],
            )]),
            nat: Some(NatSummary {
                sessions: 12,
                sessions_created: 20,
                sessions_expired: 8,
                translated_out: 400,
                translated_in: 300,
                hairpinned: 2,
            }),
            input_issues: InputIssues {
                total: 12,
                by_kind: BTreeMap::from([("bad-address".to_owned(), 11), ("too-few-fields".to_owned(), 1)]),
                first: vec![
                    InputIssue {
                        file: "trace.txt".to_owned(),
                        place: "line 3, column 6".to_owned(),
                        kind: "bad-address".to_owned(),
                        message: "`10.0.0.\u{1b}[31m`: expected an address".to_owned(),
                    };
                    12
                ],
                ..InputIssues::default()
            },
            outputs: vec!["out/wan.pcap".to_owned()],
        }
    }

    /// Compares with the expected text beside the tests; `THALWEG_BLESS=1` rewrites it.
    pub(crate) fn expect(name: &str, actual: &str) {
        let path = format!("{}/tests/summaries/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("THALWEG_BLESS").is_some() {
            std::fs::write(&path, actual).expect("writing the expectation");
        }
        assert_eq!(actual, std::fs::read_to_string(&path).unwrap_or_default(), "{path}");
    }

    #[test]
    fn everything_there_is() {
        assert!(full().is_conserved());
        expect("full.txt", &render(&full()));
    }

    #[test]
    fn nothing_there_is() {
        expect(
            "empty.txt",
            &render(&ReplaySummary { model: "serial".to_owned(), workers: 1, ..Default::default() }),
        );
    }

    #[test]
    fn json_names_are_the_documented_ones() {
        let json = serde_json::json!(full());
        expect("full.json", &to_json(&full()));
        assert_eq!(json["dropped"]["no-route"], 7);
        assert_eq!(json["classes"]["voice"]["latency_ns_p99"], 12_345);
        assert_eq!(json["nat"]["sessions"], 12);
        assert_eq!(json["packets_per_second"], 2e6);
    }
}

//! `thalweg flows import`: imports the records of other exporters, and accounts for them.

use std::io::Write as _;

use thalweg_probe::{ExporterSummary, ImportSummary, OutletSummary, ProbeProgress};
use thalweg_text::units::{count, duration};

use crate::Failure;
use crate::cli::{FlowsArgs, FlowsImportArgs, Format};
use crate::metering::{self, outlets, print_summary};
use crate::signals::stop_on_signals;
use crate::summary::{issues, to_json};
use crate::tables::{remark, table};

/// The most exporters with a row in the table.
const ROWS_MAX: usize = 50;

/// Prints notices to standard error.
struct Notices;

impl ProbeProgress for Notices {
    fn advanced(&self, _packets: u64, _fraction: Option<f64>) {}

    fn notice(&self, text: &str) {
        // Without standard error, nobody can be told.
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn note(&self, text: &str) {
        self.notice(text);
    }
}

pub(crate) fn run(args: &FlowsArgs, import: &FlowsImportArgs, format: Format) -> Result<(), Failure> {
    let [data] = &args.data[..] else {
        return Err(Failure::Usage("--data: records are added to one dataset; name one".to_owned()));
    };
    let options = import.options(data, args.feed_tls()).map_err(Failure::Usage)?;
    import.keep.tell();
    let stop = stop_on_signals()?;
    let imported = thalweg_probe::import(&options, &stop, &Notices);
    let summary = imported.map_err(|error| metering::failure(error, true))?;
    let text = match format {
        Format::Human => render(&summary),
        Format::Json => to_json(&summary),
    };
    print_summary(&text, options.json.iter().chain(&options.csv))?;
    if !summary.conserved {
        let what = "records were decoded that are neither flows nor anything else: please report this, with the input";
        return Err(Failure::Run(what.to_owned()));
    }
    let mut failures = [&summary.files_without_records[..], &summary.input_issues.cut].concat();
    failures.extend(summary.outlets.iter().filter_map(OutletSummary::failure));
    failures.extend(dropped(&summary));
    if failures.is_empty() { Ok(()) } else { Err(Failure::Incomplete(failures)) }
}

/// What the kernel dropped before it could be read.
fn dropped(s: &ImportSummary) -> Option<String> {
    (s.datagrams_dropped > 0).then(|| {
        format!(
            "{} datagrams found the socket's buffer full and are lost: they came faster than their records are stored \
             (a larger net.core.rmem_max helps against bursts, several importers against the rest)",
            count(s.datagrams_dropped)
        )
    })
}

fn render(s: &ImportSummary) -> String {
    let mut text = String::new();
    let time = duration((s.elapsed_s.max(0.0) * 1e9) as u64);
    text += &remark(&format!(
        "{} records of {} packets, {} bytes in {} messages; exporters: {}; {time}, memory at most {:.1} MB",
        count(s.records),
        count(s.packets),
        count(s.bytes),
        count(s.messages),
        count(s.exporters.len() as u64),
        s.rss_peak_bytes as f64 / 1e6,
    ));
    if s.records_sampled > 0 {
        text += &remark(&format!(
            "{} records are sampled: counters hold the sampled packets only",
            count(s.records_sampled)
        ));
    }
    text.push('\n');
    exporters(&mut text, s);
    passed_over(&mut text, s);
    outlets(&mut text, &s.outlets);
    issues(&mut text, s.input_issues.total, &s.input_issues.by_kind, &s.input_issues.first);
    text
}

fn exporters(text: &mut String, s: &ImportSummary) {
    if s.exporters.is_empty() {
        return;
    }
    let sent = |exporter: &ExporterSummary| {
        let protocols: Vec<&str> = exporter.messages.keys().map(String::as_str).collect();
        let messages = exporter.messages.values().sum();
        let numbers = [messages, exporter.records, exporter.packets, exporter.bytes].map(count);
        [exporter.exporter.clone(), protocols.join(", ")].into_iter().chain(numbers).collect::<Vec<String>>()
    };
    let header = ["exporter", "protocol", "messages", "records", "packets", "bytes"];
    *text += &table(&header, &[2, 3, 4, 5], s.exporters.iter().take(ROWS_MAX).map(sent));
    if s.exporters.len() > ROWS_MAX {
        let more = (s.exporters.len() - ROWS_MAX) as u64;
        *text += &remark(&format!("... and {} more (--format json has all)", count(more)));
    }
    text.push('\n');
    let is_odd = |exporter: &&ExporterSummary| oddities(exporter).iter().any(|number| *number > 0);
    let odd = |exporter: &ExporterSummary| {
        std::iter::once(exporter.exporter.clone()).chain(oddities(exporter).map(count)).collect()
    };
    let rows: Vec<Vec<String>> = s.exporters.iter().filter(is_odd).take(ROWS_MAX).map(odd).collect();
    if !rows.is_empty() {
        let header = ["exporter", "no flows", "no template", "gaps", "missing", "faults"];
        *text += &table(&header, &[1, 2, 3, 4, 5], rows);
        text.push('\n');
    }
}

/// Irregularities of an exporter, in the order of columns.
fn oddities(exporter: &ExporterSummary) -> [u64; 5] {
    [
        exporter.events + exporter.without_addresses,
        exporter.sets_without_template,
        exporter.sequence_gaps,
        exporter.units_missing,
        exporter.refused + exporter.faults,
    ]
}

fn passed_over(text: &mut String, s: &ImportSummary) {
    if s.passed_over.is_empty() {
        return;
    }
    let rows = s.passed_over.iter().map(|(what, packets)| vec![what.clone(), count(*packets)]);
    *text += &table(&["packets passed over", "packets"], &[1], rows);
    text.push('\n');
}

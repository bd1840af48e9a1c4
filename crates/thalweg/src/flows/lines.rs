//! Records as lines: a table that fits the terminal, JSON or CSV.

use std::net::SocketAddr;

use thalweg_base::Name;
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Field, Kind, Value};
use thalweg_flow::lines::LineFormat;
use thalweg_text::calendar::{SECOND_NS, format_time};
use thalweg_text::{Align, Table, TableStream};
use thalweg_wire::application;

use super::numbers;
use crate::cli::{FlowsListArgs, Format};
use crate::tables;

/// Prints records, all at once or as they come.
pub(super) struct Lines {
    form: Form,
    /// The fields to print; for people, none means [`COLUMNS`].
    fields: Vec<Field>,
    look: Look,
}

enum Form {
    Lines(LineFormat),
    Table,
    /// A table whose header has been printed.
    Stream(TableStream),
}

/// How people see values.
struct Look {
    /// Counters are not multiplied by the sampling interval.
    raw: bool,
    number: fn(u64) -> String,
    /// Times are those of one day, which is said elsewhere.
    without_date: bool,
}

/// A column for people: its heading, the width of most of its values, the value.
type Column = (&'static str, Align, usize, fn(&Look, &FlowRecord) -> String);

/// The columns that are shown if none are chosen.
const COLUMNS: [Column; 10] = [
    ("end", Align::Left, 12, |look, record| look.time(record.counters.last_ns)),
    ("seconds", Align::Right, 7, |_, record| {
        let duration = record.counters.last_ns.saturating_sub(record.counters.first_ns);
        format!("{:.3}", duration as f64 / SECOND_NS as f64)
    }),
    ("proto", Align::Left, 5, |_, record| {
        let known = application::by_ip_protocol(record.key.protocol);
        known.map_or_else(|| record.key.protocol.to_string(), |known| known.name.to_owned())
    }),
    ("source", Align::Left, 21, |_, record| SocketAddr::new(record.key.src, record.key.src_port).to_string()),
    ("destination", Align::Left, 21, |_, record| {
        SocketAddr::new(record.key.dst, record.key.dst_port).to_string()
    }),
    ("packets", Align::Right, 7, |look, record| look.counter(record, record.packets())),
    ("bytes", Align::Right, 9, |look, record| look.counter(record, record.bytes())),
    ("flags", Align::Left, 8, |_, record| {
        record.counters.tcp_flags.map_or_else(|| "-".to_owned(), super::flags)
    }),
    ("application", Align::Left, 11, |_, record| {
        let known = application::by_code(record.application).map_or("-", |known| known.name);
        record.details.event.map_or(known, |event| event.name()).to_owned()
    }),
    ("name", Align::Left, 4, |_, record| {
        let names = [record.names.server, record.names.dns_question, record.names.resolved];
        let known = names.into_iter().map(Name::text).find(|text| !text.is_empty());
        known.unwrap_or_default().into_owned()
    }),
];

/// The columns for people that are left out of a narrow terminal, in this order.
const OPTIONAL: [&str; 5] = ["seconds", "flags", "name", "proto", "application"];

impl Look {
    /// The time to the millisecond.
    fn time(&self, time_ns: u64) -> String {
        let text = format_time(time_ns / 1_000_000 * 1_000_000);
        match text.split_once('T') {
            Some((_, time)) if self.without_date => time.trim_end_matches('Z').to_owned(),
            _ => text,
        }
    }

    fn counter(&self, record: &FlowRecord, counter: u64) -> String {
        (self.number)(counter.saturating_mul(if self.raw { 1 } else { record.scale() }))
    }

    fn field(&self, field: Field, record: &FlowRecord) -> String {
        match field.value(record) {
            None => "-".to_owned(),
            Some(Value::Time(time_ns)) => self.time(time_ns),
            Some(Value::Number(number)) if field.row().kind == Kind::Wide => (self.number)(number),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Address(address)) => address.to_string(),
            Some(Value::Text(text)) => text.into_owned(),
        }
    }
}

impl Lines {
    pub(super) fn new(args: &FlowsListArgs, format: Format) -> Self {
        let form = match (format, args.which.csv) {
            (Format::Json, _) => Form::Lines(LineFormat::Json),
            (_, true) => Form::Lines(LineFormat::Csv),
            _ => Form::Table,
        };
        let look = Look { raw: args.which.raw, number: numbers(&args.which), without_date: false };
        let fields = match (&args.columns, &form) {
            (Some(columns), _) => columns.0.clone(),
            (None, Form::Lines(_)) => Field::of_lines(false).collect(),
            (None, Form::Table | Form::Stream(_)) => Vec::new(),
        };
        Self { form, fields, look }
    }

    /// All records there will be.
    pub(super) fn all(mut self, records: &[FlowRecord]) -> String {
        if let Form::Lines(_) = self.form {
            return self.begin() + &self.more(records);
        }
        let day = |record: &FlowRecord| record.counters.last_ns / (86_400 * SECOND_NS);
        let days =
            records.first().map(day).filter(|first| records.iter().all(|record| day(record) == *first));
        // A terminal is read now, a file at any time.
        let width = tables::width();
        self.look.without_date = days.is_some() && width.is_some() && self.fields.is_empty();
        let end = match (days, self.look.without_date) {
            (Some(day), true) => {
                let midnight = format_time(day * 86_400 * SECOND_NS);
                format!("end, {}", midnight.split('T').next().unwrap_or_default())
            }
            _ => "end".to_owned(),
        };
        let mut table = self.table(&end);
        records.iter().for_each(|record| table.push(self.cells(record)));
        table.render(width)
    }

    /// What stands before records that come later.
    pub(super) fn begin(&mut self) -> String {
        match &self.form {
            Form::Lines(format) => format.header(self.fields.iter().copied()),
            Form::Table | Form::Stream(_) => {
                self.look.without_date = self.fields.is_empty();
                let mut stream = TableStream::new(self.table("end"), tables::width());
                let widths = COLUMNS.map(|(_, _, width, _)| width);
                let header = stream.begin(if self.fields.is_empty() { &widths } else { &[] });
                self.form = Form::Stream(stream);
                header
            }
        }
    }

    /// Records that follow what [`Self::begin`] returned.
    pub(super) fn more(&mut self, records: &[FlowRecord]) -> String {
        let rows: Vec<Vec<String>> = match &self.form {
            Form::Lines(format) => {
                let mut lines = Vec::new();
                for record in records {
                    format.write(record, self.fields.iter().copied(), &mut lines);
                }
                return String::from_utf8_lossy(&lines).into_owned();
            }
            Form::Table | Form::Stream(_) => records.iter().map(|record| self.cells(record)).collect(),
        };
        let Form::Stream(stream) = &mut self.form else { return String::new() };
        let mut text: String = rows.into_iter().map(|row| stream.push(row)).collect();
        text += &stream.piece();
        text
    }

    /// A table without rows.
    fn table(&self, end: &str) -> Table {
        if !self.fields.is_empty() {
            let align = |field: &Field| match field.row().kind {
                Kind::Wide | Kind::Number(_) => Align::Right,
                _ => Align::Left,
            };
            return Table::new("", self.fields.iter().map(|field| (field.name(), align(field))));
        }
        let heading = |name: &'static str| if name == "end" { end.to_owned() } else { name.to_owned() };
        let headings: Vec<(String, Align)> =
            COLUMNS.iter().map(|(name, align, ..)| (heading(name), *align)).collect();
        Table::new("", headings.iter().map(|(name, align)| (name.as_str(), *align))).optional(&OPTIONAL)
    }

    fn cells(&self, record: &FlowRecord) -> Vec<String> {
        match self.fields.as_slice() {
            [] => COLUMNS.iter().map(|(.., cell)| cell(&self.look, record)).collect(),
            fields => fields.iter().map(|field| self.look.field(*field, record)).collect(),
        }
    }
}

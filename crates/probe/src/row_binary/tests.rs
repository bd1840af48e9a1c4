//! The tables of ClickHouse, and whether three encodings of a record become the same row in them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::protobuf::{Protobuf, tests::full};
use thalweg_base::Name;
use thalweg_flow::fields::{Vocabulary, unknown_record};
use thalweg_flow::lines::LineFormat;

/// The type of a column, without what may be unknown.
fn plain_type(kind: Kind) -> String {
    match kind {
        Kind::Time => "DateTime64(9, 'UTC')".to_owned(),
        Kind::Wide => "UInt64".to_owned(),
        Kind::Number(bits) => format!("UInt{bits}"),
        Kind::Address => "IPv6".to_owned(),
        // A dictionary for what has few values.
        Kind::Word(vocabulary) if vocabulary != Vocabulary::PassingName => "LowCardinality".to_owned(),
        Kind::Word(_) | Kind::Mac | Kind::Text => "String".to_owned(),
    }
}

fn column_type(field: Field) -> String {
    match (plain_type(field.row().kind), field.is_nullable()) {
        (plain, true) if plain == "LowCardinality" => "LowCardinality(Nullable(String))".to_owned(),
        (plain, false) if plain == "LowCardinality" => "LowCardinality(String)".to_owned(),
        (plain, true) => format!("Nullable({plain})"),
        (plain, false) => plain,
    }
}

/// The type in a message of protocol buffers, and how it becomes the column's.
fn message_column(field: Field) -> (String, String) {
    let name = field.name();
    let (message, column) = match field.row().kind {
        Kind::Time => ("UInt64".to_owned(), format!("fromUnixTimestamp64Nano(toInt64({name}), 'UTC')")),
        Kind::Address => ("String".to_owned(), format!("thalweg_address({name})")),
        Kind::Wide | Kind::Number(_) => (plain_type(field.row().kind), name.to_owned()),
        Kind::Word(_) | Kind::Mac | Kind::Text => ("String".to_owned(), name.to_owned()),
    };
    let message = if field.is_nullable() { format!("Nullable({message})") } else { message };
    (message, if column == name { column } else { format!("{column} AS {name}") })
}

/// What contrib/clickhouse/flows.sql has to say: the text there with `@@` in place of columns.
fn tables() -> String {
    let fields = || Field::of_lines(true);
    let listed = |line: &dyn Fn(Field) -> String| fields().map(line).collect::<Vec<_>>().join(",\n");
    let columns = listed(&|field| {
        format!(
            "    {} {} COMMENT '{}'",
            field.name(),
            column_type(field),
            field.row().help.replace('\'', "''")
        )
    });
    let message = listed(&|field| format!("    {} {}", field.name(), message_column(field).0));
    let converted = listed(&|field| format!("    {}", message_column(field).1));
    let text = include_str!("flows.sql");
    [("@@columns", columns), ("@@message", message), ("@@converted", converted)]
        .iter()
        .fold(text.to_owned(), |text, (place, with)| text.replace(place, with))
}

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/clickhouse")
}

/// `THALWEG_BLESS=1` writes it.
#[test]
fn the_tables_have_every_field() {
    let (path, current) = (contrib().join("flows.sql"), tables());
    if std::env::var_os("THALWEG_BLESS").is_some() {
        std::fs::write(&path, &current).expect("it can be written");
    }
    let there = std::fs::read_to_string(&path).expect("the tables");
    assert!(there == current, "contrib/clickhouse/flows.sql is not current: run this with THALWEG_BLESS=1");
}

#[test]
fn bytes_are_those_of_the_encoding() {
    let mut row = Vec::new();
    let binary =
        RowBinary { fields: vec![Field::FlowEnd, Field::Src, Field::SrcPort, Field::NextHop, Field::App] };
    binary.write(&full(), &mut row);
    let end = 1_700_000_001_000_000_000_u64.to_le_bytes();
    let src = "20010db8000000000000000000000001";
    let next_hop = "00000000000000000000ffffc0000201";
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&row), format!("{}{src}50c300{next_hop}0003{}", hex(&end), hex(b"dns")));
    row.clear();
    RowBinary { fields: vec![Field::NextHop, Field::DstMac, Field::TtlMin] }
        .write(&unknown_record(), &mut row);
    assert_eq!(row, [1, 1, 1]);
}

/// ClickHouse itself reads rows, lines and messages of the same records, each by a way of its own: as inserted by
/// the outlet, as JSON, and as from a topic through the view that is shipped.
#[test]
fn clickhouse_reads_the_same_three_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut rows, mut lines, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    // Of the present, since the tables remove old records.
    let made = std::fs::metadata(folder.path()).expect("a folder").mtime();
    let now = made.cast_unsigned() * 1_000_000_000;
    for number in 0..2000_u32 {
        let mut record = if number % 2 == 0 { full() } else { unknown_record() };
        if number % 3 == 0 {
            (record.key.src, record.key.dst) = ([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
        }
        record.counters.last_ns = now + u64::from(number);
        record.counters.first_ns = record.counters.last_ns - 1;
        (record.counters.packets, record.key.dst_port) = (number.into(), 443);
        record.names.server = Name::passing("www.example.org");
        RowBinary::new(true).write(&record, &mut rows);
        LineFormat::Json.write(&record, Field::of_lines(true), &mut lines);
        let start = messages.len();
        Protobuf::new(true).write(&record, &mut messages);
        let mut length = Vec::new();
        put_varint(&mut length, (messages.len() - start) as u64);
        messages.splice(start..start, length);
    }
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/flow_record.proto");
    for (name, bytes) in [("rows", rows), ("lines", lines), ("messages", messages)] {
        std::fs::write(folder.path().join(name), bytes).expect("it can be written");
    }
    std::fs::copy(proto, folder.path().join("flow_record.proto")).expect("a copy");
    // The last one is made by the tests of the store.
    let made = std::env::temp_dir().join("thalweg-test-chdb/bin/python");
    let named = std::env::var_os("THALWEG_PYTHON").map(PathBuf::from);
    let has = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import chdb"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let Some(python) = named.into_iter().chain([PathBuf::from("python3"), made]).find(has) else {
        println!(
            "SKIPPED clickhouse_reads_the_same_three_times: no python3 with chdb (THALWEG_PYTHON names one)"
        );
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/row_binary/three_ways.py");
    let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards/flows-clickhouse.json");
    let mut command = Command::new(python);
    command.arg(script).arg(contrib().join("flows.sql")).arg(folder.path()).arg(dashboard);
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // Of each way: rows, packets, and rows that another way has not. Then the sums of both rollups, and the questions
    // of the dashboard.
    let expected = "2000\t1999000\t0\n2000\t1999000\t0\n2000\t1999000\t0\n2000\t2000\n14\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{errors}");
}

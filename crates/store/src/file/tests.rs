//! Records written to a file and read back.

use super::*;
use crate::block::{Block, Column, Spare};
use crate::schema::COLUMNS;
use crate::testing;
use parquet::basic::{LogicalType, TimeUnit};
use proptest::prelude::*;
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::Field;

fn write(path: &std::path::Path, groups: &[Vec<FlowRecord>]) {
    let mut writer = FileWriter::create(path, &["a".to_owned(), "b".to_owned()]).unwrap();
    for group in groups {
        writer.append(group.iter(), &mut Spare::default()).unwrap();
    }
    writer.finish().unwrap();
}

/// As the rows of a row group are.
fn in_order(mut groups: Vec<Vec<FlowRecord>>) -> Vec<Vec<FlowRecord>> {
    groups.iter_mut().for_each(|group| group.sort_by_key(|record| record.counters.last_ns));
    groups
}

fn read(path: &std::path::Path) -> Vec<Vec<FlowRecord>> {
    let file = FlowFile::open(path).unwrap();
    (0..file.row_groups.len())
        .map(|number| {
            let mut block = Block::new(file.row_groups[number].rows);
            file.load(number, Field::STORED, &mut block).unwrap();
            (0..block.rows).map(|row| block.record(row).unwrap()).collect()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn records_come_back_as_they_were(seed: u64, sizes in proptest::collection::vec(1usize..300, 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.parquet");
        let mut chance = testing::Chance::new(seed);
        let groups: Vec<Vec<FlowRecord>> =
            sizes.iter().map(|size| (0..*size).map(|_| testing::any_record(&mut chance)).collect()).collect();
        write(&path, &groups);
        prop_assert_eq!(read(&path), in_order(groups));
    }
}

#[test]
fn many_rows_over_several_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(3);
    let records: Vec<FlowRecord> = (0..150_000).map(|_| testing::likely_record(&mut chance)).collect();
    write(&path, std::slice::from_ref(&records));
    assert_eq!(read(&path), in_order(vec![records.clone()]));
    let file = FlowFile::open(&path).unwrap();
    assert_eq!(file.replaces, ["a", "b"]);
    let times = || records.iter().map(|record| record.counters.last_ns);
    // To the microsecond, never too narrow.
    let (from, to) = file.span().unwrap();
    assert!((from..=from + 999).contains(&times().min().unwrap()));
    assert!((to - 999..=to).contains(&times().max().unwrap()));
    let bytes = || records.iter().map(|record| record.counters.bytes);
    assert_eq!(file.bounds(0, Field::Bytes), bytes().min().zip(bytes().max()));
    assert!(file.is_absent(0, Field::MplsLabel));
    assert!(!file.is_absent(0, Field::SrcAs));
}

/// Rows that were asked for alone are those of the whole column, also if its dictionary was read before.
#[test]
fn some_rows_of_a_column_are_those_of_all() {
    fn value(column: &Column, row: usize) -> (Option<u64>, Option<std::net::IpAddr>) {
        match column {
            Column::Number(values) => (Some(values[row].into()), None),
            Column::Wide(values) => (Some(values[row]), None),
            Column::Address(addresses) => (None, addresses.get(row)),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(23);
    let mut records: Vec<FlowRecord> = (0..140_000).map(|_| testing::likely_record(&mut chance)).collect();
    for place in (0..70_000).step_by(7) {
        records[place] = testing::any_record(&mut chance);
    }
    write(&path, std::slice::from_ref(&records));
    let file = FlowFile::open(&path).unwrap();
    let mut spare = Spare::default();
    for id in Field::STORED {
        let all = file.column(0, *id, None, None, &mut Spare::default()).unwrap();
        for (step, first) in [(1, 130_000), (2, 1), (50, 3), (9_000, 70_001), (100_000, 139_999)] {
            let places: Vec<u32> = (first..140_000).step_by(step).collect();
            for known in [None, file.dictionary(0, *id).unwrap()] {
                let some = file.column(0, *id, Some(&places), known, &mut spare).unwrap();
                for (row, place) in places.iter().enumerate() {
                    let here = value(&some, row);
                    assert_eq!(here, value(&all, *place as usize), "{} at {place}", id.name());
                }
            }
        }
    }
}

/// A file with damaged bytes is an error, or gives the written records.
#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(11);
    let records: Vec<FlowRecord> = (0..200).map(|_| testing::any_record(&mut chance)).collect();
    write(&path, std::slice::from_ref(&records));
    let whole = std::fs::read(&path).unwrap();
    for cut in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(FlowFile::open(&path).is_err(), "cut after {cut} of {}", whole.len());
    }
    for _ in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..1 + chance.below(3) {
            let at = chance.below(bytes.len() as u32) as usize;
            bytes[at] ^= 1 << chance.below(8);
        }
        std::fs::write(&path, &bytes).unwrap();
        let Ok(file) = FlowFile::open(&path) else { continue };
        let mut block = Block::new(file.row_groups[0].rows);
        if file.load(0, Field::STORED, &mut block).is_ok() {
            let read: Vec<FlowRecord> = (0..block.rows).map(|row| block.record(row).unwrap()).collect();
            assert_eq!([read], in_order(vec![records.clone()])[..]);
        }
    }
}

#[test]
fn one_flipped_bit_in_a_page_is_noticed_in_its_column_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(12);
    let records: Vec<FlowRecord> = (0..5000).map(|_| testing::any_record(&mut chance)).collect();
    write(&path, std::slice::from_ref(&records));
    let whole = std::fs::read(&path).unwrap();
    let file = FlowFile::open(&path).unwrap();
    for column in &*COLUMNS {
        let (start, length) = file.place(0, column.field, column.is_rest).unwrap();
        let mut bytes = whole.clone();
        bytes[(start + length / 2) as usize] ^= 1 << chance.below(8);
        std::fs::write(&path, &bytes).unwrap();
        let file = FlowFile::open(&path).unwrap();
        for other in Field::STORED {
            let what = file
                .column(0, *other, None, None, &mut Spare::default())
                .err()
                .map(|error| error.to_string());
            assert_eq!(what.is_some(), *other == column.field, "{}: {what:?}", other.name());
            assert!(
                what.is_none_or(
                    |what| what.contains(&format!("column {}: its checksum is wrong", column.name))
                )
            );
        }
    }
}

#[test]
fn files_of_another_version_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    std::fs::write(&path, include_bytes!("testdata/version-2.parquet")).unwrap();
    let refusal = FlowFile::open(&path).unwrap_err().to_string();
    assert!(refusal.contains("flow records in the format of another version"), "{refusal}");
}

/// The version before had one checksum of a whole column, so its dictionaries are not looked at alone.
#[test]
fn files_of_the_version_before_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let whole = include_bytes!("testdata/version-5.parquet");
    std::fs::write(&path, whole).unwrap();
    let records = read(&path).concat();
    assert_eq!(records.len(), 248);
    assert_eq!(records.iter().map(|record| record.counters.bytes).sum::<u64>(), 2 * 139_853);
    let file = FlowFile::open(&path).unwrap();
    assert!(file.dictionary(0, Field::Src).unwrap().is_none());
    let (start, length) = file.place(0, Field::Src, false).unwrap();
    let mut bytes = whole.to_vec();
    bytes[(start + length / 2) as usize] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(FlowFile::open(&path).unwrap().column(0, Field::Src, None, None, &mut Spare::default()).is_err());
}

/// Names and types as other engines see them: only what all of them have.
#[test]
fn types_are_those_that_every_engine_has() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    write(&path, &[vec![testing::likely_record(&mut testing::Chance::new(5))]]);
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let described = schema.columns().iter().map(|column| {
        let needed = if column.max_def_level() > 0 { "" } else { " not null" };
        let logical = column.logical_type_ref().map_or(String::new(), |logical| format!(" {logical:?}"));
        (column.name().to_owned(), format!("{:?}{logical}{needed}", column.physical_type()))
    });
    let types: std::collections::BTreeMap<String, String> = described.collect();
    assert_eq!(types.len(), Field::STORED.len() + 4);
    let time = format!("INT64 {:?}", LogicalType::timestamp(true, TimeUnit::MICROS));
    for (name, is) in [
        ("flow_end", format!("{time} not null")),
        ("flow_end_ns", "INT32 not null".to_owned()),
        ("reverse_start", time.clone()),
        ("reverse_start_ns", "INT32".to_owned()),
        ("src", "BYTE_ARRAY String not null".to_owned()),
        ("next_hop", "BYTE_ARRAY String".to_owned()),
        ("src_port", "INT32 not null".to_owned()),
        ("src_as", "INT64".to_owned()),
        ("bytes", "INT64 not null".to_owned()),
        ("application", "BYTE_ARRAY String".to_owned()),
        ("src_mac", "BYTE_ARRAY String".to_owned()),
    ] {
        assert_eq!(types.get(name), Some(&is), "{name}");
    }
    let known = ["INT32", "INT64", "BYTE_ARRAY String", time.as_str()];
    for (name, is) in types {
        assert!(known.contains(&is.trim_end_matches(" not null")), "{name}: {is}");
    }
}

/// Numbers of 64 bits are signed in files: all come back, and a row group with the largest has no bounds.
#[test]
fn numbers_without_a_sign_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(17);
    let mut records: Vec<FlowRecord> = (0..8).map(|_| testing::likely_record(&mut chance)).collect();
    for (record, bytes) in records.iter_mut().zip([0, 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX]) {
        (record.counters.bytes, record.src_as) = (bytes, u32::MAX);
    }
    let (huge, small) = (records.clone(), records[..3].to_vec());
    write(&path, &[huge.clone(), small.clone()]);
    assert_eq!(read(&path), in_order(vec![huge, small]));
    let file = FlowFile::open(&path).unwrap();
    assert_eq!(file.bounds(0, Field::Bytes), None);
    assert_eq!(file.bounds(1, Field::Bytes), Some((0, i64::MAX as u64)));
    assert_eq!(file.bounds(1, Field::SrcAs), Some((u32::MAX.into(), u32::MAX.into())));
}

//! Records to a file and back.

use super::*;
use crate::block::Block;
use crate::schema::ColumnId;
use crate::testing;
use proptest::prelude::*;
use thalweg_flow::FlowRecord;

fn write(path: &std::path::Path, groups: &[Vec<FlowRecord>]) {
    let mut writer = FileWriter::create(path, &["a".to_owned(), "b".to_owned()]).unwrap();
    for group in groups {
        writer.append(&Block::of(group.iter())).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &std::path::Path) -> Vec<Vec<FlowRecord>> {
    let file = FlowFile::open(path).unwrap();
    (0..file.row_groups.len())
        .map(|number| {
            let mut block = Block::new(file.row_groups[number].rows);
            file.load(number, ColumnId::ALL, &mut block).unwrap();
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
        prop_assert_eq!(read(&path), groups);
    }
}

#[test]
fn many_rows_over_several_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(3);
    let records: Vec<FlowRecord> = (0..150_000).map(|_| testing::likely_record(&mut chance)).collect();
    write(&path, std::slice::from_ref(&records));
    assert_eq!(read(&path), std::slice::from_ref(&records));
    let file = FlowFile::open(&path).unwrap();
    assert_eq!(file.replaces, ["a", "b"]);
    let times = || records.iter().map(|record| record.counters.last_ns);
    assert_eq!(file.span(), times().min().zip(times().max()));
    let octets = || records.iter().map(|record| record.counters.octets);
    assert_eq!(file.bounds(0, ColumnId::Octets), octets().min().zip(octets().max()));
    assert!(file.is_absent(0, ColumnId::MplsLabel));
    assert!(!file.is_absent(0, ColumnId::SrcAs));
}

/// Whatever happens to a file's bytes, reading it is an error or gives records, and never a panic.
#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut chance = testing::Chance::new(11);
    let records: Vec<FlowRecord> = (0..200).map(|_| testing::any_record(&mut chance)).collect();
    write(&path, &[records]);
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
        for number in 0..file.row_groups.len() {
            let mut block = Block::new(file.row_groups[number].rows);
            if file.load(number, ColumnId::ALL, &mut block).is_ok() {
                for row in 0..block.rows {
                    let _ = block.record(row);
                }
            }
        }
    }
}

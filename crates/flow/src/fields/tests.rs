//! The table is consistent, and the pages generated from it are current.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;

/// Each name and each number belongs to one field.
#[test]
fn names_and_numbers_are_unique() {
    let names: BTreeSet<&str> = Field::ALL.iter().map(|field| field.name()).collect();
    let numbers: BTreeSet<u32> = Field::ALL.iter().map(|field| field.row().number).collect();
    assert_eq!((names.len(), numbers.len()), (Field::ALL.len(), Field::ALL.len()));
    assert!(Field::ALL.iter().enumerate().all(|(place, field)| field.index() == place));
    assert!(Field::ALL.starts_with(Field::STORED));
}

/// The name of a column's type.
fn type_name(kind: Kind) -> String {
    match kind {
        Kind::Time => "time".to_owned(),
        Kind::Wide => "unsigned, 64 bits".to_owned(),
        Kind::Number(bits) => format!("unsigned, {bits} bits"),
        Kind::Word(_) | Kind::Mac | Kind::Text => "text".to_owned(),
        Kind::Address => "address".to_owned(),
    }
}

/// docs/flow-record.md has a row for each field; `THALWEG_BLESS=1` writes them.
#[test]
fn the_page_of_fields_is_current() {
    let mut table = String::from("| field | type | may be unknown | IPFIX | what |\n|---|---|---|---|---|\n");
    for field in Field::ALL {
        let row = field.row();
        let elements: Vec<String> = row.elements.iter().map(u16::to_string).collect();
        let unknown = if field.is_nullable() { "yes" } else { "" };
        let (name, kind, elements) = (row.name, type_name(row.kind), elements.join(", "));
        table += &format!("| `{name}` | {kind} | {unknown} | {elements} | {} |\n", row.help);
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/flow-record.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (before, _) = text.split_once("| field |").expect("the table, which ends the page");
    let current = format!("{before}{table}");
    if std::env::var_os("THALWEG_BLESS").is_some() {
        std::fs::write(&page, &current).expect("it can be written");
    }
    let there = std::fs::read_to_string(&page).expect("the page");
    assert!(there == current, "docs/flow-record.md is not current: run this with THALWEG_BLESS=1");
}

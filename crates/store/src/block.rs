//! Records as columns: a row group in memory, on which every query works.
//!
//! Records that are in no file yet become blocks too, so filters and sums exist only once.

use std::net::IpAddr;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Access, Field, unknown_record};

use crate::error::StoreError;

/// Records that become columns at a time: few enough to stay in the second-level cache while each column is
/// built.
const TURN_RECORDS: usize = 1024;

/// The values of one column, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    Number(Vec<u32>),
    Wide(Vec<u64>),
    Address(Addresses),
}

impl Column {
    /// A column of unknown values.
    pub(crate) fn absent(field: Field, rows: usize) -> Self {
        let absent = field.row().absent.unwrap_or(0);
        match field.row().access {
            Access::Wide(..) => Self::Wide(vec![absent; rows]),
            Access::Number(..) | Access::Text(_) => Self::Number(vec![absent as u32; rows]),
            Access::Address(..) => Self::Address(Addresses { codes: vec![0; rows], distinct: vec![None] }),
        }
    }
}

/// Addresses with a dictionary.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Addresses {
    /// For each row, an index into `distinct`.
    pub(crate) codes: Vec<u32>,
    /// `None` is NULL.
    pub(crate) distinct: Vec<Option<IpAddr>>,
}

impl Addresses {
    pub(crate) fn get(&self, row: usize) -> Option<IpAddr> {
        self.distinct.get(*self.codes.get(row)? as usize).copied().flatten()
    }
}

/// Numbers addresses from 0, in order of appearance. IPv4 has its own table with entries of eight bytes: a
/// dataset has hundreds of thousands of addresses, and the table's size decides the cost of a look-up.
#[derive(Default)]
pub(crate) struct AddressNumbers {
    v4: HashMap<u32, u32, RandomState>,
    v6: HashMap<u128, u32, RandomState>,
    none: Option<u32>,
    pub(crate) distinct: Vec<Option<IpAddr>>,
}

impl AddressNumbers {
    /// The number of an address, new or known.
    pub(crate) fn number(&mut self, address: Option<IpAddr>) -> u32 {
        let next = self.distinct.len() as u32;
        let number = match address {
            Some(IpAddr::V4(address)) => *self.v4.entry(address.into()).or_insert(next),
            Some(IpAddr::V6(address)) => *self.v6.entry(address.into()).or_insert(next),
            None => *self.none.get_or_insert(next),
        };
        if number == next {
            self.distinct.push(address);
        }
        number
    }
}

/// Some rows with their loaded columns.
pub(crate) struct Block {
    pub(crate) rows: usize,
    columns: Vec<Option<Column>>,
}

impl Block {
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows, columns: Field::STORED.iter().map(|_| None).collect() }
    }

    pub(crate) fn of<'a>(records: impl ExactSizeIterator<Item = &'a FlowRecord>) -> Self {
        Self::of_columns(Field::STORED, records)
    }

    pub(crate) fn of_columns<'a>(
        ids: &[Field],
        records: impl ExactSizeIterator<Item = &'a FlowRecord>,
    ) -> Self {
        let rows = records.len();
        let mut builders: Vec<Builder> = ids.iter().map(|id| Builder::new(*id, rows)).collect();
        let mut records = records;
        let mut turn: Vec<&FlowRecord> = Vec::with_capacity(TURN_RECORDS);
        loop {
            turn.clear();
            turn.extend(records.by_ref().take(TURN_RECORDS));
            if turn.is_empty() {
                break;
            }
            for builder in &mut builders {
                builder.extend(&turn);
            }
        }
        let mut block = Self::new(rows);
        for mut builder in builders {
            if let Column::Address(addresses) = &mut builder.column {
                addresses.distinct = builder.numbers.distinct;
            }
            block.columns[builder.id.index()] = Some(builder.column);
        }
        block
    }

    pub(crate) fn insert(&mut self, id: Field, column: Column) {
        self.columns[id.index()] = Some(column);
    }

    /// Takes over the columns of another block of the same rows.
    pub(crate) fn take(&mut self, other: Block) {
        for (ours, theirs) in self.columns.iter_mut().zip(other.columns) {
            if theirs.is_some() {
                *ours = theirs;
            }
        }
    }

    pub(crate) fn has(&self, id: Field) -> bool {
        self.columns[id.index()].is_some()
    }

    /// A loaded column.
    pub(crate) fn column(&self, id: Field) -> Result<&Column, StoreError> {
        self.columns[id.index()].as_ref().ok_or_else(|| misused(id))
    }

    /// A loaded column of numbers or words.
    pub(crate) fn numbers(&self, id: Field) -> Result<&[u32], StoreError> {
        match self.column(id)? {
            Column::Number(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A loaded column of times or wide numbers.
    pub(crate) fn wide(&self, id: Field) -> Result<&[u64], StoreError> {
        match self.column(id)? {
            Column::Wide(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A loaded column of addresses.
    pub(crate) fn addresses(&self, id: Field) -> Result<&Addresses, StoreError> {
        match self.column(id)? {
            Column::Address(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A row as a record. All columns must be loaded.
    pub(crate) fn record(&self, row: usize) -> Result<FlowRecord, StoreError> {
        let mut record = unknown_record();
        for field in Field::STORED {
            let absent = field.row().absent;
            match field.row().access {
                Access::Wide(_, set) => {
                    let value = self.wide(*field)?[row];
                    if absent != Some(value) {
                        set(&mut record, value);
                    }
                }
                Access::Number(_, set) => {
                    let value = self.numbers(*field)?[row];
                    if absent != Some(value.into()) {
                        set(&mut record, value);
                    }
                }
                Access::Address(_, set) => match self.addresses(*field)?.get(row) {
                    Some(address) => set(&mut record, address),
                    None if absent.is_some() => {}
                    None => return Err(StoreError::Encoding("a flow without addresses".into())),
                },
                // No column has one.
                Access::Text(_) => {}
            }
        }
        Ok(record)
    }
}

fn misused(id: Field) -> StoreError {
    StoreError::Encoding(format!("column {} is not loaded as it is used", id.name()))
}

/// A column under construction.
struct Builder {
    id: Field,
    column: Column,
    numbers: AddressNumbers,
}

impl Builder {
    fn new(id: Field, rows: usize) -> Self {
        let column = match id.row().access {
            Access::Wide(..) => Column::Wide(Vec::with_capacity(rows)),
            Access::Number(..) | Access::Text(_) => Column::Number(Vec::with_capacity(rows)),
            Access::Address(..) => {
                Column::Address(Addresses { codes: Vec::with_capacity(rows), distinct: Vec::new() })
            }
        };
        Self { id, column, numbers: AddressNumbers::default() }
    }

    fn extend(&mut self, records: &[&FlowRecord]) {
        match (&mut self.column, self.id.row().access) {
            (Column::Wide(values), Access::Wide(get, _)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            (Column::Number(values), Access::Number(get, _)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            (Column::Address(values), Access::Address(get, _)) => {
                let numbers = &mut self.numbers;
                values.codes.extend(records.iter().map(|record| numbers.number(get(record))));
            }
            // The column's kind was derived from the same access function above.
            _ => unreachable!("a column is made for its values"),
        }
    }
}

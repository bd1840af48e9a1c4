//! Records as columns: what a row group is in memory, and what every query works on.
//!
//! Records that are in no file yet become blocks, too, so filters and sums exist once.

use std::net::IpAddr;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use thalweg_base::DropReason;
use thalweg_flow::{Counters, Drops, EndReason, FlowKey, FlowRecord, Translation};

use crate::error::StoreError;
use crate::schema::{ABSENT_WIDE, ColumnId, Get, NO_TRANSLATION};

/// Records that are turned into columns at a time: few enough that they stay in the second-level cache while each column
/// takes its part of them.
const TURN_RECORDS: usize = 1024;

/// The values of one column, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    Number(Vec<u32>),
    Wide(Vec<u64>),
    Address(Addresses),
}

/// Addresses, each distinct one once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Addresses {
    /// For each row a place in `distinct`.
    pub(crate) codes: Vec<u32>,
    /// What the codes stand for; `None` is NULL.
    pub(crate) distinct: Vec<Option<IpAddr>>,
}

impl Addresses {
    /// The address of a row.
    pub(crate) fn get(&self, row: usize) -> Option<IpAddr> {
        self.distinct.get(*self.codes.get(row)? as usize).copied().flatten()
    }
}

/// Numbers for addresses, from 0, in the order in which they come. IPv4 has a table of its own with entries of eight bytes: a
/// dataset has hundreds of thousands of them, and what a look-up costs is where the table lies.
#[derive(Default)]
pub(crate) struct AddressNumbers {
    v4: HashMap<u32, u32, RandomState>,
    v6: HashMap<u128, u32, RandomState>,
    none: Option<u32>,
    pub(crate) distinct: Vec<Option<IpAddr>>,
}

impl AddressNumbers {
    /// The number of an address, a new one if it has none.
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

/// Some rows, as far as their columns are loaded.
pub(crate) struct Block {
    pub(crate) rows: usize,
    columns: Vec<Option<Column>>,
}

impl Block {
    /// A block of which no column is loaded.
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows, columns: ColumnId::ALL.iter().map(|_| None).collect() }
    }

    /// All columns of these records.
    pub(crate) fn of<'a>(records: impl ExactSizeIterator<Item = &'a FlowRecord>) -> Self {
        Self::of_columns(ColumnId::ALL, records)
    }

    /// Some columns of these records.
    pub(crate) fn of_columns<'a>(
        ids: &[ColumnId],
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

    /// Puts a column in its place.
    pub(crate) fn insert(&mut self, id: ColumnId, column: Column) {
        self.columns[id.index()] = Some(column);
    }

    /// Takes the columns that another block of the same rows has.
    pub(crate) fn take(&mut self, other: Block) {
        for (ours, theirs) in self.columns.iter_mut().zip(other.columns) {
            if theirs.is_some() {
                *ours = theirs;
            }
        }
    }

    /// Whether a column is loaded.
    pub(crate) fn has(&self, id: ColumnId) -> bool {
        self.columns[id.index()].is_some()
    }

    /// A column that was loaded.
    pub(crate) fn column(&self, id: ColumnId) -> Result<&Column, StoreError> {
        self.columns[id.index()].as_ref().ok_or_else(|| misused(id))
    }

    /// A loaded column of numbers or words.
    pub(crate) fn numbers(&self, id: ColumnId) -> Result<&[u32], StoreError> {
        match self.column(id)? {
            Column::Number(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A loaded column of times or wide numbers.
    pub(crate) fn wide(&self, id: ColumnId) -> Result<&[u64], StoreError> {
        match self.column(id)? {
            Column::Wide(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A loaded column of addresses.
    pub(crate) fn addresses(&self, id: ColumnId) -> Result<&Addresses, StoreError> {
        match self.column(id)? {
            Column::Address(values) => Ok(values),
            _ => Err(misused(id)),
        }
    }

    /// A row as a record. All columns must be loaded.
    pub(crate) fn record(&self, row: usize) -> Result<FlowRecord, StoreError> {
        let number = |id| self.numbers(id).map(|values| values[row]);
        let small = |id| number(id).map(|value| value as u8);
        let port = |id| number(id).map(|value| value as u16);
        let maybe = |id| number(id).map(|value| u8::try_from(value).ok());
        let wide = |id| self.wide(id).map(|values| values[row]);
        let address = |id| self.addresses(id).map(|values| values.get(row));
        let known = |id| address(id)?.ok_or_else(|| StoreError::Encoding("a flow without addresses".into()));
        use ColumnId as C;
        let key = FlowKey {
            src: known(C::Src)?,
            dst: known(C::Dst)?,
            src_port: port(C::SrcPort)?,
            dst_port: port(C::DstPort)?,
            protocol: small(C::Protocol)?,
            traffic_class: small(C::TrafficClass)?,
            ingress: number(C::Ingress)?,
            vlan: port(C::Vlan)?,
            mpls_label: Some(number(C::MplsLabel)?).filter(|label| *label != u32::MAX),
        };
        let counters = Counters {
            packets: wide(C::Packets)?,
            bytes: wide(C::Bytes)?,
            first_ns: wide(C::FlowStart)?,
            last_ns: wide(C::FlowEnd)?,
            tcp_flags: maybe(C::TcpFlags)?,
            ttl_min: maybe(C::TtlMin)?,
            ttl_max: maybe(C::TtlMax)?,
        };
        let end_reason = EndReason::from_code(small(C::EndReasonWord)?);
        let mut record = FlowRecord::new(key, counters, end_reason);
        if wide(C::ReversePackets)? != ABSENT_WIDE {
            record.reverse = Some(Counters {
                packets: wide(C::ReversePackets)?,
                bytes: wide(C::ReverseBytes)?,
                first_ns: wide(C::ReverseStart)?,
                last_ns: wide(C::ReverseEnd)?,
                tcp_flags: maybe(C::ReverseTcpFlags)?,
                ttl_min: maybe(C::ReverseTtlMin)?,
                ttl_max: maybe(C::ReverseTtlMax)?,
            });
        }
        record.application = small(C::App)?;
        record.egress = number(C::Egress)?;
        record.next_hop = address(C::NextHop)?;
        record.src_as = number(C::SrcAs)?;
        record.dst_as = number(C::DstAs)?;
        record.bgp_next_hop = address(C::BgpNextHop)?;
        if number(C::NatSrcPort)? != NO_TRANSLATION {
            record.translation = Some(Translation {
                src: known(C::NatSrc)?,
                dst: known(C::NatDst)?,
                src_port: port(C::NatSrcPort)?,
                dst_port: port(C::NatDstPort)?,
            });
        }
        record.drops = self.drops(row)?;
        record.sampling_interval = number(C::SamplingInterval)?;
        Ok(record)
    }

    fn drops(&self, row: usize) -> Result<Drops, StoreError> {
        use ColumnId as C;
        let mut by_reason = Vec::new();
        for (reason, packets) in [
            (C::DropReason1, C::DropPackets1),
            (C::DropReason2, C::DropPackets2),
            (C::DropReason3, C::DropPackets3),
        ] {
            if let Some(reason) = DropReason::from_code(self.numbers(reason)?[row] as u8) {
                by_reason.push((reason, self.numbers(packets)?[row]));
            }
        }
        let told: u64 = by_reason.iter().map(|(_, packets)| u64::from(*packets)).sum();
        let others = self.wide(C::DroppedPackets)?[row].saturating_sub(told);
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        Ok(Drops::restored(&by_reason, others, self.wide(C::DroppedBytes)?[row]))
    }
}

fn misused(id: ColumnId) -> StoreError {
    StoreError::Encoding(format!("column {} is not loaded as it is used", id.definition().name))
}

/// A column that grows.
struct Builder {
    id: ColumnId,
    column: Column,
    numbers: AddressNumbers,
}

impl Builder {
    fn new(id: ColumnId, rows: usize) -> Self {
        let column = match id.definition().get {
            Get::Wide(_) => Column::Wide(Vec::with_capacity(rows)),
            Get::Number(_) => Column::Number(Vec::with_capacity(rows)),
            Get::Address(_) => {
                Column::Address(Addresses { codes: Vec::with_capacity(rows), distinct: Vec::new() })
            }
        };
        Self { id, column, numbers: AddressNumbers::default() }
    }

    fn extend(&mut self, records: &[&FlowRecord]) {
        match (&mut self.column, self.id.definition().get) {
            (Column::Wide(values), Get::Wide(get)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            (Column::Number(values), Get::Number(get)) => {
                values.extend(records.iter().map(|record| get(record)));
            }
            (Column::Address(values), Get::Address(get)) => {
                let numbers = &mut self.numbers;
                values.codes.extend(records.iter().map(|record| numbers.number(get(record))));
            }
            // The kind of a column follows from how its values are found, a few lines above.
            _ => unreachable!("a column is made for its values"),
        }
    }
}

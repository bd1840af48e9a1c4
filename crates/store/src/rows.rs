//! Rows of a dataset for queries: columns are loaded on demand.

use std::borrow::Cow;
use std::sync::Arc;

use crate::block::{Block, Dictionary, Spare, at};
use crate::dataset::Batch;
use crate::error::StoreError;
use crate::file::FlowFile;
use thalweg_flow::fields::Field;

/// A unit of work.
#[derive(Clone)]
pub(crate) enum Task {
    Group(Arc<FlowFile>, usize),
    Batch(Batch),
}

/// Of fewer than one row in so many, only what they have is looked at further.
const FEW: usize = 4;

/// Rows of a row group or a batch; columns are loaded on demand.
pub(crate) struct Rows<'a> {
    pub(crate) task: &'a Task,
    block: Block,
    /// The places of the block's rows in the task, ascending; `None` if it has all of them.
    places: Option<Vec<u32>>,
    /// Dictionaries of columns that are not loaded yet.
    dictionaries: Vec<(Field, Dictionary)>,
    /// Do not multiply counters.
    raw: bool,
    spare: &'a mut Spare,
    /// The rows of the query; `None` means all.
    pub(crate) selected: Option<Vec<bool>>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(task: &'a Task, raw: bool, spare: &'a mut Spare) -> Self {
        let rows = match task {
            Task::Group(file, number) => file.row_groups[*number].rows,
            Task::Batch(batch) => batch.records.len(),
        };
        Self {
            task,
            block: Block::new(rows),
            places: None,
            dictionaries: Vec::new(),
            raw,
            spare,
            selected: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.block.rows
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    pub(crate) fn need(&mut self, ids: &[Field]) -> Result<(), StoreError> {
        let missing = ids.iter().copied().filter(|id| !self.block.has(*id));
        let places = self.places.as_deref();
        match self.task {
            Task::Group(file, number) => {
                for id in missing.collect::<Vec<_>>() {
                    let known = self.dictionaries.iter().position(|(of, _)| *of == id);
                    let dictionary = known.map(|known| self.dictionaries.swap_remove(known).1);
                    self.block.insert(id, file.column(*number, id, places, dictionary, self.spare)?);
                }
            }
            Task::Batch(batch) => {
                let missing: Vec<Field> = missing.collect();
                let columns = match places {
                    None => Block::of_columns(&missing, batch.records.iter()),
                    Some(places) => {
                        let records = places.iter().map(|place| &batch.records[at(*place)]);
                        Block::of_columns(&missing, records)
                    }
                };
                self.block.take(columns);
            }
        }
        Ok(())
    }

    /// A flag for each row, not set.
    pub(crate) fn flags(&mut self) -> Vec<bool> {
        self.spare.flags(self.block.rows)
    }

    /// Whether no row can have a value for which this holds, as far as the column's dictionary alone tells.
    pub(crate) fn excludes(
        &mut self,
        id: Field,
        holds: impl FnOnce(&Dictionary) -> bool,
    ) -> Result<bool, StoreError> {
        let Task::Group(file, number) = self.task else { return Ok(false) };
        if self.block.has(id) || self.places.is_some() {
            return Ok(false);
        }
        if !self.dictionaries.iter().any(|(of, _)| *of == id) {
            let Some(dictionary) = file.dictionary(*number, id)? else { return Ok(false) };
            self.dictionaries.push((id, dictionary));
        }
        let known = self.dictionaries.iter().find(|(of, _)| *of == id);
        Ok(known.is_some_and(|(_, dictionary)| !holds(dictionary)))
    }

    /// Leaves only these of the selected rows; returns whether there are any.
    pub(crate) fn narrow(&mut self, mut wanted: Vec<bool>) -> bool {
        if let Some(selected) = &self.selected {
            wanted.iter_mut().zip(selected).for_each(|(row, selected)| *row &= selected);
        }
        let count = wanted.iter().filter(|wanted| **wanted).count();
        if count > 0 && count <= wanted.len() / FEW {
            let rows: Vec<u32> =
                (0..).zip(&wanted).filter(|(_, wanted)| **wanted).map(|(row, _)| row).collect();
            self.spare.keep_flags(wanted);
            self.pick(rows);
        } else {
            let selected = (count < wanted.len()).then_some(wanted);
            if let Some(before) = std::mem::replace(&mut self.selected, selected) {
                self.spare.keep_flags(before);
            }
        }
        count > 0
    }

    /// Leaves only these rows, ascending, as if there had been no others.
    pub(crate) fn pick(&mut self, rows: Vec<u32>) {
        self.block.pick(&rows);
        self.selected = None;
        self.places = Some(match &self.places {
            None => rows,
            Some(places) => rows.iter().map(|row| places[at(*row)]).collect(),
        });
    }

    /// The row's place in the row group or batch.
    pub(crate) fn place(&self, row: usize) -> usize {
        self.places.as_ref().map_or(row, |places| at(places[row]))
    }

    /// Whether each row is the sum of some records.
    pub(crate) fn is_rollup(&self) -> bool {
        matches!(self.task, Task::Group(file, _) if file.rollup.is_some())
    }

    /// Whether the rows are in no file.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.task, Task::Batch(_))
    }

    /// Whether a column is known to be entirely NULL, without loading it.
    pub(crate) fn is_absent(&self, id: Field) -> bool {
        matches!(self.task, Task::Group(file, number) if file.is_absent(*number, id))
    }

    /// Whether any row may be of sampled traffic.
    pub(crate) fn may_be_sampled(&self) -> bool {
        match self.task {
            Task::Group(file, number) => file.bounds(*number, Field::SamplingInterval) != Some((1, 1)),
            Task::Batch(batch) => batch.records.iter().any(|record| record.sampling_interval != 1),
        }
    }

    /// Loads the sampling intervals that counters are multiplied by, unless all are 1.
    pub(crate) fn need_scale(&mut self) -> Result<(), StoreError> {
        if self.raw || !self.may_be_sampled() { Ok(()) } else { self.need(&[Field::SamplingInterval]) }
    }

    /// Values of a counter, multiplied by the sampling intervals if [`Self::need_scale`] loaded any.
    pub(crate) fn scaled<'v>(&self, counters: Cow<'v, [u64]>) -> Result<Cow<'v, [u64]>, StoreError> {
        if self.raw || !self.block.has(Field::SamplingInterval) {
            return Ok(counters);
        }
        let intervals = self.block.numbers(Field::SamplingInterval)?;
        let mut counters = counters.into_owned();
        let rows = counters.iter_mut().zip(intervals);
        rows.for_each(|(counter, interval)| *counter = counter.saturating_mul(u64::from(*interval).max(1)));
        Ok(counters.into())
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        self.spare.keep(std::mem::replace(&mut self.block, Block::new(0)));
        if let Some(selected) = self.selected.take() {
            self.spare.keep_flags(selected);
        }
    }
}

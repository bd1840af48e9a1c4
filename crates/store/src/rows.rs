//! Rows of a dataset for queries: columns are loaded on demand.

use std::borrow::Cow;
use std::sync::Arc;

use crate::block::Block;
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

/// Rows of a row group or a batch; columns are loaded on demand.
pub(crate) struct Rows<'a> {
    pub(crate) task: &'a Task,
    block: Block,
    /// Do not multiply counters.
    raw: bool,
    /// The rows of the query; `None` means all.
    pub(crate) selected: Option<Vec<bool>>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(task: &'a Task, raw: bool) -> Self {
        let rows = match task {
            Task::Group(file, number) => file.row_groups[*number].rows,
            Task::Batch(batch) => batch.records.len(),
        };
        Self { task, block: Block::new(rows), raw, selected: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.block.rows
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    pub(crate) fn need(&mut self, ids: &[Field]) -> Result<(), StoreError> {
        match self.task {
            Task::Group(file, number) => file.load(*number, ids, &mut self.block),
            Task::Batch(batch) => {
                let missing: Vec<Field> = ids.iter().copied().filter(|id| !self.block.has(*id)).collect();
                self.block.take(Block::of_columns(&missing, batch.records.iter()));
                Ok(())
            }
        }
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

//! Writes flow files: blocks become row groups of a temporary file, which is complete on disk before it gets
//! its name.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use thalweg_flow::FlowRecord;

use super::encode::{Chunk, Given, encode};
use super::read::dictionary_length;
use super::{FOOTER_KEY, FORMAT_KEY, REPLACES_KEY, ROLLUP_KEY, RollupFacts, SUMS_KEY, VERSION, checksum};
use crate::block::{Block, Spare};
use crate::error::StoreError;
use crate::schema::{COLUMNS, FileColumn, ROLLUP_SCHEMA, SCHEMA, writer_properties};

/// A file that is being written.
pub(crate) struct FileWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    /// Names of the files that it will replace, separated by commas.
    replaces: String,
    /// What the footer of a rollup says.
    rollup: Option<String>,
    /// Checksums of the columns of row groups.
    sums: Vec<Vec<u64>>,
}

impl FileWriter {
    /// Begins a file that will replace the named ones in the same folder.
    pub(crate) fn create(path: &Path, replaces: &[String]) -> Result<Self, StoreError> {
        Self::begin(path, replaces, None)
    }

    /// [`Self::create`], of a rollup.
    pub(crate) fn create_rollup(
        path: &Path,
        replaces: &[String],
        facts: &RollupFacts,
    ) -> Result<Self, StoreError> {
        Self::begin(path, replaces, Some(facts.to_text()))
    }

    fn begin(path: &Path, replaces: &[String], rollup: Option<String>) -> Result<Self, StoreError> {
        let file = File::create(path).map_err(StoreError::io("create", path))?;
        let replaces = replaces.join(",");
        let mut pairs = vec![KeyValue::new(FORMAT_KEY.to_owned(), VERSION.to_owned())];
        if !replaces.is_empty() {
            pairs.push(KeyValue::new(REPLACES_KEY.to_owned(), replaces.clone()));
        }
        pairs.extend(rollup.clone().map(|facts| KeyValue::new(ROLLUP_KEY.to_owned(), facts)));
        let properties = writer_properties().set_key_value_metadata(Some(pairs)).build();
        let schema = if rollup.is_some() { &*ROLLUP_SCHEMA } else { &*SCHEMA };
        let Some(root) = schema else {
            return Err(StoreError::Encoding("the schema is impossible".to_owned()));
        };
        let writer = SerializedFileWriter::new(file, root.clone(), Arc::new(properties))
            .map_err(|error| failed(path, error))?;
        Ok(Self { path: path.to_path_buf(), writer, replaces, rollup, sums: Vec::new() })
    }

    /// Adds a row group, in the order of the flows' ends. What is made on the way is in memory from `spare`, and goes back
    /// there.
    pub(crate) fn append<'a>(
        &mut self,
        records: impl ExactSizeIterator<Item = &'a FlowRecord>,
        spare: &mut Spare,
    ) -> Result<(), StoreError> {
        let mut block = Block::of(records, spare);
        block.sort_by_end(spare)?;
        self.append_block(&block, spare)?;
        spare.keep(block);
        Ok(())
    }

    fn append_block(&mut self, block: &Block, spare: &mut Spare) -> Result<(), StoreError> {
        let given = |column: &FileColumn| match block.repeated(column.field) {
            Some(value) => Ok(Given::All(value)),
            None => block.column(column.field).map(Given::Each),
        };
        let columns: Vec<(&FileColumn, Given<'_>)> =
            COLUMNS.iter().map(|column| Ok((column, given(column)?))).collect::<Result<_, StoreError>>()?;
        self.append_columns(block.rows, &columns, spare).map_err(|error| failed(&self.path, error))
    }

    fn append_columns(
        &mut self,
        rows: usize,
        columns: &[(&FileColumn, Given<'_>)],
        spare: &mut Spare,
    ) -> Result<(), ParquetError> {
        let descriptors = self.writer.schema_descr().columns().to_vec();
        let mut sums = Vec::with_capacity(2 * columns.len());
        let mut group = self.writer.next_row_group()?;
        for ((column, given), descriptor) in columns.iter().zip(descriptors) {
            let Chunk { bytes, closed } = encode(column, descriptor, rows, given, spare)?;
            let (dictionary, rest) = bytes.split_at(dictionary_length(&closed.metadata).min(bytes.len()));
            sums.extend([checksum::sum(dictionary), checksum::sum(rest)]);
            group.append_column(&bytes, closed)?;
        }
        group.close()?;
        self.sums.push(sums);
        Ok(())
    }

    /// Writes the footer and syncs the file.
    pub(crate) fn finish(mut self) -> Result<(), StoreError> {
        let sums = checksum::write_sums(&self.sums);
        let groups = self.writer.flushed_row_groups();
        let footer = {
            let mut texts = vec![VERSION, &self.replaces, &sums];
            texts.extend(self.rollup.as_deref());
            checksum::sum_of_footer(groups, &texts, true)
        };
        for (key, value) in [(SUMS_KEY, sums), (FOOTER_KEY, format!("{footer:016x}"))] {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let path = self.path;
        let file = self.writer.into_inner().map_err(|error| failed(&path, error))?;
        file.sync_all().map_err(StoreError::io("sync", &path))
    }
}

/// A write error of the Parquet library usually wraps an error of the system.
fn failed(path: &Path, error: ParquetError) -> StoreError {
    let source = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => *source,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    };
    StoreError::Io { doing: "write", path: path.to_path_buf(), source }
}

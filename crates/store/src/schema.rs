//! The columns of a flow file: the Parquet type of each stored field (`thalweg_flow::fields`).
//!
//! The schema is flat and has only types that every engine has: addresses and names are text
//! (dictionary-encoded, so each is stored once per row group), times are `TIMESTAMP` in microseconds and UTC,
//! numbers are signed, of 32 bits if that is enough for the field and of 64 if not. What a time has below a
//! microsecond is in a column of its own. Unknown values are NULL.

use std::sync::{Arc, LazyLock};

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::{ColumnDescriptor, Type, TypePtr};
use thalweg_flow::fields::{Field, Kind};

/// Nanoseconds of the unit of times.
pub(crate) const UNIT_NS: u64 = 1000;

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileColumn {
    pub(crate) name: String,
    pub(crate) field: Field,
    /// It has the nanoseconds of a time, below [`UNIT_NS`].
    pub(crate) is_rest: bool,
}

/// The columns in the order in which they are written.
pub(crate) static COLUMNS: LazyLock<Vec<FileColumn>> = LazyLock::new(|| {
    let whole = |field: &Field| FileColumn { name: field.name().to_owned(), field: *field, is_rest: false };
    let rest =
        |field: &Field| FileColumn { name: format!("{}_ns", field.name()), field: *field, is_rest: true };
    let times = Field::STORED.iter().filter(|field| field.row().kind == Kind::Time);
    Field::STORED.iter().map(whole).chain(times.map(rest)).collect()
});

/// Where a row of a rollup has the number of its records: a rollup has no next AS. In files the column is named
/// [`RECORDS_NAME`].
pub(crate) const RECORDS: Field = Field::NextAs;
const RECORDS_NAME: &str = "records";

/// The schema of the files.
pub(crate) static SCHEMA: LazyLock<Option<TypePtr>> = LazyLock::new(|| schema(COLUMNS.iter().cloned()));

/// That of rollups.
pub(crate) static ROLLUP_SCHEMA: LazyLock<Option<TypePtr>> = LazyLock::new(|| {
    let name = |column: &FileColumn| match column.field {
        RECORDS => FileColumn { name: RECORDS_NAME.to_owned(), ..column.clone() },
        _ => column.clone(),
    };
    schema(COLUMNS.iter().map(name))
});

fn schema(columns: impl Iterator<Item = FileColumn>) -> Option<TypePtr> {
    let columns: Result<Vec<TypePtr>, _> =
        columns.map(|column| column.parquet_type().map(Arc::new)).collect();
    Some(Arc::new(Type::group_type_builder("flow").with_fields(columns.ok()?).build().ok()?))
}

impl FileColumn {
    fn physical_type(&self) -> PhysicalType {
        match self.field.row().kind {
            Kind::Time if self.is_rest => PhysicalType::INT32,
            Kind::Number(bits) if bits < 32 => PhysicalType::INT32,
            Kind::Time | Kind::Wide | Kind::Number(_) => PhysicalType::INT64,
            Kind::Word(_) | Kind::Address | Kind::Mac | Kind::Text => PhysicalType::BYTE_ARRAY,
        }
    }

    /// The type in an Iceberg table.
    pub(crate) fn iceberg_type(&self) -> &'static str {
        match self.physical_type() {
            PhysicalType::INT32 => "int",
            PhysicalType::INT64 if self.field.row().kind == Kind::Time => "timestamptz",
            PhysicalType::INT64 => "long",
            _ => "string",
        }
    }

    fn parquet_type(&self) -> Result<Type, parquet::errors::ParquetError> {
        let logical = match self.physical_type() {
            PhysicalType::BYTE_ARRAY => Some(LogicalType::String),
            _ if self.field.row().kind == Kind::Time && !self.is_rest => {
                Some(LogicalType::timestamp(true, TimeUnit::MICROS))
            }
            _ => None,
        };
        let repetition = if self.field.is_nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(&self.name, self.physical_type())
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    /// Whether a column of a file has this form, or that of the version with unsigned numbers.
    pub(crate) fn fits(&self, theirs: &ColumnDescriptor) -> bool {
        let physical = theirs.physical_type();
        let is_number = matches!(self.field.row().kind, Kind::Number(_));
        (physical == self.physical_type() || is_number && physical == PhysicalType::INT32)
            && theirs.max_def_level() == i16::from(self.field.is_nullable())
            && theirs.max_rep_level() == 0
    }
}

/// The column of this name; it is likely to be at this place.
pub(crate) fn column_of(name: &str, likely: usize) -> Option<&'static FileColumn> {
    let name = if name == RECORDS_NAME { RECORDS.name() } else { name };
    let is_it = |column: &&FileColumn| column.name == name;
    COLUMNS.get(likely).filter(is_it).or_else(|| COLUMNS.iter().find(is_it))
}

/// What the library has to know to write footers; columns come encoded.
pub(crate) fn writer_properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by("thalweg".to_owned())
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None)
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: Field::FlowEnd as i32,
            descending: false,
            nulls_first: false,
        }]))
}

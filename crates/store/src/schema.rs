//! The columns of a flow file: the type and Parquet encoding of each stored field (`thalweg_flow::fields`).
//!
//! The schema is flat and suits other engines as well: addresses and names are text (dictionary-encoded, so
//! each is stored once per row group), times are `TIMESTAMP` in nanoseconds and UTC, counters are unsigned
//! 64-bit numbers. Unknown values are NULL.

use std::sync::{Arc, LazyLock};

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::schema::types::{ColumnPath, SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use thalweg_flow::fields::{Field, Kind};

/// The schema of the files.
pub(crate) static SCHEMA: LazyLock<Option<(TypePtr, SchemaDescPtr)>> = LazyLock::new(|| {
    let fields: Result<Vec<TypePtr>, _> =
        Field::STORED.iter().map(|field| column(*field).map(Arc::new)).collect();
    let root = Arc::new(Type::group_type_builder("flow").with_fields(fields.ok()?).build().ok()?);
    Some((root.clone(), Arc::new(SchemaDescriptor::new(root))))
});

fn column(field: Field) -> Result<Type, parquet::errors::ParquetError> {
    let (physical, logical) = match field.row().kind {
        Kind::Time => (PhysicalType::INT64, LogicalType::timestamp(true, TimeUnit::NANOS)),
        Kind::Wide => (PhysicalType::INT64, LogicalType::integer(64, false)),
        Kind::Number(bits) => (PhysicalType::INT32, LogicalType::integer(bits as i8, false)),
        Kind::Word(_) | Kind::Address | Kind::Mac | Kind::Text => {
            (PhysicalType::BYTE_ARRAY, LogicalType::String)
        }
    };
    let repetition = if field.is_nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(field.name(), physical)
        .with_repetition(repetition)
        .with_logical_type(Some(logical))
        .build()
}

/// Dictionaries must never be abandoned for their size: readers rely on them.
const DICTIONARY_BYTES_MAX: usize = 256 << 20;
/// Rows of a page: small enough to decode in the first-level cache, large enough to make headers negligible.
const PAGE_ROWS: usize = 65_536;

/// A page stays uncompressed unless compression shrinks it below this share: a reader need not decompress it,
/// and dictionary codes hardly compress. Needs pages of version 2, which have a flag per page.
const COMPRESSED_SHARE_MAX: f64 = 0.85;

/// How files are written. Measurements chose the encodings, see `docs/flow-store.md`.
pub(crate) fn writer_properties() -> WriterPropertiesBuilder {
    let mut properties = WriterProperties::builder()
        .set_created_by("thalweg".to_owned())
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::LZ4_RAW)
        .set_data_page_v2_compression_ratio_threshold(COMPRESSED_SHARE_MAX)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_data_page_size_limit(8 << 20)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None)
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: Field::FlowEnd as i32,
            descending: false,
            nulls_first: false,
        }]));
    for field in Field::STORED {
        let path = ColumnPath::from(field.name());
        // Times are sorted or close together. Bytes are nearly all different and mostly small: the difference
        // to the next value needs half the bits of the value itself.
        if field.row().kind == Kind::Time || matches!(field, Field::Bytes | Field::ReverseBytes) {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties
}

//! The columns of a flow file: one row per column gives its name, its type in the file, how it is encoded and where its
//! value stands in a record.
//!
//! The schema is flat and made for other engines as well: addresses and names are text (dictionary-encoded, so each is
//! stored once per row group), times are `TIMESTAMP` in nanoseconds and UTC, counters are unsigned 64-bit numbers. What is
//! not known is NULL. Inside this crate an unknown value is a number of its own ([`Definition::absent`]) that no known
//! value has, so that a column is a plain vector.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};
use parquet::schema::types::{ColumnPath, SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use thalweg_base::DropReason;
use thalweg_flow::{Counters, EndReason, FlowRecord, NO_INTERFACE, SAMPLING_UNKNOWN};
use thalweg_wire::application;

/// What a wide column's value is where nothing is known.
pub(crate) const ABSENT_WIDE: u64 = u64::MAX;
/// What an MPLS label's value is where there is none: a label has 20 bits.
const NO_LABEL: u32 = u32::MAX;

/// Names that stand for small codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vocabulary {
    Application,
    EndReason,
    DropReason,
}

impl Vocabulary {
    /// The text of a code; codes without a name are written as numbers.
    pub(crate) fn text(self, code: u32) -> String {
        let small = u8::try_from(code).unwrap_or(0);
        let name = match self {
            Self::Application => application::by_code(small).map(|application| application.name),
            Self::EndReason => EndReason::from_code(small).map(EndReason::name),
            Self::DropReason => DropReason::from_code(small).map(DropReason::name),
        };
        name.map_or_else(|| code.to_string(), str::to_owned)
    }

    /// The code of a text; `None` for a name that is not known here.
    pub(crate) fn code(self, text: &str) -> Option<u32> {
        let code = match self {
            Self::Application => application::by_name(text).map(|application| application.code),
            Self::EndReason => {
                EndReason::ALL.iter().find(|reason| reason.name() == text).map(|reason| *reason as u8)
            }
            Self::DropReason => {
                DropReason::ALL.iter().find(|reason| reason.name() == text).map(|reason| *reason as u8)
            }
        };
        code.or_else(|| text.parse().ok()).map(u32::from)
    }
}

/// What a column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nanoseconds since the epoch.
    Time,
    /// An unsigned number of 64 bits.
    Wide,
    /// An unsigned number of so many bits, at most 32.
    Number(u8),
    /// A word for a code.
    Word(Vocabulary),
    /// An IPv4 or IPv6 address.
    Address,
}

/// How a column's value is found in a record.
#[derive(Clone, Copy)]
pub(crate) enum Get {
    Wide(fn(&FlowRecord) -> u64),
    Number(fn(&FlowRecord) -> u32),
    Address(fn(&FlowRecord) -> Option<IpAddr>),
}

/// A column.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The value that is NULL in the file; `None` if the column is never NULL. Addresses need none.
    pub(crate) absent: Option<u64>,
    pub(crate) get: Get,
}

impl Definition {
    /// Whether the file has NULLs in it.
    pub(crate) fn nullable(&self) -> bool {
        self.absent.is_some()
    }
}

macro_rules! columns {
    ($($variant:ident $name:literal $kind:expr, $absent:expr, $get:expr;)*) => {
        /// The columns, in the order in which they stand in the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub(crate) enum ColumnId { $($variant,)* }

        impl ColumnId {
            /// All columns.
            pub(crate) const ALL: &'static [ColumnId] = &[$(ColumnId::$variant,)*];
        }

        static DEFINITIONS: &[Definition] = &[$(Definition {
            name: $name, kind: $kind, absent: $absent, get: $get,
        },)*];
    };
}

impl ColumnId {
    /// What is known of this column.
    pub(crate) fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }

    /// Its place in the file.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// A value of the opposite direction, or that there is none.
fn reverse(record: &FlowRecord, value: fn(&Counters) -> u64) -> u64 {
    record.reverse.as_ref().map_or(ABSENT_WIDE, value)
}

/// A small value of the opposite direction; whether there is one is said by the wide ones.
fn reverse_small(record: &FlowRecord, value: fn(&Counters) -> Option<u8>) -> u32 {
    small(record.reverse.as_ref().and_then(value))
}

/// A value of eight bits, if it is known.
fn small(value: Option<u8>) -> u32 {
    value.map_or(NO_SMALL, u32::from)
}

/// What an eight-bit column's value is where nothing is known.
pub(crate) const NO_SMALL: u32 = 256;

fn drop_reason(record: &FlowRecord, place: usize) -> u32 {
    record.drops.by_reason().nth(place).map_or(0, |(reason, _)| reason as u32)
}

fn drop_packets(record: &FlowRecord, place: usize) -> u32 {
    record.drops.by_reason().nth(place).map_or(0, |(_, packets)| packets)
}

columns! {
    FlowEnd "flow_end" Kind::Time, None, Get::Wide(|r| r.counters.last_ns);
    FlowStart "flow_start" Kind::Time, None, Get::Wide(|r| r.counters.first_ns);
    Src "src" Kind::Address, None, Get::Address(|r| Some(r.key.src));
    Dst "dst" Kind::Address, None, Get::Address(|r| Some(r.key.dst));
    SrcPort "src_port" Kind::Number(16), None, Get::Number(|r| r.key.src_port.into());
    DstPort "dst_port" Kind::Number(16), None, Get::Number(|r| r.key.dst_port.into());
    Protocol "protocol" Kind::Number(8), None, Get::Number(|r| r.key.protocol.into());
    Packets "packets" Kind::Wide, None, Get::Wide(|r| r.counters.packets);
    Bytes "bytes" Kind::Wide, None, Get::Wide(|r| r.counters.bytes);
    TcpFlags "tcp_flags" Kind::Number(8), Some(NO_SMALL as u64), Get::Number(|r| small(r.counters.tcp_flags));
    TrafficClass "traffic_class" Kind::Number(8), None, Get::Number(|r| r.key.traffic_class.into());
    TtlMin "ttl_min" Kind::Number(8), Some(NO_SMALL as u64), Get::Number(|r| small(r.counters.ttl_min));
    TtlMax "ttl_max" Kind::Number(8), Some(NO_SMALL as u64), Get::Number(|r| small(r.counters.ttl_max));
    EndReasonWord "end_reason" Kind::Word(Vocabulary::EndReason), Some(0),
        Get::Number(|r| r.end_reason.map_or(0, |reason| reason as u32));
    App "application" Kind::Word(Vocabulary::Application), Some(0), Get::Number(|r| r.application.into());
    Ingress "ingress" Kind::Number(32), Some(NO_INTERFACE as u64), Get::Number(|r| r.key.ingress);
    Egress "egress" Kind::Number(32), Some(NO_INTERFACE as u64), Get::Number(|r| r.egress);
    Vlan "vlan" Kind::Number(16), Some(0), Get::Number(|r| r.key.vlan.into());
    MplsLabel "mpls_label" Kind::Number(32), Some(NO_LABEL as u64),
        Get::Number(|r| r.key.mpls_label.unwrap_or(NO_LABEL));
    SrcAs "src_as" Kind::Number(32), Some(0), Get::Number(|r| r.src_as);
    DstAs "dst_as" Kind::Number(32), Some(0), Get::Number(|r| r.dst_as);
    NextHop "next_hop" Kind::Address, Some(0), Get::Address(|r| r.next_hop);
    BgpNextHop "bgp_next_hop" Kind::Address, Some(0), Get::Address(|r| r.bgp_next_hop);
    NatSrc "nat_src" Kind::Address, Some(0), Get::Address(|r| r.translation.map(|t| t.src));
    NatDst "nat_dst" Kind::Address, Some(0), Get::Address(|r| r.translation.map(|t| t.dst));
    NatSrcPort "nat_src_port" Kind::Number(16), Some(NO_TRANSLATION as u64),
        Get::Number(|r| r.translation.map_or(NO_TRANSLATION, |t| t.src_port.into()));
    NatDstPort "nat_dst_port" Kind::Number(16), Some(NO_TRANSLATION as u64),
        Get::Number(|r| r.translation.map_or(NO_TRANSLATION, |t| t.dst_port.into()));
    ReversePackets "reverse_packets" Kind::Wide, Some(ABSENT_WIDE), Get::Wide(|r| reverse(r, |c| c.packets));
    ReverseBytes "reverse_bytes" Kind::Wide, Some(ABSENT_WIDE), Get::Wide(|r| reverse(r, |c| c.bytes));
    ReverseStart "reverse_start" Kind::Time, Some(ABSENT_WIDE), Get::Wide(|r| reverse(r, |c| c.first_ns));
    ReverseEnd "reverse_end" Kind::Time, Some(ABSENT_WIDE), Get::Wide(|r| reverse(r, |c| c.last_ns));
    ReverseTcpFlags "reverse_tcp_flags" Kind::Number(8), Some(NO_SMALL as u64),
        Get::Number(|r| reverse_small(r, |c| c.tcp_flags));
    ReverseTtlMin "reverse_ttl_min" Kind::Number(8), Some(NO_SMALL as u64),
        Get::Number(|r| reverse_small(r, |c| c.ttl_min));
    ReverseTtlMax "reverse_ttl_max" Kind::Number(8), Some(NO_SMALL as u64),
        Get::Number(|r| reverse_small(r, |c| c.ttl_max));
    DroppedBytes "dropped_bytes" Kind::Wide, None, Get::Wide(|r| r.drops.bytes);
    DroppedPackets "dropped_packets" Kind::Wide, None, Get::Wide(|r| r.drops.packets());
    DropReason1 "drop_reason_1" Kind::Word(Vocabulary::DropReason), Some(0), Get::Number(|r| drop_reason(r, 0));
    DropPackets1 "drop_packets_1" Kind::Number(32), Some(0), Get::Number(|r| drop_packets(r, 0));
    DropReason2 "drop_reason_2" Kind::Word(Vocabulary::DropReason), Some(0), Get::Number(|r| drop_reason(r, 1));
    DropPackets2 "drop_packets_2" Kind::Number(32), Some(0), Get::Number(|r| drop_packets(r, 1));
    DropReason3 "drop_reason_3" Kind::Word(Vocabulary::DropReason), Some(0), Get::Number(|r| drop_reason(r, 2));
    DropPackets3 "drop_packets_3" Kind::Number(32), Some(0), Get::Number(|r| drop_packets(r, 2));
    SamplingInterval "sampling_interval" Kind::Number(32), Some(SAMPLING_UNKNOWN as u64), Get::Number(|r| r.sampling_interval);
    IcmpType "icmp_type" Kind::Number(8), Some(NO_SMALL as u64), Get::Number(|r| small(r.key.icmp().map(|(of, _)| of)));
    IcmpCode "icmp_code" Kind::Number(8), Some(NO_SMALL as u64), Get::Number(|r| small(r.key.icmp().map(|(_, code)| code)));
}

/// What a translated port's value is where nothing was translated.
pub(crate) const NO_TRANSLATION: u32 = 65_536;

/// The schema of the files.
pub(crate) static SCHEMA: LazyLock<Option<(TypePtr, SchemaDescPtr)>> = LazyLock::new(|| {
    let fields: Result<Vec<TypePtr>, _> =
        ColumnId::ALL.iter().map(|id| field(id.definition()).map(Arc::new)).collect();
    let root = Arc::new(Type::group_type_builder("flow").with_fields(fields.ok()?).build().ok()?);
    Some((root.clone(), Arc::new(SchemaDescriptor::new(root))))
});

fn field(definition: &Definition) -> Result<Type, parquet::errors::ParquetError> {
    let (physical, logical) = match definition.kind {
        Kind::Time => (PhysicalType::INT64, LogicalType::timestamp(true, TimeUnit::NANOS)),
        Kind::Wide => (PhysicalType::INT64, LogicalType::integer(64, false)),
        Kind::Number(bits) => (PhysicalType::INT32, LogicalType::integer(bits as i8, false)),
        Kind::Word(_) | Kind::Address => (PhysicalType::BYTE_ARRAY, LogicalType::String),
    };
    let repetition = if definition.nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(definition.name, physical)
        .with_repetition(repetition)
        .with_logical_type(Some(logical))
        .build()
}

/// Dictionaries are never given up for being large: readers count on them.
const DICTIONARY_BYTES_MAX: usize = 256 << 20;
/// Rows of a page: small enough for a first-level decode, large enough that headers do not count.
const PAGE_ROWS: usize = 65_536;

/// A page stays as it is unless compression makes it smaller than this: whoever reads it need not decompress it, and rows
/// that are codes of a dictionary hardly ever get smaller. Needs pages of version 2, which say it of each page.
const COMPRESSED_SHARE_MAX: f64 = 0.85;

/// How files are written. Encodings were chosen by measurement, see `docs/flow-store.md`.
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
            column_idx: ColumnId::FlowEnd as i32,
            descending: false,
            nulls_first: false,
        }]));
    for id in ColumnId::ALL {
        let definition = id.definition();
        let path = ColumnPath::from(definition.name);
        // Times are sorted, or close to each other. Bytes are nearly all different, and most of them small: what is between
        // one and the next has half as many bits as a number of its own would have.
        if definition.kind == Kind::Time || matches!(id, ColumnId::Bytes | ColumnId::ReverseBytes) {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties
}

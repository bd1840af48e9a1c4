//! Templates: the fields of a record, with their order and lengths.

use std::any::Any;
use std::ops::Range;
use std::sync::OnceLock;

use super::bytes::{u16_at, u32_at};
use super::fault::{Fault, FaultKind};
use super::header::{V5_RECORD_BYTES, Version};
use crate::netflow::element::{self, REVERSE_ENTERPRISE};

/// The length in a template that means "each record has its own" (RFC 7011, 7).
pub const VARIABLE: u16 = 65_535;

/// The most fields of no bytes in a template (Junos sends one). Without a limit, a few bytes of data could
/// mean endless fields.
const EMPTY_FIELDS_MAX: usize = 16;

/// The identity of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldName {
    /// An element of IANA's registry. NetFlow 9 has no enterprise numbers, so vendors' elements appear here
    /// too.
    Element(u16),
    /// The element for the reverse direction (RFC 5103).
    Reverse(u16),
    /// An element of an enterprise's registry.
    Enterprise {
        enterprise: u32,
        /// Without the enterprise bit.
        id: u16,
    },
    /// A NetFlow 9 scope (RFC 3954, 6.1): 1 system, 2 interface, 3 line card, 4 cache, 5 template.
    Scope(u16),
}

impl FieldName {
    /// The row of IANA's registry, for elements and their reverses.
    pub fn element(self) -> Option<&'static element::Element> {
        match self {
            Self::Element(id) | Self::Reverse(id) => element::element(id),
            Self::Enterprise { .. } | Self::Scope(_) => None,
        }
    }
}

/// A field of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpecifier {
    pub name: FieldName,
    /// Bytes in each record, or [`VARIABLE`].
    pub bytes: u16,
}

impl FieldSpecifier {
    const fn element(id: u16, bytes: u16) -> Self {
        Self { name: FieldName::Element(id), bytes }
    }
}

/// What the records of a template describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateKind {
    /// Flows or events.
    Data,
    /// The exporter: samplers, interfaces, its own counters.
    Options,
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// 256 or more; 5 for the fixed layout of NetFlow 5.
    pub id: u16,
    pub kind: TemplateKind,
    /// The number of leading fields that are scopes: they identify what the other fields describe.
    pub scopes: usize,
    pub fields: Box<[FieldSpecifier]>,
    /// Bytes of the shortest record.
    pub(super) bytes_min: usize,
    /// Every record has the length `bytes_min`.
    pub(super) is_fixed: bool,
    /// For who reads its records.
    pub memo: Memo,
}

/// What a reader of records found out about a template once. It is no part of what the template says.
#[derive(Default)]
pub struct Memo(OnceLock<Box<dyn Any + Send + Sync>>);

impl Memo {
    /// What was found out, now or before; `None` if another reader found out something else.
    #[inline]
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Memo {}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memo")
    }
}

impl Template {
    /// Where the fields are in each record; `None` if lengths vary.
    pub fn places(&self) -> Option<impl Iterator<Item = Range<usize>>> {
        self.is_fixed.then(|| {
            self.fields.iter().scan(0, |end, field| {
                let start = *end;
                *end += usize::from(field.bytes);
                Some(start..*end)
            })
        })
    }

    fn new(
        id: u16,
        kind: TemplateKind,
        scopes: usize,
        fields: Vec<FieldSpecifier>,
        offset: usize,
    ) -> Result<Self, Fault> {
        let is_fixed = fields.iter().all(|field| field.bytes != VARIABLE);
        // A field of variable length has at least its length byte.
        let bytes =
            |field: &FieldSpecifier| if field.bytes == VARIABLE { 1 } else { usize::from(field.bytes) };
        let bytes_min = fields.iter().map(bytes).sum();
        let empty_fields = fields.iter().filter(|field| field.bytes == 0).count();
        if bytes_min == 0 || empty_fields > EMPTY_FIELDS_MAX {
            return Err(Fault::new(offset, FaultKind::TemplateEmpty(id)));
        }
        Ok(Self {
            id,
            kind,
            scopes,
            fields: fields.into_boxed_slice(),
            bytes_min,
            is_fixed,
            memo: Memo::default(),
        })
    }

    /// The fixed layout of NetFlow 5 records, as a template.
    pub(super) fn netflow5() -> Self {
        use element::*;
        let fields = [
            (SOURCE_IPV4_ADDRESS, 4),
            (DESTINATION_IPV4_ADDRESS, 4),
            (IP_NEXT_HOP_IPV4_ADDRESS, 4),
            (INGRESS_INTERFACE, 2),
            (EGRESS_INTERFACE, 2),
            (PACKET_DELTA_COUNT, 4),
            (OCTET_DELTA_COUNT, 4),
            (FLOW_START_SYS_UP_TIME, 4),
            (FLOW_END_SYS_UP_TIME, 4),
            (SOURCE_TRANSPORT_PORT, 2),
            (DESTINATION_TRANSPORT_PORT, 2),
            (PADDING_OCTETS, 1),
            (TCP_CONTROL_BITS, 1),
            (PROTOCOL_IDENTIFIER, 1),
            (IP_CLASS_OF_SERVICE, 1),
            (BGP_SOURCE_AS_NUMBER, 2),
            (BGP_DESTINATION_AS_NUMBER, 2),
            (SOURCE_IPV4_PREFIX_LENGTH, 1),
            (DESTINATION_IPV4_PREFIX_LENGTH, 1),
            (PADDING_OCTETS, 2),
        ];
        Self {
            id: 5,
            kind: TemplateKind::Data,
            scopes: 0,
            fields: fields.iter().map(|(id, bytes)| FieldSpecifier::element(*id, *bytes)).collect(),
            bytes_min: V5_RECORD_BYTES,
            is_fixed: true,
            memo: Memo::default(),
        }
    }

    /// Approximate memory, with as much again for the memo.
    pub(super) fn memory_bytes(&self) -> usize {
        2 * (size_of::<Self>() + self.fields.len() * size_of::<FieldSpecifier>())
    }
}

/// One entry of a template set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Definition {
    /// A new or repeated template.
    Template(Template),
    /// The template is withdrawn (RFC 7011, 8.1). The number of the set itself means all of its kind.
    Withdrawal(u16),
}

/// Iterates over the entries of a template set.
pub(super) struct Definitions<'a> {
    version: Version,
    kind: TemplateKind,
    set: &'a [u8],
    /// Offset of `set` in the message.
    offset: usize,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(version: Version, kind: TemplateKind, set: &'a [u8], offset: usize) -> Self {
        Self { version, kind, set, offset }
    }

    /// The field at the beginning of `fields`, and the bytes of its entry.
    fn field(&self, fields: &[u8], is_scope: bool) -> Option<(FieldSpecifier, usize)> {
        if fields.len() < 4 {
            return None;
        }
        let (id, bytes) = (u16_at(fields, 0), u16_at(fields, 2));
        if self.version == Version::NetFlow9 {
            let name = if is_scope { FieldName::Scope(id) } else { FieldName::Element(id) };
            return Some((FieldSpecifier { name, bytes }, 4));
        }
        if id & 0x8000 == 0 {
            return Some((FieldSpecifier::element(id, bytes), 4));
        }
        if fields.len() < 8 {
            return None;
        }
        let id = id & 0x7fff;
        let name = match u32_at(fields, 4) {
            0 => FieldName::Element(id),
            REVERSE_ENTERPRISE => FieldName::Reverse(id),
            enterprise => FieldName::Enterprise { enterprise, id },
        };
        Some((FieldSpecifier { name, bytes }, 8))
    }

    /// The number of fields, the number of scopes among them, and the bytes of the entry's head.
    fn head(&self, id: u16) -> Result<(usize, usize, usize), Fault> {
        let short = Fault::new(self.offset, FaultKind::TemplateShort { id });
        let scopes_wrong = Fault::new(self.offset, FaultKind::TemplateScopes(id));
        if self.kind == TemplateKind::Data {
            return Ok((usize::from(u16_at(self.set, 2)), 0, 4));
        }
        if self.set.len() < 6 {
            return Err(short);
        }
        let (first, second) = (usize::from(u16_at(self.set, 2)), usize::from(u16_at(self.set, 4)));
        let (fields, scopes) = match self.version {
            // RFC 3954, 6.1: lengths of the scope part and of the option part, in bytes.
            Version::NetFlow9 if !first.is_multiple_of(4) || !second.is_multiple_of(4) => {
                return Err(scopes_wrong);
            }
            Version::NetFlow9 => ((first + second) / 4, first / 4),
            // RFC 7011, 3.4.2.2: number of all fields, and of scope fields among them.
            _ => (first, second),
        };
        if scopes > fields { Err(scopes_wrong) } else { Ok((fields, scopes, 6)) }
    }

    fn advance(&mut self, bytes: usize) {
        self.set = self.set.get(bytes..).unwrap_or_default();
        self.offset += bytes;
    }

    fn read(&mut self) -> Result<Definition, Fault> {
        let (id, offset) = (u16_at(self.set, 0), self.offset);
        // A withdrawal has four bytes among options templates too (RFC 7011, 8.1).
        if self.version == Version::Ipfix && u16_at(self.set, 2) == 0 {
            self.advance(4);
            return Ok(Definition::Withdrawal(id));
        }
        if id < 256 {
            return Err(Fault::new(offset, FaultKind::TemplateId(id)));
        }
        let (count, scopes, head_bytes) = self.head(id)?;
        let mut at = head_bytes;
        // Do not trust the count: allocate only as many fields as the bytes can hold.
        let mut fields = Vec::with_capacity(count.min(self.set.len() / 4));
        for number in 0..count {
            let short = Fault::new(offset + at, FaultKind::TemplateShort { id });
            let (field, bytes) =
                self.field(self.set.get(at..).unwrap_or_default(), number < scopes).ok_or(short)?;
            fields.push(field);
            at += bytes;
        }
        self.advance(at);
        Template::new(id, self.kind, scopes, fields, offset).map(Definition::Template)
    }
}

impl Iterator for Definitions<'_> {
    type Item = Result<Definition, Fault>;

    /// Ends after a fault: the position of the next entry is uncertain.
    fn next(&mut self) -> Option<Self::Item> {
        // Padding: zeros, or fewer bytes than the shortest entry has.
        if self.set.len() < 4 || u32_at(self.set, 0) == 0 {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.set = &[];
        }
        Some(read)
    }
}

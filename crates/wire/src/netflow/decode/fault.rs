//! Faults of a message, with their positions.

/// Something in a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {kind}")]
pub struct Fault {
    /// From the beginning of the message.
    pub offset: usize,
    pub kind: FaultKind,
}

impl Fault {
    pub(super) fn new(offset: usize, kind: FaultKind) -> Self {
        Self { offset, kind }
    }
}

/// Kinds of faults, with the values that caused them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    #[error("the header has {needs} bytes, the message {has}")]
    HeaderShort {
        /// Bytes that the header has.
        needs: usize,
        has: usize,
    },
    /// A version other than 5, 9 and 10.
    #[error("version {0}, where 5, 9 or 10 was expected")]
    Version(u16),
    /// IPFIX: the message's length field differs from what arrived, or is shorter than the header.
    #[error("the length field says {says} bytes, {has} are here")]
    MessageLength {
        /// What the field says.
        says: usize,
        has: usize,
    },
    /// Version 5: fewer records follow than the header counts, or the header counts none or more than 30.
    #[error("the header says {says} records (1 to 30 can be), {has} are here")]
    RecordCount {
        /// What the header says.
        says: usize,
        has: usize,
    },
    /// A set is shorter than its header or longer than the rest of the message.
    #[error("a set of {says} bytes, where 4 to {has} can be")]
    SetLength {
        /// What the set's length field says.
        says: usize,
        has: usize,
    },
    /// A set number that the version reserves.
    #[error("set number {0}, which is reserved")]
    SetId(u16),
    /// Bytes behind the last set or record that are not padding.
    #[error("{0} bytes left over")]
    Trailing(usize),
    #[error("template {id} ends within its fields")]
    TemplateShort {
        /// The template's number.
        id: u16,
    },
    #[error("a template with number {0}, where 256 or more was expected")]
    TemplateId(u16),
    /// A template whose records would have no bytes, or more than 16 empty fields.
    #[error("template {0} describes records of 0 bytes, or too many empty fields")]
    TemplateEmpty(u16),
    /// A template with more scope fields than fields, or with lengths that are not a multiple of a field's.
    #[error("template {0} has scope fields that do not add up")]
    TemplateScopes(u16),
    /// A record's field of variable length extends beyond its set.
    #[error("a field of {says} bytes, where its set has {has} left")]
    FieldLength {
        /// Bytes that the field says it has.
        says: usize,
        has: usize,
    },
}

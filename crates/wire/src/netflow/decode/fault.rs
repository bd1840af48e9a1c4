//! What may be wrong with a message, and where.

/// Something in a message that cannot be as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {kind}")]
pub struct Fault {
    /// Bytes from the beginning of the message to what is wrong.
    pub offset: usize,
    /// What is wrong.
    pub kind: FaultKind,
}

impl Fault {
    pub(super) fn new(offset: usize, kind: FaultKind) -> Self {
        Self { offset, kind }
    }
}

/// Kinds of faults, with the values that tell why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The message ends within its header.
    #[error("the header has {needs} bytes, the message {has}")]
    HeaderShort {
        /// Bytes that the header has.
        needs: usize,
        /// Bytes that are there.
        has: usize,
    },
    /// A version other than 5, 9 and 10.
    #[error("version {0}, where 5, 9 or 10 was expected")]
    Version(u16),
    /// IPFIX: the message's length field is not what arrived, or smaller than the header.
    #[error("the length field says {says} bytes, {has} are here")]
    MessageLength {
        /// What the field says.
        says: usize,
        /// Bytes that are there.
        has: usize,
    },
    /// Version 5: fewer records follow than the header counts; or it counts none or more than 30, then it is no header.
    #[error("the header says {says} records (1 to 30 can be), {has} are here")]
    RecordCount {
        /// What the header says.
        says: usize,
        /// Records that are there in full.
        has: usize,
    },
    /// A set is shorter than its header or longer than what is left of the message.
    #[error("a set of {says} bytes, where 4 to {has} can be")]
    SetLength {
        /// What the set's length field says.
        says: usize,
        /// Bytes left in the message.
        has: usize,
    },
    /// A set number that the version keeps for something else.
    #[error("set number {0}, which is reserved")]
    SetId(u16),
    /// Bytes behind the last set or record that are not padding.
    #[error("{0} bytes left over")]
    Trailing(usize),
    /// A template ends within its fields.
    #[error("template {id} ends within its fields")]
    TemplateShort {
        /// The template's number.
        id: u16,
    },
    /// A template with a number below 256.
    #[error("a template with number {0}, where 256 or more was expected")]
    TemplateId(u16),
    /// A template whose records would have no bytes, or more than 16 fields without any.
    #[error("template {0} describes records of 0 bytes, or too many empty fields")]
    TemplateEmpty(u16),
    /// A template with more scope fields than fields, or lengths that are no multiple of a field's.
    #[error("template {0} has scope fields that do not add up")]
    TemplateScopes(u16),
    /// A record's field of variable length ends behind its set.
    #[error("a field of {says} bytes, where its set has {has} left")]
    FieldLength {
        /// Bytes that the field says it has.
        says: usize,
        /// Bytes left in the set.
        has: usize,
    },
}

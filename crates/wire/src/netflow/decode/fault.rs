//! What may be wrong with a message, and where.

use std::fmt;

/// Something in a message that cannot be as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The message ends within its header.
    HeaderShort {
        /// Bytes that the header has.
        needs: usize,
        /// Bytes that are there.
        has: usize,
    },
    /// A version other than 5, 9 and 10.
    Version(u16),
    /// IPFIX: the message's length field is not what arrived, or smaller than the header.
    MessageLength {
        /// What the field says.
        says: usize,
        /// Bytes that are there.
        has: usize,
    },
    /// Version 5: fewer records follow than the header counts; or it counts none or more than 30, then it is no header.
    RecordCount {
        /// What the header says.
        says: usize,
        /// Records that are there in full.
        has: usize,
    },
    /// A set is shorter than its header or longer than what is left of the message.
    SetLength {
        /// What the set's length field says.
        says: usize,
        /// Bytes left in the message.
        has: usize,
    },
    /// A set number that the version keeps for something else.
    SetId(u16),
    /// Bytes behind the last set or record that are not padding.
    Trailing(usize),
    /// A template ends within its fields.
    TemplateShort {
        /// The template's number.
        id: u16,
    },
    /// A template with a number below 256.
    TemplateId(u16),
    /// A template whose records would have no bytes, or more than 16 fields without any.
    TemplateEmpty(u16),
    /// A template with more scope fields than fields, or lengths that are no multiple of a field's.
    TemplateScopes(u16),
    /// A record's field of variable length ends behind its set.
    FieldLength {
        /// Bytes that the field says it has.
        says: usize,
        /// Bytes left in the set.
        has: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.offset)?;
        match self.kind {
            FaultKind::HeaderShort { needs, has } => {
                write!(f, "the header has {needs} bytes, the message {has}")
            }
            FaultKind::Version(version) => write!(f, "version {version}, where 5, 9 or 10 was expected"),
            FaultKind::MessageLength { says, has } => {
                write!(f, "the length field says {says} bytes, {has} are here")
            }
            FaultKind::RecordCount { says, has } => {
                write!(f, "the header says {says} records (1 to 30 can be), {has} are here")
            }
            FaultKind::SetLength { says, has } => {
                write!(f, "a set of {says} bytes, where 4 to {has} can be")
            }
            FaultKind::SetId(id) => write!(f, "set number {id}, which is reserved"),
            FaultKind::Trailing(bytes) => write!(f, "{bytes} bytes that belong to nothing"),
            FaultKind::TemplateShort { id } => write!(f, "template {id} ends within its fields"),
            FaultKind::TemplateId(id) => {
                write!(f, "a template with number {id}, where 256 or more was expected")
            }
            FaultKind::TemplateEmpty(id) => {
                write!(f, "template {id} makes records of no bytes, or of too many fields of none")
            }
            FaultKind::TemplateScopes(id) => write!(f, "template {id} has scope fields that do not add up"),
            FaultKind::FieldLength { says, has } => {
                write!(f, "a field of {says} bytes, where its set has {has} left")
            }
        }
    }
}

impl std::error::Error for Fault {}

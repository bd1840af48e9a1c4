//! One flow file: written whole, read by column.

mod checksum;
mod pages;
mod read;
mod write;

pub(crate) use read::FlowFile;
pub(crate) use write::FileWriter;

use thalweg_flow::fields::Field;

/// Key of the footer that says whose file it is; its value is the version.
const FORMAT_KEY: &str = "thalweg.flows";

/// Versions of the form. A new column needs none: it goes to the end, and is NULL in files that do not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Interfaces are ports counted from 0, what is not known of headers is 0, and the columns of ICMP's type and code are not
    /// there. Such files are read as if they were of today's (`read/old.rs`).
    V2,
    /// Checksums of another kind.
    V3,
    /// Checksums are XXH3: what is written today.
    V4,
}

impl Version {
    /// What is written.
    const TODAY: &'static str = "4";

    /// A version that is not known is none: such files are skipped and counted.
    fn of(text: &str) -> Option<Self> {
        match text {
            "2" => Some(Self::V2),
            "3" => Some(Self::V3),
            Self::TODAY => Some(Self::V4),
            _ => None,
        }
    }

    /// Whether the file has checksums that can be checked.
    fn has_sums(self) -> bool {
        self == Self::V4
    }

    /// Columns that such a file has at least.
    fn columns_min(self) -> usize {
        match self {
            Self::V2 => Field::IcmpType.index(),
            Self::V3 | Self::V4 => Field::IcmpCode.index() + 1,
        }
    }
}

/// Key of the footer under which the names of the files are that this one was made of.
const REPLACES_KEY: &str = "thalweg.replaces";

/// Key of the footer with a checksum of each column of each row group.
const SUMS_KEY: &str = "thalweg.sums";
/// Key of the footer with a checksum of what it says.
const FOOTER_KEY: &str = "thalweg.footer";

/// Rows of a full row group. Large enough that a dictionary pays, small enough that the columns a query needs stay near the
/// core.
pub(crate) const ROW_GROUP_ROWS: usize = 262_144;
/// Rows that a row group may claim to have.
const ROW_GROUP_ROWS_MAX: i64 = 1 << 24;

#[cfg(test)]
mod tests;

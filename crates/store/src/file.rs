//! One flow file: written whole, read by column.

mod checksum;
mod pages;
mod read;
mod write;

pub(crate) use read::FlowFile;
pub(crate) use write::FileWriter;

/// Key of the footer that says whose file it is; its value is the version.
const FORMAT_KEY: &str = "thalweg.flows";

/// The version of the form: other ones are skipped and counted. A new column needs no new version: it goes to the end, and is
/// NULL in files that do not have it.
const VERSION: &str = "4";

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

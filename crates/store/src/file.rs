//! One flow file: written as a whole, read by column.

mod checksum;
mod decode;
mod encode;
mod pages;
mod read;
mod source;
mod write;

pub(crate) use encode::zigzag;
pub(crate) use read::FlowFile;
pub(crate) use write::FileWriter;

/// Footer key that identifies our files; its value is the version.
const FORMAT_KEY: &str = "thalweg.flows";

/// The format version: files of others are skipped and counted. A new column needs no new version: it is NULL
/// in older files.
const VERSION: &str = "6";
/// The version before, which is read as well: one checksum of a whole column, none of the bounds of texts.
const VERSION_OF_WHOLE_COLUMNS: &str = "5";
/// The one before that, too: times in nanoseconds, numbers unsigned.
const VERSION_OF_NANOSECONDS: &str = "4";

/// Footer key with the names of the files that this one replaces.
const REPLACES_KEY: &str = "thalweg.replaces";

/// Footer key with checksums of each column of each row group: of its dictionary, and of the rest.
const SUMS_KEY: &str = "thalweg.sums";
/// Footer key with a checksum of the footer.
const FOOTER_KEY: &str = "thalweg.footer";

/// Rows of a full row group: enough for a dictionary to pay off, few enough for the columns of a query to
/// stay in near caches.
pub(crate) const ROW_GROUP_ROWS: usize = 262_144;
/// The most rows that a row group may claim.
const ROW_GROUP_ROWS_MAX: i64 = 1 << 24;

#[cfg(test)]
mod tests;

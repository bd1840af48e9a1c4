//! One flow file: written as a whole, read by column.

use std::collections::BTreeSet;

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

/// What the footer of a rollup says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RollupFacts {
    pub(crate) step_s: u64,
    /// How far small sums were joined; see [`crate::rollup`].
    pub(crate) folded: u64,
    /// First and last end of a flow, in nanoseconds since the epoch.
    pub(crate) span_ns: (u64, u64),
    /// The names of the files whose records it has, in the folder of the same hour.
    pub(crate) covers: BTreeSet<String>,
}

impl RollupFacts {
    fn to_text(&self) -> String {
        let (from, to) = self.span_ns;
        let names: Vec<&str> = self.covers.iter().map(String::as_str).collect();
        format!("{} {} {from} {to} {}", self.step_s, self.folded, names.join(","))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (step_s, folded, span_ns) = (number()?, number()?, (number()?, number()?));
        let names = words.next()?.split(',').filter(|name| !name.is_empty());
        Some(Self { step_s, folded, span_ns, covers: names.map(str::to_owned).collect() })
    }
}

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

/// Footer key of a rollup: what it sums, see [`RollupFacts`].
const ROLLUP_KEY: &str = "thalweg.rollup";

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

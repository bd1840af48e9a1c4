//! Flow records kept: a dataset of Parquet files, partitioned by time, and answers from it.
//!
//! ```text
//! records --> Writer --> files, one folder per hour --> View --> top, list, graph
//!             (pending) --------------------------------^ ^
//!             flow cache ---------------------------------+   (of another process: `live`)
//! ```
//!
//! Map of the crate:
//! - [`dataset`]: where files lie, what belongs to the dataset at a moment;
//! - [`writer`]: records to files, on a thread of its own; [`upkeep`]: compaction, retention, recovery;
//! - `space`: room on the file system; [`notify`]: what an operator should hear;
//! - [`live`]: what the writer knows beyond the files, for other processes;
//! - `schema`, `block`, `file`: the columns (fields of `thalweg_flow::fields`), records as columns, one file;
//! - [`filter`]: which records; [`query`]: sums by key, graphs, lists.
//!
//! Files are read and written with the Parquet library's low-level interface, without Arrow: all columns are flat, so Arrow's
//! arrays would bring nothing, and would be a third of this program's build.

mod block;
pub mod dataset;
mod error;
mod file;
pub mod filter;
pub mod live;
pub mod notify;
pub mod query;
mod rows;
mod schema;
mod space;
#[cfg(test)]
mod testing;
pub mod upkeep;
pub mod writer;

pub use dataset::{Dataset, Skipped, Summary, View, Window};
pub use error::StoreError;
pub use filter::{Filter, FilterError};
pub use notify::{Notify, Severity, Trouble};
pub use upkeep::{Recovery, Retention, Upkeep};
pub use writer::{Writer, WriterOptions, WriterStatus};

//! Stored flow records: a dataset of Parquet files, partitioned by time, and queries over it.
//!
//! ```text
//! records --> Writer --> files, one folder per hour --> View --> top, list, graph
//!             (pending) --------------------------------^ ^
//!             flow cache ---------------------------------+   (of another process: `live`)
//! ```
//!
//! - [`dataset`]: the files of a dataset at one moment. `schema`, `block`, `file`: columns, records as
//!   columns, a file.
//! - [`writer`]: records to files. [`upkeep`]: joining, retention, recovery. `space`: room on the file
//!   system. `iceberg`: the dataset as a table of other engines.
//! - `archive`, [`ObjectStore`]: complete hours in a store of objects. [`Feed`]: all records to another place, each once.
//! - [`rollup`]: sums of the records of each hour, kept for longer, and when they answer.
//! - [`live`]: records that the writer has not written yet, for other processes. [`notify`]: notices to the
//!   operator.
//! - [`filter`], [`query`]: select records; compute sums, graphs and lists. Columns are the fields of
//!   `thalweg_flow::fields`.
//!
//! Arrow is not used, because all columns are flat. Nothing here knows the router or the command line.

mod archive;
mod block;
pub mod dataset;
mod error;
mod feed;
mod file;
pub mod filter;
mod iceberg;
pub mod live;
pub mod notify;
mod object;
pub mod query;
pub mod rollup;
mod rows;
mod schema;
mod space;
#[cfg(test)]
mod testing;
pub mod upkeep;
pub mod writer;

pub use dataset::{Dataset, Rolled, RollupSummary, Skipped, Summary, View, Window};
pub use error::StoreError;
pub use feed::{Feed, FeedSession, Position};
pub use filter::{Filter, FilterError};
pub use notify::{Notify, Severity, Trouble};
pub use object::{Content, ObjectStore, Objects};
pub use rollup::{Needs, RollupRetention, Step};
pub use upkeep::{Recovery, Retention, Upkeep};
pub use writer::{Writer, WriterOptions, WriterStatus};

//! The live view: records that a dataset's writer has not written yet, for queries on the same machine.
//!
//! ```text
//! flow cache ---> on their way ---> pending ---> files
//!    2, shown      3, waited for      4, both at one moment
//! ```
//!
//! A dataset's writer listens on `.live.sock` in its folder, readable and writable by its owner alone. A question is
//! answered in these steps:
//!
//! 1. From now on the writer notes which flows come in with new records.
//! 2. The flow cache is shown, a slice at a time, and each slice is sent. Packets wait for a slice at most.
//! 3. It is waited until every record that left the cache before is pending or on disk, for a moment at most.
//! 4. At one moment, in which no file changes its name: the names of all files, what is pending, and what was noted.
//!
//! A flow that was shown in step 2 and then left the cache came in with a record that says as much and more: such flows are
//! noted in step 1, and the asker leaves out what the cache had shown of them. (It is the same flow if the key is the same
//! and the record covers the time of what was shown.) Therefore:
//!
//! - **No packet counts twice.** The sums of an answer are at most what was metered when it was complete.
//! - **No packet gets lost in between.** What one answer counted, a later one counts as well, as long as the writer refused
//!   no record and no file was removed; and whatever was metered when it was asked for is in the answer. How many records
//!   step 3 gave up waiting for, is said.
//! - Two flows of one key that begin and end in the same nanoseconds are taken for one.
//!
//! Both sides have bounds: the server keeps notes of [`NOTED_MAX`] records and the pending ones, which the writer bounds; the
//! client takes [`RECORDS_MAX`]. Where they do not suffice the cache is left out, and that is said; so it is while the cache
//! cannot be looked at, because packets of a file wait for a disk that is full. Who does not read for some seconds is left.
//!
//! The same socket gives out records as they come in ([`Follow`]). Who reads too slowly misses some, and is told how many.

mod client;
mod frame;
mod server;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_flow::FlowRecord;

pub(crate) use frame::Note;

pub use client::{Follow, Followed, LiveFacts, Writing};
pub use server::LiveServer;

/// The socket's name in the dataset's folder. Engines that read the folder pass over names that begin with a dot.
pub const SOCKET: &str = ".live.sock";
/// Records that come in while a question is answered, of which notes are kept: 24 bytes each.
pub const NOTED_MAX: usize = 1 << 21;
/// Records that an answer may have beyond the files.
pub const RECORDS_MAX: usize = 1 << 22;
/// Records that wait for somebody who follows.
pub const FOLLOWED_MAX: usize = 1 << 16;
/// How long records on their way are waited for.
const SETTLE: Duration = Duration::from_millis(500);
/// How long one side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The flow cache of the process that writes.
pub trait Cache: Send + Sync {
    /// Shows every flow that is in the cache all the time, once, some at a time. Ends early if `take` breaks. Whether it could
    /// show all: not if somebody keeps a part of the cache for so long that the asker would give up.
    fn show(&self, take: &mut dyn FnMut(&[FlowRecord]) -> ControlFlow<()>) -> bool;

    /// Waits until all records made before have come to the writer, or are lost; for so long at most. How many have not, if that
    /// can be said.
    fn settle(&self, timeout: Duration) -> Option<u64>;
}

/// A path to the socket that is short enough for its address: the system allows 108 bytes.
struct Way {
    path: PathBuf,
    /// The path goes through it.
    _folder: Option<std::fs::File>,
}

impl Way {
    const BYTES_MAX: usize = 100;

    fn to(folder: &Path, name: &str) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let path = folder.join(name);
        if path.as_os_str().len() <= Self::BYTES_MAX {
            return Ok(Self { path, _folder: None });
        }
        let folder = std::fs::File::open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

#[cfg(test)]
mod tests;

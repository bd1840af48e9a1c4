//! The live view: gives queries on the same machine the records that a dataset's writer has not written yet.
//!
//! ```text
//! flow cache ---> on their way ---> pending ---> files
//!    2, shown      3, waited for      4, both at one moment
//! ```
//!
//! A dataset's writer listens on `.live.sock` in its folder, which only its owner can access, and the folder's group if
//! the folder is set-group-ID. It answers a query in these steps:
//!
//! 1. From now on the writer notes which flows arrive in new records.
//! 2. It sends the flow cache slice by slice. Packets wait for one slice at most.
//! 3. It waits briefly until all records that left the cache before are pending or on disk.
//! 4. At one moment, in which no file changes its name, it takes the names of all files, the pending records,
//!    and the notes.
//!
//! A flow that was shown in step 2 and then left the cache arrives in a record that contains at least as
//! much. Step 1 notes such flows, and the client drops what the cache had shown of them. (It is the same flow
//! if the key is the same and the record covers the time of what was shown.) Therefore:
//!
//! - **No packet counts twice.** The sums of an answer are at most what was metered when it was complete.
//! - **No packet is lost in between.** What one answer counted, a later one counts too, unless the writer
//!   refused a record or a file was removed. An answer contains everything metered when it was requested,
//!   except the records that step 3 stopped waiting for; their number is reported.
//! - Two flows of one key that begin and end in the same nanoseconds count as one.
//!
//! Both sides have limits: the server keeps notes of [`NOTED_MAX`] records and the pending ones, which the
//! writer bounds; the client takes [`RECORDS_MAX`]. If they do not suffice, the cache is left out and the
//! answer says so; the same happens while the cache is not accessible because packets of a file wait for a
//! full disk. A client that does not read for some seconds is disconnected.
//!
//! The same socket delivers new records as they arrive ([`Follow`]). A slow reader misses some and is told
//! how many.

mod client;
mod frame;
mod server;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_flow::FlowRecord;

pub(crate) use frame::Note;

pub(crate) use client::live_view_of;
pub use client::{Follow, Followed, LiveFacts, Writing};
pub use server::LiveServer;

/// The socket's name in the dataset's folder. Engines that read the folder skip names that begin with a dot.
pub const SOCKET: &str = ".live.sock";
/// The most notes of records that arrive while a query is answered, 24 bytes each.
pub const NOTED_MAX: usize = 1 << 21;
/// The most records of an answer in addition to files.
pub const RECORDS_MAX: usize = 1 << 22;
/// The most records that wait for a follower.
pub const FOLLOWED_MAX: usize = 1 << 16;
/// How long to wait for records between cache and writer.
const SETTLE: Duration = Duration::from_millis(500);
/// How long one side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The flow cache of the writing process.
pub trait Cache: Send + Sync {
    /// Calls `take` with slices of the cache; every flow that stays in the cache appears once. Ends early if
    /// `take` breaks. Returns whether all flows were shown: not if a part of the cache stays in use so long
    /// that the client would give up.
    fn show(&self, take: &mut dyn FnMut(&[FlowRecord]) -> ControlFlow<()>) -> bool;

    /// Waits at most this long until all earlier records have reached the writer or are lost. Returns how
    /// many have not, if known.
    fn settle(&self, timeout: Duration) -> Option<u64>;
}

/// A path to the socket that is short enough for a socket address: the system allows 108 bytes.
struct Way {
    path: PathBuf,
    /// The path goes through this descriptor.
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

//! `save_fib`: the forwarding table in a file beside the control socket (`/run/thalweg/thalweg.sock.fib`), by which the
//! next process forwards at once, while BGP comes up again (RFC 4724: the forwarding state that is preserved).
//!
//! ```text
//! tables ──changed, and a neighbor keeps our routes──> file, replaced as a whole, at most every SAVE_EVERY
//!        ──unchanged──> the time in it: so its age tells when the process died
//!
//! file: time since boot in ms, u64 little-endian | what `SavedRoutes::encode` makes
//! ```
//!
//! A process that has restarted leaves the file alone until it has selected routes of its own: routes do not get
//! younger by passing from one short life to the next. A file that is older than neighbors keep our routes, or damaged,
//! makes the start a cold one. Which boot and network namespace it is of, the note says (`restart`).
//!
//! Bounded: the file has 7 bytes for an IPv4 and 19 for an IPv6 prefix, and saving takes at most a part of a core's time
//! ([`SAVE_SHARE`]). Told: a file that cannot be written, once.

use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_config::OnStop;
use thalweg_exec::thread_cpu_time;
use thalweg_node::fib::SavedRoutes;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_node::speaker::Speaker;

use crate::restart;

/// The shortest pause between two looks at the tables.
const SAVE_EVERY: Duration = Duration::from_millis(500);

/// Saving takes at most this part of a core's time.
const SAVE_SHARE: u32 = 50;

/// The largest file that is read: ten full tables.
const BYTES_MAX: u64 = 128 << 20;

/// The path of the file, beside the control socket.
pub(crate) fn path(socket: &Path) -> PathBuf {
    restart::with_suffix(socket, ".fib")
}

/// The time since boot, suspended or not, which the next process knows too.
pub(crate) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// What a predecessor saved, unless it died longer ago than this. The error says why there is nothing to use.
pub(crate) fn read(path: &Path, longest: Duration, now: Duration) -> Result<SavedRoutes, String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    let unusable = |why: String| format!("cannot use {}: {why}", path.display());
    let whole = bytes.split_first_chunk().filter(|_| bytes.len() as u64 <= BYTES_MAX);
    let (alive_ms, routes) = whole.ok_or_else(|| unusable(format!("it has {} bytes", bytes.len())))?;
    let routes = SavedRoutes::decode(routes).map_err(|error| unusable(error.to_string()))?;
    match now.checked_sub(Duration::from_millis(u64::from_le_bytes(*alive_ms))) {
        None => Err(unusable("its time is after now".to_owned())),
        Some(age) if age > longest => {
            let (age, longest) = (age.as_secs(), longest.as_secs());
            Err(unusable(format!("its process died {age} s ago, and neighbors wait {longest} s")))
        }
        Some(_) => Ok(routes),
    }
}

fn alive_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}

/// Writes the file.
pub(crate) struct FibSaver {
    path: PathBuf,
    tables: Arc<ForwardingTables>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The version of the tables in the file.
    saved: Option<u64>,
    /// The file must not change any more.
    is_closed: bool,
    has_failed: bool,
}

impl FibSaver {
    /// Begins without a file of its own.
    pub(crate) fn new(path: PathBuf, tables: Arc<ForwardingTables>) -> Self {
        Self { path, tables, state: Mutex::default() }
    }

    /// Keeps the file up to date until `stop` is set.
    pub(crate) fn run(&self, speaker: &Speaker, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            let (begun, before) = (Instant::now(), thread_cpu_time());
            self.look(speaker);
            let used = thread_cpu_time().saturating_sub(before);
            let pause = SAVE_EVERY.max(used * SAVE_SHARE);
            while begun.elapsed() < pause && !stop.load(Ordering::Acquire) {
                thread::park_timeout(pause.saturating_sub(begun.elapsed()));
            }
        }
    }

    fn look(&self, speaker: &Speaker) {
        if speaker.is_restarting() || speaker.restart_neighbors().is_empty() {
            return;
        }
        self.save();
    }

    fn save(&self) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let now = self.tables.generation();
        let written = match state.saved == Some(now) {
            true => File::options()
                .write(true)
                .open(&self.path)
                .and_then(|file| file.write_all_at(&alive_ms().to_le_bytes(), 0)),
            false => self.write(),
        };
        match written {
            Ok(()) => (state.saved, state.has_failed) = (Some(now), false),
            Err(error) => {
                // If somebody removed it, the next look writes it anew.
                state.saved = None;
                if !std::mem::replace(&mut state.has_failed, true) {
                    tracing::warn!(
                        "cannot write {}: {error}; if this process dies, the next start may be a cold start: make room \
                         there, or choose another folder with --socket",
                        self.path.display()
                    );
                }
            }
        }
    }

    /// Replaces the file as a whole.
    fn write(&self) -> io::Result<()> {
        let routes = self.tables.saved().encode();
        restart::replace(&self.path, &[&alive_ms().to_le_bytes()[..], &routes].concat())
    }

    /// Writes the final file, or removes it. Called while sessions are still up.
    pub(crate) fn close(&self, speaker: &Speaker, on_stop: OnStop) {
        if on_stop == OnStop::KeepRoutes {
            self.look(speaker);
        }
        self.state.lock().is_closed = true;
        if on_stop == OnStop::RemoveRoutes
            && let Err(error) = fs::remove_file(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_file_that_is_missing_torn_or_too_old_is_refused_in_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = path(&folder.path().join("one.sock"));
        let died = Duration::from_secs(500);
        let refusal = |now: Duration| read(&path, LONG, now).expect_err("it must be refused");
        assert!(refusal(died).starts_with("cannot read "));
        let time = 500_000_u64.to_le_bytes();
        let whole = [&time[..], &SavedRoutes::default().encode()].concat();
        fs::write(&path, &whole).expect("room");
        assert_eq!(read(&path, LONG, died + LONG), Ok(SavedRoutes::default()));
        let old = "its process died 3601 s ago, and neighbors wait 3600 s";
        assert!(refusal(died + LONG + Duration::from_secs(1)).ends_with(old));
        assert!(refusal(Duration::from_secs(499)).ends_with("its time is after now"));
        fs::write(&path, &whole[..whole.len() - 1]).expect("room");
        assert!(refusal(died).contains("torn or damaged"), "{}", refusal(died));
        fs::write(&path, b"something else altogether").expect("room");
        assert!(refusal(died).contains("another version"), "{}", refusal(died));
        fs::write(&path, b"short").expect("room");
        assert!(refusal(died).contains("it has 5 bytes"), "{}", refusal(died));
    }
}

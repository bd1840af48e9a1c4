//! Runs a program as a child process, and measures what it and its descendants use.
//!
//! Processor time is the kernel's account of the child and of all descendants that were waited for, in
//! microseconds, returned when the child is reaped. `unsafe` is for that one call: `std` reaps without the account,
//! and `/proc` reports a zombie's user and kernel time in ticks of 10 ms, 4 % of the shortest run.
//!
//! Memory is the largest resident set of each process (`VmHWM`), read soon after the start and then every
//! `LOOK_EVERY`, and summed over the child and its descendants. The kernel's account has a maximum too, but it
//! includes the memory of the process that forked the child: it is used only for a child that ended before the
//! first read. Pages shared by several processes count in each.
#![allow(unsafe_code)]

use crate::bgp::daemon::usage;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest interval between reads of memory.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The first interval; each next one is twice as long, up to the longest.
const LOOK_FIRST: Duration = Duration::from_millis(1);
/// The most descendants that are measured.
const DESCENDANTS_MAX: usize = 64;

/// What a child process and its descendants used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// Elapsed time, in seconds.
    pub wall_s: f64,
    /// Processor time, in seconds.
    pub cpu_s: f64,
    pub rss_peak_bytes: u64,
    /// `None` if a signal ended the child.
    pub exit_code: Option<i32>,
}

/// Why a child did not end by itself.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// A system call failed.
    #[error("cannot be run: {0}")]
    System(#[from] io::Error),
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// It did not end in time.
    #[error("did not exit within {} s", .0.as_secs())]
    TooSlow(Duration),
}

/// No program is smaller: a smaller value was read while the program was being loaded.
const PROGRAM_MIN: u64 = 64 << 10;

/// The files that receive a child's output.
#[derive(Clone, Debug)]
pub struct Said {
    pub output: PathBuf,
    pub errors: PathBuf,
}

impl Said {
    /// Files in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self { output: folder.join("stdout"), errors: folder.join("stderr") }
    }

    /// The last lines of both files, for an error.
    pub fn last_words(&self) -> String {
        const LINES: usize = 3;
        let text = [&self.output, &self.errors].map(|path| fs::read(path).unwrap_or_default()).concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("; ")
    }
}

/// Runs `command` in its own process group until it ends, `stop` is set or `wait_max` has passed; then kills the
/// group.
pub fn run(
    mut command: Command,
    said: &Said,
    wait_max: Duration,
    stop: &AtomicBool,
) -> Result<Used, ChildError> {
    let (output, errors) = (File::create(&said.output)?, File::create(&said.errors)?);
    command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let began = Instant::now();
    let child = command.spawn()?;
    let id = child.id();
    let pid =
        i32::try_from(id).ok().and_then(Pid::from_raw).ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
    let (ended, waiting) = channel();
    thread::scope(|scope| {
        // From here on only this thread waits for the child; `child` is not used any more.
        scope.spawn(move || {
            let _ = ended.send((reap(pid), Instant::now()));
        });
        let mut peaks = BTreeMap::new();
        let mut failed = None;
        let mut pause = LOOK_FIRST;
        loop {
            match waiting.recv_timeout(pause) {
                Ok((account, at)) => {
                    let account = account?;
                    let wall_s = at.duration_since(began).as_secs_f64();
                    let seen: u64 = peaks.values().sum();
                    let rss_peak_bytes = if seen < PROGRAM_MIN { account.rss_peak_bytes } else { seen };
                    let used = Used { wall_s, rss_peak_bytes, ..account };
                    return failed.map_or(Ok(used), Err);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the waiting thread died").into());
                }
                Err(RecvTimeoutError::Timeout) => look(id, &mut peaks),
            }
            pause = (pause * 2).min(LOOK_EVERY);
            let over = began.elapsed() > wait_max;
            if failed.is_none() && (over || stop.load(Ordering::Relaxed)) {
                failed = Some(if over { ChildError::TooSlow(wait_max) } else { ChildError::Interrupted });
                // The group exists until its leader is reaped; after that, there is nothing to kill.
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
    })
}

/// Waits for the child. The caller fills in elapsed time and peak memory.
fn reap(pid: Pid) -> io::Result<Used> {
    loop {
        let mut status = 0;
        // SAFETY: `rusage` is plain numbers, for which zeros are a value.
        let mut account: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live values of the types that wait4(2) writes.
        let got = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, &raw mut account) };
        if got >= 0 {
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            return Ok(Used {
                wall_s: 0.0,
                cpu_s: seconds(account.ru_utime) + seconds(account.ru_stime),
                // The kernel reports KiB.
                rss_peak_bytes: u64::try_from(account.ru_maxrss).unwrap_or(0) << 10,
                exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Notes the peak memory of a process and of its descendants.
fn look(id: u32, peaks: &mut BTreeMap<u32, u64>) {
    let mut found = vec![id];
    let mut at = 0;
    while let Some(id) = found.get(at).copied() {
        at += 1;
        let process = PathBuf::from(format!("/proc/{id}"));
        let peak = peaks.entry(id).or_insert(0);
        *peak = usage(&process).rss_peak_bytes.max(*peak);
        // Descendants by thread; a kernel without this file reports none.
        for thread in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        found.truncate(DESCENDANTS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(
        script: &str,
        wait_max: Duration,
        stop: bool,
    ) -> (Result<Used, ChildError>, Said, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let said = Said::in_folder(folder.path());
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        (run(command, &said, wait_max, &AtomicBool::new(stop)), said, folder)
    }

    #[test]
    fn time_of_children_of_the_child_counts() {
        // Two processes, one of which the shell waits for.
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let (used, ..) = shell(&format!("sh -c '{busy}'; exit 3"), SOON, false);
        let used = used.unwrap();
        assert_eq!(used.exit_code, Some(3));
        assert!(used.cpu_s > 0.0 && used.wall_s > 0.0, "{used:?}");
        assert!(used.rss_peak_bytes < 1 << 30, "{used:?}");
    }

    #[test]
    fn memory_of_the_shortest_child_is_known() {
        for _ in 0..20 {
            let used = shell("exit 0", SOON, false).0.unwrap();
            assert!((1 << 16..1 << 30).contains(&used.rss_peak_bytes), "{used:?}");
        }
    }

    #[test]
    fn last_words_are_kept() {
        let (used, said, _folder) =
            shell("echo one; echo two >&2; echo; echo three >&2; echo four >&2", SOON, false);
        assert_eq!(used.unwrap().exit_code, Some(0));
        assert_eq!(said.last_words(), "two; three; four");
    }

    #[test]
    fn who_does_not_end_is_ended_with_its_children() {
        let (used, ..) = shell("sleep 1000 & sleep 1000", Duration::from_millis(1), false);
        assert!(matches!(used, Err(ChildError::TooSlow(_))), "{used:?}");
        let (used, ..) = shell("sleep 1000", SOON, true);
        assert!(matches!(used, Err(ChildError::Interrupted)), "{used:?}");
        let said = Said::in_folder(Path::new("/no/such"));
        let refused = run(Command::new("true"), &said, SOON, &AtomicBool::new(false));
        assert!(matches!(refused, Err(ChildError::System(_))), "{refused:?}");
    }
}

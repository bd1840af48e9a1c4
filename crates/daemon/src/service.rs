//! The router as a service of systemd (sd_notify(3), `Type=notify`): it says when it is ready, when it reloads, when it
//! stops, and, if the unit has a watchdog, that it is alive.
//!
//! It is alive if the router answers `status`, for which BGP's sessions and the host thread must answer, if every
//! thread that wakes by itself has run since, and if no thread is stopped. A thread that waits for a lock for ever does
//! neither, so systemd starts the service again.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use crate::control::ControlServer;

/// Says something to the service manager, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(address) = env::var_os("NOTIFY_SOCKET") else { return };
    let send = || -> io::Result<()> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&address)?,
        };
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    };
    if let Err(error) = send() {
        tracing::warn!(
            "cannot tell the service manager {:?}: {error}",
            state.lines().next().unwrap_or_default()
        );
    }
}

/// What a reload begins with; [`READY`] ends it.
pub(crate) fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={us}")
}

pub(crate) const READY: &str = "READY=1";
pub(crate) const STOPPING: &str = "STOPPING=1";

/// The unit's watchdog, if it has one for this process.
fn watchdog() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let usec = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && is_ours)?;
    Some(Duration::from_micros(usec))
}

/// Says that the router is ready, and from then on that it is alive.
pub(crate) fn begin(server: &ControlServer, stop: &Arc<AtomicBool>) -> io::Result<()> {
    notify(READY);
    let Some(limit) = watchdog() else { return Ok(()) };
    let (server, stop) = (server.clone(), stop.clone());
    thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch(&server, &stop, limit)).map(drop)
}

/// How often the thread looks whether the router stops.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Within this, each of the threads that wake once a second has done so.
const TURN_MAX: Duration = Duration::from_millis(1500);

fn watch(server: &ControlServer, stop: &AtomicBool, limit: Duration) {
    let period = TURN_MAX.max(limit / 2);
    let (mut before, mut asked) = (threads(), Instant::now());
    let (mut judged, mut stuck_now) = (asked, None);
    while !stop.load(Ordering::Acquire) {
        thread::sleep(LOOK_EVERY.min(limit / 4));
        if judged.elapsed() >= period {
            judged = Instant::now();
            let now = threads();
            stuck_now = stuck(&before, &now).map(str::to_owned);
            before = now;
        }
        if asked.elapsed() < limit / 2 {
            continue;
        }
        asked = Instant::now();
        // If a part of the router does not answer, this does not return.
        drop(server.status());
        match &stuck_now {
            Some(thread) => {
                tracing::error!(thread, "has not run for {period:?}: the watchdog is not fed")
            }
            None => notify("WATCHDOG=1"),
        }
    }
}

/// Threads that each wake by themselves at least once a second; `-` stands for a number behind it.
const EACH: [&str; 9] =
    ["shard-", "host", "flows", "rates", "addresses", "in-step", "bgp-links", "next-hops", "restart-note"];
/// Of these one at least does: it waits for packets, and by the model the others may wait for it.
const ANY: [&str; 2] = ["worker-", "reader-"];

/// A thread: its name, how often it got a core so far, and whether a signal or a tracer has stopped it.
struct Turns {
    name: String,
    count: u64,
    is_stopped: bool,
}

/// Threads by their numbers.
type Threads = BTreeMap<u32, Turns>;

/// This process's threads.
fn threads() -> Threads {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Threads::new() };
    let turns = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // The name, in parentheses, may contain some.
        let (name, state) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let schedule = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let count = schedule.split_whitespace().nth(2)?.parse().ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        Some((id, Turns { name: name.to_owned(), count, is_stopped: state.starts_with(['T', 't']) }))
    };
    tasks.flatten().filter_map(turns).collect()
}

/// A thread that was there before and has not run since, although it should have. One that is stopped at one look
/// alone may have a tracer that lets it go on.
fn stuck<'n>(before: &Threads, now: &'n Threads) -> Option<&'n str> {
    let is_of = |roles: &[&str], name: &str| {
        roles.iter().any(|role| name == *role || role.ends_with('-') && name.starts_with(role))
    };
    let both = now.iter().filter_map(|(id, now)| Some((now, before.get(id)?)));
    let (idle, awake): (Vec<_>, Vec<_>) = both.partition(|(now, before)| now.count == before.count);
    let all_wait = !awake.iter().any(|(now, _)| is_of(&ANY, &now.name));
    let mut stuck = idle.iter().filter(|(now, before)| {
        now.is_stopped && before.is_stopped || is_of(&EACH, &now.name) || all_wait && is_of(&ANY, &now.name)
    });
    stuck.next().map(|(now, _)| now.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_run_is_found() {
        let all = |counts: [u64; 4], stopped: &str| -> Threads {
            let turns = |(name, count): (&str, u64)| Turns {
                name: name.to_owned(),
                count,
                is_stopped: name == stopped,
            };
            (7..)
                .zip(["host", "worker-0", "worker-1", "control"].into_iter().zip(counts).map(turns))
                .collect()
        };
        let at = |[host, one, other]: [u64; 3]| all([host, one, other, 0], "");
        assert_eq!(stuck(&at([1, 5, 9]), &at([2, 6, 10])), None);
        assert_eq!(stuck(&at([1, 5, 9]), &at([1, 6, 10])), Some("host"));
        assert_eq!(stuck(&at([1, 5, 9]), &at([2, 5, 10])), None, "one of the workers has the packets");
        assert_eq!(stuck(&at([1, 5, 9]), &at([2, 5, 9])), Some("worker-0"));
        assert_eq!(stuck(&Threads::new(), &at([1, 5, 9])), None, "new threads");
        let [one, other] = [all([1, 5, 9, 3], "control"), all([2, 6, 10, 3], "control")];
        assert_eq!(stuck(&one, &other), Some("control"), "one that waits for others, but is stopped");
        assert_eq!(stuck(&at([1, 5, 9]), &other), None, "perhaps only for a moment");
        assert_eq!(stuck(&one, &all([2, 6, 10, 4], "control")), None, "a tracer looks at it");
    }
}

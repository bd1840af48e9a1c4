//! The router as a service of systemd (sd_notify(3), `Type=notify`): it says when it is ready, when it reloads, when it
//! stops, and, if the unit has a watchdog, that it is alive.
//!
//! It is alive if the router answers `status`, for which BGP's sessions and the host thread must answer, and if every
//! thread that wakes by itself has run since. A thread that waits for a lock for ever does neither, so systemd starts
//! the service again.

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

fn watch(server: &ControlServer, stop: &AtomicBool, limit: Duration) {
    let mut before = turns();
    let mut asked = Instant::now();
    while !stop.load(Ordering::Acquire) {
        thread::sleep(LOOK_EVERY.min(limit / 4));
        if asked.elapsed() < limit / 2 {
            continue;
        }
        asked = Instant::now();
        // If a part of the router does not answer, this does not return.
        drop(server.status());
        let now = turns();
        match stuck(&before, &now) {
            Some(thread) => {
                tracing::error!(thread, "has not run for {} s: the watchdog is not fed", limit.as_secs() / 2)
            }
            None => notify("WATCHDOG=1"),
        }
        before = now;
    }
}

/// Threads that each wake by themselves at least once a second; `-` stands for a number behind it.
const EACH: [&str; 9] =
    ["shard-", "host", "flows", "rates", "addresses", "in-step", "bgp-links", "next-hops", "restart-note"];
/// Of these one at least does: it waits for packets, and by the model the others may wait for it.
const ANY: [&str; 2] = ["worker-", "reader-"];

/// Threads by their numbers: the name, and how often it got a core so far.
type Turns = BTreeMap<u32, (String, u64)>;

/// The turns of threads that wake by themselves.
fn turns() -> Turns {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Turns::new() };
    let turns = tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?.trim_end().to_owned();
        let schedule = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let turns = schedule.split_whitespace().nth(2)?.parse().ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        let is = |known: &&str| name == *known || known.ends_with('-') && name.starts_with(*known);
        EACH.iter().chain(&ANY).any(is).then_some((id, (name, turns)))
    });
    turns.collect()
}

/// A thread that was there before and has not run since, although it should have.
fn stuck<'n>(before: &Turns, now: &'n Turns) -> Option<&'n str> {
    let both = now.iter().filter_map(|(id, now)| Some((before.get(id)?.1 != now.1, now.0.as_str())));
    let both: Vec<(bool, &str)> = both.collect();
    let (workers, others): (Vec<_>, Vec<_>) =
        both.into_iter().partition(|(_, name)| ANY.iter().any(|role| name.starts_with(role)));
    let idle_workers = workers.iter().all(|(has_run, _)| !has_run).then_some(&workers);
    let mut idle = others.iter().filter(|(has_run, _)| !has_run).chain(idle_workers.into_iter().flatten());
    idle.next().map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_run_is_found() {
        let at = |turns: [u64; 3]| -> Turns {
            let names = ["host", "worker-0", "worker-1"].map(str::to_owned);
            (7..).zip(names.into_iter().zip(turns)).collect()
        };
        assert_eq!(stuck(&at([1, 5, 9]), &at([2, 6, 10])), None);
        assert_eq!(stuck(&at([1, 5, 9]), &at([1, 6, 10])), Some("host"));
        assert_eq!(stuck(&at([1, 5, 9]), &at([2, 5, 10])), None, "one of the workers has the packets");
        assert_eq!(stuck(&at([1, 5, 9]), &at([2, 5, 9])), Some("worker-0"));
        assert_eq!(stuck(&Turns::new(), &at([1, 5, 9])), None, "new threads");
    }
}

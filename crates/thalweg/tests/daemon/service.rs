//! The router as a service: what it tells the service manager, and how it writes to the journal.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use thalweg_base::uninterrupted;
use thalweg_testdata::threads::{hold, threads};

use crate::router::{Router, free_port, speaker};

/// The time limit for a message, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A service manager: what the router tells it.
struct Manager(UnixDatagram);

impl Manager {
    fn next(&self) -> String {
        let mut buffer = [0; 512];
        let length = uninterrupted(|| self.0.recv(&mut buffer)).expect("the router says something in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// The next message that is not about the watchdog.
    fn next_state(&self) -> String {
        std::iter::repeat_with(|| self.next()).find(|said| said != "WATCHDOG=1").expect("it never ends")
    }
}

#[test]
fn the_service_manager_is_told() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).expect("it is free"));
    manager.0.set_read_timeout(Some(DEADLINE)).expect("it is a time");
    let router = Router::start_by(directory.path(), "one", &speaker(1, free_port()), |_, command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000").env_remove("WATCHDOG_PID");
    });
    assert_eq!(manager.next(), "READY=1");
    assert_eq!(manager.next(), "WATCHDOG=1", "it is alive");
    assert_eq!(manager.next(), "WATCHDOG=1", "and goes on");
    router.text("reload", &[]);
    let reloading = manager.next_state();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("as sd_notify(3) wants it");
    assert!(since.parse::<u64>().is_ok_and(|us| us > 0), "{reloading}");
    assert_eq!(manager.next_state(), "READY=1");
    let (status, log) = router.stop();
    assert!(status.success() && !log.contains("watchdog"), "{log}");
    assert_eq!(manager.next_state(), "STOPPING=1");
    manager.0.set_nonblocking(true).expect("it is a socket");
    let rest = uninterrupted(|| manager.0.recv(&mut [0; 8])).expect_err("nothing follows");
    assert_eq!(rest.kind(), ErrorKind::WouldBlock);
}

/// The watchdog's time, as short as a busy machine allows.
const WATCHDOG: Duration = Duration::from_secs(2);
/// More messages than a stopped router still sends: until a look begins and ends in which a thread does not run.
const STILL_FED: usize = 5;

/// Starts a router under a service manager with a watchdog, waits until it is fed, stops all of it or the thread with
/// this name, and starts it again when it has been silent for the watchdog's time. Returns whether it could.
fn is_started_again(stopped: Option<&str>) -> bool {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).expect("it is free"));
    let config = format!("[web]\nlisten = \"127.0.0.1:{}\"\n{}", free_port(), speaker(1, free_port()));
    let start = |directory: &Path| {
        let router = Router::start_by(directory, "one", &config, |_, command| {
            let limit = WATCHDOG.as_micros().to_string();
            command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", limit).env_remove("WATCHDOG_PID");
        });
        manager.0.set_read_timeout(Some(DEADLINE)).expect("it is a time");
        // The one before may have said something at its end.
        assert_eq!(manager.next_state(), "READY=1");
        assert_eq!(manager.next(), "WATCHDOG=1");
        router
    };
    let router = start(directory.path());
    let mut held = None;
    match stopped {
        None => router.signal("STOP"),
        Some(name) => {
            let threads = threads(router.pid());
            let (thread, _) = threads.iter().find(|(_, known)| known == name).expect("each router has it");
            held = hold(*thread);
            if held.is_none() {
                return false;
            }
        }
    }
    // What it said until then is no matter.
    manager.0.set_nonblocking(true).expect("it is a socket");
    while uninterrupted(|| manager.0.recv(&mut [0; 64])).is_ok() {}
    manager.0.set_nonblocking(false).expect("it is a socket");
    manager.0.set_read_timeout(Some(WATCHDOG)).expect("it is a time");
    let fed = (0..STILL_FED).take_while(|_| uninterrupted(|| manager.0.recv(&mut [0; 64])).is_ok()).count();
    assert!(fed < STILL_FED, "{stopped:?} is stopped, and the watchdog is fed:\n{}", router.log());
    // Who holds a thread holds the end of its process, too.
    drop(held);
    drop(router);
    let (status, log) = start(directory.path()).stop();
    assert!(status.success(), "{log}");
    true
}

/// Whichever thread is stopped, and if all are.
#[test]
fn a_stopped_router_is_started_again() {
    let directory = tempfile::tempdir().expect("a folder");
    let config = format!("[web]\nlisten = \"127.0.0.1:{}\"\n{}", free_port(), speaker(1, free_port()));
    let router = Router::start_by(directory.path(), "one", &config, |_, command| {
        command.env("NOTIFY_SOCKET", "/dev/null").env("WATCHDOG_USEC", "2000000").env_remove("WATCHDOG_PID");
    });
    let names: BTreeSet<String> = threads(router.pid()).into_iter().map(|(_, name)| name).collect();
    drop(router);
    assert!(names.contains("watchdog") && names.contains("thalweg") && names.len() > 5, "{names:?}");
    let done: Vec<bool> = std::thread::scope(|scope| {
        let stopped = std::iter::once(None).chain(names.iter().map(|name| Some(name.as_str())));
        let tests: Vec<_> = stopped.map(|name| scope.spawn(move || is_started_again(name))).collect();
        tests
            .into_iter()
            .map(|test| test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    println!("threads: {names:?}");
    if done.contains(&false) {
        thalweg_testdata::skipped("single threads could not be stopped (python3, ptrace)");
    }
}

/// In the journal each line has a priority, and neither time nor color.
#[test]
fn the_journal_gets_priorities() {
    let directory = tempfile::tempdir().expect("a folder");
    let config = speaker(1, free_port());
    let stream =
        |log: &File| log.metadata().map(|log| format!("{}:{}", log.dev(), log.ino())).expect("a file");
    let router = Router::start_by(directory.path(), "one", &config, |log, command| {
        command.env("JOURNAL_STREAM", stream(log));
    });
    let (_, log) = router.stop();
    assert!(
        log.lines().all(|line| ["<3>", "<4>", "<6>", "<7>"].iter().any(|start| line.starts_with(start))),
        "{log}"
    );
    assert!(log.lines().any(|line| line.starts_with("<6>running")) && !log.contains('\x1b'), "{log}");

    // Another stream is no journal.
    let router = Router::start_by(directory.path(), "two", &config, |_, command| {
        command.env("JOURNAL_STREAM", "1:1");
    });
    let (_, log) = router.stop();
    assert!(log.contains(" INFO running") && !log.contains("<6>"), "{log}");
}

/// Lines of the log have colors on a terminal, unless its user wants none (no-color.org), and nowhere else.
#[test]
fn a_terminal_gets_colors() {
    if Command::new("script").arg("--version").output().is_err() {
        return thalweg_testdata::skipped("no script(1): nothing makes a terminal");
    }
    let directory = tempfile::tempdir().expect("a folder");
    let file = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(file("one.toml"), speaker(1, free_port())).expect("a file");
    // It logs its rights, and then cannot make its socket.
    std::fs::write(file("no.socket"), "").expect("a file");
    let run = [env!("CARGO_BIN_EXE_thalweg"), "run", "--socket", &file("no.socket"), &file("one.toml")];
    let said = |command: &mut Command, color: Option<&str>| {
        command
            .env_remove("NO_COLOR")
            .env_remove("JOURNAL_STREAM")
            .envs(color.map(|color| ("NO_COLOR", color)));
        let output = command.stdin(Stdio::null()).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("INFO") && said.contains("is no socket"), "{said}");
        said
    };
    for (color, has_color) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let mut terminal = Command::new("script");
        terminal.args(["--quiet", "--return", "--command", &run.join(" "), "/dev/null"]);
        let said = said(&mut terminal, color);
        assert_eq!(said.contains("\x1b["), has_color, "{color:?}: {said:?}");
    }
    let said = said(Command::new(run[0]).args(&run[1..]), None);
    assert!(!said.contains('\x1b'), "{said:?}");
}

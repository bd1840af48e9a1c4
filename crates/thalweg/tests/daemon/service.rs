//! The router as a service: what it tells the service manager, and how it writes to the journal.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::router::{Router, free_port, speaker};

/// The time limit for a message, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A service manager: what the router tells it.
struct Manager(UnixDatagram);

impl Manager {
    fn next(&self) -> String {
        let mut buffer = [0; 512];
        let length = self.0.recv(&mut buffer).expect("the router says something in time");
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
    let rest = manager.0.recv(&mut [0; 8]).expect_err("nothing follows");
    assert_eq!(rest.kind(), ErrorKind::WouldBlock);
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

//! nfcapd as collector, nfdump as reader.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{run, wait_until};

/// nfcapd on a port of the loopback. Ended by the test, or with it.
pub struct Nfcapd {
    child: Child,
    /// Where it listens.
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Nfcapd {
    /// Starts it and waits until it listens.
    pub fn start(program: &Path) -> Self {
        let port = super::free_port();
        let folder = tempfile::tempdir().expect("a folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder");
        let child = Command::new(program)
            .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-B", "4000000", "-w"])
            .arg(&data)
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("nfcapd starts");
        // Before that line its socket may be bound, but has a small buffer still.
        wait_until("nfcapd to listen", || {
            std::fs::read_to_string(folder.path().join("log")).expect("its log").contains("Startup nfcapd")
        });
        Self { child, port, folder }
    }

    /// Ends nfcapd, which writes its file; what it logged, and the folder of files.
    pub fn end(&mut self) -> (String, PathBuf) {
        wait_until("nfcapd to read its socket", || {
            let sockets = std::fs::read_to_string("/proc/net/udp").expect("the kernel tells");
            let ours = format!(":{:04X} ", self.port);
            let line = sockets.lines().find(|line| line.contains(&ours)).unwrap_or_default().to_owned();
            // "tx_queue:rx_queue", hexadecimal.
            line.split_whitespace().nth(4).is_none_or(|queues| queues.ends_with(":00000000"))
        });
        // A signal that comes just before nfcapd reads its socket is forgotten there: it is sent again.
        wait_until("nfcapd to end", || {
            run(Command::new("kill").args(["-TERM", &self.child.id().to_string()]));
            std::thread::sleep(Duration::from_millis(50));
            self.child.try_wait().expect("a child").is_some()
        });
        let log = std::fs::read_to_string(self.folder.path().join("log")).expect("its log");
        (log, self.folder.path().join("data"))
    }
}

impl Drop for Nfcapd {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number behind a name in nfdump's summary.
pub fn summary(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().expect("a number")
}

/// Sends it these messages.
pub fn deliver(port: u16, messages: &[Vec<u8>]) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    messages.iter().for_each(|message| {
        socket.send_to(message, ("127.0.0.1", port)).expect("it goes");
    });
}

/// nfcapd's log has nothing to complain about.
pub fn check_log(log: &str) {
    for word in ["equence", "rror", "emplate", "unknown", "Unknown", "No table", "skip", "invalid"] {
        assert!(
            !log.lines().any(|line| line.contains(word) && !line.contains("Sequence Errors: 0")),
            "{log}"
        );
    }
}

//! nfcapd as collector, and nfdump to read its files.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{run, wait_until};

/// nfcapd on a loopback port. The test stops it, or dropping it does.
pub struct Nfcapd {
    child: Child,
    /// The port where it listens.
    pub port: u16,
    folder: tempfile::TempDir,
}

impl Nfcapd {
    /// Starts nfcapd and waits until it listens.
    pub fn start(program: &Path) -> Self {
        let port = crate::free_port();
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
        // Before that line its socket may be bound, but still has a small buffer.
        wait_until("nfcapd to listen", || {
            std::fs::read_to_string(folder.path().join("log")).expect("its log").contains("Startup nfcapd")
        });
        Self { child, port, folder }
    }

    /// Stops nfcapd, which then writes its file; returns its log and the folder of files.
    pub fn end(&mut self) -> (String, PathBuf) {
        wait_until("nfcapd to read its socket", || {
            let sockets = std::fs::read_to_string("/proc/net/udp").expect("the kernel tells");
            let ours = format!(":{:04X} ", self.port);
            let line = sockets.lines().find(|line| line.contains(&ours)).unwrap_or_default().to_owned();
            // "tx_queue:rx_queue", hexadecimal.
            line.split_whitespace().nth(4).is_none_or(|queues| queues.ends_with(":00000000"))
        });
        // nfcapd forgets a signal that arrives just before it reads its socket, so the signal is repeated.
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
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after a name in nfdump's summary.
pub fn summary(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().expect("a number")
}

/// Sends these messages to nfcapd.
pub fn deliver(port: u16, messages: &[Vec<u8>]) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    messages.iter().for_each(|message| {
        socket.send_to(message, ("127.0.0.1", port)).expect("it goes");
    });
}

/// Fails if nfcapd's log has an error.
pub fn check_log(log: &str) {
    for word in ["equence", "rror", "emplate", "unknown", "Unknown", "No table", "skip", "invalid"] {
        assert!(
            !log.lines().any(|line| line.contains(word) && !line.contains("Sequence Errors: 0")),
            "{log}"
        );
    }
}

//! Runs other projects' collectors (nfcapd, nfacctd and tshark) on exported messages.

pub mod nfdump;
pub mod pmacct;
pub mod tshark;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::skipped;

const SECOND_NS: u64 = 1_000_000_000;
/// The capture time of generated captures.
pub const CAPTURED_NS: u64 = 1_700_000_000_000_000_000;
/// Longer than any step takes unless it hangs.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a condition holds; fails with `what` after [`TIMEOUT`].
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The path of a program, if it is installed.
pub fn program(name: &str, package: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let found = folders.iter().map(|folder| PathBuf::from(folder).join(name)).find(|path| path.exists());
    if found.is_none() {
        skipped(&format!("{name} is not installed (Debian: {package})"));
    }
    found
}

/// The output of a program, which must succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}:\n{}\n{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

/// A capture of these messages as datagrams from 127.0.0.1, port 40000, to 127.0.0.1, port 4739.
pub fn capture(messages: &[Vec<u8>], time_ns: u64) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for message in messages {
        let mut packet = Vec::new();
        etherparse::PacketBuilder::ipv4([127, 0, 0, 1], [127, 0, 0, 1], 64)
            .udp(40_000, 4739)
            .write(&mut packet, message)
            .expect("it has room");
        let length = packet.len() as u32;
        for word in [(time_ns / SECOND_NS) as u32, (time_ns % SECOND_NS) as u32, length, length] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&packet);
    }
    file
}

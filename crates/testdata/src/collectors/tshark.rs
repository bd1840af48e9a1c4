//! tshark dissects every message.

use std::fs;
use std::process::Command;

use super::{CAPTURED_NS, capture, program, run};

/// tshark's full output for these messages.
pub fn dissect(messages: &[Vec<u8>]) -> Option<String> {
    let tshark = program("tshark", "tshark")?;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("in.pcap");
    fs::write(&path, capture(messages, CAPTURED_NS)).expect("it is written");
    Some(run(Command::new(tshark).arg("-r").arg(path).args(["-d", "udp.port==4739,cflow", "-V"])))
}

/// Fails if tshark reports anything unusual.
pub fn check(text: &str, what: &str) {
    for complaint in
        ["Malformed", "No template", "Expert Info", "nknown Field", "Unknown(", "nexpected sequence"]
    {
        let line = text.lines().position(|line| line.contains(complaint));
        let around =
            |at: usize| text.lines().skip(at.saturating_sub(40)).take(50).collect::<Vec<_>>().join("\n");
        assert!(line.is_none(), "{what}: {complaint}\n{}", around(line.unwrap_or_default()));
    }
}

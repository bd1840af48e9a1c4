//! pmacct's nfacctd reads a capture of exported messages.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use super::{CAPTURED_NS, capture, program};

/// On a busy machine nfacctd sometimes ends before its plugin has written anything, so it is run again.
const TRIES: usize = 3;

/// Runs nfacctd on these messages; returns the printed rows and the log.
pub fn collect(messages: &[Vec<u8>], aggregate: &str, more: &str) -> Option<(Vec<Row>, String)> {
    let nfacctd = program("nfacctd", "pmacct")?;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("in.pcap"), capture(messages, CAPTURED_NS)).expect("it is written");
    let configuration = format!(
        "daemonize: false\nlogfile: {}\nplugins: print[a]\naggregate[a]: {aggregate}\nprint_output[a]: csv\n\
         print_output_file[a]: {}\nprint_refresh_time: 3600\npcap_savefile: {}\n{more}\n",
        path("log").display(),
        path("rows").display(),
        path("in.pcap").display(),
    );
    fs::write(path("configuration"), configuration).expect("it is written");
    let mut log = String::new();
    for _ in 0..TRIES {
        let output =
            Command::new(&nfacctd).arg("-f").arg(path("configuration")).output().expect("nfacctd runs");
        log = format!(
            "{}{}{}",
            fs::read_to_string(path("log")).unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
        if let Ok(rows) = fs::read_to_string(path("rows")) {
            return Some((rows_of(&rows), log));
        }
        let _ = fs::remove_file(path("log"));
    }
    panic!("no rows in {TRIES} runs: {log}");
}

/// A row, by column name.
pub type Row = HashMap<String, String>;

fn rows_of(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
    lines.map(|line| names.iter().cloned().zip(line.split(',').map(str::to_owned)).collect()).collect()
}

/// The sum of a column.
pub fn sum(rows: &[Row], name: &str) -> u64 {
    rows.iter().map(|row| row[name].parse::<u64>().expect("a number")).sum()
}

/// Fails if nfacctd's log has an error.
pub fn check_log(log: &str) {
    for word in ["WARN", "ERROR", "equence", "discarded", "unknown template"] {
        assert!(!log.contains(word), "{log}");
    }
}

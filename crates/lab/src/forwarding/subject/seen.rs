//! What can be seen of a router that runs: whether the means that was changed has changed.
//!
//! A router that is told to use no large pages and uses them all the same would be measured and believed. So what each
//! means changes is read from the kernel and from the router's own counters, and stands beside its throughput.

use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// See the module. What could not be read is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Seen {
    /// Packets that a worker took at once, on average: batches.
    pub packets_per_chunk: Option<f64>,
    /// How often workers slept for each packet: polling.
    pub sleeps_per_packet: Option<f64>,
    /// Memory in large pages, bytes.
    pub large_pages_bytes: Option<u64>,
    /// Cores that the first worker may use, as the kernel lists them: affinity.
    pub cores: Option<String>,
    /// How frames come, in the router's words: copies.
    pub mode: Option<String>,
}

impl Seen {
    /// Of a router that is a process of this number, and answers `program` at a socket.
    pub(super) fn of(process: u32, program: &Path, socket: &Path) -> Self {
        let folder = format!("/proc/{process}");
        let workers = threads(&folder, "worker-");
        let status = |name: &str| workers.iter().filter_map(move |text| field(text, name));
        let sleeps: u64 = status("voluntary_ctxt_switches").filter_map(|sleeps| sleeps.parse::<u64>().ok()).sum();
        let counters = ask(program, socket, "counters");
        let (packets, chunks) = counters.as_ref().map_or((0, 0), |view| (sum(view, "packets"), sum(view, "chunks")));
        let per = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let pages = fs::read_to_string(format!("{folder}/smaps_rollup")).ok();
        let ports = ask(program, socket, "ports");
        Self {
            packets_per_chunk: per(packets, chunks),
            sleeps_per_packet: per(sleeps, packets),
            large_pages_bytes: pages.as_deref().and_then(large_pages),
            cores: status("Cpus_allowed_list").next().map(str::to_owned),
            mode: ports.and_then(|port| Some(port["mode"].as_str()?.to_owned())),
        }
    }
}

/// The first line of an answer.
fn ask(program: &Path, socket: &Path, what: &str) -> Option<Value> {
    let output =
        Command::new(program).args(["show", what, "--format", "json", "--socket"]).arg(socket).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    serde_json::from_str(text.lines().next()?).ok()
}

/// A number of all workers together.
fn sum(counters: &Value, name: &str) -> u64 {
    let workers = counters["workers"].as_array().into_iter().flatten();
    workers.filter_map(|worker| worker[name].as_u64()).sum()
}

/// What the kernel says of threads whose names begin so.
fn threads(folder: &str, begin: &str) -> Vec<String> {
    let status = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        field(&text, "Name")?.starts_with(begin).then_some(text)
    };
    fs::read_dir(format!("{folder}/task")).into_iter().flatten().flatten().filter_map(status).collect()
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn large_pages(rollup: &str) -> Option<u64> {
    let kib: u64 = field(rollup, "AnonHugePages")?.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "Name:\tworker-0\nnonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t7\nCpus_allowed_list:\t0-1\n";
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some("7"));
        assert_eq!((field(status, "Cpus_allowed_list"), field(status, "Cpus")), (Some("0-1"), None));
        assert_eq!(large_pages("Rss: 9 kB\nAnonHugePages:      2048 kB\n"), Some(2 << 20));
        assert_eq!(large_pages("Rss: 9 kB\n"), None);
        let here = Seen::of(std::process::id(), Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert!(here.large_pages_bytes.is_some() && here.mode.is_none(), "{here:?}");
    }

    #[test]
    fn workers_are_added_up() {
        let view = serde_json::json!({ "workers": [{ "packets": 5, "chunks": 1 }, { "packets": 7, "chunks": null }] });
        assert_eq!((sum(&view, "packets"), sum(&view, "chunks"), sum(&Value::Null, "packets")), (12, 1, 0));
    }
}

//! What can be seen of a running router: whether it runs as it was told to.
//!
//! A router that ignores a setting would be measured and believed. So the settings that an ablation changes are read
//! back from the kernel and from the router's own counters ([`Seen`]), and compared with what the change must show
//! ([`Sign`]).

use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a router shows while it runs. `None`: it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Seen {
    /// Packets that a worker took at once, on average.
    pub packets_per_chunk: Option<f64>,
    /// How often busy polling found packets.
    pub polled: Option<u64>,
    /// How often workers slept for each packet.
    pub sleeps_per_packet: Option<f64>,
    /// Whether the kernel may give it huge pages.
    pub huge_pages_allowed: Option<bool>,
    /// Memory in huge pages.
    pub huge_pages_bytes: Option<u64>,
    /// The cores that the first worker may use, as the kernel lists them.
    pub cores: Option<String>,
    /// The driver's mode, as the router names it.
    pub mode: Option<String>,
}

/// What a router with a certain setting shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// Busy polling finds packets.
    Polls,
    NoHugePages,
    /// The driver's mode contains this word.
    Mode(&'static str),
    /// Workers may use this core only.
    Core(usize),
    /// Workers take at most so many packets at once.
    PacketsPerChunk(usize),
}

impl Sign {
    /// Whether the router shows it; `None` if what would show it could not be read.
    pub fn is_shown_by(&self, seen: &Seen) -> Option<bool> {
        Some(match self {
            Self::Polls => seen.polled? > 0,
            Self::NoHugePages => !seen.huge_pages_allowed? && seen.huge_pages_bytes? == 0,
            Self::Mode(word) => seen.mode.as_ref()?.contains(word),
            Self::Core(core) => *seen.cores.as_ref()? == core.to_string(),
            Self::PacketsPerChunk(most) => seen.packets_per_chunk? <= *most as f64,
        })
    }
}

impl Seen {
    /// Looks at a router that is this process and answers `program` on a socket.
    pub(super) fn of(process: u32, program: &Path, socket: &Path) -> Self {
        let folder = format!("/proc/{process}");
        let process = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let workers = threads(&folder, "worker-");
        let status = |name: &'static str| workers.iter().filter_map(move |text| field(text, name));
        let sleeps: u64 =
            status("voluntary_ctxt_switches").filter_map(|sleeps| sleeps.parse::<u64>().ok()).sum();
        let counters = ask(program, socket, "counters").unwrap_or_default();
        let sum = |name| sum(&counters, name);
        let per = |part: Option<u64>, whole: Option<u64>| {
            whole.filter(|whole| *whole > 0).and_then(|whole| Some(part? as f64 / whole as f64))
        };
        let pages = fs::read_to_string(format!("{folder}/smaps_rollup")).ok();
        let port = ask(program, socket, "ports").unwrap_or_default();
        Self {
            packets_per_chunk: per(sum("packets"), sum("chunks")),
            polled: sum("polled"),
            sleeps_per_packet: per(Some(sleeps).filter(|_| !workers.is_empty()), sum("packets")),
            huge_pages_allowed: field(&process, "THP_enabled").map(|allowed| allowed == "1"),
            huge_pages_bytes: pages.as_deref().and_then(huge_pages),
            cores: status("Cpus_allowed_list").next().map(str::to_owned),
            mode: port["mode"].as_str().map(str::to_owned),
        }
    }
}

/// The first line of an answer.
fn ask(program: &Path, socket: &Path, what: &str) -> Option<Value> {
    let output = Command::new(program)
        .args(["show", what, "--format", "json", "--socket"])
        .arg(socket)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    serde_json::from_str(text.lines().next()?).ok()
}

/// A number of all workers together; `None` if none has it.
fn sum(counters: &Value, name: &str) -> Option<u64> {
    let workers = counters["workers"].as_array()?.iter();
    workers.filter_map(|worker| worker[name].as_u64()).reduce(|sum, more| sum + more)
}

/// The kernel's status files of threads whose names begin so.
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

fn huge_pages(rollup: &str) -> Option<u64> {
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
        assert_eq!(huge_pages("Rss: 9 kB\nAnonHugePages:      2048 kB\n"), Some(2 << 20));
        assert_eq!(huge_pages("Rss: 9 kB\n"), None);
        let here = Seen::of(std::process::id(), Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert!(here.huge_pages_bytes.or(here.polled).is_some() && here.mode.is_none(), "{here:?}");
        assert_eq!(here.huge_pages_allowed, Some(true));
    }

    #[test]
    fn workers_are_added_up() {
        let view = serde_json::json!({ "workers": [{ "packets": 5, "chunks": 1 }, { "packets": 7, "chunks": null }] });
        assert_eq!(
            (sum(&view, "packets"), sum(&view, "chunks"), sum(&view, "polled")),
            (Some(12), Some(1), None)
        );
        assert_eq!(sum(&Value::Null, "packets"), None);
    }

    #[test]
    fn a_setting_is_read_back() {
        let seen = Seen {
            packets_per_chunk: Some(15.5),
            polled: Some(0),
            sleeps_per_packet: None,
            huge_pages_allowed: Some(true),
            huge_pages_bytes: Some(0),
            cores: Some("0-1".to_owned()),
            mode: Some("af_xdp generic (copy)".to_owned()),
        };
        let signs = |seen: &Seen| {
            [Sign::Polls, Sign::NoHugePages, Sign::Mode("generic"), Sign::Core(1), Sign::PacketsPerChunk(16)]
                .map(|sign| sign.is_shown_by(seen))
        };
        assert_eq!(signs(&seen), [Some(false), Some(false), Some(true), Some(false), Some(true)]);
        assert_eq!(Sign::PacketsPerChunk(1).is_shown_by(&seen), Some(false));
        assert_eq!(signs(&Seen::default()), [None; 5]);
    }
}

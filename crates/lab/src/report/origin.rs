//! The origin of a measurement: machine, input, command.

use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use thalweg_text::calendar::{Moment, SECOND_NS};

const UNKNOWN: &str = "unknown";

/// The machine, as far as it can be identified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// 0 if unknown.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Mitigations of processor flaws, active or missing, because they cost time unevenly.
    pub mitigations: String,
}

impl Machine {
    /// This machine, with "unknown" for facts that cannot be found.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        Machine {
            processor: processor(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: if release.trim().is_empty() {
                UNKNOWN.into()
            } else {
                format!("Linux {}", release.trim())
            },
            mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
        }
    }

    /// A machine about which nothing is known.
    pub fn unknown() -> Machine {
        let unknown = || UNKNOWN.to_owned();
        Machine { processor: unknown(), cores: 0, memory_bytes: 0, kernel: unknown(), mitigations: unknown() }
    }
}

/// Everything that a reader needs to judge a figure or to measure again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    pub machine: Machine,
    /// The measured commit, with "+ changes" if the working tree had any.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// A description of the input.
    pub input: String,
    /// The time in UTC.
    pub measured_at: String,
}

impl Origin {
    /// This machine, the current time, and the commit of the current folder.
    pub fn here(command: impl Into<String>, input: impl Into<String>) -> Origin {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Origin {
            machine: Machine::here(),
            commit: commit(),
            command: command.into(),
            input: input.into(),
            measured_at: utc(now_s),
        }
    }

    /// Names and values, for a page.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let machine = &self.machine;
        let or_unknown = |known: bool, text: String| if known { text } else { UNKNOWN.to_owned() };
        let gib = machine.memory_bytes as f64 / (1u64 << 30) as f64;
        vec![
            ("Command", self.command.clone()),
            ("Input", self.input.clone()),
            ("Commit", self.commit.clone()),
            ("Measured", self.measured_at.clone()),
            ("Processor", machine.processor.clone()),
            ("Cores", or_unknown(machine.cores > 0, machine.cores.to_string())),
            ("Memory", or_unknown(machine.memory_bytes > 0, format!("{gib:.1} GiB"))),
            ("Kernel", machine.kernel.clone()),
            ("Mitigations", machine.mitigations.clone()),
        ]
    }
}

fn processor(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim()).filter(|value| !value.is_empty())
    };
    // In a virtual machine the model name can be as short as "AMD EPYC"; family and model identify the
    // generation.
    match (field("model name"), field("cpu family"), field("model"), field("Hardware")) {
        (Some(name), Some(family), Some(model), _) => format!("{name} (family {family}, model {model})"),
        (Some(name), ..) | (None, .., Some(name)) => name.to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:")).unwrap_or_default();
    let kib = line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0);
    kib.saturating_mul(1024)
}

/// The kernel's list in one line: each flaw of the processor and its mitigation.
fn mitigations(folder: &Path) -> String {
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let state = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let state = state.trim();
        if !state.is_empty() && state != "Not affected" {
            found.push(format!("{}: {state}", entry.file_name().to_string_lossy()));
        }
    }
    found.sort();
    match (found.is_empty(), folder.is_dir()) {
        (false, _) => found.join(" | "),
        (true, true) => "none needed".to_owned(),
        (true, false) => UNKNOWN.to_owned(),
    }
}

/// What the program was built from: as the build says, or, for one that a developer builds and runs in the sources, as
/// git says there. Another repository that it happens to run in says nothing.
fn commit() -> String {
    if let Some(built_from) = option_env!("THALWEG_COMMIT") {
        return built_from.to_owned();
    }
    let git = |args: &[&str]| {
        let output =
            Command::new("git").args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_ours = git(&["ls-files", ":/crates/lab/claims.toml"]).is_some_and(|found| !found.is_empty());
    let revision = is_ours.then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    let Some(revision) = revision.filter(|r| !r.is_empty()) else { return UNKNOWN.to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    if changed { format!("{revision} + changes") } else { revision }
}

/// Date and time of a second since 1970.
fn utc(seconds: u64) -> String {
    let m = Moment::of(seconds.saturating_mul(SECOND_NS));
    format!("{}-{:02}-{:02} {:02}:{:02}:{:02} UTC", m.year, m.month, m.day, m.hour, m.minute, m.second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_709_251_199), "2024-02-29 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(cpuinfo), "AMD EPYC (family 26, model 2)");
        assert_eq!(processor("model name : X\n"), "X");
        assert_eq!(processor("Hardware\t: BCM2835\n"), "BCM2835");
        assert_eq!(processor("nonsense"), UNKNOWN);
        assert_eq!(memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 16_384 * 1024);
        assert_eq!(memory_bytes("MemTotal: lots"), 0);
    }

    #[test]
    fn mitigations_leave_out_what_does_not_concern_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mitigations(folder.path()), "none needed");
        std::fs::write(folder.path().join("meltdown"), "Not affected\n").unwrap();
        std::fs::write(folder.path().join("spectre_v2"), "Mitigation: Retpolines\n").unwrap();
        assert_eq!(mitigations(folder.path()), "spectre_v2: Mitigation: Retpolines");
        assert_eq!(mitigations(&folder.path().join("missing")), UNKNOWN);
    }

    #[test]
    fn every_fact_has_a_value() {
        let origin = Origin::here("thalweg lab models", "a trace");
        assert!(origin.machine.cores >= 1);
        for (name, value) in origin.facts() {
            assert!(!value.is_empty(), "{name}");
        }
    }
}

//! All tests of the workspace, three test programs at a time.
//!
//! `cargo test` runs one test program after the other, and many of ours wait: for sessions, timers, other daemons. Here two programs
//! that wait run beside one that computes. What a program prints is printed when it has ended, in one piece.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cargo::cargo_command;

/// Tests at a time in a program whose tests mostly wait.
const THREADS_WAITING: usize = 16;

/// What to build and to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Arguments of `cargo test` before `--`: features, targets.
    cargo: Vec<String>,
    /// Arguments of each test program.
    program: Vec<String>,
}

impl Options {
    /// Reads `[ARGUMENT OF CARGO].. [-- ARGUMENT OF TEST PROGRAMS..]`.
    pub(crate) fn parse(args: &[String]) -> Self {
        let mut parts = args.splitn(2, |arg| arg == "--").map(<[String]>::to_vec);
        Self { cargo: parts.next().unwrap_or_default(), program: parts.next().unwrap_or_default() }
    }
}

/// A test program.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    name: String,
    path: PathBuf,
    /// Where it runs: its package's folder, as with `cargo test`.
    folder: PathBuf,
    lane: Lane,
}

/// What a program's tests do most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Tests that mostly wait: for sessions, timers, other daemons.
    Waits,
    /// Tests that compute.
    Computes,
    /// As the second, but one test at a time: DPDK's share one process's memory, and one of them uses it up; Kafka's each start a broker.
    Alone,
}

impl Lane {
    /// Tests at a time.
    fn threads(self) -> usize {
        match self {
            Self::Waits => THREADS_WAITING,
            Self::Computes => thread::available_parallelism().map_or(2, usize::from),
            Self::Alone => 1,
        }
    }
}

/// What runs long, the longest first: begun in this order, before all others, so that nothing long is left at the end.
const LONG: [&str; 12] = [
    "thalweg tests/live",
    "thalweg tests/main",
    "sim tests/seeds",
    "thalweg tests/interop",
    "node unit tests",
    "thalweg tests/lab",
    "sim tests/network",
    "node tests/main",
    "node tests/fuzz",
    "exec tests/models",
    "lab unit tests",
    "dataplane unit tests",
];

impl Program {
    /// Its place among those that wait to be run.
    fn turn(&self) -> usize {
        LONG.iter().position(|name| *name == self.name).unwrap_or(LONG.len())
    }
}

/// How a program ended.
struct Outcome {
    name: String,
    output: String,
    took: Duration,
    passed: bool,
}

/// Builds and runs them. An error says how many tests failed, and in which programs.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let began = Instant::now();
    let programs = build(root, &options.cargo)?;
    println!("==> {} test programs, built in {} s", programs.len(), began.elapsed().as_secs());
    let began = Instant::now();
    let queue = Queue::new(programs);
    let (report, reports) = channel();
    let mut totals = Totals::default();
    thread::scope(|scope| {
        for first in [Lane::Waits, Lane::Waits, Lane::Computes] {
            let (report, queue) = (report.clone(), &queue);
            scope.spawn(move || run_programs(queue, first, &options.program, &report));
        }
        drop(report);
        for outcome in reports {
            println!(
                "     Running {} ({:.1} s)\n{}",
                outcome.name,
                outcome.took.as_secs_f64(),
                outcome.output
            );
            totals.add(&outcome);
        }
    });
    println!("==> tests ran for {} s", began.elapsed().as_secs());
    totals.say()
}

/// Programs that nobody has begun.
struct Queue(Mutex<VecDeque<Program>>);

impl Queue {
    fn new(mut programs: Vec<Program>) -> Self {
        programs.sort_by_key(Program::turn);
        Self(Mutex::new(programs.into()))
    }

    /// One of this lane, if there is any, else any other.
    fn next(&self, lane: Lane) -> Option<Program> {
        let mut programs = self.0.lock().expect("nobody panics with it");
        let own = programs.iter().position(|program| program.lane == lane);
        programs.remove(own.unwrap_or(0))
    }
}

fn run_programs(queue: &Queue, first: Lane, arguments: &[String], report: &Sender<Outcome>) {
    while let Some(program) = queue.next(first) {
        let began = Instant::now();
        let result = Command::new(&program.path)
            .args(arguments)
            .current_dir(&program.folder)
            .env("RUST_TEST_THREADS", program.lane.threads().to_string())
            .stdin(Stdio::null())
            .output();
        let (output, passed) = match result {
            Ok(done) => {
                let text =
                    [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                (text.concat(), done.status.success())
            }
            Err(error) => (format!("it did not start: {error}"), false),
        };
        let outcome = Outcome { name: program.name.clone(), output, took: began.elapsed(), passed };
        if report.send(outcome).is_err() {
            return;
        }
    }
}

/// What all programs said.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        for line in outcome.output.lines().filter(|line| line.starts_with("test result:")) {
            for (count, total) in
                [("passed", &mut self.passed), ("failed", &mut self.failed), ("ignored", &mut self.ignored)]
            {
                *total += number_before(line, count);
            }
        }
        let tests =
            outcome.output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let before = self.failures.len();
        self.failures.extend(tests.map(|test| format!("{}: {test}", outcome.name)));
        if !outcome.passed && self.failures.len() == before {
            self.failures.push(format!("{}: ended badly", outcome.name));
        }
    }

    fn say(&self) -> Result<(), String> {
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.ignored);
        match (self.passed, self.failures.as_slice()) {
            (0, []) => Err("no test ran".to_owned()),
            (_, []) => Ok(()),
            (_, failures) => Err(format!("{} tests failed:\n  {}", failures.len(), failures.join("\n  "))),
        }
    }
}

/// The number in front of a word.
fn number_before(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';']).collect();
    let at = words.iter().position(|each| *each == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
}

fn build(root: &Path, arguments: &[String]) -> Result<Vec<Program>, String> {
    let fixed = ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"];
    println!("    cargo {} {}", fixed.join(" "), arguments.join(" "));
    let output = cargo_command()
        .current_dir(root)
        .args(fixed)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo did not start: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not compile".to_owned());
    }
    Ok(programs(&String::from_utf8_lossy(&output.stdout)))
}

/// The test programs among what cargo said it built.
fn programs(messages: &str) -> Vec<Program> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    messages.filter_map(|message: Value| program(&message)).collect()
}

fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let is_integration = message["target"]["kind"][0] == "test";
    let target = message["target"]["name"].as_str()?;
    let part = if is_integration { format!("tests/{target}") } else { "unit tests".to_owned() };
    Some(Program {
        name: format!("{package} {part}"),
        path,
        folder,
        lane: match (package.as_str(), target) {
            (_, "dpdk" | "kafka") => Lane::Alone,
            ("thalweg", _) | ("replay" | "probe", "main") | ("ports", _) if is_integration => Lane::Waits,
            _ => Lane::Computes,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_what_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/base/Cargo.toml","target":{"kind":["lib"],"name":"b"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/x/crates/base/Cargo.toml","target":{"kind":["lib"],"name":"b"},"profile":{"test":true},"executable":"/t/b-1"}
{"reason":"compiler-artifact","manifest_path":"/x/crates/thalweg/Cargo.toml","target":{"kind":["test"],"name":"live"},"profile":{"test":true},"executable":"/t/live-2"}
{"reason":"compiler-artifact","manifest_path":"/x/crates/ports/Cargo.toml","target":{"kind":["test"],"name":"dpdk"},"profile":{"test":true},"executable":"/t/dpdk-3"}
{"reason":"compiler-artifact","manifest_path":"/x/crates/thalweg/Cargo.toml","target":{"kind":["bin"],"name":"thalweg"},"profile":{"test":false},"executable":"/t/thalweg"}
{"reason":"build-finished","success":true}"#;
        let found: Vec<_> = programs(messages).into_iter().map(|each| (each.name, each.lane)).collect();
        let expected = [
            ("base unit tests", Lane::Computes),
            ("thalweg tests/live", Lane::Waits),
            ("ports tests/dpdk", Lane::Alone),
        ];
        assert_eq!(found, expected.map(|(name, lane)| (name.to_owned(), lane)));
    }

    #[test]
    fn what_programs_said_adds_up() {
        let mut totals = Totals::default();
        let outcome = |output: &str, passed| Outcome {
            name: "a".to_owned(),
            output: output.to_owned(),
            took: Duration::ZERO,
            passed,
        };
        assert!(totals.say().unwrap_err().contains("no test"));
        totals
            .add(&outcome("test x ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured", true));
        assert!(totals.say().is_ok());
        totals.add(&outcome("test y ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored;", false));
        totals.add(&outcome("it was killed", false));
        assert_eq!((totals.passed, totals.failed, totals.ignored), (5, 1, 1));
        assert_eq!(totals.failures, ["a: y", "a: ended badly"]);
        assert!(totals.say().unwrap_err().contains("a: y"));
    }

    #[test]
    fn arguments_are_cargos_or_the_programs() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let options = Options::parse(&words(&["--features", "x", "--", "name"]));
        assert_eq!(options, Options { cargo: words(&["--features", "x"]), program: words(&["name"]) });
        assert_eq!(Options::parse(&[]), Options::default());
    }
}

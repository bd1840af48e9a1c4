//! Runs all tests of the workspace, three test programs at a time, each as soon as it is built.
//!
//! `cargo test` builds everything and then runs one test program after the other, and many of ours wait: for
//! sessions, timers, other daemons. Here two programs that wait run beside one that computes, and beside the
//! compiler, which is still at work when the first ones run. A program's output is printed at its end, in one
//! piece.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bounded;
use crate::cargo::cargo_command;

/// A program that takes longer hangs: the longest takes five minutes on two cores.
const LONGEST: Duration = Duration::from_secs(20 * 60);
/// The tests that run at the same time in a program whose tests mostly wait.
const THREADS_WAITING: usize = 16;

/// The options of `cargo xtask test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Arguments of `cargo test` before `--`: features, targets.
    pub(crate) cargo: Vec<String>,
    /// Arguments of each test program.
    pub(crate) program: Vec<String>,
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
    /// As with `cargo test`, it runs in the folder of its package.
    folder: PathBuf,
    /// Its tests run the binary of their package.
    runs_binary: bool,
    lane: Lane,
}

/// What a program's tests mostly do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Tests that mostly wait: for sessions, timers, other daemons.
    Waits,
    /// Tests that wait, one at a time: DPDK's share the memory of one process, and one of them uses it up;
    /// Kafka's each start a broker.
    WaitsAlone,
    /// Tests that compute.
    Computes,
}

impl Lane {
    /// The number of tests that run at the same time.
    fn threads(self) -> usize {
        match self {
            Self::Waits => THREADS_WAITING,
            Self::WaitsAlone => 1,
            Self::Computes => thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

/// Long programs, the longest first. They start in this order before all others, so that no long one remains
/// at the end.
const LONG: [&str; 13] = [
    "thalweg tests/live",
    "thalweg tests/main",
    "sim tests/seeds",
    "thalweg tests/interop",
    "node unit tests",
    "thalweg tests/lab",
    "probe tests/kafka",
    "sim tests/network",
    "node tests/main",
    "thalweg tests/fuzz",
    "exec tests/models",
    "lab unit tests",
    "dataplane unit tests",
];

impl Program {
    /// Its place in the order of programs.
    fn turn(&self) -> usize {
        LONG.iter().position(|name| *name == self.name).unwrap_or(LONG.len())
    }
}

/// The result of a program.
struct Outcome {
    name: String,
    output: String,
    took: Duration,
    passed: bool,
}

/// Builds and runs the tests, and calls a function beside them once they are built. An error says how many
/// tests failed, and in which programs.
pub(crate) fn run(
    root: &Path,
    options: &Options,
    beside: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), String> {
    let began = Instant::now();
    let queue = Queue::default();
    let (report, reports) = channel();
    let mut totals = Totals::default();
    let rest = thread::scope(|scope| {
        for takes in [Takes::Waiting, Takes::Waiting, Takes::Computing] {
            let (report, queue) = (report.clone(), &queue);
            scope.spawn(move || run_programs(queue, takes, &options.program, &report));
        }
        drop(report);
        let rest = scope.spawn(|| {
            let built = build(root, &options.cargo, &queue);
            queue.end(built.is_ok());
            println!("==> {} test programs, built in {} s", built?, began.elapsed().as_secs());
            beside()
        });
        for outcome in reports {
            println!(
                "     Running {} ({:.1} s)\n{}",
                outcome.name,
                outcome.took.as_secs_f64(),
                outcome.output
            );
            totals.add(&outcome);
        }
        println!("==> built and tested in {} s", began.elapsed().as_secs());
        rest.join().unwrap_or_else(|_| Err("the thread that builds panicked".to_owned()))
    });
    let tested = totals.say();
    match (tested, rest) {
        (Err(tests), Err(rest)) => Err(format!("{rest}\n{tests}")),
        (tested, rest) => rest.and(tested),
    }
}

/// The kind of programs that a thread takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Those that wait; any once all are built.
    Waiting,
    /// Those that compute, otherwise any.
    Computing,
}

/// The programs that have not started.
#[derive(Default)]
struct Queue {
    state: Mutex<Built>,
    changed: Condvar,
}

#[derive(Default)]
struct Built {
    programs: Vec<Program>,
    /// No more will come.
    is_all: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, Built> {
        self.state.lock().expect("no thread panics with this lock")
    }

    fn add(&self, program: Program) {
        self.state().programs.push(program);
        self.changed.notify_all();
    }

    /// No more will come. The programs that have not started are skipped if they do not count.
    fn end(&self, counts: bool) {
        let mut built = self.state();
        built.is_all = true;
        if !counts {
            built.programs.clear();
        }
        self.changed.notify_all();
    }

    /// The next program; waits for one to be built. None if all have started.
    fn next(&self, takes: Takes) -> Option<Program> {
        let mut built = self.state();
        loop {
            if let Some(place) = built.choose(takes) {
                return Some(built.programs.swap_remove(place));
            }
            if built.is_all {
                return None;
            }
            built = self.changed.wait(built).expect("no thread panics with this lock");
        }
    }
}

impl Built {
    fn choose(&self, takes: Takes) -> Option<usize> {
        let first = |wanted: &dyn Fn(&Program) -> bool| {
            let places = (0..self.programs.len()).filter(|place| wanted(&self.programs[*place]));
            places.min_by_key(|place| self.programs[*place].turn())
        };
        let computes = |program: &Program| program.lane == Lane::Computes;
        let own = first(&|program| computes(program) == (takes == Takes::Computing));
        // Programs that wait are built last, so their threads are kept for them until then.
        own.or_else(|| first(&|_| self.is_all || takes == Takes::Computing))
    }
}

fn run_programs(queue: &Queue, takes: Takes, arguments: &[String], report: &Sender<Outcome>) {
    while let Some(program) = queue.next(takes) {
        let began = Instant::now();
        let result = bounded::run(
            Command::new(&program.path)
                .args(arguments)
                .current_dir(&program.folder)
                .env("RUST_TEST_THREADS", program.lane.threads().to_string()),
            LONGEST,
        );
        let (output, passed) = match result {
            Ok(ended) => {
                let passed = ended.passed();
                (ended.output, passed)
            }
            Err(error) => (format!("it did not start: {error}"), false),
        };
        let outcome = Outcome { name: program.name.clone(), output, took: began.elapsed(), passed };
        if report.send(outcome).is_err() {
            return;
        }
    }
}

/// The sums over all programs.
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

/// Builds the programs, and puts each into the queue when it is done; returns how many there are.
fn build(root: &Path, arguments: &[String], queue: &Queue) -> Result<usize, String> {
    let fixed = ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"];
    println!("    cargo {} {}", fixed.join(" "), arguments.join(" "));
    let mut cargo = cargo_command()
        .current_dir(root)
        .args(fixed)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo did not start: {error}"))?;
    let messages = BufReader::new(cargo.stdout.take().expect("it is piped"));
    let mut count = 0;
    let mut held = Held::default();
    for message in messages.lines() {
        let message = message.map_err(|error| format!("cargo's messages cannot be read: {error}"))?;
        let message: Value = serde_json::from_str(&message).unwrap_or(Value::Null);
        count += usize::from(program(&message).is_some());
        held.runnable(&message).into_iter().for_each(|program| queue.add(program));
    }
    held.waiting.into_iter().for_each(|program| queue.add(program));
    match cargo.wait() {
        Ok(status) if status.success() => Ok(count),
        Ok(_) => Err("the tests do not compile".to_owned()),
        Err(error) => Err(format!("cargo is gone: {error}")),
    }
}

/// Programs that run a binary of their package which is not built yet. Cargo compiles them without waiting
/// for it, so the binary may be missing or old.
#[derive(Default)]
struct Held {
    waiting: Vec<Program>,
    /// The folders of packages whose binary is built.
    with_binary: Vec<PathBuf>,
}

impl Held {
    /// The programs that can be run after a message of cargo.
    fn runnable(&mut self, message: &Value) -> Vec<Program> {
        let built = folder(message).filter(|_| is_binary(message));
        self.waiting.extend(program(message));
        self.with_binary.extend(built);
        let needs = |program: &Program| program.runs_binary && !self.with_binary.contains(&program.folder);
        let (waiting, runnable) = self.waiting.drain(..).partition(needs);
        self.waiting = waiting;
        runnable
    }
}

/// Whether the message is about a program that is no test.
fn is_binary(message: &Value) -> bool {
    message["executable"].is_string()
        && message["profile"]["test"] == false
        && message["target"]["kind"][0] == "bin"
}

fn folder(message: &Value) -> Option<PathBuf> {
    Path::new(message["manifest_path"].as_str()?).parent().map(Path::to_path_buf)
}

/// The test program that a message of cargo announces, if any.
fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = folder(message)?;
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let is_integration = message["target"]["kind"][0] == "test";
    let target = message["target"]["name"].as_str()?;
    let part = if is_integration { format!("tests/{target}") } else { "unit tests".to_owned() };
    Some(Program {
        name: format!("{package} {part}"),
        path,
        runs_binary: is_integration && folder.join("src/main.rs").is_file(),
        folder,
        lane: match (package.as_str(), target) {
            (_, "dpdk" | "kafka") => Lane::WaitsAlone,
            // Its threads pass virtual cores to each other.
            ("exec", "models") => Lane::Waits,
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
        let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        let found: Vec<_> =
            messages.filter_map(|each| program(&each)).map(|each| (each.name, each.lane)).collect();
        let expected = [
            ("base unit tests", Lane::Computes),
            ("thalweg tests/live", Lane::Waits),
            ("ports tests/dpdk", Lane::WaitsAlone),
        ];
        assert_eq!(found, expected.map(|(name, lane)| (name.to_owned(), lane)));
    }

    #[test]
    fn tests_wait_for_the_binary_that_they_run() {
        let package = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(package.path().join("src")).expect("a folder");
        std::fs::write(package.path().join("src/main.rs"), "").expect("a file");
        let of = |kind: &str, test: bool| {
            serde_json::json!({ "manifest_path": package.path().join("Cargo.toml"), "target": { "kind": [kind], "name": "x" },
                "profile": { "test": test }, "executable": "/t/x" })
        };
        let mut held = Held::default();
        assert_eq!(held.runnable(&of("test", true)), []);
        assert_eq!(held.runnable(&of("bin", true)).len(), 1, "its unit tests run nothing else");
        let runnable = held.runnable(&of("bin", false));
        assert_eq!(runnable.iter().map(|program| program.runs_binary).collect::<Vec<_>>(), [true]);
        assert_eq!(held.runnable(&of("test", true)).len(), 1, "it is there");
        assert!(held.waiting.is_empty());
    }

    #[test]
    fn programs_are_begun_as_they_are_built() {
        let named = |name: &str, lane| Program {
            name: name.to_owned(),
            path: PathBuf::new(),
            folder: PathBuf::new(),
            runs_binary: false,
            lane,
        };
        let queue = Queue::default();
        let next = |takes| queue.next(takes).map(|program| program.name);
        queue.add(named("small", Lane::Computes));
        queue.add(named("sim tests/seeds", Lane::Computes));
        queue.add(named("waits", Lane::Waits));
        assert_eq!(next(Takes::Computing).as_deref(), Some("sim tests/seeds"), "the longest first");
        thread::scope(|scope| {
            assert_eq!(next(Takes::Waiting).as_deref(), Some("waits"));
            let waiting = scope.spawn(|| next(Takes::Waiting));
            queue.add(named("thalweg tests/live", Lane::Waits));
            assert_eq!(waiting.join().unwrap().as_deref(), Some("thalweg tests/live"), "not the small one");
        });
        queue.end(true);
        assert_eq!(next(Takes::Waiting).as_deref(), Some("small"), "nothing else will come");
        assert_eq!((next(Takes::Waiting), next(Takes::Computing)), (None, None));
    }

    #[test]
    fn what_does_not_compile_ends_the_run() {
        let queue = Queue::default();
        let program = Program {
            name: "any".to_owned(),
            path: PathBuf::new(),
            folder: PathBuf::new(),
            runs_binary: false,
            lane: Lane::Computes,
        };
        queue.add(program);
        queue.end(false);
        assert!(queue.next(Takes::Computing).is_none());
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

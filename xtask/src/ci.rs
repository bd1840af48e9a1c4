//! The checks that a push must pass. Steps that compile nothing come first, one after another, and the first
//! failure ends the run. Then the tests are built and run; the other steps that compile run beside the tests,
//! which mostly wait. All steps that compile use the profile of the tests, so macros, build scripts and their C
//! code are compiled once.

use crate::cargo::{Urgency, cargo, cargo_with};
use crate::{planted, test, tidy};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A step: its name, its command, and advice for a failure.
struct Step {
    name: &'static str,
    action: Action,
    remedy: &'static str,
}

enum Action {
    Format,
    /// The checks of `xtask tidy`.
    Tidy,
    /// Checks that the faults to plant fit the code.
    Planted,
    /// Checks licenses, bans and sources of dependencies, if cargo-deny is installed.
    Deny,
    /// Checks that the fuzz targets' own lock file fits; nothing that compiles them reads it.
    FuzzLock,
    /// With the features of the tests.
    Clippy,
    /// With README's features, whatever features the tests have.
    Docs,
    /// Checks that the pure crates compile for a machine without threads, files, sockets and clocks.
    Wasm,
}

/// The steps before anything is compiled.
const FIRST: &[Step] = &[
    Step { name: "fmt", action: Action::Format, remedy: "run `cargo fmt --all`" },
    Step {
        name: "tidy",
        action: Action::Tidy,
        remedy: "each line above names the file and the rule; the rules are in xtask/src/tidy.rs",
    },
    Step {
        name: "planted",
        action: Action::Planted,
        remedy: "plant the same fault in the code as it is now, and write `git diff` to the patch",
    },
    Step {
        name: "deny",
        action: Action::Deny,
        remedy: "deny.toml says which licenses and sources a dependency may have",
    },
    Step {
        name: "fuzz-lock",
        action: Action::FuzzLock,
        remedy: "run `cargo metadata --manifest-path fuzz/Cargo.toml` and commit fuzz/Cargo.lock",
    },
];

const TESTS: &str = "tests";
const TESTS_REMEDY: &str =
    "run a failing test alone: `cargo xtask test -- NAME`; property tests print their seed";

/// The steps while tests run. They run one after the other, because cargo locks its build folder.
const BESIDE: &[Step] = &[
    Step {
        name: "clippy",
        action: Action::Clippy,
        remedy: "mend what clippy names, or allow it on the spot with the reason",
    },
    Step { name: "docs", action: Action::Docs, remedy: "mend the links and code blocks rustdoc names" },
    Step {
        name: "wasm",
        action: Action::Wasm,
        remedy: "base, wire, dataplane, bgp and flow know no thread, clock, file or socket; ask for what they need",
    },
];

/// The options of `cargo xtask ci`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Only these steps; all if empty.
    only: Vec<String>,
    without: Vec<String>,
    /// Features for the tests and clippy.
    cargo: Vec<String>,
}

fn names() -> impl Iterator<Item = &'static str> {
    FIRST.iter().map(|step| step.name).chain([TESTS]).chain(BESIDE.iter().map(|step| step.name))
}

impl Options {
    /// Reads `[--only STEP].. [--without STEP].. [-- ARGUMENT OF CARGO..]`.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let steps = match arg.as_str() {
                "--only" => &mut options.only,
                "--without" => &mut options.without,
                "--" => {
                    options.cargo = args.cloned().collect();
                    break;
                }
                other => return Err(format!("ci does not know `{other}`")),
            };
            match args.next() {
                Some(name) if names().any(|known| known == name) => steps.push(name.clone()),
                name => {
                    let names: Vec<_> = names().collect();
                    let given = name.map_or("nothing", String::as_str);
                    return Err(format!("{arg} takes one of {}, not {given}", names.join(", ")));
                }
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        let is_among = |steps: &[String]| steps.iter().any(|step| step == name);
        (self.only.is_empty() || is_among(&self.only)) && !is_among(&self.without)
    }
}

/// Runs the steps.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    run_steps(root, options, FIRST)?;
    let beside = || run_steps(root, options, BESIDE);
    if options.wants(TESTS) {
        println!("==> {TESTS}");
        let tests = test::Options { cargo: options.cargo.clone(), ..test::Options::default() };
        test::run(root, &tests, beside).map_err(|why| format!("{why}\n{TESTS_REMEDY}"))?;
    } else {
        beside()?;
    }
    println!("==> all steps passed");
    Ok(())
}

fn run_steps(root: &Path, options: &Options, steps: &[Step]) -> Result<(), String> {
    for step in steps.iter().filter(|step| options.wants(step.name)) {
        println!("==> {}", step.name);
        let began = Instant::now();
        run_step(root, options, &step.action)
            .map_err(|why| format!("{} failed ({why}): {}", step.name, step.remedy))?;
        println!("    {} passed in {} s", step.name, began.elapsed().as_secs());
    }
    Ok(())
}

fn run_step(root: &Path, options: &Options, action: &Action) -> Result<(), String> {
    let later = |args: &[&str], env: &[(&str, &str)]| cargo_with(root, args, env, Urgency::WhenIdle);
    match action {
        Action::Format => cargo(root, &["fmt", "--all", "--check"], &[]),
        Action::Tidy => tidy::run(root),
        Action::Planted => planted::check(root),
        Action::Deny => deny(root),
        Action::FuzzLock => cargo(root, &["fetch", "--locked", "--manifest-path", "fuzz/Cargo.toml"], &[]),
        Action::Clippy => {
            let fixed =
                ["clippy", "--workspace", "--all-targets", "--locked", "--profile", "test"].into_iter();
            let features = options.cargo.iter().map(String::as_str);
            later(&fixed.chain(features).chain(["--", "-D", "warnings"]).collect::<Vec<_>>(), &[])
        }
        Action::Docs => {
            let docs = ["doc", "--workspace", "--no-deps", "--locked", "--profile", "test"];
            later(&docs, &[("RUSTDOCFLAGS", "-D warnings")])
        }
        Action::Wasm => wasm(root),
    }
}

fn deny(root: &Path) -> Result<(), String> {
    let version = Command::new("cargo-deny").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!(
            "SKIPPED: licenses of dependencies: `cargo install --locked cargo-deny` compiles for minutes"
        );
        return Ok(());
    }
    cargo(root, &["deny", "check", "licenses", "bans", "sources"], &[])
}

fn wasm(root: &Path) -> Result<(), String> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let add = Command::new("rustup").args(["target", "add", TARGET]).status();
    if !add.is_ok_and(|status| status.success()) {
        println!("SKIPPED: rustup cannot add the target {TARGET}");
        return Ok(());
    }
    let packages = tidy::PURE.iter().flat_map(|name| ["-p".to_owned(), format!("thalweg-{name}")]);
    let packages: Vec<String> = packages.collect();
    let packages = packages.iter().map(String::as_str);
    let args: Vec<&str> = ["check", "--locked", "--target", TARGET].into_iter().chain(packages).collect();
    // `check --profile test` would check tests too, which need more dependencies. These two variables give macros
    // the settings of the test profile.
    let env = [("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_PROFILE_DEV_LTO", "off")];
    cargo_with(root, &args, &env, Urgency::WhenIdle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(&args.iter().map(|a| a.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn steps_can_be_left_out_by_name() {
        let given = ["--without", "tests", "--without", "docs", "--without", "wasm", "--", "--features", "x"];
        let options = parse(&given).unwrap();
        let wanted: Vec<_> = names().filter(|name| options.wants(name)).collect();
        assert_eq!(wanted, ["fmt", "tidy", "planted", "deny", "fuzz-lock", "clippy"]);
        assert_eq!(options.cargo, ["--features", "x"]);
        let options = parse(&["--only", "tests", "--only", "clippy", "--without", "clippy"]).unwrap();
        assert!(names().filter(|name| options.wants(name)).eq(["tests"]));
    }

    #[test]
    fn unknown_steps_and_flags_are_refused() {
        let known = "fmt, tidy, planted, deny, fuzz-lock, tests, clippy, docs, wasm";
        assert!(parse(&["--without", "sleep"]).unwrap_err().contains(known));
        assert!(parse(&["--without"]).unwrap_err().contains("not nothing"));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }
}

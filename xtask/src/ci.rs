//! Everything a push must pass, step by step, stopping at the first failure.

use crate::cargo::cargo;
use crate::{planted, test, tidy};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// One step: what it is called, how it is run, and what a person does when it fails.
struct Step {
    name: &'static str,
    action: Action,
    remedy: &'static str,
}

enum Action {
    /// `cargo` with these arguments and environment variables.
    Cargo { args: &'static [&'static str], env: &'static [(&'static str, &'static str)] },
    /// Our own checks.
    Tidy,
    /// Whether the faults to plant fit the code.
    Planted,
    /// All tests.
    Tests,
    /// Licenses, bans and sources of dependencies, where cargo-deny is installed.
    Deny,
    /// Whether the pure crates compile for a machine without threads, files, sockets and clocks.
    Wasm,
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        action: Action::Cargo { args: &["fmt", "--all", "--check"], env: &[] },
        remedy: "run `cargo fmt --all`",
    },
    Step {
        name: "clippy",
        action: Action::Cargo {
            args: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
            env: &[],
        },
        remedy: "mend what clippy names, or allow it on the spot with the reason",
    },
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
        name: "wasm",
        action: Action::Wasm,
        remedy: "base, wire, dataplane, bgp and flow know no thread, clock, file or socket; ask for what they need",
    },
    Step {
        name: "deny",
        action: Action::Deny,
        remedy: "deny.toml says which licenses and sources a dependency may have",
    },
    Step {
        name: "tests",
        action: Action::Tests,
        remedy: "run the failing test alone: `cargo xtask test -- NAME`; property tests print their seed",
    },
    Step {
        name: "docs",
        action: Action::Cargo {
            args: &["doc", "--workspace", "--no-deps", "--locked"],
            env: &[("RUSTDOCFLAGS", "-D warnings")],
        },
        remedy: "mend the links and code blocks rustdoc names",
    },
];

/// What to leave out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    without: Vec<String>,
}

impl Options {
    /// Reads `--without STEP`, any number of times.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match (arg.as_str(), args.next()) {
                ("--without", Some(name)) if STEPS.iter().any(|s| s.name == name) => {
                    options.without.push(name.clone());
                }
                ("--without", name) => {
                    let names: Vec<_> = STEPS.iter().map(|s| s.name).collect();
                    let given = name.map_or("nothing", String::as_str);
                    return Err(format!("--without takes one of {}, not {given}", names.join(", ")));
                }
                (other, _) => return Err(format!("ci does not know `{other}`")),
            }
        }
        Ok(options)
    }

    fn wants(&self, step: &Step) -> bool {
        !self.without.iter().any(|name| name == step.name)
    }
}

/// Runs the steps in order.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| options.wants(step)).collect();
    for (number, step) in (1..).zip(&steps) {
        println!("==> {number}/{} {}", steps.len(), step.name);
        let began = Instant::now();
        let result = match &step.action {
            Action::Cargo { args, env } => cargo(root, args, env),
            Action::Tidy => tidy::run(root),
            Action::Planted => planted::check(root),
            Action::Tests => test::run(root, &test::Options::default()),
            Action::Wasm => wasm(root),
            Action::Deny => deny(root),
        };
        result.map_err(|why| format!("{} failed ({why}): {}", step.name, step.remedy))?;
        println!("    {} s", began.elapsed().as_secs());
    }
    println!("==> all {} steps passed", steps.len());
    Ok(())
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
    cargo(root, &args, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(&args.iter().map(|a| a.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn steps_can_be_left_out_by_name() {
        let options =
            parse(&["--without", "tests", "--without", "docs", "--without", "wasm", "--without", "deny"])
                .unwrap();
        let wanted: Vec<_> = STEPS.iter().filter(|s| options.wants(s)).map(|s| s.name).collect();
        assert_eq!(wanted, ["fmt", "clippy", "tidy", "planted"]);
    }

    #[test]
    fn unknown_steps_and_flags_are_refused() {
        assert!(
            parse(&["--without", "sleep"])
                .unwrap_err()
                .contains("fmt, clippy, tidy, planted, wasm, deny, tests, docs")
        );
        assert!(parse(&["--without"]).unwrap_err().contains("not nothing"));
        assert!(parse(&["--fast"]).unwrap_err().contains("--fast"));
    }
}
